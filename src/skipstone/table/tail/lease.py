"""The directory of a tail, and the lease of the one process that writes to it.

    tail.json    its id, the number of leases so far, and what is flushed, with a checksum
    lock         locked by the holder of the lease; the system releases it when the process ends
    *.wal        the write-ahead log
    synced       the number of the last call in it that is on disk

The id is new whenever the directory is, so that the frames of a deleted log are never taken for those of
another. Every lease has a larger token than those before it, and flushes record it in the table: a holder
that lost its lease, because the lock was deleted, can't commit any more.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
import socket
import time
import weakref
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from xxhash import xxh3_64_hexdigest

from skipstone.errors import ConflictError, CorruptFileError, WriteError
from skipstone.store.local import LocalStore, make_directories, write_error
from skipstone.table.tail.wal import segment_paths

STATE: Final = "tail.json"
LOCK: Final = "lock"
_BUSY: Final = (errno.EWOULDBLOCK, errno.EACCES)
_UNSUPPORTED: Final = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)
_TRIES: Final = 5
_PAUSE: Final = 0.01


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that holds a lease."""

    host: str
    pid: int
    since: str

    @classmethod
    def current(cls) -> Holder:
        """This process."""
        return cls(socket.gethostname(), os.getpid(), datetime.now(UTC).isoformat(timespec="seconds"))

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} since {self.since}"


@dataclass(frozen=True, slots=True)
class Intent:
    """A flush that was about to be committed."""

    last: int
    """Its last frame."""
    base: int | None
    """The table's snapshot before it."""


@dataclass(frozen=True, slots=True)
class TailState:
    """What a tail records beside its log."""

    id: str
    table: str
    """UUID of the table."""
    token: int = 0
    """Token of the last lease."""
    floor: int = 0
    """The last frame that is known to be flushed."""
    durable: int = 0
    """The last frame when the log was closed."""
    holder: Holder | None = None
    """The last holder of the lease; it may have ended."""
    intent: Intent | None = None

    def encode(self) -> bytes:
        """Serialize, with a checksum."""
        document = asdict(self)
        return json.dumps({**document, "checksum": _checksum(document)}).encode()

    @classmethod
    def decode(cls, data: bytes, path: str) -> TailState:
        """Deserialize."""
        try:
            document = json.loads(data)
            # Who edits the file removes the checksum.
            checksum = document.pop("checksum", None)
            if checksum not in (None, _checksum(document)):
                raise ValueError
            holder, intent = document.pop("holder"), document.pop("intent")
            state = cls(
                **document,
                holder=None if holder is None else Holder(**holder),
                intent=None if intent is None else Intent(**intent),
            )
            numbers = (state.token, state.floor, state.durable)
            if all(type(one) is int and one >= 0 for one in numbers) and type(state.id) is str:
                return state
        except (ValueError, KeyError, TypeError, AttributeError):
            pass
        raise _damaged("damaged", path)


def _damaged(problem: str, path: str) -> CorruptFileError:
    hint = "restore the file from a backup, or move the directory away, which loses unflushed rows"
    return CorruptFileError(f"state of the tail is {problem}", path=path, hint=hint)


def _checksum(document: dict[str, Any]) -> str:
    return str(xxh3_64_hexdigest(json.dumps(document, sort_keys=True).encode()))


def read_state(store: LocalStore) -> TailState | None:
    """The state of a tail; None if there is none. A log without it is damaged."""
    path = Path(store.path(STATE))
    # In this order: every tail has a state before it has a log.
    has_log = bool(segment_paths(path.parent))
    try:
        return TailState.decode(path.read_bytes(), str(path))
    except (FileNotFoundError, NotADirectoryError):
        if has_log:
            raise _damaged("missing, but its write-ahead log is not", str(path)) from None
        return None
    except OSError as error:
        raise write_error(error, path) from error


_HELD: weakref.WeakSet[Lease] = weakref.WeakSet()
"""Leases of this process."""


