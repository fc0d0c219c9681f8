"""pyiceberg expressions to predicates and back.

NULL: pyiceberg is inconsistent. Its row evaluator (``visitors._ExpressionEvaluationVisitor``) is two-valued:
NULL satisfies NotEqualTo, NotIn, NotNaN and NotStartsWith, and nothing else, as in Iceberg's Java library and
its metrics evaluators. Its Arrow filter (``_ConvertToArrowExpression``) drops NULL rows of NotEqualTo, NotNaN
and NotStartsWith but keeps those of NotIn. We read expressions as two-valued: this keeps the most rows, and
Spark's Iceberg connector writes ``NotNull(a) AND NotEqualTo(a, v)`` for SQL semantics. We write explicit NULL
tests, so that both evaluators of pyiceberg return the same rows.

NaN: Iceberg orders NaN last, as Spark does; pyiceberg compares by IEEE rules and loses the NaN rows of
``f > 2``. We write ``>`` and ``>=`` with ``OR is-nan``, which pyiceberg removes for non-float columns.

Literals: pyiceberg rounds 5.5 to 6 for an integer column, 0.1 to the nearest float, and a timestamp to its
day. We round a double for a float column, since nobody can write its literals otherwise; the literals we
write raise instead of rounding when they are bound to the column's type.
"""

from __future__ import annotations

import decimal
import functools
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import expressions as ice
from pyiceberg import types
from pyiceberg.expressions import literals
from pyiceberg.expressions.visitors import rewrite_not

from skipstone.errors import NotExpressibleError, PredicateError
from skipstone.predicate import tree
from skipstone.predicate.foreign import (
    ExpressionWriter,
    TranslationError,
    add_prunable,
    float32_readings,
    is_nan,
    is_number,
    list_values,
)

# -- from Iceberg ------------------------------------------------------------------------------


def from_iceberg(expression: ice.BooleanExpression) -> tree.Predicate:
    """Convert a bound or unbound pyiceberg expression to a Predicate."""
    if not isinstance(expression, ice.BooleanExpression):
        raise PredicateError(f"{type(expression).__name__} is not a pyiceberg expression")
    # pyiceberg plans on this form; before the rewrite NOT over a comparison is not two-valued.
    return _read(rewrite_not(expression))


def _read(node: Any) -> tree.Predicate:
    read = _READERS.get(type(node))
    try:
        return read(node) if read else tree.Opaque((), None, str(node))
    except TranslationError:
        return tree.Opaque((), None, str(node))


def _compare(op: tree.CompareOp, node: Any) -> tree.Predicate:
    column, value = _column(node.term), _value(node.literal, node.term)
    plain = tree.Compare(op, column, value)
    return _rounded(op, column, pa.array([value.scalar]), plain)


def _is_null(node: Any) -> tree.Predicate:
    return tree.IsNull(_column(node.term))


def _is_nan(node: Any) -> tree.Predicate:
    return tree.IsNan(_column(node.term))


def _prefix(node: Any) -> tree.Predicate:
    return tree.Match("prefix", _column(node.term), node.literal.value)


def _members(node: Any) -> tree.Predicate:
    items = sorted(node.literals, key=lambda item: item.value)
    column, values = _column(node.term), list_values([_value(item, node.term).scalar for item in items])
    return _rounded("=", column, values, tree.IsIn(column, values))


def _rounded(
    op: tree.CompareOp, column: tree.Column, values: pa.Array, plain: tree.Predicate
) -> tree.Predicate:
    """A comparison whose doubles are rounded if the column turns out to have floats."""
    readings = float32_readings(values)
    if readings is None:
        return plain
    exact = tree.Opaque((column,), _RoundedComparison(op, values), str(plain))
    return add_prunable(op, column, readings, exact)


@dataclass(frozen=True, slots=True)
class _RoundedComparison:
    """Compares a column with one of some doubles, which are rounded if it has floats."""

    op: tree.CompareOp
    values: pa.Array

    def __call__(self, batch: pa.RecordBatch) -> pa.Array:
        column = batch.column(0)
        rounded = self.values.cast(pa.float32()) if pa.types.is_float32(column.type) else self.values
        if self.op in ("=", "<=>"):
            # A hash table distinguishes -0.0 from 0.0.
            numbers = (pc.add(some.cast(pa.float64()), 0.0) for some in (column, rounded))
            mask = pc.is_in(*numbers)
            return mask if self.op == "<=>" else pc.if_else(column.is_valid(), mask, None)
        # NaN is greater than all others.
        below = pc.less if self.op in ("<", ">=") else pc.less_equal
        mask = below(column, rounded[0])
        return pc.invert(mask) if self.op in (">", ">=") else mask


