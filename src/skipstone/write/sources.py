"""Ingest the files of a source that a lake has not ingested yet."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa

from skipstone.core.plain import as_bytes
from skipstone.errors import ReadError, UsageError
from skipstone.lake.append import JournalSource
from skipstone.lake.directory import is_visible, refuse_part_of_table, refuse_tables
from skipstone.lake.journal import ingested
from skipstone.store.store import ListedFile, Store, open_store
from skipstone.write.job import Ingest, layout_options, make_layout, target_size
from skipstone.write.lakes import lake_store
from skipstone.write.readers import FORMATS, check_options, format_of, open_files
from skipstone.write.report import IngestReport, PipelineReport
from skipstone.write.rows import choose_ingest_engine, open_file_rows, start_engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from skipstone.typing import (
        ClusterOrder,
        Compression,
        EngineLike,
        IngestProgress,
        QueryLog,
        SizeLike,
        StorageOptions,
        StrPath,
    )


@dataclass(frozen=True, slots=True)
class Sources:
    """The files of a source: new, already ingested, and changed since they were ingested."""

    store: Store
    format: str
    new: tuple[ListedFile, ...]
    already_ingested: int
    changed: tuple[str, ...]

    @property
    def bytes(self) -> int:
        """Size of the new files."""
        return sum([entry.size for entry in self.new])

    def journal_sources(self, entries: Sequence[ListedFile]) -> list[JournalSource]:
        """Return what the lake records about ingested files."""
        return _sources(self.store, entries)

    def batches(self, most: int) -> list[list[ListedFile]]:
        """Group the new files into batches of at most ``most`` bytes with the same partition columns."""
        if most < 1:
            raise UsageError(f"batch_bytes must be positive, got {most}")
        batches: list[list[ListedFile]] = []
        size = 0
        for entry in sorted(self.new, key=lambda entry: (_partition_names(entry), entry.key)):
            other = batches and _partition_names(batches[-1][-1]) != _partition_names(entry)
            if not batches or size + entry.size > most or other:
                batches.append([])
                size = 0
            batches[-1].append(entry)
            size += entry.size
        return batches

    def check_same(self, entries: Sequence[ListedFile]) -> None:
        """Raise an error if a file has changed since it was listed."""
        now = {entry.key: entry for entry in self.store.list()}
        for entry in entries:
            if now.get(entry.key) != entry:
                problem = "file changed during the ingest" if entry.key in now else "file no longer exists"
                path = self.store.path(entry.key)
                raise ReadError(problem, path=path, hint="run the ingest again when the file is complete")


def _partition_names(entry: ListedFile) -> tuple[str, ...]:
    folders = entry.key.split("/")[:-1]
    return tuple(folder.partition("=")[0] for folder in folders if "=" in folder)


def find_sources(
    source: Any, lake: Store, format: str | None = None, storage_options: Mapping[str, Any] | None = None
) -> Sources:
    """List a source and compare it with the files that the lake has ingested."""
    if format is not None and format not in FORMATS:
        raise UsageError(f"unknown format {format!r}", hint=f"use one of {', '.join(FORMATS)}")
    store, pattern = open_store(source, storage_options=storage_options)
    _check_apart(store, pattern, lake)
    everything = store.list()
    if not pattern:
        refuse_part_of_table(store)
        refuse_tables(store, everything)
    listed = [entry for entry in everything if is_visible(entry, pattern)]
    if _any_below(store, listed, lake):
        raise _lake_in_source(lake)
    format = format or _format(store, listed)
    # Files without a recognized extension have the requested format.
    listed = [entry for entry in listed if format_of(entry.key) in (format, None)]
    done = ingested(lake)
    uris = {file.uri for file in done}
    new, already_ingested, changed = [], 0, []
    for entry, file in zip(listed, _sources(store, listed), strict=True):
        if file in done:
            already_ingested += 1
        elif file.uri in uris:
            changed.append(file.uri)
        else:
            new.append(entry)
    return Sources(store, format, tuple(new), already_ingested, tuple(changed))


def _check_apart(store: Store, pattern: str, lake: Store) -> None:
    """Refuse a source inside the lake, or the reverse: rows would be ingested repeatedly."""
    if not pattern and _is_below(lake.uri, store):
        raise _lake_in_source(lake)
    if _is_below(store.uri, lake):
        raise UsageError("source is inside the lake", path=store.uri, hint="move the source out of the lake")


def _lake_in_source(lake: Store) -> UsageError:
    return UsageError("lake is inside its own source", path=lake.uri, hint="move the lake out of the source")


def _is_below(path: str, store: Store) -> bool:
    """Whether a path is the root of a store or inside it, with links resolved."""
    above = store.uri
    if store.local:
        path, above = os.path.realpath(path), os.path.realpath(above)
    return f"{path.rstrip('/')}/".startswith(f"{above.rstrip('/')}/")


def _any_below(store: Store, listed: Sequence[ListedFile], lake: Store) -> bool:
    """Whether the lake has one of the files, with links resolved."""
    if not store.local:
        return any(_is_below(store.path(entry.key), lake) for entry in listed)
    # Resolving a path costs a call for each of its directories.
    paths = [store.path(entry.key) for entry in listed]
    links = {path for path in paths if os.path.islink(path)}  # noqa: PTH114
    return any(_is_below(path, lake) for path in links | {os.path.dirname(path) for path in paths})  # noqa: PTH120


def _sources(store: Store, entries: Iterable[ListedFile]) -> list[JournalSource]:
    # A local file is the same by whichever link it is reached.
    root = os.path.realpath(store.uri) if store.local else ""
    paths = ((os.path.join(root, e.key) if root else store.path(e.key), e) for e in entries)  # noqa: PTH118
    return [JournalSource(path, entry.size, repr(entry.version)) for path, entry in paths]


def _format(store: Store, listed: Sequence[ListedFile]) -> str:
    """Infer the format from the file names."""
    formats = {format_of(entry.key): entry.key for entry in reversed(listed)}
    if len(formats) == 1 and None not in formats:
        return str(next(iter(formats)))
    if not formats:
        hint = "check the path; hidden and empty files are ignored"
        raise UsageError("source has no files", path=store.uri, hint=hint)
    names = ", ".join(sorted(f"{name or 'unknown'} ({key})" for name, key in formats.items()))
    problem = f"files have several formats: {names}" if len(formats) > 1 else "file format is unknown"
    raise UsageError(problem, path=store.uri, hint=f"pass format=: one of {', '.join(FORMATS)}")


BATCH_BYTES: Final = 16 * 2**30


def ingest_new(
    source: StrPath,
    path: StrPath,
    *,
    format: Literal["parquet", "csv", "json", "orc"] | None = None,
    schema: str | pa.Schema | None = None,
    read_options: Mapping[str, str] | None = None,
    batch_bytes: SizeLike = BATCH_BYTES,
    on_batch: Callable[[int, int], None] | None = None,
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
) -> PipelineReport:
    """Ingest the files of a source that the lake has not ingested before.

    Files are ingested in batches, each published all at once, so that a run after an interrupted one
    continues where that stopped. Files that have changed since they were ingested are reported and not
    ingested again. The keywords after ``on_batch`` are those of [ingest][skipstone.ingest], which documents
    them.

    Args:
        source: A directory, a file or a glob.
        path: The directory of the lake, which is created if it doesn't exist.
        format: The format of the source; by default by the names of its files.
        schema: The columns to read and their types, as DDL with Spark's types (``"id long, name string"``) or
            a pyarrow schema; by default all columns of the files. CSV columns are matched by the header.
        read_options: Options of CSV files, named as in Spark: ``sep``, ``header``, ``quote``, ``escape``,
            ``nullValue``, ``encoding``.
        batch_bytes: Maximum bytes of source files in a batch; 16 GiB by default.
        on_batch: Called with the number of the batch and the number of all batches.

    Returns:
        A report with one ingest report for each batch.

    Examples:
        >>> import skipstone as sk
        >>> report = sk.ingest_new("events", "copy", cluster_by=["event_id"])
        >>> report.new, report.rows
        (4, 1000)
        >>> sk.ingest_new("events", "copy").new
        0
    """
    layout = layout_options(
        row_group_rows, row_group_bytes, page_rows, compression, compression_level, dictionary, bloom_fpp
    )
    target_bytes = target_size(target_file_bytes, force=force)
    chosen = make_layout(partition_by, cluster_by, cluster, target_bytes, blooms, layout)
    choice = choose_ingest_engine(engine, session, threads)
    columns = as_schema(schema)
    store = lake_store(path, storage_options)
    sources = find_sources(source, store, format, storage_options)
    check_options(sources.format, columns, read_options or {})
    batches = sources.batches(as_bytes(batch_bytes, "batch_bytes"))
    reports: list[IngestReport] = []
    if batches:
        choice = choice.for_input(sources.bytes)
        work = Ingest(store, chosen, choice.reason, index, queries, progress, evolve, force)
        for number, batch in enumerate(batches):
            if on_batch is not None:
                on_batch(number, len(batches))
            with start_engine(choice.engine) as running:
                files = open_files(
                    sources.store,
                    sources.format,
                    batch,
                    schema=columns,
                    options=read_options,
                    lake=work.lake,
                    engine=running,
                )
                rows = open_file_rows(files, running)
                unchanged = partial(sources.check_same, batch)
                reports.append(work.run(rows, sources.journal_sources(batch), before_publish=unchanged))
    return PipelineReport(
        store.uri, len(sources.new), sources.already_ingested, sources.changed, tuple(reports)
    )


def as_schema(schema: str | pa.Schema | None) -> pa.Schema | None:
    """Return the schema of a source, which DDL may describe."""
    if schema is None or isinstance(schema, pa.Schema):
        return schema
    if not isinstance(schema, str):
        hint = 'pass "id long, name string" or a pyarrow.Schema'
        raise UsageError(f"schema must be text or a pyarrow.Schema, got {type(schema).__name__}", hint=hint)
    from skipstone.predicate.sql.ddl import parse_schema

    return parse_schema(schema)
