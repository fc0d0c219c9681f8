"""How well a column is clustered: how many units an equality on it would have to touch.

A look-up of a value touches every unit whose bounds enclose it. The fewer units overlap where the column's
values are, the more an equality skips; the order of the units doesn't matter for that.
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
    """A word for how a column's values lie in its units.

    With ``spread`` = (depth - 1) / (units - 1), 0 where no units overlap and 1 where all of them do:
    """

    CONSTANT = "constant"
    """every unit holds the same one value"""
    SORTED = "sorted"
    """in file order each unit begins where the one before it ended, or later (or all of it reversed)"""
    CLUSTERED = "clustered"
    """spread at most 0.2"""
    OVERLAPPING = "overlapping"
    """spread below 0.7"""
    RANDOM = "random"
    """spread 0.7 and more: bounds hardly tell one unit from another"""
    SINGLE = "single"
    """one unit only, so there is nothing to tell apart"""
    UNKNOWN = "unknown"
    """no unit has bounds: every look-up touches every unit that may hold a value"""


@dataclass(frozen=True, slots=True)
class Clustering:
    """What an equality on a column would touch."""

    units: int
    depth: float
    """Units that an equality touches on average: see :func:`clustering`."""
    layout: Layout
    profile: tuple[float, ...]
    """Share of the units that enclose each twelfth of the column's range; empty if it has no width."""

    @property
    def kept(self) -> float:
        """The share of units that an equality is expected to keep."""
        return self.depth / self.units if self.units else 0.0


def clustering(facts: ColumnFacts, rows: Array | None = None) -> Clustering:
    """The expected cost of ``column = value``, from bounds alone.

    The value is that of a random row: a unit is drawn with the probability of its row count (evenly
    without ``rows``), then a value evenly between its bounds, of which 16 are tried. ``depth`` is the mean
    number of units whose closed bounds enclose that value. A unit that can't hold a value (all NULL) is
    never touched; one without two finite bounds always, and a value of it may be anywhere.

    Strings are placed by the bytes that follow the prefix they all share, or by their rank where those
    bytes don't tell them apart. Values that crowd at one end of a long tail make the figure too hopeful.
    """
    units = len(facts)
    known = bounded(facts) & facts.may_value
    always = int((facts.may_value & ~known).sum())
    if not known.any():
        return Clustering(units, float(always), Layout.SINGLE if units == 1 else Layout.UNKNOWN, ())
    low, high = _places(facts.take(np.flatnonzero(known)))
    weights = np.ones(units) if rows is None else np.maximum(rows, 1).astype(np.float64)
    tried = (np.arange(_TRIES) + 0.5) / _TRIES
    enclosing = _enclosing(low, high, _between(low[:, np.newaxis], high[:, np.newaxis], tried)).mean(axis=1)
    unknown = weights[facts.may_value & ~known].sum()
    touched = (enclosing * weights[known]).sum() + len(low) * unknown
    depth = always + float(touched / weights[facts.may_value].sum())
    return Clustering(
        units, depth, _layout(low, high, units, always, depth), _profile(low, high, always, units)
    )


def bounded(facts: ColumnFacts) -> Array:
    """Which units have both bounds: a bound at the type's limit that isn't a value says nothing."""
    if isinstance(facts.lower, pa.Array):
        both = pc.and_(facts.lower.is_valid(), facts.upper.is_valid())
        return np.asarray(both.to_numpy(zero_copy_only=False))
    floor, ceiling = unbounded(facts.type, len(facts))
    low = np.isfinite(facts.lower) & ((facts.lower != floor) | facts.lower_exact)
    high = np.isfinite(facts.upper) & ((facts.upper != ceiling) | facts.upper_exact)
    both_known: Array = low & high
    return both_known


def _places(facts: ColumnFacts) -> tuple[Array, Array]:
    """Bounds as numbers that can be interpolated."""
    if isinstance(facts.lower, pa.Array):
        return _byte_places(facts.lower, facts.upper)
    return facts.lower, facts.upper


def _byte_places(lower: pa.Array, upper: pa.Array) -> tuple[Array, Array]:
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
    """The values that lie at each share of the way from ``low`` to ``high``."""
    if low.dtype.kind == "f":
        values: Array = low * (1 - share) + high * share
        return values
    # Unsigned arithmetic wraps to the true distance, whatever the signs.
    width = high.astype(np.uint64) - low.astype(np.uint64)
    # Floats can't hold the largest distance: stay one float below it.
    steps = np.minimum((width.astype(np.float64) + 1) * share, 2.0**64 - 2048).astype(np.uint64)
    return (low.astype(np.uint64) + np.minimum(steps, width)).astype(low.dtype)


def _enclosing(low: Array, high: Array, values: Array) -> Array:
    """Per value, how many of the closed bounds enclose it."""
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
    """Whether each unit begins no earlier than the one before it ends."""
    return bool(np.all(high[:-1] <= low[1:]))
