"""Forecast of what phase two will read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from skipstone.parquet.metadata import ParquetMetadata
from skipstone.report.trace import Reads
from skipstone.scan.execute import Work
from skipstone.scan.parts import group_rows
from skipstone.scan.plan import ScanPlan, Task
from skipstone.scan.projection import Projection
from skipstone.store.source import coalesce

_MAX_TASKS = 100


def forecast(plan: ScanPlan, read: int = 0) -> Reads:
    """Upper bound of the requests and bytes of executing a plan, extrapolated from a sample of many files.

    Reads the offset indexes of the kept row groups, as execution would. ``read`` is what it did read.
    """
    work = Work(plan)
    wanted: Projection = work.both
    requests = size = 0
    tasks = plan.tasks[:_MAX_TASKS]
    for number, task in enumerate(tasks):
        reader = work.reader(number)
        gap = plan.files.source(task.entry).gap
        for group, rows in group_rows(reader.metadata, task.rows):
            ranges = reader.planned(group, rows, wanted)
            requests += len(coalesce(ranges, gap).requests)
            size += sum(r.length for r in ranges)
    share = _file_bytes(plan.tasks) / _file_bytes(tasks) if tasks else 1.0
    return Reads(round(requests * share), round(size * share), column_bytes(plan, read))


def column_bytes(plan: ScanPlan, read: int = 0) -> int:
    """Bytes of the columns of a scan in all files: in the kept files, extrapolated by the sizes of files.

    ``read`` is what was read of them: the result is at least as much.
    """
    work = Work(plan)
    tasks = plan.tasks[:_MAX_TASKS]
    readers = map(work.reader, range(len(tasks)))
    size = sum(stored_bytes(reader.metadata, reader.columns(work.both).leaves) for reader in readers)
    return max(round(size * plan.trace.file_bytes / _file_bytes(tasks)), read) if tasks else read


def stored_bytes(metadata: ParquetMetadata, leaves: Iterable[int]) -> int:
    """Compressed bytes of columns of a file."""
    return sum(chunk.total_compressed_size for leaf in leaves for chunk in metadata.chunks(leaf))


def _file_bytes(tasks: Sequence[Task]) -> int:
    return sum(task.entry.size for task in tasks)
