"""How the members of a set of ids are held: as runs, as a sorted list, or with one bit per id."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from skipstone.aggregate.roaring_words import filled
from skipstone.core.evidence import Array
from skipstone.core.rows import RowSet
from skipstone.core.rows.roaring import LIMIT_32

FEW_RUNS: Final = 4
_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_FILTER_BITS: Final = (12, 25)
# While it isn't too large, a filter lets about one in 64 keys pass that are no members.
_SPARE_BITS: Final = 6
_ONES: Final = np.uint64(2**64 - 1)


class Form(ABC):
    """Members that can be counted and looked up; keys and points are uint64."""

    @property
    @abstractmethod
    def told(self) -> str:
        """How members are found, in words."""

    @property
    @abstractmethod
    def ends(self) -> tuple[int, int]:
        """Bounds of the members, of which there is one."""

    @abstractmethod
    def upto(self, points: Array) -> Array:
        """For each point the number of members that are not greater."""

    @abstractmethod
    def flags(self, low: int, high: int) -> Array:
        """For each whole number of [low, high] whether it is a member."""

    @abstractmethod
    def probe(self, keys: Array, low: int, high: int) -> Array:
        """For each key whether it is a member; none is outside [low, high]."""

    @abstractmethod
    def between(self, low: int, high: int) -> Form:
        """The same set for those who ask for nothing outside [low, high]."""

    @abstractmethod
    def rows(self, start: int, total: int) -> RowSet:
        """The members in [start, start + total), as rows of a file that begins there."""


@dataclass(frozen=True, slots=True, eq=False)
class Runs(Form):
    """Rising runs with a gap between any two; ``before`` counts the members below each."""

    firsts: Array
    lasts: Array
    before: Array

    @classmethod
    def of(cls, firsts: Array, lasts: Array) -> Runs:
        """Runs by their first and last ids."""
        before = np.zeros(len(firsts), np.uint64)
        np.cumsum(lasts[:-1] - firsts[:-1] + np.uint64(1), out=before[1:])
        return cls(np.ascontiguousarray(firsts), np.ascontiguousarray(lasts), before)

    @property
    def told(self) -> str:
        return "one run" if len(self.firsts) == 1 else f"{len(self.firsts):,} runs"

    @property
    def ends(self) -> tuple[int, int]:
        return int(self.firsts[0]), int(self.lasts[-1])

    def upto(self, points: Array) -> Array:
        at = np.searchsorted(self.firsts, points, side="right") - 1
        if not len(self.firsts):
            return np.zeros(len(points), np.uint64)
        firsts = self.firsts[at]
        reached = self.before[at] + (np.minimum(points, self.lasts[at]) - firsts + np.uint64(1))
        return np.where(at >= 0, reached, np.uint64(0))

    def _clipped(self, low: int, high: int) -> tuple[Array, Array]:
        begin = np.searchsorted(self.lasts, np.uint64(low), side="left")
        end = np.searchsorted(self.firsts, np.uint64(high), side="right")
        firsts = np.maximum(self.firsts[begin:end], np.uint64(low))
        return firsts, np.minimum(self.lasts[begin:end], np.uint64(high))

    def flags(self, low: int, high: int) -> Array:
        starts, lasts = ((side - np.uint64(low)).view(np.int64) for side in self._clipped(low, high))
        return filled(starts, lasts + 1, high - low + 1)

    def probe(self, keys: Array, low: int, high: int) -> Array:  # noqa: ARG002
        if len(self.firsts) <= FEW_RUNS:
            found = np.zeros(len(keys), bool)
            for first, last in zip(self.firsts, self.lasts, strict=True):
                found |= keys - first <= last - first
            return found
        at = np.searchsorted(self.firsts, keys, side="right") - 1
        return (at >= 0) & (keys <= self.lasts[at])

    def between(self, low: int, high: int) -> Form:
        return Runs.of(*self._clipped(low, high))

    def rows(self, start: int, total: int) -> RowSet:
        starts, lasts = (
            (side - np.uint64(start)).view(np.int64) for side in self._clipped(start, start + total - 1)
        )
        return RowSet.from_ranges(total, (starts, lasts + 1))


@dataclass(frozen=True, slots=True, eq=False)
class Points(Form):
    """Rising members, in 32 bits where they fit."""

    values: Array
    _filters: list[tuple[int, Array]] = field(default_factory=list)

    @classmethod
    def of(cls, members: Array) -> Points:
        """Rising members of any width."""
        narrow = not len(members) or members[-1] < LIMIT_32
        return cls(members.astype(np.uint32 if narrow else np.uint64, copy=False))

    def __reduce__(self) -> tuple[Callable[..., Points], tuple[Any, ...]]:
        return Points, (self.values,)

    @property
    def told(self) -> str:
        return "sparse: searched"

    @property
    def ends(self) -> tuple[int, int]:
        return int(self.values[0]), int(self.values[-1])

    def _search(self, points: Array, side: Any) -> Array:
        # In the members' own width, or NumPy would widen all of them.
        limit = np.uint64(np.iinfo(self.values.dtype).max)
        found: Array = np.searchsorted(self.values, np.minimum(points, limit).astype(self.values.dtype), side)
        if side == "left":
            found[points > limit] = len(self.values)
        return found

    def upto(self, points: Array) -> Array:
        return self._search(points, "right").astype(np.uint64)

    def _clipped(self, low: int, high: int) -> Array:
        ends = np.array([low, high], np.uint64)
        begin, end = self._search(ends[:1], "left")[0], self._search(ends[1:], "right")[0]
        return self.values[begin:end]

    def flags(self, low: int, high: int) -> Array:
        found = np.zeros(high - low + 1, bool)
        found[(self._clipped(low, high).astype(np.uint64) - np.uint64(low)).view(np.int64)] = True
        return found

    def probe(self, keys: Array, low: int, high: int) -> Array:  # noqa: ARG002
        shift, bits = self._filter()
        found = _bits_at(bits, _hashed(keys, shift))
        # Few keys pass the filter without being a member; each is looked for.
        passed = np.flatnonzero(found)
        wanted = keys[passed]
        at = np.minimum(self._search(wanted, "left"), len(self.values) - 1)
        found[passed] = self.values[at] == wanted
        return found

    def _filter(self) -> tuple[int, Array]:
        if not self._filters:
            least, most = _FILTER_BITS
            width = min(max(len(self.values).bit_length() + _SPARE_BITS, least), most)
            set_bits = np.zeros(1 << width, bool)
            set_bits[_hashed(self.values.astype(np.uint64), 64 - width)] = True
            self._filters.append((64 - width, np.packbits(set_bits, bitorder="little")))
        return self._filters[0]

    def between(self, low: int, high: int) -> Form:
        return Points(self._clipped(low, high))

    def rows(self, start: int, total: int) -> RowSet:
        members = self._clipped(start, start + total - 1).astype(np.uint64)
        return RowSet.from_positions(total, (members - np.uint64(start)).view(np.int64))


def _hashed(keys: Array, shift: int) -> Array:
    """Places in a table of 2 ** (64 - shift), far apart even for ids in even steps."""
    places = keys * _GOLDEN
    places >>= np.uint64(shift)
    return np.asarray(places.view(np.int64))


def _bits_at(bits: Array, places: Array) -> Array:
    """The bits at some places in bytes whose lowest bit comes first."""
    found: Array = bits[places >> 3] >> (places & 7).astype(np.uint8)
    found &= 1
    return found.view(bool)


@dataclass(frozen=True, slots=True, eq=False)
class Bits(Form):
    """One bit per id from ``first`` on, in words of 64; ``before`` counts the members below each word."""

    first: int
    words: Array
    before: Array

    @classmethod
    def of(cls, first: int, words: Array) -> Bits:
        """Bits of at least one word; ``first`` is a multiple of 64."""
        before = np.zeros(len(words), np.uint64)
        np.cumsum(np.bitwise_count(words[:-1]), out=before[1:])
        return cls(first, words, before)

    def __reduce__(self) -> tuple[Callable[..., Bits], tuple[Any, ...]]:
        return Bits.of, (self.first, self.words)

    @property
    def told(self) -> str:
        return "dense: one bit per id"

    @property
    def ends(self) -> tuple[int, int]:
        return self.first, self._last

    @property
    def _last(self) -> int:
        return self.first + 64 * len(self.words) - 1

    def upto(self, points: Array) -> Array:
        at = np.clip(points, np.uint64(self.first), np.uint64(self._last)) - np.uint64(self.first)
        word = (at >> np.uint64(6)).view(np.int64)
        kept = self.words[word] & (_ONES >> (np.uint64(63) - (at & np.uint64(63))))
        reached = self.before[word] + np.bitwise_count(kept)
        return np.where(points >= np.uint64(self.first), reached, np.uint64(0))

    def flags(self, low: int, high: int) -> Array:
        begin, end = max(low, self.first), min(high, self._last)
        if begin > end:
            return np.zeros(high - low + 1, bool)
        from_byte, to_byte = (begin - self.first) >> 3, ((end - self.first) >> 3) + 1
        bits = np.unpackbits(self.words.view(np.uint8)[from_byte:to_byte], bitorder="little").view(bool)
        skipped = (begin - self.first) & 7
        inside = bits[skipped : skipped + end - begin + 1]
        if (begin, end) == (low, high):
            return inside
        found = np.zeros(high - low + 1, bool)
        found[begin - low : end - low + 1] = inside
        return found

    def probe(self, keys: Array, low: int, high: int) -> Array:
        places = (keys - np.uint64(self.first)).view(np.int64)
        if self.first <= low and high <= self._last:
            return _bits_at(self.words.view(np.uint8), places)
        inside = (keys >= np.uint64(self.first)) & (keys <= np.uint64(self._last))
        return _bits_at(self.words.view(np.uint8), places * inside) & inside

    def between(self, low: int, high: int) -> Form:
        begin, end = (max(low, self.first) - self.first) >> 6, ((min(high, self._last) - self.first) >> 6) + 1
        if begin >= end:
            return Points.of(np.zeros(0, np.uint64))
        return Bits.of(self.first + 64 * begin, self.words[begin:end])

    def rows(self, start: int, total: int) -> RowSet:
        return RowSet.from_mask(self.flags(start, start + total - 1))
