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
import json
import os
import platform
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from rich.console import Console

from benchmarks.drawing import as_json, draw, draw_promises
from benchmarks.measuring import (
    FULL,
    OURS,
    QUICK,
    Case,
    CaseResult,
    Contender,
    Disagreement,
    Measured,
    Pace,
    Role,
    Target,
    Work,
    measure,
)

__all__ = [
    "FULL",
    "OURS",
    "QUICK",
    "Bench",
    "Case",
    "CaseResult",
    "Contender",
    "Disagreement",
    "Measured",
    "Pace",
    "Role",
    "Target",
    "Work",
    "as_json",
    "draw",
    "draw_promises",
    "measure",
]

_PEERS = ("numpy", "pyarrow", "duckdb", "datafusion", "polars")


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
