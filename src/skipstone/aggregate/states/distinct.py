"""Exact numbers of distinct values, from the distinct rows of each group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.aggregate.states.answers import extremes
from skipstone.aggregate.states.blocks import Blocks
from skipstone.aggregate.states.exact import run_lengths
from skipstone.aggregate.states.state import (
    Facet,
    Measure,
    Path,
    RowSelection,
    plain_key,
    reordered_positions,
)
from skipstone.core.arrays import bools
from skipstone.core.domain.keys import is_ordered
from skipstone.core.evidence import Array, are_equal
from skipstone.errors import SkipstoneError
from skipstone.report.units import size


@dataclass(frozen=True, slots=True, eq=False)
class DistinctRows:
    """Distinct rows without NULL, sorted by group; ``starts`` are the first rows of the groups."""

    columns: tuple[pa.Array, ...]
    starts: Array


@dataclass(frozen=True, slots=True)
class Distinct(Measure[DistinctRows]):
    """Distinct values of a column, or combinations of several columns; rows with a NULL are ignored.

    NaN is one value, and so are both zeros together.
    """

    paths: tuple[Path, ...]
    types: tuple[pa.DataType, ...]
    name: str
    memory: int
    """Maximum bytes of the distinct values."""

    @property
    def columns(self) -> tuple[Path, ...]:
        return self.paths

    def update(self, rows: RowSelection) -> DistinctRows:
        columns = [_wide(plain_key(rows.column(path))) for path in self.paths]
        groups = np.repeat(np.arange(len(rows.starts)), run_lengths(rows.starts, len(rows.table)))
        if any(column.null_count for column in columns):
            valid = reduce(pc.and_, [column.is_valid() for column in columns])
            columns, groups = [column.filter(valid) for column in columns], groups[bools(valid)]
        return self._unique(columns, groups, len(rows.starts))

    def join(self, states: Sequence[DistinctRows]) -> DistinctRows:
        firsts = np.cumsum([0, *(len(state.columns[0]) for state in states)]).tolist()
        starts = [state.starts + first for state, first in zip(states, firsts, strict=False)]
        columns = zip(*(state.columns for state in states), strict=True)
        return DistinctRows(tuple(map(pa.concat_arrays, columns)), np.concatenate(starts))

    def fold(self, state: DistinctRows, order: Array, starts: Array) -> DistinctRows:
        columns, count = list(state.columns), len(state.columns[0])
        lengths = run_lengths(state.starts, count)[order]
        if not np.array_equal(order, np.arange(len(state.starts))):
            positions = pa.array(reordered_positions(state.starts, count, order))
            columns = [column.take(positions) for column in columns]
        if len(starts) == len(order):
            return DistinctRows(tuple(columns), np.cumsum(lengths) - lengths)
        groups = np.searchsorted(starts, np.arange(len(order)), side="right") - 1
        return self._unique(columns, np.repeat(groups, lengths), len(starts))

    def _unique(self, columns: Sequence[pa.Array], groups: Array, count: int) -> DistinctRows:
        if len(columns) == 1 and count == 1:
            distinct, starts = [columns[0].unique()], np.zeros(1, dtype=np.int64)
        else:
            names = [str(number) for number in range(len(columns) + 1)]
            table = pa.table([pa.array(groups), *columns], names)
            table = table.group_by(names, use_threads=False).aggregate([]).sort_by("0").combine_chunks()
            group, *distinct = (column.combine_chunks() for column in table.columns)
            starts = np.searchsorted(np.asarray(group), np.arange(count))
        bytes = sum(column.nbytes for column in distinct)
        if bytes > self.memory:
            raise SkipstoneError(
                f"{self.name} has more distinct values than fit in {size(self.memory)}",
                hint="use approx_distinct() for an estimate, or sk.count_distinct(..., memory=...)",
            )
        return DistinctRows(tuple(distinct), starts)

    # -- from metadata -----------------------------------------------------------------------

    @property
    def facets(self) -> Facet:
        known = len(self.paths) == 1 and is_ordered(self.types[0])
        return Facet.COUNT | Facet.MIN_MAX if known else Facet(0)

    def from_blocks(self, blocks: Blocks) -> tuple[DistinctRows, Array]:
        """Blocks with a single value, or none, are usable."""
        single = ~blocks.has | are_equal(blocks.lower, blocks.upper) & (blocks.nans == 0)
        values = _wide(plain_key(pa.chunked_array([extremes(blocks, maximum=False)])))
        present = blocks.count > 0
        starts: Array = np.cumsum(present) - present
        state = DistinctRows((values.filter(pa.array(present)),), starts)
        return state, blocks.has_facets(self.facets) & single


def _wide(array: pa.Array) -> pa.Array:
    """Strings with 64-bit offsets, since merged states can have more than 2 GB of them."""
    wide = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}.get(array.type)
    return array if wide is None else array.cast(wide)


def distinct_counts(state: DistinctRows) -> pa.Array:
    """Number of distinct values of each group."""
    return pa.array(run_lengths(state.starts, len(state.columns[0])))
