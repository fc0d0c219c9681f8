"""What a lake's jobs have ingested, so that the next one ingests the rest, and what they are about to.

Of two runs over one source at once: who ingests a file says so first, in its stage, and looks who else does.
Each writes before it looks, so of two that want the same file at least one sees the other, or what the other
has done. What a job that died has said is swept away with its stage.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Final

from skipstone.engine.jobs import gather
from skipstone.errors import ConflictError, CorruptFileError, ReadError
from skipstone.lake.records import SOURCES, STAGED, SiblingStore, job_of, read_records, source_key, stage_key
from skipstone.store.store import ListedFile, Store

if TYPE_CHECKING:
    from skipstone.lake.append import Append

MANY_JOURNALS: Final = 64
"""With more than these the next job writes them into its own."""
_TRIES: Final = 20
_CLAIM: Final = "sources.json"
_THREADS: Final = 16


@dataclass(frozen=True, slots=True)
class JournalSource:
    """A file that was taken in, as it was then."""

    uri: str
    size: int
    version: str
    """What told this version from others: an etag, or a time."""


@dataclass(frozen=True, slots=True)
class Journals:
    """The journals of jobs that are done, and what they hold together."""

    keys: tuple[str, ...] = ()
    sources: frozenset[JournalSource] = frozenset()
    jobs: frozenset[str] = frozenset()
    """The jobs that published files."""


def ingested(store: Store) -> set[JournalSource]:
    """The sources that the lake's jobs have taken in; those of a job that is not done don't count."""
    return set(read_journals(store).sources)


def forget_stale(store: Store) -> None:
    """Delete journals of another lake."""
    if isinstance(store, SiblingStore):
        journals = _read_all(store)
        if _are_stale(store, journals):
            store.delete(journals.keys)


def _are_stale(store: Store, journals: Journals) -> bool:
    """Whether journals beside a lake are of another lake, which had its name and was moved or deleted.

    Then the lake has no file of any job that published some. Journals in the lake's own directory go where
    the lake goes.
    """
    if not isinstance(store, SiblingStore) or not journals.jobs:
        return False
    return not any(job_of(entry.key) in journals.jobs for entry in store.lake.list_prefix(""))


def read_journals(store: Store) -> Journals:
    """All journals that count, as they were at one time."""
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
        found: list[Journals] | None
        try:
            found = gather(lambda entry: _read(store, entry), entries, threads=_THREADS)
        except ReadError:
            found = None
        # Journals that are merged or given up meanwhile may be missing from a listing, or be in it in vain.
        if store.list_prefix(SOURCES) == before:
            if found is None:
                # They are there, and still can't be read.
                found = [_read(store, entry) for entry in entries]
            return Journals(
                tuple(entry.key for entry in entries),
                frozenset().union(*(journal.sources for journal in found)),
                frozenset().union(*(journal.jobs for journal in found)),
            )
    hint = "retry when no other job is running"
    raise ConflictError("the journals changed all the time", path=store.path(SOURCES), hint=hint)


def encode_journal(
    sources: Iterable[JournalSource], replaces: Iterable[str] = (), jobs: Iterable[str] = ()
) -> bytes:
    """A journal as a file; ``replaces`` are the keys of those that it holds as well."""
    rows = sorted({astuple(source) for source in sources})
    return json.dumps({"sources": rows, "replaces": list(replaces), "jobs": sorted(jobs)}).encode()


def _read(store: Store, entry: ListedFile) -> Journals:
    body = store.open(entry.key, version=entry.version, size=entry.size).tail(entry.size)[0]
    try:
        told = json.loads(body)
        found = [JournalSource(uri, size, version) for uri, size, version in told["sources"]]
        if all(isinstance(s.uri, str) and isinstance(s.version, str) and type(s.size) is int for s in found):
            return Journals((), frozenset(found), frozenset(map(str, told.get("jobs", ()))))
    except (ValueError, KeyError, TypeError):
        pass
    hint = "delete it, and its sources are taken in again"
    raise CorruptFileError("the journal is damaged", path=store.path(entry.key), hint=hint)


# -- claims ------------------------------------------------------------------------------------


def claim(store: Store, append: Append, sources: Collection[JournalSource]) -> None:
    """Say what a job takes in; a ConflictError if another job is at the same, or has done it just now."""
    if not sources:
        return
    mine = {source.uri for source in sources}
    append.stage.write(_CLAIM, [encode_journal(sources)])
    own = f"{stage_key(append.job)}/{_CLAIM}"
    for entry in store.list_prefix(STAGED):
        if entry.key.endswith(f"/{_CLAIM}") and entry.key != own:
            _refuse(mine & _claimed(store, entry), "another run is taking it in")
    _refuse(mine & {source.uri for source in ingested(store)}, "another run has taken it in meanwhile")


def _refuse(shared: set[str], problem: str) -> None:
    if shared:
        raise ConflictError(problem, path=min(shared), hint="wait for that run to end, then start this one")


def _claimed(store: Store, entry: ListedFile) -> set[str]:
    try:
        body = store.open(entry.key).tail(max(entry.size, 1))[0]
    except ReadError:
        if any(other.key == entry.key for other in store.list_prefix(STAGED)):
            raise
        return set()  # that job is over, and the journals tell what it has done
    try:
        return {str(uri) for uri, _, _ in json.loads(body)["sources"]}
    except (ValueError, KeyError, TypeError) as error:
        hint = "delete it if no job is running"
        raise CorruptFileError("it can't be understood", path=store.path(entry.key), hint=hint) from error
