"""IntSet: an immutable set of integers from 0 to 2**64 - 1 with bulk counts and look-ups.

The rows of a file are a RowSet, which is optimized for set algebra. Ids can be anywhere in 64 bits, and the
common operation is to look up a million keys. So ids are stored as runs, as a sorted array or as one bit per
number, whichever is smallest: unlike a roaring bitmap, each of these looks up an array of keys in one call.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa

from skipstone.core.rows import roaring
from skipstone.core.rows import runs as run
from skipstone.core.rows.roaring import LIMIT_32, Bitmap
from skipstone.core.rows.rowset import RowSet
from skipstone.core.rows.runs import Array
from skipstone.errors import UsageError

MAX_ID: Final = 2**64 - 1
_FEW_RUNS: Final = 4
_RUN_BYTES: Final = 16
# Keys are looked up in pieces that fit into the CPU cache together with the tables.
_PIECE: Final = 1 << 16
# Flags for all numbers between the smallest and the largest key of a piece pay off up to this many per key.
_NARROW: Final = 8
_FLAGS: Final = 1 << 18
# Flags for all numbers of the set pay off for unsorted keys up to this many per key, and in total.
_WIDE: Final = 64
_MAX_FLAGS: Final = 1 << 22
# Distances below this stay outside the flags even if they wrap around.
_FAR: Final = 1 << 62
_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_FILTER_BITS: Final = (12, 25)
# Unless it reaches its maximum size, a filter has a false positive rate of about 1 in 64.
_FILTER_EXTRA_BITS: Final = 6
_ONE: Final = np.uint64(1)
_ONES: Final = np.uint64(MAX_ID)


@dataclass(frozen=True, eq=False)
class IntSet(ABC):
    """An immutable set of integers, made by :meth:`of`.

    The input is copied: later changes to a bitmap don't change the set.
    """

    @staticmethod
    def of(numbers: object) -> IntSet:
        """Make a set from a pyroaring bitmap, a RowSet, an integer array or an iterable of integers."""
        if roaring.is_bitmap(numbers):
            return _of_bitmap(numbers)
        if isinstance(numbers, RowSet):
            return _of_rows(numbers)
        if isinstance(numbers, range) and numbers and numbers.step == 1:
            ends = to_ids([numbers[0], numbers[-1]])
            return RunSet(ends[:1], ends[1:])
        return _of_members(to_ids(numbers))

    def __reduce__(self) -> tuple[Callable[..., IntSet], tuple[Any, ...]]:
        # Without cached properties, which are recomputed on demand.
        return type(self), tuple(getattr(self, field.name) for field in fields(self))

    # -- implemented by subclasses; points and keys are uint64 ---------------------------------

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of members."""

    @property
    @abstractmethod
    def description(self) -> str:
        """Representation of the set, for explain."""

    @property
    @abstractmethod
    def _ends(self) -> tuple[int, int]:
        """Bounds of the members of a non-empty set."""

    @abstractmethod
    def _rank(self, points: Array) -> Array:
        """Number of members that are not greater than each point."""

    @abstractmethod
    def _flags(self, low: int, high: int) -> Array:
        """Membership of each number in [low, high]."""

    @abstractmethod
    def _probe(self, keys: Array, low: int, high: int) -> Array:
        """Membership of each key; all keys are in [low, high]."""

    @abstractmethod
    def _between(self, low: int, high: int) -> IntSet:
        """A smaller set with the same members in [low, high]."""

    @abstractmethod
    def _rows(self, start: int, total: int) -> RowSet:
        """Members in [start, start + total) as rows of a file that begins at ``start``."""

    # -- queries -----------------------------------------------------------------------------

    def counts(self, lower: Array, upper: Array) -> Array:
        """Number of members in each [lower, upper]; bounds are uint64 and ordered."""
        ranks = self._rank(np.concatenate((upper, lower - _ONE)))
        below = np.where(lower == 0, np.uint64(0), ranks[len(upper) :])
        return ranks[: len(upper)] - below

    def covers(self, lower: Array, upper: Array) -> tuple[Array, Array]:
        """Per pair of bounds, whether some number between them is a member, and whether all are.

        Bounds are int64 or uint64; negative numbers are never members.
        """
        none = np.zeros(len(lower), bool)
        if not self.size:
            return none, none
        some, all_ = upper >= 0, lower >= 0
        # With crossed bounds the values are unknown: they may be members or not.
        crossed = lower > upper
        low, high = np.where(some & all_, lower, 0), np.where(some, upper, 0)
        low, high = (np.where(crossed, 0, side).astype(np.uint64) for side in (low, high))
        count = self.counts(low, high)
        full = count - _ONE == high - low
        # The count of all 2**64 numbers wraps to 0.
        return (some & ((count != 0) | full)) | crossed, all_ & full & ~crossed

    def contains(self, keys: Array) -> Array:
        """Membership of each key; keys are integers of any width."""
        result = np.empty(len(keys), bool)
        for start in range(0, len(keys), _PIECE):
            result[start : start + _PIECE] = self._contains(keys[start : start + _PIECE], _WIDE * len(keys))
        return result

    def contains_run(self, first: int, count: int) -> Array:
        """Membership of ``count`` consecutive numbers from ``first``."""
        result = np.zeros(count, bool)
        below = min(max(-first, 0), count)
        if below < count:
            result[below:] = self._flags(first + below, first + count - 1)
        return result

    def _contains(self, keys: Array, max_flags: int) -> Array | bool:
        """Membership of a piece of keys; up to ``max_flags`` flags may be allocated for the entire set."""
        ascending = bool(keys[0] <= keys[-1] and np.all(keys[1:] >= keys[:-1]))
        if not ascending and ("_all_flags" in self.__dict__ or self._span < min(max_flags, _MAX_FLAGS)):
            before, flags = self._all_flags
            return flags.take(_words(keys).view(np.int64) - before, mode="clip")
        low, high = (int(keys[0]), int(keys[-1])) if ascending else (int(keys.min()), int(keys.max()))
        if high < 0:
            return False
        if low < 0:
            valid = keys >= 0
            valid[valid] = self._contains(keys[valid], max_flags)
            return valid
        ends = np.array([low, high], np.uint64)
        count = int(self.counts(ends[:1], ends[1:])[0])
        if self.size and count == (high - low + 1) & MAX_ID:
            return True
        if not count:
            return False
        if high - low >= _NARROW * len(keys):
            return self._probe(_words(keys), low, high)
        flags = self._flags(low, high)
        if ascending and len(flags) == len(keys) and np.all(keys[1:] > keys[:-1]):
            return flags
        return flags.take((_words(keys) - np.uint64(low)).view(np.int64))

    @cached_property
    def _span(self) -> int:
        """Distance of the last member from the first, or _FAR if flags never pay off."""
        if not self.size or (isinstance(self, RunSet) and len(self.firsts) <= _FEW_RUNS):
            return _FAR
        low, high = self._ends
        return high - low if high < _FAR else _FAR

    @cached_property
    def _all_flags(self) -> tuple[int, Array]:
        """The number before the first member, and flags from there to one after the last member."""
        low, high = self._ends
        return low - 1, np.pad(self._flags(low, high), 1)

    # -- slicing -----------------------------------------------------------------------------

    def restrict(self, low: int, high: int) -> IntSet:
        """A smaller set with the same members in [low, high]; it may have a few others."""
        low, high = max(low, 0), min(high, MAX_ID)
        if (low, high) == (0, MAX_ID):
            return self
        return self._between(low, high) if low <= high else _empty()

    def rows(self, start: int, total: int) -> RowSet:
        """Members in [start, start + total) as rows of a file that begins at ``start``."""
        return self._rows(start, total) if total else RowSet.none(0)

    def __str__(self) -> str:
        plural = "s" if self.size > 1 else ""
        return f"{self.size:,} id{plural} ({self.description})" if self.size else "no ids"


