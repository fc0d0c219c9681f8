"""``python -m benchmarks.compaction``: what it takes to compact an Iceberg table, and what that is good for.

*Planning* (``--part``): ``table.plan_compaction`` beside a walk over pyiceberg's manifest entries that makes
the same selection: the partition filter, sizes, delete files, groups by partition, bin-packing. Tables are
metadata only, as in ``iceberg_planning``, whose words apply: *skipstone* is cold, *skipstone, index* has its
manifests in an index, *skipstone, open* was asked before. Groups and their files must be the same.

*Rewrite*: a thousand small files become a few of the target size, by ``table.compact`` on local threads and
in a Spark session, by Spark reading and writing the same rows, and by DuckDB's ``COPY``; everyone has as many
threads, zstd at the same level and files of about the same size. Peers know no curves: for Z-order and
Hilbert they sort by the same columns. What is written must hold the same rows. Sizes of new files follow.

*Queries*: look-ups and ranges on the table before and after each strategy; the *peer* is the table before.

*Memory*: each strategy in a process of its own, with a memory option that the group exceeds several times.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

import skipstone as sk
from benchmarks.compactors import STRATEGIES, Copies, planning_cases, rewrite_case
from benchmarks.harness import OURS, Bench, Case, CaseResult, Contender, Measured, Pace, Role, Work
from benchmarks.iceberg_planning import Tabled
from benchmarks.lakes import DATA, USER_STEP, Events
from benchmarks.memory import forget_peak, peak, resident
from benchmarks.peers import THREADS
from benchmarks.small_files import NAME, data_files, digest, small_files
from benchmarks.spark_session import spark_session
from benchmarks.tables import evolved, made_table

PARTS = ("planning", "rewrite", "queries", "memory")
MB = 1_000_000
ROOT = Path(__file__).resolve().parents[1]
DEFAULT = "default memory"
_CHILD = "--measure"
_WIDTH = 150
# Peers do the same for both curves.
_GROUPS = (("binpack",), ("sort",), ("zorder", "hilbert"))
_LEAST_SHARE, _MOST_SHARE = 0.75, 1.8


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is planned and rewritten."""

    planned: tuple[int, ...] = (5_000,)
    manifests: tuple[int, ...] = (50, 500)
    rows: int = 1_000_000
    files: int = 1_000
    target: int = 16 << 20
    memory: int = 16 << 20
    extra: int = 400
    """The most MB beyond the memory option."""
    pace: Pace = field(default_factory=lambda: Pace(seconds=0.0, least=1, most=1))
    planning_pace: Pace = field(default_factory=lambda: Pace(seconds=0.0, least=3, most=3))
    query_pace: Pace = field(default_factory=lambda: Pace(seconds=1.0, least=3, most=40))


QUICK = Sizes(manifests=(50,), rows=200_000, target=2 << 20, memory=4 << 20)


# -- queries -----------------------------------------------------------------------------------


def _queries(events: Events) -> Mapping[str, Callable[[np.random.Generator], str]]:
    """Questions about the columns that strategies cluster by, for other rows each time."""

    def user(rng: np.random.Generator) -> str:
        return f"user_id = {events.row(int(rng.integers(events.rows)))['user_id']}"

    def times(share: float, rng: np.random.Generator) -> str:
        count = max(int(events.rows * share), 1)
        first = int(rng.integers(max(events.rows - count, 1)))
        start, stop = (events.row(at)["ts"] for at in (first, min(first + count, events.rows - 1)))
        return f"ts >= '{start.isoformat()}' and ts < '{stop.isoformat()}'"

    def users(share: float, rng: np.random.Generator) -> str:
        whole = events.users * USER_STEP
        first = int(rng.integers(int(whole * (1 - share))))
        return f"user_id >= {first} and user_id < {first + int(whole * share)}"

    return {
        "point, user_id": user,
        "range, user_id, 0.1 %": lambda rng: users(0.001, rng),
        "range, ts, 0.1 %": lambda rng: times(0.001, rng),
        "range, user_id 3 % and ts 3 %": lambda rng: f"{users(0.03, rng)} and {times(0.03, rng)}",
    }


