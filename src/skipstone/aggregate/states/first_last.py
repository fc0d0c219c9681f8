"""The value of one column in the row where another is least or greatest."""

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
from skipstone.errors import TypeMismatchError
from skipstone.parquet.measure import NumberKeys, byte_keys, read_column

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class PickedRows:
    """The row that counts in each group, in plain arrays; where there is none, both columns are NULL."""

    by: pa.Array
    value: pa.Array
    type: pa.DataType
    """That of the values in the answer."""


@dataclass(frozen=True, slots=True)
class FirstLast(Measure[PickedRows]):
    """The value in the row with the least ``by``, or with the greatest one.

    Rows whose ``by`` is NULL don't count, and NaN is the largest. Of rows with the same ``by`` the one with
    the least value counts (the greatest, if that of ``by`` is asked for), NULL being the least.
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
                    f"values of type {type} have no order, so there is no first or last one",
                    column=".".join(path),
                    hint="name its leaf fields",
                )

    @property
    def columns(self) -> tuple[Path, ...]:
        """The column that is picked from, and the one that picks."""
        return (self.path, self.by)

    def update(self, rows: RowSelection) -> PickedRows:
        return self._picked(rows.column(self.by), rows.column(self.path), rows.starts)

    def join(self, states: Sequence[PickedRows]) -> PickedRows:
        by, value = (pa.concat_arrays([getattr(s, name) for s in states]) for name in ("by", "value"))
        return PickedRows(by, value, self.type)

    def fold(self, state: PickedRows, order: Array, starts: Array) -> PickedRows:
        places = pa.array(order)
        return self._picked(state.by.take(places), state.value.take(places), starts)

    def _picked(
        self, by: pa.Array | pa.ChunkedArray, value: pa.Array | pa.ChunkedArray, starts: Array
    ) -> PickedRows:
        by, value = _plain(by), _plain(value)
        by_type, type = plain_type(self.by_type), plain_type(self.type)
        ranks, valid = _ranks(by_type, by)
        rows = _foremost(ranks, valid, starts, last=self.last)
        # Only those rows that share the foremost ``by`` of their group are compared by value.
        groups = np.searchsorted(starts, rows, side="right") - 1
        tied = value.take(pa.array(rows))
        ranks, valid = _ranks(type, tied)
        found = np.full(len(starts), -1, dtype=np.int64)
        if len(rows):
            # In reverse for the first, so that what counts is written last.
            order = np.lexsort((ranks, valid, groups))
            order = order if self.last else order[::-1]
            found[groups[order]] = rows[order]
        places = pa.array(found, mask=found < 0)
        by, value = (column.take(places).combine_chunks() for column in (by, value))
        return PickedRows(by.cast(by_type), value.cast(type), self.type)


def picked(state: PickedRows) -> pa.Array:
    """The value of each group."""
    found = state.value.cast(storage_type(state.type))
    wrapped = isinstance(state.type, pa.BaseExtensionType)
    return pa.ExtensionArray.from_storage(state.type, found) if wrapped else found


def _foremost(ranks: NDArray[np.int64], valid: Array, starts: Array, *, last: bool) -> NDArray[np.int64]:
    """The valid rows with the least (or the greatest) rank of their group."""
    ufunc, limit = (np.maximum, np.iinfo(np.int64).min) if last else (np.minimum, np.iinfo(np.int64).max)
    ends = reduce_blocks(ufunc, np.where(valid, ranks, limit), starts, empty=limit)
    return np.flatnonzero(valid & (ranks == np.repeat(ends, np.diff(starts, append=len(ranks)))))


def _ranks(type: pa.DataType, values: pa.Array | pa.ChunkedArray) -> tuple[NDArray[np.int64], Array]:
    """Whole numbers in the order of the values, NaN being the largest, and which of them are not NULL."""
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
    wide = keys.astype(np.float64) + 0.0  # which makes one of both zeros
    wide[np.isnan(wide)] = np.nan
    bits = wide.view(np.int64)
    # The bits of doubles are in order, but for the negative ones, which are in reverse.
    return np.where(bits < 0, bits ^ np.iinfo(np.int64).max, bits), valid


def _plain(values: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
    return pa.chunked_array([plain(chunk) for chunk in chunks], plain_type(values.type))
