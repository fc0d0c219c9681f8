"""One ingest: a data frame becomes files of a lake, all of them or none, and a part of its index."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from skipstone.engine.jobs import Engine
from skipstone.engine.session import spark_session
from skipstone.engine.spark import SparkEngine
from skipstone.errors import ReadError, SchemaError, UsageError
from skipstone.explain.ingest import IngestReport, Seconds
from skipstone.index.lake import IndexedLake
from skipstone.ingest.advised import advised
from skipstone.ingest.frame import Output, arrow_schema_of, in_order, row_metadata, survey, written
from skipstone.ingest.skips import look_ups
from skipstone.lake.append import Append, Source
from skipstone.lake.schema import merge_schemas
from skipstone.store.place import Place, open_root
from skipstone.write.columns import find_path, stored_schema
from skipstone.write.files import Written
from skipstone.write.layout import Layout
from skipstone.write.profile import profile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Progress = Callable[[str, int, int], None]
"""Told the name of the phase, and how many of how many of its parts are done."""
WRITING: Final = "writing"
INDEXING: Final = "indexing"


@dataclass(slots=True)
class Ingest:
    """What is needed to take data frames into one lake."""

    place: Place
    layout: Layout
    session: SparkSession
    index: bool = True
    queries: Any = None
    progress: Progress | None = None
    lake: IndexedLake | None = field(init=False)
    """The lake as it was before; None if there is none yet."""

    def __post_init__(self) -> None:
        self.lake = opened(self.place)
        if self.lake is not None:
            self.layout = fitted(self.layout, self.lake)

    def take(self, frame: DataFrame, sources: Iterable[Source] = ()) -> IngestReport:
        """Write the frame's rows, publish them, and index them."""
        clock = _Clock()
        schema = stored_schema(arrow_schema_of(frame))
        self.layout.check(schema)
        if self.lake is not None:
            check_fits(self.lake, schema)
        with Append.begin(self.place) as append:
            found = survey(frame, self.layout)
            if self.queries is not None:
                self.layout = advised(found, self.layout, self.queries)
                found = replace(found, profile=profile(found.sample, self.layout))
            clock.lap("survey")
            output = Output(
                append.stage,
                append.job,
                self.layout,
                found.profile,
                # Rows that stay in their partitions come in parts of any size.
                found.bytes / found.files if self.layout.partition_by or self.layout.cluster_by else None,
                row_metadata(frame, self.layout),
            )
            files = self._written(in_order(frame, self.layout, found), output) if found.rows else []
            _check_count(found.rows, files, self.place)
            clock.lap("write")
            append.publish([file.key for file in files], sources=sources)
            clock.lap("publish")
        lake = self._indexed() if files else None
        clock.lap("index")
        return IngestReport(
            lake=self.place.uri,
            rows=found.rows,
            sizes=tuple(file.bytes for file in files),
            row_groups=sum(file.row_groups for file in files),
            partitions=len({file.partition for file in files}),
            seconds=clock.seconds(),
            index_bytes=_index_bytes(lake) if lake is not None and self.index else 0,
            skips=look_ups(lake, self.layout, found.sample) if lake is not None else (),
        )

    def _written(self, frame: DataFrame, output: Output) -> list[Written]:
        engine = SparkEngine(self.session, owned=False)
        return engine.follow(lambda: written(frame, output), self._told(WRITING))

    def _indexed(self) -> IndexedLake | None:
        """The lake with its new files, indexed if that is wanted."""
        if self.index:
            engine = SparkEngine(self.session, owned=False)
            self.lake = index_new(self.place, self.layout, engine, self._told(INDEXING))
        else:
            self.lake = opened(self.place)
        return self.lake

    def _told(self, phase: str) -> Callable[[int, int], None] | None:
        progress = self.progress
        return None if progress is None else lambda done, total: progress(phase, done, total)


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
    **layout: Any,
) -> IngestReport:
    """Append a data frame to a directory of Parquet files, laid out for skipping, and index it.

    ``data`` is a Spark data frame, or anything that Arrow can read (a table, pandas, Polars). Rows are
    ordered by ``partition_by`` and ``cluster_by`` (``cluster`` is "sort", "zorder" or "hilbert") and cut into
    files of ``target_file_bytes``. ``blooms`` names columns with bloom filters; with ``queries`` (predicates,
    or a query log) those get some where it would pay. Other fields of the layout go by their names.
    """
    frame = _frame(data, session)
    chosen = make_layout(partition_by, cluster_by, cluster, target_file_bytes, blooms, layout)
    place = open_root(path, storage_options=storage_options)
    return Ingest(place, chosen, frame.sparkSession, index, queries, progress).take(frame)


