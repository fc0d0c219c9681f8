"""Value of one column in the row where another column is smallest or largest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.aggregate.states.state import Measure, Path, RowSelection
from skipstone.core.arrays import plain, plain_type
from skipstone.core.domain.keys import Kind, is_ordered, key_space, storage_type
from skipstone.core.evidence import Array, reduce_blocks
from skipstone.core.plain import type_name
from skipstone.errors import TypeMismatchError
from skipstone.parquet.measure import NumberKeys, byte_keys, read_column

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class FirstLastRows:
    """The first or last row of each group, in plain arrays; both columns are NULL if there is none."""

    by: pa.Array
    value: pa.Array
    type: pa.DataType
    """Type of the result."""


@dataclass(frozen=True, slots=True)
class FirstLast(Measure[FirstLastRows]):
    """Value in the row with the smallest ``by``, or with ``last`` the largest.

    Rows with a NULL ``by`` are ignored, and NaN is the largest value. Ties are broken by the smallest value
    (with ``last`` the largest), with NULL as the smallest.
    """

    path: Path
    type: pa.DataType
    by: Path
    by_type: pa.DataType
    last: bool

    def __post_init__(self) -> None:
        for path, type in ((self.path, self.type), (self.by, self.by_type)):
            if not is_ordered(type):
                raise TypeMismatchError(
                    f"first and last need an ordered column, got {type_name(type)}",
                    column=".".join(path),
                    hint="use one of its leaf fields",
                )

    @property
    def columns(self) -> tuple[Path, ...]:
        return (self.path, self.by)

    def update(self, rows: RowSelection) -> FirstLastRows:
        return self._select(rows.column(self.by), rows.column(self.path), rows.starts)

    def join(self, states: Sequence[FirstLastRows]) -> FirstLastRows:
        by, value = (pa.concat_arrays([getattr(s, name) for s in states]) for name in ("by", "value"))
        return FirstLastRows(by, value, self.type)

    def fold(self, state: FirstLastRows, order: Array, starts: Array) -> FirstLastRows:
        indexes = pa.array(order)
        return self._select(state.by.take(indexes), state.value.take(indexes), starts)

    def _select(
        self, by: pa.Array | pa.ChunkedArray, value: pa.Array | pa.ChunkedArray, starts: Array
    ) -> FirstLastRows:
        by, value = _plain(by), _plain(value)
        by_type, type = plain_type(self.by_type), plain_type(self.type)
        ranks, valid = _ranks(by_type, by)
        rows = _best_rows(ranks, valid, starts, last=self.last)
        # Only rows that tie for the best ``by`` of their group are compared by value.
        groups = np.searchsorted(starts, rows, side="right") - 1
        tied = value.take(pa.array(rows))
        ranks, valid = _ranks(type, tied)
        selected = np.full(len(starts), -1, dtype=np.int64)
        if len(rows):
            # Reversed for ``first``, so that the best row is written last.
            order = np.lexsort((ranks, valid, groups))
            order = order if self.last else order[::-1]
            selected[groups[order]] = rows[order]
        indexes = pa.array(selected, mask=selected < 0)
        by, value = (column.take(indexes).combine_chunks() for column in (by, value))
        return FirstLastRows(by.cast(by_type), value.cast(type), self.type)


def finish_first_last(state: FirstLastRows) -> pa.Array:
    """Result values of the groups."""
    values = state.value.cast(storage_type(state.type))
    wrapped = isinstance(state.type, pa.BaseExtensionType)
    return pa.ExtensionArray.from_storage(state.type, values) if wrapped else values


def _best_rows(ranks: NDArray[np.int64], valid: Array, starts: Array, *, last: bool) -> NDArray[np.int64]:
    """Valid rows with the smallest (or largest) rank of their group."""
    ufunc, limit = (np.maximum, np.iinfo(np.int64).min) if last else (np.minimum, np.iinfo(np.int64).max)
    ends = reduce_blocks(ufunc, np.where(valid, ranks, limit), starts, empty=limit)
    return np.flatnonzero(valid & (ranks == np.repeat(ends, np.diff(starts, append=len(ranks)))))


def _ranks(type: pa.DataType, values: pa.Array | pa.ChunkedArray) -> tuple[NDArray[np.int64], Array]:
    """Integers that sort like the values, with NaN as the largest, and a mask of non-NULL values."""
    column = read_column(type, values)
    valid = np.ones(len(values), dtype=bool) if column.valid is None else column.valid
    if key_space(type).kind is Kind.BYTES:
        coded = byte_keys(column.chunks).combine_chunks().dictionary_encode()
        order = pc.sort_indices(coded.dictionary).to_numpy()
        ranks = np.zeros(max(len(order), 1), dtype=np.int64)
        ranks[order] = np.arange(len(order))
        return ranks[coded.indices.fill_null(0).to_numpy()], valid
    keys = NumberKeys.of(column).keys
    if keys.dtype == np.uint64:
        return (keys ^ np.uint64(1 << 63)).view(np.int64), valid
    if keys.dtype.kind != "f":
        return keys.astype(np.int64), valid
    wide = keys.astype(np.float64) + 0.0  # normalizes -0.0
    wide[np.isnan(wide)] = np.nan
    bits = wide.view(np.int64)
    # The bit patterns of doubles are ordered, except that negative ones are reversed.
    return np.where(bits < 0, bits ^ np.iinfo(np.int64).max, bits), valid


def _plain(values: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
    return pa.chunked_array([plain(chunk) for chunk in chunks], plain_type(values.type))
