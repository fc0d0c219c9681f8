"""Spark's numeric functions beside the operators: rounding, functions of doubles, bits."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.arrays import Array, bools, numbers
from skipstone.core.filter.arithmetic import as_type, common_type, doubles, is_number, spark_type
from skipstone.core.filter.conditions import Arguments, RowError, Series, apply
from skipstone.core.plain import type_name
from skipstone.predicate import tree

_DIGITS = 38
_INTEGERS = 2.0**52
"""Doubles from here on are integers."""
_EXACT_POWER = 22
"""The largest power of ten that a double holds exactly."""


def rounding(to: Arguments) -> Series:
    """``round`` (half away from zero) and ``bround`` (half to even), to a constant number of places."""
    type = spark_type(to.types[0]) if to.types else pa.null()
    places = 0
    if len(to.types) == 2:
        constant = to.constants[1]
        if constant is None or not isinstance(constant.as_py(), int):
            raise to.unsupported("the number of places must be a constant integer")
        # No value has as many places or digits.
        places = min(max(constant.as_py(), -400), 400)
    if len(to.types) not in (1, 2) or not is_number(type):
        raise to.unsupported("arguments must be a number and the number of places")
    even = to.call.name == "bround"
    if pa.types.is_floating(type):
        kernel = functools.partial(_round_floats, places=places, even=even)
        return apply(to.call, type, lambda a, *_: kernel(as_type(a, type)), to.series, cost=5)
    mode = "half_to_even" if even else "half_towards_infinity"
    if pa.types.is_decimal(type):
        digits = type.precision - type.scale + 1
        scale = min(type.scale, max(places, 0))
        rounded = pa.decimal128(
            min(max(digits, 1 - places) if places < 0 else digits + scale, _DIGITS), scale
        )
        places = max(places, -_DIGITS)
        wide = pa.decimal256(max(digits, 1 - places) + type.scale, type.scale)

        def round_decimals(a: pa.Array, *_: pa.Array) -> pa.Array:
            near = a if places >= type.scale else pc.round(a.cast(wide), ndigits=places, round_mode=mode)
            return near.cast(rounded)

        return apply(to.call, rounded, round_decimals, to.series, risky=rounded.precision == _DIGITS)
    if places >= 0:
        return apply(to.call, type, lambda a, *_: as_type(a, type), to.series)
    return apply(
        to.call, type, lambda a, *_: _round_integers(as_type(a, type), -places, even), to.series, risky=True
    )


def _round_integers(array: pa.Array, zeros: int, even: bool) -> pa.Array:
    """Round to a multiple of a power of ten; an overflow is an error."""
    values = numbers(array).astype(np.int64)
    unit = 10 ** min(zeros, 20)
    if unit > 2**63:  # rounded to zero, or to more than any integer
        if zeros == 19 and (np.abs(values.astype(float)) >= 5e18)[~bools(array.is_null())].any():
            raise RowError(f"rounding overflows {type_name(array.type)}")
        return pc.if_else(array.is_null(), None, pa.scalar(0, array.type))
    rest = np.abs(np.fmod(values, unit)).astype(np.uint64)
    down = values - np.fmod(values, unit)
    up = rest * 2 > unit
    half = rest * 2 == unit
    up |= half & ((down // unit) % 2 != 0) if even else half
    step = np.where(up, np.sign(values) * unit, 0)
    valid = ~bools(array.is_null())
    limit = np.iinfo(array.type.to_pandas_dtype())
    beyond = (step > 0) & (down > limit.max - unit) | (step < 0) & (down < limit.min + unit)
    if (beyond & valid).any():
        raise RowError(f"rounding overflows {type_name(array.type)}")
    return pa.array(down + np.where(beyond, 0, step), mask=~valid).cast(array.type)


def _round_floats(array: pa.Array, *, places: int, even: bool) -> pa.Array:
    """Round the shortest decimal text of each double, as Java's BigDecimal does: round(1.005, 2) is 1.01."""
    kind = array.type
    values = numbers(array).astype(np.float64)
    with np.errstate(all="ignore"):
        power = 10.0 ** min(abs(places), 300)
        scaled = np.abs(values * power if places >= 0 else values / power)
        lower = np.floor(scaled)
        near = np.where(scaled - lower >= 0.5, lower + 1, lower)
        rounded = np.copysign(near / power if places >= 0 else near * power, values)
        # So close to a half the product can be on the wrong side; the text decides.
        unsafe = np.abs(scaled - lower - 0.5) <= 1e-15 * np.maximum(scaled, 1.0)
    finite = np.isfinite(values)
    whole = (np.abs(values) >= _INTEGERS * 2) if places >= 0 else np.zeros(len(values), bool)
    rounded = np.where(finite & ~whole, rounded, values)
    unsafe |= (abs(places) > _EXACT_POWER) | (scaled >= _INTEGERS)
    unsafe &= finite & ~whole & ~bools(array.is_null())
    at = np.flatnonzero(unsafe)
    if len(at):
        distinct, where = np.unique(values[at], return_inverse=True)
        rounded[at] = np.array([_round_text(float(v), places, even) for v in distinct])[where]
    # BigDecimal has one zero.
    rounded = np.where(rounded == 0, 0.0, rounded)
    return pa.array(rounded.astype(kind.to_pandas_dtype()), mask=bools(array.is_null()))


