"""What a new process loads: opening a directory and asking it imports what runs, and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

# Modules of Skipstone that a question loads; fewer are better, and more need a reason.
MOST = 90
# What other work needs: builds, aggregates, tables, ingest, Spark, and drawing what happened.
OTHERS = (
    "skipstone.aggregate",
    "skipstone.iceberg",
    "skipstone.index.build",
    "skipstone.index.coverage",
    "skipstone.index.record",
    "skipstone.index.segment",
    "skipstone.partial",
    "skipstone.predicate.sql.write",
    "skipstone.prune.pruner",
    "skipstone.scan.statistics",
    "skipstone.scan.verify",
    "skipstone.spark",
    "skipstone.store.objects",
    "skipstone.write",
)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    pq.write_table(pa.table({"a": [1, 2, 3], "s": ["x", "y", "z"]}), tmp_path / "f.parquet")
    return tmp_path


def loaded(code: str, lake: Path) -> set[str]:
    """The modules that are loaded when the code has run in a process of its own."""
    whole = (
        f"import sys, json\nlake = {str(lake)!r}\n{textwrap.dedent(code)}\nprint(json.dumps([*sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", whole], check=True, capture_output=True, timeout=600)
    return set(json.loads(done.stdout))


def ours(modules: set[str]) -> set[str]:
    return {name for name in modules if name.partition(".")[0] == "skipstone"}


def test_the_package_itself_loads_nothing(lake: Path) -> None:
    modules = loaded("import skipstone", lake)
    assert ours(modules) == {"skipstone"}
    assert "pyarrow" not in modules


@pytest.mark.parametrize("where", ["a = 1", "s = 'x'", "a >= 1 and s < 'y'"])
def test_a_question_loads_what_it_runs(lake: Path, where: str) -> None:
    modules = loaded(
        f"""
        import skipstone as sk
        assert sk.open(lake).scan({where!r}).to_arrow().num_rows == 1
        """,
        lake,
    )
    assert len(ours(modules)) <= MOST
    assert not {name for name in ours(modules) if name.startswith(OTHERS)}
    assert not modules & {
        "asyncio",
        "pyiceberg",
        "pyspark",
        "obstore",
        "rich",
        "typer",
        "duckdb",
        "polars",
    }


def test_numbers_are_compared_without_pandas(lake: Path) -> None:
    code = "import skipstone as sk\nassert sk.open(lake).scan('a = 1').to_arrow().num_rows == 1"
    assert "pandas" not in loaded(code, lake)


def test_a_question_without_a_text_loads_no_parser(lake: Path) -> None:
    modules = loaded("import skipstone as sk\nassert sk.open(lake).scan().to_arrow().num_rows == 3", lake)
    assert len(ours(modules)) <= MOST - 3
    # pyarrow's converter of Python values would load pandas, where it is installed.
    assert not modules & {"sqlglot", "pandas"}


def test_a_command_collects_garbage_rarely(lake: Path) -> None:
    """A process makes many objects that stay: collecting after every 700 would take a tenth of its time."""
    code = f"""
        import gc, sys
        from skipstone.cli.start import run
        sys.argv = ["skipstone", "count", {str(lake)!r}, "a = 1"]
        try:
            run()
        except SystemExit:
            print(sum(generation["collections"] for generation in gc.get_stats()))
        """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    count, collections = done.stdout.split()
    assert count == "1"
    assert 0 < int(collections) < 50
