import datetime
import decimal
import math
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skipstone.aggregate.states.blocks import Blocks, read_blocks
from skipstone.aggregate.states.histogram import Histogram, even_edges, histograms
from skipstone.aggregate.states.state import Facet
from skipstone.errors import TypeMismatchError, UsageError
from tests.unit.aggregate.states._cuts import NUMBERS, TYPES, at_once, in_pieces, one_group, tables

X = ("x",)
EDGES = [
    [-1, 0, 1, 2],
    [0.5, 1.5],
    [-math.inf, 0, math.inf],
    [-(2**70), 2**64 - 1, 2**64],
    [Fraction(1, 3), decimal.Decimal("1.5"), 2.0**63, 10**400],
    [-(10**400), -1.999, np.int8(3)],
]


def counts(type: pa.DataType, values: Any, edges: Any) -> list[int]:
    array = values if isinstance(values, pa.Array) else pa.array(values, type)
    return list(one_group(Histogram.of(X, type, edges), array)[:, 0].tolist())


def expected(values: list[Any], edges: list[Any]) -> list[int]:
    exact = [
        e if isinstance(e, float) else Fraction(int(e) if isinstance(e, np.integer) else e) for e in edges
    ]
    found = [0] * (len(edges) - 1)
    for value in values:
        for number, (low, high) in enumerate(pairwise(exact)):
            last = number == len(found) - 1
            if value == value and low <= value and (value < high or (last and value == high)):
                found[number] += 1
    return found


@settings(max_examples=100)
@given(data=st.data(), name=st.sampled_from(NUMBERS), edges=st.sampled_from(EDGES), seed=st.integers(0, 99))
def test_histograms_of_numbers(data: st.DataObject, name: str, edges: list[Any], seed: int) -> None:
    table = data.draw(tables(x=name))
    measure = Histogram.of(X, TYPES[name], edges)
    found = at_once(measure, table)
    assert found.tolist() == in_pieces(measure, table, seed).tolist()
    column, groups = table.column("x").to_pylist(), table.column("group").to_pylist()
    for group, mine in zip(sorted({*groups}) or [0], found.T.tolist(), strict=True):
        values = [v for v, g in zip(column, groups, strict=True) if g == group and v is not None]
        assert mine == expected(values, edges)


@settings(max_examples=80)
@given(data=st.data(), name=st.sampled_from(NUMBERS), edges=st.sampled_from(EDGES))
def test_blocks_and_rows_agree(data: st.DataObject, name: str, edges: list[Any]) -> None:
    type = TYPES[name]
    column = data.draw(tables(x=name)).column("x")
    starts = np.array(
        sorted({0, *data.draw(st.lists(st.integers(0, max(len(column) - 1, 0))))}), dtype=np.int64
    )
    measure = Histogram.of(X, type, edges)
    blocks = read_blocks(type, column, starts, measure.facets)
    known = measure.from_blocks(blocks)
    assert known is not None
    state, right = known
    stops = [*starts.tolist()[1:], len(column)]
    for number, (start, stop) in enumerate(zip(starts.tolist(), stops, strict=True)):
        values = [v for v in column.slice(start, stop - start).to_pylist() if v is not None]
        if right[number]:
            assert state[:, number].tolist() == expected(values, edges)
        assert right[number] or len({v for v in values if v == v}) > 1


def test_blocks_with_some_facets() -> None:
    column = pa.array([1, 2, None, None, 7, 8, 1, 7])
    starts = np.arange(0, 8, 2)
    measure = Histogram.of(X, pa.int64(), [0, 5, 10])
    whole = read_blocks(pa.int64(), column, starts, measure.facets)
    state, right = measure.from_blocks(whole) or ((), ())
    assert right.tolist() == [True, True, True, False]
    assert state[:, :3].tolist() == [[2, 0, 0], [0, 0, 2]]
    counted = read_blocks(pa.int64(), column, starts, Facet.COUNT)
    _, right = measure.from_blocks(counted) or ((), ())
    assert right.tolist() == [False, True, False, False]
    _, right = measure.from_blocks(Blocks.unknown(pa.int64(), 3)) or ((), ())
    assert right.tolist() == [False] * 3
    assert measure.from_blocks(Blocks.unknown(pa.int32(), 3)) is None


