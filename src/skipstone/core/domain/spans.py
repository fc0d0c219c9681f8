"""Sorted, disjoint spans of keys, with set algebra.

Number spans are closed intervals in two NumPy arrays. Byte spans are half-open intervals in two lists; the
key after ``k`` is ``k`` plus a zero byte, and only the last span can be unbounded. Both forms are canonical:
equal sets have equal spans.

The public API uses :class:`Marker` (the end of an interval) and :class:`Range` (an interval), as in the
Hudi RFC.
"""

from __future__ import annotations

import bisect
import enum
import functools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from skipstone.core.domain.keys import Key, KeySpace, Kind, format_key, from_key, key_space, to_key
from skipstone.core.plain import type_name
from skipstone.errors import TypeMismatchError

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, eq=False)
class NumberSpans:
    """Closed spans of integer or float keys."""

    space: KeySpace
    lows: Array
    highs: Array

    @classmethod
    def of(cls, space: KeySpace, spans: Iterable[tuple[float, float]]) -> NumberSpans:
        """Union of closed spans, clipped to the key space."""
        floor, ceiling = space.limits
        lows, highs = [], []
        for lo, hi in spans:
            low, high = max(lo, floor), min(hi, ceiling)
            if low <= high:
                lows.append(low)
                highs.append(high)
        return cls(space, *_normalize(space, np.array(lows, space.dtype), np.array(highs, space.dtype)))

    @classmethod
    def single(cls, space: KeySpace, low: int, high: int) -> NumberSpans:
        """One closed span of integers, clipped to the key space."""
        floor, ceiling = space.low, space.high
        low, high = max(floor, low), min(ceiling, high)
        ends = ([low], [high]) if low <= high else ([], [])
        return cls(space, np.array(ends[0], space.dtype), np.array(ends[1], space.dtype))

    @classmethod
    def of_points(cls, space: KeySpace, keys: Array) -> NumberSpans:
        """Set of individual keys."""
        floor, ceiling = space.limits
        keys = np.sort(keys[(keys >= floor) & (keys <= ceiling)].astype(space.dtype))
        return cls(space, *_merged(space, keys, keys))

    @property
    def is_empty(self) -> bool:
        return len(self.lows) == 0

    @property
    def is_all(self) -> bool:
        if len(self.lows) != 1:
            return False
        floor, ceiling = self.space.limits
        return bool(self.lows[0] == floor and self.highs[0] == ceiling)

    def __len__(self) -> int:
        return len(self.lows)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, NumberSpans)
            and self.space == other.space
            and np.array_equal(self.lows, other.lows)
            and np.array_equal(self.highs, other.highs)
        )

    def __hash__(self) -> int:
        # Adding zero normalizes -0.0 to 0.0, which compare equal.
        return hash((self.space, (self.lows + 0).tobytes(), (self.highs + 0).tobytes()))

    def union(self, other: NumberSpans) -> NumberSpans:
        lows = np.concatenate((self.lows, other.lows))
        highs = np.concatenate((self.highs, other.highs))
        return NumberSpans(self.space, *_normalize(self.space, lows, highs))

    def intersect(self, other: NumberSpans) -> NumberSpans:
        if self.is_empty or other.is_all:
            return self
        if other.is_empty or self.is_all:
            return other
        # The spans of other that overlap a span are consecutive: from the first that doesn't end before it to
        # the last that doesn't begin after it.
        first = np.searchsorted(other.highs, self.lows, side="left")
        counts = np.maximum(np.searchsorted(other.lows, self.highs, side="right") - first, 0)
        left = np.repeat(np.arange(len(self)), counts)
        right = np.arange(len(left)) + np.repeat(first - (np.cumsum(counts) - counts), counts)
        lows = np.maximum(self.lows[left], other.lows[right])
        return NumberSpans(self.space, lows, np.minimum(self.highs[left], other.highs[right]))

    def complement(self) -> NumberSpans:
        floor, ceiling = self.space.limits
        if self.is_empty:
            return NumberSpans.of(self.space, [(floor, ceiling)])
        dtype = self.space.dtype
        lows = np.concatenate((np.array([floor], dtype), _after(self.highs[:-1])))
        highs = _before(self.lows)
        if self.lows[0] == floor:
            lows, highs = lows[1:], highs[1:]
        if self.highs[-1] != ceiling:
            lows = np.concatenate((lows, _after(self.highs[-1:])))
            highs = np.concatenate((highs, np.array([ceiling], dtype)))
        return NumberSpans(self.space, lows, highs)

    def contains(self, key: Key) -> bool:
        # Converted to the key dtype, since NumPy would compare a large integer with uint64 as doubles.
        floor, ceiling = self.space.limits
        if not floor <= key <= ceiling:  # type: ignore[operator]
            return False
        at = int(np.searchsorted(self.lows, np.array(key, self.space.dtype), side="right")) - 1
        return at >= 0 and bool(key <= self.highs[at])

    def points(self) -> Array | None:
        """The keys if the set is a finite list of keys, otherwise None."""
        if np.array_equal(self.lows, self.highs):
            return self.lows
        if self.space.kind is not Kind.INT:
            return None
        # Adjacent integers are merged into spans; a short span is expanded again.
        widths = self.highs.astype(np.float64) - self.lows.astype(np.float64)
        if widths.sum() > _MAX_EXPANDED:
            return None
        spans = zip(self.lows, self.highs, strict=True)
        return np.concatenate(
            [np.arange(int(hi) - int(lo) + 1).astype(self.lows.dtype) + lo for lo, hi in spans]
        )

    def pairs(self) -> Iterator[tuple[Key, Key | None]]:
        """(low, high) of each span; high is inclusive for numbers, exclusive (or None) for bytes."""
        yield from zip(self.lows.tolist(), self.highs.tolist(), strict=True)


