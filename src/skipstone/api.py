"""The façade: the names a user meets. ``skipstone`` re-exports them lazily."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from skipstone.errors import ReadError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from skipstone.aggregate.aggregation import Aggregation
    from skipstone.aggregate.functions import (
        Aggregate,
        approx_distinct,
        avg,
        count,
        first,
        histogram,
        last,
        max,  # noqa: A004
        min,  # noqa: A004
        quantile,
        stddev,
        sum,  # noqa: A004
        udaf,
        var,
    )
    from skipstone.aggregate.members import Members, members
    from skipstone.core.domain import Bound, ColumnDomain, ColumnHandle, Domain, Marker, Range
    from skipstone.core.ir import Compiled, Diagnostic
    from skipstone.core.judge import Verdict
    from skipstone.core.rows import RowSet
    from skipstone.errors import SkipstoneError
    from skipstone.iceberg.metadata import SnapshotInfo
    from skipstone.lake.snapshot import FileEntry
    from skipstone.parquet.metadata import ParquetMetadata
    from skipstone.predicate import Expr, Predicate, col, lit, parse, predicate, udf
    from skipstone.prune.pruner import Pruner, PruneResult, prune
    from skipstone.prune.survey import BloomProvider, BloomRequest, PruneOptions
    from skipstone.report.trace import FilterStats, ScanTrace, Trace
    from skipstone.scan.execute import Execution, execute
    from skipstone.scan.lake import Lake, Table
    from skipstone.scan.options import ScanOptions
    from skipstone.scan.plan import ScanPlan
    from skipstone.scan.results import Verification, Why
    from skipstone.scan.scan import Scan
    from skipstone.scan.statistics import ColumnStatistics, LakeStatistics
    from skipstone.store.options import with_credentials
    from skipstone.store.retry import RetryPolicy
    from skipstone.tables import Catalog
    from skipstone.write.report import IngestReport, PipelineReport

__all__ = [
    "Aggregate",
    "Aggregation",
    "BloomProvider",
    "BloomRequest",
    "Bound",
    "Catalog",
    "ColumnDomain",
    "ColumnHandle",
    "ColumnStatistics",
    "Compiled",
    "Diagnostic",
    "Domain",
    "Execution",
    "Expr",
    "FileEntry",
    "FilterStats",
    "IngestReport",
    "Lake",
    "LakeStatistics",
    "Marker",
    "Members",
    "ParquetMetadata",
    "PipelineReport",
    "Predicate",
    "PruneOptions",
    "PruneResult",
    "Pruner",
    "Range",
    "RetryPolicy",
    "RowSet",
    "Scan",
    "ScanOptions",
    "ScanPlan",
    "ScanTrace",
    "SkipstoneError",
    "SnapshotInfo",
    "Table",
    "Trace",
    "Verdict",
    "Verification",
    "Why",
    "approx_distinct",
    "avg",
    "catalog",
    "col",
    "count",
    "execute",
    "first",
    "histogram",
    "ingest",
    "ingest_new",
    "last",
    "lit",
    "max",
    "members",
    "min",
    "open",
    "parse",
    "predicate",
    "prune",
    "quantile",
    "read_metadata",
    "register",
    "spark",
    "stddev",
    "sum",
    "udaf",
    "udf",
    "var",
    "with_credentials",
]


def read_metadata(source: Any, storage_options: Mapping[str, Any] | None = None) -> ParquetMetadata:
    """The footer of one file, to be used again: ``prune(metadata, ...)``, ``prune(path, metadata=...)``."""
    from skipstone.parquet.metadata import read_footer
    from skipstone.store.source import open_source

    return read_footer(open_source(source, storage_options=storage_options))


def spark(
    master: str | None = None, *, remote: str | None = None, conf: Mapping[str, str] | None = None
) -> SparkSession:
    """The Spark session that is running, as it is, or else a new one that suits Skipstone and this machine.

    Without ``master`` and ``remote`` (a Spark Connect URL) Spark takes what it is configured for, or all
    cores of this machine.
    """
    from skipstone.engine.session import spark_session

    return spark_session(master, remote, conf)


def ingest(data: Any, path: Any, **options: Any) -> IngestReport:
    """Append rows to a directory of Parquet files, laid out for skipping, and index them; on Spark.

    ``data`` is a Spark data frame or anything that Arrow can read. See
    :func:`skipstone.write.job.ingest` for ``partition_by``, ``cluster_by``, ``cluster``,
    ``target_file_bytes``, ``blooms`` and the other options.
    """
    from skipstone.write.job import ingest

    return ingest(data, path, **options)


def ingest_new(source: Any, path: Any, **options: Any) -> PipelineReport:
    """Ingest the files of ``source`` (Parquet, CSV, JSON or ORC) that the lake has not taken in before.

    In batches, each wholly or not at all, so that a run after an interrupted one goes on from there. See
    :func:`skipstone.write.sources.ingest_new` for the options.
    """
    from skipstone.write.sources import ingest_new

    return ingest_new(source, path, **options)


def register(session: SparkSession) -> None:
    """Make ``spark.read.format("skipstone")`` known to a session that doesn't find it by itself."""
    from skipstone.spark.source import SkipstoneSource

    session.dataSource.register(SkipstoneSource)


