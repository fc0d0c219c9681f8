"""What is staged or half published is seen by nobody, and what a listing costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import obstore
import pyarrow.dataset
import pytest
from obstore.store import MemoryStore

import skipstone as sk
from skipstone.engine.jobs import LocalEngine
from skipstone.errors import ReadError
from skipstone.lake import records
from skipstone.lake.append import Append
from skipstone.lake.journal import JournalSource, ingested
from skipstone.lake.records import (
    done_key,
    job_of,
    lease_key,
    list_again,
    list_settled,
    publish_key,
)
from skipstone.store.store import Store, open_root, open_store
from tests.unit.lake.append._jobs import HOUR, Counted, aged, half, keys, publish, stage, visible


def open_lake(store: Store, pattern: str = "") -> sk.Lake:
    return sk.Lake(store, pattern)


@pytest.mark.parametrize("pattern", ["", "**/*.parquet", "day=*/part-*"])
def test_a_job_amid_its_publishing_is_not_seen(store: Store, pattern: str) -> None:
    job = publish(store)
    other = half(store)
    lake = open_lake(store, pattern)
    assert [job_of(entry.key) for entry in lake.entries] == [job]
    lake.refresh()
    assert lake.pinned.latest(LocalEngine()).entries == lake.entries
    assert [job_of(entry.key) for entry in lake.entries] == [job]
    store.delete([lease_key(other), publish_key(other)])
    lake.refresh()
    assert {job_of(entry.key) for entry in lake.entries} == {job, other}, "a lake copied without records"


def test_a_listing_on_an_engine_hides_it_too(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_MANY_FILES", 0)
    monkeypatch.setattr(records, "_MANY_FOLDERS", 1)
    publish(store, 4)
    half(store)
    before = list_settled(store)

    class Elsewhere(LocalEngine):
        name = "elsewhere"

    assert list_again(Elsewhere(2), store, before) == before
    assert len(visible(store)) == 4


def test_a_partition_that_is_opened_alone(tmp_path: Path) -> None:
    """The records are the lake's, further up."""
    bucket = MemoryStore()
    for root, near in (
        (open_root(tmp_path / "lake"), tmp_path / "lake"),
        (open_root("lake", store=bucket), None),
    ):
        job = publish(root)
        half(root)
        name = "lake/day=0" if near is None else near / "day=0"
        part, pattern = open_store(name, store=bucket if near is None else None)
        assert [job_of(entry.key) for entry in open_lake(part, pattern).entries] == [job]


def test_a_file_opened_by_its_own_name_is_read(tmp_path: Path) -> None:
    store = open_root(tmp_path / "lake")
    job = half(store)
    assert sk.open(tmp_path / "lake" / "day=0" / f"part-0-{job}.parquet").scan().count() == 1
    with pytest.raises(ReadError, match="no file"):
        sk.open(tmp_path / "lake")


def test_records_that_can_not_be_read(store: Store) -> None:
    """They are missed only where there is a file of a job."""

    class Blind:
        def __init__(self, below: Store) -> None:
            self._below = below

        def __getattr__(self, name: str) -> Any:
            return getattr(self._below, name)

        def list_prefix(self, prefix: str) -> Any:
            raise ReadError("permission denied", path=prefix)

    blind: Any = Blind(store)
    store.write("f.parquet", [b"x"])
    assert [entry.key for entry in list_settled(blind)] == ["f.parquet"]
    publish(store)
    with pytest.raises(ReadError, match="denied"):
        list_settled(blind)


def test_what_a_listing_costs(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def cost() -> list[str]:
        counted: Any = Counted(store)
        list_settled(counted)
        return counted.asked

    once = [records.APPENDS, "list"]
    store.write("f.parquet", [b"x"])
    assert cost() == once
    job = publish(store)
    assert cost() == once, "a job done just now"
    other = half(store)
    assert cost() == once, "one that is not done"
    store.delete([publish_key(other), lease_key(other), publish_key(job), done_key(job)])
    assert cost() == once * 2, "files that came just now, and no records"
    aged(monkeypatch, {".parquet": 2 * HOUR})
    assert cost() == once, "long done"


def test_what_publishing_costs_on_s3(s3: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Several files over HTTP."""
    asked: Counter[str] = Counter()

    def counted(name: str) -> Callable[..., Any]:
        real = getattr(obstore, name)

        def call(*args: Any, **choice: Any) -> Any:
            asked[name] += 1
            return real(*args, **choice)

        return call

    for name in ("put", "copy", "delete", "head", "list", "list_with_delimiter"):
        monkeypatch.setattr(obstore, name, counted(name))
    store = open_root("s3://bucket/appended", storage_options=s3)
    append = Append.begin(store)
    assert asked == {"put": 1, "list": 2}
    names = stage(append, 8)
    asked.clear()
    listed = append.publish(names, sources=[JournalSource("u", 1, "v")])
    assert asked == {
        "list": 3,  # the stage, journals, the stage again
        "put": 3,  # that it is publishing, its journal, that it is done
        "head": 8,
        "copy": 16,  # of which the client itself refuses half, without a request
        "delete": 9,
        "list_with_delimiter": 2,
    }
    assert [entry.key for entry in listed] == names
    there = {entry.key: entry for entry in store.list()}
    assert listed == [there[name] for name in names]
    assert [key for key in there if "/staged/" in key or key.endswith(".lease")] == []
    assert sk.open("s3://bucket/appended", storage_options=s3).scan().count() == 8
    half(store)
    assert sk.open("s3://bucket/appended", storage_options=s3).scan().count() == 8
    assert ingested(store) == {JournalSource("u", 1, "v")}


# -- other readers, and the index ----------------------------------------------------------------


def test_other_readers_see_nothing_of_a_stage(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    store = open_root(root)
    publish(store, 2)
    append = Append.begin(store)
    stage(append, 4)
    for _ in range(2):
        assert len(pyarrow.dataset.dataset(root, partitioning="hive").files) == 2
        for glob in ("**", "**/*.parquet", "*/*.parquet"):
            found = duckdb.sql(
                f"select file from glob('{root}/{glob}') where file like '%.parquet'"
            ).fetchall()
            assert len(found) == 2, glob
        assert sk.open(root).scan().count() == 2
        append.abort()


def test_the_index_and_the_records_leave_each_other_alone(store: Store) -> None:
    job = publish(store, 3)
    other = half(store)
    lake = open_lake(store)
    before = {key for key in keys(store) if "/appends/" in key or "/staged/" in key}
    assert lake.index.build(engine="local").indexed == 3
    publish(store, 1)
    assert lake.index.refresh(engine="local").indexed == 1
    again = open_lake(store)
    assert again.index.coverage is not None
    assert again.index.coverage.covered == 4
    again.index.drop()
    assert before - {lease_key(other)} <= set(keys(store))
    assert [key for key in keys(store) if "segment-" in key or "manifest-" in key] == []
    assert {job_of(entry.key) for entry in open_lake(store).entries} >= {job}
