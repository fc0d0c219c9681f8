"""The Thrift structures of a Parquet file that Skipstone reads: footers, page indexes and pages.

Field numbers follow ``parquet.thrift`` of apache/parquet-format. The decoder skips undeclared fields, which
is much cheaper than creating objects: declare a field only if it is used.
"""

from __future__ import annotations

from skipstone.parquet.wire import BINARY, BOOL, I8, I32, I64, Struct, Union, list_of, spec, struct

# ---------------------------------------------------------------- schema


class Empty(Struct):
    """An empty struct, such as a union's variant."""


class TimeUnit(Union):
    """Unit of a time or timestamp."""

    thrift_spec = spec(
        (1, "MILLIS", struct(Empty)), (2, "MICROS", struct(Empty)), (3, "NANOS", struct(Empty))
    )


class DecimalType(Struct):
    """Scale and precision of a decimal."""

    scale: int | None = None
    precision: int | None = None
    thrift_spec = spec((1, "scale", I32), (2, "precision", I32))


class TimeType(Struct):
    """Unit of a time or a timestamp and whether it is an instant in UTC."""

    isAdjustedToUTC: bool | None = None  # noqa: N815
    unit: TimeUnit | None = None
    thrift_spec = spec((1, "isAdjustedToUTC", BOOL), (2, "unit", struct(TimeUnit)))


class IntType(Struct):
    """Width and sign of an integer."""

    bitWidth: int | None = None  # noqa: N815
    isSigned: bool | None = None  # noqa: N815
    thrift_spec = spec((1, "bitWidth", I8), (2, "isSigned", BOOL))


class LogicalType(Union):
    """Logical type; variants are named as in ``LogicalKind``."""

    DECIMAL: DecimalType
    TIME: TimeType
    TIMESTAMP: TimeType
    INTEGER: IntType
    thrift_spec = spec(
        (1, "STRING", struct(Empty)),
        (2, "MAP", struct(Empty)),
        (3, "LIST", struct(Empty)),
        (4, "ENUM", struct(Empty)),
        (5, "DECIMAL", struct(DecimalType)),
        (6, "DATE", struct(Empty)),
        (7, "TIME", struct(TimeType)),
        (8, "TIMESTAMP", struct(TimeType)),
        (10, "INTEGER", struct(IntType)),
        (11, "NULL", struct(Empty)),
        (12, "JSON", struct(Empty)),
        (13, "BSON", struct(Empty)),
        (14, "UUID", struct(Empty)),
        (15, "FLOAT16", struct(Empty)),
        (16, "VARIANT", struct(Empty)),
        (17, "GEOMETRY", struct(Empty)),
        (18, "GEOGRAPHY", struct(Empty)),
    )


class SchemaElement(Struct):
    """One node of the schema tree, which is stored depth first."""

    least = 3
    type: int | None = None
    type_length: int | None = None
    repetition_type: int | None = None
    name: bytes | None = None
    num_children: int | None = None
    converted_type: int | None = None
    scale: int | None = None
    precision: int | None = None
    field_id: int | None = None
    logicalType: LogicalType | None = None  # noqa: N815
    thrift_spec = spec(
        (1, "type", I32),
        (2, "type_length", I32),
        (3, "repetition_type", I32),
        (4, "name", BINARY),
        (5, "num_children", I32),
        (6, "converted_type", I32),
        (7, "scale", I32),
        (8, "precision", I32),
        (9, "field_id", I32),
        (10, "logicalType", struct(LogicalType)),
    )


class ColumnOrder(Union):
    """Order of a column's bounds."""

    least = 4  # with the schema element of its column
    thrift_spec = spec(
        (1, "TYPE_ORDER", struct(Empty)),
        (2, "IEEE_754_TOTAL_ORDER", struct(Empty)),
        (3, "INT96_TIMESTAMP_ORDER", struct(Empty)),
    )


# ---------------------------------------------------------------- footer


class Statistics(Struct):
    """Statistics of one chunk; an absent field is unknown, never zero."""

    null_count: int | None = None
    max_value: bytes | None = None
    min_value: bytes | None = None
    is_max_value_exact: bool | None = None
    is_min_value_exact: bool | None = None
    nan_count: int | None = None
    thrift_spec = spec(
        (3, "null_count", I64),
        (5, "max_value", BINARY),
        (6, "min_value", BINARY),
        (7, "is_max_value_exact", BOOL),
        (8, "is_min_value_exact", BOOL),
        (9, "nan_count", I64),
    )


class ColumnMetaData(Struct):
    """One column chunk: its offsets, sizes and statistics.

    Fields without a default are required by the format: ``ParquetMetadata`` refuses a chunk that lacks one,
    so that no other code has to check.
    """

    type: int
    path_in_schema: list[bytes] | None = None
    codec: int
    num_values: int
    total_compressed_size: int
    data_page_offset: int
    dictionary_page_offset: int | None = None
    statistics: Statistics | None = None
    bloom_filter_offset: int | None = None
    bloom_filter_length: int | None = None
    thrift_spec = spec(
        (1, "type", I32),
        (3, "path_in_schema", list_of(BINARY)),
        (4, "codec", I32),
        (5, "num_values", I64),
        (7, "total_compressed_size", I64),
        (9, "data_page_offset", I64),
        (11, "dictionary_page_offset", I64),
        (12, "statistics", struct(Statistics)),
        (14, "bloom_filter_offset", I64),
        (15, "bloom_filter_length", I32),
    )


