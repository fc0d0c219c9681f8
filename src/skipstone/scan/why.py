"""Why a plan keeps or drops a unit: the cascade run on one file, its record told in words.

The plan's own word stands at the end; statistics are quoted from the file's footer.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from os import PathLike, fsdecode
from pathlib import Path as LocalPath

import numpy as np
import pyarrow as pa

from skipstone.core.domain.keys import Key, format_key, is_ordered, storage_type
from skipstone.core.evidence import Array, Bounds, ColumnFacts, Evidence, FactOverride
from skipstone.core.ir import compile_predicate
from skipstone.core.ir.nodes import ColumnRef, ConstantNode, Leaf, Node
from skipstone.core.ir.nodes import OrNode as Either
from skipstone.core.judge import Judgement, Verdict, judge
from skipstone.errors import UsageError
from skipstone.lake.directory import is_visible
from skipstone.lake.partitions import Partitions, read_partitions
from skipstone.parquet.evidence import bounds_trusted, find_leaf, legacy_bounds_trusted
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.pageindex import page_index_ranges
from skipstone.parquet.schema import LeafColumn, PhysicalType
from skipstone.parquet.structs import Statistics
from skipstone.prune.cascade import Cascade, LevelRecord
from skipstone.prune.ledger import Ledger
from skipstone.prune.survey import PageFacts, Survey, ranges_of
from skipstone.report.lines import shorten
from skipstone.report.trace import Cause
from skipstone.report.units import plural, span_text
from skipstone.scan.plan import ScanPlan, Task
from skipstone.scan.projection import Path
from skipstone.scan.results import Why, WhyStep
from skipstone.scan.statistics import known_bounds, null_counts
from skipstone.store.absolute import AbsoluteStore
from skipstone.store.source import drive
from skipstone.store.store import ListedFile

__all__ = ["Why", "WhyStep", "explain_why"]

_MOST_NAMES = 3
_LONGEST_VALUE = 40
_MOST_VALUES = 3
_Quote = Callable[[Node], str]


def explain_why(plan: ScanPlan, path: str, row_group: int | None = None, row: int | None = None) -> Why:
    """Why the plan keeps or drops a file, a row group of it, or the page around one of its rows."""
    entry = _find(plan, path)
    task = next((task for task in plan.tasks if task.entry == entry), None)
    return _Inquiry(plan, entry, task).answer(row_group, row)


# -- which file --------------------------------------------------------------------------------


def _find(plan: ScanPlan, name: str) -> ListedFile:
    """The file of this key, path or ending; files that the plan dropped are found in the listing."""
    if not isinstance(name, str | PathLike):
        raise UsageError(f"can't find a file by {name!r}", hint="give its path")
    name = fsdecode(name)
    store = plan.files.store
    entries = {task.entry.key: task.entry for task in plan.tasks}

    def exact() -> ListedFile | None:
        same = {name, str(LocalPath(name).absolute())} if store.local else {name}
        return next((e for key, e in entries.items() if key == name or store.path(key) in same), None)

    found = exact()
    if found is not None:
        return found
    scattered = isinstance(store, AbsoluteStore)
    if not scattered:
        entries = {entry.key: entry for entry in store.list() if is_visible(entry)} | entries
    found = exact()
    if found is not None:
        return found
    ends = [key for key in entries if f"/{store.path(key)}".endswith(f"/{name}")]
    ends = ends or [key for key in entries if name and key.endswith(name)]
    if len(ends) == 1:
        return entries[ends[0]]
    if ends:
        more = f", … {len(ends) - _MOST_NAMES} more" if len(ends) > _MOST_NAMES else ""
        raise UsageError(
            f"{name!r} is the end of {len(ends)} files' names: {', '.join(ends[:_MOST_NAMES])}{more}",
            path=plan.lake,
            hint="give more of the path",
        )
    if scattered:
        # A table's files are not listed: one that the plan dropped is known by its full name.
        return ListedFile(name, store.open(name).size(), None)
    near = difflib.get_close_matches(name, entries, n=_MOST_NAMES, cutoff=0.5)
    raise UsageError(
        f"there is no file {name!r} in the lake now",
        path=plan.lake,
        hint=f"did you mean {', '.join(near)}?" if near else "give a path relative to the lake's root",
    )


# -- one file, judged again --------------------------------------------------------------------


@dataclass(slots=True)
class _Inquiry:
    plan: ScanPlan
    entry: ListedFile
    task: Task | None
    steps: list[WhyStep] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def answer(self, row_group: int | None, row: int | None) -> Why:
        plan = self.plan
        judged = plan.predicate is not None and plan.options.skipping
        known = row_group is not None or row is not None or self.task is not None or not judged
        # Where the directory rules a file out its footer need not be opened.
        metadata = plan.files.footer(self.entry) if known else None
        group = None if metadata is None else _group(metadata, row_group, row)
        unit = "file" if group is None else f"row group {group}"
        rows = None if metadata is None else _span(metadata, group)
        open_rows = rows is not None and rows[0] < rows[1]
        if plan.predicate is None:
            self.steps.append(
                WhyStep("question", unit, Verdict.ALL, "", "no predicate: every row is asked for")
            )
        elif not plan.options.skipping:
            text = "skipping is off: every row is read and tested"
            self.steps.append(WhyStep("question", unit, Verdict.SOME, str(plan.predicate), text))
        else:
            compiled = compile_predicate(
                plan.predicate, plan.schemas.query, case_sensitive=plan.options.case_sensitive
            )
            partitions = self._partitions()
            quoter = Quoter(metadata, _partition_texts(partitions))
            open_rows = self._directory(compiled.node, partitions, quoter)
            if open_rows:
                metadata = metadata or plan.files.footer(self.entry)
                rows = rows or _span(metadata, group)
                survey = Survey.of([metadata], _partition_facts(partitions))
                groups = np.arange(len(survey)) if group is None else np.array([group])
                quoter = replace(quoter, metadata=metadata)
                open_rows, rows = self._levels(compiled.node, survey, quoter, groups, row, rows)
        if row is not None and rows is not None:
            unit = f"{unit}, {span_text(*rows)}"
        verdict = self._verdict(rows)
        self._compare(verdict, open_rows)
        path = plan.files.path(self.entry)
        notes = tuple(dict.fromkeys(self.notes))
        steps = tuple(self.steps)
        return Why(path, unit, rows, plan.trace.predicate, verdict, steps, not open_rows, notes)

    def _verdict(self, rows: tuple[int, int] | None) -> Verdict:
        """What the plan does with the unit, whatever the reasons."""
        if self.task is None or rows is None or not self.task.rows.count(*rows):
            return Verdict.NONE
        return Verdict.ALL if self.task.proven.count(*rows) == rows[1] - rows[0] else Verdict.SOME

    def _compare(self, verdict: Verdict, open_rows: bool) -> None:
        """Say why the plan differs from what its predicate leads to for this file alone."""
        kept = verdict is not Verdict.NONE
        if open_rows is kept:
            return
        if kept:
            self.notes.append("the plan joins others, and keeps what one of them kept")
        elif self.plan.limit is not None:
            self.notes.append(
                f"rows may match here, but the limit of {self.plan.limit:,} is met by other rows"
            )
        elif self.task is None:
            self.notes.append(
                "rows may match here, but the plan doesn't have the file: it came or changed later, the lake "
                "was opened by a pattern that leaves it out, or the plan joins others"
            )
        else:
            self.notes.append("rows may match here, but the plan joins others that dropped them")

    # -- partitions --------------------------------------------------------------------------

    def _partitions(self) -> Partitions:
        plan = self.plan
        names = plan.schemas.partition if self.task is None else tuple(self.task.partition)
        schema = pa.schema([plan.schemas.query.field(name) for name in names])
        if self.task is not None:
            given = [self.task.partition[name] for name in schema.names]
            return Partitions(schema, tuple(pa.array([value], value.type) for value in given), 1)
        return read_partitions([self.entry.key], schema=schema, uri=plan.lake)

    def _directory(self, node: Node, partitions: Partitions, quoter: Quoter) -> bool:
        if not len(partitions.schema):
            return True
        evidence = partitions.evidence()
        judgement = judge(node, evidence)
        parts = [
            part for part in judgement.parts if {r.path for r in part[0].refs()} & quoter.partition.keys()
        ]
        if not parts and judgement.bits.true[0]:
            return True  # directories have no say in it
        told = Judgement(judgement.bits, tuple(parts)) if judgement.bits.true[0] else judgement
        self.steps += tell("partitions", ["file"], told, evidence, [quoter.partitions], Cause.PARTITION)
        return bool(judgement.bits.true[0])

    # -- row groups and pages ----------------------------------------------------------------

    def _levels(
        self,
        node: Node,
        survey: Survey,
        quoter: Quoter,
        groups: Array,
        row: int | None,
        rows: tuple[int, int] | None,
    ) -> tuple[bool, tuple[int, int] | None]:
        """Whether rows are left at the end, and the rows of the unit, which a row's page narrows."""
        if not len(groups):
            self.steps.append(WhyStep("row groups", "file", Verdict.NONE, "", "the file has no rows"))
            return False, rows
        record: list[LevelRecord] = []
        cascade = Cascade(node, self.plan.options.prune, survey, Ledger(lambda: (0, 0)), record=record)
        drive(cascade.steps(), lambda need: self.plan.files.read(self.entry, ranges_of(need)))
        first, *others = record
        evidence = first.evidence
        verdicts = first.judgement.verdicts()
        self.steps += tell(
            "row groups",
            [f"row group {group}" for group in groups],
            first.judgement.take(groups),
            evidence.take(groups),
            [partial(quoter.row_group, evidence, group) for group in groups.tolist()],
            Cause.BOUNDS,
        )
        paged = next((level for level in others if level.segments is not None), None)
        for level in others:
            if level is not paged:
                self._probes(level, groups, verdicts)
                verdicts[level.units] = level.judgement.verdicts()
        left = bool((verdicts[groups] != Verdict.NONE).any())
        still = groups[verdicts[groups] == Verdict.SOME]
        self._note(cascade, survey, still, evidence)
        if paged is not None and len(still):
            kept, rows = self._pages(paged, survey, evidence, quoter, still, row, rows)
            left = kept or bool((verdicts[groups] == Verdict.ALL).any())
        return left, rows

    def _note(self, cascade: Cascade, survey: Survey, still: Array, evidence: Evidence) -> None:
        """What the cascade could not use, and page indexes that it would have liked to have."""
        self.notes += [f"{note.unit}: {note.reason}" for note in cascade.ledger.notes.done()]
        metadata = survey.metadata(0)
        if not cascade.options.page_index:
            return
        for group in still.tolist():
            for path, facts in evidence.columns.items():
                bound = None if survey.gives(path) else find_leaf(metadata, ColumnRef(path, facts.type))
                if bound is not None and None in page_index_ranges(metadata, group, bound.leaf.index):
                    self.notes.append(f"row group {group}, column {'.'.join(path)}: no page index")

    def _probes(self, level: LevelRecord, groups: Array, before: Array) -> None:
        """What bloom filters or dictionaries said of the row groups that were open ``before``."""
        after, blame = level.judgement.verdicts(), level.judgement.blame()
        # A loop over row groups, since each has its own story.
        for at, group in enumerate(level.units.tolist()):
            if group not in groups or before[group] != Verdict.SOME:
                continue
            unit = f"row group {group}"
            if after[at] == Verdict.NONE:
                node = level.judgement.parts[blame[at]][0]
                gone = [leaf for leaf in node.leaves() if _is_cleared(level.cleared, leaf, at)]
                text = "; ".join(_absent(leaf, level.cause) for leaf in gone)
                self.steps.append(WhyStep(level.name, unit, Verdict.NONE, str(node), text, level.cause))
                continue
            leaves = [leaf for owner, leaf in level.silent if owner == group]
            said = "; ".join(f"{_name(f)}: bloom filter can't rule out {looked_for(f)}" for f in leaves)
            if said:
                condition = " AND ".join(map(str, leaves))
                self.steps.append(WhyStep(level.name, unit, Verdict.SOME, condition, said))

    def _pages(
        self,
        level: LevelRecord,
        survey: Survey,
        evidence: Evidence,
        quoter: Quoter,
        groups: Array,
        row: int | None,
        rows: tuple[int, int] | None,
    ) -> tuple[bool, tuple[int, int] | None]:
        """The pages of row groups, or the one around a row; whether any is kept, and the rows of the unit."""
        found = level.segments
        assert found is not None
        chosen = np.flatnonzero(np.isin(found.units, groups))
        if row is not None:
            chosen = np.flatnonzero((found.starts <= row) & (row < found.stops))
            rows = int(found.starts[chosen[0]]), int(found.stops[chosen[0]])

        def quote_at(place: int) -> _Quote:
            group = int(found.units[place])
            pages = {path: facts[group] for path, facts in level.pages.items() if group in facts}
            inside = int(found.starts[place] - survey.starts[group])
            return partial(quoter.segment, evidence, group, inside, pages)

        self.steps += tell(
            "pages",
            [span_text(int(found.starts[place]), int(found.stops[place])) for place in chosen],
            level.judgement.take(chosen),
            level.evidence.take(chosen),
            [quote_at(place) for place in chosen.tolist()],
            Cause.PAGE,
        )
        return bool(level.judgement.bits.true[chosen].any()), rows


