"""The files of a source as Arrow batches of one schema: the same functions read them here and on Spark."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from skipstone.core.domain.keys import is_text
from skipstone.engine.jobs import Engine, LocalEngine
from skipstone.errors import CorruptFileError, ReadError, UnknownColumnError, UsageError, did_you_mean
from skipstone.lake.conform import conform
from skipstone.lake.directory import DirectorySnapshot
from skipstone.lake.files import Files
from skipstone.lake.partitions import read_partitions
from skipstone.lake.schema import decoded, merge_schemas
from skipstone.scan.lake import Lake, lake_of
from skipstone.store.options import dump_with_credentials
from skipstone.store.source import ByteRange, Source
from skipstone.store.store import ListedFile, Store
from skipstone.write.text import CsvFile, CsvFormat, JsonFile, check_csv_types, unite

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS: Final = {
    "parquet": ("parquet",),
    "csv": ("csv", "tsv"),
    "json": ("json", "jsonl", "ndjson"),
    "orc": ("orc",),
}
"""Formats that can be ingested, with their file name extensions."""
_CODECS: Final = {"gz": "gzip", "bz2": "bz2", "zst": "zstd", "zstd": "zstd", "lz4": "lz4"}
_COMPRESSIONS: Final = (*_CODECS, "snappy", "deflate")
_CSV_OPTIONS: Final = ("sep", "delimiter", "header", "quote", "escape", "nullValue", "encoding", "multiLine")
# Files of a task, and files whose types are inferred without a job.
_TASK_BYTES: Final = 32 * 2**20
_READ: Final = 8 * 2**20
# Parquet files that are planned together.
_PLANNED: Final = 512


def split_name(key: str) -> tuple[list[str], str | None]:
    """Return the extensions of a file name without the one of its compression, and that one."""
    parts = key.rpartition("/")[2].lower().split(".")[1:]
    return (parts[:-1], parts[-1]) if parts and parts[-1] in _COMPRESSIONS else (parts, None)


def format_of(key: str) -> str | None:
    """Return the format that a file name tells; None if it tells none."""
    last = split_name(key)[0][-1:]
    return next((name for name, ends in FORMATS.items() if last and last[0] in ends), None)


@dataclass(frozen=True, slots=True)
class FileSource:
    """Files of one format, read as rows of one schema; pickles are complete."""

    access: Files
    format: str
    entries: tuple[ListedFile, ...]
    schema: pa.Schema
    """Columns of all files, and of their Hive partitions; a column that a file lacks is NULL."""
    options: Mapping[str, str] = field(default_factory=dict)
    fixed: bool = False
    """Whether the caller chose the schema."""

    @property
    def store(self) -> Store:
        """Where the files are."""
        return self.access.store

    def batches(self, threads: int = 1) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all files; Parquet files are decoded on threads."""
        if self.format != "parquet":
            for entry in self.entries:
                yield from self._read(entry)
            return
        for first in range(0, len(self.entries), _PLANNED):
            # Footers of files that have been read are released.
            access = self.access if len(self.entries) <= _PLANNED else Files(self.store)
            lake = _parquet_lake(access, self.entries[first : first + _PLANNED], self.schema)
            yield from lake.scan(index=False, threads=threads).to_reader()

    def _read(self, entry: ListedFile) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one file of another format than Parquet."""
        keys = read_partitions([entry.key]).schema.names
        partition = pa.schema([self.schema.field(name) for name in keys if name in self.schema.names])
        constants = read_partitions([entry.key], schema=partition, uri=self.store.uri)
        own = pa.schema([column for column in self.schema if column.name not in keys])
        values = {name: constants.values[at][0] for at, name in enumerate(constants.schema.names)}
        for batch in _read(self, entry, own):
            arrays = [
                pa.repeat(values[name], batch.num_rows) if name in values else batch.column(name)
                for name in self.schema.names
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def to_frame(self, session: SparkSession) -> DataFrame:
        """Return the rows as a data frame, whose tasks read the files."""
        if self.format == "parquet":
            lake = _parquet_lake(self.access, self.entries, self.schema if self.fixed else None)
            return lake.scan(index=False).to_spark(session)
        from skipstone.engine.spark import map_batches, payload_frame
        from skipstone.engine.spark_types import arrow_schema, spark_schema

        schema = spark_schema(self.schema, self.schema)
        tasks = [dump_with_credentials(replace(self, entries=group)) for group in _groups(self.entries)]
        read = partial(_read_task, target=arrow_schema(schema))
        return map_batches(payload_frame(session, tasks), read, schema)


def _read_task(batches: Iterator[pa.RecordBatch], target: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Read the sources of a task as Spark's types."""
    from skipstone.engine.spark_types import to_spark_batch

    for batch in batches:
        for payload in batch.column("payload").to_pylist():
            source: FileSource = pickle.loads(payload)  # noqa: S301
            for rows in source.batches():
                yield to_spark_batch(rows, target)