# -- representations ---------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class RunSet(IntSet):
    """Ascending, non-adjacent runs, by their first and last members."""

    firsts: Array
    lasts: Array

    @cached_property
    def _before(self) -> Array:
        """Number of members below each run."""
        before = np.zeros(len(self.firsts), np.uint64)
        np.cumsum(self.lasts[:-1] - self.firsts[:-1] + _ONE, out=before[1:])
        return before

    @property
    def size(self) -> int:
        if not len(self.firsts):
            return 0
        return int(self._before[-1]) + int(self.lasts[-1]) - int(self.firsts[-1]) + 1

    @property
    def description(self) -> str:
        return "one run" if len(self.firsts) == 1 else f"{len(self.firsts):,} runs"

    @property
    def _ends(self) -> tuple[int, int]:
        return int(self.firsts[0]), int(self.lasts[-1])

    def _rank(self, points: Array) -> Array:
        if not len(self.firsts):
            return np.zeros(len(points), np.uint64)
        at = np.searchsorted(self.firsts, points, side="right") - 1
        reached = self._before[at] + (np.minimum(points, self.lasts[at]) - self.firsts[at] + _ONE)
        return np.where(at >= 0, reached, np.uint64(0))

    def _between(self, low: int, high: int) -> RunSet:
        begin = np.searchsorted(self.lasts, np.uint64(low), side="left")
        end = np.searchsorted(self.firsts, np.uint64(high), side="right")
        firsts = np.maximum(self.firsts[begin:end], np.uint64(low))
        return RunSet(firsts, np.minimum(self.lasts[begin:end], np.uint64(high)))

    def _relative(self, start: int, stop: int) -> run.Runs:
        """Half-open runs in [start, stop), relative to ``start``."""
        inside = self._between(start, stop - 1)
        firsts, lasts = ((side - np.uint64(start)).view(np.int64) for side in (inside.firsts, inside.lasts))
        return firsts, lasts + 1

    def _flags(self, low: int, high: int) -> Array:
        return run.to_mask(self._relative(low, high + 1), high - low + 1)

    def _probe(self, keys: Array, low: int, high: int) -> Array:  # noqa: ARG002
        if len(self.firsts) <= _FEW_RUNS:
            result = np.zeros(len(keys), bool)
            for first, last in zip(self.firsts, self.lasts, strict=True):
                result |= keys - first <= last - first
            return result
        at = np.searchsorted(self.firsts, keys, side="right") - 1
        return (at >= 0) & (keys <= self.lasts[at])

    def _rows(self, start: int, total: int) -> RowSet:
        return RowSet.from_ranges(total, self._relative(start, start + total))


