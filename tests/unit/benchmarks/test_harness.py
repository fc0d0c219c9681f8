"""The benchmarks run at tiny sizes and write the JSON that others read; nothing here looks at a clock."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
WORDS = {"point", "bloom", "absent", "range", "full", "cold", "warm", "clustered", "spread"}


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The benchmarks are no part of the package: they are found from the repository's root."""
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import harness

    return harness


def written(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def check_shape(found: dict[str, Any], name: str) -> None:
    assert list(found) == ["benchmark", "cases"]
    assert found["benchmark"] == name
    names = [case["case"] for case in found["cases"]]
    assert len(set(names)) == len(names) > 0
    for case in found["cases"]:
        assert list(case) == ["case", "contenders", "speedup_vs_best_peer"]
        assert WORDS & set(case["case"].replace(",", " ").split()), case["case"]
        assert "skipstone" in case["contenders"]
        for figures in case["contenders"].values():
            assert list(figures) == ["ms", "cpu_ms", "rows", "bytes", "requests"]
            assert figures["ms"] is None or figures["ms"] > 0
            for count in ("rows", "bytes", "requests"):
                assert figures[count] is None or isinstance(figures[count], int)
        assert case["speedup_vs_best_peer"] > 0


@pytest.mark.slow
def test_judge_tiny(harness: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from benchmarks import judge

    file = tmp_path / "judge.json"
    sizes = judge.Sizes(units=(500,), strings=200, pace=harness.Pace(0.0, 1, 1))
    judge.main(["--quick", "--json", str(file)], sizes)
    found = written(file)
    check_shape(found, "judge")
    kept = {case["case"]: {c["rows"] for c in case["contenders"].values()} for case in found["cases"]}
    assert all(len(rows) == 1 for rows in kept.values()), kept
    assert kept["int64 point a = v, clustered, 500 units"] == {1}
    assert kept["int64 full NOT a = v, spread, 500 units"] == {500}
    shown = capsys.readouterr().out
    assert "≤ 10 ns" in shown
    assert "numpy by hand" in shown


@pytest.mark.slow
def test_prune_file_tiny(harness: ModuleType, tmp_path: Path) -> None:
    from benchmarks import files, prune_file

    file = tmp_path / "prune_file.json"
    sizes = prune_file.Sizes(groups=(4,), footers=((1, 8),), pace=harness.Pace(0.0, 1, 1))
    prune_file.main(["--quick", "--json", str(file)], sizes)
    found = written(file)
    check_shape(found, "prune_file")
    cases = {case["case"]: case["contenders"] for case in found["cases"]}
    query = cases["cold query, point, clustered, 4 row groups, page index on"]
    assert {c["rows"] for name, c in query.items() if c["ms"] is not None} == {1}
    left = [query[name]["bytes"] for name in ("pages left (counted)", "skipstone", "skipping off")]
    assert 0 < left[0] < left[1] < left[2]
    assert query["pages left (counted)"]["rows"] == files.PAGE_ROWS
    bloom = cases["cold bloom absent, spread, 4 row groups, page index on"]
    assert bloom["skipstone"]["rows"] == bloom["duckdb"]["rows"] == 0


def test_disagreement_gives_no_figures(harness: ModuleType) -> None:
    contenders = [
        harness.Contender(str(n), lambda _given, n=n: n, answer=lambda found: found) for n in (1, 2)
    ]
    with pytest.raises(harness.Disagreement, match=r"point: 1 and 2 disagree: 1, 2"):
        harness.measure(harness.Case("point", contenders), harness.QUICK, 0)


def test_speedup_and_loss(harness: ModuleType) -> None:
    def result(ours: float | None, *peers: float) -> Any:
        found = {"skipstone": harness.Measured(harness.Role.OURS, ours, ours, harness.Work(1, 2, 3))}
        for n, ms in enumerate(peers):
            found[f"peer {n}"] = harness.Measured(harness.Role.PEER, ms, ms, harness.Work())
        found["off"] = harness.Measured(harness.Role.REFERENCE, 0.001, 0.001, harness.Work())
        return harness.CaseResult(harness.Case("point", ()), found)

    assert result(2.0, 8.0, 4.0).speedup == 2
    assert result(8.0, 4.0, 16.0).speedup == 0.5
    assert result(8.0).speedup is None
    assert result(None, 4.0).speedup is None
    case = harness.as_json("any", [result(8.0)])["cases"][0]
    assert case["speedup_vs_best_peer"] is None
    assert case["contenders"]["skipstone"] == {
        "ms": 8.0,
        "cpu_ms": None,
        "rows": 1,
        "bytes": 2,
        "requests": 3,
    }


def test_losses_are_named(harness: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    found = {
        "skipstone": harness.Measured(harness.Role.OURS, 8.0, 8.0, harness.Work()),
        "peer": harness.Measured(harness.Role.PEER, 4.0, 4.0, harness.Work()),
    }
    target = harness.Target("≤ 5 ms", 5.0, lambda result: result.ms("skipstone"))
    results = [harness.CaseResult(harness.Case("point", (), [target]), found)]
    harness.draw(Console(width=132), "title", results)
    harness.draw_promises(Console(width=132), results, quick=False)
    shown = capsys.readouterr().out
    assert "0.50 × loss" in shown
    assert "NOT met" in shown
    assert "0 of 1 cases won against the best peer, 1 lost." in shown
