"""Giving up a job, and removing what dead jobs have left.

Whether a job is done is decided by one file that only one can write: by the job itself when all its files are
in their places, or, empty, by who gives it up. So a job that was held for dead and wakes up can't be done.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Iterable
from typing import Final

from skipstone.errors import ConflictError, FileError, WriteError
from skipstone.lake.journal import forget_stale
from skipstone.lake.lease import UNRENEWED_SECONDS, Lease, decode_lease, has_ended_here
from skipstone.lake.records import (
    APPENDS,
    SOURCES,
    STAGED,
    Record,
    done_key,
    job_of,
    lease_key,
    modified,
    publish_key,
    read_records,
    source_key,
    stage_key,
)
from skipstone.store.place import Listed, Place, check_key

# A reader that lists records meanwhile must never see what looks like a job half done.
_SOON_SECONDS: Final = 3600.0
_KEPT_SECONDS: Final = 24 * 3600.0
# A done record that is about to be the only one is written anew if it is older.
_FRESH_SECONDS: Final = 12 * 3600.0
# What a writer that was killed leaves of a record.
_LEFT: Final = re.compile(r".*/\.[0-9a-f]{32}\.tmp")


def settle(place: Place, job: str, verdict: bytes) -> bool:
    """Whether a job is done: as the verdict says, empty to give it up, unless that was decided before."""
    try:
        place.write(done_key(job), [verdict], exclusive=True)
    except ConflictError:
        # Perhaps by this very request: an answer that got lost is asked for again.
        record = read_records(place).get(job, Record())
        if record.done is None:
            raise WriteError("the record has gone", path=place.path(done_key(job))) from None
        return record.is_done
    return bool(verdict)


def intent(keys: Iterable[str]) -> bytes:
    """The record of which files a job is about to move."""
    return json.dumps({"keys": list(keys)}).encode()


def roll_back(place: Place, job: str, *, certain: bool, keys: Collection[str] | None = None) -> bool:
    """Give up a job that has begun to publish; False if it is done, and then nothing of it is touched.

    Unless it is ``certain`` that nobody goes on with it, its records stay for a day and hide what may come:
    stores finish copies whose client is gone.
    """
    if settle(place, job, b""):
        return False
    place.delete(_moved(place, job) if keys is None else keys)
    place.delete([source_key(job)])
    place.clear(stage_key(job))
    if certain:
        place.delete([publish_key(job)])
        place.delete([done_key(job)])
    # The last, since it tells whether this is certain.
    place.delete([lease_key(job)])
    return True


def discard(place: Place, job: str) -> None:
    """Remove the stage and the lease of a job that has not begun to publish, or is done."""
    place.clear(stage_key(job))
    place.delete([lease_key(job)])


def sweep(place: Place, own: str) -> None:
    """Remove what dead jobs have left, for a job whose lease was written just now, which tells the time.

    A live job's things stay. The first failure is raised when all was tried.
    """
    staged: dict[str, list[Listed]] = {}
    for entry in place.below(STAGED):
        staged.setdefault(entry.key.split("/")[2], []).append(entry)
    records = read_records(place)
    lease = records.get(own, Record()).lease
    told = modified(lease) if lease is not None else None
    now = time.time() if told is None else told
    failures: list[FileError] = []
    for job in sorted((records.keys() | staged.keys()) - {own}):
        try:
            _sweep_one(place, job, records.get(job, Record()), staged.get(job, []), now)
        except FileError as error:
            failures.append(error)
    _forget(place, records, now)
    forget_stale(place)
    if place.local:
        left = [e for e in (*place.below(APPENDS), *place.below(SOURCES)) if _LEFT.fullmatch(e.key)]
        place.delete([entry.key for entry in left if _age(entry, now) > _KEPT_SECONDS])
    if failures:
        raise failures[0]


def _sweep_one(place: Place, job: str, record: Record, staged: list[Listed], now: float) -> None:
    if record.is_done:
        if staged or record.lease is not None:
            discard(place, job)
        return
    lease = _lease(place, record)
    certain = place.local and (has_ended_here(job) or (lease is not None and lease.renewed and lease.is_gone))
    if record.is_void:
        old = record.done is not None and _age(record.done, now) > _KEPT_SECONDS
        if certain or old or staged or record.lease is not None:
            roll_back(place, job, certain=certain or old)
        return
    if not _is_dead(job, record, lease, staged, now):
        return
    if record.publish is not None:
        if not roll_back(place, job, certain=certain):
            discard(place, job)
    else:
        discard(place, job)


def _is_dead(job: str, record: Record, lease: Lease | None, staged: list[Listed], now: float) -> bool:
    if has_ended_here(job):
        return True
    if lease is not None and record.lease is not None:
        return lease.is_dead(_age(record.lease, now))
    entries = [entry for entry in (record.publish, record.lease, *staged) if entry is not None]
    return all(_age(entry, now) > UNRENEWED_SECONDS for entry in entries)


def _lease(place: Place, record: Record) -> Lease | None:
    if record.lease is None:
        return None
    # Without the version that was listed: it may have been renewed since.
    return decode_lease(place.open(record.lease.key).tail(1 << 16)[0])


def _forget(place: Place, records: dict[str, Record], now: float) -> None:
    """Delete the records of jobs that are long done, in two steps that are a day apart."""
    ages = {job: _age(r.done, now) for job, r in records.items() if r.is_done and r.done is not None}
    for job, age in ages.items():
        if records[job].publish is not None and age > _SOON_SECONDS:
            if age > _FRESH_SECONDS:
                # It stays for a day once it is the only one.
                place.write(done_key(job), [b"done"])
            place.delete([publish_key(job)])
    old = [job for job, age in ages.items() if age > _KEPT_SECONDS and records[job].publish is None]
    if old:
        # Somebody may have written it anew while the records were read; and a lease alone says: not done.
        again = read_records(place)
        ready = [
            r.done for job in old if (r := again.get(job, Record())).lease is None and r.done is not None
        ]
        place.delete([done.key for done in ready if _age(done, now) > _KEPT_SECONDS])


def _moved(place: Place, job: str) -> list[str]:
    """The files that a job may have moved."""
    try:
        told = json.loads(place.open(publish_key(job)).tail(1 << 30)[0])["keys"]
        if all(check_key(key, place.uri) and job_of(key) == job for key in told):
            return list(told)
    except (FileError, ValueError, KeyError, TypeError):
        pass
    return [entry.key for entry in place.below("") if job_of(entry.key) == job]


def _age(entry: Listed, now: float) -> float:
    """Seconds since a file was written; 0 where the store doesn't tell."""
    told = modified(entry)
    return 0.0 if told is None else now - told
