"""Facts about one column in N units, written to and read from the arrays of a segment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from skipstone.core.domain.keys import Kind, key_space
from skipstone.core.evidence import Array, Bounds, ColumnFacts, hull, reduce_blocks
from skipstone.index.container import BadIndex, Container, ContainerWriter, Key

_EXACT_LOW, _EXACT_HIGH, _VALUE, _NULL, _NAN, _KNOWN_LOW, _KNOWN_HIGH = (1 << bit for bit in range(7))
_KNOWN = {"lower": _KNOWN_LOW, "upper": _KNOWN_HIGH}
UNKNOWN: Final = -1
"""An unknown count."""

COUNTS: Final = ("nulls", "nans", "distinct", "rises")


@dataclass(frozen=True, slots=True, eq=False)
class LevelBounds:
    """One column in N units: facts and counts, which may be :data:`UNKNOWN`."""

    facts: ColumnFacts
    nulls: Array
    nans: Array
    distinct: Array
    rises: Array
    """Rows whose value is one more than in the row before."""

    @classmethod
    def of(cls, facts: ColumnFacts) -> LevelBounds:
        """Return facts without counts."""
        unknown = np.full(len(facts), UNKNOWN, dtype=np.int64)
        return cls(facts, unknown, unknown, unknown, unknown)

    def __len__(self) -> int:
        return len(self.facts)

    @classmethod
    def concat(cls, parts: list[LevelBounds]) -> LevelBounds:
        """Concatenate units."""
        counts = (np.concatenate([getattr(part, name) for part in parts]) for name in COUNTS)
        return cls(ColumnFacts.concat([part.facts for part in parts]), *counts)

    def take(self, units: Array) -> LevelBounds:
        """Select units."""
        return LevelBounds(self.facts.take(units), *(getattr(self, name)[units] for name in COUNTS))

    def hull(self, starts: Array) -> LevelBounds:
        """Combine units into blocks; a count is known if it is known for all units of a block."""
        if np.array_equal(starts, np.arange(len(self))):
            return self  # every block is one unit
        # The largest of several distinct counts is a lower bound: an estimate, as every distinct count.
        most = reduce_blocks(np.maximum, self.distinct, starts, empty=0)
        nulls, nans = _summed(self.nulls, starts), _summed(self.nans, starts)
        return LevelBounds(
            hull(self.facts, starts), nulls, nans, most, np.full(len(starts), UNKNOWN, dtype=np.int64)
        )


def _summed(counts: Array, starts: Array) -> Array:
    unknown = reduce_blocks(np.logical_or, counts == UNKNOWN, starts, empty=False)
    return np.where(unknown, UNKNOWN, reduce_blocks(np.add, counts, starts, empty=0))


# -- writing -----------------------------------------------------------------------------------


def write_facts(writer: ContainerWriter, column: int, level: str, facts: ColumnFacts) -> None:
    """Write the facts for judging."""
    low, high = _has_bound(facts.lower, facts), _has_bound(facts.upper, facts)
    bits = (
        (facts.lower_exact, _EXACT_LOW),
        (facts.upper_exact, _EXACT_HIGH),
        (facts.may_value, _VALUE),
        (facts.may_null, _NULL),
        (facts.may_nan, _NAN),
        (low, _KNOWN_LOW),
        (high, _KNOWN_HIGH),
    )
    flags = np.zeros(len(facts), dtype=np.uint8)
    for mask, bit in bits:
        flags |= mask.astype(np.uint8) * np.uint8(bit)
    writer.add(column, f"{level}/flags", flags)
    _write_bounds(writer, column, f"{level}/lower", facts.lower)
    _write_bounds(writer, column, f"{level}/upper", facts.upper)


def write_level(writer: ContainerWriter, column: int, name: str, level: LevelBounds) -> None:
    """Write facts and counts."""
    write_facts(writer, column, name, level.facts)
    for count in COUNTS:
        values = getattr(level, count)
        if (values != UNKNOWN).any():
            writer.add(column, f"{name}/{count}", values)


def _has_bound(bounds: Bounds, facts: ColumnFacts) -> Array:
    if isinstance(bounds, pa.Array):
        return np.asarray(bounds.is_valid())
    return np.ones(len(facts), dtype=bool)


def _write_bounds(writer: ContainerWriter, column: int, name: str, bounds: Bounds) -> None:
    if not isinstance(bounds, pa.Array):
        writer.add(column, name, bounds)
        return
    offsets, data = split_bytes(bounds)
    writer.add(column, f"{name}/offsets", offsets)
    writer.add(column, f"{name}/data", data)


def split_bytes(values: pa.Array) -> tuple[Array, Array]:
    """Split byte strings into offsets and data; a null is empty."""
    plain = values.cast(pa.large_binary()).fill_null(b"")
    if not len(plain):
        return np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.uint8)
    _, offsets, data = plain.buffers()
    starts = np.frombuffer(offsets, dtype=np.int64, count=len(plain) + 1, offset=8 * plain.offset)
    body = np.frombuffer(data, dtype=np.uint8) if data is not None else np.zeros(0, dtype=np.uint8)
    return starts - starts[0], body[starts[0] : starts[-1]]


def join_bytes(offsets: Array, data: Array, known: Array | None = None) -> pa.Array:
    """Return byte strings of offsets and data without a copy, NULL where not known."""
    validity = None
    if known is not None and not known.all():
        validity = pa.py_buffer(np.packbits(known, bitorder="little").tobytes())
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


# -- reading -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LevelReader:
    """One column at one level of an open segment."""

    container: Container
    column: int
    level: str
    type: pa.DataType

    def keys(self) -> list[Key]:
        """Return the keys of the arrays of facts."""
        ends = ("/offsets", "/data") if key_space(self.type).kind is Kind.BYTES else ("",)
        names = ["flags", *[f"{bound}{end}" for bound in _KNOWN for end in ends]]
        return [(self.column, f"{self.level}/{name}") for name in names]

    def key(self, name: str) -> Key:
        """Return the key of one array."""
        return (self.column, f"{self.level}/{name}")

    @property
    def exists(self) -> bool:
        """Whether the segment has this level."""
        return self.key("flags") in self.container

    def whole(self) -> ColumnFacts:
        """Return the facts of all units."""
        flags, *bounds = self.container.wholes(self.keys())
        if len(bounds) == len(_KNOWN):
            return self._facts(flags, *bounds)
        low_at, low, high_at, high = bounds
        return self._facts(
            flags,
            join_bytes(low_at, low, (flags & _KNOWN_LOW) != 0),
            join_bytes(high_at, high, (flags & _KNOWN_HIGH) != 0),
        )

    def take(self, rows: Array) -> ColumnFacts:
        """Return the facts of some units."""
        self.container.load(self.keys())
        flags = self.container.take(self.key("flags"), rows)
        if key_space(self.type).kind is Kind.BYTES:
            return self._facts(flags, *(self._some_bytes(name, rows, flags) for name in ("lower", "upper")))
        return self._facts(flags, *(self.container.take(self.key(name), rows) for name in ("lower", "upper")))

    def _some_bytes(self, name: str, rows: Array, flags: Array) -> pa.Array:
        """Return the byte bounds of some units; no others are read."""
        offsets, data = self.key(f"{name}/offsets"), self.key(f"{name}/data")
        starts, stops = self.container.take(offsets, rows), self.container.take(offsets, rows + 1)
        self._check(starts <= stops)
        ends = np.cumsum(stops - starts)
        body = self.container.take(
            data, np.arange(ends[-1] if len(ends) else 0) + np.repeat(stops - ends, stops - starts)
        )
        return join_bytes(np.concatenate(([0], ends)), body, (flags & _KNOWN[name]) != 0)

    def slice(self, start: int, stop: int) -> ColumnFacts:
        """Return the facts of a run of units."""
        if key_space(self.type).kind is not Kind.BYTES:
            names = ("flags", "lower", "upper")
            flags, low, high = self.container.slices([(self.key(name), start, stop) for name in names])
            return self._facts(flags, low, high)
        places = [(self.key(f"{name}/offsets"), start, stop + 1) for name in ("lower", "upper")]
        flags, *offsets = self.container.slices([(self.key("flags"), start, stop), *places])
        for at in offsets:
            self._check(at[:-1] <= at[1:])
        data = self.container.slices(
            [
                (self.key(f"{name}/data"), int(at[0]), int(at[-1]))
                for name, at in zip(("lower", "upper"), offsets, strict=True)
            ]
        )
        known = [(flags & bit) != 0 for bit in (_KNOWN_LOW, _KNOWN_HIGH)]
        parts = zip(offsets, data, known, strict=True)
        return self._facts(flags, *(join_bytes(at - at[0], body, sure) for at, body, sure in parts))

    def _check(self, rising: Array) -> None:
        if not rising.all():
            raise BadIndex(f"offsets of {self.level} are out of order", self.container.name)

    def level_of(self, units: int) -> LevelBounds:
        """Return facts and counts of all units."""
        counts = [
            self.container.whole(self.key(name))
            if self.key(name) in self.container
            else np.full(units, UNKNOWN, dtype=np.int64)
            for name in COUNTS
        ]
        return LevelBounds(self.whole(), *counts)

    def _facts(self, flags: Array, lower: Bounds, upper: Bounds) -> ColumnFacts:
        bits = (_EXACT_LOW, _EXACT_HIGH, _VALUE, _NULL, _NAN)
        return ColumnFacts(self.type, lower, upper, *((flags & bit) != 0 for bit in bits))
