from __future__ import annotations

import pyarrow as pa
import pytest

from skipstone.errors import UnknownColumnError, UsageError
from skipstone.scan.projection import Projection, resolve

INNER = pa.struct({"p": pa.int8(), "q": pa.string()})
SCHEMA = pa.schema({"a": pa.int64(), "s": pa.struct({"x": pa.int32(), "in": INNER}), "a.b": pa.string()})


def names(columns, **options):
    found = resolve(columns, SCHEMA, **{"case_sensitive": True, **options})
    return found.paths, found.schema


def test_every_column_by_default():
    assert names(None) == ((("a",), ("s",), ("a.b",)), SCHEMA)


def test_order_is_the_callers_and_a_dotted_name_is_a_name_first():
    paths, schema = names(["a.b", "a"])
    assert paths == (("a.b",), ("a",))
    assert schema.names == ["a.b", "a"]


def test_paths_into_a_struct_cut_it_down():
    paths, schema = names(["s.in.q", "a", "s.x"])
    assert paths == (("s", "in", "q"), ("a",), ("s", "x"))
    cut = pa.struct({"x": pa.int32(), "in": pa.struct({"q": pa.string()})})
    assert schema == pa.schema({"s": cut, "a": pa.int64()})


def test_a_path_inside_another_adds_nothing():
    assert names(["s", "s.x"])[0] == (("s",),)


def test_case_may_be_ignored():
    assert names(["S.IN.Q"], case_sensitive=False)[0] == (("s", "in", "q"),)
    with pytest.raises(UnknownColumnError, match="did you mean a"):
        names(["A"])


@pytest.mark.parametrize("columns", [1, [1], ["a", "a"]])
def test_what_is_no_list_of_names(columns):
    with pytest.raises(UsageError):
        names(columns)


def test_no_columns():
    assert names([]) == ((), pa.schema([]))


def test_without():
    projection = Projection.of(SCHEMA, [("a",), ("s", "x"), ("a.b",)])
    assert projection.without(["s", "a.b"], SCHEMA).paths == (("a",),)
