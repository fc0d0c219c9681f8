"""Tables conformed: the same values in wider types, whatever the layout of the arrays."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.core.plain import type_name
from skipstone.errors import SchemaError
from skipstone.lake.conform import check_readable, conform
from skipstone.lake.schema import merge_types

I8, I16, I32, I64 = pa.int8(), pa.int16(), pa.int32(), pa.int64()
S, LS, SV = pa.string(), pa.large_string(), pa.string_view()


def FIXED(item: pa.DataType) -> pa.DataType:
    return pa.list_(item, 2)


LISTS: list[Callable[[pa.DataType], pa.DataType]] = [
    pa.list_,
    pa.large_list,
    pa.list_view,
    pa.large_list_view,
    FIXED,
]


def one(array: pa.Array, type: pa.DataType) -> pa.ChunkedArray:
    """The array as the only column of a conformed table."""
    column = conform(pa.table({"x": array}), pa.schema([("x", type)]), path="f.parquet")["x"]
    column.validate(full=True)
    assert column.type == type
    return column


class TestColumns:
    def test_by_name_in_the_order_of_the_schema(self) -> None:
        table = pa.table({"b": pa.array([1, 2], I8), "extra": ["x", "y"], "a": ["p", None]})
        found = conform(table, pa.schema([("a", S), ("new", pa.list_(I8)), ("b", I64)]), path="f")
        assert found.schema == pa.schema([("a", S), ("new", pa.list_(I8)), ("b", I64)])
        assert found.to_pydict() == {"a": ["p", None], "new": [None, None], "b": [1, 2]}

    def test_nothing_to_do(self) -> None:
        table = pa.table({"a": [1], "b": ["x"]})
        assert conform(table, table.schema, path="f") is table

    def test_equal_types_are_not_copied(self) -> None:
        table = pa.table({"a": pa.array([[1], [2, 3]]), "b": ["x", "y"], "c": pa.array([1, 2], I8)})
        schema = pa.schema(
            [table.schema.field("b"), table.schema.field("a"), ("c", I32)], metadata={"k": "v"}
        )
        found = conform(table, schema, path="f")
        assert found.schema.equals(schema, check_metadata=True)
        for name in ("a", "b"):
            old, new = (
                [buffer and buffer.address for buffer in t[name].chunk(0).buffers()] for t in (table, found)
            )
            assert old == new

    def test_equal_parts_of_nested_types_are_not_copied(self) -> None:
        texts = pa.array(["x" * 100] * 10)
        array = pa.StructArray.from_arrays([texts, pa.array(range(10), I8)], names=["t", "n"])
        found = one(array, pa.struct([("t", S), ("n", I16)])).chunk(0)
        assert found.field("t").buffers()[2].address == texts.buffers()[2].address

    def test_no_columns_keep_the_number_of_rows(self) -> None:
        assert conform(pa.table({"a": [1, 2, 3]}), pa.schema([]), path="f").num_rows == 3

    def test_only_missing_columns(self) -> None:
        found = conform(pa.table({"a": [1, 2]}), pa.schema([("b", pa.uuid())]), path="f")
        assert found["b"].to_pylist() == [None, None]

    def test_no_rows_and_no_chunks(self) -> None:
        empty = pa.schema([("a", I8)]).empty_table()
        assert conform(empty, pa.schema([("a", I64), ("b", S)]), path="f").num_rows == 0

    def test_several_chunks(self) -> None:
        table = pa.table({"x": pa.chunked_array([pa.array([1], I8), pa.array([], I8), pa.array([2], I8)])})
        assert conform(table, pa.schema([("x", I64)]), path="f")["x"].to_pylist() == [1, 2]

    def test_a_name_twice(self) -> None:
        table = pa.table([pa.array([1], I8), pa.array(["x"])], names=["a", "a"])
        same = conform(table, pa.schema([("a", I16), ("a", S)]), path="f")
        assert [column.to_pylist() for column in same.columns] == [[1], ["x"]]
        with pytest.raises(SchemaError, match="f, column a: two columns of the file have this name"):
            conform(table, pa.schema([("a", I16)]), path="f")
        assert conform(table, pa.schema([("b", I16)]), path="f")["b"].to_pylist() == [None]

    def test_null_in_a_required_column(self) -> None:
        schema = pa.schema([pa.field("a", I8, nullable=False)])
        for table in (pa.table({"b": [1]}), pa.table({"a": pa.array([None], I8)})):
            with pytest.raises(SchemaError, match="f, column a: column has NULLs"):
                conform(table, schema, path="f")


class TestValuesThatDoNotFit:
    @pytest.mark.parametrize(
        ("array", "type"),
        [
            (pa.array([2**60], pa.timestamp("s")), pa.timestamp("ns")),
            (pa.array([2**60], pa.timestamp("s", "UTC")), pa.timestamp("us", "Asia/Tokyo")),
            (pa.array([2**60], pa.duration("s")), pa.duration("ms")),
            (pa.array([1], I64).view(pa.date64()), pa.date32()),
            (pa.array([[2**60]], pa.list_(pa.timestamp("s"))), pa.list_(pa.timestamp("ns"))),
            (
                pa.array([{"a": 2**60}], pa.struct([("a", pa.timestamp("s"))])),
                pa.struct([("a", pa.timestamp("ns"))]),
            ),
        ],
        ids=str,
    )
    def test_never_wraps(self, array: pa.Array, type: pa.DataType) -> None:
        with pytest.raises(SchemaError) as caught:
            one(array, type)
        assert (caught.value.path, caught.value.column) == ("f.parquet", "x")
        assert type_name(type) in str(caught.value)

    def test_under_a_null_struct(self) -> None:
        stamps = pa.array([2**60, 1], pa.timestamp("s"))
        array = pa.StructArray.from_arrays([stamps], names=["a"], mask=pa.array([True, False]))
        found = one(array, pa.struct([("a", pa.timestamp("ns"))])).cast(pa.struct([("a", pa.timestamp("s"))]))
        assert found.to_pylist() == [None, {"a": dt.datetime(1970, 1, 1, 0, 0, 1)}]

    @pytest.mark.parametrize("make", LISTS)
    def test_under_a_null_list(self, make: Callable[[pa.DataType], pa.DataType]) -> None:
        stamps = pa.array([1, 2, 2**60, 2**60, 3, 4], pa.timestamp("s"))
        mask = pa.array([False, True, False])
        array = pa.FixedSizeListArray.from_arrays(stamps, 2, mask=mask)
        if make is not FIXED:
            array = pa.ListArray.from_arrays(pa.array([0, 2, 4, 6], I32), stamps, mask=mask)
        found = one(array, make(pa.timestamp("ms")))
        first, nothing, last = found.to_pylist()
        assert nothing is None
        assert [value.second for value in first + last] == [1, 2, 3, 4]

    def test_under_a_null_map(self) -> None:
        stamps = pa.array([2**60, 1], pa.timestamp("s"))
        array = pa.MapArray.from_arrays(
            pa.array([0, 1, 2], I32), pa.array(["a", "b"]), stamps, mask=pa.array([True, False])
        )
        found = one(array, pa.map_(S, pa.timestamp("ms")))
        assert found.to_pylist() == [None, [("b", dt.datetime(1970, 1, 1, 0, 0, 1))]]


class TestTypesThatDoNotFit:
    @pytest.mark.parametrize(
        ("own", "lake", "column"),
        [
            (I64, I32, "x"),
            (S, I32, "x"),
            (I64, pa.float64(), "x"),
            (I8, pa.null(), "x"),
            (pa.timestamp("ns"), pa.timestamp("us"), "x"),
            (pa.timestamp("us"), pa.timestamp("us", "UTC"), "x"),
            (pa.decimal128(6, 2), pa.decimal128(5, 2), "x"),
            (pa.decimal128(5, 2), pa.decimal128(5, 1), "x"),
            (pa.binary(4), pa.binary(), "x"),
            (pa.binary(), S, "x"),
            (pa.uuid(), pa.binary(16), "x"),
            (pa.list_(I8), pa.list_(I8, 2), "x"),
            (pa.list_(I8, 3), pa.list_(I8, 2), "x"),
            (pa.list_(I64), pa.list_(I8), "x.element"),
            (pa.map_(S, pa.struct([("a.b", S)])), pa.map_(S, pa.struct([("a.b", I8)])), "x.value.a.b"),
            (pa.struct([("a", I8), ("a", I8)]), pa.struct([("a", I16)]), "x"),
            (pa.dictionary(I8, I64), pa.dictionary(I8, I32), "x"),
        ],
        ids=str,
    )
    def test_refused(self, own: pa.DataType, lake: pa.DataType, column: str) -> None:
        with pytest.raises(SchemaError) as caught:
            one(pa.nulls(1, own), lake)
        assert (caught.value.path, caught.value.column) == ("f.parquet", column)
        with pytest.raises(SchemaError) as caught:
            check_readable(pa.schema([("x", own)]), pa.schema([("x", lake)]), "f.parquet", "g.parquet")
        assert (caught.value.path, caught.value.column) == ("f.parquet", column)
        assert "g.parquet" in str(caught.value)

    def test_readable(self) -> None:
        own = pa.schema([("x", I8), ("extra", S)])
        check_readable(own, pa.schema([("y", S), ("x", I64)]), "f", "g")


class TestLayouts:
    """What is only laid out differently always fits, also against the direction of merging."""

    @pytest.mark.parametrize("own", [S, LS, SV, pa.dictionary(I8, S), pa.dictionary(I32, LS)], ids=str)
    @pytest.mark.parametrize("lake", [S, LS, SV, pa.dictionary(I8, S), pa.dictionary(I64, LS)], ids=str)
    def test_texts(self, own: pa.DataType, lake: pa.DataType) -> None:
        values = ["lost", "a", None, "a long text that no view holds inline"]
        assert one(pa.array(values, own)[1:], lake).to_pylist() == values[1:]

    @pytest.mark.parametrize("own", [pa.binary(), pa.large_binary(), pa.binary_view()], ids=str)
    @pytest.mark.parametrize("lake", [pa.binary(), pa.large_binary(), pa.binary_view()], ids=str)
    def test_bytes(self, own: pa.DataType, lake: pa.DataType) -> None:
        assert one(pa.array([b"\xff", None, b"a" * 20], own), lake).to_pylist() == [b"\xff", None, b"a" * 20]

    def test_run_ends(self) -> None:
        runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 5], I32), pa.array(["a", None]))
        assert one(runs[1:4], LS).to_pylist() == ["a", None, None]
        nested = pa.StructArray.from_arrays([runs], names=["r"], mask=pa.array([True] + [False] * 4))
        assert one(nested, pa.struct([("r", LS)])).to_pylist() == [None, {"r": "a"}, *[{"r": None}] * 3]
        plain = pa.array(["a", "a", None])
        assert one(plain, pa.run_end_encoded(I32, S)).to_pylist() == ["a", "a", None]

    @pytest.mark.parametrize("own", LISTS)
    @pytest.mark.parametrize("lake", LISTS)
    @pytest.mark.parametrize("item", [(I8, I32), (S, LS), (SV, LS), (I8, I8)], ids=str)
    def test_lists(
        self,
        own: Callable[[pa.DataType], pa.DataType],
        lake: Callable[[pa.DataType], pa.DataType],
        item: tuple[pa.DataType, pa.DataType],
    ) -> None:
        if lake is FIXED:
            own = FIXED  # nothing else fits
        pairs = [[9, 9], [1, None], None, [3, 4], [5, 6]]
        if item[0] != I8:
            pairs = [pair and [None if n is None else f"{n}" * 15 for n in pair] for pair in pairs]
        array = pa.array(pairs, own(item[0]))
        for part in (array, array[1:], array[1:4], array[2:3], array[3:], array[:0]):
            assert one(part, lake(item[1])).to_pylist() == part.to_pylist()

    def test_lists_of_nothing(self) -> None:
        array = pa.array([[], None, []], pa.list_(I8, 0))
        assert one(array, pa.list_(I16, 0)).to_pylist() == [[], None, []]
        assert one(array, pa.list_(I16)).to_pylist() == [[], None, []]

    def test_views_out_of_order(self) -> None:
        view = pa.ListViewArray.from_arrays(
            pa.array([3, 0, 1], I32), pa.array([2, 3, 0], I32), pa.array(range(5), I8)
        )
        assert one(view, pa.list_(I16)).to_pylist() == [[3, 4], [0, 1, 2], []]
        texts = pa.ListViewArray.from_arrays(
            pa.array([1, 0], I32), pa.array([2, 2], I32), pa.array(["a", "b", "c"], SV)
        )
        assert one(texts, pa.list_(S)).to_pylist() == [["b", "c"], ["a", "b"]]

    def test_decimal_widths(self) -> None:
        values = [decimal.Decimal("1.50"), None]
        for own in (pa.decimal32(5, 2), pa.decimal128(5, 2), pa.decimal256(5, 2)):
            for lake in (pa.decimal32(5, 2), pa.decimal64(5, 2), pa.decimal128(5, 2)):
                assert one(pa.array(values, own), lake).to_pylist() == values

    def test_dates(self) -> None:
        days = [dt.date(1600, 2, 29), None]
        assert one(pa.array(days, pa.date32()), pa.date64()).to_pylist() == days
        assert one(pa.array(days, pa.date64()), pa.date32()).to_pylist() == days

    def test_nan_and_signed_zero(self) -> None:
        found = one(pa.array([float("nan"), -0.0], pa.float16()), pa.float64())
        assert str(found.to_pylist()) == "[nan, -0.0]"

    def test_nested_fields_by_name(self) -> None:
        own = pa.struct([("a", I8), ("gone", S), ("b", pa.list_(pa.struct([("c", I8)])))])
        lake = pa.struct([("b", pa.list_(pa.struct([("d", S), ("c", I64)]))), ("new", pa.uuid()), ("a", I16)])
        values = [{"a": 0}, {"a": 1, "gone": "x", "b": [{"c": 2}, None]}, None, {"a": None, "b": None}]
        assert one(pa.array(values, own)[1:], lake).to_pylist() == [
            {"b": [{"d": None, "c": 2}, None], "new": None, "a": 1},
            None,
            {"b": None, "new": None, "a": None},
        ]

    def test_struct_that_shares_no_field(self) -> None:
        array = pa.array([{"a": 1}, None], pa.struct([("a", I8)]))
        assert one(array, pa.struct([("b", S)])).to_pylist() == [{"b": None}, None]
        assert one(array, pa.struct([])).to_pylist() == [{}, None]


# -- any two types that merge ------------------------------------------------------------------

_KINDS: dict[str, list[pa.DataType]] = {
    "number": [
        *(pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.uint32(), pa.null()),
        *(pa.float16(), pa.float32(), pa.float64(), pa.dictionary(I8, I16)),
    ],
    "exact": [I8, pa.uint64(), I64, pa.decimal32(6, 2), pa.decimal128(20, 1), pa.decimal256(50, 9)],
    "text": [S, LS, SV, pa.dictionary(I8, S), pa.dictionary(pa.uint16(), LS), pa.null()],
    "bytes": [pa.binary(), pa.large_binary(), pa.binary_view()],
    "day": [pa.date32(), pa.date64()],
    "wall": [pa.timestamp(unit) for unit in ("s", "ms", "us")],
    "instant": [pa.timestamp("s", "UTC"), pa.timestamp("us", "Asia/Tokyo"), pa.timestamp("ms", "UTC")],
    "time": [pa.time32("s"), pa.time32("ms"), pa.time64("us")],
    "duration": [pa.duration(unit) for unit in ("s", "ms", "us")],
}
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "number": st.integers(0, 100),
    "exact": st.integers(0, 100),
    "text": st.text(max_size=14),
    "bytes": st.binary(max_size=14),
    "day": st.dates(),
    "wall": st.datetimes().map(lambda t: t.replace(microsecond=0)),
    "instant": st.datetimes(dt.datetime(2, 1, 1), dt.datetime(9998, 1, 1)).map(
        lambda t: t.replace(microsecond=0, tzinfo=dt.UTC)
    ),
    "time": st.times().map(lambda t: t.replace(microsecond=0)),
    "duration": st.integers(-(10**9), 10**9).map(lambda n: dt.timedelta(seconds=n)),
}
Shape = Any
SHAPES: st.SearchStrategy[Shape] = st.recursive(
    st.sampled_from(sorted(_KINDS)),
    lambda inner: st.one_of(
        st.tuples(st.just("list"), inner),
        st.tuples(st.just("pair"), inner),
        st.tuples(st.just("map"), inner),
        st.tuples(st.just("struct"), st.dictionaries(st.sampled_from("abcd"), inner, max_size=3)),
    ),
    max_leaves=4,
)


@st.composite
def types(draw: st.DrawFn, shape: Shape) -> pa.DataType:
    """One of the types that values of this shape can have."""
    if isinstance(shape, str):
        return draw(st.sampled_from(_KINDS[shape]))
    kind, inner = shape
    if kind == "struct":
        names = draw(st.permutations(sorted(inner)))
        kept = names[: draw(st.integers(0, len(names)))]
        return pa.struct([(name, draw(types(inner[name]))) for name in kept])
    item = draw(types(inner))
    if kind == "map":
        return pa.map_(draw(st.sampled_from([S, LS])), item)
    return draw(st.sampled_from(LISTS if kind == "pair" else LISTS[:4]))(item)


def values(shape: Shape, type: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_null(type):
        return st.none()
    if isinstance(shape, str):
        return st.none() | _VALUES[shape]
    kind, inner = shape
    if kind == "struct":
        fields = {field.name: values(inner[field.name], field.type) for field in type.fields}
        return st.none() | st.fixed_dictionaries(fields)
    if kind == "map":
        pair = st.tuples(st.text(max_size=3), values(inner, type.item_type))
        return st.none() | st.lists(pair, max_size=3)
    size = {"min_size": 2, "max_size": 2} if kind == "pair" else {"max_size": 3}
    return st.none() | st.lists(values(inner, type.value_type), **size)


def widened(value: Any, type: pa.DataType) -> Any:
    """The value with NULL for the fields of structs it doesn't have."""
    if value is None:
        return None
    if pa.types.is_struct(type):
        return {field.name: widened(value.get(field.name), field.type) for field in type.fields}
    if pa.types.is_map(type):
        return [(key, widened(item, type.item_type)) for key, item in value]
    if pa.types.is_nested(type):
        return [widened(item, type.value_type) for item in value]
    return value


@given(st.data())
def test_same_values_in_any_wider_type(data: st.DataObject) -> None:
    shape = data.draw(SHAPES)
    own, other = data.draw(types(shape)), data.draw(types(shape))
    wider = merge_types(own, other)
    if wider is None:  # uint64 with a signed integer
        return
    check_readable(pa.schema([("x", own)]), pa.schema([("x", wider)]), "f", "g")
    rows = data.draw(st.lists(values(shape, own), max_size=6))
    array = pa.array(rows, own)
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:  # pyarrow's own: under a NULL struct, dictionary indices that point nowhere
        return
    start = data.draw(st.integers(0, len(rows)))
    part = array.slice(start, data.draw(st.integers(0, len(rows) - start)))
    assert one(part, wider).to_pylist() == [widened(value, wider) for value in part.to_pylist()]
