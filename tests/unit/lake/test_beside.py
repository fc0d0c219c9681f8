"""A lake's own files are where no other reader of the lake takes them for data."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.store import LocalStore, MemoryStore

import skipstone as sk
from skipstone.errors import ReadError, WriteError
from skipstone.lake.append import Append, staged_as
from skipstone.lake.journal import JournalSource, ingested
from skipstone.lake.records import BESIDE, FOLDER, SiblingStore, open_lake_root, with_own_files
from skipstone.store.objects import prefix_root
from skipstone.store.store import Store, open_root
from tests.support.readers import READERS
from tests.support.stores import own_files

TABLE = pa.table({"i": range(100)})


def publish(store: Store, sources: list[JournalSource] | None = None) -> str:
    """Append a file of a hundred rows, and give its key."""
    with Append.begin(store) as job:
        key = f"p=1/new-{job.job}.parquet"
        sink = pa.BufferOutputStream()
        pq.write_table(TABLE, sink)
        job.stage.write(staged_as(key), [sink.getvalue().to_pybytes()])
        job.publish([key], sources=sources or [])
    return key


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A lake of two files."""
    root = tmp_path / "lake"
    for number in (1, 2):
        (root / f"p={number}").mkdir(parents=True)
        pq.write_table(TABLE, root / f"p={number}" / "a.parquet", row_group_size=10)
    return root


@pytest.fixture
def busy(root: Path) -> Iterator[Path]:
    """The same with an index, records of a job that is done, its journal, and a job that is at work."""
    publish(open_lake_root(root), [JournalSource("s", 1, "v")])
    sk.open(root).index.build(blooms=["i"], engine="local")
    with Append.begin(open_lake_root(root)) as job:
        job.stage.write(staged_as(f"p=1/x-{job.job}.parquet"), [b"not yet a file"])
        yield root


@pytest.mark.parametrize("reader", READERS)
def test_others_read_an_indexed_lake_with_its_records(busy: Path, reader: str) -> None:
    assert READERS[reader](busy) == 300
    lake = sk.open(busy)
    assert lake.scan("i = 5").count() == 3
    assert lake.scan("i = 5").trace().index.covered == 3
    assert {path.suffix for path in busy.rglob("*") if path.is_file()} == {".parquet"}
    own = {
        path.relative_to(own_files(busy)).parts[0] for path in own_files(busy).rglob("*") if path.is_file()
    }
    assert own >= {"appends", "sources", "staged", "manifest-000000000001.json"}


@pytest.mark.parametrize("reader", ["pandas", "pyarrow"])
def test_others_pass_over_it_in_the_directory_above(busy: Path, reader: str) -> None:
    assert READERS[reader](busy.parent) == 300
    assert sk.open(busy.parent).scan().count() == 300


def test_an_older_place_is_still_used(root: Path) -> None:
    """Where an older version has written, in the lake, its index and records are found, and go on."""
    old = open_root(root)
    key = publish(old, [JournalSource("s", 1, "v")])
    sk.open(root, index_root=root / FOLDER).index.build(engine="local")
    lake = sk.open(root)
    assert lake.index.uri == str(root / FOLDER)
    assert lake.scan("i = 5").trace().index.covered == 3
    assert ingested(open_lake_root(root)) == {JournalSource("s", 1, "v")}
    (root / FOLDER / "appends" / f"{key[-28:-8]}.done").unlink()
    assert sk.open(root).scan().count() == 200, "a job that is not done is not seen"
    assert not own_files(root).exists()


def test_moved_by_hand_from_the_older_place(root: Path) -> None:
    publish(open_root(root), [JournalSource("s", 1, "v")])
    sk.open(root).index.build(engine="local")
    own_files(root).parent.mkdir()
    (root / FOLDER).rename(own_files(root))
    lake = sk.open(root)
    assert lake.scan("i = 5").trace().index.covered == 3
    assert ingested(open_lake_root(root)) == {JournalSource("s", 1, "v")}
    for reader in READERS.values():
        assert reader(root) == 300


def test_a_lake_that_is_moved_with_its_own_files(busy: Path, tmp_path: Path) -> None:
    (tmp_path / "b" / BESIDE).mkdir(parents=True)
    busy.rename(tmp_path / "b" / "other")
    own_files(busy).rename(own_files(tmp_path / "b" / "other"))
    lake = sk.open(tmp_path / "b" / "other")
    assert lake.scan("i = 5").trace().index.covered == 3
    assert ingested(lake.access.store) == {JournalSource("s", 1, "v")}
    own_files(tmp_path / "b" / "other").rename(own_files(busy))
    (tmp_path / "b" / "other").rename(busy)


def test_a_new_lake_of_the_same_name_has_taken_nothing_in(root: Path, tmp_path: Path) -> None:
    """Else what the old one took in would be missing from the new one for ever."""
    publish(open_lake_root(root), [JournalSource("s", 1, "v"), JournalSource("t", 1, "v")])
    root.rename(tmp_path / "old")
    assert ingested(open_lake_root(root)) == set()
    shutil.copytree(tmp_path / "old" / "p=2", root / "p=2")
    publish(open_lake_root(root), [JournalSource("s", 1, "v")])
    assert ingested(open_lake_root(root)) == {JournalSource("s", 1, "v")}
    assert sk.open(root).scan().count() == 200


def test_places_that_can_only_be_in_the_lake(root: Path, tmp_path: Path) -> None:
    """The root of a bucket, and a single file."""
    bucket = prefix_root("", None, MemoryStore())
    assert with_own_files(bucket) is bucket
    assert not isinstance(sk.open(root / "p=1" / "a.parquet").access.store, SiblingStore)
    assert isinstance(open_lake_root(tmp_path / "not" / "yet"), SiblingStore)


