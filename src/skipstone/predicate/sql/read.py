"""Converts sqlglot's syntax tree to predicates."""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType

import pyarrow as pa
from sqlglot import exp

from skipstone.core.plain import string_scalar
from skipstone.errors import ParseError, TypeMismatchError
from skipstone.predicate import tree
from skipstone.predicate.sql.types import (
    EXTRACT_FIELDS,
    FOREIGN,
    INSTANT,
    ITEMS,
    NAIVE,
    SPARK_ALIASES,
    SPARK_LIKE,
    TRUNC_UNITS,
    arrow_type,
    fold,
    interval,
    interval_value,
    number,
    refuse,
    zone_info,
)
from skipstone.predicate.values import value_array


@dataclass(frozen=True, slots=True)
class SqlReader:
    """Converts sqlglot nodes with the semantics of one dialect."""

    dialect: str
    zone: str

    @property
    def spark_like(self) -> bool:
        """Whether strings, escapes and functions follow Spark's rules."""
        return self.dialect in SPARK_LIKE

    def condition(self, node: exp.Expr) -> tree.Predicate:
        return tree.condition(self.value(node))

    def value(self, node: exp.Expr) -> tree.Expr:
        return _read(node, self)

    def literal(self, scalar: pa.Scalar) -> tree.Literal:
        """A literal in the session time zone."""
        return tree.Literal(scalar, self.zone)

    def call(self, name: str, *args: tree.Expr) -> tree.Expr:
        """A function call in the session time zone."""
        return tree.Call(name, args, self.zone)

    def compare(self, op: tree.CompareOp, left: tree.Expr, right: tree.Expr) -> tree.Predicate:
        """A comparison in the session time zone."""
        return tree.Compare(op, left, right, self.zone)

    def foreign(self, name: str) -> str:
        """Name of an operator or function with dialect-specific semantics."""
        return name if self.spark_like else f"{self.dialect}.{name}"


@functools.singledispatch
def _read(node: exp.Expr, to: SqlReader) -> tree.Expr:
    args = [
        child for value in node.args.values() for child in (value if isinstance(value, list) else [value])
    ]
    for kinds, what, hint in _REFUSED:
        if isinstance(node, kinds):
            refuse(node, what, hint)
    if not isinstance(node, (exp.Func, exp.Binary, exp.Unary)):
        refuse(node, f"{node.key} ({node.sql(to.dialect)[:40]})")
    name = node.sql_name().lower() if isinstance(node, exp.Func) else node.key
    return to.call(to.foreign(name), *(to.value(arg) for arg in args if isinstance(arg, exp.Expr)))


_SUBQUERY = "a subquery", "run the subquery first, and list its values: id IN (1, 2)"
_REFUSED: tuple[tuple[tuple[type[exp.Expr], ...], str, str], ...] = (
    ((exp.Query, exp.SubqueryPredicate), *_SUBQUERY),
    ((exp.Window,), "a window function", "compute it on the result"),
    ((exp.Placeholder, exp.Parameter), "an unbound parameter", "write the value itself"),
)


# -- values ------------------------------------------------------------------------------------


@_read.register
def _(node: exp.Column, _to: SqlReader) -> tree.Expr:
    if isinstance(node.this, exp.Star):
        refuse(node, "*")
    return tree.Column(tuple(part.name for part in node.parts))


@_read.register
def _(node: exp.Dot, to: SqlReader) -> tree.Expr:
    if isinstance(node.expression, exp.Anonymous):
        name = ".".join(part.name for part in (*node.parts[:-1], node.expression))
        return to.call(name, *(to.value(arg) for arg in node.expression.expressions))
    base = to.value(node.this)
    if isinstance(base, tree.Column):
        return base.field(node.expression.name)
    return to.call("getfield", base, to.literal(pa.scalar(node.expression.name)))


@_read.register
def _(node: exp.Paren, to: SqlReader) -> tree.Expr:
    return to.value(node.this)


@_read.register
def _(node: exp.Literal, to: SqlReader) -> tree.Expr:
    return to.literal(string_scalar(node.this) if node.is_string else number(node.this))


@_read.register(exp.RawString)
@_read.register(exp.ByteString)
@_read.register(exp.National)
def _(node: exp.Expr, to: SqlReader) -> tree.Expr:
    return to.literal(pa.scalar(node.this))


