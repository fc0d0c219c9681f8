"""Ingest a data frame into an Iceberg table as one snapshot."""

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
from skipstone.parquet.write.files import WrittenFile
from skipstone.parquet.write.layout import CODECS, PageLayout
from skipstone.parquet.write.profile import profile
from skipstone.scan.lake import Table as LakeTable
from skipstone.write.frame import (
    FrameOutput,
    FrameSurvey,
    order_rows,
    quote_column,
    rows_schema,
    survey,
    write_frame,
)
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
from skipstone.write.lookups import add_blooms, measure_look_ups
from skipstone.write.overwrite import (
    FullOverwrite,
    Overwrite,
    PartitionOverwrite,
    PredicateOverwrite,
    Rewriter,
)
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
    target = open_target(table, catalog)
    how = parse_overwrite(mode, overwrite, where)
    chosen = table_layout(target, layout)
    work = TableIngest(target, chosen, how, branch, properties or {}, index, queries, progress)
    report = work.run(frame, storage_options)
    if isinstance(table, LakeTable):
        table.refresh()
    return report


def open_target(table: StrPath | LakeTable | Table, catalog: CatalogLike | None = None) -> Table:
    """Open the current version of the target table."""
    from pyiceberg.table import StaticTable
    from pyiceberg.table import Table as PyicebergTable

    if isinstance(table, LakeTable):
        table = table.table
    if not isinstance(table, PyicebergTable):
        return load_table(table, getattr(catalog, "iceberg", catalog))
    if isinstance(table, StaticTable):
        hint = "open the table by its name in a catalog"
        raise UsageError(
            "table opened from a metadata file is read-only", path=table.metadata.location, hint=hint
        )
    return table.refresh()


def parse_overwrite(mode: str, overwrite: str | None, where: PredicateLike) -> Overwrite | None:
    """Return the rows to overwrite; None for an append."""
    if mode not in MODES:
        raise UsageError(f"unknown mode {mode!r}", hint=f"use one of {', '.join(MODES)}")
    if mode == "append":
        if overwrite is not None or where is not None:
            raise UsageError("overwrite= and where= don't apply to appends", hint='use mode="overwrite"')
        return None
    if overwrite not in (None, *OVERWRITES):
        problem = f"unknown overwrite mode {overwrite!r}"
        raise UsageError(problem, hint=f"use one of {', '.join(OVERWRITES)}, or where=")
    if where is not None:
        if overwrite is not None:
            raise UsageError("overwrite= and where= can't be combined", hint="omit one of them")
        from skipstone.predicate import predicate

        return PredicateOverwrite(predicate(where))
    return PartitionOverwrite() if overwrite == "partitions" else FullOverwrite()


