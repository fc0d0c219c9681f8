"""Tags, branches and rollbacks of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from skipstone.errors import UsageError
from skipstone.iceberg.catalogs import catalog_errors
from skipstone.iceberg.metadata import ancestors
from skipstone.iceberg.writing.outcome import CommitState, settled

if TYPE_CHECKING:
    from skipstone.scan.table import Table
    from skipstone.typing import SnapshotLike


def create_ref(table: Table, name: str, snapshot: SnapshotLike | None, kind: str) -> None:
    """Create a tag or a branch at a snapshot, or at what the table object shows."""
    if snapshot is None:
        table.flush_tail()
    number = snapshot_id(table, snapshot)
    if name in table.metadata.refs:
        raise UsageError(
            f"{name!r} already exists", path=table.name, hint="drop it first, or use another name"
        )
    if not name or name.isdecimal():
        hint = "use a name that is not a number, which would be a snapshot id"
        raise UsageError(f"invalid name {name!r}", path=table.name, hint=hint)
    with _committing(table, lambda: name in table.table.metadata.refs):
        update = table.table.manage_snapshots()
        made = update.create_tag(number, name) if kind == "tag" else update.create_branch(number, name)
        made.commit()
    table.refresh()


def drop_ref(table: Table, name: str) -> None:
    """Drop a tag or a branch."""
    ref = table.metadata.refs.get(name)
    if ref is None or name == "main":
        problem = "branch main can't be dropped" if name == "main" else f"unknown tag or branch {name!r}"
        raise UsageError(problem, path=table.name, hint=f"available: {_others(table)}")
    with _committing(table, lambda: name not in table.table.metadata.refs):
        update = table.table.manage_snapshots()
        made = update.remove_tag(name) if ref.snapshot_ref_type == "tag" else update.remove_branch(name)
        made.commit()
    table.refresh()


@contextmanager
def _committing(table: Table, has_landed: Callable[[], bool]) -> Iterator[None]:
    """Convert errors of a commit, and say what interrupts of it have left."""
    state = CommitState()
    state.send()
    with (
        catalog_errors(table.table.catalog, table.name),
        settled(table.table, table.name, state, has_landed),
    ):
        yield


def _others(table: Table) -> str:
    return ", ".join(sorted(set(table.metadata.refs) - {"main"})) or "none"


def rollback(table: Table, snapshot: SnapshotLike) -> None:
    """Make an ancestor of the current snapshot the current one."""
    number = snapshot_id(table, snapshot)
    line = {one.snapshot_id for one in ancestors(table.metadata, table.metadata.current_snapshot())}
    if number not in line:
        hint = "choose an ancestor of the current snapshot: table.snapshots()"
        raise UsageError(f"snapshot {number} is not an ancestor", path=table.name, hint=hint)
    # Unflushed rows would survive.
    table.flush_tail()
    with _committing(table, lambda: table.table.metadata.current_snapshot_id == number):
        table.table.manage_snapshots().rollback_to_snapshot(number).commit()
    table.refresh()


def snapshot_id(table: Table, snapshot: SnapshotLike | None) -> int:
    """Return the id of a snapshot, branch, tag or time; None is the pinned snapshot."""
    number = table.snapshot if snapshot is None else table.at(snapshot).snapshot
    if number is None:
        raise UsageError("table has no snapshot", path=table.name, hint="write rows first")
    return number
