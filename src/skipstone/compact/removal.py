"""Deletion of a table's files: which spellings name the same file, what may be deleted, and what was.

A location can be spelled in several ways: with or without a scheme, percent-encoded or not, through links.
Comparisons are generous, because a file that is wrongly taken for a referenced one stays, and one that is
wrongly taken for garbage is lost. Only files below the table's own directories are deleted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import StaticTable

from skipstone.core.evidence import Array
from skipstone.engine.jobs import check_stop
from skipstone.errors import FileError, ReadError, UsageError
from skipstone.store.absolute import local_name, plain_spelling, store_at
from skipstone.store.local import LocalStore
from skipstone.store.store import Store, is_outside

if TYPE_CHECKING:
    from pyiceberg.table import Table as IcebergTable
    from pyiceberg.table.metadata import TableMetadata

Age: TypeAlias = datetime | timedelta | str
"""A time, or how long ago it was."""

_BATCH: Final = 1_000
_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_DURATION: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([smhdw])\s*")
_GC: Final = "gc.enabled"
_PLACES: Final = (
    *("write.data.path", "write.metadata.path"),
    *("write.object-storage.path", "write.folder-storage.path"),
)
FILES: Final = pa.schema([("path", pa.large_string()), ("kind", pa.string()), ("bytes", pa.int64())])
"""Columns of a list of files; bytes are NULL where they are not recorded."""


def moment(age: object, name: str = "older_than") -> datetime:
    """Return the time that an age means now; times without a zone are UTC.

    >>> moment("2026-01-01"), moment(datetime(2026, 1, 1, tzinfo=UTC)).year
    (datetime.datetime(2026, 1, 1, 0, 0, tzinfo=datetime.timezone.utc), 2026)
    """
    if isinstance(age, str):
        match = _DURATION.fullmatch(age.lower())
        try:
            age = (
                timedelta(seconds=float(match[1]) * _UNITS[match[2]])
                if match is not None
                else datetime.fromisoformat(age)
            )
        except (ValueError, OverflowError):
            raise _bad_age(age, name) from None
    if isinstance(age, timedelta):
        if age < timedelta(0):
            raise _bad_age(age, name)
        try:
            return datetime.now(UTC) - age
        except OverflowError:
            raise _bad_age(age, name) from None
    if not isinstance(age, datetime):
        raise _bad_age(age, name)
    return age if age.tzinfo is not None else age.replace(tzinfo=UTC)


def _bad_age(age: object, name: str) -> UsageError:
    hint = 'pass a datetime, a timedelta, or text such as "2026-01-31", "3d" or "36h"'
    return UsageError(f"{name} is neither a time nor an age: {age!r}", hint=hint)


def check_collectable(metadata: TableMetadata, name: str) -> None:
    """Refuse a table whose files can belong to others as well."""
    if are_shared(metadata):
        problem = f"files of the table must not be deleted: {_GC} is false"
        hint = f"other tables can share its files; if none does, set {_GC} to true"
        raise UsageError(problem, path=name, hint=hint)


def are_shared(metadata: TableMetadata) -> bool:
    """Whether files of a table can belong to others, or those of others to it."""
    return metadata.properties.get(_GC, "true").strip().lower() == "false"


def named_directories(metadata: TableMetadata) -> list[str]:
    """The location of a table, and the directories that its properties name."""
    named = (metadata.properties.get(name) for name in _PLACES)
    return [metadata.location, *(root for root in named if root is not None)]


def check_current(table: IcebergTable, *, dry_run: bool) -> None:
    """Refuse to change a table that was opened from a metadata file, which need not be the newest."""
    if isinstance(table, StaticTable) and not dry_run:
        problem = "table opened from a metadata file is read-only"
        hint = "open the table by its name in a catalog"
        raise UsageError(problem, path=table.metadata.location, hint=hint)


def files_table(paths: Any, kind: str | Any, sizes: Any = None) -> pa.Table:
    """Return a list of files."""
    named = pa.array(paths, pa.large_string())
    kinds = pa.repeat(kind, len(named)) if isinstance(kind, str) else kind
    recorded = pa.nulls(len(named), pa.int64()) if sizes is None else pa.array(sizes, pa.int64())
    return pa.Table.from_arrays([named, kinds.cast(pa.string()), recorded], schema=FILES)


# -- spellings ---------------------------------------------------------------------------------

_NAME: Final = r"[^/]*$"
_HEAD: Final = r"(?s)^.*/"
_PARTS: Final = r"(?s)^(?P<head>(?:[A-Za-z][A-Za-z0-9+.\-]*://[^/]*)?)(?P<rest>.*)$"
_SLASHES: Final = re.compile(r"(?<!:)/{2,}")


def canonical(paths: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return one spelling per file; two files can share one, if one's name is the other's, encoded."""
    whole = paths.combine_chunks() if isinstance(paths, pa.ChunkedArray) else paths
    whole = whole.cast(pa.large_string())
    folders = pc.replace_substring_regex(whole, _NAME, "").dictionary_encode()
    names = pc.replace_substring_regex(whole, _HEAD, "")
    if pc.any(pc.match_substring(names, "%")).as_py():
        names = pa.array([unquote(name) for name in names.to_pylist()], pa.large_string())
    spelled = pa.array([_folder(one) for one in folders.dictionary.to_pylist()], pa.large_string())
    return pc.binary_join_element_wise(spelled.take(folders.indices), names, pa.scalar("", names.type))


