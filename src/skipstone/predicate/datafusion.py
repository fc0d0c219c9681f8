"""DataFusion expressions to predicates and back.

DataFusion orders NaN as Spark does. Other differences depend on the column's type, which is unknown here:
DataFusion truncates a timestamp to the column's unit, and evaluates dates and years in the column's time
zone. Such a comparison becomes an opaque leaf, joined with a wider condition that metadata can judge.

Two quirks are not reproduced; SQL semantics apply instead: an IN list of more than three floats
distinguishes 0.0 from -0.0, and a field of a NULL struct has whatever value its buffer contains.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc
from datafusion import Expr, SessionConfig, SessionContext, col, lit
from datafusion import functions as f

from skipstone.errors import TypeMismatchError
from skipstone.predicate import tree
from skipstone.predicate.foreign import (
    ExpressionWriter,
    TranslationError,
    add_prunable,
    between,
    finer_than_millisecond,
    flatten,
    has_zero,
    like_regex,
    list_values,
    literal,
    millisecond_readings,
    neighbours,
    plain,
)


def from_datafusion(expr: Expr) -> tree.Predicate:
    """Convert a DataFusion expression to a predicate with the same result for every row.

    >>> from datafusion import col, lit
    >>> from_datafusion(col("x") > lit(5))
    Predicate("x > 5")
    """
    return _condition(expr)


def _name(expr: Expr) -> str:
    """Name of the operator or function, or else the kind of the expression."""
    kind = str(expr.variant_name())
    return str(expr.rex_call_operator()) if kind in ("BinaryExpr", "ScalarFunction") else kind


# -- conditions --------------------------------------------------------------------------------


def _condition(expr: Expr) -> tree.Predicate:
    name = _name(expr)
    try:
        if name == "Alias":
            return _condition(*expr.rex_call_operands())
        return _CONDITIONS[name](expr) if name in _CONDITIONS else tree.condition(_value(expr))
    except (TranslationError, TypeMismatchError):
        return _opaque(expr)


def _opaque(expr: Expr) -> tree.Predicate:
    names: dict[str, None] = {}
    tables: set[str] = set()
    by_row = True
    stack = [expr]
    while stack:
        part = stack.pop()
        kind = part.variant_name()
        if kind == "Column":
            column = part.to_variant()
            names[column.name()] = None
            tables.add(column.relation() or "")
        elif kind not in _ROW_BY_ROW:
            by_row = False
        stack.extend(() if kind in ("Column", "Literal") else reversed(part.rex_call_operands()))
    named = tables - {""}
    # Aggregates, windows, subqueries and columns of several tables can't be evaluated on one batch.
    alone = by_row and len(named) < 2 and not any("." in table for table in named)
    evaluate = _DataFusionEvaluator(expr, next(iter(named), "batch")) if alone else None
    return tree.Opaque(tuple(tree.Column((n,)) for n in names), evaluate, str(expr.canonical_name()))


_ROW_BY_ROW = frozenset(
    name
    for names in (
        "Literal BinaryExpr ScalarFunction Alias Between Case Cast InList Like Negative Not RLike SimilarTo",
        "IsFalse IsNotFalse IsNotNull IsNotTrue IsNotUnknown IsNull IsTrue IsUnknown TryCast",
    )
    for name in names.split()
)


@dataclass(frozen=True, slots=True)
class _DataFusionEvaluator:
    """Evaluates a DataFusion expression on a batch, registered under the table name of its columns."""

    expr: Expr
    table: str

    def __call__(self, batch: pa.RecordBatch) -> pa.Array:
        if not batch.num_columns:
            batch = pa.record_batch([pa.nulls(batch.num_rows)], ["none"])
        return _compute(self.expr, batch, self.table).cast(pa.bool_())


def _compute(expr: Expr, batch: pa.RecordBatch, table: str) -> pa.Array:
    # A single partition preserves row order.
    context = SessionContext(SessionConfig().with_target_partitions(1))
    context.register_record_batches(_quoted(table), [[batch]])
    result = context.table(_quoted(table)).select(expr.alias("mask")).to_arrow_table()
    return plain(result.column("mask").combine_chunks())


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _join(expr: Expr) -> tree.Predicate:
    name = _name(expr)
    parts = flatten(expr, lambda part: part.rex_call_operands() if _name(part) == name else None)
    return (tree.conjunction if name == "AND" else tree.disjunction)(map(_condition, parts))


def _compare(op: tree.CompareOp, expr: Expr) -> tree.Predicate:
    left, right = expr.rex_call_operands()
    return _pair(op, left, right, expr)


def _pair(op: tree.CompareOp, left: Expr, right: Expr, exact: Expr) -> tree.Predicate:
    if _is_constant(left) and not _is_constant(right):
        left, right, op = right, left, tree.FLIPPED[op]
    if op == "<=>" and _is_condition(left) and _is_constant(right):
        value = _constant(right).scalar
        if pa.types.is_boolean(value.type):
            return tree.Truth(_condition(left), value.as_py())
    if _is_constant(right) and not _constant(right).missing:
        scalar = _constant(right).scalar
        zoned = _zoned(left)
        if zoned is not None:
            return add_prunable(op, zoned, neighbours(scalar), _opaque(exact))
        readings = millisecond_readings(pa.array([scalar]))
        if readings is not None:
            return add_prunable(op, _value(left), readings, _opaque(exact))
    return tree.Compare(op, _value(left), _value(right))


def _zoned(expr: Expr) -> tree.Expr | None:
    """A date or year of a timestamp, which DataFusion evaluates in the column's zone, up to a day off UTC."""
    if _name(expr) == "Cast" and _cast_type(expr) == "Date32":
        return tree.Cast(_value(*expr.rex_call_operands()), pa.date32())
    if _name(expr) == "date_part":
        part, when = expr.rex_call_operands()
        if _is_constant(part) and str(_constant(part).scalar.as_py()).lower() == "year":
            return tree.Call("year", (_value(when),))
    return None


