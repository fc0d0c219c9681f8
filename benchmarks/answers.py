"""When two engines' tables are the same answer: equal values in any order, whatever the string type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pyarrow as pa

from benchmarks.queries import Query

SORTED_ROWS = 10_000


def answer_of(query: Query, schema: pa.Schema) -> Callable[[pa.Table], Any]:
    """What must agree of a query's tables: number, rows in order, sorted rows, or a digest of many rows."""

    def answer(table: pa.Table) -> Any:
        if query.any_rows:
            return len(table)
        if query.order_by is None and len(table) > SORTED_ROWS:
            return len(table), _digest(table, schema)
        table = _alike(table, schema).combine_chunks()
        if query.order_by is None:
            table = table.sort_by([(name, "ascending") for name in table.column_names])
        return table

    return answer


def _alike(table: pa.Table, schema: pa.Schema) -> pa.Table:
    return table.cast(pa.schema([(name, schema.field(name).type) for name in table.column_names]))


def _digest(table: pa.Table, schema: pa.Schema) -> int:
    """A sum over the rows of a hash of each row, batch by batch, as the tables are large."""
    parts = (_alike(pa.Table.from_batches([batch]), schema) for batch in table.to_batches() if len(batch))
    return sum(int(pl.from_arrow(part).hash_rows().to_numpy().sum()) for part in parts) % 2**64