def _not_true(read: Callable[[Any], tree.Predicate]) -> Callable[[Any], tree.Predicate]:
    return lambda node: tree.Not(read(node).is_true())


# Each has a second class for bound expressions.
_TESTS: dict[str, Callable[[Any], tree.Predicate]] = {
    "EqualTo": functools.partial(_compare, "="),
    "NotEqualTo": lambda node: tree.Not(_compare("<=>", node)),
    "LessThan": functools.partial(_compare, "<"),
    "LessThanOrEqual": functools.partial(_compare, "<="),
    "GreaterThan": functools.partial(_compare, ">"),
    "GreaterThanOrEqual": functools.partial(_compare, ">="),
    "In": _members,
    "NotIn": _not_true(_members),
    "IsNull": _is_null,
    "NotNull": lambda node: tree.Not(_is_null(node)),
    "IsNaN": _is_nan,
    "NotNaN": _not_true(_is_nan),
    "StartsWith": _prefix,
    "NotStartsWith": _not_true(_prefix),
}
_READERS: dict[type, Callable[[Any], tree.Predicate]] = {
    ice.AlwaysTrue: lambda _: tree.Constant(True),
    ice.AlwaysFalse: lambda _: tree.Constant(False),
    ice.And: lambda node: tree.conjunction((_read(node.left), _read(node.right))),
    ice.Or: lambda node: tree.disjunction((_read(node.left), _read(node.right))),
    ice.Not: lambda node: tree.Not(_read(node.child)),
    **{getattr(ice, kind + name): read for name, read in _TESTS.items() for kind in ("", "Bound")},
}


def _column(term: Any) -> tree.Column:
    if isinstance(term, ice.Reference):
        return tree.Column(tuple(term.name.split(".")))
    if term.ref().accessor.inner is not None:
        raise TranslationError  # a bound nested field has only its last name
    return tree.Column((term.ref().field.name,))


_UNITS: MappingProxyType[type, pa.DataType] = MappingProxyType(
    {
        literals.DateLiteral: pa.date32(),
        literals.TimeLiteral: pa.time64("us"),
        literals.TimestampLiteral: pa.timestamp("us"),
        literals.FloatLiteral: pa.float32(),
    }
)


def _value(item: Any, term: Any) -> tree.Literal:
    kind = next((kind for cls, kind in _UNITS.items() if isinstance(item, cls)), None)
    if isinstance(item, literals.TimestampLiteral) and _is_instant(term):
        kind = pa.timestamp("us", "UTC")
    if kind is not None and pa.types.is_temporal(kind):
        physical = pa.int32() if pa.types.is_date(kind) else pa.int64()
        return tree.Literal(pa.scalar(item.value, physical).cast(kind))
    return tree.Literal(pa.scalar(item.value, kind))


def _is_instant(term: Any) -> bool:
    return isinstance(term, ice.BoundTerm) and isinstance(term.ref().field.field_type, types.TimestamptzType)


# -- to Iceberg --------------------------------------------------------------------------------

_Build = Callable[..., ice.BooleanExpression]
# pyiceberg's models accept positional arguments, which their types don't show.
_EqualTo: _Build = ice.EqualTo
_In: _Build = ice.In
_IsNaN: _Build = ice.IsNaN
_IsNull: _Build = ice.IsNull
_NotIn: _Build = ice.NotIn
_NotNaN: _Build = ice.NotNaN
_NotNull: _Build = ice.NotNull
_NotStartsWith: _Build = ice.NotStartsWith
_StartsWith: _Build = ice.StartsWith

Cases = Callable[[bool | None], ice.BooleanExpression]
"""A condition: returns the expression for the rows where it is TRUE, FALSE or NULL (None)."""


def to_iceberg(predicate: tree.Predicate) -> ice.BooleanExpression:
    """Convert ``predicate`` to an expression that matches exactly the rows where it is TRUE, or raise.

    Column types are unknown here, so a literal that the column's type can't represent raises at binding.
    """
    cases: Cases = _IcebergWriter().write(predicate)
    return cases(True)