def _group(metadata: ParquetMetadata, row_group: int | None, row: int | None) -> int | None:
    for number in (row_group, row):
        if number is not None and not isinstance(number, int):
            raise UsageError(f"{number!r} is no number", hint="row groups and rows are counted from 0")
    if row_group is not None and not 0 <= row_group < metadata.row_group_count:
        raise UsageError(
            f"there is no row group {row_group}",
            path=metadata.path,
            hint=f"the file has {metadata.row_group_count}, counted from 0",
        )
    if row is None:
        return row_group
    if not 0 <= row < metadata.num_rows:
        raise UsageError(
            f"there is no row {row}",
            path=metadata.path,
            hint=f"the file has {metadata.num_rows}, counted from 0",
        )
    found = int(np.searchsorted(metadata.row_group_starts, row, side="right")) - 1
    if row_group not in (None, found):
        raise UsageError(f"row {row} is in row group {found}, not {row_group}", path=metadata.path)
    return found


def _span(metadata: ParquetMetadata, group: int | None) -> tuple[int, int]:
    if group is None:
        return 0, metadata.num_rows
    start = int(metadata.row_group_starts[group])
    return start, start + int(metadata.row_group_rows[group])


def _partition_facts(partitions: Partitions) -> dict[Path, FactOverride]:
    return {
        (name,): FactOverride(partitions.facts(number)) for number, name in enumerate(partitions.schema.names)
    }


