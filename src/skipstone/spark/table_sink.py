"""``df.write`` and ``df.writeStream`` into Iceberg tables: tasks write data files, the driver commits them.

``option("catalog", ...)`` names a catalog of pyiceberg's configuration or the path of a warehouse, and
``catalog.*`` are its properties; ``save`` and ``start`` take the table's name. An overwrite replaces all rows
(``overwrite-mode`` static), the partitions that new rows fall into (dynamic), or the rows that ``where``
finds. A micro-batch of a stream is committed once, however often it is tried: its snapshot tells both.
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

from skipstone.engine.jobs import LocalEngine
from skipstone.errors import SkipstoneError, UsageError
from skipstone.iceberg.catalogs import load_table, open_catalog
from skipstone.iceberg.partitions.values import is_unpartitioned
from skipstone.iceberg.writing.commit import JOB, append, summaries
from skipstone.iceberg.writing.target import NewFile, Target
from skipstone.parquet.write.files import write_files
from skipstone.parquet.write.layout import PageLayout
from skipstone.parquet.write.profile import Profile, profile
from skipstone.scan.lake import Table as LakeTable
from skipstone.spark.sink import is_true, layout_options, runs_of
from skipstone.spark.source import CATALOG, STORAGE, taken
from skipstone.store.options import with_credentials
from skipstone.write.frame import as_rows, task_name
from skipstone.write.lakes import refuse_stream
from skipstone.write.overwrite import Everything, Overwrite, Rewriting, overwrite
from skipstone.write.table_job import check_schema, clear, index_table, replacing, table_layout

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyspark.sql.types import StructType

STREAM: Final = "skipstone.stream"
"""The property of a snapshot that tells the streaming query whose batch it is."""
BATCH: Final = "skipstone.batch"
"""The number of that batch."""
_QUERY: Final = "sql.streaming.queryId"
_PROPERTIES: Final = f"{CATALOG}."
_MODES: Final = {"static": "all", "dynamic": "partitions"}


@dataclass
class NewFiles(WriterCommitMessage):
    """What one task wrote, and for which streaming query."""

    files: tuple[NewFile, ...]
    stream: str | None = None


@dataclass(frozen=True, slots=True)
class TableOptions:
    """What ``option(...)`` and ``save`` have said of a table."""

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
    def of(cls, given: dict[str, str]) -> TableOptions:
        """Read the options; those that are left must be a layout's."""
        mode = given.pop("overwrite-mode", None)
        if mode is not None and mode.lower() not in _MODES:
            raise UsageError(f"overwrite-mode is {mode!r}", hint=f"give one of {', '.join(_MODES)}")
        return cls(
            properties=taken(given, _PROPERTIES),
            storage=taken(given, STORAGE),
            catalog=given.pop(CATALOG),
            name=given.pop("path", ""),
            branch=given.pop("branch", "main"),
            index=is_true(given, "index"),
            overwrite=None if mode is None else _MODES[mode.lower()],
            where=given.pop("where", None),
            layout=layout_options(given),
        )

    def load(self) -> Table:
        """The table as it is now."""
        if not self.name:
            raise UsageError("there is no table", hint='name one, as in .save("db.events")')
        return load_table(self.name, open_catalog(self.catalog, make=False, **self.properties))


class Tasks:
    """What tasks do for both kinds of writers; picklable, without the catalog."""

    def __init__(self, options: TableOptions, schema: StructType) -> None:
        self.options = options
        table = options.load()
        self.layout: PageLayout = table_layout(table, options.layout)
        self.target: Target = Target.of(table, self.layout.cluster_by, options.storage)
        check_schema(schema, self.target)
        self.layout.check(self.target.schema)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "target": with_credentials(self.target)}

    def write(self, batches: Iterator[pa.RecordBatch], job: str) -> tuple[NewFile, ...]:
        """Write the rows of one task."""
        target, layout = self.target, self.layout
        rows = (target.fitted(as_rows(batch)) for batch in batches)
        found: list[NewFile] = []
        for number, (run, seen) in enumerate(runs_of(rows, layout, parted=not is_unpartitioned(target.spec))):
            task = f"{task_name()}-{number}"
            written = write_files(run, target.store, job, task, layout, seen, shape=target)
            found += [target.new_file(one) for one in written]
        return tuple(found)

    def replace(
        self, table: Table, how: Overwrite, files: Sequence[NewFile], job: str, told: Mapping[str, str]
    ) -> tuple[NewFile, ...]:
        """Put files in the place of others; those that hold what stays of them."""
        rewriting = Rewriting(self.target, self.layout, self._profile(), job)
        branch = self.options.branch
        done = overwrite(table, how, files, rewriting, LocalEngine(), branch=branch, properties=told)
        return done.moved

    def _profile(self) -> Profile:
        return profile(pa.Table.from_batches([], self.target.schema), self.layout)

    def index(self, table: Table) -> None:
        """Index what is new; what fails costs time only, and the next job makes up for it."""
        if self.options.index and self.options.branch == "main":
            with suppress(SkipstoneError):
                index_table(LakeTable(table), self.layout, LocalEngine())


