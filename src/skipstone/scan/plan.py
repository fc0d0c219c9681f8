"""ScanPlan: what phase one found, to be executed now, later, elsewhere, or with other columns.

The plan also says how phase two goes about it: late materialisation or one pass, and how many threads.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import xxhash

from skipstone.core.filter import RowFilter
from skipstone.core.ir import Compiled
from skipstone.core.rows import RowSet
from skipstone.errors import CorruptFileError, UsageError
from skipstone.lake.files import Files
from skipstone.lake.snapshot import AntiJoin
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.predicate import tree
from skipstone.predicate.tree import Predicate
from skipstone.report.trace import Hints, ScanTrace
from skipstone.scan.options import ScanOptions
from skipstone.scan.projection import Order, Projection, resolve
from skipstone.store.store import ListedFile

if TYPE_CHECKING:
    from skipstone.scan.why import Why


@dataclass(frozen=True, slots=True)
class Task:
    """One file: the rows that may match, those proven to, and the values its partition gives."""

    path: str
    entry: ListedFile
    rows: RowSet
    proven: RowSet
    partition: Mapping[str, pa.Scalar]
    deleted: tuple[AntiJoin, ...] = ()
    """What tells rows that are deleted by their values; rows deleted by their places are not in ``rows``."""
    number: int = -1
    """The file's number in the lake's listing."""

    @property
    def residual(self) -> bool:
        """Whether some of the rows must still be tested."""
        return len(self.proven) < len(self.rows)

    def __reduce__(self) -> tuple[Any, ...]:
        # As arrays: a scalar pickles by way of Python, which has no dates past the year 9999.
        values = {name: pa.repeat(value, 1) for name, value in self.partition.items()}
        told = (self.path, self.entry, self.rows, self.proven, values, self.deleted, self.number)
        return (_unpickled_task, told)


def _unpickled_task(
    path: str,
    entry: ListedFile,
    rows: RowSet,
    proven: RowSet,
    values: Mapping[str, pa.Array],
    deleted: tuple[AntiJoin, ...],
    number: int,
) -> Task:
    partition = {name: value[0] for name, value in values.items()}
    return Task(path, entry, rows, proven, partition, deleted, number)


def check_rows(path: str, own: int, told: int) -> None:
    """Refuse a file with another number of rows than its table says."""
    if own != told:
        raise CorruptFileError(
            f"it has {own:,} rows, and its table says {told:,}",
            path=path,
            hint="the table's manifests are damaged: rewrite the file, or roll the table back",
        )


@dataclass(frozen=True, slots=True, eq=False)
class LazyTrace:
    """A trace that is built when somebody asks for it, and the part of it that reading goes by."""

    hints: Hints
    build: Callable[[], ScanTrace]


class _TraceField:
    """The field of a plan that holds its trace, built or not."""

    def __get__(self, plan: ScanPlan | None, owner: type[ScanPlan]) -> ScanTrace:
        if plan is None:
            raise AttributeError  # so that the field has no default
        held = plan.__dict__["trace"]
        if isinstance(held, LazyTrace):
            held = plan.__dict__["trace"] = held.build()
        trace: ScanTrace = held
        return trace

    def __set__(self, plan: ScanPlan, value: ScanTrace | LazyTrace) -> None:
        plan.__dict__["trace"] = value


# What a plan remembers of itself, which is worked out again elsewhere.
_DERIVED = ("digest", "filter", "compiled")


@dataclass(frozen=True, eq=False)
class ScanPlan:
    """The rows to read of each file, what is still to be tested on them, and the columns wanted.

    Frozen, picklable, equal and hashed by content. Plans of one lake version without a limit combine:
    ``a & b``, ``a | b``, and ``a - b``, the rows of a for which b is not TRUE.
    """

    lake: str
    version: str
    predicate: Predicate | None
    projection: Projection
    tasks: tuple[Task, ...]
    limit: int | None
    order: tuple[Order, ...]
    options: ScanOptions
    schemas: Schemas
    files: Files
    trace: _TraceField = _TraceField()

    @property
    def hints(self) -> Hints:
        """How to go about reading."""
        held: ScanTrace | LazyTrace = self.__dict__["trace"]
        return held.hints

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the wanted columns."""
        return tuple(".".join(path) for path in self.projection.paths)

    @property
    def schema(self) -> pa.Schema:
        """The schema of the answer."""
        return self.projection.schema

    @property
    def residual(self) -> Predicate | None:
        """What must still be tested on rows of tasks that have unproven ones."""
        return self.predicate if any(task.residual for task in self.tasks) else None

    @property
    def rows(self) -> int:
        """How many rows may match."""
        return sum(len(task.rows) for task in self.tasks)

    @cached_property
    def filter(self) -> RowFilter | None:
        """The predicate made ready to test rows; an error if it has a part that nobody can evaluate."""
        if self.predicate is None:
            return None
        compiled: Compiled | None = self.__dict__.get("compiled")
        sensitive = self.options.case_sensitive
        return RowFilter(self.predicate, self.schemas.query, case_sensitive=sensitive, compiled=compiled)

    def changed(self, **fields: Any) -> ScanPlan:
        """The plan with other fields; a trace that nobody asked for stays unbuilt."""
        other = object.__new__(ScanPlan)
        other.__dict__.update(self.__dict__, **fields)
        other.__dict__.pop("digest", None)
        if "predicate" in fields:
            other.__dict__.pop("filter", None)
            other.__dict__.pop("compiled", None)
        return other

    def why(self, path: str, row_group: int | None = None, row: int | None = None) -> Why:
        """Why a file, a row group or the page around a row was kept or dropped, quoting the statistic."""
        from skipstone.scan.why import explain_why

        return explain_why(self, path, row_group, row)

    def with_columns(self, columns: Sequence[str] | None) -> ScanPlan:
        """The same rows with other columns."""
        if columns is None:
            return self
        chosen = resolve(columns, self.schemas.read, case_sensitive=self.options.case_sensitive)
        names = tuple(".".join(path) for path in chosen.paths)
        trace = LazyTrace(self.hints, lambda: replace(self.trace, columns=names))
        return self.changed(projection=chosen, trace=trace)

    def part(
        self,
        tasks: Sequence[Task],
        projection: Projection,
        *,
        tested: bool,
        materialise: str = "one-pass",
    ) -> ScanPlan:
        """Rows of the plan to be read by themselves, with other columns; proven ones need no predicate."""
        held: ScanTrace | LazyTrace = self.__dict__["trace"]
        hints = replace(held.hints, materialise=materialise)
        part = ScanPlan(
            lake=self.lake,
            version=self.version,
            predicate=self.predicate if tested else None,
            projection=projection,
            tasks=tuple(tasks),
            limit=None,
            order=(),
            options=self.options,
            schemas=self.schemas,
            files=self.files,
            trace=LazyTrace(hints, lambda: replace(self.trace, hints=hints)),
        )
        if tested:
            part.__dict__["filter"] = self.filter
        return part

    # -- algebra -----------------------------------------------------------------------------

    def __and__(self, other: ScanPlan) -> ScanPlan:
        if not isinstance(other, ScanPlan):
            return NotImplemented
        return self._combine(
            other,
            _both(self.predicate, other.predicate),
            lambda a, b: (a.rows & b.rows, a.proven & b.proven) if a and b else None,
        )

    def __or__(self, other: ScanPlan) -> ScanPlan:
        if not isinstance(other, ScanPlan):
            return NotImplemented

        def united(a: Task | None, b: Task | None) -> tuple[RowSet, RowSet] | None:
            if a is None or b is None:
                only = a or b
                return (only.rows, only.proven) if only else None
            return a.rows | b.rows, a.proven | b.proven

        return self._combine(other, _either(self.predicate, other.predicate), united)

    def __sub__(self, other: ScanPlan) -> ScanPlan:
        if not isinstance(other, ScanPlan):
            return NotImplemented

        def rest(a: Task | None, b: Task | None) -> tuple[RowSet, RowSet] | None:
            if a is None or b is None:
                return (a.rows, a.proven) if a else None
            # b's rows only may match: just those proven to can be taken away.
            return a.rows - b.proven, a.proven - b.rows

        unless = other.predicate if other.predicate is not None else tree.Constant(True)
        predicate = _both(self.predicate, tree.Not(tree.Truth(unless, True)))
        return self._combine(other, predicate, rest)

    def _combine(
        self,
        other: ScanPlan,
        predicate: Predicate | None,
        join: Callable[[Task | None, Task | None], tuple[RowSet, RowSet] | None],
    ) -> ScanPlan:
        if self.version != other.version:
            raise UsageError(
                "the plans are of different lakes, or of different versions of one",
                hint="plan both on one lake object",
            )
        if self.limit is not None or other.limit is not None:
            raise UsageError("a plan with a limit doesn't combine", hint="limit the combined plan instead")
        mine = {task.entry: task for task in self.tasks}
        theirs = {task.entry: task for task in other.tasks}
        tasks = []
        for entry in sorted({*mine, *theirs}, key=lambda entry: entry.key):
            a, b = mine.get(entry), theirs.get(entry)
            joined = join(a, b)
            if joined is not None and not joined[0].is_empty:
                task = a or b
                assert task is not None
                tasks.append(replace(task, rows=joined[0], proven=joined[1]))
        combined = self.changed(predicate=predicate, tasks=tuple(tasks))
        build = lambda: _combined_trace(combined, self.trace, other.trace)  # noqa: E731
        return combined.changed(trace=LazyTrace(self.hints, build))

    def limited(self, limit: int | None) -> ScanPlan:
        """The same plan with a limit."""
        cut = apply_limit(self, limit)
        return cut.changed(trace=LazyTrace(cut.hints, lambda: replace(cut.trace, limit=limit)))

    # -- identity ----------------------------------------------------------------------------

    @cached_property
    def digest(self) -> str:
        """A fingerprint of the content, the same in every process."""
        found = xxhash.xxh3_128()
        predicate = None if self.predicate is None else self.predicate.key()
        head = (
            self.version,
            repr(predicate),
            self.projection.paths,
            self.limit,
            [str(term) for term in self.order],
            repr(self.options),
        )
        found.update(repr(head).encode())
        for task in self.tasks:
            found.update(repr((task.entry.key, task.entry.size, task.entry.version)).encode())
            found.update(task.rows.to_bytes())
            found.update(task.proven.to_bytes())
        return found.hexdigest()

    def __eq__(self, other: object) -> bool:
        return self.digest == other.digest if isinstance(other, ScanPlan) else NotImplemented

    def __hash__(self) -> int:
        return int(self.digest[:15], 16)

    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in self.__dict__.items() if name not in _DERIVED}
        return {**state, "trace": self.trace}

    def __repr__(self) -> str:
        what = f" where {self.predicate}" if self.predicate is not None else ""
        return f"ScanPlan({self.lake}{what}: {self.rows:,} rows in {len(self.tasks):,} files)"

    def __str__(self) -> str:
        return str(self.trace)

    def _repr_html_(self) -> str:
        return self.trace._repr_html_()


