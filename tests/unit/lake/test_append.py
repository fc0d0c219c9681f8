"""Appends: staged, then published; debris, leases and journals."""

from __future__ import annotations

import gc
import io
import json
import os
import pickle
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import obstore
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from obstore.store import MemoryStore

import skipstone as sk
from skipstone.engine.jobs import LocalEngine
from skipstone.errors import CorruptFileError, ReadError, UsageError, WriteError
from skipstone.lake import journal, lease, listing, records, sweep
from skipstone.lake.append import Append, staged_as
from skipstone.lake.journal import Source, ingested
from skipstone.lake.lease import Lease, decode_lease
from skipstone.lake.listing import list_again
from skipstone.lake.records import (
    done_key,
    job_of,
    lease_key,
    list_settled,
    publish_key,
    read_records,
    stage_key,
)
from skipstone.store.place import Listed, Place, open_place, open_root

KINDS = ["local", "memory"]
HOUR = 3600.0


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A lake that does not exist yet."""
    return open_root(tmp_path / "lake") if request.param == "local" else open_root("x", store=MemoryStore())


def parquet(*values: int) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table({"a": pa.array(values, pa.int64())}), out)
    return out.getvalue()


def stage(append: Append, count: int = 3, first: int = 0) -> list[str]:
    keys = [f"day={n % 2}/part-{n}-{append.job}.parquet" for n in range(count)]
    for number, key in enumerate(keys):
        append.stage.write(staged_as(key), [parquet(first + number)])
    return keys


def publish(place: Place, count: int = 1, **choice: Any) -> str:
    append = Append.begin(place)
    append.publish(stage(append, count), **choice)
    return append.job


def keys(place: Place) -> list[str]:
    return [entry.key for entry in place.list()]


def visible(place: Place) -> list[str]:
    return [entry.key for entry in list_settled(place) if not entry.key.startswith("_")]


def leases() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("skipstone-lease")]


def aged(monkeypatch: pytest.MonkeyPatch, ages: dict[str, float]) -> None:
    """Let files whose keys end so be so many seconds older."""
    real = records.modified

    def older(entry: Listed) -> float | None:
        told = real(entry)
        extra = [age for end, age in ages.items() if entry.key.endswith(end)]
        return told if told is None else told - sum(extra)

    for module in (records, sweep):
        monkeypatch.setattr(module, "modified", older)


# -- publishing ----------------------------------------------------------------------------------


def test_a_job_is_published(place: Place) -> None:
    with Append.begin(place) as append:
        assert len(append.job) == 20
        assert int(append.job, 16) >= 0
        names = stage(append)
        append.stage.write(f"day=0/part-0-try2-{append.job}.parquet", [b"a lost try"])
        listed = append.publish(names)
    assert [entry.key for entry in listed] == names
    there = {entry.key: entry for entry in place.list()}
    assert listed == [there[name] for name in names], "as a listing tells it"
    assert sorted(there) == sorted([*names, done_key(append.job), publish_key(append.job)])
    assert visible(place) == sorted(names)
    assert leases() == []
    lake = sk.Lake(place, "")
    assert sorted(lake.scan().to_arrow()["a"].to_pylist()) == [0, 1, 2]


def test_files_staged_by_their_own_keys(place: Place) -> None:
    with Append.begin(place) as append:
        key = f"f-{append.job}.parquet"
        append.stage.write(key, [b"x"])
        append.publish([key])
    assert visible(place) == [key]


def test_nothing_is_published_of_a_job_with_nothing(place: Place) -> None:
    with Append.begin(place) as append:
        assert append.publish([], sources=[Source("empty.csv", 0, "1")]) == []
    assert visible(place) == []
    assert ingested(place) == {Source("empty.csv", 0, "1")}


def test_workers_elsewhere_need_the_stage_and_the_name(tmp_path: Path) -> None:
    place = open_root(tmp_path / "lake")
    with Append.begin(place) as append:
        there, job = pickle.loads(pickle.dumps((append.stage, append.job)))
        key = f"f-{job}.parquet"
        there.write(staged_as(key), [b"x"])
        append.publish([key])
    assert visible(place) == [key]


def test_what_was_not_staged_is_named_and_nothing_is_published(place: Place) -> None:
    with Append.begin(place) as append:
        names = stage(append)
        with pytest.raises(WriteError, match="it was not staged") as caught:
            append.publish([*names, f"gone-{append.job}.parquet"])
        assert caught.value.path is not None
        assert f"gone-{append.job}" in caught.value.path
        assert visible(place) == []
        assert not read_records(place)[append.job].is_unfinished
        append.publish(names)
    assert len(visible(place)) == 3


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
def test_names_that_can_not_be(place: Place, name: str) -> None:
    with Append.begin(place) as append:
        key = name.format(job=append.job)
        with pytest.raises(UsageError):
            append.publish([key])
        with pytest.raises(UsageError, match="twice"):
            append.publish(stage(append, 1) * 2)
    assert [key for key in keys(place) if job_of(key)] == []


def test_a_file_that_exists_is_never_overwritten(place: Place) -> None:
    append = Append.begin(place)
    names = stage(append)
    place.write(names[1], [b"precious"])
    with pytest.raises(sk.errors.ConflictError, match="exists already"):
        append.publish(names)


def test_a_job_ends_once(place: Place) -> None:
    append = Append.begin(place)
    names = stage(append)
    append.publish(names)
    append.abort()
    assert visible(place) == sorted(names)
    with pytest.raises(UsageError, match="is over"):
        append.publish(names)


@pytest.mark.parametrize("how", ["abort", "error", "forgotten in its context"])
def test_what_is_not_published_is_removed(place: Place, how: str) -> None:
    class Boom(Exception):
        pass

    def run() -> None:
        with Append.begin(place) as append:
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
    assert place.below("") == []
    assert leases() == []


def test_a_fork_does_not_end_a_job(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    append = Append.begin(place)
    names = stage(append)
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: 1)
        append.abort()
    append.publish(names)
    assert visible(place) == sorted(names)


def test_the_thread_ends_with_a_job_that_is_forgotten(place: Place) -> None:
    append = Append.begin(place)
    assert len(leases()) == 1
    del append
    gc.collect()
    until = time.monotonic() + 5
    while leases() and time.monotonic() < until:
        time.sleep(0.01)
    assert leases() == []


def test_two_jobs_at_once(place: Place) -> None:
    one, two = Append.begin(place), Append.begin(place)
    first, second = stage(one, first=10), stage(two, first=20)
    one.publish(first)
    assert visible(place) == sorted(first)
    third = Append.begin(place)
    two.publish(second)
    third.abort()
    assert visible(place) == sorted([*first, *second])


def test_many_jobs_in_threads(place: Place) -> None:
    done: list[str] = []

    def work() -> None:
        name = threading.current_thread().name
        done.extend(publish(place, 2, sources=[Source(name, 1, "")]) for _ in range(3))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 12
    assert len(visible(place)) == 24
    assert len(ingested(place)) == 4


# -- reading -------------------------------------------------------------------------------------


def half(place: Place) -> str:
    """A job amid its publishing."""
    append = Append.begin(place)
    names = stage(append)
    place.write(publish_key(append.job), [json.dumps({"keys": names}).encode()])
    place.move(f"{stage_key(append.job)}/{staged_as(names[0])}", names[0])
    append._renewal.end()
    return append.job


def open_lake(place: Place, pattern: str = "") -> sk.Lake:
    return sk.Lake(place, pattern)


@pytest.mark.parametrize("pattern", ["", "**/*.parquet", "day=*/part-*"])
def test_a_job_amid_its_publishing_is_not_seen(place: Place, pattern: str) -> None:
    job = publish(place)
    other = half(place)
    lake = open_lake(place, pattern)
    assert [job_of(entry.key) for entry in lake.entries] == [job]
    lake.refresh()
    lake.refresh(list_again(LocalEngine(), place, lake.entries))
    assert [job_of(entry.key) for entry in lake.entries] == [job]
    place.delete([lease_key(other), publish_key(other)])
    lake.refresh()
    assert {job_of(entry.key) for entry in lake.entries} == {job, other}, "a lake copied without records"


def test_a_listing_on_an_engine_hides_it_too(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "_MANY_FILES", 0)
    monkeypatch.setattr(listing, "_MANY_FOLDERS", 1)
    publish(place, 4)
    half(place)
    before = list_settled(place)

    class Elsewhere(LocalEngine):
        name = "elsewhere"

    assert list_again(Elsewhere(2), place, before) == before
    assert len(visible(place)) == 4


def test_a_partition_that_is_opened_alone(tmp_path: Path) -> None:
    """The records are the lake's, further up."""
    store = MemoryStore()
    for root, near in (
        (open_root(tmp_path / "lake"), tmp_path / "lake"),
        (open_root("lake", store=store), None),
    ):
        job = publish(root)
        half(root)
        name = "lake/day=0" if near is None else near / "day=0"
        part, pattern = open_place(name, store=store if near is None else None)
        assert [job_of(entry.key) for entry in open_lake(part, pattern).entries] == [job]