def _between(expr: Expr) -> tree.Predicate:
    arg, low, high = expr.rex_call_operands()
    inside = between(_pair(">=", arg, low, arg >= low), _pair("<=", arg, high, arg <= high))
    return tree.Not(inside) if expr.to_variant().negated() else inside


def _in_list(expr: Expr) -> tree.Predicate:
    arg, *items = expr.rex_call_operands()
    if not all(_is_constant(item) for item in items):
        raise TranslationError
    values = list_values([_constant(item).scalar for item in items])
    x, negated, readings = _value(arg), expr.to_variant().negated(), millisecond_readings(values)
    if readings is not None:
        return add_prunable("<>" if negated else "=", x, readings, _opaque(expr))
    return tree.Not(tree.IsIn(x, values)) if negated else tree.IsIn(x, values)


def _array_has(expr: Expr) -> tree.Predicate:
    array, arg = expr.rex_call_operands()
    if array.variant_name() != "Literal" or not isinstance(array.python_value(), pa.ListScalar):
        raise TranslationError
    values = plain(array.python_value().values)
    if pa.types.is_timestamp(values.type):
        raise TranslationError
    return tree.IsIn(_value(arg), values)


def _like(expr: Expr) -> tree.Predicate:
    like, (arg, right) = expr.to_variant(), expr.rex_call_operands()
    # DataFusion folds case by its own table ("ſ" is an "s"), Spark by lower().
    if "ilike" in expr.rex_call_operator() or not _is_constant(right):
        raise TranslationError
    pattern, escape = _constant(right).scalar.as_py(), like.escape_char() or "\\"
    if not isinstance(pattern, str) or _BAD_ESCAPE.search(pattern.replace(escape, "\\")):
        raise TranslationError
    node = tree.Like(_value(arg), pattern, escape)
    return tree.Not(node) if like.negated() else node


_BAD_ESCAPE = re.compile(r"(?s)(?<!\\)(?:\\\\)*\\(?:[^%_\\]|\Z)")


def _match(kind: tree.MatchKind, expr: Expr) -> tree.Predicate:
    arg, text = expr.rex_call_operands()
    value = _constant(text).scalar.as_py() if _is_constant(text) else None
    if not isinstance(value, str):
        raise TranslationError
    return tree.Match(kind, _value(arg), value)


