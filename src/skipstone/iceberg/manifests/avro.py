"""Avro object containers: codecs within bounds, blocks, the writer's schema, values in internal form.

Written by hand, as no library reads files of strangers safely and fast: DataFusion's reader hangs on a block
whose records end before it does, and drops a truncated last block without an error; pyiceberg's reads beyond
its buffer; fastavro makes an object of every number.
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
    """Bytes that are not the Avro they claim to be."""


# -- compressed bytes --------------------------------------------------------------------------

# Metadata and manifests of real tables shrink to a tenth or so, those of wide and mostly empty ones to a
# hundredth; small files may shrink more.
_RATIO = 128
_LEAST = 64 << 20
_MOST = 1 << 30
_PART = 1 << 20
_ENCRYPTED = b"AGS1"
_DEFLATE_RATIO = 1032
_SNAPPY_RATIO = 64
_RAW, _GZIP = -zlib.MAX_WBITS, 16 + zlib.MAX_WBITS


def check_plain(head: bytes, path: str) -> None:
    """Refuse a file that begins as the format says of encrypted files other than Parquet."""
    if head.startswith(_ENCRYPTED):
        hint = "Skipstone does not read encrypted tables: write a copy without encryption"
        raise EncryptedFileError("the file is encrypted", path=path, hint=hint)


def most_unpacked(size: int) -> int:
    """How many bytes a file of this size may unpack to: far more than writers make, far less than a bomb."""
    return min(max(size * _RATIO, _LEAST), _MOST)


def gunzip(data: bytes, most: int, wbits: int = _GZIP) -> bytes:
    """Unpack gzip, unless there is more of it than ``most`` bytes."""
    if len(data) * _DEFLATE_RATIO > most:
        return _unpacked(partial(_inflated, data, wbits), most)
    try:
        # Some writers make a block of every record: nothing but the call.
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
            raise AvroError("a block is truncated")
        yield part


def _bunzip(data: bytes, most: int) -> bytes:
    return _unpacked(partial(_bunzipped, data), most)


def _bunzipped(data: bytes) -> Iterator[bytes]:
    decoder = bz2.BZ2Decompressor()
    while not decoder.eof:
        part = decoder.decompress(data, _PART)
        if not (part or decoder.eof) and decoder.needs_input:
            raise AvroError("a block is truncated")
        data = b""
        yield part


def unzstd(data: bytes, most: int, decoder: zstandard.ZstdDecompressor | None = None) -> bytes:
    """Unpack Zstandard, unless there is more of it than ``most`` bytes."""
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
    """All parts as one; measured before any is kept, so that a bomb takes no memory."""
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
        raise AvroError("a block can't be as large as it says")
    if size > most:
        raise _too_large()
    try:
        body: bytes = pa.decompress(packed, size, "snappy", asbytes=True)
    except (OSError, pa.ArrowException, ValueError) as error:
        raise _unreadable(error) from None
    if zlib.crc32(body) != int.from_bytes(check, "big"):
        raise AvroError("a block fails its checksum")
    return body


def _stored(data: bytes, _most: int) -> bytes:
    return data


def _unreadable(error: Exception) -> AvroError:
    return AvroError(f"a block can't be unpacked: {error}")


def _too_large() -> AvroError:
    return AvroError("the file unpacks to far more than a file of its size can hold")


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
# Each record names a file of its own, which takes some bytes however well they are packed.
_RECORD_BYTES = 4
_MANY_RECORDS = 1 << 18
# Even varints of one byte: small numbers, halved.
_FEW = frozenset(range(0, 128, 2))


@dataclass(frozen=True, slots=True)
class AvroFile:
    """A container unpacked: its metadata, and the records of all blocks one after the other."""

    meta: Mapping[str, bytes]
    body: bytes
    blocks: tuple[tuple[int, int], ...]
    """For each block how many records it has, and where in the body it ends."""

    @property
    def schema(self) -> bytes:
        """The writer's schema, as JSON."""
        try:
            return self.meta["avro.schema"]
        except KeyError:
            raise AvroError("the header has no schema") from None

    def text(self, key: str) -> str | None:
        """One entry of the metadata as text; None if it isn't there."""
        value = self.meta.get(key)
        return None if value is None else value.decode("utf-8", "replace")


def read_container(data: bytes, headers: dict[bytes, Mapping[str, bytes]] | None = None) -> AvroFile:
    """Unpack a whole container; every block must end in the file's sync marker.

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
        raise AvroError("the header ends before its sync marker")
    pos += _SYNC
    name = meta.get("avro.codec", b"null").decode("utf-8", "replace")
    unpack = _CODECS.get(name)
    if unpack is None:
        raise AvroError(f"the codec {name!r} is not known")
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
            raise AvroError(f"the block at byte {pos} does not end in the sync marker")
        body = unpack(data[pos:after], most - end)
        if not 0 <= count <= len(body):
            raise AvroError(f"the block at byte {pos} can't hold {count} records")
        end += len(body)
        records += count
        if records > most_records:
            raise AvroError(f"a file of {total:,} bytes can't hold {records:,} records")
        bodies.append(body)
        blocks.append((count, end))
        pos = after + _SYNC
    return AvroFile(meta, b"".join(bodies), tuple(blocks))


def read_header(data: bytes) -> tuple[dict[str, bytes], int]:
    """A container's metadata, and where it ends."""
    if data[:4] != _MAGIC:
        raise AvroError("the file is not an Avro container")
    # The header is itself Avro: a map of bytes.
    found, pos = read_value(AvroNode("map", [AvroNode("bytes")]), data, 4)
    return found, pos


