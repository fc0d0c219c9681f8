"""``python -m benchmarks.full_scans``: much of a lake as one Arrow table, where there is little to skip.

Two lakes of events (``--lake FILES×ROWS``, as many as wanted): 100 files of 200,000 rows and 1,000 files of
10,000. Everyone keeps the lake open between questions and gives an Arrow table of all seven columns: of all
rows, and of a range of 30 % of them, another one each time. Skipstone runs without an index and with one,
and with skipping off. It decodes with pyarrow, as pyarrow.dataset does.

Then the events of the last lake in no order (``--unsorted FILES``), where conditions leave few rows and no
metadata can skip: a kind and a number, a narrow range of numbers, and scattered keys; and groups of all of
its rows, for which no sums are cached, beside DuckDB and Polars.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

import skipstone as sk
from benchmarks.harness import Bench, Pace
from benchmarks.lakes import DATA, Events, Lake, events_lake, unsorted_lake
from benchmarks.measuring import Case, Contender, Role
from benchmarks.peers import DUCKDB, PEERS, POLARS, built_index
from benchmarks.queries import Every, In, Query, Test, between, event_queries
from benchmarks.selective_reads import query_cases, variants_of

LAKES = ("100x200000", "1000x10000")
QUESTIONS = ("full scan", "range, 30 %")
UNSORTED_FILES = 4
SCATTERED_KEYS = 50
PROMISES = dict.fromkeys(QUESTIONS, 0.9)
"""How fast beside the best peer, by wall and CPU time."""
PACE = Pace(seconds=8.0, least=5, most=15)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Which lakes, and how many times each question is asked."""

    lakes: Sequence[str] = LAKES
    pace: Pace | None = PACE
    unsorted: int = UNSORTED_FILES


QUICK = Sizes(("10x20000", "50x2000"), None)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lake", nargs="+", metavar="FILESxROWS", help=f"by default {' '.join(LAKES)}")
    parser.add_argument("--unsorted", type=int, metavar="FILES", help=f"by default {UNSORTED_FILES}; 0: none")
    parser.add_argument("--only", metavar="TEXT", default="", help="questions with TEXT in their name")
    parser.add_argument("--no-index", action="store_true", help="without Skipstone's index")
    parser.add_argument("--data", type=Path, default=DATA, metavar="DIR", help="where lakes are kept")


def _questions(events: Events, variant: int) -> Iterator[Query]:
    return (query for query in event_queries(events, variant) if query.name in QUESTIONS)


def _filters(events: Events, variant: int) -> Iterator[Query]:
    """Conditions on the unsorted lake that leave few rows."""
    rng = np.random.default_rng((events.seed, variant))
    rows = [events.row(int(at)) for at in rng.integers(0, events.rows, SCATTERED_KEYS)]
    some = next(row for row in rows if row["amount"] is not None and row["kind"] is not None)
    amount = float(some["amount"])
    near = between("amount", amount - 0.005, amount + 0.005)
    few = "event_id", "amount"
    yield Query("filter, kind and amount", Every((Test("kind", "=", some["kind"]), near)), columns=few)
    yield Query("filter, narrow amount", near)
    yield Query(
        "filter, scattered keys", In("user_id", pa.array([row["user_id"] for row in rows], pa.int64()))
    )


def _grouping(lake: Lake) -> Iterator[Case]:
    """Counts and sums of all rows by a column."""
    engines = {engine.name: engine.open(lake) for engine in PEERS if engine.name in (DUCKDB, POLARS)}
    asked = "count(*) AS n, sum(amount) AS total"
    scan, connection, frame = sk.open(lake.folder).scan(), engines[DUCKDB], engines[POLARS]
    for key in ("kind", "user_id"):

        def groups(found: pa.Table, key: str = key) -> dict[object, int]:
            return dict(zip(found[key].to_pylist(), found["n"].to_pylist(), strict=True))

        sql = f"SELECT {key}, count(*) AS n, sum(amount) AS total FROM lake GROUP BY ALL"
        lazy = frame.group_by(key).agg(pl.len().alias("n"), pl.col("amount").sum().alias("total"))
        yield Case(
            f"group by {key}, {lake.name}",
            [
                Contender(
                    "skipstone",
                    lambda _, key=key: scan.aggregate(asked, group_by=key).to_arrow(),
                    Role.OURS,
                    answer=groups,
                ),
                Contender("duckdb", lambda _, sql=sql: connection.sql(sql).to_arrow_table(), answer=groups),
                Contender("polars", lambda _, lazy=lazy: lazy.collect().to_arrow(), answer=groups),
            ],
        )


def main(argv: Sequence[str] | None = None, sizes: Sizes | None = None) -> None:
    """Run every section; ``sizes`` is for tests."""
    bench = Bench.of("full_scans", __doc__ or "", argv, sizes.pace if sizes else None, _options)
    sizes = sizes or (QUICK if bench.quick else Sizes())
    bench.pace = sizes.pace or bench.pace
    given = bench.given
    for name in given.lake or sizes.lakes:
        files, rows = map(int, name.split("x"))
        events = Events(files * rows, files, bench.seed)
        lake = events_lake(events, files, given.data, bench.console, f"scans-{name}")
        index = None if given.no_index else built_index(lake, given.data, bench.console)
        variants = variants_of(lambda variant, events=events: _questions(events, variant))
        cases = query_cases(
            lake, variants, given.only, warm=True, index=index, peers_only=False, promises=PROMISES
        )
        bench.section(f"{files:,} files of {rows:,} rows", cases)
    parts = sizes.unsorted if given.unsorted is None else given.unsorted
    if parts:
        mixed = unsorted_lake(lake, parts, given.data, bench.console)
        variants = variants_of(lambda variant: _filters(events, variant))
        cases = query_cases(mixed, variants, given.only, warm=True, index=None, peers_only=False, promises={})
        bench.section(f"{events.rows:,} rows in no order in {parts} files: nothing to skip", cases)
        if given.only in "group by":
            bench.section("groups without cached sums", _grouping(mixed))
    bench.finish()


if __name__ == "__main__":
    main()
