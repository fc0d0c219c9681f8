"""Synthetic indexes, plans by them, peers' planners and builds, at tiny sizes; no clock is looked at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

ROOT = Path(__file__).resolve().parents[3]
FILES, MANY, SEED = 300, 33_000, 5


@pytest.fixture(autouse=True)
def _found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The benchmarks are no part of the package: they are found from the repository's root."""
    monkeypatch.syspath_prepend(str(ROOT))


def opened(files: int, folder: Path, monkeypatch: pytest.MonkeyPatch, segment: int) -> tuple[Any, Any]:
    from benchmarks import planning, synthetic

    monkeypatch.setattr(synthetic, "SEGMENT", segment)
    made = synthetic.Synthetic(files, SEED)
    path = synthetic.synthetic_index(made, folder, Console(quiet=True))
    return made, planning.Index.of(path)


@pytest.mark.parametrize(("files", "segment"), [(FILES, 1 << 20), (FILES, 128), (MANY, 4_096)])
def test_every_plan_names_the_files_that_arithmetic_names(
    files: int, segment: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from benchmarks import planning

    synthetic, index = opened(files, tmp_path, monkeypatch, segment)
    assert len(index.segments) == -(-files // segment)
    assert index.small == (files == FILES)
    for number, shape in enumerate(planning.SHAPES):
        rng = np.random.default_rng(number)
        for _ in range(3):
            asked = shape.make(synthetic, rng)
            found = planning.checked(shape, synthetic, index, asked)
            assert len(found.files) <= found.groups <= synthetic.groups * len(found.files)
            by_hand = planning.ByHand.of(synthetic, asked).plan(asked)
            assert set(found.files.tolist()) <= set(by_hand.tolist())
    point = planning.checked(planning.SHAPES[1], synthetic, index, planning.SHAPES[1].make(synthetic, rng))
    assert (len(point.files), point.groups) == (1, 1)


def test_a_wrong_plan_gives_no_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks import harness, planning

    synthetic, index = opened(FILES, tmp_path, monkeypatch, 1 << 20)
    shape = planning.SHAPES[0]
    asked = shape.make(synthetic, np.random.default_rng(0))
    none = planning.Planned(np.zeros(0, dtype=np.int64), 0)
    monkeypatch.setattr(planning, "plan", lambda _index, _where: none)
    with pytest.raises(harness.Disagreement, match=r"300 files: 0 files instead of [12]"):
        planning.checked(shape, synthetic, index, asked)


def test_keys_keep_the_order_of_positions() -> None:
    from benchmarks import synthetic

    positions = np.array([0, 1, 9, 10, 99, 100, 12_345, 10**10])
    for column in synthetic.COLUMNS:
        keys = column.keys(positions)
        listed = keys.to_pylist() if hasattr(keys, "to_pylist") else keys.tolist()
        assert listed == sorted(listed), column
        assert len(set(listed)) == len(positions), column
    assert synthetic.texts(positions[:2]).to_pylist() == [b"000000000000", b"000000000001"]
    assert len(synthetic.COLUMNS) == len(synthetic.BY_NAME) == 20


@pytest.mark.slow
def test_planning_tiny(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from benchmarks import harness, planning

    file = tmp_path / "found.json"
    given = ["--files", "300", "--only", "point, spread, id", "--data", str(tmp_path), "--json", str(file)]
    planning.main(given, harness.Pace(0.0, 1, 1))
    cases = {case["case"]: case["contenders"] for case in json.loads(file.read_text())["cases"]}
    assert set(cases) == {"point, spread, id, 300 files", "warm point, 300 tiny files"}
    plans = cases["point, spread, id, 300 files"]
    assert plans["skipstone"]["rows"] == plans["numpy by hand"]["rows"] == 1
    assert {"cold, cached", "cold, dropped"} < set(plans)
    assert plans["cold, peak memory"]["bytes"] > 0
    peers = cases["warm point, 300 tiny files"]
    assert {"skipstone", "skipstone, no index", "pyiceberg", "deltalake"} < set(peers)
    assert {peers[name]["rows"] for name in ("skipstone", "pyiceberg", "deltalake")} == {1}
    assert "300 files of 2 row groups, 20 columns" in capsys.readouterr().out


@pytest.mark.slow
def test_index_build_tiny(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from benchmarks import index_build

    file = tmp_path / "found.json"
    given = ["--engine", "local", "--data", str(tmp_path), "--json", str(file)]
    index_build.main(given, (8_000, 8, (4, 8)))
    cases = {case["case"]: case["contenders"] for case in json.loads(file.read_text())["cases"]}
    assert set(cases) == {f"cold full build, {name}" for name in ("events100", "events1000", "duckdb100")}
    for contenders in cases.values():
        read = {name: found["bytes"] for name, found in contenders.items()}
        assert 0 < read["pyarrow footers"] <= read["skipstone, no blooms"] <= read["skipstone"]
        assert {found["rows"] for found in contenders.values()} < {4, 8}
    plain = cases["cold full build, duckdb100"]
    # DuckDB writes no page index, so what its pages hold is in their values.
    assert plain["skipstone, with values"]["bytes"] > plain["skipstone, no blooms"]["bytes"]
    assert "files per second" in capsys.readouterr().out


def test_index_build_takes_the_first_files(tmp_path: Path) -> None:
    from benchmarks import index_build

    file = tmp_path / "found.json"
    given = ["--engine", "local", "--lake", "events1000", "--files", "3", "--json", str(file)]
    index_build.main([*given, "--data", str(tmp_path)], (8_000, 8, (4, 8)))
    (case,) = json.loads(file.read_text())["cases"]
    assert case["contenders"]["skipstone"]["rows"] == 3


@pytest.mark.slow
def test_startup_tiny(capsys: pytest.CaptureFixture[str]) -> None:
    from benchmarks import startup

    startup.main(["--times", "0"])
    shown = capsys.readouterr().out
    assert all(name in shown for name in startup.CONTENDERS)
