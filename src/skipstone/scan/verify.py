"""A scan held against its own truth: every row of every file, read by pyarrow and tested one by one.

Nothing here trusts what it checks. Row groups are read whole by pyarrow's reader, one at a time; the rows
that match are compared with the rows that the plan keeps and calls proven, and their values with those that
executing the plan gives.
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
from skipstone.lake.snapshot import AntiJoin, Deletions
from skipstone.parquet.slice.columns import cut, take
from skipstone.scan.execute import execute
from skipstone.scan.parts import group_rows
from skipstone.scan.plan import ScanPlan, Task
from skipstone.scan.planner import Question, make_plan
from skipstone.scan.projection import Projection, sort_positions, with_hidden
from skipstone.scan.reader import pyarrow_metadata
from skipstone.scan.results import Difference, Kind, Verification
from skipstone.store.source import ByteRange
from skipstone.store.store import ListedFile

if TYPE_CHECKING:
    from skipstone.scan.lake import Lake

__all__ = ["Difference", "Verification", "verify"]

_MOST_DIFFERENCES = 20
_LONGEST_VALUE = 60
_Problem: TypeAlias = tuple[Kind, str, int | None, RowSet | None, str]
"""A difference in reading: kind, path, row group, rows, detail."""


def verify(lake: Lake, question: Question) -> Verification:
    """Answer the question with skipping and without, and report every difference."""
    began = time.perf_counter()
    plan = make_plan(lake, question)
    ran = execute(plan)
    with closing(ran.to_batches()) as batches:
        answered = sum(batch.num_rows for batch in batches)
    seconds = time.perf_counter() - began
    run = ran.trace.run
    assert run is not None
    truth = _Truth(lake, question)
    before, began = lake.io, time.perf_counter()
    matching = truth.matching()
    spent, without = lake.io - before, time.perf_counter() - began
    whole = plan if question.limit is None else make_plan(lake, replace(question, limit=None))
    found = _Differences(whole)
    found.plan(lake, matching)
    _answer(truth, plan, whole, matching, answered, found)
    return Verification(
        lake=lake.uri,
        predicate=str(question.predicate) if question.predicate is not None else "",
        files=len(lake.entries),
        rows_matching=sum(map(len, matching.values())),
        rows_proven=sum(len(task.proven) for task in whole.tasks),
        rows_read_with=plan.rows,
        rows_read_without=sum(rows.total for rows in matching.values()),
        bytes_with=plan.trace.bytes + run.bytes,
        bytes_without=spent.bytes,
        seconds_with=seconds,
        seconds_without=without,
        differences=tuple(found.listed),
        left_out=found.left_out,
    )


# -- the truth ---------------------------------------------------------------------------------


class _Bytes(io.RawIOBase):
    """A file of the lake, in the version that was listed, as pyarrow's reader takes it."""

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
class _Truth:
    """Rows of the lake as pyarrow reads them, row group by row group."""

    lake: Lake
    question: Question
    filter: RowFilter | None = field(init=False)
    both: Projection = field(init=False)
    _numbers: dict[ListedFile, int] = field(init=False)
    _deletions: Deletions = field(init=False)

    def __post_init__(self) -> None:
        asked, lake = self.question, self.lake
        self.filter = None
        if asked.predicate is not None:
            sensitive = asked.options.case_sensitive
            self.filter = RowFilter(asked.predicate, lake.query_schema, case_sensitive=sensitive)
        self._numbers = {entry: number for number, entry in enumerate(lake.entries)}
        self._deletions = lake.pinned.deletions(range(len(lake.entries)))
        tested = [*(self.filter.columns if self.filter is not None else ())]
        schema = lake.schema
        for anti in {one for some in self._deletions.values.values() for one in some}:
            tested += anti.columns
            schema = with_hidden(schema, [anti])
        self.both = Projection.of(schema, [*asked.projection.paths, *tested])

    def matching(self) -> dict[ListedFile, RowSet]:
        """The rows of each file that match, counted within it."""
        found: dict[ListedFile, RowSet] = {}
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
            found[entry] = rows if gone is None else rows - gone
        return found

    def _matches(self, table: pa.Table, anti: Sequence[AntiJoin], first: int) -> RowSet:
        if not table.num_rows:
            return RowSet.none(0)
        mask = np.ones(table.num_rows, dtype=bool) if self.filter is None else self.filter.mask(table)
        for one in anti:
            places = partial(np.arange, first, first + table.num_rows)
            mask = mask & ~one.deleted(table, self.lake.access, places)
        return RowSet.from_mask(mask)

    def rows(self, entry: ListedFile, group: int, rows: RowSet, wanted: Projection) -> pa.Table:
        """Some rows of a row group, counted within it."""
        with self._open(entry) as file:
            return cut(self._read(file, entry, group, wanted), rows)

    def _open(self, entry: ListedFile) -> pq.ParquetFile:
        files = self.lake.access
        metadata = None if files.naming is None else pyarrow_metadata(files.footer(entry))
        try:
            return pq.ParquetFile(_Bytes(files, entry), metadata=metadata)
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
        return CorruptFileError(f"pyarrow can't read it: {reason}", path=path, unit=unit)

    def _table(self, file: pq.ParquetFile, entry: ListedFile, group: int, wanted: Projection) -> pa.Table:
        lake = self.lake
        (given,) = lake.pinned.constants([self._numbers[entry]])
        metadata = lake.access.footer(entry)
        stored = set(wanted.names).difference(given)
        leaves = [leaf.index for leaf in metadata.leaves if leaf.path[0] in stored]
        count = file.metadata.row_group(group).num_rows
        if leaves:
            table = file.reader.read_row_group(group, column_indices=leaves, use_threads=True)
            if len(table) != count:
                message = f"{len(table)} rows were decoded where {count} should be"
                raise CorruptFileError(message, path=metadata.path, unit=f"row group {group}")
        else:
            table = pa.table({"": pa.nulls(count)}).select([])
        for name, value in given.items():
            if name in wanted.names:
                table = table.append_column(wanted.schema.field(name), pa.repeat(value, count))
        return conform(table, wanted.schema, path=metadata.path, evolution=lake.access.evolution)


