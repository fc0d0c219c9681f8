"""Listing a large lake side by side: the folders of its first level, or two, shared out over an engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from skipstone.engine.jobs import Engine, LocalEngine
from skipstone.errors import ReadError
from skipstone.lake.records import list_settled
from skipstone.store.place import Listed, Place

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