_MAX_EXPANDED = 4096


def _after(keys: Array) -> Array:
    if keys.dtype.kind != "f":
        return np.asarray(keys + keys.dtype.type(1))
    with np.errstate(over="ignore"):
        return np.asarray(np.nextafter(keys, np.inf))


def _before(keys: Array) -> Array:
    # There is no key before the smallest one; complement() drops that entry, so it can wrap.
    if keys.dtype.kind != "f":
        return np.asarray(keys - keys.dtype.type(1))
    with np.errstate(over="ignore"):
        return np.asarray(np.nextafter(keys, -np.inf))


def _normalize(space: KeySpace, lows: Array, highs: Array) -> tuple[Array, Array]:
    """Sort spans, and merge overlapping and adjacent ones."""
    if len(lows) <= 1:
        return lows, highs
    order = np.argsort(lows, kind="stable")
    return _merged(space, lows[order], np.maximum.accumulate(highs[order]))


def _merged(space: KeySpace, lows: Array, highs: Array) -> tuple[Array, Array]:
    """Merge sorted spans that overlap or are adjacent."""
    if len(lows) <= 1:
        return lows, highs
    # There is no key after the ceiling, and nothing can start beyond it.
    starts = np.flatnonzero((highs[:-1] != space.limits[1]) & (lows[1:] > _after(highs[:-1]))) + 1
    if len(starts) == len(lows) - 1:
        return lows, highs
    return lows[np.concatenate(([0], starts))], highs[np.concatenate((starts - 1, [len(lows) - 1]))]


