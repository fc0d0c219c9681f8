"""DuckDB knows how many rows a lake has, and so orders joins of lakes as those of tables in memory."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from skipstone.bridge import engines

FACTS = 30_000


@pytest.fixture(scope="module")
def tables() -> dict[str, pa.Table]:
    """A star of facts and dimensions, and facts that share few values with others, whose join is large."""
    rng = np.random.default_rng(5)
    return {
        "days": pa.table({"d": np.arange(1_000), "week": np.arange(1_000) // 7}),
        "items": pa.table({"i": np.arange(20), "name": [f"n{number}" for number in range(20)]}),
        "people": pa.table({"p": np.arange(5_000), "status": np.arange(5_000) % 5}),
        "sales": pa.table(
            {
                "s_item": rng.integers(0, 20, FACTS),
                "s_day": rng.integers(0, 1_000, FACTS),
                "s_person": rng.integers(0, 5_000, FACTS),
            }
        ),
        "stock": pa.table({"k_item": rng.integers(0, 20, FACTS), "k_day": rng.integers(0, 1_000, FACTS)}),
    }


@pytest.fixture(scope="module")
def lakes(tables: Mapping[str, pa.Table], tmp_path_factory: pytest.TempPathFactory) -> dict[str, sk.Lake]:
    root = tmp_path_factory.mktemp("lakes")
    for name, table in tables.items():
        (root / name).mkdir()
        for number in range(4):
            part = table.slice(number * len(table) // 4, len(table) // 4)
            pq.write_table(part, root / name / f"{number}.parquet", row_group_size=2_000)
    return {name: sk.open(root / name) for name in tables}


QUERY = """
    SELECT name, a.week, count(*) AS n FROM sales JOIN stock ON s_item = k_item JOIN items ON i = s_item
    JOIN people ON s_person = p JOIN days AS a ON s_day = a.d JOIN days AS b ON k_day = b.d
    WHERE a.week = b.week GROUP BY ALL ORDER BY n DESC, name, 2 LIMIT 5"""


def operators(plan: Any) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan["children"]:
        yield from operators(child)


def explained(connection: duckdb.DuckDBPyConnection, query: str) -> list[dict[str, Any]]:
    (text,) = [text for _, text in connection.execute(f"EXPLAIN (FORMAT json) {query}").fetchall()]
    return [one for root in json.loads(text) for one in operators(root)]


def estimates(connection: duckdb.DuckDBPyConnection, query: str) -> list[int]:
    """What DuckDB expects of its scans."""
    scans = [one for one in explained(connection, query) if "ARROW_SCAN" in str(one["extra_info"])]
    return [int(one["extra_info"]["Estimated Cardinality"]) for one in scans]


@pytest.mark.parametrize("route", ["auto", "slices"])
def test_joins_of_lakes_are_planned_as_those_of_tables(
    tables: Mapping[str, pa.Table], lakes: Mapping[str, sk.Lake], route: Any
) -> None:
    of_tables, of_lakes = duckdb.connect(), duckdb.connect()
    for name, table in tables.items():
        of_tables.register(name, table)
        lakes[name].to_duckdb(of_lakes, name, route=route)
        assert estimates(of_lakes, f"FROM {name}") == [len(table)]
    plans = [
        [
            (one["name"], one["extra_info"].get("Conditions"), one["extra_info"].get("Estimated Cardinality"))
            for one in found
        ]
        for found in (explained(of_tables, QUERY), explained(of_lakes, QUERY))
    ]
    assert sum(name == "HASH_JOIN" for name, *_ in plans[0]) == 5
    assert plans[1] == plans[0]
    assert of_lakes.sql(QUERY).fetchall() == of_tables.sql(QUERY).fetchall()


def make_files(root: Path, rows: list[int]) -> sk.Lake:
    root.mkdir(exist_ok=True)
    for number, count in enumerate(rows):
        pq.write_table(pa.table({"id": np.arange(count) + 1_000 * number}), root / f"{number:03}.parquet")
    return sk.open(root)


def test_few_footers_are_read_for_an_estimate(tmp_path: Path) -> None:
    schema = make_files(tmp_path / "lake", [100] * 80).schema
    lake = sk.open(tmp_path / "lake", schema=schema)
    connection = duckdb.connect()
    before = lake.io
    lake.to_duckdb(connection, "lake")
    about = pytest.approx(8_000, rel=0.01)
    assert estimates(connection, "FROM lake") == [about]
    assert 20 < (lake.io - before).requests <= 32
    before = lake.io
    assert estimates(connection, "FROM lake AS a JOIN lake AS b USING (id)") == [about, about]
    assert (lake.io - before).requests == 0
    lake.index.build(engine="local")
    indexed = sk.open(tmp_path / "lake")
    indexed.to_duckdb(connection, "indexed")
    before = indexed.access.io()
    assert estimates(connection, "FROM indexed") == [8_000]
    assert (indexed.access.io() - before).requests == 0


def test_an_estimate_follows_the_lake_and_its_condition(tmp_path: Path) -> None:
    lake = make_files(tmp_path / "lake", [100] * 4)
    connection = duckdb.connect()
    lake.to_duckdb(connection, "lake")
    lake.to_duckdb(connection, "part", where="id >= 3000")
    assert estimates(connection, "FROM lake") == [400]
    assert estimates(connection, "FROM part") == [100]
    make_files(tmp_path / "lake", [100] * 6)
    assert estimates(connection, "FROM lake") == [400]
    lake.refresh()
    assert estimates(connection, "FROM lake") == [600]
    assert estimates(connection, "FROM part") == [300]


def test_an_estimate_changes_no_answer(tmp_path: Path) -> None:
    """Files that are sampled can have far more or fewer rows for their size than the others."""
    counts = [1 if number % 3 else 900 for number in range(96)]
    lake = make_files(tmp_path / "lake", counts)
    connection = duckdb.connect()
    lake.to_duckdb(connection, "lake")
    assert estimates(connection, "FROM lake") != [sum(counts)]
    last = "SELECT id FROM lake ORDER BY id DESC LIMIT 3 OFFSET 7000"
    assert connection.sql("SELECT count(*), count(DISTINCT id) FROM lake").fetchall() == [(sum(counts),) * 2]
    assert len(connection.sql(last).fetchall()) == 3
    assert connection.sql("SELECT count(*) FROM lake JOIN lake AS b USING (id)").fetchall() == [
        (sum(counts),)
    ]


def test_tables_know_their_rows(tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg")
    table = sk.catalog(tmp_path).create_table("db.t", pa.schema([("id", pa.int64())]), key=["id"])
    connection = duckdb.connect()
    table.to_duckdb(connection, "t")
    assert connection.sql("FROM t").fetchall() == []
    table.append(pa.table({"id": range(500)}))
    assert estimates(connection, "FROM t") == [500]
    table.delete("id < 100")
    assert 400 <= estimates(connection, "FROM t")[0] <= 500
    assert connection.sql("SELECT count(*) FROM t").fetchall() == [(400,)]


def test_files_that_cannot_be_read_fail_the_query(tmp_path: Path) -> None:
    lake = make_files(tmp_path / "lake", [100] * 4)
    (tmp_path / "lake" / "002.parquet").write_bytes(b"PAR1, and nothing else, PAR1")
    connection = duckdb.connect()
    lake.refresh().to_duckdb(connection, "lake")
    with pytest.raises(Exception, match=r"002\.parquet"):
        connection.sql("FROM lake").fetchall()


def test_other_versions_of_duckdb_are_not_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The class that tells the number of rows isn't public."""
    lake = make_files(tmp_path / "lake", [100] * 4)
    monkeypatch.setitem(sys.modules, "duckdb._sources.pyarrow", None)
    engines._counted_source.cache_clear()
    try:
        connection = duckdb.connect()
        lake.to_duckdb(connection, "lake")
        assert connection.sql("SELECT count(*) FROM lake WHERE id >= 3000").fetchall() == [(100,)]
    finally:
        engines._counted_source.cache_clear()
