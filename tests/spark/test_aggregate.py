"""Aggregates on Spark are those of threads to the last bit, and mean what Spark SQL's own mean."""

from __future__ import annotations

import decimal
import math
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap

import skipstone as sk
from skipstone.errors import CorruptFileError
from tests.iceberg._maker import Maker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FILES, ROWS = 6, 120
FLOATS = [1.5, -2.25, 0.1, 1e16, -1e16, 3.0, math.inf, 0.0, -0.0]


def table(number: int) -> pa.Table:
    """Ids rise from file to file; every other column has values that are told apart by no order."""
    rng = np.random.default_rng(number)
    nan = rng.random(ROWS) < 0.1
    odd = np.where(nan, math.nan, rng.choice(FLOATS, ROWS))
    cents = rng.integers(-(10**6), 10**6, ROWS)
    return pa.table(
        {
            "id": pa.array(np.arange(number * ROWS, (number + 1) * ROWS), mask=rng.random(ROWS) < 0.05),
            "i": pa.array(rng.integers(-(2**62), 2**62, ROWS), mask=rng.random(ROWS) < 0.1),
            "f": pa.array(
                rng.normal(size=ROWS) * 10.0 ** rng.integers(-9, 9, ROWS), mask=rng.random(ROWS) < 0.1
            ),
            "odd": pa.array(odd, mask=rng.random(ROWS) < 0.1),
            "dec": pa.array([decimal.Decimal(int(c)).scaleb(-2) for c in cents], pa.decimal128(9, 2)),
            "s": pa.array(rng.choice(["a", "b", "é", "漢", ""], ROWS), mask=rng.random(ROWS) < 0.2),
            "ts": pa.array(rng.integers(0, 10**15, ROWS), pa.timestamp("us", "UTC")),
            "zero": pa.array(rng.choice([0.0, -0.0, math.nan, 1.0], ROWS), mask=rng.random(ROWS) < 0.2),
            "none": pa.nulls(ROWS, pa.float64()),
            "void": pa.nulls(ROWS, pa.int64()),
        }
    )


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with partitions, and an index that holds sums of half its columns."""
    root = tmp_path_factory.mktemp("aggregates")
    for number in range(FILES):
        folder = root / f"p={number % 2}"
        folder.mkdir(exist_ok=True)
        pq.write_table(
            table(number),
            folder / f"{number}.parquet",
            row_group_size=40,
            max_rows_per_page=10,
            write_page_index=True,
        )
    sk.open(root).index.build(sums=["id", "f", "dec"], sketches=["i"], engine="local")
    return root


def bits(answer: Any) -> list[str]:
    """Every value of an answer; zeros are told apart, and no NaN from another."""
    return [
        str([struct.pack(">d", v) if isinstance(v, float) and v == v else v for v in row.values()])
        for row in answer.to_pylist()
    ]


class Spread:
    """An aggregate of one's own."""

    def init(self) -> tuple[float, float]:
        return math.inf, -math.inf

    def update(self, state: tuple[float, float], batch: pa.RecordBatch) -> tuple[float, float]:
        values = [v for v in batch.column(0).to_pylist() if v is not None]
        return min([state[0], *values]), max([state[1], *values])

    def merge(self, a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
        return min(a[0], b[0]), max(a[1], b[1])

    def finish(self, state: tuple[float, float]) -> float:
        return state[1] - state[0]


def functions() -> list[Any]:
    """One of each."""
    return [
        sk.count(),
        *(sk.sum(name) for name in ("i", "f", "odd", "dec", "none")),
        *(f(name) for f in (sk.min, sk.max) for name in ("i", "odd", "s", "ts")),
        *(f(name) for f in (sk.avg, sk.var, sk.stddev) for name in ("i", "f", "dec")),
        sk.quantile("f", [0.1, 0.5]),
        sk.histogram("f", [-1, 0, 1]),
        sk.first("s", by="ts"),
        sk.last("f", by="i"),
        sk.count_distinct("zero"),
        sk.count_distinct("s", "odd"),
        sk.sum("dec * (1 - dec)"),
        sk.min("upper(s)"),
        sk.udaf(Spread(), ["f"], name="spread", type=pa.float64()),
    ]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("where", "given"),
    [
        (None, {}),
        ("f > 0", {"group_by": ["p", "zero"]}),
        ("f > 0", {"group_by": ["year(ts) as y", "substr(s, 1, 1)"]}),
        ("s <> 'a'", {"within": BitMap(range(100, 500, 3)), "id_column": "id", "use_cached": False}),
    ],
)
def test_spark_answers_as_threads(
    spark: SparkSession, root: Path, where: str | None, given: dict[str, Any]
) -> None:
    scan = sk.open(root).scan(where)
    here = scan.aggregate(*functions(), **given)
    there = scan.aggregate(*functions(), engine=spark, **given)
    assert bits(there) == bits(here)
    assert there.schema == here.schema
    assert "park" in there.trace.run.engine


