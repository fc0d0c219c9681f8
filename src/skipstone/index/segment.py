"""An open segment: facts of its files, row groups and pages, bloom filters, and places of everything."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from skipstone.domain.keys import storage_type
from skipstone.evidence import Array, ColumnFacts
from skipstone.index.container import COMMON, BadIndex, Container
from skipstone.index.draft import ColumnDraft, Draft, Pages, runs
from skipstone.index.filters import Absent, Filters
from skipstone.index.kept import Kept
from skipstone.index.levels import UNKNOWN, LevelReader, join_bytes
from skipstone.index.search import Found, search_leaf
from skipstone.index.spec import Path
from skipstone.ir.nodes import ColumnRef, Leaf
from skipstone.ir.transforms import Same, Scale, Transform
from skipstone.parquet.evidence import row_group_facts
from skipstone.parquet.footer import parse_footer
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.naming import Naming
from skipstone.parquet.pageindex import PageIndex
from skipstone.parquet.recorded import CHUNK, RecordedMetadata, record_chunks
from skipstone.parquet.values import widen
from skipstone.partial.blocks import Blocks
from skipstone.prune.pages import PageFacts
from skipstone.store.place import Listed

_CHUNK = CHUNK.itemsize
Footer = Callable[[BadIndex | None], ParquetMetadata]
"""Opens a file's footer, and takes the reason if it is damage."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a segment: its number, and the type of its facts (None: it has none)."""

    number: int
    type: pa.DataType | None


