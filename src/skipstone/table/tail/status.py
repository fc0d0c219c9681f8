"""What is in the tail of a table, read beside its writer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from skipstone.errors import CorruptFileError, WriteError
from skipstone.report import Reported
from skipstone.table.tail.lease import TailState, is_held, read_state
from skipstone.table.tail.location import check_own, tail_store
from skipstone.table.tail.recovery import Recovery, inspect_log
from skipstone.table.tail.wal import Kind

if TYPE_CHECKING:
    from skipstone.scan.table import Table

_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class TailStatus(Reported):
    """The unflushed writes of a keyed table, from [Table.tail_status][skipstone.Table.tail_status].

    Examples:
        >>> import skipstone as sk
        >>> status = sk.open("db.events", catalog="warehouse").tail_status()
        >>> status.calls, status.open, status.last
        (0, False, 0)
    """

    view = "skipstone.table.views:tail_tree"

    table: str
    path: str
    """The directory of the tail, which need not exist."""
    open: bool
    """Whether a process writes to it."""
    holder: str | None
    """The process that writes to it, or was the last to do so."""
    calls: int = 0
    """Unflushed calls of ``upsert`` and ``delete``."""
    rows: int = 0
    """Rows in these calls, including versions that later calls replace."""
    deletes: int = 0
    """Deleted keys in these calls."""
    floor: int = 0
    """Number of the last call that is flushed."""
    last: int = 0
    """Number of the last call."""
    segments: int = 0
    """Files of the write-ahead log with unflushed calls."""
    size: int = 0
    """Bytes of these files."""
    torn: int = 0
    """Bytes of calls that are not whole, and had not been synced: the next writer drops them. With
    ``on_damage="drop"`` it counts all damaged calls."""
    lost: int = 0
    """Calls that had been synced, and that a writer opened with ``on_damage="drop"`` has dropped."""


def tail_status(table: Table) -> TailStatus:
    """Inspect the tail of a table, and change nothing."""
    store = tail_store(table.metadata, table.name, table.pinned.access.store)
    check_own(store, table.metadata)
    for left in reversed(range(_TRIES)):
        held, state = is_held(store), read_state(store)
        if state is None:
            return TailStatus(table.name, store.uri, held, None)
        try:
            log = inspect_log(Path(store.uri), state, table.metadata)
        except (CorruptFileError, WriteError):
            # A writer can delete segments while they are read.
            if held and left:
                continue
            raise
        return status_of(table.name, store.uri, state, log, held=held)
    raise AssertionError


def status_of(name: str, path: str, state: TailState, log: Recovery, *, held: bool) -> TailStatus:
    """The status of a log that was read; the last frame of one that is ``held`` can be half written."""
    counts = {kind: sum(len(one.rows) for one in log.frames if one.kind is kind) for kind in Kind}
    return TailStatus(
        table=name,
        path=path,
        open=held,
        holder=None if state.holder is None else str(state.holder),
        calls=len(log.frames),
        rows=counts[Kind.ROWS],
        deletes=counts[Kind.KEYS],
        floor=log.floor,
        last=log.last,
        segments=log.segments,
        size=log.size,
        torn=0 if held else log.torn,
        lost=log.lost,
    )
