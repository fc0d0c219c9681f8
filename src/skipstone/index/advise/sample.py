"""A sample of a lake: footers of some files, page indexes and rows of some of their row groups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.domain.keys import Kind, key_space
from skipstone.core.evidence import Array
from skipstone.core.ir.nodes import ColumnRef, Node
from skipstone.core.judge import Verdict, judge
from skipstone.core.rows import RowSet
from skipstone.engine.jobs import gather
from skipstone.index.advise.rows import Path, RowSample, SampledColumn, keys_of
from skipstone.lake.snapshot import Snapshot
from skipstone.parquet.bloom import has_bloom
from skipstone.parquet.evidence import BoundLeaf, find_leaf, page_facts
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.pageindex import BadPageIndex, page_index_ranges, parse_page_index
from skipstone.parquet.slice import slice_steps
from skipstone.prune.clustering import bounded
from skipstone.prune.ledger import Ledger
from skipstone.prune.survey import PageFacts, Survey, segments
from skipstone.store.source import ByteRange, drive
from skipstone.store.store import ListedFile

# Rows to read, fewer for many columns: about this many values, in runs of neighbouring rows.
_VALUES, _FEWEST_ROWS, _MOST_ROWS = 2_000_000, 20_000, 100_000
_RUN = 400
_SEED = 7
# A column chunk without a page index is read in full: limit of bytes, and minimum of row groups.
_WHOLE_CHUNK_BYTES, _FEWEST_GROUPS = 64 * 2**20, 8
# Maximum of page indexes to parse, and of row groups whose pages are judged for one query.
_MOST_PAGE_INDEXES, _JUDGED = 8_192, 16


@dataclass(frozen=True, slots=True)
class Skips:
    """Shares of rows that a query skips at each level; pages are None without a page index."""

    files: float = 0.0
    row_groups: float = 0.0
    pages: float | None = None
    matching: float = 0.0
    """Share of rows proven to match, which no layout can skip."""

    @property
    def best(self) -> float:
        """Share at the finest level."""
        return self.row_groups if self.pages is None else self.pages


@dataclass(slots=True, eq=False)
class LakeSample:
    """Some of a lake's files; their row groups, numbered consecutively, are the units."""

    lake: Snapshot
    files: Array
    """Numbers of the sampled files in the lake's listing."""
    footers: tuple[ParquetMetadata, ...]
    survey: Survey
    _pages: dict[tuple[int, Path], PageFacts | None] = field(default_factory=dict)

    @classmethod
    def of(cls, lake: Snapshot, most: int) -> LakeSample:
        """Sample up to ``most`` files, evenly spread over the listing."""
        files = spread(np.arange(len(lake.entries)), most)
        footers = tuple(lake.access.footers([lake.entries[number] for number in files.tolist()]))
        return cls(lake, files, footers, Survey.of(footers, lake.overrides(files)))

    @property
    def is_whole(self) -> bool:
        """Whether all files of the lake are sampled."""
        return len(self.files) == len(self.lake.entries)

    @property
    def rows(self) -> int:
        """Rows of the sampled files."""
        return int(self.survey.rows.sum())

    @property
    def scale(self) -> float:
        """Bytes of the lake per sampled byte."""
        entries = self.lake.entries
        sampled = sum(entries[number].size for number in self.files.tolist())
        return 1.0 if self.is_whole or not sampled else sum(entry.size for entry in entries) / sampled

    # -- what is skipped today ---------------------------------------------------------------

    def skips(self, node: Node) -> Skips:
        """Judge a condition by bounds, as in a scan."""
        survey = self.survey
        if not self.rows:
            return Skips()
        refs = list({ref.path: ColumnRef(ref.path, ref.type) for ref in node.refs()}.values())
        evidence = survey.evidence(refs)
        verdicts = judge(node, evidence).verdicts().copy()
        # A table's manifests may prune more than footers.
        files = self.lake.prune_files(node, Ledger(lambda: (0, 0))).files
        if files is not None:
            verdicts[~np.isin(self.files, files)[survey.owners]] = Verdict.NONE
        kept = np.where(verdicts != Verdict.NONE, survey.rows, 0)
        in_files = survey.totals[np.bincount(survey.owners, kept, survey.count) > 0].sum()
        groups = int(np.count_nonzero(survey.rows))
        levels = self._skipped(in_files, survey.count), self._skipped(kept.sum(), groups)
        matching = survey.rows[verdicts == Verdict.ALL].sum()
        undecided = np.flatnonzero(verdicts == Verdict.SOME)
        # Without any, the pages of others show which share of the lake one page is.
        chosen = spread(undecided if len(undecided) else np.flatnonzero(survey.rows), _JUDGED)
        indexed = self.pages(chosen.tolist(), refs)
        if not indexed or (self.is_whole and not len(undecided)):
            return Skips(*levels, None, float(matching / self.rows))
        pages = segments(survey, chosen.tolist(), indexed, evidence).evidence
        verdicts = judge(node, pages).verdicts()
        scale = survey.rows[undecided].sum() / survey.rows[chosen].sum()
        in_pages = matching + pages.rows[verdicts != Verdict.NONE].sum() * scale
        matching += pages.rows[verdicts == Verdict.ALL].sum() * scale
        count = round(len(pages) * self.rows / survey.rows[chosen].sum())
        return Skips(*levels, self._skipped(in_pages, count), float(matching / self.rows))

    def _skipped(self, kept: float, units: int) -> float:
        """Share of rows that are not kept, for this number of sampled units."""
        # Matching rows may be in a file that was not sampled: count one unit.
        least = 0.0 if self.is_whole else 1 / (units * self.scale)
        return 1 - min(max(float(kept) / self.rows, least), 1.0)

    def has_bounds(self, ref: ColumnRef) -> bool:
        """Whether footers have bounds of a column."""
        return bool(bounded(self.survey.facts(ref)).any())

    def has_bloom(self, ref: ColumnRef) -> bool:
        """Whether any file has bloom filters of a column."""
        leaves = [(file, find_leaf(file, ref)) for file in self.footers]
        return any(bound is not None and has_bloom(file, bound.leaf.index) for file, bound in leaves)

    # -- page indexes ------------------------------------------------------------------------

    def pages(self, units: Iterable[int], refs: Sequence[ColumnRef]) -> dict[tuple[int, Path], PageFacts]:
        """Return the page indexes of columns in these units, where there are any."""
        keys = {(unit, ref.path): ref for unit in units for ref in refs}
        missing = [(unit, ref) for (unit, path), ref in keys.items() if (unit, path) not in self._pages]
        self._load_pages(missing[: max(_MOST_PAGE_INDEXES - len(self._pages), 0)])
        return {key: pages for key in keys if (pages := self._pages.get(key)) is not None}

    def _load_pages(self, wanted: Sequence[tuple[int, ColumnRef]]) -> None:
        leaves: list[tuple[int, BoundLeaf]] = []
        ranges: dict[ListedFile, list[ByteRange]] = {}
        for unit, ref in wanted:
            self._pages[unit, ref.path] = None
            bound = self.leaf(unit, ref)
            if bound is None:
                continue
            bounds, offsets = page_index_ranges(self.survey.file(unit), self._group(unit), bound.leaf.index)
            if bounds is not None and offsets is not None:
                leaves.append((unit, bound))
                ranges.setdefault(self._entry(unit), []).extend((bounds, offsets))
        bodies = {entry: iter(read) for entry, read in self.lake.access.read_many(ranges).items()}
        for unit, bound in leaves:
            file, group, body = self.survey.file(unit), self._group(unit), bodies[self._entry(unit)]
            try:
                index = parse_page_index(next(body), next(body), file, group, bound.leaf.index)
            except BadPageIndex:
                continue  # as in a scan
            if index.has_statistics:
                self._pages[unit, bound.ref.path] = PageFacts(index, page_facts(file, bound, index))

    def leaf(self, unit: int, ref: ColumnRef) -> BoundLeaf | None:
        """Return the leaf of a column in a unit's file; None for a partition column."""
        return None if self.survey.gives(ref.path) else find_leaf(self.survey.file(unit), ref)

    def _group(self, unit: int) -> int:
        return int(self.survey.numbers[unit])

    def _entry(self, unit: int) -> ListedFile:
        return self.lake.entries[int(self.files[self.survey.owners[unit]])]

    # -- rows --------------------------------------------------------------------------------

    def read_rows(self, refs: Sequence[ColumnRef]) -> RowSample:
        """Read rows from all over the sampled files, with the values of these columns."""
        chosen = self._choose_rows(refs)
        # In one request, before the threads need them.
        self.pages([unit for unit, rows in chosen.items() if not rows.is_full], refs)
        threads = self.lake.access.threads
        parts = gather(lambda unit: self._read_unit(unit, chosen[unit], refs), list(chosen), threads=threads)
        columns = {ref.path: self._column(ref, [part[at] for part in parts]) for at, ref in enumerate(refs)}
        folders = [entry.key.rpartition("/")[0] for entry in map(self._entry, chosen)]
        # Rows never leave their partition.
        _, partitions = np.unique(
            folders if self.survey.overrides else [""] * len(folders), return_inverse=True
        )
        page_rows = {ref.path: self._page_rows(chosen, ref) for ref in refs}
        return RowSample(
            columns={path: column for path, column in columns.items() if column is not None},
            partitions=np.repeat(partitions, [len(rows) for rows in chosen.values()]),
            rows=round(self.rows * self.scale),
            page_rows={path: rows for path, rows in page_rows.items() if rows is not None},
            group_rows=float(self.survey.rows[self.survey.rows > 0].mean()) if self.rows else 1.0,
        )

    def _column(self, ref: ColumnRef, parts: Sequence[pa.Array | None]) -> SampledColumn | None:
        present = [part for part in parts if part is not None]
        if not parts or len(present) < len(parts):
            return None
        may_nan = key_space(ref.type).kind is Kind.FLOAT and bool(self.survey.facts(ref).may_nan.any())
        return SampledColumn.of(ref.type, pa.concat_arrays(present), may_nan=may_nan)

    def _choose_rows(self, refs: Sequence[ColumnRef]) -> dict[int, RowSet]:
        rows = self.survey.rows
        units = np.flatnonzero(rows > 0)
        most = min(max(_VALUES // max(len(refs), 1), _FEWEST_ROWS), _MOST_ROWS)
        if self.rows <= most:
            return {unit: RowSet.all(int(rows[unit])) for unit in units.tolist()}
        runs = most // _RUN
        units = spread(units, runs)
        whole = sum(self._whole_chunk_bytes(unit, refs) for unit in units.tolist())
        if whole > _WHOLE_CHUNK_BYTES:
            units = spread(units, max(int(len(units) * _WHOLE_CHUNK_BYTES / whole), _FEWEST_GROUPS))
        ends = np.cumsum(rows[units])
        # One run at a random position in each of as many equal stretches.
        positions = (np.arange(runs) + np.random.default_rng(_SEED).random(runs)) / runs * ends[-1]
        owners = np.searchsorted(ends, positions, side="right")
        starts = (positions - (ends - rows[units])[owners]).astype(np.int64)
        stops = np.minimum(starts + _RUN, rows[units][owners])
        return {
            unit: RowSet.from_ranges(int(rows[unit]), starts[owners == number], stops[owners == number])
            for number, unit in enumerate(units.tolist())
            if (owners == number).any()
        }

    def _whole_chunk_bytes(self, unit: int, refs: Sequence[ColumnRef]) -> int:
        """Bytes of the chunks that must be read in full."""
        file, group = self.survey.file(unit), self._group(unit)
        leaves = [bound.leaf.index for ref in refs if (bound := self.leaf(unit, ref)) is not None]
        return sum(
            file.chunk_range(group, leaf).length
            for leaf in leaves
            if page_index_ranges(file, group, leaf)[1] is None
        )

    def _read_unit(self, unit: int, rows: RowSet, refs: Sequence[ColumnRef]) -> list[pa.Array | None]:
        """Return, per column, its keys in the chosen rows; None if the type has no order."""
        file, entry, evolution = self.survey.file(unit), self._entry(unit), self.lake.access.evolution
        (constants,) = self.lake.constants([int(self.files[self.survey.owners[unit]])])
        bounds = [self.leaf(unit, ref) for ref in refs]
        pages = {} if rows.is_full else self.pages([unit], refs)
        indexes = {
            b.leaf.index: pages[unit, b.ref.path].index for b in bounds if b and (unit, b.ref.path) in pages
        }
        names = file.arrow_schema.names
        tops = list(dict.fromkeys(names.index(bound.ref.path[0]) for bound in bounds if bound))
        leaves = [bound.leaf.index for bound in bounds if bound]
        steps = slice_steps(file, self._group(unit), tops, rows, indexes, leaves=leaves)
        table = drive(steps, partial(self.lake.access.read, entry))
        keys: list[pa.Array | None] = []
        for ref, bound in zip(refs, bounds, strict=True):
            if bound is not None:
                column = table.column(tops.index(names.index(ref.path[0])))
                for name in ref.path[1:]:
                    column = pc.struct_field(column, name)
            elif len(ref.path) == 1 and ref.path[0] in constants:
                column = pa.repeat(constants[ref.path[0]], len(rows))
            else:
                default = None if evolution is None else evolution.defaults.get(ref.path)
                column = pa.repeat(pa.scalar(None, ref.type) if default is None else default, len(rows))
            keys.append(keys_of(ref.type, column))
        return keys

    def _page_rows(self, units: Iterable[int], ref: ColumnRef) -> float | None:
        """Average rows per page; None without a page index."""
        pages = self.pages(spread(np.array([*units], dtype=np.int64), _JUDGED).tolist(), [ref])
        count = sum(len(facts.index) for facts in pages.values())
        return sum(facts.index.rows for facts in pages.values()) / count if count else None


def spread(items: Array, most: int) -> Array:
    """Return at most ``most`` of the items, evenly spread, in their order."""
    if len(items) <= most:
        return items
    return items[np.unique(np.linspace(0, len(items) - 1, most).round().astype(np.int64))]
