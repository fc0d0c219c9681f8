"""``df.write`` and ``df.writeStream`` to Iceberg tables: tasks write data files, the driver commits them.

``option("catalog", ...)`` is a catalog in pyiceberg's configuration or the path of a warehouse, and
``catalog.*`` are its properties; ``save`` and ``start`` take the table's name. An overwrite replaces all rows
(``overwrite-mode`` static), the partitions that have new rows (dynamic), or the rows that match ``where``.
A micro-batch of a stream is committed exactly once: its snapshot records the query and the batch.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)

from skipstone.engine.arrow_types import to_stored_batch
from skipstone.engine.jobs import LocalEngine
from skipstone.errors import SkipstoneError, UsageError
from skipstone.iceberg.catalogs import load_table, open_catalog
from skipstone.iceberg.partitions.values import is_unpartitioned
from skipstone.iceberg.writing.commit import JOB, append, summaries
from skipstone.iceberg.writing.target import NewFile, Target
from skipstone.parquet.write.files import write_files
from skipstone.parquet.write.layout import PageLayout
from skipstone.parquet.write.profile import profile
from skipstone.scan.table import Table as LakeTable
from skipstone.spark.sink import is_true, layout_options, runs_of
from skipstone.spark.source import CATALOG, STORAGE, pop_prefixed
from skipstone.store.options import with_credentials
from skipstone.write.frame import interval_columns, rows_schema, task_name
from skipstone.write.lakes import refuse_stream
from skipstone.write.overwrite import FullOverwrite, Overwrite, Rewriter, overwrite
from skipstone.write.table_job import (
    check_schema,
    delete_leftovers,
    index_table,
    parse_overwrite,
    table_layout,
)

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyspark.sql.types import StructType

STREAM: Final = "skipstone.stream"
"""Snapshot property: the streaming query of a batch."""
BATCH: Final = "skipstone.batch"
"""Snapshot property: the number of a batch."""
_QUERY: Final = "sql.streaming.queryId"
_PROPERTIES: Final = f"{CATALOG}."
_MODES: Final = {"static": "all", "dynamic": "partitions"}


@dataclass
class NewFiles(WriterCommitMessage):
    """The files that one task wrote, and its streaming query."""

    files: tuple[NewFile, ...]
    stream: str | None = None


@dataclass(frozen=True, slots=True)
class TableOptions:
    """Options of a write to a table."""

    name: str
    catalog: str
    properties: dict[str, Any]
    storage: dict[str, str]
    branch: str
    index: bool
    overwrite: str | None
    where: str | None
    layout: dict[str, Any]

    @classmethod
    def of(cls, options: dict[str, str]) -> TableOptions:
        """Read the options; all others must be layout options."""
        mode = options.pop("overwrite-mode", None)
        if mode is not None and mode.lower() not in _MODES:
            raise UsageError(f"unknown overwrite-mode {mode!r}", hint=f"use one of {', '.join(_MODES)}")
        return cls(
            properties=pop_prefixed(options, _PROPERTIES),
            storage=pop_prefixed(options, STORAGE),
            catalog=options.pop(CATALOG),
            name=options.pop("path", ""),
            branch=options.pop("branch", "main"),
            index=is_true(options, "index"),
            overwrite=None if mode is None else _MODES[mode.lower()],
            where=options.pop("where", None),
            layout=layout_options(options),
        )

    def load(self) -> Table:
        """Load the current version of the table."""
        if not self.name:
            raise UsageError("table name is missing", hint='pass one to save(), as in .save("db.events")')
        return load_table(self.name, open_catalog(self.catalog, make=False, **self.properties))


class TableTasks:
    """The part of both writers that tasks run; picklable, without the catalog."""

    def __init__(self, options: TableOptions, schema: StructType) -> None:
        self.options = options
        table = options.load()
        self.layout: PageLayout = table_layout(table, options.layout)
        self.target: Target = Target.of(table, self.layout.cluster_by, options.storage)
        check_schema(rows_schema(schema), interval_columns(schema), self.target)
        self.layout.check(self.target.schema)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "target": with_credentials(self.target)}

    def write(self, batches: Iterator[pa.RecordBatch], job: str) -> tuple[NewFile, ...]:
        """Write the rows of one task."""
        target, layout = self.target, self.layout
        rows = (target.fitted(to_stored_batch(batch)) for batch in batches)
        files: list[NewFile] = []
        runs = runs_of(rows, layout, partitioned=not is_unpartitioned(target.spec))
        for number, (run, run_profile) in enumerate(runs):
            task = f"{task_name()}-{number}"
            written = write_files(run, target.store, job, task, layout, run_profile, shape=target)
            files += [target.new_file(file) for file in written]
        return tuple(files)

    def replace(
        self, table: Table, how: Overwrite, files: Sequence[NewFile], job: str, properties: Mapping[str, str]
    ) -> tuple[NewFile, ...]:
        """Commit an overwrite, and return the files with retained rows."""
        empty = profile(pa.Table.from_batches([], self.target.schema), self.layout)
        rewriter = Rewriter(self.target, self.layout, empty, job)
        branch = self.options.branch
        result = overwrite(table, how, files, rewriter, LocalEngine(), branch=branch, properties=properties)
        return result.moved

    def index(self, table: Table) -> None:
        """Index new files; a failure costs time only, and the next job repeats it."""
        if self.options.index and self.options.branch == "main":
            with suppress(SkipstoneError):
                index_table(LakeTable(table), self.layout, LocalEngine())


def _files(messages: Sequence[WriterCommitMessage | None]) -> list[NewFile]:
    return [file for message in messages if isinstance(message, NewFiles) for file in message.files]


# -- batches -----------------------------------------------------------------------------------


class TableWriter(DataSourceArrowWriter):
    """Writes one batch to a table."""

    def __init__(self, spark_options: dict[str, str], schema: StructType, replaces: bool) -> None:
        options = TableOptions.of(spark_options)
        self._how = parse_overwrite("overwrite" if replaces else "append", options.overwrite, options.where)
        self._tasks = TableTasks(options, schema)
        if self._how is not None:
            self._how.check(self._tasks.target)
        self._job = secrets.token_hex(10)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task."""
        return NewFiles(self._tasks.write(iterator, self._job))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the files of successful tasks, and delete all others."""
        tasks, properties = self._tasks, {JOB: self._job}
        files = _files(messages)
        moved: tuple[NewFile, ...] = ()
        try:
            table = tasks.options.load()
        except BaseException:
            delete_leftovers(tasks.target, self._job)
            raise
        if self._how is None:
            append(table, tasks.target, files, properties=properties, branch=tasks.options.branch)
        else:
            moved = tasks.replace(table, self._how, files, self._job, properties)
        delete_leftovers(tasks.target, self._job, committed=[*files, *moved])
        tasks.index(table)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete the written files, unless a commit was attempted.

        A failed commit has deleted them; after a commit with an unknown outcome they must stay.
        """
        if not all(isinstance(message, NewFiles) for message in messages):
            delete_leftovers(self._tasks.target, self._job)


