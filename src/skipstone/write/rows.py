"""Rows to ingest, whichever engine orders and writes them: their survey, and the files they become."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, cast

import pyarrow as pa

from skipstone.engine.jobs import SMALL_BYTES, Engine, EngineChoice, LocalEngine, choose_engine
from skipstone.errors import SkipstoneError, UsageError
from skipstone.parquet.write.files import WrittenFile, sort_batch, write_files
from skipstone.parquet.write.layout import PageLayout
from skipstone.parquet.write.profile import Profile, profile
from skipstone.store.store import Store
from skipstone.write.lakes import cluster_metadata

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from skipstone.iceberg.writing.target import Target
    from skipstone.typing import DataLike, EngineLike
    from skipstone.write.readers import FileSource


ROW_METADATA: Final = "org.apache.spark.sql.parquet.row.metadata"
"""The key-value metadata in which Spark stores a data frame's schema."""
SAMPLE: Final = 20_000
# The last file can grow by half.
_LAST_FILE_SLACK: Final = 0.5


@dataclass(frozen=True, slots=True)
class RowSurvey:
    """Row count, sample and profile of rows, and the number of files to write."""

    rows: int
    sample: pa.Table
    profile: Profile
    files: int

    @classmethod
    def of(cls, rows: int, sample: pa.Table, layout: PageLayout) -> RowSurvey:
        """Profile a sample of rows as they are stored."""
        ordered = sort_batch(sample, layout)
        sample_profile = profile(ordered, layout)
        size = rows * sample_profile.bytes_per_row / layout.target_file_bytes
        return cls(rows, ordered, sample_profile, max(math.ceil(size - _LAST_FILE_SLACK), 1))

    @property
    def bytes(self) -> float:
        """Estimated size of the files."""
        return self.rows * self.profile.bytes_per_row

    @property
    def memory_bytes(self) -> float:
        """Estimated size of the rows in memory."""
        return self.rows * int(self.sample.nbytes) / max(int(self.sample.num_rows), 1)


@dataclass(frozen=True, slots=True)
class FileOutput:
    """Where and how tasks write their files."""

    stage: Store
    job: str
    layout: PageLayout
    profile: Profile
    expected: float | None
    """Bytes per task; None if tasks differ in size."""
    metadata: tuple[tuple[str, str], ...] = ()
    target: Target | None = None
    """The Iceberg table to write to; None for a directory."""

    def write(self, batches: Iterable[pa.RecordBatch], task: str) -> list[WrittenFile]:
        """Write the rows of one task, in their order."""
        return write_files(
            batches,
            self.stage,
            self.job,
            task,
            self.layout,
            self.profile,
            expected_bytes=self.expected,
            metadata=dict(self.metadata),
            shape=self.target,
        )


