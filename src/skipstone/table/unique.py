"""Whether a table has each key once: proven by the marks of keyed writes, or checked.

Every keyed write marks its snapshot. Snapshots of others follow: a compaction or a delete adds no key, so
nothing is read for them. Data files that others have appended are compared with the rest of the table before
the next keyed write, which marks its snapshot again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.snapshots import Operation

from skipstone.errors import DuplicateKeyError
from skipstone.iceberg.metadata import ancestors
from skipstone.scan.execute import execute
from skipstone.scan.planner import plan_whole_files
from skipstone.table.keys import Keys, last_of_each, repeated
from skipstone.table.locate import locate
from skipstone.table.report import PREFIX

if TYPE_CHECKING:
    from skipstone.scan.table import Table

KEY: Final = f"{PREFIX}key"
"""The snapshot property with the field ids of the key that the snapshot is known to be unique by."""
_ADD_NOTHING: Final = (Operation.REPLACE, Operation.DELETE)


def key_ids(table: Table) -> str:
    """Return the field ids of a table's key."""
    return ",".join(map(str, sorted(table.iceberg_schema.identifier_field_ids)))


def check_unique(table: Table) -> int:
    """Check that each key occurs once, and return the number of rows that were read.

    Raises DuplicateKeyError with some of the keys otherwise.
    """
    marked, unchecked = _last_mark(table)
    if not unchecked:
        return 0
    keys = Keys.of(table)
    entries, numbers = table.inventory.everything
    old = np.zeros(len(entries), dtype=bool)
    if marked is not None:
        old = np.asarray(pc.is_in(entries.paths, value_set=table.at(marked).inventory.everything[0].paths))
    rows = execute(plan_whole_files(table, numbers[~old], entries.rows[~old]), keys.names).to_arrow()
    again = repeated(keys.encode(rows))
    if len(again):
        raise _broken(keys, rows.take(pa.array(again)))
    if old.any() and len(rows):
        located = locate(table, keys.select(rows), entries.paths.filter(pa.array(old)).to_pylist())
        if len(located):
            raise _broken(keys, rows.take(pa.array(np.sort(located.keys))))
    return len(rows)


def _last_mark(table: Table) -> tuple[int | None, bool]:
    """The newest snapshot that is known to have each key once, and whether rows were added since."""
    wanted, unchecked = key_ids(table), False
    current = None if table.snapshot is None else table.metadata.snapshot_by_id(table.snapshot)
    for one in ancestors(table.metadata, current):
        summary = one.summary
        if summary is not None and summary.additional_properties.get(KEY) == wanted:
            return one.snapshot_id, unchecked
        if summary is None or summary.operation not in _ADD_NOTHING:
            unchecked = True
    return None, unchecked


def _broken(keys: Keys, rows: pa.Table) -> DuplicateKeyError:
    distinct = rows.take(pa.array(last_of_each(keys.encode(rows))))
    many = "keys occur" if len(distinct) > 1 else "key occurs"
    return DuplicateKeyError(
        f"{len(distinct):,} {many} more than once: {keys.text(distinct)}",
        path=keys.table,
        hint="delete all but one of the rows with the engine that wrote them, or change the key",
    )
