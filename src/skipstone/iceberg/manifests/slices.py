"""Records of many entries cut into raw slices: one compiled pattern does what a walk over each field would.

A walk over every field costs Python a function call for each number in an entry. Entries of one writer look
alike, though: the same unions taken, the same item counts, few different lengths. So what a walk meets is
remembered, and a regular expression built from the schema and those counts cuts the entries that follow; an
entry it doesn't match is walked. A match is a complete parse, never a guess.
"""

from __future__ import annotations

import enum
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from skipstone.iceberg.manifests.avro import (
    AvroError,
    Node,
    branch,
    read_block,
    read_long,
    read_size,
    read_value,
    write_long,
)

SHORT = rb"[\x80-\xff]{0,8}+[\x00-\x7f]"
"""A varint of up to 63 bits, as a pattern: those with more must be checked not to have more than 64."""

SIZES = {"float": 4, "double": 8}
_WHOLE = frozenset({"int", "long"})
_TEXTS = frozenset({"bytes", "string"})


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
    form: Form


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A field of a record in the order of the schema: cut out, gone into, or skipped."""

    node: Node
    slot: str | None = None
    form: Form = Form.RAW
    inner: tuple[Step, ...] = ()


def plan(record: Node, sites: Mapping[str, Site], depth: int = 0) -> tuple[Step, ...]:
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
            steps.append(Step(node, leaf, here[leaf].form))
        elif here and (inner := record_in(node)) is not None:
            steps.append(Step(node, inner=plan(inner, here, depth + 1)))
        else:
            steps.append(Step(node))
    return tuple(steps)


def record_in(node: Node) -> Node | None:
    """A record, or the only one in a union."""
    found = [part for part in (node.parts if node.kind == "union" else [node]) if part.kind == "record"]
    return found[0] if len(found) == 1 else None


def wanted(steps: Sequence[Step]) -> Iterable[Step]:
    """The steps that cut something out, in the order of the slices."""
    for step in steps:
        if step.slot is not None:
            yield step
        yield from wanted(step.inner)


def walk(steps: Sequence[Step], data: bytes, pos: int, cuts: list[bytes | None]) -> int:
    """Append a record's slices to ``cuts``, remember what was met, and return where the record ends."""
    for step in steps:
        if step.slot is not None:
            cut, pos = _capture(step, data, pos)
            cuts.append(cut)
        elif step.inner:
            if step.node.kind == "union":
                chosen, pos = branch(step.node, data, pos)
                if chosen.kind != "record":
                    raise AvroError(f"an entry has {chosen.kind} in the place of a record")
            pos = walk(step.inner, data, pos, cuts)
        else:
            pos = _skip(step.node, data, pos)
    return pos


def _capture(step: Step, data: bytes, pos: int) -> tuple[bytes | None, int]:
    node, form, start = step.node, step.form, pos
    if form is Form.RAW:
        end = _skip(node, data, pos)
        return data[start:end], end
    while node.kind == "union":
        node, pos = branch(node, data, pos)
        start = pos
    if node.kind == "null":
        return None, pos
    if is_plain(node, form):
        if form is Form.NUMBER:
            end = _skip(node, data, pos)
            return data[start:end], end
        if form is Form.TEXT:
            end = _skip(node, data, pos)
            begin, _ = read_size(data, pos)
            return write_long(end - begin) + data[begin:end], end
        cut, end = _one_block(node, data, pos)
        if cut is not None:
            return cut, end
    value, end = read_value(node, data, pos)
    return _plainly(value, step, node), end


def _one_block(node: Node, data: bytes, pos: int) -> tuple[bytes | None, int]:
    """An array as it is written, if it is one block without a size; else None."""
    count, end = read_long(data, pos)
    if count < 0:
        return None, pos
    if count:
        _, end = read_block(node, data, pos)
        end = _skip_items(node.parts[0], count, data, end)
        if data[end : end + 1] != b"\x00":
            return None, pos
        node.seen[count] = node.seen.get(count, 0) + 1
        end += 1
    return data[pos:end], end


@lru_cache(maxsize=4096)
def is_plain(node: Node, form: Form) -> bool:
    """Whether values of the type are encoded as the form says."""
    match form:
        case Form.NUMBER:
            return node.kind in _WHOLE and "millis" not in node.logical
        case Form.TEXT:
            return node.kind in _TEXTS and not node.logical
        case Form.NUMBERS:
            return node.kind == "array" and node.parts[0].kind in _WHOLE
        case Form.COUNTS | Form.BLOBS:
            return node.kind == "array" and _is_pair(node.parts[0], form)
        case Form.RAW:
            return True


@lru_cache(maxsize=4096)
def _is_pair(item: Node, form: Form) -> bool:
    """Whether an item is a key and a value as the form says."""
    if _key_place(item) != 0:
        return False
    key, value = item.parts
    return key.kind in _WHOLE and value.kind in (_WHOLE if form is Form.COUNTS else _TEXTS)


