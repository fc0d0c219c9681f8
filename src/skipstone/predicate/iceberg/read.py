"""pyiceberg expressions as predicates."""

from __future__ import annotations

import functools
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from pyiceberg import expressions as ice
from pyiceberg.expressions import literals
from pyiceberg.expressions.visitors import rewrite_not
from pyiceberg.types import TimestamptzType

from skipstone.errors import PredicateError
from skipstone.predicate import tree
from skipstone.predicate.values import value_array


def from_iceberg(expression: ice.BooleanExpression) -> tree.Predicate:
    """A bound or unbound pyiceberg expression as a Predicate."""
    if not isinstance(expression, ice.BooleanExpression):
        raise PredicateError(f"{type(expression).__name__} is not a pyiceberg expression")
    # pyiceberg plans on this form; NOT over a comparison is not two-valued before.
    return _read(rewrite_not(expression))


_COMPARISONS: MappingProxyType[type[ice.BooleanExpression], tree.CompareOp] = MappingProxyType(
    {
        ice.EqualTo: "=",
        ice.BoundEqualTo: "=",
        ice.LessThan: "<",
        ice.BoundLessThan: "<",
        ice.LessThanOrEqual: "<=",
        ice.BoundLessThanOrEqual: "<=",
        ice.GreaterThan: ">",
        ice.BoundGreaterThan: ">",
        ice.GreaterThanOrEqual: ">=",
        ice.BoundGreaterThanOrEqual: ">=",
    }
)


def _read(node: Any) -> tree.Predicate:
    try:
        return _read_node(node)
    except _NestedError:
        return tree.Opaque((), None, str(node))


@functools.singledispatch
def _read_node(node: Any) -> tree.Predicate:
    op = _COMPARISONS.get(type(node))
    if op is not None:
        return tree.Compare(op, _column(node.term), _value(node.literal, node.term))
    return tree.Opaque((), None, str(node))


@_read_node.register
def _(_node: ice.AlwaysTrue) -> tree.Predicate:
    return tree.Constant(True)


@_read_node.register
def _(_node: ice.AlwaysFalse) -> tree.Predicate:
    return tree.Constant(False)


@_read_node.register
def _(node: ice.And) -> tree.Predicate:
    return tree.conjunction((_read(node.left), _read(node.right)))


@_read_node.register
def _(node: ice.Or) -> tree.Predicate:
    return tree.disjunction((_read(node.left), _read(node.right)))


@_read_node.register
def _(node: ice.Not) -> tree.Predicate:
    return tree.Not(_read(node.child))


@_read_node.register(ice.IsNull)
@_read_node.register(ice.BoundIsNull)
def _(node: Any) -> tree.Predicate:
    return tree.IsNull(_column(node.term))


@_read_node.register(ice.NotNull)
@_read_node.register(ice.BoundNotNull)
def _(node: Any) -> tree.Predicate:
    return tree.Not(tree.IsNull(_column(node.term)))


@_read_node.register(ice.IsNaN)
@_read_node.register(ice.BoundIsNaN)
def _(node: Any) -> tree.Predicate:
    return tree.IsNan(_column(node.term))


@_read_node.register(ice.NotNaN)
@_read_node.register(ice.BoundNotNaN)
def _(node: Any) -> tree.Predicate:
    return tree.Not(tree.IsNan(_column(node.term)).is_true())


@_read_node.register(ice.NotEqualTo)
@_read_node.register(ice.BoundNotEqualTo)
def _(node: Any) -> tree.Predicate:
    return tree.Not(tree.Compare("<=>", _column(node.term), _value(node.literal, node.term)))


@_read_node.register(ice.In)
@_read_node.register(ice.BoundIn)
def _(node: Any) -> tree.Predicate:
    return _members(node)


@_read_node.register(ice.NotIn)
@_read_node.register(ice.BoundNotIn)
def _(node: Any) -> tree.Predicate:
    return tree.Not(_members(node).is_true())


@_read_node.register(ice.StartsWith)
@_read_node.register(ice.BoundStartsWith)
def _(node: Any) -> tree.Predicate:
    return tree.Match("prefix", _column(node.term), node.literal.value)


@_read_node.register(ice.NotStartsWith)
@_read_node.register(ice.BoundNotStartsWith)
def _(node: Any) -> tree.Predicate:
    return tree.Not(tree.Match("prefix", _column(node.term), node.literal.value).is_true())


def _members(node: Any) -> tree.Predicate:
    found = [_value(item, node.term).scalar for item in sorted(node.literals, key=lambda item: item.value)]
    kinds = {scalar.type for scalar in found}
    values = pa.array(found, kinds.pop()) if len(kinds) == 1 else value_array(v.as_py() for v in found)
    return tree.IsIn(_column(node.term), values)


def _column(term: Any) -> tree.Column:
    if isinstance(term, ice.Reference):
        return tree.Column(tuple(term.name.split(".")))
    if term.ref().accessor.inner is not None:
        raise _NestedError
    return tree.Column((term.ref().field.name,))


class _NestedError(Exception):
    """A bound reference to a nested field, which knows its last name only."""


_UNITS: MappingProxyType[type, pa.DataType] = MappingProxyType(
    {
        literals.DateLiteral: pa.date32(),
        literals.TimeLiteral: pa.time64("us"),
        literals.TimestampLiteral: pa.timestamp("us"),
        literals.FloatLiteral: pa.float32(),
    }
)


def _value(item: Any, term: Any) -> tree.Literal:
    kind = next((kind for cls, kind in _UNITS.items() if isinstance(item, cls)), None)
    if isinstance(item, literals.TimestampLiteral) and _is_instant(term):
        kind = pa.timestamp("us", "UTC")
    if kind is not None and pa.types.is_temporal(kind):
        physical = pa.int32() if pa.types.is_date(kind) else pa.int64()
        return tree.Literal(pa.scalar(item.value, physical).cast(kind))
    return tree.Literal(pa.scalar(item.value, kind))


def _is_instant(term: Any) -> bool:
    return isinstance(term, ice.BoundTerm) and isinstance(term.ref().field.field_type, TimestamptzType)
