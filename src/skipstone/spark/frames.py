"""``scan.to_spark``: a plan as a data frame, by whichever way serves it best."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from skipstone.engine.jobs import gather
from skipstone.engine.session import parallelism_of
from skipstone.engine.spark import payload_frame
from skipstone.engine.spark_types import (
    arrow_schema,
    schema_in_footers,
    spark_schema,
    to_spark_batch,
    to_spark_table,
)
from skipstone.errors import SchemaError, UsageError
from skipstone.scan.execute import execute
from skipstone.scan.lake import Lake
from skipstone.scan.parts import shared
from skipstone.scan.plan import ScanPlan
from skipstone.scan.projection import Path, Projection
from skipstone.spark.routes import RouteChoice, SessionTraits, choose, is_table
from skipstone.spark.source import quoted, shaped
from skipstone.store.options import dump_with_credentials

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_TOLD = 8
# Stands for rows without columns, which Arrow can't hand to Spark.
_ROW = pa.schema([("row", pa.int8())])


def to_spark(
    plan: ScanPlan, session: SparkSession, route: str = "auto", *, lake: Lake | None = None
) -> DataFrame:
    """The plan's rows as a data frame of the session."""
    told = schema_from_spark(lake)
    way = route_of(plan, session, route, told=told)
    wanted = schema_of(plan, told)
    if way.use.route == "driver":
        return _handed_over(plan, session, wanted)
    wide = _with_paths(plan, [term.path for term in plan.order])
    has = schema_of(wide, told)
    if not plan.tasks:
        frame = session.createDataFrame([], has)
    elif way.use.route == "slices":
        frame = _sliced(wide, session, way, has)
    else:
        tested = () if plan.filter is None else plan.filter.columns
        every = schema_of(_with_paths(wide, tested), told)
        frame, has = _by_reader(wide, session, way, every), every
    return shaped(_ordered(frame, plan), has, wanted)


def route_of(
    plan: ScanPlan, session: SparkSession, route: str = "auto", *, told: StructType | None = None
) -> RouteChoice:
    """The way that :func:`to_spark` takes, and why."""
    schema_of(plan, told)  # types that Spark doesn't have are refused before anything is read
    refused = _refused_order(plan, told)
    if refused is not None and route in ("slices", "reader"):
        raise UsageError(f"Spark can't put the rows in order: {refused}", hint='use route="driver"')
    if refused is not None and route == "auto":
        route = "driver"
    return choose(plan, route, parallelism=parallelism_of(session), manner=SessionTraits.of(session))


def schema_from_spark(lake: Lake | None) -> StructType | None:
    """The schema that Spark has left in the first files of a lake, whichever of them a plan keeps.

    A table needs none: it has types of its own, and maybe other names than its files.
    """
    if lake is None or is_table(lake.access):
        return None
    return schema_in_footers(lake.access.layout(entry).key_value_metadata for entry in lake.entries[:_TOLD])


def schema_of(plan: ScanPlan, told: StructType | None = None) -> StructType:
    """The schema of the data frame: what Spark's own reader would say."""
    kind = is_table(plan.files)
    return spark_schema(plan.schema, plan.schemas.query, told, plan.schemas.partition, table=kind)


def read_part(plan: ScanPlan, target: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of one part in the types that Spark takes."""
    for batch in execute(plan).to_batches():
        yield to_spark_batch(batch, target)


# -- on the driver -----------------------------------------------------------------------------


def _handed_over(plan: ScanPlan, session: SparkSession, schema: StructType) -> DataFrame:
    table = execute(plan).to_arrow()
    if not len(schema):
        return session.range(table.num_rows).select()
    if not table.num_rows:
        return session.createDataFrame([], schema)
    return session.createDataFrame(to_spark_table(table, arrow_schema(schema)), schema)


# -- page slices -------------------------------------------------------------------------------


def _sliced(plan: ScanPlan, session: SparkSession, way: RouteChoice, schema: StructType) -> DataFrame:
    common = shared(plan if plan.limit is not None else replace(plan, order=()))
    payloads = [pickle.dumps(part, protocol=pickle.HIGHEST_PROTOCOL) for part in way.parts]
    frame = payload_frame(session, payloads)
    from pyspark import cloudpickle

    plan_bytes = dump_with_credentials(common, cloudpickle.dumps)
    if not len(schema):
        return frame.mapInArrow(_reader(plan_bytes, None), "row tinyint").select()
    return frame.mapInArrow(_reader(plan_bytes, arrow_schema(schema)), schema)


def _reader(
    plan_bytes: bytes, target: pa.Schema | None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a task does with its payload; without a target it gives rows without columns."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        common: ScanPlan = pickle.loads(plan_bytes)  # noqa: S301
        for batch in batches:
            for payload in batch.column("payload").to_pylist():
                plan = replace(common, tasks=pickle.loads(payload))  # noqa: S301
                if target is not None:
                    yield from read_part(plan, target)
                    continue
                for rows in execute(plan).to_batches():
                    yield pa.record_batch([pa.nulls(rows.num_rows, pa.int8())], schema=_ROW)

    return read


# -- Spark's own reader ------------------------------------------------------------------------


def _by_reader(plan: ScanPlan, session: SparkSession, way: RouteChoice, every: StructType) -> DataFrame:
    """The kept files, as they are now the same as when they were listed, read and tested by Spark."""
    gather(lambda task: plan.files.source(task.entry).tail(1), plan.tasks, threads=plan.files.threads)
    reader = session.read.schema(every)
    if plan.schemas.partition:
        reader = reader.option("basePath", f"file://{plan.files.store.uri}")
    frame = reader.parquet(*[f"file://{_GLOB.sub(_ESCAPED, task.path)}" for task in plan.tasks])
    return frame if way.condition is None else frame.where(way.condition)


# Spark can be told that paths are no globs, but reads each file as often as there are such paths then.
_GLOB = re.compile(r"[\\\[\]{}*?]")
_ESCAPED = r"\\\g<0>"


# -- order and limit ---------------------------------------------------------------------------


def _with_paths(plan: ScanPlan, paths: Iterable[Path]) -> ScanPlan:
    """The plan with further columns."""
    chosen = Projection.of(plan.schemas.read, [*plan.projection.paths, *paths])
    changed = replace(plan, projection=chosen)
    changed.__dict__["filter"] = plan.filter
    return changed


def _refused_order(plan: ScanPlan, told: StructType | None) -> str | None:
    """Why Spark can't be given what the rows are ordered by."""
    try:
        schema_of(_with_paths(plan, [term.path for term in plan.order]), told)
    except SchemaError as error:
        return str(error)
    return None


def _ordered(frame: DataFrame, plan: ScanPlan) -> DataFrame:
    """Order and limit are Spark's part: tasks know only their own rows."""
    if plan.order:
        frame = frame.orderBy(*[_term(frame, term) for term in plan.order])
    return frame if plan.limit is None else frame.limit(min(plan.limit, 2**31 - 1))


def _term(frame: DataFrame, term: Any) -> Any:
    column = frame[quoted(term.path)]
    if term.descending:
        return column.desc_nulls_first() if term.nulls_first else column.desc_nulls_last()
    return column.asc_nulls_first() if term.nulls_first else column.asc_nulls_last()
