"""One ingest: a data frame becomes files of a lake, all of them or none, and a part of its index."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from skipstone.engine.spark import SparkEngine
from skipstone.errors import ConflictError, ReadError, SkipstoneError, UsageError
from skipstone.lake.append import Append, JournalSource
from skipstone.lake.journal import claim
from skipstone.parquet.write.files import Written
from skipstone.parquet.write.layout import PageLayout
from skipstone.parquet.write.profile import profile
from skipstone.scan.lake import Lake, Table
from skipstone.store.store import Store
from skipstone.write.frame import (
    FrameOutput,
    FrameSurvey,
    frame_of,
    in_order,
    row_metadata,
    rows_schema,
    survey,
    written,
)
from skipstone.write.lakes import (
    check_fits,
    check_store,
    fitted,
    index_bytes,
    index_new,
    lake_store,
    opened,
    refuse_overwrite,
    refuse_stream,
)
from skipstone.write.lookups import advised, look_ups
from skipstone.write.report import IngestReport, LookUps, Seconds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Progress = Callable[[str, int, int], None]
"""Told the name of the phase, and how many of how many of its parts are done."""
WRITING: Final = "writing"
INDEXING: Final = "indexing"


@dataclass(slots=True)
class Ingest:
    """What is needed to take data frames into one lake."""

    store: Store
    layout: PageLayout
    session: SparkSession
    index: bool = True
    queries: Any = None
    progress: Progress | None = None
    evolve: bool = False
    lake: Lake | None = field(init=False)
    """The lake as it was before; None if there is none yet."""

    def __post_init__(self) -> None:
        check_store(self.store)
        self.lake = opened(self.store)

    def take(
        self,
        frame: DataFrame,
        sources: Sequence[JournalSource] = (),
        *,
        before_publish: Callable[[], None] = lambda: None,
    ) -> IngestReport:
        """Write the frame's rows, publish them unless ``before_publish`` objects, and index them."""
        if frame.isStreaming:
            raise refuse_stream(self.store.uri)
        clock = Clock()
        schema = rows_schema(frame.schema)
        layout = self.layout
        if self.lake is not None:
            layout = fitted(layout, self.lake, schema)
            check_fits(self.lake, schema, evolve=self.evolve)
        layout.check(schema)
        with Append.begin(self.store) as append, SparkEngine(self.session, owned=False) as engine:
            claim(self.store, append, sources)
            found = engine.follow(lambda: survey(frame, layout))
            if self.queries is not None:
                layout = advised(found, layout, self.queries)
                found = replace(found, profile=profile(found.sample, layout))
            clock.lap("survey")
            files: list[Written] = []
            if found.rows:
                metadata = row_metadata(frame.schema, layout)
                output = FrameOutput(
                    append.stage, append.job, layout, found.profile, task_bytes(found, layout), metadata
                )
                told = MonotoneProgress(WRITING, self.progress)
                ordered = in_order(frame, layout, found)
                files = engine.follow(lambda: written(ordered, output), told)
                told.end()
            check_count(found.rows, files, self.store.uri)
            clock.lap("write")
            before_publish()
            self._check_again(layout, schema)
            if files or sources:
                append.publish([file.key for file in files], sources=sources)
            clock.lap("publish")
            problem, skips = self._settled(layout, found, engine) if files else ("", ())
            clock.lap("index")
        indexed = self.index and self.lake is not None
        return IngestReport(
            lake=self.store.uri,
            rows=found.rows,
            sizes=tuple(file.bytes for file in files),
            row_groups=sum(file.row_groups for file in files),
            partitions=len({file.partition for file in files}),
            seconds=clock.seconds(),
            index_bytes=index_bytes(self.lake) if self.lake is not None and indexed and files else 0,
            skips=skips,
            index_problem=problem,
            cluster_by=layout.cluster_by,
            clustered_as_before=layout.cluster_by != self.layout.cluster_by,
        )

    def _check_again(self, layout: PageLayout, schema: pa.Schema) -> None:
        """Refuse what doesn't fit any more: another job may have begun the lake meanwhile, or changed it."""
        lake = opened(self.store)
        if lake is None:
            return
        names = tuple(lake.partition_names)
        if names != layout.partition_by:
            problem = f"another job has partitioned it by {', '.join(names) or 'nothing'} meanwhile"
            raise ConflictError(problem, path=lake.uri, hint="run this one again")
        check_fits(lake, schema, evolve=self.evolve)

    def _settled(
        self, layout: PageLayout, found: FrameSurvey, engine: SparkEngine
    ) -> tuple[str, tuple[LookUps, ...]]:
        """Index the new files, and see how well they skip; what fails is told, for the rows are in."""
        try:
            if self.index:
                told = MonotoneProgress(INDEXING, self.progress)
                self.lake = index_new(self.store, layout, engine, told)
                told.end()
            else:
                self.lake = opened(self.store)
            return "", look_ups(self.lake, layout, found.sample) if self.lake is not None else ()
        except SkipstoneError as error:
            return str(error), ()