def test_a_file_opened_by_its_own_name_is_read(tmp_path: Path) -> None:
    place = open_root(tmp_path / "lake")
    job = half(place)
    assert sk.open(tmp_path / "lake" / "day=0" / f"part-0-{job}.parquet").scan().count() == 1
    with pytest.raises(ReadError, match="no file"):
        sk.open(tmp_path / "lake")


def test_records_that_can_not_be_read(place: Place) -> None:
    """They are missed only where there is a file of a job."""

    class Blind:
        def __init__(self, below: Place) -> None:
            self._below = below

        def __getattr__(self, name: str) -> Any:
            return getattr(self._below, name)

        def below(self, prefix: str) -> Any:
            raise ReadError("permission denied", path=prefix)

    blind: Any = Blind(place)
    place.write("f.parquet", [b"x"])
    assert [entry.key for entry in list_settled(blind)] == ["f.parquet"]
    publish(place)
    with pytest.raises(ReadError, match="denied"):
        list_settled(blind)


class Counted:
    """A place that counts what a store would be asked for to list it."""

    def __init__(self, below: Place) -> None:
        self._below = below
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._below, name)

    def list(self) -> Any:
        self.asked.append("list")
        return self._below.list()

    def below(self, prefix: str) -> Any:
        self.asked.append(prefix)
        return self._below.below(prefix)


