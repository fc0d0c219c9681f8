"""Files read by a naming of their fields."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema

import skipstone as sk
from skipstone.core.rows import RowSet
from skipstone.iceberg.schema import FieldNaming, IdNaming, arrow_schema, defaults
from skipstone.lake.conform import Evolution, conform
from skipstone.lake.files import Files
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.scan.projection import Projection
from skipstone.scan.reader import FileReader
from skipstone.store.store import open_store


def reader(path: Path, naming: FieldNaming, route: Any) -> FileReader:
    store = open_store(path.parent)[0]
    entry = next(entry for entry in store.list() if entry.key == path.name)
    return FileReader.open(Files(store, naming=naming), entry, {}, route, False)


def read(
    path: Path, naming: FieldNaming, schema: Schema, paths: list[tuple[str, ...]], route: Any, rows: RowSet
) -> pa.Table:
    """Rows of both row groups, as the reader gives them to the lake."""
    found = reader(path, naming, route)
    wanted = Projection.of(arrow_schema(schema), paths)
    evolution = Evolution(defaults(schema))
    half = rows.total // 2
    parts = []
    for group in (0, 1):
        mine = [row - group * half for row in rows if row // half == group]
        if mine:
            chosen = RowSet.from_ranges(half, mine, [row + 1 for row in mine])
            table = found._decoded(found.fetch(group, chosen, wanted))
            parts.append(conform(table, wanted.schema, path=str(path), evolution=evolution))
    return pa.concat_tables(parts)


# -- names -------------------------------------------------------------------------------------


def stored(table: pa.Table) -> ParquetMetadata:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sk.read_metadata(io.BytesIO(sink.getvalue()))


def f(name: str, field_id: int, type: pa.DataType | None = None) -> pa.Field:
    return pa.field(name, type or pa.int64(), metadata={"PARQUET:field_id": str(field_id)})


def paths(naming: FieldNaming | IdNaming, table: pa.Table) -> list[tuple[str, ...]]:
    return [leaf.path for leaf in naming.apply(stored(table)).leaves]


def values(path: Path, naming: FieldNaming, schema: Schema) -> list[Any]:
    every = [(name,) for name in arrow_schema(schema).names]
    total = RowSet.all(sk.read_metadata(path).num_rows)
    tables = [read(path, naming, schema, every, route, total) for route in ("slice", "pyarrow")]
    assert tables[0].equals(tables[1])
    assert tables[0].schema == arrow_schema(schema)
    return tables[0].column(0).to_pylist()
