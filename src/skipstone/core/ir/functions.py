"""Functions and casts of a column that bounds can be carried through."""

from __future__ import annotations

import math

import pyarrow as pa

from skipstone.core.domain.keys import Kind, is_binary, is_text, key_space, storage_type
from skipstone.core.ir.literals import fixed_offset
from skipstone.core.ir.nodes import CantJudge, ColumnRef, Reason, Value
from skipstone.core.ir.transforms import DAY, UNITS, Calendar, Floor, Prefix, Same, Scale, ToFloat
from skipstone.predicate import tree

_SHIFT_LIMIT = 2**62
_MONDAY = 3  # the epoch was a Thursday


def cast_column(ref: ColumnRef, cast: tree.Cast) -> ColumnRef:
    """A column seen through a cast that keeps its order; CantJudge for any other."""
    source, target = storage_type(ref.out), storage_type(cast.type)
    if source == target:
        return ref
    step = (
        _cast_number(source, target)
        if key_space(source).kind is not Kind.BYTES
        and (pa.types.is_floating(target) or pa.types.is_integer(target) or pa.types.is_decimal(target))
        else _cast_time(source, target, cast.zone)
        if pa.types.is_temporal(source) and pa.types.is_temporal(target)
        else Same(target)
        if is_text(source) and is_text(target)
        else None
    )
    if step is None:
        raise CantJudge(Reason.CAST, f"{source} to {target}")
    if cast.lenient and isinstance(step, (Scale, Floor)):
        # What doesn't fit becomes NULL, and bounds can't tell that it happened.
        raise CantJudge(Reason.CAST, f"try_cast from {source} to {target} may give NULL")
    return ref.then(step)


def _cast_number(source: pa.DataType, target: pa.DataType) -> Same | Scale | ToFloat | None:
    """Widening casts only: nothing rounds, nothing overflows."""
    spaces = key_space(source), key_space(target)
    if pa.types.is_integer(source) and pa.types.is_integer(target):
        inside = spaces[1].low <= spaces[0].low and spaces[0].high <= spaces[1].high
        return Same(target) if inside and spaces[0].high < 2**63 else None
    if pa.types.is_floating(source) and pa.types.is_floating(target):
        return Same(target) if target.bit_width >= source.bit_width else None
    if pa.types.is_float64(target):
        if pa.types.is_integer(source):
            return ToFloat(target)
        if pa.types.is_decimal(source) and spaces[0].kind is Kind.INT:
            return ToFloat(target, scale=source.scale)
        return None
    if pa.types.is_decimal(target) and spaces[1].kind is Kind.INT and spaces[0].kind is Kind.INT:
        scale = source.scale if pa.types.is_decimal(source) else 0
        whole = pa.types.is_integer(source) or pa.types.is_decimal(source)
        if whole and target.scale >= scale:
            return Scale(target, times=10 ** (target.scale - scale))
    return None


def _cast_time(source: pa.DataType, target: pa.DataType, zone: str) -> Floor | Scale | None:
    if pa.types.is_timestamp(source) and pa.types.is_date32(target):
        per_second = UNITS[source.unit]
        return Floor(target, DAY * per_second, _offset(source, zone) * per_second, index=True)
    if pa.types.is_date32(source) and pa.types.is_timestamp(target):
        per_second = UNITS[target.unit]
        return Scale(target, DAY * per_second, -_offset(target, zone) * per_second)
    if (
        pa.types.is_timestamp(source)
        and pa.types.is_timestamp(target)
        and UNITS[target.unit] >= UNITS[source.unit]
    ):
        times = UNITS[target.unit] // UNITS[source.unit]
        if (source.tz is None) == (target.tz is None):
            return Scale(target, times)
        sign = -1 if source.tz is None else 1
        zoned = source if source.tz is not None else target
        return Scale(target, times, sign * _offset(zoned, zone) * UNITS[target.unit])
    return None


def _offset(type: pa.DataType, zone: str) -> int:
    """Seconds that the session's clock is ahead of the stored one; zoneless times have no session."""
    if pa.types.is_date(type) or type.tz is None:
        return 0
    offset = fixed_offset(zone)
    if offset is None:
        raise CantJudge(Reason.ZONE, f"local time in {zone} is not monotone")
    return offset


# -- functions of a column ---------------------------------------------------------------------


