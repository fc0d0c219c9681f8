"""Compactions race with appends, deletes and each other in other processes: no row is lost or comes back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import skipstone as sk
from tests.compact._tables import numbered

HERE = Path(__file__).parents[2]


def race(root: Path, writers: list[tuple[str, int]], rounds: int) -> list[tuple[str, list[int]]]:
    """Run so many processes at the same time; return what each did."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    processes = []
    for kind, me in writers:
        command = [
            sys.executable,
            "-m",
            "tests.compact._writing_processes",
            kind,
            str(root),
            str(me),
            str(rounds),
        ]
        processes.append(
            subprocess.Popen(
                command,
                cwd=HERE,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.communicate()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    found = []
    for (kind, _), process in zip(writers, processes, strict=True):
        output, errors = process.communicate(timeout=600)
        assert process.returncode == 0, f"{kind}: {errors[-3000:]}"
        found.append((kind, json.loads(output.splitlines()[-1])))
    return found


def run(folder: Path, writers: list[tuple[str, int]], rounds: int) -> None:
    table = numbered(folder, 4, partition_by=["p"])
    with table.table.transaction() as change:
        change.set_properties(
            {
                "commit.retry.num-retries": "100",
                "commit.retry.min-wait-ms": "5",
                "commit.retry.max-wait-ms": "200",
            }
        )
    done = race(folder / "w", writers, rounds)
    added = [id for kind, ids in done if kind == "append" for id in ids]
    gone = [id for kind, ids in done if kind == "delete" for id in ids]
    assert len(gone) == len(set(gone))
    wanted = sorted({*range(40), *added} - {*gone})
    table.refresh()
    for found in (table.scan().to_arrow(), table.table.refresh().scan().to_arrow()):
        assert sorted(found["id"].to_pylist()) == wanted
    groups = sum(sum(one) for kind, one in done if kind == "compact")
    replaced = [one for one in table.snapshots() if one.operation == "replace"]
    assert 0 < len(replaced) <= groups
    assert {kind: len(ids) for kind, ids in done if kind != "compact" and not ids} == {}
    # Every snapshot can still be read, and a last compaction leaves the same rows.
    for one in table.snapshots()[:: max(len(table.snapshots()) // 10, 1)]:
        assert (
            len(set(table.at(one.id).scan().to_arrow()["id"].to_pylist())) == table.at(one.id).scan().count()
        )
    report = table.compact(table.plan_compaction(rewrite_all=True), engine="local", checksums=True)
    assert report.rows == len(wanted)
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == wanted
    assert len(table.delete_inventory) == 0
    assert isinstance(table, sk.Table)


def test_a_short_race(tmp_path: Path) -> None:
    run(tmp_path, [("append", 1), ("delete", 2), ("compact", 3)], 2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_long_race(seed: int, tmp_path: Path) -> None:
    first = 10 * seed
    writers = [("append", first + 1), ("append", first + 2), ("delete", first + 3), ("delete", first + 4)]
    run(tmp_path, [*writers, ("compact", first + 5), ("compact", first + 6)], 15)
