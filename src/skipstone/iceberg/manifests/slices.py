"""Fast extraction of fields from Avro records, by regular expressions.

Parsing every field costs a Python call for each number of an entry. But entries of one writer are similar:
the same union branches, the same item counts, few different lengths. So lengths and counts are recorded, and
a regular expression built from the schema and those counts extracts the fields of the following entries; an
entry that does not match is parsed. A match is a complete parse, never a guess.
"""

from __future__ import annotations

import enum
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from skipstone.iceberg.manifests.avro import (
    AvroError,
    AvroNode,
    read_branch,
    read_value,
    write_block,
    write_long,
)


class SliceForm(enum.Enum):
    """Encoding of a slice: Avro's plainest, without the enclosing union."""

    NUMBER = "a varint"
    TEXT = "a length and bytes"
    NUMBERS = "one block of varints"
    COUNTS = "one block of pairs of varints"
    BLOBS = "one block of varints and bytes"
    RAW = "the value as written, including the union"


@dataclass(frozen=True, slots=True)
class FieldSlice:
    """A field to extract from every record: its ids and names from the root, and its form."""

    path: tuple[tuple[int, str], ...]
    form: SliceForm = SliceForm.NUMBER


@dataclass(frozen=True, slots=True, eq=False)
class _FieldStep:
    """A field of a record in schema order: extracted, descended into, or skipped."""

    node: AvroNode
    slot: str | None = None
    form: SliceForm = SliceForm.RAW
    inner: tuple[_FieldStep, ...] = ()


class Slicer:
    """Extracts fields of records of one schema, and learns from them for the next container."""

    def __init__(self, schema: AvroNode, sites: Mapping[str, FieldSlice]) -> None:
        if schema.kind != "record":
            raise AvroError(f"schema is a {schema.kind}, not a record")
        self._steps = _steps(schema, sites, 0)
        self.nodes = dict(_slots(self._steps))
        self.patience = 12
        """Entries parsed before a pattern is compiled, which takes as long as parsing about twenty."""
        self.matched = 0
        """Entries matched by a pattern."""
        self._match: Any = None
        self._misses = 0
        self._doublings = 0
        self._lock = threading.Lock()

    def cut(self, body: bytes, blocks: Sequence[tuple[int, int]]) -> dict[str, list[bytes | None]]:
        """Slices of every field that the schema has, in every record."""
        # One flat list: a container per record would keep the garbage collector busy.
        cuts: list[bytes | None] = []
        done = pos = read = 0
        match = self._match
        try:
            for count, end in blocks:
                # A loop per entry: the end of a record is known only after it was parsed.
                for _ in range(count):
                    matched = match(body, pos) if match is not None else None
                    if matched is None:
                        pos = _read(self._steps, body, pos, cuts)
                        read += 1
                        match = self._missed(done)
                    else:
                        cuts += matched.groups()
                        pos = matched.end()
                done += count
                if pos != end:
                    raise AvroError("records of a block don't end where the block ends")
        except RecursionError:
            raise AvroError("records are nested too deeply") from None
        self.matched += done - read
        return {slot: cuts[number :: len(self.nodes)] for number, slot in enumerate(self.nodes)}

    def _missed(self, done: int) -> Any:
        """Count an entry that did not match; compile a new pattern after enough of them."""
        self._misses += 1
        with self._lock:
            limit = self.patience << self._doublings
            if self._misses >= limit:
                # Records with little in common must not cost much more than parsing them.
                self._doublings = 0 if done > 20 * limit else self._doublings + 1
                self._misses = 0
                self._match = _compile(self._steps)
        return self._match


def _steps(record: AvroNode, sites: Mapping[str, FieldSlice], depth: int) -> tuple[_FieldStep, ...]:
    """The steps through a record that extract the fields it has."""
    by_position: dict[int, dict[str, FieldSlice]] = {}
    for slot, site in sites.items():
        position = record.find(*site.path[depth])
        if position is not None:
            by_position.setdefault(position, {})[slot] = site
    steps = []
    for position, node in enumerate(record.parts):
        here = by_position.get(position, {})
        leaf = next((slot for slot, site in here.items() if len(site.path) == depth + 1), None)
        if leaf is not None:
            steps.append(_FieldStep(node, leaf, here[leaf].form))
        elif here and (inner := node.record()) is not None:
            steps.append(_FieldStep(node, inner=_steps(inner, here, depth + 1)))
        else:
            steps.append(_FieldStep(node))
    return tuple(steps)


