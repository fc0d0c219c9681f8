"""Deletion vectors: the blob that a Puffin file holds for one data file, checked byte by byte.

A blob is its length, a magic number, a 64-bit roaring bitmap in the portable format, and a checksum of both.
"""

from __future__ import annotations

import zlib
from typing import Final

from pyroaring import BitMap64

from skipstone.errors import CorruptFileError
from skipstone.iceberg.deletes.matched import DeleteFile, Open
from skipstone.iceberg.manifests.codecs import check_plain
from skipstone.store.ranges import ByteRange

MAGIC: Final = b"\xd1\xd3\x39\x64"
_LENGTH: Final = 4
_CHECKSUM: Final = 4
# An empty bitmap is its count of 32-bit maps.
_SHORTEST: Final = _LENGTH + len(MAGIC) + 8 + _CHECKSUM
_LIMIT: Final = 2**63


def read_vector(file: DeleteFile, open: Open) -> BitMap64:
    """The deleted positions of the data file that a deletion vector names; reads just its blob."""
    start, stop = file.offset, file.offset + file.length
    if start < 0 or file.length < _SHORTEST or stop > file.size:
        raise _corrupt(file, f"a deletion vector at bytes {start}-{stop} of {file.size}")
    source = open(file)
    (blob,) = source.read_ranges([ByteRange(start, stop)])
    try:
        positions = parse_vector(blob, file)
    except CorruptFileError:
        check_plain(source.read_ranges([ByteRange(0, min(start, _LENGTH))])[0], file.path)
        raise
    if len(positions) != file.rows:
        raise _corrupt(file, f"it deletes {len(positions):,} rows, the manifest says {file.rows:,}")
    return positions


def parse_vector(blob: bytes, file: DeleteFile) -> BitMap64:
    """The bitmap in a blob; ``file`` is for messages."""
    body = blob[_LENGTH:-_CHECKSUM]
    said = int.from_bytes(blob[:_LENGTH], "big")
    if len(blob) < _SHORTEST or said != len(body):
        raise _corrupt(file, f"{len(blob)} bytes for a deletion vector that says {said}")
    if body[: len(MAGIC)] != MAGIC:
        raise _corrupt(file, f"it begins with {body[: len(MAGIC)]!r} instead of {MAGIC!r}")
    if zlib.crc32(body) != int.from_bytes(blob[-_CHECKSUM:], "big"):
        raise _corrupt(file, "its checksum is wrong")
    try:
        positions = BitMap64.deserialize(body[len(MAGIC) :])
    except (ValueError, IndexError) as error:
        raise _corrupt(file, f"not a roaring bitmap: {error}") from error
    if positions and positions.max() >= _LIMIT:
        raise _corrupt(file, f"it deletes row {positions.max()}, which no file has")
    return positions


def _corrupt(file: DeleteFile, reason: str) -> CorruptFileError:
    hint = "the file is damaged, or not the one that was committed: restore it, or roll the table back"
    unit = f"deletion vector at byte {file.offset}"
    return CorruptFileError(reason, path=file.path, unit=unit, hint=hint)
