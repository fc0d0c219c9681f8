"""Scans of a tiny table with and without uncommitted rows; no clock is looked at."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import overlay_scans


@pytest.mark.slow
def test_all_questions_are_answered(tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    overlay_scans.main(["--quick", "--rows", "2000", "--data", str(tmp_path), "--json", str(found)])
    cases = {case["case"]: case["contenders"] for case in json.loads(found.read_text())["cases"]}
    assert len(cases) == len(overlay_scans.questions(1)) + 3
    rows = {name: one["rows"] for name, one in cases["full scan"].items()}
    assert rows == {"skipstone": 2_100, overlay_scans.WITHOUT: 2_000}
    assert not [path for path in tmp_path.iterdir() if path != found]
