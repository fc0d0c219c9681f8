"""IdSet: an immutable set of whole numbers from 0 to 2**64 - 1 that counts and finds members in bulk."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from skipstone.aggregate.forms import FEW_RUNS, Bits, Form, Points, Runs
from skipstone.aggregate.roaring_words import words_of
from skipstone.core.evidence import Array
from skipstone.core.filter.keys import numbers
from skipstone.core.filter.rows import plain
from skipstone.core.filter.truth import valid_rows
from skipstone.core.rows import RowSet
from skipstone.core.rows.roaring import LIMIT_32, Bitmap, is_bitmap, run_count
from skipstone.errors import UsageError

MOST: Final = 2**64 - 1
_RUN_BYTES: Final = 16
# Keys are looked up piece by piece, so that neither they nor what they are looked up in leaves the cache.
_PIECE: Final = 1 << 16
# A flag for every id between a piece's least and greatest key pays up to so many flags per key.
_NARROW: Final = 8
_FLAGS: Final = 1 << 18
# A flag for every id of the set pays for keys in no order up to so many flags per key, and in all.
_WIDE: Final = 64
_MOST_FLAGS: Final = 1 << 22
# Below this, the distance of a key from the first id lies outside the flags even where it wraps around.
_FAR: Final = 1 << 62
_ONE: Final = np.uint64(1)


@dataclass(frozen=True, slots=True, eq=False)
class IdSet:
    """An immutable set of ids, held as runs, as a sorted list or with one bit per id, whichever is smallest.

    What it is made of is read at once: a bitmap that changes later doesn't change the set.
    """

    form: Form
    size: int
    _flags: list[tuple[int, Array]] = field(default_factory=list)

    def __reduce__(self) -> tuple[Callable[..., IdSet], tuple[Any, ...]]:
        return IdSet, (self.form, self.size)

    # -- making one --------------------------------------------------------------------------

    @classmethod
    def of(cls, ids: object) -> IdSet:
        """The ids of a pyroaring bitmap, a RowSet, an integer array, or anything that yields integers."""
        if is_bitmap(ids):
            return cls._of_bitmap(ids)
        if isinstance(ids, RowSet):
            return cls._of_rows(ids)
        if isinstance(ids, range) and ids and ids.step == 1:
            ends = whole_numbers([ids[0], ids[-1]])
            return cls(Runs.of(ends[:1], ends[1:]), ids[-1] - ids[0] + 1)
        return cls._of_members(whole_numbers(ids))

    @classmethod
    def _of_bitmap(cls, bitmap: Bitmap) -> IdSet:
        size = len(bitmap)
        form = _smallest(run_count(bitmap), size, bitmap.min(), bitmap.max()) if size else Points
        if form is Bits:
            return cls(Bits.of(*words_of(bitmap)), size)
        if form is Points:
            return cls(Points.of(np.asarray(bitmap.to_array())), size)
        # Membership changes where a run begins and after it ends; beyond the greatest id there is no edge.
        edges = np.asarray((bitmap ^ bitmap.shift(1)).to_array()).astype(np.uint64)
        lasts = np.append(edges[1::2] - _ONE, np.uint64(bitmap.max()))
        return cls(Runs.of(edges[0::2], lasts[: (len(edges) + 1) // 2]), size)

    @classmethod
    def _of_rows(cls, rows: RowSet) -> IdSet:
        starts, stops = rows.runs()
        if rows.is_empty or _smallest(len(starts), len(rows), rows.first, rows.last) is not Runs:
            return cls._of_bitmap(rows.to_bitmap())
        return cls(Runs.of(starts.astype(np.uint64), stops.astype(np.uint64) - _ONE), len(rows))

    @classmethod
    def _of_members(cls, members: Array) -> IdSet:
        if np.any(members[1:] <= members[:-1]):
            members = np.sort(members)
            members = members[np.append(True, members[1:] != members[:-1])]
        if not len(members):
            return cls(Points.of(members), 0)
        after_gap = np.flatnonzero(members[1:] - members[:-1] != 1) + 1
        form = _smallest(len(after_gap) + 1, len(members), int(members[0]), int(members[-1]))
        if form is Points:
            return cls(Points.of(members), len(members))
        if form is Bits:
            return cls(_packed(members), len(members))
        firsts = members[np.append(0, after_gap)]
        return cls(Runs.of(firsts, members[np.append(after_gap, 0) - 1]), len(members))

    # -- asking ------------------------------------------------------------------------------

    def counts(self, lower: Array, upper: Array) -> Array:
        """How many members lie in each [lower, upper], by one search; bounds are uint64 and not crossed."""
        ranks = self.form.upto(np.concatenate((upper, lower - _ONE)))
        below = np.where(lower == 0, np.uint64(0), ranks[len(upper) :])
        return ranks[: len(upper)] - below

    def covers(self, lower: Array, upper: Array) -> tuple[Array, Array]:
        """Per pair of bounds, whether a whole number between them is a member, and whether all are.

        Bounds are int64 or uint64; whole numbers below 0 are members of no set.
        """
        none = np.zeros(len(lower), bool)
        if not self.size:
            return none, none
        some, all_ = upper >= 0, lower >= 0
        # Where bounds are crossed nothing is known of the values: they may be members and may not be.
        crossed = lower > upper
        low, high = np.where(some & all_, lower, 0), np.where(some, upper, 0)
        low, high = (np.where(crossed, 0, side).astype(np.uint64) for side in (low, high))
        found = self.counts(low, high)
        full = found - _ONE == high - low
        # The count of all 2**64 ids is 0 again.
        return (some & ((found != 0) | full)) | crossed, all_ & full & ~crossed

    def contains(self, keys: Array) -> Array:
        """Per key, whether it is a member; keys are integers of any width."""
        found = np.empty(len(keys), bool)
        for start in range(0, len(keys), _PIECE):
            found[start : start + _PIECE] = self._contained(keys[start : start + _PIECE], _WIDE * len(keys))
        return found

    def run(self, first: int, count: int) -> Array:
        """The same for so many whole numbers that count up from the first."""
        found = np.zeros(count, bool)
        below = min(max(-first, 0), count)
        if below < count:
            found[below:] = self.form.flags(first + below, first + count - 1)
        return found

    def _contained(self, keys: Array, most: int) -> Array | bool:
        """The same of a piece, for which up to ``most`` flags for the set's ids may be made."""
        rising = bool(keys[0] <= keys[-1] and np.all(keys[1:] >= keys[:-1]))
        if not rising and (held := self._flags_of_all(most)):
            before, flags = held
            return flags.take(_words(keys).view(np.int64) - before, mode="clip")
        low, high = (int(keys[0]), int(keys[-1])) if rising else (int(keys.min()), int(keys.max()))
        if high < 0:
            return False
        if low < 0:
            whole = keys >= 0
            whole[whole] = self._contained(keys[whole], most)
            return whole
        ends = np.array([low, high], np.uint64)
        count = int(self.counts(ends[:1], ends[1:])[0])
        if self.size and count == (high - low + 1) & MOST:
            return True
        if not count:
            return False
        if high - low >= _NARROW * len(keys):
            return self.form.probe(_words(keys), low, high)
        flags = self.form.flags(low, high)
        if rising and len(flags) == len(keys) and np.all(keys[1:] > keys[:-1]):
            return flags
        return flags.take((_words(keys) - np.uint64(low)).view(np.int64))

    def _flags_of_all(self, most: int) -> tuple[int, Array] | None:
        """The id before the set's first, and a flag for every id from there to one after the last."""
        few = isinstance(self.form, Runs) and len(self.form.firsts) <= FEW_RUNS
        if not self._flags and self.size and not few:
            low, high = self.form.ends
            if high - low < min(most, _MOST_FLAGS) and high < _FAR:
                self._flags.append((low - 1, np.pad(self.form.flags(low, high), 1)))
        return self._flags[0] if self._flags else None

    def mask(self, column: pa.ChunkedArray | pa.Array) -> Array:
        """Per row of an integer column, whether it is a member; NULL never is."""
        if not len(column):
            return np.zeros(0, bool)
        if isinstance(column, pa.ChunkedArray):
            return np.concatenate([self.mask(chunk) for chunk in column.chunks])
        if not pa.types.is_dictionary(column.type):
            column = plain(column)
        valid = valid_rows(column)
        if valid is not None:
            found = np.zeros(len(column), bool)
            found[valid] = self.mask(column.drop_null())
            return found
        if pa.types.is_dictionary(column.type) and len(column.dictionary) <= len(column):
            return self.mask(column.dictionary).take(numbers(column.indices))
        return self.contains(numbers(plain(column)))

    # -- cutting -----------------------------------------------------------------------------

    def restrict(self, low: int, high: int) -> IdSet:
        """A set that is the same between two bounds, and hardly holds more than that."""
        low, high = max(low, 0), min(high, MOST)
        if (low, high) == (0, MOST):
            return self
        form = self.form.between(low, high) if low <= high else Points.of(np.zeros(0, np.uint64))
        return IdSet(form, int(form.upto(np.array([MOST], np.uint64))[0]))

    def rows(self, start: int, total: int) -> RowSet:
        """The members in [start, start + total) as rows of a file that begins at ``start``."""
        return self.form.rows(start, total) if total else RowSet.none(0)

    def __str__(self) -> str:
        many = "s" if self.size > 1 else ""
        return f"{self.size:,} id{many} ({self.form.told})" if self.size else "no ids"


