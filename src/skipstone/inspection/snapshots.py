"""Snapshots of a table, and the tables of a catalog."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from skipstone.report import Reported
from skipstone.report.json import record
from skipstone.scan.statistics import live_rows, summary_number

if TYPE_CHECKING:
    from skipstone.iceberg.metadata import SnapshotInfo
    from skipstone.scan.table import Table


@dataclass(frozen=True, slots=True)
class SnapshotRef:
    """A branch or a tag."""

    name: str
    type: str

    def __str__(self) -> str:
        return f"tag {self.name}" if self.type == "tag" else self.name


@dataclass(frozen=True, slots=True)
class SnapshotEntry:
    """A snapshot; numbers are None where its writer left them out."""

    id: int
    parent: int | None
    sequence_number: int
    at: datetime
    operation: str | None
    schema_id: int | None
    current: bool
    refs: tuple[SnapshotRef, ...]
    added_files: int | None
    removed_files: int | None
    added_rows: int | None
    removed_rows: int | None
    added_delete_files: int | None
    removed_delete_files: int | None
    total_files: int | None
    total_rows: int | None
    """Rows of the data files, deleted ones included."""
    live_rows: int | None
    """Rows that are not deleted; None if the summaries don't tell."""
    total_bytes: int | None
    summary: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """Return the same as dicts, lists, strings and numbers."""
        at = self.at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return {**record(self), "at": at}


@dataclass(frozen=True, slots=True)
class SnapshotList(Reported):
    """The snapshots of a table, oldest first."""

    view: ClassVar[str] = "skipstone.inspection.views:snapshots_tree"

    table: str
    location: str
    current: int | None
    snapshots: tuple[SnapshotEntry, ...]


@dataclass(frozen=True, slots=True)
class TableList(Reported):
    """The tables of a catalog, or of one of its namespaces, by name."""

    view: ClassVar[str] = "skipstone.inspection.views:tables_tree"

    catalog: str
    namespace: str | None
    tables: tuple[str, ...]


def list_snapshots(table: Table) -> SnapshotList:
    """Return the snapshots of a table."""
    entries = snapshot_entries(table.snapshots(), ref_types(table))
    return SnapshotList(table.name, table.uri, table.metadata.current_snapshot_id, entries)


def snapshot_entries(
    snapshots: Sequence[SnapshotInfo], types: Mapping[str, str]
) -> tuple[SnapshotEntry, ...]:
    """Return the snapshots of a table, which are sorted from old to new."""
    live = live_rows(snapshots)
    return tuple(_entry(snapshot, types, live[snapshot.id]) for snapshot in snapshots)


def ref_types(table: Table) -> dict[str, str]:
    """Return whether each name is a branch or a tag."""
    return {name: str(ref.snapshot_ref_type.value) for name, ref in table.metadata.refs.items()}


def _entry(snapshot: SnapshotInfo, types: Mapping[str, str], live: int | None) -> SnapshotEntry:
    number = partial(summary_number, snapshot)
    return SnapshotEntry(
        snapshot.id,
        snapshot.parent,
        snapshot.sequence,
        snapshot.at,
        snapshot.operation or None,
        snapshot.schema_id,
        snapshot.current,
        tuple(SnapshotRef(name, types.get(name, "")) for name in snapshot.refs),
        number("added-data-files"),
        number("deleted-data-files"),
        number("added-records"),
        number("deleted-records"),
        number("added-delete-files"),
        number("removed-delete-files"),
        number("total-data-files"),
        number("total-records"),
        live,
        number("total-files-size"),
        snapshot.summary,
    )
