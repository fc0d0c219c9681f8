"""Division of a plan: into parts for executors, and into pieces, the rows of a row group read together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np

from skipstone.core.evidence import Array
from skipstone.core.rows import RowSet
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.pageindex import page_index_ranges
from skipstone.scan.plan import ScanPlan, Task
from skipstone.scan.reader import estimate

TaskGroup: TypeAlias = tuple[Task, ...]

PART_BYTES: Final = 128 * 1024 * 1024
"""Approximate compressed bytes of one part."""
_LEAST_BYTES: Final = 2 * 1024 * 1024
# Opening a file takes as long as reading this many bytes.
_OPEN_BYTES: Final = 128 * 1024
_SAMPLE: Final = 8
# A piece that decodes to more than this share of the memory is split, if it has page indexes.
_SHARES: Final = 4
_FASTER: Final = 4
# Pieces with fewer rows in total are decoded together, because every decode has overhead.
_FEW_ROWS: Final = 32_768


def weights(plan: ScanPlan) -> tuple[Array, float]:
    """Approximate compressed bytes that each task reads, and those of the columns in all files."""
    if not plan.tasks:
        return np.zeros(0), 0.0
    sizes = np.array([task.entry.size for task in plan.tasks], dtype=np.float64) * _column_share(plan)
    rows = np.array([len(task.rows) for task in plan.tasks], dtype=np.float64)
    totals = np.array([max(task.rows.total, 1) for task in plan.tasks], dtype=np.float64)
    return sizes * rows / totals, float(sizes.sum())


def _column_share(plan: ScanPlan) -> float:
    """Share of the columns to read in the files' bytes, from a sample."""
    tested = () if plan.residual is None or plan.filter is None else plan.filter.columns
    tops = {path[0] for path in (*plan.projection.paths, *tested)}
    step = max(len(plan.tasks) // _SAMPLE, 1)
    wanted = size = 0
    for task in plan.tasks[::step][:_SAMPLE]:
        metadata = plan.files.layout(task.entry)
        for field in metadata.query_schema.names:
            chunks = sum(
                chunk.total_compressed_size
                for leaf in metadata.schema_group.leaves_of(field)
                for chunk in metadata.chunks(leaf.index)
            )
            size += chunks
            wanted += chunks if field in tops else 0
    return wanted / size if size else 0.0


def split(plan: ScanPlan, parallelism: int, part_bytes: int = PART_BYTES) -> list[TaskGroup]:
    """Divide a plan in task order: few bytes give few parts, many at least ``parallelism``."""
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
    # A piece belongs to the part that contains its middle.
    middles = np.cumsum(sizes) - np.array(sizes) / 2
    numbers = (middles / limit).astype(np.int64) if limit > 0 else np.zeros(len(pieces), dtype=np.int64)
    bounds = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(pieces)]
    return [tuple(pieces[a:b]) for a, b in pairwise(bounds)]


def _cut(plan: ScanPlan, task: Task, parts: int) -> Iterator[Task]:
    """Split a large file's rows into runs of row groups."""
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
    """The plan without its tasks, which is sent once for all parts.

    It reads with one thread, since executors run a task on each core.
    """
    hints = replace(plan.trace.hints, threads=1)
    return replace(plan, tasks=(), trace=replace(plan.trace, levels=(), notes=(), hints=hints))


# -- pieces ------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Piece:
    """Rows of one row group, relative to it; ``proven`` ones need no test."""

    task: int
    group: int
    rows: RowSet
    proven: bool
    weight: int
    more: int = 0
    """Number of following whole row groups read together with this one."""


def group_rows(metadata: ParquetMetadata, rows: RowSet) -> Iterator[tuple[int, RowSet]]:
    """A file's rows by row group, relative to the group; without empty groups."""
    if rows.is_empty:
        return
    if metadata.row_group_count == 1:
        yield 0, rows
        return
    starts = metadata.row_group_starts
    first, last = rows.runs()
    ends = starts.searchsorted((first.item(0), last.item(-1) - 1), "right") - 1
    chosen = range(ends.item(0), ends.item(1) + 1)
    if len(chosen) > 1:
        counts = rows.counts(starts, starts + metadata.row_group_rows)
        for group in chosen:
            count, total = counts.item(group), metadata.row_group_rows.item(group)
            if count:
                start = starts.item(group)
                yield group, _all(total) if count == total else rows.slice(start, start + total)
        return
    # All rows are in one row group, the common case if few are left.
    group = chosen[0]
    start, total = starts.item(group), metadata.row_group_rows.item(group)
    yield group, _all(total) if len(rows) == total else rows.slice(start, start + total)


