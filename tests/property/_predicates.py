"""Random predicate trees over a random table: values of the data, next to it, far from it, of other types."""

from __future__ import annotations

import datetime as dt
import decimal
import functools
import math
import random
import zlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import skipstone as sk
from skipstone.predicate import tree
from tests.property._layouts import FAMILIES, Family, Table, make_array
from tests.property._oracle import plain

OPS: tuple[tree.CompareOp, ...] = ("=", "<>", "<", "<=", ">", ">=", "<=>")
ZONES = ("UTC", "UTC", "UTC", "UTC", "+05:30", "-08:00", "Europe/Paris", "America/New_York")
ColumnPath = tuple[str, ...]


def is_even(values: pa.Array) -> pa.Array:
    """An opaque condition: every other row, and NULL for NULL."""
    numbers = pa.array(
        [None if v is None else n % 2 == 0 for n, v in enumerate(values.is_valid().to_pylist())]
    )
    return pc.if_else(values.is_valid(), numbers, pa.scalar(None, pa.bool_()))


def is_drawn(values: pa.Array) -> pa.Array:
    """An opaque condition that only a row's own value decides, however rows come in batches."""
    drawn = [None if v is None else zlib.crc32(repr(v).encode()) % 2 == 0 for v in plain(values).items]
    return pa.array(drawn, pa.bool_())


