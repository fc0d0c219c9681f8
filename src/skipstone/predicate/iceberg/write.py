"""Predicates as pyiceberg expressions."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from pyiceberg import expressions as ice

from skipstone.errors import NotExpressibleError
from skipstone.predicate import tree
from skipstone.predicate.iceberg.literals import exact


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
