"""Quantiles: about, from sketches, or exactly, from all values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from skipstone.aggregate.states.blocks import scale_of
from skipstone.aggregate.states.sketches import check_quantiles, compact_keys, merge_kll
from skipstone.aggregate.states.state import Measure, Path, RowSelection, moved, present
from skipstone.core.evidence import Array
from skipstone.parquet.measure import read_column


def approx_quantiles(state: Sequence[bytes], ranks: Sequence[float], *, single: bool = False) -> pa.Array:
    """The values at some ranks of each group, as a list; of a single rank the value."""
    return _quantiles([merge_kll([sketch]).values(ranks) for sketch in state], single)


def quantile_bounds(
    state: Sequence[bytes], ranks: Sequence[float], *, single: bool = False
) -> tuple[list[Any], list[Any]]:
    """The values that are below and above by the stated error of rank, in the form of the quantiles."""
    lower, upper = [], []
    for sketch in state:
        found = merge_kll([sketch])
        # An exact quantile lies between two neighbours: one more to either side holds it.
        off = found.error + 1 / max(found.count, 1)
        lower.append(found.values([max(rank - off, 0.0) for rank in ranks]))
        upper.append(found.values([min(rank + off, 1.0) for rank in ranks]))
    return _quantiles(lower, single).to_pylist(), _quantiles(upper, single).to_pylist()


def _quantiles(found: Sequence[Sequence[float]], single: bool) -> pa.Array:
    if single:
        return pa.array([values[0] if values else None for values in found], pa.float64())
    return pa.array([values or None for values in found], pa.list_(pa.float64()))


# -- quantiles from values ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class KeysByGroup:
    """The keys of groups one after the other, without NULLs; they are numbers times 10 to the ``scale``."""

    keys: Array
    starts: Array
    scale: int


@dataclass(frozen=True, slots=True)
class AllValues(Measure[KeysByGroup]):
    """All numbers of a column, for exact quantiles."""

    path: Path
    type: pa.DataType

    def __post_init__(self) -> None:
        check_quantiles(self.type, self.path)

    @property
    def columns(self) -> tuple[Path, ...]:
        return (self.path,)

    def update(self, rows: RowSelection) -> KeysByGroup:
        column = read_column(self.type, rows.column(self.path))
        return KeysByGroup(
            *present(compact_keys(self.type, column), column.valid, rows.starts), scale_of(self.type)
        )

    def join(self, states: Sequence[KeysByGroup]) -> KeysByGroup:
        firsts = np.cumsum([0, *(len(state.keys) for state in states)]).tolist()
        starts = [state.starts + first for state, first in zip(states, firsts, strict=False)]
        keys = np.concatenate([state.keys for state in states])
        return KeysByGroup(keys, np.concatenate(starts), scale_of(self.type))

    def fold(self, state: KeysByGroup, order: Array, starts: Array) -> KeysByGroup:
        keys, lengths = state.keys, np.diff(state.starts, append=len(state.keys))[order]
        if not np.array_equal(order, np.arange(len(state.starts))):
            keys = keys[moved(state.starts, len(keys), order)]
        return KeysByGroup(keys, (np.cumsum(lengths) - lengths)[starts], state.scale)


def exact_quantiles(state: KeysByGroup, ranks: Sequence[float], *, single: bool = False) -> pa.Array:
    """The values at some ranks of each group, as a list; of a single rank the value.

    As Spark's ``percentile``: between the two closest values in proportion, in doubles; NaN is the largest.
    """
    spans = pairwise([*state.starts.tolist(), len(state.keys)])
    # Group by group, since to select is faster than to sort, and NumPy selects in one array at a time.
    return _quantiles([_at_ranks(state.keys[a:b], ranks, 10**state.scale) for a, b in spans], single)


def _at_ranks(keys: Array, ranks: Sequence[float], unit: int) -> list[float]:
    if not len(keys):
        return []
    places = [(len(keys) - 1) * rank for rank in ranks]
    pairs = [(math.floor(place), math.ceil(place)) for place in places]
    ordered = np.partition(keys, sorted({at for pair in pairs for at in pair}))
    found = []
    for place, (below, above) in zip(places, pairs, strict=True):
        # Python divides integers of any size with one rounding.
        low, high = (ordered[at].item() / unit + 0.0 for at in (below, above))
        same = ordered[below] == ordered[above]
        found.append(low if below == above or same else (above - place) * low + (place - below) * high)
    return found
