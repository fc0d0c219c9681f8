"""Whether the rows of a new file are in the table's sort order, which its manifest entry may claim then.

The rows are compared with each other while they are written, so it does not matter who has sorted them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.sorting import NullOrder, SortDirection
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    YearTransform,
)
from pyiceberg.types import PrimitiveType, UUIDType

from skipstone.core.evidence import Array
from skipstone.errors import SkipstoneError
from skipstone.iceberg.partitions.values import partition_values
from skipstone.parquet.write.columns import find_column

if TYPE_CHECKING:
    from pyiceberg.table import Table

_TRANSFORMS: Final = (IdentityTransform, YearTransform, MonthTransform, DayTransform, HourTransform)


@dataclass(frozen=True, slots=True)
class SortKey:
    """A field of a sort order."""

    column: str
    transform: Transform[Any, Any]
    type: PrimitiveType
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class TableOrder:
    """The sort order of a table."""

    id: int
    keys: tuple[SortKey, ...]

    @classmethod
    def of(cls, table: Table) -> TableOrder | None:
        """The table's order; None if it has none, or one that rows are not compared by."""
        order, schema, keys = table.sort_order(), table.schema(), []
        for one in order.fields:
            name = schema.find_column_name(one.source_id)
            type = None if name is None else schema.find_type(one.source_id)
            # Writers disagree on the order of UUIDs.
            if name is None or not isinstance(type, PrimitiveType) or isinstance(type, UUIDType):
                return None
            if not isinstance(one.transform, _TRANSFORMS):
                return None
            descending = one.direction == SortDirection.DESC
            keys.append(
                SortKey(name, one.transform, type, descending, one.null_order == NullOrder.NULLS_FIRST)
            )
        return cls(order.order_id, tuple(keys)) if keys else None


@dataclass(slots=True)
class OrderCheck:
    """Compares the rows of one file."""

    order: TableOrder
    holds: bool = True
    """Whether all rows so far are in the order."""
    _last: list[pa.Array] = field(default_factory=list)

    def add(self, rows: pa.Table) -> None:
        """Add a row group."""
        if not self.holds or not rows.num_rows:
            return
        try:
            columns = [_sorted_by(key, rows) for key in self.order.keys]
        except SkipstoneError:
            # A value that the transform does not apply to.
            self.holds = False
            return
        if self._last:
            columns = [pa.concat_arrays(pair) for pair in zip(self._last, columns, strict=True)]
        self.holds = _are_sorted(self.order.keys, columns)
        self._last = [column.slice(len(column) - 1) for column in columns]


def _sorted_by(key: SortKey, rows: pa.Table) -> pa.Array:
    """The values of a key, in Iceberg's internal form."""
    chunks = find_column(rows, key.column).chunks
    return pa.concat_arrays(
        [partition_values(key.transform, key.type, chunk, key.column) for chunk in chunks]
    )


def _are_sorted(keys: Sequence[SortKey], columns: Sequence[pa.Array]) -> bool:
    """Whether no row comes after one that it should precede."""
    tied = np.ones(len(columns[0]) - 1, dtype=bool)
    for key, column in zip(keys, columns, strict=True):
        for part in _comparable(column):
            before, same = _compare(part, key)
            if (tied & ~before & ~same).any():
                return False
            tied &= same
            if not tied.any():
                return True
    return True


def _comparable(column: pa.Array) -> Iterator[pa.Array]:
    """Columns that sort like one: NaN comes last, and -0.0 before 0.0."""
    if not pa.types.is_floating(column.type):
        yield column
        return
    nan = pc.is_nan(column)
    values = pc.if_else(nan, pa.scalar(0.0, column.type), column)
    positive = ~np.signbit(values.fill_null(0.0).to_numpy(zero_copy_only=False))
    yield from (nan.cast(pa.int8()), values, pa.array(positive).cast(pa.int8()))


def _compare(column: pa.Array, key: SortKey) -> tuple[Array, Array]:
    """Masks of the rows that precede the next one, and that equal it."""
    one, other = column.slice(0, len(column) - 1), column.slice(1)
    precedes = pc.greater if key.descending else pc.less
    before, same = (_mask(pc.fill_null(each(one, other), False)) for each in (precedes, pc.equal))
    null, next_null = _mask(one.is_null()), _mask(other.is_null())
    first, last = (null, next_null) if key.nulls_first else (next_null, null)
    return before | (first & ~last), same | (null & next_null)


def _mask(flags: pa.Array) -> Array:
    mask: Array = flags.to_numpy(zero_copy_only=False)
    return mask
