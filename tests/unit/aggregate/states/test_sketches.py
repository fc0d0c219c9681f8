import decimal
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from skipstone.aggregate.states.sketches import BadSketch, merge_cpc, merge_kll, sketches
from skipstone.parquet.measure import NotMeasurable


def cpc(type: pa.DataType, values: Any) -> bytes:
    return sketches(type, pa.array(values, type))["cpc"]


@pytest.mark.parametrize(
    ("type", "one", "other", "distinct"),
    [
        (pa.int8(), [1, 1, None, 2], [2, 3], 3),
        (pa.uint64(), [0, 2**64 - 1], [2**63, 0], 3),
        (pa.float64(), [0.0, -0.0, math.nan, None], [math.nan, 1.0], 3),
        (pa.string(), ["", "a", None], ["a", "é"], 3),
        (pa.binary(), [b"", b"\xff"], [b"\xff\xfe"], 3),
        (pa.bool_(), [True, None], [False], 2),
        (pa.decimal128(30, 2), [1, 2], [2], 2),
        (pa.date32(), [None], [None], 0),
        (pa.timestamp("us"), [], [5], 1),
        (pa.dictionary(pa.int8(), pa.string()), ["a", "b", "a"], ["b"], 2),
    ],
)
def test_few_values_are_counted(type: pa.DataType, one: Any, other: Any, distinct: int) -> None:
    found = merge_cpc([cpc(type, one), cpc(type, other)])
    assert round(found.estimate) == found.lower == distinct
    assert distinct <= found.upper <= distinct + 1
    assert merge_cpc([found.sketch, found.sketch]) == found


def test_columns_of_other_widths_count_together() -> None:
    narrow = sketches(pa.int64(), pa.array([1, 2], pa.int16()))["cpc"]
    assert merge_cpc([narrow, cpc(pa.int64(), [2, 3])]).lower == 3


@pytest.mark.parametrize("text", [False, True])
def test_many_values_are_estimated(text: bool) -> None:
    rng = np.random.default_rng(3)
    parts = []
    for low in (0, 40_000, 80_000):
        numbers = rng.permutation(np.arange(low, low + 60_000))
        values = pa.array(numbers).cast(pa.string()) if text else pa.array(numbers)
        parts.append(sketches(values.type, values)["cpc"])
    found = merge_cpc(parts)
    assert found.lower < found.estimate < found.upper
    assert abs(found.estimate - 140_000) < 140_000 * 0.033
    assert found.upper - found.lower < 140_000 * 0.06
    assert 1_000 < len(found.sketch) < 3_500


def test_quantiles() -> None:
    rng = np.random.default_rng(4)
    numbers = rng.normal(size=200_000)
    parts = [sketches(pa.float64(), pa.array(part))["kll"] for part in np.array_split(numbers, 7)]
    parts.append(sketches(pa.float64(), pa.array([None, math.nan]))["kll"])
    found = merge_kll(parts)
    assert (found.count, found.nans) == (200_001, 1)
    assert 0.005 < found.error < 0.03
    ranks = [0.0, 0.1, 0.5, 0.9, 1.0]
    values = found.values(ranks)
    assert math.isnan(values.pop())
    ranks[-1:], ordered = [], np.sort(numbers)
    assert values == sorted(values)
    assert values[0] == ordered[0]
    for rank, value in zip(ranks, values, strict=True):
        assert abs(np.searchsorted(ordered, value) / len(ordered) - rank) < 3 * found.error
    assert merge_kll([found.sketch]).count == 200_001


def test_quantiles_of_whole_numbers_and_of_nothing() -> None:
    assert merge_kll([sketches(pa.int32(), pa.array([3, None, 1, 2], pa.int32()))["kll"]]).values(
        [0, 0.5, 1]
    ) == [1, 2, 3]
    none = merge_kll([])
    assert (none.count, none.values([0.5])) == (0, [])
    empty = merge_kll([sketches(pa.int32(), pa.array([], pa.int32()))["kll"]])
    assert (empty.count, empty.values([0.5])) == (0, [])
    assert merge_cpc([]).estimate == 0


def test_nan_is_the_largest() -> None:
    some = merge_kll([sketches(pa.float32(), pa.array([1.0, math.nan, 2.0, math.nan], pa.float32()))["kll"]])
    low, middle, above, high = some.values([0, 0.5, 0.51, 1])
    assert (low, middle, math.isnan(above), math.isnan(high)) == (1, 2, True, True)
    assert some.error == 0
    nothing_else = merge_kll([sketches(pa.float64(), pa.array([math.nan]))["kll"]])
    assert math.isnan(nothing_else.values([0.0])[0])


def test_quantiles_of_decimals_are_numbers() -> None:
    for type in (pa.decimal128(6, 2), pa.decimal128(30, 2), pa.decimal256(50, 2)):
        found = sketches(type, pa.array([decimal.Decimal("1.25"), decimal.Decimal("-7.5"), None], type))[
            "kll"
        ]
        assert merge_kll([found]).values([0, 1]) == [-7.5, 1.25]


def test_types_without_sketches() -> None:
    assert set(sketches(pa.string(), pa.array(["a"]))) == {"cpc"}
    with pytest.raises(NotMeasurable):
        sketches(pa.list_(pa.int32()), pa.array([[1]]))


@pytest.mark.parametrize("data", [b"", b"\x00" * 40, b"\xff" * 100, b"sketch"])
def test_damaged_sketches(data: bytes) -> None:
    with pytest.raises(BadSketch):
        merge_cpc([data])
    with pytest.raises(BadSketch):
        merge_kll([data])


def test_cut_sketches() -> None:
    made = sketches(pa.int64(), pa.array(range(10_000)))
    for kind, merge in (("cpc", merge_cpc), ("kll", merge_kll)):
        for length in (1, 8, 20, len(made[kind]) // 2, len(made[kind]) - 1):
            with pytest.raises(BadSketch):
                merge([made[kind][:length]])


def test_changed_sketches() -> None:
    made = sketches(pa.float64(), pa.array(np.random.default_rng(5).normal(size=5_000)))
    for kind, merge in (("cpc", merge_cpc), ("kll", merge_kll)):
        for place in (*range(40), -1):
            changed = bytearray(made[kind])
            changed[place] ^= 0x11
            with pytest.raises(BadSketch):
                merge([bytes(changed)])


def test_sketches_of_another_kind() -> None:
    made = sketches(pa.int64(), pa.array([1, 2]))
    with pytest.raises(BadSketch):
        merge_cpc([made["kll"]])
    with pytest.raises(BadSketch):
        merge_kll([made["cpc"]])
