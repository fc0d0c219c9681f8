"""Ingest rows into a directory: all of their files are published together, then indexed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa

from skipstone.core.plain import as_bytes
from skipstone.engine.jobs import Engine, EngineUse, LocalEngine, check_stop
from skipstone.engine.stopping import stoppable
from skipstone.errors import ConflictError, ReadError, SkipstoneError, UsageError, did_you_mean, require
from skipstone.lake.append import Append, JournalSource
from skipstone.lake.journal import claim
from skipstone.parquet.write.files import WrittenFile
from skipstone.parquet.write.layout import PageLayout, check_file_count, check_target_size
from skipstone.parquet.write.profile import profile
from skipstone.scan.lake import Lake
from skipstone.scan.table import Table
from skipstone.store.store import Store
from skipstone.write.lakes import (
    check_fits,
    check_partitions,
    check_target,
    fit_layout,
    index_bytes,
    index_new_files,
    lake_store,
    open_existing,
    partition_order,
    refuse_overwrite,
    refuse_stream,
)
from skipstone.write.lookups import add_blooms, measure_look_ups
from skipstone.write.report import IngestReport, LookUps, Seconds
from skipstone.write.rows import (
    FileOutput,
    Rows,
    RowSurvey,
    choose_ingest_engine,
    open_rows,
    settle,
    task_bytes,
)

if TYPE_CHECKING:
    from pyiceberg.table import Table as IcebergTable
    from pyspark.sql import SparkSession

    from skipstone.typing import (
        CatalogLike,
        ClusterOrder,
        Compression,
        DataLike,
        EngineLike,
        IngestProgress,
        PredicateLike,
        QueryLog,
        SizeLike,
        StorageOptions,
        StrPath,
    )

MODES: Final = ("append", "overwrite")
WRITING: Final = "writing"
INDEXING: Final = "indexing"


@dataclass(slots=True)
class Ingest:
    """Ingests rows into one directory."""

    store: Store
    layout: PageLayout
    why: str = "requested"
    """Why the rows' engine runs."""
    index: bool = True
    queries: QueryLog | None = None
    progress: IngestProgress | None = None
    evolve: bool = False
    force: bool = False
    """Accept very many files."""
    lake: Lake | None = field(init=False)
    """The lake before the ingest; None if it does not exist yet."""

    def __post_init__(self) -> None:
        check_target(self.store)
        self.lake = open_existing(self.store)

    def run(
        self,
        rows: Rows,
        sources: Sequence[JournalSource] = (),
        *,
        before_publish: Callable[[], None] = lambda: None,
    ) -> IngestReport:
        """Write the rows, publish them unless ``before_publish`` objects, and index them."""
        clock = Clock()
        rows.check(refuse_stream(self.store.uri))
        layout = self.layout
        if self.lake is not None:
            layout = fit_layout(layout, self.lake, rows.schema)
            check_fits(self.lake, rows.schema, evolve=self.evolve)
        layout.check(rows.schema)
        with stoppable("no row was written") as stop, rows, Append.begin(self.store) as append:
            claim(self.store, append, sources)
            survey = rows.survey(layout)
            if self.queries is not None:
                layout = add_blooms(survey, layout, self.queries)
                survey = replace(survey, profile=profile(survey.sample, layout))
            clock.lap("survey")
            check_file_count(survey.files, self.store.uri, force=self.force)
            files: list[WrittenFile] = []
            if survey.rows:
                output = FileOutput(
                    append.stage,
                    append.job,
                    layout,
                    survey.profile,
                    task_bytes(survey, layout),
                    rows.metadata(layout),
                )
                progress = MonotoneProgress(WRITING, self.progress)
                files = rows.write(survey, output, progress)
                progress.end(len(files))
            check_count(survey.rows, files, self.store.uri)
            clock.lap("write")
            before_publish()
            self._check_again(layout, rows.schema, files)
            check_stop()
            if files or sources:
                append.publish([file.key for file in files], sources=sources)
                stop.outcome = f"{survey.rows:,} rows were published; their index may be incomplete"
            clock.lap("publish")
            problem, skips = self._index_and_measure(layout, survey, files, rows) if files else ("", ())
            clock.lap("index")
        indexed = self.index and self.lake is not None
        return IngestReport(
            lake=self.store.uri,
            rows=survey.rows,
            sizes=tuple(file.bytes for file in files),
            row_groups=sum(file.row_groups for file in files),
            partitions=len({file.partition for file in files}),
            seconds=clock.seconds(),
            index_bytes=index_bytes(self.lake) if self.lake is not None and indexed and files else 0,
            skips=skips,
            index_problem=problem,
            cluster_by=layout.cluster_by,
            clustered_as_before=layout.cluster_by != self.layout.cluster_by,
            engine=EngineUse(rows.engine.name, self.why).compared(bytes=survey.memory_bytes),
        )

    def _check_again(self, layout: PageLayout, schema: pa.Schema, files: Sequence[WrittenFile]) -> None:
        """Check the rows against the lake as it is now: another job may have created or changed it."""
        lake = open_existing(self.store)
        names = layout.partition_by if lake is None else partition_order(lake)
        if lake is not None and names != layout.partition_by:
            columns = ", ".join(names) or "no column"
            problem = f"lake was partitioned by {columns} by a concurrent job"
            raise ConflictError(problem, path=lake.uri, hint="run the ingest again")
        if lake is not None:
            check_fits(lake, schema, evolve=self.evolve)
        if names:
            check_partitions(lake, [file.key for file in files], schema)

    def _index_and_measure(
        self, layout: PageLayout, survey: RowSurvey, files: Sequence[WrittenFile], rows: Rows
    ) -> tuple[str, tuple[LookUps, ...]]:
        """Index the new files and measure look-ups; errors are returned, because the rows are published."""
        try:
            if self.index:
                progress = MonotoneProgress(INDEXING, self.progress)
                self.lake = index_new_files(self.store, layout, index_engine(rows, files), progress)
                progress.end()
            else:
                self.lake = open_existing(self.store)
            return "", measure_look_ups(self.lake, layout, survey.sample) if self.lake is not None else ()
        except SkipstoneError as error:
            return str(error), ()


