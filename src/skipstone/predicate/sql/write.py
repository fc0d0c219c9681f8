"""Writes a Predicate as SQL, through sqlglot's syntax tree so that quoting follows the dialect.

The SQL has Spark's semantics in the target engine. Parsing it returns the same tree, except:

- an exclusive BETWEEN becomes two comparisons, an empty IN list FALSE, and a LIKE without an escape
  character gets one in Spark and Hive;
- in Spark and Hive a bare ``IsNan`` (NULL for NULL) becomes ``x = NaN``, since their isnan is FALSE for NULL;
- startswith, endswith and contains become LIKE in dialects without these functions, and ILIKE becomes
  LIKE on lower-case strings;
- in Hive a lenient cast becomes a plain one, which returns NULL on failure anyway;
- literals of unusual Arrow types (large strings, unsigned, s/ms/ns timestamps) get the usual type.

Casts, date functions and comparisons of strings with timestamps use the session time zone, as in Spark: run
the SQL in a session with the predicate's zone. Trino and Presto compare NaN by IEEE rules.
"""

from __future__ import annotations

import datetime as dt
import functools
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import cast

import pyarrow as pa
from sqlglot import exp

from skipstone.core.plain import type_name
from skipstone.errors import NotExpressibleError
from skipstone.predicate import tree
from skipstone.predicate.sql.types import (
    FOREIGN,
    ITEMS,
    SPARK_LIKE,
    UNIT_DIGITS,
    check_dialect,
    number,
    sql_type,
)
from skipstone.predicate.text import interval_text


def to_sql(predicate: tree.Predicate, dialect: str = "spark") -> str:
    """Convert ``predicate`` to SQL of the dialect, or raise an error that names the unsupported part."""
    name = check_dialect(dialect)
    return _write(predicate, SqlWriter(name)).sql(name, normalize_functions=False)


_ATOMS = (
    exp.Column,
    exp.Dot,
    exp.Literal,
    exp.Var,
    exp.Cast,
    exp.Anonymous,
    exp.Boolean,
    exp.Null,
    exp.HexString,
)


# -- literals: the same value and type in every dialect ------------------------------------------


@dataclass(frozen=True, slots=True)
class SqlWriter:
    """Writes strings, casts and errors of one dialect."""

    dialect: str

    @property
    def spark_like(self) -> bool:
        """Whether strings, escapes and functions follow Spark's rules."""
        return self.dialect in SPARK_LIKE

    def unsupported(self, node: tree.Expr, why: str = "") -> NotExpressibleError:
        """Error for a part that the dialect can't express."""
        return NotExpressibleError(f"{self.dialect} SQL can't express {str(node)[:80]}{why and f': {why}'}")

    def string(self, text: str) -> exp.Expr:
        if not self.spark_like:
            return exp.Literal.string(text)
        # sqlglot would write control characters as escapes that consume a following digit.
        escaped = text.replace("\\", "\\\\").replace("'", "\\'")
        return exp.Var(this=f"'{escaped}'")

    def cast(self, node: exp.Expr, kind: pa.DataType, part: tree.Expr, *, lenient: bool = False) -> exp.Expr:
        """``CAST(node AS kind)``; raises an error that names ``part`` if the dialect has no such type."""
        name = sql_type(kind, self.dialect)
        if name is None:
            raise self.unsupported(part, f"no type for {type_name(kind)}")
        to = exp.DataType(this=exp.DType.USERDEFINED, kind=name)
        return exp.TryCast(this=node, to=to, safe=True) if lenient else exp.Cast(this=node, to=to)


def literal(node: tree.Literal, to: SqlWriter) -> exp.Expr:
    """Write a literal that has the same type and value in the target engine."""
    scalar = node.scalar
    kind = scalar.type
    if not scalar.is_valid:
        return exp.Null() if pa.types.is_null(kind) else to.cast(exp.Null(), _usual(kind), node)
    for test, build in _LITERALS:
        if test(kind):
            return build(node, scalar, to)
    raise to.unsupported(node, f"no literal of type {type_name(kind)}")


def _usual(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz and "UTC")
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    return kind


def raw_number(text: str) -> exp.Expr:
    """A number, written verbatim."""
    return exp.Var(this=text)


