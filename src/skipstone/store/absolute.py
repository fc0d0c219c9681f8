"""Files with absolute paths or URIs as keys, as the manifests of a table name them, and files in memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from skipstone.errors import ReadError
from skipstone.store.local import LocalSource, LocalStore, leads_out
from skipstone.store.objects import ObjectSource
from skipstone.store.options import StoreOptions, open_obstore, split_uri
from skipstone.store.source import BufferSource, Source, local_path
from skipstone.store.store import IN_MEMORY, ListedFile, Store, is_outside, open_root

_S3 = re.compile(r"^s3[an]?://", re.IGNORECASE)
_REDUNDANT = re.compile(r"/(?:\.?/)+")
_FILE = re.compile(r"^file:(?://(?:localhost)?(?=/)|(?=/(?!/)))", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class AbsoluteStore:
    """Files by absolute path or URI, which can't be listed; ``uri`` is the table's location."""

    uri: str
    options: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    root: str | None = None
    """The directory or prefix that all files must be below, if any."""
    memory: Mapping[str, bytes] = field(default_factory=dict, compare=False, repr=False)
    """Files in memory by key; their versions in a listing are ``IN_MEMORY``."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", StoreOptions(self.options))

    @property
    def local(self) -> bool:
        """Whether the files are in the local file system; all files of a table are in one kind of store."""
        return local_name(self.uri) is not None

    def open(self, key: str, *, version: object | None = None, size: int | None = None) -> Source:
        """Open a file lazily."""
        held = self.memory.get(key)
        if held is not None:
            return BufferSource(held, key)
        self.check(key)
        local = local_name(key)
        source: Source
        if local is not None:
            source = LocalSource(local, lazy=True)
        else:
            base, name = split_uri(key)
            source = ObjectSource(open_obstore(base, self.options, key), name, key)
        source.expect(version, size)
        return source

    def find(self, key: str) -> ListedFile:
        """A file as a table lists it."""
        return ListedFile(key, self.open(key).size(), IN_MEMORY if key in self.memory else None)

    def path(self, key: str) -> str:
        """Path of a local file, URI of any other, key of a file in memory."""
        if key in self.memory:
            return key
        self.check(key)
        return local_name(key) or key

    def check(self, name: str) -> None:
        """Refuse a path outside the root, if there is one."""
        if self.root is not None and not _is_below(name, self.root):
            hint = "remove stay_below_root if you trust the author of the table"
            raise ReadError(f"table refers to a file outside its root {self.root}", path=name, hint=hint)

    def child(self, key: str) -> Store:
        """The store of a directory below the location, which can be listed."""
        store = store_at(self.uri, self.options)
        if self.root is not None and isinstance(store, LocalStore):
            store = replace(store, stay_below_root=True)
        return store.child(key)

    def parent(self) -> None:
        """None."""
        return

    def write(self, key: str, parts: Iterable[bytes | memoryview], *, exclusive: bool = False) -> None:
        """Write a file atomically."""
        folder, _, name = key.rpartition("/")
        store_at(folder, self.options).write(name, parts, exclusive=exclusive)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete files, ignoring missing ones."""
        for key in keys:
            folder, _, name = key.rpartition("/")
            store_at(folder, self.options).delete([name])

    def _refuse(self, *names: str) -> Any:
        what = " to ".join(names)
        raise ReadError(f"can't list or move files of a table {what}".rstrip(), path=self.uri)

    list_prefix = list_directories = list_files = list = move = clear = _refuse


def _is_below(name: str, root: str) -> bool:
    local, above = local_name(name), local_name(root)
    if local is not None or above is not None:
        return local is not None and above is not None and not leads_out(local, above)
    name, root = (_S3.sub("s3://", each) for each in (name, root.rstrip("/")))
    key = name.removeprefix(f"{root}/")
    return key != name and not is_outside(key)


def local_name(location: str) -> str | None:
    """The path of a local location, None for others; Iceberg does not percent-encode, even in URIs."""
    bare = _FILE.sub("", location)
    return None if local_path(bare) is None else bare


def plain_spelling(location: str) -> str:
    """Normalize the spelling of a location; ".." stays, since it can follow a link."""
    local = local_name(location)
    return _S3.sub("s3://", location) if local is None else _REDUNDANT.sub("/", local)


def store_at(location: str, options: Mapping[str, Any] | None = None) -> Store:
    """The store of a directory or prefix, which can be listed and written to."""
    return open_root(_FILE.sub("", location), storage_options=options or None)