def spell(location: str) -> tuple[str | None, str]:
    """The path of a local location, else None, and the plain spelling; schemes can be unknown here."""
    try:
        return local_name(location), plain_spelling(location)
    except ReadError:
        return None, location


def _folder(folder: str) -> str:
    """The canonical spelling of a directory, with a slash at the end."""
    local, plain = spell(folder)
    if local is None:
        return unquote(_SLASHES.sub("/", plain))
    local = os.path.realpath(local if os.path.lexists(local) else unquote(local))
    return unquote(local).rstrip("/") + "/"


def prefixes(paths: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Divide canonical spellings into scheme with authority ("" for local files) and path."""
    parts = pc.extract_regex(paths, _PARTS)
    return parts.field("head"), parts.field("rest")


def subtract(files: pa.Table, others: pa.Array) -> pa.Table:
    """Return the files without duplicates and without those that have one of the canonical spellings."""
    if not files.num_rows:
        return files
    spelled = canonical(files["path"])
    first = np.zeros(len(spelled), dtype=bool)
    first[np.unique(np.asarray(spelled.dictionary_encode().indices), return_index=True)[1]] = True
    return files.filter(pc.and_(pa.array(first), pc.invert(pc.is_in(spelled, value_set=others))))


# -- deletion ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeletedFiles:
    """What became of files that were to be deleted."""

    files: int = 0
    """Files that were deleted, or no longer existed."""
    failures: tuple[str, ...] = ()
    """Errors of files that could not be deleted."""


@dataclass(eq=False)
class TableDirectories:
    """The directories of a table: its location, and where its properties place data and metadata."""

    metadata: TableMetadata
    options: Mapping[str, Any]
    _roots: dict[str, Store] = field(init=False)
    _real: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._roots = {}
        for root in named_directories(self.metadata):
            local = local_name(root)
            if local is not None:
                real = os.path.realpath(local)
                self._roots[real] = LocalStore(real)
            else:
                plain = plain_spelling(root).rstrip("/")
                self._roots[plain] = store_at(plain, self.options)

    def locate(self, path: str) -> tuple[Store, str] | None:
        """The store and key of a file; None if it is outside all directories."""
        local, path = spell(path)
        if local is not None:
            # The directory is resolved; a file that is itself a link is deleted as a link.
            above, _, name = local.rpartition("/")
            if above not in self._real:
                self._real[above] = os.path.realpath(above)
            path = f"{self._real[above]}/{name}"
        for root, store in self._roots.items():
            key = path.removeprefix(f"{root}/")
            if key != path and not is_outside(key):
                return store, key
        return None

    def inside(self, files: pa.Table) -> Array:
        """Mask of the files that may be deleted."""
        paths = files["path"].to_pylist()
        return np.fromiter((self.locate(path) is not None for path in paths), bool, len(paths))

    def delete(self, paths: Sequence[str]) -> DeletedFiles:
        """Delete files below the directories, in order; an error does not stop the others."""
        done, failures = 0, []
        for start in range(0, len(paths), _BATCH):
            check_stop()
            by_store: dict[str, tuple[Store, list[str]]] = {}
            for path in paths[start : start + _BATCH]:
                located = self.locate(path)
                if located is not None:
                    by_store.setdefault(located[0].uri, (located[0], []))[1].append(located[1])
            for store, keys in by_store.values():
                failed = _delete(store, keys)
                done += len(keys) - len(failed)
                failures += failed
        return DeletedFiles(done, tuple(failures))


def _delete(store: Store, keys: list[str]) -> list[str]:
    """Delete files of one store; return the errors of those that are left."""
    try:
        store.delete(keys)
    except FileError as error:
        if len(keys) == 1:
            return [str(error)]
        # One by one, to find the others.
        return [problem for key in keys for problem in _delete(store, [key])]
    return []
