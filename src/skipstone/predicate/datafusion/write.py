"""From a predicate to a DataFusion expression."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from datafusion import Expr, col, lit
from datafusion import functions as f

from skipstone.predicate import tree
from skipstone.predicate.foreign import (
    fine_compare,
    finer_than_millisecond,
    has_zero,
    inexpressible,
    like_regex,
    lowered,
    substring,
)

# Beyond this the list is one array: DataFusion takes a fraction of a millisecond for each literal.
_LISTED = 100


def to_datafusion(predicate: tree.Predicate) -> Expr:
    """A predicate as a DataFusion expression that gives Spark's answer."""
    return _write(predicate)


@functools.singledispatch
def _write(expr: tree.Expr) -> Expr:
    raise inexpressible(expr, "DataFusion")


@_write.register
def _(expr: tree.Column) -> Expr:
    root, *fields = expr.path
    column = col('"' + root.replace('"', '""') + '"')
    return functools.reduce(operator.getitem, fields, column)


@_write.register
def _(expr: tree.Literal) -> Expr:
    return lit(expr.scalar)


@_write.register
def _(expr: tree.Cast) -> Expr:
    # Wider types would hold a timestamp, which DataFusion counts in its unit and Spark in seconds.
    if expr.lenient or expr.type not in (pa.int8(), pa.int16(), pa.int32()):
        raise inexpressible(expr, "DataFusion", "it takes the column's zone and unit")
    return _write(expr.arg).cast(expr.type)


@_write.register
def _(expr: tree.Call) -> Expr:
    part, function = substring(expr), _FUNCTIONS.get((expr.name, len(expr.args)))
    if part is not None:
        start, length = (lit(n) for n in (part[0] + 1, part[1]))
        return f.substring(_write(expr.args[0]), start, length)
    if function is None:
        raise inexpressible(expr, "DataFusion")
    return function(*map(_write, expr.args))


_FUNCTIONS: dict[tuple[str, int], Callable[..., Expr]] = {
    ("+", 2): operator.add,
    ("-", 2): operator.sub,
    ("*", 2): operator.mul,
    ("lower", 1): f.lower,
    ("upper", 1): f.upper,
    ("length", 1): f.character_length,
}


@_write.register
def _(expr: tree.Constant) -> Expr:
    return lit(pa.scalar(expr.value, pa.bool_()))


@_write.register
def _(expr: tree.Holds) -> Expr:
    return _write(expr.arg)


@_write.register
def _(expr: tree.Compare) -> Expr:
    left, right, op = expr.left, expr.right, expr.op
    if isinstance(left, tree.Literal):
        left, right, op = right, left, tree.FLIPPED[op]
    x, y = _write(left), _write(right)
    if not isinstance(right, tree.Literal):
        known, unknown = x.is_not_null() & y.is_not_null(), x.is_null() & y.is_null()
        return (known & (x == y)) | unknown if op == "<=>" else _COMPARES[op](x, y)
    if right.missing:
        return x.is_null() if op == "<=>" else _write(tree.Constant(None))
    if op == "<=>":
        return x.is_not_null() & _write(tree.Compare("=", left, right))
    values = pa.array([right.scalar])
    if not len(finer_than_millisecond(values)):
        return _COMPARES[op](x, y)
    return fine_compare(op, x, y, lit(_cut(values)[0]), rounds_up=right.scalar.value < 0)


def _cut(values: pa.Array) -> pa.Array:
    """Timestamps in whole milliseconds, cut towards zero as DataFusion does it."""
    return values.cast(pa.timestamp("ms", values.type.tz), safe=False).cast(values.type)


_COMPARES: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@_write.register
def _(expr: tree.Between) -> Expr:
    low = tree.Compare(">=" if expr.low_inclusive else ">", expr.arg, expr.low)
    high = tree.Compare("<=" if expr.high_inclusive else "<", expr.arg, expr.high)
    return _write(low) & _write(high)


@_write.register
def _(expr: tree.IsIn) -> Expr:
    x, values = _write(expr.arg), expr.values
    if len(values) > _LISTED and not pa.types.is_timestamp(values.type):
        offsets = pa.array([0, len(values)], pa.int64())
        array = lit(pa.LargeListArray.from_arrays(offsets, values)[0])
        return f.array_has(array, x)
    found = _listed(x, values)
    fine = finer_than_millisecond(values)
    if len(fine):
        # A millisecond column would meet these values without the rest of their digits.
        cut = _cut(fine)
        found = found & ~_listed(x, cut.filter(pc.invert(pc.is_in(cut, values))))
    return found | (x == lit(0)) if has_zero(values) else found


def _listed(x: Expr, values: pa.Array) -> Expr:
    return f.in_list(x, [lit(value) for value in values])


@_write.register
def _(expr: tree.IsNull) -> Expr:
    return _write(expr.arg).is_null()


@_write.register
def _(expr: tree.IsNan) -> Expr:
    return f.isnan(_write(expr.arg))


@_write.register
def _(expr: tree.Match) -> Expr:
    if isinstance(expr.text, bytes):
        raise inexpressible(expr, "DataFusion", "its text functions take no bytes")
    match = {"prefix": f.starts_with, "suffix": f.ends_with, "contains": f.contains}[expr.kind]
    return match(_write(expr.arg), lit(expr.text))


@_write.register
def _(expr: tree.Like) -> Expr:
    like = lowered(expr) if expr.ignore_case else expr
    return f.regexp_like(_write(like.arg), lit(like_regex(like)))


@_write.register
def _(expr: tree.Truth) -> Expr:
    x = _write(expr.arg)
    if expr.value is None:
        return x.is_null()
    return x.is_not_null() & (x if expr.value else ~x)


@_write.register
def _(expr: tree.And) -> Expr:
    return functools.reduce(operator.and_, map(_write, expr.args))


@_write.register
def _(expr: tree.Or) -> Expr:
    return functools.reduce(operator.or_, map(_write, expr.args))


@_write.register
def _(expr: tree.Not) -> Expr:
    return ~_write(expr.arg)
