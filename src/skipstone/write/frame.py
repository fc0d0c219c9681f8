"""What Spark does for an ingest: count and sample, bring rows into order, write them file by file."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa

from skipstone.engine.session import require_pyspark, spark_session
from skipstone.errors import SchemaError, UsageError
from skipstone.parquet.write.columns import find_path, find_type, stored_schema
from skipstone.parquet.write.files import FileShape, Written, sort_batch, write_files
from skipstone.parquet.write.layout import PageLayout
from skipstone.parquet.write.order import Cluster
from skipstone.parquet.write.profile import Profile, profile
from skipstone.store.options import dump_with_credentials
from skipstone.store.store import Store
from skipstone.write.lakes import check_names, cluster_metadata

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from skipstone.typing import DataLike


ROW_METADATA: Final = "org.apache.spark.sql.parquet.row.metadata"
"""Where Spark keeps the schema of a data frame in the files it writes."""
_KEY: Final = "_skipstone_key"
_PARTITION: Final = "_skipstone_partition"
_SAMPLE: Final = 20_000
# Of one task.
_SAMPLE_BYTES: Final = 64 * 2**20
_MOST_TASKS: Final = 10_000
_SEED: Final = 7


@dataclass(frozen=True, slots=True)
class FrameSurvey:
    """What is to be written: how many rows, what a sample of them is like, and so how many files."""

    rows: int
    sample: pa.Table
    profile: Profile
    files: int

    @property
    def bytes(self) -> float:
        """About how many bytes will be written."""
        return self.rows * self.profile.bytes_per_row


def rows_schema(schema: StructType) -> pa.Schema:
    """The Arrow types that rows of Spark's are written in; a column that has none is named."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    check_names(schema.names)
    fields = []
    for field in schema.fields:
        try:
            fields += to_arrow_schema(StructType([field]), timezone="UTC")
        except (PySparkException, ValueError, pa.ArrowException) as error:
            hint = "cast it to another type, or drop it"
            problem = f"Arrow can't hold {field.dataType.simpleString()}: {error}"
            raise SchemaError(problem, column=field.name, hint=hint) from error
    return stored_schema(_counted(pa.schema(fields)))


def _counted(schema: pa.Schema) -> pa.Schema:
    """The schema with intervals as Spark stores them: microseconds, which its own note tells from numbers."""
    fields = [field.with_type(pa.int64()) if pa.types.is_duration(field.type) else field for field in schema]
    return pa.schema(fields)


def as_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch of Spark's as it is written."""
    if not any(pa.types.is_duration(type) for type in batch.schema.types):
        return batch
    columns = [c.view(pa.int64()) if pa.types.is_duration(c.type) else c for c in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=_counted(batch.schema))


def survey(
    frame: DataFrame, layout: PageLayout, stored: Callable[[pa.Table], pa.Table] = lambda table: table
) -> FrameSurvey:
    """Count the rows and look at some of them, from everywhere; ``stored`` makes of rows what is written."""
    from pyspark.sql import functions as f

    rows = frame.count()
    share = _SAMPLE / rows if rows else 1.0
    # No limit: it would take the first partitions' rows and leave out the last ones'.
    some = frame if share >= 1.0 else frame.where(f.rand(_SEED) < share)
    # In an envelope: toArrow() fails on a struct that is NULL and has a field that may not be.
    told = some.mapInArrow(_packed, "rows binary").toArrow()["rows"].to_pylist()
    batches = [as_rows(batch) for body in told for batch in pa.ipc.open_stream(body)]
    table = pa.Table.from_batches(batches) if batches else rows_schema(frame.schema).empty_table()
    sample = sort_batch(stored(table), layout)
    found = profile(sample, layout)
    files = max(math.ceil(rows * found.bytes_per_row / layout.target_file_bytes - _STRETCHED), 1)
    return FrameSurvey(rows, sample, found, files)


def _packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches as bytes, until there are too many for the driver."""
    size = 0
    for batch in batches:
        body = pa.BufferOutputStream()
        with pa.ipc.new_stream(body, batch.schema) as stream:
            stream.write_batch(batch)
        packed = body.getvalue().to_pybytes()
        size += len(packed)
        if batch.num_rows and size <= _SAMPLE_BYTES:
            yield pa.record_batch({"rows": pa.array([packed], pa.binary())})


# A last file may grow by half.
_STRETCHED: Final = 0.5


def in_order(
    frame: DataFrame, layout: PageLayout, found: FrameSurvey, parted: Column | None = None
) -> DataFrame:
    """The rows in as many Spark partitions as there shall be files, each a range of the order asked for.

    ``parted`` tells rows of different partitions apart, where the layout doesn't.
    """
    from pyspark.sql import functions as f

    tasks = min(found.files, _MOST_TASKS)
    schema = found.sample.schema
    for name in (_KEY, _PARTITION):
        if name in frame.columns:
            raise UsageError("the name is taken", column=name, hint="rename the column")
    first = [f.col(quoted(schema, name)) for name in layout.partition_by]
    if parted is not None:
        frame = frame.withColumn(_PARTITION, parted)
        first.append(f.col(_PARTITION))
    keys = [f.col(quoted(schema, name)) for name in layout.cluster_by]
    if layout.curve is not None:
        along = _along(Cluster.of(found.sample, layout.cluster_by, layout.curve), layout.cluster_by, schema)
        frame = frame.withColumn(_KEY, along(*keys))
        keys = [f.col(_KEY)]
    if not first and not keys:
        return frame.coalesce(tasks)
    return frame.repartitionByRange(tasks, *first, *keys).sortWithinPartitions(*first, *keys)


def _along(cluster: Cluster, names: Sequence[str], schema: pa.Schema) -> Any:
    """A function of Spark's: the place on a curve of a row with these values."""
    from pyspark.sql.functions import arrow_udf

    # A table's own types, which the rows are not yet in.
    types = [find_type(schema, name) for name in names]

    def place(*columns: pa.Array) -> pa.Array:
        values = [column.cast(type) for column, type in zip(columns, types, strict=True)]
        return cluster.keys(pa.table(values, list(names)))

    return arrow_udf(place, "long")


