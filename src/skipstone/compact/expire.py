"""Expiry of snapshots: those that Iceberg's rules remove, and the files that no other snapshot needs.

The metadata is committed first. Only then are files deleted: those of the removed snapshots that nothing in
the metadata refers to, as it is after the commit. A process that dies in between leaves orphans, never a
snapshot that lacks files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType

from skipstone.compact.reach import (
    DATA_KINDS,
    MANIFEST,
    SnapshotManifests,
    content_files,
    snapshot_manifests,
    statistics_files,
)
from skipstone.compact.removal import (
    DeletedFiles,
    TableDirectories,
    canonical,
    check_collectable,
    check_current,
    moment,
    subtract,
)
from skipstone.engine.stopping import JobStop, stoppable
from skipstone.errors import FileError, UsageError, WriteError
from skipstone.iceberg.metadata import ancestors, integer_property
from skipstone.iceberg.writing.target import check_version
from skipstone.iceberg.writing.updates import remove_snapshots
from skipstone.report import Reported

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from skipstone.compact.removal import Age
    from skipstone.iceberg.table import TableSnapshot
    from skipstone.scan.table import Table

_MAX_AGE: Final = "history.expire.max-snapshot-age-ms"
_MIN_KEEP: Final = "history.expire.min-snapshots-to-keep"
_MAX_REF_AGE: Final = "history.expire.max-ref-age-ms"
_FIVE_DAYS: Final = 5 * 86_400_000
_FOREVER: Final = (1 << 63) - 1
_ORDER: Final = (*DATA_KINDS, MANIFEST)


@dataclass(frozen=True, slots=True)
class FileCount:
    """Number and bytes of files of one kind; bytes that are not recorded are not counted."""

    kind: str
    files: int
    bytes: int


def count_files(files: pa.Table) -> tuple[FileCount, ...]:
    """Count files by kind."""
    counted = files.group_by("kind").aggregate([("path", "count"), ("bytes", "sum")]).to_pylist()
    return tuple(
        sorted(
            (FileCount(one["kind"], one["path_count"], one["bytes_sum"] or 0) for one in counted),
            key=lambda one: one.kind,
        )
    )


@dataclass(frozen=True, slots=True)
class ExpireReport(Reported):
    """Snapshots that expired, and files that were deleted; with ``dry_run``, that would be.

    Examples:
        >>> import skipstone as sk
        >>> table = sk.open("db.events", catalog="warehouse")
        >>> report = table.expire(older_than="0s", dry_run=True)
        >>> report.snapshots, report.remaining, report.files
        ((), 1, ())
    """

    view: ClassVar[str] = "skipstone.compact.views:expire_tree"

    table: str
    dry_run: bool
    snapshots: tuple[int, ...]
    """Ids of the snapshots, oldest first."""
    refs: tuple[str, ...]
    """Branches and tags that were removed because of their age."""
    remaining: int
    """Number of snapshots that stay."""
    counts: tuple[FileCount, ...]
    """Files to delete, by kind."""
    files: tuple[str, ...]
    """Paths of the files to delete."""
    bytes: int
    """Their size, as recorded; the size of manifest lists is not."""
    deleted: int
    """Files that were deleted; 0 in a dry run."""
    outside: tuple[str, ...] = ()
    """Files outside the table's directories, which stay."""
    failures: tuple[str, ...] = ()
    """Errors of files that could not be read or deleted; ``remove_orphans`` finds these files later."""


