"""Appending to a directory of Parquet files: staged where no reader looks, then published all at once.

Readers of Skipstone see a job's files when the job is done, and then all of them (``lake/records.py``). Other
readers see each file when it comes to its place, whole. What a job that failed or was killed has left is
hidden, and removed by the next.
"""

from __future__ import annotations

import os
import secrets
import weakref
from collections.abc import Iterable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final, Literal, Self

from skipstone.engine.jobs import gather
from skipstone.errors import FileError, UsageError, WriteError
from skipstone.lake.directory import is_visible
from skipstone.lake.journal import MANY_JOURNALS, Journals, Source, encode_journal, read_journals
from skipstone.lake.lease import Lease, Renewal, end_here
from skipstone.lake.records import (
    SOURCES,
    lease_key,
    publish_key,
    source_key,
    stage_key,
)
from skipstone.lake.sweep import discard, intent, roll_back, settle, sweep
from skipstone.parquet.write.files import staged_as
from skipstone.store.place import Listed, Place

__all__ = ["Append", "Source", "staged_as"]

_DONE: Final = b"done"
_THREADS: Final = 16


class Append:
    """One job that adds files to a lake; as a context, what was not published when it ends is removed.

    Workers elsewhere need ``stage`` and ``job`` only: a file that is to have the key ``...-<job>.parquet`` in
    the lake is written to the stage by the key that ``staged_as`` gives.
    """

    def __init__(self, place: Place, job: str, lease: Lease) -> None:
        self._place = place
        self._job = job
        self._state: Literal["open", "over"] = "open"
        self._pid = os.getpid()
        self._renewal = Renewal(place, job, lease)
        # Who forgets a job doesn't go on with it.
        weakref.finalize(self, self._renewal.stop)

    @classmethod
    def begin(cls, place: Place, *, owner: int | None = None) -> Append:
        """Begin a job on a lake, which need not exist yet, and remove what dead jobs have left there.

        The job lives as long as this process, or with ``owner`` as long as that process of this host.
        """
        lease = Lease.of(owner)
        job = secrets.token_hex(10)
        place.write(lease_key(job), [lease.encode()], exclusive=True)
        try:
            if place.local:
                # Workers write there by path, so a stage behind a link out of the lake is refused here.
                place.clear(stage_key(job))
            # What can't be removed now stays hidden, and is removed next time.
            with suppress(FileError):
                sweep(place, job)
            return cls(place, job, lease)
        except BaseException:
            end_here(job)
            with suppress(FileError):
                discard(place, job)
            raise

    @property
    def job(self) -> str:
        """The job's name: 20 hexadecimal digits."""
        return self._job

    @property
    def stage(self) -> Place:
        """Where the job's files are written; picklable."""
        return self._place.child(stage_key(self._job))

    def publish(self, keys: Iterable[str], *, sources: Iterable[Source] = ()) -> list[Listed]:
        """Move staged files to their places in the lake and end the job; the files as listed there.

        All of them or, after a failure, none. Other staged files, left by tries that were lost, are removed.
        ``sources`` are what the files were made of, which :func:`~skipstone.lake.journal.ingested` gives.
        """
        self._check_open()
        chosen = tuple(keys)
        staged = self._staged(chosen)
        known = tuple(sources)
        merged = self._merged()
        self._state = "over"
        try:
            try:
                listed = self._move(staged)
                if known or merged.keys:
                    jobs = {self._job, *merged.jobs} if chosen else merged.jobs
                    body = encode_journal([*known, *merged.sources], merged.keys, jobs)
                    self._place.write(source_key(self._job), [body])
            except BaseException:
                self._renewal.end()
                # If even that fails, the next job does it; until then what was moved is hidden.
                with suppress(FileError):
                    self._roll_back(chosen)
                raise
            self._commit(chosen)
            self._renewal.end()
            with suppress(FileError):
                discard(self._place, self._job)
            with suppress(FileError):
                self._place.delete(merged.keys)
        finally:
            self._renewal.end()
            end_here(self._job)
        return listed

    def abort(self) -> None:
        """Remove all that the job has staged, unless it was published; what can't be removed is next time."""
        # A fork has a copy of the job, which is not its own to end.
        if self._state != "open" or os.getpid() != self._pid:
            return
        self._state = "over"
        self._renewal.end()
        with suppress(FileError):
            discard(self._place, self._job)
        end_here(self._job)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.abort()

    # -- publishing --------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._state != "open":
            raise UsageError(f"job {self._job} is over", path=self._place.uri, hint="begin another")

    def _staged(self, keys: Sequence[str]) -> dict[str, Listed]:
        """The staged files by the keys they are to have; an error names the first that is missing."""
        prefix = f"{stage_key(self._job)}/"
        staged = {e.key.removeprefix(prefix): e for e in self._place.below(stage_key(self._job))}
        chosen: dict[str, Listed] = {}
        for key in keys:
            _check_key(key, self._job)
            found = staged.get(staged_as(key), staged.get(key))
            if found is None:
                hint = "stage it before it is published"
                raise WriteError("it was not staged", path=self._place.path(prefix + key), hint=hint)
            chosen[key] = found
        if len(chosen) != len(keys):
            raise UsageError("a file is to be published twice", path=self._place.uri, hint="name each once")
        return chosen

    def _merged(self) -> Journals:
        """The journals that the job's own is to replace: all, once there are many."""
        few = len(self._place.below(SOURCES)) <= MANY_JOURNALS
        return Journals() if few else read_journals(self._place)

    def _move(self, staged: dict[str, Listed]) -> list[Listed]:
        self._place.write(publish_key(self._job), [intent(staged)], exclusive=True)
        gather(lambda key: self._place.move(staged[key].key, key), tuple(staged), threads=_THREADS)
        listed = self._listed(tuple(staged))
        for entry in listed:
            wanted = staged[entry.key].size
            if entry.size != wanted:
                raise WriteError(
                    f"it has {entry.size} bytes, and had {wanted} when it was staged",
                    path=self._place.path(entry.key),
                    hint="don't write to a stage while it is published",
                )
        return listed

    def _listed(self, keys: Sequence[str]) -> list[Listed]:
        """The published files as their folders list them."""
        folders = sorted({key.rpartition("/")[0] for key in keys})
        found: dict[str, Listed] = {}
        for entries in gather(self._in, folders, threads=_THREADS):
            found.update((entry.key, entry) for entry in entries)
        for key in keys:
            if key not in found:
                raise WriteError("it is gone", path=self._place.path(key), hint="run the job again")
        return [found[key] for key in keys]

    def _in(self, folder: str) -> list[Listed]:
        if not folder:
            return self._place.files_here()
        inner = self._place.child(folder).files_here()
        return [Listed(f"{folder}/{entry.key}", entry.size, entry.version) for entry in inner]

    def _commit(self, keys: Sequence[str]) -> None:
        """Write that the job is done, or take it back."""
        try:
            if settle(self._place, self._job, _DONE):
                return
        except BaseException as error:
            self._renewal.end()
            try:
                taken_back = self._roll_back(keys)
            except FileError:
                message = f"whether job {self._job} was published is not known: {error}"
                hint = "list the lake when the store is back; the job's files are all there, or none"
                raise WriteError(message, path=self._place.uri, hint=hint) from error
            if taken_back or not isinstance(error, FileError):
                raise
            # Only the answer was lost: the record is there.
            return
        with suppress(FileError):
            self._roll_back(keys)
        hint = "nothing was heard of it for too long; run it again"
        raise WriteError(f"job {self._job} was given up for dead", path=self._place.uri, hint=hint)

    def _roll_back(self, keys: Sequence[str]) -> bool:
        return roll_back(self._place, self._job, certain=self._place.local, keys=keys)


def _check_key(key: str, job: str) -> None:
    *folders, name = key.split("/")
    if not name.endswith(f"-{job}.parquet"):
        raise UsageError(f"{key!r} is no file of job {job}", hint=f"name it ...-{job}.parquet")
    # Who opens one directory of a lake finds the lake's records by this.
    if not all("=" in folder for folder in folders) or not is_visible(Listed(key, 1, None)):
        hint = "put it in the lake's root, or in directories named key=value"
        raise UsageError(f"{key!r} is no place for a file", hint=hint)
