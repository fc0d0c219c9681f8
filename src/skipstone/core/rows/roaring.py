"""Conversion of runs to roaring bitmaps and back, without expanding runs; bitmaps as words of bits.

``bitmap ^ (bitmap shifted by one)`` contains exactly the edges of the bitmap's runs, so extracting runs is as
fast as roaring itself. pyroaring has no other bulk API, so the portable format is written and read with NumPy
(https://github.com/RoaringBitmap/RoaringFormatSpec): runs become run containers, which roaring then
optimizes, and bitset containers are copied as words.

A serialized row set is a small header, the smaller of two payloads, and a checksum over both:

    magic "SKRS" · version u8 · kind u8 · total u64 · payload · xxh3-64 of everything before it

Kind 0 is runs as alternating gaps and lengths in LEB128; kind 1 is roaring's portable format, 32-bit
up to 2**32 rows and 64-bit above. Numbers are little-endian.
"""

from __future__ import annotations

import struct
from array import array
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import xxhash
from pyroaring import AbstractBitMap, AbstractBitMap64, BitMap, BitMap64

from skipstone.core.rows import runs as run
from skipstone.core.rows.runs import Array, Int64Array, Runs
from skipstone.errors import RowSetError

Bitmap: TypeAlias = Any  # pyroaring's 32-bit and 64-bit classes share their methods but no base class
LIMIT_32 = 2**32
CONTAINER_BITS = 16
CONTAINER_ROWS = 1 << CONTAINER_BITS

_COOKIE_WITH_RUNS = 12347
_OFFSETS_FROM = 4  # fewer containers have no offset header
_ARRAY_UP_TO = 4096  # largest container that is stored as an array
_CONTAINER_BYTES = CONTAINER_ROWS // 8


def class_for(total: int) -> Bitmap:
    """Bitmap class for files of this many rows."""
    return BitMap if total <= LIMIT_32 else BitMap64


def is_bitmap(value: object) -> bool:
    """Whether a value is a pyroaring bitmap."""
    return isinstance(value, AbstractBitMap | AbstractBitMap64)


def fits(bitmap: Bitmap, total: int) -> bool:
    """Whether a bitmap has the width for files of this many rows."""
    return isinstance(bitmap, AbstractBitMap if total <= LIMIT_32 else AbstractBitMap64)


def span(start: int, stop: int, total: int) -> Bitmap:
    """Bitmap of one range of rows in a file of ``total`` rows."""
    return class_for(total)(range(start, stop))


def from_positions(positions: Int64Array, total: int) -> Bitmap:
    """Bitmap of ascending positions."""
    # pyroaring reads an array.array in bulk, but iterates over a NumPy array.
    bitmap: Bitmap
    if total <= LIMIT_32:
        bitmap = BitMap(array("I", positions.astype(np.uint32).tobytes()))
    else:
        bitmap = BitMap64(array("Q", positions.astype(np.uint64).tobytes()))
    bitmap.run_optimize()
    return bitmap


def run_count(bitmap: Bitmap) -> int:
    """Number of runs of a bitmap."""
    edges: int = bitmap.symmetric_difference_cardinality(bitmap.shift(1))
    # A 32-bit bitmap can't contain an edge at 2**32.
    return (edges + 1) // 2


def to_runs(bitmap: Bitmap) -> Runs:
    """Runs of a bitmap."""
    edges = np.asarray((bitmap ^ bitmap.shift(1)).to_array())
    if len(edges) % 2:
        edges = np.append(edges.astype(np.int64), np.int64(LIMIT_32))
    return run.from_edges(edges)


