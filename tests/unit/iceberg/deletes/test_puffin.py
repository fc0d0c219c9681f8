from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile
from pyroaring import BitMap64

from skipstone.errors import CorruptFileError, ReadError
from skipstone.iceberg.deletes.files import MAGIC, deleted_rows, parse_vector, read_vector
from skipstone.iceberg.deletes.match import DeleteFile
from skipstone.store.source import Source, open_source
from tests.iceberg._parquet import write_vectors

VECTORS = {
    "s3://b/one.parquet": [0, 1, 2, 70_000],
    "s3://b/none.parquet": [],
    "s3://b/runs.parquet": [*range(100, 200_000)],
    "s3://b/huge.parquet": [5, 2**32, 2**40 + 7],
}


def note(offset: int = 0, length: int = 0, rows: int = 0, size: int = 10**9) -> DeleteFile:
    return DeleteFile("v.puffin", size, "PUFFIN", rows, 1, offset, length)


def blob_of(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def test_each_vector_is_read_by_its_own_range(tmp_path: Path) -> None:
    path = tmp_path / "v.puffin"
    places = write_vectors(path, VECTORS)
    size = path.stat().st_size
    for data, positions in VECTORS.items():
        sources: list[Source] = []

        def open_file(file: DeleteFile, sources: list[Source] = sources) -> Source:
            sources.append(open_source(path))
            return sources[-1]

        offset, length = places[data]
        file = DeleteFile(str(path), size, "PUFFIN", len(positions), 1, offset, length)
        assert list(read_vector(file, open_file)) == positions
        (source,) = sources
        assert (source.counter.requests, source.counter.bytes) == (1, length)


def test_pyiceberg_reads_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "v.puffin"
    # pyiceberg can make no array of an empty vector.
    few = {data: positions for data, positions in VECTORS.items() if positions and max(positions) < 2**32}
    places = write_vectors(path, few)
    theirs = deletion_vectors_from_puffin_file(PuffinFile(path.read_bytes()))
    vectors = {vector.referenced_data_file: vector.to_vector() for vector in theirs}
    for data, positions in few.items():
        offset, length = places[data]
        mine = parse_vector(path.read_bytes()[offset : offset + length], note())
        assert vectors[data].to_pylist() == list(mine) == positions


@given(st.sets(st.integers(0, 2**34)))
def test_any_positions_come_back(positions: set[int]) -> None:
    assert set(parse_vector(blob_of(MAGIC + BitMap64(positions).serialize()), note())) == positions


def test_every_flipped_bit_and_every_cut_is_noticed() -> None:
    blob = blob_of(MAGIC + BitMap64([1, 5, 2**33]).serialize())
    for at in range(len(blob)):
        with pytest.raises(CorruptFileError, match=r"v\.puffin.*deletion vector at byte"):
            parse_vector(blob[:at] + bytes([blob[at] ^ 0x10]) + blob[at + 1 :], note())
        with pytest.raises(CorruptFileError):
            parse_vector(blob[:at], note())
    with pytest.raises(CorruptFileError):
        parse_vector(blob + b"\0", note())


def _map32(*containers: tuple[int, int, bytes]) -> bytes:
    head = struct.pack("<II", 12346, len(containers))
    head += b"".join(struct.pack("<HH", key, count - 1) for key, count, _ in containers)
    at = len(head) + 4 * len(containers)
    offsets = b""
    for _, _, body in containers:
        offsets += struct.pack("<I", at)
        at += len(body)
    return head + offsets + b"".join(body for _, _, body in containers)


@pytest.mark.parametrize(
    "bitmap",
    [
        b"\xff" * 8,
        struct.pack("<Q", 1),
        struct.pack("<QI", 1, 0) + b"nonsense" * 3,
        struct.pack("<QI", 1, 0) + _map32((0, 3, struct.pack("<HHH", 9, 5, 5))),
        struct.pack("<QI", 1, 0) + _map32((0, 5_000, b"\xff" * 8192)),
        struct.pack("<QI", 1, 2**31) + _map32((0, 1, struct.pack("<H", 9))),
    ],
    ids=["count", "no map", "no roaring", "order", "cardinality", "negative"],
)
def test_a_sound_checksum_does_not_make_a_bitmap(bitmap: bytes) -> None:
    with pytest.raises(CorruptFileError, match=r"v\.puffin"):
        parse_vector(blob_of(MAGIC + bitmap), note())


def test_what_the_manifest_says_must_hold(tmp_path: Path) -> None:
    path = tmp_path / "v.puffin"
    offset, length = write_vectors(path, {"d": [1, 2]})["d"]
    size = path.stat().st_size

    def read(offset: int, length: int, rows: int = 2, size: int = size) -> object:
        return read_vector(note(offset, length, rows, size), lambda file: open_source(path))

    assert len(read(offset, length)) == 2  # type: ignore[arg-type]
    with pytest.raises(CorruptFileError, match="deletes 2 rows, but the manifest recorded 3"):
        read(offset, length, rows=3)
    for wrong in ((offset, length - 1), (offset + 1, length), (-1, length), (offset, 3), (size - 5, length)):
        with pytest.raises(CorruptFileError):
            read(*wrong)
    with pytest.raises(ReadError):
        read(size - 5, length, size=size * 10)


def test_positions_past_the_end_delete_nothing() -> None:
    assert deleted_rows(10, BitMap64([3, 9, 10, 2**40])).positions().tolist() == [3, 9]
    assert deleted_rows(10, np.array([3, 9, 10, 2**40])).positions().tolist() == [3, 9]
    assert deleted_rows(0, BitMap64()).is_empty
