"""Semi joins with a tiny lake; all contenders agree, and no clock is looked at."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import semi_joins


@pytest.mark.slow
def test_all_joins_are_answered(tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    options = ["--quick", "--rows", "20000", "--keys", "500", "3000", "--data", str(tmp_path)]
    semi_joins.main([*options, "--json", str(found)])
    cases = {case["case"]: case["contenders"] for case in json.loads(found.read_text())["cases"]}
    assert len(cases) == 3 * 2 * 2
    assert all(len(contenders) == 5 for contenders in cases.values())
    clustered = [cases[f"{column}, 3,000 clustered keys"] for column in ("id", "name")]
    assert [{one["rows"] for one in some.values()} for some in clustered] == [{1_500}, {1_500}]
    assert not [path for path in tmp_path.iterdir() if path != found]
