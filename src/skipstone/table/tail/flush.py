"""Flushes: the last versions of a memtable, committed as one snapshot that records its last frame."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from skipstone.iceberg.writing.target import stored_columns
from skipstone.table.keys import Keys
from skipstone.table.tail.evolve import adapt, check_key, key_columns, same_fields
from skipstone.table.tail.lease import Intent, Lease
from skipstone.table.tail.location import check_location
from skipstone.table.tail.memtable import Versions
from skipstone.table.tail.recovery import check_fence, flush_properties, table_floor
from skipstone.table.write import put

if TYPE_CHECKING:
    from skipstone.iceberg.table import TableSnapshot
    from skipstone.scan.table import Table


class Flusher:
    """Commits memtables, with a table of its own: flushes run beside readers."""

    def __init__(self, table: Table, lease: Lease, key: pa.Schema) -> None:
        self._table, self._lease, self._key = table.detached(), lease, key
        self.latest: TableSnapshot | None = None
        """The snapshot after the last flush, for readers to move to."""

    def commit(self, versions: Versions, last: int) -> TableSnapshot:
        """Commit the versions of frames up to ``last``, unless they are; return the table's snapshot."""
        table, lease = self._table, self._lease
        lease.check()
        self._check(table.refresh())
        if max(lease.state.floor, table_floor(table.metadata, lease.state.id)) < last:
            # If this process ends before it knows the outcome, the next one looks for it.
            lease.record(intent=Intent(last, table.snapshot))
            columns = stored_columns(table.iceberg_schema)
            key = key_columns(columns, Keys.of(table).names)
            check_key(self._key, key, table.name)
            live = versions.upserts()
            # The rows can have been written under other names than the first ones.
            deleted = versions.deletes([one.name for one in same_fields(self._key, versions.rows.schema)])
            put(
                table,
                adapt(live, columns, table.name) if len(live) else None,
                adapt(deleted, key, table.name),
                name="flush",
                compare=False,
                token=f"{lease.state.id}:{last}",
                properties=flush_properties(lease, last),
                rebased=lambda now, _before, _after: self._check(now),
                record=False,
            )
        lease.record(floor=last)
        return table.refresh().pinned.detached()

    def _check(self, table: Table) -> None:
        """Raise if the tail has another writer."""
        check_fence(table.metadata, self._lease)
        check_location(table.metadata, self._lease)