def test_times() -> None:
    day = datetime.date
    assert counts(
        pa.date32(), [day(2024, 1, 1), day(2024, 1, 2), None], [day(2024, 1, 2), day(2024, 1, 3)]
    ) == [1]
    moment = datetime.datetime(2024, 1, 1, 12, tzinfo=datetime.UTC)
    hour = datetime.timedelta(hours=1)
    # An edge between two days, and one between two milliseconds, are compared as they are.
    noon = datetime.datetime(2024, 1, 1, 12)
    dates = [day(2024, 1, 1), day(2024, 1, 2), day(2024, 1, 3)]
    assert counts(pa.date32(), dates, [noon, datetime.datetime(2024, 1, 3)]) == [2]
    fine = noon + datetime.timedelta(microseconds=1)
    assert counts(pa.timestamp("ms"), [noon, fine.replace(microsecond=1000)], [fine, pa.scalar(day.max)]) == [
        1
    ]
    instants = pa.array([moment, moment + hour, moment + 2 * hour], pa.timestamp("ns", "UTC"))
    assert counts(instants.type, instants, [moment, moment + hour, moment + 2 * hour]) == [1, 2]
    assert counts(instants.type, instants, np.array(["2024-01-01", "2024-01-01T13"], "M8[ns]")) == [2]
    assert counts(instants.type, instants, [np.datetime64("2024-01-01"), np.datetime64("2024-01-02")]) == [3]
    assert counts(
        pa.time32("s"), [datetime.time(1), datetime.time(5)], [datetime.time(2), datetime.time(6)]
    ) == [1]
    assert counts(pa.duration("ms"), [hour, 3 * hour], [2 * hour, 4 * hour]) == [1]


def test_answers_name_their_edges() -> None:
    whole = Histogram.of(X, pa.float64(), [0, 1, np.int64(3)])
    state = whole.join(
        [one_group(whole, pa.array([0.5, 3.0, 3.1])), one_group(whole, pa.array([None], pa.float64()))]
    )
    found = histograms(whole, state)
    assert found.type == pa.list_(pa.struct({"low": pa.float64(), "high": pa.float64(), "count": pa.int64()}))
    assert found.to_pylist() == [
        [{"low": 0, "high": 1, "count": 1}, {"low": 1, "high": 3, "count": 1}],
        [{"low": 0, "high": 1, "count": 0}, {"low": 1, "high": 3, "count": 0}],
    ]
    mixed = Histogram.of(X, pa.decimal128(30, 2), [decimal.Decimal("0.5"), 1, math.inf])
    (found,) = histograms(mixed, one_group(mixed, pa.array([1], pa.decimal128(30, 2)))).to_pylist()
    assert found == [{"low": 0.5, "high": 1.0, "count": 0}, {"low": 1.0, "high": math.inf, "count": 1}]
    days = Histogram.of(X, pa.date32(), [datetime.date(2024, 1, 1), datetime.date(2025, 1, 1)])
    (found,) = histograms(days, one_group(days, pa.array([], pa.date32()))).to_pylist()
    assert found == [{"low": datetime.date(2024, 1, 1), "high": datetime.date(2025, 1, 1), "count": 0}]
    hours = Histogram.of(X, pa.date32(), [datetime.datetime(2024, 1, 1), datetime.datetime(2024, 1, 1, 5)])
    (found,) = histograms(hours, one_group(hours, pa.array([], pa.date32()))).to_pylist()
    assert found[0]["high"] == datetime.datetime(2024, 1, 1, 5)


