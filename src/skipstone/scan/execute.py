"""Phase two: a plan's rows as a stream of batches, pieces decoded side by side and handed on in order."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from skipstone.engine.jobs import stream
from skipstone.errors import UsageError
from skipstone.report.trace.scan import Run, ScanTrace
from skipstone.scan.pieces import Growth, Piece
from skipstone.scan.plan import ScanPlan
from skipstone.scan.reader import joined
from skipstone.scan.work import Work

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

# Batches much smaller than asked for are joined, down to this share of the size asked for.
_SMALL = 8
_FIRST_ROWS = 8_192
_TRIED = 3


def execute(plan: ScanPlan, columns: Sequence[str] | None = None) -> Execution:
    """Read the rows of a plan; ``columns`` reads others of the same rows."""
    if not isinstance(plan, ScanPlan):
        raise UsageError(
            f"can't execute a {type(plan).__name__}", hint="give a plan, as scan.plan() makes it"
        )
    return Execution(plan.with_columns(columns))


class Execution:
    """The answer of a plan, read when it is asked for; each way of asking reads anew."""

    __slots__ = ("_run", "plan")

    def __init__(self, plan: ScanPlan) -> None:
        self.plan = plan
        self._run: Run | None = None

    @property
    def schema(self) -> pa.Schema:
        """The schema of the answer."""
        return self.plan.schema

    @property
    def trace(self) -> ScanTrace:
        """The plan's trace, with what the last finished run did."""
        return replace(self.plan.trace, run=self._run)

    # -- ways to take it ---------------------------------------------------------------------

    def to_arrow(self) -> pa.Table:
        """All rows as a table."""
        with closing(self._tables()) as tables:
            found = [table for table in tables if table.num_rows]
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

    def _tables(self) -> Generator[pa.Table]:
        plan = self.plan
        work = Work(plan)
        began, before = time.perf_counter(), plan.files.io()
        rows = batches = 0
        done = _Done()
        with closing(self._rows(work, done)) as tables:
            for table in tables:
                yield table
                rows += table.num_rows
                batches += 1
        spent = plan.files.io() - before
        self._run = Run(
            rows=rows,
            batches=batches,
            pieces=done.pieces,
            seconds=time.perf_counter() - began,
            requests=spent.requests,
            bytes=spent.bytes,
            phases=work.clock.phases(),
        )

    def _rows(self, work: Work, done: _Done) -> Generator[pa.Table]:
        plan = self.plan
        if plan.limit == 0 or not plan.tasks:
            return
        if plan.order:
            from skipstone.scan.sort import sorted_rows

            yield from sorted_rows(work, done)
            return
        missing = plan.limit
        for found in self._unordered(work, done):
            table = found if missing is None else found.slice(0, missing)
            yield table
            if missing is not None:
                missing -= table.num_rows
                if not missing:
                    return

    def _unordered(self, work: Work, done: _Done) -> Generator[pa.Table]:
        """The rows as they come: by path and position."""
        plan = self.plan

        def run(pieces: Sequence[Piece]) -> pa.Table | Generator[pa.Table]:
            for piece in pieces:
                done(piece)
            return work.tables(pieces)

        pieces = self._pieces(work)
        # With a limit and rows to test, the first few pieces are small: they may be all it takes.
        tried = islice(pieces, _TRIED if plan.limit is not None and work.tests else 0)
        yield from _flat(map(run, tried))
        found = stream(
            run,
            pieces,
            threads=plan.hints.threads,
            weigh=work.weigh,
            budget=plan.options.memory,
        )
        with closing(found):  # type: ignore[type-var]
            yield from _flat(found)

    def _pieces(self, work: Work) -> Iterator[tuple[Piece, ...]]:
        """Pieces as they are read: each by itself, or small ones together."""
        plan = self.plan
        if plan.limit is not None and work.tests:
            return ((piece,) for piece in work.pieces(work.both, Growth(_FIRST_ROWS)))
        return work.bundles()


def _flat(results: Iterable[pa.Table | Generator[pa.Table]]) -> Generator[pa.Table]:
    """Tables, and those of pieces that are decoded in the consumer's own time."""
    for result in results:
        if isinstance(result, pa.Table):
            yield result
        else:
            yield from result


class _Done:
    """Counts the pieces that were read, whatever thread reads them."""

    __slots__ = ("_pieces",)

    def __init__(self) -> None:
        self._pieces: list[Piece] = []

    def __call__(self, piece: Piece) -> None:
        self._pieces.append(piece)

    @property
    def pieces(self) -> int:
        return len(self._pieces)


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
    return iter(whole.to_batches(max_chunksize=most)) if whole.num_columns else _bare(whole.num_rows, most)


def _bare(rows: int, most: int) -> Iterator[pa.RecordBatch]:
    """Batches of no columns, which a table can't be cut into."""
    for start in range(0, rows, most):
        count = min(most, rows - start)
        yield pa.RecordBatch.from_arrays([pa.nulls(count)], [""]).select([])
