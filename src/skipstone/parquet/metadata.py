"""File metadata: read from the footer, checked once, and kept in its original form."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from skipstone.errors import CorruptFileError, EncryptedFileError, NotParquetError, SchemaError
from skipstone.parquet.schema import (
    FileWriter,
    LeafColumn,
    LogicalKind,
    decode_footer,
    is_unmarked_instant,
    split_footer,
    text,
)
from skipstone.parquet.structs import (
    ChunkDetails,
    ColumnChunk,
    ColumnMetaData,
    FileDetails,
    PageEncodingStats,
)
from skipstone.store.source import ByteRange, Source

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from skipstone.core.evidence import ColumnFacts
    from skipstone.core.ir.nodes import ColumnRef
    from skipstone.parquet.pageindex import PageIndex
    from skipstone.parquet.slice.pages import Use
    from skipstone.typing import ArrowFileMetaData


# The format has ten; recorded codec numbers may have up to this value.
_MOST_CODECS = 1000
_FEW_CHUNKS = 8
_LONGEST_FILE = 2**62
_FILE_PATH = attrgetter("file_path")
_REQUIRED = attrgetter("type", "codec", "num_values", "total_compressed_size", "data_page_offset")


class ParquetMetadata:
    """The metadata of one Parquet file; [read_metadata][skipstone.read_metadata] reads it.

    It is checked when it is created: the schema is a tree, row counts add up, and every row group has the
    schema's columns with the fields that the format requires. Column chunks are checked on first use,
    because a query uses few columns of a wide file. ``size`` is None if only the metadata is available.

    Examples:
        >>> import skipstone as sk
        >>> metadata = sk.read_metadata("events/part-0.parquet")
        >>> metadata.num_rows, metadata.row_group_count
        (250, 1)
    """

    __slots__ = (
        "_chunks",
        "_details",
        "_starts",
        "footer",
        "memo",
        "num_rows",
        "path",
        "row_group_rows",
        "row_groups",
        "schema_group",
        "size",
        "version",
    )

    def __init__(self, footer: bytes, path: str, size: int | None) -> None:
        self.path = path
        self.size = size
        # The store's version of the file that was read; None if only the footer is available.
        self.version: object | None = None
        self.footer = footer
        self.schema_group, said, self.row_groups = split_footer(footer, path)
        self._check(said)
        self._starts: NDArray[np.int64] | None = None
        self._details: FileDetails | None = None
        self._chunks: dict[int, list[ColumnMetaData]] = {}
        # Cache for other packages, with the lifetime of this footer.
        self.memo: dict[Any, Any] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        # The footer is far smaller than its objects, and is checked again when it is unpickled.
        return (type(self), (self.footer, self.path, self.size), (None, {"version": self.version}))

    def __repr__(self) -> str:
        shape = f"{self.num_rows} rows, {self.row_group_count} row groups, {len(self.leaves)} columns"
        return f"ParquetMetadata({self.path!r}, {shape})"

    @property
    def leaves(self) -> tuple[LeafColumn, ...]:
        """The stored columns."""
        return self.schema_group.leaves

    @property
    def created_by(self) -> str:
        """The writer, as in the footer."""
        return self.schema_group.created_by

    @property
    def writer(self) -> FileWriter:
        """The writer's application and version."""
        return self.schema_group.writer

    @property
    def row_group_starts(self) -> NDArray[np.int64]:
        """First row of each row group."""
        if self._starts is None:
            self._starts = np.cumsum(self.row_group_rows) - self.row_group_rows
        return self._starts

    @property
    def identity(self) -> tuple[str, object, int]:
        """Identifies the file and its version, even if the store has no versions."""
        return (self.path, self.version, hash(self.footer))

    @property
    def footer_size(self) -> int:
        """Bytes of the encoded footer."""
        return len(self.footer)

    @property
    def row_group_count(self) -> int:
        """Number of row groups."""
        return len(self.row_groups)

    @property
    def key_value_metadata(self) -> dict[bytes, bytes]:
        """The writer's key-value pairs; the last of equal keys wins."""
        pairs = self.schema_group.raw.key_value_metadata or ()
        return {pair.key: pair.value or b"" for pair in pairs if pair.key is not None}

    @property
    def arrow_schema(self) -> pa.Schema:
        """The schema as pyarrow reads it, built on first use."""
        if self.schema_group.arrow_schema is None:
            # Without row groups, which pyarrow parses slowly.
            self.schema_group.arrow_schema = self._read_schema(self.shell())
        return self.schema_group.arrow_schema

    def _read_schema(self, footer: bytes) -> pa.Schema:
        import pyarrow as pa
        import pyarrow.parquet as pq

        shell = b"".join((b"PAR1", footer, len(footer).to_bytes(4, "little"), b"PAR1"))
        try:
            schema = pq.read_schema(pa.BufferReader(shell))
        except (pa.ArrowException, OSError, ValueError) as error:
            if isinstance(error, pa.ArrowNotImplementedError):
                message = f"pyarrow does not support the type of a column: {error}"
                raise SchemaError(
                    message, path=self.path, hint="rewrite the file with another type"
                ) from error
            raise CorruptFileError(f"pyarrow can't read the schema: {error}", path=self.path) from error
        if LogicalKind.NULL not in [leaf.logical.kind for leaf in self.leaves]:
            return schema
        return pa.schema([_with_nulls(field) for field in schema], schema.metadata)

    @property
    def query_schema(self) -> pa.Schema:
        """The schema predicates are bound to: pyarrow's, with time zones where the format has instants.

        pyarrow reads INT96 and timestamps of the deprecated converted types without a zone. In the format,
        and in Spark, they are instants, which determines the meaning of times in predicates.
        """
        memo = self.schema_group.memo
        if "query schema" not in memo:
            import pyarrow as pa

            instants = {leaf.path for leaf in self.leaves if is_unmarked_instant(leaf)}
            fields = [_with_zone(field, (), instants) for field in self.arrow_schema] if instants else []
            memo["query schema"] = (
                pa.schema(fields, self.arrow_schema.metadata) if fields else self.arrow_schema
            )
        return memo["query schema"]

    def shell(self) -> bytes:
        """Return the footer without row groups; the full footer if its fields are in an unusual order."""
        return self.schema_group.shell or self.footer

    @property
    def has_secrets(self) -> bool:
        """Whether parts of the file are encrypted."""
        return self.schema_group.raw.encryption_algorithm is not None

    def group_sizes(self, group: int) -> tuple[int, int]:
        """Bytes of a row group: uncompressed, if the writer recorded it, and stored."""
        raw = self.row_groups[group]
        chunks = (column.meta_data for column in raw.columns or ())
        return raw.total_byte_size or 0, sum(chunk.total_compressed_size for chunk in chunks if chunk)

    def column(self, group: int, leaf: int) -> ColumnChunk:
        """Return one raw chunk, with the offsets of its page index."""
        columns = self.row_groups[group].columns
        assert columns is not None
        return columns[leaf]

    def columns(self, leaf: int) -> list[ColumnChunk]:
        """Return the raw chunks of a leaf, one per row group."""
        return [group.columns[leaf] for group in self.row_groups]  # type: ignore[index]  # checked on creation

    def chunks(self, leaf: int) -> list[ColumnMetaData]:
        """Return the metadata of a leaf's chunks, one per row group, checked on first use."""
        chunks = self._chunks.get(leaf)
        if chunks is None:
            chunks = self._chunks[leaf] = all_chunks([self], leaf)
        return chunks

    def encrypted(self, leaf: int) -> list[bool]:
        """Per row group, whether a leaf's chunk is encrypted, so that its statistics are unusable."""
        if self.schema_group.raw.encryption_algorithm is None:
            return [False] * self.row_group_count
        return [self.is_encrypted(group, leaf) for group in range(self.row_group_count)]

    def is_encrypted(self, group: int, leaf: int) -> bool:
        """Whether one chunk is encrypted."""
        chunk = self.column(group, leaf)
        return chunk.crypto_metadata is not None or chunk.encrypted_column_metadata is not None

    def encoding_stats(self, group: int, leaf: int) -> list[PageEncodingStats] | None:
        """Return the number of pages per encoding of a chunk; None if the writer did not record it."""
        details = self._detail(group, leaf)
        return details.encoding_stats if details is not None else None

    def legacy_bounds(self, leaf: int) -> tuple[list[bytes | None], list[bytes | None]]:
        """Return the deprecated bounds of a leaf's chunks: minima, maxima."""
        details = [self._detail(group, leaf) for group in range(self.row_group_count)]
        stats = [None if d is None else d.statistics for d in details]
        return [s.min if s else None for s in stats], [s.max if s else None for s in stats]

    def _detail(self, group: int, leaf: int) -> ChunkDetails | None:
        if self._details is None:
            self._details = decode_footer(FileDetails, self.footer, self.path)
        # The first decoding has checked that these parts exist.
        groups = self._details.row_groups
        columns = groups[group].columns if groups is not None else None
        return columns[leaf].meta_data if columns is not None else None

    def chunk_layout(self, group: int, leaf: int) -> tuple[ByteRange, int, Use | None]:
        """Return the byte range of a chunk, its codec, and its dictionary use if that is recorded."""
        if self.is_encrypted(group, leaf):
            raise EncryptedFileError(
                "column is encrypted",
                path=self.path,
                unit=_unit(group),
                column=self.leaves[leaf].name,
                hint="select other columns",
            )
        meta = self.chunks(leaf)[group]
        return _range(meta), meta.codec, None

    def chunk_layouts(self, group: int, leaves: Sequence[int]) -> list[tuple[ByteRange, int, Use | None]]:
        """Return the ``chunk_layout`` of several chunks of a row group."""
        return [self.chunk_layout(group, leaf) for leaf in leaves]

    def page_offsets(self, group: int, leaf: int) -> PageIndex | None:  # noqa: ARG002
        """Return the recorded page offsets of a chunk; a footer has none."""
        return None

    def all_page_offsets(self, group: int, leaves: Sequence[int]) -> list[PageIndex | None]:  # noqa: ARG002
        """Return the recorded page offsets of several chunks of a row group."""
        return [None] * len(leaves)

    def recorded_facts(self, ref: ColumnRef) -> ColumnFacts | None:  # noqa: ARG002
        """Return the recorded facts about a column in each row group; a footer has statistics instead."""
        return None

    def chunk_range(self, group: int, leaf: int) -> ByteRange:
        """Return the byte range of one chunk, including its dictionary page."""
        return _range(self.chunks(leaf)[group])

    def _check(self, said: int) -> None:
        """Set the row counts, and check that all chunks exist; ``_refuse`` raises a specific error."""
        groups, paths = self.row_groups, self.schema_group.paths
        try:
            counts = [group.num_rows for group in groups]
            columns = [group.columns for group in groups]
            metas = [chunk.meta_data for chunks in columns for chunk in chunks]  # type: ignore[union-attr]
            actual = [meta.path_in_schema for meta in metas]  # type: ignore[union-attr]
            list(map(_REQUIRED, metas))
            right = (
                actual == paths * len(groups)
                and not {*map(len, columns)} - {len(paths)}  # type: ignore[arg-type]
                and min(counts, default=0) >= 0  # type: ignore[type-var,operator]
            )
        except (AttributeError, TypeError):
            right = False
        if not right:
            self._refuse()
        total: int = sum(counts)  # type: ignore[arg-type]
        # Early writers recorded zero, which every reader accepts.
        if (said and said != total) or total >= 2**63:
            message = f"row groups have {total} rows, but the footer records {said}"
            raise CorruptFileError(message, path=self.path)
        self.num_rows = total
        self.row_group_rows: NDArray[np.int64] = np.array(counts, dtype=np.int64)

    def _refuse(self) -> None:
        """Raise an error for the first invalid row group or chunk; unusual names may be valid."""
        for number, group in enumerate(self.row_groups):
            count, chunks = group.num_rows, group.columns
            if count is None or count < 0:
                raise CorruptFileError(f"row count is {count}", path=self.path, unit=_unit(number))
            if chunks is None or len(chunks) != len(self.leaves):
                count = 0 if chunks is None else len(chunks)
                message = f"{count} column chunks for {len(self.leaves)} leaf columns"
                raise CorruptFileError(message, path=self.path, unit=_unit(number))
            for leaf, chunk in zip(self.leaves, chunks, strict=True):
                self._check_path(number, chunk, leaf)
                try:
                    _REQUIRED(chunk.meta_data)
                except AttributeError as error:
                    message = f"chunk metadata lacks the required field {error.name}"
                    raise CorruptFileError(
                        message, path=self.path, unit=_unit(number), column=leaf.name
                    ) from None

    def _check_path(self, group: int, chunk: ColumnChunk, leaf: LeafColumn) -> None:
        place: dict[str, Any] = {"path": self.path, "unit": _unit(group), "column": leaf.name}
        if chunk.meta_data is None:
            if chunk.crypto_metadata is not None:
                raise EncryptedFileError("chunk metadata is encrypted", **place)
            raise CorruptFileError("chunk has no metadata", **place)
        steps = chunk.meta_data.path_in_schema
        # A name that is not valid UTF-8 gets here, and is right.
        if steps is None or tuple(map(text, steps)) != leaf.path:
            actual = "no column" if steps is None else f"column {'.'.join(map(text, steps))}"
            raise CorruptFileError(f"chunk belongs to {actual}", **place)

    def _check_chunks(self, leaf: int) -> None:
        column = self.leaves[leaf]
        for group, chunk in enumerate(self.columns(leaf)):
            assert chunk.meta_data is not None
            problem = self._problem(chunk, chunk.meta_data, column, int(self.row_group_rows[group]))
            if problem is not None:
                raise CorruptFileError(problem, path=self.path, unit=_unit(group), column=column.name)

    def _problem(self, chunk: ColumnChunk, meta: ColumnMetaData, leaf: LeafColumn, rows: int) -> str | None:
        if chunk.file_path:
            return "data is in another file; this is a summary file"
        if meta.type != leaf.physical:
            return f"chunk has physical type {meta.type}, the schema {int(leaf.physical)}"
        if min(meta.codec, meta.num_values, meta.data_page_offset, meta.total_compressed_size) < 0:
            return "chunk has a negative size, offset or count"
        if meta.codec > _MOST_CODECS:
            return f"chunk has unknown compression codec {meta.codec}"
        if (meta.num_values < rows) if leaf.max_repetition else (meta.num_values != rows):
            return f"chunk has {meta.num_values} values for {rows} rows"
        if self.size is not None and _range(meta).stop > self.size:
            return f"chunk ends at byte {_range(meta).stop}, the file at {self.size}"
        return None


