from __future__ import annotations

import math
import struct
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.conversions import to_bytes
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    UnknownType,
    UUIDType,
)

from skipstone.core.domain.keys import to_key
from skipstone.core.evidence import ColumnFacts
from skipstone.iceberg.manifests.entries import Entries, Metrics, MetricsByField
from skipstone.iceberg.manifests.metrics import file_facts

_INT64 = (-(2**63), 2**63 - 1)


def _entries(*files: dict[str, Any]) -> Entries:
    """Files of 10 rows with the given metrics of column 5; a count that isn't given is unknown."""
    counts = {
        name: np.array([f.get(name, -1) for f in files], np.int64) for name in ("values", "nulls", "nans")
    }
    bounds = {name: pa.array([f.get(name) for f in files], pa.large_binary()) for name in ("lower", "upper")}
    rows = np.array([f.get("rows", 10) for f in files], np.int64)
    return replace(Entries.empty(), rows=rows, measures=MetricsByField({5: Metrics(**counts, **bounds)}))


def _facts(
    field_type: IcebergType, type: pa.DataType, *files: dict[str, Any], required: bool = False
) -> ColumnFacts:
    return file_facts(_entries(*files), 5, type, field_type, required)


def _long(n: int) -> bytes:
    return struct.pack("<q", n)


def _double(x: float) -> bytes:
    return struct.pack("<d", x)


def test_bounds_and_counts_of_numbers() -> None:
    full = {"values": 10, "nulls": 0, "lower": _long(3), "upper": _long(9)}
    found = _facts(LongType(), pa.int64(), full, {**full, "nulls": 4}, {**full, "nulls": -1}, {})
    assert found.lower.tolist() == [3, 3, 3, _INT64[0]]
    assert found.upper.tolist() == [9, 9, 9, _INT64[1]]
    assert found.may_null.tolist() == [False, True, True, True]
    assert found.may_value.all()
    assert not found.may_nan.any()
    assert not found.lower_exact.any()
    assert found.type == pa.int64()


def test_a_bound_alone_and_bounds_that_cross() -> None:
    found = _facts(
        LongType(),
        pa.int64(),
        {"lower": _long(3)},
        {"upper": _long(3)},
        {"lower": _long(4), "upper": _long(3)},
        {"lower": b"xyz", "upper": _long(3)},
    )
    assert found.lower.tolist() == [3, *[_INT64[0]] * 3]
    assert found.upper.tolist() == [_INT64[1], 3, _INT64[1], 3]


def test_all_null_needs_equal_counts_and_no_bounds() -> None:
    nothing = {"values": 10, "nulls": 10}
    found = _facts(
        LongType(),
        pa.int64(),
        nothing,
        {**nothing, "lower": _long(1)},
        {**nothing, "values": -1},
        {**nothing, "rows": 11},
        {**nothing, "nulls": 11},
        {"values": 0, "nulls": 0, "rows": 0},
    )
    assert found.may_value.tolist() == [False, True, True, True, True, True]
    assert found.may_null.tolist() == [True, True, True, True, True, True]


def test_a_required_column_is_never_null_unless_nulls_were_counted() -> None:
    given = ({"values": 10}, {"values": 10, "nulls": 0}, {"values": 10, "nulls": 3})
    assert _facts(LongType(), pa.int64(), *given, required=True).may_null.tolist() == [False, False, True]
    assert _facts(LongType(), pa.int64(), *given).may_null.tolist() == [True, False, True]


def test_values_that_are_not_rows_say_nothing() -> None:
    repeated = {"values": 25, "nulls": 0, "nans": 0, "lower": _double(1), "upper": _double(2)}
    found = _facts(DoubleType(), pa.float64(), repeated)
    assert (found.lower[0], found.upper[0]) == (-math.inf, math.inf)
    assert found.may_null.all()
    assert found.may_nan.all()


def test_floats_may_be_nan_unless_counted() -> None:
    base = {"values": 10, "nulls": 0, "lower": _double(1), "upper": _double(2)}
    blank = {"values": 10, "nulls": 4, "nans": 6}
    nan = _double(math.nan)
    found = _facts(
        DoubleType(),
        pa.float64(),
        base,
        {**base, "nans": 0},
        {**base, "nans": 2},
        blank,
        {**blank, "lower": nan, "upper": nan},
        {**blank, "nans": 5},
        {**base, "lower": nan},
        {"values": 10, "nulls": 10, "nans": 0},
    )
    assert found.may_nan.tolist() == [True, False, True, True, True, True, True, False]
    assert found.may_value.tolist() == [True, True, True, False, False, True, True, False]
    assert found.lower.tolist()[:3] == [1, 1, 1]
    assert (found.lower[6], found.upper[6]) == (-math.inf, math.inf)


def test_either_zero_may_stand_for_the_other() -> None:
    found = _facts(DoubleType(), pa.float64(), {"lower": _double(0.0), "upper": _double(-0.0)})
    assert (math.copysign(1, found.lower[0]), math.copysign(1, found.upper[0])) == (-1.0, 1.0)
    assert not found.lower_exact.any()


def test_bounds_that_meet_are_a_value_if_there_is_one() -> None:
    met = {"values": 10, "nulls": 3, "lower": _long(4), "upper": _long(4)}
    found = _facts(
        LongType(), pa.int64(), met, {**met, "nulls": -1}, {**met, "nulls": 10}, {**met, "rows": 11}
    )
    assert found.lower_exact.tolist() == [True, False, False, False]
    assert found.upper_exact.tolist() == [True, False, False, False]
    text = {"values": 10, "nulls": 0, "lower": b"abc", "upper": b"abc"}
    assert not _facts(StringType(), pa.string(), text).lower_exact.any()
    real = {"values": 10, "nulls": 0, "lower": _double(2), "upper": _double(2)}
    assert _facts(
        DoubleType(), pa.float64(), real, {**real, "nans": 0}, {**real, "nans": 10}
    ).lower_exact.tolist() == [
        False,
        True,
        False,
    ]