@dataclass(eq=False)
class Segment:
    """The files of one segment, numbered as they are stored."""

    container: Container
    naming: Naming | None = None
    """How the lake calls the columns that are stored under other names."""
    _shells: dict[int, ParquetMetadata] = field(default_factory=dict)

    @cached_property
    def _head(self) -> dict[str, Any]:
        try:
            head: dict[str, Any] = json.loads(self.container.head["segment"])
            return head
        except (KeyError, ValueError) as error:
            raise BadIndex(f"its directory can't be read: {error}", self.container.name) from error

    def __len__(self) -> int:
        return int(self._head["files"])

    @property
    def groups(self) -> int:
        """How many row groups its files have."""
        return int(self._head["groups"])

    @property
    def rows(self) -> int:
        """How many rows its files have."""
        return int(self._head["rows"])

    @property
    def alone(self) -> bool:
        """Whether every file is one row group."""
        return self.groups == len(self) and (COMMON, "firsts") not in self.container

    @property
    def spec(self) -> str:
        """The digest of what was asked for when it was made."""
        return str(self._head["spec"])

    @property
    def own_blooms(self) -> bool:
        """Whether the filters that its files have were taken over."""
        return bool(self._head["own_blooms"])

    @property
    def block(self) -> int:
        """Files per block."""
        return int(self._head["block"])

    @cached_property
    def columns(self) -> dict[Path, Column]:
        """Its columns by path."""
        types = pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(self._head["types"]))).types
        return {
            self._seen(tuple(path)): Column(number, None if pa.types.is_null(type) else type)
            for number, (path, type) in enumerate(zip(self._head["paths"], types, strict=True))
        }

    def _seen(self, stored: Path) -> Path:
        return stored if self.naming is None else self.naming.path(stored)

    # -- files -------------------------------------------------------------------------------

    def common(self, name: str) -> Array:
        """An array that belongs to no column."""
        return self.container.whole((COMMON, name))

    @cached_property
    def marks(self) -> Array:
        """The marks of its files."""
        return self.common("marks").reshape(-1, 2)

    def some(self, name: str, units: Array) -> Array:
        """Some elements of an array that belongs to no column."""
        return self.container.take((COMMON, name), units)

    @cached_property
    def firsts(self) -> Array:
        """The first row group of each file, and one past the last."""
        return np.arange(len(self) + 1) if self.alone else self.common("firsts")

    def groups_of(self, files: Array) -> tuple[Array, Array]:
        """How many row groups some files have, and all of them."""
        if self.alone:
            return np.ones(len(files), dtype=np.int64), files
        firsts = self.some("firsts", files)
        counts = self.some("firsts", files + 1) - firsts
        return counts, runs(firsts, counts)

    @cached_property
    def chunk_firsts(self) -> Array:
        """The first chunk of each file, and one past the last."""
        firsts = np.zeros(len(self) + 1, dtype=np.int64)
        np.cumsum(self.common("chunk_counts"), out=firsts[1:])
        return firsts

    def prepare(self) -> None:
        """Fetch what every question needs, together; what is mapped needs no fetching."""
        names = ("marks", "kin", "rows", "firsts", "group_rows", "group_sizes", "chunk_counts")
        common = [(COMMON, name) for name in (*names, "kins/offsets", "kins/data")]
        self.container.load(common)

    def texts(self, name: str) -> pa.Array:
        """Keys, versions or shells as byte strings."""
        return join_bytes(self.common(f"{name}/offsets"), self.common(f"{name}/data"))

    def shell(self, kin: int) -> ParquetMetadata:
        """The footer without row groups that some of the files share."""
        found = self._shells.get(kin)
        if found is None:
            shell = parse_footer(self.texts("kins")[kin].as_py(), self.container.name, None)
            found = self._shells[kin] = shell if self.naming is None else self.naming.apply(shell)
        return found

    def metadata(self, file: int, entry: Listed, path: str, footer: Footer) -> RecordedMetadata:
        """A file's metadata, without its footer unless a part of the segment turns out to be damaged."""
        first, last = int(self.firsts[file]), int(self.firsts[file + 1])
        sizes = self.common("group_sizes").reshape(-1, 2)[first:last]
        shell = self.shell(int(self.common("kin")[file]))
        rows = self.common("group_rows")[first:last]
        records = _Records(self, file, shell, footer)
        mark = hash(self.container.name)
        return RecordedMetadata(shell, path, entry.size, entry.version, rows, sizes, records, mark)

    # -- facts -------------------------------------------------------------------------------

    def has(self, level: str, ref: ColumnRef) -> bool:
        """Whether there are facts about a column, in its own type or one that leads to it."""
        column = self.columns.get(ref.path)
        return (
            column is not None and self._steps(column, ref) is not None and self._reader(column, level).exists
        )

    def facts(self, level: str, ref: ColumnRef, units: Array | None = None) -> ColumnFacts:
        """What is known about a column in blocks, files or row groups: all of them, or some."""
        column = self.columns.get(ref.path)
        steps = None if column is None else self._steps(column, ref)
        if column is None or steps is None or not self._reader(column, level).exists:
            return ColumnFacts.unknown(ref.type, self._count(level) if units is None else len(units))
        reader = self._reader(column, level)
        return _converted(reader.whole() if units is None else reader.take(units), steps, ref.type)

    def _count(self, level: str) -> int:
        return {"block": -(-len(self) // self.block), "file": len(self), "group": self.groups}[level]

    def _reader(self, column: Column, level: str) -> LevelReader:
        if level == "group" and self.alone:
            level = "file"
        assert column.type is not None
        return LevelReader(self.container, column.number, level, column.type)

    @staticmethod
    def _steps(column: Column, ref: ColumnRef) -> tuple[Transform, ...] | None:
        if column.type is None:
            return None
        return () if column.type == ref.type else widen(storage_type(column.type), storage_type(ref.type))

    def search(self, leaf: Leaf) -> Found | None:
        """The files that may meet a leaf, by search."""
        column = self.columns.get(leaf.ref.path)
        if column is None or column.type is None:
            return None
        return search_leaf(leaf, self.container, column.number, column.type)

    # -- pages -------------------------------------------------------------------------------

    def places(self, group: int, path: Path) -> PageIndex | None:
        """Where the pages of a chunk are."""
        column = self.columns.get(path)
        span = None if column is None else self._pages(column, group)
        return None if column is None or span is None else self._page_index(column, group, *span)

    def pages(self, group: int, ref: ColumnRef) -> PageFacts | None:
        """The pages of a chunk and what they hold; None where the segment doesn't know."""
        column = self.columns.get(ref.path)
        if column is None or column.type is None:
            return None
        steps, reader = self._steps(column, ref), self._reader(column, "page")
        span = self._pages(column, group)
        if steps is None or span is None or not reader.exists:
            return None
        facts = _converted(reader.slice(*span), steps, ref.type)
        return PageFacts(self._page_index(column, group, *span), facts)

    def _pages(self, column: Column, group: int) -> tuple[int, int] | None:
        key = (column.number, "page/firsts")
        if key not in self.container:
            return None
        ((first, last),) = self.container.slices([(key, group, group + 2)])
        return (int(first), int(last)) if last > first else None

    def _page_index(self, column: Column, group: int, first: int, last: int) -> PageIndex:
        names = ("first_rows", "offsets", "sizes")
        keys = [((column.number, f"page/{name}"), first, last) for name in names]
        first_rows, offsets, sizes = self.container.slices(keys)
        rows = int(self.common("group_rows")[group])
        return PageIndex.places(rows, first_rows, offsets, sizes.astype(np.int64))

    def page_span(self, group: int, path: Path) -> tuple[int, int] | None:
        """The numbers of a chunk's first page and of the one past the last."""
        column = self.columns.get(path)
        return None if column is None else self._pages(column, group)

    # -- aggregates --------------------------------------------------------------------------

    def nulls(self, level: str, ref: ColumnRef, units: Array) -> Array:
        """How many NULLs there are in some files, row groups or pages; UNKNOWN where nobody counted."""
        return self._counts("nulls", level, ref, units)

    def nans(self, level: str, ref: ColumnRef, units: Array) -> Array:
        """How many NaNs there are in some files, row groups or pages; UNKNOWN where nobody counted."""
        return self._counts("nans", level, ref, units)

    def rises(self, ref: ColumnRef, pages: Array) -> Array:
        """In how many rows of pages a column is one more than in the row before; UNKNOWN if not counted."""
        return self._counts("rises", "page", ref, pages)

    def _counts(self, name: str, level: str, ref: ColumnRef, units: Array) -> Array:
        column = self.columns.get(ref.path)
        if column is not None and self._steps(column, ref) is not None:
            key = self._reader(column, level).key(name)
            if key in self.container:
                return self.container.take(key, units)
        return np.full(len(units), UNKNOWN, dtype=np.int64)

    def blocks(self, level: str, ref: ColumnRef, units: Array) -> Blocks | None:
        """The aggregates of some row groups ("group") or pages ("page"); None if there are none.

        Pages are numbered as :meth:`page_span` has it.
        """
        column = self._alike(ref)
        found = None if column is None else self._kept.blocks(column.number, column.type, level, units)
        return None if found is None else replace(found, type=ref.type)

    @cached_property
    def _kept(self) -> Kept:
        return Kept(self.container)

    def _alike(self, ref: ColumnRef) -> Column | None:
        """A column whose stored keys are those of its type in the lake."""
        column = self.columns.get(ref.path)
        steps = None if column is None else self._steps(column, ref)
        return None if steps is None or ref.via or any(_rescales(step) for step in steps) else column

    def sketches(self, kind: str, ref: ColumnRef, groups: Array) -> list[bytes | None] | None:
        """The sketches of some row groups, None for one that has none; None if there are none at all."""
        column = self._alike(ref)
        return None if column is None else self._kept.sketches(column.number, kind, groups)

    # -- bloom filters -----------------------------------------------------------------------

    @cached_property
    def _filters(self) -> Filters:
        return Filters(self.container)

    def has_own_blooms(self, path: Path) -> bool:
        """Whether every filter that the files have of a column is here as well."""
        column = self.columns.get(path)
        return column is not None and column.type is not None and self.own_blooms

    def absent(self, path: Path, hashes: Array, groups: Array) -> Absent | None:
        """In which of some row groups, and of their pages, none of the values is; None without filters."""
        column = self.columns.get(path)
        return None if column is None else self._filters.absent(column.number, hashes, groups)

    # -- back to a draft ---------------------------------------------------------------------

    def draft(self) -> Draft:
        """All of it in memory, to be merged with others."""
        chunks = self.common("chunks").view(CHUNK)
        return Draft(
            keys=[key.decode(errors="surrogateescape") for key in self.texts("keys").to_pylist()],
            versions=[text.decode(errors="surrogateescape") for text in self.texts("versions").to_pylist()],
            marks=self.marks,
            sizes=self.common("sizes"),
            kins=self.texts("kins").to_pylist(),
            kin=self.common("kin"),
            counts=np.diff(self.firsts),
            group_rows=self.common("group_rows"),
            group_sizes=self.common("group_sizes").reshape(-1, 2),
            chunk_counts=self.common("chunk_counts"),
            chunks=chunks,
            columns={path: self._column_draft(column) for path, column in self.columns.items()},
        )

    def _column_draft(self, column: Column) -> ColumnDraft:
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
        sums, sketches = self._kept.sums(number, column.type), self._kept.all_sketches(number)
        return ColumnDraft(column.type, groups, pages, blooms, page_blooms, origins, sums, sketches)


@dataclass(frozen=True, slots=True, eq=False)
class _Records:
    """What a file's metadata asks its segment for."""

    segment: Segment
    file: int
    shell: ParquetMetadata
    footer: Footer

    def chunks(self, leaf: int) -> Array:
        """The chunks of a leaf, one per row group; from the footer where the segment is damaged."""
        segment = self.segment
        groups = int(segment.firsts[self.file + 1] - segment.firsts[self.file])
        try:
            first = int(segment.chunk_firsts[self.file]) + leaf * groups
            span = ((COMMON, "chunks"), first * _CHUNK, (first + groups) * _CHUNK)
            (rows,) = segment.container.slices([span])
        except BadIndex as bad:
            return record_chunks(self.footer(bad))[leaf * groups : (leaf + 1) * groups]
        return rows.view(CHUNK)

    def facts(self, ref: ColumnRef) -> ColumnFacts:
        """What is known about a column in each row group; from the footer where the segment doesn't say."""
        firsts = self.segment.firsts
        damage = None
        try:
            if self.segment.has("group", ref):
                groups = np.arange(int(firsts[self.file]), int(firsts[self.file + 1]))
                return self.segment.facts("group", ref, groups)
        except BadIndex as bad:
            damage = bad
        return row_group_facts(self.footer(damage), ref)

    def places(self, group: int, leaf: int) -> PageIndex | None:
        """Where the pages of a chunk are, if the segment knows."""
        first = int(self.segment.firsts[self.file])
        try:
            return self.segment.places(first + group, self.shell.leaves[leaf].path)
        except BadIndex as bad:
            self.footer(bad)
            return None


def _rescales(step: Transform) -> bool:
    """Whether a step makes other keys."""
    return not isinstance(step, Same) and not (isinstance(step, Scale) and step.times == 1)


def _converted(facts: ColumnFacts, steps: tuple[Transform, ...], type: pa.DataType) -> ColumnFacts:
    for step in steps:
        facts = facts.through(step)
    if facts.type == type:
        return facts
    return replace(facts, type=type)
