"""Arithmetic, casts, functions, patterns and comparisons of columns."""

from __future__ import annotations

import datetime as dt
import decimal
import math

import pyarrow as pa
import pytest

from skipstone.core.filter import RowFilter, RowValues
from skipstone.errors import NotExpressibleError, PredicateError, TypeMismatchError
from skipstone.predicate.sql import parse_sql
from skipstone.predicate.sql.read import SqlReader
from skipstone.predicate.sql.types import select_list
from skipstone.predicate.tree import Call, Cast, Compare, col, lit
from tests.unit.core.filter.test_rowfilter import answers

NAN = math.nan
D = decimal.Decimal


def check(columns: dict[str, object], text: str, wanted: list[bool | None], tz: str = "UTC") -> None:
    assert answers(parse_sql(text, tz=tz), pa.table(columns)) == wanted


# -- arithmetic --------------------------------------------------------------------------------

NUMBERS = {
    "i": pa.array([7, -7, None], pa.int32()),
    "j": pa.array([2, 2, 2], pa.int64()),
    "f": pa.array([0.5, NAN, 1.0]),
    "d": pa.array([D("1.10"), D("-0.01"), None], pa.decimal128(9, 2)),
    "u": pa.array([2**64 - 1, 0, 1], pa.uint64()),
    "t": pa.array([127, 1, 1], pa.int8()),
}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("i + j = 9", [True, False, None]),
        ("i - j * 2 = 3", [True, False, None]),
        ("i / j = 3.5", [True, False, None]),
        ("i % j = 1", [True, False, None]),
        ("i % j = -1", [False, True, None]),
        ("i div j = -3", [False, True, None]),
        ("-i = 7", [False, True, None]),
        ("abs(i) = 7", [True, True, None]),
        ("f + 1 > 1.4", [True, True, True]),
        ("d + 0.9 = 2", [True, False, None]),
        ("d * i = 7.7", [True, False, None]),
        ("d * f < 0.6", [True, False, None]),
        ("i + NULL IS NULL", [True, True, True]),
        ("floor(f) = 0 AND ceil(f) = 1", [True, False, False]),
        ("sqrt(j * 8) = 4", [True, True, True]),
        ("coalesce(i, j) = 2", [False, False, True]),
        ("nullif(j, 2) IS NULL", [True, True, True]),
        ("if(i > 0, j, 5) = 5", [False, True, True]),
        ("CASE WHEN i > 0 THEN 'p' WHEN i < 0 THEN 'n' END = 'n'", [False, True, None]),
        ("greatest(i > 0, j > 5)", [True, False, False]),
        ("least(i > 0, NULL)", [True, False, None]),
        ("greatest(NULL, NULL) IS NULL", [True, True, True]),
        ("greatest(u, '5') = u", [True, False, False]),
        ("greatest(i, j) = 7 OR least(i, j) = -7", [True, True, False]),
        ("(i > 0) = (j > 5)", [False, True, None]),
        ("i LIKE '%7' AND i NOT LIKE '-%'", [True, False, None]),
        ("i BETWEEN j + 1 AND j + 5", [True, False, None]),
        ("i + j IN (9, NULL)", [True, None, None]),
        ("(i + j) IS NULL", [False, False, True]),
        ("i + j <=> NULL", [False, False, True]),
    ],
)
def test_arithmetic(text: str, wanted: list[bool | None]) -> None:
    check(NUMBERS, text, wanted)


@pytest.mark.parametrize(
    "text", ["t + t > 0", "cast(i AS tinyint) * t * t > 0", "i + 2147483647 > 0", "j / 0 = 1", "j % 0 = 1"]
)
def test_what_overflows_is_an_error_that_names_the_part(text: str) -> None:
    made = RowFilter(parse_sql(text), pa.table(NUMBERS).schema)
    with pytest.raises(PredicateError, match=r"failed: (overflow|division by zero)") as caught:
        made.mask(pa.table(NUMBERS))
    assert not isinstance(caught.value, NotExpressibleError)


@pytest.mark.parametrize("text", ["d / 3 > 1", "cast(d AS decimal(38, 10)) * cast(d AS decimal(38, 10)) > 1"])
def test_decimals_that_spark_rounds_by_rules_of_its_own_are_refused(text: str) -> None:
    with pytest.raises(NotExpressibleError):
        RowFilter(parse_sql(text), pa.table(NUMBERS).schema)


