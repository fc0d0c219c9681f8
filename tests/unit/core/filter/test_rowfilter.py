"""The filter as a whole: columns, batches, zones, pickling, threads, errors."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from skipstone.core.filter import RowFilter
from skipstone.errors import (
    NotExpressibleError,
    PredicateError,
    TypeMismatchError,
    UnknownColumnError,
    UsageError,
)
from skipstone.predicate import tree
from skipstone.predicate.sql import parse_sql
from skipstone.predicate.tree import col, udf


def answers(
    predicate: tree.Predicate | str, table: pa.Table, schema: pa.Schema | None = None
) -> list[bool | None]:
    if isinstance(predicate, str):
        predicate = parse_sql(predicate)
    true, null = RowFilter(predicate, schema or table.schema).truth(table)
    assert true.dtype == null.dtype == bool
    assert not (true & null).any()
    return [None if n else bool(t) for t, n in zip(true, null, strict=True)]


TABLE = pa.table(
    {
        "a": pa.array([1, 2, None, 4], pa.int32()),
        "b": pa.array([1.0, float("nan"), None, -0.0]),
        "St": pa.array([{"x": 1, "y": "p"}, {"x": None, "y": "q"}, None, {"x": 4, "y": "r"}]),
    }
)


def test_columns_are_the_paths_that_are_read_as_the_schema_spells_them() -> None:
    made = RowFilter(parse_sql("st.X = 1 AND A > 0 AND a < 9"), TABLE.schema, case_sensitive=False)
    assert made.columns == (("St", "x"), ("a",))
    assert made.mask(TABLE).tolist() == [True, False, False, False]
    assert RowFilter(tree.Constant(True), TABLE.schema).columns == ()


def test_a_batch_may_have_other_columns_in_any_order_and_pruned_structs() -> None:
    batch = pa.record_batch(
        {"other": pa.array(["x", "y"]), "St": pa.array([{"x": 1}, None]), "a": pa.array([5, 6], pa.int32())}
    )
    made = RowFilter(parse_sql("St.x = 1 OR a = 6"), TABLE.schema)
    assert made.mask(batch).tolist() == [True, True]
    assert made.truth(batch.slice(1, 1))[0].tolist() == [True]


def test_a_field_of_a_null_struct_is_null() -> None:
    assert answers("St.y IS NULL", TABLE) == [False, False, True, False]
    assert answers("St.x = 1", TABLE) == [True, None, None, False]
    assert answers("St IS NULL", TABLE) == [False, False, True, False]


def test_tables_of_several_chunks_and_of_none() -> None:
    chunked = pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(1)])
    assert answers("a > 1", chunked) == [False, True, None, True]
    assert RowFilter(parse_sql("a > 1"), TABLE.schema).mask(TABLE.slice(0, 0)).tolist() == []
    assert RowFilter(parse_sql("a > 1"), TABLE.schema).mask(TABLE.schema.empty_table()).tolist() == []


def test_a_timestamp_read_without_its_zone_is_an_instant() -> None:
    schema = pa.schema({"t": pa.timestamp("ns", "UTC"), "s": pa.struct({"t": pa.timestamp("us", "UTC")})})
    bare = pa.table(
        {
            "t": pa.array([0, 3_600 * 10**9]).view(pa.timestamp("ns")),
            "s": pa.array([{"t": 0}, {"t": 1}], pa.struct({"t": pa.timestamp("us")})),
        }
    )
    predicate = parse_sql("t = '1970-01-01 01:00:00'", tz="+01:00")
    assert RowFilter(predicate, schema).mask(bare).tolist() == [True, False]
    assert RowFilter(parse_sql("s.t > '1970-01-01'"), schema).mask(bare).tolist() == [False, True]


def test_it_pickles_and_threads_may_share_it() -> None:
    made = RowFilter(parse_sql("a + 1 > 2 AND b <> 0"), TABLE.schema)
    copy = pickle.loads(pickle.dumps(made))
    assert copy.columns == made.columns
    assert copy.mask(TABLE).tolist() == made.mask(TABLE).tolist() == [False, True, False, False]
    batches = [pa.record_batch({"a": pa.array([n] * 50, pa.int32()), "b": [1.0] * 50}) for n in range(40)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(made.mask, batches))
    assert [bool(f.all()) for f in found] == [n > 1 for n in range(40)]


def test_the_compilers_errors() -> None:
    with pytest.raises(UnknownColumnError, match=r"did you mean St\.y"):
        RowFilter(parse_sql("y = 1"), TABLE.schema)
    with pytest.raises(TypeMismatchError):
        RowFilter(parse_sql("a = DATE '2020-01-01'"), TABLE.schema)
    with pytest.raises(UsageError, match="no such column"):
        RowFilter(parse_sql("a = 1"), TABLE.schema).mask(pa.table({"x": [1]}))


@pytest.mark.parametrize(
    "text",
    [
        "soundex(St.y) = 'x'",
        "St.y RLIKE '(?i)x'",
        "shiftleft(7, 2) > b",
        "cast(b AS string) = '1.0'",
        "cast(b AS decimal(5, 1)) = 1",
        "St = St",
        "current_user() = 'me'",
    ],
)
def test_unsupported_expressions_raise_at_construction(text: str) -> None:
    with pytest.raises(NotExpressibleError, match=r"can't be evaluated.*skipstone\.udf"):
        RowFilter(parse_sql(text), TABLE.schema)


# -- opaque leaves -----------------------------------------------------------------------------


def test_opaque_leaves_get_their_columns_by_dotted_name() -> None:
    seen: list[list[str]] = []

    def evaluate(batch: pa.RecordBatch) -> pa.Array:
        seen.append(batch.schema.names)
        return pc.equal(batch.column(0), 4)

    leaf = tree.Opaque((col("St", "x"), col("a")), evaluate, "mine")
    assert answers(leaf, TABLE) == [False, None, None, True]
    assert answers(~leaf, TABLE) == [True, None, None, False]
    assert seen[0] == ["St.x", "a"]


def test_an_opaque_leaf_without_columns_sees_the_rows() -> None:
    leaf = tree.Opaque((), lambda batch: pa.array([True] * batch.num_rows), "always")
    assert answers(leaf, TABLE) == [True] * 4


def test_an_expensive_conjunct_sees_only_the_rows_still_possible() -> None:
    seen: list[int] = []

    def positive(values: pa.Array) -> pa.Array:
        seen.append(len(values))
        return pc.greater(values, 0)

    table = pa.table({"a": list(range(100)), "t": pa.array(["x"] * 100, pa.string_view())})
    slow = udf(positive, ["a"])
    assert sum(RowFilter(slow & (col("a") < 10), table.schema).mask(table)) == 9
    assert sum(RowFilter(slow | (col("a") >= 10), table.schema).mask(table)) == 99
    assert sum(RowFilter(slow & (col("a") < 90), table.schema).mask(table)) == 89
    assert sum(RowFilter(slow & (col("a") < 0), table.schema).mask(table)) == 0
    assert seen == [10, 10, 100]
    views = udf(lambda v: pa.array([str(v.type) == "string_view"] * len(v)), ["t"])
    assert sum(RowFilter(views & (col("a") < 10), table.schema).mask(table)) == 10


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (pa.array([True]), "1 values for 4 rows"),
        (pa.array([1, 2, 3, 4]), "returned int64"),
        ([True] * 4, "returned a list"),
    ],
)
def test_a_wrong_answer_of_an_opaque_leaf_names_it(answer: object, words: str) -> None:
    with pytest.raises(PredicateError, match=rf"mine.*{words}"):
        answers(tree.Opaque((col("a"),), lambda _: answer, "mine"), TABLE)


def test_a_failing_opaque_leaf_is_named_and_one_without_a_function_refused() -> None:
    def fails(_: pa.RecordBatch) -> pa.Array:
        raise KeyError("oh")

    with pytest.raises(PredicateError, match=r"mine.*KeyError"):
        answers(tree.Opaque((col("a"),), fails, "mine"), TABLE)
    with pytest.raises(NotExpressibleError, match="mine"):
        RowFilter(tree.Opaque((), None, "mine"), TABLE.schema)


def test_foreign_expressions_are_evaluated_on_rows() -> None:
    pl = pytest.importorskip("polars")
    from skipstone.predicate.arrow import from_arrow
    from skipstone.predicate.polars import from_polars

    text = pa.table({"s": ["ab", None, "xyz"], "n": [1, 2, 3]})
    assert answers(from_arrow(pc.utf8_is_alpha(pc.field("s")) & (pc.field("n") < 3)), text) == [
        True,
        None,
        False,
    ]
    assert answers(from_polars(pl.col("s").str.len_chars() * 2 > pl.col("n") * 3), text) == [
        True,
        None,
        False,
    ]


# -- guarded errors ----------------------------------------------------------------------------


def test_rows_that_spark_fails_on_are_errors_unless_another_part_excludes_them() -> None:
    table = pa.table({"n": [6, 1, 5], "d": [2, 0, None], "s": ["1", "x", "3"]})
    with pytest.raises(PredicateError, match=r"\(n / d\) failed: division by zero"):
        answers("n / d = 3", table)
    assert answers("n / d = 3 AND d <> 0", table) == [True, False, None]
    assert answers("d = 0 OR n / d = 3", table) == [True, True, None]
    assert answers("CASE WHEN d <> 0 THEN n / d ELSE n END > 2", table) == [True, False, True]
    with pytest.raises(PredicateError, match="cast"):
        answers("cast(s AS int) > 0", table)
    assert answers("try_cast(s AS int) > 1", table) == [False, None, True]


def test_masks_are_numpy_arrays_of_the_batch_length() -> None:
    mask = RowFilter(parse_sql("a > 1"), TABLE.schema).mask(TABLE.to_batches()[0])
    assert isinstance(mask, np.ndarray)
    assert mask.tolist() == [False, True, False, True]


def test_a_condition_is_negated_wherever_it_stands():
    even = udf(lambda values: pc.equal(pc.bit_wise_and(values, 1), 0), ["i"])
    table = pa.table({"i": [1, 2, None, 4], "r": [1, 2, 3, None]})
    both = tree.Not(even & tree.Not(tree.IsNull(tree.Column(("r",)))))
    found = RowFilter(tree.Not(tree.Truth(both, False)), table.schema).truth(table)
    assert found[0].tolist() == [True, False, True, True]
    assert not found[1].any()
