"""``python -m benchmarks.engine_bridges``: other engines through Skipstone, beside the same engines alone.

DuckDB, DataFusion and Polars ask a lake of 1,000 files of 10,000 events for one row by its id, for the rows
of a user (*bloom*), for a session that does not exist, and for aggregates of all rows; and TPC-H's queries 3,
5, 6, 10, 12 and 14 at scale 1, with lineitem by l_shipdate and orders by o_orderdate in 100 files each. Both
sides read the same files, and everyone keeps the lake open between questions. Skipstone has an index of all
lakes.

*skipstone* is a lake as it is registered by default; *skipstone, reader* is registered with
``route="reader"``: the engine's own reader reads the kept files. Polars chooses by itself for each query.
DataFusion's own reader keeps NaN only without statistics, so its session for events by that route has none.
Bytes and requests are what Skipstone reads for a question not asked before; what an engine reads by itself
can't be counted.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

import skipstone as sk
from benchmarks.harness import OURS, Bench, Case, CaseResult, Contender, Pace, Role, Target, Work
from benchmarks.lakes import DATA, USER_STEP, Events, Lake, events_lake, tpch_lakes
from benchmarks.peers import (
    DATAFUSION,
    DUCKDB,
    POLARS,
    built_index,
    datafusion_context,
    duckdb_connection,
    open_indexed,
)
from skipstone.errors import UsageError

ENGINES = (DUCKDB, DATAFUSION, POLARS)
READER = f"{OURS}, reader"
PACE = Pace(seconds=5.0, least=5, most=60)
SELECTIVE, FULL = 5.0, 0.9
COUNTED = 1_000
DIGITS = 9
"""Sums of doubles depend on the order of rows beyond these."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large the lakes are."""

    files: int = 1_000
    rows: int = 10_000
    scale: float = 1.0
    pace: Pace | None = PACE


QUICK = Sizes(20, 2_000, 0.01, None)


# -- questions ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Question:
    """SQL in as many variants as are asked for, and how many times as fast as alone it is meant to be."""

    name: str
    sql: Callable[[int], str]
    promise: float


def event_questions(events: Events) -> Iterator[Question]:
    """Questions to the events."""
    rng = np.random.default_rng(events.seed)
    places = rng.integers(0, events.rows, COUNTED + 1)
    ids = [int(events.ids(np.array([nth]))[0]) for nth in places[:200]]
    users = rng.integers(0, events.users, COUNTED + 1) * USER_STEP

    def look_up(column: str, values: Sequence[Any]) -> Callable[[int], str]:
        return lambda variant: f"SELECT * FROM lake WHERE {column} = {values[variant % len(values)]}"

    absent = [f"'absent{number:010d}'" for number in range(COUNTED + 1)]
    yield Question("point, event_id", look_up("event_id", ids), SELECTIVE)
    yield Question("bloom, user_id", look_up("user_id", users.tolist()), SELECTIVE)
    yield Question("absent, bloom, session", look_up("session", absent), SELECTIVE)
    full = {
        "full, sum": "SELECT sum(amount) AS total, count(amount) AS n, max(event_id) AS last FROM lake",
        "full, group by": (
            "SELECT kind, count(*) AS n, sum(amount) AS total, max(ts) AS last FROM lake GROUP BY kind"
        ),
        "full, strings": "SELECT kind, max(payload) AS last FROM lake GROUP BY kind",
    }
    for name, text in full.items():
        yield Question(name, lambda _variant, text=text: text, FULL)