def all_chunks(files: Sequence[ParquetMetadata], leaf: int) -> list[ColumnMetaData]:
    """Return the metadata of a leaf's chunks in files of one schema, checked."""
    if len(files) == 1:
        chunks = files[0].columns(leaf)
    else:
        chunks = [group.columns[leaf] for file in files for group in file.row_groups]  # type: ignore[index]
    # Existence was checked on creation.
    metas: list[ColumnMetaData] = [chunk.meta_data for chunk in chunks]  # type: ignore[misc]
    if len(files) == 1 and len(chunks) <= _FEW_CHUNKS:
        # Arrays would take longer.
        files[0]._check_chunks(leaf)
        return metas

    def values(name: str) -> NDArray[np.int64]:
        return np.fromiter(map(attrgetter(name), metas), dtype=np.int64, count=len(metas))

    counts, offsets, sizes = map(values, ("num_values", "data_page_offset", "total_compressed_size"))
    types, codecs = map(values, ("type", "codec"))
    column = files[0].leaves[leaf]
    rows = np.concatenate([file.row_group_rows for file in files])
    # A file of unknown size has no limit.
    ends = np.array([_LONGEST_FILE if file.size is None else file.size for file in files], dtype=np.int64)
    ends = ends.repeat([*map(len, [file.row_group_rows for file in files])])
    right = (
        not any(map(_FILE_PATH, chunks))
        and (types == column.physical).all()
        and ((counts | offsets | sizes | codecs) >= 0).all()
        and (codecs <= _MOST_CODECS).all()
        and ((counts >= rows) if column.max_repetition else (counts == rows)).all()
        and (offsets <= ends - sizes).all()
    )
    if not right:
        # Check individually, to name the invalid chunk, or to accept an unusual one.
        for file in files:
            file._check_chunks(leaf)
    return metas


