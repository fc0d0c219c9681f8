"""One map of types, and arrays that follow it without a value changed."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import types as st

from skipstone.engine.spark_types import (
    arrow_schema,
    schema_in_footers,
    spark_schema,
    to_spark_batch,
    to_spark_table,
)
from skipstone.errors import SchemaError

WORDS = pa.array(["a", None, "", "é" * 20])
CASES: list[tuple[pa.Array, str, list[object]]] = [
    (pa.array([1, None], pa.uint8()), "smallint", [1, None]),
    (pa.array([65535], pa.uint16()), "int", [65535]),
    (pa.array([2**32 - 1], pa.uint32()), "bigint", [2**32 - 1]),
    (pa.array([2**64 - 1, None], pa.uint64()), "decimal(20,0)", [Decimal(2**64 - 1), None]),
    (WORDS.cast(pa.large_string()), "string", WORDS.to_pylist()),
    (WORDS.cast(pa.string_view()), "string", WORDS.to_pylist()),
    (WORDS.dictionary_encode(), "string", WORDS.to_pylist()),
    (pa.array([b"abc", None], pa.binary(3)), "binary", [b"abc", None]),
    (pa.array([5, None, -5], pa.duration("us")), "bigint", [5, None, -5]),
    (pa.array([None, None]), "int", [None, None]),
    (pa.array([Decimal("1.5")], pa.decimal256(20, 2)), "decimal(20,2)", [Decimal("1.50")]),
    (pa.array([[1, None], None, []], pa.large_list(pa.uint8())), "array<smallint>", [[1, None], None, []]),
    (pa.array([[1, 2], None], pa.list_(pa.int8(), 2)), "array<tinyint>", [[1, 2], None]),
    (pa.array([[1], None, []], pa.list_view(pa.int8())), "array<tinyint>", [[1], None, []]),
    (
        pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.uint8())),
        "map<string,smallint>",
        [[("a", 1)], None, []],
    ),
    (
        pa.array(
            [{"u": 1, "l": [7]}, None, {"u": None, "l": None}],
            pa.struct([("u", pa.uint8()), ("l", pa.list_(pa.uint16()))]),
        ),
        "struct<u:smallint,l:array<int>>",
        [{"u": 1, "l": [7]}, None, {"u": None, "l": None}],
    ),
]


@pytest.mark.parametrize(("array", "words", "values"), CASES, ids=[str(case[0].type) for case in CASES])
def test_arrays(array: pa.Array, words: str, values: list[object]) -> None:
    for one in (array, pa.concat_arrays([array, array]).slice(len(array))):
        batch = pa.record_batch([one], names=["c"])
        schema = spark_schema(batch.schema, batch.schema)
        assert schema["c"].dataType.simpleString() == words
        target = arrow_schema(schema)
        for found in (to_spark_batch(batch, target), to_spark_table(pa.table(batch), target)):
            assert found.schema.equals(target)
            found.validate(full=True)
            assert found.column("c").to_pylist() == values


def test_old_instants_are_cut_downwards() -> None:
    stored = pa.schema([("t", pa.timestamp("ns"))])
    schema = spark_schema(stored, pa.schema([("t", pa.timestamp("ns", "UTC"))]))
    assert schema["t"].dataType == st.TimestampType()
    nanos = pa.array([1_999, -1, -1_000, -1_001, None], pa.int64()).view(pa.timestamp("ns"))
    found = to_spark_batch(pa.record_batch([nanos], schema=stored), arrow_schema(schema))
    assert found.column(0).view(pa.int64()).to_pylist() == [1, -1, -1, -2, None]


def test_what_spark_has_told() -> None:
    told = st.StructType(
        [
            st.StructField("d", st.DayTimeIntervalType()),
            st.StructField("l", st.ArrayType(st.DayTimeIntervalType(0, 0))),
            st.StructField("m", st.YearMonthIntervalType(1, 1)),
        ]
    )
    text = told.json().encode()
    again = schema_in_footers(
        [
            {},
            {b"org.apache.spark.sql.parquet.row.metadata": b"{"},
            {b"org.apache.spark.sql.parquet.row.metadata": text},
        ]
    )
    assert again == told
    stored = pa.schema([("d", pa.int64()), ("l", pa.list_(pa.int64()))])
    assert spark_schema(stored, stored, again) == st.StructType(again.fields[:2])
    with pytest.raises(SchemaError, match="column m: Arrow does not support year-month intervals"):
        spark_schema(pa.schema([("m", pa.int32())]), pa.schema([("m", pa.int32())]), again)


def test_partitions_of_nothing() -> None:
    schema = pa.schema([("p", pa.null())])
    assert spark_schema(schema, schema, None, ["p"])["p"].dataType == st.NullType()


def test_a_struct_that_is_cut_down() -> None:
    read = pa.schema([("st", pa.struct([("b", pa.int8())]))])
    asked = pa.schema([("st", pa.struct([("a", pa.float16()), ("b", pa.int8())]))])
    assert spark_schema(read, asked)["st"].dataType.simpleString() == "struct<b:tinyint>"
