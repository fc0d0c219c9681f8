"""Clustering of a column: how many units an equality predicate has to read.

A look-up reads every unit whose bounds enclose the value. The fewer units overlap, the more an equality
skips; the order of the units does not matter.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.evidence import Array, ColumnFacts, unbounded

_CELLS = 12
_TRIES = 16
_PREFIX_BYTES = 6
_CLUSTERED, _RANDOM = 0.2, 0.7


class Layout(enum.StrEnum):
    """How a column's values are distributed over its units.

    With ``spread`` = (depth - 1) / (units - 1), 0 where no units overlap and 1 where all of them do:
    """

    CONSTANT = "constant"
    """every unit has the same single value"""
    SORTED = "sorted"
    """in file order, no unit begins before the previous one ends (or the same in reverse)"""
    CLUSTERED = "clustered"
    """spread at most 0.2"""
    OVERLAPPING = "overlapping"
    """spread below 0.7"""
    RANDOM = "random"
    """spread 0.7 and more: bounds hardly distinguish units"""
    SINGLE = "single"
    """there is only one unit"""
    UNKNOWN = "unknown"
    """no unit has bounds: a look-up reads every unit that may have a value"""


@dataclass(frozen=True, slots=True)
class Clustering:
    """Expected cost of an equality predicate on a column."""

    units: int
    depth: float
    """Units that an equality reads on average; see :func:`clustering`."""
    layout: Layout
    profile: tuple[float, ...]
    """Share of the units that enclose each twelfth of the column's range; empty if the range is a point."""

    @property
    def kept(self) -> float:
        """Expected share of units that an equality keeps."""
        return self.depth / self.units if self.units else 0.0


def clustering(facts: ColumnFacts, rows: Array | None = None) -> Clustering:
    """Expected cost of ``column = value``, from bounds alone.

    The value is that of a random row: a unit is drawn with the probability of its row count (uniformly
    without ``rows``), then 16 evenly spaced values between its bounds. ``depth`` is the mean number of units
    whose closed bounds enclose such a value. A unit without values (all NULL) is never read; one without two
    finite bounds always is, and its values can be anywhere.

    Strings are interpolated by the bytes that follow their common prefix, or by rank if those bytes are not
    distinct. The estimate is too low if values crowd at one end of a long tail.
    """
    units = len(facts)
    has_bounds = bounded(facts) & facts.may_value
    always = int((facts.may_value & ~has_bounds).sum())
    if not has_bounds.any():
        return Clustering(units, float(always), Layout.SINGLE if units == 1 else Layout.UNKNOWN, ())
    low, high = _positions(facts.take(np.flatnonzero(has_bounds)))
    weights = np.ones(units) if rows is None else np.maximum(rows, 1).astype(np.float64)
    tried = (np.arange(_TRIES) + 0.5) / _TRIES
    enclosing = _enclosing(low, high, _between(low[:, np.newaxis], high[:, np.newaxis], tried)).mean(axis=1)
    unknown = weights[facts.may_value & ~has_bounds].sum()
    touched = (enclosing * weights[has_bounds]).sum() + len(low) * unknown
    depth = always + float(touched / weights[facts.may_value].sum())
    return Clustering(
        units, depth, _layout(low, high, units, always, depth), _profile(low, high, always, units)
    )


def positions(facts: ColumnFacts) -> tuple[Array, Array]:
    """Where each unit's bounds are in the range of all units, from 0 to 1; NaN without two finite bounds.

    Strings are placed as in :func:`clustering`.
    """
    units = np.flatnonzero(bounded(facts) & facts.may_value)
    places = np.full((2, len(facts)), np.nan)
    if len(units):
        ends = [one.astype(np.float64) for one in _positions(facts.take(units))]
        least, most = ends[0].min(), ends[1].max()
        places[:, units] = [(one - least) / max(most - least, 1e-300) for one in ends]
    return places[0], places[1]


