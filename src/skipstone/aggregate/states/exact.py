"""Exact sums, independent of the order of values and of how they are split into blocks.

The sum of a block of doubles is represented exactly by a few doubles (parts). Every value is split at the
same bit by adding and subtracting a large power of two: the upper parts are multiples of one unit and few
enough to be added without rounding; the lower parts are split again until nothing is left. The sum of a
block of integers is represented by limbs of 32 bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, Final

import numpy as np
import pyarrow as pa

from skipstone.core.evidence import Array, reduce_blocks

LARGEST: Final = 2.0**960
"""Values must be smaller, so that sums of fewer than 2⁴⁰ values don't overflow."""
LARGEST_ROOT: Final = 2.0**480
"""Values must be smaller for their squares to be summed."""

# Values that are split together: they fit into the CPU cache, and their sum needs few extra bits.
_PIECE: Final = 1 << 15
# Veltkamp's constant, which splits a double into two halves of 26 bits.
_SPLITTER: Final = 2.0**27 + 1
# Integers below this are exact doubles.
_EXACT_DOUBLE: Final = 1 << 53

HUGE_BITS: Final = 908
"""Doubles of at least 2⁹⁶⁰ are multiples of 2 to this power, which is the unit of their sums."""

_LIMB: Final = 32
_MASK: Final = (1 << _LIMB) - 1


def exact_sums(values: Array, starts: Array) -> Array:
    """Sums of the blocks that begin at ``starts``, as ``[part, block]``; values are below LARGEST."""

    def rows(piece: slice, edges: Array, scratch: Array) -> list[Array]:
        chunk = values[piece]
        return _split(chunk, edges, scratch, float(chunk.min()), float(chunk.max()))

    return _in_pieces(rows, len(values), starts)


def min_max_and_sums(values: Array, starts: Array) -> tuple[Array, Array, Array | None]:
    """Minima, maxima (0 if empty) and sums of blocks, in one pass.

    NaN wins; sums are None if a value is NaN or not below LARGEST.
    """
    filled = run_lengths(starts, len(values)) > 0
    firsts = starts[filled]
    lower = np.full(len(firsts), np.inf, dtype=values.dtype)
    upper = -lower
    summed = True

    def rows(piece: slice, edges: Array, scratch: Array) -> list[Array]:
        nonlocal summed
        chunk = values[piece]
        low, high = np.minimum.reduceat(chunk, edges), np.maximum.reduceat(chunk, edges)
        # The first of these blocks may begin in an earlier piece.
        first = int(np.searchsorted(firsts, piece.start, side="right")) - 1
        blocks = slice(first, first + len(edges))
        np.minimum(lower[blocks], low, out=lower[blocks])
        np.maximum(upper[blocks], high, out=upper[blocks])
        smallest, largest = float(low.min()), float(high.max())
        summed = summed and smallest > -LARGEST and largest < LARGEST
        return _split(chunk, edges, scratch, smallest, largest) if summed else []

    parts = _in_pieces(rows, len(values), firsts)
    if filled.all():
        return lower, upper, parts if summed else None
    return _scatter(lower, filled), _scatter(upper, filled), _scatter(parts, filled) if summed else None


def exact_squares(terms: Sequence[Array], starts: Array) -> Array:
    """Sums of squares of values below LARGEST_ROOT; each value is the sum of its ``terms``.

    Squares below 2⁻⁹⁰⁰ may be rounded, but depend only on the value.
    """

    def rows(piece: slice, edges: Array, scratch: Array) -> list[Array]:
        pieces = [term[piece].astype(np.float64) for term in terms]
        pairs = [
            (a, a if i == j else 2.0 * b)
            for i, a in enumerate(pieces)
            for j, b in enumerate(pieces)
            if i <= j
        ]
        products = [product for a, b in pairs for product in two_product(a, b)]
        return [row for p in products for row in _split(p, edges, scratch, float(p.min()), float(p.max()))]

    return _in_pieces(rows, len(terms[0]), starts)


