"""No matching row is dropped and no miss is proven: random files × random predicates against a full scan.

``SKIPSTONE_CASES`` sets how many cases run, ``SKIPSTONE_REPLAY=pyarrow:12:3`` runs one of them again and
keeps its file.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import skipstone as sk
from tests.property._check import Case, Tally, check
from tests.property._layouts import WRITERS, Layout, Writer
from tests.property._oracle import Oracle
from tests.property._predicates import Predicates

SAMPLE = 1_500
FULL = 20_000
PER_FILE = 30
SHARES = {"pyarrow": 0.64, "datafusion": 0.2, "polars": 0.1, "duckdb": 0.06}
BY_NAME = {writer.name: writer for writer in WRITERS}


def run_file(layout: Layout, seed: str, numbers: range, tally: Tally) -> None:
    """Check predicates of these numbers about one file."""
    oracle = Oracle(pq.ParquetFile(layout.path).read())
    metadata = sk.read_metadata(str(layout.path))
    for number in numbers:
        name = f"{seed}:{number}"
        predicate = Predicates(random.Random(name), layout.made).tree()
        check(Case(name, layout, metadata, predicate), oracle, tally, random.Random(name))


def run(writer: Writer, cases: int, folder: Path, first: int = 0) -> Tally:
    """Check ``cases`` predicates about files of one writer."""
    tally = Tally()
    file = first
    while tally.counts["cases"] < cases:
        layout = writer.file(file, folder)
        run_file(layout, f"{writer.name}:{file}", range(min(PER_FILE, cases)), tally)
        layout.path.unlink()
        file += 1
    print(f"\n{writer.name}: {tally}")
    return tally


def assert_not_empty(writer: str, tally: Tally) -> None:
    """The cases did what they are there for: rows dropped, units proven, by every kind of evidence."""
    count, total = tally.counts, tally.counts["cases"]
    least = {"with matches": 0.3, "with a dropped row": 0.3, "with a proven row": 0.05, "dropped by row groups": 0.2}
    if writer != "duckdb":
        least |= {"dropped by pages": 0.02, "whole by pages": 0.02}
    if writer in ("pyarrow", "datafusion"):
        least |= {"dropped by bloom filters": 0.005, "dropped by dictionaries": 0.01}
    for what, share in least.items():
        assert count[what] >= share * total, f"{what}: {count[what]} of {total} ({tally})"
        assert count[what] < total
    skipped = sum(n for name, n in count.items() if name.startswith("skipped"))
    assert skipped < 0.25 * (total + skipped), str(tally)


def wanted(default: int) -> int:
    return int(os.environ.get("SKIPSTONE_CASES", default))


@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.name)
def test_pruning_agrees_with_a_full_scan(writer: Writer, tmp_path: Path) -> None:
    tally = run(writer, round(wanted(SAMPLE) * SHARES[writer.name]), tmp_path)
    if tally.counts["cases"] >= 80:
        assert_not_empty(writer.name, tally)


@pytest.mark.slow
@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.name)
def test_pruning_agrees_with_a_full_scan_at_length(writer: Writer, tmp_path: Path) -> None:
    tally = run(writer, round(wanted(FULL) * SHARES[writer.name]), tmp_path, first=1_000_000)
    assert_not_empty(writer.name, tally)


@pytest.mark.skipif("SKIPSTONE_REPLAY" not in os.environ, reason="set SKIPSTONE_REPLAY=writer:file:case")
def test_replay(tmp_path: Path) -> None:
    writer, file, case = os.environ["SKIPSTONE_REPLAY"].split(":")
    layout = BY_NAME[writer].file(int(file), tmp_path)
    print(layout.path, layout.words)
    run_file(layout, f"{writer}:{file}", range(int(case), int(case) + 1), Tally())
