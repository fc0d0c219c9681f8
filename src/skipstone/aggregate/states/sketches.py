"""Estimates that can be merged: distinct counts (CPC) and quantiles (KLL) by Apache DataSketches.

They are estimates, for planning and for people: no row may ever be dropped by one. A CPC sketch is within
about 2.2 % (two standard deviations), and its estimate depends on the set of values alone. A KLL sketch
gives values whose rank is within about 1.3 % of the rank asked for; two sketches of the same values need
not be equal, because KLL throws dice.

The library's readers can take the process down over damaged bytes. So a sketch is followed by its hash, and
one whose hash is another is never shown to them.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.aggregate.states.blocks import is_number, scale_of
from skipstone.aggregate.states.state import Measure, Path, RowSelection, joined, present, runs
from skipstone.core.domain.keys import Kind, is_ordered, key_space, storage_type
from skipstone.core.evidence import Array
from skipstone.errors import TypeMismatchError
from skipstone.parquet.bloom import hash_values
from skipstone.parquet.measure import ColumnMeasure, NumberKeys, byte_keys, read_column

if TYPE_CHECKING:
    from numpy.typing import NDArray

CPC: Final = "cpc"
KLL: Final = "kll"
_K: Final = 200
_DEVIATIONS: Final = 2
_SEAL: Final = 8
_NANS: Final = struct.Struct("<q")
_REFUSALS: Final = (ValueError, IndexError, RuntimeError, MemoryError)
_WHOLE: Final = [np.dtype(name) for name in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")]


class BadSketch(Exception):
    """A stored sketch that can't be read; never fatal, the caller does without it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class DistinctEstimate:
    """How many distinct values there are: an estimate, and bounds that hold about 19 times out of 20."""

    estimate: float
    lower: float
    upper: float
    sketch: bytes


@dataclass(frozen=True, slots=True)
class Quantiles:
    """The spread of numbers as doubles: integers beyond 2⁵³ are rounded, NULL left out, NaN last."""

    count: int
    """How many values there are, NaN among them."""
    nans: int
    error: float
    """How far the rank of an answer is off, as a part of 1, about 99 times out of 100."""
    sketch: bytes

    def values(self, ranks: Sequence[float]) -> list[float]:
        """The values at ranks from 0 to 1; none if there are no values."""
        if not self.count:
            return []
        sketch, _ = _kll(self.sketch)
        numbers = self.count - self.nans
        # Ranks among the numbers: NaN lies behind them all.
        inner = [rank * self.count / numbers if numbers else np.inf for rank in ranks]
        return [_value(sketch, rank) if rank <= 1 else np.nan for rank in inner]


# -- making ------------------------------------------------------------------------------------


def sketches(type: pa.DataType, values: pa.Array | pa.ChunkedArray) -> dict[str, bytes]:
    """The sketches of a column as ``type``, by kind: CPC of all ordered types, KLL of numbers and times.

    NaN counts as one distinct value. Raises NotMeasurable as :func:`skipstone.parquet.measure.measure` does.
    """
    start = np.zeros(1, dtype=np.int64)
    found = {CPC: cpc_sketches(type, values, start)[0]}
    if key_space(type).kind is not Kind.BYTES or pa.types.is_decimal(storage_type(type)):
        found[KLL] = kll_sketches(type, values, start)[0]
    return found


def cpc_sketches(type: pa.DataType, values: pa.Array | pa.ChunkedArray, starts: Array) -> list[bytes]:
    """The distinct values of blocks of rows that begin at ``starts``, a CPC sketch each."""
    import datasketches

    column = read_column(type, values)
    words, found = _marks(type, column)
    found, _ = present(found, column.valid, starts)
    words, starts = present(words, column.valid, starts)
    numbers = np.arange(len(words), dtype=np.int64)
    last = np.empty(PLACES, dtype=np.int64)
    made = []
    for start, stop in pairwise([*starts.tolist(), len(words)]):
        mine, rows = found[start:stop], numbers[start:stop]
        last[mine] = rows
        sketch = datasketches.cpc_sketch(LG_ROWS)
        # The library takes no arrays. But of values that make the same mark it need see only one.
        for word in words[rows[last[mine] == rows]].tolist():
            sketch.update(word)
        made.append(_sealed(CPC, sketch.serialize()))
    return made


