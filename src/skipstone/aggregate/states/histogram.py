"""Histograms: counts per bin, whose edges are brought into the keys of a column without loss."""

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
from skipstone.aggregate.states.state import Facet, Measure, Path, RowSelection, present
from skipstone.core.domain.keys import KeySpace, Kind, from_key, is_ordered, key_space, storage_type, wide_key
from skipstone.core.evidence import Array, Bounds
from skipstone.core.ir.transforms import DAY, UNITS
from skipstone.errors import SkipstoneError, TypeMismatchError, UsageError
from skipstone.parquet.measure import NumberKeys, byte_keys, read_column

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Histogram(Measure["NDArray[np.int64]"]):
    """How many values lie in each bin between edges: an array of bins by groups.

    A bin includes its lower edge, the last one its upper edge, too. NULL, NaN and the rest are in none.
    """

    path: Path
    type: pa.DataType
    edges: tuple[Any, ...]

    @classmethod
    def of(cls, path: Path, type: pa.DataType, edges: Sequence[Any]) -> Histogram:
        """The histogram between edges, which are checked."""
        check_edges(type, edges, ".".join(path))
        return cls(path, type, tuple(edges))

    @property
    def facets(self) -> Facet:
        """What of a block may tell its bin."""
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
        places, starts = present(bins(self.type, self.edges).of(keys), column.valid, rows.starts)
        # Below and above all bins are two more, which are counted and left out.
        total, groups = len(self.edges) + 1, len(starts)
        cells = (places + 1) * groups
        if groups > 1:
            cells += np.repeat(np.arange(groups), np.diff(starts, append=len(places)))
        return np.bincount(cells, minlength=total * groups).reshape(total, groups)[1:-1]

    def join(self, states: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
        return np.concatenate(states, axis=1)

    def fold(self, state: NDArray[np.int64], order: Array, starts: Array) -> NDArray[np.int64]:
        return np.add.reduceat(state[:, order], starts, axis=1)

    def cached(self, blocks: Blocks) -> tuple[NDArray[np.int64], Array] | None:
        """The counts of blocks that lie in one bin, or outside of all."""
        if storage_type(blocks.type) != storage_type(self.type):
            return None
        found = bins(self.type, self.edges)
        lower, upper = found.of(blocks.lower), found.of(blocks.upper)
        one = blocks.knows(self.facets) & (~blocks.has | (lower == upper))
        inside = np.flatnonzero(one & blocks.has & (lower >= 0) & (lower < found.count))
        state = np.zeros((found.count, len(blocks)), dtype=np.int64)
        state[lower[inside], inside] = (blocks.count - blocks.nans)[inside]
        return state, one | (blocks.knows(Facet.COUNT) & (blocks.count == 0))


def histograms(measure: Histogram, state: NDArray[np.int64]) -> pa.Array:
    """The bins of each group: lists of their lower and upper edges and counts."""
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
"""A number without rounding; a float only if it is infinite."""
# The first second of the year 10000.
_END_OF_TIME = 253_402_300_800
_HINT = "give at least two rising edges, or a number of bins"
_EVEN_HINT = "give a list of edges"


def check_binned(type: pa.DataType, column: str) -> None:
    """Raise an error for a type that has no bins."""
    storage = storage_type(type)
    if not is_number(type) and not (pa.types.is_temporal(storage) and is_ordered(storage)):
        raise TypeMismatchError(
            f"histogram() needs a numeric or temporal column, got {type}",
            column=column,
            hint="name a column of numbers or times",
        )


def check_edges(type: pa.DataType, edges: Sequence[Any], column: str) -> None:
    """Raise an error for a type that has no bins, or edges that make none."""
    check_binned(type, column)
    if len(edges) < 2:
        raise UsageError(f"{len(edges)} edges make no bin", column=column, hint=_HINT)
    try:
        exact = [_exact(type, edge) for edge in edges]
    except SkipstoneError as error:
        raise UsageError(
            f"an edge is not a value of the column: {error}", column=column, hint=_HINT
        ) from error
    for number, (low, high) in enumerate(pairwise(exact)):
        if not low < high:
            raise UsageError(
                f"edge {edges[number + 1]} is not above {edges[number]}", column=column, hint=_HINT
            )


def _exact(type: pa.DataType, edge: Any) -> Exact:
    """An edge as a number in the column's keys, which need not be a key itself."""
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
            raise TypeMismatchError("NaN is in no bin")
        return float(edge)
    return Fraction(edge) * Fraction(10) ** scale_of(type)


def _is_real(value: Any) -> bool:
    return isinstance(value, numbers.Real | decimal.Decimal) and not isinstance(value, bool)


def _time(type: pa.DataType, edge: Any) -> Fraction:
    scalar = _moment(edge)
    if not scalar.is_valid or not pa.types.is_temporal(type) or _family(scalar.type) != _family(type):
        raise TypeMismatchError(f"{edge!r} can't be compared with values of type {type}")
    return Fraction(scalar.value) / _per_second(scalar.type) * _per_second(type)


def _moment(edge: Any) -> pa.Scalar:
    if isinstance(edge, pa.Scalar):
        return edge
    try:
        # Times of pandas have nanoseconds, which only their NumPy form gives to Arrow.
        return pa.array(np.array([getattr(edge, "asm8", edge)]))[0]
    except (pa.ArrowException, TypeError) as error:
        raise TypeMismatchError(f"{edge!r} is not a time: {error}") from error


def _family(type: pa.DataType) -> str:
    if pa.types.is_date(type) or pa.types.is_timestamp(type):
        return "moment"
    return "time" if pa.types.is_time(type) else str(type).partition("[")[0]


def _per_second(type: pa.DataType) -> Fraction:
    """How many keys of a type of times make a second."""
    if pa.types.is_date32(type):
        return Fraction(1, DAY)
    return Fraction(UNITS["ms" if pa.types.is_date64(type) else type.unit])


# -- bins of keys ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Bins:
    """Where bins begin, and behind them where the last one ends, in keys.

    ``passed`` of these places are below all keys; those that are above all keys are left out of ``firsts``.
    """

    count: int
    passed: int
    firsts: Array | list[bytes]

    def of(self, keys: Bounds) -> Array:
        """The bin of each key: -1 for one that is below all bins or NaN, ``count`` for one above them."""
        if isinstance(keys, np.ndarray):
            places = np.searchsorted(self.firsts, keys, side="right") + (self.passed - 1)
            return np.where(np.isnan(keys), -1, places) if keys.dtype.kind == "f" else places
        found = np.full(len(keys), self.passed - 1)
        for first in self.firsts:
            above = pc.greater_equal(keys, pa.scalar(first, keys.type))
            found += above.fill_null(False).to_numpy(zero_copy_only=False)
        return found


@functools.lru_cache(maxsize=64)
def bins(type: pa.DataType, edges: tuple[Any, ...]) -> Bins:
    """The bins between edges that :func:`check_edges` lets pass."""
    space = key_space(type)
    exact = [_exact(type, edge) for edge in edges]
    if space.kind is Kind.FLOAT:
        floats = [_not_below(edge) for edge in exact[:-1]]
        # Not even infinity is above an infinite edge.
        end = [] if exact[-1] == math.inf else [_above(exact[-1])]
        return Bins(len(edges) - 1, 0, np.array([*floats, *end]))
    least, greatest = _limits(type, space)
    firsts = [math.ceil(min(max(edge, least), greatest + 1)) for edge in exact[:-1]]
    firsts.append(math.floor(min(max(exact[-1], least - 1), greatest)) + 1)
    passed = sum(first <= least for first in firsts)
    inner = [first for first in firsts if least < first <= greatest]
    if space.kind is Kind.BYTES:
        return Bins(len(edges) - 1, passed, [wide_key(first, space.width) for first in inner])
    return Bins(len(edges) - 1, passed, np.array(inner, dtype=space.dtype))


def _limits(type: pa.DataType, space: KeySpace) -> tuple[int, int]:
    if space.kind is Kind.BYTES:
        most = 10 ** storage_type(type).precision - 1
        return -most, most
    return space.low, space.high


def _not_below(edge: Exact) -> float:
    """The least double that is not below a number."""
    near = _near(edge)
    return near if near >= edge else math.nextafter(near, math.inf)


def _above(edge: Exact) -> float:
    """The least double that is above a number."""
    near = _near(edge)
    return near if near > edge else math.nextafter(near, math.inf)


def _near(edge: Exact) -> float:
    try:
        return float(edge)
    except OverflowError:
        return math.inf if edge > 0 else -math.inf


# -- as a user sees them -----------------------------------------------------------------------


def edge_array(type: pa.DataType, edges: Sequence[Any]) -> pa.Array:
    """Edges as they are shown: times in the column's type if it has them, numbers as doubles."""
    storage = storage_type(type)
    if pa.types.is_temporal(storage):
        keys = [_time(storage, edge) for edge in edges]
        whole = all(key.denominator == 1 for key in keys)
        return pa.array([from_key(storage, int(key)) for key in keys], storage) if whole else pa.array(edges)
    return pa.array([_near(_exact(pa.float64(), edge)) for edge in edges], pa.float64())


def even_edges(lower: Any, upper: Any, bins: int) -> tuple[Any, ...]:
    """Edges of even bins from the least to the greatest value; fewer if they run together.

    Values are Python's or Arrow's; edges of times are Arrow's, in the unit of the lower one.

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
        raise UsageError(f"no even bins from {lower} to {upper}", hint=_EVEN_HINT) from error
    if low == high:
        upper = _not_below(low + 1)
        high = Fraction(upper)
    inner = [float(low + (high - low) * number / bins) for number in range(1, bins)]
    return (lower, *(edge for edge in dict.fromkeys(inner) if low < edge < high), upper)


def _even_times(lower: Any, upper: Any, bins: int) -> tuple[pa.Scalar, ...]:
    try:
        type = _moment(lower).type
        low, high = (math.floor(_time(type, end)) for end in (lower, upper))
    except TypeMismatchError as error:
        raise UsageError(f"no even bins from {lower} to {upper}", hint=_EVEN_HINT) from error
    if low == high:
        # A second more, or a day; less where that would be past all times that Python has.
        step = max(1, math.floor(_per_second(type)))
        low, high = (low, high + step) if high + step <= _last(type) else (low - step, high)
    keys = dict.fromkeys(low + (high - low) * number // bins for number in range(bins + 1))
    return tuple(from_key(type, key) for key in keys)


def _last(type: pa.DataType) -> int:
    seconds = {"moment": _END_OF_TIME, "time": DAY}.get(_family(type), 2**63)
    return min(math.ceil(seconds * _per_second(type)) - 1, 2**63 - 1)
