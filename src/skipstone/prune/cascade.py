"""The cascade over one file or many: row groups, then blooms and dictionaries, then pages.

Written without I/O: it is a generator that yields what it needs (byte ranges, bloom filters) and is sent the
answers, so the blocking and the asynchronous driver run the same steps.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

import numpy as np

from skipstone.core.evidence import Array, Evidence
from skipstone.core.ir.nodes import ColumnRef, Node
from skipstone.core.judge import Verdict, judge
from skipstone.core.rows import RowSet
from skipstone.parquet.dictionary import (
    BadDictionary,
    decode_dictionary,
    dictionary_complete,
    dictionary_range,
)
from skipstone.parquet.evidence import BoundLeaf, find_leaf, page_facts
from skipstone.parquet.pageindex import BadPageIndex, PageIndex, page_index_ranges, parse_page_index
from skipstone.prune.blooms import Blooms
from skipstone.prune.ledger import Blame, Ledger
from skipstone.prune.needs import Fetch, Need
from skipstone.prune.options import PruneOptions
from skipstone.prune.pages import Cuts, PageFacts, Path, Segments, spread_pages
from skipstone.prune.probes import Probe, absent_by_dictionary, stored_values, useful_units
from skipstone.prune.survey import Survey
from skipstone.report.trace import Cause
from skipstone.store.cache import Cache
from skipstone.store.ranges import ByteRange

# About what the objects of a page index take per page, strings and facts included.
_PAGE_WEIGHT = 300


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What a cascade kept: per file that has any, the rows that may match and those proven to."""

    verdicts: Array
    """Of each row group of the survey, before its pages were looked at."""
    rows: Mapping[int, RowSet]
    proven: Mapping[int, RowSet]


T = TypeVar("T")
Steps = Generator[Need, list[Any], Outcome]


