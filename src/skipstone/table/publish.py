"""Commits of keyed writes: new rows and position deletes as one snapshot, rebased after concurrent commits.

The rows of a write are located on the snapshot that its table is pinned to. If others have committed since,
only data files that they added, and files from which they deleted rows, are searched again: so rows that a
compaction has moved are located again, and keys that were inserted meanwhile are seen.
"""

from __future__ import annotations

import dataclasses
import secrets
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import StaticTable
from pyiceberg.table.snapshots import Operation

from skipstone.core.evidence import Array
from skipstone.errors import ConflictError, DuplicateKeyError, MissingFileError, SkipstoneError, UsageError
from skipstone.iceberg.deletes.match import DeleteIndex
from skipstone.iceberg.manifests.entries import Entries
from skipstone.iceberg.writing.commit import JOB, check_ancestor, publish, summaries
from skipstone.iceberg.writing.outcome import CommitState, note_interrupt
from skipstone.iceberg.writing.producer import Producer
from skipstone.iceberg.writing.target import NewFile, Target
from skipstone.parquet.write.files import sort_batch, write_files
from skipstone.parquet.write.layout import PageLayout
from skipstone.parquet.write.profile import profile
from skipstone.scan.table import Table
from skipstone.table.deletes import write_deletes
from skipstone.table.locate import Located
from skipstone.table.report import PREFIX, RowCounts, WriteReport, WriteSeconds
from skipstone.table.unique import KEY, check_unique, key_ids
from skipstone.write.rows import SAMPLE
from skipstone.write.table_job import table_layout

if TYPE_CHECKING:
    from pyiceberg.table import Table as IcebergTable

TOKEN: Final = f"{PREFIX}token"
"""The snapshot property with the idempotency token of a write."""


_GRANULARITY: Final = "write.delete.granularity"


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What a change does to one snapshot."""

    counts: RowCounts
    rows: pa.Table | None
    """Rows to add, in the types of the table's files; None for none."""
    gone: Located
    """Rows to delete."""


class Change(Protocol):
    """A write, independent of the snapshot that it is applied to."""

    @property
    def name(self) -> str:
        """Name of the operation."""

    @property
    def files(self) -> tuple[NewFile, ...]:
        """Data files that were written before, and are committed with the rows."""

    def search(self, table: Table, only: Collection[str] | None) -> Located:
        """Return the live rows that the change concerns, in some data files or in all."""

    def outcome(self, located: Located) -> Outcome:
        """Return what the change does, given the rows it concerns."""


Rebased = Callable[[Table, Located | None, Located], None]
"""Called with the new snapshot, and with the rows a write concerns in the old and the new one.

None instead of the old ones if these could not be located, since their snapshot had expired.
"""


