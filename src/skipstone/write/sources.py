"""Ingest the files of a source that a lake has not ingested yet."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from skipstone.engine.session import spark_session
from skipstone.engine.spark import SparkEngine
from skipstone.engine.spark_types import spark_schema
from skipstone.errors import ReadError, UsageError
from skipstone.lake.append import JournalSource
from skipstone.lake.directory import is_visible, refuse_part_of_table, refuse_tables
from skipstone.lake.journal import ingested
from skipstone.scan.lake import Lake
from skipstone.store.store import ListedFile, Store, open_store
from skipstone.write.frame import SparkRows
from skipstone.write.job import Ingest, layout_options, make_layout
from skipstone.write.lakes import lake_store
from skipstone.write.report import IngestReport, PipelineReport

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import DataType, StructField, StructType

    from skipstone.typing import (
        ClusterOrder,
        Compression,
        IngestProgress,
        QueryLog,
        StorageOptions,
        StrPath,
    )


FORMATS: Final = {
    "parquet": ("parquet",),
    "csv": ("csv", "tsv"),
    "json": ("json", "jsonl", "ndjson"),
    "orc": ("orc",),
}
"""Formats that Spark reads, with their file name extensions."""
_PATTERN: Final = re.compile(r"[{}\[\]*?\\]")
_COMPRESSIONS: Final = ("gz", "bz2", "zst", "zstd", "snappy", "lz4", "deflate")


@dataclass(frozen=True, slots=True)
class Sources:
    """The files of a source: new, already ingested, and changed since they were ingested."""

    store: Store
    format: str
    new: tuple[ListedFile, ...]
    already_ingested: int
    changed: tuple[str, ...]

    def uri(self, entry: ListedFile) -> str:
        """Return a file's URI for Spark."""
        path = self.store.path(entry.key)
        return f"file://{path}" if self.store.local else path

    def journal_sources(self, entries: Sequence[ListedFile]) -> list[JournalSource]:
        """Return what the lake records about ingested files."""
        return [_source(self.store, entry) for entry in entries]

    def batches(self, most: int) -> list[list[ListedFile]]:
        """Group the new files into batches of at most ``most`` bytes that Spark can read in one call."""
        if most < 1:
            raise UsageError(f"batch_bytes must be positive, got {most}")
        batches: list[list[ListedFile]] = []
        size = 0
        for entry in sorted(self.new, key=lambda entry: (_kind(entry), entry.key)):
            if not batches or size + entry.size > most or not self._together(batches[-1][-1], entry):
                batches.append([])
                size = 0
            batches[-1].append(entry)
            size += entry.size
        return batches

    def _together(self, a: ListedFile, b: ListedFile) -> bool:
        # Beside a path that looks like a pattern Spark reads other files twice, even with globbing off.
        odd = any(_PATTERN.search(self.store.path(entry.key)) for entry in (a, b))
        return _kind(a) == _kind(b) and not odd

    def check_same(self, entries: Sequence[ListedFile]) -> None:
        """Raise an error if a file has changed since it was listed."""
        now = {entry.key: entry for entry in self.store.list()}
        for entry in entries:
            if now.get(entry.key) != entry:
                problem = "file changed during the ingest" if entry.key in now else "file no longer exists"
                path = self.store.path(entry.key)
                raise ReadError(problem, path=path, hint="run the ingest again when the file is complete")


def _kind(entry: ListedFile) -> tuple[bool, tuple[str, ...]]:
    """Return the properties that files of one batch must share.

    Beside partitioned files Spark silently skips files without a partition, or with other partition columns.
    """
    folders = entry.key.split("/")[:-1]
    return has_tabs(entry), tuple(folder.partition("=")[0] for folder in folders if "=" in folder)


def has_tabs(entry: ListedFile) -> bool:
    """Whether a file name says that values are separated by tabs."""
    return _extensions(entry.key)[-1:] == ["tsv"]


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
    if any(_is_below(store.path(entry.key), lake) for entry in listed):
        raise _lake_in_source(lake)
    format = format or _format(store, listed)
    # Files without a recognized extension have the requested format.
    listed = [entry for entry in listed if _format_of(entry.key) in (format, None)]
    done = ingested(lake)
    uris = {file.uri for file in done}
    new, already_ingested, changed = [], 0, []
    for entry in listed:
        file = _source(store, entry)
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


def _source(store: Store, entry: ListedFile) -> JournalSource:
    path = store.path(entry.key)
    if store.local:
        # A file is the same by whichever link it is reached.
        path = os.path.join(os.path.realpath(store.uri), entry.key)  # noqa: PTH118
    return JournalSource(path, entry.size, repr(entry.version))


def _format(store: Store, listed: Sequence[ListedFile]) -> str:
    """Infer the format from the file names."""
    formats = {_format_of(entry.key) for entry in listed}
    if len(formats) == 1 and None not in formats:
        return str(formats.pop())
    if not formats:
        hint = "check the path; hidden and empty files are ignored"
        raise UsageError("source has no files", path=store.uri, hint=hint)
    names = ", ".join(sorted(name or "unknown" for name in formats))
    problem = f"files have several formats: {names}" if len(formats) > 1 else "file format is unknown"
    raise UsageError(problem, path=store.uri, hint=f"pass format=: one of {', '.join(FORMATS)}")


def _format_of(key: str) -> str | None:
    last = _extensions(key)[-1:]
    return next((name for name, ends in FORMATS.items() if last and last[0] in ends), None)


