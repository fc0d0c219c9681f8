"""Sums without rounding, so that neither the order of values nor a cut into blocks matters.

The sum of a block of doubles is kept as a few doubles whose sum, in exact arithmetic, it is. They are found
by splitting every value at the same place (adding and subtracting a large power of two): the upper parts are
multiples of one unit and few enough to be added without rounding, the lower parts are split again until
nothing is left. The sum of a block of whole numbers is kept in limbs of 32 bits.
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
"""Values must be smaller than this; sums of fewer than 2⁴⁰ of them then don't overflow on the way."""
LARGEST_ROOT: Final = 2.0**480
"""Values whose squares are added must be smaller than this."""

# Values that are split together: they stay in the cache, and few bits go to the room for their sum.
_PIECE: Final = 1 << 15
# Veltkamp's constant, which splits a double into two halves of 26 bits.
_SPLITTER: Final = 2.0**27 + 1
# Doubles hold whole numbers up to here.
_WHOLE: Final = 1 << 53

HUGE_BITS: Final = 908
"""Doubles from 2⁹⁶⁰ on are multiples of 2 to the power of this; sums of them count that unit."""

_LIMB: Final = 32
_MASK: Final = (1 << _LIMB) - 1


def exact_sums(values: Array, starts: Array) -> Array:
    """The sums of blocks that begin at ``starts``, as ``[part, block]``; values are below LARGEST."""

    def rows(piece: slice, edges: Array, spare: Array) -> list[Array]:
        some = values[piece]
        return _split(some, edges, spare, float(some.min()), float(some.max()))

    return _in_pieces(rows, len(values), starts)


def min_max_and_sums(values: Array, starts: Array) -> tuple[Array, Array, Array | None]:
    """The least and the greatest value of blocks, 0 if there is none, and their sums, in one walk.

    NaN wins; there are no sums if a value is NaN or not below LARGEST.
    """
    filled = run_lengths(starts, len(values)) > 0
    firsts = starts[filled]
    lower = np.full(len(firsts), np.inf, dtype=values.dtype)
    upper = -lower
    summed = True

    def rows(piece: slice, edges: Array, spare: Array) -> list[Array]:
        nonlocal summed
        some = values[piece]
        low, high = np.minimum.reduceat(some, edges), np.maximum.reduceat(some, edges)
        # The first of these blocks may have begun in an earlier piece.
        first = int(np.searchsorted(firsts, piece.start, side="right")) - 1
        mine = slice(first, first + len(edges))
        np.minimum(lower[mine], low, out=lower[mine])
        np.maximum(upper[mine], high, out=upper[mine])
        least, most = float(low.min()), float(high.max())
        summed = summed and least > -LARGEST and most < LARGEST
        return _split(some, edges, spare, least, most) if summed else []

    parts = _in_pieces(rows, len(values), firsts)
    if filled.all():
        return lower, upper, parts if summed else None
    return _placed(lower, filled), _placed(upper, filled), _placed(parts, filled) if summed else None


def exact_squares(terms: Sequence[Array], starts: Array) -> Array:
    """The sums of the squares of values, each of which is the sum of its ``terms``, below LARGEST_ROOT.

    Squares below 2⁻⁹⁰⁰ may be rounded, but as a function of the value alone.
    """

    def rows(piece: slice, edges: Array, spare: Array) -> list[Array]:
        cut = [term[piece].astype(np.float64) for term in terms]
        pairs = [
            (a, a if i == j else 2.0 * b) for i, a in enumerate(cut) for j, b in enumerate(cut) if i <= j
        ]
        products = [product for a, b in pairs for product in two_product(a, b)]
        return [row for p in products for row in _split(p, edges, spare, float(p.min()), float(p.max()))]

    return _in_pieces(rows, len(terms[0]), starts)


def whole_terms(keys: Array) -> list[Array]:
    """Whole numbers of up to 64 bits as doubles whose sums they are."""
    if keys.dtype.itemsize < 8 or not len(keys) or (keys.min() > -_WHOLE and keys.max() < _WHOLE):
        return [keys]
    low: Array = keys & keys.dtype.type(2**32 - 1)
    return [keys - low, low]


def two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """The products of doubles, rounded, and what rounding left out."""
    product = a * b
    (high, low), (top, rest) = _halves(a), _halves(b)
    return product, ((high * top - product) + high * rest + low * top) + low * rest


def fold(parts: Array, starts: Array) -> Array:
    """The sums of runs of blocks from the parts of their sums; an infinite part makes a sum infinite."""
    infinite = np.isinf(parts)
    if infinite.any():
        finite = fold(np.where(infinite, 0.0, parts), starts)
        hit = reduce_blocks(np.logical_or, np.logical_or.reduce(infinite), starts, empty=False)
        return np.vstack([finite, np.where(hit, np.inf, 0.0)])
    return exact_sums(parts.T.ravel(), starts * len(parts)) if len(parts) else np.zeros((0, len(starts)))


