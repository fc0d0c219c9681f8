"""ScanPlan: the result of phase one, to be executed now, later, elsewhere, or with other columns.

The plan also decides how phase two reads: late materialisation or one pass, and the number of threads.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

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
from skipstone.report import Traced
from skipstone.report.trace import Hints, ScanTrace
from skipstone.scan.options import ScanOptions
from skipstone.scan.projection import Order, Projection, resolve
from skipstone.store.store import ListedFile

if TYPE_CHECKING:
    from skipstone.scan.why import Why


@dataclass(frozen=True, slots=True)
class Task:
    """One file: the rows that may match, those that certainly do, and its partition values."""

    path: str
    entry: ListedFile
    rows: RowSet
    proven: RowSet
    partition: Mapping[str, pa.Scalar]
    deleted: tuple[AntiJoin, ...] = ()
    """Deletes by value; rows deleted by position are not in ``rows``."""
    number: int = -1
    """The file's number in the lake's listing."""

    @property
    def residual(self) -> bool:
        """Whether some of the rows must still be tested."""
        return len(self.proven) < len(self.rows)

    def __reduce__(self) -> tuple[Any, ...]:
        # As arrays: scalars pickle as Python values, which have no dates after the year 9999.
        values = {name: pa.repeat(value, 1) for name, value in self.partition.items()}
        state = (self.path, self.entry, self.rows, self.proven, values, self.deleted, self.number)
        return (_unpickled_task, state)


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


def check_rows(path: str, own: int, recorded: int) -> None:
    """Refuse a file whose row count differs from the table's record."""
    if own != recorded:
        raise CorruptFileError(
            f"file has {own:,} rows, but the table recorded {recorded:,}",
            path=path,
            hint="rewrite the file, or roll the table back",
        )


@dataclass(frozen=True, slots=True, eq=False)
class LazyTrace:
    """A trace that is built on demand, and the hints that execution needs."""

    hints: Hints
    build: Callable[[], ScanTrace]


class _TraceField:
    """The trace of a plan, built at first access."""

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


# Cached values, which are not pickled.
_DERIVED = ("digest", "filter", "compiled")


@dataclass(frozen=True, eq=False)
class ScanPlan(Traced):
    """The rows to read of each file, the predicate to test on them, and the columns to return.

    A plan is immutable, can be pickled, and is compared and hashed by its content. Plans of the same version
    of a lake combine if they have no limit: ``a & b``, ``a | b``, and ``a - b`` (rows of ``a`` for which
    ``b`` is not TRUE).

    Examples:
        >>> import skipstone as sk
        >>> lake = sk.open("events")
        >>> both = lake.scan("event_id < 10").plan() & lake.scan("country = 'DE'").plan()
        >>> sk.execute(both).to_arrow().num_rows
        3
    """

    _internal: ClassVar[frozenset[str]] = frozenset(
        {
            "changed",
            "compiled",
            "digest",
            "files",
            "filter",
            "hints",
            "part",
            "projection",
            "sample",
            "schemas",
        }
    )

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
        """How to read."""
        held: ScanTrace | LazyTrace = self.__dict__["trace"]
        return held.hints

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns to return."""
        return tuple(self.projection.result.names)

    @property
    def schema(self) -> pa.Schema:
        """The schema of the result."""
        return self.projection.result

    @property
    def residual(self) -> Predicate | None:
        """The predicate that must still be tested on rows; None if all rows are proven to match."""
        return self.predicate if any(task.residual for task in self.tasks) else None

    @property
    def rows(self) -> int:
        """The number of rows that can match."""
        return sum(len(task.rows) for task in self.tasks)

    @cached_property
    def filter(self) -> RowFilter | None:
        """The row filter of the predicate; raises if a part of it can't be evaluated."""
        if self.predicate is None:
            return None
        compiled: Compiled | None = self.__dict__.get("compiled")
        sensitive = self.options.case_sensitive
        return RowFilter(self.predicate, self.schemas.query, case_sensitive=sensitive, compiled=compiled)

    def changed(self, **fields: Any) -> ScanPlan:
        """Replace fields without building the trace."""
        other = object.__new__(ScanPlan)
        other.__dict__.update(self.__dict__, **fields)
        other.__dict__.pop("digest", None)
        if "predicate" in fields:
            other.__dict__.pop("filter", None)
            other.__dict__.pop("compiled", None)
        return other

    def why(self, path: str, row_group: int | None = None, row: int | None = None) -> Why:
        """Explain why a file, a row group or a page is kept or dropped, with the statistics that decide it.

        Args:
            path: The path of the file, or an unambiguous end of it.
            row_group: The row group.
            row: A row of the file, whose page is explained.

        Examples:
            >>> import skipstone as sk
            >>> plan = sk.open("events").scan("event_id = 7").plan()
            >>> plan.why("part-3.parquet").conclusion
            'dropped: no row can match'
        """
        from skipstone.scan.why import explain_why

        return explain_why(self, path, row_group, row)

    def with_columns(self, columns: Sequence[str] | None) -> ScanPlan:
        """Return the plan for the same rows with other columns."""
        if columns is None:
            return self
        sensitive, schemas = self.options.case_sensitive, self.schemas
        chosen = resolve(columns, schemas.read, case_sensitive=sensitive, query=schemas.query)
        names = tuple(chosen.result.names)
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
        """A plan for some rows with other columns; ``tested`` keeps the predicate."""
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
            # Only proven rows of b can be subtracted: the others merely may match.
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
                "plans belong to different lakes or versions of a lake",
                hint="plan both on the same lake object",
            )
        if self.limit is not None or other.limit is not None:
            raise UsageError("can't combine a plan that has a limit", hint="limit the combined plan instead")
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

    def sample(self, rows: int) -> ScanPlan:
        """A plan that tests no more than ``rows`` rows."""
        tasks: list[Task] = []
        for task in self.tasks:
            taken = task.rows.take(rows)
            if not taken.is_empty:
                tasks.append(replace(task, rows=taken, proven=task.proven & taken))
            rows -= len(taken)
        return self.changed(tasks=tuple(tasks))

    def limited(self, limit: int | None) -> ScanPlan:
        """Return the plan with a limit."""
        cut = apply_limit(self, limit)
        return cut.changed(trace=LazyTrace(cut.hints, lambda: replace(cut.trace, limit=limit)))

    # -- identity ----------------------------------------------------------------------------

    @cached_property
    def digest(self) -> str:
        """Fingerprint of the content, the same in every process."""
        digest = xxhash.xxh3_128()
        predicate = None if self.predicate is None else self.predicate.key()
        computed = self.projection.computed
        head = (
            self.version,
            repr(predicate),
            self.projection.paths,
            [(name, value.key()) for name, value in computed.values.items()] if computed else None,
            self.limit,
            [str(term) for term in self.order],
            repr(self.options),
        )
        digest.update(repr(head).encode())
        for task in self.tasks:
            digest.update(repr((task.entry.key, task.entry.size, task.entry.version)).encode())
            digest.update(task.rows.to_bytes())
            digest.update(task.proven.to_bytes())
        return digest.hexdigest()

    def __eq__(self, other: object) -> bool:
        return self.digest == other.digest if isinstance(other, ScanPlan) else NotImplemented

    def __hash__(self) -> int:
        return int(self.digest[:15], 16)

    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in self.__dict__.items() if name not in _DERIVED}
        return {**state, "trace": self.trace}


