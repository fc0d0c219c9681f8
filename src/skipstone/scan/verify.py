"""Verification of a scan against a full read: pyarrow reads every row of every file, and each is tested.

Nothing here relies on the code under test. pyarrow reads entire row groups, one at a time; the matching rows
are compared with the rows that the plan keeps and reports as proven, and their values with those that
executing the plan returns.
"""

from __future__ import annotations

import io
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from skipstone.core.evidence import Array
from skipstone.core.filter import RowFilter
from skipstone.core.rows import RowSet
from skipstone.errors import CorruptFileError
from skipstone.lake.conform import conform
from skipstone.lake.files import Files
from skipstone.lake.snapshot import AntiJoin, Deletions, opened_name
from skipstone.parquet.slice.columns import cut, take
from skipstone.scan.execute import execute
from skipstone.scan.forecast import stored_bytes
from skipstone.scan.parts import group_rows
from skipstone.scan.plan import ScanPlan, Task
from skipstone.scan.planner import Question, make_plan
from skipstone.scan.projection import Projection, sort_positions, with_hidden
from skipstone.scan.reader import FileReader, pyarrow_metadata
from skipstone.scan.results import Difference, Kind, Verification
from skipstone.store.source import ByteRange
from skipstone.store.store import ListedFile

if TYPE_CHECKING:
    from skipstone.scan.lake import Lake

__all__ = ["Difference", "Verification", "verify"]

_MAX_DIFFERENCES = 20
_LONGEST_VALUE = 60
_Problem: TypeAlias = tuple[Kind, str, int | None, RowSet | None, str]
"""A difference in values: kind, path, row group, rows, detail."""


def verify(lake: Lake, question: Question) -> Verification:
    """Run a query with and without skipping, and report every difference."""
    began = time.perf_counter()
    plan = make_plan(lake, question)
    ran = execute(plan)
    with closing(ran.to_batches()) as batches:
        answered = sum(batch.num_rows for batch in batches)
    seconds = time.perf_counter() - began
    run = ran.trace.run
    assert run is not None
    truth = _FullRead(lake, question)
    began = time.perf_counter()
    matching = truth.matching()
    without = time.perf_counter() - began
    whole = plan if question.limit is None else make_plan(lake, replace(question, limit=None))
    differences = _Differences(whole)
    differences.plan(lake, matching)
    _answer(truth, plan, whole, matching, answered, differences)
    return Verification(
        lake=opened_name(lake.pinned),
        predicate=str(question.predicate) if question.predicate is not None else "",
        files=len(lake.entries),
        rows_matching=sum(map(len, matching.values())),
        rows_proven=sum(len(task.proven) for task in whole.tasks),
        rows_read_with=plan.rows,
        rows_read_without=sum(rows.total for rows in matching.values()),
        bytes_with=run.bytes,
        bytes_without=sum(truth.stored(entry) for entry in lake.entries),
        seconds_with=seconds,
        seconds_without=without,
        differences=tuple(differences.listed),
        left_out=differences.left_out,
    )


# -- the full read -----------------------------------------------------------------------------


class _FileObject(io.RawIOBase):
    """A file of the lake, pinned to the listed version, as a file object for pyarrow."""

    def __init__(self, files: Files, entry: ListedFile) -> None:
        self._files, self._entry, self._at = files, entry, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._entry.size}[whence]
        self._at = start + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        stop = self._entry.size if size < 0 else min(self._at + size, self._entry.size)
        if stop <= self._at:
            return b""
        (data,) = self._files.source(self._entry).read_ranges([ByteRange(self._at, stop)])
        self._at = stop
        return data