def _slots(steps: Sequence[_FieldStep]) -> Iterator[tuple[str, AvroNode]]:
    """Extracted fields and their types, in the order of the slices."""
    for step in steps:
        if step.slot is not None:
            yield step.slot, step.node
        yield from _slots(step.inner)


# -- parsing records ---------------------------------------------------------------------------


def _read(steps: Sequence[_FieldStep], data: bytes, pos: int, cuts: list[bytes | None]) -> int:
    """Append a record's slices to ``cuts``; returns the position after the record."""
    for step in steps:
        if step.inner:
            if step.node.kind == "union":
                chosen, pos = read_branch(step.node, data, pos)
                if chosen.kind != "record":
                    raise AvroError(f"entry has {chosen.kind} instead of a record")
            pos = _read(step.inner, data, pos, cuts)
            continue
        node, start = step.node, pos
        if step.slot is None or step.form is SliceForm.RAW:
            _, pos = read_value(node, data, pos)
            if step.slot is not None:
                cuts.append(data[start:pos])
            continue
        while node.kind == "union":
            node, start = read_branch(node, data, start)
        value, pos = read_value(node, data, start)
        cuts.append(_cut(value, data[start:pos], node, step))
    return pos


def _cut(value: Any, written: bytes, node: AvroNode, step: _FieldStep) -> bytes | None:
    """A value in the form of its slice: as written if possible, else encoded again."""
    if value is None:
        return None
    form = step.form
    if _is_plain(node, form) and (form is SliceForm.NUMBER or written.startswith(write_long(len(value)))):
        return written
    try:
        match form:
            case SliceForm.NUMBER:
                return write_long(_whole(value))
            case SliceForm.TEXT:
                return _text(value)
            case SliceForm.NUMBERS:
                return write_block(write_long(_whole(item)) for item in value)
            case SliceForm.COUNTS:
                return write_block(write_long(k) + write_long(_whole(v)) for k, v in _pairs(value, node))
            case _:
                return write_block(write_long(k) + _text(v) for k, v in _pairs(value, node))
    except (TypeError, ValueError, AttributeError, IndexError) as error:
        raise AvroError(f"field {step.slot} is not {form.value}: {error}") from None


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is not an integer")
    return value


def _text(value: Any) -> bytes:
    data = value.encode() if isinstance(value, str) else bytes(memoryview(value))
    return write_long(len(data)) + data


def _pairs(value: Any, node: AvroNode) -> Iterator[tuple[int, Any]]:
    """Items with a value of an Avro map, or of an array of keys and values."""
    if isinstance(value, dict):
        yield from ((int(key), item) for key, item in value.items() if item is not None)
        return
    key = _key_position(node.parts[0]) if node.kind == "array" else None
    if key is None:
        raise TypeError("items are not keys and values")
    for item in value:
        pair = tuple(item.values())
        if pair[1 - key] is not None:
            yield _whole(pair[key]), pair[1 - key]


def _key_position(item: AvroNode) -> int | None:
    """Position of the key in an item; None if it is not a pair."""
    if item.kind != "record" or len(item.fields) != 2:
        return None
    return int(item.fields[0].name == "value" or item.fields[1].name == "key")


# -- patterns of records -----------------------------------------------------------------------

# A varint of up to 63 bits; longer ones must not have more than 64.
_SHORT = rb"[\x80-\xff]{0,8}+[\x00-\x7f]"
_NUMBER = rb"(?:%b|[\x80-\xff]{9}[\x00\x01])" % _SHORT
_NEVER = rb"(?!)"
_SIZES = {"float": 4, "double": 8}
_WHOLE = frozenset({"int", "long"})
_STRINGS = frozenset({"bytes", "string"})
_MAX_LENGTHS = 96
_MAX_COUNTS = 12
# Strings have more different lengths than this among a few entries, numbers as bytes fewer.
_FEW_LENGTHS = 6
_NARROW = 48
_MARGIN = 3
_SHORT_ITEM = 100