@pytest.mark.parametrize(
    ("text", "type", "wanted"),
    [
        ("a * 2", pa.decimal128(32, 10), ["2.4691357802", "-0.0000000010"]),
        ("2000 + a", pa.decimal128(31, 10), ["2001.2345678901", "1999.9999999995"]),
        ("a * a", pa.decimal128(38, 6), ["1.524158", "0.000000"]),
        ("a * b", pa.decimal128(38, 6), ["0.617284", "0.000000"]),
        ("b + c", pa.decimal128(38, 17), ["1.00000000000000000", "-0.50000000000000000"]),
    ],
)
def test_decimals_of_more_than_38_digits_are_rounded_as_in_spark(
    text: str, type: pa.DataType, wanted: list[str]
) -> None:
    table = pa.table(
        {
            "a": pa.array([D("1.2345678901"), D("-0.0000000005")], pa.decimal128(30, 10)),
            "b": pa.array([D("0.5"), D("-0.5")], pa.decimal128(38, 18)),
            "c": pa.array([D("0.5"), D("0.000000000000000005")], pa.decimal128(38, 18)),
        }
    )
    (value,) = select_list(text, "spark")
    made = RowValues({"v": SqlReader("spark", "UTC").value(value)}, table.schema)
    found = made.append_to(table)["v"]
    assert (found.type, [f"{v:f}" for v in found.to_pylist()]) == (type, wanted)


# -- columns against columns -------------------------------------------------------------------


def pairs(left: pa.Array, right: pa.Array, op: str) -> list[bool | None]:
    return answers(Compare(op, col("l"), col("r")), pa.table({"l": left, "r": right}))  # type: ignore[arg-type]


@pytest.mark.parametrize("narrow", [pa.float16(), pa.float32(), pa.float64()])
def test_nan_between_columns_equals_itself_and_is_largest(narrow: pa.DataType) -> None:
    left = pa.array([NAN, NAN, 1.0, 0.0, None, None, NAN]).cast(narrow)
    right = pa.array([NAN, 1.0, NAN, -0.0, None, 1.0, None])
    assert pairs(left, right, "=") == [True, False, False, True, None, None, None]
    assert pairs(left, right, "<") == [False, False, True, False, None, None, None]
    assert pairs(left, right, ">=") == [True, True, False, True, None, None, None]
    assert pairs(left, right, "<=>") == [True, False, False, True, True, False, False]
    assert pairs(left, right, "<>") == [False, True, True, False, None, None, None]


def test_numbers_of_two_types_compare_exactly() -> None:
    big = 2**63
    assert pairs(pa.array([big, 5], pa.uint64()), pa.array([-1, 5]), ">") == [True, False]
    assert pairs(pa.array([2**53 + 1]), pa.array([2.0**53]), "=") == [True]  # as doubles, as Spark does
    assert pairs(pa.array([D("1.5"), D("2.0")]), pa.array([D("1.50"), D("2.001")]), "=") == [True, False]
    assert pairs(pa.array([D("1.5")]), pa.array([2]), "<") == [True]
    assert pairs(pa.array([D("0.1")]), pa.array([0.1]), "=") == [True]
    assert pairs(pa.array([D("12345678901234567890.123")]), pa.array([12345678901234567890.123]), "=") == [
        True
    ]
    wide = pa.array([D(10) ** 37, None], pa.decimal256(50, 5))
    assert pairs(wide, pa.array([1, 1], pa.uint64()), ">") == [True, None]


def test_times_of_two_units_compare_exactly() -> None:
    seconds = pa.array([1, 1, -1, 2**60]).view(pa.timestamp("s"))
    nanos = pa.array([10**9, 10**9 + 1, -(10**9) - 1, 0]).view(pa.timestamp("ns"))
    assert pairs(seconds, nanos, "=") == [True, False, False, False]
    assert pairs(seconds, nanos, "<") == [False, True, False, False]
    assert pairs(nanos, seconds, ">") == [False, True, False, False]
    days = pa.array([0, 1]).cast(pa.int32()).view(pa.date32())
    noon = pa.array([43_200, 86_400]).view(pa.timestamp("s", "UTC"))
    assert pairs(days, noon, "<") == [True, False]
    assert pairs(days, noon, "=") == [False, True]
    assert pairs(pa.array([dt.time(1)], pa.time32("s")), pa.array([dt.time(1)], pa.time64("ns")), "=") == [
        True
    ]


