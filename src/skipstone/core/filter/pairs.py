"""Comparisons of two computed values with Spark's type coercion."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.arrays import Array, binary_keys, bools, both_valid, numbers, valid_rows
from skipstone.core.domain.keys import is_binary, is_text
from skipstone.core.filter.arithmetic import doubles
from skipstone.core.filter.conditions import TruthMask
from skipstone.core.ir.transforms import DAY, UNITS
from skipstone.predicate.tree import CompareOp

_DIGITS = 76

Order = Callable[[pa.Array, pa.Array], tuple[Array, Array]]
"""Per row, whether the left value is less than the right one, and whether they are equal."""


_COMPARISONS: dict[CompareOp, Callable[[Array, Array], Array]] = {
    "=": lambda _, equal: equal,
    "<>": lambda _, equal: ~equal,
    "<": lambda less, _: less,
    "<=": lambda less, equal: less | equal,
    ">": lambda less, equal: ~(less | equal),
    ">=": lambda less, _: ~less,
}


def compare(op: CompareOp, order: Order, left: pa.Array, right: pa.Array) -> TruthMask:
    """``left op right`` for each row."""
    less, equal = order(left, right)
    valid = both_valid(valid_rows(left), valid_rows(right))
    if op == "<=>":
        if valid is None:
            return TruthMask(equal)
        return TruthMask((equal & valid) | bools(pc.and_(left.is_null(), right.is_null())))
    true = _COMPARISONS[op](less, equal)
    return TruthMask(true) if valid is None else TruthMask(true & valid, ~valid)


def order_of(left: pa.DataType, right: pa.DataType) -> Order | None:
    """Comparison of plain arrays of two types, or None if they are not comparable without a cast."""
    for fits, order in _ORDERS:
        if fits(left) and fits(right):
            return order(left, right)
    return None


def _is_number(type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type) or pa.types.is_floating(type) or pa.types.is_decimal(type))


def _is_bytes(type: pa.DataType) -> bool:
    return is_text(type) or is_binary(type)


def _is_date_or_timestamp(type: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(type) or pa.types.is_date(type))


# -- numbers -----------------------------------------------------------------------------------


def _number_order(left: pa.DataType, right: pa.DataType) -> Order | None:
    if pa.types.is_floating(left) or pa.types.is_floating(right):
        return lambda a, b: _floats(doubles(a), doubles(b))
    if pa.types.is_integer(left) and pa.types.is_integer(right):
        return lambda a, b: _integers(numbers(a), numbers(b))
    scale = max(_scale(left), _scale(right))
    digits = max(_digits(left) - _scale(left), _digits(right) - _scale(right)) + scale
    if digits > _DIGITS:
        return None
    wide = pa.decimal256(_DIGITS, scale)
    return lambda a, b: _ordered(_widen(a, wide), _widen(b, wide))


def _widen(array: pa.Array, wide: pa.DataType) -> pa.Array:
    if pa.types.is_integer(array.type):
        array = array.cast(pa.decimal128(20, 0))
    return array.cast(wide)


def _floats(a: Array, b: Array) -> tuple[Array, Array]:
    """NaN equals itself and is above every number."""
    nan_a, nan_b = np.isnan(a), np.isnan(b)
    return (a < b) | (nan_b & ~nan_a), (a == b) | (nan_a & nan_b)


def _integers(a: Array, b: Array) -> tuple[Array, Array]:
    # NumPy compares integers of any two types exactly, even uint64 with int64.
    return a < b, a == b


def _scale(type: pa.DataType) -> int:
    return int(type.scale) if pa.types.is_decimal(type) else 0


def _digits(type: pa.DataType) -> int:
    return int(type.precision) if pa.types.is_decimal(type) else 20


# -- bytes and times ---------------------------------------------------------------------------


def _byte_order(left: pa.DataType, right: pa.DataType) -> Order:
    same = left == right and not pa.types.is_fixed_size_binary(left)
    if same:
        return lambda a, b: _ordered(binary_keys(a), binary_keys(b))
    wide = pa.large_binary()
    return lambda a, b: _ordered(binary_keys(a).cast(wide), binary_keys(b).cast(wide))


def _ordered(a: pa.Array, b: pa.Array) -> tuple[Array, Array]:
    return bools(pc.less(a, b)), bools(pc.equal(a, b))


def _tick_order(left: pa.DataType, right: pa.DataType) -> Order:
    """Compare ticks of two units; the finer one is truncated, since the coarser one could overflow."""
    parts = _per_day(left), _per_day(right)
    if parts[0] > parts[1]:
        swapped = _tick_order(right, left)

        def compare_swapped(a: pa.Array, b: pa.Array) -> tuple[Array, Array]:
            less, equal = swapped(b, a)
            return ~(less | equal), equal

        return compare_swapped
    step = parts[1] // parts[0]

    def compare(a: pa.Array, b: pa.Array) -> tuple[Array, Array]:
        coarse, fine = numbers(a), numbers(b)
        if step == 1:
            return coarse < fine, coarse == fine
        truncated = fine // step
        exact = truncated * step == fine
        return (coarse < truncated) | ((coarse == truncated) & ~exact), (coarse == truncated) & exact

    return compare


def _per_day(type: pa.DataType) -> int:
    if pa.types.is_date32(type):
        return 1
    return DAY * (1_000 if pa.types.is_date64(type) else UNITS[type.unit])


def _flag_order(_left: pa.DataType, _right: pa.DataType) -> Order:
    return lambda a, b: (numbers(a) < numbers(b), numbers(a) == numbers(b))


_ORDERS: tuple[
    tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType, pa.DataType], Order | None]], ...
] = (
    (_is_number, _number_order),
    (_is_bytes, _byte_order),
    (_is_date_or_timestamp, _tick_order),
    (pa.types.is_time, _tick_order),
    (pa.types.is_duration, _tick_order),
    (pa.types.is_boolean, _flag_order),
)
