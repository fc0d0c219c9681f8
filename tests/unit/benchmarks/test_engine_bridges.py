"""Engines through Skipstone on tiny lakes: everyone gives the same answers; no clock is looked at."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.slow
def test_everyone_gives_the_same_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import engine_bridges
    from benchmarks.harness import Pace

    out = tmp_path / "figures.json"
    sizes = engine_bridges.Sizes(4, 1_000, 0.001, Pace(seconds=0.0, least=1, most=1))
    engine_bridges.main(["--data", str(tmp_path), "--json", str(out)], sizes)
    cases = {case["case"]: set(case["contenders"]) for case in json.loads(out.read_text())["cases"]}
    assert len(cases) == 3 * 12
    assert cases["duckdb TPC-H Q6"] == {"skipstone", "skipstone, reader", "duckdb"}
    assert cases["datafusion full, sum"] == {"skipstone", "skipstone, reader", "datafusion"}
    assert cases["polars point, event_id"] == {"skipstone", "polars"}
