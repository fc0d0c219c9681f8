"""Writes of users to keyed tables: arguments are checked and converted, then committed as one snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from skipstone.core.filter import fix_clock
from skipstone.errors import UsageError, did_you_mean
from skipstone.iceberg.writing.commit import check_properties
from skipstone.iceberg.writing.outcome import CommitState
from skipstone.iceberg.writing.target import Target, check_columns
from skipstone.predicate import predicate as to_predicate
from skipstone.predicate.tree import Predicate
from skipstone.table.keys import Keys, last_of_each
from skipstone.table.operations import (
    ACTIONS,
    Assignments,
    Delete,
    Merge,
    Put,
    Update,
    check_distinct,
    stored,
)
from skipstone.table.publish import Change, Commit, Rebased, check_current
from skipstone.table.report import WriteReport
from skipstone.write.frame import as_table
from skipstone.write.rows import is_frame

if TYPE_CHECKING:
    from skipstone.scan.table import Table
    from skipstone.typing import DataLike, EngineLike, KeysLike, PredicateLike


def put(
    table: Table,
    rows: pa.Table | None,
    deleted: KeysLike | None = None,
    *,
    name: str = "upsert",
    new: bool = False,
    compare: bool = True,
    token: str | None = None,
    properties: Mapping[str, str] | None = None,
    rebased: Rebased | None = None,
    index: bool = True,
    record: bool = True,
    state: CommitState | None = None,
) -> WriteReport:
    """Insert or replace rows, and delete keys, as one snapshot.

    Args:
        table: The table, at the snapshot that the write is based on.
        rows: Rows with distinct keys, in the table's columns; None for none.
        deleted: Keys to delete, which are not those of the rows.
        name: The name of the operation in the report and in the snapshot's summary.
        new: Whether keys that are in the table are an error.
        compare: Whether rows that are in the table with the same values are left alone.
        token: An idempotency token.
        properties: Properties for the snapshot's summary.
        rebased: Called after concurrent commits, before the next attempt; it can raise ConflictError.
        index: Whether to add new files to the table's index.
        record: Whether the token is recorded even if nothing changes.
        state: Told what becomes of the commit.
    """
    keys, target = opened(table)
    some = stored(rows, target) if rows is not None else pa.Table.from_batches([], target.schema)
    gone = None if deleted is None else keys.parse(deleted)
    change = Put(name, keys, target, some, gone, compare=compare, new=new)
    return commit(table, change, token, properties, rebased=rebased, index=index, record=record, state=state)


def commit(
    table: Table,
    change: Change,
    token: str | None,
    properties: Mapping[str, str] | None,
    *,
    rebased: Rebased | None = None,
    index: bool = True,
    record: bool = True,
    state: CommitState | None = None,
) -> WriteReport:
    """Commit a change."""
    if token is not None and not (isinstance(token, str) and token):
        raise UsageError(f"token must be a non-empty string, got {token!r}", hint="omit it, or pass a string")
    checked, state = check_properties(properties), state or CommitState()
    return Commit(table, change, token, checked, rebased, index, record, state=state).run()


def opened(table: Table) -> tuple[Keys, Target]:
    """Return the key and the target of a table that can be written."""
    keys = Keys.of(table)
    check_current(table)
    if table.metadata.format_version < 2:
        hint = "upgrade the table to format version 2"
        raise UsageError("rows of format version 1 can't be deleted", path=table.name, hint=hint)
    return keys, Target.of(table.table, options=table.pinned.storage_options)


def _table(data: DataLike, target: Target) -> pa.Table:
    """Convert data of users to an Arrow table; an empty list has no rows."""
    return target.schema.empty_table() if isinstance(data, list) and not data else as_table(data)


def to_rows(data: DataLike, target: Target, keys: Keys) -> pa.Table:
    """Convert data of users to rows in the types of a table's files."""
    table = _table(data, target)
    check_columns(table.schema, target.schema, target.name)
    keys.check(table)
    return stored(table, target)


# -- operations ----------------------------------------------------------------------------------


def append(
    table: Table,
    data: DataLike,
    *,
    token: str | None,
    properties: Mapping[str, str] | None,
    engine: EngineLike,
) -> WriteReport:
    """Insert rows; ``Table.append`` documents the options."""
    if is_frame(data):
        from skipstone.table.files import write_frame

        return write_frame(table, data, "append", engine, token, properties)
    keys, target = opened(table)
    rows = to_rows(data, target, keys)
    check_distinct(keys, rows)
    return put(table, rows, name="append", new=True, token=token, properties=properties)


