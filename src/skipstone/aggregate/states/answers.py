"""Final values of block aggregates, with Spark SQL's types and NULLs.

Exact sums are rounded once, at the end. A block without values has count 0 and NULL for everything else.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.aggregate.states.blocks import Blocks, is_number
from skipstone.aggregate.states.exact import (
    HUGE_BITS,
    estimates,
    fraction,
    from_ints,
    nearest_double,
    round_sums,
    to_decimals,
    to_ints,
)
from skipstone.core.domain.keys import Kind, is_text, key_space, storage_type
from skipstone.core.evidence import Array
from skipstone.core.plain import type_name
from skipstone.errors import SkipstoneError, TypeMismatchError

_DECIMAL128_DIGITS = 38
_DECIMAL256_DIGITS = 76
# Largest double below which every integer is exact.
_EXACT_DOUBLE = 2**53


_HINT = "use a numeric column"

# -- types -------------------------------------------------------------------------------------


def sum_type(type: pa.DataType, name: str | None = None) -> pa.DataType:
    """Type of a sum of ``type``."""
    storage = _summable(type, name, "summed")
    if pa.types.is_floating(storage):
        return pa.float64()
    if pa.types.is_integer(storage):
        return pa.decimal128(_DECIMAL128_DIGITS, 0)
    return _decimal(storage, 10, 0)


def avg_type(type: pa.DataType, name: str | None = None) -> pa.DataType:
    """Type of an average of ``type``."""
    storage = _summable(type, name, "averaged")
    return _decimal(storage, 4, 4) if pa.types.is_decimal(storage) else pa.float64()


def _decimal(type: pa.DataType, digits: int, places: int) -> pa.DataType:
    wide = type.precision > _DECIMAL128_DIGITS
    limit = _DECIMAL256_DIGITS if wide else _DECIMAL128_DIGITS
    precision, scale = min(limit, type.precision + digits), min(limit, type.scale + places)
    return (pa.decimal256 if wide else pa.decimal128)(precision, scale)


def _summable(type: pa.DataType, name: str | None, what: str) -> pa.DataType:
    if not is_number(type):
        raise TypeMismatchError(f"values of type {type_name(type)} can't be {what}", column=name, hint=_HINT)
    return storage_type(type)


# -- counts, minima and maxima -------------------------------------------------------------------


def counts(blocks: Blocks) -> pa.Array:
    """Numbers of non-NULL values."""
    return pa.array(blocks.count, pa.int64())


def extremes(blocks: Blocks, *, maximum: bool) -> pa.Array:
    """Minima or maxima in the column's type; NaN is the largest value."""
    storage = storage_type(blocks.type)
    keys = blocks.upper if maximum else blocks.lower
    empty = blocks.count == 0
    if key_space(storage).kind is Kind.BYTES:
        values = _from_bytes(keys, storage, ~empty)
    elif pa.types.is_decimal(storage):
        values = to_decimals(_from_words(keys), storage, ~empty)
    elif key_space(storage).kind is Kind.FLOAT:
        is_nan = blocks.nans > 0 if maximum else ~blocks.has
        values = pa.array(np.where(is_nan, np.nan, keys), mask=empty).cast(storage)
    elif pa.types.is_boolean(storage):
        values = pa.array(keys != 0, mask=empty)
    else:
        width = np.dtype(f"{keys.dtype.kind}{storage.bit_width // 8}")
        values = pa.array(keys.astype(width), mask=empty).view(storage)
    wrapped = isinstance(blocks.type, pa.BaseExtensionType)
    return pa.ExtensionArray.from_storage(blocks.type, values) if wrapped else values


def _from_words(keys: Array) -> Array:
    """Split 64-bit integers into limbs."""
    return np.stack([keys & 0xFFFFFFFF, keys >> 32])


def _from_bytes(keys: pa.Array, type: pa.DataType, valid: Array) -> pa.Array:
    keys = pc.if_else(pa.array(valid), keys, pa.scalar(None, keys.type))
    if pa.types.is_decimal(type):
        width = key_space(type).width
        wide = [
            0 if key is None else int.from_bytes(key, "big") - (1 << 8 * width - 1)
            for key in keys.to_pylist()
        ]
        return to_decimals(from_ints(wide), type, valid)
    # A view, so that invalid UTF-8 doesn't raise here.
    return (keys.view(pa.large_string()) if is_text(type) else keys).cast(type)


# -- sums and averages -------------------------------------------------------------------------


def sums(blocks: Blocks, name: str | None = None) -> pa.Array:
    """Sums; NaN and infinities propagate as in ordinary addition."""
    type = sum_type(blocks.type, name)
    present = blocks.count > 0
    if pa.types.is_floating(type):
        return pa.array(_float_sums(blocks), mask=~present)
    return _check_and_convert(blocks.limbs, type, present, name, "sum")


