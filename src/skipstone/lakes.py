"""Lakes and scans as users meet them: a lake is scanned, and a scan becomes whatever is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from skipstone.core.domain import ColumnDomain, ColumnHandle
from skipstone.errors import UsageError
from skipstone.index.lake import Indexed, IndexedLake
from skipstone.lake.base import FileEntry
from skipstone.scan.domains import files_to_query
from skipstone.scan.options import ScanOptions, scan_options
from skipstone.scan.scan import Scan as PlainScan
from skipstone.scan.scan import check_format

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from skipstone.aggregate.aggregation import Aggregation
    from skipstone.aggregate.functions import Aggregate


class Scan(PlainScan):
    """Rows of a lake that match a predicate. Nothing is read before an answer is asked for."""

    __slots__ = ()

    def to_spark(self, session: SparkSession | None = None, *, route: str = "auto") -> DataFrame:
        """The rows as a data frame of ``session``, by default the one that is running.

        ``route`` is "driver" (read here, handed over as a local relation), "slices" (Spark's tasks read
        page slices), "reader" (Spark's own reader takes the kept files), or "auto": see ``explain``.
        """
        from skipstone.engine.session import spark_session
        from skipstone.spark.frames import to_spark

        chosen = spark_session(None, None, None) if session is None else session
        return to_spark(self.plan(), chosen, route, lake=self.lake)

    def aggregate(
        self,
        *aggregates: Aggregate,
        group_by: Sequence[str] | str | None = None,
        within: Any = None,
        without: Any = None,
        id_column: str | None = None,
        use_cached: bool = True,
        engine: Any = None,
        **options: Any,
    ) -> Aggregation:
        """Aggregates of the matching rows: answered from metadata where it proves them, else by reading.

        ``within`` allows only rows whose ``id_column`` is in a set (a pyroaring bitmap, a :class:`RowSet`, an
        array), or that are at certain places; ``without`` takes rows out. Both take what :func:`members`
        makes, too, and lists of sets, all of which must hold. ``use_cached=False`` reads every row that
        counts. ``engine`` is "spark", or a Spark session; else rows are read here.
        """
        from skipstone.aggregate.aggregation import aggregation

        _, _, limit, _, switches = self._asked
        return aggregation(
            self.lake,
            self.plan,
            limit,
            switches.case_sensitive,
            aggregates,
            group_by=group_by,
            within=within,
            without=without,
            id_column=id_column,
            use_cached=use_cached,
            engine=engine,
            options=options,
        )

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
            from skipstone.spark.frames import told_by, way_of

            told = told_by(self.lake)
            trace = replace(trace, spark=way_of(self.plan(), session, route, told=told).use)
        return self._drawn(trace, format)


class Scannable(Indexed):
    """What lakes of every kind can be asked."""

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
        ``["ts desc", "id"]``; ``switches`` are fields of :class:`ScanOptions`. ``snapshot`` is one of a
        table: an id, a tag, a branch, or a time; a directory has none but the one it was opened with.
        """
        lake = self if snapshot is None else self.at(snapshot)
        return Scan(lake, where, columns, limit, order_by, scan_options(options, switches))

    def at(self, snapshot: Any) -> Indexed:  # noqa: ARG002
        """The lake as it was at another snapshot."""
        raise UsageError("a directory has no snapshots", path=self.uri, hint="open it anew, or refresh it")

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


class Lake(Scannable, IndexedLake):
    """A directory of Parquet files, or one file, to be scanned."""