def _is_null(expr: Expr) -> tree.Predicate:
    (arg,) = expr.rex_call_operands()
    return tree.Truth(_condition(arg), None) if _is_condition(arg) else tree.IsNull(_value(arg))


def _truth(value: bool | None, expr: Expr) -> tree.Predicate:
    return tree.Truth(_condition(*expr.rex_call_operands()), value)


def _not(inner: Callable[[Expr], tree.Predicate]) -> Callable[[Expr], tree.Predicate]:
    return lambda expr: tree.Not(inner(expr))


def _is_condition(expr: Expr) -> bool:
    return _name(expr) in _CONDITIONS


_COMPARES: dict[str, tree.CompareOp] = {
    "=": "=",
    "!=": "<>",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
    "IS NOT DISTINCT FROM": "<=>",
}
_CONDITIONS: dict[str, Callable[[Expr], tree.Predicate]] = {
    **{name: functools.partial(_compare, op) for name, op in _COMPARES.items()},
    "AND": _join,
    "OR": _join,
    "IS DISTINCT FROM": _not(functools.partial(_compare, "<=>")),
    "Between": _between,
    "InList": _in_list,
    "IsFalse": functools.partial(_truth, False),
    "IsNotFalse": _not(functools.partial(_truth, False)),
    "IsNotNull": _not(_is_null),
    "IsNotTrue": _not(functools.partial(_truth, True)),
    "IsNotUnknown": _not(functools.partial(_truth, None)),
    "IsNull": _is_null,
    "IsTrue": functools.partial(_truth, True),
    "IsUnknown": functools.partial(_truth, None),
    "Like": _like,
    "Not": lambda expr: tree.Not(_condition(*expr.rex_call_operands())),
    "array_has": _array_has,
    "contains": functools.partial(_match, "contains"),
    "ends_with": functools.partial(_match, "suffix"),
    "isnan": lambda expr: tree.IsNan(_value(*expr.rex_call_operands())),
    "starts_with": functools.partial(_match, "prefix"),
}


# -- values ------------------------------------------------------------------------------------


def _value(expr: Expr) -> tree.Expr:
    if _is_constant(expr):
        return _constant(expr)
    name = _name(expr)
    if name not in _VALUES:
        raise TranslationError
    return _VALUES[name](expr)


def _is_constant(expr: Expr) -> bool:
    """Whether this is a literal, or a cast or negation of one."""
    kind = expr.variant_name()
    if kind in ("Cast", "Negative"):
        return _is_constant(*expr.rex_call_operands())
    return bool(kind == "Literal")


def _constant(expr: Expr) -> tree.Literal:
    if expr.variant_name() == "Literal":
        return literal(expr.python_value())
    return literal(_compute(expr, pa.record_batch([pa.nulls(1)], ["none"]), "batch")[0])


def _cast_type(expr: Expr) -> str:
    # The Python API has no accessor for the type; the name ends with it: CAST(x AS Date32).
    return str(expr.canonical_name()).rpartition(" AS ")[2].removesuffix(")")


def _cast(expr: Expr) -> tree.Expr:
    # Wider types can hold a timestamp, which DataFusion casts to ticks and Spark to seconds.
    to = {"Int8": pa.int8(), "Int16": pa.int16()}.get(_cast_type(expr))
    if to is None:
        raise TranslationError
    return tree.Cast(_value(*expr.rex_call_operands()), to)


def _field(expr: Expr) -> tree.Expr:
    base, *names = expr.rex_call_operands()
    column = _value(base)
    parts = [_constant(name).scalar.as_py() for name in names if _is_constant(name)]
    if not isinstance(column, tree.Column) or len(parts) != len(names) or not all(parts):
        raise TranslationError
    return tree.Column((*column.path, *parts))


def _call(name: str, expr: Expr) -> tree.Expr:
    return tree.Call(name, tuple(_value(arg) for arg in expr.rex_call_operands()))