def _marks(type: pa.DataType, column: ColumnMeasure) -> tuple[Array, Array]:
    """What stands for each value in a CPC sketch, and its coupon there."""
    if key_space(type).kind is not Kind.BYTES:
        words = _words(NumberKeys.of(column).keys)
        return words, coupons(words)
    # The library takes no bytes, and of the empty string no notice: the hashes of values stand for them.
    coded = byte_keys(column.chunks).combine_chunks().dictionary_encode()
    hashes = np.append(hash_values(coded.dictionary.to_pylist()), np.uint64(0))
    codes = coded.indices.fill_null(len(hashes) - 1).to_numpy()
    return hashes[codes], coupons(hashes)[codes]


def _words(keys: Array) -> Array:
    """Numbers as 64 bits, the same for equal numbers of any width."""
    if keys.dtype.kind != "f":
        # The library takes negative integers for floats.
        return keys.astype(np.int64 if keys.dtype.kind == "i" else np.uint64).view(np.uint64)
    wide = keys.astype(np.float64) + 0.0  # which makes one of both zeros
    wide[np.isnan(wide)] = np.nan
    return wide.view(np.uint64)


def kll_sketches(type: pa.DataType, values: pa.Array | pa.ChunkedArray, starts: Array) -> list[bytes]:
    """The spread of blocks of rows that begin at ``starts``, a KLL sketch each; times are keys."""
    import datasketches

    column = read_column(type, values)
    numbers, starts = present(doubles(type, column), column.valid, starts)
    missing = np.isnan(numbers)
    made = []
    # Block by block: a sketch is an object of the library.
    for start, stop in pairwise([*starts.tolist(), len(numbers)]):
        nans = int(missing[start:stop].sum())
        mine = numbers[start:stop]
        sketch = datasketches.kll_doubles_sketch(_K)
        sketch.update(mine[~missing[start:stop]] if nans else mine)
        made.append(_sealed(KLL, sketch.serialize() + _NANS.pack(nans)))
    return made


# -- putting together --------------------------------------------------------------------------


def merge_cpc(parts: Sequence[bytes]) -> DistinctEstimate:
    """How many distinct values all sketched columns have together."""
    import datasketches

    union = datasketches.cpc_union(LG_ROWS)
    for part in parts:
        union.update(_read(datasketches.cpc_sketch, _opened(CPC, part)))
    merged = union.get_result()
    return DistinctEstimate(
        merged.get_estimate(),
        merged.get_lower_bound(_DEVIATIONS),
        merged.get_upper_bound(_DEVIATIONS),
        _sealed(CPC, merged.serialize()),
    )


def merge_kll(parts: Sequence[bytes]) -> Quantiles:
    """How the values of all sketched columns are spread together."""
    import datasketches

    merged, nans = datasketches.kll_doubles_sketch(_K), 0
    for part in parts:
        sketch, more = _kll(part)
        merged.merge(sketch)
        nans += more
    error = merged.normalized_rank_error(False) if merged.is_estimation_mode() else 0.0
    return Quantiles(merged.n + nans, nans, error, _sealed(KLL, merged.serialize() + _NANS.pack(nans)))


def _value(sketch: Any, rank: float) -> float:
    if 0 < rank < 1:
        return float(sketch.get_quantile(rank, True))
    # The library keeps both ends, but doesn't give them for these ranks.
    return float(sketch.get_max_value() if rank else sketch.get_min_value())


def _kll(part: bytes) -> tuple[Any, int]:
    import datasketches

    data = _opened(KLL, part)
    (nans,) = _NANS.unpack(data[-_NANS.size :])
    return _read(datasketches.kll_doubles_sketch, data[: -_NANS.size]), nans


# -- as bytes ----------------------------------------------------------------------------------


def _sealed(kind: str, data: bytes) -> bytes:
    return data + _seal(kind, data)


def _seal(kind: str, data: bytes) -> bytes:
    return hash_values([kind.encode() + data]).astype("<u8").tobytes()


def _opened(kind: str, part: bytes) -> bytes:
    data, seal = part[:-_SEAL], part[-_SEAL:]
    if _seal(kind, data) != seal:
        raise BadSketch(f"the {kind} sketch is damaged")
    return data


def _read(kind: Any, data: bytes) -> Any:
    try:
        return kind.deserialize(data)
    except _REFUSALS as error:
        raise BadSketch(f"the sketch can't be read: {error}") from error


