"""Appends are staged, then published: whole, once, or not at all."""

from __future__ import annotations

import gc
import os
import pickle
import threading
import time
from pathlib import Path

import pytest

import skipstone as sk
from skipstone.errors import UsageError, WriteError
from skipstone.lake.append import Append, staged_as
from skipstone.lake.journal import JournalSource, ingested
from skipstone.lake.records import (
    done_key,
    job_of,
    publish_key,
    read_records,
)
from skipstone.store.store import Store, open_root
from tests.unit.lake.append._jobs import keys, leases, publish, stage, visible


def test_a_job_is_published(store: Store) -> None:
    with Append.begin(store) as append:
        assert len(append.job) == 20
        assert int(append.job, 16) >= 0
        names = stage(append)
        append.stage.write(f"day=0/part-0-try2-{append.job}.parquet", [b"a lost try"])
        listed = append.publish(names)
    assert [entry.key for entry in listed] == names
    there = {entry.key: entry for entry in store.list()}
    assert listed == [there[name] for name in names], "as a listing tells it"
    assert sorted(there) == sorted([*names, done_key(append.job), publish_key(append.job)])
    assert visible(store) == sorted(names)
    assert leases() == []
    lake = sk.Lake(store, "")
    assert sorted(lake.scan().to_arrow()["a"].to_pylist()) == [0, 1, 2]


def test_files_staged_by_their_own_keys(store: Store) -> None:
    with Append.begin(store) as append:
        key = f"f-{append.job}.parquet"
        append.stage.write(key, [b"x"])
        append.publish([key])
    assert visible(store) == [key]


def test_nothing_is_published_of_a_job_with_nothing(store: Store) -> None:
    with Append.begin(store) as append:
        assert append.publish([], sources=[JournalSource("empty.csv", 0, "1")]) == []
    assert visible(store) == []
    assert ingested(store) == {JournalSource("empty.csv", 0, "1")}


def test_workers_elsewhere_need_the_stage_and_the_name(tmp_path: Path) -> None:
    store = open_root(tmp_path / "lake")
    with Append.begin(store) as append:
        there, job = pickle.loads(pickle.dumps((append.stage, append.job)))
        key = f"f-{job}.parquet"
        there.write(staged_as(key), [b"x"])
        append.publish([key])
    assert visible(store) == [key]


def test_what_was_not_staged_is_named_and_nothing_is_published(store: Store) -> None:
    with Append.begin(store) as append:
        names = stage(append)
        with pytest.raises(WriteError, match="file was not staged") as caught:
            append.publish([*names, f"gone-{append.job}.parquet"])
        assert caught.value.path is not None
        assert f"gone-{append.job}" in caught.value.path
        assert visible(store) == []
        assert not read_records(store)[append.job].is_unfinished
        append.publish(names)
    assert len(visible(store)) == 3


@pytest.mark.parametrize(
    "name",
    [
        "f.parquet",
        "f-{job}.csv",
        "../f-{job}.parquet",
        "_x/f-{job}.parquet",
        ".f-{job}.parquet",
        "a/f-{job}.parquet",
    ],
)
def test_names_that_can_not_be(store: Store, name: str) -> None:
    with Append.begin(store) as append:
        key = name.format(job=append.job)
        with pytest.raises(UsageError):
            append.publish([key])
        with pytest.raises(UsageError, match="duplicate keys"):
            append.publish(stage(append, 1) * 2)
    assert [key for key in keys(store) if job_of(key)] == []


def test_a_file_that_exists_is_never_overwritten(store: Store) -> None:
    append = Append.begin(store)
    names = stage(append)
    store.write(names[1], [b"precious"])
    with pytest.raises(sk.errors.ConflictError, match="already exists"):
        append.publish(names)


def test_a_job_ends_once(store: Store) -> None:
    append = Append.begin(store)
    names = stage(append)
    append.publish(names)
    append.abort()
    assert visible(store) == sorted(names)
    with pytest.raises(UsageError, match="has ended"):
        append.publish(names)


@pytest.mark.parametrize("how", ["abort", "error", "forgotten in its context"])
def test_what_is_not_published_is_removed(store: Store, how: str) -> None:
    class Boom(Exception):
        pass

    def run() -> None:
        with Append.begin(store) as append:
            stage(append)
            assert len(leases()) == 1
            if how == "abort":
                append.abort()
            elif how == "error":
                raise Boom

    if how == "error":
        with pytest.raises(Boom):
            run()
    else:
        run()
    assert store.list_prefix("") == []
    assert leases() == []


def test_a_fork_does_not_end_a_job(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    append = Append.begin(store)
    names = stage(append)
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: 1)
        append.abort()
    append.publish(names)
    assert visible(store) == sorted(names)


def test_the_thread_ends_with_a_job_that_is_forgotten(store: Store) -> None:
    append = Append.begin(store)
    assert len(leases()) == 1
    del append
    gc.collect()
    until = time.monotonic() + 120
    while leases() and time.monotonic() < until:
        time.sleep(0.01)
    assert leases() == []


def test_two_jobs_at_once(store: Store) -> None:
    one, two = Append.begin(store), Append.begin(store)
    first, second = stage(one, first=10), stage(two, first=20)
    one.publish(first)
    assert visible(store) == sorted(first)
    third = Append.begin(store)
    two.publish(second)
    third.abort()
    assert visible(store) == sorted([*first, *second])


def test_many_jobs_in_threads(store: Store) -> None:
    done: list[str] = []

    def work() -> None:
        name = threading.current_thread().name
        done.extend(publish(store, 2, sources=[JournalSource(name, 1, "")]) for _ in range(3))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 12
    assert len(visible(store)) == 24
    assert len(ingested(store)) == 4