def rounded(parts: Array) -> Array:
    """The doubles nearest to the sums of the parts."""
    if not len(parts):
        return np.zeros(parts.shape[1])
    # One addition of two doubles rounds once, as it should.
    found: Array = parts[0] + parts[1] if len(parts) > 1 else parts[0] + 0.0
    for block in np.flatnonzero((parts[2:] != 0).any(axis=0)).tolist():
        found[block] = math.fsum(parts[:, block].tolist())
    return found


def fraction(parts: Array, block: int) -> Fraction:
    """The sum of one block's parts, which must be finite."""
    return sum((Fraction(part) for part in parts[:, block].tolist() if part), Fraction(0))


def nearest(value: Fraction) -> float:
    """The double nearest to a fraction; infinite past the largest."""
    try:
        return value.numerator / value.denominator
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def run_lengths(starts: Array, count: int) -> Array:
    """How long runs are that begin at ``starts``, the last of which ends at ``count``."""
    stops = np.empty_like(starts)
    stops[:-1] = starts[1:]
    stops[-1:] = count
    return stops - starts


def beside(parts: Sequence[Array]) -> Array:
    """Blocks one after the other, as many rows for each as the tallest has; new rows are zeros."""
    tallest = max(len(part) for part in parts)
    out = np.zeros((tallest, sum(part.shape[1] for part in parts)), dtype=parts[0].dtype)
    at = 0
    for part in parts:
        out[: len(part), at : at + part.shape[1]] = part
        at += part.shape[1]
    return out


# -- pieces ------------------------------------------------------------------------------------


def _in_pieces(rows: Callable[[slice, Array, Array], list[Array]], count: int, starts: Array) -> Array:
    """The sums of blocks, of which ``rows`` has the parts for a piece, the edges in it and spare memory."""
    filled = run_lengths(starts, count) > 0
    if not filled.all():
        return _placed(_in_pieces(rows, count, starts[filled]), filled)
    grid = np.arange(0, count, _PIECE)
    at = np.searchsorted(starts, grid)
    new = starts[np.minimum(at, len(starts) - 1)] != grid
    edges = np.insert(starts, at[new], grid[new]) if new.any() else starts
    inside = np.append(np.searchsorted(edges, grid), len(edges)).tolist()
    spare = np.empty((2, min(count, _PIECE)))
    parts = [np.zeros((0, 0))]
    for number, start in enumerate(grid.tolist()):
        mine = edges[inside[number] : inside[number + 1]] - start
        found = rows(slice(start, min(start + _PIECE, count)), mine, spare)
        parts.append(np.array(found).reshape(-1, len(mine)))
    sums = beside(parts)
    if len(edges) == len(starts):
        return sums
    # Only what was cut is put together again: that is little beside the values, so this ends.
    firsts = np.searchsorted(edges, starts)
    lengths = run_lengths(firsts, len(edges))
    cut = lengths > 1
    again = fold(sums[:, np.repeat(cut, lengths)], np.cumsum(lengths[cut]) - lengths[cut])
    out = np.zeros((max(len(sums), len(again)), len(starts)))
    out[: len(sums), ~cut] = sums[:, firsts[~cut]]
    out[: len(again), cut] = again
    return out


def _split(values: Array, starts: Array, spare: Array, low: float, high: float) -> list[Array]:
    """The parts of the sums of a few values from ``low`` to ``high``; blocks are not empty."""
    values = values.astype(np.float64, copy=False)
    upper, rest = spare[:, : len(values)]
    room = (int(run_lengths(starts, len(values)).max()) + 1).bit_length()
    # All values are multiples of the last place of the one nearest to zero, and so is what is left of them:
    # once they are small enough beside it, they are added as they are.
    enough = math.frexp(math.ulp(max(low, -high, 0.0)))[1] + 52 - room
    largest = max(high, -low)
    bits = math.frexp(largest)[1]
    rows: list[Array] = []
    while largest and bits > enough:
        far = math.ldexp(1.0, bits + room)
        np.add(values, far, out=upper)
        np.subtract(upper, far, out=upper)
        rows.append(np.add.reduceat(upper, starts))
        values = np.subtract(values, upper, out=rest)
        # Nothing that is left has more bits than these.
        bits += room - 53
        if bits > enough:
            largest = max(float(values.max()), -float(values.min()))
            bits = math.frexp(largest)[1]
    if largest and (last := np.add.reduceat(values, starts)).any():
        rows.append(last)
    return rows


def _placed(found: Array, filled: Array) -> Array:
    """What was found of some blocks among all of them; the others have zeros."""
    out = np.zeros((*found.shape[:-1], len(filled)), dtype=found.dtype)
    out[..., filled] = found
    return out


def _halves(values: Array) -> tuple[Array, Array]:
    grown = _SPLITTER * values
    high = grown - (grown - values)
    return high, values - high


# -- whole numbers of any width: [limb, block], the sum of limbs[k] << 32 * k ---------------------


