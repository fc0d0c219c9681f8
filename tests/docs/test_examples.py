"""Examples of docstrings: they run, and every public name has one."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import skipstone as sk
from tests.support.examples import ON_SPARK, examples, modules, restore_table, run, write_lake


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("examples")
    write_lake(root)
    return root


COMPACTING = ("skipstone.compact.", "skipstone.scan.table")
"""Modules whose examples change the table, so that they get one of their own."""


@pytest.mark.parametrize("module", modules())
def test_examples_run(module: str, lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if module.startswith(COMPACTING):
        write_lake(tmp_path)
        lake = tmp_path
    monkeypatch.chdir(lake)
    monkeypatch.setenv("SKIPSTONE_ENGINE", "local")
    for test in examples(module, spark=False):
        run(test)
        restore_table(lake)


ERRORS = {name for name in sk.__all__ if name.endswith("Error")} - {"SkipstoneError"}


@pytest.mark.parametrize("name", sorted(set(sk.__all__) - ERRORS))
def test_public_names_have_an_example(name: str) -> None:
    text = inspect.getdoc(getattr(sk, name)) or ""
    assert "Examples:\n    >>> " in text


def test_examples_on_spark_are_named() -> None:
    assert set(sk.__all__) >= ON_SPARK


def documented(function: object) -> set[str]:
    """The arguments that a docstring describes."""
    text = inspect.getdoc(function) or ""
    section = re.search(r"^Args:\n(.*?)(?=^\S|\Z)", text, re.MULTILINE | re.DOTALL)
    return set(re.findall(r"^    \*{0,2}(\w+): ", section[1], re.MULTILINE)) if section else set()


# The keywords of these are documented where they are fields, or by another function.
ELSEWHERE = {
    "scan": set(sk.ScanOptions.__dataclass_fields__),
    "prune": set(sk.PruneOptions.__dataclass_fields__),
    "ingest_new": set(inspect.signature(sk.ingest).parameters),
    "open": {"snapshot", "storage_options", "retry", "index_root", "stay_below_root"},
}
FUNCTIONS = [
    *(getattr(sk, name) for name in sk.__all__ if inspect.isfunction(getattr(sk, name))),
    sk.Lake.scan,
    sk.Lake.statistics,
    sk.Lake.layout,
    sk.Lake.files_to_query,
    sk.Scan.explain,
    sk.Scan.count,
    sk.Scan.to_spark,
    sk.Scan.aggregate,
    sk.ScanPlan.why,
    sk.LakeIndex.build,
    sk.LakeIndex.refresh,
    sk.LakeIndex.advise,
    sk.Catalog.open,
    sk.Catalog.create_table,
    sk.Table.at,
    sk.Table.plan_files,
    sk.Table.plan_compaction,
    sk.Table.compact,
    sk.Table.maintenance,
    sk.Table.maintain,
    sk.CompactionPlan.explain,
    sk.CompactionPlanner.of,
    sk.Table.append,
    sk.Table.upsert,
    sk.Table.delete,
    sk.Table.update,
    sk.Table.merge,
    sk.Table.get,
    sk.Table.get_many,
    sk.Table.changes,
    sk.Aggregation.explain,
]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__qualname__)
def test_every_argument_is_documented_once(function: object) -> None:
    name = function.__name__  # type: ignore[attr-defined]
    expected = set(inspect.signature(function).parameters) - {"self"}  # type: ignore[arg-type]
    shown = documented(function)
    assert shown <= expected
    assert expected - shown <= ELSEWHERE.get(name, set())