@dataclass(frozen=True, slots=True)
class Schemas:
    """A lake's columns with the types that scans return, and with those that predicates are bound to."""

    read: pa.Schema
    query: pa.Schema
    partition: tuple[str, ...] = ()
    """Names of the partition columns."""


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

# More rows than a lake can have, and still valid for Arrow.
_EVERY = 2**62


def checked_limit(limit: int | None) -> int | None:
    """Check a caller's limit."""
    if limit is None:
        return None
    try:
        rows = -1 if isinstance(limit, bool) else operator.index(limit)
    except TypeError:
        rows = -1
    if rows < 0:
        raise UsageError(
            f"limit must be a non-negative integer, got {limit!r}", hint="pass a number of rows, or None"
        )
    return min(rows, _EVERY)


def apply_limit(plan: ScanPlan, limit: int | None) -> ScanPlan:
    """Add a limit: keep only proven rows if they suffice, else sort files by their proven rows."""
    if limit is None:
        return plan
    if plan.order:
        return plan.changed(limit=limit)
    proven = sum(len(task.proven) for task in plan.tasks)
    if proven < limit:
        # Files with most proven rows first: they can fill the limit before others are opened.
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


# -- hints for phase two --------------------------------------------------------------------------

_SAMPLE = 8
_FAR_THREADS = 16
_FEW_ROWS = 131_072
# Cost of a second read and decode, in bytes that could be read and decoded instead.
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
    """How to read ``tasks``, with the reason."""
    mode, why = _materialise(files, tasks, compiled, projection, options)
    return Hints(mode, why, _threads(files, tasks, options), options.batch_rows, options.route)


def _threads(files: Files, tasks: Sequence[Task], options: ScanOptions) -> int:
    """Number of pieces to decode in parallel."""
    if options.threads is not None:
        return options.threads
    if files.store.local and sum([len(task.rows) for task in tasks]) <= _FEW_ROWS:
        # Short pieces spend their time in the interpreter, which only one thread can use.
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
        return "one-pass", "no rows to test"
    rest = frozenset(projection.schema.names) - {path[0] for path in compiled.paths}
    if not rest:
        return "one-pass", "the predicate uses all projected columns"
    if options.materialise != "auto":
        return options.materialise, "requested"
    sample = open_tasks[:_SAMPLE]
    # A bound from file sizes alone: the other columns are at most the rows' share of the file.
    most = sum([task.entry.size * len(task.rows) / task.rows.total for task in sample])
    alone = len(tasks) == 1 and files.store.local
    if most <= (_SECOND_LOCAL_PASS if alone else _SECOND_PASS * len(sample)):
        return "one-pass", "the other columns cost less than another request"
    payload = sum([_payload(files.layout(task.entry), rest, task) for task in sample])
    gap = files.source(sample[0].entry).gap
    if payload <= max(gap, _SECOND_PASS) * len(sample):
        return "one-pass", "the other columns cost less than another request"
    return "late", "the other columns are read only where rows match"


def _payload(metadata: ParquetMetadata, names: frozenset[str], task: Task) -> float:
    """Approximate bytes of the named columns in the rows of a task."""
    key = (_payload, names)
    size: int | None = metadata.memo.get(key)
    if size is None:
        size = metadata.memo[key] = sum(
            chunk.total_compressed_size
            for name in names
            for leaf in metadata.schema_group.leaves_of(name)
            for chunk in metadata.chunks(leaf.index)
        )
    return size * len(task.rows) / max(metadata.num_rows, 1)
