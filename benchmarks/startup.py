"""``python -m benchmarks.startup``: CPU seconds of a new process that imports, asks and ends.

Each contender counts the rows of a small directory of Parquet files that match a condition, in a process of
its own, so that its imports are what is measured. *beyond pyarrow* is what is left when importing pyarrow is
taken off, for those that use it. Bytecode is at hand, as it is wherever a package is installed; the first run
of each writes it. ``--times N`` runs each so often; the least counts.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

FILES, ROWS = 4, 1_000
_PYARROW = "import pyarrow, pyarrow.parquet, pyarrow.compute"
CONTENDERS = {
    "pyarrow, imported": f"{_PYARROW}\nprint({ROWS})",
    "skipstone, imported and opened": "import skipstone as sk\nsk.open(lake)\nprint(1000)",
    "skipstone, asked": "import skipstone as sk\nprint(sk.open(lake).scan('a < 1000').count())",
    "skipstone count": (
        "import sys\nfrom skipstone.cli.start import run\n"
        "sys.argv = ['skipstone', 'count', lake, '--where', 'a < 1000']\nrun()"
    ),
    "duckdb": (
        "import duckdb\n"
        "print(duckdb.sql(f\"select count(*) from '{lake}/*.parquet' where a < 1000\").fetchall()[0][0])"
    ),
    "pyarrow.dataset": (
        "import pyarrow.dataset as ds, pyarrow.compute as pc\n"
        "print(ds.dataset(lake).count_rows(filter=pc.field('a') < 1000))"
    ),
}


def measure(code: str, lake: Path) -> float:
    """CPU seconds, of user and system, of a process that runs the code and prints the right answer."""
    given = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = os.times()
    done = subprocess.run(
        [sys.executable, "-c", f"lake = {str(lake)!r}\n{code}"],
        check=True,
        capture_output=True,
        text=True,
        env=given,
    )
    after = os.times()
    assert done.stdout.split()[-1] == str(ROWS), done.stdout
    return after.children_user - before.children_user + after.children_system - before.children_system


def main(given: Sequence[str] | None = None) -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--times", type=int, default=7)
    times = options.parse_args(given).times
    console = Console(width=None if sys.stdout.isatty() else 110)
    with tempfile.TemporaryDirectory() as folder:
        lake = Path(folder)
        for number in range(FILES):
            first = number * ROWS
            pq.write_table(pa.table({"a": range(first, first + ROWS)}), lake / f"f{number}.parquet")
        found = dict.fromkeys(CONTENDERS, float("inf"))
        for _ in range(times + 1):
            for name, code in CONTENDERS.items():
                found[name] = min(found[name], measure(code, lake))
    table = Table("process", "CPU s", "beyond pyarrow", title="A new process, least of the runs")
    bare = found["pyarrow, imported"]
    for name, seconds in found.items():
        table.add_row(name, f"{seconds:.2f}", "" if name == "duckdb" else f"{seconds - bare:.2f}")
    console.print(table)


if __name__ == "__main__":
    main()
