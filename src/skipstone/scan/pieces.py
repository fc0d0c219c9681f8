"""Tasks cut into pieces: the rows of one row group that are read at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from skipstone.core.rows import RowSet
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.pageindex import page_index_ranges
from skipstone.scan.plan import Task
from skipstone.scan.reader import estimate

# A piece that decodes to more than this share of the memory is cut, where pages allow it.
_SHARES = 4
_FASTER = 4
# Pieces of fewer rows than this, together, are decoded at once: each decoding has a price of its own.
_FEW_ROWS = 32_768


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Rows of one row group, counted within it; ``proven`` ones need no test."""

    task: int
    group: int
    rows: RowSet
    proven: bool
    weight: int
    more: int = 0
    """How many whole row groups after this one are read with it."""


def group_rows(metadata: ParquetMetadata, rows: RowSet) -> Iterator[tuple[int, RowSet]]:
    """A file's rows by row group, counted within the group; groups without any are left out."""
    if metadata.row_group_count == 1:
        yield from () if rows.is_empty else ((0, rows),)
        return
    starts = metadata.row_group_starts
    stops = starts + metadata.row_group_rows
    counts = rows.counts(starts, stops)
    for group in np.flatnonzero(counts).tolist():
        total = int(metadata.row_group_rows[group])
        whole = counts[group] == total
        yield group, _all(total) if whole else rows.slice(int(starts[group]), int(stops[group]))


@lru_cache(maxsize=64)
def _all(total: int) -> RowSet:
    # Row groups of one lake are mostly of one size.
    return RowSet.all(total)


class Growth:
    """Pieces that begin small and grow: where a limit is near, few rows may be enough."""

    __slots__ = ("_rows",)

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def split(self, rows: RowSet, most: int) -> Iterator[RowSet]:
        """Parts of a row group's rows, each larger than the one before, up to ``most`` rows."""
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
    leaves: Sequence[int],
    memory: int,
    growth: Growth | None,
) -> Iterator[Piece]:
    """The pieces of a task in order of rows."""
    proven: Sequence[int] = [len(task.proven)]
    if metadata.row_group_count > 1:
        starts = metadata.row_group_starts
        proven = task.proven.counts(starts, starts + metadata.row_group_rows).tolist()
    for group, rows in group_rows(metadata, task.rows):
        weight = estimate(metadata, group, leaves) * len(rows) // rows.total
        parts = max(-(-weight * _SHARES // memory), 1)
        done = proven[group] == len(rows)
        cut: Iterable[RowSet] = (rows,)
        if (parts > 1 or growth is not None) and _has_pages(metadata, group, leaves):
            most = -(-len(rows) // parts)
            cut = _split(rows, most) if growth is None else growth.split(rows, most)
        for part in cut:
            yield Piece(number, group, part, done, weight * len(part) // len(rows))


def merge_whole(pieces: Iterable[Piece], memory: int) -> Iterator[Piece]:
    """Small whole row groups of one file that need no test, read as one: an open file serves them all."""
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
    """Small pieces that follow one another, as they are read and tested together."""
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


def _has_pages(metadata: ParquetMetadata, group: int, leaves: Iterable[int]) -> bool:
    """Whether a part of the row group can be read without decoding all of it."""
    return all(
        page_index_ranges(metadata, group, leaf)[1] is not None
        or metadata.known_places(group, leaf) is not None
        for leaf in leaves
    )


def _split(rows: RowSet, size: int) -> Iterator[RowSet]:
    for first in range(0, len(rows), size):
        yield nth_rows(rows, first, min(size, len(rows) - first))


def nth_rows(rows: RowSet, first: int, count: int) -> RowSet:
    """``count`` rows of a set, from its ``first`` on."""
    window = RowSet.from_ranges(rows.total, [(rows.nth(first), rows.nth(first + count - 1) + 1)])
    return rows & window