def test_an_unreadable_file_fails_the_job(spark: SparkSession, root: Path, tmp_path: Path) -> None:
    for path in root.rglob("*.parquet"):
        body = bytearray(path.read_bytes())
        if path.name == "3.parquet":
            body[4:2000] = b"\xff" * 1996
        (tmp_path / path.name).write_bytes(bytes(body))
    with pytest.raises(CorruptFileError) as caught:
        sk.open(tmp_path).scan().aggregate(sk.sum("id"), engine=spark, use_cached=False).to_arrow()
    assert caught.value.path == str(tmp_path / "3.parquet")
    assert "row group 0" in str(caught.value)


def test_deletes_of_a_table_travel_with_its_tasks(spark: SparkSession, tmp_path: Path) -> None:
    maker = Maker(tmp_path, [("id", "long"), ("p", "string")], [("p", "identity")], format_version=2, seed=1)
    maker.append([{"id": n, "p": "ab"[n % 2]} for n in range(60)], merge=False)
    maker.delete_positions(maker.places()[:2], merge=False)
    keys = [(0, ("a",)), (0, ("b",))]
    maker.delete_equal([maker.field("id").id], [(50,), (51,)], partitions=keys)
    left = [row["id"] for row in maker.rows()]
    answer = (
        sk.open(maker.metadata_location)
        .scan()
        .aggregate(
            sk.count(), sk.sum("id"), without=BitMap([7, 8]), id_column="id", engine=spark, use_cached=False
        )
    )
    assert answer.to_pylist() == [{"count": len(left) - 2, "sum(id)": sum(left) - 15}]


# -- Spark SQL as the judge --------------------------------------------------------------------

COLUMNS = ("i", "f", "odd", "dec", "zero", "none", "void")
SQL: dict[str, tuple[str, Any]] = {"count": ("count(*)", sk.count())}
for _name in COLUMNS:
    _total = f"cast({_name} as decimal(38, 0))" if _name in ("i", "void") else _name
    SQL |= {
        f"count({_name})": (f"count({_name})", sk.count(_name)),
        f"sum({_name})": (f"sum({_total})", sk.sum(_name)),
        f"min({_name})": (f"min({_name})", sk.min(_name)),
        f"max({_name})": (f"max({_name})", sk.max(_name)),
        f"avg({_name})": (f"avg({_name})", sk.avg(_name)),
        f"var({_name})": (f"var_samp({_name})", sk.var(_name)),
        f"var_pop({_name})": (f"var_pop({_name})", sk.var(_name, ddof=0)),
        f"stddev({_name})": (f"stddev_samp({_name})", sk.stddev(_name)),
    }