def test_texts_of_two_layouts_and_text_against_other_types() -> None:
    assert pairs(pa.array(["a", "é"]), pa.array(["a", "z"], pa.string_view()), ">") == [False, True]
    assert pairs(pa.array(["a"]), pa.array([b"a"], pa.binary(1)), "=") == [True]
    assert pairs(pa.array([" 5 ", "6"]), pa.array([5, 7]), "=") == [True, False]
    assert pairs(pa.array([1.5]), pa.array(["1.50"]), "=") == [True]
    assert pairs(pa.array(["2020-1-1"]), pa.array([dt.date(2020, 1, 1)]), "=") == [True]
    check({"s": ["5", "06", None]}, "s = 6", [False, True, None])
    check({"s": ["5", "06", None]}, "s IN (5, 7)", [True, False, None])
    with pytest.raises(PredicateError, match="doesn't fit"):
        check({"s": ["x"]}, "s = 6", [])


# -- casts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "to", "text", "wanted"),
    [
        (pa.array([1.9, -1.9, None]), "int", "x = 1 OR x = -1", [True, True, None]),
        (pa.array([D("1.99"), D("-1.99")]), "bigint", "x IN (1, -1)", [True, True]),
        (pa.array([D("1.25"), D("-1.25")]), "decimal(3, 1)", "x IN (1.3, -1.3)", [True, True]),
        (pa.array([1, 0]), "boolean", "x = true", [True, False]),
        (pa.array([True, False]), "int", "x = 1", [True, False]),
        (pa.array([12, None]), "string", "x LIKE '1_'", [True, None]),
        (pa.array([True, False]), "string", "x = 'true'", [True, False]),
        (pa.array([" 1 ", "+2", "-3"]), "int", "x > 0", [True, True, False]),
        (
            pa.array(["1e2", ".5", "nan", "1.5d", "-Infinity"]),
            "double",
            "x > 1",
            [True, False, True, True, False],
        ),
        (pa.array(["t", "NO", "1"]), "boolean", "x = true", [True, False, True]),
        (pa.array(["1.005", "-7"]), "decimal(5, 2)", "x = 1.01", [True, False]),
        (pa.array(["2020-01-05", "2020-1-5 10:00"]), "date", "x = '2020-01-05'", [True, True]),
        (pa.array(["2020-01-05 01:02:03.5", "2020"]), "timestamp", "x > '2020-01-02'", [True, False]),
        (pa.array([dt.date(2020, 1, 5)]), "string", "x = '2020-01-05'", [True]),
        (
            pa.array([dt.datetime(2020, 1, 5, 1, 2, 3, 500)]),
            "string",
            "x = '2020-01-05 01:02:03.0005'",
            [True],
        ),
        (pa.array([0.1], pa.float32()), "double", "x > 0.1", [True]),
        (pa.array([2**53 + 1]), "double", "x = 9007199254740992", [True]),
    ],
)
def test_casts(values: pa.Array, to: str, text: str, wanted: list[bool | None]) -> None:
    check({"a": values}, text.replace("x", f"cast(a AS {to})"), wanted)


@pytest.mark.parametrize(
    ("values", "to"),
    [
        (pa.array([1e10]), "int"),
        (pa.array([NAN]), "bigint"),
        (pa.array([2**63], pa.uint64()), "bigint"),
        (pa.array([D("999.9")]), "decimal(3, 1)"),
        (pa.array(["1.5"]), "int"),
        (pa.array(["maybe"]), "boolean"),
        (pa.array(["2020-13-01"]), "date"),
    ],
)
def test_a_value_that_doesnt_fit_is_an_error_and_null_for_try_cast(values: pa.Array, to: str) -> None:
    if to == "decimal(3, 1)":
        to = "decimal(2, 1)"
    with pytest.raises(PredicateError, match="doesn't fit"):
        check({"a": values}, f"cast(a AS {to}) IS NOT NULL", [])
    check({"a": values}, f"try_cast(a AS {to}) IS NULL", [True])


