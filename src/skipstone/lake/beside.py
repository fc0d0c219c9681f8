"""Where Skipstone's own files of a lake are: beside the lake, or in it.

Polars and DuckDB take every file below a directory for data, whatever it is called. So the index, the records
and the stages of the lake ``<name>`` are in ``.skipstone/<name>`` in the directory above it; readers of that
directory pass over it as they do over other hidden ones. All other code knows these files by their keys in
the lake, ``_skipstone/...``.

They are in the lake itself, in the directory ``_skipstone``, if that holds something (older versions wrote to
it) or exists before there is anything beside the lake, if there is nothing above the lake (the root of a
bucket), or if the directory above can't hold them: the lake is mounted, nobody may write there, or in a
directory that all users share, such as /tmp, another user has the place. A link to a lake is the lake.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from skipstone.errors import ReadError
from skipstone.store.local import check_change
from skipstone.store.place import BY_KEY, Listed, Place, open_root
from skipstone.store.source import Source

FOLDER: Final = "_skipstone"
"""The directory of a lake's own files, by its key in the lake."""
BESIDE: Final = ".skipstone"
"""The directory of all lakes' own files, in the directory above them."""


def open_lake_root(path: object, storage_options: Mapping[str, Any] | None = None) -> Place:
    """The place of a directory lake, which need not exist yet."""
    return with_own_files(open_root(path, storage_options=storage_options))


def with_own_files(place: Place, real: Place | None = None) -> Place:
    """The place of a lake, with its own files wherever they are; ``real`` is its ``real_place``."""
    if isinstance(place, BesidePlace):
        return place
    # A lake has the same files under every name that links give it.
    real = real or real_place(place)
    above, name = real.parent(), real.uri.rstrip("/").rpartition("/")[2]
    if above is None or not name or above.child(name).uri != real.uri:
        return place
    beside = BesidePlace(place, above, name, above.child(f"{BESIDE}/{name}"))
    if place.local:
        try:
            return beside if _is_beside(real.uri, beside.own.uri) else place
        except OSError as error:
            hint = f"{BESIDE} says which files of the lake count: let it be read"
            reason = error.strerror or type(error).__name__
            raise ReadError(f"can't be looked into: {reason}", path=beside.own.uri, hint=hint) from error
    try:
        return place if place.below(FOLDER) else beside
    except ReadError:
        return place


def real_place(place: Place) -> Place:
    """The place that links lead to; an object store has none."""
    real = os.path.realpath(place.uri) if place.local else place.uri
    return place if real == place.uri or getattr(place, "only", None) else replace(place, uri=real)  # type: ignore[type-var]


def own_place(place: Any) -> Place:
    """Where the own files of a lake are, or of the lake that a single file is in."""
    whole = replace(place, only=None) if getattr(place, "only", None) is not None else place
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
class BesidePlace:
    """A lake whose own files are in a directory beside it."""

    lake: Place
    above: Place
    name: str
    own: Place
    """Where its own files are."""
    uri: str = field(init=False)
    local: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "uri", self.lake.uri)
        object.__setattr__(self, "local", self.lake.local)

    def below(self, prefix: str) -> list[Listed]:
        """The files below a directory."""
        if not prefix:
            return _sorted(self.lake.below(""), self._all_owned())
        inner = _inner(prefix.strip("/"))
        return self.lake.below(prefix) if inner is None else self._owned(inner)

    def folders(self) -> list[str]:
        """The directories in the lake, that of its own files included."""
        found = self.lake.folders()
        return sorted([*found, FOLDER]) if self._all_owned() else found

    def files_here(self) -> list[Listed]:
        """The files in the root itself."""
        return self.lake.files_here()

    def child(self, key: str) -> Place:
        """The place below this one."""
        place, inner = self._at(key)
        return place.child(inner) if inner else place

    def parent(self) -> Place | None:
        """The place above the lake."""
        return self.above

    def open(self, key: str, *, version: object | None = None, size: int | None = None) -> Source:
        """A file, untouched before its first read."""
        place, inner = self._at(key)
        return place.open(inner, version=version, size=size)

    def write(self, key: str, parts: Iterable[bytes | memoryview], *, exclusive: bool = False) -> None:
        """Write a file whole or not at all."""
        place, inner = self._at(key)
        place.write(inner, parts, exclusive=exclusive)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete files."""
        found = [self._at(key) for key in keys]
        self.own.delete(inner for place, inner in found if place != self.lake)
        self.lake.delete(inner for place, inner in found if place == self.lake)

    def move(self, key: str, to: str) -> None:
        """Give a file another key."""
        if self.local:
            # The place above would follow links from this lake into the one beside it.
            for place, inner in (self._at(key), self._at(to)):
                check_change(Path(place.path(inner)), place.uri)
        self.above.move(self._from_above(key), self._from_above(to))

    def clear(self, prefix: str) -> None:
        """Delete all that is below a directory and the directory itself."""
        place, inner = self._at(prefix)
        place.clear(inner)

    def path(self, key: str) -> str:
        """The full path or URI of a file."""
        place, inner = self._at(key)
        return place.path(inner) if inner else place.uri

    def _at(self, key: str) -> tuple[Place, str]:
        inner = _inner(key) if key[:1] == FOLDER[0] else None
        return (self.lake, key) if inner is None else (self.own, inner)

    def _from_above(self, key: str) -> str:
        inner = _inner(key)
        return f"{self.name}/{key}" if inner is None else f"{BESIDE}/{self.name}/{inner}"

    def _owned(self, prefix: str) -> list[Listed]:
        return [Listed(f"{FOLDER}/{e.key}", e.size, e.version) for e in self.own.below(prefix)]

    def _all_owned(self) -> list[Listed]:
        """Its own files; none if they can't be listed, since the lake can be read without them."""
        try:
            return self._owned("")
        except ReadError:
            return []

    def list_with(self, own: Iterable[Listed]) -> list[Listed]:
        """Every file of the lake, and these of its own."""
        return _sorted(self.lake.list(), own)

    # The last that names the type, which this name hides.
    def list(self) -> list[Listed]:
        """Every file of the lake, and every one of its own."""
        return self.list_with(self._all_owned())


def _inner(key: str) -> str | None:
    """The key of one of the lake's own files in their directory; None if it isn't one."""
    if key == FOLDER:
        return ""
    return key.removeprefix(f"{FOLDER}/") if key.startswith(f"{FOLDER}/") else None


def _sorted(one: Iterable[Listed], other: Iterable[Listed]) -> list[Listed]:
    return sorted((*one, *other), key=BY_KEY)