@dataclass(frozen=True, slots=True)
class Schemas:
    """A lake's columns with the types that reading gives, and with those that predicates are bound to."""

    read: pa.Schema
    query: pa.Schema
    partition: tuple[str, ...] = ()
    """Names of the columns that partitions give to every file."""


def _both(a: Predicate | None, b: Predicate | None) -> Predicate | None:
    if a is None or b is None:
        return a if b is None else b
    return a & b


def _either(a: Predicate | None, b: Predicate | None) -> Predicate | None:
    return None if a is None or b is None else a | b


def _text(predicate: Predicate | None) -> str:
    return "" if predicate is None else str(predicate)


def _combined_trace(plan: ScanPlan, a: ScanTrace, b: ScanTrace) -> ScanTrace:
    return replace(
        a,
        predicate=_text(plan.predicate),
        residual=_text(plan.residual),
        rows_kept=plan.rows,
        rows_whole=sum(len(task.proven) for task in plan.tasks),
        tasks=len(plan.tasks),
        levels=(),
        notes=a.notes + tuple(note for note in b.notes if note not in a.notes),
        unsupported=tuple(dict.fromkeys(a.unsupported + b.unsupported)),
    )


# -- limits ------------------------------------------------------------------------------------

# More rows than a lake can have, and still a number that Arrow can count with.
_EVERY = 2**62