_CONTEXT = Context(prec=800)


def _round_text(value: float, places: int, even: bool) -> float:
    mode = ROUND_HALF_EVEN if even else ROUND_HALF_UP
    shortest = Decimal(repr(value))
    exponent = shortest.as_tuple().exponent
    if isinstance(exponent, int) and exponent >= -places:
        return value
    if places < -400:
        return 0.0
    return float(shortest.quantize(Decimal(1).scaleb(-places, _CONTEXT), mode, _CONTEXT))


def _above(limit: float, function: Callable[[Array], Array]) -> Callable[[Array], tuple[Array, Array]]:
    return lambda x: (function(x), x <= limit)


def _plain(function: Callable[[Array], Array]) -> Callable[[Array], tuple[Array, Array]]:
    return lambda x: (function(x), np.zeros(len(x), bool))


_LOGARITHM = _above(0.0, np.log)
_DOUBLES: MappingProxyType[str, Callable[[Array], tuple[Array, Array]]] = MappingProxyType(
    {
        "acos": _plain(np.arccos),
        "asin": _plain(np.arcsin),
        "atan": _plain(np.arctan),
        "cbrt": _plain(np.cbrt),
        "cos": _plain(np.cos),
        "cosh": _plain(np.cosh),
        "degrees": _plain(lambda x: x * 57.29577951308232),
        "exp": _plain(np.exp),
        "expm1": _plain(np.expm1),
        "ln": _LOGARITHM,
        "log10": _above(0.0, np.log10),
        "log1p": _above(-1.0, np.log1p),
        "log2": _above(0.0, np.log2),
        "radians": _plain(lambda x: x * 0.017453292519943295),
        "sign": _plain(lambda x: np.where(x == 0, x, np.sign(x))),
        "sin": _plain(np.sin),
        "sinh": _plain(np.sinh),
        "tan": _plain(np.tan),
        "tanh": _plain(np.tanh),
    }
)
DOUBLE_FUNCTIONS = tuple(_DOUBLES)
"""Functions from double to double."""


def of_double(to: Arguments) -> Series:
    """A function of a double; logarithms are NULL where they are not defined."""
    if len(to.types) != 1 or not is_number(to.types[0]):
        raise to.unsupported("the argument must be a number")
    function = _DOUBLES[to.call.name]

    def kernel(array: pa.Array) -> pa.Array:
        with np.errstate(all="ignore"):
            values, undefined = function(doubles(array))
        return pa.array(values, mask=undefined | bools(array.is_null()))

    return apply(to.call, pa.float64(), kernel, to.series, cost=10)