# Files that take less time to index than a Spark job takes to start.
_FEW_FILES, _FEW_BYTES = 16, 64 << 20


def index_engine(rows: Rows, files: Sequence[WrittenFile]) -> Engine:
    """Return the engine that indexes new files: that of the rows, or local threads for a few small files."""
    few = len(files) <= _FEW_FILES and sum(file.bytes for file in files) <= _FEW_BYTES
    return LocalEngine() if few else rows.engine


def ingest(
    data: DataLike,
    path: StrPath | Table | IcebergTable,
    *,
    partition_by: Sequence[str] = (),
    cluster_by: Sequence[str] = (),
    cluster: ClusterOrder = "sort",
    target_file_bytes: SizeLike | None = None,
    row_group_rows: int | None = None,
    row_group_bytes: SizeLike | None = None,
    page_rows: int | None = None,
    compression: Compression | None = None,
    compression_level: int | None = None,
    dictionary: Sequence[str] | None = None,
    blooms: Sequence[str] | None = None,
    bloom_fpp: float | None = None,
    queries: QueryLog | None = None,
    index: bool = True,
    evolve: bool = False,
    force: bool = False,
    engine: EngineLike = "auto",
    threads: int | None = None,
    session: SparkSession | None = None,
    storage_options: StorageOptions | None = None,
    progress: IngestProgress | None = None,
    catalog: CatalogLike | None = None,
    mode: Literal["append", "overwrite"] = "append",
    overwrite: Literal["all", "partitions"] | None = None,
    where: PredicateLike = None,
    branch: str = "main",
    properties: Mapping[str, str] | None = None,
) -> IngestReport:
    """Write rows to a directory of Parquet files or an Iceberg table, laid out for skipping.

    Rows are partitioned and ordered, written as files of the target size, published all at once and indexed.
    Spark does this where it is installed and the rows are at least 64 MB or a session is running; otherwise
    local threads, which spill rows that don't fit into memory.
    Options of the layout that are None are those of the lake or table, or the defaults below.

    Args:
        data: A Spark data frame, a table of pyarrow, pandas, Polars or another Arrow library, or a list of
            ``pyarrow.RecordBatch``; on local threads also a ``pyarrow.RecordBatchReader`` or a
            ``pyarrow.dataset.Dataset``.
        path: A directory, which is created or appended to; an open table; or, with ``catalog``, a table's
            name.
        partition_by: Columns of Hive-style partitions. A directory that has files keeps its own, and a
            table's spec decides for tables.
        cluster_by: Columns to order rows by within partitions. By default those of the previous ingest.
        cluster: ``"sort"``, or the curve ``"zorder"`` or ``"hilbert"`` over up to eight columns.
        target_file_bytes: Target file size; 128 MiB by default. Sizes are bytes, or text such as ``"64MB"``.
        row_group_rows: Maximum rows of a row group; 1,000,000 by default.
        row_group_bytes: Maximum bytes of a row group in memory; 256 MiB by default.
        page_rows: Rows of a page; 2,000 by default.
        compression: The codec; ``"zstd"`` by default.
        compression_level: The level of zstd, gzip or brotli.
        dictionary: Columns with dictionary encoding; by default chosen from a sample.
        blooms: Columns with bloom filters.
        bloom_fpp: False positive rate of bloom filters; 0.01 by default.
        queries: Predicates or the path of a query log: columns that these look up get bloom filters where
            they pay off.
        index: Index the new files.
        evolve: Allow new columns in a directory.
        force: Accept a ``target_file_bytes`` below 1 MiB, and more than 10,000 new files.
        engine: ``"spark"``, ``"local"`` or a Spark session; by default local threads for less than 64 MB,
            else Spark if PySpark and Java are installed.
        threads: Threads of the local engine; one per core by default.
        session: The Spark session; by default the one that is running, or a new one.
        storage_options: Options of the object store.
        progress: Called with the phase, and the number of its finished and of all rows, tasks of Spark, or
            files.
        catalog: The catalog of a table that ``path`` names.
        mode: ``"append"``, or ``"overwrite"`` to replace rows of a table.
        overwrite: What ``mode="overwrite"`` replaces: ``"all"`` rows, or the ``"partitions"`` of the new
            rows.
        where: With ``mode="overwrite"``, replace the rows for which this predicate is TRUE.
        branch: The branch of the table to write to.
        properties: Properties for the summary of the table's snapshot.

    Returns:
        A report of rows, files, sizes and times, and of the share of the lake that look-ups read.

    Examples:
        >>> import pyarrow as pa
        >>> import skipstone as sk
        >>> report = sk.ingest(pa.table({"id": [3, 1, 2]}), "numbers", cluster_by=["id"], engine="local")
        >>> report.rows, report.files, report.engine.name
        (3, 1, 'local')
    """
    layout = layout_options(
        row_group_rows, row_group_bytes, page_rows, compression, compression_level, dictionary, bloom_fpp
    )
    target_bytes = target_size(target_file_bytes, force=force)
    choice = choose_ingest_engine(engine, session, threads, data)
    if catalog is not None or is_table(path):
        require("pyiceberg", "zstandard")
        from skipstone.write.table_job import ingest_table

        if evolve:
            hint = "add columns to the table first: table.table.update_schema()"
            raise UsageError("evolve=True applies to directories only", hint=hint)
        return ingest_table(
            data,
            path,
            choice=choice,
            catalog=catalog,
            mode=mode,
            overwrite=overwrite,
            where=where,
            branch=branch,
            properties=properties,
            target_file_bytes=target_bytes,
            queries=queries,
            index=index,
            force=force,
            progress=progress,
            storage_options=storage_options,
            partition_by=partition_by,
            cluster_by=cluster_by,
            cluster=cluster,
            blooms=blooms,
            **layout,
        )
    if mode not in MODES:
        hint = did_you_mean(mode, MODES, f"use one of {', '.join(MODES)}")
        raise UsageError(f"unknown mode {mode!r}", hint=hint)
    if mode != "append" or overwrite is not None or where is not None:
        raise refuse_overwrite(str(path))
    if branch != "main" or properties is not None:
        raise UsageError(
            "a directory has no branches and no snapshots", hint="leave out branch= and properties="
        )
    chosen = make_layout(partition_by, cluster_by, cluster, target_bytes, blooms, layout)
    store = lake_store(path, storage_options)
    work = Ingest(store, chosen, index=index, queries=queries, progress=progress, evolve=evolve)
    data, choice = settle(data, choice)
    work.why = choice.reason
    return work.run(open_rows(data, choice.engine))


