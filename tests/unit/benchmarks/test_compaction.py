"""Compactions of a tiny table beside other ways to do them; no clock is looked at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

pytest.importorskip("pyiceberg")

ROOT = Path(__file__).resolve().parents[3]
ROWS, FILES, SEED = 8_000, 8, 5


@pytest.fixture(autouse=True)
def _found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The benchmarks are no part of the package: they are found from the repository's root."""
    monkeypatch.syspath_prepend(str(ROOT))


@pytest.fixture
def made(_found: None, tmp_path: Path) -> Any:
    from benchmarks.lakes import Events
    from benchmarks.small_files import small_files

    return small_files(Events(ROWS, FILES, SEED), tmp_path, Console(quiet=True))


def test_a_copy_is_rewritten_and_the_table_stays(made: Any, tmp_path: Path) -> None:
    from benchmarks.compactors import Copies
    from benchmarks.small_files import data_files, digest

    assert made.digest[0] == ROWS
    assert len(made.files) == FILES
    copies = Copies(made, tmp_path / "copies", made.bytes // 2)
    table = copies.compact("sort", copies.new(), "local")
    new = data_files(table)
    assert 1 <= len(new) < FILES
    assert digest(new) == made.digest
    assert not {*new} & {*made.files}
    assert [report.rows for report in copies.reports.values()] == [ROWS]
    # The next copy has all files again.
    assert sorted(data_files(copies.new())) == made.files


@pytest.mark.slow
def test_both_planners_select_the_same_files(tmp_path: Path) -> None:
    from benchmarks import compactors, harness, tables
    from benchmarks.iceberg_planning import Tabled

    shape = tables.evolved(200, 10)
    table = tables.made_table(shape, SEED, tmp_path, Console(quiet=True))
    for deletes in (False, True):
        chosen = []
        for case in compactors.planning_cases(Tabled(table, deletes, tmp_path), SEED):
            found = harness.measure(case, harness.Pace(0.0, 1, 1), SEED).contenders
            assert len({one.work.rows for one in found.values()}) == 1, case.name
            chosen.append(found["pyiceberg"].work.rows)
        few, many = chosen
        assert 0 < few < many < shape.files


@pytest.mark.slow
def test_queries_before_and_after(made: Any, tmp_path: Path) -> None:
    from benchmarks import compaction, harness

    pace = harness.Pace(0.0, 1, 1)
    sizes = compaction.Sizes(rows=ROWS, files=FILES, target=made.bytes // 2, query_pace=pace)
    file = tmp_path / "found.json"
    given = ["--part", "queries", "--only", "sort", "--seed", str(SEED), "--data", str(tmp_path)]
    compaction.main([*given, "--json", str(file)], sizes)
    cases = {case["case"]: case["contenders"] for case in json.loads(file.read_text())["cases"]}
    assert [list(found) for found in cases.values()] == [["before", "sort"]] * 4
    before, after = cases["warm point, user_id"].values()
    assert before["rows"] == after["rows"] > 0
    assert before["requests"] > after["requests"] > 0
    # Pages of 2,000 rows; the files before have no page index.
    assert "pages" not in before
    assert 1 <= after["pages"] <= 2
    assert not (tmp_path / "compaction").exists()


@pytest.mark.slow
def test_memory_is_measured_in_a_process(made: Any, tmp_path: Path) -> None:
    from benchmarks import compaction
    from benchmarks.compactors import Copies

    copies = Copies(made, tmp_path / "copies", made.bytes // 2)
    peak = compaction.in_process(copies, "sort", 200_000)
    assert 0 < peak.extra < 1_000_000_000
    assert 1 <= len(peak.sizes) < FILES


def test_cpu_time_of_children_counts() -> None:
    import subprocess
    import sys

    from benchmarks import harness

    code = "import time\nwhile time.process_time() < 0.3: pass"

    def run(_given: None) -> None:
        subprocess.run([sys.executable, "-c", code], check=True)

    case = harness.Case("point", [harness.Contender("skipstone", run, harness.Role.OURS)])
    found = harness.measure(case, harness.Pace(0.0, 1, 1), SEED).contenders["skipstone"]
    assert found.cpu_ms is not None
    assert found.cpu_ms > 250


def test_processes_that_end_unnoticed_take_no_time_back() -> None:
    from benchmarks.measuring import spent_between

    before = {1: (0, 50), 2: (1, 400), 3: (2, 900), 4: (3, 30)}
    # 3 was waited for by 2, 4 was not; then 2 and 3 were killed, and only 2 was waited for.
    assert spent_between(before, {1: (0, 50), 2: (1, 1_350)}) == 20
    assert spent_between(before, {1: (0, 70), 2: (1, 400)}) == 20
    assert spent_between(before, {1: (0, 460), 5: (1, 7)}) == 7
    assert spent_between(before, {1: (0, 1_500)}) == 120