def logarithm(to: Arguments) -> Series:
    """``log(x)``, and ``log(base, x)``."""
    if len(to.types) not in (1, 2) or not all(map(is_number, to.types)):
        raise to.unsupported("arguments must be a number, or a base and a number")

    def kernel(*arrays: pa.Array) -> pa.Array:
        with np.errstate(all="ignore"):
            parts = [_LOGARITHM(doubles(array)) for array in arrays]
            values = parts[-1][0] if len(parts) == 1 else parts[1][0] / parts[0][0]
        masks = [
            undefined | bools(array.is_null()) for (_, undefined), array in zip(parts, arrays, strict=True)
        ]
        return pa.array(values, mask=np.logical_or.reduce(masks))

    return apply(to.call, pa.float64(), kernel, to.series, cost=10)


def two_doubles(to: Arguments) -> Series:
    """``power`` and ``atan2``."""
    if len(to.types) != 2 or not all(map(is_number, to.types)):
        raise to.unsupported("arguments must be two numbers")
    # Spark adds zero, so that there is only one.
    function = _power if to.call.name == "power" else lambda a, b: np.arctan2(a + 0.0, b + 0.0)

    def kernel(a: pa.Array, b: pa.Array) -> pa.Array:
        with np.errstate(all="ignore"):
            values = function(doubles(a), doubles(b))
        return pa.array(values, mask=bools(a.is_null()) | bools(b.is_null()))

    return apply(to.call, pa.float64(), kernel, to.series, cost=10)


def _power(base: Array, exponent: Array) -> Array:
    """Java's power, which is NaN, and not one, for an infinite or NaN exponent of one."""
    values = np.power(base, exponent)
    odd = np.isnan(exponent) | (np.isinf(exponent) & (np.abs(base) == 1))
    return np.where(odd, math.nan, values)


_BITS: MappingProxyType[str, Callable[[pa.Array, pa.Array], pa.Array]] = MappingProxyType(
    {"&": pc.bit_wise_and, "|": pc.bit_wise_or, "^": pc.bit_wise_xor}
)


def bits(to: Arguments) -> Series:
    """``& | ^`` of integers."""
    if len(to.types) != 2 or not all(pa.types.is_integer(spark_type(t)) for t in to.types):
        raise to.unsupported("both arguments must be integers")
    type = common_type(*to.types)
    kernel = _BITS[to.call.name]
    return apply(to.call, type, lambda a, b: kernel(as_type(a, type), as_type(b, type)), to.series)


def inverted_bits(to: Arguments) -> Series:
    """``~x``."""
    type = spark_type(to.types[0]) if len(to.types) == 1 else pa.null()
    if not pa.types.is_integer(type):
        raise to.unsupported("the argument must be an integer")
    return apply(to.call, type, lambda a: pc.bit_wise_not(as_type(a, type)), to.series)


def shift(to: Arguments) -> Series:
    """``shiftleft`` and ``shiftright``, by the number of places modulo the width."""
    kinds = [spark_type(t) for t in to.types]
    if len(kinds) != 2 or not all(map(pa.types.is_integer, kinds)) or kinds[1] == pa.int64():
        raise to.unsupported("arguments must be an integer and an int")
    if to.constants[0] is not None or not isinstance(to.call.args[0], tree.Column | tree.Cast):
        # Constants, also inside other expressions, don't say whether they are an int or a bigint.
        raise to.unsupported("the first argument must be a column or the cast of one")
    type = pa.int64() if spark_type(to.types[0]) == pa.int64() else pa.int32()
    kernel = np.left_shift if to.call.name == "shiftleft" else np.right_shift

    def moved(a: pa.Array, b: pa.Array) -> pa.Array:
        values = numbers(as_type(a, type))
        places = numbers(b).astype(values.dtype) & (type.bit_width - 1)
        return pa.array(kernel(values, places), type, mask=bools(a.is_null()) | bools(b.is_null()))

    return apply(to.call, type, moved, to.series)
