"""What a log holds beyond what is flushed, each frame exactly once.

A flush records its last frame in the summary of its snapshot, and afterwards in the tail's state. Snapshots
of other writers, and compactions, lack it: all snapshots of the table are searched. A flush that was about to
be committed when the process ended is in the state as an intent: it was committed if a snapshot says so, and
not committed if the history of the table goes back to the intent's base without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from skipstone.errors import ConflictError, CorruptFileError
from skipstone.iceberg.metadata import ancestors
from skipstone.table.tail.lease import STATE, Lease, TailState, lost
from skipstone.table.tail.wal import (
    MARK,
    Frame,
    Segment,
    cut,
    mark_of,
    old_segments,
    owners,
    read_intact,
    read_mark,
    read_segments,
    set_aside,
)

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

TAIL: Final = "skipstone.tail"
"""Property of a snapshot's summary: the tail that it was flushed from."""
FLOOR: Final = "skipstone.tail-floor"
"""The last frame that was flushed."""
LEASE: Final = "skipstone.tail-lease"
"""The token of the lease."""


def flush_properties(lease: Lease, last: int) -> dict[str, str]:
    """What the snapshot of a flush records."""
    return {TAIL: lease.state.id, FLOOR: str(last), LEASE: str(lease.token)}


def flushed(summary: Mapping[str, str], tail: str) -> tuple[int, int]:
    """Floor and token that a snapshot records for a tail; zeros if it is of another writer."""
    if summary.get(TAIL) != tail:
        return 0, 0
    return int(summary.get(FLOOR, "0")), int(summary.get(LEASE, "0"))


def table_floor(metadata: TableMetadata, tail: str) -> int:
    """The last frame of a tail that a snapshot of the table contains."""
    return max((flushed(_summary(one), tail)[0] for one in metadata.snapshots), default=0)


def snapshot_floor(metadata: TableMetadata, snapshot: int | None, tail: str) -> int:
    """The last frame of a tail that a snapshot contains, as it and its ancestors record."""
    head = metadata.snapshot_by_id(snapshot) if snapshot is not None else None
    return max((flushed(_summary(one), tail)[0] for one in ancestors(metadata, head)), default=0)


def check_fence(metadata: TableMetadata, lease: Lease) -> None:
    """Raise if a later holder of the lease has flushed."""
    tokens = (flushed(_summary(one), lease.state.id)[1] for one in metadata.snapshots)
    if max(tokens, default=0) > lease.token:
        raise lost(lease.name, lease.store.uri)


def _summary(snapshot: Snapshot) -> Mapping[str, str]:
    return snapshot.summary.additional_properties if snapshot.summary is not None else {}


@dataclass(frozen=True, slots=True)
class Recovery:
    """The unflushed part of a log."""

    frames: tuple[Frame, ...]
    floor: int
    """The last frame that is flushed."""
    last: int
    """The last frame; ``floor`` if nothing is unflushed."""
    segments: int
    size: int
    """Bytes of the segments."""
    torn: int
    """Bytes after the last good frame."""
    lost: int = 0
    """Frames that had been synced and are dropped."""


def inspect_log(folder: Path, state: TailState, metadata: TableMetadata) -> Recovery:
    """Read the unflushed part of a log, and change nothing."""
    floor = _floor(state, metadata)
    return _recovery(read_segments(folder, state.id, floor, state.durable), floor)


def _recovery(segments: Sequence[Segment], floor: int) -> Recovery:
    return Recovery(
        tuple(frame for segment in segments for frame in segment.read(floor)),
        floor,
        max(segments[-1].last if segments else floor, floor),
        len(segments),
        sum(segment.size for segment in segments),
        sum(segment.size - segment.good for segment in segments),
    )


def recover(lease: Lease, metadata: TableMetadata, *, drop: bool = False) -> Recovery:
    """Read the unflushed part of a log, cut off what is torn, and delete what is flushed or unfinished.

    With ``drop`` the log ends before the first damage to frames that had been synced.
    """
    folder, state = Path(lease.store.uri), lease.state
    floor = _floor(state, metadata)
    try:
        segments = read_segments(folder, state.id, floor, state.durable)
        recovery = _recovery(segments, floor)
    except CorruptFileError:
        if not drop:
            raise
        segments, recovery = _drop_damaged(lease, folder, floor)
    if floor > state.floor or state.intent is not None:
        # Before segments are deleted: snapshots can expire.
        lease.record(floor=floor)
    flushed_before = [one.path for one in segments if one.frames and one.last <= floor]
    for segment in segments:
        if segment.path not in flushed_before:
            cut(segment)
    # Only the holder of the lease writes here, so temporary files belong to processes that were killed.
    unfinished = folder.glob(".*.tmp")
    lease.store.delete(path.name for path in [*old_segments(folder, floor), *flushed_before, *unfinished])
    return recovery


def _drop_damaged(lease: Lease, folder: Path, floor: int) -> tuple[list[Segment], Recovery]:
    """The log up to the first damage; the files with the rest are kept under other names."""
    tail = lease.state.id
    durable = max(lease.state.durable, read_mark(folder, tail))
    segments, later = read_intact(folder, tail, floor)
    durable = max(durable, *(read_mark(folder, owner) for owner in owners(later)), 0)
    size = sum(set_aside(path, keep=False) for path in later)
    for one in segments:
        if one.good < one.size:
            set_aside(one.path, keep=True)
            size += one.size - one.good
    recovery = _recovery(segments, floor)
    # From here on, the log is whole.
    lease.store.write(MARK, [mark_of(tail, recovery.last)])
    lease.record(durable=recovery.last, lower=True)
    return segments, replace(recovery, torn=size, lost=max(durable - recovery.last, 0))


def _floor(state: TailState, metadata: TableMetadata) -> int:
    floor = max(state.floor, table_floor(metadata, state.id))
    intent = state.intent
    if intent is None or intent.last <= floor:
        return floor
    oldest: Snapshot | None = None
    for oldest in ancestors(metadata, metadata.current_snapshot()):
        if oldest.snapshot_id == intent.base:
            return floor
    # The first snapshot has number 1; when its parent expires, a snapshot can lose its reference to it.
    if intent.base is None and (oldest is None or oldest.sequence_number == 1):
        return floor
    raise ConflictError(
        f"can't determine whether frames {floor + 1} to {intent.last} were flushed: the snapshots since "
        f"{intent.base} have expired",
        path=state.table,
        hint=f"check whether the table has their rows, then remove checksum from {STATE}, and set intent to "
        f"null and floor to {intent.last} or to {floor}",
    )
