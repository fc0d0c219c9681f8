"""Spark's meaning of a predicate over whole columns of Python values: slow, plain, and written on its own.

It shares the predicate's tree with Skipstone and nothing else: no domains, no keys, no cuts.
"""

from __future__ import annotations

import datetime as dt
import re
import zoneinfo
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from skipstone.predicate import tree

NANO = 10**9
DAY_NANOS = 86_400 * NANO
PER_UNIT = {"s": NANO, "ms": 10**6, "us": 10**3, "ns": 1}
Truths = list[bool | None]


class CantEvaluate(Exception):
    """The predicate has no answer here: an overflow, or a part the oracle doesn't speak."""


@dataclass(frozen=True)
class Values:
    """A value for each row: integers, floats, decimals (as Fraction), text, bytes or nanoseconds.

    ``kind`` is one of int, float, decimal, bool, text, bytes, date (days), stamp, instant, time, duration,
    null, nested, interval.
    """

    kind: str
    items: Sequence[Any]
    constant: bool = False
    zone: str = "UTC"


# -- Arrow to plain values ---------------------------------------------------------------------


def plain(array: pa.Array | pa.ChunkedArray) -> Values:
    """An Arrow column as plain Python values without loss."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
        if isinstance(array, pa.ChunkedArray):
            array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    t = array.type
    if pa.types.is_null(t):
        return Values("null", [None] * len(array))
    if pa.types.is_boolean(t):
        return Values("bool", array.to_pylist())
    if pa.types.is_integer(t):
        return Values("int", array.to_pylist())
    if pa.types.is_floating(t):
        return Values("float", [None if v is None else float(v) for v in array.to_pylist()])
    if pa.types.is_decimal(t):
        return Values("decimal", [None if v is None else Fraction(v) for v in array.to_pylist()])
    if pa.types.is_string(t) or pa.types.is_large_string(t) or pa.types.is_string_view(t):
        return Values("text", array.to_pylist())
    if (
        pa.types.is_binary(t)
        or pa.types.is_large_binary(t)
        or pa.types.is_binary_view(t)
        or pa.types.is_fixed_size_binary(t)
    ):
        return Values("bytes", array.to_pylist())
    if pa.types.is_date32(t):
        return Values("date", array.view(pa.int32()).to_pylist())
    if pa.types.is_date64(t):
        return Values(
            "date", [None if v is None else v // 86_400_000 for v in array.view(pa.int64()).to_pylist()]
        )
    if pa.types.is_timestamp(t) or pa.types.is_duration(t) or pa.types.is_time(t):
        whole = array.view(pa.int32() if t.bit_width == 32 else pa.int64()).to_pylist()
        each = PER_UNIT[t.unit]
        kind = "time" if pa.types.is_time(t) else "duration" if pa.types.is_duration(t) else "stamp"
        if kind == "stamp" and t.tz is not None:
            kind = "instant"
        return Values(kind, [None if v is None else v * each for v in whole])
    return Values("nested", [0 if v else None for v in pc.is_valid(array).to_pylist()])


def read(path: Path | str) -> pa.Table:
    """The whole file as pyarrow gives it, but INT96 and converted timestamps as what they are: instants."""
    file = pq.ParquetFile(path)
    table = file.read()
    for number in range(len(file.schema)):
        leaf = file.schema.column(number)
        old = leaf.physical_type == "INT96" or "is_from_converted_type=true" in str(leaf.logical_type)
        if old and leaf.path in table.column_names:
            type = table.schema.field(leaf.path).type
            if pa.types.is_timestamp(type) and type.tz is None:
                at = table.column_names.index(leaf.path)
                zoned = table.column(at).cast(pa.timestamp(type.unit, "UTC"))
                table = table.set_column(at, leaf.path, zoned)
    return table


class Oracle:
    """Answers predicates about one table; columns are converted once."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self.rows = table.num_rows
        self._columns: dict[tuple[str, ...], Values] = {}

    def column(self, path: tuple[str, ...]) -> Values:
        found = self._columns.get(path)
        if found is None:
            found = plain(self.arrow(path))
            self._columns[path] = found
        return found

    def arrow(self, path: tuple[str, ...]) -> pa.Array:
        """The column as Arrow has it; a field of a NULL struct is NULL."""
        at = [n for n, name in enumerate(self.table.column_names) if name == path[0]]
        assert len(at) == 1, path
        array = self.table.column(at[0]).combine_chunks()
        if isinstance(array, pa.ChunkedArray):
            array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
        for name in path[1:]:
            array = pc.struct_field(array, [array.type.get_field_index(name)])
        return array

    def answer(self, predicate: tree.Predicate) -> Truths:
        """TRUE, FALSE or None (NULL) for each row."""
        return _truth(predicate, self)