def test_casts_of_times_use_the_session_zone() -> None:
    late = pa.array([dt.datetime(2026, 3, 28, 23, 30)], pa.timestamp("us", "UTC"))
    check({"a": late}, "cast(a AS date) = '2026-03-28'", [True])
    check({"a": late}, "cast(a AS date) = '2026-03-29'", [True], tz="Europe/Paris")
    check({"a": late}, "cast(a AS timestamp_ntz) = '2026-03-29 00:30:00'", [True], tz="Europe/Paris")
    check({"a": late}, "cast(a AS string) = '2026-03-29 00:30:00'", [True], tz="Europe/Paris")
    check({"a": late}, "cast(a AS bigint) = 1774740600", [True])


# -- times -------------------------------------------------------------------------------------


@pytest.mark.parametrize("tz", ["Europe/Berlin", "+01:00"])
@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("ts > tn AND tn < ts AND ts > ns", True),
        ("ts = tn OR ts <=> tn OR ts IN (tn, ns)", False),
        ("NOT ts > tn", False),
        ("t0 >= d AND d <= t0 AND t0 >= cast(t0 AS date)", True),
        ("ts > st AND st < ts", True),
        ("ts > tn + interval 0 days", True),
        ("ts BETWEEN d AND tn", False),
        ("ts NOT BETWEEN d AND tn", True),
        ("ts > concat('2026-01-01', ' 12:30:00')", True),
        ("nullif(ts, tn) IS NULL", False),
        ("if(ts > tn, true, false)", True),
        ("CASE ts WHEN tn THEN true ELSE false END", False),
    ],
)
def test_values_without_a_zone_meet_instants_in_the_session_zone(text: str, wanted: bool, tz: str) -> None:
    noon = dt.datetime(2026, 1, 1, 12)
    late = dt.datetime(2025, 12, 31, 23, 30)
    columns = {
        "ts": pa.array([noon], pa.timestamp("us", "UTC")),
        "t0": pa.array([late], pa.timestamp("us", "UTC")),
        "tn": pa.array([noon], pa.timestamp("us")),
        "ns": pa.array([noon], pa.timestamp("ns")),
        "st": pa.array(["2026-01-01 12:00:00"]),
        "d": pa.array([noon.date()]),
    }
    check(columns, text, [wanted], tz)


def test_fields_of_dates() -> None:
    days = {"a": [dt.date(2020, 12, 31), dt.date(2021, 1, 3), None]}
    check(days, "year(a) = 2020", [True, False, None])
    check(days, "quarter(a) = 4 AND month(a) = 12 AND day(a) = 31", [True, False, None])
    check(days, "dayofyear(a) = 366", [True, False, None])
    check(days, "weekofyear(a) = 53", [True, True, None])
    check(days, "dayofweek(a) = 1", [False, True, None])
    check(days, "datediff(a, DATE '2020-12-30') = 1", [True, False, None])
    check(days, "date_add(a, 1) = '2021-01-01'", [True, False, None])
    check(days, "a - 3 = '2020-12-31'", [False, True, None])


def test_clocks_that_change_far_beyond_2037() -> None:
    summer = pa.array([dt.datetime(2090, 7, 1, 22, 30)], pa.timestamp("us", "UTC"))
    check({"a": summer}, "hour(a) = 0 AND day(a) = 2 AND minute(a) = 30", [True], tz="Europe/Paris")
    far = pa.array([86_400 * 365 * 30_000], pa.int64()).view(pa.timestamp("s", "UTC"))
    check({"a": far}, "year(a) > 20000", [True], tz="Europe/Paris")


def test_date_trunc_where_an_hour_occurs_twice() -> None:
    # Clocks in Paris went back from 03:00 to 02:00 at 01:00 UTC on 25 October 2026.
    times = pa.array(
        [dt.datetime(2026, 10, 25, 0, 30), dt.datetime(2026, 10, 25, 1, 30)], pa.timestamp("us", "UTC")
    )
    hour = Call("date_trunc", (lit("hour"), col("a")), "Europe/Paris")
    instant = lit(pa.scalar(dt.datetime(2026, 10, 25, 1), pa.timestamp("us", "UTC")))
    assert answers(Compare("=", hour, instant), pa.table({"a": times})) == [False, True]
    day = Call("date_trunc", (lit("day"), col("a")), "Europe/Paris")
    midnight = lit(pa.scalar(dt.datetime(2026, 10, 24, 22), pa.timestamp("us", "UTC")))
    assert answers(Compare("=", day, midnight), pa.table({"a": times})) == [True, True]


