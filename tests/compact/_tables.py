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
