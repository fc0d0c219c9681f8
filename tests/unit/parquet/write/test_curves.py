import datetime as dt
import itertools
import math
import pickle
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from skipstone.errors import SchemaError, UnknownColumnError, UsageError
from skipstone.parquet.write.order import Cluster, Ranks, hilbert, zorder


def grid(axes: int, bits: int) -> list[np.ndarray[Any, Any]]:
    points = np.array(list(itertools.product(range(1 << bits), repeat=axes)))
    return [points[:, axis] for axis in range(axes)]


@pytest.mark.parametrize(("axes", "bits"), [(1, 5), (2, 1), (2, 5), (3, 1), (3, 4), (4, 2), (5, 2), (8, 1)])
def test_hilbert_visits_every_point_by_single_steps(axes: int, bits: int) -> None:
    points = grid(axes, bits)
    positions = hilbert(points, bits)
    assert sorted(positions.tolist()) == list(range(1 << (axes * bits)))
    along = np.stack(points, axis=1)[np.argsort(positions)]
    assert (np.abs(np.diff(along, axis=0)).sum(axis=1) == 1).all()


@pytest.mark.parametrize(("axes", "bits"), [(1, 16), (2, 16), (3, 16), (8, 7)])
def test_zorder_interleaves(axes: int, bits: int) -> None:
    rng = np.random.default_rng(axes)
    ranks = [rng.integers(0, 1 << bits, 200) for _ in range(axes)]
    naive = [
        int("".join(str(rank[row] >> bit & 1) for bit in reversed(range(bits)) for rank in ranks), 2)
        for row in range(200)
    ]
    assert zorder(ranks, bits).tolist() == naive
    assert len(set(hilbert(ranks, bits).tolist())) == len(set(naive))
    assert 0 <= hilbert(ranks, bits).min() <= hilbert(ranks, bits).max() < 1 << (axes * bits)


def test_the_arguments_are_left_alone() -> None:
    ranks = grid(2, 3)
    before = [rank.copy() for rank in ranks]
    hilbert(ranks, 3)
    assert all((a == b).all() for a, b in zip(ranks, before, strict=True))


# In Spark's order; None and NaN have their places.
ORDERED = [
    (pa.int64(), [None, -(2**63), -1, 0, 5, 2**63 - 1]),
    (pa.int8(), [None, -128, 0, 127]),
    (pa.uint64(), [None, 0, 1, 2**63, 2**64 - 1]),
    (pa.float64(), [None, -math.inf, -1.5, 0.0, 1e-300, 2.0, math.inf, math.nan]),
    (pa.float32(), [None, -1.5, 2.0, math.nan]),
    (pa.bool_(), [None, False, True]),
    (pa.string(), [None, "", "A", "a", "a\0", "ab", "é", "豈", "\U0001f600"]),
    (pa.large_string(), [None, "a", "b"]),
    (pa.string_view(), [None, "a", "b"]),
    (pa.binary(), [None, b"", b"\0", b"\x7f", b"\xff", b"\xff\0"]),
    (pa.binary(2), [None, b"\0\1", b"\xff\0"]),
    (pa.date32(), [None, dt.date(1, 1, 1), dt.date(1970, 1, 1), dt.date(2026, 1, 1)]),
    (pa.timestamp("us", "UTC"), [None, dt.datetime(1900, 1, 1, tzinfo=dt.UTC), dt.datetime.now(dt.UTC)]),
    (pa.timestamp("ms"), [None, dt.datetime(1900, 1, 1), dt.datetime(2026, 1, 1)]),
    (pa.decimal128(10, 2), [None, Decimal("-5.01"), Decimal("0.00"), Decimal("7.10")]),
    (pa.decimal128(38, 2), [None, Decimal("-1E30"), Decimal("-5.01"), Decimal(0), Decimal("1E30")]),
    (pa.decimal256(50, 0), [None, Decimal("-1E45"), Decimal(0), Decimal("1E45")]),
    (pa.dictionary(pa.int8(), pa.string()), [None, "a", "b"]),
]


@pytest.mark.parametrize(
    ("type", "values"), ORDERED, ids=lambda x: str(x) if isinstance(x, pa.DataType) else ""
)
def test_ranks_grow_with_values(type: pa.DataType, values: list[Any]) -> None:
    column = (
        pa.array(values, pa.string()).cast(type) if pa.types.is_dictionary(type) else pa.array(values, type)
    )
    whole = pa.table({"c": column})
    plain = whole.cast(pa.schema([("c", pa.string())])) if pa.types.is_dictionary(type) else whole
    ranks = Ranks.of(plain if type == pa.string_view() else whole, "c", 16).of_rows(whole)
    assert (np.diff(ranks) > 0).all()
    assert ranks[0] == 0
    # A sample that lacks some values still gives all of them a place in order.
    for lacking in range(1, len(values)):
        sample = plain.filter(np.arange(len(values)) != lacking) if type != pa.string_view() else plain
        found = Ranks.of(sample, "c", 16).of_rows(whole)
        assert (np.diff(found) >= 0).all()
        assert 0 <= found.min() <= found.max() < 1 << 16


