"""Why a plan keeps or drops a unit: one file judged once more, with the plan's own word at the end."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field, replace
from os import PathLike, fsdecode
from pathlib import Path as LocalPath

import numpy as np
import pyarrow as pa

from skipstone.core.evidence import Stated
from skipstone.core.ir import compile_predicate
from skipstone.core.ir.nodes import ColumnRef, Node
from skipstone.core.judge import Judgement, Verdict, judge
from skipstone.errors import UsageError
from skipstone.lake.directory import is_visible
from skipstone.lake.partitions import Partitions, read_partitions
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.prune.survey import Survey
from skipstone.report.trace import Cause
from skipstone.report.units import span_text
from skipstone.scan.levels import Levels, tell
from skipstone.scan.plan import ScanPlan, Task
from skipstone.scan.projection import Path
from skipstone.scan.quote import Quoter, value_text
from skipstone.scan.results import Why, WhyStep
from skipstone.store.place import Listed
from skipstone.store.scattered import ScatteredPlace

__all__ = ["Why", "WhyStep", "explain_why"]

_MOST_NAMES = 3


def explain_why(plan: ScanPlan, path: str, row_group: int | None = None, row: int | None = None) -> Why:
    """Why the plan keeps or drops a file, a row group of it, or the page around one of its rows."""
    entry = _find(plan, path)
    task = next((task for task in plan.tasks if task.entry == entry), None)
    return _Inquiry(plan, entry, task).answer(row_group, row)


# -- which file --------------------------------------------------------------------------------


def _find(plan: ScanPlan, name: str) -> Listed:
    """The file of this key, path or ending; files that the plan dropped are found in the listing."""
    if not isinstance(name, str | PathLike):
        raise UsageError(f"can't find a file by {name!r}", hint="give its path")
    name = fsdecode(name)
    place = plan.files.place
    entries = {task.entry.key: task.entry for task in plan.tasks}

    def exact() -> Listed | None:
        same = {name, str(LocalPath(name).absolute())} if place.local else {name}
        return next((e for key, e in entries.items() if key == name or place.path(key) in same), None)

    found = exact()
    if found is not None:
        return found
    scattered = isinstance(place, ScatteredPlace)
    if not scattered:
        entries = {entry.key: entry for entry in place.list() if is_visible(entry)} | entries
    found = exact()
    if found is not None:
        return found
    ends = [key for key in entries if f"/{place.path(key)}".endswith(f"/{name}")]
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
        return Listed(name, place.open(name).size(), None)
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
    entry: Listed
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
                refs = list({r.path: ColumnRef(r.path, r.type) for r in compiled.node.refs()}.values())
                levels = Levels(
                    compiled.node,
                    plan.options.prune,
                    survey,
                    survey.evidence(refs),
                    replace(quoter, metadata=metadata),
                    plan.files,
                    self.entry,
                )
                groups = np.arange(len(survey)) if group is None else np.array([group])
                open_rows, rows = levels.judge(groups, row, rows)
                self.steps += levels.steps
                self.notes += levels.notes
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


def _partition_facts(partitions: Partitions) -> dict[Path, Stated]:
    return {(name,): Stated(partitions.facts(number)) for number, name in enumerate(partitions.schema.names)}


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