@dataclass(frozen=True, slots=True, eq=False)
class ByteSpans:
    """Half-open spans of byte keys; a final ``None`` in ``highs`` means unbounded."""

    space: KeySpace
    lows: Sequence[bytes]
    highs: Sequence[bytes | None]

    @classmethod
    def of(cls, space: KeySpace, spans: Iterable[tuple[bytes, bytes | None]]) -> ByteSpans:
        """Union of half-open spans."""
        lows: list[bytes] = []
        highs: list[bytes | None] = []
        for low, high in sorted((s for s in spans if s[1] is None or s[0] < s[1]), key=lambda s: s[0]):
            last = highs[-1] if highs else b""
            if highs and (last is None or low <= last):
                highs[-1] = None if last is None or high is None else max(last, high)
            else:
                lows.append(low)
                highs.append(high)
        return cls(space, lows, highs)

    @classmethod
    def of_points(cls, space: KeySpace, keys: Iterable[bytes]) -> ByteSpans:
        """Set of individual keys."""
        lows = sorted(set(keys))
        return cls.of(space, ((low, after_bytes(space, low)) for low in lows))

    @property
    def is_empty(self) -> bool:
        return not self.lows

    @property
    def is_all(self) -> bool:
        return len(self.lows) == 1 and self.lows[0] == b"" and self.highs[0] is None

    def __len__(self) -> int:
        return len(self.lows)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ByteSpans)
            and self.space == other.space
            and list(self.lows) == list(other.lows)
            and list(self.highs) == list(other.highs)
        )

    def __hash__(self) -> int:
        return hash((self.space, tuple(self.lows), tuple(self.highs)))

    def union(self, other: ByteSpans) -> ByteSpans:
        return ByteSpans.of(self.space, (*self.pairs(), *other.pairs()))

    def intersect(self, other: ByteSpans) -> ByteSpans:
        if self.is_all:
            return other
        if other.is_all:
            return self
        if type(other) is not ByteSpans:
            return other.intersect(self)  # a large set has its own way
        return self.complement().union(other.complement()).complement()

    def complement(self) -> ByteSpans:
        if self.is_empty:
            return ByteSpans(self.space, [b""], [None])
        ends = [high for high in self.highs if high is not None]
        lows = [b"", *ends]
        highs: list[bytes | None] = [*self.lows, None] if len(ends) == len(self.highs) else [*self.lows]
        if self.lows[0] == b"":
            lows, highs = lows[1:], highs[1:]
        return ByteSpans(self.space, lows, highs)

    def contains(self, key: Key) -> bool:
        assert isinstance(key, bytes)
        at = bisect.bisect_right(self.lows, key) - 1
        if at < 0:
            return False
        high = self.highs[at]
        return high is None or key < high

    def points(self) -> list[bytes] | None:
        for low, high in self.pairs():
            if high is None or high != after_bytes(self.space, low):
                return None
        return list(self.lows)

    def pairs(self) -> Iterator[tuple[bytes, bytes | None]]:
        yield from zip(self.lows, self.highs, strict=True)


def united(space: KeySpace, sets: Sequence[NumberSpans | ByteSpans]) -> NumberSpans | ByteSpans:
    """Union of any number of sets, sorted and merged once."""
    if len(sets) == 1:
        return sets[0]
    if space.kind is Kind.BYTES:
        return ByteSpans.of(space, [pair for one in sets for pair in one.pairs()])  # type: ignore[misc]
    lows, highs = (
        np.concatenate([np.array([], space.dtype), *(getattr(one, ends) for one in sets)])
        for ends in ("lows", "highs")
    )
    return NumberSpans(space, *_normalize(space, lows, highs))


def after_bytes(space: KeySpace, key: bytes) -> bytes | None:
    """Smallest byte key above ``key``, or None if there is none."""
    if not space.width:
        return key + b"\0"
    number = int.from_bytes(key, "big") + 1
    return None if number >> (8 * space.width) else number.to_bytes(space.width, "big")


