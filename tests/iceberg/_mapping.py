"""The name mapping of a table: by what names files without field ids may call a column."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.iceberg._types import Field, List, Map, Struct, Type, all_fields

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
