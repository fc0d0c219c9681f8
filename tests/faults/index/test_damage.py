"""A damaged index costs time, never rows, and the trace says why."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

import skipstone as sk
import skipstone.index.draft as draft_module
from tests.faults._store import WatchedStore
from tests.faults.index._indexes import (
    FILES,
    QUESTIONS,
    build,
    check,
    check_all,
    copied,
    manifests,
    open_beside,
    regions,
    segments,
)
from tests.support.samples import sample

FLIPS = sample("damaged index")


def footers_opened(store: WatchedStore, root: Path) -> set[str]:
    """Files whose last bytes were asked for."""
    ends = {path.name: path.stat().st_size for path in root.glob("*.parquet")}
    return {r.key for r in store.requests if r.key in ends and any(s.stop == ends[r.key] for s in r.ranges)}


# -- a good index ------------------------------------------------------------------------------


@pytest.mark.parametrize("near", [True, False], ids=["mapped", "fetched"])
def test_nothing_wrong(root: Path, tmp_path: Path, table: pa.Table, near: bool, size: str) -> None:
    """The feature is there: a fresh index means that no footer is opened."""
    lake, store = open_beside(root, copied(root, tmp_path / "i"), near=near)
    for question in QUESTIONS:
        if "st.b" not in str(question.where):
            used = check(lake, table, question)
            assert used.covered == FILES
            assert used.problems == ()
    assert not footers_opened(store, root)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("near", [True, False], ids=["mapped", "fetched"])
def test_flipped_bytes_of_segments(
    root: Path, tmp_path: Path, table: pa.Table, near: bool, size: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any byte of any array: the same rows, and no footer is opened without a reason in the trace."""
    rng = random.Random(f"{near} {size}")
    folder = copied(root, tmp_path / "i")
    if size == "large":
        monkeypatch.setattr(draft_module, "BLOCK", 2)
        lake = sk.open(root, index_root=folder)
        build(lake, rebuild=True)
    every = {path: regions(path) for path in segments(folder)}
    names = sorted({name for found in every.values() for name in found})
    told: Counter[str] = Counter()
    for case in range(max(FLIPS // 5, len(names))):
        path = rng.choice(list(every))
        name = names[case % len(names)]
        spans = [span for span in every[path].get(name, every[path]["all"]) if len(span)]
        if not spans:
            continue
        position = rng.choice(rng.choice(spans))
        data = bytearray(path.read_bytes())
        good = bytes(data)
        data[position] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        lake, store = open_beside(root, folder, near=near)
        for question in rng.sample(QUESTIONS, 2):
            used = check(lake, table, question)
            note = f"{name} of {path.name}, byte {position}, {question.where}"
            opened = footers_opened(store, root) if "st.b" not in str(question.where) else set()
            store.requests.clear()
            # What is noticed when rows are read comes after the trace of the plan.
            problems = used.problems or lake.scan("id = 1").trace().index.problems
            assert bool(opened) <= bool(problems), note
            told[name] += bool(problems)
            told["problems"] += bool(problems)
        if name == "directory":
            assert used.problems, f"{path.name}, byte {position}"
            assert used.covered < FILES
        path.write_bytes(good)
    assert told["directory"]
    assert told["marks"]
    assert told["problems"] > 20


@pytest.mark.parametrize("near", [True, False], ids=["mapped", "fetched"])
def test_flipped_bytes_of_the_manifest(root: Path, tmp_path: Path, table: pa.Table, near: bool) -> None:
    rng = random.Random(f"manifest {near}")
    folder = copied(root, tmp_path / "i")
    (path,) = manifests(folder)
    good = path.read_bytes()
    for position in rng.sample(range(len(good)), min(FLIPS // 6, len(good))):
        data = bytearray(good)
        data[position] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        lake, _ = open_beside(root, folder, near=near)
        used = check(lake, table, rng.choice(QUESTIONS))
        assert used.covered == 0, position
        assert used.problems, position


@pytest.mark.parametrize("near", [True, False], ids=["mapped", "fetched"])
def test_truncated_files(root: Path, tmp_path: Path, table: pa.Table, near: bool) -> None:
    folder = copied(root, tmp_path / "i")
    rng = random.Random(f"cut {near}")
    for path in [*segments(folder), *manifests(folder)]:
        good = path.read_bytes()
        for cut in (0, 1, 63, 64, rng.randrange(len(good)), len(good) - 60, len(good) - 2):
            path.write_bytes(good[:cut])
            lake, _ = open_beside(root, folder, near=near)
            used = check(lake, table, rng.choice(QUESTIONS))
            assert used.covered < FILES
            assert used.problems
        path.write_bytes(good + b"more")
        lake, _ = open_beside(root, folder, near=near)
        used = check(lake, table, rng.choice(QUESTIONS))
        assert used.covered < FILES
        assert used.problems
        path.write_bytes(good)
    lake, _ = open_beside(root, folder, near=near)
    assert check_all(lake, table).problems == ()
