"""``scan.to_spark``: run a plan as a Spark data frame."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from skipstone.engine.session import parallelism_of
from skipstone.engine.spark import map_batches, payload_frame
from skipstone.engine.spark_types import (
    arrow_schema,
    schema_in_footers,
    to_spark_batch,
    to_spark_table,
)
from skipstone.errors import SchemaError, UsageError
from skipstone.scan.execute import execute
from skipstone.scan.handover import is_table
from skipstone.scan.lake import Lake
from skipstone.scan.parts import shared
from skipstone.scan.plan import ScanPlan
from skipstone.scan.projection import Path, Projection
from skipstone.spark.routes import RouteChoice, SessionTraits, choose
from skipstone.spark.source import quote_path, result_schema, select_columns
from skipstone.store.options import dump_with_credentials

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_FOOTERS = 8
# Replaces rows without columns, which Spark can't receive as Arrow batches.
_ROW = pa.schema([("row", pa.int8())])


def to_spark(
    plan: ScanPlan, session: SparkSession, route: str = "auto", *, lake: Lake | None = None
) -> DataFrame:
    """Return the plan's rows as a data frame of the session."""
    stored = stored_spark_schema(lake)
    choice = route_of(plan, session, route, stored=stored)
    computed = plan.projection.computed
    if choice.use.route == "reader" and computed is not None:
        frame = to_spark(replace(plan, projection=plan.projection.inputs), session, "reader", lake=lake)
        fields = [(name, path) for name, value in computed.values.items() for path in value.columns()]
        return frame.select(*[frame[quote_path(path)].alias(name) for name, path in fields])
    wanted = schema_of(plan, stored)
    if choice.use.route == "driver":
        return _local_frame(plan, session, wanted)
    wide = _with_paths(plan, [term.path for term in plan.order])
    schema = schema_of(wide, stored)
    if not plan.tasks:
        frame = session.createDataFrame([], schema)
    elif choice.use.route == "slices":
        frame = _slices_frame(wide, session, choice, schema)
    else:
        tested = () if plan.filter is None else plan.filter.columns
        schema = schema_of(_with_paths(wide, tested), stored)
        frame = _reader_frame(wide, session, choice, schema)
    return select_columns(_order_and_limit(frame, plan), schema, wanted)


def route_of(
    plan: ScanPlan, session: SparkSession, route: str = "auto", *, stored: StructType | None = None
) -> RouteChoice:
    """Return the route that :func:`to_spark` takes, and why."""
    schema_of(plan, stored)  # reject types that Spark does not support before anything is read
    problem = _order_problem(plan, stored)
    if problem is not None and route in ("slices", "reader"):
        raise UsageError(f"Spark can't sort the rows: {problem}", hint='use route="driver"')
    if problem is not None and route == "auto":
        route = "driver"
    return choose(plan, route, parallelism=parallelism_of(session), traits=SessionTraits.of(session))


def stored_spark_schema(lake: Lake | None) -> StructType | None:
    """Return the schema that Spark has stored in the first files of a directory.

    None for a table, which has its own types, and whose column names may differ from those of its files.
    """
    if lake is None or is_table(lake.access):
        return None
    footers = (lake.access.layout(entry) for entry in lake.entries[:_FOOTERS])
    return schema_in_footers(footer.key_value_metadata for footer in footers)


def schema_of(plan: ScanPlan, stored: StructType | None = None) -> StructType:
    """Return the schema of the data frame, which is that of Spark's own reader."""
    table = is_table(plan.files)
    return result_schema(plan.projection, plan.schemas.query, stored, plan.schemas.partition, table=table)