def _partition_texts(partitions: Partitions) -> dict[Path, str]:
    texts: dict[Path, str] = {}
    for (name,), stated in _partition_facts(partitions).items():
        facts = stated.facts
        key = None
        if facts.may_value[0]:
            bound = facts.lower[0]
            key = bound.as_py() if isinstance(bound, pa.Scalar) else bound.item()
        value = "NULL" if facts.may_null[0] else "NaN" if key is None else value_text(facts.type, key)
        texts[name,] = f"{name} = {value} (partition)"
    return texts


# -- words -------------------------------------------------------------------------------------


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


def _cause(node: Node, evidence: Evidence, at: int, cause: Cause) -> Cause:
    """As the account of a plan has it: nulls where a unit holds nothing else."""
    if isinstance(node, ConstantNode):
        return Cause.CONSTANT
    if isinstance(node, Leaf) and cause is not Cause.PARTITION:
        facts = evidence.facts(node.ref)
        if not facts.may_value[at] or node.true.spans.is_empty:
            return Cause.NULLS
    return cause


def _joined(nodes: Sequence[Node]) -> str:
    return " AND ".join(f"({n})" if isinstance(n, Either) and len(nodes) > 1 else str(n) for n in nodes)


def _is_cleared(cleared: Mapping[int, Array], leaf: Leaf, group: int) -> bool:
    return id(leaf) in cleared and bool(cleared[id(leaf)][group])


