from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from skipstone.errors import PredicateError, UnknownColumnError, UsageError
from skipstone.parquet.slice.columns import bare
from skipstone.scan.projection import Projection, resolve, split_columns

INNER = pa.struct({"p": pa.int8(), "q": pa.string()})
SCHEMA = pa.schema({"a": pa.int64(), "s": pa.struct({"x": pa.int32(), "in": INNER}), "a.b": pa.string()})


def names(columns, **options):
    found = resolve(columns, SCHEMA, **{"case_sensitive": True, **options})
    return found.paths, found.result


def test_every_column_by_default():
    assert names(None) == ((("a",), ("s",), ("a.b",)), SCHEMA)


def test_order_is_the_callers_and_a_dotted_name_is_a_name_first():
    paths, schema = names(["a.b", "a"])
    assert paths == (("a.b",), ("a",))
    assert schema.names == ["a.b", "a"]


def test_fields_of_structs_are_columns_of_their_own_named_by_their_path():
    found = resolve(["s.in.q", "a", "s.x"], SCHEMA, case_sensitive=True)
    assert found.paths == (("s", "in", "q"), ("a",), ("s", "x"))
    assert found.result == pa.schema({"s.in.q": pa.string(), "a": pa.int64(), "s.x": pa.int32()})
    # One struct is read, with the fields that are needed.
    cut = pa.struct({"x": pa.int32(), "in": pa.struct({"q": pa.string()})})
    assert found.schema == found.inputs.schema == pa.schema({"s": cut, "a": pa.int64()})


def test_a_struct_and_its_field():
    paths, schema = names(["s", "s.x"])
    assert paths == (("s",),)
    assert schema.names == ["s", "s.x"]


@pytest.mark.parametrize(
    ("column", "name", "type"),
    [
        ("a * 2 AS v", "v", pa.int64()),
        ("a*2", "a*2", pa.int64()),
        ("s.in.q as `my q`", "my q", pa.string()),
        ("s['in'].q AS q", "q", pa.string()),
        ("upper(s['in']['q'])", "upper(s['in']['q'])", pa.string()),
        ("`s`.`x`", "s.x", pa.int32()),
        ("a IS NULL AS gone", "gone", pa.bool_()),
        ("date'2024-01-31' + interval 1 month AS d", "d", pa.date32()),
    ],
)
def test_expressions(column, name, type):
    assert names([column])[1] == pa.schema({name: type})


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        (["a", "a"], "duplicate columns: a .list each column once"),
        (["a", "s.x AS a"], r"a and s.x AS a are both called a \(name one of them: s.x AS other\)"),
        (["s.x", "s['x'] AS `s.x`"], "are both called s.x"),
        (["s.y"], "unknown column"),
        (["a b"], "unknown column"),
        (["a, s"], "unknown column"),
        (["b * 2 AS v"], "column b: unknown column"),
        (["a *"], "'a .' is neither a column nor an expression: operand is missing"),
        (["sum(a)"], "the aggregate sum is not allowed in columns.*use scan.aggregate"),
        (["soundex(a)"], "unknown function 'soundex'"),
        (["now() AS n"], r"current_timestamp\(\) is not supported in columns"),
    ],
)
def test_what_is_no_list_of_columns(columns, problem):
    with pytest.raises((UsageError, UnknownColumnError, PredicateError), match=problem):
        names(columns)


def test_a_star_is_every_column():
    assert names(["*", "a + 1 AS b"])[1].names == ["a", "s", "a.b", "b"]


def test_values():
    table = pa.table(
        {"a": [1, None, 3], "s": [{"x": 5, "in": {"p": 1, "q": "u"}}, None, {"x": 7, "in": None}]}
    )
    found = resolve(["s.in.q", "a + s.x AS v", "1 AS one"], SCHEMA, case_sensitive=True).computed
    batches = pa.concat_tables([table, table.slice(1)])
    for read in (batches, pa.table(batches.slice(1))):
        wanted = {"s.in.q": ["u", None, None, None, None], "v": [6, None, 10, None, 10], "one": [1] * 5}
        got = pickle.loads(pickle.dumps(found)).compute(read)
        assert got.to_pydict() == {name: column[-len(read) :] for name, column in wanted.items()}
        assert got.schema == found.schema
    constant = resolve(["1 AS one"], SCHEMA, case_sensitive=True)
    assert constant.computed.compute(bare(2)).to_pydict() == {"one": [1, 1]}


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("a, s.x", ["a", "s.x"]),
        ("`b, c`,a,", ["b, c", "a"]),
        ('"b, ""c"""', ['b, "c"']),
        ("`we``ird`", ["we`ird"]),
        ("coalesce(a, b) AS v, t[0]", ["coalesce(a, b) AS v", "t[0]"]),
        ("concat(a, ', )') AS v,b", ["concat(a, ', )') AS v", "b"]),
        ("`a` + `b` AS c", ["`a` + `b` AS c"]),
        ("", []),
    ],
)
def test_lists_in_text(text, columns):
    assert split_columns(text) == columns


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
