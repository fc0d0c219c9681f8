"""Who is at work on a job: a lease that the process renews while it lives."""

from __future__ import annotations

import json
import os
import re
import socket
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from skipstone.errors import FileError, UsageError
from skipstone.lake.records import lease_key
from skipstone.store.place import Place

RENEW_SECONDS: Final = 30.0
EXPIRES_SECONDS: Final = 15 * 60.0
# Nobody renews the lease of another process, and what nobody has signed may be anybody's.
UNRENEWED_SECONDS: Final = 24 * 3600.0

# Jobs that have ended in this process, whatever of them is left.
_ended: set[str] = set()


@dataclass(frozen=True, slots=True)
class Lease:
    """The process whose life is the job's."""

    host: str
    boot: str
    """The boot of the host and the space of its process ids, as far as the system tells."""
    pid: int
    started: str
    """When the process started, in the system's own words; "" if it doesn't tell."""
    renewed: bool
    """Whether the lease is renewed while the job runs."""

    @classmethod
    def of(cls, pid: int | None = None) -> Lease:
        """The lease of a process here: this one, unless another is given, which then nobody renews."""
        number = os.getpid() if pid is None else pid
        if _is_gone(number):
            raise UsageError(f"there is no process {number}", hint="give the id of a process on this host")
        return cls(socket.gethostname(), _boot(), number, _status(number)[1], pid is None)

    def encode(self) -> bytes:
        """As a file."""
        return json.dumps(asdict(self)).encode()

    @property
    def is_here(self) -> bool:
        """Whether the process is, or was, one that can be seen from here."""
        boot = _boot()
        return boot != "" and (self.host, self.boot) == (socket.gethostname(), boot)

    @property
    def is_gone(self) -> bool:
        """Whether the process is known to be gone."""
        if not self.is_here:
            return False
        started = _status(self.pid)[1]
        return _is_gone(self.pid) or bool(self.started and started and self.started != started)

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
    kinds = (told.host, str), (told.boot, str), (told.pid, int), (told.started, str), (told.renewed, bool)
    return told if all(type(value) is kind for value, kind in kinds) and told.pid > 0 else None


class Renewal:
    """A thread that renews a lease until it is stopped."""

    def __init__(self, place: Place, job: str, lease: Lease) -> None:
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        if lease.renewed:
            name = f"skipstone-lease-{job}"
            work = (place, job, lease, self._stop)
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


def _renew(place: Place, job: str, lease: Lease, stop: threading.Event) -> None:
    while not stop.wait(RENEW_SECONDS):
        # A store that is out of reach now may be back long before the lease has run out.
        with suppress(FileError):
            place.write(lease_key(job), [lease.encode()])


def end_here(job: str) -> None:
    """Say that a job of this process is over: what is left of it may be removed."""
    _ended.add(job)


def has_ended_here(job: str) -> bool:
    """Whether a job of this process is over."""
    return job in _ended


def _is_gone(pid: int) -> bool:
    """Whether there is no such process, or only what a parent has not yet noticed."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    except OverflowError:
        return True
    return _status(pid)[0] in ("Z", "X")


def _status(pid: int) -> tuple[str, str]:
    """The state and the start time of a process; "" where the system doesn't tell."""
    with suppress(OSError):
        # The second field is the command's name in brackets, which may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        if len(fields) > 19:
            return fields[0].decode(), fields[19].decode()
    return "", ""


@lru_cache(maxsize=1)
def _boot() -> str:
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        # Containers share a boot and may share a name, but not their process ids.
        space = re.sub(r"\D", "", str(Path("/proc/self/ns/pid").readlink()))
        return f"{boot}/{space}"
    return ""
