"""Sorted, disjoint spans of keys, with the set algebra that domains are built on.

Numbers are held as closed intervals in two NumPy arrays, bytes as half-open intervals in two lists (the
key after ``k`` is ``k`` plus a zero byte; only the last span may be without an upper end). Both forms are
canonical: equal sets have equal spans.
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np

from skipstone.core.domain.keys import Key, KeySpace, Kind

Array = np.ndarray[Any, Any]


class Spans(Protocol):
    """A set of keys of one key space."""

    @property
    def space(self) -> KeySpace: ...
    @property
    def is_empty(self) -> bool: ...
    @property
    def is_all(self) -> bool: ...
    def __len__(self) -> int: ...
    def union(self, other: Self) -> Self: ...
    def intersect(self, other: Self) -> Self: ...
    def complement(self) -> Self: ...
    def contains(self, key: Key) -> bool: ...
    def points(self) -> Array | list[bytes] | None:
        """The keys, when the set is a finite list of single keys; else None."""

    def pairs(self) -> Iterator[tuple[Key, Key | None]]:
        """(low, high) of each span: high is inclusive for numbers, exclusive (or None) for bytes."""


@dataclass(frozen=True, slots=True, eq=False)
class NumberSpans:
    """Closed spans of integer or float keys."""

    space: KeySpace
    lows: Array
    highs: Array

    @classmethod
    def of(cls, space: KeySpace, spans: Iterable[tuple[float, float]]) -> NumberSpans:
        """The union of closed spans, cut to the key space; empty ones are left out."""
        floor, ceiling = space.limits
        lows, highs = [], []
        for lo, hi in spans:
            low, high = max(lo, floor), min(hi, ceiling)
            if low <= high:
                lows.append(low)
                highs.append(high)
        return cls(space, *_normal(space, np.array(lows, space.dtype), np.array(highs, space.dtype)))

    @classmethod
    def one(cls, space: KeySpace, low: int, high: int) -> NumberSpans:
        """One closed span of integers, cut to the key space."""
        floor, ceiling = space.low, space.high
        low, high = max(floor, low), min(ceiling, high)
        ends = ([low], [high]) if low <= high else ([], [])
        return cls(space, np.array(ends[0], space.dtype), np.array(ends[1], space.dtype))

    @classmethod
    def of_points(cls, space: KeySpace, keys: Array) -> NumberSpans:
        """The set of just these keys."""
        floor, ceiling = space.limits
        keys = np.unique(keys[(keys >= floor) & (keys <= ceiling)].astype(space.dtype))
        return cls(space, *_normal(space, keys, keys))

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
        # Adding zero folds -0.0 into 0.0, which compare equal.
        return hash((self.space, (self.lows + 0).tobytes(), (self.highs + 0).tobytes()))

    def union(self, other: NumberSpans) -> NumberSpans:
        lows = np.concatenate((self.lows, other.lows))
        highs = np.concatenate((self.highs, other.highs))
        return NumberSpans(self.space, *_normal(self.space, lows, highs))

    def intersect(self, other: NumberSpans) -> NumberSpans:
        if self.is_empty or other.is_all:
            return self
        if other.is_empty or self.is_all:
            return other
        # Of each span here, the spans there that it meets are neighbours: from the first that doesn't end
        # before it to the last that doesn't begin after it.
        first = np.searchsorted(other.highs, self.lows, side="left")
        counts = np.maximum(np.searchsorted(other.lows, self.highs, side="right") - first, 0)
        mine = np.repeat(np.arange(len(self)), counts)
        theirs = np.arange(len(mine)) + np.repeat(first - (np.cumsum(counts) - counts), counts)
        lows = np.maximum(self.lows[mine], other.lows[theirs])
        return NumberSpans(self.space, lows, np.minimum(self.highs[mine], other.highs[theirs]))

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
        # In the keys' own type: NumPy would compare a large integer with uint64 as doubles.
        floor, ceiling = self.space.limits
        if not floor <= key <= ceiling:  # type: ignore[operator]
            return False
        at = int(np.searchsorted(self.lows, np.array(key, self.space.dtype), side="right")) - 1
        return at >= 0 and bool(key <= self.highs[at])

    def points(self) -> Array | None:
        if np.array_equal(self.lows, self.highs):
            return self.lows
        if self.space.kind is not Kind.INT:
            return None
        # Neighbouring integers merge into spans; a short span is still a list of keys.
        widths = self.highs.astype(np.float64) - self.lows.astype(np.float64)
        if widths.sum() > _MAX_EXPANDED:
            return None
        spans = zip(self.lows, self.highs, strict=True)
        return np.concatenate(
            [np.arange(int(hi) - int(lo) + 1).astype(self.lows.dtype) + lo for lo, hi in spans]
        )

    def pairs(self) -> Iterator[tuple[Key, Key | None]]:
        yield from zip(self.lows.tolist(), self.highs.tolist(), strict=True)


_MAX_EXPANDED = 4096


def _after(keys: Array) -> Array:
    if keys.dtype.kind != "f":
        return np.asarray(keys + keys.dtype.type(1))
    with np.errstate(over="ignore"):
        return np.asarray(np.nextafter(keys, np.inf))


def _before(keys: Array) -> Array:
    # The key before the least one does not exist; complement() drops that entry, so let it wrap.
    if keys.dtype.kind != "f":
        return np.asarray(keys - keys.dtype.type(1))
    with np.errstate(over="ignore"):
        return np.asarray(np.nextafter(keys, -np.inf))


def _normal(space: KeySpace, lows: Array, highs: Array) -> tuple[Array, Array]:
    """Spans sorted by their start, overlapping and touching ones joined."""
    if len(lows) <= 1:
        return lows, highs
    order = np.argsort(lows, kind="stable")
    lows, reach = lows[order], np.maximum.accumulate(highs[order])
    ceiling = space.limits[1]
    # A reach at the ceiling has no key after it, and nothing can start beyond it.
    starts = np.flatnonzero((reach[:-1] != ceiling) & (lows[1:] > _after(reach[:-1]))) + 1
    return lows[np.concatenate(([0], starts))], reach[np.concatenate((starts - 1, [len(lows) - 1]))]


@dataclass(frozen=True, slots=True, eq=False)
class ByteSpans:
    """Half-open spans of byte keys; a last ``None`` in ``highs`` means without end."""

    space: KeySpace
    lows: Sequence[bytes]
    highs: Sequence[bytes | None]

    @classmethod
    def of(cls, space: KeySpace, spans: Iterable[tuple[bytes, bytes | None]]) -> ByteSpans:
        """The union of half-open spans; empty ones are left out."""
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
        """The set of just these keys."""
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


def after_bytes(space: KeySpace, key: bytes) -> bytes | None:
    """The least byte key above ``key``, or None if there is none."""
    if not space.width:
        return key + b"\0"
    number = int.from_bytes(key, "big") + 1
    return None if number >> (8 * space.width) else number.to_bytes(space.width, "big")


def prefix_end(prefix: bytes) -> bytes | None:
    """The least byte string above every string that starts with ``prefix``; None if there is none."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None


@functools.cache
def all_keys(space: KeySpace) -> NumberSpans | ByteSpans:
    """Every key of the space."""
    return no_keys(space).complement()


@functools.cache
def no_keys(space: KeySpace) -> NumberSpans | ByteSpans:
    """The empty set of keys."""
    if space.kind is Kind.BYTES:
        return ByteSpans(space, [], [])
    empty = np.array([], dtype=space.dtype)
    return NumberSpans(space, empty, empty)
