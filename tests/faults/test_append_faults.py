"""A job's files are seen wholly or not at all, whatever fails, dies or comes in between."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from obstore.store import MemoryStore

from skipstone.errors import FileError, ReadError, WriteError
from skipstone.lake.append import Append, roll_back, staged_as
from skipstone.lake.journal import JournalSource, claim, ingested
from skipstone.lake.records import (
    done_key,
    job_of,
    lease_key,
    list_settled,
    publish_key,
    read_records,
    stage_key,
)
from skipstone.store.store import Store, open_root
from tests.faults._steps import CHANGES, READS, Recorder, SteppedStore, replay

FOLDERS = ("", "day=1/", "day=2/", "day=3/")
BASE = ("day=1/base.parquet", "day=9/base.parquet", "z.parquet")
COPIED = "0123456789abcdef0123"
"""A job of which there are files and no records."""
SOURCE = JournalSource("s3://in/a.csv", 5, "etag")
KINDS = ("local", "memory")


@pytest.fixture(autouse=True)
def no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def fresh(tmp_path: Path) -> Callable[[str], Store]:
    """New, empty stores."""
    count = iter(range(1_000_000))

    def make(kind: str) -> Store:
        name = f"lake{next(count)}"
        return open_root(tmp_path / name) if kind == "local" else open_root(name, store=MemoryStore())

    return make


def fill(store: Store, *, copied: bool = False) -> None:
    keys = [*BASE, *(f"{folder}old-{COPIED}.parquet" for folder in FOLDERS if copied)]
    for key in keys:
        store.write(key, [b"base"])


def stage(append: Append) -> list[str]:
    return stage_in(append.stage, append.job)


def stage_in(store: Store, job: str) -> list[str]:
    keys = [f"{folder}new-{job}.parquet" for folder in FOLDERS]
    for key in keys:
        store.write(staged_as(key), [key.encode()])
    store.write("day=1/lost-attempt", [b"lost"])
    return keys


def seen(store: Store, job: str) -> int:
    """How many files of a job a reader sees; the others must all be there."""
    keys = [entry.key for entry in list_settled(store) if not entry.key.startswith("_")]
    assert set(BASE) <= set(keys)
    assert sum(job_of(key) == COPIED for key in keys) in (0, len(FOLDERS))
    return sum(job_of(key) == job for key in keys)


def left(store: Store) -> list[str]:
    """What is there besides the lake's first files."""
    return [entry.key for entry in store.list() if entry.key not in BASE and job_of(entry.key) != COPIED]


# -- between any two steps of one, any step of the other ---------------------------------------


def recorded(story: str, make: Callable[[], Store]) -> tuple[str, list[Any]]:
    """A job, and the steps of what becomes of it, all being staged."""
    store = make()
    fill(store)
    recorder = Recorder()
    watched = SteppedStore(store, after=recorder)

    def fails(name: str, args: tuple[Any, ...]) -> None:
        if name == "write" and "/sources/" in args[0]:
            raise WriteError("disk full", path=args[0])

    append = Append.begin(watched)
    keys = stage(append)
    recorder.steps.clear()
    if story == "fails":
        watched.before = fails
        with pytest.raises(WriteError, match="disk full"):
            append.publish(keys, sources=[SOURCE])
    elif story == "aborts":
        append.abort()
    else:
        append.publish(keys, sources=[SOURCE])
    # A reader may have looked before the job had begun.
    return append.job, [("write", (lease_key(append.job), [b"{}"])), *recorder.steps]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("copied", [False, True], ids=["", "copied"])
