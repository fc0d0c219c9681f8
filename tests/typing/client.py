"""A program that uses Skipstone as the README does; ``test_typing`` checks its types, nothing runs it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, assert_type

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap
from pyspark.sql import DataFrame, SparkSession

import skipstone as sk
from skipstone.typing import PredicateLike


def lakes(where: PredicateLike) -> None:
    lake = sk.open("events/")
    assert_type(lake, sk.Lake)
    assert_type(sk.open(Path("events"), storage_options={"region": "eu-west-1"}), sk.Lake)
    assert_type(lake.files, tuple[sk.FileEntry, ...])
    assert_type(lake.version, str)
    assert_type(lake.statistics(["amount"]), sk.LakeStatistics)

    scan = lake.scan("user_id = 31000", columns=["user_id"], order_by="ts desc", limit=10, threads=1)
    assert_type(scan, sk.Scan)
    lake.scan(where, index=False, route="slice", materialise="late", options=sk.ScanOptions(strict=True))
    lake.scan(sk.col("user_id") == 31000)
    lake.scan((sk.col("amount") > 10) & sk.col("country").isin(["DE", "FR"]))
    lake.scan(pc.field("user_id") == 31000)
    lake.scan("amount > 10", semi_join=("user_id", pa.array([1, 2])))
    lake.scan(semi_join=(sk.col("user_id") % 10, {1, 2}))
    lake.scan(pl.col("user_id") == 31000)

    assert_type(lake.refresh(), sk.Lake)
    assert_type(lake.head(5), pa.Table)
    assert_type(scan.head(), pa.Table)
    lake.scan(columns="user_id")
    for batch in scan:
        assert_type(batch, pa.RecordBatch)
    assert_type(scan.explain("html"), str)

    assert_type(scan.count(), int)
    assert_type(scan.count(engine="spark", master="local[2]"), int)
    assert_type(scan.explain(analyze=True, format="html"), str)
    assert_type(scan.to_polars(), pl.DataFrame)
    assert_type(scan.verify().ok, bool)
    pl.DataFrame(scan)

    plan = scan.plan()
    assert_type(plan, sk.ScanPlan)
    assert_type(plan - lake.scan("country = 'DE'").plan(), sk.ScanPlan)
    assert_type(plan.why("events/part-0.parquet", row=7).kept, bool)
    assert_type(plan.trace, sk.ScanTrace)
    assert_type(sk.execute(plan, columns=["user_id"]), sk.Execution)


async def batches(scan: sk.Scan) -> AsyncIterator[pa.RecordBatch]:
    async for batch in scan.to_batches_async():
        yield batch


def aggregates(scan: sk.Scan) -> None:
    answer = scan.aggregate(
        sk.count(),
        sk.sum("amount").alias("total"),
        sk.quantile("amount", [0.5, 0.99], exact=False),
        group_by=["country"],
        within=BitMap([1, 2, 3]),
        without=[sk.members(np.array([4, 5]), "user_id"), sk.members(range(10), "user_id")],
        id_column="user_id",
        engine="local",
        threads=2,
    )
    assert_type(answer, sk.Aggregation)
    assert_type(answer.to_pylist(), list[dict[str, Any]])
    for step in answer.stream():
        assert_type(step.covered, float)
    assert_type(sk.count_distinct("country", "upper(city)"), sk.Aggregate)
    text = scan.aggregate("sum(a * b) AS c", sk.max(sk.col("a") + 1), group_by={"year": "year(ts)"})
    assert_type(text, sk.Aggregation)


def indexes(lake: sk.Lake, session: SparkSession) -> None:
    report = lake.index.build(
        ["user_id"], blooms=["user_id"], sums=True, engine="local", progress=lambda done, total: None
    )
    assert_type(report, sk.IndexReport)
    assert_type(lake.index.refresh(engine=session).indexed, int)
    assert_type(lake.index.status(), sk.IndexStatus)
    assert_type(lake.index.advise([("user_id = 1", 5.0), sk.col("country") == "DE"]), sk.Advice)


def tables(frame: DataFrame) -> None:
    catalog = sk.catalog("warehouse/", **{"s3.region": "eu-west-1"})
    assert_type(catalog, sk.Catalog)
    assert_type(catalog.tables(), list[str])
    table = sk.open("db.events", catalog=catalog, snapshot="main")
    assert_type(table, sk.Table)
    assert_type(table.at(3), sk.Table)
    assert_type(table.snapshots(), tuple[sk.SnapshotInfo, ...])
    report = sk.ingest(frame, "db.events", catalog=catalog, mode="overwrite", where="day = '2026-01-01'")
    assert_type(report, sk.IngestReport)
    sk.ingest(pl.DataFrame({"id": [1]}), table, properties={"job": "7"})


def ingests() -> None:
    report = sk.ingest(
        pl.DataFrame({"id": [1]}),
        "events/",
        cluster_by=["id"],
        cluster="hilbert",
        compression="zstd",
        compression_level=3,
        blooms=["id"],
        queries=["id = 1"],
    )
    assert_type(report.rows, int)
    assert_type(sk.ingest_new("incoming/", "events/", format="csv").batches, tuple[sk.IngestReport, ...])


def prunes(file: bytes) -> None:
    result = sk.prune("events/part-0.parquet", sk.col("device") == 42, dictionary=True)
    assert_type(result, sk.PruneResult)
    assert_type(result.row_groups, list[int])
    assert_type(result.rows & result.proven, sk.RowSet)
    assert_type(sk.prune(file, "device = 42", metadata=sk.read_metadata(file)).trace, sk.Trace)
    pruner = sk.Pruner("device = 42", options=sk.PruneOptions(page_index=False))
    assert_type(pruner.prune(Path("part.parquet")).compiled, sk.Compiled)


def predicates() -> None:
    column = sk.col("amount")
    assert_type(column >= 3, sk.Predicate)
    assert_type(column == 3, sk.Predicate)
    assert_type(~(column > 3) | column.is_null(), sk.Predicate)
    assert_type(column + 1, sk.Expr)
    parsed = sk.parse("a = 1", dialect="duckdb", tz="Europe/Berlin")
    assert_type(parsed, sk.Predicate)
    assert_type(parsed.to_sql("trino"), str)
    assert_type(parsed.to_polars(), pl.Expr)
    assert_type(parsed.to_domain(), sk.ColumnDomain)


def failures() -> None:
    try:
        sk.open("nowhere")
    except sk.MissingFileError as error:
        assert_type(error.path, str | None)
    except (sk.SchemaError, sk.SkipstoneError) as error:
        assert_type(error.hint, str | None)


class Longest:
    """An aggregate of one's own."""

    def init(self) -> int:
        return 0

    def update(self, state: int, batch: pa.RecordBatch) -> int:
        return max(state, len(batch))

    def merge(self, a: int, b: int) -> int:
        return max(a, b)

    def finish(self, state: int) -> int:
        return state


