"""From a predicate to a pyarrow expression."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from skipstone.predicate import tree
from skipstone.predicate.foreign import (
    float32_readings,
    has_zero,
    inexpressible,
    is_nan,
    is_number,
    like_regex,
    lowered,
    substring,
)

_NULL = pa.scalar(None, pa.bool_())


def to_arrow(predicate: tree.Predicate) -> pc.Expression:
    """A predicate as a pyarrow expression that gives Spark's answer whatever the columns' types.

    Casts to integers and decimals are pyarrow's safe ones: where Spark would cut or round a value
    they raise when the expression is computed.
    """
    return _write(predicate)


@functools.singledispatch
def _write(expr: tree.Expr) -> pc.Expression:
    raise inexpressible(expr, "pyarrow")


@_write.register
def _(expr: tree.Column) -> pc.Expression:
    return pc.field(expr.path if len(expr.path) > 1 else expr.path[0])


@_write.register
def _(expr: tree.Literal) -> pc.Expression:
    return pc.scalar(expr.scalar)


@_write.register
def _(expr: tree.Cast) -> pc.Expression:
    if expr.lenient or expr.type == pa.int64() or not is_number(expr.type):
        raise inexpressible(
            expr, "pyarrow", "its casts raise, take the column's zone and count timestamps in ticks"
        )
    return _write(expr.arg).cast(expr.type, safe=not pa.types.is_floating(expr.type))


@_write.register
def _(expr: tree.Call) -> pc.Expression:
    part, function = substring(expr), _FUNCTIONS.get((expr.name, len(expr.args)))
    if part is not None:
        return pc.utf8_slice_codeunits(_write(expr.args[0]), part[0], sum(part))
    if function is None:
        raise inexpressible(expr, "pyarrow")
    return pc.Expression._call(function, [_write(arg) for arg in expr.args])


_FUNCTIONS = {
    ("+", 2): "add_checked",
    ("-", 2): "subtract_checked",
    ("*", 2): "multiply_checked",
    ("negative", 1): "negate_checked",
    ("lower", 1): "utf8_lower",
    ("upper", 1): "utf8_upper",
    ("length", 1): "utf8_length",
}


@_write.register
def _(expr: tree.Constant) -> pc.Expression:
    return pc.scalar(pa.scalar(expr.value, pa.bool_()))


@_write.register
def _(expr: tree.Holds) -> pc.Expression:
    return _write(expr.arg)


@_write.register
def _(expr: tree.Compare) -> pc.Expression:
    left, right, op = expr.left, expr.right, expr.op
    if isinstance(left, tree.Literal) and not isinstance(right, tree.Literal):
        left, right, op = right, left, tree.FLIPPED[op]
    x, y = _write(left), _write(right)
    if not isinstance(right, tree.Literal):
        both_null = x.is_null() & y.is_null()
        return (x.is_valid() & y.is_valid() & _equal(x, y)) | both_null if op == "<=>" else _COLUMNS[op](x, y)
    if right.missing:
        return x.is_null() if op == "<=>" else pc.scalar(_NULL)
    if op == "<=>":
        return x.is_valid() & (_NAN["="](x) if is_nan(right.scalar) else x == y)
    if is_nan(right.scalar):
        return _NAN[op](x)
    if op in (">", ">=") and is_number(right.scalar.type):
        return ~(x <= y) if op == ">" else ~(x < y)
    return _IEEE[op](x, y)


def _equal(x: pc.Expression, y: pc.Expression) -> pc.Expression:
    return (x == y) | ((x != x) & (y != y))


def _at_most(x: pc.Expression, y: pc.Expression) -> pc.Expression:
    return (x <= y) | ((y != y) & _known(x))


def _known(x: pc.Expression) -> pc.Expression:
    return pc.Expression._call("true_unless_null", [x])


_IEEE: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_COLUMNS: dict[str, Callable[[pc.Expression, pc.Expression], pc.Expression]] = {
    "=": _equal,
    "<>": lambda x, y: ~_equal(x, y),
    "<": lambda x, y: ~_at_most(y, x),
    "<=": _at_most,
    ">": lambda x, y: ~_at_most(x, y),
    ">=": lambda x, y: _at_most(y, x),
}
_NAN: dict[str, Callable[[pc.Expression], pc.Expression]] = {
    "=": lambda x: x != x,
    ">=": lambda x: x != x,
    "<>": lambda x: x == x,
    "<": lambda x: x == x,
    "<=": _known,
    ">": lambda x: ~_known(x),
}


@_write.register
def _(expr: tree.Between) -> pc.Expression:
    low = tree.Compare(">=" if expr.low_inclusive else ">", expr.arg, expr.low)
    high = tree.Compare("<=" if expr.high_inclusive else "<", expr.arg, expr.high)
    return _write(low) & _write(high)


@_write.register
def _(expr: tree.IsIn) -> pc.Expression:
    if not len(expr.values):
        return pc.scalar(False)
    x, values = _write(expr.arg), expr.values.drop_null()
    # pyarrow casts the list to the column's type, which would round it for a float32 column.
    lossy = float32_readings(values) is not None
    found = pc.is_in(x.cast(pa.float64(), safe=False) if lossy else x, values)
    if has_zero(values):
        found = found | (x == 0)
    if pa.types.is_timestamp(values.type):
        # In a date column the list would lose its times of day.
        days = values.cast(pa.date32()).cast(values.type)
        found = found & ~pc.is_in(x, days.filter(pc.invert(pc.is_in(days, values))))
    return found | (pc.scalar(_NULL) if expr.values.null_count else ~_known(x))


@_write.register
def _(expr: tree.IsNull) -> pc.Expression:
    return _write(expr.arg).is_null()


@_write.register
def _(expr: tree.IsNan) -> pc.Expression:
    x = _write(expr.arg)
    return x != x


@_write.register
def _(expr: tree.Match) -> pc.Expression:
    match = {"prefix": pc.starts_with, "suffix": pc.ends_with, "contains": pc.match_substring}[expr.kind]
    return match(_write(expr.arg), expr.text)


@_write.register
def _(expr: tree.Like) -> pc.Expression:
    like = lowered(expr) if expr.ignore_case else expr
    if "\\" in like.pattern or (like.escape and like.escape in like.pattern):
        return pc.match_substring_regex(_write(like.arg), like_regex(like))
    return pc.match_like(_write(like.arg), like.pattern)


@_write.register
def _(expr: tree.Truth) -> pc.Expression:
    x = _write(expr.arg)
    if expr.value is None:
        return x.is_null()
    return x.is_valid() & (x if expr.value else ~x)


@_write.register
def _(expr: tree.And) -> pc.Expression:
    return functools.reduce(operator.and_, map(_write, expr.args))


@_write.register
def _(expr: tree.Or) -> pc.Expression:
    return functools.reduce(operator.or_, map(_write, expr.args))


@_write.register
def _(expr: tree.Not) -> pc.Expression:
    return ~_write(expr.arg)