# -- streams -----------------------------------------------------------------------------------


def make_stream_writer(options: dict[str, str], schema: StructType, replaces: bool) -> DataSourceStreamWriter:
    """Return the writer of a stream; only tables support streams."""
    if CATALOG not in options:
        raise refuse_stream(options.get("path", ""))
    return TableStreamWriter(options, schema, replaces)


class TableStreamWriter(DataSourceStreamArrowWriter):
    """Writes a stream to a table, one snapshot per micro-batch.

    Spark creates a new writer for every commit, so commits get all their input from the tasks' messages.
    """

    def __init__(self, spark_options: dict[str, str], schema: StructType, replaces: bool) -> None:
        for name in ("checkpointlocation", "queryname"):
            spark_options.pop(name, None)
        options = TableOptions.of(spark_options)
        if options.where is not None or options.overwrite is not None:
            problem = "where and overwrite-mode don't apply to streams"
            raise UsageError(problem, path=options.name, hint="remove these options")
        self._tasks = TableTasks(options, schema)
        self._replaces = replaces

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        return NewFiles(self._tasks.write(iterator, secrets.token_hex(10)), context.getLocalProperty(_QUERY))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Commit a micro-batch; if it was committed before a restart, delete its files instead."""
        tasks, files = self._tasks, _files(messages)
        streams = {message.stream for message in messages if isinstance(message, NewFiles)}
        if not streams:
            return
        stream = streams.pop()
        assert stream is not None
        try:
            table = tasks.options.load()
        except BaseException:
            tasks.target.delete(files)
            raise
        properties = {STREAM: stream, BATCH: str(batchId)}
        branch = tasks.options.branch
        if not self._replaces:
            append(
                table,
                tasks.target,
                files,
                properties=properties,
                branch=branch,
                done=lambda now: is_done(now, stream, batchId, branch),
            )
        elif is_done(table, stream, batchId, branch):
            tasks.target.delete(files)
        else:
            tasks.replace(table, FullOverwrite(), files, secrets.token_hex(10), properties)
        tasks.index(table)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Delete the written files, unless a commit was attempted; failed tasks delete their own."""
        if not all(isinstance(message, NewFiles) for message in messages):
            with suppress(SkipstoneError):
                self._tasks.target.delete(_files(messages))


def is_done(table: Table, stream: str, batch: int, branch: str = "main") -> bool:
    """Whether this batch of a stream, or a later one, is committed."""
    commits = (summary for _, summary in summaries(table, branch=branch) if summary.get(STREAM) == stream)
    return any(int(summary.get(BATCH, -1)) >= batch for summary in commits)
