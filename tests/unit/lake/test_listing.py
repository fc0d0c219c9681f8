"""A listing made side by side is the listing."""

from __future__ import annotations

import pickle
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.store import MemoryStore

import skipstone as sk
from skipstone.engine.jobs import LocalEngine
from skipstone.errors import ReadError
from skipstone.lake import records
from skipstone.lake.records import list_again, list_on
from skipstone.store.store import ListedFile, Store, open_root, open_store

KEYS = [
    "plain.parquet",
    "empty.parquet",
    "_skipstone/manifest-000000000001.json",
    *(f"day={day:02}/hour={hour}/{n}.parquet" for day in range(40) for hour in range(2) for n in range(2)),
    *(f"day={day:02}/x.parquet" for day in range(0, 40, 3)),
]
DEEP = [f"only/region={a}/day={b}/f.parquet" for a in range(30) for b in range(3)] + ["only/f", "f", "z/f"]


class Sent:
    """An engine that pickles, as one with processes does, and counts."""

    name = "sent"

    def __init__(self) -> None:
        self.tasks = 0

    def map(
        self,
        work: Callable[[Any], Any],
        tasks: Sequence[Any],
        *,
        on_done: Callable[[int], None] | None = None,
    ) -> list[Any]:
        self.tasks += len(tasks)
        sent = pickle.dumps(sk.with_credentials((work, list(tasks))))
        return LocalEngine(3).map(*pickle.loads(sent))

    def close(self) -> None:
        pass


def on_disk(root: Path, keys: Sequence[str]) -> Store:
    for key in keys:
        (root / key).parent.mkdir(parents=True, exist_ok=True)
        (root / key).write_bytes(b"" if "empty" in key else key.encode())
    return open_store(root)[0]


@pytest.mark.parametrize(("keys", "tasks"), [(KEYS, 41), (DEEP, 30), (["a", "b"], 0), (["d/a", "b"], 0)])
def test_a_directory(tmp_path: Path, keys: list[str], tasks: int) -> None:
    store = on_disk(tmp_path, keys)
    engine = Sent()
    found = list_on(engine, store)
    assert found == store.list()
    assert [entry.key for entry in found] == sorted(keys)
    assert engine.tasks == tasks
    assert list_on(LocalEngine(), store) == found


def test_folders_are_shared_out_in_some_tasks(tmp_path: Path) -> None:
    store = on_disk(tmp_path, [f"p={n}/f" for n in range(200)])
    engine = Sent()
    assert list_on(engine, store) == store.list()
    assert engine.tasks == 64


def test_one_file(tmp_path: Path) -> None:
    on_disk(tmp_path, KEYS)
    store, _ = open_store(tmp_path / "plain.parquet")
    assert [entry.key for entry in list_on(Sent(), store)] == ["plain.parquet"]


def test_links_in_circles(tmp_path: Path) -> None:
    store = on_disk(tmp_path, ["a/b/c/f", "a/g", "d/h"])
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    (tmp_path / "a" / "b" / "self").symlink_to(tmp_path / "a" / "b")
    (tmp_path / "d" / "across").symlink_to(tmp_path / "a")
    (tmp_path / "a" / "dead").symlink_to(tmp_path / "nowhere")
    assert list_on(Sent(), store) == store.list()


def test_a_folder_that_goes_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = on_disk(tmp_path, ["a/f", "b/f"])
    monkeypatch.setattr(
        type(store), "list_directories", lambda self: ["a", "b", "gone"] if self == store else []
    )
    assert [entry.key for entry in list_on(Sent(), store)] == ["a/f", "b/f"]


def test_no_directory(tmp_path: Path) -> None:
    store = on_disk(tmp_path / "lake", ["a/f"])
    (tmp_path / "lake" / "a" / "f").unlink()
    (tmp_path / "lake" / "a").rmdir()
    assert list_on(Sent(), store) == []
    (tmp_path / "lake").rmdir()
    with pytest.raises(ReadError, match="no such file or directory"):
        list_on(Sent(), store)


@pytest.mark.parametrize("keys", [KEYS, DEEP])
def test_a_bucket(s3: dict[str, str], keys: list[str]) -> None:
    root = f"s3://bucket/{len(keys)}"
    store = open_root(root, storage_options=s3)
    for key in keys:
        store.write(key, [b"" if "empty" in key else key.encode()])
    engine = Sent()
    found = list_on(engine, store)
    assert found == store.list()
    assert [entry.key for entry in found] == sorted(keys)
    assert engine.tasks > 20
    assert list_on(LocalEngine(), store) == found
    # What marks a folder is no file, whether it is listed or not.
    mark = urllib.request.Request(f"{s3['aws_endpoint']}/bucket/{len(keys)}/marked/", method="PUT", data=b"")
    urllib.request.urlopen(mark).close()
    assert [entry for entry in list_on(engine, store) if entry.key != "marked"] == found


def test_memory() -> None:
    bucket = MemoryStore()
    for key in KEYS:
        obstore.put(bucket, f"lake/{key}", b"x")
    store, _ = open_store("lake", store=bucket)
    assert list_on(LocalEngine(2), store) == store.list()


# -- when --------------------------------------------------------------------------------------


def entries(folders: int, each: int) -> list[ListedFile]:
    return [ListedFile(f"p={folder}/{n}", 1, None) for folder in range(folders) for n in range(each)]


@pytest.mark.parametrize(
    ("before", "shared"),
    [(entries(33, 40), True), (entries(32, 40), False), (entries(40, 2), False), (entries(1, 5000), False)],
)
def test_small_and_flat_lakes_are_listed_at_once(
    tmp_path: Path, before: list[ListedFile], shared: bool
) -> None:
    store = on_disk(tmp_path, KEYS)
    engine = Sent()
    assert list_again(engine, store, before) == store.list()
    assert (engine.tasks > 0) == shared


def test_threads_do_not_list_local_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "list_on", None)
    store = on_disk(tmp_path, KEYS)
    assert list_again(LocalEngine(), store, entries(50, 50)) == store.list()


def test_a_refresh_lists_on_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_MANY_FILES", 50)
    for day in range(40):
        (tmp_path / f"day={day}").mkdir()
        for n in range(2):
            pq.write_table(pa.table({"id": [10 * day + n]}), tmp_path / f"day={day}" / f"{n}.parquet")
    lake = sk.open(tmp_path)
    lake.index.build(engine="local")
    pq.write_table(pa.table({"id": [999]}), tmp_path / "day=7" / "new.parquet")
    (tmp_path / "day=8" / "0.parquet").unlink()
    calls: list[str] = []

    class Watched(Sent):
        def map(self, work: Any, tasks: Any, *, on_done: Any = None) -> list[Any]:
            calls.append(work.__name__)
            return super().map(work, tasks)

    report = lake.index.refresh(engine=Watched())
    assert calls[:2] == ["_list", "index_group"]
    assert (report.indexed, report.already_indexed, report.dropped) == (1, 79, 1)
    assert lake.entries == sk.open(tmp_path).entries
    assert lake.scan("id = 999").count() == 1
    assert lake.scan("id = 80").count() == 0
