"""Random CSV and JSON files are read as the rows that were written, and as DuckDB reads them."""

from __future__ import annotations

import datetime as dt
import json
import random
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from skipstone.store.store import open_root
from skipstone.write.readers import open_files

SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("flag", pa.bool_()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us")),
        ("price", pa.decimal128(12, 3)),
        ("text", pa.string()),
        ('odd, "name"', pa.string()),
    ]
)
TEXTS = (
    "",
    "a",
    "NULL",
    "null",
    "NA",
    "a,b",
    'say "hi"',
    "two\nlines",
    "two\r\nlines",
    " padded ",
    "007",
    "ü→𝄞",
)
"""Texts that a reader could take for something else."""
ENDS = ("\n", "\r\n", "\n\n")


DUCKDB = ("BIGINT", "DOUBLE", "BOOLEAN", "DATE", "TIMESTAMP", "DECIMAL(12,3)", "VARCHAR", "VARCHAR")


def value(type: pa.DataType, r: random.Random) -> Any:
    if r.random() < 0.15:
        return None
    if pa.types.is_int64(type):
        return r.choice([0, -1, 2**63 - 1, -(2**63), r.randrange(10**6)])
    if pa.types.is_float64(type):
        return r.choice([0.0, -1.5, 1e300, 5e-324, 0.1, float(r.randrange(100))])
    if pa.types.is_boolean(type):
        return r.random() < 0.5
    if pa.types.is_date32(type):
        return dt.date.fromordinal(r.randrange(1, 3_652_059))
    if pa.types.is_timestamp(type):
        return dt.datetime(1600, 1, 1) + dt.timedelta(
            days=r.randrange(400_000), microseconds=r.randrange(10**11)
        )
    if pa.types.is_decimal(type):
        return Decimal(r.randrange(-(10**12) + 1, 10**12)).scaleb(-3)
    return r.choice(TEXTS)


def tables(r: random.Random) -> list[pa.Table]:
    """Tables that have some of the columns each, in any order."""
    made = []
    for _ in range(r.randrange(1, 4)):
        names = r.sample(SCHEMA.names, r.randrange(2, len(SCHEMA) + 1))
        rows = r.randrange(8)
        columns = {
            n: pa.array([value(SCHEMA.field(n).type, r) for _ in range(rows)], SCHEMA.field(n).type)
            for n in names
        }
        made.append(pa.table(columns))
    return made


def read(root: Path, format: str, schema: pa.Schema | None) -> pa.Table:
    store = open_root(root)
    files = open_files(store, format, store.list(), schema=schema)
    return pa.Table.from_batches(files.batches(), files.schema)


def expected(made: list[pa.Table], names: list[str]) -> list[dict[str, Any]]:
    return [{name: row.get(name) for name in names} for table in made for row in table.to_pylist()]


def cell(value: Any, r: random.Random) -> str:
    if value is None:
        return ""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    needed = not text or any(sign in text for sign in ',"\r\n')
    return '"{}"'.format(text.replace('"', '""')) if needed or r.random() < 0.2 else text


def write_csv(path: Path, table: pa.Table, r: random.Random, ends: Sequence[str]) -> None:
    rows = [table.column_names, *([row[name] for name in table.column_names] for row in table.to_pylist())]
    path.write_bytes("".join(f"{','.join(cell(v, r) for v in row)}{r.choice(ends)}" for row in rows).encode())


def duckdb_rows(source: str, names: list[str]) -> list[dict[str, Any]]:
    chosen = ", ".join('"{}"'.format(name.replace('"', '""')) for name in names)
    return duckdb.sql(f"SELECT {chosen} FROM {source}").arrow().read_all().to_pylist()


@pytest.mark.parametrize("seed", range(25))
def test_csv(seed: int, tmp_path: Path) -> None:
    r = random.Random(seed)
    made = tables(r)
    for at, table in enumerate(made):
        write_csv(tmp_path / f"{at}.csv", table, r, ENDS[:1] if seed < 10 else ENDS)
    names = [name for name in SCHEMA.names if any(name in table.column_names for table in made)]
    r.shuffle(names)
    chosen = names[: r.randrange(1, len(names) + 1)]
    schema = pa.schema([SCHEMA.field(name) for name in chosen])
    found = read(tmp_path, "csv", schema)
    assert found.to_pylist() == expected(made, chosen)
    if seed < 10:
        types = ", ".join(f"'{name}': '{DUCKDB[SCHEMA.get_field_index(name)]}'" for name in chosen)
        options = (
            "union_by_name=true, header=true, delim=',', quote='\"', escape='\"', allow_quoted_nulls=false"
        )
        theirs = duckdb_rows(f"read_csv('{tmp_path}/*.csv', types={{{types}}}, {options})", chosen)
        assert found.to_pylist() == theirs
    # Inferred types hold the same values, unless text looks like them.
    inferred = read(tmp_path, "csv", None)
    assert inferred.num_rows == found.num_rows
    for name in set(chosen) - {"text", 'odd, "name"'}:
        assert inferred[name].cast(SCHEMA.field(name).type) == found[name]


@pytest.mark.parametrize("seed", range(25))
def test_json(seed: int, tmp_path: Path) -> None:
    r = random.Random(seed)
    made = tables(r)
    for at, table in enumerate(made):
        lines = []
        for row in table.to_pylist():
            present = {k: v for k, v in row.items() if v is not None or r.random() < 0.5}
            if r.random() < 0.5:
                present["other"] = r.choice([1, "x", {"y": [1]}, None])
            lines.append(json.dumps(present, default=str, ensure_ascii=r.random() < 0.5))
        (tmp_path / f"{at}.json").write_text("\n".join(lines) + r.choice(ENDS))
    names = r.sample(SCHEMA.names, r.randrange(1, len(SCHEMA) + 1))
    found = read(tmp_path, "json", pa.schema([SCHEMA.field(name) for name in names]))
    assert found.to_pylist() == expected(made, names)
    inferred = read(tmp_path, "json", None)
    for name in {"n", "x", "flag", "text"} & {*names} & {*inferred.column_names}:
        assert inferred[name].cast(SCHEMA.field(name).type) == found[name]
