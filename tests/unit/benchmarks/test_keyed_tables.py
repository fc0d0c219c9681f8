"""Writes and look-ups of tiny keyed tables by every system; no clock is looked at."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import keyed_tables


@pytest.mark.slow
def test_all_parts_agree(tmp_path: Path) -> None:
    """The harness raises if tables differ after a write."""
    found = tmp_path / "found.json"
    keyed_tables.main(["--quick", "--rows", "1000", "--data", str(tmp_path), "--json", str(found)])
    cases = json.loads(found.read_text())["cases"]
    assert [case["case"] if "case" in case else case["name"] for case in cases] == [
        "50 gets of 1,000 rows",
        "upsert 100 keys into 1,000 rows",
        "delete 10 of 1,000 rows by key",
        "upsert 100 two-column keys into 1,000 rows",
        "100 rows, a call each",
        "half of 1,000 rows with 100 unflushed ones",
    ]
    assert not [path for path in tmp_path.iterdir() if path != found]
