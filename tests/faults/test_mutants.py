"""Mutated Parquet files give the rows that pyarrow reads or a clear error: no crash, hang or foreign error.

``make test`` tries a sample, ``make test-all`` as many as SKIPSTONE_CASES says. With SKIPSTONE_RANDOM the
seed is a new one. A failure prints the command that tries the same mutant again.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.samples import sample

CASES = sample("mutants")
SEED = secrets.token_hex(4) if "SKIPSTONE_RANDOM" in os.environ else "mutants"
# Asked by one process: few enough for its end to be told from its beginning.
EACH = 1_000
ROOT = Path(__file__).resolve().parents[2]
QUESTIONS = (
    *("scan", "limit", "prune", "filter", "limited filter"),
    *("count", "aggregate", "nothing", "order", "statistics", "index"),
)


@pytest.mark.parametrize("part", range(-(-CASES // EACH)))
def test_mutants(part: int, tmp_path: Path) -> None:
    first = part * EACH
    cases = min(EACH, CASES - first)
    command = [sys.executable, "-W", "error", "-m", "tests.faults._mutants"]
    # The processor's time is bounded within, so this is for what waits without end.
    done = subprocess.run(
        [*command, SEED, str(first), str(cases), str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=3_600,
        check=False,
    )
    last = json.loads(done.stdout.splitlines()[-1]) if done.stdout else {}
    again = " ".join([*command[1:], SEED, str(last.get("case", first)), "1", "FOLDER"])
    ended = f"ended by signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
    assert done.returncode == 0, f"{last}: {ended}\n{done.stderr[-3_000:]}\nagain: python {again}"
    count = last["done"]
    print(f"\n{', '.join(f'{name} {n:,}' for name, n in sorted(count.items()))}")
    assert count["cases"] == cases
    # Mutants that everybody refuses, or that nobody notices, would show nothing.
    assert cases / 3 < count["compared"] < cases * 1.7
    for question in QUESTIONS:
        assert count.get(question, 0) > cases / 100, question
        assert count.get(f"{question} refused", 0) > cases / 100, question
