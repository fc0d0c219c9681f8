"""A root under which a lake's files lie, whatever the store: list them, open each as it was listed, write.

To add a kind of place, write a class with the members of ``Store`` and name it in ``open_store``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from skipstone.errors import FileError, MissingFileError, ReadError, UsageError
from skipstone.store.source import Source, local_path


class ListedFile(NamedTuple):
    """A file as the listing saw it; ``version`` is what ``Source.expect`` takes and ``version`` gives."""

    key: str
    size: int
    version: object


BY_KEY = attrgetter("key")


class Store(Protocol):
    """A root with files below it; picklable.

    Keys may come from files that somebody has forged: each place passes every key through ``check_key``, and
    what changes files follows no link out of the root. Every failure is a ReadError or, of what changes
    files, a WriteError; each names the file.
    """

    @property
    def uri(self) -> str:
        """The root's name, for messages and identity."""

    @property
    def local(self) -> bool:
        """Whether the files are in the local file system."""

    def list_prefix(self, prefix: str) -> list[ListedFile]:
        """What ``list`` gives of one directory below the root, by the same keys; nothing if there is none."""

    def list_directories(self) -> list[str]:
        """The directories in the root: ``list_files`` and what is ``below`` each of them is ``list``."""

    def list_files(self) -> list[ListedFile]:
        """The files in the root itself."""

    # The last that names the type, which this name hides.
    def list(self) -> list[ListedFile]:
        """Every file below the root by key, hidden and empty ones too; one that was named is alone."""

    def child(self, key: str) -> Store:
        """The place below this one, which need not exist yet."""

    def parent(self) -> Store | None:
        """The place above this one; None at the top of a store, or if one file was named."""

    def open(self, key: str, *, version: object | None = None, size: int | None = None) -> Source:
        """A file, untouched before its first read, which refuses another version than this."""

    def write(self, key: str, parts: Iterable[bytes | memoryview], *, exclusive: bool = False) -> None:
        """Write a file whole or not at all, in the place of an older one.

        Of several ``exclusive`` writers one wins, and the others get a ConflictError.
        """

    def delete(self, keys: Iterable[str]) -> None:
        """Delete files; those that are gone already are fine."""

    def move(self, key: str, to: str) -> None:
        """Give a file another key, and the time of now; a ConflictError if there is a file of that key.

        In a local directory this is one step; elsewhere both may be there for a moment, or after a failure.
        """

    def clear(self, prefix: str) -> None:
        """Delete all that is below a directory and the directory itself; one that is gone is fine."""

    def path(self, key: str) -> str:
        """The full path or URI of a file."""


def open_store(
    x: Any,
    *,
    storage_options: Mapping[str, Any] | None = None,
    store: Any = None,
    stay_below_root: bool = False,
) -> tuple[Store, str]:
    """The place that a path, URI, or (with an obstore ``store``) a key names, and which files are meant.

    The pattern is "" for a directory, the key of one file, or a glob; ``matches`` tells what it means. With
    ``stay_below_root`` links that lead out of a local directory are refused; object stores have none.
    """
    if not isinstance(x, str | os.PathLike):
        hint = "give a directory, a file or a glob: a path or a URI"
        raise UsageError(f"can't list files from {type(x).__name__}", hint=hint)
    name = os.fsdecode(os.fspath(x))
    if not name and store is None:
        raise UsageError("the path is empty", hint='give "." for the current directory')
    if store is None:
        local = local_path(name)
        if local is not None:
            from skipstone.store.local import open_directory

            return open_directory(local, stay_below_root=stay_below_root)
    from skipstone.store.objects import open_prefix

    return open_prefix(name, storage_options, store)


def open_root(x: Any, *, storage_options: Mapping[str, Any] | None = None, store: Any = None) -> Store:
    """The directory or prefix of that name, which need not exist yet."""
    if not isinstance(x, str | os.PathLike):
        raise UsageError(f"{x!r} is not a place", hint="give a directory: a path or a URI")
    name = os.fsdecode(os.fspath(x))
    if not name and store is None:
        raise UsageError("the path is empty", hint='give "." for the current directory')
    local = local_path(name)
    if local is not None and store is None:
        from skipstone.store.local import LocalStore

        return LocalStore(os.path.abspath(local))  # noqa: PTH100
    from skipstone.store.objects import prefix_root

    return prefix_root(name, storage_options, store)


_SHOWN = 200
# An empty segment, one or two dots, and characters that no store has in its names.
_OUTSIDE = re.compile(r"(?:^|/)\.{0,2}(?:/|\Z)|[\0\ud800-\udc7f\udd00-\udfff]")


def is_outside(key: str) -> bool:
    """Whether a key names the root itself, something outside it, or nothing at all."""
    return _OUTSIDE.search(key) is not None


def check_key(key: str, root: str, error: type[FileError] = ReadError) -> str:
    """The key, if it names something below the root and not the root itself; else an error.

    >>> check_key("day=1/..a", "/lake")
    'day=1/..a'
    >>> check_key("day=1/../../b", "/lake")
    Traceback (most recent call last):
    skipstone.errors.ReadError: /lake: the name 'day=1/../../b' is not one below the root (...)
    """
    if _OUTSIDE.search(key) is not None:
        hint = "whatever names this file is damaged or forged"
        raise error(f"the name {key[:_SHOWN]!r} is not one below the root", path=root, hint=hint)
    return key


def missing(path: str) -> ReadError:
    """The error for a name with nothing behind it."""
    return MissingFileError("no such file or directory", path=path)


_MAGIC = re.compile(r"[*?\[]")


def split_glob(name: str) -> tuple[str, str]:
    """The longest fixed directory of a name, and the glob below it ("" if there is none).

    >>> split_glob("lake/day=*/f?.parquet")
    ('lake', 'day=*/f?.parquet')
    """
    magic = _MAGIC.search(name)
    if magic is None:
        return name, ""
    cut = name.rfind("/", 0, magic.start()) + 1
    glob = name[cut:]
    # A directory stands for all that is below it.
    return name[: max(cut - 1, 0)], f"{glob}**" if glob.endswith("/") else glob


def matches(pattern: str, key: str) -> bool:
    """Whether a pattern that ``open_store`` gave means this file.

    >>> [matches("**/day=[12]/*.parquet", f"{day}/f.parquet") for day in ("day=1", "x/day=2", "day=3")]
    [True, True, False]
    """
    return pattern in ("", key) or _glob(pattern).fullmatch(key) is not None


@lru_cache(maxsize=64)
def _glob(pattern: str) -> re.Pattern[str]:
    return re.compile(_TOKEN.sub(_translate, pattern), re.DOTALL)


# In this order: whole segments of two stars, stars, one character, a class, anything else as it is.
_TOKEN = re.compile(r"(?P<deep>(?<![^/])\*\*(?:/|$))|\*+|\?|\[(?P<not>!?)(?P<set>\]?[^\]/]*)\]|.", re.DOTALL)


def _translate(token: re.Match[str]) -> str:
    text = token.group()
    if token["deep"] is not None:
        return "(?:[^/]+/)*" if text.endswith("/") else ".*"
    if text[0] == "*":
        return "[^/]*"
    if text == "?":
        return "[^/]"
    if token["set"]:
        members = re.sub(r"([\\\[\]^&|~])", r"\\\1", token["set"])
        return f"(?!/)[{'^' if token['not'] else ''}{members}]"
    return re.escape(text)