def check_together(files: Sequence[ParquetMetadata], leaves: Iterable[int]) -> None:
    """Check chunks of files of one schema at once; invalid ones raise an error when they are used."""
    ends = list(accumulate(file.row_group_count for file in files))
    for leaf in leaves:
        try:
            metas = all_chunks(files, leaf)
        except CorruptFileError:
            return
        for file, end in zip(files, ends, strict=True):
            file._chunks.setdefault(leaf, metas[end - file.row_group_count : end])


def all_encrypted(files: Sequence[ParquetMetadata], leaf: int) -> list[bool] | None:
    """Per row group of files of one schema, whether a leaf's chunk is encrypted; None if none is."""
    if not files[0].has_secrets:
        return None
    return [secret for file in files for secret in file.encrypted(leaf)]


def _with_nulls(field: pa.Field) -> pa.Field:
    """Let a field of the type NULL be NULL, which it is even if the column is required."""
    import pyarrow as pa

    type = field.type
    if pa.types.is_null(type):
        return field.with_nullable(True)
    if pa.types.is_struct(type):
        return field.with_type(pa.struct([_with_nulls(child) for child in type.fields]))
    if pa.types.is_map(type):
        return field.with_type(pa.map_(type.key_field, _with_nulls(type.item_field), type.keys_sorted))
    if pa.types.is_large_list(type):
        return field.with_type(pa.large_list(_with_nulls(type.value_field)))
    return field.with_type(pa.list_(_with_nulls(type.value_field))) if pa.types.is_list(type) else field


