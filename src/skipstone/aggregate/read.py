"""Phase two of an aggregation: rows that metadata can't answer for are read and reduced to states."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from skipstone.aggregate.bind import Binding
from skipstone.aggregate.groups import GroupStates, merge_states, reduce_rows
from skipstone.aggregate.members import Outside, OutsideByPlace
from skipstone.aggregate.metadata import MetadataAnswer, RowsByShare
from skipstone.aggregate.states.state import Measure, Path
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

# Few rows of several pieces are reduced at once: to reduce has a price of its own.
_FEW_ROWS = 32_768


@dataclass(frozen=True, slots=True, eq=False)
class AggregateReading:
    """Rows that are read for some measures: those that match for sure, and those to be tested."""

    keys: tuple[Path, ...]
    measures: Mapping[int, Measure[Any]]
    plans: tuple[ScanPlan, ...]

    @property
    def rows(self) -> int:
        """Rows that are read."""
        return sum(plan.rows for plan in self.plans)

    def reduce(self, tables: Iterable[pa.Table], seen: int) -> Portion:
        """What the rows of tables add, of so many that were read; one table is in memory at a time."""
        states: list[GroupStates] = []
        rows = 0
        for table in tables:
            states += reduce_rows(table, self.keys, self.measures)
            rows += len(table)
        return Portion(tuple(states), seen, rows)


@dataclass(frozen=True, slots=True, eq=False)
class Portion:
    """What a few pieces have added: the states of their groups, and how many rows were read for them."""

    states: tuple[GroupStates, ...]
    seen: int
    """Rows that were read and tested, or needed no test."""
    rows: int
    """Those of them that count."""


# -- what to read ------------------------------------------------------------------------------


def readings(plan: ScanPlan, binding: Binding, metadata: MetadataAnswer) -> list[AggregateReading]:
    """Measures that want the same rows are read together."""
    wanted: list[tuple[RowsByShare, list[int]]] = []
    for number, answer in enumerate(metadata.measures):
        if not answer.read:
            continue
        same = next((mine for rows, mine in wanted if rows == answer.read), None)
        if same is None:
            wanted.append((answer.read, [number]))
        else:
            same.append(number)
    return [_reading(plan, binding, metadata, rows, numbers) for rows, numbers in wanted]


def _reading(
    plan: ScanPlan, binding: Binding, metadata: MetadataAnswer, rows: RowsByShare, numbers: Sequence[int]
) -> AggregateReading:
    measures = {number: binding.measures[number] for number in numbers}
    paths = [*binding.keys, *(path for measure in measures.values() for path in measure.columns)]
    projection = Projection.of(plan.schemas.read, dict.fromkeys(paths))
    tasks = [pair for share, mine in sorted(rows.items()) for pair in _tasks(metadata, share, mine)]
    proven, tested = ([task for task, sure in tasks if sure is side] for side in (True, False))
    plans = []
    if proven:
        plans.append(plan.part(proven, projection, tested=False))
    if tested:
        how = plan.hints.materialise
        plans.append(plan.part(tested, projection, tested=plan.predicate is not None, materialise=how))
    return AggregateReading(binding.keys, measures, tuple(plans))


def _tasks(metadata: MetadataAnswer, share: int, rows: RowSet) -> Iterator[tuple[Task, bool]]:
    """The rows of a share by what must be tested on them, and whether the predicate need not be."""
    mine, none = metadata.units.shares[share], RowSet.none(rows.total)
    members = None if mine.members is None else metadata.members_of(share)
    for part, sure in ((rows & mine.proven, True), (rows - mine.proven, False)):
        inside, rest = (part, none) if members is None else (part & members, part - members)
        if not inside.is_empty:
            yield replace(mine.task, rows=inside, proven=inside if sure else none), sure
        if not rest.is_empty:
            deleted = (*mine.task.deleted, metadata.tests[share])
            yield replace(mine.task, rows=rest, proven=none, deleted=deleted), sure


# -- reading -----------------------------------------------------------------------------------


def read_here(reading: AggregateReading, log: Log) -> Iterator[Portion]:
    """Read on threads of this process, the next pieces while others are reduced; in order of rows."""
    for plan in reading.plans:
        yield from _portions(Work(plan, log), reading)


def _portions(work: Work, reading: AggregateReading) -> Iterator[Portion]:
    plan = work.plan

    def read(pieces: Sequence[Piece]) -> Portion | tuple[pa.Table, int]:
        seen = sum(_rows_of(work, piece) for piece in pieces)
        tables = work.tables(pieces)
        if not isinstance(tables, pa.Table):
            return reading.reduce(tables, seen)
        return (tables, seen) if len(tables) <= _FEW_ROWS else reading.reduce([tables], seen)

    threads, budget = plan.hints.threads, plan.options.memory
    few: list[pa.Table] = []
    seen = 0
    for part in stream(read, work.bundles(), threads=threads, weigh=work.weigh, budget=budget):
        if isinstance(part, Portion):
            yield part
            continue
        few.append(part[0])
        seen += part[1]
        if sum(map(len, few)) > _FEW_ROWS:
            yield reading.reduce([joined(few)], seen)
            few, seen = [], 0
    if few:
        yield reading.reduce([joined(few)], seen)


def _rows_of(work: Work, piece: Piece) -> int:
    if not piece.more:
        return len(piece.rows)
    groups = range(piece.group, piece.group + piece.more + 1)
    return int(work.reader(piece.task).metadata.row_group_rows[list(groups)].sum())


def read_on(engine: Engine, reading: AggregateReading) -> list[Portion]:
    """Read by an engine's tasks; what a task found is put together before it travels."""
    work, reduction = [], replace(reading, plans=())
    for plan in reading.plans:
        common = shared(plan)
        work += [(common, _packed(plan, part), reduction) for part in split(plan, engine.parallelism)]
    return engine.map(_read_part, work)


def _packed(plan: ScanPlan, part: TaskGroup) -> TaskGroup:
    """A part with no more of each set of members than its files may hold."""
    return tuple(
        replace(task, deleted=tuple(_restricted(plan, task, test) for test in task.deleted)) for task in part
    )


def _restricted(plan: ScanPlan, task: Task, test: AntiJoin) -> AntiJoin:
    if isinstance(test, OutsideByPlace):
        return test.restrict()
    if not isinstance(test, Outside):
        return test
    metadata, bounds = plan.files.layout(task.entry), {}
    for path, type in test.members.columns.items():
        if path[0] not in task.partition:
            facts = row_group_facts(metadata, ColumnRef(path, type))
            bounds[path] = (int(facts.lower.min()), int(facts.upper.max()))
    return Outside(test.members.restrict(bounds))


def _read_part(work: tuple[ScanPlan, TaskGroup, AggregateReading]) -> Portion:
    common, part, reading = work
    portions = list(_portions(Work(replace(common, tasks=part)), reading))
    states = merge_states([state for portion in portions for state in portion.states], reading.measures)
    return Portion(states, sum(p.seen for p in portions), sum(p.rows for p in portions))
