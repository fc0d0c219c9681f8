"""Large sets of byte strings as sorted Arrow arrays.

A join can ask for millions of keys, for which :class:`ByteSpans` would hold as many Python objects.
:class:`BytePoints` is the same set; its lists are made only where one of its general methods needs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.domain.keys import KeySpace, Kind, array_keys, key_space
from skipstone.core.domain.spans import ByteSpans, NumberSpans

Array = np.ndarray[Any, Any]

MANY = 1_024
"""More byte strings than this are kept as an array."""
_FEW_SPANS = 64
# Strings are told apart by these many bytes after the prefix that all have in common.
_WORD, _HEAD = 8, 32
_BINARY = pa.large_binary()


def points_of(type: pa.DataType, values: pa.Array) -> NumberSpans | ByteSpans:
    """The set of the values of an array of ``type``, which is without NULL and NaN."""
    space = key_space(type)
    if space.kind is not Kind.BYTES:
        keys = array_keys(type, values)
        assert isinstance(keys, np.ndarray)
        return NumberSpans.of_points(space, keys)
    if space.width or len(values) <= MANY:
        return ByteSpans.of_points(space, array_keys(type, values))
    return _compact(BytePoints(space, as_binary(values)))


def _compact(points: BytePoints) -> ByteSpans:
    """Few keys as a list, which most methods are written for."""
    few = len(points) <= MANY
    return ByteSpans.of_points(points.space, points.array.to_pylist()) if few else points


def as_binary(values: pa.Array) -> pa.Array:
    """Strings or bytes in the layout with 64-bit offsets."""
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if pa.types.is_string_view(values.type):
        values = values.cast(pa.large_string())
    elif pa.types.is_fixed_size_binary(values.type):
        values = values.cast(pa.binary())
    return values.cast(_BINARY)


class BytePoints(ByteSpans):
    """A set of byte strings in a sorted Arrow array."""

    # Not slotted: what the array implies is computed on first use.

    def __init__(self, space: KeySpace, values: pa.Array, *, ordered: bool = False) -> None:
        object.__setattr__(self, "space", space)
        object.__setattr__(self, "array", values if ordered else _sorted(values))

    array: pa.Array

    def __reduce__(self) -> tuple[Any, ...]:
        return (_restored, (self.space, self.array))

    @cached_property
    def _spans(self) -> ByteSpans:
        """The same set as spans, of which adjacent ones are merged."""
        return ByteSpans.of_points(self.space, self.array.to_pylist())

    @property
    def lows(self) -> Sequence[bytes]:
        return self._spans.lows

    @property
    def highs(self) -> Sequence[bytes | None]:
        return self._spans.highs

    @property
    def is_empty(self) -> bool:
        return len(self.array) == 0

    @property
    def is_all(self) -> bool:
        return False

    def __len__(self) -> int:
        return len(self.array)

    def points(self) -> list[bytes]:
        keys: list[bytes] = self.array.to_pylist()
        return keys

    def contains(self, key: object) -> bool:
        return bool(self.mask(pa.array([key], _BINARY))[0])

    def intersect(self, other: ByteSpans) -> ByteSpans:
        if isinstance(other, BytePoints):
            return self._where(other.mask(self.array))
        if len(other) > _FEW_SPANS:
            return self._spans.intersect(other)
        inside = np.zeros(len(self), dtype=bool)
        for low, high in other.pairs():
            hits = np.asarray(pc.greater_equal(self.array, pa.scalar(low, _BINARY)))
            if high is not None:
                hits = hits & np.asarray(pc.less(self.array, pa.scalar(high, _BINARY)))
            inside |= hits
        return self._where(inside)

    def _where(self, mask: Array) -> ByteSpans:
        return _compact(BytePoints(self.space, self.array.filter(pa.array(mask)), ordered=True))

    # -- search ------------------------------------------------------------------------------

    @cached_property
    def _prefix(self) -> bytes:
        """The prefix that all keys have in common."""
        return _common_prefix(self.array[0].as_py(), self.array[-1].as_py())

    @cached_property
    def _heads(self) -> Array:
        skip = len(self._prefix)
        first = _heads(self.array, skip, _WORD)
        longest = pc.max(pc.binary_length(self.array)).as_py() - skip
        if longest <= _WORD or np.count_nonzero(first[1:] != first[:-1]) * 2 >= len(first):
            return first  # most keys differ in these
        return _heads(self.array, skip, min(longest, _HEAD))

    def _heads_of(self, values: pa.Array) -> Array:
        return _heads(values, len(self._prefix), self._heads.dtype.itemsize)

    def ranks(self, values: pa.Array, *, above: bool = False) -> Array:
        """For each value, the number of keys below it (``above``: not above it), by the heads of both.

        Only the heads are compared: a key between two values is never outside their ranks, but a key that is
        not between them can be inside.
        """
        prefix = self._prefix
        ranks = np.searchsorted(self._heads, self._heads_of(values), side="right" if above else "left")
        if prefix:
            within = _bools(pc.starts_with(values, prefix))
            below = _bools(pc.less(values, pa.scalar(prefix, _BINARY)))
            ranks = np.where(within, ranks, np.where(below, 0, len(self)))
        return np.asarray(ranks)

    def between(self, lower: pa.Array, upper: pa.Array) -> tuple[Array, Array]:
        """For each pair of bounds (NULL: unlimited), the ranks of the first key and after the last."""
        stops = np.where(upper.is_valid(), self.ranks(upper, above=True), len(self))
        return self.ranks(lower.fill_null(b"")), stops

    def mask(self, values: pa.Array) -> Array:
        """Whether each value is a key; False for NULL."""
        theirs, mine = self._heads_of(values), self._heads
        first = np.searchsorted(mine, theirs)
        rows = np.flatnonzero(mine[np.minimum(first, len(mine) - 1)] == theirs)
        mask = np.zeros(len(values), dtype=bool)
        if len(rows):
            # Different strings can have equal heads: the candidates are compared as a whole.
            heads = np.unique(theirs[rows])
            starts, stops = (np.searchsorted(mine, heads, side) for side in ("left", "right"))
            counts = stops - starts
            at = np.arange(counts.sum()) + np.repeat(starts - (np.cumsum(counts) - counts), counts)
            mask[rows] = _bools(pc.is_in(values.take(pa.array(rows)), self.array.take(pa.array(at))))
        return mask


def _restored(space: KeySpace, array: pa.Array) -> BytePoints:
    return BytePoints(space, array, ordered=True)


def _common_prefix(a: bytes, b: bytes) -> bytes:
    same = next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return a[:same]


def _sorted(values: pa.Array) -> pa.Array:
    """Distinct values in ascending order."""
    if not len(values):
        return values
    ends = pc.min_max(values)
    prefix = _common_prefix(ends["min"].as_py(), ends["max"].as_py())
    for width in (_WORD, _HEAD):
        heads = _heads(values, len(prefix), width)
        order = np.argsort(heads)
        ranked, heads = values.take(pa.array(order)), heads[order]
        fresh = np.ones(len(values), dtype=bool)
        fresh[1:] = _bools(pc.not_equal(ranked[1:], ranked[:-1]))
        if (heads[1:] != heads[:-1])[fresh[1:]].all():
            break  # the heads tell all values apart, and are sorted many times as fast
    else:
        ranked = values.take(pc.sort_indices(values))
        fresh[1:] = _bools(pc.not_equal(ranked[1:], ranked[:-1]))
    return ranked if fresh.all() else ranked.filter(pa.array(fresh))


def _heads(values: pa.Array, skip: int, width: int) -> Array:
    """``width`` bytes of each value after the first ``skip``, as numbers or strings that sort like them."""
    cut = pc.binary_slice(values.fill_null(b"") if values.null_count else values, skip, skip + width)
    padded = pc.ascii_rpad(cut.view(pa.large_string()), width, padding="\0")
    if width == _WORD:
        return np.frombuffer(padded.buffers()[2], dtype=">u8", count=len(padded)).astype(np.uint64)
    return np.frombuffer(padded.buffers()[2], dtype=f"S{width}", count=len(padded))


def _bools(mask: pa.Array) -> Array:
    return np.asarray(mask.fill_null(False) if mask.null_count else mask)
