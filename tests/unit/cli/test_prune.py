"""``skipstone prune``."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


def test_text(run: Run, events: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(events.parent)
    done = run("prune", "events.parquet", "--where", "id = 242 AND name IS NOT NULL", "--ranges")
    assert done.exit_code == 0
    expected = """
        events.parquet  id = 242 AND name IS NOT NULL
        ├─ row groups  █████░░░░░░░░░░░░░░░  kept 1 of 4 (25 %), 100 rows
        │     3 dropped by bounds  id = 242
        └─ pages       █████░░░░░░░░░░░░░░░  kept 1 of 4 (25 %), 25 rows
              3 dropped by page index  id = 242
        25 of 400 rows may match (6.2 %), 0 proven · metadata read: 1 request, {bytes}
        row groups: 2
        rows 225 to 249  (25)
        """
    size = f"{events.stat().st_size / 1000:.1f} kB"
    assert done.stdout == textwrap.dedent(expected).lstrip("\n").replace("{bytes}", size)
    assert done.stderr == ""


def test_json(run: Run, events: Path) -> None:
    done = run("prune", events, "--where", "id < 130", "--format", "json")
    assert done.exit_code == 0
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert found["path"] == str(events)
    assert found["predicate"] == "id < 130"
    assert found["row_groups"] == [0, 1]
    assert found["rows"] == [[0, 150]]
    assert found["row_selection"] == [["select", 150], ["skip", 50]]
    assert (found["rows_total"], found["rows_kept"], found["rows_proven"]) == (400, 150, 125)
    assert [level["name"] for level in found["levels"]] == ["row groups", "pages"]
    assert found["levels"][0]["drops"] == [{"cause": "bounds", "condition": "id < 130", "units": 2}]
    assert found["unsupported"] == []
    assert found["notes"] == []
    assert found["requests"] == 1
    assert found["bytes"] == events.stat().st_size


def test_switches(run: Run, events: Path) -> None:
    def kept(*switches: str) -> tuple[int, list[str]]:
        where = ("--where", "device = 141500", "--format", "json")
        found = json.loads(run("prune", events, *where, *switches).stdout)
        return found["rows_kept"], [level["name"] for level in found["levels"]]

    # 141500 lies inside every row group's bounds and nowhere among its values.
    assert kept() == (0, ["row groups", "bloom filters"])
    assert kept("--no-bloom") == (300, ["row groups", "pages"])
    assert kept("--no-bloom", "--no-page-index") == (400, ["row groups"])
    assert kept("--no-bloom", "--no-page-index", "--dictionary") == (0, ["row groups", "dictionaries"])


def test_zone_and_dialect(run: Run, events: Path) -> None:
    def kept(*switches: str, where: str) -> int:
        found = run("prune", events, "--where", where, "--format", "json", *switches)
        return int(json.loads(found.stdout)["rows_kept"])

    assert kept(where="at >= '2026-01-01 00:05:00'") == 100
    assert kept("--tz", "+01:00", where="at >= '2026-01-01 01:05:00'") == 100
    assert kept("--dialect", "trino", where='"id" < 20') == 25


def test_what_is_not_judged_is_said(run: Run, events: Path) -> None:
    done = run("prune", events, "--where", "sin(ratio) > 0")
    assert done.exit_code == 0
    assert "not prunable: sin(ratio) > 0" in done.stdout


def test_nothing_matches(run: Run, events: Path) -> None:
    done = run("prune", events, "--where", "id > 1000", "--ranges")
    assert done.exit_code == 0
    assert "none of 400 rows can match" in done.stdout
    assert done.stdout.endswith("row groups: none\n")
