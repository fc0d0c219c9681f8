"""Measure the values of a chunk: exact bounds, NULL and NaN counts of pages, and bloom filters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.arrays import as_numpy, binary_keys, numbers, plain, valid_rows
from skipstone.core.domain.keys import Kind, is_ordered, key_space, storage_type
from skipstone.core.domain.spans import prefix_end
from skipstone.core.evidence import Array, ColumnFacts, hull, reduce_blocks, unbounded
from skipstone.core.ir.transforms import Same, Scale
from skipstone.core.plain import type_name
from skipstone.parquet.bloom import (
    _BLOCK_BYTES,
    _MAX_BYTES,
    BloomFilter,
    block_masks,
    block_numbers,
    hash_values,
)
from skipstone.parquet.schema import LeafColumn, LogicalKind, PhysicalType
from skipstone.parquet.values import conversion, widen

if TYPE_CHECKING:
    from numpy.typing import NDArray


# Longer bounds are truncated: they cost more than they help.
_LONGEST_BOUND: Final = 64


class NotMeasurable(Exception):
    """A column whose values have no order, or no exact conversion to the wanted type; callers skip it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True, eq=False)
class ChunkMeasure:
    """Facts and counts per page of one chunk, and its number of distinct values.

    Bounds are the least and the greatest value that is neither NULL nor NaN. They are exact, except truncated
    byte strings and zeros, whose sign is not significant. NaN counts as one distinct value, and so do both
    zeros together.
    """

    facts: ColumnFacts
    nulls: NDArray[np.int64]
    nans: NDArray[np.int64]
    rows: NDArray[np.int64]
    distinct: int
    rises: NDArray[np.int64]
    """Per page, the integers that are one more than the row before, wrapping around."""


def measure(
    type: pa.DataType, values: pa.Array | pa.ChunkedArray, first_rows: NDArray[np.int64]
) -> ChunkMeasure:
    """Measure a decoded chunk whose pages begin at ``first_rows``, in keys of ``type``."""
    space, column = key_space(type), read_column(type, values)
    rows = np.diff(first_rows, append=len(values))
    assert rows.sum() == len(values)
    assert (rows >= 0).all()
    nulls = column.nulls(first_rows)
    nans = np.zeros(len(rows), dtype=np.int64)
    rises = np.zeros(len(rows), dtype=np.int64)
    floor, ceiling = unbounded(type, len(rows))
    lower: Any
    upper: Any
    if space.kind is Kind.BYTES:
        keys = byte_keys(column.chunks)
        has = rows > nulls
        lower, upper, lower_exact, upper_exact = _byte_bounds(keys, first_rows, rows)
        unique = pc.unique(keys)
        distinct = len(unique) - unique.null_count
    else:
        numeric = NumberKeys.of(column)
        if space.kind is Kind.FLOAT:
            nans = numeric.nans(first_rows)
        has = rows > nulls + nans
        lower, upper = (
            np.where(has, ends.astype(space.dtype), limit)
            for ends, limit in zip(numeric.ends(first_rows), (floor, ceiling), strict=True)
        )
        lower_exact = upper_exact = has
        if space.kind is Kind.FLOAT:
            lower_exact, upper_exact = has & (lower != 0), has & (upper != 0)
            lower[lower == 0], upper[upper == 0] = -0.0, 0.0
        distinct = len(numeric.distinct())
        if space.kind is Kind.INT:
            rises = numeric.rises(first_rows)
    facts = ColumnFacts(
        type, lower, upper, lower_exact, upper_exact, may_value=has, may_null=nulls > 0, may_nan=nans > 0
    )
    return ChunkMeasure(facts, nulls, nans, rows, distinct, rises)


def whole(measured: ChunkMeasure) -> ColumnFacts:
    """Return the facts about all pages together, as one unit."""
    return hull(measured.facts, np.zeros(1, dtype=np.int64))


# -- columns -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class ColumnMeasure:
    """A column in plain chunks with the keys of the wanted type; ``valid`` is None without NULLs."""

    chunks: Sequence[pa.Array]
    valid: Array | None

    def nulls(self, starts: Array) -> NDArray[np.int64]:
        """NULLs per block."""
        if self.valid is None:
            return np.zeros(len(starts), dtype=np.int64)
        return _count(~self.valid, starts)


