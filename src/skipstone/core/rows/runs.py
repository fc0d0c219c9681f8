"""Run algebra on NumPy arrays: pure functions, no Python loop per run.

*Runs* are two int64 arrays, ``starts`` and ``stops``: half-open, sorted, disjoint and non-adjacent, so
a set of rows has exactly one form. Interleaved they are *edges*: the strictly rising points where
membership flips. Every binary operation is one sweep over the edges of both sides.
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
    """No runs at all."""
    return np.empty(0, np.int64), np.empty(0, np.int64)


def single(start: int, stop: int) -> Runs:
    """A single run, or none when it is empty."""
    if start >= stop:
        return empty()
    return np.array([start], np.int64), np.array([stop], np.int64)


def normalise(starts: Int64Array, stops: Int64Array) -> Runs:
    """Sorted, disjoint, non-adjacent runs of any half-open ranges; never aliases its input."""
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
    """Runs of strictly rising positions."""
    if not len(positions):
        return empty()
    breaks = (positions[1:] - positions[:-1] != 1).nonzero()[0]
    starts = positions[np.concatenate(([0], breaks + 1))]
    stops = positions[np.concatenate((breaks, [len(positions) - 1]))] + 1
    return starts, stops


def from_mask(mask: BoolArray) -> Runs:
    """Runs of True in a mask."""
    # A step is wherever a value differs from the one before it; False stands outside both ends.
    inside = (mask[1:] != mask[:-1]).nonzero()[0] + 1
    flips = np.concatenate((mask[:1].nonzero()[0], inside, mask[-1:].nonzero()[0] + len(mask)))
    return np.ascontiguousarray(flips[0::2]), np.ascontiguousarray(flips[1::2])


def to_mask(runs: Runs, total: int) -> BoolArray:
    """Flags for the numbers below total, set in the runs."""
    flips = np.empty(2 * len(runs[0]) + 2, np.int64)
    flips[0], flips[-1] = 0, total
    flips[1:-1:2], flips[2:-1:2] = runs
    inside = np.zeros(len(flips) - 1, np.bool_)
    inside[1::2] = True
    return np.repeat(inside, np.diff(flips))


def positions(runs: Runs) -> Int64Array:
    """Every position of the runs, rising."""
    starts, stops = runs
    lengths = stops - starts
    ends = np.add.accumulate(lengths)
    size = int(ends[-1]) if len(ends) else 0
    result: Int64Array = (starts - (ends - lengths)).repeat(lengths)
    result += np.arange(size, dtype=np.int64)
    return result


def edges(runs: Runs) -> Int64Array:
    """Starts and stops interleaved: strictly rising, always an even number."""
    starts, stops = runs
    result = np.empty(2 * len(starts), np.int64)
    result[0::2] = starts
    result[1::2] = stops
    return result


def from_edges(edges: npt.NDArray[Any]) -> Runs:
    """Runs whose membership flips at each of an even number of rising edges."""
    return edges[0::2].astype(np.int64), edges[1::2].astype(np.int64)


def complement(runs: Runs, total: int) -> Runs:
    """The runs of the rows below total that are in none of these."""
    starts, stops = runs
    # Gaps lie between the stops and the next starts; an empty gap can only be the first or the last.
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
    """Rows on the left and not on the right."""
    # On booleans "greater" is "left and not right".
    return _sweep(left, right, np.greater)


def symmetric_difference(left: Runs, right: Runs) -> Runs:
    """Rows in exactly one."""
    return _sweep(left, right, np.logical_xor)


def _sweep(left: Runs, right: Runs, combine: Combine) -> Runs:
    """Runs of the rows where combine(in left, in right) holds; combine(False, False) must not."""
    # An event is an edge with its side in the lowest bit: one plain sort, no argsort. Edges are below
    # 2**63, so the doubled edge fits uint64. The stable sort merges two sorted halves in linear time.
    events = np.concatenate((edges(left), edges(right))).view(np.uint64)
    events <<= np.uint64(1)
    events[2 * len(left[0]) :] |= np.uint64(1)
    events.sort(kind="stable")
    side = (events & np.uint64(1)).astype(np.uint8)
    events >>= np.uint64(1)
    # A side is inside after an odd number of its edges; parity survives the wrap of uint8.
    right_seen = np.add.accumulate(side, dtype=np.uint8)
    left_seen = np.add.accumulate(side ^ np.uint8(1), dtype=np.uint8)
    inside = combine((left_seen & np.uint8(1)).view(np.bool_), (right_seen & np.uint8(1)).view(np.bool_))
    # Where both sides have the same edge only the state after the second event counts.
    settled = np.ones(len(events), np.bool_)
    np.not_equal(events[1:], events[:-1], out=settled[:-1])
    events, inside = events[settled], inside[settled]
    flips = np.empty(len(events), np.bool_)
    flips[:1] = inside[:1]
    np.not_equal(inside[1:], inside[:-1], out=flips[1:])
    return from_edges(events[flips])


def ranks(runs: Runs, before: Int64Array, points: Int64Array) -> Int64Array:
    """For each point, how many rows lie below it; before[i] counts the rows of the first i runs."""
    starts, stops = runs
    index = starts.searchsorted(points, "left")
    result: Int64Array = before[index]
    # The last run that starts below the point may reach beyond it.
    beyond = np.zeros(len(points), np.int64)
    begun = index > 0
    beyond[begun] = np.maximum(stops[index[begun] - 1] - points[begun], 0)
    return result - beyond


def clip_to_windows(
    runs: Runs, window_starts: Int64Array, window_stops: Int64Array
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Every non-empty piece of a run inside a window: (window number, start, stop), window by window."""
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
