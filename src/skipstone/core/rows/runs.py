"""Run algebra on NumPy arrays: pure functions, no Python loop per run.

*Runs* are two int64 arrays, ``starts`` and ``stops``: half-open, sorted, disjoint and non-adjacent, so the
representation is canonical. Interleaved they are *edges*: the strictly ascending points where membership
changes. Every binary operation is one sweep over the edges of both sides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Int64Array: TypeAlias = npt.NDArray[np.int64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
Runs: TypeAlias = tuple[Int64Array, Int64Array]
Combine: TypeAlias = Callable[[BoolArray, BoolArray], BoolArray]


def empty() -> Runs:
    """No runs."""
    return np.empty(0, np.int64), np.empty(0, np.int64)


def single(start: int, stop: int) -> Runs:
    """A single run, or none if it is empty."""
    if start >= stop:
        return empty()
    return np.array([start], np.int64), np.array([stop], np.int64)


def normalise(starts: Int64Array, stops: Int64Array) -> Runs:
    """Normalize half-open ranges to sorted, disjoint, non-adjacent runs; the result is always a copy."""
    filled = starts < stops
    starts, stops = starts[filled], stops[filled]
    if len(starts) < 2:
        return starts, stops
    if (starts[1:] < starts[:-1]).any():
        order = np.argsort(starts, kind="stable")
        starts, stops = starts[order], stops[order]
    reach = np.maximum.accumulate(stops)
    opens = np.empty(len(starts), np.bool_)
    opens[0] = True
    np.greater(starts[1:], reach[:-1], out=opens[1:])
    closes = np.ones(len(starts), np.bool_)
    closes[:-1] = opens[1:]
    return starts[opens], reach[closes]


def from_positions(positions: Int64Array) -> Runs:
    """Runs of strictly ascending positions."""
    if not len(positions):
        return empty()
    breaks = (positions[1:] - positions[:-1] != 1).nonzero()[0]
    starts = positions[np.concatenate(([0], breaks + 1))]
    stops = positions[np.concatenate((breaks, [len(positions) - 1]))] + 1
    return starts, stops


def from_mask(mask: BoolArray) -> Runs:
    """Runs of True in a mask."""
    # A flip is where a value differs from the previous one; outside the mask all values are False.
    inside = (mask[1:] != mask[:-1]).nonzero()[0] + 1
    flips = np.concatenate((mask[:1].nonzero()[0], inside, mask[-1:].nonzero()[0] + len(mask)))
    return np.ascontiguousarray(flips[0::2]), np.ascontiguousarray(flips[1::2])


def to_mask(runs: Runs, total: int) -> BoolArray:
    """Mask of the numbers below ``total`` that are in the runs."""
    flips = np.empty(2 * len(runs[0]) + 2, np.int64)
    flips[0], flips[-1] = 0, total
    flips[1:-1:2], flips[2:-1:2] = runs
    inside = np.zeros(len(flips) - 1, np.bool_)
    inside[1::2] = True
    return np.repeat(inside, np.diff(flips))


def positions(runs: Runs) -> Int64Array:
    """All positions of the runs, ascending."""
    starts, stops = runs
    lengths = stops - starts
    ends = np.add.accumulate(lengths)
    size = int(ends[-1]) if len(ends) else 0
    result: Int64Array = (starts - (ends - lengths)).repeat(lengths)
    result += np.arange(size, dtype=np.int64)
    return result


def edges(runs: Runs) -> Int64Array:
    """Interleaved starts and stops, strictly ascending."""
    starts, stops = runs
    result = np.empty(2 * len(starts), np.int64)
    result[0::2] = starts
    result[1::2] = stops
    return result


def from_edges(edges: npt.NDArray[Any]) -> Runs:
    """Runs from an even number of ascending edges."""
    return edges[0::2].astype(np.int64), edges[1::2].astype(np.int64)


def complement(runs: Runs, total: int) -> Runs:
    """Runs of the rows below ``total`` that are not in ``runs``."""
    starts, stops = runs
    # Gaps are between stops and the next starts; only the first and the last can be empty.
    opens = np.concatenate((np.zeros(1, np.int64), stops))
    closes = np.concatenate((starts, np.array([total], np.int64)))
    filled = opens < closes
    return opens[filled], closes[filled]


def intersection(left: Runs, right: Runs) -> Runs:
    """Rows in both."""
    return _sweep(left, right, np.logical_and)


def union(left: Runs, right: Runs) -> Runs:
    """Rows in either."""
    return _sweep(left, right, np.logical_or)


def difference(left: Runs, right: Runs) -> Runs:
    """Rows in left but not in right."""
    # On booleans "greater" is "left and not right".
    return _sweep(left, right, np.greater)


def symmetric_difference(left: Runs, right: Runs) -> Runs:
    """Rows in exactly one."""
    return _sweep(left, right, np.logical_xor)


def _sweep(left: Runs, right: Runs, combine: Combine) -> Runs:
    """Runs of the rows where combine(in left, in right) is True; combine(False, False) must be False."""
    # An event is an edge with its side in the lowest bit, which needs no argsort. Edges are below
    # 2**63, so the doubled edge fits uint64. The stable sort merges two sorted halves in linear time.
    events = np.concatenate((edges(left), edges(right))).view(np.uint64)
    events <<= np.uint64(1)
    events[2 * len(left[0]) :] |= np.uint64(1)
    events.sort(kind="stable")
    side = (events & np.uint64(1)).astype(np.uint8)
    events >>= np.uint64(1)
    # A side is inside after an odd number of its edges; uint8 overflow preserves parity.
    right_seen = np.add.accumulate(side, dtype=np.uint8)
    left_seen = np.add.accumulate(side ^ np.uint8(1), dtype=np.uint8)
    inside = combine((left_seen & np.uint8(1)).view(np.bool_), (right_seen & np.uint8(1)).view(np.bool_))
    # If both sides have the same edge, only the state after the second event matters.
    settled = np.ones(len(events), np.bool_)
    np.not_equal(events[1:], events[:-1], out=settled[:-1])
    events, inside = events[settled], inside[settled]
    flips = np.empty(len(events), np.bool_)
    flips[:1] = inside[:1]
    np.not_equal(inside[1:], inside[:-1], out=flips[1:])
    return from_edges(events[flips])


def ranks(runs: Runs, before: Int64Array, points: Int64Array) -> Int64Array:
    """Number of rows below each point; before[i] is the number of rows in the first i runs."""
    starts, stops = runs
    index = starts.searchsorted(points, "left")
    result: Int64Array = before[index]
    # The last run that starts below the point may extend beyond it.
    beyond = np.zeros(len(points), np.int64)
    begun = index > 0
    beyond[begun] = np.maximum(stops[index[begun] - 1] - points[begun], 0)
    return result - beyond


def clip_to_windows(
    runs: Runs, window_starts: Int64Array, window_stops: Int64Array
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Non-empty intersections of runs and windows: (window number, start, stop), ordered by window."""
    starts, stops = runs
    low = stops.searchsorted(window_starts, "right")
    high = starts.searchsorted(window_stops, "left")
    pieces = np.maximum(high - low, 0)
    window = np.arange(len(pieces), dtype=np.int64).repeat(pieces)
    skipped = np.add.accumulate(pieces) - pieces
    index = np.arange(len(window), dtype=np.int64) + (low - skipped)[window]
    piece_starts = np.maximum(starts[index], window_starts[window])
    piece_stops = np.minimum(stops[index], window_stops[window])
    filled = piece_starts < piece_stops
    return window[filled], piece_starts[filled], piece_stops[filled]
