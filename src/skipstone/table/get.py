"""Rows by their key: pages are found by the key, read once, and decoded up to the row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from skipstone.core.evidence import Array
from skipstone.errors import DuplicateKeyError, UsageError
from skipstone.lake.snapshot import Path
from skipstone.scan.execute import Work, each, execute
from skipstone.scan.options import DEFAULT
from skipstone.scan.plan import ScanPlan
from skipstone.scan.planner import plan_candidates
from skipstone.scan.projection import Projection, resolve
from skipstone.scan.reader import joined
from skipstone.table.keys import Keys, KeySet, repeated
from skipstone.table.locate import key_condition

if TYPE_CHECKING:
    from skipstone.scan.table import Table
    from skipstone.table.overlay import OverlayTable
    from skipstone.typing import KeysLike


def get(table: Table | OverlayTable, key: KeysLike, columns: Sequence[str] | None) -> dict[str, Any] | None:
    """Return the row of a key; None if there is none."""
    rows = get_many(table, key, columns, single=True)
    return rows.to_pylist()[0] if len(rows) else None


def get_many(
    table: Table | OverlayTable, keys: KeysLike, columns: Sequence[str] | None, *, single: bool = False
) -> pa.Table:
    """Return the rows of keys, in the order of the keys; keys without a row are left out."""
    some = None if columns is None else (columns,) if isinstance(columns, str) else tuple(columns)
    shape: _Shape = table.plans.get_or_make((_Shape, some), lambda: (_Shape.of(table, some), 1))
    known = shape.keys
    wanted = known.parse(keys)
    if single and len(wanted) != 1:
        raise UsageError(f"get takes one key, not {len(wanted)}", path=table.name, hint="use get_many")
    codes = known.encode(wanted)
    if len(wanted) > 1:
        first = pa.array(np.delete(np.arange(len(wanted)), repeated(codes)))
        wanted, codes = wanted.take(first), codes.take(first)
    test = KeyTest(known, KeySet(codes))
    single, shown = len(wanted) == 1, shape.shown
    projection = shape.alone if single else shape.both
    plan = plan_candidates(table, key_condition(known, wanted), projection, DEFAULT, None, test)
    rows = _read(plan) if single else execute(plan).to_arrow()
    if len(rows) > 1:
        at = np.zeros(len(rows), np.int64) if single else test.codes.find(known.encode(rows))
        if len(np.unique(at)) < len(at):
            raise _twice(known, wanted.take(pa.array(at[repeated(pa.array(at))])))
        rows = rows.take(pa.array(np.argsort(at)))
    return rows.select(shown.result.names) if shown.computed is None else shown.computed.compute(rows)


@dataclass(frozen=True, slots=True)
class _Shape:
    """What look-ups of the same columns share."""

    keys: Keys
    shown: Projection
    alone: Projection
    both: Projection
    """With the key: several rows are put in the order of their keys."""

    @classmethod
    def of(cls, table: Table | OverlayTable, columns: tuple[str, ...] | None) -> _Shape:
        """Resolve the columns; None for all."""
        keys, schema = Keys.of(table), table.schema
        names = tuple(schema.names) if columns is None else columns
        shown = resolve(names, schema, case_sensitive=True, query=table.query_schema)
        both = [*shown.paths, *((name,) for name in keys.names)]
        return cls(keys, shown, Projection.of(schema, shown.paths), Projection.of(schema, both))


def _read(plan: ScanPlan) -> pa.Table:
    """The rows of a plan for one key, which has few pieces."""
    work = Work(plan)
    tables = [table for piece in work.pieces(work.both) for table in each(work.tables((piece,)))]
    return joined(tables) if tables else pa.Table.from_batches([], plan.schema)


@dataclass(frozen=True, slots=True)
class KeyTest:
    """Whether rows have one of some keys."""

    keys: Keys
    codes: KeySet

    @property
    def columns(self) -> tuple[Path, ...]:
        """The key columns."""
        return tuple((name,) for name in self.keys.names)

    def mask(self, table: pa.Table) -> Array:
        """Return, per row, whether its key is one of them."""
        return self.codes.find(self.keys.encode(table)) >= 0


def _twice(known: Keys, keys: pa.Table) -> DuplicateKeyError:
    return DuplicateKeyError(
        f"key occurs more than once: {known.text(keys, 1)}",
        path=known.table,
        hint="delete all but one of the rows with the engine that wrote them",
    )
