"""Phase two: a plan's rows as a stream of batches, pieces decoded side by side and handed on in order.

Of each piece the predicate's columns are read, rows tested, and the other columns read of those that match;
or all of them at once, where that costs less.

To count, rows that are proven to match are counted from metadata; only the others are read and tested.
"""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncGenerator, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from skipstone.core.evidence import Array
from skipstone.core.filter import RowFilter
from skipstone.core.rows import RowSet
from skipstone.engine.jobs import Engine, stream
from skipstone.errors import UsageError
from skipstone.lake.conform import conform
from skipstone.lake.files import Io
from skipstone.parquet.slice import SlicePart, pool_for_much
from skipstone.parquet.slice.columns import taken
from skipstone.report.trace import Run, ScanTrace
from skipstone.scan.parts import (
    Growth,
    Piece,
    TaskGroup,
    bundled,
    cut_task,
    merge_whole,
    nth_rows,
    shared,
    split,
)
from skipstone.scan.plan import ScanPlan, check_rows
from skipstone.scan.projection import Path, Projection, with_hidden
from skipstone.scan.reader import FileReader, Log, decode_all, filtered, joined

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


# Batches much smaller than asked for are joined, down to this share of the size asked for.
_SMALL = 8
_FIRST_ROWS = 8_192
_TRIED = 3
_FOOTERS_AHEAD = 32
# A row group that takes more than this share of the memory is decoded a batch at a time.
_TOO_LARGE = 2
# Far away, requests side by side gain more than that, up to so many times the memory.
_FAR_TOO_LARGE = 4
_MANY = 4
_PHASES_WEIGHT = 1_000
# Rows that decode to more bytes than this are tested before their other columns are decoded.
_DECODE_TWICE = 512 * 1024
# A table of more bytes than this is decoded into a memory pool of its own; a value takes about 16 bytes.
_MUCH = 128 * 1024 * 1024
_VALUE_BYTES = 16


def execute(plan: ScanPlan, columns: Sequence[str] | None = None) -> Execution:
    """Read the rows of a plan; ``columns`` reads others of the same rows."""
    if not isinstance(plan, ScanPlan):
        raise UsageError(
            f"can't execute a {type(plan).__name__}", hint="give a plan, as scan.plan() makes it"
        )
    return Execution(plan.with_columns(columns))