def test_a_gap_takes_the_offset_before_it() -> None:
    wall = pa.table({"a": pa.array([dt.datetime(2026, 3, 29, 2, 30), dt.datetime(2026, 10, 25, 2, 30)])})
    made = Cast(col("a"), pa.timestamp("us", "UTC"), "Europe/Paris")
    instants = pa.array(
        [dt.datetime(2026, 3, 29, 1, 30), dt.datetime(2026, 10, 25, 0, 30)], pa.timestamp("us", "UTC")
    )
    assert answers(made.isin(instants), wall) == [True, True]


# -- text --------------------------------------------------------------------------------------

TEXT = {"s": ["Straße", "a%b_c", "", None, "x\ny"]}


@pytest.mark.parametrize(
    "type", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
)
@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("upper(s) = 'STRASSE'", [True, False, False, None, False]),
        ("lower(s) = 'straße'", [True, False, False, None, False]),
        ("length(s) = 6", [True, False, False, None, False]),
        ("substr(s, 2, 3) = 'tra'", [True, False, False, None, False]),
        ("substr(s, -2) = 'ße'", [True, False, False, None, False]),
        ("substr(s, -7, 3) = 'St'", [True, False, False, None, False]),
        ("left(s, 2) = 'St' OR right(s, 2) = '_c'", [True, True, False, None, False]),
        ("concat(s, '!') = '!'", [False, False, True, None, False]),
        ("trim(concat(' ', s, ' ')) = ''", [False, False, True, None, False]),
        ("replace(s, 'ß', 'ss') = 'Strasse'", [True, False, False, None, False]),
        ("reverse(s) = 'c_b%a'", [False, True, False, None, False]),
        ("s LIKE '%ra%'", [True, False, False, None, False]),
        ("s LIKE '%c'", [False, True, False, None, False]),
        ("s LIKE 'a\\\\%b%'", [False, True, False, None, False]),
        ("s LIKE 'x_y'", [False, False, False, None, True]),
        ("s LIKE '%'", [True, True, True, None, True]),
        ("s NOT LIKE '%ß_'", [False, True, True, None, True]),
        ("s ILIKE 'sTRASSE' OR s ILIKE '%RAß%'", [True, False, False, None, False]),
        ("endswith(s, '_c') OR contains(s, '')", [True, True, True, None, True]),
        ("contains(s, '%b')", [False, True, False, None, False]),
        ("s || 'x' LIKE 'x'", [False, False, True, None, False]),
        ("s LIKE concat('%', 'ra%') OR s ILIKE concat('X', '%')", [True, False, False, None, True]),
        ("s LIKE NULL OR startswith(s, NULL)", [None] * 5),
        ("endswith(s, concat('_', 'c'))", [False, True, False, None, False]),
    ],
)
def test_text_functions_and_patterns(type: pa.DataType, text: str, wanted: list[bool | None]) -> None:
    check({"s": pa.array(TEXT["s"]).cast(type)}, text, wanted)


def test_bytes_are_joined_to_bytes() -> None:
    columns = {"b": pa.array([b"\xff", b"", None])}
    check(columns, "b || b = unhex('FFFF')", [True, False, None])
    check(columns, "concat(b, NULL) IS NULL", [True, True, True])


@pytest.mark.parametrize(
    "text",
    ["extract(second FROM d) = 1", "to_date(s, 'yyyy') = d", "contains(s, s)", "s LIKE s", "contains()"],
)
def test_a_known_function_with_other_arguments_is_not_called_unknown(text: str) -> None:
    schema = pa.schema({"s": pa.string(), "d": pa.date32()})
    with pytest.raises(NotExpressibleError, match="the arguments are not supported"):
        RowFilter(parse_sql(text), schema)


def test_isnan_casts_strings_and_rejects_other_types() -> None:
    check({"s": ["NaN", "1", None]}, "isnan(s)", [True, False, False])
    for values in ([True], [b"a"], [dt.date(2026, 1, 1)]):
        with pytest.raises(TypeMismatchError, match="isnan needs a number"):
            RowFilter(parse_sql("isnan(a)"), pa.table({"a": values}).schema)
