"""Polars expressions to predicates and back.

Polars orders NaN as Spark does. Two differences depend on the column's type, which is unknown here: an
untyped float literal is rounded for a float32 column, and a timestamp is truncated to the column's unit.
Such a comparison becomes an opaque leaf, joined with a wider condition that metadata can judge.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import polars as pl
import pyarrow as pa

from skipstone.core.plain import type_name
from skipstone.errors import TypeMismatchError
from skipstone.predicate import tree
from skipstone.predicate.foreign import (
    OPERATORS,
    ExpressionWriter,
    TranslationError,
    add_prunable,
    between,
    finite,
    flatten,
    float32_readings,
    infinite,
    like_regex,
    literal,
    millisecond_readings,
    neighbours,
    plain,
)
from skipstone.predicate.values import value_array


def from_polars(expr: pl.Expr) -> tree.Predicate:
    """Convert a Polars expression to a predicate with the same result for every row.

    >>> import polars as pl
    >>> from_polars(pl.col("x") > 5)
    Predicate("x > 5")
    """
    try:
        return _condition(_Node(expr, json.loads(expr.meta.serialize(format="json"))))
    except (RecursionError, pl.exceptions.ComputeError):
        return _opaque(expr)


_PARTS: dict[str, Callable[[Any], list[Any]]] = {
    "BinaryExpr": lambda body: [body["left"], body["right"]],
    "Function": lambda body: body["input"],
    "Cast": lambda body: [body["expr"]],
    "Alias": lambda body: body[:1],
    "Agg": lambda body: [next(iter(body.values()))["input"]],
}


@dataclass(frozen=True, slots=True)
class _Node:
    """A Polars expression with its JSON form, which alone can't represent NaN or infinity."""

    expr: pl.Expr
    json: Any

    @property
    def kind(self) -> str:
        return self.json if isinstance(self.json, str) else next(iter(self.json))

    @property
    def body(self) -> Any:
        return None if isinstance(self.json, str) else self.json[self.kind]

    @property
    def name(self) -> str:
        """Name of the function or operator, empty for other nodes."""
        if self.kind == "BinaryExpr":
            return str(self.body["op"])
        return _function(self.body["function"])[0] if self.kind == "Function" else ""

    @property
    def options(self) -> Any:
        return _function(self.body["function"])[1]

    @property
    def args(self) -> list[_Node]:
        parts = _PARTS[self.kind](self.body)
        # meta.pop() returns the last argument first.
        return [_Node(e, j) for e, j in zip(reversed(self.expr.meta.pop()), parts, strict=True)]


def _function(body: Any) -> tuple[str, Any]:
    """Full name of a function, such as Boolean.IsBetween, and its options."""
    if isinstance(body, str):
        return body, None
    ((space, inner),) = body.items()
    if isinstance(inner, str):
        return f"{space}.{inner}", None
    if not isinstance(inner, dict) or len(inner) != 1:
        return space, inner
    ((name, options),) = inner.items()
    return f"{space}.{name}", options


# -- conditions --------------------------------------------------------------------------------


def _condition(node: _Node) -> tree.Predicate:
    try:
        if node.kind == "Alias":
            return _condition(node.args[0])
        if node.name in _CONDITIONS:
            return _CONDITIONS[node.name](node)
        return tree.condition(_value(node))
    except (TranslationError, TypeMismatchError):
        return _opaque(node.expr)


def _opaque(expr: pl.Expr) -> tree.Predicate:
    text = " ".join(str(expr).split())
    if expr.meta.has_multiple_outputs() or not _is_row_wise(expr):
        # Selectors, and expressions that depend on other rows, can't be evaluated row by row.
        return tree.Opaque((), None, text)
    roots = dict.fromkeys(expr.meta.root_names())
    return tree.Opaque(tuple(tree.Column((r,)) for r in roots), _PolarsEvaluator(expr), text)


def _is_row_wise(expr: pl.Expr) -> bool:
    stack = [expr]
    while stack:
        part = stack.pop()
        stack.extend(part.meta.pop())
        if part.meta.is_literal():
            row_wise = pl.select(part).height == 1
        else:
            try:
                same_length = part.meta.is_length_preserving() or part.meta.is_scalar()
                row_wise = same_length and part.meta.is_row_separable()
            except pl.exceptions.PolarsError:
                # Polars can't tell for a Python function, but serializes the flag set by its author.
                row_wise = "| ROW_SEPARABLE |" in part.meta.serialize(format="json")
        if not row_wise:
            return False
    return True


