"""From aggregates of blocks to answers: one Arrow value per block, with Spark SQL's types and NULLs.

What is exact is rounded once, at the end. The number of a block without values is NULL, its count 0.
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
    decimals,
    estimates,
    fraction,
    from_totals,
    nearest,
    rounded,
    totals,
)
from skipstone.core.domain.keys import Kind, is_text, key_space, storage_type
from skipstone.core.evidence import Array
from skipstone.errors import SkipstoneError, TypeMismatchError

_LONG = 38
_LONGEST = 76
# Beyond this a double doesn't hold every whole number.
_WHOLE = 2**53


# -- types -------------------------------------------------------------------------------------


def sum_type(type: pa.DataType, name: str | None = None) -> pa.DataType:
    """The type of a sum of values of ``type``."""
    storage = _summable(type, name, "added")
    if pa.types.is_floating(storage):
        return pa.float64()
    if pa.types.is_integer(storage):
        return pa.decimal128(_LONG, 0)
    return _decimal(storage, 10, 0)


def avg_type(type: pa.DataType, name: str | None = None) -> pa.DataType:
    """The type of an average of values of ``type``."""
    storage = _summable(type, name, "averaged")
    return _decimal(storage, 4, 4) if pa.types.is_decimal(storage) else pa.float64()


def _decimal(type: pa.DataType, digits: int, places: int) -> pa.DataType:
    wide = type.precision > _LONG
    most = _LONGEST if wide else _LONG
    precision, scale = min(most, type.precision + digits), min(most, type.scale + places)
    return (pa.decimal256 if wide else pa.decimal128)(precision, scale)


def _summable(type: pa.DataType, name: str | None, what: str) -> pa.DataType:
    if not is_number(type):
        raise TypeMismatchError(
            f"values of type {type} can't be {what}", column=name, hint="name a column of numbers"
        )
    return storage_type(type)


# -- counts, least and greatest values ---------------------------------------------------------


def counts(blocks: Blocks) -> pa.Array:
    """How many values are not NULL."""
    return pa.array(blocks.count, pa.int64())


def extremes(blocks: Blocks, *, greatest: bool) -> pa.Array:
    """The greatest or the least values, in the column's type; NaN is above all others."""
    storage = storage_type(blocks.type)
    keys = blocks.upper if greatest else blocks.lower
    empty = blocks.count == 0
    if key_space(storage).kind is Kind.BYTES:
        found = _from_bytes(keys, storage, ~empty)
    elif pa.types.is_decimal(storage):
        found = decimals(_from_words(keys), storage, ~empty)
    elif key_space(storage).kind is Kind.FLOAT:
        odd = blocks.nans > 0 if greatest else ~blocks.has
        found = pa.array(np.where(odd, np.nan, keys), mask=empty).cast(storage)
    elif pa.types.is_boolean(storage):
        found = pa.array(keys != 0, mask=empty)
    else:
        width = np.dtype(f"{keys.dtype.kind}{storage.bit_width // 8}")
        found = pa.array(keys.astype(width), mask=empty).view(storage)
    wrapped = isinstance(blocks.type, pa.BaseExtensionType)
    return pa.ExtensionArray.from_storage(blocks.type, found) if wrapped else found


def _from_words(keys: Array) -> Array:
    """Whole numbers of 64 bits as limbs."""
    return np.stack([keys & 0xFFFFFFFF, keys >> 32])


def _from_bytes(keys: pa.Array, type: pa.DataType, known: Array) -> pa.Array:
    keys = pc.if_else(pa.array(known), keys, pa.scalar(None, keys.type))
    if pa.types.is_decimal(type):
        width = key_space(type).width
        wide = [
            0 if key is None else int.from_bytes(key, "big") - (1 << 8 * width - 1)
            for key in keys.to_pylist()
        ]
        return decimals(from_totals(wide), type, known)
    # A view: bytes that are not valid text are no reason to fail here.
    return (keys.view(pa.large_string()) if is_text(type) else keys).cast(type)


# -- sums and averages -------------------------------------------------------------------------


def sums(blocks: Blocks, name: str | None = None) -> pa.Array:
    """The sums; NaN if there is NaN, infinite as adding one by one would be."""
    type = sum_type(blocks.type, name)
    present = blocks.count > 0
    if pa.types.is_floating(type):
        return pa.array(_float_sums(blocks), mask=~present)
    return _fitting(blocks.limbs, type, present, name, "sum")