def query_cases(events: Events, tables: Mapping[str, Any], seed: int) -> Iterator[Case]:
    """Each question on all tables; the first one is the table before."""
    for name, make in _queries(events).items():
        asked = [_asker(*one, make, (seed, len(name))) for one in tables.items()]
        before, *after = asked
        yield Case(f"warm {name}", [before, *(dataclasses.replace(one, role=Role.OURS) for one in after)])


def _asker(name: str, table: Any, make: Callable[[np.random.Generator], str], seed: Any) -> Contender:
    rng = np.random.default_rng(seed)

    def run(where: str) -> Any:
        found = table.scan(where, threads=THREADS).execute()
        return found, found.to_arrow()

    def answer(pair: Any) -> Any:
        return sorted(pair[1]["event_id"].to_pylist())

    def work(pair: Any) -> Work:
        found, rows = pair
        levels = {level.name: level.kept for level in found.trace.levels}
        return Work(len(rows), found.trace.run.bytes, found.trace.run.requests, levels.get("pages"))

    return Contender(name, run, prepare=lambda: make(rng), answer=answer, work=work)


# -- memory ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Peak:
    """What the process of one rewrite took."""

    extra: int
    """Resident memory beyond what it had before."""
    seconds: float
    sizes: tuple[int, ...]


def measure(folder: str, strategy: str, memory: int) -> Peak:
    """Compact a table in this process, which should be a fresh one; 0 is the default memory."""
    table = sk.catalog(Path(folder) / "catalog").open(NAME)
    plan = table.plan_compaction(strategy=strategy, sort_by=STRATEGIES[strategy])
    baseline = resident("VmRSS")
    forget_peak()
    report = table.compact(plan, engine="local", threads=THREADS, memory=memory or None)
    return Peak(peak() - baseline, report.seconds.rewrite, report.sizes)