@dataclass(frozen=True, eq=False)
class SortedArray(IntSet):
    """Ascending members, in 32 bits if they fit."""

    values: Array

    @classmethod
    def narrow(cls, members: Array) -> SortedArray:
        """Make a set from ascending members of any width."""
        fits = not len(members) or members[-1] < LIMIT_32
        return cls(members.astype(np.uint32 if fits else np.uint64, copy=False))

    @property
    def size(self) -> int:
        return len(self.values)

    @property
    def description(self) -> str:
        return "sparse: binary search"

    @property
    def _ends(self) -> tuple[int, int]:
        return int(self.values[0]), int(self.values[-1])

    def _search(self, points: Array, side: Any) -> Array:
        # In the width of the members, since NumPy would widen all of them.
        limit = np.uint64(np.iinfo(self.values.dtype).max)
        at: Array = np.searchsorted(self.values, np.minimum(points, limit).astype(self.values.dtype), side)
        if side == "left":
            at[points > limit] = len(self.values)
        return at

    def _rank(self, points: Array) -> Array:
        return self._search(points, "right").astype(np.uint64)

    def _between(self, low: int, high: int) -> SortedArray:
        ends = np.array([low, high], np.uint64)
        begin, end = self._search(ends[:1], "left")[0], self._search(ends[1:], "right")[0]
        return SortedArray(self.values[begin:end])

    def _relative(self, low: int, high: int) -> Array:
        return (self._between(low, high).values.astype(np.uint64) - np.uint64(low)).view(np.int64)

    def _flags(self, low: int, high: int) -> Array:
        flags = np.zeros(high - low + 1, bool)
        flags[self._relative(low, high)] = True
        return flags

    def _probe(self, keys: Array, low: int, high: int) -> Array:  # noqa: ARG002
        shift, bits = self._filter
        result = _bits_at(bits, _hashes(keys, shift))
        # Few non-members pass the filter; the rest is searched.
        passed = np.flatnonzero(result)
        candidates = keys[passed]
        at = np.minimum(self._search(candidates, "left"), len(self.values) - 1)
        result[passed] = self.values[at] == candidates
        return result

    @cached_property
    def _filter(self) -> tuple[int, Array]:
        """A one-hash bloom filter of the members, and the shift of the hashes."""
        min_bits, max_bits = _FILTER_BITS
        width = min(max(len(self.values).bit_length() + _FILTER_EXTRA_BITS, min_bits), max_bits)
        bits = np.zeros(1 << width, bool)
        bits[_hashes(self.values.astype(np.uint64), 64 - width)] = True
        return 64 - width, np.packbits(bits, bitorder="little")

    def _rows(self, start: int, total: int) -> RowSet:
        return RowSet.from_positions(total, self._relative(start, start + total - 1))


