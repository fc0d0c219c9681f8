"""What a lake's jobs have taken in, so that the next one takes in the rest."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from typing import Final

from skipstone.engine.jobs import gather
from skipstone.errors import ConflictError, CorruptFileError, ReadError
from skipstone.lake.beside import BesidePlace
from skipstone.lake.records import SOURCES, job_of, read_records, source_key
from skipstone.store.place import Listed, Place

MANY_JOURNALS: Final = 64
"""With more than these the next job writes them into its own."""
_TRIES: Final = 20
_THREADS: Final = 16


@dataclass(frozen=True, slots=True)
class Source:
    """A file that was taken in, as it was then."""

    uri: str
    size: int
    version: str
    """What told this version from others: an etag, or a time."""


@dataclass(frozen=True, slots=True)
class Journals:
    """The journals of jobs that are done, and what they hold together."""

    keys: tuple[str, ...] = ()
    sources: frozenset[Source] = frozenset()
    jobs: frozenset[str] = frozenset()
    """The jobs that published files."""


def ingested(place: Place) -> set[Source]:
    """The sources that the lake's jobs have taken in; those of a job that is not done don't count."""
    return set(read_journals(place).sources)


def forget_stale(place: Place) -> None:
    """Delete journals of another lake."""
    if isinstance(place, BesidePlace):
        journals = _read_all(place)
        if _are_stale(place, journals):
            place.delete(journals.keys)


def _are_stale(place: Place, journals: Journals) -> bool:
    """Whether journals beside a lake are of another lake, which had its name and was moved or deleted.

    Then the lake has no file of any job that published some. Journals in the lake's own directory go where
    the lake goes.
    """
    if not isinstance(place, BesidePlace) or not journals.jobs:
        return False
    return not any(job_of(entry.key) in journals.jobs for entry in place.lake.below(""))


def read_journals(place: Place) -> Journals:
    """All journals that count, as they were at one time."""
    journals = _read_all(place)
    return Journals() if _are_stale(place, journals) else journals


def _read_all(place: Place) -> Journals:
    for _ in range(_TRIES):
        before = place.below(SOURCES)
        if not before:
            return Journals()
        unfinished = {job for job, record in read_records(place).items() if record.is_unfinished}
        hidden = {source_key(job) for job in unfinished}
        entries = [e for e in before if e.key.endswith(".json") and e.key not in hidden]
        found: list[Journals] | None
        try:
            found = gather(lambda entry: _read(place, entry), entries, threads=_THREADS)
        except ReadError:
            found = None
        # Journals that are merged or given up meanwhile may be missing from a listing, or be in it in vain.
        if place.below(SOURCES) == before:
            if found is None:
                # They are there, and still can't be read.
                found = [_read(place, entry) for entry in entries]
            return Journals(
                tuple(entry.key for entry in entries),
                frozenset().union(*(journal.sources for journal in found)),
                frozenset().union(*(journal.jobs for journal in found)),
            )
    hint = "retry when no other job is running"
    raise ConflictError("the journals changed all the time", path=place.path(SOURCES), hint=hint)


def encode_journal(
    sources: Iterable[Source], replaces: Iterable[str] = (), jobs: Iterable[str] = ()
) -> bytes:
    """A journal as a file; ``replaces`` are the keys of those that it holds as well."""
    rows = sorted({astuple(source) for source in sources})
    return json.dumps({"sources": rows, "replaces": list(replaces), "jobs": sorted(jobs)}).encode()


def _read(place: Place, entry: Listed) -> Journals:
    body = place.open(entry.key, version=entry.version, size=entry.size).tail(entry.size)[0]
    try:
        told = json.loads(body)
        found = [Source(uri, size, version) for uri, size, version in told["sources"]]
        if all(isinstance(s.uri, str) and isinstance(s.version, str) and type(s.size) is int for s in found):
            return Journals((), frozenset(found), frozenset(map(str, told.get("jobs", ()))))
    except (ValueError, KeyError, TypeError):
        pass
    hint = "delete it, and its sources are taken in again"
    raise CorruptFileError("the journal is damaged", path=place.path(entry.key), hint=hint)
