"""Which delete files apply to which data files, worked out for all of them together.

A position delete file applies to data that is not newer, in its own partition, and only to the paths that it
can name. An equality delete file applies to data that is older, in its own partition or, under an
unpartitioned spec, everywhere. A deletion vector applies to the one file it names, in the place of position
delete files. Data files are sorted once, so that those a delete file may apply to lie side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.evidence import Array
from skipstone.errors import CorruptFileError
from skipstone.iceberg.deletes.matched import DeleteFile, Links, Matched, everywhere, steps
from skipstone.iceberg.deletes.meeting import Facts, Meeting, meeting

if TYPE_CHECKING:
    from skipstone.iceberg.manifests.entries import Entries

__all__ = ["PATH_ID", "POS_ID", "DeleteFile", "DeleteIndex", "Facts", "Matched"]

PATH_ID: Final = 2147483546
"""The reserved field id of ``file_path`` in position delete files."""
POS_ID: Final = 2147483545
"""The reserved field id of ``pos`` in position delete files."""
_VECTORS: Final = "PUFFIN"
_POSITIONS, _EQUALITY = 1, 2
# Pairs of a data and a delete file that are looked at together.
_BLOCK: Final = 1 << 22


@dataclass(frozen=True, slots=True, eq=False)
class DeleteIndex:
    """The live delete files of a snapshot, by kind."""

    deletes: Entries
    positions: Array
    equalities: Array
    vectors: Array

    @classmethod
    def of(cls, deletes: Entries) -> DeleteIndex:
        """Tell kinds apart, and refuse what no reader could apply."""
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
        self._refuse((contents != _POSITIONS) & (contents != _EQUALITY), "its kind of deletes is not known")
        bare = [number for number in self.equalities.tolist() if not deletes.equality_ids[number]]
        self._refuse(np.isin(np.arange(len(deletes)), bare), "equality deletes without columns")
        lost = np.asarray(deletes.referenced.is_null().to_numpy(zero_copy_only=False), dtype=bool)
        lost |= (np.asarray(deletes.content_offsets) < 0) | (np.asarray(deletes.content_sizes) < 0)
        vector = np.isin(np.arange(len(deletes)), self.vectors)
        self._refuse(vector & lost, "a deletion vector that names no data file, or no place in its own")
        named = deletes.referenced.take(pa.array(self.vectors))
        if len(named.unique()) < len(named):
            counts = pc.value_counts(named)
            path = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")[0].as_py()
            hint = "rewrite the data file, with an engine that can tell which of them holds"
            raise CorruptFileError("it has more than one deletion vector", path=path, hint=hint)

    def _refuse(self, wrong: Array, reason: str) -> None:
        if wrong.any():
            path = self.deletes.paths[int(np.flatnonzero(wrong)[0])].as_py()
            raise CorruptFileError(reason, path=path, hint="the table's manifests are damaged or too new")

    def match(self, data: Entries, facts: Facts | None = None) -> Matched:
        """What applies to each data file; ``facts`` leave out equality deletes that can't meet its rows."""
        groups = {key: number for number, key in enumerate(self.deletes.keys)}
        used, inverse = np.unique(data.partitions, return_inverse=True)
        own = np.array([groups.get(data.keys[key], -1) for key in used], dtype=np.int64)[inverse]
        vectors = self._vectors(data)
        return Matched(
            data,
            self.deletes,
            self._positions(data, np.where(vectors < 0, own, -1)),
            self._equalities(data, own, facts),
            vectors,
        )

    # -- vectors -----------------------------------------------------------------------------

    def _vectors(self, data: Entries) -> Array:
        found = np.full(len(data), -1, dtype=np.int64)
        if len(self.vectors) and len(data):
            named = self.deletes.referenced.take(pa.array(self.vectors))
            at = pc.index_in(data.paths, value_set=named).fill_null(-1).to_numpy(zero_copy_only=False)
            found[at >= 0] = self.vectors[at[at >= 0]]
            found[data.sequences > self.deletes.sequences[found]] = -1
        return found

    # -- positions ---------------------------------------------------------------------------

    def _positions(self, data: Entries, own: Array) -> Links:
        numbers, deletes = self.positions, self.deletes
        partitions = deletes.partitions[numbers].astype(np.int64)
        units = np.flatnonzero(np.isin(own, partitions) & (own >= 0))
        lows, highs, width = self._spans(data, units)
        keys = own[units] * width + lows[len(numbers) :]
        order = np.argsort(keys, kind="stable")
        starts = np.searchsorted(keys, partitions * width + lows[: len(numbers)], sorter=order)
        stops = np.searchsorted(keys, partitions * width + highs, sorter=order)
        sequences, limits = data.sequences, deletes.sequences[numbers]

        def in_time(some: Array, which: Array) -> Array:
            return np.asarray(sequences[some] <= limits[which])

        return _links(len(data), starts, stops, units[order], in_time, numbers)

    def _spans(self, data: Entries, units: Array) -> tuple[Array, Array, int]:
        """The first path each delete file may name and the one after the last, as ranks among the data's.

        The ranks of the data's own paths follow those of the first paths. A bound may be cut short, and
        some writers don't round such an upper bound up, so a path that begins with it is within it.
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

    def _equalities(self, data: Entries, own: Array, facts: Facts | None) -> Links:
        numbers, deletes = self.equalities, self.deletes
        groups = np.where(everywhere(deletes)[numbers], 0, deletes.partitions[numbers].astype(np.int64) + 1)
        ages, age = np.unique(data.sequences, return_inverse=True)
        width = len(ages) + 1
        limits = np.searchsorted(ages, deletes.sequences[numbers])
        # Every data file twice: once among all, for deletes that reach everywhere, once in its partition.
        keys = np.concatenate([age, (own + 1) * width + age])
        keys[len(data) :][own < 0] = -1
        order = np.argsort(keys, kind="stable")
        starts = np.searchsorted(keys, groups * width, sorter=order)
        stops = np.searchsorted(keys, groups * width + limits, sorter=order)
        meets = None if facts is None else meeting(data, deletes.take(numbers), facts)
        return _links(len(data), starts, stops, order % max(len(data), 1), meets, numbers)


def _binary(value: bytes) -> pa.Scalar:
    return pa.scalar(value, pa.large_binary())


def _links(
    count: int, starts: Array, stops: Array, order: Array, meets: Meeting | None, numbers: Array
) -> Links:
    """The pairs that spans of sorted data files make, those that pass a test; some at a time."""
    counts = np.maximum(stops - starts, 0)
    ends = np.cumsum(counts)
    bits = len(numbers).bit_length()
    found = [np.zeros(0, dtype=np.int64)]
    first = 0
    while first < len(counts):
        done = int(ends[first] - counts[first])
        last = max(first + 1, int(np.searchsorted(ends, done + _BLOCK, side="right")))
        some = counts[first:last]
        which = np.repeat(np.arange(first, last), some)
        units = order[steps(some) + starts[which]]
        if meets is not None:
            kept = meets(units, which)
            units, which = units[kept], which[kept]
        found.append(units << bits | which)
        first = last
    pairs = np.sort(np.concatenate(found))
    return Links.of(count, pairs >> bits, numbers[pairs & ((1 << bits) - 1)])
