"""Metadata recorded in an index: chunk offsets without statistics, without opening the footer."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from skipstone.core.evidence import ColumnFacts
from skipstone.core.ir.nodes import ColumnRef
from skipstone.errors import CorruptFileError
from skipstone.parquet.dictionary import dictionary_complete
from skipstone.parquet.metadata import ParquetMetadata, all_chunks
from skipstone.parquet.pageindex import PageIndex
from skipstone.parquet.slice.pages import Use, dictionary_use
from skipstone.parquet.structs import ChunkDetails, ColumnChunk, ColumnMetaData, PageEncodingStats
from skipstone.store.source import ByteRange, range_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from skipstone.parquet.schema import LeafColumn

CHUNK: Final = np.dtype(
    [
        ("start", "<i8"),
        ("dictionary", "<i8"),
        ("size", "<i8"),
        ("values", "<i8"),
        ("bloom", "<i8"),
        ("bloom_size", "<i4"),
        ("places", "<i8"),
        ("places_size", "<i4"),
        ("bounds", "<i8"),
        ("bounds_size", "<i4"),
        ("codec", "<u2"),
        ("dictionary_use", "<u2"),
    ]
)
"""Offsets and sizes of one chunk, from its footer; -1 if absent.

``places`` is the offset index, ``bounds`` the column index.
"""

_OF_META: Final = {
    "start": "data_page_offset",
    "dictionary": "dictionary_page_offset",
    "size": "total_compressed_size",
    "values": "num_values",
    "bloom": "bloom_filter_offset",
    "bloom_size": "bloom_filter_length",
    "codec": "codec",
}
_OF_COLUMN: Final = {
    "places": "offset_index_offset",
    "places_size": "offset_index_length",
    "bounds": "column_index_offset",
    "bounds_size": "column_index_length",
}
_COMPLETE: Final = 3
_USES: Final = (Use.SOME, Use.NONE, Use.ALL, Use.ALL)
"""By the number that is recorded; the last is ``_COMPLETE``."""
_DICTIONARY: Final = 8
_LAST_CODEC: Final = 7


def record_chunks(files: Sequence[ParquetMetadata]) -> NDArray[Any]:
    """Record the chunks of files of one schema, by file, leaf and row group."""
    leaves = range(len(files[0].leaves))
    # Runs the checks.
    for leaf in leaves:
        all_chunks(files, leaf)
    columns = [g.columns[leaf] for f in files for leaf in leaves for g in f.row_groups]  # type: ignore[index]
    metas = [column.meta_data for column in columns]
    chunks = np.zeros(len(columns), dtype=CHUNK)
    for names, units in ((_OF_META, metas), (_OF_COLUMN, columns)):
        for name, field in names.items():
            values = list(map(attrgetter(field), units))
            chunks[name] = values if None not in values else [-1 if v is None else v for v in values]
    chunks["dictionary_use"] = [
        _use(file, group, leaf) for file in files for leaf in leaves for group in range(file.row_group_count)
    ]
    return chunks


def _use(metadata: ParquetMetadata, group: int, leaf: int) -> int:
    if dictionary_complete(metadata, group, leaf):
        return _COMPLETE
    return _USES.index(dictionary_use(metadata, group, leaf))


def chunk_range(chunk: Any) -> ByteRange:
    """Return the byte range of a recorded chunk, including its dictionary page."""
    start, dictionary = int(chunk["start"]), int(chunk["dictionary"])
    start = dictionary if 0 < dictionary < start else start
    return ByteRange(start, start + int(chunk["size"]))


def check_chunks(
    chunks: NDArray[Any],
    leaves: Sequence[LeafColumn],
    rows: Sequence[NDArray[np.int64]],
    sizes: NDArray[np.int64],
) -> None:
    """Check recorded chunks against the sizes of their files and the rows of their row groups.

    All byte ranges must be inside the file and must not overlap, so that none is read as another.
    """
    groups = np.array([len(mine) for mine in rows], dtype=np.int64)
    counts = groups * len(leaves)
    if len(chunks) != counts.sum():
        problem = f"{len(chunks)} chunks recorded for {len(leaves)} columns in {groups.sum()} row groups"
        raise CorruptFileError(problem)
    owners = np.arange(len(rows)).repeat(counts)
    # In each file the row groups of a leaf come one after the other, and then those of the next leaf.
    leaf, group = np.divmod(np.arange(len(chunks)) - (counts.cumsum() - counts)[owners], groups[owners])
    flat = np.array([leaf.max_repetition == 0 for leaf in leaves], dtype=bool)[leaf]
    values = chunks["values"]
    expected = np.concatenate([values[:0], *rows])[(groups.cumsum() - groups)[owners] + group]
    if ((values < 0) | ((values != expected) & flat)).any():
        raise CorruptFileError("chunk has another number of values than its row group has rows")
    if (chunks["dictionary_use"] > _COMPLETE).any() or (chunks["codec"] > _LAST_CODEC).any():
        raise CorruptFileError("chunk has an unknown dictionary use or compression")
    start, dictionary = chunks["start"], chunks["dictionary"]
    first = np.where((dictionary > 0) & (dictionary < start), dictionary, start)
    # Some writers record offset 0 for chunks without values.
    spans = [(owners, first, np.where(values > 0, chunks["size"], 0))]
    for name in ("bloom", "places", "bounds"):
        # Some filters have an offset without a size.
        present = (chunks[name] >= 0) & ((chunks[f"{name}_size"] > 0) | (name == "bloom"))
        spans += ((owners[present], chunks[name][present], np.maximum(chunks[f"{name}_size"][present], 1)),)
    owners, starts, lengths = [np.concatenate(part, dtype=np.int64) for part in zip(*spans, strict=True)]
    ends = sizes[owners]
    if ((starts < 0) | (lengths < 0) | (starts > ends) | (lengths > ends - starts)).any():
        raise CorruptFileError("chunk is outside its file")
    order = np.lexsort((starts, owners))
    order = order[lengths[order] > 0]
    owners, starts, stops = owners[order], starts[order], (starts + lengths)[order]
    if ((starts[1:] < stops[:-1]) & (owners[1:] == owners[:-1])).any():
        raise CorruptFileError("chunks overlap")


class Records(Protocol):
    """Recorded chunks, pages and facts of one file."""

    def chunks(self, leaf: int) -> NDArray[Any]:
        """Return the chunks of a leaf, one per row group."""

    def group_chunks(self, group: int, leaves: Sequence[int]) -> list[tuple[Any, ...]]:
        """Return the chunks of some leaves of a row group."""

    def page_offsets(self, group: int, leaves: Sequence[int]) -> list[PageIndex | None]:
        """Return the page offsets of chunks of a row group, where they are recorded."""

    def facts(self, ref: ColumnRef) -> ColumnFacts:
        """Return the facts about a column in each row group."""

    def distrust(self, reason: str) -> None:
        """Stop using the index that holds the records."""


class RecordedMetadata(ParquetMetadata):
    """A file's metadata from a shell (see ``ParquetMetadata.shell``) and recorded chunks.

    Chunks are loaded per leaf, on first use. They have no statistics: facts are recorded separately.
    """

    __slots__ = ("_mark", "_records", "_shell", "_sizes")

    def __init__(
        self,
        shell: ParquetMetadata,
        path: str,
        size: int,
        version: object,
        rows: NDArray[np.int64],
        sizes: NDArray[np.int64],
        records: Records,
        mark: int,
    ) -> None:
        self._shell, self._records, self._mark, self._sizes = shell, records, mark, sizes
        self.path, self.size, self.version = path, size, version
        self.footer, self.schema_group = shell.footer, shell.schema_group
        self.row_group_rows, self._starts = rows, None
        self.num_rows = int(rows.sum())
        self._chunks = {}
        self.memo = {}

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("recorded metadata can't be pickled without its index")

    @property
    def identity(self) -> tuple[str, object, int]:
        """Identifies the file and its version."""
        return (self.path, self.version, self._mark)

    @property
    def row_group_count(self) -> int:
        """Number of row groups."""
        return len(self.row_group_rows)

    @property
    def key_value_metadata(self) -> dict[bytes, bytes]:
        """The writer's key-value pairs."""
        return self._shell.key_value_metadata

    @property
    def arrow_schema(self) -> pa.Schema:
        """The schema as pyarrow reads it."""
        return self._shell.arrow_schema

    @property
    def has_secrets(self) -> bool:
        """False: encrypted files are not recorded."""
        return False

    def group_sizes(self, group: int) -> tuple[int, int]:
        """Bytes of a row group: uncompressed, and stored."""
        plain, packed = self._sizes[group].tolist()
        return plain, packed

    def columns(self, leaf: int) -> list[ColumnChunk]:
        """Return the chunks of a leaf, one per row group."""
        key = (RecordedMetadata, leaf)
        chunks: list[ColumnChunk] | None = self.memo.get(key)
        if chunks is None:
            physical = int(self.leaves[leaf].physical)
            chunks = self.memo[key] = [_chunk(physical, row) for row in self._records.chunks(leaf).tolist()]
        return chunks

    def column(self, group: int, leaf: int) -> ColumnChunk:
        """Return one chunk, with the offsets of its page index."""
        return self.columns(leaf)[group]

    def chunks(self, leaf: int) -> list[ColumnMetaData]:
        """Return the metadata of a leaf's chunks, which were checked when they were recorded."""
        key = (ColumnMetaData, leaf)
        metas: list[ColumnMetaData] | None = self.memo.get(key)
        if metas is None:
            metas = [column.meta_data for column in self.columns(leaf)]  # type: ignore[misc]
            self.memo[key] = metas
        return metas

    def page_offsets(self, group: int, leaf: int) -> PageIndex | None:
        """Return the recorded page offsets of a chunk."""
        return self._records.page_offsets(group, (leaf,))[0]

    def all_page_offsets(self, group: int, leaves: Sequence[int]) -> list[PageIndex | None]:
        """Return the recorded page offsets of several chunks of a row group."""
        return self._records.page_offsets(group, leaves)

    def recorded_facts(self, ref: ColumnRef) -> ColumnFacts:
        """Return the recorded facts about a column in each row group."""
        return self._records.facts(ref)

    def distrust(self, reason: str) -> None:
        """Stop using the index that holds the records, because the file is not as they say."""
        self._records.distrust(reason)

    def encrypted(self, leaf: int) -> list[bool]:  # noqa: ARG002
        """Return False for every row group."""
        return [False] * self.row_group_count

    def is_encrypted(self, group: int, leaf: int) -> bool:  # noqa: ARG002
        """Return False."""
        return False

    def chunk_layout(self, group: int, leaf: int) -> tuple[ByteRange, int, Use | None]:
        """Return the byte range of a chunk, its codec, and which data pages need its dictionary page."""
        return self.chunk_layouts(group, (leaf,))[0]

    def chunk_layouts(self, group: int, leaves: Sequence[int]) -> list[tuple[ByteRange, int, Use | None]]:
        """Return the ``chunk_layout`` of several chunks of a row group."""
        layouts: list[tuple[ByteRange, int, Use | None]] = []
        for start, dictionary, size, *_, codec, use in self._records.group_chunks(group, leaves):
            first = dictionary if 0 < dictionary < start else start
            layouts += ((range_of((first, first + size)), codec, _USES[use]),)
        return layouts

    def _detail(self, group: int, leaf: int) -> ChunkDetails:
        use = self._records.chunks(leaf)[group]["dictionary_use"]
        details = ChunkDetails()
        if use == _COMPLETE:
            pages = PageEncodingStats()
            pages.page_type, pages.encoding, pages.count = 0, _DICTIONARY, 1
            details.encoding_stats = [pages]
        else:
            # Encodings equivalent to the footer's; see ``dictionary_use``.
            details.encodings = {Use.NONE: [0], Use.ALL: [2], Use.SOME: []}[_USES[use]]
        return details


def _chunk(physical: int, row: tuple[Any, ...]) -> ColumnChunk:
    fields = [None if value == -1 else value for value in row]
    chunk, meta = ColumnChunk(), ColumnMetaData()
    meta.type = physical
    meta.data_page_offset, meta.dictionary_page_offset = row[0], fields[1]
    meta.total_compressed_size, meta.num_values = row[2], row[3]
    meta.bloom_filter_offset, meta.bloom_filter_length = fields[4], fields[5]
    chunk.offset_index_offset, chunk.offset_index_length = fields[6], fields[7]
    chunk.column_index_offset, chunk.column_index_length = fields[8], fields[9]
    meta.codec = row[10]
    chunk.meta_data = meta
    return chunk
