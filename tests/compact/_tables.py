"""Tables to compact, and what is compared before and after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

import skipstone as sk


def registered(metadata: str, folder: Path) -> sk.Table:
    """Open a table, given by its metadata file, in a catalog of its own."""
    catalog = sk.catalog(folder / "catalog")
    catalog.iceberg.create_namespace_if_not_exists("db")
    catalog.iceberg.register_table("db.t", metadata)
    return catalog.open("db.t")


def rows_of(table: sk.Table, snapshot: Any = None) -> list[str]:
    """All rows in a canonical order; NaNs are equal, zeros of different sign are not."""
    found: pa.Table = table.scan(snapshot=snapshot).to_arrow()
    return sorted(map(repr, found.select(sorted(found.column_names)).to_pylist()))


def live_keys(table: sk.Table) -> set[Any]:
    """Spec and partition of each live data file."""
    return set(table.inventory.everything[0].keys)


def numbered(folder: Path, files: int, *, rows: int = 10, **options: Any) -> sk.Table:
    """A table of ids that count up, and texts p in turn a and b, in so many appended files."""
    schema = pa.schema([("id", pa.int64()), ("p", pa.string())])
    table = sk.catalog(folder / "w").create_table("db.t", schema, **options)
    for number in range(files):
        append_ids(table, number * rows, number * rows + rows)
    table.refresh()
    return table


def append_ids(table: sk.Table, first: int, last: int) -> None:
    """Append rows with these ids through pyiceberg."""
    ids = range(first, last)
    table.table.append(pa.table({"id": pa.array(ids, pa.int64()), "p": ["ab"[n % 2] for n in ids]}))


def ids_of(table: sk.Table) -> list[int]:
    """All ids, in order."""
    found: list[int] = sorted(table.scan().to_arrow()["id"].to_pylist())
    return found


def data_paths(folder: Path) -> set[str]:
    """All Parquet files below a folder."""
    return {str(path) for path in folder.rglob("*.parquet")}