def read_part(plan: ScanPlan, target: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Read the rows of one part as Spark's types."""
    for batch in execute(plan).to_batches():
        yield to_spark_batch(batch, target)


# -- on the driver -----------------------------------------------------------------------------


def _local_frame(plan: ScanPlan, session: SparkSession, schema: StructType) -> DataFrame:
    table = execute(plan).to_arrow()
    if not len(schema):
        return session.range(table.num_rows).select()
    if not table.num_rows:
        return session.createDataFrame([], schema)
    return session.createDataFrame(to_spark_table(table, arrow_schema(schema)), schema)


# -- page slices -------------------------------------------------------------------------------


def _slices_frame(
    plan: ScanPlan, session: SparkSession, choice: RouteChoice, schema: StructType
) -> DataFrame:
    common = shared(plan if plan.limit is not None else replace(plan, order=()))
    payloads = [pickle.dumps(part, protocol=pickle.HIGHEST_PROTOCOL) for part in choice.parts]
    frame = payload_frame(session, payloads)
    from pyspark import cloudpickle

    plan_bytes = dump_with_credentials(common, cloudpickle.dumps)
    if not len(schema):
        return map_batches(frame, _reader(plan_bytes, None), "row tinyint").select()
    return map_batches(frame, _reader(plan_bytes, arrow_schema(schema)), schema)


def _reader(
    plan_bytes: bytes, target: pa.Schema | None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that reads a task's payload; without a target it yields rows without columns."""

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


def _reader_frame(
    plan: ScanPlan, session: SparkSession, choice: RouteChoice, schema: StructType
) -> DataFrame:
    """Have Spark read and filter the kept files, after a check that none has changed since it was listed."""
    plan.files.check_unchanged([task.entry for task in plan.tasks])
    reader = session.read.schema(schema)
    if plan.schemas.partition:
        reader = reader.option("basePath", f"file://{plan.files.store.uri}")
    frame = reader.parquet(*[f"file://{_GLOB.sub(_ESCAPED, task.path)}" for task in plan.tasks])
    if plan.schemas.partition:
        # Spark appends all partition columns, requested or not.
        frame = frame.select(*[quote_path((name,)) for name in schema.names])
    return frame if choice.condition is None else frame.where(choice.condition)


# Spark has an option against globbing, but then reads every file once per path that looks like a glob.
_GLOB = re.compile(r"[\\\[\]{}*?]")
_ESCAPED = r"\\\g<0>"


# -- order and limit ---------------------------------------------------------------------------


def _with_paths(plan: ScanPlan, paths: Iterable[Path]) -> ScanPlan:
    """Add columns to the plan's projection."""
    paths, computed = [*paths], plan.projection.computed
    chosen = Projection.of(plan.schemas.read, [*plan.projection.paths, *paths])
    if computed is not None:
        hidden = {_hidden_name(path): path for path in paths}
        chosen = replace(chosen, computed=computed.adding(hidden, plan.schemas.read))
    changed = replace(plan, projection=chosen)
    changed.__dict__["filter"] = plan.filter
    return changed


def _hidden_name(path: Path) -> str:
    """Name of a column that only sorts a frame of computed columns."""
    return f"skipstone order: {quote_path(path)}"


def _order_problem(plan: ScanPlan, stored: StructType | None) -> str | None:
    """Why Spark can't sort the rows; None if it can."""
    try:
        schema_of(_with_paths(plan, [term.path for term in plan.order]), stored)
    except SchemaError as error:
        return str(error)
    return None


def _order_and_limit(frame: DataFrame, plan: ScanPlan) -> DataFrame:
    """Apply order and limit in Spark: a task has only its own rows."""
    if plan.order:
        is_computed = plan.projection.computed is not None
        frame = frame.orderBy(*[_term(frame, term, is_computed) for term in plan.order])
    return frame if plan.limit is None else frame.limit(min(plan.limit, 2**31 - 1))


def _term(frame: DataFrame, term: Any, is_computed: bool) -> Any:
    path = (_hidden_name(term.path),) if is_computed else term.path
    column = frame[quote_path(path)]
    if term.descending:
        return column.desc_nulls_first() if term.nulls_first else column.desc_nulls_last()
    return column.asc_nulls_first() if term.nulls_first else column.asc_nulls_last()
