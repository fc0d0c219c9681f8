"""Phase two: reads a plan's rows as a stream of batches. Pieces are decoded in parallel, delivered in order.

For each piece, the predicate's columns are read and tested, then the other columns of the matching rows; all
columns are read at once where that costs less.

Counting takes rows that are proven to match from metadata, and reads and tests only the others.
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

from skipstone.core.arrays import slice_columns, without_offsets
from skipstone.core.evidence import Array
from skipstone.core.filter import RowFilter
from skipstone.core.rows import RowSet
from skipstone.engine.jobs import Engine, stream
from skipstone.errors import CorruptFileError, UsageError, require
from skipstone.lake.conform import conform
from skipstone.lake.files import Io
from skipstone.parquet.metadata import ParquetMetadata, check_together
from skipstone.parquet.recorded import RecordedMetadata
from skipstone.parquet.slice import SlicePart, pool_for_much
from skipstone.parquet.slice.columns import taken
from skipstone.report import Traced
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


# Batches smaller than the requested size divided by this are joined.
_SMALL = 8
_FIRST_ROWS = 8_192
_TRIED = 3
_FOOTERS_AHEAD = 32
# Footers whose chunks are checked in less time together.
_CHECKED_TOGETHER = 8
# A row group larger than the memory divided by this is decoded a batch at a time.
_TOO_LARGE = 2
# Remote files gain more from parallel requests, up to this many times the memory.
_FAR_TOO_LARGE = 4
_MANY = 4
_PHASES_WEIGHT = 1_000
# Rows that decode to more bytes than this are tested before their other columns are decoded.
_DECODE_TWICE = 512 * 1024
# A table of more bytes than this is decoded into a memory pool of its own; a value takes about 16 bytes.
_MUCH = 128 * 1024 * 1024
_VALUE_BYTES = 16


def execute(plan: ScanPlan, columns: Sequence[str] | None = None) -> Execution:
    """Read the rows of a plan.

    Args:
        plan: A plan, as [Scan.plan][skipstone.Scan.plan] returns it.
        columns: Columns to read instead of those of the plan.

    Examples:
        >>> import skipstone as sk
        >>> lake = sk.open("events")
        >>> plan = lake.scan("event_id < 8").plan() - lake.scan("country = 'DE'").plan()
        >>> sk.execute(plan, columns=["event_id"]).to_arrow()["event_id"].to_pylist()
        [1, 2, 3, 5, 6, 7]
    """
    if not isinstance(plan, ScanPlan):
        raise UsageError(f"can't execute a {type(plan).__name__}", hint="pass the result of scan.plan()")
    return Execution(plan.with_columns(columns))


class Execution(Traced):
    """The result of a plan; each method reads the rows again.

    Examples:
        >>> import skipstone as sk
        >>> result = sk.open("events").scan("event_id < 3").execute()
        >>> result.to_arrow().num_rows, result.trace.run.rows
        (3, 3)
    """

    __slots__ = ("_ran", "plan")
    _internal = frozenset({"explained", "plan", "read_all"})

    def __init__(self, plan: ScanPlan) -> None:
        self.plan = plan
        self._ran: tuple[Work | None, int, int, float, Io] | None = None

    @property
    def schema(self) -> pa.Schema:
        """The schema of the result."""
        return self.plan.schema

    @property
    def trace(self) -> ScanTrace:
        """The trace of the plan, with the cost of the last finished run."""
        return replace(self.plan.trace, run=self._run())

    def explained(self) -> ScanTrace:
        """The trace with a forecast of what is read."""
        from skipstone.scan.forecast import forecast

        trace = self.trace
        read = trace.run.bytes if trace.run is not None else 0
        return replace(trace, reads=forecast(self.plan, read))

    def _run(self) -> Run | None:
        if self._ran is None:
            return None
        work, rows, batches, seconds, io = self._ran
        done, phases = (0, ()) if work is None else (work.done, work.log.phases())
        data = sum(phase.bytes for phase in phases)
        return Run(rows, batches, done, seconds, io.requests, data, phases, io.bytes)

    # -- results -----------------------------------------------------------------------------

    def to_arrow(self) -> pa.Table:
        """Return all rows as an Arrow table."""
        if not self.plan.tasks:
            self._ran = None, 0, 0, 0.0, Io()
            return pa.Table.from_batches([], self.schema)
        tables = [table for table in self._tables(_pool_of(self.plan)) if table.num_rows]
        # Not schema.empty_table(), which does not support nested extension types.
        if not tables:
            return pa.Table.from_batches([], self.schema)
        whole, sliced = joined(tables), self.plan.projection.sliced
        if sliced is None:
            sliced = slice_columns(whole.schema)
        if not sliced:
            return whole
        # As batches: a stream of a table slices the columns that have larger chunks than others.
        batches = [without_offsets(batch, sliced) for batch in whole.to_batches()]
        return pa.Table.from_batches(batches, whole.schema)

    read_all = to_arrow

    def to_batches(self) -> Generator[pa.RecordBatch]:
        """Yield Arrow batches; closing the generator stops reading."""
        sliced = self.plan.projection.sliced
        if sliced is None:
            sliced = slice_columns(self.schema)
        with closing(self._tables()) as tables:
            for batch in _batches(tables, self.plan.options.batch_rows):
                yield without_offsets(batch, sliced) if sliced else batch

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a stream of Arrow batches, which reads no further than it is consumed."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self.to_batches()

    async def to_batches_async(self) -> AsyncGenerator[pa.RecordBatch]:
        """Yield Arrow batches without blocking the event loop; cancelling stops reading."""
        import asyncio

        batches = self.to_batches()
        inside = threading.Lock()

        def step() -> pa.RecordBatch | None:
            with inside:
                return next(batches, None)

        def stop() -> None:
            with inside:  # wait for a step that is running
                batches.close()

        try:
            while (batch := await asyncio.to_thread(step)) is not None:
                yield batch
        finally:
            # Not awaited: the event loop may be closing.
            asyncio.get_running_loop().run_in_executor(None, stop)

    def to_polars(self) -> pl.DataFrame:
        """Return all rows as a Polars data frame."""
        require("polars")
        import polars as pl

        frame = pl.from_arrow(self.to_arrow())
        assert isinstance(frame, pl.DataFrame)
        return frame

    def to_pandas(self, *, arrow_types: bool = False, **options: Any) -> pd.DataFrame:
        """Return all rows as a pandas data frame.

        Args:
            arrow_types: Give columns the types of Arrow (``pandas.ArrowDtype``), which keep integers with
                NULLs, decimals, dates and nested values as they are.
            **options: Arguments of ``pyarrow.Table.to_pandas``.
        """
        require("pandas")
        if arrow_types:
            import pandas as pd

            options = {**options, "types_mapper": pd.ArrowDtype}
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
        limit, computed = plan.limit, plan.projection.computed
        try:
            for full in tables if limit != 0 and plan.tasks else ():
                table = full
                if limit is not None and rows + full.num_rows > limit:
                    table = full.slice(0, limit - rows)
                yield table if computed is None else computed.compute(table)
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
    """Rows ordered by path and position."""
    plan = work.plan
    bundles: Iterator[Sequence[Piece]]
    if plan.limit is not None and work.tests:
        # The first few pieces are small: they may reach the limit.
        bundles = ((piece,) for piece in work.pieces(work.both, Growth(_FIRST_ROWS)))
        for pieces in islice(bundles, _TRIED):
            yield from each(work.tables(pieces))
    else:
        bundles = work.bundles()
    threads = plan.hints.threads
    if threads <= 1:
        for pieces in bundles:
            yield from each(work.tables(pieces))
        return
    results = stream(work.tables, bundles, threads=threads, weigh=work.weigh, budget=plan.options.memory)
    with closing(results):  # type: ignore[type-var]
        for tables in results:
            yield from each(tables)


def each(tables: pa.Table | Generator[pa.Table]) -> Iterable[pa.Table]:
    """One table, or the tables of a piece that is decoded as it is consumed."""
    return (tables,) if isinstance(tables, pa.Table) else tables


def _batches(tables: Iterator[pa.Table], most: int) -> Generator[pa.RecordBatch]:
    """Tables as batches of at most ``most`` rows; consecutive small tables are joined."""
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
    if whole.num_rows <= most and whole.num_columns and whole.column(0).num_chunks > 1:
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
    """A running plan: readers of its files, its filter and its log."""

    plan: ScanPlan
    log: Log = field(default_factory=Log)
    pool: pa.MemoryPool | None = None
    """Memory pool to decode into; None is pyarrow's default."""
    filter: RowFilter | None = field(init=False)
    schema: pa.Schema = field(init=False)
    """The lake's columns, and dropped columns that equality deletes still refer to."""
    tested: tuple[Path, ...] = field(init=False)
    """Columns of the predicate and of equality deletes."""
    both: Projection = field(init=False)
    """Requested and tested columns."""
    tests: bool = field(init=False)
    """Whether any rows must be tested."""
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
        """Count one more piece as read."""
        self._done.append(1)

    def reader(self, task: int) -> FileReader:
        """The reader of a task's file."""
        reader = self._readers.get(task)
        if reader is None:
            plan, chosen = self.plan, self.plan.tasks[task]
            options = plan.options
            reader = FileReader.open(
                plan.files,
                chosen.entry,
                chosen.partition,
                options.route,
                options.checksums,
                self.log,
                self.pool,
            )
            check_rows(chosen.path, reader.metadata.num_rows, chosen.rows.total)
            self._readers[task] = reader
        return reader

    def pieces(self, wanted: Projection, growth: Growth | None = None) -> Iterator[Piece]:
        """All pieces of the plan in order."""
        plan = self.plan
        for number, task in enumerate(plan.tasks):
            if number % _FOOTERS_AHEAD == 0 and len(plan.tasks) > 1:
                ahead = plan.tasks[number : number + _FOOTERS_AHEAD]
                layouts = plan.files.layouts([t.entry for t in ahead])
                if len(layouts) >= _CHECKED_TOGETHER and not isinstance(layouts[0], RecordedMetadata):
                    self._check_ahead(range(number, number + len(ahead)), wanted)
            reader = self.reader(number)
            leaves = reader.columns(wanted).leaves
            yield from cut_task(number, task, reader.metadata, leaves, plan.options.memory, growth)
            # Release the reader of a file that has been read.
            self._readers.pop(number - _FOOTERS_AHEAD, None)

    def _check_ahead(self, tasks: Iterable[int], wanted: Projection) -> None:
        """Check the chunks of many files at once."""
        kinds: dict[tuple[int, tuple[int, ...]], list[ParquetMetadata]] = {}
        for number in tasks:
            metadata, leaves = self.reader(number).metadata, self.reader(number).columns(wanted).leaves
            if not isinstance(metadata, RecordedMetadata):
                kinds.setdefault((id(metadata.schema_group), leaves), []).append(metadata)
        for (_, leaves), files in kinds.items():
            check_together(files, leaves)

    def bundles(self) -> Iterator[tuple[Piece, ...]]:
        """All pieces of the plan in order; small ones are bundled."""
        plan = self.plan
        pieces = self.pieces(self.both)
        local = plan.files.store.local
        # With few files, threads share the row groups of each.
        many = len(plan.tasks) >= _MANY * plan.hints.threads
        if local and many and plan.options.route != "slice":
            pieces = merge_whole(pieces, plan.options.memory)
        # Remote files gain more from parallel requests than from decoding together.
        return bundled(pieces, plan.options.memory if local else 0)

    def too_large(self, pieces: Sequence[Piece]) -> bool:
        """Whether a piece is decoded batch by batch, as it is consumed."""
        piece, memory = pieces[0], self.plan.options.memory
        if piece.weight * _TOO_LARGE <= memory:
            return False
        return piece.weight > _FAR_TOO_LARGE * memory or self.reader(piece.task).opens

    def tables(self, pieces: Sequence[Piece]) -> pa.Table | Generator[pa.Table]:
        """The matching rows of pieces as one table, or as several if one would be too large."""
        self._done.append(len(pieces))
        return self.stream(pieces[0]) if self.too_large(pieces) else self.table(pieces)

    def weigh(self, pieces: Sequence[Piece]) -> int:
        """Estimated decoded bytes of pieces; 0 if they are decoded batch by batch."""
        return 0 if self.too_large(pieces) else sum([piece.weight for piece in pieces])

    def table(self, pieces: Sequence[Piece]) -> pa.Table:
        """The matching rows of pieces in the requested columns; either all pieces are proven or none."""
        wanted = self.plan.projection
        try:
            if pieces[0].proven:
                return self._read_all(pieces, None, wanted, "rows")
            if self.plan.hints.materialise == "late":
                return self._matches(pieces, wanted)[1]
            return self._one_pass(pieces, wanted)
        except CorruptFileError as error:
            recorded = self._by_footers(pieces)
            if not recorded:
                raise
            table = self.table(pieces)
            _distrust(recorded, str(error))
            return table

    def _by_footers(self, pieces: Sequence[Piece]) -> list[RecordedMetadata]:
        """Read pieces by their files' footers from now on; what an index has recorded of them instead.

        Empty if it has recorded nothing, or other row groups. If reading succeeds now, not the files but the
        index is damaged.
        """
        recorded: list[RecordedMetadata] = []
        for piece in pieces:
            reader = self.reader(piece.task)
            if isinstance(reader.metadata, RecordedMetadata):
                footer = self.plan.files.footer(reader.entry)
                if not np.array_equal(footer.row_group_rows, reader.metadata.row_group_rows):
                    return []
                recorded.append(reader.metadata)
                self._readers[piece.task] = replace(reader, metadata=footer, cached=False)
        return recorded

    def _one_pass(self, pieces: Sequence[Piece], wanted: Projection) -> pa.Table:
        """Fetch all columns at once; columns without a test are decoded only up to the last match."""
        began = time.perf_counter()
        targets = self._targets(pieces)
        fetched = [reader.fetch(group, rows, self.both) for reader, group, rows in targets]
        if len(fetched) == 1 and isinstance(fetched[0], SlicePart) and pieces[0].weight > _DECODE_TWICE:
            table = self._decode_matching(pieces[0], fetched[0], wanted)
            if table is not None:
                self.log.add("rows", len(pieces[0].rows), time.perf_counter() - began)
                return table
        table = decode_all(fetched, targets, self.both)
        self.log.add("rows", table.num_rows, time.perf_counter() - began)
        return self._to_wanted(filtered(table, self._mask(pieces, table)), pieces[0], wanted)

    def _decode_matching(self, piece: Piece, part: SlicePart, wanted: Projection) -> pa.Table | None:
        """The matching rows of a part; None if all its columns must be decoded together."""
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
        """The matching rows of a piece, relative to the row group, and their requested columns."""
        try:
            rows, table = self._matches([piece], wanted)
        except CorruptFileError as error:
            recorded = self._by_footers([piece])
            if not recorded:
                raise
            found = self.matches(piece, wanted)
            _distrust(recorded, str(error))
            return found
        return rows[0], table

    def _matches(self, pieces: Sequence[Piece], wanted: Projection) -> tuple[list[RowSet], pa.Table]:
        """Read the predicate's columns of all rows, then the other columns of matching rows."""
        phases = self._two_phases(wanted)
        rest = phases.rest
        table = self._read_all(pieces, None, phases.first, "predicate columns")
        table, rows = self._matching(pieces, table)
        left = [at for at, mine in enumerate(rows) if len(mine)]
        if rest.paths and left:
            payload = self._read_all(
                [pieces[at] for at in left], [rows[at] for at in left], rest, "other columns"
            )
            table = phases.joined(table, payload, wanted)
        return rows, self._to_wanted(table, pieces[0], wanted)

    def _matching(self, pieces: Sequence[Piece], table: pa.Table) -> tuple[pa.Table, list[RowSet]]:
        """The matching rows of a table, and their positions in each piece's row group."""
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
        """The columns to read of all rows, and those to read of matching rows."""
        key = (TwoPhases, wanted.paths, self.tested)
        cache = self.plan.files.cache
        phases: TwoPhases | None = cache.get(key)
        if phases is None or phases.schema is not self.schema:
            phases = TwoPhases.of(self.schema, self.tested, wanted)
            cache.put(key, phases, _PHASES_WEIGHT)
        return phases

    def stream(self, piece: Piece) -> Generator[pa.Table]:
        """The matching rows of a piece, batch by batch."""
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
        try:
            return self._read_all([piece], [rows], wanted, phase)
        except CorruptFileError as error:
            recorded = self._by_footers([piece])
            if not recorded:
                raise
            table = self.read(piece, rows, wanted, phase)
            _distrust(recorded, str(error))
            return table

    def _read_all(
        self, pieces: Sequence[Piece], some: Sequence[RowSet] | None, wanted: Projection, phase: str
    ) -> pa.Table:
        """Columns of all rows of consecutive pieces, or of some rows of each."""
        began = time.perf_counter()
        piece = pieces[0]
        if piece.more:
            groups = range(piece.group, piece.group + piece.more + 1)
            table = self.reader(piece.task).read_whole(groups, wanted, phase)
        else:
            targets = self._targets(pieces, some)
            fetched = [reader.fetch(group, rows, wanted, phase) for reader, group, rows in targets]
            table = decode_all(fetched, targets, wanted)
        self.log.add(phase, table.num_rows, time.perf_counter() - began)
        return table

    def _mask(self, pieces: Sequence[Piece], table: pa.Table, skipped: int = 0) -> Array:
        """Mask of rows that match and are not deleted; the table begins after ``skipped`` rows of a piece."""
        began = time.perf_counter()
        mask: Array
        mask = np.ones(len(table), dtype=bool) if self.filter is None else self.filter.mask(table)
        first = 0
        for piece in pieces:
            deleted = self.plan.tasks[piece.task].deleted
            last = first + len(piece.rows) if len(pieces) > 1 else len(table)
            for anti in deleted:
                positions = partial(self._positions, piece, skipped, last - first)
                part = table.slice(first, last - first)
                mask[first:last] &= ~anti.deleted(part, self.plan.files, positions)
            first = last
        self.log.add("filter", int(np.count_nonzero(mask)), time.perf_counter() - began)
        return mask

    def _targets(
        self, pieces: Sequence[Piece], some: Sequence[RowSet] | None = None
    ) -> list[tuple[FileReader, int, RowSet]]:
        """Reader, row group and rows of each piece."""
        if some is None:
            return [(self.reader(piece.task), piece.group, piece.rows) for piece in pieces]
        return [(self.reader(p.task), p.group, rows) for p, rows in zip(pieces, some, strict=True)]

    def _positions(self, piece: Piece, skipped: int, count: int) -> Array:
        """Positions in the file of some rows of a piece."""
        start = int(self.reader(piece.task).metadata.row_group_starts[piece.group])
        if piece.rows.is_full:
            return np.arange(start + skipped, start + skipped + count)
        rows = piece.rows if count == len(piece.rows) else nth_rows(piece.rows, skipped, count)
        return rows.positions() + start

    def _to_wanted(self, table: pa.Table, piece: Piece, wanted: Projection) -> pa.Table:
        """Select and order the requested columns of a table in the lake's types."""
        if table.schema.equals(wanted.schema, check_metadata=True):
            return table
        path, evolution = self.plan.tasks[piece.task].path, self.plan.files.evolution
        return conform(table, wanted.schema, path=path, evolution=evolution)


