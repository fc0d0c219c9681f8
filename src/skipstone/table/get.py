"""Rows by their key: pages are found by the key, read once, and decoded up to the row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from skipstone.core.evidence import Array
from skipstone.errors import DuplicateKeyError
from skipstone.lake.snapshot import Path
from skipstone.scan.execute import execute
from skipstone.scan.options import DEFAULT
from skipstone.scan.planner import plan_candidates
from skipstone.scan.projection import Projection, resolve
from skipstone.table.keys import Keys, KeySet, repeated
from skipstone.table.locate import key_condition

if TYPE_CHECKING:
    from skipstone.scan.lake import Table
    from skipstone.table.overlay import OverlayTable
    from skipstone.typing import KeysLike

_KEYS: Final = "keys of the table"


def get(table: Table | OverlayTable, key: KeysLike, columns: Sequence[str] | None) -> dict[str, Any] | None:
    """Return the row of a key; None if there is none."""
    rows = get_many(table, key, columns)
    return rows.to_pylist()[0] if len(rows) else None


def get_many(table: Table | OverlayTable, keys: KeysLike, columns: Sequence[str] | None) -> pa.Table:
    """Return the rows of keys, in the order of the keys; keys without a row are left out."""
    known: Keys = table.plans.get_or_make(_KEYS, lambda: (Keys.of(table), 1))
    wanted = known.parse(keys)
    codes = known.encode(wanted)
    if len(wanted) > 1:
        first = pa.array(np.delete(np.arange(len(wanted)), repeated(codes)))
        wanted, codes = wanted.take(first), codes.take(first)
    test = KeyTest(known, KeySet(codes))
    names = table.schema.names if columns is None else [columns] if isinstance(columns, str) else columns
    shown = resolve(tuple(names), table.schema, case_sensitive=True, query=table.query_schema)
    # Several rows are put in the order of their keys, so these are read too.
    paths = shown.paths if len(wanted) == 1 else [*shown.paths, *test.columns]
    projection = Projection.of(table.schema, paths)
    plan = plan_candidates(table, key_condition(known, wanted), projection, DEFAULT, None, test)
    rows = execute(plan).to_arrow()
    if len(rows) > 1:
        at = np.zeros(len(rows), np.int64) if len(wanted) == 1 else test.codes.find(known.encode(rows))
        if len(np.unique(at)) < len(at):
            raise _twice(known, wanted.take(pa.array(at[repeated(pa.array(at))])))
        rows = rows.take(pa.array(np.argsort(at)))
    return rows.select(shown.result.names) if shown.computed is None else shown.computed.compute(rows)


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
