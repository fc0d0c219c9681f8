"""Skipstone's own files of a lake: their location, and the records of append jobs.

Polars and DuckDB read every file below a directory as data, whatever its name. So the index, records and
staged files of the lake ``<name>`` are in ``.skipstone/<name>`` in the parent directory, which readers skip
like other hidden directories. All other code addresses them by their keys in the lake, ``_skipstone/...``.

They are in the lake itself, in ``_skipstone``, if that directory is not empty (older versions wrote to it) or
exists before anything beside the lake, if the lake has no parent (the root of a bucket), or if the parent
can't hold them: the lake is a mount point, the parent is read-only, or it is shared by all users, such as
/tmp, and ``.skipstone`` belongs to another user. A link to a lake is the lake.

The files of an append job carry its name, and its records decide whether they are visible, so that a listing
contains all files of a job or none:

    _skipstone/appends/<job>.publish    its files are being moved into the lake
    _skipstone/appends/<job>.done       all files are in the lake; if empty, the job was abandoned
    _skipstone/appends/<job>.lease      the process that runs it
    _skipstone/staged/<job>/            its files until they are moved
    _skipstone/sources/<job>.json       the source files it ingested
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from skipstone.engine.jobs import Engine, LocalEngine
from skipstone.errors import ReadError
from skipstone.store.local import check_change
from skipstone.store.source import Source
from skipstone.store.store import BY_KEY, ListedFile, Store, open_root

FOLDER: Final = "_skipstone"
"""Key of the directory of a lake's own files."""
BESIDE: Final = ".skipstone"
"""Name of the directory beside the lakes that holds their own files."""


def open_lake_root(path: object, storage_options: Mapping[str, Any] | None = None) -> Store:
    """The store of a directory lake, which need not exist."""
    return with_own_files(open_root(path, storage_options=storage_options))


def with_own_files(store: Store, real: Store | None = None) -> Store:
    """The store of a lake, with its own files under ``_skipstone``; ``real`` is its ``real_store``."""
    if isinstance(store, SiblingStore):
        return store
    # A lake has the same own files, whatever link it is opened by.
    real = real or real_store(store)
    above, name = real.parent(), real.uri.rstrip("/").rpartition("/")[2]
    if above is None or not name or above.child(name).uri != real.uri:
        return store
    beside = SiblingStore(store, above, name, above.child(f"{BESIDE}/{name}"))
    if store.local:
        try:
            return beside if _is_beside(real.uri, beside.own.uri) else store
        except OSError as error:
            hint = f"allow reading {BESIDE}: it records which files of the lake are visible"
            reason = error.strerror or type(error).__name__
            raise ReadError(f"can't read the directory: {reason}", path=beside.own.uri, hint=hint) from error
    try:
        return store if store.list_prefix(FOLDER) else beside
    except ReadError:
        return store


def real_store(store: Store) -> Store:
    """The store with links resolved; object stores have none."""
    real = os.path.realpath(store.uri) if store.local else store.uri
    return store if real == store.uri or getattr(store, "only", None) else replace(store, uri=real)  # type: ignore[type-var]


def index_root(store: Any) -> Store:
    """The store of a lake's own files, or of the lake that contains a single file."""
    lake = replace(store, only=None) if getattr(store, "only", None) is not None else store
    return with_own_files(lake).child(FOLDER)


def _is_beside(lake: str, beside: str) -> bool:
    """Whether the own files of a local lake are, or will be, beside it."""
    folder, within = os.path.dirname(beside), os.path.join(lake, FOLDER)
    if not _is_trusted(folder, lake) or _is_mounted(lake):
        return False
    is_within = _is_dir(within)
    if _is_dir(beside):
        return not is_within or (bool(os.listdir(beside)) and not os.listdir(within))
    if is_within:
        return False
    # Missing directories will be created in the nearest existing ancestor.
    while not _is_dir(folder):
        folder = os.path.dirname(folder)
    return os.access(folder, os.W_OK | os.X_OK)


def _is_dir(path: str) -> bool:
    """Whether the directory exists; raises if that can't be determined."""
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return False
        raise


