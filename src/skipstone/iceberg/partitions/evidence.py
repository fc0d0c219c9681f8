"""Facts of source columns from partition values and manifest summaries."""

from __future__ import annotations

import decimal
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import from_bytes
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
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DecimalType,
    DoubleType,
    LongType,
    PrimitiveType,
    StringType,
)

from skipstone.core.domain.keys import (
    PRESENCE,
    Key,
    Kind,
    is_binary,
    is_text,
    key_space,
    storage_type,
    unscaled,
    wide_key,
    wide_value,
)
from skipstone.core.domain.spans import prefix_end
from skipstone.core.evidence import Array, Bounds, ColumnFacts, unbounded
from skipstone.core.ir.nodes import Leaf, Node
from skipstone.core.ir.transforms import DAY, UNITS
from skipstone.core.plain import type_name
from skipstone.errors import TypeMismatchError

Keys = Array | list[bytes | None]
"""Bounds of the partitions that have a value: numbers, or bytes with None for unknown."""

_HOUR = 3600


# -- facts from partition values ---------------------------------------------------------------


def source_facts(
    transform: Transform[Any, Any], values: Sequence[Any], type: pa.DataType
) -> ColumnFacts | None:
    """Facts of a source column of ``type`` from partition values in internal form.

    None if there are none: the transform is void or unknown, or the type has no order.
    """
    if not says_something(transform, type):
        return None
    space = key_space(type)
    present = np.array([v is not None for v in values], dtype=bool)
    nan = np.zeros(len(values), dtype=bool)
    if space.kind is Kind.FLOAT:
        nan = np.array([v is not None and v != v for v in values], dtype=bool)
    ordered = present & ~nan
    chosen = [v for v, is_ordered in zip(values, ordered, strict=True) if is_ordered]
    low, high, exact = _RULES[transform.__class__][1](transform, type, chosen)
    lower, upper = unbounded(type, len(values))
    occurs = np.zeros(len(values), dtype=bool)
    occurs[ordered] = exact
    lower, upper = _scatter(lower, ordered, low), _scatter(upper, ordered, high)
    return ColumnFacts(type, lower, upper, occurs, occurs, ordered, ~present, nan)


def says_something(transform: Transform[Any, Any], type: pa.DataType) -> bool:
    """Whether values of the transform are evidence for a source of ``type``; raises if it can't apply."""
    rule = _RULES.get(transform.__class__)
    if rule is None or key_space(type) is PRESENCE:
        return False
    if not rule[0](storage_type(type)):
        raise TypeMismatchError(
            f"{transform} does not apply to {type_name(type)}", hint="check the table's metadata for damage"
        )
    return True


def _scatter(bounds: Bounds, mask: Array, keys: Keys) -> Bounds:
    if isinstance(keys, list):
        indices = pa.array(np.cumsum(mask) - 1, mask=~mask)
        return pa.array(keys, pa.large_binary()).take(indices)
    bounds[mask] = keys
    return bounds


# -- rules of transforms: bounds of the source, and whether they occur as values -----------------


def _identity(_: Transform[Any, Any], type: pa.DataType, values: list[Any]) -> tuple[Keys, Keys, Array]:
    keys = _value_keys(type, values)
    exact = np.ones(len(values), dtype=bool)
    if isinstance(keys, np.ndarray) and keys.dtype.kind == "f":
        # Writers mix up -0.0 and 0.0.
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
    # Early writers rounded times before 1970 toward zero, into the next period.
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
    """The first day or hour of each period, counted from 1970."""
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
        # UTF-8 never contains 0xFF, so this is above all strings with the prefix.
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
    # A number that is not a multiple of the width has overflowed.
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
    lower, upper = unbounded(type, len(values))
    exact = np.zeros(len(values), dtype=bool)
    if isinstance(lower, pa.Array):
        return lower.to_pylist(), upper.to_pylist(), exact
    return lower, upper, exact


def _has_days(storage: pa.DataType) -> bool:
    return bool(pa.types.is_date32(storage) or pa.types.is_timestamp(storage))


def _can_truncate(storage: pa.DataType) -> bool:
    whole = pa.types.is_integer(storage) or pa.types.is_decimal(storage)
    return bool(whole or is_text(storage) or is_binary(storage))


