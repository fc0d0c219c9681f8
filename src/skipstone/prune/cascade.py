"""The cascade over one or more files: row groups, then bloom filters and dictionaries, then pages.

It does no I/O: it is a generator that yields the byte ranges and bloom filters it needs and is sent the
answers, so that blocking and asynchronous drivers run the same steps.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, TypeVar

import numpy as np

from skipstone.core.evidence import Array, Evidence
from skipstone.core.ir.nodes import ColumnRef, Leaf, Node, columns_of
from skipstone.core.judge import Judgement, Verdict, judge
from skipstone.core.rows import RowSet
from skipstone.parquet.dictionary import (
    BadDictionary,
    decode_dictionary,
    dictionary_complete,
    dictionary_range,
)
from skipstone.parquet.evidence import BoundLeaf, find_leaf, page_facts
from skipstone.parquet.pageindex import BadPageIndex, PageIndex, page_index_ranges, parse_page_index
from skipstone.prune.blooms import Blooms, Probe, absent_by_dictionary, stored_values, useful_units
from skipstone.prune.ledger import Blame, Ledger
from skipstone.prune.survey import ColumnPages, Fetch, Need, PageFacts, Path, PruneOptions, Segments, Survey
from skipstone.report.trace import Cause, Level
from skipstone.store.cache import Cache
from skipstone.store.source import ByteRange, drive

# Attribute access of enumerations is slow.
_NONE, _SOME, _ALL = int(Verdict.NONE), int(Verdict.SOME), int(Verdict.ALL)
# Approximate bytes of a parsed page index per page, including strings and facts.
_PAGE_WEIGHT = 300


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """Result of a cascade: per file with kept rows, the rows that may match and those that certainly do."""

    verdicts: Array | None
    """Verdict per row group before pages were judged; None if pages were judged first."""
    rows: Mapping[int, RowSet]
    proven: Mapping[int, RowSet]

    def followed_by(self, other: Outcome, files: int) -> Outcome:
        """The outcome for these ``files`` and those of another survey, numbered after them."""
        rows, proven = (
            {**mine, **{files + file: rows for file, rows in others.items()}}
            for mine, others in ((self.rows, other.rows), (self.proven, other.proven))
        )
        return Outcome(None, rows, proven)


@dataclass(frozen=True, slots=True, eq=False)
class LevelRecord:
    """The units, judgement and evidence of one level."""

    name: str
    cause: Cause
    units: Array
    """The judged row groups; at the page level, the row group of each segment."""
    judgement: Judgement
    evidence: Evidence
    cleared: Mapping[int, Array]
    """Per leaf, the units ruled out by filters or dictionaries."""
    segments: Segments | None = None
    """Row ranges, at the page level."""
    pages: Mapping[Path, Mapping[int, PageFacts]] = field(default_factory=dict)
    """Page indexes that were read, by column and row group."""
    silent: Sequence[tuple[int, Leaf]] = ()
    """Row groups and leaves whose filter was read and is positive."""


T = TypeVar("T")
Steps = Generator[Need, list[Any], Outcome]


@dataclass(slots=True)
class Cascade:
    """One run over a survey."""

    node: Node
    options: PruneOptions
    survey: Survey
    ledger: Ledger
    readable: bool = True
    """Whether bytes of the files can be read; otherwise only their footers are available."""
    by_file: bool = False
    """Whether to record a level for files."""
    cache: Cache[Any, Any] | None = None
    """Caches page indexes and bloom filters between runs."""
    record: list[LevelRecord] | None = None
    """Receives what each level judged, if set."""
    cleared: dict[int, Array] = field(default_factory=dict)
    """Per leaf, the row groups ruled out by probes."""
    absent_pages: dict[int, Array] = field(default_factory=dict)
    """Per leaf, the numbers of the pages ruled out by probes."""
    pages: dict[Path, dict[int, PageFacts]] = field(default_factory=dict)
    """Page indexes that were read, by column and row group."""

    def steps(self) -> Steps:
        """Run the levels in order."""
        refs = columns_of(self.node)
        evidence = self.survey.evidence(refs)
        judgement = judge(self.node, evidence)
        verdicts = judgement.verdicts()
        blame = cache(lambda: Blame.of(judgement, evidence))
        if self.by_file:
            self._files(verdicts, blame)
        self.ledger.level("row groups", verdicts, self.survey.rows, lambda: blame().drops())
        if self.record is not None:
            every = np.arange(len(verdicts))
            self.record.append(LevelRecord("row groups", Cause.BOUNDS, every, judgement, evidence, {}))
        if self.options.bloom_filter:
            verdicts = yield from self._blooms(evidence, verdicts)
        if self.options.dictionary:
            verdicts = yield from self._dictionaries(evidence, verdicts)
        return (yield from self._pages(evidence, refs, verdicts))

    def from_pages(self) -> Outcome | None:
        """Run with all pages and filters in memory, deepest level first; None if they are not."""
        outcome = self.at_once(columns_of(self.node))
        if outcome is not None:
            self.ledger.defer(self.levels, free=self.survey.near)
        return outcome

    def at_once(self, refs: tuple[ColumnRef, ...]) -> Outcome | None:
        """Judge all pages of the survey if they and their filters are in memory; else None.

        ``refs`` are the predicate's columns.
        """
        options = self.options
        if not options.page_index or options.dictionary or options.bloom_provider is not None:
            return None
        table = self.survey.table(refs)
        if table is None or (options.bloom_filter and not table.filtered):
            return None
        return self._deepest(table)

    def levels(self) -> tuple[Level, ...]:
        """The levels of a run that began with pages: the predicate is judged again, level by level."""
        again = replace(self, ledger=Ledger(lambda: (0, 0)), cleared={}, absent_pages={})
        drive(again.steps(), _nothing_to_read)
        return again.ledger.levels()

    def _deepest(self, table: Segments) -> Outcome:
        """Judge all pages, then probe the filters of undecided ones.

        Pages rule out everything that their row group's facts do, so no more is kept than level by level.
        """
        survey = self.survey
        verdicts = judge(self.node, table.evidence).verdicts()
        left = (verdicts == _SOME).nonzero()[0]
        if len(left) and self.options.bloom_filter:
            units = table.units[left]
            pages = {path: numbers[left] for path, numbers in table.numbers.items()}
            absent, _ = survey.absent(self.node, units, self.options.max_bloom_keys, pages)
            if absent.groups or absent.pages:
                cleared = _cleared(self.node, absent.groups, absent.pages, units, pages)
                if isinstance(self.node, Leaf) and id(self.node) in cleared:
                    verdicts[left[cleared[id(self.node)]]] = _NONE
                else:
                    verdicts[left] = judge(self.node, table.evidence.take(left), cleared).verdicts()
        chosen = verdicts.nonzero()[0]
        owners = survey.owners[table.units[chosen]]
        rows = survey.row_sets(owners, table.starts[chosen], table.stops[chosen])
        whole = verdicts[chosen] == _ALL
        if not whole.any():
            return Outcome(None, rows, {})
        chosen = chosen[whole]
        return Outcome(None, rows, survey.row_sets(owners[whole], table.starts[chosen], table.stops[chosen]))

    def _files(self, verdicts: Array, blame: Callable[[], Blame]) -> None:
        """Record files: kept if any row group is; a dropped one has the cause of its first row group."""
        survey = self.survey
        if survey.count == len(survey) and (survey.firsts[1:] > survey.firsts[:-1]).all():
            # Every file is one row group.
            self.ledger.level("files", verdicts, survey.totals, lambda: blame().drops())
            return
        count = survey.count
        groups = np.diff(survey.firsts)
        kept = np.bincount(survey.owners[verdicts != Verdict.NONE], minlength=count)
        whole = np.bincount(survey.owners[verdicts == Verdict.ALL], minlength=count)
        by_file = (kept > 0).astype(np.int8) + ((whole == groups) & (groups > 0))
        first = survey.firsts[:-1][(kept == 0) & (groups > 0)]
        self.ledger.level("files", by_file, survey.totals, lambda: blame().drops(first))

    # -- bloom filters and dictionaries ------------------------------------------------------

    def _blooms(self, evidence: Evidence, verdicts: Array) -> Generator[Need, list[Any], Array]:
        provided = self.options.bloom_provider is not None
        if not (verdicts == Verdict.SOME).any() or not self._can_read("bloom filters", provided):
            return verdicts
        blooms = Blooms(self.survey, self.node, self.options, self._unusable, self.cache)
        absent = yield from blooms.absent(evidence, verdicts)
        self.absent_pages = absent.pages
        if not absent.groups and not (blooms.silent and self.record is not None):
            return verdicts
        self.cleared |= absent.groups
        return self._rejudge("bloom filters", Cause.BLOOM, evidence, verdicts, blooms.silent)

    def _dictionaries(self, evidence: Evidence, verdicts: Array) -> Generator[Need, list[Any], Array]:
        kept = np.flatnonzero(verdicts == Verdict.SOME)
        if not len(kept) or not self._can_read("dictionaries"):
            return verdicts
        wanted = self._wanted_dictionaries(evidence, kept)
        if not wanted:
            return verdicts
        pages = yield [Fetch(int(self.survey.owners[unit]), span) for _, unit, span in wanted]
        for (probe, unit, _), page in zip(wanted, pages, strict=True):
            column, group = probe.bound.leaf, int(self.survey.numbers[unit])
            try:
                chunk = self.survey.file(unit).chunks(column.index)[group]
                values = decode_dictionary(page, chunk, column)
            except BadDictionary as error:
                self._unusable(unit, probe.bound.ref.path, "dictionary", error.reason)
                continue
            absent = self.cleared.setdefault(id(probe.node), np.zeros(len(verdicts), dtype=bool))
            absent[unit] |= absent_by_dictionary(probe, values)
        return self._rejudge("dictionaries", Cause.DICTIONARY, evidence, verdicts)

    def _wanted_dictionaries(self, evidence: Evidence, kept: Array) -> list[tuple[Probe, int, ByteRange]]:
        survey = self.survey
        probes: dict[int, list[Probe]] = {}
        best: dict[int, Array] = {}
        for file in np.unique(survey.owners[kept]).tolist():
            stored = stored_values(self.node, survey.metadata(file))
            probes[file] = [probe for probe in stored if not survey.gives(probe.bound.ref.path)]
            for probe in probes[file]:
                best.setdefault(id(probe.node), np.zeros(len(survey), dtype=bool))[survey.units(file)] = True
        wanted: list[tuple[Probe, int, ByteRange]] = []
        for unit in useful_units(self.node, evidence, kept, best).tolist():
            file, group = survey.file(unit), int(survey.numbers[unit])
            for probe in probes[int(survey.owners[unit])]:
                leaf = probe.bound.leaf.index
                span = dictionary_range(file, group, leaf)
                if span is not None and dictionary_complete(file, group, leaf):
                    wanted.append((probe, unit, span))
        return wanted

    def _rejudge(
        self,
        name: str,
        cause: Cause,
        evidence: Evidence,
        verdicts: Array,
        silent: Sequence[tuple[int, Leaf]] = (),
    ) -> Array:
        """Judge again with the results of probes, counting only units that were not dropped before."""
        units = np.flatnonzero(verdicts != Verdict.NONE)
        cleared = {leaf: absent[units] for leaf, absent in self.cleared.items()}
        if self.record is None and not any(absent.any() for absent in cleared.values()):
            self.ledger.level(name, verdicts[units], self.survey.rows[units])
            return verdicts
        left = evidence.take(units)
        judgement = judge(self.node, left, cleared)
        if self.record is not None:
            self.record.append(
                LevelRecord(name, cause, units, judgement, left, cleared, silent=tuple(silent))
            )
        after = verdicts.copy()
        after[units] = judgement.verdicts()
        self.ledger.level(
            name, after[units], self.survey.rows[units], lambda: Blame.all_by(judgement, cause).drops()
        )
        return after

    # -- pages -------------------------------------------------------------------------------

    def _pages(self, evidence: Evidence, refs: Sequence[ColumnRef], verdicts: Array) -> Steps:
        units = np.flatnonzero(verdicts == Verdict.SOME).tolist()
        segments: Segments | None = None
        if units and self.options.page_index and self._can_read("page index"):
            segments = yield from self._segments(evidence, refs, units)
        survey = self.survey
        whole = np.flatnonzero(verdicts == Verdict.ALL)
        if segments is None:
            kept = np.flatnonzero(verdicts != Verdict.NONE)
            rows = survey.row_sets(survey.owners[kept], survey.starts[kept], survey.stops[kept])
            proven = survey.row_sets(survey.owners[whole], survey.starts[whole], survey.stops[whole])
            return Outcome(verdicts, rows, proven)
        cleared = _cleared(self.node, self.cleared, self.absent_pages, segments.units, segments.numbers)
        judgement = judge(self.node, segments.evidence, cleared)
        pages = judgement.verdicts()
        paged = segments.evidence
        self.ledger.level("pages", pages, paged.rows, lambda: Blame.of(judgement, paged, Cause.PAGE).drops())
        if self.record is not None:
            self.record.append(
                LevelRecord(
                    "pages", Cause.PAGE, segments.units, judgement, paged, cleared, segments, self.pages
                )
            )
        return Outcome(
            verdicts,
            self._row_sets(whole, segments, pages != Verdict.NONE),
            self._row_sets(whole, segments, pages == Verdict.ALL),
        )

    def _segments(
        self, evidence: Evidence, refs: Sequence[ColumnRef], units: Sequence[int]
    ) -> Generator[Need, list[Any], Segments | None]:
        """The pages of row groups as segments; None if there is no page index."""
        every = np.array(units, dtype=np.int64)
        loaded = {ref.path: self.survey.column_pages(every, ref) for ref in refs}
        read = yield from self._page_indexes(units, refs, loaded)
        columns = {}
        for path, pages in loaded.items():
            parts = [] if pages is None else [pages]
            if path in read:
                parts.append(ColumnPages.of(read[path]))
            if parts:
                columns[path] = ColumnPages.concat(parts)
        return Segments.of(self.survey, every, columns, evidence) if columns else None

    def _row_sets(self, whole: Array, segments: Segments, chosen: Array) -> dict[int, RowSet]:
        """Row sets by file of whole row groups and chosen segments."""
        survey = self.survey
        if not len(whole) and not chosen.any():
            return {}
        return survey.row_sets(
            np.concatenate([survey.owners[whole], survey.owners[segments.units[chosen]]]),
            np.concatenate([survey.starts[whole], segments.starts[chosen]]),
            np.concatenate([survey.stops[whole], segments.stops[chosen]]),
        )

    def _page_indexes(
        self, units: Sequence[int], refs: Sequence[ColumnRef], loaded: Mapping[Path, ColumnPages | None]
    ) -> Generator[Need, list[Any], dict[Path, list[tuple[int, PageFacts]]]]:
        """Read the page indexes that are not ``loaded`` in one batch; bad ones are noted and left out."""
        indexed = self.pages
        wanted: list[tuple[int, BoundLeaf]] = []
        fetches: list[Fetch] = []
        for ref in refs:
            if self.survey.gives(ref.path):
                continue
            pages = loaded[ref.path]
            missing = units if pages is None else sorted(set(units) - set(pages.units.tolist()))
            for unit in missing:
                file, group = self.survey.file(unit), int(self.survey.numbers[unit])
                bound = find_leaf(file, ref)
                if bound is None or self.survey.states(unit, ref.path):
                    continue
                cached = self._cached(PageFacts, unit, _named(bound))
                if cached is not None:
                    indexed.setdefault(ref.path, {})[unit] = cached
                    continue
                bad = self._cached(BadPageIndex, unit, _named(bound))
                if bad is not None:
                    self._unusable(unit, bound.ref.path, "page index", bad.reason)
                    continue
                spans = page_index_ranges(file, group, bound.leaf.index)
                if spans[0] is not None and spans[1] is not None:
                    wanted.append((unit, bound))
                    fetches += [Fetch(int(self.survey.owners[unit]), s) for s in spans if s is not None]
        bodies = iter((yield fetches) if fetches else ())
        for unit, bound in wanted:
            facts = self._parse(unit, bound, next(bodies), next(bodies))
            if facts is not None:
                indexed.setdefault(bound.ref.path, {})[unit] = facts
        return {path: sorted(facts.items()) for path, facts in indexed.items()}

    def _cached(self, kind: type[T], unit: int, columns: tuple[Any, ...]) -> T | None:
        if self.cache is None:
            return None
        value: T | None = self.cache.get(self._key(kind, unit, columns))
        return value

    def _key(self, kind: type, unit: int, columns: tuple[Any, ...]) -> tuple[Any, ...]:
        return (kind, self.survey.file(unit).identity, int(self.survey.numbers[unit]), columns)

    def _parse(
        self, unit: int, bound: BoundLeaf, column_index: bytes, offset_index: bytes
    ) -> PageFacts | None:
        file, group = self.survey.file(unit), int(self.survey.numbers[unit])
        try:
            index: PageIndex = parse_page_index(column_index, offset_index, file, group, bound.leaf.index)
        except BadPageIndex as error:
            self._unusable(unit, bound.ref.path, "page index", error.reason)
            if self.cache is not None:
                # A new error, because the traceback of the raised one references decoded data.
                bad = BadPageIndex(error.reason)
                self.cache.put(self._key(BadPageIndex, unit, _named(bound)), bad, _PAGE_WEIGHT)
            return None
        pages = PageFacts(index, page_facts(file, bound, index))
        if self.cache is not None:
            self.cache.put(
                self._key(PageFacts, unit, _named(bound)),
                pages,
                _PAGE_WEIGHT * len(index) + len(column_index),
            )
        return pages

    # -- notes -------------------------------------------------------------------------------

    def _can_read(self, what: str, provided: bool = False) -> bool:
        if not self.readable and not provided:
            self.ledger.notes.add("file", f"{what} not read: only the footer is available")
        return self.readable or provided

    def _unusable(self, unit: int, path: tuple[str, ...], what: str, reason: str) -> None:
        survey = self.survey
        where = f"row group {survey.numbers[unit]}, column {'.'.join(path)}"
        if survey.count > 1:
            where = f"{survey.file(unit).path}, {where}"
        self.ledger.notes.add(where, f"{what} ignored: {reason}")


def _nothing_to_read(need: Need) -> list[Any]:
    raise AssertionError(f"all pages are in memory, but {need} was requested")


def _cleared(
    node: Node,
    groups: Mapping[int, Array],
    pages: Mapping[int, Array],
    units: Array,
    numbers: Mapping[Path, Array],
) -> dict[int, Array]:
    """Per leaf, a mask of the segments in which filters rule it out."""
    cleared = {leaf: absent[units] for leaf, absent in groups.items()}
    paths = {id(leaf): leaf.ref.path for leaf in node.leaves()}
    for leaf, gone in pages.items():
        if paths[leaf] in numbers:
            mine = numbers[paths[leaf]]
            mask = gone[np.minimum(gone.searchsorted(mine), len(gone) - 1)] == mine
            cleared[leaf] = mask | cleared[leaf] if leaf in cleared else mask
    return cleared


def _named(bound: BoundLeaf) -> tuple[Any, ...]:
    return (bound.ref.path, str(bound.ref.type))
