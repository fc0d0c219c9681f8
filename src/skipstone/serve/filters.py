"""Filters of the Iceberg REST protocol as predicates that keep every row for which any client may see TRUE.

Clients test rows by their own rules: the literal converted to the column's type, as Iceberg does, and NaN and
NULL as their engine does. So literals are converted as Iceberg converts them, a leaf whose conversion would
round or overflow keeps everything, and a file counts as matching completely only if it has neither NULL nor
NaN in the columns of the filter.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from math import inf
from typing import Any

import numpy as np
from pyiceberg import expressions as ice
from pyiceberg import types
from pyiceberg.expressions import literals
from pyiceberg.expressions.visitors import rewrite_not
from pyiceberg.schema import Schema

from skipstone.errors import shorten
from skipstone.predicate.iceberg import from_iceberg
from skipstone.predicate.tree import Predicate
from skipstone.serve.access import bad_request

_ZONELESS = re.compile(r"T[0-9:.]+$")
_FLOATS = (types.FloatType, types.DoubleType)
_SIZES: dict[type, int] = {types.IntegerType: 31, types.LongType: 63}


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter: the rows that may match, and rows that match by the rules of every client (None: none do)."""

    where: Predicate | None
    certain: Predicate | None

    @classmethod
    def of(
        cls, expression: ice.BooleanExpression, schemas: Sequence[Schema], *, case_sensitive: bool = True
    ) -> Filter:
        """Read a filter; if its names mean different columns in the schemas, everything is kept."""
        reader = _Reader(schemas, case_sensitive, {}, [])
        node = reader.read(rewrite_not(expression))
        if reader.ambiguous or isinstance(node, ice.AlwaysTrue):
            certain = None if reader.ambiguous or reader.widened else from_iceberg(ice.AlwaysTrue())
            return cls(None, certain)
        where = from_iceberg(node)
        if reader.widened:
            return cls(where, None)
        plain = [_make(ice.NotNull, name) for name in reader.columns]
        plain += [
            _make(ice.NotNaN, name) for name, kind in reader.columns.items() if isinstance(kind, _FLOATS)
        ]
        return cls(where, from_iceberg(ice.And(node, *plain)) if plain else where)


def _make(kind: Any, *args: Any) -> ice.BooleanExpression:
    made: ice.BooleanExpression = kind(*args)
    return made


def _leaf(node: Any, name: str, values: Sequence[Any]) -> ice.BooleanExpression:
    return (
        _make(type(node), name, {*values}) if hasattr(node, "literals") else _make(type(node), name, *values)
    )


@dataclass(slots=True)
class _Reader:
    schemas: Sequence[Schema]
    case_sensitive: bool
    columns: dict[str, types.IcebergType]
    widened: list[str]
    """Leaves that are replaced with TRUE."""
    ambiguous: bool = False

    def read(self, node: Any) -> ice.BooleanExpression:
        if isinstance(node, ice.And | ice.Or):
            return _make(type(node), self.read(node.left), self.read(node.right))
        if isinstance(node, ice.AlwaysTrue | ice.AlwaysFalse):
            return node
        name = node.term.name
        kind = self._type_of(name)
        items = [*node.literals] if hasattr(node, "literals") else []
        items += [node.literal] if hasattr(node, "literal") else []
        values = [_typed(item, kind, name) for item in items]
        if not kind.is_primitive or any(value is None for value in values):
            self.widened.append(name)
            return ice.AlwaysTrue()
        self.columns[name] = kind
        leaf = _leaf(node, name, values)
        if isinstance(kind, types.FloatType) and any(
            float(np.float32(float(one.value))) != float(one.value) for one in items
        ):
            # Some clients round the literal to the column's type, and others don't.
            self.widened.append(name)
            return _make(
                ice.Or, leaf, _leaf(node, name, [literals.DoubleLiteral(float(one.value)) for one in items])
            )
        return leaf

    def _type_of(self, name: str) -> types.IcebergType:
        fields: list[types.NestedField | None] = []
        for schema in self.schemas:
            try:
                fields.append(schema.find_field(name, self.case_sensitive))
            except ValueError:
                fields.append(None)
        first = next((field for field in fields if field is not None), None)
        if first is None:
            raise bad_request(f"filter names an unknown column: {name}")
        if len({None if field is None else field.field_id for field in fields}) > 1:
            self.ambiguous = True
        return first.field_type


def _typed(item: literals.Literal[Any], kind: types.IcebergType, name: str) -> literals.Literal[Any] | None:
    """The literal in the column's type; None if clients may disagree about it."""
    value = item.value
    bits = _SIZES.get(type(kind))
    if bits is not None:
        whole = type(value) is int and -(2**bits) <= value < 2**bits
        return item if whole else None
    if isinstance(kind, types.TimestampNanoType | types.TimestamptzNanoType):
        return None
    try:
        if isinstance(kind, _FLOATS):
            # pyiceberg writes decimals as text, which is what it takes numbers with a fraction for.
            exact = Decimal(value) if isinstance(value, str) else value
            if type(exact) not in (int, float, Decimal):
                raise TypeError
            item = literals.DoubleLiteral(float(exact))
            if item.value in (inf, -inf) and exact != item.value:
                return None
        if isinstance(kind, types.TimestamptzType) and isinstance(value, str) and _ZONELESS.search(value):
            # pyiceberg writes instants without their zone, which is UTC.
            return item.to(types.TimestampType())
        if isinstance(kind, types.DecimalType):
            return literals.DecimalLiteral(Decimal(str(value)))
        if isinstance(kind, types.UUIDType):
            return literals.UUIDLiteral(uuid.UUID(value).bytes)
        if isinstance(kind, types.BinaryType | types.FixedType):
            return literals.BinaryLiteral(bytes.fromhex(value))
        made = item.to(kind)
    except (ValueError, TypeError, AttributeError, OverflowError, InvalidOperation):
        raise bad_request(
            f"literal {shorten(repr(value), 80)} of the filter is not a value of {name}, which is {kind}"
        ) from None
    limits = (literals.AboveMax, literals.BelowMin)
    return None if isinstance(made, limits) or made.value != made.value else made


def check_columns(names: Sequence[str], schemas: Sequence[Schema], *, case_sensitive: bool) -> None:
    """Refuse names that no schema has."""
    for name in names:
        for schema in schemas:
            try:
                schema.find_field(name, case_sensitive)
                break
            except ValueError:
                continue
        else:
            raise bad_request(f"select names an unknown column: {name}")