@_read.register
def _(node: exp.Concat, to: SqlReader) -> tree.Expr:
    return to.literal(pa.scalar("".join(part.name for part in node.expressions)))


@_read.register
def _(node: exp.Boolean, to: SqlReader) -> tree.Expr:
    return to.literal(pa.scalar(node.this))


@_read.register
def _(_node: exp.Null, to: SqlReader) -> tree.Expr:
    return to.literal(pa.scalar(None))


@_read.register
def _(node: exp.HexString, to: SqlReader) -> tree.Expr:
    return to.literal(pa.scalar(bytes.fromhex(node.this.rjust(len(node.this) + len(node.this) % 2, "0"))))


@_read.register
def _(node: exp.Cast, to: SqlReader) -> tree.Expr:
    # sqlglot parses Spark's and Hive's CAST as TryCast; only "safe" marks a real TRY_CAST.
    lenient = bool(node.args.get("safe"))
    kind = arrow_type(node.to, to.dialect)
    arg = node.this
    if kind is None:
        return to.call(to.foreign("cast"), to.value(arg), to.literal(pa.scalar(node.to.sql(to.dialect))))
    if to.dialect == "duckdb" and pa.types.is_integer(kind) and _is_call(arg, "trunc"):
        arg = arg.expressions[0]  # to_sql writes Spark's truncating cast this way; DuckDB's rounds
    value = to.value(arg)
    if isinstance(value, tree.Literal):
        try:
            folded = fold(value.scalar, kind, to.dialect, to.zone)
        except ValueError:
            if not lenient:
                raise _invalid(value, kind) from None
            folded = None
        if folded is not None:
            coarse = pa.types.is_timestamp(kind) and kind.unit in ("s", "ms")
            return to.literal(folded.cast(pa.timestamp("us", kind.tz)) if coarse else folded)
    return tree.Cast(value, kind, to.zone, lenient)


def _invalid(value: tree.Literal, kind: pa.DataType) -> ParseError:
    noun, time = ("a date", "") if pa.types.is_date(kind) else ("a timestamp", " 12:00:00")
    return ParseError(f"{value} is not {noun}", hint=f"write an existing date, as in '2026-01-31{time}'")


def _is_call(node: exp.Expr, name: str) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower() == name and len(node.expressions) == 1


@_read.register
def _(node: exp.Neg, to: SqlReader) -> tree.Expr:
    operand = node.this.unnest()
    if isinstance(operand, exp.Literal) and not operand.is_string:
        return to.literal(number(f"-{operand.this}"))
    value = to.value(operand)
    if _is_interval(value):
        parts = [-part for part in _plain(value)]  # type: ignore[attr-defined]
        return to.literal(interval(*parts))
    if isinstance(value, tree.Literal) and isinstance(plain := value.scalar.as_py(), (int, float, Decimal)):
        folded = fold(pa.scalar(-plain), value.scalar.type, to.dialect, to.zone)
        if folded is not None and not isinstance(plain, bool):
            return to.literal(folded)
    return to.call("negative", value)


_OPERATORS: MappingProxyType[type[exp.Expr], str] = MappingProxyType(
    {
        exp.Add: "+",
        exp.Sub: "-",
        exp.Mul: "*",
        exp.Div: "/",
        exp.Mod: "%",
        exp.DPipe: "concat",
        exp.IntDiv: "div",
        exp.BitwiseAnd: "&",
        exp.BitwiseOr: "|",
        exp.BitwiseXor: "^",
        exp.BitwiseLeftShift: "shiftleft",
        exp.BitwiseRightShift: "shiftright",
    }
)
_BITS = (exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor, exp.BitwiseLeftShift, exp.BitwiseRightShift)


