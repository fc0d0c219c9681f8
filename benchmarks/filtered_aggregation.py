"""``python -m benchmarks.filtered_aggregation``: six aggregates over 20 million sales, or over some of them.

Which ones is told by a set of ids (one run of them, or spread over all pages), by a range of values, or both.
Everyone answers the same: count, sum, average, least and greatest of a double, sum of an integer; sums of
doubles may differ by 1e-9 of their size. Files are in the page cache, ids in memory, and everyone keeps what
it opened; each repetition asks for another set or range of the same kind. :mod:`benchmarks.aggregators` says
how each engine is asked.

Skipstone has an index with sums of the two columns, built once under ``.bench/``; its time and size are
printed. *nothing cached* is the same question with ``use_cached=False``; *unfiltered read* aggregates all
rows that way, and no question may take more than 1.3 times as long. Each number of threads (``--threads``)
has a process of its own, bound to as many cores, in which every engine is told to use no more. *cpu* is
processor time of all threads of the process.

``--load`` instead aggregates 10⁸ rows in processes of their own and prints the memory they take.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from benchmarks.aggregators import (
    AGGREGATORS,
    NAMES,
    Aggregator,
    Answer,
    aggregate,
    bitmap_of,
)
from benchmarks.harness import OURS, Bench, Case, CaseResult, Contender, Pace, Role, Target, Work
from benchmarks.lakes import DATA, QUICK_SHARE, Lake
from benchmarks.peers import built_index, open_indexed
from benchmarks.sales import FILES, ROWS, Sales, sales_lake
from benchmarks.sales_questions import SHAPES, Question, Shape

THREADS = (1, 2)
VARIANTS = 3
PACE = Pace(seconds=6.0, least=3, most=15)
CLOSE = 1e-9
NOTHING_CACHED, UNFILTERED = "nothing cached", "unfiltered read"
SLOWEST = 1.3
INDEX = {
    "columns": ["id", "customer", "ts", "amount", "quantity"],
    "sums": ["amount", "quantity"],
    "ids": ["id"],
}
_LIMITS = ("POLARS_MAX_THREADS", "TOKIO_WORKER_THREADS", "RAYON_NUM_THREADS", "OMP_NUM_THREADS")


# -- contenders --------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, slots=True)
class Close:
    """An answer that equals another if its whole numbers are the same and its doubles are near."""

    values: Answer

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Close) and all(map(_near, self.values, other.values))

    __hash__ = None  # type: ignore[assignment]


def _near(a: Any, b: Any) -> bool:
    return a == b or (isinstance(a, float) and isinstance(b, float) and math.isclose(a, b, rel_tol=CLOSE))


@dataclass(frozen=True, slots=True)
class Told:
    """An answer, and the processor time it took in ms."""

    values: Answer
    cpu: float


def _timed(ask: Callable[[], Answer]) -> Told:
    began = time.process_time_ns()
    values = ask()
    return Told(values, (time.process_time_ns() - began) / 1e6)


def _cpu(told: Told) -> dict[str, float]:
    return {"cpu": told.cpu}


@dataclass(frozen=True, slots=True)
class Asking:
    """What is opened for a number of threads, and what was found out of each case."""

    sales: Sales
    threads: int
    ours: Any
    peers: Sequence[tuple[Aggregator, Any]]
    traces: dict[str, Any]

    @classmethod
    def of(cls, sales: Sales, lake: Lake, index: Path, threads: int) -> Asking:
        """Open the lake everywhere."""
        peers = [(engine, engine.open(lake, threads)) for engine in AGGREGATORS]
        return cls(sales, threads, open_indexed(lake, index), peers, {})

    def cases(self, shapes: Sequence[Shape], seed: int) -> Iterator[Case]:
        """A case for each kind of question; its sets of ids are freed with it."""
        for shape in shapes:
            number = SHAPES.index(shape)

            @cache
            def questions(variant: int, shape: Shape = shape, number: int = number) -> Question:
                return shape.make(self.sales, np.random.default_rng((seed, number, variant)))

            yield self._case(shape, questions)
            questions.cache_clear()

    def _case(self, shape: Shape, questions: Callable[[int], Question]) -> Case:
        name = f"{shape.name}, {self.threads} {'thread' if self.threads == 1 else 'threads'}"
        filtered = questions(0).ids is not None or questions(0).span is not None
        contenders = [self._ours(name, questions), self._ours(NOTHING_CACHED, questions, cached=False)]
        if filtered:
            contenders.append(self._ours(UNFILTERED, lambda _variant: Question(), cached=False))
        contenders += [self._peer(engine, handle, questions) for engine, handle in self.peers]
        return Case(name, contenders, [*_targets(shape, filtered=filtered)])

    def _ours(self, name: str, questions: Callable[[int], Question], *, cached: bool = True) -> Contender:
        """The one that may use what is cached goes by the name of the case in ``traces``."""
        numbers = itertools.count()

        def prepare(variant: int | None = None) -> tuple[Question, Any]:
            question = questions(next(numbers) % VARIANTS if variant is None else variant)
            return question, None if question.ids is None else bitmap_of(question.ids)

        def ask(given: tuple[Question, Any]) -> tuple[Answer, Any]:
            answer = aggregate(self.ours, *given, self.threads, cached=cached)
            return tuple(answer[name] for name in NAMES), answer

        def work(told: Told) -> Work:
            before = self.ours.io.bytes, self.ours.io.requests
            _, answer = ask(prepare(VARIANTS))
            if cached:
                self.traces[name] = answer.trace
            io = self.ours.io
            return Work(told.values[0], io.bytes - before[0], io.requests - before[1])

        return Contender(
            OURS if cached else name,
            lambda given: _timed(lambda: ask(given)[0]),
            Role.OURS if cached else Role.REFERENCE,
            prepare,
            None if name == UNFILTERED else lambda told: Close(told.values),
            work,
            _cpu,
        )

    def _peer(self, engine: Aggregator, handle: Any, questions: Callable[[int], Question]) -> Contender:
        numbers = itertools.count()

        def prepare() -> tuple[Question, Any]:
            question = questions(next(numbers) % VARIANTS)
            return question, engine.take(handle, question)

        return Contender(
            engine.name,
            lambda given: _timed(lambda: engine.ask(handle, *given)),
            prepare=prepare,
            answer=lambda told: Close(told.values),
            work=lambda told: Work(told.values[0]),
            parts=_cpu,
        )


def _targets(shape: Shape, *, filtered: bool) -> Iterator[Target]:
    if shape.times is not None:
        text = f"≥ {shape.times:g} × the best peer"
        yield Target(text, shape.times, lambda found: found.speedup or 0.0, least=True)
    if filtered:
        yield Target(f"≤ {SLOWEST:g} × {UNFILTERED}", SLOWEST, _of_unfiltered)


def _of_unfiltered(found: CaseResult) -> float:
    return found.ms(OURS) / found.ms(UNFILTERED if UNFILTERED in found.contenders else NOTHING_CACHED)


# -- drawing -----------------------------------------------------------------------------------


def _draw_work(bench: Bench, results: Sequence[CaseResult], traces: dict[str, Any]) -> None:
    """Where our answers came from; units are those of the sums of amounts."""
    table = Table(
        title="What was answered from the index, and what was read",
        title_justify="left",
        title_style="bold",
        header_style="dim",
        box=SIMPLE_HEAD,
    )
    table.add_column("case")
    for name in ("ms", "best peer", "ratio", "of a read", "MB", "requests", "rows read"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("units answered")
    for result in results:
        ours = result.contenders[OURS]
        trace = traces[result.case.name]
        peer = min(
            (found.ms, name)
            for name, found in result.contenders.items()
            if found.role is Role.PEER and found.ms is not None
        )
        amount = next(use for use in trace.columns if use.column == "amount")
        answered = ", ".join(_units(level) for level in amount.answered if level.units)
        assert ours.work.bytes is not None
        table.add_row(
            result.case.name,
            f"{ours.ms:,.1f}",
            f"{peer[1]} {peer[0]:,.1f}",
            f"{result.speedup:,.2f} ×",
            f"{_of_unfiltered(result):.2f} ×",
            f"{ours.work.bytes / 1e6:,.1f}",
            f"{ours.work.requests:,}",
            f"{amount.read:,}",
            answered or "none",
        )
    bench.console.print(table)


def _units(level: Any) -> str:
    return f"{level.units:,} {level.level.removesuffix('s') if level.units == 1 else level.level}"


def _draw_targets(bench: Bench, results: Sequence[CaseResult]) -> None:
    """One line for each promise, with the case that comes nearest to breaking it, or breaks it most."""
    texts = dict.fromkeys(target.text for result in results for target in result.case.targets)
    for text in texts:
        held = [
            (target.measure(result), target, result)
            for result in results
            for target in result.case.targets
            if target.text == text
        ]
        worst, target, result = (min if held[0][1].least else max)(held, key=lambda one: one[0])
        met = Text("met", style="green") if target.met(worst) else Text("NOT met", style="bold red")
        line = Text(f"{text}: ").append(met).append(f"; at worst {worst:,.2f} × ({result.case.name})")
        bench.console.print(line)


# -- running -----------------------------------------------------------------------------------


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=_number, metavar="N", help=f"size of the lake ({ROWS:,})")
    parser.add_argument(
        "--threads", type=int, nargs="+", default=THREADS, metavar="N", help="one run for each"
    )
    parser.add_argument("--only", metavar="TEXT", default="", help="questions with TEXT in their name")
    parser.add_argument("--load", action="store_true", help="time and memory of 10⁸ rows instead")
    parser.add_argument("--data", type=Path, default=DATA, metavar="DIR", help="where lakes are kept")
    parser.add_argument("--here", action="store_true", help="in this process, whatever its limits")


def _number(text: str) -> int:
    return int(float(text.replace("_", "")))


def main(argv: Sequence[str] | None = None, pace: Pace | None = None) -> None:
    """Run each number of threads in a process of its own, or here; ``pace`` is for tests."""
    argv = sys.argv[1:] if argv is None else argv
    about = "Aggregates over sets of ids and ranges, against other engines."
    bench = Bench.of("filtered_aggregation", about, argv, pace, _options)
    given = bench.given
    if given.load:
        from benchmarks.aggregation_load import run_load

        run_load(bench)
        return
    if pace is None and not bench.quick:
        bench.pace = PACE
    sales = Sales(given.rows or (ROWS // QUICK_SHARE if bench.quick else ROWS), FILES, bench.seed)
    lake = sales_lake(sales, given.data, bench.console)
    index = built_index(lake, given.data, bench.console, **INDEX)
    if given.here:
        for threads in given.threads:
            run(bench, Asking.of(sales, lake, index, threads))
        bench.finish()
        return
    found = [_in_process(argv, threads) for threads in given.threads]
    if given.json is not None:
        cases = [case for part in found for case in part["cases"]]
        given.json.write_text(json.dumps({**found[0], "cases": cases}, indent=2) + "\n")


def run(bench: Bench, asking: Asking) -> None:
    """Every question that is asked for, with one number of threads."""
    shapes = [shape for shape in SHAPES if bench.given.only in shape.name]
    title = f"{asking.sales.rows:,} rows in {asking.sales.files} files"
    results = bench.section(title, asking.cases(shapes, bench.seed))
    _draw_work(bench, results, asking.traces)
    _draw_targets(bench, results)


def _in_process(argv: Sequence[str], threads: int) -> Any:
    """One number of threads in a process that has no more cores, and its figures."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "found.json"
        # Of options that are given twice the last one counts.
        more = ["--here", "--threads", str(threads), "--json", str(file)]
        subprocess.run(
            [sys.executable, "-m", "benchmarks.filtered_aggregation", *argv, *more],
            check=True,
            cwd=Path(__file__).resolve().parents[1],
            env={**os.environ, **dict.fromkeys(_LIMITS, str(threads))},
            preexec_fn=lambda: _bind(threads),
        )
        return json.loads(file.read_text())


def _bind(threads: int) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


if __name__ == "__main__":
    main()
