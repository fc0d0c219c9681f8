"""Marker and Range: the ends of an interval, and an interval, in the words of the Hudi RFC."""

from __future__ import annotations

import enum
import functools
import math
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from skipstone.core.domain.keys import Key, Kind, from_key, key_space, key_text, to_key
from skipstone.core.domain.spans import ByteSpans, NumberSpans, after_bytes
from skipstone.errors import TypeMismatchError

_REPR_FLOAT = 12


class Bound(enum.IntEnum):
    """Where a marker stands relative to its value."""

    BELOW = -1
    EXACTLY = 0
    ABOVE = 1


@functools.total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class Marker:
    """A point on a type's line: just below, at, or just above a value.

    Without a value, ``ABOVE`` is the line's lower end and ``BELOW`` its upper end.
    """

    type: pa.DataType
    key: Key | None
    bound: Bound

    @classmethod
    def of(cls, type: pa.DataType, value: object, bound: Bound) -> Marker:
        """A marker at ``value``, a Python or Arrow value of ``type``."""
        return cls(type, to_key(type, value), bound)

    @classmethod
    def below(cls, type: pa.DataType, value: object) -> Marker:
        """Just below ``value``."""
        return cls.of(type, value, Bound.BELOW)

    @classmethod
    def exactly(cls, type: pa.DataType, value: object) -> Marker:
        """At ``value``."""
        return cls.of(type, value, Bound.EXACTLY)

    @classmethod
    def above(cls, type: pa.DataType, value: object) -> Marker:
        """Just above ``value``."""
        return cls.of(type, value, Bound.ABOVE)

    @classmethod
    def lower_end(cls, type: pa.DataType) -> Marker:
        """Below every value."""
        return cls(type, None, Bound.ABOVE)

    @classmethod
    def upper_end(cls, type: pa.DataType) -> Marker:
        """Above every value."""
        return cls(type, None, Bound.BELOW)

    @property
    def value(self) -> Any:
        """The value as a Python object, or None at an end of the line."""
        return None if self.key is None else from_key(self.type, self.key).as_py()

    def _order(self) -> tuple[Any, ...]:
        if self.key is None:
            return (-int(self.bound),)
        return (0, self.key, int(self.bound))

    def __lt__(self, other: Marker) -> bool:
        return self._order() < other._order()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Marker) and self.type == other.type and self._order() == other._order()

    def __hash__(self) -> int:
        return hash((str(self.type), self._order()))

    def __str__(self) -> str:
        if self.key is None:
            return "-∞" if self.bound is Bound.ABOVE else "+∞"
        mark = {Bound.BELOW: "just below ", Bound.EXACTLY: "", Bound.ABOVE: "just above "}[self.bound]
        return mark + key_text(self.type, self.key)


