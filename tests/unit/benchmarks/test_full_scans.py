"""Full scans of tiny lakes by every engine; no clock is looked at."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.slow
def test_everyone_gives_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import full_scans
    from benchmarks.harness import Pace

    out = tmp_path / "figures.json"
    sizes = full_scans.Sizes(("4x1000",), Pace(seconds=0.0, least=1, most=1))
    full_scans.main(["--data", str(tmp_path), "--json", str(out)], sizes)
    cases = {case["case"]: case for case in json.loads(out.read_text())["cases"]}
    whole = ["warm range, 30 %, scans-4x1000", "warm full scan, scans-4x1000"]
    filters = [
        f"warm filter, {name}, unsorted4" for name in ("kind and amount", "narrow amount", "scattered keys")
    ]
    groups = [f"group by {key}, unsorted4" for key in ("kind", "user_id")]
    assert list(cases) == [*whole, *filters, *groups]
    for name, rows in zip(whole, (1_200, 4_000), strict=True):
        assert {name: one["rows"] for name, one in cases[name]["contenders"].items()} == dict.fromkeys(
            ("skipstone", "skipstone, index", "skipping off", *PEERS), rows
        )
    for name in filters:
        found = {one["rows"] for one in cases[name]["contenders"].values()}
        assert len(found) == 1
        assert 1 <= found.pop() < 400


PEERS = ("duckdb", "datafusion", "polars", "pyarrow.dataset")