@_read.register(exp.Add)
@_read.register(exp.Sub)
@_read.register(exp.Mul)
@_read.register(exp.Div)
@_read.register(exp.Mod)
@_read.register(exp.DPipe)
@_read.register(exp.IntDiv)
@_read.register(exp.BitwiseAnd)
@_read.register(exp.BitwiseOr)
@_read.register(exp.BitwiseXor)
@_read.register(exp.BitwiseLeftShift)
@_read.register(exp.BitwiseRightShift)
def _(node: exp.Binary, to: SqlReader) -> tree.Expr:
    name = _OPERATORS[type(node)]
    if isinstance(node, _BITS):
        # sqlglot gives all of them one precedence, Spark gives each its own.
        if any(
            isinstance(arg, _BITS) and type(arg) is not type(node) for arg in (node.this, node.expression)
        ):
            raise ParseError(f"{node.sql(to.dialect)} mixes operators of bits", hint="add parentheses")
        if name.startswith("shift") or not to.spark_like:
            name = to.foreign(name)
    if name == "div" or (name == "/" and to.dialect in ("trino", "presto")):
        name = to.foreign(name)  # integer division in these dialects
    left, right = to.value(node.this), to.value(node.expression)
    intervals = _add_intervals(left, right, -1 if name == "-" else 1, to) if name in ("+", "-") else None
    return to.call(name, left, right) if intervals is None else intervals


@_read.register
def _(node: exp.BitwiseNot, to: SqlReader) -> tree.Expr:
    return to.call(to.foreign("~"), to.value(node.this))


@_read.register
def _(node: exp.Anonymous, to: SqlReader) -> tree.Expr:
    name = node.name.lower()
    if name in _AGGREGATES:
        refuse(node, f"the aggregate {name}", "aggregate the rows, then filter the result")
    if to.spark_like and name in _DIFFERENCES and len(node.expressions) == 3:
        refuse(node, f"{name} with a unit", "write datediff(end, start) for the days between two dates")
    return function(name, tuple(to.value(arg) for arg in node.expressions), to.dialect, to.zone)


_DIFFERENCES = frozenset({"datediff", "date_diff", "timestampdiff"})
_AGGREGATES = frozenset(
    name.lower() for cls in exp.ALL_FUNCTIONS if issubclass(cls, exp.AggFunc) for name in cls.sql_names()
)


@_read.register
def _(node: exp.Substring, to: SqlReader) -> tree.Expr:
    args = (node.this, node.args.get("start"), node.args.get("length"))
    return function("substr", tuple(to.value(arg) for arg in args if arg is not None), to.dialect, to.zone)


@_read.register
def _(node: exp.Trim, to: SqlReader) -> tree.Expr:
    name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(node.args.get("position") or "", "trim")
    if node.expression:
        return to.call(to.foreign(name), to.value(node.expression), to.value(node.this))
    return function(name, (to.value(node.this),), to.dialect, to.zone)


@_read.register
def _(node: exp.StrPosition, to: SqlReader) -> tree.Expr:
    return to.call("position", to.value(node.args["substr"]), to.value(node.this))


@_read.register
def _(node: exp.Extract, to: SqlReader) -> tree.Expr:
    return extract(node.this.name, to.value(node.expression), to.dialect, to.zone)


@_read.register
def _(node: exp.If, to: SqlReader) -> tree.Expr:
    otherwise = node.args.get("false")
    other = to.value(otherwise) if otherwise else to.literal(pa.scalar(None))
    return to.call("if", to.condition(node.this), to.value(node.args["true"]), other)


@_read.register
def _(node: exp.Case, to: SqlReader) -> tree.Expr:
    default = node.args.get("default")
    result = to.value(default) if default else to.literal(pa.scalar(None))
    subject = to.value(node.this) if node.this else None
    for branch in reversed(node.args["ifs"]):
        when: tree.Predicate
        when = (
            to.condition(branch.this) if subject is None else to.compare("=", subject, to.value(branch.this))
        )
        result = to.call("if", when, to.value(branch.args["true"]), result)
    return result


@_read.register
def _(node: exp.Interval, to: SqlReader) -> tree.Expr:
    unit = node.args.get("unit")
    amount = to.value(node.this) if node.this else None
    if not isinstance(amount, tree.Literal) or amount.missing:
        refuse(node, "an interval without a constant number")
    plain = amount.scalar.as_py()
    text = f"{plain:f}" if isinstance(plain, Decimal) else str(plain)
    return _interval(lambda: interval_value(text, unit.sql(to.dialect) if unit else ""), to)


