"""A lake: a snapshot, which ``refresh`` replaces, and an index."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
import pyarrow as pa

from skipstone.core.domain import ColumnDomain, ColumnHandle
from skipstone.core.evidence import Array
from skipstone.engine.jobs import Engine
from skipstone.errors import UsageError
from skipstone.index.index import LakeIndex
from skipstone.lake.directory import DirectorySnapshot, is_visible
from skipstone.lake.files import CACHE_BYTES, Files, Io
from skipstone.lake.snapshot import FileEntry, Snapshot, opened_name
from skipstone.predicate.coerce import with_keys
from skipstone.prune.survey import Footers, Survey, SurveyPart
from skipstone.report import Printable
from skipstone.report.units import plural
from skipstone.scan.options import DEFAULT, Materialise, Route, ScanOptions, scan_options
from skipstone.scan.scan import Scan
from skipstone.store.cache import Cache
from skipstone.store.retry import RetryPolicy
from skipstone.store.store import ListedFile, Store

if TYPE_CHECKING:
    import datafusion
    import duckdb
    import polars as pl

    from skipstone.bridge.dataset import LakeDataset, Rules
    from skipstone.index.advise.layout import LakeLayout
    from skipstone.index.coverage import IndexCoverage
    from skipstone.scan.statistics import LakeStatistics
    from skipstone.typing import (
        EngineRoute,
        OrderLike,
        PredicateLike,
        QueryLog,
        SemiJoinLike,
        SizeLike,
        SnapshotLike,
    )

_SURVEYS = 4
T = TypeVar("T")


class Lake(Printable):
    """A directory of Parquet files, or one file, at one version; [open][skipstone.open] opens it.

    A notebook shows its schema and layout. ``len(lake)`` is the number of rows if it is known without opening
    files, from an index that covers all of them or from the snapshot of a table. Otherwise it raises a
    TypeError, and ``lake.scan().count()`` opens the footers.

    Examples:
        >>> import skipstone as sk
        >>> lake = sk.open("events")
        >>> lake.scan("event_id = 7").to_arrow()["country"].to_pylist()
        ['SE']
    """

    view = "skipstone.scan.views:lake_tree"
    _internal = frozenset(
        {
            *("access", "at", "entries", "footers", "pinned", "pinned_to", "plans"),
            *("query_schema", "remembered", "survey", "surveyed"),
        }
    )

    pinned: Snapshot
    """The snapshot; ``refresh`` replaces it, together with its caches."""
    uri: str
    """The lake's root."""
    access: Files
    """Sources and footers of the files."""
    plans: Cache[Any, Any]
    index: LakeIndex
    """The index of the lake."""

    def __init__(
        self,
        store: Store,
        pattern: str = "",
        *,
        schema: pa.Schema | None = None,
        retry: RetryPolicy | None = None,
        memory: int = CACHE_BYTES,
        index_root: Store | None = None,
    ) -> None:
        _check_apart(store, index_root)
        self._start(
            DirectorySnapshot.open(store, pattern, schema=schema, retry=retry, memory=memory), index_root
        )

    def _start(self, snapshot: Snapshot, index_root: Store | None, *, changed: bool = False) -> None:
        self._index_root = index_root
        self.index = LakeIndex(snapshot, index_root, self._relist, changed=changed)
        self._keep(snapshot)

    def _keep(self, snapshot: Snapshot) -> None:
        self.pinned = snapshot
        self.uri, self.access, self.plans = snapshot.uri, snapshot.access, snapshot.plans
        self._surveys: OrderedDict[Hashable, Any] = OrderedDict()
        self._fitting: IndexCoverage | None = None

    def _relist(self, engine: Engine | None) -> None:
        snapshot = self.pinned.latest(engine)
        if snapshot is not self.pinned:
            self.index.pin(snapshot)
            self._keep(snapshot)

    def refresh(self) -> Self:
        """List the files again and return the lake; existing scans keep the version they started with.

        Examples:
            >>> import skipstone as sk
            >>> lake = sk.open("events")
            >>> lake.refresh().scan().count()
            1000
        """
        self._relist(None)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return (restored, (type(self), self.pinned, self._index_root, self.index.changed))

    def __repr__(self) -> str:
        size = sum(entry.size for entry in self.entries)
        files = plural(len(self.entries), "file")
        return f"{type(self).__name__}({opened_name(self.pinned)!r}, {files}, {size:,} bytes)"

    def __len__(self) -> int:
        rows = self._metadata_rows()
        if rows is None:
            raise TypeError(
                "the number of rows is not known before footers are read; use lake.scan().count()"
            )
        return rows

    def _metadata_rows(self) -> int | None:
        coverage = self.index.coverage
        covered = 0 if coverage is None else coverage.covered
        return len(self.scan()) if covered == len(self.entries) else None

    def __bool__(self) -> bool:
        return True

    # -- files and schema --------------------------------------------------------------------

    @property
    def version(self) -> str:
        """A fingerprint of the files and their versions."""
        return self.pinned.version

    @property
    def entries(self) -> Sequence[ListedFile]:
        """The files as they were listed, by path."""
        return self.pinned.entries

    @property
    def files(self) -> tuple[FileEntry, ...]:
        """The files with their partition values, by path."""
        return self.pinned.files

    @property
    def schema(self) -> pa.Schema:
        """The columns, with the types that scans return."""
        return self.pinned.schema

    @property
    def query_schema(self) -> pa.Schema:
        """The schema that predicates are bound to; INT96 and legacy timestamps are instants."""
        return self.pinned.query_schema

    @property
    def partition_names(self) -> frozenset[str]:
        """Names of the partition columns."""
        return self.pinned.partition_names

    @property
    def io(self) -> Io:
        """Requests and bytes read so far, including those of the index."""
        return self.pinned.access.io() + self.index.access.io()

    def statistics(self, columns: Sequence[str] | None = None) -> LakeStatistics:
        """Return row counts, sizes and bounds of columns, from the footers of all files.

        Args:
            columns: The columns; None for all.

        Examples:
            >>> import skipstone as sk
            >>> statistics = sk.open("events").statistics(["event_id"])
            >>> statistics.rows, statistics["event_id"].upper.as_py()
            (1000, 999)
        """
        from skipstone.scan.statistics import lake_statistics

        return lake_statistics(self, columns)

    def layout(
        self,
        columns: Sequence[str] | str | None = None,
        queries: QueryLog | None = None,
        *,
        sample: int = 64,
    ) -> LakeLayout:
        """Measure on a sample how much data each column lets queries skip, now and in other row orders.

        Overlap is measured by the bounds of files, row groups and pages: a look-up of a value reads each of
        them that encloses the value. Other orders are judged on sampled rows.

        Args:
            columns: Columns to measure and to order by; by default the first 32 that have an order.
            queries: Predicates, each alone or with its weight, or the path of a query log, by which orders of
                rows are compared. By default values and ranges of every column are looked up.
            sample: Maximum number of files to sample.

        Examples:
            >>> import skipstone as sk
            >>> layout = sk.open("events").layout()
            >>> {column.name: column.files.layout.value for column in layout.columns}
            {'event_id': 'sorted', 'ts': 'sorted', 'country': 'random', 'amount': 'sorted'}
        """
        from skipstone.index.advise.layout import measure_layout

        return measure_layout(self.pinned, columns, queries, sample=sample)

    # -- queries -----------------------------------------------------------------------------

    def scan(
        self,
        where: PredicateLike = None,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        order_by: OrderLike | None = None,
        snapshot: SnapshotLike | None = None,
        *,
        semi_join: SemiJoinLike | None = None,
        options: ScanOptions | None = None,
        skipping: bool | None = None,
        index: bool | None = None,
        strict: bool | None = None,
        page_index: bool | None = None,
        bloom_filter: bool | None = None,
        dictionary: bool | None = None,
        case_sensitive: bool | None = None,
        materialise: Materialise | None = None,
        route: Route | None = None,
        threads: int | None = None,
        batch_rows: int | None = None,
        memory: SizeLike | None = None,
        checksums: bool | None = None,
    ) -> Scan:
        """Return a scan of the rows that match; nothing is read yet.

        The keywords after ``options`` are the fields of [ScanOptions][skipstone.ScanOptions], which documents
        them. None means the value in ``options``, or the default.

        Args:
            where: SQL text, or any predicate that ``sk.predicate`` accepts.
            columns: Columns of the result: names, fields of structs such as ``"address.city"``, and SQL
                expressions such as ``"price * amount AS total"``. None reads all columns.
            limit: The maximum number of rows. Without ``order_by`` these can be any matching rows: rows that
                metadata proves to match come first.
            order_by: Columns to order by, as in ``["country", "ts desc"]``. Without it and
                without a limit, rows come by path and position.
            snapshot: A snapshot of a table: an id, a branch, a tag or a time. Directories have no snapshots.
            semi_join: A column and its values: only rows with one of the values match, as in a semi join.
                The column is a name or an expression; the values are an Arrow or NumPy array, a pyroaring
                bitmap or any iterable, and may be millions.
            options: Options to start from.

        Returns:
            A scan, which can be planned, explained, read, counted or aggregated.

        Examples:
            >>> import skipstone as sk
            >>> lake = sk.open("events")
            >>> lake.scan("event_id < 2", columns=["event_id", "country"]).to_arrow().to_pylist()
            [{'event_id': 0, 'country': 'DE'}, {'event_id': 1, 'country': 'FR'}]
            >>> lake.scan(order_by="amount desc", limit=2, threads=1).to_arrow()["amount"].to_pylist()
            [99.9, 99.8]
            >>> lake.scan("country = 'DE'", semi_join=("event_id", range(0, 100, 10))).count()
            5
        """
        lake = self._current() if snapshot is None else self.at(snapshot)
        if semi_join is not None:
            where = with_keys(where, semi_join, lake.query_schema.names)
        chosen = scan_options(
            options,
            skipping,
            index,
            strict,
            page_index,
            bloom_filter,
            dictionary,
            case_sensitive,
            materialise,
            route,
            threads,
            batch_rows,
            memory,
            checksums,
        )
        return Scan(lake, where, columns, limit, order_by, chosen)

    def _current(self) -> Lake:
        """What scans read: this lake, or a table with its unflushed writes."""
        return self

    def head(self, n: int = 10) -> pa.Table:
        """Return the first rows as an Arrow table.

        Examples:
            >>> import skipstone as sk
            >>> sk.open("events").head(2)["event_id"].to_pylist()
            [0, 1]
        """
        return self.scan().head(n)

    def at(self, snapshot: SnapshotLike) -> Lake:  # noqa: ARG002
        """Return the lake at another snapshot; only tables have several."""
        raise UsageError("a directory has no snapshots", path=self.uri, hint="refresh the lake instead")

    def files_to_query(
        self,
        columns: Iterable[str | ColumnHandle] | None,
        column_domain: ColumnDomain,
        *,
        options: ScanOptions | None = None,
    ) -> list[FileEntry]:
        """Return the files, each with its row groups, that can hold rows of a domain; no data is read.

        This is ``getFilesToQueryUsingCSI`` of Hudi's RFC 58.

        Args:
            columns: Columns of ``column_domain`` to prune by; None for all.
            column_domain: The values of each column.
            options: Options of planning.

        Examples:
            >>> import pyarrow as pa
            >>> import skipstone as sk
            >>> event_id = sk.ColumnHandle("event_id", pa.int64())
            >>> domain = sk.ColumnDomain.of({event_id: sk.Domain.values(pa.int64(), [7])})
            >>> [(file.path, file.row_groups) for file in sk.open("events").files_to_query(None, domain)]
            [('...events/part-0.parquet', (0,))]
        """
        from skipstone.scan.planner import files_to_query

        return files_to_query(self, columns, column_domain, DEFAULT if options is None else options)

    # -- other engines -----------------------------------------------------------------------

    def to_dataset(self, *, rules: Rules = "auto") -> LakeDataset:
        """Return the lake as a pyarrow dataset, which other engines query with their own filters.

        DuckDB finds it as a variable in SQL; ``pl.scan_pyarrow_dataset`` and DataFusion's
        ``register_dataset`` accept it. Each filter is planned and applied as a scan of the lake.

        Args:
            rules: What filters mean by NaN and NULL: ``"sql"``, where NaN equals itself and is the largest
                value, and NULL is neither in a list nor out of it, or ``"pyarrow"``. ``"auto"`` is SQL in
                ``scanner``, which engines call, and pyarrow in ``to_table``, ``head``, ``take``,
                ``count_rows`` and ``filter``.

        Examples:
            >>> import duckdb
            >>> import skipstone as sk
            >>> events = sk.open("events").to_dataset()
            >>> duckdb.sql("SELECT max(amount), count(*) FROM events WHERE country = 'DE'").fetchall()
            [(99.6, 250)]
        """
        from skipstone.bridge.dataset import LakeDataset

        return LakeDataset(self, rules=rules)

    def to_duckdb(
        self,
        connection: duckdb.DuckDBPyConnection | None = None,
        name: str = "lake",
        *,
        where: PredicateLike = None,
        route: EngineRoute = "auto",
    ) -> duckdb.DuckDBPyRelation:
        """Register the lake as a view of a DuckDB connection, and return the view as a relation.

        Args:
            connection: The connection; by default DuckDB's own.
            name: Name of the view.
            where: A condition for all rows of the view.
            route: ``"slices"`` answers each query with page slices; ``"reader"`` makes a view of the kept
                files, which DuckDB reads by itself; ``"auto"`` is the reader if ``where`` leaves most of the
                kept files' bytes, and otherwise chooses for each query, whose rows pass through Arrow.

        Examples:
            >>> import duckdb
            >>> import skipstone as sk
            >>> events = sk.open("events").to_duckdb(duckdb.connect(), "events")
            >>> events.filter("event_id < 5").aggregate("count(*)").fetchall()
            [(5,)]
        """
        from skipstone.bridge.engines import to_duckdb

        return to_duckdb(self, connection, name, where, route)

    def to_datafusion(
        self,
        context: datafusion.SessionContext | None = None,
        name: str = "lake",
        *,
        where: PredicateLike = None,
        route: EngineRoute = "auto",
    ) -> datafusion.SessionContext:
        """Register the lake as a table of a DataFusion session, and return the session.

        Args:
            context: The session; by default a new one.
            name: Name of the table.
            where: A condition for all rows of the table.
            route: ``"slices"`` answers each query with page slices; ``"reader"`` makes a view of the kept
                files, which DataFusion reads by itself; ``"auto"`` is the reader if ``where`` leaves most of
                the kept files' bytes, and is ``"slices"`` without it.

        Examples:
            >>> import skipstone as sk
            >>> context = sk.open("events").to_datafusion(name="events")
            >>> context.sql("SELECT count(*) AS n FROM events WHERE event_id < 5").to_pydict()
            {'n': [5]}
        """
        from skipstone.bridge.engines import to_datafusion

        return to_datafusion(self, context, name, where, route)

    def to_polars_lazy(self, *, route: EngineRoute = "auto") -> pl.LazyFrame:
        """Return a lazy frame of Polars, which pushes its filters and projections to scans of the lake.

        Args:
            route: ``"slices"`` reads page slices; ``"reader"`` has Polars read the kept files; ``"auto"``
                chooses for each query, by the share of the kept files' bytes that it leaves.

        Examples:
            >>> import polars as pl
            >>> import skipstone as sk
            >>> frame = sk.open("events").to_polars_lazy()
            >>> frame.filter(pl.col("event_id") < 5).select("country").collect().height
            5
        """
        from skipstone.bridge.engines import to_polars_lazy

        return to_polars_lazy(self, route)

    # -- for the planner ---------------------------------------------------------------------

    def pinned_to(self, snapshot: Snapshot) -> Self:
        """The lake at one of its snapshots, from which it does not move."""
        return restored(type(self), snapshot, self._index_root, self.index.changed)

    def footers(self, files: Array) -> Footers:
        """The numbered files as part of a survey; raises if one does not match the lake's schema."""
        snapshot = self.pinned
        footers = snapshot.access.footers([snapshot.entries[number] for number in files.tolist()])
        snapshot.check(footers)
        return Footers.of(footers)

    def survey(self, files: Array) -> Survey:
        """Footers of the numbered files."""
        return self.remembered(
            files.tobytes(), lambda: Survey.joined([self.footers(files)], self.pinned.overrides(files))
        )

    def surveyed(
        self, coverage: IndexCoverage, indexed: Sequence[tuple[int, Array]], others: Array
    ) -> tuple[Survey, Array]:
        """A survey of indexed files and of others by their footers, with their numbers in the listing."""
        if self._fitting is not coverage:
            # Indexed files might not match the user's schema.
            if self.pinned.has_own_schema:
                self.pinned.check(coverage.kinds())
            self._fitting = coverage
        parts: list[SurveyPart] = [coverage.part(segment, rows) for segment, rows in indexed]
        numbers = [coverage.files_of(segment, rows) for segment, rows in indexed]
        if len(others):
            parts.append(self.footers(others))
            numbers.append(others)
        chosen = np.concatenate([others[:0], *numbers])
        return Survey.joined(parts, self.pinned.overrides(chosen)), chosen

    def remembered(self, key: Hashable, make: Callable[[], T]) -> T:
        """A cached survey, or a new one."""
        surveys = self._surveys
        survey: T | None = surveys.get(key)
        if survey is None:
            survey = surveys[key] = make()
            while len(surveys) > _SURVEYS:
                surveys.popitem(last=False)
        return survey


L = TypeVar("L", bound=Lake)


def restored(cls: type[L], snapshot: Any, index_root: Store | None, changed: bool = False) -> L:
    """Return the lake of a snapshot, with an index at a root."""
    lake = cls.__new__(cls)
    lake._start(snapshot, index_root, changed=changed)
    return lake


def lake_of(snapshot: Snapshot) -> Lake:
    """Return the lake of a snapshot."""
    return restored(Lake, snapshot, None)


def _check_apart(lake: Store, root: Store | None) -> None:
    """Refuse an index directory whose files would be read as data of the lake."""
    if root is None or not f"{root.uri}/".startswith(f"{lake.uri}/"):
        return
    below = root.uri.removeprefix(lake.uri).strip("/")
    if is_visible(ListedFile(f"{below}/x".lstrip("/"), 1, None)):
        raise UsageError(
            f"index directory is inside the lake {lake.uri}",
            path=root.uri,
            hint="use a directory outside the lake, or one whose name begins with _",
        )
