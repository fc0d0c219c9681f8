"""Date and time functions, and conversion between wall-clock times and instants.

Uses Python's time zones, since Arrow's rules end in 2037.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.arrays import Array, bools, numbers
from skipstone.core.domain.keys import is_text
from skipstone.core.filter.conditions import Arguments, CheckedCast, RowError, Series, apply
from skipstone.core.ir.literals import find_zone, fixed_offset
from skipstone.core.ir.transforms import DAY, UNITS
from skipstone.predicate import tree

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
    if len(to.types) != 1:
        raise to.unsupported("the argument must be a date or timestamp")
    argument = _as_time(to, 0)
    zone, read = to.call.zone, _FIELDS[to.call.name]

    def kernel(array: pa.Array) -> pa.Array:
        ticks, per_second = wall_clock(array, zone)
        seconds = _zero_nulls(ticks // per_second, array)
        return _to_array(read(seconds // DAY, seconds % DAY).astype(np.int32), array, pa.int32())

    return apply(to.call, pa.int32(), kernel, [argument], cost=15)


def _as_time(to: Arguments, at: int) -> Series:
    """A date or timestamp argument; a string is cast, as in Spark."""
    if _is_date_or_timestamp(to.types[at]):
        return to.series[at]
    if not is_text(to.types[at]):
        raise to.unsupported("the argument must be a date or timestamp")
    from skipstone.core.filter.casts import cast

    return cast(tree.Cast(to.call.args[at], pa.timestamp("us", "UTC"), to.call.zone), to.series[at])


def _as_date(to: Arguments, at: int) -> Series:
    """A date argument; timestamps and strings are cast, as in Spark."""
    if not (_is_date_or_timestamp(to.types[at]) or is_text(to.types[at])):
        raise to.unsupported("the argument must be a date or timestamp")
    from skipstone.core.filter.casts import cast

    return cast(tree.Cast(to.call.args[at], pa.date32(), to.call.zone), to.series[at])


def _zero_nulls(values: Array, array: pa.Array) -> Array:
    """Zero under NULL, so that undefined values stay in the calendar."""
    return np.where(bools(array.is_null()), 0, values) if array.null_count else values


def day_count(to: Arguments) -> Series:
    """``datediff(end, start)`` of two dates."""
    if len(to.types) != 2:
        raise to.unsupported("arguments must be two dates")
    dates = [_as_date(to, at) for at in (0, 1)]

    def kernel(end: pa.Array, start: pa.Array) -> pa.Array:
        return pc.subtract_checked(end.view(pa.int32()), start.view(pa.int32()))

    return apply(to.call, pa.int32(), kernel, dates, risky=True)


def date_add(to: Arguments) -> Series:
    """``date_add(date, days)`` and ``date_sub(date, days)``."""
    if len(to.types) != 2 or not pa.types.is_integer(to.types[1]):
        raise to.unsupported("arguments must be a date and a number of days")
    kernel = pc.add_checked if to.call.name == "date_add" else pc.subtract_checked

    def shift(days: pa.Array, count: pa.Array) -> pa.Array:
        moved = kernel(days.view(pa.int32()).cast(pa.int64()), count.cast(pa.int64()))
        return moved.cast(pa.int32()).view(pa.date32())

    return apply(to.call, pa.date32(), shift, [_as_date(to, 0), to.series[1]], risky=True)


def add_months(to: Arguments) -> Series:
    """``add_months(date, months)``; the last day of a short month if the day doesn't exist."""
    if len(to.types) != 2 or not pa.types.is_integer(to.types[1]):
        raise to.unsupported("arguments must be a date and a number of months")

    def kernel(dates: pa.Array, counts: pa.Array) -> pa.Array:
        days = _zero_nulls(_days(dates), dates)
        moved = _move_months(days, _zero_nulls(numbers(counts).astype(np.int64), counts))
        return _dates(moved, bools(pc.or_(dates.is_null(), counts.is_null())))

    return apply(to.call, pa.date32(), kernel, [_as_date(to, 0), to.series[1]], risky=True)


