"""An Iceberg table with an index beside it."""

from __future__ import annotations

from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from skipstone.index.lake import Indexed
from skipstone.lake.iceberg.lake import IcebergLake
from skipstone.store.place import Place


class IndexedTable(Indexed, IcebergLake):
    """An Iceberg table whose index is keyed by data file, and so serves every snapshot that has the file."""

    def __init__(self, table: Table, *, index_root: Place | None = None, **options: Any) -> None:
        self._index_root = index_root
        super().__init__(table, **options)

    def _pin(self, metadata: TableMetadata) -> None:
        self.__dict__.pop("index", None)
        super()._pin(metadata)
        self._reset()

    def __reduce__(self) -> tuple[Any, ...]:
        make, (cls, *given) = super().__reduce__()
        return (_moved, (make, cls, given, self._index_root))


def _moved(make: Any, cls: type[IndexedTable], given: list[Any], root: Place | None) -> IndexedTable:
    lake: IndexedTable = make(cls, *given, _index_root=root)
    return lake
