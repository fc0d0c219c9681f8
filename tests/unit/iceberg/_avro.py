"""A writer of Avro that can be told to write oddly: blocks, unions, codecs and numbers as few writers do."""

from __future__ import annotations

import bz2
import json
import struct
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import zstandard

SYNC = bytes(range(16))


def long(number: int, *, overlong: int = 0) -> bytes:
    rest = (number << 1) ^ (number >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    for _ in range(overlong):
        out[-1] |= 0x80
        out.append(0)
    return bytes(out)


def blob(data: bytes) -> bytes:
    return long(len(data)) + data


def block(items: Sequence[bytes], *, odd: Callable[[], int] = lambda: 0) -> bytes:
    """An array: in one block, in one with its size (1), or in a block for each item (2)."""
    style = odd()
    if not items:
        return b"\x00"
    if style == 0:
        return long(len(items)) + b"".join(items) + b"\x00"
    groups = [items] if style == 1 else [[item] for item in items]
    parts = [long(-len(g)) + long(len(b"".join(g))) + b"".join(g) for g in groups]
    return b"".join(parts) + b"\x00"


def encode(schema: Any, value: Any, odd: Callable[[], int] = lambda: 0) -> bytes:
    """A value by its schema; of a union, null or the one branch that isn't."""
    if isinstance(schema, list):
        branch = next(i for i, s in enumerate(schema) if (s == "null") == (value is None))
        return long(branch) + encode(schema[branch], value, odd)
    kind = schema if isinstance(schema, str) else schema["type"]
    if isinstance(kind, (list, dict)):
        return encode(kind, value, odd)
    match kind:
        case "null":
            return b""
        case "boolean":
            return bytes([value])
        case "int" | "long":
            return long(value)
        case "float":
            return struct.pack("<f", value)
        case "double":
            return struct.pack("<d", value)
        case "bytes":
            return blob(value)
        case "string":
            return blob(value.encode())
        case "fixed":
            return bytes(value)
        case "enum":
            return long(schema["symbols"].index(value))
        case "array":
            return block([encode(schema["items"], item, odd) for item in value], odd=odd)
        case "map":
            pairs = value.items()
            return block([blob(k.encode()) + encode(schema["values"], v, odd) for k, v in pairs], odd=odd)
    return b"".join(encode(f["type"], value.get(f["name"]), odd) for f in schema["fields"])


def container(
    schema: Any,
    blocks: Sequence[Sequence[bytes]],
    *,
    codec: str | None = "null",
    meta: dict[str, bytes] | None = None,
) -> bytes:
    """A container of encoded records; ``schema`` is JSON."""
    header = {"avro.schema": json.dumps(schema).encode(), **(meta or {})}
    if codec is not None:
        header["avro.codec"] = codec.encode()
    out = b"Obj\x01" + block([blob(k.encode()) + blob(v) for k, v in header.items()]) + SYNC
    for records in blocks:
        packed = pack(codec or "null", b"".join(records))
        out += long(len(records)) + long(len(packed)) + packed + SYNC
    return out


def pack(codec: str, data: bytes) -> bytes:
    match codec:
        case "deflate":
            return zlib.compress(data, wbits=-15)
        case "zstandard":
            return zstandard.ZstdCompressor().compress(data)
        case "bzip2":
            return bz2.compress(data)
        case "snappy":
            packed: bytes = pa.compress(data, "snappy", asbytes=True)
            return packed + zlib.crc32(data).to_bytes(4, "big")
    return data


def field(name: str, field_id: int | None, type: Any) -> dict[str, Any]:
    return {"name": name, "type": type} | ({} if field_id is None else {"field-id": field_id})


def record(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def optional(type: Any) -> list[Any]:
    return ["null", type]


def counts(name: str, field_id: int, key_id: int, value: Any = "long") -> dict[str, Any]:
    """A map by field id, as an array of keys and values."""
    item = record(f"k{key_id}", field("key", key_id, "int"), field("value", key_id + 1, value))
    return field(name, field_id, optional({"type": "array", "logicalType": "map", "items": item}))


def entry_schema(*partition: dict[str, Any], version: int = 3) -> dict[str, Any]:
    """The schema of manifest entries of a format version."""
    file = [
        field("content", 134, "int"),
        field("file_path", 100, "string"),
        field("file_format", 101, "string"),
        field("partition", 102, record("r102", *partition)),
        field("record_count", 103, "long"),
        field("file_size_in_bytes", 104, "long"),
        counts("column_sizes", 108, 117),
        counts("value_counts", 109, 119),
        counts("null_value_counts", 110, 121),
        counts("nan_value_counts", 137, 138),
        counts("lower_bounds", 125, 126, "bytes"),
        counts("upper_bounds", 128, 129, "bytes"),
        field("split_offsets", 132, optional({"type": "array", "items": "long"})),
        field("equality_ids", 135, optional({"type": "array", "items": "int"})),
        field("sort_order_id", 140, optional("int")),
        field("first_row_id", 142, optional("long")),
        field("referenced_data_file", 143, optional("string")),
        field("content_offset", 144, optional("long")),
        field("content_size_in_bytes", 145, optional("long")),
    ]
    own = [
        field("status", 0, "int"),
        field("snapshot_id", 1, optional("long")),
        field("sequence_number", 3, optional("long")),
        field("file_sequence_number", 4, optional("long")),
    ]
    new = {1: {134, 135, 142, 143, 144, 145, 3, 4}, 2: {142, 143, 144, 145}, 3: set()}[version]
    kept = [f for f in own if f["field-id"] not in new]
    inner = record("r2", *(f for f in file if f["field-id"] not in new))
    return record("manifest_entry", *kept, field("data_file", 2, inner))


def entry(path: str = "s3://b/f.parquet", **given: Any) -> dict[str, Any]:
    """An entry by the names of the format; what isn't given is absent."""
    own = {"status": 1, "snapshot_id": None}
    file = {"content": 0, "file_path": path, "file_format": "PARQUET", "partition": {}}
    file |= {"record_count": 10, "file_size_in_bytes": 100}
    for name, value in given.items():
        (own if name in ("status", "snapshot_id", "sequence_number", "file_sequence_number") else file)[
            name
        ] = value
    return {**own, "data_file": file}


def as_map(values: dict[int, Any] | None) -> list[dict[str, Any]] | None:
    return None if values is None else [{"key": k, "value": v} for k, v in values.items()]


def manifest(
    schema: dict[str, Any], entries: Sequence[dict[str, Any]], version: int = 3, **kwargs: Any
) -> bytes:
    """A manifest with all entries in one block."""
    meta = {"format-version": str(version).encode()}
    return container(schema, [[encode(schema, e) for e in entries]], meta=meta, **kwargs)
