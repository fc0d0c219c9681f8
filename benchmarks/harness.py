"""What every benchmark shares: its options, its clock, its table and its JSON.

All contenders of a case run in one process, one after the other and in a new order each round, so that noise
hits them alike. Contenders that answer the same question must give the same answer, or there are no figures.

Words in the names of cases: *point*, *range* (of values), *absent* (a value no row has), *bloom* (a look-up
that needs bloom filters), *full* (nothing or nearly nothing can be dropped); *cold* (the process knows
nothing of the file or column yet; the system's page cache is warm in all cases), *warm* (what was parsed
before is at hand); *clustered* (bounds ascend from unit to unit) and *spread* (they come in no order).
"""

from __future__ import annotations

import argparse
import enum
import gc
import itertools
import json
import os
import platform
import random
import statistics
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

OURS = "skipstone"
_PEERS = ("numpy", "pyarrow", "duckdb", "datafusion", "polars")


class Role(enum.Enum):
    """What a contender is there for."""

    OURS = "ours"
    PEER = "peer"
    REFERENCE = "reference"
    """Shown beside the others but no rival: skipping switched off, or bytes that are only counted."""


@dataclass(frozen=True, slots=True)
class Work:
    """What an answer took and gave; None where that can't be told."""

    rows: int | None = None
    bytes: int | None = None
    requests: int | None = None


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to answer a case's question.

    ``run`` is timed (None: only ``work`` is known); ``prepare`` runs before each repetition, untimed, and
    its result is handed to ``run``. ``answer`` turns a result into what must agree with the others (None:
    another question) and ``work`` into what it cost; neither is timed.
    """

    name: str
    run: Callable[[Any], Any] | None
    role: Role = Role.PEER
    prepare: Callable[[], Any] = lambda: None
    answer: Callable[[Any], Any] | None = None
    work: Callable[[Any], Work] = lambda _result: Work()


@dataclass(frozen=True, slots=True)
class Target:
    """A promise about a case: ``measure`` must not exceed ``limit``, or not be below it (``least``)."""

    text: str
    limit: float
    measure: Callable[[CaseResult], float]
    least: bool = False

    def met(self, found: float) -> bool:
        """Whether what was measured keeps the promise."""
        return found >= self.limit if self.least else found <= self.limit


@dataclass(frozen=True, slots=True)
class Case:
    """One question, its contenders, and what is promised."""

    name: str
    contenders: Sequence[Contender]
    targets: Sequence[Target] = ()
    figure: Callable[[float], str] | None = None
    """A figure drawn from each contender's median ms, such as nanoseconds per unit."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One contender's figures."""

    role: Role
    ms: float | None
    least_ms: float | None
    work: Work


@dataclass(frozen=True, slots=True)
class CaseResult:
    """One case's figures."""

    case: Case
    contenders: dict[str, Measured]

    @property
    def ours(self) -> float | None:
        """Our median."""
        return next((m.ms for m in self.contenders.values() if m.role is Role.OURS), None)

    @property
    def best_peer(self) -> float | None:
        """The quickest peer's median."""
        peers = (m.ms for m in self.contenders.values() if m.role is Role.PEER)
        return min((ms for ms in peers if ms is not None), default=None)

    @property
    def speedup(self) -> float | None:
        """How many times quicker than the best peer: below one is a loss."""
        return self.best_peer / self.ours if self.best_peer and self.ours else None

    def speedup_of(self, name: str) -> float | None:
        """The same for one contender; None if it was not timed, or no peer was."""
        found = self.contenders.get(name)
        return self.best_peer / found.ms if self.best_peer and found is not None and found.ms else None

    def ms(self, name: str) -> float:
        """The median of a contender that was timed."""
        found = self.contenders[name].ms
        assert found is not None
        return found


class Disagreement(AssertionError):
    """Two contenders answered the same question differently."""


# -- measuring ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pace:
    """How long to repeat a case: until ``seconds`` are spent, within the two limits."""

    seconds: float
    least: int
    most: int


FULL = Pace(seconds=4.0, least=5, most=300)
QUICK = Pace(seconds=0.4, least=3, most=50)


