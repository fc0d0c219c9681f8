"""One ingest into an Iceberg table: a data frame becomes data files, and these one snapshot."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from skipstone.engine.jobs import Engine
from skipstone.engine.spark import SparkEngine
from skipstone.errors import SchemaError, SkipstoneError, UsageError
from skipstone.iceberg.catalogs import load_table
from skipstone.iceberg.writing.commit import JOB, append
from skipstone.iceberg.writing.target import NewFile, Target, check_columns
from skipstone.parquet.write.columns import find_path
from skipstone.parquet.write.files import Written
from skipstone.parquet.write.layout import CODECS, PageLayout
from skipstone.parquet.write.profile import profile
from skipstone.scan.lake import Table as LakeTable
from skipstone.write.frame import FrameOutput, FrameSurvey, in_order, quoted, rows_schema, survey, written
from skipstone.write.job import (
    INDEXING,
    WRITING,
    Clock,
    MonotoneProgress,
    check_count,
    make_layout,
    task_bytes,
)
from skipstone.write.lakes import index_bytes
from skipstone.write.lookups import advised, look_ups
from skipstone.write.overwrite import Everything, Matching, Overwrite, PartitionOverwrite, Rewriting
from skipstone.write.overwrite import overwrite as overwrite_files
from skipstone.write.report import IngestReport, LookUps

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from skipstone.typing import CatalogLike, IngestProgress, PredicateLike, QueryLog, StorageOptions, StrPath


MODES: Final = ("append", "overwrite")
OVERWRITES: Final = ("all", "partitions")


def ingest_table(
    frame: DataFrame,
    table: StrPath | LakeTable | Table,
    *,
    catalog: CatalogLike | None = None,
    mode: str = "append",
    overwrite: str | None = None,
    where: PredicateLike = None,
    branch: str = "main",
    properties: Mapping[str, str] | None = None,
    queries: QueryLog | None = None,
    index: bool = True,
    progress: IngestProgress | None = None,
    storage_options: StorageOptions | None = None,
    **layout: Any,
) -> IngestReport:
    """Append a data frame to a table, or replace rows with it, as one snapshot; see ``ingest``."""
    found = open_target(table, catalog)
    how = replacing(mode, overwrite, where)
    chosen = table_layout(found, layout)
    work = TableIngest(found, chosen, how, branch, properties or {}, index, queries, progress)
    report = work.take(frame, storage_options)
    if isinstance(table, LakeTable):
        table.refresh()
    return report


def open_target(table: StrPath | LakeTable | Table, catalog: CatalogLike | None = None) -> Table:
    """The table that is meant, as it is now."""
    from pyiceberg.table import StaticTable
    from pyiceberg.table import Table as PyicebergTable

    if isinstance(table, LakeTable):
        table = table.table
    if not isinstance(table, PyicebergTable):
        return load_table(table, getattr(catalog, "iceberg", catalog))
    if isinstance(table, StaticTable):
        hint = "open it by its name in a catalog"
        raise UsageError("a metadata file can't be written to", path=table.metadata.location, hint=hint)
    return table.refresh()


def replacing(mode: str, overwrite: str | None, where: PredicateLike) -> Overwrite | None:
    """What is to be replaced; None for an append."""
    if mode not in MODES:
        raise UsageError(f"there is no mode {mode!r}", hint=f"give one of {', '.join(MODES)}")
    if mode == "append":
        if overwrite is not None or where is not None:
            raise UsageError("an append replaces nothing", hint='give mode="overwrite"')
        return None
    if overwrite not in (None, *OVERWRITES):
        problem = f"nobody knows how to overwrite {overwrite!r}"
        raise UsageError(problem, hint=f"give one of {', '.join(OVERWRITES)}, or where=")
    if where is not None:
        if overwrite is not None:
            raise UsageError("both overwrite= and where= are given", hint="leave one of them out")
        from skipstone.predicate import predicate

        return Matching(predicate(where))
    return PartitionOverwrite() if overwrite == "partitions" else Everything()


@dataclass(slots=True)
class TableIngest:
    """What is needed to take a data frame into a table."""

    table: Table
    layout: PageLayout
    how: Overwrite | None = None
    branch: str = "main"
    properties: Mapping[str, str] = field(default_factory=dict)
    index: bool = True
    queries: QueryLog | None = None
    progress: IngestProgress | None = None

    def take(self, frame: DataFrame, storage_options: StorageOptions | None = None) -> IngestReport:
        """Write the frame's rows, commit them, and index their files."""
        name = ".".join(self.table.name())
        if frame.isStreaming:
            hint = 'use frame.writeStream.format("skipstone")'
            raise UsageError("a stream never ends", path=name, hint=hint)
        clock = Clock()
        target = Target.of(self.table, self.layout.cluster_by, storage_options)
        layout = self.layout
        check_schema(frame.schema, target)
        layout.check(target.schema)
        if self.how is not None:
            self.how.check(target)
        job = secrets.token_hex(10)
        with SparkEngine(frame.sparkSession, owned=False) as engine:
            found = engine.follow(lambda: survey(frame, layout, stored(target)))
            if self.queries is not None:
                layout = advised(found, layout, self.queries)
                found = replace(found, profile=profile(found.sample, layout))
            clock.lap("survey")
            try:
                files = self._written(frame, target, job, layout, found, engine)
            except BaseException:
                clear(target, job)
                raise
            clock.lap("write")
            new = [target.new_file(file) for file in files]
            number, replaced, moved = self._committed(target, new, job, layout, found, engine)
            clear(target, job, kept=[*new, *moved])
            clock.lap("publish")
            problem, skips, size = self._settled(layout, found, engine) if number is not None else ("", (), 0)
            clock.lap("index")
        return IngestReport(
            lake=name,
            rows=found.rows,
            sizes=tuple(file.bytes for file in files),
            row_groups=sum(file.row_groups for file in files),
            partitions=len({file.note.key for file in files}),
            seconds=clock.seconds(),
            index_bytes=size,
            skips=skips,
            index_problem=problem,
            snapshot=number,
            replaced=replaced,
            cluster_by=layout.cluster_by,
        )

    def _written(
        self,
        frame: DataFrame,
        target: Target,
        job: str,
        layout: PageLayout,
        found: FrameSurvey,
        engine: SparkEngine,
    ) -> list[Written]:
        if not found.rows:
            return []
        parted = partition_of(frame, target)
        each = found.bytes / found.files if parted is not None else task_bytes(found, layout)
        output = FrameOutput(target.store, job, layout, found.profile, each, (), target)
        told = MonotoneProgress(WRITING, self.progress)
        ordered = in_order(frame, layout, found, parted)
        files = engine.follow(lambda: written(ordered, output), told)
        told.end()
        check_count(found.rows, files, target.name)
        return files

    def _committed(
        self,
        target: Target,
        files: Sequence[NewFile],
        job: str,
        layout: PageLayout,
        found: FrameSurvey,
        engine: SparkEngine,
    ) -> tuple[int | None, int, Sequence[NewFile]]:
        """The snapshot, how many files it dropped, and those that hold what stays of them."""
        told = {**self.properties, JOB: job}
        if self.how is None:
            return append(self.table, target, files, properties=told, branch=self.branch), 0, ()
        rewriting = Rewriting(target, layout, found.profile, job)
        done = overwrite_files(
            self.table, self.how, files, rewriting, engine, branch=self.branch, properties=told
        )
        return done.snapshot, done.replaced, done.moved

    def _settled(
        self, layout: PageLayout, found: FrameSurvey, engine: SparkEngine
    ) -> tuple[str, tuple[LookUps, ...], int]:
        """Index the new files, and see how well they skip; what fails is told, for the rows are in."""
        if self.branch != "main":
            return "", (), 0
        try:
            lake = LakeTable(self.table)
            size = 0
            if self.index:
                told = MonotoneProgress(INDEXING, self.progress)
                size = index_table(lake, layout, engine, told)
                told.end()
            return "", look_ups(lake, layout, found.sample) if found.rows else (), size
        except SkipstoneError as error:
            return str(error), (), 0