_REVENUE = "l_extendedprice * (1 - l_discount)"
TPCH = {
    "TPC-H Q3": f"""
        SELECT l_orderkey, sum({_REVENUE}) AS revenue, o_orderdate, o_shippriority
        FROM customer JOIN orders ON c_custkey = o_custkey JOIN lineitem ON l_orderkey = o_orderkey
        WHERE c_mktsegment = 'BUILDING' AND o_orderdate < DATE '1995-03-15' AND l_shipdate > DATE '1995-03-15'
        GROUP BY l_orderkey, o_orderdate, o_shippriority
        ORDER BY revenue DESC, o_orderdate LIMIT 10""",
    "TPC-H Q5, 6 lakes": f"""
        SELECT n_name, sum({_REVENUE}) AS revenue
        FROM customer JOIN orders ON c_custkey = o_custkey JOIN lineitem ON l_orderkey = o_orderkey
        JOIN supplier ON l_suppkey = s_suppkey AND c_nationkey = s_nationkey
        JOIN nation ON s_nationkey = n_nationkey JOIN region ON n_regionkey = r_regionkey
        WHERE r_name = 'ASIA' AND o_orderdate >= DATE '1994-01-01' AND o_orderdate < DATE '1995-01-01'
        GROUP BY n_name ORDER BY revenue DESC""",
    "TPC-H Q6": """
        SELECT sum(l_extendedprice * l_discount) AS revenue FROM lineitem
        WHERE l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01'
        AND l_discount >= 0.05 AND l_discount <= 0.07 AND l_quantity < 24""",
    "TPC-H Q10, 4 lakes": f"""
        SELECT c_custkey, c_name, sum({_REVENUE}) AS revenue, c_acctbal, n_name, c_address, c_phone
        FROM customer JOIN orders ON c_custkey = o_custkey JOIN lineitem ON l_orderkey = o_orderkey
        JOIN nation ON c_nationkey = n_nationkey
        WHERE o_orderdate >= DATE '1993-10-01' AND o_orderdate < DATE '1994-01-01' AND l_returnflag = 'R'
        GROUP BY c_custkey, c_name, c_acctbal, c_phone, n_name, c_address
        ORDER BY revenue DESC LIMIT 20""",
    "TPC-H Q12": """
        SELECT l_shipmode,
        sum(CASE WHEN o_orderpriority IN ('1-URGENT', '2-HIGH') THEN 1 ELSE 0 END) AS high,
        sum(CASE WHEN o_orderpriority NOT IN ('1-URGENT', '2-HIGH') THEN 1 ELSE 0 END) AS low
        FROM orders JOIN lineitem ON o_orderkey = l_orderkey
        WHERE l_shipmode IN ('MAIL', 'SHIP') AND l_commitdate < l_receiptdate AND l_shipdate < l_commitdate
        AND l_receiptdate >= DATE '1994-01-01' AND l_receiptdate < DATE '1995-01-01'
        GROUP BY l_shipmode ORDER BY l_shipmode""",
    "TPC-H Q14": f"""
        SELECT sum(CASE WHEN p_type LIKE 'PROMO%' THEN {_REVENUE} ELSE 0 END) AS promo,
        sum({_REVENUE}) AS total
        FROM lineitem JOIN part ON l_partkey = p_partkey
        WHERE l_shipdate >= DATE '1995-09-01' AND l_shipdate < DATE '1995-10-01'""",
}

# -- engines -----------------------------------------------------------------------------------

Ask = Callable[[str], pa.Table]


def alone(engine: str, lakes: Mapping[str, Lake]) -> Ask:
    """The engine on the files by itself."""
    match engine:
        case "duckdb":
            connection = duckdb_connection()
            for name, lake in lakes.items():
                connection.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet({lake.files!r})")
            return lambda text: connection.sql(text).to_arrow_table()
        case "datafusion":
            context = datafusion_context()
            for name, lake in lakes.items():
                context.register_parquet(name, str(lake.folder))
            return lambda text: context.sql(text).to_arrow_table()
    return _polars({name: pl.scan_parquet(lake.files) for name, lake in lakes.items()})


def bridged(engine: str, lakes: Mapping[str, sk.Lake], route: Any) -> Ask | None:
    """The engine on the lakes through Skipstone; None if it can't take the route."""
    try:
        match engine:
            case "duckdb":
                connection = duckdb_connection()
                for name, lake in lakes.items():
                    lake.to_duckdb(connection, name, route=route)
                return lambda text: connection.sql(text).to_arrow_table()
            case "datafusion":
                context = datafusion_context()
                if route == "reader" and "lake" in lakes:
                    context.sql("SET datafusion.execution.collect_statistics = false").collect()
                for name, lake in lakes.items():
                    lake.to_datafusion(context, name, route=route)
                return lambda text: context.sql(text).to_arrow_table()
        return _polars({name: lake.to_polars_lazy(route=route) for name, lake in lakes.items()})
    except UsageError:
        return None


