"""The Spark side of an ingest: count and sample the rows, order them, write one file per task."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, cast

import numpy as np
import pyarrow as pa

from skipstone.engine.arrow_types import (
    durations_as_int64,
    engine_schema,
    to_engine_batch,
    to_stored_batch,
)
from skipstone.engine.session import require_pyspark, spark_session
from skipstone.engine.spark import SparkEngine, map_batches
from skipstone.errors import SchemaError, SkipstoneError, UsageError
from skipstone.parquet.write.columns import find_path, find_type, stored_schema
from skipstone.parquet.write.files import WrittenFile
from skipstone.parquet.write.layout import PageLayout
from skipstone.parquet.write.order import Cluster
from skipstone.predicate.values import cast_exactly
from skipstone.store.options import dump_with_credentials
from skipstone.write.lakes import check_names
from skipstone.write.local import RowSample
from skipstone.write.rows import SAMPLE, FileOutput, RowSurvey, files_metadata, is_frame, is_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from skipstone.iceberg.writing.target import Target
    from skipstone.typing import DataLike


_KEY: Final = "_skipstone_key"
_PARTITION: Final = "_skipstone_partition"
# Per task.
_SAMPLE_BYTES: Final = 64 * 2**20
_MOST_TASKS: Final = 10_000
_SEED: Final = 7
# monotonically_increasing_id() has the number of the row in its lower bits.
_ROW_BITS: Final = 33

ToStored = Callable[[pa.RecordBatch], pa.RecordBatch]


class SparkRows:
    """Rows of a data frame, or of a table for which Spark is started when they are surveyed."""

    def __init__(self, data: DataLike, session: SparkSession | None = None) -> None:
        self._session = session
        self._table: pa.Table | None = None
        if is_frame(data):
            self.frame = to_frame(data, session)
            types = self.frame.schema
            self.schema = rows_schema(types)
            self.intervals = interval_columns(types)
        else:
            self._table = arrow_rows(data)
            self.schema = stored_schema(durations_as_int64(self._table.schema))
            self.intervals = [one.name for one in self._table.schema if pa.types.is_duration(one.type)]

    @cached_property
    def frame(self) -> DataFrame:
        """The data frame."""
        assert self._table is not None
        return to_frame(self._table, self._session)

    @cached_property
    def engine(self) -> SparkEngine:
        """The session as an engine."""
        return SparkEngine(self.frame.sparkSession, owned=False)

    def check(self, streaming: SkipstoneError) -> None:
        """Refuse a stream, and types that Spark lacks."""
        if self._table is not None:
            spark_types(self._table.schema)
        elif self.frame.isStreaming:
            raise streaming

    def metadata(self, layout: PageLayout) -> tuple[tuple[str, str], ...]:
        """Return Spark's own metadata, and the clustering."""
        return row_metadata(self.frame.schema, layout)

    def survey(self, layout: PageLayout, to_stored: ToStored | None = None) -> RowSurvey:
        """Count and sample the rows in one pass, or without Spark if they are in memory."""
        if self._table is None:
            return self.engine.follow(lambda: survey(self.frame, layout, to_stored))
        sample = RowSample()
        for batch in self._table.to_batches():
            sample.add(batch)
        few = sample.table(self._table.slice(0, 0).to_batches() or _no_rows(self._table.schema))
        return RowSurvey.of(sample.rows, _stored(few, to_stored), layout)

    def write(
        self, survey: RowSurvey, output: FileOutput, progress: Callable[[int, int], None]
    ) -> list[WrittenFile]:
        """Order the rows and write them, one file per task."""
        partition = None if output.target is None else partition_of(self.frame, output.target)
        ordered = order_rows(self.frame, output.layout, survey, partition)
        return self.engine.follow(lambda: write_frame(ordered, output), progress)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if "engine" in self.__dict__:
            self.engine.close()


def interval_columns(schema: StructType) -> list[str]:
    """Return the columns of intervals."""
    from pyspark.sql.types import DayTimeIntervalType

    return [field.name for field in schema.fields if isinstance(field.dataType, DayTimeIntervalType)]


def _no_rows(schema: pa.Schema) -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_arrays([pa.array([], one.type) for one in schema], schema=schema)]


