"""Ingest rows into an Iceberg table as one snapshot."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from skipstone.engine.jobs import Engine, EngineChoice, EngineUse, check_stop
from skipstone.engine.stopping import stoppable
from skipstone.errors import SchemaError, SkipstoneError, UsageError, did_you_mean
from skipstone.iceberg.catalogs import load_table
from skipstone.iceberg.metadata import integer_property
from skipstone.iceberg.writing.commit import JOB, append, check_properties
from skipstone.iceberg.writing.outcome import CommitState, interrupts_noted
from skipstone.iceberg.writing.target import NewFile, Target, check_columns, stored_columns
from skipstone.parquet.write.columns import find_path
from skipstone.parquet.write.files import WrittenFile
from skipstone.parquet.write.layout import CODECS, PageLayout, check_file_count
from skipstone.parquet.write.profile import profile
from skipstone.scan.table import Table as LakeTable
from skipstone.write.job import (
    INDEXING,
    MODES,
    WRITING,
    Clock,
    MonotoneProgress,
    check_count,
    index_engine,
    make_layout,
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
from skipstone.write.rows import FileOutput, Rows, RowSurvey, open_rows, settle, task_bytes

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from skipstone.typing import (
        CatalogLike,
        DataLike,
        IngestProgress,
        PredicateLike,
        QueryLog,
        StorageOptions,
        StrPath,
    )


Publish = Callable[[Sequence[NewFile], Mapping[str, str], CommitState], int | None]
"""Commits files with properties of the snapshot, and returns its id."""
OVERWRITES: Final = ("all", "partitions")


def ingest_table(
    data: DataLike,
    table: StrPath | LakeTable | Table,
    *,
    choice: EngineChoice,
    catalog: CatalogLike | None = None,
    mode: str = "append",
    overwrite: str | None = None,
    where: PredicateLike = None,
    branch: str = "main",
    properties: Mapping[str, str] | None = None,
    queries: QueryLog | None = None,
    index: bool = True,
    force: bool = False,
    progress: IngestProgress | None = None,
    storage_options: StorageOptions | None = None,
    **layout: Any,
) -> IngestReport:
    """Append rows to a table, or replace rows with it, as one snapshot; see ``ingest``."""
    target = open_target(table, catalog)
    how = parse_overwrite(mode, overwrite, where)
    chosen = table_layout(target, layout)
    summary = check_properties(properties)
    work = TableIngest(target, chosen, "", how, branch, summary, index, queries, progress, force=force)
    if key_columns(target):
        from skipstone.table.files import keyed_ingest

        work.publish = keyed_ingest(table if isinstance(table, LakeTable) else LakeTable(target), how, branch)
    data, choice = settle(data, choice)
    if isinstance(data, list | pa.Table):
        from skipstone.write.frame import as_table

        data = _typed(as_table(data), target)
    work.why = choice.reason
    report = work.run(open_rows(data, choice.engine), storage_options)
    if isinstance(table, LakeTable):
        table.refresh()
    return report


def _typed(rows: pa.Table, table: Table) -> pa.Table:
    """Give columns without any value the types of the table."""
    types = {one.name: one.type for one in stored_columns(table.schema())}
    for at, one in enumerate(rows.schema):
        if pa.types.is_null(one.type) and one.name in types:
            rows = rows.set_column(at, one.name, pa.nulls(len(rows), types[one.name]))
    return rows


def open_target(table: StrPath | LakeTable | Table, catalog: CatalogLike | None = None) -> Table:
    """Open the current version of the target table."""
    from pyiceberg.table import Table as PyicebergTable

    if isinstance(table, LakeTable):
        table = table.table
    if not isinstance(table, PyicebergTable):
        return load_table(table, getattr(catalog, "iceberg", catalog))
    check_catalog(table)
    return table.refresh()


def check_catalog(table: Table) -> None:
    """Refuse a table without a catalog, which can't be written."""
    from pyiceberg.table import StaticTable

    if isinstance(table, StaticTable):
        hint = "open the table by its name in a catalog"
        raise UsageError(
            "table opened from a metadata file is read-only", path=table.metadata.location, hint=hint
        )


def parse_overwrite(mode: str, overwrite: str | None, where: PredicateLike) -> Overwrite | None:
    """Return the rows to overwrite; None for an append."""
    if mode not in MODES:
        hint = did_you_mean(mode, MODES, f"use one of {', '.join(MODES)}")
        raise UsageError(f"unknown mode {mode!r}", hint=hint)
    if mode == "append":
        if overwrite is not None or where is not None:
            raise UsageError("overwrite= and where= don't apply to appends", hint='use mode="overwrite"')
        return None
    if overwrite not in (None, *OVERWRITES):
        problem = f"unknown overwrite mode {overwrite!r}"
        hint = did_you_mean(str(overwrite), OVERWRITES, f"use one of {', '.join(OVERWRITES)}, or where=")
        raise UsageError(problem, hint=hint)
    if where is not None:
        if overwrite is not None:
            raise UsageError("overwrite= and where= can't be combined", hint="omit one of them")
        from skipstone.core.filter import fix_clock
        from skipstone.predicate import predicate

        return PredicateOverwrite(fix_clock(predicate(where)))
    return PartitionOverwrite() if overwrite == "partitions" else FullOverwrite()


