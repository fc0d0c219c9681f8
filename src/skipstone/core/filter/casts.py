"""CAST with Spark's semantics and string formats."""

from __future__ import annotations

import decimal
import re
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.arrays import Array, bools, numbers, plain_type, valid_rows
from skipstone.core.domain.keys import is_binary, is_text
from skipstone.core.filter.arithmetic import doubles, is_number, parse_decimals
from skipstone.core.filter.conditions import CheckedCast, Kernel, RowError, Series, apply, not_computable
from skipstone.core.filter.strings import map_distinct
from skipstone.core.filter.times import cast_time, wall_clock
from skipstone.core.ir.bind import cast_value
from skipstone.core.ir.nodes import NotJudgeable, Value
from skipstone.core.ir.transforms import UNITS
from skipstone.core.plain import type_name
from skipstone.errors import TypeMismatchError
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
        raise not_computable(expr, f"Spark has no cast from {type_name(source)} to {type_name(expr.type)}")
    convert = _find_cast(expr, source, target)
    if convert is None:
        raise not_computable(expr, f"casts from {type_name(source)} to {target} are not supported")
    return apply(expr, target, _check(convert, expr.lenient), [arg], risky=not expr.lenient, cost=10)


def _check(convert: CheckedCast, lenient: bool) -> Kernel:
    def kernel(array: pa.Array) -> pa.Array:
        result, bad = convert(array)
        if bad is None:
            return result
        valid = valid_rows(array)
        bad = bad if valid is None else bad & valid
        if not bad.any():
            return result
        if lenient:
            return pc.if_else(pa.array(bad), pa.scalar(None, result.type), result)
        from skipstone.predicate.text import value_text

        value = value_text(array[int(np.argmax(bad))])
        hint = "exclude such rows with AND, or use try_cast, which returns NULL for them"
        if is_text(array.type):
            hint = "put the other value in quotes to compare text, or use try_cast to get NULL"
        raise RowError(f"{value} doesn't fit {type_name(result.type)}", hint)

    return kernel


def _find_cast(expr: tree.Cast, source: pa.DataType, target: pa.DataType) -> CheckedCast | None:
    if is_text(source):
        return from_string(expr, target)
    if is_text(target):
        return to_string(source, target, expr.zone)
    if pa.types.is_temporal(source) or pa.types.is_temporal(target):
        return cast_time(source, target, expr.zone)
    if is_binary(source) or is_binary(target):
        supported = is_binary(source) and is_binary(target) and not pa.types.is_fixed_size_binary(target)
        return (lambda a: (a.cast(target), None)) if supported else None
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


def _to_integer(source: pa.DataType, target: pa.DataType) -> CheckedCast:
    low, high = _range(target)

    def integer(array: pa.Array) -> tuple[pa.Array, Array]:
        keys = numbers(array)
        bad = (keys < low) | (keys > high)
        return _to_integer_array(np.where(bad, 0, keys), array, target), bad

    def floating(array: pa.Array) -> tuple[pa.Array, Array]:
        truncated = np.trunc(doubles(array))
        # The upper limit plus one is a power of two, so it is an exact double.
        bad = ~((truncated >= float(low)) & (truncated < float(high + 1)))
        return _to_integer_array(np.where(bad, 0, truncated), array, target), bad

    def decimal(array: pa.Array) -> tuple[pa.Array, Array]:
        truncated = pc.trunc(array.cast(pa.decimal256(76, source.scale))).cast(pa.decimal256(76, 0))
        bounds = (pa.scalar(end, pa.int64() if end < 2**63 else pa.uint64()) for end in (low, high))
        smallest, largest = (end.cast(pa.decimal128(20, 0)).cast(truncated.type) for end in bounds)
        bad = bools(pc.or_(pc.less(truncated, smallest), pc.greater(truncated, largest)))
        valid = pc.if_else(pa.array(bad), pa.scalar(None, truncated.type), truncated)
        return valid.cast(target), bad

    if pa.types.is_floating(source):
        return floating
    return decimal if pa.types.is_decimal(source) else integer


