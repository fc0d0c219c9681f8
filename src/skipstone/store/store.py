"""Directories and object-store prefixes: list, open, write and delete the files below a root.

To add a store, write a class with the members of ``Store`` and name it in ``open_store``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final, NamedTuple, Protocol

from skipstone.errors import FileError, MissingFileError, ReadError, UsageError, shorten
from skipstone.store.source import Source, local_path


class ListedFile(NamedTuple):
    """A file as it was listed; ``version`` is the value that ``Source.expect`` checks."""

    key: str
    size: int
    version: object


BY_KEY = attrgetter("key")
IN_MEMORY: Final = "in memory"
"""The version of files in memory."""


class Store(Protocol):
    """A root with files below it; picklable.

    Keys can come from forged files: every key passes ``check_key``, and no write, move or delete follows a
    link out of the root. Reads raise ReadError, changes WriteError; both name the file.
    """

    @property
    def uri(self) -> str:
        """Path or URI of the root."""

    @property
    def local(self) -> bool:
        """Whether the files are in the local file system."""

    def list_prefix(self, prefix: str) -> list[ListedFile]:
        """Files below one directory, with keys relative to the root; empty if it does not exist."""

    def list_directories(self) -> list[str]:
        """Directories directly in the root."""

    def list_files(self) -> list[ListedFile]:
        """Files directly in the root."""

    # Last of the listings: its name hides the builtin type.
    def list(self) -> list[ListedFile]:
        """All files below the root, sorted by key, including hidden and empty ones."""

    def child(self, key: str) -> Store:
        """The store rooted at a directory below this one, which need not exist."""

    def parent(self) -> Store | None:
        """The store rooted one directory up; None at the top, or if the store is a single file."""

    def open(self, key: str, *, version: object | None = None, size: int | None = None) -> Source:
        """Open a file lazily; its first read fails if the version or size differs."""

    def write(self, key: str, parts: Iterable[bytes | memoryview], *, exclusive: bool = False) -> None:
        """Write or replace a file atomically; ``exclusive`` raises ConflictError if it exists."""

    def delete(self, keys: Iterable[str]) -> None:
        """Delete files, ignoring missing ones."""

    def move(self, key: str, to: str) -> None:
        """Move a file and set its modification time to now; raise ConflictError if the target exists.

        Atomic in a local directory. Elsewhere both keys can exist for a moment, or after a failure.
        """

    def clear(self, prefix: str) -> None:
        """Delete a directory and everything below it, if it exists."""

    def path(self, key: str) -> str:
        """Full path or URI of a file."""


def open_store(
    x: Any,
    *,
    storage_options: Mapping[str, Any] | None = None,
    store: Any = None,
    stay_below_root: bool = False,
) -> tuple[Store, str]:
    """The store of a path, URI or (with an obstore ``store``) key, and the pattern of the files in it.

    The pattern is "" for a directory, the key of a single file, or a glob (see ``matches``). With
    ``stay_below_root``, links that lead out of a local directory are refused.
    """
    if not isinstance(x, str | os.PathLike):
        hint = "pass a path or URI of a directory, a file or a glob"
        raise UsageError(f"path must be a string or a path, not {shorten(repr(x), 80)}", hint=hint)
    name = os.fsdecode(os.fspath(x))
    if not name and store is None:
        raise UsageError("path is empty", hint='use "." for the current directory')
    if store is None:
        local = local_path(name)
        if local is not None:
            from skipstone.store.local import open_directory

            return open_directory(local, stay_below_root=stay_below_root)
    from skipstone.store.objects import open_prefix

    return open_prefix(name, storage_options, store)


def open_root(x: Any, *, storage_options: Mapping[str, Any] | None = None, store: Any = None) -> Store:
    """The store of a directory or prefix, which need not exist."""
    if not isinstance(x, str | os.PathLike):
        raise UsageError(f"{x!r} is not a path", hint="pass the path or URI of a directory")
    name = os.fsdecode(os.fspath(x))
    if not name and store is None:
        raise UsageError("path is empty", hint='use "." for the current directory')
    local = local_path(name)
    if local is not None and store is None:
        from skipstone.store.local import LocalStore

        return LocalStore(os.path.abspath(local))  # noqa: PTH100
    from skipstone.store.objects import prefix_root

    return prefix_root(name, storage_options, store)


_SHOWN = 200
# An empty segment, one or two dots, or characters that no store allows in names.
_OUTSIDE = re.compile(r"(?:^|/)\.{0,2}(?:/|\Z)|[\0\ud800-\udc7f\udd00-\udfff]")


def is_outside(key: str) -> bool:
    """Whether a key does not name something below the root."""
    return _OUTSIDE.search(key) is not None


def check_key(key: str, root: str, error: type[FileError] = ReadError) -> str:
    """Return the key if it names something below the root; raise ``error`` otherwise.

    >>> check_key("day=1/..a", "/lake")
    'day=1/..a'
    >>> check_key("day=1/../../b", "/lake")
    Traceback (most recent call last):
    skipstone.errors.ReadError: /lake: key 'day=1/../../b' is not below the root (...)
    """
    if _OUTSIDE.search(key) is not None:
        hint = "check the file that refers to this key: it is damaged or forged"
        raise error(f"key {key[:_SHOWN]!r} is not below the root", path=root, hint=hint)
    return key


def missing_error(path: str) -> ReadError:
    """The error for a path that does not exist."""
    return MissingFileError("no such file or directory", path=path)


_MAGIC = re.compile(r"[*?\[]")


def split_glob(name: str) -> tuple[str, str]:
    """Split a name into its longest fixed directory and the glob below it ("" if there is none).

    >>> split_glob("lake/day=*/f?.parquet")
    ('lake', 'day=*/f?.parquet')
    """
    magic = _MAGIC.search(name)
    if magic is None:
        return name, ""
    cut = name.rfind("/", 0, magic.start()) + 1
    glob = name[cut:]
    # A directory matches everything below it.
    return name[: max(cut - 1, 0)], f"{glob}**" if glob.endswith("/") else glob


def matches(pattern: str, key: str) -> bool:
    """Whether a pattern from ``open_store`` matches a key.

    >>> [matches("**/day=[12]/*.parquet", f"{day}/f.parquet") for day in ("day=1", "x/day=2", "day=3")]
    [True, True, False]
    """
    return pattern in ("", key) or _glob(pattern).fullmatch(key) is not None


@lru_cache(maxsize=64)
def _glob(pattern: str) -> re.Pattern[str]:
    return re.compile(_TOKEN.sub(_translate, pattern), re.DOTALL)


# In this order: a ** segment, stars, one character, a class, any other character.
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
