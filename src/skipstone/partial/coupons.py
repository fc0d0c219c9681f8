"""The mark that a value leaves in a CPC sketch, for many values at once.

A CPC sketch keeps which of its marks (coupons) were seen; a million values leave some 35 thousand different
ones. The library takes values one by one only, so it pays to know beforehand which of them leave a new
mark. The hash is the library's: 128 bits of MurmurHash3 of eight bytes, seed 9001.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from skipstone.core.evidence import Array

if TYPE_CHECKING:
    from numpy.typing import NDArray

LG_ROWS: Final = 12
PLACES: Final = 1 << (LG_ROWS + 6)
"""How many different coupons there are: numbers from 0."""
_MASK: Final = np.uint64((1 << LG_ROWS) - 1)
# The seed and the length of a value are combined with either half of the hash.
_START: Final = np.uint64(9001 ^ 8)
_FIRST, _SECOND = np.uint64(0x87C37B91114253D5), np.uint64(0x4CF5AD432745937F)
_THIRD, _FOURTH = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_31, _33 = np.uint64(31), np.uint64(33)
# A double holds the upper bits of a word without rounding.
_LOWER: Final = np.uint64(11)
_UPPER_BITS: Final = 53
# Few enough that a piece and its hashes stay in the cache.
_PIECE: Final = 1 << 14


def coupons(words: NDArray[np.uint64]) -> NDArray[np.int32]:
    """The coupon of each value: the row of the sketch, and how many zeros lead the hash."""
    out = np.empty(len(words), dtype=np.int32)
    for at in range(0, len(words), _PIECE):
        low, high = _hashes(words[at : at + _PIECE])
        row = (low & _MASK).astype(np.int32)
        out[at : at + _PIECE] = (row << 6) | np.minimum(_leading_zeros(high), 63)
    return out


def _hashes(words: Array) -> tuple[Array, Array]:
    mixed = words * _FIRST
    mixed = (mixed << _31) | (mixed >> _33)
    mixed *= _SECOND
    low = (mixed ^ _START) + _START
    high = low + _START
    low, high = _finished(low), _finished(high)
    low += high
    return low, high + low


def _finished(half: Array) -> Array:
    half ^= half >> _33
    half *= _THIRD
    half ^= half >> _33
    half *= _FOURTH
    half ^= half >> _33
    return half


def _leading_zeros(words: Array) -> NDArray[np.int32]:
    upper = words >> _LOWER
    zeros: NDArray[np.int32] = _UPPER_BITS - np.frexp(upper.astype(np.float64))[1]
    rest = upper == 0
    if rest.any():
        zeros[rest] = 64 - np.frexp(words[rest].astype(np.float64))[1]
    return zeros