def _substring(minimum: int, name: str, expr: Expr) -> tree.Expr:
    text, *bounds = expr.rex_call_operands()
    numbers = [_constant(bound).scalar.as_py() for bound in bounds if _is_constant(bound)]
    # Engines disagree on smaller positions and lengths.
    if len(numbers) != 1 + minimum or len(bounds) != len(numbers) or numbers[0] < minimum or numbers[-1] < 0:
        raise TranslationError
    return tree.Call(name, (_value(text), *map(tree.lit, numbers)))


# No arithmetic: DataFusion wraps around in the column's type, which is unknown here.
_VALUES: dict[str, Callable[[Expr], tree.Expr]] = {
    "Alias": lambda expr: _value(*expr.rex_call_operands()),
    "Cast": _cast,
    "Column": lambda expr: tree.Column((expr.to_variant().name(),)),
    "character_length": functools.partial(_call, "length"),
    "get_field": _field,
    "left": functools.partial(_substring, 0, "left"),
    "lower": functools.partial(_call, "lower"),
    "substr": functools.partial(_substring, 1, "substr"),
    "upper": functools.partial(_call, "upper"),
}


# -- to DataFusion -----------------------------------------------------------------------------


def to_datafusion(predicate: tree.Predicate) -> Expr:
    """Convert a predicate to a DataFusion expression with Spark's result."""
    expression: Expr = _DataFusionWriter().write(predicate)
    return expression


class _DataFusionWriter(ExpressionWriter):
    library = "DataFusion"
    functions = MappingProxyType(
        {
            ("+", 2): operator.add,
            ("-", 2): operator.sub,
            ("*", 2): operator.mul,
            ("lower", 1): f.lower,
            ("upper", 1): f.upper,
            ("length", 1): f.character_length,
        }
    )

    def column(self, node: tree.Column) -> Expr:
        root, *fields = node.path
        return functools.reduce(operator.getitem, fields, col(_quoted(root)))

    def literal(self, node: tree.Literal) -> Expr:
        return lit(node.scalar)

    def constant(self, value: bool | None) -> Expr:
        return lit(pa.scalar(value, pa.bool_()))

    def cast(self, node: tree.Cast) -> Expr:
        # Wider types can hold a timestamp, which DataFusion casts to ticks and Spark to seconds.
        if node.lenient or node.type not in (pa.int8(), pa.int16(), pa.int32()):
            raise self.inexpressible(node, "DataFusion casts use the column's time zone and unit")
        value: Expr = self.write(node.arg)
        return value.cast(node.type)

    def substring(self, x: Expr, start: int, length: int) -> Expr:
        return f.substring(x, lit(start + 1), lit(length))

    def cut(self, values: pa.Array) -> pa.Array:
        return values.cast(pa.timestamp("ms", values.type.tz), safe=False).cast(values.type)

    def is_in(self, x: Expr, node: tree.IsIn) -> Expr:
        hit, fine = _listed(x, node.values), finer_than_millisecond(node.values)
        if len(fine):
            # For a millisecond column DataFusion truncates these values.
            cut = self.cut(fine)
            hit = hit & ~_listed(x, cut.filter(pc.invert(pc.is_in(cut, node.values))))
        # IN distinguishes 0.0 from -0.0. The optimizer would merge a plain x = 0 into the list.
        return hit | ((x == lit(0)) & (x <= lit(0))) if has_zero(node.values) else hit

    def is_nan(self, x: Expr) -> Expr:
        return f.isnan(x)

    def match(self, x: Expr, node: tree.Match) -> Expr:
        if isinstance(node.text, bytes):
            raise self.inexpressible(node, "DataFusion's string functions don't accept bytes")
        match = {"prefix": f.starts_with, "suffix": f.ends_with, "contains": f.contains}[node.kind]
        return match(x, lit(node.text))

    def pattern(self, x: Expr, node: tree.Like) -> Expr:
        return f.regexp_like(x, lit(like_regex(node)))


def _listed(x: Expr, values: pa.Array) -> Expr:
    # Each literal costs a fraction of a millisecond, so a long list is one array.
    if len(values) > 100 and not pa.types.is_timestamp(values.type):
        offsets = pa.array([0, len(values)], pa.int64())
        return f.array_has(lit(pa.LargeListArray.from_arrays(offsets, values)[0]), x)
    return f.in_list(x, [lit(value) for value in values])
