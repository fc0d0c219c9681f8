"""Spark types of columns, the same as from Spark's own Parquet reader, and conversion of Arrow data to them.

All columns are nullable, and types that Spark's reader rejects are errors. Columns of a table have the types
of Iceberg's reader for Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

import pyarrow as pa
from pyspark.sql import types as st
from pyspark.sql.pandas.types import to_arrow_schema

from skipstone.core.arrays import unsliced
from skipstone.core.domain.keys import storage_type
from skipstone.core.plain import type_name
from skipstone.engine.arrow_types import LISTS, MOST_DIGITS, convert
from skipstone.errors import SchemaError

# Spark stores the schema of the data frame in the files it writes, and trusts it when it reads them.
_ROW_METADATA = b"org.apache.spark.sql.parquet.row.metadata"


def spark_schema(
    read: pa.Schema,
    query: pa.Schema,
    stored: st.StructType | None = None,
    partition: Sequence[str] = (),
    *,
    table: bool = False,
) -> st.StructType:
    """Return the Spark schema of columns that Skipstone reads as ``read``.

    ``query`` has the types that predicates are bound to, where old timestamps are instants; ``stored`` is the
    schema that Spark has stored in the files, which distinguishes intervals from numbers; ``partition`` names
    the partition columns of directories. With ``table`` types are those of Iceberg's reader: a UUID is a
    string, and a column of unknown type has no type.
    """
    types = {} if stored is None else {field.name: field.dataType for field in stored.fields}
    fields = []
    for field in read:
        if field.name in partition:
            empty = pa.types.is_null(field.type)
            type = st.NullType() if empty else _spark_type(field.type, field.type, field.name, None)
        else:
            bound = query.field(field.name).type
            type = _spark_type(field.type, bound, field.name, types.get(field.name), table=table)
        fields.append(st.StructField(field.name, type))
    return st.StructType(fields)


def is_text_in_spark(schema: pa.Schema, path: Sequence[str]) -> bool:
    """Whether a table's column has UUIDs, which are strings in Spark and compared as such."""
    type: pa.Schema | pa.DataType = schema
    for name in path:
        at = type.get_field_index(name) if isinstance(type, pa.Schema | pa.StructType) else -1
        if at < 0:
            return False
        type = type.field(at).type
    return isinstance(type, pa.UuidType)


def schema_in_footers(footers: Iterable[Mapping[bytes, bytes]]) -> st.StructType | None:
    """Return the first schema that Spark has stored in the files' key-value metadata."""
    for footer in footers:
        text = footer.get(_ROW_METADATA)
        if text is not None:
            try:
                return st.StructType.fromJson(_loads(text))
            except (ValueError, KeyError, TypeError):
                continue
    return None


def arrow_schema(schema: st.StructType) -> pa.Schema:
    """Return the Arrow schema that Spark expects for its own."""
    arrow: pa.Schema = to_arrow_schema(schema, timezone="UTC")
    return arrow


def to_spark_batch(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """Convert a batch to the types of :func:`arrow_schema`."""
    if batch.schema.equals(target):
        return batch
    arrays = [convert(array, field.type) for array, field in zip(batch.columns, target, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=target)


def to_spark_table(table: pa.Table, target: pa.Schema) -> pa.Table:
    """Convert a table to the types of :func:`arrow_schema`, for ``createDataFrame``."""
    batches = [to_spark_batch(batch, target) for batch in table.to_batches()]
    # PySpark flattens nested columns, which fails for sliced ones.
    whole = [[unsliced(a) if pa.types.is_nested(a.type) else a for a in batch.columns] for batch in batches]
    return pa.Table.from_batches([pa.RecordBatch.from_arrays(a, schema=target) for a in whole], target)


# -- types -------------------------------------------------------------------------------------

_SAME: Mapping[pa.DataType, st.DataType] = MappingProxyType(
    {
        pa.bool_(): st.BooleanType(),
        pa.int8(): st.ByteType(),
        pa.int16(): st.ShortType(),
        pa.int32(): st.IntegerType(),
        pa.int64(): st.LongType(),
        pa.uint8(): st.ShortType(),
        pa.uint16(): st.IntegerType(),
        pa.uint32(): st.LongType(),
        pa.uint64(): st.DecimalType(20, 0),
        pa.float32(): st.FloatType(),
        pa.float64(): st.DoubleType(),
        pa.string(): st.StringType(),
        pa.large_string(): st.StringType(),
        pa.string_view(): st.StringType(),
        pa.binary(): st.BinaryType(),
        pa.large_binary(): st.BinaryType(),
        pa.binary_view(): st.BinaryType(),
        pa.date32(): st.DateType(),
        pa.date64(): st.DateType(),
        # Stored as an INT32 column of NULLs.
        pa.null(): st.IntegerType(),
    }
)
_OF_TABLES: Mapping[pa.DataType, st.DataType] = MappingProxyType(
    {pa.uuid(): st.StringType(), pa.null(): st.NullType()}
)
# Types that only Spark's stored schema has, and that have no Arrow equivalent.
_SPARK_ONLY: tuple[tuple[type[st.DataType], str], ...] = (
    (st.YearMonthIntervalType, "year-month intervals"),
    (st.VariantType, "variants"),
)
_REFUSED: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_float16, "half-precision floats"),
    (pa.types.is_time, "times of day"),
    (pa.types.is_decimal, f"decimals with more than {MOST_DIGITS} digits"),
)


