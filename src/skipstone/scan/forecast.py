"""What phase two is going to read, before it does."""

from __future__ import annotations

from skipstone.report.trace import Reads
from skipstone.scan.execute import Work
from skipstone.scan.parts import group_rows
from skipstone.scan.plan import ScanPlan
from skipstone.scan.projection import Projection
from skipstone.store.source import coalesce

_MOST_TASKS = 100


def forecast(plan: ScanPlan) -> Reads:
    """Requests and bytes of data that the plan leads to, at most; of many files, scaled up from a sample.

    The offset indexes of the kept row groups are read for it, as reading itself would.
    """
    work = Work(plan)
    wanted: Projection = work.both
    requests = size = whole = 0
    tasks = plan.tasks[:_MOST_TASKS]
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
