"""The route from a plan to an engine: which is taken and why, and what prevents the engine's own reader."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import datafusion
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.store import MemoryStore

import skipstone as sk
from skipstone.bridge import routes
from skipstone.bridge.dataset import LakeScanner
from skipstone.bridge.engines import DuckDBDataset, DuckDBScanner
from tests.corpus._old_writers import KEPT

ROWS, FILES = 4_000, 4
EACH = ROWS // FILES


def rows(first: int = 0, count: int = ROWS) -> pa.Table:
    ids = range(first, first + count)
    return pa.table(
        {"id": pa.array(ids, pa.int64()), "s": [f"text {number * 7919 % 9973}" for number in ids]}
    )


def write(root: Path, make: Callable[[int], pa.Table] = lambda number: rows(number * EACH, EACH)) -> sk.Lake:
    root.mkdir(parents=True, exist_ok=True)
    for number in range(FILES):
        path = root / f"part-{number}.parquet"
        pq.write_table(make(number), path, row_group_size=500, max_rows_per_page=50, write_page_index=True)
    return sk.open(root)


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> sk.Lake:
    # So that a small lake has large questions.
    monkeypatch.setattr(routes, "_SMALL", 0)
    return write(tmp_path / "lake")


def narrow_but_first(number: int) -> pa.Table:
    made = rows(number * EACH, EACH)
    return made.cast(pa.schema([("id", pa.int32()), ("s", pa.string())])) if number else made


def duckdb_rows(lake: sk.Lake, **options: Any) -> list[int]:
    relation = lake.to_duckdb(duckdb.connect(), "lake", **options)
    return [row[0] for row in relation.order("id").project("id").fetchall()]


def datafusion_rows(lake: sk.Lake, **options: Any) -> list[int]:
    context = lake.to_datafusion(name="lake", **options)
    found: list[int] = context.sql("SELECT id FROM lake ORDER BY id").to_pydict()["id"]
    return found


def polars_rows(lake: sk.Lake, where: str | None = None, **options: Any) -> list[int]:
    frame = lake.to_polars_lazy(**options)
    frame = frame if where is None else frame.filter(sk.parse(where).to_polars())
    return sorted(frame.select("id").collect()["id"].to_list())


ASK = {"duckdb": duckdb_rows, "datafusion": datafusion_rows, "polars": polars_rows}


@pytest.mark.parametrize("engine", ASK)
def test_the_route_follows_the_bytes_that_a_question_leaves(lake: sk.Lake, engine: Any) -> None:
    few, most = "id >= 700 and id < 760", "id >= 250"
    assert "page slices, 1 file: 20 % of the kept" in lake.scan(few).explain(engine=engine)
    assert "the engine's own reader, 4 files: 94 % of the kept row groups" in lake.scan(most).explain(
        engine=engine
    )
    assert "page slices, 4 files: requested" in lake.scan(most).explain(engine=engine, route="slices")
    lake.scan(few).plan()  # reads footers
    lake.scan(most).plan()
    before = lake.io
    assert ASK[engine](lake, where=most) == [*range(250, ROWS)]
    assert (lake.io - before).bytes == 0, "the engine reads by itself"
    assert ASK[engine](lake, where=few) == [*range(700, 760)]
    whole = sum(file.size for file in lake.files)
    assert 0 < (lake.io - before).bytes < whole / 20
    assert ASK[engine](lake, where=few, route="reader") == [*range(700, 760)]
    assert ASK[engine](lake, where=most, route="slices") == [*range(250, ROWS)]


def test_datafusion_plans_each_query_without_a_condition(lake: sk.Lake) -> None:
    lake.scan().plan()  # reads footers
    before = lake.io
    assert datafusion_rows(lake) == [*range(ROWS)]
    assert (lake.io - before).bytes > 0


def test_duckdb_takes_the_route_of_each_query(lake: sk.Lake) -> None:
    connection = duckdb.connect()
    lake.to_duckdb(connection, "lake")

    def read(where: str) -> tuple[list[int], int]:
        lake.scan(where).plan()
        before = lake.io
        rows = connection.sql(f"SELECT id FROM lake WHERE {where} ORDER BY id").fetchall()
        return [row[0] for row in rows], (lake.io - before).bytes

    assert read("id >= 250") == ([*range(250, ROWS)], 0)
    found, of_pages = read("id BETWEEN 700 AND 759")
    assert found == [*range(700, 760)]
    assert of_pages > 0
    connection.sql("SELECT count(*) FROM lake").fetchall()
    Path(lake.files[0].path).write_bytes(Path(lake.files[1].path).read_bytes())
    with pytest.raises(Exception, match=r"part-0.parquet: file has changed"):
        connection.sql("SELECT s FROM lake").fetchall()


def test_columns_that_differ_in_case_are_read_as_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "_SMALL", -(2**40))
    lake = write(tmp_path, lambda number: pa.table({"id": [number], "v": [number], "V": [10 * number]}))
    connection = duckdb.connect()
    lake.to_duckdb(connection, "lake")
    assert connection.sql('SELECT sum("V_1"), sum(v) FROM lake WHERE "V_1" > 5').fetchall() == [(60, 6)]
    with pytest.raises(sk.UsageError, match="differ only in case"):
        lake.to_duckdb(connection, "reader", route="reader")


@pytest.mark.parametrize("engine", ["duckdb", "datafusion"])
def test_a_condition_without_a_match_makes_an_empty_table(lake: sk.Lake, engine: str) -> None:
    assert ASK[engine](lake, where="id < 0", route="reader") == []


def test_duckdb_gets_no_scanner_of_pyarrow(lake: sk.Lake) -> None:
    """Its threads can crash a process that ends before all rows are read."""
    for where in ("id >= 250", "id BETWEEN 700 AND 759"):
        dataset = DuckDBDataset(lake, sk.parse(where))
        scanner = dataset.scanner(["id"])
        assert isinstance(scanner, LakeScanner)
        assert isinstance(scanner, DuckDBScanner) == (where == "id >= 250")
        assert scanner.to_reader().read_all().equals(scanner.to_table())
        assert scanner.count_rows() == lake.scan(where).count()


def test_types_that_duckdb_passes_as_others_are_read_as_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "_SMALL", -(2**40))
    keys = pa.array([bytes([number]) * 16 for number in range(4)], pa.uuid())
    times = pa.array([number * 1_000_000_007 for number in range(4)], pa.time64("ns"))
    texts = pa.array(["a", "b", "a", None]).dictionary_encode()
    wide, days = pa.array(["a", "ü", "", None], pa.large_string()), pa.array([date(2026, 1, 1)] * 4)
    columns = {"id": range(4), "u": keys, "t": times, "k": texts, "w": wide, "d": days}
    lake = write(tmp_path, lambda _: pa.table(columns))
    connection = duckdb.connect()
    lake.to_duckdb(connection, "own")
    lake.to_duckdb(connection, "slices", route="slices")
    lake.scan().plan()
    for column in columns:
        query = f"SELECT {column}, typeof({column}) FROM {{}} ORDER BY ALL"
        before = lake.io
        own = connection.sql(query.format("own")).fetchall()
        assert ((lake.io - before).bytes == 0) == (column not in {"u", "k"}), column
        assert own == connection.sql(query.format("slices")).fetchall()
        assert len(own) == 4 * FILES


def test_lists_of_values_arrive_from_sql_engines(lake: sk.Lake) -> None:
    connection, context = duckdb.connect(), lake.to_datafusion(name="lake")
    lake.to_duckdb(connection, "lake")
    query = "SELECT s FROM lake WHERE id IN (3, 1777, 5000) ORDER BY s"
    lake.scan("id < 0").plan()
    for ask in (lambda: connection.sql(query).fetchall(), lambda: context.sql(query).collect()):
        before = lake.io
        ask()
        assert 0 < (lake.io - before).bytes < sum(file.size for file in lake.files) / 4


def test_obstacles_are_named(tmp_path: Path) -> None:
    def refuses(lake: sk.Lake, engine: str, text: str, **options: Any) -> None:
        with pytest.raises(sk.UsageError, match=rf"own reader can't run this scan: .*{text}"):
            ASK[engine](lake, route="reader", **options)
        assert len(ASK[engine](lake, route="slices", **options)) == len(ASK[engine](lake, **options)) > 0

    for engine in ASK:
        store = MemoryStore()
        for path in write(tmp_path / engine).files:
            store.put(f"lake/{Path(path.path).name}", Path(path.path).read_bytes())
        refuses(sk.open("lake", store=store), engine, "object store")
        hive = tmp_path / f"{engine}-hive"
        write(hive / "day=1")
        if engine != "polars":
            refuses(sk.open(hive), engine, "values of day are in the names of directories")
        wider = tmp_path / f"{engine}-wider"
        refuses(write(wider, narrow_but_first), engine, "different schemas")
        odd = tmp_path / f"{engine}-[odd]"
        refuses(write(odd), engine, "a file name as a glob pattern")
    days = sk.open(hive)
    with pytest.raises(sk.UsageError, match="values of day are in the names of directories"):
        days.to_polars_lazy(route="reader")
    few = days.scan("id < 3000", columns=["id"])
    assert "own reader, 3 files" in few.explain(engine="polars", route="reader")
    assert "values of day" not in few.explain(engine="polars")
    assert polars_rows(days, "id < 3000") == [*range(3000)]
    inside = write(tmp_path / "inside", lambda n: pa.table({"id": [n], "st": [{"f": float("nan")}]}))
    for engine in ("duckdb", "datafusion"):
        refuses(inside, engine, "loses NaN inside column st")
    assert polars_rows(inside, route="reader") == [0, 1, 2, 3]
    moments = pa.array([0, 1], pa.timestamp("us", "UTC"))
    times = write(tmp_path / "times", lambda n: pa.table({"id": [n, n + 4], "ts": moments}))
    refuses(times, "duckdb", "session's time zone", where="ts = '1970-01-01'")
    with pytest.raises(sk.UsageError, match="unknown route 'driver'"):
        times.to_polars_lazy(route="driver")  # type: ignore[arg-type]
    with pytest.raises(sk.UsageError, match="unknown engine 'sqlite'"):
        times.scan().explain(engine="sqlite")  # type: ignore[arg-type]


def test_a_table_is_read_by_skipstone(tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg")
    table = sk.catalog(tmp_path).create_table("db.t", rows(0, 1).schema, key=["id"])
    table.append(rows(0, 10))
    for engine, ask in ASK.items():
        with pytest.raises(sk.UsageError, match="columns are mapped by field id"):
            ask(table, route="reader")
        assert ask(table) == [*range(10)], engine


def test_nan_survives_the_pruning_of_every_reader(tmp_path: Path) -> None:
    """Bounds leave NaN out: the only value of the first file seems to be 1."""
    lake = write(tmp_path, lambda n: pa.table({"id": [n, n + 10], "f": [1.0, [float("nan"), 5.0][n > 0]]}))
    nan = "CAST('NaN' AS DOUBLE)"
    connection = duckdb.connect()
    lake.to_duckdb(connection, "lake", route="reader")
    context = lake.to_datafusion(name="lake", route="reader")
    frame = pl.SQLContext(lake=lake.to_polars_lazy(route="reader"))
    asks = {
        "duckdb": lambda text: connection.sql(text).to_arrow_table(),
        "datafusion": lambda text: context.sql(text).to_arrow_table(),
        "polars": lambda text: frame.execute(text.replace(nan, "('NaN'::DOUBLE)")).collect().to_arrow(),
    }
    for engine, ask in asks.items():
        for where, expected in {
            "f > 2": [10, 11, 12, 13],
            "NOT f < 7": [10],
            f"f = {nan}": [10],
            "f <> 1": [10, 11, 12, 13],
            "f NOT IN (1, 5)": [10],
        }.items():
            found = ask(f"SELECT id FROM lake WHERE {where} ORDER BY id")["id"].to_pylist()
            assert found == expected, (engine, where)
    default = datafusion.SessionContext()
    with pytest.raises(sk.UsageError, match="can read NaN of column f as another value unless"):
        lake.to_datafusion(default, "lake", route="reader")


@pytest.mark.parametrize("engine", ASK)
def test_a_changed_file_is_an_error(lake: sk.Lake, engine: str, tmp_path: Path) -> None:
    ask = ASK[engine]
    assert len(ask(lake, route="reader")) == ROWS
    pq.write_table(rows(0, 10), tmp_path / "lake" / "part-2.parquet")
    with pytest.raises(Exception, match=r"part-2\.parquet"):
        ask(lake, route="reader")
    lake.refresh()
    assert len(ask(lake, route="reader")) == ROWS - EACH + 10


def test_a_polars_frame_sees_a_refreshed_lake(lake: sk.Lake, tmp_path: Path) -> None:
    frame = lake.to_polars_lazy().select(pl.len())
    assert frame.collect().item() == ROWS
    pq.write_table(rows(ROWS, 10), tmp_path / "lake" / "part-9.parquet")
    assert frame.collect().item() == ROWS
    lake.refresh()
    assert frame.collect().item() == ROWS + 10


@pytest.mark.parametrize("route", ["auto", "slices", "reader"])
def test_rows_survive_bounds_that_wrap_around(route: Any, tmp_path: Path) -> None:
    """Polars computes ``x + 1`` of the upper bound, which becomes the smallest integer."""
    for number, last in enumerate((2**63 - 1, 50)):
        pq.write_table(
            pa.table({"x": pa.array([5, 30, 40, last], pa.int64())}), tmp_path / f"{number}.parquet"
        )
    frame = sk.open(tmp_path).to_polars_lazy(route=route)
    assert frame.filter(pl.col("x") + 1 > 25).collect()["x"].to_list() == [30, 40, 30, 40, 50]
    assert frame.filter(pl.col("x") * 2 > 70).collect()["x"].to_list() == [40, 40, 50]


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("pyarrow-4.0.1-dictionary", "shared IS NULL"),
        ("pyarrow-10.0.1-dictionary", "shared = 'e'"),
        ("polars-0.19.19-groups", "string IS NULL"),
        ("polars-0.20.10-groups", "category IS NULL"),
    ],
)
def test_no_reader_is_given_files_whose_statistics_are_wrong(
    monkeypatch: pytest.MonkeyPatch, name: str, where: str
) -> None:
    """DataFusion's own reader finds none of these rows, and Polars' not all."""
    monkeypatch.setattr(routes, "_SMALL", 0)
    lake = sk.open(KEPT / f"{name}.parquet")
    wanted = lake.scan(where, skipping=False).count()
    context = datafusion.SessionContext()
    context.register_parquet("own", str(KEPT / f"{name}.parquet"))
    assert context.sql(f"SELECT * FROM own WHERE {where}").count() < wanted
    lake.to_datafusion(context, "ours")
    assert context.sql(f"SELECT * FROM ours WHERE {where}").count() == wanted
    column = where.partition(" ")[0]
    condition = pl.col(column).is_null() if "NULL" in where else pl.col(column) == "e"
    assert lake.to_polars_lazy().filter(condition).collect().height == wanted
    with pytest.raises(sk.UsageError, match="statistics of an old writer are wrong"):
        lake.to_datafusion(context, "reader", route="reader")
