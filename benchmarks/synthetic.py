"""Indexes of lakes that don't exist: up to ten million files, twenty columns, no Parquet file on disk.

Every bound of every file can be worked out from its number, so an answer of an index is checked against plain
arithmetic that never saw the index. Positions are integers: each file owns ``STEP`` of them, and columns lay
them out differently (:class:`Layout`); a type's keys are the positions in that type, in the same order.
"""

from __future__ import annotations

import enum
import itertools
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress

from benchmarks.lakes import kept
from skipstone.core.evidence import ColumnFacts
from skipstone.index.build import open_segment, write_segment
from skipstone.index.container import BadIndex
from skipstone.index.coverage import IndexCoverage
from skipstone.index.draft import ColumnDraft, Draft
from skipstone.index.levels import UNKNOWN, LevelBounds
from skipstone.index.manifest import Manifest, commit, read_manifest
from skipstone.lake.files import Files
from skipstone.parquet.metadata import from_pyarrow
from skipstone.parquet.recorded import CHUNK
from skipstone.store.cache import Cache
from skipstone.store.local import LocalStore
from skipstone.store.store import ListedFile

Array = NDArray[Any]

STEP = 1_000
"""Positions that a file owns."""
SEGMENT = 1 << 20
"""Files of the largest segment."""
ALONE = 2_000_000
"""From so many files on each has one row group, below two: the index of ten million takes 10 GB as it is."""
GROUP_ROWS = 100_000
_FIRST = 1_700_000_000_000_000
_DIGITS = 12
_CACHE = 64 << 20


