"""``spark.read.format("skipstone")``: a lake as a Python data source for Spark.

Options: ``where`` (an SQL condition, for predicates that Spark does not push), ``columns`` (comma-separated
columns, fields and expressions, as for ``lake.scan``; names with commas in backticks), ``tz`` (the zone of
time strings in ``where``; default UTC), ``pushdown`` (true: accept pushed filters, for one query per frame),
``index_root``, ``index`` (false: don't use it), ``stay_below_root`` (as for ``sk.open``), and ``storage.*``
for the object store. A table is loaded by its name, with ``catalog`` (a warehouse, or a catalog in
pyiceberg's configuration) and ``catalog.*`` (its properties), or by its metadata file; ``snapshot`` is an id,
a tag, a branch or a time. For writing see :mod:`skipstone.spark.sink`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions
from pyspark.sql import types as st
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)

from skipstone.errors import UsageError
from skipstone.iceberg.catalogs import METADATA_FILES
from skipstone.store.options import with_credentials

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from skipstone.predicate import Predicate
    from skipstone.scan.lake import Lake
    from skipstone.scan.parts import TaskGroup
    from skipstone.scan.plan import ScanPlan
    from skipstone.scan.projection import Projection
    from skipstone.scan.table import Table
    from skipstone.store.store import Store


_TASKS = 16
_PUSHING = "data_source_pushdown_filters.py"


class SkipstoneSource(DataSource):
    """A directory of Parquet files, one file, or an Iceberg table, read with skipping."""

    _pinned: Table | None = None
    """The table as of loading the frame: Spark reuses the source object whose schema it has read."""

    def __getstate__(self) -> dict[str, Any]:
        pinned = None if self._pinned is None else with_credentials(self._pinned)
        return {**self.__dict__, "_pinned": pinned}

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "skipstone"

    def schema(self) -> StructType:
        """Return the schema of the requested columns; also checks the columns of ``where``."""
        from skipstone.core.filter import RowFilter

        options = ReadOptions.of(dict(self.options))
        lake: Lake
        if options.is_table:
            lake = self._pinned = _table(options)
        else:
            lake = _directory(options)
        where = _condition(options, ())
        if where is not None:
            RowFilter(where, lake.query_schema)
        return _schema(lake, options.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader; with ``pushdown`` it accepts filters, if Spark is about to push some.

        Pushdown can't be the default: Spark 4.3 caches the last reader of a loaded frame with its filters and
        reuses it for other queries of the frame (even the other side of a union), which would lose rows. With
        ``pushdown`` the lake has to be loaded again for each query.

        Spark rejects a reader with ``pushFilters`` while pushing is off and does not expose that setting, but
        pushing runs in a different worker program than planning.
        """
        options = ReadOptions.of(dict(self.options))
        kind = PushingReader if options.pushdown and _is_pushing() else SourceReader
        # Spark sends this source to every task, and tasks need only the plan.
        pinned, self._pinned = self._pinned, None
        return kind(options, schema, pinned)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a writer: appends for directories, appends and overwrites for tables."""
        from skipstone.spark.sink import make_writer

        return make_writer(dict(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Return a writer of micro-batches to a table; a directory can't record the progress of a stream."""
        from skipstone.spark.table_sink import make_stream_writer

        return make_stream_writer(dict(self.options), schema, overwrite)


def _lake_of(options: ReadOptions, pinned: Table | None, schema: StructType) -> tuple[Lake, list[str] | None]:
    """Return the lake that has a schema's columns, and the columns to select."""
    from skipstone.engine.spark_types import arrow_schema

    lake: Lake | None = pinned
    if lake is None:
        lake = _table(options) if options.is_table else _directory(options)
    if _has_schema(lake, options.columns, schema):
        return lake, options.columns
    if options.is_table:
        hint = "remove schema(), and select columns with the option columns"
        raise UsageError("schema differs from the table's schema", path=options.path, hint=hint)
    # The user has defined the schema.
    return _directory(options, arrow_schema(schema)), list(schema.names)


def _directory(options: ReadOptions, schema: pa.Schema | None = None) -> Lake:
    from skipstone.scan.lake import Lake
    from skipstone.store.store import open_store

    store, pattern = open_store(
        options.path, storage_options=options.storage or None, stay_below_root=options.stay_below_root
    )
    return Lake(store, pattern, index_root=options.index_store, schema=schema)


