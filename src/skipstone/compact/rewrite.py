"""Rewrite groups of files: each slice of a group is one task, on threads or on Spark.

Rows that keep their order are streamed from the old files to the new ones. Rows to be sorted, or to be moved
to other partitions, are ordered by the machinery of an ingest: in one task, which spills what exceeds its
memory, or for a large group on Spark by a shuffle.
"""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from skipstone.compact.checksums import ROWS, Checksums
from skipstone.compact.plan import FileGroup
from skipstone.core.evidence import Array
from skipstone.engine.jobs import Engine, LocalEngine, checked, gather
from skipstone.errors import CorruptFileError, JobError, SchemaError, SkipstoneError, scrub
from skipstone.iceberg.writing.target import NewFile, Target
from skipstone.parquet.write.files import WrittenFile, write_files
from skipstone.parquet.write.layout import PageLayout
from skipstone.parquet.write.profile import Profile, profile
from skipstone.scan.execute import execute
from skipstone.scan.parts import shared
from skipstone.scan.plan import ScanPlan, Task
from skipstone.store.store import ListedFile
from skipstone.write.local import LocalRows, memory_limit
from skipstone.write.rows import SAMPLE, FileOutput, RowSurvey, task_bytes

if TYPE_CHECKING:
    from skipstone.engine.spark import SparkEngine

_SAMPLED_FILES: Final = 32
# A slice has several files, so that only the last one depends on an estimate.
_FILES_PER_SLICE: Final = 4
# Estimated share of the target size above which a slice of one file is certainly not too small.
_FULL: Final = 0.9
_TOKEN: Final = 4
_READ: Final = 0.5


@dataclass(frozen=True, slots=True)
class GroupSlice:
    """Some files of a group, rewritten by one task."""

    group: int
    target: int
    """Number of the target, which is a partition or a spec."""
    tasks: tuple[Task, ...]

    @property
    def rows(self) -> int:
        """Rows that are not deleted by position."""
        return sum(len(task.rows) for task in self.tasks)


@dataclass(frozen=True, slots=True)
class SliceResult:
    """New files of a slice; ``problem`` is the error that prevented them."""

    group: int
    files: tuple[WrittenFile, ...] = ()
    rows: int = 0
    """Rows read."""
    checksums: Checksums | None = None
    problem: SkipstoneError | None = None


@dataclass(frozen=True, slots=True)
class GroupResult:
    """New files of a group, ready to commit."""

    group: FileGroup
    files: tuple[NewFile, ...]
    rows: int
    problem: SkipstoneError | None = None


