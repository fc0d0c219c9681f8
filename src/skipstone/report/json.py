"""Results as JSON. Keys are stable; new ones may be added.

A dataclass becomes an object of its fields. ``json_names`` of the class renames some of them, and
``json_also`` adds properties.
"""

from __future__ import annotations

import enum
from dataclasses import fields, is_dataclass
from typing import Any


def to_json(value: Any) -> Any:
    """Return a value as dicts, lists, strings and numbers."""
    if hasattr(value, "to_json"):
        return value.to_json()
    if is_dataclass(value) and not isinstance(value, type):
        return record(value)
    if isinstance(value, dict):
        return {key: to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if isinstance(value, enum.Enum):
        return value.value if isinstance(value, str) else value.name
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def record(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass and the properties named by ``json_also``."""
    names: dict[str, str] = getattr(value, "json_names", {})
    also: dict[str, str] = getattr(value, "json_also", {})
    values = {names.get(field.name, field.name): getattr(value, field.name) for field in fields(value)}
    values |= {key: getattr(value, name) for key, name in also.items()}
    return {key: to_json(item) for key, item in values.items()}
