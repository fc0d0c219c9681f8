"""Mergeable estimates: distinct counts (CPC) and quantiles (KLL) from Apache DataSketches.

Estimates are never used for pruning. A CPC sketch is accurate to about 2.2 % (two standard deviations), and
depends only on the set of values. The rank error of a KLL sketch is about 1.3 %; KLL is randomized, so two
sketches of the same values can differ.

The library can crash the process on damaged bytes, so sketches are stored with a checksum, which is verified
before they are deserialized.
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
from skipstone.aggregate.states.state import (
    Measure,
    Path,
    RowSelection,
    concat_states,
    group_runs,
    valid_values,
)
from skipstone.core.domain.keys import Kind, is_ordered, key_space, storage_type
from skipstone.core.evidence import Array
from skipstone.core.plain import type_name
from skipstone.errors import TypeMismatchError
from skipstone.parquet.bloom import hash_values
from skipstone.parquet.measure import ColumnMeasure, NumberKeys, byte_keys, read_column

if TYPE_CHECKING:
    from numpy.typing import NDArray

CPC: Final = "cpc"
KLL: Final = "kll"
_K: Final = 200
_DEVIATIONS: Final = 2
_CHECKSUM_SIZE: Final = 8
_NANS: Final = struct.Struct("<q")
_READ_ERRORS: Final = (ValueError, IndexError, RuntimeError, MemoryError)
_INTEGERS: Final = [np.dtype(name) for name in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")]


class BadSketch(Exception):
    """Raised for a damaged sketch; callers read the rows instead."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class DistinctEstimate:
    """Estimated number of distinct values, with 95 % confidence bounds."""

    estimate: float
    lower: float
    upper: float
    sketch: bytes


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Distribution of numbers as doubles: integers beyond 2⁵³ are rounded, NULL is ignored, NaN last."""

    count: int
    """Number of values, including NaN."""
    nans: int
    error: float
    """Rank error, from 0 to 1, at 99 % confidence."""
    sketch: bytes

    def values(self, ranks: Sequence[float]) -> list[float]:
        """Values at ranks from 0 to 1; an empty list if there are no values."""
        if not self.count:
            return []
        sketch, _ = _kll(self.sketch)
        numbers = self.count - self.nans
        # Ranks among the numbers, since NaN comes last.
        inner = [rank * self.count / numbers if numbers else np.inf for rank in ranks]
        return [_value(sketch, rank) if rank <= 1 else np.nan for rank in inner]


# -- making ------------------------------------------------------------------------------------


def sketches(type: pa.DataType, values: pa.Array | pa.ChunkedArray) -> dict[str, bytes]:
    """Sketches of a column by kind: CPC for all ordered types, KLL for numbers and times.

    NaN counts as one distinct value. Raises NotMeasurable like :func:`skipstone.parquet.measure.measure`.
    """
    start = np.zeros(1, dtype=np.int64)
    by_kind = {CPC: cpc_sketches(type, values, start)[0]}
    if key_space(type).kind is not Kind.BYTES or pa.types.is_decimal(storage_type(type)):
        by_kind[KLL] = kll_sketches(type, values, start)[0]
    return by_kind


def cpc_sketches(type: pa.DataType, values: pa.Array | pa.ChunkedArray, starts: Array) -> list[bytes]:
    """CPC sketches of the blocks that begin at ``starts``."""
    import datasketches

    column = read_column(type, values)
    words, all_coupons = _words_and_coupons(type, column)
    all_coupons, _ = valid_values(all_coupons, column.valid, starts)
    words, starts = valid_values(words, column.valid, starts)
    numbers = np.arange(len(words), dtype=np.int64)
    last_row = np.empty(COUPONS, dtype=np.int64)
    result = []
    for start, stop in pairwise([*starts.tolist(), len(words)]):
        block_coupons, rows = all_coupons[start:stop], numbers[start:stop]
        last_row[block_coupons] = rows
        sketch = datasketches.cpc_sketch(LG_ROWS)
        # The library has no array API, but values with the same coupon need only one update.
        for word in words[rows[last_row[block_coupons] == rows]].tolist():
            sketch.update(word)
        result.append(_add_checksum(CPC, sketch.serialize()))
    return result


def _words_and_coupons(type: pa.DataType, column: ColumnMeasure) -> tuple[Array, Array]:
    """64-bit word and CPC coupon of each value."""
    if key_space(type).kind is not Kind.BYTES:
        words = _words(NumberKeys.of(column).keys)
        return words, coupons(words)
    # The library doesn't accept bytes and ignores the empty string, so values are hashed first.
    coded = byte_keys(column.chunks).combine_chunks().dictionary_encode()
    hashes = np.append(hash_values(coded.dictionary.to_pylist()), np.uint64(0))
    codes = coded.indices.fill_null(len(hashes) - 1).to_numpy()
    return hashes[codes], coupons(hashes)[codes]


def _words(keys: Array) -> Array:
    """Numbers as 64-bit words; equal numbers of any width have equal words."""
    if keys.dtype.kind != "f":
        # The library treats negative integers as floats.
        return keys.astype(np.int64 if keys.dtype.kind == "i" else np.uint64).view(np.uint64)
    wide = keys.astype(np.float64) + 0.0  # normalizes -0.0
    wide[np.isnan(wide)] = np.nan
    return wide.view(np.uint64)


def kll_sketches(type: pa.DataType, values: pa.Array | pa.ChunkedArray, starts: Array) -> list[bytes]:
    """KLL sketches of the blocks that begin at ``starts``; times are sketched as keys."""
    import datasketches

    column = read_column(type, values)
    numbers, starts = valid_values(doubles(type, column), column.valid, starts)
    is_nan = np.isnan(numbers)
    result = []
    # Block by block, since each sketch is a library object.
    for start, stop in pairwise([*starts.tolist(), len(numbers)]):
        nans = int(is_nan[start:stop].sum())
        block = numbers[start:stop]
        sketch = datasketches.kll_doubles_sketch(_K)
        sketch.update(block[~is_nan[start:stop]] if nans else block)
        result.append(_add_checksum(KLL, sketch.serialize() + _NANS.pack(nans)))
    return result


# -- merging ----------------------------------------------------------------------------------


def merge_cpc(parts: Sequence[bytes]) -> DistinctEstimate:
    """Estimate the distinct values of the union."""
    import datasketches

    union = datasketches.cpc_union(LG_ROWS)
    for part in parts:
        union.update(_read(datasketches.cpc_sketch, _verify(CPC, part)))
    merged = union.get_result()
    return DistinctEstimate(
        merged.get_estimate(),
        merged.get_lower_bound(_DEVIATIONS),
        merged.get_upper_bound(_DEVIATIONS),
        _add_checksum(CPC, merged.serialize()),
    )


def merge_kll(parts: Sequence[bytes]) -> Quantiles:
    """Merge the distributions."""
    import datasketches

    merged, nans = datasketches.kll_doubles_sketch(_K), 0
    for part in parts:
        sketch, part_nans = _kll(part)
        merged.merge(sketch)
        nans += part_nans
    error = merged.normalized_rank_error(False) if merged.is_estimation_mode() else 0.0
    return Quantiles(merged.n + nans, nans, error, _add_checksum(KLL, merged.serialize() + _NANS.pack(nans)))


def _value(sketch: Any, rank: float) -> float:
    if 0 < rank < 1:
        return float(sketch.get_quantile(rank, True))
    # The library has the minimum and maximum, but doesn't return them for these ranks.
    return float(sketch.get_max_value() if rank else sketch.get_min_value())


def _kll(part: bytes) -> tuple[Any, int]:
    import datasketches

    data = _verify(KLL, part)
    (nans,) = _NANS.unpack(data[-_NANS.size :])
    return _read(datasketches.kll_doubles_sketch, data[: -_NANS.size]), nans


# -- checksums ---------------------------------------------------------------------------------


def _add_checksum(kind: str, data: bytes) -> bytes:
    return data + _checksum(kind, data)


def _checksum(kind: str, data: bytes) -> bytes:
    return hash_values([kind.encode() + data]).astype("<u8").tobytes()


def _verify(kind: str, part: bytes) -> bytes:
    data, checksum = part[:-_CHECKSUM_SIZE], part[-_CHECKSUM_SIZE:]
    if _checksum(kind, data) != checksum:
        raise BadSketch(f"{kind} sketch is damaged")
    return data


def _read(kind: Any, data: bytes) -> Any:
    try:
        return kind.deserialize(data)
    except _READ_ERRORS as error:
        raise BadSketch(f"sketch can't be deserialized: {error}") from error


# -- the measure ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SketchMeasure(Measure[list[bytes]]):
    """A sketch of a column per group: CPC for distinct values, KLL for quantiles."""

    kind: str
    path: Path
    type: pa.DataType

    def __post_init__(self) -> None:
        if self.kind == KLL:
            check_quantiles(self.type, self.path)
        elif not is_ordered(self.type):
            raise TypeMismatchError(
                f"distinct values of type {type_name(self.type)} can't be counted",
                column=".".join(self.path),
                hint="use one of its leaf fields",
            )

    @property
    def columns(self) -> tuple[Path, ...]:
        return (self.path,)

    def update(self, rows: RowSelection) -> list[bytes]:
        make = cpc_sketches if self.kind == CPC else kll_sketches
        return make(self.type, rows.column(self.path), rows.starts)

    def join(self, states: Sequence[list[bytes]]) -> list[bytes]:
        return concat_states(states)

    def fold(self, state: list[bytes], order: Array, starts: Array) -> list[bytes]:
        merge: Callable[[list[bytes]], DistinctEstimate | Quantiles]
        merge = merge_cpc if self.kind == CPC else merge_kll
        return [run[0] if len(run) == 1 else merge(run).sketch for run in group_runs(state, order, starts)]

    @property
    def sketch(self) -> str:
        return self.kind

    def from_sketches(self, blobs: Sequence[bytes]) -> list[bytes]:
        """Verify the sketches; raises :class:`BadSketch` for a damaged one."""
        for blob in blobs:
            _verify(self.kind, blob)
        return list(blobs)


def check_quantiles(type: pa.DataType, path: Path) -> None:
    """Raise if a type has no quantiles."""
    if not is_number(type):
        raise TypeMismatchError(
            f"quantiles of type {type_name(type)} can't be computed",
            column=".".join(path),
            hint="use a numeric column",
        )


def distinct_counts(state: Sequence[bytes]) -> pa.Array:
    """Estimates of all groups, rounded to integers."""
    return pa.array([round(merge_cpc([sketch]).estimate) for sketch in state], pa.int64())


def distinct_bounds(state: Sequence[bytes]) -> tuple[list[int], list[int]]:
    """95 % confidence bounds of all groups."""
    merged = [merge_cpc([sketch]) for sketch in state]
    return [math.floor(m.lower) for m in merged], [math.ceil(m.upper) for m in merged]


# -- numbers as doubles --------------------------------------------------------------------------


def compact_keys(type: pa.DataType, column: ColumnMeasure) -> Array:
    """Keys in the narrowest dtype that fits the type.

    Decimals of more than 18 digits are scaled doubles. Values under NULL are undefined.
    """
    space, storage = key_space(type), storage_type(type)
    if space.kind is Kind.BYTES:
        return _wide_decimals(column)
    keys = NumberKeys.of(column).keys
    if space.kind is Kind.FLOAT:
        return keys.astype(np.float64 if storage.bit_width == 64 else np.float32, copy=False)
    narrow = next(t for t in _INTEGERS if np.iinfo(t).min <= space.low and space.high <= np.iinfo(t).max)
    return keys.astype(narrow, copy=False)


def doubles(type: pa.DataType, column: ColumnMeasure) -> NDArray[np.float64]:
    """Numbers as doubles, rounded if necessary, with normalized zeros; times as keys."""
    return compact_keys(type, column).astype(np.float64, copy=False) / 10.0 ** scale_of(type) + 0.0


def _wide_decimals(column: ColumnMeasure) -> NDArray[np.float64]:
    parts = [np.zeros(0, dtype=np.float64)]
    for chunk in column.chunks:
        integer_type = pa.decimal128(38, 0) if chunk.type.bit_width == 128 else pa.decimal256(76, 0)
        unscaled = pa.Array.from_buffers(integer_type, len(chunk), chunk.buffers(), offset=chunk.offset)
        parts.append(pc.cast(unscaled, pa.float64()).fill_null(0).to_numpy())
    return np.concatenate(parts)


# -- CPC coupons ---------------------------------------------------------------------------------

# A CPC sketch records the coupons it has seen; a million values have about 35 thousand different ones. The
# library accepts only single values, so it pays to skip values with a coupon seen before. The hash is the
# library's: 128 bits of MurmurHash3 of eight bytes, seed 9001.
LG_ROWS: Final = 12
COUPONS: Final = 1 << (LG_ROWS + 6)
"""Number of different coupons."""
_MASK: Final = np.uint64((1 << LG_ROWS) - 1)
# The seed and the length of a value are combined with both halves of the hash.
_START: Final = np.uint64(9001 ^ 8)
_FIRST, _SECOND = np.uint64(0x87C37B91114253D5), np.uint64(0x4CF5AD432745937F)
_THIRD, _FOURTH = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_31, _33 = np.uint64(31), np.uint64(33)
# The upper bits of a word fit into a double.
_LOWER: Final = np.uint64(11)
_UPPER_BITS: Final = 53
# A piece and its hashes fit into the CPU cache.
_PIECE: Final = 1 << 14


def coupons(words: NDArray[np.uint64]) -> NDArray[np.int32]:
    """Coupon of each value: the row of the sketch, and the number of leading zeros of the hash."""
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
    low, high = _finalize(low), _finalize(high)
    low += high
    return low, high + low


def _finalize(half: Array) -> Array:
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
