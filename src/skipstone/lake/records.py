"""What jobs that append to a lake tell of themselves, and listings in which each job is whole or absent.

A job's files are named for it, so that a listing tells whose they are; whether they count, its records tell.
These are their keys in the lake (``lake/beside.py`` says where they are):

    _skipstone/appends/<job>.publish    its files are being moved to their places
    _skipstone/appends/<job>.done       all of them are there; if empty: it was given up, and never will be
    _skipstone/appends/<job>.lease      who is at work
    _skipstone/staged/<job>/            its files until then
    _skipstone/sources/<job>.json       what it has taken in
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from skipstone.engine.jobs import Engine, LocalEngine
from skipstone.errors import ReadError
from skipstone.lake.beside import FOLDER, BesidePlace, with_own_files
from skipstone.store.place import Listed, Place

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

    publish: Listed | None = None
    done: Listed | None = None
    lease: Listed | None = None

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


def modified(entry: Listed) -> float | None:
    """When a file got the bytes or the name it has, in seconds since 1970 by its store's clock."""
    version = entry.version
    if isinstance(version, tuple):
        return float(version[1]) / 1e9
    told = getattr(version, "modified", None)
    return None if told is None else float(told.timestamp())


def read_records(place: Place, own: Sequence[Listed] | None = None) -> dict[str, Record]:
    """The records in a lake, by job; ``own`` are the lake's own files, if they were just listed."""
    found: dict[str, Record] = {}
    for entry in place.below(APPENDS) if own is None else own:
        name = _RECORD.fullmatch(entry.key)
        if name is not None:
            found[name[1]] = replace(found.get(name[1], Record()), **{name[2]: entry})
    return found


def list_settled(
    place: Place, listing: Callable[[], list[Listed]] | None = None, *, named: str = ""
) -> list[Listed]:
    """What ``listing`` gives, without the files of jobs that were not done when it began.

    Listing takes time and jobs go on meanwhile: only of a job that was done *before* every file is sure to be
    listed. So the records are read first, at one request. Jobs without a record are those of which nobody has
    written for a day, or whose records somebody has left behind. A job that began to publish since has none
    either, but its files are new; then, and only then, all is looked at again. A file ``named`` is meant
    whatever it is.
    """
    began = time.time()
    before: Mapping[str, Record] | ReadError
    beside = place if listing is None and isinstance(place, BesidePlace) else None
    own = None
    try:
        # One listing for the records and the index.
        own = None if beside is None else beside.below(FOLDER)
        before = _records_around(place, own)
    except ReadError as error:
        before = error
    if listing is None:
        listing = place.list if beside is None or own is None else partial(beside.list_with, own)
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
    now = _records_around(place)
    unknown -= now.keys()
    if not any(_since(entry, began) for entry in listed if job_of(entry.key) in unknown):
        return _only(listed, done | unknown, named)
    # A copy of a lake has no records; of a job that was given up just now its files are gone.
    done |= {job for job, record in now.items() if record.is_done}
    return _only(listing(), done | unknown, named)


def _only(listed: Iterable[Listed], jobs: set[str], named: str) -> list[Listed]:
    """The files of these jobs, and of none."""
    return [e for e in listed if (job := job_of(e.key)) is None or job in jobs or e.key == named]


def _since(entry: Listed, began: float) -> bool:
    """Whether a file may have come to its place after this time."""
    told = modified(entry)
    return told is None or told > began - _SKEW_SECONDS


def _records_around(place: Place, own: Sequence[Listed] | None = None) -> dict[str, Record]:
    """The records of the lake that a place is, or whose partition it is."""
    found: dict[str, Record] = {}
    for each in _lakes(place):
        found.update(read_records(each, own if each is place else None))
    return found


def _lakes(place: Place) -> Iterator[Place]:
    yield place
    above: Place | None = place
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


def list_again(engine: Engine, place: Place, before: Sequence[Listed]) -> list[Listed]:
    """What ``list_settled`` gives; on the engine if the last listing says that this is worth it."""
    if len(before) <= _MANY_FILES or (place.local and isinstance(engine, LocalEngine)):
        return list_settled(place)
    folders = {entry.key.rpartition("/")[0] for entry in before}
    many = len(folders) > _MANY_FOLDERS
    return list_settled(place, (lambda: list_on(engine, place)) if many else None)


def list_on(engine: Engine, place: Place) -> list[Listed]:
    """What ``place.list()`` gives, found on the engine; objects that only mark a folder may be missing."""
    if isinstance(engine, LocalEngine) and engine.threads is None and not place.local:
        # Its threads are for work; these only wait.
        engine = LocalEngine(_REQUESTS)
    files, folders = place.files_here(), place.folders()
    if len(folders) < _FEW:
        deeper: list[str] = []
        for folder in folders:
            try:
                here, below = _level(place, folder)
            except ReadError:
                # It is gone, or can't be read: who lists it will know.
                here, below = [], [folder]
            files += here
            deeper += below
        folders = deeper
    count = min(_TASKS, len(folders))
    tasks = [_Folders(place, tuple(folders[number::count])) for number in range(count)]
    for found in engine.map(_list, tasks):
        files += found
    return sorted(files, key=lambda entry: entry.key)


@dataclass(frozen=True, slots=True)
class _Folders:
    """Work for one executor."""

    place: Place
    keys: tuple[str, ...]


def _list(task: _Folders) -> list[Listed]:
    return [entry for key in task.keys for entry in task.place.below(key)]


def _level(place: Place, folder: str) -> tuple[list[Listed], list[str]]:
    """The files and folders in a folder, by their keys from the root."""
    inner = place.child(folder)
    files = [Listed(f"{folder}/{entry.key}", entry.size, entry.version) for entry in inner.files_here()]
    return files, [f"{folder}/{key}" for key in inner.folders()]
