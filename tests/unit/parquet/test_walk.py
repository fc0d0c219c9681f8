from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.core.rows.rowset import RowSet
from skipstone.errors import SkipstoneError
from skipstone.parquet.metadata import ParquetMetadata, read_footer
from skipstone.parquet.pageindex import (
    BadPageIndex,
    PageIndex,
    page_index_ranges,
    parse_page_index,
    walk_pages,
)
from skipstone.parquet.slice import slice_steps
from skipstone.store.source import open_source

INDEX_PAGE = bytes([0x15, 2, 0x15, 6, 0x15, 6, 0]) + b"abc"


def metadata_of(data: bytes) -> ParquetMetadata:
    return read_footer(open_source(data))


def walk(data: bytes, metadata: ParquetMetadata, group: int, leaf: int) -> PageIndex:
    span = metadata.chunk_range(group, leaf)
    return walk_pages(data[span.start : span.stop], metadata, group, leaf)


def written(data: bytes, metadata: ParquetMetadata, group: int, leaf: int) -> PageIndex | None:
    _, offsets = page_index_ranges(metadata, group, leaf)
    if offsets is None:
        return None
    return parse_page_index(None, data[offsets.start : offsets.stop], metadata, group, leaf)


def assert_same(found: PageIndex, wanted: PageIndex) -> None:
    assert found.rows == wanted.rows
    for name in ("first_rows", "offsets", "sizes", "row_counts", "null_pages"):
        a, b = getattr(found, name), getattr(wanted, name)
        assert (a.dtype, a.tolist()) == (b.dtype, b.tolist())
    assert (found.has_statistics, found.min_values, found.null_counts) == (False, [], None)


