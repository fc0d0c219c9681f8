"""Avro object containers: the header, the blocks, the writer's schema, values in Iceberg's internal form."""

from __future__ import annotations

import bz2
import decimal
import json
import struct
import uuid
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import pyarrow as pa
import zstandard

from skipstone.errors import EncryptedFileError

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

Unpack = Callable[[bytes, int], bytes]
"""Unpacks bytes, unless there are more of them than the given number."""


class AvroError(Exception):
    """Bytes that are not the Avro they claim to be."""


def check_plain(head: bytes, path: str) -> None:
    """Refuse a file that begins as the format says of encrypted files other than Parquet."""
    if head.startswith(_ENCRYPTED):
        hint = "Skipstone reads no encrypted tables: write a copy without encryption"
        raise EncryptedFileError("the file is encrypted", path=path, hint=hint)


def most_unpacked(size: int) -> int:
    """How many bytes a file of this size may unpack to: far more than writers make, far less than a bomb."""
    return min(max(size * _RATIO, _LEAST), _MOST)


def _inflate(data: bytes, most: int, wbits: int = _RAW) -> bytes:
    try:
        if len(data) * _DEFLATE_RATIO <= most:
            return zlib.decompress(data, wbits, 4096)
        return _measured(lambda: _inflated(data, wbits), most)
    except zlib.error as error:
        raise AvroError(f"a block can't be inflated: {error}") from None


def _inflated(data: bytes, wbits: int) -> Iterator[bytes]:
    decoder = zlib.decompressobj(wbits)
    while not decoder.eof:
        part = decoder.decompress(data, _PART)
        data = decoder.unconsumed_tail
        if not part and not data:
            raise AvroError("a block is cut short")
        yield part


def gunzip(data: bytes, most: int) -> bytes:
    """Unpack gzip."""
    return _inflate(data, most, _GZIP)


def _bunzip(data: bytes, most: int) -> bytes:
    try:
        return _measured(lambda: _bunzipped(data), most)
    except OSError as error:
        raise AvroError(f"a block can't be unpacked: {error}") from None


def _bunzipped(data: bytes) -> Iterator[bytes]:
    decoder = bz2.BZ2Decompressor()
    while not decoder.eof:
        part = decoder.decompress(data, _PART)
        if not part and decoder.needs_input:
            raise AvroError("a block is cut short")
        data = b""
        yield part


def _measured(parts: Callable[[], Iterator[bytes]], most: int) -> bytes:
    """All parts as one, measured before any is kept."""
    size = 0
    for part in parts():
        size += len(part)
        if size > most:
            raise _too_large()
    return b"".join(parts())


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
        raise AvroError(f"a block can't be unpacked: {error}") from None
    if zlib.crc32(body) != int.from_bytes(check, "big"):
        raise AvroError("a block fails its checksum")
    return body


def unzstd(data: bytes, most: int, decoder: zstandard.ZstdDecompressor | None = None) -> bytes:
    """Unpack Zstandard."""
    decoder = decoder or zstandard.ZstdDecompressor()
    try:
        size = zstandard.frame_content_size(data)
        if size > most:
            raise _too_large()
        if size >= 0:
            return decoder.decompress(data)
        return _measured(lambda: _streamed(decoder, data), most)
    except zstandard.ZstdError as error:
        raise AvroError(f"a block can't be unpacked: {error}") from None


def _streamed(decoder: zstandard.ZstdDecompressor, data: bytes) -> Iterator[bytes]:
    with decoder.stream_reader(data) as stream:
        while part := stream.read(_PART):
            yield part


def _zstandard() -> Unpack:
    decoder = zstandard.ZstdDecompressor()
    return lambda data, most: unzstd(data, most, decoder)


def _stored(data: bytes, _most: int) -> bytes:
    return data


def _too_large() -> AvroError:
    return AvroError("the file unpacks to far more than a file of its size can hold")


CODECS: Mapping[str, Callable[[], Unpack]] = {
    "null": lambda: _stored,
    "deflate": lambda: _inflate,
    "zstandard": _zstandard,
    "snappy": lambda: _unsnap,
    "bzip2": lambda: _bunzip,
}
"""By the name in a container's header, what makes an unpacker of its blocks; it serves one thread."""


_MAGIC = b"Obj\x01"
_SYNC = 16
_MOST_HEADERS = 16
# Items may be of no size at all; no file has a use for more of them.
_MOST_EMPTY = 1 << 12
# Each record names a file of its own, which takes some bytes however well they are packed.
_RECORD_BYTES = 4
_MANY_RECORDS = 1 << 18
# Even varints of one byte: small numbers, halved.
_FEW = frozenset(range(0, 128, 2))
_EXACT = decimal.Context(prec=90)
_MILLIS = frozenset({"timestamp-millis", "local-timestamp-millis", "time-millis"})
_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


