"""Phase two of an aggregation: rows that metadata can't answer for are read and counted in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from skipstone.aggregate.bind import Binding
from skipstone.aggregate.counting import Counted
from skipstone.aggregate.members import Outside
from skipstone.aggregate.merge import Known, Recipe, merged
from skipstone.aggregate.prepare import Prepared, Rows, members_of
from skipstone.core.ir.nodes import ColumnRef
from skipstone.core.rows import RowSet
from skipstone.engine.jobs import Engine, stream
from skipstone.lake.snapshot import AntiJoin
from skipstone.parquet.evidence import row_group_facts
from skipstone.scan.parts import Part, shared, split
from skipstone.scan.pieces import Piece
from skipstone.scan.plan import ScanPlan, Task
from skipstone.scan.projection import Projection
from skipstone.scan.reader import joined
from skipstone.scan.work import Clock, Work

_FEW_ROWS = 32_768


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """Rows that are read for some measures: those that match for sure, and those to be tested."""

    measures: tuple[int, ...]
    plans: tuple[ScanPlan, ...]

    @property
    def rows(self) -> int:
        """Rows that are read."""
        return sum(plan.rows for plan in self.plans)


@dataclass(frozen=True, slots=True, eq=False)
class Portion:
    """What a few pieces have added: the states of their groups, and how many rows were looked at."""

    known: tuple[Known, ...]
    looked: int
    """Rows that were read and tested, or needed no test."""
    rows: int
    """Those of them that count."""


# -- what to read ------------------------------------------------------------------------------


def readings(plan: ScanPlan, binding: Binding, prepared: Prepared) -> list[Reading]:
    """Measures that want the same rows are read together."""
    wanted: list[tuple[Rows, list[int]]] = []
    for number, found in enumerate(prepared.found):
        if not found.read:
            continue
        same = next((mine for rows, mine in wanted if rows == found.read), None)
        if same is None:
            wanted.append((found.read, [number]))
        else:
            same.append(number)
    return [_reading(plan, binding, prepared, rows, numbers) for rows, numbers in wanted]


def _reading(
    plan: ScanPlan,
    binding: Binding,
    prepared: Prepared,
    rows: Rows,
    numbers: Sequence[int],
) -> Reading:
    paths = [*binding.keys, *(path for number in numbers for path in binding.measures[number].columns)]
    projection = Projection.of(plan.schemas.read, dict.fromkeys(paths))
    proven: list[Task] = []
    tested: list[Task] = []
    for share, mine in sorted(rows.items()):
        for task, sure in _tasks(prepared, share, mine):
            (proven if sure else tested).append(task)
    plans = []
    if proven:
        plans.append(plan.part(proven, projection, tested=False))
    if tested:
        how = plan.hints.materialise
        plans.append(plan.part(tested, projection, tested=plan.predicate is not None, materialise=how))
    return Reading(tuple(numbers), tuple(plans))


def _tasks(prepared: Prepared, share: int, rows: RowSet) -> Iterator[tuple[Task, bool]]:
    """The rows of a share by what must be tested on them, and whether the predicate need not be."""
    mine = prepared.units.shares[share]
    members = members_of(prepared.units, prepared.cover, prepared.sure, share)
    for part, sure in ((rows & mine.proven, True), (rows - mine.proven, False)):
        inside, rest = part & members, part - members
        if not inside.is_empty:
            proven = inside if sure else RowSet.none(rows.total)
            yield replace(mine.task, rows=inside, proven=proven), sure
        if not rest.is_empty:
            test = prepared.tests[share]
            yield (
                replace(
                    mine.task,
                    rows=rest,
                    proven=RowSet.none(rows.total),
                    deleted=(*mine.task.deleted, test),
                ),
                sure,
            )


# -- reading -----------------------------------------------------------------------------------


def read_here(reading: Reading, recipe: Recipe, clock: Clock) -> Iterator[Portion]:
    """Read on threads of this process, the next pieces while others are counted in; in order of rows."""
    for plan in reading.plans:
        yield from _portions(Work(plan, clock), recipe)


def _portions(work: Work, recipe: Recipe) -> Iterator[Portion]:
    plan = work.plan

    def reduce(pieces: Sequence[Piece]) -> Portion | tuple[pa.Table, int]:
        looked = sum(_rows_of(work, piece) for piece in pieces)
        found = work.tables(pieces)
        if isinstance(found, pa.Table) and len(found) <= _FEW_ROWS:
            return found, looked
        tables = [found] if isinstance(found, pa.Table) else found
        parts = [recipe.count_in(table) for table in tables]
        known = tuple(one for part in parts for one in part[0])
        return Portion(known, looked, sum(part[1] for part in parts))

    threads, budget = plan.hints.threads, plan.options.memory
    few: list[pa.Table] = []
    looked = 0
    for found in stream(reduce, work.bundles(), threads=threads, weigh=work.weigh, budget=budget):
        if isinstance(found, Portion):
            yield found
            continue
        few.append(found[0])
        looked += found[1]
        if sum(map(len, few)) > _FEW_ROWS:
            yield Portion(*_counted_in(recipe, few, looked))
            few, looked = [], 0
    if few:
        yield Portion(*_counted_in(recipe, few, looked))


def _counted_in(
    recipe: Recipe, tables: Sequence[pa.Table], looked: int
) -> tuple[tuple[Known, ...], int, int]:
    """Few rows of several pieces at once: counting in has a price of its own."""
    known, rows = recipe.count_in(joined(tables))
    return known, looked, rows


def _rows_of(work: Work, piece: Piece) -> int:
    if not piece.more:
        return len(piece.rows)
    groups = range(piece.group, piece.group + piece.more + 1)
    return int(work.reader(piece.task).metadata.row_group_rows[list(groups)].sum())


def read_on(engine: Engine, reading: Reading, recipe: Recipe) -> list[Portion]:
    """Read by an engine's tasks; what a task found is put together before it travels."""
    work = []
    for plan in reading.plans:
        common = shared(plan)
        work += [(common, _packed(plan, part), recipe) for part in split(plan, engine.parallelism)]
    return engine.map(_read_part, work)


def _packed(plan: ScanPlan, part: Part) -> Part:
    """A part with no more of each set of members than its files may hold."""
    return tuple(
        replace(task, deleted=tuple(_cut_down(plan, task, test) for test in task.deleted)) for task in part
    )


def _cut_down(plan: ScanPlan, task: Task, test: AntiJoin) -> AntiJoin:
    if isinstance(test, Counted):
        return test.cut_down()
    if not isinstance(test, Outside):
        return test
    metadata, bounds = plan.files.layout(task.entry), {}
    for path, type in zip(test.columns, test.types, strict=True):
        if path[0] not in task.partition:
            facts = row_group_facts(metadata, ColumnRef(path, type))
            bounds[path] = (int(facts.lower.min()), int(facts.upper.max()))
    return Outside(test.members.restrict(bounds))


def _read_part(given: tuple[ScanPlan, Part, Recipe]) -> Portion:
    common, part, recipe = given
    found = list(_portions(Work(replace(common, tasks=part)), recipe))
    known = merged([one for portion in found for one in portion.known], recipe.measures)
    return Portion(known, sum(p.looked for p in found), sum(p.rows for p in found))
