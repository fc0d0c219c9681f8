from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from skipstone.parquet.metadata import ParquetMetadata, read_footer
from skipstone.parquet.pageindex import (
    BadPageIndex,
    BoundaryOrder,
    PageIndex,
    page_index_ranges,
    parse_page_index,
)
from skipstone.store.source import ByteRange, open_source


def index_of(data: bytes, metadata: ParquetMetadata, group: int, leaf: int) -> PageIndex:
    columns, offsets = page_index_ranges(metadata, group, leaf)
    assert offsets is not None
    raw = data[columns.start : columns.stop] if columns else None
    return parse_page_index(raw, data[offsets.start : offsets.stop], metadata, group, leaf)


def test_every_column_of_a_pyarrow_file(indexed: bytes) -> None:
    metadata = read_footer(open_source(indexed))
    for leaf in metadata.leaves:
        for group in range(3):
            index = index_of(indexed, metadata, group, leaf.index)
            assert index.row_counts.sum() == 1_000
            assert index.row_counts.max() <= 100
            chunk = metadata.chunk_range(group, leaf.index)
            assert chunk.start <= index.offsets[0]
            assert index.offsets[-1] + index.sizes[-1] == chunk.stop


def test_bounds_and_counts(indexed: bytes) -> None:
    metadata = read_footer(open_source(indexed))
    index = index_of(indexed, metadata, 1, 0)
    assert len(index) == 10
    assert index.first_rows.tolist() == list(range(0, 1_000, 100))
    assert [int.from_bytes(low, "little") for low in index.min_values] == list(range(1_000, 2_000, 100))
    assert [int.from_bytes(high, "little") for high in index.max_values] == list(range(1_099, 2_000, 100))
    assert index.boundary_order is BoundaryOrder.ASCENDING
    assert index.null_counts is not None
    assert index.null_counts.sum() == 0
    assert not index.null_pages.any()
    nulls = index_of(indexed, metadata, 0, 1).null_counts
    assert nulls is not None
    assert nulls.sum() == 143


def test_all_null_pages(write: Any) -> None:
    table = pa.table({"a": pa.array([None] * 200 + [1] * 100, pa.int32())})
    data = write(table, write_page_index=True, max_rows_per_page=100, use_dictionary=False)
    index = index_of(data, read_footer(open_source(data)), 0, 0)
    assert index.null_pages.tolist() == [True, True, False]


def test_polars_files(tmp_path: Path) -> None:
    path = tmp_path / "p.parquet"
    frame = pl.DataFrame({"i": range(100_000), "f": [float(i) for i in range(100_000)]})
    frame.write_parquet(path, data_page_size=20_000)
    data = path.read_bytes()
    metadata = read_footer(open_source(data))
    for leaf in metadata.leaves:
        for group in range(metadata.row_group_count):
            assert (
                index_of(data, metadata, group, leaf.index).row_counts.sum() == metadata.row_group_rows[group]
            )


def test_files_without_a_page_index(table: pa.Table, write: Any) -> None:
    assert page_index_ranges(read_footer(open_source(write(table))), 0, 0) == (None, None)


def test_the_offset_index_alone(indexed: bytes) -> None:
    metadata = read_footer(open_source(indexed))
    _, offsets = page_index_ranges(metadata, 0, 0)
    assert offsets is not None
    index = parse_page_index(None, indexed[offsets.start : offsets.stop], metadata, 0, 0)
    assert len(index) == 10
    assert not index.has_statistics
    assert (index.min_values, index.null_counts) == ([], None)


def test_a_range_outside_the_file_is_no_range(indexed: bytes) -> None:
    metadata = read_footer(open_source(indexed))
    chunk = metadata.columns(0)[0]
    chunk.column_index_offset = len(indexed)
    chunk.offset_index_length = -1
    assert page_index_ranges(metadata, 0, 0) == (None, None)


# ---------------------------------------------------------------- indexes that contradict themselves


