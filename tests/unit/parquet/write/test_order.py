import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from skipstone.parquet.write.files import sort_batch
from skipstone.parquet.write.layout import PageLayout
from skipstone.parquet.write.order import Cluster
from tests.unit.parquet.write._tables import make_events


def test_rows_are_sorted_as_spark_sorts() -> None:
    table = pa.table(
        {
            "p": ["b", "a", None, "a", "b", "a", "a"],
            "f": [1.0, math.nan, 3.0, None, 0.0, -math.inf, 2.0],
            "n": [0, 1, 2, 3, 4, 5, 6],
        }
    )
    by = PageLayout(partition_by=("p",), cluster_by=("f",))
    assert sort_batch(table, by)["n"].to_pylist() == [2, 3, 5, 6, 1, 4, 0]
    assert sort_batch(table, PageLayout(cluster_by=("f",)))["n"].to_pylist() == [3, 5, 4, 0, 6, 2, 1]
    assert sort_batch(table, PageLayout()) is table


def test_equal_rows_stay_as_they_were() -> None:
    rng = np.random.default_rng(0)
    table = pa.table({"k": rng.integers(0, 5, 5_000), "f": [0.0, -0.0] * 2_500, "n": np.arange(5_000)})
    found = sort_batch(table, PageLayout(cluster_by=("k", "f")))
    assert found["n"].to_pylist() == np.argsort(np.asarray(table["k"]), kind="stable").tolist()


@pytest.mark.parametrize(
    "type",
    [
        pa.string_view(),
        pa.large_string(),
        pa.dictionary(pa.int32(), pa.string()),
        pa.run_end_encoded(pa.int32(), pa.string()),
        pa.binary(1),
        pa.bool_(),
        pa.float16(),
        pa.decimal128(25, 2),
        pa.timestamp("us", "UTC"),
    ],
    ids=str,
)
def test_types_that_arrow_sorts_badly(type: pa.DataType) -> None:
    texts, numbers = pa.array(["b", None, "a", "c"]), pa.array([1, None, 0, 2])
    if pa.types.is_run_end_encoded(type):
        column = pa.RunEndEncodedArray.from_arrays([1, 2, 3, 4], texts)
    elif pa.types.is_float16(type):
        column = pa.array([np.float16(1), None, np.float16(0), np.float16(2)], type)
    elif pa.types.is_boolean(type):
        column = pa.array([True, None, False, True])
    elif pa.types.is_fixed_size_binary(type):
        column = pa.array([b"b", None, b"a", b"c"], type)
    else:
        column = (numbers if pa.types.is_decimal(type) or pa.types.is_timestamp(type) else texts).cast(type)
    table = pa.table({"c": column, "n": [2, 0, 1, 3]})
    assert sort_batch(table, PageLayout(cluster_by=("c",)))["n"].to_pylist() == [0, 1, 2, 3]


@pytest.mark.parametrize("curve", ["zorder", "hilbert"])
def test_rows_lie_along_a_curve(curve: Any) -> None:
    table = make_events(5_000)
    layout = PageLayout(cluster=curve, cluster_by=("user", "amount"), partition_by=("kind",))
    found = sort_batch(table, layout)
    assert found.sort_by("id").equals(table)
    cluster = Cluster.of(table, ("user", "amount"), curve)
    assert found.equals(sort_batch(table, layout, cluster))
    previous = ""
    for kind in sorted(set(table["kind"].to_pylist())):
        rows = found.filter(np.asarray(found["kind"]) == kind)
        keys = np.asarray(cluster.keys(rows))
        assert (np.diff(keys) >= 0).all()
        assert previous < kind
        previous = kind
    assert np.asarray(found["kind"]).tolist() == sorted(table["kind"].to_pylist())


def test_one_column_of_a_curve_is_sorted_exactly() -> None:
    table = pa.table({"x": np.random.default_rng(0).random(20_000)})
    found = sort_batch(table, PageLayout(cluster="hilbert", cluster_by=("x",)))
    assert (np.diff(np.asarray(found["x"])) >= 0).all()


def test_a_struct_field_sorts() -> None:
    table = pa.table({"s": pa.array([{"x": 2}, None, {"x": 1}, {"x": None}]), "n": [3, 0, 2, 1]})
    assert sort_batch(table, PageLayout(cluster_by=("s.x",)))["n"].to_pylist() == [0, 1, 2, 3]
    assert sort_batch(table.slice(0, 0), PageLayout(cluster_by=("s.x",))).num_rows == 0
