"""``python -m benchmarks.full_scans``: much of a lake as one Arrow table, where there is little to skip.

Two lakes of events (``--lake FILES×ROWS``, as many as wanted): 100 files of 200,000 rows and 1,000 files of
10,000. Everyone keeps the lake open between questions and gives an Arrow table of all seven columns: of all
rows, and of a range of 30 % of them, another one each time. Skipstone runs without an index and with one,
and with skipping off. It decodes with pyarrow, as pyarrow.dataset does.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import Bench, Pace
from benchmarks.lakes import DATA, Events, events_lake
from benchmarks.peers import built_index
from benchmarks.queries import Query, event_queries
from benchmarks.selective_reads import query_cases, variants_of

LAKES = ("100x200000", "1000x10000")
QUESTIONS = ("full scan", "range, 30 %")
PROMISES = dict.fromkeys(QUESTIONS, 0.9)
"""How fast beside the best peer, by wall and CPU time."""
PACE = Pace(seconds=8.0, least=5, most=15)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Which lakes, and how many times each question is asked."""

    lakes: Sequence[str] = LAKES
    pace: Pace | None = PACE


QUICK = Sizes(("10x20000", "50x2000"), None)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lake", nargs="+", metavar="FILESxROWS", help=f"by default {' '.join(LAKES)}")
    parser.add_argument("--only", metavar="TEXT", default="", help="questions with TEXT in their name")
    parser.add_argument("--no-index", action="store_true", help="without Skipstone's index")
    parser.add_argument("--data", type=Path, default=DATA, metavar="DIR", help="where lakes are kept")


def _questions(events: Events, variant: int) -> Iterator[Query]:
    return (query for query in event_queries(events, variant) if query.name in QUESTIONS)


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
    bench.finish()


if __name__ == "__main__":
    main()
