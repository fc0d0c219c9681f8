"""Histograms: counts per bin, with edges converted to keys of the column without loss."""

from __future__ import annotations

import decimal
import functools
import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.aggregate.states.blocks import Blocks, is_number, scale_of
from skipstone.aggregate.states.state import Facet, Measure, Path, RowSelection, valid_values
from skipstone.core.domain.keys import KeySpace, Kind, from_key, is_ordered, key_space, storage_type, wide_key
from skipstone.core.evidence import Array, Bounds
from skipstone.core.ir.transforms import DAY, UNITS
from skipstone.core.plain import type_name
from skipstone.errors import SkipstoneError, TypeMismatchError, UsageError
from skipstone.parquet.measure import NumberKeys, byte_keys, read_column

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Histogram(Measure["NDArray[np.int64]"]):
    """Number of values per bin and group.

    A bin includes its lower edge; the last bin also includes its upper edge. NULL, NaN and values outside the
    edges are not counted.
    """

    path: Path
    type: pa.DataType
    edges: tuple[Any, ...]

    @classmethod
    def of(cls, path: Path, type: pa.DataType, edges: Sequence[Any]) -> Histogram:
        """Make a histogram with validated edges."""
        check_edges(type, edges, ".".join(path))
        return cls(path, type, tuple(edges))

    @property
    def facets(self) -> Facet:
        return Facet.COUNT | Facet.MIN_MAX

    @property
    def columns(self) -> tuple[Path, ...]:
        return (self.path,)

    def update(self, rows: RowSelection) -> NDArray[np.int64]:
        column = read_column(self.type, rows.column(self.path))
        if key_space(self.type).kind is Kind.BYTES:
            keys: Bounds = byte_keys(column.chunks).combine_chunks()
        else:
            keys = NumberKeys.of(column).keys.astype(key_space(self.type).dtype, copy=False)
        positions, starts = valid_values(bins(self.type, self.edges).bin_of(keys), column.valid, rows.starts)
        # Two extra bins, below and above the others, are counted and dropped.
        total, groups = len(self.edges) + 1, len(starts)
        cells = (positions + 1) * groups
        if groups > 1:
            cells += np.repeat(np.arange(groups), np.diff(starts, append=len(positions)))
        return np.bincount(cells, minlength=total * groups).reshape(total, groups)[1:-1]

    def join(self, states: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
        return np.concatenate(states, axis=1)

    def fold(self, state: NDArray[np.int64], order: Array, starts: Array) -> NDArray[np.int64]:
        return np.add.reduceat(state[:, order], starts, axis=1)

    def from_blocks(self, blocks: Blocks) -> tuple[NDArray[np.int64], Array] | None:
        """Counts of blocks that are entirely in one bin, or outside all bins."""
        if storage_type(blocks.type) != storage_type(self.type):
            return None
        ranges = bins(self.type, self.edges)
        lower, upper = ranges.bin_of(blocks.lower), ranges.bin_of(blocks.upper)
        single = blocks.has_facets(self.facets) & (~blocks.has | (lower == upper))
        inside = np.flatnonzero(single & blocks.has & (lower >= 0) & (lower < ranges.count))
        state = np.zeros((ranges.count, len(blocks)), dtype=np.int64)
        state[lower[inside], inside] = (blocks.count - blocks.nans)[inside]
        return state, single | (blocks.has_facets(Facet.COUNT) & (blocks.count == 0))


def histograms(measure: Histogram, state: NDArray[np.int64]) -> pa.Array:
    """Result lists of bins with lower and upper edges and counts."""
    total, groups = state.shape
    edges = edge_array(measure.type, measure.edges)
    each = np.tile(np.arange(total), groups)
    cells = pa.StructArray.from_arrays(
        [edges.take(pa.array(each)), edges.take(pa.array(each + 1)), pa.array(state.T.ravel())],
        ["low", "high", "count"],
    )
    return pa.ListArray.from_arrays(pa.array(np.arange(groups + 1) * total, pa.int32()), cells)


# -- edges ---------------------------------------------------------------------------------------

Exact: TypeAlias = Fraction | float
"""An exact number; a float only if it is infinite."""
# First second of the year 10000.
_END_OF_TIME = 253_402_300_800
_HINT = "use at least two ascending edges, or a number of bins"
_EVEN_HINT = "use a list of edges"


def check_binned(type: pa.DataType, column: str) -> None:
    """Raise if a type has no histograms."""
    storage = storage_type(type)
    if not is_number(type) and not (pa.types.is_temporal(storage) and is_ordered(storage)):
        raise TypeMismatchError(
            f"histogram() needs a numeric or temporal column, got {type_name(type)}",
            column=column,
            hint="use a column of numbers or times",
        )


def check_edges(type: pa.DataType, edges: Sequence[Any], column: str) -> None:
    """Raise if a type has no histograms or the edges are not valid."""
    check_binned(type, column)
    if len(edges) < 2:
        raise UsageError(f"histogram has {len(edges)} edges", column=column, hint=_HINT)
    try:
        exact = [_exact(type, edge) for edge in edges]
    except SkipstoneError as error:
        raise UsageError(f"edge doesn't match the column type: {error}", column=column, hint=_HINT) from error
    for number, (low, high) in enumerate(pairwise(exact)):
        if not low < high:
            raise UsageError(
                f"edge {edges[number + 1]} is not above {edges[number]}", column=column, hint=_HINT
            )


def _exact(type: pa.DataType, edge: Any) -> Exact:
    """Convert an edge to the scale of the column's keys; it need not be a valid key."""
    if pa.types.is_temporal(storage_type(type)):
        return _time(storage_type(type), edge)
    if isinstance(edge, pa.Scalar):
        edge = edge.as_py()
    if not _is_real(edge):
        raise TypeMismatchError(f"{edge!r} is not a number")
    if isinstance(edge, numbers.Integral):
        edge = int(edge)
    elif not isinstance(edge, numbers.Rational | decimal.Decimal):
        edge = float(edge)
    if isinstance(edge, float | decimal.Decimal) and not math.isfinite(edge):
        if math.isnan(edge):
            raise TypeMismatchError("NaN can't be an edge")
        return float(edge)
    return Fraction(edge) * Fraction(10) ** scale_of(type)


def _is_real(value: Any) -> bool:
    return isinstance(value, numbers.Real | decimal.Decimal) and not isinstance(value, bool)


def _time(type: pa.DataType, edge: Any) -> Fraction:
    scalar = _to_scalar(edge)
    if not scalar.is_valid or not pa.types.is_temporal(type) or _family(scalar.type) != _family(type):
        raise TypeMismatchError(f"{edge!r} can't be compared with values of type {type_name(type)}")
    return Fraction(scalar.value) / _per_second(scalar.type) * _per_second(type)


def _to_scalar(edge: Any) -> pa.Scalar:
    if isinstance(edge, pa.Scalar):
        return edge
    try:
        # Arrow gets the nanoseconds of pandas timestamps only through NumPy.
        return pa.array(np.array([getattr(edge, "asm8", edge)]))[0]
    except (pa.ArrowException, TypeError) as error:
        raise TypeMismatchError(f"{edge!r} is not a time: {error}") from error


def _family(type: pa.DataType) -> str:
    if pa.types.is_date(type) or pa.types.is_timestamp(type):
        return "moment"
    return "time" if pa.types.is_time(type) else str(type).partition("[")[0]


def _per_second(type: pa.DataType) -> Fraction:
    """Keys per second of a temporal type."""
    if pa.types.is_date32(type):
        return Fraction(1, DAY)
    return Fraction(UNITS["ms" if pa.types.is_date64(type) else type.unit])


# -- bins of keys ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Bins:
    """First key of each bin, followed by the end of the last bin.

    ``passed`` of these edges are below all keys of the type; edges above all keys are not in ``firsts``.
    """

    count: int
    passed: int
    firsts: Array | list[bytes]

    def bin_of(self, keys: Bounds) -> Array:
        """Bin of each key: -1 below all bins or for NaN, ``count`` above them."""
        if isinstance(keys, np.ndarray):
            positions = np.searchsorted(self.firsts, keys, side="right") + (self.passed - 1)
            return np.where(np.isnan(keys), -1, positions) if keys.dtype.kind == "f" else positions
        numbers = np.full(len(keys), self.passed - 1)
        for first in self.firsts:
            above = pc.greater_equal(keys, pa.scalar(first, keys.type))
            numbers += above.fill_null(False).to_numpy(zero_copy_only=False)
        return numbers


@functools.lru_cache(maxsize=64)
def bins(type: pa.DataType, edges: tuple[Any, ...]) -> Bins:
    """Bins of valid edges."""
    space = key_space(type)
    exact = [_exact(type, edge) for edge in edges]
    if space.kind is Kind.FLOAT:
        floats = [_not_below(edge) for edge in exact[:-1]]
        # Nothing is above an infinite edge.
        end = [] if exact[-1] == math.inf else [_above(exact[-1])]
        return Bins(len(edges) - 1, 0, np.array([*floats, *end]))
    low, high = _limits(type, space)
    firsts = [math.ceil(min(max(edge, low), high + 1)) for edge in exact[:-1]]
    firsts.append(math.floor(min(max(exact[-1], low - 1), high)) + 1)
    passed = sum(first <= low for first in firsts)
    inner = [first for first in firsts if low < first <= high]
    if space.kind is Kind.BYTES:
        return Bins(len(edges) - 1, passed, [wide_key(first, space.width) for first in inner])
    return Bins(len(edges) - 1, passed, np.array(inner, dtype=space.dtype))


def _limits(type: pa.DataType, space: KeySpace) -> tuple[int, int]:
    if space.kind is Kind.BYTES:
        limit = 10 ** storage_type(type).precision - 1
        return -limit, limit
    return space.low, space.high


def _not_below(edge: Exact) -> float:
    """Smallest double that is not below a number."""
    near = _near(edge)
    return near if near >= edge else math.nextafter(near, math.inf)


def _above(edge: Exact) -> float:
    """Smallest double above a number."""
    near = _near(edge)
    return near if near > edge else math.nextafter(near, math.inf)


def _near(edge: Exact) -> float:
    try:
        return float(edge)
    except OverflowError:
        return math.inf if edge > 0 else -math.inf


# -- edges for users ---------------------------------------------------------------------------


def edge_array(type: pa.DataType, edges: Sequence[Any]) -> pa.Array:
    """Edges of the result: times in the column's type if exact, numbers as doubles."""
    storage = storage_type(type)
    if pa.types.is_temporal(storage):
        keys = [_time(storage, edge) for edge in edges]
        exact = all(key.denominator == 1 for key in keys)
        return pa.array([from_key(storage, int(key)) for key in keys], storage) if exact else pa.array(edges)
    return pa.array([_near(_exact(pa.float64(), edge)) for edge in edges], pa.float64())


def even_edges(lower: Any, upper: Any, bins: int) -> tuple[Any, ...]:
    """Edges of equal-width bins between two values; duplicates are dropped.

    Values are Python or Arrow values; edges of times are Arrow scalars in the unit of ``lower``.

    >>> even_edges(0, 10, 4)
    (0, 2.5, 5.0, 7.5, 10)
    """
    if isinstance(lower, pa.Scalar) and not pa.types.is_temporal(lower.type):
        lower, upper = lower.as_py(), upper.as_py()
    if not _is_real(lower):
        return _even_times(lower, upper, bins)
    try:
        low, high = Fraction(lower), Fraction(upper)
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"can't make equal bins from {lower} to {upper}", hint=_EVEN_HINT) from error
    if low == high:
        upper = _not_below(low + 1)
        high = Fraction(upper)
    inner = [float(low + (high - low) * number / bins) for number in range(1, bins)]
    return (lower, *(edge for edge in dict.fromkeys(inner) if low < edge < high), upper)


def _even_times(lower: Any, upper: Any, bins: int) -> tuple[pa.Scalar, ...]:
    try:
        type = _to_scalar(lower).type
        low, high = (math.floor(_time(type, end)) for end in (lower, upper))
    except TypeMismatchError as error:
        raise UsageError(f"can't make equal bins from {lower} to {upper}", hint=_EVEN_HINT) from error
    if low == high:
        # Extend by a second or a day: upwards, or downwards at the end of Python's time range.
        step = max(1, math.floor(_per_second(type)))
        low, high = (low, high + step) if high + step <= _last(type) else (low - step, high)
    keys = dict.fromkeys(low + (high - low) * number // bins for number in range(bins + 1))
    return tuple(from_key(type, key) for key in keys)


def _last(type: pa.DataType) -> int:
    seconds = {"moment": _END_OF_TIME, "time": DAY}.get(_family(type), 2**63)
    return min(math.ceil(seconds * _per_second(type)) - 1, 2**63 - 1)