# -- the measure ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SketchMeasure(Measure[list[bytes]]):
    """A sketch of a column per group: CPC for its distinct values, KLL for the spread of its numbers."""

    kind: str
    path: Path
    type: pa.DataType

    def __post_init__(self) -> None:
        if self.kind == KLL:
            check_quantiles(self.type, self.path)
        elif not is_ordered(self.type):
            raise TypeMismatchError(
                f"distinct values of type {self.type} can't be counted",
                column=".".join(self.path),
                hint="count those of its leaf fields",
            )

    @property
    def columns(self) -> tuple[Path, ...]:
        return (self.path,)

    def update(self, rows: RowSelection) -> list[bytes]:
        make = cpc_sketches if self.kind == CPC else kll_sketches
        return make(self.type, rows.column(self.path), rows.starts)

    def join(self, states: Sequence[list[bytes]]) -> list[bytes]:
        return joined(states)

    def fold(self, state: list[bytes], order: Array, starts: Array) -> list[bytes]:
        merge: Callable[[list[bytes]], DistinctEstimate | Quantiles]
        merge = merge_cpc if self.kind == CPC else merge_kll
        return [run[0] if len(run) == 1 else merge(run).sketch for run in runs(state, order, starts)]

    @property
    def sketch(self) -> str:
        return self.kind

    def sketched(self, blobs: Sequence[bytes]) -> list[bytes]:
        """The sketches themselves; raises :class:`BadSketch` for a damaged one."""
        for blob in blobs:
            _opened(self.kind, blob)
        return list(blobs)


def check_quantiles(type: pa.DataType, path: Path) -> None:
    """Raise an error for a type that has no quantiles."""
    if not is_number(type):
        raise TypeMismatchError(
            f"quantiles of type {type} can't be computed",
            column=".".join(path),
            hint="name a column of numbers",
        )


def distinct_counts(state: Sequence[bytes]) -> pa.Array:
    """The estimates of all groups, rounded to whole numbers."""
    return pa.array([round(merge_cpc([sketch]).estimate) for sketch in state], pa.int64())


def distinct_bounds(state: Sequence[bytes]) -> tuple[list[int], list[int]]:
    """Lower and upper bounds of all groups that hold about 19 times out of 20."""
    found = [merge_cpc([sketch]) for sketch in state]
    return [math.floor(one.lower) for one in found], [math.ceil(one.upper) for one in found]


# -- numbers as doubles --------------------------------------------------------------------------


def compact_keys(type: pa.DataType, column: ColumnMeasure) -> Array:
    """The keys in the narrowest form that holds those of all columns of the type.

    Decimals of more than 18 digits are doubles, at their scale. What lies under NULL is garbage.
    """
    space, storage = key_space(type), storage_type(type)
    if space.kind is Kind.BYTES:
        return _wide_decimals(column)
    keys = NumberKeys.of(column).keys
    if space.kind is Kind.FLOAT:
        return keys.astype(np.float64 if storage.bit_width == 64 else np.float32, copy=False)
    narrow = next(one for one in _WHOLE if np.iinfo(one).min <= space.low and space.high <= np.iinfo(one).max)
    return keys.astype(narrow, copy=False)


def doubles(type: pa.DataType, column: ColumnMeasure) -> NDArray[np.float64]:
    """The numbers as doubles, rounded if need be, with one zero only; times as their keys."""
    return compact_keys(type, column).astype(np.float64, copy=False) / 10.0 ** scale_of(type) + 0.0


def _wide_decimals(column: ColumnMeasure) -> NDArray[np.float64]:
    parts = [np.zeros(0, dtype=np.float64)]
    for chunk in column.chunks:
        whole = pa.decimal128(38, 0) if chunk.type.bit_width == 128 else pa.decimal256(76, 0)
        same = pa.Array.from_buffers(whole, len(chunk), chunk.buffers(), offset=chunk.offset)
        parts.append(pc.cast(same, pa.float64()).fill_null(0).to_numpy())
    return np.concatenate(parts)


# -- hashes of CPC -------------------------------------------------------------------------------

# A CPC sketch keeps which of its marks (coupons) were seen; a million values leave some 35 thousand different
# ones. The library takes values one by one only, so it pays to know which of them leave a new mark. The hash
# is the library's: 128 bits of MurmurHash3 of eight bytes, seed 9001.
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
