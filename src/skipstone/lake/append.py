"""Append jobs: files are staged where no reader looks, then published together.

Skipstone's readers see all files of a job once it is done (``lake/records.py``). Other readers see each file
as soon as it is moved into the lake. Leftovers of failed or killed jobs are hidden, and removed by the next
job.

One exclusively written file decides whether a job is done: the job writes it when all its files are in the
lake; the process that abandons the job writes it empty. So a job that was presumed dead and resumes can't
succeed.
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
    JobRecord,
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
# For leases of other processes, which are not renewed, and files without a lease.
UNRENEWED_SECONDS: Final = 24 * 3600.0

# Jobs of this process that have ended, even if files of them are left.
_ended: set[str] = set()
# A reader that lists records at the same time must never see a job as half done.
_SOON_SECONDS: Final = 3600.0
_RETENTION_SECONDS: Final = 24 * 3600.0
# A done record that is about to be the job's only record is rewritten if it is older.
_FRESH_SECONDS: Final = 12 * 3600.0
# Temporary files that killed writers leave behind.
_LEFT: Final = re.compile(r".*/\.[0-9a-f]{32}\.tmp")


class Append:
    """A job that adds files to a lake; as a context manager, it removes unpublished files on exit.

    Workers need only ``stage`` and ``job``: a file with the key ``...-<job>.parquet`` in the lake is written
    to the stage under the key ``staged_as`` returns.
    """

    def __init__(self, store: Store, job: str, lease: Lease) -> None:
        self._store = store
        self._job = job
        self._state: Literal["open", "over"] = "open"
        self._pid = os.getpid()
        self._renewal = LeaseRenewal(store, job, lease)
        # A job that is garbage-collected will not continue.
        weakref.finalize(self, self._renewal.stop)

    @classmethod
    def begin(cls, store: Store, *, owner: int | None = None) -> Append:
        """Begin a job on a lake, which need not exist, and remove leftovers of dead jobs.

        The job lives as long as this process, or as long as the process ``owner`` of this host.
        """
        lease = Lease.of(owner)
        job = secrets.token_hex(10)
        store.write(lease_key(job), [lease.encode()], exclusive=True)
        try:
            if store.local:
                # Workers write by path, so a stage behind a link out of the lake is refused here.
                store.clear(stage_key(job))
            # Leftovers that can't be removed now stay hidden until the next job.
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
        """Name of the job: 20 hexadecimal digits."""
        return self._job

    @property
    def stage(self) -> Store:
        """The store that the job's files are written to; picklable."""
        return self._store.child(stage_key(self._job))

    def publish(self, keys: Iterable[str], *, sources: Iterable[JournalSource] = ()) -> list[ListedFile]:
        """Move staged files into the lake, all or none, and end the job; return the files as listed.

        Other staged files, left by failed attempts, are removed. ``sources`` are the files that were
        ingested, as :func:`~skipstone.lake.journal.ingested` will report them.
        """
        self._check_open()
        chosen = tuple(keys)
        staged = self._staged(chosen)
        own_sources = tuple(sources)
        merged = self._merged()
        self._state = "over"
        try:
            try:
                listed = self._move(staged)
                if own_sources or merged.keys:
                    jobs = {self._job, *merged.jobs} if chosen else merged.jobs
                    body = encode_journal([*own_sources, *merged.sources], merged.keys, jobs)
                    self._store.write(source_key(self._job), [body])
            except BaseException:
                self._renewal.end()
                # If this fails too, the next job does it; until then moved files are hidden.
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
        """Remove staged files unless they were published; the next job removes what can't be removed now."""
        # A forked child has a copy of the job, and must not end it.
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
            raise UsageError(f"job {self._job} has ended", path=self._store.uri, hint="begin a new job")

    def _staged(self, keys: Sequence[str]) -> dict[str, ListedFile]:
        """The staged files by their keys in the lake; raises if one is missing."""
        prefix = f"{stage_key(self._job)}/"
        staged = {e.key.removeprefix(prefix): e for e in self._store.list_prefix(stage_key(self._job))}
        chosen: dict[str, ListedFile] = {}
        for key in keys:
            _check_key(key, self._job)
            entry = staged.get(staged_as(key), staged.get(key))
            if entry is None:
                hint = "write the file to the stage before publishing"
                raise WriteError("file was not staged", path=self._store.path(prefix + key), hint=hint)
            chosen[key] = entry
        if len(chosen) != len(keys):
            raise UsageError("duplicate keys to publish", path=self._store.uri, hint="pass each key once")
        return chosen

    def _merged(self) -> Journals:
        """The journals that the job's own journal replaces: all, once there are many."""
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
                    f"file has {entry.size} bytes, but had {wanted} when it was staged",
                    path=self._store.path(entry.key),
                    hint="stop writing to a stage before publishing it",
                )
        return listed

    def _listed(self, keys: Sequence[str]) -> list[ListedFile]:
        """The published files as their directories list them."""
        folders = sorted({key.rpartition("/")[0] for key in keys})
        listed: dict[str, ListedFile] = {}
        for entries in gather(self._in, folders, threads=_THREADS):
            listed.update((entry.key, entry) for entry in entries)
        for key in keys:
            if key not in listed:
                hint = "run the job again"
                raise WriteError("published file has disappeared", path=self._store.path(key), hint=hint)
        return [listed[key] for key in keys]

    def _in(self, folder: str) -> list[ListedFile]:
        if not folder:
            return self._store.list_files()
        inner = self._store.child(folder).list_files()
        return [ListedFile(f"{folder}/{entry.key}", entry.size, entry.version) for entry in inner]

    def _commit(self, keys: Sequence[str]) -> None:
        """Record that the job is done, or roll it back."""
        try:
            if settle(self._store, self._job, _DONE):
                return
        except BaseException as error:
            self._renewal.end()
            try:
                rolled_back = self._roll_back(keys)
            except FileError:
                hint = "list the lake when the store is available; it has all files of the job or none"
                message = f"job {self._job} may or may not have been published"
                if not isinstance(error, Exception):
                    error.add_note(f"{self._store.uri}: {message}; {hint}")
                    raise error from None
                message = f"{message}: {error}"
                raise WriteError(message, path=self._store.uri, hint=hint) from error
            if not isinstance(error, Exception):
                error.add_note(
                    f"{self._store.uri}: {'nothing was' if rolled_back else 'all rows were'} published"
                )
            if rolled_back or not isinstance(error, FileError):
                raise
            # Only the response was lost: the record exists.
            return
        with suppress(FileError):
            self._roll_back(keys)
        hint = "run the job again"
        message = f"job {self._job} did not renew its lease and was abandoned by another job"
        raise WriteError(message, path=self._store.uri, hint=hint)

    def _roll_back(self, keys: Sequence[str]) -> bool:
        return roll_back(self._store, self._job, certain=self._store.local, keys=keys)