def test_a_link_to_a_lake_is_the_lake(root: Path, tmp_path: Path) -> None:
    """Else what was taken in by one name would be taken in again by the other."""
    publish(open_lake_root(root), [JournalSource("s", 1, "v")])
    (tmp_path / "links").mkdir()
    link = tmp_path / "links" / "link"
    link.symlink_to(root)
    assert ingested(open_lake_root(link)) == {JournalSource("s", 1, "v")}
    publish(open_lake_root(link), [JournalSource("t", 1, "v")])
    assert ingested(open_lake_root(root)) == {JournalSource("s", 1, "v"), JournalSource("t", 1, "v")}
    assert sk.open(root).scan().count() == sk.open(link).scan().count()
    sk.open(link).index.build(engine="local")
    assert sk.open(root).scan("i = 5").trace().index.covered == len(sk.open(root).files)
    assert {path.name for path in (tmp_path / "links").iterdir()} == {"link"}


def test_an_empty_directory_in_the_lake_hides_no_records(root: Path) -> None:
    publish(open_lake_root(root), [JournalSource("s", 1, "v")])
    (root / FOLDER).mkdir()
    assert ingested(open_lake_root(root)) == {JournalSource("s", 1, "v")}


def test_an_empty_directory_asks_for_records_in_the_lake(root: Path) -> None:
    (root / FOLDER).mkdir()
    publish(open_lake_root(root), [JournalSource("s", 1, "v")])
    assert ingested(open_lake_root(root)) == {JournalSource("s", 1, "v")}
    assert not own_files(root).exists()


def test_records_that_can_t_be_looked_into(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(open_lake_root(root), [JournalSource("s", 1, "v")])

    look = os.stat

    def refuse(path: Any, **options: Any) -> os.stat_result:
        if str(path).endswith(f".skipstone/{root.name}"):
            raise PermissionError(13, "Permission denied", str(path))
        return look(path, **options)

    monkeypatch.setattr(os, "stat", refuse)
    with pytest.raises(ReadError, match=r"\.skipstone.*can't read the directory: Permission denied"):
        open_lake_root(root)


def test_a_directory_above_that_may_not_be_written_to(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != root.parent)
    lake = sk.open(root)
    lake.index.build(engine="local")
    assert lake.index.uri == str(root / FOLDER)
    monkeypatch.undo()
    assert sk.open(root).index.uri == str(root / FOLDER), "found whoever looks"


def test_another_user_in_a_shared_directory(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who can write beside the lake and not to it must not be able to speak for it."""
    own_files(root).mkdir(parents=True)
    assert isinstance(open_lake_root(root), SiblingStore)
    root.parent.chmod(0o1777)
    assert isinstance(open_lake_root(root), SiblingStore)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    os.chown(own_files(root).parent, 4711, -1)
    assert not isinstance(open_lake_root(root), SiblingStore)


def test_on_an_object_store(tmp_path: Path, root: Path) -> None:
    bucket = LocalStore(tmp_path)
    store = with_own_files(prefix_root("lake", None, bucket))
    publish(store, [JournalSource("s", 1, "v")])
    lake = sk.open("lake", store=bucket)
    lake.index.build(engine="local")
    assert sk.open("lake", store=bucket).scan("i = 5").trace().index.covered == 3
    assert ingested(lake.access.store) == {JournalSource("s", 1, "v")}
    assert lake.index.uri.endswith("/.skipstone/lake")
    for reader in READERS.values():
        assert reader(root) == 300


def test_files_are_routed_by_their_keys(root: Path) -> None:
    store = open_lake_root(root)
    store.write(f"{FOLDER}/a/b", [b"1"])
    assert [entry.key for entry in store.list_prefix(FOLDER)] == [f"{FOLDER}/a/b"]
    assert store.path(f"{FOLDER}/a/b") == str(own_files(root) / "a" / "b")
    assert store.open(f"{FOLDER}/a/b").tail(9)[0] == b"1"
    assert store.child(FOLDER).uri == str(own_files(root))
    assert store.child(f"{FOLDER}/a").uri == str(own_files(root) / "a")
    assert store.list_directories() == [FOLDER, "p=1", "p=2"]
    assert [e.key for e in store.list()] == [f"{FOLDER}/a/b", "p=1/a.parquet", "p=2/a.parquet"]
    assert store.list() == store.list_prefix("")
    store.move(f"{FOLDER}/a/b", "p=1/b")
    assert (root / "p=1" / "b").read_bytes() == b"1"
    store.delete(["p=1/b", f"{FOLDER}/none"])
    store.write(f"{FOLDER}/a/c", [b"1"], exclusive=True)
    store.clear(f"{FOLDER}/a")
    assert store.list_prefix(FOLDER) == []
    assert store.list_directories() == ["p=1", "p=2"]
    with pytest.raises(WriteError):
        store.move(f"{FOLDER}/a/b", "p=1/b")


def test_opening_lists_the_own_files_once(monkeypatch: pytest.MonkeyPatch) -> None:
    bucket: Any = MemoryStore()
    store = with_own_files(open_root("lake", store=bucket))
    assert isinstance(store, SiblingStore)
    job = publish(store)
    asked: list[str | None] = []
    real = obstore.list

    def counted(bucket: Any, prefix: str | None = None, **options: Any) -> Any:
        asked.append(prefix)
        return real(bucket, prefix, **options)

    monkeypatch.setattr(obstore, "list", counted)
    lake = sk.open("lake", store=bucket)
    assert [job in entry.key for entry in lake.entries] == [True]
    assert asked == ["lake", "lake/_skipstone", ".skipstone/lake", "lake"], "is it there, inside, beside, all"
