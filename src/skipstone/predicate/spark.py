"""Conversion from PySpark's data-source filters, and to PySpark Columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
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


def from_spark(filters: object) -> tree.Predicate:
    """Convert one data-source filter, or several joined by AND, to a Predicate."""
    if isinstance(filters, Column):
        raise PredicateError(
            "PySpark Column can't be read from Python: its expression is in the JVM",
            hint="write the condition as SQL",
        )
    if isinstance(filters, ds.Filter):
        return _filter(filters)
    if isinstance(filters, (str, bytes)) or not isinstance(filters, Iterable):
        raise PredicateError(
            f"{type(filters).__name__} can't be converted to a predicate",
            hint="pass PySpark data-source filters, or SQL to skipstone.parse",
        )
    return tree.conjunction([_filter(item) for item in filters])


def _filter(item: object) -> tree.Predicate:
    if isinstance(item, tree.Expr):
        return tree.condition(item)
    if isinstance(item, Column):
        return from_spark(item)
    read = _READERS.get(type(item))
    try:
        converted = read(item) if read else None
    except (TypeError, PredicateError, pa.ArrowException):
        converted = None  # no Arrow scalar for the value
    return tree.Opaque((), None, repr(item)) if converted is None else converted


def _column(item: Any) -> tree.Column:
    return tree.Column(tuple(item.attribute))


def _compare(item: Any) -> tree.Predicate | None:
    if isinstance(item.value, (list, tuple, dict)):
        return None  # arrays, structs and maps are not comparable
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
    """Convert ``predicate`` to a Column that is safe with the pruning of Spark's Parquet reader.

    That reader loses the NaN rows of ``f > 2`` and the -0.0 rows of ``f = 0``, so such comparisons are
    written in forms that Spark doesn't push down. With ``schema`` only float columns are rewritten.
    """
    return functions.expr(to_spark_sql(predicate, schema))


def to_spark_sql(predicate: tree.Predicate, schema: pa.Schema | None = None) -> str:
    """Like :func:`to_spark`, as SQL."""
    return to_sql(_guard(predicate, schema, False), "spark")


def _guard(node: tree.Predicate, schema: pa.Schema | None, negated: bool) -> tree.Predicate:
    """Add explicit tests for NaN and -0.0 where Spark's reader would lose rows.

    Spark's optimizer can negate a leaf below a NOT, so there NaN is also excluded explicitly.
    """
    match node:
        case tree.And(args):
            return tree.And(tuple(_guard(arg, schema, negated) for arg in args))
        case tree.Or(args):
            return tree.Or(tuple(_guard(arg, schema, negated) for arg in args))
        case tree.Not(arg):
            return tree.Not(_guard(arg, schema, True))
        case tree.Truth(tree.IsNan(), True):
            return node
        case tree.Truth(arg, value):
            return tree.Truth(_guard(arg, schema, True), value)
        case tree.IsNan(arg):
            return tree.Or((node, _nan(arg)))
        case tree.Between():
            ends = tuple(_guard(end, schema, negated) for end in node.ends)
            return node if ends == node.ends else tree.And(ends)
        case tree.Compare():
            return _guard_compare(node, schema, negated)
        case tree.IsIn():
            return _guard_list(node, schema, negated)
    return node


def _guard_compare(node: tree.Compare, schema: pa.Schema | None, negated: bool) -> tree.Predicate:
    arg, op, literal = node.left, node.op, node.right
    if isinstance(arg, tree.Literal):
        arg, op, literal = literal, tree.FLIPPED[op], arg
    if not isinstance(literal, tree.Literal) or literal.missing:
        return node
    kind = literal.scalar.type
    if not _may_be_float(arg, kind, schema):
        return node
    if literal.scalar.as_py() == 0:
        literal = tree.Literal(_POSITIVE_ZERO, literal.zone) if pa.types.is_floating(kind) else literal
        arg = _magnitude(arg) if op in ("=", "<=>") else arg
        node = tree.Compare(op, arg, literal)
    holds = ("=", ">=", "<=", "<=>") if is_nan(literal.scalar) else (">", ">=", "<>")
    return _add_nan_test(node, arg, op in holds, negated)


def _guard_list(node: tree.IsIn, schema: pa.Schema | None, negated: bool) -> tree.Predicate:
    values = node.values
    if not len(values) or not _may_be_float(node.arg, values.type, schema):
        return node
    numbers = values.cast(pa.float64(), safe=False)
    zero = pc.equal(numbers, 0.0).fill_null(False)
    if pc.any(zero).as_py():
        is_zero = tree.Compare("=", _magnitude(node.arg), tree.Literal(_POSITIVE_ZERO))
        others = tree.IsIn(node.arg, values.filter(pc.invert(zero)), node.zone)
        return tree.disjunction((is_zero, *([_guard(others, schema, negated)] if len(others.values) else [])))
    has_nan = bool(pc.any(pc.is_nan(numbers)).as_py())
    if not has_nan and values.null_count:
        return node  # NOT IN with a NULL is never TRUE, so no row can be lost
    return _add_nan_test(node, node.arg, has_nan, negated)


_POSITIVE_ZERO = pa.scalar(0.0)


def _magnitude(arg: tree.Expr) -> tree.Expr:
    """Absolute value as a double: 0.0 for both zeros, without overflow."""
    return tree.Call("abs", (tree.Cast(arg, pa.float64()),))


def _nan(arg: tree.Expr) -> tree.Predicate:
    return tree.Truth(tree.IsNan(arg), True)


def _add_nan_test(node: tree.Predicate, arg: tree.Expr, holds: bool, negated: bool) -> tree.Predicate:
    if holds:
        return tree.Or((node, _nan(arg)))
    return tree.And((node, tree.Not(_nan(arg)))) if negated else node


def _may_be_float(arg: tree.Expr, other: pa.DataType, schema: pa.Schema | None) -> bool:
    """Whether ``arg``, compared with constants of type ``other``, can be a floating-point value."""
    if not is_number(other):
        return False
    if schema is None or not isinstance(arg, tree.Column):
        return True
    kind: Any = schema
    for name in arg.path:
        at = kind.get_field_index(name) if isinstance(kind, (pa.Schema, pa.StructType)) else -1
        if at < 0:
            return True
        kind = kind.field(at).type
    return bool(pa.types.is_floating(kind))
