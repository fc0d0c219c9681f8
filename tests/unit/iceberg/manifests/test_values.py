from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from skipstone.core.domain.keys import to_key
from skipstone.iceberg.manifests.metrics import decode_keys
from skipstone.iceberg.schema import arrow_type

_INT, _LONG = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
_TYPES: list[tuple[PrimitiveType, Any]] = [
    (BooleanType(), st.booleans()),
    (IntegerType(), _INT),
    (LongType(), _LONG),
    (FloatType(), st.floats(width=32, allow_nan=False)),
    (DoubleType(), st.floats(allow_nan=False)),
    (DateType(), _INT),
    (TimeType(), st.integers(0, 86_399_999_999)),
    (TimestampType(), _LONG),
    (TimestamptzType(), _LONG),
    (TimestampNanoType(), _LONG),
    (TimestamptzNanoType(), _LONG),
    (StringType(), st.text(max_size=8)),
    (BinaryType(), st.binary(max_size=8)),
    (FixedType(3), st.binary(min_size=3, max_size=3)),
    (UUIDType(), st.binary(min_size=16, max_size=16)),
    (DecimalType(9, 2), st.integers(-(10**9) + 1, 10**9 - 1).map(lambda n: Decimal(n).scaleb(-2))),
    (DecimalType(18, 0), st.integers(-(10**18) + 1, 10**18 - 1).map(Decimal)),
    (
        DecimalType(38, 5),
        st.integers(-(10**38) + 1, 10**38 - 1).map(
            lambda n: Decimal((n < 0, tuple(map(int, str(abs(n)))), -5))
        ),
    ),
]


def _arrow(field_type: PrimitiveType, values: list[Any]) -> pa.Array:
    type = arrow_type(field_type)
    if pa.types.is_temporal(type):
        return pa.array(values, pa.int32() if type.bit_width == 32 else pa.int64()).view(type)
    return pa.array(values, type)


@pytest.mark.parametrize(
    ("field_type", "values"), _TYPES, ids=lambda v: str(v) if isinstance(v, PrimitiveType) else ""
)
def test_keys_of_values(field_type: PrimitiveType, values: Any) -> None:
    @settings(max_examples=25, deadline=None)
    @given(st.lists(st.none() | values, max_size=6), st.integers(0, 2))
    def check(given: list[Any], skipped: int) -> None:
        data = pa.array([None if v is None else to_bytes(field_type, v) for v in given], pa.large_binary())
        data, expected = data[skipped:], _arrow(field_type, given)[skipped:]
        keys, ok = decode_keys(field_type, data)
        for at, scalar in enumerate(expected):
            assert ok[at] == scalar.is_valid
            if ok[at]:
                key = keys[at].as_py() if isinstance(keys, pa.Array) else keys[at].item()
                assert key == to_key(expected.type, scalar)
                assert from_bytes(field_type, data[at].as_py()) == (
                    given[skipped + at] if not isinstance(given[skipped + at], str) else scalar.as_py()
                )

    check()


@pytest.mark.parametrize(
    ("narrow", "wide", "value", "key"),
    [
        (IntegerType(), LongType(), -7, -7),
        (FloatType(), DoubleType(), 0.5, 0.5),
        (DecimalType(4, 2), DecimalType(30, 2), Decimal("-1.25"), None),
        (DateType(), TimestampType(), -1, -86_400_000_000),
        (DateType(), TimestampNanoType(), 2, 2 * 86_400 * 10**9),
    ],
)
def test_a_column_that_was_widened(narrow: PrimitiveType, wide: PrimitiveType, value: Any, key: Any) -> None:
    """Bounds of files from before sit beside those from after."""
    old = to_bytes(narrow, value)
    new = to_bytes(wide, key if key is not None else value)
    keys, ok = decode_keys(wide, pa.array([old, None, new], pa.large_binary()))
    assert ok.tolist() == [True, False, True]
    assert keys[0] == keys[2]


def test_dates_too_far_off_for_nanoseconds_are_unknown() -> None:
    data = pa.array(
        [to_bytes(DateType(), d) for d in (106_751, 106_752, -106_752, 2**31 - 1)], pa.large_binary()
    )
    assert decode_keys(TimestampNanoType(), data)[1].tolist() == [True, False, False, False]
    assert decode_keys(TimestampType(), data)[1].tolist() == [True, True, True, False]


@pytest.mark.parametrize(
    ("field_type", "raw"),
    [
        (BooleanType(), b""),
        (BooleanType(), b"\x00\x00"),
        (IntegerType(), b"\x00" * 8),
        (LongType(), b"\x00" * 5),
        (DoubleType(), b"\x00" * 16),
        (TimestamptzType(), b"\x00" * 4),
        (DecimalType(4, 2), b""),
        (DecimalType(4, 2), b"\x27\x10"),
        (DecimalType(4, 2), b"\xd8\xf0"),
        (DecimalType(38, 2), b"\x7f" + b"\xff" * 15),
        (DecimalType(38, 2), b"\x00" * 17),
    ],
)
def test_malformed_bytes_are_unknown(field_type: PrimitiveType, raw: bytes) -> None:
    good = b"\x01" if isinstance(field_type, BooleanType) else None
    data = pa.array([raw, good], pa.large_binary())
    assert decode_keys(field_type, data)[1].tolist() == [False, good is not None]


def test_bounds_of_bytes_are_keys_wherever_they_were_cut() -> None:
    data = pa.array([b"\xc3", b"", None], pa.large_binary())
    for field_type in (StringType(), BinaryType(), FixedType(3)):
        keys, ok = decode_keys(field_type, data)
        assert keys.to_pylist() == [b"\xc3", b"", None]
        assert ok.tolist() == [True, True, False]


def test_decimals_at_the_limits_of_their_precision() -> None:
    whole = [10**38 - 1, -(10**38) + 1, 0, -1]
    data = pa.array([w.to_bytes(16, "big", signed=True) for w in whole], pa.large_binary())
    keys, ok = decode_keys(DecimalType(38, 0), data)
    assert ok.all()
    assert sorted(keys.to_pylist()) == [keys[i].as_py() for i in (1, 3, 2, 0)]


def test_types_without_an_order_have_no_keys() -> None:
    _, ok = decode_keys(ListType(1, LongType()), pa.array([b"\x00"], pa.large_binary()))
    assert not ok.any()
    keys, ok = decode_keys(LongType(), pa.array([], pa.large_binary()))
    assert (len(keys), len(ok)) == (0, 0)
    assert np.asarray(keys).dtype == np.int64