def _check_key(key: str, job: str) -> None:
    *folders, name = key.split("/")
    if not name.endswith(f"-{job}.parquet"):
        raise UsageError(f"{key!r} is not a file name of job {job}", hint=f"name it ...-{job}.parquet")
    # A reader of one partition finds the lake's records by this.
    if not all("=" in folder for folder in folders) or not is_visible(ListedFile(key, 1, None)):
        hint = "use the lake's root, or directories named key=value"
        raise UsageError(f"{key!r} is not in the lake's root or a partition", hint=hint)


# -- leases: renewed by the process that runs a job --------------------------------------------


@dataclass(frozen=True, slots=True)
class Lease:
    """The process that runs a job."""

    host: str
    """Host name, boot id and process-id namespace; "" if unavailable."""
    pid: int
    started: str
    """Start time of the process, as the system reports it; "" if unavailable."""
    renewed: bool
    """Whether the lease is renewed while the job runs."""

    @classmethod
    def of(cls, pid: int | None = None) -> Lease:
        """The lease of this process, or of another process of this host, which is not renewed."""
        number = os.getpid() if pid is None else pid
        started = _started(number)
        if started is None:
            raise UsageError(f"process {number} does not exist", hint="pass the id of a process on this host")
        return cls(_host(), number, started, pid is None)

    def encode(self) -> bytes:
        """Serialize."""
        return json.dumps(asdict(self)).encode()

    @property
    def is_here(self) -> bool:
        """Whether the process is or was visible from here."""
        return self.host == _host() != ""

    @property
    def is_gone(self) -> bool:
        """Whether the process has certainly ended."""
        if not self.is_here:
            return False
        started = _started(self.pid)
        return started is None or bool(self.started and started and self.started != started)

    def is_dead(self, age: float) -> bool:
        """Whether the job is considered dead, ``age`` seconds after its lease was renewed."""
        if self.is_gone:
            return True
        if self.renewed:
            return age > EXPIRES_SECONDS
        return not self.is_here and age > UNRENEWED_SECONDS