_Rule = Callable[[Any, pa.DataType, list[Any]], tuple[Keys, Keys, Array]]
# Per transform, the types it applies to, and its rule.
_RULES: dict[Any, tuple[Callable[[pa.DataType], bool], _Rule]] = {
    IdentityTransform: (lambda _: True, _identity),
    YearTransform: (_has_days, _period),
    MonthTransform: (_has_days, _period),
    DayTransform: (_has_days, _period),
    HourTransform: (pa.types.is_timestamp, _period),
    TruncateTransform: (_can_truncate, _truncated),
    BucketTransform: (lambda t: not (pa.types.is_boolean(t) or pa.types.is_floating(t)), _bucketed),
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
    """Integers, or decimals as integers at the scale of their type."""
    storage = storage_type(type)
    if not pa.types.is_decimal(storage):
        return list(_checked(values, int, type))
    whole = []
    for value in _checked(values, decimal.Decimal, type):
        number = unscaled(value, storage.scale)
        if number is None:
            raise _invalid(value, type)
        whole.append(number)
    return whole


def _wide(whole: list[int], width: int) -> Keys:
    return [wide_key(number, width) for number in whole]


def _numbers(values: list[Any], transform: Transform[Any, Any]) -> Array:
    """Values of a transform to 32-bit integers."""
    numbers = np.array(_checked(values, int, transform), dtype=np.int64)
    if np.any(np.abs(numbers) > 2**31):
        raise _invalid(int(numbers[np.argmax(np.abs(numbers))]), transform)
    return numbers


def _checked(values: list[Any], kind: type, what: object) -> list[Any]:
    for value in values:
        if value.__class__ is not kind:
            raise _invalid(value, what)
    return values


def _invalid(value: object, what: object) -> TypeMismatchError:
    return TypeMismatchError(f"{value!r} is not a partition value of {what}")


# -- facts from manifest summaries ---------------------------------------------------------------


def summary_facts(
    transform: Transform[Any, Any],
    lower: Sequence[Any],
    upper: Sequence[Any],
    contains_null: Sequence[bool],
    contains_nan: Sequence[bool | None],
    type: pa.DataType,
) -> ColumnFacts | None:
    """Facts of a source column from the partition summaries of manifests.

    A missing bound can mean that there is no value or that it was not recorded, so it is unknown.
    """
    low, high = source_facts(transform, lower, type), source_facts(transform, upper, type)
    if low is None or high is None:
        return None
    units = len(lower)
    floor, ceiling = unbounded(type, units)
    surely = ~_crossed(low.lower, high.upper)
    if storage_type(type) == pa.binary(16):
        # Writers disagree on the order of UUIDs, unless both bounds are equal.
        surely &= np.array([a == b for a, b in zip(lower, upper, strict=True)], dtype=bool)
    low_ok = surely & ~_wrapped(transform, type, lower, upper)
    no, yes = np.zeros(units, dtype=bool), np.ones(units, dtype=bool)
    is_float = key_space(type).kind is Kind.FLOAT
    return ColumnFacts(
        type,
        bounds_or(low_ok, low.lower, floor),
        bounds_or(surely, high.upper, ceiling),
        no,
        no,
        yes,
        np.array(contains_null, dtype=bool),
        np.array([is_float and flag is not False for flag in contains_nan], dtype=bool),
    )


def summary_value(transform: Transform[Any, Any], type: pa.DataType, data: bytes | None) -> Any:
    """Decode a bound of a partition summary; None if it is missing or malformed."""
    if data is None:
        return None
    storage = storage_type(type)
    plain = isinstance(transform, (IdentityTransform, TruncateTransform))
    if plain and pa.types.is_temporal(storage) and len(data) != storage.bit_width // 8:
        return None
    try:
        return from_bytes(_stored_as(storage) if plain else LongType(), data)
    except (struct.error, ValueError):
        return None


def _stored_as(storage: pa.DataType) -> PrimitiveType:
    if pa.types.is_boolean(storage):
        return BooleanType()
    if pa.types.is_floating(storage):
        return DoubleType()
    if pa.types.is_decimal(storage):
        return DecimalType(storage.precision, storage.scale)
    if is_text(storage):
        return StringType()
    return BinaryType() if is_binary(storage) else LongType()


def bounds_or(mask: Array, bounds: Bounds, otherwise: Bounds) -> Bounds:
    """Bounds where the mask is set, others elsewhere."""
    if isinstance(bounds, pa.Array):
        return bounds if mask.all() else pc.if_else(pa.array(mask), bounds, otherwise)
    return bounds if mask.all() else np.where(mask, bounds, otherwise)


def _crossed(lower: Bounds, upper: Bounds) -> Array:
    if isinstance(lower, pa.Array):
        return np.asarray(pc.greater(lower, upper).fill_null(False).to_numpy(zero_copy_only=False))
    return np.asarray(lower > upper)


def _wrapped(
    transform: Transform[Any, Any], type: pa.DataType, lower: Sequence[Any], upper: Sequence[Any]
) -> Array:
    """Mask of the ranges that can contain the least integers, whose truncation overflows to the greatest."""
    if not isinstance(transform, TruncateTransform) or not pa.types.is_integer(storage_type(type)):
        return np.zeros(len(lower), dtype=bool)
    if transform.width.bit_count() == 1:
        return np.zeros(len(lower), dtype=bool)
    pairs = zip(lower, upper, strict=True)
    return np.array([_reaches_top(low, high, transform.width) for low, high in pairs], dtype=bool)


def _reaches_top(low: int | None, high: int | None, width: int) -> bool:
    if low is None or high is None:
        return False
    # A long can have been an int when its values were truncated.
    return any(low <= top and high > top - width for top in (2**31 - 1, 2**63 - 1))


# -- buckets that contain none of a leaf's values ------------------------------------------------

# With more values per bucket, hardly any bucket has none.
_MAX_PER_BUCKET = 16


@dataclass(frozen=True, slots=True, eq=False)
class Buckets:
    """Range of bucket numbers of one column in each of N units; all buckets if unknown."""

    transform: BucketTransform[Any]
    lower: Array
    upper: Array

    @classmethod
    def of(cls, transform: BucketTransform[Any], lower: Sequence[Any], upper: Sequence[Any]) -> Buckets:
        """Ranges from bucket numbers; missing or impossible ones are unknown."""
        last = transform.num_buckets - 1
        ranges = [
            (low, high) if low is not None and high is not None and 0 <= low <= high <= last else (0, last)
            for low, high in zip(lower, upper, strict=True)
        ]
        ends = np.array(ranges, dtype=np.int64).reshape(-1, 2)
        return cls(transform, ends[:, 0], ends[:, 1])


def bucket_cleared(node: Node, buckets: Mapping[tuple[str, ...], Sequence[Buckets]]) -> dict[int, Array]:
    """For leaves (by ``id``) with discrete values: the units whose buckets contain none of them."""
    cleared: dict[int, Array] = {}
    for leaf in node.leaves():
        for mine in buckets.get(leaf.ref.path, ()):
            numbers = _leaf_buckets(leaf, mine.transform)
            if numbers is None:
                continue
            first = np.searchsorted(numbers, mine.lower)
            none = numbers[np.minimum(first, len(numbers) - 1)] > mine.upper
            none |= first == len(numbers)
            cleared[id(leaf)] = cleared[id(leaf)] | none if id(leaf) in cleared else none
    return cleared


def _leaf_buckets(leaf: Leaf, transform: BucketTransform[Any]) -> Array | None:
    """Sorted buckets of the values for which the leaf is TRUE; None if that can be any bucket."""
    if leaf.ref.via or leaf.true.nulls or leaf.true.nans:
        return None
    most = _MAX_PER_BUCKET * transform.num_buckets
    points = leaf.true.spans.points() if len(leaf.true.spans) <= most else None
    if points is None or not 0 < len(points) <= most:
        return None
    keys = points.tolist() if isinstance(points, np.ndarray) else points
    if is_text(storage_type(leaf.ref.type)) and any(max(key, default=0) >= 0xF0 for key in keys):
        # Early Java writers hashed characters beyond 16 bits wrongly.
        return None
    numbers = {number for key in keys for number in _bucket_numbers(transform, leaf.ref.type, key)}
    return np.array(sorted(numbers), dtype=np.int64) if numbers else None


def _bucket_numbers(transform: BucketTransform[Any], type: pa.DataType, key: Key) -> Iterator[int]:
    """Every bucket that some writer puts the value with this key into."""

    def number(source: PrimitiveType, value: Any) -> int:
        bucket = transform.transform(source)(value)
        assert bucket is not None
        return bucket

    storage = storage_type(type)
    if pa.types.is_decimal(storage):
        whole = wide_value(key) if isinstance(key, bytes) else int(key)
        yield number(DecimalType(38, 0), decimal.Decimal(whole))
        # Some writers use one byte too many for the least number of each length.
        longer = whole.to_bytes((whole.bit_length() + 8) // 8, "big", signed=True)
        yield number(BinaryType(), longer)
    elif isinstance(key, bytes):
        yield number(BinaryType(), key)
    elif pa.types.is_timestamp(storage) and storage.unit == "ns":
        # Hashed as microseconds, rounded down or, by some writers, toward zero.
        yield number(LongType(), int(key) // 1000)
        if key < 0:
            yield number(LongType(), -(-int(key) // 1000))
    else:
        yield number(LongType(), int(key))
