"""Runs to roaring bitmaps and back, without expanding a run into its rows; and bitmaps as words of bits.

``bitmap ^ (bitmap shifted by one)`` holds exactly the edges of the bitmap's runs, so runs come out in
roaring's own time. For the rest there is no bulk call, so the portable format is written and read with NumPy
(https://github.com/RoaringBitmap/RoaringFormatSpec): runs become containers of runs, of which roaring then
picks the best form itself, and a well filled container is stored as just the bits that words need.

As bytes a row set is a small header, the smaller of two payloads, and a checksum over both:

    magic "SKRS" · version u8 · kind u8 · total u64 · payload · xxh3-64 of everything before it

Kind 0 is the runs as LEB128 varints, gap and length in turn; kind 1 is roaring's portable format, 32-bit
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
_OFFSETS_FROM = 4  # the format leaves the offset header out below this many containers
_ARRAY_UP_TO = 4096  # members of a container that is stored as an array
_CONTAINER_BYTES = CONTAINER_ROWS // 8


def class_for(total: int) -> Bitmap:
    """The bitmap class that can hold every row of a file of this many rows."""
    return BitMap if total <= LIMIT_32 else BitMap64


def is_bitmap(value: object) -> bool:
    """Whether a value is any of pyroaring's bitmaps."""
    return isinstance(value, AbstractBitMap | AbstractBitMap64)


def fits(bitmap: Bitmap, total: int) -> bool:
    """Whether a bitmap is of the width used for files of this many rows."""
    return isinstance(bitmap, AbstractBitMap if total <= LIMIT_32 else AbstractBitMap64)


def span(start: int, stop: int, total: int) -> Bitmap:
    """The bitmap of one range of rows in a file of total rows."""
    return class_for(total)(range(start, stop))


def from_positions(positions: Int64Array, total: int) -> Bitmap:
    """The bitmap of rising positions."""
    # pyroaring reads an array.array in bulk but walks a NumPy array number by number.
    bitmap: Bitmap
    if total <= LIMIT_32:
        bitmap = BitMap(array("I", positions.astype(np.uint32).tobytes()))
    else:
        bitmap = BitMap64(array("Q", positions.astype(np.uint64).tobytes()))
    bitmap.run_optimize()
    return bitmap


def run_count(bitmap: Bitmap) -> int:
    """How many runs the bitmap's rows form."""
    edges: int = bitmap.symmetric_difference_cardinality(bitmap.shift(1))
    # The edge at 2**32 falls off the end of a 32-bit bitmap.
    return (edges + 1) // 2


def to_runs(bitmap: Bitmap) -> Runs:
    """The runs of a bitmap's rows."""
    edges = np.asarray((bitmap ^ bitmap.shift(1)).to_array())
    if len(edges) % 2:
        edges = np.append(edges.astype(np.int64), np.int64(LIMIT_32))
    return run.from_edges(edges)