def _add_intervals(left: tree.Expr, right: tree.Expr, sign: int, to: SqlReader) -> tree.Expr | None:
    """The sum of two constant intervals; None if one is not an interval."""
    if not (_is_interval(left) and _is_interval(right)):
        return None
    parts = zip(_plain(left), _plain(right), strict=True)  # type: ignore[call-overload]
    total = [a + sign * b for a, b in parts]
    return _interval(lambda: interval(*total), to)


def _interval(make: Callable[[], pa.Scalar], to: SqlReader) -> tree.Expr:
    try:
        value = make()
    except ValueError as error:
        raise ParseError(str(error), hint="write INTERVAL 7 DAYS; (d + INTERVAL 7 DAYS) + 1") from None
    months, days, nanos = value.as_py()
    if to.spark_like and months and (days or nanos):
        message = "interval mixes months with days"
        raise ParseError(message, hint="write two: ts + INTERVAL 1 MONTH + INTERVAL 2 DAYS")
    return to.literal(value)


def _is_interval(value: tree.Expr) -> bool:
    return isinstance(value, tree.Literal) and bool(pa.types.is_interval(value.scalar.type))


@_read.register
def _(node: exp.Bracket, to: SqlReader) -> tree.Expr:
    if len(node.expressions) != 1 or isinstance(node.expressions[0], exp.Slice):
        refuse(node, "a slice of an array")
    return to.call(ITEMS.get(to.dialect, "getitem"), to.value(node.this), to.value(node.expressions[0]))


@_read.register(exp.CurrentTimestamp)
@_read.register(exp.CurrentDate)
@_read.register(exp.Localtimestamp)
def _(node: exp.Func, to: SqlReader) -> tree.Expr:
    return to.call(_CLOCK[type(node)])


_CLOCK: MappingProxyType[type[exp.Expr], str] = MappingProxyType(
    {
        exp.CurrentTimestamp: "current_timestamp",
        exp.CurrentDate: "current_date",
        exp.Localtimestamp: "localtimestamp",
    }
)


@_read.register
def _(node: exp.Lambda, to: SqlReader) -> tree.Expr:
    # Kept as text, since its variables would look like columns.
    return to.call("lambda", to.literal(pa.scalar(node.sql(to.dialect))))


# -- conditions --------------------------------------------------------------------------------

