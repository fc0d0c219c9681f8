"""Elements, map values, fields, and functions of arrays and maps; expected values are Spark's."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

from skipstone.core.filter import RowFilter
from skipstone.errors import NotExpressibleError, PredicateError
from skipstone.predicate.sql import parse_sql
from skipstone.predicate.tree import Expr, col
from tests.unit.core.filter.test_rowfilter import answers

ROWS = pa.table(
    {
        "tags": pa.array([["a", None], ["b"], [], None], pa.list_(pa.string())),
        "f": pa.array([[math.nan, 1.0], [-0.0], [], None], pa.large_list(pa.float64())),
        "pair": pa.array([[1, 2], [3, None], None, [5, 6]], pa.list_(pa.int32(), 2)),
        "m": pa.array([[("k", 1), ("j", None)], [], None, [("j", 4)]], pa.map_(pa.string(), pa.int64())),
        "n": pa.array([[(1, "x")], [(2, "y")], [], None], pa.map_(pa.int32(), pa.string())),
        "st": pa.array([{"x": 1}, {"x": None}, None, {"x": 4}], pa.struct({"x": pa.int64()})),
        "people": pa.array([[{"name": "z"}], [], None, [None]], pa.list_(pa.struct({"name": pa.string()}))),
        "i": pa.array([0, -1, 1, None], pa.int32()),
        "dict": pa.array([["u"], ["v"], None, []], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
    }
)
T, F, N = True, False, None


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("get(tags, 0) = 'a'", [T, F, N, N]),
        ("get(tags, 1) is null", [T, T, T, T]),
        ("get(tags, i) = 'a'", [T, N, N, N]),
        ("try_element_at(tags, -1) = 'b'", [N, T, N, N]),
        ("pair[1] = 2", [T, N, N, F]),
        ("pair[null] is null", [T, T, T, T]),
        ("m['k'] = 1", [T, N, N, N]),
        ("m['j'] is null", [T, T, T, F]),
        ("m.j = 4", [N, N, N, T]),
        ("element_at(m, 'k') = 1", [T, N, N, N]),
        ("n[1] = 'x' or n[2L] = 'y'", [T, T, N, N]),
        ("st['x'] = 4", [F, N, N, T]),
        ("get(people, 0).name = 'z'", [T, N, N, N]),
        ("get(dict, 0) = 'v'", [F, T, N, N]),
        ("array_contains(tags, 'a')", [T, F, F, N]),
        ("array_contains(tags, 'c')", [N, F, F, N]),
        ("array_contains(f, double('nan'))", [T, F, F, N]),
        ("array_contains(f, 0)", [F, T, F, N]),
        ("array_contains(pair, st.x)", [T, N, N, F]),
        ("array_contains(pair, 3.0)", [F, T, N, F]),
        ("map_contains_key(m, 'k')", [T, F, N, F]),
        ("size(tags) = 0", [F, F, T, N]),
        ("cardinality(m) + array_size(pair) = 4", [T, F, N, F]),
        ("size(pair) = 2", [T, T, N, T]),
        ("tags[0] = 'b' and size(tags) > 0", [F, T, F, N]),
        ("case when size(tags) > 0 then tags[0] else 'none' end = 'none'", [F, F, T, T]),
    ],
)
def test_nested_values(text: str, wanted: list[bool | None]) -> None:
    assert answers(parse_sql(text), ROWS) == wanted
    sliced = pa.concat_tables([ROWS, ROWS]).slice(1, 6)
    assert answers(parse_sql(text), sliced) == (wanted * 2)[1:7]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("tags[0] = 'a'", r"tags\[0\] failed: an array has 0 elements .use get"),
        ("pair[2] = 1", r"an array has 2 elements"),
        ("pair[-1] = 1", r"an array has 2 elements"),
        ("element_at(tags, 1) = 'a'", "use try_element_at"),
        ("try_element_at(tags, 0) = 'a'", "index is 0"),
    ],
)
def test_what_is_outside_an_array_is_an_error_as_in_spark(text: str, problem: str) -> None:
    with pytest.raises(PredicateError, match=problem):
        RowFilter(parse_sql(text), ROWS.schema).mask(ROWS)


@pytest.mark.parametrize(
    "text",
    [
        *("tags['x'] = 1", "i[0] = 1", "size(i) = 1", "array_size(m) = 1", "array_contains(tags, 1)"),
        *("array_contains(i, 1)", "map_contains_key(tags, 'a')", "get(m, 0) = 1", "tags = 'a'"),
        *("m[1.5D] = tags", "people.name = 'z'", "get(people, 0).age = 1"),
    ],
)
def test_wrong_types_are_refused(text: str) -> None:
    with pytest.raises((NotExpressibleError, PredicateError)):
        RowFilter(parse_sql(text), ROWS.schema)


def test_dialects_count_from_their_own_first_element() -> None:
    for dialect, text in [
        ("spark", "pair[0] = 1"),
        ("hive", "pair[0] = 1"),
        ("trino", "pair[1] = 1"),
        ("presto", "pair[1] = 1"),
        ("duckdb", "pair[1] = 1"),
    ]:
        assert answers(parse_sql(text, dialect), ROWS) == [T, F, N, F]
    assert answers(parse_sql("pair[-1] = 6", "duckdb"), ROWS) == [F, N, N, T]
    assert answers(parse_sql("tags[1] = 'b'", "duckdb"), ROWS) == [F, T, N, N]
    assert answers(parse_sql("contains(tags, 'a') or cardinality(m) = 0", "trino"), ROWS) == [T, T, N, N]
    assert answers(parse_sql("n[2] = 'y' and m['k'] is null", "duckdb"), ROWS) == [F, T, N, N]


@pytest.mark.parametrize(
    ("expr", "wanted"),
    [
        (col("pair")[0], [T, F, N, F]),
        (col("st")["x"], [T, N, N, F]),
        (col("m")["k"], [T, N, N, N]),
    ],
)
def test_python_brackets(expr: Expr, wanted: list[bool | None]) -> None:
    assert answers(expr == 1, ROWS) == wanted
