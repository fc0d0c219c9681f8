"""The levels of one file judged once more, each unit's verdict with the statistic it rests on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from skipstone.core.evidence import Array, Evidence
from skipstone.core.ir.nodes import Any as Either
from skipstone.core.ir.nodes import ColumnRef, Decided, Leaf, Node
from skipstone.core.judge import Judgement, Verdict, judge
from skipstone.lake.files import Files
from skipstone.parquet.bloom import BadBloom, bloom_range
from skipstone.parquet.evidence import find_leaf, page_facts
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.pageindex import BadPageIndex, page_index_ranges, parse_page_index
from skipstone.prune.cascade import Cascade
from skipstone.prune.ledger import Ledger
from skipstone.prune.needs import ranges_of
from skipstone.prune.options import PruneOptions
from skipstone.prune.pages import PageFacts, Path, Segments, segments
from skipstone.prune.probes import bloom_probes, useful_units
from skipstone.prune.survey import Survey
from skipstone.report.trace import Cause
from skipstone.report.units import span_text
from skipstone.scan.quote import Quoter, looked_for
from skipstone.scan.results import WhyStep
from skipstone.store.place import Listed
from skipstone.store.steps import drive

_Quote = Callable[[Node], str]


@dataclass(slots=True)
class Levels:
    """Row groups, bloom filters, dictionaries and pages of one file, as the cascade takes them."""

    node: Node
    options: PruneOptions
    survey: Survey
    evidence: Evidence
    quoter: Quoter
    files: Files
    entry: Listed
    steps: list[WhyStep] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def judge(
        self, groups: Array, row: int | None, rows: tuple[int, int] | None
    ) -> tuple[bool, tuple[int, int] | None]:
        """Whether rows are left at the end, and the rows of the unit, which a row's page narrows."""
        if not len(groups):
            self.steps.append(WhyStep("row groups", "file", Verdict.NONE, "", "the file has no rows"))
            return False, rows
        evidence = self.evidence
        judgement = judge(self.node, evidence)
        verdicts = judgement.verdicts()
        self.steps += tell(
            "row groups",
            [f"row group {group}" for group in groups],
            judgement.take(groups),
            evidence.take(groups),
            [_quoted(self, group) for group in groups.tolist()],
            Cause.BOUNDS,
        )
        verdicts, cleared = self._probes(groups, verdicts)
        left = bool((verdicts[groups] != Verdict.NONE).any())
        still = [group for group in groups.tolist() if verdicts[group] == Verdict.SOME]
        if still and self.options.page_index:
            found, indexed = self._pages(still)
            if found is not None:
                kept, rows = self._segments(found, indexed, cleared, row, rows)
                left = kept or bool((verdicts[groups] == Verdict.ALL).any())
        return left, rows

    def _probes(self, groups: Array, verdicts: Array) -> tuple[Array, Mapping[int, Array]]:
        """Bloom filters, then dictionaries too, as the cascade consults them."""
        cleared: Mapping[int, Array] = {}
        for name, cause, wanted in (
            ("bloom filters", Cause.BLOOM, self.options.bloom_filter),
            ("dictionaries", Cause.DICTIONARY, self.options.dictionary),
        ):
            if not wanted or not (verdicts[groups] == Verdict.SOME).any():
                continue
            options = replace(
                self.options,
                page_index=False,
                dictionary=self.options.dictionary and cause is Cause.DICTIONARY,
            )
            cascade = Cascade(self.node, options, self.survey, Ledger(lambda: (0, 0)))
            self._drive(cascade)
            after = judge(self.node, self.evidence, cascade.cleared)
            self.notes += [f"{note.unit}: {note.reason}" for note in cascade.ledger.notes.done()]
            blame, found = after.blame(), after.verdicts()
            silent = _consulted(self, groups, verdicts) if cause is Cause.BLOOM else {}
            # A loop over row groups, since each has its own story.
            for group in groups.tolist():
                if verdicts[group] != Verdict.SOME:
                    continue
                if found[group] == Verdict.NONE:
                    node = after.parts[blame[group]][0]
                    gone = [leaf for leaf in node.leaves() if _is_cleared(cascade.cleared, leaf, group)]
                    text = "; ".join(_absent(leaf, cause) for leaf in gone)
                    self.steps.append(
                        WhyStep(name, f"row group {group}", Verdict.NONE, str(node), text, cause)
                    )
                    continue
                asked = silent.get(group, [])
                leaves = [leaf for leaf in asked if not _is_cleared(cascade.cleared, leaf, group)]
                said = "; ".join(f"{_name(f)}: bloom filter can't rule out {looked_for(f)}" for f in leaves)
                if said:
                    condition = " AND ".join(map(str, leaves))
                    self.steps.append(WhyStep(name, f"row group {group}", Verdict.SOME, condition, said))
            verdicts, cleared = found, cascade.cleared
        return verdicts, cleared

    def _drive(self, cascade: Cascade) -> None:
        drive(cascade.steps(), lambda need: self.files.read(self.entry, ranges_of(need)))

    def _pages(self, groups: Sequence[int]) -> tuple[Segments | None, dict[tuple[int, Path], PageFacts]]:
        metadata = self.survey.metadata(0)
        indexed: dict[tuple[int, Path], PageFacts] = {}
        for group in groups:
            for path, facts in self.evidence.columns.items():
                bound = None if self.survey.gives(path) else find_leaf(metadata, ColumnRef(path, facts.type))
                if bound is None:
                    continue
                places = page_index_ranges(metadata, group, bound.leaf.index)
                if places[0] is None or places[1] is None:
                    self.notes.append(f"row group {group}, column {'.'.join(path)}: no page index")
                    continue
                bodies = self.files.read(self.entry, [place for place in places if place is not None])
                try:
                    index = parse_page_index(bodies[0], bodies[1], metadata, group, bound.leaf.index)
                except BadPageIndex as error:
                    where = f"row group {group}, column {'.'.join(path)}"
                    self.notes.append(f"{where}: page index ignored: {error.reason}")
                    continue
                indexed[group, path] = PageFacts(index, page_facts(metadata, bound, index))
        found = segments(self.survey, groups, indexed, self.evidence) if indexed else None
        return found, indexed

    def _segments(
        self,
        found: Segments,
        indexed: Mapping[tuple[int, Path], PageFacts],
        cleared: Mapping[int, Array],
        row: int | None,
        rows: tuple[int, int] | None,
    ) -> tuple[bool, tuple[int, int] | None]:
        """Judge the pages, or the one around a row; whether any is kept, and the rows of the unit."""
        judgement = judge(
            self.node, found.evidence, {leaf: gone[found.units] for leaf, gone in cleared.items()}
        )
        chosen = np.arange(len(found.starts))
        if row is not None:
            chosen = np.flatnonzero((found.starts <= row) & (row < found.stops))
            rows = int(found.starts[chosen[0]]), int(found.stops[chosen[0]])
        quotes: list[_Quote] = []
        for place in chosen.tolist():
            group = int(found.units[place])
            pages = {path: facts for (owner, path), facts in indexed.items() if owner == group}
            inside = int(found.starts[place] - self.survey.starts[group])
            quotes.append(_quoted_pages(self, group, inside, pages))
        self.steps += tell(
            "pages",
            [span_text(int(found.starts[place]), int(found.stops[place])) for place in chosen],
            judgement.take(chosen),
            found.evidence.take(chosen),
            quotes,
            Cause.PAGE,
        )
        return bool(judgement.bits.true[chosen].any()), rows


