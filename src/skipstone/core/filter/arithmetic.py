"""Arithmetic with Spark's result types; overflow raises, as in ANSI mode."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.arrays import Array, bools, numbers
from skipstone.core.filter.conditions import Arguments, RowError, Series, apply, zero_divisor

_EXACT = 2**53
_EXACT_POWER = 22
_NARROW_DIGITS = 18


def doubles(array: pa.Array) -> Array:
    """Convert numbers to doubles, rounded to nearest; undefined for NULL."""
    if not pa.types.is_decimal(array.type):
        return numbers(array).astype(np.float64, copy=False)
    type = array.type
    if type.precision <= _NARROW_DIGITS and 0 <= type.scale <= _EXACT_POWER:
        unscaled = numbers(array)
        if not (np.abs(unscaled) > _EXACT).any():
            # Both operands are exact, so the division rounds once.
            return np.asarray(unscaled.astype(np.float64) / 10.0**type.scale)
    return parse_decimals(array, pa.float64())


def parse_decimals(array: pa.Array, type: pa.DataType) -> Array:
    """Convert decimals through strings: Arrow parses with correct rounding, its cast doesn't."""
    filled = array.fill_null(0) if array.null_count else array
    return numbers(filled.cast(pa.string()).cast(type))


_DIGITS = 38
_MOST_DIGITS = 76
_KEPT_PLACES = 6
"""Decimal places that Spark keeps where a result has too many digits."""
_SIGNED = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64()}
_INT_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
_CHECKED: dict[str, Callable[..., pa.Array]] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
}


def is_number(type: pa.DataType) -> bool:
    """Whether ``type`` is numeric."""
    return bool(pa.types.is_integer(type) or pa.types.is_floating(type) or pa.types.is_decimal(type))


def spark_type(type: pa.DataType) -> pa.DataType:
    """Spark's type of a number: unsigned integers become the next wider signed type."""
    return pa.decimal128(20, 0) if type == pa.uint64() else _SIGNED.get(type, type)


def common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Type to which Spark widens two numbers; None for decimals, whose type depends on the operator."""
    left, right = spark_type(left), spark_type(right)
    if pa.types.is_floating(left) and pa.types.is_floating(right):
        return left if left.bit_width >= right.bit_width else right
    if pa.types.is_floating(left) or pa.types.is_floating(right):
        return pa.float64()
    if pa.types.is_decimal(left) or pa.types.is_decimal(right):
        return None
    return left if left.bit_width >= right.bit_width else right


def as_type(array: pa.Array, type: pa.DataType) -> pa.Array:
    """Widen numbers to ``type``."""
    if array.type == type:
        return array
    if pa.types.is_float64(type):
        nulls = bools(array.is_null()) if array.null_count else None
        return pa.array(doubles(array), mask=nulls)
    return array.cast(type)


def arithmetic(to: Arguments) -> Series:
    """``+``, ``-`` and ``*``."""
    name = to.call.name
    if len(to.series) != 2:
        raise to.unsupported(f"{name} needs two arguments")
    left, right = to.types
    if pa.types.is_temporal(left) and pa.types.is_temporal(right):
        from skipstone.core.filter.times import add_interval, is_interval, time_difference

        between = name == "-" and not is_interval(left) and not is_interval(right)
        return time_difference(to) if between else add_interval(to)
    if pa.types.is_date32(left) and pa.types.is_integer(right) and name in "+-":
        return _shift_days(to, 1 if name == "+" else -1)
    if pa.types.is_null(left) or pa.types.is_null(right):
        return apply(to.call, pa.null(), lambda a, _: pa.nulls(len(a)), to.series)
    if not (is_number(left) and is_number(right)):
        days = "; write INTERVAL 7 DAYS" if pa.types.is_timestamp(left) and is_number(right) else ""
        shown = ["interval" if pa.types.is_interval(one) else str(one) for one in to.types]
        error = to.unsupported(f"{shown[0]} {name} {shown[1]} is not supported{days}")
        if pa.types.is_temporal(right) and pa.types.is_string(left):
            text = to.call.args[0]
            constant = to.constants[0] is not None
            error.hint = f"make the string a date: {f'date {text}' if constant else f'date({text})'}"
        raise error
    type = common_type(left, right)
    kernel = _CHECKED[name]
    if type is None:
        return _decimal(to, kernel)
    if pa.types.is_floating(type):
        plain = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}[name]
        return apply(to.call, type, lambda a, b: plain(as_type(a, type), as_type(b, type)), to.series)
    return apply(
        to.call, type, lambda a, b: kernel(as_type(a, type), as_type(b, type)), to.series, risky=True
    )


def _shift_days(to: Arguments, sign: int) -> Series:
    def shift(days: pa.Array, count: pa.Array) -> pa.Array:
        kernel = pc.add_checked if sign > 0 else pc.subtract_checked
        moved = kernel(days.view(pa.int32()).cast(pa.int64()), count.cast(pa.int64()))
        return moved.cast(pa.int32()).view(pa.date32())

    return apply(to.call, pa.date32(), shift, to.series, risky=True)


def _decimal(to: Arguments, kernel: Callable[..., pa.Array]) -> Series:
    """Spark's decimal arithmetic: exact up to 38 digits, else rounded half up to fewer decimal places."""
    left, right = (_operand_type(t, c) for t, c in zip(to.types, to.constants, strict=True))
    if to.call.name == "*":
        digits, scale = left.precision + right.precision + 1, left.scale + right.scale
    else:
        scale = max(left.scale, right.scale)
        digits = max(left.precision - left.scale, right.precision - right.scale) + scale + 1
    if digits <= _DIGITS and min(left.scale, right.scale) >= 0:
        type = pa.decimal128(digits, scale)
        return apply(to.call, type, lambda a, b: kernel(_cast(a, left), _cast(b, right)), to.series)
    if digits > _MOST_DIGITS or min(left.scale, right.scale) < 0:
        raise to.unsupported(f"result can have {digits} digits, and decimals have at most {_MOST_DIGITS}")
    places = max(_DIGITS - (digits - scale), min(scale, _KEPT_PLACES))
    wide = pa.decimal256(left.precision, left.scale), pa.decimal256(right.precision, right.scale)

    def rounded(a: pa.Array, b: pa.Array) -> pa.Array:
        exact = kernel(_cast(a, wide[0]), _cast(b, wide[1]))
        near = pc.round(exact, ndigits=places, round_mode="half_towards_infinity")
        return near.cast(pa.decimal128(_DIGITS, places))

    return apply(to.call, pa.decimal128(_DIGITS, places), rounded, to.series, risky=True)


