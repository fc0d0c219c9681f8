from typing import Any

import pyarrow as pa
import pytest

from skipstone.parquet.metadata import parse_footer, read_footer
from skipstone.parquet.schema import Logical, LogicalKind, PhysicalType, Repetition, leaf_columns
from skipstone.parquet.structs import (
    ColumnOrder,
    DecimalType,
    Empty,
    IntType,
    LogicalType,
    SchemaElement,
    TimeType,
    TimeUnit,
)
from skipstone.store.source import open_source

K = LogicalKind
P = PhysicalType


def make(cls: Any, **fields: Any) -> Any:
    made = cls()
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def leaf(orders: Any = None, **fields: Any) -> Any:
    root = make(SchemaElement, name=b"root", num_children=1)
    element = make(SchemaElement, **{"name": b"a", "repetition_type": 1, **fields})
    return leaf_columns([root, element], orders, "f")[0]


def logical(**variant: Any) -> Any:
    return make(LogicalType, **variant)


def time(unit: str, utc: bool = True) -> Any:
    return make(TimeType, isAdjustedToUTC=utc, unit=make(TimeUnit, **{unit: Empty()}))


def test_the_types_of_a_pyarrow_file(table: pa.Table, write: Any) -> None:
    leaves = {leaf.path: leaf for leaf in read_footer(open_source(write(table))).leaves}
    assert {path: (item.physical, item.logical) for path, item in leaves.items()} == {
        ("id",): (P.INT64, Logical(K.NONE)),
        ("small",): (P.INT32, Logical(K.INTEGER, bits=8)),
        ("unsigned",): (P.INT32, Logical(K.INTEGER, bits=32, signed=False)),
        ("name",): (P.BYTE_ARRAY, Logical(K.STRING)),
        ("score",): (P.DOUBLE, Logical(K.NONE)),
        ("price",): (P.FIXED_LEN_BYTE_ARRAY, Logical(K.DECIMAL, precision=12, scale=2)),
        ("at",): (P.INT64, Logical(K.TIMESTAMP, unit="us")),
        ("utc",): (P.INT64, Logical(K.TIMESTAMP, unit="ns", utc=True)),
        ("day",): (P.INT32, Logical(K.DATE)),
        ("time",): (P.INT32, Logical(K.TIME, unit="ms")),
        ("flag",): (P.BOOLEAN, Logical(K.NONE)),
        ("half",): (P.FIXED_LEN_BYTE_ARRAY, Logical(K.FLOAT16)),
        ("raw",): (P.FIXED_LEN_BYTE_ARRAY, Logical(K.NONE)),
        ("tags", "list", "element"): (P.BYTE_ARRAY, Logical(K.STRING)),
        ("place", "x"): (P.INT64, Logical(K.NONE)),
        ("place", "y", "z"): (P.INT32, Logical(K.NULL)),
        ("counts", "key_value", "key"): (P.BYTE_ARRAY, Logical(K.STRING)),
        ("counts", "key_value", "value"): (P.INT32, Logical(K.NONE)),
        ("a.b",): (P.INT32, Logical(K.NONE)),
    }
    key = leaves["counts", "key_value", "key"]
    assert key.repetitions == (Repetition.OPTIONAL, Repetition.REPEATED, Repetition.REQUIRED)
    assert (key.max_definition, key.max_repetition, key.required) == (2, 1, False)
    assert {item.column_order for item in leaves.values()} == {"type_defined"}


def test_field_ids_and_required_columns(write: Any) -> None:
    field = pa.field("a", pa.int32(), nullable=False, metadata={"PARQUET:field_id": "7"})
    metadata = read_footer(open_source(write(pa.table([[1]], schema=pa.schema([field])))))
    assert (metadata.leaves[0].field_id, metadata.leaves[0].required) == (7, True)


