"""The oracle: which rows each snapshot has, by Iceberg's rules, told plainly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tests.iceberg._manifests import DATA, POSITIONS, Entry, File
from tests.iceberg._mapping import found_by, found_column, name_mapping
from tests.iceberg._table import Table, partition_key
from tests.iceberg._types import Field, Raw, build, convert, shown, tagged


@dataclass(frozen=True)
class LiveFile:
    """A data file of a snapshot, with the positions that its deletes take away."""

    file: File
    sequence: int
    deleted: frozenset[int]


class Rows(Table):
    """A table that knows its rows."""

    def live(self, snapshot: int | None = None) -> list[LiveFile]:
        """The data files of a snapshot by path, each with what is deleted of it."""
        found = self.head() if snapshot is None else self.snapshots[snapshot]
        if found is None:
            return []
        deletes = [e for e in found.files if e.file.content != DATA]
        made = []
        for entry in found.files:
            if entry.file.content == DATA:
                gone = frozenset(self._deleted(entry, deletes))
                made.append(LiveFile(entry.file, entry.sequence, gone))
        return sorted(made, key=lambda one: one.file.path.encode())

    def _deleted(self, data: Entry, deletes: Sequence[Entry]) -> set[int]:
        """Positions that Iceberg's rules delete from a file: plain, one delete file after the other."""
        gone: set[int] = set()
        path = data.file.path
        vector = [d for d in deletes if d.file.format == "PUFFIN" and d.file.referenced == path]
        for d in deletes:
            same = partition_key(d.file) == partition_key(data.file)
            if d.file.content == POSITIONS:
                if vector and d not in vector:
                    continue
                if d.sequence >= data.sequence and (same or vector):
                    gone |= {pos for at, pos in self.positions[d.file] if at == path}
            elif d.sequence > data.sequence and (d.file.spec.unpartitioned or same):
                gone |= self._equal_rows(data.file, *self.equal[d.file])
        return gone

    def _equal_rows(self, file: File, fields: Sequence[Field], keys: Sequence[tuple[Raw, ...]]) -> set[int]:
        columns = [self.leaf(file, f.id) for f in fields]
        now = [self.field(f.id).type for f in fields]
        wanted = {
            tuple(tagged(convert(f.type, new, v)) for f, new, v in zip(fields, now, key, strict=True))
            for key in keys
        }
        rows = range(file.records)
        return {row for row in rows if tuple(tagged(c[row]) for c in columns) in wanted}

    def leaf(self, file: File, id: int) -> list[Raw]:
        """The values of one field, dropped or not, in the type it had last."""
        way = self._way(id)
        values = self.column(file, way[0])
        for part in way[1:]:
            values = [None if v is None else v[part.id] for v in values]
        return values

    def column(self, file: File, field: Field) -> list[Raw]:
        """A file's column as a later schema has it."""
        written = self.written[file.path]
        found = {f.id: f for f in written.fields}
        mapping = []
        if not written.ids:
            mapping = name_mapping(self.schemas, self.names)
            found = found_by(mapping, written.stored)
            for f, value in zip(file.spec.fields, file.partition, strict=True):
                if f.source == field.id and f.transform == "identity":
                    return [value] * file.records
        own = next((f for f in written.fields if f.id in found and found[f.id].id == field.id), None)
        if own is None:
            return [field.default] * file.records
        values = written.columns[own.id]
        values = values if written.ids else found_column(mapping, own, values)
        return [convert(found[own.id].type, field.type, value) for value in values]

    def table(
        self, snapshot: int | None = None, schema: int | None = None, *, deleted: bool = False
    ) -> pa.Table:
        """Every live row by path and position, under a schema; the deleted ones too if asked."""
        fields = self.schemas[self.current_schema if schema is None else schema]
        files = self.live(snapshot)
        arrays = []
        for f in fields:
            values: list[Raw] = []
            for one in files:
                column = self.column(one.file, f)
                values += [v for row, v in enumerate(column) if deleted or row not in one.deleted]
            arrays.append(build(f.type, values))
        return pa.Table.from_arrays(arrays, names=[f.name for f in fields])

    def places(self, snapshot: int | None = None, *, deleted: bool = False) -> list[tuple[str, int]]:
        """The file and position of each row of ``table``."""
        return [
            (one.file.path, row)
            for one in self.live(snapshot)
            for row in range(one.file.records)
            if deleted or row not in one.deleted
        ]

    def rows(self, snapshot: int | None = None, schema: int | None = None) -> list[dict[str, Any]]:
        """Every live row by name, with raw values."""
        fields = self.schemas[self.current_schema if schema is None else schema]
        files = self.live(snapshot)
        out = []
        for one in files:
            columns = {f.name: [shown(f.type, v) for v in self.column(one.file, f)] for f in fields}
            keep = [row for row in range(one.file.records) if row not in one.deleted]
            out += [{name: values[row] for name, values in columns.items()} for row in keep]
        return out
