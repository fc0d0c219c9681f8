"""Scan: a query of a lake, with its result in several forms."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from skipstone.core.filter import fix_clock, settle
from skipstone.engine.jobs import NO_OPTIONS, check_engine, choose_engine
from skipstone.errors import UnknownColumnError, UsageError, require
from skipstone.lake.snapshot import opened_name
from skipstone.predicate import predicate as to_predicate
from skipstone.predicate.tree import IsIn, Predicate
from skipstone.report import Printable, explanation
from skipstone.report.trace import ScanTrace
from skipstone.report.units import plural
from skipstone.scan.execute import Execution, count_on, count_rows, execute
from skipstone.scan.options import ScanOptions, explain_options
from skipstone.scan.plan import ScanPlan, checked_limit
from skipstone.scan.planner import Question, make_plan
from skipstone.scan.projection import parse_order, resolve

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    from pyspark.sql import DataFrame, SparkSession

    from skipstone.aggregate.aggregation import Aggregation
    from skipstone.aggregate.functions import Aggregate
    from skipstone.scan.lake import Lake
    from skipstone.scan.verify import Verification
    from skipstone.typing import (
        EngineLike,
        EngineName,
        GroupByLike,
        MembersLike,
        OrderLike,
        PredicateLike,
        ReportFormat,
        SparkRoute,
    )

# Rows that a notebook shows, and the most rows and footers that are read to find them.
_SHOWN, _TESTED, _FOOTERS = 10, 250_000, 5_000
# Values of lists that take as much of the cache of plans as a usual plan.
_VALUES = 250_000


class Scan(Printable):
    """A lazy query on a lake: results are read on request; see [Lake.scan][skipstone.Lake.scan].

    A scan exports an Arrow stream, so ``pl.DataFrame(scan)``, ``duckdb.sql("from scan")`` and
    ``pyarrow.table(scan)`` read it. ``for batch in scan`` reads Arrow batches. A notebook shows the first
    rows and what is skipped. ``len(scan)`` is the number of rows if metadata proves it; if rows must be read
    to tell, it raises a TypeError, and ``scan.count()`` counts them.

    Examples:
        >>> import skipstone as sk
        >>> scan = sk.open("events").scan("country = 'DE' and event_id < 10", columns="event_id")
        >>> scan.count(), scan.to_arrow()["event_id"].to_pylist()
        (3, [0, 4, 8])
        >>> sum(batch.num_rows for batch in scan), len(sk.open("events").scan())
        (3, 1000)
    """

    view = "skipstone.scan.views:preview_tree"
    __slots__ = ("_lake", "_query", "_snapshot")
    _internal = frozenset({"is_planned", "preview"})

    def __init__(
        self,
        lake: Lake,
        where: PredicateLike,
        columns: Sequence[str] | None,
        limit: int | None,
        order_by: OrderLike | None,
        options: ScanOptions,
    ) -> None:
        self._lake, self._snapshot = lake, lake.pinned
        limit = checked_limit(limit)
        order = _as_tuple(order_by, "order_by", 'give a list such as ["ts desc", "id"]')
        names = (columns,) if isinstance(columns, str) else columns
        names = _as_tuple(names, "columns", "give a list of column names")
        plain = where is None or (isinstance(where, str) and not _CLOCK.search(where))
        # Text is the key of cached plans, unless it depends on the time, which is read once per scan.
        question = where if plain else fix_clock(to_predicate(where))
        self._query = (question, names, limit, order, options)

    @property
    def lake(self) -> Lake:
        """The lake in the version that the scan began with, whatever was refreshed or written since."""
        if self._lake.pinned is not self._snapshot:
            if self._lake.pinned.version != self._snapshot.version:
                self._lake = self._lake.pinned_to(self._snapshot)
            self._snapshot = self._lake.pinned
        return self._lake

    def __reduce__(self) -> tuple[Any, ...]:
        where, columns, limit, order, options = self._query
        return (type(self), (self.lake, where, columns, limit, order, options))

    # -- phase one ---------------------------------------------------------------------------

    def plan(self) -> ScanPlan:
        """Return the plan: the rows to read of each file, proven from metadata. Plans are cached.

        Examples:
            >>> import skipstone as sk
            >>> plan = sk.open("events").scan("event_id = 7").plan()
            >>> len(plan.tasks), plan.rows < 250
            (1, True)
        """
        # Without a call in the usual case.
        lake = self._lake if self._lake.pinned is self._snapshot else self.lake

        def make() -> tuple[ScanPlan, int]:
            plan = make_plan(lake, self._question(lake))
            return plan, 1 if where is None or where.__class__ is str else _weight(where)

        *query, options = self._query
        where = query[0]
        # Equal options are one object, which a cached plan references: no hashing is needed.
        key = (*query, id(options))
        try:
            plan: ScanPlan = lake.plans.get_or_make(key, make)
        except UnknownColumnError as error:
            error.hint = lake.pinned.renamed(error.column or "") or error.hint
            raise
        return plan

    @property
    def is_planned(self) -> bool:
        """Whether the plan is cached."""
        *query, options = self._query
        return self.lake.plans.get((*query, id(options))) is not None

    def _question(self, lake: Lake) -> Question:
        where, columns, limit, order, options = self._query
        sensitive, schema = options.case_sensitive, lake.schema
        predicate = None if where is None else to_predicate(where)
        if predicate is not None:
            predicate = settle(predicate, lake.query_schema, case_sensitive=sensitive)
        return Question(
            predicate,
            resolve(columns, schema, case_sensitive=sensitive, query=lake.query_schema),
            limit,
            parse_order(order, schema, case_sensitive=sensitive),
            options,
        )

    @property
    def schema(self) -> pa.Schema:
        """The schema of the result."""
        _, columns, _, _, options = self._query
        sensitive, lake = options.case_sensitive, self.lake
        return resolve(columns, lake.schema, case_sensitive=sensitive, query=lake.query_schema).result

    def explain(
        self,
        analyze: bool | ReportFormat = False,
        format: ReportFormat = "text",
        *,
        session: SparkSession | None = None,
        engine: EngineName | None = None,
        route: SparkRoute = "auto",
    ) -> str:
        """Describe what the scan reads, what it skips, and why.

        Args:
            analyze: Also run the scan, and report rows, requests, bytes and times. The only argument can also
                be a format, as in ``scan.explain("html")``.
            format: ``"text"``, ``"json"`` or ``"html"``. A notebook shows text and HTML as a drawing.
            session: A Spark session; the report then names the route that ``to_spark`` takes.
            engine: Another engine; the report then names the route to it: for Polars of a query like this
                scan, for DuckDB and DataFusion of a lake that is registered with this condition.
            route: The route to report on, as for ``to_spark`` or ``to_duckdb``.

        Examples:
            >>> import skipstone as sk
            >>> print(sk.open("events").scan("event_id = 7").explain())
            /...events  event_id = 7
            │  4 files, version ..., columns event_id, ts, country, amount
            ├─ files       █████░░░░░░░░░░░░░░░  kept 1 of 4 (25 %), 250 rows
            │     3 dropped by bounds  event_id = 7
            ├─ row groups  █████░░░░░░░░░░░░░░░  kept 1 of 4 (25 %), 250 rows
            │     3 dropped by bounds  event_id = 7
            ├─ pages       ████░░░░░░░░░░░░░░░░  kept 1 of 5 (20 %), 50 rows
            ...
        """
        run, chosen = explain_options(analyze, format)
        trace = self._explained(run)
        if session is not None:
            from skipstone.spark.frames import route_of, stored_spark_schema

            stored = stored_spark_schema(self.lake)
            trace = replace(trace, spark=route_of(self.plan(), session, route, stored=stored).use)
        if engine is not None:
            from skipstone.bridge.engines import explain_route

            trace = replace(trace, engine=explain_route(self.plan(), engine, route))
        return explanation(trace, chosen, f"Scan of {trace.lake}")

    def _explained(self, analyze: bool) -> ScanTrace:
        from skipstone.scan.forecast import forecast

        plan = self.plan()
        if not analyze:
            return replace(plan.trace, reads=forecast(plan))
        ran = execute(plan)
        for _ in ran.to_batches():
            pass
        return ran.explained()

    # -- phase two ---------------------------------------------------------------------------

    def execute(self) -> Execution:
        """Return the result, to be read in any form."""
        return execute(self.plan())

    def to_arrow(self) -> pa.Table:
        """Return all rows as an Arrow table.

        Examples:
            >>> import skipstone as sk
            >>> sk.open("events").scan("event_id < 3").to_arrow()["country"].to_pylist()
            ['DE', 'FR', 'US']
        """
        return self.execute().to_arrow()

    def head(self, n: int = 10) -> pa.Table:
        """Return the first rows as an Arrow table: ``n`` rows, or fewer if fewer match.

        Without ``order_by`` these can be any matching rows, as with ``limit``.

        Examples:
            >>> import skipstone as sk
            >>> sk.open("events").scan("country = 'DE'").head(3)["event_id"].to_pylist()
            [0, 4, 8]
        """
        where, columns, limit, order, options = self._query
        most = checked_limit(n)
        limit = most if limit is None or most is None else min(limit, most)
        return Scan(self.lake, where, columns, limit, order, options).to_arrow()

    def preview(self) -> tuple[pa.Table | None, str]:
        """The first rows for a notebook, and a statement about them; reads little even if no row matches."""
        coverage = self.lake.index.coverage
        footers = len(self.lake.entries) - (coverage.covered if coverage else 0)
        if footers > _FOOTERS and not self.is_planned:
            return None, f"planning reads up to {plural(footers, 'footer')}: call scan.plan() or scan.head()"
        plan = self.plan()
        most = plan.rows if plan.limit is None else min(plan.rows, plan.limit)
        tested = plan.limited(min(_SHOWN, most)).sample(_TESTED)
        every = f"{'' if plan.residual is None else 'up to '}{plural(most, 'row')}"
        if plan.order and tested.rows < plan.rows:
            return None, f"{plural(plan.rows, 'row')} to order: call scan.head()"
        rows = execute(tested).to_arrow()
        if len(rows) == _SHOWN < most:
            return rows, f"first {plural(len(rows), 'row')} of {every}"
        if len(rows) < most and tested.rows < plan.rows:
            return rows, f"{plural(len(rows), 'row')} in the first {plural(tested.rows, 'row')} of {every}"
        return rows, plural(len(rows), "row")

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self.execute().to_batches()

    def __len__(self) -> int:
        # list() asks for the length before it iterates: a count must not read the rows a first time.
        plan = self.plan()
        if plan.residual is not None:
            raise TypeError("the number of rows is not known before they are read; use scan.count()")
        return plan.rows if plan.limit is None else min(plan.rows, plan.limit)

    def __bool__(self) -> bool:
        return True

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a stream of Arrow batches, which reads no further than it is consumed.

        Examples:
            >>> import skipstone as sk
            >>> sum(len(batch) for batch in sk.open("events").scan("event_id < 300").to_reader())
            300
        """
        return self.execute().to_reader()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.execute().__arrow_c_stream__(requested_schema)

    def to_batches_async(self) -> AsyncIterator[pa.RecordBatch]:
        """Yield Arrow batches without blocking the event loop; cancelling stops reading.

        Examples:
            >>> import asyncio
            >>> import skipstone as sk
            >>> async def rows():
            ...     return sum([len(batch) async for batch in sk.open("events").scan().to_batches_async()])
            >>> asyncio.run(rows())
            1000
        """
        return self._batches_async()

    async def _batches_async(self) -> AsyncIterator[pa.RecordBatch]:
        import asyncio

        ran = await asyncio.to_thread(self.execute)
        async with aclosing(ran.to_batches_async()) as batches:
            async for batch in batches:
                yield batch

    def to_polars(self) -> pl.DataFrame:
        """Return all rows as a Polars data frame.

        Examples:
            >>> import skipstone as sk
            >>> sk.open("events").scan("event_id < 3").to_polars().height
            3
        """
        return self.execute().to_polars()

    def to_pandas(self, *, arrow_types: bool = False, **options: Any) -> pd.DataFrame:
        """Return all rows as a pandas data frame.

        Args:
            arrow_types: Give columns the types of Arrow (``pandas.ArrowDtype``), which keep integers with
                NULLs, decimals, dates and nested values as they are.
            **options: Arguments of ``pyarrow.Table.to_pandas``.

        Examples:
            >>> import skipstone as sk
            >>> sk.open("events").scan("event_id < 3").to_pandas()["event_id"].tolist()
            [0, 1, 2]
            >>> sk.open("events").scan("event_id < 3").to_pandas(arrow_types=True)["event_id"].dtype
            int64[pyarrow]
        """
        return self.execute().to_pandas(arrow_types=arrow_types, **options)

    def count(
        self,
        *,
        engine: EngineLike | None = None,
        master: str | None = None,
        remote: str | None = None,
        conf: Mapping[str, str] | None = None,
        threads: int | None = None,
    ) -> int:
        """Count the rows that match; rows that metadata proves to match are counted without reading them.

        Args:
            engine: ``"spark"``, ``"local"``, a Spark session or an [Engine][skipstone.Engine]. By default
                rows are read by threads of this process.
            master: The master of a Spark session to start.
            remote: The Spark Connect URL of a session to start.
            conf: Settings of a Spark session to start.
            threads: Threads of the local engine.

        Examples:
            >>> import skipstone as sk
            >>> sk.open("events").scan("country = 'DE' and event_id < 100").count()
            25
        """
        options = (master, remote, conf, threads)
        if engine is None:
            if options != NO_OPTIONS:
                check_engine(None, *options)
            return count_rows(self.plan())
        choice, plan = choose_engine(engine, *options), self.plan()
        with choice.for_input(sum([task.entry.size for task in plan.tasks])).open() as chosen:
            return count_on(plan, chosen)

    def to_spark(self, session: SparkSession | None = None, *, route: SparkRoute = "auto") -> DataFrame:
        """Return the rows as a Spark data frame.

        Args:
            session: The Spark session; by default the one that is running, or a new one.
            route: ``"driver"`` reads the rows here and passes them as a local relation; ``"slices"`` reads
                page slices in Spark's tasks; ``"reader"`` passes the kept files to Spark's own reader;
                ``"auto"`` chooses by cost, and ``explain(session=...)`` reports the choice.
        """
        require("pyspark")
        from skipstone.engine.session import spark_session
        from skipstone.spark.frames import to_spark

        chosen = spark_session(None, None, None) if session is None else session
        return to_spark(self.plan(), chosen, route, lake=self.lake)

    def aggregate(
        self,
        *aggregates: Aggregate | str,
        group_by: GroupByLike | None = None,
        within: MembersLike | None = None,
        without: MembersLike | None = None,
        id_column: str | None = None,
        use_cached: bool = True,
        engine: EngineLike | None = None,
        master: str | None = None,
        remote: str | None = None,
        conf: Mapping[str, str] | None = None,
        threads: int | None = None,
    ) -> Aggregation:
        """Aggregate the matching rows, from metadata where possible.

        Args:
            *aggregates: Aggregates, as in ``sk.count(), sk.sum("amount")``, or as SQL, as in
                ``"count(distinct country), sum(amount * 2) AS total"``.
            group_by: Columns or expressions to group by, as in ``["country", "year(ts) AS year"]``, a string
                of them with commas between, or a mapping of their names in the answer.
            within: Use only rows whose ``id_column`` is in this set; without ``id_column`` the set holds
                positions of rows. Also [members][skipstone.members], or a list of sets that must all hold.
            without: Leave out rows whose ``id_column`` is in this set.
            id_column: The integer column that ``within`` and ``without`` look up.
            use_cached: If False, read every row instead of using sums and sketches of the index and
                statistics.
            engine: ``"spark"``, ``"local"``, a Spark session or an [Engine][skipstone.Engine]. By default
                rows are read by threads of this process.
            master: The master of a Spark session to start.
            remote: The Spark Connect URL of a session to start.
            conf: Settings of a Spark session to start.
            threads: Threads of the local engine.

        Returns:
            The aggregation, which computes its answer once, when it is first used.

        Examples:
            >>> import skipstone as sk
            >>> scan = sk.open("events").scan("event_id < 100")
            >>> scan.aggregate(sk.count(), sk.max("amount")).to_pylist()
            [{'count': 100, 'max(amount)': 9.9}]
            >>> chosen = scan.aggregate(sk.count(), group_by="country", within=[1, 2], id_column="event_id")
            >>> chosen.to_pylist()
            [{'country': 'FR', 'count': 1}, {'country': 'US', 'count': 1}]
            >>> scan.aggregate("sum(amount * 2) AS total", group_by="year(ts)").to_pylist()
            [{'year(ts)': 2026, 'total': 990.0}]
        """
        from skipstone.aggregate.aggregation import aggregation

        _, _, limit, _, switches = self._query
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
            engine_options=(master, remote, conf, threads),
        )

    def verify(self) -> Verification:
        """Run the scan with and without skipping, and report every difference.

        Examples:
            >>> import skipstone as sk
            >>> sk.open("events").scan("amount > 99").verify().ok
            True
        """
        from skipstone.scan.verify import verify

        question = self._question(self.lake)
        return verify(self.lake, replace(question, projection=question.projection.inputs))

    # -- representations ---------------------------------------------------------------------

    def trace(self) -> ScanTrace:
        """Return the trace of the plan: units and rows of each level, and why units were dropped."""
        return self.plan().trace

    def __repr__(self) -> str:
        where, columns, limit, order, _ = self._query
        parts = [
            f"where={str(where)!r}" if where is not None else "",
            f"columns={list(columns)}" if columns is not None else "",
            f"limit={limit}" if limit is not None else "",
            f"order_by={order!r}" if order is not None else "",
        ]
        return f"Scan({', '.join([opened_name(self.lake.pinned), *filter(None, parts)])})"


_CLOCK = re.compile(r"\b(current_|now|curdate|today|localtimestamp)", re.IGNORECASE)


def _weight(where: Predicate) -> int:
    """How much of the cache a plan takes; only long lists of values are large."""
    return 1 + sum(len(node.values) for node in where.walk() if isinstance(node, IsIn)) // _VALUES


def _as_tuple(value: Any, what: str, hint: str) -> Any:
    """A caller's list as a tuple; a single string is checked later."""
    if value is None or isinstance(value, str):
        return value
    try:
        return tuple(value)
    except TypeError:
        raise UsageError(f"{what}={value!r}", hint=hint) from None
