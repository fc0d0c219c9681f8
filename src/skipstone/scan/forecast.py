"""Forecast of what phase two will read."""

from __future__ import annotations

from skipstone.report.trace import Reads
from skipstone.scan.execute import Work
from skipstone.scan.parts import group_rows
from skipstone.scan.plan import ScanPlan
from skipstone.scan.projection import Projection
from skipstone.store.source import coalesce

_MAX_TASKS = 100


def forecast(plan: ScanPlan) -> Reads:
    """Upper bound of the requests and bytes of executing a plan, extrapolated from a sample of many files.

    Reads the offset indexes of the kept row groups, as execution would.
    """
    work = Work(plan)
    wanted: Projection = work.both
    requests = size = whole = 0
    tasks = plan.tasks[:_MAX_TASKS]
    for number, task in enumerate(tasks):
        reader = work.reader(number)
        leaves = reader.columns(wanted).leaves
        gap = plan.files.source(task.entry).gap
        for group, rows in group_rows(reader.metadata, task.rows):
            ranges = reader.planned(group, rows, wanted)
            requests += len(coalesce(ranges, gap).requests)
            size += sum(r.length for r in ranges)
        whole += sum(chunk.total_compressed_size for leaf in leaves for chunk in reader.metadata.chunks(leaf))
    scale = len(plan.tasks) / len(tasks) if tasks else 1.0
    share = plan.trace.files / len(tasks) if tasks else 0.0
    return Reads(round(requests * scale), round(size * scale), round(whole * share))
