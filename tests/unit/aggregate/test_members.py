from __future__ import annotations

import pickle
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap, BitMap64

from skipstone.aggregate.members import (
    AllMembers,
    AnyMembers,
    Ids,
    MemberAntiJoin,
    Members,
    NotMembers,
    RowPositions,
    column_mask,
    combine_members,
    members,
)
from skipstone.core.domain.keys import key_space
from skipstone.core.evidence import ColumnFacts
from skipstone.core.rows import RowSet
from skipstone.core.rows.intset import IntSet
from skipstone.errors import RowSetError, TypeMismatchError, UnknownColumnError, UsageError

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("big", pa.uint64()),
        ("tiny", pa.int8()),
        ("s", pa.struct([("id", pa.int32())])),
        ("t", pa.string()),
    ]
)
COLUMNS = {("id",): pa.int64(), ("big",): pa.uint64(), ("tiny",): pa.int8()}
PATHS = ["lake/a=1/part-0.parquet", "lake/a=2/part-0.parquet", "lake/a=2/part-1.parquet"]


def bound(one: Members) -> Members:
    return one.bind(SCHEMA, case_sensitive=True)


def table(**columns: Any) -> pa.Table:
    rows = len(next(iter(columns.values())))
    return pa.table({f.name: pa.array(columns.get(f.name, [None] * rows), f.type) for f in SCHEMA})


# -- rows and units ---------------------------------------------------------------------------

VALUES = {
    "id": st.one_of(st.none(), st.integers(-3, 12), st.sampled_from([-(2**63), 2**63 - 1])),
    "big": st.one_of(st.none(), st.integers(0, 12), st.sampled_from([2**63, 2**64 - 1])),
    "tiny": st.one_of(st.none(), st.integers(-3, 12), st.sampled_from([-128, 127])),
}
SETS = st.one_of(
    st.sets(st.integers(0, 14), max_size=8),
    st.builds(lambda a, n: set(range(a, a + n)), st.integers(0, 6), st.integers(0, 15)),
    st.sets(st.sampled_from([0, 1, 127, 2**63 - 1, 2**63, 2**64 - 1])),
)


@st.composite
def expressions(draw: st.DrawFn, depth: int = 2) -> tuple[Members, Any]:
    """Members, and whether a row is one of them as Python says it."""
    kind = draw(st.sampled_from(["leaf", "and", "or", "not", "minus"])) if depth else "leaf"
    if kind == "leaf":
        column, ids = draw(st.sampled_from(sorted(VALUES))), draw(SETS)
        return members(BitMap64(sorted(ids)), column), lambda row: row[column] in ids
    one, is_one = draw(expressions(depth - 1))
    if kind == "not":
        return ~one, lambda row: not is_one(row)
    other, is_other = draw(expressions(depth - 1))
    if kind == "and":
        return one & other, lambda row: is_one(row) and is_other(row)
    if kind == "or":
        return one | other, lambda row: is_one(row) or is_other(row)
    return one - other, lambda row: is_one(row) and not is_other(row)


def facts_of(type: pa.DataType, units: list[list[Any]], loose: int, known: list[bool]) -> ColumnFacts:
    """True facts about the values of units; bounds wider than need be by ``loose``, or unknown."""
    unknown = ColumnFacts.unknown(type, len(units))
    space = key_space(type)
    lower, upper = unknown.lower.copy(), unknown.upper.copy()
    may_value, may_null = unknown.may_value.copy(), unknown.may_null.copy()
    for at, values in enumerate(units):
        present = [value for value in values if value is not None]
        if known[at]:
            may_value[at], may_null[at] = bool(present), None in values
            if present:
                lower[at] = max(min(present) - loose, space.low)
                upper[at] = min(max(present) + loose, space.high)
    no = np.zeros(len(units), bool)
    return ColumnFacts(type, lower, upper, no, no, may_value, may_null, no)