@dataclass(slots=True)
class TableIngest:
    """Ingests a data frame into a table."""

    table: Table
    layout: PageLayout
    how: Overwrite | None = None
    branch: str = "main"
    properties: Mapping[str, str] = field(default_factory=dict)
    index: bool = True
    queries: QueryLog | None = None
    progress: IngestProgress | None = None

    def run(self, frame: DataFrame, storage_options: StorageOptions | None = None) -> IngestReport:
        """Write the frame's rows, commit them, and index their files."""
        name = ".".join(self.table.name())
        if frame.isStreaming:
            hint = 'use frame.writeStream.format("skipstone")'
            raise UsageError("streaming data frames can't be ingested", path=name, hint=hint)
        clock = Clock()
        target = Target.of(self.table, self.layout.cluster_by, storage_options)
        layout = self.layout
        check_schema(frame.schema, target)
        layout.check(target.schema)
        if self.how is not None:
            self.how.check(target)
        job = secrets.token_hex(10)
        with SparkEngine(frame.sparkSession, owned=False) as engine:
            frame_survey = engine.follow(lambda: survey(frame, layout, to_table_rows(target)))
            if self.queries is not None:
                layout = add_blooms(frame_survey, layout, self.queries)
                frame_survey = replace(frame_survey, profile=profile(frame_survey.sample, layout))
            clock.lap("survey")
            try:
                files = self._write(frame, target, job, layout, frame_survey, engine)
            except BaseException:
                delete_leftovers(target, job)
                raise
            clock.lap("write")
            new = [target.new_file(file) for file in files]
            number, replaced, moved = self._commit(target, new, job, layout, frame_survey, engine)
            delete_leftovers(target, job, committed=[*new, *moved])
            clock.lap("publish")
            problem, skips, size = (
                self._index_and_measure(layout, frame_survey, engine) if number is not None else ("", (), 0)
            )
            clock.lap("index")
        return IngestReport(
            lake=name,
            rows=frame_survey.rows,
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

    def _write(
        self,
        frame: DataFrame,
        target: Target,
        job: str,
        layout: PageLayout,
        frame_survey: FrameSurvey,
        engine: SparkEngine,
    ) -> list[WrittenFile]:
        if not frame_survey.rows:
            return []
        partition = partition_of(frame, target)
        each = (
            frame_survey.bytes / frame_survey.files
            if partition is not None
            else task_bytes(frame_survey, layout)
        )
        output = FrameOutput(target.store, job, layout, frame_survey.profile, each, (), target)
        progress = MonotoneProgress(WRITING, self.progress)
        ordered = order_rows(frame, layout, frame_survey, partition)
        files = engine.follow(lambda: write_frame(ordered, output), progress)
        progress.end()
        check_count(frame_survey.rows, files, target.name)
        return files

    def _commit(
        self,
        target: Target,
        files: Sequence[NewFile],
        job: str,
        layout: PageLayout,
        frame_survey: FrameSurvey,
        engine: SparkEngine,
    ) -> tuple[int | None, int, Sequence[NewFile]]:
        """Commit, and return the snapshot, the number of files removed and the files rewritten."""
        summary = {**self.properties, JOB: job}
        if self.how is None:
            return append(self.table, target, files, properties=summary, branch=self.branch), 0, ()
        rewriter = Rewriter(target, layout, frame_survey.profile, job)
        result = overwrite_files(
            self.table, self.how, files, rewriter, engine, branch=self.branch, properties=summary
        )
        return result.snapshot, result.replaced, result.moved

    def _index_and_measure(
        self, layout: PageLayout, frame_survey: FrameSurvey, engine: SparkEngine
    ) -> tuple[str, tuple[LookUps, ...], int]:
        """Index the new files and measure look-ups; errors are returned, because the rows are committed."""
        if self.branch != "main":
            return "", (), 0
        try:
            lake = LakeTable(self.table)
            size = 0
            if self.index:
                progress = MonotoneProgress(INDEXING, self.progress)
                size = index_table(lake, layout, engine, progress)
                progress.end()
            return "", measure_look_ups(lake, layout, frame_survey.sample) if frame_survey.rows else (), size
        except SkipstoneError as error:
            return str(error), (), 0


def check_schema(schema: StructType, target: Target) -> None:
    """Refuse rows that don't fit the table's schema, before anything is computed."""
    from pyspark.sql.types import DayTimeIntervalType

    for column in schema.fields:
        if isinstance(column.dataType, DayTimeIntervalType):
            hint = "cast the column to a number"
            problem = "Iceberg does not support intervals"
            raise SchemaError(problem, path=target.name, column=column.name, hint=hint)
    check_columns(rows_schema(schema), target.schema, target.name)


def to_table_rows(target: Target) -> Callable[[pa.Table], pa.Table]:
    """Return a function that converts rows to the table's schema."""

    def convert(table: pa.Table) -> pa.Table:
        batches = [target.fitted(batch) for batch in table.to_batches()]
        return pa.Table.from_batches(batches, target.schema)

    return convert


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


def delete_leftovers(target: Target, job: str, committed: Sequence[NewFile] = ()) -> None:
    """Delete the files of failed attempts; files that can't be deleted stay invisible."""
    with suppress(SkipstoneError):
        target.store.delete(target.leftovers(job, committed))


def index_table(lake: LakeTable, layout: PageLayout, engine: Engine, progress: Any = None) -> int:
    """Index a table's new files with the existing options, or the defaults; return the size of the index."""
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


def table_layout(table: Table, options: Mapping[str, Any]) -> PageLayout:
    """Return the file layout from options and table properties; the default clustering is the sort order."""
    if options.get("partition_by"):
        hint = "omit partition_by; change the spec with pyiceberg's update_spec"
        raise UsageError("tables define their own partition spec", path=".".join(table.name()), hint=hint)
    chosen = {name: value for name, value in options.items() if value is not None and name != "partition_by"}
    properties = table.properties
    for name, key in _NUMBERS.items():
        if key in properties:
            chosen.setdefault(name, int(properties[key]))
    codec = properties.get(_CODEC, "").lower().replace("uncompressed", "none")
    if "compression" not in chosen and codec in CODECS:
        chosen["compression"] = codec
        if properties.get(_LEVEL, "").lstrip("-").isdigit():
            chosen.setdefault("compression_level", int(properties[_LEVEL]))
    blooms = [
        key.removeprefix(_BLOOM)
        for key, value in properties.items()
        if key.startswith(_BLOOM) and value == "true"
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
    """Return the columns of a table's sort order, up to the first bucket transform, which has no order."""
    names: dict[str, None] = {}
    for sort_field in table.sort_order().fields:
        name = table.schema().find_column_name(sort_field.source_id)
        if name is None or str(sort_field.transform).startswith("bucket"):
            break
        if str(sort_field.transform) != "void":
            names[name] = None
    return list(names)