def bounded(facts: ColumnFacts) -> Array:
    """Mask of the units with both bounds, which are finite."""
    if isinstance(facts.lower, pa.Array):
        return recorded(facts)
    finite: Array = np.isfinite(facts.lower) & np.isfinite(facts.upper)
    return finite & recorded(facts)


def recorded(facts: ColumnFacts) -> Array:
    """Mask of the units with both bounds; an inexact bound at the type's limit does not count."""
    if isinstance(facts.lower, pa.Array):
        both = pc.and_(facts.lower.is_valid(), facts.upper.is_valid())
        return np.asarray(both.to_numpy(zero_copy_only=False))
    floor, ceiling = unbounded(facts.type, len(facts))
    low = (facts.lower != floor) | facts.lower_exact
    high = (facts.upper != ceiling) | facts.upper_exact
    both_known: Array = low & high
    return both_known


def _positions(facts: ColumnFacts) -> tuple[Array, Array]:
    """Bounds as numbers that can be interpolated."""
    if isinstance(facts.lower, pa.Array):
        return _byte_positions(facts.lower, facts.upper)
    return facts.lower, facts.upper


def _byte_positions(lower: pa.Array, upper: pa.Array) -> tuple[Array, Array]:
    keys = [*lower.to_pylist(), *upper.to_pylist()]
    least, most = min(keys), max(keys)
    shared = next((i for i, (a, b) in enumerate(zip(least, most, strict=False)) if a != b), len(least))
    heads = [key[shared : shared + _PREFIX_BYTES].ljust(_PREFIX_BYTES, b"\0") for key in keys]
    if len(set(heads)) == len(set(keys)):
        numbers = np.array([int.from_bytes(head, "big") for head in heads], dtype=np.float64)
    else:
        ranks = pc.rank(pa.array(keys, pa.large_binary()), tiebreaker="dense")
        numbers = ranks.to_numpy().astype(np.float64)
    return numbers[: len(lower)], numbers[len(lower) :]


def _between(low: Array, high: Array, share: Array) -> Array:
    """Interpolate between ``low`` and ``high``."""
    if low.dtype.kind == "f":
        values: Array = low * (1 - share) + high * share
        return values
    # Unsigned arithmetic wraps to the true distance for any signs.
    width = high.astype(np.uint64) - low.astype(np.uint64)
    # The largest distance is not a float: stay one float below it.
    steps = np.minimum((width.astype(np.float64) + 1) * share, 2.0**64 - 2048).astype(np.uint64)
    return (low.astype(np.uint64) + np.minimum(steps, width)).astype(low.dtype)


def _enclosing(low: Array, high: Array, values: Array) -> Array:
    """Per value, the number of closed bounds that enclose it."""
    begun = np.searchsorted(np.sort(low), values, side="right")
    ended = np.searchsorted(np.sort(high), values, side="left")
    enclosing: Array = begun - ended
    return enclosing


def _profile(low: Array, high: Array, always: int, units: int) -> tuple[float, ...]:
    least, most = low.min(keepdims=True), high.max(keepdims=True)
    if least == most:
        return ()
    tried = (np.arange(_CELLS * _TRIES) + 0.5) / (_CELLS * _TRIES)
    depths = _enclosing(low, high, _between(least, most, tried)) + always
    return tuple((depths.reshape(_CELLS, _TRIES).mean(axis=1) / units).tolist())


def _layout(low: Array, high: Array, units: int, always: int, depth: float) -> Layout:
    if units == 1:
        return Layout.SINGLE
    if not always and low.min() == high.max():
        return Layout.CONSTANT
    if not always and (_follows(low, high) or _follows(low[::-1], high[::-1])):
        return Layout.SORTED
    spread = (depth - 1) / (units - 1)
    if spread <= _CLUSTERED:
        return Layout.CLUSTERED
    return Layout.OVERLAPPING if spread < _RANDOM else Layout.RANDOM


def _follows(low: Array, high: Array) -> bool:
    """Whether no unit begins before the previous one ends."""
    return bool(np.all(high[:-1] <= low[1:]))