@pytest.mark.parametrize("story", ["publishes", "fails", "aborts"])
def test_every_interleaving(fresh: Any, kind: str, copied: bool, story: str) -> None:
    """Up to a step before the reader begins, on to another step amid its listing, on to a third later."""
    job, steps = recorded(story, lambda: fresh(kind))
    decided = [n for n, (name, args) in enumerate(steps, 1) if args[0] == done_key(job) and name == "write"]
    assert len(decided) == (story != "aborts")
    outcomes = set()
    for begun, then, at, last in schedules(len(steps), limit=50 if kind == "local" else 600):
        store = fresh(kind)
        fill(store, copied=copied)
        stage_in(store.child(stage_key(job)), job)
        todo = list(steps)
        run(store, todo, begun)
        ticks = iter(range(1_000))

        def tick(
            name: str,
            _args: Any,
            *,
            store: Store = store,
            todo: Any = todo,
            ticks: Iterator[int] = ticks,
            begun: int = begun,
            then: int = then,
            at: int = at,
            last: int = last,
        ) -> None:
            if name in READS:
                now = next(ticks)
                if now == at:
                    run(store, todo, then - begun)
                elif now == at + 2:
                    run(store, todo, last - then)

        found = seen(SteppedStore(store, before=tick), job)
        outcomes.add(found)
        note = f"{story} {begun} {then} at {at}, {last}"
        assert found in (0, len(FOLDERS)), note
        if story != "publishes":
            assert found == 0, note
        elif begun >= decided[0]:
            assert found == len(FOLDERS), note
        elif last < decided[0]:
            assert found == 0, note
        run(store, todo, len(todo))
        assert seen(store, job) == (len(FOLDERS) if story == "publishes" else 0), note
    assert outcomes == ({0, len(FOLDERS)} if story == "publishes" else {0})


def run(store: Store, todo: list[Any], count: int) -> None:
    for _ in range(min(count, len(todo))):
        replay(store, todo.pop(0))


def schedules(steps: int, limit: int) -> list[tuple[int, int, int, int]]:
    every = [
        (begun, then, at, last)
        for begun in range(steps + 1)
        for then in range(begun, steps + 1)
        for at in range(17)
        for last in range(then, steps + 1)
    ]
    random.Random(11).shuffle(every)
    return every[:limit]


# -- a failure at every step -------------------------------------------------------------------


class Fault:
    """The n-th step fails: before it is done, after it was done, or it and all that follow."""

    def __init__(self, number: int, how: str) -> None:
        self.number, self.how, self.count, self.struck = number, how, 0, False
        self.off = True

    def before(self, name: str, args: tuple[Any, ...]) -> None:
        if self.off:
            return
        self.count += 1
        due = self.count == self.number or (self.how == "down" and self.count > self.number)
        if due and self.how != "after":
            self._strike(name, args)

    def after(self, name: str, args: tuple[Any, ...]) -> None:
        if not self.off and self.how == "after" and self.count == self.number and not self.struck:
            self._strike(name, args)

    def check(self, told: str) -> None:
        assert "the store is away" in told

    def _strike(self, name: str, args: tuple[Any, ...]) -> None:
        self.struck = True
        raise (WriteError if name in CHANGES else ReadError)("the store is away", path=str(args[:1]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["before", "after", "down"])
def test_a_failure_at_every_step_of_publishing(fresh: Any, kind: str, how: str) -> None:
    outcomes = []
    for number in range(1, 200):
        store = fresh(kind)
        fill(store)
        fault = Fault(number, how)
        append = Append.begin(SteppedStore(store, fault.before, fault.after))
        keys = stage(append)
        fault.off = False
        try:
            append.publish(keys, sources=[SOURCE])
            wanted = len(keys)
        except FileError as error:
            told = str(error)
            wanted = seen(store, append.job) if "not known" in told else 0
            fault.check(told)
        append.abort()  # too late for a job that is over; one that was not begun is over now
        fault.off = True
        assert wanted in (0, len(keys))
        assert seen(store, append.job) == wanted, number
        assert ingested(store) == ({SOURCE} if wanted else set()), number
        outcomes.append(wanted)
        Append.begin(store).abort()
        assert seen(store, append.job) == wanted, number
        records = [publish_key(append.job), done_key(append.job)]
        if wanted:
            published = {*keys, *records, f"_skipstone/sources/{append.job}.json"}
            assert set(left(store)) == published, number
        else:
            # A store may still finish a copy that was given up: there the records go on hiding it.
            assert set(left(store)) <= (set() if store.local else set(records)), number
        if not fault.struck:
            break
    else:
        pytest.fail("it never ended")
    assert outcomes[0] == 0
    assert outcomes[-1] == len(FOLDERS)
    assert len(outcomes) >= 12


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["before", "after", "down"])
def test_a_failure_at_every_step_of_beginning(fresh: Any, kind: str, how: str) -> None:
    """Beside a job that is dead amid its publishing, and one that is alive."""
    struck = 0
    for number in range(1, 200):
        store = fresh(kind)
        fill(store)
        dead, alive = Append.begin(store), Append.begin(store)
        die_publishing(store, dead, stage(dead))
        fault = Fault(number, how)
        fault.off = False
        try:
            Append.begin(SteppedStore(store, fault.before, fault.after)).abort()
        except FileError as error:
            fault.check(str(error))
        fault.off = True
        assert seen(store, dead.job) == 0
        Append.begin(store).abort()
        assert seen(store, dead.job) == 0
        mine = {lease_key(alive.job)}
        records = {publish_key(dead.job), done_key(dead.job)}
        # One that failed as it wrote its lease is as alive as its process, for a while.
        others = {key for key in left(store) if key.endswith(".lease")} - mine
        assert len(others) <= (how == "after" and number == 1)
        assert set(left(store)) - others - (set() if store.local else records) == mine, number
        alive.publish(stage(alive))
        assert seen(store, alive.job) == len(FOLDERS)
        struck += fault.struck
        if not fault.struck:
            break
    assert struck >= 6


