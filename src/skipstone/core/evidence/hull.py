"""Facts about blocks of units from the facts about their units: pages to row groups, row groups to files."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.evidence.facts import Array, Bounds, ColumnFacts, widest

# Blocks of so many units are looked at one by one.
_LARGE = 64


def hull(facts: ColumnFacts, starts: Array) -> ColumnFacts:
    """The facts of blocks of consecutive units; ``starts`` are the blocks' first units, in order.

    A block ends where the next begins, the last at the last unit. One without units holds nothing.
    """
    low = _end(facts.lower, facts.lower_exact, facts.may_value, starts, upper=False)
    high = _end(facts.upper, facts.upper_exact, facts.may_value, starts, upper=True)
    floor, ceiling = widest(facts.type, len(starts))
    may_value, may_null, may_nan = (
        reduce_blocks(np.logical_or, flags, starts, empty=False)
        for flags in (facts.may_value, facts.may_null, facts.may_nan)
    )
    return ColumnFacts(
        facts.type,
        _where(may_value, low[0], floor),
        _where(may_value, high[0], ceiling),
        low[1],
        high[1],
        may_value,
        may_null,
        may_nan,
    )


def reduce_blocks(ufunc: np.ufunc, values: Array, starts: Array, *, empty: Any, dtype: Any = None) -> Array:
    """``ufunc.reduceat`` over blocks that may be without units, for which ``empty`` stands."""
    if len(starts) and starts[-1] < len(values) and (starts[1:] > starts[:-1]).all():
        return ufunc.reduceat(values, starts, dtype=dtype).astype(dtype or values.dtype, copy=False)
    filled = np.diff(starts, append=len(values)) > 0
    out = np.full(len(starts), empty, dtype=dtype or values.dtype)
    if filled.any():
        out[filled] = ufunc.reduceat(values, starts[filled], dtype=dtype)
    return out


def _end(bounds: Bounds, exact: Array, counts: Array, starts: Array, *, upper: bool) -> tuple[Bounds, Array]:
    """The outermost bound of each block, and whether a unit that has it says it occurs."""
    if isinstance(bounds, pa.Array) and len(bounds) >= _LARGE * len(starts):
        return _end_of_each(bounds, exact, counts, starts, upper=upper)
    if isinstance(bounds, pa.Array):
        ranks, ordered = _ranked(bounds, upper=upper)
        outer, attained = _end(ranks, exact, counts, starts, upper=upper)
        known = (outer >= 0) & (outer < len(ordered))
        return ordered.take(pa.array(outer, mask=~known)), attained & known
    ufunc, neutral = (np.maximum, _least(bounds)) if upper else (np.minimum, _greatest(bounds))
    outer = reduce_blocks(ufunc, np.where(counts, bounds, neutral), starts, empty=neutral)
    lengths = np.diff(starts, append=len(bounds))
    # Units before the first block belong to none.
    inside = slice(len(bounds) - int(lengths.sum()), None)
    occurs = np.zeros(len(bounds), dtype=bool)
    occurs[inside] = bounds[inside] == np.repeat(outer, lengths)
    return outer, reduce_blocks(np.logical_or, occurs & exact & counts, starts, empty=False)


def _end_of_each(
    bounds: pa.Array, exact: Array, counts: Array, starts: Array, *, upper: bool
) -> tuple[pa.Array, Array]:
    """The same block by block: of large ones this is faster than putting all byte strings in order."""
    outer: list[bytes | None] = []
    attained = np.zeros(len(starts), dtype=bool)
    edges = [*starts.tolist(), len(bounds)]
    for number, (start, stop) in enumerate(pairwise(edges)):
        mine = counts[start:stop]
        block = bounds.slice(start, stop - start).filter(pa.array(mine))
        found = pc.min_max(block)["max" if upper else "min"]
        if block.null_count or not found.is_valid:
            outer.append(None)
            continue
        outer.append(found.as_py())
        same = pc.equal(block, found).to_numpy(zero_copy_only=False)
        attained[number] = bool((same & exact[start:stop][mine]).any())
    return pa.array(outer, pa.large_binary()), attained


def _ranked(bounds: pa.Array, *, upper: bool) -> tuple[Array, pa.Array]:
    """Byte bounds as numbers in the same order, and the bytes by number; unknown lies beyond all."""
    coded = bounds.dictionary_encode()
    order = pc.sort_indices(coded.dictionary)
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order.to_numpy()] = np.arange(len(order))
    codes = coded.indices.fill_null(len(order)).to_numpy()
    return np.append(ranks, len(order) if upper else -1)[codes], coded.dictionary.take(order)


def _least(bounds: Array) -> Any:
    return -np.inf if bounds.dtype.kind == "f" else np.iinfo(bounds.dtype).min


def _greatest(bounds: Array) -> Any:
    return np.inf if bounds.dtype.kind == "f" else np.iinfo(bounds.dtype).max


def _where(known: Array, bounds: Bounds, otherwise: Bounds) -> Bounds:
    if isinstance(bounds, pa.Array):
        return pc.if_else(pa.array(known), bounds, otherwise)
    return np.where(known, bounds, otherwise)
