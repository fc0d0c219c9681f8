"""The least and the greatest key of blocks."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.evidence import Array, Bounds
from skipstone.evidence.hull import reduce_blocks

# Blocks of so many values are looked at one by one.
_LARGE = 64


def outermost(keys: Bounds, starts: Array, *, greatest: bool) -> Bounds:
    """The least or the greatest key per block, NULL or 0 where it has none; NaN wins."""
    if not isinstance(keys, pa.Array):
        return reduce_blocks(np.maximum if greatest else np.minimum, keys, starts, empty=0)
    if len(keys) >= _LARGE * len(starts):
        return _of_each(keys, starts, greatest=greatest)
    coded = keys.dictionary_encode()
    order = pc.sort_indices(coded.dictionary).to_numpy()
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order))
    found = outermost(ranks[coded.indices.to_numpy()], starts, greatest=greatest)
    empty = np.diff(starts, append=len(keys)) == 0
    places = order[found] if len(order) else found
    return coded.dictionary.take(pa.array(places, mask=empty))


def _of_each(keys: pa.Array, starts: Array, *, greatest: bool) -> pa.Array:
    # Of large blocks this is faster than putting all byte strings in order.
    name = "max" if greatest else "min"
    edges = [*starts.tolist(), len(keys)]
    found = [pc.min_max(keys.slice(a, b - a))[name].as_py() for a, b in pairwise(edges)]
    return pa.array(found, keys.type)
