"""Keys of a column as places on a line, so that one can reckon with the values between two bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from skipstone.domain.keys import Kind, is_ordered, key_space
from skipstone.evidence import Array, Bounds, ColumnFacts
from skipstone.prune.clustering import bounded

# Places are doubles: digits beyond these would be lost.
_EXACT = 2.0**52
# Ends of intervals of reals are moved apart by this share of the line, so that a lone value lies inside.
_HAIR = 1e-9
# A line of doubles so long would overflow.
_LONGEST = 1e300
_KNOTS = 2_048


@dataclass(frozen=True, slots=True, eq=False)
class _Digits:
    """Byte strings as numbers: what follows their common start, in the digits that occur."""

    start: bytes
    first: int
    base: int
    length: int
    width: int
    """Bytes of every key, 0 where they differ."""

    @classmethod
    def of(cls, keys: list[bytes], width: int) -> _Digits:
        least, most = min(keys), max(keys)
        shared = next((n for n, (a, b) in enumerate(zip(least, most, strict=False)) if a != b), len(least))
        tails = b"".join(key[shared:] for key in keys)
        first, last = (min(tails), max(tails)) if tails else (0, 0)
        base = max(last - first + 1, 2)
        return cls(least[:shared], first, base, int(math.log(_EXACT, base)), width)

    def place(self, key: bytes) -> float:
        tail = key[len(self.start) : len(self.start) + self.length]
        number = 0
        for digit in tail.ljust(self.length, bytes([self.first])):
            number = number * self.base + min(max(digit - self.first, 0), self.base - 1)
        return float(number)

    def key(self, place: float, *, upper: bool) -> bytes:
        number, digits = int(max(place, 0)), bytearray()
        for _ in range(self.length):
            number, digit = divmod(number, self.base)
            digits.append(min(digit + self.first, 255))
        tail = bytes(reversed(digits))
        if self.width:
            return (self.start + tail)[: self.width].ljust(self.width, b"\xff" if upper else b"\0")
        # Strings end where they please: a lower bound is as short, an upper one as high as its place allows.
        return self.start + (tail + b"\xff" if upper else tail.rstrip(bytes([self.first])))


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """One column's units as half-open intervals ``[low, high)`` between 0 and ``span``."""

    type: pa.DataType
    low: Array
    high: Array
    span: float
    whole: bool
    """Whether places are whole numbers, each of them a value."""
    origin: Any
    """The key at place 0, or the digits of byte strings."""

    @classmethod
    def of(cls, facts: ColumnFacts) -> Axis | None:
        """The line of a column; None if most units have no bounds, or the type has no order."""
        known = bounded(facts) & facts.may_value
        some = int(facts.may_value.sum())
        if not is_ordered(facts.type) or not some or 2 * int(known.sum()) < some:
            return None
        used = facts.take(np.flatnonzero(known))
        whole = key_space(facts.type).kind is not Kind.FLOAT
        low, high, origin = _places(used)
        if whole:
            high = np.maximum(high + 1, np.nextafter(high, np.inf))
        span = float(high.max())
        if not span < _LONGEST:
            return None
        span = span or 1.0
        # A unit without bounds may have its values anywhere.
        lows, highs = np.zeros(len(facts)), np.full(len(facts), span)
        lows[known], highs[known] = low, np.maximum(high, low + (0 if whole else span * _HAIR))
        return cls(facts.type, lows, highs, span, whole, origin)

    def bounds(self, low: Array, high: Array) -> tuple[Bounds, Bounds]:
        """Keys that enclose the values of the intervals ``[low, high)``."""
        if self.whole:
            low = np.floor(low)
            high = np.maximum(np.ceil(high) - 1, low)
        else:
            low, high = low - 2 * self.span * _HAIR, high + 2 * self.span * _HAIR
        if isinstance(self.origin, _Digits):
            return self._texts(low, upper=False), self._texts(high, upper=True)
        return self._numbers(low), self._numbers(high)

    def _texts(self, places: Array, *, upper: bool) -> pa.Array:
        # Many units share few bounds, and each takes a loop over its digits.
        distinct, which = np.unique(places, return_inverse=True)
        keys = [self.origin.key(place, upper=upper) for place in distinct.tolist()]
        return pa.array(keys, pa.large_binary()).take(pa.array(which))

    def _numbers(self, places: Array) -> Array:
        if not self.whole:
            return np.asarray(places + self.origin)
        # Unsigned arithmetic wraps to the true sum, whatever the signs.
        steps = np.clip(places, 0, 2.0**64 - 2048).astype(np.uint64)
        keys: Array = (steps + self.origin.astype(np.uint64)).astype(self.origin.dtype)
        return keys

    @property
    def width(self) -> Array:
        """Values that a unit's bounds leave room for; without end where values are no whole numbers."""
        return self.high - self.low if self.whole else np.full(len(self.low), np.inf)


def _places(facts: ColumnFacts) -> tuple[Array, Array, Any]:
    if isinstance(facts.lower, pa.Array):
        lower, upper = facts.lower.to_pylist(), facts.upper.to_pylist()
        digits = _Digits.of([*lower, *upper], key_space(facts.type).width)
        low, high = (np.array([digits.place(key) for key in keys]) for keys in (lower, upper))
        return low, np.maximum(low, high), digits
    origin = facts.lower.min()
    if facts.lower.dtype.kind == "f":
        with np.errstate(over="ignore"):
            return facts.lower - origin, facts.upper - origin, origin
    base = origin.astype(np.uint64)
    low, high = ((keys.astype(np.uint64) - base).astype(np.float64) for keys in (facts.lower, facts.upper))
    return low, high, origin


@dataclass(frozen=True, slots=True, eq=False)
class Mixture:
    """Rows spread evenly over intervals: how many lie below a place, and below which place how many lie."""

    knots: Array
    below: Array

    @classmethod
    def of(cls, low: Array, high: Array, rows: Array) -> Mixture:
        """The mixture of the intervals, each with its rows."""
        knots = np.unique(np.concatenate((low, high)))
        if len(knots) > _KNOTS:
            knots = knots[np.unique(np.linspace(0, len(knots) - 1, _KNOTS).round().astype(np.int64))]
        return cls(knots, shares(low, high, knots).T @ rows)

    @property
    def total(self) -> float:
        """All rows."""
        return float(self.below[-1]) if len(self.below) else 0.0

    def mass(self, low: Array, high: Array) -> Array:
        """Rows inside the intervals."""
        inside: Array = np.interp(high, self.knots, self.below) - np.interp(low, self.knots, self.below)
        return inside

    def cuts(self, parts: int) -> Array:
        """Places that cut the rows into so many equal parts, the ends included."""
        places: Array = np.interp(np.linspace(0, self.total, parts + 1), self.below, self.knots)
        places[0], places[-1] = self.knots[0], self.knots[-1]
        return places


def shares(low: Array, high: Array, places: Array) -> Array:
    """``[interval, place]``: the share of each interval that lies below each place."""
    width = np.maximum(high - low, np.finfo(np.float64).tiny)[:, np.newaxis]
    with np.errstate(over="ignore"):
        found: Array = np.clip((places[np.newaxis, :] - low[:, np.newaxis]) / width, 0.0, 1.0)
    return found
