"""Orphan files: what is in a table's location although nothing in its metadata refers to it.

The location is listed before the metadata is loaded, so that a file whose commit ends in between is
referenced. Files of a writer that has not committed yet look like orphans; only their age tells, so young
files stay. Files of other tables of the catalog can be in the location as well: those stay, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.compact.reach import all_files
from skipstone.compact.removal import (
    DeletedFiles,
    TableDirectories,
    are_shared,
    canonical,
    check_collectable,
    check_current,
    moment,
    named_directories,
    prefixes,
    spell,
)
from skipstone.core.evidence import Array
from skipstone.engine.jobs import gather
from skipstone.engine.stopping import stoppable
from skipstone.errors import MissingFileError, UsageError
from skipstone.iceberg.catalogs import METADATA_FILES, all_namespaces, reason
from skipstone.iceberg.metadata import tolerant
from skipstone.iceberg.table import TableSnapshot
from skipstone.lake.records import modified
from skipstone.report import Reported
from skipstone.store.absolute import store_at
from skipstone.store.local import LocalStore
from skipstone.store.store import ListedFile

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table.metadata import TableMetadata

    from skipstone.compact.removal import Age
    from skipstone.scan.table import Table

PrefixMismatch: TypeAlias = Literal["error", "ignore"]

_AGE: Final = timedelta(days=3)
_LEAST_AGE: Final = timedelta(days=1)
_SHOWN: Final = 3
_LOADED_AT_ONCE: Final = 200


@dataclass(frozen=True, slots=True)
class OrphansReport(Reported):
    """Orphan files that were deleted; with ``dry_run``, that would be.

    Examples:
        >>> import skipstone as sk
        >>> table = sk.open("db.events", catalog="warehouse")
        >>> report = table.remove_orphans(dry_run=True)
        >>> report.dry_run, report.deleted, report.recent
        (True, 0, 0)
    """

    view: ClassVar[str] = "skipstone.compact.views:orphans_tree"
    json_also: ClassVar[Mapping[str, str]] = {"count": "count"}

    table: str
    dry_run: bool
    location: str
    """The directory that was listed."""
    older_than: datetime
    listed: int
    """Files below it, without those whose name, or a directory of theirs, begins with ``_`` or ``.``."""
    referenced: int
    """Listed files that the table's metadata refers to."""
    recent: int
    """Other files that are not old enough, or whose age is unknown."""
    files: tuple[str, ...]
    """Paths of the orphans."""
    bytes: int
    deleted: int
    """Files that were deleted; 0 in a dry run."""
    mismatched: tuple[str, ...] = ()
    """Files that the metadata names with another scheme or authority; they stay."""
    others: int = 0
    """Files of other tables of the catalog; they stay."""
    unchecked: tuple[str, ...] = ()
    """Why other tables could not be compared; with such reasons only ``force`` deletes files."""
    failures: tuple[str, ...] = ()
    """Errors of files that could not be deleted."""

    @property
    def count(self) -> int:
        """Number of orphans."""
        return len(self.files)


def remove_orphans(
    table: Table,
    *,
    older_than: Age | None = None,
    location: str | None = None,
    prefix_mismatch: PrefixMismatch = "error",
    allow_recent: bool = False,
    force: bool = False,
    dry_run: bool = False,
) -> OrphansReport:
    """Delete unreferenced files; ``Table.remove_orphans`` documents the options."""
    if prefix_mismatch not in ("error", "ignore"):
        hint = 'use "error" or "ignore"'
        raise UsageError(f"unknown prefix_mismatch {prefix_mismatch!r}", hint=hint)
    check_current(table.table, dry_run=dry_run)
    check_collectable(table.metadata, table.name)
    limit = moment(_AGE if older_than is None else older_than)
    if not (allow_recent or dry_run) and limit > datetime.now(UTC) - _LEAST_AGE:
        raise UsageError(
            "older_than is less than a day ago, and files of running writers look like orphans",
            path=table.name,
            hint="use an older time; or allow_recent=True, if nothing writes to the table",
        )
    listing = _Listing.of(table.pinned, location, table.index.uri)
    # Only now, so that files of commits that have just ended are referenced.
    table.refresh()
    now = table.pinned
    check_collectable(now.metadata, table.name)
    references = _References.of(now)
    listing.check_alone(references)
    found = references.listed(listing)
    orphans = ~found
    young = orphans & ~(listing.times < limit.timestamp())
    candidates = np.flatnonzero(orphans & ~young)
    mismatched = references.mismatched(listing.spelled.take(pa.array(candidates)))
    if mismatched.any() and prefix_mismatch == "error":
        raise _mismatch_error(table.name, [listing.paths[at] for at in candidates[mismatched].tolist()])
    unreferenced = candidates[~mismatched]
    theirs = np.zeros(len(unreferenced), dtype=bool)
    unchecked: tuple[str, ...] = ()
    if len(unreferenced):
        theirs, unchecked = _files_of_others(now, listing.take(unreferenced))
        if unchecked and not (force or dry_run):
            raise unchecked_error(table.name, unchecked)
    doomed = unreferenced[~theirs].tolist()
    paths = [listing.paths[at] for at in doomed]
    deleted = DeletedFiles()
    if not dry_run:
        with stoppable("some of the orphans may have been deleted; nothing else was changed"):
            deleted = listing.directories.delete(paths)
    return OrphansReport(
        table=table.name,
        dry_run=dry_run,
        location=listing.root,
        older_than=limit,
        listed=len(listing.paths),
        referenced=int(found.sum()),
        recent=int(young.sum()),
        files=tuple(paths),
        bytes=int(listing.sizes[doomed].sum()),
        deleted=deleted.files,
        mismatched=tuple(listing.paths[at] for at in candidates[mismatched].tolist()),
        others=int(theirs.sum()),
        unchecked=unchecked,
        failures=deleted.failures,
    )