def open(
    path: Any,
    *,
    catalog: Any = None,
    snapshot: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    store: Any = None,
    schema: pa.Schema | None = None,
    retry: RetryPolicy | None = None,
    index_root: Any = None,
    stay_below_root: bool = False,
) -> Lake | Table:
    """Open a directory of Parquet files, one file, a glob, or an Iceberg table, as it is now.

    ``path`` is a path or a URI; ``storage_options`` go to obstore, or give an obstore ``store`` and the
    path within it. ``schema`` sets the columns and their types instead of taking them from the files.
    ``index_root`` is where the lake's index is, unless in ``.skipstone`` beside the lake.

    With a ``catalog`` (as :func:`catalog` takes it) ``path`` is a table's name; a metadata file
    (``….metadata.json``) or a pyiceberg table is opened as a table too. ``snapshot`` is an id, a tag, a
    branch or a time.

    ``stay_below_root`` is for lakes from others: links that lead out of the directory are refused, and so are
    paths outside a table's directory that its metadata names.
    """
    from skipstone.scan.lake import Lake
    from skipstone.store.store import open_root, open_store

    root = None if index_root is None else open_root(index_root, storage_options=storage_options, store=store)
    if catalog is not None or is_table(path):
        if store is not None or schema is not None:
            raise UsageError("a table has its own schema and store", hint="leave out schema= and store=")
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
        raise UsageError("a directory has no snapshots", path=str(path), hint="give a table's catalog")
    try:
        lake_store, pattern = open_store(
            path, storage_options=storage_options, store=store, stay_below_root=stay_below_root
        )
    except ReadError as error:
        from skipstone.iceberg.catalogs import is_table_name

        if isinstance(path, str) and is_table_name(path) and error.hint is None:
            error.hint = "to open a table of that name, give its catalog"
        raise
    return Lake(lake_store, pattern, schema=schema, retry=retry, index_root=root)


def is_table(path: Any) -> bool:
    """Whether a name or an object means a table without a catalog's help: a metadata file, or a table."""
    if isinstance(path, str | os.PathLike):
        return os.fsdecode(path).endswith((".metadata.json", ".metadata.json.gz"))
    return type(path).__module__.startswith("pyiceberg.")


def catalog(warehouse: Any = None, **properties: Any) -> Catalog:
    """A catalog of Iceberg tables.

    ``warehouse`` is a local directory (with an embedded catalog in it, made if need be), the name of a
    catalog in pyiceberg's configuration, a mapping of pyiceberg properties, or a pyiceberg catalog.
    """
    from skipstone.iceberg.catalogs import check_installed

    check_installed()
    from skipstone.tables import Catalog

    return Catalog(warehouse, **properties)


# Where the other names are; each module is loaded when one of its names is asked for.
_HOMES = {
    "aggregate.aggregation": ("Aggregation",),
    "aggregate.functions": (
        "Aggregate",
        "approx_distinct",
        "avg",
        "count",
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
    "core.domain": ("Bound", "ColumnDomain", "ColumnHandle", "Domain", "Marker", "Range"),
    "core.ir": ("Compiled", "Diagnostic"),
    "core.judge": ("Verdict",),
    "core.rows": ("RowSet",),
    "errors": ("SkipstoneError",),
    "iceberg.metadata": ("SnapshotInfo",),
    "lake.snapshot": ("FileEntry",),
    "parquet.metadata": ("ParquetMetadata",),
    "predicate": ("Expr", "Predicate", "col", "lit", "parse", "predicate", "udf"),
    "prune.pruner": ("PruneResult", "Pruner", "prune"),
    "prune.survey": ("BloomProvider", "BloomRequest", "PruneOptions"),
    "report.trace": ("FilterStats", "ScanTrace", "Trace"),
    "scan.execute": ("Execution", "execute"),
    "scan.lake": ("Lake", "Table"),
    "scan.options": ("ScanOptions",),
    "scan.plan": ("ScanPlan",),
    "scan.results": ("Verification", "Why"),
    "scan.scan": ("Scan",),
    "scan.statistics": ("ColumnStatistics", "LakeStatistics"),
    "store.options": ("with_credentials",),
    "store.retry": ("RetryPolicy",),
    "tables": ("Catalog",),
    "write.report": ("IngestReport", "PipelineReport"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        return getattr(importlib.import_module(f"skipstone.{_HOME_OF[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
