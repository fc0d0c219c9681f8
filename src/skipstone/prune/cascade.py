"""The cascade over one file: row groups, then blooms and dictionaries, then pages.

Written without I/O: it is a generator that yields what it needs (byte ranges, bloom filters) and is sent the
answers, so the blocking and the asynchronous driver run the same steps.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from skipstone.evidence import Array, Evidence
from skipstone.ir.nodes import ColumnRef, Compiled, Decided, Leaf, Node
from skipstone.judge import Judgement, Verdict, judge
from skipstone.parquet.bloom import BadBloom, BloomFilter, bloom_length, bloom_range, parse_bloom
from skipstone.parquet.dictionary import (
    BadDictionary,
    decode_dictionary,
    dictionary_complete,
    dictionary_range,
)
from skipstone.parquet.evidence import BoundLeaf, find_leaf, row_group_evidence
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.pageindex import BadPageIndex, PageIndex, page_index_ranges, parse_page_index
from skipstone.prune.options import BloomRequest, PruneOptions
from skipstone.prune.pages import Segments, segments
from skipstone.prune.probes import (
    Probe,
    absent_by_bloom,
    absent_by_dictionary,
    bloom_probes,
    stored_values,
    useful_units,
)
from skipstone.prune.result import PruneResult
from skipstone.rows import RowSet
from skipstone.store.ranges import ByteRange
from skipstone.trace import Cause, Drop, Level, Notes, Trace

Need = list[ByteRange] | list[BloomRequest]
Steps = Generator[Need, list[Any], PruneResult]
Cost = Callable[[], tuple[int, int]]


@dataclass(slots=True)
class Cascade:
    """One run over one file; ``steps`` is its life."""

    compiled: Compiled
    options: PruneOptions
    metadata: ParquetMetadata
    predicate: str
    cost: Cost
    readable: bool
    """Whether bytes of the file can be had, or only its footer is at hand."""
    levels: list[Level] = field(default_factory=list)
    notes: Notes = field(default_factory=Notes)
    cleared: dict[int, Array] = field(default_factory=dict)
    _spent: tuple[int, int] = (0, 0)

    @property
    def node(self) -> Node:
        """The IR that is judged."""
        return self.compiled.node

    def steps(self) -> Steps:
        """Run the levels in order and return the result."""
        refs = list({ref.path: ColumnRef(ref.path, ref.type) for ref in self.node.refs()}.values())
        evidence = row_group_evidence(self.metadata, refs)
        judgement = judge(self.node, evidence)
        verdicts = judgement.verdicts()
        rows = self.metadata.row_group_rows
        self._level("row groups", verdicts, rows, _drops(judgement, evidence))
        if self.options.bloom_filter:
            verdicts = yield from self._blooms(evidence, verdicts)
        if self.options.dictionary:
            verdicts = yield from self._dictionaries(evidence, verdicts)
        return (yield from self._pages(evidence, refs, verdicts))

    # -- bloom filters -----------------------------------------------------------------------

    def _blooms(self, evidence: Evidence, verdicts: Array) -> Generator[Need, list[Any], Array]:
        kept = verdicts == Verdict.SOME
        if not kept.any() or not self._can_read("bloom filters", self.options.bloom_provider is not None):
            return verdicts
        probes = bloom_probes(self.node, self.metadata, self.options.max_bloom_keys)
        units = useful_units(self.node, evidence, kept, probes)
        wanted = [
            (probe, BloomRequest(self.metadata.path, int(unit), probe.bound.ref.path, probe.bound.leaf.index))
            for probe in probes
            for unit in units
        ]
        filters = yield from self._load([request for _, request in wanted])
        if not any(f is not None for f in filters):
            return verdicts
        for probe in probes:
            mine = [number for number, (owner, _) in enumerate(wanted) if owner is probe]
            assert probe.hashes is not None
            absent = np.zeros(len(verdicts), dtype=bool)
            absent[units] = absent_by_bloom(probe.hashes, [filters[number] for number in mine])
            self.cleared[id(probe.node)] = absent
        return self._rejudge("bloom filters", Cause.BLOOM, evidence, verdicts)

    def _load(self, wanted: list[BloomRequest]) -> Generator[Need, list[Any], list[BloomFilter | None]]:
        if not wanted:
            return []
        if self.options.bloom_provider is not None:
            return (yield wanted)
        places: list[ByteRange | None] = []
        for request in wanted:
            try:
                places.append(bloom_range(self.metadata, request.row_group, request.leaf))
            except BadBloom as error:
                places.append(None)
                self._ignored(request.row_group, request.column, "bloom filter", error.reason)
        known = [place for place in places if place is not None]
        bodies = iter((yield known) if known else [])
        filters: list[BloomFilter | None] = []
        for request, place in zip(wanted, places, strict=True):
            if place is None:
                filters.append(None)
                continue
            try:
                filters.append((yield from self._parse_bloom(place, next(bodies))))
            except BadBloom as error:
                filters.append(None)
                self._ignored(request.row_group, request.column, "bloom filter", error.reason)
        return filters

    def _parse_bloom(self, place: ByteRange, body: bytes) -> Generator[Need, list[Any], BloomFilter]:
        length = bloom_length(body)
        if length > len(body):  # the writer left the length out and the first piece was too short
            stop = place.start + length
            if self.metadata.size is not None and stop > self.metadata.size:
                raise BadBloom("the filter ends outside the file")
            (body,) = yield [ByteRange(place.start, stop)]
        return parse_bloom(body)

    # -- dictionaries ------------------------------------------------------------------------

    def _dictionaries(self, evidence: Evidence, verdicts: Array) -> Generator[Need, list[Any], Array]:
        kept = verdicts == Verdict.SOME
        if not kept.any() or not self._can_read("dictionaries"):
            return verdicts
        probes = stored_values(self.node, self.metadata)
        units = useful_units(self.node, evidence, kept, probes)
        wanted: list[tuple[Probe, int, ByteRange]] = []
        for probe in probes:
            leaf = probe.bound.leaf.index
            for unit in units.tolist():
                place = dictionary_range(self.metadata, unit, leaf)
                if place is not None and dictionary_complete(self.metadata, unit, leaf):
                    wanted.append((probe, unit, place))
        if not wanted:
            return verdicts
        pages = yield [place for _, _, place in wanted]
        for (probe, unit, _), page in zip(wanted, pages, strict=True):
            leaf_column = probe.bound.leaf
            try:
                values = decode_dictionary(page, self.metadata.chunks(leaf_column.index)[unit], leaf_column)
            except BadDictionary as error:
                self._ignored(unit, probe.bound.ref.path, "dictionary", error.reason)
                continue
            absent = self.cleared.setdefault(id(probe.node), np.zeros(len(verdicts), dtype=bool))
            absent[unit] |= absent_by_dictionary(probe, values)
        return self._rejudge("dictionaries", Cause.DICTIONARY, evidence, verdicts)

    def _rejudge(self, name: str, cause: Cause, evidence: Evidence, verdicts: Array) -> Array:
        """Judge again with what the probes cleared, counting only units that were still open."""
        units = np.flatnonzero(verdicts != Verdict.NONE)
        cleared = {leaf: absent[units] for leaf, absent in self.cleared.items()}
        judgement = judge(self.node, evidence.take(units), cleared)
        after = verdicts.copy()
        after[units] = judgement.verdicts()
        drops = _count(judgement, lambda _node, _units: {cause: _units})
        self._level(name, after[units], self.metadata.row_group_rows[units], drops)
        return after

    # -- pages -------------------------------------------------------------------------------

    def _pages(self, evidence: Evidence, refs: Sequence[ColumnRef], verdicts: Array) -> Steps:
        groups = np.flatnonzero(verdicts == Verdict.SOME).tolist()
        found: Segments | None = None
        if groups and self.options.page_index and self._can_read("page index"):
            bound = {ref.path: leaf for ref in refs if (leaf := find_leaf(self.metadata, ref)) is not None}
            indexes = yield from self._page_indexes(groups, bound)
            if indexes:
                found = segments(self.metadata, groups, bound, indexes, evidence)
        starts = self.metadata.row_group_starts
        stops = starts + self.metadata.row_group_rows
        total = self.metadata.num_rows
        whole = RowSet.from_ranges(total, *_pick(starts, stops, verdicts == Verdict.ALL))
        if found is None:
            rows = RowSet.from_ranges(total, *_pick(starts, stops, verdicts != Verdict.NONE))
        else:
            spread = {leaf: absent[found.groups] for leaf, absent in self.cleared.items()}
            judgement = judge(self.node, found.evidence, spread)
            pages = judgement.verdicts()
            self._level(
                "pages", pages, found.stops - found.starts, _drops(judgement, found.evidence, Cause.PAGE)
            )
            rows = whole | RowSet.from_ranges(total, *_pick(found.starts, found.stops, pages != Verdict.NONE))
            whole |= RowSet.from_ranges(total, *_pick(found.starts, found.stops, pages == Verdict.ALL))
        return self._result(rows, whole, verdicts)

    def _page_indexes(
        self, groups: Sequence[int], bound: dict[tuple[str, ...], BoundLeaf]
    ) -> Generator[Need, list[Any], dict[tuple[int, tuple[str, ...]], PageIndex]]:
        """Every wanted page index in one batch; one that can't be trusted is noted and left out."""
        places = {
            (group, path): page_index_ranges(self.metadata, group, leaf.leaf.index)
            for group in groups
            for path, leaf in bound.items()
        }
        usable = {key: pair for key, pair in places.items() if pair[0] is not None and pair[1] is not None}
        if not usable:
            return {}
        bodies = iter((yield [place for pair in usable.values() for place in pair if place is not None]))
        indexes = {}
        for group, path in usable:
            column_index, offset_index = next(bodies), next(bodies)
            try:
                indexes[group, path] = parse_page_index(
                    column_index, offset_index, self.metadata, group, bound[path].leaf.index
                )
            except BadPageIndex as error:
                self._ignored(group, path, "page index", error.reason)
        return indexes

    # -- accounts ----------------------------------------------------------------------------

    def _can_read(self, what: str, provided: bool = False) -> bool:
        if not self.readable and not provided:
            self.notes.add("file", f"{what} not read: only the footer is at hand")
        return self.readable or provided

    def _ignored(self, group: int, path: tuple[str, ...], what: str, reason: str) -> None:
        self.notes.add(f"row group {group}, column {'.'.join(path)}", f"{what} ignored: {reason}")

    def _level(self, name: str, verdicts: Array, rows: Array, drops: tuple[Drop, ...]) -> None:
        kept = verdicts != Verdict.NONE
        spent = self.cost()
        self.levels.append(
            Level(
                name,
                units=len(verdicts),
                kept=int(kept.sum()),
                whole=int((verdicts == Verdict.ALL).sum()),
                rows=int(rows[kept].sum()),
                drops=drops,
                requests=spent[0] - self._spent[0],
                bytes=spent[1] - self._spent[1],
            )
        )
        self._spent = spent

    def _result(self, rows: RowSet, proven: RowSet, verdicts: Array) -> PruneResult:
        trace = Trace(
            path=self.metadata.path,
            predicate=self.predicate,
            rows=self.metadata.num_rows,
            rows_kept=len(rows),
            rows_whole=len(proven),
            levels=tuple(self.levels),
            notes=self.notes.done(),
            unsupported=tuple(str(d) for d in self.compiled.unsupported),
        )
        bitmap = rows.to_bitmap() if self.options.emit_roaring else None
        return PruneResult(rows, proven, verdicts, self.compiled, trace, self.metadata, bitmap)


def _pick(starts: Array, stops: Array, chosen: Array) -> tuple[Array, Array]:
    return starts[chosen], stops[chosen]


def _drops(judgement: Judgement, evidence: Evidence, cause: Cause = Cause.BOUNDS) -> tuple[Drop, ...]:
    """Dropped units by cause and condition: nulls where a unit holds nothing else, else bounds."""

    def causes(node: Node, units: Array) -> dict[Cause, Array]:
        if isinstance(node, Decided):
            return {Cause.CONSTANT: units}
        if not isinstance(node, Leaf):
            return {cause: units}
        facts = evidence.facts(node.ref)
        nulls = ~facts.may_value[units] | (facts.may_value[units] & node.true.spans.is_empty)
        return {Cause.NULLS: units[nulls], cause: units[~nulls]}

    return _count(judgement, causes)


def _count(judgement: Judgement, causes: Callable[[Node, Array], dict[Cause, Array]]) -> tuple[Drop, ...]:
    blame = judgement.blame()
    drops = []
    for number, (node, _) in enumerate(judgement.parts):
        units = np.flatnonzero(blame == number)
        drops += [
            Drop(cause, str(node), len(some)) for cause, some in causes(node, units).items() if len(some)
        ]
    return tuple(drops)