@dataclass(frozen=True, slots=True)
class _PolarsEvaluator:
    """Evaluates a Polars expression on a batch."""

    expr: pl.Expr

    def __call__(self, batch: pa.RecordBatch) -> pa.Array:
        frame = pl.from_arrow(pa.Table.from_batches([batch])) if batch.num_columns else pl.DataFrame()
        assert isinstance(frame, pl.DataFrame)
        mask = frame.select(self.expr.alias("mask")).to_series().cast(pl.Boolean)
        return plain(mask.new_from_index(0, batch.num_rows).to_arrow() if len(mask) == 1 else mask.to_arrow())


def _join(node: _Node) -> tree.Predicate:
    parts = flatten(node, lambda part: part.args if part.name in _JOINS[node.name] else None)
    return (tree.conjunction if "And" in _JOINS[node.name] else tree.disjunction)(map(_condition, parts))


_JOINS = {name: names for names in (("And", "LogicalAnd"), ("Or", "LogicalOr")) for name in names}


def _horizontal(node: _Node) -> tree.Predicate:
    join = tree.conjunction if node.name.endswith("AllHorizontal") else tree.disjunction
    return join(_condition(arg) for arg in node.args)


def _compare(op: tree.CompareOp, node: _Node) -> tree.Predicate:
    return _pair(op, *node.args)


def _operation(op: tree.CompareOp, x: pl.Expr, y: pl.Expr) -> pl.Expr:
    return x.eq_missing(y) if op == "<=>" else OPERATORS[op](x, y)


def _pair(op: tree.CompareOp, left: _Node, right: _Node) -> tree.Predicate:
    if left.kind == "Literal" and right.kind != "Literal":
        left, right, op = right, left, tree.FLIPPED[op]
    if op == "<=>" and left.name in _CONDITIONS and right.kind == "Literal":
        value = _literal(right).scalar
        if pa.types.is_boolean(value.type):
            return tree.Truth(_condition(left), value.as_py())
    exact = functools.partial(_opaque, _operation(op, left.expr, right.expr))
    if left.name in _ZONED and right.kind == "Literal":
        x = _ZONED[left.name](_value(left.args[0]))
        return add_prunable(op, x, neighbours(_literal(right).scalar), exact())
    x, y = _value(left), _value(right)
    if isinstance(y, tree.Literal) and not y.missing:
        values = pa.array([y.scalar])
        untyped = "Dyn" in right.body
        readings = (float32_readings(values) if untyped else None) or millisecond_readings(values)
        if readings is not None:
            return add_prunable(op, x, readings, exact())
    return tree.Compare(op, x, y)


# Polars evaluates these in the column's time zone, up to a day off UTC.
_ZONED: dict[str, Callable[[tree.Expr], tree.Expr]] = {
    "TemporalExpr.Date": lambda x: tree.Cast(x, pa.date32()),
    "TemporalExpr.Year": lambda x: tree.Call("year", (x,)),
}


def _between(node: _Node) -> tree.Predicate:
    arg, low, high = node.args
    closed = node.options["closed"]
    above = _pair(">=" if closed in ("Both", "Left") else ">", arg, low)
    return between(above, _pair("<=" if closed in ("Both", "Right") else "<", arg, high))


def _is_in(node: _Node) -> tree.Predicate:
    left, right = node.args
    x, values = _value(left), _values(right)
    # Polars ignores a NULL in the list unless nulls_equal is set; then it matches NULL.
    hit = tree.IsIn(x, values.drop_null())
    if not node.options["nulls_equal"]:
        return hit if len(hit.values) else tree.And((tree.IsNull(x), tree.Constant(None)))
    matches = tree.Truth(hit, True)
    return tree.Or((matches, tree.IsNull(x))) if values.null_count else matches


def _values(node: _Node) -> pa.Array:
    if node.kind == "Agg" and "Implode" in node.body:
        return _values(node.args[0])
    series = _series(node)
    if isinstance(series.dtype, (pl.List, pl.Array)):
        if len(series) != 1:
            raise TranslationError
        series = series.explode(empty_as_null=False)
    return _arrow(series)


def _is_null(node: _Node) -> tree.Predicate:
    (arg,) = node.args
    return tree.Truth(_condition(arg), None) if arg.name in _CONDITIONS else tree.IsNull(_value(arg))


def _match(kind: tree.MatchKind, node: _Node) -> tree.Predicate:
    left, right = node.args
    if kind == "contains" and node.name.startswith("StringExpr") and not node.options["literal"]:
        raise TranslationError
    if right.kind != "Literal":
        raise TranslationError
    text = _literal(right)
    return tree.Constant(None) if text.missing else tree.Match(kind, _value(left), text.scalar.as_py())


