"""Positions of literals among the keys of a column, without loss and with Spark SQL's coercions.

A literal need not be a value of the column: ``5.5`` is between two integers, and a double can equal many
large integers. So a literal becomes :class:`Cuts`: the first key at or above it and the first key above it.
Every comparison is a half-open interval between such cuts.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import decimal
import math
import re
import uuid
import zoneinfo
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from skipstone.core.domain.keys import (
    Key,
    Kind,
    is_binary,
    is_text,
    key_space,
    storage_type,
    wide_key,
)
from skipstone.core.domain.spans import after_bytes
from skipstone.core.ir.transforms import DAY, UNITS
from skipstone.core.plain import type_name
from skipstone.errors import PredicateError, TypeMismatchError

EXACT_DOUBLE = 2**53
EXACT_FLOAT = 2**24
_NANO = 10**9
_DATE = re.compile(r"\s*(\d{4,})(?:-(\d{1,2})(?:-(\d{1,2}))?)?(?:[ T].*)?\s*$")
_STAMP = re.compile(
    r"\s*(\d{4,})(?:-(\d{1,2})(?:-(\d{1,2}))?)?"
    r"(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:[.,](\d{0,9}))?)?\s*"
    r"(Z|UTC|GMT|[+-]\d{1,2}:?\d{0,2}|[A-Za-z_]+/[A-Za-z_/]+)?)?\s*$"
)
_TIME = re.compile(r"\s*(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{0,9}))?)?\s*$")
_OFFSET = re.compile(r"([+-])(\d{1,2}):?(\d{2})?$")


class NotComparable(Exception):
    """Raised for a valid comparison that metadata can't judge, since it converts the column."""

    def __init__(self, detail: str, *, zone: bool = False) -> None:
        super().__init__(detail)
        self.zone = zone


@dataclass(frozen=True, slots=True)
class Cuts:
    """First key at or above a literal, and first key above it; None if there is no such key."""

    at_or_above: Key | None
    above: Key | None


def cuts(type: pa.DataType, scalar: pa.Scalar, zone: str) -> Cuts:
    """Position among the keys of ``type`` of a literal other than NULL (and NaN for a float column)."""
    storage = storage_type(type)
    space = key_space(type)
    literal_type = storage_type(scalar.type)
    if pa.types.is_boolean(storage):
        return _integer_cuts(type, Fraction(_boolean(type, scalar)))
    if space.kind is Kind.FLOAT:
        return _float_cuts(type, scalar)
    if pa.types.is_integer(storage) or pa.types.is_decimal(storage):
        return _number_cuts(type, scalar)
    if is_text(storage) or is_binary(storage):
        return _bytes_cuts(type, scalar)
    if pa.types.is_date(storage):
        return _integer_cuts(type, Fraction(_date_nanos(type, scalar, zone), _DATE_NANOS[str(storage)]))
    if pa.types.is_timestamp(storage):
        return _integer_cuts(type, Fraction(_stamp_nanos(type, scalar, zone) * UNITS[storage.unit], _NANO))
    if pa.types.is_time(storage) or pa.types.is_duration(storage):
        if is_text(literal_type) and pa.types.is_time(storage):
            nanos = _parse_time(scalar.as_py())
        elif literal_type.id == storage.id or (pa.types.is_time(literal_type) and pa.types.is_time(storage)):
            nanos = _nanos(scalar)
        elif pa.types.is_interval(literal_type) and scalar.as_py().months == 0:
            nanos = scalar.as_py().days * DAY * _NANO + scalar.as_py().nanoseconds
        else:
            raise _mismatch(type, scalar)
        return _integer_cuts(type, Fraction(nanos * UNITS[storage.unit], _NANO))
    raise NotComparable(f"type {type_name(type)} has no order")


_DATE_NANOS = {"date32[day]": DAY * _NANO, "date64[ms]": 10**6}


def is_nan(scalar: pa.Scalar) -> bool:
    """Whether a literal is NaN."""
    return bool(scalar.is_valid and pa.types.is_floating(scalar.type) and math.isnan(scalar.as_py()))


