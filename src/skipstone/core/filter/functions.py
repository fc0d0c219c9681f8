"""Functions that can be evaluated on rows, by Spark's names."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.arrays import bools
from skipstone.core.domain.keys import is_text
from skipstone.core.filter import arithmetic, nested, numeric, strings, times
from skipstone.core.filter.arithmetic import as_type, common_type, is_number, spark_type, wider_decimal
from skipstone.core.filter.casts import cast
from skipstone.core.filter.conditions import Arguments, BatchRows, Series, apply
from skipstone.core.ir.transforms import UNITS
from skipstone.core.plain import type_name
from skipstone.predicate import tree

Build = Callable[[Arguments], Series]


def _common_type(to: Arguments, types: list[pa.DataType]) -> pa.DataType:
    """Spark's common type of alternative values; NULL adopts any type."""
    common = pa.null()
    for type in types:
        wider = _wider(common, type)
        if wider is None:
            raise to.unsupported(f"{type_name(common)} and {type_name(type)} have no common type")
        common = wider
    return common


def _wider(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if a == b or pa.types.is_null(b):
        return a
    if pa.types.is_null(a):
        return b
    if is_number(a) and is_number(b):
        return common_type(a, b) or wider_decimal(a, b)
    if is_text(a) and is_text(b):
        return pa.large_string()
    if is_text(a) or is_text(b):
        return _string_target(b if is_text(a) else a)
    if pa.types.is_date(a) and pa.types.is_date(b):
        return pa.date32()
    times = [t for t in (a, b) if pa.types.is_timestamp(t)]
    if times and all(pa.types.is_date(t) or pa.types.is_timestamp(t) for t in (a, b)):
        unit = max((t.unit for t in times), key=lambda unit: UNITS[unit])
        return pa.timestamp(unit, "UTC" if any(t.tz is not None for t in times) else None)
    return None


def _string_target(type: pa.DataType) -> pa.DataType | None:
    """Type to which Spark casts a string that is an alternative to ``type``."""
    if is_number(type):
        # An unsigned 64-bit integer is a decimal in Spark.
        return pa.int64() if pa.types.is_integer(spark_type(type)) else pa.float64()
    other = pa.types.is_boolean(type) or pa.types.is_timestamp(type) or pa.types.is_date32(type)
    return type if other else None


def _aligned(to: Arguments, at: int, type: pa.DataType) -> Series:
    """An argument in the common type of all."""
    source, series = to.types[at], to.series[at]
    if source == type:
        return series
    if pa.types.is_null(source):
        return Series(type, lambda rows: pa.nulls(rows.count, type))
    if is_number(source) and is_number(type):
        return Series(type, lambda rows: as_type(series.compute(rows), type), series.risky, series.cost + 1)
    return cast(tree.Cast(to.call.args[at], type, to.call.zone), series)


def _coalesce(to: Arguments) -> Series:
    if not to.types:
        raise to.unsupported("at least one argument is required")
    type = _common_type(to, list(to.types))
    series = [_aligned(to, at, type) for at in range(len(to.types))]

    def choose(rows: BatchRows) -> pa.Array:
        chosen = series[0].compute(rows)
        for one in series[1:]:
            missing = bools(chosen.is_null())
            if one.risky:  # must not see the rows that have a value
                positions = np.cumsum(missing) - 1
                found = one.compute(rows.where(missing)).take(pa.array(positions, mask=~missing))
            else:
                found = one.compute(rows)
            chosen = pc.coalesce(chosen, found)
        return chosen

    key = ("computed", to.call.key())
    return Series(
        type,
        lambda rows: rows.remember(key, choose),
        any(s.risky for s in series),
        1 + sum(s.cost for s in series),
    )


def _if(to: Arguments) -> Series:
    if len(to.types) != 3 or not pa.types.is_boolean(to.types[0]):
        raise to.unsupported("arguments must be a condition and two values")
    type = _common_type(to, list(to.types[1:]))
    test, yes, no = to.series[0], _aligned(to, 1, type), _aligned(to, 2, type)

    def choose(rows: BatchRows) -> pa.Array:
        mask = bools(test.compute(rows))
        # Each value is evaluated only on its rows: the condition may protect it from errors.
        parts = [s.compute(rows.where(m)) for s, m in ((yes, mask), (no, ~mask))]
        indexes = np.where(mask, np.cumsum(mask) - 1, len(parts[0]) + np.cumsum(~mask) - 1)
        return pa.concat_arrays(parts).take(pa.array(indexes))

    key = ("computed", to.call.key())
    return Series(
        type,
        lambda rows: rows.remember(key, choose),
        any(s.risky for s in (test, yes, no)),
        5 + sum(s.cost for s in (test, yes, no)),
    )


def _extreme(to: Arguments) -> Series:
    type = _common_type(to, list(to.types))
    if pa.types.is_nested(type) or len(to.types) < 2:
        raise to.unsupported("arguments must be at least two values, not nested")
    if pa.types.is_null(type):
        return to.series[0]
    kernel = pc.max_element_wise if to.call.name == "greatest" else pc.min_element_wise

    def choose(*arrays: pa.Array) -> pa.Array:
        if pa.types.is_timestamp(type):  # Arrow has no kernel for times with a zone
            return kernel(*(array.view(pa.int64()) for array in arrays)).view(type)
        if pa.types.is_boolean(type):  # nor for booleans
            return kernel(*(array.cast(pa.int8()) for array in arrays)).cast(type)
        chosen = kernel(*arrays)
        if to.call.name == "least" or not pa.types.is_floating(type):
            return chosen
        # NaN is largest; Arrow ignores it if there is a number.
        nans = functools.reduce(pc.or_, [pc.is_nan(array).fill_null(False) for array in arrays])
        return pc.if_else(nans, pa.scalar(float("nan"), type), chosen)

    return apply(to.call, type, choose, [_aligned(to, at, type) for at in range(len(to.types))])


def _position(to: Arguments) -> Series:
    """``position(part, text)``: characters before the first occurrence, plus 1; 0 if there is none."""
    if len(to.types) != 2 or not all(is_text(t) for t in to.types) or to.constants[0] is None:
        raise to.unsupported("arguments must be a constant string and a string")
    part = to.constants[0].as_py()
    if part is None:
        return apply(to.call, pa.int32(), lambda a: pa.nulls(len(a), pa.int32()), to.series[1:])

    def kernel(texts: pa.Array) -> pa.Array:
        found = [None if text is None else text.find(part) + 1 for text in texts.to_pylist()]
        return pa.array(found, pa.int32())

    return apply(to.call, pa.int32(), kernel, to.series[1:], cost=40)


FUNCTIONS: dict[str, Build] = {
    "+": arithmetic.arithmetic,
    "-": arithmetic.arithmetic,
    "*": arithmetic.arithmetic,
    "/": arithmetic.divide,
    "%": arithmetic.remainder,
    "div": arithmetic.integer_divide,
    "negative": arithmetic.negative,
    "abs": arithmetic.absolute,
    "floor": arithmetic.floor_or_ceil,
    "ceil": arithmetic.floor_or_ceil,
    "sqrt": arithmetic.square_root,
    **dict.fromkeys(("round", "bround"), numeric.rounding),
    **dict.fromkeys(numeric.DOUBLE_FUNCTIONS, numeric.of_double),
    "log": numeric.logarithm,
    **dict.fromkeys(("power", "atan2"), numeric.two_doubles),
    **dict.fromkeys("&|^", numeric.bits),
    "~": numeric.inverted_bits,
    **dict.fromkeys(("shiftleft", "shiftright"), numeric.shift),
    **dict.fromkeys(("lower", "upper", "trim", "ltrim", "rtrim", "reverse"), strings.string_function),
    "length": strings.length,
    **dict.fromkeys(("substr", "left", "right"), strings.substring),
    "concat": strings.concat,
    "concat_ws": strings.concat_with,
    "replace": strings.replace,
    **dict.fromkeys(("lpad", "rpad"), strings.pad),
    "repeat": strings.repeat,
    "split": strings.split,
    "split_part": strings.split_part,
    "regexp_replace": strings.regexp_replace,
    **dict.fromkeys(("octet_length", "bit_length"), strings.byte_length),
    **dict.fromkeys(("md5", "sha1", "sha2"), strings.digest),
    "rlike": strings.rlike,
    **dict.fromkeys(times.FIELDS, times.date_field),
    "date_trunc": times.date_trunc,
    "datediff": times.day_count,
    "date_add": times.date_add,
    "date_sub": times.date_add,
    "date_format": times.date_format,
    "add_months": times.add_months,
    "last_day": times.last_day,
    **dict.fromkeys(("unix_seconds", "unix_millis", "unix_micros", "unix_timestamp"), times.to_epoch),
    **dict.fromkeys(("timestamp_seconds", "timestamp_millis", "timestamp_micros"), times.from_epoch),
    "position": _position,
    **dict.fromkeys(("size", "array_size"), nested.size),
    "array_contains": nested.array_contains,
    "map_contains_key": nested.map_contains_key,
    **dict.fromkeys(("getitem", "get", "element_at", "try_element_at"), nested.element),
    "getfield": nested.field,
    "coalesce": _coalesce,
    "if": _if,
    "greatest": _extreme,
    "least": _extreme,
}
ALIASES = {"substring": "substr", "ceiling": "ceil", "dayofmonth": "day"}
"""Alternative names of functions."""
