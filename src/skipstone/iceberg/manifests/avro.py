"""A reader of Avro object containers: bounded decompression, blocks, the writer's schema, values.

No library reads untrusted files safely and fast: DataFusion's reader hangs on a block whose records end
early, and drops a truncated last block without an error; pyiceberg's reads beyond its buffer; fastavro
creates an object for every number.
"""

from __future__ import annotations

import bz2
import decimal
import json
import struct
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import pyarrow as pa
import zstandard

from skipstone.errors import EncryptedFileError


class AvroError(Exception):
    """Invalid Avro data."""


# -- compressed bytes --------------------------------------------------------------------------

# Metadata and manifests usually compress to a tenth, those of wide and mostly empty tables to a hundredth;
# small files can compress more.
_RATIO = 128
_LEAST = 64 << 20
_MOST = 1 << 30
_PART = 1 << 20
_ENCRYPTED = b"AGS1"
_DEFLATE_RATIO = 1032
_SNAPPY_RATIO = 64
_RAW, _GZIP = -zlib.MAX_WBITS, 16 + zlib.MAX_WBITS


def check_plain(head: bytes, path: str) -> None:
    """Refuse a file with the magic of Iceberg's encrypted metadata files."""
    if head.startswith(_ENCRYPTED):
        hint = "write a copy of the table without encryption"
        raise EncryptedFileError("file is encrypted, which is not supported for tables", path=path, hint=hint)


def most_unpacked(size: int) -> int:
    """Limit of the decompressed size of a file: far above real files, far below a decompression bomb."""
    return min(max(size * _RATIO, _LEAST), _MOST)


def gunzip(data: bytes, most: int, wbits: int = _GZIP) -> bytes:
    """Decompress gzip to at most ``most`` bytes."""
    if len(data) * _DEFLATE_RATIO > most:
        return _unpacked(partial(_inflated, data, wbits), most)
    try:
        # Some writers make a block of every record, so overhead counts.
        return zlib.decompress(data, wbits, 4096)
    except zlib.error as error:
        raise _unreadable(error) from None


def _inflate(data: bytes, most: int) -> bytes:
    return gunzip(data, most, _RAW)


def _inflated(data: bytes, wbits: int) -> Iterator[bytes]:
    decoder = zlib.decompressobj(wbits)
    while not decoder.eof:
        part = decoder.decompress(data, _PART)
        data = decoder.unconsumed_tail
        if not (part or data or decoder.eof):
            raise AvroError("block is truncated")
        yield part


def _bunzip(data: bytes, most: int) -> bytes:
    return _unpacked(partial(_bunzipped, data), most)


def _bunzipped(data: bytes) -> Iterator[bytes]:
    decoder = bz2.BZ2Decompressor()
    while not decoder.eof:
        part = decoder.decompress(data, _PART)
        if not (part or decoder.eof) and decoder.needs_input:
            raise AvroError("block is truncated")
        data = b""
        yield part


def unzstd(data: bytes, most: int, decoder: zstandard.ZstdDecompressor | None = None) -> bytes:
    """Decompress Zstandard to at most ``most`` bytes."""
    decoder = decoder or zstandard.ZstdDecompressor()
    try:
        size = zstandard.frame_content_size(data)
        if size > most:
            raise _too_large()
        if size >= 0:
            return decoder.decompress(data)
    except zstandard.ZstdError as error:
        raise _unreadable(error) from None
    return _unpacked(partial(_streamed, data, decoder), most)


def _streamed(data: bytes, decoder: zstandard.ZstdDecompressor) -> Iterator[bytes]:
    with decoder.stream_reader(data) as stream:
        while part := stream.read(_PART):
            yield part


def _unpacked(parts: Callable[[], Iterator[bytes]], most: int) -> bytes:
    """Join all parts, measuring them first, so that a decompression bomb takes no memory."""
    try:
        size = 0
        for part in parts():
            size += len(part)
            if size > most:
                raise _too_large()
        return b"".join(parts())
    except (zlib.error, OSError, zstandard.ZstdError) as error:
        raise _unreadable(error) from None


