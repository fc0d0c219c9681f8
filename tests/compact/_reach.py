"""What pyiceberg says a table refers to, and what is on disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import skipstone as sk
from skipstone.iceberg.manifests.reading import clear_cache


def plain(path: str) -> str:
    return path.removeprefix("file://")


def reachable(table: sk.Table) -> set[str]:
    """Files of all snapshots in the metadata."""
    io, found = table.table.io, set()
    for snapshot in table.metadata.snapshots:
        found.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(io):
            found.add(manifest.manifest_path)
            found |= {one.data_file.file_path for one in manifest.fetch_manifest_entry(io)}
    return {plain(path) for path in found}


def metadata_files(table: sk.Table) -> set[str]:
    """Metadata files of the log, and the file that says which is the current one."""
    own = {table.table.metadata_location, *(one.metadata_file for one in table.metadata.metadata_log)}
    hint = Path(plain(table.metadata.location), "metadata", "version-hint.text")
    return {plain(path) for path in own} | ({str(hint)} if hint.exists() else set())


def on_disk(table: sk.Table) -> set[str]:
    root = Path(plain(table.metadata.location))
    files = {path for path in root.rglob("*") if path.is_file()}
    return {str(path) for path in files if "_skipstone" not in path.parts}


def rows_at(table: sk.Table, snapshot: int | None) -> list[str]:
    """Rows of a snapshot in a canonical order."""
    found = table.scan(snapshot=snapshot).to_arrow()
    return sorted(map(repr, found.select(sorted(found.column_names)).to_pylist()))


def all_rows(table: sk.Table) -> dict[int, list[str]]:
    """Rows of each snapshot, read from the files."""
    clear_cache()
    return {one.id: rows_at(table, one.id) for one in table.snapshots()}


def their_rows(table: sk.Table) -> dict[int, list[str]]:
    """The same as pyiceberg reads them."""
    rows: dict[int, list[str]] = {}
    for one in table.metadata.snapshots:
        found: Any = table.table.scan(snapshot_id=one.snapshot_id).to_arrow()
        rows[one.snapshot_id] = sorted(map(repr, found.select(sorted(found.column_names)).to_pylist()))
    return rows


def _comparable(value: Any) -> str:
    if isinstance(value, Mapping):
        return repr(sorted(value.items()))
    return repr(getattr(value, "_data", value))


def all_entries(table: sk.Table) -> dict[int, set[tuple[Any, ...]]]:
    """Everything pyiceberg reads of the live files of each snapshot, with inherited numbers."""
    io, entries = table.table.io, {}
    for snapshot in table.metadata.snapshots:
        entries[snapshot.snapshot_id] = {
            (
                *(manifest.partition_spec_id, int(manifest.content)),
                *(one.snapshot_id, one.sequence_number, one.file_sequence_number),
                *map(_comparable, one.data_file._data),
            )
            for manifest in snapshot.manifests(io)
            for one in manifest.fetch_manifest_entry(io)
        }
    return entries


def ours(table: sk.Table) -> list[dict[str, Any]]:
    """All that Skipstone reads of the live files."""
    parts = [part.everything[0].to_table() for part in (table.inventory, table.delete_inventory)]
    found = [row for part in parts for row in part.to_pylist()]
    return sorted(found, key=lambda row: row["paths"])
