"""A plan cut into parts of about equal bytes, each of them work for one executor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np

from skipstone.core.evidence import Array
from skipstone.core.rows import RowSet
from skipstone.scan.pieces import group_rows
from skipstone.scan.plan import ScanPlan, Task

Part: TypeAlias = tuple[Task, ...]

PART_BYTES: Final = 128 * 1024 * 1024
"""Compressed bytes of one part, about."""
_LEAST_BYTES: Final = 2 * 1024 * 1024
# What could be read while a file is opened.
_OPEN_BYTES: Final = 128 * 1024
_SAMPLE: Final = 8


def weights(plan: ScanPlan) -> tuple[Array, float]:
    """About how many compressed bytes each task reads, and how many the wanted columns of its files have."""
    if not plan.tasks:
        return np.zeros(0), 0.0
    sizes = np.array([task.entry.size for task in plan.tasks], dtype=np.float64) * _column_share(plan)
    rows = np.array([len(task.rows) for task in plan.tasks], dtype=np.float64)
    totals = np.array([max(task.rows.total, 1) for task in plan.tasks], dtype=np.float64)
    return sizes * rows / totals, float(sizes.sum())


def _column_share(plan: ScanPlan) -> float:
    """The share of the files' bytes that is in the columns to be read, of a few files."""
    tested = () if plan.residual is None or plan.filter is None else plan.filter.columns
    tops = {path[0] for path in (*plan.projection.paths, *tested)}
    step = max(len(plan.tasks) // _SAMPLE, 1)
    wanted = size = 0
    for task in plan.tasks[::step][:_SAMPLE]:
        metadata = plan.files.layout(task.entry)
        for field in metadata.query_schema.names:
            chunks = sum(
                chunk.total_compressed_size
                for leaf in metadata.kin.leaves_of(field)
                for chunk in metadata.chunks(leaf.index)
            )
            size += chunks
            wanted += chunks if field in tops else 0
    return wanted / size if size else 0.0


def split(plan: ScanPlan, parallelism: int, part_bytes: int = PART_BYTES) -> list[Part]:
    """Parts in order of the plan's tasks; few bytes make few parts, many at least ``parallelism``."""
    each = weights(plan)[0] + _OPEN_BYTES
    total = float(each.sum())
    wanted = max(-(-total // part_bytes), min(parallelism, total // _LEAST_BYTES), 1)
    limit = total / wanted
    pieces: list[Task] = []
    sizes: list[float] = []
    for task, weight in zip(plan.tasks, each.tolist(), strict=True):
        for piece in _cut(plan, task, int(weight // limit) + 1) if weight > limit > 0 else (task,):
            pieces.append(piece)
            sizes.append(weight * len(piece.rows) / len(task.rows) if len(task.rows) else 0.0)
    if not pieces:
        return []
    # The part in which the middle of a piece falls.
    middles = np.cumsum(sizes) - np.array(sizes) / 2
    numbers = (middles / limit).astype(np.int64) if limit > 0 else np.zeros(len(pieces), dtype=np.int64)
    bounds = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(pieces)]
    return [tuple(pieces[a:b]) for a, b in pairwise(bounds)]


def _cut(plan: ScanPlan, task: Task, parts: int) -> Iterator[Task]:
    """A large file's rows in runs of whole row groups."""
    metadata = plan.files.layout(task.entry)
    starts = metadata.row_group_starts
    groups = [(int(starts[group]), len(rows)) for group, rows in group_rows(metadata, task.rows)]
    limit = sum(count for _, count in groups) / parts
    cuts, held = [0], 0.0
    for (_, count), (after, _) in pairwise(groups):
        held += count
        if held >= limit:
            cuts.append(after)
            held = 0.0
    for first, last in zip(cuts, [*cuts[1:], task.rows.total], strict=True):
        window = RowSet.from_ranges(task.rows.total, [(first, last)])
        yield replace(task, rows=task.rows & window, proven=task.proven & window)


def shared(plan: ScanPlan) -> ScanPlan:
    """What all parts have in common, to travel once: the plan without its tasks.

    It reads with one thread, for an executor has a task on each core.
    """
    hints = replace(plan.trace.hints, threads=1)
    return replace(plan, tasks=(), trace=replace(plan.trace, levels=(), notes=(), hints=hints))