@pytest.mark.parametrize(
    ("converted", "physical", "expected"),
    [
        (0, 6, Logical(K.STRING)),
        (4, 6, Logical(K.ENUM)),
        (5, 2, Logical(K.DECIMAL, precision=9, scale=2)),
        (6, 1, Logical(K.DATE)),
        (7, 1, Logical(K.TIME, unit="ms", utc=True, legacy=True)),
        (8, 2, Logical(K.TIME, unit="us", utc=True, legacy=True)),
        (9, 2, Logical(K.TIMESTAMP, unit="ms", utc=True, legacy=True)),
        (10, 2, Logical(K.TIMESTAMP, unit="us", utc=True, legacy=True)),
        (11, 1, Logical(K.INTEGER, bits=8, signed=False)),
        (14, 2, Logical(K.INTEGER, bits=64, signed=False)),
        (15, 1, Logical(K.INTEGER, bits=8)),
        (18, 2, Logical(K.INTEGER, bits=64)),
        (19, 6, Logical(K.JSON)),
        (20, 6, Logical(K.BSON)),
        (22, 6, Logical(K.UNKNOWN)),
        (-1, 6, Logical(K.UNKNOWN)),
        (0, 1, Logical(K.UNKNOWN)),
    ],
)
def test_legacy_converted_types(converted: int, physical: int, expected: Logical) -> None:
    assert leaf(type=physical, converted_type=converted, precision=9, scale=2).logical == expected


@pytest.mark.parametrize(
    ("variant", "physical", "length", "kind"),
    [
        ({"UUID": Empty()}, 7, 16, K.UUID),
        ({"UUID": Empty()}, 7, 15, K.UNKNOWN),
        ({"FLOAT16": Empty()}, 7, 2, K.FLOAT16),
        ({"FLOAT16": Empty()}, 4, None, K.UNKNOWN),
        ({"STRING": Empty()}, 1, None, K.UNKNOWN),
        ({"GEOMETRY": Empty()}, 6, None, K.GEOMETRY),
        ({"NULL": Empty()}, 1, None, K.NULL),
        ({}, 6, None, K.UNKNOWN),
        ({"DECIMAL": make(DecimalType, precision=5, scale=6)}, 1, None, K.UNKNOWN),
        ({"DECIMAL": make(DecimalType, precision=0, scale=0)}, 1, None, K.UNKNOWN),
        ({"DECIMAL": make(DecimalType, precision=5, scale=-1)}, 1, None, K.UNKNOWN),
        ({"INTEGER": make(IntType, bitWidth=64, isSigned=True)}, 1, None, K.UNKNOWN),
        ({"INTEGER": make(IntType, bitWidth=7, isSigned=True)}, 1, None, K.UNKNOWN),
        ({"TIME": time("MILLIS")}, 2, None, K.UNKNOWN),
        ({"TIMESTAMP": time("NANOS")}, 1, None, K.UNKNOWN),
        ({"TIMESTAMP": make(TimeType, isAdjustedToUTC=True)}, 2, None, K.UNKNOWN),
        ({"TIMESTAMP": make(TimeType, unit=TimeUnit())}, 2, None, K.UNKNOWN),
    ],
)
def test_a_logical_type_that_does_not_fit_its_storage_is_unknown(
    variant: dict[str, Any], physical: int, length: int | None, kind: LogicalKind
) -> None:
    assert leaf(type=physical, type_length=length, logicalType=logical(**variant)).logical.kind is kind


@pytest.mark.parametrize(
    ("orders", "physical", "expected"),
    [
        (None, 5, "undefined"),
        ([], 5, "unknown"),
        ([make(ColumnOrder)], 5, "unknown"),
        ([make(ColumnOrder, TYPE_ORDER=Empty())], 5, "type_defined"),
        ([make(ColumnOrder, IEEE_754_TOTAL_ORDER=Empty())], 5, "ieee754_total"),
        ([make(ColumnOrder, IEEE_754_TOTAL_ORDER=Empty())], 1, "unknown"),
        ([make(ColumnOrder, INT96_TIMESTAMP_ORDER=Empty())], 3, "int96_timestamp"),
        ([make(ColumnOrder, INT96_TIMESTAMP_ORDER=Empty())], 2, "unknown"),
    ],
)
def test_column_orders(orders: Any, physical: int, expected: str) -> None:
    assert leaf(orders, type=physical).column_order == expected


def test_a_group_without_children_has_no_leaf() -> None:
    root = make(SchemaElement, name=b"root", num_children=2)
    group = make(SchemaElement, name=b"g", repetition_type=1, num_children=0)
    last = make(SchemaElement, name=b"a", repetition_type=0, type=1)
    assert [leaf.path for leaf in leaf_columns([root, group, last], None, "f")] == [("a",)]


def test_parse_footer_takes_the_bare_footer(table: pa.Table, write: Any) -> None:
    data = write(table)
    length = int.from_bytes(data[-8:-4], "little")
    assert parse_footer(data[-8 - length : -8], "f", None).num_rows == 3_000