def is_table(x: object) -> bool:
    """Whether ``x`` is an open Iceberg table, of Skipstone or of pyiceberg."""
    pyiceberg = any(kind.__module__.startswith("pyiceberg.table") for kind in type(x).__mro__)
    return pyiceberg or isinstance(x, Table)


def target_size(size: SizeLike | None, *, force: bool) -> int | None:
    """Return the target size of files in bytes; a tiny one must be meant."""
    nbytes = None if size is None else as_bytes(size, "target_file_bytes")
    check_target_size(nbytes, "target_file_bytes", force=force)
    return nbytes


def layout_options(
    row_group_rows: int | None,
    row_group_bytes: SizeLike | None,
    page_rows: int | None,
    compression: Compression | None,
    compression_level: int | None,
    dictionary: Sequence[str] | None,
    bloom_fpp: float | None,
) -> dict[str, Any]:
    """Fields of a layout, without those that are None."""
    options = {
        "row_group_rows": row_group_rows,
        "row_group_bytes": None if row_group_bytes is None else as_bytes(row_group_bytes, "row_group_bytes"),
        "page_rows": page_rows,
        "compression": compression,
        "compression_level": compression_level,
        "dictionary": dictionary if dictionary is None or isinstance(dictionary, str) else tuple(dictionary),
        "bloom_fpp": bloom_fpp,
    }
    return {name: value for name, value in options.items() if value is not None}


