"""What is in the tail of a table, read beside its writer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from skipstone.errors import CorruptFileError, WriteError
from skipstone.report import Reported
from skipstone.table.tail.lease import is_held, read_state
from skipstone.table.tail.location import tail_store
from skipstone.table.tail.recovery import inspect_log
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
    """Bytes of a call that was being written when its process ended; the next writer cuts them off."""


def tail_status(table: Table) -> TailStatus:
    """Inspect the tail of a table, and change nothing."""
    store = tail_store(table.metadata, table.name)
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
        counts = {kind: sum(len(one.rows) for one in log.frames if one.kind is kind) for kind in Kind}
        return TailStatus(
            table=table.name,
            path=store.uri,
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
        )
    raise AssertionError