@given(expressions(), st.data())
def test_rows_are_members_as_python_has_it_and_coverage_is_sound(
    expression: Any, data: st.DataObject
) -> None:
    asked, is_member = expression
    asked = bound(asked)
    row = st.fixed_dictionaries(VALUES)
    units = data.draw(st.lists(st.lists(row, min_size=1, max_size=5), min_size=1, max_size=5))
    known = data.draw(st.lists(st.booleans(), min_size=len(units), max_size=len(units)))
    loose = data.draw(st.integers(0, 2))
    facts = {
        path: facts_of(type, [[row[path[0]] for row in unit] for unit in units], loose, known)
        for path, type in COLUMNS.items()
        if data.draw(st.integers(0, 4))
    }
    cover = asked.cover(facts, len(units))
    for at, unit in enumerate(units):
        expected = [is_member(row) for row in unit]
        rows = table(**{name: [row[name] for row in unit] for name in VALUES})
        assert asked.mask(rows).tolist() == expected
        assert not (~cover.inside[at] and any(expected))
        assert not (~cover.outside[at] and not all(expected))
        bounds = {
            path: (min(ids), max(ids))
            for path in COLUMNS
            if (ids := [r[path[0]] for r in unit if r[path[0]] is not None])
        }
        assert pickle.loads(pickle.dumps(asked.restrict(bounds))).mask(rows).tolist() == expected


@pytest.mark.parametrize(
    ("values", "empty", "full"),
    [
        ([3, 4, 5], False, True),
        ([3, 3, 5], False, True),
        ([3, 5, None], False, False),
        ([2, 5], False, False),
        ([-1, 4], False, False),
        ([6, 9], True, False),
        ([-9, -1], True, False),
        ([None, None], True, False),
    ],
)
def test_coverage_is_as_good_as_bounds_allow(values: list[int | None], empty: bool, full: bool) -> None:
    asked = bound(members([3, 4, 5], "id"))
    cover = asked.cover({("id",): facts_of(pa.int64(), [values], 0, [True])}, 1)
    assert ((~cover.inside).tolist(), (~cover.outside).tolist()) == ([empty], [full])
    cover = (~asked).cover({("id",): facts_of(pa.int64(), [values], 0, [True])}, 1)
    assert ((~cover.inside).tolist(), (~cover.outside).tolist()) == ([full], [empty])


def test_unknown_facts_prove_nothing_but_of_an_empty_set() -> None:
    none, all_ = bound(members(BitMap(), "id")), bound(members(range(2**63), "id"))
    for facts in (
        {},
        {("id",): ColumnFacts.unknown(pa.int64(), 2)},
        {("id",): ColumnFacts.unknown(pa.string(), 2)},
    ):
        assert (~none.cover(facts, 2).inside).all()
        assert (~(~none).cover(facts, 2).outside).all()
        cover = all_.cover(facts, 2)
        assert cover.inside.all()
        assert cover.outside.all()
    absent = {("id",): ColumnFacts.absent(pa.int64(), 2)}
    assert (~all_.cover(absent, 2).inside).all()
    no = np.zeros(1, bool)
    crossed = ColumnFacts(pa.int64(), np.array([5]), np.array([3]), no, no, ~no, no, no)
    cover = bound(members([4], "id")).cover({("id",): crossed}, 1)
    assert cover.inside.all()
    assert cover.outside.all()


def test_every_id_of_a_type_is_a_full_unit() -> None:
    whole = bound(members(range(2**64), "big"))
    facts = facts_of(pa.uint64(), [[0, 2**64 - 1], [5], [2**64 - 1]], 0, [True] * 3)
    assert (~whole.cover({("big",): facts}, 3).outside).all()
    assert whole.mask(table(big=[0, 5, 2**64 - 1])).all()


# -- names ------------------------------------------------------------------------------------


def test_names_are_bound_to_integer_columns() -> None:
    one = (members([1], "ID") | ~members([2], "s.id")).bind(SCHEMA, case_sensitive=False)
    assert tuple(one.columns) == (("id",), ("s", "id"))
    assert tuple(one.columns.values()) == (pa.int64(), pa.int32())
    rows = table(id=[1, 2, 3], s=[{"id": 2}, {"id": 2}, None])
    assert one.mask(rows).tolist() == [True, False, True]
    outside = pickle.loads(pickle.dumps(MemberAntiJoin(one)))
    assert (outside.columns, outside.types) == (tuple(one.columns), tuple(one.columns.values()))
    assert outside.deleted(rows, None, None).tolist() == [False, True, False]
    with pytest.raises(UnknownColumnError, match="did you mean id"):
        bound(members([1], "idd"))
    with pytest.raises(TypeMismatchError, match="column t: id column has type string, not an integer type"):
        bound(members([1], "t"))


