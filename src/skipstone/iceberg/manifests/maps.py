"""The metrics of manifest entries: maps by field id, kept as written and read by column when asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from skipstone.core.evidence import Array
from skipstone.iceberg.manifests.codecs import AvroError

NUMBERS = ("values", "nulls", "nans")
BOUNDS = ("lower", "upper")
MAPS = (*NUMBERS, *BOUNDS)
_LONGEST = 10


@dataclass(frozen=True, slots=True, eq=False)
class Metrics:
    """One column in N files: counts (-1 where unknown) and bounds as Iceberg serialises them (or null)."""

    values: Array
    nulls: Array
    nans: Array
    lower: pa.Array
    upper: pa.Array

    @classmethod
    def unknown(cls, files: int) -> Metrics:
        """Nothing was written down."""
        counts, bounds = np.full(files, -1, np.int64), pa.nulls(files, pa.large_binary())
        return cls(counts, counts, counts, bounds, bounds)

    def take(self, units: Array) -> Metrics:
        """The metrics of the chosen files, in that order."""
        places = pa.array(units)
        counts = (getattr(self, name)[units] for name in NUMBERS)
        return Metrics(*counts, *(getattr(self, name).take(places) for name in BOUNDS))

    @staticmethod
    def concat(parts: Sequence[Metrics]) -> Metrics:
        """The metrics of several runs of files, one after the other."""
        counts = (np.concatenate([getattr(p, name) for p in parts]) for name in NUMBERS)
        return Metrics(*counts, *(pa.concat_arrays([getattr(p, name) for p in parts]) for name in BOUNDS))


class Measures(Protocol):
    """Metrics of every column in the same files, worked out when asked for."""

    def fields(self) -> tuple[int, ...]:
        """The field ids that anything is known about, ascending."""

    def get(self, field_id: int) -> Metrics | None:
        """The metrics of one column; None if nothing is known."""


@dataclass(frozen=True, slots=True, eq=False)
class Written:
    """Maps as manifests hold them: for each file one slice of Avro, null where it has none."""

    maps: tuple[pa.Array, ...]
    """One array for each of ``MAPS``."""

    def take(self, units: Array) -> Written:
        """The maps of the chosen files."""
        places = pa.array(units)
        return Written(tuple(raw.take(places) for raw in self.maps))


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Metrics by field id, all worked out."""

    metrics: dict[int, Metrics]

    def fields(self) -> tuple[int, ...]:
        """The field ids that anything is known about, ascending."""
        return tuple(sorted(self.metrics))

    def get(self, field_id: int) -> Metrics | None:
        """The metrics of one column; None if nothing is known."""
        return self.metrics.get(field_id)


class Lazy:
    """Metrics that are still as written: read together when the first is asked for."""

    def __init__(self, written: Written) -> None:
        self.written = written
        self._maps: dict[str, _Counts | _Blobs] = {}
        self._known: dict[int, Metrics] = {}

    def fields(self) -> tuple[int, ...]:
        """The field ids that anything is known about, ascending."""
        return tuple(sorted({field_id for known in self._read().values() for field_id in known.groups}))

    def get(self, field_id: int) -> Metrics | None:
        """The metrics of one column; None if nothing is known."""
        if field_id not in self._known:
            maps = self._read()
            if not any(field_id in known.groups for known in maps.values()):
                return None
            self._known[field_id] = Metrics(**{name: known.column(field_id) for name, known in maps.items()})
        return self._known[field_id]

    def _read(self) -> dict[str, _Counts | _Blobs]:
        if not self._maps:
            named = zip(MAPS, self.written.maps, strict=True)
            self._maps = {name: _Counts(raw) if name in NUMBERS else _Blobs(raw) for name, raw in named}
        return self._maps

    def __reduce__(self) -> tuple[Any, ...]:
        return Lazy, (self.written,)


class Chosen:
    """Metrics of some of the files of others."""

    def __init__(self, whole: Measures, units: Array) -> None:
        self.whole = whole
        self.units = units
        self._known: dict[int, Metrics] = {}

    def fields(self) -> tuple[int, ...]:
        """The field ids that anything is known about, ascending."""
        return self.whole.fields()

    def get(self, field_id: int) -> Metrics | None:
        """The metrics of one column; None if nothing is known."""
        if field_id not in self._known:
            found = self.whole.get(field_id)
            if found is None:
                return None
            self._known[field_id] = found.take(self.units)
        return self._known[field_id]

    def __reduce__(self) -> tuple[Any, ...]:
        # What is sent elsewhere are the chosen files alone.
        if isinstance(self.whole, Lazy):
            return Lazy, (self.whole.written.take(self.units),)
        return Columns, ({i: m for i in self.fields() if (m := self.get(i)) is not None},)


class Joined:
    """Metrics of several runs of files, one after the other."""

    def __init__(self, parts: Sequence[tuple[Measures, int]]) -> None:
        self.parts = tuple(parts)
        self._known: dict[int, Metrics] = {}

    def fields(self) -> tuple[int, ...]:
        """The field ids that anything is known about, ascending."""
        return tuple(sorted({field_id for part, _ in self.parts for field_id in part.fields()}))

    def get(self, field_id: int) -> Metrics | None:
        """The metrics of one column; None if nothing is known."""
        if field_id not in self._known:
            found = [(part.get(field_id), files) for part, files in self.parts]
            if all(metrics is None for metrics, _ in found):
                return None
            given = [m if m is not None else Metrics.unknown(files) for m, files in found]
            self._known[field_id] = Metrics.concat(given)
        return self._known[field_id]

    def __reduce__(self) -> tuple[Any, ...]:
        return Joined, (self.parts,)