@lru_cache(maxsize=64)
def _all(total: int) -> RowSet:
    # Most row groups of a lake have the same size.
    return RowSet.all(total)


class Growth:
    """Sizes of pieces, small at first: with a limit, few rows can suffice."""

    __slots__ = ("_rows",)

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def split(self, rows: RowSet, most: int) -> Iterator[RowSet]:
        """Split a row group's rows into growing parts of up to ``most`` rows."""
        first = 0
        while first < len(rows):
            count = min(self._rows, most, len(rows) - first)
            yield nth_rows(rows, first, count)
            first += count
            self._rows *= _FASTER


def cut_task(
    number: int,
    task: Task,
    metadata: ParquetMetadata,
    leaves: tuple[int, ...],
    memory: int,
    growth: Growth | None,
) -> Iterator[Piece]:
    """The pieces of a task in row order."""
    proven = task.proven
    sure, counts = len(proven) == len(task.rows), None
    if not sure and not proven.is_empty:
        starts = metadata.row_group_starts
        counts = proven.counts(starts, starts + metadata.row_group_rows)
    for group, rows in group_rows(metadata, task.rows):
        size = len(rows)
        weight = estimate(metadata, group, leaves) * size // rows.total
        parts = max(-(-weight * _SHARES // memory), 1)
        done = sure if counts is None else counts.item(group) == size
        if (parts > 1 or growth is not None) and has_pages(metadata, group, leaves):
            most = -(-size // parts)
            for part in _split(rows, most) if growth is None else growth.split(rows, most):
                yield Piece(number, group, part, done, weight * len(part) // size)
        else:
            yield Piece(number, group, rows, done, weight)


def merge_whole(pieces: Iterable[Piece], memory: int) -> Iterator[Piece]:
    """Merge small whole row groups of one file that need no test, to read them together."""
    held: Piece | None = None
    for piece in pieces:
        if held is not None and _follows(held, piece, memory):
            held = replace(held, weight=held.weight + piece.weight, more=held.more + 1)
            continue
        if held is not None:
            yield held
        held = piece
    if held is not None:
        yield held


def bundled(pieces: Iterable[Piece], memory: int) -> Iterator[tuple[Piece, ...]]:
    """Group small consecutive pieces, to read and test them together."""
    held: list[Piece] = []
    rows = weight = 0
    for piece in pieces:
        rows, weight = rows + len(piece.rows), weight + piece.weight
        together = rows <= _FEW_ROWS and weight * _SHARES <= memory
        if held and not (together and piece.proven == held[0].proven and not (piece.more or held[0].more)):
            yield tuple(held)
            held, rows, weight = [], len(piece.rows), piece.weight
        held.append(piece)
    if held:
        yield tuple(held)


def _follows(held: Piece, piece: Piece, memory: int) -> bool:
    return (
        piece.task == held.task
        and piece.group == held.group + held.more + 1
        and all(p.proven and p.rows.is_full for p in (held, piece))
        and (held.weight + piece.weight) * _SHARES <= memory
    )


def has_pages(metadata: ParquetMetadata, group: int, leaves: Iterable[int]) -> bool:
    """Whether a part of the row group can be decoded by itself."""
    return all(
        page_index_ranges(metadata, group, leaf)[1] is not None
        or metadata.page_offsets(group, leaf) is not None
        for leaf in leaves
    )


def _split(rows: RowSet, size: int) -> Iterator[RowSet]:
    for first in range(0, len(rows), size):
        yield nth_rows(rows, first, min(size, len(rows) - first))


def nth_rows(rows: RowSet, first: int, count: int) -> RowSet:
    """``count`` rows of a set, starting at its ``first``."""
    window = RowSet.from_ranges(rows.total, [(rows.nth(first), rows.nth(first + count - 1) + 1)])
    return rows & window