@dataclass(slots=True)
class Cascade:
    """One run over a survey; ``steps`` is its life."""

    node: Node
    options: PruneOptions
    survey: Survey
    ledger: Ledger
    readable: bool = True
    """Whether bytes of the files can be had, or only their footers are at hand."""
    by_file: bool = False
    """Whether the account has a level for files."""
    cache: Cache[Any, Any] | None = None
    """Keeps page indexes and bloom filters between runs."""
    cleared: dict[int, Array] = field(default_factory=dict)
    """Per leaf, the row groups that probes have ruled out."""
    absent_pages: dict[int, dict[int, Array]] = field(default_factory=dict)
    """The same of pages, by row group."""

    def steps(self) -> Steps:
        """Run the levels in order and return what is kept."""
        refs = list({ref.path: ColumnRef(ref.path, ref.type) for ref in self.node.refs()}.values())
        evidence = self.survey.evidence(refs)
        judgement = judge(self.node, evidence)
        verdicts = judgement.verdicts()
        blame = cache(lambda: Blame.of(judgement, evidence))
        if self.by_file:
            self._files(verdicts, blame)
        self.ledger.level("row groups", verdicts, self.survey.rows, lambda: blame().drops())
        if self.options.bloom_filter:
            verdicts = yield from self._blooms(evidence, verdicts)
        if self.options.dictionary:
            verdicts = yield from self._dictionaries(evidence, verdicts)
        return (yield from self._pages(evidence, refs, verdicts))

    def _files(self, verdicts: Array, blame: Callable[[], Blame]) -> None:
        """A file is kept for its row groups; one that is dropped is so for the reason of its first."""
        survey = self.survey
        if survey.count == len(survey) and (survey.firsts[1:] > survey.firsts[:-1]).all():
            # Every file is one row group.
            self.ledger.level("files", verdicts, survey.totals, lambda: blame().drops())
            return
        count = survey.count
        groups = np.diff(survey.firsts)
        kept = np.bincount(survey.owners[verdicts != Verdict.NONE], minlength=count)
        whole = np.bincount(survey.owners[verdicts == Verdict.ALL], minlength=count)
        found = (kept > 0).astype(np.int8) + ((whole == groups) & (groups > 0))
        first = survey.firsts[:-1][(kept == 0) & (groups > 0)]
        self.ledger.level("files", found, survey.totals, lambda: blame().drops(first))

    # -- bloom filters and dictionaries ------------------------------------------------------

    def _blooms(self, evidence: Evidence, verdicts: Array) -> Generator[Need, list[Any], Array]:
        provided = self.options.bloom_provider is not None
        if not (verdicts == Verdict.SOME).any() or not self._can_read("bloom filters", provided):
            return verdicts
        blooms = Blooms(self.survey, self.node, self.options, self._unusable, self.cache)
        absent = yield from blooms.absent(evidence, verdicts)
        self.absent_pages = absent.pages
        if not absent.groups:
            return verdicts
        self.cleared |= absent.groups
        return self._rejudge("bloom filters", Cause.BLOOM, evidence, verdicts)

    def _dictionaries(self, evidence: Evidence, verdicts: Array) -> Generator[Need, list[Any], Array]:
        kept = np.flatnonzero(verdicts == Verdict.SOME)
        if not len(kept) or not self._can_read("dictionaries"):
            return verdicts
        wanted = self._wanted_dictionaries(evidence, kept)
        if not wanted:
            return verdicts
        pages = yield [Fetch(int(self.survey.owners[unit]), place) for _, unit, place in wanted]
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
            found = stored_values(self.node, survey.metadata(file))
            probes[file] = [probe for probe in found if not survey.gives(probe.bound.ref.path)]
            for probe in probes[file]:
                best.setdefault(id(probe.node), np.zeros(len(survey), dtype=bool))[survey.units(file)] = True
        wanted: list[tuple[Probe, int, ByteRange]] = []
        for unit in useful_units(self.node, evidence, kept, best).tolist():
            file, group = survey.file(unit), int(survey.numbers[unit])
            for probe in probes[int(survey.owners[unit])]:
                leaf = probe.bound.leaf.index
                place = dictionary_range(file, group, leaf)
                if place is not None and dictionary_complete(file, group, leaf):
                    wanted.append((probe, unit, place))
        return wanted

    def _rejudge(self, name: str, cause: Cause, evidence: Evidence, verdicts: Array) -> Array:
        """Judge again with what the probes cleared, counting only units that were still open."""
        units = np.flatnonzero(verdicts != Verdict.NONE)
        cleared = {leaf: absent[units] for leaf, absent in self.cleared.items()}
        if not any(absent.any() for absent in cleared.values()):
            self.ledger.level(name, verdicts[units], self.survey.rows[units])
            return verdicts
        judgement = judge(self.node, evidence.take(units), cleared)
        after = verdicts.copy()
        after[units] = judgement.verdicts()
        self.ledger.level(
            name, after[units], self.survey.rows[units], lambda: Blame.all_by(judgement, cause).drops()
        )
        return after

    # -- pages -------------------------------------------------------------------------------

    def _pages(self, evidence: Evidence, refs: Sequence[ColumnRef], verdicts: Array) -> Steps:
        units = np.flatnonzero(verdicts == Verdict.SOME).tolist()
        found: Segments | None = None
        if units and self.options.page_index and self._can_read("page index"):
            found = yield from self._segments(evidence, refs, units)
        survey = self.survey
        whole = np.flatnonzero(verdicts == Verdict.ALL)
        if found is None:
            kept = np.flatnonzero(verdicts != Verdict.NONE)
            rows = survey.row_sets(survey.owners[kept], survey.starts[kept], survey.stops[kept])
            proven = survey.row_sets(survey.owners[whole], survey.starts[whole], survey.stops[whole])
            return Outcome(verdicts, rows, proven)
        cleared = {leaf: absent[found.units] for leaf, absent in self.cleared.items()}
        for leaf in self.node.leaves():
            deeper = self.absent_pages.get(id(leaf))
            if deeper:
                mask = spread_pages(deeper, leaf.ref.path, found)
                cleared[id(leaf)] = cleared.get(id(leaf), False) | mask
        judgement = judge(self.node, found.evidence, cleared)
        pages = judgement.verdicts()
        paged = found.evidence
        self.ledger.level("pages", pages, paged.rows, lambda: Blame.of(judgement, paged, Cause.PAGE).drops())
        return Outcome(
            verdicts,
            self._joined(whole, found, pages != Verdict.NONE),
            self._joined(whole, found, pages == Verdict.ALL),
        )

    def _segments(
        self, evidence: Evidence, refs: Sequence[ColumnRef], units: Sequence[int]
    ) -> Generator[Need, list[Any], Segments | None]:
        """The pages of the row groups as segments; None where no column of any has a page index."""
        columns = tuple((ref.path, str(ref.type)) for ref in refs)
        parts: dict[int, Cuts | None] = {unit: self._kept(Cuts, unit, columns) for unit in units}
        unknown = [unit for unit, cuts in parts.items() if cuts is None]
        stored = sum(not self.survey.gives(ref.path) for ref in refs)
        indexed = (yield from self._page_indexes(unknown, refs)) if unknown else {}
        if not indexed and len(unknown) == len(units):
            return None
        for unit in unknown:
            mine = {ref.path: pages for ref in refs if (pages := indexed.get((unit, ref.path))) is not None}
            cuts = parts[unit] = Cuts.of(self.survey, unit, mine, evidence)
            # Of a column without its pages, the reason is to be noted again.
            if len(mine) == stored and self.cache is not None:
                weight = _PAGE_WEIGHT * sum(len(pages.index) for pages in mine.values())
                self.cache.put(self._key(Cuts, unit, columns), cuts, weight)
        return Segments.of({unit: cuts for unit, cuts in parts.items() if cuts is not None})

    def _joined(self, whole: Array, found: Segments, chosen: Array) -> dict[int, RowSet]:
        """Whole row groups and the chosen segments, as row sets by file."""
        survey = self.survey
        if not len(whole) and not chosen.any():
            return {}
        return survey.row_sets(
            np.concatenate([survey.owners[whole], survey.owners[found.units[chosen]]]),
            np.concatenate([survey.starts[whole], found.starts[chosen]]),
            np.concatenate([survey.stops[whole], found.stops[chosen]]),
        )

    def _page_indexes(
        self, units: Sequence[int], refs: Sequence[ColumnRef]
    ) -> Generator[Need, list[Any], dict[tuple[int, Path], PageFacts]]:
        """Every wanted page index in one batch; one that can't be trusted is noted and left out."""
        indexed: dict[tuple[int, Path], PageFacts] = {}
        wanted: list[tuple[int, BoundLeaf]] = []
        fetches: list[Fetch] = []
        for unit in units:
            file, group = self.survey.file(unit), int(self.survey.numbers[unit])
            for ref in refs:
                bound = None if self.survey.gives(ref.path) else find_leaf(file, ref)
                if bound is None:
                    continue
                kept = self._kept(PageFacts, unit, _named(bound)) or self.survey.pages(unit, bound.ref)
                if kept is not None:
                    indexed[unit, ref.path] = kept
                    continue
                bad = self._kept(BadPageIndex, unit, _named(bound))
                if bad is not None:
                    self._unusable(unit, bound.ref.path, "page index", bad.reason)
                    continue
                places = page_index_ranges(file, group, bound.leaf.index)
                if places[0] is not None and places[1] is not None:
                    wanted.append((unit, bound))
                    fetches += [Fetch(int(self.survey.owners[unit]), p) for p in places if p is not None]
        bodies = iter((yield fetches) if fetches else ())
        for unit, bound in wanted:
            pages = self._parsed(unit, bound, next(bodies), next(bodies))
            if pages is not None:
                indexed[unit, bound.ref.path] = pages
        return indexed

    def _kept(self, kind: type[T], unit: int, columns: tuple[Any, ...]) -> T | None:
        """What is remembered of columns of a row group."""
        if self.cache is None:
            return None
        found: T | None = self.cache.get(self._key(kind, unit, columns))
        return found

    def _key(self, kind: type, unit: int, columns: tuple[Any, ...]) -> tuple[Any, ...]:
        return (kind, self.survey.file(unit).identity, int(self.survey.numbers[unit]), columns)

    def _parsed(
        self, unit: int, bound: BoundLeaf, column_index: bytes, offset_index: bytes
    ) -> PageFacts | None:
        file, group = self.survey.file(unit), int(self.survey.numbers[unit])
        try:
            index: PageIndex = parse_page_index(column_index, offset_index, file, group, bound.leaf.index)
        except BadPageIndex as error:
            self._unusable(unit, bound.ref.path, "page index", error.reason)
            if self.cache is not None:
                # A new one: that which was raised holds on to all that was decoded.
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

    # -- accounts ----------------------------------------------------------------------------

    def _can_read(self, what: str, provided: bool = False) -> bool:
        if not self.readable and not provided:
            self.ledger.notes.add("file", f"{what} not read: only the footer is at hand")
        return self.readable or provided

    def _unusable(self, unit: int, path: tuple[str, ...], what: str, reason: str) -> None:
        survey = self.survey
        place = f"row group {survey.numbers[unit]}, column {'.'.join(path)}"
        if survey.count > 1:
            place = f"{survey.file(unit).path}, {place}"
        self.ledger.notes.add(place, f"{what} ignored: {reason}")


def _named(bound: BoundLeaf) -> tuple[Any, ...]:
    return (bound.ref.path, str(bound.ref.type))