def last_day(to: Arguments) -> Series:
    """``last_day(date)``: the last day of its month."""
    if len(to.types) != 1:
        raise to.unsupported("the argument must be a date")

    def kernel(dates: pa.Array) -> pa.Array:
        days = _zero_nulls(_days(dates), dates)
        return _dates(_first_of(_months(days) + 1) - 1, bools(dates.is_null()))

    return apply(to.call, pa.date32(), kernel, [_as_date(to, 0)], risky=True)


def _dates(days: Array, nulls: Array) -> pa.Array:
    if (((days < -(2**31)) | (days >= 2**31)) & ~nulls).any():
        raise RowError("date is out of range")
    return pa.array(np.where(nulls, 0, days).astype(np.int32), mask=nulls).view(pa.date32())


def _move_months(days: Array, count: Array | int) -> Array:
    """Days moved by months; the last day of a shorter month if the day doesn't exist there."""
    months = _months(days)
    first = _first_of(months + count)
    length = _first_of(months + count + 1) - first
    return np.asarray(first + np.minimum(days - _first_of(months), length - 1))


# -- intervals ---------------------------------------------------------------------------------


def add_interval(to: Arguments) -> Series:
    """A date or timestamp plus or minus a constant interval.

    Months end at the last day of a shorter month. Days are days of the session time zone; less than a day is
    elapsed time. A date stays a date unless the interval has hours.
    """
    at = 0 if is_interval(to.types[1]) else 1
    span, source = to.constants[1 - at], to.types[at]
    subtract = to.call.name == "-"
    if span is None or not is_interval(span.type) or not _is_date_or_timestamp(source):
        raise to.unsupported(f"{to.types[0]} {to.call.name} {to.types[1]} is not supported")
    if to.call.name not in "+-" or (subtract and at == 1):
        raise to.unsupported("an interval can be added to a time, or subtracted from one")
    if not span.is_valid:
        return apply(to.call, source, lambda a: pa.nulls(len(a), source), [to.series[at]])
    months, days, micros = interval_parts(span, -1 if subtract else 1)
    whole_days = span.as_py().nanoseconds == 0 if pa.types.is_interval(span.type) else micros == 0
    if pa.types.is_date(source) and whole_days:

        def shift_date(dates: pa.Array) -> pa.Array:
            moved = _move_months(_zero_nulls(_days(dates), dates), months) + days
            return _dates(moved, bools(dates.is_null()))

        return apply(to.call, pa.date32(), shift_date, [to.series[at]], risky=True)
    zoned = pa.types.is_date(source) or source.tz is not None
    fine = pa.types.is_timestamp(source) and UNITS[source.unit] >= UNITS["us"]
    out = pa.timestamp(source.unit if fine else "us", "UTC" if zoned else None)
    convert, zone = cast_time(source, out, to.call.zone), to.call.zone
    assert convert is not None

    def shift(times: pa.Array) -> pa.Array:
        times, bad = (times, None) if times.type == out else convert(times)
        _check_range(bad, times)
        return _shift(times, out, zone, (months, days, micros))

    return apply(to.call, out, shift, [to.series[at]], risky=True, cost=15)


def interval_parts(span: pa.Scalar, sign: int = 1) -> tuple[int, int, int]:
    """Months, days and microseconds of an interval; 24 hours are a day, as in Spark."""
    months, micros = 0, 0
    if pa.types.is_interval(span.type):
        months, days, nanos = span.as_py()
        micros = days * DAY * 10**6 + nanos // 1000
    else:
        micros = span.value * 10**6 // UNITS[span.type.unit]
    days = abs(micros) // (DAY * 10**6) * (1 if micros >= 0 else -1)
    return sign * months, sign * days, sign * (micros - days * DAY * 10**6)


def is_interval(type: pa.DataType) -> bool:
    """Whether ``type`` is an interval or a duration, such as Python's timedelta."""
    return bool(pa.types.is_interval(type) or pa.types.is_duration(type))