def make_layout(
    partition_by: Sequence[str],
    cluster_by: Sequence[str],
    cluster: str,
    target_file_bytes: int | None,
    blooms: Sequence[str] | None,
    others: Mapping[str, Any],
) -> PageLayout:
    """Build the layout from the options of an ingest."""
    if others.get("mode", "append") != "append":
        raise refuse_overwrite("")
    options = PageLayout.__dataclass_fields__
    unknown = sorted(set(others) - set(options))
    if unknown:
        hint = did_you_mean(unknown[0], list(options), f"use one of {', '.join(options)}")
        raise UsageError(f"unknown layout option: {', '.join(unknown)}", hint=hint)
    named = {"partition_by": partition_by, "cluster_by": cluster_by, "blooms": blooms or ()}
    for name, value in named.items():
        if isinstance(value, str):
            raise UsageError(f"{name} must be a list of column names, got the string {value!r}")
    size = {} if target_file_bytes is None else {"target_file_bytes": target_file_bytes}
    lists = {name: tuple(value) for name, value in named.items()}
    return PageLayout(**lists, cluster=cluster, **size, **others)  # type: ignore[arg-type]


def check_count(rows: int, files: Sequence[WrittenFile], path: str) -> None:
    """Refuse to publish a number of rows other than the number counted before writing."""
    total = sum(file.rows for file in files)
    if total != rows:
        raise ReadError(
            f"{rows:,} rows were counted, but {total:,} were written",
            path=path,
            hint="call persist() on a data frame that changes while it is read or is not deterministic",
        )


class Clock:
    """Measures the seconds of each phase."""

    def __init__(self) -> None:
        self._last = time.perf_counter()
        self._laps: dict[str, float] = {}

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self._laps[name] = now - self._last
        self._last = now

    def seconds(self) -> Seconds:
        return Seconds(**self._laps)


class MonotoneProgress:
    """Progress of one phase that never goes backwards and ends at the total."""

    def __init__(self, phase: str, progress: IngestProgress | None) -> None:
        self._phase, self._progress = phase, progress
        self._last = (0, 0)

    def __call__(self, done: int, total: int) -> None:
        # Spark adds stages while it runs, and drops skipped ones.
        step = max(done, self._last[0]), max(total, self._last[1])
        if self._progress is not None and step != self._last:
            self._last = step
            self._progress(self._phase, *step)

    def end(self, least: int = 1) -> None:
        """Report the phase as done; it had at least so many tasks, if Spark was too fast to be asked."""
        total = max(*self._last, least)
        self(total, total)