def unchecked_error(name: str, unchecked: Sequence[str]) -> UsageError:
    """The error of a removal that could delete files of other tables."""
    return UsageError(
        f"other tables of the catalog could not be compared: {_shortened(unchecked, '; ')}",
        path=name,
        hint="force=True or --force deletes the files, if no other table has files in the location",
    )


def _shortened(texts: Sequence[str], by: str) -> str:
    more = f" and {len(texts) - _SHOWN:,} more" if len(texts) > _SHOWN else ""
    return by.join(texts[:_SHOWN]) + more


def _mismatch_error(name: str, paths: list[str]) -> UsageError:
    return UsageError(
        f"metadata names files with another scheme or authority than the listing: {_shortened(paths, ', ')}",
        path=name,
        hint='correct the location of the table; or use prefix_mismatch="ignore" to leave these files alone',
    )


# -- what is there -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Listing:
    """Files in a directory of a table that are not hidden."""

    root: str
    paths: list[str]
    spelled: pa.Array
    """Canonical spellings."""
    sizes: Array
    times: Array
    """Modification times; infinite if unknown."""
    inodes: Array
    """Inodes of local files; -1 elsewhere."""
    directories: TableDirectories

    @classmethod
    def of(cls, table: TableSnapshot, location: str | None, index: str) -> _Listing:
        directories = TableDirectories(table.metadata, table.options)
        base = table.metadata.location.rstrip("/")
        root = base if location is None else location.rstrip("/")
        spelled, own = canonical(pa.array([f"{root}/", f"{base}/"])).to_pylist()
        located = None if spelled == own else directories.locate(root)
        if spelled != own and located is None:
            hint = f"use a directory below {base}"
            raise UsageError("location is outside the table's directories", path=root, hint=hint)
        hidden = _HiddenNames.of(table, located[1] if located is not None else "")
        try:
            listed = store_at(root, table.options).list()
            entries = [entry for entry in listed if not hidden.covers(entry.key)]
        except MissingFileError:
            entries = []
        paths = [f"{root}/{entry.key}" for entry in entries]
        names = canonical(pa.array(paths, pa.large_string()))
        # An index can be anywhere; and a link can lead out of the directory.
        own_index = canonical(pa.array([f"{index.rstrip('/')}/"])).to_pylist()[0]
        inside = pc.and_not(pc.starts_with(names, spelled), pc.starts_with(names, own_index))
        kept = np.flatnonzero(np.asarray(inside, dtype=bool)).tolist()
        return cls(
            root,
            [paths[at] for at in kept],
            names.take(pa.array(kept, pa.int64())),
            np.array([entries[at].size for at in kept], dtype=np.int64),
            np.array([_time(entries[at]) for at in kept], dtype=float),
            np.array([_inode(entries[at]) for at in kept], dtype=np.int64),
            directories,
        )

    def take(self, positions: Array) -> _Listing:
        """Some of the files."""
        return replace(
            self,
            paths=[self.paths[at] for at in positions.tolist()],
            spelled=self.spelled.take(pa.array(positions)),
            sizes=self.sizes[positions],
            times=self.times[positions],
            inodes=self.inodes[positions],
        )

    def ends_with(self, suffixes: Sequence[str]) -> Array:
        """Mask of the files with one of these suffixes."""
        found = np.zeros(len(self.paths), dtype=bool)
        for suffix in suffixes:
            found |= np.asarray(pc.ends_with(self.spelled, suffix), dtype=bool)
        return found

    def below(self, folder: str) -> Array:
        """Mask of the files below a directory, by its canonical spelling."""
        return np.asarray(pc.starts_with(self.spelled, folder), dtype=bool)

    def check_alone(self, references: _References) -> None:
        """Refuse a location that contains another table."""
        for at in np.flatnonzero(self.ends_with(METADATA_FILES)).tolist():
            if self.spelled[at].as_py().rpartition("/")[0] not in references.metadata_folders:
                raise UsageError(
                    "location contains another table",
                    path=self.paths[at],
                    hint="use location= with a directory that only this table uses",
                )