class Execution:
    """The answer of a plan, read when it is asked for; each way of asking reads it again."""

    __slots__ = ("_ran", "plan")

    def __init__(self, plan: ScanPlan) -> None:
        self.plan = plan
        self._ran: tuple[Work | None, int, int, float, Io] | None = None

    @property
    def schema(self) -> pa.Schema:
        """The schema of the answer."""
        return self.plan.schema

    @property
    def trace(self) -> ScanTrace:
        """The plan's trace, with what the last finished run did."""
        return replace(self.plan.trace, run=self._run())

    def _run(self) -> Run | None:
        if self._ran is None:
            return None
        work, rows, batches, seconds, io = self._ran
        done, phases = (0, ()) if work is None else (work.done, work.log.phases())
        return Run(rows, batches, done, seconds, io.requests, io.bytes, phases)

    # -- ways to take it ---------------------------------------------------------------------

    def to_arrow(self) -> pa.Table:
        """All rows as a table."""
        if not self.plan.tasks:
            self._ran = None, 0, 0, 0.0, Io()
            return pa.Table.from_batches([], self.schema)
        found = [table for table in self._tables(_pool_of(self.plan)) if table.num_rows]
        # Not schema.empty_table(), which knows no extension type inside of another type.
        return joined(found) if found else pa.Table.from_batches([], self.schema)

    read_all = to_arrow

    def to_batches(self) -> Generator[pa.RecordBatch]:
        """Batches as they are read; closing the generator stops reading."""
        with closing(self._tables()) as tables:
            yield from _batches(tables, self.plan.options.batch_rows)

    def to_reader(self) -> pa.RecordBatchReader:
        """A stream of batches that any Arrow library can read; it reads no further than it is consumed."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self.to_batches()

    async def to_batches_async(self) -> AsyncGenerator[pa.RecordBatch]:
        """Batches without blocking the event loop; cancelling stops reading."""
        import asyncio

        batches = self.to_batches()
        inside = threading.Lock()

        def step() -> pa.RecordBatch | None:
            with inside:
                return next(batches, None)

        def stop() -> None:
            with inside:  # not before the thread that is in it has come out
                batches.close()

        try:
            while (batch := await asyncio.to_thread(step)) is not None:
                yield batch
        finally:
            # Not waited for: whoever leaves may be on the way out of the event loop.
            asyncio.get_running_loop().run_in_executor(None, stop)

    def to_polars(self) -> pl.DataFrame:
        """All rows as a Polars frame."""
        import polars as pl

        frame = pl.from_arrow(self.to_arrow())
        assert isinstance(frame, pl.DataFrame)
        return frame

    def to_pandas(self, **options: Any) -> pd.DataFrame:
        """All rows as a pandas frame; ``options`` go to pyarrow."""
        return self.to_arrow().to_pandas(**options)

    # -- running -----------------------------------------------------------------------------

    def _tables(self, pool: pa.MemoryPool | None = None) -> Generator[pa.Table]:
        plan = self.plan
        work = Work(plan, pool=pool)
        began, before = time.perf_counter(), plan.files.io()
        rows = batches = 0
        if plan.order:
            from skipstone.scan.sort import sorted_rows

            tables = sorted_rows(work)
        else:
            tables = _unordered(work)
        limit = plan.limit
        try:
            for found in tables if limit != 0 and plan.tasks else ():
                table = found
                if limit is not None and rows + found.num_rows > limit:
                    table = found.slice(0, limit - rows)
                yield table
                rows += table.num_rows
                batches += 1
                if rows == limit:
                    break
        finally:
            tables.close()
        self._ran = (work, rows, batches, time.perf_counter() - began, plan.files.io() - before)


def _pool_of(plan: ScanPlan) -> pa.MemoryPool | None:
    """Memory pool for a table of all rows; streams use pyarrow's default, where their peak is lower."""
    rows = sum([len(task.rows) for task in plan.tasks])
    if plan.limit is not None:
        rows = min(rows, plan.limit)
    return pool_for_much() if rows * len(plan.projection.names) * _VALUE_BYTES > _MUCH else None


def _unordered(work: Work) -> Generator[pa.Table]:
    """The rows as they come: by path and position."""
    plan = work.plan
    bundles: Iterator[Sequence[Piece]]
    if plan.limit is not None and work.tests:
        # The first few pieces are small: they may be all it takes.
        bundles = ((piece,) for piece in work.pieces(work.both, Growth(_FIRST_ROWS)))
        for pieces in islice(bundles, _TRIED):
            yield from _each(work.tables(pieces))
    else:
        bundles = work.bundles()
    threads = plan.hints.threads
    if threads <= 1:
        for pieces in bundles:
            yield from _each(work.tables(pieces))
        return
    found = stream(work.tables, bundles, threads=threads, weigh=work.weigh, budget=plan.options.memory)
    with closing(found):  # type: ignore[type-var]
        for tables in found:
            yield from _each(tables)


def _each(tables: pa.Table | Generator[pa.Table]) -> Iterable[pa.Table]:
    """A table, or those of a piece that is decoded in the consumer's own time."""
    return (tables,) if isinstance(tables, pa.Table) else tables


def _batches(tables: Iterator[pa.Table], most: int) -> Generator[pa.RecordBatch]:
    """Tables as batches of at most ``most`` rows; small ones in a row are joined."""
    waiting: list[pa.Table] = []
    count = 0
    for table in tables:
        if not table.num_rows:
            continue
        waiting.append(table)
        count += table.num_rows
        if count * _SMALL >= most:
            yield from _cut(waiting, most)
            waiting, count = [], 0
    if waiting:
        yield from _cut(waiting, most)