# -- the plan ----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Differences:
    """Collects differences, no more than a bounded number, each with what ``whole`` rests on there."""

    whole: ScanPlan
    listed: list[Difference] = field(default_factory=list)
    left_out: int = 0

    def add(self, kind: Kind, path: str, group: int | None, rows: RowSet | None, detail: str) -> None:
        """A difference in reading, which no statistic explains."""
        self._add(Difference(kind, path, group, rows, detail))

    def _add(self, difference: Difference) -> None:
        if len(self.listed) < _MOST_DIFFERENCES:
            self.listed.append(difference)
        else:
            self.left_out += 1

    def plan(self, lake: Lake, matching: Mapping[ListedFile, RowSet]) -> None:
        """Rows that match but aren't kept, and rows called proven that don't match."""
        tasks = {task.entry: task for task in self.whole.tasks}
        for entry in lake.entries:
            true, task = matching[entry], tasks.get(entry)
            nothing = RowSet.none(true.total)
            kept, proven = (task.rows, task.proven) if task is not None else (nothing, nothing)
            self._certified("lost", entry, true - kept, "the row filter says TRUE for these rows")
            self._certified(
                "false proof", entry, proven - true, "the row filter doesn't say TRUE for these rows"
            )

    def _certified(self, kind: Kind, entry: ListedFile, rows: RowSet, detail: str) -> None:
        """One difference per unit that the plan judged, with its judgement."""
        files = self.whole.files
        footer = files.footer(entry)
        while not rows.is_empty:
            group = int(np.searchsorted(footer.row_group_starts, rows.first, side="right")) - 1
            if len(self.listed) >= _MOST_DIFFERENCES:
                self.left_out += sum(1 for _ in group_rows(footer, rows))
                return
            why = self.whole.why(entry.key, row=rows.first)
            assert why.rows is not None
            mine = rows & RowSet.from_ranges(rows.total, [why.rows])
            self._add(Difference(kind, files.path(entry), group, mine, detail, why))
            rows = rows - mine


# -- the answer --------------------------------------------------------------------------------


def _answer(
    truth: _Truth,
    plan: ScanPlan,
    whole: ScanPlan,
    matching: Mapping[ListedFile, RowSet],
    answered: int,
    found: _Differences,
) -> None:
    """Compare values row by row; an ordered answer also by its sort keys, a limited one by its length."""
    sound = not found.listed
    _Reading(truth, replace(whole, order=()) if plan.order else plan, matching, found).compare()
    if not sound or found.listed:
        return  # with other rows than the right ones, their order and number say nothing new
    total = sum(map(len, matching.values()))
    wanted = total if plan.limit is None else min(plan.limit, total)
    if answered != wanted:
        kind: Kind = "lost" if answered < wanted else "extra rows"
        found.add(kind, plan.lake, None, None, f"the answer has {answered:,} rows, {wanted:,} are right")
    elif plan.order:
        _compare_order(truth, plan, matching, found)


