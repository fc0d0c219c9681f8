"""``spark.read.format("skipstone")``: the lake as a Python data source of Spark's.

Options: ``where`` (a condition, in SQL, for what Spark doesn't push), ``columns`` (names with commas between,
in backticks where they have commas), ``tz`` (the zone of texts that stand for times in ``where``; UTC),
``pushdown`` (true: take the filters that Spark pushes, for one query of the frame), ``index_root``, ``index``
(false: without it), ``stay_below_root`` (true: as for ``sk.open``), and ``storage.*`` for the object store. A
table is loaded by its name, with ``catalog`` (a warehouse, or a name that pyiceberg knows) and ``catalog.*``
(its properties), or by its metadata file; ``snapshot`` is an id, a tag, a branch or a time. For writing see
:mod:`skipstone.spark.sink`.
"""

from __future__ import annotations

import re
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
    from skipstone.scan.lake import Lake, Table
    from skipstone.scan.parts import TaskGroup
    from skipstone.scan.plan import ScanPlan
    from skipstone.store.store import Store


_TASKS = 16
_PUSHING = "data_source_pushdown_filters.py"


class SkipstoneSource(DataSource):
    """A directory of Parquet files, one file, or an Iceberg table, read with skipping."""

    _pinned: Table | None = None
    """The table as it was when the frame was loaded: Spark keeps the source that has told its schema."""

    def __getstate__(self) -> dict[str, Any]:
        pinned = None if self._pinned is None else with_credentials(self._pinned)
        return {**self.__dict__, "_pinned": pinned}

    @classmethod
    def name(cls) -> str:
        """As in ``format("skipstone")``."""
        return "skipstone"

    def schema(self) -> StructType:
        """What Spark's own reader would say of the wanted columns; a condition about others is refused."""
        from skipstone.core.filter import RowFilter

        asked = ReadOptions.of(dict(self.options))
        lake: Lake
        if asked.is_table:
            lake = self._pinned = _table(asked)
        else:
            lake = _directory(asked)
        where = _condition(asked, ())
        if where is not None:
            RowFilter(where, lake.query_schema)
        return _schema(lake, asked.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader; with the option ``pushdown`` it takes filters, if Spark is about to push some.

        That can't be the default: Spark 4.3 keeps what was last planned for a loaded frame, filters and all,
        and plans other queries of the same frame (even the other side of a union) with them, so that rows
        would be lost. Who asks for it loads the lake anew for each query.

        Spark refuses a reader that could take filters while pushing is off, and tells nobody here whether
        it is: but a worker that pushes is another program than one that only plans.
        """
        asked = ReadOptions.of(dict(self.options))
        kind = PushingReader if asked.pushdown and _is_pushing() else SourceReader
        # Spark sends this source to every task, which needs nothing but the plan.
        pinned, self._pinned = self._pinned, None
        return kind(asked, schema, pinned)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A writer that appends, or into a table also replaces."""
        from skipstone.spark.sink import make_writer

        return make_writer(dict(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """A writer of micro-batches into a table; a directory has no place to keep what a stream has done."""
        from skipstone.spark.table_sink import make_stream_writer

        return make_stream_writer(dict(self.options), schema, overwrite)


def _lake_of(asked: ReadOptions, pinned: Table | None, schema: StructType) -> tuple[Lake, list[str] | None]:
    """The lake that has a schema's columns, and their names if they are to be chosen."""
    from skipstone.engine.spark_types import arrow_schema

    lake: Lake | None = pinned
    if lake is None:
        lake = _table(asked) if asked.is_table else _directory(asked)
    if _is_ours(lake, asked.columns, schema):
        return lake, asked.columns
    if asked.is_table:
        hint = "leave out schema(), and choose columns with the option columns"
        raise UsageError("a table has its own schema, which is not the one given", path=asked.path, hint=hint)
    # The user has said what the columns are to be.
    return _directory(asked, arrow_schema(schema)), list(schema.names)


def _directory(asked: ReadOptions, schema: pa.Schema | None = None) -> Lake:
    from skipstone.scan.lake import Lake
    from skipstone.store.store import open_store

    store, pattern = open_store(
        asked.path, storage_options=asked.storage or None, stay_below_root=asked.stay_below_root
    )
    return Lake(store, pattern, index_root=asked.index_store, schema=schema)


def _table(asked: ReadOptions) -> Table:
    from skipstone.iceberg.catalogs import load_table, open_catalog, static_table
    from skipstone.scan.lake import Table

    if asked.catalog is None and asked.path.endswith(METADATA_FILES):
        found = static_table(asked.path, asked.properties, asked.storage)
    else:
        found = load_table(asked.path, open_catalog(asked.catalog, make=False, **asked.properties))
    return Table(
        found,
        snapshot=asked.snapshot,
        storage_options=asked.storage or None,
        index_root=asked.index_store,
        stay_below_root=asked.stay_below_root,
    )


def _condition(asked: ReadOptions, pushed: Sequence[Predicate]) -> Predicate | None:
    from skipstone.predicate import parse
    from skipstone.predicate.tree import conjunction

    parts = [*([parse(asked.where, tz=asked.tz)] if asked.where else []), *pushed]
    return conjunction(parts) if parts else None


def _schema(lake: Lake, columns: list[str] | None) -> StructType:
    from skipstone.engine.spark_types import spark_schema
    from skipstone.scan.projection import resolve
    from skipstone.spark.frames import schema_from_spark
    from skipstone.spark.routes import is_table

    wanted = resolve(columns, lake.schema, case_sensitive=True)
    given = sorted(lake.partition_names)
    return spark_schema(
        wanted.schema, lake.query_schema, schema_from_spark(lake), given, table=is_table(lake.access)
    )


def _is_ours(lake: Lake, columns: list[str] | None, schema: StructType) -> bool:
    from skipstone.engine.spark_types import arrow_schema
    from skipstone.errors import SchemaError

    try:
        return bool(arrow_schema(_schema(lake, columns)).equals(arrow_schema(schema)))
    except SchemaError:
        return False


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What ``option(...)`` and ``load`` have said."""

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
    def of(cls, given: dict[str, str]) -> ReadOptions:
        """Read the options; one that nobody knows is an error."""
        found = cls(
            path=given.pop("path", ""),
            catalog=given.pop(CATALOG, None),
            properties=taken(given, f"{CATALOG}."),
            snapshot=given.pop("snapshot", None),
            where=given.pop("where", None),
            columns=names_of(given.pop("columns", None)),
            tz=given.pop("tz", "UTC"),
            pushdown=given.pop("pushdown", "false").lower() == "true",
            index=given.pop("index", "true").lower() != "false",
            index_root=given.pop("index_root", None),
            stay_below_root=given.pop("stay_below_root", "false").lower() == "true",
            storage=taken(given, STORAGE),
        )
        if given:
            known = (
                "where, columns, tz, pushdown, index, index_root, stay_below_root, storage.*, catalog, "
                "catalog.*, snapshot"
            )
            raise UsageError(f"there is no option {', '.join(sorted(given))}", hint=f"options are {known}")
        if not found.path:
            raise UsageError("there is no path", hint='give one to load(), as in .load("lake")')
        if found.snapshot is not None and not found.is_table:
            hint = "give a table's catalog, or its metadata file"
            raise UsageError("a directory has no snapshots", path=found.path, hint=hint)
        return found

    @property
    def is_table(self) -> bool:
        """Whether a table is meant: by a name in a catalog, or by its metadata file."""
        named = self.catalog is not None or bool(self.properties)
        return named or self.path.endswith(METADATA_FILES)

    @property
    def index_store(self) -> Store | None:
        """Where the index is, unless in the lake."""
        from skipstone.store.store import open_root

        if not self.index_root:
            return None
        return open_root(self.index_root, storage_options=self.storage or None)


class SourceReader(DataSourceReader):
    """Reads what ``where`` leaves."""

    def __init__(self, asked: ReadOptions, schema: StructType, pinned: Table | None) -> None:
        from skipstone.engine.spark_types import arrow_schema

        self._asked = asked
        self._pinned = pinned
        self._schema = schema
        self._target = arrow_schema(schema)
        self._pushed: tuple[Predicate, ...] = ()

    @cached_property
    def _lake(self) -> tuple[Lake, list[str] | None]:
        return _lake_of(self._asked, self._pinned, self._schema)

    @cached_property
    def _plan(self) -> ScanPlan:
        from skipstone.scan.options import ScanOptions
        from skipstone.scan.scan import Scan

        (lake, columns), where = self._lake, _condition(self._asked, self._pushed)
        return Scan(lake, where, columns, None, None, ScanOptions(index=self._asked.index)).plan()

    @cached_property
    def _common(self) -> ScanPlan:
        from skipstone.scan.parts import shared

        return shared(self._plan)

    def __getstate__(self) -> dict[str, Any]:
        # Spark sends the reader on its way before it asks for partitions; its tasks need the credentials.
        return {"_common": with_credentials(self._common), "_target": self._target}

    def partitions(self) -> Sequence[InputPartition]:
        """Parts of about equal bytes."""
        from skipstone.scan.parts import split

        return [Slices(part) for part in split(self._plan, _TASKS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part."""
        from skipstone.spark.frames import read_part

        # Without any parts Spark makes up one of its own.
        if isinstance(partition, Slices):
            yield from read_part(replace(self._common, tasks=partition.tasks), self._target)


class PushingReader(SourceReader):
    """A reader that leaves nothing of a filter it understands to Spark."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Take the filters that can be answered exactly, and give back the others."""
        from skipstone.predicate.spark import from_spark

        found = [(each, from_spark(each)) for each in filters]
        odd = [self._is_odd(meant) for _, meant in found]
        self._pushed = tuple(meant for (_, meant), left in zip(found, odd, strict=True) if not left)
        return [each for (each, _), left in zip(found, odd, strict=True) if left]

    def _is_odd(self, meant: Predicate) -> bool:
        """Whether a filter is for Spark to test: nobody here understands it, or it takes UUIDs for texts."""
        from skipstone.engine.spark_types import is_text_in_spark
        from skipstone.predicate import tree

        own = self._lake[0].schema
        return any(
            isinstance(node, tree.Opaque)
            or (isinstance(node, tree.Column) and is_text_in_spark(own, node.path))
            for node in meant.walk()
        )


@dataclass
class Slices(InputPartition):
    """Work for one task."""

    tasks: TaskGroup


def _is_pushing() -> bool:
    frame: Any = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename.endswith(_PUSHING):
            return True
        frame = frame.f_back
    return False


STORAGE: Final = "storage."
"""Options that begin with it are the object store's."""
CATALOG: Final = "catalog"
"""The option that names a catalog of tables: one that pyiceberg knows, or the path of a warehouse."""
_NAME = re.compile(r"\s*(?:`((?:[^`]|``)*)`\s*(?=,|$)|([^,]*))(?:,|$)")


def names_of(text: str | None) -> list[str] | None:
    """Names with commas between, in backticks if they have commas of their own; None for no text.

    >>> names_of("a, s.x,`b, c`")
    ['a', 's.x', 'b, c']
    """
    if text is None:
        return None
    found = [(quoted.replace("``", "`"), plain.strip()) for quoted, plain in _NAME.findall(text)]
    return [quoted or plain for quoted, plain in found if quoted or plain]


def taken(given: dict[str, str], prefix: str) -> dict[str, str]:
    """Take the options that begin with ``prefix``, without it.

    >>> options = {"storage.region": "x", "path": "p"}
    >>> taken(options, "storage."), options
    ({'region': 'x'}, {'path': 'p'})
    """
    return {key.removeprefix(prefix): given.pop(key) for key in [*given] if key.startswith(prefix)}


def shaped(frame: DataFrame, has: st.StructType, wanted: st.StructType) -> DataFrame:
    """A frame that ``has`` these columns, with the ``wanted`` ones, in their order."""
    if has == wanted:
        return frame
    columns = []
    for field in wanted.fields:
        column = frame[quoted((field.name,))]
        columns.append(_cut(column, has[field.name].dataType, field.dataType).alias(field.name))
    return frame.select(*columns)


def _cut(column: Any, has: st.DataType, wanted: st.DataType) -> Any:
    if has == wanted or not isinstance(has, st.StructType) or not isinstance(wanted, st.StructType):
        return column
    parts = [
        _cut(column.getField(field.name), has[field.name].dataType, field.dataType).alias(field.name)
        for field in wanted.fields
    ]
    return functions.when(column.isNotNull(), functions.struct(*parts))


def quoted(path: Sequence[str]) -> str:
    """A path as Spark's parser takes it."""
    return ".".join("`" + name.replace("`", "``") + "`" for name in path)