def test_descriptions() -> None:
    asked = members(range(0, 10**6, 5000), "id") - (members(range(0, 900, 3), "big") | ~members([7], "tiny"))
    assert asked.descriptions() == (
        "id in 200 ids (sparse: binary search)",
        "big not in 300 ids (dense: one bit per id)",
        "tiny in 1 id (one run)",
    )
    assert members([], "id").descriptions() == ("id in no ids",)
    assert (~members({"f": [1, 2]}) & members([3])).descriptions() == (
        "rows not at 2 positions in 1 file",
        "rows at 1 position in the lake",
    )


# -- places -----------------------------------------------------------------------------------


def test_rows_are_split_by_positions() -> None:
    ids = bound(members([1], "id"))
    one, other = members({"part-1.parquet": RowSet.from_ranges(10, [(0, 6)])}), members([103, 104, 105, 106])
    asked = ((one | other) & ids | (one & other)).bind_files(PATHS)

    def parts(rows: RowSet) -> dict[Any, list[int]]:
        return {
            rest: part.positions().tolist()
            for part, rest in asked.split(rows, lambda leaf: leaf.rows(2, 100, 10))
        }

    assert parts(RowSet.all(10)) == {ids: [0, 1, 2, 6], True: [3, 4, 5], False: [7, 8, 9]}
    assert parts(RowSet.from_ranges(10, [(6, 7)])) == {ids: [6]}
    assert parts(RowSet.none(10)) == {}
    assert ids.split(RowSet.all(3), lambda leaf: RowSet.none(3)) == [(RowSet.all(3), ids)]