def _distrust(recorded: Iterable[RecordedMetadata], problem: str) -> None:
    for metadata in recorded:
        metadata.distrust(f"{problem} (read without the index)")


def select(rows: RowSet, chosen: Array) -> RowSet:
    """The rows at ascending positions within a row set."""
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
    """Columns read of all rows, columns read of matching rows, and the order of the result."""

    schema: pa.Schema
    """The lake's."""
    first: Projection
    rest: Projection
    order: list[int] | None
    """None if a column has fields that were not requested."""

    @classmethod
    def of(cls, schema: pa.Schema, tested: Sequence[Path], wanted: Projection) -> TwoPhases:
        tops = {path[0] for path in tested}
        first = Projection.of(schema, [*tested, *(path for path in wanted.paths if path[0] in tops)])
        rest = wanted.without(tops, schema)
        fields = {name.name: (at, name) for at, name in enumerate([*first.schema, *rest.schema])}
        order = [fields[name.name][0] for name in wanted.schema if fields[name.name][1].equals(name, True)]
        return cls(schema, first, rest, order if len(order) == len(wanted.schema) else None)

    def joined(self, first: pa.Table, rest: pa.Table, wanted: Projection) -> pa.Table:
        """The requested columns of two tables of the same rows."""
        columns = [*first.columns, *rest.columns]
        if self.order is not None:
            return pa.Table.from_arrays([columns[at] for at in self.order], schema=wanted.schema)
        return pa.Table.from_arrays(columns, schema=pa.schema([*first.schema, *rest.schema]))