def integer_terms(keys: Array) -> list[Array]:
    """Split integers of up to 64 bits into terms that are exact doubles."""
    if (
        keys.dtype.itemsize < 8
        or not len(keys)
        or (keys.min() > -_EXACT_DOUBLE and keys.max() < _EXACT_DOUBLE)
    ):
        return [keys]
    low: Array = keys & keys.dtype.type(2**32 - 1)
    return [keys - low, low]


def two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """Rounded products of doubles, and their rounding errors."""
    product = a * b
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def fold(parts: Array, starts: Array) -> Array:
    """Merge the sums of runs of blocks; an infinite part makes a sum infinite."""
    infinite = np.isinf(parts)
    if infinite.any():
        finite = fold(np.where(infinite, 0.0, parts), starts)
        hit = reduce_blocks(np.logical_or, np.logical_or.reduce(infinite), starts, empty=False)
        return np.vstack([finite, np.where(hit, np.inf, 0.0)])
    return exact_sums(parts.T.ravel(), starts * len(parts)) if len(parts) else np.zeros((0, len(starts)))


def round_sums(parts: Array) -> Array:
    """Nearest doubles to the sums of the parts."""
    if not len(parts):
        return np.zeros(parts.shape[1])
    # The addition of two doubles rounds only once.
    sums: Array = parts[0] + parts[1] if len(parts) > 1 else parts[0] + 0.0
    for block in np.flatnonzero((parts[2:] != 0).any(axis=0)).tolist():
        sums[block] = math.fsum(parts[:, block].tolist())
    return sums


def fraction(parts: Array, block: int) -> Fraction:
    """Sum of one block's parts, which must be finite."""
    return sum((Fraction(part) for part in parts[:, block].tolist() if part), Fraction(0))


def nearest_double(value: Fraction) -> float:
    """Nearest double to a fraction; infinite on overflow."""
    try:
        return value.numerator / value.denominator
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def run_lengths(starts: Array, count: int) -> Array:
    """Lengths of the runs that begin at ``starts``; the last one ends at ``count``."""
    stops = np.empty_like(starts)
    stops[:-1] = starts[1:]
    stops[-1:] = count
    return stops - starts


def concat_blocks(parts: Sequence[Array]) -> Array:
    """Concatenate blocks, padded with zero rows to the same height."""
    height = max(len(part) for part in parts)
    result = np.zeros((height, sum(part.shape[1] for part in parts)), dtype=parts[0].dtype)
    at = 0
    for part in parts:
        result[: len(part), at : at + part.shape[1]] = part
        at += part.shape[1]
    return result


# -- pieces ------------------------------------------------------------------------------------


def _in_pieces(rows: Callable[[slice, Array, Array], list[Array]], count: int, starts: Array) -> Array:
    """Sums of blocks, computed piece by piece with ``rows(piece, edges in the piece, scratch memory)``."""
    filled = run_lengths(starts, count) > 0
    if not filled.all():
        return _scatter(_in_pieces(rows, count, starts[filled]), filled)
    grid = np.arange(0, count, _PIECE)
    at = np.searchsorted(starts, grid)
    new = starts[np.minimum(at, len(starts) - 1)] != grid
    edges = np.insert(starts, at[new], grid[new]) if new.any() else starts
    bounds = np.append(np.searchsorted(edges, grid), len(edges)).tolist()
    scratch = np.empty((2, min(count, _PIECE)))
    parts = [np.zeros((0, 0))]
    for number, start in enumerate(grid.tolist()):
        piece_edges = edges[bounds[number] : bounds[number + 1]] - start
        piece_parts = rows(slice(start, min(start + _PIECE, count)), piece_edges, scratch)
        parts.append(np.array(piece_parts).reshape(-1, len(piece_edges)))
    sums = concat_blocks(parts)
    if len(edges) == len(starts):
        return sums
    # Only split blocks are merged again; they are few compared with the values, so the recursion ends.
    firsts = np.searchsorted(edges, starts)
    lengths = run_lengths(firsts, len(edges))
    split = lengths > 1
    merged = fold(sums[:, np.repeat(split, lengths)], np.cumsum(lengths[split]) - lengths[split])
    result = np.zeros((max(len(sums), len(merged)), len(starts)))
    result[: len(sums), ~split] = sums[:, firsts[~split]]
    result[: len(merged), split] = merged
    return result