def _extensions(key: str) -> list[str]:
    """Return the extensions of a file name, without the one of its compression."""
    parts = key.rpartition("/")[2].lower().split(".")[1:]
    if parts and parts[-1] in _COMPRESSIONS:
        parts.pop()
    return parts


BATCH_BYTES: Final = 16 * 2**30
_READ_OPTIONS: Final[Mapping[str, dict[str, str]]] = {
    # A line that can't be parsed is an error, not a row of NULLs; columns are matched by name, not position.
    "csv": {"header": "true", "mode": "FAILFAST", "enforceSchema": "false"},
    "json": {"mode": "FAILFAST"},
    "parquet": {"mergeSchema": "true"},
    "orc": {"mergeSchema": "true"},
}
# Override the session's settings: a file that Spark ignored would be recorded as ingested.
_ALL_FILES: Final = {"ignoreCorruptFiles": "false", "ignoreMissingFiles": "false", "__globPaths__": "false"}


def ingest_new(
    source: StrPath,
    path: StrPath,
    *,
    format: Literal["parquet", "csv", "json", "orc"] | None = None,
    schema: str | None = None,
    read_options: Mapping[str, str] | None = None,
    batch_bytes: int = BATCH_BYTES,
    on_batch: Callable[[int, int], None] | None = None,
    partition_by: Sequence[str] = (),
    cluster_by: Sequence[str] = (),
    cluster: ClusterOrder = "sort",
    target_file_bytes: int | None = None,
    row_group_rows: int | None = None,
    row_group_bytes: int | None = None,
    page_rows: int | None = None,
    compression: Compression | None = None,
    compression_level: int | None = None,
    dictionary: Sequence[str] | None = None,
    blooms: Sequence[str] | None = None,
    bloom_fpp: float | None = None,
    queries: QueryLog | None = None,
    index: bool = True,
    evolve: bool = False,
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
        schema: The schema of the source as Spark DDL, as in ``"id long, name string"``.
        read_options: Options of Spark's reader.
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
    chosen = make_layout(partition_by, cluster_by, cluster, target_file_bytes, blooms, layout)
    store = lake_store(path, storage_options)
    sources = find_sources(source, store, format, storage_options)
    batches = sources.batches(batch_bytes)
    reports: list[IngestReport] = []
    if batches:
        session = session or spark_session()
        work = Ingest(store, chosen, index=index, queries=queries, progress=progress, evolve=evolve)
        for number, batch in enumerate(batches):
            if on_batch is not None:
                on_batch(number, len(batches))
            frame = _frame(session, sources, batch, schema, dict(read_options or {}), work.lake)
            unchanged = partial(sources.check_same, batch)
            reports.append(
                work.run(SparkRows(frame), sources.journal_sources(batch), before_publish=unchanged)
            )
    return PipelineReport(
        store.uri, len(sources.new), sources.already_ingested, sources.changed, tuple(reports)
    )


def _frame(
    session: SparkSession,
    sources: Sources,
    batch: Sequence[ListedFile],
    schema: str | None,
    options: dict[str, str],
    lake: Lake | None,
) -> DataFrame:
    """Load the files; columns of text formats get the lake's types."""
    root = sources.store.uri
    usual = {**_READ_OPTIONS[sources.format], "basePath": f"file://{root}" if sources.store.local else root}
    if has_tabs(batch[0]):
        usual["sep"] = "\t"
    reader = session.read.format(sources.format).options(**{**usual, **options, **_ALL_FILES})
    uris = [sources.uri(entry) for entry in batch]
    with SparkEngine(session, owned=False) as engine:
        frame = engine.follow(lambda: _load(reader, sources.format, schema, uris, lake))
    if len(frame.inputFiles()) != len(batch):
        problem = f"Spark reads only {len(frame.inputFiles())} of {len(batch)} files"
        raise UsageError(problem, path=root, hint="remove read_options that filter files")
    return frame


def _load(
    reader: DataFrameReader, format: str, schema: str | None, uris: list[str], lake: Lake | None
) -> DataFrame:
    if schema is not None:
        return reader.schema(schema).load(uris)
    if format not in ("csv", "json"):
        return reader.load(uris)
    guessed = (reader.option("inferSchema", "true") if format == "csv" else reader).load(uris)
    return reader.schema(_with_lake_types(guessed.schema, lake)).load(uris)


def _with_lake_types(inferred: StructType, lake: Lake | None) -> StructType:
    """Replace inferred types by the lake's types for columns that it has."""
    if lake is None:
        return inferred
    own = {field.name: field for field in spark_schema(lake.schema, lake.query_schema).fields}
    fields = [_with_lake_type(field, own.get(field.name)) for field in inferred.fields]
    return type(inferred)(fields)


def _with_lake_type(inferred: StructField, own: StructField | None) -> StructField:
    """Replace the inferred type of a field by the lake's, and add new nested fields."""
    if own is None:
        return inferred
    return type(inferred)(inferred.name, _merge_types(inferred.dataType, own.dataType))


def _merge_types(inferred: DataType, own: DataType) -> DataType:
    from pyspark.sql.types import ArrayType, StructType

    if isinstance(inferred, StructType) and isinstance(own, StructType):
        fields = {field.name: field for field in own.fields}
        new = [field for field in inferred.fields if field.name not in fields]
        old = [
            _with_lake_type(field, fields[field.name]) for field in inferred.fields if field.name in fields
        ]
        return StructType([*old, *new])
    if isinstance(inferred, ArrayType) and isinstance(own, ArrayType):
        return ArrayType(_merge_types(inferred.elementType, own.elementType))
    return own