def _unsnap(data: bytes, most: int) -> bytes:
    packed, check = data[:-4], data[-4:]
    size, shift = 0, 0
    for byte in packed[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > len(packed) * _SNAPPY_RATIO:
        raise AvroError("recorded size of a block is impossible")
    if size > most:
        raise _too_large()
    try:
        body: bytes = pa.decompress(packed, size, "snappy", asbytes=True)
    except (OSError, pa.ArrowException, ValueError) as error:
        raise _unreadable(error) from None
    if zlib.crc32(body) != int.from_bytes(check, "big"):
        raise AvroError("block fails its checksum")
    return body


def _stored(data: bytes, _most: int) -> bytes:
    return data


def _unreadable(error: Exception) -> AvroError:
    return AvroError(f"block can't be decompressed: {error}")


def _too_large() -> AvroError:
    return AvroError("file decompresses to implausibly many bytes")


_CODECS: Mapping[str, Callable[[bytes, int], bytes]] = {
    "null": _stored,
    "deflate": _inflate,
    "zstandard": unzstd,
    "snappy": _unsnap,
    "bzip2": _bunzip,
}


# -- the file ----------------------------------------------------------------------------------

_MAGIC = b"Obj\x01"
_SYNC = 16
_MOST_HEADERS = 16
# Every record names a different file, which takes some bytes even when compressed.
_RECORD_BYTES = 4
_MANY_RECORDS = 1 << 18
# Even varints of one byte: small numbers, halved.
_FEW = frozenset(range(0, 128, 2))


@dataclass(frozen=True, slots=True)
class AvroFile:
    """A decompressed container: its metadata, and the records of all blocks, concatenated."""

    meta: Mapping[str, bytes]
    body: bytes
    blocks: tuple[tuple[int, int], ...]
    """Record count and end offset in the body, per block."""

    @property
    def schema(self) -> bytes:
        """The writer's schema, as JSON."""
        try:
            return self.meta["avro.schema"]
        except KeyError:
            raise AvroError("header has no schema") from None

    def text(self, key: str) -> str | None:
        """One entry of the metadata as a string; None if missing."""
        value = self.meta.get(key)
        return None if value is None else value.decode("utf-8", "replace")


def read_container(data: bytes, headers: dict[bytes, Mapping[str, bytes]] | None = None) -> AvroFile:
    """Decompress a container; every block must end with the sync marker.

    ``headers`` are those read before, which is enough for containers of one writer: they begin with the same
    bytes.
    """
    headers = {} if headers is None else headers
    head = next(filter(data.startswith, headers), b"")
    meta, pos = (headers[head], len(head)) if head else read_header(data)
    if len(headers) < _MOST_HEADERS:
        headers[data[:pos]] = meta
    sync = data[pos : pos + _SYNC]
    if len(sync) < _SYNC:
        raise AvroError("header ends before its sync marker")
    pos += _SYNC
    name = meta.get("avro.codec", b"null").decode("utf-8", "replace")
    unpack = _CODECS.get(name)
    if unpack is None:
        raise AvroError(f"unknown codec {name!r}")
    if unpack is unzstd:
        # One for all blocks, and for one thread.
        unpack = partial(unzstd, decoder=zstandard.ZstdDecompressor())
    bodies: list[bytes] = []
    blocks: list[tuple[int, int]] = []
    end = records = 0
    total, most = len(data), most_unpacked(len(data))
    most_records = max(total // _RECORD_BYTES, _MANY_RECORDS)
    # Some writers make a block of every record: this loop is part of the cost of an entry.
    while pos < total:
        count, pos = (data[pos] >> 1, pos + 1) if data[pos] in _FEW else read_long(data, pos)
        size, pos = read_long(data, pos)
        after = pos + size
        if size < 0 or not data.startswith(sync, after):
            raise AvroError(f"block at byte {pos} does not end with the sync marker")
        body = unpack(data[pos:after], most - end)
        if not 0 <= count <= len(body):
            raise AvroError(f"block at byte {pos} can't contain {count} records")
        end += len(body)
        records += count
        if records > most_records:
            raise AvroError(f"file of {total:,} bytes can't contain {records:,} records")
        bodies.append(body)
        blocks.append((count, end))
        pos = after + _SYNC
    return AvroFile(meta, b"".join(bodies), tuple(blocks))


def read_header(data: bytes) -> tuple[dict[str, bytes], int]:
    """The metadata of a container, and its end offset."""
    if data[:4] != _MAGIC:
        raise AvroError("not an Avro container")
    # The header is an Avro map of bytes.
    header, pos = read_value(AvroNode("map", [AvroNode("bytes")]), data, 4)
    return header, pos


# -- the schema --------------------------------------------------------------------------------

_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


@dataclass(frozen=True, slots=True)
class AvroField:
    """A field of a record: name, aliases, and Iceberg field id if it has one."""

    name: str
    field_id: int | None
    aliases: tuple[str, ...]

    @property
    def key(self) -> int | str:
        """Key of the field's value in a record: its id, else its name."""
        return self.name if self.field_id is None else self.field_id


@dataclass(slots=True, eq=False)
class AvroNode:
    """A type of the writer's schema; only named types are shared between uses."""

    kind: str
    parts: list[AvroNode] = field(default_factory=list)
    fields: tuple[AvroField, ...] = ()
    keys: tuple[int | str, ...] = ()
    """Keys of a record's fields."""
    size: int = 0
    logical: str = ""
    scale: int = 0
    symbols: tuple[str, ...] = ()
    seen: dict[int, int] = field(default_factory=dict)
    """Frequency of the lengths or item counts seen so far."""

    def find(self, field_id: int, name: str) -> int | None:
        """Position of a record's field: by id, else by name or alias among the fields without ids."""
        for position, own in enumerate(self.fields):
            if own.field_id == field_id:
                return position
        for position, own in enumerate(self.fields):
            if own.field_id is None and (own.name == name or name in own.aliases):
                return position
        return None

    def record(self) -> AvroNode | None:
        """This record, or the only record of this union."""
        records = [part for part in (self.parts if self.kind == "union" else [self]) if part.kind == "record"]
        return records[0] if len(records) == 1 else None


def parse_schema(text: bytes) -> AvroNode:
    """Parse the writer's schema."""
    try:
        return _node(json.loads(text), {}, "")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise AvroError(f"invalid schema: {error!r}") from None


def _node(schema: Any, names: dict[str, AvroNode], space: str) -> AvroNode:
    if isinstance(schema, list):
        return AvroNode("union", [_node(branch, names, space) for branch in schema])
    if isinstance(schema, str):
        if schema in _PRIMITIVES:
            return AvroNode(schema)
        node = names.get(_full_name(schema, "", space)) or names.get(schema)
        if node is None:
            raise ValueError(f"unknown type {schema!r}")
        return node
    kind = schema["type"]
    if not isinstance(kind, str) or kind not in ("array", "map", "fixed", "enum", "record", "error"):
        node = _node(kind, names, space)
    elif kind in ("array", "map"):
        return AvroNode(kind, [_node(schema["items" if kind == "array" else "values"], names, space)])
    else:
        node = _named(kind, schema, names, space)
    if "logicalType" in schema:
        node.logical, node.scale = str(schema["logicalType"]), int(schema.get("scale", 0))
    return node


def _named(kind: str, schema: Any, names: dict[str, AvroNode], space: str) -> AvroNode:
    full = _full_name(schema.get("name", ""), schema.get("namespace", ""), space)
    node = AvroNode("record" if kind == "error" else kind)
    if full:
        names[full] = node
    if kind == "fixed":
        node.size = int(schema["size"])
        if node.size < 0:
            raise ValueError("fixed type has a negative size")
    elif kind == "enum":
        node.symbols = tuple(map(str, schema["symbols"]))
    else:
        inner = full.rpartition(".")[0] or space
        for one in schema["fields"]:
            number = one.get("field-id")
            own = AvroField(
                one["name"], None if number is None else int(number), tuple(one.get("aliases", ()))
            )
            node.fields += (own,)
            node.keys += (own.key,)
            node.parts.append(_node(one["type"], names, inner))
    return node


def _full_name(name: str, namespace: str, space: str) -> str:
    if "." in name or not name:
        return name
    above = namespace or space
    return f"{above}.{name}" if above else name


# -- values ------------------------------------------------------------------------------------

# Limit for items that take no bytes.
_MAX_EMPTY = 1 << 12
_EXACT = decimal.Context(prec=90)
_MILLIS = frozenset({"timestamp-millis", "local-timestamp-millis", "time-millis"})
_FLOATS = {"float": struct.Struct("<f"), "double": struct.Struct("<d")}


def read_long(data: bytes, pos: int) -> tuple[int, int]:
    """A zigzag varint and the position after it."""
    result = shift = 0
    try:
        if (byte := data[pos]) <= 0x7F:
            return (byte >> 1) ^ -(byte & 1), pos + 1
        while (byte := data[pos]) > 0x7F:
            result |= (byte & 0x7F) << shift
            shift += 7
            pos += 1
    except IndexError:
        raise AvroError("data ends inside a number") from None
    result |= byte << shift
    if result >> 64:
        raise AvroError("number has more than 64 bits")
    return (result >> 1) ^ -(result & 1), pos + 1


def write_long(number: int) -> bytes:
    """Encode a zigzag varint."""
    rest = number << 1 if number >= 0 else (-number << 1) - 1
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def write_block(items: Iterable[bytes]) -> bytes:
    """Encode an array of one block."""
    written = [*items]
    return write_long(len(written)) + b"".join(written) + b"\x00" if written else b"\x00"


def read_branch(node: AvroNode, data: bytes, pos: int) -> tuple[AvroNode, int]:
    """The branch of a union that a value takes."""
    chosen, pos = read_long(data, pos)
    if not 0 <= chosen < len(node.parts):
        raise AvroError(f"union has no branch {chosen}")
    return node.parts[chosen], pos


def read_value(node: AvroNode, data: bytes, pos: int) -> tuple[Any, int]:
    """Decode a value to Iceberg's internal form; records become dicts by field key."""
    return _READERS[node.kind](node, data, pos)


def _read_union(node: AvroNode, data: bytes, pos: int) -> tuple[Any, int]:
    chosen, pos = read_branch(node, data, pos)
    return _READERS[chosen.kind](chosen, data, pos)


def _read_record(node: AvroNode, data: bytes, pos: int) -> tuple[Any, int]:
    record = {}
    for key, part in zip(node.keys, node.parts, strict=True):
        record[key], pos = _READERS[part.kind](part, data, pos)
    return record, pos


def _read_null(_node: AvroNode, _data: bytes, pos: int) -> tuple[Any, int]:
    return None, pos


def _read_whole(node: AvroNode, data: bytes, pos: int) -> tuple[Any, int]:
    number, pos = read_long(data, pos)
    return number * 1000 if node.logical in _MILLIS else number, pos


def _read_enum(node: AvroNode, data: bytes, pos: int) -> tuple[Any, int]:
    number, pos = read_long(data, pos)
    if not 0 <= number < len(node.symbols):
        raise AvroError(f"enum has no symbol {number}")
    return node.symbols[number], pos


def _read_boolean(_node: AvroNode, data: bytes, pos: int) -> tuple[Any, int]:
    return _take(data, pos, 1) != b"\x00", pos + 1


def _read_floating(node: AvroNode, data: bytes, pos: int) -> tuple[Any, int]:
    form = _FLOATS[node.kind]
    return form.unpack(_take(data, pos, form.size))[0], pos + form.size


def _read_fixed(node: AvroNode, data: bytes, pos: int) -> tuple[Any, int]:
    raw = _take(data, pos, node.size)
    return _decimal(node, raw) if node.logical == "decimal" else raw, pos + node.size


def _read_bytes(node: AvroNode, data: bytes, pos: int) -> tuple[Any, int]:
    size, pos = read_long(data, pos)
    raw = _take(data, pos, size)
    node.seen[size] = node.seen.get(size, 0) + 1
    return _decimal(node, raw) if node.logical == "decimal" else raw, pos + size


def _read_string(node: AvroNode, data: bytes, pos: int) -> tuple[Any, int]:
    size, pos = read_long(data, pos)
    raw = _take(data, pos, size)
    node.seen[size] = node.seen.get(size, 0) + 1
    try:
        text = raw.decode()
        return uuid.UUID(text).bytes if node.logical == "uuid" else text, pos + size
    except ValueError as error:
        raise AvroError(f"invalid string: {error}") from None


def _read_array(node: AvroNode, data: bytes, pos: int) -> tuple[Any, int]:
    items: list[Any] = []
    item = node.parts[0]
    read = _READERS[item.kind]
    while True:
        count, pos = _read_count(node, data, pos)
        if not count:
            return items, pos
        if item.kind == "record" and len(item.parts) == 2:
            pos = _read_pairs(item, count, data, pos, items)
            continue
        for _ in range(count):
            value, pos = read(item, data, pos)
            items.append(value)


def _read_pairs(item: AvroNode, count: int, data: bytes, pos: int, into: list[Any]) -> int:
    """Decode records of two fields, as in maps by field id, which are most of an entry."""
    (first, second), (one, other) = item.parts, item.keys
    read_first, read_second = _READERS[first.kind], _READERS[second.kind]
    for _ in range(count):
        key, pos = read_first(first, data, pos)
        value, pos = read_second(second, data, pos)
        into.append({one: key, other: value})
    return pos


def _read_map(node: AvroNode, data: bytes, pos: int) -> tuple[Any, int]:
    items: dict[str, Any] = {}
    while True:
        count, pos = _read_count(node, data, pos)
        if not count:
            return items, pos
        for _ in range(count):
            size, pos = read_long(data, pos)
            key = _take(data, pos, size).decode("utf-8", "replace")
            items[key], pos = read_value(node.parts[0], data, pos + size)


def _read_count(node: AvroNode, data: bytes, pos: int) -> tuple[int, int]:
    """Item count of the next block of an array or map, and the position of the first item."""
    count, pos = read_long(data, pos)
    if count < 0:
        count = -count
        _, pos = read_long(data, pos)
    if count > (_MAX_EMPTY if node.kind == "array" and _is_empty(node.parts[0]) else len(data) - pos):
        raise AvroError(f"data is too short for {count} items")
    if count:
        node.seen[count] = node.seen.get(count, 0) + 1
    return count, pos


@lru_cache(maxsize=4096)
def _is_empty(node: AvroNode) -> bool:
    """Whether values of a type take no bytes."""
    if node.kind == "record":
        return all(map(_is_empty, node.parts))
    return node.kind == "null" or (node.kind == "fixed" and not node.size)


def _take(data: bytes, pos: int, size: int) -> bytes:
    if size < 0 or pos + size > len(data):
        raise AvroError("data ends inside a value")
    return data[pos : pos + size]


def _decimal(node: AvroNode, data: bytes) -> decimal.Decimal:
    return decimal.Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-node.scale, _EXACT)


# A look-up costs less than a chain of comparisons.
_READERS: Mapping[str, Callable[[AvroNode, bytes, int], tuple[Any, int]]] = {
    "union": _read_union,
    "record": _read_record,
    "array": _read_array,
    "map": _read_map,
    "null": _read_null,
    "int": _read_whole,
    "long": _read_whole,
    "enum": _read_enum,
    "boolean": _read_boolean,
    "float": _read_floating,
    "double": _read_floating,
    "fixed": _read_fixed,
    "bytes": _read_bytes,
    "string": _read_string,
}
