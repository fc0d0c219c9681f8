"""The target of writes to a table: all that tasks need, without the catalog."""

from __future__ import annotations

import re
import uuid
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa
from pyiceberg.io import OutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO, schema_to_pyarrow
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.locations import LocationProvider, ObjectStoreLocationProvider, SimpleLocationProvider
from pyiceberg.transforms import VoidTransform
from pyiceberg.typedef import Record
from pyiceberg.types import PrimitiveType

from skipstone.core.domain.keys import is_binary, is_text
from skipstone.core.plain import type_name
from skipstone.errors import SchemaError, UsageError
from skipstone.iceberg.catalogs import METADATA_FILES, storage_options
from skipstone.iceberg.partitions.values import PartitionKey, is_unpartitioned, partition_values
from skipstone.iceberg.writing.metrics import (
    FileMetrics,
    FileTally,
    MetricsColumn,
    leaf_ids,
    measured_columns,
)
from skipstone.iceberg.writing.sorting import OrderCheck, TableOrder
from skipstone.lake.conform import NULLABLE, REWRITE, check_readable, conform
from skipstone.lake.schema import is_list
from skipstone.parquet.write.columns import find_column
from skipstone.parquet.write.files import WrittenFile
from skipstone.parquet.write.partition import Split, label_rows, split_rows
from skipstone.store.absolute import local_name, store_at
from skipstone.store.local import make_directories, sync_file, write_error
from skipstone.store.store import Store

if TYPE_CHECKING:
    from pyiceberg.table import Table


def stored_columns(schema: Schema) -> pa.Schema:
    """Arrow schema of a table's files, with field ids."""
    return pa.schema([_plain(field) for field in schema_to_pyarrow(schema)])


def _plain(field: pa.Field) -> pa.Field:
    """A field with 32-bit offsets: batches are small."""
    type = field.type
    if pa.types.is_large_string(type):
        return field.with_type(pa.string())
    if pa.types.is_large_binary(type):
        return field.with_type(pa.binary())
    if pa.types.is_struct(type):
        return field.with_type(pa.struct([_plain(part) for part in type.fields]))
    if pa.types.is_large_list(type):
        return field.with_type(pa.list_(_plain(type.value_field)))
    if pa.types.is_map(type):
        return field.with_type(pa.map_(_plain(type.key_field), _plain(type.item_field)))
    return field


def column_without_fields(schema: pa.Schema) -> str | None:
    """The first column with a struct without fields, which Parquet can't store."""
    return next((field.name for field in schema if _lacks_fields(field.type)), None)


def _lacks_fields(type: pa.DataType) -> bool:
    if not pa.types.is_nested(type):
        return False
    return not type.num_fields or any(_lacks_fields(type.field(at).type) for at in range(type.num_fields))


def without_fields(column: str, table: str) -> SchemaError:
    """The error for rows of a table with such a column."""
    hint = "add a field to the struct, or drop the column"
    return SchemaError("Parquet can't store a struct without fields", path=table, column=column, hint=hint)


def check_columns(own: pa.Schema, wanted: pa.Schema, table: str) -> None:
    """Refuse rows whose columns can't be converted to the table's."""
    _check_names(list(own), list(wanted), table, "")
    with _hints_for_rows():
        check_readable(own, _before_cast(own, wanted), "the new rows", table)


def fit(rows: pa.RecordBatch, wanted: pa.Schema, table: str) -> pa.RecordBatch:
    """Convert rows to the table's columns; missing ones are NULL."""
    if rows.schema.equals(wanted):
        return pa.RecordBatch.from_arrays(rows.columns, schema=wanted)
    own = pa.Table.from_batches([rows])
    for at, field in enumerate(own.schema):
        if is_text(field.type) and field.name in wanted.names and _is_uuid(wanted.field(field.name).type):
            own = own.set_column(at, field.name, _uuids(own.column(at), field.name, table))
    uncast = _before_cast(own.schema, wanted)
    with _hints_for_rows():
        conformed = conform(own, uncast, path=table, owner="table")
    columns = [_cast(conformed.column(at), field, table) for at, field in enumerate(wanted)]
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


def fit_table(rows: pa.Table, wanted: pa.Schema, table: str) -> pa.Table:
    """``fit`` for a table of rows."""
    if rows.schema.equals(wanted, check_metadata=True):
        return rows
    batches = [fit(batch, wanted, table) for batch in rows.combine_chunks().to_batches()]
    return pa.Table.from_batches(batches, wanted)


