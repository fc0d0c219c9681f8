"""``python -m benchmarks.filtered_aggregation --load``: time and memory of aggregates over 10⁸ rows.

Each run has a process of its own, which opens the lake, makes the set of ids, notes its resident memory, and
then asks once; the figure is the highest resident memory since then. With the index and without what it has
cached, answers must be equal to the last bit: sums of doubles are exact.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pyroaring import BitMap
from rich.box import SIMPLE_HEAD
from rich.table import Table

from benchmarks.aggregators import NAMES, aggregate
from benchmarks.harness import Bench, Disagreement
from benchmarks.lakes import QUICK_SHARE, Lake
from benchmarks.memory import forget_peak, peak, resident
from benchmarks.peers import built_index, open_indexed
from benchmarks.sales import Sales, sales_lake
from benchmarks.sales_questions import Question

ROWS = 100_000_000
FILE_ROWS = 1_000_000
SHARE = 0.1
MB = 1_000_000


@dataclass(frozen=True, slots=True)
class Loaded:
    """What one process saw."""

    values: list[Any]
    seconds: float
    cpu: float
    before: int
    extra: int
    """Bytes that were needed beyond those that the process had before."""


# -- the process that is measured --------------------------------------------------------------


def load(folder: str, index: str, sales: Sales, *, spread: bool, cached: bool) -> Loaded:
    """Aggregate once in this process, which should be a fresh one."""
    lake = open_indexed(Lake("load", Path(folder)), Path(index))
    ids = spread_ids(sales) if spread else None
    before = resident("VmRSS")
    forget_peak()
    began, cpu = time.perf_counter(), time.process_time()
    answer = aggregate(lake, Question(), ids, os.cpu_count() or 1, cached=cached)
    values = [answer[name] for name in NAMES]
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    return Loaded(values, seconds, cpu, before, peak() - before)


def spread_ids(sales: Sales) -> BitMap:
    """Some of all ids, drawn file by file so that no list of them is ever held."""
    found = BitMap()
    for number in range(sales.files):
        rng = np.random.default_rng((sales.seed, sales.files, number))
        drawn = np.flatnonzero(rng.random(sales.file_rows) < SHARE) + number * sales.file_rows
        found |= BitMap(drawn.astype(np.uint32))
    return found


# -- running -----------------------------------------------------------------------------------


def run_load(bench: Bench) -> None:
    """Make the lake and its index, ask in four processes, and draw what they saw."""
    from benchmarks.filtered_aggregation import INDEX, NOTHING_CACHED

    given = bench.given
    rows = given.rows or (ROWS // QUICK_SHARE if bench.quick else ROWS)
    sales = Sales(rows, max(rows // FILE_ROWS, 1), bench.seed)
    lake = sales_lake(sales, given.data, bench.console)
    index = built_index(lake, given.data, bench.console, **INDEX)
    found: dict[tuple[str, str], Loaded] = {}
    for spread, kind in ((False, "no filter"), (True, f"spread, {SHARE:.0%} of ids")):
        for cached, how in ((True, "index"), (False, NOTHING_CACHED)):
            with bench.console.status(f"{kind}, {how}"):
                found[kind, how] = _in_process(lake, index, sales, spread=spread, cached=cached)
        if found[kind, "index"].values != found[kind, NOTHING_CACHED].values:
            raise Disagreement(f"{kind}: the index has changed the answer")
    _draw(bench, sales, found)
    if bench.json is not None:
        cases = [{"case": f"{kind}, {how}", **asdict(one)} for (kind, how), one in found.items()]
        bench.json.write_text(json.dumps({"benchmark": "aggregation_load", "cases": cases}, indent=2) + "\n")


def _in_process(lake: Lake, index: Path, sales: Sales, *, spread: bool, cached: bool) -> Loaded:
    told = {"folder": str(lake.folder), "index": str(index), "sales": asdict(sales)}
    command = [sys.executable, "-m", "benchmarks.aggregation_load"]
    done = subprocess.run(
        [*command, json.dumps({**told, "spread": spread, "cached": cached})],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).resolve().parents[1],
    )
    return Loaded(**json.loads(done.stdout))


def _draw(bench: Bench, sales: Sales, found: dict[tuple[str, str], Loaded]) -> None:
    title = f"{sales.rows:,} rows in {sales.files} files, {os.cpu_count()} threads"
    table = Table(title=title, title_justify="left", title_style="bold", header_style="dim", box=SIMPLE_HEAD)
    table.add_column("rows that count")
    table.add_column("how", no_wrap=True)
    for name in ("rows", "seconds", "cpu", "million rows/s", "MB before", "extra MB"):
        table.add_column(name, justify="right")
    for (kind, how), one in found.items():
        figures = (
            f"{one.values[0]:,}",
            f"{one.seconds:,.3f}",
            f"{one.cpu:,.3f}",
            f"{sales.rows / one.seconds / 1e6:,.0f}",
            f"{one.before / MB:,.0f}",
            f"{one.extra / MB:,.0f}",
        )
        table.add_row(kind, how, *figures)
    bench.console.print(table)


def main(told: str) -> None:
    """Answer as the process that is measured."""
    given = json.loads(told)
    given["sales"] = Sales(**given["sales"])
    print(json.dumps(asdict(load(**given))))


if __name__ == "__main__":
    main(sys.argv[1])
