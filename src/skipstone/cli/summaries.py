"""What the summary of a snapshot says, as far as its writer has filled it in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skipstone.api import SnapshotInfo
    from skipstone.scan.lake import Lake


def summed(snapshot: SnapshotInfo, name: str) -> int | None:
    """A number of the summary; None where it doesn't say."""
    text = snapshot.summary.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else None


def pinned(table: Any) -> SnapshotInfo | None:
    """The snapshot that a table is opened at; None for one without any."""
    return next((one for one in table.snapshots() if one.id == table.snapshot), None)


def lake_bytes(lake: Lake) -> int | None:
    """Bytes of all files; of a table what its snapshot says, as not all manifests may have been read."""
    if not hasattr(lake, "snapshots"):
        return sum(entry.size for entry in lake.entries)
    snapshot = pinned(lake)
    return None if snapshot is None else summed(snapshot, "total-files-size")