def whole_sums(keys: Array, starts: Array, most: int) -> Array:
    """The sums of whole numbers of up to 64 bits, none of which is farther from zero than ``most``."""
    longest = int(run_lengths(starts, len(keys)).max(initial=0))
    if longest * most < 2**63:
        wide: Any = np.uint64 if keys.dtype == np.uint64 else np.int64
        return carried(_sum(keys, starts, wide).astype(np.int64)[np.newaxis])
    low = _sum(keys & keys.dtype.type(_MASK), starts, keys.dtype)
    high = _sum(keys >> keys.dtype.type(_LIMB), starts, keys.dtype)
    return carried(np.stack([low.astype(np.int64), high.astype(np.int64)]))


def decimal_sums(words: Array, starts: Array) -> Array:
    """The sums of decimals that :func:`decimal_limbs` has taken apart."""
    return carried(np.stack([_sum(words[:, k], starts, np.int64) for k in range(words.shape[1])]))


def huge_sums(values: Array, starts: Array) -> Array:
    """The sums of finite doubles of which none but zeros is below 2⁹⁶⁰, in units of 2 to HUGE_BITS."""
    rest = values * 2.0**-HUGE_BITS
    rows = []
    for bits in (2 * _LIMB, _LIMB, 0):
        part = np.trunc(rest * 2.0**-bits)
        rest = rest - part * 2.0**bits
        rows.append(_sum(part.astype(np.int64), starts, np.int64))
    return carried(np.stack(rows[::-1]))


def decimal_limbs(array: pa.Array) -> Array:
    """Decimals without NULL as ``[row, limb]``: the last limb is signed, the others are not."""
    count = array.type.bit_width // _LIMB
    data = array.buffers()[1]
    if data is None or not len(array):
        return np.zeros((0, count), dtype=np.int64)
    start = array.offset * count * 4
    words = np.frombuffer(data, np.uint32, len(array) * count, start).reshape(-1, count)
    wide = words.astype(np.int64)
    wide[:, -1] = words[:, -1].view(np.int32)
    return wide


def carried(limbs: Array) -> Array:
    """The same sums with carries done: a limb has 32 bits, and only the last one a sign.

    Less than 2³¹ such sums can be added before it must be done again.
    """
    rows: list[Array] = []
    carry = np.zeros(limbs.shape[1], dtype=np.int64)
    for row in limbs:
        total = row + carry
        rows.append(total & _MASK)
        carry = total >> _LIMB
    # What is left over is 0, -1 where the limb before has a sign, or more: then another limb is needed.
    while rows and not np.array_equal(carry, -(rows[-1] >> (_LIMB - 1))):
        rows.append(carry & _MASK)
        carry = carry >> _LIMB
    if rows:
        rows[-1] = rows[-1] + (carry << _LIMB)
    return np.stack(rows) if rows else limbs


def fold_limbs(limbs: Array, starts: Array) -> Array:
    """The sums of runs of blocks."""
    if not len(limbs):
        return np.zeros((0, len(starts)), dtype=np.int64)
    return carried(np.stack([_sum(row, starts, np.int64) for row in limbs]))


def totals(limbs: Array) -> list[int]:
    """The sums as Python's whole numbers."""
    found = [0] * limbs.shape[1]
    for k, row in enumerate(limbs):
        found = [total + (limb << _LIMB * k) for total, limb in zip(found, row.tolist(), strict=True)]
    return found


def from_totals(sums: Sequence[int]) -> Array:
    """What :func:`totals` gives."""
    longest = max((total.bit_length() for total in sums), default=0)
    count = longest // _LIMB + 1
    rows = [[total >> _LIMB * k & _MASK for total in sums] for k in range(count)]
    limbs = np.array(rows, dtype=np.int64).reshape(count, len(sums))
    limbs[-1] = np.array([total >> _LIMB * (count - 1) for total in sums], dtype=np.int64)
    return limbs


def estimates(limbs: Array) -> Array:
    """The sums as doubles: exact below 2⁵³, else right but for the last few bits."""
    limbs = carried(limbs)
    signs = np.where(limbs[-1] < 0, -1, 1) if len(limbs) else np.ones(limbs.shape[1], dtype=np.int64)
    found = np.zeros(limbs.shape[1])
    # Limbs of one sign, or most of them would cancel out, and with them the bits that matter.
    for k, row in enumerate(carried(limbs * signs)):
        found += np.ldexp(row.astype(np.float64), _LIMB * k)
    return found * signs


def decimals(limbs: Array, type: pa.DataType, known: Array) -> pa.Array:
    """The sums as decimals of ``type``, into which they must fit; NULL where not ``known``."""
    count = type.bit_width // _LIMB
    words = np.zeros((limbs.shape[1], count), dtype=np.uint32)
    carry = np.zeros(limbs.shape[1], dtype=np.int64)
    for k in range(count):
        total = carry + limbs[k] if k < len(limbs) else carry
        words[:, k] = total & _MASK
        carry = total >> _LIMB
    mask = None if known.all() else pa.py_buffer(np.packbits(known, bitorder="little").tobytes())
    return pa.Array.from_buffers(type, len(words), [mask, pa.py_buffer(words.tobytes())])


def _sum(values: Array, starts: Array, dtype: Any) -> Array:
    return reduce_blocks(np.add, values, starts, empty=0, dtype=dtype)