assert_type(sk.udaf(Longest(), ["amount"]), sk.Aggregate)


def refused(lake: sk.Lake, options: Mapping[str, Any]) -> None:
    """Each of these is a mistake, and an error of the type checker."""
    sk.open(7)  # type: ignore[call-overload]
    sk.open("events", snapshots=3)  # type: ignore[call-overload]
    lake.scan(7)  # type: ignore[arg-type]
    lake.scan("a = 1", pages=False)  # type: ignore[call-arg]
    lake.scan("a = 1", route="spark")  # type: ignore[arg-type]
    lake.scan("a = 1", threads="many")  # type: ignore[arg-type]
    lake.scan().explain(format="xml")  # type: ignore[arg-type]
    lake.scan().count(engine="flink")  # type: ignore[arg-type]
    lake.scan().aggregate(len)  # type: ignore[arg-type]
    lake.scan().aggregate(sk.count(), within="ids", id_column="user_id")  # type: ignore[arg-type]
    lake.index.build(bloom=["a"])  # type: ignore[call-arg]
    lake.index.build(engine=3)  # type: ignore[arg-type]
    sk.ingest([1, 2, 3], "events/")  # type: ignore[list-item]
    sk.ingest(options, "events/", cluster="spiral")  # type: ignore[arg-type]
    sk.parse("a = 1", dialect="oracle")  # type: ignore[arg-type]
    sk.parse("a = 1").to_sql("oracle")  # type: ignore[arg-type]
    sk.prune(7, "a = 1")  # type: ignore[arg-type]
    sk.udaf(object(), ["amount"])  # type: ignore[arg-type]
    sk.no_such_name  # type: ignore[attr-defined]  # noqa: B018
