"""An open segment: facts about files, row groups and pages, bloom filters, and chunk and page offsets."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from skipstone.core.arrays import runs
from skipstone.core.domain.keys import Kind, key_space, storage_type
from skipstone.core.evidence import Array, ColumnFacts
from skipstone.core.ir.nodes import ColumnRef, Leaf
from skipstone.core.ir.transforms import Same, Scale, Transform
from skipstone.index.aggregates import SegmentAggregates
from skipstone.index.container import COMMON, BadIndex, Container, Key, Rule, parsing
from skipstone.index.draft import ColumnDraft, Draft, Pages, schema_digest
from skipstone.index.filters import FilterResult, Filters
from skipstone.index.levels import UNKNOWN, LevelReader, join_bytes
from skipstone.index.search import UnitRuns, search_leaf
from skipstone.index.spec import Path
from skipstone.parquet.evidence import row_group_facts
from skipstone.parquet.metadata import ParquetMetadata, parse_footer
from skipstone.parquet.naming import Naming
from skipstone.parquet.pageindex import BadPageIndex, PageIndex
from skipstone.parquet.recorded import (
    CHUNK,
    RecordedMetadata,
    check_chunks,
    chunk_range,
    record_chunks,
)
from skipstone.parquet.schema import LeafColumn
from skipstone.parquet.values import widen
from skipstone.prune.survey import ColumnPages, PageFacts
from skipstone.store.store import ListedFile

if TYPE_CHECKING:
    from skipstone.aggregate.states.blocks import Blocks

_CHUNK = CHUNK.itemsize
_MOST = 1 << 62
# Longer remote arrays are not fetched to judge all pages at once.
_FAR = 1 << 20
# Files whose records are checked at once.
_CHECKED_FILES = 32
_OF_FILES = tuple((COMMON, name) for name in ("kin", "sizes", "rows", "group_rows", "group_sizes"))
_PAGES = tuple(f"page/{name}" for name in ("firsts", "first_rows", "offsets", "sizes"))
_U1, _U4, _I4, _U8, _I8 = (np.dtype(name) for name in ("|u1", "<u4", "<i4", "<u8", "<i8"))
Footer = Callable[[BadIndex | None], ParquetMetadata]
"""Opens a file's footer; called with the reason if the index is damaged."""


@dataclass(frozen=True, slots=True)
class ColumnEntry:
    """A column of a segment: its number, and the type of its facts (None without facts)."""

    number: int
    type: pa.DataType | None


