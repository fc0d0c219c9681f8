"""Fields of many records cut out as raw slices: one regular expression does what reading each field would.

Reading every field costs Python a function call for each number in an entry. Entries of one writer look
alike, though: the same unions taken, the same item counts, few different lengths. So lengths and counts that
were read are remembered, and a regular expression built from the schema and those counts cuts the entries
that follow; an entry it doesn't match is read. A match is a complete parse, never a guess.
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


class Form(enum.Enum):
    """What a slice holds, always in Avro's plainest encoding and without the union around it."""

    NUMBER = "a varint"
    TEXT = "a length and bytes"
    NUMBERS = "one block of varints"
    COUNTS = "one block of pairs of varints"
    BLOBS = "one block of varints and bytes"
    RAW = "the value as it is, union and all"


@dataclass(frozen=True, slots=True)
class Site:
    """A field that is cut out of every record: its ids and names from the root, and its form."""

    path: tuple[tuple[int, str], ...]
    form: Form = Form.NUMBER


@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    """A field of a record in the order of the schema: cut out, gone into, or skipped."""

    node: AvroNode
    slot: str | None = None
    form: Form = Form.RAW
    inner: tuple[_Step, ...] = ()


class Slicer:
    """Cuts records of one schema; what it learns about them serves the next container."""

    def __init__(self, schema: AvroNode, sites: Mapping[str, Site]) -> None:
        if schema.kind != "record":
            raise AvroError(f"the schema is a {schema.kind}, not a record")
        self._steps = _steps(schema, sites, 0)
        self.nodes = dict(_slots(self._steps))
        self.patience = 12
        """How many entries are read before a pattern is compiled: it takes as long as reading some twenty."""
        self.matched = 0
        """How many entries a pattern has cut."""
        self._match: Any = None
        self._misses = 0
        self._doublings = 0
        self._lock = threading.Lock()

    def cut(self, body: bytes, blocks: Sequence[tuple[int, int]]) -> dict[str, list[bytes | None]]:
        """The slices of every site that the schema has, in every record."""
        # Record after record in one list: a container for each would keep the garbage collector busy.
        cuts: list[bytes | None] = []
        done = pos = read = 0
        match = self._match
        try:
            for count, end in blocks:
                # A loop per entry: where a record ends is known only after it was read.
                for _ in range(count):
                    found = match(body, pos) if match is not None else None
                    if found is None:
                        pos = _read(self._steps, body, pos, cuts)
                        read += 1
                        match = self._missed(done)
                    else:
                        cuts += found.groups()
                        pos = found.end()
                done += count
                if pos != end:
                    raise AvroError("a block's records don't end where the block does")
        except RecursionError:
            raise AvroError("records are nested without end") from None
        self.matched += done - read
        return {slot: cuts[place :: len(self.nodes)] for place, slot in enumerate(self.nodes)}

    def _missed(self, done: int) -> Any:
        """Count an entry that was read; after enough of them compile what was learned."""
        self._misses += 1
        with self._lock:
            limit = self.patience << self._doublings
            if self._misses >= limit:
                # Records that have little in common must not cost much more than reading them.
                self._doublings = 0 if done > 20 * limit else self._doublings + 1
                self._misses = 0
                self._match = _compile(self._steps)
        return self._match


def _steps(record: AvroNode, sites: Mapping[str, Site], depth: int) -> tuple[_Step, ...]:
    """The steps through a record that cut out the sites; those that it doesn't have are left out."""
    places: dict[int, dict[str, Site]] = {}
    for slot, site in sites.items():
        place = record.find(*site.path[depth])
        if place is not None:
            places.setdefault(place, {})[slot] = site
    steps = []
    for place, node in enumerate(record.parts):
        here = places.get(place, {})
        leaf = next((slot for slot, site in here.items() if len(site.path) == depth + 1), None)
        if leaf is not None:
            steps.append(_Step(node, leaf, here[leaf].form))
        elif here and (inner := node.record()) is not None:
            steps.append(_Step(node, inner=_steps(inner, here, depth + 1)))
        else:
            steps.append(_Step(node))
    return tuple(steps)


