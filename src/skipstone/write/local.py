"""Local ingest: rows are surveyed, ordered and written on threads of this process.

Rows that exceed the memory limit are spilled to temporary files. As on Spark, they are then divided by ranges
of their sort keys, so that each range fits into memory and is sorted and written on its own.
"""

from __future__ import annotations

import math
import os
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa

from skipstone.core.evidence import Array
from skipstone.engine.arrow_types import (
    durations_as_int64,
    engine_schema,
    spark_json,
    to_engine_batch,
    to_stored_batch,
)
from skipstone.engine.jobs import LocalEngine, checked, stream
from skipstone.errors import SkipstoneError, UsageError, WriteError
from skipstone.parquet.write.columns import stored_schema
from skipstone.parquet.write.files import WrittenFile
from skipstone.parquet.write.layout import PageLayout
from skipstone.parquet.write.order import Cluster, is_identity, sort_indices, sort_keys, take_rows
from skipstone.parquet.write.partition import number_rows
from skipstone.write.lakes import check_names
from skipstone.write.rows import SAMPLE, FileOutput, RowSurvey, files_metadata, is_of

_SEED: Final = 7
_MEMORY_SHARE: Final = 0.25
# Rows that are gathered at a time, while others are written.
_TAKEN: Final = 1 << 17
# Arrays with 32-bit offsets hold at most 2 GiB.
_ONE_CHUNK: Final = 1 << 30

Batches = Iterable[pa.RecordBatch]


def to_batches(data: Any) -> tuple[pa.Schema, Batches, bool]:
    """Return the schema and rows of data, and whether they are in memory already; streams are not."""
    if is_of(data, "pyarrow.") and hasattr(data, "to_batches") and hasattr(data, "scanner"):
        return data.schema, data.to_batches(), False
    if isinstance(data, pa.RecordBatchReader):
        return data.schema, data, False
    from skipstone.write.frame import as_table

    table = as_table(data)
    return table.schema, table.to_batches(), True


