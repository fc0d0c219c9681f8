"""Z-order and Hilbert curves: rows that are near in several columns get positions that are near."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from skipstone.core.evidence import Array
from skipstone.errors import UsageError
from skipstone.write.ranks import Ranks

# Positions are signed words of 64 bits, none of them negative.
_POSITION_BITS = 63
_MOST_BITS = 16
_MOST_AXES = 8


@dataclass(frozen=True, slots=True, eq=False)
class Cluster:
    """Where rows lie on a curve through several columns, as a sample has their values spread."""

    curve: Literal["zorder", "hilbert"]
    axes: tuple[Ranks, ...]

    @classmethod
    def of(cls, sample: pa.Table, columns: Sequence[str], curve: Literal["zorder", "hilbert"]) -> Cluster:
        """The curve through these columns; one column gives its order."""
        if curve not in ("zorder", "hilbert"):
            raise UsageError(f"there is no curve {curve!r}", hint="give zorder or hilbert")
        if isinstance(columns, str) or not 1 <= len(columns) <= _MOST_AXES:
            problem = f"there is no curve through {columns!r}"
            raise UsageError(problem, hint=f"name two to {_MOST_AXES} columns")
        bits = min(_POSITION_BITS // len(columns), _MOST_BITS)
        return cls(curve, tuple(Ranks.of(sample, name, bits) for name in columns))

    def keys(self, rows: pa.Table | pa.RecordBatch) -> pa.Array:
        """The position of each row, as int64."""
        ranks = [axis.of_rows(rows) for axis in self.axes]
        along = hilbert if self.curve == "hilbert" else zorder
        return pa.array(along(ranks, self.axes[0].bits), pa.int64())


def zorder(ranks: Sequence[Array], bits: int) -> Array:
    """Positions whose bits are those of the ranks in turn, the highest first.

    >>> zorder([np.array([0b10, 0b11]), np.array([0b01, 0b11])], 2).tolist()
    [9, 15]
    """
    position = np.zeros(len(ranks[0]), dtype=np.int64)
    for bit in reversed(range(bits)):
        for rank in ranks:
            position <<= 1
            position |= (rank >> bit) & 1
    return position


def hilbert(ranks: Sequence[Array], bits: int) -> Array:
    """Positions on the Hilbert curve, where each step moves along one axis by one.

    By Skilling's method (Programming the Hilbert curve, 2004): from the highest bit down each axis tells
    whether the first one is mirrored or changes places with it, then Gray code is undone.

    >>> hilbert([np.array([0, 0, 1, 1]), np.array([0, 1, 1, 0])], 1).tolist()
    [0, 1, 2, 3]
    """
    axes = [np.array(rank, dtype=np.int64) for rank in ranks]
    first = axes[0]
    for bit in reversed(range(1, bits)):
        low = (1 << bit) - 1
        for axis in axes:
            mirrored = ((axis >> bit) & 1).astype(bool)
            swap = np.where(mirrored, 0, (first ^ axis) & low)
            first ^= np.where(mirrored, low, swap)
            # For the first axis itself a swap changes nothing: it differs in no bit.
            if axis is not first:
                np.bitwise_xor(axis, swap, out=axis)
    for before, axis in itertools.pairwise(axes):
        np.bitwise_xor(axis, before, out=axis)
    turned = np.zeros_like(first)
    for bit in reversed(range(1, bits)):
        turned ^= np.where((axes[-1] >> bit) & 1, (1 << bit) - 1, 0)
    return zorder([axis ^ turned for axis in axes], bits)