@dataclass(slots=True)
class _FullRead:
    """Rows of the lake as pyarrow reads them, row group by row group."""

    lake: Lake
    question: Question
    filter: RowFilter | None = field(init=False)
    both: Projection = field(init=False)
    _numbers: dict[ListedFile, int] = field(init=False)
    _deletions: Deletions = field(init=False)

    def __post_init__(self) -> None:
        question, lake = self.question, self.lake
        self.filter = None
        if question.predicate is not None:
            sensitive = question.options.case_sensitive
            self.filter = RowFilter(question.predicate, lake.query_schema, case_sensitive=sensitive)
        self._numbers = {entry: number for number, entry in enumerate(lake.entries)}
        self._deletions = lake.pinned.deletions(range(len(lake.entries)))
        tested = [*(self.filter.columns if self.filter is not None else ())]
        schema = lake.schema
        for anti in {one for some in self._deletions.values.values() for one in some}:
            tested += anti.columns
            schema = with_hidden(schema, [anti])
        self.both = Projection.of(schema, [*question.projection.paths, *tested])

    def stored(self, entry: ListedFile) -> int:
        """Bytes of the columns in a file."""
        (constants,) = self.lake.pinned.constants([self._numbers[entry]])
        reader = FileReader.open(self.lake.access, entry, constants)
        return stored_bytes(reader.metadata, reader.columns(self.both).leaves)

    def matching(self) -> dict[ListedFile, RowSet]:
        """The matching rows of each file."""
        matching: dict[ListedFile, RowSet] = {}
        for number, entry in enumerate(self.lake.entries):
            anti = self._deletions.values.get(number, ())
            with self._open(entry) as file:
                groups = range(file.metadata.num_row_groups)
                parts: list[RowSet] = []
                for group in groups:
                    first = sum(part.total for part in parts)
                    parts.append(self._matches(self._read(file, entry, group, self.both), anti, first))
            rows = RowSet.concat(parts) if parts else RowSet.none(0)
            gone = self._deletions.rows.get(number)
            matching[entry] = rows if gone is None else rows - gone
        return matching

    def _matches(self, table: pa.Table, anti: Sequence[AntiJoin], first: int) -> RowSet:
        if not table.num_rows:
            return RowSet.none(0)
        mask = np.ones(table.num_rows, dtype=bool) if self.filter is None else self.filter.mask(table)
        for one in anti:
            positions = partial(np.arange, first, first + table.num_rows)
            mask = mask & ~one.deleted(table, self.lake.access, positions)
        return RowSet.from_mask(mask)

    def rows(self, entry: ListedFile, group: int, rows: RowSet, wanted: Projection) -> pa.Table:
        """Some rows of a row group."""
        with self._open(entry) as file:
            return cut(self._read(file, entry, group, wanted), rows)

    def _open(self, entry: ListedFile) -> pq.ParquetFile:
        files = self.lake.access
        metadata = None if files.naming is None else pyarrow_metadata(files.footer(entry))
        try:
            return pq.ParquetFile(_FileObject(files, entry), metadata=metadata)
        except (pa.ArrowException, OSError) as error:
            raise self._unreadable(error, entry) from error

    def _read(self, file: pq.ParquetFile, entry: ListedFile, group: int, wanted: Projection) -> pa.Table:
        try:
            return self._table(file, entry, group, wanted)
        except (pa.ArrowException, OSError) as error:
            raise self._unreadable(error, entry, f"row group {group}") from error

    def _unreadable(self, error: Exception, entry: ListedFile, unit: str | None = None) -> CorruptFileError:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        path = self.lake.access.path(entry)
        return CorruptFileError(f"pyarrow can't read the file: {reason}", path=path, unit=unit)

    def _table(self, file: pq.ParquetFile, entry: ListedFile, group: int, wanted: Projection) -> pa.Table:
        lake = self.lake
        (constants,) = lake.pinned.constants([self._numbers[entry]])
        metadata = lake.access.footer(entry)
        stored = set(wanted.names).difference(constants)
        leaves = [leaf.index for leaf in metadata.leaves if leaf.path[0] in stored]
        count = file.metadata.row_group(group).num_rows
        if leaves:
            table = file.reader.read_row_group(group, column_indices=leaves, use_threads=True)
            if len(table) != count:
                message = f"{len(table)} rows decoded, expected {count}"
                raise CorruptFileError(message, path=metadata.path, unit=f"row group {group}")
        else:
            table = pa.table({"": pa.nulls(count)}).select([])
        for name, value in constants.items():
            if name in wanted.names:
                table = table.append_column(wanted.schema.field(name), pa.repeat(value, count))
        return conform(table, wanted.schema, path=metadata.path, evolution=lake.access.evolution)