def _cut(tables: list[pa.Table], most: int) -> Iterator[pa.RecordBatch]:
    whole = joined(tables)
    if len(tables) > 1 and whole.num_rows <= most and whole.num_columns:
        whole = whole.combine_chunks()
    if whole.num_columns:
        yield from whole.to_batches(max_chunksize=most)
        return
    # A table without columns can't be cut.
    for start in range(0, whole.num_rows, most):
        count = min(most, whole.num_rows - start)
        yield pa.RecordBatch.from_arrays([pa.nulls(count)], [""]).select([])


# -- pieces ------------------------------------------------------------------------------------


@dataclass(slots=True)
class Work:
    """A plan being carried out: readers of its files, its filter, and what has been done."""

    plan: ScanPlan
    log: Log = field(default_factory=Log)
    pool: pa.MemoryPool | None = None
    """Memory pool to decode into; None is pyarrow's default."""
    filter: RowFilter | None = field(init=False)
    schema: pa.Schema = field(init=False)
    """The lake's columns, and those that it has no more but that tell deleted rows."""
    tested: tuple[Path, ...] = field(init=False)
    """What the predicate reads, and what tells deleted rows."""
    both: Projection = field(init=False)
    """The wanted columns and the tested ones."""
    tests: bool = field(init=False)
    """Whether there are rows to test."""
    _done: list[int] = field(default_factory=list)
    _readers: dict[int, FileReader] = field(default_factory=dict)

    def __post_init__(self) -> None:
        plan = self.plan
        self.filter = plan.filter if plan.residual is not None else None
        self.tested = () if self.filter is None else self.filter.columns
        self.schema = plan.schemas.read
        deletes = dict.fromkeys([anti for task in plan.tasks for anti in task.deleted])
        if deletes:
            self.schema = with_hidden(self.schema, deletes)
            more = [path for anti in deletes for path in anti.columns]
            self.tested = tuple(dict.fromkeys([*self.tested, *more]))
        self.tests = self.filter is not None or bool(deletes)
        self.both = plan.projection
        if not set(self.tested).issubset(plan.projection.paths):
            self.both = Projection.of(self.schema, [*plan.projection.paths, *self.tested])

    @property
    def done(self) -> int:
        """Pieces that were read."""
        return sum(self._done)

    def count_piece(self) -> None:
        """One more piece is read."""
        self._done.append(1)

    def reader(self, task: int) -> FileReader:
        """The reader of a task's file."""
        found = self._readers.get(task)
        if found is None:
            plan, chosen = self.plan, self.plan.tasks[task]
            options = plan.options
            found = FileReader.open(
                plan.files,
                chosen.entry,
                chosen.partition,
                options.route,
                options.checksums,
                self.log,
                self.pool,
            )
            check_rows(chosen.path, found.metadata.num_rows, chosen.rows.total)
            self._readers[task] = found
        return found

    def pieces(self, wanted: Projection, growth: Growth | None = None) -> Iterator[Piece]:
        """Every piece of the plan in order."""
        plan = self.plan
        for number, task in enumerate(plan.tasks):
            if number % _FOOTERS_AHEAD == 0 and len(plan.tasks) > 1:
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
        local = plan.files.store.local
        # Of few files the row groups are better shared out among the threads.
        many = len(plan.tasks) >= _MANY * plan.hints.threads
        if local and many and plan.options.route != "slice":
            pieces = merge_whole(pieces, plan.options.memory)
        # Far away, requests side by side gain more than decoding at once.
        return bundled(pieces, plan.options.memory if local else 0)

    def too_large(self, pieces: Sequence[Piece]) -> bool:
        """Whether to decode a piece in the consumer's own time, batch by batch."""
        piece, memory = pieces[0], self.plan.options.memory
        if piece.weight * _TOO_LARGE <= memory:
            return False
        return piece.weight > _FAR_TOO_LARGE * memory or self.reader(piece.task).opens

    def tables(self, pieces: Sequence[Piece]) -> pa.Table | Generator[pa.Table]:
        """The matching rows of pieces: at once, or, where that would be too much, a few at a time."""
        self._done.append(len(pieces))
        return self.stream(pieces[0]) if self.too_large(pieces) else self.table(pieces)

    def weigh(self, pieces: Sequence[Piece]) -> int:
        """About how many bytes pieces take when they are decoded at once."""
        return 0 if self.too_large(pieces) else sum([piece.weight for piece in pieces])

    def table(self, pieces: Sequence[Piece]) -> pa.Table:
        """The matching rows of pieces, in the wanted columns; all of them are proven, or none."""
        wanted = self.plan.projection
        if pieces[0].proven:
            return self._read_all(pieces, None, wanted, "rows")
        if self.plan.hints.materialise == "late":
            return self._matches(pieces, wanted)[1]
        return self._one_pass(pieces, wanted)

    def _one_pass(self, pieces: Sequence[Piece], wanted: Projection) -> pa.Table:
        """Everything is fetched at once, though other columns may be decoded no further than rows match."""
        began = time.perf_counter()
        places = self._places(pieces)
        found = [reader.fetch(group, rows, self.both) for reader, group, rows in places]
        if len(found) == 1 and isinstance(found[0], SlicePart) and pieces[0].weight > _DECODE_TWICE:
            table = self._decode_matching(pieces[0], found[0], wanted)
            if table is not None:
                self.log.add("rows", len(pieces[0].rows), time.perf_counter() - began)
                return table
        table = decode_all(found, places, self.both)
        self.log.add("rows", table.num_rows, time.perf_counter() - began)
        return self._to_wanted(filtered(table, self._mask(pieces, table)), pieces[0], wanted)

    def _decode_matching(self, piece: Piece, part: SlicePart, wanted: Projection) -> pa.Table | None:
        """The matching rows of a part; None where all its columns have to be decoded together."""
        phases = self._two_phases(wanted)
        if not phases.rest.paths or not part.projection.flat:
            return None
        first, rest = self.reader(piece.task).decode_matching(
            part, phases.first, phases.rest, lambda table: self._mask([piece], table).nonzero()[0]
        )
        if rest is None:
            return pa.Table.from_batches([], wanted.schema)
        return self._to_wanted(phases.joined(first, rest, wanted), piece, wanted)

    def matches(self, piece: Piece, wanted: Projection) -> tuple[RowSet, pa.Table]:
        """The rows of a piece that match, counted within the row group, and the wanted columns of them."""
        rows, table = self._matches([piece], wanted)
        return rows[0], table

    def _matches(self, pieces: Sequence[Piece], wanted: Projection) -> tuple[list[RowSet], pa.Table]:
        """Columns of the predicate are read for all rows, others for matching rows; none is read twice."""
        phases = self._two_phases(wanted)
        rest = phases.rest
        found = self._read_all(pieces, None, phases.first, "predicate columns")
        found, rows = self._matching(pieces, found)
        left = [at for at, mine in enumerate(rows) if len(mine)]
        if rest.paths and left:
            payload = self._read_all(
                [pieces[at] for at in left], [rows[at] for at in left], rest, "other columns"
            )
            found = phases.joined(found, payload, wanted)
        return rows, self._to_wanted(found, pieces[0], wanted)

    def _matching(self, pieces: Sequence[Piece], table: pa.Table) -> tuple[pa.Table, list[RowSet]]:
        """The matching rows of a table, and where they are in each piece's row group."""
        chosen = self._mask(pieces, table).nonzero()[0]
        rows: list[RowSet] = []
        start = 0
        for piece in pieces:
            stop = start + len(piece.rows)
            mine = chosen if len(pieces) == 1 else chosen[slice(*chosen.searchsorted((start, stop)))] - start
            rows.append(select(piece.rows, mine))
            start = stop
        return taken(table, chosen), rows

    def _two_phases(self, wanted: Projection) -> TwoPhases:
        """Which columns are read of all rows, and which of matching ones."""
        key = (TwoPhases, wanted.paths, self.tested)
        cache = self.plan.files.cache
        found: TwoPhases | None = cache.get(key)
        if found is None or found.schema is not self.schema:
            found = TwoPhases.of(self.schema, self.tested, wanted)
            cache.put(key, found, _PHASES_WEIGHT)
        return found

    def stream(self, piece: Piece) -> Generator[pa.Table]:
        """The matching rows of a piece, a few at a time."""
        reader = self.reader(piece.task)
        wanted = self.plan.projection if piece.proven else self.both
        first = 0
        for table in reader.batches(piece.group, piece.rows, wanted, self.plan.options.batch_rows):
            self.log.add("rows", len(table), 0.0)
            chosen = table if piece.proven else filtered(table, self._mask([piece], table, first))
            yield self._to_wanted(chosen, piece, self.plan.projection)
            first += len(table)

    def read(self, piece: Piece, rows: RowSet, wanted: Projection, phase: str) -> pa.Table:
        """Columns of some rows of a piece."""
        return self._read_all([piece], [rows], wanted, phase)

    def _read_all(
        self, pieces: Sequence[Piece], some: Sequence[RowSet] | None, wanted: Projection, phase: str
    ) -> pa.Table:
        """Columns of all rows of pieces, or of some rows of each, one piece after the other."""
        began = time.perf_counter()
        piece = pieces[0]
        if piece.more:
            groups = range(piece.group, piece.group + piece.more + 1)
            table = self.reader(piece.task).read_whole(groups, wanted, phase)
        else:
            places = self._places(pieces, some)
            found = [reader.fetch(group, rows, wanted, phase) for reader, group, rows in places]
            table = decode_all(found, places, wanted)
        self.log.add(phase, table.num_rows, time.perf_counter() - began)
        return table

    def _mask(self, pieces: Sequence[Piece], table: pa.Table, skipped: int = 0) -> Array:
        """Which rows of pieces match and are not deleted; of one piece, the first may have been looked at."""
        began = time.perf_counter()
        mask: Array
        mask = np.ones(len(table), dtype=bool) if self.filter is None else self.filter.mask(table)
        first = 0
        for piece in pieces:
            deleted = self.plan.tasks[piece.task].deleted
            last = first + len(piece.rows) if len(pieces) > 1 else len(table)
            for anti in deleted:
                places = partial(self._positions, piece, skipped, last - first)
                part = table.slice(first, last - first)
                mask[first:last] &= ~anti.deleted(part, self.plan.files, places)
            first = last
        self.log.add("filter", int(np.count_nonzero(mask)), time.perf_counter() - began)
        return mask

    def _places(
        self, pieces: Sequence[Piece], some: Sequence[RowSet] | None = None
    ) -> list[tuple[FileReader, int, RowSet]]:
        """Where pieces are read: the reader of the file, the row group, and all of the rows or some."""
        if some is None:
            return [(self.reader(piece.task), piece.group, piece.rows) for piece in pieces]
        return [(self.reader(p.task), p.group, rows) for p, rows in zip(pieces, some, strict=True)]

    def _positions(self, piece: Piece, skipped: int, count: int) -> Array:
        """Where in the file some rows of a piece are."""
        start = int(self.reader(piece.task).metadata.row_group_starts[piece.group])
        if piece.rows.is_full:
            return np.arange(start + skipped, start + skipped + count)
        rows = piece.rows if count == len(piece.rows) else nth_rows(piece.rows, skipped, count)
        return rows.positions() + start

    def _to_wanted(self, table: pa.Table, piece: Piece, wanted: Projection) -> pa.Table:
        """Only the wanted columns, in their order, of a table in the lake's types."""
        if table.schema.equals(wanted.schema, check_metadata=True):
            return table
        path, evolution = self.plan.tasks[piece.task].path, self.plan.files.evolution
        return conform(table, wanted.schema, path=path, evolution=evolution)