@given(st.lists(st.sets(st.integers(0, 9)), min_size=3, max_size=3), st.sets(st.integers(0, 9)), st.data())
def test_parts_hold_each_row_once_and_right(
    places: list[set[int]], rows: set[int], data: st.DataObject
) -> None:
    leaves = [members({"f": sorted(one)}) for one in places]
    ids = bound(members([1], "id"))

    def draw(depth: int) -> tuple[Members, Any]:
        kind = data.draw(st.sampled_from(["leaf", "&", "|", "~"])) if depth else "leaf"
        if kind == "leaf":
            at = data.draw(st.integers(0, 3))
            return (ids, lambda row: row % 2 == 1) if at == 3 else (leaves[at], lambda row: row in places[at])
        one, is_one = draw(depth - 1)
        if kind == "~":
            return ~one, lambda row: not is_one(row)
        other, is_other = draw(depth - 1)
        if kind == "&":
            return one & other, lambda row: is_one(row) and is_other(row)
        return one | other, lambda row: is_one(row) or is_other(row)

    asked, is_member = draw(3)
    found: dict[int, bool] = {}
    for part, rest in asked.bind_files(["f"]).split(
        RowSet.from_positions(10, sorted(rows)), lambda leaf: leaf.rows(0, 0, 10)
    ):
        held = part.positions().tolist()
        values = (
            [rest] * len(held) if isinstance(rest, bool) else rest.mask(table(id=[row % 2 for row in held]))
        )
        assert not set(held) & set(found)
        found |= dict(zip(held, values, strict=True))
    assert found == {row: is_member(row) for row in rows}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("part-0.parquet", "2 files match this name"),
        ("part-7.parquet", "part-7.parquet: file is not in the lake"),
        ("art-1.parquet", "file is not in the lake"),
    ],
)
def test_a_name_must_mean_one_file(name: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        members({name: [1]}).bind_files(PATHS)


def test_files_are_found_by_path_or_its_end() -> None:
    for name in (
        "part-1.parquet",
        "a=2/part-1.parquet",
        PATHS[2],
        "/data/" + PATHS[2],
        "s3://bucket/" + PATHS[2],
    ):
        found = members(MappingProxyType({name: BitMap([3, 4, 99])})).bind_files(PATHS)
        assert isinstance(found, RowPositions)
        assert found.rows(2, 0, 10).positions().tolist() == [3, 4]
        assert found.rows(1, 0, 10).is_empty
    with pytest.raises(UsageError, match="two sets of positions"):
        members({"part-1.parquet": [1], PATHS[2]: [2]}).bind_files(PATHS)


def test_row_sets_must_fit_their_file_or_the_lake() -> None:
    one = members({PATHS[0]: RowSet.all(9)}).bind_files(PATHS)
    whole = members(RowSet.from_ranges(20, [(8, 15)])).bind_files(PATHS)
    assert isinstance(one, RowPositions)
    assert isinstance(whole, RowPositions)
    with pytest.raises(RowSetError, match=r"part-0\.parquet: row set covers 9 rows, but the file has 10"):
        one.rows(0, 0, 10)
    assert whole.rows(1, 10, 10).ranges() == [(0, 5)]
    with pytest.raises(RowSetError, match="row set covers 20 rows, but the lake has more"):
        whole.rows(1, 15, 10)


# -- what callers give ------------------------------------------------------------------------


def test_what_a_scan_is_given() -> None:
    assert combine_members(None, None, None) is None
    one = combine_members(BitMap([1]), None, "id")
    assert isinstance(one, Ids)
    assert combine_members(one, None, None) is one
    assert isinstance(combine_members([1, 2], None, None), RowPositions)
    assert isinstance(combine_members(None, RowSet.all(3), "id"), NotMembers)
    several = combine_members([BitMap([1]), one], (one | one, [3, 4]), "id")
    assert isinstance(several, AllMembers)
    assert [type(part) for part in several.parts] == [Ids, Ids, NotMembers, NotMembers]
    assert isinstance(one | one, AnyMembers)
    # A list of numbers is a set, and so is a list of none: nothing is in it.
    nothing = combine_members([], None, "id")
    assert isinstance(nothing, Ids)
    assert nothing.ids.size == 0


@pytest.mark.parametrize(
    ("within", "without", "id_column", "said"),
    [
        (None, None, "id", "there is no set of ids"),
        (members([1], "id"), None, "id", "already have a column"),
        ({"f": [1]}, None, "id", "mapping has row positions, not ids"),
        ({3: [1]}, None, None, "3 is not a path"),
        ([1.5], None, "id", "got float64 values"),
        (None, np.array([True]), None, "got bool values"),
        ([-1], None, "id", "ids must not be negative"),
        ("id < 3", None, "id", "str is not a set of ids"),
        ([1], None, 5, "column=5"),
    ],
)
def test_what_makes_no_sense_is_refused(within: Any, without: Any, id_column: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        combine_members(within, without, id_column)


def test_members_are_coerced_once() -> None:
    one = members([1], "id")
    assert members(one) is one
    with pytest.raises(UsageError, match="already have a column"):
        members(one, "id")
    with pytest.raises(TypeError):
        one & BitMap([1])


def test_lists_of_any_sets_are_lists_of_sets() -> None:
    for sets in ([np.array([1, 2]), np.array([2, 3])], [[1, 2], [2]], [{1, 2}, {2}], [range(3), range(2, 5)]):
        found = combine_members(sets, None, "id")
        assert isinstance(found, AllMembers)
        assert [leaf.ids.contains(np.array([2]))[0] for leaf in found.leaves()] == [True, True]
    assert isinstance(combine_members([1, 2], None, "id"), Ids)


def test_sets_have_no_truth_value() -> None:
    with pytest.raises(TypeError, match="combine them with"):
        bool(members([1], "id"))


# -- columns ----------------------------------------------------------------------------------


def test_columns_with_nulls_chunks_and_dictionaries() -> None:
    found = IntSet.of([0, 2, 300])
    values = [2, None, -2, 0, 300, 2, 1, None]
    expected = [True, False, False, True, True, True, False, False]
    plain = pa.array(values, pa.int32())
    for column in (
        plain,
        plain.dictionary_encode(),
        pa.array([2, 2]).dictionary_encode()[:0],
        pa.chunked_array([plain[:3], plain[3:].dictionary_encode().dictionary_decode(), plain[:0]]),
        pa.DictionaryArray.from_arrays(
            pa.array([0, 1, 2, 3, 4, 0, 5, 1]), pa.array([2, None, -2, 0, 300, 1])
        ),
        pa.chunked_array([], pa.int64()),
        pc.run_end_encode(plain),
        pa.nulls(0),
    ):
        assert column_mask(found, column).tolist() == expected[: len(column)]
    assert column_mask(found, pa.nulls(2)).tolist() == [False, False]
