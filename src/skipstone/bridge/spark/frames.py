"""``scan.to_spark``: a plan as a data frame, by whichever way serves it best."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from skipstone.bridge.spark.routes import Way, choose
from skipstone.bridge.spark.types import (
    arrow_schema,
    spark_schema,
    to_spark_batch,
    to_spark_table,
    told_schema,
)
from skipstone.engine.local import gather
from skipstone.engine.session import parallelism_of
from skipstone.engine.spark import payload_frame
from skipstone.errors import UsageError
from skipstone.scan.execute import execute
from skipstone.scan.parts import shared
from skipstone.scan.plan import ScanPlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_TOLD = 8


def to_spark(plan: ScanPlan, session: SparkSession, route: str = "auto") -> DataFrame:
    """The plan's rows as a data frame of the session."""
    way = way_of(plan, session, route)
    if way.use.route == "driver":
        return _handed_over(plan, session)
    wide, names = _with_order(plan)
    frame = _sliced(wide, session, way) if way.use.route == "slices" else _by_reader(wide, session, way)
    return _finished(frame, plan, names)


def way_of(plan: ScanPlan, session: SparkSession, route: str = "auto") -> Way:
    """The way that :func:`to_spark` takes, and why."""
    _check_columns(plan)
    if route == "auto" and any(len(term.path) > 1 for term in plan.order):
        route = "driver"
    zone = session.conf.get("spark.sql.session.timeZone") or "UTC"
    return choose(plan, route, parallelism=parallelism_of(session), zone=zone)


def schema_of(plan: ScanPlan) -> StructType:
    """The schema of the data frame: what Spark's own reader would say."""
    told = told_schema(plan.files.layout(task.entry).key_value_metadata for task in plan.tasks[:_TOLD])
    return spark_schema(plan.schema, plan.schemas.query, told)


def read_part(plan: ScanPlan, target: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of one part in the types that Spark takes."""
    for batch in execute(plan).to_batches():
        yield to_spark_batch(batch, target)


# -- on the driver -----------------------------------------------------------------------------


def _handed_over(plan: ScanPlan, session: SparkSession) -> DataFrame:
    schema = schema_of(plan)
    if not len(schema):
        return session.range(execute(plan).to_arrow().num_rows).select()
    table = to_spark_table(execute(plan).to_arrow(), arrow_schema(schema))
    if not table.num_rows:
        return session.createDataFrame([], schema)
    return session.createDataFrame(table, schema)


# -- page slices -------------------------------------------------------------------------------


def _sliced(plan: ScanPlan, session: SparkSession, way: Way) -> DataFrame:
    schema = schema_of(plan)
    if not way.parts:
        return session.createDataFrame([], schema)
    common = shared(plan if plan.limit is not None else replace(plan, order=()))
    payloads = [pickle.dumps(part, protocol=pickle.HIGHEST_PROTOCOL) for part in way.parts]
    read = _reader(common, arrow_schema(schema))
    return payload_frame(session, payloads).mapInArrow(read, schema)


def _reader(
    common: ScanPlan, target: pa.Schema
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a task does with its payload."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for payload in batch.column("payload").to_pylist():
                yield from read_part(replace(common, tasks=pickle.loads(payload)), target)  # noqa: S301

    return read


# -- Spark's own reader ------------------------------------------------------------------------


def _by_reader(plan: ScanPlan, session: SparkSession, way: Way) -> DataFrame:
    """The kept files, as they are now the same as when they were listed, read and tested by Spark."""
    if not plan.tasks:
        return session.createDataFrame([], schema_of(plan))
    gather(lambda task: plan.files.source(task.entry).tail(1), plan.tasks, threads=plan.files.threads)
    tested = () if plan.filter is None else plan.filter.columns
    every = plan.with_columns(list(dict.fromkeys([*plan.schema.names, *(path[0] for path in tested)])))
    reader = session.read.schema(schema_of(every)).option("__globPaths__", "false")
    if plan.schemas.partition:
        reader = reader.option("basePath", _uri(plan.files.place.uri))
    frame = reader.parquet(*[_uri(task.path) for task in plan.tasks])
    frame = frame if way.condition is None else frame.where(way.condition)
    return frame.select(*[_quoted((name,)) for name in plan.schema.names])


def _uri(path: str) -> str:
    return f"file://{path}"


# -- order and limit ---------------------------------------------------------------------------


def _with_order(plan: ScanPlan) -> tuple[ScanPlan, list[str]]:
    """The plan with the columns that it is ordered by, and the names that are wanted."""
    names = list(plan.schema.names)
    if not plan.order:
        return plan, names
    if any(len(term.path) > 1 for term in plan.order):
        raise UsageError("Spark can't be given an order by a field of a struct", hint='use route="driver"')
    missing = [term.path[0] for term in plan.order if term.path[0] not in names]
    return (plan.with_columns([*plan.columns, *dict.fromkeys(missing)]) if missing else plan), names


def _finished(frame: DataFrame, plan: ScanPlan, names: Sequence[str]) -> DataFrame:
    """Order and limit are Spark's part: tasks know only their own rows."""
    if plan.order:
        frame = frame.orderBy(*[_ordered(frame, term) for term in plan.order])
    if plan.limit is not None:
        frame = frame.limit(min(plan.limit, 2**31 - 1))
    return frame if frame.columns == list(names) else frame.select(*[_quoted((name,)) for name in names])


def _ordered(frame: DataFrame, term: Any) -> Any:
    column = frame[_quoted(term.path)]
    if term.descending:
        return column.desc_nulls_first() if term.nulls_first else column.desc_nulls_last()
    return column.asc_nulls_first() if term.nulls_first else column.asc_nulls_last()


def _quoted(path: Sequence[str]) -> str:
    return ".".join("`" + name.replace("`", "``") + "`" for name in path)


def _check_columns(plan: ScanPlan) -> None:
    """Refuse types that Spark doesn't have before anything is read."""
    schema_of(plan)
