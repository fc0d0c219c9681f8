"""Public functions that open things, and the modules of the other public names, loaded on first use."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, overload

from skipstone.errors import MissingFileError, ReadError, UsageError, require
from skipstone.errors import __all__ as error_names

if TYPE_CHECKING:
    import pyarrow as pa
    from obstore.store import ObjectStore
    from pyiceberg.table import Table as IcebergTable
    from pyspark.sql import SparkSession

    from skipstone.parquet.metadata import ParquetMetadata
    from skipstone.scan.lake import Lake
    from skipstone.scan.table import Table
    from skipstone.store.retry import RetryPolicy
    from skipstone.tables import Catalog
    from skipstone.typing import CatalogLike, SnapshotLike, SourceLike, StorageOptions, StrPath


def read_metadata(source: SourceLike, storage_options: StorageOptions | None = None) -> ParquetMetadata:
    """Read the footer of one Parquet file, to prune the file several times without reading it again.

    Args:
        source: A path or URI, bytes, a binary file object, or an obstore store with a key.
        storage_options: Options of the object store.

    Raises:
        NotParquetError: If the file is not a Parquet file.

    Examples:
        >>> import skipstone as sk
        >>> metadata = sk.read_metadata("events/part-0.parquet")
        >>> metadata.num_rows, sk.prune(metadata, "event_id = 7").row_groups
        (250, [0])
    """
    from skipstone.parquet.metadata import read_footer
    from skipstone.store.source import open_source

    return read_footer(open_source(source, storage_options=storage_options))


def spark(
    master: str | None = None, *, remote: str | None = None, conf: Mapping[str, str] | None = None
) -> SparkSession:
    """Return the running Spark session, or start one with settings for Skipstone and this machine.

    Args:
        master: The master; by default the configured one, or all cores of this machine.
        remote: A Spark Connect URL.
        conf: Settings of the session.

    Raises:
        UsageError: If the running session has another master or other settings.

    Examples:
        >>> import skipstone as sk
        >>> sk.open("events").scan("event_id < 10").to_spark(sk.spark()).count()
        10
    """
    from skipstone.engine.session import spark_session

    return spark_session(master, remote, conf)


def register(session: SparkSession) -> None:
    """Register ``spark.read.format("skipstone")`` in a Spark session that doesn't discover data sources.

    Args:
        session: The session, classic or Connect.

    Examples:
        >>> import skipstone as sk
        >>> session = sk.spark()
        >>> sk.register(session)
        >>> session.read.format("skipstone").load(sk.open("events").uri).count()
        1000
    """
    require("pyspark")
    from skipstone.spark.source import SkipstoneSource

    session.dataSource.register(SkipstoneSource)


@overload
def open(
    path: StrPath | IcebergTable,
    *,
    catalog: CatalogLike,
    snapshot: SnapshotLike | None = None,
    storage_options: StorageOptions | None = None,
    retry: RetryPolicy | None = None,
    index_root: StrPath | None = None,
    stay_below_root: bool = False,
) -> Table: ...


@overload
def open(
    path: IcebergTable,
    *,
    snapshot: SnapshotLike | None = None,
    storage_options: StorageOptions | None = None,
    retry: RetryPolicy | None = None,
    index_root: StrPath | None = None,
    stay_below_root: bool = False,
) -> Table: ...


@overload
def open(
    path: StrPath,
    *,
    catalog: None = None,
    snapshot: SnapshotLike | None = None,
    storage_options: StorageOptions | None = None,
    store: ObjectStore | None = None,
    schema: pa.Schema | None = None,
    retry: RetryPolicy | None = None,
    index_root: StrPath | None = None,
    stay_below_root: bool = False,
) -> Lake: ...


def open(
    path: StrPath | IcebergTable,
    *,
    catalog: CatalogLike | None = None,
    snapshot: SnapshotLike | None = None,
    storage_options: StorageOptions | None = None,
    store: ObjectStore | None = None,
    schema: pa.Schema | None = None,
    retry: RetryPolicy | None = None,
    index_root: StrPath | None = None,
    stay_below_root: bool = False,
) -> Lake:
    """Open a directory of Parquet files, one file, a glob, or an Iceberg table, at its current version.

    Args:
        path: A path or URI of a directory, a file or a glob; with ``catalog`` the name of a table; the
            metadata file of a table (``….metadata.json``); or a pyiceberg table.
        catalog: The catalog of the table, as [catalog][skipstone.catalog] accepts it.
        snapshot: A snapshot of the table: an id, a branch, a tag or a time. The default is the current one.
        storage_options: Options of the object store.
        store: An obstore store, in which ``path`` is a prefix, a key or a glob.
        schema: Columns and types of a directory, instead of those of its files.
        retry: When to repeat failed requests.
        index_root: The directory of the index; by default in ``.skipstone`` beside the lake.
        stay_below_root: Refuse links out of the directory, and files of a table outside its directory. Use it
            for lakes that you don't trust.

    Returns:
        A [Lake][skipstone.Lake], which is a [Table][skipstone.Table] for Iceberg tables.

    Raises:
        MissingFileError: If nothing exists at the path.
        UsageError: If the arguments exclude each other.

    Examples:
        >>> import skipstone as sk
        >>> lake = sk.open("events")
        >>> len(lake.files), lake.schema.names
        (4, ['event_id', 'ts', 'country', 'amount'])
        >>> sk.open("events/part-[01].parquet").scan().count()
        500
        >>> sk.open("db.events", catalog="warehouse").scan("event_id = 7").count()
        1
    """
    from skipstone.scan.lake import Lake
    from skipstone.store.store import open_root, open_store

    root = None if index_root is None else open_root(index_root, storage_options=storage_options, store=store)
    if catalog is not None or is_table(path):
        if store is not None or schema is not None:
            raise UsageError(
                "schema= and store= are options of directories", hint="leave them out for a table"
            )
        from skipstone.iceberg.catalogs import check_installed

        check_installed()
        from skipstone.tables import open_table

        return open_table(
            path,
            catalog,
            snapshot=snapshot,
            storage_options=storage_options,
            retry=retry,
            index_root=root,
            stay_below_root=stay_below_root,
        )
    if snapshot is not None:
        raise UsageError("a directory has no snapshots", path=str(path), hint="pass catalog= to open a table")
    try:
        lake_store, pattern = open_store(
            path, storage_options=storage_options, store=store, stay_below_root=stay_below_root
        )
    except ReadError as error:
        from skipstone.iceberg.catalogs import is_table_name

        if isinstance(path, str) and is_table_name(path) and error.hint is None:
            error.hint = "pass catalog= or --catalog to open a table of that name"
        elif isinstance(error, MissingFileError) and error.hint is None:
            from skipstone.store.local import path_hint

            error.hint = path_hint(str(path))
        raise
    return Lake(lake_store, pattern, schema=schema, retry=retry, index_root=root)


def is_table(path: object) -> bool:
    """Whether ``path`` is the metadata file of a table, or a pyiceberg table."""
    if isinstance(path, str | os.PathLike):
        return os.fsdecode(path).endswith((".metadata.json", ".metadata.json.gz"))
    return type(path).__module__.startswith("pyiceberg.")


def catalog(warehouse: CatalogLike | None = None, **properties: str) -> Catalog:
    """Open a catalog of Iceberg tables.

    Args:
        warehouse: A local directory with an embedded catalog, which is created if it doesn't exist; the name
            of a catalog in pyiceberg's configuration; pyiceberg properties; or a pyiceberg catalog.
        **properties: More pyiceberg properties.

    Examples:
        >>> import skipstone as sk
        >>> sk.catalog("warehouse").tables()
        ['db.accounts', 'db.events']
    """
    from skipstone.iceberg.catalogs import check_installed

    check_installed()
    from skipstone.tables import Catalog

    return Catalog(warehouse, **properties)


# Modules of the other names; each is loaded when one of its names is first used.
_HOMES = {
    "aggregate.aggregation": ("Aggregation",),
    "aggregate.functions": (
        "Aggregate",
        "approx_distinct",
        "avg",
        "count",
        "count_distinct",
        "first",
        "histogram",
        "last",
        "max",
        "min",
        "quantile",
        "stddev",
        "sum",
        "udaf",
        "var",
    ),
    "aggregate.members": ("Members", "members"),
    "compact.maintenance": ("Maintenance", "MaintenanceReport", "MaintenanceTask"),
    "compact.options": ("CompactionOptions",),
    "compact.plan": (
        "CompactionPlan",
        "CompactionPlanner",
        "CompactionPlanning",
        "FileGroup",
        "PlannedFile",
        "SkippedGroup",
    ),
    "compact.run": ("CompactionReport", "GroupFailure"),
    "core.domain": ("Bound", "ColumnDomain", "ColumnHandle", "Domain", "Marker", "Range"),
    "core.ir": ("Compiled", "Diagnostic"),
    "core.judge": ("Verdict",),
    "core.rows": ("RowSet",),
    "engine.jobs": ("Engine",),
    "errors": tuple(error_names),
    "iceberg.metadata": ("SnapshotInfo",),
    "index.advise.advice": ("Advice",),
    "index.advise.layout": ("ColumnLayout", "LakeLayout"),
    "index.index": ("LakeIndex",),
    "index.results": ("IndexReport", "IndexStatus"),
    "lake.snapshot": ("FileEntry",),
    "parquet.metadata": ("ParquetMetadata",),
    "predicate.coerce": ("parse", "predicate"),
    "predicate.tree": ("Expr", "Predicate", "col", "lit", "udf"),
    "prune.pruner": ("PruneResult", "Pruner", "prune"),
    "prune.survey": ("BloomProvider", "BloomRequest", "PruneOptions"),
    "report.trace": ("FilterStats", "ScanTrace", "Trace"),
    "scan.execute": ("Execution", "execute"),
    "scan.lake": ("Lake",),
    "scan.options": ("ScanOptions",),
    "scan.plan": ("ScanPlan",),
    "scan.results": ("Verification", "Why"),
    "scan.scan": ("Scan",),
    "scan.statistics": ("ColumnStatistics", "LakeStatistics"),
    "scan.table": ("Table",),
    "store.options": ("with_credentials",),
    "store.retry": ("RetryPolicy",),
    "table.changes": ("TableChanges",),
    "table.report": ("WriteReport",),
    "table.tail.status": ("TailStatus",),
    "table.tail.writer": ("TailWriter",),
    "table.transaction": ("Transaction",),
    "tables": ("Catalog",),
    "write.job": ("ingest",),
    "write.report": ("IngestReport", "PipelineReport"),
    "write.sources": ("ingest_new",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        return getattr(importlib.import_module(f"skipstone.{_HOME_OF[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
