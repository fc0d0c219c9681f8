"""The least and the greatest key of blocks."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.evidence import Array, Bounds
from skipstone.core.evidence.hull import reduce_blocks
from skipstone.partial.exact import run_lengths

# Blocks of so many values are looked at one by one.
_LARGE = 64


def outermost(keys: Bounds, starts: Array, *, greatest: bool) -> Bounds:
    """The least or the greatest key per block, NULL or 0 where it has none; NaN wins."""
    if not isinstance(keys, pa.Array):
        return reduce_blocks(np.maximum if greatest else np.minimum, keys, starts, empty=0)
    coded = keys.dictionary_encode()
    order = pc.sort_indices(coded.dictionary).to_numpy()
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order))
    found = outermost(ranks[coded.indices.to_numpy()], starts, greatest=greatest)
    empty = run_lengths(starts, len(keys)) == 0
    places = order[found] if len(order) else found
    return coded.dictionary.take(pa.array(places, mask=empty))


def both_ends(keys: Bounds, starts: Array) -> tuple[Bounds, Bounds]:
    """The least and the greatest key per block, as :func:`outermost` has them."""
    if isinstance(keys, pa.Array) and len(keys) >= _LARGE * len(starts):
        # Of large blocks this is faster than putting all byte strings in order.
        edges = [*starts.tolist(), len(keys)]
        found = [pc.min_max(keys.slice(a, b - a)) for a, b in pairwise(edges)]
        least, greatest = (pa.array([e[name].as_py() for e in found], keys.type) for name in ("min", "max"))
        return least, greatest
    return outermost(keys, starts, greatest=False), outermost(keys, starts, greatest=True)


def extreme_rows(words: Array, starts: Array, *, greatest: bool) -> Array:
    """The least or the greatest row of ``[row, word]`` per block; words further right weigh more."""
    lengths = run_lengths(starts, len(words))
    limits = np.iinfo(words.dtype)
    found = np.zeros((len(starts), words.shape[1]), dtype=words.dtype)
    ahead = np.ones(len(words), dtype=bool)
    for k in reversed(range(words.shape[1])):
        # Only rows that are as far out as any by the words so far take part.
        mine = np.where(ahead, words[:, k], limits.min if greatest else limits.max)
        found[:, k] = outermost(mine, starts, greatest=greatest)
        ahead &= mine == np.repeat(found[:, k], lengths)
    return found