def in_process(copies: Copies, strategy: str, memory: int) -> Peak:
    """The same in a process of its own."""
    folder = copies.folder()
    table = copies.made.copy(folder, copies.target)
    command = [sys.executable, "-m", "benchmarks.compaction", _CHILD, str(folder), strategy, str(memory)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    found = Peak(**json.loads(done.stdout))
    table.refresh()
    assert digest(data_files(table)) == copies.made.digest, f"{strategy}: rows differ"
    shutil.rmtree(folder)
    return found


def run_memory(bench: Bench, copies: Copies, strategies: Sequence[str], memory: int, limit: int) -> None:
    """Strategies with the memory option, and one without."""
    events = copies.made.events
    decoded = events.block(0).nbytes * events.blocks
    found: dict[str, dict[str, Peak]] = {}
    for strategy in strategies:
        with bench.console.status(f"memory, {strategy}"):
            found[strategy] = {OURS: in_process(copies, strategy, memory)}
            if strategy == "sort":
                found[strategy][DEFAULT] = in_process(copies, strategy, 0)
    most = memory + limit * MB
    title = (
        f"Peak resident memory of the rewrite of one group of {decoded / MB:,.0f} MB decoded, "
        f"memory={memory / MB:,.0f} MB (target: below {most / MB:,.0f} MB)"
    )
    table = _table(title, "strategy", "contender", "extra MB", "seconds", "files", "")
    for strategy, peaks in found.items():
        for name, one in peaks.items():
            met = Text("met", style="green") if one.extra < most else Text("NOT met", style="bold red")
            label = strategy if name == OURS else ""
            figures = (f"{one.extra / MB:,.0f}", f"{one.seconds:,.1f}", str(len(one.sizes)))
            table.add_row(label, name, *figures, met if name == OURS else "")
        table.add_section()
    bench.console.print(table)
    for strategy, peaks in found.items():
        contenders = {
            name: Measured(Role.OURS, one.seconds * 1e3, one.seconds * 1e3, Work(bytes=one.extra))
            for name, one in peaks.items()
        }
        bench.results.append(CaseResult(Case(f"full, peak memory, {strategy}", ()), contenders))


# -- running -----------------------------------------------------------------------------------


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", header_style="dim", box=SIMPLE_HEAD)
    for name in columns[:2]:
        table.add_column(name, no_wrap=True)
    for name in columns[2:]:
        table.add_column(name, justify="right")
    return table


def draw_sizes(bench: Bench, copies: Copies) -> None:
    """Sizes of the new files against the target."""
    target = copies.target
    title = f"New files against the target of {target / MB:,.1f} MB"
    table = _table(title, "strategy, engine", "files", "least", "mean", "most", "within 75–180 %")
    for name, report in copies.reports.items():
        shares = np.array(report.sizes) / target
        fit = int(((shares >= _LEAST_SHARE) & (shares <= _MOST_SHARE)).sum())
        figures = (f"{share:.2f} ×" for share in (shares.min(), shares.mean(), shares.max()))
        table.add_row(name, str(len(shares)), *figures, f"{fit} of {len(shares)}")
    bench.console.print(table)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--part", nargs="+", choices=PARTS, default=PARTS, help="which parts")
    parser.add_argument("--only", metavar="TEXT", default="", help="strategies with TEXT in their name")
    parser.add_argument("--entries", type=int, metavar="N", help="files of the tables that are planned")
    parser.add_argument("--rows", type=int, metavar="N", help="rows of the small files")
    parser.add_argument("--times", type=int, metavar="N", help="timed repetitions of each rewrite")
    parser.add_argument("--data", type=Path, default=DATA, metavar="DIR", help="where tables are kept")


def main(argv: Sequence[str] | None = None, sizes: Sizes | None = None) -> None:
    """Run every part; ``sizes`` is for tests."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments[:1] == [_CHILD]:
        print(json.dumps(asdict(measure(arguments[1], arguments[2], int(arguments[3])))))
        return
    about = "Compaction of an Iceberg table of small files, against other ways to do it."
    bench = Bench.of("compaction", about, argv, options=_options)
    bench.console.width = max(bench.console.width, _WIDTH)
    given = bench.given
    sizes = sizes or (QUICK if bench.quick else Sizes())
    if given.entries:
        sizes = dataclasses.replace(sizes, planned=(given.entries,))
    if given.rows:
        sizes = dataclasses.replace(sizes, rows=given.rows)
    if given.times:
        sizes = dataclasses.replace(sizes, pace=Pace(0.0, given.times, given.times))
    if "planning" in given.part:
        plan(bench, sizes)
    if set(PARTS[1:]) & set(given.part):
        rewrite(bench, sizes)
    bench.finish()


def plan(bench: Bench, sizes: Sizes) -> None:
    """Plans on metadata alone."""
    bench.pace = sizes.planning_pace
    for files, manifests, deletes in itertools.product(sizes.planned, sizes.manifests, (False, True)):
        made = made_table(evolved(files, manifests), bench.seed, bench.given.data, bench.console)
        what = f"{made.shape.deletes} delete files" if deletes else "no deletes"
        title = f"{files:,} files in {manifests} manifests, {what} (rows: files to rewrite)"
        bench.section(title, planning_cases(Tabled(made, deletes, bench.given.data), bench.seed))


def rewrite(bench: Bench, sizes: Sizes) -> None:
    """Rewrites of the small files, and what they are good for."""
    given = bench.given
    events = Events(sizes.rows, sizes.files, bench.seed)
    made = small_files(events, given.data, bench.console)
    copies = Copies(made, given.data / "compaction", sizes.target)
    shutil.rmtree(copies.scratch, ignore_errors=True)
    chosen = [strategy for strategy in STRATEGIES if given.only in strategy]
    if "rewrite" in given.part:
        bench.pace = sizes.pace
        with spark_session(given.data) as session:
            groups = [[one for one in group if one in chosen] for group in _GROUPS]
            cases = (rewrite_case(copies, group, session) for group in groups if group)
            what = f"{len(made.files):,} files of {made.bytes / MB:,.0f} MB, {events.rows:,} rows"
            bench.section(f"{what}; files of {sizes.target / MB:,.1f} MB", cases, "MB/s read")
        draw_sizes(bench, copies)
    if "queries" in given.part:
        bench.pace = sizes.query_pace
        tables = {"before": copies.new()}
        for strategy in chosen:
            name = f"{strategy}, local"
            tables[strategy] = copies.latest.get(name) or copies.compact(strategy, copies.new(), "local")
        cases = query_cases(events, tables, bench.seed)
        bench.section(f"{events.rows:,} rows before and after; the peer is the table before", cases)
    if "memory" in given.part:
        run_memory(bench, copies, chosen, sizes.memory, sizes.extra)
    shutil.rmtree(copies.scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
