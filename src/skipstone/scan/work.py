"""Phase two on one piece: read what the predicate needs, keep the rows that match, read the rest of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from skipstone.evidence import Array
from skipstone.filter import RowFilter
from skipstone.lake.conform import conform
from skipstone.rows import RowSet
from skipstone.scan.pieces import Growth, Piece, cut_task
from skipstone.scan.plan import ScanPlan
from skipstone.scan.projection import Path, Projection
from skipstone.scan.reader import FileReader, Meter, cut
from skipstone.trace.scan import Phase

_FOOTERS_AHEAD = 32


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
    both: Projection = field(init=False)
    """The wanted columns and those of the predicate."""
    _readers: dict[int, FileReader] = field(default_factory=dict)

    def __post_init__(self) -> None:
        plan = self.plan
        self.filter = plan.filter if plan.residual is not None else None
        self.both = Projection.of(plan.schemas.read, [*plan.projection.paths, *self.tested])

    @property
    def tested(self) -> tuple[Path, ...]:
        """What the predicate reads."""
        return self.filter.columns if self.filter is not None else ()

    @property
    def late(self) -> bool:
        """Whether payload columns wait for the matching rows."""
        return self.plan.trace.hints.materialise == "late"

    def reader(self, task: int) -> FileReader:
        """The reader of a task's file."""
        found = self._readers.get(task)
        if found is None:
            plan, options = self.plan, self.plan.options
            partition = dict(plan.schemas.partition_of(plan.tasks[task]))
            found = FileReader.open(
                plan.files,
                plan.tasks[task].entry,
                partition,
                options.route,
                options.checksums,
                self.meter,
            )
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

    # -- one piece ---------------------------------------------------------------------------

    def table(self, piece: Piece) -> pa.Table:
        """The matching rows of a piece, in the wanted columns."""
        wanted = self.plan.projection
        if piece.proven:
            return self.read(piece, piece.rows, wanted, "rows")
        if self.late:
            return self.matches(piece, wanted)[1]
        whole = self.read(piece, piece.rows, self.both, "rows")
        return self._finished(piece, cut(whole, self._matching(whole)), wanted)

    def matches(self, piece: Piece, wanted: Projection) -> tuple[RowSet, pa.Table]:
        """The rows of a piece that match, counted within the row group, and the wanted columns of them.

        Columns of the predicate are read for all rows, the others for matching rows; none is read twice.
        """
        schema = self.plan.schemas.read
        tops = {path[0] for path in self.tested}
        first = Projection.of(schema, [*self.tested, *(p for p in wanted.paths if p[0] in tops)])
        found = self.read(piece, piece.rows, first, "predicate columns")
        chosen = self._matching(found)
        rows, found = select(piece.rows, chosen), cut(found, chosen)
        rest = wanted.without(tops, schema)
        if rest.paths and not rows.is_empty:
            payload = self.read(piece, rows, rest, "other columns")
            for field in payload.schema:
                found = found.append_column(field, payload.column(field.name))
        return rows, self._finished(piece, found, wanted)

    def stream(self, piece: Piece) -> Generator[pa.Table]:
        """The matching rows of a whole row group, a few at a time."""
        reader = self.reader(piece.task)
        wanted = self.plan.projection if piece.proven else self.both
        for table in reader.batches(piece.group, wanted, self.plan.options.batch_rows):
            self.clock.add(Phase("rows", len(table), 0, 0, 0.0))
            chosen = table if piece.proven else cut(table, self._matching(table))
            yield self._finished(piece, chosen, self.plan.projection)

    def read(self, piece: Piece, rows: RowSet, wanted: Projection, phase: str) -> pa.Table:
        """Columns of some rows, on the clock."""
        began, meter = time.perf_counter(), self.meter
        requests, size = meter.requests, meter.bytes
        reader = self.reader(piece.task)
        if piece.more:
            table = reader.read_whole(range(piece.group, piece.group + piece.more + 1), wanted)
        else:
            table = reader.read(piece.group, rows, wanted)
        seconds = time.perf_counter() - began
        self.clock.add(Phase(phase, len(table), meter.requests - requests, meter.bytes - size, seconds))
        return table

    def _matching(self, table: pa.Table) -> RowSet:
        assert self.filter is not None
        began = time.perf_counter()
        mask: Array = self.filter.mask(table)
        found = RowSet.from_mask(mask)
        self.clock.add(Phase("filter", len(found), 0, 0, time.perf_counter() - began))
        return found

    def _finished(self, piece: Piece, table: pa.Table, wanted: Projection) -> pa.Table:
        return conform(table, wanted.schema, path=self.plan.tasks[piece.task].path)


def select(rows: RowSet, chosen: RowSet) -> RowSet:
    """The rows at the chosen places of a row set."""
    if chosen.is_full:
        return rows
    if rows.is_full:
        return chosen
    return RowSet.from_positions(rows.total, rows.positions()[chosen.positions()])