# -- the plan ----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Differences:
    """Collects a bounded number of differences, each with the evidence of the plan ``whole``."""

    whole: ScanPlan
    listed: list[Difference] = field(default_factory=list)
    left_out: int = 0

    def add(self, kind: Kind, path: str, group: int | None, rows: RowSet | None, detail: str) -> None:
        """Add a difference that no statistic explains."""
        self._add(Difference(kind, path, group, rows, detail))

    def _add(self, difference: Difference) -> None:
        if len(self.listed) < _MAX_DIFFERENCES:
            self.listed.append(difference)
        else:
            self.left_out += 1

    def plan(self, lake: Lake, matching: Mapping[ListedFile, RowSet]) -> None:
        """Add matching rows that aren't kept, and proven rows that don't match."""
        tasks = {task.entry: task for task in self.whole.tasks}
        for entry in lake.entries:
            true, task = matching[entry], tasks.get(entry)
            nothing = RowSet.none(true.total)
            kept, proven = (task.rows, task.proven) if task is not None else (nothing, nothing)
            self._explain("lost", entry, true - kept, "the row filter is TRUE for these rows")
            self._explain("false proof", entry, proven - true, "the row filter is not TRUE for these rows")

    def _explain(self, kind: Kind, entry: ListedFile, rows: RowSet, detail: str) -> None:
        """Add one difference per judged unit, with the plan's evidence."""
        files = self.whole.files
        footer = files.footer(entry)
        while not rows.is_empty:
            group = int(np.searchsorted(footer.row_group_starts, rows.first, side="right")) - 1
            if len(self.listed) >= _MAX_DIFFERENCES:
                self.left_out += sum(1 for _ in group_rows(footer, rows))
                return
            why = self.whole.why(entry.key, row=rows.first)
            assert why.rows is not None
            mine = rows & RowSet.from_ranges(rows.total, [why.rows])
            self._add(Difference(kind, files.path(entry), group, mine, detail, why))
            rows = rows - mine


# -- the result --------------------------------------------------------------------------------


def _answer(
    truth: _FullRead,
    plan: ScanPlan,
    whole: ScanPlan,
    matching: Mapping[ListedFile, RowSet],
    answered: int,
    results: _Differences,
) -> None:
    """Compare values; for a sorted result also the sort keys, for a limited one the number of rows."""
    sound = not results.listed
    _Reading(truth, replace(whole, order=()) if plan.order else plan, matching, results).compare()
    if not sound or results.listed:
        return  # order and number of wrong rows are no further information
    total = sum(map(len, matching.values()))
    wanted = total if plan.limit is None else min(plan.limit, total)
    if answered != wanted:
        kind: Kind = "lost" if answered < wanted else "extra rows"
        results.add(kind, plan.lake, None, None, f"result has {answered:,} rows instead of {wanted:,}")
    elif plan.order:
        _compare_order(truth, plan, matching, results)


@dataclass(frozen=True, slots=True)
class _Reading:
    """Compares the result of a plan with the full read."""

    truth: _FullRead
    plan: ScanPlan
    matching: Mapping[ListedFile, RowSet]
    differences: _Differences

    def compare(self) -> None:
        """Compare the streamed result; if it is wrong anywhere, compare every row group separately."""
        problem = self._streamed()
        before = len(self.differences.listed)
        if problem is None:
            return
        for task in self.plan.tasks:
            for group, _ in group_rows(self.plan.files.footer(task.entry), task.rows):
                self._alone(task, group)
        if len(self.differences.listed) == before:
            # Every row group is right, only the stream is wrong.
            self.differences.add(*problem)

    def _expected(self, task: Task) -> RowSet:
        # Falsely proven rows are returned untested, which is already reported.
        return (self.matching[task.entry] & task.rows) | task.proven

    def _streamed(self) -> _Problem | None:
        """The first difference in the streamed result."""
        missing = self.plan.limit
        with closing(execute(self.plan).to_batches()) as batches:
            answer = BatchSlicer(batches)
            for task in self.plan.tasks:
                footer = self.plan.files.footer(task.entry)
                for group, mine in group_rows(footer, self._expected(task)):
                    some = mine if missing is None else mine.take(missing)
                    if some.is_empty:
                        break
                    wanted = self.truth.rows(task.entry, group, some, self.plan.projection)
                    if differences(answer.take(len(some)), wanted):
                        here = some.shift(int(footer.row_group_starts[group]), total=footer.num_rows)
                        detail = "right when read separately, wrong in the stream"
                        return "wrong order", task.path, group, here, detail
                    missing = None if missing is None else missing - len(some)
            more = answer.rest()
        return ("extra rows", self.plan.lake, None, None, f"{more:,} rows too many") if more else None

    def _alone(self, task: Task, group: int) -> None:
        """Execute the plan for one row group, and add its differences."""
        footer = self.plan.files.footer(task.entry)
        start, count = int(footer.row_group_starts[group]), int(footer.row_group_rows[group])
        window = RowSet.from_ranges(footer.num_rows, [(start, start + count)])
        part = replace(task, rows=task.rows & window, proven=task.proven & window)
        here = self._expected(task) & window
        got = execute(replace(self.plan, tasks=(part,), limit=None)).to_arrow()
        rows = here.slice(start, start + count)
        wanted = self.truth.rows(task.entry, group, rows, self.plan.projection)
        if got.num_rows != wanted.num_rows:
            kind: Kind = "lost" if got.num_rows < wanted.num_rows else "extra rows"
            detail = f"read {got.num_rows:,} rows instead of {wanted.num_rows:,} that are kept and match"
            self.differences.add(kind, task.path, group, here, detail)
            return
        wrong = differences(got, wanted)
        if wrong:
            bad = np.unique(np.concatenate(list(wrong.values())))
            name, first = next((name, int(rows[0])) for name, rows in wrong.items())
            values = [text_of(table.column(name)[first])[:_LONGEST_VALUE] for table in (got, wanted)]
            detail = f"columns {', '.join(wrong)}; the first has {name} = {values[0]} instead of {values[1]}"
            bad_rows = RowSet.from_positions(footer.num_rows, here.positions()[bad])
            self.differences.add("wrong values", task.path, group, bad_rows, detail)


