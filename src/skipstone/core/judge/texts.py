"""Which units' intervals of byte keys meet a set of spans."""

from __future__ import annotations

import bisect

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.domain.spans import ByteSpans
from skipstone.core.evidence import Array, ColumnFacts
from skipstone.core.judge.numbers import FEW


def meets_texts(facts: ColumnFacts, spans: ByteSpans) -> Array:
    """Per unit, whether ``[lower, upper]`` has a key in ``spans``; an unknown bound meets anything."""
    assert isinstance(facts.lower, pa.Array)
    assert isinstance(facts.upper, pa.Array)
    if len(spans) > FEW:
        return _search(facts.lower, facts.upper, spans)
    found: Array = np.zeros(len(facts), dtype=bool)
    for low, high in spans.pairs():
        reaches = _bools(pc.greater_equal(facts.upper, pa.scalar(low, _BYTES))) if low else True
        begins = True if high is None else _bools(pc.less(facts.lower, pa.scalar(high, _BYTES)))
        found |= reaches & begins
    return found


_BYTES = pa.large_binary()


def _bools(answer: pa.Array) -> Array:
    known = answer.fill_null(True) if answer.null_count else answer
    found: Array = known.to_numpy(zero_copy_only=False)
    return found


def _search(lower: pa.Array, upper: pa.Array, spans: ByteSpans) -> Array:
    """For each unit, the first span that ends after its lower bound."""
    ends = [high for high in spans.highs if high is not None]
    lows = list(spans.lows)
    found = np.ones(len(lower), dtype=bool)
    # A loop per unit: Arrow has no search among byte strings, and a file has few units.
    for unit, (low, high) in enumerate(zip(lower.to_pylist(), upper.to_pylist(), strict=True)):
        at = bisect.bisect_right(ends, low) if low is not None else 0
        found[unit] = at < len(lows) and (high is None or lows[at] <= high)
    return found