def _shift(call: tree.Call, args: list[Value | ColumnRef]) -> ColumnRef | None:
    """``a + c``, ``c + a``, ``a - c``, ``c - a`` and ``-a``."""
    if call.name == "negative":
        args = [Value(pa.scalar(0), call.zone), *args]
    if len(args) != 2:
        return None
    left, right = args
    minus = call.name in ("-", "negative")
    if isinstance(left, ColumnRef) and isinstance(right, Value):
        return _shifted(left, right, negate_column=False, negate_constant=minus)
    if isinstance(left, Value) and isinstance(right, ColumnRef):
        return _shifted(right, left, negate_column=minus, negate_constant=False)
    return None


def _shifted(
    ref: ColumnRef, constant: Value, *, negate_column: bool, negate_constant: bool
) -> ColumnRef | None:
    type = storage_type(ref.out)
    plus = constant.scalar.as_py()
    if not constant.scalar.is_valid or isinstance(plus, bool) or not isinstance(plus, (int, float)):
        return None
    plus = -plus if negate_constant else plus
    if pa.types.is_float64(type) and math.isfinite(plus):  # an infinite shift could make a new NaN
        return ref.then(ToFloat(type, plus=float(plus), negate=negate_column))
    if not isinstance(plus, int) or abs(plus) >= _SHIFT_LIMIT:
        return None
    if pa.types.is_signed_integer(type):
        # Spark adds two ints as int. What overflows there (an error, or in another mode a wrapped number)
        # is unknown here; the result's line stays wide, since other engines add as long.
        narrow = type.bit_width <= 32 and -(2**31) <= plus < 2**31
        times = -1 if negate_column else 1
        return ref.then(Scale(pa.int64(), times, plus, pa.int32() if narrow else None))
    if pa.types.is_date32(type) and not negate_column:
        return ref.then(Scale(type, 1, plus))
    return None


def _year(call: tree.Call, args: list[Value | ColumnRef]) -> ColumnRef | None:
    ref = args[0]
    if len(args) != 1 or not isinstance(ref, ColumnRef):
        return None
    per_day, offset = _day(ref, call.zone)
    return ref.then(Calendar(pa.int32(), per_day, 12, offset, index=True)) if per_day else None


def _date_trunc(call: tree.Call, args: list[Value | ColumnRef]) -> ColumnRef | None:
    if len(args) != 2:
        return None
    unit, ref = args
    if not isinstance(unit, Value) or not isinstance(ref, ColumnRef) or not unit.scalar.is_valid:
        return None
    if pa.types.is_date32(storage_type(ref.out)):
        ref = cast_column(ref, tree.Cast(tree.Literal(unit.scalar), pa.timestamp("us", "UTC"), call.zone))
    per_day, offset = _day(ref, call.zone)
    name = str(unit.scalar.as_py()).lower()
    if not per_day:
        return None
    if name in _MONTHS:
        return ref.then(Calendar(storage_type(ref.out), per_day, _MONTHS[name], offset))
    if name == "week":
        return ref.then(Floor(storage_type(ref.out), 7 * per_day, offset + _MONDAY * per_day))
    seconds = _SECONDS.get(name)
    step = seconds * per_day // DAY if seconds else 0
    return ref.then(Floor(storage_type(ref.out), step, offset)) if step else None


_MONTHS = {"year": 12, "yyyy": 12, "yy": 12, "quarter": 3, "month": 1, "mon": 1, "mm": 1}
_SECONDS = {"day": DAY, "dd": DAY, "hour": 3600, "minute": 60, "second": 1}


def _day(ref: ColumnRef, zone: str) -> tuple[int, int]:
    """Keys in a day, and the session offset in keys; zero keys for a type without days."""
    type = storage_type(ref.out)
    if pa.types.is_date32(type):
        return 1, 0
    if pa.types.is_timestamp(type):
        return DAY * UNITS[type.unit], _offset(type, zone) * UNITS[type.unit]
    return 0, 0


def _left(call: tree.Call, args: list[Value | ColumnRef]) -> ColumnRef | None:
    ref, *numbers = args
    if not isinstance(ref, ColumnRef) or not all(isinstance(n, Value) for n in numbers):
        return None
    type = storage_type(ref.out)
    values = [n.scalar.as_py() for n in numbers if isinstance(n, Value)]
    if call.name == "left":
        values = [1, *values]
    if len(values) != 2 or values[0] not in (0, 1) or not isinstance(values[1], int) or values[1] < 0:
        return None
    return ref.then(Prefix(type, values[1])) if is_text(type) or is_binary(type) else None


FUNCTIONS = {
    "+": _shift,
    "-": _shift,
    "negative": _shift,
    "year": _year,
    "date_trunc": _date_trunc,
    "substr": _left,
    "substring": _left,
    "left": _left,
}
