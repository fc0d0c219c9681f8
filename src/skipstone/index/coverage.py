"""An index matched with one listing of a lake: covered files and their evidence."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Final

import numpy as np

from skipstone.core.evidence import Array, ColumnFacts, Evidence, FactOverride
from skipstone.core.ir.nodes import ColumnRef, Node
from skipstone.core.judge import Verdict, judge
from skipstone.index.container import BadIndex
from skipstone.index.filters import FilterResult
from skipstone.index.manifest import Manifest
from skipstone.index.marks import marks_of, match
from skipstone.index.search import search
from skipstone.index.segment import Segment
from skipstone.lake.files import Files
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.prune.blooms import BY_UNIT, Hashes, Probe, bloom_probes, hashes_by_unit
from skipstone.prune.ledger import Blame
from skipstone.prune.survey import ColumnPages, PageFacts, RuledOut
from skipstone.report.trace import Cause, Drop
from skipstone.store.store import ListedFile

Given = Mapping[tuple[str, ...], FactOverride]

# Fewer files than this are judged at once: searching or judging blocks would take as long.
_FEW: Final = 4096
# Up to this many row groups are judged without pruning files first.
_SMALL: Final = 65_536
# Schemas to read for the lake's schema.
_KINDS: Final = 256
# A search must leave at most one file in this many.
_SHARE: Final = 4


@dataclass(frozen=True, slots=True, eq=False)
class PrunedSegments:
    """Files that may match, by segment, and counts of the dropped ones."""

    kept: tuple[tuple[int, Array], ...]
    """Segment number, and the rows of its files."""
    units: int
    whole: int
    rows: int
    """Rows of the files that are kept."""
    rows_dropped: int
    drops: tuple[Drop, ...]

    @property
    def count(self) -> int:
        """Number of files kept."""
        return sum(len(rows) for _, rows in self.kept)


@dataclass(frozen=True, slots=True, eq=False)
class _Live:
    """The live files of a segment: a mask (None for all), their number, and their rows."""

    mask: Array | None
    count: int
    rows: int

    def units(self, total: int) -> Array:
        """Return all live files."""
        return np.arange(total) if self.mask is None else np.flatnonzero(self.mask)

    def among(self, rows: Array) -> Array:
        """Return the live files among some."""
        return rows if self.mask is None else rows[self.mask[rows]]


@dataclass(eq=False)
class IndexCoverage:
    """The segments of an index, and the position of each listed file in them."""

    manifest: Manifest
    access: Files
    """The lake's files."""
    entries: Sequence[ListedFile]
    segments: list[Segment]
    problems: list[str]
    """Why parts of the index are not used."""
    marks: Array
    """Marks of the listed files."""
    distrust: Callable[[BadIndex], None]
    """Called with damage that is detected while a plan runs."""
    owner: Array = field(init=False)
    """Per listed file, its segment; -1 if the index does not cover it."""
    row: Array = field(init=False)
    _served: dict[tuple[ColumnRef, ...], tuple[bool, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Locate the listed files in the segments."""
        self.owner = np.full(len(self.marks), -1, dtype=np.int64)
        self.row = np.full(len(self.marks), -1, dtype=np.int64)
        good: list[Segment] = []
        for segment in self.segments:
            try:
                places = match(segment.marks, self.marks)
            except BadIndex as error:
                self.problems.append(f"{segment.container.name}: {error.reason}")
                continue
            found = places >= 0
            self.owner[found], self.row[found] = len(good), places[found]
            good.append(segment)
        self.segments = good

    def uses(self, name: str) -> bool:
        """Whether a segment is in use; an empty name stands for all."""
        return not name or any(segment.container.name == name for segment in self.segments)

    def without(self, bad: BadIndex) -> IndexCoverage:
        """Return the coverage without the damaged segment, or without all if it is not named."""
        left = [s for s in self.segments if bad.name and s.container.name != bad.name]
        name = bad.name or "index"
        problems = [*self.problems, f"{name}: {bad.reason}"]
        return IndexCoverage(
            self.manifest, self.access, self.entries, left, problems, self.marks, self.distrust
        )

    def extended(
        self, access: Files, entries: Sequence[ListedFile], distrust: Callable[[BadIndex], None]
    ) -> IndexCoverage:
        """The coverage of a listing that has these files, numbered alike, and others in memory after them."""
        more = np.concatenate([self.marks, marks_of(entries[len(self.entries) :])])
        return IndexCoverage(self.manifest, access, entries, self.segments, [*self.problems], more, distrust)

    @cached_property
    def indexed(self) -> Array:
        """Listed files that the index covers."""
        return np.flatnonzero(self.owner >= 0)

    @cached_property
    def _files(self) -> list[Array]:
        """Per segment and row, the number of the listed file, or -1."""
        found = []
        for number, segment in enumerate(self.segments):
            files = np.full(len(segment), -1, dtype=np.int64)
            mine = np.flatnonzero(self.owner == number)
            files[self.row[mine]] = mine
            found.append(files)
        return found

    @cached_property
    def unknown(self) -> Array:
        """Listed files that the index does not cover."""
        return np.flatnonzero(self.owner < 0)

    @cached_property
    def _live(self) -> list[_Live]:
        """Per segment, its files that are listed."""
        found = []
        for segment, files in zip(self.segments, self._files, strict=True):
            live = files >= 0
            count = int(live.sum())
            if count == len(segment):
                found.append(_Live(None, count, segment.rows))
            else:
                found.append(_Live(live, count, int(segment.common("rows")[live].sum())))
        return found

    @cached_property
    def small(self) -> bool:
        """Whether judging all row groups at once is as fast as pruning files first."""
        return sum(segment.groups for segment in self.segments) <= _SMALL

    @cached_property
    def covered(self) -> int:
        """Number of listed files that the index covers."""
        return len(self.owner) - len(self.unknown)

    def files_of(self, segment: int, rows: Array) -> Array:
        """Return the listed numbers of some files of a segment."""
        return self._files[segment][rows]

    # -- one file ----------------------------------------------------------------------------

    def metadata(self, file: int) -> ParquetMetadata | None:
        """Return a file's metadata without its footer; None if the index does not cover it."""
        segment = int(self.owner[file])
        if segment < 0:
            return None
        entry = self.entries[file]
        return self.segments[segment].metadata(
            int(self.row[file]), entry, self.access.path(entry), partial(self._footer, entry)
        )

    def _footer(self, entry: ListedFile, bad: BadIndex | None) -> ParquetMetadata:
        """Read a file's footer, because the index has no facts or is damaged."""
        if bad is not None:
            self.distrust(bad)
        return self.access.footer(entry)

    def kinds(self) -> list[ParquetMetadata]:
        """Return one file per recorded schema; a sample if there are very many."""
        found: list[int] = []
        for number, segment in enumerate(self.segments):
            (mine,) = (self.owner == number).nonzero()
            _, first = np.unique(segment.common("kin")[self.row[mine]], return_index=True)
            found += mine[first].tolist()
        step = -(-len(found) // _KINDS)
        return [self.access.layout(self.entries[file]) for file in found[:: max(step, 1)]]

    # -- many files --------------------------------------------------------------------------

    def rows_of(self, files: Array) -> tuple[tuple[int, Array], ...]:
        """Return covered files by segment, as its rows in ascending order."""
        owners = self.owner[files]
        return tuple(
            # In ascending order, because all rows of a segment count as the segment itself.
            (int(segment), np.sort(self.row[files[owners == segment]]))
            for segment in np.unique(owners[owners >= 0]).tolist()
        )

    def served(self, refs: tuple[ColumnRef, ...], partitions: frozenset[str]) -> tuple[bool, ...]:
        """Per segment, whether it has all facts of footers about these columns."""
        found = self._served.get(refs)
        if found is None:
            numbers = range(len(self.segments))
            found = tuple(self.serves(number, refs, partitions) for number in numbers)
            self._served[refs] = found
        return found

    def serves(self, segment: int, refs: Sequence[ColumnRef], partitions: Collection[str]) -> bool:
        """Whether a segment has all facts of footers about these columns."""
        mine = self.segments[segment]
        return all(ref.name in partitions or mine.has("group", ref) for ref in refs)

    def prune_segments(
        self, node: Node, refs: Sequence[ColumnRef], files: Array | None, given: Given
    ) -> PrunedSegments:
        """Prune the covered files among ``files`` (None: all).

        ``given`` has the facts of partition columns. Blocks of files are judged first, in all segments at
        once, then the files of the remaining blocks, or the results of a search. Dropped blocks are not read:
        the cost grows with the number of kept files.
        """
        wanted = None
        if files is not None:
            wanted = np.zeros(len(self.entries), dtype=bool)
            wanted[files] = True
        # Partition values override the facts of files.
        blocks = self._blocks(node, [ref for ref in refs if ref.path not in given])
        kept: list[tuple[int, Array]] = []
        drops: dict[tuple[Cause, str], int] = {}
        units = whole = rows_kept = rows_all = 0
        for number, segment in enumerate(self.segments):
            live = self._live[number] if wanted is None else self._chosen(number, wanted)
            if not live.count:
                continue
            total = live.count
            units += total
            rows_all += live.rows
            rows = self._candidates(node, number, None if blocks is None else blocks[number], given)
            rows = live.units(len(segment)) if rows is None else live.among(rows)
            numbers = self._files[number][rows] if given else rows
            evidence = self._evidence(segment, refs, rows, given, numbers)
            judgement = judge(node, evidence)
            verdicts = judgement.verdicts()
            chosen = verdicts != Verdict.NONE
            whole += int((verdicts == Verdict.ALL).sum())
            for drop in Blame.of(judgement, evidence).drops():
                key = (drop.cause, drop.condition)
                drops[key] = drops.get(key, 0) + drop.units
            if total > len(rows):
                key = (Cause.BOUNDS, str(node))
                drops[key] = drops.get(key, 0) + total - len(rows)
            rows = rows[chosen]
            rows_kept += int(evidence.rows[chosen].sum())
            if len(rows):
                kept.append((number, rows))
        told = tuple(Drop(cause, text, count) for (cause, text), count in drops.items())
        return PrunedSegments(tuple(kept), units, whole, rows_kept, rows_all - rows_kept, told)

    def _chosen(self, number: int, wanted: Array) -> _Live:
        """Return the files of a segment among the wanted listed files."""
        files = self._files[number]
        live = files >= 0
        live[live] = wanted[files[live]]
        rows = self.segments[number].common("rows")
        return _Live(live, int(live.sum()), int(rows[live].sum()))

    def _blocks(self, node: Node, refs: Sequence[ColumnRef]) -> list[Array] | None:
        """Return, per segment, the blocks that may match; None if there are too few files."""
        if sum(map(len, self.segments)) <= _FEW:
            return None
        columns = {
            ref.path: ColumnFacts.concat([segment.facts("block", ref) for segment in self.segments])
            for ref in refs
        }
        counts = [-(-len(segment) // segment.block) for segment in self.segments]
        # Row counts of blocks are unknown, so no block counts as empty.
        evidence = Evidence(np.full(sum(counts), -1, dtype=np.int64), columns)
        may = judge(node, evidence).bits.true
        return [np.flatnonzero(part) for part in np.split(may, np.cumsum(counts)[:-1])]

    def _candidates(self, node: Node, number: int, blocks: Array | None, given: Given) -> Array | None:
        """Return the rows of a segment to judge; None for all."""
        segment = self.segments[number]
        if blocks is None:
            return None
        size = segment.block
        left = len(blocks) * size
        if left > _FEW:
            found = search(
                node, lambda leaf: None if leaf.ref.path in given else segment.search(leaf), left // _SHARE
            )
            if found is not None:
                return np.sort(found[np.isin(found // size, blocks)])
            if left >= len(segment):
                return None
        rows = (blocks[:, np.newaxis] * size + np.arange(size)).ravel()
        return rows[rows < len(segment)]

    @staticmethod
    def _evidence(
        segment: Segment, refs: Sequence[ColumnRef], rows: Array, given: Given, files: Array
    ) -> Evidence:
        every = len(rows) == len(segment)

        def stored(ref: ColumnRef) -> ColumnFacts:
            return segment.facts("file", ref, None if every else rows)

        columns = {
            ref.path: given[ref.path].take(files).fallback_to(partial(stored, ref))
            if ref.path in given
            else stored(ref)
            for ref in refs
        }
        return Evidence(segment.common("rows") if every else segment.some("rows", rows), columns)

    def part(self, segment: int, rows: Array) -> RecordedFiles:
        """Return files of a segment as a part of a survey."""
        return RecordedFiles.of(self, segment, rows)


@dataclass(frozen=True, slots=True, eq=False)
class RecordedFiles:
    """Files of one segment, as a part of a survey."""

    coverage: IndexCoverage
    segment: Segment
    files: Array
    """Their listed numbers."""
    counts: Array
    rows: Array
    groups: Array
    """Numbers of their row groups in the segment."""
    schema_numbers: Array
    """Schema number of each row group's file."""
    only_schema: int | None
    """The kind of all of them, if there is only one."""

    @classmethod
    def of(cls, coverage: IndexCoverage, number: int, rows: Array) -> RecordedFiles:
        """Select files of a segment."""
        segment = coverage.segments[number]
        counts, groups = segment.groups_of(rows)
        files = coverage.files_of(number, rows)
        schema_numbers = np.repeat(segment.some("kin", rows), counts)
        only = (
            schema_numbers.item(0)
            if len(schema_numbers) and (schema_numbers == schema_numbers[0]).all()
            else None
        )
        group_rows = segment.rows_of(rows, counts, groups)
        return cls(coverage, segment, files, counts, group_rows, groups, schema_numbers, only)

    @property
    def near(self) -> bool:
        """Whether the segment is a local file."""
        return self.segment.container.bytes.near

    def file(self, number: int) -> ParquetMetadata:
        """Return a file's metadata."""
        return self.coverage.access.layout(self.coverage.entries[int(self.files[number])])

    def facts(self, ref: ColumnRef) -> ColumnFacts:
        """Return the facts about a column in each row group."""
        every = len(self.groups) == self.segment.groups
        return self.segment.facts("group", ref, None if every else self.groups)

    def pages(self, unit: int, ref: ColumnRef) -> PageFacts | None:
        """Return the pages of a chunk, if they are recorded."""
        return self.segment.pages(int(self.groups[unit]), ref)

    def page_count(self, ref: ColumnRef) -> int | None:
        """Number of pages of a column; None unless they are recorded for every row group."""
        return self.segment.page_count(ref)

    def column_pages(self, units: Array, ref: ColumnRef) -> ColumnPages | None:
        """Return the recorded pages of a column in some row groups."""
        every = len(units) == len(self.groups)
        found = self.segment.column_pages(self.groups if every else self.groups[units], ref)
        return found if every or found is None else replace(found, units=units[found.units])

    def has_filters(self, path: tuple[str, ...]) -> bool:
        """Whether the index has copied the filters of the files."""
        return self.segment.has_own_blooms(path)

    def absent(
        self,
        node: Node,
        units: Array,
        max_keys: int,
        pages: Mapping[tuple[str, ...], Array] | None,
        hashes: Hashes | None,
    ) -> RuledOut:
        """Rule out units by the index's bloom filters; filters that were not copied are in the files."""
        segment = self.segment
        masks: dict[int, Array] = {}
        gone: dict[int, list[Array]] = {}
        settled = True
        schema_numbers = None if self.only_schema is not None else self.schema_numbers[units]
        every: set[int] = {self.only_schema or 0} if schema_numbers is None else set(schema_numbers.tolist())
        if hashes is None and len(every) > 1:
            hashes = {}
        for schema_number in every:
            mine = None if schema_numbers is None else (schema_numbers == schema_number).nonzero()[0]
            groups = self.groups[units if mine is None else units[mine]]
            for probe in bloom_probes(node, segment.shell(schema_number), max_keys, hashes):
                path = probe.bound.ref.path
                if probe.hashes is None:
                    continue
                settled = settled and segment.has_own_blooms(path)
                # Files of several kinds can store a value in several forms: then all pages are looked up.
                some = pages.get(path) if pages is not None and len(every) == 1 else None
                if probe.hashes is BY_UNIT:
                    absent = self._absent_by_unit(probe, groups, some, max_keys)
                else:
                    absent = segment.absent(path, probe.hashes, groups, some)
                if absent is None:
                    continue
                if some is None or absent.groups.any():
                    if mine is None:
                        masks[id(probe.node)] = absent.groups
                    else:
                        mask = masks.setdefault(id(probe.node), np.zeros(len(units), dtype=bool))
                        mask[mine] = absent.groups
                if len(absent.pages):
                    gone.setdefault(id(probe.node), []).append(absent.pages)
        deeper = {
            leaf: parts[0] if len(parts) == 1 else np.sort(np.concatenate(parts))
            for leaf, parts in gone.items()
        }
        return RuledOut(masks, deeper, settled)

    def _absent_by_unit(
        self, probe: Probe, groups: Array, pages: Array | None, max_keys: int
    ) -> FilterResult | None:
        """Rule out row groups and pages by the keys between their bounds; None without filters."""
        ref, segment = probe.node.ref, self.segment
        unique, places = np.unique(groups, return_inverse=True)
        facts = segment.facts("group", ref, unique)
        gone = segment.absent_pairs(ref.path, "group", unique, *hashes_by_unit(probe, facts, max_keys))
        paged = segment.column_pages(unique if gone is None else unique[~gone], ref)
        numbers = groups[:0]
        if paged is not None:
            numbers, facts = paged.numbers, paged.facts
            if pages is not None:
                chosen = np.isin(numbers, pages).nonzero()[0]
                numbers, facts = numbers[chosen], facts.take(chosen)
            absent = segment.absent_pairs(ref.path, "page", numbers, *hashes_by_unit(probe, facts, max_keys))
            if absent is None and gone is None:
                return None
            numbers = numbers[:0] if absent is None else numbers[absent]
        return FilterResult(np.zeros(len(groups), dtype=bool) if gone is None else gone[places], numbers)
