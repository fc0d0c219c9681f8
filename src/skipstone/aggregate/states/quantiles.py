"""Quantiles: approximate, from sketches, or exact, from all values."""

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
from skipstone.aggregate.states.state import Measure, Path, RowSelection, reordered_positions, valid_values
from skipstone.core.evidence import Array
from skipstone.parquet.measure import read_column


def approx_quantiles(state: Sequence[bytes], ranks: Sequence[float], *, single: bool = False) -> pa.Array:
    """Quantiles of each group as a list, or with ``single`` as one value."""
    return _quantiles([merge_kll([sketch]).values(ranks) for sketch in state], single)


def quantile_bounds(
    state: Sequence[bytes], ranks: Sequence[float], *, single: bool = False
) -> tuple[list[Any], list[Any]]:
    """Lower and upper bounds of approximate quantiles, from the rank error of the sketch."""
    lower, upper = [], []
    for sketch in state:
        merged = merge_kll([sketch])
        # An exact quantile is between two neighbouring values, so widen by one value on each side.
        error = merged.error + 1 / max(merged.count, 1)
        lower.append(merged.values([max(rank - error, 0.0) for rank in ranks]))
        upper.append(merged.values([min(rank + error, 1.0) for rank in ranks]))
    return _quantiles(lower, single).to_pylist(), _quantiles(upper, single).to_pylist()


def _quantiles(groups: Sequence[Sequence[float]], single: bool) -> pa.Array:
    if single:
        return pa.array([values[0] if values else None for values in groups], pa.float64())
    return pa.array([values or None for values in groups], pa.list_(pa.float64()))


# -- quantiles from values ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class KeysByGroup:
    """Concatenated keys of groups, without NULLs; key = value * 10^scale."""

    keys: Array
    starts: Array
    scale: int


@dataclass(frozen=True, slots=True)
class AllValues(Measure[KeysByGroup]):
    """All values of a numeric column, for exact quantiles."""

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
            *valid_values(compact_keys(self.type, column), column.valid, rows.starts), scale_of(self.type)
        )

    def join(self, states: Sequence[KeysByGroup]) -> KeysByGroup:
        firsts = np.cumsum([0, *(len(state.keys) for state in states)]).tolist()
        starts = [state.starts + first for state, first in zip(states, firsts, strict=False)]
        keys = np.concatenate([state.keys for state in states])
        return KeysByGroup(keys, np.concatenate(starts), scale_of(self.type))

    def fold(self, state: KeysByGroup, order: Array, starts: Array) -> KeysByGroup:
        keys, lengths = state.keys, np.diff(state.starts, append=len(state.keys))[order]
        if not np.array_equal(order, np.arange(len(state.starts))):
            keys = keys[reordered_positions(state.starts, len(keys), order)]
        return KeysByGroup(keys, (np.cumsum(lengths) - lengths)[starts], state.scale)


def exact_quantiles(state: KeysByGroup, ranks: Sequence[float], *, single: bool = False) -> pa.Array:
    """Quantiles of each group as a list, or with ``single`` as one value.

    Like Spark's ``percentile``: linear interpolation in doubles; NaN is the largest value.
    """
    spans = pairwise([*state.starts.tolist(), len(state.keys)])
    # Group by group, since NumPy partitions one array at a time, which is faster than sorting.
    return _quantiles([_at_ranks(state.keys[a:b], ranks, 10**state.scale) for a, b in spans], single)


def _at_ranks(keys: Array, ranks: Sequence[float], unit: int) -> list[float]:
    if not len(keys):
        return []
    positions = [(len(keys) - 1) * rank for rank in ranks]
    pairs = [(math.floor(position), math.ceil(position)) for position in positions]
    ordered = np.partition(keys, sorted({at for pair in pairs for at in pair}))
    values = []
    for position, (below, above) in zip(positions, pairs, strict=True):
        # Python's division of integers rounds once.
        low, high = (ordered[at].item() / unit + 0.0 for at in (below, above))
        same = ordered[below] == ordered[above]
        values.append(low if below == above or same else (above - position) * low + (position - below) * high)
    return values
