"""Partition values as evidence about the columns they were made from, for N partitions at once."""

from __future__ import annotations

import decimal
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)

from skipstone.core.domain.keys import (
    PRESENCE,
    Kind,
    is_binary,
    is_text,
    key_space,
    storage_type,
    unscaled,
    wide_key,
)
from skipstone.core.domain.spans import prefix_end
from skipstone.core.evidence import Array, Bounds, ColumnFacts, widest
from skipstone.core.ir.transforms import DAY, UNITS
from skipstone.errors import TypeMismatchError

Keys = Array | list[bytes | None]
"""Bounds of the partitions that have a value: numbers, or bytes with None for unknown."""

_HOUR = 3600


# -- facts from partition values ---------------------------------------------------------------


def source_facts(
    transform: Transform[Any, Any], values: Sequence[Any], type: pa.DataType
) -> ColumnFacts | None:
    """What partition values (in internal form) say about their source column of ``type``.

    None if the transform says nothing: it is void or not known, or the type has no order.
    """
    if not says_something(transform, type):
        return None
    space = key_space(type)
    present = np.array([v is not None for v in values], dtype=bool)
    nan = np.zeros(len(values), dtype=bool)
    if space.kind is Kind.FLOAT:
        nan = np.array([v is not None and v != v for v in values], dtype=bool)
    known = present & ~nan
    chosen = [v for v, is_known in zip(values, known, strict=True) if is_known]
    low, high, exact = _RULES[transform.__class__](transform, type, chosen)
    lower, upper = widest(type, len(values))
    occurs = np.zeros(len(values), dtype=bool)
    occurs[known] = exact
    lower, upper = _placed(lower, known, low), _placed(upper, known, high)
    return ColumnFacts(type, lower, upper, occurs, occurs, known, ~present, nan)


def says_something(transform: Transform[Any, Any], type: pa.DataType) -> bool:
    """Whether values of the transform are evidence about a source of ``type``; an error if they can't be."""
    fits = _FITTING.get(transform.__class__)
    if fits is None or key_space(type) is PRESENCE:
        return False
    if not fits(storage_type(type)):
        raise TypeMismatchError(
            f"{transform} can't be applied to {type}", hint="the table's metadata contradicts itself"
        )
    return True


def _placed(bounds: Bounds, known: Array, keys: Keys) -> Bounds:
    if isinstance(keys, list):
        places = pa.array(np.cumsum(known) - 1, mask=~known)
        return pa.array(keys, pa.large_binary()).take(places)
    bounds[known] = keys
    return bounds


# -- one rule for each transform: bounds of the source, and whether they occur as values -----------


def _identity(_: Transform[Any, Any], type: pa.DataType, values: list[Any]) -> tuple[Keys, Keys, Array]:
    keys = _value_keys(type, values)
    exact = np.ones(len(values), dtype=bool)
    if isinstance(keys, np.ndarray) and keys.dtype.kind == "f":
        # Either zero may stand for both.
        zero = keys == 0
        return np.where(zero, -0.0, keys), np.where(zero, 0.0, keys), ~zero
    return keys, keys, exact


