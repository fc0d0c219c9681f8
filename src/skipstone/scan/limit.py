"""LIMIT without ORDER BY: rows proven to match come first, and no more of them than it takes."""

from __future__ import annotations

import operator
from dataclasses import replace

from skipstone.errors import UsageError
from skipstone.report.trace.scan import ScanTrace
from skipstone.scan.plan import LazyTrace, ScanPlan, Task

# More rows than a lake can have, and still a number that Arrow can count with.
_EVERY = 2**62


def checked_limit(limit: int | None) -> int | None:
    """A caller's limit, or an error if it is no number of rows."""
    if limit is None:
        return None
    try:
        rows = -1 if isinstance(limit, bool) else operator.index(limit)
    except TypeError:
        rows = -1
    if rows < 0:
        raise UsageError(f"limit={limit!r}", hint="give a whole number of rows, or None")
    return min(rows, _EVERY)


def apply_limit(plan: ScanPlan, limit: int | None) -> ScanPlan:
    """``plan`` with a limit: cut to proven rows where those are enough, else tried in the best order."""
    if limit is None:
        return plan
    if plan.order:
        return plan.changed(limit=limit)
    proven = sum(len(task.proven) for task in plan.tasks)
    if proven < limit:
        # Files with most proven rows first: they may fill the limit before another is opened.
        ranked = sorted(plan.tasks, key=lambda task: -len(task.proven))
        return plan.changed(limit=limit, tasks=tuple(ranked))
    tasks: list[Task] = []
    missing = limit
    for task in plan.tasks:
        taken = task.proven.take(missing)
        if not taken.is_empty:
            tasks.append(replace(task, rows=taken, proven=taken))
            missing -= len(taken)

    def build() -> ScanTrace:
        return replace(plan.trace, residual="", rows_kept=limit, rows_whole=limit, tasks=len(tasks))

    return plan.changed(limit=limit, tasks=tuple(tasks), trace=LazyTrace(plan.hints, build))