@dataclass(frozen=True, eq=False)
class BitSet(IntSet):
    """One bit per number from ``first``, a multiple of 64, in 64-bit words."""

    first: int
    words: Array

    @cached_property
    def _before(self) -> Array:
        """Number of members below each word."""
        before = np.zeros(len(self.words), np.uint64)
        np.cumsum(np.bitwise_count(self.words[:-1]), out=before[1:])
        return before

    @property
    def size(self) -> int:
        return int(self._before[-1]) + int(np.bitwise_count(self.words[-1]))

    @property
    def description(self) -> str:
        return "dense: one bit per id"

    @property
    def _ends(self) -> tuple[int, int]:
        return self.first, self._last

    @property
    def _last(self) -> int:
        return self.first + 64 * len(self.words) - 1

    def _rank(self, points: Array) -> Array:
        at = np.clip(points, np.uint64(self.first), np.uint64(self._last)) - np.uint64(self.first)
        word = (at >> np.uint64(6)).view(np.int64)
        below = self.words[word] & (_ONES >> (np.uint64(63) - (at & np.uint64(63))))
        reached = self._before[word] + np.bitwise_count(below)
        return np.where(points >= np.uint64(self.first), reached, np.uint64(0))

    def _flags(self, low: int, high: int) -> Array:
        begin, end = max(low, self.first), min(high, self._last)
        if begin > end:
            return np.zeros(high - low + 1, bool)
        from_byte, to_byte = (begin - self.first) >> 3, ((end - self.first) >> 3) + 1
        bits = np.unpackbits(self.words.view(np.uint8)[from_byte:to_byte], bitorder="little").view(bool)
        skipped = (begin - self.first) & 7
        inside = bits[skipped : skipped + end - begin + 1]
        if (begin, end) == (low, high):
            return inside
        flags = np.zeros(high - low + 1, bool)
        flags[begin - low : end - low + 1] = inside
        return flags

    def _probe(self, keys: Array, low: int, high: int) -> Array:
        positions = (keys - np.uint64(self.first)).view(np.int64)
        if self.first <= low and high <= self._last:
            return _bits_at(self.words.view(np.uint8), positions)
        inside = (keys >= np.uint64(self.first)) & (keys <= np.uint64(self._last))
        return _bits_at(self.words.view(np.uint8), positions * inside) & inside

    def _between(self, low: int, high: int) -> IntSet:
        begin, end = (max(low, self.first) - self.first) >> 6, ((min(high, self._last) - self.first) >> 6) + 1
        return BitSet(self.first + 64 * begin, self.words[begin:end]) if begin < end else _empty()

    def _rows(self, start: int, total: int) -> RowSet:
        return RowSet.from_mask(self._flags(start, start + total - 1))


def _hashes(keys: Array, shift: int) -> Array:
    """Hashes below 2 ** (64 - shift), well distributed even for evenly spaced numbers."""
    hashes = keys * _GOLDEN
    hashes >>= np.uint64(shift)
    return np.asarray(hashes.view(np.int64))


def _bits_at(bits: Array, positions: Array) -> Array:
    """Bits at positions in bytes, lowest bit first."""
    result: Array = bits[positions >> 3] >> (positions & 7).astype(np.uint8)
    result &= 1
    return result.view(bool)


def _words(keys: Array) -> Array:
    """Keys as uint64, zero-copy if possible; negative keys become the largest."""
    return keys.astype(np.uint64 if keys.dtype.kind == "u" else np.int64, copy=False).view(np.uint64)


# -- construction ------------------------------------------------------------------------------


def _empty() -> IntSet:
    return SortedArray(np.zeros(0, np.uint32))


