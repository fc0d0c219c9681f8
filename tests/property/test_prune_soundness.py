"""No matching row is dropped and no miss is proven: random files × random predicates against a full scan.

``SKIPSTONE_CASES`` sets how many cases run, ``SKIPSTONE_REPLAY=pyarrow:12:3`` runs one of them again and
keeps its file.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

import skipstone as sk
from tests.property._check import Case, Tally, check
from tests.property._layouts import FAMILIES, WRITERS, Layout, Table, Writer, widened
from tests.property._oracle import Oracle, read
from tests.property._predicates import Predicates
from tests.support.samples import sample

PER_FILE = 25
# Of all cases, by writer; several parts of one writer spread over processes.
PARTS = (
    *(("pyarrow", part, 0.16) for part in range(4)),
    *(("datafusion", part, 0.1) for part in range(2)),
    ("polars", 0, 0.1),
    ("duckdb", 0, 0.06),
)
BY_NAME = {writer.name: writer for writer in WRITERS}


def run_file(layout: Layout, seed: str, numbers: range, tally: Tally) -> None:
    """Check predicates of these numbers about one file, every third one under a later schema."""
    tally.counts["files"] += 1
    try:
        table = read(layout.path)
    except OSError:  # a few encodings of other writers are beyond pyarrow
        tally.counts["files pyarrow can't read"] += 1
        return
    metadata = sk.read_metadata(str(layout.path))
    later = widened(random.Random(seed), table)
    oracles = Oracle(table), Oracle(later)
    evolved = Table(later, layout.made.pools | {("later",): (FAMILIES[2], [1, 2])}, layout.made.nested)
    for number in numbers:
        name = f"{seed}:{number}"
        wide = number % 3 == 0
        predicate = Predicates(random.Random(name), evolved if wide else layout.made).tree()
        case = Case(name, layout, metadata, predicate, later.schema if wide else None)
        check(case, oracles[wide], tally, random.Random(name))


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
    assert tally.counts["files pyarrow can't read"] <= 0.1 * tally.counts["files"]
    return tally


def assert_not_empty(writer: str, tally: Tally) -> None:
    """The cases did what they are there for: rows dropped, units proven, by every kind of evidence."""
    count, total = tally.counts, tally.counts["cases"]
    least = {
        "with matches": 0.3,
        "with a dropped row": 0.2,
        "with a proven row": 0.05,
        "dropped by row groups": 0.1,
    }
    if writer != "duckdb":
        least |= {"dropped by pages": 0.02, "whole by pages": 0.01}
    if writer in ("pyarrow", "datafusion"):
        least |= {"dropped by bloom filters": 0.005, "dropped by dictionaries": 0.005}
    for what, share in least.items():
        assert share * total <= count[what] < total, f"{what}: {count[what]} of {total} ({tally})"
    skipped = sum(n for name, n in count.items() if name.startswith("skipped"))
    assert skipped < 0.25 * (total + skipped), str(tally)


@pytest.mark.parametrize(("writer", "part", "share"), PARTS, ids=lambda v: v if isinstance(v, str) else "")
def test_pruning_agrees_with_a_full_scan(writer: str, part: int, share: float, tmp_path: Path) -> None:
    cases = round(sample("prune") * share)
    tally = run(BY_NAME[writer], cases, tmp_path, first=part * 100_000)
    if cases >= 1_000:  # a sample's figures vary too much to be held to shares
        assert_not_empty(writer, tally)
    else:
        assert tally.counts["with a dropped row"] > 0
        assert tally.counts["with a proven row"] > 0


if "SKIPSTONE_REPLAY" in os.environ:  # writer:file:case, as a failure prints it

    def test_replay(tmp_path: Path) -> None:
        writer, file, case = os.environ["SKIPSTONE_REPLAY"].split(":")
        layout = BY_NAME[writer].file(int(file), tmp_path)
        print(layout.path, layout.words)
        run_file(layout, f"{writer}:{file}", range(int(case), int(case) + 1), Tally())
