"""Tables without data files, and plans on them beside pyiceberg's, at a tiny size; no clock is looked at."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

pytest.importorskip("pyiceberg")

ROOT = Path(__file__).resolve().parents[3]
FILES, MANIFESTS, SEED = 100, 10, 5


@pytest.fixture(autouse=True)
def _found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The benchmarks are no part of the package: they are found from the repository's root."""
    monkeypatch.syspath_prepend(str(ROOT))


def test_a_table_has_two_specs_metrics_and_deletes(tmp_path: Path) -> None:
    from pyiceberg.table import StaticTable

    from benchmarks import tables

    shape = tables.TableShape(FILES, MANIFESTS, days=20, deletes=20)
    made = tables.made_table(shape, SEED, tmp_path, Console(quiet=True))
    plain, deletes = (StaticTable.from_metadata(made.metadata(deletes=given)) for given in (False, True))
    files = [task.file for task in plain.scan().plan_files()]
    assert len({file.file_path for file in files}) == FILES
    assert {file.spec_id: len(file.lower_bounds) for file in files} == {0: 10, 1: 10}
    assert sum(file.spec_id == 0 for file in files) == FILES // shape.older
    tasks = list(deletes.scan().plan_files())
    assert {task.file.file_path for task in tasks} == {file.file_path for file in files}
    used = {delete.file_path for task in tasks for delete in task.delete_files}
    assert len(used) == shape.deletes
    reach = [sum(delete in task.delete_files for task in tasks) for delete in tasks[-1].delete_files]
    assert all(1 <= count <= FILES for count in reach)
    before = Path(made.metadata(deletes=True)).stat().st_mtime_ns
    tables.made_table(shape, SEED, tmp_path, Console(quiet=True))
    assert Path(made.metadata(deletes=True)).stat().st_mtime_ns == before


@pytest.mark.slow
def test_iceberg_planning_tiny(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from benchmarks import harness, iceberg_planning

    file = tmp_path / "found.json"
    given = ["--files", str(FILES), "--manifests", str(MANIFESTS), "--data", str(tmp_path)]
    iceberg_planning.main([*given, "--json", str(file)], harness.Pace(0.0, 1, 1), (40, 8))
    cases = {case["case"]: case["contenders"] for case in json.loads(file.read_text())["cases"]}
    assert len(cases) == 2 * len(iceberg_planning.QUESTIONS) + 2
    size = f"{FILES} files, {MANIFESTS} manifests"
    for what in (size, f"{size}, deletes"):
        day, full = cases[f"point, one day, {what}"], cases[f"full, no filter, {what}"]
        ours, theirs = day["skipstone"], day["pyiceberg"]
        assert 0 < ours["rows"] == theirs["rows"] < FILES
        assert 0 < ours["bytes"] == theirs["bytes"] < full["skipstone"]["bytes"]
        assert ours["requests"] == theirs["requests"] < full["skipstone"]["requests"]
        assert {found["rows"] for found in full.values()} == {FILES}
        # The index is mapped, and knows the list of manifests too.
        assert full["skipstone, index"]["requests"] == 0
        assert full["skipstone, open"]["requests"] == 0
    printed = capsys.readouterr().out
    assert "cold: 3 × pyiceberg" in printed
    assert "association below 100 ms" in printed
    assert "× in CPU time (by the clock)" in printed