# -- the schema --------------------------------------------------------------------------------

_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a record: its name and aliases, and its Iceberg field id where it has one."""

    name: str
    field_id: int | None
    aliases: tuple[str, ...]

    @property
    def key(self) -> int | str:
        """What a value of the field is found by: its id, else its name."""
        return self.name if self.field_id is None else self.field_id


@dataclass(slots=True, eq=False)
class AvroNode:
    """A type of the writer's schema; every mention is a node of its own, but for named types."""

    kind: str
    parts: list[AvroNode] = field(default_factory=list)
    fields: tuple[Field, ...] = ()
    keys: tuple[int | str, ...] = ()
    """The keys of a record's fields."""
    size: int = 0
    logical: str = ""
    scale: int = 0
    symbols: tuple[str, ...] = ()
    seen: dict[int, int] = field(default_factory=dict)
    """How often which length or item count was read: what a reader of many records may expect."""

    def find(self, field_id: int, name: str) -> int | None:
        """The place of a record's field: by id, else by name or alias among the fields without one."""
        for place, known in enumerate(self.fields):
            if known.field_id == field_id:
                return place
        for place, known in enumerate(self.fields):
            if known.field_id is None and (known.name == name or name in known.aliases):
                return place
        return None

    def record(self) -> AvroNode | None:
        """The record that this is, or the only one in a union."""
        found = [part for part in (self.parts if self.kind == "union" else [self]) if part.kind == "record"]
        return found[0] if len(found) == 1 else None


def parse_schema(text: bytes) -> AvroNode:
    """The writer's schema as a tree."""
    try:
        return _node(json.loads(text), {}, "")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise AvroError(f"the schema can't be read: {error!r}") from None


def _node(schema: Any, names: dict[str, AvroNode], space: str) -> AvroNode:
    if isinstance(schema, list):
        return AvroNode("union", [_node(branch, names, space) for branch in schema])
    if isinstance(schema, str):
        if schema in _PRIMITIVES:
            return AvroNode(schema)
        found = names.get(_full_name(schema, "", space)) or names.get(schema)
        if found is None:
            raise ValueError(f"the type {schema!r} is not known")
        return found
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
            raise ValueError("a fixed type has a negative size")
    elif kind == "enum":
        node.symbols = tuple(map(str, schema["symbols"]))
    else:
        inner = full.rpartition(".")[0] or space
        for one in schema["fields"]:
            number = one.get("field-id")
            known = Field(one["name"], None if number is None else int(number), tuple(one.get("aliases", ())))
            node.fields += (known,)
            node.keys += (known.key,)
            node.parts.append(_node(one["type"], names, inner))
    return node


def _full_name(name: str, namespace: str, space: str) -> str:
    if "." in name or not name:
        return name
    above = namespace or space
    return f"{above}.{name}" if above else name


# -- values ------------------------------------------------------------------------------------

# Items may take no byte at all; no file has a use for more of them.
_MOST_EMPTY = 1 << 12
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
        raise AvroError("it ends inside a number") from None
    result |= byte << shift
    if result >> 64:
        raise AvroError("a number has more than 64 bits")
    return (result >> 1) ^ -(result & 1), pos + 1


def write_long(number: int) -> bytes:
    """A number as a zigzag varint."""
    rest = number << 1 if number >= 0 else (-number << 1) - 1
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def write_block(items: Iterable[bytes]) -> bytes:
    """Items as an array of one block."""
    written = [*items]
    return write_long(len(written)) + b"".join(written) + b"\x00" if written else b"\x00"


def read_branch(node: AvroNode, data: bytes, pos: int) -> tuple[AvroNode, int]:
    """The branch of a union that a value takes."""
    chosen, pos = read_long(data, pos)
    if not 0 <= chosen < len(node.parts):
        raise AvroError(f"a union has no branch {chosen}")
    return node.parts[chosen], pos


def read_value(node: AvroNode, data: bytes, pos: int) -> tuple[Any, int]:
    """One value in Iceberg's internal form, and the position after it; records are dicts by field key."""
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
        raise AvroError(f"an enum has no symbol {number}")
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
        raise AvroError(f"a text can't be read: {error}") from None


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
    """Records of two fields, which maps by field id are made of: most of what is in an entry."""
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
    """How many items the next block of an array or map has, and where they begin."""
    count, pos = read_long(data, pos)
    if count < 0:
        count = -count
        _, pos = read_long(data, pos)
    if count > (_MOST_EMPTY if node.kind == "array" and _is_empty(node.parts[0]) else len(data) - pos):
        raise AvroError(f"there is no room for {count} items")
    if count:
        node.seen[count] = node.seen.get(count, 0) + 1
    return count, pos


@lru_cache(maxsize=4096)
def _is_empty(node: AvroNode) -> bool:
    """Whether values of a type take no byte at all."""
    if node.kind == "record":
        return all(map(_is_empty, node.parts))
    return node.kind == "null" or (node.kind == "fixed" and not node.size)


def _take(data: bytes, pos: int, size: int) -> bytes:
    if size < 0 or pos + size > len(data):
        raise AvroError("it ends inside a value")
    return data[pos : pos + size]


def _decimal(node: AvroNode, data: bytes) -> decimal.Decimal:
    return decimal.Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-node.scale, _EXACT)


# A look-up here costs less than asking for one kind after the other.
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
