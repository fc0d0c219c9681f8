from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import xxhash
from pyroaring import BitMap

from skipstone.core.rows import RowSet, roaring
from skipstone.errors import RowSetError


def reseal(body: bytes) -> bytes:
    return body + xxhash.xxh3_64_digest(body)


def test_the_smaller_form_is_chosen() -> None:
    few = RowSet.from_ranges(10**6, [(0, 400), (500, 900), (10_000, 10_400)]).to_bytes()
    many = RowSet.from_positions(60_000, np.arange(0, 60_000, 2)).to_bytes()
    assert (few[5], len(few)) == (roaring.KIND_RUNS, 32)
    assert many[5] == roaring.KIND_ROARING
    assert 7_500 < len(many) < 8_300


def test_encoding_does_not_depend_on_the_representation(held: str) -> None:
    even = RowSet.from_positions(60_000, np.arange(0, 60_000, 2))
    sparse = RowSet.from_ranges(10**6, [(0, 400), (500, 900), (10_000, 10_400)])
    assert [rows.to_bytes()[5] for rows in (even, sparse)] == [roaring.KIND_ROARING, roaring.KIND_RUNS]


def test_every_flip_and_every_cut_is_noticed(held: str) -> None:
    data = RowSet.from_ranges(10**6, [(0, 400), (500, 900), (10_000, 10_400)]).to_bytes()
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(RowSetError):
            RowSet.from_bytes(flipped)
    for size in range(len(data)):
        with pytest.raises(RowSetError):
            RowSet.from_bytes(data[:size])
    with pytest.raises(RowSetError):
        RowSet.from_bytes(data + b"\0")


@pytest.mark.parametrize(
    ("kind", "total", "payload", "message"),
    [
        (0, 10, b"\x01", "runs"),  # half a run
        (0, 10, b"\x01\x00", "runs"),  # an empty run
        (0, 10, b"\x01\x01\x00\x01", "runs"),  # runs that touch
        (0, 10, b"\x01\x0a", "runs"),  # beyond the file
        (0, 2**63 - 1, b"\xff" * 8 + b"\x7f" + b"\xff" * 8 + b"\x7f", "runs"),  # wraps int64
        (0, 10, b"\x81", "truncated"),
        (0, 10, b"\x80" * 9 + b"\x01", "too long"),
        (0, 2**63, b"", "out of range"),
        (1, 10, b"junk", "not a roaring bitmap"),
        (1, 10, BitMap([10]).serialize(), "outside the file"),
        (2, 10, b"", "unknown kind"),
    ],
)
def test_valid_checksum_over_invalid_content(kind: int, total: int, payload: bytes, message: str) -> None:
    with pytest.raises(RowSetError, match=message):
        RowSet.from_bytes(reseal(roaring._HEADER.pack(roaring.MAGIC, roaring.VERSION, kind, total) + payload))


def test_other_versions_are_named() -> None:
    with pytest.raises(RowSetError, match="version 9"):
        RowSet.from_bytes(reseal(roaring._HEADER.pack(roaring.MAGIC, 9, 0, 5)))
    with pytest.raises(RowSetError, match="magic"):
        RowSet.from_bytes(reseal(roaring._HEADER.pack(b"PAR1", 1, 0, 5)))


def test_pickle_and_copy(held: str) -> None:
    rows = RowSet.from_ranges(100, [(3, 6), (10, 11)])
    for twin in (pickle.loads(pickle.dumps(rows)), copy.copy(rows), copy.deepcopy(rows)):
        assert twin == rows
        assert hash(twin) == hash(rows)


def test_varints_of_every_width() -> None:
    borders = [0, *(n for k in range(1, 9) for n in ((1 << 7 * k) - 1, 1 << 7 * k)), 2**63 - 1]
    values = np.array(borders, np.int64)
    written = roaring._encode_varints(values)
    assert (
        len(written) == roaring._varint_size(values) == sum(max(1, -(-n.bit_length() // 7)) for n in borders)
    )
    assert roaring._decode_varints(written).tolist() == borders