class Predicates:
    """Makes predicates about one table."""

    def __init__(
        self, rng: random.Random, made: Table, opaque: Callable[[pa.Array], pa.Array] = is_even
    ) -> None:
        self.rng = rng
        self.opaque = opaque
        self.made = made
        self.paths = list(made.pools)

    def tree(self, depth: int | None = None) -> tree.Predicate:
        """A random tree."""
        rng = self.rng
        if depth is None:
            depth = rng.choice([0, 0, 0, 1, 1, 1, 2, 2, 3, 4])
        if depth == 0 or rng.random() < 0.15:
            return self.leaf()
        kind = rng.randrange(10)
        if kind <= 3:
            parts = [self.tree(depth - 1) for _ in range(rng.choice([2, 2, 2, 3]))]
            return tree.conjunction(parts)
        if kind <= 6:
            parts = [self.tree(depth - 1) for _ in range(rng.choice([2, 2, 2, 3]))]
            return tree.disjunction(parts)
        if kind <= 8:
            return ~self.tree(depth - 1)
        truth = tree.Truth(self.tree(depth - 1), rng.choice([True, False, None]))
        return ~truth if rng.random() < 0.3 else truth

    # -- leaves ------------------------------------------------------------------------------

    def leaf(self) -> tree.Predicate:
        rng = self.rng
        if rng.random() < 0.02:
            return tree.Constant(rng.choice([True, False, None]))
        if self.made.nested and rng.random() < 0.06:
            column = sk.col(*rng.choice(self.made.nested))
            return column.is_null() if rng.random() < 0.5 else column.is_not_null()
        path = rng.choice(self.paths)
        family, pool = self.made.pools[path]
        column: sk.Expr = sk.col(*path)
        if rng.random() < 0.03:  # no column at all
            constant = self.literal(family, pool)
            if rng.random() < 0.3:
                return self.is_in(constant, family, pool)
            return tree.Compare(rng.choice(OPS), constant, self.literal(family, pool))
        kind = rng.randrange(20)
        if kind == 0:
            return column.is_null() if rng.random() < 0.5 else column.is_not_null()
        if kind == 1:
            return sk.udf(self.opaque, [column])
        if kind == 2:
            pair = self.pair(path, family)
            if pair is not None:
                return pair
        if kind <= 4:
            function = self.through_function(column, family, pool)
            if function is not None:
                return function
        if pa.types.is_boolean(family.type) and rng.random() < 0.5:
            return tree.BooleanValue(column)
        if pa.types.is_floating(family.type) and rng.random() < 0.15:
            return column.is_nan()
        if _is_text(family.type) and rng.random() < 0.4:
            return self.text(column, pool)
        if family.name in ("blob", "fixed") and rng.random() < 0.2:
            data = rng.choice(pool)
            return column.startswith(data[: rng.randrange(len(data) + 1)])
        if kind <= 9:
            return self.is_in(column, family, pool)
        if kind <= 12:
            ends = [self.literal(family, pool) for _ in range(2)]
            inclusive = rng.choice(["both", "left", "right", "neither"])
            return column.between(*ends, inclusive=inclusive)
        literal = self.literal(family, pool)
        op = rng.choice(OPS)
        if rng.random() < 0.15:
            return tree.Compare(op, literal, column)
        return tree.Compare(op, column, literal)

    def pair(self, path: ColumnPath, family: Family) -> tree.Predicate | None:
        rng = self.rng
        same = [p for p, (f, _) in self.made.pools.items() if p != path and _comparable(f.type, family.type)]
        other = rng.choice(same) if same else path
        left: sk.Expr = sk.col(*path)
        right: sk.Expr = sk.col(*other)
        if pa.types.is_signed_integer(family.type) and rng.random() < 0.3:
            left = left + rng.randrange(-5, 6)
        return tree.Compare(rng.choice(OPS), left, right)

    # -- literals ----------------------------------------------------------------------------

    def literal(self, family: Family, pool: list[Any]) -> sk.Expr:
        """A literal to compare with a column: mostly of its own type, in, near and out of the data."""
        rng = self.rng
        zone = rng.choice(ZONES)
        if rng.random() < 0.02:
            return sk.lit(None)
        if rng.random() < 0.35:
            other = self.other_type(family, pool, zone)
            if other is not None:
                return other
        return sk.lit(self.scalar(family, pool), zone=zone)

    def scalar(self, family: Family, pool: list[Any]) -> pa.Scalar:
        value = self.raw(family, pool)
        type = family.type.value_type if pa.types.is_dictionary(family.type) else family.type
        return make_array(type, [value])[0]

    def raw(self, family: Family, pool: list[Any]) -> Any:
        rng = self.rng
        value = rng.choice(pool)
        if isinstance(value, bool):
            return rng.random() < 0.5
        if isinstance(value, int):
            return self._whole(family, pool, value)
        if isinstance(value, float):
            near = [value, value, math.nextafter(value, math.inf), value + 0.5, -value, 0.0, -0.0, 1e9, -1e9]
            got = rng.choice([*near, math.nan, math.inf, -math.inf])
            return _narrow(family.type, got)
        if isinstance(value, decimal.Decimal):
            with decimal.localcontext(prec=90):
                unit = decimal.Decimal(1).scaleb(-family.type.scale)
                top = decimal.Decimal(10) ** (family.type.precision - family.type.scale) - unit
                moved = value + rng.choice([0, 0, 0, 1, -1, 7]) * unit
                return max(top.copy_negate(), min(top, moved))
        if isinstance(value, str):
            return rng.choice(
                [
                    value,
                    value,
                    value[:-1],
                    value + "a",
                    value + "\x00",
                    value[:64],
                    value[:3],
                    "",
                    "zzz",
                    "\U0010ffff",
                ]
            )
        assert isinstance(value, bytes)
        if family.name == "fixed":
            return rng.choice([value, value, bytes(4), b"\xff" * 4, value[:3] + b"\x05"])
        return rng.choice([value, value, value[:-1], value + b"\x00", value + b"\xff", b"", b"\xff" * 100])

    def _whole(self, family: Family, pool: list[Any], value: int) -> int:
        rng = self.rng
        low, high = _limits(family.type)
        step = rng.choice([0, 0, 0, 0, 1, -1, 2, 100])
        far = rng.choice([min(pool) - 1, max(pool) + 1, low, high, 0])
        value = far if rng.random() < 0.15 else value + step
        return max(low, min(high, value))

    def other_type(self, family: Family, pool: list[Any], zone: str) -> sk.Expr | None:
        """The same place on the line, said in another type."""
        rng = self.rng
        type = family.type
        value = self.raw(family, pool)
        if pa.types.is_integer(type):
            style = rng.randrange(7)
            if style == 0:
                return sk.lit(value + rng.choice([0.5, -0.5, 0.0, 0.25]))
            if style == 1:
                return sk.lit(
                    decimal.Decimal(value) + rng.choice([decimal.Decimal("0.5"), decimal.Decimal(0)])
                )
            if style == 2:
                return sk.lit(rng.choice([math.nan, math.inf, -math.inf, 1e30, -1e30, 9007199254740993.0]))
            if style == 3:
                return sk.lit(str(value) if value < 2**63 else "7")
            if style == 4:
                return sk.lit(rng.choice([2**63, 2**64, -(2**63) - 1, 2**31, -(2**31) - 1, 256, -1]))
            if style == 5 and rng.random() < 0.5:
                return sk.lit(_cap(value - 3)) + 3
            if style == 5:
                return sk.lit(pa.scalar(max(-128, min(127, value)), pa.int8()))
            return sk.lit(float(value))
        if pa.types.is_floating(type):
            style = rng.randrange(5)
            if style == 0 and math.isfinite(value) and abs(value) < 2**60:
                return sk.lit(int(value))
            if style == 1 and math.isfinite(value) and abs(value) < 1e15:
                return sk.lit(decimal.Decimal(repr(round(value, 3))))
            if style == 2:
                return sk.lit(pa.scalar(_narrow(pa.float32(), value), pa.float32()))
            if style == 3 and math.isfinite(value):
                return sk.lit(repr(value))
            return sk.lit(rng.choice([0.1, value]))
        if pa.types.is_decimal(type):
            return self.near_decimal(value)
        if pa.types.is_date(type):
            return self.near_date(value, zone)
        if pa.types.is_timestamp(type):
            return self.near_stamp(type, value, zone)
        if pa.types.is_time(type):
            nanos = value * 10**9 // _per(type.unit) + rng.choice([0, 0, 1, -1, 999])
            nanos = max(0, min(86_400 * 10**9 - 1, nanos))
            return sk.lit(make_array(pa.time64("ns"), [nanos])[0])
        if pa.types.is_duration(type):
            return sk.lit(make_array(pa.duration("ns"), [value * 1000 + rng.choice([0, 1, -1])])[0])
        if pa.types.is_boolean(type):
            return sk.lit(rng.choice(["true", "false"]))
        if isinstance(value, str) and rng.random() < 0.5:
            return sk.lit(pa.scalar(value, pa.large_string()))
        return None

    def near_decimal(self, value: decimal.Decimal) -> sk.Expr:
        rng = self.rng
        style = rng.randrange(6)
        if style == 0:
            return sk.lit(float(value))
        if style == 1:
            return sk.lit(int(value)) if abs(value) < 2**60 else sk.lit(0)
        if style == 2:
            return sk.lit(rng.choice([math.nan, math.inf, -math.inf, 0.1, 1e40]))
        if style == 3:
            with decimal.localcontext(prec=90):
                return sk.lit(value.normalize() if value else value)
        if style == 4:
            with decimal.localcontext(prec=75):
                moved = value + decimal.Decimal(rng.choice(["0.0000001", "-0.0000001", "0.05"]))
            return sk.lit(moved)
        return sk.lit(decimal.Decimal(rng.choice(["1e20", "-1e20", "1e30", "0.5", "12345678901234567890"])))

    def near_date(self, value: int, zone: str) -> sk.Expr:
        rng = self.rng
        day = dt.date(1970, 1, 1) + dt.timedelta(days=value) if abs(value) < 700_000 else dt.date(2020, 1, 1)
        style = rng.randrange(4)
        if style == 0:
            return sk.lit(day.isoformat())
        if style == 1:
            return sk.lit(f"{day.isoformat()} 12:00:00")
        hours = dt.timedelta(hours=rng.choice([0, 0, 5, -3]))
        noon = dt.datetime(day.year, day.month, day.day) + hours
        if style == 2:
            return sk.lit(
                pa.scalar(
                    noon, pa.timestamp(rng.choice(["s", "us", "ns"])) if 1700 < day.year < 2200 else None
                )
            )
        return sk.lit(pa.scalar(noon, pa.timestamp("us", "UTC")), zone=zone)

    def near_stamp(self, type: pa.DataType, value: int, zone: str) -> sk.Expr:
        rng = self.rng
        nanos = value * 10**9 // _per(type.unit)
        style = rng.randrange(6)
        if style == 0 and abs(nanos) < 2**70:
            unit = rng.choice(["s", "ms", "us"])
            moved = nanos * _per(unit) // 10**9 + rng.choice([0, 0, 1, -1])
            return sk.lit(make_array(pa.timestamp(unit, type.tz), [moved])[0], zone=zone)
        if style == 1 and abs(nanos) < 2**62:
            return sk.lit(
                make_array(pa.timestamp("ns", type.tz), [nanos + rng.choice([0, 1, -1, 999])])[0], zone=zone
            )
        if abs(nanos) > 2**62:
            return sk.lit("2020-01-01", zone=zone)
        near = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=nanos // 1000)
        if style == 2:
            return sk.lit(near.date(), zone=zone)
        if style == 3:  # the other kind of timestamp
            other = None if type.tz else "UTC"
            return sk.lit(make_array(pa.timestamp("us", other), [nanos // 1000])[0], zone=zone)
        if style == 4:
            return sk.lit(near.isoformat(" ") + rng.choice(["", ""]), zone=zone)
        return sk.lit(near.date().isoformat() + rng.choice(["", " 00:00", " 11:22:33.5"]), zone=zone)

    # -- sets and text -----------------------------------------------------------------------

    def is_in(self, column: sk.Expr, family: Family, pool: list[Any]) -> tree.Predicate:
        rng = self.rng
        type = family.type.value_type if pa.types.is_dictionary(family.type) else family.type
        many = rng.random() < 0.05
        count = 3000 if many else rng.choice([1, 1, 2, 3, 5, 20, 40])
        if many and pa.types.is_integer(type):
            low, high = _limits(type)
            values: list[Any] = [max(low, min(high, rng.randrange(-5000, 5000))) for _ in range(count)]
        else:
            values = [self.raw(family, pool) for _ in range(min(count, 300))]
        if rng.random() < 0.15:
            values.append(None)
        if rng.random() < 0.02:
            values = []
        listed = make_array(type, values)
        if pa.types.is_integer(type) and rng.random() < 0.2:
            wide = [None if v is None else float(v) + rng.choice([0, 0.5]) for v in values[:30]]
            listed = pa.array(wide, pa.float64())
        elif pa.types.is_integer(type) and rng.random() < 0.2 and pa.types.is_signed_integer(type):
            listed = pa.array(values, pa.int64())
        elif pa.types.is_float32(type) and rng.random() < 0.3:
            listed = pa.array([None if v is None else v + 0.1 for v in values], pa.float64())
        elif pa.types.is_decimal(type) and rng.random() < 0.2:
            listed = pa.array([None if v is None else float(v) for v in values[:20]], pa.float64())
        elif family.name == "fixed" and rng.random() < 0.3:
            listed = pa.array([*values, b"ab"], pa.binary())
        elif (pa.types.is_date(type) or pa.types.is_timestamp(type)) and rng.random() < 0.2:
            listed = pa.array(["2020-01-01", "2026-01-05 00:00:00", "1970-01-01"])
        found = tree.IsIn(column, listed)
        return ~found if rng.random() < 0.3 else found

    def text(self, column: sk.Expr, pool: list[Any]) -> tree.Predicate:
        rng = self.rng
        value = rng.choice(pool)
        cut = rng.choice([len(value), len(value) // 2, 1, 2, 64, 65])
        start = value[:cut]
        style = rng.randrange(7)
        if style == 0:
            return column.startswith(start)
        if style == 1:
            return column.endswith(value[-2:])
        if style == 2:
            return column.contains(value[1:3])
        escaped = start.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        if style == 3:
            return column.like(escaped)
        if style == 4:
            return column.like(escaped + rng.choice(["%", "%%", "_", "_%", "%a", "%a%"]))
        if style == 5:
            other = start.replace("!", "!!").replace("%", "!%").replace("_", "!_")
            return column.like(other + "%", escape="!")
        return column.ilike(escaped + "%")

    # -- functions ---------------------------------------------------------------------------

    def through_function(self, column: sk.Expr, family: Family, pool: list[Any]) -> tree.Predicate | None:
        rng = self.rng
        type, op = family.type, rng.choice(OPS)
        zone = rng.choice(ZONES)
        value = self.raw(family, pool)
        if _is_text(type):
            length = rng.choice([0, 1, 2, 5, 64, 70])
            made = rng.choice(
                [
                    tree.Call("left", (column, sk.lit(length))),
                    tree.Call("substr", (column, sk.lit(rng.choice([0, 1])), sk.lit(length))),
                ]
            )
            return tree.Compare(op, made, sk.lit(value[: rng.choice([length, 3, 100])]))
        if pa.types.is_integer(type):
            return self._number_function(column, type, value, op)
        if pa.types.is_float64(type) and math.isfinite(value):
            shift = rng.choice([0.5, -1.0, 1e300, 3])
            made = rng.choice([column + shift, column - shift, shift - column, -1 - column])
            return tree.Compare(op, made, sk.lit(rng.choice([value + shift, -value, math.nan, 0.0])))
        if pa.types.is_floating(type):
            return tree.Compare(op, column.cast(pa.float64()), sk.lit(rng.choice([value, 0.1])))
        if pa.types.is_decimal(type) and type.precision <= 18:
            if rng.random() < 0.5:
                return tree.Compare(op, column.cast(pa.float64()), sk.lit(float(value)))
            wider = pa.decimal128(18, min(18, type.scale + 1)) if type.precision < 12 else type
            return tree.Compare(op, column.cast(wider), sk.lit(value))
        if pa.types.is_date32(type) or pa.types.is_timestamp(type):
            return self._time_function(column, type, value, op, zone)
        return None

    def _number_function(
        self, column: sk.Expr, type: pa.DataType, value: int, op: tree.CompareOp
    ) -> tree.Predicate:
        rng = self.rng
        shift = rng.choice([1, -1, 10, 1000, 2**40])
        style = rng.randrange(7)
        if style == 6 and pa.types.is_signed_integer(type):
            unit, each = rng.choice([("seconds", 10**6), ("millis", 10**3), ("micros", 1)])
            place = make_array(pa.timestamp("us", "UTC"), [_cap(value * each)])[0]
            return tree.Compare(op, tree.Call(f"timestamp_{unit}", (column,)), sk.lit(place))
        if style == 0:
            return tree.Compare(op, column.cast(pa.int64()), sk.lit(min(value, 2**63 - 1)))
        if style == 1:
            return tree.Compare(
                op, column.cast(pa.float64()), sk.lit(rng.choice([float(value), value + 0.5]))
            )
        if style == 2:
            return tree.Compare(op, column.cast(pa.decimal128(18, rng.choice([0, 2]))), sk.lit(value))
        if style == 3:
            return tree.Compare(op, shift - column, sk.lit(_cap(shift - value)))
        if style == 4:
            return tree.Compare(op, tree.Call("negative", (column,)), sk.lit(_cap(-value)))
        return tree.Compare(op, rng.choice([column + shift, shift + column]), sk.lit(_cap(value + shift)))

    def _time_function(
        self, column: sk.Expr, type: pa.DataType, value: int, op: tree.CompareOp, zone: str
    ) -> tree.Predicate:
        rng = self.rng
        nanos = value * 86_400 * 10**9 if pa.types.is_date(type) else value * 10**9 // _per(type.unit)
        if abs(nanos) >= 2**70:
            nanos = 0
        days = nanos // (86_400 * 10**9)
        style = rng.randrange(8)
        if style >= 5 and not (pa.types.is_timestamp(type) and type.unit == "ns"):
            return self._interval(column, type, nanos, op, zone)
        if style == 0:
            year = 1970 + days * 400 // 146_097 + rng.choice([0, 0, 1, -1])
            made = tree.Call("year", (column,), zone)
            if rng.random() < 0.3:
                return made.isin([year, year + 2])
            return tree.Compare(op, made, sk.lit(year))
        if style == 1 and pa.types.is_timestamp(type):
            day = make_array(pa.date32(), [days + rng.choice([0, 0, 1, -1])])[0]
            return tree.Compare(op, column.cast(pa.date32(), zone), sk.lit(day))
        if style == 2 and pa.types.is_date(type):
            if rng.random() < 0.5:
                return tree.Compare(op, column + rng.choice([1, -30]), sk.lit(make_array(type, [value])[0]))
            to = pa.timestamp("us", rng.choice([None, "UTC"]))
            place = make_array(to, [days * 86_400 * 10**6])[0]
            return tree.Compare(op, column.cast(to, zone), sk.lit(place, zone=zone))
        if style == 3 and pa.types.is_timestamp(type):
            to = pa.timestamp("us", rng.choice([None, "UTC"]))
            if _per(type.unit) <= 10**6:
                place = make_array(to, [nanos // 1000])[0]
                return tree.Compare(op, column.cast(to, zone), sk.lit(place, zone=zone))
        unit = rng.choice(["year", "quarter", "month", "week", "day", "hour", "minute", "second"])
        out = pa.timestamp("us", "UTC") if pa.types.is_date(type) or type.tz else pa.timestamp("us")
        made = tree.Call("date_trunc", (sk.lit(unit), column), zone)
        place = days * 86_400 * 10**6 if rng.random() < 0.7 else nanos // 1000
        return tree.Compare(op, made, sk.lit(make_array(out, [place])[0], zone=zone))

    def _interval(
        self, column: sk.Expr, type: pa.DataType, nanos: int, op: tree.CompareOp, zone: str
    ) -> tree.Predicate:
        rng = self.rng
        if rng.random() < 0.2:
            pattern = rng.choice(["yyyy", "yyyy-MM", "yyyyMM", "yyyy-MM-dd", "yyyyMMdd", "dd"])
            made = tree.Call("date_format", (column, sk.lit(pattern)), zone)
            day = dt.date(1970, 1, 1).toordinal() + nanos // (86_400 * 10**9) + rng.choice([0, 0, 1, -1])
            date = dt.date.fromordinal(min(max(day, 1), dt.date.max.toordinal()))
            forms = {"yyyy": f"{date.year:04d}", "MM": f"{date.month:02d}", "dd": f"{date.day:02d}"}
            text = functools.reduce(lambda t, part: t.replace(part, forms[part]), forms, pattern)
            return tree.Compare(rng.choice(["=", "=", op]), made, sk.lit(text, zone=zone))
        if pa.types.is_timestamp(type) and type.tz and rng.random() < 0.2:
            unit, each = rng.choice([("seconds", 10**9), ("millis", 10**6), ("micros", 10**3)])
            made = tree.Call(f"unix_{unit}", (column,), zone)
            return tree.Compare(op, made, sk.lit(_cap(nanos // each + rng.choice([0, 0, 1, -1]))))
        if type == pa.timestamp("us", "UTC") and rng.random() < 0.3:
            moment = sk.lit(make_array(type, [nanos // 1000])[0], zone=zone)
            made = tree.Call("-", rng.choice([(moment, column), (column, moment)]), zone)
            return tree.Compare(op, made, sk.lit(dt.timedelta(seconds=rng.choice([0, 1, -1, 3600, 10**6]))))
        days = rng.choice([0, 1, -1, 30, 400])
        parts = rng.choice([(0, days, 0), (rng.choice([1, -1, 12, 13]), 0, 0), (0, days, 3_600 * 10**9)])
        span = sk.lit(pa.scalar(pa.MonthDayNano(parts), pa.month_day_nano_interval()), zone=zone)
        sides = (column, span) if rng.random() < 0.7 else (span, column)
        made = tree.Call("-" if sides[0] is column and rng.random() < 0.5 else "+", sides, zone)
        out = type if not pa.types.is_date(type) and type.tz is None else pa.timestamp("us", "UTC")
        if pa.types.is_date(type) and not parts[2]:
            place = make_array(pa.date32(), [nanos // (86_400 * 10**9)])[0]
        else:
            place = make_array(out, [nanos * _per(out.unit) // 10**9])[0]
        return tree.Compare(op, made, sk.lit(place, zone=zone))


# -- help --------------------------------------------------------------------------------------


def _per(unit: str) -> int:
    return {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]


def _cap(value: int) -> int:
    return max(-(2**63), min(2**63 - 1, value))


def _is_text(type: pa.DataType) -> bool:
    if pa.types.is_dictionary(type):
        type = type.value_type
    return bool(pa.types.is_string(type) or pa.types.is_large_string(type) or pa.types.is_string_view(type))


def _limits(type: pa.DataType) -> tuple[int, int]:
    if pa.types.is_unsigned_integer(type):
        return 0, 2**type.bit_width - 1
    if pa.types.is_time(type):
        return 0, 86_400 * _per(type.unit) - 1
    if pa.types.is_date64(type):
        return -(2**31), 2**31 - 1
    if pa.types.is_timestamp(type) or pa.types.is_duration(type):
        top = 2**62 // {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[type.unit]
        return -top, top
    return -(2 ** (type.bit_width - 1)), 2 ** (type.bit_width - 1) - 1


def _narrow(type: pa.DataType, value: float) -> float:
    import numpy as np

    dtype = {16: np.float16, 32: np.float32, 64: np.float64}[type.bit_width]
    with np.errstate(over="ignore"):
        return float(dtype(value))


def _comparable(a: pa.DataType, b: pa.DataType) -> bool:
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, _is_text, pa.types.is_timestamp)
    return a == b or any(t(a) and t(b) for t in tests)


def by_name(*names: str) -> list[Family]:
    """The families with these names."""
    return [f for f in FAMILIES if f.name in names]