def upsert(
    table: Table,
    data: DataLike,
    *,
    compare: bool,
    token: str | None,
    properties: Mapping[str, str] | None,
    engine: EngineLike,
) -> WriteReport:
    """Insert or replace rows; ``Table.upsert`` documents the options."""
    if is_frame(data):
        from skipstone.table.files import write_frame

        return write_frame(table, data, "upsert", engine, token, properties)
    keys, target = opened(table)
    rows = to_rows(data, target, keys)
    last = last_of_each(keys.encode(rows))
    rows = rows if len(last) == len(rows) else rows.take(pa.array(last))
    return put(table, rows, compare=compare, token=token, properties=properties)


def delete(
    table: Table,
    where: PredicateLike,
    keys: KeysLike | None,
    *,
    token: str | None,
    properties: Mapping[str, str] | None,
) -> WriteReport:
    """Delete rows by a condition or by key; ``Table.delete`` documents the options."""
    if (where is None) == (keys is None):
        raise UsageError(
            "delete needs a condition or keys", path=table.name, hint='pass where="..." or keys=[...]'
        )
    known, _ = opened(table)
    if keys is None:
        return commit(table, Delete(_predicate(where)), token, properties)
    gone = known.parse(keys)
    gone = gone.take(pa.array(last_of_each(known.encode(gone))))
    return put(table, None, gone, name="delete", token=token, properties=properties)


def update(
    table: Table,
    where: PredicateLike,
    values: Mapping[str, Any],
    *,
    token: str | None,
    properties: Mapping[str, str] | None,
) -> WriteReport:
    """Set columns of rows; ``Table.update`` documents the options."""
    keys, target = opened(table)
    assignments = Assignments.of(values, keys, target.schema)
    condition = None if where is None else _predicate(where)
    return commit(table, Update(condition, assignments, target), token, properties)


def merge(
    table: Table,
    data: DataLike,
    on: Sequence[str] | str | None,
    when_matched: Any,
    when_not_matched: str,
    *,
    token: str | None,
    properties: Mapping[str, str] | None,
) -> WriteReport:
    """Merge rows of a source; ``Table.merge`` documents the options."""
    keys, target = opened(table)
    change = merge_of(data, on, when_matched, when_not_matched, keys, target)
    return commit(table, change, token, properties)


def merge_of(
    data: DataLike,
    on: Sequence[str] | str | None,
    when_matched: Any,
    when_not_matched: str,
    keys: Keys,
    target: Target,
) -> Merge:
    """Check the arguments of a merge, and return what it does."""
    chosen = [on] if isinstance(on, str) else keys.names if on is None else list(on)
    if sorted(chosen) != sorted(keys.names):
        hint = f"use the key: {', '.join(keys.names)}"
        raise UsageError(f"rows can't be matched by {', '.join(chosen)}", path=keys.table, hint=hint)
    if when_not_matched not in _UNMATCHED:
        hint = did_you_mean(str(when_not_matched), _UNMATCHED, f"use {' or '.join(_UNMATCHED)}")
        raise UsageError(f"unknown action {when_not_matched!r}", path=keys.table, hint=hint)
    source = _source(_table(data, target), keys)
    check_distinct(keys, source)
    actions = when_matched if isinstance(when_matched, list | tuple) else [(None, when_matched)]
    matched = tuple(_clause(one, keys, target) for one in actions)
    return Merge(keys, target, source, matched, when_not_matched == "insert")


_UNMATCHED: Final = ("insert", "ignore")


def _source(rows: pa.Table, keys: Keys) -> pa.Table:
    """The rows of a source, with the key columns in the table's types."""
    keys.check(rows, rows.column_names)
    own = keys.select(rows)
    for name in keys.names:
        rows = rows.set_column(rows.schema.get_field_index(name), own.schema.field(name), own.column(name))
    return rows


def _clause(clause: Any, keys: Keys, target: Target) -> tuple[Predicate | None, str | Assignments]:
    if not isinstance(clause, tuple) or len(clause) != 2:
        hint = 'pass an action, or pairs such as [("source.gone", "delete"), (None, "update")]'
        raise UsageError(f"{clause!r} is not a condition and an action", path=keys.table, hint=hint)
    condition, action = clause
    where = None if condition is None else _predicate(condition)
    if isinstance(action, Mapping):
        return where, Assignments.of(action, keys, target.schema)
    if action not in ACTIONS:
        hint = did_you_mean(
            str(action), ACTIONS, f"use {', '.join(ACTIONS)} or a mapping of columns to values"
        )
        raise UsageError(f"unknown action {action!r}", path=keys.table, hint=hint)
    return where, action


def _predicate(where: PredicateLike) -> Predicate:
    return fix_clock(to_predicate(where))