def _absent(leaf: Leaf, cause: Cause) -> str:
    if cause is Cause.BLOOM:
        are = "are" if len(leaf.true.spans) > 1 else "is"
        return f"{_name(leaf)}: bloom filter says {looked_for(leaf)} {are} absent"
    return f"{_name(leaf)}: no value of the dictionary satisfies it"


def _name(leaf: Leaf) -> str:
    return ".".join(leaf.ref.path)


@dataclass(frozen=True, slots=True)
class Quoter:
    """Quotes one file's metadata; ``partition`` has the values that its directory gives, as text."""

    metadata: ParquetMetadata | None
    partition: Mapping[Path, str]

    def partitions(self, node: Node) -> str:
        """What the directory says about the columns of a condition."""
        texts = [self.partition[path] for path in _paths(node) if path in self.partition]
        rest = [".".join(path) for path in _paths(node) if path not in self.partition]
        if rest:
            texts.append(f"{', '.join(rest)}: not told by directories")
        return "; ".join(texts) or _no_columns(node)

    def row_group(self, evidence: Evidence, group: int, node: Node) -> str:
        """What the footer says about the columns of a condition in a row group."""
        texts = [self._chunk(path, evidence.columns[path], group) for path in _paths(node)]
        return "; ".join(texts) or _no_columns(node)

    def segment(
        self, evidence: Evidence, group: int, row: int, pages: Mapping[Path, PageFacts], node: Node
    ) -> str:
        """What the page index says about the columns of a condition in the pages around a row."""
        texts = [
            self._page(path, pages[path], group, row)
            if path in pages
            else self._chunk(path, evidence.columns[path], group)
            for path in _paths(node)
        ]
        return "; ".join(texts) or _no_columns(node)

    # -- one column --------------------------------------------------------------------------

    def _chunk(self, path: Path, facts: ColumnFacts, group: int) -> str:
        if path in self.partition:
            return self.partition[path]
        metadata = self.metadata
        assert metadata is not None
        name, ref = ".".join(path), ColumnRef(path, facts.type)
        if not any(leaf.path[: len(path)] == path for leaf in metadata.leaves):
            what = "its value comes from the table" if facts.may_value.any() else "so NULL in every row"
            return f"{name}: not in the file, {what}"
        bound = find_leaf(metadata, ref)
        if bound is None:
            kind = (
                "values inside it" if pa.types.is_nested(storage_type(facts.type)) else f"type {facts.type}"
            )
            missing = f"no bounds to compare ({kind})"
            stats = Statistics()
        else:
            missing = _missing(metadata, bound.leaf, group)
            stats = metadata.chunks(bound.leaf.index)[group].statistics or Statistics()
        lower, upper = known_bounds(metadata, ref, facts)
        counts = null_counts(metadata, ref, facts)
        nulls = _nulls(int(counts[group]), stats.null_count)
        said = _said(facts, group, bool(lower[group]), bool(upper[group]), nulls, missing)
        return f"{name}: {said} (row-group statistics)"

    def _page(self, path: Path, pages: PageFacts, group: int, row: int) -> str:
        """``row`` counts within the row group."""
        assert self.metadata is not None
        index, facts = pages.index, pages.facts
        page = int(index.first_rows.searchsorted(row, side="right")) - 1
        start = int(self.metadata.row_group_starts[group] + index.first_rows[page])
        place = f"page {page} ({span_text(start, start + int(index.row_counts[page]))})"
        ref = ColumnRef(path, facts.type)
        lower, upper = known_bounds(self.metadata, ref, facts)
        counted = None if index.null_counts is None else int(index.null_counts[page])
        nulls = _nulls(0 if not facts.may_null[page] else -1 if counted is None else counted, counted)
        missing = "no bounds" if index.has_statistics else "no statistics"
        said = _said(facts, page, bool(lower[page]), bool(upper[page]), nulls, missing)
        return f"{'.'.join(path)}: {said} in {place}"


