"""Hive partitions: what Spark infers, what the caller forces, and what other writers make of odd values."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone import parse
from skipstone.core.domain.keys import to_key
from skipstone.core.ir import compile_predicate
from skipstone.core.judge import Verdict, judge
from skipstone.core.plain import type_name
from skipstone.errors import SchemaError, UsageError
from skipstone.lake.partitions import Partitions, read_partitions
from tests.support.calls import calls

NULL = "__HIVE_DEFAULT_PARTITION__"
INSTANT = pa.timestamp("us", "UTC")
TIME = pa.time64("us")
UTC = dt.UTC


def keys_of(*values: str) -> list[str]:
    return [f"k={value}/part-{i}.parquet" for i, value in enumerate(values)]


def read(*values: str, type: pa.DataType | None = None) -> pa.Array:
    schema = None if type is None else pa.schema([("k", type)])
    return read_partitions(keys_of(*values), schema=schema).values[0]


def digits(precision: int) -> pa.DataType:
    return pa.decimal128(precision, 0)


# What spark.read.parquet of Spark 4.3 makes of directories of these names.
SPARK: list[tuple[tuple[str, ...], pa.DataType, list[object]]] = [
    (("1", "2"), pa.int32(), [1, 2]),
    (("01", "2"), pa.int32(), [1, 2]),
    (("+1", "-1", "-0"), pa.int32(), [1, -1, 0]),
    (("000000000000000000000000000000000000000001",), pa.int32(), [1]),
    (("٣", "１２"), pa.int32(), [3, 12]),
    (("-2147483648",), pa.int32(), [-(2**31)]),
    (("-2147483649",), pa.int64(), [-(2**31) - 1]),
    (("1", "2147483648"), pa.int64(), [1, 2**31]),
    (("9223372036854775808",), digits(19), [decimal.Decimal(2**63)]),
    (("9" * 38,), digits(38), [decimal.Decimal("9" * 38)]),
    (("9" * 39,), pa.float64(), [1e39]),
    (("1", "9223372036854775808"), digits(19), [decimal.Decimal(1), decimal.Decimal(2**63)]),
    (("2147483648", "9223372036854775808"), digits(20), [decimal.Decimal(2**31), decimal.Decimal(2**63)]),
    (("9223372036854775808", "1.5"), pa.string(), ["9223372036854775808", "1.5"]),
    (("1e5",), digits(6), [decimal.Decimal(100000)]),
    (("1", "1e5"), digits(10), [decimal.Decimal(1), decimal.Decimal(100000)]),
    (("1.5e1",), digits(2), [decimal.Decimal(15)]),
    (("5.",), digits(1), [decimal.Decimal(5)]),
    (("0e5",), digits(6), [decimal.Decimal(0)]),
    (("1e37",), digits(38), [decimal.Decimal(10**37)]),
    (("1e38",), pa.float64(), [1e38]),
    (("1", "1.5"), pa.float64(), [1.0, 1.5]),
    (("2147483648", "1.5"), pa.string(), ["2147483648", "1.5"]),
    (("1.0f", "2", "1d", "1e5D"), pa.float64(), [1.0, 2.0, 1.0, 1e5]),
    ((" 1", "1 ", "\t1"), pa.float64(), [1.0, 1.0, 1.0]),
    ((".5", "+.5", "1e-5"), pa.float64(), [0.5, 0.5, 1e-5]),
    (("Infinity", "-Infinity", "1e400"), pa.float64(), [math.inf, -math.inf, math.inf]),
    (("0x1p3", "-0x1.8p1d"), pa.float64(), [8.0, -3.0]),
    (("0x10",), pa.string(), ["0x10"]),
    (("1_000",), pa.string(), ["1_000"]),
    (("1L",), pa.string(), ["1L"]),
    (("nan",), pa.string(), ["nan"]),
    (("inf", "infinity"), pa.string(), ["inf", "infinity"]),
    (("٣.٥",), pa.string(), ["٣.٥"]),
    (("1e", "+", "-", ".", "--1", "1,5"), pa.string(), ["1e", "+", "-", ".", "--1", "1,5"]),
    (("true", "false"), pa.string(), ["true", "false"]),
    (("01", "abc"), pa.string(), ["01", "abc"]),
    (("1.50", "2020-01-01"), pa.string(), ["1.50", "2020-01-01"]),
    (("2020-01-01", "0001-01-01"), pa.date32(), [dt.date(2020, 1, 1), dt.date(1, 1, 1)]),
    (("2020-1-1",), pa.string(), ["2020-1-1"]),
    (("2020-02-30",), pa.string(), ["2020-02-30"]),
    (("2020-01-01 ",), pa.string(), ["2020-01-01 "]),
    (("2020",), pa.int32(), [2020]),
    (("2020-01",), pa.string(), ["2020-01"]),
    (("2020-01-01", "1"), pa.string(), ["2020-01-01", "1"]),
    (("2020-01-01 10:11:12",), INSTANT, [dt.datetime(2020, 1, 1, 10, 11, 12, tzinfo=UTC)]),
    (("2020-01-01%2010%3A11%3A12",), INSTANT, [dt.datetime(2020, 1, 1, 10, 11, 12, tzinfo=UTC)]),
    (("2020-01-01 10:11:12.5",), INSTANT, [dt.datetime(2020, 1, 1, 10, 11, 12, 500000, UTC)]),
    (("2020-01-01 10:11:12.50",), pa.string(), ["2020-01-01 10:11:12.50"]),
    (("2020-01-01T10:11:12",), pa.string(), ["2020-01-01T10:11:12"]),
    (("2020-01-01 10:11",), pa.string(), ["2020-01-01 10:11"]),
    (("2020-01-01 10:11:12Z",), pa.string(), ["2020-01-01 10:11:12Z"]),
    (("2020-01-01 24:00:00",), pa.string(), ["2020-01-01 24:00:00"]),
    (("2020-12-31 23:59:60",), pa.string(), ["2020-12-31 23:59:60"]),
    (
        ("2020-01-01", "2020-01-01 10:11:12"),
        INSTANT,
        [dt.datetime(2020, 1, 1, tzinfo=UTC), dt.datetime(2020, 1, 1, 10, 11, 12, tzinfo=UTC)],
    ),
    (("10:11:12", "10%3A11%3A12.5"), TIME, [dt.time(10, 11, 12), dt.time(10, 11, 12, 500000)]),
    (("10:11",), pa.string(), ["10:11"]),
    (("10:11:12.1234567",), pa.string(), ["10:11:12.1234567"]),
    (("10:11:12", "2020-01-01"), pa.string(), ["10:11:12", "2020-01-01"]),
    ((NULL,), pa.null(), [None]),
    ((NULL, "1"), pa.int32(), [None, 1]),
    ((NULL, "01", "a"), pa.string(), [None, "01", "a"]),
    ((NULL, "10:11:12"), TIME, [None, dt.time(10, 11, 12)]),
    (("%5F_HIVE_DEFAULT_PARTITION__",), pa.string(), [NULL]),
    (("null",), pa.string(), ["null"]),
    (("%31",), pa.string(), ["1"]),
    (("1e%2B20",), pa.string(), ["1e+20"]),
    (("2020%2D01%2D01",), pa.string(), ["2020-01-01"]),
    (("a%2Fb", "a%2fc"), pa.string(), ["a/b", "a/c"]),
    (("a%zzb", "a%", "a%2", "a+b", "a=b"), pa.string(), ["a%zzb", "a%", "a%2", "a+b", "a=b"]),
]


@pytest.mark.parametrize(("texts", "type", "values"), SPARK, ids=[" ".join(case[0])[:40] for case in SPARK])
def test_inferred_as_spark_does(texts: tuple[str, ...], type: pa.DataType, values: list[object]) -> None:
    found = read(*texts)
    assert found.type == type
    assert found.to_pylist() == values


class TestOwnRules:
    """Where Spark fails, or reads what no Spark has written."""

    def test_empty_is_null(self) -> None:
        assert read("", "7").to_pylist() == [None, 7]

    def test_escapes_are_utf8(self) -> None:
        assert read("%C3%A9%E6%BC%A2").to_pylist() == ["é漢"]

    def test_escapes_that_are_no_utf8(self) -> None:
        assert read("a%FFb").to_pylist() == ["aÿb"]

    def test_years_python_has_not(self) -> None:
        assert read("0000-01-01").to_pylist() == ["0000-01-01"]

    def test_nan(self) -> None:
        found = read("NaN", "1.5")
        assert found.type == pa.float64()
        assert math.isnan(found[0].as_py())

    def test_numbers_without_end(self) -> None:
        assert read("1" * 5000).to_pylist() == [math.inf]
        assert read("1e" + "9" * 30).to_pylist() == [math.inf]
        assert read("1e-" + "9" * 30).to_pylist() == [0.0]


class TestGivenTypes:
    @pytest.mark.parametrize(
        ("text", "type", "value"),
        [
            ("01", pa.string(), "01"),
            ("01", pa.large_string(), "01"),
            ("01", pa.string_view(), "01"),
            ("a%20b", pa.binary(), b"a b"),
            ("ab", pa.binary(2), b"ab"),
            ("01", pa.int8(), 1),
            ("01", pa.dictionary(pa.int32(), pa.string()), "01"),
            ("18446744073709551615", pa.uint64(), 2**64 - 1),
            ("True", pa.bool_(), True),
            ("1", pa.float32(), 1.0),
            ("1.5", pa.float16(), 1.5),
            ("inf", pa.float64(), math.inf),
            ("1.50", pa.decimal128(3, 1), decimal.Decimal("1.5")),
            ("1e3", pa.decimal256(40, 2), decimal.Decimal("1000.00")),
            ("0e400", pa.decimal128(3, 1), decimal.Decimal("0.0")),
            ("2020-01-01", pa.date64(), dt.date(2020, 1, 1)),
            ("2020-01-01", pa.timestamp("s"), dt.datetime(2020, 1, 1)),
            ("2020-01-01T10:11:12.123", pa.timestamp("ms"), dt.datetime(2020, 1, 1, 10, 11, 12, 123000)),
            ("2020-01-01 10%3A11%3A12%2B02", INSTANT, dt.datetime(2020, 1, 1, 8, 11, 12, tzinfo=UTC)),
            ("1969-12-31 23:59:59.5-0030", INSTANT, dt.datetime(1970, 1, 1, 0, 29, 59, 500000, UTC)),
            ("10:11:12", pa.time32("s"), dt.time(10, 11, 12)),
            (NULL, pa.int32(), None),
            ("", pa.string(), None),
            (NULL, pa.null(), None),
        ],
    )
    def test_fits(self, text: str, type: pa.DataType, value: object) -> None:
        found = read(text, type=type)
        assert found.type == type
        assert found.to_pylist() == [value]

    @pytest.mark.parametrize(
        ("text", "type"),
        [
            ("1.0", pa.int32()),
            ("128", pa.int8()),
            ("-1", pa.uint8()),
            ("1_0", pa.int32()),
            (" 1", pa.int32()),
            ("9" * 300, pa.int64()),
            ("x", pa.float64()),
            ("1.55", pa.decimal128(5, 1)),
            ("1000", pa.decimal128(3, 0)),
            ("1e300", pa.decimal128(38, 0)),
            ("yes", pa.bool_()),
            ("abc", pa.binary(2)),
            ("2020-1-1", pa.date32()),
            ("2020-01-01 10:11:12.5", pa.timestamp("s")),
            ("2020-01-01 10:11:12Z", pa.timestamp("us")),
            ("2020-01-01 10:11:12 later", INSTANT),
            ("9999-01-01", pa.timestamp("ns")),
            ("10:11:12.5", pa.time32("s")),
            ("25:00:00", pa.time64("us")),
            ("x", pa.null()),
        ],
    )
    def test_does_not_fit(self, text: str, type: pa.DataType) -> None:
        with pytest.raises(SchemaError) as caught:
            read_partitions(
                ["k=/a.parquet", "k=__HIVE_DEFAULT_PARTITION__/b.parquet", f"k={text}/c.parquet"],
                schema=pa.schema([("k", type)]),
                uri="s3://lake/",
            )
        assert caught.value.path == f"s3://lake/k={text}/c.parquet"
        assert caught.value.column == "k"
        assert type_name(type) in str(caught.value)

    def test_only_some(self) -> None:
        found = read_partitions(["a=01/b=02/x"], schema=pa.schema([("b", pa.string())]))
        assert found.schema == pa.schema([("a", pa.int32()), ("b", pa.string())])

    def test_unknown_name(self) -> None:
        with pytest.raises(UsageError, match=r"'A' is not a partition column.*columns are: a, b"):
            read_partitions(["a=1/b=2/x"], schema=pa.schema([("A", pa.int32())]))

    def test_impossible_type(self) -> None:
        with pytest.raises(UsageError, match="list"):
            read_partitions(["a=1/x"], schema=pa.schema([("a", pa.list_(pa.int32()))]))

    def test_no_files(self) -> None:
        schema = pa.schema([("a", pa.int32())])
        found = read_partitions([], schema=schema)
        assert (found.schema, len(found), len(found.evidence())) == (schema, 0, 0)


class TestShapes:
    def test_none(self) -> None:
        found = read_partitions(["x.parquet", "sub/a=1.parquet"])
        assert (found.schema, found.values, len(found)) == (pa.schema([]), (), 2)
        assert len(found.evidence()) == 2
        assert len(found.take(np.array([1]))) == 1

    def test_other_directories_do_not_count(self) -> None:
        found = read_partitions(["sub/a=1/deep/b=x/f", "a=2/b=y/f"])
        assert found.schema.names == ["a", "b"]
        assert [v.to_pylist() for v in found.values] == [[1, 2], ["x", "y"]]

    def test_escaped_name_and_first_equals_sign(self) -> None:
        found = read_partitions(["a%20b=c=d/f"])
        assert found.schema.names == ["a b"]
        assert found.values[0].to_pylist() == ["c=d"]

    @pytest.mark.parametrize(
        ("first", "second", "shapes"),
        [
            ("a=1/x", "b=1/y", ["'a'", "'b'"]),
            ("a=1/x", "y", ["'a'", "nothing"]),
            ("a=1/b=2/x", "b=2/a=1/y", ["'a', 'b'", "'b', 'a'"]),
            ("a=1/x", "A=2/y", ["'a'", "'A'"]),
        ],
    )
    def test_two_shapes(self, first: str, second: str, shapes: list[str]) -> None:
        with pytest.raises(SchemaError) as caught:
            read_partitions([first, second], uri="/lake")
        assert caught.value.path == f"/lake/{second}"
        assert f"/lake/{first}" in caught.value.message
        assert all(shape in caught.value.message for shape in shapes)

    @pytest.mark.parametrize("path", ["a=1/a=2/f", "a=1/A=2/f"])
    def test_same_name_twice(self, path: str) -> None:
        with pytest.raises(SchemaError, match="more than case"):
            read_partitions([path])

    def test_no_name(self) -> None:
        with pytest.raises(SchemaError, match="has no column name"):
            read_partitions(["=1/f"])

    def test_take_and_pickle(self) -> None:
        found = read_partitions(["a=1/x", "a=2/x", "a=3/x"])
        chosen: Partitions = pickle.loads(pickle.dumps(found.take(np.array([2, 0]))))
        assert chosen.values[0].to_pylist() == [3, 1]
        assert found.take(np.array([])).values[0].to_pylist() == []


class TestFacts:
    def test_numbers(self) -> None:
        facts = read_partitions(keys_of("1.5", NULL, "NaN", "-0.0")).facts(0)
        assert facts.type == pa.float64()
        assert facts.lower.tolist() == [1.5, -math.inf, -math.inf, 0]
        assert facts.upper.tolist() == [1.5, math.inf, math.inf, 0]
        assert facts.may_value.tolist() == facts.lower_exact.tolist() == [True, False, False, True]
        assert facts.may_null.tolist() == [False, True, False, False]
        assert facts.may_nan.tolist() == [False, False, True, False]

    def test_texts(self) -> None:
        facts = read_partitions(keys_of("é", NULL, "a")).facts(0)
        assert facts.lower.to_pylist() == facts.upper.to_pylist() == ["é".encode(), None, b"a"]
        assert facts.may_value.tolist() == [True, False, True]

    def test_only_nulls(self) -> None:
        facts = read_partitions(keys_of(NULL, "")).facts(0)
        assert facts.may_null.all()
        assert not facts.may_value.any()

    def test_row_counts(self) -> None:
        found = read_partitions(["a=1/b=x/f", "a=2/b=y/f"])
        assert list(found.evidence().columns) == [("a",), ("b",)]
        assert found.evidence().occupied is None
        assert found.evidence(np.array([0, 5])).rows.tolist() == [0, 5]

    @pytest.mark.parametrize(
        ("texts", "condition", "all_of"),
        [
            (["1", "2", NULL], "k = 2", [1]),
            (["1", "2", NULL], "k <> 2", [0]),
            (["1", "2", NULL], "k is null", [2]),
            (["01", "x", ""], "k >= '1'", [1]),
            (["1.5", "NaN", NULL, "-0.0"], "k > 1", [0, 1]),
            (["1.5", "NaN", NULL, "-0.0"], "k = 0", [3]),
            (["2020-01-01", "2020-01-02", NULL], "k < '2020-01-02'", [0]),
            (["2020-01-01 10%3A00%3A00", "2020-01-02"], "k = timestamp '2020-01-01 10:00:00'", [0]),
            (["9223372036854775808", "5"], "k = 9223372036854775808", [0]),
        ],
    )
    def test_judged_like_the_values(self, texts: list[str], condition: str, all_of: list[int]) -> None:
        found = read_partitions(keys_of(*texts))
        node = compile_predicate(parse(condition), found.schema).node
        verdicts = judge(node, found.evidence()).verdicts().tolist()
        assert verdicts == [Verdict.ALL if i in all_of else Verdict.NONE for i in range(len(texts))]

    @given(
        st.sampled_from(
            [
                pa.int8(),
                pa.uint64(),
                pa.float16(),
                pa.float64(),
                pa.string(),
                pa.string_view(),
                pa.dictionary(pa.int8(), pa.string()),
                pa.binary(),
                pa.bool_(),
                pa.decimal128(5, 2),
                pa.decimal128(30, 2),
                pa.decimal256(60, 2),
                pa.date32(),
                pa.date64(),
                pa.timestamp("ns"),
                INSTANT,
                pa.time32("s"),
            ]
        ),
        st.data(),
    )
    def test_facts_are_the_values(self, type: pa.DataType, data: st.DataObject) -> None:
        texts = data.draw(st.lists(st.one_of(st.just(NULL), _texts(type)), min_size=1, max_size=6))
        found = read_partitions(keys_of(*texts), schema=pa.schema([("k", type)]))
        facts = found.facts(0)
        lower, upper = (
            bound.to_pylist() if isinstance(bound, pa.Array) else bound.tolist()
            for bound in (facts.lower, facts.upper)
        )
        for unit, scalar in enumerate(found.values[0]):
            value = scalar.as_py()
            kinds = (facts.may_value[unit], facts.may_null[unit], facts.may_nan[unit])
            if value is None:
                assert kinds == (False, True, False)
            elif isinstance(value, float) and math.isnan(value):
                assert kinds == (False, False, True)
            else:
                plain = scalar.value if pa.types.is_dictionary(type) else scalar
                assert kinds == (True, False, False)
                assert lower[unit] == upper[unit] == to_key(type, plain)
                assert facts.lower_exact[unit]
                assert facts.upper_exact[unit]


def _texts(type: pa.DataType) -> st.SearchStrategy[str]:
    storage = type.value_type if pa.types.is_dictionary(type) else type
    if pa.types.is_boolean(storage):
        return st.sampled_from(["true", "false"])
    if pa.types.is_integer(storage):
        return st.integers(0, 127).map(str)
    if pa.types.is_floating(storage):
        return st.floats(width=16).map(str)
    if pa.types.is_decimal(storage):
        return st.decimals(-999, 999, places=2, allow_nan=False).map(str)
    if pa.types.is_time(storage):
        return st.times().map(lambda t: t.replace(microsecond=0).isoformat())
    if pa.types.is_temporal(storage):
        return st.dates(dt.date(1700, 1, 1), dt.date(2200, 1, 1)).map(str)
    return st.text(st.characters(exclude_characters="/%", exclude_categories=["Cs"]), min_size=1)


# -- other writers -----------------------------------------------------------------------------


def _arrow(table: pa.Table, root: Path) -> None:
    partitioning = ds.partitioning(pa.schema([table.schema.field("k")]), flavor="hive")
    ds.write_dataset(table, root, format="parquet", partitioning=partitioning)


def _duckdb(table: pa.Table, root: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        connection.register("t", table)
        connection.execute(f"copy t to '{root}' (format parquet, partition_by (k))")


def _polars(table: pa.Table, root: Path) -> None:
    polars = pytest.importorskip("polars")
    root.mkdir()
    polars.from_arrow(table).write_parquet(f"{root}/", partition_by="k")


WRITTEN: list[pa.Array] = [
    pa.array(
        [
            "a/b",
            "50%",
            "a=b",
            "x y",
            "é漢",
            "%41",
            "a:b",
            None,
            "..",
            "a\\b",
            "t\tb",
            "q\"u'o",
            "#?&",
            "+1",
            "~",
        ]
    ),
    pa.array([1, -5, None, 2**40]),
    pa.array([1.5, 1e20, 1e-7, math.inf, None]),
    pa.array([True, False, None]),
    pa.array([dt.date(2020, 1, 1), None]),
    pa.array([dt.datetime(2020, 1, 1, 10, 11, 12, 500000), None], pa.timestamp("us")),
    pa.array([dt.datetime(2020, 1, 1, 10, 11, 12, tzinfo=UTC)], INSTANT),
    pa.array([decimal.Decimal("1.50"), decimal.Decimal("-0.05")]),
]


@pytest.mark.parametrize("write", [_arrow, _duckdb, _polars])
@pytest.mark.parametrize("values", WRITTEN, ids=lambda values: str(values.type))
def test_round_trip(write: Callable[[pa.Table, Path], Any], values: pa.Array, tmp_path: Path) -> None:
    root = tmp_path / "lake"
    write(pa.table({"k": values, "v": range(len(values))}), root)
    keys = [path.relative_to(root).as_posix() for path in root.rglob("*.parquet")]
    found = read_partitions(keys, schema=pa.schema([("k", values.type)]))
    assert len(found) == len(values)
    assert set(found.values[0].to_pylist()) == set(values.to_pylist())
    if pa.types.is_string(values.type) or pa.types.is_integer(values.type) or pa.types.is_date(values.type):
        assert set(read_partitions(keys).values[0].to_pylist()) == set(values.to_pylist())


def test_many_files_in_few_directories_are_fast() -> None:
    keys = [f"year={i % 300}/day=2020-01-{i % 28 + 1:02}/part-{i}.parquet" for i in range(20_000)]
    found = read_partitions(keys)
    # A few for each file: directories are parsed once.
    assert 20_000 < calls(lambda: read_partitions(keys)) < 200_000
    assert found.schema.types == [pa.int32(), pa.date32()]
    assert found.values[0][301].as_py() == 1