def make_layout(
    partition_by: Sequence[str],
    cluster_by: Sequence[str],
    cluster: str,
    target_file_bytes: int | None,
    blooms: Sequence[str] | None,
    others: Mapping[str, Any],
) -> Layout:
    """The layout that the words of a caller mean."""
    known = Layout.__dataclass_fields__
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
    return Layout(**lists, cluster=cluster, **size, **others)  # type: ignore[arg-type]


def _frame(data: Any, session: SparkSession | None) -> DataFrame:
    if any(kind.__module__.startswith("pyspark.sql.") for kind in type(data).__mro__):
        if session is not None and data.sparkSession is not session:
            raise UsageError("the data frame is of another session", hint="leave session= out")
        found: DataFrame = data
        return found
    try:
        table = pa.table(data)
    except (TypeError, ValueError, pa.ArrowException) as error:
        hint = "give a Spark data frame, or something that Arrow can read"
        raise UsageError(f"can't ingest a {type(data).__name__}", hint=hint) from error
    return (session or spark_session()).createDataFrame(table)


# -- the lake that is there --------------------------------------------------------------------


def opened(place: Place) -> IndexedLake | None:
    """The lake at a place; None where there is no file yet."""
    try:
        return IndexedLake(place)
    except ReadError:
        # Nothing there, or nothing visible: a store that can't be read fails again when it is written to.
        return None


def fitted(layout: Layout, lake: IndexedLake) -> Layout:
    """The layout with the lake's partitions and, unless some are asked for, its bloom filters."""
    names = lake.partition_names
    if layout.partition_by and tuple(layout.partition_by) != tuple(names):
        have = ", ".join(names) or "none"
        raise UsageError(
            f"the lake is partitioned by {have}, not by {', '.join(layout.partition_by)}",
            path=lake.uri,
            hint="leave partition_by out: a directory keeps its partitions",
        )
    coverage = lake.index.coverage
    spec = coverage.manifest.spec if coverage is not None else {}
    blooms = layout.blooms or tuple(".".join(path) for path in spec.get("blooms", ()))
    return replace(layout, partition_by=tuple(names), blooms=blooms)


def check_fits(lake: IndexedLake, schema: pa.Schema) -> None:
    """Refuse rows that the lake's files can't be read together with."""
    names = set(lake.partition_names)
    data = pa.schema([field for field in schema if field.name not in names])
    own = pa.schema([field for field in lake.query_schema if field.name not in names])
    missing = names - set(schema.names)
    if missing:
        raise SchemaError("the lake is partitioned by it", path=lake.uri, column=min(missing), hint="add it")
    merge_schemas([(lake.uri, own), ("the new rows", data)])


def index_new(
    place: Place, layout: Layout, engine: Engine, progress: Callable[[int, int], None] | None = None
) -> IndexedLake | None:
    """The lake as it is now, its new files indexed as the others are, or else by default."""
    lake = opened(place)
    if lake is None:
        return None
    coverage = lake.index.coverage
    spec = coverage.manifest.spec if coverage is not None else {}
    wanted = {find_path(lake.schema, name) for name in layout.blooms}
    if spec and {tuple(path) for path in spec["blooms"]} >= wanted:
        lake.index.refresh(engine=engine, progress=progress)
    else:
        lake.index.build(blooms=list(layout.blooms) or None, engine=engine, progress=progress)
    return lake


def _check_count(rows: int, files: Sequence[Written], place: Place) -> None:
    """Refuse to publish other rows than were counted: the source has changed, or doesn't repeat itself."""
    found = sum(file.rows for file in files)
    if found != rows:
        raise ReadError(
            f"{rows:,} rows were counted and {found:,} written",
            path=place.uri,
            hint="the source changes while it is read, or gives other rows each time: persist() it first",
        )


def _index_bytes(lake: IndexedLake) -> int:
    coverage = lake.index.coverage
    return 0 if coverage is None else sum(note.size for note in coverage.manifest.segments)


class _Clock:
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
