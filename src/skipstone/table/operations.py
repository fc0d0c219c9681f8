"""Writes by key: append, upsert, delete, update and merge, as changes to be applied to any snapshot."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from skipstone.core.evidence import Array
from skipstone.core.filter import RowFilter
from skipstone.core.plain import type_name
from skipstone.errors import (
    DuplicateKeyError,
    SkipstoneError,
    UnknownColumnError,
    UsageError,
    did_you_mean,
)
from skipstone.iceberg.writing.target import NewFile, Target, fit_table, without_fields
from skipstone.predicate.tree import Expr, Predicate
from skipstone.predicate.values import exact_array
from skipstone.scan.projection import resolve
from skipstone.table.compare import equal_rows
from skipstone.table.keys import Keys, repeated
from skipstone.table.locate import Located, locate, locate_where
from skipstone.table.publish import Outcome
from skipstone.table.report import RowCounts

if TYPE_CHECKING:
    from skipstone.scan.table import Table

ACTIONS: Final = ("update", "delete", "ignore")
_NONE: Final = np.zeros(0, dtype=np.int64)
# From this many rows on, columns are compared one after the other, in the order that the first rows suggest.
_MANY: Final = 1_000
_SAMPLED: Final = 64


@dataclass(frozen=True, slots=True, eq=False)
class Put:
    """Rows to insert or replace, and keys to delete; each key once."""

    name: str
    keys: Keys
    target: Target
    rows: pa.Table
    """In the types of the table's files."""
    deleted: pa.Table | None = None
    compare: bool = True
    """Whether rows are compared with those in the table, to write only what differs."""
    new: bool = False
    """Whether keys that are in the table are an error."""
    files: tuple[NewFile, ...] = ()

    @property
    def wanted(self) -> pa.Table:
        """All keys: those of the rows, then those to delete."""
        mine = self.keys.select(self.rows)
        return mine if self.deleted is None else pa.concat_tables([mine, self.deleted])

    def search(self, table: Table, only: Collection[str] | None) -> Located:
        """Locate the keys."""
        return locate(table, self.wanted, only)

    def outcome(self, located: Located) -> Outcome:
        """Replace rows that differ, and insert those whose key is not in the table."""
        count = len(self.rows)
        mine = np.flatnonzero(located.keys < count)
        if self.new and len(mine):
            raise duplicates(self.keys, self.wanted.take(pa.array(np.sort(located.keys[mine]))))
        same = np.zeros(count, dtype=bool)
        if self.compare and len(mine):
            same[located.keys[mine]] = self._unchanged(located.take(mine))
        stays = np.zeros(len(located), dtype=bool)
        stays[mine] = same[located.keys[mine]]
        gone = located.take(np.flatnonzero(~stays))
        unchanged = int(same.sum())
        counts = RowCounts(
            inserted=count - len(mine),
            updated=len(mine) - unchanged,
            deleted=len(located) - len(mine),
            unchanged=unchanged,
        )
        rows = self.rows if not unchanged else self.rows.filter(pa.array(~same))
        return Outcome(counts, rows, gone)

    def _unchanged(self, located: Located) -> Array:
        """Mask of the located rows that have the values of the new ones.

        A few rows show which column differs most often. If most rows differ in it, the other columns are read
        only of the rows that do not.
        """
        names = [name for name in self.target.schema.names if name not in self.keys.names]
        same = np.ones(len(located), dtype=bool)
        left = np.arange(len(located))
        if len(located) >= _MANY and len(names) > 1:
            old, new = self._versions(located.take(left[:_SAMPLED]), names)
            alike = {name: int(equal_rows(old.select([name]), new.select([name])).sum()) for name in names}
            first = min(names, key=alike.__getitem__)
            if alike[first] * 2 < _SAMPLED:
                same = equal_rows(*self._versions(located, [first]))
                left = np.flatnonzero(same)
                names.remove(first)
        if len(left):
            same[left] = equal_rows(*self._versions(located.take(left), names))
        return same

    def _versions(self, located: Located, names: Sequence[str]) -> tuple[pa.Table, pa.Table]:
        """Some columns of the located rows, and of the rows that would replace them."""
        schema = pa.schema([self.target.schema.field(name) for name in names])
        new = self.rows.select(names).take(pa.array(located.keys))
        return fit_table(located.read(names), schema, self.target.name), new