def _boolean(_node: tree.Literal, scalar: pa.Scalar, _to: SqlWriter) -> exp.Expr:
    return exp.Boolean(this=scalar.as_py())


def _integer(node: tree.Literal, scalar: pa.Scalar, to: SqlWriter) -> exp.Expr:
    text = raw_number(str(scalar.as_py()))
    typed = scalar.type != pa.int64() and sql_type(scalar.type, to.dialect)
    return to.cast(text, scalar.type, node) if typed else text


def _double(node: tree.Literal, scalar: pa.Scalar, to: SqlWriter) -> exp.Expr:
    value = scalar.as_py()
    wide = scalar.type == pa.float64()
    if math.isfinite(value):
        # With an exponent it is a double in every dialect; a plain 0.1 is a decimal.
        text = raw_number(repr(value) if "e" in repr(value) else f"{value!r}e0")
        return text if wide else to.cast(text, pa.float32(), node)
    if math.isnan(value) and to.dialect in ("trino", "presto"):
        raise to.unsupported(node, "NaN is not equal to itself there; use isnan")
    text = to.string("NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity")
    return to.cast(text, pa.float64() if wide else pa.float32(), node)


def _decimal(node: tree.Literal, scalar: pa.Scalar, to: SqlWriter) -> exp.Expr:
    text = f"{scalar.as_py():f}"
    natural = number(text).type
    if natural == scalar.type and natural.precision <= 38:
        return raw_number(text)
    return to.cast(raw_number(text), scalar.type, node)


def _string(_node: tree.Literal, scalar: pa.Scalar, to: SqlWriter) -> exp.Expr:
    return to.string(scalar.as_py())


def _bytes(node: tree.Literal, scalar: pa.Scalar, to: SqlWriter) -> exp.Expr:
    digits = scalar.as_py().hex().upper()
    if to.dialect == "hive":
        return exp.Anonymous(this="unhex", expressions=[to.string(digits)])
    if to.dialect == "duckdb":
        escaped = "".join(f"\\x{digits[at : at + 2]}" for at in range(0, len(digits), 2))
        return to.cast(to.string(escaped), pa.binary(), node)
    return exp.Var(this=f"X'{digits}'")


def _date(node: tree.Literal, scalar: pa.Scalar, to: SqlWriter) -> exp.Expr:
    try:
        day = scalar.cast(pa.date32()).as_py()
    except (ValueError, OverflowError):
        raise to.unsupported(node, "years 1 to 9999 only") from None
    return to.cast(to.string(day.isoformat()), pa.date32(), node)