def _shift(times: pa.Array, out: pa.DataType, zone: str, parts: tuple[int, int, int]) -> pa.Array:
    months, days, micros = parts
    per_second = UNITS[out.unit]
    ticks = _zero_nulls(numbers(times).astype(np.int64), times)
    if months or days:
        wall, _ = wall_clock(times, zone)
        wall = _zero_nulls(wall, times)
        day, rest = np.divmod(wall, DAY * per_second)
        moved = _move_months(day, months) + days
        limit = _INT64 // (DAY * per_second) - 2
        if ((moved > limit) | (moved < -limit)).any():
            raise RowError("timestamp is out of range")
        moved = moved * (DAY * per_second) + rest
        # A local time that occurs twice keeps its UTC offset.
        offset = wall - ticks
        same = moved - offset
        if out.tz is not None:
            kept = offset_of_instant(same // per_second, zone) * per_second == offset
            local = moved - offset_of_wall(moved // per_second, zone) * per_second
            same = np.where(kept, same, local)
        ticks = same
    shifted = pc.add_checked(pa.array(ticks), pa.scalar(micros * per_second // 10**6, pa.int64()))
    return _to_array(numbers(shifted), times, out)


def time_difference(to: Arguments) -> Series:
    """The time between two dates or timestamps, by the clock of the session time zone."""
    if not all(_is_date_or_timestamp(t) for t in to.types):
        raise to.unsupported(f"{to.types[0]} - {to.types[1]} is not supported")
    if all(pa.types.is_date(t) for t in to.types):
        out, zone = pa.duration("s"), "UTC"
    else:
        finest = max((t.unit for t in to.types if pa.types.is_timestamp(t)), key=lambda unit: UNITS[unit])
        out, zone = pa.duration(finest if UNITS[finest] >= UNITS["us"] else "us"), to.call.zone

    def kernel(end: pa.Array, start: pa.Array) -> pa.Array:
        walls = []
        for array in (end, start):
            wall, per_second = wall_clock(array, zone)
            ticks = pa.array(_zero_nulls(wall, array), mask=bools(array.is_null()))
            walls.append(pc.multiply_checked(ticks, pa.scalar(UNITS[out.unit] // per_second, pa.int64())))
        return pc.subtract_checked(*walls).view(out)

    return apply(to.call, out, kernel, to.series, risky=True, cost=15)


# -- formats -----------------------------------------------------------------------------------

_WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTH_NAMES = (
    *("January", "February", "March", "April", "May", "June", "July", "August", "September"),
    *("October", "November", "December"),
)
_PATTERN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|([^A-Za-z'])")


def date_format(to: Arguments) -> Series:
    """``date_format(time, pattern)`` with the patterns of Java's DateTimeFormatter, in English."""
    pattern = to.constants[1] if len(to.types) == 2 else None
    if pattern is None or not is_text(pattern.type):
        raise to.unsupported("arguments must be a time and a constant pattern")
    if not pattern.is_valid:
        return apply(to.call, pa.string(), lambda a: pa.nulls(len(a), pa.string()), to.series[:1])
    parts = _format_parts(to, pattern.as_py())
    zone = to.call.zone

    def kernel(times: pa.Array) -> pa.Array:
        ticks, per_second = wall_clock(times, zone)
        seconds, fraction = np.divmod(_zero_nulls(ticks, times), per_second)
        days, second = np.divmod(seconds, DAY)
        nanos = fraction * (10**9 // per_second)
        pieces = [p if isinstance(p, str) else _format_field(*p, days, second, nanos) for p in parts]
        texts = [pa.repeat(p, len(times)) if isinstance(p, str) else p for p in pieces]
        joined = pc.binary_join_element_wise(*texts, "") if texts else pa.repeat("", len(times))
        return pc.if_else(times.is_valid(), joined, pa.scalar(None, pa.string()))

    return apply(to.call, pa.string(), kernel, [_as_time(to, 0)], cost=40)


def _format_parts(to: Arguments, pattern: str) -> list[str | tuple[str, int]]:
    """Text and fields (letter and count) of a pattern; raise if it has a field that is not supported."""
    parts: list[str | tuple[str, int]] = []
    end = 0
    for match in _PATTERN.finditer(pattern):
        if match.start() != end:
            break
        end = match.end()
        if match[2]:
            letter, count = match[2], len(match[0])
            if count not in _FORMATS.get(letter, ()):
                raise to.unsupported(f"the pattern {match[0]} is not supported")
            parts.append((letter, count))
        elif match[3] in ("#", "{", "}", "[", "]"):
            raise to.unsupported(f"the pattern {match[3]} is not supported")
        else:
            parts.append(match[3] or match[1].replace("''", "'") or "'")
    if end != len(pattern):
        raise to.unsupported("the pattern has an unterminated quote")
    return parts


_FORMATS: dict[str, tuple[int, ...]] = {
    "y": (1, 2, 4),
    "M": (1, 2, 3, 4),
    "d": (1, 2),
    "D": (1, 3),
    "E": (1, 2, 3, 4),
    "a": (1,),
    **dict.fromkeys("HhKkms", (1, 2)),
    "S": tuple(range(1, 10)),
}


def _format_field(letter: str, count: int, days: Array, second: Array, nanos: Array) -> pa.Array:
    if letter == "E":
        names = [name if count == 4 else name[:3] for name in _WEEKDAYS]
        return pa.array(names).take(pa.array((days + _THURSDAY) % 7))
    if letter == "M" and count >= 3:
        names = [name if count == 4 else name[:3] for name in _MONTH_NAMES]
        return pa.array(names).take(pa.array(_months(days) % 12))
    if letter == "a":
        return pa.array(["AM", "PM"]).take(pa.array(second // (12 * 3600)))
    if letter == "S":
        return _padded(nanos // 10 ** (9 - count), count)
    if letter == "y":
        years = _months(days) // 12 + 1970
        if count == 2:
            return _padded(np.abs(years) % 100, 2)
        return _padded(years, count, plus=count == 4)
    return _padded(_NUMBERS[letter](days, second), count)


_NUMBERS: dict[str, Callable[[Array, Array], Array]] = {
    "M": _FIELDS["month"],
    "d": _FIELDS["day"],
    "D": _FIELDS["dayofyear"],
    "H": _FIELDS["hour"],
    "k": lambda _, second: (second // 3600 - 1) % 24 + 1,
    "K": lambda _, second: second // 3600 % 12,
    "h": lambda _, second: (second // 3600 - 1) % 12 + 1,
    "m": _FIELDS["minute"],
    "s": _FIELDS["second"],
}


def _padded(values: Array, width: int, *, plus: bool = False) -> pa.Array:
    """Numbers with leading zeros; with ``plus`` those of more digits have a sign."""
    text = pc.utf8_lpad(pa.array(np.abs(values)).cast(pa.string()), width, "0")
    if not (values < 0).any() and not plus:
        return text
    signs = np.where(values < 0, 1, np.where(plus & (values >= 10**width), 2, 0))
    return pc.binary_join_element_wise(pa.array(["", "-", "+"]).take(pa.array(signs)), text, "")


_EPOCH_UNITS = {"timestamp": 1, "seconds": 1, "millis": 10**3, "micros": 10**6}


def to_epoch(to: Arguments) -> Series:
    """``unix_seconds(ts)``, ``unix_millis(ts)`` and ``unix_micros(ts)`` of an instant, rounded down.

    ``unix_timestamp(ts)`` is rounded towards zero.
    """
    if len(to.types) != 1 or not (pa.types.is_timestamp(to.types[0]) and to.types[0].tz is not None):
        raise to.unsupported("the argument must be a timestamp with time zone")
    have, wanted = UNITS[to.types[0].unit], _EPOCH_UNITS[to.call.name.removeprefix("unix_")]

    def kernel(times: pa.Array) -> pa.Array:
        ticks = times.view(pa.int64())
        if have <= wanted:
            return pc.multiply_checked(ticks, pa.scalar(wanted // have, pa.int64()))
        values, unit = numbers(times).astype(np.int64), have // wanted
        whole = values // unit
        if to.call.name == "unix_timestamp":
            whole += (values < 0) & (values % unit != 0)
        return _to_array(whole, times, pa.int64())

    return apply(to.call, pa.int64(), kernel, to.series, risky=True)


def from_epoch(to: Arguments) -> Series:
    """``timestamp_seconds(n)``, ``timestamp_millis(n)`` and ``timestamp_micros(n)`` of an integer."""
    if len(to.types) != 1 or not pa.types.is_signed_integer(to.types[0]):
        raise to.unsupported("the argument must be an integer")
    factor = 10**6 // _EPOCH_UNITS[to.call.name.removeprefix("timestamp_")]
    out = pa.timestamp("us", "UTC")

    def kernel(counts: pa.Array) -> pa.Array:
        return pc.multiply_checked(counts.cast(pa.int64()), pa.scalar(factor, pa.int64())).view(out)

    return apply(to.call, out, kernel, to.series, risky=True)


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