@dataclass(frozen=True, slots=True, eq=False)
class Delete:
    """Rows to delete by a condition."""

    where: Predicate
    name: str = "delete"
    files: tuple[NewFile, ...] = ()

    def search(self, table: Table, only: Collection[str] | None) -> Located:
        """Locate the rows that match."""
        return locate_where(table, self.where, only)

    def outcome(self, located: Located) -> Outcome:
        """Delete them."""
        return Outcome(RowCounts(deleted=len(located)), None, located)


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """Rows to change by a condition, with the new values of columns."""

    where: Predicate | None
    values: Assignments
    target: Target
    name: str = "update"
    files: tuple[NewFile, ...] = ()

    def search(self, table: Table, only: Collection[str] | None) -> Located:
        """Locate the rows that match."""
        return locate_where(table, self.where, only)

    def outcome(self, located: Located) -> Outcome:
        """Replace rows that differ after the assignments."""
        old = stored(located.read(), self.target)
        new = stored(self.values.apply(old, old), self.target)
        differs = np.flatnonzero(~equal_rows(old, new))
        counts = RowCounts(updated=len(differs), unchanged=len(located) - len(differs))
        return Outcome(counts, new.take(pa.array(differs)), located.take(differs))


@dataclass(frozen=True, slots=True, eq=False)
class Merge:
    """Rows of a source that are matched with the table by key, and what to do with them."""

    keys: Keys
    target: Target
    source: pa.Table
    """Its columns need not be those of the table; key columns have the table's types."""
    matched: tuple[tuple[Predicate | None, str | Assignments], ...]
    """Conditions and actions: the first whose condition is TRUE applies."""
    insert: bool
    name: str = "merge"
    files: tuple[NewFile, ...] = ()

    def search(self, table: Table, only: Collection[str] | None) -> Located:
        """Locate the keys of the source."""
        return locate(table, self.keys.select(self.source), only)

    def outcome(self, located: Located) -> Outcome:
        """Apply the first action that fits each matched row, and insert the others."""
        old = stored(located.read(), self.target)
        source = self.source.take(pa.array(located.keys))
        both = pa.table({"source": structs(source), "target": structs(old)})
        left = np.ones(len(located), dtype=bool)
        gone, parts = [_NONE], []
        deleted = updated = 0
        for condition, action in self.matched:
            mask = left if condition is None else left & RowFilter(condition, both.schema).mask(both)
            rows = np.flatnonzero(mask)
            left = left & ~mask
            if action == "ignore" or not len(rows):
                continue
            if action == "delete":
                gone.append(rows)
                deleted += len(rows)
                continue
            chosen = pa.array(rows)
            new = self._updated(action, source.take(chosen), old.take(chosen), both.take(chosen))
            differs = np.flatnonzero(~equal_rows(old.take(chosen), new))
            gone.append(rows[differs])
            parts.append(new.take(pa.array(differs)))
            updated += len(differs)
        new_keys = np.ones(len(self.source), dtype=bool)
        new_keys[located.keys] = False
        inserted = int(new_keys.sum()) if self.insert else 0
        if inserted:
            parts.append(stored(self._shared(self.source.filter(pa.array(new_keys))), self.target))
        counts = RowCounts(inserted, updated, deleted, len(located) - updated - deleted)
        rows_out = pa.concat_tables(parts) if parts else None
        return Outcome(counts, rows_out, located.take(np.sort(np.concatenate(gone))))

    def _shared(self, source: pa.Table) -> pa.Table:
        return source.select([name for name in source.column_names if name in self.target.schema.names])

    def _updated(
        self, action: str | Assignments, source: pa.Table, old: pa.Table, both: pa.Table
    ) -> pa.Table:
        if isinstance(action, Assignments):
            return stored(action.apply(old, both), self.target)
        shared = self._shared(source)
        columns = [shared if name in shared.column_names else old for name in self.target.schema.names]
        arrays = [one.column(name) for one, name in zip(columns, self.target.schema.names, strict=True)]
        return stored(pa.table(arrays, names=self.target.schema.names), self.target)