def measure(case: Case, pace: Pace, seed: int) -> CaseResult:
    """Time a case's contenders in turn, after one round that checks their answers."""
    works = _first_round(case)
    timed = [c for c in case.contenders if c.run is not None]
    times: dict[str, list[float]] = {c.name: [] for c in timed}
    order = random.Random(seed)
    gc.collect()
    began = time.perf_counter()
    for done in range(pace.most):
        if done >= pace.least and time.perf_counter() - began > pace.seconds:
            break
        order.shuffle(timed)
        for contender in timed:
            times[contender.name].append(_once(contender))
    return CaseResult(case, {c.name: _measured(c, times.get(c.name), works[c.name]) for c in case.contenders})


def _first_round(case: Case) -> dict[str, Work]:
    works: dict[str, Work] = {}
    first: tuple[str, Any] | None = None
    for contender in case.contenders:
        result = None if contender.run is None else contender.run(contender.prepare())
        works[contender.name] = contender.work(result)
        if contender.answer is None:
            continue
        answer = contender.answer(result)
        del result  # it may be large, and the next contender's too
        if first is None:
            first = (contender.name, answer)
        elif not _same(first[1], answer):
            raise Disagreement(
                f"{case.name}: {first[0]} and {contender.name} disagree: {_brief(first[1])}, {_brief(answer)}"
            )
    return works


def _once(contender: Contender) -> float:
    assert contender.run is not None
    given = contender.prepare()
    start = time.perf_counter_ns()
    result = contender.run(given)
    stop = time.perf_counter_ns()
    del result
    return (stop - start) / 1e6


def _measured(contender: Contender, times: list[float] | None, work: Work) -> Measured:
    if not times:
        return Measured(contender.role, None, None, work)
    return Measured(contender.role, statistics.median(times), min(times), work)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return bool(np.array_equal(a, b))
    return bool(a == b)


def _brief(answer: Any) -> str:
    shown = str(answer)
    return shown if len(shown) < 80 else f"{shown[:80]}…"


# -- drawing -----------------------------------------------------------------------------------


_NAME_WIDTH = 30


def draw(console: Console, title: str, results: Sequence[CaseResult], figure: str | None = None) -> None:
    """One table: a block of lines per case, the quickest of each in bold, losses named."""
    works = [found.work for result in results for found in result.contenders.values()]
    counted = [
        name for name in ("rows", "bytes", "requests") if any(getattr(w, name) is not None for w in works)
    ]
    table = Table(title=title, title_justify="left", title_style="bold", header_style="dim", box=SIMPLE_HEAD)
    table.add_column("case", min_width=_NAME_WIDTH)
    table.add_column("contender", no_wrap=True)
    for name in ("ms", "least", *([figure] if figure else []), *counted):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("against best peer", no_wrap=True)
    for result in results:
        lines = _lines(result, counted, with_figure=figure is not None)
        for name, line in itertools.zip_longest(textwrap.wrap(result.case.name, _NAME_WIDTH), lines):
            table.add_row(name or "", *(line or []))
        table.add_section()
    console.print(table)


def _lines(result: CaseResult, counted: Sequence[str], *, with_figure: bool) -> Iterator[list[str | Text]]:
    quickest = min((m.ms for m in result.contenders.values() if m.ms is not None), default=None)
    for name, found in result.contenders.items():
        ms = Text(_ms(found.ms), style="bold" if found.ms is not None and found.ms == quickest else "")
        figure = result.case.figure
        more = [figure(found.ms) if figure and found.ms is not None else "–"] if with_figure else []
        work = [_count(getattr(found.work, counter)) for counter in counted]
        label = Text(name, style={Role.OURS: "cyan", Role.PEER: "", Role.REFERENCE: "dim"}[found.role])
        yield [label, ms, _ms(found.least_ms), *more, *work, _against(result, found)]


def _against(result: CaseResult, found: Measured) -> Text:
    if found.ms is None or result.best_peer is None:
        return Text("–", style="dim")
    ratio = result.best_peer / found.ms
    text = f"{_ratio(ratio)} ×"
    if found.role is not Role.OURS:
        return Text(text, style="dim")
    return Text(text, style="green") if ratio >= 1 else Text(f"{text} loss", style="bold red")


def _ratio(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:,.0f}"


def _ms(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.3f}" if value < 10 else f"{value:,.1f}"


