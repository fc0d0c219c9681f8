"""Skipstone's own files of a lake: where they are, and the records of jobs that append to it.

Polars and DuckDB take every file below a directory for data, whatever it is called. So the index, the records
and the stages of the lake ``<name>`` are in ``.skipstone/<name>`` in the directory above it; readers of that
directory pass over it as they do over other hidden ones. All other code knows these files by their keys in
the lake, ``_skipstone/...``.

They are in the lake itself, in the directory ``_skipstone``, if that holds something (older versions wrote to
it) or exists before there is anything beside the lake, if there is nothing above the lake (the root of a
bucket), or if the directory above can't hold them: the lake is mounted, nobody may write there, or in a
directory that all users share, such as /tmp, another user has the place. A link to a lake is the lake.

The files of a job that appends are named for it, so that a listing tells whose they are; its records tell
whether they count, so that each job is in a listing as a whole or not at all:

    _skipstone/appends/<job>.publish    its files are being moved to their places
    _skipstone/appends/<job>.done       all of them are there; if empty: it was given up, and never will be
    _skipstone/appends/<job>.lease      who is at work
    _skipstone/staged/<job>/            its files until then
    _skipstone/sources/<job>.json       what it has taken in
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
"""The directory of a lake's own files, by its key in the lake."""
BESIDE: Final = ".skipstone"
"""The directory of all lakes' own files, in the directory above them."""


def open_lake_root(path: object, storage_options: Mapping[str, Any] | None = None) -> Store:
    """The place of a directory lake, which need not exist yet."""
    return with_own_files(open_root(path, storage_options=storage_options))


def with_own_files(store: Store, real: Store | None = None) -> Store:
    """The place of a lake, with its own files wherever they are; ``real`` is its ``real_store``."""
    if isinstance(store, SiblingStore):
        return store
    # A lake has the same files under every name that links give it.
    real = real or real_store(store)
    above, name = real.parent(), real.uri.rstrip("/").rpartition("/")[2]
    if above is None or not name or above.child(name).uri != real.uri:
        return store
    beside = SiblingStore(store, above, name, above.child(f"{BESIDE}/{name}"))
    if store.local:
        try:
            return beside if _is_beside(real.uri, beside.own.uri) else store
        except OSError as error:
            hint = f"{BESIDE} says which files of the lake count: let it be read"
            reason = error.strerror or type(error).__name__
            raise ReadError(f"can't be looked into: {reason}", path=beside.own.uri, hint=hint) from error
    try:
        return store if store.list_prefix(FOLDER) else beside
    except ReadError:
        return store


def real_store(store: Store) -> Store:
    """The place that links lead to; an object store has none."""
    real = os.path.realpath(store.uri) if store.local else store.uri
    return store if real == store.uri or getattr(store, "only", None) else replace(store, uri=real)  # type: ignore[type-var]


def index_root(store: Any) -> Store:
    """Where the own files of a lake are, or of the lake that a single file is in."""
    whole = replace(store, only=None) if getattr(store, "only", None) is not None else store
    return with_own_files(whole).child(FOLDER)


def _is_beside(lake: str, beside: str) -> bool:
    """Whether the own files of a local lake are, or are to be, beside it."""
    folder, within = os.path.dirname(beside), os.path.join(lake, FOLDER)
    if not _is_trusted(folder, lake) or _is_mounted(lake):
        return False
    is_within = _is_dir(within)
    if _is_dir(beside):
        return not is_within or (bool(os.listdir(beside)) and not os.listdir(within))
    if is_within:
        return False
    # What is still to be made will be in the first directory above that exists.
    while not _is_dir(folder):
        folder = os.path.dirname(folder)
    return os.access(folder, os.W_OK | os.X_OK)


def _is_dir(path: str) -> bool:
    """Whether there is a directory of this name; an error if nobody can tell."""
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return False
        raise


def _is_mounted(lake: str) -> bool:
    """Whether the lake is mounted: files can't be moved into it from beside."""
    try:
        if os.stat(lake).st_dev != os.stat(os.path.dirname(lake)).st_dev:
            return True
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            mounts = file.read()
    except OSError:
        return False
    # A directory that is bound to another place of its own file system shows only here.
    for plain, written in (("\\", "\\134"), (" ", "\\040"), ("\t", "\\011"), ("\n", "\\012")):
        lake = lake.replace(plain, written)
    return f" {lake} " in mounts and any(line.split(" ", 5)[4] == lake for line in mounts.splitlines())


