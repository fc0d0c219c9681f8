"""From a predicate to a Polars expression."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import polars as pl
import pyarrow as pa

from skipstone.errors import NotExpressibleError
from skipstone.predicate import tree
from skipstone.predicate.foreign import (
    fine_compare,
    finer_than_millisecond,
    inexpressible,
    like_regex,
    lowered,
    substring,
)


def to_polars(predicate: tree.Predicate) -> pl.Expr:
    """A predicate as a Polars expression that gives Spark's answer."""
    return _write(predicate)


@functools.singledispatch
def _write(expr: tree.Expr) -> pl.Expr:
    raise inexpressible(expr, "Polars")


@_write.register
def _(expr: tree.Column) -> pl.Expr:
    root, *fields = expr.path
    if root == "*" or (root.startswith("^") and root.endswith("$")):
        raise NotExpressibleError(f"{expr}: Polars takes the name for a pattern")
    return functools.reduce(lambda base, name: base.struct.field(name), fields, pl.col(root))


@_write.register
def _(expr: tree.Literal) -> pl.Expr:
    kind = expr.scalar.type
    if pa.types.is_integer(kind):
        # Typed, it would pull an unsigned column into floats.
        return pl.lit(expr.scalar.as_py())
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        raise inexpressible(expr, "Polars", "its literals end at microseconds")
    series = _series(pa.array([expr.scalar]))
    return pl.lit(series.item(), dtype=series.dtype)


def _series(values: pa.Array) -> pl.Series:
    try:
        series = pl.from_arrow(values)
    except (pl.exceptions.PolarsError, pa.ArrowException) as error:
        raise inexpressible(f"a value of type {values.type}", "Polars", str(error)) from error
    assert isinstance(series, pl.Series)
    return series


@_write.register
def _(expr: tree.Cast) -> pl.Expr:
    to = _TYPES.get(expr.type)
    if to is None or expr.lenient or (expr.type == pa.date32() and expr.zone != "UTC"):
        raise inexpressible(expr, "Polars", "its formats, zones and bad values are its own")
    return _write(expr.arg).cast(to)


# Wider types would hold a timestamp, which Polars counts in its unit and Spark in seconds.
_TYPES = {
    pa.int8(): pl.Int8,
    pa.int16(): pl.Int16,
    pa.int32(): pl.Int32,
    pa.date32(): pl.Date,
}


@_write.register
def _(expr: tree.Call) -> pl.Expr:
    if (expr.name, len(expr.args)) in _FUNCTIONS:
        return _FUNCTIONS[expr.name, len(expr.args)](_write(expr.args[0]))
    part = substring(expr)
    if part is None:
        raise inexpressible(expr, "Polars")
    return _write(expr.args[0]).str.slice(*part)


_FUNCTIONS: dict[tuple[str, int], Callable[[pl.Expr], pl.Expr]] = {
    ("lower", 1): lambda x: x.str.to_lowercase(),
    ("upper", 1): lambda x: x.str.to_uppercase(),
    ("length", 1): lambda x: x.str.len_chars(),
}


@_write.register
def _(expr: tree.Constant) -> pl.Expr:
    return pl.lit(expr.value, dtype=pl.Boolean)


@_write.register
def _(expr: tree.Holds) -> pl.Expr:
    return _write(expr.arg)


@_write.register
def _(expr: tree.Compare) -> pl.Expr:
    left, right, op = expr.left, expr.right, expr.op
    if isinstance(left, tree.Literal):
        left, right, op = right, left, tree.FLIPPED[op]
    x = _write(left)
    if not isinstance(right, tree.Literal):
        return _COMPARES[op](x, _write(right))
    if right.missing:
        return x.is_null() if op == "<=>" else pl.lit(None, dtype=pl.Boolean)
    y = _write(right)
    if not len(finer_than_millisecond(pa.array([right.scalar]))):
        return _COMPARES[op](x, y)
    # Polars cuts the literal to the unit of the column.
    ticks = right.scalar.cast(pa.int64()).as_py() // 1000 * 1000
    cut = _write(tree.Literal(pa.scalar(ticks, pa.int64()).cast(right.scalar.type)))
    found = fine_compare("=" if op == "<=>" else op, x, y, cut, rounds_up=False)
    return found.fill_null(pl.lit(False)) if op == "<=>" else found


_COMPARES: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "<=>": pl.Expr.eq_missing,
}


@_write.register
def _(expr: tree.Between) -> pl.Expr:
    low = tree.Compare(">=" if expr.low_inclusive else ">", expr.arg, expr.low)
    high = tree.Compare("<=" if expr.high_inclusive else "<", expr.arg, expr.high)
    return _write(low) & _write(high)


@_write.register
def _(expr: tree.IsIn) -> pl.Expr:
    if not len(expr.values):
        return pl.lit(False)
    found = _write(expr.arg).is_in(_series(expr.values.drop_null()).implode())
    return found | pl.lit(None, dtype=pl.Boolean) if expr.values.null_count else found


@_write.register
def _(expr: tree.IsNull) -> pl.Expr:
    return _write(expr.arg).is_null()


@_write.register
def _(expr: tree.IsNan) -> pl.Expr:
    return _write(expr.arg).is_nan()


@_write.register
def _(expr: tree.Match) -> pl.Expr:
    x, text = _write(expr.arg), pl.lit(expr.text)
    space = x.bin if isinstance(expr.text, bytes) else x.str
    if expr.kind == "contains":
        return space.contains(text, **({} if isinstance(expr.text, bytes) else {"literal": True}))
    return space.starts_with(text) if expr.kind == "prefix" else space.ends_with(text)


@_write.register
def _(expr: tree.Like) -> pl.Expr:
    like = lowered(expr) if expr.ignore_case else expr
    return _write(like.arg).str.contains(like_regex(like))


@_write.register
def _(expr: tree.Truth) -> pl.Expr:
    x = _write(expr.arg)
    return x.is_null() if expr.value is None else x.eq_missing(pl.lit(expr.value))


@_write.register
def _(expr: tree.And) -> pl.Expr:
    return functools.reduce(operator.and_, map(_write, expr.args))


@_write.register
def _(expr: tree.Or) -> pl.Expr:
    return functools.reduce(operator.or_, map(_write, expr.args))


@_write.register
def _(expr: tree.Not) -> pl.Expr:
    return ~_write(expr.arg)
