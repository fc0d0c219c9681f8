"""Binds names and value expressions to an Arrow schema.

Monotone functions and casts of a column are bound as transforms, which map the bounds of the column.
"""

from __future__ import annotations

import decimal
import functools
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import pyarrow as pa

from skipstone.core.domain.keys import Kind, is_binary, is_text, key_space, storage_type
from skipstone.core.ir.literals import NotComparable, cuts, fixed_offset, literal_hint
from skipstone.core.ir.nodes import ColumnRef, NotJudgeable, Reason, Value
from skipstone.core.ir.transforms import DAY, UNITS, Calendar, Floor, Prefix, Same, Scale, ToFloat
from skipstone.core.plain import type_name
from skipstone.errors import TypeMismatchError, UnknownColumnError, similar, suggestion
from skipstone.predicate import tree
from skipstone.predicate.tree import Expr

_MAX_BINDERS = 64
_MAX_NAMES = 10_000
_PLAIN_NAME = re.compile(r"\w+")
_binders: dict[tuple[int, bool], Binder] = {}


def binder_of(schema: pa.Schema, case_sensitive: bool) -> Binder:
    """Cached binder of a schema object."""
    # Cached by identity: a lake has one schema object per version, and comparing schemas is slow.
    binder = _binders.get((id(schema), case_sensitive))
    if binder is None:
        if len(_binders) >= _MAX_BINDERS:
            _binders.clear()
        # The binder references the schema, so its id can't be reused.
        binder = _binders[id(schema), case_sensitive] = Binder(schema, case_sensitive)
    return binder


@dataclass(frozen=True, slots=True)
class Binder:
    """Resolves columns, and binds value expressions to constants or column references."""

    schema: pa.Schema
    case_sensitive: bool = True
    _columns: dict[tuple[str, ...], ColumnRef] = field(default_factory=dict)

    # -- names -------------------------------------------------------------------------------

    def column(self, path: tuple[str, ...]) -> ColumnRef:
        """Resolve the column at ``path``; raise with suggestions if there is none."""
        ref = self._columns.get(path)
        if ref is None:
            ref = self._columns[path] = self._find(path)
        return ref

    def _find(self, path: tuple[str, ...]) -> ColumnRef:
        # Arrow's look-up first: a schema can have thousands of columns, and most names are exact.
        exact = self.schema.get_all_field_indices(path[0])
        fields: list[pa.Field] = [self.schema.field(exact[0])] if len(exact) == 1 else list(self.schema)
        names: list[str] = []
        type: pa.DataType | None = None
        for name in path:
            field = self._pick(fields, name, path, tuple(names))
            names.append(field.name)
            type = field.type
            storage = storage_type(type)
            fields = list(storage.fields) if pa.types.is_struct(storage) else []
        assert type is not None
        return ColumnRef(tuple(names), type)

    def _pick(
        self, fields: list[pa.Field], name: str, path: tuple[str, ...], inside: tuple[str, ...]
    ) -> pa.Field:
        exact = [f for f in fields if f.name == name]
        hits = exact
        if not self.case_sensitive and len(exact) != 1:
            hits = [f for f in fields if f.name.lower() == name.lower()]
        if len(hits) == 1:
            return hits[0]
        dotted = ".".join(path)
        if len(hits) > 1:
            names = ", ".join(f.name for f in hits)
            raise UnknownColumnError(
                f"column name is ambiguous: {names}", column=dotted, hint="rename all but one of them"
            )
        hint = self._suggestion(fields, path, inside)
        raise UnknownColumnError("unknown column", column=dotted, hint=hint)

    def _suggestion(self, fields: list[pa.Field], path: tuple[str, ...], inside: tuple[str, ...]) -> str:
        where = f"struct {'.'.join(inside)}" if inside else "the schema"
        if not fields:
            return self._no_fields(where, path, inside)
        names = [f.name for f in fields]
        head, _, rest = path[0].partition(".")
        if rest and head in names:
            return f"use col({', '.join(map(repr, path[0].split('.')))}) for a field of struct {head}"
        if inside:
            near = [f"{'.'.join(inside)}.{name}" for name in similar(path[len(inside)], names)]
        else:
            known = list(islice(_dotted(self.schema), _MAX_NAMES))
            # A struct's field is often written without the struct.
            nested = [full for full in known if full.lower().endswith(f".{path[0].lower()}")]
            near = nested[:3] or similar(".".join(path), known)
        if near:
            return suggestion(near)
        listed = ", ".join(names[:10]) + (f", … {len(names) - 10} more" if len(names) > 10 else "")
        return f"{where} has {listed}"

    def _no_fields(self, where: str, path: tuple[str, ...], inside: tuple[str, ...]) -> str:
        outer, name = ".".join(inside), path[len(inside)]
        type = storage_type(self.column(inside).type) if inside else pa.struct([])
        if pa.types.is_struct(type):
            return f"{where} has no fields"
        if pa.types.is_map(type):
            return f"{outer} is a map: use {outer}['{name}']"
        if not pa.types.is_nested(type):
            return f"{outer} is of type {type_name(type)}, which has no fields"
        element = storage_type(type.value_type)
        field = f".{name}" if pa.types.is_struct(element) and name in element.names else ""
        return f"{outer} is a list: use get({outer}, 0){field} for its first element"

    # -- values ------------------------------------------------------------------------------

    def operand(self, expr: Expr) -> Value | ColumnRef:
        """Bind to a constant, or to a column with monotone functions; raise NotJudgeable otherwise."""
        return _binding(type(expr))(expr, self)


