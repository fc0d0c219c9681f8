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
from skipstone.predicate.sql_write import to_sql

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

    That reader skips NaN rows of ``f > 2``, so such a comparison also says ``OR isnan(f)``, which is not
    pushed down. Give the ``schema`` to leave columns that can't be NaN as they are.
    """
    return functions.expr(to_sql(_guard(predicate, schema, False), "spark"))


@functools.singledispatch
def _guard(node: tree.Predicate, _schema: pa.Schema | None, _negated: bool) -> tree.Predicate:
    """The same condition, with NaN said aloud wherever Parquet bounds would hide it.

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
    return tree.Truth(_guard(node.arg, schema, True), node.value)


@_guard.register
def _(node: tree.Compare, schema: pa.Schema | None, negated: bool) -> tree.Predicate:
    if isinstance(node.left, tree.Literal):
        return _guard_compare(node, node.right, tree.FLIPPED[node.op], node.left, schema, negated)
    if isinstance(node.right, tree.Literal):
        return _guard_compare(node, node.left, node.op, node.right, schema, negated)
    return node


def _guard_compare(
    node: tree.Compare,
    arg: tree.Expr,
    op: tree.CompareOp,
    literal: tree.Literal,
    schema: pa.Schema | None,
    negated: bool,
) -> tree.Predicate:
    if literal.missing or not _may_be_nan(arg, literal.scalar.type, schema):
        return node
    holds = ("=", ">=", "<=", "<=>") if _is_nan(literal.scalar) else (">", ">=", "<>")
    return _say_nan(node, arg, op in holds, negated)


@_guard.register
def _(node: tree.Between, schema: pa.Schema | None, negated: bool) -> tree.Predicate:
    low = tree.Compare(">=" if node.low_inclusive else ">", node.arg, node.low)
    high = tree.Compare("<=" if node.high_inclusive else "<", node.arg, node.high)
    ends = (_guard(low, schema, negated), _guard(high, schema, negated))
    return node if ends == (low, high) else tree.And(ends)


@_guard.register
def _(node: tree.IsIn, schema: pa.Schema | None, negated: bool) -> tree.Predicate:
    if not _may_be_nan(node.arg, node.values.type, schema):
        return node
    floating = pa.types.is_floating(node.values.type)
    has_nan = floating and any(_is_nan(value) for value in node.values)
    if not has_nan and node.values.null_count:
        return node  # NOT IN with a NULL is never TRUE, so there is no row to lose
    return _say_nan(node, node.arg, has_nan, negated)


def _say_nan(node: tree.Predicate, arg: tree.Expr, holds: bool, negated: bool) -> tree.Predicate:
    nan = tree.Truth(tree.IsNan(arg), True)
    if holds:
        return tree.Or((node, nan))
    return tree.And((node, tree.Not(nan))) if negated else node


def _may_be_nan(arg: tree.Expr, other: pa.DataType, schema: pa.Schema | None) -> bool:
    if not (pa.types.is_integer(other) or pa.types.is_floating(other) or pa.types.is_decimal(other)):
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


def _is_nan(scalar: pa.Scalar) -> bool:
    value = scalar.as_py()
    return isinstance(value, float) and value != value
