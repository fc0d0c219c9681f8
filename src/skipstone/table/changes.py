"""Rows that differ between two snapshots, by key.

Only data files that one snapshot has and the other lacks are read, and rows that were deleted from others.
Rows that a compaction has moved are on both sides, with the same values.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.evidence import Array
from skipstone.errors import UsageError
from skipstone.report import Reported
from skipstone.scan.execute import execute
from skipstone.scan.plan import ScanPlan, Task
from skipstone.scan.planner import plan_whole_files
from skipstone.table.compare import equal_rows
from skipstone.table.keys import Keys, KeySet
from skipstone.table.overlay import OverlayTable
from skipstone.table.publish import touched_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from skipstone.scan.table import Table
    from skipstone.typing import SnapshotLike

CHANGE: Final = "_change"
"""The column of ``to_arrow`` that says what happened to a row."""


@dataclass(frozen=True, eq=False)
class TableChanges(Reported):
    """The rows that differ between two snapshots; ``Table.changes`` returns it.

    Examples:
        >>> import pyarrow as pa
        >>> import skipstone as sk
        >>> table = sk.open("db.accounts", catalog="warehouse")
        >>> before = table.snapshot
        >>> _ = table.upsert(pa.table({"id": [2, 4], "v": [21, 40]}))
        >>> changes = table.changes(before)
        >>> changes.before["v"].to_pylist(), changes.updated["v"].to_pylist()
        ([20], [21])
    """

    view: ClassVar[str] = "skipstone.table.views:changes_tree"

    table: str
    start: int | None
    """The earlier snapshot; None for the empty table."""
    end: int | None
    """The later snapshot."""
    inserted: pa.Table
    """Rows whose key only the later snapshot has."""
    updated: pa.Table
    """New versions of rows that differ."""
    before: pa.Table
    """Old versions of these rows, in the same order."""
    deleted: pa.Table
    """Rows whose key only the earlier snapshot has."""
    unflushed: int = 0
    """Rows that the tail of the table inserts, replaces or deletes, which is part of the later state."""

    def __len__(self) -> int:
        return len(self.inserted) + len(self.updated) + len(self.deleted)

    def __bool__(self) -> bool:
        return True

    @cached_property
    def _rows(self) -> pa.Table:
        parts = {"insert": self.inserted, "update": self.updated, "delete": self.deleted}
        return pa.concat_tables(
            rows.append_column(CHANGE, pa.array([name] * len(rows), pa.string()))
            for name, rows in parts.items()
        )

    def to_arrow(self) -> pa.Table:
        """Return all rows with a column ``_change``: ``insert``, ``update`` (new version) or ``delete``."""
        return self._rows

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._rows.__arrow_c_stream__(requested_schema)

    def to_spark(self, spark: SparkSession | None = None) -> DataFrame:
        """Return the rows of ``to_arrow`` as a Spark data frame."""
        from skipstone.write.frame import to_frame

        return to_frame(self._rows, spark)

    def to_json(self) -> dict[str, Any]:
        """Return the snapshots that were compared, and the number of rows by what happened to them."""
        counts = {name: len(getattr(self, name)) for name in ("inserted", "updated", "deleted")}
        return {
            "table": self.table,
            "start": self.start,
            "end": self.end,
            **counts,
            "unflushed": self.unflushed,
        }


def table_changes(table: Table, start: SnapshotLike | None, end: Table | OverlayTable) -> TableChanges:
    """Compare a snapshot with a later one, or with one and its tail, as ``Table.changes`` documents."""
    keys = Keys.of(table)
    later = end.base if isinstance(end, OverlayTable) else end
    earlier = None if start is None else table.at(start)
    if earlier is not None and earlier.schema != later.schema:
        hint = "compare snapshots with the same schema, or scan both"
        raise UsageError("schema was changed between the snapshots", path=table.name, hint=hint)
    old, new = _difference(earlier, later)
    schema = later.schema
    old, new = (pa.table(rows.columns, schema=schema) for rows in (old, new))
    unflushed = 0
    if isinstance(end, OverlayTable):
        hidden, added = (pa.table(rows.columns, schema=schema) for rows in _uncommitted(end))
        unflushed = len(added) + int((KeySet(keys.encode(added)).find(keys.encode(hidden)) < 0).sum())
        # What is hidden was either changed since the earlier snapshot, or is in both.
        is_old = KeySet(keys.encode(new)).find(keys.encode(hidden)) < 0
        old = pa.concat_tables([old, hidden.filter(pa.array(is_old))])
        is_left = KeySet(keys.encode(hidden)).find(keys.encode(new)) < 0
        new = pa.concat_tables([new.filter(pa.array(is_left)), added])
    # The new version of each old row, if it has one.
    at = KeySet(keys.encode(new)).find(keys.encode(old))
    both = np.flatnonzero(at >= 0)
    before, after = old.take(pa.array(both)), new.take(pa.array(at[both]))
    differs = np.flatnonzero(~equal_rows(before, after))
    only_new = np.ones(len(new), dtype=bool)
    only_new[at[both]] = False
    return TableChanges(
        table.name,
        None if earlier is None else earlier.snapshot,
        later.snapshot,
        inserted=new.filter(pa.array(only_new)),
        updated=after.take(pa.array(differs)),
        before=before.take(pa.array(differs)),
        deleted=old.filter(pa.array(at < 0)),
        unflushed=unflushed,
    )


def _uncommitted(view: OverlayTable) -> tuple[pa.Table, pa.Table]:
    """The rows of the snapshot that are hidden, and those in memory."""
    hidden, layers = view.hidden, view.layers
    entries, numbers = view.base.inventory.everything
    chosen = np.asarray(pc.is_in(entries.paths, value_set=pa.array(list(hidden), entries.paths.type)))
    plan = plan_whole_files(view.base, numbers[chosen], entries.rows[chosen])
    tasks = []
    for task in plan.tasks:
        rows = task.rows & hidden[task.entry.key]
        tasks.append(replace(task, rows=rows, proven=rows))
    first = len(view.base.entries)
    memory = np.arange(first, first + len(layers))
    added = plan_whole_files(view, memory, np.array([layer.file.rows for layer in layers], dtype=np.int64))
    return execute(plan.changed(tasks=tuple(tasks))).to_arrow(), execute(added).to_arrow()


def _difference(earlier: Table | None, later: Table) -> tuple[pa.Table, pa.Table]:
    """The rows that only the earlier snapshot has, and those that only the later one has."""
    after, numbers = later.inventory.everything
    if earlier is None:
        plan = plan_whole_files(later, numbers, after.rows)
        return pa.Table.from_batches([], later.schema), execute(plan).to_arrow()
    before, old_numbers = earlier.inventory.everything
    # Files of both snapshots matter only if deletes of one of them apply.
    lost = _missing(before.paths, after.paths) | touched_files(earlier, later, before)
    new = _missing(after.paths, before.paths) | touched_files(earlier, later, after)
    old_plan = plan_whole_files(earlier, old_numbers[lost], before.rows[lost])
    new_plan = plan_whole_files(later, numbers[new], after.rows[new])
    return (
        execute(_without(old_plan, new_plan)).to_arrow(),
        execute(_without(new_plan, old_plan)).to_arrow(),
    )


def _missing(paths: pa.Array, others: pa.Array) -> Array:
    return ~np.asarray(pc.is_in(paths, value_set=others))


def _without(plan: ScanPlan, other: ScanPlan) -> ScanPlan:
    """The plan without the rows of files that the other plan has too."""
    theirs = {task.entry.key: task for task in other.tasks}
    tasks: list[Task] = []
    for task in plan.tasks:
        twin = theirs.get(task.entry.key)
        # Rows deleted by their values are not in row sets, so such files are compared by their rows.
        if twin is None or task.deleted or twin.deleted:
            tasks.append(task)
        elif not (rows := task.rows - twin.rows).is_empty:
            tasks.append(replace(task, rows=rows, proven=rows))
    return plan.changed(tasks=tuple(tasks))