@pytest.mark.parametrize(
    ("type", "edges", "message"),
    [
        (pa.int64(), [], "histogram has 0 edges"),
        (pa.int64(), [1], "histogram has 1 edges"),
        (pa.int64(), [1, 1], "edge 1 is not above 1"),
        (pa.float64(), [1, 3, 2], "edge 2 is not above 3"),
        (pa.float64(), [0.0, -0.0], "edge -0.0 is not above 0.0"),
        (pa.float64(), [0, math.nan], "edge doesn.t match the column type: NaN can.t be an edge"),
        (pa.float64(), [0, None], "None is not a number"),
        (pa.int64(), ["a", "b"], "'a' is not a number"),
        (pa.int64(), [False, True], "False is not a number"),
        (pa.date32(), [1.5, 2.5], "1.5 can't be compared with values of type date "),
        (pa.date32(), [datetime.time(1), datetime.time(2)], "can't be compared"),
        (pa.timestamp("us"), ["2024-01-01", "2025-01-01"], "'2024-01-01' can't be compared"),
        (pa.timestamp("us"), [None, datetime.date(2024, 1, 1)], "None can't be compared"),
        (pa.duration("us"), [object(), 1], "is not a time"),
    ],
)
def test_bad_edges(type: pa.DataType, edges: list[Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as raised:
        Histogram.of(X, type, edges)
    assert raised.value.column == "x"
    assert raised.value.hint


@pytest.mark.parametrize(
    "type", [pa.string(), pa.bool_(), pa.binary(), pa.list_(pa.int8()), pa.month_day_nano_interval()]
)
def test_types_without_bins(type: pa.DataType) -> None:
    with pytest.raises(TypeMismatchError, match=r"column x: histogram\(\) needs a numeric"):
        Histogram.of(X, type, [0, 1])


@pytest.mark.parametrize(
    ("lower", "upper", "bins", "edges"),
    [
        (0, 10, 4, (0, 2.5, 5.0, 7.5, 10)),
        (3, 3, 2, (3, 3.5, 4.0)),
        (2**60, 2**60 + 3, 5, (2**60, 2**60 + 3)),
        (-1.7e308, 1.7e308, 2, (-1.7e308, 0.0, 1.7e308)),
        (1e308, 1e308, 3, (1e308, math.nextafter(1e308, math.inf))),
        (
            decimal.Decimal("0.5"),
            decimal.Decimal("1.5"),
            2,
            (decimal.Decimal("0.5"), 1.0, decimal.Decimal("1.5")),
        ),
        (
            datetime.date(2024, 1, 1),
            datetime.date(2024, 1, 3),
            9,
            tuple(datetime.date(2024, 1, d) for d in (1, 2, 3)),
        ),
        (
            datetime.date(2024, 1, 1),
            datetime.date(2024, 1, 1),
            9,
            tuple(datetime.date(2024, 1, d) for d in (1, 2)),
        ),
        (datetime.date.max, datetime.date.max, 2, (datetime.date(9999, 12, 30), datetime.date.max)),
        (
            datetime.datetime(2024, 1, 1),
            datetime.datetime(2024, 1, 2),
            2,
            (datetime.datetime(2024, 1, 1), datetime.datetime(2024, 1, 1, 12), datetime.datetime(2024, 1, 2)),
        ),
        (
            datetime.datetime(2024, 1, 1),
            datetime.datetime(2024, 1, 1),
            1,
            (datetime.datetime(2024, 1, 1), datetime.datetime(2024, 1, 1, 0, 0, 1)),
        ),
    ],
)
def test_even_edges(lower: Any, upper: Any, bins: int, edges: Any) -> None:
    found = even_edges(lower, upper, bins)
    assert tuple(edge.as_py() if isinstance(edge, pa.Scalar) else edge for edge in found) == edges


@pytest.mark.parametrize("value", [math.inf, math.nan, None, "a", b"a", True, object()])
def test_no_even_edges(value: Any) -> None:
    with pytest.raises(UsageError, match="equal bins"):
        even_edges(value, value, 2)


def test_even_edges_of_fine_times() -> None:
    instants = pa.array([1, 5_000, 9_007], pa.timestamp("ns", "UTC"))
    for ends in ((instants[0], instants[-1]), (instants[0].as_py(), instants[-1].as_py())):
        edges = even_edges(*ends, 2)
        assert [edge.value for edge in edges] == [1, 4_504, 9_007]
        assert counts(instants.type, instants, edges) == [1, 2]
    clock = pa.array([86_399], pa.time32("s"))
    assert [edge.value for edge in even_edges(clock[0], clock[0], 3)] == [86_398, 86_399]
    assert even_edges(pa.scalar(1), pa.scalar(3), 2) == (1, 2.0, 3)


@given(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(1, 9),
)
def test_even_edges_hold_every_value(one: float, other: float, bins: int) -> None:
    lower, upper = sorted((one, other))
    edges = even_edges(lower, upper, bins)
    assert sum(counts(pa.float64(), [one, other], edges)) == 2
    assert len(edges) <= bins + 1