def run_ends(bitmap: Bitmap) -> tuple[Array, Array]:
    """The first and last members of the bitmap's runs as uint64, in which the greatest fits as well."""
    edges = np.asarray((bitmap ^ bitmap.shift(1)).to_array()).astype(np.uint64)
    # Beyond the greatest number there is no edge.
    lasts = np.append(edges[1::2] - np.uint64(1), np.uint64(bitmap.max()))
    return edges[0::2], lasts[: (len(edges) + 1) // 2]


def from_runs(runs: Runs, total: int) -> Bitmap:
    """The bitmap of the rows in these runs."""
    bitmap: Bitmap
    keys, lows, highs = _pieces(runs)
    if total <= LIMIT_32:
        bitmap = BitMap.deserialize(_portable(keys, lows, highs)) if len(keys) else BitMap()
    else:
        highs_of_key = keys >> CONTAINER_BITS
        bounds = np.concatenate(([0], np.flatnonzero(np.diff(highs_of_key)) + 1, [len(keys)])).tolist()
        # One round per 2**32 rows, each a 32-bit bitmap of its own in the 64-bit format.
        parts = [
            struct.pack("<I", int(highs_of_key[lo]))
            + _portable(keys[lo:hi] & (CONTAINER_ROWS - 1), lows[lo:hi], highs[lo:hi])
            for lo, hi in pairwise(bounds)
            if lo < hi
        ]
        bitmap = BitMap64.deserialize(struct.pack("<Q", len(parts)) + b"".join(parts))
    bitmap.run_optimize()
    return bitmap


def fewest_containers(runs: Runs) -> int:
    """A lower bound of the containers that a bitmap of these runs has, without building it."""
    starts, stops = runs
    begun = int(np.count_nonzero(np.diff(starts >> CONTAINER_BITS, prepend=-1)))
    return max(begun, int((stops - starts).sum()) >> CONTAINER_BITS)


def _pieces(runs: Runs) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Runs cut at container borders: (container key, first row, last row), rows within the container."""
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
    """The 32-bit portable format of at least one piece, every container a run container."""
    firsts = np.concatenate(([0], np.flatnonzero(np.diff(keys)) + 1))
    containers = len(firsts)
    pieces = np.diff(np.append(firsts, len(keys)))
    lengths = highs - lows
    header = np.empty((containers, 2), "<u2")
    header[:, 0] = keys[firsts]
    header[:, 1] = np.add.reduceat(lengths + 1, firsts) - 1
    # Each container is its number of runs, then a (first row, length - 1) pair per run.
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
    """The first id that has a bit, and the bits in words of 64 from there to the greatest member."""
    first, last = bitmap.min() >> CONTAINER_BITS, bitmap.max() >> CONTAINER_BITS
    words = np.zeros((last - first + 1) * (_CONTAINER_BYTES // 8), np.uint64)
    bits = words.view(np.uint8).reshape(-1, _CONTAINER_BYTES)
    data: bytes = bitmap.serialize()
    if fits(bitmap, LIMIT_32):
        _copy_containers(data, 0, bits, -first)
    else:
        (parts,) = struct.unpack_from("<Q", data)
        at = 8
        for _ in range(parts):  # one round per 2**32 ids
            (upper,) = struct.unpack_from("<I", data, at)
            at = _copy_containers(data, at + 4, bits, (upper << CONTAINER_BITS) - first)
    return first << CONTAINER_BITS, words


def _copy_containers(data: bytes, at: int, bits: Array, offset: int) -> int:
    """Copy the containers of one 32-bit bitmap to their places; returns where it ends."""
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
    # A round per container of 65,536 ids: each has a layout and a length of its own.
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
_VARINT_BYTES = 9  # 9 x 7 = 63 bits, the whole of a non-negative int64
_LEAST_CONTAINER = 10  # the least that roaring spends on one: 8 of headers and a row
_SURELY_SMALLER = 32  # roaring can't beat varints of up to this many bytes: its own header is 16


def encode_runs(runs: Runs, total: int) -> bytes:
    """Bytes of a row set held as runs."""
    varints = _varints(_deltas(runs))
    # A long run, or runs far apart, touch many containers and are settled without building a bitmap.
    if len(varints) > max(_SURELY_SMALLER, _LEAST_CONTAINER * fewest_containers(runs)):
        portable: bytes = from_runs(runs, total).serialize()
        if len(portable) <= len(varints):
            return _frame(KIND_ROARING, total, portable)
    return _frame(KIND_RUNS, total, varints)


def encode_bitmap(bitmap: Bitmap, run_count: int, total: int) -> bytes:
    """Bytes of a row set held as a bitmap."""
    portable: bytes = bitmap.serialize()
    # A run takes at least two varint bytes, so most bitmaps are settled without making their runs.
    if len(portable) > 2 * run_count:
        deltas = _deltas(to_runs(bitmap))
        if _varint_size(deltas) < len(portable):
            return _frame(KIND_RUNS, total, _varints(deltas))
    return _frame(KIND_ROARING, total, portable)


def decode(data: bytes) -> tuple[int, Runs | Bitmap]:
    """The total and either the runs (a tuple) or the bitmap, every claim of the bytes checked."""
    if len(data) < _HEADER.size + _CHECKSUM_BYTES:
        raise _corrupt(f"{len(data)} bytes are too few")
    magic, version, kind, total = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise _corrupt("wrong magic")
    if version != VERSION:
        raise RowSetError(
            f"row set bytes of version {version}, this release reads version {VERSION}",
            hint="make them again, or upgrade skipstone",
        )
    body, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
    if xxhash.xxh3_64_digest(body) != checksum:
        raise _corrupt("checksum mismatch")
    payload = body[_HEADER.size :]
    if kind == KIND_RUNS:
        return total, _runs(_unvarints(payload), total)
    if kind == KIND_ROARING:
        return total, _bitmap(payload, total)
    raise _corrupt(f"unknown kind {kind}")


def _frame(kind: int, total: int, payload: bytes) -> bytes:
    body = _HEADER.pack(MAGIC, VERSION, kind, total) + payload
    digest: bytes = xxhash.xxh3_64_digest(body)
    return body + digest


def _corrupt(why: str) -> RowSetError:
    return RowSetError(f"corrupt row set bytes: {why}", hint="make them again from the file")


def _deltas(runs: Runs) -> Int64Array:
    return np.diff(run.edges(runs), prepend=np.int64(0))


def _runs(deltas: Int64Array, total: int) -> Runs:
    edges = np.cumsum(deltas)
    # A sum that passes 2**63 turns negative at that very step, since every delta is below 2**63.
    if len(deltas) % 2 or np.any(deltas[1:] == 0) or np.any(edges < 0) or np.any(edges > total):
        raise _corrupt("runs out of order or outside the file")
    return run.from_edges(edges)


def _bitmap(payload: bytes, total: int) -> Bitmap:
    try:
        bitmap = class_for(total).deserialize(payload)
    except ValueError as error:
        raise _corrupt("not a roaring bitmap") from error
    if bitmap and bitmap.max() >= total:
        raise _corrupt("rows outside the file")
    return bitmap


def _steps(values: Int64Array) -> list[int]:
    """The numbers from which LEB128 takes one byte more, as far as these values reach."""
    return [1 << bits for bits in range(7, int(values.max(initial=0)).bit_length(), 7)]


def _varint_size(values: Int64Array) -> int:
    return len(values) + sum(int(np.count_nonzero(values >= step)) for step in _steps(values))


def _varints(values: Int64Array) -> bytes:
    """LEB128 of non-negative numbers, one pass per byte position rather than per number."""
    widths = np.ones(len(values), np.int64)
    # One comparison per possible width is several times faster than a search per number.
    for step in _steps(values):
        widths += values >= step
    ends = np.cumsum(widths)
    out = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    at = ends - widths
    for byte in range(int(widths.max(initial=0))):
        wide = widths > byte
        more = (widths[wide] > byte + 1).astype(np.uint8) << 7
        out[at[wide] + byte] = (values[wide] >> 7 * byte & 0x7F).astype(np.uint8) | more
    return out.tobytes()


def _unvarints(payload: bytes) -> Int64Array:
    """The numbers of a LEB128 stream."""
    raw: npt.NDArray[np.uint8] = np.frombuffer(payload, np.uint8)
    if not len(raw):
        return np.empty(0, np.int64)
    ends = np.flatnonzero(raw < 0x80)
    if not len(ends) or ends[-1] != len(raw) - 1:
        raise _corrupt("a number is cut short")
    starts = np.concatenate(([0], ends[:-1] + 1))
    widths = ends - starts + 1
    if widths.max() > _VARINT_BYTES:
        raise _corrupt("a number is too long")
    place = np.arange(len(raw)) - np.repeat(starts, widths)
    digits = (raw & 0x7F).astype(np.int64) << 7 * place
    result: Int64Array = np.add.reduceat(digits, starts)
    return result
