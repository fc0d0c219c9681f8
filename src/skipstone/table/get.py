"""Rows by their key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from skipstone.errors import DuplicateKeyError
from skipstone.table.keys import Keys, repeated
from skipstone.table.locate import locate

if TYPE_CHECKING:
    from skipstone.scan.lake import Table
    from skipstone.table.overlay import OverlayTable
    from skipstone.typing import KeysLike


def get(table: Table | OverlayTable, key: KeysLike, columns: Sequence[str] | None) -> dict[str, Any] | None:
    """Return the row of a key; None if there is none."""
    rows = get_many(table, key, columns)
    return rows.to_pylist()[0] if len(rows) else None


def get_many(table: Table | OverlayTable, keys: KeysLike, columns: Sequence[str] | None) -> pa.Table:
    """Return the rows of keys, in the order of the keys; keys without a row are left out."""
    known = Keys.of(table)
    wanted = known.parse(keys)
    codes = known.encode(wanted)
    if len(wanted) > 1:
        wanted = wanted.take(pa.array(np.delete(np.arange(len(wanted)), repeated(codes))))
    located = locate(table, wanted)
    if len(np.unique(located.keys)) < len(located):
        raise DuplicateKeyError(
            f"key occurs more than once: {known.text(wanted.take(pa.array(located.keys)), 1)}",
            path=table.name,
            hint="delete all but one of the rows with the engine that wrote them",
        )
    return located.read(columns).take(pa.array(np.argsort(located.keys, kind="stable")))