def _groups(entries: Sequence[ListedFile]) -> Iterator[tuple[ListedFile, ...]]:
    """Group small files into tasks of about equal size."""
    group: list[ListedFile] = []
    for entry in entries:
        group.append(entry)
        if sum(one.size for one in group) >= _TASK_BYTES:
            yield tuple(group)
            group = []
    if group:
        yield tuple(group)


def open_files(
    store: Store,
    format: str,
    entries: Sequence[ListedFile],
    *,
    schema: pa.Schema | None = None,
    options: Mapping[str, str] | None = None,
    lake: Lake | None = None,
    engine: Engine | None = None,
) -> FileSource:
    """Determine the united schema of files, with the lake's types for text formats.

    Args:
        store: Where the files are.
        format: One of ``FORMATS``.
        entries: The files, which have the same partition columns.
        schema: Columns and types to read; None for those of the files.
        options: Options of CSV files, named as in Spark.
        lake: The lake that rows are appended to; CSV and JSON values are read as its types.
        engine: Infers the types of many large files; by default threads of this process.
    """
    check_options(format, schema, options or {})
    files = FileSource(
        Files(store), format, tuple(entries), pa.schema([]), dict(options or {}), schema is not None
    )
    if format == "parquet":
        opened = _parquet_lake(files.access, files.entries, None)
        if schema is not None:
            _check_columns(schema, opened.query_schema.names, store.uri)
        elif lake is not None:
            schema = _with_strings(opened, lake)
        if schema is not None:
            opened = _parquet_lake(files.access, files.entries, schema)
        return replace(files, schema=opened.query_schema, fixed=schema is not None)
    partitions = read_partitions([entry.key for entry in entries], uri=store.uri).schema
    own = None if lake is None else lake.query_schema
    if schema is None:
        return replace(files, schema=_with_partitions(_infer(files, own, engine), partitions, own))
    # Any object of a JSON file may be the only one that has a field.
    if format == "orc" or (format == "csv" and _has_header(files.options)):
        names = {name for entry in entries for name in _names(files, entry)} | set(partitions.names)
        _check_columns(schema, sorted(names), store.uri)
    return replace(files, schema=_with_partitions(schema, partitions, schema))


def check_options(format: str, schema: pa.Schema | None, options: Mapping[str, str]) -> None:
    """Refuse options that don't apply, before anything is read."""
    known = {name.lower() for name in _CSV_OPTIONS} if format == "csv" else set()
    for name in options:
        if name.lower() not in known:
            hint = f"use one of {', '.join(_CSV_OPTIONS)}; " if known else ""
            hint += "for others, read the files with Spark and pass its data frame to sk.ingest"
            raise UsageError(f"unknown read option {name!r} of {format} files", hint=hint)
    if format == "csv":
        if schema is not None:
            check_csv_types(schema)
        elif not _has_header(options):
            raise UsageError("CSV files without a header need a schema", hint='pass schema="id bigint, …"')


def _has_header(options: Mapping[str, str]) -> bool:
    return CsvFormat.of(options).header


def _check_columns(schema: pa.Schema, names: Sequence[str], path: str) -> None:
    """Refuse columns that no file has."""
    for name in schema.names:
        if name not in names:
            hint = did_you_mean(name, names, f"columns are: {', '.join(names)}")
            raise UnknownColumnError("no file has this column", path=path, column=name, hint=hint)


# -- types of files ----------------------------------------------------------------------------


def _infer(files: FileSource, own: pa.Schema | None, engine: Engine | None) -> pa.Schema:
    """Unite the types of all files; columns that the lake has get its types."""
    names = frozenset(() if own is None else own.names)
    small = sum(entry.size for entry in files.entries) <= _TASK_BYTES
    mapped = LocalEngine() if engine is None or small else engine
    schemas = mapped.map(partial(_file_schema, files, names), files.entries)
    if files.format == "orc":
        paths = [files.store.path(entry.key) for entry in files.entries]
        return merge_schemas(list(zip(paths, schemas, strict=True)))
    united = unite(schemas)
    if own is None:
        return united
    fields = [
        (f.name, _lake_type(f.type, own.field(f.name).type) if f.name in names else f.type) for f in united
    ]
    return pa.schema(fields)


def _file_schema(files: FileSource, known: frozenset[str], entry: ListedFile) -> pa.Schema:
    with _errors(files, entry):
        file = _open(files, entry)
        if isinstance(file, CsvFile):
            return file.infer(known)
        return file.infer() if isinstance(file, JsonFile) else file.schema


def _names(files: FileSource, entry: ListedFile) -> list[str]:
    with _errors(files, entry):
        file = _open(files, entry)
        names: list[str] = file.names() if isinstance(file, CsvFile) else file.schema.names
        return names


