"""``python -m benchmarks.selective_reads``: queries over whole lakes, from one row to all of them.

Six lakes (``--lake``): the same 20 million events in 100 and in 1,000 files; for look-ups only, in 100 files
as ``sk.ingest`` writes them through Spark when sorted by id (*ingested*), without page index and blooms
(*bare*), and as DuckDB writes them (no page index either, and one page a chunk, so that there is no page to
skip); and TPC-H's lineitem. Three parts (``--part``): *warm*, where everyone keeps the lake open between
queries; *cold*, where everyone opens the lake again each time (files are in the system's page cache in both);
and *latency*, where a request takes 20 ms. Everyone gives an Arrow table of the same rows, of all columns
unless the name says otherwise.

Skipstone runs without an index and with one, which is built once under ``.bench/`` and whose time and size
are printed: from metadata, with blooms of the three keys made of values; for bare files and DuckDB's all
from values, with blooms of two columns.

Each repetition asks for other keys or another range (full scans, top 10 and limit excepted), so that nobody
profits from having answered the very same question. Bytes and requests are those of a question not asked
before: ours are counted by the lake itself, pyarrow.dataset's by reading through a Python file system in a
run of its own, which is not timed; those of the others can't be counted. Reads of a local index
count no bytes.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.answers import answer_of
from benchmarks.harness import OURS, Bench, Case, CaseResult, Contender, Pace, Role, Target, Work
from benchmarks.lakes import (
    BLOCKS,
    DATA,
    EVENTS,
    QUICK_SHARE,
    Events,
    Lake,
    bare_lake,
    duckdb_lake,
    events_lake,
    ingested_lake,
    lineitem_lake,
)
from benchmarks.latency import far_dataset, latency_cases
from benchmarks.peers import DATASET, INDEXED, PEERS, POLARS, THREADS, Engine, ask_dataset, built_index, ours
from benchmarks.queries import Promise, Query, event_queries, lineitem_queries, look_ups

LAKES = ("events100", "events1000", "ingested100", "bare100", "duckdb100", "lineitem")
PARTS = ("warm", "cold", "latency")
PROMISED_LAKE = "events100"
FULL_PACE = Pace(seconds=3.0, least=3, most=40)
OFF = "skipping off"
ABSENT = {"absent, event_id": 10.0, "absent, bloom, user_id": 10.0, "absent, bloom, session": 10.0}
AND = {"point AND, user_id and ts": 1.5}
INDEX_PROMISES = {
    "events100": {"point, event_id": 2.0, "range, 1,000 rows": 2.0, **ABSENT, **AND},
    "ingested100": {"point, event_id": 4.0, "range, 1,000 rows": 4.0, **ABSENT, **AND},
    "events1000": {"point, event_id": 10.0, "range, 1,000 rows": 10.0, **ABSENT, **AND},
}
"""How many times as fast as the best peer look-ups are meant to be with an index, by wall and CPU time."""
COLD_PROMISE = ("point, event_id", 0.7)
"""Without an index and with nothing open: how fast beside Polars."""
VALUES = ("event_id", "ts", "user_id", "session", "kind", "amount", "payload")
"""Columns whose values are read to index files that have no page index: all, since all are selected."""
BLOOMS = ("user_id", "session")
KEYS = ("event_id", *BLOOMS)
COUNTED = 1_000
"""The variant whose bytes and requests are counted; no repetition asks it."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large the lakes are."""

    events: int = EVENTS
    blocks: int = BLOCKS
    files: Sequence[int] = (100, 1_000)
    scale: float = 1.0
    latency: float = 0.020
    pace: Pace | None = None