def _range(type: pa.DataType) -> tuple[int, int]:
    if pa.types.is_unsigned_integer(type):
        return 0, 2**type.bit_width - 1
    return -(2 ** (type.bit_width - 1)), 2 ** (type.bit_width - 1) - 1


def _to_integer_array(values: Array, source: pa.Array, type: pa.DataType) -> pa.Array:
    integers = values.astype(f"{'u' if pa.types.is_unsigned_integer(type) else 'i'}{type.bit_width // 8}")
    return pa.array(integers, type, mask=bools(source.is_null()) if source.null_count else None)


def _to_float(array: pa.Array, target: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(array.type):
        values = doubles(array) if pa.types.is_float64(target) else parse_decimals(array, target)
    else:
        with np.errstate(over="ignore"):
            values = numbers(array).astype(np.float64 if pa.types.is_float64(target) else np.float32)
    return pa.array(values, target, mask=bools(array.is_null()) if array.null_count else None)


def _to_decimal(source: pa.DataType, target: pa.DataType) -> CheckedCast | None:
    """Cast integers and decimals: round half up to the new scale, then check the precision."""
    scale = source.scale if pa.types.is_decimal(source) else 0
    if target.precision > _DIGITS or target.scale < 0 or scale < 0:
        return None
    wide = pa.decimal256(76, max(scale, target.scale))

    def convert(array: pa.Array) -> tuple[pa.Array, Array]:
        if pa.types.is_integer(source):
            array = array.cast(pa.decimal128(20, 0))
        rounded = pc.round(array.cast(wide), target.scale, "half_towards_infinity")
        limit = pa.scalar(10 ** (target.precision - target.scale), pa.decimal256(76, 0)).cast(wide)
        bad = bools(pc.greater_equal(pc.abs(rounded), limit))
        valid = pc.if_else(pa.array(bad), pa.scalar(None, wide), rounded) if bad.any() else rounded
        return valid.cast(target), bad

    return convert


_SPACES = "".join(map(chr, (*range(33), 127)))  # trimmed by Spark: white space and control characters
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_FLOAT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[dDfF]?", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_NAMED = re.compile(r"[+-]?(inf|infinity)|nan", re.IGNORECASE)
_TRUE, _FALSE = ("t", "true", "y", "yes", "1"), ("f", "false", "n", "no", "0")
_EXACT = decimal.Context(prec=400)
_LAST_YEAR = 9999


def from_string(cast: tree.Cast, target: pa.DataType) -> CheckedCast | None:
    """Parse strings as ``target``; each distinct string is parsed once."""
    if is_text(target):
        return lambda a: (a.cast(target), None)
    if is_binary(target):
        fixed = pa.types.is_fixed_size_binary(target)
        return None if fixed else lambda a: (a.cast(target), None)
    parse = _parser(cast, target)
    if parse is None:
        return None

    def convert(array: pa.Array) -> tuple[pa.Array, Array]:
        result = _parse_iso_dates(array) if pa.types.is_date32(target) else None
        if result is None:
            result = map_distinct(array, parse, target)
        return result, bools(result.is_null())

    return convert


def _parse_iso_dates(array: pa.Array) -> pa.Array | None:
    """Parse dates with Arrow if all of them are ``YYYY-MM-DD``, otherwise None."""
    if not pc.all(pc.match_substring_regex(array, r"\A\d{4}-\d{2}-\d{2}\z")).as_py():
        return None
    try:
        return array.cast(pa.date32())
    except pa.ArrowInvalid:
        return None


def _parser(cast: tree.Cast, target: pa.DataType) -> Callable[[str], object] | None:
    if pa.types.is_integer(target):
        return _integer(target)
    if pa.types.is_floating(target):
        return _float(target)
    if pa.types.is_boolean(target):
        return _boolean
    if pa.types.is_decimal(target):
        return _decimal(target)
    if pa.types.is_date32(target) or pa.types.is_timestamp(target):
        return lambda text: _date_or_timestamp(text, cast)
    return None


def _integer(target: pa.DataType) -> Callable[[str], object]:
    signed = not pa.types.is_unsigned_integer(target)
    limit = 2 ** (target.bit_width - signed)

    def parse(text: str) -> int | None:
        text = text.strip(_SPACES)
        number = int(text) if _INTEGER.fullmatch(text) and len(text) < 1_000 else None
        return number if number is not None and -limit * signed <= number < limit else None

    return parse


def _float(target: pa.DataType) -> Callable[[str], object]:
    narrow = pa.types.is_float32(target)

    def parse(text: str) -> float | None:
        text = text.strip(_SPACES)
        if _FLOAT.fullmatch(text):
            text = text.rstrip("dDfF")
        elif not _NAMED.fullmatch(text):
            return None
        # Arrow rounds once; through a double there would be two roundings.
        return pa.scalar(text).cast(target).as_py() if narrow else float(text)

    return parse


def _boolean(text: str) -> bool | None:
    word = text.strip(_SPACES).lower()
    return True if word in _TRUE else False if word in _FALSE else None


def _decimal(target: pa.DataType) -> Callable[[str], object]:
    unit = decimal.Decimal(1).scaleb(-target.scale)

    def parse(text: str) -> decimal.Decimal | None:
        text = text.strip(_SPACES)
        if not _NUMBER.fullmatch(text):
            return None
        number = decimal.Decimal(text)
        if number.adjusted() >= target.precision - target.scale and number:
            return None
        rounded = number.quantize(unit, decimal.ROUND_HALF_UP, _EXACT)
        return rounded if rounded.adjusted() < target.precision - target.scale else None

    return parse


def _date_or_timestamp(text: str, cast: tree.Cast) -> pa.Scalar | None:
    try:
        return cast_value(Value(pa.scalar(text), cast.zone), cast).scalar
    except (TypeMismatchError, NotJudgeable):
        return None


# -- to string ---------------------------------------------------------------------------------


def to_string(source: pa.DataType, target: pa.DataType, zone: str) -> CheckedCast | None:
    """Format values as Spark does."""
    if pa.types.is_integer(source):
        return lambda a: (a.cast(target), None)
    if pa.types.is_boolean(source):
        return lambda a: (pc.if_else(a, "true", "false").cast(target), None)
    if is_binary(source):
        return lambda a: (a.cast(pa.large_binary()).cast(pa.large_string()).cast(target), None)
    if pa.types.is_date32(source):
        return lambda a: (_format_dates(a).cast(target), None)
    if pa.types.is_timestamp(source) and source.unit != "ns":
        return lambda a: (_format_timestamps(a, zone).cast(target), None)
    return None


def _format_dates(array: pa.Array) -> pa.Array:
    _check_years(array)
    return array.cast(pa.string())


def _format_timestamps(array: pa.Array, zone: str) -> pa.Array:
    """Format as ``yyyy-MM-dd HH:mm:ss`` in the session time zone, with a fraction if it is not zero."""
    wall, _ = wall_clock(array, zone)
    per_second = UNITS[array.type.unit]
    nulls = bools(array.is_null())
    seconds = pa.array(wall // per_second, mask=nulls).view(pa.timestamp("s"))
    _check_years(seconds)
    ticks = np.asarray(wall % per_second * (10**6 // per_second))
    formatted = seconds.cast(pa.string())
    if not ticks.any():
        return formatted
    digits = pc.utf8_lpad(pa.array(ticks).cast(pa.string()), 6, "0")
    fraction = pc.binary_join_element_wise(pa.array([""] * len(ticks)), pc.utf8_rtrim(digits, "0"), ".")
    return pc.binary_join_element_wise(formatted, pc.if_else(pa.array(ticks == 0), "", fraction), "")


def _check_years(array: pa.Array) -> None:
    years = pc.min_max(pc.year(array))
    if years["min"].is_valid and (years["min"].as_py() < 0 or years["max"].as_py() > _LAST_YEAR):
        raise pa.ArrowInvalid("year has more than four digits")
