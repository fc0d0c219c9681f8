"""Count, sum, minimum and maximum of blocks of rows, kept so that blocks can be put together.

Sums of integer keys (whole numbers, decimals of up to 18 digits, times) are exact, in 128 bits. A sum of
floats is correctly rounded per block: no order of adding doubles comes closer. Blocks put together give
the correctly rounded sum of their rounded sums.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from skipstone.domain.keys import Kind, key_space
from skipstone.evidence import Array, Bounds, widest
from skipstone.evidence.hull import reduce_blocks
from skipstone.parquet.measure import NotMeasurable, NumberKeys, read_column

if TYPE_CHECKING:
    from numpy.typing import NDArray

_HALF: Final = np.uint64(32)
_LOW_HALF: Final = np.uint64(0xFFFFFFFF)
# Few enough that sums of 27 bits stay exact in a double, and that the piece stays in the cache.
_PIECE: Final = 1 << 15
# The exponent that frexp gives the least double.
_LEAST_EXPONENT: Final = -1073


@dataclass(frozen=True, slots=True, eq=False)
class BlockSums:
    """Aggregates of one numeric column in N blocks, in keys of its type.

    ``low`` and ``high`` are the words of sums of integer keys, ``total`` the sums of floats; the other is
    None. ``count`` is of values that are not NULL. NaN is among them, but neither in ``total`` nor in the
    bounds, which mean something only where ``has``. A zero bound of floats may stand for either zero.
    """

    type: pa.DataType
    count: NDArray[np.int64]
    nans: NDArray[np.int64]
    low: NDArray[np.uint64] | None
    high: NDArray[np.int64] | None
    total: NDArray[np.float64] | None
    lower: Bounds
    upper: Bounds
    has: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.count)

    def sum(self, block: int) -> int | float:
        """The sum of a block's keys, 0 if it has none; NaN if it has NaN."""
        if self.total is not None:
            return float("nan") if self.nans[block] else float(self.total[block])
        assert self.low is not None
        assert self.high is not None
        return (int(self.high[block]) << 64) + int(self.low[block])

    def merge(self, starts: Array) -> BlockSums:
        """Larger blocks of consecutive ones; ``starts`` are their first blocks, in order."""
        low = high = total = None
        if self.total is not None:
            total = _rounded_sums(self.total, starts)
        elif self.low is not None and self.high is not None:
            units = _sum(self.low & _LOW_HALF, starts), _sum(self.low >> _HALF, starts)
            low, carried = _words(*units)
            high = carried + _sum(self.high, starts)
        has = reduce_blocks(np.logical_or, self.has, starts, empty=False)
        floor, ceiling = widest(self.type, len(starts))
        lower, _ = NumberKeys(self.lower, self.has).ends(starts)
        _, upper = NumberKeys(self.upper, self.has).ends(starts)
        return BlockSums(
            self.type,
            _sum(self.count, starts),
            _sum(self.nans, starts),
            low,
            high,
            total,
            np.where(has, lower, floor),
            np.where(has, upper, ceiling),
            has,
        )

    @classmethod
    def concat(cls, parts: Sequence[BlockSums]) -> BlockSums:
        """The blocks of several columns of one type, one after the other."""
        joined = {name: np.concatenate([p.to_arrays()[name] for p in parts]) for name in parts[0].to_arrays()}
        return cls.from_arrays(parts[0].type, joined)

    def to_arrays(self) -> dict[str, Array]:
        """The parts by name, to be stored."""
        found = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "type"}
        return {name: array for name, array in found.items() if array is not None}

    @classmethod
    def from_arrays(cls, type: pa.DataType, arrays: Mapping[str, Array]) -> BlockSums:
        """What :meth:`to_arrays` gave."""
        sums = {"low": None, "high": None, "total": None}
        return cls(type, **{**sums, **arrays})  # type: ignore[arg-type]


