"""Small keyed tables, and a world of key columns of every type."""

from __future__ import annotations

import datetime
import decimal
import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import StaticTable

import skipstone as sk

ROWS = 400
DAY = datetime.date(1960, 1, 1)
EVERY_TYPE = pa.table(
    {
        "small": pa.array(range(-200, ROWS - 200), pa.int32()),
        "big": pa.array([n * 3 - 500 for n in range(ROWS)], pa.int64()),
        "text": pa.array([f"k{n % 70}\0{n}" for n in range(ROWS)]),
        "day": pa.array([DAY + datetime.timedelta(n) for n in range(ROWS)]),
        "clock": pa.array([n * 1_000 for n in range(ROWS)], pa.time64("us")),
        "local": pa.array([n * 1_000 - 90_000 for n in range(ROWS)], pa.timestamp("us")),
        "instant": pa.array([n * 1_000 - 90_000 for n in range(ROWS)], pa.timestamp("us", "UTC")),
        "price": pa.array([decimal.Decimal(n - 50) / 100 for n in range(ROWS)], pa.decimal128(10, 2)),
        "wide": pa.array([decimal.Decimal(n - 50) * 10**18 for n in range(ROWS)], pa.decimal128(30, 2)),
        "uuid": pa.array([uuid.UUID(int=n * 7919 << 60).bytes for n in range(ROWS)], pa.uuid()),
        "fixed": pa.array([n.to_bytes(5, "little") for n in range(ROWS)], pa.binary(5)),
        "bytes": pa.array([b"x" * (n % 5) + n.to_bytes(3, "big") for n in range(ROWS)], pa.binary()),
        "flag": pa.array([n % 2 == 0 for n in range(ROWS)]),
    }
)
KEYS = (
    *([name] for name in EVERY_TYPE.column_names if name != "flag"),
    ["flag", "small"],
    ["text", "big"],
    ["big", "text"],
    ["uuid", "fixed"],
    ["bytes", "text", "wide"],
    ["fixed", "price", "day"],
)
"""Keys of one and several columns; together they use every type."""

SCHEMA = pa.schema({"id": pa.int64(), "v": pa.int64(), "s": pa.string()})


def rows(ids: Sequence[int], v: int = 0, s: str | None = "a") -> pa.Table:
    """Rows of ``SCHEMA``; ``v`` is added to ten times the id."""
    return pa.table({"id": list(ids), "v": [10 * n + v for n in ids], "s": [s] * len(ids)}, SCHEMA)


def new_table(folder: Path, name: str = "db.t", **options: Any) -> sk.Table:
    """Create a table of ``SCHEMA`` whose key is ``id``."""
    schema = options.pop("schema", SCHEMA)
    return sk.catalog(folder).create_table(name, schema, key=options.pop("key", ["id"]), **options)


def content(table: sk.Table) -> list[dict[str, Any]]:
    """All rows by their key."""
    return sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"])


def as_others_read(
    table: sk.Table, reader: Any = None, snapshot: int | None = None
) -> tuple[pa.Table, pa.Table]:
    """The rows of the current metadata file as pyiceberg and Polars read them, in any order.

    The native reader of Polars supports only delete files of one data file each.
    """
    import polars as pl

    location = table.table.metadata_location
    os.environ["POLARS_ICEBERG_PLANNER"] = "pyiceberg"
    static = StaticTable.from_metadata(location)
    frame = pl.scan_iceberg(location, reader_override=reader, snapshot_id=snapshot).collect()
    return static.scan(snapshot_id=snapshot).to_arrow(), frame.to_arrow()


def sorted_rows(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows in the order of their first column, with the types of a schema."""
    cast = table.select(schema.names).cast(schema)
    return cast.take(pc.sort_indices(cast, sort_keys=[(schema.names[0], "ascending")])).combine_chunks()
