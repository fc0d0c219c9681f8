"""Which segments make up the index: commits of many at once, and what is swept away."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from obstore.store import MemoryStore

from skipstone.errors import ChangedFileError, ConflictError, MissingFileError
from skipstone.index.container import BadIndex
from skipstone.index.manifest import (
    Manifest,
    SegmentNote,
    commit,
    is_segment,
    latest,
    manifest_name,
    read_manifest,
    sweep,
)
from skipstone.index.spec import LISTS, Spec
from skipstone.store.store import ListedFile, Store, open_root


def note(number: int, **more: Any) -> SegmentNote:
    given = {
        "size": 1,
        "tail": 1,
        "files": 1,
        "live": 1,
        "groups": 1,
        "spec": "s",
        "types": "t",
        "written": 0.0,
    }
    return SegmentNote(f"segment-{number:032x}.skip", **{**given, **more})


def add(number: int) -> Any:
    return lambda before: replace(before, segments=(*before.segments, note(number)))


def memory() -> Store:
    return open_root("index", store=MemoryStore())


@pytest.fixture(params=["folder", "store"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return open_root(tmp_path / "index") if request.param == "folder" else memory()


NOTES = st.builds(note, st.integers(0, 2**100), size=st.integers(0, 2**40), spec=st.text(max_size=5))

PATH = st.lists(st.text(max_size=3), max_size=2)
PATHS = st.lists(PATH, max_size=2)
SPECS = st.fixed_dictionaries(
    {
        "columns": st.lists(st.tuples(PATH, st.text()).map(list), max_size=2),
        "pages": st.booleans(),
        "own_blooms": st.booleans(),
        **dict.fromkeys(LISTS, PATHS),
    }
)


@given(st.integers(0, 10**12 - 1), st.lists(NOTES, max_size=4), st.just({}) | SPECS)
def test_round_trip(number: int, notes: list[SegmentNote], spec: dict[str, Any]) -> None:
    manifest = Manifest(number, tuple(notes), spec, 12.5)
    assert Manifest.decode(manifest.encode()) == manifest
    assert manifest.files == len(notes)


@given(st.data())
def test_any_flip_is_seen(data: st.DataObject) -> None:
    spec = Spec(((("a",), pa.int64()),)).to_json()
    good = Manifest(3, (note(1), note(2)), spec, 1.0).encode()
    assert Manifest.decode(good).spec == spec
    bad = bytearray(good)
    bad[data.draw(st.integers(0, len(good) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(BadIndex):
        Manifest.decode(bytes(bad))


@pytest.mark.parametrize("data", [b"", b"\n", b"{}", b"\xff\xfe", b"skipstone index, format 1, check 0\n{}"])
def test_no_manifest_at_all(data: bytes) -> None:
    with pytest.raises(BadIndex):
        Manifest.decode(data)


def test_the_highest_number_stands(store: Store) -> None:
    assert read_manifest(store) == Manifest()
    for number in (9, 10, 2):
        store.write(manifest_name(number), [Manifest(number).encode()])
    store.write("manifest-x.json", [b""])
    assert read_manifest(store).number == 10
    assert latest(store.list_prefix("")) == (10, next(e for e in store.list_prefix("") if "10" in e.key))
    store.write(manifest_name(11), [Manifest(10).encode()])
    with pytest.raises(BadIndex, match="is of version 10, not 11"):
        read_manifest(store)


def test_a_commit(store: Store) -> None:
    assert commit(store, lambda _: None) == Manifest()
    assert store.list_prefix("") == []
    first = commit(store, add(1))
    assert (first.number, first.segments) == (1, (note(1),))
    assert commit(store, add(2)).segments == (note(1), note(2))
    assert read_manifest(store).number == 2
    assert commit(store, lambda _: None).number == 2


def test_a_damaged_manifest_is_replaced(store: Store) -> None:
    commit(store, add(1))
    store.write(manifest_name(7), [b"damage"])
    after = commit(store, add(2))
    assert after.number == 8
    assert after.segments == (note(2),)
    assert read_manifest(store) == after


def test_a_commit_starts_again_from_what_the_winner_left(store: Store) -> None:
    seen = []

    def change(before: Manifest) -> Manifest:
        seen.append(before.number)
        if len(seen) < 4:
            commit(store, add(100 + len(seen)))
        return add(1)(before)

    after = commit(store, change)
    assert seen == [0, 1, 2, 3]
    assert [n.name[-8:-5] for n in after.segments] == ["065", "066", "067", "001"]


def test_a_commit_gives_up_in_the_end(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    import skipstone.index.manifest as module

    monkeypatch.setattr(module, "_TRIES", 3)

    def change(before: Manifest) -> Manifest:
        store.write(manifest_name(before.number + 1), [Manifest(before.number + 1).encode()])
        return before

    with pytest.raises(ConflictError, match="concurrent commits"):
        commit(store, change)


@pytest.mark.parametrize("commits", [5])
def test_sixteen_at_once(store: Store, commits: int) -> None:
    """Every commit is in the end there, once; nobody fails, and readers always find a manifest."""
    failures: list[BaseException] = []
    done = threading.Event()

    def work(worker: int) -> None:
        try:
            for number in range(commits):
                commit(store, add(worker * 1000 + number))
        except BaseException as error:
            failures.append(error)

    def read() -> None:
        newest = 0
        while not done.is_set():
            try:
                number = read_manifest(store).number
            except Exception as error:
                # A reader that was overtaken looks again; anything else is a defect.
                if not isinstance(error, ChangedFileError | MissingFileError):
                    failures.append(error)
                continue
            if number < newest:
                failures.append(AssertionError(f"version {number} after {newest}"))
            newest = number

    threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
    reader = threading.Thread(target=read)
    for thread in [reader, *threads]:
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    reader.join()
    assert not failures, failures[:3]
    manifest = read_manifest(store)
    assert manifest.number >= 16 * commits
    assert {n.name for n in manifest.segments} == {
        note(w * 1000 + n).name for w in range(16) for n in range(commits)
    }
    assert len(manifest.segments) == 16 * commits


def test_what_is_swept_and_what_stays(tmp_path: Path) -> None:
    """Old manifests go, and old segments that none of the last manifests names; nothing else does."""
    store = open_root(tmp_path)
    old = time.time() - 3 * 24 * 3600

    def file(name: str, *, aged: bool) -> None:
        (tmp_path / name).write_bytes(b"x")
        if aged:
            os.utime(tmp_path / name, (old, old))

    for number in range(1, 9):
        file(note(number).name, aged=True)
        commit(store, lambda before, n=number: replace(before, segments=(note(n),)))
    file(note(50).name, aged=True)
    file(note(51).name, aged=False)  # of a job that may be running
    others = ["readme.txt", "segment-1.skip", "manifest-1.json", "manifest-.json", ".abc.tmp", "x.parquet"]
    for name in others:
        file(name, aged=True)
    (tmp_path / "sub").mkdir()
    file(f"sub/{note(60).name}", aged=True)
    current = read_manifest(store)
    sweep(store, current)
    assert (tmp_path / manifest_name(1)).exists(), "who has just listed it may still want it"
    for number in (1, 2, 3, 4, 6):
        os.utime(tmp_path / manifest_name(number), (old, old))
    sweep(store, current)
    left = {entry.key for entry in store.list_prefix("")}
    assert {*others, f"sub/{note(60).name}"} <= left
    assert {key for key in left if key.startswith("manifest-0")} == {manifest_name(n) for n in (5, 6, 7, 8)}
    wanted = {note(n).name for n in (5, 6, 7, 8, 51)}
    assert {key for key in left if is_segment(key)} == wanted


def test_a_sweep_survives_what_others_delete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A manifest that another sweep has deleted since the listing is no failure of the commit."""
    store = open_root(tmp_path)
    for number in range(3):
        commit(store, add(number))
    listed = store.list_prefix("")
    (tmp_path / manifest_name(1)).unlink()
    monkeypatch.setattr(type(store), "list_prefix", lambda self, prefix: list(listed))
    sweep(store, read_manifest(store, listed))


def test_age_of_objects(tmp_path: Path) -> None:
    """What a store doesn't tell the age of is never old."""
    from skipstone.index.manifest import _age

    assert _age(ListedFile("a", 1, None)) == 0.0
    assert _age(ListedFile("a", 1, (1, 0, 5))) > 1e9
