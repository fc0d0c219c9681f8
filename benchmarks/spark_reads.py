"""``python -m benchmarks.spark_reads``: queries as Spark data frames, from one row to all of them.

One session, ``local[2]``, and the 20 million events in 100 files. Spark's own reader keeps its data frame
open between queries and Skipstone its lake, with the index that ``selective_reads`` builds. *skipstone* is
``to_spark`` with the route it takes by itself, which is told below the table; the routes by name and the
*data source* are there for reference. That is ``spark.read.format("skipstone")``, loaded anew for each query.
Each repetition asks for another key or range.

Few rows are brought to the driver as an Arrow table. Of queries that keep a third or all, the rows go to
Spark's ``noop`` sink, as collecting them would time the collect; a hash of each tells that they are the same.

*frame* is the time until there is a data frame (which of Spark's own is only a plan), *jobs* that from each
job's submission to its end, *tasks* the executors' run time summed over tasks, of which two run side by side.
What is not in jobs the driver has done by itself: plans, and all of the route *driver*.

Bytes and requests are those of a question not asked before, in a run that is not timed. Spark's own are its
input metric with vectored reads switched off, as it doesn't count those; those of page slices are counted on
the driver, which reads the same plan; those of the data source can't be counted.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import skipstone as sk
from benchmarks.answers import answer_of
from benchmarks.harness import OURS, Bench, Case, CaseResult, Contender, Pace, Role, Target, Work
from benchmarks.lakes import BLOCKS, DATA, EVENTS, QUICK_SHARE, Events, Lake, events_lake
from benchmarks.peers import built_index, open_indexed, our_scan
from benchmarks.queries import Query, plain_queries
from benchmarks.selective_reads import COUNTED, KEYS, Variants, variants_of
from benchmarks.spark_session import Meter, spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SPARK, SOURCE = "spark", "data source"
ROUTES = ("driver", "slices", "reader")
LAKE = "events100"
FULL_PACE = Pace(seconds=6.0, least=3, most=40)
LOOK_UPS, SCANS = 5.0, 0.9
"""How many times as fast as Spark's own reader look-ups by a key and full scans are meant to be."""
WARM_UP = 3
_WIDTH = 160


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large the lake is."""

    events: int = EVENTS
    blocks: int = BLOCKS
    files: int = 100
    pace: Pace | None = None


FULL = Sizes(pace=FULL_PACE)
QUICK = Sizes(EVENTS // QUICK_SHARE, pace=Pace(seconds=0.4, least=2, most=10))


# -- who answers -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """A query's data frame, how long it took to get, and its rows if they were wanted here."""

    frame: DataFrame
    frame_ms: float
    table: pa.Table | None

    @cached_property
    def digest(self) -> tuple[int, int]:
        """Number of rows, and the sum of a hash of each."""
        row = self.frame.selectExpr("count(*)", "coalesce(sum(cast(hash(*) AS bigint)), 0)").head()
        assert row is not None
        return row[0], row[1]


@dataclass(frozen=True, slots=True)
class Way:
    """A way from a query to a data frame, and to the bytes and requests that its answer takes."""

    name: str
    role: Role
    frame: Callable[[Query], DataFrame]
    count: Callable[[Query], tuple[int | None, int | None]]
    heavy: bool = True
    """Whether it is meant for many rows."""

    def ask(self, query: Query) -> Asked:
        """Answer a query, all of it."""
        began = time.perf_counter()
        frame = self.frame(query)
        frame_ms = (time.perf_counter() - began) * 1e3
        if not query.heavy:
            return Asked(frame, frame_ms, frame.toArrow())
        sink(frame)
        return Asked(frame, frame_ms, None)


def sink(frame: DataFrame) -> None:
    """Make all rows of a data frame, and keep none."""
    frame.write.format("noop").mode("overwrite").save()


def filtered(frame: DataFrame, query: Query) -> DataFrame:
    """The query as Spark has it."""
    frame = frame if query.where is None else frame.where(query.where.sql())
    return frame if query.columns is None else frame.select(*query.columns)


def ways(lake: Lake, index: Path, session: SparkSession, meter: Meter) -> Iterator[Way]:
    """Everyone, with what is kept open."""
    opened = open_indexed(lake, index)
    # A session that was not started here may not find the source by itself.
    sk.register(session)
    options = {"index_root": str(index), "pushdown": "true"}
    source = session.read.format("skipstone").options(**options)
    own = session.read.parquet(str(lake.folder))

    def routed(query: Query, route: str) -> DataFrame:
        return our_scan(opened, query).to_spark(session, route=route)

    def by_reader(frame: Callable[[Query], DataFrame], query: Query) -> int:
        with meter.counting():
            sink(frame(query))
        return meter.spent().bytes

    def count(query: Query, route: str) -> tuple[int | None, int | None]:
        before = opened.io
        taken = route_of(opened, query, session) if route == "auto" else route
        if taken == "reader":
            read = by_reader(lambda asked: routed(asked, taken), query)
            return read + opened.io.bytes - before.bytes, None
        for _batch in our_scan(opened, query).to_reader():
            pass
        return opened.io.bytes - before.bytes, opened.io.requests - before.requests

    yield Way(OURS, Role.OURS, partial(routed, route="auto"), partial(count, route="auto"))
    for route in ROUTES:
        by_route = partial(routed, route=route), partial(count, route=route)
        yield Way(f"{OURS}, {route}", Role.REFERENCE, *by_route, heavy=route != "driver")

    def loaded(query: Query) -> DataFrame:
        # Spark keeps the filters that it has pushed to a data frame of a Python source for its next query.
        return filtered(source.load(str(lake.folder)), query)

    yield Way(SOURCE, Role.REFERENCE, loaded, lambda _query: (None, None))
    spark = partial(filtered, own)
    yield Way(SPARK, Role.PEER, spark, lambda query: (by_reader(spark, query), None))