@dataclass(frozen=True, slots=True)
class _Reading:
    """What executing a plan gives, held against the same rows read whole."""

    truth: _Truth
    plan: ScanPlan
    matching: Mapping[ListedFile, RowSet]
    found: _Differences

    def compare(self) -> None:
        """Compare the answer as it streams; if it is wrong somewhere, every row group by itself."""
        problem = self._streamed()
        before = len(self.found.listed)
        if problem is None:
            return
        for task in self.plan.tasks:
            for group, _ in group_rows(self.plan.files.footer(task.entry), task.rows):
                self._alone(task, group)
        if len(self.found.listed) == before:
            # Right piece by piece, wrong as a whole.
            self.found.add(*problem)

    def _expected(self, task: Task) -> RowSet:
        # Rows falsely called proven are given untested: that is reported of the plan already.
        return (self.matching[task.entry] & task.rows) | task.proven

    def _streamed(self) -> _Problem | None:
        """The first place where the answer is wrong."""
        missing = self.plan.limit
        with closing(execute(self.plan).to_batches()) as batches:
            answer = RowComparison(batches)
            for task in self.plan.tasks:
                footer = self.plan.files.footer(task.entry)
                for group, mine in group_rows(footer, self._expected(task)):
                    some = mine if missing is None else mine.take(missing)
                    if some.is_empty:
                        break
                    wanted = self.truth.rows(task.entry, group, some, self.plan.projection)
                    if differences(answer.take(len(some)), wanted):
                        here = some.shift(int(footer.row_group_starts[group]), total=footer.num_rows)
                        detail = "right when read alone, not within the whole answer"
                        return "wrong order", task.path, group, here, detail
                    missing = None if missing is None else missing - len(some)
            more = answer.rest()
        return ("extra rows", self.plan.lake, None, None, f"{more:,} rows follow the last") if more else None

    def _alone(self, task: Task, group: int) -> None:
        """Execute the plan for one row group, and say what is wrong with it."""
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
            detail = (
                f"reading gave {got.num_rows:,} rows for {wanted.num_rows:,} that the plan keeps and match"
            )
            self.found.add(kind, task.path, group, here, detail)
            return
        wrong = differences(got, wanted)
        if wrong:
            bad = np.unique(np.concatenate(list(wrong.values())))
            name, first = next((name, int(places[0])) for name, places in wrong.items())
            values = [text_of(table.column(name)[first])[:_LONGEST_VALUE] for table in (got, wanted)]
            detail = f"columns {', '.join(wrong)}; the first has {name} = {values[0]} instead of {values[1]}"
            places = RowSet.from_positions(footer.num_rows, here.positions()[bad])
            self.found.add("wrong values", task.path, group, places, detail)


def _compare_order(
    truth: _Truth, plan: ScanPlan, matching: Mapping[ListedFile, RowSet], found: _Differences
) -> None:
    """The sort keys of the answer beside those of all matching rows, sorted; only keys are held."""
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
                found.add(
                    "wrong order",
                    plan.lake,
                    None,
                    None,
                    f"by {by}, among rows {at:,} and following of the answer",
                )
                return
            at += batch.num_rows


# -- answers compared value by value -----------------------------------------------------------


class RowComparison:
    """Batches taken by numbers of rows."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._held: list[pa.RecordBatch] = []

    def take(self, rows: int) -> pa.Table | None:
        """The next rows, fewer at the end; None if there are none."""
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
        """How many rows are left."""
        count = 0
        for batch in (*self._held, *self._batches):
            count += batch.num_rows
        return count


def differences(got: pa.Table | None, wanted: pa.Table) -> dict[str, Array]:
    """The rows in which each column differs; every row if the tables can't be compared."""
    every = np.arange(max(wanted.num_rows, 1))
    if got is None or got.num_rows != wanted.num_rows:
        return dict.fromkeys(wanted.column_names or [""], every)
    found = {}
    for name, ours, theirs in zip(wanted.column_names, got.columns, wanted.columns, strict=True):
        places = every if ours.type != theirs.type else _differing(ours, theirs)
        if len(places):
            found[name] = places
    return found


def _differing(ours: pa.ChunkedArray, theirs: pa.ChunkedArray) -> Array:
    """Where two columns differ: NaN is NaN, and zeros have a sign."""
    if pa.types.is_dictionary(ours.type):
        ours, theirs = (column.cast(ours.type.value_type) for column in (ours, theirs))
    if not pa.types.is_floating(ours.type):
        if ours.equals(theirs):
            return np.zeros(0, dtype=np.int64)
        # A loop over rows: only a column that differs, or has NaN inside a nested value, comes here.
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
    """A value in words that tell it from any other."""
    try:
        return repr(scalar.as_py())
    except ValueError:  # nanoseconds have no Python value
        return str(scalar)