def _is_mounted(lake: str) -> bool:
    """Whether the lake is a mount point, so that files can't be moved into it from outside."""
    try:
        if os.stat(lake).st_dev != os.stat(os.path.dirname(lake)).st_dev:
            return True
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            mounts = file.read()
    except OSError:
        return False
    # A bind mount within one file system shows only here.
    for plain, written in (("\\", "\\134"), (" ", "\\040"), ("\t", "\\011"), ("\n", "\\012")):
        lake = lake.replace(plain, written)
    return f" {lake} " in mounts and any(line.split(" ", 5)[4] == lake for line in mounts.splitlines())


def _is_trusted(folder: str, lake: str) -> bool:
    """Whether only users who can write or replace the lake can have written there."""
    try:
        shared = os.stat(os.path.dirname(folder)).st_mode & stat.S_ISVTX
        return not shared or os.lstat(folder).st_uid in (0, os.geteuid(), os.stat(lake).st_uid)
    except FileNotFoundError:
        return True


@dataclass(frozen=True, slots=True)
class SiblingStore:
    """A lake whose own files are in a directory beside it."""

    lake: Store
    above: Store
    name: str
    own: Store
    """The store of its own files."""
    uri: str = field(init=False)
    local: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "uri", self.lake.uri)
        object.__setattr__(self, "local", self.lake.local)

    def list_prefix(self, prefix: str) -> list[ListedFile]:
        """Files below a directory."""
        if not prefix:
            return _sorted(self.lake.list_prefix(""), self._all_owned())
        inner = _inner(prefix.strip("/"))
        return self.lake.list_prefix(prefix) if inner is None else self._owned(inner)

    def list_directories(self) -> list[str]:
        """Directories in the lake, including that of its own files."""
        directories = self.lake.list_directories()
        return sorted([*directories, FOLDER]) if self._all_owned() else directories

    def list_files(self) -> list[ListedFile]:
        """Files directly in the root."""
        return self.lake.list_files()

    def child(self, key: str) -> Store:
        """The store of a directory."""
        store, inner = self._at(key)
        return store.child(inner) if inner else store

    def parent(self) -> Store | None:
        """The store above the lake."""
        return self.above

    def open(self, key: str, *, version: object | None = None, size: int | None = None) -> Source:
        """Open a file lazily."""
        store, inner = self._at(key)
        return store.open(inner, version=version, size=size)

    def write(self, key: str, parts: Iterable[bytes | memoryview], *, exclusive: bool = False) -> None:
        """Write a file atomically."""
        store, inner = self._at(key)
        store.write(inner, parts, exclusive=exclusive)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete files."""
        files = [self._at(key) for key in keys]
        self.own.delete(inner for store, inner in files if store != self.lake)
        self.lake.delete(inner for store, inner in files if store == self.lake)

    def move(self, key: str, to: str) -> None:
        """Move a file."""
        if self.local:
            # The store above would follow links from this lake into its siblings.
            for store, inner in (self._at(key), self._at(to)):
                check_change(Path(store.path(inner)), store.uri)
        self.above.move(self._from_above(key), self._from_above(to))

    def clear(self, prefix: str) -> None:
        """Delete a directory and everything below it."""
        store, inner = self._at(prefix)
        store.clear(inner)

    def path(self, key: str) -> str:
        """Full path or URI of a file."""
        store, inner = self._at(key)
        return store.path(inner) if inner else store.uri

    def _at(self, key: str) -> tuple[Store, str]:
        inner = _inner(key) if key[:1] == FOLDER[0] else None
        return (self.lake, key) if inner is None else (self.own, inner)

    def _from_above(self, key: str) -> str:
        inner = _inner(key)
        return f"{self.name}/{key}" if inner is None else f"{BESIDE}/{self.name}/{inner}"

    def _owned(self, prefix: str) -> list[ListedFile]:
        return [ListedFile(f"{FOLDER}/{e.key}", e.size, e.version) for e in self.own.list_prefix(prefix)]

    def _all_owned(self) -> list[ListedFile]:
        """Its own files; empty if they can't be listed, since the lake can be read without them."""
        try:
            return self._owned("")
        except ReadError:
            return []

    def list_with(self, own: Iterable[ListedFile]) -> list[ListedFile]:
        """All files of the lake, and the given ones of its own."""
        return _sorted(self.lake.list(), own)

    # Last of the listings: its name hides the builtin type.
    def list(self) -> list[ListedFile]:
        """All files of the lake and all of its own."""
        return self.list_with(self._all_owned())


def _inner(key: str) -> str | None:
    """The key below ``_skipstone``; None for other files."""
    if key == FOLDER:
        return ""
    return key.removeprefix(f"{FOLDER}/") if key.startswith(f"{FOLDER}/") else None


