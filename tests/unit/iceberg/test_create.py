"""Partition fields and sort orders as text, and Arrow schemas as Iceberg's."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.table.sorting import NullOrder, SortDirection

from skipstone.errors import SchemaError, SkipstoneError, TypeMismatchError, UnknownColumnError, UsageError
from skipstone.iceberg.create import iceberg_schema, parse_transform, partition_spec, sort_order

ARROW = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("ts", pa.timestamp("us")),
        ("day", pa.date32()),
        ("s", pa.string()),
        ("f", pa.float64()),
        ("b", pa.bool_()),
        ("dec", pa.decimal128(9, 2)),
        ("st", pa.struct([("a", pa.int32()), ("inner", pa.struct([("z", pa.string())]))])),
        ("items", pa.list_(pa.int32())),
        ("id_hour", pa.int32()),
    ]
)
SCHEMA = iceberg_schema(ARROW)


@pytest.mark.parametrize(
    ("text", "transform", "name"),
    [
        ("id", "identity", "id"),
        (" id ", "identity", "id"),
        ("identity(s)", "identity", "s"),
        ("bucket(16, id)", "bucket[16]", "id_bucket"),
        ("bucket(s, 4)", "bucket[4]", "s_bucket"),
        ("BUCKET( 4 ,dec )", "bucket[4]", "dec_bucket"),
        ("truncate(3, s)", "truncate[3]", "s_truncate"),
        ("truncate(10, id)", "truncate[10]", "id_truncate"),
        ("year(ts)", "year", "ts_year"),
        ("years(day)", "year", "day_year"),
        ("month(ts)", "month", "ts_month"),
        ("months(day)", "month", "day_month"),
        ("day(ts)", "day", "ts_day"),
        ("days(day)", "day", "day_day"),
        ("date(ts)", "day", "ts_day"),
        ("hour(ts)", "hour", "ts_hour"),
        ("hours(ts)", "hour", "ts_hour"),
        ("void(f)", "void", "f_void"),
        ("st.a", "identity", "st_a"),
        ("bucket(8, st.inner.z)", "bucket[8]", "st_inner_z_bucket"),
    ],
)
def test_every_transform_can_be_written(text: str, transform: str, name: str) -> None:
    (field,) = partition_spec([text], SCHEMA).fields
    assert (str(field.transform), field.name, field.field_id) == (transform, name, 1000)
    column = parse_transform(text)[1]
    assert field.source_id == SCHEMA.find_field(column).field_id


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", UnknownColumnError),
        ("nope", UnknownColumnError),
        ("day(nope)", UnknownColumnError),
        ("items.element", UnknownColumnError),
        ("nope(id)", UsageError),
        ("bucket(id)", UsageError),
        ("bucket(0, id)", UsageError),
        ("bucket(-1, id)", UsageError),
        ("bucket(4, id, 8)", UsageError),
        ("bucket(99999999999, id)", UsageError),
        ("day(3, ts)", UsageError),
        ("day(ts", UsageError),
        ("day(day(ts))", UsageError),
        (5, UsageError),
        (None, UsageError),
        (("day", "ts"), UsageError),
        ("day(id)", TypeMismatchError),
        ("hour(day)", TypeMismatchError),
        ("year(s)", TypeMismatchError),
        ("truncate(2, f)", TypeMismatchError),
        ("bucket(4, f)", TypeMismatchError),
        ("bucket(4, b)", TypeMismatchError),
        ("items", TypeMismatchError),
        ("st", TypeMismatchError),
    ],
)
def test_what_is_no_partition_field_is_refused(text: object, error: type[SkipstoneError]) -> None:
    with pytest.raises(error) as refused:
        partition_spec([text], SCHEMA)  # type: ignore[list-item]
    assert refused.value.hint


@pytest.mark.parametrize(
    "texts",
    [
        ["day(ts)", "days(ts)"],
        ["bucket(4, id)", "bucket(8, id)"],
        ["id", "identity(id)"],
        ["hour(ts)", "st.a", "st.a"],
    ],
)
def test_two_fields_of_one_name_are_refused(texts: list[str]) -> None:
    with pytest.raises(UsageError, match="already used"):
        partition_spec(texts, SCHEMA)


def test_a_field_is_not_called_like_another_column() -> None:
    schema = iceberg_schema(pa.schema([("id", pa.int64()), ("id_bucket", pa.int32())]))
    with pytest.raises(UsageError, match="'id_bucket'"):
        partition_spec(["bucket(4, id)"], schema)
    assert [field.name for field in partition_spec(["id_bucket", "id"], schema).fields] == ["id_bucket", "id"]
    assert [field.field_id for field in partition_spec(["id_bucket", "id"], schema).fields] == [1000, 1001]


@pytest.mark.parametrize("terms", ["day(ts)", None, 5])
def test_a_list_is_wanted(terms: object) -> None:
    for make in (partition_spec, sort_order):
        with pytest.raises(UsageError, match="pass a list"):
            make(terms, SCHEMA)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "transform", "direction", "nulls"),
    [
        ("id", "identity", "asc", "first"),
        ("id desc", "identity", "desc", "last"),
        ("id ASC NULLS LAST", "identity", "asc", "last"),
        ("bucket(4, id) desc nulls first", "bucket[4]", "desc", "first"),
        (" day(ts)  desc ", "day", "desc", "last"),
        ("st.a nulls last", "identity", "asc", "last"),
    ],
)
def test_sort_orders(text: str, transform: str, direction: str, nulls: str) -> None:
    (field,) = sort_order([text], SCHEMA).fields
    assert str(field.transform) == transform
    assert field.direction is (SortDirection.DESC if direction == "desc" else SortDirection.ASC)
    assert field.null_order is (NullOrder.NULLS_FIRST if nulls == "first" else NullOrder.NULLS_LAST)


@pytest.mark.parametrize("text", ["", " ", "id sideways", "nope desc", "items", "st", "day(id)", 5])
def test_what_is_no_sort_order_is_refused(text: object) -> None:
    with pytest.raises(SkipstoneError) as refused:
        sort_order([text], SCHEMA)  # type: ignore[list-item]
    assert refused.value.hint


def test_a_schema_gets_field_ids_and_keeps_what_is_required() -> None:
    ids = [field.field_id for field in SCHEMA.fields]
    assert len({*ids}) == len(ids) == len(ARROW)
    assert SCHEMA.find_field("id").required
    assert not SCHEMA.find_field("ts").required


def test_how_values_are_stored_is_not_their_type(caplog: pytest.LogCaptureFixture) -> None:
    coded = pa.schema([("s", pa.dictionary(pa.int32(), pa.large_string())), ("v", pa.string_view())])
    assert [str(field.field_type) for field in iceberg_schema(coded).fields] == ["string", "string"]
    assert not caplog.records


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([("x", pa.duration("s"))]),
        pa.schema([("x", pa.decimal256(50, 2))]),
        pa.schema([("x", pa.timestamp("us", "Europe/Berlin"))]),
        pa.schema([("x", pa.int32()), ("x", pa.int32())]),
        pa.schema([("l", pa.list_(pa.month_day_nano_interval()))]),
    ],
)
def test_what_iceberg_has_no_type_for_is_refused(schema: pa.Schema) -> None:
    with pytest.raises(SchemaError, match="can't convert the schema to Iceberg") as refused:
        iceberg_schema(schema)
    assert refused.value.hint
