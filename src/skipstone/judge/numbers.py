"""Which units' intervals of numeric keys meet a set of spans."""

from __future__ import annotations

import numpy as np

from skipstone.domain.spans import NumberSpans, limits
from skipstone.evidence import Array, ColumnFacts, is_ascending

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
    searched_both_ways = len(lower) > 4 * len(spans)
    if searched_both_ways and (facts.ascending or (is_ascending(lower) and is_ascending(upper))):
        return _search_units(lower, upper, spans)
    return _search_spans(lower, upper, spans)


def _compare(lower: Array, upper: Array, spans: NumberSpans) -> Array:
    floor, ceiling = limits(spans.space)
    found = np.empty(len(lower), dtype=bool)
    pairs = [(low, high) for low, high in spans.pairs()]
    # In blocks that stay in the processor's cache, so that each bound is fetched from memory once.
    for start in range(0, len(lower), _BLOCK):
        stop = start + _BLOCK
        lows, highs, out = lower[start:stop], upper[start:stop], found[start:stop]
        out[:] = False
        for low, high in pairs:
            if low == floor and high == ceiling:
                out[:] = True
            elif low == floor:
                out |= lows <= high
            elif high == ceiling:
                out |= highs >= low
            else:
                out |= (lows <= high) & (highs >= low)
    return found


def _search_spans(lower: Array, upper: Array, spans: NumberSpans) -> Array:
    """For each unit, the first span that doesn't end before it: N searches among the spans."""
    first = np.searchsorted(spans.highs, lower, side="left")
    starts = spans.lows[np.minimum(first, len(spans) - 1)]
    return np.asarray((first < len(spans)) & (starts <= upper))


def _search_units(lower: Array, upper: Array, spans: NumberSpans) -> Array:
    """For each span, the run of units it meets: searches among ascending bounds, then one sweep."""
    starts = np.searchsorted(upper, spans.lows, side="left")
    stops = np.searchsorted(lower, spans.highs, side="right")
    meeting = starts < stops
    steps = np.zeros(len(lower) + 1, dtype=np.int32)
    np.add.at(steps, starts[meeting], 1)
    np.add.at(steps, stops[meeting], -1)
    return np.asarray(np.cumsum(steps[:-1]) > 0)
