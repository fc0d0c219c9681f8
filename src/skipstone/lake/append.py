"""Appending to a directory of Parquet files: staged where no reader looks, then published all at once.

Readers of Skipstone see a job's files when the job is done, and then all of them (``lake/records.py``). Other
readers see each file when it comes to its place, whole. What a job that failed or was killed has left is
hidden, and removed by the next.

Whether a job is done is decided by one file that only one can write: by the job itself when all its files are
in their places, or, empty, by who gives it up. So a job that was held for dead and wakes up can't be done.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
import threading
import time
import weakref
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self

from skipstone.engine.jobs import gather
from skipstone.errors import ConflictError, FileError, UsageError, WriteError
from skipstone.lake.directory import is_visible
from skipstone.lake.journal import (
    MANY_JOURNALS,
    Journals,
    JournalSource,
    encode_journal,
    forget_stale,
    read_journals,
)
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
from skipstone.parquet.write.files import staged_as
from skipstone.store.store import ListedFile, Store, check_key

__all__ = ["Append", "JournalSource", "Lease", "staged_as"]

_DONE: Final = b"done"
_THREADS: Final = 16
RENEW_SECONDS: Final = 30.0
EXPIRES_SECONDS: Final = 15 * 60.0
# Nobody renews the lease of another process, and what nobody has signed may be anybody's.
UNRENEWED_SECONDS: Final = 24 * 3600.0

# Jobs that have ended in this process, whatever of them is left.
_ended: set[str] = set()
# A reader that lists records meanwhile must never see what looks like a job half done.
_SOON_SECONDS: Final = 3600.0
_KEPT_SECONDS: Final = 24 * 3600.0
# A done record that is about to be the only one is written again if it is older.
_FRESH_SECONDS: Final = 12 * 3600.0
# What a writer that was killed leaves of a record.
_LEFT: Final = re.compile(r".*/\.[0-9a-f]{32}\.tmp")


class Append:
    """One job that adds files to a lake; as a context, what was not published when it ends is removed.

    Workers elsewhere need ``stage`` and ``job`` only: a file that is to have the key ``...-<job>.parquet`` in
    the lake is written to the stage by the key that ``staged_as`` gives.
    """

    def __init__(self, store: Store, job: str, lease: Lease) -> None:
        self._store = store
        self._job = job
        self._state: Literal["open", "over"] = "open"
        self._pid = os.getpid()
        self._renewal = Renewal(store, job, lease)
        # Who forgets a job doesn't go on with it.
        weakref.finalize(self, self._renewal.stop)

    @classmethod
    def begin(cls, store: Store, *, owner: int | None = None) -> Append:
        """Begin a job on a lake, which need not exist yet, and remove what dead jobs have left there.

        The job lives as long as this process, or with ``owner`` as long as that process of this host.
        """
        lease = Lease.of(owner)
        job = secrets.token_hex(10)
        store.write(lease_key(job), [lease.encode()], exclusive=True)
        try:
            if store.local:
                # Workers write there by path, so a stage behind a link out of the lake is refused here.
                store.clear(stage_key(job))
            # What can't be removed now stays hidden, and is removed next time.
            with suppress(FileError):
                sweep(store, job)
            return cls(store, job, lease)
        except BaseException:
            _ended.add(job)
            with suppress(FileError):
                discard(store, job)
            raise

    @property
    def job(self) -> str:
        """The job's name: 20 hexadecimal digits."""
        return self._job

    @property
    def stage(self) -> Store:
        """Where the job's files are written; picklable."""
        return self._store.child(stage_key(self._job))

    def publish(self, keys: Iterable[str], *, sources: Iterable[JournalSource] = ()) -> list[ListedFile]:
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
                    self._store.write(source_key(self._job), [body])
            except BaseException:
                self._renewal.end()
                # If even that fails, the next job does it; until then what was moved is hidden.
                with suppress(FileError):
                    self._roll_back(chosen)
                raise
            self._commit(chosen)
            self._renewal.end()
            with suppress(FileError):
                discard(self._store, self._job)
            with suppress(FileError):
                self._store.delete(merged.keys)
        finally:
            self._renewal.end()
            _ended.add(self._job)
        return listed

    def abort(self) -> None:
        """Remove all that the job has staged, unless it was published; what can't be removed is next time."""
        # A fork has a copy of the job, which is not its own to end.
        if self._state != "open" or os.getpid() != self._pid:
            return
        self._state = "over"
        self._renewal.end()
        with suppress(FileError):
            discard(self._store, self._job)
        _ended.add(self._job)

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
            raise UsageError(f"job {self._job} is over", path=self._store.uri, hint="begin another")

    def _staged(self, keys: Sequence[str]) -> dict[str, ListedFile]:
        """The staged files by the keys they are to have; an error names the first that is missing."""
        prefix = f"{stage_key(self._job)}/"
        staged = {e.key.removeprefix(prefix): e for e in self._store.list_prefix(stage_key(self._job))}
        chosen: dict[str, ListedFile] = {}
        for key in keys:
            _check_key(key, self._job)
            found = staged.get(staged_as(key), staged.get(key))
            if found is None:
                hint = "stage it before it is published"
                raise WriteError("it was not staged", path=self._store.path(prefix + key), hint=hint)
            chosen[key] = found
        if len(chosen) != len(keys):
            raise UsageError("a file is to be published twice", path=self._store.uri, hint="name each once")
        return chosen

    def _merged(self) -> Journals:
        """The journals that the job's own is to replace: all, once there are many."""
        few = len(self._store.list_prefix(SOURCES)) <= MANY_JOURNALS
        return Journals() if few else read_journals(self._store)

    def _move(self, staged: dict[str, ListedFile]) -> list[ListedFile]:
        self._store.write(publish_key(self._job), [intent(staged)], exclusive=True)
        gather(lambda key: self._store.move(staged[key].key, key), tuple(staged), threads=_THREADS)
        listed = self._listed(tuple(staged))
        for entry in listed:
            wanted = staged[entry.key].size
            if entry.size != wanted:
                raise WriteError(
                    f"it has {entry.size} bytes, and had {wanted} when it was staged",
                    path=self._store.path(entry.key),
                    hint="don't write to a stage while it is published",
                )
        return listed

    def _listed(self, keys: Sequence[str]) -> list[ListedFile]:
        """The published files as their folders list them."""
        folders = sorted({key.rpartition("/")[0] for key in keys})
        found: dict[str, ListedFile] = {}
        for entries in gather(self._in, folders, threads=_THREADS):
            found.update((entry.key, entry) for entry in entries)
        for key in keys:
            if key not in found:
                raise WriteError("it is gone", path=self._store.path(key), hint="run the job again")
        return [found[key] for key in keys]

    def _in(self, folder: str) -> list[ListedFile]:
        if not folder:
            return self._store.list_files()
        inner = self._store.child(folder).list_files()
        return [ListedFile(f"{folder}/{entry.key}", entry.size, entry.version) for entry in inner]

    def _commit(self, keys: Sequence[str]) -> None:
        """Write that the job is done, or take it back."""
        try:
            if settle(self._store, self._job, _DONE):
                return
        except BaseException as error:
            self._renewal.end()
            try:
                taken_back = self._roll_back(keys)
            except FileError:
                message = f"whether job {self._job} was published is not known: {error}"
                hint = "list the lake when the store is back; the job's files are all there, or none"
                raise WriteError(message, path=self._store.uri, hint=hint) from error
            if taken_back or not isinstance(error, FileError):
                raise
            # Only the answer was lost: the record is there.
            return
        with suppress(FileError):
            self._roll_back(keys)
        hint = "nothing was heard of it for too long; run it again"
        raise WriteError(f"job {self._job} was given up for dead", path=self._store.uri, hint=hint)

    def _roll_back(self, keys: Sequence[str]) -> bool:
        return roll_back(self._store, self._job, certain=self._store.local, keys=keys)


