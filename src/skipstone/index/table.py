"""An Iceberg table with an index beside it."""

from __future__ import annotations

import json
from functools import cached_property
from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from skipstone.iceberg.inventory import Kept
from skipstone.iceberg.lake import IcebergLake
from skipstone.index.entries import read_entries, write_entries
from skipstone.index.lake import Indexed
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

    @cached_property
    def _kept(self) -> tuple[Kept, Kept] | None:
        """What the index keeps of the manifests, those of data and those of deletes."""
        return read_entries(self.index.access, self._listed_in)

    @property
    def _listed_in(self) -> str:
        """The list of manifests, and what it takes to read them."""
        snapshot = self._pinned.snapshot
        listed = None if snapshot is None else (snapshot.snapshot_id, snapshot.manifest_list)
        shapes = [(spec_id, str(spec)) for spec_id, spec in sorted(self.specs.items())]
        return json.dumps((str(self.metadata.table_uuid), listed, shapes))

    def keep_manifests(self) -> None:
        """Keep what the snapshot's manifests say in the index; only those that are new are read."""
        data, deletes = self._data, self._deletes
        if not (data.covered and deletes.covered):
            write_entries(self.index.access, self._listed_in, data, deletes)

    def index_changed(self) -> None:
        """The index was built or refreshed: manifests are kept in it too."""
        self.keep_manifests()

    def __reduce__(self) -> tuple[Any, ...]:
        make, (cls, *given) = super().__reduce__()
        return (_moved, (make, cls, given, self._index_root))


def _moved(make: Any, cls: type[IndexedTable], given: list[Any], root: Place | None) -> IndexedTable:
    lake: IndexedTable = make(cls, *given, _index_root=root)
    return lake