@dataclass(eq=False)
class Commit:
    """Applies a change to a table, and commits it."""

    table: Table
    change: Change
    token: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    rebased: Rebased | None = None
    index: bool = True
    record: bool = True
    """Whether a write with a token is recorded if it changes nothing, so that a repeated one does nothing."""
    job: str = field(default_factory=lambda: secrets.token_hex(10))
    attempts: int = 0
    result: Outcome | None = None
    work: Producer | None = None
    repeated: tuple[int, RowCounts] | None = None
    spent: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("locate", "write", "commit", "index"), 0.0)
    )
    state: CommitState = field(default_factory=CommitState)

    located: Located | None = None
    """The rows that the change concerns in the snapshot of the last attempt."""
    _begun: set[str] = field(default_factory=set)
    _data: tuple[NewFile, ...] = ()
    _files: tuple[NewFile, ...] = ()
    _removed: frozenset[str] = frozenset()

    @property
    def outcome(self) -> Outcome:
        """What the last attempt does."""
        assert self.result is not None
        return self.result

    def run(self) -> WriteReport:
        """Find the rows, write the files, and commit them."""
        try:
            return self._run()
        except BaseException as error:
            if not self.state.sent:
                self._discard(self.change.files)
                self._discard_begun()
            note_interrupt(error, self.table.name, self.state)
            raise

    def _run(self) -> WriteReport:
        table = self.table
        check_current(table)
        # The change is for these columns; a flush moves the table, maybe to others.
        meant = table.metadata.schema()
        table.flush_tail()
        if self._is_repeated(table.table):
            self._discard(self.change.files)
            return self._report(None)
        if table.metadata.schema() != meant:
            raise _other_schema(table.name)
        target = Target.of(table.table, options=table.pinned.storage_options)
        self.target = dataclasses.replace(target, begun=self._begun)
        self.layout = table_layout(table.table, {})
        self.head, self.schema = table, table.table.metadata.schema()
        self._first()
        if self._is_done:
            return self._report(None)
        start = time.perf_counter()
        self.work = Producer(
            table.table,
            self.target,
            self._files,
            self._removed,
            self._summary(),
            "main",
            self._operation,
            schema=self.schema.schema_id,
            allow_empty=True,
            state=self.state,
        )
        before = self.spent["locate"] + self.spent["write"]
        number = publish(self.work, lambda: None, self._rebase)
        again = self.spent["locate"] + self.spent["write"] - before
        self.spent["commit"] = time.perf_counter() - start - again
        table.refresh()
        return self._report(number, self._index() if number is not None else "")

    @property
    def _is_done(self) -> bool:
        """Whether there is nothing to commit."""
        return not self._files and not self._removed and not (self.record and self.token)

    # -- attempts ----------------------------------------------------------------------------

    def _first(self) -> None:
        """Prepare the first attempt; what an old snapshot would end is decided by the newest one."""
        try:
            check_unique(self.table)
            self.located = self._timed("locate", lambda: self.change.search(self.table, None))
            self._prepare()
        except (DuplicateKeyError, MissingFileError):
            if not self._advance():
                raise
        if not self._files and not self._removed:
            self._advance()

    def _advance(self) -> bool:
        """Prepare again on the newest snapshot; return False if that is the one that was prepared."""
        current = self.table.pinned.latest().table
        number = current.metadata.current_snapshot()
        if (None if number is None else number.snapshot_id) == self.head.snapshot:
            return False
        self._rebase(current)
        return True

    def _rebase(self, current: IcebergTable) -> bool:
        """Prepare an attempt on the current snapshot; return whether nothing is left to do."""
        if self._is_repeated(current):
            return True
        head, name = current.metadata.current_snapshot(), self.table.name
        if current.metadata.schema() != self.schema:
            raise _other_schema(name)
        if (None if head is None else head.snapshot_id) == self.head.snapshot:
            return False
        is_expired = self._is_expired(current)
        if self.head.snapshot is not None and not is_expired:
            check_ancestor(current, self.head.snapshot, head, name)
        now = self.table.following(current)
        check_unique(now)
        before = self.located
        self.located = self._timed("locate", lambda: self._relocated(now, None if is_expired else before))
        if self.rebased is not None:
            self.rebased(now, before, self.located)
        self.head = now
        # Files can be of specs that are newer than the target.
        self.target = dataclasses.replace(self.target, specs=now.metadata.specs())
        old = self._files
        self._prepare()
        # The attempt has certainly failed, so its delete files, and rows that differ now, are not needed.
        left = {file.path for file in self._files}
        self._discard([file for file in old if file.path not in left])
        if self.work is not None:
            self.work.files, self.work.removed = self._files, self._removed
            self.work.properties, self.work.operation = self._summary(), self._operation
        return self._is_done

    def _is_expired(self, current: IcebergTable) -> bool:
        """Whether another process has removed the snapshot that the last attempt was prepared on."""
        base = self.head.snapshot
        return base is not None and current.metadata.snapshot_by_id(base) is None

    def _relocated(self, now: Table, before: Located | None) -> Located:
        """The rows that the change concerns in a later snapshot."""
        if before is not None:
            # The snapshot can expire at any moment.
            with suppress(MissingFileError):
                return relocate(self.change, self.head, now, before)
        return self.change.search(now, None)

    def _prepare(self) -> None:
        """Write the files of an attempt; data files are written again only if their rows differ."""
        assert self.located is not None
        self.attempts += 1
        before = self.result
        self.result = self.change.outcome(self.located)
        rows = self.result.rows
        if before is None or not _same(before.rows, rows):
            self._data = self._timed("write", lambda: self._write(rows))
        deletes = self._timed("write", self._write_deletes)
        self._files = (*self.change.files, *self._data, *deletes)

    def _write_deletes(self) -> list[NewFile]:
        """Write position deletes, except for data files that lose all rows, which are dropped."""
        gone = self.outcome.gone
        entries, whole = self._whole_files(gone)
        self._removed = frozenset(entries.paths.filter(pa.array(whole)).to_pylist())
        owners = np.unique(gone.files, return_inverse=True)[1]
        left = ~whole[owners]
        return write_deletes(
            self.target, entries, owners[left], gone.positions[left], self.job, by_file=self._by_file
        )

    @property
    def _by_file(self) -> bool:
        properties = self.table.metadata.properties
        return properties.get(_GRANULARITY, "partition").lower() == "file"

    def _whole_files(self, gone: Located) -> tuple[Entries, Array]:
        """The data files of deleted rows, and which of them lose all their rows."""
        numbers, counts = np.unique(gone.files, return_counts=True)
        entries = self.head.inventory.take(numbers)
        live = entries.rows.copy()
        for at in np.flatnonzero(counts * 2 > entries.rows).tolist():
            deleted = self.head.pinned.deletions([int(numbers[at])]).rows.get(int(numbers[at]))
            live[at] -= 0 if deleted is None else len(deleted)
        return entries, counts >= live

    def _write(self, rows: pa.Table | None) -> tuple[NewFile, ...]:
        if rows is None or not rows.num_rows:
            return ()
        layout: PageLayout = self.layout
        ordered = sort_batch(rows, layout)
        shape = profile(ordered.slice(0, SAMPLE), layout)
        files = write_files(
            ordered.to_batches(),
            self.target.store,
            self.job,
            secrets.token_hex(4),
            dataclasses.replace(layout, cluster_by=(), cluster="sort"),
            shape,
            shape=self.target,
        )
        return tuple(map(self.target.new_file, files))

    @property
    def _operation(self) -> Operation:
        only_new = not len(self.outcome.gone)
        return Operation.APPEND if only_new else Operation.OVERWRITE if self._added else Operation.DELETE

    @property
    def _added(self) -> bool:
        return any(file.content == 0 for file in self._files)

    def _summary(self) -> dict[str, str]:
        token = {} if self.token is None else {TOKEN: self.token}
        own = {f"{PREFIX}operation": self.change.name, KEY: key_ids(self.table), JOB: self.job}
        return {**self.properties, **own, **token, **self.outcome.counts.properties()}

    def _is_repeated(self, table: IcebergTable) -> bool:
        if self.token is None:
            return False
        for number, summary in summaries(table):
            if summary.get(TOKEN) == self.token:
                self.repeated = number, RowCounts.of(summary)
                return True
        return False

    def _discard(self, files: Collection[NewFile]) -> None:
        # Files that can't be deleted stay invisible.
        if files:
            with suppress(SkipstoneError):
                Target.of(self.table.table, options=self.table.pinned.storage_options).delete(files)

    def _discard_begun(self) -> None:
        if self._begun:
            with suppress(SkipstoneError):
                self.target.store.delete(sorted(self._begun))

    # -- the report --------------------------------------------------------------------------

    def _timed(self, phase: str, work: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        try:
            return work()
        finally:
            self.spent[phase] += time.perf_counter() - start

    def _index(self) -> str:
        """Index the new files if the table has an index; an error is returned: the rows are committed."""
        try:
            if self.index and self.table.index.coverage is not None:
                self._timed("index", lambda: self.table.index.refresh(engine="local"))
        except SkipstoneError as error:
            return str(error)
        return ""

    def _report(self, number: int | None, problem: str = "") -> WriteReport:
        common = partial(WriteReport, self.table.name, self.change.name, attempts=max(self.attempts, 1))
        seconds = WriteSeconds(**self.spent)
        if self.repeated is not None:
            if self.table.snapshot != self.repeated[0]:
                self.table.refresh()
            snapshot, counts = self.repeated
            return common(counts, snapshot, repeated=True, seconds=seconds)
        return common(
            self.outcome.counts,
            number,
            files=sum(file.content == 0 for file in self._files),
            delete_files=sum(file.content == 1 for file in self._files),
            bytes=sum(file.bytes for file in self._files),
            seconds=seconds,
            index_problem=problem,
        )


def check_current(table: Table) -> None:
    """Refuse to write to a table that is pinned to an old snapshot, a branch or a tag."""
    if table.pinned.reference is not None:
        problem = f"table was opened at snapshot {table.pinned.reference}"
        raise UsageError(problem, path=table.name, hint="open the table without snapshot= to write to it")
    if isinstance(table.table, StaticTable):
        problem = "table opened from a metadata file is read-only"
        raise UsageError(problem, path=table.name, hint="open the table by its name in a catalog")


def _other_schema(name: str) -> ConflictError:
    hint = "open the table again, and repeat the write"
    return ConflictError("schema was changed by another commit", path=name, hint=hint)


def _same(one: pa.Table | None, other: pa.Table | None) -> bool:
    if one is None or other is None:
        return one is other
    return one is other or bool(one.equals(other))


# -- concurrent commits ------------------------------------------------------------------------


def relocate(change: Change, base: Table, head: Table, located: Located) -> Located:
    """Return the rows that a change concerns in a later snapshot, searching only what has changed."""
    before, _ = base.inventory.everything
    after, numbers = head.inventory.everything
    new = ~np.asarray(pc.is_in(after.paths, value_set=before.paths))
    touched = touched_files(base, head, after)
    again = after.paths.filter(pa.array(new | touched)).to_pylist()
    # Of the rows that were located, those in files that are as they were.
    own = base.inventory.take(np.unique(located.files)).paths
    at = pc.index_in(own, value_set=after.paths).fill_null(-1).to_numpy(zero_copy_only=False)
    at = np.where((at >= 0) & ~touched[at], numbers[at], -1) if len(after) else np.full(len(own), -1)
    moved = at[np.searchsorted(np.unique(located.files), located.files)]
    left = located.take(np.flatnonzero(moved >= 0))
    left = dataclasses.replace(left, files=moved[moved >= 0])
    found = change.search(head, again)
    return joined(left, dict(zip(np.unique(located.files).tolist(), at.tolist(), strict=True)), found)


def touched_files(base: Table, head: Table, files: Entries) -> Array:
    """Mask of the data files from which rows were deleted since the base, or to which deletes were undone."""
    known, now = base.delete_inventory.everything[0], head.delete_inventory.everything[0]
    changed = np.zeros(len(files), dtype=bool)
    for one, other in ((now, known), (known, now)):
        different = one.take(np.flatnonzero(~np.asarray(pc.is_in(one.paths, value_set=other.paths))))
        if len(different) and len(files):
            changed |= DeleteIndex.of(different).match(files, head.file_facts).touched
    return changed


def joined(left: Located, numbers: Mapping[int, int], found: Located) -> Located:
    """Join rows of a former snapshot, whose files have new ``numbers``, with rows of the current one."""
    former = [
        dataclasses.replace(task, number=numbers[task.number])
        for task in left.plan.tasks
        if numbers.get(task.number, -1) >= 0
    ]
    tasks = {task.number: task for task in (*former, *found.plan.tasks)}
    plan = found.plan.changed(tasks=tuple(task for _, task in sorted(tasks.items())))
    keys, files, positions = (
        np.concatenate([getattr(left, name), getattr(found, name)]) for name in ("keys", "files", "positions")
    )
    order = np.lexsort((positions, files))
    return Located(keys[order], files[order], positions[order], plan)