def _timestamp(node: tree.Literal, scalar: pa.Scalar, to: SqlWriter) -> exp.Expr:
    unit, tz = scalar.type.unit, scalar.type.tz and "UTC"
    scale = 10 ** UNIT_DIGITS[unit]
    seconds, fraction = divmod(scalar.value, scale)
    nanos = fraction * (10**9 // scale)
    finest = "ns" if nanos % 1000 else "us"
    if sql_type(pa.timestamp("us"), to.dialect) is None and nanos % 10**6 == 0:
        finest = "ms"
    try:
        day = dt.datetime(1970, 1, 1) + dt.timedelta(seconds=seconds)
    except OverflowError:
        raise to.unsupported(node, "years 1 to 9999 only") from None
    text = day.isoformat(" ") + (f".{nanos:09d}".rstrip("0") if nanos else "")
    if tz:
        text += "+00:00" if to.dialect == "duckdb" else " UTC"
    return to.cast(to.string(text), pa.timestamp(finest, tz), node)


def _time(node: tree.Literal, scalar: pa.Scalar, to: SqlWriter) -> exp.Expr:
    if scalar.type == pa.time64("ns") and scalar.value % 1000:
        raise to.unsupported(node, "times are limited to microseconds")
    return to.cast(to.string(scalar.cast(pa.time64("us")).as_py().isoformat()), pa.time64("us"), node)


def _interval(_node: tree.Literal, scalar: pa.Scalar, _to: SqlWriter) -> exp.Expr:
    parts = [f"INTERVAL {part}" for part in re.findall(r"'[^']*' [A-Z]+", interval_text(scalar))]
    return exp.Var(this=parts[0] if len(parts) == 1 else f"({' + '.join(parts)})")


_Build = Callable[[tree.Literal, pa.Scalar, SqlWriter], exp.Expr]
_LITERALS: tuple[tuple[Callable[[pa.DataType], bool], _Build], ...] = (
    (pa.types.is_boolean, _boolean),
    (pa.types.is_integer, _integer),
    (pa.types.is_floating, _double),
    (pa.types.is_decimal, _decimal),
    (lambda t: t in (pa.string(), pa.large_string(), pa.string_view()), _string),
    (
        lambda t: pa.types.is_fixed_size_binary(t) or t in (pa.binary(), pa.large_binary(), pa.binary_view()),
        _bytes,
    ),
    (pa.types.is_date, _date),
    (pa.types.is_timestamp, _timestamp),
    (pa.types.is_time, _time),
    (pa.types.is_interval, _interval),
)


# -- nodes of the tree -----------------------------------------------------------------------


def _inner(node: tree.Expr, to: SqlWriter) -> exp.Expr:
    """Write an operand, in parentheses unless it is atomic."""
    written = _write(node, to)
    return written if isinstance(written, _ATOMS) else exp.Paren(this=written)


@functools.singledispatch
def _write(node: tree.Expr, to: SqlWriter) -> exp.Expr:
    raise to.unsupported(node)


# -- values ------------------------------------------------------------------------------------


@_write.register
def _(node: tree.Column, _to: SqlWriter) -> exp.Expr:
    names = [exp.to_identifier(part, quoted=True) for part in node.path]
    return exp.Column(this=names[0]) if len(names) == 1 else exp.Dot.build(names)


@_write.register
def _(node: tree.Literal, to: SqlWriter) -> exp.Expr:
    return literal(node, to)


@_write.register
def _(node: tree.Cast, to: SqlWriter) -> exp.Expr:
    arg = _write(node.arg, to)
    if to.dialect == "duckdb" and pa.types.is_integer(node.type):
        arg = exp.Anonymous(this="trunc", expressions=[arg])  # DuckDB rounds, Spark truncates
    return to.cast(arg, node.type, node, lenient=node.lenient)


_OPERATORS: MappingProxyType[str, type[exp.Binary]] = MappingProxyType(
    {
        "+": exp.Add,
        "-": exp.Sub,
        "*": exp.Mul,
        "/": exp.Div,
        "%": exp.Mod,
        "&": exp.BitwiseAnd,
        "|": exp.BitwiseOr,
        "^": exp.BitwiseXor,
    }
)


@_write.register
def _(node: tree.Call, to: SqlWriter) -> exp.Expr:
    own, _, bare = node.name.rpartition(".")
    if (own == to.dialect and bare == "/") or (node.name in _OPERATORS and len(node.args) == 2):
        if node.name == "/" and to.dialect in ("trino", "presto"):
            raise to.unsupported(node, "division of integers returns an integer there")
        if node.name in "&|^" and not to.spark_like:
            raise to.unsupported(node, "no equivalent operator")
        return _OPERATORS[bare or node.name](
            this=_inner(node.args[0], to), expression=_inner(node.args[1], to)
        )
    special = _SPECIAL.get(node.name)
    if special is not None:
        return special(node, to)
    name = bare if own == to.dialect else _function_name(node, to)
    return exp.Anonymous(this=name, expressions=[_write(arg, to) for arg in node.args])


def _function_name(node: tree.Call, to: SqlWriter) -> str:
    if to.spark_like:
        if "." in node.name:
            raise to.unsupported(node)
        return node.name
    name = _TO_FOREIGN[to.dialect].get(node.name)
    low = any(_below_one(arg) for arg in node.args[1:]) if node.name in ("substr", "left") else False
    if name is None or low:
        raise to.unsupported(node, "no equivalent function")
    return name


_TO_FOREIGN = MappingProxyType(
    {dialect: {spark: own for own, spark in reversed(names.items())} for dialect, names in FOREIGN.items()}
)


def _below_one(arg: tree.Expr) -> bool:
    value = arg.scalar.as_py() if isinstance(arg, tree.Literal) else None
    return not isinstance(value, int) or value < 1


def _negative(node: tree.Call, to: SqlWriter) -> exp.Expr:
    return exp.Neg(this=exp.Paren(this=_write(node.args[0], to)))


def _concat(node: tree.Call, to: SqlWriter) -> exp.Expr:
    # DuckDB's concat() skips NULLs, || does not.
    return functools.reduce(
        lambda left, right: exp.DPipe(this=left, expression=right), (_inner(arg, to) for arg in node.args)
    )


def _if(node: tree.Call, to: SqlWriter) -> exp.Expr:
    when, then, otherwise = (_write(arg, to) for arg in node.args)
    return exp.Case(ifs=[exp.If(this=when, true=then)], default=otherwise)


def _getitem(node: tree.Call, to: SqlWriter) -> exp.Expr:
    if node.name != ITEMS.get(to.dialect, "getitem"):
        if not to.spark_like:
            raise to.unsupported(node, "indexes of arrays differ")
        return exp.Anonymous(this=node.name, expressions=[_write(arg, to) for arg in node.args])
    return exp.Bracket(this=_inner(node.args[0], to), expressions=[_write(arg, to) for arg in node.args[1:]])


def _clock(node: tree.Call, to: SqlWriter) -> exp.Expr:
    name = node.name
    bare = name != "localtimestamp" or not to.spark_like
    return exp.Var(this=name) if bare else exp.Anonymous(this=name)


def _getfield(node: tree.Call, to: SqlWriter) -> exp.Expr:
    name = cast("tree.Literal", node.args[1]).scalar.as_py()
    return exp.Dot(this=_inner(node.args[0], to), expression=exp.to_identifier(name, quoted=True))


def _lambda(node: tree.Call, to: SqlWriter) -> exp.Expr:
    if not to.spark_like:
        raise to.unsupported(node)
    return exp.Var(this=cast("tree.Literal", node.args[0]).scalar.as_py())


_SPECIAL: MappingProxyType[str, Callable[[tree.Call, SqlWriter], exp.Expr]] = MappingProxyType(
    {
        "concat": _concat,
        "current_date": _clock,
        "current_timestamp": _clock,
        "element_at": _getitem,
        "getfield": _getfield,
        "getitem": _getitem,
        "if": _if,
        "lambda": _lambda,
        "localtimestamp": _clock,
        "negative": _negative,
        "try_element_at": _getitem,
    }
)


# -- conditions --------------------------------------------------------------------------------

_COMPARISONS: MappingProxyType[str, type[exp.Binary]] = MappingProxyType(
    {
        "=": exp.EQ,
        "<>": exp.NEQ,
        "<": exp.LT,
        "<=": exp.LTE,
        ">": exp.GT,
        ">=": exp.GTE,
        "<=>": exp.NullSafeEQ,
    }
)


@_write.register
def _(node: tree.Constant, to: SqlWriter) -> exp.Expr:
    return to.cast(exp.Null(), pa.bool_(), node) if node.value is None else exp.Boolean(this=node.value)


@_write.register
def _(node: tree.BooleanValue, to: SqlWriter) -> exp.Expr:
    return _write(node.arg, to)


@_write.register
def _(node: tree.Compare, to: SqlWriter) -> exp.Expr:
    return _COMPARISONS[node.op](this=_inner(node.left, to), expression=_inner(node.right, to))


@_write.register
def _(node: tree.Between, to: SqlWriter) -> exp.Expr:
    arg, low, high = (_inner(part, to) for part in (node.arg, node.low, node.high))
    if node.low_inclusive and node.high_inclusive:
        return exp.Between(this=arg, low=low, high=high)
    lower = (exp.GTE if node.low_inclusive else exp.GT)(this=arg, expression=low)
    upper = (exp.LTE if node.high_inclusive else exp.LT)(this=arg.copy(), expression=high)
    return exp.And(this=lower, expression=upper)


@_write.register
def _(node: tree.IsIn, to: SqlWriter) -> exp.Expr:
    if len(node.values) == 0:
        return exp.Boolean(this=False)
    kind = node.values.type
    if kind == pa.int64():  # one node even for a million values
        words = ", ".join("NULL" if value is None else str(value) for value in node.values.to_pylist())
        return exp.In(this=_inner(node.arg, to), expressions=[raw_number(words)])
    plain = pa.types.is_decimal(kind) and pa.array(node.values.to_pylist()).type == kind
    return exp.In(
        this=_inner(node.arg, to), expressions=[_item(v, node.zone, plain, to) for v in node.values]
    )


def _item(scalar: pa.Scalar, zone: str, plain: bool, to: SqlWriter) -> exp.Expr:
    if not scalar.is_valid:
        return exp.Null()
    return raw_number(f"{scalar.as_py():f}") if plain else literal(tree.Literal(scalar, zone), to)


@_write.register
def _(node: tree.IsNull, to: SqlWriter) -> exp.Expr:
    return exp.Is(this=_inner(node.arg, to), expression=exp.Null())


@_write.register
def _(node: tree.IsNan, to: SqlWriter) -> exp.Expr:
    if to.spark_like:
        nan = to.cast(to.string("NaN"), pa.float64(), node)
        return exp.EQ(this=_inner(node.arg, to), expression=nan)
    return exp.Anonymous(this=_TO_FOREIGN[to.dialect]["isnan"], expressions=[_write(node.arg, to)])


@_write.register
def _(node: tree.Match, to: SqlWriter) -> exp.Expr:
    spark_name = {"prefix": "startswith", "suffix": "endswith", "contains": "contains"}[node.kind]
    name = spark_name if to.dialect == "spark" else _TO_FOREIGN.get(to.dialect, {}).get(spark_name)
    if isinstance(node.text, bytes) and to.dialect != "spark":
        raise to.unsupported(node, "no such function for binary values")
    if name is not None:
        text = literal(tree.Literal(pa.scalar(node.text)), to)
        return exp.Anonymous(this=name, expressions=[_write(node.arg, to), text])
    escaped = "".join(f"\\{c}" if c in "%_\\" else c for c in cast("str", node.text))
    pattern = f"{'' if node.kind == 'prefix' else '%'}{escaped}{'' if node.kind == 'suffix' else '%'}"
    return _write(tree.Like(node.arg, pattern, "\\"), to)


@_write.register
def _(node: tree.Like, to: SqlWriter) -> exp.Expr:
    pattern, escape = node.pattern, node.escape
    if to.spark_like and escape is None:
        pattern, escape = pattern.replace("\\", "\\\\"), "\\"
    arg, text = _inner(node.arg, to), to.string(pattern)
    if node.ignore_case and to.dialect not in ("spark", "duckdb"):
        if escape and escape.lower() != escape:
            raise to.unsupported(
                node, "the dialect has no ILIKE, and LOWER would change the escape character"
            )
        arg, text = (exp.Anonymous(this="lower", expressions=[part]) for part in (arg, text))
        like: exp.Expr = exp.Like(this=arg, expression=text)
    else:
        like = (exp.ILike if node.ignore_case else exp.Like)(this=arg, expression=text)
    default = "\\" if to.spark_like else None
    return like if escape == default else exp.Escape(this=like, expression=to.string(cast("str", escape)))


@_write.register
def _(node: tree.Truth, to: SqlWriter) -> exp.Expr:
    if to.dialect == "spark" and isinstance(node.arg, tree.IsNan) and node.value is True:
        return exp.Anonymous(this="isnan", expressions=[_write(node.arg.arg, to)])
    if node.value is None:
        return exp.Is(this=_inner(node.arg, to), expression=exp.Null())
    form = exp.NullSafeEQ if to.dialect in ("trino", "presto") else exp.Is
    return form(this=_inner(node.arg, to), expression=exp.Boolean(this=node.value))


@_write.register
def _(node: tree.And, to: SqlWriter) -> exp.Expr:
    return _chain(exp.And, node, to)


@_write.register
def _(node: tree.Or, to: SqlWriter) -> exp.Expr:
    return _chain(exp.Or, node, to)


def _chain(kind: type[exp.Connector], node: tree.And | tree.Or, to: SqlWriter) -> exp.Expr:
    built = (_write(arg, to) for arg in node.args)
    parts = (exp.Paren(this=part) if isinstance(part, exp.Connector) else part for part in built)
    return functools.reduce(lambda left, right: kind(this=left, expression=right), parts)


@_write.register
def _(node: tree.Not, to: SqlWriter) -> exp.Expr:
    return exp.Not(this=_inner(node.arg, to))