def _sorted(one: Iterable[ListedFile], other: Iterable[ListedFile]) -> list[ListedFile]:
    return sorted((*one, *other), key=BY_KEY)


# -- records of jobs ----------------------------------------------------------------------------


APPENDS: Final = f"{FOLDER}/appends"
STAGED: Final = f"{FOLDER}/staged"
SOURCES: Final = f"{FOLDER}/sources"
_FILE: Final = re.compile(r"-([0-9a-f]{20})\.parquet")
_FILE_LENGTH: Final = 29
_RECORD: Final = re.compile(rf"{APPENDS}/([0-9a-f]{{20}})\.(publish|done|lease)")
# Largest difference between a store's clock and ours.
_SKEW_SECONDS: Final = 3600


@dataclass(frozen=True, slots=True)
class JobRecord:
    """The record files of one append job."""

    publish: ListedFile | None = None
    done: ListedFile | None = None
    lease: ListedFile | None = None

    @property
    def is_done(self) -> bool:
        """Whether all its files are in the lake."""
        return self.done is not None and self.done.size > 0

    @property
    def is_void(self) -> bool:
        """Whether the job was abandoned."""
        return self.done is not None and not self.done.size

    @property
    def is_unfinished(self) -> bool:
        """Whether only some of its files can be in the lake."""
        return not self.is_done and (self.publish is not None or self.done is not None)


def publish_key(job: str) -> str:
    """Key of the record that a job's files are being moved."""
    return f"{APPENDS}/{job}.publish"


def done_key(job: str) -> str:
    """Key of the record that a job is done or, if empty, abandoned."""
    return f"{APPENDS}/{job}.done"


def lease_key(job: str) -> str:
    """Key of the record of the process that runs a job."""
    return f"{APPENDS}/{job}.lease"


def stage_key(job: str) -> str:
    """Key of the directory of a job's unpublished files."""
    return f"{STAGED}/{job}"


def source_key(job: str) -> str:
    """Key of the journal of a job's source files."""
    return f"{SOURCES}/{job}.json"


def job_of(key: str) -> str | None:
    """The job that wrote a file, from the file's name.

    >>> job_of("day=1/part-0-00112233445566778899.parquet"), job_of("day=1/part-0.parquet")
    ('00112233445566778899', None)
    """
    match = _FILE.fullmatch(key[-_FILE_LENGTH:])
    return match[1] if match is not None else None


def modified(entry: ListedFile) -> float | None:
    """Modification time in seconds since 1970 by the store's clock; None if the store has none."""
    version = entry.version
    if isinstance(version, tuple):
        return float(version[1]) / 1e9
    time = getattr(version, "modified", None)
    return None if time is None else float(time.timestamp())


def read_records(store: Store, own: Sequence[ListedFile] | None = None) -> dict[str, JobRecord]:
    """The records of a lake by job; ``own`` are its own files if they were just listed."""
    records: dict[str, JobRecord] = {}
    for entry in store.list_prefix(APPENDS) if own is None else own:
        name = _RECORD.fullmatch(entry.key)
        if name is not None:
            records[name[1]] = replace(records.get(name[1], JobRecord()), **{name[2]: entry})
    return records


def list_settled(
    store: Store, listing: Callable[[], list[ListedFile]] | None = None, *, named: str = ""
) -> list[ListedFile]:
    """The files of a listing, without those of jobs that were not done when it began.

    Jobs continue while files are listed: only if a job was done *before*, all its files are sure to be
    listed. So the records are read first, in one request. Jobs without a record finished more than a day ago,
    or their records were not copied with the lake. A job that began to publish since has none either, but its
    files are new: only then records and files are listed again. The file ``named`` is always included.
    """
    began = time.time()
    before: Mapping[str, JobRecord] | ReadError
    beside = store if listing is None and isinstance(store, SiblingStore) else None
    own = None
    try:
        # One listing for the records and the index.
        own = None if beside is None else beside.list_prefix(FOLDER)
        before = _records_around(store, own)
    except ReadError as error:
        before = error
    if listing is None:
        listing = store.list if beside is None or own is None else partial(beside.list_with, own)
    listed = listing()
    # Most files belong to no job: one character shows it.
    ends = [e.key[-_FILE_LENGTH:] for e in listed if e.key[-_FILE_LENGTH:][:1] == "-" and e.key != named]
    jobs = {match[1] for end in ends if (match := _FILE.fullmatch(end)) is not None}
    if not jobs:
        return listed
    if isinstance(before, ReadError):
        # Without the records it is unknown which files are visible.
        raise before
    done = {job for job, record in before.items() if record.is_done}
    unknown = jobs - before.keys()
    if not any(_since(entry, began) for entry in listed if job_of(entry.key) in unknown):
        return listed if jobs <= done | unknown else _only(listed, done | unknown, named)
    now = _records_around(store)
    unknown -= now.keys()
    if not any(_since(entry, began) for entry in listed if job_of(entry.key) in unknown):
        return _only(listed, done | unknown, named)
    # A copied lake has no records; a job abandoned just now has no files left.
    done |= {job for job, record in now.items() if record.is_done}
    return _only(listing(), done | unknown, named)