class _IcebergWriter(ExpressionWriter):
    """Conditions are :data:`Cases`; operands are column names."""

    library = "Iceberg"

    def operand(self, node: tree.Expr) -> str:
        if not isinstance(node, tree.Column):
            raise self.inexpressible(node, "Iceberg tests plain columns only")
        if any("." in part for part in node.path):
            raise self.inexpressible(node, "Iceberg reads a dot in a column name as a path")
        return ".".join(node.path)

    def constant(self, value: bool | None) -> Cases:
        return lambda case: ice.AlwaysTrue() if case is value else ice.AlwaysFalse()

    def holds(self, name: str) -> Cases:
        return lambda case: _IsNull(name) if case is None else _EqualTo(name, case)

    def all_of(self, parts: Sequence[Cases]) -> Cases:
        return functools.partial(_junction, parts, False)

    def any_of(self, parts: Sequence[Cases]) -> Cases:
        return functools.partial(_junction, parts, True)

    def negation(self, condition: Cases) -> Cases:
        return lambda case: condition(None if case is None else not case)

    def truth(self, condition: Cases, value: bool | None) -> Cases:
        others = [other for other in (True, False, None) if other is not value]

        def cases(case: bool | None) -> ice.BooleanExpression:
            if case is None:
                return ice.AlwaysFalse()
            return condition(value) if case else _any(map(condition, others))

        return cases

    def null_to_false(self, _name: str, condition: Cases) -> Cases:
        return self.truth(condition, True)

    def is_null(self, name: str) -> Cases:
        tests = {True: _IsNull(name), False: _NotNull(name), None: ice.AlwaysFalse()}
        return tests.__getitem__

    def is_nan(self, name: str) -> Cases:
        return _cases(name, _IsNaN(name), _NotNaN(name))

    def match(self, name: str, node: tree.Match) -> Cases:
        if node.kind != "prefix" or isinstance(node.text, bytes):
            raise self.inexpressible(node, "Iceberg matches string prefixes only")
        return _cases(name, _StartsWith(name, node.text), _NotStartsWith(name, node.text))

    def like(self, node: tree.Like) -> Any:
        plain, rest = "", list(node.pattern)
        while rest and rest[0] not in ("%", "_"):
            if rest[0] == node.escape:
                del rest[0]
            plain += rest.pop(0) if rest else ""
        if node.ignore_case or any(mark != "%" for mark in rest):
            raise self.inexpressible(node, "Iceberg supports LIKE 'prefix%' only")
        if rest:
            return self.write(tree.Match("prefix", node.arg, plain))
        return self.write(tree.Compare("=", node.arg, tree.lit(plain)))

    def compare(self, op: tree.CompareOp, x: str, y: str) -> Cases:
        raise self.inexpressible(f"{x} {op} {y}", "Iceberg compares a column with a constant only")

    def compare_literal(self, op: tree.CompareOp, name: str, literal: tree.Literal) -> Cases:
        def cases(case: bool | None) -> ice.BooleanExpression:
            if case is None:
                return _IsNull(name)
            return self._comparison(op if case else tree.NEGATED[op], name, literal)

        return cases

    def _comparison(self, op: tree.CompareOp, name: str, literal: tree.Literal) -> ice.BooleanExpression:
        if is_nan(literal.scalar):
            return _compare_with_nan(op, name)
        holds = _BUILDERS[op](name, self._exact(name, literal))
        if op == "<>":
            return _all((_NotNull(name), holds))
        if op in (">", ">=") and is_number(literal.scalar.type):
            return _any((holds, _IsNaN(name)))
        return holds

    def is_in(self, name: str, node: tree.IsIn) -> Cases:
        plain = [self._exact(name, tree.Literal(v, node.zone)) for v in node.values if not is_nan(v)]
        hit, miss = _In(name, plain), _NotIn(name, plain)
        if len(plain) < len(node.values):
            hit, miss = _any((hit, _IsNaN(name))), _all((miss, _NotNaN(name)))
        return _cases(name, hit, miss)

    def _exact(self, name: str, literal: tree.Literal) -> literals.Literal[Any]:
        """Convert the constant to a pyiceberg literal that is never rounded."""
        scalar, kind = literal.scalar, literal.scalar.type
        if pa.types.is_timestamp(kind):
            try:
                micros = scalar.cast(pa.timestamp("us", kind.tz)).value
            except pa.ArrowInvalid:
                why = "Iceberg timestamps are limited to microseconds"
                raise self.inexpressible(f"{name} compared with {literal}", why) from None
            zoneless = kind.tz is None and literal.zone != "UTC"
            return NaiveTimestamp(micros) if zoneless else ExactTimestamp(micros)
        if pa.types.is_date(kind):
            return literals.DateLiteral(scalar.cast(pa.date32()).cast(pa.int32()).as_py())
        if kind == pa.time64("us"):
            return literals.TimeLiteral(scalar.value)
        value = None if pa.types.is_time(kind) else scalar.as_py()
        if isinstance(value, decimal.Decimal):
            whole_number = value == value.to_integral_value() and -(2**63) <= value < 2**63
            return literals.LongLiteral(int(value)) if whole_number else ExactDecimal(value)
        if isinstance(value, float):
            return ExactDouble(value)
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            return ExactDecimal(decimal.Decimal(value))
        if isinstance(value, (bool, int, str, bytes)):
            return literals.literal(value)
        raise self.inexpressible(f"{name} compared with {literal}", f"Iceberg has no literals of type {kind}")