def select(rows: RowSet, chosen: Array) -> RowSet:
    """The rows at the chosen places, in rising order, of a row set."""
    if len(chosen) == len(rows):
        return rows
    if rows.is_full:
        return RowSet.from_positions(rows.total, chosen)
    starts = rows.runs()[0]
    if len(starts) == 1:
        return RowSet.from_positions(rows.total, chosen + starts)
    return RowSet.from_positions(rows.total, rows.positions()[chosen])


@dataclass(slots=True, eq=False)
class TwoPhases:
    """What is read of all rows and what of matching ones, and where the wanted columns are in both."""

    schema: pa.Schema
    """The lake's."""
    first: Projection
    rest: Projection
    order: list[int] | None
    """None where a column has more in it than is wanted."""

    @classmethod
    def of(cls, schema: pa.Schema, tested: Sequence[Path], wanted: Projection) -> TwoPhases:
        tops = {path[0] for path in tested}
        first = Projection.of(schema, [*tested, *(path for path in wanted.paths if path[0] in tops)])
        rest = wanted.without(tops, schema)
        fields = {name.name: (at, name) for at, name in enumerate([*first.schema, *rest.schema])}
        order = [fields[name.name][0] for name in wanted.schema if fields[name.name][1].equals(name, True)]
        return cls(schema, first, rest, order if len(order) == len(wanted.schema) else None)

    def joined(self, first: pa.Table, rest: pa.Table, wanted: Projection) -> pa.Table:
        """The wanted columns of two tables of the same rows."""
        columns = [*first.columns, *rest.columns]
        if self.order is not None:
            return pa.Table.from_arrays([columns[at] for at in self.order], schema=wanted.schema)
        return pa.Table.from_arrays(columns, schema=pa.schema([*first.schema, *rest.schema]))