def fixed_offset(zone: str) -> int | None:
    """UTC offset of ``zone`` in seconds, or None if it is not fixed."""
    if zone.upper() in ("UTC", "Z", "GMT", "ETC/UTC"):
        return 0
    match = _OFFSET.match(zone)
    if match:
        sign, hours, minutes = match.groups()
        return (-1 if sign == "-" else 1) * (int(hours) * 3600 + int(minutes or 0) * 60)
    find_zone(zone)
    return None


def find_zone(zone: str) -> dt.tzinfo:
    """Look up a time zone by name or offset."""
    match = _OFFSET.match(zone)
    if match or zone.upper() in ("UTC", "Z", "GMT"):
        return dt.timezone(dt.timedelta(seconds=(fixed_offset(zone) or 0)))
    try:
        return zoneinfo.ZoneInfo(zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise PredicateError(f"unknown time zone {zone!r}", hint="use a name such as Europe/Paris") from error


# -- numbers -----------------------------------------------------------------------------------


def _integer_cuts(type: pa.DataType, value: Fraction) -> Cuts:
    first = math.ceil(value)
    return Cuts(_clamp(type, first), _clamp(type, first + 1 if value == first else first))


def _clamp(type: pa.DataType, whole: int) -> Key | None:
    space = key_space(type)
    if space.kind is Kind.BYTES:
        limit = 1 << (8 * space.width - 1)
        return None if whole >= limit else wide_key(max(whole, -limit), space.width)
    return None if whole > space.high else max(whole, space.low)


def _number_cuts(type: pa.DataType, scalar: pa.Scalar) -> Cuts:
    storage = storage_type(type)
    scale = storage.scale if pa.types.is_decimal(storage) else 0
    value = _number(type, scalar)
    if isinstance(value, float):
        if math.isnan(value) or value == math.inf:
            return Cuts(None, None)
        if value == -math.inf:
            return Cuts(_clamp(type, -(10**80)), _clamp(type, -(10**80)))
        if pa.types.is_float32(storage_type(scalar.type)) and abs(value) >= EXACT_FLOAT:
            raise NotComparable("engines differ in comparing large integers with a float")
        if scale or abs(value) >= EXACT_DOUBLE:
            return _rounded_cuts(type, value, 10**scale)
    return _integer_cuts(type, Fraction(value) * 10**scale)


def _rounded_cuts(type: pa.DataType, value: float, divisor: int) -> Cuts:
    """Find the keys that round to ``value`` by bisection, since Spark compares as doubles."""
    space = key_space(type)
    limit = 1 << (8 * space.width - 1) if space.kind is Kind.BYTES else 0
    low, high = (-limit, limit - 1) if limit else (space.low, space.high)

    def first(holds: Callable[[float], bool]) -> Key | None:
        start, stop = low, high + 1
        while start < stop:
            middle = (start + stop) // 2
            start, stop = (start, middle) if holds(middle / divisor) else (middle + 1, stop)
        return None if start > high else _clamp(type, start)

    return Cuts(first(lambda v: v >= value), first(lambda v: v > value))


def float_readings(type: pa.DataType, scalar: pa.Scalar) -> list[pa.Scalar]:
    """The doubles that engines use for a literal in a comparison with a float column.

    For a narrow column there can be two. Spark in ANSI mode compares as doubles, where ``f = 0.1`` is never
    TRUE; Spark without ANSI mode and DuckDB round a literal that is not a float to the column's type.
    """
    value = float(_number(type, scalar))
    readings = [value]
    if not pa.types.is_floating(storage_type(scalar.type)):
        with np.errstate(over="ignore"):
            rounded = _FLOATS[storage_type(type).bit_width](value).item()
        readings += [rounded] if rounded != value and not math.isnan(value) else []
    return [pa.scalar(reading, pa.float64()) for reading in readings]


_FLOATS: dict[int, type[np.floating[Any]]] = {16: np.float16, 32: np.float32, 64: np.float64}


def _float_cuts(type: pa.DataType, scalar: pa.Scalar) -> Cuts:
    value = float(_number(type, scalar))
    return Cuts(value, None if value == math.inf else math.nextafter(value, math.inf))


def _number(type: pa.DataType, scalar: pa.Scalar) -> int | float | decimal.Decimal:
    literal_type = storage_type(scalar.type)
    if (
        pa.types.is_integer(literal_type)
        or pa.types.is_floating(literal_type)
        or pa.types.is_decimal(literal_type)
    ):
        value = scalar.as_py()
        return value if isinstance(value, (int, decimal.Decimal)) else float(value)
    if is_text(literal_type):
        # Spark casts a string to the type of an integer column, and to double for other numbers.
        text, convert = scalar.as_py().strip(), int if pa.types.is_integer(storage_type(type)) else float
        if "_" not in text:  # accepted by Python only
            with contextlib.suppress(ValueError):
                return convert(text)
    raise _mismatch(type, scalar)


def _boolean(type: pa.DataType, scalar: pa.Scalar) -> int:
    literal_type = storage_type(scalar.type)
    value = scalar.as_py() if pa.types.is_boolean(literal_type) or is_text(literal_type) else None
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, str) and value.strip().lower() in ("true", "false", "t", "f", "yes", "no", "1", "0"):
        return int(value.strip().lower() in ("true", "t", "yes", "1"))
    raise _mismatch(type, scalar)