@dataclass(eq=False)
class Segment:
    """The files of one segment, numbered as they are stored."""

    container: Container
    naming: Naming | None = None
    """Maps stored column names to the lake's."""
    _shells: dict[int, ParquetMetadata] = field(default_factory=dict)
    _chunks: dict[int, Array] = field(default_factory=dict)
    """Checked chunks by file."""
    _paged: dict[int, Array] = field(default_factory=dict)
    """Per column, the row groups whose pages have been checked."""
    _arrays: dict[Path, tuple[Array, ...]] = field(default_factory=dict)
    """Per column, the offsets of all pages."""
    files: int = field(init=False)
    groups: int = field(init=False)
    """Number of row groups."""
    rows: int = field(init=False)
    """Number of rows."""
    block: int = field(init=False)
    """Files per block."""
    spec: str = field(init=False)
    """Digest of its spec."""
    own_blooms: bool = field(init=False)
    """Whether the filters in its files were copied."""
    alone: bool = field(init=False)
    """Whether every file has one row group."""
    columns: dict[Path, ColumnEntry] = field(init=False)
    """Its columns by path."""
    _types: list[pa.DataType | None] = field(init=False)
    _schema_sums: list[str] = field(init=False)

    def __post_init__(self) -> None:
        """Parse the directory, and set the rules for its arrays."""
        with parsing("directory", self.container.name):
            head = json.loads(self.container.head["segment"])
            counts = self.files, self.groups, self.rows, self.block = [
                head[name] for name in ("files", "groups", "rows", "block")
            ]
            if not all(type(count) is int and 0 <= count < _MOST for count in counts) or not self.block:
                raise ValueError("impossible counts")
            self.spec, self.own_blooms = str(head["spec"]), bool(head["own_blooms"])
            self._schema_sums = [str(digest) for digest in head["schemas"]]
            self.alone = self.groups == self.files and (COMMON, "firsts") not in self.container
            types = pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(head["types"]))).types
            self._types = [None if pa.types.is_null(type) else type for type in types]
            self.columns = {
                self._lake_path(tuple(map(str, path))): ColumnEntry(number, type)
                for number, (path, type) in enumerate(zip(head["paths"], self._types, strict=True))
            }
            if not {column for column, _ in self.container.arrays()} <= {COMMON, *range(len(types))}:
                raise ValueError("arrays of unknown columns")
        self.container.rule = self._rule

    def __len__(self) -> int:
        return self.files

    def _lake_path(self, stored: Path) -> Path:
        return stored if self.naming is None else self.naming.path(stored)

    def _rule(self, key: Key) -> Rule:
        """Return the rule of an array."""
        column, name = key
        if name == "page/first_rows":
            return Rule(_I8)
        if name[-8:] == "/offsets" and name != "page/offsets":
            stem = name[:-8]
            count = None if stem == "kins" else 1 + self._units(column, stem.partition("/")[0])
            return Rule(_I8, count, 0, self.container.count((column, f"{stem}/data")), rising=True)
        if name[-5:] == "/data":
            return Rule(_U1)
        if column == COMMON:
            return self._common_rule(name)
        level, _, part = name.partition("/")
        if level in ("group_bloom", "page_bloom"):
            return self._bloom_rule(column, level, part)
        if level == "sum":
            return self._sum_rule(column, part)
        return self._level_rule(column, level, part)

    def _level_rule(self, column: int, level: str, part: str) -> Rule:
        units = self._units(column, level)
        match level, part:
            case _, "nulls" | "nans" | "distinct" | "rises":
                return Rule(_I8, units, UNKNOWN)
            case _, "lower" | "upper":
                return Rule(key_space(self._type(column)).dtype, units)
            case "file", "start" | "reach":
                space = key_space(self._type(column))
                return Rule(_U8 if space.kind is Kind.BYTES else space.dtype, units, rising=True)
            case "file", "order":
                return Rule(_U4, units, 0, units - 1)
            case "page", "firsts":
                return Rule(_I8, self.groups + 1, 0, units, rising=True)
            case "page", "offsets":
                return Rule(_I8, units)
            case "page", "sizes":
                return Rule(_I4, units)
        return Rule(_U1, units)

    def _type(self, column: int) -> pa.DataType:
        found = self._types[column]
        if found is None:
            raise ValueError(f"column {column} has no facts")
        return found

    def _common_rule(self, name: str) -> Rule:
        files, groups = self.files, self.groups
        match name:
            case "marks":
                return Rule(_U8, 2 * files)
            case "kin":
                return Rule(_U4, files, 0, self.container.count((COMMON, "kins/offsets")) - 2)
            case "firsts":
                return Rule(_I8, files + 1, 0, groups, rising=True)
            case "group_rows":
                return Rule(_I8, groups, 0, self.rows)
            case "group_sizes":
                return Rule(_I8, 2 * groups, 0)
            case "chunks":
                return Rule(_U1)
            case "chunk_counts":
                return Rule(_I8, files, 0, self.container.size((COMMON, "chunks")) // _CHUNK)
            case "rows":
                return Rule(_I8, files, 0, self.rows)
        return Rule(_I8, files, 0)

    def _bloom_rule(self, column: int, level: str, part: str) -> Rule:
        size, _, which = part.partition("/")
        units = (column, f"{level}/{size}/units")
        if which == "bits":
            return Rule(_U4, 8 * int(size) * self.container.count(units))
        most = self.groups if level == "group_bloom" else self._units(column, "page")
        return Rule(_U4, None, 0, most - 1, rising=True)

    def _sum_rule(self, column: int, part: str) -> Rule:
        level, _, name = part.partition("/")
        from skipstone.aggregate.states.blocks import Blocks

        kind = Blocks.stored_type(self._type(column), name.partition("/")[0])
        return Rule(kind, self._units(column, level))

    def _units(self, column: int, level: str) -> int:
        """Number of units of a level, or of byte strings of a name."""
        match level:
            case "page":
                return self.container.count((column, "page/first_rows"))
            case "block":
                return -(-self.files // self.block)
            case "group" | "sketch":
                return self.groups
        return self.files

    # -- files -------------------------------------------------------------------------------

    def common(self, name: str) -> Array:
        """Return an array that belongs to no column."""
        return self.container.whole((COMMON, name))

    @cached_property
    def marks(self) -> Array:
        """The marks of its files."""
        return self.common("marks").reshape(-1, 2)

    def some(self, name: str, units: Array) -> Array:
        """Return elements of an array that belongs to no column."""
        return self.container.take((COMMON, name), units)

    @cached_property
    def firsts(self) -> Array:
        """The first row group of each file, and one past the last."""
        return np.arange(len(self) + 1) if self.alone else self.common("firsts")

    def groups_of(self, files: Array) -> tuple[Array, Array]:
        """Return the number of row groups of some files, and all their row groups."""
        if self.alone:
            return np.ones(len(files), dtype=np.int64), files
        firsts = self.some("firsts", files)
        counts = self.some("firsts", files + 1) - firsts
        if (counts < 0).any():
            raise BadIndex("array firsts is out of order", self.container.name)
        return counts, runs(firsts, counts)

    def rows_of(self, files: Array, counts: Array, groups: Array) -> Array:
        """Return the rows of the row groups of some files, which have ``counts`` of them."""
        rows = self.some("group_rows", groups)
        ends = np.cumsum(counts)
        totals = np.concatenate(([0], np.cumsum(rows)))
        if not np.array_equal(totals[ends] - totals[ends - counts], self.some("rows", files)):
            raise BadIndex("row counts of row groups and files differ", self.container.name)
        return rows

    @cached_property
    def chunk_firsts(self) -> Array:
        """The first chunk of each file, and one past the last."""
        firsts = np.zeros(len(self) + 1, dtype=np.int64)
        np.cumsum(self.common("chunk_counts"), out=firsts[1:])
        return firsts

    def chunks(self, file: int) -> Array:
        """Return the chunks of a file, by leaf and row group."""
        chunks = self._chunks.get(file)
        if chunks is None:
            near = self._neighbours(file)
            if len(near) > 1:
                try:
                    self._load_chunks(near)
                except BadIndex:
                    # The damage can be another file's.
                    self._load_chunks(range(file, file + 1))
            else:
                self._load_chunks(near)
            chunks = self._chunks[file]
        return chunks

    def _neighbours(self, file: int) -> range:
        """Files of one kind that are checked together with a file: little more work than one of them."""
        schema_number = self.common("kin")
        first = file - file % _CHECKED_FILES
        near = range(first, min(first + _CHECKED_FILES, len(self)))
        if (
            not self.container.bytes.near
            or not (schema_number[near.start : near.stop] == schema_number[file]).all()
        ):
            return range(file, file + 1)
        return near

    def _load_chunks(self, files: range) -> None:
        """Read and check the chunks of files of one kind."""
        firsts = self.chunk_firsts[files.start : files.stop + 1].tolist()
        (body,) = self.container.slices([((COMMON, "chunks"), firsts[0] * _CHUNK, firsts[-1] * _CHUNK)])
        chunks = body.view(CHUNK)
        schema_number, sizes, _, rows, _ = self._of_files()
        groups = self.firsts[files.start : files.stop + 1].tolist()
        with parsing("chunks", self.container.name):
            check_chunks(
                chunks,
                self.shell(int(schema_number[files.start])).leaves,
                [rows[first:last] for first, last in pairwise(groups)],
                sizes[files.start : files.stop],
            )
        for file, (first, last) in zip(files, pairwise(firsts), strict=True):
            self._chunks[file] = chunks[first - firsts[0] : last - firsts[0]]

    def prepare(self) -> None:
        """Fetch the arrays that every query needs in one request; local segments need none."""
        names = ("marks", "kin", "rows", "firsts", "group_rows", "group_sizes", "chunk_counts")
        common = [(COMMON, name) for name in (*names, "kins/offsets", "kins/data")]
        self.container.load(common)

    def texts(self, name: str) -> pa.Array:
        """Return keys, versions or shells as byte strings."""
        offsets, data = self.container.wholes([(COMMON, f"{name}/offsets"), (COMMON, f"{name}/data")])
        return join_bytes(offsets, data)

    def _schema(self, schema_number: int) -> bytes:
        body: bytes = self.texts("kins")[schema_number].as_py()
        if schema_digest(body) != self._schema_sums[schema_number]:
            raise BadIndex("schema is damaged: checksum mismatch", self.container.name)
        return body

    def shell(self, schema_number: int) -> ParquetMetadata:
        """Return the footer without row groups of a schema number."""
        if schema_number not in self._shells:
            with parsing("schema", self.container.name):
                shell = parse_footer(self._schema(schema_number), self.container.name, None)
                # Decoded lazily, and by every query: here what can't be decoded is a damaged index.
                _ = shell.key_value_metadata, shell.query_schema
                self._shells[schema_number] = shell if self.naming is None else self.naming.apply(shell)
        return self._shells[schema_number]

    def _of_files(self) -> list[Array]:
        """Return schema numbers, sizes and rows of files and row groups."""
        return self.container.wholes(_OF_FILES)

    def metadata(self, file: int, entry: ListedFile, path: str, footer: Footer) -> RecordedMetadata:
        """Return a file's metadata; its footer is read only if the segment is damaged."""
        first, last = int(self.firsts[file]), int(self.firsts[file + 1])
        schema_number, file_sizes, file_rows, group_rows, group_sizes = self._of_files()
        shell = self.shell(int(schema_number[file]))
        rows, sizes = group_rows[first:last], group_sizes.reshape(-1, 2)[first:last]
        if file_sizes[file] != entry.size or file_rows[file] != rows.sum():
            raise BadIndex("recorded size or rows of a file are wrong", self.container.name)
        records = _Records(self, file, shell, footer)
        mark = hash(self.container.name)
        return RecordedMetadata(shell, path, entry.size, entry.version, rows, sizes, records, mark)

    # -- facts -------------------------------------------------------------------------------

    def has(self, level: str, ref: ColumnRef) -> bool:
        """Whether there are facts about a column, in its type or one that widens to it."""
        column = self.columns.get(ref.path)
        return (
            column is not None and self._steps(column, ref) is not None and self._reader(column, level).exists
        )

    def facts(self, level: str, ref: ColumnRef, units: Array | None = None) -> ColumnFacts:
        """Return the facts about a column in all, or some, blocks, files or row groups."""
        column = self.columns.get(ref.path)
        steps = None if column is None else self._steps(column, ref)
        if column is None or steps is None or not self._reader(column, level).exists:
            return ColumnFacts.unknown(ref.type, self._count(level) if units is None else len(units))
        reader = self._reader(column, level)
        return _converted(reader.whole() if units is None else reader.take(units), steps, ref.type)

    def _count(self, level: str) -> int:
        return {"block": -(-len(self) // self.block), "file": len(self), "group": self.groups}[level]

    def _reader(self, column: ColumnEntry, level: str) -> LevelReader:
        if level == "group" and self.alone:
            level = "file"
        assert column.type is not None
        return LevelReader(self.container, column.number, level, column.type)

    @staticmethod
    def _steps(column: ColumnEntry, ref: ColumnRef) -> tuple[Transform, ...] | None:
        if column.type is None:
            return None
        return () if column.type == ref.type else widen(storage_type(column.type), storage_type(ref.type))

    def search(self, leaf: Leaf) -> UnitRuns | None:
        """Search for the files that may match a leaf."""
        column = self.columns.get(leaf.ref.path)
        if column is None or column.type is None:
            return None
        return search_leaf(leaf, self.container, column.number, column.type)

    # -- pages -------------------------------------------------------------------------------

    def page_offsets(self, group: int, path: Path) -> PageIndex | None:
        """Return the page offsets of a chunk."""
        column = self.columns.get(path)
        span = None if column is None else self._pages(column, group)
        return None if column is None or span is None else self._page_index(column, group, *span)

    def page_offsets_of(self, file: int, group: int, leaves: Sequence[LeafColumn]) -> list[PageIndex | None]:
        """Return the page offsets of some chunks of a file's row group, from arrays of all pages.

        ``group`` is numbered within the segment.
        """
        paths = [leaf.path for leaf in leaves]
        arrays = self._page_arrays(paths)
        if arrays is None or len(set(paths)) < len(leaves):
            return [self.page_offsets(group, path) for path in paths]
        rows = self.common("group_rows").item(group)
        indexes: list[PageIndex | None] = []
        doubtful: list[tuple[LeafColumn, PageIndex, int]] = []
        for leaf, (firsts, first_rows, offsets, sizes, checked) in zip(leaves, arrays, strict=True):
            first, last = firsts[group], firsts[group + 1]
            if last <= first:
                indexes += (None,)
                continue
            index = PageIndex.without_statistics(
                rows, first_rows[first:last], offsets[first:last], sizes[first:last]
            )
            indexes += (index,)
            if not checked[group]:
                doubtful += ((leaf, index, int(last)),)
        if doubtful and not self._check_neighbours(file, [leaf for leaf, _, _ in doubtful]):
            self._check_chunks(file, group, doubtful)
        return indexes

    def _check_neighbours(self, file: int, leaves: Sequence[LeafColumn]) -> bool:
        """Whether the pages of leaves are sound in all row groups of a file and its neighbours.

        If so they need no other check; if not, a closer check is needed.
        """
        files = self._neighbours(file)
        first, last = self.firsts.item(files.start), self.firsts.item(files.stop)
        self.chunks(file)
        if not all([number in self._chunks for number in files]):  # noqa: C419
            return False
        groups = self.firsts[files.start : files.stop + 1]
        begins = self.chunk_firsts[files.start : files.stop]
        widths = groups[1:] - groups[:-1]
        # In each file the row groups of a leaf come one after the other.
        places = np.arange(first, last) + (begins - groups[:-1]).repeat(widths)
        steps = widths.repeat(widths)
        every = self._some_chunks(np.concatenate([places + leaf.index * steps for leaf in leaves]))
        start, dictionary = every["start"], every["dictionary"]
        low = np.where((dictionary > 0) & (dictionary < start), dictionary, start)
        counts, parts = [], []
        for leaf in leaves:
            firsts, first_rows, *rest, _ = self._arrays[leaf.path]
            begin, end = firsts[first], firsts[last]
            if end < len(first_rows) and first_rows[end]:
                return False
            counts.append(firsts[first + 1 : last + 1] - firsts[first:last])
            parts.append([array[begin:end] for array in (first_rows, *rest)])
        pages = np.concatenate(counts)
        if not pages.all():
            return False
        rows = np.concatenate([self.common("group_rows")[first:last]] * len(leaves))
        first_rows, offsets, sizes = [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]
        if not _sound_pages(pages, first_rows, offsets, sizes, low, low + every["size"], rows).all():
            return False
        for leaf in leaves:
            self._arrays[leaf.path][-1][first:last] = True
        return True

    def _page_arrays(self, paths: Sequence[Path]) -> list[tuple[Array, ...]] | None:
        """Per column: first page by row group; first rows, offsets and sizes of all pages; checked groups.

        None if a column has no pages, or if the arrays are too large.
        """
        missing = [path for path in paths if path not in self._arrays]
        if missing:
            columns = [self.columns[path] for path in missing if path in self.columns]
            keys = [(column.number, name) for column in columns for name in _PAGES]
            if len(columns) < len(missing) or not self.container.are_small(keys):
                return None
            arrays = iter(self.container.wholes(keys))
            for path, column in zip(missing, columns, strict=True):
                firsts, first_rows, offsets, sizes = islice(arrays, 4)
                checked = self._checked(column)
                self._arrays[path] = firsts, first_rows, offsets, sizes.astype(np.int64), checked
        return [self._arrays[path] for path in paths]

    def _check_chunks(
        self, file: int, group: int, pages: Sequence[tuple[LeafColumn, PageIndex, int]]
    ) -> None:
        """Check the pages of several chunks at once, and individually if a check fails."""
        begin, width = int(self.firsts[file]), int(self.firsts[file + 1] - self.firsts[file])
        chunks = self.chunks(file)[[leaf.index * width + group - begin for leaf, _, _ in pages]]
        start, dictionary = chunks["start"], chunks["dictionary"]
        low = np.where((dictionary > 0) & (dictionary < start), dictionary, start)
        counts = np.array([index.first_rows.size for _, index, _ in pages])
        sound = _sound_pages(
            counts,
            np.concatenate([index.first_rows for _, index, _ in pages]),
            np.concatenate([index.offsets for _, index, _ in pages]),
            np.concatenate([index.sizes for _, index, _ in pages]),
            low,
            low + chunks["size"],
            self.common("group_rows")[group],
        )
        for good, (leaf, index, last) in zip(sound.tolist(), pages, strict=True):
            _, first_rows, _, _, checked = self._arrays[leaf.path]
            if not good or (last < len(first_rows) and first_rows[last]):
                self._check_page_offsets(index, self.columns[leaf.path], group, last)
            checked[group] = True

    def pages(self, group: int, ref: ColumnRef) -> PageFacts | None:
        """Return the pages of a chunk with their facts; None if they are not recorded."""
        column = self.columns.get(ref.path)
        if column is None or column.type is None:
            return None
        steps, reader = self._steps(column, ref), self._reader(column, "page")
        span = self._pages(column, group)
        if steps is None or span is None or not reader.exists:
            return None
        facts = _converted(reader.slice(*span), steps, ref.type)
        return PageFacts(self._page_index(column, group, *span), facts)

    def _pages(self, column: ColumnEntry, group: int) -> tuple[int, int] | None:
        key = (column.number, "page/firsts")
        if key not in self.container:
            return None
        ((first, last),) = self.container.slices([(key, group, group + 2)])
        return (int(first), int(last)) if last > first else None

    def _page_index(self, column: ColumnEntry, group: int, first: int, last: int) -> PageIndex:
        names = ("first_rows", "offsets", "sizes")
        keys = [((column.number, f"page/{name}"), first, last) for name in names]
        first_rows, offsets, sizes = self.container.slices(keys)
        rows = int(self.common("group_rows")[group])
        found = PageIndex.without_statistics(rows, first_rows, offsets, sizes.astype(np.int64))
        checked = self._checked(column)
        if not checked[group]:
            self._check_page_offsets(found, column, group, last)
            checked[group] = True
        return found

    def _checked(self, column: ColumnEntry) -> Array:
        found = self._paged.get(column.number)
        if found is None:
            found = self._paged.setdefault(column.number, np.zeros(self.groups, dtype=bool))
        return found

    def page_count(self, ref: ColumnRef) -> int | None:
        """Number of pages of a column; None unless every row group with rows has some.

        Also None for a remote segment if judging row groups first fetches less.
        """
        column = self.columns.get(ref.path)
        key = (-1 if column is None else column.number, "page/firsts")
        if column is None or key not in self.container or not self.has("page", ref):
            return None
        counts = np.diff(self.container.whole(key))
        if ((counts == 0) & (self.common("group_rows") > 0)).any():
            return None
        first_rows = (column.number, "page/first_rows")
        if not self.container.bytes.near and (
            max(self.container.size(first_rows), self.container.size((COMMON, "chunks"))) > _FAR
        ):
            return None
        return self.container.count(first_rows)

    def column_pages(self, groups: Array, ref: ColumnRef) -> ColumnPages | None:
        """Return the pages of a column in row groups, in ascending order, whose positions are the units."""
        column = self.columns.get(ref.path)
        if column is None or column.type is None:
            return None
        steps, reader = self._steps(column, ref), self._reader(column, "page")
        key = (column.number, "page/firsts")
        if steps is None or key not in self.container or not reader.exists:
            return None
        firsts, stops = self.container.take(key, groups), self.container.take(key, groups + 1)
        counts = stops - firsts
        if (counts < 0).any():
            raise BadIndex(f"pages of column {column.number} are out of order", self.container.name)
        pages = runs(firsts, counts)
        if not len(pages):
            return None
        every = len(pages) == self.container.count((column.number, "page/first_rows"))
        keys = [(column.number, name) for name in _PAGES[1:]]
        first_rows, offsets, sizes = (
            self.container.wholes(keys) if every else [self.container.take(name, pages) for name in keys]
        )
        self._check_pages(column, groups, firsts, counts, first_rows, offsets, sizes)
        facts = _converted(reader.whole() if every else reader.take(pages), steps, ref.type)
        return ColumnPages(np.repeat(np.arange(len(groups)), counts), first_rows, facts, pages)

    def _check_pages(
        self,
        column: ColumnEntry,
        groups: Array,
        firsts: Array,
        counts: Array,
        first_rows: Array,
        offsets: Array,
        sizes: Array,
    ) -> None:
        """Check the pages of many row groups at once, and individually if a check fails."""
        checked = self._checked(column)
        if checked[groups].all():
            return
        some = counts > 0
        groups, firsts, counts = groups[some], firsts[some], counts[some]
        after = firsts + counts
        key = (column.number, "page/first_rows")
        low, high = self._chunk_ranges(column, groups)
        sound = _sound_pages(counts, first_rows, offsets, sizes, low, high, self.common("group_rows")[groups])
        inside = after < self.container.count(key)
        sound[inside] &= self.container.take(key, after[inside]) == 0
        # A loop over row groups, without iterations for a valid index.
        for at in np.flatnonzero(~sound).tolist():
            self._page_index(column, int(groups[at]), int(firsts[at]), int(after[at]))
        checked[groups] = True

    def _chunk_ranges(self, column: ColumnEntry, groups: Array) -> tuple[Array, Array]:
        """Return the byte ranges of a column's chunks; the intersection for a column stored twice."""
        files = np.searchsorted(self.firsts, groups, side="right") - 1
        schema_numbers = self.common("kin")[files]
        low, high = np.full(len(groups), -1, dtype=np.int64), np.full(len(groups), _MOST, dtype=np.int64)
        # A loop over schemas.
        for schema_number in np.unique(schema_numbers).tolist():
            mine = np.flatnonzero(schema_numbers == schema_number)
            owners = files[mine]
            widths = self.firsts[owners + 1] - self.firsts[owners]
            inside = groups[mine] - self.firsts[owners]
            for leaf in self.shell(schema_number).leaves:
                if self.columns.get(leaf.path) != column:
                    continue
                found = self._some_chunks(self.chunk_firsts[owners] + leaf.index * widths + inside)
                start, dictionary = found["start"], found["dictionary"]
                start = np.where((dictionary > 0) & (dictionary < start), dictionary, start)
                low[mine] = np.maximum(low[mine], start)
                high[mine] = np.minimum(high[mine], start + found["size"])
        return low, high

    def _some_chunks(self, numbers: Array) -> Array:
        key = (COMMON, "chunks")
        if 2 * len(numbers) * _CHUNK > self.container.size(key) or self.container.bytes.near:
            try:
                return self.container.whole(key).view(CHUNK)[numbers]
            except IndexError:
                raise BadIndex("chunks are missing", self.container.name) from None
        spans = [(key, _CHUNK * number, _CHUNK * (number + 1)) for number in numbers.tolist()]
        return np.concatenate(self.container.slices(spans)).view(CHUNK)

    def _check_page_offsets(self, found: PageIndex, column: ColumnEntry, group: int, last_page: int) -> None:
        """Refuse pages outside their chunk, or with gaps in its bytes or rows."""
        key = (column.number, "page/first_rows")
        if last_page < self.container.count(key):
            ((after,),) = self.container.slices([(key, last_page, last_page + 1)])
            if after:
                raise BadIndex(
                    f"row group {group} has more pages of column {column.number}", self.container.name
                )
        if not found.is_contiguous:
            raise BadIndex(f"pages of column {column.number} have gaps", self.container.name)
        file = int(np.searchsorted(self.firsts, group, side="right")) - 1
        first, last = int(self.firsts[file]), int(self.firsts[file + 1])
        shell = self.shell(int(self.common("kin")[file]))
        numbers = [leaf.index for leaf in shell.leaves if self.columns.get(leaf.path) == column]
        try:
            for number in numbers:
                found.check(chunk_range(self.chunks(file)[number * (last - first) + group - first]))
        except BadPageIndex as error:
            raise BadIndex(error.reason, self.container.name) from error

    def page_span(self, group: int, path: Path) -> tuple[int, int] | None:
        """Return the numbers of a chunk's first page and of the page after its last."""
        column = self.columns.get(path)
        return None if column is None else self._pages(column, group)

    # -- aggregates --------------------------------------------------------------------------

    def nulls(self, level: str, ref: ColumnRef, units: Array) -> Array:
        """Number of NULLs in some files, row groups or pages, or UNKNOWN."""
        return self._counts("nulls", level, ref, units)

    def nans(self, level: str, ref: ColumnRef, units: Array) -> Array:
        """Number of NaNs in some files, row groups or pages, or UNKNOWN."""
        return self._counts("nans", level, ref, units)

    def rises(self, ref: ColumnRef, pages: Array) -> Array:
        """Number of rows of pages whose value is one more than in the row before, or UNKNOWN."""
        return self._counts("rises", "page", ref, pages)

    def _counts(self, name: str, level: str, ref: ColumnRef, units: Array) -> Array:
        column = self.columns.get(ref.path)
        if column is not None and self._steps(column, ref) is not None:
            key = self._reader(column, level).key(name)
            if key in self.container:
                return self.container.take(key, units)
        return np.full(len(units), UNKNOWN, dtype=np.int64)

    def blocks(self, level: str, ref: ColumnRef, units: Array) -> Blocks | None:
        """Return the aggregates of some row groups ("group") or pages ("page"); None if there are none.

        Pages are numbered as in :meth:`page_span`.
        """
        column = self._same_keys(ref)
        found = None if column is None else self._aggregates.blocks(column.number, column.type, level, units)
        return None if found is None else replace(found, type=ref.type)

    @cached_property
    def _aggregates(self) -> SegmentAggregates:
        return SegmentAggregates(self.container)

    def _same_keys(self, ref: ColumnRef) -> ColumnEntry | None:
        """Return the column if its stored keys are those of its type in the lake."""
        column = self.columns.get(ref.path)
        steps = None if column is None else self._steps(column, ref)
        return None if steps is None or ref.via or any(_rescales(step) for step in steps) else column

    def sketches(self, kind: str, ref: ColumnRef, groups: Array) -> list[bytes | None] | None:
        """Return the sketches of row groups, None for one without; None if the column has no sketches."""
        column = self._same_keys(ref)
        return None if column is None else self._aggregates.sketches(column.number, kind, groups)

    # -- bloom filters -----------------------------------------------------------------------

    @cached_property
    def _filters(self) -> Filters:
        return Filters(self.container)

    def has_own_blooms(self, path: Path) -> bool:
        """Whether all filters of a column in the files were copied."""
        column = self.columns.get(path)
        return column is not None and column.type is not None and self.own_blooms

    def absent(
        self, path: Path, hashes: Array, groups: Array, pages: Array | None = None
    ) -> FilterResult | None:
        """Rule out row groups, or their ``pages``, for some values; None without filters."""
        column = self.columns.get(path)
        return None if column is None else self._filters.rule_out(column.number, hashes, groups, pages)

    def absent_pairs(
        self, path: tuple[str, ...], level: str, units: Array, owners: Array, hashes: Array
    ) -> Array | None:
        """Which row groups or pages have none of their hashes; None without filters.

        ``owners`` are positions in ``units``, ascending, one for each hash.
        """
        column = self.columns.get(path)
        if column is None:
            return None
        return self._filters.absent_pairs((column.number, f"{level}_bloom"), units, owners, hashes)

    # -- back to a draft ---------------------------------------------------------------------

    def draft(self) -> Draft:
        """Load the segment into memory, to merge it with others."""
        chunks = self.common("chunks").view(CHUNK)
        return Draft(
            keys=[key.decode(errors="surrogateescape") for key in self.texts("keys").to_pylist()],
            versions=[text.decode(errors="surrogateescape") for text in self.texts("versions").to_pylist()],
            marks=self.marks,
            sizes=self.common("sizes"),
            schemas=[self._schema(number) for number in range(len(self._schema_sums))],
            schema_numbers=self.common("kin"),
            counts=np.diff(self.firsts),
            group_rows=self.common("group_rows"),
            group_sizes=self.common("group_sizes").reshape(-1, 2),
            chunk_counts=self.common("chunk_counts"),
            chunks=chunks,
            columns={path: self._column_draft(column) for path, column in self.columns.items()},
        )

    def _column_draft(self, column: ColumnEntry) -> ColumnDraft:
        number, container = column.number, self.container
        groups = origins = pages = None
        if column.type is not None:
            groups = self._reader(column, "group").level_of(self.groups)
            origins = container.whole((number, "origin"))
        if (number, "page/firsts") in container:
            firsts = container.whole((number, "page/firsts"))
            level = None
            if column.type is not None and self._reader(column, "page").exists:
                level = self._reader(column, "page").level_of(int(firsts[-1]))
            first_rows, offsets, sizes = (
                container.whole((number, f"page/{name}")) for name in ("first_rows", "offsets", "sizes")
            )
            pages = Pages(np.diff(firsts), first_rows, offsets, sizes, level)
        blooms, page_blooms = (self._filters.stacks(number, kind) for kind in ("group_bloom", "page_bloom"))
        sums, sketches = self._aggregates.sums(number, column.type), self._aggregates.all_sketches(number)
        return ColumnDraft(column.type, groups, pages, blooms, page_blooms, origins, sums, sketches)


@dataclass(frozen=True, slots=True, eq=False)
class _Records:
    """The records of one file in a segment."""

    segment: Segment
    file: int
    shell: ParquetMetadata
    footer: Footer

    def chunks(self, leaf: int) -> Array:
        """Return the chunks of a leaf, one per row group; from the footer if the segment is damaged."""
        segment = self.segment
        groups = int(segment.firsts[self.file + 1] - segment.firsts[self.file])
        try:
            chunks = segment.chunks(self.file)
        except BadIndex as bad:
            chunks = record_chunks([self.footer(bad)])
        return chunks[leaf * groups : (leaf + 1) * groups]

    def group_chunks(self, group: int, leaves: Sequence[int]) -> list[tuple[Any, ...]]:
        """The chunks of some leaves of a row group; from the footer where the segment is damaged."""
        firsts = self.segment.firsts
        groups = firsts.item(self.file + 1) - firsts.item(self.file)
        try:
            chunks = self.segment.chunks(self.file)
        except BadIndex as bad:
            chunks = record_chunks([self.footer(bad)])
        rows: list[tuple[Any, ...]] = chunks[[leaf * groups + group for leaf in leaves]].tolist()
        return rows

    def facts(self, ref: ColumnRef) -> ColumnFacts:
        """Return the facts about a column in each row group; from the footer if they are not recorded."""
        firsts = self.segment.firsts
        damage = None
        try:
            if self.segment.has("group", ref):
                groups = np.arange(int(firsts[self.file]), int(firsts[self.file + 1]))
                return self.segment.facts("group", ref, groups)
        except BadIndex as bad:
            damage = bad
        return row_group_facts(self.footer(damage), ref)

    def distrust(self, reason: str) -> None:
        """Stop using the segment."""
        self.footer(BadIndex(reason, self.segment.container.name))

    def page_offsets(self, group: int, leaves: Sequence[int]) -> list[PageIndex | None]:
        """Return the recorded page offsets of chunks of a row group."""
        first = int(self.segment.firsts[self.file])
        every = self.shell.leaves
        try:
            return self.segment.page_offsets_of(self.file, first + group, [every[leaf] for leaf in leaves])
        except BadIndex as bad:
            self.footer(bad)
            return [None] * len(leaves)


def _sound_pages(
    counts: Array, first_rows: Array, offsets: Array, sizes: Array, low: Array, high: Array, rows: Array
) -> Array:
    """Per chunk, whether its pages are contiguous, and inside its bytes and rows."""
    ends = counts.cumsum()
    begins = ends - counts
    # Each page begins where the previous one ends, and not at an earlier row.
    good = np.ones(len(first_rows), dtype=bool)
    good[1:] = (offsets[1:] == (offsets + sizes)[:-1]) & (first_rows[1:] >= first_rows[:-1])
    good[begins] = first_rows[begins] == 0
    low, high = low.repeat(counts), high.repeat(counts)
    good &= (sizes > 0) & (offsets >= low) & (offsets <= high) & (sizes <= high - offsets)
    sound: Array = np.logical_and.reduceat(good, begins) & (first_rows[ends - 1] <= rows)
    return sound


def _rescales(step: Transform) -> bool:
    """Whether a step changes keys."""
    return not isinstance(step, Same) and not (isinstance(step, Scale) and step.times == 1)


def _converted(facts: ColumnFacts, steps: tuple[Transform, ...], type: pa.DataType) -> ColumnFacts:
    for step in steps:
        facts = facts.through(step)
    if facts.type == type:
        return facts
    return replace(facts, type=type)