def test_texts_cut_short_are_valid_bounds() -> None:
    cut = {"values": 10, "nulls": 0, "lower": b"sixteen letters ", "upper": b"sixteen letters!"}
    for field_type, type in [
        (StringType(), pa.string()),
        (BinaryType(), pa.binary()),
        (FixedType(40), pa.binary(40)),
    ]:
        found = _facts(field_type, type, cut, {"lower": b"z", "upper": b"a"})
        assert found.lower.to_pylist() == [cut["lower"], None]
        assert found.upper.to_pylist() == [cut["upper"], None]
        assert not found.lower_exact.any()
        assert found.type == type


def test_uuids_are_not_ordered_by_everyone() -> None:
    found = _facts(
        UUIDType(), pa.binary(16), {"values": 10, "nulls": 0, "lower": bytes(16), "upper": b"\x01" * 16}
    )
    assert found.lower.to_pylist() == [None]
    assert found.upper.to_pylist() == [None]
    assert found.may_null.tolist() == [False]


@pytest.mark.parametrize("field_type", [ListType(9, LongType()), StructType(), UnknownType()])
def test_types_without_an_order_are_unknown(field_type: IcebergType) -> None:
    type = pa.list_(pa.int64()) if isinstance(field_type, ListType) else pa.struct([])
    found = _facts(field_type, type, {"values": 10, "nulls": 10}, required=True)
    assert found.may_value.all()
    assert found.may_null.all()


def test_a_type_that_the_values_can_not_become_is_unknown() -> None:
    full = {"values": 10, "nulls": 0, "lower": _long(3), "upper": _long(9)}
    found = _facts(LongType(), pa.int32(), full)
    assert (found.lower[0], found.upper[0]) == (-(2**31), 2**31 - 1)
    wider = _facts(
        IntegerType(), pa.int64(), {**full, "lower": struct.pack("<i", 3), "upper": struct.pack("<i", 9)}
    )
    assert (wider.lower[0], wider.upper[0], wider.type) == (3, 9, pa.int64())


def test_a_column_that_no_manifest_mentions() -> None:
    found = file_facts(_entries({}, {}), 99, pa.int64(), LongType(), False)
    assert found.may_value.tolist() == [True, True]
    assert found.may_null.tolist() == [True, True]


# -- no value ever falls outside ---------------------------------------------------------------

_VALUES: list[tuple[PrimitiveType, pa.DataType, Any]] = [
    (LongType(), pa.int64(), st.integers(*_INT64)),
    (IntegerType(), pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (BooleanType(), pa.bool_(), st.booleans()),
    (FloatType(), pa.float32(), st.floats(width=32)),
    (DoubleType(), pa.float64(), st.floats()),
    (StringType(), pa.string(), st.text(max_size=6)),
    (BinaryType(), pa.binary(), st.binary(max_size=6)),
    (DateType(), pa.date32(), st.integers(-(10**6), 10**6)),
    (TimestampType(), pa.timestamp("us"), st.integers(-(10**15), 10**15)),
    (
        DecimalType(25, 2),
        pa.decimal128(25, 2),
        st.integers(-(10**24), 10**24).map(lambda n: Decimal(n).scaleb(-2)),
    ),
    (
        DecimalType(9, 2),
        pa.decimal128(9, 2),
        st.integers(-(10**8), 10**8).map(lambda n: Decimal(n).scaleb(-2)),
    ),
]


@pytest.mark.parametrize(
    ("field_type", "type", "values"), _VALUES, ids=lambda v: str(v) if isinstance(v, PrimitiveType) else ""
)
def test_facts_hold_for_the_values_they_were_made_of(field_type, type, values) -> None:
    @settings(max_examples=30, deadline=None)
    @given(st.lists(st.lists(st.none() | values, max_size=4), min_size=1, max_size=4), st.data())
    def check(files, data) -> None:
        made = []
        for rows in files:
            known = [v for v in rows if v is not None]
            plain = [v for v in known if v == v]
            metrics = {
                "values": len(rows),
                "nulls": len(rows) - len(known),
                "nans": len(known) - len(plain),
            }
            if plain:
                metrics |= {
                    "lower": to_bytes(field_type, min(plain)),
                    "upper": to_bytes(field_type, max(plain)),
                }
            forgotten = data.draw(st.sets(st.sampled_from(["values", "nulls", "nans", "lower", "upper"])))
            made.append({"rows": len(rows)} | {k: v for k, v in metrics.items() if k not in forgotten})
        found = _facts(field_type, type, *made)
        for at, rows in enumerate(files):
            for value in rows:
                if value is None:
                    assert found.may_null[at]
                elif value != value:
                    assert found.may_nan[at]
                else:
                    assert found.may_value[at]
                    key = _key(type, value)
                    low, high = _bound(found.lower, at), _bound(found.upper, at)
                    assert low is None or low <= key
                    assert high is None or key <= high
            plain = [_key(type, v) for v in rows if v is not None and v == v]
            if found.lower_exact[at]:
                assert _bound(found.lower, at) in plain

    check()


def _bound(bounds: Any, at: int) -> Any:
    return bounds[at].as_py() if isinstance(bounds, pa.Array) else bounds[at]


def _key(type: pa.DataType, value: Any) -> Any:
    return value if pa.types.is_temporal(type) else to_key(type, value)
