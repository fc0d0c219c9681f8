"""An index that lies with right checksums: answers are right, and whatever it says nothing crashes.

Cases run in processes of their own with bounded memory and time, so that a crash is a failure of a case.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import skipstone as sk
from tests.faults.index._indexes import build

SAMPLE = 25
MANY = 1_000
PER_WORKER = 50
_MEMORY = 4 << 30
_SECONDS = 600


def run(root: Path, folder: Path, seed: str, first: int, count: int) -> list[str]:
    """What went wrong in some cases, a crash included."""
    repository = Path(__file__).parents[3]
    limits = (_MEMORY, _MEMORY)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.faults.index._forger",
            str(root),
            str(folder),
            seed,
            str(first),
            str(count),
        ],
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        cwd=repository,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(repository), *sys.path))},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, limits),
        check=False,
    )
    lines = done.stdout.splitlines()
    failed = [line for line in lines if line.startswith("FAILED")]
    if done.returncode:
        failed.append(f"exit {done.returncode} in {lines[-1:]}: {done.stderr[-2000:]}")
    return failed


@pytest.fixture
def folder(root: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "index"
    build(sk.open(root, index_root=folder), sums=["id"], sketches=["id"])
    return folder


def test_forged_segments(root: Path, folder: Path) -> None:
    assert run(root, folder, "sample", 0, SAMPLE) == []


@pytest.mark.slow
def test_many_forged_segments(root: Path, folder: Path) -> None:
    starts = range(0, MANY, PER_WORKER)
    assert [problem for first in starts for problem in run(root, folder, "many", first, PER_WORKER)] == []
