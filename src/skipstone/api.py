"""The façade: the names a user meets. ``skipstone`` re-exports them lazily."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from skipstone.domain import Bound, ColumnDomain, ColumnHandle, Domain, Marker, Range
from skipstone.errors import SkipstoneError, UsageError
from skipstone.explain.ingest import IngestReport, PipelineReport
from skipstone.explain.verify import Verification
from skipstone.explain.why import Why
from skipstone.index.lake import IndexedLake
from skipstone.ir import Compiled, Diagnostic
from skipstone.judge import Verdict
from skipstone.lake.directory import FileEntry
from skipstone.lake.statistics import ColumnStatistics, LakeStatistics
from skipstone.parquet.footer import read_footer
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.predicate import Expr, Predicate, col, lit, parse, predicate, udf
from skipstone.prune import BloomProvider, BloomRequest, PruneOptions, Pruner, PruneResult, prune
from skipstone.rows import RowSet
from skipstone.scan.domains import files_to_query
from skipstone.scan.execute import Execution, execute
from skipstone.scan.options import ScanOptions, scan_options
from skipstone.scan.plan import ScanPlan
from skipstone.scan.scan import Scan as PlainScan
from skipstone.scan.scan import check_format
from skipstone.store.place import open_place, open_root
from skipstone.store.retry import RetryPolicy
from skipstone.store.source import open_source
from skipstone.trace import Trace
from skipstone.trace.scan import ScanTrace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "BloomProvider",
    "BloomRequest",
    "Bound",
    "ColumnDomain",
    "ColumnHandle",
    "ColumnStatistics",
    "Compiled",
    "Diagnostic",
    "Domain",
    "Execution",
    "Expr",
    "FileEntry",
    "IngestReport",
    "Lake",
    "LakeStatistics",
    "Marker",
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
    "Trace",
    "Verdict",
    "Verification",
    "Why",
    "col",
    "execute",
    "ingest",
    "ingest_new",
    "lit",
    "open",
    "parse",
    "predicate",
    "prune",
    "read_metadata",
    "register",
    "spark",
    "udf",
]


def read_metadata(source: Any, storage_options: Mapping[str, Any] | None = None) -> ParquetMetadata:
    """The footer of one file, to be used again: ``prune(metadata, ...)``, ``prune(path, metadata=...)``."""
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
    :func:`skipstone.ingest.job.ingest` for ``partition_by``, ``cluster_by``, ``cluster``,
    ``target_file_bytes``, ``blooms`` and the other options.
    """
    from skipstone.ingest.job import ingest

    return ingest(data, path, **options)


def ingest_new(source: Any, path: Any, **options: Any) -> PipelineReport:
    """Ingest the files of ``source`` (Parquet, CSV, JSON or ORC) that the lake has not taken in before.

    In batches, each wholly or not at all, so that a run after an interrupted one goes on from there. See
    :func:`skipstone.ingest.pipeline.ingest_new` for the options.
    """
    from skipstone.ingest.pipeline import ingest_new

    return ingest_new(source, path, **options)


def register(session: SparkSession) -> None:
    """Make ``spark.read.format("skipstone")`` known to a session that doesn't find it by itself."""
    from skipstone.bridge.spark.source import SkipstoneSource

    session.dataSource.register(SkipstoneSource)


class Scan(PlainScan):
    """Rows of a lake that match a predicate. Nothing is read before an answer is asked for."""

    __slots__ = ()

    def to_spark(self, session: SparkSession | None = None, *, route: str = "auto") -> DataFrame:
        """The rows as a data frame of ``session``, by default the one that is running.

        ``route`` is "driver" (read here, handed over as a local relation), "slices" (Spark's tasks read
        page slices), "reader" (Spark's own reader takes the kept files), or "auto": see ``explain``.
        """
        from skipstone.bridge.spark.frames import to_spark

        return to_spark(self.plan(), spark() if session is None else session, route, lake=self.lake)

    def explain(
        self,
        analyze: bool = False,
        format: str = "text",
        *,
        session: SparkSession | None = None,
        route: str = "auto",
    ) -> str:
        """What is read and what is not, and why; ``analyze`` also runs the scan. Text, json or html.

        With a Spark ``session``, also by which route ``to_spark`` takes the rows there.
        """
        check_format(format)
        trace = self._explained(analyze)
        if session is not None:
            from skipstone.bridge.spark.frames import told_by, way_of

            told = told_by(self.lake)
            trace = replace(trace, spark=way_of(self.plan(), session, route, told=told).use)
        return self._drawn(trace, format)


class Lake(IndexedLake):
    """A directory of Parquet files, or one file, to be scanned."""

    def scan(
        self,
        where: Any = None,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        order_by: Any = None,
        snapshot: Any = None,
        *,
        options: ScanOptions | None = None,
        **switches: Any,
    ) -> Scan:
        """Ask for the rows that match.

        ``where`` is SQL text or any predicate that :func:`predicate` takes; ``order_by`` is as in
        ``["ts desc", "id"]``; ``switches`` are fields of :class:`ScanOptions`. A directory has no snapshots
        but the one it was opened with.
        """
        if snapshot is not None:
            raise UsageError(
                "a directory has no snapshots", path=self.uri, hint="open it anew, or refresh it"
            )
        return Scan(self, where, columns, limit, order_by, scan_options(options, switches))

    def files_to_query(
        self,
        columns: Iterable[str | ColumnHandle] | None,
        column_domain: ColumnDomain,
        *,
        options: ScanOptions | None = None,
        **switches: Any,
    ) -> list[FileEntry]:
        """The files, and of each the row groups, that may hold rows of a domain; no data is read.

        Only the named columns (None: all) of ``column_domain`` count, as in Hudi's
        ``getFilesToQueryUsingCSI``.
        """
        return files_to_query(self, columns, column_domain, scan_options(options, switches))


def open(
    path: Any,
    *,
    storage_options: Mapping[str, Any] | None = None,
    store: Any = None,
    schema: pa.Schema | None = None,
    retry: RetryPolicy | None = None,
    index_root: Any = None,
) -> Lake:
    """Open a directory of Parquet files, one file, or a glob, as it is now.

    ``path`` is a path or a URI; ``storage_options`` go to obstore, or give an obstore ``store`` and the
    path within it. ``schema`` sets the columns and their types instead of taking them from the files.
    ``index_root`` is where the lake's index is, unless in ``_skipstone`` in the lake itself.
    """
    place, pattern = open_place(path, storage_options=storage_options, store=store)
    root = None if index_root is None else open_root(index_root, storage_options=storage_options, store=store)
    return Lake(place, pattern, schema=schema, retry=retry, index_root=root)
