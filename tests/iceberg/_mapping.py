"""The name mapping of a table: by what names files without field ids may call a column."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tests.iceberg._types import Field, List, Map, Raw, Struct, Type, all_fields

Schemas = Sequence[tuple[Field, ...]]
Names = Mapping[int, list[str]]


def name_mapping(schemas: Schemas, names: Names) -> list[dict[str, Any]]:
    """Every field that any schema has had, with every name it has had."""
    fields = {f.id: f for schema in schemas for f in schema}
    return [_mapped(schemas, names, f) for f in fields.values()]


def _mapped(schemas: Schemas, names: Names, field: Field) -> dict[str, Any]:
    found: dict[str, Any] = {"field-id": field.id, "names": names[field.id]}
    if isinstance(field.type, Struct):
        had = [f.type for schema in schemas for _, f in all_fields(schema) if f.id == field.id]
        parts = {part.id: part for type in had if isinstance(type, Struct) for part in type.fields}
        return found | {"fields": [_mapped(schemas, names, part) for part in parts.values()]}
    return found | _below(schemas, names, field.type)


def _below(schemas: Schemas, names: Names, type: Type) -> dict[str, Any]:
    def part(id: int, name: str, inner: Type) -> dict[str, Any]:
        return {"field-id": id, "names": [name], **_below(schemas, names, inner)}

    match type:
        case Struct(fields):
            return {"fields": [_mapped(schemas, names, f) for f in fields]}
        case List(id, element):
            return {"fields": [part(id, "element", element)]}
        case Map(key_id, key, value_id, value):
            return {"fields": [part(key_id, "key", key), part(value_id, "value", value)]}
    return {}


# -- files without ids -------------------------------------------------------------------------


Mapped = Sequence[Mapping[str, Any]]


def found_by(mapping: Mapped, fields: Sequence[Field]) -> dict[int, Field]:
    """The fields of a file without ids that a mapping finds, as reading sees them, by their own ids."""
    found = {}
    for f in fields:
        entry = _entry(mapping, f.name)
        if entry is not None:
            found[f.id] = replace(f, id=entry["field-id"], type=_found_type(entry.get("fields", ()), f.type))
    return found


def found_value(mapping: Mapped, type: Type, value: Raw) -> Raw:
    """A value of such a file, with the ids that the mapping gives to the fields of structs."""
    if value is None:
        return None
    match type:
        case Struct(fields):
            entries = {f: _entry(mapping, f.name) for f in fields}
            return {
                entry["field-id"]: found_value(entry.get("fields", ()), f.type, value[f.id])
                for f, entry in entries.items()
                if entry is not None
            }
        case List(_, element):
            return [found_value(_inner(mapping, "element"), element, item) for item in value]
        case Map(_, _, _, inner):
            return [(key, found_value(_inner(mapping, "value"), inner, item)) for key, item in value]
    return value


def found_column(mapping: Mapped, field: Field, values: Sequence[Raw]) -> list[Raw]:
    """A column of such a file."""
    entry = _entry(mapping, field.name) or {}
    return [found_value(entry.get("fields", ()), field.type, value) for value in values]


def _found_type(mapping: Mapped, type: Type) -> Type:
    match type:
        case Struct(fields):
            return Struct(tuple(found_by(mapping, fields).values()))
        case List(id, element):
            return List(id, _found_type(_inner(mapping, "element"), element))
        case Map(key_id, key, value_id, value):
            return Map(key_id, key, value_id, _found_type(_inner(mapping, "value"), value))
    return type


def _entry(mapping: Mapped, name: str) -> Mapping[str, Any] | None:
    return next((entry for entry in mapping if name in entry["names"]), None)


def _inner(mapping: Mapped, name: str) -> Mapped:
    inner: Mapped = (_entry(mapping, name) or {}).get("fields", ())
    return inner


def every_field(fields: Sequence[Field]) -> Iterable[Field]:
    """Every field, also inside lists and maps."""
    for f in fields:
        yield f
        yield from _inside(f.type)


def _inside(type: Type) -> Iterable[Field]:
    match type:
        case Struct(fields):
            yield from every_field(fields)
        case List(_, element):
            yield from _inside(element)
        case Map(_, _, _, value):
            yield from _inside(value)