@dataclass(frozen=True, slots=True)
class Retention:
    """Rules that say which snapshots stay; times are in milliseconds since 1970."""

    now: int
    older_than: int
    """Snapshots of branches without a rule of their own expire if they are older."""
    retain_last: int
    max_ref_age: int

    @classmethod
    def of(
        cls,
        metadata: TableMetadata,
        older_than: Age | None,
        retain_last: int | None,
        table: str | None = None,
    ) -> Retention:
        """The rules of arguments and table properties."""
        now = round(datetime.now().timestamp() * 1000)
        read = partial(integer_property, metadata.properties, table=table)
        age = read(_MAX_AGE, _FIVE_DAYS)
        limit = now - age if older_than is None else round(moment(older_than).timestamp() * 1000)
        least = read(_MIN_KEEP, 1, least=1) if retain_last is None else retain_last
        if isinstance(least, bool) or not isinstance(least, int) or least < 1:
            raise UsageError(f"retain_last must be at least 1, got {least!r}")
        return cls(now, limit, least, read(_MAX_REF_AGE, _FOREVER))

    def expired_refs(self, metadata: TableMetadata) -> list[str]:
        """Branches and tags, except the main branch, whose snapshot is older than they may be."""
        return [name for name, ref in metadata.refs.items() if self._is_expired(name, ref, metadata)]

    def _is_expired(self, name: str, ref: SnapshotRef, metadata: TableMetadata) -> bool:
        snapshot = metadata.snapshot_by_id(ref.snapshot_id)
        if name == MAIN_BRANCH or snapshot is None:
            return False
        most = self.max_ref_age if ref.max_ref_age_ms is None else ref.max_ref_age_ms
        return self.now - snapshot.timestamp_ms > most

    def retained(self, metadata: TableMetadata, refs: Iterable[SnapshotRef]) -> set[int]:
        """Ids of the snapshots that stay for the sake of references, or because they are young."""
        current = metadata.current_snapshot_id
        kept: set[int] = set() if current is None else {current}
        referenced: set[int] = set()
        for ref in refs:
            kept.add(ref.snapshot_id)
            referenced.add(ref.snapshot_id)
            if ref.snapshot_ref_type is not SnapshotRefType.BRANCH:
                continue
            line = list(ancestors(metadata, metadata.snapshot_by_id(ref.snapshot_id)))
            referenced |= {one.snapshot_id for one in line}
            age, least = ref.max_snapshot_age_ms, ref.min_snapshots_to_keep or self.retain_last
            limit = self.older_than if age is None else self.now - age
            for number, one in enumerate(line):
                if number >= least and one.timestamp_ms < limit:
                    break
                kept.add(one.snapshot_id)
        young = (one for one in metadata.snapshots if one.timestamp_ms >= self.older_than)
        return kept | {one.snapshot_id for one in young if one.snapshot_id not in referenced}


@dataclass(frozen=True, slots=True)
class ExpiryRule:
    """What a call asks for; applied to the metadata of every attempt."""

    name: str
    older_than: Age | None
    retain_last: int | None
    ids: tuple[int, ...]
    by_age: bool
    """Whether snapshots expire by age too, not only the named ones."""

    def __call__(self, metadata: TableMetadata) -> tuple[Collection[int], list[str]]:
        """Ids of the snapshots that expire, and names of the references that do."""
        rules = Retention.of(metadata, self.older_than, self.retain_last, self.name)
        refs = rules.expired_refs(metadata) if self.by_age else []
        left = {name: ref for name, ref in metadata.refs.items() if name not in refs}
        known = [one.snapshot_id for one in metadata.snapshots]
        for number in self.ids:
            names = sorted(name for name, ref in left.items() if ref.snapshot_id == number)
            if names:
                hint = "remove the branch or tag first, or leave the snapshot out"
                problem = f"snapshot {number} is referenced by {', '.join(names)}"
                raise UsageError(problem, path=self.name, hint=hint)
        gone = set(self.ids)
        if self.by_age:
            gone |= set(known) - rules.retained(metadata, left.values())
        return [number for number in known if number in gone], refs


def expire(
    table: Table,
    *,
    older_than: Age | None = None,
    retain_last: int | None = None,
    snapshot_ids: Sequence[int] = (),
    dry_run: bool = False,
) -> ExpireReport:
    """Remove snapshots and delete their files; ``Table.expire`` documents the options."""
    check_version(table.table, table.name)
    check_current(table.table, dry_run=dry_run)
    table.refresh()
    given: Any = snapshot_ids
    if isinstance(given, str) or not isinstance(given, Iterable):
        problem = f"snapshot_ids must be a list of snapshot ids, got {given!r}"
        raise UsageError(problem, hint=f"pass [{given}]" if isinstance(given, int) else None)
    ids = tuple(dict.fromkeys(snapshot_ids))
    by_age = not ids or older_than is not None or retain_last is not None
    check_collectable(table.metadata, table.name)
    known = {one.snapshot_id for one in table.metadata.snapshots}
    unknown = [number for number in ids if number not in known]
    if unknown:
        hint = "table.snapshots() lists the snapshots"
        raise UsageError(f"unknown snapshot {unknown[0]}", path=table.name, hint=hint)
    age = None if older_than is None else moment(older_than)
    rule = ExpiryRule(table.name, age, retain_last, ids, by_age)
    before = table.pinned
    gone, refs = rule(before.metadata)
    # Read before anything is removed: if a snapshot that stays can't be read, nothing happens.
    plan = _Garbage(before, frozenset(gone))
    files = plan.unreferenced(before, frozenset(gone))
    if dry_run or not (gone or refs):
        return plan.report(refs, files, DeletedFiles(), dry_run=dry_run)
    with stoppable() as stop:
        return _remove(table, rule, plan, stop)


