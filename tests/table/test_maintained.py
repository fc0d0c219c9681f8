"""One keyed table that others write to, read and maintain at the same time: nothing is lost or left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import skipstone as sk
from tests.table._maintainers import JOBS, SCHEMA, WRITERS, run

HERE = Path(__file__).parents[2]
KINDS = (*WRITERS, *JOBS)


def make(root: Path) -> None:
    properties = {"commit.retry.num-retries": "20", "commit.retry.max-wait-ms": "500"}
    sk.catalog(root).create_table("db.t", SCHEMA, key=["id"], properties=properties)


def check(root: Path, results: Sequence[dict[str, Any]]) -> None:
    wanted = {key: value for one in results for key, value in one["rows"]}
    table = sk.catalog(root).open("db.t")
    found = table.scan().to_arrow()
    pairs = [*zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True)]
    assert sorted(pairs) == sorted(wanted.items())
    assert table.scan().count() == len(wanted)
    for key in [*wanted][:5]:
        assert table.get(key)["v"] == wanted[key]  # type: ignore[index]
    left = table.remove_orphans(older_than="0s", allow_recent=True, dry_run=True)
    assert left.files == ()


def test_threads_maintain_one_table(tmp_path: Path) -> None:
    make(tmp_path)
    with ThreadPoolExecutor(len(KINDS)) as pool:
        work = [pool.submit(run, kind, tmp_path, me, lambda done: done < 2) for me, kind in enumerate(KINDS)]
        results = [one.result() for one in work]
    assert all(one["done"] for one in results if one["kind"] in WRITERS)
    check(tmp_path, results)


@pytest.mark.slow
def test_processes_maintain_one_table(tmp_path: Path) -> None:
    """Eight of them, for a minute."""
    make(tmp_path)
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.table._maintainers", kind, str(tmp_path), str(me), "60"],
            cwd=HERE,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for me, kind in enumerate(KINDS)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.communicate()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    results = []
    for kind, process in zip(KINDS, processes, strict=True):
        output, errors = process.communicate(timeout=600)
        assert process.returncode == 0, f"{kind}: {errors[-3000:]}"
        results.append(json.loads(output.splitlines()[-1]))
    print({one["kind"]: (one["done"], one["errors"]) for one in results})
    assert all(one["done"] for one in results), results
    check(tmp_path, results)
