"""Damaged bytes: a slice is a clear error or the right rows, and never another exception."""

from __future__ import annotations

import contextlib
import io
import random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skipstone.core.rows import RowSet
from skipstone.errors import SkipstoneError
from skipstone.parquet.pageindex import BadPageIndex, PageIndex, page_index_ranges, parse_page_index
from skipstone.parquet.structs import PageHeader
from skipstone.parquet.wire import decode_prefix
from tests.property._slices import Lake, random_rows, same
from tests.support.samples import sample

CASES = sample("slices, damaged")
ROWS = 300


def table() -> pa.Table:
    some = range(ROWS)
    return pa.table(
        {
            "id": pa.array(some, pa.int64()),
            "kind": pa.array([f"kind {i % 9}" if i % 7 else None for i in some]),
            "list": pa.array([list(range(i % 5)) if i % 4 else None for i in some], pa.list_(pa.int32())),
            "s": pa.array([{"x": i / 3, "y": ["text"] * (i % 3)} if i % 6 else None for i in some]),
            "m": pa.array(
                [[(f"k{j}", j) for j in range(i % 4)] for i in some], pa.map_(pa.string(), pa.int8())
            ),
        }
    )


def lake(version: str, codec: str) -> Lake:
    sink = io.BytesIO()
    pq.write_table(
        table(),
        sink,
        write_page_index=True,
        write_page_checksum=True,
        max_rows_per_page=37,
        data_page_version=version,
        compression=codec,
    )
    return Lake(sink.getvalue())


@pytest.fixture(params=[("1.0", "snappy"), ("2.0", "none"), ("2.0", "zstd"), ("1.0", "none")], ids="-".join)
def sound(request: pytest.FixtureRequest) -> Lake:
    return lake(*request.param)


def bodies(file: Lake) -> list[int]:
    """The position of every byte that a checksum covers."""
    found: list[int] = []
    for leaf in range(len(file.metadata.leaves)):
        span = file.metadata.chunk_range(0, leaf)
        at = span.start
        while at < span.stop:
            header, length = decode_prefix(PageHeader, file.data[at : span.stop], "page header")
            assert header.compressed_page_size is not None
            end = at + length + header.compressed_page_size
            found += range(at + length, end)
            at = end
    return found


def damaged(data: bytes, rng: random.Random, places: list[int]) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 3])):
        out[rng.choice(places)] ^= 1 << rng.randrange(8)
    return bytes(out)


def slice_of(
    file: Lake, data: bytes, indexes: Any, fields: list[int], rows: RowSet, checksums: bool
) -> pa.Table:
    broken = Lake(file.data)
    broken.data = data
    return broken.slice(0, fields, rows, indexes, checksums=checksums)[0]


def equal(left: pa.Table, right: pa.Table) -> bool:
    return all(same(a, b) for a, b in zip(left.columns, right.columns, strict=True))


def test_damaged_pages_with_checksums(sound: Lake) -> None:
    rng = random.Random("pages")
    places = bodies(sound)
    indexes = sound.indexes(0)
    refused: list[SkipstoneError] = []
    for _ in range(CASES):
        fields, rows = rng.sample(range(5), 3), random_rows(rng, ROWS)
        data = damaged(sound.data, rng, places)
        try:
            found = slice_of(sound, data, rng.choice([indexes, {}]), fields, rows, checksums=True)
        except SkipstoneError as error:
            refused.append(error)
            continue
        assert equal(found, sound.expected(0, fields, rows))
    assert CASES / 10 < len(refused) < CASES
    assert {error.unit for error in refused} == {"row group 0"}
    assert None not in {error.column for error in refused}


def test_damage_anywhere_is_no_other_exception(sound: Lake) -> None:
    rng = random.Random("anywhere")
    end = max(sound.metadata.chunk_range(0, leaf).stop for leaf in range(len(sound.metadata.leaves)))
    headers = sorted(set(range(4, end)) - set(bodies(sound)))
    indexes = sound.indexes(0)
    for number in range(CASES):
        fields, rows = rng.sample(range(5), 3), random_rows(rng, ROWS)
        data = damaged(sound.data, rng, headers if number % 2 else list(range(4, end)))
        if number % 10 == 0:
            cut = rng.randrange(4, end)
            data = data[:cut] + bytes(len(data) - cut)
        with contextlib.suppress(SkipstoneError):
            found = slice_of(sound, data, rng.choice([indexes, {}]), fields, rows, checksums=number % 3 == 0)
            assert len(found) == len(rows)


def test_damaged_page_indexes(sound: Lake) -> None:
    rng = random.Random("index")
    refused = 0
    for _ in range(CASES):
        fields, rows = rng.sample(range(5), 3), random_rows(rng, ROWS)
        indexes: dict[int, PageIndex | None] = {}
        for leaf in range(len(sound.metadata.leaves)):
            _, span = page_index_ranges(sound.metadata, 0, leaf)
            assert span is not None
            data = damaged(sound.data, rng, list(range(span.start, span.stop)))[span.start : span.stop]
            with contextlib.suppress(BadPageIndex):
                indexes[leaf] = parse_page_index(None, data, sound.metadata, 0, leaf)
        try:
            found = slice_of(sound, sound.data, indexes, fields, rows, checksums=False)
        except SkipstoneError:
            refused += 1
            continue
        assert equal(found, sound.expected(0, fields, rows))
    assert CASES / 20 < refused < CASES