def _lake_fields(inferred: Iterable[pa.Field], own: Iterable[pa.Field]) -> list[pa.Field]:
    types = {field.name: field.type for field in own}
    return [f.with_type(_lake_type(f.type, types[f.name])) if f.name in types else f for f in inferred]


def _lake_type(inferred: pa.DataType, own: pa.DataType) -> pa.DataType:
    """Replace an inferred type by the lake's, and add new nested fields."""
    own = decoded(own)
    if pa.types.is_struct(inferred) and pa.types.is_struct(own):
        types = {field.name: field.type for field in own.fields}
        new = {
            f.name: _lake_type(f.type, types[f.name]) if f.name in types else f.type for f in inferred.fields
        }
        order = [name for name in (*types, *new) if name in new]
        return pa.struct([(name, new[name]) for name in dict.fromkeys(order)])
    if pa.types.is_list(inferred) and pa.types.is_list(own):
        return pa.list_(_lake_type(inferred.value_type, own.value_type))
    return own


def _with_strings(source: Lake, lake: Lake) -> pa.Schema | None:
    """Return the source's schema with strings for partition columns that are strings in the lake, if any."""
    texts = {field.name for field in lake.query_schema if is_text(decoded(field.type))}
    names = source.partition_names & texts
    fields = [f.with_type(pa.string()) if f.name in names else f for f in source.query_schema]
    return pa.schema(fields) if names else None


def _with_partitions(data: pa.Schema, partitions: pa.Schema, own: pa.Schema | None) -> pa.Schema:
    """Add partition columns, in the lake's types; one that files store too has the partition's value."""
    known = () if own is None else (field for field in own if not pa.types.is_null(field.type))
    types = {field.name: decoded(field.type) for field in known}
    keys = {key.name: key.with_type(types.get(key.name, key.type)) for key in partitions}
    fields = [keys.pop(column.name, column) for column in data]
    return pa.schema([*fields, *keys.values()])


# -- rows of files -----------------------------------------------------------------------------


def _open(files: FileSource, entry: ListedFile) -> Any:
    """Open a file of another format than Parquet."""
    path = files.store.path(entry.key)
    source = files.access.source(entry)
    if files.format == "orc":
        import pyarrow.orc as orc

        return orc.ORCFile(SourceStream(source))
    kinds, compression = split_name(entry.key)
    opened: Callable[[], Any] = partial(SourceStream, source)
    if compression is not None:
        opened = partial(_decompressed, source, compression)
    if files.format == "json":
        return JsonFile(path, opened)
    return CsvFile(path, opened, CsvFormat.of(files.options, tabs=kinds[-1:] == ["tsv"]))


def _read(files: FileSource, entry: ListedFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with _errors(files, entry):
        file = _open(files, entry)
        if isinstance(file, CsvFile):
            yield from file.read(schema, by_position=not file.format.header, exact=not files.fixed)
        elif isinstance(file, JsonFile):
            yield from file.read(schema, exact=not files.fixed)
        else:
            path = files.store.path(entry.key)
            for stripe in range(file.nstripes):
                table = pa.Table.from_batches([file.read_stripe(stripe)])
                yield from conform(table, schema, path=path).to_batches()


@contextmanager
def _errors(files: FileSource, entry: ListedFile) -> Iterator[None]:
    """Raise errors of pyarrow as our own, with the file."""
    try:
        yield
    except (pa.ArrowException, OSError, RecursionError) as error:
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        problem = f"file can't be read as {files.format.upper()}: {text}"
        raise CorruptFileError(problem, path=files.store.path(entry.key)) from error


def _decompressed(source: Source, compression: str) -> pa.NativeFile:
    codec = _CODECS.get(compression)
    if codec is None:
        hint = f"decompress the file, or compress it as one of {', '.join(_CODECS)}"
        raise ReadError(f"{compression} compression is not supported", path=source.path, hint=hint)
    return pa.CompressedInputStream(pa.PythonFile(SourceStream(source), "r"), codec)


class SourceStream(io.RawIOBase):
    """A source as a binary file object, read in large blocks."""

    def __init__(self, source: Source) -> None:
        self._source, self._size = source, source.size()
        self._at, self._start, self._block = 0, 0, b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def size(self) -> int:
        return self._size

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        if not self._start <= self._at < self._start + len(self._block):
            stop = min(self._at + max(_READ, len(view)), self._size)
            if stop <= self._at:
                return 0
            self._start, self._block = self._at, self._source.read_ranges([ByteRange(self._at, stop)])[0]
        data = self._block[self._at - self._start :][: len(view)]
        view[: len(data)] = data
        self._at += len(data)
        return len(data)


def _parquet_lake(access: Files, entries: Sequence[ListedFile], schema: pa.Schema | None) -> Lake:
    """Return a lake of files, with the schema that opening them gives."""
    return lake_of(DirectorySnapshot(access, "", schema, tuple(entries)))