def _time(entry: ListedFile) -> float:
    time = modified(entry)
    return np.inf if time is None else time


def _inode(entry: ListedFile) -> int:
    return int(entry.version[2]) if isinstance(entry.version, tuple) else -1


@dataclass(frozen=True, slots=True)
class _HiddenNames:
    """Names that begin with an underscore or a dot, except directories of partition fields."""

    above: str
    """Key of the listed directory below the table's."""
    fields: tuple[str, ...]

    @classmethod
    def of(cls, table: TableSnapshot, above: str) -> _HiddenNames:
        names = {field.name for spec in table.specs.values() for field in spec.fields}
        return cls(above, tuple(f"{name}=" for name in names if name.startswith(("_", "."))))

    def covers(self, key: str) -> bool:
        """Whether a file is hidden."""
        whole = f"{self.above}/{key}" if self.above else key
        if whole[0] not in "_." and "/_" not in whole and "/." not in whole:
            return False
        return any(
            name.startswith(("_", ".")) and not (self.fields and name.startswith(self.fields))
            for name in whole.split("/")
        )


# -- what is referenced ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _References:
    """Files that a table's metadata refers to."""

    paths: pa.Array
    spelled: pa.Array
    metadata_folders: frozenset[str]

    @classmethod
    def of(cls, now: TableSnapshot) -> _References:
        metadata, location = now.metadata, now.table.metadata_location
        own = [location, *(entry.metadata_file for entry in metadata.metadata_log)]
        folder = f"{metadata.location.rstrip('/')}/metadata"
        # Catalogs without a service find the current version by this file.
        files = all_files(now, [*own, f"{folder}/version-hint.text"])
        paths = files["path"].combine_chunks()
        folders = canonical(pa.array([f"{folder}/", *own], pa.large_string())).to_pylist()
        return cls(paths, canonical(paths), frozenset(one.rpartition("/")[0] for one in folders))

    def listed(self, listing: _Listing) -> Array:
        """Mask of the listed files that are referenced, under any name."""
        found: Array = np.asarray(pc.is_in(listing.spelled, value_set=self.spelled), dtype=bool)
        (heads, names), (own_heads, own_names) = prefixes(listing.spelled), prefixes(self.spelled)
        # A reference without a scheme matches any.
        bare = own_names.filter(pc.equal(own_heads, ""))
        remote = pc.not_equal(heads, "")
        found |= np.asarray(pc.and_(remote, pc.is_in(names, value_set=bare)), dtype=bool)
        if (listing.inodes >= 0).any():
            # Links: two names of one local file have one inode.
            nodes = set(listing.inodes[found].tolist()) | self._inodes(listing)
            found |= np.isin(listing.inodes, np.array(sorted(nodes), dtype=np.int64))
        return found

    def _inodes(self, listing: _Listing) -> set[int]:
        """Inodes of referenced files that were not listed, and can be links to files that were."""
        unlisted = self.paths.filter(pc.invert(pc.is_in(self.spelled, value_set=listing.spelled)))
        nodes = set()
        for path in unlisted.to_pylist():
            local, _ = spell(path)
            if local is not None:
                folder, _, name = local.rpartition("/")
                store = LocalStore(folder, name)
                try:
                    nodes.add(_inode(store.list()[0]))
                except MissingFileError:
                    continue
        return nodes

    def mismatched(self, candidates: pa.Array) -> Array:
        """Mask of the unreferenced files whose path is referenced with another scheme or authority."""
        _, rest = prefixes(candidates)
        _, paths = prefixes(self.spelled)
        return np.asarray(pc.is_in(rest, value_set=paths), dtype=bool)


# -- other tables ------------------------------------------------------------------------------

