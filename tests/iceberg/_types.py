"""Iceberg's types and values in tests: fields with ids, raw values, JSON, bytes, Arrow.

A raw value is what a manifest holds: integers for dates and times, bytes for a UUID, a dict by field id for a
struct, a list of pairs for a map.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import re
import struct
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tests.property._layouts import make_array

Raw = Any
DAY_MICROS = 86_400 * 10**6


@dataclass(frozen=True)
class Field:
    """A column, or a field of a struct."""

    id: int
    name: str
    type: Type
    required: bool = False
    default: Raw = None
    """What rows written before the field existed have (version 3)."""


@dataclass(frozen=True)
class Struct:
    """Named fields."""

    fields: tuple[Field, ...]


@dataclass(frozen=True)
class List:
    """A list; elements may be NULL."""

    id: int
    element: Type


@dataclass(frozen=True)
class Map:
    """A map; values may be NULL."""

    key_id: int
    key: Type
    value_id: int
    value: Type


Type = str | Struct | List | Map
_ARROW: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "timestamp_ns": pa.timestamp("ns"),
    "timestamptz_ns": pa.timestamp("ns", "UTC"),
    "string": pa.string(),
    "binary": pa.binary(),
    "uuid": pa.uuid(),
}


def numbers(type: str) -> list[int]:
    """The numbers in a type's name: precision and scale, or a length."""
    return [int(n) for n in re.findall(r"\d+", type)]


def arrow_type(
    type: Type, name: Callable[[Field], str] = lambda f: f.name, *, ids: bool = False
) -> pa.DataType:
    """The Arrow type; with Parquet's field ids in it if asked for."""

    def part(label: str, id: int, inner: Type, nullable: bool) -> pa.Field:
        meta = {"PARQUET:field_id": str(id)} if ids else None
        return pa.field(label, arrow_type(inner, name, ids=ids), nullable, meta)

    match type:
        case Struct(fields):
            return pa.struct([part(name(f), f.id, f.type, not f.required) for f in fields])
        case List(id, element):
            return pa.list_(part("element", id, element, True))
        case Map(key_id, key, value_id, value):
            return pa.map_(part("key", key_id, key, False), part("value", value_id, value, True))
    if type.startswith("decimal"):
        return pa.decimal128(*numbers(type))
    if type.startswith("fixed"):
        return pa.binary(numbers(type)[0])
    return _ARROW[type]


def build(type: Type, values: Sequence[Raw], name: Callable[[Field], str] = lambda f: f.name) -> pa.Array:
    """Raw values as Arrow has them."""
    arrow = arrow_type(type, name)
    match type:
        case Struct(fields):
            parts = [build(f.type, [None if v is None else v[f.id] for v in values], name) for f in fields]
            mask = pa.array([v is None for v in values], pa.bool_())
            return pa.StructArray.from_arrays(parts, fields=[*arrow], mask=mask)
        case List(_, element):
            flat = [item for v in values if v is not None for item in v]
            return pa.ListArray.from_arrays(_offsets(values), build(element, flat, name), type=arrow)
        case Map(_, key, _, value):
            pairs = [pair for v in values if v is not None for pair in v]
            keys, items = build(key, [k for k, _ in pairs], name), build(value, [v for _, v in pairs], name)
            return pa.MapArray.from_arrays(_offsets(values), keys, items, type=arrow)
    if type == "uuid":
        return pa.ExtensionArray.from_storage(arrow, pa.array(values, pa.binary(16)))
    return make_array(arrow, values)


def _offsets(values: Sequence[Raw]) -> pa.Array:
    """Where lists start; NULL is said here."""
    starts: list[int | None] = []
    at = 0
    for value in values:
        starts.append(None if value is None else at)
        at += 0 if value is None else len(value)
    return pa.array([*starts, at], pa.int32())