def read_column(type: pa.DataType, values: pa.Array | pa.ChunkedArray) -> ColumnMeasure:
    """Prepare values for measuring as ``type``, to which their own type must widen without loss."""
    if not is_ordered(type):
        raise NotMeasurable(f"values of type {type_name(type)} have no order")
    chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
    wanted = storage_type(type)
    try:
        chunks = [_as(plain(chunk), wanted, storage_type(values.type)) for chunk in chunks]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise NotMeasurable(
            f"value of type {type_name(values.type)} can't be converted to {type_name(type)}: {error}"
        ) from error
    masks = [valid_rows(chunk) for chunk in chunks]
    if all(mask is None for mask in masks):
        return ColumnMeasure(chunks, None)
    filled = [np.ones(len(c), dtype=bool) if m is None else m for c, m in zip(chunks, masks, strict=True)]
    return ColumnMeasure(chunks, _concat(filled))


def _as(array: pa.Array, wanted: pa.DataType, own: pa.DataType) -> pa.Array:
    if pa.types.is_null(own):
        return plain(pa.nulls(len(array), wanted))
    if pa.types.is_timestamp(own) and pa.types.is_timestamp(wanted) and own.tz is None and wanted.tz:
        # Local times don't widen to instants; these are instants that pyarrow reads without a zone.
        own = pa.timestamp(own.unit, wanted.tz)
        array = array.view(own)
    steps = widen(own, wanted)
    if steps is None:
        raise NotMeasurable(f"{own} does not widen to {wanted} exactly")
    scaled = any(isinstance(step, Scale) and step.times != 1 for step in steps)
    return array.cast(wanted) if scaled else array


def byte_keys(chunks: Sequence[pa.Array]) -> pa.ChunkedArray:
    """Return the keys of byte columns, with 64-bit offsets for variable lengths."""
    keys = [binary_keys(chunk) for chunk in chunks]
    if not keys:
        return pa.chunked_array([], pa.large_binary())
    fixed = pa.types.is_fixed_size_binary(keys[0].type)
    return pa.chunked_array(keys if fixed else [key.cast(pa.large_binary()) for key in keys])


@dataclass(frozen=True, slots=True, eq=False)
class NumberKeys:
    """The keys of a numeric column, in their original width; undefined where the value is NULL."""

    keys: Array
    valid: Array | None

    @classmethod
    def of(cls, column: ColumnMeasure) -> NumberKeys:
        """Concatenate the keys of all chunks; a single chunk is not copied."""
        return cls(_concat([numbers(chunk) for chunk in column.chunks]), column.valid)

    def filled(self, neutral: Any) -> Array:
        """Return the keys with ``neutral`` in place of NULLs."""
        return self.keys if self.valid is None else np.where(self.valid, self.keys, neutral)

    def nans(self, starts: Array) -> NDArray[np.int64]:
        """NaNs per block of a float column."""
        return _count(np.isnan(self.filled(0)), starts)

    def ends(self, starts: Array) -> tuple[Array, Array]:
        """The least and the greatest number per block; undefined for blocks without numbers."""
        if self.keys.dtype.kind == "f":
            keys = self.filled(np.nan)
            # fmin and fmax ignore NaN unless all values are NaN.
            return (
                reduce_blocks(np.fmin, keys, starts, empty=np.nan),
                reduce_blocks(np.fmax, keys, starts, empty=np.nan),
            )
        least, greatest = np.iinfo(self.keys.dtype).min, np.iinfo(self.keys.dtype).max
        return (
            reduce_blocks(np.minimum, self.filled(greatest), starts, empty=greatest),
            reduce_blocks(np.maximum, self.filled(least), starts, empty=least),
        )

    def rises(self, starts: Array) -> NDArray[np.int64]:
        """Per block, the numbers that are one more than the one before, including values under NULLs."""
        risen = np.zeros(len(self.keys), dtype=bool)
        if self.keys.dtype != np.bool_:
            risen[1:] = self.keys[1:] == self.keys[:-1] + self.keys.dtype.type(1)
        risen[starts[starts < len(risen)]] = False
        return _count(risen, starts)

    def distinct(self) -> Array:
        """The distinct keys in order: both zeros are one key, and NaN is the last."""
        keys = np.sort(self.keys if self.valid is None else self.keys[self.valid])
        fresh = np.ones(len(keys), dtype=bool)
        np.not_equal(keys[1:], keys[:-1], out=fresh[1:])
        if keys.dtype.kind == "f":
            fresh[1:] &= ~np.isnan(keys[:-1])
        return keys[fresh]


