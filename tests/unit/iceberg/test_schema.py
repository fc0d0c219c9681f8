"""Types, defaults and paths of a table's columns."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    GeometryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from skipstone.errors import SchemaError
from skipstone.iceberg.schema import FieldNaming, arrow_schema, arrow_type, defaults, field_paths
from tests.unit.iceberg._files import stored

TYPES: dict[str, tuple[IcebergType, pa.DataType]] = {
    "flag": (BooleanType(), pa.bool_()),
    "i": (IntegerType(), pa.int32()),
    "l": (LongType(), pa.int64()),
    "f": (FloatType(), pa.float32()),
    "d": (DoubleType(), pa.float64()),
    "day": (DateType(), pa.date32()),
    "time": (TimeType(), pa.time64("us")),
    "ts": (TimestampType(), pa.timestamp("us")),
    "tz": (TimestamptzType(), pa.timestamp("us", "UTC")),
    "ns": (TimestampNanoType(), pa.timestamp("ns")),
    "zns": (TimestamptzNanoType(), pa.timestamp("ns", "UTC")),
    "s": (StringType(), pa.string()),
    "b": (BinaryType(), pa.binary()),
    "u": (UUIDType(), pa.uuid()),
    "fix": (FixedType(3), pa.binary(3)),
    "n": (DecimalType(9, 2), pa.decimal128(9, 2)),
    "w": (DecimalType(38, 10), pa.decimal128(38, 10)),
    "list": (ListType(101, StringType(), element_required=False), pa.list_(pa.string())),
    "map": (MapType(102, StringType(), 103, LongType()), None),
    "st": (StructType(NestedField(104, "x", LongType(), required=True)), None),
}
TYPES["map"] = (
    MapType(102, StringType(), 103, LongType(), value_required=False),
    pa.map_(pa.string(), pa.int64()),
)
TYPES["st"] = (TYPES["st"][0], pa.struct([pa.field("x", pa.int64(), nullable=False)]))


def test_types_are_those_that_files_are_read_as() -> None:
    schema = Schema(*(NestedField(n + 1, name, type) for n, (name, (type, _)) in enumerate(TYPES.items())))
    lake = arrow_schema(schema)
    assert {one.name: one.type for one in lake} == {name: type for name, (_, type) in TYPES.items()}
    # As pyiceberg writes them: with large strings and UUIDs in the Arrow schema that the file keeps.
    table = schema_to_pyarrow(schema).empty_table()
    assert pa.schema(list(FieldNaming.of(schema).apply(stored(table)).arrow_schema)).equals(lake)


def test_required_columns_and_types_of_version_three() -> None:
    schema = Schema(NestedField(1, "a", LongType(), required=True), NestedField(2, "n", UnknownType()))
    assert arrow_schema(schema) == pa.schema([pa.field("a", pa.int64(), nullable=False), ("n", pa.null())])
    assert arrow_schema(Schema(NestedField(1, "g", GeometryType()))).field("g").type == pa.binary()


def test_a_type_that_cannot_be_read_names_its_column() -> None:
    class Variant(IcebergType):
        """Not known here."""

    with pytest.raises(SchemaError, match=r"column s\.v: unsupported type Variant\(\)"):
        arrow_type(Variant(), ("s", "v"))


def test_defaults_are_scalars_of_the_columns_types() -> None:
    number = uuid.uuid4()
    item = StructType(NestedField(6, "x", DecimalType(9, 2), initial_default=decimal.Decimal("1.5")))
    schema = Schema(
        NestedField(1, "u", UUIDType(), initial_default=number),
        NestedField(2, "day", DateType(), initial_default=dt.date(2020, 1, 1)),
        NestedField(3, "tz", TimestamptzType(), initial_default=dt.datetime(2020, 1, 1, tzinfo=dt.UTC)),
        NestedField(4, "l", ListType(5, item)),
        NestedField(7, "none", LongType()),
    )
    found = defaults(schema)
    assert found.keys() == {("u",), ("day",), ("tz",), ("l", "element", "x")}
    assert found["u",].type == pa.uuid()
    assert found["u",].as_py() == number
    assert found["day",] == pa.scalar(dt.date(2020, 1, 1), pa.date32())
    assert found["tz",] == pa.scalar(1_577_836_800_000_000, pa.timestamp("us", "UTC"))
    assert found["l", "element", "x"] == pa.scalar(decimal.Decimal("1.50"), pa.decimal128(9, 2))


def test_paths_of_leaves_leave_lists_and_maps_out() -> None:
    schema = Schema(
        NestedField(1, "a", LongType()),
        NestedField(
            2, "s", StructType(NestedField(3, "x", LongType()), NestedField(4, "l", ListType(5, LongType())))
        ),
        NestedField(6, "m", MapType(7, StringType(), 8, LongType())),
    )
    assert field_paths(schema) == {1: ("a",), 3: ("s", "x")}
