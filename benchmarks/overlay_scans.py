"""``python -m benchmarks.overlay_scans``: scans of a table with 100,000 uncommitted rows.

A table of 5 million rows, with an index, is read as it is, and as a transaction or a tail shows it: 100,000
rows are in memory, of which half replace rows all over the table, and half are new. The table stays open, but
every question is planned. *Making* is what the first scan after a write pays: the conversion of the rows in
memory, without the search for the rows that they replace.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import skipstone as sk
from benchmarks.harness import OURS, Bench, Case, CaseResult, Contender, Pace, Role, Target, Work
from benchmarks.peers import THREADS
from skipstone.table.locate import locate
from skipstone.table.overlay import OverlayTable, overlay

ROWS, QUICK_ROWS, CHANGED = 5_000_000, 200_000, 100_000
MOST = 1.3
WITHOUT = "without uncommitted rows"
PACE = Pace(seconds=8.0, least=5, most=15)


SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "name": pa.string(),
        "ts": pa.timestamp("us", "UTC"),
        "amount": pa.float64(),
        "v": pa.int64(),
    }
)


def rows_of(ids: np.ndarray[Any, Any], seed: int) -> pa.Table:
    """Rows with these ids."""
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "id": ids,
            "name": pa.array([f"name {n}" for n in (ids % 5_000).tolist()]),
            "ts": pa.array(1_767_225_600_000_000 + ids * 1_000_000, pa.timestamp("us", "UTC")),
            "amount": np.round(random.random(len(ids)) * 100, 2),
            "v": random.integers(1_000, size=len(ids)),
        },
        SCHEMA,
    )


def changed(table: sk.Table, rows: int, count: int, seed: int) -> tuple[dict[str, sk.RowSet], pa.Table]:
    """The positions of replaced rows by file, and the rows of an overlay: replacing ones, and new ones."""
    old = np.sort(np.random.default_rng(seed).choice(rows, count // 2, replace=False))
    hidden = locate(table, pa.table({"id": old})).row_sets()
    return hidden, rows_of(np.concatenate([old, np.arange(rows, rows + count - count // 2)]), seed + 1)


def questions(rows: int) -> dict[str, dict[str, Any]]:
    """Arguments of scans by name."""
    middle = rows // 2
    return {
        "full scan": {},
        "full scan, two columns": {"columns": ["id", "amount"]},
        "range, spread, half": {"where": "amount > 50"},
        "range, spread, 0.1 %": {"where": "amount > 99.9"},
        "range, clustered, 1 %": {"where": f"id between {middle} and {middle + rows // 100}"},
        "point": {"where": f"id = {middle + 7}"},
        "first 10 by amount": {"order_by": ["amount desc", "id"], "limit": 10, "columns": ["id", "amount"]},
    }


def _cases(table: sk.Table, made: OverlayTable, rows: int) -> Iterator[Case]:
    for name, question in questions(rows).items():

        def run(lake: Any, _: Any, question: dict[str, Any] = question) -> pa.Table:
            lake.plans.clear()
            return lake.scan(**question).to_arrow()

        contenders = [
            Contender(OURS, partial(run, made), Role.OURS, work=_rows),
            Contender(WITHOUT, partial(run, table), Role.REFERENCE, work=_rows),
        ]
        yield Case(name, contenders, [Target(f"≤ {MOST:g} × the CPU time without", MOST, _share)])
    aggregates = {"count where": "amount > 50", "sum from metadata": None}
    for name, where in aggregates.items():

        def answer(lake: Any, _: Any, where: str | None = where) -> Any:
            lake.plans.clear()
            return lake.scan(where).aggregate(sk.count(), sk.sum("v")).to_pylist()

        contenders = [
            Contender(OURS, partial(answer, made), Role.OURS),
            Contender(WITHOUT, partial(answer, table), Role.REFERENCE),
        ]
        yield Case(name, contenders)


def _rows(result: pa.Table) -> Work:
    return Work(rows=result.num_rows)


def _share(result: CaseResult) -> float:
    ours, without = (result.contenders[name].cpu_ms or 0.0 for name in (OURS, WITHOUT))
    return ours / without if without else 0.0


def main(argv: Sequence[str] | None = None) -> None:
    """Run the benchmark."""

    def options(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--rows", type=int, metavar="N", help=f"rows of the table ({ROWS:,})")
        parser.add_argument("--data", type=Path, metavar="DIR", help="where to write (a temporary directory)")

    bench = Bench.of("overlay_scans", str(__doc__).splitlines()[0], argv, PACE, options)
    rows = bench.given.rows or (QUICK_ROWS if bench.quick else ROWS)
    count = min(CHANGED, rows // 10)
    with tempfile.TemporaryDirectory(dir=bench.given.data) as root:
        table = sk.catalog(Path(root) / "warehouse").create_table("db.t", SCHEMA, key="id")
        for first in range(0, rows, 1_000_000):
            part = rows_of(np.arange(first, min(first + 1_000_000, rows)), bench.seed + first)
            sk.ingest(part, table, engine="local", threads=THREADS)
        table.refresh()
        hidden, added = changed(table, rows, count, bench.seed)
        made = overlay(table, hidden, added)
        bench.section(f"{rows:,} rows, {count:,} uncommitted", _cases(table, made, rows))
        making = Contender(OURS, lambda _: overlay(table, hidden, added), Role.OURS)
        bench.section("making", [Case(f"an overlay of {count:,} rows", [making])])
    bench.finish()


if __name__ == "__main__":
    main()
