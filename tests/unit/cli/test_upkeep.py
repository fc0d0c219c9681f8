"""``expire``, ``orphans`` and ``manifests``: what they show, ask and do."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import skipstone as sk
from skipstone.cli.output import Exit
from tests.compact._racing import make

Run = Callable[..., Any]


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """``db.t``: three appends, and an orphan of 2020."""
    make(tmp_path, appends=3)
    orphan = tmp_path / "warehouse" / "db" / "t" / "data" / "left.parquet"
    orphan.write_bytes(b"left over")
    os.utime(orphan, (1_600_000_000, 1_600_000_000))
    return tmp_path / "warehouse"


def table(warehouse: Path) -> sk.Table:
    return sk.catalog(warehouse).open("db.t")


def test_expire(run: Run, warehouse: Path, words: Callable[[str], str]) -> None:
    named = ("expire", "db.t", "--catalog", warehouse)
    done = run(*named, "--older-than", "0s", "--dry-run")
    assert (done.exit_code, words(done.stdout)[:44]) == (0, "would expire 2 snapshots, 1 snapshot left db")
    assert "manifest list 2" in words(done.stdout)
    done = run(*named, "--older-than", "0s")
    assert done.exit_code == Exit.USAGE
    assert "use --yes to confirm" in words(done.stderr)
    assert len(table(warehouse).snapshots()) == 3
    first = table(warehouse).snapshots()[0].id
    done = run(*named, "--snapshot", first, "--yes", "--format", "json")
    found = json.loads(done.stdout)
    assert (found["snapshots"], found["dry_run"], found["remaining"]) == ([first], False, 2)
    assert found["deleted"] == len(found["files"]) == 1
    done = run(*named, "--older-than", "0s", "--retain-last", 1, "-y")
    assert words(done.stdout).startswith("expired 1 snapshot, 1 snapshot left")
    # Without anything to do there is nothing to ask.
    done = run(*named)
    assert (done.exit_code, words(done.stdout)) == (0, "expired 0 snapshots, 1 snapshot left db.t")
    assert table(warehouse).scan().count() == 30


def test_orphans(run: Run, warehouse: Path, words: Callable[[str], str]) -> None:
    named = ("orphans", "db.t", "--catalog", warehouse)
    done = run(*named, "-n")
    assert words(done.stdout).startswith("would delete 1 file, 9 B db.t")
    assert "use --yes to confirm" in words(run(*named).stderr)
    assert (warehouse / "db/t/data/left.parquet").exists()
    done = run(*named, "--location", f"{warehouse}/db/t/metadata", "--format", "json")
    assert json.loads(done.stdout)["files"] == []
    assert run(*named, "-n", "--format", "json").stdout.count("data/left.parquet") == 1
    done = run(*named, "--yes", "--format", "json")
    found = json.loads(done.stdout)
    assert (found["count"], found["deleted"], found["bytes"], found["recent"]) == (1, 1, 9, 0)
    assert not (warehouse / "db/t/data/left.parquet").exists()
    done = run(*named)
    assert words(done.stdout).startswith("deleted no files db.t")
    done = run(*named, "--older-than", "1h", "--yes")
    assert done.exit_code == Exit.OTHER
    assert "older_than is less than a day ago" in words(done.stderr)
    assert "or --allow-recent, if" in words(done.stderr)
    assert run(*named, "--prefix-mismatch", "ignore", "-n").exit_code == 0
    assert run(*named, "--older-than", "1h", "--yes", "--allow-recent").exit_code == 0
    assert table(warehouse).scan().count() == 30


def test_manifests(run: Run, warehouse: Path, words: Callable[[str], str]) -> None:
    named = ("manifests", "db.t", "--catalog", warehouse)
    done = run(*named, "--dry-run", "--format", "json")
    plan = json.loads(done.stdout)
    assert (plan["replaced"], plan["created"], plan["snapshot"]) == (3, 1, None)
    done = run(*named, "-w", "p = 'c'", "--spec", 0)
    assert words(done.stdout) == "nothing to rewrite db.t manifests 3 → 3 entries 0"
    done = run(*named, "--target-size", "1MiB")
    assert words(done.stdout).startswith("rewrote 3 manifests, ")
    assert "manifests 3 → 1 entries 6" in words(done.stdout)
    assert words(run(*named, "--all", "-n").stdout).startswith("would rewrite 1 manifest, ")
    assert table(warehouse).scan().count() == 30


def test_a_table_needs_a_catalog(run: Run, tmp_path: Path) -> None:
    for command in ("expire", "orphans", "manifests"):
        done = run(command, tmp_path)
        assert done.exit_code == Exit.USAGE
        assert "use --catalog" in done.stderr