def raw(type: Type, array: pa.Array | pa.ChunkedArray) -> list[Raw]:
    """An Arrow column, named as the type names its fields, as raw values."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if isinstance(type, str):
        if pa.types.is_temporal(array.type):
            array = array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())
        return array.to_pylist()
    return [raw_value(type, value) for value in array.to_pylist()]


def raw_value(type: Type, value: Any) -> Raw:
    """One Python value, as Arrow or a person would give it, as a raw value."""
    if value is None:
        return None
    match type:
        case Struct(fields):
            return {f.id: raw_value(f.type, value.get(f.name)) for f in fields}
        case List(_, element):
            return [raw_value(element, item) for item in value]
        case Map(_, key, _, inner):
            pairs = value.items() if isinstance(value, dict) else value
            return [(raw_value(key, k), raw_value(inner, v)) for k, v in pairs]
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return raw(type, pa.array([value], arrow_type(type)))[0]
    return value


def shown(type: Type, value: Raw) -> Any:
    """A raw value by the names of its fields."""
    match type:
        case Struct(fields):
            return None if value is None else {f.name: shown(f.type, value[f.id]) for f in fields}
        case List(_, element):
            return None if value is None else [shown(element, item) for item in value]
        case Map(_, key, _, inner):
            return None if value is None else [(shown(key, k), shown(inner, v)) for k, v in value]
    return value


def convert(old: Type, new: Type, value: Raw) -> Raw:
    """A value written under an earlier type, under a later one."""
    if value is None:
        return None
    match old, new:
        case Struct(had), Struct(wanted):
            before = {f.id: f for f in had}
            return {
                f.id: convert(before[f.id].type, f.type, value[f.id]) if f.id in before else f.default
                for f in wanted
            }
        case List(_, a), List(_, b):
            return [convert(a, b, item) for item in value]
        case Map(_, _, _, a), Map(_, _, _, b):
            return [(k, convert(a, b, v)) for k, v in value]
    if old == "date" and new != "date":
        return value * DAY_MICROS * (1000 if str(new).endswith("_ns") else 1)
    return value


def type_json(type: Type) -> Any:
    """The type as metadata has it."""
    match type:
        case Struct(fields):
            return {"type": "struct", "fields": [field_json(f) for f in fields]}
        case List(id, element):
            inner = type_json(element)
            return {"type": "list", "element-id": id, "element": inner, "element-required": False}
        case Map(key_id, key, value_id, value):
            return {
                "type": "map",
                "key-id": key_id,
                "key": type_json(key),
                "value-id": value_id,
                "value": type_json(value),
                "value-required": False,
            }
    return type


def field_json(field: Field) -> dict[str, Any]:
    """The field as metadata has it."""
    found = {"id": field.id, "name": field.name, "required": field.required, "type": type_json(field.type)}
    if field.default is not None:
        value = value_json(str(field.type), field.default)
        found |= {"initial-default": value, "write-default": value}
    return found


def value_json(type: str, value: Raw) -> Any:
    """A default in Iceberg's JSON form of single values."""
    if isinstance(value, bytes):
        return str(uuid.UUID(bytes=value)) if type == "uuid" else value.hex()
    if isinstance(value, decimal.Decimal):
        return f"{value:f}"
    epoch = dt.datetime(1970, 1, 1)
    if type == "date":
        return (epoch + dt.timedelta(days=value)).date().isoformat()
    if type == "time":
        return (epoch + dt.timedelta(microseconds=value)).time().isoformat("microseconds")
    if type.startswith("timestamp"):
        nanos = value if type.endswith("_ns") else value * 1000
        text = (epoch + dt.timedelta(microseconds=nanos // 1000)).isoformat(timespec="microseconds")
        text += f"{nanos % 1000:03d}" if type.endswith("_ns") else ""
        return text + ("+00:00" if "tz" in type else "")
    return value


def to_bytes(type: str, value: Raw) -> bytes:
    """Iceberg's single-value form."""
    if type == "boolean":
        return b"\x01" if value else b"\x00"
    if type in ("int", "date"):
        return struct.pack("<i", value)
    if type in ("long", "time") or type.startswith("timestamp"):
        return struct.pack("<q", value)
    if type in ("float", "double"):
        return struct.pack("<f" if type == "float" else "<d", value)
    if type.startswith("decimal"):
        whole = unscaled(type, value)
        return whole.to_bytes((8 + (whole + (whole < 0)).bit_length()) // 8, "big", signed=True)
    return value.encode() if isinstance(value, str) else bytes(value)


def unscaled(type: str, value: decimal.Decimal) -> int:
    """A decimal's digits as one integer."""
    return int(value.scaleb(numbers(type)[1], decimal.Context(prec=80)))


def tagged(value: Raw) -> Any:
    """A key under which equal values, and only they, are equal: NaN is NaN, the zeros differ, types too."""
    if isinstance(value, float):
        return "float", struct.pack("<d", math.nan if math.isnan(value) else value)
    if isinstance(value, dict):
        return tuple(tagged(part) for part in value.values())
    return type(value).__name__, value


def leaves(field: Field, values: Sequence[Raw]) -> Iterator[tuple[int, str, list[Raw], bool]]:
    """The primitive columns below a field: id, type, values, and whether they are repeated."""
    match field.type:
        case Struct(fields):
            for part in fields:
                yield from leaves(part, [None if v is None else v[part.id] for v in values])
        case List(id, element):
            flat = [item for v in values for item in (v or [None])]
            for one in leaves(Field(id, "element", element), flat):
                yield (*one[:3], True)
        case Map(key_id, key, value_id, value):
            pairs = [pair for v in values for pair in (v or [(None, None)])]
            for one in leaves(Field(key_id, "key", key), [k for k, _ in pairs]):
                yield (*one[:3], True)
            for one in leaves(Field(value_id, "value", value), [v for _, v in pairs]):
                yield (*one[:3], True)
        case str() as type:
            yield field.id, type, [*values], False


def all_fields(fields: Sequence[Field]) -> Iterator[tuple[tuple[str, ...], Field]]:
    """Every field with its path; not below lists and maps."""
    for field in fields:
        yield (field.name,), field
        if isinstance(field.type, Struct):
            for path, inner in all_fields(field.type.fields):
                yield (field.name, *path), inner
