"""Typed literals as SQL text: the same value and the same type in every dialect."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from skipstone.errors import NotExpressibleError
from skipstone.predicate import tree
from skipstone.predicate.sql.types import SPARK_LIKE, UNIT_DIGITS, number, type_name


@dataclass(frozen=True, slots=True)
class Writer:
    """What a dialect needs to say values: strings, casts, refusals."""

    dialect: str

    @property
    def spark_like(self) -> bool:
        """Whether strings, escapes and functions are Spark's."""
        return self.dialect in SPARK_LIKE

    def refuse(self, node: tree.Expr, why: str = "") -> NotExpressibleError:
        """The error for a part the dialect has no words for."""
        return NotExpressibleError(f"{self.dialect} SQL can't say {str(node)[:80]}{why and f': {why}'}")

    def string(self, text: str) -> exp.Expr:
        """A string literal."""
        if not self.spark_like:
            return exp.Literal.string(text)
        # sqlglot would turn control characters into escapes that eat a following digit.
        escaped = text.replace("\\", "\\\\").replace("'", "\\'")
        return exp.Var(this=f"'{escaped}'")

    def cast(self, node: exp.Expr, kind: pa.DataType, whole: tree.Expr, *, lenient: bool = False) -> exp.Expr:
        """``CAST(node AS kind)``; ``whole`` is named if the dialect has no such type."""
        name = type_name(kind, self.dialect)
        if name is None:
            raise self.refuse(whole, f"no type for {kind}")
        to = exp.DataType(this=exp.DType.USERDEFINED, kind=name)
        return exp.TryCast(this=node, to=to, safe=True) if lenient else exp.Cast(this=node, to=to)


def literal(node: tree.Literal, to: Writer) -> exp.Expr:
    """The literal in words that give the target engine the same type and value."""
    scalar = node.scalar
    kind = scalar.type
    if not scalar.is_valid:
        return exp.Null() if pa.types.is_null(kind) else to.cast(exp.Null(), _usual(kind), node)
    for test, build in _LITERALS:
        if test(kind):
            return build(node, scalar, to)
    raise to.refuse(node, f"no literal of type {kind}")


def _usual(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz and "UTC")
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    return kind


def raw_number(text: str) -> exp.Expr:
    """Digits as they are."""
    return exp.Var(this=text)


def _boolean(_node: tree.Literal, scalar: pa.Scalar, _to: Writer) -> exp.Expr:
    return exp.Boolean(this=scalar.as_py())


def _integer(node: tree.Literal, scalar: pa.Scalar, to: Writer) -> exp.Expr:
    text = raw_number(str(scalar.as_py()))
    typed = scalar.type != pa.int64() and type_name(scalar.type, to.dialect)
    return to.cast(text, scalar.type, node) if typed else text


def _double(node: tree.Literal, scalar: pa.Scalar, to: Writer) -> exp.Expr:
    value = scalar.as_py()
    wide = scalar.type == pa.float64()
    if math.isfinite(value):
        # The exponent makes it a double in every dialect; a plain 0.1 is a decimal.
        text = raw_number(repr(value) if "e" in repr(value) else f"{value!r}e0")
        return text if wide else to.cast(text, pa.float32(), node)
    if math.isnan(value) and to.dialect in ("trino", "presto"):
        raise to.refuse(node, "NaN equals nothing there; use isnan")
    text = to.string("NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity")
    return to.cast(text, pa.float64() if wide else pa.float32(), node)


def _decimal(node: tree.Literal, scalar: pa.Scalar, to: Writer) -> exp.Expr:
    text = f"{scalar.as_py():f}"
    natural = number(text).type
    if natural == scalar.type and natural.precision <= 38:
        return raw_number(text)
    return to.cast(raw_number(text), scalar.type, node)


def _text(_node: tree.Literal, scalar: pa.Scalar, to: Writer) -> exp.Expr:
    return to.string(scalar.as_py())


def _bytes(node: tree.Literal, scalar: pa.Scalar, to: Writer) -> exp.Expr:
    digits = scalar.as_py().hex().upper()
    if to.dialect == "hive":
        return exp.Anonymous(this="unhex", expressions=[to.string(digits)])
    if to.dialect == "duckdb":
        escaped = "".join(f"\\x{digits[at : at + 2]}" for at in range(0, len(digits), 2))
        return to.cast(to.string(escaped), pa.binary(), node)
    return exp.Var(this=f"X'{digits}'")


def _date(node: tree.Literal, scalar: pa.Scalar, to: Writer) -> exp.Expr:
    try:
        day = scalar.cast(pa.date32()).as_py()
    except (ValueError, OverflowError):
        raise to.refuse(node, "years 1 to 9999 only") from None
    return to.cast(to.string(day.isoformat()), pa.date32(), node)


def _timestamp(node: tree.Literal, scalar: pa.Scalar, to: Writer) -> exp.Expr:
    unit, tz = scalar.type.unit, scalar.type.tz and "UTC"
    scale = 10 ** UNIT_DIGITS[unit]
    seconds, fraction = divmod(scalar.value, scale)
    nanos = fraction * (10**9 // scale)
    finest = "ns" if nanos % 1000 else "us"
    if type_name(pa.timestamp("us"), to.dialect) is None and nanos % 10**6 == 0:
        finest = "ms"
    try:
        day = dt.datetime(1970, 1, 1) + dt.timedelta(seconds=seconds)
    except OverflowError:
        raise to.refuse(node, "years 1 to 9999 only") from None
    text = day.isoformat(" ") + (f".{nanos:09d}".rstrip("0") if nanos else "")
    if tz:
        text += "+00:00" if to.dialect == "duckdb" else " UTC"
    return to.cast(to.string(text), pa.timestamp(finest, tz), node)


def _time(node: tree.Literal, scalar: pa.Scalar, to: Writer) -> exp.Expr:
    if scalar.type == pa.time64("ns") and scalar.value % 1000:
        raise to.refuse(node, "microseconds are the finest time")
    return to.cast(to.string(scalar.cast(pa.time64("us")).as_py().isoformat()), pa.time64("us"), node)


_Build = Callable[[tree.Literal, pa.Scalar, Writer], exp.Expr]
_LITERALS: tuple[tuple[Callable[[pa.DataType], bool], _Build], ...] = (
    (pa.types.is_boolean, _boolean),
    (pa.types.is_integer, _integer),
    (pa.types.is_floating, _double),
    (pa.types.is_decimal, _decimal),
    (lambda t: t in (pa.string(), pa.large_string(), pa.string_view()), _text),
    (
        lambda t: pa.types.is_fixed_size_binary(t) or t in (pa.binary(), pa.large_binary(), pa.binary_view()),
        _bytes,
    ),
    (pa.types.is_date, _date),
    (pa.types.is_timestamp, _timestamp),
    (pa.types.is_time, _time),
)
