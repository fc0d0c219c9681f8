"""Types of arguments, to annotate functions that call Skipstone.

Each alias is the union of what a parameter accepts. Where a library has no types of its own, as pyarrow, a
protocol names what Skipstone calls.

Examples:
    >>> import skipstone as sk
    >>> from skipstone.typing import PredicateLike
    >>> def rows(where: PredicateLike) -> int:
    ...     return sk.open("events").scan(where).count()
    >>> rows("event_id < 10"), rows(sk.col("event_id") < 10)
    (10, 10)
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import date, time
    from decimal import Decimal
    from typing import BinaryIO
    from uuid import UUID

    import datafusion
    import numpy as np
    import numpy.typing as npt
    import obstore.store
    import polars as pl
    import pyarrow as pa
    from pyiceberg.catalog import Catalog as IcebergCatalog
    from pyiceberg.expressions import BooleanExpression
    from pyroaring import AbstractBitMap, AbstractBitMap64
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import Filter
    from typing_extensions import Buffer

    from skipstone.aggregate.members import Members
    from skipstone.core.domain.domain import DomainTree
    from skipstone.core.rows import RowSet
    from skipstone.core.rows.intset import IntSet
    from skipstone.engine.jobs import Engine
    from skipstone.iceberg.metadata import SnapshotInfo
    from skipstone.predicate.tree import Expr
    from skipstone.scan.lake import Lake
    from skipstone.store.source import Source
    from skipstone.tables import Catalog

__all__ = [
    "ArrowArray",
    "ArrowExpression",
    "ArrowFileMetaData",
    "ArrowStream",
    "CatalogLike",
    "ClusterOrder",
    "CompactionStrategy",
    "Compression",
    "DataLike",
    "Dialect",
    "EngineLike",
    "EngineName",
    "EngineRoute",
    "GroupByLike",
    "IdSet",
    "IngestProgress",
    "JobOrder",
    "KeySetLike",
    "KeysLike",
    "MembersLike",
    "MergeAction",
    "OrderLike",
    "PredicateLike",
    "Progress",
    "QueryLog",
    "ReportFormat",
    "SemiJoinLike",
    "SnapshotLike",
    "SourceLike",
    "SparkRoute",
    "StorageOptions",
    "StrPath",
    "UserAggregate",
]


class ArrowStream(Protocol):
    """Data that Arrow can read as a stream: tables of pyarrow, Polars, pandas, DuckDB and others."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...


class ArrowArray(Protocol):
    """Data that Arrow can read as one array or one batch."""

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any: ...


class ArrowExpression(Protocol):
    """A ``pyarrow.compute.Expression``."""

    def is_valid(self, *args: Any, **kwargs: Any) -> Any: ...
    def to_substrait(self, *args: Any, **kwargs: Any) -> Any: ...


class ArrowFileMetaData(Protocol):
    """A ``pyarrow.parquet.FileMetaData``."""

    def row_group(self, *args: Any, **kwargs: Any) -> Any: ...
    def write_metadata_file(self, *args: Any, **kwargs: Any) -> Any: ...


class UserAggregate(Protocol):
    """An aggregate for :func:`skipstone.udaf`."""

    def init(self) -> Any:
        """Return the state of no rows."""

    def update(self, state: Any, batch: pa.RecordBatch, /) -> Any:
        """Return the state with the rows of a batch added."""

    def merge(self, a: Any, b: Any, /) -> Any:
        """Return one state for the rows of two."""

    def finish(self, state: Any, /) -> Any:
        """Return the value of the aggregate."""


StrPath: TypeAlias = str | os.PathLike[str]
"""A path or a URI."""

StorageOptions: TypeAlias = "Mapping[str, object]"
"""Options of the object store, with the names that obstore uses: ``{"region": "eu-west-1"}``."""

SourceLike: TypeAlias = "StrPath | Buffer | BinaryIO | tuple[obstore.store.ObjectStore, str] | Source"
"""One Parquet file: a path or URI, bytes, a binary file object, or an obstore store and a key."""

PredicateLike: TypeAlias = (
    "str | bool | Expr | DomainTree | ArrowExpression | pl.Expr | datafusion.Expr | BooleanExpression"
    " | Sequence[Filter] | None"
)
"""A condition: SQL text, ``sk.col(...)`` expressions, a column domain, or an expression of another library.

Other libraries are pyarrow, Polars, DataFusion, pyiceberg and PySpark (data source filters, joined by AND).
None is TRUE for every row."""

Dialect: TypeAlias = Literal["spark", "hive", "trino", "presto", "duckdb"]
"""A dialect of SQL."""

OrderLike: TypeAlias = "str | Sequence[str | tuple[str, str]]"
"""Columns to order by: ``"ts desc"``, ``["country", "ts desc nulls last"]`` or ``[("ts", "descending")]``."""