def _key_place(item: Node) -> int | None:
    """Which field of an item is the key; None if it isn't a pair."""
    if item.kind != "record" or len(item.fields) != 2:
        return None
    return int(item.fields[0].name == "value" or item.fields[1].name == "key")


def _plainly(value: Any, step: Step, node: Node) -> bytes:
    """A value that was written in another way than the form's, encoded as the form says."""
    try:
        match step.form:
            case Form.NUMBER:
                return write_long(_whole(value))
            case Form.TEXT:
                return _text(value)
            case Form.NUMBERS:
                return _block([write_long(_whole(item)) for item in value])
            case Form.COUNTS:
                return _block([write_long(k) + write_long(_whole(v)) for k, v in _pairs(value, node)])
            case _:
                return _block([write_long(k) + _text(v) for k, v in _pairs(value, node)])
    except (TypeError, ValueError, AttributeError, IndexError) as error:
        raise AvroError(f"the field {step.slot} is not {step.form.value}: {error}") from None


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is not a whole number")
    return value


def _text(value: Any) -> bytes:
    data = value.encode() if isinstance(value, str) else bytes(memoryview(value))
    return write_long(len(data)) + data


def _block(items: list[bytes]) -> bytes:
    return write_long(len(items)) + b"".join(items) + b"\x00" if items else b"\x00"


def _pairs(value: Any, node: Node) -> Iterable[tuple[int, Any]]:
    """The items of a map that have a value."""
    if isinstance(value, dict):
        items = [(int(key), item) for key, item in value.items()]
    else:
        place = _key_place(node.parts[0])
        if place is None:
            raise TypeError("its items are not keys and values")
        pairs = (tuple(item.values()) for item in value)
        items = [(_whole(pair[place]), pair[1 - place]) for pair in pairs]
    return [(key, item) for key, item in items if item is not None]


def _skip(node: Node, data: bytes, pos: int) -> int:
    match node.kind:
        case "int" | "long" | "enum":
            return read_long(data, pos)[1]
        case "bytes" | "string":
            start, end = read_size(data, pos)
            node.seen[end - start] = node.seen.get(end - start, 0) + 1
            return end
        case "union":
            chosen, pos = branch(node, data, pos)
            return _skip(chosen, data, pos)
        case "record":
            for part in node.parts:
                pos = _skip(part, data, pos)
            return pos
        case "array" | "map":
            return _skip_array(node, data, pos)
        case "null":
            return pos
        case "boolean":
            return read_size(data, pos, 1)[1]
    return read_size(data, pos, SIZES.get(node.kind, node.size))[1]


def _skip_array(node: Node, data: bytes, pos: int) -> int:
    while True:
        count, pos = read_block(node, data, pos)
        if not count:
            return pos
        node.seen[count] = node.seen.get(count, 0) + 1
        if node.kind == "map":
            for _ in range(count):
                _, pos = read_size(data, pos)
                pos = _skip(node.parts[0], data, pos)
        else:
            pos = _skip_items(node.parts[0], count, data, pos)


def _skip_items(item: Node, count: int, data: bytes, pos: int) -> int:
    run = _numbers_in(item)
    if run:
        found = _run(run * count).match(data, pos)
        if found is not None:
            return int(found.end())
    if _is_pair(item, Form.BLOBS):
        # What bounds are made of, without a call for each part of them.
        seen = item.parts[1].seen
        for _ in range(count):
            _, pos = read_long(data, pos)
            start, pos = read_size(data, pos)
            seen[pos - start] = seen.get(pos - start, 0) + 1
        return pos
    for _ in range(count):
        pos = _skip(item, data, pos)
    return pos


@lru_cache(maxsize=4096)
def _numbers_in(item: Node) -> int:
    """How many varints an item is, if it is nothing else."""
    parts = item.parts if item.kind == "record" else [item]
    return len(parts) if all(part.kind in _WHOLE for part in parts) else 0


@lru_cache(maxsize=256)
def _run(numbers: int) -> re.Pattern[bytes]:
    return re.compile(rb"(?:%b){%d}" % (SHORT, numbers))


_NUMBER = rb"(?:%b|[\x80-\xff]{9}[\x00\x01])" % SHORT
_NEVER = rb"(?!)"
_MOST_LENGTHS = 96
_MOST_COUNTS = 12
# Texts that vary have more lengths than this among a few entries; numbers as bytes have fewer.
_FEW_LENGTHS = 6
_NARROW = 48
_MARGIN = 3
_SHORT_ITEM = 100


class _Unpatterned(Exception):
    """A type that no pattern can cut."""


def compile_steps(steps: Sequence[Step]) -> Any:
    """A match function for the records that steps walk; None if no pattern can be made."""
    try:
        return re.compile(b"".join(_step_pattern(step) for step in steps), re.DOTALL).match
    except (_Unpatterned, RecursionError, OverflowError):
        return None