def decode_lease(data: bytes) -> Lease | None:
    """Deserialize; None if the lease is invalid."""
    try:
        lease = Lease(**json.loads(data))
    except (ValueError, TypeError):
        return None
    kinds = (lease.host, str), (lease.pid, int), (lease.started, str), (lease.renewed, bool)
    return lease if all(type(value) is kind for value, kind in kinds) and lease.pid > 0 else None


class LeaseRenewal:
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
        """Stop without waiting."""
        self._stop.set()

    def end(self) -> None:
        """Stop, and wait for a running renewal."""
        self._stop.set()
        # A forked child does not have the thread.
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()


def _renew(store: Store, job: str, lease: Lease, stop: threading.Event) -> None:
    while not stop.wait(RENEW_SECONDS):
        # The store can be available again long before the lease expires.
        with suppress(FileError):
            store.write(lease_key(job), [lease.encode()])


def _started(pid: int) -> str | None:
    """Start time of a process, "" if unavailable; None if it does not run."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return None
    except PermissionError:
        pass
    with suppress(OSError):
        # The second field is the command in parentheses, which can contain anything.
        state, *fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        if len(fields) > 18:
            return None if state in "ZX" else fields[18]
    return ""


@lru_cache(maxsize=1)
def _host() -> str:
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        # Containers share a boot id and can share a host name, but not process ids.
        return f"{socket.gethostname()}/{boot}/{Path('/proc/self/ns/pid').readlink()}"
    return ""


# -- abandoning jobs, and removing leftovers of dead ones --------------------------------------


def settle(store: Store, job: str, verdict: bytes) -> bool:
    """Decide that a job is done, or abandoned if the verdict is empty; return whether it is done.

    An earlier decision is final.
    """
    try:
        store.write(done_key(job), [verdict], exclusive=True)
    except ConflictError:
        # It can be our own: a request whose response was lost is sent again.
        record = read_records(store).get(job, JobRecord())
        if record.done is None:
            raise WriteError("record has disappeared", path=store.path(done_key(job))) from None
        return record.is_done
    return bool(verdict)


def intent(keys: Iterable[str]) -> bytes:
    """Body of the record of the files that a job is about to move."""
    return json.dumps({"keys": list(keys)}).encode()


def roll_back(store: Store, job: str, *, certain: bool, keys: Collection[str] | None = None) -> bool:
    """Abandon a job that began to publish; return False, and change nothing, if it is done.

    Unless the job has ``certain``ly ended, its records stay for a day and hide files that can still appear:
    stores finish copies after the client is gone.
    """
    if settle(store, job, b""):
        return False
    store.delete(_moved(store, job) if keys is None else keys)
    store.delete([source_key(job)])
    store.clear(stage_key(job))
    if certain:
        store.delete([publish_key(job)])
        store.delete([done_key(job)])
    # Last, since it shows whether the job has ended.
    store.delete([lease_key(job)])
    return True


def discard(store: Store, job: str) -> None:
    """Remove the stage and lease of a job that is done or did not begin to publish."""
    store.clear(stage_key(job))
    store.delete([lease_key(job)])


def sweep(store: Store, own: str) -> None:
    """Remove leftovers of dead jobs; the lease that the ``own`` job has just written gives the store's time.

    Raises the first failure after trying everything.
    """
    staged: dict[str, list[ListedFile]] = {}
    for entry in store.list_prefix(STAGED):
        staged.setdefault(entry.key.split("/")[2], []).append(entry)
    records = read_records(store)
    lease = records.get(own, JobRecord()).lease
    renewed = modified(lease) if lease is not None else None
    now = time.time() if renewed is None else renewed
    failures: list[FileError] = []
    for job in sorted((records.keys() | staged.keys()) - {own}):
        try:
            _sweep_one(store, job, records.get(job, JobRecord()), staged.get(job, []), now)
        except FileError as error:
            failures.append(error)
    _forget(store, records, now)
    forget_stale(store)
    if store.local:
        own_files = (*store.list_prefix(APPENDS), *store.list_prefix(SOURCES))
        left = [entry for entry in own_files if _LEFT.fullmatch(entry.key)]
        store.delete([entry.key for entry in left if _age(entry, now) > _RETENTION_SECONDS])
    if failures:
        raise failures[0]


def _sweep_one(store: Store, job: str, record: JobRecord, staged: list[ListedFile], now: float) -> None:
    if record.is_done:
        if staged or record.lease is not None:
            discard(store, job)
        return
    lease = _lease(store, record)
    certain = store.local and (job in _ended or (lease is not None and lease.renewed and lease.is_gone))
    if record.is_void:
        old = record.done is not None and _age(record.done, now) > _RETENTION_SECONDS
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


def _is_dead(job: str, record: JobRecord, lease: Lease | None, staged: list[ListedFile], now: float) -> bool:
    if job in _ended:
        return True
    if lease is not None and record.lease is not None:
        return lease.is_dead(_age(record.lease, now))
    entries = [entry for entry in (record.publish, record.lease, *staged) if entry is not None]
    return all(_age(entry, now) > UNRENEWED_SECONDS for entry in entries)


def _lease(store: Store, record: JobRecord) -> Lease | None:
    if record.lease is None:
        return None
    # Without the listed version: it can have been renewed since.
    return decode_lease(store.open(record.lease.key).tail(1 << 16)[0])


def _forget(store: Store, records: dict[str, JobRecord], now: float) -> None:
    """Delete the records of jobs that finished long ago, in two steps a day apart."""
    ages = {job: _age(r.done, now) for job, r in records.items() if r.is_done and r.done is not None}
    for job, age in ages.items():
        if records[job].publish is not None and age > _SOON_SECONDS:
            if age > _FRESH_SECONDS:
                # Rewritten, so that it stays for a day as the only record.
                store.write(done_key(job), [b"done"])
            store.delete([publish_key(job)])
    old = [job for job, age in ages.items() if age > _RETENTION_SECONDS and records[job].publish is None]
    if old:
        # Another job can have rewritten it since the records were read; and a lease alone means: not done.
        again = read_records(store)
        ready = [
            r.done for job in old if (r := again.get(job, JobRecord())).lease is None and r.done is not None
        ]
        store.delete([done.key for done in ready if _age(done, now) > _RETENTION_SECONDS])


def _moved(store: Store, job: str) -> list[str]:
    """The files that a job can have moved."""
    try:
        keys = json.loads(store.open(publish_key(job)).tail(1 << 30)[0])["keys"]
        if all(check_key(key, store.uri) and job_of(key) == job for key in keys):
            return list(keys)
    except (FileError, ValueError, KeyError, TypeError):
        pass
    return [entry.key for entry in store.list_prefix("") if job_of(entry.key) == job]


def _age(entry: ListedFile, now: float) -> float:
    """Seconds since a file was written; 0 if the store has no times."""
    time = modified(entry)
    return 0.0 if time is None else now - time
