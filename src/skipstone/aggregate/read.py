"""Phase two of an aggregation: read the rows that metadata doesn't answer and reduce them to states."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from skipstone.aggregate.bind import Binding
from skipstone.aggregate.groups import GroupStates, merge_states, reduce_rows
from skipstone.aggregate.members import MemberAntiJoin, SequentialAntiJoin
from skipstone.aggregate.metadata import MetadataAnswer, RowsByShare
from skipstone.aggregate.states.state import Measure, Path
from skipstone.core.filter import RowValues
from skipstone.core.ir.nodes import ColumnRef
from skipstone.core.rows import RowSet
from skipstone.engine.jobs import Engine, stream
from skipstone.lake.snapshot import AntiJoin
from skipstone.parquet.evidence import row_group_facts
from skipstone.scan.execute import Work
from skipstone.scan.parts import Piece, TaskGroup, shared, split
from skipstone.scan.plan import ScanPlan, Task
from skipstone.scan.projection import Projection
from skipstone.scan.reader import Log, joined

# Pieces with fewer rows are reduced together, since each reduction has a fixed cost.
_FEW_ROWS = 32_768


@dataclass(frozen=True, slots=True, eq=False)
class AggregateReading:
    """Rows to read for some measures, with one plan for proven rows and one for rows to test."""

    keys: tuple[Path, ...]
    measures: Mapping[int, Measure[Any]]
    plans: tuple[ScanPlan, ...]
    values: RowValues | None = None
    """Computes the columns of expressions."""

    @property
    def rows(self) -> int:
        """Number of rows to read."""
        return sum(plan.rows for plan in self.plans)

    def reduce(self, tables: Iterable[pa.Table], seen: int) -> PartialResult:
        """Reduce tables one at a time; ``seen`` is the number of rows read for them."""
        states: list[GroupStates] = []
        rows = 0
        for table in tables:
            full = table if self.values is None else self.values.append_to(table)
            states += reduce_rows(full, self.keys, self.measures)
            rows += len(table)
        return PartialResult(tuple(states), seen, rows)


@dataclass(frozen=True, slots=True, eq=False)
class PartialResult:
    """States of the rows in a few pieces of a scan."""

    states: tuple[GroupStates, ...]
    seen: int
    """Rows read."""
    rows: int
    """Rows that qualify."""


# -- planning ----------------------------------------------------------------------------------


def plan_readings(plan: ScanPlan, binding: Binding, metadata: MetadataAnswer) -> list[AggregateReading]:
    """Plan the reads; measures that need the same rows share one."""
    reads: list[tuple[RowsByShare, list[int]]] = []
    for number, answer in enumerate(metadata.measures):
        if not answer.read:
            continue
        numbers = next((sharing for rows, sharing in reads if rows == answer.read), None)
        if numbers is None:
            reads.append((answer.read, [number]))
        else:
            numbers.append(number)
    return [_reading(plan, binding, metadata, rows, numbers) for rows, numbers in reads]


def _reading(
    plan: ScanPlan, binding: Binding, metadata: MetadataAnswer, rows: RowsByShare, numbers: Sequence[int]
) -> AggregateReading:
    measures = {number: binding.measures[number] for number in numbers}
    projection = Projection.of(plan.schemas.read, binding.read_paths(numbers))
    tasks = [pair for share, selected in sorted(rows.items()) for pair in _tasks(metadata, share, selected)]
    proven, tested = ([task for task, certain in tasks if certain is side] for side in (True, False))
    plans = []
    if proven:
        plans.append(plan.part(proven, projection, tested=False))
    if tested:
        materialise = plan.hints.materialise
        plans.append(
            plan.part(tested, projection, tested=plan.predicate is not None, materialise=materialise)
        )
    return AggregateReading(binding.keys, measures, tuple(plans), binding.row_values(numbers))


def _tasks(metadata: MetadataAnswer, share: int, rows: RowSet) -> Iterator[tuple[Task, bool]]:
    """Split the rows of a share by required tests; the flag says that the predicate is proven."""
    owner, none = metadata.units.shares[share], RowSet.none(rows.total)
    members = None if owner.members is None else metadata.members_of(share)
    for part, proven in ((rows & owner.proven, True), (rows - owner.proven, False)):
        inside, rest = (part, none) if members is None else (part & members, part - members)
        if not inside.is_empty:
            yield replace(owner.task, rows=inside, proven=inside if proven else none), proven
        if not rest.is_empty:
            deleted = (*owner.task.deleted, metadata.tests[share])
            yield replace(owner.task, rows=rest, proven=none, deleted=deleted), proven


# -- reading -----------------------------------------------------------------------------------


def read_locally(reading: AggregateReading, log: Log) -> Iterator[PartialResult]:
    """Read on threads of this process, in row order."""
    for plan in reading.plans:
        yield from _partial_results(Work(plan, log), reading)


def _partial_results(work: Work, reading: AggregateReading) -> Iterator[PartialResult]:
    plan = work.plan

    def read(pieces: Sequence[Piece]) -> PartialResult | tuple[pa.Table, int]:
        seen = sum(_rows_of(work, piece) for piece in pieces)
        tables = work.tables(pieces)
        if not isinstance(tables, pa.Table):
            return reading.reduce(tables, seen)
        return (tables, seen) if len(tables) <= _FEW_ROWS else reading.reduce([tables], seen)

    threads, budget = plan.hints.threads, plan.options.memory
    small: list[pa.Table] = []
    seen = 0
    for part in stream(read, work.bundles(), threads=threads, weigh=work.weigh, budget=budget):
        if isinstance(part, PartialResult):
            yield part
            continue
        small.append(part[0])
        seen += part[1]
        if sum(map(len, small)) > _FEW_ROWS:
            yield reading.reduce([joined(small)], seen)
            small, seen = [], 0
    if small:
        yield reading.reduce([joined(small)], seen)


def _rows_of(work: Work, piece: Piece) -> int:
    if not piece.more:
        return len(piece.rows)
    groups = range(piece.group, piece.group + piece.more + 1)
    return int(work.reader(piece.task).metadata.row_group_rows[list(groups)].sum())


def read_on_engine(engine: Engine, reading: AggregateReading) -> list[PartialResult]:
    """Read in an engine's tasks; each task merges its states before returning them."""
    work = [
        (number, _restrict_members(plan, part))
        for number, plan in enumerate(reading.plans)
        for part in split(plan, engine.parallelism)
    ]
    # Plans, which can have millions of keys, are sent once for all parts.
    common = replace(reading, plans=tuple(shared(plan) for plan in reading.plans))
    return engine.map(partial(_read_part, common), work)


def _restrict_members(plan: ScanPlan, part: TaskGroup) -> TaskGroup:
    """Restrict the member sets of a part to ids that can occur in its files."""
    return tuple(
        replace(task, deleted=tuple(_restrict_test(plan, task, test) for test in task.deleted))
        for task in part
    )


def _restrict_test(plan: ScanPlan, task: Task, test: AntiJoin) -> AntiJoin:
    if isinstance(test, SequentialAntiJoin):
        return test.restrict()
    if not isinstance(test, MemberAntiJoin):
        return test
    metadata, bounds = plan.files.layout(task.entry), {}
    for path, type in test.members.columns.items():
        if path[0] not in task.partition:
            facts = row_group_facts(metadata, ColumnRef(path, type))
            bounds[path] = (int(facts.lower.min()), int(facts.upper.max()))
    return MemberAntiJoin(test.members.restrict(bounds))


def _read_part(reading: AggregateReading, work: tuple[int, TaskGroup]) -> PartialResult:
    number, part = work
    results = list(_partial_results(Work(replace(reading.plans[number], tasks=part)), reading))
    states = merge_states([state for result in results for state in result.states], reading.measures)
    return PartialResult(states, sum(p.seen for p in results), sum(p.rows for p in results))
