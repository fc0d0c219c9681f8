"""Schema merging: types widen without loss, or the files conflict."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from skipstone.core.domain.keys import is_binary, is_text
from skipstone.core.ir.transforms import UNITS
from skipstone.core.plain import type_name
from skipstone.errors import SchemaError
from skipstone.parquet.metadata import ParquetMetadata

_RECENT = 8

# -- types -------------------------------------------------------------------------------------


def merge_types(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """The type that both widen to without loss; None if there is none."""
    if a == b:
        return a
    if pa.types.is_null(a) or pa.types.is_null(b):
        return b if pa.types.is_null(a) else a
    if isinstance(a, pa.BaseExtensionType) or isinstance(b, pa.BaseExtensionType):
        return None
    for family in (_encoded, _numbers, _strings, _times, _lists, _structs, _maps):
        merged = family(a, b)
        if merged is not None:
            return merged
    return None


def is_list(type: pa.DataType) -> bool:
    """Whether ``type`` is one of Arrow's list types."""
    return bool(_is_plain_list(type) or _is_list_view(type) or pa.types.is_fixed_size_list(type))


def _encoded(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """Two dictionary types merge to a dictionary; with any other type, values are decoded."""
    if pa.types.is_dictionary(a) and pa.types.is_dictionary(b):
        value = merge_types(a.value_type, b.value_type)
        # No dictionary needs indices beyond int64.
        index = merge_types(a.index_type, b.index_type) or pa.int64()
        return None if value is None else pa.dictionary(index, value, a.ordered and b.ordered)
    bare = [decoded(type) for type in (a, b)]
    return None if bare == [a, b] else merge_types(*bare)


def decoded(type: pa.DataType) -> pa.DataType:
    """``type`` without dictionary or run-end encoding."""
    while pa.types.is_dictionary(type) or pa.types.is_run_end_encoded(type):
        type = type.value_type
    return type


# -- numbers


def _numbers(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if pa.types.is_integer(a) and pa.types.is_integer(b):
        return _integers(a, b)
    if pa.types.is_floating(a) and pa.types.is_floating(b):
        return max(a, b, key=lambda type: type.bit_width)
    if pa.types.is_decimal(a) and pa.types.is_decimal(b):
        return _decimals(a, b)
    if pa.types.is_integer(b):
        a, b = b, a
    if pa.types.is_integer(a) and pa.types.is_floating(b):
        return _integer_with_float(a, b)
    if pa.types.is_integer(a) and pa.types.is_decimal(b):
        digits = _DIGITS[_signed_bits(a)]
        return _decimals(_decimal(digits, 0, 32), b)
    return None


def _signed_bits(type: pa.DataType) -> int:
    """Bits of the signed integer that holds all values of ``type``; 128 if there is none.

    An unsigned integer counts as that signed one wherever it meets another kind of number. So the order in
    which types are merged never decides the result.
    """
    bits: int = type.bit_width
    return 2 * bits if pa.types.is_unsigned_integer(type) else bits


_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19, 128: 20}
_SIGNED = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}


