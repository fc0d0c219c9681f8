"""Sums of whole numbers of any width, as ``[limb, block]``: the sum of ``limbs[k] << 32 * k``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from skipstone.core.evidence import Array
from skipstone.core.evidence.hull import reduce_blocks
from skipstone.partial.exact import run_lengths

HUGE_BITS: Final = 908
"""Doubles from 2⁹⁶⁰ on are multiples of 2 to the power of this; sums of them count that unit."""

_LIMB: Final = 32
_MASK: Final = (1 << _LIMB) - 1


def whole_sums(keys: Array, starts: Array, most: int) -> Array:
    """The sums of whole numbers of up to 64 bits, none of which is farther from zero than ``most``."""
    longest = int(run_lengths(starts, len(keys)).max(initial=0))
    if longest * most < 2**63:
        wide: Any = np.uint64 if keys.dtype == np.uint64 else np.int64
        return normal(_sum(keys, starts, wide).astype(np.int64)[np.newaxis])
    low = _sum(keys & keys.dtype.type(_MASK), starts, keys.dtype)
    high = _sum(keys >> keys.dtype.type(_LIMB), starts, keys.dtype)
    return normal(np.stack([low.astype(np.int64), high.astype(np.int64)]))


def decimal_sums(words: Array, starts: Array) -> Array:
    """The sums of decimals that :func:`decimal_words` has taken apart."""
    return normal(np.stack([_sum(words[:, k], starts, np.int64) for k in range(words.shape[1])]))


def huge_sums(values: Array, starts: Array) -> Array:
    """The sums of finite doubles of which none but zeros is below 2⁹⁶⁰, in units of 2 to HUGE_BITS."""
    rest = values * 2.0**-HUGE_BITS
    rows = []
    for bits in (2 * _LIMB, _LIMB, 0):
        part = np.trunc(rest * 2.0**-bits)
        rest = rest - part * 2.0**bits
        rows.append(_sum(part.astype(np.int64), starts, np.int64))
    return normal(np.stack(rows[::-1]))


def decimal_words(array: pa.Array) -> Array:
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


def normal(limbs: Array) -> Array:
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
    return normal(np.stack([_sum(row, starts, np.int64) for row in limbs]))


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
    limbs = normal(limbs)
    signs = np.where(limbs[-1] < 0, -1, 1) if len(limbs) else np.ones(limbs.shape[1], dtype=np.int64)
    found = np.zeros(limbs.shape[1])
    # Limbs of one sign, or most of them would cancel out, and with them the bits that matter.
    for k, row in enumerate(normal(limbs * signs)):
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