def checked_limit(limit: int | None) -> int | None:
    """A caller's limit, or an error if it is no number of rows."""
    if limit is None:
        return None
    try:
        rows = -1 if isinstance(limit, bool) else operator.index(limit)
    except TypeError:
        rows = -1
    if rows < 0:
        raise UsageError(f"limit={limit!r}", hint="give a whole number of rows, or None")
    return min(rows, _EVERY)


def apply_limit(plan: ScanPlan, limit: int | None) -> ScanPlan:
    """``plan`` with a limit: cut to proven rows where those are enough, else tried in the best order."""
    if limit is None:
        return plan
    if plan.order:
        return plan.changed(limit=limit)
    proven = sum(len(task.proven) for task in plan.tasks)
    if proven < limit:
        # Files with most proven rows first: they may fill the limit before another is opened.
        ranked = sorted(plan.tasks, key=lambda task: -len(task.proven))
        return plan.changed(limit=limit, tasks=tuple(ranked))
    tasks: list[Task] = []
    missing = limit
    for task in plan.tasks:
        taken = task.proven.take(missing)
        if not taken.is_empty:
            tasks.append(replace(task, rows=taken, proven=taken))
            missing -= len(taken)

    def build() -> ScanTrace:
        return replace(plan.trace, residual="", rows_kept=limit, rows_whole=limit, tasks=len(tasks))

    return plan.changed(limit=limit, tasks=tuple(tasks), trace=LazyTrace(plan.hints, build))