def _not(inner: Callable[[_Node], tree.Predicate]) -> Callable[[_Node], tree.Predicate]:
    return lambda node: tree.Not(inner(node))


def _is_nan(node: _Node) -> tree.Predicate:
    return tree.IsNan(_value(node.args[0]))


_COMPARES: dict[str, tree.CompareOp] = {
    "Eq": "=",
    "NotEq": "<>",
    "Lt": "<",
    "LtEq": "<=",
    "Gt": ">",
    "GtEq": ">=",
    "EqValidity": "<=>",
}
_CONDITIONS: dict[str, Callable[[_Node], tree.Predicate]] = {
    **{name: functools.partial(_compare, op) for name, op in _COMPARES.items()},
    **dict.fromkeys(_JOINS, _join),
    "NotEqValidity": _not(functools.partial(_compare, "<=>")),
    "Boolean.AllHorizontal": _horizontal,
    "Boolean.AnyHorizontal": _horizontal,
    "Boolean.IsBetween": _between,
    "Boolean.IsFinite": lambda node: finite(_value(node.args[0])),
    "Boolean.IsIn": _is_in,
    "Boolean.IsInfinite": lambda node: infinite(_value(node.args[0])),
    "Boolean.IsNan": _is_nan,
    "Boolean.IsNotNan": _not(_is_nan),
    "Boolean.IsNotNull": _not(_is_null),
    "Boolean.IsNull": _is_null,
    "Boolean.Not": lambda node: tree.Not(_condition(node.args[0])),
    "BinaryExpr.Contains": functools.partial(_match, "contains"),
    "BinaryExpr.EndsWith": functools.partial(_match, "suffix"),
    "BinaryExpr.StartsWith": functools.partial(_match, "prefix"),
    "StringExpr.Contains": functools.partial(_match, "contains"),
    "StringExpr.EndsWith": functools.partial(_match, "suffix"),
    "StringExpr.StartsWith": functools.partial(_match, "prefix"),
}


# -- values ------------------------------------------------------------------------------------


def _value(node: _Node) -> tree.Expr:
    if node.kind == "Alias":
        return _value(node.args[0])
    if node.kind == "Column":
        return tree.Column((node.body,))
    if node.kind == "Literal":
        return _literal(node)
    if node.kind == "Cast":
        return _cast(node)
    if node.name not in _VALUES:
        raise TranslationError
    return _VALUES[node.name](node)


def _series(node: _Node) -> pl.Series:
    if node.kind != "Literal":
        raise TranslationError
    return pl.select(node.expr).to_series()


def _arrow(series: pl.Series) -> pa.Array:
    if series.dtype in (pl.Int128, pl.UInt128):
        return value_array([None if v is None else int(v) for v in series])
    return plain(series.to_arrow(compat_level=pl.CompatLevel.oldest()))


def _literal(node: _Node) -> tree.Literal:
    series = _series(node)
    if len(series) != 1:
        raise TranslationError
    converted = literal(_arrow(series)[0])
    if "Int" not in str(node.body.get("Dyn")):
        return converted
    # An untyped integer is just a number.
    return tree.Literal(value_array([converted.scalar.as_py()])[0])


def _cast(node: _Node) -> tree.Expr:
    # Other Polars casts return NULL where Spark raises, or timestamps as ticks.
    if node.body["dtype"] != {"Literal": "Date"} or node.body["options"] != "Strict":
        raise TranslationError
    return tree.Cast(_value(node.args[0]), pa.date32())


def _field(node: _Node) -> tree.Expr:
    base = _value(node.args[0])
    if not isinstance(base, tree.Column):
        raise TranslationError
    return tree.Column((*base.path, node.options))


def _call(name: str, node: _Node) -> tree.Expr:
    return tree.Call(name, tuple(_value(arg) for arg in node.args))


def _slice(node: _Node) -> tree.Expr:
    text, *bounds = node.args
    numbers = [_literal(bound).scalar.as_py() for bound in bounds]
    start, count = numbers if len(numbers) == 2 else (0, numbers[0])
    if not isinstance(start, int) or not isinstance(count, int) or start < 0 or count < 0:
        raise TranslationError
    return tree.Call("substr", (_value(text), tree.lit(start + 1), tree.lit(count)))


# No arithmetic: Polars wraps around in the column's type, which is unknown here.
_VALUES: dict[str, Callable[[_Node], tree.Expr]] = {
    "StructExpr.FieldByName": _field,
    "StringExpr.Head": _slice,
    "StringExpr.LenChars": functools.partial(_call, "length"),
    "StringExpr.Lowercase": functools.partial(_call, "lower"),
    "StringExpr.Slice": _slice,
    "StringExpr.Uppercase": functools.partial(_call, "upper"),
}