_HINTS: Final[Mapping[str | None, str]] = {
    REWRITE: "cast the column before writing",
    NULLABLE: "fill in the values, or remove the rows",
}


@contextmanager
def _hints_for_rows() -> Iterator[None]:
    """Replace hints about files by hints about rows."""
    try:
        yield
    except SchemaError as error:
        error.hint = _HINTS.get(error.hint, error.hint)
        raise


def _cast(column: pa.ChunkedArray, field: pa.Field, table: str) -> pa.Array:
    whole = column.combine_chunks()
    if whole.type.equals(field.type):
        return whole
    try:
        return whole.cast(_wide_decimals(whole.type, field.type)).cast(field.type)
    except pa.ArrowException as error:
        raise SchemaError(
            f"can't convert {type_name(whole.type)} to the table's type {type_name(field.type)}: {error}",
            path=table,
            column=field.name,
            hint="fix the value, or cast the column before writing",
        ) from error


# -- names -------------------------------------------------------------------------------------


def _check_names(own: list[pa.Field], wanted: list[pa.Field], table: str, above: str) -> None:
    by_name = {field.name: field for field in wanted}
    folded = {field.name.casefold(): field.name for field in wanted}
    count = Counter(field.name for field in own)
    for field in own:
        name = f"{above}{field.name}"
        if count[field.name] > 1:
            hint = "rename or drop one of them"
            raise SchemaError("two columns have this name", path=table, column=name, hint=hint)
        if field.name not in by_name:
            other = folded.get(field.name.casefold())
            problem = "table has no such column"
            hint = f"rename it to {above}{other}" if other else "drop it, or add it to the table's schema"
            raise SchemaError(problem, path=table, column=name, hint=hint)
        _check_parts(field.type, by_name[field.name].type, table, name)
    names = {field.name for field in own}
    for field in wanted:
        if not field.nullable and field.name not in names:
            hint = "add the column to the rows"
            problem = "required column is missing"
            raise SchemaError(problem, path=table, column=f"{above}{field.name}", hint=hint)


def _check_parts(own: pa.DataType, wanted: pa.DataType, table: str, name: str) -> None:
    if pa.types.is_struct(own) and pa.types.is_struct(wanted):
        _check_names(own.fields, wanted.fields, table, f"{name}.")
    elif is_list(own) and is_list(wanted):
        _check_parts(own.value_type, wanted.value_type, table, f"{name}.element")
    elif pa.types.is_map(own) and pa.types.is_map(wanted):
        _check_parts(own.key_type, wanted.key_type, table, f"{name}.key")
        _check_parts(own.item_type, wanted.item_type, table, f"{name}.value")


# -- types that pyarrow casts ------------------------------------------------------------------


_CHECKED: Final = (
    (pa.types.is_time, (pa.types.is_time,)),
    (pa.types.is_integer, (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)),
    (pa.types.is_decimal, (pa.types.is_decimal,)),
)
"""Types of rows, and types of columns that hold some of their values."""


def _before_cast(schema: pa.Schema, wanted: pa.Schema) -> pa.Schema:
    """The wanted columns, with their own types where pyarrow's cast checks the values."""
    own = {field.name: field.type for field in schema}
    return pa.schema([_field_before_cast(field, own) for field in wanted])


def _field_before_cast(field: pa.Field, own: dict[str, pa.DataType]) -> pa.Field:
    return field.with_type(_type_before_cast(own[field.name], field.type)) if field.name in own else field


