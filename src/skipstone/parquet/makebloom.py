"""Split-block bloom filters of decoded values, for chunks whose writer made none."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.arrays import as_numpy
from skipstone.core.domain.keys import Kind, key_space, storage_type
from skipstone.core.evidence import Array
from skipstone.core.ir.transforms import Same
from skipstone.parquet.bloom import (
    _BLOCK_BYTES,
    _MAX_BYTES,
    BloomFilter,
    block_masks,
    block_numbers,
    hash_values,
)
from skipstone.parquet.measure import Column, NumberKeys, byte_keys, read_column
from skipstone.parquet.schema import LeafColumn, LogicalKind, PhysicalType
from skipstone.parquet.values import conversion

if TYPE_CHECKING:
    from numpy.typing import NDArray

_P, _K = PhysicalType, LogicalKind
# Rows at a time, so that what is computed from them stays in the processor's cache.
_PIECE: Final = 1 << 14
# From here on xxHash64 takes another way.
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
    """A filter of all values as ``leaf`` stores them; None where what is stored isn't certain.

    ``values`` have the type that pyarrow reads the file's column as. A zero stands for both zeros; NaN is
    left out, since it is never looked up. About ``fpp`` of absent values are found, or fewer, since a
    filter's size is a power of two.
    """
    own = storage_type(values.type)
    steps = conversion(leaf, own, own)
    if steps is None or not all(isinstance(step, Same) for step in steps):
        return None
    hashes = _hashes(leaf, own, read_column(own, values))
    return None if hashes is None else _filled(NumberKeys(hashes, None).distinct(), fpp)


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
        state ^= _rotated(word * two, 31) * one
        state = _rotated(state, 27) * one + four
        at += 8
    if at + 4 <= width:
        word = np.ascontiguousarray(rows[:, at : at + 4]).view("<u4")[:, 0].astype(np.uint64)
        state = _rotated(state ^ (word * one), 23) * two + three
        at += 4
    for place in range(at, width):
        state = _rotated(state ^ (rows[:, place].astype(np.uint64) * five), 11) * one
    state = (state ^ (state >> np.uint64(33))) * two
    state = (state ^ (state >> np.uint64(29))) * three
    return state ^ (state >> np.uint64(32))


def _rotated(words: NDArray[np.uint64], bits: int) -> NDArray[np.uint64]:
    return (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))


# -- values as stored --------------------------------------------------------------------------


def _hashes(leaf: LeafColumn, own: pa.DataType, column: Column) -> Array | None:
    """Hashes of the stored values; those of values that occur twice may, too."""
    physical, kind = leaf.physical, key_space(own).kind
    if kind is Kind.FLOAT:
        return _hash_floats(leaf, column)
    if physical in (_P.INT32, _P.INT64) and kind is Kind.INT:
        stored: Any = np.uint32 if physical is _P.INT32 else np.uint64
        return _hash_numbers(_present(NumberKeys.of(column).keys, column).astype(stored))
    if pa.types.is_decimal(own):
        # One of varying length may be padded as the writer likes.
        fixed = physical is _P.FIXED_LEN_BYTE_ARRAY and leaf.type_length < _LONG
        return hash_rows(_big_endian(leaf.type_length, own, column)) if fixed else None
    if physical is _P.FIXED_LEN_BYTE_ARRAY and pa.types.is_fixed_size_binary(own) and own.byte_width < _LONG:
        return hash_rows(_rows(own.byte_width, column))
    if physical in (_P.BYTE_ARRAY, _P.FIXED_LEN_BYTE_ARRAY) and kind is Kind.BYTES:
        return hash_values(pc.unique(byte_keys(column.chunks)).drop_null().to_pylist())
    return None


def _hash_numbers(keys: Array) -> Array:
    return hash_rows(np.ascontiguousarray(keys).view(np.uint8).reshape(-1, keys.dtype.itemsize))


def _hash_floats(leaf: LeafColumn, column: Column) -> Array:
    keys = _present(NumberKeys.of(column).keys, column)
    # Adding zero makes all zeros positive.
    keys = keys[~np.isnan(keys)] + keys.dtype.type(0)
    if (keys == 0).any():
        keys = np.append(keys, keys.dtype.type(-0.0))
    return _hash_numbers(keys.astype(np.float16) if leaf.logical.kind is _K.FLOAT16 else keys)


def _big_endian(width: int, type: pa.DataType, column: Column) -> NDArray[np.uint8]:
    """Decimals as big-endian numbers of ``width`` bytes, one a row."""
    stored = type.bit_width // 8
    numbers = _rows(stored, column)
    signs = np.where(numbers[:, -1:] >= 0x80, np.uint8(0xFF), np.uint8(0))
    padded = np.hstack((numbers[:, :width], np.repeat(signs, max(width - stored, 0), axis=1)))
    return np.ascontiguousarray(padded[:, ::-1])


def _rows(width: int, column: Column) -> NDArray[np.uint8]:
    """The bytes of values of a fixed width, one a row."""
    chunks = [as_numpy(chunk, np.uint8, width).reshape(-1, width) for chunk in column.chunks]
    return _present(np.concatenate(chunks) if chunks else np.zeros((0, width), dtype=np.uint8), column)


def _present(values: Array, column: Column) -> Array:
    return values if column.valid is None else values[column.valid]


# -- bits --------------------------------------------------------------------------------------


def _filled(hashes: Array, fpp: float) -> BloomFilter:
    """The filter of hashes in order."""
    count = _size(len(hashes), fpp) // _BLOCK_BYTES
    filled = np.zeros((count, 8), dtype=np.uint32)
    for at in range(0, len(hashes), _PIECE):
        piece = hashes[at : at + _PIECE]
        # A block's number grows with the hash, so those of one block are neighbours.
        blocks = block_numbers(piece, count)
        starts = np.flatnonzero(np.diff(blocks, prepend=-1))
        filled[blocks[starts]] |= np.bitwise_or.reduceat(block_masks(piece), starts, axis=0)
    return BloomFilter(filled)


def _size(distinct: int, fpp: float) -> int:
    """Bytes for so many values: the format's own formula, up to a power of two."""
    assert 0 < fpp < 1
    bits = -8 * distinct / math.log1p(-(fpp ** (1 / 8)))
    wanted = max(math.ceil(bits / 8), _BLOCK_BYTES)
    return min(1 << (wanted - 1).bit_length(), _MAX_BYTES)
