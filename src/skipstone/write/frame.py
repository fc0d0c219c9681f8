"""The Spark side of an ingest: count and sample the rows, order them, write one file per task."""

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
from skipstone.parquet.write.files import FileShape, WrittenFile, sort_batch, write_files
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
"""The key-value metadata in which Spark stores a data frame's schema."""
_KEY: Final = "_skipstone_key"
_PARTITION: Final = "_skipstone_partition"
_SAMPLE: Final = 20_000
# Per task.
_SAMPLE_BYTES: Final = 64 * 2**20
_MOST_TASKS: Final = 10_000
_SEED: Final = 7


@dataclass(frozen=True, slots=True)
class FrameSurvey:
    """Row count, sample and profile of a data frame, and the number of files to write."""

    rows: int
    sample: pa.Table
    profile: Profile
    files: int

    @property
    def bytes(self) -> float:
        """Estimated size of the files."""
        return self.rows * self.profile.bytes_per_row


def rows_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema in which rows of a Spark schema are stored."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    check_names(schema.names)
    fields = []
    for field in schema.fields:
        try:
            fields += to_arrow_schema(StructType([field]), timezone="UTC")
        except (PySparkException, ValueError, pa.ArrowException) as error:
            hint = "cast the column to another type, or drop it"
            problem = f"Arrow has no equivalent of {field.dataType.simpleString()}: {error}"
            raise SchemaError(problem, column=field.name, hint=hint) from error
    return stored_schema(_intervals_as_int64(pa.schema(fields)))


def _intervals_as_int64(schema: pa.Schema) -> pa.Schema:
    """Replace intervals by int64 microseconds, as Spark does; its row metadata records the original type."""
    fields = [field.with_type(pa.int64()) if pa.types.is_duration(field.type) else field for field in schema]
    return pa.schema(fields)


def to_stored_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Convert a batch from Spark to the types in which it is stored."""
    if not any(pa.types.is_duration(type) for type in batch.schema.types):
        return batch
    columns = [c.view(pa.int64()) if pa.types.is_duration(c.type) else c for c in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=_intervals_as_int64(batch.schema))


def survey(
    frame: DataFrame, layout: PageLayout, to_stored: Callable[[pa.Table], pa.Table] = lambda table: table
) -> FrameSurvey:
    """Count the rows and sample all partitions; ``to_stored`` converts sampled rows to what is written."""
    from pyspark.sql import functions as f

    rows = frame.count()
    share = _SAMPLE / rows if rows else 1.0
    # A limit would sample the first partitions only.
    some = frame if share >= 1.0 else frame.where(f.rand(_SEED) < share)
    # Packed as bytes: toArrow() fails on a NULL struct with a non-nullable field.
    bodies = some.mapInArrow(_pack, "rows binary").toArrow()["rows"].to_pylist()
    batches = [to_stored_batch(batch) for body in bodies for batch in pa.ipc.open_stream(body)]
    table = pa.Table.from_batches(batches) if batches else rows_schema(frame.schema).empty_table()
    sample = sort_batch(to_stored(table), layout)
    sample_profile = profile(sample, layout)
    files = max(
        math.ceil(rows * sample_profile.bytes_per_row / layout.target_file_bytes - _LAST_FILE_SLACK), 1
    )
    return FrameSurvey(rows, sample, sample_profile, files)


def _pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Serialize the batches, up to a size that the driver can hold."""
    size = 0
    for batch in batches:
        body = pa.BufferOutputStream()
        with pa.ipc.new_stream(body, batch.schema) as stream:
            stream.write_batch(batch)
        packed = body.getvalue().to_pybytes()
        size += len(packed)
        if batch.num_rows and size <= _SAMPLE_BYTES:
            yield pa.record_batch({"rows": pa.array([packed], pa.binary())})


# The last file can grow by half.
_LAST_FILE_SLACK: Final = 0.5


def order_rows(
    frame: DataFrame, layout: PageLayout, frame_survey: FrameSurvey, partition: Column | None = None
) -> DataFrame:
    """Repartition the rows by range and sort them: one Spark partition per file.

    ``partition`` labels the partition of each row, for tables whose layout has no ``partition_by``.
    """
    from pyspark.sql import functions as f

    tasks = min(frame_survey.files, _MOST_TASKS)
    schema = frame_survey.sample.schema
    for name in (_KEY, _PARTITION):
        if name in frame.columns:
            raise UsageError("name is reserved", column=name, hint="rename the column")
    first = [f.col(quote_column(schema, name)) for name in layout.partition_by]
    if partition is not None:
        frame = frame.withColumn(_PARTITION, partition)
        first.append(f.col(_PARTITION))
    keys = [f.col(quote_column(schema, name)) for name in layout.cluster_by]
    if layout.curve is not None:
        along = _curve_position(
            Cluster.of(frame_survey.sample, layout.cluster_by, layout.curve), layout.cluster_by, schema
        )
        frame = frame.withColumn(_KEY, along(*keys))
        keys = [f.col(_KEY)]
    if not first and not keys:
        return frame.coalesce(tasks)
    return frame.repartitionByRange(tasks, *first, *keys).sortWithinPartitions(*first, *keys)


