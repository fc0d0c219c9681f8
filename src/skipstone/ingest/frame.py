"""What Spark does for an ingest: count and sample, bring rows into order, write them file by file."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from skipstone.errors import SchemaError, UsageError
from skipstone.store.place import Place
from skipstone.write.columns import find_path
from skipstone.write.curves import Cluster
from skipstone.write.files import Written, write_files
from skipstone.write.layout import Layout
from skipstone.write.profile import Profile, profile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROW_METADATA: Final = "org.apache.spark.sql.parquet.row.metadata"
"""Where Spark keeps the schema of a data frame in the files it writes."""
_KEY: Final = "_skipstone_key"
_SAMPLE: Final = 20_000
_MORE: Final = 1.2
_MOST_TASKS: Final = 10_000
_SEED: Final = 7


@dataclass(frozen=True, slots=True)
class Survey:
    """What is to be written: how many rows, what a sample of them is like, and so how many files."""

    rows: int
    sample: pa.Table
    profile: Profile
    files: int

    @property
    def bytes(self) -> float:
        """About how many bytes will be written."""
        return self.rows * self.profile.bytes_per_row


def arrow_schema_of(frame: DataFrame) -> pa.Schema:
    """The Arrow types that Spark hands rows over in."""
    from pyspark.errors import PySparkTypeError
    from pyspark.sql.pandas.types import to_arrow_schema

    try:
        found: pa.Schema = to_arrow_schema(frame.schema, timezone="UTC")
    except PySparkTypeError as error:
        hint = "cast the column to another type, or drop it"
        raise SchemaError(f"Spark has no Arrow type for a column: {error}", hint=hint) from error
    return found


def survey(frame: DataFrame, layout: Layout) -> Survey:
    """Count the rows and look at some of them, spread evenly."""
    from pyspark.sql import functions as f

    rows = frame.count()
    share = _SAMPLE / rows if rows else 1.0
    some = frame if share >= 1.0 else frame.where(f.rand(_SEED) < share * _MORE)
    sample = some.limit(_SAMPLE).toArrow()
    found = profile(sample, layout)
    files = max(math.ceil(rows * found.bytes_per_row / layout.target_file_bytes - _STRETCHED), 1)
    return Survey(rows, sample, found, files)


# A last file may grow by half.
_STRETCHED: Final = 0.5


def in_order(frame: DataFrame, layout: Layout, found: Survey) -> DataFrame:
    """The rows in as many Spark partitions as there shall be files, each a range of the order asked for."""
    from pyspark.sql import functions as f

    tasks = min(found.files, _MOST_TASKS)
    schema = found.sample.schema
    keys = [f.col(quoted(schema, name)) for name in (*layout.partition_by, *layout.cluster_by)]
    if layout.curve is not None:
        if _KEY in frame.columns:
            raise UsageError("the name is taken", column=_KEY, hint="rename the column")
        count = len(layout.partition_by)
        along = _along(Cluster.of(found.sample, layout.cluster_by, layout.curve), layout.cluster_by)
        frame = frame.withColumn(_KEY, along(*keys[count:]))
        keys = [*keys[:count], f.col(_KEY)]
    if not keys:
        return frame.coalesce(tasks)
    return frame.repartitionByRange(tasks, *keys).sortWithinPartitions(*keys)


def _along(cluster: Cluster, names: Sequence[str]) -> Any:
    """A function of Spark's: the place on a curve of a row with these values."""
    from pyspark.sql.functions import ArrowUDFType, arrow_udf

    def place(*columns: pa.Array) -> pa.Array:
        return cluster.keys(pa.table(list(columns), list(names)))

    return arrow_udf(place, "long", ArrowUDFType.SCALAR)


@dataclass(frozen=True, slots=True)
class Output:
    """Where tasks write, and how."""

    stage: Place
    job: str
    layout: Layout
    profile: Profile
    expected: float | None
    """Bytes that one task is to write, if that is known."""
    metadata: tuple[tuple[str, str], ...]


def written(frame: DataFrame, output: Output) -> list[Written]:
    """Write the rows, a task for each Spark partition; only files of tasks that have won are told of."""
    told = frame.mapInArrow(_task(output), "files binary").toArrow()
    return [file for body in told["files"].to_pylist() for file in pickle.loads(body)]  # noqa: S301


def _task(output: Output) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = write_files(
            map(_without_key, batches),
            output.stage,
            output.job,
            task_name(),
            output.layout,
            output.profile,
            expected_bytes=output.expected,
            metadata=dict(output.metadata),
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
    return batch.drop_columns([_KEY]) if _KEY in batch.schema.names else batch


def row_metadata(frame: DataFrame, layout: Layout) -> tuple[tuple[str, str], ...]:
    """What Spark would leave in the files, so that it reads back the very same types."""
    from pyspark.sql.types import StructType

    kept = StructType([field for field in frame.schema.fields if field.name not in layout.partition_by])
    return ((ROW_METADATA, kept.json()),)


def quoted(schema: pa.Schema, name: str) -> str:
    """The name of a column, or of a struct's field, as Spark parses it."""
    return ".".join(f"`{part.replace('`', '``')}`" for part in find_path(schema, name))