_NAME_MAPPING: Final = "schema.name-mapping.default"
"""A table with this property can have files that no Iceberg writer has placed."""
_Name: TypeAlias = tuple[str, ...]


def _files_of_others(now: TableSnapshot, listing: _Listing) -> tuple[Array, tuple[str, ...]]:
    """Mask of the listed files that belong to other tables or to views of the catalog, and what is unknown.

    The metadata of every table is loaded; manifests only of those that can have files in the location.
    """
    theirs = np.zeros(len(listing.paths), dtype=bool)
    catalog, own = now.table.catalog, tuple(now.table.name())
    try:
        tables, views = _catalog_names(catalog)
    except Exception as error:  # noqa: BLE001  (catalogs raise exceptions of any type)
        return theirs, (f"catalog can't be listed: {_words(error)}",)
    unchecked = []
    root = canonical(pa.array([f"{listing.root}/"], pa.large_string())).to_pylist()[0]
    for name, table in _loaded(catalog.load_table, [one for one in tables if one != own], now):
        try:
            if isinstance(table, Exception):
                if not _is_gone(catalog, name):
                    raise table
                continue
            same = table.metadata.table_uuid == now.metadata.table_uuid
            folders = canonical(
                pa.array([f"{one.rstrip('/')}/" for one in named_directories(table.metadata)])
            )
            for folder in folders.to_pylist():
                if not same and folder != root and folder.startswith(root):
                    theirs |= listing.below(folder)
            if _can_have_files_in(root, table.metadata, [*folders.to_pylist(), table.metadata_location]):
                other = TableSnapshot.open(table, storage_options=now.storage_options)
                theirs |= _References.of(other).listed(listing)
        except Exception as error:  # noqa: BLE001
            unchecked.append(f"{'.'.join(name)}: {_words(error)}")
    for name, view in _loaded(catalog.load_view, views, now) if views else ():
        if isinstance(view, Exception):
            unchecked.append(f"view {'.'.join(name)}: {_words(view)}")
            continue
        folder = canonical(pa.array([f"{view.metadata.location.rstrip('/')}/"])).to_pylist()[0]
        inside = listing.below(folder)
        theirs |= (
            inside
            if folder != root and folder.startswith(root)
            else inside & listing.ends_with(METADATA_FILES)
        )
    return theirs, tuple(unchecked)


def _catalog_names(catalog: Catalog) -> tuple[list[_Name], list[_Name]]:
    """Names of all tables and of all views, in all namespaces."""
    tables: dict[_Name, None] = {}
    views: dict[_Name, None] = {}
    for namespace in all_namespaces(catalog):
        tables.update(dict.fromkeys(map(tuple, catalog.list_tables(namespace))))
        # Catalogs of pyiceberg that can't list views have none.
        with suppress(NotImplementedError):
            views.update(dict.fromkeys(map(tuple, catalog.list_views(namespace))))
    return [*tables], [*views]


def _loaded(
    load: Callable[[_Name], Any], names: Sequence[_Name], now: TableSnapshot
) -> Iterator[tuple[_Name, Any]]:
    """Load tables or views by name; what can't be loaded is its error."""

    def one(name: _Name) -> Any:
        try:
            return tolerant(lambda: load(name))
        except Exception as error:  # noqa: BLE001
            return error

    for start in range(0, len(names), _LOADED_AT_ONCE):
        some = names[start : start + _LOADED_AT_ONCE]
        for name, found in zip(some, gather(one, some, threads=now.access.threads), strict=True):
            # Not all catalogs can be used by several threads.
            yield name, one(name) if isinstance(found, Exception) else found


def _is_gone(catalog: Catalog, name: _Name) -> bool:
    """Whether a table that can't be loaded has been dropped meanwhile."""
    return name not in {tuple(one) for one in catalog.list_tables(name[:-1])}


def _can_have_files_in(root: str, metadata: TableMetadata, named: Sequence[str]) -> bool:
    """Whether a directory overlaps with those of a table, or the table can have files anywhere."""
    if are_shared(metadata) or _NAME_MAPPING in metadata.properties:
        return True
    # A table whose location has changed keeps its older files.
    lists = [one.manifest_list for one in metadata.snapshots if one.manifest_list]
    log = [one.metadata_file for one in metadata.metadata_log]
    paths = canonical(pa.array([root, *named, *lists, *log], pa.large_string()))
    _, (whole, *rest) = (part.to_pylist() for part in prefixes(paths))
    return any(one.startswith(whole) or (one.endswith("/") and whole.startswith(one)) for one in rest)


def _words(error: Exception) -> str:
    return reason(error) or type(error).__name__