# -- rows --------------------------------------------------------------------------------------


def stored(rows: pa.Table, target: Target) -> pa.Table:
    """Convert rows to the types of a table's files."""
    if len(rows) and (column := target.column_without_fields) is not None:
        raise without_fields(column, target.name)
    return fit_table(rows, target.schema, target.name)


def structs(rows: pa.Table) -> pa.Array:
    """Rows as one column of structs."""
    whole = rows.combine_chunks()
    columns = [whole.column(name) for name in whole.column_names]
    arrays = [column.chunk(0) if column.num_chunks else pa.array([], column.type) for column in columns]
    return pa.StructArray.from_arrays(arrays, fields=list(whole.schema))


def duplicates(keys: Keys, rows: pa.Table) -> DuplicateKeyError:
    """The error for keys that are in the table already."""
    problem = (
        f"{len(rows):,} key{'s are' if len(rows) > 1 else ' is'} already in the table: {keys.text(rows)}"
    )
    return DuplicateKeyError(problem, path=keys.table, hint="use upsert to replace rows, or remove these")


def repetitions(keys: Keys, rows: pa.Table) -> DuplicateKeyError:
    """The error for keys that the new rows have more than once."""
    problem = f"new rows have {'keys' if len(rows) > 1 else 'a key'} more than once: {keys.text(rows)}"
    return DuplicateKeyError(problem, path=keys.table, hint="keep one row of each key")


def check_distinct(keys: Keys, rows: pa.Table) -> None:
    """Refuse rows with a key that occurs twice."""
    again = repeated(keys.encode(rows))
    if len(again):
        raise repetitions(keys, rows.take(pa.array(again)))


# -- assignments -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Assignments:
    """New values of columns: constants, and expressions over the columns of other rows."""

    constants: Mapping[str, Any]
    expressions: Mapping[str, str]

    @classmethod
    def of(cls, values: Mapping[str, Any], keys: Keys, schema: pa.Schema) -> Assignments:
        """Check the names; text is an SQL expression, all other values are constants."""
        if not isinstance(values, Mapping) or not values:
            hint = 'pass a mapping of columns to values, as in {"v": "v + 1"}'
            raise UsageError(f"{values!r} sets no column", path=keys.table, hint=hint)
        for name in values:
            if name not in schema.names:
                hint = did_you_mean(str(name), schema.names, f"available columns: {', '.join(schema.names)}")
                raise UnknownColumnError("table has no such column", path=keys.table, column=name, hint=hint)
            if name in keys.names:
                hint = "delete the rows, and insert them with their new key"
                raise UsageError("key column can't be set", path=keys.table, column=name, hint=hint)
        expressions = {k: str(v) for k, v in values.items() if isinstance(v, str | Expr)}
        constants = {k: v for k, v in values.items() if k not in expressions}
        return cls(constants, expressions)

    def apply(self, old: pa.Table, rows: pa.Table) -> pa.Table:
        """Return the old rows with new values, computed from ``rows``."""
        computed: Mapping[str, pa.ChunkedArray] = {}
        if self.expressions:
            wanted = [f"{text} AS `{name}`" for name, text in self.expressions.items()]
            projection = resolve(wanted, rows.schema, case_sensitive=True)
            assert projection.computed is not None
            made = projection.computed.compute(rows)
            computed = {name: made.column(name) for name in made.column_names}
        for name, value in self.constants.items():
            try:
                array = exact_array([value], old.schema.field(name).type)
            except (SkipstoneError, pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                problem = f"{value!r} is not a value of type {type_name(old.schema.field(name).type)}"
                raise UsageError(problem, column=name, hint="pass a value of the column's type") from error
            computed = {**computed, name: pa.repeat(array[0], len(old))}
        for name, column in computed.items():
            old = old.set_column(old.schema.get_field_index(name), name, column)
        return old
