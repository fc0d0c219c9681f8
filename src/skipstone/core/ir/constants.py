"""Constants cast and folded as Spark does it, or left to the rows."""

from __future__ import annotations

import decimal

import pyarrow as pa

from skipstone.core.domain.keys import is_text, storage_type
from skipstone.core.ir.literals import NotComparable, cuts
from skipstone.core.ir.nodes import Reason
from skipstone.core.ir.operands import CantJudge, Value
from skipstone.errors import TypeMismatchError
from skipstone.predicate import tree

_DECIMAL_TRAPS = (decimal.InvalidOperation, decimal.Overflow)


def cast_value(value: Value, cast: tree.Cast) -> Value:
    """A constant cast as Spark casts it; CantJudge where that is not certain."""
    if not value.scalar.is_valid:
        return Value(pa.scalar(None, cast.type), value.zone)
    source, target = storage_type(value.scalar.type), storage_type(cast.type)
    if source != target and not _casts_like_spark(source, target):
        raise CantJudge(Reason.CAST, f"a constant of {source} is cast to {target} by Spark's own rules")
    zoned = pa.types.is_timestamp(target) and not (pa.types.is_timestamp(source) and source.tz == target.tz)
    if (is_text(source) or pa.types.is_date(source) or zoned) and pa.types.is_temporal(target):
        # Spark's text forms and zones, which Arrow's own cast doesn't know.
        try:
            at = cuts(target, value.scalar, cast.zone)
        except NotComparable as error:
            raise CantJudge(Reason.ZONE, str(error)) from error
        place = at.at_or_above
        if not isinstance(place, int) or at.above != place + 1:
            raise CantJudge(Reason.CAST, f"the constant is rounded by its cast to {target}")
        whole = pa.int32() if target.bit_width == 32 else pa.int64()
        return Value(pa.scalar(place, whole).cast(target), value.zone)
    if pa.types.is_floating(target) and (pa.types.is_integer(source) or pa.types.is_decimal(source)):
        return Value(pa.scalar(float(value.scalar.as_py()), target), value.zone)
    try:
        return Value(value.scalar.cast(target), value.zone)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        if cast.lenient or pa.types.is_floating(source) or pa.types.is_decimal(source):
            raise CantJudge(Reason.CAST, f"the constant doesn't fit {target} as it is") from error
        raise TypeMismatchError(f"{cast} can't be computed: {error}") from error


def _casts_like_spark(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether a constant's cast here gives what Spark's does, or fails.

    Arrow draws floats and times otherwise as text, counts other units in a timestamp as a number, rounds
    a float to a decimal otherwise, and takes the date of an instant in its own zone.
    """
    number = pa.types.is_integer(target) or pa.types.is_floating(target) or pa.types.is_decimal(target)
    if pa.types.is_timestamp(source):
        return bool(pa.types.is_timestamp(target))
    if pa.types.is_floating(source):
        return number and not pa.types.is_decimal(target)
    if is_text(target):
        return is_text(source) or bool(pa.types.is_integer(source) or pa.types.is_boolean(source))
    return not pa.types.is_temporal(source) or bool(pa.types.is_temporal(target))


def fold(call: tree.Call, args: list[Value]) -> Value:
    """Arithmetic on constants, exact for integers and decimals."""
    if any(not a.scalar.is_valid for a in args):
        if call.name in ("+", "-", "*", "negative"):
            return Value(pa.scalar(None), call.zone)
        raise CantJudge(Reason.FUNCTION, f"{call.name} of NULL")
    numbers = [a.scalar.as_py() for a in args]
    kinds = {type(n) for n in numbers}
    if call.name in ("+", "-", "*", "negative") and kinds <= {int, float, decimal.Decimal}:
        if float in kinds:
            numbers = [float(n) for n in numbers]
        try:
            left, *rest = numbers
            # Spark's decimals have 38 digits: where the operands' own fill them it may round.
            with decimal.localcontext(decimal.Context(prec=37, traps=[decimal.Inexact, *_DECIMAL_TRAPS])):
                result = {
                    "+": lambda: left + rest[0],
                    "-": lambda: left - rest[0] if rest else -left,
                    "*": lambda: left * rest[0],
                    "negative": lambda: -left,
                }[call.name]()
            literal = tree.lit(result)
            assert isinstance(literal, tree.Literal)
            return Value(literal.scalar, call.zone)
        except (decimal.DecimalException, IndexError, ValueError) as error:
            raise CantJudge(Reason.FUNCTION, f"{call} has no exact value") from error
    raise CantJudge(Reason.FUNCTION, f"{call.name} of constants is left to the rows")
