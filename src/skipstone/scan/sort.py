"""ORDER BY, with a limit or without.

With a limit, units are visited by the bounds of the first sort key, best first, and dropped once no row of
theirs can come among the first ones any more. Only sort keys (and what the predicate needs) are read to find
the winners; their other columns are read at last, for those rows alone.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from skipstone.core.evidence import Array
from skipstone.core.rows import RowSet
from skipstone.engine.jobs import gather
from skipstone.parquet.slice.columns import take
from skipstone.scan.execute import Work
from skipstone.scan.order import sort_positions
from skipstone.scan.parts import Piece
from skipstone.scan.projection import Projection
from skipstone.scan.reader import joined
from skipstone.scan.topk import Ranked, Threshold, rank

_WIDEST = 16
_PLACE = ("skipstone task", "skipstone group", "skipstone row")


def sorted_rows(work: Work) -> Generator[pa.Table]:
    """The plan's rows in order, in batches."""
    plan = work.plan
    keys = Projection.of(plan.schemas.read, [term.path for term in plan.order])
    keyed = KeyReader(work, keys)
    best = _top(keyed, plan.limit) if plan.limit is not None else _all(keyed)
    if best is None or not best.num_rows:
        return
    step = plan.options.batch_rows
    for start in range(0, best.num_rows, step):
        yield keyed.payload(best.slice(start, step))


@dataclass(frozen=True, slots=True)
class KeyReader:
    """Reads the sort keys of matching rows, each with the place it came from."""

    work: Work
    keys: Projection

    def read(self, piece: Piece) -> pa.Table:
        """Keys and places of the rows of a piece that match."""
        work = self.work
        work.count_piece()
        if piece.proven:
            rows, table = piece.rows, work.read(piece, piece.rows, self.keys, "sort keys")
        else:
            rows, table = work.matches(piece, self.keys)
        count = len(rows)
        for name, values in zip(
            _PLACE,
            (np.full(count, piece.task), np.full(count, piece.group), rows.positions()),
            strict=True,
        ):
            table = table.append_column(name, pa.array(values, pa.int64()))
        return table

    def payload(self, chosen: pa.Table) -> pa.Table:
        """The wanted columns of the chosen rows, in their order."""
        tasks, groups, rows = (np.asarray(chosen.column(name)) for name in _PLACE)
        order = np.lexsort((rows, groups, tasks))
        edges = np.flatnonzero(np.diff(tasks[order]) | np.diff(groups[order])) + 1
        parts = np.split(order, edges)

        def read(part: Array) -> pa.Table:
            task, group = int(tasks[part[0]]), int(groups[part[0]])
            reader = self.work.reader(task)
            total = int(reader.metadata.row_group_rows[group])
            wanted = RowSet.from_positions(total, rows[part])
            return reader.read(group, wanted, self.work.plan.projection)

        tables = gather(read, parts, threads=self.work.plan.hints.threads)
        found = joined(tables)
        back = np.empty(len(order), dtype=np.int64)
        back[order] = np.arange(len(order))
        return take(found, back)


def _all(keyed: KeyReader) -> pa.Table | None:
    plan = keyed.work.plan
    pieces = list(keyed.work.pieces(keyed.keys))
    tables = gather(keyed.read, pieces, threads=plan.hints.threads)
    if not tables:
        return None
    every = joined(tables)
    return take(every, sort_positions(every, plan.order))


def _top(keyed: KeyReader, limit: int) -> pa.Table | None:
    """The first ``limit`` rows, visiting units by their bounds."""
    plan = keyed.work.plan
    threads = plan.hints.threads
    ranked = rank(keyed.work, list(keyed.work.pieces(keyed.keys)))
    threshold = Threshold(plan.order[0], limit)
    best: pa.Table | None = None
    width = threads
    while ranked and (wave := _wave(ranked, threshold, width)):
        # The first waves set the mark; if it drops few units, all the rest must be read anyway.
        width = min(width * 2, threads * _WIDEST)
        tables = gather(keyed.read, wave, threads=threads)
        found = joined([*([best] if best is not None else []), *tables])
        # By place first, so that ties are settled by path and position whatever order units came in.
        found = take(found, np.lexsort([np.asarray(found.column(name)) for name in reversed(_PLACE)]))
        best = take(found, sort_positions(found, plan.order, limit))
        threshold.update(best)
    return best


def _wave(ranked: list[Ranked], threshold: Threshold, width: int) -> list[Piece]:
    """The next units that may still hold a winner."""
    wave: list[Piece] = []
    while ranked and len(wave) < width:
        unit = ranked.pop(0)
        if threshold.beaten_by(unit):
            wave.append(unit.piece)
    return wave