def _dotted(fields: Iterable[pa.Field], above: str = "") -> Iterator[str]:
    """Yield the names of columns and of the fields of structs, as in SQL."""
    for each in fields:
        name = above + (each.name if _PLAIN_NAME.fullmatch(each.name) else f"`{each.name}`")
        yield name
        storage = storage_type(each.type)
        if pa.types.is_struct(storage):
            yield from _dotted(storage.fields, f"{name}.")


@functools.singledispatch
def _operand(expr: Expr, binder: Binder) -> Value | ColumnRef:
    raise NotJudgeable(Reason.FUNCTION, "condition used as a value")


_binding: Callable[[Any], Callable[..., Value | ColumnRef]] = functools.cache(_operand.dispatch)


@_operand.register
def _(expr: tree.Column, binder: Binder) -> Value | ColumnRef:
    return binder.column(expr.path)


@_operand.register
def _(expr: tree.Literal, binder: Binder) -> Value | ColumnRef:
    return Value(expr.scalar, expr.zone)


@_operand.register
def _(expr: tree.Constant, binder: Binder) -> Value | ColumnRef:
    return Value(pa.scalar(expr.value, pa.bool_()), "UTC")


@_operand.register
def _(expr: tree.Cast, binder: Binder) -> Value | ColumnRef:
    inner = binder.operand(expr.arg)
    if isinstance(inner, Value):
        return cast_value(inner, expr)
    return cast_column(inner, expr)


@_operand.register
def _(expr: tree.Call, binder: Binder) -> Value | ColumnRef:
    args = [binder.operand(arg) for arg in expr.args]
    if all(isinstance(a, Value) for a in args):
        return fold(expr, [a for a in args if isinstance(a, Value)])
    bind = FUNCTIONS.get(expr.name)
    result = bind(expr, args) if bind else None
    if result is None:
        raise NotJudgeable(Reason.FUNCTION, f"{expr.name} is not monotone here")
    return result


# -- constants ---------------------------------------------------------------------------------


_DECIMAL_TRAPS = (decimal.InvalidOperation, decimal.Overflow)


def cast_value(value: Value, cast: tree.Cast) -> Value:
    """Cast a constant as Spark does; raise NotJudgeable if that is not certain."""
    if not value.scalar.is_valid:
        return Value(pa.scalar(None, cast.type), value.zone)
    source, target = storage_type(value.scalar.type), storage_type(cast.type)
    if source != target and not _casts_like_spark(source, target):
        raise NotJudgeable(
            Reason.CAST, f"casts of {source} constants to {target} follow Spark-specific rules"
        )
    zoned = pa.types.is_timestamp(target) and not (pa.types.is_timestamp(source) and source.tz == target.tz)
    if (is_text(source) or pa.types.is_date(source) or zoned) and pa.types.is_temporal(target):
        # Spark's string formats and time zones, which Arrow's cast doesn't support.
        try:
            at = cuts(target, value.scalar, cast.zone)
        except NotComparable as error:
            raise NotJudgeable(Reason.ZONE, str(error)) from error
        key = at.at_or_above
        if not isinstance(key, int) or at.above != key + 1:
            raise NotJudgeable(Reason.CAST, f"cast to {target} rounds the constant")
        integer = pa.int32() if target.bit_width == 32 else pa.int64()
        return Value(pa.scalar(key, integer).cast(target), value.zone)
    if pa.types.is_floating(target) and (pa.types.is_integer(source) or pa.types.is_decimal(source)):
        return Value(pa.scalar(float(value.scalar.as_py()), target), value.zone)
    try:
        return Value(value.scalar.cast(target), value.zone)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        if cast.lenient or pa.types.is_floating(source) or pa.types.is_decimal(source):
            raise NotJudgeable(Reason.CAST, f"constant doesn't fit {target}") from error
        from skipstone.predicate.text import value_text

        text = f"{value_text(value.scalar)} is not a valid {target}"
        raise TypeMismatchError(text, hint=literal_hint(target, is_text(source))) from error


