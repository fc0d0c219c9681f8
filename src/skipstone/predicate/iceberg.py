"""pyiceberg expressions both ways.

pyiceberg answers NULL in two ways. Its row evaluator (``visitors._ExpressionEvaluationVisitor``) is
two-valued: NULL satisfies NotEqualTo, NotIn, NotNaN and NotStartsWith, as in Iceberg's Java library and in
its metrics evaluators, and nothing else. Its Arrow filter (``_ConvertToArrowExpression``) loses NULL rows of
NotEqualTo, NotNaN and NotStartsWith but keeps those of NotIn. Reading, we take the two-valued meaning: it
keeps the most rows, and Spark's Iceberg connector says ``NotNull(a) AND NotEqualTo(a, v)`` when it means
SQL's. Writing, we say NULL aloud, so that both ways of pyiceberg give the same rows.

NaN: Iceberg orders it last, as Spark does; pyiceberg compares as IEEE does and loses NaN rows of ``f > 2``.
Writing, ``>`` and ``>=`` get ``OR is-nan``; pyiceberg drops that at binding where the column is no float.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from pyiceberg import expressions as ice
from pyiceberg.expressions import literals
from pyiceberg.expressions.visitors import rewrite_not
from pyiceberg.types import TimestamptzType

from skipstone.errors import NotExpressibleError, PredicateError
from skipstone.predicate import tree
from skipstone.predicate.iceberg_literals import exact

# -- from Iceberg ------------------------------------------------------------------------------


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
    values = pa.array(found, kinds.pop()) if len(kinds) == 1 else tree.value_array(v.as_py() for v in found)
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


# -- to Iceberg --------------------------------------------------------------------------------


def to_iceberg(predicate: tree.Predicate) -> ice.BooleanExpression:
    """``predicate`` as an expression that holds exactly where it is TRUE, or an error naming the part.

    Column types are not known yet, so a literal the column's type can't hold exactly is an error at binding.
    """
    return _when(predicate, True)


def _refuse(node: tree.Expr, why: str = "") -> NotExpressibleError:
    return NotExpressibleError(f"Iceberg expressions can't say {str(node)[:80]}{why and f': {why}'}")


@functools.singledispatch
def _when(node: tree.Predicate, _value: bool | None) -> ice.BooleanExpression:
    """Holds exactly where ``node`` is ``_value``: TRUE, FALSE or (None) NULL."""
    raise _refuse(node)


@_when.register
def _(node: tree.Constant, value: bool | None) -> ice.BooleanExpression:
    return _always(node.value is value)


@_when.register
def _(node: tree.And, value: bool | None) -> ice.BooleanExpression:
    return _junction(node.args, value, decided=False)


@_when.register
def _(node: tree.Or, value: bool | None) -> ice.BooleanExpression:
    return _junction(node.args, value, decided=True)


def _junction(args: Sequence[tree.Predicate], value: bool | None, *, decided: bool) -> ice.BooleanExpression:
    """AND is decided by one FALSE, OR by one TRUE; NULL needs a NULL and no such decision."""
    if value is decided:
        return _any(_when(arg, value) for arg in args)
    if value is not None:
        return _all(_when(arg, value) for arg in args)
    unknown = [_when(arg, None) for arg in args]
    undecided = [_any((_when(arg, not decided), null)) for arg, null in zip(args, unknown, strict=True)]
    return _all((*undecided, _any(unknown)))


@_when.register
def _(node: tree.Not, value: bool | None) -> ice.BooleanExpression:
    return _when(node.arg, None if value is None else not value)


@_when.register
def _(node: tree.Truth, value: bool | None) -> ice.BooleanExpression:
    if value is None:
        return ice.AlwaysFalse()
    if value:
        return _when(node.arg, node.value)
    return _any(_when(node.arg, other) for other in (True, False, None) if other is not node.value)


@_when.register
def _(node: tree.Holds, value: bool | None) -> ice.BooleanExpression:
    name = _name(node.arg, node)
    return ice.IsNull(name) if value is None else ice.EqualTo(name, value)


@_when.register
def _(node: tree.IsNull, value: bool | None) -> ice.BooleanExpression:
    if isinstance(node.arg, tree.Predicate):
        return _when(tree.Truth(node.arg, None), value)
    name = _name(node.arg, node)
    return ice.AlwaysFalse() if value is None else ice.IsNull(name) if value else ice.NotNull(name)


@_when.register
def _(node: tree.IsNan, value: bool | None) -> ice.BooleanExpression:
    name = _name(node.arg, node)
    return _leaf(name, value, ice.IsNaN(name), ice.NotNaN(name))


@_when.register
def _(node: tree.Match, value: bool | None) -> ice.BooleanExpression:
    if node.kind != "prefix" or isinstance(node.text, bytes):
        raise _refuse(node, "only a string's beginning can be matched")
    name = _name(node.arg, node)
    return _leaf(name, value, ice.StartsWith(name, node.text), ice.NotStartsWith(name, node.text))


@_when.register
def _(node: tree.Like, value: bool | None) -> ice.BooleanExpression:
    plain, rest = "", list(node.pattern)
    while rest and rest[0] not in ("%", "_"):
        if rest[0] == node.escape:
            del rest[0]
        plain += rest.pop(0) if rest else ""
    if node.ignore_case or any(mark != "%" for mark in rest):
        raise _refuse(node, "only LIKE 'prefix%' has a counterpart")
    if rest:
        return _when(tree.Match("prefix", node.arg, plain), value)
    return _when(tree.Compare("=", node.arg, tree.lit(plain)), value)


@_when.register
def _(node: tree.Between, value: bool | None) -> ice.BooleanExpression:
    low = tree.Compare(">=" if node.low_inclusive else ">", node.arg, node.low)
    high = tree.Compare("<=" if node.high_inclusive else "<", node.arg, node.high)
    return _when(tree.And((low, high)), value)


@_when.register
def _(node: tree.Compare, value: bool | None) -> ice.BooleanExpression:
    op, arg, literal = node.op, node.left, node.right
    if isinstance(arg, tree.Literal):
        op, arg, literal = tree.FLIPPED[op], literal, arg
    if not isinstance(literal, tree.Literal):
        raise _refuse(node, "a column is compared with a constant only")
    name = _name(arg, node)
    if op == "<=>":
        same = tree.IsNull(arg) if literal.missing else tree.Truth(tree.Compare("=", arg, literal), True)
        return _when(same, value)
    if literal.missing:
        return _always(value is None)
    if value is None:
        return ice.IsNull(name)
    if not value:
        op = tree.NEGATED[op]
    if _is_nan(literal.scalar):
        return _against_nan(op, name)
    holds = _BUILDERS[op](name, exact(literal, node))
    if op == "<>":
        return _all((ice.NotNull(name), holds))
    if op in (">", ">=") and _is_number(literal.scalar.type):
        return _any((holds, ice.IsNaN(name)))
    return holds


_BUILDERS: MappingProxyType[str, Callable[[str, Any], ice.BooleanExpression]] = MappingProxyType(
    {
        "=": ice.EqualTo,
        "<>": ice.NotEqualTo,
        "<": ice.LessThan,
        "<=": ice.LessThanOrEqual,
        ">": ice.GreaterThan,
        ">=": ice.GreaterThanOrEqual,
    }
)


def _against_nan(op: str, name: str) -> ice.BooleanExpression:
    if op in ("=", ">="):
        return ice.IsNaN(name)
    if op in ("<>", "<"):
        return _all((ice.NotNull(name), ice.NotNaN(name)))
    return ice.NotNull(name) if op == "<=" else ice.AlwaysFalse()


@_when.register
def _(node: tree.IsIn, value: bool | None) -> ice.BooleanExpression:
    if len(node.values) == 0:
        return _always(value is False)
    name = _name(node.arg, node)
    present = [v for v in node.values if v.is_valid]
    plain = [exact(tree.Literal(v, node.zone), node) for v in present if not _is_nan(v)]
    nan = len(plain) < len(present)
    hit = _any((ice.In(name, plain), *([ice.IsNaN(name)] if nan else [])))
    miss = _all((ice.NotIn(name, plain), *([ice.NotNaN(name)] if nan else [])))
    if node.values.null_count == 0:
        return _leaf(name, value, hit, miss)
    return hit if value else ice.AlwaysFalse() if value is False else _any((ice.IsNull(name), miss))


def _leaf(
    name: str, value: bool | None, holds: ice.BooleanExpression, fails: ice.BooleanExpression
) -> ice.BooleanExpression:
    return ice.IsNull(name) if value is None else holds if value else _all((ice.NotNull(name), fails))


def _always(holds: bool) -> ice.BooleanExpression:
    return ice.AlwaysTrue() if holds else ice.AlwaysFalse()


def _all(parts: Iterable[ice.BooleanExpression]) -> ice.BooleanExpression:
    return functools.reduce(ice.And, parts)


def _any(parts: Iterable[ice.BooleanExpression]) -> ice.BooleanExpression:
    return functools.reduce(ice.Or, parts)


def _name(arg: tree.Expr, whole: tree.Expr) -> str:
    if not isinstance(arg, tree.Column):
        raise _refuse(whole, "only plain columns can be tested")
    if any("." in part for part in arg.path):
        raise _refuse(whole, "a dot in a column's name would be read as a path")
    return ".".join(arg.path)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_nan(scalar: pa.Scalar) -> bool:
    return bool(pa.types.is_floating(scalar.type)) and math.isnan(scalar.as_py())