def _stored(sample: pa.Table, to_stored: ToStored | None) -> pa.Table:
    batches = [(to_stored or to_stored_batch)(to_stored_batch(batch)) for batch in sample.to_batches()]
    empty = (to_stored or to_stored_batch)(to_stored_batch(_no_rows(sample.schema)[0]))
    return pa.Table.from_batches([*batches, empty])


def partition_of(frame: DataFrame, target: Target) -> Column | None:
    """Return a column that labels the partition of each row; None if the table is not partitioned."""
    from pyspark.sql import functions as f
    from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]

    names = [name for name in target.partition_columns if name in frame.columns]
    if not names:
        return None

    def label(*columns: pa.Array) -> pa.Array:
        return target.labels(pa.RecordBatch.from_arrays(list(columns), names))

    key: Column = arrow_udf(label, "string")(*(f.col(quote_column(target.schema, name)) for name in names))
    return key


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
    return stored_schema(durations_as_int64(pa.schema(fields)))


def survey(frame: DataFrame, layout: PageLayout, to_stored: ToStored | None = None) -> RowSurvey:
    """Count the rows and sample all partitions in one pass.

    The number of rows is not known while they are sampled. The i-th row of a partition is kept with a chance
    of k / i, where k is smaller for each next partition, so that the driver receives few rows however many
    there are; it then drops rows until all have had the same chance.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    seen = Observation()
    number = f.monotonically_increasing_id().bitwiseAND(f.lit((1 << _ROW_BITS) - 1))
    chance = f.lit(float(SAMPLE)) / (f.spark_partition_id() + 1) / (number + 1)
    some = frame.observe(seen, f.count(f.lit(1)).alias("rows")).withColumn(_KEY, chance)
    some = some.where(f.rand(_SEED) < f.col(_KEY))
    # Packed as bytes: toArrow() fails on a NULL struct with a non-nullable field.
    bodies = map_batches(some, _pack, "rows binary").toArrow()["rows"].to_pylist()
    batches = [batch for body in bodies for batch in pa.ipc.open_stream(body)]
    rows = int(seen.get["rows"])
    if not batches:
        return RowSurvey.of(rows, _stored(rows_schema(frame.schema).empty_table(), to_stored), layout)
    table = pa.Table.from_batches(batches)
    chances = np.minimum(np.asarray(table.column(_KEY)), 1.0)
    same = np.random.default_rng(_SEED).random(len(table)) * chances < SAMPLE / rows
    return RowSurvey.of(rows, _stored(table.drop_columns([_KEY]).filter(pa.array(same)), to_stored), layout)


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


def order_rows(
    frame: DataFrame, layout: PageLayout, survey: RowSurvey, partition: Column | None = None
) -> DataFrame:
    """Repartition the rows by range and sort them: one Spark partition per file.

    ``partition`` labels the partition of each row, for tables whose layout has no ``partition_by``.
    """
    from pyspark.sql import functions as f

    tasks = min(survey.files, _MOST_TASKS)
    schema = survey.sample.schema
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
            Cluster.of(survey.sample, layout.cluster_by, layout.curve), layout.cluster_by, schema
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
        values = [cast_exactly(column, type) for column, type in zip(columns, types, strict=True)]
        return cluster.keys(pa.table(values, list(names)))

    return arrow_udf(position, "long")


def write_frame(frame: DataFrame, output: FileOutput) -> list[WrittenFile]:
    """Write the rows, one task per Spark partition, and return the files of successful attempts only."""
    results = map_batches(frame, _task(dump_with_credentials(output)), "files binary").toArrow()
    return [file for body in results["files"].to_pylist() for file in pickle.loads(body)]  # noqa: S301


def _task(output_bytes: bytes) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        output: FileOutput = pickle.loads(output_bytes)  # noqa: S301
        files = output.write(map(_without_key, batches), task_name())
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
    return files_metadata(type(schema)(fields).json(), layout)


def quote_column(schema: pa.Schema, name: str) -> str:
    """Quote the name of a column or nested field for Spark."""
    return ".".join(f"`{part.replace('`', '``')}`" for part in find_path(schema, name))


def to_frame(data: DataLike, session: SparkSession | None = None) -> DataFrame:
    """Return a Spark data frame; pandas, Polars and Arrow tables are converted."""
    if is_frame(data):
        frame = cast("DataFrame", data)
        if session is not None and frame.sparkSession is not session:
            raise UsageError("data frame belongs to another Spark session", hint="omit session=")
        return frame
    table = arrow_rows(data)
    schema = spark_types(table.schema)
    from skipstone.engine.spark_types import arrow_schema, to_spark_table

    rows = to_spark_table(table, arrow_schema(schema))
    session = session or spark_session()
    return session.createDataFrame(rows, schema) if table.num_rows else session.createDataFrame([], schema)


def arrow_rows(data: Any) -> pa.Table:
    """Convert data to an Arrow table with the types of an engine."""
    table = as_table(data)
    check_names(table.schema.names)
    if not table.num_columns:
        raise UsageError("data has no columns", hint="pass a table with at least one column")
    schema = engine_schema(table.schema)
    return pa.Table.from_batches([to_engine_batch(batch, schema) for batch in table.to_batches()], schema)


def as_table(data: Any) -> pa.Table:
    """Convert data to an Arrow table; a pandas index becomes columns, and a lazy frame is collected."""
    hint = "pass a data frame, a list of dictionaries, a lake, or anything that pyarrow.table() accepts"
    if isinstance(data, str | Path):
        hint = "for files, use sk.ingest_new(source, lake), or read them first, as with pyarrow.csv.read_csv"
    try:
        if is_of(data, "skipstone.") and hasattr(data, "scan"):
            data = data.scan()
        if isinstance(data, list) and data and all(isinstance(one, pa.RecordBatch) for one in data):
            return pa.Table.from_batches(data)
        if isinstance(data, list):
            # Every key of any row is a column.
            return pa.Table.from_struct_array(pa.array(_dictionaries(data)))
        if is_of(data, "polars.") and hasattr(data, "collect"):
            data = data.collect()
        if is_of(data, "pandas."):
            # As to_parquet does: an index becomes columns, unless it only numbers the rows. A named one is a
            # column too: to_parquet stores it in pandas metadata, which a lake's files don't have.
            names = [name for name in data.index.names if name is not None]
            table = pa.Table.from_pandas(data, preserve_index=True if names else None)
            _refuse_periods(table.schema)
            return table
        return pa.table(data)
    except OverflowError as error:
        hint = "pass integers beyond 64 bits as decimal.Decimal"
        raise UsageError(f"{type(data).__name__} has an integer that is too large", hint=hint) from error
    except (TypeError, ValueError, AttributeError, pa.ArrowException) as error:
        # pyarrow's words for other types only list what it takes.
        why = f": {error}" if isinstance(data, list) or hasattr(data, "__arrow_c_stream__") else ""
        raise UsageError(f"{type(data).__name__} can't be written as rows{why}", hint=hint) from error


def _dictionaries(rows: list[Any]) -> list[Any]:
    """Refuse a list of anything but rows."""
    other = next((row for row in rows if not isinstance(row, Mapping)), None)
    if rows and other is None and None not in rows:
        return rows
    problem = "list has no rows, and so no columns"
    if rows:
        problem = f"list must hold dictionaries, but holds {type(other).__name__}"
    raise UsageError(problem, hint="pass a list of dictionaries or of record batches")


def _refuse_periods(schema: pa.Schema) -> None:
    """Refuse periods of pandas, of which only numbers would be stored."""
    for field in schema:
        if getattr(field.type, "extension_name", None) == "pandas.period":
            hint = f"convert the column first: frame[{field.name!r}].dt.to_timestamp()"
            raise SchemaError("pandas periods can't be ingested", column=field.name, hint=hint)


def spark_types(schema: pa.Schema) -> StructType:
    """Return the Spark schema of Arrow rows; types that Spark lacks are an error."""
    require_pyspark()
    from pyspark.sql.types import DayTimeIntervalType, StructField, StructType

    from skipstone.engine.spark_types import spark_schema

    names = [field.name for field in schema if pa.types.is_duration(field.type)]
    intervals = StructType([StructField(name, DayTimeIntervalType()) for name in names])
    return spark_schema(schema, schema, intervals)