def _split(values: Array, starts: Array, scratch: Array, low: float, high: float) -> list[Array]:
    """Parts of the sums of values between ``low`` and ``high``; no block is empty."""
    values = values.astype(np.float64, copy=False)
    upper, rest = scratch[:, : len(values)]
    headroom = (int(run_lengths(starts, len(values)).max()) + 1).bit_length()
    # All values, and their remainders, are multiples of the last bit of the value nearest to zero. Once they
    # are small relative to it, they can be added without rounding.
    exact_bits = math.frexp(math.ulp(max(low, -high, 0.0)))[1] + 52 - headroom
    largest = max(high, -low)
    bits = math.frexp(largest)[1]
    rows: list[Array] = []
    while largest and bits > exact_bits:
        splitter = math.ldexp(1.0, bits + headroom)
        np.add(values, splitter, out=upper)
        np.subtract(upper, splitter, out=upper)
        rows.append(np.add.reduceat(upper, starts))
        values = np.subtract(values, upper, out=rest)
        # An upper limit for the bits of the remainders.
        bits += headroom - 53
        if bits > exact_bits:
            largest = max(float(values.max()), -float(values.min()))
            bits = math.frexp(largest)[1]
    if largest and (remainder := np.add.reduceat(values, starts)).any():
        rows.append(remainder)
    return rows


def _scatter(values: Array, filled: Array) -> Array:
    """Expand the values of non-empty blocks to all blocks, with zeros for the others."""
    result = np.zeros((*values.shape[:-1], len(filled)), dtype=values.dtype)
    result[..., filled] = values
    return result


def _halves(values: Array) -> tuple[Array, Array]:
    scaled = _SPLITTER * values
    high = scaled - (scaled - values)
    return high, values - high


# -- integers of any width: [limb, block], the sum of limbs[k] << 32 * k --------------------------


def integer_sums(keys: Array, starts: Array, largest: int) -> Array:
    """Sums of integers of up to 64 bits with absolute values up to ``largest``."""
    longest = int(run_lengths(starts, len(keys)).max(initial=0))
    if longest * largest < 2**63:
        wide: Any = np.uint64 if keys.dtype == np.uint64 else np.int64
        return propagate_carries(_sum(keys, starts, wide).astype(np.int64)[np.newaxis])
    low = _sum(keys & keys.dtype.type(_MASK), starts, keys.dtype)
    high = _sum(keys >> keys.dtype.type(_LIMB), starts, keys.dtype)
    return propagate_carries(np.stack([low.astype(np.int64), high.astype(np.int64)]))


def decimal_sums(words: Array, starts: Array) -> Array:
    """Sums of the decimals from :func:`decimal_limbs`."""
    return propagate_carries(np.stack([_sum(words[:, k], starts, np.int64) for k in range(words.shape[1])]))


def huge_sums(values: Array, starts: Array) -> Array:
    """Sums of finite doubles that are zero or at least 2⁹⁶⁰, in units of 2 to HUGE_BITS."""
    rest = values * 2.0**-HUGE_BITS
    rows = []
    for bits in (2 * _LIMB, _LIMB, 0):
        part = np.trunc(rest * 2.0**-bits)
        rest = rest - part * 2.0**bits
        rows.append(_sum(part.astype(np.int64), starts, np.int64))
    return propagate_carries(np.stack(rows[::-1]))