def check_schema(schema: StructType, target: Target) -> None:
    """Refuse rows that the table can't take, before anything is computed."""
    from pyspark.sql.types import DayTimeIntervalType

    for one in schema.fields:
        if isinstance(one.dataType, DayTimeIntervalType):
            hint = "cast it to a number"
            raise SchemaError("Iceberg has no intervals", path=target.name, column=one.name, hint=hint)
    check_columns(rows_schema(schema), target.schema, target.name)


def stored(target: Target) -> Callable[[pa.Table], pa.Table]:
    """Rows as the table's files have them."""

    def made(table: pa.Table) -> pa.Table:
        batches = [target.fitted(batch) for batch in table.to_batches()]
        return pa.Table.from_batches(batches, target.schema)

    return made


def partition_of(frame: DataFrame, target: Target) -> Column | None:
    """What tells a frame's rows of different partitions apart; None if there is but one."""
    from pyspark.sql import functions as f
    from pyspark.sql.functions import arrow_udf

    names = [name for name in target.partition_columns if name in frame.columns]
    if not names:
        return None

    def label(*columns: pa.Array) -> pa.Array:
        return target.labels(pa.RecordBatch.from_arrays(list(columns), names))

    return arrow_udf(label, "string")(*(f.col(quoted(target.schema, name)) for name in names))