# -- conditions --------------------------------------------------------------------------------


def _truth(p: tree.Predicate, o: Oracle) -> Truths:
    match p:
        case tree.And(args):
            return [_and(row) for row in zip(*(_truth(a, o) for a in args), strict=True)]
        case tree.Or(args):
            return [_or(row) for row in zip(*(_truth(a, o) for a in args), strict=True)]
        case tree.Not(arg):
            return [None if v is None else not v for v in _truth(arg, o)]
        case tree.Truth(arg, value):
            return [v is value for v in _truth(arg, o)]
        case tree.Constant(value):
            return [value] * o.rows
        case tree.BooleanValue(arg):
            values = _value(arg, o)
            if values.kind not in ("bool", "null"):
                raise CantEvaluate(f"{values.kind} as a condition")
            return list(values.items)
        case tree.Compare(op, left, right):
            return _compare(op, _value(left, o), _value(right, o))
        case tree.Between(arg, low, high, low_in, high_in):
            value = _value(arg, o)
            above = _compare(">=" if low_in else ">", value, _value(low, o))
            below = _compare("<=" if high_in else "<", value, _value(high, o))
            return [_and(row) for row in zip(above, below, strict=True)]
        case tree.IsIn(arg, values, zone):
            return _is_in(_value(arg, o), values, zone)
        case tree.IsNull(arg):
            if isinstance(arg, tree.Predicate):
                return [v is None for v in _truth(arg, o)]
            return [v is None for v in _value(arg, o).items]
        case tree.IsNan(arg):
            return [None if v is None else v != v for v in _value(arg, o).items]
        case tree.Match(kind, arg, text):
            return _match(kind, _value(arg, o), text)
        case tree.Like(arg, pattern, escape, ignore_case):
            return _like(_value(arg, o), pattern, escape, ignore_case)
        case tree.Opaque(args, evaluate):
            assert evaluate is not None
            batch = pa.record_batch([o.arrow(a.path) for a in args], [".".join(a.path) for a in args])
            return evaluate(batch).to_pylist()
    raise CantEvaluate(type(p).__name__)


def _and(row: Sequence[bool | None]) -> bool | None:
    if any(v is False for v in row):
        return False
    return None if any(v is None for v in row) else True


def _or(row: Sequence[bool | None]) -> bool | None:
    if any(v is True for v in row):
        return True
    return None if any(v is None for v in row) else False


def _compare(op: str, left: Values, right: Values) -> Truths:
    left, right = _coerce(left, right)
    if op == "<=>":
        return [
            (a is None) == (b is None) if a is None or b is None else _order(a, b) == 0
            for a, b in zip(left.items, right.items, strict=True)
        ]
    test: Callable[[int], bool] = {
        "=": lambda c: c == 0,
        "<>": lambda c: c != 0,
        "<": lambda c: c < 0,
        "<=": lambda c: c <= 0,
        ">": lambda c: c > 0,
        ">=": lambda c: c >= 0,
    }[op]
    return [
        None if a is None or b is None else test(_order(a, b))
        for a, b in zip(left.items, right.items, strict=True)
    ]


def _order(a: Any, b: Any) -> int:
    """Spark's order: NaN equals itself and is above every number; text by its UTF-8 bytes."""
    nans = a != a, b != b
    if any(nans):
        return int(nans[0]) - int(nans[1])
    if isinstance(a, str):
        a, b = a.encode("utf-8", "surrogatepass"), b.encode("utf-8", "surrogatepass")
    return (a > b) - (a < b)


_NUMBERS = ("int", "float", "decimal")


