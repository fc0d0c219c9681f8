"""Metadata as an index remembers it: places of chunks without their statistics, and no footer opened."""

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
"""One chunk: what its footer says of its places; -1 where it says nothing.

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


def record_chunks(files: Sequence[ParquetMetadata]) -> NDArray[Any]:
    """The chunks of files of one schema, file by file; in each, leaf by leaf, all its row groups."""
    leaves = range(len(files[0].leaves))
    # For its checks.
    for leaf in leaves:
        all_chunks(files, leaf)
    columns = [g.columns[leaf] for f in files for leaf in leaves for g in f.row_groups]  # type: ignore[index]
    metas = [column.meta_data for column in columns]
    found = np.zeros(len(columns), dtype=CHUNK)
    for names, units in ((_OF_META, metas), (_OF_COLUMN, columns)):
        for name, field in names.items():
            values = list(map(attrgetter(field), units))
            found[name] = values if None not in values else [-1 if v is None else v for v in values]
    found["dictionary_use"] = [
        _use(file, group, leaf) for file in files for leaf in leaves for group in range(file.row_group_count)
    ]
    return found


def _use(metadata: ParquetMetadata, group: int, leaf: int) -> int:
    if dictionary_complete(metadata, group, leaf):
        return _COMPLETE
    return _USES.index(dictionary_use(metadata, group, leaf))


def chunk_range(chunk: Any) -> ByteRange:
    """The bytes of a recorded chunk, dictionary page included."""
    start, dictionary = int(chunk["start"]), int(chunk["dictionary"])
    start = dictionary if 0 < dictionary < start else start
    return ByteRange(start, start + int(chunk["size"]))


def check_chunks(
    chunks: NDArray[Any],
    leaves: Sequence[LeafColumn],
    rows: Sequence[NDArray[np.int64]],
    sizes: NDArray[np.int64],
) -> None:
    """Refuse recorded chunks of files of these sizes and of row groups of these rows that can't be true.

    Whatever they name lies in their file, each in a place of its own: none is read as another.
    """
    groups = np.array([len(mine) for mine in rows], dtype=np.int64)
    counts = groups * len(leaves)
    if len(chunks) != counts.sum():
        raise CorruptFileError(f"{len(chunks)} chunks of {len(leaves)} columns in {groups.sum()} row groups")
    owners = np.arange(len(rows)).repeat(counts)
    # In each file the row groups of a leaf come one after the other, and then those of the next leaf.
    leaf, group = np.divmod(np.arange(len(chunks)) - (counts.cumsum() - counts)[owners], groups[owners])
    flat = np.array([leaf.max_repetition == 0 for leaf in leaves], dtype=bool)[leaf]
    values = chunks["values"]
    expected = np.concatenate([values[:0], *rows])[(groups.cumsum() - groups)[owners] + group]
    if ((values < 0) | ((values != expected) & flat)).any():
        raise CorruptFileError("a chunk has other values than its row group has rows")
    if (chunks["dictionary_use"] > _COMPLETE).any():
        raise CorruptFileError("a chunk's use of its dictionary is unknown")
    start, dictionary = chunks["start"], chunks["dictionary"]
    first = np.where((dictionary > 0) & (dictionary < start), dictionary, start)
    # Of chunks without values some writers say that they begin at 0.
    spans = [(owners, first, np.where(values > 0, chunks["size"], 0))]
    for name in ("bloom", "places", "bounds"):
        # Of some filters only the place is known.
        known = (chunks[name] >= 0) & ((chunks[f"{name}_size"] > 0) | (name == "bloom"))
        spans += ((owners[known], chunks[name][known], np.maximum(chunks[f"{name}_size"][known], 1)),)
    owners, starts, lengths = [np.concatenate(part, dtype=np.int64) for part in zip(*spans, strict=True)]
    ends = sizes[owners]
    if ((starts < 0) | (lengths < 0) | (starts > ends) | (lengths > ends - starts)).any():
        raise CorruptFileError("a chunk lies outside of its file")
    order = np.lexsort((starts, owners))
    order = order[lengths[order] > 0]
    owners, starts, stops = owners[order], starts[order], (starts + lengths)[order]
    if ((starts[1:] < stops[:-1]) & (owners[1:] == owners[:-1])).any():
        raise CorruptFileError("chunks overlap")


class Records(Protocol):
    """Where the chunks and pages of one file are written down."""

    def chunks(self, leaf: int) -> NDArray[Any]:
        """The chunks of a leaf, one per row group."""

    def group_chunks(self, group: int, leaves: Sequence[int]) -> list[tuple[Any, ...]]:
        """The chunks of some leaves of a row group."""

    def places(self, group: int, leaves: Sequence[int]) -> list[PageIndex | None]:
        """The pages of chunks of a row group, as far as they are known."""

    def facts(self, ref: ColumnRef) -> ColumnFacts:
        """What is known about a column in each row group."""


class RecordedMetadata(ParquetMetadata):
    """A file's metadata made of a shell (see ``ParquetMetadata.shell``) and of recorded chunks.

    Chunks are looked up leaf by leaf, when one is asked for. There are no statistics in them: facts about
    values are written down as such.
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
        self.footer, self.kin = shell.footer, shell.kin
        self.row_group_rows, self._starts = rows, None
        self.num_rows = int(rows.sum())
        self._chunks = {}
        self.memo = {}

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("recorded metadata stays where its index is")

    @property
    def identity(self) -> tuple[str, object, int]:
        """What tells this file from others, and from itself once rewritten."""
        return (self.path, self.version, self._mark)

    @property
    def row_group_count(self) -> int:
        """How many row groups the file has."""
        return len(self.row_group_rows)

    @property
    def key_value_metadata(self) -> dict[bytes, bytes]:
        """The writer's own entries."""
        return self._shell.key_value_metadata

    @property
    def arrow_schema(self) -> pa.Schema:
        """The schema as pyarrow reads it."""
        return self._shell.arrow_schema

    @property
    def has_secrets(self) -> bool:
        """Encrypted files are not recorded."""
        return False

    def group_sizes(self, group: int) -> tuple[int, int]:
        """Bytes of a row group: decoded, and as they are stored."""
        plain, packed = self._sizes[group].tolist()
        return plain, packed

    def columns(self, leaf: int) -> list[ColumnChunk]:
        """The chunks of a leaf, one per row group."""
        key = (RecordedMetadata, leaf)
        found: list[ColumnChunk] | None = self.memo.get(key)
        if found is None:
            physical = int(self.leaves[leaf].physical)
            found = self.memo[key] = [_chunk(physical, row) for row in self._records.chunks(leaf).tolist()]
        return found

    def column(self, group: int, leaf: int) -> ColumnChunk:
        """One chunk, with the places of its page index."""
        return self.columns(leaf)[group]

    def chunks(self, leaf: int) -> list[ColumnMetaData]:
        """The metadata of a leaf's chunks; they were checked when they were recorded."""
        key = (ColumnMetaData, leaf)
        found: list[ColumnMetaData] | None = self.memo.get(key)
        if found is None:
            found = [column.meta_data for column in self.columns(leaf)]  # type: ignore[misc]
            self.memo[key] = found
        return found

    def page_places(self, group: int, leaf: int) -> PageIndex | None:
        """Where the pages of a chunk are, if it was written down."""
        return self._records.places(group, (leaf,))[0]

    def all_places(self, group: int, leaves: Sequence[int]) -> list[PageIndex | None]:
        """Where the pages of chunks of a row group are, as far as it was written down."""
        return self._records.places(group, leaves)

    def recorded_facts(self, ref: ColumnRef) -> ColumnFacts:
        """Facts about a column in each row group, as they were written down."""
        return self._records.facts(ref)

    def encrypted(self, leaf: int) -> list[bool]:  # noqa: ARG002
        """None is."""
        return [False] * self.row_group_count

    def is_encrypted(self, group: int, leaf: int) -> bool:  # noqa: ARG002
        """It is not."""
        return False

    def chunk_layout(self, group: int, leaf: int) -> tuple[ByteRange, int, Use | None]:
        """The bytes of a chunk, its codec, and which data pages need its dictionary page."""
        return self.chunk_layouts(group, (leaf,))[0]

    def chunk_layouts(self, group: int, leaves: Sequence[int]) -> list[tuple[ByteRange, int, Use | None]]:
        """``chunk_layout`` of several chunks of a row group."""
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
            # Lists of encodings that say the same as the footer's did; see ``dictionary_use``.
            details.encodings = {Use.NONE: [0], Use.ALL: [2], Use.SOME: []}[_USES[use]]
        return details


def _chunk(physical: int, row: tuple[Any, ...]) -> ColumnChunk:
    told = [None if value == -1 else value for value in row]
    chunk, meta = ColumnChunk(), ColumnMetaData()
    meta.type = physical
    meta.data_page_offset, meta.dictionary_page_offset = row[0], told[1]
    meta.total_compressed_size, meta.num_values = row[2], row[3]
    meta.bloom_filter_offset, meta.bloom_filter_length = told[4], told[5]
    chunk.offset_index_offset, chunk.offset_index_length = told[6], told[7]
    chunk.column_index_offset, chunk.column_index_length = told[8], told[9]
    meta.codec = row[10]
    chunk.meta_data = meta
    return chunk