def _compare_order(
    truth: _FullRead, plan: ScanPlan, matching: Mapping[ListedFile, RowSet], results: _Differences
) -> None:
    """Compare the sort keys of the result with those of all matching rows, sorted."""
    keys = Projection.of(plan.schemas.read, [term.path for term in plan.order])
    tables = [
        truth.rows(entry, group, mine, keys)
        for entry, rows in matching.items()
        for group, mine in group_rows(plan.files.footer(entry), rows)
    ]
    every = pa.concat_tables(tables) if tables else pa.Table.from_batches([], keys.schema)
    right = take(every, sort_positions(every, plan.order, plan.limit)) if tables else every
    at = 0
    with closing(execute(replace(plan, projection=keys)).to_batches()) as batches:
        for batch in batches:
            wanted = right.slice(at, batch.num_rows)
            if differences(pa.Table.from_batches([batch]), wanted):
                by = ", ".join(map(str, plan.order))
                results.add(
                    "wrong order",
                    plan.lake,
                    None,
                    None,
                    f"by {by}, from row {at:,} of the result on",
                )
                return
            at += batch.num_rows


# -- comparison of values ----------------------------------------------------------------------


class BatchSlicer:
    """Takes rows from batches."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._held: list[pa.RecordBatch] = []

    def take(self, rows: int) -> pa.Table | None:
        """The next rows, or fewer at the end; None if there are none."""
        taken: list[pa.RecordBatch] = []
        while rows:
            batch = self._held.pop() if self._held else next(self._batches, None)
            if batch is None:
                break
            taken.append(batch.slice(0, rows))
            if batch.num_rows > rows:
                self._held.append(batch.slice(rows))
            rows -= taken[-1].num_rows
        return pa.Table.from_batches(taken) if taken else None

    def rest(self) -> int:
        """Number of remaining rows."""
        count = 0
        for batch in (*self._held, *self._batches):
            count += batch.num_rows
        return count


def differences(got: pa.Table | None, wanted: pa.Table) -> dict[str, Array]:
    """The rows in which each column differs; every row if the tables can't be compared."""
    every = np.arange(max(wanted.num_rows, 1))
    if got is None or got.num_rows != wanted.num_rows:
        return dict.fromkeys(wanted.column_names or [""], every)
    wrong = {}
    for name, ours, theirs in zip(wanted.column_names, got.columns, wanted.columns, strict=True):
        rows = every if ours.type != theirs.type else _differing(ours, theirs)
        if len(rows):
            wrong[name] = rows
    return wrong


def _differing(ours: pa.ChunkedArray, theirs: pa.ChunkedArray) -> Array:
    """Rows in which two columns differ; NaNs are equal, 0.0 and -0.0 are not."""
    if pa.types.is_dictionary(ours.type):
        ours, theirs = (column.cast(ours.type.value_type) for column in (ours, theirs))
    if not pa.types.is_floating(ours.type):
        if ours.equals(theirs):
            return np.zeros(0, dtype=np.int64)
        # A loop over rows, only for columns that differ or have NaN inside nested values.
        return np.array(
            [n for n, pair in enumerate(zip(ours, theirs, strict=True)) if not _same(*pair)], np.int64
        )
    missing = [np.asarray(column.is_null()) for column in (ours, theirs)]
    a, b = (np.asarray(column.to_numpy()) for column in (ours, theirs))
    equal = (a == b) & (np.signbit(a) == np.signbit(b)) | (np.isnan(a) & np.isnan(b))
    return np.flatnonzero((missing[0] != missing[1]) | ~(equal | missing[0]))


def _same(a: pa.Scalar, b: pa.Scalar) -> bool:
    return bool(a.equals(b)) or text_of(a) == text_of(b)


def text_of(scalar: pa.Scalar) -> str:
    """An unambiguous string for a value."""
    try:
        return repr(scalar.as_py())
    except ValueError:  # nanoseconds have no Python value
        return str(scalar)
