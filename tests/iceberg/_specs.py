"""Partition specs in tests, and the partition values that writers make."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from pyiceberg.transforms import UnknownTransform, parse_transform
from pyiceberg.types import NestedField

from tests.iceberg._types import Raw


@dataclass(frozen=True)
class SpecField:
    """A partition field: what it is made of and what it makes."""

    id: int
    name: str
    source: int
    transform: str
    type: str

    @property
    def is_void(self) -> bool:
        return self.transform == "void"


@dataclass(frozen=True)
class Spec:
    """A partition spec."""

    id: int
    fields: tuple[SpecField, ...]

    @property
    def unpartitioned(self) -> bool:
        """Whether it divides nothing: a spec of void fields counts."""
        return all(f.is_void for f in self.fields)

    def to_json(self) -> list[dict[str, Any]]:
        return [
            {"field-id": f.id, "name": f.name, "source-id": f.source, "transform": f.transform}
            for f in self.fields
        ]


@functools.cache
def iceberg_type(type: str) -> Any:
    """pyiceberg's name for a type."""
    field = NestedField.model_validate({"id": 1, "name": "x", "type": type, "required": False})
    return field.field_type


@functools.cache
def _transform(transform: str, type: str) -> Any:
    return parse_transform(transform).transform(iceberg_type(type))


def transformed(transform: str, type: str, value: Raw, old: bool = False) -> Raw:
    """A partition value; ``old``: as writers did that rounded times before 1970 towards it."""
    if isinstance(parse_transform(transform), UnknownTransform):
        return None if value is None else f"z{str(value)[:1]}"
    made = _transform(transform, type)(value)
    if transform.startswith("truncate") and type in ("int", "long") and value is not None:
        bits = 32 if type == "int" else 64  # below the least value there is, it comes out at the other end
        made = (made + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)
    rounds = old and transform in ("year", "month", "day", "hour") and type != "date"
    if rounds and made is not None and made < 0:
        first = _transform(transform, type)(value - 1) < made  # the first moment of its period
        return made if first else made + 1
    return made
