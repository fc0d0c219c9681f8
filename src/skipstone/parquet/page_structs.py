"""The Thrift structures outside the footer: page index, bloom filter header, page headers."""

from __future__ import annotations

from skipstone.parquet.structs import Empty, Statistics
from skipstone.parquet.wire import BINARY, BOOL, I32, I64, Struct, Union, list_of, spec, struct


class PageLocation(Struct):
    """Where one data page is and which row of the row group it begins at."""

    least = 7
    offset: int | None = None
    compressed_page_size: int | None = None
    first_row_index: int | None = None
    thrift_spec = spec((1, "offset", I64), (2, "compressed_page_size", I32), (3, "first_row_index", I64))


class RawOffsetIndex(Struct):
    """The pages of one chunk."""

    page_locations: list[PageLocation] | None = None
    thrift_spec = spec((1, "page_locations", list_of(struct(PageLocation))))


class RawColumnIndex(Struct):
    """Statistics of every page of one chunk."""

    null_pages: list[bool] | None = None
    min_values: list[bytes] | None = None
    max_values: list[bytes] | None = None
    boundary_order: int | None = None
    null_counts: list[int] | None = None
    nan_counts: list[int] | None = None
    thrift_spec = spec(
        (1, "null_pages", list_of(BOOL)),
        (2, "min_values", list_of(BINARY)),
        (3, "max_values", list_of(BINARY)),
        (4, "boundary_order", I32),
        (5, "null_counts", list_of(I64)),
        (8, "nan_counts", list_of(I64)),
    )


class BloomFilterAlgorithm(Union):
    """A union with one known variant."""

    thrift_spec = spec((1, "BLOCK", struct(Empty)))


class BloomFilterHash(Union):
    """A union with one known variant."""

    thrift_spec = spec((1, "XXHASH", struct(Empty)))


class BloomFilterCompression(Union):
    """A union with one known variant."""

    thrift_spec = spec((1, "UNCOMPRESSED", struct(Empty)))


class BloomFilterHeader(Struct):
    """What stands before a bloom filter's bits."""

    numBytes: int | None = None  # noqa: N815
    algorithm: BloomFilterAlgorithm | None = None
    hash: BloomFilterHash | None = None
    compression: BloomFilterCompression | None = None
    thrift_spec = spec(
        (1, "numBytes", I32),
        (2, "algorithm", struct(BloomFilterAlgorithm)),
        (3, "hash", struct(BloomFilterHash)),
        (4, "compression", struct(BloomFilterCompression)),
    )


class DataPageHeader(Struct):
    """A data page of the first version."""

    num_values: int | None = None
    encoding: int | None = None
    definition_level_encoding: int | None = None
    repetition_level_encoding: int | None = None
    statistics: Statistics | None = None
    thrift_spec = spec(
        (1, "num_values", I32),
        (2, "encoding", I32),
        (3, "definition_level_encoding", I32),
        (4, "repetition_level_encoding", I32),
        (5, "statistics", struct(Statistics)),
    )


class DataPageHeaderV2(Struct):
    """A data page of the second version, whose levels are never compressed."""

    num_values: int | None = None
    num_nulls: int | None = None
    num_rows: int | None = None
    encoding: int | None = None
    definition_levels_byte_length: int | None = None
    repetition_levels_byte_length: int | None = None
    is_compressed: bool | None = None
    statistics: Statistics | None = None
    thrift_spec = spec(
        (1, "num_values", I32),
        (2, "num_nulls", I32),
        (3, "num_rows", I32),
        (4, "encoding", I32),
        (5, "definition_levels_byte_length", I32),
        (6, "repetition_levels_byte_length", I32),
        (7, "is_compressed", BOOL),
        (8, "statistics", struct(Statistics)),
    )


class DictionaryPageHeader(Struct):
    """The page that holds a chunk's distinct values."""

    num_values: int | None = None
    encoding: int | None = None
    is_sorted: bool | None = None
    thrift_spec = spec((1, "num_values", I32), (2, "encoding", I32), (3, "is_sorted", BOOL))


class PageHeader(Struct):
    """What stands before every page's bytes."""

    type: int | None = None
    uncompressed_page_size: int | None = None
    compressed_page_size: int | None = None
    crc: int | None = None
    data_page_header: DataPageHeader | None = None
    dictionary_page_header: DictionaryPageHeader | None = None
    data_page_header_v2: DataPageHeaderV2 | None = None
    thrift_spec = spec(
        (1, "type", I32),
        (2, "uncompressed_page_size", I32),
        (3, "compressed_page_size", I32),
        (4, "crc", I32),
        (5, "data_page_header", struct(DataPageHeader)),
        (7, "dictionary_page_header", struct(DictionaryPageHeader)),
        (8, "data_page_header_v2", struct(DataPageHeaderV2)),
    )


# ---------------------------------------------------------------- page headers again, for slices
#
# A slice looks at the header of every page it takes, and only at these fields.


class DataPageHead(Struct):
    """How many values a page of the first version holds, and how they are encoded."""

    num_values: int | None = None
    encoding: int | None = None
    thrift_spec = spec((1, "num_values", I32), (2, "encoding", I32))


class DataPageHeadV2(Struct):
    """The same of a page of the second version, which also counts its rows."""

    num_values: int | None = None
    num_rows: int | None = None
    encoding: int | None = None
    thrift_spec = spec((1, "num_values", I32), (3, "num_rows", I32), (4, "encoding", I32))


class PageHead(Struct):
    """A page header without its statistics and checksum."""

    type: int | None = None
    compressed_page_size: int | None = None
    data_page_header: DataPageHead | None = None
    data_page_header_v2: DataPageHeadV2 | None = None
    thrift_spec = spec(
        (1, "type", I32),
        (3, "compressed_page_size", I32),
        (5, "data_page_header", struct(DataPageHead)),
        (8, "data_page_header_v2", struct(DataPageHeadV2)),
    )