def clear(target: Target, job: str, kept: Sequence[NewFile] = ()) -> None:
    """Delete what a job's lost tries have left; what can't be deleted stays invisible."""
    with suppress(SkipstoneError):
        target.store.delete(target.leftovers(job, kept))


def index_table(lake: LakeTable, layout: PageLayout, engine: Engine, progress: Any = None) -> int:
    """Index a table's new files as the others are, or else by default; the index's bytes."""
    if lake.index.coverage is not None:
        lake.index.refresh(engine=engine, progress=progress)
    else:
        blooms = [".".join(find_path(lake.schema, name)) for name in layout.blooms]
        lake.index.build(blooms=blooms or None, engine=engine, progress=progress)
    return index_bytes(lake)


_NUMBERS: Final = {
    "target_file_bytes": "write.target-file-size-bytes",
    "row_group_rows": "write.parquet.row-group-limit",
    "row_group_bytes": "write.parquet.row-group-size-bytes",
    "page_rows": "write.parquet.page-row-limit",
}
_CODEC: Final = "write.parquet.compression-codec"
_LEVEL: Final = "write.parquet.compression-level"
_BLOOM: Final = "write.parquet.bloom-filter-enabled.column."


def table_layout(table: Table, given: Mapping[str, Any]) -> PageLayout:
    """The layout of a table's files; partitions are the spec's affair, and the sort order is the default."""
    if given.get("partition_by"):
        hint = "leave partition_by out; a table's spec is changed with pyiceberg's update_spec"
        raise UsageError("a table has its own partition spec", path=".".join(table.name()), hint=hint)
    chosen = {name: value for name, value in given.items() if value is not None and name != "partition_by"}
    told = table.properties
    for name, key in _NUMBERS.items():
        if key in told:
            chosen.setdefault(name, int(told[key]))
    codec = told.get(_CODEC, "").lower().replace("uncompressed", "none")
    if "compression" not in chosen and codec in CODECS:
        chosen["compression"] = codec
        if told.get(_LEVEL, "").lstrip("-").isdigit():
            chosen.setdefault("compression_level", int(told[_LEVEL]))
    blooms = [
        key.removeprefix(_BLOOM) for key, value in told.items() if key.startswith(_BLOOM) and value == "true"
    ]
    return make_layout(
        (),
        chosen.pop("cluster_by", None) or sort_columns(table),
        chosen.pop("cluster", "sort"),
        chosen.pop("target_file_bytes", None),
        chosen.pop("blooms", None) or blooms,
        chosen,
    )


def sort_columns(table: Table) -> Sequence[str]:
    """The columns of a table's sort order; a bucket is no order, so what follows one is left out."""
    names: dict[str, None] = {}
    for one in table.sort_order().fields:
        name = table.schema().find_column_name(one.source_id)
        if name is None or str(one.transform).startswith("bucket"):
            break
        if str(one.transform) != "void":
            names[name] = None
    return list(names)
