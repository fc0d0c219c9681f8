"""Files that are known by their full names, wherever they lie, as the manifests of a table name them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from skipstone.errors import ReadError
from skipstone.store.local import LocalSource, LocalStore, leads_out
from skipstone.store.objects import ObjectSource
from skipstone.store.options import StoreOptions, open_obstore, split_uri
from skipstone.store.source import Source, local_path
from skipstone.store.store import Store, is_outside, open_root

_S3 = re.compile(r"^s3[an]?://", re.IGNORECASE)
_IDLE_STEPS = re.compile(r"/(?:\.?/)+")
_FILE = re.compile(r"^file:(?://(?:localhost)?(?=/)|(?=/(?!/)))")


@dataclass(frozen=True, slots=True)
class AbsoluteStore:
    """Files by full path or URI; ``uri`` is where most of them lie. They are read, never listed."""

    uri: str
    options: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    root: str | None = None
    """The directory or prefix that all of them must lie below, if they must."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", StoreOptions(self.options))

    @property
    def local(self) -> bool:
        """Whether the files are in the local file system; a table's are all in one kind of store."""
        return local_name(self.uri) is not None

    def open(self, key: str, *, version: object | None = None, size: int | None = None) -> Source:
        """A file, untouched before its first read."""
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

    def path(self, key: str) -> str:
        """The file's name: a path if it is local."""
        self.check(key)
        return local_name(key) or key

    def check(self, name: str) -> None:
        """Refuse a name outside the root, if there is one."""
        if self.root is not None and not _lies_below(name, self.root):
            hint = "leave out stay_below_root if you trust who made the table"
            raise ReadError(f"the table names a path outside its root {self.root}", path=name, hint=hint)

    def child(self, key: str) -> Store:
        """The place below this one, which can be listed."""
        store = store_at(self.uri, self.options)
        if self.root is not None and isinstance(store, LocalStore):
            store = replace(store, stay_below_root=True)
        return store.child(key)

    def parent(self) -> None:
        """There is none to speak of."""
        return

    def write(self, key: str, parts: Iterable[bytes | memoryview], *, exclusive: bool = False) -> None:
        """Write a file whole or not at all."""
        folder, _, name = key.rpartition("/")
        store_at(folder, self.options).write(name, parts, exclusive=exclusive)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete files; those that are gone already are fine."""
        for key in keys:
            folder, _, name = key.rpartition("/")
            store_at(folder, self.options).delete([name])

    def _refuse(self, *names: str) -> Any:
        """Files are known from elsewhere, and never move."""
        what = " to ".join(names)
        raise ReadError(f"files of a table are not listed or moved {what}".rstrip(), path=self.uri)

    list_prefix = list_directories = list_files = list = move = clear = _refuse


def _lies_below(name: str, root: str) -> bool:
    local, above = local_name(name), local_name(root)
    if local is not None or above is not None:
        return local is not None and above is not None and not leads_out(local, above)
    name, root = (_S3.sub("s3://", each) for each in (name, root.rstrip("/")))
    key = name.removeprefix(f"{root}/")
    return key != name and not is_outside(key)


def local_name(location: str) -> str | None:
    """The path that a location means, if it is local: its characters stand for themselves, even in a URI."""
    bare = _FILE.sub("", location)
    return None if local_path(bare) is None else bare


def plain_spelling(location: str) -> str:
    """One name for all spellings of a location; a step up stays as it is, since it may leave a link."""
    local = local_name(location)
    return _S3.sub("s3://", location) if local is None else _IDLE_STEPS.sub("/", local)


def store_at(location: str, options: Mapping[str, Any] | None = None) -> Store:
    """The directory or prefix of a location, which can be listed and written to."""
    return open_root(_FILE.sub("", location), storage_options=options or None)
