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
from skipstone.store.place import Place, open_root
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
@pytest.mark.parametrize("change", [{}, {"host": "other"}, {"host": "other", "pid": 2**22 + 5}])
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