def _curve_position(cluster: Cluster, names: Sequence[str], schema: pa.Schema) -> Any:
    """Return a Spark UDF that computes the position of rows on a curve."""
    from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]

    # Rows are cast to the table's types only when they are written.
    types = [find_type(schema, name) for name in names]

    def position(*columns: pa.Array) -> pa.Array:
        values = [column.cast(type) for column, type in zip(columns, types, strict=True)]
        return cluster.keys(pa.table(values, list(names)))

    return arrow_udf(position, "long")


@dataclass(frozen=True, slots=True)
class FrameOutput:
    """Where and how tasks write their files."""

    stage: Store
    job: str
    layout: PageLayout
    profile: Profile
    expected: float | None
    """Bytes per task; None if tasks differ in size."""
    metadata: tuple[tuple[str, str], ...]
    shape: FileShape | None = None
    """Requirements of an Iceberg table; None for a directory."""


def write_frame(frame: DataFrame, output: FrameOutput) -> list[WrittenFile]:
    """Write the rows, one task per Spark partition, and return the files of successful attempts only."""
    results = frame.mapInArrow(_task(dump_with_credentials(output)), "files binary").toArrow()
    return [file for body in results["files"].to_pylist() for file in pickle.loads(body)]  # noqa: S301


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
    """Return a name unique to this attempt, so that concurrent attempts never touch each other's files."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return f"{context.partitionId():05d}-{context.taskAttemptId()}"


def _without_key(batch: pa.RecordBatch) -> pa.RecordBatch:
    return to_stored_batch(
        batch.drop_columns([name for name in (_KEY, _PARTITION) if name in batch.schema.names])
    )


def row_metadata(schema: StructType, layout: PageLayout) -> tuple[tuple[str, str], ...]:
    """Return Spark's own key-value metadata, which restores the original types, and the clustering."""
    fields = [field for field in schema.fields if field.name not in layout.partition_by]
    return ((ROW_METADATA, type(schema)(fields).json()), *cluster_metadata(layout))


def quote_column(schema: pa.Schema, name: str) -> str:
    """Quote the name of a column or nested field for Spark."""
    return ".".join(f"`{part.replace('`', '``')}`" for part in find_path(schema, name))


def to_frame(data: DataLike, session: SparkSession | None = None) -> DataFrame:
    """Return a Spark data frame; pandas, Polars and Arrow tables are converted."""
    if _is_of(data, "pyspark.sql."):
        frame = cast("DataFrame", data)
        if session is not None and frame.sparkSession is not session:
            raise UsageError("data frame belongs to another Spark session", hint="omit session=")
        return frame
    require_pyspark()
    from skipstone.engine.spark_types import arrow_schema, spark_schema, to_spark_table

    table = _to_micros(as_table(data))
    check_names(table.schema.names)
    if not table.num_columns:
        raise UsageError("data has no columns", hint="pass a table with at least one column")
    schema = spark_schema(table.schema, table.schema, _intervals(table.schema))
    try:
        rows = to_spark_table(table, arrow_schema(schema))
    except pa.ArrowException as error:
        problem = f"Spark can't represent the values: {error}"
        raise SchemaError(problem, hint="cast the columns first") from error
    session = session or spark_session()
    return session.createDataFrame(rows, schema) if table.num_rows else session.createDataFrame([], schema)


def _is_of(data: Any, module: str) -> bool:
    return any(kind.__module__.startswith(module) for kind in type(data).__mro__)


def as_table(data: Any) -> pa.Table:
    """Convert data to an Arrow table; a pandas index becomes columns."""
    try:
        if _is_of(data, "pandas."):
            # As to_parquet does: an index becomes columns, unless it only numbers the rows. A named one is a
            # column too: to_parquet stores it in pandas metadata, which a lake's files don't have.
            names = [name for name in data.index.names if name is not None]
            return pa.Table.from_pandas(data, preserve_index=True if names else None)
        return pa.table(data)
    except (TypeError, ValueError, AttributeError, pa.ArrowException) as error:
        hint = "pass a Spark data frame, or anything that pyarrow.table() accepts"
        raise UsageError(f"can't ingest a {type(data).__name__}: {error}", hint=hint) from error


def _to_micros(table: pa.Table) -> pa.Table:
    """Convert nanoseconds to Spark's microseconds; an error if that would lose digits."""
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
            hint = "round the column to microseconds first"
            problem = f"Spark does not support nanoseconds: {error}"
            raise SchemaError(problem, column=field.name, hint=hint) from error
        table = table.set_column(at, field.with_type(target), column)
    return table


def _intervals(schema: pa.Schema) -> StructType:
    from pyspark.sql.types import DayTimeIntervalType, StructField, StructType

    names = [field.name for field in schema if pa.types.is_duration(field.type)]
    return StructType([StructField(name, DayTimeIntervalType()) for name in names])