@dataclass(slots=True)
class TableIngest:
    """Ingests rows into a table."""

    table: Table
    layout: PageLayout
    why: str = "requested"
    """Why the rows' engine runs."""
    how: Overwrite | None = None
    branch: str = "main"
    properties: Mapping[str, str] = field(default_factory=dict)
    index: bool = True
    queries: QueryLog | None = None
    progress: IngestProgress | None = None
    publish: Publish | None = None
    """Commits the files of a keyed table; None for other tables."""
    force: bool = False
    """Accept very many files."""

    def run(self, rows: Rows, storage_options: StorageOptions | None = None) -> IngestReport:
        """Write the rows, commit them, and index their files."""
        name = ".".join(self.table.name())
        clock = Clock()
        hint = 'use frame.writeStream.format("skipstone")'
        rows.check(UsageError("streaming data frames can't be ingested", path=name, hint=hint))
        target = Target.of(self.table, self.layout.cluster_by, storage_options)
        layout = self.layout
        check_schema(rows.schema, rows.intervals, target)
        layout.check(target.schema)
        if self.how is not None:
            self.how.check(target)
        job, state = secrets.token_hex(10), CommitState()
        with stoppable("no row was written") as stop, rows:
            survey = rows.survey(layout, target.fitted)
            if self.queries is not None:
                layout = add_blooms(survey, layout, self.queries)
                survey = replace(survey, profile=profile(survey.sample, layout))
            clock.lap("survey")
            check_file_count(survey.files, name, force=self.force)
            try:
                files = self._write(rows, target, job, layout, survey)
                check_stop()
                clock.lap("write")
                new = [target.new_file(file) for file in files]
                with interrupts_noted(name, state):
                    number, replaced, moved = self._commit(target, new, job, layout, survey, rows, state)
            except BaseException:
                if not state.sent:
                    delete_leftovers(target, job)
                raise
            if number is not None:
                stop.outcome = f"rows were committed as snapshot {number}; their index may be incomplete"
            delete_leftovers(target, job, committed=[*new, *moved])
            clock.lap("publish")
            problem, skips, size = (
                self._index_and_measure(layout, survey, index_engine(rows, files))
                if number is not None
                else ("", (), 0)
            )
            clock.lap("index")
        return IngestReport(
            lake=name,
            rows=survey.rows,
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
            engine=EngineUse(rows.engine.name, self.why).compared(bytes=survey.memory_bytes),
        )

    def _write(
        self, rows: Rows, target: Target, job: str, layout: PageLayout, survey: RowSurvey
    ) -> list[WrittenFile]:
        if not survey.rows:
            return []
        each = task_bytes(survey, layout, target)
        output = FileOutput(target.store, job, layout, survey.profile, each, target=target)
        progress = MonotoneProgress(WRITING, self.progress)
        files = rows.write(survey, output, progress)
        progress.end(len(files))
        check_count(survey.rows, files, target.name)
        return files

    def _commit(
        self,
        target: Target,
        files: Sequence[NewFile],
        job: str,
        layout: PageLayout,
        survey: RowSurvey,
        rows: Rows,
        state: CommitState,
    ) -> tuple[int | None, int, Sequence[NewFile]]:
        """Commit, and return the snapshot, the number of files removed and the files rewritten."""
        summary = {**self.properties, JOB: job}
        if self.publish is not None:
            return self.publish(files, summary, state), 0, ()
        if self.how is None:
            number = append(self.table, target, files, properties=summary, branch=self.branch, state=state)
            return number, 0, ()
        rewriter = Rewriter(target, layout, survey.profile, job)
        result = overwrite_files(
            self.table,
            self.how,
            files,
            rewriter,
            rows.engine,
            branch=self.branch,
            properties=summary,
            state=state,
        )
        return result.snapshot, result.replaced, result.moved

    def _index_and_measure(
        self, layout: PageLayout, survey: RowSurvey, engine: Engine
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
            return "", measure_look_ups(lake, layout, survey.sample) if survey.rows else (), size
        except SkipstoneError as error:
            return str(error), (), 0


def check_schema(schema: pa.Schema, intervals: Sequence[str], target: Target) -> None:
    """Refuse rows that don't fit the table's schema, before anything is computed."""
    if intervals:
        hint = "cast the column to a number"
        problem = "Iceberg does not support intervals"
        raise SchemaError(problem, path=target.name, column=intervals[0], hint=hint)
    check_columns(schema, target.schema, target.name)


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
    read = partial(integer_property, properties, table=".".join(table.name()))
    for name, key in _NUMBERS.items():
        if key in properties and name not in chosen:
            chosen[name] = read(key, 0, least=1)
    codec = properties.get(_CODEC, "").lower().replace("uncompressed", "none")
    if "compression" not in chosen and codec in CODECS:
        chosen["compression"] = codec
        if _LEVEL in properties and "compression_level" not in chosen:
            chosen["compression_level"] = read(_LEVEL, 0, least=-100)
    schema = table.schema()
    blooms = [name for name in key_columns(table) if str(schema.find_type(name)) != "boolean"]
    blooms += [
        key.removeprefix(_BLOOM)
        for key, value in properties.items()
        if key.startswith(_BLOOM) and value == "true" and key.removeprefix(_BLOOM) not in blooms
    ]
    return make_layout(
        (),
        chosen.pop("cluster_by", None) or sort_columns(table),
        chosen.pop("cluster", "sort"),
        chosen.pop("target_file_bytes", None),
        chosen.pop("blooms", None) or blooms,
        chosen,
    )


def key_columns(table: Table) -> list[str]:
    """Return the columns of a table's key."""
    schema = table.schema()
    return [str(schema.find_column_name(number)) for number in schema.identifier_field_ids]


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
