"""A small Avro writer of its own, so that tables in tests owe nothing to the reader under test."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

Schema = Any
SYNC = bytes(range(16))


def varint(value: int) -> bytes:
    """A zigzag integer."""
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode(schema: Schema, value: Any) -> bytes:
    """One value in Avro's binary form."""
    if isinstance(schema, list):
        # A union of null and one type, in either order.
        at = schema.index("null")
        if value is None:
            return varint(at)
        return varint(1 - at) + encode(schema[1 - at], value)
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "record":
        return b"".join(encode(f["type"], value[f["name"]]) for f in schema["fields"])
    if kind == "array":
        return _blocks([encode(schema["items"], item) for item in value], sized="sized" in schema)
    if kind in ("int", "long"):
        return varint(value)
    if kind == "boolean":
        return b"\x01" if value else b"\x00"
    if kind in ("float", "double"):
        return struct.pack("<f" if kind == "float" else "<d", value)
    if kind == "string":
        return encode("bytes", value.encode())
    if kind == "bytes":
        return varint(len(value)) + value
    assert kind == "fixed", kind
    assert len(value) == schema["size"]
    return bytes(value)


def _blocks(items: Sequence[bytes], *, sized: bool) -> bytes:
    """An array; with sizes, as writers that let readers skip do, in blocks of two."""
    if not items:
        return varint(0)
    if not sized:
        return varint(len(items)) + b"".join(items) + varint(0)
    out = b""
    for at in range(0, len(items), 2):
        part = items[at : at + 2]
        out += varint(-len(part)) + varint(len(b"".join(part))) + b"".join(part)
    return out + varint(0)


def write(
    path: Path,
    schema: Schema,
    records: Sequence[Any],
    meta: Mapping[str, str],
    *,
    codec: str = "deflate",
    block: int = 1000,
) -> int:
    """A container file; its size."""
    head = {"avro.schema": json.dumps(_public(schema)), "avro.codec": codec, **meta}
    entries = [encode("string", name) + encode("bytes", text.encode()) for name, text in head.items()]
    out = b"Obj\x01" + _blocks(entries, sized=False) + SYNC
    for at in range(0, len(records), block):
        part = records[at : at + block]
        data = _compressed(codec, b"".join(encode(schema, record) for record in part))
        out += varint(len(part)) + varint(len(data)) + data + SYNC
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(out)
    return len(out)


def _public(schema: Schema) -> Schema:
    """The schema without what only this writer reads."""
    if isinstance(schema, list):
        return [_public(part) for part in schema]
    if isinstance(schema, dict):
        return {name: _public(part) for name, part in schema.items() if name != "sized"}
    return schema


def _compressed(codec: str, data: bytes) -> bytes:
    if codec == "null":
        return data
    if codec == "deflate":
        return zlib.compress(data)[2:-4]
    if codec == "snappy":
        return bytes(pa.compress(data, codec="snappy", asbytes=True)) + struct.pack(">I", zlib.crc32(data))
    assert codec == "zstandard"
    return bytes(pa.compress(data, codec="zstd", asbytes=True))