def averages(blocks: Blocks, name: str | None = None) -> pa.Array:
    """The averages, rounded once; those of decimals half up, as Spark does."""
    type = avg_type(blocks.type, name)
    present = blocks.count > 0
    if pa.types.is_decimal(type):
        power = 10 ** (type.scale - storage_type(blocks.type).scale)
        pairs = zip(totals(blocks.limbs), blocks.count.tolist(), strict=True)
        found = [_half_up(total * power, count) if count else 0 for total, count in pairs]
        return _fitting(from_totals(found), type, present, name, "average")
    # Where a double holds the sum, one division rounds once.
    total, plain = _as_doubles(blocks)
    out = total / np.maximum(blocks.count, 1)
    for block in np.flatnonzero(present & ~plain).tolist():
        out[block] = nearest(_exact_sum(blocks, block) / int(blocks.count[block]))
    return pa.array(out, mask=~present)


def _fitting(limbs: Array, type: pa.DataType, known: Array, name: str | None, what: str) -> pa.Array:
    limit = 10**type.precision
    for block in np.flatnonzero(known & (np.abs(estimates(limbs)) > 0.999 * limit)).tolist():
        if abs(totals(limbs[:, block : block + 1])[0]) >= limit:
            raise SkipstoneError(
                f"the {what} has more than the {type.precision} digits of {type}",
                column=name,
                hint="cast the column to double, or ask for fewer rows",
            )
    return decimals(limbs, type, known)


def _half_up(number: int, by: int) -> int:
    half = (2 * abs(number) + by) // (2 * by)
    return half if number >= 0 else -half


def _as_doubles(blocks: Blocks) -> tuple[Array, Array]:
    """The sums as doubles, and which of them are not rounded."""
    if key_space(blocks.type).kind is not Kind.FLOAT:
        found = estimates(blocks.limbs)
        return found, np.abs(found) < _WHOLE
    found, parts = _float_sums(blocks), blocks.parts
    plain = (parts[1:] == 0).all(axis=0) & (blocks.limbs == 0).all(axis=0)
    return found, plain | ~np.isfinite(found) & _odd(blocks)


def _float_sums(blocks: Blocks) -> Array:
    found = rounded(blocks.parts)
    if len(blocks.limbs):
        for block in np.flatnonzero((blocks.limbs != 0).any(axis=0)).tolist():
            found[block] = nearest(_exact_sum(blocks, block))
    found = np.where(blocks.infinite != 0, blocks.infinite, found)
    return np.where(blocks.nans > 0, np.nan, found)


def _odd(blocks: Blocks) -> Array:
    """The blocks whose sums are NaN or infinite."""
    odd: Array = (blocks.nans > 0) | (blocks.infinite != 0)
    return odd


def _exact_sum(blocks: Blocks, block: int) -> Fraction:
    whole = totals(blocks.limbs[:, block : block + 1])[0]
    if key_space(blocks.type).kind is Kind.FLOAT:
        return fraction(blocks.parts, block) + (whole << HUGE_BITS)
    return Fraction(whole)


# -- spread ------------------------------------------------------------------------------------


def variances(blocks: Blocks, ddof: int, *, root: bool, name: str | None = None) -> pa.Array:
    """The variances, or with ``root`` their square roots, rounded once.

    NULL where there are no more than ``ddof`` values, NaN where one is NaN or infinite.
    """
    storage = _summable(blocks.type, name, "compared with their average")
    unit = Fraction(10) ** (-2 * storage.scale) if pa.types.is_decimal(storage) else Fraction(1)
    enough = blocks.count > ddof
    out = np.full(len(blocks), np.nan)
    # Block by block: squares of doubles have no fixed width.
    for block in np.flatnonzero(enough & ~_odd(blocks)).tolist():
        if np.isinf(blocks.squares[:, block]).any():
            out[block] = np.inf
            continue
        count, total = int(blocks.count[block]), _exact_sum(blocks, block)
        spread = fraction(blocks.squares, block) * count - total * total
        # Squares of the smallest doubles are rounded: what they lack must not show as less than nothing.
        variance = max(spread * unit / (count * (count - ddof)), Fraction(0))
        out[block] = _root(variance) if root else nearest(variance)
    return pa.array(out, mask=~enough)


def _root(value: Fraction) -> float:
    """The double nearest to the square root."""
    top, bottom = value.numerator, value.denominator
    # So many bits that a double has fewer, and one more that says whether the root goes on.
    shift = max(0, 64 - (top.bit_length() - bottom.bit_length()) // 2)
    scaled = (top << 2 * shift) // bottom
    whole = math.isqrt(scaled)
    exact = whole * whole * bottom == top << 2 * shift
    return nearest(Fraction(2 * whole + (not exact), 2 << shift))