@dataclass(frozen=True, slots=True)
class Container:
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


# -- the file ----------------------------------------------------------------------------------


class Headers:
    """Headers that were read: containers of one writer begin with the same bytes."""

    def __init__(self) -> None:
        self._known: list[tuple[bytes, Mapping[str, bytes]]] = []

    def read(self, data: bytes) -> tuple[Mapping[str, bytes], int]:
        """A container's metadata, and where it ends."""
        for head, meta in self._known:
            if data.startswith(head):
                return meta, len(head)
        meta, pos = read_header(data)
        if len(self._known) < _MOST_HEADERS:
            self._known.append((data[:pos], meta))
        return meta, pos


def read_container(data: bytes, headers: Headers | None = None) -> Container:
    """Unpack a whole container; every block must end in the file's sync marker."""
    meta, pos = read_header(data) if headers is None else headers.read(data)
    sync = data[pos : pos + _SYNC]
    if len(sync) < _SYNC:
        raise AvroError("the header ends before its sync marker")
    pos += _SYNC
    name = meta.get("avro.codec", b"null").decode("utf-8", "replace")
    codec = CODECS.get(name)
    if codec is None:
        raise AvroError(f"the codec {name!r} is not known")
    unpack = codec()
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
    return Container(meta, b"".join(bodies), tuple(blocks))


def read_header(data: bytes) -> tuple[dict[str, bytes], int]:
    """A container's metadata, and where it ends."""
    if data[:4] != _MAGIC:
        raise AvroError("it is not an Avro container")
    found, pos = read_value(_HEADER, data, 4)
    return found, pos


# -- the schema --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a record: its name and aliases, and its Iceberg field id where it has one."""

    name: str
    field_id: int | None
    aliases: tuple[str, ...]
    key: int | str = field(init=False)
    """What a value of the field is found by: its id, else its name."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", self.name if self.field_id is None else self.field_id)


@dataclass(slots=True, eq=False)
class Node:
    """A type of the writer's schema; every mention is a node of its own, but for named types."""

    kind: str
    parts: list[Node] = field(default_factory=list)
    fields: tuple[Field, ...] = ()
    size: int = 0
    logical: str = ""
    scale: int = 0
    symbols: tuple[str, ...] = ()
    seen: dict[int, int] = field(default_factory=dict)
    """How often which length or item count was met: what a reader of many records may expect."""

    def find(self, field_id: int, name: str) -> int | None:
        """The place of a record's field: by id, else by name or alias among the fields without one."""
        for place, known in enumerate(self.fields):
            if known.field_id == field_id:
                return place
        for place, known in enumerate(self.fields):
            if known.field_id is None and (known.name == name or name in known.aliases):
                return place
        return None


def parse_schema(text: bytes) -> Node:
    """The writer's schema as a tree."""
    try:
        return _node(json.loads(text), {}, "")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise AvroError(f"the schema can't be read: {error!r}") from None


def _node(schema: Any, names: dict[str, Node], space: str) -> Node:
    if isinstance(schema, list):
        return Node("union", [_node(branch, names, space) for branch in schema])
    if isinstance(schema, str):
        if schema in _PRIMITIVES:
            return Node(schema)
        found = names.get(_full_name(schema, "", space)) or names.get(schema)
        if found is None:
            raise ValueError(f"the type {schema!r} is not known")
        return found
    kind = schema["type"]
    if not isinstance(kind, str) or kind not in ("array", "map", "fixed", "enum", "record", "error"):
        node = _node(kind, names, space)
    elif kind in ("array", "map"):
        return Node(kind, [_node(schema["items" if kind == "array" else "values"], names, space)])
    else:
        node = _named(kind, schema, names, space)
    if "logicalType" in schema:
        node.logical, node.scale = str(schema["logicalType"]), int(schema.get("scale", 0))
    return node


def _named(kind: str, schema: Any, names: dict[str, Node], space: str) -> Node:
    full = _full_name(schema.get("name", ""), schema.get("namespace", ""), space)
    node = Node("record" if kind == "error" else kind)
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
        described = schema["fields"]
        node.fields = tuple(
            Field(
                f["name"], None if (i := f.get("field-id")) is None else int(i), tuple(f.get("aliases", ()))
            )
            for f in described
        )
        node.parts.extend(_node(f["type"], names, inner) for f in described)
    return node


def _full_name(name: str, namespace: str, space: str) -> str:
    if "." in name or not name:
        return name
    above = namespace or space
    return f"{above}.{name}" if above else name


# The header of a container is itself Avro: a map of bytes.
_HEADER = Node("map", [Node("bytes")])


# -- values ------------------------------------------------------------------------------------


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