def die_publishing(store: Store, append: Append, keys: list[str]) -> None:
    """Leave a job as a process that dies amid its moves does."""

    def dies(name: str, args: tuple[Any, ...]) -> None:
        if name == "move" and args[1] == keys[2]:
            raise Died

    append._store = SteppedStore(store, before=dies)
    append._roll_back = lambda _keys: True  # type: ignore[method-assign]  # nobody is there to do it
    with pytest.raises(Died):
        append.publish(keys)
    assert sum(job_of(entry.key) == append.job for entry in store.list()) >= 1


class Died(BaseException):
    """The process is gone."""


# -- who was held for dead -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("when", ["intent", "moved", "journal", "deciding"])
def test_a_job_that_is_given_up_while_it_publishes(fresh: Any, kind: str, when: str) -> None:
    """It finds out, fails, and no file of it is ever seen; nor if it moves more after that."""
    store = fresh(kind)
    fill(store)

    def gives_up(name: str, args: tuple[Any, ...]) -> None:
        points = {
            "intent": name == "move",
            "moved": name == "list_files",
            "journal": name == "write" and "/sources/" in args[0],
            "deciding": name == "write" and args[0].endswith(".done"),
        }
        if points[when] and not given:
            given.append(True)
            assert roll_back(store, append.job, certain=False)

    given: list[bool] = []
    append = Append.begin(SteppedStore(store, before=gives_up))
    with pytest.raises(FileError):
        append.publish(stage(append), sources=[SOURCE])
    assert given
    assert seen(store, append.job) == 0
    assert ingested(store) == set()
    # A copy that the store finishes late.
    store.write(f"late-{append.job}.parquet", [b"late"])
    if not store.local:
        assert seen(store, append.job) == 0


# -- what a neighbour may have forged ------------------------------------------------------------

JOB = "00112233445566778899"
OTHER = "other"
"""What must stay as it is, beside the lake."""
FORGED: dict[str, Callable[[str], str]] = {
    "absolute": lambda root: f"{root}/{OTHER}/part-{JOB}.parquet",
    "above": lambda _: f"../{OTHER}/part-{JOB}.parquet",
    "above, within": lambda _: f"day=1/../../{OTHER}/part-{JOB}.parquet",
    "a link": lambda _: f"link/part-{JOB}.parquet",
    "no name": lambda _: f"-{JOB}.parquet/",
    "two slashes": lambda _: f"//{OTHER}/part-{JOB}.parquet",
    "NUL": lambda _: f"\0/part-{JOB}.parquet",
    "no text": lambda _: f"\ud800part-{JOB}.parquet",
    "too long": lambda _: f"{'x' * 5000}-{JOB}.parquet",
    "a directory": lambda _: "day=1",
}
LINKS = ("_skipstone", "_skipstone/staged", "_skipstone/appends", "_skipstone/sources", "day=1", "link")


def contents(store: Store) -> dict[str, bytes]:
    return {entry.key: store.open(entry.key).tail(1 << 20)[0] for entry in store.list()}


def use(store: Store) -> None:
    """All that jobs do to a lake; what is forged may make them fail, in words of our own."""
    with suppress(FileError):
        Append.begin(store).abort()
    with suppress(FileError), Append.begin(store) as append:
        claim(store, append, [SOURCE])
        append.publish(stage(append), sources=[SOURCE])
    for read in (list_settled, ingested, read_records):
        with suppress(FileError):
            read(store)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FORGED)
