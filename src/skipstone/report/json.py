"""Results as JSON; keys are stable, new ones may be added.

A dataclass becomes an object of its fields. ``json_names`` of its class gives some of them other keys, and
``json_also`` adds properties by key.
"""

from __future__ import annotations

import enum
from dataclasses import fields, is_dataclass
from typing import Any


def to_json(value: Any) -> Any:
    """A value as dicts, lists, strings and numbers; its own ``to_json`` is used if it has one."""
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
    """A dataclass by its fields, and what it has besides."""
    names: dict[str, str] = getattr(value, "json_names", {})
    also: dict[str, str] = getattr(value, "json_also", {})
    found = {names.get(field.name, field.name): getattr(value, field.name) for field in fields(value)}
    found |= {key: getattr(value, name) for key, name in also.items()}
    return {key: to_json(item) for key, item in found.items()}
