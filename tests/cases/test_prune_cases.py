"""Layout, predicate → the exact row groups, rows and proven rows. One line per defect other engines had."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from skipstone.errors import UnknownColumnError
from skipstone.predicate import tree
from tests.cases._layouts import (
    blooms,
    blooms_without_length,
    clustered_texts,
    contradictory_null_pages,
    crossed_bounds,
    cut_texts,
    deprecated_bounds,
    dictionaries,
    duckdb_ints,
    fallen_back,
    half_nan_groups,
    high_texts,
    inflated_null_counts,
    int96_bounds,
    law_ten,
    missing_null_counts,
    nan_bounds,
    nan_counts,
    nan_groups,
    negative_null_counts,
    nested,
    no_column_orders,
    null_groups,
    numbers,
    old_parquet_mr,
    overlapping_ints,
    polars_ints,
    short_lists,
    sorted_ints,
    times,
    two_groups,
    two_orders,
    write,
    wrong_boundary_order,
    zeros,
)
from tests.property._oracle import Oracle

NAN, INF = math.nan, math.inf
Ranges = list[tuple[int, int]]
col, lit = sk.col, sk.lit

D = decimal.Decimal
DOUBLE = pa.float64()


# -- the table ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    name: str
    layout: Callable[[Path], Path]
    predicate: tree.Predicate
    groups: list[int]
    rows: Ranges
    proven: Ranges = field(default_factory=list)
    switches: dict[str, bool] = field(default_factory=dict)
    dropped_by: str | None = None
    """A level of the cascade that must have dropped something."""


x, s, f = col("x"), col("s"), col("f")
us, tz, day = col("us"), col("tz"), col("day")
NONE: Ranges = []


def instant(*parts: int) -> dt.datetime:
    return dt.datetime(*parts, tzinfo=dt.UTC)  # type: ignore[misc, arg-type]


CASES = [
    # Sorted integers: row groups, then pages, then what is proven.
    Case("equal", sorted_ints, x == 205, [2], [(200, 210)]),
    Case("equal, pages off", sorted_ints, x == 205, [2], [(200, 300)], switches={"page_index": False}),
    Case("between", sorted_ints, x.between(95, 114), [0, 1], [(90, 120)], [(100, 110)]),
    Case("between whole pages", sorted_ints, x.between(90, 109), [0, 1], [(90, 110)], [(90, 110)]),
    Case("open between", sorted_ints, x.between(89, 110, "neither"), [0, 1], [(90, 110)], [(90, 110)]),
    Case("left", sorted_ints, x.between(90, 110, "left"), [0, 1], [(90, 110)], [(90, 110)]),
    Case("below", sorted_ints, x < 105, [0, 1], [(0, 110)], [(0, 100)]),
    Case("at the edge", sorted_ints, x <= 99, [0], [(0, 100)], [(0, 100)]),
    Case("above", sorted_ints, x > 399, [], NONE),
    Case("flipped", sorted_ints, tree.Compare("<", lit(389), x), [3], [(390, 400)], [(390, 400)]),
    Case("in", sorted_ints, x.isin([5, 250, 251, 1000]), [0, 2], [(0, 10), (250, 260)]),
    Case("in, thousands", sorted_ints, x.isin(range(395, 5000)), [3], [(390, 400)]),
    Case("not in", sorted_ints, ~x.isin([5]), [0, 1, 2, 3], [(0, 400)], [(10, 400)]),
    Case("or", sorted_ints, (x < 5) | (x >= 395), [0, 3], [(0, 10), (390, 400)]),
    Case("and, empty", sorted_ints, (x < 5) & (x >= 395), [], NONE),
    Case("not or", sorted_ints, ~((x < 10) | (x >= 20)), [0], [(10, 20)], [(10, 20)]),
    Case("double negation", sorted_ints, ~~(x == 205), [2], [(200, 210)]),
    Case("is true", sorted_ints, (x < 10).is_true(), [0], [(0, 10)], [(0, 10)]),
    Case("is not true", sorted_ints, ~(x < 390).is_true(), [3], [(390, 400)], [(390, 400)]),
    Case("is unknown", sorted_ints, (x < 10).is_unknown(), [], NONE),
    Case("shifted", sorted_ints, (x + 100) < 105, [0], [(0, 10)]),
    Case("turned round", sorted_ints, (100 - x) > 95, [0], [(0, 10)]),
    Case("cast to double", sorted_ints, x.cast(pa.float64()) >= 389.5, [3], [(390, 400)], [(390, 400)]),
    Case("column with itself", sorted_ints, x <= x, [0, 1, 2, 3], [(0, 400)]),
    Case("opaque and", sorted_ints, sk.udf(lambda v: v.is_valid(), ["x"]) & (x < 5), [0], [(0, 10)]),
    Case("opaque or", sorted_ints, sk.udf(lambda v: v.is_valid(), ["x"]) | (x < 5), [0, 1, 2, 3], [(0, 400)]),
    Case("not opaque", sorted_ints, ~sk.udf(lambda v: v.is_null(), ["x"]), [0, 1, 2, 3], [(0, 400)]),
    Case("constant true", sorted_ints, tree.Constant(True), [0, 1, 2, 3], [(0, 400)], [(0, 400)]),
    Case("constant null", sorted_ints, tree.Constant(None), [], NONE),
    Case("overlapping, both", overlapping_ints, x == 15, [0, 1], [(0, 40)]),
    Case("overlapping, one", overlapping_ints, x < 10, [0], [(0, 20)]),
    Case("overlapping, all of one", overlapping_ints, x < 30, [0, 1, 2], [(0, 60)], [(0, 40)]),
    Case("DuckDB's file", duckdb_ints, x.between(2048, 4095), [1], [(2048, 4096)], [(2048, 4096)]),
    Case("DuckDB's file, booleans", duckdb_ints, tree.BooleanValue(col("b")) & (x < 10), [0], [(0, 2048)]),
    Case("Polars' file", polars_ints, x >= 150, [1], [(100, 200)]),
    # Text.
    Case("text equal", clustered_texts, s == "cow", [1], [(30, 40)], [(30, 40)]),
    Case("text between values", clustered_texts, s == "bzz", [], NONE),
    Case("prefix", clustered_texts, s.startswith("c"), [1], [(20, 40)], [(20, 40)]),
    Case("prefix by LIKE", clustered_texts, s.like("c%"), [1], [(20, 40)], [(20, 40)]),
    Case("not prefix", clustered_texts, ~s.startswith("c"), [0, 2], [(0, 20), (40, 60)], [(0, 20), (40, 60)]),
    Case("LIKE with a rest", clustered_texts, s.like("c_t"), [1], [(20, 40)]),
    Case("not LIKE with a rest", clustered_texts, ~s.like("c_t"), [0, 1, 2], [(0, 60)], [(0, 20), (40, 60)]),
    Case("LIKE escaped", clustered_texts, s.like("c\\_t"), [], NONE),
    Case("suffix", clustered_texts, s.endswith("t"), [0, 1, 2], [(0, 60)]),
    Case(
        "left of a text", clustered_texts, tree.Call("left", (s, lit(1))) == "d", [2], [(40, 50)], [(40, 50)]
    ),
    # NULL.
    Case("is null", null_groups, x.is_null(), [1, 2], [(10, 25)], [(10, 25)]),
    Case("is not null", null_groups, x.is_not_null(), [0, 2], [(0, 10), (25, 30)], [(0, 10), (25, 30)]),
    Case("all-null OR IS NULL", null_groups, (x == 7) | x.is_null(), [0, 1, 2], [(5, 25)], [(10, 25)]),
    Case(
        "DataFusion#21907 fully matched excludes NULL",
        null_groups,
        x >= 0,
        [0, 2],
        [(0, 10), (25, 30)],
        [(0, 10), (25, 30)],
    ),
    Case(
        "fully matched excludes NULL, no pages",
        null_groups,
        x >= 0,
        [0, 2],
        [(0, 10), (20, 30)],
        [(0, 10)],
        switches={"page_index": False},
    ),
    Case("IN with NULL", null_groups, x.isin([3, None]), [0, 2], [(0, 5), (25, 30)]),
    Case("NOT IN with NULL", null_groups, ~x.isin([3, None]), [], NONE),
    Case("NOT IN", null_groups, ~x.isin([3]), [0, 2], [(0, 10), (25, 30)], [(5, 10)]),
    Case("null-safe with NULL", null_groups, x.eq_null_safe(None), [1, 2], [(10, 25)], [(10, 25)]),
    Case("null-safe with a value", null_groups, x.eq_null_safe(7), [0], [(5, 10)]),
    Case("not null-safe", null_groups, ~x.eq_null_safe(7), [0, 1, 2], [(0, 30)], [(0, 5), (10, 30)]),
    Case("compared with NULL", null_groups, x == lit(None), [], NONE),
    Case("NOT of NULL", null_groups, ~(x == lit(None)), [], NONE),
    Case(
        "TRUE OR NULL",
        null_groups,
        (x >= 0) | (x == lit(None)),
        [0, 2],
        [(0, 10), (25, 30)],
        [(0, 10), (25, 30)],
    ),
    Case("is unknown of NULL", null_groups, (x > 100).is_unknown(), [1, 2], [(10, 25)], [(10, 25)]),
    # Floats.
    Case("DataFusion#24804 f > 2 keeps NaN", nan_groups, f > 2, [0, 1, 2, 3], [(0, 8)], [(2, 4)]),
    Case("NOT f <= 2 keeps NaN", nan_groups, ~(f <= 2), [0, 1, 2, 3], [(0, 8)], [(2, 4)]),
    Case("ClickHouse#118110 f <> 5 at [5, 5]", nan_groups, f != 5, [0, 1, 2, 3], [(0, 8)], [(0, 2)]),
    Case("f = NaN", nan_groups, f == NAN, [0, 1, 2, 3], [(0, 8)]),
    Case("f = 7 is in no bounds", nan_groups, f == 7, [2], [(4, 6)]),
    Case("f BETWEEN 7 AND 9", nan_groups, f.between(7, 9), [2], [(4, 6)]),
    Case("f < 2", nan_groups, f < 2, [0, 2], [(0, 2), (4, 6)]),
    Case("f < 9 is not proven", nan_groups, f < 9, [0, 1, 2, 3], [(0, 8)]),
    Case("isnan", nan_groups, f.is_nan(), [0, 1, 2, 3], [(0, 8)]),
    Case("float16 f > 2 keeps NaN", half_nan_groups, f > 2, [0, 1, 2, 3], [(0, 8)], [(2, 4)]),
    Case("NaN bounds are ignored", nan_bounds, f == 7, [0, 1], [(0, 4)]),
    Case("NaN count of zero is used", nan_counts, f > 2, [1], [(2, 4)], [(2, 4)]),
    Case("NaN count of zero, isnan", nan_counts, f.is_nan(), [], NONE),
    Case("max -0 and = +0", zeros, f == 0.0, [0, 1], [(0, 4)]),
    Case("max -0 and >= +0", zeros, f >= 0.0, [0, 1], [(0, 4)], [(2, 4)]),
    Case("min +0 and <= -0", zeros, f <= -0.0, [0, 1], [(0, 4)]),
    Case("min +0 and < 0", zeros, f < 0, [0], [(0, 2)]),
    # Several columns.
    Case(
        "law 10: rows, not page numbers", law_ten, (col("a") > 35) & (col("b") == "F" * 8), [0], [(200, 250)]
    ),
    Case(
        "parquet-java#3747 other boundaries",
        law_ten,
        (col("a") > 35) | (col("b") == "F" * 8),
        [0],
        [(100, 400)],
    ),
    Case("Trino#20267 nothing left of a group", law_ten, (col("a") < 15) & (col("b") == "H" * 4), [], NONE),
    Case("two orders", two_orders, (x < 40) & (col("y") < "050"), [], NONE),
    # Blooms.
    *(
        Case(
            f"arrow-rs#5550 bloom of {name}", blooms, col(name) == value, [], NONE, dropped_by="bloom filters"
        )
        for name, value in {
            "i8": 7,
            "i16": 7,
            "u8": 7,
            "u16": 7,
            "u32": 2**31 + 7,
            "i64": 7,
            "f32": 7.0,
            "f64": 1.0,
            "s": "007",
            "raw": b"\x07\xff",
            "fixed": b"\0\0\0\x07",
            "d9": D("0.07"),
            "d30": D("0.07"),
            "day": dt.date(2026, 1, 8),
            "ms": dt.datetime(2026, 1, 1, 0, 0, 7),
        }.items()
    ),
    *(
        Case(f"bloom keeps {name}", blooms, col(name) == value, [0, 1], [(0, 100)])
        for name, value in {
            "i8": 8,
            "i16": 8,
            "u8": 8,
            "u16": 8,
            "u32": 2**31 + 8,
            "i64": 8,
            "f32": 8.0,
            "f64": -0.0,
            "s": "008",
            "raw": b"\x08\xff",
            "fixed": b"\0\0\0\x08",
            "d9": D("0.08"),
            "d30": D("0.08"),
            "day": dt.date(2026, 1, 9),
            "ms": dt.datetime(2026, 1, 1, 0, 0, 8),
        }.items()
    ),
    Case(
        "bloom, literal of another width", blooms, col("i8") == pa.scalar(8, pa.int64()), [0, 1], [(0, 100)]
    ),
    Case("bloom, literal of another kind", blooms, col("i64") == 8.0, [0, 1], [(0, 100)]),
    Case("bloom, decimal of another scale", blooms, col("d9") == D("0.080"), [0, 1], [(0, 100)]),
    Case("bloom, IN", blooms, col("i64").isin([7, 9, 8]), [0, 1], [(0, 100)]),
    Case("bloom, IN of misses", blooms, col("i64").isin([7, 9, 11]), [], NONE, dropped_by="bloom filters"),
    Case("bloom, OR", blooms, (col("i64") == 7) | (col("s") == "009"), [], NONE, dropped_by="bloom filters"),
    Case("bloom never for NOT", blooms, col("i64") != 7, [0, 1], [(0, 100)]),
    Case("bloom never for a function", blooms, (col("i64") + 1) == 9, [0, 1], [(0, 100)]),
    Case("bloom never for NaN", blooms, col("f64") == NAN, [0, 1], [(0, 100)]),
    Case("bloom off", blooms, col("i64") == 7, [0, 1], [(0, 100)], switches={"bloom_filter": False}),
    Case("bloom, both zeros", zeros, (f == 0.0) & (f > -2), [0, 1], [(0, 4)]),
    Case(
        "bloom without its length",
        blooms_without_length,
        col("i64") == 7,
        [],
        NONE,
        dropped_by="bloom filters",
    ),
    Case("bloom without its length keeps", blooms_without_length, col("i64") == 8, [0, 1], [(0, 100)]),
    # Dictionaries.
    Case(
        "dictionary",
        dictionaries,
        s == "m",
        [1],
        [(20, 40)],
        switches={"dictionary": True},
        dropped_by="dictionaries",
    ),
    Case(
        "dictionary, range", dictionaries, s.between("b", "n"), [1], [(20, 40)], switches={"dictionary": True}
    ),
    Case("dictionary off", dictionaries, s == "m", [0, 1], [(0, 40)]),
    Case(
        "ClickHouse#106952 a dictionary given up",
        fallen_back,
        s == "b" + "0" * 27 + "7",
        [0],
        [(0, 81)],
        switches={"dictionary": True},
    ),
    # Times.
    Case("timestamp", times, us >= dt.datetime(2026, 1, 6), [3], [(360, 480)], [(360, 480)]),
    Case("timestamp by text", times, us >= "2026-01-06", [3], [(360, 480)], [(360, 480)]),
    Case(
        "ns literal, ms column",
        times,
        col("ms") > pa.scalar(1_767_657_600_000_000_001, pa.timestamp("ns")),
        [3],
        [(360, 480)],
        [(372, 480)],
    ),
    Case(
        "ns literal, us column",
        times,
        us == pa.scalar(1_767_657_600_000_000_001, pa.timestamp("ns")),
        [],
        NONE,
    ),
    Case(
        "zoned column, zoneless text",
        times,
        tz >= lit("2026-01-06", zone="+02:00"),
        [2, 3],
        [(348, 480)],
        [(360, 480)],
    ),
    Case("zoned column, instant", times, tz >= instant(2026, 1, 6), [3], [(360, 480)], [(360, 480)]),
    Case(
        "date column, timestamp literal",
        times,
        day >= dt.datetime(2026, 1, 6, 1),
        [3],
        [(384, 480)],
        [(384, 480)],
    ),
    Case("timestamp column, date literal", times, us < dt.date(2025, 12, 23), [0], [(0, 24)], [(0, 24)]),
    Case(
        "cast(ts as date)",
        times,
        us.cast(pa.date32()) == dt.date(2026, 1, 1),
        [2],
        [(240, 264)],
        [(240, 264)],
    ),
    Case(
        "cast(ts as date) at +12:00",
        times,
        tz.cast(pa.date32(), "+12:00") == dt.date(2026, 1, 1),
        [1, 2],
        [(228, 252)],
        [(228, 252)],
    ),
    Case(
        "cast(ts as date) in Paris is left to the rows",
        times,
        tz.cast(pa.date32(), "Europe/Paris") == dt.date(2026, 1, 1),
        [0, 1, 2, 3],
        [(0, 480)],
    ),
    Case("year", times, tree.Call("year", (us,)) == 2026, [2, 3], [(240, 480)], [(240, 480)]),
    Case("year in", times, tree.Call("year", (us,)).isin([2024, 2025]), [0, 1], [(0, 240)], [(0, 240)]),
    Case(
        "date_trunc",
        times,
        tree.Call("date_trunc", (lit("month"), us)) < dt.datetime(2026, 1, 1),
        [0, 1],
        [(0, 240)],
        [(0, 240)],
    ),
    # Literals of other types.
    Case("int < 5.5", numbers, x < 9.5, [0], [(0, 10)], [(0, 10)]),
    Case("int > 5.5", numbers, x > 29.5, [3], [(30, 40)], [(30, 40)]),
    Case("int = 5.5", numbers, x == 5.5, [], NONE),
    Case("int <> 5.5", numbers, x != 5.5, [0, 1, 2, 3], [(0, 40)], [(0, 40)]),
    Case("int IN with 5.5", numbers, x.isin([5.5, 12.0]), [1], [(10, 20)]),
    Case("int = NaN", numbers, x == NAN, [], NONE),
    Case("int < NaN", numbers, x < NAN, [0, 1, 2, 3], [(0, 40)], [(0, 40)]),
    Case("int beyond its type", numbers, x < 2**40, [0, 1, 2, 3], [(0, 40)], [(0, 40)]),
    Case("int equal beyond its type", numbers, x == 2**40, [], NONE),
    Case("double literal, float column", numbers, f <= 0.8, [0], [(0, 10)]),
    Case("decimal of another scale", numbers, col("d") == D("7.000"), [1], [(10, 20)]),
    Case("decimal between its steps", numbers, col("d") < D("4.9999999"), [0], [(0, 10)], [(0, 10)]),
    Case("decimal and double", numbers, col("d") > 14.75, [3], [(30, 40)], [(30, 40)]),
    Case("wide decimal", numbers, col("wide") >= D("15.00000000001"), [3], [(30, 40)]),
    Case("unsigned above the signed range", numbers, col("u") >= D(2**63 + 30), [3], [(30, 40)], [(30, 40)]),
    Case("unsigned and a negative", numbers, col("u") < -1, [], NONE),
    # Cut and high bounds.
    Case("cut bounds, equal", cut_texts, s == "abzz", [0, 1], [(0, 8)]),
    Case("cut bounds, between", cut_texts, s == "aczz", [1], [(4, 8)]),
    Case("cut bounds prove a range", cut_texts, s >= "aa", [0, 1], [(0, 8)], [(0, 8)]),
    Case("cut bounds prove no equality", cut_texts, s == "aa", [0], [(0, 4)]),
    Case("0xFF has no successor", high_texts, col("raw") > b"\xff" * 80, [0], [(0, 2)]),
    Case("prefix without an end", high_texts, col("raw").startswith(b"\xff"), [0], [(0, 2)], [(0, 2)]),
    Case(
        "prefix of the highest characters",
        high_texts,
        col("text").startswith("\U0010ffff" * 30),
        [0],
        [(0, 2)],
        [(0, 2)],
    ),
    # Statistics that are not what they seem.
    Case("PARQUET-686 deprecated bounds of text", deprecated_bounds, s == "05", [0, 1], [(0, 20)]),
    Case("PARQUET-686 deprecated bounds of integers", deprecated_bounds, x == 5, [0], [(0, 10)]),
    Case("PARQUET-251 old parquet-mr, text", old_parquet_mr, s == "05", [0, 1], [(0, 20)]),
    Case("PARQUET-251 old parquet-mr, integers", old_parquet_mr, x == 5, [0], [(0, 10)]),
    Case("min > max", crossed_bounds, x == 5, [0, 1], [(0, 20)]),
    Case("min > max of text", crossed_bounds, s == "05", [0, 1], [(0, 20)]),
    Case("unknown column order", no_column_orders, x == 5, [0, 1], [(0, 20)]),
    Case("arrow-rs#9481 negative null count", negative_null_counts, x.is_null(), [0, 1], [(0, 20)]),
    Case("arrow-rs#9481 negative null count proves nothing", negative_null_counts, x >= 0, [0, 1], [(0, 20)]),
    Case("missing null count", missing_null_counts, x.is_null(), [0, 1], [(0, 20)]),
    Case("missing null count, bounds still drop", missing_null_counts, x == 5, [0], [(0, 10)]),
    Case("Polars#29321 inflated null count", inflated_null_counts, x == 5, [0], [(0, 10)]),
    Case("arrow-rs#7686 INT96 bounds", int96_bounds, col("t") == dt.datetime(2026, 1, 4), [0, 1], [(0, 4)]),
    Case("parquet-java#3457 null pages without nulls", contradictory_null_pages, x == 7, [0], [(0, 10)]),
    Case("boundary order is not believed", wrong_boundary_order, x == 12, [0], [(10, 15)]),
    Case("lists of different lengths", short_lists, x == 12, [0], [(0, 20)]),
    # Names and nesting.
    Case("struct field", nested, col("s", "x") == 12, [1], [(10, 15)]),
    Case("a column named s.x", nested, col("s.x") == 112, [1], [(10, 15)]),
    Case("struct field is null", nested, col("s", "x").is_null(), [0], [(0, 10)]),
    Case("struct is null", nested, col("s").is_null(), [0], [(0, 10)]),
    Case("struct is not null", nested, col("s").is_not_null(), [0, 1, 2], [(0, 30)], [(10, 30)]),
    Case("Trino#15388 arrow-rs#9374 list is null", nested, col("l").is_null(), [0, 1, 2], [(0, 30)]),
    Case("arrow#51097 list is not null", nested, col("l").is_not_null(), [0, 1, 2], [(0, 30)]),
    # Rules of index systems.
    Case("Xskipper NOT (c = 5) on [0, 9]", two_groups, ~(x == 5), [0, 1], [(0, 20)], [(10, 20)]),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cases")


def file_of(layout: Callable[[Path], Path], folder: Path) -> Path:
    path = folder / f"{layout.__name__}.parquet"
    return path if path.exists() else layout(path)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_case(case: Case, folder: Path) -> None:
    path = file_of(case.layout, folder)
    result = sk.prune(str(path), case.predicate, **case.switches)
    assert result.rows.ranges() == case.rows
    assert result.row_groups == case.groups
    assert result.proven.ranges() == case.proven
    truth = Oracle(pq.ParquetFile(path).read()).answer(case.predicate)
    assert all(row in result.rows for row, v in enumerate(truth) if v is True)
    assert all(truth[row] is True for row in result.proven)
    # arrow-rs#2669: no selector of no rows, and the selection gives the rows back.
    assert all(count > 0 for _, count in result.row_selection())
    assert result.from_selection(result.row_selection()) == result.rows
    if case.dropped_by is not None:
        level = result.trace.level(case.dropped_by)
        assert level is not None
        assert level.dropped > 0


def test_names_are_unique() -> None:
    names = [case.name for case in CASES]
    assert sorted(set(names)) == sorted(names)


def test_a_column_the_file_lacks_is_null(folder: Path) -> None:
    # Elasticsearch#152864: only a column proven absent is NULL; one the schema lacks is an error.
    path = file_of(sorted_ints, folder)
    schema = pa.schema([pa.field("x", pa.int64()), pa.field("later", pa.string())])
    later = col("later")
    assert sk.prune(str(path), later == "a", schema).row_groups == []
    absent = sk.prune(str(path), later.is_null(), schema)
    assert absent.proven.ranges() == [(0, 400)]
    with pytest.raises(UnknownColumnError):
        sk.prune(str(path), later.is_null())


def test_case_insensitive_duplicates(tmp_path: Path) -> None:
    path = write(tmp_path / "f.parquet", pa.table({"A": [1, 2], "a": [3, 4]}), 1)
    assert sk.prune(str(path), col("a") == 3).row_groups == [0]
    assert sk.prune(str(path), col("A") == 2).row_groups == [1]
    assert sk.prune(str(path), col("a") == 3, case_sensitive=False).row_groups == [0]
    other = write(tmp_path / "g.parquet", pa.table({"AB": [1, 2], "aB": [3, 4]}), 1)
    with pytest.raises(UnknownColumnError, match="ambiguous"):
        sk.prune(str(other), col("ab") == 3, case_sensitive=False)


CONSTANTS = {
    # What a constant's cast means in Spark, on a file of the one value that it equals.
    "double as text": (pa.array(["1.0"]), lit(1.0).cast(pa.string())),
    "timestamp as text": (pa.array(["2020-01-01 00:00:00"]), lit(dt.datetime(2020, 1, 1)).cast(pa.string())),
    "timestamp as number": (pa.array([1_577_836_800]), lit(dt.datetime(2020, 1, 1)).cast(pa.int64())),
    "double as decimal": (pa.array([D("0.3")], pa.decimal128(5, 1)), lit(0.25).cast(pa.decimal128(5, 1))),
    "instant as date": (
        pa.array([dt.date(2020, 1, 2)]),
        lit(instant(2020, 1, 1, 23)).cast(pa.date32(), "+05:30"),
    ),
    "instant of a zone as date": (
        pa.array([dt.date(2020, 1, 1)]),
        lit(pa.scalar(instant(2020, 1, 1, 23, 30), pa.timestamp("us", "Europe/Paris"))).cast(pa.date32()),
    ),
    "text beyond microseconds": (
        pa.array([dt.datetime(2020, 1, 1, 0, 0, 0, 123456)], pa.timestamp("us")),
        lit("2020-01-01 00:00:00.1234567"),
    ),
    "decimal sum beyond 28 digits": (
        pa.array([D("12345678901234567891.1234567890")], pa.decimal128(38, 10)),
        lit(D("12345678901234567890.1234567890")) + lit(D(1)),
    ),
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_constants_mean_what_spark_means(name: str, tmp_path: Path) -> None:
    array, constant = CONSTANTS[name]
    path = write(tmp_path / "f.parquet", pa.table({"v": array}), 1)
    assert sk.prune(str(path), col("v") == constant).rows.ranges() == [(0, 1)]
    assert sk.prune(str(path), col("v") != constant).proven.ranges() == []


def test_a_try_cast_that_overflows_is_null(tmp_path: Path) -> None:
    path = write(tmp_path / "f.parquet", pa.table({"a": [1, 10**9]}), 2)
    narrow = tree.Cast(col("a"), pa.decimal128(5, 2), lenient=True)
    assert sk.prune(str(path), narrow.is_null()).rows.ranges() == [(0, 2)]
    assert sk.prune(str(path), narrow.is_not_null()).proven.ranges() == []


def test_values_of_another_width_in_a_list(tmp_path: Path) -> None:
    path = write(tmp_path / "f.parquet", pa.table({"a": pa.array([b"abcd", b"bcde"], pa.binary(4))}), 1)
    assert sk.prune(str(path), col("a").isin([b"ab", b"bcde"])).row_groups == [1]
    assert sk.prune(str(path), ~col("a").isin([b"ab"])).proven.ranges() == [(0, 2)]


def test_a_list_of_views_with_null(tmp_path: Path) -> None:
    path = write(tmp_path / "f.parquet", pa.table({"a": ["x", "y"]}), 1)
    listed = pa.array(["y", None], pa.string_view())
    assert sk.prune(str(path), col("a").isin(listed)).row_groups == [1]
