"""``spark.read.format("skipstone")``: the lake as a Python data source of Spark's.

Options: ``where`` (a condition, in SQL, for what Spark doesn't push), ``columns`` (names with commas between,
in backticks where they have commas), ``tz`` (the zone of texts that stand for times in ``where``; UTC),
``pushdown`` (true: take the filters that Spark pushes, for one query of the frame), ``index_root``, ``index``
(false: without it), and ``storage.*`` for the object store. For writing see
:mod:`skipstone.bridge.spark.sink`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)

from skipstone.bridge.spark.options import STORAGE, names_of
from skipstone.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from skipstone.index.lake import IndexedLake
    from skipstone.predicate import Predicate
    from skipstone.scan.parts import Part
    from skipstone.scan.plan import ScanPlan

_TASKS = 16
_PUSHING = "data_source_pushdown_filters.py"


class SkipstoneSource(DataSource):
    """A directory of Parquet files, or one file, read with skipping."""

    @classmethod
    def name(cls) -> str:
        """As in ``format("skipstone")``."""
        return "skipstone"

    def schema(self) -> StructType:
        """What Spark's own reader would say of the wanted columns; a condition about others is refused."""
        from skipstone.filter import RowFilter

        asked = ReadOptions.of(dict(self.options))
        lake = _lake(asked)
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
        wanted = ReadOptions.of(dict(self.options)).pushdown
        kind = PushingReader if wanted and _is_pushing() else Reader
        return kind(self, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A writer that appends."""
        from skipstone.bridge.spark.sink import Writer
        from skipstone.ingest.lakes import refuse_overwrite

        if overwrite:
            raise refuse_overwrite(self.options.get("path", ""))
        return Writer(dict(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002, N802
        """There is none: a directory has no place to keep what a stream has done."""
        from skipstone.ingest.lakes import refuse_stream

        raise refuse_stream(self.options.get("path", ""))

    def plan(self, pushed: Sequence[Predicate], schema: StructType) -> ScanPlan:
        """The plan of what the options and some filters ask for, in a schema's columns."""
        from skipstone.engine.spark_types import arrow_schema
        from skipstone.scan.options import ScanOptions
        from skipstone.scan.scan import Scan

        asked = ReadOptions.of(dict(self.options))
        lake, columns = _lake(asked), asked.columns
        if not _is_ours(lake, columns, schema):
            # The user has said what the columns are to be.
            lake, columns = _lake(asked, arrow_schema(schema)), list(schema.names)
        where = _condition(asked, pushed)
        return Scan(lake, where, columns, None, None, ScanOptions(index=asked.index)).plan()


def _lake(asked: ReadOptions, schema: pa.Schema | None = None) -> IndexedLake:
    from skipstone.index.lake import IndexedLake
    from skipstone.store.place import open_place, open_root

    stored = asked.storage or None
    place, pattern = open_place(asked.path, storage_options=stored)
    root = asked.index_root and open_root(asked.index_root, storage_options=stored)
    return IndexedLake(place, pattern, index_root=root or None, schema=schema)


def _condition(asked: ReadOptions, pushed: Sequence[Predicate]) -> Predicate | None:
    from skipstone.predicate import parse
    from skipstone.predicate.tree import conjunction

    parts = [*([parse(asked.where, tz=asked.tz)] if asked.where else []), *pushed]
    return conjunction(parts) if parts else None


def _schema(lake: IndexedLake, columns: list[str] | None) -> StructType:
    from skipstone.bridge.spark.frames import told_by
    from skipstone.engine.spark_types import spark_schema
    from skipstone.scan.projection import resolve

    wanted = resolve(columns, lake.schema, case_sensitive=True)
    return spark_schema(wanted.schema, lake.query_schema, told_by(lake), sorted(lake.partition_names))


def _is_ours(lake: IndexedLake, columns: list[str] | None, schema: StructType) -> bool:
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
    where: str | None
    columns: list[str] | None
    tz: str
    pushdown: bool
    index: bool
    index_root: str | None
    storage: dict[str, str]

    @classmethod
    def of(cls, given: dict[str, str]) -> ReadOptions:
        """Read the options; one that nobody knows is an error."""
        storage = {key.removeprefix(STORAGE): given.pop(key) for key in [*given] if key.startswith(STORAGE)}
        found = cls(
            path=given.pop("path", ""),
            where=given.pop("where", None),
            columns=names_of(given.pop("columns", None)),
            tz=given.pop("tz", "UTC"),
            pushdown=given.pop("pushdown", "false").lower() == "true",
            index=given.pop("index", "true").lower() != "false",
            index_root=given.pop("index_root", None),
            storage=storage,
        )
        if given:
            known = "where, columns, tz, pushdown, index, index_root and storage.*"
            raise UsageError(f"there is no option {', '.join(sorted(given))}", hint=f"options are {known}")
        if not found.path:
            raise UsageError("there is no path", hint='give one to load(), as in .load("lake")')
        return found


class Reader(DataSourceReader):
    """Reads what ``where`` leaves."""

    def __init__(self, source: SkipstoneSource, schema: StructType) -> None:
        from skipstone.engine.spark_types import arrow_schema

        self._source = source
        self._schema = schema
        self._target = arrow_schema(schema)
        self._pushed: tuple[Predicate, ...] = ()

    @cached_property
    def _plan(self) -> ScanPlan:
        return self._source.plan(self._pushed, self._schema)

    @cached_property
    def _common(self) -> ScanPlan:
        from skipstone.scan.parts import shared

        return shared(self._plan)

    def __getstate__(self) -> dict[str, Any]:
        # Spark sends the reader on its way before it asks for partitions.
        return {"_common": self._common, "_target": self._target}

    def partitions(self) -> Sequence[InputPartition]:
        """Parts of about equal bytes."""
        from skipstone.scan.parts import split

        return [Slices(part) for part in split(self._plan, _TASKS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part."""
        from skipstone.bridge.spark.frames import read_part

        # Without any parts Spark makes up one of its own.
        if isinstance(partition, Slices):
            yield from read_part(replace(self._common, tasks=partition.tasks), self._target)


class PushingReader(Reader):
    """A reader that leaves nothing of a filter it understands to Spark."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Take the filters that can be answered exactly, and give back the others."""
        from skipstone.predicate import tree
        from skipstone.predicate.spark import from_spark

        found = [(each, from_spark(each)) for each in filters]
        odd = [any(isinstance(node, tree.Opaque) for node in meant.walk()) for _, meant in found]
        self._pushed = tuple(meant for (_, meant), left in zip(found, odd, strict=True) if not left)
        return [each for (each, _), left in zip(found, odd, strict=True) if left]


@dataclass
class Slices(InputPartition):
    """Work for one task."""

    tasks: Part


def _is_pushing() -> bool:
    frame: Any = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename.endswith(_PUSHING):
            return True
        frame = frame.f_back
    return False