def read_size(data: bytes, pos: int, size: int | None = None) -> tuple[int, int]:
    """Where a run of bytes begins and ends; its length comes first unless it is given."""
    if size is None:
        size, pos = read_long(data, pos)
    end = pos + size
    if size < 0 or end > len(data):
        raise AvroError("it ends inside a value")
    return pos, end


def read_block(node: Node, data: bytes, pos: int) -> tuple[int, int]:
    """How many items the next block of an array or map has, and where they begin."""
    count, pos = read_long(data, pos)
    if count < 0:
        count = -count
        _, pos = read_long(data, pos)
    if count > (_MOST_EMPTY if node.kind == "array" and _is_empty(node.parts[0]) else len(data) - pos):
        raise AvroError(f"there is no room for {count} items")
    return count, pos


@lru_cache(maxsize=4096)
def _is_empty(node: Node) -> bool:
    """Whether values of a type take no byte at all."""
    if node.kind == "record":
        return all(map(_is_empty, node.parts))
    return node.kind == "null" or (node.kind == "fixed" and not node.size)


def branch(node: Node, data: bytes, pos: int) -> tuple[Node, int]:
    """The branch of a union that a value takes."""
    chosen, pos = read_long(data, pos)
    if not 0 <= chosen < len(node.parts):
        raise AvroError(f"a union has no branch {chosen}")
    return node.parts[chosen], pos


def read_value(node: Node, data: bytes, pos: int) -> tuple[Any, int]:
    """One value in Iceberg's internal form, and the position after it; records are dicts by field key."""
    return _READERS[node.kind](node, data, pos)


def _read_union(node: Node, data: bytes, pos: int) -> tuple[Any, int]:
    chosen, pos = branch(node, data, pos)
    return _READERS[chosen.kind](chosen, data, pos)


def _read_record(node: Node, data: bytes, pos: int) -> tuple[Any, int]:
    record = {}
    for known, part in zip(node.fields, node.parts, strict=True):
        record[known.key], pos = _READERS[part.kind](part, data, pos)
    return record, pos


def _read_null(_node: Node, _data: bytes, pos: int) -> tuple[Any, int]:
    return None, pos


def _read_whole(node: Node, data: bytes, pos: int) -> tuple[Any, int]:
    number, pos = read_long(data, pos)
    return number * 1000 if node.logical in _MILLIS else number, pos


def _read_enum(node: Node, data: bytes, pos: int) -> tuple[Any, int]:
    number, pos = read_long(data, pos)
    if not 0 <= number < len(node.symbols):
        raise AvroError(f"an enum has no symbol {number}")
    return node.symbols[number], pos


def _read_boolean(_node: Node, data: bytes, pos: int) -> tuple[Any, int]:
    start, pos = read_size(data, pos, 1)
    return data[start] != 0, pos


def _read_floating(node: Node, data: bytes, pos: int) -> tuple[Any, int]:
    start, pos = read_size(data, pos, 4 if node.kind == "float" else 8)
    return struct.unpack("<f" if node.kind == "float" else "<d", data[start:pos])[0], pos


def _read_bytes(node: Node, data: bytes, pos: int) -> tuple[Any, int]:
    start, pos = read_size(data, pos, node.size if node.kind == "fixed" else None)
    return _bytes(node, data[start:pos]), pos


def _read_items(node: Node, data: bytes, pos: int) -> tuple[Any, int]:
    items: list[Any] = []
    named: dict[str, Any] = {}
    part = node.parts[0]
    while True:
        count, pos = read_block(node, data, pos)
        if not count:
            return (items if node.kind == "array" else named), pos
        for _ in range(count):
            if node.kind == "map":
                start, pos = read_size(data, pos)
                key = data[start:pos].decode("utf-8", "replace")
                named[key], pos = read_value(part, data, pos)
            else:
                item, pos = read_value(part, data, pos)
                items.append(item)


def _bytes(node: Node, data: bytes) -> Any:
    if node.logical == "decimal" and node.kind != "string":
        return decimal.Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-node.scale, _EXACT)
    if node.kind != "string":
        return data
    try:
        text = data.decode()
        return uuid.UUID(text).bytes if node.logical == "uuid" else text
    except ValueError as error:
        raise AvroError(f"a text can't be read: {error}") from None


# Manifest lists are read by value: a look-up here costs less than asking for one kind after the other.
_READERS: Mapping[str, Callable[[Node, bytes, int], tuple[Any, int]]] = {
    "union": _read_union,
    "record": _read_record,
    "array": _read_items,
    "map": _read_items,
    "null": _read_null,
    "int": _read_whole,
    "long": _read_whole,
    "enum": _read_enum,
    "boolean": _read_boolean,
    "float": _read_floating,
    "double": _read_floating,
    "fixed": _read_bytes,
    "bytes": _read_bytes,
    "string": _read_bytes,
}