def _check_key(key: str, job: str) -> None:
    *folders, name = key.split("/")
    if not name.endswith(f"-{job}.parquet"):
        raise UsageError(f"{key!r} is not a file of job {job}", hint=f"name it ...-{job}.parquet")
    # Who opens one directory of a lake finds the lake's records by this.
    if not all("=" in folder for folder in folders) or not is_visible(ListedFile(key, 1, None)):
        hint = "put it in the lake's root, or in directories named key=value"
        raise UsageError(f"{key!r} is not a place for a file", hint=hint)


# -- who is at work: a lease that the process renews while it lives ----------------------------


@dataclass(frozen=True, slots=True)
class Lease:
    """The process whose life is the job's."""

    host: str
    """The host, its boot and the space of its process ids; "" if the system doesn't tell."""
    pid: int
    started: str
    """When the process started, in the system's own words; "" if it doesn't tell."""
    renewed: bool
    """Whether the lease is renewed while the job runs."""

    @classmethod
    def of(cls, pid: int | None = None) -> Lease:
        """The lease of a process here: this one, unless another is given, which then nobody renews."""
        number = os.getpid() if pid is None else pid
        started = _started(number)
        if started is None:
            raise UsageError(f"there is no process {number}", hint="give the id of a process on this host")
        return cls(_host(), number, started, pid is None)

    def encode(self) -> bytes:
        """As a file."""
        return json.dumps(asdict(self)).encode()

    @property
    def is_here(self) -> bool:
        """Whether the process is, or was, one that can be seen from here."""
        return self.host == _host() != ""

    @property
    def is_gone(self) -> bool:
        """Whether the process is known to be gone."""
        if not self.is_here:
            return False
        started = _started(self.pid)
        return started is None or bool(self.started and started and self.started != started)

    def is_dead(self, age: float) -> bool:
        """Whether the job is given up, if its lease was renewed so many seconds ago."""
        if self.is_gone:
            return True
        if self.renewed:
            return age > EXPIRES_SECONDS
        return not self.is_here and age > UNRENEWED_SECONDS