class Rows(Protocol):
    """Rows that an engine surveys, orders and writes."""

    @property
    def schema(self) -> pa.Schema:
        """Schema in which the rows are stored."""

    @property
    def intervals(self) -> list[str]:
        """Columns of intervals, which are stored as numbers."""

    @property
    def engine(self) -> Engine:
        """The engine, which starts when it is first used."""

    def check(self, streaming: SkipstoneError) -> None:
        """Raise an error for rows that the engine can't ingest, ``streaming`` for those that never end."""

    def metadata(self, layout: PageLayout) -> tuple[tuple[str, str], ...]:
        """Key-value metadata of the files of a directory."""

    def survey(
        self, layout: PageLayout, to_stored: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None
    ) -> RowSurvey:
        """Count and sample the rows; ``to_stored`` converts them to what is written."""

    def write(
        self, survey: RowSurvey, output: FileOutput, progress: Callable[[int, int], None]
    ) -> list[WrittenFile]:
        """Order the rows and write them; return the files of successful attempts."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


def is_frame(data: Any) -> bool:
    """Whether data is a Spark data frame."""
    return is_of(data, "pyspark.sql.")


def is_of(data: Any, module: str) -> bool:
    """Whether data has a type of a module."""
    return any(kind.__module__.startswith(module) for kind in type(data).__mro__)


def choose_ingest_engine(
    engine: EngineLike, session: SparkSession | None, threads: int | None, data: Any = None
) -> EngineChoice:
    """Return the engine of an ingest and the reason for it; nothing is started."""
    chosen = choose_engine(engine, threads=threads)
    kind = chosen.engine
    if session is not None:
        if engine not in ("auto", "spark") or threads is not None:
            other = "threads" if threads is not None else "engine"
            raise UsageError(f"session= and {other}= can't be combined", hint="omit one of them")
        return EngineChoice(session, "session is set")
    if is_frame(data) and not is_of(kind, "pyspark."):
        if kind != "spark" and engine != "auto":
            hint = 'omit engine=, or pass frame.toArrow() with engine="local"'
            raise UsageError("a Spark data frame can't be ingested on local threads", hint=hint)
        return EngineChoice("spark", "requested" if engine == "spark" else "data is a Spark data frame")
    if kind == "local":
        return EngineChoice(LocalEngine(threads), chosen.reason)
    if threads is not None:
        raise UsageError("threads= applies to local threads only", hint='use engine="local"')
    if kind != "spark" and not isinstance(kind, LocalEngine) and not is_of(kind, "pyspark."):
        hint = 'use "auto", "spark", "local" or a Spark session'
        raise UsageError(f"{type(kind).__name__} can't run an ingest", hint=hint)
    return chosen


def settle(data: DataLike, choice: EngineChoice) -> tuple[DataLike, EngineChoice]:
    """Return the data, and the choice for its size; a stream is read until that is known."""
    if not choice.by_size:
        return data, choice
    from skipstone.write.frame import as_table

    rows: Any = data
    if not isinstance(rows, pa.RecordBatchReader):
        if not (is_of(rows, "pyarrow.") and hasattr(rows, "scanner")):
            table = as_table(rows)
            return table, choice.for_input(table.nbytes)
        rows = pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches())
    first: list[pa.RecordBatch] = []
    size = 0
    for batch in rows:
        first.append(batch)
        size += batch.nbytes
        if size >= SMALL_BYTES:
            whole = pa.RecordBatchReader.from_batches(rows.schema, chain(first, rows))
            return whole, choice.for_input(size)
    return pa.Table.from_batches(first, rows.schema), choice.for_input(size)


def open_rows(data: DataLike, engine: EngineLike) -> Rows:
    """Return the rows of a data frame, table or stream; Spark is started only by their survey."""
    if isinstance(engine, LocalEngine):
        from skipstone.write.local import LocalRows, to_batches

        return LocalRows(*to_batches(data), engine=engine)
    from skipstone.write.frame import SparkRows

    return SparkRows(data, None if engine == "spark" else cast("SparkSession", engine))


def start_engine(engine: EngineLike) -> AbstractContextManager[Engine]:
    """Return the engine of an ingest of files; a Spark session that is started stays."""
    if isinstance(engine, LocalEngine):
        return nullcontext(engine)
    from skipstone.engine.session import spark_session
    from skipstone.engine.spark import SparkEngine

    session = spark_session() if engine == "spark" else cast("SparkSession", engine)
    return SparkEngine(session, owned=False)


def open_file_rows(files: FileSource, engine: Engine) -> Rows:
    """Return the rows of files, which Spark reads in its tasks."""
    if isinstance(engine, LocalEngine):
        from skipstone.write.local import LocalRows

        return LocalRows(files.schema, files.batches(engine.parallelism), engine=engine)
    from skipstone.engine.spark import SparkEngine
    from skipstone.write.frame import SparkRows

    assert isinstance(engine, SparkEngine)
    return SparkRows(files.to_frame(engine.session))


def files_metadata(schema: str | None, layout: PageLayout) -> tuple[tuple[str, str], ...]:
    """Return Spark's own key-value metadata, which restores the original types, and the clustering."""
    own = () if schema is None else ((ROW_METADATA, schema),)
    return (*own, *cluster_metadata(layout))


def task_bytes(survey: RowSurvey, layout: PageLayout, target: Target | None = None) -> float | None:
    """Bytes per task; None without an order, where tasks have any size."""
    ordered = layout.partition_by or layout.cluster_by or (target is not None and target.partition_columns)
    return survey.bytes / survey.files if ordered else None
