"""Engines that aggregate the sales, each in the quickest of the ways that were tried.

Ids are in memory before the clock starts, as each engine likes them best: a table of its own for DuckDB (a
bit quicker than an Arrow table), Arrow batches for DataFusion, a series for Polars, a roaring bitmap for
Skipstone. DuckDB finds the bounds of the ids by itself; DataFusion is told them, without which it is slower
on one run of ids. Its filters are not pushed down, which pays nowhere here. Polars tests with ``is_in``,
which is quicker than its semi-join.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import datafusion
import duckdb
import numpy as np
import polars as pl
from pyroaring import BitMap

import skipstone as sk
from benchmarks.lakes import Lake
from benchmarks.peers import DATAFUSION, DUCKDB, POLARS
from benchmarks.sales_questions import Question

Answer = tuple[Any, ...]
NAMES = ("count", "sum(amount)", "avg(amount)", "min(amount)", "max(amount)", "sum(quantity)")
_BATCH_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class Aggregator:
    """A way to open a lake for some threads, to take a question in (untimed), and to answer it."""

    name: str
    open: Callable[[Lake, int], Any]
    take: Callable[[Any, Question], Any]
    ask: Callable[[Any, Question, Any], Answer]


# -- DuckDB and DataFusion ---------------------------------------------------------------------


def _open_duckdb(lake: Lake, threads: int) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute(f"SET threads = {threads}; SET TimeZone = 'UTC'; SET parquet_metadata_cache = true")
    connection.execute("SET enable_progress_bar = false")
    connection.execute(f"CREATE VIEW lake AS SELECT * FROM read_parquet({lake.files!r})")
    return connection


def _take_duckdb(connection: duckdb.DuckDBPyConnection, question: Question) -> None:
    if question.ids is not None:
        connection.register("arrow_ids", question.table)
        connection.execute("CREATE OR REPLACE TABLE ids AS SELECT id FROM arrow_ids")
        connection.unregister("arrow_ids")


def _ask_duckdb(connection: duckdb.DuckDBPyConnection, question: Question, _taken: None) -> Answer:
    (row,) = connection.sql(question.sql()).fetchall()
    return tuple(row)


def _open_datafusion(lake: Lake, threads: int) -> datafusion.SessionContext:
    context = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(threads))
    for cache in ("metadata_cache_limit", "list_files_cache_limit", "file_statistics_cache_limit"):
        context.sql(f"SET datafusion.runtime.{cache} = '1G'").collect()
    context.register_parquet("lake", str(lake.folder))
    return context


def _take_datafusion(context: datafusion.SessionContext, question: Question) -> None:
    context.deregister_table("ids")
    if question.ids is not None:
        context.register_record_batches("ids", [question.table.to_batches(max_chunksize=_BATCH_ROWS)])


def _ask_datafusion(context: datafusion.SessionContext, question: Question, _taken: None) -> Answer:
    (row,) = context.sql(question.sql(bounds=True)).to_pylist()
    return tuple(row.values())


# -- Polars ------------------------------------------------------------------------------------


def _open_polars(lake: Lake, _threads: int) -> pl.LazyFrame:
    """Its threads are set for the process, before it is imported."""
    return pl.scan_parquet(lake.files)


def _take_polars(_frame: pl.LazyFrame, question: Question) -> pl.Series | None:
    return None if question.ids is None else pl.from_arrow(question.table)["id"].implode()


def _ask_polars(frame: pl.LazyFrame, question: Question, ids: pl.Series | None) -> Answer:
    if question.span is not None:
        frame = frame.filter(question.span.polars())
    if ids is not None:
        member = pl.col(question.column).is_in(ids)
        frame = frame.filter(~member if question.denied else member)
    amount = pl.col("amount")
    wanted = (
        pl.len(),
        amount.sum(),
        amount.mean(),
        amount.min(),
        amount.max(),
        pl.col("quantity").cast(pl.Int64).sum(),
    )
    named = [column.alias(name) for column, name in zip(wanted, NAMES, strict=True)]
    (row,) = frame.select(named).collect(engine="streaming").rows()
    return row


AGGREGATORS = (
    Aggregator(DUCKDB, _open_duckdb, _take_duckdb, _ask_duckdb),
    Aggregator(DATAFUSION, _open_datafusion, _take_datafusion, _ask_datafusion),
    Aggregator(POLARS, _open_polars, _take_polars, _ask_polars),
)


# -- Skipstone ---------------------------------------------------------------------------------


def bitmap_of(ids: np.ndarray) -> BitMap:
    """The ids as a caller would hold them."""
    found = BitMap(ids.astype(np.uint32))
    found.run_optimize()
    return found


def aggregate(lake: Any, question: Question, ids: BitMap | None, threads: int, *, cached: bool) -> Any:
    """The answer to a question, as Skipstone gives it."""
    scan = lake.scan(where=None if question.span is None else question.span.sql(), threads=threads)
    given = (
        {} if ids is None else {"without" if question.denied else "within": ids, "id_column": question.column}
    )
    return scan.aggregate(
        sk.count(),
        sk.sum("amount"),
        sk.avg("amount"),
        sk.min("amount"),
        sk.max("amount"),
        sk.sum("quantity"),
        use_cached=cached,
        **given,
    )