# -- how phase two goes about it ------------------------------------------------------------------

_SAMPLE = 8
_FAR_THREADS = 16
_FEW_ROWS = 131_072
# What reading and decoding a second time costs, as bytes that could be read and decoded instead.
_SECOND_PASS = 512 * 1024
# The same for one local file, whose other columns are decoded only up to the last matching row.
_SECOND_LOCAL_PASS = 2 * 1024 * 1024


def choose(
    files: Files,
    tasks: Sequence[Task],
    compiled: Compiled | None,
    projection: Projection,
    options: ScanOptions,
) -> Hints:
    """The way to read ``tasks``, with the reason."""
    mode, why = _materialise(files, tasks, compiled, projection, options)
    return Hints(mode, why, _threads(files, tasks, options), options.batch_rows, options.route)


def _threads(files: Files, tasks: Sequence[Task], options: ScanOptions) -> int:
    """Pieces to decode side by side."""
    if options.threads is not None:
        return options.threads
    if files.store.local and sum([len(task.rows) for task in tasks]) <= _FEW_ROWS:
        # Short pieces spend their time in the interpreter, which one thread at a time can use.
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores if files.store.local else max(cores, _FAR_THREADS)


def _materialise(
    files: Files,
    tasks: Sequence[Task],
    compiled: Compiled | None,
    projection: Projection,
    options: ScanOptions,
) -> tuple[str, str]:
    open_tasks = [] if compiled is None else [task for task in tasks if task.residual]
    if compiled is None or not open_tasks:
        return "one-pass", "no row is left to test"
    rest = frozenset(projection.schema.names) - {path[0] for path in compiled.paths}
    if not rest:
        return "one-pass", "the predicate needs every column that is wanted"
    if options.materialise != "auto":
        return options.materialise, "asked for"
    sample = open_tasks[:_SAMPLE]
    # Other columns take at most the whole file's share, for which nothing has to be looked up.
    most = sum([task.entry.size * len(task.rows) / task.rows.total for task in sample])
    alone = len(tasks) == 1 and files.store.local
    if most <= (_SECOND_LOCAL_PASS if alone else _SECOND_PASS * len(sample)):
        return "one-pass", "the other columns take less than another request"
    payload = sum([_payload(files.layout(task.entry), rest, task) for task in sample])
    gap = files.source(sample[0].entry).gap
    if payload <= max(gap, _SECOND_PASS) * len(sample):
        return "one-pass", "the other columns take less than another request"
    return "late", "the other columns are read only where rows match"


def _payload(metadata: ParquetMetadata, names: frozenset[str], task: Task) -> float:
    """About how many bytes the named columns take in the rows of a task."""
    key = (_payload, names)
    size: int | None = metadata.memo.get(key)
    if size is None:
        size = metadata.memo[key] = sum(
            chunk.total_compressed_size
            for name in names
            for leaf in metadata.kin.leaves_of(name)
            for chunk in metadata.chunks(leaf.index)
        )
    return size * len(task.rows) / max(metadata.num_rows, 1)