def count_on(plan: ScanPlan, engine: Engine) -> int:
    """``count_rows`` on an engine: each task counts a part of the plan."""
    if plan.limit is not None or not any(task.residual for task in plan.tasks):
        return count_rows(plan)
    open_tasks = tuple(task for task in plan.tasks if task.residual)
    proven = sum(len(task.proven) for task in plan.tasks if not task.residual)
    parts = split(plan.changed(tasks=open_tasks), engine.parallelism)
    common = shared(plan)
    # The plan, which can have millions of keys, is sent once for all parts.
    return proven + sum(engine.map(partial(_count_part, common), parts))


def _count_part(common: ScanPlan, part: TaskGroup) -> int:
    return count_rows(replace(common, tasks=part))


def count_rows(plan: ScanPlan) -> int:
    """Number of rows in the plan's result."""
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
        tables = work.tables(pieces)
        return len(tables) if isinstance(tables, pa.Table) else sum(map(len, tables))

    pieces = ((piece,) for piece in work.pieces(work.both))
    threads, budget = plan.hints.threads, plan.options.memory
    total = proven
    for rows in stream(matching, pieces, threads=threads, weigh=work.weigh, budget=budget):
        total += rows
        if plan.limit is not None and total >= plan.limit:
            return plan.limit
    return total
