"""Where data comes from: files that Spark can read, and which of them a lake has taken in already."""

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
"""Formats that Spark reads, and how names of such files end."""
_PATTERN: Final = re.compile(r"[{}\[\]*?\\]")
_PACKED: Final = ("gz", "bz2", "zst", "zstd", "snappy", "lz4", "deflate")


@dataclass(frozen=True, slots=True)
class Sources:
    """The files of a source, by path: new ones, known ones, and those that have changed since."""

    store: Store
    format: str
    new: tuple[ListedFile, ...]
    known: int
    changed: tuple[str, ...]

    def uri(self, entry: ListedFile) -> str:
        """A file's name for Spark."""
        path = self.store.path(entry.key)
        return f"file://{path}" if self.store.local else path

    def noted(self, entries: Sequence[ListedFile]) -> list[JournalSource]:
        """What the lake is to remember of files that were taken in."""
        return [_source(self.store, entry) for entry in entries]

    def batches(self, most: int) -> list[list[ListedFile]]:
        """The new files in runs of so many bytes, or one file; those of one run are read alike."""
        if most < 1:
            raise UsageError(f"batch_bytes is {most}", hint="give a number above zero")
        found: list[list[ListedFile]] = []
        size = 0
        for entry in sorted(self.new, key=lambda entry: (_kind(entry), entry.key)):
            if not found or size + entry.size > most or not self._together(found[-1][-1], entry):
                found.append([])
                size = 0
            found[-1].append(entry)
            size += entry.size
        return found

    def _together(self, a: ListedFile, b: ListedFile) -> bool:
        # Spark reads other files twice beside one that could be a pattern, even where it is told not to glob.
        odd = any(_PATTERN.search(self.store.path(entry.key)) for entry in (a, b))
        return _kind(a) == _kind(b) and not odd

    def check_same(self, entries: Sequence[ListedFile]) -> None:
        """Raise an error if one of the files is not what it was when it was listed."""
        now = {entry.key: entry for entry in self.store.list()}
        for entry in entries:
            if now.get(entry.key) != entry:
                problem = "it changed while it was taken in" if entry.key in now else "it is gone"
                path = self.store.path(entry.key)
                raise ReadError(problem, path=path, hint="run again when it is complete")


def _kind(entry: ListedFile) -> tuple[bool, tuple[str, ...]]:
    """What must be the same for files that Spark reads together.

    Beside files in partitions it leaves those out, without a word, that are in none or in others.
    """
    folders = entry.key.split("/")[:-1]
    return has_tabs(entry), tuple(folder.partition("=")[0] for folder in folders if "=" in folder)


def has_tabs(entry: ListedFile) -> bool:
    """Whether a file's name says that tabs stand between its values."""
    return _ends(entry.key)[-1:] == ["tsv"]


def find_sources(
    source: Any, lake: Store, format: str | None = None, storage_options: Mapping[str, Any] | None = None
) -> Sources:
    """List a source, and compare it with what the lake has taken in."""
    if format is not None and format not in FORMATS:
        raise UsageError(f"there is no format {format!r}", hint=f"give one of {', '.join(FORMATS)}")
    store, pattern = open_store(source, storage_options=storage_options)
    _check_apart(store, pattern, lake)
    everything = store.list()
    if not pattern:
        refuse_part_of_table(store)
        refuse_tables(store, everything)
    listed = [entry for entry in everything if is_visible(entry, pattern)]
    if any(_is_below(store.path(entry.key), lake) for entry in listed):
        raise _inside(lake)
    found = format or _format(store, listed)
    # What is named for another format is of that; what is named for none is what the caller says.
    listed = [entry for entry in listed if _ending(entry.key) in (found, None)]
    done = ingested(lake)
    before = {one.uri: one for one in done}
    new, known, changed = [], 0, []
    for entry in listed:
        one = _source(store, entry)
        if one in done:
            known += 1
        elif one.uri in before:
            changed.append(one.uri)
        else:
            new.append(entry)
    return Sources(store, found, tuple(new), known, tuple(changed))


def _check_apart(store: Store, pattern: str, lake: Store) -> None:
    """Refuse a source and a lake of which one lies in the other: rows would be taken in over and over."""
    if not pattern and _is_below(lake.uri, store):
        raise _inside(lake)
    if _is_below(store.uri, lake):
        hint = "put the source somewhere else"
        raise UsageError("the source lies in the lake", path=store.uri, hint=hint)


def _inside(lake: Store) -> UsageError:
    return UsageError("the lake lies in its own source", path=lake.uri, hint="put it somewhere else")


def _is_below(path: str, store: Store) -> bool:
    """Whether a path is a place, or lies in it, whatever links lead there."""
    above = store.uri
    if store.local:
        path, above = os.path.realpath(path), os.path.realpath(above)
    return f"{path.rstrip('/')}/".startswith(f"{above.rstrip('/')}/")


def _source(store: Store, entry: ListedFile) -> JournalSource:
    path = store.path(entry.key)
    if store.local:
        # The same file by another way is the same file.
        path = os.path.join(os.path.realpath(store.uri), entry.key)  # noqa: PTH118
    return JournalSource(path, entry.size, repr(entry.version))