_COMPARISONS: MappingProxyType[type[exp.Expr], tree.CompareOp] = MappingProxyType(
    {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
)


@_read.register(exp.EQ)
@_read.register(exp.NEQ)
@_read.register(exp.LT)
@_read.register(exp.LTE)
@_read.register(exp.GT)
@_read.register(exp.GTE)
def _(node: exp.Binary, to: SqlReader) -> tree.Expr:
    return to.compare(_COMPARISONS[type(node)], to.value(node.this), to.value(node.expression))


@_read.register
def _(node: exp.NullSafeEQ, to: SqlReader) -> tree.Expr:
    left, right = to.value(node.this), to.value(node.expression)
    if isinstance(left, tree.Predicate) and isinstance(right, tree.Literal):
        plain = right.scalar.as_py()
        if plain is None or isinstance(plain, bool):
            return tree.Truth(left, plain)
    return to.compare("<=>", left, right)


@_read.register
def _(node: exp.NullSafeNEQ, to: SqlReader) -> tree.Expr:
    return tree.Not(to.condition(exp.NullSafeEQ(this=node.this, expression=node.expression)))


@_read.register
def _(node: exp.And, to: SqlReader) -> tree.Expr:
    return tree.conjunction(to.condition(part) for part in node.flatten())


@_read.register
def _(node: exp.Or, to: SqlReader) -> tree.Expr:
    return tree.disjunction(to.condition(part) for part in node.flatten())


@_read.register
def _(node: exp.Not, to: SqlReader) -> tree.Expr:
    return tree.Not(to.condition(node.this))


@_read.register
def _(node: exp.Is, to: SqlReader) -> tree.Expr:
    value = to.value(node.this)
    if isinstance(node.expression, exp.Boolean):
        return tree.Truth(tree.condition(value), node.expression.this)
    if not isinstance(node.expression, exp.Null):
        refuse(node, f"IS {node.expression.sql(to.dialect)}", "use = or <> to compare with a value")
    return tree.Truth(value, None) if isinstance(value, tree.Predicate) else tree.IsNull(value)


@_read.register
def _(node: exp.Between, to: SqlReader) -> tree.Expr:
    arg, low, high = (to.value(node.args[name]) for name in ("this", "low", "high"))
    if node.args.get("symmetric"):
        swapped = tree.Between(arg, high, low, zone=to.zone)
        return tree.disjunction((tree.Between(arg, low, high, zone=to.zone), swapped))
    return tree.Between(arg, low, high, zone=to.zone)


@_read.register
def _(node: exp.In, to: SqlReader) -> tree.Expr:
    if node.args.get("field"):
        refuse(node, "IN without parentheses", "list the values in parentheses: id IN (1, 2)")
    if node.args.get("query") or node.args.get("unnest"):
        refuse(node, *_SUBQUERY)
    arg = to.value(node.this)
    items = [to.value(item) for item in node.expressions]
    literals = [item for item in items if isinstance(item, tree.Literal)]
    if len(literals) == len(items):
        try:
            return tree.IsIn(arg, literal_array(literals), to.zone)
        except TypeMismatchError:
            pass  # mixed types that only the column's type can reconcile
    return tree.disjunction(to.compare("=", arg, item) for item in items)


@_read.register(exp.Like)
@_read.register(exp.ILike)
def _(node: exp.Binary, to: SqlReader) -> tree.Expr:
    return _like(node, "\\" if to.spark_like else None, to)


@_read.register
def _(node: exp.Escape, to: SqlReader) -> tree.Expr:
    mark = to.value(node.expression)
    text = mark.scalar.as_py() if isinstance(mark, tree.Literal) else None
    if not isinstance(text, str) or len(text) > 1 or (text == "" and to.dialect != "duckdb"):
        raise ParseError(f"ESCAPE must be one character, not {node.expression.sql(to.dialect)}")
    return _like(node.this, text or None, to)


def _like(node: exp.Binary, escape: str | None, to: SqlReader) -> tree.Predicate:
    arg, quantified = to.value(node.this), node.expression
    several = isinstance(quantified, (exp.Any, exp.All))
    patterns = quantified.this.unnest().expressions or [quantified.this.unnest()] if several else [quantified]
    ignore_case = isinstance(node, exp.ILike)
    parts: list[tree.Predicate] = [
        _like_one(arg, to.value(pattern), escape, ignore_case, to) for pattern in patterns
    ]
    if node.args.get("negate"):
        parts = [tree.Not(part) for part in parts]
    return tree.conjunction(parts) if isinstance(quantified, exp.All) else tree.disjunction(parts)


def _like_one(
    arg: tree.Expr, pattern: tree.Expr, escape: str | None, ignore_case: bool, to: SqlReader
) -> tree.Predicate:
    if isinstance(pattern, tree.Literal) and pa.types.is_string(pattern.scalar.type) and not pattern.missing:
        return tree.Like(arg, pattern.scalar.as_py(), escape, ignore_case)
    mark = () if escape == "\\" else (to.literal(pa.scalar(escape)),)
    return tree.BooleanValue(to.call("ilike" if ignore_case else "like", arg, pattern, *mark))


@_read.register
def _(node: exp.RegexpLike, to: SqlReader) -> tree.Expr:
    return tree.BooleanValue(to.call(to.foreign("rlike"), to.value(node.this), to.value(node.expression)))


Args = tuple[tree.Expr, ...]


def function(name: str, args: Args, dialect: str, zone: str) -> tree.Expr:
    """``name(args)`` with the dialect's semantics; unknown functions become a Call too."""
    spark_name = _spark_name(name, args, dialect)
    if spark_name is None:
        return tree.Call(f"{dialect}.{name}", args, zone)
    special = SPECIAL.get(spark_name)
    node = special(args, dialect, zone) if special else None
    return tree.Call(spark_name, args, zone) if node is None else node


def extract(field: str, arg: tree.Expr, dialect: str, zone: str) -> tree.Expr:
    """``EXTRACT(field FROM arg)`` as a function call."""
    name = EXTRACT_FIELDS.get(field.lower())
    if name is None and dialect in SPARK_LIKE:
        name = _SPARK_FIELDS.get(field.lower())
    if name is None:
        own = "extract" if dialect in SPARK_LIKE else f"{dialect}.extract"
        return tree.Call(own, (tree.lit(field.lower(), zone=zone), arg), zone)
    return tree.Call(name, (arg,), zone)


def literal_array(literals: Sequence[tree.Literal]) -> pa.Array:
    """Convert the literals of an IN list to one array, widening mixed numbers."""
    scalars = [literal.scalar for literal in literals]
    kinds = {scalar.type for scalar in scalars if scalar.is_valid}
    if len(kinds) == 1:
        return pa.array([scalar if scalar.is_valid else None for scalar in scalars], kinds.pop())
    return value_array(scalar.as_py() for scalar in scalars)


_SPARK_FIELDS = MappingProxyType({"dow": "dayofweek", "dayofweek": "dayofweek", "mon": "month", "yr": "year"})


def _spark_name(name: str, args: Args, dialect: str) -> str | None:
    if dialect in SPARK_LIKE:
        return SPARK_ALIASES.get(name, name)
    if name == "date" and len(args) == 1:
        return name
    spark_name = FOREIGN[dialect].get(name)
    # Dialects disagree on positions and lengths below one.
    if spark_name in ("substr", "left") and not all(_is_positive(arg) for arg in args[1:]):
        return None
    return spark_name


def _is_positive(arg: tree.Expr) -> bool:
    value = _plain(arg)
    return isinstance(value, int) and value > 0


def _plain(arg: tree.Expr) -> object:
    return arg.scalar.as_py() if isinstance(arg, tree.Literal) else None


# -- functions with their own nodes ---------------------------------------------------------------


def _isnan(args: Args, dialect: str, _zone: str) -> tree.Expr | None:
    if len(args) != 1:
        return None
    # Spark's isnan(NULL) is FALSE, the node's is NULL.
    return tree.Truth(tree.IsNan(args[0]), True) if dialect in SPARK_LIKE else tree.IsNan(args[0])


def _match(kind: tree.MatchKind) -> Callable[[Args, str, str], tree.Expr | None]:
    def build(args: Args, _dialect: str, _zone: str) -> tree.Expr | None:
        text = _plain(args[1]) if len(args) == 2 else None
        return tree.Match(kind, args[0], text) if isinstance(text, (str, bytes)) else None

    return build


def _like_call(ignore_case: bool) -> Callable[[Args, str, str], tree.Expr | None]:
    def build(args: Args, _dialect: str, _zone: str) -> tree.Expr | None:
        strings = [_plain(arg) for arg in args[1:]]
        if len(args) not in (2, 3) or not all(isinstance(text, str) for text in strings):
            return None
        pattern, escape = (*map(str, strings), "\\")[:2]
        return tree.Like(args[0], pattern, escape, ignore_case)

    return build


def _is_null(args: Args, _dialect: str, _zone: str) -> tree.Expr | None:
    return tree.IsNull(args[0]) if len(args) == 1 else None


def _is_not_null(args: Args, _dialect: str, _zone: str) -> tree.Expr | None:
    return tree.Not(tree.IsNull(args[0])) if len(args) == 1 else None


def _date_trunc(args: Args, _dialect: str, zone: str) -> tree.Expr | None:
    if len(args) != 2:
        return None
    unit, arg = (
        args if isinstance(args[0], tree.Literal) or not isinstance(args[1], tree.Literal) else args[::-1]
    )
    text = _plain(unit)
    if isinstance(text, str):
        unit = tree.lit(TRUNC_UNITS.get(text.lower(), text.lower()), zone=zone)
    return tree.Call("date_trunc", (unit, arg), zone)


def _date_part(args: Args, dialect: str, zone: str) -> tree.Expr | None:
    field = _plain(args[0]) if len(args) == 2 else None
    return extract(field, args[1], dialect, zone) if isinstance(field, str) else None


def _cast(kind: pa.DataType) -> Callable[[Args, str, str], tree.Expr | None]:
    def build(args: Args, dialect: str, zone: str) -> tree.Expr | None:
        if len(args) != 1:
            return None
        if isinstance(args[0], tree.Literal):
            try:
                folded = fold(args[0].scalar, kind, dialect, zone)
            except ValueError:
                raise _invalid(args[0], kind) from None
            if folded is not None:
                return tree.Literal(folded, zone)
        return tree.Cast(args[0], kind, zone)

    return build


def _add_time(args: Args, _dialect: str, zone: str) -> tree.Expr | None:
    """``timestampadd(unit, n, x)``, also called ``dateadd``, with a constant number."""
    if len(args) != 3:
        return None
    hint = "write timestampadd(DAY, 7, ts)"
    if not isinstance(args[0], tree.Column):
        raise ParseError(f"unit must be a name without quotes, got {args[0]}", hint=hint)
    count = _plain(args[1])
    if not isinstance(count, int):
        raise ParseError(f"{args[1]} is not a constant integer", hint=hint)
    try:
        months, days, nanos = interval_value(str(count), args[0].path[-1]).as_py()
        if abs(nanos) >= 86_400 * 10**9 and not isinstance(zone_info(zone), dt.timezone):
            # Spark adds elapsed hours here, and days of the zone for the same interval.
            raise ValueError(f"{count} {args[0]} are more than a day in a zone with summer time")
        # In hours, so that the result is a timestamp even for a date.
        span = interval(months, 0, nanos + days * 86_400 * 10**9)
    except ValueError as error:
        raise ParseError(str(error)) from None
    return tree.Call("+", (args[2], tree.Literal(span, zone)), zone)


def _instr(args: Args, _dialect: str, zone: str) -> tree.Expr | None:
    return tree.Call("position", args[::-1], zone) if len(args) == 2 else None


def _nvl2(args: Args, _dialect: str, zone: str) -> tree.Expr | None:
    return tree.Call("if", (tree.Not(tree.IsNull(args[0])), *args[1:]), zone) if len(args) == 3 else None


def _trunc(args: Args, _dialect: str, zone: str) -> tree.Expr | None:
    """``trunc(date, unit)``: the first day of the year, quarter, month or week."""
    unit = _plain(args[1]) if len(args) == 2 else None
    if not isinstance(unit, str):
        return None
    name = TRUNC_UNITS.get(unit.lower(), unit.lower())
    if name not in ("year", "quarter", "month", "week"):
        raise ParseError(f"unknown unit {unit!r} of trunc", hint="use year, quarter, month or week")
    start = tree.Cast(tree.Cast(args[0], pa.date32(), zone), NAIVE, zone)
    return tree.Cast(tree.Call("date_trunc", (tree.lit(name, zone=zone), start), zone), pa.date32(), zone)


def _unix_timestamp(args: Args, _dialect: str, zone: str) -> tree.Expr | None:
    if len(args) != 1 or (isinstance(args[0], tree.Cast) and args[0].type == INSTANT):
        return None
    return tree.Call("unix_timestamp", (tree.Cast(args[0], INSTANT, zone),), zone)


def _unhex(args: Args, _dialect: str, zone: str) -> tree.Expr | None:
    text = _plain(args[0]) if len(args) == 1 else None
    try:
        return tree.lit(bytes.fromhex(text), zone=zone) if isinstance(text, str) else None
    except ValueError:
        return None


SPECIAL: MappingProxyType[str, Callable[[Args, str, str], tree.Expr | None]] = MappingProxyType(
    {
        "bigint": _cast(pa.int64()),
        "binary": _cast(pa.binary()),
        "boolean": _cast(pa.bool_()),
        "contains": _match("contains"),
        "date": _cast(pa.date32()),
        "date_add": _add_time,
        "date_part": _date_part,
        "date_trunc": _date_trunc,
        "datepart": _date_part,
        "double": _cast(pa.float64()),
        "endswith": _match("suffix"),
        "float": _cast(pa.float32()),
        "ilike": _like_call(ignore_case=True),
        "instr": _instr,
        "int": _cast(pa.int32()),
        "isnan": _isnan,
        "isnotnull": _is_not_null,
        "isnull": _is_null,
        "like": _like_call(ignore_case=False),
        "nvl2": _nvl2,
        "smallint": _cast(pa.int16()),
        "startswith": _match("prefix"),
        "string": _cast(pa.string()),
        "timestamp": _cast(INSTANT),
        "timestampadd": _add_time,
        "tinyint": _cast(pa.int8()),
        "to_date": _cast(pa.date32()),
        "to_timestamp": _cast(INSTANT),
        "trunc": _trunc,
        "unhex": _unhex,
        "unix_timestamp": _unix_timestamp,
    }
)
"""Functions that become nodes of their own, if their arguments are supported."""