def _casts_like_spark(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether Arrow's cast of a constant agrees with Spark's, or fails.

    Arrow differs in the string format of floats and times, in the unit of timestamps as numbers, in rounding
    floats to decimals, and in the time zone used for the date of an instant.
    """
    number = pa.types.is_integer(target) or pa.types.is_floating(target) or pa.types.is_decimal(target)
    if pa.types.is_timestamp(source):
        return bool(pa.types.is_timestamp(target))
    if pa.types.is_floating(source):
        return number and not pa.types.is_decimal(target)
    if is_text(target):
        return is_text(source) or bool(pa.types.is_integer(source) or pa.types.is_boolean(source))
    return not pa.types.is_temporal(source) or bool(pa.types.is_temporal(target))


def fold(call: tree.Call, args: list[Value]) -> Value:
    """Fold arithmetic on constants, exactly for integers and decimals."""
    if any(not a.scalar.is_valid for a in args):
        if call.name in ("+", "-", "*", "negative"):
            return Value(pa.scalar(None), call.zone)
        raise NotJudgeable(Reason.FUNCTION, f"{call.name} of NULL")
    numbers = [a.scalar.as_py() for a in args]
    kinds = {type(n) for n in numbers}
    if call.name in ("+", "-", "*", "negative") and kinds <= {int, float, decimal.Decimal}:
        if float in kinds:
            numbers = [float(n) for n in numbers]
        try:
            left, *rest = numbers
            # Spark's decimals have at most 38 digits, so it may round larger results.
            with decimal.localcontext(decimal.Context(prec=37, traps=[decimal.Inexact, *_DECIMAL_TRAPS])):
                result = {
                    "+": lambda: left + rest[0],
                    "-": lambda: left - rest[0] if rest else -left,
                    "*": lambda: left * rest[0],
                    "negative": lambda: -left,
                }[call.name]()
            literal = tree.lit(result)
            assert isinstance(literal, tree.Literal)
            return Value(literal.scalar, call.zone)
        except (decimal.DecimalException, IndexError, ValueError) as error:
            raise NotJudgeable(Reason.FUNCTION, f"{call} has no exact value") from error
    raise NotJudgeable(Reason.FUNCTION, f"{call.name} of constants is computed row by row")


_SHIFT_LIMIT = 2**62
_MONDAY = 3  # the epoch was a Thursday


def cast_column(ref: ColumnRef, cast: tree.Cast) -> ColumnRef:
    """Bind an order-preserving cast of a column; raise NotJudgeable for any other cast."""
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
        raise NotJudgeable(Reason.CAST, f"{source} to {target}")
    if cast.lenient and isinstance(step, (Scale, Floor)):
        # Values that don't fit become NULL, which bounds can't show.
        raise NotJudgeable(Reason.CAST, f"try_cast from {source} to {target} can return NULL")
    return ref.then(step)


def _cast_number(source: pa.DataType, target: pa.DataType) -> Same | Scale | ToFloat | None:
    """Widening casts, which neither round nor overflow."""
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
        exact = pa.types.is_integer(source) or pa.types.is_decimal(source)
        if exact and target.scale >= scale:
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
    """UTC offset of the session time zone in seconds; zero for zoneless types."""
    if pa.types.is_date(type) or type.tz is None:
        return 0
    offset = fixed_offset(zone)
    if offset is None:
        raise NotJudgeable(Reason.ZONE, f"local time in {zone} is not monotone")
    return offset


# -- functions of a column ---------------------------------------------------------------------


def _shift(call: tree.Call, args: list[Value | ColumnRef]) -> ColumnRef | None:
    """``a + c``, ``c + a``, ``a - c``, ``c - a`` and ``-a``."""
    if call.name == "negative":
        args = [Value(pa.scalar(0), call.zone), *args]
    if len(args) != 2:
        return None
    left, right = args
    if any(pa.types.is_temporal(a.out if isinstance(a, ColumnRef) else a.scalar.type) for a in args):
        return _shift_time(call, left, right)
    minus = call.name in ("-", "negative")
    if isinstance(left, ColumnRef) and isinstance(right, Value):
        return _shift_column(left, right, negate_column=False, negate_constant=minus)
    if isinstance(left, Value) and isinstance(right, ColumnRef):
        return _shift_column(right, left, negate_column=minus, negate_constant=False)
    return None


def _shift_column(
    ref: ColumnRef, constant: Value, *, negate_column: bool, negate_constant: bool
) -> ColumnRef | None:
    type = storage_type(ref.out)
    plus = constant.scalar.as_py()
    if not constant.scalar.is_valid or isinstance(plus, bool) or not isinstance(plus, (int, float)):
        return None
    plus = -plus if negate_constant else plus
    if pa.types.is_float64(type) and math.isfinite(plus):  # an infinite shift could produce NaN
        return ref.then(ToFloat(type, plus=float(plus), negate=negate_column))
    if not isinstance(plus, int) or abs(plus) >= _SHIFT_LIMIT:
        return None
    if pa.types.is_signed_integer(type):
        # Spark adds two ints as int. The result of an overflow (an error, or without ANSI mode a wrapped
        # number) is unknown; the output type is wide, since other engines add as long.
        narrow = type.bit_width <= 32 and -(2**31) <= plus < 2**31
        times = -1 if negate_column else 1
        return ref.then(Scale(pa.int64(), times, plus, pa.int32() if narrow else None))
    if pa.types.is_date32(type) and not negate_column:
        return ref.then(Scale(type, 1, plus))
    return None


def _shift_time(call: tree.Call, left: Value | ColumnRef, right: Value | ColumnRef) -> ColumnRef | None:
    """``date ± days``, ``time ± interval`` without months, and ``time - time``."""
    ref, value = (left, right) if isinstance(left, ColumnRef) else (right, left)
    if not isinstance(ref, ColumnRef) or not isinstance(value, Value) or not value.scalar.is_valid:
        return None
    type, scalar, minus = storage_type(ref.out), value.scalar, call.name == "-"
    if pa.types.is_integer(scalar.type):
        return _shift_column(ref, value, negate_column=minus and ref is right, negate_constant=minus)
    if pa.types.is_timestamp(type) and scalar.type == type and minus:
        _offset(type, call.zone)  # clocks of a zone with summer time have no constant distance
        sign = 1 if ref is left else -1
        return ref.then(Scale(pa.duration(type.unit), sign, -sign * scalar.value))
    nanos = _interval_nanos(scalar)
    if nanos is None or (minus and ref is right):
        return None
    if pa.types.is_date32(type):
        plus, rest = divmod(nanos, DAY * 10**9)
    elif pa.types.is_timestamp(type):
        if abs(nanos) >= DAY * 10**9:
            _offset(type, call.zone)
        plus, rest = divmod(nanos * UNITS[type.unit], 10**9)
    else:
        return None
    return None if rest else ref.then(Scale(type, 1, -plus if minus else plus))


def _interval_nanos(scalar: pa.Scalar) -> int | None:
    """Nanoseconds of an interval without months, or of a duration."""
    if pa.types.is_duration(scalar.type):
        return int(scalar.value) * 10**9 // UNITS[scalar.type.unit]
    if not pa.types.is_interval(scalar.type) or scalar.as_py().months:
        return None
    return int(scalar.as_py().days) * DAY * 10**9 + int(scalar.as_py().nanoseconds)


def _date_add(call: tree.Call, args: list[Value | ColumnRef]) -> ColumnRef | None:
    """``date_add(date, days)`` and ``date_sub(date, days)``."""
    if len(args) != 2:
        return None
    ref, days = args
    if not isinstance(ref, ColumnRef) or not isinstance(days, Value) or not days.scalar.is_valid:
        return None
    if not pa.types.is_integer(days.scalar.type) or not pa.types.is_temporal(storage_type(ref.out)):
        return None
    dates = cast_column(ref, tree.Cast(tree.Literal(days.scalar), pa.date32(), call.zone))
    return _shift_column(dates, days, negate_column=False, negate_constant=call.name == "date_sub")


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
    """Keys per day and the session offset in keys; zeros for a type without days."""
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


def _epoch(call: tree.Call, args: list[Value | ColumnRef]) -> ColumnRef | None:
    """``timestamp_millis(n)`` of an integer, ``unix_millis(ts)`` of an instant, and other units."""
    ref = args[0]
    if len(args) != 1 or not isinstance(ref, ColumnRef):
        return None
    type, (name, _, unit) = storage_type(ref.out), call.name.partition("_")
    wanted = {"seconds": 1, "millis": 10**3, "micros": 10**6}[unit]
    if name == "timestamp" and pa.types.is_signed_integer(type):
        return ref.then(Scale(pa.timestamp("us", "UTC"), 10**6 // wanted))
    if name != "unix" or not pa.types.is_timestamp(type) or type.tz is None:
        return None
    have = UNITS[type.unit]
    return ref.then(
        Scale(pa.int64(), wanted // have) if have <= wanted else Floor(pa.int64(), have // wanted, index=True)
    )


_EPOCHS = [f"{name}_{unit}" for name in ("timestamp", "unix") for unit in ("seconds", "millis", "micros")]
FUNCTIONS = {
    **dict.fromkeys(_EPOCHS, _epoch),
    "+": _shift,
    "-": _shift,
    "negative": _shift,
    "date_add": _date_add,
    "date_sub": _date_add,
    "year": _year,
    "date_trunc": _date_trunc,
    "substr": _left,
    "substring": _left,
    "left": _left,
}
