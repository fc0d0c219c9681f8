"""Values as whole numbers of a few bits that grow with the value: which share of a sample lies below it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.domain.keys import Kind, is_ordered, key_space
from skipstone.core.evidence import Array
from skipstone.core.filter.keys import numbers, texts
from skipstone.core.filter.truth import valid_rows
from skipstone.errors import SchemaError, UsageError
from skipstone.write.columns import find_column, find_type

# More boundaries tell no more apart than two columns' pages need, and travel with every task.
_MOST_BOUNDARIES = 4_096


@dataclass(frozen=True, slots=True, eq=False)
class Ranks:
    """One column's boundaries, and the share of the sample below each of them.

    Ranks order NULL first and NaN last, as Spark does. A value between two boundaries has the rank of the
    lower one; those beyond the sample's have the lowest or the highest.
    """

    name: str
    type: pa.DataType
    bounds: Any
    """Keys in order: a NumPy array of numbers, or an Arrow array of bytes."""
    shares: Array
    """One more than bounds: of what is below all of them (NULLs), then below each; then the NaNs' place."""
    bits: int

    @classmethod
    def of(cls, sample: pa.Table, name: str, bits: int) -> Ranks:
        """The boundaries that cut a sample's values into parts of about the same size."""
        type = find_type(sample.schema, name)
        if not is_ordered(type):
            raise UsageError(f"values of {type} have no order", column=name, hint="cluster by other columns")
        array = _whole(find_column(sample, name))
        keys, valid = _keys(array)
        nulls = 0 if valid is None else int((~valid).sum())
        count = len(array)
        ordered, nans = _sorted(keys, valid)
        firsts = _firsts(ordered)
        if len(firsts) > _MOST_BOUNDARIES:
            # The value at each quantile stands for its like, from the first of them on.
            places = np.linspace(0, len(ordered) - 1, _MOST_BOUNDARIES).astype(np.int64)
            firsts = np.unique(firsts[np.searchsorted(firsts, places, side="right") - 1])
        bounds = ordered.take(pa.array(firsts)) if isinstance(ordered, pa.Array) else ordered[firsts]
        below = np.concatenate(([nulls], nulls + firsts, [count - nans]))
        return cls(name, array.type, bounds, below / max(count, 1), bits)

    def of_rows(self, table: pa.Table | pa.RecordBatch) -> Array:
        """The rank of each row, from 0 to ``2**bits - 1``."""
        array = _whole(find_column(table, self.name))
        if array.type != self.type:
            array = self._cast(array)
        keys, valid = _keys(array)
        if isinstance(keys, pa.Array):
            at = np.asarray(pc.search_sorted(self.bounds, keys, side="right").fill_null(0)).astype(np.int64)
        else:
            at = np.searchsorted(self.bounds, keys, side="right")
            if keys.dtype.kind == "f":
                at[np.isnan(keys)] = len(self.bounds) + 1
        ranks = self._ranks[at]
        if valid is not None:
            ranks[~valid] = 0
        return ranks

    @property
    def _ranks(self) -> Array:
        """Ranks by the number of boundaries that are not above a value; the last is NaN's."""
        most = (1 << self.bits) - 1
        ranks: Array = np.minimum((self.shares * (most + 1)).astype(np.int64), most)
        ranks[-1] = most
        return ranks

    def _cast(self, array: pa.Array) -> pa.Array:
        try:
            return array.cast(self.type)
        except pa.ArrowException as error:
            problem = f"the sample has {self.type} and these rows have {array.type}: {error}"
            raise SchemaError(problem, column=self.name, hint="sample the rows that are written") from error


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return (
        column.chunk(0)
        if column.num_chunks == 1
        else pa.concat_arrays(column.chunks or [pa.array([], column.type)])
    )


def _keys(array: pa.Array) -> tuple[Any, Array | None]:
    """Keys that sort like the values, and which rows have one."""
    valid = valid_rows(array)
    if key_space(array.type).kind is Kind.BYTES:
        return texts(array).cast(pa.large_binary()), valid
    keys = numbers(array)
    return (keys + keys.dtype.type(0) if keys.dtype.kind == "f" else keys), valid


def _sorted(keys: Any, valid: Array | None) -> tuple[Any, int]:
    """The keys in order without NULL and NaN, and how many NaNs there were."""
    if isinstance(keys, pa.Array):
        kept = keys.drop_null()
        return kept.take(pc.sort_indices(kept)), 0
    kept = keys if valid is None else keys[valid]
    nans = int(np.isnan(kept).sum()) if kept.dtype.kind == "f" else 0
    ordered = np.sort(kept)
    return ordered[: len(ordered) - nans], nans


def _firsts(ordered: Any) -> Array:
    """Where each different key begins."""
    if not len(ordered):
        return np.zeros(0, dtype=np.int64)
    if isinstance(ordered, pa.Array):
        fresh = np.asarray(pc.not_equal(ordered.slice(1), ordered.slice(0, len(ordered) - 1)).cast(pa.int8()))
    else:
        fresh = ordered[1:] != ordered[:-1]
    return np.concatenate(([0], np.flatnonzero(fresh) + 1)).astype(np.int64)