def _smallest(runs: int, size: int, low: int, high: int) -> type[IntSet]:
    """Representation with the least memory; a few runs are always best."""
    array_bytes, bit_bytes = (4 if high < LIMIT_32 else 8) * size, (high - low) >> 3
    if runs <= _FEW_RUNS or _RUN_BYTES * runs <= min(array_bytes, bit_bytes):
        return RunSet
    return BitSet if bit_bytes <= array_bytes else SortedArray


def _of_bitmap(bitmap: Bitmap) -> IntSet:
    if not bitmap:
        return _empty()
    form = _smallest(roaring.run_count(bitmap), len(bitmap), bitmap.min(), bitmap.max())
    if form is BitSet:
        return BitSet(*roaring.to_words(bitmap))
    if form is SortedArray:
        return SortedArray.narrow(np.asarray(bitmap.to_array()))
    return RunSet(*map(np.ascontiguousarray, roaring.run_ends(bitmap)))


def _of_rows(rows: RowSet) -> IntSet:
    starts, stops = rows.runs()
    if rows.is_empty or _smallest(len(starts), len(rows), rows.first, rows.last) is not RunSet:
        return _of_bitmap(rows.to_bitmap())
    return RunSet(starts.astype(np.uint64), stops.astype(np.uint64) - _ONE)


def _of_members(members: Array) -> IntSet:
    if np.any(members[1:] <= members[:-1]):
        members = np.sort(members)
        members = members[np.append(True, members[1:] != members[:-1])]
    if not len(members):
        return _empty()
    after_gap = np.flatnonzero(members[1:] - members[:-1] != 1) + 1
    form = _smallest(len(after_gap) + 1, len(members), int(members[0]), int(members[-1]))
    if form is SortedArray:
        return SortedArray.narrow(members)
    if form is BitSet:
        return _pack_bits(members)
    return RunSet(members[np.append(0, after_gap)], members[np.append(after_gap, 0) - 1])


def _pack_bits(members: Array) -> BitSet:
    """Pack ascending members into bits, in pieces that fit into the CPU cache."""
    members_array, first = SortedArray.narrow(members), int(members[0]) & ~63
    words = np.zeros((int(members[-1]) - first) // 64 + 1, np.uint64)
    bits, end = words.view(np.uint8), first + 64 * len(words)
    for low in range(first, end, _FLAGS):
        high = min(low + _FLAGS, end)
        flags = members_array._flags(low, high - 1)
        bits[(low - first) >> 3 : (high - first) >> 3] = np.packbits(flags, bitorder="little")
    return BitSet(first, words)


def to_ids(values: object) -> Array:
    """Convert a user's integers to uint64; raise for anything else."""
    hint = "use a pyroaring bitmap, a RowSet, an array of integers or an iterable of integers"
    if isinstance(values, pa.Array | pa.ChunkedArray):
        if values.null_count:
            raise UsageError("ids contain NULL", hint="drop the NULLs")
        values = values.to_numpy(zero_copy_only=False) if isinstance(values, pa.Array) else values.to_numpy()
    if isinstance(values, str | bytes) or not (isinstance(values, Iterable) or hasattr(values, "__array__")):
        raise UsageError(f"{type(values).__name__} is not a set of ids", hint=hint)
    try:
        array = values if isinstance(values, np.ndarray) else _array(values)
    except (ValueError, OverflowError) as error:
        raise UsageError("ids must be integers from 0 to 2**64 - 1", hint=hint) from error
    if array.ndim == 1 and not array.size:
        return np.zeros(0, np.uint64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        what = f"{array.dtype} values" if array.ndim == 1 else f"an array of shape {array.shape}"
        raise UsageError(f"ids must be a flat array of integers, got {what}", hint=hint)
    _check_not_negative(array.min())
    return array.astype(np.uint64)


def _array(values: Any) -> Array:
    if hasattr(values, "__array__"):
        return np.asarray(values)
    items = list(values)
    array = np.asarray(items)
    if items and array.dtype.kind in "fO" and all(isinstance(item, int | np.integer) for item in items):
        # NumPy converts integers on both sides of 2**63 to floats.
        _check_not_negative(min(items))
        return np.array(items, np.uint64)
    return array


def _check_not_negative(smallest: int) -> None:
    if smallest < 0:
        raise UsageError(f"ids must not be negative, got {smallest}", hint="remove negative ids")