def block_sums(
    type: pa.DataType, values: pa.Array | pa.ChunkedArray, first_rows: NDArray[np.int64]
) -> BlockSums:
    """The aggregates of blocks of rows that begin at ``first_rows``, in keys of ``type``.

    Raises :class:`NotMeasurable` for a type without numeric keys.
    """
    space = key_space(type)
    if space.kind is Kind.BYTES:
        raise NotMeasurable(f"values of type {type} have no sums here")
    column = read_column(type, values)
    keys = NumberKeys.of(column)
    rows = np.diff(first_rows, append=len(values))
    assert rows.sum() == len(values)
    assert (rows >= 0).all()
    count = rows - column.nulls(first_rows)
    nans = np.zeros(len(rows), dtype=np.int64)
    low = high = total = None
    if space.kind is Kind.FLOAT:
        nans = keys.nans(first_rows)
        numbers = keys.filled(0)
        total = _rounded_sums(np.where(np.isnan(numbers), 0, numbers) if nans.any() else numbers, first_rows)
    else:
        low, high = _whole_sums(keys.filled(0), first_rows)
    has = count > nans
    floor, ceiling = widest(type, len(rows))
    lower, upper = keys.ends(first_rows)
    return BlockSums(
        type,
        count,
        nans,
        low,
        high,
        total,
        np.where(has, lower.astype(space.dtype), floor),
        np.where(has, upper.astype(space.dtype), ceiling),
        has,
    )


def _sum(values: Array, starts: Array) -> Array:
    return reduce_blocks(np.add, values, starts, empty=0)


# -- whole numbers -----------------------------------------------------------------------------


def _whole_sums(keys: Array, starts: Array) -> tuple[Array, Array]:
    """Sums in two words; those of halves can't overflow with less than 2³¹ rows."""
    if keys.dtype.itemsize < 8:
        sums = reduce_blocks(np.add, keys, starts, empty=0, dtype=np.int64)
        return sums.view(np.uint64), sums >> 63
    half: Any = keys.dtype.type(32)
    lows = _sum(keys & keys.dtype.type(_LOW_HALF), starts)
    return _words(lows.astype(np.uint64), _sum(keys >> half, starts))


def _words(lows: Array, highs: Array) -> tuple[Array, Array]:
    """``highs * 2**32 + lows`` as a low and a high word of 64 bits."""
    upper = highs.astype(np.int64) + (lows >> _HALF).astype(np.int64)
    return (upper.view(np.uint64) << _HALF) | (lows & _LOW_HALF), upper >> 32


# -- floats ------------------------------------------------------------------------------------


def _rounded_sums(values: Array, starts: Array) -> NDArray[np.float64]:
    # Block by block, since the exact sum of doubles has no fixed width.
    stops = np.append(starts, len(values))[1:]
    spans = zip(starts.tolist(), stops.tolist(), strict=True)
    return np.array([_rounded_sum(values[start:stop]) for start, stop in spans], dtype=np.float64)


def _rounded_sum(values: Array) -> float:
    """The exact sum of floats, rounded once; infinite or NaN as adding them one by one would be."""
    whole = 0
    for at in range(0, len(values), _PIECE):
        piece = values[at : at + _PIECE].astype(np.float64)
        if not np.isfinite(piece).all():
            with np.errstate(invalid="ignore"):
                return float(values[~np.isfinite(values)].sum(dtype=np.float64))
        whole += _exact_sum(piece)
    try:
        # Python rounds the quotient of two integers correctly.
        return whole / (1 << (53 - _LEAST_EXPONENT))
    except OverflowError:
        return float("inf") if whole > 0 else float("-inf")


def _exact_sum(values: NDArray[np.float64]) -> int:
    """The sum of finite doubles in units of 2 to the power of -1126."""
    fractions, exponents = np.frexp(values)
    # Two parts of 27 and 26 bits, added up by exponent: doubles hold such sums without rounding.
    shifted = fractions * 2.0**27
    tops = np.trunc(shifted)
    places = exponents - _LEAST_EXPONENT
    sums = np.bincount(places, tops), np.bincount(places, (shifted - tops) * 2.0**26)
    used = np.flatnonzero((sums[0] != 0) | (sums[1] != 0)).tolist()
    return sum(((int(sums[0][p]) << 26) + int(sums[1][p])) << p for p in used)