def averages(blocks: Blocks, name: str | None = None) -> pa.Array:
    """Averages, rounded once; decimals are rounded half up, as in Spark."""
    type = avg_type(blocks.type, name)
    present = blocks.count > 0
    if pa.types.is_decimal(type):
        power = 10 ** (type.scale - storage_type(blocks.type).scale)
        pairs = zip(to_ints(blocks.limbs), blocks.count.tolist(), strict=True)
        quotients = [_half_up(total * power, count) if count else 0 for total, count in pairs]
        return _check_and_convert(from_ints(quotients), type, present, name, "average")
    # If the sum is an exact double, a division rounds once.
    total, exact = _as_doubles(blocks)
    result = total / np.maximum(blocks.count, 1)
    for block in np.flatnonzero(present & ~exact).tolist():
        result[block] = nearest_double(_exact_sum(blocks, block) / int(blocks.count[block]))
    return pa.array(result, mask=~present)


def _check_and_convert(
    limbs: Array, type: pa.DataType, valid: Array, name: str | None, what: str
) -> pa.Array:
    limit = 10**type.precision
    for block in np.flatnonzero(valid & (np.abs(estimates(limbs)) > 0.999 * limit)).tolist():
        if abs(to_ints(limbs[:, block : block + 1])[0]) >= limit:
            raise SkipstoneError(
                f"{what} has more than the {type.precision} digits of {type_name(type)}",
                column=name,
                hint="cast the column to double, or select fewer rows",
            )
    return to_decimals(limbs, type, valid)


def _half_up(number: int, by: int) -> int:
    half = (2 * abs(number) + by) // (2 * by)
    return half if number >= 0 else -half


def _as_doubles(blocks: Blocks) -> tuple[Array, Array]:
    """Sums as doubles, and a mask of those that are exact."""
    if key_space(blocks.type).kind is not Kind.FLOAT:
        sums = estimates(blocks.limbs)
        return sums, np.abs(sums) < _EXACT_DOUBLE
    sums, parts = _float_sums(blocks), blocks.parts
    exact = (parts[1:] == 0).all(axis=0) & (blocks.limbs == 0).all(axis=0)
    return sums, exact | ~np.isfinite(sums) & _is_not_finite(blocks)


def _float_sums(blocks: Blocks) -> Array:
    sums = round_sums(blocks.parts)
    if len(blocks.limbs):
        for block in np.flatnonzero((blocks.limbs != 0).any(axis=0)).tolist():
            sums[block] = nearest_double(_exact_sum(blocks, block))
    sums = np.where(blocks.infinite != 0, blocks.infinite, sums)
    return np.where(blocks.nans > 0, np.nan, sums)


def _is_not_finite(blocks: Blocks) -> Array:
    """Mask of blocks whose sum is NaN or infinite."""
    mask: Array = (blocks.nans > 0) | (blocks.infinite != 0)
    return mask


def _exact_sum(blocks: Blocks, block: int) -> Fraction:
    total = to_ints(blocks.limbs[:, block : block + 1])[0]
    if key_space(blocks.type).kind is Kind.FLOAT:
        return fraction(blocks.parts, block) + (total << HUGE_BITS)
    return Fraction(total)


# -- variance ----------------------------------------------------------------------------------


def variances(blocks: Blocks, ddof: int, *, root: bool, name: str | None = None) -> pa.Array:
    """Variances, or with ``root`` standard deviations, rounded once.

    NULL for blocks of at most ``ddof`` values; NaN if a value is NaN or infinite.
    """
    storage = _summable(blocks.type, name, "used in a variance")
    unit = Fraction(10) ** (-2 * storage.scale) if pa.types.is_decimal(storage) else Fraction(1)
    enough = blocks.count > ddof
    result = np.full(len(blocks), np.nan)
    # Block by block, since exact squares of doubles have no fixed width.
    for block in np.flatnonzero(enough & ~_is_not_finite(blocks)).tolist():
        if np.isinf(blocks.squares[:, block]).any():
            result[block] = np.inf
            continue
        count, total = int(blocks.count[block]), _exact_sum(blocks, block)
        numerator = fraction(blocks.squares, block) * count - total * total
        # Squares of the smallest doubles are rounded, which must not make a variance negative.
        variance = max(numerator * unit / (count * (count - ddof)), Fraction(0))
        result[block] = _root(variance) if root else nearest_double(variance)
    return pa.array(result, mask=~enough)


def _root(value: Fraction) -> float:
    """Nearest double to the square root."""
    top, bottom = value.numerator, value.denominator
    # More bits than a double has, and one that marks an inexact root.
    shift = max(0, 64 - (top.bit_length() - bottom.bit_length()) // 2)
    scaled = (top << 2 * shift) // bottom
    root = math.isqrt(scaled)
    exact = root * root * bottom == top << 2 * shift
    return nearest_double(Fraction(2 * root + (not exact), 2 << shift))