def _concat(parts: list[Array]) -> Array:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def _count(flags: Array, starts: Array) -> NDArray[np.int64]:
    return reduce_blocks(np.add, flags, starts, empty=0, dtype=np.int64)


# -- bounds of bytes ---------------------------------------------------------------------------


def _byte_bounds(
    keys: pa.ChunkedArray, first_rows: Array, rows: Array
) -> tuple[pa.Array, pa.Array, Array, Array]:
    """Return lower and upper bounds per page, truncated if they are long, and which of them are exact."""
    lower, upper, lower_exact, upper_exact = [], [], [], []
    # Page by page, because Arrow has no grouped minimum of byte strings that preserves the order of groups.
    for start, count in zip(first_rows.tolist(), rows.tolist(), strict=True):
        ends = pc.min_max(keys.slice(start, count))
        low, high = ends["min"].as_py(), ends["max"].as_py()
        lower_exact.append(low is not None and len(low) <= _LONGEST_BOUND)
        upper_exact.append(high is not None and len(high) <= _LONGEST_BOUND)
        lower.append(low if low is None else low[:_LONGEST_BOUND])
        cut = high is not None and len(high) > _LONGEST_BOUND
        upper.append(prefix_end(high[:_LONGEST_BOUND]) if cut else high)
    return (
        pa.array(lower, pa.large_binary()),
        pa.array(upper, pa.large_binary()),
        np.array(lower_exact, dtype=bool),
        np.array(upper_exact, dtype=bool),
    )


# -- bloom filters -----------------------------------------------------------------------------


_P, _K = PhysicalType, LogicalKind
# Rows per piece, so that intermediate results stay in the processor's cache.
_PIECE: Final = 1 << 14
# From this length on xxHash64 uses another algorithm.
_LONG: Final = 32
_PRIMES: Final = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)


def build_bloom(
    leaf: LeafColumn, values: pa.Array | pa.ChunkedArray, *, fpp: float = 0.01
) -> BloomFilter | None:
    """Build a filter of all values as ``leaf`` stores them; None if their encoding is uncertain.

    ``values`` have the type that pyarrow reads the file's column as. A zero is added as both zeros; NaN is
    not added, because it is never looked up. The false positive rate is at most ``fpp``, because the size of
    a filter is rounded up to a power of two.
    """
    own = storage_type(values.type)
    steps = conversion(leaf, own, own)
    if steps is None or not all(isinstance(step, Same) for step in steps):
        return None
    hashes = _hashes(leaf, own, read_column(own, values))
    return None if hashes is None else _fill(NumberKeys(hashes, None).distinct(), fpp)