class _NoPattern(Exception):
    """A type that no pattern matches."""


def _compile(steps: Sequence[_FieldStep]) -> Any:
    """A match function built from lengths and counts seen so far; None if the type has no pattern."""
    try:
        return re.compile(b"".join(map(_step_pattern, steps)), re.DOTALL).match
    except (_NoPattern, RecursionError, OverflowError):
        return None


def _step_pattern(step: _FieldStep) -> bytes:
    node, form = step.node, step.form
    if step.inner:
        inner = b"".join(map(_step_pattern, step.inner))
        if node.kind == "record":
            return inner
        return _union(inner if part.kind == "record" else _NEVER for part in node.parts)
    if step.slot is None:
        return _pattern(node)
    if form is SliceForm.RAW:
        return b"(%b)" % _pattern(node)
    # A group can occur only once in a pattern, so only one branch of a union can have a value.
    branches = node.parts if node.kind == "union" else [node]
    valued = [part for part in branches if part.kind != "null"]
    if len(valued) != 1 or not _is_plain(valued[0], form):
        raise _NoPattern
    captured = b"(%b)" % _pattern(valued[0])
    if node.kind != "union":
        return captured
    return _union(b"" if part.kind == "null" else captured for part in branches)


@lru_cache(maxsize=4096)
def _is_plain(node: AvroNode, form: SliceForm) -> bool:
    """Whether the type's encoding is the form."""
    match form:
        case SliceForm.NUMBER:
            return node.kind in _WHOLE and "millis" not in node.logical
        case SliceForm.TEXT:
            return node.kind in _STRINGS and not node.logical
        case SliceForm.NUMBERS:
            return node.kind == "array" and node.parts[0].kind in _WHOLE
    if node.kind != "array" or _key_position(node.parts[0]) != 0:
        return False
    key, value = node.parts[0].parts
    return key.kind in _WHOLE and value.kind in (_WHOLE if form is SliceForm.COUNTS else _STRINGS)


def _pattern(node: AvroNode) -> bytes:
    match node.kind:
        case "int" | "long":
            return _NUMBER
        case "bytes" | "string":
            return _alternatives(
                re.escape(write_long(length)) + rb".{%d}" % length for length in _lengths(node)
            )
        case "union":
            return _union(_pattern(part) for part in node.parts)
        case "record":
            return b"".join(_pattern(part) for part in node.parts)
        case "array" | "map":
            key = b"" if node.kind == "array" else _NEVER
            # Counts and sizes have at most 63 bits, and there are many items.
            item = key + _pattern(node.parts[0]).replace(_NUMBER, _SHORT)
            seen = dict(node.seen)
            counts = sorted(seen, key=lambda n: -seen[n])[:_MAX_COUNTS]
            blocks = (re.escape(write_long(n)) + _times(item, n) + rb"\x00" for n in counts)
            return _alternatives((*blocks, rb"\x00"))
        case "null":
            return b""
        case "boolean":
            return rb"[\x00\x01]"
        case "enum":
            raise _NoPattern
    return rb".{%d}" % _SIZES.get(node.kind, node.size)


def _times(item: bytes, count: int) -> bytes:
    """A pattern repeated; short ones match faster two at a time."""
    if len(item) > _SHORT_ITEM:
        return rb"(?:%b){%d}" % (item, count)
    return rb"(?:%b){%d}" % (item * 2, count // 2) + item * (count % 2)


def _lengths(node: AvroNode) -> list[int]:
    """Expected lengths, common ones first: those seen, and those between them if they are close."""
    seen = dict(node.seen)
    if len(seen) > _FEW_LENGTHS and max(seen) - min(seen) <= _NARROW:
        near = range(max(0, min(seen) - _MARGIN), max(seen) + _MARGIN + 1)
        seen = {length: seen.get(length, 0) for length in near}
    return sorted(seen, key=lambda length: -seen[length])[:_MAX_LENGTHS]


def _union(patterns: Iterable[bytes]) -> bytes:
    return _alternatives(re.escape(write_long(i)) + pattern for i, pattern in enumerate(patterns))


def _alternatives(patterns: Iterable[bytes]) -> bytes:
    return b"(?:%b)" % (b"|".join(patterns) or _NEVER)