def _paths(node: Node) -> list[Path]:
    return list(dict.fromkeys(ref.path for ref in node.refs()))


def _no_columns(node: Node) -> str:
    if isinstance(node, ConstantNode):
        return f"it is {node} for every row"
    return "metadata says nothing about it"


def _said(facts: ColumnFacts, unit: int, low: bool, high: bool, nulls: str, missing: str) -> str:
    """Bounds, NULLs and NaN of one unit."""
    if not facts.may_value[unit]:
        held = [name for name, may in (("NULL", facts.may_null), ("NaN", facts.may_nan)) if may[unit]]
        return f"nothing but {' and '.join(held)}" if held else "no values"
    bounds = [
        f"{name} {value_text(facts.type, _key(keys, unit))}"
        for name, keys, known in (("min", facts.lower, low), ("max", facts.upper, high))
        if known and is_ordered(facts.type)
    ]
    return ", ".join([*(bounds or [missing]), nulls, *(["NaN possible"] * bool(facts.may_nan[unit]))])


def _key(bounds: Bounds, unit: int) -> Key:
    found: Key = bounds[unit].as_py() if isinstance(bounds, pa.Array) else bounds[unit].item()
    return found


def _nulls(count: int, stated: int | None) -> str:
    if count >= 0:
        return plural(count, "null")
    return "null count not given" if stated is None else f"null count {stated:,} not trusted"