def _junction(parts: Sequence[Cases], dominant: bool, case: bool | None) -> ice.BooleanExpression:
    """One FALSE makes AND FALSE, one TRUE makes OR TRUE; NULL needs a NULL and no such dominant value."""
    if case is dominant:
        return _any(part(case) for part in parts)
    if case is not None:
        return _all(part(case) for part in parts)
    unknown = [part(None) for part in parts]
    undecided = [_any((part(not dominant), null)) for part, null in zip(parts, unknown, strict=True)]
    return _all((*undecided, _any(unknown)))


def _cases(name: str, holds: ice.BooleanExpression, fails: ice.BooleanExpression) -> Cases:
    """A test that is NULL where the column is NULL; Iceberg's own negations are TRUE there."""
    tests = {True: holds, False: _all((_NotNull(name), fails)), None: _IsNull(name)}
    return tests.__getitem__


def _all(parts: Iterable[ice.BooleanExpression]) -> ice.BooleanExpression:
    return functools.reduce(ice.And, parts)


def _any(parts: Iterable[ice.BooleanExpression]) -> ice.BooleanExpression:
    return functools.reduce(ice.Or, parts)


_BUILDERS: MappingProxyType[str, _Build] = MappingProxyType(
    {
        "=": ice.EqualTo,
        "<>": ice.NotEqualTo,
        "<": ice.LessThan,
        "<=": ice.LessThanOrEqual,
        ">": ice.GreaterThan,
        ">=": ice.GreaterThanOrEqual,
    }
)


def _compare_with_nan(op: str, name: str) -> ice.BooleanExpression:
    if op in ("=", ">="):
        return _IsNaN(name)
    if op in ("<>", "<"):
        return _all((_NotNull(name), _NotNaN(name)))
    return _NotNull(name) if op == "<=" else ice.AlwaysFalse()


# -- literals that raise instead of rounding when they are bound --------------------------------

_DAY = timedelta(days=1) // timedelta(microseconds=1)


def _inexact(value: object, kind: types.IcebergType) -> NotExpressibleError:
    return NotExpressibleError(
        f"Iceberg can't compare a column of type {kind} with {value} exactly",
        hint="use a literal of the column's type",
    )


class ExactDecimal(literals.DecimalLiteral):
    """A decimal that converts to the column's scale only without rounding."""

    def to(self, type_var: Any) -> Any:
        """Convert to ``type_var``, or raise if that would round."""
        if isinstance(type_var, types.DecimalType):
            scaled = self.value.scaleb(type_var.scale, decimal.Context(prec=80))
            if scaled != scaled.to_integral_value():
                raise _inexact(self.value, type_var)
            return literals.DecimalLiteral(scaled.to_integral_value().scaleb(-type_var.scale))
        if isinstance(type_var, (types.IntegerType, types.LongType)) and self.value != int(self.value):
            raise _inexact(self.value, type_var)
        if isinstance(type_var, types.FloatType):
            return ExactDouble(float(self.value)).to(type_var)
        return super().to(type_var)


class ExactDouble(literals.DoubleLiteral):
    """A double that converts to a float or decimal only without rounding."""

    def to(self, type_var: Any) -> Any:
        """Convert to ``type_var``, or raise if that would round."""
        if isinstance(type_var, types.FloatType) and not _fits_float(self.value):
            raise _inexact(self.value, type_var)
        if isinstance(type_var, types.DecimalType):
            return ExactDecimal(decimal.Decimal(self.value)).to(type_var)
        return super().to(type_var)


class ExactTimestamp(literals.TimestampLiteral):
    """A zoneless timestamp or an instant in UTC; converts to a date only at midnight."""

    def to(self, type_var: Any) -> Any:
        """Convert to ``type_var``, or raise if that would round."""
        if isinstance(type_var, types.DateType) and self.value % _DAY:
            raise _inexact(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=self.value), type_var)
        return super().to(type_var)


class NaiveTimestamp(ExactTimestamp):
    """A zoneless timestamp of a zone other than UTC, which can't be compared with instants."""

    def to(self, type_var: Any) -> Any:
        """Convert to ``type_var``, or raise if that would round."""
        if isinstance(type_var, types.TimestamptzType):
            raise _inexact(datetime(1970, 1, 1) + timedelta(microseconds=self.value), type_var)
        return super().to(type_var)


def _fits_float(value: float) -> bool:
    try:
        return bool(struct.unpack("<f", struct.pack("<f", value))[0] == value)
    except OverflowError:
        return True  # pyiceberg handles values beyond the float range
