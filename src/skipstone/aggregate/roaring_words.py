"""A roaring bitmap as one bit per id, copied container by container from its portable format.

The layout is https://github.com/RoaringBitmap/RoaringFormatSpec: ids come in containers of 65,536, and a well
filled one is stored as just these bits.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np

from skipstone.core.evidence import Array
from skipstone.core.rows.roaring import CONTAINER_BITS, CONTAINER_ROWS, LIMIT_32, Bitmap, fits

_COOKIE_WITH_RUNS: Final = 12347
_FULL_HEADER_FROM: Final = 4  # with runs, offsets are written from this many containers on
_ARRAY_UP_TO: Final = 4096
_BYTES: Final = CONTAINER_ROWS // 8


def words_of(bitmap: Bitmap) -> tuple[int, Array]:
    """The first id that has a bit, and the bits in words of 64 from there to the greatest member."""
    first, last = bitmap.min() >> CONTAINER_BITS, bitmap.max() >> CONTAINER_BITS
    words = np.zeros((last - first + 1) * (_BYTES // 8), np.uint64)
    bits = words.view(np.uint8).reshape(-1, _BYTES)
    data: bytes = bitmap.serialize()
    if fits(bitmap, LIMIT_32):
        _copy(data, 0, bits, -first)
    else:
        (parts,) = struct.unpack_from("<Q", data)
        at = 8
        for _ in range(parts):  # one round per 2**32 ids
            (upper,) = struct.unpack_from("<I", data, at)
            at = _copy(data, at + 4, bits, (upper << CONTAINER_BITS) - first)
    return first << CONTAINER_BITS, words


def _copy(data: bytes, at: int, bits: Array, offset: int) -> int:
    """Copy the containers of one 32-bit bitmap to their places; returns where it ends."""
    (cookie,) = struct.unpack_from("<I", data, at)
    if cookie & 0xFFFF == _COOKIE_WITH_RUNS:
        count = (cookie >> 16) + 1
        flags = np.frombuffer(data, np.uint8, -(-count // 8), at + 4)
        has_runs = np.unpackbits(flags, count=count, bitorder="little").tolist()
        at += 4 + len(flags)
    else:
        (count,) = struct.unpack_from("<I", data, at + 4)
        has_runs = [0] * count
        at += 8
    header = np.frombuffer(data, "<u2", 2 * count, at).astype(np.int64).tolist()
    at += 4 * count
    if cookie & 0xFFFF != _COOKIE_WITH_RUNS or count >= _FULL_HEADER_FROM:
        at += 4 * count
    # A round per container of 65,536 ids: each has a layout and a length of its own.
    for key, below_size, is_run in zip(header[0::2], header[1::2], has_runs, strict=True):
        to, size = bits[key + offset], below_size + 1
        if is_run:
            (runs,) = struct.unpack_from("<H", data, at)
            pairs = np.frombuffer(data, "<u2", 2 * runs, at + 2).astype(np.int64)
            starts = pairs[0::2]
            to[:] = np.packbits(filled(starts, starts + pairs[1::2] + 1, CONTAINER_ROWS), bitorder="little")
            at += 2 + 4 * runs
        elif size <= _ARRAY_UP_TO:
            member = np.zeros(CONTAINER_ROWS, bool)
            member[np.frombuffer(data, "<u2", size, at)] = True
            to[:] = np.packbits(member, bitorder="little")
            at += 2 * size
        else:
            to[:] = np.frombuffer(data, np.uint8, _BYTES, at)
            at += _BYTES
    return at


def filled(starts: Array, stops: Array, total: int) -> Array:
    """Flags that are set in the runs, which are rising and apart from each other."""
    edges = np.empty(2 * len(starts) + 2, np.int64)
    edges[0], edges[-1] = 0, total
    edges[1:-1:2], edges[2:-1:2] = starts, stops
    inside = np.zeros(len(edges) - 1, bool)
    inside[1::2] = True
    return np.repeat(inside, np.diff(edges))