def value_text(type: pa.DataType, key: Key) -> str:
    """A value as people write it, cut where it is long."""
    if isinstance(key, int) and pa.types.is_integer(storage_type(type)):
        return f"{key:,}"
    return shorten(format_key(type, key), _LONGEST_VALUE)


def looked_for(leaf: Leaf) -> str:
    """The values that a condition asks for, a few of them."""
    keys = leaf.true.spans.points() if len(leaf.true.spans) <= _MOST_VALUES else None
    if keys is None or not len(keys):
        return "every value asked for"
    plain = keys if isinstance(keys, list) else keys.tolist()
    shown = ", ".join(value_text(leaf.ref.type, key) for key in plain[:_MOST_VALUES])
    return shown + (f" and {len(plain) - _MOST_VALUES} more" if len(plain) > _MOST_VALUES else "")


def _missing(metadata: ParquetMetadata, leaf: LeafColumn, group: int) -> str:
    """Why a chunk has no bounds that count."""
    if metadata.is_encrypted(group, leaf.index):
        return "statistics encrypted"
    stats = metadata.chunks(leaf.index)[group].statistics
    old_low, old_high = (bounds[group] for bounds in metadata.legacy_bounds(leaf.index))
    stated = stats is not None and (stats.min_value is not None or stats.max_value is not None)
    if not stated and old_low is None and old_high is None:
        return "no statistics" if stats is None else "no bounds"
    if not stated:
        right = legacy_bounds_trusted(leaf)
        reason = "min is above max, or not a number" if right else "the deprecated ones, whose order is wrong"
    elif leaf.column_order in ("undefined", "unknown"):
        reason = f"the column's order is {leaf.column_order}"
    elif not bounds_trusted(leaf, metadata.writer):
        reason = f"{metadata.created_by or 'an unknown writer'} gets them wrong for this type"
    elif leaf.physical is PhysicalType.INT96:
        reason = "INT96 timestamps are ordered in more than one way"
    else:
        reason = "min is above max, or not a value"
    return f"bounds ignored: {reason}"