def tell(
    level: str,
    units: Sequence[str],
    judgement: Judgement,
    evidence: Evidence,
    quotes: Sequence[_Quote],
    cause: Cause,
) -> list[WhyStep]:
    """A step per unit: the condition that dropped it, or those that are still open."""
    verdicts, blame = judgement.verdicts(), judgement.blame()
    steps: list[WhyStep] = []
    # A loop over units: each has its own words.
    for at, (unit, quote) in enumerate(zip(units, quotes, strict=True)):
        verdict = Verdict(int(verdicts[at]))
        if not evidence.rows[at]:
            steps.append(WhyStep(level, unit, verdict, "", "no rows"))
        elif verdict is Verdict.NONE:
            node = judgement.parts[blame[at]][0]
            why = _cause(node, evidence, at, cause)
            steps.append(WhyStep(level, unit, verdict, str(node), quote(node), why))
        else:
            every = [node for node, _ in judgement.parts]
            doubtful = [node for node, bits in judgement.parts if bits.false[at] or bits.null[at]]
            nodes = every if verdict is Verdict.ALL else doubtful or every
            said = "; ".join(dict.fromkeys(map(quote, nodes)))
            steps.append(WhyStep(level, unit, verdict, _joined(nodes), said))
    return steps


def _quoted(levels: Levels, group: int) -> _Quote:
    return lambda node: levels.quoter.row_group(node, levels.evidence, group)


def _quoted_pages(levels: Levels, group: int, inside: int, pages: Mapping[Path, PageFacts]) -> _Quote:
    return lambda node: levels.quoter.segment(node, levels.evidence, group, inside, pages)


def _cause(node: Node, evidence: Evidence, at: int, cause: Cause) -> Cause:
    """As the account of a plan has it: nulls where a unit holds nothing else."""
    if isinstance(node, Decided):
        return Cause.CONSTANT
    if isinstance(node, Leaf) and cause is not Cause.PARTITION:
        facts = evidence.facts(node.ref)
        if not facts.may_value[at] or node.true.spans.is_empty:
            return Cause.NULLS
    return cause


def _joined(nodes: Sequence[Node]) -> str:
    return " AND ".join(f"({n})" if isinstance(n, Either) and len(nodes) > 1 else str(n) for n in nodes)


def _consulted(levels: Levels, groups: Array, verdicts: Array) -> dict[int, list[Leaf]]:
    """The conditions that were looked up in a bloom filter of each row group."""
    metadata = levels.survey.metadata(0)
    probes = [
        probe
        for probe in bloom_probes(levels.node, metadata, levels.options.max_bloom_keys, {})
        if not levels.survey.gives(probe.bound.ref.path)
    ]
    best = {id(probe.node): np.ones(len(levels.survey), dtype=bool) for probe in probes}
    still = groups[verdicts[groups] == Verdict.SOME]
    found: dict[int, list[Leaf]] = {}
    for group in useful_units(levels.node, levels.evidence, still, best).tolist():
        leaves = [probe.node for probe in probes if _has_bloom(metadata, group, probe.bound.leaf.index)]
        if leaves:
            found[group] = leaves
    return found


def _has_bloom(metadata: ParquetMetadata, group: int, leaf: int) -> bool:
    try:
        return bloom_range(metadata, group, leaf) is not None
    except BadBloom:
        return False


def _is_cleared(cleared: Mapping[int, Array], leaf: Leaf, group: int) -> bool:
    return id(leaf) in cleared and bool(cleared[id(leaf)][group])


def _absent(leaf: Leaf, cause: Cause) -> str:
    if cause is Cause.BLOOM:
        are = "are" if len(leaf.true.spans) > 1 else "is"
        return f"{_name(leaf)}: bloom filter says {looked_for(leaf)} {are} absent"
    return f"{_name(leaf)}: no value of the dictionary satisfies it"


def _name(leaf: Leaf) -> str:
    return ".".join(leaf.ref.path)
