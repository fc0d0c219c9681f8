from __future__ import annotations

import decimal

import numpy as np
import pyarrow as pa
import pytest

from skipstone.errors import TypeMismatchError, UnknownColumnError, UsageError
from skipstone.parquet.slice.columns import take
from skipstone.scan.projection import Order, parse_order, sort_positions

NAN = float("nan")
SCHEMA = pa.schema(
    {"a": pa.int64(), "b c": pa.string(), "s": pa.struct({"x": pa.float64()}), "l": pa.list_(pa.int8())}
)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("a", [Order(("a",), False, True)]),
        ("a desc", [Order(("a",), True, False)]),
        (
            ["a ASC NULLS LAST", "s.x DESC nulls first"],
            [Order(("a",), False, False), Order(("s", "x"), True, True)],
        ),
        ([("a", "descending"), "b c desc"], [Order(("a",), True, False), Order(("b c",), True, False)]),
        (None, []),
    ],
)
def test_what_can_be_written(given, wanted):
    parsed = parse_order(given, SCHEMA, case_sensitive=True)
    assert list(parsed) == wanted
    assert parse_order([str(term) for term in parsed], SCHEMA, case_sensitive=True) == parsed


@pytest.mark.parametrize(
    ("given", "error"),
    [("zz", UnknownColumnError), ([3], UsageError), ([("a", "up")], UsageError), ("l", TypeMismatchError)],
)
def test_what_can_not(given, error):
    with pytest.raises(error):
        parse_order(given, SCHEMA, case_sensitive=True)


def ordered(values, type, **order):
    table = pa.table({"x": pa.chunked_array([pa.array(values[:2], type), pa.array(values[2:], type)])})
    places = sort_positions(table, [Order(("x",), **order)])
    return take(table, places)["x"].to_pylist()


def test_floats_as_spark_orders_them():
    values = [1.0, NAN, None, -0.0, 0.0, float("inf"), -2.0, float("-inf")]
    up = ordered(values, pa.float64(), descending=False, nulls_first=True)
    assert repr(up) == "[None, -inf, -2.0, -0.0, 0.0, 1.0, inf, nan]"
    down = ordered(values, pa.float64(), descending=True, nulls_first=False)
    assert repr(down) == "[nan, inf, 1.0, -0.0, 0.0, -2.0, -inf, None]"
    assert repr(ordered(values, pa.float16(), descending=False, nulls_first=False))[-10:] == "nan, None]"


@pytest.mark.parametrize(
    ("type", "values"),
    [
        (pa.string(), ["b", None, "a", "é", "z"]),
        (pa.string_view(), ["b", None, "a", "é", "z"]),
        (pa.dictionary(pa.int8(), pa.string()), ["b", None, "a", "b", "z"]),
        (pa.binary(3), [b"bbb", None, b"aaa", b"\xff\0\0"]),
        (pa.decimal128(9, 2), [decimal.Decimal("1.10"), None, decimal.Decimal("-3.00")]),
        (pa.date32(), [3, None, 1]),
        (pa.timestamp("us", "UTC"), [3, None, 1]),
        (pa.time32("s"), [3, None, 1]),
        (pa.duration("ms"), [3, None, 1]),
        (pa.uint64(), [2**64 - 1, None, 0, 2**63]),
        (pa.bool_(), [True, None, False, True]),
        (pa.null(), [None, None, None]),
    ],
)
def test_every_type_sorts(type, values):
    array = (
        pa.array(values, type)
        if not pa.types.is_temporal(type)
        else pa.array(values, pa.int64()).cast(pa.int32() if type.bit_width == 32 else pa.int64()).cast(type)
    )
    plain = array.to_pylist()
    known = sorted((v for v in plain if v is not None), key=lambda v: v.encode() if isinstance(v, str) else v)
    nulls = [None] * (len(plain) - len(known))
    assert ordered(plain, type, descending=False, nulls_first=True) == nulls + known
    assert ordered(plain, type, descending=True, nulls_first=False) == known[::-1] + nulls
    assert ordered(plain, type, descending=True, nulls_first=True) == nulls + known[::-1]


def test_ties_stay_in_place_and_a_limit_takes_the_first():
    table = pa.table({"x": np.arange(1000) % 7, "y": np.arange(1000) % 3})
    terms = [Order(("x",), True, False), Order(("y",), False, True)]
    whole = sort_positions(table, terms)
    wanted = sorted(range(1000), key=lambda n: (-(n % 7), n % 3, n))
    assert whole.tolist() == wanted
    assert sort_positions(table, terms, 20).tolist() == wanted[:20]
