"""RowSet: an immutable set of file-absolute row positions.

A set is stored as sorted runs or, if it has many runs that are close together, as a roaring bitmap. The
representation depends only on the content; equality and hash don't depend on it.

>>> RowSet.from_ranges(300, [(200, 300)]) & RowSet.from_ranges(300, [(100, 250)])
RowSet(50 of 300 rows in 1 run: 200–249)

A row selection, as used by Parquet readers, is a list of counts of rows to skip and to select in the
concatenated selected row groups.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle, pairwise
from typing import Any, Literal, TypeAlias, final

import numpy as np
import numpy.typing as npt
import xxhash

from skipstone.core.rows import roaring
from skipstone.core.rows import runs as run
from skipstone.core.rows.roaring import Bitmap
from skipstone.core.rows.runs import Int64Array, Runs
from skipstone.errors import RowSetError

# A run takes 24 bytes here, and 2 to 4 in roaring, plus about 60 per container of 65,536 rows. So a bitmap
# pays off with many runs and several of them per container.
SCATTERED_RUNS = 4_096
SCATTERED_RUNS_PER_CONTAINER = 8

MAX_TOTAL = 2**63 - 1
_REPR_RUNS = 3
_LONG_RUNS = 4
_RUNS_PER_RANK = 64  # one roaring rank is as slow as unpacking this many runs


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RowSet:
    """An immutable set of rows of a file with ``total`` rows; ``&``, ``|``, ``-`` and ``~`` combine sets.

    A set from pruning is a superset of the rows that match. Intersect and unite such sets freely; subtract
    only rows that are proven to match.

    Examples:
        >>> import skipstone as sk
        >>> sk.RowSet.from_ranges(300, [(200, 300)]) & sk.RowSet.from_ranges(300, [(100, 250)])
        RowSet(50 of 300 rows in 1 run: 200–249)
    """

    total: int
    _size: int
    _run_count: int
    _runs: Runs
    _before: Int64Array  # rows in the first i runs, for i = 0 … number of runs
    _bitmap: Bitmap | None  # replaces the runs if the rows are scattered
    is_empty: bool
    """Whether the set is empty."""
    is_full: bool
    """Whether the set contains every row of the file."""
    is_scattered: bool
    """Whether the set has many runs that are close together."""
    _hash: int | None = field(default=None, init=False)

    # -- constructors ------------------------------------------------------------------------

    @classmethod
    def all(cls, total: int) -> RowSet:
        """Every row of the file."""
        return cls._of_run(check_total(total), 0, total)

    @classmethod
    def none(cls, total: int) -> RowSet:
        """No row of the file."""
        return cls._of_run(check_total(total), 0, 0)

    @classmethod
    def from_ranges(
        cls,
        total: int,
        ranges: Iterable[tuple[int, int]] | npt.NDArray[Any] | tuple[npt.NDArray[Any], npt.NDArray[Any]],
        stops: npt.ArrayLike | None = None,
    ) -> RowSet:
        """Make a set from half-open ranges in any order: (start, stop) pairs, or starts and stops."""
        total = check_total(total)
        if stops is None and isinstance(ranges, tuple) and len(ranges) == 2:
            first, second = ranges
            if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
                ranges, stops = first, second
        if stops is None:
            pairs = to_int64(ranges if isinstance(ranges, np.ndarray) else list(ranges), "ranges")
            if pairs.size and (pairs.ndim != 2 or pairs.shape[1] != 2):
                raise RowSetError(f"ranges have shape {pairs.shape}", hint="use (start, stop) pairs")
            ranges, stops = pairs.reshape(-1, 2).T
        return cls._of_runs(total, run.normalise(*windows(ranges, stops, total)))

    @classmethod
    def from_bitmap(cls, total: int, bitmap: Bitmap) -> RowSet:
        """Make a set from a 32-bit or 64-bit pyroaring bitmap."""
        total = check_total(total)
        if not roaring.is_bitmap(bitmap):
            raise RowSetError(f"{type(bitmap).__name__} is not a pyroaring bitmap")
        if bitmap and bitmap.max() >= total:
            raise row_outside(bitmap.max(), total)
        if roaring.fits(bitmap, total):
            return cls._of_bitmap(total, roaring.class_for(total)(bitmap))
        return cls._of_runs(total, roaring.to_runs(bitmap))

    @classmethod
    def from_positions(cls, total: int, positions: npt.ArrayLike) -> RowSet:
        """Make a set from positions in any order; duplicates are allowed."""
        total = check_total(total)
        rows = to_int64(positions, "positions").ravel()
        if (rows[1:] <= rows[:-1]).any():
            rows = np.unique(rows)
        if len(rows) and (rows[0] < 0 or rows[-1] >= total):
            raise row_outside(int(rows[0] if rows[0] < 0 else rows[-1]), total)
        run_count = int((rows[1:] - rows[:-1] != 1).sum()) + 1 if len(rows) else 0
        if _is_scattered(run_count, total):
            # Runs would be several times larger than the positions, so make the bitmap directly.
            return cls._with_bitmap(total, roaring.from_positions(rows, total), run_count)
        return cls._of_runs(total, run.from_positions(rows))

    @classmethod
    def from_mask(cls, mask: npt.ArrayLike) -> RowSet:
        """Make a set from a boolean mask over the file."""
        bits = np.asarray(mask)
        if bits.ndim != 1 or (bits.dtype != np.bool_ and bits.size):
            raise RowSetError(f"mask must be one boolean per row, not {bits.dtype} of shape {bits.shape}")
        bits = bits.astype(np.bool_, copy=False)
        runs = run.from_mask(bits)
        # A bitmap of scattered rows is faster to make from positions, unless the runs are long.
        short_runs = np.count_nonzero(bits) < _LONG_RUNS * len(runs[0])
        if short_runs and _is_scattered(len(runs[0]), len(bits)):
            return cls.from_positions(len(bits), np.flatnonzero(bits))
        return cls._of_runs(len(bits), runs)

    @classmethod
    def concat(cls, parts: Iterable[RowSet]) -> RowSet:
        """Concatenate the row sets of consecutive row groups."""
        sets = list(parts)
        total = check_total(sum(part.total for part in sets))
        ends = np.cumsum([part.total for part in sets], dtype=np.int64)
        # A loop over row groups; their runs stay in NumPy.
        shifted = [
            (starts + offset, stops + offset)
            for part, offset in zip(sets, [0, *ends.tolist()], strict=False)
            for starts, stops in (part.runs(),)
        ]
        starts, stops = (np.concatenate(side) for side in zip(run.empty(), *shifted, strict=True))
        return cls._of_runs(total, run.normalise(starts, stops))

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> RowSet:
        """Deserialize the output of :meth:`to_bytes`; raises if it is damaged."""
        total, content = roaring.decode(bytes(data))
        total = check_total(total)
        return cls._of_runs(total, content) if isinstance(content, tuple) else cls._of_bitmap(total, content)

    # -- content -----------------------------------------------------------------------------

    @property
    def first(self) -> int:
        """The lowest row."""
        return self.nth(0) if self._bitmap is not None or not self._size else int(self._runs[0][0])

    @property
    def last(self) -> int:
        """The highest row."""
        if self._bitmap is not None or not self._size:
            return self.nth(self._size - 1)
        return int(self._runs[1][-1]) - 1

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[int]:
        if self._bitmap is not None:
            yield from self._bitmap
            return
        for start, stop in self.ranges():
            yield from range(start, stop)

    def __contains__(self, row: object) -> bool:
        try:
            position = operator.index(row)  # type: ignore[arg-type]
        except TypeError:
            return False
        if not 0 <= position < self.total:
            return False
        if self._bitmap is not None:
            return position in self._bitmap
        return self.count(position, position + 1) == 1

    def runs(self) -> Runs:
        """Starts and stops of the runs: half-open, sorted, disjoint, non-adjacent and read-only."""
        if self._bitmap is None:
            return self._runs
        starts, stops = roaring.to_runs(self._bitmap)
        starts.flags.writeable = stops.flags.writeable = False
        return starts, stops

    def ranges(self) -> list[tuple[int, int]]:
        """The runs as (start, stop) pairs."""
        starts, stops = self.runs()
        return list(zip(starts.tolist(), stops.tolist(), strict=True))

    def positions(self) -> Int64Array:
        """All rows, ascending."""
        if self._bitmap is not None:
            return np.asarray(self._bitmap.to_array()).astype(np.int64)
        return run.positions(self._runs)

    def to_bitmap(self) -> Bitmap:
        """Convert to a new pyroaring.BitMap, or BitMap64 for files of more than 2**32 rows."""
        if self._bitmap is not None:
            return self._bitmap.copy()
        if self._run_count == 1:
            start, stop = self._runs
            return roaring.span(start.item(), stop.item(), self.total)
        return roaring.from_runs(self._runs, self.total)

    def nth(self, k: int) -> int:
        """Row number ``k`` of the set, from zero."""
        if not 0 <= k < self._size:
            raise RowSetError(f"row number {k} is outside a set of {self._size:,} rows")
        if self._bitmap is not None:
            return int(self._bitmap[k])
        at = int(self._before.searchsorted(k, "right")) - 1
        return int(self._runs[0][at]) + k - int(self._before[at])

    # -- counting ----------------------------------------------------------------------------

    def count(self, start: int, stop: int) -> int:
        """Number of rows in [start, stop)."""
        return int(self.counts([start], [stop])[0])

    def counts(self, starts: npt.ArrayLike, stops: npt.ArrayLike) -> Int64Array:
        """Number of rows in each window [start, stop)."""
        begin, end = windows(starts, stops, self.total)
        if self._bitmap is None:
            if self._run_count == 1:
                start, stop = self._runs
                inside: Int64Array = np.maximum(np.minimum(end, stop) - np.maximum(begin, start), 0)
                return inside
            ranks = run.ranks(self._runs, self._before, np.concatenate((begin, end)))
            return ranks[len(begin) :] - ranks[: len(begin)]
        points, index = np.unique(np.concatenate((begin, end)), return_inverse=True)
        if len(points) * _RUNS_PER_RANK < self._run_count:
            # One call per boundary: together they visit each container once, without unpacking.
            boundaries = points.tolist()
            between = [self._bitmap.range_cardinality(low, high) for low, high in pairwise(boundaries)]
            ranks = np.cumsum([0, *between], dtype=np.int64)
        else:
            runs = roaring.to_runs(self._bitmap)
            before = np.concatenate(([0], np.add.accumulate(runs[1] - runs[0])))
            ranks = run.ranks(runs, before, points)
        result: Int64Array = ranks[index[len(begin) :]] - ranks[index[: len(begin)]]
        return result

    # -- slicing and shifting ----------------------------------------------------------------

    def slice(self, start: int, stop: int) -> RowSet:
        """Rows in [start, stop) as a row set of a file of ``stop - start`` rows."""
        start, stop = operator.index(start), operator.index(stop)
        if not 0 <= start <= stop <= self.total:
            raise _not_a_range(start, stop, self.total)
        return self._cut(start, stop, offset=-start, total=stop - start)

    def shift(self, offset: int, *, total: int) -> RowSet:
        """Shift all rows by ``offset`` in a file of ``total`` rows; the inverse of slice."""
        if self.is_empty:
            return RowSet.none(total)
        ends = self.first + offset, self.last + offset
        if ends[0] < 0 or ends[1] >= check_total(total):
            raise row_outside(ends[ends[0] >= 0], total)
        return self._cut(self.first, self.last + 1, offset=offset, total=total)

    def take(self, limit: int) -> RowSet:
        """The first ``limit`` rows of the set."""
        if limit < 0:
            raise RowSetError(f"limit is negative: {limit}")
        if limit >= self._size:
            return self
        return self._cut(0, self.nth(limit - 1) + 1 if limit else 0, offset=0, total=self.total)

    def _cut(self, start: int, stop: int, *, offset: int, total: int) -> RowSet:
        """Rows in [start, stop), shifted by ``offset``, in a file of ``total`` rows."""
        if self._bitmap is not None:
            rows = self._bitmap & roaring.span(start, stop, self.total)
            if roaring.fits(rows, total):
                return RowSet._of_bitmap(total, rows.shift(offset))
            runs = roaring.to_runs(rows)
        elif self._run_count <= 1:
            begin, end = (self.first, self.last + 1) if self._size else (0, 0)
            return RowSet._of_run(total, max(begin, start) + offset, min(end, stop) + offset)
        else:
            _, *pair = run.clip_to_windows(self._runs, np.array([start]), np.array([stop]))
            runs = pair[0], pair[1]
        return RowSet._of_runs(total, (runs[0] + offset, runs[1] + offset))

    # -- algebra -----------------------------------------------------------------------------

    def __and__(self, other: RowSet) -> RowSet:
        if isinstance(other, RowSet) and other.total == self.total:
            if not self._size or other._size == self.total:
                return self
            if not other._size or self._size == self.total:
                return other
            if self._run_count == other._run_count == 1:
                start, stop = max(self.first, other.first), min(self.last, other.last) + 1
                return RowSet._of_run(self.total, start, stop)
        return self._combine(other, run.intersection, operator.and_)

    def __or__(self, other: RowSet) -> RowSet:
        if isinstance(other, RowSet) and other.total == self.total:
            if self._size == self.total or not other._size:
                return self
            if other._size == self.total or not self._size:
                return other
        return self._combine(other, run.union, operator.or_)

    def __sub__(self, other: RowSet) -> RowSet:
        if isinstance(other, RowSet) and other.total == self.total:
            if not self._size or not other._size:
                return self
            if other is self or other._size == self.total:
                return RowSet._of_run(self.total, 0, 0)
        return self._combine(other, run.difference, operator.sub)

    def __xor__(self, other: RowSet) -> RowSet:
        return self._combine(other, run.symmetric_difference, operator.xor)

    def __invert__(self) -> RowSet:
        if self._bitmap is not None:
            return RowSet._of_bitmap(self.total, roaring.span(0, self.total, self.total) - self._bitmap)
        return RowSet._of_runs(self.total, run.complement(self._runs, self.total))

    def isdisjoint(self, other: RowSet) -> bool:
        """Whether the sets have no common row."""
        return not (self & other)._size

    def issubset(self, other: RowSet) -> bool:
        """Whether every row of this set is in ``other``."""
        return (self & other)._size == self._size

    def _combine(
        self, other: RowSet, on_runs: Callable[[Runs, Runs], Runs], on_bitmaps: Callable[[Any, Any], Any]
    ) -> RowSet:
        if not isinstance(other, RowSet):
            return NotImplemented
        if self.total != other.total:
            raise RowSetError(
                f"row sets belong to different files: {self.total:,} rows and {other.total:,} rows"
            )
        if self._bitmap is None and other._bitmap is None:
            return RowSet._of_runs(self.total, on_runs(self._runs, other._runs))
        # If one side is a bitmap, the file has few containers, so the other is cheap to convert.
        left = self._bitmap if self._bitmap is not None else self.to_bitmap()
        right = other._bitmap if other._bitmap is not None else other.to_bitmap()
        return RowSet._of_bitmap(self.total, on_bitmaps(left, right))

    # -- identity ----------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RowSet):
            return NotImplemented
        if self is other:
            return True
        summary = (self.total, self._size, self._run_count)
        if summary != (other.total, other._size, other._run_count):
            return False
        if self._bitmap is not None and other._bitmap is not None:
            return bool(self._bitmap == other._bitmap)
        (starts, stops), (others, ends) = self.runs(), other.runs()
        return bool((starts == others).all() and (stops == ends).all())

    def __hash__(self) -> int:
        if self._hash is None:
            starts, stops = self.runs()
            digests = (xxhash.xxh3_64_intdigest(side.data) for side in (starts, stops))
            object.__setattr__(self, "_hash", hash((self.total, *digests)))
        assert self._hash is not None
        return self._hash

    def to_bytes(self) -> bytes:
        """Serialize with version and checksum, as varint runs or portable roaring, whichever is smaller."""
        if self._bitmap is None:
            return roaring.encode_runs(self._runs, self.total)
        return roaring.encode_bitmap(self._bitmap, self._run_count, self.total)

    def __reduce__(self) -> tuple[Callable[[bytes], RowSet], tuple[bytes]]:
        return RowSet.from_bytes, (self.to_bytes(),)

    def __repr__(self) -> str:
        text = f"{self._size:,} of {self.total:,} rows"
        if self._size:
            starts, stops = (side[:_REPR_RUNS].tolist() for side in self.runs())
            ranges = [f"{a}–{b - 1}" if b - a > 1 else f"{a}" for a, b in zip(starts, stops, strict=True)]
            ranges += ["..."] if self._run_count > _REPR_RUNS else []
            text += f" in {self._run_count:,} run{'s'[: self._run_count > 1]}: {', '.join(ranges)}"
        return f"RowSet({text})"

    # -- representation ----------------------------------------------------------------------

    @classmethod
    def _of_run(cls, total: int, start: int, stop: int) -> RowSet:
        return cls._of_runs(total, run.single(start, stop))

    @classmethod
    def _of_runs(cls, total: int, runs: Runs) -> RowSet:
        count = len(runs[0])
        if count >= SCATTERED_RUNS and _is_scattered(count, total):
            return cls._with_bitmap(total, roaring.from_runs(runs, total), count)
        starts, stops = runs
        before = np.zeros(count + 1, np.int64)
        np.add.accumulate(stops - starts, out=before[1:])
        starts.flags.writeable = stops.flags.writeable = False
        size = int(before[-1])
        return cls(total, size, count, runs, before, None, not size, size == total, False)

    @classmethod
    def _of_bitmap(cls, total: int, bitmap: Bitmap) -> RowSet:
        count = roaring.run_count(bitmap)
        if not _is_scattered(count, total):
            return cls._of_runs(total, roaring.to_runs(bitmap))
        bitmap.run_optimize()
        return cls._with_bitmap(total, bitmap, count)

    @classmethod
    def _with_bitmap(cls, total: int, bitmap: Bitmap, run_count: int) -> RowSet:
        bitmap.shrink_to_fit()
        size = len(bitmap)
        before = np.zeros(1, np.int64)
        return cls(total, size, run_count, run.empty(), before, bitmap, not size, size == total, True)


def _is_scattered(run_count: int, total: int) -> bool:
    containers = -(-total // roaring.CONTAINER_ROWS)
    return run_count >= max(SCATTERED_RUNS, SCATTERED_RUNS_PER_CONTAINER * containers)


# -- validation --------------------------------------------------------------------------------


def check_total(total: int) -> int:
    """Validate the number of rows of a file."""
    rows = operator.index(total)
    if not 0 <= rows <= MAX_TOTAL:
        raise RowSetError(f"row count {rows} is out of range")
    return rows


def to_int64(values: object, what: str) -> Int64Array:
    """Convert to int64; raise if values would be rounded or overflow."""
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise RowSetError(f"{what} must be integers of one shape") from error
    if not array.size:
        return np.empty(0, np.int64)
    if array.dtype.kind not in "iu" or (array.dtype == np.uint64 and array.max() > MAX_TOTAL):
        raise RowSetError(f"{what} must be integers below 2**63, not {array.dtype}")
    return array.astype(np.int64, copy=False)


def windows(starts: Any, stops: Any, total: int) -> tuple[Int64Array, Int64Array]:
    """Validate half-open ranges in a file of ``total`` rows; they can be empty."""
    # Most arrays need no conversion; this saves a call.
    exact = isinstance(starts, np.ndarray) and starts.dtype == np.int64
    begin = starts if exact else to_int64(starts, "starts")
    exact = isinstance(stops, np.ndarray) and stops.dtype == np.int64
    end = stops if exact else to_int64(stops, "stops")
    if begin.shape != end.shape or begin.ndim != 1:
        raise RowSetError(f"starts have shape {begin.shape}, stops have shape {end.shape}")
    wrong = (begin < 0) | (begin > end) | (end > total)
    if wrong.any():
        raise _not_a_range(int(begin[wrong][0]), int(end[wrong][0]), total)
    return begin, end


def row_outside(row: int, total: int) -> RowSetError:
    """Error for a row outside the file."""
    return RowSetError(f"row {row} is outside a file of {total:,} rows")


def _not_a_range(start: int, stop: int, total: int) -> RowSetError:
    return RowSetError(f"rows {start} to {stop} are not a range of a file of {total:,} rows")


Selector: TypeAlias = tuple[Literal["skip", "select"], int]


def to_selection(
    rows: RowSet, row_groups: Sequence[int], group_starts: Int64Array, group_rows: Int64Array
) -> list[Selector]:
    """Convert to selectors for the selected row groups, in the given order.

    >>> rows = RowSet.from_ranges(300, [(0, 10), (250, 300)])
    >>> to_selection(rows, [0, 2], np.array([0, 100, 200]), np.array([100, 100, 100]))
    [('select', 10), ('skip', 140), ('select', 50)]
    """
    starts, lengths = _selected_groups(row_groups, group_starts, group_rows, rows.total)
    ends = np.cumsum(lengths)
    group, piece_starts, piece_stops = run.clip_to_windows(rows.runs(), starts, starts + lengths)
    move = (ends - lengths - starts)[group]
    edges = run.edges(run.normalise(piece_starts + move, piece_stops + move))
    counts = np.diff(edges, prepend=0, append=ends[-1:])
    kinds: tuple[Literal["skip", "select"], ...] = ("skip", "select")
    return [(kind, count) for kind, count in zip(cycle(kinds), counts.tolist(), strict=False) if count]


def from_selection(
    selection: Sequence[Selector],
    row_groups: Sequence[int],
    group_starts: Int64Array,
    group_rows: Int64Array,
    total: int,
) -> RowSet:
    """Convert selectors for the selected row groups to a row set; rows after the last selector are skipped.

    >>> selection = [("select", 10), ("skip", 140), ("select", 50)]
    >>> from_selection(selection, [0, 2], np.array([0, 100, 200]), np.array([100, 100, 100]), 300)
    RowSet(60 of 300 rows in 2 runs: 0–9, 250–299)
    """
    starts, lengths = _selected_groups(row_groups, group_starts, group_rows, total)
    selected_rows = int(lengths.sum())
    selecting, counts = _parse(selection, selected_rows)
    stops = np.cumsum(counts)
    selected = run.normalise((stops - counts)[selecting], stops[selecting])
    group_stops = np.cumsum(lengths)
    group, piece_starts, piece_stops = run.clip_to_windows(selected, group_stops - lengths, group_stops)
    move = (starts - (group_stops - lengths))[group]
    return RowSet.from_ranges(total, piece_starts + move, piece_stops + move)


def _selected_groups(
    row_groups: Sequence[int], group_starts: Int64Array, group_rows: Int64Array, total: int
) -> tuple[Int64Array, Int64Array]:
    """First row and row count of each selected group, validated against the file."""
    starts, lengths = to_int64(group_starts, "row group starts"), to_int64(group_rows, "row counts")
    if starts.shape != lengths.shape:
        raise RowSetError(f"{len(starts)} row group starts but {len(lengths)} row counts")
    groups = to_int64(row_groups, "row groups")
    invalid = groups[(groups < 0) | (groups >= len(starts))]
    if len(invalid):
        raise RowSetError(f"no row group {invalid[0]}: the file has {len(starts)}")
    # A duplicate group's rows would be twice in the selection but once in the row set.
    if len(np.unique(groups)) != len(groups):
        raise RowSetError("row group is listed twice", hint="list each row group once")
    starts, lengths = starts[groups], lengths[groups]
    wrong = np.flatnonzero((starts < 0) | (lengths < 0) | (starts > total - lengths))
    if len(wrong):
        at = int(wrong[0])
        raise RowSetError(
            f"{lengths[at]} rows from row {starts[at]} don't fit a file of {total} rows",
            unit=f"row group {groups[at]}",
        )
    return starts, lengths


def _parse(selection: Sequence[Selector], selected_rows: int) -> tuple[run.BoolArray, Int64Array]:
    """Mask of selectors that select, and their counts, validated against the selected groups."""
    kinds = [kind for kind, _ in selection]
    if unknown := set(kinds) - {"skip", "select"}:
        raise RowSetError(f"unknown selector {min(map(repr, unknown))}", hint='use "skip" or "select"')
    counts = [count for _, count in selection]
    # Summed as Python integers, which can't overflow.
    if min(counts, default=0) < 0:
        raise RowSetError(f"selector has a negative count: {min(counts)}")
    if sum(counts) > selected_rows:
        raise RowSetError(f"selection has {sum(counts)} rows, the row groups have {selected_rows}")
    return np.array([kind == "select" for kind in kinds], np.bool_), to_int64(counts, "selector counts")
