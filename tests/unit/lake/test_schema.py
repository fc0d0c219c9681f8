"""Schemas merged: which types widen to which, and what is said when none does."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import skipstone as sk
from skipstone.errors import FileError, SchemaError
from skipstone.lake.schema import merge_schemas, merge_types
from tests.support.calls import calls

I8, I16, I32, I64 = pa.int8(), pa.int16(), pa.int32(), pa.int64()
U8, U16, U32, U64 = pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()
F16, F32, F64 = pa.float16(), pa.float32(), pa.float64()
S, LS, SV = pa.string(), pa.large_string(), pa.string_view()
B, LB, BV = pa.binary(), pa.large_binary(), pa.binary_view()


def dec(precision: int, scale: int) -> pa.DataType:
    return pa.decimal128(precision, scale)


def dic(index: pa.DataType, value: pa.DataType) -> pa.DataType:
    return pa.dictionary(index, value)


WIDER: list[tuple[pa.DataType, pa.DataType, pa.DataType | None]] = [
    (I8, I64, I64),
    (U8, U32, U32),
    (U8, I8, I16),
    (U16, I8, I32),
    (U32, I32, I64),
    (U8, I64, I64),
    (U64, I64, None),
    (U64, I8, None),
    (I8, F16, F16),
    (U8, F16, F32),
    (I16, F16, F32),
    (I16, F32, F32),
    (U16, F32, F64),
    (I32, F32, F64),
    (I32, F64, F64),
    (U32, F64, F64),
    (I64, F64, None),
    (U64, F64, None),
    (F16, F32, F32),
    (F32, F64, F64),
    (dec(5, 2), dec(7, 1), dec(8, 2)),
    (dec(38, 0), dec(38, 38), pa.decimal256(76, 38)),
    (dec(38, 0), pa.decimal256(76, 76), None),
    (pa.decimal32(5, 2), pa.decimal64(12, 2), pa.decimal64(12, 2)),
    (pa.decimal32(9, 0), pa.decimal32(9, 9), pa.decimal64(18, 9)),
    (pa.decimal256(5, 2), dec(5, 2), pa.decimal256(5, 2)),
    (dec(3, -2), dec(3, 1), dec(6, 1)),
    (I32, dec(5, 2), dec(12, 2)),
    (I64, dec(5, 2), dec(21, 2)),
    (U64, dec(5, 0), dec(20, 0)),
    (I64, pa.decimal256(76, 70), None),
    (F32, dec(5, 2), None),
    (pa.bool_(), I8, None),
    (pa.null(), I8, I8),
    (pa.null(), pa.uuid(), pa.uuid()),
    (pa.null(), pa.struct([("a", I8)]), pa.struct([("a", I8)])),
    (S, LS, LS),
    (S, SV, S),
    (LS, SV, LS),
    (B, BV, B),
    (B, LB, LB),
    (S, B, None),
    (S, I8, None),
    (dic(I8, S), S, S),
    (dic(I8, S), LS, LS),
    (dic(I8, S), dic(I32, S), dic(I32, S)),
    (dic(I8, S), dic(U8, LS), dic(I16, LS)),
    (dic(I8, S), dic(U64, S), dic(I64, S)),
    (dic(I8, I8), I32, I32),
    (dic(I8, S), I32, None),
    (pa.run_end_encoded(I32, S), LS, LS),
    (pa.run_end_encoded(I16, S), pa.run_end_encoded(I32, S), S),
    (pa.binary(4), pa.binary(4), pa.binary(4)),
    (pa.binary(4), pa.binary(5), None),
    (pa.binary(4), B, None),
    (pa.uuid(), pa.binary(16), None),
    (pa.uuid(), pa.uuid(), pa.uuid()),
    (pa.date32(), pa.date64(), pa.date32()),
    (pa.date32(), pa.timestamp("us"), None),
    (pa.timestamp("ms"), pa.timestamp("ns"), pa.timestamp("ns")),
    (pa.timestamp("us", "UTC"), pa.timestamp("us"), None),
    (pa.time32("s"), pa.time32("ms"), pa.time32("ms")),
    (pa.time32("ms"), pa.time64("us"), pa.time64("us")),
    (pa.time32("ms"), pa.timestamp("ms"), None),
    (pa.duration("s"), pa.duration("us"), pa.duration("us")),
    (pa.duration("s"), I64, None),
    (pa.list_(I8), pa.list_(I32), pa.list_(I32)),
    (pa.list_(I8), pa.large_list(I8), pa.large_list(I8)),
    (pa.list_(I8), pa.list_view(I8), pa.list_(I8)),
    (pa.list_view(I8), pa.large_list_view(I8), pa.large_list_view(I8)),
    (pa.list_(I8, 2), pa.list_(I16, 2), pa.list_(I16, 2)),
    (pa.list_(I8, 2), pa.list_(I8, 3), pa.list_(I8)),
    (pa.list_(I8, 2), pa.large_list(I8), pa.large_list(I8)),
    (pa.list_(I8), pa.list_(S), None),
    (pa.list_(I8), I8, None),
    (pa.struct([("a", I8)]), pa.struct([("a", I16), ("b", S)]), pa.struct([("a", I16), ("b", S)])),
    (pa.struct([("a", I8)]), pa.struct([("a", S)]), None),
    (pa.struct([("a", I8), ("a", I8)]), pa.struct([("b", S)]), None),
    (pa.map_(S, I8), pa.map_(LS, I16), pa.map_(LS, I16)),
    (pa.map_(S, I8), pa.map_(I8, I8), None),
    (pa.map_(S, I8), pa.list_(I8), None),
]


@pytest.mark.parametrize(("a", "b", "wider"), WIDER, ids=lambda type: str(type))
def test_merge_types(a: pa.DataType, b: pa.DataType, wider: pa.DataType | None) -> None:
    assert merge_types(a, b) == wider
    assert merge_types(b, a) == wider


def test_the_first_zone_stays() -> None:
    utc, paris = pa.timestamp("s", "UTC"), pa.timestamp("us", "Europe/Paris")
    assert merge_types(utc, paris) == pa.timestamp("us", "UTC")
    assert merge_types(paris, utc) == paris


def test_nullable_where_either_is() -> None:
    def struct(*, required: bool) -> pa.DataType:
        return pa.struct([pa.field("a", pa.list_(pa.field("item", I8, not required)), not required)])

    assert merge_types(struct(required=True), struct(required=True)) == struct(required=True)
    assert merge_types(struct(required=True), struct(required=False)) == struct(required=False)
    missing = merge_types(struct(required=True), pa.struct([]))
    assert missing is not None
    assert missing.field("a").nullable


LEAVES = [
    *(pa.null(), pa.bool_(), I8, I16, I32, I64, U8, U16, U32, U64, F16, F32, F64),
    *(pa.decimal32(5, 2), pa.decimal64(12, 0), dec(5, 4), dec(30, 2), pa.decimal256(40, 9), dec(4, -2)),
    *(S, LS, SV, B, LB, BV, pa.binary(4), pa.binary(5), pa.uuid(), pa.date32(), pa.date64()),
    *(dic(I8, S), dic(U8, LS), dic(U64, SV), dic(I16, I8), pa.run_end_encoded(I32, S)),
    *(pa.timestamp("s"), pa.timestamp("ns"), pa.timestamp("s", "UTC"), pa.timestamp("us", "Asia/Tokyo")),
    *(pa.time32("s"), pa.time64("ns"), pa.duration("s"), pa.duration("ns")),
]
_LISTS = [
    pa.list_,
    pa.large_list,
    pa.list_view,
    pa.large_list_view,
    lambda item: pa.list_(item, 2),
    lambda item: pa.list_(item, 3),
]


def _nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    field = st.builds(
        lambda name, type, nullable: pa.field(name, type, nullable or pa.types.is_null(type)),
        st.sampled_from("abc"),
        inner,
        st.booleans(),
    )
    return st.one_of(
        st.builds(lambda make, item: make(item), st.sampled_from(_LISTS), inner),
        st.lists(field, max_size=3, unique_by=lambda f: f.name).map(pa.struct),
        st.builds(pa.map_, st.sampled_from([S, LS]), inner),
    )


TYPES = st.recursive(st.sampled_from(LEAVES), _nested, max_leaves=4)


def plain(type: pa.DataType | None) -> object:
    """A type but for the order of its fields and the name of its zone."""
    if type is None:
        return None
    if pa.types.is_timestamp(type):
        return "timestamp", type.unit, type.tz is None
    if pa.types.is_struct(type):
        return "struct", frozenset((f.name, f.nullable, plain(f.type)) for f in type.fields)
    if pa.types.is_map(type):
        return "map", plain(type.key_type), plain(type.item_type)
    if pa.types.is_nested(type) and not pa.types.is_run_end_encoded(type):
        size = type.list_size if pa.types.is_fixed_size_list(type) else None
        return type.id, size, type.value_field.nullable, plain(type.value_type)
    return type


class TestLaws:
    @given(TYPES)
    def test_idempotent(self, a: pa.DataType) -> None:
        assert merge_types(a, a) == a

    @given(TYPES, TYPES)
    def test_commutative(self, a: pa.DataType, b: pa.DataType) -> None:
        merged = merge_types(a, b)
        assert plain(merged) == plain(merge_types(b, a))
        if merged is not None:
            assert plain(merge_types(merged, a)) == plain(merge_types(merged, b)) == plain(merged)

    @given(TYPES, TYPES, TYPES)
    def test_associative(self, a: pa.DataType, b: pa.DataType, c: pa.DataType) -> None:
        self._associates(a, b, c)

    def test_associative_on_all_leaves(self) -> None:
        mates = {b: [a for a in LEAVES if merge_types(a, b) is not None] for b in LEAVES}
        for b, around in mates.items():
            for a, c in itertools.product(around, around):
                self._associates(a, b, c)

    @staticmethod
    def _associates(a: pa.DataType, b: pa.DataType, c: pa.DataType) -> None:
        one, other = merge_types(a, b), merge_types(b, c)
        left = None if one is None else merge_types(one, c)
        right = None if other is None else merge_types(a, other)
        if left is not None and right is not None:
            assert plain(left) == plain(right)


class TestSchemas:
    def test_none(self) -> None:
        assert merge_schemas([]) == pa.schema([])

    def test_one_without_metadata(self) -> None:
        inner = pa.field("x", I8, metadata={"PARQUET:field_id": "2"})
        types = [pa.struct([inner]), pa.list_(inner), pa.map_(S, inner), pa.list_(inner, 2)]
        given = pa.schema(
            [pa.field(f"c{i}", t, metadata={"k": "v"}) for i, t in enumerate(types)],
            metadata={"pandas": "{}"},
        )
        merged = merge_schemas([("f", given)])
        bare = pa.field("x", I8)
        assert merged.metadata is None
        assert merged.equals(
            pa.schema(
                [
                    ("c0", pa.struct([bare])),
                    ("c1", pa.list_(bare)),
                    ("c2", pa.map_(S, bare)),
                    ("c3", pa.list_(bare, 2)),
                ]
            ),
            check_metadata=True,
        )

    def test_order_of_first_appearance(self) -> None:
        merged = merge_schemas(
            [
                ("1", pa.schema([("b", I8), ("a", S)])),
                ("2", pa.schema([("c", F32), ("a", S), ("b", I32)])),
                ("3", pa.schema([("d", B), ("b", I16)])),
            ]
        )
        assert merged == pa.schema([("b", I32), ("a", S), ("c", F32), ("d", B)])

    def test_missing_columns_are_nullable(self) -> None:
        def required(*names: str) -> pa.Schema:
            return pa.schema([pa.field(name, I8, nullable=False) for name in names])

        merged = merge_schemas(
            [("1", required("a", "b")), ("2", required("a", "c")), ("3", required("a", "c"))]
        )
        assert [(f.name, f.nullable) for f in merged] == [("a", False), ("b", True), ("c", True)]

    def test_conflict_names_the_place_and_both_files(self) -> None:
        def schema(type: pa.DataType) -> pa.Schema:
            return pa.schema([("id", I64), ("a", pa.struct([("b", pa.list_(pa.struct([("c", type)])))]))])

        with pytest.raises(SchemaError) as caught:
            merge_schemas([("1.parquet", pa.schema([])), ("2.parquet", schema(I8)), ("3.parquet", schema(S))])
        error = caught.value
        assert isinstance(error, FileError)
        assert (error.path, error.column) == ("3.parquet", "a.b.element.c")
        assert "2.parquet" in str(error)
        assert "int8" in str(error)
        assert "string" in str(error)
        assert error.hint

    def test_conflict_blames_a_file_that_alone_does_not_fit(self) -> None:
        with pytest.raises(SchemaError, match=r"3, column x: column is double here, but int64 in 2"):
            merge_schemas((str(i + 1), pa.schema([("x", t)])) for i, t in enumerate([I8, I64, F64]))

    def test_conflict_of_three(self) -> None:
        with pytest.raises(SchemaError, match=r"3, column x: column is double here, but int64 in 1"):
            merge_schemas((str(i + 1), pa.schema([("x", t)])) for i, t in enumerate([U32, I32, F64]))

    def test_map_key_and_value_are_named(self) -> None:
        with pytest.raises(SchemaError) as caught:
            merge_schemas(
                [("1", pa.schema([("m", pa.map_(S, I8))])), ("2", pa.schema([("m", pa.map_(S, S))]))]
            )
        assert caught.value.column == "m.value"

    def test_a_name_twice(self) -> None:
        twice = pa.schema([("a", I8), ("a", S)])
        assert merge_schemas([("1", twice), ("2", twice)]) == twice
        for files in (["1", "2"], ["2", "1"]):
            schemas = {"1": twice, "2": pa.schema([("b", I8)])}
            with pytest.raises(SchemaError, match=r"1, column a: two columns .* matched with 2"):
                merge_schemas((name, schemas[name]) for name in files)

    def test_names_differing_in_case_are_two_columns(self) -> None:
        merged = merge_schemas([("1", pa.schema([("a", I8)])), ("2", pa.schema([("A", S)]))])
        assert merged.names == ["a", "A"]

    def test_equal_schemas_are_fast(self) -> None:
        schemas = [(str(i), pa.schema([("a", I8), ("b", S)], metadata={"n": str(i)})) for i in range(10_000)]
        assert merge_schemas(schemas) == schemas[0][1]
        # Nothing is done for each of them but a comparison by pyarrow.
        assert 1 <= calls(lambda: merge_schemas(schemas)) < 100

    def test_alternating_schemas_are_fast(self) -> None:
        kinds = [pa.schema([("a", t), *((f"c{i}", I64) for i in range(50))]) for t in (I8, I16, I32)]
        schemas = [(str(i), kinds[i % 3]) for i in range(10_000)]
        assert merge_schemas(schemas) == kinds[2]
        # Two for each of them, and not one for each of their columns.
        assert 10_000 < calls(lambda: merge_schemas(schemas)) < 25_000


def _required_intervals(path: Path) -> None:
    """A file of required columns with two types, as in one of Apache Drill's: INTERVAL, and always NULL."""
    inner = pa.field("span", pa.binary(12), nullable=False)
    items, spans = (
        pa.array([b"\1" * 12] * 3, pa.binary(12)),
        pa.field("list", pa.list_(inner), nullable=False),
    )
    fields = [pa.field("id", pa.int64()), inner, pa.field("at", pa.struct([inner]), nullable=False), spans]
    columns = [
        pa.array([1, 2, 3]),
        items,
        pa.StructArray.from_arrays([items], fields=[inner]),
        pa.ListArray.from_arrays([0, 1, 2, 3], items, type=spans.type),
    ]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns, schema=pa.schema(fields)), sink, store_schema=False, row_group_size=2)
    data = sink.getvalue().to_pybytes()
    length = int.from_bytes(data[-8:-4], "little")
    # The end of a required schema element of 12 bytes, then with the types INTERVAL (converted) and NULL.
    plain = re.compile(rb"(\x15\x0e\x15\x18\x15\x00\x18.span|\x15\x0e\x15\x18\x15\x00\x18.element)\x00")
    footer, count = plain.subn(
        lambda found: found[1] + b"\x25\x2a\x4c\xbc\x00\x00\x00", data[-8 - length : -8]
    )
    assert count == 3
    path.write_bytes(data[: -8 - length] + footer + len(footer).to_bytes(4, "little") + b"PAR1")


def test_required_columns_that_are_read_as_null(tmp_path: Path) -> None:
    _required_intervals(tmp_path / "a.parquet")
    _required_intervals(tmp_path / "b.parquet")
    pq.write_table(pa.table({"id": [4]}), tmp_path / "c.parquet")
    assert not pq.read_schema(tmp_path / "a.parquet").field("span").nullable
    for indexed in (False, True):
        if indexed:
            sk.open(tmp_path).index.build(engine="local")
        for where, skipping in (("span IS NULL", True), ("span IS NULL", False), (None, True)):
            table = sk.open(tmp_path).scan(where, skipping=skipping).to_arrow()
            assert table.schema.field("span") == pa.field("span", pa.null())
            assert table["id"].to_pylist() == [1, 2, 3, 1, 2, 3, 4]
            assert table["span"].null_count == 7
        lake = sk.open(tmp_path)
        assert lake.scan("span IS NOT NULL").count() == 0
        rows = lake.scan("id = 2", columns=["at", "list"]).to_arrow().to_pylist()
        assert rows == [{"at": {"span": None}, "list": [None]}] * 2
        found = lake.scan().aggregate("count(span)", "count(*)").to_pylist()
        assert found == [{"count(span)": 0, "count": 7}]