@dataclass(frozen=True, slots=True)
class Range:
    """The values between two markers.

    >>> import pyarrow as pa
    >>> print(Range.greater_than(pa.int32(), 34))
    (34, +∞)
    """

    low: Marker
    high: Marker

    def __post_init__(self) -> None:
        if self.low.type != self.high.type:
            raise TypeMismatchError(f"a range can't run from {self.low.type} to {self.high.type}")
        if self.low.bound is Bound.BELOW or (self.high.bound is Bound.ABOVE):
            raise TypeMismatchError(
                "a range starts EXACTLY at or ABOVE its low value and ends EXACTLY at or BELOW its high value"
            )

    @classmethod
    def all(cls, type: pa.DataType) -> Range:
        """The whole line."""
        return cls(Marker.lower_end(type), Marker.upper_end(type))

    @classmethod
    def equal(cls, type: pa.DataType, value: object) -> Range:
        """``= value``."""
        return cls(Marker.exactly(type, value), Marker.exactly(type, value))

    @classmethod
    def greater_than(cls, type: pa.DataType, value: object) -> Range:
        """``> value``."""
        return cls(Marker.above(type, value), Marker.upper_end(type))

    @classmethod
    def at_least(cls, type: pa.DataType, value: object) -> Range:
        """``>= value``."""
        return cls(Marker.exactly(type, value), Marker.upper_end(type))

    @classmethod
    def less_than(cls, type: pa.DataType, value: object) -> Range:
        """``< value``."""
        return cls(Marker.lower_end(type), Marker.below(type, value))

    @classmethod
    def at_most(cls, type: pa.DataType, value: object) -> Range:
        """``<= value``."""
        return cls(Marker.lower_end(type), Marker.exactly(type, value))

    @classmethod
    def between(cls, type: pa.DataType, low: object, high: object) -> Range:
        """``BETWEEN low AND high``, both ends included."""
        return cls(Marker.exactly(type, low), Marker.exactly(type, high))

    @property
    def type(self) -> pa.DataType:
        """Type of the values."""
        return self.low.type

    @property
    def is_empty(self) -> bool:
        """Whether no value lies between the markers."""
        return self.spans().is_empty

    @property
    def is_single(self) -> bool:
        """Whether exactly one value lies between the markers."""
        points = self.spans().points()
        return points is not None and len(points) == 1

    def overlaps(self, other: Range) -> bool:
        """Whether some value lies in both."""
        return not self.spans().intersect(other.spans()).is_empty  # type: ignore[arg-type]

    def contains(self, value: object) -> bool:
        """Whether ``value``, or every value of a range, lies in this one."""
        if isinstance(value, Range):
            return value.spans().intersect(self.spans()) == value.spans()  # type: ignore[arg-type]
        return self.spans().contains(to_key(self.type, value))

    def spans(self) -> NumberSpans | ByteSpans:
        """The range as a set of keys."""
        space = key_space(self.type)
        low, high = self.low.key, self.high.key
        if space.kind is Kind.BYTES:
            assert not isinstance(low, (int, float))
            assert not isinstance(high, (int, float))
            start: bytes | None = low or b""
            if low is not None and self.low.bound is Bound.ABOVE:
                start = after_bytes(space, low)
            stop = high
            if high is not None and self.high.bound is Bound.EXACTLY:
                stop = after_bytes(space, high)
            return ByteSpans.of(space, [] if start is None else [(start, stop)])
        assert not isinstance(low, bytes)
        assert not isinstance(high, bytes)
        floor, ceiling = space.limits
        first = floor if low is None else _step(low, space.kind, up=True, by=self.low.bound)
        last = ceiling if high is None else _step(high, space.kind, up=False, by=self.high.bound)
        if first is None or last is None:
            return NumberSpans.of(space, [])
        return NumberSpans.of(space, [(first, last)])

    def __str__(self) -> str:
        if self.low.key is not None and self.low == self.high:
            return f"[{self.low}]"
        low = key_text(self.type, self.low.key) if self.low.key is not None else "-∞"
        high = key_text(self.type, self.high.key) if self.high.key is not None else "+∞"
        opening = "[" if self.low.bound is Bound.EXACTLY else "("
        closing = "]" if self.high.bound is Bound.EXACTLY else ")"
        return f"{opening}{low}, {high}{closing}"


def _step(key: float, kind: Kind, *, up: bool, by: Bound) -> float | None:
    """The first key inside an end: ``key`` itself, or its neighbour when the end is open."""
    if by is Bound.EXACTLY:
        return key
    if kind is Kind.INT:
        return key + (1 if up else -1)
    edge = math.inf if up else -math.inf
    return None if key == edge else math.nextafter(key, edge)


def ranges_of(type: pa.DataType, spans: NumberSpans | ByteSpans) -> tuple[Range, ...]:
    """The spans of a set as ranges, with open ends where those read better."""
    return tuple(_range_of(type, spans, low, high) for low, high in spans.pairs())


def _range_of(type: pa.DataType, spans: NumberSpans | ByteSpans, low: Key, high: Key | None) -> Range:
    if low == high and not isinstance(low, bytes) and low not in spans.space.limits:
        point = Marker(type, low, Bound.EXACTLY)
        return Range(point, point)
    return Range(_low(type, spans, low), _high(type, spans, high))


def _low(type: pa.DataType, spans: NumberSpans | ByteSpans, low: Key) -> Marker:
    if isinstance(low, bytes):
        if not low:
            return Marker.lower_end(type)
        if low.endswith(b"\0") and not spans.space.width:
            return Marker(type, low[:-1], Bound.ABOVE)
        return Marker(type, low, Bound.EXACTLY)
    if low == spans.space.limits[0]:
        return Marker.lower_end(type)
    shorter = _shorter_neighbour(low, up=False)
    return Marker(type, low, Bound.EXACTLY) if shorter is None else Marker(type, shorter, Bound.ABOVE)


def _high(type: pa.DataType, spans: NumberSpans | ByteSpans, high: Key | None) -> Marker:
    if high is None:
        return Marker.upper_end(type)
    if isinstance(high, bytes):
        if spans.space.width:
            return Marker(type, high, Bound.BELOW)
        if high.endswith(b"\0"):
            return Marker(type, high[:-1], Bound.EXACTLY)
        return Marker(type, high, Bound.BELOW)
    if high == spans.space.limits[1]:
        return Marker.upper_end(type)
    shorter = _shorter_neighbour(high, up=True)
    return Marker(type, high, Bound.EXACTLY) if shorter is None else Marker(type, shorter, Bound.BELOW)


def _shorter_neighbour(key: float, *, up: bool) -> float | None:
    """The neighbouring float if it is the rounder number: 5.0 rather than 5.000000000000001."""
    if isinstance(key, int) or len(repr(key)) < _REPR_FLOAT:
        return None
    neighbour = math.nextafter(key, math.inf if up else -math.inf)
    return neighbour if len(repr(neighbour)) < len(repr(key)) else None