def count_on(plan: ScanPlan, engine: Engine) -> int:
    """``count_rows`` by an engine's tasks, each of which counts a part of the plan."""
    if plan.limit is not None or not any(task.residual for task in plan.tasks):
        return count_rows(plan)
    open_tasks = tuple(task for task in plan.tasks if task.residual)
    proven = sum(len(task.proven) for task in plan.tasks if not task.residual)
    parts = split(plan.changed(tasks=open_tasks), engine.parallelism)
    common = shared(plan)
    return proven + sum(engine.map(_count_part, [(common, part) for part in parts]))


def _count_part(work: tuple[ScanPlan, TaskGroup]) -> int:
    common, part = work
    return count_rows(replace(common, tasks=part))


def count_rows(plan: ScanPlan) -> int:
    """How many rows the plan's answer has."""
    proven = sum(len(task.proven) for task in plan.tasks)
    if plan.limit is not None and proven >= plan.limit:
        return plan.limit
    open_tasks = tuple(
        replace(task, rows=task.rows - task.proven, proven=task.proven - task.proven)
        for task in plan.tasks
        if task.residual
    )
    nothing = Projection.of(plan.schemas.read, [])
    work = Work(plan.changed(tasks=open_tasks, projection=nothing))

    def matching(pieces: Sequence[Piece]) -> int:
        found = work.tables(pieces)
        return len(found) if isinstance(found, pa.Table) else sum(map(len, found))

    pieces = ((piece,) for piece in work.pieces(work.both))
    threads, budget = plan.hints.threads, plan.options.memory
    total = proven
    for found in stream(matching, pieces, threads=threads, weigh=work.weigh, budget=budget):
        total += found
        if plan.limit is not None and total >= plan.limit:
            return plan.limit
    return total
