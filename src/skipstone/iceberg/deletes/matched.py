"""What applies to each data file, and what is to be read of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise, starmap
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from skipstone.core.evidence import Array
from skipstone.store.source import Source

if TYPE_CHECKING:
    from skipstone.iceberg.manifests.entries import Entries


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """A delete file as work carries it to where it is read; ``offset`` and ``length`` are a vector's."""

    path: str
    size: int
    format: str
    rows: int
    sequence: int
    offset: int = -1
    length: int = -1


Open: TypeAlias = Callable[[DeleteFile], Source]
"""Opens a delete file."""


@dataclass(frozen=True, slots=True, eq=False)
class Links:
    """For each data file the numbers of the delete files that apply to it, one run after the other."""

    offsets: Array
    numbers: Array

    @classmethod
    def of(cls, count: int, units: Array, numbers: Array) -> Links:
        """Pairs sorted by data file."""
        offsets = np.zeros(count + 1, dtype=np.int64)
        np.cumsum(np.bincount(units, minlength=count), out=offsets[1:])
        return cls(offsets, numbers.astype(np.int32))

    def __getitem__(self, unit: int) -> Array:
        return self.numbers[self.offsets[unit] : self.offsets[unit + 1]]

    @property
    def counts(self) -> Array:
        """How many delete files apply to each data file."""
        return np.diff(self.offsets)

    def pairs(self, units: Array) -> tuple[Array, Array]:
        """The links of some data files: data file and delete file of each."""
        counts = self.counts[units]
        places = steps(counts) + np.repeat(self.offsets[units], counts)
        return np.repeat(units, counts), self.numbers[places]


@dataclass(frozen=True, slots=True)
class PositionNeed:
    """A position delete file, and the data files whose positions are wanted of it."""

    file: DeleteFile
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EqualitySet:
    """Equality delete files of the same columns and the same reach, older ones first.

    Each deletes rows of data files with a lower sequence number than its own.
    """

    ids: tuple[int, ...]
    files: tuple[DeleteFile, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Matched:
    """What applies to each data file; ``vectors`` has -1 where there is none."""

    data: Entries
    deletes: Entries
    positions: Links
    equalities: Links
    vectors: Array

    @property
    def touched(self) -> Array:
        """Which data files may have deleted rows: their counts are not to be trusted."""
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

    def file(self, number: int) -> DeleteFile:
        """One delete file by its number."""
        return self.files(np.array([number]))[0]

    def vector(self, unit: int) -> DeleteFile | None:
        """The deletion vector of a data file."""
        number = int(self.vectors[unit])
        return self.file(number) if number >= 0 else None

    def position_needs(self, units: Array | None = None) -> list[PositionNeed]:
        """What to read for the position deletes of some data files, each delete file once."""
        owners, numbers = self.positions.pairs(self._chosen(units))
        order = np.argsort(numbers, kind="stable")
        used, places = np.unique(owners[order], return_inverse=True)
        paths = self.data.paths.take(pa.array(used)).to_pylist()
        wanted = [paths[place] for place in places.tolist()]
        files, firsts = np.unique(numbers[order], return_index=True)
        edges = [*firsts.tolist(), len(numbers)]
        return [
            PositionNeed(file, tuple(wanted[first:last]))
            for file, first, last in zip(self.files(files), edges[:-1], edges[1:], strict=True)
        ]

    def equality_sets(self, units: Array | None = None) -> tuple[list[EqualitySet], list[tuple[int, ...]]]:
        """The equality deletes of some data files, in as few sets as there are columns and reaches.

        Data files of one partition share their sets, whatever their age: which rows a set deletes is for
        the data file's sequence number to say. Beside the sets, the numbers of those that each data file
        is subject to.
        """
        chosen, deletes = self._chosen(units), self.deletes
        counts = self.equalities.counts[chosen]
        _, numbers = self.equalities.pairs(chosen)
        used = np.unique(numbers)
        used = used[np.argsort(deletes.sequences[used], kind="stable")]
        reaches = np.where(everywhere(deletes), -1, deletes.partitions)[used].tolist()
        members: dict[tuple[int, tuple[int, ...]], list[DeleteFile]] = {}
        order: dict[tuple[int, tuple[int, ...]], int] = {}
        place = np.zeros(len(deletes), dtype=np.int64)
        # A loop over delete files, each of which becomes an object of its own anyway.
        for number, reach, file in zip(used.tolist(), reaches, self.files(used), strict=True):
            kind = (reach, deletes.equality_ids[number])
            place[number] = order.setdefault(kind, len(order))
            members.setdefault(kind, []).append(file)
        sets = [EqualitySet(ids, tuple(files)) for (_, ids), files in members.items()]
        pairs = np.unique(np.repeat(np.arange(len(chosen)), counts) * max(len(sets), 1) + place[numbers])
        owners, subject = np.divmod(pairs, max(len(sets), 1))
        edges = np.searchsorted(owners, np.arange(len(chosen) + 1)).tolist()
        listed = subject.tolist()
        return sets, [tuple(listed[a:b]) for a, b in pairwise(edges)]

    def _chosen(self, units: Array | None) -> Array:
        return np.arange(len(self.data)) if units is None else units


def everywhere(deletes: Entries) -> Array:
    """Which equality deletes apply whatever the partition: those not partitioned by their own spec."""
    bare = np.array([key.partition is None for key in deletes.keys], dtype=bool)
    return np.asarray(bare[deletes.partitions])


def steps(counts: Array) -> Array:
    """0, 1, … within each run of so many."""
    return np.asarray(np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts))