def decode_lease(data: bytes) -> Lease | None:
    """The lease in a file; None if it is none that is understood."""
    try:
        told = Lease(**json.loads(data))
    except (ValueError, TypeError):
        return None
    kinds = (told.host, str), (told.pid, int), (told.started, str), (told.renewed, bool)
    return told if all(type(value) is kind for value, kind in kinds) and told.pid > 0 else None


class Renewal:
    """A thread that renews a lease until it is stopped."""

    def __init__(self, store: Store, job: str, lease: Lease) -> None:
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        if lease.renewed:
            name = f"skipstone-lease-{job}"
            work = (store, job, lease, self._stop)
            self._thread = threading.Thread(target=_renew, args=work, name=name, daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End it without waiting."""
        self._stop.set()

    def end(self) -> None:
        """End it; after this it writes nothing more."""
        self._stop.set()
        # A fork has no threads but its own.
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()


def _renew(store: Store, job: str, lease: Lease, stop: threading.Event) -> None:
    while not stop.wait(RENEW_SECONDS):
        # A store that is out of reach now may be back long before the lease has run out.
        with suppress(FileError):
            store.write(lease_key(job), [lease.encode()])


def _started(pid: int) -> str | None:
    """When a process started, "" where the system doesn't tell; None if there is none that still runs."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return None
    except PermissionError:
        pass
    with suppress(OSError):
        # The second field is the command's name in brackets, which may hold anything.
        state, *fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        if len(fields) > 18:
            return None if state in "ZX" else fields[18]
    return ""


@lru_cache(maxsize=1)
def _host() -> str:
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        # Containers share a boot and may share a name, but not their process ids.
        return f"{socket.gethostname()}/{boot}/{Path('/proc/self/ns/pid').readlink()}"
    return ""


# -- giving up a job, and removing what dead jobs have left ------------------------------------


def settle(store: Store, job: str, verdict: bytes) -> bool:
    """Whether a job is done: as the verdict says, empty to give it up, unless that was decided before."""
    try:
        store.write(done_key(job), [verdict], exclusive=True)
    except ConflictError:
        # Perhaps by this very request: an answer that got lost is asked for again.
        record = read_records(store).get(job, Record())
        if record.done is None:
            raise WriteError("the record has gone", path=store.path(done_key(job))) from None
        return record.is_done
    return bool(verdict)


def intent(keys: Iterable[str]) -> bytes:
    """The record of which files a job is about to move."""
    return json.dumps({"keys": list(keys)}).encode()


def roll_back(store: Store, job: str, *, certain: bool, keys: Collection[str] | None = None) -> bool:
    """Give up a job that has begun to publish; False if it is done, and then nothing of it is touched.

    Unless it is ``certain`` that nobody goes on with it, its records stay for a day and hide what may come:
    stores finish copies whose client is gone.
    """
    if settle(store, job, b""):
        return False
    store.delete(_moved(store, job) if keys is None else keys)
    store.delete([source_key(job)])
    store.clear(stage_key(job))
    if certain:
        store.delete([publish_key(job)])
        store.delete([done_key(job)])
    # The last, since it tells whether this is certain.
    store.delete([lease_key(job)])
    return True


def discard(store: Store, job: str) -> None:
    """Remove the stage and the lease of a job that has not begun to publish, or is done."""
    store.clear(stage_key(job))
    store.delete([lease_key(job)])


def sweep(store: Store, own: str) -> None:
    """Remove what dead jobs have left, for a job whose lease was written just now, which tells the time.

    A live job's things stay. The first failure is raised when all was tried.
    """
    staged: dict[str, list[ListedFile]] = {}
    for entry in store.list_prefix(STAGED):
        staged.setdefault(entry.key.split("/")[2], []).append(entry)
    records = read_records(store)
    lease = records.get(own, Record()).lease
    told = modified(lease) if lease is not None else None
    now = time.time() if told is None else told
    failures: list[FileError] = []
    for job in sorted((records.keys() | staged.keys()) - {own}):
        try:
            _sweep_one(store, job, records.get(job, Record()), staged.get(job, []), now)
        except FileError as error:
            failures.append(error)
    _forget(store, records, now)
    forget_stale(store)
    if store.local:
        left = [
            e for e in (*store.list_prefix(APPENDS), *store.list_prefix(SOURCES)) if _LEFT.fullmatch(e.key)
        ]
        store.delete([entry.key for entry in left if _age(entry, now) > _KEPT_SECONDS])
    if failures:
        raise failures[0]


def _sweep_one(store: Store, job: str, record: Record, staged: list[ListedFile], now: float) -> None:
    if record.is_done:
        if staged or record.lease is not None:
            discard(store, job)
        return
    lease = _lease(store, record)
    certain = store.local and (job in _ended or (lease is not None and lease.renewed and lease.is_gone))
    if record.is_void:
        old = record.done is not None and _age(record.done, now) > _KEPT_SECONDS
        if certain or old or staged or record.lease is not None:
            roll_back(store, job, certain=certain or old)
        return
    if not _is_dead(job, record, lease, staged, now):
        return
    if record.publish is not None:
        if not roll_back(store, job, certain=certain):
            discard(store, job)
    else:
        discard(store, job)


def _is_dead(job: str, record: Record, lease: Lease | None, staged: list[ListedFile], now: float) -> bool:
    if job in _ended:
        return True
    if lease is not None and record.lease is not None:
        return lease.is_dead(_age(record.lease, now))
    entries = [entry for entry in (record.publish, record.lease, *staged) if entry is not None]
    return all(_age(entry, now) > UNRENEWED_SECONDS for entry in entries)


def _lease(store: Store, record: Record) -> Lease | None:
    if record.lease is None:
        return None
    # Without the version that was listed: it may have been renewed since.
    return decode_lease(store.open(record.lease.key).tail(1 << 16)[0])


def _forget(store: Store, records: dict[str, Record], now: float) -> None:
    """Delete the records of jobs that are long done, in two steps that are a day apart."""
    ages = {job: _age(r.done, now) for job, r in records.items() if r.is_done and r.done is not None}
    for job, age in ages.items():
        if records[job].publish is not None and age > _SOON_SECONDS:
            if age > _FRESH_SECONDS:
                # It stays for a day once it is the only one.
                store.write(done_key(job), [b"done"])
            store.delete([publish_key(job)])
    old = [job for job, age in ages.items() if age > _KEPT_SECONDS and records[job].publish is None]
    if old:
        # Somebody may have written it again while the records were read; and a lease alone says: not done.
        again = read_records(store)
        ready = [
            r.done for job in old if (r := again.get(job, Record())).lease is None and r.done is not None
        ]
        store.delete([done.key for done in ready if _age(done, now) > _KEPT_SECONDS])


def _moved(store: Store, job: str) -> list[str]:
    """The files that a job may have moved."""
    try:
        told = json.loads(store.open(publish_key(job)).tail(1 << 30)[0])["keys"]
        if all(check_key(key, store.uri) and job_of(key) == job for key in told):
            return list(told)
    except (FileError, ValueError, KeyError, TypeError):
        pass
    return [entry.key for entry in store.list_prefix("") if job_of(entry.key) == job]


def _age(entry: ListedFile, now: float) -> float:
    """Seconds since a file was written; 0 where the store doesn't tell."""
    told = modified(entry)
    return 0.0 if told is None else now - told