SnapshotLike: TypeAlias = "int | str | date | SnapshotInfo"
"""A snapshot of a table: its id, a branch, a tag, or a time (ISO text, date or datetime)."""

CatalogLike: TypeAlias = "StrPath | Mapping[str, str] | Catalog | IcebergCatalog"
"""A catalog: the directory of a warehouse, a name in pyiceberg's configuration, properties, or a catalog."""

EngineLike: TypeAlias = "Literal['auto', 'spark', 'local'] | SparkSession | Engine"
"""Where tasks run: on Spark, or on threads of this process.

``"auto"`` is Spark where PySpark and Java 17 or newer are installed, except that an input below 64 MB runs on
local threads unless a session is running; without Spark it is local threads. The environment variable
``SKIPSTONE_ENGINE`` (``spark`` or ``local``) decides first."""

GroupByLike: TypeAlias = "str | Expr | Sequence[str | Expr] | Mapping[str, str | Expr]"
"""Columns or expressions to group by: ``"day"``, ``["country", "year(ts) AS y"]``, ``{"y": "year(ts)"}``."""

IdSet: TypeAlias = (
    "AbstractBitMap | AbstractBitMap64 | RowSet | IntSet | npt.NDArray[np.integer[Any]]"
    " | ArrowArray | ArrowStream | Iterable[int]"
)
"""Integers: a pyroaring bitmap, a row set, a NumPy or Arrow array, or any iterable."""

MembersLike: TypeAlias = (
    "IdSet | Mapping[str, IdSet] | Members | Sequence[IdSet | Mapping[str, IdSet] | Members]"
)
"""Rows by their ids, or by their positions in files; a list of several must all hold."""

DataLike: TypeAlias = (
    "DataFrame | pl.LazyFrame | ArrowStream | ArrowArray | Sequence[ArrowArray | Mapping[str, Any]] | Lake"
)
"""Rows: a Spark data frame, a table of pyarrow, pandas, Polars or another Arrow library, batches,

a list of dictionaries, or a lake."""

KeysLike: TypeAlias = (
    "int | str | bytes | date | time | Decimal | UUID | Mapping[str, Any] | Sequence[Any]"
    " | ArrowArray | ArrowStream"
)
"""Keys of a table: a value, a tuple of one value per key column, a mapping by column, or a list of these.

An Arrow array, and a table with the key columns, are keys too."""

KeySetLike: TypeAlias = (
    "pa.Array | pa.ChunkedArray | npt.NDArray[Any] | AbstractBitMap | AbstractBitMap64"
    " | ArrowArray | ArrowStream | Iterable[object]"
)
"""Values of one column: an Arrow or NumPy array, a pyroaring bitmap, a series, or any iterable."""

MergeAction: TypeAlias = "Literal['update', 'delete', 'ignore'] | Mapping[str, Any]"
"""What a merge does to a row: update all columns, set some to expressions, delete it, or nothing."""

SemiJoinLike: TypeAlias = "tuple[str | Expr, KeySetLike]"
"""A column, by its name or as an expression, and the values that it may have."""

QueryLog: TypeAlias = "StrPath | Iterable[PredicateLike | tuple[PredicateLike, float]]"
"""Queries of a workload: the path of a query log, or predicates, each alone or with its weight."""

Progress: TypeAlias = "Callable[[int, int], None]"
"""Called with the number of finished tasks and the number of all tasks."""

SizeLike: TypeAlias = int | str
"""Bytes, or text with a unit: ``"64MB"``, ``"1GiB"``."""

IngestProgress: TypeAlias = "Callable[[str, int, int], None]"
"""Called with the name of the phase, and the number of its finished and of all rows, tasks or files."""

ClusterOrder: TypeAlias = Literal["sort", "zorder", "hilbert"]
"""The order of rows in files."""

Compression: TypeAlias = Literal["zstd", "snappy", "gzip", "lz4", "brotli", "none"]
"""The codec of Parquet files."""

CompactionStrategy: TypeAlias = Literal["binpack", "sort", "zorder", "hilbert"]
"""What a compaction does with the order of rows: keep it, or order each group by columns."""

JobOrder: TypeAlias = Literal["none", "bytes-asc", "bytes-desc", "files-asc", "files-desc"]
"""The order in which a compaction rewrites groups of files."""

ReportFormat: TypeAlias = Literal["text", "json", "html"]
"""The format of a report."""

EngineName: TypeAlias = Literal["duckdb", "datafusion", "polars"]
"""An engine of this process that queries lakes."""

EngineRoute: TypeAlias = Literal["auto", "slices", "reader"]
"""The route of rows to such an engine: as page slices, or with the engine's own reader."""

SparkRoute: TypeAlias = Literal["auto", "driver", "slices", "reader"]
"""The route of rows to Spark: through the driver, as page slices in tasks, or with Spark's own reader."""
