"""pyiceberg literals that refuse to be rounded when they meet the column's type.

pyiceberg turns 5.5 into 6 for an integer column, 0.1 into the nearest float, and a timestamp into its day.
"""

from __future__ import annotations

import decimal
import struct
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyiceberg import types
from pyiceberg.expressions import literals

from skipstone.errors import NotExpressibleError
from skipstone.predicate import tree

_DAY = timedelta(days=1) // timedelta(microseconds=1)


def _inexact(value: object, kind: types.IcebergType) -> NotExpressibleError:
    return NotExpressibleError(
        f"an Iceberg expression can't compare a column of type {kind} with {value} exactly",
        hint="give a literal of the column's own type",
    )


class ExactDecimal(literals.DecimalLiteral):  # type: ignore[misc]  # pyiceberg is untyped to mypy here
    """A decimal that takes the column's scale only without rounding."""

    def to(self, type_var: Any) -> Any:
        """The literal as ``type_var``, exactly."""
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


class ExactDouble(literals.DoubleLiteral):  # type: ignore[misc]  # pyiceberg is untyped to mypy here
    """A double that becomes a float or a decimal only if it is one."""

    def to(self, type_var: Any) -> Any:
        """The literal as ``type_var``, exactly."""
        if isinstance(type_var, types.FloatType) and not _fits_float(self.value):
            raise _inexact(self.value, type_var)
        if isinstance(type_var, types.DecimalType):
            return ExactDecimal(decimal.Decimal(self.value)).to(type_var)
        return super().to(type_var)


class ExactTimestamp(literals.TimestampLiteral):  # type: ignore[misc]
    """A zoneless time or an instant, in UTC; dates take it at midnight only."""

    def to(self, type_var: Any) -> Any:
        """The literal as ``type_var``, exactly."""
        if isinstance(type_var, types.DateType) and self.value % _DAY:
            raise _inexact(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=self.value), type_var)
        return super().to(type_var)


class NaiveTimestamp(ExactTimestamp):
    """A zoneless time of another zone than UTC, which no column of instants can be compared with."""

    def to(self, type_var: Any) -> Any:
        """The literal as ``type_var``, exactly."""
        if isinstance(type_var, types.TimestamptzType):
            raise _inexact(datetime(1970, 1, 1) + timedelta(microseconds=self.value), type_var)
        return super().to(type_var)


def _fits_float(value: float) -> bool:
    try:
        return bool(struct.unpack("<f", struct.pack("<f", value))[0] == value)
    except OverflowError:
        return True  # pyiceberg knows values beyond the float range


def exact(literal: tree.Literal, whole: tree.Expr) -> literals.Literal[Any]:
    """The Arrow literal as pyiceberg's, or an error naming ``whole`` if there is none."""
    scalar, kind = literal.scalar, literal.scalar.type
    if pa.types.is_timestamp(kind):
        return _timestamp(literal, whole)
    if pa.types.is_date(kind):
        return literals.DateLiteral(scalar.cast(pa.date32()).cast(pa.int32()).as_py())
    value = scalar.as_py() if not pa.types.is_time(kind) else None
    if kind == pa.time64("us"):
        return literals.TimeLiteral(scalar.value)
    if isinstance(value, decimal.Decimal):
        whole_number = value == value.to_integral_value() and -(2**63) <= value < 2**63
        return literals.LongLiteral(int(value)) if whole_number else ExactDecimal(value)
    if isinstance(value, float):
        return ExactDouble(value)
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
        return ExactDecimal(decimal.Decimal(value))
    if isinstance(value, (bool, int, str, bytes)):
        return literals.literal(value)
    raise NotExpressibleError(f"Iceberg expressions have no literal of type {kind}, in {str(whole)[:80]}")


def _timestamp(literal: tree.Literal, whole: tree.Expr) -> literals.Literal[Any]:
    scalar = literal.scalar
    try:
        micros = scalar.cast(pa.timestamp("us", scalar.type.tz)).value
    except pa.ArrowInvalid:
        raise NotExpressibleError(f"Iceberg timestamps end at microseconds, in {str(whole)[:80]}") from None
    zoneless = scalar.type.tz is None and literal.zone != "UTC"
    return NaiveTimestamp(micros) if zoneless else ExactTimestamp(micros)