def _table(options: ReadOptions) -> Table:
    from skipstone.iceberg.catalogs import load_table, open_catalog, static_table
    from skipstone.scan.table import Table

    if options.catalog is None and options.path.endswith(METADATA_FILES):
        table = static_table(options.path, options.storage, options.properties)
    else:
        table = load_table(options.path, open_catalog(options.catalog, make=False, **options.properties))
    return Table(
        table,
        snapshot=options.snapshot,
        storage_options=options.storage or None,
        index_root=options.index_store,
        stay_below_root=options.stay_below_root,
    )


def _condition(options: ReadOptions, pushed: Sequence[Predicate]) -> Predicate | None:
    from skipstone.predicate import parse
    from skipstone.predicate.tree import conjunction

    parts = [*([parse(options.where, tz=options.tz)] if options.where else []), *pushed]
    return conjunction(parts) if parts else None


def _schema(lake: Lake, columns: list[str] | None) -> StructType:
    from skipstone.scan.handover import is_table
    from skipstone.scan.projection import resolve
    from skipstone.spark.frames import stored_spark_schema

    wanted = resolve(columns, lake.schema, case_sensitive=True, query=lake.query_schema)
    partitions = sorted(lake.partition_names)
    return result_schema(
        wanted, lake.query_schema, stored_spark_schema(lake), partitions, table=is_table(lake.access)
    )


def result_schema(
    wanted: Projection,
    query: pa.Schema,
    stored: StructType | None,
    partition: Sequence[str],
    *,
    table: bool,
) -> StructType:
    """Return the Spark schema of a projection's result."""
    import pyarrow as pa

    from skipstone.engine.spark_types import spark_schema
    from skipstone.predicate.tree import Column

    read = spark_schema(wanted.schema, query, stored, partition, table=table)
    if wanted.computed is None:
        return read
    fields = []
    for field, value in zip(wanted.computed.schema, wanted.computed.values.values(), strict=True):
        type: st.DataType = read
        if isinstance(value, Column):
            for name in value.path:
                assert isinstance(type, st.StructType)
                type = type[name].dataType
        else:
            alone = pa.schema([field])
            type = spark_schema(alone, alone)[0].dataType
        fields.append(st.StructField(field.name, type))
    return st.StructType(fields)


def _has_schema(lake: Lake, columns: list[str] | None, schema: StructType) -> bool:
    from skipstone.engine.spark_types import arrow_schema
    from skipstone.errors import SchemaError

    try:
        return bool(arrow_schema(_schema(lake, columns)).equals(arrow_schema(schema)))
    except SchemaError:
        return False


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of a read."""

    path: str
    catalog: str | None
    properties: dict[str, str]
    snapshot: str | None
    where: str | None
    columns: list[str] | None
    tz: str
    pushdown: bool
    index: bool
    index_root: str | None
    stay_below_root: bool
    storage: dict[str, str]

    @classmethod
    def of(cls, options: dict[str, str]) -> ReadOptions:
        """Read the options of ``option(...)`` and ``load``; an unknown option is an error."""
        read = cls(
            path=options.pop("path", ""),
            catalog=options.pop(CATALOG, None),
            properties=pop_prefixed(options, f"{CATALOG}."),
            snapshot=options.pop("snapshot", None),
            where=options.pop("where", None),
            columns=names_of(options.pop("columns", None)),
            tz=options.pop("tz", "UTC"),
            pushdown=options.pop("pushdown", "false").lower() == "true",
            index=options.pop("index", "true").lower() != "false",
            index_root=options.pop("index_root", None),
            stay_below_root=options.pop("stay_below_root", "false").lower() == "true",
            storage=pop_prefixed(options, STORAGE),
        )
        if options:
            names = (
                "where, columns, tz, pushdown, index, index_root, stay_below_root, storage.*, catalog, "
                "catalog.*, snapshot"
            )
            raise UsageError(f"unknown option {', '.join(sorted(options))}", hint=f"use one of {names}")
        if not read.path:
            raise UsageError("path is missing", hint='pass one to load(), as in .load("lake")')
        if read.snapshot is not None and not read.is_table:
            hint = "set the option catalog, or load the table's metadata file"
            raise UsageError("directories have no snapshots", path=read.path, hint=hint)
        return read

    @property
    def is_table(self) -> bool:
        """Whether the path is a table: a name in a catalog, or a metadata file."""
        named = self.catalog is not None or bool(self.properties)
        return named or self.path.endswith(METADATA_FILES)

    @property
    def index_store(self) -> Store | None:
        """Location of the index; None for the default."""
        from skipstone.store.store import open_root

        if not self.index_root:
            return None
        return open_root(self.index_root, storage_options=self.storage or None)


class SourceReader(DataSourceReader):
    """Reads the rows that match ``where``."""

    def __init__(self, options: ReadOptions, schema: StructType, pinned: Table | None) -> None:
        from skipstone.engine.spark_types import arrow_schema

        self._options = options
        self._pinned = pinned
        self._schema = schema
        self._target = arrow_schema(schema)
        self._pushed: tuple[Predicate, ...] = ()

    @cached_property
    def _lake(self) -> tuple[Lake, list[str] | None]:
        return _lake_of(self._options, self._pinned, self._schema)

    @cached_property
    def _plan(self) -> ScanPlan:
        from skipstone.scan.options import ScanOptions
        from skipstone.scan.scan import Scan

        (lake, columns), where = self._lake, _condition(self._options, self._pushed)
        return Scan(lake, where, columns, None, None, ScanOptions(index=self._options.index)).plan()

    @cached_property
    def _common(self) -> ScanPlan:
        from skipstone.scan.parts import shared

        return shared(self._plan)

    def __getstate__(self) -> dict[str, Any]:
        # Spark pickles the reader before it calls partitions(); its tasks need the credentials.
        return {"_common": with_credentials(self._common), "_target": self._target}

    def partitions(self) -> Sequence[InputPartition]:
        """Split the plan into parts of about equal bytes."""
        from skipstone.scan.parts import split

        return [SliceTasks(part) for part in split(self._plan, _TASKS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of one part."""
        from skipstone.spark.frames import read_part

        # For an empty plan Spark creates a partition of its own.
        if isinstance(partition, SliceTasks):
            yield from read_part(replace(self._common, tasks=partition.tasks), self._target)