def _type_before_cast(own: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    if _is_uuid(wanted) or pa.types.is_fixed_size_binary(wanted):
        bytes_like = is_binary(own) or pa.types.is_fixed_size_binary(own)
        # Top-level strings are parsed; those in structs are not, and are refused.
        return own if bytes_like or _is_uuid(own) or (is_text(own) and _is_uuid(wanted)) else wanted
    for given, kinds in _CHECKED:
        if given(own) and any(kind(wanted) for kind in kinds):
            return own
    if pa.types.is_timestamp(own) and pa.types.is_timestamp(wanted):
        return own if (own.tz is None) == (wanted.tz is None) else wanted
    if pa.types.is_struct(own) and pa.types.is_struct(wanted):
        types = {field.name: field.type for field in own.fields}
        return pa.struct([_field_before_cast(part, types) for part in wanted.fields])
    if is_list(own) and pa.types.is_list(wanted):
        return pa.list_(wanted.value_field.with_type(_type_before_cast(own.value_type, wanted.value_type)))
    if pa.types.is_map(own) and pa.types.is_map(wanted):
        key = wanted.key_field.with_type(_type_before_cast(own.key_type, wanted.key_type))
        return pa.map_(key, wanted.item_field.with_type(_type_before_cast(own.item_type, wanted.item_type)))
    return wanted


def _wide_decimals(own: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    """A type with decimals for integers that become decimals: Arrow casts no integers to narrow ones."""
    if pa.types.is_integer(own) and pa.types.is_decimal(wanted):
        return pa.decimal128(20, 0)
    if pa.types.is_struct(own) and pa.types.is_struct(wanted):
        pairs = zip(own.fields, wanted.fields, strict=True)
        return pa.struct([one.with_type(_wide_decimals(one.type, other.type)) for one, other in pairs])
    if pa.types.is_list(own) and pa.types.is_list(wanted):
        return pa.list_(own.value_field.with_type(_wide_decimals(own.value_type, wanted.value_type)))
    if pa.types.is_map(own) and pa.types.is_map(wanted):
        key = own.key_field.with_type(_wide_decimals(own.key_type, wanted.key_type))
        return pa.map_(key, own.item_field.with_type(_wide_decimals(own.item_type, wanted.item_type)))
    return own


def _is_uuid(type: pa.DataType) -> bool:
    return isinstance(type, pa.BaseExtensionType) and type.extension_name == "arrow.uuid"


def _uuids(column: pa.ChunkedArray, name: str, table: str) -> pa.Array:
    try:
        # No Arrow kernel parses UUIDs.
        parsed = [None if text is None else uuid.UUID(text).bytes for text in column.to_pylist()]
    except ValueError as error:
        raise SchemaError(
            f"invalid UUID string: {error}", path=table, column=name, hint="fix the value"
        ) from error
    return pa.array(parsed, pa.binary(16))


# -- local files of an embedded catalog --------------------------------------------------------


_WRITTEN: Final[ContextVar[list[str] | None]] = ContextVar("written", default=None)


@contextmanager
def metadata_files_written(paths: list[str]) -> Iterator[None]:
    """Add the metadata files that an embedded catalog writes meanwhile to a list, before it opens them."""
    token = _WRITTEN.set(paths)
    try:
        yield
    finally:
        _WRITTEN.reset(token)


class DurableFileIO(PyArrowFileIO):
    """A FileIO that syncs local files when they are closed.

    The catalog's commits are durable, and must not refer to metadata that a power failure can lose.
    """

    def new_output(self, location: str) -> OutputFile:  # type: ignore[override]
        """Open a file for writing."""
        if (paths := _WRITTEN.get()) is not None and location.endswith(METADATA_FILES):
            paths.append(location)
        output, path = super().new_output(location), local_name(location)
        return output if path is None else _LocalOutput(output, Path(path))


class _LocalOutput(OutputFile):
    def __init__(self, output: OutputFile, path: Path) -> None:
        super().__init__(output.location)
        self._output = output
        self._path = path

    def __len__(self) -> int:
        return len(self._output)

    def exists(self) -> bool:
        return bool(self._output.exists())

    def to_input_file(self) -> Any:
        return self._output.to_input_file()

    def create(self, overwrite: bool = False) -> pa.NativeFile:
        if not overwrite and self.exists():
            raise FileExistsError(f"file already exists: {self.location}")
        with _write_errors(self._path):
            make_directories(self._path.parent)
            return _SyncedFile(str(self._path), "wb")


class _SyncedFile(pa.OSFile):  # type: ignore[misc]
    # pyarrow has already opened the file, in __cinit__.
    def __init__(self, path: str, _mode: str) -> None:
        self._path = Path(path)

    def write(self, data: Any) -> int:
        with _write_errors(self._path):
            return int(super().write(data))

    def close(self) -> None:
        if not self.closed:
            with _write_errors(self._path):
                super().close()
                sync_file(self._path)


@contextmanager
def _write_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise write_error(error, path) from error


_FORMAT: Final = "write.format.default"
_LONGEST_NAME: Final = 255
_CUT_ESCAPE: Final = re.compile("%[0-9A-F]?$")


# -- the table ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewFile:
    """A data file or delete file that is written but not committed."""

    path: str
    bytes: int
    metrics: FileMetrics
    content: Literal[0, 1] = 0
    """0: rows, 1: position deletes."""
    sort_order: int | None = None
    """The table's sort order that the rows are in, if any."""


def _short_name(name: str) -> str:
    """Shorten a directory name, which readers don't parse, to what file systems accept."""
    if len(name.encode()) <= _LONGEST_NAME:
        return name
    return _CUT_ESCAPE.sub("", name.encode()[:_LONGEST_NAME].decode(errors="ignore"))


@dataclass(frozen=True, eq=False)
class Target:
    """Converts rows to data files of a table, under one of its specs."""

    name: str
    table_schema: Schema
    spec: PartitionSpec
    specs: Mapping[int, PartitionSpec]
    """All specs of the table: delete files are of those of their data files."""
    root: str
    """The location of data files, as manifests spell it."""
    store: Store
    """The store of that location."""
    columns: tuple[MetricsColumn, ...]
    hashed: bool = False
    """Whether paths begin with a hash, for object stores that distribute load by prefix."""
    bare: bool = False
    """Whether paths omit the partition."""
    version: int = 2
    """Format version of the table."""
    key: PartitionKey | None = None
    """The partition of all rows; None if it is computed from their values."""
    order: TableOrder | None = None
    """The sort order of the table, if it has one that rows are compared by."""
    begun: set[str] | None = None
    """Keys of all files whose names were chosen, if they are collected: an interrupt can leave such files."""

    @classmethod
    def of(
        cls,
        table: Table,
        whole: Iterable[str] = (),
        options: Mapping[str, Any] | None = None,
        spec: PartitionSpec | None = None,
    ) -> Target:
        """The target of a table's default spec, or of another one.

        Bounds of key, sort and partition columns, and of the columns ``whole``, are never truncated.
        ``options`` are storage options in addition to the catalog's.
        """
        metadata = table.metadata
        name = ".".join(table.name())
        check_version(table, name)
        _check_format(table, name)
        schema, spec = table.schema(), spec or table.spec()
        named = [schema.find_field(column).field_id for column in whole]
        sources = [one.source_id for one in spec.fields]
        sources += [one.source_id for one in table.sort_order().fields]
        provider = _provider(table, name)
        root = provider.data_path
        return cls(
            name=name,
            table_schema=schema,
            spec=spec,
            specs=metadata.specs(),
            root=root,
            store=store_at(root, storage_options(table, options)),
            columns=measured_columns(
                schema, metadata.properties, {*schema.identifier_field_ids, *sources, *named}, name
            ),
            hashed=isinstance(provider, ObjectStoreLocationProvider),
            bare=metadata.properties.get("write.object-storage.partitioned-paths", "true").lower() == "false",
            version=table.format_version,
            order=TableOrder.of(table),
        )

    @cached_property
    def schema(self) -> pa.Schema:
        """Arrow schema of the files, with field ids."""
        return stored_columns(self.table_schema)

    @cached_property
    def column_without_fields(self) -> str | None:
        """The first column that can't be stored, because it is or contains a struct without fields."""
        return column_without_fields(self.schema)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return leaf_ids(self.schema)

    @cached_property
    def _folders(self) -> dict[Hashable, str]:
        return {}

    @cached_property
    def partition_columns(self) -> tuple[str, ...]:
        """Top-level source columns of the spec, unless the partition is fixed."""
        if self.key is not None:
            return ()
        used = {one.source_id for one in self.spec.fields if not isinstance(one.transform, VoidTransform)}
        return tuple(field.name for field in self.table_schema.fields if used & set(Schema(field).field_ids))

    # -- rows ----------------------------------------------------------------------------------

    def fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert rows to the table's columns."""
        return fit(batch, self.schema, self.name)

    def partitions(self, rows: pa.RecordBatch) -> list[tuple[str, pa.Array]]:
        """Partition values of fitted rows, by field name."""
        columns = []
        for one in self.spec.fields:
            path = self.table_schema.find_column_name(one.source_id)
            # The source column of a void field can be gone.
            if isinstance(one.transform, VoidTransform) or path is None:
                columns.append((one.name, pa.nulls(rows.num_rows, pa.int32())))
                continue
            source = self.table_schema.find_field(one.source_id)
            column = find_column(rows, path).combine_chunks()
            assert isinstance(source.field_type, PrimitiveType)
            columns.append((one.name, partition_values(one.transform, source.field_type, column, path)))
        return columns

    def labels(self, rows: pa.RecordBatch, label: Callable[[PartitionKey], str] | None = None) -> pa.Array:
        """The label of each row's partition, by default its directory; uses only partition columns."""
        names = self.partition_columns
        used = rows.select([name for name in rows.schema.names if name in names])
        wanted = pa.schema([self.schema.field(name) for name in names])
        values = self.partitions(fit(used, wanted, self.name))
        to_label = label or self.folder
        return label_rows(values, lambda one: to_label(PartitionKey.of(self.spec, one)))

    def split(self, batch: pa.RecordBatch) -> Split:
        """The rows of each partition, converted to the table's columns."""
        rows = batch if batch.schema.equals(self.schema) else self.fitted(batch)
        if self.key is not None:
            return Split([(self.key, rows)], runs=True)
        if is_unpartitioned(self.spec):
            return Split([(PartitionKey(self.spec.spec_id, None), rows)], runs=True)
        return split_rows(self.partitions(rows), rows, lambda values: PartitionKey.of(self.spec, values))

    # -- files ---------------------------------------------------------------------------------

    def folder(self, partition: Hashable) -> str:
        """Iceberg's directory name of a partition; two partitions can share it, such as NULL and "null"."""
        assert isinstance(partition, PartitionKey)
        folder = self._folders.get(partition)
        if folder is None:
            folder = ""
            if partition.partition is not None and not (self.hashed and self.bare):
                folder = self._spec_path(partition.spec_id, Record(*partition.partition))
            self._folders[partition] = folder
        return folder

    def _spec_path(self, spec_id: int, values: Record) -> str:
        try:
            path = self.specs[spec_id].partition_to_path(values, self.table_schema)
            return "/".join(map(_short_name, path.split("/")))
        except (ValueError, TypeError, OverflowError):
            # A source column of an old spec was dropped, or a value is out of the calendar's range.
            return f"spec-{spec_id}"

    def stored_as(self, key: str) -> str:
        """The final path of a file below the root; only a commit makes it visible."""
        stored = key if not self.hashed else self._hashed(key)
        if self.begun is not None:
            self.begun.add(stored)
        return stored

    def _hashed(self, key: str) -> str:
        provider = ObjectStoreLocationProvider(
            "", {"write.data.path": "x", "write.object-storage.partitioned-paths": str(not self.bare).lower()}
        )
        return str(provider.new_data_location(key)).removeprefix("x/")

    def tally(self, partition: Hashable) -> FileTally:
        """A collector of a file's metrics."""
        assert isinstance(partition, PartitionKey)
        order = None if self.order is None else OrderCheck(self.order)
        return FileTally(partition, self.columns, self._ids, order)

    def new_file(self, written: WrittenFile) -> NewFile:
        """A written file, ready to commit."""
        path = f"{self.root}/{self.stored_as(written.key)}"
        return NewFile(path, written.bytes, written.note, sort_order=written.note.sort_order)

    def delete(self, files: Iterable[NewFile]) -> None:
        """Delete uncommitted files."""
        self.store.delete([file.path.removeprefix(f"{self.root}/") for file in files])

    def leftovers(self, job: str, kept: Iterable[NewFile]) -> list[str]:
        """Keys of a job's other files, written by failed attempts."""
        committed = {file.path.removeprefix(f"{self.root}/") for file in kept}
        written = [entry.key for entry in self.store.list_prefix("") if entry.key.endswith(f"-{job}.parquet")]
        return [key for key in written if key not in committed]

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


def check_version(table: Table, name: str) -> None:
    """Refuse a format version that can't be written."""
    if table.format_version > 2:
        raise UsageError(
            f"writing tables of format version {table.format_version} is not supported",
            path=name,
            hint="use a table of format version 1 or 2",
        )


def _check_format(table: Table, name: str) -> None:
    format = table.properties.get(_FORMAT, "parquet").lower()
    if format != "parquet":
        raise UsageError(f"table's write format is {format}", path=name, hint=f"set {_FORMAT} to parquet")


def _provider(table: Table, name: str) -> LocationProvider:
    provider = table.location_provider()
    if not isinstance(provider, SimpleLocationProvider | ObjectStoreLocationProvider):
        hint = "unset write.py-location-provider.impl"
        raise UsageError("custom location providers are not supported", path=name, hint=hint)
    return provider