# -- to Polars ---------------------------------------------------------------------------------


def to_polars(predicate: tree.Predicate) -> pl.Expr:
    """Convert a predicate to a Polars expression with Spark's result."""
    expression: pl.Expr = _PolarsWriter().write(predicate)
    return expression


class _PolarsWriter(ExpressionWriter):
    library = "Polars"
    functions = MappingProxyType(
        {
            ("lower", 1): lambda x: x.str.to_lowercase(),
            ("upper", 1): lambda x: x.str.to_uppercase(),
            ("length", 1): lambda x: x.str.len_chars(),
        }
    )
    # Wider types can hold a timestamp, which Polars casts to ticks and Spark to seconds.
    casts = MappingProxyType(
        {pa.int8(): pl.Int8, pa.int16(): pl.Int16, pa.int32(): pl.Int32, pa.date32(): pl.Date}
    )

    def column(self, node: tree.Column) -> pl.Expr:
        root, *fields = node.path
        if root == "*" or (root.startswith("^") and root.endswith("$")):
            raise self.inexpressible(node, "Polars treats the column name as a pattern")
        return functools.reduce(lambda base, name: base.struct.field(name), fields, pl.col(root))

    def literal(self, node: tree.Literal) -> pl.Expr:
        kind = node.scalar.type
        if pa.types.is_integer(kind):
            # A typed literal would cast an unsigned column to float.
            return pl.lit(node.scalar.as_py())
        series = self._series(pa.array([node.scalar]))
        if not _fits_python(node.scalar):
            raise self.inexpressible(node, "Polars literals are limited to microseconds and Python's dates")
        return pl.lit(series.item(), dtype=series.dtype)

    def _series(self, values: pa.Array) -> pl.Series:
        if pa.types.is_decimal256(values.type):  # Polars would panic
            raise self.inexpressible(
                f"a value of type {type_name(values.type)}", "Polars decimals have at most 38 digits"
            )
        try:
            return pl.Series(pl.from_arrow(values))
        except (pl.exceptions.PolarsError, pa.ArrowException) as error:
            raise self.inexpressible(f"a value of type {type_name(values.type)}", str(error)) from error

    def constant(self, value: bool | None) -> pl.Expr:
        return pl.lit(value, dtype=pl.Boolean)

    def cast(self, node: tree.Cast) -> pl.Expr:
        to = self.casts.get(node.type)
        if to is None or node.lenient or (to is pl.Date and node.zone != "UTC"):
            raise self.inexpressible(node, "Polars casts differ in formats, time zones and errors")
        value: pl.Expr = self.write(node.arg)
        return value.cast(to)

    def substring(self, x: pl.Expr, start: int, length: int) -> pl.Expr:
        return x.str.slice(start, length)

    def truth(self, x: pl.Expr, value: bool | None) -> pl.Expr:
        return x.is_null() if value is None else x.eq_missing(pl.lit(value))

    def compare(self, op: tree.CompareOp, x: pl.Expr, y: pl.Expr) -> pl.Expr:
        return _operation(op, x, y)

    def cut(self, values: pa.Array) -> pa.Array:
        microseconds = values.cast(pa.int64()).to_numpy()
        return pa.array(microseconds // 1000 * 1000).cast(values.type)

    def is_in(self, x: pl.Expr, node: tree.IsIn) -> pl.Expr:
        return x.is_in(self._series(node.values).implode())

    def is_nan(self, x: pl.Expr) -> pl.Expr:
        return x.is_nan()

    def match(self, x: pl.Expr, node: tree.Match) -> pl.Expr:
        space, text = x.bin if isinstance(node.text, bytes) else x.str, pl.lit(node.text)
        if node.kind == "contains":
            return space.contains(text, **({} if isinstance(node.text, bytes) else {"literal": True}))
        return space.starts_with(text) if node.kind == "prefix" else space.ends_with(text)

    def pattern(self, x: pl.Expr, node: tree.Like) -> pl.Expr:
        return x.str.contains(like_regex(node))


def _fits_python(scalar: pa.Scalar) -> bool:
    """Whether the constant fits Python's dates and times; otherwise Polars panics or drops digits."""
    kind = scalar.type
    if scalar.is_valid and getattr(kind, "unit", "") == "ns":
        return not pa.types.is_timestamp(kind) and scalar.value % 1000 == 0
    try:
        scalar.as_py()
    except (OverflowError, ValueError):
        return False
    return True
