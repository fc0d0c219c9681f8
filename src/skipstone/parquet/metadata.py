"""What a footer says, checked once and kept in the form it was read in."""

from __future__ import annotations

import re
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from skipstone.errors import CorruptFileError, EncryptedFileError, SchemaError
from skipstone.parquet.compact import footer_without_row_groups
from skipstone.parquet.kin import Kin
from skipstone.parquet.schema import LeafColumn, is_unmarked_instant, text
from skipstone.parquet.structs import (
    ChunkDetails,
    ColumnChunk,
    ColumnMetaData,
    FileDetails,
    FileMetaData,
    PageEncodingStats,
    RowGroup,
)
from skipstone.parquet.wire import S, decode, paused_gc
from skipstone.store.ranges import ByteRange

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from skipstone.core.evidence import ColumnFacts
    from skipstone.core.ir.nodes import ColumnRef
    from skipstone.parquet.pageindex import PageIndex
    from skipstone.parquet.slice.plan import Use

# Below this pyarrow parses the whole footer about as fast as the schema is cut out of it.
_MANY_ROW_GROUPS = 16
_ORDERS = {"TYPE_ORDER": 1, "IEEE_754_TOTAL_ORDER": 2, "INT96_TIMESTAMP_ORDER": 3}
_SHORT_LIST = 256
# The format has ten; whoever keeps a codec's number has room for this many.
_MOST_CODECS = 1000
_REQUIRED = attrgetter("type", "codec", "num_values", "total_compressed_size", "data_page_offset")
_WRITER = re.compile(r"\s*(.*?)\s+version\s+v?(\d{1,9}(?:\.\d{1,9})*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Writer:
    """Who wrote a file, as far as ``created_by`` tells; an unknown version is the empty tuple."""

    application: str
    version: tuple[int, ...]

    @classmethod
    def parse(cls, created_by: str) -> Writer:
        """Read the customary "application version 1.2.3 (build ...)".

        >>> Writer.parse("parquet-mr version 1.8.0 (build 0fda28af84b9746396014ad6a415b90592a98b3b)")
        Writer(application='parquet-mr', version=(1, 8, 0))
        """
        match = _WRITER.match(created_by)
        if match is None:
            return cls(created_by.strip(), ())
        return cls(match[1], tuple(int(part) for part in match[2].split(".")))


class ParquetMetadata:
    """The metadata of one file: leaves, row groups and raw column chunks.

    Checked when made: the schema is a tree, row counts add up, and every row group has the schema's columns
    in order, each with the fields that the format requires. The rest of a chunk is checked when its column
    is first asked for, because a query touches few columns of a wide file. ``size`` is None when only the
    metadata is at hand.
    """

    __slots__ = (
        "_chunks",
        "_details",
        "_raw",
        "created_by",
        "footer",
        "kin",
        "memo",
        "num_rows",
        "path",
        "row_group_rows",
        "row_group_starts",
        "row_groups",
        "size",
        "version",
        "writer",
    )

    def __init__(self, footer: bytes, path: str, size: int | None) -> None:
        with paused_gc():
            self._read(footer, path, size)

    def _read(self, footer: bytes, path: str, size: int | None) -> None:
        raw = _decode(FileMetaData, footer, path)
        if raw.schema is None or raw.row_groups is None or raw.num_rows is None or raw.version is None:
            raise CorruptFileError("the footer lacks a required field", path=path)
        self.path = path
        self.size = size
        # The source's own mark of the version that was read; None when only the footer is at hand.
        self.version: object | None = None
        self.footer = footer
        self.row_groups: list[RowGroup] = raw.row_groups
        self.created_by = text(raw.created_by or b"")
        self.writer = Writer.parse(self.created_by)
        self.kin = Kin.of(raw, path)
        self.row_group_rows: NDArray[np.int64] = self._count_rows(raw.num_rows)
        self.num_rows: int = int(self.row_group_rows.sum())
        self.row_group_starts: NDArray[np.int64] = np.cumsum(self.row_group_rows) - self.row_group_rows
        self._raw = raw
        self._details: FileDetails | None = None
        self._chunks: dict[int, list[ColumnMetaData]] = {}
        # What other rooms have worked out from this footer, kept as long as the footer is.
        self.memo: dict[Any, Any] = {}
        self._check_columns()

    def __reduce__(self) -> tuple[Any, ...]:
        # The footer is far smaller than the objects made of it, and it passes the checks again on arrival.
        return (type(self), (self.footer, self.path, self.size), (None, {"version": self.version}))

    def __repr__(self) -> str:
        shape = f"{self.num_rows} rows, {self.row_group_count} row groups, {len(self.leaves)} columns"
        return f"ParquetMetadata({self.path!r}, {shape})"

    @property
    def leaves(self) -> tuple[LeafColumn, ...]:
        """The stored columns."""
        return self.kin.leaves

    @property
    def identity(self) -> tuple[str, object, int]:
        """What tells this file from others, and from itself once rewritten, also where a store can't."""
        return (self.path, self.version, hash(self.footer))

    @property
    def footer_size(self) -> int:
        """Bytes of the encoded footer."""
        return len(self.footer)

    @property
    def row_group_count(self) -> int:
        """How many row groups the file has."""
        return len(self.row_groups)

    @property
    def key_value_metadata(self) -> dict[bytes, bytes]:
        """The writer's own entries; the last of equal keys stands."""
        pairs = self._raw.key_value_metadata or ()
        return {pair.key: pair.value or b"" for pair in pairs if pair.key is not None}

    @property
    def arrow_schema(self) -> pa.Schema:
        """The schema as pyarrow reads it, made at the first call."""
        if self.kin.arrow_schema is None:
            footer = self.footer
            if self.row_group_count >= _MANY_ROW_GROUPS:
                pairs = [(p.key, p.value) for p in self._raw.key_value_metadata or () if p.key is not None]
                footer = footer_without_row_groups(footer, pairs, self._raw.created_by or b"")
            self.kin.arrow_schema = self._read_schema(footer)
        return self.kin.arrow_schema

    def _read_schema(self, footer: bytes) -> pa.Schema:
        import pyarrow as pa
        import pyarrow.parquet as pq

        shell = b"".join((b"PAR1", footer, len(footer).to_bytes(4, "little"), b"PAR1"))
        try:
            return pq.read_schema(pa.BufferReader(shell))
        except (pa.ArrowException, OSError, ValueError) as error:
            if footer is not self.footer:
                return self._read_schema(self.footer)
            if isinstance(error, pa.ArrowNotImplementedError):
                message = f"a column has a type that can't be read: {error}"
                raise SchemaError(message, path=self.path, hint="rewrite it with another type") from error
            raise CorruptFileError(f"pyarrow can't read the schema: {error}", path=self.path) from error

    @property
    def query_schema(self) -> pa.Schema:
        """The schema predicates are bound to: pyarrow's, but with instants where the format has them.

        pyarrow reads INT96 and timestamps of the deprecated converted types without a zone. By the format,
        and in Spark, they are instants, which decides what a time in a predicate means.
        """
        memo = self.kin.memo
        if "query schema" not in memo:
            import pyarrow as pa

            instants = {leaf.path for leaf in self.leaves if is_unmarked_instant(leaf)}
            fields = [_with_zone(field, (), instants) for field in self.arrow_schema] if instants else []
            memo["query schema"] = (
                pa.schema(fields, self.arrow_schema.metadata) if fields else self.arrow_schema
            )
        return memo["query schema"]

    def shell(self) -> bytes:
        """A footer of the same schema, key-value pairs, writer and column orders, without row groups."""
        raw = self._raw
        pairs = [(pair.key, pair.value) for pair in raw.key_value_metadata or () if pair.key is not None]
        orders = [_ORDERS.get(order.variant or "", 0) for order in raw.column_orders or ()]
        return footer_without_row_groups(self.footer, pairs, raw.created_by or b"", orders)

    @property
    def has_secrets(self) -> bool:
        """Whether some of the file is encrypted."""
        return self._raw.encryption_algorithm is not None

    def group_sizes(self, group: int) -> tuple[int, int]:
        """Bytes of a row group: decoded, as far as the writer says, and as they are stored."""
        raw = self.row_groups[group]
        chunks = (column.meta_data for column in raw.columns or ())
        return raw.total_byte_size or 0, sum(chunk.total_compressed_size for chunk in chunks if chunk)

    def column(self, group: int, leaf: int) -> ColumnChunk:
        """One raw chunk, with the places of its page index."""
        columns = self.row_groups[group].columns
        assert columns is not None
        return columns[leaf]

    def columns(self, leaf: int) -> list[ColumnChunk]:
        """The raw chunks of a leaf, one per row group."""
        return [group.columns[leaf] for group in self.row_groups]  # type: ignore[index]  # checked when made

    def chunks(self, leaf: int) -> list[ColumnMetaData]:
        """The metadata of a leaf's chunks, one per row group, checked at the first call."""
        found = self._chunks.get(leaf)
        if found is None:
            columns = self.columns(leaf)
            found = [column.meta_data for column in columns]  # type: ignore[misc]  # checked when made
            if not self._plausible(leaf, columns, found):
                # One by one, to name the culprit, or to find that a chunk is odd but right.
                found = [self._checked(group, column, leaf) for group, column in enumerate(columns)]
            self._chunks[leaf] = found
        return found

    def _plausible(self, leaf: int, columns: list[ColumnChunk], metas: list[ColumnMetaData]) -> bool:
        """Whether all chunks pass the checks of ``_problem``, told in columns."""

        def values(name: str) -> NDArray[np.int64]:
            return np.fromiter(map(attrgetter(name), metas), dtype=np.int64, count=len(metas))

        counts, offsets, sizes = map(values, ("num_values", "data_page_offset", "total_compressed_size"))
        types, codecs = map(values, ("type", "codec"))
        column = self.leaves[leaf]
        rows = self.row_group_rows
        return bool(
            not any(chunk.file_path for chunk in columns)
            and (types == column.physical).all()
            and min(counts.min(initial=0), offsets.min(initial=0), sizes.min(initial=0)) >= 0
            and codecs.min(initial=0) >= 0
            and codecs.max(initial=0) <= _MOST_CODECS
            and ((counts >= rows) if column.max_repetition else (counts == rows)).all()
            and (self.size is None or (offsets <= self.size - sizes).all())
        )

    def encrypted(self, leaf: int) -> list[bool]:
        """Per row group, whether this leaf's chunk is encrypted: its statistics, if any, are unusable."""
        if self._raw.encryption_algorithm is None:
            return [False] * self.row_group_count
        return [self.is_encrypted(group, leaf) for group in range(self.row_group_count)]

    def is_encrypted(self, group: int, leaf: int) -> bool:
        """Whether one chunk is encrypted, so that nothing of it but its place can be used."""
        chunk = self.column(group, leaf)
        return chunk.crypto_metadata is not None or chunk.encrypted_column_metadata is not None

    def encoding_stats(self, group: int, leaf: int) -> list[PageEncodingStats] | None:
        """How many pages of a chunk have which encoding, None where the writer didn't say."""
        details = self._detail(group, leaf)
        return details.encoding_stats if details is not None else None

    def legacy_bounds(self, leaf: int) -> tuple[list[bytes | None], list[bytes | None]]:
        """The deprecated bounds of a leaf's chunks: minima, maxima."""
        details = [self._detail(group, leaf) for group in range(self.row_group_count)]
        stats = [None if d is None else d.statistics for d in details]
        return [s.min if s else None for s in stats], [s.max if s else None for s in stats]

    def _detail(self, group: int, leaf: int) -> ChunkDetails | None:
        if self._details is None:
            self._details = _decode(FileDetails, self.footer, self.path)
        # The same bytes have passed the checks of the first decoding, so these parts are there.
        groups = self._details.row_groups
        columns = groups[group].columns if groups is not None else None
        return columns[leaf].meta_data if columns is not None else None

    def chunk_layout(self, group: int, leaf: int) -> tuple[ByteRange, int, Use | None]:
        """The bytes of a chunk, its codec, and its need of the dictionary page if somebody worked it out."""
        meta = self.chunks(leaf)[group]
        return _range(meta), meta.codec, None

    def known_places(self, group: int, leaf: int) -> PageIndex | None:  # noqa: ARG002
        """Where the pages of a chunk are, if that is known without reading on; a footer doesn't tell."""
        return None

    def all_places(self, group: int, leaves: Sequence[int]) -> list[PageIndex | None]:  # noqa: ARG002
        """Where the pages of chunks of a row group are, as far as it is known without reading the file."""
        return [None] * len(leaves)

    def known_facts(self, ref: ColumnRef) -> ColumnFacts | None:  # noqa: ARG002
        """Facts about a column in each row group that somebody has worked out; a footer holds statistics."""
        return None

    def chunk_range(self, group: int, leaf: int) -> ByteRange:
        """The bytes of one chunk, dictionary page included."""
        return _range(self.chunks(leaf)[group])

    def _count_rows(self, said: int) -> NDArray[np.int64]:
        total = 0
        counts: list[int] = []
        for number, group in enumerate(self.row_groups):
            count = group.num_rows
            if count is None or count < 0:
                raise CorruptFileError(f"its row count is {count}", path=self.path, unit=_unit(number))
            total += count
            counts.append(count)
        # Zero stands in for a count in files of early writers, which every reader accepts.
        if (said and said != total) or total >= 2**63:
            message = f"the row groups hold {total} rows, the footer says {said}"
            raise CorruptFileError(message, path=self.path)
        return np.array(counts, dtype=np.int64)

    def _check_columns(self) -> None:
        paths = [[step.encode() for step in leaf.path] for leaf in self.leaves]
        for number, group in enumerate(self.row_groups):
            chunks = group.columns
            if chunks is None or len(chunks) != len(paths):
                found = "no" if chunks is None else len(chunks)
                message = f"{found} column chunks for {len(paths)} leaf columns"
                raise CorruptFileError(message, path=self.path, unit=_unit(number))
            # A loop over chunks, since each is an object of its own: less than a tenth of their decoding.
            for position, chunk in enumerate(chunks):
                meta = chunk.meta_data
                if meta is None or meta.path_in_schema != paths[position]:
                    self._check_path(number, chunk, self.leaves[position])
                try:
                    _REQUIRED(meta)
                except AttributeError as error:
                    column = self.leaves[position].name
                    message = f"the chunk's metadata lacks the required field {error.name}"
                    raise CorruptFileError(
                        message, path=self.path, unit=_unit(number), column=column
                    ) from None

    def _check_path(self, group: int, chunk: ColumnChunk, leaf: LeafColumn) -> None:
        place: dict[str, Any] = {"path": self.path, "unit": _unit(group), "column": leaf.name}
        if chunk.meta_data is None:
            if chunk.crypto_metadata is not None:
                raise EncryptedFileError("the chunk's metadata is encrypted", **place)
            raise CorruptFileError("the chunk has no metadata", **place)
        steps = chunk.meta_data.path_in_schema
        # Only a name that is no UTF-8 gets here and is right.
        if steps is None or tuple(map(text, steps)) != leaf.path:
            found = "nothing" if steps is None else ".".join(map(text, steps))
            raise CorruptFileError(f"the chunk says it holds {found}", **place)

    def _checked(self, group: int, chunk: ColumnChunk, index: int) -> ColumnMetaData:
        meta = chunk.meta_data
        assert meta is not None
        problem = self._problem(chunk, meta, self.leaves[index], int(self.row_group_rows[group]))
        if problem is not None:
            column = self.leaves[index].name
            raise CorruptFileError(problem, path=self.path, unit=_unit(group), column=column)
        return meta

    def _problem(self, chunk: ColumnChunk, meta: ColumnMetaData, leaf: LeafColumn, rows: int) -> str | None:
        if chunk.file_path:
            return "its data is in another file; this is a summary file"
        if meta.type != leaf.physical:
            return f"the chunk has physical type {meta.type}, the schema {int(leaf.physical)}"
        if min(meta.codec, meta.num_values, meta.data_page_offset, meta.total_compressed_size) < 0:
            return "the chunk has a negative size, offset or count"
        if meta.codec > _MOST_CODECS:
            return f"the chunk has compression codec {meta.codec}"
        if (meta.num_values < rows) if leaf.max_repetition else (meta.num_values != rows):
            return f"the chunk holds {meta.num_values} values for {rows} rows"
        if self.size is not None and _range(meta).stop > self.size:
            return f"the chunk ends at byte {_range(meta).stop}, the file at {self.size}"
        return None


def _decode(cls: type[S], footer: bytes, path: str) -> S:
    # Whatever a footer has many of takes three bytes or more; encodings and names are few.
    return decode(cls, footer, "footer", path, longest=max(len(footer) // 3, _SHORT_LIST))


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
    # Some writers put 0 where they mean that there is no dictionary page.
    if meta.dictionary_page_offset is not None and 0 < meta.dictionary_page_offset < start:
        start = meta.dictionary_page_offset
    return ByteRange(start, start + meta.total_compressed_size)