FULL = Sizes(pace=FULL_PACE)
QUICK = Sizes(EVENTS // QUICK_SHARE, scale=1 / QUICK_SHARE)


# -- cases -------------------------------------------------------------------------------------


Variants = Callable[[int], dict[str, Query]]
"""The queries of a lake by name, in as many variants as are asked for."""


def variants_of(make: Callable[[int], Iterable[Query]]) -> Variants:
    """Variants that are made once and shared by all contenders."""
    return cache(lambda variant: {query.name: query for query in make(variant)})


def query_cases(
    lake: Lake,
    variants: Variants,
    only: str,
    *,
    warm: bool,
    index: Path | None,
    peers_only: bool,
    promises: Mapping[str, float] | None = None,
) -> Iterator[Case]:
    """Every query on one lake; what was opened is shared by all of them if they are warm.

    ``promises`` tells, by query, how many times as fast as the best peer the index makes it; by default
    those of the lake's name count.
    """
    promises = INDEX_PROMISES.get(lake.name, {}) if promises is None else promises
    entrants = [(engine, Role.PEER) for engine in PEERS]
    if not peers_only:
        # The lake may have an index of its own.
        plain = ours(index_used=False, threads=THREADS)
        off = ours(OFF, index_used=False, skipping=False, threads=THREADS)
        with_index = [] if index is None else [(ours(INDEXED, index, threads=THREADS), Role.OURS)]
        entrants = [(plain, Role.OURS), *with_index, (off, Role.REFERENCE), *entrants]
    opened = {engine.name: engine.open(lake) if warm else None for engine, _ in entrants}
    schema = lake.schema
    counted = _dataset_counter(lake, warm=warm)
    for query in variants(0).values():
        if only not in query.name or (query.heavy and not warm):
            continue
        contenders = [
            _contender(
                engine,
                role,
                lake,
                lambda variant, name=query.name: variants(variant)[name],
                opened[engine.name],
                answer_of(query, schema),
                counted,
            )
            for engine, role in entrants
        ]
        targets = [] if peers_only or not warm or lake.name != PROMISED_LAKE else [*_targets(query)]
        if warm and index is not None and not peers_only:
            targets += _index_targets(promises.get(query.name))
        if not warm and not peers_only and query.name == COLD_PROMISE[0]:
            text = f"cold, no index ≥ {COLD_PROMISE[1]:g} × Polars"
            targets.append(Target(text, COLD_PROMISE[1], _against_polars, least=True))
        yield Case(f"{'warm' if warm else 'cold'} {query.name}, {lake.name}", contenders, targets)


def _contender(
    engine: Engine,
    role: Role,
    lake: Lake,
    query: Callable[[int], Query],
    opened: Any,
    answer: Callable[[pa.Table], Any],
    counted: Callable[[Query], tuple[int, int]],
) -> Contender:
    numbers = itertools.count()

    def run(asked: Query) -> pa.Table:
        return engine.ask(engine.open(lake) if opened is None else opened, asked)

    def work(table: pa.Table) -> Work:
        if role is not Role.PEER:
            handle = engine.open(lake) if opened is None else opened
            bytes_, requests = (0, 0) if opened is None else (handle.io.bytes, handle.io.requests)
            engine.ask(handle, query(COUNTED))
            return Work(len(table), handle.io.bytes - bytes_, handle.io.requests - requests)
        return Work(len(table), *counted(query(COUNTED))) if engine.name == DATASET else Work(len(table))

    return Contender(engine.name, run, role, prepare=lambda: query(next(numbers)), answer=answer, work=work)


def _dataset_counter(lake: Lake, *, warm: bool) -> Callable[[Query], tuple[int, int]]:
    """Bytes and requests of pyarrow.dataset, with its footers at hand or not."""
    known, known_traffic = far_dataset(lake)
    if warm:
        for fragment in known.get_fragments():
            fragment.ensure_complete_metadata()

    def count(query: Query) -> tuple[int, int]:
        if not warm:
            dataset, traffic = far_dataset(lake)
            ask_dataset(dataset, query)
            return traffic.bytes, traffic.requests
        bytes_, requests = known_traffic.bytes, known_traffic.requests
        ask_dataset(known, query)
        return known_traffic.bytes - bytes_, known_traffic.requests - requests

    return count


def _targets(query: Query) -> Sequence[Target]:
    match query.promise:
        case Promise.BEST_PEER:
            return (Target("≤ 1 × the best peer", 1.0, _against_best),)
        case Promise.DATASET:
            return (Target("≤ 1/0.95 × pyarrow.dataset", 1 / 0.95, _against_dataset),)
        case None:
            return ()


def _index_targets(times: float | None) -> Iterator[Target]:
    if times is not None:
        yield Target(f"index ≥ {times:g} × the best peer", times, _index_speedup, least=True)


def _index_speedup(found: CaseResult) -> float:
    return min(found.speedup_of(INDEXED) or 0.0, found.cpu_speedup_of(INDEXED) or 0.0)


def _against_polars(found: CaseResult) -> float:
    ours, polars = found.contenders[OURS].cpu_ms, found.contenders[POLARS].cpu_ms
    assert ours
    assert polars
    return min(found.ms(POLARS) / found.ms(OURS), polars / ours)


def _against_best(found: CaseResult) -> float:
    assert found.best_peer is not None
    return found.ms(OURS) / found.best_peer


def _against_dataset(found: CaseResult) -> float:
    return found.ms(OURS) / found.ms(DATASET)


# -- running -----------------------------------------------------------------------------------


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lake", nargs="+", choices=LAKES, default=LAKES, help="which lakes")
    parser.add_argument("--part", nargs="+", choices=PARTS, default=PARTS, help="which parts")
    parser.add_argument("--only", metavar="TEXT", default="", help="queries with TEXT in their name")
    parser.add_argument("--peers", action="store_true", help="peers only")
    parser.add_argument("--no-index", action="store_true", help="without Skipstone's index")
    parser.add_argument("--data", type=Path, default=DATA, metavar="DIR", help="where lakes are kept")


def main(argv: Sequence[str] | None = None, sizes: Sizes | None = None) -> None:
    """Run every section; ``sizes`` is for tests."""
    about = "Queries over whole lakes, against other engines."
    bench = Bench.of("selective_reads", about, argv, sizes.pace if sizes else None, _options)
    if sizes is None:
        sizes = QUICK if bench.quick else FULL
        bench.pace = sizes.pace or bench.pace
    run(bench, sizes)
    bench.finish()


def run(bench: Bench, sizes: Sizes) -> None:
    """Make the lakes that are asked for and ask them."""
    given = bench.given
    events = Events(sizes.events, sizes.blocks, bench.seed)
    asked: list[tuple[Lake, Variants, Path | None]] = []

    def ask(lake: Lake, make: Callable[[int], Iterable[Query]], **choices: Any) -> None:
        no_index = given.no_index or given.peers
        index = None if no_index else built_index(lake, given.data, bench.console, **choices)
        asked.append((lake, variants_of(make), index))

    for name, files in zip(LAKES, sizes.files, strict=False):
        if name in given.lake:
            lake = events_lake(events, files, given.data, bench.console, name)
            ask(lake, lambda variant: event_queries(events, variant), blooms=list(KEYS))
    if "ingested100" in given.lake:
        found = events_lake(events, sizes.files[0], given.data, bench.console, LAKES[0])
        lake = ingested_lake(found, sizes.files[0], given.data, bench.console)
        ask(lake, lambda variant: look_ups(events, variant), blooms=list(KEYS))
    for name, make in (("bare100", bare_lake), ("duckdb100", duckdb_lake)):
        if name in given.lake:
            lake = make(events, sizes.files[0], given.data, bench.console)
            choices = {"columns": list(VALUES), "blooms": list(BLOOMS)}
            ask(lake, lambda variant: look_ups(events, variant), **choices)
    if "lineitem" in given.lake:
        lineitem = lineitem_lake(sizes.scale, given.data, bench.console)
        ask(lineitem, lambda variant: lineitem_queries(lineitem, variant))
    for lake, variants, index in asked:
        for part in ("warm", "cold"):
            if part in given.part:
                cases = query_cases(
                    lake, variants, given.only, warm=part == "warm", index=index, peers_only=given.peers
                )
                kind = "kept open" if part == "warm" else "opened anew"
                bench.section(f"{lake.name}, {kind}: {len(lake.files):,} files", cases)
    if "latency" in given.part and asked and asked[0][0].name in LAKES[:2]:
        lake, _, index = asked[0]
        cases = latency_cases(
            lake, events, sizes.latency, only=given.only, index=index, peers_only=given.peers
        )
        bench.section(f"{lake.name}, {sizes.latency * 1e3:g} ms a request", cases)


if __name__ == "__main__":
    main()