def _count(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def draw_promises(console: Console, results: Sequence[CaseResult], *, quick: bool) -> None:
    """Targets met and not met, and how many cases were lost."""
    promised = [(result, target) for result in results for target in result.case.targets]
    if promised:
        title = "Targets (quick: small sizes, a hint only)" if quick else "Targets"
        table = Table(
            title=title, title_justify="left", title_style="bold", header_style="dim", box=SIMPLE_HEAD
        )
        table.add_column("case", overflow="fold")
        for name in ("target", "found"):
            table.add_column(name, justify="right")
        table.add_column("")
        for result, target in promised:
            found = target.measure(result)
            met = target.met(found)
            word = Text("met", style="green") if met else Text("NOT met", style="bold red")
            table.add_row(result.case.name, target.text, f"{found:,.2f}", word)
        console.print(table)
    ours = dict.fromkeys(
        name for result in results for name, found in result.contenders.items() if found.role is Role.OURS
    )
    for name in ours:
        _draw_losses(console, f"{name}: " if len(ours) > 1 else "", results, name)


def _draw_losses(console: Console, prefix: str, results: Sequence[CaseResult], name: str) -> None:
    ratios = [(result, result.speedup_of(name)) for result in results]
    raced = [(result, ratio) for result, ratio in ratios if ratio is not None]
    lost = [(result, ratio) for result, ratio in raced if ratio < 1]
    if not raced:
        return
    console.print(
        f"{prefix}{len(raced) - len(lost)} of {len(raced)} cases won against the best peer, {len(lost)} lost."
    )
    for result, ratio in lost:
        console.print(f"  lost: {result.case.name}, {_ratio(ratio)} × the best peer", style="red")


# -- running -----------------------------------------------------------------------------------


def as_json(name: str, results: Iterable[CaseResult]) -> dict[str, Any]:
    """The figures as other programs read them; ``ms`` is the median."""
    return {
        "benchmark": name,
        "cases": [
            {
                "case": result.case.name,
                "contenders": {
                    contender: {
                        "ms": found.ms,
                        "rows": found.work.rows,
                        "bytes": found.work.bytes,
                        "requests": found.work.requests,
                    }
                    for contender, found in result.contenders.items()
                },
                "speedup_vs_best_peer": result.speedup,
            }
            for result in results
        ],
    }


@dataclass(slots=True)
class Bench:
    """One run of one benchmark: hand it sections of cases, then finish."""

    name: str
    quick: bool
    seed: int
    json: Path | None
    pace: Pace
    given: argparse.Namespace = field(default_factory=argparse.Namespace)
    """Options of the benchmark's own."""
    console: Console = field(default_factory=lambda: Console(width=None if sys.stdout.isatty() else 132))
    results: list[CaseResult] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        name: str,
        about: str,
        argv: Sequence[str] | None,
        pace: Pace | None = None,
        options: Callable[[argparse.ArgumentParser], None] = lambda _parser: None,
    ) -> Bench:
        """Read the command line, to which ``options`` may add."""
        parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=about)
        parser.add_argument("--quick", action="store_true", help="small sizes, few repetitions")
        parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE")
        parser.add_argument("--seed", type=int, default=20_260_101, help="of data and order (%(default)s)")
        options(parser)
        given = parser.parse_args(argv)
        pace = pace or (QUICK if given.quick else FULL)
        bench = cls(name, given.quick, given.seed, given.json, pace, given)
        bench.console.print(_machine(), style="dim")
        return bench

    def section(self, title: str, cases: Iterable[Case], figure: str | None = None) -> list[CaseResult]:
        """Measure the cases one by one (a generator may free what the last one used) and draw them."""
        found = []
        for case in cases:
            with self.console.status(case.name):
                found.append(measure(case, self.pace, self.seed))
        if found:
            draw(self.console, title, found, figure)
        self.results += found
        return found

    def finish(self) -> None:
        """Draw what was promised and write the JSON."""
        draw_promises(self.console, self.results, quick=self.quick)
        if self.json is not None:
            self.json.write_text(json.dumps(as_json(self.name, self.results), indent=2) + "\n")


def _machine() -> str:
    peers = ", ".join(f"{name} {version(name)}" for name in _PEERS)
    load = os.getloadavg()[0]
    return (
        f"Python {platform.python_version()}, {peers}; {os.cpu_count()} cores, load {load:.1f} at the start"
    )