def test_what_a_listing_costs(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def cost() -> list[str]:
        counted: Any = Counted(place)
        list_settled(counted)
        return counted.asked

    once = [records.APPENDS, "list"]
    place.write("f.parquet", [b"x"])
    assert cost() == once
    job = publish(place)
    assert cost() == once, "a job done just now"
    other = half(place)
    assert cost() == once, "one that is not done"
    place.delete([publish_key(other), lease_key(other), publish_key(job), done_key(job)])
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
    place = open_root("s3://bucket/appended", storage_options=s3)
    append = Append.begin(place)
    assert asked == {"put": 1, "list": 2}
    names = stage(append, 8)
    asked.clear()
    listed = append.publish(names, sources=[Source("u", 1, "v")])
    assert asked == {
        "list": 3,  # the stage, journals, the stage again
        "put": 3,  # that it is publishing, its journal, that it is done
        "head": 8,
        "copy": 16,  # of which the client itself refuses half, without a request
        "delete": 9,
        "list_with_delimiter": 2,
    }
    assert [entry.key for entry in listed] == names
    there = {entry.key: entry for entry in place.list()}
    assert listed == [there[name] for name in names]
    assert [key for key in there if "/staged/" in key or key.endswith(".lease")] == []
    assert sk.open("s3://bucket/appended", storage_options=s3).scan().count() == 8
    half(place)
    assert sk.open("s3://bucket/appended", storage_options=s3).scan().count() == 8
    assert ingested(place) == {Source("u", 1, "v")}


# -- other readers, and the index ----------------------------------------------------------------


def test_other_readers_see_nothing_of_a_stage(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    place = open_root(root)
    publish(place, 2)
    append = Append.begin(place)
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


def test_the_index_and_the_records_leave_each_other_alone(place: Place) -> None:
    job = publish(place, 3)
    other = half(place)
    lake = open_lake(place)
    before = {key for key in keys(place) if "/appends/" in key or "/staged/" in key}
    assert lake.index.build(engine="local").indexed == 3
    publish(place, 1)
    assert lake.index.refresh(engine="local").indexed == 1
    again = open_lake(place)
    assert again.index.coverage is not None
    assert again.index.coverage.covered == 4
    again.index.drop()
    assert before - {lease_key(other)} <= set(keys(place))
    assert [key for key in keys(place) if "segment-" in key or "manifest-" in key] == []
    assert {job_of(entry.key) for entry in open_lake(place).entries} >= {job}


# -- debris and leases ---------------------------------------------------------------------------


def gone_pid() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def sign(place: Place, job: str, **change: Any) -> None:
    """Let a job be somebody else's."""
    told = json.loads(Lease.of().encode())
    place.write(lease_key(job), [json.dumps({**told, **change}).encode()])


def begin_elsewhere(place: Place, publishing: bool, **change: Any) -> str:
    if publishing:
        job = half(place)
    else:
        append = Append.begin(place)
        stage(append)
        append._renewal.end()
        job = append.job
    sign(place, job, **change)
    return job


def debris(place: Place, job: str) -> list[str]:
    """What is left of a job, but for the records that hide what a store may still bring."""
    hiding = set() if place.local else {publish_key(job), done_key(job)}
    return [key for key in keys(place) if job in key and key not in hiding]


@pytest.mark.parametrize("publishing", [False, True], ids=["staging", "publishing"])
def test_a_job_whose_process_is_gone(place: Place, publishing: bool) -> None:
    for change in ({"pid": gone_pid()}, {"started": "1"}):
        job = begin_elsewhere(place, publishing, **change)
        Append.begin(place).abort()
        assert debris(place, job) == []
        assert visible(place) == []


@pytest.mark.parametrize("publishing", [False, True], ids=["staging", "publishing"])
@pytest.mark.parametrize("change", [{}, {"host": "other"}, {"boot": "other", "pid": 2**22 + 5}])
def test_live_jobs_stay(place: Place, publishing: bool, change: dict[str, Any]) -> None:
    job = begin_elsewhere(place, publishing, **change)
    before = debris(place, job)
    Append.begin(place).abort()
    assert debris(place, job) == before
    assert len(before) >= 4


@pytest.mark.parametrize("publishing", [False, True], ids=["staging", "publishing"])
@pytest.mark.parametrize(("minutes", "dead"), [(14, False), (16, True)])
def test_a_lease_runs_out(
    place: Place, publishing: bool, minutes: int, dead: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = begin_elsewhere(place, publishing, host="other")
    aged(monkeypatch, {f"{job}.lease": minutes * 60.0})
    before = keys(place)
    Append.begin(place).abort()
    if not dead:
        assert keys(place) == before
        return
    hiding = [done_key(job), publish_key(job)] if publishing else []
    assert [key for key in keys(place) if job in key] == hiding, "it may wake up, for a day"
    aged(monkeypatch, {f"{job}.done": 25 * HOUR})
    place.write(f"day=0/part-0-{job}.parquet", [b"it did"])
    assert visible(place) == ([] if publishing else [f"day=0/part-0-{job}.parquet"])
    Append.begin(place).abort()
    if publishing:
        assert [key for key in keys(place) if job in key] == []


@pytest.mark.parametrize(("hours", "dead"), [(23.0, False), (25.0, True)])
def test_a_stage_without_a_lease(
    place: Place, hours: float, dead: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = begin_elsewhere(place, False)
    place.delete([lease_key(job)])
    aged(monkeypatch, {".staged": hours * HOUR})
    Append.begin(place).abort()
    assert (debris(place, job) == []) == dead


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"pid": 3}', b"\xff", b"null"])
def test_a_lease_that_is_none(place: Place, data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    assert decode_lease(data) is None
    job = begin_elsewhere(place, False)
    place.write(lease_key(job), [data])
    Append.begin(place).abort()
    assert debris(place, job)
    aged(monkeypatch, {job + ".lease": 25 * HOUR, ".staged": 25 * HOUR})
    Append.begin(place).abort()
    assert debris(place, job) == []


def test_another_process_may_be_the_owner(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        append = Append.begin(place, owner=owner.pid)
        stage(append)
        assert leases() == [], "nobody renews it"
        aged(monkeypatch, {f"{append.job}.lease": 100 * HOUR})
        Append.begin(place).abort()
        assert len(debris(place, append.job)) == 4
    finally:
        owner.communicate(b"\n")
    Append.begin(place).abort()
    assert debris(place, append.job) == []
    with pytest.raises(UsageError, match="no process"):
        Append.begin(place, owner=owner.pid)


@pytest.mark.parametrize(("hours", "dead"), [(23.0, False), (25.0, True)])
def test_an_owner_elsewhere(place: Place, hours: float, dead: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    job = begin_elsewhere(place, False, host="other", renewed=False)
    aged(monkeypatch, {f"{job}.lease": hours * HOUR})
    Append.begin(place).abort()
    assert (debris(place, job) == []) == dead


def test_a_lease_is_renewed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.02)
    with Append.begin(place) as append:
        first = read_records(place)[append.job].lease
        until = time.monotonic() + 5
        while read_records(place)[append.job].lease == first and time.monotonic() < until:
            time.sleep(0.01)
        assert read_records(place)[append.job].lease != first
        assert decode_lease(place.open(lease_key(append.job)).tail(1000)[0]) == Lease.of()
    assert place.below("") == []


def test_records_of_jobs_long_done(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    job = publish(place, 2)

    def swept(age: float) -> list[str]:
        aged(monkeypatch, {f"{job}.done": age})
        Append.begin(place).abort()
        monkeypatch.undo()
        assert len(visible(place)) == 2
        return [key.rpartition(".")[2] for key in keys(place) if key.startswith(records.APPENDS)]

    assert swept(0.5 * HOUR) == ["done", "publish"]
    assert swept(2 * HOUR) == ["done"]
    assert swept(23 * HOUR) == ["done"]
    assert swept(25 * HOUR) == []
    job = publish(place, 0)
    before = read_records(place)[job].done
    assert swept(25 * HOUR) == ["done"], "never both at once"
    assert read_records(place)[job].done != before, "it stays for another day"


def test_what_a_killed_writer_leaves_of_a_record(tmp_path: Path) -> None:
    place = open_root(tmp_path)
    publish(place)
    left = [tmp_path / "_skipstone" / name / f".{'0' * 32}.tmp" for name in ("appends", "sources")]
    for path in left:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
    Append.begin(place).abort()
    assert all(path.exists() for path in left)
    for path in left:
        os.utime(path, (0, 0))
    Append.begin(place).abort()
    assert not any(path.exists() for path in left)


def test_a_damaged_intent(place: Place) -> None:
    """The files are found by their names then."""
    job = begin_elsewhere(place, True, pid=gone_pid())
    place.write(publish_key(job), [b"what"])
    Append.begin(place).abort()
    assert debris(place, job) == []


# -- journals ------------------------------------------------------------------------------------


def source(number: int) -> Source:
    return Source(f"in/{number}.csv", number, f"etag{number}")


def test_what_was_taken_in(place: Place) -> None:
    assert ingested(place) == set()
    publish(place, sources=[source(1), source(2)])
    publish(place, sources=iter([source(2), source(3)]))
    assert ingested(place) == {source(1), source(2), source(3)}
    assert pickle.loads(pickle.dumps(source(1))) == source(1)


def test_a_job_that_is_not_done_has_taken_in_nothing(place: Place) -> None:
    publish(place, sources=[source(1)])
    job = half(place)
    place.write(f"_skipstone/sources/{job}.json", [journal.encode_journal([source(9)])])
    assert ingested(place) == {source(1)}
    sign(place, job, pid=gone_pid())
    Append.begin(place).abort()
    assert ingested(place) == {source(1)}
    assert len(place.below("_skipstone/sources")) == 1


def test_many_journals_become_one(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    from skipstone.lake import append as module

    monkeypatch.setattr(module, "MANY_JOURNALS", 3)
    for number in range(4):
        publish(place, sources=[source(number)])
    assert len(place.below("_skipstone/sources")) == 4
    job = half(place)
    place.write(f"_skipstone/sources/{job}.json", [journal.encode_journal([source(99)])])
    publish(place)
    left = [entry.key for entry in place.below("_skipstone/sources")]
    assert len(left) == 2, "one for all that are done, and that of the job that is not"
    assert ingested(place) == {source(number) for number in range(4)}


def test_journals_are_merged_while_they_are_read(place: Place) -> None:
    """A listing that misses the new one, and the old ones too, is not believed."""
    for number in range(3):
        publish(place, sources=[source(number)])
    old = place.below("_skipstone/sources")
    merged = journal.encode_journal([source(number) for number in range(3)])

    class Merging(Counted):
        def below(self, prefix: str) -> Any:
            found = super().below(prefix)
            if self.asked == ["_skipstone/sources"]:
                place.write(f"_skipstone/sources/{'f' * 20}.json", [merged])
                place.delete([entry.key for entry in old])
                return found[:1]
            return found

    merging: Any = Merging(place)
    assert ingested(merging) == {source(number) for number in range(3)}


def test_a_damaged_journal(place: Place) -> None:
    publish(place, sources=[source(1)])
    for data in (b"", b"{}", b'{"sources": [[1, 2, 3]]}', b'{"sources": [["a"]]}'):
        place.write("_skipstone/sources/0.json", [data])
        with pytest.raises((CorruptFileError, ReadError)):
            ingested(place)