def _coerce(left: Values, right: Values) -> tuple[Values, Values]:
    """Both sides as values of one kind."""
    kinds = left.kind, right.kind
    if kinds[0] == kinds[1]:
        if kinds[0] == "nested":
            raise CantEvaluate("nested values are not compared")
        return left, right
    if "null" in kinds:
        return left, right
    if kinds[0] in _NUMBERS and kinds[1] in _NUMBERS:
        if "float" in kinds:
            return _each(left, "float", float), _each(right, "float", float)
        return left, right
    if kinds[1] == "text" and kinds[0] != "text":
        return left, _from_text(right, left)
    if kinds[0] == "text" and kinds[1] != "text":
        return _from_text(left, right), right
    times = {"date", "stamp", "instant"}
    if set(kinds) <= times:
        if "instant" in kinds:
            # A literal is read by its own zone, a column by that of the literal beside it.
            other = left.zone if left.constant else right.zone
            mine, yours = (side.zone if side.constant else other for side in (left, right))
            return _to_instant(left, mine), _to_instant(right, yours)
        return _to_stamp(left), _to_stamp(right)
    raise CantEvaluate(f"{kinds[0]} against {kinds[1]}")


def _each(values: Values, kind: str, fn: Callable[[Any], Any]) -> Values:
    if values.kind == kind:
        return values
    if values.constant and values.items:
        made = None if values.items[0] is None else fn(values.items[0])
        return Values(kind, [made] * len(values.items), True, values.zone)
    return Values(kind, [None if v is None else fn(v) for v in values.items], False, values.zone)


def _from_text(text: Values, other: Values) -> Values:
    try:
        return _parsed(text, other)
    except (ValueError, TypeError) as error:
        raise CantEvaluate(f"text that is no {other.kind}") from error


