"""A directory of the local file system."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

from skipstone.errors import ReadError
from skipstone.store.local import LocalSource, identity_of, refusal
from skipstone.store.place import Listed, missing, split_glob


@dataclass(frozen=True, slots=True)
class LocalPlace:
    """A local directory; with ``only`` one file of it is listed."""

    uri: str
    only: str | None = None

    @property
    def local(self) -> bool:
        """It is."""
        return True

    def list(self) -> list[Listed]:
        """Every file below the directory, by key; links are followed, though never in a circle."""
        if self.only is None:
            return _walk(self.uri)
        path = self.path(self.only)
        found = _stat(path)
        return [Listed(self.only, found.st_size, identity_of(found))]

    def open(self, key: str, *, version: object | None = None, size: int | None = None) -> LocalSource:
        """A file, untouched before its first read."""
        source = LocalSource(self.path(key), lazy=True)
        source.expect(version, size)
        return source

    def path(self, key: str) -> str:
        """The file's path."""
        return os.path.join(self.uri, key)  # noqa: PTH118


def open_folder(name: str) -> tuple[LocalPlace, str]:
    """The place for a local directory, file or glob; a name that exists as it stands is no glob."""
    # Work may run in a process with another current directory.
    path = os.path.abspath(name)  # noqa: PTH100
    directory, glob = split_glob(path + "/" if name.endswith("/") else path)
    try:
        found = _stat(path)
    except ReadError:
        if not glob:
            raise
        if not stat.S_ISDIR(_stat(directory or "/").st_mode):
            raise missing(directory) from None
        return LocalPlace(directory or "/"), glob
    if stat.S_ISDIR(found.st_mode):
        return LocalPlace(path), ""
    if name.endswith("/"):
        raise missing(name)
    parent, key = os.path.split(path)
    return LocalPlace(parent, key), key


def _stat(path: str) -> os.stat_result:
    try:
        return os.stat(path)  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        raise missing(path) from None
    except (OSError, ValueError) as error:
        raise refusal(error, path) from error


def _walk(root: str) -> list[Listed]:
    files: list[Listed] = []
    # Each directory with its key and, against circles of links, all directories above it.
    waiting = [(root, "", frozenset((_node(_stat(root)),)))]
    while waiting:
        directory, prefix, above = waiting.pop()
        for entry in _entries(directory, prefix):
            key = prefix + entry.name
            try:
                found = _entry_stat(entry)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise refusal(error, entry.path) from error
            if not stat.S_ISDIR(found.st_mode):
                files.append(Listed(key, found.st_size, identity_of(found)))
            elif (node := _node(found)) not in above:
                waiting.append((entry.path, key + "/", above | {node}))
    files.sort(key=lambda file: file.key)
    return files


def _entries(directory: str, prefix: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except FileNotFoundError as error:
        if prefix:
            # It was deleted meanwhile, with all that it held.
            return []
        raise missing(directory) from error
    except OSError as error:
        raise refusal(error, directory) from error


def _entry_stat(entry: os.DirEntry[str]) -> os.stat_result:
    try:
        return entry.stat()
    except OSError:
        # A link to nothing, or to itself, is listed, so that only who reads it fails.
        return entry.stat(follow_symlinks=False)


def _node(found: os.stat_result) -> tuple[int, int]:
    return (found.st_dev, found.st_ino)