def hash_rows(rows: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Hash each row of a matrix of less than 32 columns as :func:`~skipstone.parquet.bloom.hash_values` does.

    >>> hash_rows(np.frombuffer(b"forty-two", np.uint8).reshape(1, -1)) == hash_values([b"forty-two"])
    array([ True])
    """
    pieces = [_hash_piece(rows[at : at + _PIECE]) for at in range(0, len(rows), _PIECE)]
    return np.concatenate(pieces) if pieces else np.zeros(0, dtype=np.uint64)


def _hash_piece(rows: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """xxHash64 of short inputs: words of eight bytes, then one of four, then single bytes."""
    one, two, three, four, five = (np.uint64(prime) for prime in _PRIMES)
    width = rows.shape[1]
    assert width < _LONG
    state = np.full(len(rows), five + np.uint64(width), dtype=np.uint64)
    at = 0
    while at + 8 <= width:
        word = np.ascontiguousarray(rows[:, at : at + 8]).view("<u8")[:, 0]
        state ^= _rotate(word * two, 31) * one
        state = _rotate(state, 27) * one + four
        at += 8
    if at + 4 <= width:
        word = np.ascontiguousarray(rows[:, at : at + 4]).view("<u4")[:, 0].astype(np.uint64)
        state = _rotate(state ^ (word * one), 23) * two + three
        at += 4
    for byte in range(at, width):
        state = _rotate(state ^ (rows[:, byte].astype(np.uint64) * five), 11) * one
    state = (state ^ (state >> np.uint64(33))) * two
    state = (state ^ (state >> np.uint64(29))) * three
    return state ^ (state >> np.uint64(32))


def _rotate(words: NDArray[np.uint64], bits: int) -> NDArray[np.uint64]:
    return (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))


# -- values as stored --------------------------------------------------------------------------


def _hashes(leaf: LeafColumn, own: pa.DataType, column: ColumnMeasure) -> Array | None:
    """Return hashes of the stored values, possibly with duplicates."""
    physical, kind = leaf.physical, key_space(own).kind
    if kind is Kind.FLOAT:
        return _hash_floats(leaf, column)
    if physical in (_P.INT32, _P.INT64) and kind is Kind.INT:
        stored: Any = np.uint32 if physical is _P.INT32 else np.uint64
        return _hash_numbers(_present(NumberKeys.of(column).keys, column).astype(stored))
    if pa.types.is_decimal(own):
        # Writers pad decimals of variable length differently.
        fixed = physical is _P.FIXED_LEN_BYTE_ARRAY and leaf.type_length < _LONG
        return hash_rows(_big_endian(leaf.type_length, own, column)) if fixed else None
    if physical is _P.FIXED_LEN_BYTE_ARRAY and pa.types.is_fixed_size_binary(own) and own.byte_width < _LONG:
        return hash_rows(_rows(own.byte_width, column))
    if physical in (_P.BYTE_ARRAY, _P.FIXED_LEN_BYTE_ARRAY) and kind is Kind.BYTES:
        return hash_values(pc.unique(byte_keys(column.chunks)).drop_null().to_pylist())
    return None


def _hash_numbers(keys: Array) -> Array:
    return hash_rows(np.ascontiguousarray(keys).view(np.uint8).reshape(-1, keys.dtype.itemsize))


def _hash_floats(leaf: LeafColumn, column: ColumnMeasure) -> Array:
    keys = _present(NumberKeys.of(column).keys, column)
    # Adding zero makes all zeros positive.
    keys = keys[~np.isnan(keys)] + keys.dtype.type(0)
    if (keys == 0).any():
        keys = np.append(keys, keys.dtype.type(-0.0))
    return _hash_numbers(keys.astype(np.float16) if leaf.logical.kind is _K.FLOAT16 else keys)


def _big_endian(width: int, type: pa.DataType, column: ColumnMeasure) -> NDArray[np.uint8]:
    """Return decimals as big-endian numbers of ``width`` bytes, one per row."""
    stored = type.bit_width // 8
    numbers = _rows(stored, column)
    signs = np.where(numbers[:, -1:] >= 0x80, np.uint8(0xFF), np.uint8(0))
    padded = np.hstack((numbers[:, :width], np.repeat(signs, max(width - stored, 0), axis=1)))
    return np.ascontiguousarray(padded[:, ::-1])


def _rows(width: int, column: ColumnMeasure) -> NDArray[np.uint8]:
    """Return the bytes of fixed-width values, one per row."""
    chunks = [as_numpy(chunk, np.uint8, width).reshape(-1, width) for chunk in column.chunks]
    return _present(np.concatenate(chunks) if chunks else np.zeros((0, width), dtype=np.uint8), column)


def _present(values: Array, column: ColumnMeasure) -> Array:
    return values if column.valid is None else values[column.valid]


# -- bits --------------------------------------------------------------------------------------


def _fill(hashes: Array, fpp: float) -> BloomFilter:
    """Build the filter of sorted hashes."""
    count = _size(len(hashes), fpp) // _BLOCK_BYTES
    filled = np.zeros((count, 8), dtype=np.uint32)
    for at in range(0, len(hashes), _PIECE):
        piece = hashes[at : at + _PIECE]
        # Block numbers increase with the hash, so hashes of one block are neighbours.
        blocks = block_numbers(piece, count)
        starts = np.flatnonzero(np.diff(blocks, prepend=-1))
        filled[blocks[starts]] |= np.bitwise_or.reduceat(block_masks(piece), starts, axis=0)
    return BloomFilter(filled)


def _size(distinct: int, fpp: float) -> int:
    """Bytes for a number of values: the format's formula, rounded up to a power of two."""
    assert 0 < fpp < 1
    bits = -8 * distinct / math.log1p(-(fpp ** (1 / 8)))
    wanted = max(math.ceil(bits / 8), _BLOCK_BYTES)
    return min(1 << (wanted - 1).bit_length(), _MAX_BYTES)
