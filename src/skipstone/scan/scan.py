"""Scan: a question put to a lake, answered in whatever form is asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from skipstone.engine.jobs import opened
from skipstone.errors import UsageError
from skipstone.predicate import predicate as to_predicate
from skipstone.report.trace import ScanTrace
from skipstone.scan.execute import Execution, count_on, count_rows, execute
from skipstone.scan.options import DEFAULT, ScanOptions
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


class Scan:
    """Rows of a lake that match a predicate. Nothing is read before an answer is asked for."""

    __slots__ = ("_asked", "lake")

    def __init__(
        self,
        lake: Lake,
        where: Any,
        columns: Sequence[str] | None,
        limit: int | None,
        order_by: Any,
        options: ScanOptions,
    ) -> None:
        self.lake = lake
        limit = checked_limit(limit)
        order = _listed(order_by, "order_by", 'give a list such as ["ts desc", "id"]')
        names = _listed(columns, "columns", "give a list of column names")
        text = where if isinstance(where, str) or where is None else to_predicate(where)
        self._asked = (text, names, limit, order, options)

    def __reduce__(self) -> tuple[Any, ...]:
        where, columns, limit, order, options = self._asked
        return (type(self), (self.lake, where, columns, limit, order, options))

    # -- phase one ---------------------------------------------------------------------------

    def plan(self) -> ScanPlan:
        """The plan; asked again on the same version of the lake, the same plan."""

        def make() -> tuple[ScanPlan, int]:
            return make_plan(self.lake, self._question()), 1

        *asked, options = self._asked
        # Options that nobody has changed need not be hashed.
        key = (*asked, None if options is DEFAULT else options)
        found: ScanPlan = self.lake.plans.get_or_make(key, make)
        return found

    def _question(self) -> Question:
        where, columns, limit, order, options = self._asked
        sensitive, schema = options.case_sensitive, self.lake.schema
        return Question(
            None if where is None else to_predicate(where),
            resolve(columns, schema, case_sensitive=sensitive),
            limit,
            parse_order(order, schema, case_sensitive=sensitive),
            options,
        )

    @property
    def schema(self) -> pa.Schema:
        """The schema of the answer."""
        _, columns, _, _, options = self._asked
        return resolve(columns, self.lake.schema, case_sensitive=options.case_sensitive).schema

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
        from skipstone.report import render
        from skipstone.report.explain import scan_tree

        check_format(format)
        trace = self._explained(analyze)
        if session is not None:
            from skipstone.spark.frames import route_of, schema_from_spark

            told = schema_from_spark(self.lake)
            trace = replace(trace, spark=route_of(self.plan(), session, route, told=told).use)
        return render(trace, scan_tree, format, f"Scan of {trace.lake}")

    def _explained(self, analyze: bool) -> ScanTrace:
        from skipstone.scan.forecast import forecast

        plan = self.plan()
        trace = replace(plan.trace, reads=forecast(plan))
        return replace(trace, run=self._analyzed(plan)) if analyze else trace

    @staticmethod
    def _analyzed(plan: ScanPlan) -> Any:
        ran = execute(plan)
        for _ in ran.to_batches():
            pass
        return ran.trace.run

    # -- phase two ---------------------------------------------------------------------------

    def execute(self) -> Execution:
        """The answer, to be taken in any form."""
        return execute(self.plan())

    def to_arrow(self) -> pa.Table:
        """All rows as a table."""
        return self.execute().to_arrow()

    def to_reader(self) -> pa.RecordBatchReader:
        """A stream of batches, read no further than it is consumed."""
        return self.execute().to_reader()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.execute().__arrow_c_stream__(requested_schema)

    def to_batches_async(self) -> AsyncIterator[pa.RecordBatch]:
        """Batches without blocking the event loop; cancelling stops reading."""
        return self._batches_async()

    async def _batches_async(self) -> AsyncIterator[pa.RecordBatch]:
        import asyncio

        ran = await asyncio.to_thread(self.execute)
        async with aclosing(ran.to_batches_async()) as batches:
            async for batch in batches:
                yield batch

    def to_polars(self) -> pl.DataFrame:
        """All rows as a Polars frame."""
        return self.execute().to_polars()

    def to_pandas(self, **options: Any) -> pd.DataFrame:
        """All rows as a pandas frame; ``options`` go to pyarrow."""
        return self.execute().to_pandas(**options)

    def count(self, *, engine: Any = None, **options: Any) -> int:
        """How many rows match; those that metadata proves are not read.

        On threads of this process, or on an ``engine``: "spark", or a Spark session.
        """
        if engine is None:
            return count_rows(self.plan())
        with opened(engine, options) as chosen:
            return count_on(self.plan(), chosen)

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

    def verify(self) -> Verification:
        """Run with skipping and without, and report every difference."""
        from skipstone.scan.verify import verify

        return verify(self.lake, self._question())

    # -- looks -------------------------------------------------------------------------------

    def trace(self) -> ScanTrace:
        """What the plan found, as data."""
        return self.plan().trace

    def __repr__(self) -> str:
        where, columns, limit, order, _ = self._asked
        parts = [
            f"where={str(where)!r}" if where is not None else "",
            f"columns={list(columns)}" if columns is not None else "",
            f"limit={limit}" if limit is not None else "",
            f"order_by={order!r}" if order is not None else "",
        ]
        return f"Scan({', '.join([self.lake.uri, *filter(None, parts)])})"

    def _repr_html_(self) -> str:
        return self.plan()._repr_html_()


def check_format(format: str) -> None:
    """Refuse what ``explain`` can't draw."""
    if format not in ("text", "json", "html"):
        raise UsageError(f"format={format!r}", hint="give text, json or html")


def _listed(value: Any, what: str, hint: str) -> Any:
    """A caller's list, made firm; one name is left for the reader of names to judge."""
    if value is None or isinstance(value, str):
        return value
    try:
        return tuple(value)
    except TypeError:
        raise UsageError(f"{what}={value!r}", hint=hint) from None