def _spark_type(
    type: pa.DataType, bound: pa.DataType, column: str, stored: st.DataType | None, *, table: bool = False
) -> st.DataType:
    if isinstance(stored, st.DayTimeIntervalType):
        return stored
    for kind, words in _SPARK_ONLY:
        if isinstance(stored, kind):
            hint = "exclude the column with columns=, or read it with spark.read.parquet"
            raise SchemaError(f"Arrow does not support {words}", column=column, hint=hint)
    if isinstance(type, pa.UuidType) and not table:
        raise _unsupported(column, "UUIDs")
    plain, meant = storage_type(type), storage_type(bound)
    same = (_OF_TABLES.get(type) if table else None) or _SAME.get(plain)
    if same is not None:
        return same
    if pa.types.is_timestamp(plain):
        return _timestamp(plain, meant, column)
    if pa.types.is_decimal(plain) and plain.precision <= MOST_DIGITS:
        return st.DecimalType(plain.precision, plain.scale)
    if pa.types.is_fixed_size_binary(plain):
        return st.BinaryType()
    if pa.types.is_duration(plain):
        return st.LongType()  # a plain INT64 in the file
    nested = _nested(plain, meant, column, stored, table)
    if nested is not None:
        return nested
    for test, words in _REFUSED:
        if test(plain):
            raise _unsupported(column, words)
    raise _unsupported(column, f"the type {type_name(type)}")


def _timestamp(plain: pa.DataType, meant: pa.DataType, column: str) -> st.DataType:
    if plain.tz is None and getattr(meant, "tz", None) is not None:
        return st.TimestampType()  # INT96, or the deprecated TIMESTAMP_MILLIS
    if plain.unit == "ns":
        raise _unsupported(column, "nanoseconds")
    return st.TimestampType() if plain.tz is not None else st.TimestampNTZType()


def _nested(
    plain: pa.DataType, meant: pa.DataType, column: str, stored: st.DataType | None, table: bool
) -> st.DataType | None:
    def inner(name: str, type: pa.DataType, bound: pa.DataType, stored: st.DataType | None) -> st.DataType:
        return _spark_type(type, bound, f"{column}.{name}", stored, table=table)

    if pa.types.is_struct(plain):
        types = {f.name: f.dataType for f in stored.fields} if isinstance(stored, st.StructType) else {}
        # A projected struct has fewer fields than the one that predicates are bound to.
        triples = [(f, meant.field(f.name).type, types.get(f.name)) for f in plain.fields]
        return st.StructType([st.StructField(f.name, inner(f.name, f.type, m, k)) for f, m, k in triples])
    if pa.types.is_map(plain):
        pair = (stored.keyType, stored.valueType) if isinstance(stored, st.MapType) else (None, None)
        key = inner("key", plain.key_type, meant.key_type, pair[0])
        return st.MapType(key, inner("value", plain.item_type, meant.item_type, pair[1]))
    if isinstance(plain, LISTS):
        each = stored.elementType if isinstance(stored, st.ArrayType) else None
        return st.ArrayType(inner("element", plain.value_type, meant.value_type, each))
    return None


def _unsupported(column: str, words: str) -> SchemaError:
    hint = "exclude the column with columns=, or read it with to_arrow()"
    return SchemaError(f"Spark does not support {words}", column=column, hint=hint)


def _loads(text: bytes) -> dict[str, object]:
    import json

    value: dict[str, object] = json.loads(text)
    return value