def _slots(steps: Sequence[_Step]) -> Iterator[tuple[str, AvroNode]]:
    """What is cut out, and its type, in the order of the slices."""
    for step in steps:
        if step.slot is not None:
            yield step.slot, step.node
        yield from _slots(step.inner)


# -- a record read field by field --------------------------------------------------------------


def _read(steps: Sequence[_Step], data: bytes, pos: int, cuts: list[bytes | None]) -> int:
    """Append a record's slices to ``cuts``, and return where the record ends."""
    for step in steps:
        if step.inner:
            if step.node.kind == "union":
                chosen, pos = read_branch(step.node, data, pos)
                if chosen.kind != "record":
                    raise AvroError(f"an entry has {chosen.kind} in the place of a record")
            pos = _read(step.inner, data, pos, cuts)
            continue
        node, start = step.node, pos
        if step.slot is None or step.form is Form.RAW:
            _, pos = read_value(node, data, pos)
            if step.slot is not None:
                cuts.append(data[start:pos])
            continue
        while node.kind == "union":
            node, start = read_branch(node, data, start)
        value, pos = read_value(node, data, start)
        cuts.append(_cut(value, data[start:pos], node, step))
    return pos


def _cut(value: Any, written: bytes, node: AvroNode, step: _Step) -> bytes | None:
    """A value in the form of its slice: as it was written if that is plain, else encoded."""
    if value is None:
        return None
    form = step.form
    if _is_plain(node, form) and (form is Form.NUMBER or written.startswith(write_long(len(value)))):
        return written
    try:
        match form:
            case Form.NUMBER:
                return write_long(_whole(value))
            case Form.TEXT:
                return _text(value)
            case Form.NUMBERS:
                return write_block(write_long(_whole(item)) for item in value)
            case Form.COUNTS:
                return write_block(write_long(k) + write_long(_whole(v)) for k, v in _pairs(value, node))
            case _:
                return write_block(write_long(k) + _text(v) for k, v in _pairs(value, node))
    except (TypeError, ValueError, AttributeError, IndexError) as error:
        raise AvroError(f"the field {step.slot} is not {form.value}: {error}") from None


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is not a whole number")
    return value


def _text(value: Any) -> bytes:
    data = value.encode() if isinstance(value, str) else bytes(memoryview(value))
    return write_long(len(data)) + data


def _pairs(value: Any, node: AvroNode) -> Iterator[tuple[int, Any]]:
    """The items of a map that have a value: an Avro map, or an array of keys and values."""
    if isinstance(value, dict):
        yield from ((int(key), item) for key, item in value.items() if item is not None)
        return
    place = _key_place(node.parts[0]) if node.kind == "array" else None
    if place is None:
        raise TypeError("its items are not keys and values")
    for item in value:
        pair = tuple(item.values())
        if pair[1 - place] is not None:
            yield _whole(pair[place]), pair[1 - place]


def _key_place(item: AvroNode) -> int | None:
    """Which field of an item is the key; None if it isn't a pair."""
    if item.kind != "record" or len(item.fields) != 2:
        return None
    return int(item.fields[0].name == "value" or item.fields[1].name == "key")


# -- one pattern for records of a schema -------------------------------------------------------

# A varint of up to 63 bits; those with more must be checked not to have more than 64.
_SHORT = rb"[\x80-\xff]{0,8}+[\x00-\x7f]"
_NUMBER = rb"(?:%b|[\x80-\xff]{9}[\x00\x01])" % _SHORT
_NEVER = rb"(?!)"
_SIZES = {"float": 4, "double": 8}
_WHOLE = frozenset({"int", "long"})
_TEXTS = frozenset({"bytes", "string"})
_MOST_LENGTHS = 96
_MOST_COUNTS = 12
# Texts that vary have more lengths than this among a few entries; numbers as bytes have fewer.
_FEW_LENGTHS = 6
_NARROW = 48
_MARGIN = 3
_SHORT_ITEM = 100


