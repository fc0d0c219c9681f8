"""Engines that query a lake through Skipstone get the rows that they find in the same rows in memory.

Conditions and joins are random, and each is answered by every route. The oracle is the engine itself on an
Arrow table, so its own rules for NaN and NULL apply. ``SKIPSTONE_CASES`` sets the number of conditions.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import datafusion
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from skipstone.bridge import routes
from skipstone.scan.plan import ScanPlan
from skipstone.scan.scan import Scan
from tests.support.samples import sample

ROWS, FILES = 2_400, 8
NAN = math.nan
FLOATS = [NAN, math.inf, -math.inf, 0.0, -0.0, 1.5, -7.25, 3.0, 1e300]
TEXTS = ["", "a", "b%", "ab", "abc", "Z", "ü", "zz_top"]
DAY, TIME = date(2025, 12, 20), datetime(2025, 12, 20, 23, 30, tzinfo=UTC)


def make_rows() -> pa.Table:
    rng = random.Random("rows")

    def column(value: Callable[[int], Any], nulls: float = 0.1) -> list[Any]:
        return [None if rng.random() < nulls else value(n) for n in range(ROWS)]

    return pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "n": pa.array(column(lambda n: n // 10 + rng.randrange(3)), pa.int32()),
            "f": pa.array(column(lambda n: rng.choice([*FLOATS, n / 8])), pa.float64()),
            "g": pa.array(column(lambda n: rng.choice([NAN, 0.5, n / 4])), pa.float32()),
            "s": pa.array(column(lambda n: rng.choice(TEXTS) + (f"{n // 100:03}" if n % 2 else ""))),
            "d": pa.array(column(lambda n: DAY + timedelta(days=n // 100)), pa.date32()),
            "ts": pa.array(column(lambda n: TIME + timedelta(minutes=7 * n)), pa.timestamp("us", "UTC")),
            "m": pa.array(column(lambda n: Decimal(n) / 4), pa.decimal128(12, 2)),
            "b": pa.array(column(lambda n: n % 3 == 0), pa.bool_()),
            "st": pa.array(column(lambda n: {"x": n // 50, "y": f"y{n % 7}"}, 0.05)),
            "w": pa.array(column(lambda n: rng.choice([n, n, n, 2**63 - 1 - n, n - 2**63])), pa.int64()),
        }
    )


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    return make_rows()


@pytest.fixture(scope="module")
def lake(rows: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> sk.Lake:
    return written(rows, tmp_path_factory.mktemp("lake"))


def written(rows: pa.Table, root: Path) -> sk.Lake:
    each = ROWS // FILES
    for number in range(FILES):
        pq.write_table(
            rows.slice(number * each, each),
            root / f"part-{number}.parquet",
            row_group_size=150,
            max_rows_per_page=50,
            write_page_index=True,
        )
    return sk.open(root)


# -- SQL -----------------------------------------------------------------------------------------

LITERALS: dict[str, Callable[[random.Random], str]] = {
    "id": lambda rng: str(rng.randrange(-5, ROWS + 5)),
    "n": lambda rng: str(rng.randrange(0, 250)),
    "f": lambda rng: rng.choice(["CAST('NaN' AS DOUBLE)", "0.0", "-7.25", "1.5", "30.0", "200.0"]),
    "g": lambda rng: rng.choice(["CAST('NaN' AS REAL)", "CAST(0.5 AS REAL)", "CAST(100 AS REAL)"]),
    "s": lambda rng: "'" + rng.choice([*TEXTS, "a011", "ü007"]) + "'",
    "d": lambda rng: f"DATE '{DAY + timedelta(days=rng.randrange(-1, 26))}'",
    "ts": lambda rng: f"TIMESTAMP WITH TIME ZONE '{TIME + timedelta(minutes=rng.randrange(7 * ROWS))}'",
    "m": lambda rng: f"CAST({rng.randrange(0, 2_400) / 4} AS DECIMAL(12, 2))",
}


def sql(rng: random.Random, depth: int = 2) -> str:
    """A condition that DuckDB and DataFusion both parse."""
    if depth and rng.random() < 0.5:
        joint = rng.choice(["AND", "OR"])
        return f"({sql(rng, depth - 1)} {joint} {sql(rng, depth - 1)})"
    if depth and rng.random() < 0.15:
        return f"NOT ({sql(rng, depth - 1)})"
    name = rng.choice([*LITERALS, "b"])
    if name == "b":
        return rng.choice(["b", "NOT b", "b IS NULL"])
    literal = LITERALS[name]
    match rng.randrange(6):
        case 0:
            return f"{name} IS {rng.choice(['', 'NOT '])}NULL"
        case 1:
            drawn = [literal(rng) for _ in range(rng.randrange(1, 6))]
            # In lists, but not in comparisons, DataFusion distinguishes zeros by their sign.
            values = ", ".join(one for one in drawn if name != "f" or one != "0.0") or "1.5"
            return f"{name} {rng.choice(['', 'NOT '])}IN ({values})"
        case 2:
            return f"{name} BETWEEN {literal(rng)} AND {literal(rng)}"
        case 3 if name == "s":
            return rng.choice(["s LIKE 'a%'", "s LIKE '%b%'", "starts_with(s, 'ab')", "s NOT LIKE 'z%'"])
    return f"{name} {rng.choice(['=', '<>', '<', '<=', '>', '>='])} {literal(rng)}"


def canonical(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def questions(suite: str) -> Iterator[tuple[str, random.Random]]:
    for number in range(sample(suite)):
        rng = random.Random(f"{suite}:{number}")
        yield sql(rng), rng


def queries(suite: str) -> Iterator[str]:
    """Queries of {lake}: rows, columns without those of the condition, aggregates, joins and limits."""
    for where, rng in questions(suite):
        kind = rng.randrange(5)
        if kind == 0:
            yield f"SELECT * FROM {{lake}} WHERE {where}{rng.choice(['', ' ORDER BY id'])}"
        elif kind == 1:
            yield f"SELECT id, s FROM {{lake}} WHERE {where}"
        elif kind == 2:
            yield f"SELECT count(*) AS n, sum(n) AS total, min(ts) AS low FROM {{lake}} WHERE {where}"
        elif kind == 3:
            keys = ", ".join(f"({rng.randrange(ROWS)})" for _ in range(rng.randrange(1, 40)))
            yield (
                f"SELECT key, s, f FROM (VALUES {keys}) AS k(key) "
                f"JOIN {{lake}} AS e ON id = key WHERE {where}"
            )
        else:
            chosen = f"(SELECT id FROM {{lake}} WHERE {where})"
            yield f"SELECT a.id, b.d FROM {chosen} AS a JOIN {{lake}} AS b ON a.id = b.n WHERE b.id > 900"


@pytest.fixture(scope="module")
def flat(rows: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> sk.Lake:
    """The same rows without nested columns, as DuckDB and DataFusion may read them by themselves."""
    return written(rows.drop_columns("st"), tmp_path_factory.mktemp("flat"))


def agree(ask: Callable[[str], pa.Table], names: Sequence[str]) -> None:
    """Each query has the same answer from every name as from ``rows``."""
    found = 0
    for query in queries("bridges"):
        expected = canonical(ask(query.format(lake="rows")))
        for name in names:
            assert canonical(ask(query.format(lake=name))) == expected, (name, query)
        found += len(expected)
    assert found > 10 * sample("bridges")


def test_duckdb(lake: sk.Lake, flat: sk.Lake, rows: pa.Table) -> None:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    lake.to_duckdb(connection, "lake")
    flat.to_duckdb(connection, "slices", route="slices")
    flat.to_duckdb(connection, "reader", route="reader")
    flat.to_duckdb(connection, "condition", where="f > 1.5 OR f IS NULL OR id < 900", route="reader")
    connection.register("all_rows", rows)
    ask = lambda query: connection.sql(query).to_arrow_table()  # noqa: E731
    connection.execute("CREATE VIEW rows AS SELECT * FROM all_rows")
    agree(ask, ["lake"])
    connection.execute("CREATE OR REPLACE VIEW rows AS SELECT * EXCLUDE (st) FROM all_rows")
    agree(ask, ["slices", "reader"])
    connection.execute("CREATE OR REPLACE VIEW kept AS FROM rows WHERE f > 1.5 OR f IS NULL OR id < 900")
    count = "SELECT count(*) AS n, count(f) AS f, max(f) AS high FROM {}"
    assert canonical(ask(count.format("condition"))) == canonical(ask(count.format("kept")))


def test_duckdb_reads_each_query_s_files_by_itself(
    flat: sk.Lake, rows: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "_SMALL", -(2**40))
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'America/New_York'")
    flat.to_duckdb(connection, "lake")
    connection.register("rows", rows.drop_columns("st"))
    before = flat.io
    agree(lambda query: connection.sql(query).to_arrow_table(), ["lake"])
    assert (flat.io - before).bytes < 1_000 * sample("bridges"), "only metadata"


def test_duckdb_finds_a_dataset_by_its_variable(lake: sk.Lake, rows: pa.Table) -> None:
    events = lake.to_dataset()
    assert duckdb.sql("SELECT count(*) FROM events WHERE n BETWEEN 20 AND 30").fetchall() == [
        (duckdb.sql("SELECT count(*) FROM rows WHERE n BETWEEN 20 AND 30").fetchall()[0][0],)
    ]
    assert events.count_rows() == ROWS


def test_datafusion(lake: sk.Lake, flat: sk.Lake, rows: pa.Table) -> None:
    context = datafusion.SessionContext()
    lake.to_datafusion(context, "lake")
    context.register_dataset("named", lake.to_dataset())
    context.from_arrow(rows, "rows")
    agree(partial(_table, context), ["lake", "named"])
    context = flat.to_datafusion(name="reader", route="reader")
    flat.to_datafusion(context, "slices", route="slices")
    context.from_arrow(rows.drop_columns("st"), "rows")
    agree(partial(_table, context), ["slices", "reader"])


@pytest.mark.parametrize("route", ["slices", "reader"])
@pytest.mark.parametrize("engine", ["duckdb", "datafusion", "polars"])
def test_a_plan_that_keeps_too_little_is_caught(
    flat: sk.Lake, rows: pa.Table, engine: str, route: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Scan.plan

    def faulty(scan: Scan) -> ScanPlan:
        plan = whole(scan)
        return plan.changed(tasks=plan.tasks[:-1])

    monkeypatch.setattr(Scan, "plan", faulty)
    if engine == "polars":
        frame = flat.to_polars_lazy(route=route)
        assert frame.select(pl.len()).collect().item() == ROWS - ROWS // FILES
        return
    if engine == "duckdb":
        connection = duckdb.connect()
        flat.to_duckdb(connection, "faulty", route=route)
        connection.register("rows", rows.drop_columns("st"))
        ask = lambda query: connection.sql(query).to_arrow_table()  # noqa: E731
    else:
        context = flat.to_datafusion(name="faulty", route=route)
        context.from_arrow(rows.drop_columns("st"), "rows")
        ask = partial(_table, context)
    with pytest.raises(AssertionError, match="faulty"):
        agree(ask, ["faulty"])


def test_datafusion_sorts_and_joins_no_rows(lake: sk.Lake) -> None:
    ask = partial(_table, lake.to_datafusion(name="lake"))
    for where in ("id < 0", "id = -7 AND n > 3", "d IN (NULL)", "id NOT IN (NULL)", "s = NULL"):
        for query in (
            "SELECT * FROM lake WHERE {} ORDER BY id",
            "SELECT id, row_number() OVER (ORDER BY n) FROM lake WHERE {}",
            "SELECT a.id FROM lake AS a JOIN (SELECT * FROM lake WHERE {}) AS b ON a.id = b.id ORDER BY 1",
        ):
            assert not len(ask(query.format(where))), (query, where)


def _table(context: datafusion.SessionContext, query: str) -> pa.Table:
    frame = context.sql(query)
    return pa.Table.from_batches(frame.collect(), schema=frame.schema())


def test_a_large_file_is_scanned_once(tmp_path: Path) -> None:
    """Fragments are groups of files, and a plan divides a large file between groups."""
    ids = pa.array(random.Random(1).choices(range(2**60), k=1_000_000), pa.int64())
    pq.write_table(pa.table({"id": ids}), tmp_path / "a.parquet", row_group_size=100_000)
    lake = sk.open(tmp_path)
    dataset = lake.to_dataset()
    # Not proven by bounds, so that the plan has bytes to divide.
    fragments = list(dataset.get_fragments(pc.field("id") > 2**59))
    assert [{task.entry.key for task in one.plan.tasks} for one in fragments] == [{"a.parquet"}]
    context = lake.to_datafusion(name="lake")
    count = pc.sum(pc.greater(ids, 2**59)).as_py()
    assert _table(context, f"SELECT count(*) AS n FROM lake WHERE id > {2**59}").to_pylist() == [{"n": count}]


# -- Polars --------------------------------------------------------------------------------------


def expression(rng: random.Random, depth: int = 2) -> pl.Expr:
    if depth and rng.random() < 0.5:
        a, b = expression(rng, depth - 1), expression(rng, depth - 1)
        return a & b if rng.random() < 0.5 else a | b
    if depth and rng.random() < 0.2:
        return ~expression(rng, depth - 1)
    name = rng.choice(["id", "n", "f", "g", "s", "d", "ts", "m", "b", "st", "w"])
    column = pl.col(name)
    if name == "w":
        # Polars computes modulo 2**64, also with bounds.
        return rng.choice([column + 300, column * 2, column - 300, -column]) > rng.randrange(-500, ROWS)
    if name == "b":
        return column
    if name == "st":
        return column.struct.field("x") > rng.randrange(50)
    values = POLARS[name]
    match rng.randrange(7):
        case 0:
            return column.is_null()
        case 1:
            return column.is_in([values(rng) for _ in range(rng.randrange(1, 6))])
        case 2:
            return column.is_between(pl.lit(values(rng)), pl.lit(values(rng)))
        case 3 if name == "s":
            return column.str.starts_with("a") if rng.random() < 0.5 else column.str.len_chars() > 4
        case 4 if name in "fg":
            return column.is_nan()
        case 5 if name == "ts":
            return column.dt.year() == rng.choice([2025, 2026])
    ops = [column.eq, column.ne, column.lt, column.le, column.gt, column.ge, column.eq_missing]
    return rng.choice(ops)(values(rng))


POLARS: dict[str, Callable[[random.Random], Any]] = {
    "id": lambda rng: rng.randrange(-5, ROWS + 5),
    "n": lambda rng: rng.randrange(250),
    "f": lambda rng: rng.choice([NAN, 0.0, -7.25, 1.5, 30.0, 200.0]),
    "g": lambda rng: rng.choice([NAN, 0.5, 100.0]),
    "s": lambda rng: rng.choice([*TEXTS, "a011", "ü007"]),
    "d": lambda rng: DAY + timedelta(days=rng.randrange(-1, 26)),
    "ts": lambda rng: TIME + timedelta(minutes=rng.randrange(7 * ROWS)),
    "m": lambda rng: Decimal(rng.randrange(2_400)) / 4,
}


@pytest.mark.parametrize("route", ["auto", "slices", "reader", "dataset"])
def test_polars(lake: sk.Lake, rows: pa.Table, route: Any) -> None:
    frame = (
        pl.scan_pyarrow_dataset(lake.to_dataset()) if route == "dataset" else lake.to_polars_lazy(route=route)
    )
    memory = pl.from_arrow(rows)
    assert isinstance(memory, pl.DataFrame)
    keys = pl.DataFrame({"id": random.Random("keys").sample(range(ROWS), 30)})
    found = 0
    for number in range(sample("bridges")):
        rng = random.Random(f"polars:{number}")
        where = expression(rng)
        chosen = rng.choice([["id", "s"], ["id"], ["id", "f", "g", "st"]])

        def ask(source: pl.LazyFrame, where: pl.Expr = where, chosen: list[str] = chosen) -> pl.DataFrame:
            wanted = source.filter(where)
            return (keys.lazy().join(wanted, on="id") if number % 4 == 0 else wanted).select(chosen).collect()  # noqa: B023

        answer = ask(frame)
        assert answer.sort("id").equals(ask(memory.lazy()).sort("id")), where
        found += answer.height
    assert found > 10 * sample("bridges")
    assert frame.select(pl.len()).collect().item() == ROWS
    assert frame.head(7).filter(pl.col("id") > 2).collect()["id"].to_list() == [3, 4, 5, 6]
    assert frame.filter(pl.col("id") > 2).head(3).collect()["id"].to_list() == [3, 4, 5]
    if route == "slices":
        # Polars panics if a frame is resolved under a row index.
        numbered = frame.with_row_index("row").filter(pl.col("n") > 3).select("row", "id").collect()
        assert numbered["row"].to_list() == numbered["id"].to_list() != []