def prefix_end(prefix: bytes) -> bytes | None:
    """Smallest byte string above all strings that start with ``prefix``, or None if there is none."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None


@functools.cache
def all_keys(space: KeySpace) -> NumberSpans | ByteSpans:
    """All keys of the space."""
    return no_keys(space).complement()


@functools.cache
def no_keys(space: KeySpace) -> NumberSpans | ByteSpans:
    """The empty set of keys."""
    if space.kind is Kind.BYTES:
        return ByteSpans(space, [], [])
    empty = np.array([], dtype=space.dtype)
    return NumberSpans(space, empty, empty)


_REPR_FLOAT = 12


class Bound(enum.IntEnum):
    """The position of a marker relative to its value.

    Examples:
        >>> import skipstone as sk
        >>> [bound.name for bound in sk.Bound]
        ['BELOW', 'EXACTLY', 'ABOVE']
    """

    BELOW = -1
    EXACTLY = 0
    ABOVE = 1


@functools.total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class Marker:
    """The end of a range: just below, exactly at, or just above a value.

    Without a value, ``ABOVE`` is the lower end of the type and ``BELOW`` the upper end.

    Examples:
        >>> import pyarrow as pa
        >>> import skipstone as sk
        >>> sk.Marker.exactly(pa.int64(), 3) < sk.Marker.above(pa.int64(), 3)
        True
    """

    type: pa.DataType
    key: Key | None
    bound: Bound

    @classmethod
    def of(cls, type: pa.DataType, value: object, bound: Bound) -> Marker:
        """Make a marker at a Python or Arrow value of ``type``."""
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
        """The value as a Python object, or None at an infinite end."""
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
        return mark + format_key(self.type, self.key)


@dataclass(frozen=True, slots=True)
class Range:
    """The values between two markers.

    Examples:
        >>> import pyarrow as pa
        >>> import skipstone as sk
        >>> print(sk.Range.greater_than(pa.int32(), 34))
        (34, +∞)
    """

    low: Marker
    high: Marker

    def __post_init__(self) -> None:
        if self.low.type != self.high.type:
            raise TypeMismatchError(
                f"range ends have different types: {type_name(self.low.type)} and {type_name(self.high.type)}"
            )
        if self.low.bound is Bound.BELOW or (self.high.bound is Bound.ABOVE):
            raise TypeMismatchError(
                "range must start EXACTLY at or ABOVE its low value and end EXACTLY at or BELOW its high one"
            )

    @classmethod
    def all(cls, type: pa.DataType) -> Range:
        """All values."""
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
        """Whether the range contains no value."""
        return self.spans().is_empty

    @property
    def is_single(self) -> bool:
        """Whether the range contains exactly one value."""
        points = self.spans().points()
        return points is not None and len(points) == 1

    def overlaps(self, other: Range) -> bool:
        """Whether the ranges have a common value."""
        return not self.spans().intersect(other.spans()).is_empty  # type: ignore[arg-type]

    def contains(self, value: object) -> bool:
        """Whether this range contains ``value``, or all values of another range."""
        if isinstance(value, Range):
            return value.spans().intersect(self.spans()) == value.spans()  # type: ignore[arg-type]
        return self.spans().contains(to_key(self.type, value))

    def spans(self) -> NumberSpans | ByteSpans:
        """Convert to a set of keys."""
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
        low = format_key(self.type, self.low.key) if self.low.key is not None else "-∞"
        high = format_key(self.type, self.high.key) if self.high.key is not None else "+∞"
        opening = "[" if self.low.bound is Bound.EXACTLY else "("
        closing = "]" if self.high.bound is Bound.EXACTLY else ")"
        return f"{opening}{low}, {high}{closing}"


def _step(key: float, kind: Kind, *, up: bool, by: Bound) -> float | None:
    """First key inside an end: ``key``, or its neighbour if the end is open."""
    if by is Bound.EXACTLY:
        return key
    if kind is Kind.INT:
        return key + (1 if up else -1)
    edge = math.inf if up else -math.inf
    return None if key == edge else math.nextafter(key, edge)


def ranges_of(type: pa.DataType, spans: NumberSpans | ByteSpans) -> tuple[Range, ...]:
    """Convert spans to ranges, with open ends where they are easier to read."""
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
    """The neighbouring float if it has a shorter repr: 5.0 rather than 5.000000000000001."""
    if isinstance(key, int) or len(repr(key)) < _REPR_FLOAT:
        return None
    neighbour = math.nextafter(key, math.inf if up else -math.inf)
    return neighbour if len(repr(neighbour)) < len(repr(key)) else None