def _parsed(text: Values, other: Values) -> Values:
    kind = other.kind
    if kind == "int":
        return _each(text, kind, lambda v: int(v.strip()))
    if kind in ("float", "decimal"):
        return _each(text, "float", lambda v: float(v.strip()))
    if kind == "bytes":
        return _each(text, kind, lambda v: v.encode())
    if kind == "bool":
        return _each(text, kind, lambda v: v.strip().lower() in ("true", "t", "yes", "1"))
    if kind == "date":
        return _each(text, kind, lambda v: _wall(v)[0] // DAY_NANOS)
    if kind == "stamp":
        return _each(text, kind, lambda v: _wall(v)[0])
    if kind == "instant":

        def instant(v: str) -> int:
            wall, zone = _wall(v)
            return _instant(wall, zone or text.zone)

        return _each(text, kind, instant)
    if kind == "time":
        return _each(text, kind, lambda v: _wall("1970-01-01 " + v.strip())[0])
    raise CantEvaluate(f"text against {kind}")


def _wall(text: str) -> tuple[int, str | None]:
    """Nanoseconds of a wall-clock time since the epoch, and the zone in the text."""
    text = text.strip().replace("T", " ", 1)
    day, _, clock = text.partition(" ")
    zone = None
    found = re.search(r"(Z|UTC|[+-]\d\d:\d\d)$", clock)
    if found:
        zone, clock = found[1], clock[: found.start()].strip()
    parts = [int(x) for x in day.split("-")] + [1, 1]
    date = dt.date(*parts[:3]).toordinal() - dt.date(1970, 1, 1).toordinal()
    nanos = 0
    if clock:
        hms, _, fraction = clock.partition(".")
        pieces = [int(x) for x in hms.split(":")] + [0, 0]
        nanos = (pieces[0] * 3600 + pieces[1] * 60 + pieces[2]) * NANO + int(fraction.ljust(9, "0") or 0)
    return date * DAY_NANOS + nanos, zone


def _offset(zone: str, wall: int) -> int:
    """Nanoseconds that a wall clock in ``zone`` is ahead of UTC."""
    if zone in ("UTC", "Z"):
        return 0
    found = re.fullmatch(r"([+-])(\d\d):(\d\d)", zone)
    if found:
        seconds = int(found[2]) * 3600 + int(found[3]) * 60
        return (seconds if found[1] == "+" else -seconds) * NANO
    try:
        local = dt.datetime(1970, 1, 1) + dt.timedelta(seconds=wall // NANO)
    except OverflowError as error:
        raise CantEvaluate("a year beyond Python's") from error
    shift = local.replace(tzinfo=zoneinfo.ZoneInfo(zone)).utcoffset()
    assert shift is not None
    return int(shift.total_seconds()) * NANO


def _instant(wall: int, zone: str) -> int:
    return wall - _offset(zone, wall)


def _to_stamp(values: Values) -> Values:
    return _each(values, "stamp", lambda v: v * DAY_NANOS) if values.kind == "date" else values


def _to_instant(values: Values, zone: str) -> Values:
    if values.kind == "date":
        return _each(values, "instant", lambda v: _instant(v * DAY_NANOS, zone))
    if values.kind == "stamp":
        return _each(values, "instant", lambda v: _instant(v, zone))
    return values


def _is_in(values: Values, listed: pa.Array, zone: str) -> Truths:
    if len(listed) == 0:
        return [False] * len(values.items)
    has_null = listed.null_count > 0
    every = plain(listed)
    wanted = Values(every.kind, [v for v in every.items if v is not None])
    same = wanted.kind == values.kind and values.kind not in ("nested", "null")
    if same:
        nan = any(v != v for v in wanted.items)
        keys = {v for v in wanted.items if v == v}

        def hit(v: Any) -> bool:
            return nan if v != v else v in keys

        miss = None if has_null else False
        return [None if v is None else True if hit(v) else miss for v in values.items]
    found: list[bool] = [False] * len(values.items)
    for item in wanted.items:
        each = _compare("=", values, Values(wanted.kind, [item] * len(found), True, zone))
        found = [f or e is True for f, e in zip(found, each, strict=True)]
    miss = None if has_null else False
    return [None if v is None else True if f else miss for v, f in zip(values.items, found, strict=True)]


def _match(kind: str, values: Values, text: str | bytes) -> Truths:
    if values.kind not in ("text", "bytes"):
        raise CantEvaluate(f"text match on {values.kind}")
    if values.kind == "bytes" and isinstance(text, str):
        text = text.encode()
    test: Callable[[Any], bool] = {
        "prefix": lambda v: v.startswith(text),
        "suffix": lambda v: v.endswith(text),
        "contains": lambda v: text in v,
    }[kind]
    return [None if v is None else test(v) for v in values.items]


def _like(values: Values, pattern: str, escape: str | None, ignore_case: bool) -> Truths:
    if values.kind != "text":
        raise CantEvaluate(f"LIKE on {values.kind}")
    out, at = [], 0
    while at < len(pattern):
        char = pattern[at]
        if escape and char == escape:
            at += 1
            out.append(re.escape(pattern[at]))
        elif char == "%":
            out.append(".*")
        elif char == "_":
            out.append(".")
        else:
            out.append(re.escape(char))
        at += 1
    regex = re.compile("".join(out), re.DOTALL | (re.IGNORECASE if ignore_case else 0))
    return [None if v is None else regex.fullmatch(v) is not None for v in values.items]


# -- values ------------------------------------------------------------------------------------


def _value(e: tree.Expr, o: Oracle) -> Values:
    match e:
        case tree.Column(path):
            return o.column(path)
        case tree.Literal(scalar, zone):
            if not scalar.is_valid:
                return Values("null", [None] * o.rows, True, zone)
            if pa.types.is_interval(scalar.type):
                return Values("interval", [tuple(scalar.as_py())] * o.rows, True, zone)
            one = plain(pa.repeat(scalar, 1))
            return Values(one.kind, [one.items[0]] * o.rows, True, zone)
        case tree.Cast(arg, to, zone):
            return _cast(_value(arg, o), to, zone)
        case tree.Call(name, args, zone):
            return _call(name, [_value(a, o) for a in args], zone)
    raise CantEvaluate(type(e).__name__)


def _cast(values: Values, to: pa.DataType, zone: str) -> Values:
    if pa.types.is_integer(to):
        if values.kind != "int":
            raise CantEvaluate(f"{values.kind} to {to}")
        width = to.bit_width
        low, high = (-(2 ** (width - 1)), 2 ** (width - 1) - 1)
        if pa.types.is_unsigned_integer(to):
            low, high = 0, 2**width - 1
        if any(v is not None and not low <= v <= high for v in values.items):
            raise CantEvaluate("overflow")
        return Values("int", values.items)
    if pa.types.is_float64(to) and values.kind in _NUMBERS:
        return _each(values, "float", float)
    if pa.types.is_decimal(to) and values.kind in ("int", "decimal"):
        limit = 10 ** (to.precision - to.scale)
        if any(
            v is not None and (abs(v) >= limit or (Fraction(v) * 10**to.scale).denominator != 1)
            for v in values.items
        ):
            raise CantEvaluate("overflow or rounding")
        return _each(values, "decimal", Fraction)
    if pa.types.is_date32(to):
        if values.kind == "text":
            return _each(values, "date", lambda v: _wall(v)[0] // DAY_NANOS)
        if values.kind == "stamp":
            return _each(values, "date", lambda v: v // DAY_NANOS)
        if values.kind == "instant":
            return _each(values, "date", lambda v: (v + _local(zone, v)) // DAY_NANOS)
        if values.kind == "date":
            return values
    if pa.types.is_timestamp(to) and values.kind in ("date", "stamp", "instant"):
        kind = "stamp" if to.tz is None else "instant"
        if values.kind == kind:
            moved = values
        elif kind == "instant":
            moved = _to_instant(values, zone)
        elif values.kind == "instant":
            moved = _each(values, kind, lambda v: v + _local(zone, v))
        else:
            moved = _to_stamp(values)
        each = PER_UNIT[to.unit]
        if any(v is not None and (v % each or abs(v // each) >= 2**63) for v in moved.items):
            raise CantEvaluate("a cast that cuts or overflows")
        return moved
    raise CantEvaluate(f"{values.kind} to {to}")


def _local(zone: str, instant: int) -> int:
    """Nanoseconds that the wall clock in ``zone`` is ahead of UTC at an instant."""
    if "/" not in zone:
        return _offset(zone, 0)
    try:
        moment = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=instant // NANO)
    except OverflowError as error:
        raise CantEvaluate("a year beyond Python's") from error
    shift = moment.astimezone(zoneinfo.ZoneInfo(zone)).utcoffset()
    assert shift is not None
    return int(shift.total_seconds()) * NANO


def _call(name: str, args: list[Values], zone: str) -> Values:
    if name in ("+", "-") and "interval" in (args[0].kind, args[1].kind):
        return _moved(name, args, zone)
    if name == "-" and {args[0].kind, args[1].kind} == {"instant"}:
        if "/" in zone:
            raise CantEvaluate("clocks of a zone with changing clocks")
        left, right = args
        return Values("duration", [None if a is None or b is None else a - b for a, b in _rows(left, right)])
    if name in ("+", "-", "negative"):
        return _arithmetic(name, args)
    if name.startswith("timestamp_"):
        each = {"seconds": NANO, "millis": 10**6, "micros": 10**3}[name.removeprefix("timestamp_")]
        out = [None if v is None else v * each for v in args[0].items]
        if any(v is not None and not -_MICROS <= v < _MICROS for v in out):
            raise CantEvaluate("overflow")
        return Values("instant", out)
    if name.startswith("unix_"):
        each = {"seconds": NANO, "millis": 10**6, "micros": 10**3}[name.removeprefix("unix_")]
        out = [None if v is None else v // each for v in args[0].items]
        if args[0].kind != "instant" or any(v is not None and not -(2**63) <= v < 2**63 for v in out):
            raise CantEvaluate("overflow")
        return Values("int", out)
    if name == "year":
        (value,) = args
        days = _local_days(value, zone)
        return Values("int", [None if d is None else _civil(d)[0] for d in days])
    if name == "date_format":
        value, pattern = args
        form = next(iter(pattern.items), "yyyy")
        return Values("text", [d if d is None else _formatted(d, form) for d in _local_days(value, zone)])
    if name == "date_trunc":
        unit, value = args
        if value.kind == "date":
            value = _to_instant(value, zone)
        if "/" in zone:
            raise CantEvaluate("a local time in a zone with changing clocks")
        shift = _local(zone, 0) if value.kind == "instant" else 0
        if value.kind not in ("stamp", "instant"):
            raise CantEvaluate("date_trunc")
        name_of = next(iter(unit.items), "day")
        return Values(
            value.kind,
            [None if v is None else _trunc(name_of, v + shift) - shift for v in value.items],
        )
    if name in ("substr", "substring", "left"):
        value, *numbers = args
        firsts = [n.items[0] if n.items else 1 for n in numbers]
        length = firsts[0] if name == "left" else firsts[1]
        start = 1 if name == "left" else firsts[0]
        if start not in (0, 1) or value.kind not in ("text", "bytes"):
            raise CantEvaluate(name)
        return Values(value.kind, [None if v is None else v[:length] for v in value.items])
    raise CantEvaluate(name)


_MICROS = 2**63 * 1000  # end of timestamps of microseconds


def _moved(name: str, args: list[Values], zone: str) -> Values:
    """A time plus or minus an interval: months, then days by the clock of the zone, then elapsed time."""
    time, span = args if args[1].kind == "interval" else args[::-1]
    sign = -1 if name == "-" else 1
    months, days, nanos = next(iter(span.items), (0, 0, 0))
    whole, rest = divmod(abs(days * DAY_NANOS + nanos), DAY_NANOS)
    forward = sign if days * DAY_NANOS + nanos >= 0 else -sign
    if time.kind == "date":
        if not nanos:
            dates = [v if v is None else _months_later(v, sign * months) + sign * days for v in time.items]
            if any(v is not None and not -(2**31) <= v < 2**31 for v in dates):
                raise CantEvaluate("overflow")
            return Values("date", dates)
        time = _to_instant(time, zone)

    def move(value: int | None) -> int | None:
        if value is None:
            return None
        moved = value
        if months or whole:
            shift = _local(zone, value) if time.kind == "instant" else 0
            day, clock = divmod(value + shift, DAY_NANOS)
            wall = (_months_later(day, sign * months) + forward * whole) * DAY_NANOS + clock
            moved = wall - shift
            if time.kind == "instant" and _local(zone, moved) != shift:
                moved = _instant(wall, zone)
        moved += forward * rest
        if not -_MICROS <= value < _MICROS or not -_MICROS <= moved < _MICROS:
            raise CantEvaluate("overflow")
        return moved

    return Values(time.kind, [move(v) for v in time.items])


def _formatted(days: int, pattern: str) -> str:
    year, month, day = _civil(days)
    sign = "+" if year > 9999 else "-" if year < 0 else ""
    return (
        pattern.replace("yyyy", f"{sign}{abs(year):04d}")
        .replace("MM", f"{month:02d}")
        .replace("dd", f"{day:02d}")
    )


def _months_later(days: int, months: int) -> int:
    """The same day of another month, or the last one of a shorter month."""
    day = _civil(days)[2]
    first = _trunc("month", days * DAY_NANOS) // DAY_NANOS
    for _ in range(abs(months)):
        first = first - 1 if months < 0 else first + 31
        first = _trunc("month", first * DAY_NANOS) // DAY_NANOS
    length = _trunc("month", (first + 31) * DAY_NANOS) // DAY_NANOS - first
    return first + min(day, length) - 1


def _arithmetic(name: str, args: list[Values]) -> Values:
    if name == "negative":
        args = [Values("int", [0] * len(args[0].items), True), *args]
        name = "-"
    left, right = args
    sign = 1 if name == "+" else -1
    if left.kind == "date" and right.kind == "int":
        return Values(
            "date", [None if a is None or b is None else a + sign * b for a, b in _rows(left, right)]
        )
    if "null" in (left.kind, right.kind):
        return Values("null", [None] * len(left.items))
    if {left.kind, right.kind} == {"int"}:
        out = [None if a is None or b is None else a + sign * b for a, b in _rows(left, right)]
        if any(v is not None and not -(2**63) <= v < 2**63 for v in out):
            raise CantEvaluate("overflow")
        return Values("int", out)
    if {left.kind, right.kind} <= {"int", "float"}:
        left, right = _each(left, "float", float), _each(right, "float", float)
        return Values(
            "float", [None if a is None or b is None else a + sign * b for a, b in _rows(left, right)]
        )
    raise CantEvaluate(f"{left.kind} {name} {right.kind}")


def _rows(left: Values, right: Values) -> Any:
    return zip(left.items, right.items, strict=True)


def _local_days(values: Values, zone: str) -> list[int | None]:
    if values.kind == "date":
        return list(values.items)
    if values.kind == "stamp":
        return [None if v is None else v // DAY_NANOS for v in values.items]
    if values.kind == "instant":
        return [None if v is None else (v + _local(zone, v)) // DAY_NANOS for v in values.items]
    raise CantEvaluate(values.kind)


def _civil(days: int) -> tuple[int, int, int]:
    """Year, month and day of a day number, also outside Python's years: 400 years repeat."""
    cycles, rest = divmod(days + 719_162, 146_097)
    date = dt.date.fromordinal(rest + 1)
    return date.year + 400 * cycles, date.month, date.day


def _trunc(unit: str, wall: int) -> int:
    days, clock = divmod(wall, DAY_NANOS)
    seconds = {"hour": 3600, "minute": 60, "second": 1}.get(unit)
    if seconds:
        return wall - clock % (seconds * NANO)
    if unit == "day":
        return days * DAY_NANOS
    if unit == "week":
        return (days - (days + 3) % 7) * DAY_NANOS
    year, month, _ = _civil(days)
    first = {"year": 1, "quarter": month - (month - 1) % 3, "month": month}[unit]
    # Back to the first of the month, month by month: no formula to get wrong.
    while True:
        y, m, d = _civil(days)
        days -= d - 1
        if m == first and y == year:
            return days * DAY_NANOS
        days -= 1