def route_of(opened: Any, query: Query, session: SparkSession) -> str:
    """The route that ``to_spark`` takes by itself."""
    from skipstone.spark.frames import route_of

    return route_of(our_scan(opened, query).plan(), session).use.route


# -- cases -------------------------------------------------------------------------------------


def query_cases(
    lake: Lake, variants: Variants, only: str, entrants: Sequence[Way], meter: Meter
) -> Iterator[Case]:
    """Every query, answered in every way that is meant for it."""
    for query in variants(0).values():
        if only not in query.name:
            continue
        contenders = [
            _contender(way, query, variants, lake.schema, meter)
            for way in entrants
            if way.heavy or not query.heavy
        ]
        yield Case(f"warm {query.name}, {lake.name}", contenders, [*_targets(query)])


def _contender(way: Way, first: Query, variants: Variants, schema: pa.Schema, meter: Meter) -> Contender:
    numbers = itertools.count()
    same = answer_of(first, schema)

    def prepare() -> Query:
        meter.spent()
        return variants(next(numbers))[first.name]

    def work(asked: Asked) -> Work:
        rows = asked.digest[0] if asked.table is None else len(asked.table)
        return Work(rows, *way.count(variants(COUNTED)[first.name]))

    def parts(asked: Asked) -> dict[str, float]:
        spent = meter.spent()
        return {"frame": asked.frame_ms, "jobs": spent.jobs_ms, "tasks": spent.tasks_ms}

    def answer(asked: Asked) -> Any:
        return asked.digest if asked.table is None else same(asked.table)

    return Contender(way.name, way.ask, way.role, prepare, answer, work, parts)


def _targets(query: Query) -> Iterator[Target]:
    if query.name.startswith("point") or "bloom" in query.name:
        yield Target(f"≥ {LOOK_UPS:g} × Spark's own reader", LOOK_UPS, _speedup, least=True)
    elif query.name.startswith("full"):
        yield Target(f"≥ {SCANS:g} × Spark's own reader", SCANS, _speedup, least=True)


def _speedup(found: CaseResult) -> float:
    return found.speedup_of(OURS) or 0.0


# -- running -----------------------------------------------------------------------------------


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", metavar="TEXT", default="", help="queries with TEXT in their name")
    parser.add_argument("--data", type=Path, default=DATA, metavar="DIR", help="where lakes are kept")


def main(argv: Sequence[str] | None = None, sizes: Sizes | None = None) -> None:
    """Run every query; ``sizes`` is for tests."""
    about = "Queries as Spark data frames, against Spark's own reader."
    bench = Bench.of("spark_reads", about, argv, sizes.pace if sizes else None, _options)
    if sizes is None:
        sizes = QUICK if bench.quick else FULL
        bench.pace = sizes.pace or bench.pace
    bench.console.width = max(bench.console.width, _WIDTH)
    data = bench.given.data
    events = Events(sizes.events, sizes.blocks, bench.seed)
    lake = events_lake(events, sizes.files, data, bench.console, LAKE)
    index = built_index(lake, data, bench.console, blooms=list(KEYS))
    with spark_session(data) as session:
        run(bench, lake, index, variants_of(partial(plain_queries, events)), session)
    bench.finish()


def run(bench: Bench, lake: Lake, index: Path, variants: Variants, session: SparkSession) -> None:
    """Ask every query, and tell which routes were taken."""
    meter = Meter(session)
    entrants = list(ways(lake, index, session, meter))
    with bench.console.status("warming up"):
        _warm_up(entrants, variants)
    cases = query_cases(lake, variants, bench.given.only, entrants, meter)
    found = bench.section(f"{lake.name} on Spark, kept open: {len(lake.files):,} files", cases)
    opened = open_indexed(lake, index)
    asked = {f"warm {name}, {lake.name}": query for name, query in variants(0).items()}
    routes = {
        asked[result.case.name].name: route_of(opened, asked[result.case.name], session) for result in found
    }
    told = "; ".join(f"{name}: {route}" for name, route in routes.items())
    bench.console.print(f"routes that skipstone takes: {told}", style="dim")


def _warm_up(entrants: Sequence[Way], variants: Variants) -> None:
    """The JVM compiles what it has done for a while: the first queries would pay for the later ones."""
    for number in range(WARM_UP):
        for way in entrants:
            way.ask(variants(COUNTED + 1 + number)["range, 1,000 rows"])


if __name__ == "__main__":
    main()