class _Unpatterned(Exception):
    """A type that no pattern can cut."""


def _compile(steps: Sequence[_Step]) -> Any:
    """A match function for records, built from what was read of others; None if no pattern can be made."""
    try:
        return re.compile(b"".join(map(_step_pattern, steps)), re.DOTALL).match
    except (_Unpatterned, RecursionError, OverflowError):
        return None


def _step_pattern(step: _Step) -> bytes:
    node, form = step.node, step.form
    if step.inner:
        inner = b"".join(map(_step_pattern, step.inner))
        if node.kind == "record":
            return inner
        return _union(inner if part.kind == "record" else _NEVER for part in node.parts)
    if step.slot is None:
        return _pattern(node)
    if form is Form.RAW:
        return b"(%b)" % _pattern(node)
    # A group can stand in a pattern only once: of a union's branches, one may hold the value.
    branches = node.parts if node.kind == "union" else [node]
    valued = [part for part in branches if part.kind != "null"]
    if len(valued) != 1 or not _is_plain(valued[0], form):
        raise _Unpatterned
    captured = b"(%b)" % _pattern(valued[0])
    if node.kind != "union":
        return captured
    return _union(b"" if part.kind == "null" else captured for part in branches)


@lru_cache(maxsize=4096)
def _is_plain(node: AvroNode, form: Form) -> bool:
    """Whether values of the type are encoded as the form says."""
    match form:
        case Form.NUMBER:
            return node.kind in _WHOLE and "millis" not in node.logical
        case Form.TEXT:
            return node.kind in _TEXTS and not node.logical
        case Form.NUMBERS:
            return node.kind == "array" and node.parts[0].kind in _WHOLE
    if node.kind != "array" or _key_place(node.parts[0]) != 0:
        return False
    key, value = node.parts[0].parts
    return key.kind in _WHOLE and value.kind in (_WHOLE if form is Form.COUNTS else _TEXTS)


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
            # Counts and sizes have fewer bits, and items are many.
            item = key + _pattern(node.parts[0]).replace(_NUMBER, _SHORT)
            seen = dict(node.seen)
            counts = sorted(seen, key=lambda n: -seen[n])[:_MOST_COUNTS]
            blocks = (re.escape(write_long(n)) + _times(item, n) + rb"\x00" for n in counts)
            return _alternatives((*blocks, rb"\x00"))
        case "null":
            return b""
        case "boolean":
            return rb"[\x00\x01]"
        case "enum":
            raise _Unpatterned
    return rb".{%d}" % _SIZES.get(node.kind, node.size)


def _times(item: bytes, count: int) -> bytes:
    """An item again and again; two at a time, if it is short, are matched faster."""
    if len(item) > _SHORT_ITEM:
        return rb"(?:%b){%d}" % (item, count)
    return rb"(?:%b){%d}" % (item * 2, count // 2) + item * (count % 2)


def _lengths(node: AvroNode) -> list[int]:
    """Lengths to expect, the common ones first: those met, and those near them if they are close together."""
    seen = dict(node.seen)
    if len(seen) > _FEW_LENGTHS and max(seen) - min(seen) <= _NARROW:
        near = range(max(0, min(seen) - _MARGIN), max(seen) + _MARGIN + 1)
        seen = {length: seen.get(length, 0) for length in near}
    return sorted(seen, key=lambda length: -seen[length])[:_MOST_LENGTHS]


def _union(patterns: Iterable[bytes]) -> bytes:
    return _alternatives(re.escape(write_long(i)) + pattern for i, pattern in enumerate(patterns))


def _alternatives(patterns: Iterable[bytes]) -> bytes:
    return b"(?:%b)" % (b"|".join(patterns) or _NEVER)
