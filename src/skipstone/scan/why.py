"""Explanation of why a plan keeps or drops a unit: the cascade runs again on one file and is described.

The plan's own decision comes last; statistics are quoted from the file's footer.
"""

from __future__ import annotations

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
from skipstone.core.plain import type_name
from skipstone.errors import UsageError, did_you_mean, similar, suggestion
from skipstone.lake.directory import is_visible
from skipstone.lake.partitions import Partitions, read_partitions
from skipstone.parquet.evidence import find_leaf, legacy_bounds_trusted, trust_of
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
from skipstone.scan.statistics import null_counts, usable_bounds
from skipstone.store.absolute import AbsoluteStore
from skipstone.store.source import drive
from skipstone.store.store import ListedFile

__all__ = ["Why", "WhyStep", "explain_why"]

_MAX_NAMES = 3
_LONGEST_VALUE = 40
_MAX_VALUES = 3
_Quote = Callable[[Node], str]


def explain_why(
    plan: ScanPlan,
    path: str | ListedFile,
    row_group: int | None = None,
    row: int | None = None,
    survey: Survey | None = None,
) -> Why:
    """Why the plan keeps or drops a file, a row group of it, or the page around one of its rows.

    ``survey`` is the file's metadata in an index; by default the file's own is judged.
    """
    entry = path if isinstance(path, ListedFile) else _find(plan, path)
    task = next((task for task in plan.tasks if task.entry == entry), None)
    return _Inquiry(plan, entry, task, survey).answer(row_group, row)


# -- which file --------------------------------------------------------------------------------


def _find(plan: ScanPlan, name: str) -> ListedFile:
    """The file with this key, path or suffix; files that the plan dropped are looked up in a listing."""
    if not isinstance(name, str | PathLike):
        raise UsageError(f"{name!r} is not a path", hint="pass the path of a file")
    name = fsdecode(name)
    store = plan.files.store
    entries = {task.entry.key: task.entry for task in plan.tasks}

    def exact() -> ListedFile | None:
        same = {name, str(LocalPath(name).absolute())} if store.local else {name}
        return next((e for key, e in entries.items() if key == name or store.path(key) in same), None)

    match = exact()
    if match is not None:
        return match
    if not isinstance(store, AbsoluteStore):
        entries = {entry.key: entry for entry in store.list() if is_visible(entry)} | entries
    match = exact()
    if match is not None:
        return match
    ends = [key for key in entries if f"/{store.path(key)}".endswith(f"/{name}")]
    ends = ends or [key for key in entries if name and key.endswith(name)]
    if len(ends) == 1:
        return entries[ends[0]]
    if ends:
        more = f", … {len(ends) - _MAX_NAMES} more" if len(ends) > _MAX_NAMES else ""
        raise UsageError(
            f"{name!r} matches {len(ends)} files: {', '.join(ends[:_MAX_NAMES])}{more}",
            path=plan.lake,
            hint="pass more of the path",
        )
    if isinstance(store, AbsoluteStore):
        # Tables can't be listed: a file that the plan dropped needs its full path.
        return store.find(name)
    # Most of a key is the same for all files of a lake, so names are compared first.
    near = similar(name.rpartition("/")[2], names := {key.rpartition("/")[2]: key for key in entries})
    hint = did_you_mean(name, entries, "pass a path relative to the lake's root")
    if near:
        hint = suggestion([names[file] for file in near])
    raise UsageError(f"lake has no file {name!r}", path=plan.lake, hint=hint)


# -- one file, judged again --------------------------------------------------------------------