def _remove(table: Table, rule: ExpiryRule, plan: _Garbage, stop: JobStop) -> ExpireReport:
    """Remove snapshots from the metadata, then delete the files that only they needed."""
    before = plan.table
    metadata, removed = remove_snapshots(table.table, table.name, rule)
    stop.outcome = (
        "snapshots have expired, but not all of their files were deleted; remove_orphans does it later"
    )
    table.refresh()
    after = table.pinned
    names = tuple(sorted(metadata.refs.keys() - after.metadata.refs.keys()))
    try:
        if removed != plan.removed:
            plan = _Garbage(before.with_metadata(metadata), removed)
        files = plan.unreferenced(after, frozenset())
    except FileError as error:
        problem = f"snapshots have expired, but their files were not deleted: {error.message}"
        hint = "remove_orphans deletes them later"
        raise WriteError(problem, path=error.path or table.name, hint=hint) from error
    paths = _in_order(files.filter(pa.array(plan.directories.inside(files))))
    report = plan.report(names, files, plan.directories.delete(paths), dry_run=False)
    stop.outcome = "snapshots have expired, and their files were deleted"
    return report


def _in_order(files: pa.Table) -> list[str]:
    """Paths, data before the manifests that name them."""
    ranks = pc.index_in(files["kind"], value_set=pa.array(_ORDER)).fill_null(len(_ORDER))
    order = np.argsort(np.asarray(ranks), kind="stable")
    paths: list[str] = files["path"].take(pa.array(order)).to_pylist()
    return paths


@dataclass(eq=False)
class _Garbage:
    """Files of snapshots that are removed."""

    table: TableSnapshot
    """The table with these snapshots."""
    removed: frozenset[int]
    directories: TableDirectories = field(init=False)
    _own: SnapshotManifests = field(init=False)
    _problems: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.directories = TableDirectories(self.table.metadata, self.table.options)
        snapshots = [one for one in self.table.metadata.snapshots if one.snapshot_id in self.removed]
        # What an earlier, interrupted expiry has deleted does not stop this one.
        self._own = snapshot_manifests(self.table, snapshots, lenient=True)

    def unreferenced(self, now: TableSnapshot, without: frozenset[int]) -> pa.Table:
        """The files that nothing in the metadata ``now`` refers to, apart from some of its snapshots."""
        left = [one for one in now.metadata.snapshots if one.snapshot_id not in without]
        others = snapshot_manifests(now, left)
        own = subtract(self._own.files(), canonical(others.files()["path"]))
        statistics = statistics_files(self.table.metadata)
        kept = _without(statistics_files(now.metadata), now.metadata, without)
        statistics = subtract(statistics, canonical(kept["path"]))
        paths = set(own["path"].to_pylist())
        manifests = [info for info in self._own.manifests if info.path in paths]
        content, problems = content_files(self.table, manifests, lenient=True)
        if content.num_rows:
            # Manifests that stay are read only if some file can be unreferenced.
            content = subtract(content, canonical(content_files(now, others.manifests)[0]["path"]))
        self._problems = (*self._own.problems, *problems)
        return pa.concat_tables([content, own, statistics])

    def report(
        self, refs: Sequence[str], files: pa.Table, deleted: DeletedFiles, *, dry_run: bool
    ) -> ExpireReport:
        """The result of the expiry of these snapshots."""
        metadata = self.table.metadata
        inside = pa.array(self.directories.inside(files))
        doomed = files.filter(inside)
        ordered = sorted(metadata.snapshots, key=lambda one: (one.sequence_number or 0, one.timestamp_ms))
        return ExpireReport(
            table=self.table.name,
            dry_run=dry_run,
            snapshots=tuple(one.snapshot_id for one in ordered if one.snapshot_id in self.removed),
            refs=tuple(sorted(refs)),
            remaining=len(metadata.snapshots) - len(self.removed),
            counts=count_files(doomed),
            files=tuple(_in_order(doomed)),
            bytes=pc.sum(doomed["bytes"]).as_py() or 0,
            deleted=deleted.files,
            outside=tuple(files.filter(pc.invert(inside))["path"].to_pylist()),
            failures=(*self._problems, *deleted.failures),
        )


def _without(files: pa.Table, metadata: TableMetadata, ids: frozenset[int]) -> pa.Table:
    """Statistics files except those of some snapshots."""
    every: list[Any] = [*metadata.statistics, *metadata.partition_statistics]
    return files.filter(pa.array([one.snapshot_id not in ids for one in every], pa.bool_()))
