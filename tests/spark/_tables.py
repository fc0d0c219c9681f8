"""Iceberg tables for tests that write into them: made in an embedded catalog, read back by others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.table import Table

import skipstone as sk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("name", pa.string()),
        ("ts", pa.timestamp("us", "UTC")),
        ("x", pa.float64()),
    ]
)
ROWS = (
    "id",
    "if(id % 7 = 0, null, concat('n', id % 5)) name",
    "timestamp_seconds(1700000000 + id * 3000) ts",
    "if(id % 9 = 0, double('NaN'), if(id % 4 = 0, null, id / 3.0D)) x",
)


def warehouse(root: Path) -> Any:
    return sk.catalog(f"{root}/ware/")


def iceberg(root: Path, name: str = "db.t") -> Table:
    """A table as pyiceberg has it now."""
    return warehouse(root).iceberg.load_table(name)


def frame(spark: SparkSession, start: int, stop: int, parts: int = 2) -> Any:
    return spark.range(start, stop, 1, parts).selectExpr(*ROWS)


def rows(found: Any) -> list[str]:
    """Rows in an order of their own, to be compared."""
    if hasattr(found, "toArrow"):
        found = found.toArrow()
    return sorted(map(repr, found.select(sorted(found.schema.names)).to_pylist()))


def read(root: Path, name: str = "db.t") -> list[str]:
    """A table's rows, on which pyiceberg and we agree."""
    theirs = iceberg(root, name).scan().to_arrow()
    ours = warehouse(root).open(name).scan().to_arrow()
    assert rows(theirs) == rows(ours)
    return rows(ours)


def stray(root: Path, name: str = "db.t") -> list[str]:
    """Data files that no snapshot has."""
    table = iceberg(root, name)
    known = {
        entry.data_file.file_path.removeprefix("file://")
        for snapshot in table.snapshots()
        for manifest in snapshot.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False)
    }
    folder = Path(table.location().removeprefix("file://")) / "data"
    return sorted(str(path) for path in folder.rglob("*") if path.is_file() and str(path) not in known)


def data_files(table: Table) -> list[Any]:
    snapshot = table.current_snapshot()
    manifests = [] if snapshot is None else snapshot.manifests(table.io)
    return [entry.data_file for one in manifests for entry in one.fetch_manifest_entry(table.io)]
