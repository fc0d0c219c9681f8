"""Date and time functions, and conversion between wall-clock times and instants.

Uses Python's time zones, since Arrow's rules end in 2037.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.arrays import Array, bools, numbers
from skipstone.core.filter.conditions import Arguments, CheckedCast, Series, apply
from skipstone.core.ir.literals import find_zone, fixed_offset
from skipstone.core.ir.transforms import DAY, UNITS

_CYCLE = 400 * 365 * DAY + 97 * DAY  # period of the Gregorian calendar, including weekdays
_FIRST, _LAST = -62_000_000_000, 253_000_000_000  # within Python's range of years
_EPOCH = dt.datetime(1970, 1, 1)


def offset_of_instant(seconds: Array, zone: str) -> Array:
    """UTC offset of ``zone`` in seconds at each instant."""
    fixed = fixed_offset(zone)
    if fixed is not None:
        return np.full(len(seconds), fixed, dtype=np.int64)
    tz = find_zone(zone)

    def offset(second: int) -> int:
        moment = (_EPOCH + dt.timedelta(seconds=second)).replace(tzinfo=dt.UTC)
        return _seconds(moment.astimezone(tz))

    return _by_day(seconds, offset)


def offset_of_wall(seconds: Array, zone: str) -> Array:
    """UTC offset in seconds of each wall-clock time; DST gaps and overlaps use the earlier offset."""
    fixed = fixed_offset(zone)
    if fixed is not None:
        return np.full(len(seconds), fixed, dtype=np.int64)
    tz = find_zone(zone)
    return _by_day(
        seconds, lambda second: _seconds((_EPOCH + dt.timedelta(seconds=second)).replace(tzinfo=tz))
    )


def _seconds(local: dt.datetime) -> int:
    shift = local.utcoffset()
    assert shift is not None
    return int(shift.total_seconds())


def _by_day(seconds: Array, offset: Callable[[int], int]) -> Array:
    """Compute ``offset`` of each second, with two calls per day and more only on days of DST changes."""
    clamped = np.where(seconds < _FIRST, _FIRST, seconds)
    too_late = clamped > _LAST
    if too_late.any():
        clamped = np.where(too_late, (clamped - _LAST) % _CYCLE + _LAST - _CYCLE, clamped)
    coded = pa.array(clamped // DAY).dictionary_encode()
    days, day_index = coded.dictionary.to_pylist(), coded.indices.to_numpy()
    firsts = np.array([offset(day * DAY) for day in days], dtype=np.int64)
    lasts = np.array([offset(day * DAY + DAY - 1) for day in days], dtype=np.int64)
    offsets = firsts[day_index]
    for row in np.flatnonzero((firsts != lasts)[day_index]):
        offsets[row] = offset(int(clamped[row]))
    return np.asarray(offsets)


_INT64 = 2**63
_THURSDAY = 4  # weekday of the epoch, with Sunday as 0
_MONDAY = 3
_TRUNC_SECONDS = {"day": DAY, "dd": DAY, "hour": 3600, "minute": 60, "second": 1}
_TRUNC_MONTHS = {"year": 12, "yyyy": 12, "yy": 12, "quarter": 3, "month": 1, "mon": 1, "mm": 1}


def wall_clock(array: pa.Array, zone: str) -> tuple[Array, int]:
    """Wall-clock ticks of each row in the session time zone, and the ticks per second."""
    type = array.type
    if pa.types.is_date(type):
        return _days(array) * DAY, 1
    ticks, per_second = numbers(array).astype(np.int64), UNITS[type.unit]
    if type.tz is None:
        return ticks, per_second
    return ticks + offset_of_instant(ticks // per_second, zone) * per_second, per_second


def _days(array: pa.Array) -> Array:
    keys = numbers(array).astype(np.int64)
    return keys if pa.types.is_date32(array.type) else keys // (DAY * 1000)


def _is_date_or_timestamp(type: pa.DataType) -> bool:
    return bool(pa.types.is_date(type) or pa.types.is_timestamp(type))


def _to_array(values: Array, array: pa.Array, type: pa.DataType) -> pa.Array:
    """Convert ticks to an array of ``type`` with the NULLs of ``array``."""
    integer = pa.int32() if type.bit_width == 32 else pa.int64()
    ticks = pa.array(values, integer, mask=bools(array.is_null()) if array.null_count else None)
    return ticks if type == integer else ticks.view(type)


# -- fields ------------------------------------------------------------------------------------


def _months(days: Array) -> Array:
    return days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)


def _first_of(months: Array) -> Array:
    return months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)


def _week_of_year(days: Array) -> Array:
    """ISO week: the week of the year of its Thursday."""
    thursday = days - (days + _MONDAY) % 7 + 3
    start = _first_of(_months(thursday) // 12 * 12)
    return np.asarray((thursday - start) // 7 + 1)


_FIELDS: dict[str, Callable[[Array, Array], Array]] = {
    "year": lambda day, _: _months(day) // 12 + 1970,
    "quarter": lambda day, _: _months(day) % 12 // 3 + 1,
    "month": lambda day, _: _months(day) % 12 + 1,
    "day": lambda day, _: day - _first_of(_months(day)) + 1,
    "dayofyear": lambda day, _: day - _first_of(_months(day) // 12 * 12) + 1,
    "weekofyear": lambda day, _: _week_of_year(day),
    "dayofweek": lambda day, _: (day + _THURSDAY) % 7 + 1,
    "weekday": lambda day, _: (day + _MONDAY) % 7,
    "hour": lambda _, second: second // 3600,
    "minute": lambda _, second: second // 60 % 60,
    "second": lambda _, second: second % 60,
}
FIELDS = frozenset(_FIELDS)


def date_field(to: Arguments) -> Series:
    """A field of a date or timestamp, in the session time zone."""
    if len(to.types) != 1 or not _is_date_or_timestamp(to.types[0]):
        raise to.unsupported("the argument must be a date or timestamp")
    zone, read = to.call.zone, _FIELDS[to.call.name]

    def kernel(array: pa.Array) -> pa.Array:
        ticks, per_second = wall_clock(array, zone)
        seconds = _zero_nulls(ticks // per_second, array)
        return _to_array(read(seconds // DAY, seconds % DAY).astype(np.int32), array, pa.int32())

    return apply(to.call, pa.int32(), kernel, to.series, cost=15)


def _zero_nulls(values: Array, array: pa.Array) -> Array:
    """Zero under NULL, so that undefined values stay in the calendar."""
    return np.where(bools(array.is_null()), 0, values) if array.null_count else values


def day_count(to: Arguments) -> Series:
    """``datediff(end, start)`` of two dates."""
    if len(to.types) != 2 or not all(pa.types.is_date32(t) for t in to.types):
        raise to.unsupported("both arguments must be dates")

    def kernel(end: pa.Array, start: pa.Array) -> pa.Array:
        return pc.subtract_checked(end.view(pa.int32()), start.view(pa.int32()))

    return apply(to.call, pa.int32(), kernel, to.series, risky=True)


# -- rounding down -----------------------------------------------------------------------------


def date_trunc(to: Arguments) -> Series:
    """``date_trunc(unit, time)``; a date is the instant of its midnight."""
    unit = to.constants[0] if to.constants else None
    if len(to.types) != 2 or unit is None or not _is_date_or_timestamp(to.types[1]):
        raise to.unsupported("arguments must be a constant unit and a date or timestamp")
    name, zone = str(unit.as_py()).lower(), to.call.zone
    if name not in _TRUNC_SECONDS and name not in _TRUNC_MONTHS and name != "week":
        raise to.unsupported(f"unknown unit {name!r}")
    source = to.types[1]
    out = pa.timestamp("us", "UTC") if pa.types.is_date(source) else source
    start = cast_time(source, out, zone) if pa.types.is_date(source) else None

    def kernel(_: pa.Array, array: pa.Array) -> pa.Array:
        if start is not None:
            array, bad = start(array)
            _check_range(bad, array)
        wall, per_second = wall_clock(array, zone)
        wall = _zero_nulls(wall, array)
        ticks = numbers(array).astype(np.int64)
        floored = _floor(name, wall, per_second)
        if out.tz is None:
            return _to_array(floored, array, out)
        instants = floored - offset_of_wall(floored // per_second, zone) * per_second
        if name in ("hour", "minute", "second"):
            # A time in an hour that occurs twice stays in its own hour.
            same_offset = floored - (wall - ticks)
            unchanged = offset_of_instant(same_offset // per_second, zone) * per_second == wall - ticks
            instants = np.where(unchanged, same_offset, instants)
        return _to_array(instants, array, out)

    return apply(to.call, out, kernel, to.series, risky=True, cost=15)


def _floor(name: str, wall: Array, per_second: int) -> Array:
    if name in _TRUNC_SECONDS:
        step = _TRUNC_SECONDS[name] * per_second
        return np.asarray(wall // step * step)
    days = wall // (DAY * per_second)
    if name == "week":
        return np.asarray((days - (days + _MONDAY) % 7) * (DAY * per_second))
    months = _TRUNC_MONTHS[name]
    return _first_of(_months(days) // months * months) * (DAY * per_second)


def _check_range(bad: Array | None, array: pa.Array) -> None:
    if bad is not None and (bad & bools(array.is_valid())).any():
        raise pa.ArrowInvalid("date is out of range for a timestamp")


# -- casts -------------------------------------------------------------------------------------


def cast_time(source: pa.DataType, target: pa.DataType, zone: str) -> CheckedCast | None:
    """Cast from or to a date or timestamp."""
    if _is_date_or_timestamp(source) and pa.types.is_date(target):
        return lambda a: _to_days(a, target, zone)
    if _is_date_or_timestamp(source) and pa.types.is_timestamp(target):
        finer = pa.types.is_date(source) or UNITS[target.unit] >= UNITS[source.unit]
        return (lambda a: _to_stamp(a, target, zone)) if finer or target.unit == "us" else None
    if pa.types.is_timestamp(source) and source.tz is not None and pa.types.is_int64(target):
        return lambda a: (_to_array(numbers(a) // UNITS[source.unit], a, target), None)
    return None


def _to_days(array: pa.Array, target: pa.DataType, zone: str) -> tuple[pa.Array, Array | None]:
    wall, per_second = wall_clock(array, zone)
    days = wall // (DAY * per_second)
    bad = (days < -(2**31)) | (days >= 2**31)
    days = np.where(bad, 0, days)
    if pa.types.is_date64(target):
        days = days * (DAY * 1000)
    return _to_array(days.astype(np.int32 if target.bit_width == 32 else np.int64), array, target), bad


def _to_stamp(array: pa.Array, target: pa.DataType, zone: str) -> tuple[pa.Array, Array | None]:
    """Convert between wall-clock times and instants if only one side has a zone, then to the unit."""
    zoned = pa.types.is_timestamp(array.type) and array.type.tz is not None
    if zoned == (target.tz is not None):
        has_unit = not pa.types.is_date(array.type)
        ticks, per_second = (
            (numbers(array).astype(np.int64), UNITS[array.type.unit]) if has_unit else wall_clock(array, zone)
        )
    else:
        ticks, per_second = wall_clock(array, zone)
        if not zoned:
            ticks = ticks - offset_of_wall(ticks // per_second, zone) * per_second
    new = UNITS[target.unit]
    if new <= per_second:
        return _to_array(ticks // (per_second // new), array, target), None
    times = new // per_second
    bad = (ticks > (_INT64 - 1) // times) | (ticks < -(_INT64 // times))
    return _to_array(np.where(bad, 0, ticks) * times, array, target), bad