def _with_zone(field: pa.Field, above: tuple[str, ...], instants: set[tuple[str, ...]]) -> pa.Field:
    import pyarrow as pa

    path = (*above, field.name)
    if path in instants and pa.types.is_timestamp(field.type) and field.type.tz is None:
        return field.with_type(pa.timestamp(field.type.unit, "UTC"))
    if pa.types.is_struct(field.type):
        return field.with_type(pa.struct([_with_zone(child, path, instants) for child in field.type.fields]))
    return field


def _unit(group: int) -> str:
    return f"row group {group}"


def _range(meta: ColumnMetaData) -> ByteRange:
    start = meta.data_page_offset
    # Some writers use 0 for no dictionary page.
    if meta.dictionary_page_offset is not None and 0 < meta.dictionary_page_offset < start:
        start = meta.dictionary_page_offset
    return ByteRange(start, start + meta.total_compressed_size)


# -- reading footers ---------------------------------------------------------------------------


_MAGIC = b"PAR1"
_ENCRYPTED_MAGIC = b"PARE"
# Length of the footer, and magic.
_TRAILER = 8
_SHORTEST = 12
DEFAULT_TAIL = 64 * 1024
_TEXT_FILE = re.compile(r"\.(csv|tsv|json|jsonl|ndjson)(\.\w+)?$", re.IGNORECASE)