class PushingReader(SourceReader):
    """A reader that applies pushed filters itself."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Accept the filters that can be applied exactly, and return the others."""
        from skipstone.predicate.spark import from_spark

        predicates = [from_spark(each) for each in filters]
        exact = [self._is_exact(predicate) for predicate in predicates]
        self._pushed = tuple(predicate for predicate, own in zip(predicates, exact, strict=True) if own)
        return [each for each, own in zip(filters, exact, strict=True) if not own]

    def _is_exact(self, predicate: Predicate) -> bool:
        """Whether a filter can be applied here: it has no opaque part and compares no UUID as a string."""
        from skipstone.engine.spark_types import is_text_in_spark
        from skipstone.predicate import tree

        own = self._lake[0].schema
        return not any(
            isinstance(node, tree.Opaque)
            or (isinstance(node, tree.Column) and is_text_in_spark(own, node.path))
            for node in predicate.walk()
        )


@dataclass
class SliceTasks(InputPartition):
    """The plan's tasks for one Spark task."""

    tasks: TaskGroup


def _is_pushing() -> bool:
    frame: Any = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename.endswith(_PUSHING):
            return True
        frame = frame.f_back
    return False


STORAGE: Final = "storage."
"""Prefix of object store options."""
CATALOG: Final = "catalog"
"""Option: a catalog in pyiceberg's configuration, or the path of a warehouse."""


def names_of(text: str | None) -> list[str] | None:
    """Split comma-separated names; a name that contains a comma is in backticks."""
    from skipstone.scan.projection import split_columns

    return None if text is None else split_columns(text)


def pop_prefixed(options: dict[str, str], prefix: str) -> dict[str, str]:
    """Pop the options that begin with ``prefix``, and return them without it.

    >>> options = {"storage.region": "x", "path": "p"}
    >>> pop_prefixed(options, "storage."), options
    ({'region': 'x'}, {'path': 'p'})
    """
    return {key.removeprefix(prefix): options.pop(key) for key in [*options] if key.startswith(prefix)}


def select_columns(frame: DataFrame, has: st.StructType, wanted: st.StructType) -> DataFrame:
    """Select the ``wanted`` columns and fields, in their order, of a frame that ``has`` at least these."""
    if has == wanted:
        return frame
    columns = []
    for field in wanted.fields:
        column = frame[quote_path((field.name,))]
        columns.append(_select_fields(column, has[field.name].dataType, field.dataType).alias(field.name))
    return frame.select(*columns)


def _select_fields(column: Any, has: st.DataType, wanted: st.DataType) -> Any:
    if has == wanted or not isinstance(has, st.StructType) or not isinstance(wanted, st.StructType):
        return column
    parts = [
        _select_fields(column.getField(field.name), has[field.name].dataType, field.dataType).alias(
            field.name
        )
        for field in wanted.fields
    ]
    return functions.when(column.isNotNull(), functions.struct(*parts))


def quote_path(path: Sequence[str]) -> str:
    """Quote a path for Spark's parser."""
    return ".".join("`" + name.replace("`", "``") + "`" for name in path)