class Lease:
    """The right to write to a tail, while the process lives."""

    def __init__(self, store: LocalStore, name: str, descriptor: int, state: TailState) -> None:
        self._descriptor = descriptor
        self.store, self.name, self.state = store, name, state
        self.before = state
        """The state that the last holder left."""
        _HELD.add(self)

    @classmethod
    def acquire(cls, store: LocalStore, table: str, name: str) -> Lease:
        """Take the lease of a table's tail, whose directory is created if missing.

        Raises ConflictError if another process, or another writer in this one, holds it.
        """
        path = Path(store.path(LOCK))
        try:
            make_directories(path.parent)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise write_error(error, path) from error
        try:
            _lock(descriptor, path, store, name)
            before = read_state(store) or TailState(secrets.token_hex(8), table)
            if before.table != table:
                problem = f"directory is the tail of another table, {before.table}"
                hint = "use another directory, or delete this one if that table is gone"
                raise ConflictError(problem, path=store.uri, hint=hint)
            lease = cls(store, name, descriptor, before)
        except BaseException:
            os.close(descriptor)
            raise
        try:
            lease.record(token=before.token + 1, holder=Holder.current())
        except BaseException:
            lease.release()
            raise
        return lease

    @property
    def token(self) -> int:
        """The number of this lease."""
        return self.state.token

    def check(self) -> None:
        """Raise if the lease was lost: its lock was deleted, or another process has inherited this object."""
        try:
            mine, now = os.fstat(self._descriptor), Path(self.store.path(LOCK)).stat()
        except OSError:
            raise lost(self.name, self.store.uri) from None
        if (mine.st_ino, mine.st_dev) != (now.st_ino, now.st_dev):
            raise lost(self.name, self.store.uri)

    def record(
        self,
        *,
        token: int | None = None,
        holder: Holder | None = None,
        floor: int | None = None,
        durable: int | None = None,
        intent: Intent | None = None,
        lower: bool = False,
    ) -> None:
        """Write the state durably; None leaves a value as it is, and an intent ends with the next record.

        ``lower`` allows a smaller number of the last durable frame.
        """
        self.check()
        state = self.state
        state = replace(
            state,
            token=state.token if token is None else token,
            holder=state.holder if holder is None else holder,
            floor=max(state.floor, floor or 0),
            durable=max(0 if lower else state.durable, durable or 0),
            intent=intent,
        )
        self.store.write(STATE, [state.encode()])
        self.state = state

    def __del__(self) -> None:
        # A writer that can no longer be closed must not keep others away.
        self.release()

    def release(self) -> None:
        """Give the lease back."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def lost(name: str, path: str) -> ConflictError:
    """The error of a writer that no longer holds the lease."""
    hint = "open another writer, which recovers the acknowledged rows"
    return ConflictError(f"tail writer of {name} has lost its lease", path=path, hint=hint)


def is_held(store: LocalStore) -> bool:
    """Whether a process holds the lease."""
    path = Path(store.path(LOCK))
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise write_error(error, path) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _BUSY:
            return True
        raise write_error(error, path) from error
    finally:
        os.close(descriptor)
    return False


def _lock(descriptor: int, path: Path, store: LocalStore, name: str) -> None:
    try:
        # Who looks whether the lease is held locks the file for a moment.
        for left in reversed(range(_TRIES)):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if not left or error.errno not in _BUSY:
                    raise
                time.sleep(_PAUSE)
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            hint = "pass wal= with a directory of a local disk"
            raise WriteError("file system does not support locks", path=str(path), hint=hint) from error
        if error.errno not in _BUSY:
            raise write_error(error, path) from error
        state = None
        with suppress(CorruptFileError):
            state = read_state(store)
        who = "" if state is None or state.holder is None else f": {state.holder}"
        hint = "close that writer first; a lease is released when its process ends"
        raise ConflictError(f"{name} already has a tail writer{who}", path=store.uri, hint=hint) from error
    # The directory can have been deleted, and created again, since the lock was opened.
    try:
        now = path.stat()
    except FileNotFoundError:
        now = None
    mine = os.fstat(descriptor)
    if now is None or (now.st_ino, now.st_dev) != (mine.st_ino, mine.st_dev):
        raise ConflictError("directory was replaced while it was opened", path=store.uri, hint="try again")


def _forget() -> None:
    """In a forked process: close the inherited locks, so that they end with the process that took them."""
    for lease in list(_HELD):
        lease.release()


os.register_at_fork(after_in_child=_forget)
