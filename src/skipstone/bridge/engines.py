"""A lake as a relation of DuckDB, a table of DataFusion and a lazy frame of Polars."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from skipstone.bridge.dataset import LakeDataset
from skipstone.errors import UsageError, require
from skipstone.predicate.polars import from_polars

if TYPE_CHECKING:
    import datafusion
    import duckdb
    import polars as pl

    from skipstone.scan.lake import Lake


def to_duckdb(lake: Lake, connection: object, name: str) -> duckdb.DuckDBPyRelation:
    """Register a lake as a view of a connection."""
    require("duckdb")
    import duckdb

    chosen = duckdb.default_connection() if connection is None else connection
    if not isinstance(chosen, duckdb.DuckDBPyConnection):
        hint = "pass duckdb.connect(), or omit it for the default connection"
        raise UsageError(f"{type(connection).__name__} is not a DuckDB connection", hint=hint)
    chosen.register(_checked(name), LakeDataset(lake))
    return chosen.table(f'"{name.replace(chr(34), chr(34) * 2)}"')


def to_datafusion(lake: Lake, context: object, name: str) -> datafusion.SessionContext:
    """Register a lake as a table of a session."""
    require("datafusion")
    import datafusion

    chosen = datafusion.SessionContext() if context is None else context
    if not isinstance(chosen, datafusion.SessionContext):
        hint = "pass datafusion.SessionContext(), or omit it for a new one"
        raise UsageError(f"{type(context).__name__} is not a DataFusion session", hint=hint)
    chosen.register_dataset(_checked(name), LakeDataset(lake))
    return chosen


def to_polars_lazy(lake: Lake) -> pl.LazyFrame:
    """Return a lazy frame that scans the lake with the predicates that Polars pushes down."""
    require("polars")
    import polars as pl
    from polars.io.plugins import register_io_source

    schema = pl.from_arrow(lake.schema.empty_table()).schema  # type: ignore[union-attr]

    def scan(
        columns: list[str] | None, predicate: pl.Expr | None, rows: int | None, batch_rows: int | None
    ) -> Iterator[pl.DataFrame]:
        # Polars counts rows before it filters them.
        where = None if predicate is None or rows is not None else from_polars(predicate)
        wanted = lake.scan(where, columns, limit=rows, batch_rows=batch_rows)
        for batch in wanted:
            frame = pl.from_arrow(batch)
            assert isinstance(frame, pl.DataFrame)
            yield frame if predicate is None or rows is None else frame.filter(predicate)

    return register_io_source(scan, schema=schema, is_pure=True)


def _checked(name: str) -> str:
    if not isinstance(name, str) or not name:
        raise UsageError(f"name must be a string, got {name!r}", hint='pass a table name such as "events"')
    return name
