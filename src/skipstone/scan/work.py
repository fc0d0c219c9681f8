"""Phase two on one piece or a few: read what the predicate needs, keep what matches, read the rest of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, pairwise

import numpy as np
import pyarrow as pa

from skipstone.core.evidence import Array
from skipstone.core.filter import RowFilter
from skipstone.core.rows import RowSet
from skipstone.lake.conform import conform
from skipstone.report.trace.scan import Phase
from skipstone.scan.pieces import Growth, Piece, bundled, cut_task, merge_whole, nth_rows
from skipstone.scan.plan import ScanPlan, check_rows
from skipstone.scan.projection import Path, Projection, with_hidden
from skipstone.scan.reader import FileReader, Meter, cut, kept, read_together

_FOOTERS_AHEAD = 32
# A row group that takes more than this share of the memory is decoded a batch at a time.
_TOO_LARGE = 2
# Far away, requests side by side gain more than that, up to so many times the memory.
_FAR_TOO_LARGE = 4
_MANY = 4


class Clock:
    """Adds up rows and seconds per phase, over all threads."""

    __slots__ = ("_lock", "_phases")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._phases: dict[str, Phase] = {}

    def add(self, done: Phase) -> None:
        """Count what one piece did in a phase."""
        with self._lock:
            before = self._phases.get(done.name, Phase(done.name, 0, 0, 0, 0.0))
            self._phases[done.name] = Phase(
                done.name,
                before.rows + done.rows,
                before.requests + done.requests,
                before.bytes + done.bytes,
                before.seconds + done.seconds,
            )

    def phases(self) -> tuple[Phase, ...]:
        """The phases in the order they first occurred."""
        return tuple(self._phases.values())


@dataclass(slots=True)
class Work:
    """A plan being carried out: readers of its files, its filter, and what has been done."""

    plan: ScanPlan
    clock: Clock = field(default_factory=Clock)
    meter: Meter = field(default_factory=Meter)
    filter: RowFilter | None = field(init=False)
    schema: pa.Schema = field(init=False)
    """The lake's columns, and those that it has no more but that tell deleted rows."""
    tested: tuple[Path, ...] = field(init=False)
    """What the predicate reads, and what tells deleted rows."""
    both: Projection = field(init=False)
    """The wanted columns and the tested ones."""
    tests: bool = field(init=False)
    """Whether there are rows to test."""
    _readers: dict[int, FileReader] = field(default_factory=dict)

    def __post_init__(self) -> None:
        plan = self.plan
        self.filter = plan.filter if plan.residual is not None else None
        deletes = dict.fromkeys(anti for task in plan.tasks for anti in task.deleted)
        self.schema = with_hidden(plan.schemas.read, deletes)
        tested = [*(self.filter.columns if self.filter is not None else ())]
        tested += [path for anti in deletes for path in anti.columns]
        self.tested = tuple(sorted(set(tested), key=tested.index))
        self.tests = self.filter is not None or bool(deletes)
        self.both = plan.projection
        if not set(self.tested) <= set(plan.projection.paths):
            self.both = Projection.of(self.schema, [*plan.projection.paths, *self.tested])

    @property
    def late(self) -> bool:
        """Whether payload columns wait for the matching rows."""
        return self.plan.hints.materialise == "late"

    def reader(self, task: int) -> FileReader:
        """The reader of a task's file."""
        found = self._readers.get(task)
        if found is None:
            plan, options = self.plan, self.plan.options
            partition = dict(plan.tasks[task].partition)
            found = FileReader.open(
                plan.files,
                plan.tasks[task].entry,
                partition,
                options.route,
                options.checksums,
                self.meter,
            )
            check_rows(plan.tasks[task].path, found.metadata.num_rows, plan.tasks[task].rows.total)
            self._readers[task] = found
        return found

    def pieces(self, wanted: Projection, growth: Growth | None = None) -> Iterator[Piece]:
        """Every piece of the plan in order."""
        plan = self.plan
        for number, task in enumerate(plan.tasks):
            if number % _FOOTERS_AHEAD == 0:
                ahead = plan.tasks[number : number + _FOOTERS_AHEAD]
                plan.files.layouts([t.entry for t in ahead])
            reader = self.reader(number)
            leaves = reader.columns(wanted).leaves
            yield from cut_task(number, task, reader.metadata, leaves, plan.options.memory, growth)
            # A file that is done with gives back what was worked out for it.
            self._readers.pop(number - _FOOTERS_AHEAD, None)

    def bundles(self) -> Iterator[tuple[Piece, ...]]:
        """Every piece of the plan in order: each by itself, or small ones together."""
        plan = self.plan
        pieces = self.pieces(self.both)
        whole = plan.files.place.local and plan.options.route != "slice"
        # Of few files the row groups are better shared out among the threads.
        many = len(plan.tasks) >= _MANY * plan.hints.threads
        if whole and many:
            pieces = merge_whole(pieces, plan.options.memory)
        # Far away, requests side by side gain more than decoding at once.
        return bundled(pieces, plan.options.memory if plan.files.place.local else 0)

    def too_large(self, pieces: Sequence[Piece]) -> bool:
        """Whether to decode a piece in the consumer's own time, batch by batch."""
        piece, memory = pieces[0], self.plan.options.memory
        if piece.weight * _TOO_LARGE <= memory:
            return False
        return piece.weight > _FAR_TOO_LARGE * memory or self.reader(piece.task).opens

    def tables(self, pieces: Sequence[Piece]) -> pa.Table | Generator[pa.Table]:
        """The matching rows of pieces: at once, or, where that would be too much, a few at a time."""
        return self.stream(pieces[0]) if self.too_large(pieces) else self.table(pieces)

    def weigh(self, pieces: Sequence[Piece]) -> int:
        """About how many bytes pieces take when they are decoded at once."""
        return 0 if self.too_large(pieces) else sum(piece.weight for piece in pieces)

    # -- pieces ------------------------------------------------------------------------------

    def table(self, pieces: Sequence[Piece]) -> pa.Table:
        """The matching rows of pieces, in the wanted columns; all of them are proven, or none."""
        wanted, first = self.plan.projection, pieces[0]
        if first.proven:
            return self._read_all([(piece, piece.rows) for piece in pieces], wanted, "rows")
        if self.late:
            return self._matches(pieces, wanted)[1]
        whole = self._read_all([(piece, piece.rows) for piece in pieces], self.both, "rows")
        mask = self._mask(pieces, whole)
        return self._finished(first, kept(whole.select(wanted.names), mask), wanted)

    def matches(self, piece: Piece, wanted: Projection) -> tuple[RowSet, pa.Table]:
        """The rows of a piece that match, counted within the row group, and the wanted columns of them."""
        rows, table = self._matches([piece], wanted)
        return rows[0], table

    def _matches(self, pieces: Sequence[Piece], wanted: Projection) -> tuple[list[RowSet], pa.Table]:
        """Columns of the predicate are read for all rows, others for matching rows; none is read twice."""
        schema = self.schema
        tops = {path[0] for path in self.tested}
        first = Projection.of(schema, [*self.tested, *(p for p in wanted.paths if p[0] in tops)])
        found = self._read_all([(piece, piece.rows) for piece in pieces], first, "predicate columns")
        chosen = RowSet.from_mask(self._mask(pieces, found))
        found = cut(found, chosen)
        ends = [0, *accumulate(len(piece.rows) for piece in pieces)]
        rows = [
            select(piece.rows, chosen.slice(start, stop))
            for piece, (start, stop) in zip(pieces, pairwise(ends), strict=True)
        ]
        left = [(piece, mine) for piece, mine in zip(pieces, rows, strict=True) if not mine.is_empty]
        rest = wanted.without(tops, schema)
        if rest.paths and left:
            payload = self._read_all(left, rest, "other columns")
            for field in payload.schema:
                found = found.append_column(field, payload.column(field.name))
        return rows, self._finished(pieces[0], found, wanted)

    def stream(self, piece: Piece) -> Generator[pa.Table]:
        """The matching rows of a piece, a few at a time."""
        reader = self.reader(piece.task)
        wanted = self.plan.projection if piece.proven else self.both
        first = 0
        for table in reader.batches(piece.group, piece.rows, wanted, self.plan.options.batch_rows):
            self.clock.add(Phase("rows", len(table), 0, 0, 0.0))
            chosen = table if piece.proven else kept(table, self._mask([piece], table, first))
            yield self._finished(piece, chosen, self.plan.projection)
            first += len(table)

    def read(self, piece: Piece, rows: RowSet, wanted: Projection, phase: str) -> pa.Table:
        """Columns of some rows, on the clock."""
        reader = self.reader(piece.task)
        if piece.more:
            groups = range(piece.group, piece.group + piece.more + 1)
            return self._timed(phase, lambda: reader.read_whole(groups, wanted))
        return self._timed(phase, lambda: reader.read(piece.group, rows, wanted))

    def _read_all(self, parts: Sequence[tuple[Piece, RowSet]], wanted: Projection, phase: str) -> pa.Table:
        """The same of several pieces, one after the other."""
        if len(parts) == 1:
            return self.read(*parts[0], wanted, phase)
        reads = [(self.reader(piece.task), piece.group, rows) for piece, rows in parts]
        return self._timed(phase, lambda: read_together(reads, wanted))

    def _timed(self, phase: str, read: Callable[[], pa.Table]) -> pa.Table:
        began, meter = time.perf_counter(), self.meter
        requests, size = meter.requests, meter.bytes
        table = read()
        seconds = time.perf_counter() - began
        self.clock.add(Phase(phase, len(table), meter.requests - requests, meter.bytes - size, seconds))
        return table

    def _mask(self, pieces: Sequence[Piece], table: pa.Table, skipped: int = 0) -> Array:
        """Which rows of pieces match and are not deleted; of one piece, the first may have been looked at."""
        began = time.perf_counter()
        mask: Array
        mask = np.ones(len(table), dtype=bool) if self.filter is None else self.filter.mask(table)
        first = 0
        for piece in pieces:
            last = first + len(piece.rows) if len(pieces) > 1 else len(table)
            places = partial(self._places, piece, skipped, last - first)
            for anti in self.plan.tasks[piece.task].deleted:
                part = table.slice(first, last - first)
                mask[first:last] &= ~anti.deleted(part, self.plan.files, places)
            first = last
        count = int(np.count_nonzero(mask))
        self.clock.add(Phase("filter", count, 0, 0, time.perf_counter() - began))
        return mask

    def _places(self, piece: Piece, skipped: int, count: int) -> Array:
        """Where in the file some rows of a piece are."""
        start = int(self.reader(piece.task).metadata.row_group_starts[piece.group])
        if piece.rows.is_full:
            return np.arange(start + skipped, start + skipped + count)
        rows = piece.rows if count == len(piece.rows) else nth_rows(piece.rows, skipped, count)
        return rows.positions() + start

    def _finished(self, piece: Piece, table: pa.Table, wanted: Projection) -> pa.Table:
        path, evolution = self.plan.tasks[piece.task].path, self.plan.files.evolution
        return conform(table, wanted.schema, path=path, evolution=evolution)


def select(rows: RowSet, chosen: RowSet) -> RowSet:
    """The rows at the chosen places of a row set."""
    if chosen.is_full:
        return rows
    if rows.is_full:
        return chosen
    return RowSet.from_positions(rows.total, rows.positions()[chosen.positions()])