class LocalRows:
    """Rows of Arrow batches; ``memory`` is the number of bytes to hold before they are spilled.

    Rows that are ``stored`` have the types of the files already, and can have names that differ only in case.
    """

    intervals: list[str]
    schema: pa.Schema
    engine: LocalEngine

    def __init__(
        self,
        schema: pa.Schema,
        batches: Batches,
        resident: bool = False,
        *,
        engine: LocalEngine,
        memory: int | None = None,
        stored: bool = False,
    ) -> None:
        if not stored:
            check_names(schema.names)
        if not len(schema):
            raise UsageError("data has no columns", hint="pass a table with at least one column")
        self._types = schema if stored else engine_schema(schema)
        self._batches = batches
        self.intervals = [one.name for one in self._types if pa.types.is_duration(one.type)]
        self.schema = stored_schema(durations_as_int64(self._types))
        self.engine = engine
        # Spilling rows that the caller holds would free no memory.
        self._memory = math.inf if resident else memory or memory_limit()
        self._held: list[pa.RecordBatch] = []
        self._spill: Spill | None = None

    def check(self, streaming: SkipstoneError) -> None:
        """Do nothing: every batch can be read."""

    def metadata(self, layout: PageLayout) -> tuple[tuple[str, str], ...]:
        """Return the same metadata as Spark, unless Spark lacks a type."""
        return files_metadata(spark_json(layout.stored_part(self._types)), layout)

    def survey(
        self, layout: PageLayout, to_stored: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None
    ) -> RowSurvey:
        """Read the rows once: count and sample them, and spill them if they don't fit into memory."""
        convert = to_stored or to_stored_batch
        sample = RowSample()
        size = 0
        for one in checked(self._batches):
            if not one.num_rows:
                continue
            batch = convert(to_engine_batch(one, self._types))
            sample.add(batch)
            self._held.append(batch)
            size += batch.nbytes
            if size > self._memory:
                self._spill = self._spill or Spill()
                self._spill.add(self._held)
                self._held, size = [], 0
        empty = [convert(to_stored_batch(_empty(self._types)))] if not sample.rows else []
        self._batches = ()
        return RowSurvey.of(sample.rows, sample.table(empty), layout)

    def write(
        self, survey: RowSurvey, output: FileOutput, progress: Callable[[int, int], None]
    ) -> list[WrittenFile]:
        """Write ranges of rows in parallel, each to one file or, if rows were spilled, to a few."""
        order = RowOrder.of(survey.sample, output)
        if self._spill is None:
            table = _combined(pa.Table.from_batches(self._held))
            self._held = []
            tasks = _ranges(table, order, survey.files)
        else:
            self._spill.add(self._held)
            self._held = []
            runs = self._spill.runs
            if order.keys(survey.sample):
                limit = max(int(self._memory / (2 * self.engine.parallelism)), 1)
                runs = _shuffle(self._spill, runs, survey.sample, order, limit)
            tasks = _grouped(runs, order if runs is not self._spill.runs else None, survey.files)
        threads = max(self.engine.parallelism // len(tasks), 1)
        count = _RowCount(survey.rows, progress)
        work = partial(_write, output, threads, survey.bytes / survey.rows, count)
        written = self.engine.map(work, list(enumerate(tasks)))
        return [file for files in written for file in files]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._held = []
        if self._spill is not None:
            self._spill.close()


def memory_limit() -> int:
    """Return the bytes of rows to hold before they are spilled: a share of the machine's memory."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return int(physical * _MEMORY_SHARE)


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], one.type) for one in schema], schema=schema)


class _RowCount:
    """Counts rows that all threads have written."""

    def __init__(self, total: int, progress: Callable[[int, int], None]) -> None:
        self._total, self._progress = total, progress
        self._lock = threading.Lock()
        self._rows = 0
        progress(0, total)

    def counted(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches while the job goes on."""
        for batch in checked(batches):
            yield batch
            with self._lock:
                self._rows += batch.num_rows
                self._progress(self._rows, self._total)


def _write(
    output: FileOutput, threads: int, row_bytes: float, count: _RowCount, numbered: tuple[int, TaskRows]
) -> list[WrittenFile]:
    number, task = numbered
    if output.expected is not None:
        output = replace(output, expected=task.rows * row_bytes)
    return output.write(count.counted(task.batches(threads)), f"{number:05d}-0")


class RowSample:
    """A random sample of rows: those with the smallest random numbers."""

    def __init__(self) -> None:
        self.rows = 0
        self._random = np.random.default_rng(_SEED)
        self._parts: list[pa.RecordBatch] = []
        self._numbers: list[Array] = []
        self._limit, self._count = 1.0, 0

    def add(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        numbers = self._random.random(batch.num_rows)
        chosen = np.flatnonzero(numbers < self._limit)
        self._parts.append(batch.take(pa.array(chosen)))
        self._numbers.append(numbers[chosen])
        self._count += len(chosen)
        if self._count > 2 * SAMPLE:
            self._shrink()

    def _shrink(self) -> None:
        every = np.concatenate(self._numbers)
        self._limit = float(np.partition(every, SAMPLE)[SAMPLE])
        chosen = np.flatnonzero(every < self._limit)
        self._parts = [pa.concat_batches(self._parts).take(pa.array(chosen))]
        self._numbers = [every[chosen]]
        self._count = SAMPLE

    def table(self, empty: Sequence[pa.RecordBatch] = ()) -> pa.Table:
        if self._count > SAMPLE:
            self._shrink()
        return pa.Table.from_batches([*self._parts, *empty]).combine_chunks()


# -- order -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RowOrder:
    """The order of rows: by partition, then by columns or along a curve fitted to a sample."""

    layout: PageLayout
    cluster: Cluster | None
    target: Any = None

    @classmethod
    def of(cls, sample: pa.Table, output: FileOutput) -> RowOrder:
        """Return the order of the rows of an ingest."""
        layout, target = output.layout, output.target
        curve = None if layout.curve is None else Cluster.of(sample, layout.cluster_by, layout.curve)
        return cls(layout, curve, target if target is not None and target.partition_columns else None)

    def keys(self, table: pa.Table) -> list[pa.ChunkedArray]:
        """Return columns that sort like the rows; none if they have no order."""
        keys = sort_keys(table, self.layout, self.cluster)
        if self.target is None:
            return keys
        labels = [self.target.labels(batch) for batch in table.to_batches()]
        return [pa.chunked_array(labels, pa.string()), *keys]


@dataclass(frozen=True, slots=True)
class TaskRows:
    """Rows of a task: those of a table in an order, or those of temporary files."""

    rows: int
    table: pa.Table | None = None
    order: Array | None = None
    runs: Sequence[Run] = ()
    sort: RowOrder | None = None

    def batches(self, threads: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows, which are gathered on other threads while these are written."""
        if self.table is not None:
            yield from _gather(self.table, self.order, threads)
        for run in self.runs:
            if self.sort is None or run.constant:
                yield from _read([run.path])
                continue
            table = _combined(pa.Table.from_batches(_read([run.path])))
            yield from _gather(table, sort_indices(self.sort.keys(table)), threads)


def _gather(table: pa.Table, order: Array | None, threads: int) -> Iterator[pa.RecordBatch]:
    if order is None:
        yield from table.to_batches(max_chunksize=_TAKEN)
        return
    parts = [order[start : start + _TAKEN] for start in range(0, len(order), _TAKEN)]
    take = partial(take_rows, table)
    for part in stream(take, parts, threads=threads, weigh=lambda _: 1, budget=2 * threads):
        yield from part.to_batches()


def _combined(table: pa.Table) -> pa.Table:
    """Copy the rows to one chunk, from which they are gathered faster."""
    several = any(column.num_chunks > 1 for column in table.columns)
    return table.combine_chunks() if several and table.nbytes < _ONE_CHUNK else table


def _ranges(table: pa.Table, sort: RowOrder, files: int) -> list[TaskRows]:
    """Divide the rows of a table into ranges of the same size."""
    keys = sort.keys(table)
    order = sort_indices(keys) if keys else None
    if order is not None and is_identity(order):
        order = None
    ends = [len(table) * number // files for number in range(files + 1)]
    pairs = [(start, stop) for start, stop in pairwise(ends) if stop > start]
    if order is None:
        return [TaskRows(stop - start, table.slice(start, stop - start)) for start, stop in pairs]
    return [TaskRows(stop - start, table, order[start:stop]) for start, stop in pairs]


# -- rows that don't fit into memory -----------------------------------------------------------


@dataclass(slots=True)
class Run:
    """A temporary file of rows, open for writing until it is closed."""

    path: Path
    constant: bool = False
    """Whether all rows have the same key."""
    rows: int = 0
    bytes: int = 0
    writer: Any = None

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Append rows."""
        try:
            for batch in batches:
                if self.writer is None:
                    options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
                    self.writer = pa.ipc.new_stream(str(self.path), batch.schema, options=options)
                self.writer.write_batch(batch)
                self.rows += batch.num_rows
                self.bytes += batch.nbytes
        except (OSError, pa.ArrowException) as error:
            hint = "free some space, or set TMPDIR to another directory"
            problem = f"temporary file can't be written: {error}"
            raise WriteError(problem, path=str(self.path), hint=hint) from error

    def close(self) -> None:
        """Finish the file."""
        if self.writer is not None:
            self.writer.close()


class Spill:
    """A folder of temporary files."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="skipstone-")
        self._made = 0
        self.runs: list[Run] = []

    def new(self, *, constant: bool = False) -> Run:
        """Return a new file."""
        self._made += 1
        return Run(Path(self._folder.name) / f"{self._made}.arrow", constant)

    def add(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Write rows to a new file."""
        if batches:
            self.runs.append(self.new())
            self.runs[-1].write(batches)
            self.runs[-1].close()

    def close(self) -> None:
        """Delete all files."""
        self._folder.cleanup()


def _read(files: Iterable[Path]) -> Iterator[pa.RecordBatch]:
    for path in files:
        with pa.OSFile(str(path)) as source:
            yield from checked(pa.ipc.open_stream(source))


def _grouped(runs: Sequence[Run], sort: RowOrder | None, files: int) -> list[TaskRows]:
    """Divide runs, which are in order, into tasks with about the same number of rows."""
    rows = np.array([run.rows for run in runs])
    middles = np.cumsum(rows) - rows / 2
    numbers = (middles * files / rows.sum()).astype(np.int64)
    tasks = [[run for run, at in zip(runs, numbers, strict=True) if at == number] for number in range(files)]
    return [TaskRows(sum(run.rows for run in task), runs=task, sort=sort) for task in tasks if task]


def _shuffle(spill: Spill, runs: Sequence[Run], sample: pa.Table, sort: RowOrder, limit: int) -> list[Run]:
    """Divide spilled rows by ranges of their keys, until each range has at most ``limit`` bytes."""
    ranges = math.ceil(sum(run.bytes for run in runs) / limit) + 1
    every = sum(run.rows for run in runs)
    found: list[Run] = []
    for run in _divide(spill, runs, sample, sort, ranges, limit):
        if run.bytes <= limit or run.constant or run.rows == every:
            found.append(run)
            continue
        again = RowSample()
        for batch in _read([run.path]):
            again.add(batch)
        found += _shuffle(spill, [run], again.table(), sort, limit)
    return found


def _divide(
    spill: Spill, runs: Sequence[Run], sample: pa.Table, sort: RowOrder, ranges: int, limit: int
) -> list[Run]:
    """Write the rows of each range to a file of its own, and delete the files that they were in."""
    bounds, flags, constant = _bounds(sample, sort, ranges)
    new = [spill.new(constant=flag) for flag in constant]
    try:
        for table in _tables(runs, limit):
            for run, rows in zip(new, _split(table, sort, bounds, flags), strict=True):
                run.write(rows.to_batches())
    finally:
        for run in new:
            run.close()
    for run in runs:
        run.path.unlink()
    return [run for run in new if run.rows]


def _tables(runs: Sequence[Run], limit: int) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in _read([run.path for run in runs]):
        held.append(batch)
        size += batch.nbytes
        if size >= limit:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)


_BEFORE, _ROW, _AFTER = 0, 1, 2


def _bounds(sample: pa.Table, sort: RowOrder, ranges: int) -> tuple[list[pa.ChunkedArray], Array, list[bool]]:
    """Return keys that divide the sample evenly, the side of equal rows, and which ranges have one key.

    A range begins before the rows that are equal to its bound. A bound that would begin several ranges has a
    range of its own, which ends after them: such rows need no sorting, however many there are.
    """
    keys = sort.keys(sample)
    order = sort_indices(keys)
    at = order[np.linspace(0, len(order) - 1, min(ranges, len(order)) + 1).astype(np.int64)[1:-1]]
    chosen = [key.take(pa.array(at)) for key in keys]
    codes = number_rows([key.combine_chunks() for key in chosen]) if len(at) else at
    _, firsts, counts = np.unique(codes, return_index=True, return_counts=True)
    positions, flags, constant = [], [], [False]
    for first, count in sorted(zip(firsts.tolist(), counts.tolist(), strict=True)):
        positions.append(first)
        flags.append(_BEFORE)
        constant.append(count > 1)
        if count > 1:
            positions.append(first)
            flags.append(_AFTER)
            constant.append(False)
    picked = pa.array(positions, pa.int64())
    return [key.take(picked) for key in chosen], np.array(flags, dtype=np.int8), constant


def _split(
    table: pa.Table, sort: RowOrder, bounds: Sequence[pa.ChunkedArray], flags: Array
) -> Iterator[pa.Table]:
    """Yield the sorted rows of each range: bounds are sorted together with the rows."""
    sides = pa.chunked_array([pa.array(np.full(len(table), _ROW, dtype=np.int8)), pa.array(flags)])
    keys = [
        pa.chunked_array([*own.chunks, *bound.chunks], own.type)
        for own, bound in zip(sort.keys(table), bounds, strict=True)
    ]
    order = sort_indices([*keys, sides])
    ends = np.flatnonzero(order >= len(table))
    for part in np.split(order, ends):
        yield take_rows(table, part[part < len(table)])
