"""Engines that answer the queries, each with its settings for selective reads.

The settings are the same for every query, so another choice can be quicker for some of them. DuckDB: two
threads, its cache of Parquet metadata on. DataFusion: filters pushed down and reordered, page index and
blooms on, caches of footers, statistics and listings large enough for every file; without pushdown it can be
quicker where little is skipped. Polars: a LazyFrame and its default engine, strings left in its own layout.
pyarrow.dataset: its defaults; the largest rows of a column are found by reading that column first. Thousands
of keys are handed to DuckDB and DataFusion as a table, which beat a list in the text.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datafusion
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from polars.interchange import CompatLevel
from rich.console import Console

import skipstone as sk
from benchmarks.harness import OURS
from benchmarks.lakes import Lake
from benchmarks.queries import In, Query

INDEXED = "skipstone, index"
DUCKDB, DATAFUSION, POLARS, DATASET = "duckdb", "datafusion", "polars", "pyarrow.dataset"
THREADS = 2
_DATAFUSION = {
    "datafusion.execution.parquet.pushdown_filters": "true",
    "datafusion.execution.parquet.reorder_filters": "true",
    "datafusion.execution.parquet.enable_page_index": "true",
    "datafusion.execution.parquet.bloom_filter_on_read": "true",
}
_DATAFUSION_CACHES = ("metadata_cache_limit", "list_files_cache_limit", "file_statistics_cache_limit")


@dataclass(frozen=True, slots=True)
class Engine:
    """A way to open a lake, and a way to ask what was opened."""

    name: str
    open: Callable[[Lake], Any]
    ask: Callable[[Any, Query], pa.Table]


# -- DuckDB and DataFusion ---------------------------------------------------------------------


def _keys(query: Query) -> pa.Table | None:
    """Many keys as a table."""
    return pa.table({"key": query.where.keys}) if isinstance(query.where, In) else None


def _joined(query: Query) -> str:
    assert isinstance(query.where, In)
    return f"SELECT * FROM lake WHERE {query.where.column} IN (SELECT key FROM keys)"


def duckdb_connection() -> duckdb.DuckDBPyConnection:
    """DuckDB with as many threads as everyone, and with a cache of footers."""
    connection = duckdb.connect()
    connection.execute(f"SET threads = {THREADS}; SET TimeZone = 'UTC'; SET parquet_metadata_cache = true")
    return connection


def _open_duckdb(lake: Lake) -> duckdb.DuckDBPyConnection:
    connection = duckdb_connection()
    connection.execute(f"CREATE VIEW lake AS SELECT * FROM read_parquet({lake.files!r})")
    return connection


def _ask_duckdb(connection: duckdb.DuckDBPyConnection, query: Query) -> pa.Table:
    keys = _keys(query)
    if keys is None:
        return connection.sql(query.sql()).to_arrow_table()
    connection.register("keys", keys)
    return connection.sql(_joined(query)).to_arrow_table()


def datafusion_context() -> datafusion.SessionContext:
    """DataFusion with as many threads as everyone, its best options for Parquet, and caches."""
    config = datafusion.SessionConfig(_DATAFUSION).with_target_partitions(THREADS)
    context = datafusion.SessionContext(config)
    for cache in _DATAFUSION_CACHES:
        context.sql(f"SET datafusion.runtime.{cache} = '1G'").collect()
    return context


def _open_datafusion(lake: Lake) -> datafusion.SessionContext:
    context = datafusion_context()
    context.register_parquet("lake", str(lake.folder))
    return context


def _ask_datafusion(context: datafusion.SessionContext, query: Query) -> pa.Table:
    keys = _keys(query)
    if keys is None:
        return context.sql(query.sql()).to_arrow_table()
    context.deregister_table("keys")
    context.register_record_batches("keys", [keys.to_batches()])
    return context.sql(_joined(query)).to_arrow_table()


# -- Polars and pyarrow ------------------------------------------------------------------------


def _open_polars(lake: Lake) -> pl.LazyFrame:
    return pl.scan_parquet(lake.files)


def _ask_polars(frame: pl.LazyFrame, query: Query) -> pa.Table:
    if query.where is not None:
        frame = frame.filter(query.where.polars())
    if query.order_by is not None:
        frame = frame.sort(query.order_by, descending=True, nulls_last=True)
    if query.limit is not None:
        frame = frame.head(query.limit)
    if query.columns is not None:
        frame = frame.select(query.columns)
    return frame.collect().to_arrow(compat_level=CompatLevel.newest())


def _open_dataset(lake: Lake) -> ds.Dataset:
    return ds.dataset(lake.folder, format="parquet", schema=lake.schema)


def ask_dataset(dataset: ds.Dataset, query: Query) -> pa.Table:
    """Ask a pyarrow dataset, whatever file system it is on."""
    where = None if query.where is None else query.where.arrow()
    columns = None if query.columns is None else list(query.columns)
    if query.limit is None:
        return dataset.to_table(columns=columns, filter=where)
    if query.order_by is None:
        return dataset.head(query.limit, columns=columns, filter=where)
    order = [(query.order_by, "descending")]
    column = dataset.to_table(columns=[query.order_by], filter=where)[query.order_by].drop_null()
    least = pc.min(column.take(pc.top_k_unstable(column, query.limit)))
    largest = ds.field(query.order_by) >= least
    rows = dataset.to_table(columns=columns, filter=largest if where is None else largest & where)
    return rows.sort_by(order).slice(0, query.limit)


PEERS = (
    Engine(DUCKDB, _open_duckdb, _ask_duckdb),
    Engine(DATAFUSION, _open_datafusion, _ask_datafusion),
    Engine(POLARS, _open_polars, _ask_polars),
    Engine(DATASET, _open_dataset, ask_dataset),
)


# -- Skipstone ---------------------------------------------------------------------------------


def _open_ours(lake: Lake) -> Any:
    return sk.open(str(lake.folder))


def open_indexed(lake: Lake, root: Path) -> Any:
    """The lake with an index that covers every file of it."""
    opened = sk.open(str(lake.folder), index_root=str(root))
    coverage = opened.index.coverage
    assert coverage is not None, f"no index in {root}"
    assert coverage.covered == len(opened.entries), f"{root}: {coverage.problems or 'files it does not know'}"
    return opened


def built_index(lake: Lake, data: Path, console: Console, **choices: Any) -> Path:
    """Where the lake's index is: built once, and again if this version can't use it; its time is printed."""
    root = data / f"index-{lake.folder.name}"
    note = data / f"index-{lake.folder.name}.json"
    try:
        told = json.loads(note.read_text())
        open_indexed(lake, root)
    except (AssertionError, FileNotFoundError):
        shutil.rmtree(root, ignore_errors=True)
        with console.status(f"indexing {lake.name}"):
            began = time.perf_counter()
            report = sk.open(str(lake.folder), index_root=str(root)).index.build(engine="local", **choices)
            told = {"seconds": time.perf_counter() - began, "read": report.bytes}
        note.write_text(json.dumps(told))
    size = sum(path.stat().st_size for path in root.rglob("*"))
    whole = sum(Path(path).stat().st_size for path in lake.files)
    console.print(
        f"index of {lake.name}: built in {told['seconds']:.1f} s from {told['read'] / 1e6:,.0f} MB read, "
        f"{size / 1e6:,.1f} MB, {size / whole:.1%} of the data",
        style="dim",
    )
    return root


def our_scan(lake: Any, query: Query, **switches: Any) -> Any:
    """The query as a scan; many keys are no text but a predicate."""
    match query.where:
        case None:
            where = None
        case In(column, keys):
            where = sk.col(column).isin(keys)
        case condition:
            where = condition.sql()
    return lake.scan(
        where=where,
        columns=None if query.columns is None else list(query.columns),
        limit=query.limit,
        order_by=None if query.order_by is None else [f"{query.order_by} desc"],
        **switches,
    )


def ours(name: str = OURS, index: Path | None = None, *, index_used: bool = True, **switches: Any) -> Engine:
    """Skipstone, with or without an index, and with some of its switches turned."""
    open_ = _open_ours if index is None else lambda lake: open_indexed(lake, index)
    return Engine(
        name, open_, lambda lake, query: our_scan(lake, query, index=index_used, **switches).to_arrow()
    )
