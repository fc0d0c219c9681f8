"""The public surface: names, laziness, and what importing costs."""

from __future__ import annotations

import subprocess
import sys

import skipstone as sk

HEAVY = ("pyspark", "pyiceberg", "polars", "duckdb", "datafusion", "sqlglot", "obstore", "typer", "rich")


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    ).stdout.strip()


def test_all_is_sorted_and_complete() -> None:
    assert sk.__all__ == sorted(sk.__all__)
    assert all(hasattr(sk, name) for name in sk.__all__)
    assert set(sk.__all__) <= set(dir(sk))
    assert run("from skipstone import *; print(prune.__name__)") == "prune"


def test_importing_is_light() -> None:
    loaded = run("import skipstone, sys; print(*sys.modules)").split()
    assert not set(HEAVY) & set(loaded)
    assert "skipstone.api" not in loaded


def test_pruning_loads_no_engine_and_no_sql_parser() -> None:
    code = "import skipstone as sk, sys; sk.prune; sk.col('a') == 1; print(*sys.modules)"
    assert not set(HEAVY) & set(run(code).split())


def test_functions_are_not_shadowed_by_packages() -> None:
    code = (
        "import skipstone.predicate.tree, skipstone.prune.pruner, skipstone.spark.routes, skipstone as sk;"
        "print(callable(sk.predicate), callable(sk.prune), callable(sk.spark))"
    )
    assert run(code) == "True True True"


def test_unknown_names() -> None:
    assert not hasattr(sk, "no_such_name")