def test_zeros_are_one_value() -> None:
    table = pa.table({"f": [-1.0, -0.0, 0.0, 1.0]})
    ranks = Ranks.of(table, "f", 8).of_rows(table)
    assert ranks[1] == ranks[2]


def test_many_values_get_ranks_of_equal_size() -> None:
    rng = np.random.default_rng(0)
    sample = pa.table({"x": rng.lognormal(0, 3, 50_000)})
    ranks = Ranks.of(sample, "x", 16)
    assert len(ranks.bounds) == 4_096
    found = ranks.of_rows(pa.table({"x": rng.lognormal(0, 3, 50_000)}))
    tenths = np.bincount(found * 10 >> 16, minlength=10)
    assert 4_500 < tenths.min() <= tenths.max() < 5_500


def test_frequent_values_take_their_share() -> None:
    table = pa.table({"x": [None] * 50 + ["a"] * 25 + ["b"] * 25})
    assert np.unique(Ranks.of(table, "x", 16).of_rows(table)).tolist() == [0, 1 << 15, 3 << 14]


def test_an_empty_sample() -> None:
    empty = pa.table({"x": pa.array([], pa.float64()), "y": pa.array([], pa.string())})
    rows = pa.table({"x": [None, 1.0, math.nan], "y": [None, "a", "b"]})
    assert len(Cluster.of(empty, ["x", "y"], "hilbert").keys(rows)) == 3
    assert len(Cluster.of(rows, ["x", "y"], "zorder").keys(empty)) == 0


@pytest.mark.parametrize("curve", ["zorder", "hilbert"])
def test_keys_of_batches_tables_and_nested_columns(curve: Any) -> None:
    rng = np.random.default_rng(0)
    inner = pa.StructArray.from_arrays([rng.integers(0, 99, 1000)], ["x"])
    table = pa.table({"s": inner, "b": rng.random(1000)})
    cluster = pickle.loads(pickle.dumps(Cluster.of(table, ["s.x", "b"], curve)))
    keys = cluster.keys(table)
    assert keys.type == pa.int64()
    assert keys.null_count == 0
    parts = [cluster.keys(batch) for batch in table.to_batches(max_chunksize=300)]
    assert pa.concat_arrays(parts).equals(keys)
    flat = pa.table({"s.x": inner.field("x"), "b": table["b"]})
    assert Cluster.of(flat, ["s.x", "b"], curve).keys(flat).equals(keys)


def test_what_is_refused() -> None:
    table = pa.table({"a": [1], "l": [[1]], "t": ["x"]})
    with pytest.raises(UsageError, match="unknown curve 'peano'"):
        Cluster.of(table, ["a"], "peano")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="pass one to 8 columns"):
        Cluster.of(table, [], "zorder")
    with pytest.raises(UsageError, match=r"column l: list.* has no order"):
        Cluster.of(table, ["a", "l"], "zorder")
    with pytest.raises(UnknownColumnError, match="column z"):
        Cluster.of(table, ["z"], "zorder")
    with pytest.raises(SchemaError, match="column a: sample has type int64"):
        Cluster.of(table, ["a", "t"], "zorder").keys(pa.table({"a": ["no"], "t": ["x"]}))


def touched(values: np.ndarray[Any, Any], pages: int, width: float) -> float:
    """The mean number of pages that a range of one column touches."""
    parts = np.array_split(values, pages)
    low, high = np.array([p.min() for p in parts]), np.array([p.max() for p in parts])
    starts = np.linspace(0, 1 - width, 50)
    return float(np.mean([((low <= start + width) & (high >= start)).sum() for start in starts]))


@pytest.mark.parametrize("curve", ["zorder", "hilbert"])
@pytest.mark.parametrize("axes", [2, 3])
def test_ranges_touch_few_pages(curve: Any, axes: int) -> None:
    rng = np.random.default_rng(0)
    names = [f"c{axis}" for axis in range(axes)]
    table = pa.table({name: rng.random(40_000) for name in names})
    order = np.argsort(np.asarray(Cluster.of(table.slice(0, 5_000), names, curve).keys(table)))
    for name in names:
        values = np.asarray(table[name])
        pages = touched(values[order], 400, 0.01)
        assert touched(values, 400, 0.01) > 390
        # A square's side is the root of its area: a page of 400 spans a twentieth of each of two columns.
        assert 400 ** (1 - 1 / axes) <= pages < 400 ** (1 - 1 / axes) * 2.2
