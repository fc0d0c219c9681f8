"""Rows that an engine has written to data files: their keys are read from these, then they are committed.

So rows of a Spark data frame never pass through this process; only their keys do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from skipstone.core.rows import RowSet
from skipstone.errors import UsageError
from skipstone.iceberg.writing.commit import check_properties
from skipstone.iceberg.writing.outcome import CommitState
from skipstone.iceberg.writing.target import NewFile
from skipstone.scan.execute import execute
from skipstone.scan.plan import Task
from skipstone.scan.planner import plan_whole_files
from skipstone.store.store import ListedFile
from skipstone.table.keys import Keys, repeated
from skipstone.table.locate import Located, locate
from skipstone.table.operations import duplicates, repetitions
from skipstone.table.publish import Commit, Outcome
from skipstone.table.report import RowCounts, WriteReport
from skipstone.table.write import opened
from skipstone.write.rows import choose_ingest_engine, open_rows
from skipstone.write.table_job import Publish, TableIngest, open_target, table_layout

if TYPE_CHECKING:
    from skipstone.scan.table import Table
    from skipstone.typing import DataLike, EngineLike
    from skipstone.write.overwrite import Overwrite


@dataclass(frozen=True, slots=True, eq=False)
class PutFiles:
    """Rows in new data files, to insert or to replace others."""

    name: str
    keys: Keys
    rows: pa.Table
    """The keys of all rows."""
    files: tuple[NewFile, ...]
    new: bool
    """Whether keys that are in the table are an error."""

    def search(self, table: Table, only: Collection[str] | None) -> Located:
        """Locate the keys."""
        return locate(table, self.rows, only)

    def outcome(self, located: Located) -> Outcome:
        """Replace the rows that have one of the keys."""
        if self.new and len(located):
            raise duplicates(self.keys, self.rows.take(pa.array(np.sort(located.keys))))
        return Outcome(RowCounts(len(self.rows) - len(located), len(located)), None, located)


def keyed_ingest(table: Table, how: Overwrite | None, branch: str) -> Publish:
    """Return the function that commits files of an ingest into a keyed table."""
    if how is not None or branch != "main":
        hint = "use the table's own methods: delete, append and upsert"
        what = "overwritten by an ingest" if how is not None else f"ingested into branch {branch}"
        raise UsageError(f"keyed table can't be {what}", path=table.name, hint=hint)
    # Refused before any file is written.
    opened(table)

    def publish(files: Sequence[NewFile], properties: Mapping[str, str], state: CommitState) -> int | None:
        return put_files(table.refresh(), files, "append", None, properties, state).snapshot

    return publish


def put_files(
    table: Table,
    files: Sequence[NewFile],
    name: str,
    token: str | None,
    properties: Mapping[str, str],
    state: CommitState,
) -> WriteReport:
    """Commit data files, and delete the rows that they replace; the files are deleted if that fails."""
    keys, target = opened(table)
    try:
        rows = read_keys(table, keys, files)
        again = repeated(keys.encode(rows))
        if len(again):
            raise repetitions(keys, rows.take(pa.array(again)))
    except BaseException:
        target.delete(files)
        raise
    change = PutFiles(name, keys, rows, tuple(files), name == "append")
    return Commit(table, change, token, properties, index=False, state=state).run()


def read_keys(table: Table, keys: Keys, files: Sequence[NewFile]) -> pa.Table:
    """Read the keys of files that are not committed yet."""
    plan = plan_whole_files(table, np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
    tasks = []
    for file in files:
        entry, every = ListedFile(file.path, file.bytes, None), RowSet.all(file.metrics.rows)
        tasks.append(Task(plan.files.path(entry), entry, every, every, {}))
    rows = execute(dataclasses.replace(plan, tasks=tuple(tasks)), keys.names).to_arrow()
    return keys.select(rows)


def write_frame(
    table: Table,
    data: DataLike,
    name: str,
    engine: EngineLike,
    token: str | None,
    properties: Mapping[str, str] | None,
) -> WriteReport:
    """Write a Spark data frame by Spark's tasks, and commit its files."""
    opened(table)
    choice = choose_ingest_engine(engine, None, None, data)
    reports: list[WriteReport] = []

    def publish(files: Sequence[NewFile], summary: Mapping[str, str], state: CommitState) -> int | None:
        reports.append(put_files(table.refresh(), files, name, token, summary, state))
        return reports[0].snapshot

    current = open_target(table)
    layout = table_layout(current, {})
    summary = check_properties(properties)
    work = TableIngest(current, layout, choice.reason, properties=summary, publish=publish)
    work.run(open_rows(data, choice.engine), table.pinned.storage_options)
    table.refresh()
    return reports[0]
