"""Journals of the source files that a lake's jobs have ingested, and claims on those in progress.

A job that ingests a file first claims it in its stage, then checks the claims of other jobs. Each writes
before it checks, so if two want the same file, at least one sees the other's claim or journal. Claims of
dead jobs are removed with their stages.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from skipstone.engine.jobs import gather
from skipstone.errors import ConflictError, CorruptFileError, ReadError
from skipstone.lake.records import SOURCES, STAGED, SiblingStore, job_of, read_records, source_key, stage_key
from skipstone.store.store import ListedFile, Store

if TYPE_CHECKING:
    from skipstone.lake.append import Append

MANY_JOURNALS: Final = 64
"""With more journals than this, the next job merges them into its own."""
_TRIES: Final = 20
_CLAIM: Final = "sources.json"
_THREADS: Final = 16


@dataclass(frozen=True, slots=True)
class JournalSource:
    """A version of a source file that was ingested."""

    uri: str
    size: int
    version: str
    """An etag, or a modification time."""


@dataclass(frozen=True, slots=True)
class Journals:
    """The journals of finished jobs, merged."""

    keys: tuple[str, ...] = ()
    sources: frozenset[JournalSource] = frozenset()
    jobs: frozenset[str] = frozenset()
    """The jobs that published files."""


def ingested(store: Store) -> set[JournalSource]:
    """The source files that finished jobs have ingested."""
    return set(read_journals(store).sources)


def forget_stale(store: Store) -> None:
    """Delete journals of an earlier lake of this name."""
    if isinstance(store, SiblingStore):
        journals = _read_all(store)
        if _are_stale(store, journals):
            store.delete(journals.keys)


def _are_stale(store: Store, journals: Journals) -> bool:
    """Whether journals beside a lake belong to an earlier lake of its name, which was moved or deleted.

    Then the lake has no file of any journaled job. Journals inside a lake move with it.
    """
    if not isinstance(store, SiblingStore) or not journals.jobs:
        return False
    return not any(job_of(entry.key) in journals.jobs for entry in store.lake.list_prefix(""))


def read_journals(store: Store) -> Journals:
    """A consistent read of all journals of finished jobs."""
    journals = _read_all(store)
    return Journals() if _are_stale(store, journals) else journals


def _read_all(store: Store) -> Journals:
    for _ in range(_TRIES):
        before = store.list_prefix(SOURCES)
        if not before:
            return Journals()
        unfinished = {job for job, record in read_records(store).items() if record.is_unfinished}
        hidden = {source_key(job) for job in unfinished}
        entries = [e for e in before if e.key.endswith(".json") and e.key not in hidden]
        journals: list[Journals] | None
        try:
            journals = gather(lambda entry: _read(store, entry), entries, threads=_THREADS)
        except ReadError:
            journals = None
        # Merges and rollbacks change the journals while they are read.
        if store.list_prefix(SOURCES) == before:
            if journals is None:
                # They exist and still can't be read: raise.
                journals = [_read(store, entry) for entry in entries]
            return Journals(
                tuple(entry.key for entry in entries),
                frozenset().union(*(journal.sources for journal in journals)),
                frozenset().union(*(journal.jobs for journal in journals)),
            )
    hint = "retry when no other job is running"
    raise ConflictError(
        "journals changed repeatedly while they were being read", path=store.path(SOURCES), hint=hint
    )


def encode_journal(
    sources: Iterable[JournalSource], replaces: Iterable[str] = (), jobs: Iterable[str] = ()
) -> bytes:
    """Serialize a journal; ``replaces`` are the keys of the journals merged into it."""
    rows = sorted({(source.uri, source.size, source.version) for source in sources})
    return json.dumps({"sources": rows, "replaces": list(replaces), "jobs": sorted(jobs)}).encode()


def _read(store: Store, entry: ListedFile) -> Journals:
    body = store.open(entry.key, version=entry.version, size=entry.size).tail(entry.size)[0]
    try:
        journal = json.loads(body)
        sources = [JournalSource(uri, size, version) for uri, size, version in journal["sources"]]
        if all((type(s.uri), type(s.size), type(s.version)) == (str, int, str) for s in sources):
            return Journals((), frozenset(sources), frozenset(map(str, journal.get("jobs", ()))))
    except (ValueError, KeyError, TypeError):
        pass
    hint = "delete the journal to ingest its sources again"
    raise CorruptFileError("journal is damaged", path=store.path(entry.key), hint=hint)


# -- claims ------------------------------------------------------------------------------------


def claim(store: Store, append: Append, sources: Collection[JournalSource]) -> None:
    """Claim source files for a job; raise ConflictError if another job ingests or has just ingested one."""
    if not sources:
        return
    mine = {source.uri for source in sources}
    append.stage.write(_CLAIM, [encode_journal(sources)])
    own = f"{stage_key(append.job)}/{_CLAIM}"
    for entry in store.list_prefix(STAGED):
        if entry.key.endswith(f"/{_CLAIM}") and entry.key != own:
            _refuse(mine & _claimed(store, entry), "another run is ingesting this file")
    _refuse(mine & {source.uri for source in ingested(store)}, "another run has just ingested this file")


def _refuse(shared: set[str], problem: str) -> None:
    if shared:
        raise ConflictError(problem, path=min(shared), hint="wait for that run to end, then retry")


def _claimed(store: Store, entry: ListedFile) -> set[str]:
    try:
        body = store.open(entry.key).tail(max(entry.size, 1))[0]
    except ReadError:
        if any(other.key == entry.key for other in store.list_prefix(STAGED)):
            raise
        return set()  # that job has ended, and its journal has what it ingested
    try:
        return {str(uri) for uri, _, _ in json.loads(body)["sources"]}
    except (ValueError, KeyError, TypeError) as error:
        hint = "delete the claim if no job is running"
        raise CorruptFileError("claim is damaged", path=store.path(entry.key), hint=hint) from error