def task_bytes(found: FrameSurvey, layout: PageLayout) -> float | None:
    """Bytes that each task is to write; rows that stay in their partitions come in parts of any size."""
    return found.bytes / found.files if layout.partition_by or layout.cluster_by else None


def ingest(
    data: Any,
    path: Any,
    *,
    partition_by: Sequence[str] = (),
    cluster_by: Sequence[str] = (),
    cluster: str = "sort",
    target_file_bytes: int | None = None,
    blooms: Sequence[str] | None = None,
    queries: Any = None,
    index: bool = True,
    session: SparkSession | None = None,
    storage_options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    catalog: Any = None,
    evolve: bool = False,
    **layout: Any,
) -> IngestReport:
    """Write a data frame to a directory of Parquet files or an Iceberg table, laid out for skipping.

    ``data`` is a Spark data frame, or anything that Arrow can read (a table, pandas, Polars). Rows are
    ordered by ``partition_by`` and ``cluster_by`` (``cluster`` is "sort", "zorder" or "hilbert") and cut into
    files of ``target_file_bytes``. ``blooms`` names columns with bloom filters; with ``queries`` (predicates,
    or a query log) those get some where it would pay. Other fields of the layout go by their names.

    ``path`` is a directory, which is appended to; or a table: one that is open, or its name in a ``catalog``.
    For tables see :func:`skipstone.write.table_job.ingest_table`. A directory that has files keeps its
    partitions, and its clustering unless ``cluster_by`` names another; new columns need ``evolve``.
    """
    if catalog is not None or is_table(path):
        from skipstone.write.table_job import ingest_table

        if evolve:
            hint = "add columns to the table first: table.table.update_schema()"
            raise UsageError("only a directory takes new columns with evolve=True", hint=hint)
        return ingest_table(
            frame_of(data, session),
            path,
            catalog=catalog,
            target_file_bytes=target_file_bytes,
            queries=queries,
            index=index,
            progress=progress,
            storage_options=storage_options,
            partition_by=partition_by,
            cluster_by=cluster_by,
            cluster=cluster,
            blooms=blooms,
            **layout,
        )
    chosen = make_layout(partition_by, cluster_by, cluster, target_file_bytes, blooms, layout)
    store = lake_store(path, storage_options)
    frame = frame_of(data, session)
    return Ingest(store, chosen, frame.sparkSession, index, queries, progress, evolve).take(frame)


def is_table(x: Any) -> bool:
    """Whether something is an open Iceberg table, of ours or pyiceberg's."""
    pyiceberg = any(kind.__module__.startswith("pyiceberg.table") for kind in type(x).__mro__)
    return pyiceberg or isinstance(x, Table)


def make_layout(
    partition_by: Sequence[str],
    cluster_by: Sequence[str],
    cluster: str,
    target_file_bytes: int | None,
    blooms: Sequence[str] | None,
    others: Mapping[str, Any],
) -> PageLayout:
    """The layout that the words of a caller mean."""
    if others.get("mode", "append") != "append":
        raise refuse_overwrite("")
    known = PageLayout.__dataclass_fields__
    unknown = sorted(set(others) - set(known))
    if unknown:
        hint = f"there are {', '.join(known)}"
        raise UsageError(f"a layout has no {', '.join(unknown)}", hint=hint)
    named = {"partition_by": partition_by, "cluster_by": cluster_by, "blooms": blooms or ()}
    for name, value in named.items():
        if isinstance(value, str):
            raise UsageError(f"{name}={value!r}", hint="give a list of column names")
    size = {} if target_file_bytes is None else {"target_file_bytes": target_file_bytes}
    lists = {name: tuple(value) for name, value in named.items()}
    return PageLayout(**lists, cluster=cluster, **size, **others)  # type: ignore[arg-type]


def check_count(rows: int, files: Sequence[Written], path: str) -> None:
    """Refuse to publish other rows than were counted: the source has changed, or doesn't repeat itself."""
    found = sum(file.rows for file in files)
    if found != rows:
        raise ReadError(
            f"{rows:,} rows were counted and {found:,} written",
            path=path,
            hint="the source changes while it is read, or gives other rows each time: persist() it first",
        )


class Clock:
    """Seconds of each phase."""

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
    """Progress of one phase, in numbers that only grow and end at the total."""

    def __init__(self, phase: str, progress: Progress | None) -> None:
        self._phase, self._progress = phase, progress
        self._last = (0, 0)

    def __call__(self, done: int, total: int) -> None:
        # Spark learns of further stages as it goes, and forgets those that it could skip.
        step = max(done, self._last[0]), max(total, self._last[1])
        if self._progress is not None and step != self._last:
            self._last = step
            self._progress(self._phase, *step)

    def end(self) -> None:
        """Tell that it is done."""
        total = max(*self._last, 1)
        self(total, total)
