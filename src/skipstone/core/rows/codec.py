"""Row sets as bytes: a small header, the smaller of two payloads, a checksum over both.

    magic "SKRS" · version u8 · kind u8 · total u64 · payload · xxh3-64 of everything before it

Kind 0 is the runs as LEB128 varints, gap and length in turn; kind 1 is roaring's portable format, 32-bit
up to 2**32 rows and 64-bit above. Numbers are little-endian.
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt
import xxhash

from skipstone.core.rows import roaring
from skipstone.core.rows import runs as run
from skipstone.core.rows.roaring import Bitmap
from skipstone.core.rows.runs import Int64Array, Runs
from skipstone.errors import RowSetError

MAGIC = b"SKRS"
VERSION = 1
KIND_RUNS = 0
KIND_ROARING = 1

_HEADER = struct.Struct("<4sBBQ")
_CHECKSUM_BYTES = 8
_VARINT_BYTES = 9  # 9 x 7 = 63 bits, the whole of a non-negative int64
_CONTAINER_BYTES = 10  # the least that roaring spends on one: 8 of headers and a row
_SURELY_SMALLER = 32  # roaring can't beat varints of up to this many bytes: its own header is 16


def encode_runs(runs: Runs, total: int) -> bytes:
    """Bytes of a row set held as runs."""
    varints = _varints(_deltas(runs))
    # A long run, or runs far apart, touch many containers and are settled without building a bitmap.
    if len(varints) > max(_SURELY_SMALLER, _CONTAINER_BYTES * roaring.fewest_containers(runs)):
        portable: bytes = roaring.from_runs(runs, total).serialize()
        if len(portable) <= len(varints):
            return _seal(KIND_ROARING, total, portable)
    return _seal(KIND_RUNS, total, varints)


def encode_bitmap(bitmap: Bitmap, run_count: int, total: int) -> bytes:
    """Bytes of a row set held as a bitmap."""
    portable: bytes = bitmap.serialize()
    # A run takes at least two varint bytes, so most bitmaps are settled without making their runs.
    if len(portable) > 2 * run_count:
        deltas = _deltas(roaring.to_runs(bitmap))
        if _varint_size(deltas) < len(portable):
            return _seal(KIND_RUNS, total, _varints(deltas))
    return _seal(KIND_ROARING, total, portable)


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


def _seal(kind: int, total: int, payload: bytes) -> bytes:
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
        bitmap = roaring.class_for(total).deserialize(payload)
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