def decimal_limbs(array: pa.Array) -> Array:
    """Split decimals without NULL into ``[row, limb]``; only the last limb is signed."""
    count = array.type.bit_width // _LIMB
    data = array.buffers()[1]
    if data is None or not len(array):
        return np.zeros((0, count), dtype=np.int64)
    start = array.offset * count * 4
    words = np.frombuffer(data, np.uint32, len(array) * count, start).reshape(-1, count)
    wide = words.astype(np.int64)
    wide[:, -1] = words[:, -1].view(np.int32)
    return wide


def propagate_carries(limbs: Array) -> Array:
    """Normalize limbs to 32 bits, with a signed last limb.

    Fewer than 2³¹ such sums can be added before they must be normalized again.
    """
    rows: list[Array] = []
    carry = np.zeros(limbs.shape[1], dtype=np.int64)
    for row in limbs:
        total = row + carry
        rows.append(total & _MASK)
        carry = total >> _LIMB
    # The last carry must be the sign extension of the last limb; otherwise another limb is needed.
    while rows and not np.array_equal(carry, -(rows[-1] >> (_LIMB - 1))):
        rows.append(carry & _MASK)
        carry = carry >> _LIMB
    if rows:
        rows[-1] = rows[-1] + (carry << _LIMB)
    return np.stack(rows) if rows else limbs


def fold_limbs(limbs: Array, starts: Array) -> Array:
    """Merge the sums of runs of blocks."""
    if not len(limbs):
        return np.zeros((0, len(starts)), dtype=np.int64)
    return propagate_carries(np.stack([_sum(row, starts, np.int64) for row in limbs]))


def to_ints(limbs: Array) -> list[int]:
    """Convert limbs to Python integers."""
    totals = [0] * limbs.shape[1]
    for k, row in enumerate(limbs):
        totals = [total + (limb << _LIMB * k) for total, limb in zip(totals, row.tolist(), strict=True)]
    return totals


def from_ints(sums: Sequence[int]) -> Array:
    """Inverse of :func:`to_ints`."""
    longest = max((total.bit_length() for total in sums), default=0)
    count = longest // _LIMB + 1
    rows = [[total >> _LIMB * k & _MASK for total in sums] for k in range(count)]
    limbs = np.array(rows, dtype=np.int64).reshape(count, len(sums))
    limbs[-1] = np.array([total >> _LIMB * (count - 1) for total in sums], dtype=np.int64)
    return limbs


def estimates(limbs: Array) -> Array:
    """Sums as doubles: exact below 2⁵³, otherwise accurate except for the last few bits."""
    limbs = propagate_carries(limbs)
    signs = np.where(limbs[-1] < 0, -1, 1) if len(limbs) else np.ones(limbs.shape[1], dtype=np.int64)
    sums = np.zeros(limbs.shape[1])
    # All limbs get one sign; otherwise significant bits would cancel.
    for k, row in enumerate(propagate_carries(limbs * signs)):
        sums += np.ldexp(row.astype(np.float64), _LIMB * k)
    return sums * signs


def to_decimals(limbs: Array, type: pa.DataType, valid: Array) -> pa.Array:
    """Convert limbs to decimals of ``type``, which must fit; NULL where not ``valid``."""
    count = type.bit_width // _LIMB
    words = np.zeros((limbs.shape[1], count), dtype=np.uint32)
    carry = np.zeros(limbs.shape[1], dtype=np.int64)
    for k in range(count):
        total = carry + limbs[k] if k < len(limbs) else carry
        words[:, k] = total & _MASK
        carry = total >> _LIMB
    mask = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
    return pa.Array.from_buffers(type, len(words), [mask, pa.py_buffer(words.tobytes())])


def _sum(values: Array, starts: Array, dtype: Any) -> Array:
    return reduce_blocks(np.add, values, starts, empty=0, dtype=dtype)