def _is_trusted(folder: str, lake: str) -> bool:
    """Whether only those can have written there who can write to the lake, or replace it."""
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
    """Where its own files are."""
    uri: str = field(init=False)
    local: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "uri", self.lake.uri)
        object.__setattr__(self, "local", self.lake.local)

    def list_prefix(self, prefix: str) -> list[ListedFile]:
        """The files below a directory."""
        if not prefix:
            return _sorted(self.lake.list_prefix(""), self._all_owned())
        inner = _inner(prefix.strip("/"))
        return self.lake.list_prefix(prefix) if inner is None else self._owned(inner)

    def list_directories(self) -> list[str]:
        """The directories in the lake, that of its own files included."""
        found = self.lake.list_directories()
        return sorted([*found, FOLDER]) if self._all_owned() else found

    def list_files(self) -> list[ListedFile]:
        """The files in the root itself."""
        return self.lake.list_files()

    def child(self, key: str) -> Store:
        """The place below this one."""
        store, inner = self._at(key)
        return store.child(inner) if inner else store

    def parent(self) -> Store | None:
        """The place above the lake."""
        return self.above

    def open(self, key: str, *, version: object | None = None, size: int | None = None) -> Source:
        """A file, untouched before its first read."""
        store, inner = self._at(key)
        return store.open(inner, version=version, size=size)

    def write(self, key: str, parts: Iterable[bytes | memoryview], *, exclusive: bool = False) -> None:
        """Write a file whole or not at all."""
        store, inner = self._at(key)
        store.write(inner, parts, exclusive=exclusive)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete files."""
        found = [self._at(key) for key in keys]
        self.own.delete(inner for store, inner in found if store != self.lake)
        self.lake.delete(inner for store, inner in found if store == self.lake)

    def move(self, key: str, to: str) -> None:
        """Give a file another key."""
        if self.local:
            # The place above would follow links from this lake into the one beside it.
            for store, inner in (self._at(key), self._at(to)):
                check_change(Path(store.path(inner)), store.uri)
        self.above.move(self._from_above(key), self._from_above(to))

    def clear(self, prefix: str) -> None:
        """Delete all that is below a directory and the directory itself."""
        store, inner = self._at(prefix)
        store.clear(inner)

    def path(self, key: str) -> str:
        """The full path or URI of a file."""
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
        """Its own files; none if they can't be listed, since the lake can be read without them."""
        try:
            return self._owned("")
        except ReadError:
            return []

    def list_with(self, own: Iterable[ListedFile]) -> list[ListedFile]:
        """Every file of the lake, and these of its own."""
        return _sorted(self.lake.list(), own)

    # The last that names the type, which this name hides.
    def list(self) -> list[ListedFile]:
        """Every file of the lake, and every one of its own."""
        return self.list_with(self._all_owned())


def _inner(key: str) -> str | None:
    """The key of one of the lake's own files in their directory; None if it isn't one."""
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
# By how much a store's clock and ours may differ.
_SKEW_SECONDS: Final = 3600


@dataclass(frozen=True, slots=True)
class Record:
    """What is written of one job."""

    publish: ListedFile | None = None
    done: ListedFile | None = None
    lease: ListedFile | None = None

    @property
    def is_done(self) -> bool:
        """Whether all its files are in their places."""
        return self.done is not None and self.done.size > 0

    @property
    def is_void(self) -> bool:
        """Whether it was given up."""
        return self.done is not None and not self.done.size

    @property
    def is_unfinished(self) -> bool:
        """Whether some of its files may be in their places, and not all."""
        return not self.is_done and (self.publish is not None or self.done is not None)


def publish_key(job: str) -> str:
    """The record that a job's files are being moved."""
    return f"{APPENDS}/{job}.publish"


def done_key(job: str) -> str:
    """The record that a job is done, or, empty, given up."""
    return f"{APPENDS}/{job}.done"


def lease_key(job: str) -> str:
    """The record of who is at work on a job."""
    return f"{APPENDS}/{job}.lease"


def stage_key(job: str) -> str:
    """The directory of a job's files before they are published."""
    return f"{STAGED}/{job}"


def source_key(job: str) -> str:
    """The journal of what a job has taken in."""
    return f"{SOURCES}/{job}.json"


def job_of(key: str) -> str | None:
    """The job that has written a file, by the file's name.

    >>> job_of("day=1/part-0-00112233445566778899.parquet"), job_of("day=1/part-0.parquet")
    ('00112233445566778899', None)
    """
    found = _FILE.fullmatch(key[-_FILE_LENGTH:])
    return found[1] if found is not None else None


def modified(entry: ListedFile) -> float | None:
    """When a file got the bytes or the name it has, in seconds since 1970 by its store's clock."""
    version = entry.version
    if isinstance(version, tuple):
        return float(version[1]) / 1e9
    told = getattr(version, "modified", None)
    return None if told is None else float(told.timestamp())


def read_records(store: Store, own: Sequence[ListedFile] | None = None) -> dict[str, Record]:
    """The records in a lake, by job; ``own`` are the lake's own files, if they were just listed."""
    found: dict[str, Record] = {}
    for entry in store.list_prefix(APPENDS) if own is None else own:
        name = _RECORD.fullmatch(entry.key)
        if name is not None:
            found[name[1]] = replace(found.get(name[1], Record()), **{name[2]: entry})
    return found