def _other_file_hint(path: str) -> str:
    if _TEXT_FILE.search(path):
        return "write the rows to a lake with skipstone ingest; " + _EXCLUDE
    return "check that it is a complete Parquet file; " + _EXCLUDE


_EXCLUDE = "to leave it out of a lake, open a glob such as 'lake/**/*.parquet', or begin its name with _"


def read_footer(source: Source, *, tail: int = DEFAULT_TAIL) -> ParquetMetadata:
    """Read a file's metadata in one request, or two if the footer is longer than ``tail``."""
    end, size = source.tail(max(tail, _TRAILER))
    path = source.path
    length = footer_length(end, size, path)
    missing = length + _TRAILER - len(end)
    if missing > 0:
        have = size - len(end)
        end = source.read_ranges([ByteRange(have - missing, have)])[0] + end
    metadata = ParquetMetadata(end[-_TRAILER - length : -_TRAILER], path, size)
    metadata.version = source.version()
    return metadata


def parse_footer(data: bytes, path: str, size: int | None) -> ParquetMetadata:
    """Parse the footer's own bytes, without length and magic; ``size`` is the file's."""
    return ParquetMetadata(data, path, size)


def from_pyarrow(metadata: ArrowFileMetaData, path: str = "<pyarrow metadata>") -> ParquetMetadata:
    """Convert metadata that pyarrow has read; the file's size is unknown."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    metadata.write_metadata_file(sink)
    data = sink.getvalue().to_pybytes()
    length = footer_length(data, len(data), path)
    return parse_footer(data[-_TRAILER - length : -_TRAILER], path, None)


def footer_length(tail: bytes, size: int, path: str) -> int:
    """Return the length of the footer from the file's last eight bytes."""
    if size < _SHORTEST:
        what = "file is empty" if size == 0 else f"file of {size} bytes is too short for Parquet"
        raise NotParquetError(what, path=path, hint=_other_file_hint(path))
    if tail[-4:] == _ENCRYPTED_MAGIC:
        raise EncryptedFileError(
            "footer is encrypted", path=path, hint="encrypted footers are not supported; decrypt the file"
        )
    if tail[-4:] != _MAGIC:
        what = f"file is not Parquet: the last bytes are {tail[-4:]!r} instead of {_MAGIC!r}"
        raise NotParquetError(what, path=path, hint=_other_file_hint(path))
    # The start is checked only if it was read: another request would prove little.
    if tail[:4] != _MAGIC and len(tail) == size:
        what = f"file is not Parquet: the first bytes are {tail[:4]!r} instead of {_MAGIC!r}"
        raise NotParquetError(what, path=path, hint=_other_file_hint(path))
    length = int.from_bytes(tail[-8:-4], "little")
    if length == 0 or length > size - _SHORTEST:
        raise CorruptFileError(f"footer length is {length} bytes in a file of {size}", path=path)
    return length
