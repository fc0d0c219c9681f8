"""Renders an expression for display as short, Spark-flavoured SQL, without importing a SQL library."""

from __future__ import annotations

import functools

import pyarrow as pa

from skipstone.core.plain import type_name
from skipstone.predicate import tree

_LOOSE, _AND, _NOT, _TIGHT = 0, 1, 2, 3
_MAX_VALUES = 6
_OPERATORS = frozenset("+-*/%&|^")
_DAY = 86_400 * 10**9


def render(expr: tree.Expr) -> str:
    """Render ``expr`` on one line."""
    return _render(expr)[0]


def _inside(expr: tree.Expr, level: int) -> str:
    text, own = _render(expr)
    return text if own >= level else f"({text})"


@functools.singledispatch
def _render(expr: tree.Expr) -> tuple[str, int]:
    raise AssertionError(f"no rendering for {type(expr).__name__}")


@_render.register
def _(expr: tree.Column) -> tuple[str, int]:
    return ".".join(_identifier(part) for part in expr.path), _TIGHT


@_render.register
def _(expr: tree.Literal) -> tuple[str, int]:
    return value_text(expr.scalar), _TIGHT


@_render.register
def _(expr: tree.Cast) -> tuple[str, int]:
    verb = "try_cast" if expr.lenient else "cast"
    return f"{verb}({_inside(expr.arg, _LOOSE)} as {type_name(expr.type)})", _TIGHT


@_render.register
def _(expr: tree.Call) -> tuple[str, int]:
    if expr.name in _OPERATORS and len(expr.args) == 2:
        left, right = (_inside(arg, _TIGHT) for arg in expr.args)
        return f"({left} {expr.name} {right})", _TIGHT
    if expr.name == "getitem" and len(expr.args) == 2:
        return f"{_inside(expr.args[0], _TIGHT)}[{_inside(expr.args[1], _LOOSE)}]", _TIGHT
    return f"{expr.name}({', '.join(_inside(arg, _LOOSE) for arg in expr.args)})", _TIGHT


@_render.register
def _(expr: tree.Constant) -> tuple[str, int]:
    return {True: "TRUE", False: "FALSE", None: "NULL"}[expr.value], _TIGHT


@_render.register
def _(expr: tree.BooleanValue) -> tuple[str, int]:
    return _inside(expr.arg, _TIGHT), _TIGHT


@_render.register
def _(expr: tree.Compare) -> tuple[str, int]:
    return f"{_inside(expr.left, _TIGHT)} {expr.op} {_inside(expr.right, _TIGHT)}", _NOT


@_render.register
def _(expr: tree.Between) -> tuple[str, int]:
    arg, low, high = (_inside(e, _TIGHT) for e in (expr.arg, expr.low, expr.high))
    if expr.low_inclusive and expr.high_inclusive:
        return f"{arg} BETWEEN {low} AND {high}", _NOT
    lower = ">=" if expr.low_inclusive else ">"
    upper = "<=" if expr.high_inclusive else "<"
    return f"{arg} {lower} {low} AND {arg} {upper} {high}", _AND


@_render.register
def _(expr: tree.IsIn) -> tuple[str, int]:
    items = [value_text(v) for v in expr.values[:_MAX_VALUES]]
    if len(expr.values) > _MAX_VALUES:
        items.append(f"… {len(expr.values) - _MAX_VALUES:,} more")
    return f"{_inside(expr.arg, _TIGHT)} IN ({', '.join(items)})", _NOT


@_render.register
def _(expr: tree.InKeys) -> tuple[str, int]:
    count = len(expr.values)
    return f"{_inside(expr.arg, _TIGHT)} IN ({count:,} {'key' if count == 1 else 'keys'})", _NOT


@_render.register
def _(expr: tree.IsNull) -> tuple[str, int]:
    return f"{_inside(expr.arg, _TIGHT)} IS NULL", _NOT


@_render.register
def _(expr: tree.IsNan) -> tuple[str, int]:
    return f"isnan({_inside(expr.arg, _LOOSE)})", _TIGHT


@_render.register
def _(expr: tree.Match) -> tuple[str, int]:
    arg = _inside(expr.arg, _TIGHT)
    if isinstance(expr.text, bytes) or any(c in expr.text for c in "%_\\"):
        name = {"prefix": "startswith", "suffix": "endswith", "contains": "contains"}[expr.kind]
        return f"{name}({arg}, {value_text(pa.scalar(expr.text))})", _TIGHT
    before = "" if expr.kind == "prefix" else "%"
    after = "" if expr.kind == "suffix" else "%"
    return f"{arg} LIKE {_quote(before + expr.text + after)}", _NOT


@_render.register
def _(expr: tree.Like) -> tuple[str, int]:
    verb = "ILIKE" if expr.ignore_case else "LIKE"
    escape = "" if expr.escape == "\\" else f" ESCAPE {_quote(expr.escape or '')}"
    return f"{_inside(expr.arg, _TIGHT)} {verb} {_quote(expr.pattern)}{escape}", _NOT


@_render.register
def _(expr: tree.Truth) -> tuple[str, int]:
    word = {True: "TRUE", False: "FALSE", None: "UNKNOWN"}[expr.value]
    return f"{_inside(expr.arg, _TIGHT)} IS {word}", _NOT


@_render.register
def _(expr: tree.And) -> tuple[str, int]:
    return " AND ".join(_inside(arg, _AND) for arg in expr.args), _AND


@_render.register
def _(expr: tree.Or) -> tuple[str, int]:
    return " OR ".join(_inside(arg, _AND) for arg in expr.args), _LOOSE


@_render.register
def _(expr: tree.Not) -> tuple[str, int]:
    if isinstance(expr.arg, tree.IsNull):
        return f"{_inside(expr.arg.arg, _TIGHT)} IS NOT NULL", _NOT
    return f"NOT {_inside(expr.arg, _NOT)}", _NOT


@_render.register
def _(expr: tree.Opaque) -> tuple[str, int]:
    return expr.text, _TIGHT


def value_text(scalar: pa.Scalar) -> str:
    """Render one value as a SQL literal."""
    if not scalar.is_valid:
        return "NULL"
    kind = scalar.type
    if pa.types.is_interval(kind) or pa.types.is_duration(kind):
        return interval_text(scalar)
    if pa.types.is_temporal(kind):
        return _quote(str(scalar.cast(pa.string())))
    value = scalar.as_py()
    if isinstance(value, str):
        return _quote(value)
    if isinstance(value, bytes):
        return f"X'{value.hex().upper()}'"
    return str(value).upper() if isinstance(value, bool) else str(value)


def interval_text(scalar: pa.Scalar) -> str:
    """Render an interval as SQL: ``INTERVAL '1' MONTH``, ``INTERVAL '7' DAY``, or of several units."""
    if pa.types.is_duration(scalar.type):
        nanos = scalar.value * {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[scalar.type.unit]
        months, days = 0, abs(nanos) // _DAY * (1 if nanos >= 0 else -1)
        nanos -= days * _DAY
    else:
        months, days, nanos = scalar.as_py()
    seconds, fraction = divmod(abs(nanos), 10**9)
    amount = f"{seconds}.{fraction:09d}".rstrip("0") if fraction else str(seconds)
    parts = [(str(months), "MONTH"), (str(days), "DAY"), (f"{'-' if nanos < 0 else ''}{amount}", "SECOND")]
    written = [f"'{count}' {unit}" for count, unit in parts if count != "0"] or ["'0' DAY"]
    return f"INTERVAL {' '.join(written)}"


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _identifier(part: str) -> str:
    return part if part.isidentifier() else f"`{part.replace('`', '``')}`"
