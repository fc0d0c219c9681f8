"""Debris of jobs that died is removed, and live jobs stay: leases."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from skipstone.errors import UsageError
from skipstone.lake import append as lease
from skipstone.lake import records
from skipstone.lake.append import Append, Lease, decode_lease
from skipstone.lake.records import (
    done_key,
    lease_key,
    publish_key,
    read_records,
)
from skipstone.store.store import Store, open_root
from tests.unit.lake.append._jobs import (
    HOUR,
    aged,
    gone_pid,
    half,
    keys,
    leases,
    publish,
    sign,
    stage,
    visible,
)


def begin_elsewhere(store: Store, publishing: bool, **change: Any) -> str:
    if publishing:
        job = half(store)
    else:
        append = Append.begin(store)
        stage(append)
        append._renewal.end()
        job = append.job
    sign(store, job, **change)
    return job


def debris(store: Store, job: str) -> list[str]:
    """What is left of a job, but for the records that hide what a store may still bring."""
    hiding = set() if store.local else {publish_key(job), done_key(job)}
    return [key for key in keys(store) if job in key and key not in hiding]


@pytest.mark.parametrize("publishing", [False, True], ids=["staging", "publishing"])
def test_a_job_whose_process_is_gone(store: Store, publishing: bool) -> None:
    for change in ({"pid": gone_pid()}, {"started": "1"}):
        job = begin_elsewhere(store, publishing, **change)
        Append.begin(store).abort()
        assert debris(store, job) == []
        assert visible(store) == []


@pytest.mark.parametrize("publishing", [False, True], ids=["staging", "publishing"])
@pytest.mark.parametrize("change", [{}, {"host": "other"}, {"host": "other", "pid": 2**22 + 5}])
def test_live_jobs_stay(store: Store, publishing: bool, change: dict[str, Any]) -> None:
    job = begin_elsewhere(store, publishing, **change)
    before = debris(store, job)
    Append.begin(store).abort()
    assert debris(store, job) == before
    assert len(before) >= 4


@pytest.mark.parametrize("publishing", [False, True], ids=["staging", "publishing"])
@pytest.mark.parametrize(("minutes", "dead"), [(14, False), (16, True)])
def test_a_lease_runs_out(
    store: Store, publishing: bool, minutes: int, dead: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = begin_elsewhere(store, publishing, host="other")
    aged(monkeypatch, {f"{job}.lease": minutes * 60.0})
    before = keys(store)
    Append.begin(store).abort()
    if not dead:
        assert keys(store) == before
        return
    hiding = [done_key(job), publish_key(job)] if publishing else []
    assert [key for key in keys(store) if job in key] == hiding, "it may wake up, for a day"
    aged(monkeypatch, {f"{job}.done": 25 * HOUR})
    store.write(f"day=0/part-0-{job}.parquet", [b"it did"])
    assert visible(store) == ([] if publishing else [f"day=0/part-0-{job}.parquet"])
    Append.begin(store).abort()
    if publishing:
        assert [key for key in keys(store) if job in key] == []


@pytest.mark.parametrize(("hours", "dead"), [(23.0, False), (25.0, True)])
def test_a_stage_without_a_lease(
    store: Store, hours: float, dead: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = begin_elsewhere(store, False)
    store.delete([lease_key(job)])
    aged(monkeypatch, {".staged": hours * HOUR})
    Append.begin(store).abort()
    assert (debris(store, job) == []) == dead


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"pid": 3}', b"\xff", b"null"])
def test_a_lease_that_is_none(store: Store, data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    assert decode_lease(data) is None
    job = begin_elsewhere(store, False)
    store.write(lease_key(job), [data])
    Append.begin(store).abort()
    assert debris(store, job)
    aged(monkeypatch, {job + ".lease": 25 * HOUR, ".staged": 25 * HOUR})
    Append.begin(store).abort()
    assert debris(store, job) == []


def test_another_process_may_be_the_owner(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        append = Append.begin(store, owner=owner.pid)
        stage(append)
        assert leases() == [], "nobody renews it"
        aged(monkeypatch, {f"{append.job}.lease": 100 * HOUR})
        Append.begin(store).abort()
        assert len(debris(store, append.job)) == 4
    finally:
        owner.communicate(b"\n")
    Append.begin(store).abort()
    assert debris(store, append.job) == []
    with pytest.raises(UsageError, match="does not exist"):
        Append.begin(store, owner=owner.pid)


@pytest.mark.parametrize(("hours", "dead"), [(23.0, False), (25.0, True)])
def test_an_owner_elsewhere(store: Store, hours: float, dead: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    job = begin_elsewhere(store, False, host="other", renewed=False)
    aged(monkeypatch, {f"{job}.lease": hours * HOUR})
    Append.begin(store).abort()
    assert (debris(store, job) == []) == dead


def test_a_lease_is_renewed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.02)
    with Append.begin(store) as append:
        first = read_records(store)[append.job].lease
        until = time.monotonic() + 120
        while read_records(store)[append.job].lease == first and time.monotonic() < until:
            time.sleep(0.01)
        assert read_records(store)[append.job].lease != first
        assert decode_lease(store.open(lease_key(append.job)).tail(1000)[0]) == Lease.of()
    assert store.list_prefix("") == []


def test_records_of_jobs_long_done(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    job = publish(store, 2)

    def swept(age: float) -> list[str]:
        aged(monkeypatch, {f"{job}.done": age})
        Append.begin(store).abort()
        monkeypatch.undo()
        assert len(visible(store)) == 2
        return [key.rpartition(".")[2] for key in keys(store) if key.startswith(records.APPENDS)]

    assert swept(0.5 * HOUR) == ["done", "publish"]
    assert swept(2 * HOUR) == ["done"]
    assert swept(23 * HOUR) == ["done"]
    assert swept(25 * HOUR) == []
    job = publish(store, 0)
    before = read_records(store)[job].done
    assert swept(25 * HOUR) == ["done"], "never both at once"
    assert read_records(store)[job].done != before, "it stays for another day"


def test_what_a_killed_writer_leaves_of_a_record(tmp_path: Path) -> None:
    store = open_root(tmp_path)
    publish(store)
    left = [tmp_path / "_skipstone" / name / f".{'0' * 32}.tmp" for name in ("appends", "sources")]
    for path in left:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
    Append.begin(store).abort()
    assert all(path.exists() for path in left)
    for path in left:
        os.utime(path, (0, 0))
    Append.begin(store).abort()
    assert not any(path.exists() for path in left)


def test_a_damaged_intent(store: Store) -> None:
    """The files are found by their names then."""
    job = begin_elsewhere(store, True, pid=gone_pid())
    store.write(publish_key(job), [b"what"])
    Append.begin(store).abort()
    assert debris(store, job) == []