class ColumnChunk(Struct):
    """A chunk's metadata, and the offsets of its page index."""

    least = 16
    file_path: bytes | None = None
    meta_data: ColumnMetaData | None = None
    offset_index_offset: int | None = None
    offset_index_length: int | None = None
    column_index_offset: int | None = None
    column_index_length: int | None = None
    crypto_metadata: Empty | None = None
    encrypted_column_metadata: bytes | None = None
    thrift_spec = spec(
        (1, "file_path", BINARY),
        (3, "meta_data", struct(ColumnMetaData)),
        (4, "offset_index_offset", I64),
        (5, "offset_index_length", I32),
        (6, "column_index_offset", I64),
        (7, "column_index_length", I32),
        (8, "crypto_metadata", struct(Empty)),
        (9, "encrypted_column_metadata", BINARY),
    )


class SortingColumn(Struct):
    """One sort key of a row group's declared order."""

    least = 5
    column_idx: int | None = None
    descending: bool | None = None
    nulls_first: bool | None = None
    thrift_spec = spec((1, "column_idx", I32), (2, "descending", BOOL), (3, "nulls_first", BOOL))


class RowGroup(Struct):
    """One chunk per leaf column, of the same rows."""

    least = 7
    columns: list[ColumnChunk] | None = None
    total_byte_size: int | None = None
    num_rows: int | None = None
    sorting_columns: list[SortingColumn] | None = None
    thrift_spec = spec(
        (1, "columns", list_of(struct(ColumnChunk))),
        (2, "total_byte_size", I64),
        (3, "num_rows", I64),
        (4, "sorting_columns", list_of(struct(SortingColumn))),
    )


class KeyValue(Struct):
    """One key-value pair of the writer."""

    least = 3
    key: bytes | None = None
    value: bytes | None = None
    thrift_spec = spec((1, "key", BINARY), (2, "value", BINARY))


class FileMetaData(Struct):
    """The footer."""

    version: int | None = None
    schema: list[SchemaElement] | None = None
    num_rows: int | None = None
    row_groups: list[RowGroup] | None = None
    key_value_metadata: list[KeyValue] | None = None
    created_by: bytes | None = None
    column_orders: list[ColumnOrder] | None = None
    encryption_algorithm: Empty | None = None
    thrift_spec = spec(
        (1, "version", I32),
        (2, "schema", list_of(struct(SchemaElement))),
        (3, "num_rows", I64),
        (4, "row_groups", list_of(struct(RowGroup))),
        (5, "key_value_metadata", list_of(struct(KeyValue))),
        (6, "created_by", BINARY),
        (7, "column_orders", list_of(struct(ColumnOrder))),
        (8, "encryption_algorithm", struct(Empty)),
    )


# ---------------------------------------------------------------- rarely used parts of the footer
#
# Encoding statistics and the deprecated bounds take much of the time to decode a footer, so they are omitted
# above, and decoded by a second pass over the same bytes on first use.


class PageEncodingStats(Struct):
    """Number of pages of one type and encoding."""

    least = 7
    page_type: int | None = None
    encoding: int | None = None
    count: int | None = None
    thrift_spec = spec((1, "page_type", I32), (2, "encoding", I32), (3, "count", I32))


class LegacyStatistics(Struct):
    """The deprecated bounds in Statistics, whose order the format never fixed."""

    max: bytes | None = None
    min: bytes | None = None
    thrift_spec = spec((1, "max", BINARY), (2, "min", BINARY))


class ChunkDetails(Struct):
    """The rest of a ColumnMetaData."""

    encodings: list[int] | None = None
    statistics: LegacyStatistics | None = None
    encoding_stats: list[PageEncodingStats] | None = None
    thrift_spec = spec(
        (2, "encodings", list_of(I32)),
        (12, "statistics", struct(LegacyStatistics)),
        (13, "encoding_stats", list_of(struct(PageEncodingStats))),
    )


class ColumnDetails(Struct):
    """The rest of a ColumnChunk."""

    least = 16
    meta_data: ChunkDetails | None = None
    thrift_spec = spec((3, "meta_data", struct(ChunkDetails)))


class RowGroupDetails(Struct):
    """The rest of a RowGroup."""

    least = 7
    columns: list[ColumnDetails] | None = None
    thrift_spec = spec((1, "columns", list_of(struct(ColumnDetails))))


class FileDetails(Struct):
    """The rest of a FileMetaData."""

    row_groups: list[RowGroupDetails] | None = None
    thrift_spec = spec((4, "row_groups", list_of(struct(RowGroupDetails))))


# ---------------------------------------------------------------- page index, bloom filters, pages


class PageLocation(Struct):
    """Offset, size and first row of one data page."""

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
    """Header of a bloom filter."""

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
    """Header of a dictionary page."""

    num_values: int | None = None
    encoding: int | None = None
    is_sorted: bool | None = None
    thrift_spec = spec((1, "num_values", I32), (2, "encoding", I32), (3, "is_sorted", BOOL))


class PageHeader(Struct):
    """Header of a page."""

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


# ---------------------------------------------------------------- page headers for slices
#
# A slice reads the header of every selected page, and only these fields.


class DataPageHead(Struct):
    """Values and encoding of a version 1 page."""

    num_values: int | None = None
    encoding: int | None = None
    thrift_spec = spec((1, "num_values", I32), (2, "encoding", I32))


class DataPageHeadV2(Struct):
    """Values, rows and encoding of a version 2 page."""

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
