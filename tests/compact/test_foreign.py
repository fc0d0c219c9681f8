"""Tables that others wrote, compacted here, and read back by others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from tests.compact._tables import numbered
from tests.compact._writers import delete_positions, file_with, files_of

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("x", pa.float64()),
        ("s", pa.string()),
        ("parts", pa.list_(pa.struct([("a", pa.int32()), ("b", pa.string())]))),
    ]
)


def canonical(rows: pa.Table, *, lists: bool = True) -> list[str]:
    schema = SCHEMA if lists else SCHEMA.remove(4)
    return sorted(repr(row) for row in rows.select(schema.names).cast(schema).to_pylist())


def duckdb_file(path: Path, first: int, last: int) -> None:
    """A file without field ids."""
    duckdb.sql(
        f"""COPY (SELECT i AS id, TIMESTAMPTZ '2026-01-01' + i * INTERVAL 1 HOUR AS at,
        CASE i % 3 WHEN 0 THEN 'nan'::DOUBLE WHEN 1 THEN i / 7 END AS x, 'text ' || i % 5 AS s,
        CASE WHEN i % 4 > 0 THEN [{{a: i::INT, b: 'y'}}, NULL] END AS parts
        FROM range({first}, {last}) r(i)) TO '{path}' (FORMAT parquet)"""
    )


def polars_file(path: Path, first: int, last: int) -> None:
    ids = range(first, last)
    frame = pl.from_arrow(
        pa.table(
            [
                ids,
                pa.nulls(len(ids), SCHEMA.field("at").type),
                [n / 3 for n in ids],
                [None] * len(ids),
                [[{"a": n, "b": None}] for n in ids],
            ],
            schema=SCHEMA,
        )
    )
    assert isinstance(frame, pl.DataFrame)
    frame.write_parquet(path)


def test_files_of_other_writers(tmp_path: Path) -> None:
    """Added by pyiceberg: they have no field ids, so a name mapping finds their columns."""
    table = sk.catalog(tmp_path / "w").create_table("db.t", SCHEMA)
    paths = [tmp_path / f"{n}.parquet" for n in range(4)]
    for n, (write, path) in enumerate(zip((duckdb_file, polars_file) * 2, paths, strict=True)):
        write(path, n * 50, n * 50 + 50)
    table.table.add_files([str(path) for path in paths])
    table.table.append(pa.table([[900], [None], [1.5], ["pyiceberg"], [[]]], schema=SCHEMA))
    table.refresh()
    original = table.scan().to_arrow()
    before = canonical(original)
    assert len(before) == 201
    report = table.compact(table.plan_compaction(min_input_files=2), engine="local", checksums=True)
    assert (report.files_removed, report.files_added, report.rows) == (5, 1, 201)
    for old, new in (("s", "word"), ("x", "s"), ("word", "x")):
        with table.table.update_schema() as update:
            update.rename_column(old, new)
    table.refresh()
    (path,) = files_of(table).paths.to_pylist()
    # The new file has ids, and its old names.
    fields = {field.name: field.metadata[b"PARQUET:field_id"] for field in pq.read_schema(path[7:])}
    assert fields["s"] == str(table.table.schema().find_field("x").field_id).encode()
    swapped = table.scan().to_arrow().rename_columns({"x": "s", "s": "x"})
    assert canonical(swapped) == before
    theirs = table.table.refresh().scan().to_arrow().rename_columns({"x": "s", "s": "x"})
    # pyiceberg reads a NULL list of structs as an empty one.
    assert canonical(theirs, lists=False) == canonical(original, lists=False)
    # Files that stay where they are, because they are not the table's to delete.
    assert all(path.exists() for path in paths)


def test_readers_agree_after_a_compaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pyiceberg, DuckDB and Polars on a table with deletes before, and more after."""
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    table = numbered(tmp_path, 4, partition_by=["p"])
    delete_positions(table.table, {file_with(table, "id = 4 AND p = 'a'"): [0, 2]})
    table.refresh()
    report = table.compact(
        table.plan_compaction(strategy="sort", sort_by="id", rewrite_all=True), engine="local"
    )
    assert (report.rows_removed, report.files_added) == (2, 2)
    wanted = [n for n in range(40) if n not in (0, 4)]
    location = table.table.metadata_location.removeprefix("file://")
    paths = [path.removeprefix("file://") for path in files_of(table).paths.to_pylist()]
    found = {
        "pyiceberg": table.table.refresh().scan().to_arrow()["id"].to_pylist(),
        "polars": pl.scan_iceberg(location).select("id").collect()["id"].to_list(),
        "duckdb": [n for (n,) in duckdb.sql(f"SELECT id FROM read_parquet({paths})").fetchall()],
        "here": table.scan().to_arrow()["id"].to_pylist(),
    }
    assert {name: sorted(ids) for name, ids in found.items()} == dict.fromkeys(found, wanted)
    delete_positions(table.table, {file_with(table, "id = 2 AND p = 'a'"): [0]})
    assert sorted(table.table.refresh().scan().to_arrow()["id"].to_pylist()) == wanted[:1] + wanted[2:]


# -- memory ----------------------------------------------------------------------------------------

MEASURED = """
import resource, sys, skipstone as sk
table = sk.open("db.t", catalog=sys.argv[1])
options = {"strategy": sys.argv[2], "sort_by": ["id"]} if sys.argv[2] != "binpack" else {}
plan = table.plan_compaction(rewrite_all=True, **options)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
report = table.compact(plan, engine="local", threads=2, memory=int(sys.argv[3]))
print(report.rows, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["binpack", "sort", "hilbert"])
def test_a_group_larger_than_memory(strategy: str, tmp_path: Path) -> None:
    """A gigabyte of rows in one group, of which 128 MiB may be held."""
    table = sk.catalog(tmp_path / "w").create_table(
        "db.t", pa.schema([("id", pa.int64()), ("s", pa.string())])
    )
    rows, files = 500_000, 8
    words = pa.array([f"{n * 2654435761 % 2**32:032x}" * 8 for n in range(rows)])
    for n in range(files):
        ids = pa.array([(m * files + n) * 7919 % (rows * files) for m in range(rows)], pa.int64())
        table.table.append(pa.table([ids, words], names=["id", "s"]))
    assert words.nbytes * files > 1_000_000_000
    del words
    environment: dict[str, Any] = {"capture_output": True, "text": True, "check": True}
    command = [sys.executable, "-c", MEASURED, str(tmp_path / "w"), strategy, str(128 << 20)]
    found = subprocess.run(command, **environment).stdout.split()
    written, grown = map(int, found)
    assert written == rows * files
    # Mebibytes: the rows held, and what reading, sorting and writing a row group take.
    assert grown < 700, found
    table.refresh()
    assert table.scan("id = 77").count() == 1