def _packed(members: Array) -> Bits:
    """Rising members as bits, made of flags for so many ids at a time as the cache holds."""
    listed, first = Points.of(members), int(members[0]) & ~63
    words = np.zeros((int(members[-1]) - first) // 64 + 1, np.uint64)
    bits, end = words.view(np.uint8), first + 64 * len(words)
    for low in range(first, end, _FLAGS):
        high = min(low + _FLAGS, end)
        flags = listed.flags(low, high - 1)
        bits[(low - first) >> 3 : (high - first) >> 3] = np.packbits(flags, bitorder="little")
    return Bits.of(first, words)


def _words(keys: Array) -> Array:
    """Keys as uint64, negative ones as the largest, without a copy where they have its width."""
    return keys.astype(np.uint64 if keys.dtype.kind == "u" else np.int64, copy=False).view(np.uint64)


def _smallest(runs: int, size: int, low: int, high: int) -> type[Form]:
    """The form that takes the least memory; a few runs are best in any case."""
    listed, bits = (4 if high < LIMIT_32 else 8) * size, (high - low) >> 3
    if runs <= FEW_RUNS or _RUN_BYTES * runs <= min(listed, bits):
        return Runs
    return Bits if bits <= listed else Points


def whole_numbers(values: object) -> Array:
    """A caller's integers as uint64, in their order; anything else is an error that says what is wanted."""
    hint = "give a pyroaring bitmap, a RowSet, an array of integers or an iterable of integers"
    if isinstance(values, pa.Array | pa.ChunkedArray):
        if values.null_count:
            raise UsageError("NULL is a member of no set", hint="drop the NULLs of the ids")
        values = values.to_numpy(zero_copy_only=False) if isinstance(values, pa.Array) else values.to_numpy()
    if isinstance(values, str | bytes) or not (isinstance(values, Iterable) or hasattr(values, "__array__")):
        raise UsageError(f"{type(values).__name__} is no set of ids", hint=hint)
    try:
        array = values if isinstance(values, np.ndarray) else _array(values)
    except (ValueError, OverflowError) as error:
        raise UsageError("ids are whole numbers from 0 to 2**64 - 1", hint=hint) from error
    if array.ndim == 1 and not array.size:
        return np.zeros(0, np.uint64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        what = f"{array.dtype} values" if array.ndim == 1 else f"an array of shape {array.shape}"
        raise UsageError(f"{what} are no ids: they are whole numbers, one after the other", hint=hint)
    _check_least(array.min())
    return array.astype(np.uint64)


def _array(values: Any) -> Array:
    if hasattr(values, "__array__"):
        return np.asarray(values)
    items = list(values)
    array = np.asarray(items)
    if items and array.dtype.kind in "fO" and all(isinstance(item, int | np.integer) for item in items):
        # NumPy makes floats of integers on both sides of 2**63.
        _check_least(min(items))
        return np.array(items, np.uint64)
    return array


def _check_least(least: int) -> None:
    if least < 0:
        raise UsageError(f"{least} is in a set of ids", hint="ids are ≥ 0: leave out negative numbers")