# -- Avro, many slices at once -----------------------------------------------------------------


def numbers(data: Array) -> tuple[Array, Array]:
    """Every zigzag varint in a run of bytes, and where each of them ends."""
    ends = np.flatnonzero(data < 0x80)
    if len(data) and (not len(ends) or ends[-1] != len(data) - 1):
        raise AvroError("it ends inside a number")
    starts = np.empty_like(ends)
    starts[:1], starts[1:] = 0, ends[:-1] + 1
    found = (data[starts] & 0x7F).astype(np.uint64)
    longer = np.flatnonzero(ends > starts)
    for step in range(1, _LONGEST):
        if not len(longer):
            break
        more = data[starts[longer] + step]
        if step == _LONGEST - 1 and (more > 1).any():
            raise AvroError("a number has more than 64 bits")
        found[longer] |= (more & 0x7F).astype(np.uint64) << np.uint64(7 * step)
        longer = longer[ends[longer] > starts[longer] + step]
    if len(longer):
        raise AvroError("a number has more than 64 bits")
    return _unzigzag(found), ends


def _unzigzag(found: Array) -> Array:
    signs = np.uint64(0) - (found & np.uint64(1))
    whole: Array = ((found >> np.uint64(1)) ^ signs).view(np.int64)
    return whole


def raw_bytes(slices: pa.Array) -> tuple[Array, Array]:
    """The bytes of a large binary array, and where in them each value begins and the last one ends."""
    _, offsets, data = slices.buffers()
    if not len(slices):
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    places = np.frombuffer(offsets, np.int64, len(slices) + 1, slices.offset * 8)
    whole = np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)
    return whole[places[0] : places[-1]], places - places[0]


class _Counts:
    """Maps of numbers: a column of counts for each key, -1 where a file doesn't have it."""

    def __init__(self, raw: pa.Array) -> None:
        data, places = raw_bytes(raw)
        found, ends = numbers(data)
        # The first number of a slice is its item count; two for each item follow, then a zero.
        written = np.flatnonzero(places[1:] > places[:-1])
        firsts = np.searchsorted(ends, places[written])
        items = found[firsts]
        pairs = _ranges(firsts + 1, items, 2)
        self._files = len(raw)
        self._owners = np.repeat(written, items)
        self._values = found[pairs + 1]
        self.groups = _grouped(found[pairs])

    def column(self, field_id: int) -> Array:
        """The counts of one column."""
        column = np.full(self._files, -1, np.int64)
        here = self.groups.get(field_id)
        if here is not None:
            column[self._owners[here]] = np.maximum(self._values[here], -1)
        return column


class _Blobs:
    """Maps of bytes: a column for each key, null where a file doesn't have it."""

    def __init__(self, raw: pa.Array) -> None:
        data, places = raw_bytes(raw)
        owners = np.flatnonzero(places[1:] > places[:-1])
        left, pos = _numbers_at(data, places[owners])
        items: list[tuple[Array, Array, Array, Array]] = []
        # A step for each column, over all files: where an item begins is known once the one before was read.
        while True:
            going = left > 0
            if not going.all():
                owners, pos, left = owners[going], pos[going], left[going]
            if not len(owners):
                break
            key, pos = _numbers_at(data, pos)
            size, pos = _numbers_at(data, pos)
            items.append((key, owners, pos, size))
            pos = pos + size
            left = left - 1
        none = (np.empty(0, np.int64),) * 4
        keys, self._owners, self._starts, self._sizes = map(
            np.concatenate, zip(*items, strict=True) if items else zip(none, strict=True)
        )
        self._files = len(raw)
        self._data = data
        self.groups = _grouped(keys)

    def column(self, field_id: int) -> pa.Array:
        """The bytes of one column."""
        here = self.groups.get(field_id)
        if here is None:
            return pa.nulls(self._files, pa.large_binary())
        begin, size, known = (np.zeros(self._files, dtype) for dtype in (np.int64, np.int64, bool))
        owners = self._owners[here]
        begin[owners], size[owners], known[owners] = self._starts[here], self._sizes[here], True
        offsets = np.concatenate([[0], np.cumsum(size)])
        values = self._data[_ranges(begin, size, 1)]
        valid = None if known.all() else pa.py_buffer(np.packbits(known, bitorder="little"))
        buffers = [valid, pa.py_buffer(offsets), pa.py_buffer(values)]
        return pa.Array.from_buffers(pa.large_binary(), self._files, buffers)


def _numbers_at(data: Array, pos: Array) -> tuple[Array, Array]:
    """A zigzag varint at each position, and the positions after them."""
    byte = data[pos]
    found = (byte & 0x7F).astype(np.uint64)
    after = pos + 1
    longer = np.flatnonzero(byte > 0x7F)
    shift = 7
    while len(longer):
        byte = data[after[longer]]
        found[longer] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        after[longer] += 1
        longer = longer[byte > 0x7F]
        shift += 7
    return _unzigzag(found), after


def _grouped(keys: Array) -> dict[int, Array]:
    """For each key, the places it is at, in order."""
    order = np.argsort(keys, kind="stable")
    distinct, first = np.unique(keys[order], return_index=True)
    return dict(zip(distinct.tolist(), np.split(order, first[1:]), strict=False))


def _ranges(starts: Array, counts: Array, step: int) -> Array:
    """``starts[i], starts[i] + step, ...``, ``counts[i]`` of them, for all i."""
    before = np.cumsum(counts) - counts
    within = np.arange(int(counts.sum())) - np.repeat(before, counts)
    ranges: Array = np.repeat(starts, counts) + within * step
    return ranges
