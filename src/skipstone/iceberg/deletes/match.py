"""Matching of delete files with data files, for all of them together.

A position delete file applies to data files of its partition that are not newer and whose path is within its
bounds. An equality delete file applies to older data files of its partition or, under an unpartitioned spec,
of all partitions. A deletion vector applies to the file it names, and replaces position delete files. Data
files are sorted once, so that those a delete file can apply to are contiguous.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise, starmap
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.evidence import Array, ColumnFacts
from skipstone.errors import CorruptFileError
from skipstone.iceberg.manifests.entries import Entries, runs
from skipstone.store.source import Source


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """A delete file; ``offset`` and ``length`` locate a deletion vector."""

    path: str
    size: int
    format: str
    rows: int
    sequence: int
    offset: int = -1
    length: int = -1


Open: TypeAlias = Callable[[DeleteFile], Source]
"""A function that opens a delete file."""


@dataclass(frozen=True, slots=True, eq=False)
class DeleteLinks:
    """Numbers of the delete files that apply to each data file, concatenated."""

    offsets: Array
    numbers: Array

    @classmethod
    def of(cls, count: int, units: Array, numbers: Array) -> DeleteLinks:
        """Build from pairs sorted by data file."""
        offsets = np.zeros(count + 1, dtype=np.int64)
        np.cumsum(np.bincount(units, minlength=count), out=offsets[1:])
        return cls(offsets, numbers.astype(np.int32))

    def __getitem__(self, unit: int) -> Array:
        return self.numbers[self.offsets[unit] : self.offsets[unit + 1]]

    @property
    def counts(self) -> Array:
        """Number of delete files per data file."""
        return np.diff(self.offsets)

    def links_of(self, unit: int) -> Array:
        """Delete files of one data file."""
        return self.numbers[self.offsets[unit] : self.offsets[unit + 1]]

    def pairs(self, units: Array) -> tuple[Array, Array]:
        """Data file and delete file of each link of some data files."""
        counts = self.counts[units]
        return np.repeat(units, counts), self.numbers[runs(self.offsets[units], self.offsets[units + 1])]


@dataclass(frozen=True, slots=True, eq=False)
class DeleteMatches:
    """Delete files that apply to each data file; ``vectors`` is -1 without one."""

    data: Entries
    deletes: Entries
    positions: DeleteLinks
    equalities: DeleteLinks
    vectors: Array

    @property
    def touched(self) -> Array:
        """Mask of the data files that can have deleted rows."""
        return (self.positions.counts > 0) | (self.equalities.counts > 0) | (self.vectors >= 0)

    def files(self, numbers: Array) -> list[DeleteFile]:
        """Delete files by their numbers."""
        some = self.deletes.take(numbers)
        columns = (
            some.paths.to_pylist(),
            some.sizes.tolist(),
            some.formats.to_pylist(),
            some.rows.tolist(),
            some.sequences.tolist(),
            some.content_offsets.tolist(),
            some.content_sizes.tolist(),
        )
        return list(starmap(DeleteFile, zip(*columns, strict=True)))

    def position_needs(self, units: Array | None = None) -> list[tuple[DeleteFile, tuple[str, ...]]]:
        """The position delete files of some data files, each with the data files it is read for."""
        owners, numbers = self.positions.pairs(self._chosen(units))
        order = np.argsort(numbers, kind="stable")
        used, indices = np.unique(owners[order], return_inverse=True)
        paths = self.data.paths.take(pa.array(used)).to_pylist()
        wanted = [paths[at] for at in indices.tolist()]
        files, firsts = np.unique(numbers[order], return_index=True)
        edges = [*firsts.tolist(), len(numbers)]
        return [
            (file, tuple(wanted[first:last]))
            for file, first, last in zip(self.files(files), edges[:-1], edges[1:], strict=True)
        ]

    def equality_sets(
        self, units: Array | None = None
    ) -> tuple[list[tuple[tuple[int, ...], tuple[DeleteFile, ...]]], list[tuple[int, ...]]]:
        """The equality deletes of some data files, in one set per columns and partition.

        A set has the ids of its columns and its delete files, older ones first. Data files of a partition
        share sets regardless of their age; their sequence numbers decide which deletes apply. Returned with
        the sets are the numbers of the sets of each data file.
        """
        chosen, deletes = self._chosen(units), self.deletes
        counts = self.equalities.counts[chosen]
        _, numbers = self.equalities.pairs(chosen)
        used = np.unique(numbers)
        used = used[np.argsort(deletes.sequences[used], kind="stable")]
        reaches = np.where(everywhere(deletes), -1, deletes.partitions)[used].tolist()
        members: dict[tuple[int, tuple[int, ...]], list[DeleteFile]] = {}
        order: dict[tuple[int, tuple[int, ...]], int] = {}
        set_of = np.zeros(len(deletes), dtype=np.int64)
        # A loop over delete files, since each becomes an object anyway.
        for number, reach, file in zip(used.tolist(), reaches, self.files(used), strict=True):
            kind = (reach, deletes.equality_ids[number])
            set_of[number] = order.setdefault(kind, len(order))
            members.setdefault(kind, []).append(file)
        sets = [(ids, tuple(files)) for (_, ids), files in members.items()]
        pairs = np.unique(np.repeat(np.arange(len(chosen)), counts) * max(len(sets), 1) + set_of[numbers])
        owners, subject = np.divmod(pairs, max(len(sets), 1))
        edges = np.searchsorted(owners, np.arange(len(chosen) + 1)).tolist()
        listed = subject.tolist()
        return sets, [tuple(listed[a:b]) for a, b in pairwise(edges)]

    def _chosen(self, units: Array | None) -> Array:
        return np.arange(len(self.data)) if units is None else units


def everywhere(deletes: Entries) -> Array:
    """Mask of the equality deletes that apply to all partitions: those of unpartitioned specs."""
    bare = np.array([key.partition is None for key in deletes.keys], dtype=bool)
    return np.asarray(bare[deletes.partitions])


# -- bounds of equality columns ------------------------------------------------------------------

Facts: TypeAlias = Callable[[Entries, int], ColumnFacts]
"""A function that returns the manifest facts of a field in some files."""


class _KeyColumn:
    """Bounds of one equality column in data files and delete files."""

    def __init__(self, field_id: int, data: Entries, deletes: Entries, facts: Facts) -> None:
        self._used = np.array([field_id in ids for ids in deletes.equality_ids], dtype=bool)
        self._data, self._deletes = one, other = facts(data, field_id), facts(deletes, field_id)
        bounds = (one.lower, other.lower, one.upper, other.upper)
        self._bounds = _ranked(bounds) if isinstance(one.lower, pa.Array) else bounds

    def may_meet(self, units: Array, which: Array) -> Array:
        """Per pair of data file and delete file, whether both can contain the same value, NULL or NaN."""
        one, other = self._data, self._deletes
        low, other_low, high, other_high = self._bounds
        meet = (low[units] <= other_high[which]) & (other_low[which] <= high[units])
        meet &= one.may_value[units] & other.may_value[which]
        meet |= one.may_null[units] & other.may_null[which]
        meet |= one.may_nan[units] & other.may_nan[which]
        return np.asarray(meet | ~self._used[which])


def _ranked(bounds: Sequence[pa.Array]) -> tuple[Array, ...]:
    """Ranks of byte bounds, two lower and two upper ones; unknown ones are lowest or highest."""
    ranks = np.asarray(pc.rank(pa.concat_arrays(bounds), tiebreaker="dense")).astype(np.int64)
    top = int(ranks.max(initial=0)) + 1
    parts = np.split(ranks, np.cumsum([len(bound) for bound in bounds])[:-1])
    ends = (0, 0, top, top)
    return tuple(
        np.where(bound.is_null(), end, part) for bound, end, part in zip(bounds, ends, parts, strict=True)
    )


# -- matching ------------------------------------------------------------------------------------

PATH_ID: Final = 2147483546
"""The reserved field id of ``file_path`` in position delete files."""
POS_ID: Final = 2147483545
"""The reserved field id of ``pos`` in position delete files."""
_VECTORS: Final = "PUFFIN"
_POSITIONS, _EQUALITY = 1, 2
# Pairs of data and delete files tested together.
_BLOCK: Final = 1 << 22
Test: TypeAlias = Callable[[Array, Array], Array]
"""Per pair of data file and delete file, whether the delete can apply."""


@dataclass(frozen=True, slots=True, eq=False)
class DeleteIndex:
    """The live delete files of a snapshot, by kind."""

    deletes: Entries
    positions: Array
    equalities: Array
    vectors: Array

    @classmethod
    def of(cls, deletes: Entries) -> DeleteIndex:
        """Group delete files by kind, and refuse invalid ones."""
        contents = np.asarray(deletes.contents)
        puffin = np.asarray(pc.equal(deletes.formats, _VECTORS).to_numpy(zero_copy_only=False), dtype=bool)
        index = cls(
            deletes,
            np.flatnonzero((contents == _POSITIONS) & ~puffin),
            np.flatnonzero(contents == _EQUALITY),
            np.flatnonzero((contents == _POSITIONS) & puffin),
        )
        index._check(contents)
        return index

    def _check(self, contents: Array) -> None:
        deletes = self.deletes
        self._refuse((contents != _POSITIONS) & (contents != _EQUALITY), "unknown kind of delete file")
        bare = [number for number in self.equalities.tolist() if not deletes.equality_ids[number]]
        self._refuse(np.isin(np.arange(len(deletes)), bare), "equality delete file has no equality_ids")
        lost = np.asarray(deletes.referenced.is_null().to_numpy(zero_copy_only=False), dtype=bool)
        lost |= (np.asarray(deletes.content_offsets) < 0) | (np.asarray(deletes.content_sizes) < 0)
        vector = np.isin(np.arange(len(deletes)), self.vectors)
        self._refuse(vector & lost, "deletion vector has no data file or no offset")
        named = deletes.referenced.take(pa.array(self.vectors))
        if len(named.unique()) < len(named):
            counts = pc.value_counts(named)
            path = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")[0].as_py()
            hint = "rewrite the data file with the engine that wrote them"
            raise CorruptFileError("data file has more than one deletion vector", path=path, hint=hint)

    def _refuse(self, wrong: Array, reason: str) -> None:
        if wrong.any():
            path = self.deletes.paths[int(np.flatnonzero(wrong)[0])].as_py()
            raise CorruptFileError(reason, path=path, hint="restore the manifests, or upgrade Skipstone")

    def match(self, data: Entries, facts: Facts | None = None) -> DeleteMatches:
        """Match data files; with ``facts``, equality deletes whose bounds don't overlap are left out."""
        groups = {key: number for number, key in enumerate(self.deletes.keys)}
        used, inverse = np.unique(data.partitions, return_inverse=True)
        own = np.array([groups.get(data.keys[key], -1) for key in used], dtype=np.int64)[inverse]
        vectors = self._vectors(data)
        return DeleteMatches(
            data,
            self.deletes,
            self._positions(data, np.where(vectors < 0, own, -1)),
            self._equalities(data, own, facts),
            vectors,
        )

    # -- vectors -----------------------------------------------------------------------------

    def _vectors(self, data: Entries) -> Array:
        vectors = np.full(len(data), -1, dtype=np.int64)
        if len(self.vectors) and len(data):
            named = self.deletes.referenced.take(pa.array(self.vectors))
            at = pc.index_in(data.paths, value_set=named).fill_null(-1).to_numpy(zero_copy_only=False)
            vectors[at >= 0] = self.vectors[at[at >= 0]]
            vectors[data.sequences > self.deletes.sequences[vectors]] = -1
        return vectors

    # -- positions ---------------------------------------------------------------------------

    def _positions(self, data: Entries, own: Array) -> DeleteLinks:
        numbers, deletes = self.positions, self.deletes
        partitions = deletes.partitions[numbers].astype(np.int64)
        units = np.flatnonzero(np.isin(own, partitions) & (own >= 0))
        lows, highs, width = self._spans(data, units)
        keys = own[units] * width + lows[len(numbers) :]
        order = np.argsort(keys, kind="stable")
        starts = np.searchsorted(keys, partitions * width + lows[: len(numbers)], sorter=order)
        stops = np.searchsorted(keys, partitions * width + highs, sorter=order)
        ages, limits = data.sequences, deletes.sequences[numbers]
        in_time = (lambda some, which: ages[some] <= limits[which],)
        return _links(len(data), starts, stops, units[order], in_time, numbers)

    def _spans(self, data: Entries, units: Array) -> tuple[Array, Array, int]:
        """Range of the paths each delete file can name, as ranks among the data files' paths.

        The ranks of the data files follow the lower ends. Bounds can be truncated, and some writers don't
        round an upper bound up, so paths that begin with it are within it.
        """
        some = self.deletes.take(self.positions)
        count = len(some)
        bounds = some.metrics(PATH_ID)
        named = some.referenced.cast(pa.large_binary())
        lower = pc.coalesce(named, bounds.lower)
        above = pc.binary_join_element_wise(bounds.upper, _binary(b"\xff"), _binary(b""))
        upper = pc.coalesce(pc.binary_join_element_wise(named, _binary(b"\0"), _binary(b"")), above)
        paths = data.paths.take(pa.array(units)).cast(pa.large_binary())
        together = pa.concat_arrays([lower, upper, paths])
        ranks = np.asarray(pc.rank(together, tiebreaker="dense")).astype(np.int64)
        width = int(ranks.max(initial=0)) + 1
        lows = np.where(lower.is_null(), 0, ranks[:count])
        highs = np.where(upper.is_null(), width, ranks[count : 2 * count])
        crossed = lows > highs
        lows[crossed], highs[crossed] = 0, width
        return np.concatenate([lows, ranks[2 * count :]]), highs, width

    # -- equality ----------------------------------------------------------------------------

    def _equalities(self, data: Entries, own: Array, facts: Facts | None) -> DeleteLinks:
        numbers, deletes = self.equalities, self.deletes
        groups = np.where(everywhere(deletes)[numbers], 0, deletes.partitions[numbers].astype(np.int64) + 1)
        ages, age = np.unique(data.sequences, return_inverse=True)
        width = len(ages) + 1
        limits = np.searchsorted(ages, deletes.sequences[numbers])
        # Every data file twice: once for deletes of all partitions, once in its own partition.
        keys = np.concatenate([age, (own + 1) * width + age])
        keys[len(data) :][own < 0] = -1
        order = np.argsort(keys, kind="stable")
        starts = np.searchsorted(keys, groups * width, sorter=order)
        stops = np.searchsorted(keys, groups * width + limits, sorter=order)
        some = deletes.take(numbers)
        ids = sorted({one for ids in some.equality_ids for one in ids}) if facts is not None else ()
        tests = [_KeyColumn(one, data, some, facts).may_meet for one in ids if facts is not None]
        return _links(len(data), starts, stops, order % max(len(data), 1), tests, numbers)


def _binary(value: bytes) -> pa.Scalar:
    return pa.scalar(value, pa.large_binary())


def _links(
    count: int, starts: Array, stops: Array, order: Array, tests: Sequence[Test], numbers: Array
) -> DeleteLinks:
    """Links from spans of sorted data files to delete files that pass all tests, in blocks."""
    counts = np.maximum(stops - starts, 0)
    ends = np.cumsum(counts)
    bits = len(numbers).bit_length()
    blocks = [np.zeros(0, dtype=np.int64)]
    first = 0
    while first < len(counts):
        done = int(ends[first] - counts[first])
        last = max(first + 1, int(np.searchsorted(ends, done + _BLOCK, side="right")))
        some = counts[first:last]
        which = np.repeat(np.arange(first, last), some)
        units = order[runs(starts[first:last], starts[first:last] + some)]
        for test in tests:
            passed = test(units, which)
            units, which = units[passed], which[passed]
        blocks.append(units << bits | which)
        first = last
    pairs = np.sort(np.concatenate(blocks))
    return DeleteLinks.of(count, pairs >> bits, numbers[pairs & ((1 << bits) - 1)])