def _format(store: Store, listed: Sequence[ListedFile]) -> str:
    """The one format that the names of the files tell."""
    found = {_ending(entry.key) for entry in listed}
    if len(found) == 1 and None not in found:
        return str(found.pop())
    if not found:
        raise UsageError(
            "source contains no files", path=store.uri, hint="hidden and empty files are ignored"
        )
    words = ", ".join(sorted(one or "unknown" for one in found))
    problem = f"the files are of several formats: {words}" if len(found) > 1 else "the format is unknown"
    raise UsageError(problem, path=store.uri, hint=f"name one with format=: {', '.join(FORMATS)}")


def _ending(key: str) -> str | None:
    last = _ends(key)[-1:]
    return next((name for name, ends in FORMATS.items() if last and last[0] in ends), None)


def _ends(key: str) -> list[str]:
    """What follows the dots of a file's name, without what says how it is packed."""
    parts = key.rpartition("/")[2].lower().split(".")[1:]
    if parts and parts[-1] in _PACKED:
        parts.pop()
    return parts


BATCH_BYTES: Final = 16 * 2**30
_USUAL: Final[Mapping[str, dict[str, str]]] = {
    # A line that can't be read is an error, and no row of NULLs; columns go by names, not by places.
    "csv": {"header": "true", "mode": "FAILFAST", "enforceSchema": "false"},
    "json": {"mode": "FAILFAST"},
    "parquet": {"mergeSchema": "true"},
    "orc": {"mergeSchema": "true"},
}
# Whatever the session says: a file that is left out would be noted as taken in.
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
        >>> report = sk.ingest_new("events", "copy", cluster_by=["event_id"])  # spark
        >>> report.new, report.rows  # spark
        (4, 1000)
        >>> sk.ingest_new("events", "copy").new  # spark
        0
    """
    layout = layout_options(
        row_group_rows, row_group_bytes, page_rows, compression, compression_level, dictionary, bloom_fpp
    )
    chosen = make_layout(partition_by, cluster_by, cluster, target_file_bytes, blooms, layout)
    store = lake_store(path, storage_options)
    found = find_sources(source, store, format, storage_options)
    batches = found.batches(batch_bytes)
    reports: list[IngestReport] = []
    if batches:
        session = session or spark_session()
        work = Ingest(store, chosen, session, index, queries, progress, evolve)
        for number, batch in enumerate(batches):
            if on_batch is not None:
                on_batch(number, len(batches))
            frame = _frame(session, found, batch, schema, dict(read_options or {}), work.lake)
            unchanged = partial(found.check_same, batch)
            reports.append(work.take(frame, found.noted(batch), before_publish=unchanged))
    return PipelineReport(store.uri, len(found.new), found.known, found.changed, tuple(reports))


def _frame(
    session: SparkSession,
    found: Sources,
    batch: Sequence[ListedFile],
    schema: str | None,
    options: dict[str, str],
    lake: Lake | None,
) -> DataFrame:
    """The files as Spark reads them; columns of texts that the lake knows have its types."""
    root = found.store.uri
    usual = {**_USUAL[found.format], "basePath": f"file://{root}" if found.store.local else root}
    if has_tabs(batch[0]):
        usual["sep"] = "\t"
    reader = session.read.format(found.format).options(**{**usual, **options, **_ALL_FILES})
    uris = [found.uri(entry) for entry in batch]
    with SparkEngine(session, owned=False) as engine:
        frame = engine.follow(lambda: _loaded(reader, found.format, schema, uris, lake))
    if len(frame.inputFiles()) != len(batch):
        problem = f"Spark reads {len(frame.inputFiles())} of {len(batch)} files"
        raise UsageError(problem, path=root, hint="leave out read_options that choose among files")
    return frame


def _loaded(
    reader: DataFrameReader, format: str, schema: str | None, uris: list[str], lake: Lake | None
) -> DataFrame:
    if schema is not None:
        return reader.schema(schema).load(uris)
    if format not in ("csv", "json"):
        return reader.load(uris)
    guessed = (reader.option("inferSchema", "true") if format == "csv" else reader).load(uris)
    return reader.schema(_as_known(guessed.schema, lake)).load(uris)


def _as_known(inferred: StructType, lake: Lake | None) -> StructType:
    """A schema that was guessed, with the lake's own types where it has the columns."""
    if lake is None:
        return inferred
    known = {field.name: field for field in spark_schema(lake.schema, lake.query_schema).fields}
    fields = [_typed(field, known.get(field.name)) for field in inferred.fields]
    return type(inferred)(fields)


def _typed(guessed: StructField, known: StructField | None) -> StructField:
    """A field as the lake has it, and what is new in it."""
    if known is None:
        return guessed
    return type(guessed)(guessed.name, _merged(guessed.dataType, known.dataType))


def _merged(guessed: DataType, known: DataType) -> DataType:
    from pyspark.sql.types import ArrayType, StructType

    if isinstance(guessed, StructType) and isinstance(known, StructType):
        fields = {field.name: field for field in known.fields}
        new = [field for field in guessed.fields if field.name not in fields]
        old = [_typed(field, fields[field.name]) for field in guessed.fields if field.name in fields]
        return StructType([*old, *new])
    if isinstance(guessed, ArrayType) and isinstance(known, ArrayType):
        return ArrayType(_merged(guessed.elementType, known.elementType))
    return known
