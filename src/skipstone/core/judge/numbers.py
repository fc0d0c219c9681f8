"""Which units' intervals of numeric keys meet a set of spans."""

from __future__ import annotations

import numpy as np

from skipstone.core.domain.spans import NumberSpans
from skipstone.core.evidence import Array, ColumnFacts, is_ascending

FEW = 16
"""Up to this many spans each is compared with every unit; above it a search is faster."""

_BLOCK = 1 << 16


def meets_numbers(facts: ColumnFacts, spans: NumberSpans) -> Array:
    """Per unit, whether ``[lower, upper]`` has a key in ``spans``."""
    lower, upper = facts.lower, facts.upper
    assert isinstance(lower, np.ndarray)
    assert isinstance(upper, np.ndarray)
    if spans.is_empty:
        return np.zeros(len(lower), dtype=bool)
    if len(spans) <= FEW:
        return _compare(lower, upper, spans)
    if len(lower) > 4 * len(spans) and is_ascending(lower) and is_ascending(upper):
        return _search_units(lower, upper, spans)
    return _search_spans(lower, upper, spans)


def _compare(lower: Array, upper: Array, spans: NumberSpans) -> Array:
    floor, ceiling = spans.space.limits
    found = np.zeros(len(lower), dtype=bool)
    above, below = np.empty(_BLOCK, dtype=bool), np.empty(_BLOCK, dtype=bool)
    pairs = list(zip(spans.lows.tolist(), spans.highs.tolist(), strict=True))
    # In blocks that stay in the processor's cache, so that each bound is fetched from memory once.
    for start in range(0, len(lower), _BLOCK):
        lows, highs = lower[start : start + _BLOCK], upper[start : start + _BLOCK]
        out = found[start : start + _BLOCK]
        reaches, begins = above[: len(out)], below[: len(out)]
        for low, high in pairs:
            if low == floor and high == ceiling:
                out[:] = True
            elif low == floor:
                out |= np.less_equal(lows, high, out=begins)
            elif high == ceiling:
                out |= np.greater_equal(highs, low, out=reaches)
            else:
                np.less_equal(lows, high, out=begins)
                begins &= np.greater_equal(highs, low, out=reaches)
                out |= begins
    return found


def _search_spans(lower: Array, upper: Array, spans: NumberSpans) -> Array:
    """For each unit, the first span that doesn't end before it: N searches among the spans."""
    first = np.searchsorted(spans.highs, lower, side="left")
    starts = spans.lows[np.minimum(first, len(spans) - 1)]
    return np.asarray((first < len(spans)) & (starts <= upper))


def _search_units(lower: Array, upper: Array, spans: NumberSpans) -> Array:
    """For each span, the run of units it meets: searches among ascending bounds, no pass over the units."""
    starts = np.searchsorted(upper, spans.lows, side="left")
    stops = np.searchsorted(lower, spans.highs, side="right")
    meeting = starts < stops
    starts, stops = starts[meeting], stops[meeting]
    found = np.zeros(len(lower), dtype=bool)
    if not len(starts):
        return found
    # Spans ascend, so their runs do; runs that touch are joined and each is filled at once.
    gaps = np.flatnonzero(starts[1:] > stops[:-1]) + 1
    firsts = starts[np.concatenate(([0], gaps))]
    lasts = stops[np.concatenate((gaps - 1, [len(stops) - 1]))]
    for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
        found[first:last] = True
    return found