@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("codec", ["none", "snappy", "zstd", "gzip", "lz4", "brotli"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_pages_are_where_pyarrow_says(
    table: pa.Table, write: Any, version: str, codec: str, dictionary: bool
) -> None:
    data = write(
        table,
        write_page_index=True,
        max_rows_per_page=100,
        data_page_version=version,
        compression=codec,
        use_dictionary=dictionary,
    )
    metadata = metadata_of(data)
    for leaf in metadata.leaves:
        for group in range(metadata.row_group_count):
            if leaf.max_repetition and version == "1.0":
                with pytest.raises(BadPageIndex, match="have no row counts"):
                    walk(data, metadata, group, leaf.index)
                continue
            wanted = written(data, metadata, group, leaf.index)
            assert wanted is not None
            assert len(wanted) >= 10
            assert_same(walk(data, metadata, group, leaf.index), wanted)


def read_rows(data: bytes, metadata: ParquetMetadata, group: int, rows: RowSet) -> pa.Table:
    indexes = {leaf.index: walk(data, metadata, group, leaf.index) for leaf in metadata.leaves}
    steps = slice_steps(metadata, group, range(len(metadata.arrow_schema)), rows, indexes)
    ranges = next(steps)
    while True:
        try:
            ranges = steps.send([data[span.start : span.stop] for span in ranges])
        except StopIteration as end:
            table: pa.Table = end.value
            return table


def test_slices_of_duckdb_files(tmp_path: Path) -> None:
    path = tmp_path / "duck.parquet"
    duckdb.sql(
        "select i, i * 0.5 f, case when i % 3 = 0 then null else 'v' || hash(i) end s, i % 7 k,"
        " {'x': i, 'y': 'n' || i} st from range(500000) r(i)"
    ).write_parquet(str(path), row_group_size=400_000)
    data = path.read_bytes()
    metadata = metadata_of(data)
    wanted = pq.read_table(path)
    pages = 0
    for group, start in enumerate(metadata.row_group_starts.tolist()):
        assert written(data, metadata, group, 0) is None
        pages += len(walk(data, metadata, group, 2))
        total = int(metadata.row_group_rows[group])
        for first in (0, total // 2, total - 5):
            rows = RowSet.from_ranges(total, [(first, first + 5)])
            assert read_rows(data, metadata, group, rows).equals(wanted.slice(start + first, 5))
    assert pages >= metadata.row_group_count


def test_polars_files(tmp_path: Path) -> None:
    path = tmp_path / "p.parquet"
    frame = pl.DataFrame({"i": range(100_000), "s": [f"name {i}" for i in range(100_000)]})
    frame.write_parquet(path, data_page_size=20_000, row_group_size=50_000)
    data = path.read_bytes()
    metadata = metadata_of(data)
    for leaf in metadata.leaves:
        for group in range(metadata.row_group_count):
            wanted = written(data, metadata, group, leaf.index)
            assert wanted is not None
            assert len(wanted) > 2
            assert_same(walk(data, metadata, group, leaf.index), wanted)


def test_the_corpus(corpus: Path) -> None:
    walked = compared = 0
    for path in sorted((corpus / "data").glob("*.parquet")):
        data = path.read_bytes()
        try:
            metadata = metadata_of(data)
            chunks = [(g, leaf.index) for g in range(metadata.row_group_count) for leaf in metadata.leaves]
            [metadata.chunks(leaf) for _, leaf in chunks]
        except SkipstoneError:
            continue
        for group, leaf in chunks:
            try:
                found = walk(data, metadata, group, leaf)
                wanted = written(data, metadata, group, leaf)
            except BadPageIndex:
                continue
            walked += 1
            assert found.row_counts.sum() == metadata.row_group_rows[group]
            if wanted is not None:
                compared += 1
                assert_same(found, wanted)
    assert walked > 200
    assert compared > 30


def test_row_groups_without_rows(write: Any) -> None:
    table = pa.table({"a": pa.array([], pa.int32()), "s": pa.array([], pa.string())})
    for version in ("1.0", "2.0"):
        data = write(table, data_page_version=version)
        metadata = metadata_of(data)
        for group in range(metadata.row_group_count):
            for leaf in range(2):
                found = walk(data, metadata, group, leaf)
                assert (found.rows, found.row_counts.sum()) == (0, 0)


def test_long_statistics_in_a_header(write: Any) -> None:
    table = pa.table({"s": [c * 30_000 for c in "abcdefgh"]})
    data = write(table, use_dictionary=False, write_page_index=True, max_rows_per_page=2)
    metadata = metadata_of(data)
    wanted = written(data, metadata, 0, 0)
    assert wanted is not None
    assert_same(walk(data, metadata, 0, 0), wanted)


# ---------------------------------------------------------------- chunks that are not as they should be


@pytest.fixture(scope="module")
def small(write: Any) -> bytes:
    table = pa.table({"i": pa.array(range(1_000), pa.int64())})
    data: bytes = write(table, max_rows_per_page=100, write_page_index=True, compression="none")
    return data


def test_chunks_whose_length_is_understated(small: bytes) -> None:
    metadata = metadata_of(small)
    wanted, span = walk(small, metadata, 0, 0), metadata.chunk_range(0, 0)
    metadata.chunks(0)[0].total_compressed_size -= 25
    assert_same(walk_pages(small[span.start : span.stop + 75], metadata, 0, 0), wanted)
    with pytest.raises(BadPageIndex, match="bytes, but"):
        walk(small, metadata, 0, 0)


def test_index_pages_are_passed_over(small: bytes) -> None:
    metadata = metadata_of(small)
    wanted, span = walk(small, metadata, 0, 0), metadata.chunk_range(0, 0)
    at = int(wanted.offsets[3])
    chunk = small[span.start : at] + INDEX_PAGE + small[at : span.stop]
    metadata.chunks(0)[0].total_compressed_size += len(INDEX_PAGE)
    found = walk_pages(chunk, metadata, 0, 0)
    assert found.first_rows.tolist() == wanted.first_rows.tolist()
    assert (found.offsets - wanted.offsets).tolist() == [0] * 3 + [len(INDEX_PAGE)] * 7
    assert found.sizes.tolist() == wanted.sizes.tolist()


def test_counts_that_do_not_add_up(small: bytes) -> None:
    metadata = metadata_of(small)
    index, span = walk(small, metadata, 0, 0), metadata.chunk_range(0, 0)
    chunk = small[span.start : span.stop]
    last = int(index.offsets[-1]) - span.start
    meta = metadata.chunks(0)[0]
    size = meta.total_compressed_size
    assert size is not None
    meta.total_compressed_size = last
    with pytest.raises(BadPageIndex, match="ends before its last value"):
        walk_pages(chunk[:last], metadata, 0, 0)
    meta.total_compressed_size = size * 2 - last
    with pytest.raises(BadPageIndex, match="1100 rows"):
        walk_pages(chunk + chunk[last:], metadata, 0, 0)
    meta.total_compressed_size = size + 1
    with pytest.raises(BadPageIndex, match=f"{size} of {size + 1} bytes"):
        walk_pages(chunk, metadata, 0, 0)
    with pytest.raises(BadPageIndex, match=r"page (has|size)"):
        walk_pages(chunk + b"\0", metadata, 0, 0)
    dictionary = chunk[: int(index.offsets[0]) - span.start]
    meta.total_compressed_size = size + len(dictionary)
    with pytest.raises(BadPageIndex, match="follows data pages"):
        walk_pages(chunk + dictionary, metadata, 0, 0)
    meta.total_compressed_size = size + 7
    with pytest.raises(BadPageIndex, match="type 9"):
        walk_pages(chunk + bytes([0x15, 18, 0x15, 0, 0x15, 0, 0]), metadata, 0, 0)


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=3))
def test_damaged_chunks_are_refused_or_read_within_bounds(
    small: bytes, changes: list[tuple[int, int]]
) -> None:
    metadata = metadata_of(small)
    span = metadata.chunk_range(0, 0)
    chunk = bytearray(small[span.start : span.stop])
    for place, value in changes:
        # The dictionary's header and those of the pages, where a change can do harm.
        chunk[(place % 50) if place % 2 else place % len(chunk)] = value
    try:
        found = walk_pages(bytes(chunk), metadata, 0, 0)
    except BadPageIndex:
        return
    assert found.row_counts.sum() == 1_000
    assert (np.diff(found.first_rows) >= 0).all()
    assert found.offsets.min() >= span.start
    assert (found.offsets + found.sizes).max() <= span.stop