def _period(transform: Transform[Any, Any], type: pa.DataType, values: list[Any]) -> tuple[Keys, Keys, Array]:
    storage = storage_type(type)
    is_date = pa.types.is_date32(storage)
    periods = _numbers(values, transform)
    exact = np.zeros(len(values), dtype=bool)
    if is_date and isinstance(transform, DayTransform):
        return periods, periods, ~exact
    # Early writers rounded times before 1970 toward zero: into the period after their own.
    first = np.where(periods <= 0, periods - 1, periods)
    lower, upper = _starts(transform, first), _starts(transform, periods + 1)
    step = 1 if is_date else (_HOUR if isinstance(transform, HourTransform) else DAY) * UNITS[storage.unit]
    floor, ceiling = (int(limit) for limit in key_space(type).limits)
    low_ok = (lower >= -(-floor // step)) & (lower <= ceiling // step)
    high_ok = (upper > floor // step) & (upper <= ceiling // step)
    return (
        np.where(low_ok, np.where(low_ok, lower, 0) * step, floor),
        np.where(high_ok, np.where(high_ok, upper, 0) * step - 1, ceiling),
        exact,
    )


def _starts(transform: Transform[Any, Any], periods: Array) -> Array:
    """The first day of each period, or its first hour; both are counted from 1970."""
    months = {YearTransform: 12, MonthTransform: 1}.get(transform.__class__)
    if months is None:
        return periods
    return (periods * months).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)


def _truncated(
    transform: Transform[Any, Any], type: pa.DataType, values: list[Any]
) -> tuple[Keys, Keys, Array]:
    assert isinstance(transform, TruncateTransform)
    storage = storage_type(type)
    if pa.types.is_integer(storage) or pa.types.is_decimal(storage):
        return _truncated_numbers(transform.width, type, values)
    width, is_string = transform.width, is_text(storage)
    keys = _value_keys(type, values)
    assert isinstance(keys, list)
    lengths = np.array([len(v) for v in values], dtype=np.int64)
    low: list[bytes | None] = list(keys)
    high: list[bytes | None] = list(keys)
    for at in np.flatnonzero(lengths == width):
        prefix = keys[at]
        assert prefix is not None
        # No UTF-8 text has the byte 0xFF, so this one is above all texts that start with the prefix.
        high[at] = prefix + b"\xff" if is_string else prefix_end(prefix)
    for at in np.flatnonzero(lengths > width):
        low[at] = high[at] = None
    return low, high, lengths < width


def _truncated_numbers(width: int, type: pa.DataType, values: list[Any]) -> tuple[Keys, Keys, Array]:
    space = key_space(type)
    exact = np.zeros(len(values), dtype=bool)
    floor, ceiling = (space.low, space.high)
    if space.kind is Kind.BYTES:
        ceiling = (1 << (8 * space.width - 1)) - 1
        floor = -ceiling - 1
    # A number that is no multiple of the width has been wrapped around the end of its type.
    whole = [
        (max(v, floor), min(v + width - 1, ceiling)) if v % width == 0 else (floor, ceiling)
        for v in _unscaled(type, values)
    ]
    if space.kind is Kind.BYTES:
        low, high = (_wide([pair[end] for pair in whole], space.width) for end in (0, 1))
        return low, high, exact
    ends = np.array(whole, dtype=np.int64).reshape(-1, 2)
    return ends[:, 0], ends[:, 1], exact


def _bucketed(
    transform: Transform[Any, Any], type: pa.DataType, values: list[Any]
) -> tuple[Keys, Keys, Array]:
    _numbers(values, transform)
    lower, upper = widest(type, len(values))
    exact = np.zeros(len(values), dtype=bool)
    if isinstance(lower, pa.Array):
        return lower.to_pylist(), upper.to_pylist(), exact
    return lower, upper, exact


_RULES: dict[Any, Callable[[Any, pa.DataType, list[Any]], tuple[Keys, Keys, Array]]] = {
    IdentityTransform: _identity,
    YearTransform: _period,
    MonthTransform: _period,
    DayTransform: _period,
    HourTransform: _period,
    TruncateTransform: _truncated,
    BucketTransform: _bucketed,
}


def _has_days(storage: pa.DataType) -> bool:
    return bool(pa.types.is_date32(storage) or pa.types.is_timestamp(storage))


_FITTING: dict[Any, Callable[[pa.DataType], bool]] = {
    IdentityTransform: lambda _: True,
    YearTransform: _has_days,
    MonthTransform: _has_days,
    DayTransform: _has_days,
    HourTransform: pa.types.is_timestamp,
    TruncateTransform: lambda t: (
        pa.types.is_integer(t) or pa.types.is_decimal(t) or is_text(t) or is_binary(t)
    ),
    BucketTransform: lambda t: not (pa.types.is_boolean(t) or pa.types.is_floating(t)),
}


# -- values in internal form ---------------------------------------------------------------------


def _value_keys(type: pa.DataType, values: list[Any]) -> Keys:
    storage = storage_type(type)
    if pa.types.is_decimal(storage):
        whole, width = _unscaled(type, values), key_space(type).width
        return _wide(whole, width) if width else np.array(whole, dtype=np.int64)
    if is_text(storage):
        return [v.encode() for v in _checked(values, str, type)]
    if is_binary(storage):
        return list(_checked(values, bytes, type))
    if pa.types.is_floating(storage):
        return np.array(_checked(values, float, type), dtype=np.float64)
    return np.array(_checked(values, bool if pa.types.is_boolean(storage) else int, type), dtype=np.int64)


def _unscaled(type: pa.DataType, values: list[Any]) -> list[int]:
    """Integers as they are, decimals as integers at the scale of their type."""
    storage = storage_type(type)
    if not pa.types.is_decimal(storage):
        return list(_checked(values, int, type))
    whole = []
    for value in _checked(values, decimal.Decimal, type):
        number = unscaled(value, storage.scale)
        if number is None:
            raise _misfit(value, type)
        whole.append(number)
    return whole


def _wide(whole: list[int], width: int) -> Keys:
    return [wide_key(number, width) for number in whole]


def _numbers(values: list[Any], transform: Transform[Any, Any]) -> Array:
    """Results of a transform that gives 32-bit integers."""
    numbers = np.array(_checked(values, int, transform), dtype=np.int64)
    if np.any(np.abs(numbers) > 2**31):
        raise _misfit(int(numbers[np.argmax(np.abs(numbers))]), transform)
    return numbers


def _checked(values: list[Any], kind: type, what: object) -> list[Any]:
    for value in values:
        if value.__class__ is not kind:
            raise _misfit(value, what)
    return values


def _misfit(value: object, what: object) -> TypeMismatchError:
    return TypeMismatchError(f"{value!r} is no partition value of {what}")
