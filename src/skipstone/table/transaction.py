"""Transactions: several writes to a keyed table that become visible together, or not at all.

A transaction reads the snapshot at which it began, with its own writes over it. These stay in memory until it
is committed, so that nothing is left of one that is not. The commit fails if another one has changed a row of
the same key since: the first committer wins. Rows are compared by keys and values, not by files, so that a
compaction neither hides a conflict nor is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, Self, cast

import numpy as np
import pyarrow as pa

from skipstone.core.evidence import Array
from skipstone.core.filter import fix_clock
from skipstone.errors import ConflictError, MissingFileError, UsageError
from skipstone.iceberg.writing.commit import check_properties
from skipstone.iceberg.writing.outcome import CommitState, interrupts_noted, note_interrupt
from skipstone.predicate import predicate as to_predicate
from skipstone.report import PublicNames
from skipstone.report.units import plural
from skipstone.scan.scan import Scan
from skipstone.table.compare import equal_rows
from skipstone.table.get import get, get_many
from skipstone.table.keys import last_of_each
from skipstone.table.locate import Located
from skipstone.table.operations import Assignments, Delete, Put, Update, check_distinct, stored
from skipstone.table.publish import Change, check_current
from skipstone.table.report import RowCounts, WriteReport
from skipstone.table.tail.memtable import Memtable, merge, of_frame
from skipstone.table.tail.view import TailView
from skipstone.table.tail.wal import Kind
from skipstone.table.unique import check_unique
from skipstone.table.write import merge_of, opened, put, to_rows

if TYPE_CHECKING:
    from types import TracebackType

    from skipstone.scan.options import ScanOptions
    from skipstone.scan.table import Table
    from skipstone.typing import DataLike, KeysLike, MergeAction, OrderLike, PredicateLike, SemiJoinLike

NAME: Final = "transaction"
"""What explanations and snapshots call the writes."""
_AGAIN: Final = "run the transaction again"


class Transaction(PublicNames):
    """Writes that are committed as one snapshot; [Table.transaction][skipstone.Table.transaction] begins it.

    Reads see the snapshot at which the transaction began, and its own writes, which others don't see before
    the commit. A ``with`` block commits at its end, and rolls back after an error. Writes are kept in memory.
    A transaction must not be used by several threads at once.

    Attributes:
        report: What the commit did; None before it.

    Examples:
        >>> import skipstone as sk
        >>> table = sk.open("db.accounts", catalog="warehouse")
        >>> with table.transaction() as tx:
        ...     _ = tx.update("id = 1", {"v": "v - 5"})
        ...     _ = tx.update("id = 2", {"v": "v + 5"})
        ...     tx.get(2), table.get(2)
        ({'id': 2, 'v': 25}, {'id': 2, 'v': 20})
        >>> tx.report.updated, table.get(2)
        (2, {'id': 2, 'v': 25})
    """

    report: WriteReport | None

    def __init__(self, table: Table, token: str | None, properties: Mapping[str, str] | None) -> None:
        check_current(table)
        # The transaction does not see unflushed rows.
        table.flush_tail()
        table.refresh()
        self._table = table
        # Neither refreshes of the table nor its other writes move the snapshot of the transaction.
        self._base = table.detached()
        self._keys, self._target = opened(self._base)
        check_unique(self._base)
        self._staged = Memtable(self._keys, self._target.schema, 1)
        self._views = TailView(NAME)
        self._token, self._properties = token, check_properties(properties)
        self._ended = ""
        self.report = None

    # -- writes --------------------------------------------------------------------------------

    def append(self, data: DataLike) -> RowCounts:
        """Insert rows; a key that exists, or occurs twice, is a DuplicateKeyError, and nothing is inserted.

        Args:
            data: The rows; missing columns are NULL.
        """
        self._check()
        rows = to_rows(data, self._target, self._keys)
        check_distinct(self._keys, rows)
        return self._stage(Put("append", self._keys, self._target, rows, compare=False, new=True))

    def upsert(self, data: DataLike) -> RowCounts:
        """Insert rows, or replace those with the same keys; of several rows with one key the last wins.

        Args:
            data: The rows; missing columns are NULL.
        """
        self._check()
        rows = to_rows(data, self._target, self._keys)
        last = last_of_each(self._keys.encode(rows))
        rows = rows if len(last) == len(rows) else rows.take(pa.array(last))
        return self._stage(Put("upsert", self._keys, self._target, rows, compare=False))

    def delete(self, where: PredicateLike = None, *, keys: KeysLike | None = None) -> RowCounts:
        """Delete rows by a condition or by key; keys that don't exist are ignored.

        Args:
            where: SQL text, or any predicate that ``sk.predicate`` accepts.
            keys: A key, or several: ``3``, ``[3, 4]``, ``[("EU", 3)]``, an Arrow array or a table.
        """
        self._check()
        if (where is None) == (keys is None):
            hint = 'pass where="..." or keys=[...]'
            raise UsageError("delete needs a condition or keys", path=self._table.name, hint=hint)
        if keys is None:
            return self._stage(Delete(fix_clock(to_predicate(where))))
        gone = self._keys.parse(keys)
        gone = gone.take(pa.array(last_of_each(self._keys.encode(gone))))
        none = self._target.schema.empty_table()
        return self._stage(Put("delete", self._keys, self._target, none, gone, compare=False))

    def update(self, where: PredicateLike, values: Mapping[str, Any]) -> RowCounts:
        """Set columns of the rows that match a condition.

        Args:
            where: SQL text, or any predicate that ``sk.predicate`` accepts; None for all rows.
            values: New values by column. Text is an SQL expression over the columns of the row, as in
                ``{"v": "v + 1"}``; all other values, and ``sk.lit("text")``, are constants.
        """
        self._check()
        assignments = Assignments.of(values, self._keys, self._target.schema)
        condition = None if where is None else fix_clock(to_predicate(where))
        return self._stage(Update(condition, assignments, self._target))

    def merge(
        self,
        data: DataLike,
        on: Sequence[str] | str | None = None,
        *,
        when_matched: MergeAction | Sequence[tuple[PredicateLike, MergeAction]] = "update",
        when_not_matched: Literal["insert", "ignore"] = "insert",
    ) -> RowCounts:
        """Merge rows of a source.

        Args:
            data: The source; it can have other columns than the table, but must have the key.
            on: The columns to match by, which are those of the key.
            when_matched: What happens to a row whose key is in the source: an action, or pairs of a condition
                and an action, as [Table.merge][skipstone.Table.merge] documents them.
            when_not_matched: What happens to the other rows of the source: ``"insert"`` or ``"ignore"``.
        """
        self._check()
        return self._stage(merge_of(data, on, when_matched, when_not_matched, self._keys, self._target))

    def _stage(self, change: Change) -> RowCounts:
        """Apply a change to what the transaction sees, and keep the result in memory."""
        outcome = change.outcome(change.search(self._current(), None))
        frames: list[tuple[Kind, pa.Table]] = []
        if outcome.counts.deleted:
            # Among them are old versions of new rows, which come later and win.
            frames.append((Kind.KEYS, outcome.gone.read(self._keys.names)))
        if outcome.rows is not None and len(outcome.rows):
            frames.append((Kind.ROWS, outcome.rows))
        if frames:
            batches = [(kind, rows.combine_chunks().to_batches()[0]) for kind, rows in frames]
            parts = [of_frame(self._keys, self._target.schema, kind, batch) for kind, batch in batches]
            self._staged.put(self._staged.last + 1, merge(parts))
        return outcome.counts

    # -- reads ---------------------------------------------------------------------------------

    def scan(
        self,
        where: PredicateLike = None,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        order_by: OrderLike | None = None,
        *,
        semi_join: SemiJoinLike | None = None,
        options: ScanOptions | None = None,
    ) -> Scan:
        """Return a scan of the rows that the transaction sees; later writes don't change it.

        Args:
            where: SQL text, or any predicate that ``sk.predicate`` accepts.
            columns: Columns of the result: names, fields of structs, and SQL expressions; None for all.
            limit: The maximum number of rows.
            order_by: Columns to order by, as in ``["country", "ts desc"]``.
            semi_join: A column and its values: only rows with one of the values match.
            options: Options of the scan; [Lake.scan][skipstone.Lake.scan] documents them.
        """
        self._check()
        return self._current().scan(where, columns, limit, order_by, semi_join=semi_join, options=options)

    def get(self, key: KeysLike, columns: Sequence[str] | None = None) -> dict[str, Any] | None:
        """Return the row of a key; None if there is none.

        Args:
            key: The key: a value, a tuple with one value per key column, or a mapping by column.
            columns: Columns of the result; None for all.
        """
        self._check()
        return get(self._current(), key, columns)

    def get_many(self, keys: KeysLike, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows of keys, in the order of the keys; keys without a row are left out.

        Args:
            keys: A list of keys, an Arrow array, or a table.
            columns: Columns of the result; None for all.
        """
        self._check()
        return get_many(self._current(), keys, columns)

    def _current(self) -> Table:
        """The snapshot, with the writes so far."""
        parts = self._staged.parts()
        # An overlay has all that reading by key needs of a table.
        return cast("Table", self._views.of(self._base, parts)) if parts else self._base

    # -- the end -------------------------------------------------------------------------------

    def commit(self) -> WriteReport:
        """Commit all writes as one snapshot, to which the table moves, and end the transaction.

        Raises:
            ConflictError: If another commit has changed a row with one of the keys since the transaction
                began. Nothing is written then.
        """
        self._check()
        state = CommitState()
        with interrupts_noted(self._table.name, state):
            return self._commit(state)

    def _commit(self, state: CommitState) -> WriteReport:
        self._ended = "was committed"
        self._table.flush_tail()
        if not len(self._staged):
            self.report = WriteReport(table=self._table.name, operation=NAME, rows=RowCounts(), snapshot=None)
            return self.report
        versions = self._staged.versions()
        try:
            self.report = put(
                self._base,
                versions.upserts(),
                versions.deletes(self._keys.names),
                name=NAME,
                token=self._token,
                properties=self._properties,
                rebased=self._check_conflicts,
                state=state,
            )
        except BaseException:
            self._ended = "has failed"
            raise
        finally:
            self._release()
        self._table.refresh()
        return self.report

    def rollback(self) -> None:
        """Forget all writes, and end the transaction."""
        self._check()
        self._ended = "was rolled back"
        self._release()

    def _release(self) -> None:
        self._staged = Memtable(self._keys, self._target.schema, 1)
        self._views = TailView(NAME)

    def _check(self) -> None:
        if self._ended:
            hint = "begin another one with table.transaction()"
            raise UsageError(f"transaction {self._ended}", path=self._table.name, hint=hint)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ended:
            return
        if kind is None:
            self.commit()
        else:
            self.rollback()
            if error is not None:
                note_interrupt(error, self._table.name, CommitState())

    def __repr__(self) -> str:
        return f"Transaction({self._table.name!r}, {self._ended or 'open'})"

    # -- conflicts -----------------------------------------------------------------------------

    def _check_conflicts(self, now: Table, before: Located | None, after: Located) -> None:
        """Refuse to follow commits that have inserted, changed or deleted a row with one of the keys."""
        if before is None:
            raise self._expired()
        old, new = _by_key(before), _by_key(after)
        size = max(len(old), len(new))
        old, new = (np.pad(one, (0, size - len(one)), constant_values=-1) for one in (old, new))
        is_changed = (old >= 0) != (new >= 0)
        both = np.flatnonzero((old >= 0) & (new >= 0))
        moved = both[_places(before, after)[old[both]] != _places(after, after)[new[both]]]
        if len(moved):
            is_changed[moved] = ~self._are_equal(before, old[moved], after, new[moved])
        if not is_changed.any():
            return
        rows = [
            located.take(np.flatnonzero(is_changed[located.keys])).read(self._keys.names)
            for located in (after, before)
        ]
        keys = self._keys.select(pa.concat_tables(rows))
        keys = keys.take(pa.array(last_of_each(self._keys.encode(keys))))
        rows_were = f"{plural(len(keys), 'row')} {'were' if len(keys) > 1 else 'was'}"
        problem = (
            f"{rows_were} changed by another commit since the transaction began: {self._keys.text(keys)}"
        )
        raise ConflictError(problem, path=now.name, hint=_AGAIN)

    def _expired(self) -> ConflictError:
        problem = "snapshot of the transaction has expired, so that conflicts can't be ruled out"
        return ConflictError(problem, path=self._table.name, hint=_AGAIN)

    def _are_equal(self, before: Located, old: Array, after: Located, new: Array) -> Array:
        """Whether rows of two snapshots have the same values, such as after a compaction."""
        tables = []
        for located, rows in ((before, old), (after, new)):
            order = np.argsort(rows, kind="stable")
            back = np.empty(len(rows), dtype=np.int64)
            back[order] = np.arange(len(rows))
            try:
                tables.append(stored(located.take(rows[order]).read(), self._target).take(pa.array(back)))
            except MissingFileError as error:
                raise self._expired() from error
        return equal_rows(*tables)


def _by_key(located: Located) -> Array:
    """The index of the row of each key; -1 for keys without a row."""
    rows = np.full(int(located.keys.max(initial=-1)) + 1, -1, dtype=np.int64)
    rows[located.keys] = np.arange(len(located))
    return rows


def _places(located: Located, target: Located) -> Array:
    """File and position of each row as one value, with the file numbers of another snapshot."""
    numbers = {task.entry.key: number for number, task in target.tasks.items()}
    used, owners = np.unique(located.files, return_inverse=True)
    tasks = located.tasks
    files = np.array([numbers.get(tasks[number].entry.key, -1) for number in used.tolist()], dtype=np.int64)
    return np.stack([files[owners], located.positions], axis=1).view([("file", "i8"), ("row", "i8")])[:, 0]