@dataclass(frozen=True, slots=True)
class SliceWriter:
    """Rewrites slices; sent once to all tasks."""

    plan: ScanPlan
    """The plan without tasks."""
    targets: tuple[Target, ...]
    layout: PageLayout
    profile: Profile
    job: str
    memory: int | None
    """Bytes of rows that all tasks of a machine hold before they are spilled; None: a share of its memory."""
    tasks: int | None
    """Tasks that run on a machine at the same time; None: one per core."""
    threads: int
    checked: bool
    retried: bool
    """Whether the engine repeats tasks that raise an error."""
    on_rows: Callable[[float], None] | None = None
    """Called with rows that were rewritten; None where tasks run in other processes."""

    def __call__(self, part: GroupSlice) -> SliceResult:
        """Rewrite a slice; an error is returned, because other groups go on."""
        try:
            return self._rewrite(part)
        except SkipstoneError as error:
            return SliceResult(part.group, problem=error)
        except Exception as error:
            if self.retried:
                raise
            problem = JobError(f"rewrite failed: {type(error).__name__}: {scrub(error)}", path=self.plan.lake)
            return SliceResult(part.group, problem=problem)

    def _rewrite(self, part: GroupSlice) -> SliceResult:
        target = self.targets[part.target]
        # Rows to be ordered are read before any is written, which takes as long.
        share = _READ if is_ordered(self.layout, target) else 1.0
        read = RowCounter(Checksums() if self.checked else None, self.on_rows, share)
        batches = read.counted(execute(self._plan_of(part)).to_batches())
        # Unique to this attempt, because Spark can run two of one task.
        job = f"{self.job}{secrets.token_hex(_TOKEN)}"
        if is_ordered(self.layout, target):
            files = self._write_ordered(batches, target, job)
        else:
            files = write_files(
                batches,
                target.store,
                job,
                f"{part.group:05d}",
                self.layout,
                self.profile,
                expected_rows=part.rows,
                shape=target,
            )
        return SliceResult(part.group, tuple(files), read.rows, read.checksums)

    def _plan_of(self, part: GroupSlice) -> ScanPlan:
        """The plan of a slice; rows that are decoded ahead count as memory too."""
        plan = self.plan
        hints = dataclasses.replace(plan.trace.hints, threads=self.threads)
        options = dataclasses.replace(plan.options, memory=min(plan.options.memory, self._memory))
        trace = dataclasses.replace(plan.trace, hints=hints)
        return dataclasses.replace(plan, tasks=part.tasks, options=options, trace=trace)

    @property
    def _memory(self) -> int:
        """Bytes of rows that a task holds."""
        return max((self.memory or memory_limit()) // (self.tasks or LocalEngine().parallelism), 1)

    def _write_ordered(
        self, batches: Iterator[pa.RecordBatch], target: Target, job: str
    ) -> list[WrittenFile]:
        engine = LocalEngine(self.threads)
        fitted = map(target.fitted, batches)
        rows = LocalRows(target.schema, fitted, engine=engine, memory=self._memory, stored=True)
        with rows:
            survey = rows.survey(self.layout)
            if not survey.rows:
                return []
            written = _Increments(self.on_rows, 1.0 - _READ)
            return rows.write(survey, file_output(survey, self.layout, target, job), written)


def file_output(survey: RowSurvey, layout: PageLayout, target: Target, job: str) -> FileOutput:
    """Where and how ordered rows are written."""
    each = task_bytes(survey, layout, target)
    return FileOutput(target.store, job, layout, survey.profile, each, target=target)


def is_ordered(layout: PageLayout, target: Target) -> bool:
    """Whether rows are sorted, or divided into partitions."""
    return bool(layout.cluster_by or target.partition_columns)


@dataclass(slots=True)
class RowCounter:
    """Counts rows that pass, and adds up their checksums."""

    checksums: Checksums | None
    on_rows: Callable[[float], None] | None = None
    share: float = 1.0
    """How much of the work on a row is done once it is read."""
    rows: int = 0

    def counted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches."""
        for batch in checked(batches):
            self.rows += batch.num_rows
            if self.checksums is not None:
                self.checksums.add(batch)
            yield batch
            if self.on_rows is not None:
                self.on_rows(batch.num_rows * self.share)


@dataclass(slots=True)
class _Increments:
    """Reports a growing number of rows by what each call adds."""

    on_rows: Callable[[float], None] | None
    share: float = 1.0
    last: float = 0.0

    def __call__(self, done: float, _total: float = 0.0) -> None:
        if self.on_rows is not None and done > self.last:
            self.on_rows((done - self.last) * self.share)
            self.last = done


# -- all groups of a plan ----------------------------------------------------------------------


@dataclass(eq=False)
class GroupRewriter:
    """Rewrites groups of files on an engine."""

    plan: ScanPlan
    """All rows of the files of all groups that are not deleted."""
    groups: Sequence[FileGroup]
    targets: Sequence[Target]
    """The target of each group."""
    layout: PageLayout
    job: str
    engine: Engine
    on_rows: Callable[[float], None]
    """Called with rows that were rewritten, from any thread."""
    checked: bool = False
    memory: int | None = None
    target_bytes: int = field(init=False)
    _tasks: Mapping[str, Task] = field(init=False)

    def __post_init__(self) -> None:
        self.target_bytes = self.layout.target_file_bytes
        self._tasks = {task.entry.key: task for task in self.plan.tasks}
        self._sample = sample_rows(self.plan, self.targets[0]) if self.groups else None

    def run(self, groups: Sequence[int]) -> list[GroupResult]:
        """Rewrite some groups."""
        shuffled = [number for number in groups if self._shuffles(number)]
        others = [number for number in groups if number not in shuffled]
        results = {result.group.id: result for result in self._map(others)}
        for number in shuffled:
            results[self.groups[number].id] = self._shuffle(number)
        return [results[self.groups[number].id] for number in groups]

    # -- tasks ---------------------------------------------------------------------------------

    def _map(self, groups: Sequence[int]) -> list[GroupResult]:
        parts = [part for number in groups for part in self._slices(number)]
        local = self.engine.name == "local"
        together = max(min(self.engine.parallelism, len(parts)), 1)
        writer = SliceWriter(
            shared(self.plan),
            tuple(self.targets),
            self.layout,
            self._profile,
            self.job,
            memory=self.memory,
            tasks=together if local or self.memory else None,
            threads=self.engine.parallelism // together if local else 1,
            checked=self.checked,
            retried=self.engine.name == "spark",
            on_rows=self.on_rows if local else None,
        )
        rows = np.cumsum([part.rows for part in parts])
        tell = _Increments(self.on_rows)
        finished = None if local else lambda done: tell(float(rows[done - 1])) if done else None
        by_group: dict[int, list[SliceResult]] = {number: [] for number in groups}
        for result in self.engine.map(writer, parts, on_done=finished):
            by_group[result.group].append(result)
        return [self._result(number, mine) for number, mine in by_group.items()]

    @cached_property
    def _profile(self) -> Profile:
        assert self._sample is not None
        return profile(self._sample, self.layout)

    def _slices(self, number: int) -> list[GroupSlice]:
        """Divide a group into slices of several new files each; rows to be sorted stay together."""
        tasks = self._group_tasks(number)
        ends = np.cumsum([self._new_bytes(task) for task in tasks])
        files = max(round(ends[-1] / self.target_bytes), 1) if tasks else 0
        count = min(max(files // _FILES_PER_SLICE, min(files, self.engine.parallelism)), len(tasks))
        if files and ends[-1] < _FULL * files * self.target_bytes:
            # A slice of one file could come out too small, and be rewritten again by the next compaction.
            count = min(count, max(files // 2, 1))
        if is_ordered(self.layout, self.targets[number]) or count <= 1:
            return [GroupSlice(number, number, tuple(tasks))] if tasks else []
        # Each slice has a whole number of files.
        cuts = np.searchsorted(ends, ends[-1] * np.round(files * np.arange(1, count) / count) / files)
        edges = [0, *np.unique(cuts + 1).tolist(), len(tasks)]
        return [GroupSlice(number, number, tuple(tasks[a:b])) for a, b in pairwise(edges) if b > a]

    def _new_bytes(self, task: Task) -> float:
        """Estimated size of a file's rows in a new file, where they can take less than in many small ones."""
        return min(_live_bytes(task), len(task.rows) * self._profile.bytes_per_row)

    def _group_tasks(self, number: int) -> list[Task]:
        paths = self.groups[number].paths.to_pylist()
        # A file without a task has no live rows.
        return [self._tasks[path] for path in paths if path in self._tasks]

    # -- shuffles ------------------------------------------------------------------------------

    def _shuffles(self, number: int) -> bool:
        """Whether a group is sorted by Spark, because one task would take long."""
        if self.engine.name != "spark" or not is_ordered(self.layout, self.targets[number]):
            return False
        if self.checked or self.groups[number].expected_files <= 1:
            return False
        from skipstone.spark.frames import schema_of

        try:
            schema_of(self.plan)
        except SchemaError:
            # A type that Spark lacks.
            return False
        return True

    def _shuffle(self, number: int) -> GroupResult:
        from skipstone.spark.frames import to_spark
        from skipstone.write.frame import SparkRows

        tasks, target = tuple(self._group_tasks(number)), self.targets[number]
        engine: SparkEngine = self.engine  # type: ignore[assignment]
        try:
            if not tasks:
                return self._result(number, [])
            plan = dataclasses.replace(self.plan, tasks=tasks)
            sample = sample_rows(plan, target)
            survey = RowSurvey.of(plan.rows, sample, self.layout)
            rows = SparkRows(to_spark(plan, engine.session, "slices"))
            output = file_output(survey, self.layout, target, f"{self.job}{secrets.token_hex(_TOKEN)}")
            tell = _Increments(self.on_rows)
            files = rows.write(survey, output, lambda done, total: tell(plan.rows * done / max(total, 1)))
            # Spark's tasks count what they read; only equality deletes make the number smaller.
            read = sum(file.rows for file in files) if any(task.deleted for task in tasks) else plan.rows
            return self._result(number, [SliceResult(number, tuple(files), read)])
        except SkipstoneError as error:
            return self._result(number, [SliceResult(number, problem=error)])

    # -- checks --------------------------------------------------------------------------------

    def _result(self, number: int, parts: Sequence[SliceResult]) -> GroupResult:
        group, target = self.groups[number], self.targets[number]
        files = tuple(target.new_file(file) for part in parts for file in part.files)
        problem = next((part.problem for part in parts if part.problem is not None), None)
        rows = sum(file.metrics.rows for file in files)
        if problem is None:
            problem = self._miscount(number, parts, rows)
        if problem is None and self.checked:
            problem = self._mismatch(parts, files, target)
        return GroupResult(group, files, rows, problem)

    def _miscount(self, number: int, parts: Sequence[SliceResult], written: int) -> SkipstoneError | None:
        """The error of a group whose rows in, less deleted rows, are not its rows out."""
        tasks = self._group_tasks(number)
        planned = sum(len(task.rows) for task in tasks)
        read = sum(part.rows for part in parts)
        by_value = any(task.deleted for task in tasks)
        if written == read and (read == planned or (by_value and read < planned)):
            return None
        problem = f"{written:,} rows were written and {read:,} read, but {planned:,} are live"
        return CorruptFileError(
            problem, path=self.plan.lake, unit=f"group {self.groups[number].id}", hint="check the files"
        )

    def _mismatch(
        self, parts: Sequence[SliceResult], files: Sequence[NewFile], target: Target
    ) -> SkipstoneError | None:
        """The error of a group whose new files have other values than were read."""
        wanted, found = Checksums(), Checksums()
        for part in parts:
            if part.checksums is not None:
                wanted.merge(part.checksums)
        for file in files:
            entry = ListedFile(file.path, file.bytes, None)
            for batch in read_new(self.plan, entry, file.metrics.rows):
                found.add(batch)
        column = wanted.difference(found)
        if column is None:
            return None
        if column == ROWS:
            return CorruptFileError("rewritten rows combine other values", path=target.name)
        return CorruptFileError("rewritten values differ", path=target.name, column=column)


def read_new(plan: ScanPlan, entry: ListedFile, rows: int) -> Iterator[pa.RecordBatch]:
    """Read a file that is not committed yet, with the columns of a plan."""
    from skipstone.core.rows import RowSet

    every = RowSet.all(rows)
    task = Task(plan.files.path(entry), entry, every, every, {})
    yield from execute(dataclasses.replace(plan, tasks=(task,))).to_batches()


def _live_bytes(task: Task) -> float:
    return task.entry.size * len(task.rows) / max(task.rows.total, 1)


def sample_rows(plan: ScanPlan, target: Target) -> pa.Table:
    """Some rows from files throughout the plan, as they are stored."""
    tasks = plan.tasks
    chosen: Array = np.unique(np.linspace(0, len(tasks) - 1, min(_SAMPLED_FILES, len(tasks))).astype(int))
    some = [tasks[number] for number in chosen.tolist()]
    each = SAMPLE // max(len(some), 1)
    parts = [
        dataclasses.replace(task, rows=taken, proven=task.proven & taken)
        for task in some
        if (taken := task.rows.take(each))
    ]

    def read(task: Task) -> list[pa.RecordBatch]:
        # A file that can't be read fails its own group, later.
        with suppress(SkipstoneError):
            batches = execute(dataclasses.replace(plan, tasks=(task,))).to_batches()
            return [target.fitted(batch) for batch in batches]
        return []

    found = gather(read, parts, threads=plan.files.threads)
    return pa.Table.from_batches([batch for batches in found for batch in batches], target.schema)