def list_settled(
    store: Store, listing: Callable[[], list[ListedFile]] | None = None, *, named: str = ""
) -> list[ListedFile]:
    """What ``listing`` gives, without the files of jobs that were not done when it began.

    Listing takes time and jobs go on meanwhile: only of a job that was done *before* every file is sure to be
    listed. So the records are read first, at one request. Jobs without a record are those of which nobody has
    written for a day, or whose records somebody has left behind. A job that began to publish since has none
    either, but its files are new; then, and only then, all is looked at again. A file ``named`` is meant
    whatever it is.
    """
    began = time.time()
    before: Mapping[str, Record] | ReadError
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
    # Most files are no job's, which one character tells.
    ends = [e.key[-_FILE_LENGTH:] for e in listed if e.key[-_FILE_LENGTH:][:1] == "-" and e.key != named]
    jobs = {found[1] for end in ends if (found := _FILE.fullmatch(end)) is not None}
    if not jobs:
        return listed
    if isinstance(before, ReadError):
        # Without the records nobody can tell which of the files count.
        raise before
    done = {job for job, record in before.items() if record.is_done}
    unknown = jobs - before.keys()
    if not any(_since(entry, began) for entry in listed if job_of(entry.key) in unknown):
        return listed if jobs <= done | unknown else _only(listed, done | unknown, named)
    now = _records_around(store)
    unknown -= now.keys()
    if not any(_since(entry, began) for entry in listed if job_of(entry.key) in unknown):
        return _only(listed, done | unknown, named)
    # A copy of a lake has no records; of a job that was given up just now its files are gone.
    done |= {job for job, record in now.items() if record.is_done}
    return _only(listing(), done | unknown, named)


def _only(listed: Iterable[ListedFile], jobs: set[str], named: str) -> list[ListedFile]:
    """The files of these jobs, and of none."""
    return [e for e in listed if (job := job_of(e.key)) is None or job in jobs or e.key == named]


def _since(entry: ListedFile, began: float) -> bool:
    """Whether a file may have come to its place after this time."""
    told = modified(entry)
    return told is None or told > began - _SKEW_SECONDS


def _records_around(store: Store, own: Sequence[ListedFile] | None = None) -> dict[str, Record]:
    """The records of the lake that a place is, or whose partition it is."""
    found: dict[str, Record] = {}
    for each in _lakes(store):
        found.update(read_records(each, own if each is store else None))
    return found


def _lakes(store: Store) -> Iterator[Store]:
    yield store
    above: Store | None = store
    # Jobs write to the root of a lake and to partitions, so no other directory can be a part of a lake.
    while above is not None and "=" in above.uri.rstrip("/").rpartition("/")[2]:
        above = above.parent()
        if above is not None:
            yield with_own_files(above)


# -- listing a large lake side by side: its first folders are shared out over an engine ---------

# A lake that had fewer folders or files than this is listed faster than it is shared out.
_MANY_FOLDERS: Final = 32
_MANY_FILES: Final = 1_000
# With fewer folders than this, those below them are shared out.
_FEW: Final = 16
# Folders are large and small in runs, so every task takes some from all over.
_TASKS: Final = 64
_REQUESTS: Final = 16


def list_again(engine: Engine, store: Store, before: Sequence[ListedFile]) -> list[ListedFile]:
    """What ``list_settled`` gives; on the engine if the last listing says that this is worth it."""
    if len(before) <= _MANY_FILES or (store.local and isinstance(engine, LocalEngine)):
        return list_settled(store)
    folders = {entry.key.rpartition("/")[0] for entry in before}
    many = len(folders) > _MANY_FOLDERS
    return list_settled(store, (lambda: list_on(engine, store)) if many else None)


def list_on(engine: Engine, store: Store) -> list[ListedFile]:
    """What ``place.list()`` gives, found on the engine; objects that only mark a folder may be missing."""
    if isinstance(engine, LocalEngine) and engine.threads is None and not store.local:
        # Its threads are for work; these only wait.
        engine = LocalEngine(_REQUESTS)
    files, folders = store.list_files(), store.list_directories()
    if len(folders) < _FEW:
        deeper: list[str] = []
        for folder in folders:
            try:
                here, below = _level(store, folder)
            except ReadError:
                # It is gone, or can't be read: who lists it will know.
                here, below = [], [folder]
            files += here
            deeper += below
        folders = deeper
    count = min(_TASKS, len(folders))
    tasks = [_Folders(store, tuple(folders[number::count])) for number in range(count)]
    for found in engine.map(_list, tasks):
        files += found
    return sorted(files, key=lambda entry: entry.key)


@dataclass(frozen=True, slots=True)
class _Folders:
    """Work for one executor."""

    store: Store
    keys: tuple[str, ...]


def _list(task: _Folders) -> list[ListedFile]:
    return [entry for key in task.keys for entry in task.store.list_prefix(key)]


def _level(store: Store, folder: str) -> tuple[list[ListedFile], list[str]]:
    """The files and folders in a folder, by their keys from the root."""
    inner = store.child(folder)
    files = [ListedFile(f"{folder}/{entry.key}", entry.size, entry.version) for entry in inner.list_files()]
    return files, [f"{folder}/{key}" for key in inner.list_directories()]