def _polars(frames: Mapping[str, pl.LazyFrame]) -> Ask:
    context = pl.SQLContext(dict(frames))
    return lambda text: context.execute(text).collect().to_arrow()


def answer_of(table: pa.Table) -> Any:
    """Rows in any order; numbers to some digits, since engines sum in other types and orders."""
    return sorted(tuple(_rounded(value) for value in row.values()) for row in table.to_pylist())


def _rounded(value: Any) -> str:
    number = isinstance(value, int | float) or hasattr(value, "quantize")
    return f"{float(value):.{DIGITS}g}" if number else str(value)


# -- cases -------------------------------------------------------------------------------------


def cases(
    engine: str,
    lakes: Mapping[str, Lake],
    opened: Mapping[str, sk.Lake],
    questions: Sequence[Question],
    only: str,
) -> Iterator[Case]:
    """Every question to one engine."""
    asks = {OURS: bridged(engine, opened, "auto"), READER: bridged(engine, opened, "reader")}
    if engine == POLARS:
        del asks[READER]
    entrants = [(name, ask, Role.OURS) for name, ask in asks.items() if ask is not None]
    entrants.append((engine, alone(engine, lakes), Role.PEER))
    for question in questions:
        if only not in question.name:
            continue
        contenders = [_contender(name, ask, role, question, opened) for name, ask, role in entrants]
        text = f"≥ {question.promise:g} × {engine} alone"
        target = Target(text, question.promise, _better_route, least=True)
        yield Case(f"{engine} {question.name}", contenders, [target])


def _contender(
    name: str, ask: Ask, role: Role, question: Question, opened: Mapping[str, sk.Lake]
) -> Contender:
    numbers = itertools.count()

    def work(table: pa.Table) -> Work:
        if name != OURS:
            return Work(len(table))
        before = [lake.io for lake in opened.values()]
        ask(question.sql(COUNTED))
        spent = [lake.io - io for lake, io in zip(opened.values(), before, strict=True)]
        return Work(len(table), sum(io.bytes for io in spent), sum(io.requests for io in spent))

    return Contender(
        name, ask, role, prepare=lambda: question.sql(next(numbers)), answer=answer_of, work=work
    )


def _better_route(found: CaseResult) -> float:
    """Wall time alone over that of the better of our routes."""
    return max(found.speedup_of(name) or 0.0 for name in (OURS, READER))


# -- running -----------------------------------------------------------------------------------


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--engine", nargs="+", choices=ENGINES, default=ENGINES, help="which engines")
    parser.add_argument("--only", metavar="TEXT", default="", help="questions with TEXT in their name")
    parser.add_argument("--data", type=Path, default=DATA, metavar="DIR", help="where lakes are kept")


def main(argv: Sequence[str] | None = None, sizes: Sizes | None = None) -> None:
    """Run every section; ``sizes`` is for tests."""
    bench = Bench.of("engine_bridges", __doc__ or "", argv, sizes.pace if sizes else None, _options)
    sizes = sizes or (QUICK if bench.quick else Sizes())
    bench.pace = sizes.pace or bench.pace
    given = bench.given
    events = Events(sizes.files * sizes.rows, sizes.files, bench.seed)
    name = f"scans-{sizes.files}x{sizes.rows}"
    lake = events_lake(events, sizes.files, given.data, bench.console, name)
    index = built_index(lake, given.data, bench.console, blooms=["user_id", "session"])
    tables = tpch_lakes(sizes.scale, given.data, bench.console)
    indexes = {name: built_index(table, given.data, bench.console) for name, table in tables.items()}
    opened = {name: open_indexed(table, indexes[name]) for name, table in tables.items()}
    questions = list(event_questions(events))
    for engine in given.engine:
        own = cases(engine, {"lake": lake}, {"lake": open_indexed(lake, index)}, questions, given.only)
        bench.section(f"{engine}, {sizes.files:,} files of {sizes.rows:,} rows", own)
        tpch = [Question(name, lambda _variant, text=text: text, 1.0) for name, text in TPCH.items()]
        bench.section(
            f"{engine}, TPC-H at scale {sizes.scale:g}", cases(engine, tables, opened, tpch, given.only)
        )
    bench.finish()


if __name__ == "__main__":
    main()
