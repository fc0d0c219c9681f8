"""CAST between numbers, times and booleans as ANSI Spark does it; ``try_cast`` gives NULL for an error."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.domain.keys import is_binary, is_text
from skipstone.core.filter.arithmetic import is_number
from skipstone.core.filter.keys import numbers
from skipstone.core.filter.numbers import doubles, parsed
from skipstone.core.filter.rows import plain_type
from skipstone.core.filter.series import Checked, Kernel, RowError, Series, apply, cannot
from skipstone.core.filter.textcasts import from_text, to_text
from skipstone.core.filter.times import cast_time
from skipstone.core.filter.truth import Array, bools, valid_rows
from skipstone.predicate import tree

_DIGITS = 38


def cast(expr: tree.Cast, arg: Series) -> Series:
    """``CAST(arg AS type)``."""
    source, target = arg.type, plain_type(expr.type)
    if source == target:
        return arg
    if pa.types.is_null(source):
        return apply(expr, target, lambda a: pa.nulls(len(a), target), [arg])
    if pa.types.is_float16(expr.type) or pa.types.is_nested(target) or pa.types.is_nested(source):
        raise cannot(expr, f"a cast from {source} to {expr.type} is not Spark's")
    change = _find(expr, source, target)
    if change is None:
        raise cannot(expr, f"a cast from {source} to {target} has no sure answer here")
    return apply(expr, target, _guarded(change, expr.lenient), [arg], risky=not expr.lenient, cost=10)


def _guarded(change: Checked, lenient: bool) -> Kernel:
    def kernel(array: pa.Array) -> pa.Array:
        made, bad = change(array)
        if bad is None:
            return made
        valid = valid_rows(array)
        bad = bad if valid is None else bad & valid
        if not bad.any():
            return made
        if lenient:
            return pc.if_else(pa.array(bad), pa.scalar(None, made.type), made)
        raise RowError(f"{array[int(np.argmax(bad))]} doesn't fit {made.type}")

    return kernel


def _find(expr: tree.Cast, source: pa.DataType, target: pa.DataType) -> Checked | None:
    if is_text(source):
        return from_text(expr, target)
    if is_text(target):
        return to_text(source, target, expr.zone)
    if pa.types.is_temporal(source) or pa.types.is_temporal(target):
        return cast_time(source, target, expr.zone)
    if is_binary(source) or is_binary(target):
        same = is_binary(source) and is_binary(target) and not pa.types.is_fixed_size_binary(target)
        return (lambda a: (a.cast(target), None)) if same else None
    if pa.types.is_boolean(target):
        return (lambda a: (pc.not_equal(a, pa.scalar(0, a.type)), None)) if is_number(source) else None
    if pa.types.is_boolean(source):
        return lambda a: (a.cast(pa.int8()).cast(target), None)
    if pa.types.is_integer(target):
        return _to_integer(source, target)
    if pa.types.is_floating(target):
        return lambda a: (_to_float(a, target), None)
    if pa.types.is_decimal(target) and not pa.types.is_floating(source):
        return _to_decimal(source, target)
    return None


def _to_integer(source: pa.DataType, target: pa.DataType) -> Checked:
    low, high = _range(target)

    def integer(array: pa.Array) -> tuple[pa.Array, Array]:
        keys = numbers(array)
        bad = (keys < low) | (keys > high)
        return _made(np.where(bad, 0, keys), array, target), bad

    def floating(array: pa.Array) -> tuple[pa.Array, Array]:
        whole = np.trunc(doubles(array))
        # The upper limit plus one is a power of two, and so a double.
        bad = ~((whole >= float(low)) & (whole < float(high + 1)))
        return _made(np.where(bad, 0, whole), array, target), bad

    def decimal(array: pa.Array) -> tuple[pa.Array, Array]:
        whole = pc.trunc(array.cast(pa.decimal256(76, source.scale))).cast(pa.decimal256(76, 0))
        bounds = (pa.scalar(end, pa.int64() if end < 2**63 else pa.uint64()) for end in (low, high))
        least, most = (end.cast(pa.decimal128(20, 0)).cast(whole.type) for end in bounds)
        bad = bools(pc.or_(pc.less(whole, least), pc.greater(whole, most)))
        kept = pc.if_else(pa.array(bad), pa.scalar(None, whole.type), whole)
        return kept.cast(target), bad

    if pa.types.is_floating(source):
        return floating
    return decimal if pa.types.is_decimal(source) else integer


def _range(type: pa.DataType) -> tuple[int, int]:
    if pa.types.is_unsigned_integer(type):
        return 0, 2**type.bit_width - 1
    return -(2 ** (type.bit_width - 1)), 2 ** (type.bit_width - 1) - 1


def _made(values: Array, like: pa.Array, type: pa.DataType) -> pa.Array:
    whole = values.astype(f"{'u' if pa.types.is_unsigned_integer(type) else 'i'}{type.bit_width // 8}")
    return pa.array(whole, type, mask=bools(like.is_null()) if like.null_count else None)


def _to_float(array: pa.Array, target: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(array.type):
        values = doubles(array) if pa.types.is_float64(target) else parsed(array, target)
    else:
        with np.errstate(over="ignore"):
            values = numbers(array).astype(np.float64 if pa.types.is_float64(target) else np.float32)
    return pa.array(values, target, mask=bools(array.is_null()) if array.null_count else None)


def _to_decimal(source: pa.DataType, target: pa.DataType) -> Checked | None:
    """Integers and decimals: rounded half up to the new scale, then checked against its digits."""
    scale = source.scale if pa.types.is_decimal(source) else 0
    if target.precision > _DIGITS or target.scale < 0 or scale < 0:
        return None
    wide = pa.decimal256(76, max(scale, target.scale))

    def change(array: pa.Array) -> tuple[pa.Array, Array]:
        if pa.types.is_integer(source):
            array = array.cast(pa.decimal128(20, 0))
        moved = pc.round(array.cast(wide), target.scale, "half_towards_infinity")
        limit = pa.scalar(10 ** (target.precision - target.scale), pa.decimal256(76, 0)).cast(wide)
        bad = bools(pc.greater_equal(pc.abs(moved), limit))
        kept = pc.if_else(pa.array(bad), pa.scalar(None, wide), moved) if bad.any() else moved
        return kept.cast(target), bad

    return change