class Layout(enum.Enum):
    """Which positions a file has of a column."""

    CLUSTERED = "in the order of paths, each a little into the next"
    SHUFFLED = "ranges apart from each other, but in no order"
    NEARBY = "in order but for a shuffle among a thousand files"
    LATE = "in order, but one file in fifty reaches far back"
    WIDE = "nearly all positions, so bounds tell nothing"
    COARSE = "a thousandth of all, the same for many files"


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its layout, its type, and whether some rows are NULL or NaN."""

    name: str
    type: pa.DataType
    layout: Layout
    nulls: bool = False
    nans: bool = False

    def keys(self, positions: Array) -> Any:
        """Positions as keys of the type, which keep their order."""
        if pa.types.is_string(self.type):
            return texts(positions)
        if pa.types.is_floating(self.type):
            return positions.astype(np.float64)
        if pa.types.is_timestamp(self.type):
            return positions + _FIRST
        return positions

    def sql(self, position: int) -> str:
        """A position as a literal."""
        if pa.types.is_string(self.type):
            return f"'{position:0{_DIGITS}d}'"
        if pa.types.is_timestamp(self.type):
            at = np.datetime64(position + _FIRST, "us")
            return f"TIMESTAMP '{str(at).replace('T', ' ')}'"
        return f"{position}.0" if pa.types.is_floating(self.type) else str(position)


_L = Layout
COLUMNS = (
    Column("ts", pa.timestamp("us", "UTC"), _L.CLUSTERED),
    Column("id", pa.int64(), _L.SHUFFLED),
    Column("user_id", pa.int64(), _L.WIDE),
    Column("seq", pa.int64(), _L.CLUSTERED),
    Column("customer", pa.string(), _L.SHUFFLED),
    Column("session", pa.string(), _L.WIDE),
    Column("sku", pa.string(), _L.CLUSTERED),
    Column("amount", pa.float64(), _L.WIDE, nulls=True, nans=True),
    Column("price", pa.float64(), _L.SHUFFLED),
    Column("score", pa.float64(), _L.NEARBY, nans=True),
    Column("order_id", pa.int64(), _L.NEARBY),
    Column("parent_id", pa.int64(), _L.NEARBY, nulls=True),
    Column("updated", pa.timestamp("us", "UTC"), _L.LATE),
    Column("created", pa.timestamp("us", "UTC"), _L.SHUFFLED),
    Column("day", pa.int64(), _L.COARSE),
    Column("region", pa.int64(), _L.COARSE, nulls=True),
    Column("quantity", pa.int64(), _L.WIDE),
    Column("weight", pa.float64(), _L.CLUSTERED, nulls=True),
    Column("batch", pa.int64(), _L.LATE),
    Column("checksum", pa.int64(), _L.WIDE),
)
BY_NAME = {column.name: column for column in COLUMNS}


def texts(positions: Array) -> pa.Array:
    """Positions as strings of twelve digits, without a loop over them."""
    left = positions.copy()
    digits = np.empty((len(left), _DIGITS), dtype=np.uint8)
    for place in reversed(range(_DIGITS)):
        left, digit = np.divmod(left, 10)
        digits[:, place] = digit + ord("0")
    offsets = np.arange(0, len(positions) * _DIGITS + 1, _DIGITS, dtype=np.int64)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(digits)]
    return pa.Array.from_buffers(pa.large_binary(), len(positions), buffers)


@lru_cache(maxsize=2)
def _shuffle(files: int, seed: int) -> Array:
    return np.random.default_rng(seed).permutation(files)


@dataclass(frozen=True, slots=True)
class Synthetic:
    """The bounds of a lake's files, by their numbers."""

    files: int
    seed: int = 0

    @property
    def groups(self) -> int:
        """Row groups of each file."""
        return 1 if self.files >= ALONE else 2

    @property
    def span(self) -> int:
        """All positions lie below it."""
        return self.files * STEP

    def bounds(self, column: Column, first: int, last: int) -> tuple[Array, Array]:
        """Least and greatest position in the files ``first`` to ``last``."""
        numbers = np.arange(first, last, dtype=np.int64)
        match column.layout:
            case Layout.CLUSTERED:
                return numbers * STEP, numbers * STEP + STEP + STEP // 4
            case Layout.SHUFFLED:
                low = _shuffle(self.files, self.seed)[first:last] * STEP
                return low, low + STEP - 1
            case Layout.NEARBY:
                low = numbers // 1000 * 1000 * STEP + numbers * 617 % 1000 * STEP
                return low, low + STEP - 1
            case Layout.LATE:
                high = numbers * STEP + STEP
                low = np.where(_mixed(numbers, 3) % 50 == 0, high // 2, numbers * STEP)
                return low, high
            case Layout.WIDE:
                edge = max(self.span // 20, 1)
                return _mixed(numbers, 1) % edge, self.span - 1 - _mixed(numbers, 2) % edge
            case Layout.COARSE:
                part = numbers * 1000 // self.files
                return part, part

    def meets(self, column: Column, lows: Array, highs: Array) -> Array:
        """Which files have a position in any of some spans, which ascend and lie apart: plain arithmetic."""
        found = np.empty(self.files, dtype=bool)
        for first in range(0, self.files, SEGMENT):
            last = min(first + SEGMENT, self.files)
            low, high = self.bounds(column, first, last)
            # The first span that ends at or after the file's least position begins before its greatest.
            at = np.searchsorted(highs, low, side="left")
            begins = np.append(lows, np.iinfo(np.int64).max)[at]
            found[first:last] = begins <= high
        return found

    # -- as an index -------------------------------------------------------------------------

    def draft(self, first: int, last: int, shell: bytes) -> Draft:
        """The files ``first`` to ``last`` as a segment before it is written.

        Places of chunks (1.4 kB a file) are left out: no plan looks at them.
        """
        files, groups = last - first, self.groups
        numbers = np.arange(first, last, dtype=np.int64)
        return Draft(
            keys=[f"events/part-{number:08d}.parquet" for number in range(first, last)],
            versions=["1"] * files,
            marks=np.stack([_mixed(numbers, 8), _mixed(numbers, 9)], axis=1).astype("<u8"),
            sizes=np.full(files, 128 << 20, dtype=np.int64),
            schemas=[shell],
            schema_numbers=np.zeros(files, dtype=np.uint32),
            counts=np.full(files, groups, dtype=np.int64),
            group_rows=np.full(files * groups, GROUP_ROWS, dtype=np.int64),
            group_sizes=np.full((files * groups, 2), 64 << 20, dtype=np.int64),
            chunk_counts=np.zeros(files, dtype=np.int64),
            chunks=np.zeros(0, dtype=CHUNK),
            columns={(column.name,): self._column(column, first, last) for column in COLUMNS},
        )

    def _column(self, column: Column, first: int, last: int) -> ColumnDraft:
        low, high = self._group_bounds(column, first, last)
        units = len(low)
        no, yes = np.zeros(units, dtype=bool), np.ones(units, dtype=bool)
        unknown = np.full(units, UNKNOWN, dtype=np.int64)
        lower, upper = column.keys(low), column.keys(high)
        facts = ColumnFacts(
            column.type, lower, upper, yes, yes, yes, yes if column.nulls else no, yes if column.nans else no
        )
        nulls = np.full(units, GROUP_ROWS // 20 if column.nulls else 0, dtype=np.int64)
        return ColumnDraft(
            column.type,
            LevelBounds(facts, nulls, unknown, unknown, unknown),
            origins=np.zeros(last - first, dtype=np.uint8),
        )

    def _group_bounds(self, column: Column, first: int, last: int) -> tuple[Array, Array]:
        """The first row group has the lower half of its file's positions, unless bounds tell nothing."""
        low, high = self.bounds(column, first, last)
        if self.groups == 1:
            return low, high
        if column.layout in (Layout.WIDE, Layout.COARSE):
            return np.repeat(low, 2), np.repeat(high, 2)
        middle = (low + high) // 2
        return np.stack([low, middle + 1], axis=1).ravel(), np.stack([middle, high], axis=1).ravel()

    def write(self, folder: Path, console: Console) -> None:
        """Write the index."""
        store = LocalStore(str(folder))
        shell = _shell(folder)
        notes = []
        starts = range(0, self.files, SEGMENT)
        with Progress(console=console, transient=True) as progress:
            for first in progress.track(starts, description=f"{self.files:,} files"):
                draft = self.draft(first, min(first + SEGMENT, self.files), shell)
                notes.append(write_segment(store, draft, "synthetic", own_blooms=True))
        commit(store, lambda _before: Manifest(1, tuple(notes)))


def _mixed(numbers: Array, salt: int) -> Array:
    """Numbers that look random and are the same each time, none negative."""
    mixed = (numbers.astype(np.uint64) + np.uint64(salt << 40)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return (mixed >> np.uint64(2)).astype(np.int64)


def schema() -> pa.Schema:
    """The schema of every file."""
    return pa.schema([pa.field(column.name, column.type) for column in COLUMNS])


def _shell(folder: Path) -> bytes:
    """The footer that all files would share."""
    path = folder / "shell.parquet"
    pq.write_table(schema().empty_table(), path)
    shell = from_pyarrow(pq.read_metadata(path)).shell()
    path.unlink()
    return shell


# -- an index without a lake -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Entries(Sequence[ListedFile]):
    """A listing that is as long as the index and holds nothing."""

    count: int

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: Any) -> Any:
        return ListedFile(f"events/part-{number:08d}.parquet", 128 << 20, "1")


class Alone(IndexCoverage):
    """An index that covers a listing of just its own files, in the order of its rows."""

    @cached_property
    def owner(self) -> Array:  # type: ignore[override]
        """The segment of each file; nobody asks unless row groups are few."""
        return np.repeat(np.arange(len(self.segments)), [len(segment) for segment in self.segments])

    @cached_property
    def row(self) -> Array:  # type: ignore[override]
        """The row of each file."""
        return np.concatenate([np.arange(len(segment)) for segment in self.segments])

    @cached_property
    def _files(self) -> list[Array]:
        ends = np.cumsum([0, *(len(segment) for segment in self.segments)]).tolist()
        return [self.every[start:stop] for start, stop in itertools.pairwise(ends)]

    @classmethod
    def of(cls, folder: Path) -> Alone:
        """Open an index: its manifest, and its segments as far as opening goes."""
        store = LocalStore(str(folder))
        access = Files(store)
        listed = store.list_prefix("")
        manifest = read_manifest(store, listed)
        entries = {entry.key: entry for entry in listed}
        cache: Cache[object, object] = Cache(_CACHE)
        segments = [open_segment(access, entries[note.name], note, cache) for note in manifest.segments]
        # Not by its constructor, which would match marks.
        found = cls.__new__(cls)
        found.manifest, found.access, found.segments, found.problems = manifest, access, segments, []
        found.entries = _Entries(manifest.files)
        return found

    @cached_property
    def every(self) -> Array:
        """The numbers of all files."""
        return np.arange(len(self.entries))


def synthetic_index(synthetic: Synthetic, data: Path, console: Console) -> Path:
    """The index's folder; made once, and again if this version can't read it."""
    folder = data / f"synthetic-{synthetic.files}-{synthetic.seed}"
    if folder.exists():
        try:
            for segment in Alone.of(folder).segments:
                len(segment.columns)
        except BadIndex:
            shutil.rmtree(folder)
    return kept(folder, lambda partial: synthetic.write(partial, console), console)
