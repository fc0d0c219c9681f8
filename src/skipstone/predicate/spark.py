"""PySpark both ways: the filters Spark pushes into a Python data source, and a Column to hand back."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, functions
from pyspark.sql import datasource as ds

from skipstone.errors import PredicateError
from skipstone.predicate import tree
from skipstone.predicate.foreign import is_nan, is_number
from skipstone.predicate.sql.write import to_sql

# -- from Spark --------------------------------------------------------------------------------

_COMPARISONS: MappingProxyType[type[ds.Filter], tree.CompareOp] = MappingProxyType(
    {
        ds.EqualTo: "=",
        ds.EqualNullSafe: "<=>",
        ds.GreaterThan: ">",
        ds.GreaterThanOrEqual: ">=",
        ds.LessThan: "<",
        ds.LessThanOrEqual: "<=",
    }
)
_MATCHES: MappingProxyType[type[ds.Filter], tree.MatchKind] = MappingProxyType(
    {ds.StringStartsWith: "prefix", ds.StringEndsWith: "suffix", ds.StringContains: "contains"}
)


def from_spark(filters: ds.Filter | Iterable[ds.Filter]) -> tree.Predicate:
    """One data-source filter, or several joined by AND, as a Predicate."""
    if isinstance(filters, Column):
        raise PredicateError(
            "a PySpark Column lives in the Java session and can't be read from Python",
            hint="give the condition as SQL text",
        )
    if isinstance(filters, ds.Filter):
        return _filter(filters)
    if isinstance(filters, (str, bytes)) or not isinstance(filters, Iterable):
        raise PredicateError(
            f"can't make a predicate of {type(filters).__name__}",
            hint="give PySpark data-source filters, or SQL text to skipstone.parse",
        )
    return tree.conjunction([_filter(item) for item in filters])


def _filter(item: object) -> tree.Predicate:
    if isinstance(item, tree.Expr):
        return tree.condition(item)
    if isinstance(item, Column):
        return from_spark(item)
    read = _READERS.get(type(item))
    try:
        found = read(item) if read else None
    except (TypeError, PredicateError, pa.ArrowException):
        found = None  # a value Arrow has no scalar for
    return tree.Opaque((), None, repr(item)) if found is None else found


def _column(item: Any) -> tree.Column:
    return tree.Column(tuple(item.attribute))


def _compare(item: Any) -> tree.Predicate | None:
    if isinstance(item.value, (list, tuple, dict)):
        return None  # arrays, structs and maps have no order here
    return tree.Compare(_COMPARISONS[type(item)], _column(item), tree.lit(item.value))


def _match(item: Any) -> tree.Predicate | None:
    return tree.Match(_MATCHES[type(item)], _column(item), item.value)


def _in(item: Any) -> tree.Predicate | None:
    return _column(item).isin(item.value)


def _is_null(item: Any) -> tree.Predicate | None:
    return tree.IsNull(_column(item))


def _is_not_null(item: Any) -> tree.Predicate | None:
    return tree.Not(tree.IsNull(_column(item)))


def _not(item: Any) -> tree.Predicate | None:
    return tree.Not(_filter(item.child))


_READERS: MappingProxyType[type, Callable[[Any], tree.Predicate | None]] = MappingProxyType(
    {
        **dict.fromkeys(_COMPARISONS, _compare),
        **dict.fromkeys(_MATCHES, _match),
        ds.In: _in,
        ds.IsNull: _is_null,
        ds.IsNotNull: _is_not_null,
        ds.Not: _not,
    }
)


# -- to Spark ----------------------------------------------------------------------------------


def to_spark(predicate: tree.Predicate, schema: pa.Schema | None = None) -> Column:
    """``predicate`` as a Column that survives the pruning of Spark's own Parquet reader.

    That reader loses the NaN rows of ``f > 2`` and the -0.0 rows of ``f = 0``, so such a comparison is said
    in words it does not push down. Give the ``schema`` to leave columns that are no floats as they are.
    """
    return functions.expr(to_spark_sql(predicate, schema))


def to_spark_sql(predicate: tree.Predicate, schema: pa.Schema | None = None) -> str:
    """The text of :func:`to_spark`, which every kind of session can parse."""
    return to_sql(_guard(predicate, schema, False), "spark")


@functools.singledispatch
def _guard(node: tree.Predicate, _schema: pa.Schema | None, _negated: bool) -> tree.Predicate:
    """The same condition, with NaN and -0.0 said aloud wherever the reader would overlook them.

    Under a NOT, Spark's optimizer may turn a leaf round; then FALSE for NaN is said too.
    """
    return node


@_guard.register
def _(node: tree.And, schema: pa.Schema | None, negated: bool) -> tree.Predicate:
    return tree.And(tuple(_guard(arg, schema, negated) for arg in node.args))


@_guard.register
def _(node: tree.Or, schema: pa.Schema | None, negated: bool) -> tree.Predicate:
    return tree.Or(tuple(_guard(arg, schema, negated) for arg in node.args))


@_guard.register
def _(node: tree.Not, schema: pa.Schema | None, _negated: bool) -> tree.Predicate:
    return tree.Not(_guard(node.arg, schema, True))


@_guard.register
def _(node: tree.Truth, schema: pa.Schema | None, _negated: bool) -> tree.Predicate:
    if isinstance(node.arg, tree.IsNan) and node.value is True:
        return node
    return tree.Truth(_guard(node.arg, schema, True), node.value)


@_guard.register
def _(node: tree.IsNan, _schema: pa.Schema | None, _negated: bool) -> tree.Predicate:
    return tree.Or((node, _nan(node.arg)))


@_guard.register
def _(node: tree.Compare, schema: pa.Schema | None, negated: bool) -> tree.Predicate:
    arg, op, literal = node.left, node.op, node.right
    if isinstance(arg, tree.Literal):
        arg, op, literal = literal, tree.FLIPPED[op], arg
    if not isinstance(literal, tree.Literal) or literal.missing or not _may_float(arg, literal, schema):
        return node
    if _plain(literal) == 0:
        literal = (
            tree.Literal(_POSITIVE_ZERO, literal.zone) if isinstance(_plain(literal), float) else literal
        )
        arg = _magnitude(arg) if op in ("=", "<=>") else arg
        node = tree.Compare(op, arg, literal)
    holds = ("=", ">=", "<=", "<=>") if is_nan(literal.scalar) else (">", ">=", "<>")
    return _say_nan(node, arg, op in holds, negated)


@_guard.register
def _(node: tree.Between, schema: pa.Schema | None, negated: bool) -> tree.Predicate:
    ends = tuple(_guard(end, schema, negated) for end in node.ends)
    return node if ends == node.ends else tree.And(ends)


@_guard.register
def _(node: tree.IsIn, schema: pa.Schema | None, negated: bool) -> tree.Predicate:
    members = [tree.Literal(value, node.zone) for value in node.values]
    if not members or not _may_float(node.arg, members[0], schema):
        return node
    zero = [_plain(member) == 0 for member in members]
    if any(zero):
        others = tree.IsIn(node.arg, node.values.filter(pa.array([not z for z in zero])), node.zone)
        is_zero = tree.Compare("=", _magnitude(node.arg), tree.Literal(_POSITIVE_ZERO))
        return tree.disjunction((is_zero, *([_guard(others, schema, negated)] if len(others.values) else [])))
    has_nan = any(is_nan(member.scalar) for member in members)
    if not has_nan and node.values.null_count:
        return node  # NOT IN with a NULL is never TRUE, so there is no row to lose
    return _say_nan(node, node.arg, has_nan, negated)


_POSITIVE_ZERO = pa.scalar(0.0)


def _magnitude(arg: tree.Expr) -> tree.Expr:
    """Zero for both zeros and for nothing else; as a double no absolute value overflows."""
    return tree.Call("abs", (tree.Cast(arg, pa.float64()),))


def _nan(arg: tree.Expr) -> tree.Predicate:
    return tree.Truth(tree.IsNan(arg), True)


def _say_nan(node: tree.Predicate, arg: tree.Expr, holds: bool, negated: bool) -> tree.Predicate:
    if holds:
        return tree.Or((node, _nan(arg)))
    return tree.And((node, tree.Not(_nan(arg)))) if negated else node


def _may_float(arg: tree.Expr, other: tree.Literal, schema: pa.Schema | None) -> bool:
    if not is_number(other.scalar.type):
        return False
    if schema is None or not isinstance(arg, tree.Column):
        return True
    found: Any = schema
    for name in arg.path:
        at = found.get_field_index(name) if isinstance(found, (pa.Schema, pa.StructType)) else -1
        if at < 0:
            return True
        found = found.field(at).type
    return bool(pa.types.is_floating(found))


def _plain(literal: tree.Literal) -> Any:
    return literal.scalar.as_py()