def run_ends(bitmap: Bitmap) -> tuple[Array, Array]:
    """First and last members of a bitmap's runs, as uint64."""
    edges = np.asarray((bitmap ^ bitmap.shift(1)).to_array()).astype(np.uint64)
    # There is no edge after the largest number.
    lasts = np.append(edges[1::2] - np.uint64(1), np.uint64(bitmap.max()))
    return edges[0::2], lasts[: (len(edges) + 1) // 2]


def from_runs(runs: Runs, total: int) -> Bitmap:
    """Bitmap of runs."""
    bitmap: Bitmap
    keys, lows, highs = _pieces(runs)
    if total <= LIMIT_32:
        bitmap = BitMap.deserialize(_portable(keys, lows, highs)) if len(keys) else BitMap()
    else:
        highs_of_key = keys >> CONTAINER_BITS
        bounds = np.concatenate(([0], np.flatnonzero(np.diff(highs_of_key)) + 1, [len(keys)])).tolist()
        # One iteration per 2**32 rows, each a 32-bit bitmap in the 64-bit format.
        parts = [
            struct.pack("<I", int(highs_of_key[lo]))
            + _portable(keys[lo:hi] & (CONTAINER_ROWS - 1), lows[lo:hi], highs[lo:hi])
            for lo, hi in pairwise(bounds)
            if lo < hi
        ]
        bitmap = BitMap64.deserialize(struct.pack("<Q", len(parts)) + b"".join(parts))
    bitmap.run_optimize()
    return bitmap


def min_containers(runs: Runs) -> int:
    """Lower bound of the number of containers of a bitmap of these runs."""
    starts, stops = runs
    begun = int(np.count_nonzero(np.diff(starts >> CONTAINER_BITS, prepend=-1)))
    return max(begun, int((stops - starts).sum()) >> CONTAINER_BITS)


def _pieces(runs: Runs) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Split runs at container boundaries: (container key, first row, last row), relative to the container."""
    starts, stops = runs
    lasts = stops - 1
    first_keys = starts >> CONTAINER_BITS
    pieces = (lasts >> CONTAINER_BITS) - first_keys + 1
    index = np.repeat(np.arange(len(starts), dtype=np.int64), pieces)
    skipped = np.cumsum(pieces) - pieces
    keys = np.arange(len(index), dtype=np.int64) + (first_keys - skipped)[index]
    base = keys << CONTAINER_BITS
    lows = np.maximum(starts[index] - base, 0)
    highs = np.minimum(lasts[index] - base, CONTAINER_ROWS - 1)
    return keys, lows, highs


def _portable(keys: Int64Array, lows: Int64Array, highs: Int64Array) -> bytes:
    """Serialize pieces in the 32-bit portable format, with run containers only."""
    firsts = np.concatenate(([0], np.flatnonzero(np.diff(keys)) + 1))
    containers = len(firsts)
    pieces = np.diff(np.append(firsts, len(keys)))
    lengths = highs - lows
    header = np.empty((containers, 2), "<u2")
    header[:, 0] = keys[firsts]
    header[:, 1] = np.add.reduceat(lengths + 1, firsts) - 1
    # A container is its number of runs, followed by a (first row, length - 1) pair per run.
    body = np.empty(containers + 2 * len(keys), "<u2")
    body[2 * firsts + np.arange(containers)] = pieces
    slots = 2 * np.arange(len(keys)) + np.repeat(np.arange(1, containers + 1), pieces)
    body[slots] = lows
    body[slots + 1] = lengths
    flags = np.packbits(np.ones(containers, np.bool_), bitorder="little").tobytes()
    front = struct.pack("<I", _COOKIE_WITH_RUNS | (containers - 1) << 16) + flags + header.tobytes()
    if containers >= _OFFSETS_FROM:
        at = len(front) + 4 * containers + 2 * (2 * firsts + np.arange(containers))
        front += at.astype("<u4").tobytes()
    return front + body.tobytes()


# -- bits ----------------------------------------------------------------------------------------


def to_words(bitmap: Bitmap) -> tuple[int, Array]:
    """First id of the words, and the bits in 64-bit words up to the largest member."""
    first, last = bitmap.min() >> CONTAINER_BITS, bitmap.max() >> CONTAINER_BITS
    words = np.zeros((last - first + 1) * (_CONTAINER_BYTES // 8), np.uint64)
    bits = words.view(np.uint8).reshape(-1, _CONTAINER_BYTES)
    data: bytes = bitmap.serialize()
    if fits(bitmap, LIMIT_32):
        _copy_containers(data, 0, bits, -first)
    else:
        (parts,) = struct.unpack_from("<Q", data)
        at = 8
        for _ in range(parts):  # one iteration per 2**32 ids
            (upper,) = struct.unpack_from("<I", data, at)
            at = _copy_containers(data, at + 4, bits, (upper << CONTAINER_BITS) - first)
    return first << CONTAINER_BITS, words


def _copy_containers(data: bytes, at: int, bits: Array, offset: int) -> int:
    """Copy the containers of one 32-bit bitmap into ``bits``; returns the offset of its end."""
    (cookie,) = struct.unpack_from("<I", data, at)
    if cookie & 0xFFFF == _COOKIE_WITH_RUNS:
        count = (cookie >> 16) + 1
        marks = np.frombuffer(data, np.uint8, -(-count // 8), at + 4)
        has_runs = np.unpackbits(marks, count=count, bitorder="little").tolist()
        at += 4 + len(marks)
    else:
        (count,) = struct.unpack_from("<I", data, at + 4)
        has_runs = [0] * count
        at += 8
    header = np.frombuffer(data, "<u2", 2 * count, at).astype(np.int64).tolist()
    at += 4 * count
    if cookie & 0xFFFF != _COOKIE_WITH_RUNS or count >= _OFFSETS_FROM:
        at += 4 * count
    # A loop over containers of 65,536 ids, since layout and length vary.
    for key, below_size, is_run in zip(header[0::2], header[1::2], has_runs, strict=True):
        to, size = bits[key + offset], below_size + 1
        if is_run:
            (runs,) = struct.unpack_from("<H", data, at)
            pairs = np.frombuffer(data, "<u2", 2 * runs, at + 2).astype(np.int64)
            starts = pairs[0::2]
            flags = run.to_mask((starts, starts + pairs[1::2] + 1), CONTAINER_ROWS)
            to[:] = np.packbits(flags, bitorder="little")
            at += 2 + 4 * runs
        elif size <= _ARRAY_UP_TO:
            member = np.zeros(CONTAINER_ROWS, bool)
            member[np.frombuffer(data, "<u2", size, at)] = True
            to[:] = np.packbits(member, bitorder="little")
            at += 2 * size
        else:
            to[:] = np.frombuffer(data, np.uint8, _CONTAINER_BYTES, at)
            at += _CONTAINER_BYTES
    return at


MAGIC = b"SKRS"
VERSION = 1
KIND_RUNS = 0
KIND_ROARING = 1

_HEADER = struct.Struct("<4sBBQ")
_CHECKSUM_BYTES = 8
_VARINT_BYTES = 9  # 9 x 7 = 63 bits, enough for a non-negative int64
_MIN_CONTAINER_BYTES = 10  # 8 bytes of headers and one row
_MAX_VARINT_BYTES = 32  # varints of up to this size are always smaller than roaring, whose header is 16 bytes


def encode_runs(runs: Runs, total: int) -> bytes:
    """Serialize a row set of runs."""
    varints = _encode_varints(_deltas(runs))
    # Long or distant runs touch many containers, so varints win without building a bitmap.
    if len(varints) > max(_MAX_VARINT_BYTES, _MIN_CONTAINER_BYTES * min_containers(runs)):
        portable: bytes = from_runs(runs, total).serialize()
        if len(portable) <= len(varints):
            return _frame(KIND_ROARING, total, portable)
    return _frame(KIND_RUNS, total, varints)


def encode_bitmap(bitmap: Bitmap, run_count: int, total: int) -> bytes:
    """Serialize a row set of a bitmap."""
    portable: bytes = bitmap.serialize()
    # A run takes at least two varint bytes, so for most bitmaps the runs need not be extracted.
    if len(portable) > 2 * run_count:
        deltas = _deltas(to_runs(bitmap))
        if _varint_size(deltas) < len(portable):
            return _frame(KIND_RUNS, total, _encode_varints(deltas))
    return _frame(KIND_ROARING, total, portable)


def decode(data: bytes) -> tuple[int, Runs | Bitmap]:
    """Deserialize and validate; returns the total and either runs (a tuple) or a bitmap."""
    if len(data) < _HEADER.size + _CHECKSUM_BYTES:
        raise _corrupt(f"only {len(data)} bytes")
    magic, version, kind, total = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise _corrupt("wrong magic")
    if version != VERSION:
        raise RowSetError(
            f"serialized row set has version {version}, this release reads version {VERSION}",
            hint="serialize it again, or upgrade skipstone",
        )
    body, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
    if xxhash.xxh3_64_digest(body) != checksum:
        raise _corrupt("checksum mismatch")
    payload = body[_HEADER.size :]
    if kind == KIND_RUNS:
        return total, _runs(_decode_varints(payload), total)
    if kind == KIND_ROARING:
        return total, _bitmap(payload, total)
    raise _corrupt(f"unknown kind {kind}")


def _frame(kind: int, total: int, payload: bytes) -> bytes:
    body = _HEADER.pack(MAGIC, VERSION, kind, total) + payload
    digest: bytes = xxhash.xxh3_64_digest(body)
    return body + digest


def _corrupt(why: str) -> RowSetError:
    return RowSetError(f"serialized row set is corrupt: {why}", hint="serialize it again")


def _deltas(runs: Runs) -> Int64Array:
    return np.diff(run.edges(runs), prepend=np.int64(0))


def _runs(deltas: Int64Array, total: int) -> Runs:
    edges = np.cumsum(deltas)
    # A sum that overflows turns negative at that step, since every delta is below 2**63.
    if len(deltas) % 2 or np.any(deltas[1:] == 0) or np.any(edges < 0) or np.any(edges > total):
        raise _corrupt("runs are out of order or outside the file")
    return run.from_edges(edges)


def _bitmap(payload: bytes, total: int) -> Bitmap:
    try:
        bitmap = class_for(total).deserialize(payload)
    except ValueError as error:
        raise _corrupt("payload is not a roaring bitmap") from error
    if bitmap and bitmap.max() >= total:
        raise _corrupt("rows are outside the file")
    return bitmap


def _steps(values: Int64Array) -> list[int]:
    """Thresholds at which LEB128 needs one more byte, up to the largest value."""
    return [1 << bits for bits in range(7, int(values.max(initial=0)).bit_length(), 7)]


def _varint_size(values: Int64Array) -> int:
    return len(values) + sum(int(np.count_nonzero(values >= step)) for step in _steps(values))


def _encode_varints(values: Int64Array) -> bytes:
    """Encode non-negative numbers as LEB128, with one pass per byte position."""
    widths = np.ones(len(values), np.int64)
    # One comparison per width is several times faster than a binary search.
    for step in _steps(values):
        widths += values >= step
    ends = np.cumsum(widths)
    result = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    starts = ends - widths
    for byte in range(int(widths.max(initial=0))):
        longer = widths > byte
        continued = (widths[longer] > byte + 1).astype(np.uint8) << 7
        result[starts[longer] + byte] = (values[longer] >> 7 * byte & 0x7F).astype(np.uint8) | continued
    return result.tobytes()


def _decode_varints(payload: bytes) -> Int64Array:
    """Decode a LEB128 stream."""
    raw: npt.NDArray[np.uint8] = np.frombuffer(payload, np.uint8)
    if not len(raw):
        return np.empty(0, np.int64)
    ends = np.flatnonzero(raw < 0x80)
    if not len(ends) or ends[-1] != len(raw) - 1:
        raise _corrupt("a varint is truncated")
    starts = np.concatenate(([0], ends[:-1] + 1))
    widths = ends - starts + 1
    if widths.max() > _VARINT_BYTES:
        raise _corrupt("a varint is too long")
    position = np.arange(len(raw)) - np.repeat(starts, widths)
    digits = (raw & 0x7F).astype(np.int64) << 7 * position
    result: Int64Array = np.add.reduceat(digits, starts)
    return result
