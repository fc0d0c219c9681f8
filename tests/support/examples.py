"""Runs the examples of docstrings in a directory with a small lake and a small table."""

from __future__ import annotations

import doctest
import importlib
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pyarrow.parquet as pq

import skipstone as sk

SOURCE = Path(sk.__file__).parent
# Objects whose examples run on Spark.
ON_SPARK = {"spark", "register"}
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def modules() -> list[str]:
    """The modules whose docstrings have examples."""
    files = sorted(path for path in SOURCE.rglob("*.py") if ">>> " in path.read_text())
    parts = [path.relative_to(SOURCE.parent).with_suffix("").parts for path in files]
    return [".".join(one[:-1] if one[-1] == "__init__" else one) for one in parts]


def write_lake(root: Path) -> None:
    """Write 1,000 rows to four files in ``events``, and to the table ``db.events`` of ``warehouse``.

    The warehouse has also a keyed table of three rows, ``db.accounts``.
    """
    start = datetime(2026, 1, 1, tzinfo=UTC)
    table = pa.table(
        {
            "event_id": range(1_000),
            "ts": pa.array([start + timedelta(minutes=n) for n in range(1_000)], pa.timestamp("us", "UTC")),
            "country": ["DE", "FR", "US", "SE"] * 250,
            "amount": [n / 10 for n in range(1_000)],
        }
    )
    (root / "events").mkdir()
    for number in range(4):
        file = root / "events" / f"part-{number}.parquet"
        pq.write_table(table.slice(250 * number, 250), file, max_rows_per_page=50, write_page_index=True)
    sk.catalog(root / "warehouse").create_table("db.events", table.schema).table.append(table)
    accounts = pa.table({"id": [1, 2, 3], "v": [10, 20, 30]})
    sk.catalog(root / "warehouse").create_table("db.accounts", accounts.schema, key="id").append(accounts)
    shutil.copytree(root / "warehouse", root / "untouched")


def restore_table(root: Path) -> None:
    """Undo what an example committed to ``warehouse``."""
    mine, untouched = root / "warehouse", root / "untouched"
    if (mine / "catalog.db").read_bytes() != (untouched / "catalog.db").read_bytes():
        shutil.rmtree(mine)
        shutil.copytree(untouched, mine)


def examples(module: str, *, spark: bool) -> Iterator[doctest.DocTest]:
    """The examples of a module that run on Spark, or the others."""
    loaded = importlib.import_module(module)
    assert isinstance(loaded, ModuleType)
    for test in doctest.DocTestFinder(exclude_empty=True).find(loaded):
        if test.examples and (test.name.removeprefix(f"{module}.") in ON_SPARK) is spark:
            yield test


def run(test: doctest.DocTest) -> None:
    """Run one docstring's examples; the first that fails is an error with its output."""
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=FLAGS | doctest.REPORT_NDIFF)
    runner.run(test, out=report.append)
    assert not runner.failures, "".join(report)
