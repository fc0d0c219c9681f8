"""COUNT: rows proven to match are counted from metadata; only the others are read and tested."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from skipstone.engine.jobs import Engine, stream
from skipstone.scan.execute import Work
from skipstone.scan.parts import Part, Piece, shared, split
from skipstone.scan.plan import ScanPlan
from skipstone.scan.projection import Projection


def count_on(plan: ScanPlan, engine: Engine) -> int:
    """``count_rows`` by an engine's tasks, each of which counts a part of the plan."""
    if plan.limit is not None or not any(task.residual for task in plan.tasks):
        return count_rows(plan)
    open_tasks = tuple(task for task in plan.tasks if task.residual)
    proven = sum(len(task.proven) for task in plan.tasks if not task.residual)
    parts = split(plan.changed(tasks=open_tasks), engine.parallelism)
    common = shared(plan)
    return proven + sum(engine.map(_count_part, [(common, part) for part in parts]))


def _count_part(work: tuple[ScanPlan, Part]) -> int:
    common, part = work
    return count_rows(replace(common, tasks=part))


def count_rows(plan: ScanPlan) -> int:
    """How many rows the plan's answer has."""
    proven = sum(len(task.proven) for task in plan.tasks)
    if plan.limit is not None and proven >= plan.limit:
        return plan.limit
    open_tasks = tuple(
        replace(task, rows=task.rows - task.proven, proven=task.proven - task.proven)
        for task in plan.tasks
        if task.residual
    )
    nothing = Projection.of(plan.schemas.read, [])
    work = Work(plan.changed(tasks=open_tasks, projection=nothing))

    def matching(pieces: Sequence[Piece]) -> int:
        found = work.tables(pieces)
        return len(found) if isinstance(found, pa.Table) else sum(map(len, found))

    pieces = ((piece,) for piece in work.pieces(work.both))
    threads, budget = plan.hints.threads, plan.options.memory
    total = proven
    for found in stream(matching, pieces, threads=threads, weigh=work.weigh, budget=budget):
        total += found
        if plan.limit is not None and total >= plan.limit:
            return plan.limit
    return total