def _only(listed: Iterable[ListedFile], jobs: set[str], named: str) -> list[ListedFile]:
    """The files of these jobs, and those that belong to no job."""
    return [e for e in listed if (job := job_of(e.key)) is None or job in jobs or e.key == named]


def _since(entry: ListedFile, began: float) -> bool:
    """Whether a file can be newer than this time."""
    time = modified(entry)
    return time is None or time > began - _SKEW_SECONDS


def _records_around(store: Store, own: Sequence[ListedFile] | None = None) -> dict[str, JobRecord]:
    """The records of a lake, or of the lake that a partition belongs to."""
    records: dict[str, JobRecord] = {}
    for each in _lakes(store):
        records.update(read_records(each, own if each is store else None))
    return records


def _lakes(store: Store) -> Iterator[Store]:
    yield store
    above: Store | None = store
    # Jobs write only to the root of a lake and to partitions.
    while above is not None and "=" in above.uri.rstrip("/").rpartition("/")[2]:
        above = above.parent()
        if above is not None:
            yield with_own_files(above)


# -- parallel listing of large lakes: an engine lists the top directories ----------------------

# Smaller lakes are listed faster in this process.
_MANY_FOLDERS: Final = 32
_MANY_FILES: Final = 1_000
# With fewer top directories, the level below is distributed.
_FEW: Final = 16
# Neighbouring directories are of similar size, so tasks take every n-th.
_TASKS: Final = 64
_REQUESTS: Final = 16


def list_again(engine: Engine, store: Store, before: Sequence[ListedFile]) -> list[ListedFile]:
    """``list_settled``, on the engine if the last listing was large enough."""
    if len(before) <= _MANY_FILES or (store.local and isinstance(engine, LocalEngine)):
        return list_settled(store)
    folders = {entry.key.rpartition("/")[0] for entry in before}
    many = len(folders) > _MANY_FOLDERS
    return list_settled(store, (lambda: list_on(engine, store)) if many else None)


def list_on(engine: Engine, store: Store) -> list[ListedFile]:
    """``store.list()`` on the engine; objects that only mark a directory can be missing."""
    if isinstance(engine, LocalEngine) and engine.threads is None and not store.local:
        # The engine's threads are sized for CPU work; these only wait for requests.
        engine = LocalEngine(_REQUESTS)
    files, folders = store.list_files(), store.list_directories()
    if len(folders) < _FEW:
        deeper: list[str] = []
        for folder in folders:
            try:
                here, below = _level(store, folder)
            except ReadError:
                # Deleted or unreadable: the task that lists it will find out.
                here, below = [], [folder]
            files += here
            deeper += below
        folders = deeper
    count = min(_TASKS, len(folders))
    tasks = [_ListTask(store, tuple(folders[number::count])) for number in range(count)]
    for listed in engine.map(_list, tasks):
        files += listed
    return sorted(files, key=lambda entry: entry.key)


@dataclass(frozen=True, slots=True)
class _ListTask:
    store: Store
    keys: tuple[str, ...]


def _list(task: _ListTask) -> list[ListedFile]:
    return [entry for key in task.keys for entry in task.store.list_prefix(key)]


def _level(store: Store, folder: str) -> tuple[list[ListedFile], list[str]]:
    """Files and directories in a directory, by their keys from the root."""
    inner = store.child(folder)
    files = [ListedFile(f"{folder}/{entry.key}", entry.size, entry.version) for entry in inner.list_files()]
    return files, [f"{folder}/{key}" for key in inner.list_directories()]