class Raw:
    """Stand-ins for decoded structs, so that each lie is told plainly."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


def location(first_row: Any, offset: Any, size: Any) -> Raw:
    return Raw(first_row_index=first_row, offset=offset, compressed_page_size=size)


@pytest.fixture
def parse(monkeypatch: pytest.MonkeyPatch) -> Callable[..., PageIndex]:
    """Parse an index over 100 rows in bytes 100 to 1,000, its parts given by field."""

    class Metadata:
        row_group_rows = (100,)
        leaves = (Raw(max_repetition=0, max_definition=1), Raw(max_repetition=1, max_definition=2))

        def chunk_range(self, group: int, leaf: int) -> ByteRange:
            return ByteRange(100, 1_000)

    def parse(pages: Any = None, leaf: int = 0, **columns: Any) -> PageIndex:
        good = [location(0, 100, 100), location(50, 200, 100)]
        statistics = {
            "null_pages": [False, False],
            "min_values": [b"a", b"b"],
            "max_values": [b"a", b"b"],
            "boundary_order": 1,
            "null_counts": [0, 3],
            "nan_counts": None,
            **columns,
        }
        parts = {"offset index": Raw(page_locations=good if pages is None else pages)}
        parts["column index"] = Raw(**statistics)
        monkeypatch.setattr("skipstone.parquet.pageindex._decode", lambda cls, data, what, _: parts[what])
        return parse_page_index(b"", b"", Metadata(), 0, leaf)  # type: ignore[arg-type]

    return parse


def test_the_sound_index_passes(parse: Callable[..., PageIndex]) -> None:
    index = parse()
    assert index.row_counts.tolist() == [50, 50]
    assert index.null_counts is not None
    assert index.null_counts.tolist() == [0, 3]


@pytest.mark.parametrize(
    ("pages", "reason"),
    [
        ([], "chunk has no pages for 100 rows"),
        ([location(1, 100, 100), location(50, 200, 100)], "begins at row 1"),
        ([location(0, 100, 100), location(101, 200, 100)], "row 101 of 100"),
        ([location(0, 100, 100), location(-5, 200, 100)], "not in order"),
        ([location(0, 99, 100), location(50, 200, 100)], "outside its column chunk"),
        ([location(0, 100, 100), location(50, 950, 100)], "ends outside"),
        ([location(0, 100, 101), location(50, 200, 100)], "overlap"),
        ([location(0, 200, 100), location(50, 100, 100)], "overlap or are out of order"),
        ([location(0, 100, 0), location(50, 200, 100)], "no bytes"),
        ([location(0, 100, 100), location(50, 2**63 - 1, 2**31 - 1)], "outside"),
        ([location(None, 100, 100), location(50, 200, 100)], "lacks a field"),
    ],
)
def test_bad_places(parse: Callable[..., PageIndex], pages: Any, reason: str) -> None:
    with pytest.raises(BadPageIndex, match=reason):
        parse(pages)


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"min_values": [b"a"]}, "one per page"),
        ({"null_counts": [1]}, "one per page"),
        ({"nan_counts": [1, 2, 3]}, "one per page"),
        ({"null_pages": [False] * 3, "min_values": [b""] * 3, "max_values": [b""] * 3}, "one per page"),
        ({"max_values": None}, "lacks a required list"),
        ({"null_pages": [True, False]}, "null page has no nulls"),
        ({"null_pages": [False, True]}, "fewer nulls than rows"),
        ({"null_counts": [51, 0]}, "more nulls than rows"),
    ],
)
def test_bad_statistics(parse: Callable[..., PageIndex], columns: Any, reason: str) -> None:
    with pytest.raises(BadPageIndex, match=reason):
        parse(**columns)


def test_a_repeated_leaf_counts_values_not_rows(parse: Callable[..., PageIndex]) -> None:
    assert parse(leaf=1, null_counts=[500, 3], null_pages=[True, False]).null_pages.any()
    with pytest.raises(BadPageIndex, match="null page has no nulls"):
        parse(leaf=1, null_pages=[True, False])


def test_zero_row_pages_are_allowed(parse: Callable[..., PageIndex]) -> None:
    pages = [location(0, 100, 100), location(0, 200, 100)]
    assert parse(pages).row_counts.tolist() == [0, 100]
    last = [location(0, 100, 100), location(100, 200, 100)]
    assert parse(last, null_pages=[False, True], null_counts=[0, 0]).row_counts.tolist() == [100, 0]


def test_negative_counts_are_unknown(parse: Callable[..., PageIndex]) -> None:
    index = parse(null_counts=[-1, 0], nan_counts=[0, -1])
    assert (index.null_counts, index.nan_counts) == (None, None)


def test_an_unknown_boundary_order_is_no_order(parse: Callable[..., PageIndex]) -> None:
    assert parse(boundary_order=7).boundary_order is BoundaryOrder.UNORDERED
    assert parse(boundary_order=None).boundary_order is BoundaryOrder.UNORDERED