# -- bytes -------------------------------------------------------------------------------------


def _bytes_cuts(type: pa.DataType, scalar: pa.Scalar) -> Cuts:
    key = string_key(type, scalar)
    return Cuts(key, after_bytes(key_space(type), key))


def string_key(type: pa.DataType, scalar: pa.Scalar) -> bytes:
    """Bytes of a string or binary literal as stored in the column."""
    try:
        value = scalar.as_py()
    except (OverflowError, ValueError):
        value = None  # one that Python can't represent, such as a date after the year 9999
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(type, pa.UuidType) and isinstance(value, str):
        try:
            return uuid.UUID(value).bytes
        except ValueError:
            raise _mismatch(type, scalar) from None
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, bytes):
        return value
    if is_text(storage_type(type)):
        raise NotComparable(f"strings are converted to {type_name(scalar.type)} row by row")
    raise _mismatch(type, scalar)


# -- times -------------------------------------------------------------------------------------


def _nanos(scalar: pa.Scalar) -> int:
    return int(scalar.value) * (_NANO // UNITS[scalar.type.unit])


def _date_nanos(type: pa.DataType, scalar: pa.Scalar, zone: str) -> int:
    literal_type = storage_type(scalar.type)
    if pa.types.is_date(literal_type):
        return int(scalar.value) * _DATE_NANOS[str(literal_type)]
    if is_text(literal_type):
        match = _DATE.match(scalar.as_py())
        if match:
            return _days(type, scalar, match) * DAY * _NANO
    if pa.types.is_timestamp(literal_type):
        if literal_type.tz is None:
            return _nanos(scalar)
        offset = fixed_offset(zone)
        if offset is None:
            raise NotComparable(f"each date is a different instant in {zone}", zone=True)
        return _nanos(scalar) + offset * _NANO
    raise _mismatch(type, scalar)


def _stamp_nanos(type: pa.DataType, scalar: pa.Scalar, zone: str) -> int:
    """The literal in nanoseconds, as an instant or wall-clock time like the column."""
    literal_type = storage_type(scalar.type)
    column_zoned = storage_type(type).tz is not None
    if pa.types.is_date(literal_type):
        wall, own_zone = int(scalar.value) * _DATE_NANOS[str(literal_type)], None
    elif is_text(literal_type):
        wall, own_zone = _parse_timestamp(type, scalar)
        if not column_zoned:
            return wall  # Spark ignores the zone in a cast to a zoneless timestamp
    elif pa.types.is_timestamp(literal_type):
        if literal_type.tz is None:
            wall, own_zone = _nanos(scalar), None
        elif column_zoned:
            return _nanos(scalar)
        else:
            offset = fixed_offset(zone)
            if offset is None:
                raise NotComparable(f"each wall-clock time is a different instant in {zone}", zone=True)
            return _nanos(scalar) + offset * _NANO
    else:
        raise _mismatch(type, scalar)
    return _instant(wall, own_zone or zone) if column_zoned else wall


def _instant(wall: int, zone: str) -> int:
    """Convert a wall-clock time to an instant; DST gaps and overlaps use the earlier offset."""
    offset = fixed_offset(zone)
    if offset is None:
        seconds = wall // _NANO
        try:
            local = dt.datetime(1970, 1, 1) + dt.timedelta(seconds=seconds)
            shift = local.replace(tzinfo=find_zone(zone)).utcoffset()
        except OverflowError:
            shift = dt.timedelta(0)
        assert shift is not None
        offset = int(shift.total_seconds())
    return wall - offset * _NANO


def _parse_timestamp(type: pa.DataType, scalar: pa.Scalar) -> tuple[int, str | None]:
    match = _STAMP.match(scalar.as_py())
    if match is None:
        raise _mismatch(type, scalar)
    hour, minute, second, fraction, zone = match.groups()[3:]
    day = _days(type, scalar, match)
    if storage_type(type).unit != "ns":
        fraction = (fraction or "")[:6]  # Spark truncates strings to microseconds
    clock = _clock(type, scalar, hour or "0", minute or "0", second, fraction)
    return day * DAY * _NANO + clock, zone


def _parse_time(text: str) -> int:
    match = _TIME.match(text)
    if match is None:
        raise TypeMismatchError(f"{text!r} is not a time of day", hint="write it as 'HH:MM:SS'")
    return _clock(pa.time64("ns"), pa.scalar(text), *match.groups())


def _clock(
    type: pa.DataType, scalar: pa.Scalar, hour: str, minute: str, second: str | None, fraction: str | None
) -> int:
    if int(hour) > 23 or int(minute) > 59 or int(second or 0) > 59:
        raise _mismatch(type, scalar)
    seconds = int(hour) * 3600 + int(minute) * 60 + int(second or 0)
    return seconds * _NANO + int((fraction or "").ljust(9, "0") or 0)


def _days(type: pa.DataType, scalar: pa.Scalar, match: re.Match[str]) -> int:
    try:
        day = dt.date(int(match[1]), int(match[2] or 1), int(match[3] or 1))
    except (ValueError, OverflowError):
        raise _mismatch(type, scalar) from None
    return day.toordinal() - dt.date(1970, 1, 1).toordinal()


def _mismatch(type: pa.DataType, scalar: pa.Scalar) -> TypeMismatchError:
    from skipstone.predicate.text import value_text

    value = f"{value_text(scalar)} ({type_name(scalar.type)})"
    hint = literal_hint(storage_type(type), is_text(storage_type(scalar.type)))
    return TypeMismatchError(
        f"{value} can't be compared with a column of type {type_name(type)}",
        hint=_epoch_hint(type, scalar) or hint,
    )


def _epoch_hint(type: pa.DataType, scalar: pa.Scalar) -> str | None:
    """The next step for a number that is a time since 1970; no date without quotes is as large."""
    if not (pa.types.is_timestamp(type) and pa.types.is_integer(scalar.type)) or scalar.as_py() < 10**8:
        return None
    number = scalar.as_py()
    unit = "seconds" if number < 10**11 else "millis" if number < 10**14 else "micros"
    return f"for a time since 1970 write timestamp_{unit}({number})"


def literal_hint(type: pa.DataType, is_string: bool) -> str:
    """The next step for a literal that a column of ``type`` can't be compared with."""
    if pa.types.is_date(type) or pa.types.is_timestamp(type):
        form = "'2026-01-31'" if pa.types.is_date(type) else "'2026-01-31 12:00:00'"
        if is_string:
            return f"write an existing date, as in {form}"
        return f"put dates in quotes, as in {form}; without quotes, 2026-01-31 is a subtraction"
    if pa.types.is_boolean(type):
        return "use TRUE or FALSE"
    if is_string and (pa.types.is_integer(type) or pa.types.is_floating(type) or pa.types.is_decimal(type)):
        return "compare the column with a number, or cast the column to a string"
    return "use a literal of the column's type, or cast it"