def _step_pattern(step: Step) -> bytes:
    node, form = step.node, step.form
    if step.inner:
        inner = b"".join(map(_step_pattern, step.inner))
        if node.kind == "record":
            return inner
        return _union([inner if part.kind == "record" else _NEVER for part in node.parts])
    if step.slot is None:
        return _pattern(node)
    if form is Form.RAW:
        return b"(%b)" % _pattern(node)
    if node.kind != "union":
        return _captured(node, form)
    # A group can stand in a pattern only once: of a union's branches, one may hold the value.
    if sum(part.kind != "null" for part in node.parts) != 1:
        raise _Unpatterned
    return _union([b"" if part.kind == "null" else _captured(part, form) for part in node.parts])


def _captured(node: Node, form: Form) -> bytes:
    if not is_plain(node, form):
        raise _Unpatterned
    return b"(%b)" % _pattern(node)


def _pattern(node: Node) -> bytes:
    match node.kind:
        case "int" | "long":
            return _NUMBER
        case "bytes" | "string":
            return _alternatives(
                re.escape(write_long(length)) + rb".{%d}" % length for length in _lengths(node)
            )
        case "union":
            return _union([_pattern(part) for part in node.parts])
        case "record":
            return b"".join(_pattern(part) for part in node.parts)
        case "array" | "map":
            key = b"" if node.kind == "array" else _NEVER
            # Counts and sizes have fewer bits, and items are many.
            item = key + _pattern(node.parts[0]).replace(_NUMBER, SHORT)
            met = dict(node.seen)
            counts = sorted(met, key=lambda n: -met[n])[:_MOST_COUNTS]
            blocks = (re.escape(write_long(n)) + _times(item, n) + rb"\x00" for n in counts)
            return _alternatives((*blocks, rb"\x00"))
        case "null":
            return b""
        case "boolean":
            return rb"[\x00\x01]"
        case "enum":
            raise _Unpatterned
    return rb".{%d}" % SIZES.get(node.kind, node.size)


def _times(item: bytes, count: int) -> bytes:
    """An item again and again; two at a time, if it is short, are matched faster."""
    if len(item) > _SHORT_ITEM:
        return rb"(?:%b){%d}" % (item, count)
    return rb"(?:%b){%d}" % (item * 2, count // 2) + item * (count % 2)


def _lengths(node: Node) -> list[int]:
    """Lengths to expect, the common ones first: those met, and those near them if they are close together."""
    met = dict(node.seen)
    if len(met) > _FEW_LENGTHS and max(met) - min(met) <= _NARROW:
        near = range(max(0, min(met) - _MARGIN), max(met) + _MARGIN + 1)
        met = {length: met.get(length, 0) for length in near}
    return sorted(met, key=lambda length: -met[length])[:_MOST_LENGTHS]


def _union(patterns: list[bytes]) -> bytes:
    return _alternatives(re.escape(write_long(i)) + pattern for i, pattern in enumerate(patterns))


def _alternatives(patterns: Iterable[bytes]) -> bytes:
    return b"(?:%b)" % (b"|".join(patterns) or _NEVER)


# A pattern takes as long to compile as some fifty entries to walk, and few tell what the others are like.
_PATIENCE = 16


class Slicer:
    """Cuts records of one schema; what it learns about them is kept for the next container."""

    def __init__(self, schema: Node, sites: Mapping[str, Site]) -> None:
        if schema.kind != "record":
            raise AvroError(f"the schema is a {schema.kind}, not a record")
        self._steps = plan(schema, sites)
        self.nodes = {step.slot: step.node for step in wanted(self._steps) if step.slot is not None}
        self._match: Any = None
        self._misses = 0
        self._patience = _PATIENCE
        self._lock = threading.Lock()

    def cut(self, body: bytes, blocks: Sequence[tuple[int, int]]) -> dict[str, list[bytes | None]]:
        """The slices of every site that the schema has, in every record."""
        # Record after record in one list: a container for each would keep the garbage collector busy.
        cuts: list[bytes | None] = []
        done = pos = 0
        match = self._match
        try:
            for count, end in blocks:
                # A loop per entry: where a record ends is known only after it was read.
                for _ in range(count):
                    found = match(body, pos) if match is not None else None
                    if found is None:
                        pos = walk(self._steps, body, pos, cuts)
                        match = self._missed(done)
                    else:
                        cuts += found.groups()
                        pos = found.end()
                done += count
                if pos != end:
                    raise AvroError("a block's records don't end where the block does")
        except RecursionError:
            raise AvroError("its records are nested without end") from None
        return {slot: cuts[place :: len(self.nodes)] for place, slot in enumerate(self.nodes)}

    def _missed(self, done: int) -> Any:
        """Count an entry that was walked; after enough of them compile what was learnt."""
        self._misses += 1
        if self._misses >= self._patience:
            with self._lock:
                if self._misses >= self._patience:
                    # Records that have little in common must not cost much more than a walk.
                    helped = done > 20 * self._patience
                    self._patience = _PATIENCE if helped else 2 * self._patience
                    self._misses = 0
                    self._match = compile_steps(self._steps)
        return self._match