@dataclass(frozen=True, slots=True)
class FrameOutput:
    """Where tasks write, and how."""

    stage: Store
    job: str
    layout: PageLayout
    profile: Profile
    expected: float | None
    """Bytes that one task is to write, if that is known."""
    metadata: tuple[tuple[str, str], ...]
    shape: FileShape | None = None
    """What the lake demands, unless it is a directory."""


def written(frame: DataFrame, output: FrameOutput) -> list[Written]:
    """Write the rows, a task for each Spark partition; only files of tasks that have won are told of."""
    told = frame.mapInArrow(_task(dump_with_credentials(output)), "files binary").toArrow()
    return [file for body in told["files"].to_pylist() for file in pickle.loads(body)]  # noqa: S301


def _task(output_bytes: bytes) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        output: FrameOutput = pickle.loads(output_bytes)  # noqa: S301
        files = write_files(
            map(_without_key, batches),
            output.stage,
            output.job,
            task_name(),
            output.layout,
            output.profile,
            expected_bytes=output.expected,
            metadata=dict(output.metadata),
            shape=output.shape,
        )
        yield pa.record_batch({"files": pa.array([pickle.dumps(files)], pa.binary())})

    return write


def task_name() -> str:
    """A name that no other attempt has, so that of two at once neither touches the other's files."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return f"{context.partitionId():05d}-{context.taskAttemptId()}"


def _without_key(batch: pa.RecordBatch) -> pa.RecordBatch:
    return as_rows(batch.drop_columns([name for name in (_KEY, _PARTITION) if name in batch.schema.names]))


def row_metadata(schema: StructType, layout: PageLayout) -> tuple[tuple[str, str], ...]:
    """What Spark would leave in the files, so that it reads back the very same types, and the clustering."""
    kept = [field for field in schema.fields if field.name not in layout.partition_by]
    return ((ROW_METADATA, type(schema)(kept).json()), *cluster_metadata(layout))


def quoted(schema: pa.Schema, name: str) -> str:
    """The name of a column, or of a struct's field, as Spark parses it."""
    return ".".join(f"`{part.replace('`', '``')}`" for part in find_path(schema, name))


def frame_of(data: DataLike, session: SparkSession | None = None) -> DataFrame:
    """A data frame as it is; a table of pandas, Polars or Arrow becomes one."""
    if _is_of(data, "pyspark.sql."):
        frame = cast("DataFrame", data)
        if session is not None and frame.sparkSession is not session:
            raise UsageError("the data frame is of another session", hint="leave session= out")
        return frame
    require_pyspark()
    from skipstone.engine.spark_types import arrow_schema, spark_schema, to_spark_table

    table = _micros(as_table(data))
    check_names(table.schema.names)
    if not table.num_columns:
        raise UsageError("the schema has no columns", hint="give a table that has some")
    schema = spark_schema(table.schema, table.schema, _intervals(table.schema))
    try:
        rows = to_spark_table(table, arrow_schema(schema))
    except pa.ArrowException as error:
        raise SchemaError(f"Spark can't hold the values: {error}", hint="cast them before") from error
    session = session or spark_session()
    return session.createDataFrame(rows, schema) if table.num_rows else session.createDataFrame([], schema)


def _is_of(data: Any, module: str) -> bool:
    return any(kind.__module__.startswith(module) for kind in type(data).__mro__)


def as_table(data: Any) -> pa.Table:
    """What Arrow makes of a caller's data, with the index of a pandas frame."""
    try:
        if _is_of(data, "pandas."):
            # As to_parquet does: an index is columns, unless it only numbers the rows. If that has a name, it
            # is a column too: to_parquet keeps it in pandas' own metadata, which a lake's files don't have.
            names = [name for name in data.index.names if name is not None]
            return pa.Table.from_pandas(data, preserve_index=True if names else None)
        return pa.table(data)
    except (TypeError, ValueError, AttributeError, pa.ArrowException) as error:
        hint = "give a Spark data frame, or something that Arrow can read"
        raise UsageError(f"can't ingest a {type(data).__name__}: {error}", hint=hint) from error


def _micros(table: pa.Table) -> pa.Table:
    """The table with nanoseconds as Spark's microseconds, if nothing is lost by it."""
    for at, field in enumerate(table.schema):
        type = field.type
        if pa.types.is_timestamp(type) and type.unit == "ns":
            target = pa.timestamp("us", type.tz)
        elif pa.types.is_duration(type):
            target = pa.duration("us")
        else:
            continue
        try:
            column = table.column(at).cast(target)
        except pa.ArrowException as error:
            hint = "round it to microseconds before"
            problem = f"Spark has no nanoseconds: {error}"
            raise SchemaError(problem, column=field.name, hint=hint) from error
        table = table.set_column(at, field.with_type(target), column)
    return table


def _intervals(schema: pa.Schema) -> StructType:
    from pyspark.sql.types import DayTimeIntervalType, StructField, StructType

    names = [field.name for field in schema if pa.types.is_duration(field.type)]
    return StructType([StructField(name, DayTimeIntervalType()) for name in names])