def _cast(array: pa.Array, type: pa.DataType) -> pa.Array:
    # Arrow casts integers only to decimals for all their digits.
    return (array.cast(_as_decimal(array.type)) if pa.types.is_integer(array.type) else array).cast(type)


def _operand_type(type: pa.DataType, constant: pa.Scalar | None) -> pa.DataType:
    """Decimal type of an operand; an integer literal has only its own digits."""
    if constant is not None and pa.types.is_integer(type) and constant.is_valid:
        return pa.decimal128(len(str(abs(constant.as_py()))), 0)
    return _as_decimal(type)


def wider_decimal(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Decimal that holds both numbers; None if it needs more than 38 digits, where Spark rounds."""
    left, right = _as_decimal(left), _as_decimal(right)
    scale = max(left.scale, right.scale)
    digits = max(left.precision - left.scale, right.precision - right.scale) + scale
    return pa.decimal128(digits, scale) if digits <= _DIGITS and min(left.scale, right.scale) >= 0 else None


def _as_decimal(type: pa.DataType) -> pa.DataType:
    type = spark_type(type)
    if pa.types.is_integer(type):
        return pa.decimal128(_INT_DIGITS[type.bit_width], 0)
    return pa.decimal128(type.precision, type.scale) if type.precision <= _DIGITS else type


def divide(to: Arguments) -> Series:
    """``/``: Spark divides integers and floats as doubles."""
    if len(to.series) != 2 or not all(is_number(t) for t in to.types):
        raise to.unsupported("both arguments must be numbers")
    if common_type(*to.types) is None:
        raise to.unsupported("the scale of decimal quotients is Spark-specific")

    def kernel(a: pa.Array, b: pa.Array) -> pa.Array:
        divisor = as_type(b, pa.float64())
        _check_not_zero(divisor)
        return pc.divide(as_type(a, pa.float64()), divisor)

    return apply(to.call, pa.float64(), kernel, to.series, risky=True)


def remainder(to: Arguments) -> Series:
    """``%``, with the sign of the dividend."""
    if len(to.series) != 2 or not all(is_number(t) for t in to.types):
        raise to.unsupported("both arguments must be numbers")
    type = common_type(*to.types)
    if type is None:
        return _decimal_remainder(to)

    def kernel(a: pa.Array, b: pa.Array) -> pa.Array:
        divisor = as_type(b, type)
        _check_not_zero(divisor)
        nulls = bools(pc.or_(a.is_null(), b.is_null()))
        with np.errstate(all="ignore"):
            rest = np.fmod(numbers(as_type(a, type)), numbers(divisor))
        return pa.array(rest, type, mask=nulls)

    return apply(to.call, type, kernel, to.series, risky=True)


def _decimal_remainder(to: Arguments) -> Series:
    """The remainder of two decimals, in the scale of the finer one."""
    left, right = (_operand_type(t, c) for t, c in zip(to.types, to.constants, strict=True))
    scale = max(left.scale, right.scale)
    common = max(left.precision - left.scale, right.precision - right.scale) + scale
    if common > _NARROW_DIGITS or min(left.scale, right.scale) < 0:
        raise to.unsupported(f"decimals of more than {_NARROW_DIGITS} digits are not supported here")
    wide = pa.decimal128(common, scale)
    type = pa.decimal128(min(left.precision - left.scale, right.precision - right.scale) + scale, scale)

    def kernel(a: pa.Array, b: pa.Array) -> pa.Array:
        divisor = _cast(b, wide)
        _check_not_zero(divisor)
        nulls = bools(pc.or_(a.is_null(), b.is_null()))
        with np.errstate(all="ignore"):
            rest = np.fmod(numbers(_cast(a, wide)), numbers(divisor))
        whole = pa.array(rest, pa.int64(), mask=nulls).cast(pa.decimal128(19, 0))
        return pa.Array.from_buffers(pa.decimal128(38, scale), len(whole), whole.buffers()).cast(type)

    return apply(to.call, type, kernel, to.series, risky=True)


def integer_divide(to: Arguments) -> Series:
    """``div``: integer division, truncated toward zero."""
    if len(to.series) != 2 or not all(pa.types.is_integer(spark_type(t)) for t in to.types):
        raise to.unsupported("both arguments must be integers")
    wide = pa.int64()
    return apply(
        to.call, wide, lambda a, b: pc.divide_checked(a.cast(wide), b.cast(wide)), to.series, risky=True
    )


def _check_not_zero(divisor: pa.Array) -> None:
    if pc.any(pc.equal(divisor, pa.scalar(0, divisor.type))).as_py():
        raise zero_divisor()


def negative(to: Arguments) -> Series:
    """``-x``."""
    return _unary(to, pc.negate_checked, pc.negate)


def absolute(to: Arguments) -> Series:
    """``abs(x)``."""
    return _unary(to, pc.abs_checked, pc.abs)


def _unary(to: Arguments, checked: Callable[..., pa.Array], unchecked: Callable[..., pa.Array]) -> Series:
    if len(to.types) != 1 or not is_number(to.types[0]):
        raise to.unsupported("the argument must be a number")
    type = spark_type(to.types[0])
    if pa.types.is_integer(type):
        return apply(to.call, type, lambda a: checked(as_type(a, type)), to.series, risky=True)
    return apply(to.call, type, lambda a: unchecked(as_type(a, type)), to.series)


def floor_or_ceil(to: Arguments) -> Series:
    """``floor(x)`` and ``ceil(x)``, which return a bigint for a double."""
    (type,) = to.types if len(to.types) == 1 else (pa.null(),)
    if pa.types.is_integer(spark_type(type)):
        return apply(to.call, pa.int64(), lambda a: a.cast(pa.int64()), to.series)
    if not pa.types.is_floating(type):
        raise to.unsupported("the argument must be an integer or float")
    step = np.floor if to.call.name == "floor" else np.ceil

    def kernel(a: pa.Array) -> pa.Array:
        rounded, nulls = step(doubles(a)), bools(a.is_null())
        # NaN is zero, as Java converts it.
        inside = (rounded >= -(2.0**63)) & (rounded < 2.0**63)
        if not (inside | np.isnan(rounded) | nulls).all():
            raise RowError("overflow: the value doesn't fit int64")
        return pa.array(np.where(inside, rounded, 0.0).astype(np.int64), mask=nulls)

    return apply(to.call, pa.int64(), kernel, to.series, risky=True)


def square_root(to: Arguments) -> Series:
    """``sqrt(x)``, NaN below zero."""
    if len(to.types) != 1 or not is_number(to.types[0]):
        raise to.unsupported("the argument must be a number")
    return apply(to.call, pa.float64(), lambda a: pc.sqrt(as_type(a, pa.float64())), to.series)