@dataclass(slots=True)
class _Inquiry:
    plan: ScanPlan
    entry: ListedFile
    task: Task | None
    survey: Survey | None = None
    steps: list[WhyStep] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def answer(self, row_group: int | None, row: int | None) -> Why:
        plan = self.plan
        judged = plan.predicate is not None and plan.options.skipping
        needed = row_group is not None or row is not None or self.task is not None or not judged
        # The footer is not needed if partitions drop the file.
        metadata = plan.files.footer(self.entry) if needed else None
        group = None if metadata is None else _group(metadata, row_group, row)
        unit = "file" if group is None else f"row group {group}"
        rows = None if metadata is None else _span(metadata, group)
        open_rows = rows is not None and rows[0] < rows[1]
        if plan.predicate is None:
            self.steps.append(WhyStep("question", unit, Verdict.ALL, "", "no predicate: every row matches"))
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
                survey = self.survey or Survey.of([metadata], _partition_facts(partitions))
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
        """The plan's own verdict on the unit."""
        if self.task is None or rows is None or not self.task.rows.count(*rows):
            return Verdict.NONE
        return Verdict.ALL if self.task.proven.count(*rows) == rows[1] - rows[0] else Verdict.SOME

    def _compare(self, verdict: Verdict, open_rows: bool) -> None:
        """Note why the plan's verdict differs from that of its predicate on this file alone."""
        kept = verdict is not Verdict.NONE
        if open_rows is kept:
            return
        if kept:
            self.notes.append("the plan combines others, and keeps the rows of one of them")
        elif self.plan.limit is not None:
            self.notes.append(f"rows may match here, but other rows fill the limit of {self.plan.limit:,}")
        elif self.task is None and self.survey is None and self.plan.trace.index is not None:
            self.notes.append(
                "rows may match by the file's own metadata, but the plan used an index, which can have more: "
                "bounds of pages and bloom filters"
            )
        elif self.task is None:
            self.notes.append(
                "rows may match here, but the plan lacks the file: it was added or changed later, the lake "
                "was opened with a pattern that excludes it, or the plan combines others"
            )
        else:
            self.notes.append("rows may match here, but the plan combines others that dropped them")

    # -- partitions --------------------------------------------------------------------------

    def _partitions(self) -> Partitions:
        plan = self.plan
        names = plan.schemas.partition if self.task is None else tuple(self.task.partition)
        schema = pa.schema([plan.schemas.query.field(name) for name in names])
        if self.task is not None:
            values = [self.task.partition[name] for name in schema.names]
            return Partitions(schema, tuple(pa.array([value], value.type) for value in values), 1)
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
            return True  # the predicate has no partition columns
        shown = Judgement(judgement.bits, tuple(parts)) if judgement.bits.true[0] else judgement
        self.steps += describe("partitions", ["file"], shown, evidence, [quoter.partitions], Cause.PARTITION)
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
        """Whether rows are left, and the range of the unit, which is a page if ``row`` is set."""
        if not len(groups):
            self.steps.append(WhyStep("row groups", "file", Verdict.NONE, "", "file has no rows"))
            return False, rows
        record: list[LevelRecord] = []
        cascade = Cascade(node, self.plan.options.prune, survey, Ledger(lambda: (0, 0)), record=record)
        drive(cascade.steps(), lambda need: self.plan.files.read(self.entry, ranges_of(need)))
        first, *others = record
        evidence = first.evidence
        verdicts = first.judgement.verdicts()
        self.steps += describe(
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
        """Note what the cascade could not use, and missing page indexes."""
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
        """Describe the answers of bloom filters or dictionaries for row groups undecided ``before``."""
        after, blame = level.judgement.verdicts(), level.judgement.blame()
        # A loop over row groups, since each is described separately.
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
            text = "; ".join(f"{_name(f)}: bloom filter can't rule out {looked_for(f)}" for f in leaves)
            if text:
                condition = " AND ".join(map(str, leaves))
                self.steps.append(WhyStep(level.name, unit, Verdict.SOME, condition, text))

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
        """Describe pages, or the page around a row; returns whether any is kept, and the unit's range."""
        segments = level.segments
        assert segments is not None
        chosen = np.flatnonzero(np.isin(segments.units, groups))
        if row is not None:
            chosen = np.flatnonzero((segments.starts <= row) & (row < segments.stops))
            rows = int(segments.starts[chosen[0]]), int(segments.stops[chosen[0]])

        def quote_at(number: int) -> _Quote:
            group = int(segments.units[number])
            pages = {path: facts[group] for path, facts in level.pages.items() if group in facts}
            inside = int(segments.starts[number] - survey.starts[group])
            return partial(quoter.segment, evidence, group, inside, pages)

        self.steps += describe(
            "pages",
            [span_text(int(segments.starts[at]), int(segments.stops[at])) for at in chosen],
            level.judgement.take(chosen),
            level.evidence.take(chosen),
            [quote_at(number) for number in chosen.tolist()],
            Cause.PAGE,
        )
        return bool(level.judgement.bits.true[chosen].any()), rows


def _group(metadata: ParquetMetadata, row_group: int | None, row: int | None) -> int | None:
    for number in (row_group, row):
        if number is not None and not isinstance(number, int):
            raise UsageError(f"{number!r} is not an integer", hint="number row groups and rows from 0")
    if row_group is not None and not 0 <= row_group < metadata.row_group_count:
        raise UsageError(
            f"file has no row group {row_group}",
            path=metadata.path,
            hint=f"use a number below {metadata.row_group_count}",
        )
    if row is None:
        return row_group
    if not 0 <= row < metadata.num_rows:
        raise UsageError(
            f"file has no row {row}",
            path=metadata.path,
            hint=f"use a number below {metadata.num_rows}",
        )
    group = int(np.searchsorted(metadata.row_group_starts, row, side="right")) - 1
    if row_group not in (None, group):
        raise UsageError(f"row {row} is in row group {group}, not {row_group}", path=metadata.path)
    return group


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
    for (name,), override in _partition_facts(partitions).items():
        facts = override.facts
        key = None
        if facts.may_value[0]:
            bound = facts.lower[0]
            key = bound.as_py() if isinstance(bound, pa.Scalar) else bound.item()
        value = "NULL" if facts.may_null[0] else "NaN" if key is None else value_text(facts.type, key)
        texts[name,] = f"{name} = {value} (partition)"
    return texts


# -- descriptions ------------------------------------------------------------------------------


def describe(
    level: str,
    units: Sequence[str],
    judgement: Judgement,
    evidence: Evidence,
    quotes: Sequence[_Quote],
    cause: Cause,
) -> list[WhyStep]:
    """One step per unit: the condition that dropped it, or the undecided ones."""
    verdicts, blame = judgement.verdicts(), judgement.blame()
    steps: list[WhyStep] = []
    # A loop over units, since each is described separately.
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
            text = "; ".join(dict.fromkeys(map(quote, nodes)))
            steps.append(WhyStep(level, unit, verdict, _joined(nodes), text))
    return steps


def _cause(node: Node, evidence: Evidence, at: int, cause: Cause) -> Cause:
    """The same cause as in the plan's trace: NULLs if a unit has only NULLs."""
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
    return f"{_name(leaf)}: no dictionary value matches"


def _name(leaf: Leaf) -> str:
    return ".".join(leaf.ref.path)


@dataclass(frozen=True, slots=True)
class Quoter:
    """Quotes one file's metadata; ``partition`` has its partition values as strings."""

    metadata: ParquetMetadata | None
    partition: Mapping[Path, str]

    def partitions(self, node: Node) -> str:
        """Quote the partition values of a condition's columns."""
        texts = [self.partition[path] for path in _paths(node) if path in self.partition]
        rest = [".".join(path) for path in _paths(node) if path not in self.partition]
        if rest:
            texts.append(f"{', '.join(rest)}: not a partition column")
        return "; ".join(texts) or _no_columns(node)

    def row_group(self, evidence: Evidence, group: int, node: Node) -> str:
        """Quote the footer on a condition's columns in a row group."""
        texts = [self._chunk(path, evidence.columns[path], group) for path in _paths(node)]
        return "; ".join(texts) or _no_columns(node)

    def segment(
        self, evidence: Evidence, group: int, row: int, pages: Mapping[Path, PageFacts], node: Node
    ) -> str:
        """Quote the page index on a condition's columns in the pages around a row."""
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
            what = "so its value comes from the table" if facts.may_value.any() else "so NULL in every row"
            return f"{name}: not in the file, {what}"
        bound = find_leaf(metadata, ref)
        if bound is None:
            kind = (
                "values inside it"
                if pa.types.is_nested(storage_type(facts.type))
                else f"type {type_name(facts.type)}"
            )
            missing = f"no bounds to compare ({kind})"
            stats = Statistics()
        else:
            missing = _missing(metadata, bound.leaf, group)
            stats = metadata.chunks(bound.leaf.index)[group].statistics or Statistics()
        lower, upper = usable_bounds(metadata, ref, facts)
        counts = null_counts(metadata, ref, facts)
        nulls = _nulls(int(counts[group]), stats.null_count)
        text = _describe_facts(facts, group, bool(lower[group]), bool(upper[group]), nulls, missing)
        return f"{name}: {text} (row-group statistics)"

    def _page(self, path: Path, pages: PageFacts, group: int, row: int) -> str:
        """``row`` is relative to the row group."""
        assert self.metadata is not None
        index, facts = pages.index, pages.facts
        page = int(index.first_rows.searchsorted(row, side="right")) - 1
        start = int(self.metadata.row_group_starts[group] + index.first_rows[page])
        unit = f"page {page} ({span_text(start, start + int(index.row_counts[page]))})"
        ref = ColumnRef(path, facts.type)
        lower, upper = usable_bounds(self.metadata, ref, facts)
        counted = None if index.null_counts is None else int(index.null_counts[page])
        nulls = _nulls(0 if not facts.may_null[page] else -1 if counted is None else counted, counted)
        missing = "no bounds" if index.has_statistics else "no statistics"
        text = _describe_facts(facts, page, bool(lower[page]), bool(upper[page]), nulls, missing)
        return f"{'.'.join(path)}: {text} in {unit}"


def _paths(node: Node) -> list[Path]:
    return list(dict.fromkeys(ref.path for ref in node.refs()))


def _no_columns(node: Node) -> str:
    if isinstance(node, ConstantNode):
        return f"{node} for every row"
    return "no metadata applies"


def _describe_facts(facts: ColumnFacts, unit: int, low: bool, high: bool, nulls: str, missing: str) -> str:
    """Bounds, NULLs and NaN of one unit."""
    if not facts.may_value[unit]:
        held = [name for name, may in (("NULL", facts.may_null), ("NaN", facts.may_nan)) if may[unit]]
        return f"only {' and '.join(held)}" if held else "no values"
    bounds = [
        f"{name} {value_text(facts.type, _key(keys, unit))}"
        for name, keys, usable in (("min", facts.lower, low), ("max", facts.upper, high))
        if usable and is_ordered(facts.type)
    ]
    return ", ".join([*(bounds or [missing]), nulls, *(["NaN possible"] * bool(facts.may_nan[unit]))])


def _key(bounds: Bounds, unit: int) -> Key:
    key: Key = bounds[unit].as_py() if isinstance(bounds, pa.Array) else bounds[unit].item()
    return key


def _nulls(count: int, recorded: int | None) -> str:
    if count >= 0:
        return plural(count, "null")
    return "no null count" if recorded is None else f"null count {recorded:,} not trusted"


def value_text(type: pa.DataType, key: Key) -> str:
    """A value as a short string."""
    if isinstance(key, int) and pa.types.is_integer(storage_type(type)):
        return f"{key:,}"
    return shorten(format_key(type, key), _LONGEST_VALUE)


def looked_for(leaf: Leaf) -> str:
    """The first values of a condition, as a string."""
    keys = leaf.true.spans.points() if len(leaf.true.spans) <= _MAX_VALUES else None
    if keys is None or not len(keys):
        return "every requested value"
    plain = keys if isinstance(keys, list) else keys.tolist()
    shown = ", ".join(value_text(leaf.ref.type, key) for key in plain[:_MAX_VALUES])
    return shown + (f" and {len(plain) - _MAX_VALUES} more" if len(plain) > _MAX_VALUES else "")


def _missing(metadata: ParquetMetadata, leaf: LeafColumn, group: int) -> str:
    """Why a chunk has no usable bounds."""
    if metadata.is_encrypted(group, leaf.index):
        return "statistics encrypted"
    chunk, trust = metadata.chunks(leaf.index)[group], trust_of(metadata, leaf)
    stats = chunk.statistics
    old_low, old_high = (bounds[group] for bounds in metadata.legacy_bounds(leaf.index))
    recorded = stats is not None and (stats.min_value is not None or stats.max_value is not None)
    if not recorded and old_low is None and old_high is None:
        return "no statistics" if stats is None else "no bounds"
    if not recorded:
        right = legacy_bounds_trusted(leaf)
        reason = (
            "min is above max, or not a number" if right else "deprecated bounds with the wrong sort order"
        )
    elif leaf.column_order in ("undefined", "unknown"):
        reason = f"column order is {leaf.column_order}"
    elif not (trust.bounds and np.all(trust.chunks([chunk]))):
        reason = f"{metadata.created_by or 'an unknown writer'} writes wrong bounds for this type"
    elif leaf.physical is PhysicalType.INT96:
        reason = "writers disagree on the order of INT96"
    else:
        reason = "min is above max, or not a value"
    return f"bounds ignored: {reason}"