def _integers(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if pa.types.is_unsigned_integer(a) == pa.types.is_unsigned_integer(b):
        return max(a, b, key=lambda type: type.bit_width)
    return _SIGNED.get(max(_signed_bits(a), _signed_bits(b)))


def _integer_with_float(whole: pa.DataType, real: pa.DataType) -> pa.DataType | None:
    bits = _signed_bits(whole)
    for type, exact in ((pa.float16(), 8), (pa.float32(), 16), (pa.float64(), 32)):
        if type.bit_width >= real.bit_width and exact >= bits:
            return type
    # A double holds all values of uint32, although not those of int64.
    return pa.float64() if pa.types.is_uint32(whole) else None


def _decimals(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    scale = max(a.scale, b.scale)
    whole = max(a.precision - a.scale, b.precision - b.scale)
    return _decimal(whole + scale, scale, max(a.bit_width, b.bit_width))


def _decimal(precision: int, scale: int, bits: int) -> pa.DataType | None:
    """A decimal type of at least ``bits`` bits."""
    for most, make in ((9, pa.decimal32), (18, pa.decimal64), (38, pa.decimal128), (76, pa.decimal256)):
        if precision <= most:
            type = make(precision, scale)
            if type.bit_width >= bits:
                return type
    return None


# -- strings and times


def _strings(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """Large offsets if either has them; fixed-size binary only merges with itself."""
    if any(pa.types.is_fixed_size_binary(type) for type in (a, b)):
        return None
    if is_text(a) and is_text(b):
        return pa.large_string() if pa.large_string() in (a, b) else pa.string()
    if is_binary(a) and is_binary(b):
        return pa.large_binary() if pa.large_binary() in (a, b) else pa.binary()
    return None


def _times(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if pa.types.is_date(a) and pa.types.is_date(b):
        return pa.date32()  # both are whole days
    same = (pa.types.is_timestamp, pa.types.is_time, pa.types.is_duration)
    if not any(holds(a) and holds(b) for holds in same):
        return None
    unit = max(a.unit, b.unit, key=lambda unit: UNITS[unit])
    if pa.types.is_timestamp(a):
        return pa.timestamp(unit, a.tz) if (a.tz is None) == (b.tz is None) else None
    if pa.types.is_duration(a):
        return pa.duration(unit)
    return pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)


# -- nested types


def _is_plain_list(type: pa.DataType) -> bool:
    return bool(pa.types.is_list(type) or pa.types.is_large_list(type))


def _is_list_view(type: pa.DataType) -> bool:
    return bool(pa.types.is_list_view(type) or pa.types.is_large_list_view(type))


def _lists(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """Views and equal fixed sizes stay such; large offsets if either has them."""
    if not (is_list(a) and is_list(b)):
        return None
    item = _merge_fields(a.value_field, b.value_field)
    if item is None:
        return None
    if pa.types.is_fixed_size_list(a) and pa.types.is_fixed_size_list(b) and a.list_size == b.list_size:
        return pa.list_(item, a.list_size)
    large = any(pa.types.is_large_list(type) or pa.types.is_large_list_view(type) for type in (a, b))
    if _is_list_view(a) and _is_list_view(b):
        return pa.large_list_view(item) if large else pa.list_view(item)
    return pa.large_list(item) if large else pa.list_(item)


def list_of(kind: pa.DataType, item: pa.Field) -> pa.DataType:
    """The same kind of list with other items."""
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(item, kind.list_size)
    if _is_list_view(kind):
        return pa.large_list_view(item) if pa.types.is_large_list_view(kind) else pa.list_view(item)
    return pa.large_list(item) if pa.types.is_large_list(kind) else pa.list_(item)


def _structs(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if not (pa.types.is_struct(a) and pa.types.is_struct(b)):
        return None
    left, right = ({field.name: field for field in type.fields} for type in (a, b))
    if len(left) < a.num_fields or len(right) < b.num_fields:
        return None  # two fields of one name are ambiguous
    merged = []
    for name, either in (left | right).items():
        shared = name in left and name in right
        both = _merge_fields(left[name], right[name]) if shared else either.with_nullable(True)
        if both is None:
            return None
        merged.append(both)
    return pa.struct(merged)


def _maps(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if not (pa.types.is_map(a) and pa.types.is_map(b)):
        return None
    key = _merge_fields(a.key_field, b.key_field)
    item = _merge_fields(a.item_field, b.item_field)
    return None if key is None or item is None else pa.map_(key, item, a.keys_sorted and b.keys_sorted)


def _merge_fields(a: pa.Field, b: pa.Field) -> pa.Field | None:
    type = merge_types(a.type, b.type)
    return None if type is None else pa.field(a.name, type, a.nullable or b.nullable)


# -- schemas -----------------------------------------------------------------------------------


def first_of_each_schema(footers: Iterable[ParquetMetadata]) -> list[ParquetMetadata]:
    """The first file of each distinct schema."""
    first: dict[int, ParquetMetadata] = {}
    for footer in footers:
        first.setdefault(id(footer.schema_group), footer)
    return list(first.values())


def merge_schemas(schemas: Iterable[tuple[str, pa.Schema]]) -> pa.Schema:
    """The columns of all files, in order of first appearance and without metadata."""
    distinct = _distinct(schemas)
    fields: dict[str, pa.Field] = {}
    if len(distinct) == 1:
        return pa.schema([_bare(field) for field in distinct[0][1]])
    for number, (path, schema) in enumerate(distinct):
        own = {field.name: field for field in schema}
        if len(own) < len(schema):
            raise _ambiguous(path, schema, distinct)
        for name in fields.keys() - own.keys():
            fields[name] = fields[name].with_nullable(True)
        for name, field in own.items():
            earlier = fields.get(name)
            merged = field.with_nullable(field.nullable or number > 0) if earlier is None else None
            merged = merged or _merge_fields(earlier, field)
            if merged is None:
                raise _conflict(path, field, earlier, distinct[:number])
            fields[name] = merged
    return pa.schema([_bare(field) for field in fields.values()])


def _distinct(schemas: Iterable[tuple[str, pa.Schema]]) -> list[tuple[str, pa.Schema]]:
    """The distinct schemas with their first files; one that recurs after many others can repeat."""
    distinct: list[tuple[str, pa.Schema]] = []
    recent: list[pa.Schema] = []
    for path, schema in schemas:
        for number, other in enumerate(recent):
            if schema is other or schema.equals(other):
                if number:
                    recent.insert(0, recent.pop(number))
                break
        else:
            distinct.append((path, schema))
            recent = [schema, *recent[: _RECENT - 1]]
    return distinct


def _bare(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _bare_type(field.type), field.nullable)


def _bare_type(type: pa.DataType) -> pa.DataType:
    if not type.num_fields:
        return type
    if is_list(type):
        return list_of(type, _bare(type.value_field))
    if pa.types.is_struct(type):
        return pa.struct([_bare(field) for field in type.fields])
    if pa.types.is_map(type):
        return pa.map_(_bare(type.key_field), _bare(type.item_field), type.keys_sorted)
    return type


def children(a: pa.DataType, b: pa.DataType) -> list[tuple[str, pa.DataType, pa.DataType]] | None:
    """The children that two lists, structs or maps share, by name; None for other types."""
    if is_list(a) and is_list(b):
        return [("element", a.value_type, b.value_type)]
    if pa.types.is_map(a) and pa.types.is_map(b):
        return [("key", a.key_type, b.key_type), ("value", a.item_type, b.item_type)]
    if pa.types.is_struct(a) and pa.types.is_struct(b):
        others = {field.name: field.type for field in b.fields}
        return [(f.name, f.type, others[f.name]) for f in a.fields if f.name in others]
    return None


def _conflict(
    path: str, field: pa.Field, merged: pa.Field, earlier: list[tuple[str, pa.Schema]]
) -> SchemaError:
    having = [(file, schema.field(field.name).type) for file, schema in earlier if field.name in schema.names]
    # The merged type can come from several files: name the first that conflicts by itself.
    culprits = [(file, type) for file, type in having if merge_types(type, field.type) is None]
    other, type = culprits[0] if culprits else (having[0][0], merged.type)
    column, *types = _clash(field.type, type, field.name)
    here, there = map(type_name, types)
    return SchemaError(
        f"column is {here} here, but {there} in {other}: no type holds the values of both",
        path=path,
        column=column,
        hint="rewrite one of the files, or remove it from the lake",
    )


def _clash(a: pa.DataType, b: pa.DataType, column: str) -> tuple[str, pa.DataType, pa.DataType]:
    """The innermost column whose types don't merge, and both types."""
    for name, left, right in children(a, b) or ():
        if merge_types(left, right) is None:
            return _clash(left, right, f"{column}.{name}")
    return column, a, b


def _ambiguous(path: str, schema: pa.Schema, distinct: list[tuple[str, pa.Schema]]) -> SchemaError:
    names = schema.names
    duplicate = next(name for name in names if names.count(name) > 1)
    other = next(file for file, _ in distinct if file != path)
    return SchemaError(
        f"two columns of the file have this name, so they can't be matched with {other}",
        path=path,
        column=duplicate,
        hint="rename one of them, or remove the file from the lake",
    )