@pytest.mark.parametrize("record", ["publish", "journal", "claim"])
def test_forged_names_touch_nothing_outside_the_lake(
    tmp_path: Path, kind: str, name: str, record: str
) -> None:
    """A record of a job that is long dead, by whatever name: the next job sweeps, and stays in its lake."""
    bucket = MemoryStore()
    store, other = (
        open_root(tmp_path / folder) if kind == "local" else open_root(folder, store=bucket)
        for folder in ("lake", OTHER)
    )
    fill(store)
    other.write(f"part-{JOB}.parquet", [b"other"])
    if kind == "local":
        (tmp_path / "lake" / "link").symlink_to(tmp_path / OTHER)
    forged = FORGED[name](str(tmp_path) if kind == "local" else "")
    keys = {
        "publish": publish_key(JOB),
        "journal": f"_skipstone/sources/{JOB}.json",
        "claim": f"{stage_key(JOB)}/sources.json",
    }
    told = {"keys": [f"x-{JOB}.parquet", forged], "replaces": [forged], "sources": [[forged, 1, forged]]}
    store.write(keys[record], [json.dumps(told).encode()])
    if kind == "local":
        for path in tmp_path.rglob(f"*{JOB}*"):
            os.utime(path, (time.time() - 3 * 86400,) * 2)
    use(store)
    assert contents(other) == {f"part-{JOB}.parquet": b"other"}
    assert set(BASE) <= set(contents(store))


@pytest.mark.parametrize("link", LINKS)
def test_links_lead_no_job_out_of_its_lake(tmp_path: Path, link: str) -> None:
    """A lake whose records, stage or partitions are links to elsewhere: what is there stays as it is."""
    store, other = open_root(tmp_path / "lake"), open_root(tmp_path / OTHER)
    store.write("z.parquet", [b"base"])
    for key in (f"{JOB}/x/y", f"{JOB}.publish", f"{JOB}.json", f"appends/{JOB}.publish", f"staged/{JOB}/f"):
        other.write(key, [json.dumps({"keys": [f"day=1/part-{JOB}.parquet"], "sources": []}).encode()])
    other.write(f"part-{JOB}.parquet", [b"other"])
    for path in (tmp_path / OTHER).rglob("*"):
        os.utime(path, (time.time() - 3 * 86400,) * 2)
    path = tmp_path / "lake" / link
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(tmp_path / OTHER)
    if link in ("day=1", "link"):
        store.write(publish_key(JOB), [json.dumps({"keys": [f"{link}/part-{JOB}.parquet"]}).encode()])
        os.utime(store.path(publish_key(JOB)), (time.time() - 3 * 86400,) * 2)
    before = contents(other)
    if link.startswith("_skipstone/staged"):
        # Workers write to a local stage by its path.
        with pytest.raises(WriteError, match="a link leads out of"):
            Append.begin(store)
    use(store)
    assert contents(other) == before


# -- real processes ------------------------------------------------------------------------------

WORKER = """
import sys, time
from skipstone.lake.append import Append, staged_as
from skipstone.store.local import LocalStore
root, story = sys.argv[1:]
append = Append.begin(LocalStore(root))
keys = [f"{folder}new-{append.job}.parquet" for folder in ("", "day=1/", "day=2/", "day=3/")]
for key in keys:
    append.stage.write(staged_as(key), [b"new"])
move = LocalStore.move
def slow(self, key, to):
    if to.startswith("day=2"):
        time.sleep(0.3)
        print(append.job, flush=True)
        time.sleep(60)
    move(self, key, to)
LocalStore.move = slow
if story == "staging":
    print(append.job, flush=True)
    time.sleep(60)
append.publish(keys)
"""


@pytest.mark.parametrize("story", ["staging", "publishing"])
def test_a_process_that_is_killed(tmp_path: Path, story: str) -> None:
    root = tmp_path / "lake"
    store = open_root(root)
    fill(store)
    worker = subprocess.Popen([sys.executable, "-c", WORKER, str(root), story], stdout=subprocess.PIPE)
    assert worker.stdout is not None
    with worker.stdout as out:
        job = out.readline().decode().strip()
        try:
            # It lives: nothing of it is touched.
            before = left(store)
            Append.begin(store).abort()
            assert left(store) == before
            assert seen(store, job) == 0
            if story == "publishing":
                assert sum(job_of(key) == job for key in before) == len(FOLDERS) - 1
        finally:
            worker.send_signal(signal.SIGKILL)
            worker.wait()
    assert seen(store, job) == 0
    assert left(store) == before
    Append.begin(store).abort()
    assert left(store) == []
    assert not list((root / "_skipstone" / "staged").iterdir())
    assert read_records(store) == {}