SQL |= {
    "min(s)": ("min(s)", sk.min("s")),
    "max(s)": ("max(s)", sk.max("s")),
    "min(ts)": ("cast(min(ts) as bigint)", sk.min("ts")),
    "quantile(f, [0.0, 0.3, 1.0])": (
        "percentile(f, array(0.0, 0.3, 1.0))",
        sk.quantile("f", [0.0, 0.3, 1.0]),
    ),
    "quantile(odd, 0.5)": ("percentile(odd, 0.5)", sk.quantile("odd", 0.5)),
    "quantile(void, 0.5)": ("percentile(void, 0.5)", sk.quantile("void", 0.5)),
    "first(f by i)": ("min_by(f, i)", sk.first("f", by="i")),
    "last(f by i)": ("max_by(f, i)", sk.last("f", by="i")),
    "last(dec by odd)": (
        "max(struct(odd, dec)) filter (where odd is not null).dec",
        sk.last("dec", by="odd"),
    ),
    **{
        text: (text, text)
        for text in (
            "count(distinct zero)",
            "count(distinct s, odd)",
            "sum(dec * (1 - dec))",
            "sum(dec * (1 - dec) * (2 + dec) * 100000000)",
            "avg(dec * 2)",
            "min(upper(s))",
            "max(year(ts))",
            "count_if(f > 0)",
            "sum(f * 2) filter (where s = 'a')",
            "sum(case when s = 'b' then dec else 0.5 end)",
        )
    },
    "approx_distinct(zero)": ("count(distinct zero)", sk.approx_distinct("zero")),
    "approx_distinct(s)": ("count(distinct s)", sk.approx_distinct("s")),
}


def close(ours: Any, theirs: Any) -> bool:
    """The same value; Spark rounds floats as it goes."""
    if isinstance(theirs, list | tuple) and isinstance(ours, list):
        return len(ours) == len(theirs) and all(map(close, ours, theirs))
    if isinstance(ours, float) and isinstance(theirs, float):
        if not math.isfinite(theirs) or not math.isfinite(ours):
            return ours == theirs or (ours != ours and theirs != theirs)
        return math.isclose(ours, theirs, rel_tol=1e-9, abs_tol=1e-12)
    return bool(ours == theirs)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("where", "group_by"),
    [
        ("true", []),
        pytest.param("id < 0", [], marks=pytest.mark.slow),
        pytest.param("id = 7", [], marks=pytest.mark.slow),
        ("s is not null", ["p", "zero"]),
        ("odd is null", ["year(ts)", "zero * 2"]),
    ],
)
def test_spark_sql_agrees(spark: SparkSession, root: Path, where: str, group_by: list[str]) -> None:
    keys = ", ".join(group_by)
    text = ", ".join(
        [*group_by, *(f"{expression} as `{n}`" for n, (expression, _) in enumerate(SQL.values()))]
    )
    spark.read.parquet(str(root)).createOrReplaceTempView("lake")
    question = f"select {text} from lake where {where}" + f" group by {keys}" * bool(keys)
    rows = spark.sql(question).collect()
    spark.catalog.dropTempView("lake")
    answer = sk.open(root).scan(where).aggregate(*(f for _, f in SQL.values()), group_by=group_by)
    table = answer.to_arrow()
    seconds = [None if v is None else v // 10**6 for v in table["min(ts)"].cast(pa.int64()).to_pylist()]
    table = table.set_column(table.column_names.index("min(ts)"), "min(ts)", pa.array(seconds, pa.int64()))
    ours = {tuple(map(repr, [r[k] for k in group_by])): r for r in table.to_pylist()}
    theirs = {tuple(map(repr, row[: len(group_by)])): row[len(group_by) :] for row in rows}
    assert ours.keys() == theirs.keys()
    for key, values in theirs.items():
        for name, value in zip(SQL, values, strict=True):
            assert close(ours[key][name], value), (key, name, ours[key][name], value)


def test_types_of_decimals_are_those_of_spark(spark: SparkSession, root: Path) -> None:
    wide = "cast(dec as decimal(30, 10))"
    texts = [
        *("sum(dec)", "avg(dec)", "sum(dec * 2)", "avg(1 - dec)", "sum(dec * dec + 1)"),
        *(f"max({wide} * {wide})", f"max({wide} + 1.5)", f"max(dec * {wide} * 12)", "max(dec - 1000000000)"),
    ]
    frame = spark.read.parquet(str(root)).selectExpr(*texts)
    precise = [(f.dataType.precision, f.dataType.scale) for f in frame.schema]
    schema = sk.open(root).scan().aggregate(*texts).schema
    assert [(f.type.precision, f.type.scale) for f in schema] == precise
