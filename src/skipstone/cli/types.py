"""Parquet's types, encodings and codecs by name."""

from __future__ import annotations

from skipstone.parquet.schema import LeafColumn, Logical, LogicalKind, PhysicalType

_K = LogicalKind
_CODECS = ("uncompressed", "snappy", "gzip", "lzo", "brotli", "lz4", "zstd", "lz4_raw")
_ENCODINGS = {
    0: "PLAIN",
    2: "PLAIN_DICTIONARY",
    3: "RLE",
    4: "BIT_PACKED",
    5: "DELTA_BINARY_PACKED",
    6: "DELTA_LENGTH_BYTE_ARRAY",
    7: "DELTA_BYTE_ARRAY",
    8: "RLE_DICTIONARY",
    9: "BYTE_STREAM_SPLIT",
}
_SHORT = {
    0: "plain",
    2: "dict",
    3: "rle",
    4: "bits",
    5: "delta",
    6: "delta-length",
    7: "delta-bytes",
    8: "dict",
    9: "split",
}


def codec_name(number: int) -> str:
    """The name of a compression codec."""
    return _CODECS[number] if 0 <= number < len(_CODECS) else f"codec {number}"


def encoding_name(number: int) -> str:
    """The format's name of an encoding."""
    return _ENCODINGS.get(number, f"encoding {number}")


def short_encoding(number: int) -> str:
    """A name of an encoding that fits a table."""
    return _SHORT.get(number, str(number))


def physical_name(leaf: LeafColumn) -> str:
    """How a leaf is stored."""
    if leaf.physical is PhysicalType.FIXED_LEN_BYTE_ARRAY:
        return f"fixed({leaf.type_length})"
    return leaf.physical.name.lower()


def logical_name(logical: Logical) -> str | None:
    """What a leaf means; None where its physical type says it all."""
    match logical.kind:
        case _K.NONE:
            return None
        case _K.DECIMAL:
            return f"decimal({logical.precision},{logical.scale})"
        case _K.TIME | _K.TIMESTAMP:
            return f"{logical.kind.value}({logical.unit}{',utc' if logical.utc else ''})"
        case _K.INTEGER:
            return f"{'' if logical.signed else 'u'}int{logical.bits}"
    return logical.kind.value