def _files(messages: Sequence[WriterCommitMessage | None]) -> list[NewFile]:
    return [file for one in messages if isinstance(one, NewFiles) for file in one.files]


# -- batches -----------------------------------------------------------------------------------


class TableWriter(DataSourceArrowWriter):
    """One batch into a table."""

    def __init__(self, given: dict[str, str], schema: StructType, replaces: bool) -> None:
        options = TableOptions.of(given)
        self._how = replacing("overwrite" if replaces else "append", options.overwrite, options.where)
        self._tasks = Tasks(options, schema)
        if self._how is not None:
            self._how.check(self._tasks.target)
        self._job = secrets.token_hex(10)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task."""
        return NewFiles(self._tasks.write(iterator, self._job))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the files of the tasks that have won, and delete those of others."""
        tasks, told = self._tasks, {JOB: self._job}
        files = _files(messages)
        moved: tuple[NewFile, ...] = ()
        try:
            table = tasks.options.load()
        except BaseException:
            clear(tasks.target, self._job)
            raise
        if self._how is None:
            append(table, tasks.target, files, properties=told, branch=tasks.options.branch)
        else:
            moved = tasks.replace(table, self._how, files, self._job, told)
        clear(tasks.target, self._job, kept=[*files, *moved])
        tasks.index(table)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete what was written, unless it was up to a commit to do so.

        A commit that failed has done it; one whose outcome is not known must not have its files deleted.
        """
        if not all(isinstance(one, NewFiles) for one in messages):
            clear(self._tasks.target, self._job)


# -- streams -----------------------------------------------------------------------------------


def make_stream_writer(given: dict[str, str], schema: StructType, replaces: bool) -> DataSourceStreamWriter:
    """What writes a stream, which only a table can take."""
    if CATALOG not in given:
        raise refuse_stream(given.get("path", ""))
    return TableStreamWriter(given, schema, replaces)


class TableStreamWriter(DataSourceStreamArrowWriter):
    """A stream into a table, a snapshot for each micro-batch.

    Spark makes one anew for every commit, so all that a commit needs to know is in the tasks' messages.
    """

    def __init__(self, given: dict[str, str], schema: StructType, replaces: bool) -> None:
        for name in ("checkpointlocation", "queryname"):
            given.pop(name, None)
        options = TableOptions.of(given)
        if options.where is not None or options.overwrite is not None:
            raise UsageError("a stream appends", path=options.name, hint="leave where and overwrite-mode out")
        self._tasks = Tasks(options, schema)
        self._replaces = replaces

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        return NewFiles(self._tasks.write(iterator, secrets.token_hex(10)), context.getLocalProperty(_QUERY))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Commit a micro-batch, unless that was done before a restart: then its files are deleted."""
        tasks, files = self._tasks, _files(messages)
        streams = {one.stream for one in messages if isinstance(one, NewFiles)}
        if not streams:
            return
        stream = streams.pop()
        assert stream is not None
        try:
            table = tasks.options.load()
        except BaseException:
            tasks.target.delete(files)
            raise
        told = {STREAM: stream, BATCH: str(batchId)}
        branch = tasks.options.branch
        if not self._replaces:
            append(
                table,
                tasks.target,
                files,
                properties=told,
                branch=branch,
                done=lambda now: is_done(now, stream, batchId, branch),
            )
        elif is_done(table, stream, batchId, branch):
            tasks.target.delete(files)
        else:
            tasks.replace(table, Everything(), files, secrets.token_hex(10), told)
        tasks.index(table)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Delete what tasks wrote, unless that was up to a commit; tasks that fail do it themselves."""
        if not all(isinstance(one, NewFiles) for one in messages):
            with suppress(SkipstoneError):
                self._tasks.target.delete(_files(messages))


def is_done(table: Table, stream: str, batch: int, branch: str = "main") -> bool:
    """Whether a table has this batch of a stream, or a later one."""
    told = (one for _, one in summaries(table, branch=branch) if one.get(STREAM) == stream)
    return any(int(one.get(BATCH, -1)) >= batch for one in told)
