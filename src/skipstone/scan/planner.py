"""Phase one: from a query to a plan. Partitions come first, then footers, then page indexes and filters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from skipstone.core.domain import ColumnDomain, ColumnHandle
from skipstone.core.evidence import Array
from skipstone.core.ir import Compiled, compile_predicate
from skipstone.core.ir.nodes import AndNode, ColumnRef, Leaf, Node, columns_of
from skipstone.core.judge import Verdict
from skipstone.core.rows import RowSet
from skipstone.errors import UnknownColumnError, UsageError
from skipstone.index.container import BadIndex
from skipstone.lake.snapshot import FileEntry, Overlay, Path, PrunedFiles, Snapshot, opened_name
from skipstone.predicate import predicate as to_predicate
from skipstone.predicate.tree import Compare, Constant, Literal, Predicate
from skipstone.prune.cascade import Cascade, Outcome
from skipstone.prune.ledger import Ledger, joined_levels
from skipstone.prune.survey import Fetch, Need, Survey
from skipstone.report.trace import DeleteUse, IndexUse, Level, OverlayUse, ScanTrace
from skipstone.scan.options import DEFAULT, ScanOptions
from skipstone.scan.plan import LazyTrace, ScanPlan, Schemas, Task, apply_limit, check_rows, choose
from skipstone.scan.projection import Order, Projection
from skipstone.store.local import resolve_directories_once
from skipstone.store.source import ByteRange, checkpoint, drive, watch
from skipstone.store.store import ListedFile

if TYPE_CHECKING:
    from skipstone.index.coverage import IndexCoverage
    from skipstone.scan.lake import Lake

_FIRST_FOOTERS = 8
# For fewer files it costs more than it saves to share their directories.
_FEW = 8
_EACH_FILE: AbstractContextManager[None] = nullcontext()
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Question:
    """One query of a lake."""

    predicate: Predicate | None
    projection: Projection
    limit: int | None
    order: tuple[Order, ...]
    options: ScanOptions


def make_plan(lake: Lake, question: Question) -> ScanPlan:
    """Plan a scan of the lake as it is pinned."""
    return _planned(lake, question, _Planner.plan)


def plan_among(lake: Lake, question: Question, files: Array) -> ScanPlan:
    """Plan a scan of some of the lake's files."""

    def ask(planner: _Planner) -> ScanPlan:
        compiled, pruned = planner._prune_files()
        return planner.tasks_of(compiled, pruned.among(files))

    return _planned(lake, question, ask)


class RowTest(Protocol):
    """A test of rows that takes the place of a predicate."""

    @property
    def columns(self) -> tuple[Path, ...]:
        """Columns that it uses."""

    def mask(self, table: pa.Table) -> Array:
        """Per row, whether it passes."""


def plan_candidates(
    lake: Lake,
    node: Node,
    projection: Projection,
    options: ScanOptions,
    files: Array | None = None,
    test: RowTest | None = None,
) -> ScanPlan:
    """Plan the rows that may match a condition on columns, and that pass a test when they are read.

    ``files`` are the numbers of the files to plan; None for all.
    """
    paths = tuple(ref.path for ref in columns_of(node))
    compiled = Compiled(node, Constant(True), (), (), paths)

    def ask(planner: _Planner) -> ScanPlan:
        planner.ledger.start()
        coverage = planner.coverage
        if coverage is not None and coverage.small and not len(coverage.unknown):
            # The bounds of all pages are in memory, and tell more than those of manifests.
            pruned = PrunedFiles(np.arange(len(lake.pinned.entries)), per_file=True)
        else:
            pruned = planner.snapshot.prune_files(node, planner.ledger, strict=options.strict)
        plan = planner.tasks_of(compiled, pruned if files is None else pruned.among(files))
        if test is not None:
            # The condition can be weaker than the test, so it proves nothing.
            tested = tuple(replace(task, proven=_none(task.rows.total)) for task in plan.tasks)
            plan = plan.changed(tasks=tested)
            plan.__dict__["filter"] = test
            return plan
        tasks = [task if task.deleted else replace(task, proven=task.rows) for task in plan.tasks]
        return plan.changed(predicate=None, tasks=tuple(tasks))

    return _planned(lake, Question(None, projection, None, (), options), ask)


def plan_whole_files(lake: Lake, files: Array, rows: Array) -> ScanPlan:
    """Plan all rows of the numbered files that are not deleted; ``rows`` are their recorded row counts."""
    question = Question(
        None, Projection.of(lake.schema, [(name,) for name in lake.schema.names]), None, (), DEFAULT
    )
    pruned = PrunedFiles(files, True, rows > 0, rows)
    return _planned(lake, question, lambda planner: planner.tasks_of(None, pruned))


def files_to_query(
    lake: Lake,
    columns: Iterable[str | ColumnHandle] | None,
    column_domain: ColumnDomain,
    options: ScanOptions,
) -> list[FileEntry]:
    """The files and row groups of ``lake`` that may have rows within the domains of columns.

    This is the call of Hudi's RFC 58.
    """
    if not isinstance(column_domain, ColumnDomain):
        raise UsageError(f"column_domain must be a ColumnDomain, got {type(column_domain).__name__}")
    domain = _restrict(lake, columns, column_domain)
    where = None if domain.is_all else to_predicate(domain)
    # This call returns row groups; pages are up to the reader.
    options = replace(options, page_index=False)
    question = Question(where, Projection.of(lake.schema, []), None, (), options)
    files = _planned(lake, question, _Planner.row_groups)
    entries = lake.pinned.files_of(np.fromiter(files, dtype=np.int64, count=len(files)))
    return [
        replace(entry, rows=rows, row_groups=tuple(groups))
        for entry, (rows, groups) in zip(entries, files.values(), strict=True)
    ]


def _restrict(lake: Lake, columns: Iterable[str | ColumnHandle] | None, domain: ColumnDomain) -> ColumnDomain:
    """The domain of the named columns only."""
    if columns is None or domain.is_none:
        return domain
    names = {columns} if isinstance(columns, str) else {str(column) for column in columns}
    for name in sorted(names):
        if name.partition(".")[0] not in lake.schema.names and name not in lake.schema.names:
            raise UnknownColumnError(
                "lake has no such column",
                path=lake.uri,
                column=name,
                hint=f"available columns: {', '.join(lake.schema.names)}",
            )
    return ColumnDomain(tuple((handle, one) for handle, one in domain.items if str(handle) in names))


def _planned(lake: Lake, question: Question, ask: Callable[[_Planner], T]) -> T:
    """Run the planner, without parts of the index that turn out to be damaged."""
    use = question.options.skipping and question.options.index
    while True:
        coverage = lake.index.coverage if use else None
        try:
            return ask(_Planner(lake, lake.pinned, question, Ledger(lambda: _cost(lake)), coverage))
        except BadIndex as error:
            lake.index.distrust(error)


@lru_cache(maxsize=64)
def _none(total: int) -> RowSet:
    # Files of a lake often have the same size.
    return RowSet.none(total)


@lru_cache(maxsize=64)
def _all(total: int) -> RowSet:
    return RowSet.all(total)


def _cost(lake: Lake) -> tuple[int, int]:
    data, index = lake.pinned.access.io(), lake.index.access.io()
    return data.requests + index.requests, data.bytes + index.bytes


@dataclass(slots=True)
class _Planner:
    lake: Lake
    snapshot: Snapshot
    question: Question
    ledger: Ledger
    coverage: IndexCoverage | None
    rows: Array = field(init=False)
    """Rows of the surveyed files, or of their row groups."""
    dropped: int = 0
    """Rows of files dropped by the index."""
    deletes: DeleteUse | None = None

    def plan(self) -> ScanPlan:
        return self.tasks_of(*self._prune_files())

    def tasks_of(self, compiled: Compiled | None, pruned: PrunedFiles) -> ScanPlan:
        tasks = self._at_once(compiled, pruned)
        if tasks is None:
            survey, files = self._survey(pruned.others, compiled)
            self.rows = survey.rows
            if survey.count or not pruned.per_file:
                outcome = self._outcome(survey, files, compiled, by_file=not pruned.per_file)
            else:
                outcome = Outcome(None, {}, {})
            tasks = self._tasks(files, outcome, pruned)
        return self._package(compiled, tasks, pruned)

    def _at_once(self, compiled: Compiled | None, pruned: PrunedFiles) -> tuple[Task, ...] | None:
        """Plan indexed files from the loaded pages of the entire lake; None if that is not possible.

        A few other files, such as those in memory, are judged by themselves.
        """
        coverage, files = self.coverage, pruned.others
        if compiled is None or files is None or coverage is None or not coverage.small:
            return None
        indexed, others = None, files[:0]
        if len(coverage.unknown):
            covered = coverage.owner[files] >= 0
            indexed, files, others = coverage.indexed, files[covered], files[~covered]
        if not len(files) or len(others) > _FIRST_FOOTERS:
            return None
        refs = columns_of(compiled.node)
        if not all(coverage.served(refs, self.snapshot.partition_names)):
            return None
        survey, numbers = self._survey_files(indexed, compiled)
        outcome = self._cascade(survey, compiled).at_once(refs)
        if outcome is None:
            return None
        left = np.zeros(len(self.snapshot.entries), dtype=bool)
        left[files] = True
        left = left[numbers]
        self.rows = survey.totals[left]

        def levels() -> tuple[Level, ...]:
            some, _ = self._survey_files(files, compiled)
            return self._cascade(some, compiled, by_file=not pruned.per_file).levels()

        rows, proven = (
            {file: rows for file, rows in by_file.items() if left[file]}
            for by_file in (outcome.rows, outcome.proven)
        )
        outcome = Outcome(None, rows, proven)
        if len(others):
            second, more = self._survey_files(others, compiled)
            own = Ledger(lambda: (0, 0), self.ledger.notes)
            cascade = replace(self._cascade(second, compiled, by_file=not pruned.per_file), ledger=own)
            added = drive(cascade.steps(), lambda need: self._fetch(more, need))
            self.ledger.defer(lambda: joined_levels(levels(), own.levels()), free=False)
            self.rows = np.concatenate([self.rows, second.totals])
            numbers, outcome = np.concatenate([numbers, more]), outcome.followed_by(added, len(numbers))
        else:
            self.ledger.defer(levels, free=survey.near)
        return self._tasks(numbers, outcome, pruned)

    def row_groups(self) -> dict[int, tuple[int, list[int]]]:
        """Files that may match, by number in the listing: their rows, and the row groups that may match."""
        compiled, pruned = self._prune_files()
        survey, files = self._survey(pruned.files, compiled)
        outcome = self._outcome(survey, files, compiled, by_file=not pruned.per_file)
        assert outcome.verdicts is not None
        kept = np.flatnonzero((outcome.verdicts != Verdict.NONE) & (survey.rows > 0))
        groups: dict[int, tuple[int, list[int]]] = {}
        for owner, number in zip(survey.owners[kept].tolist(), survey.numbers[kept].tolist(), strict=True):
            groups.setdefault(int(files[owner]), (int(survey.totals[owner]), []))[1].append(number)
        return dict(sorted(groups.items()))

    def _prune_files(self) -> tuple[Compiled | None, PrunedFiles]:
        """The predicate bound to the lake, and the files left before any footer is opened."""
        # Earlier I/O does not belong to this plan.
        self.ledger.start()
        compiled = self._compile()
        options = self.question.options
        if compiled is not None and not options.skipping:
            return compiled, PrunedFiles()
        node = None if compiled is None else compiled.node
        return compiled, self.snapshot.prune_files(node, self.ledger, strict=options.strict)

    def _compile(self) -> Compiled | None:
        predicate, options = self.question.predicate, self.question.options
        if predicate is None:
            return None
        return compile_predicate(predicate, self.snapshot.query_schema, case_sensitive=options.case_sensitive)

    # -- footers -----------------------------------------------------------------------------

    def _survey(self, files: Array | None, compiled: Compiled | None) -> tuple[Survey, Array]:
        """A survey of the remaining files; with only a limit, of no more files than it needs."""
        limit = self.question.limit
        if compiled is not None or limit is None or self.question.order:
            return self._survey_files(files, compiled)
        some = _FIRST_FOOTERS
        every = self._numbers(files)
        while True:
            survey, chosen = self._survey_files(every[:some], None)
            if len(chosen) == len(every) or survey.rows.sum() >= limit:
                return survey, chosen
            some *= 4

    def _numbers(self, files: Array | None) -> Array:
        return np.arange(len(self.snapshot.entries)) if files is None else files

    def _survey_files(self, files: Array | None, compiled: Compiled | None) -> tuple[Survey, Array]:
        """A survey of files by the index where it covers them, else by their footers."""
        coverage = self.coverage
        if coverage is None or not coverage.covered:
            return self.lake.survey(self._numbers(files)), self._numbers(files)
        if compiled is None:
            files = self._numbers(files)
            return self.lake.surveyed(coverage, coverage.rows_of(files), files[coverage.owner[files] < 0])
        refs = columns_of(compiled.node)
        if not coverage.small:
            return self.lake.surveyed(coverage, *self._prune_segments(coverage, files, compiled.node, refs))
        # A small lake is surveyed completely, so that all queries share the survey.
        served = coverage.served(refs, self.snapshot.partition_names)
        key = (coverage, served, None if files is None else files.tobytes())

        def make() -> tuple[Survey, Array]:
            every = self._numbers(files)
            indexed = [pair for pair in coverage.rows_of(every) if served[pair[0]]]
            # The last entry is for files outside the index, whose owner is -1.
            read = np.array([*served, False])[coverage.owner[every]]
            return self.lake.surveyed(coverage, indexed, every[~read])

        return self.lake.remembered(key, make)

    def _prune_segments(
        self, coverage: IndexCoverage, files: Array | None, node: Node, refs: Sequence[ColumnRef]
    ) -> tuple[Sequence[tuple[int, Array]], Array]:
        """Files that the index keeps, by segment, and those whose footers must be read."""
        unknown = coverage.unknown if files is None else files[coverage.owner[files] < 0]
        pruned = coverage.prune_segments(node, refs, files, self.snapshot.all_overrides)
        self.dropped = pruned.rows_dropped
        spent = self.ledger.spend()
        self.ledger.add(
            Level("index", pruned.units, pruned.count, pruned.whole, pruned.rows, pruned.drops, *spent)
        )
        # Footers are needed for columns that a segment lacks.
        names = self.snapshot.partition_names
        served = [coverage.serves(segment, refs, names) for segment, _ in pruned.kept]
        indexed = [pair for pair, sure in zip(pruned.kept, served, strict=True) if sure]
        others = [coverage.files_of(*p) for p, sure in zip(pruned.kept, served, strict=True) if not sure]
        return indexed, np.sort(np.concatenate([unknown, *others]))

    def _outcome(self, survey: Survey, files: Array, compiled: Compiled | None, *, by_file: bool) -> Outcome:
        if compiled is not None and self.question.options.skipping:
            cascade = self._cascade(survey, compiled, by_file=by_file)
            return cascade.from_pages() or drive(cascade.steps(), lambda need: self._fetch(files, need))
        verdict = Verdict.ALL if compiled is None else Verdict.SOME
        totals = survey.totals
        if by_file:
            self.ledger.level("files", np.full(len(totals), verdict, dtype=np.int8), totals)
        every = {number: RowSet.all(total) for number, total in enumerate(totals.tolist()) if total}
        verdicts = np.full(len(survey), verdict, dtype=np.int8)
        return Outcome(verdicts, every, every if compiled is None else {})

    def _cascade(self, survey: Survey, compiled: Compiled, *, by_file: bool = False) -> Cascade:
        return Cascade(
            compiled.node,
            self.question.options.prune,
            survey,
            self.ledger,
            by_file=by_file,
            cache=self.snapshot.access.cache,
        )

    def _fetch(self, files: Array, need: Need) -> list[bytes]:
        """Read the requested bytes, files in parallel."""
        fetches = [fetch for fetch in need if isinstance(fetch, Fetch)]
        owners = [self.snapshot.entries[files[fetch.file]] for fetch in fetches]
        wanted: dict[ListedFile, list[ByteRange]] = {}
        for owner, fetch in zip(owners, fetches, strict=True):
            wanted.setdefault(owner, []).append(fetch.range)
        bodies = {entry: iter(data) for entry, data in self.snapshot.access.read_many(wanted).items()}
        return [next(bodies[owner]) for owner in owners]

    # -- the plan ----------------------------------------------------------------------------

    def _tasks(self, files: Array, outcome: Outcome, pruned: PrunedFiles) -> tuple[Task, ...]:
        if watch.on:
            checkpoint()
        found = {
            int(files[file]): (rows, outcome.proven.get(file) or _none(rows.total))
            for file, rows in outcome.rows.items()
        }
        if pruned.files is not None:
            for number in pruned.empty.tolist():
                if number in found:
                    check_rows(self.snapshot.entries[number].key, found[number][0].total, 0)
            numbers, totals = pruned.proven
            for number, total in zip(numbers.tolist(), totals.tolist(), strict=True):
                found[number] = (_all(total), _all(total))
        # Sorted by path, the row order of unsorted scans.
        chosen = sorted(found, key=lambda number: self.snapshot.entries[number].key)
        self.snapshot.check_files(chosen)
        deletions = self.snapshot.deletions(chosen)
        for number, gone in deletions.rows.items():
            check_rows(self.snapshot.entries[number].key, found[number][0].total, gone.total)
        if deletions.files:
            less = sum(len(found[number][0] & rows) for number, rows in deletions.rows.items())
            less -= sum(len(found[number][0] & rows) for number, rows in deletions.hidden.items())
            self.deletes = DeleteUse(deletions.files, deletions.applied, less, len(deletions.values))
        tasks = []
        with resolve_directories_once() if chosen[_FEW:] else _EACH_FILE:
            for number, partition in zip(chosen, self.snapshot.constants(chosen), strict=True):
                rows, proven = found[number]
                deleted, anti = deletions.rows.get(number), deletions.values.get(number, ())
                if deleted is not None:
                    rows, proven = rows - deleted, proven - deleted
                if rows.is_empty:
                    continue
                entry = self.snapshot.entries[number]
                proven = _none(rows.total) if anti else proven
                path = self.snapshot.access.path(entry)
                tasks.append(Task(path, entry, rows, proven, partition, anti, number))
        return tuple(tasks)

    def _index_use(self) -> IndexUse | None:
        if self.coverage is None:
            return None
        coverage = self.coverage
        return IndexUse(
            self.lake.index.uri, coverage.manifest.number, coverage.covered, tuple(coverage.problems)
        )

    def _package(self, compiled: Compiled | None, tasks: tuple[Task, ...], pruned: PrunedFiles) -> ScanPlan:
        snapshot, asked = self.snapshot, self.question
        # Captured now, because the lake can be refreshed before the trace is built.
        version, entries = snapshot.version, snapshot.entries
        overlay = snapshot.overlay
        hints = choose(snapshot.access, tasks, compiled, asked.projection, asked.options)

        def build() -> ScanTrace:
            rows = sum(len(task.rows) for task in tasks)
            whole = sum(len(task.proven) for task in tasks)
            total = int(self.rows.sum()) + int(pruned.proven[1].sum()) + self.dropped + pruned.dropped
            try:
                levels = self.ledger.levels()
            except BadIndex as error:
                levels = ()
                self.ledger.notes.add("index", f"levels are no longer available: {error.reason}")
            for part, instead in _null_comparisons(asked.predicate):
                self.ledger.notes.add(part, f"never true, as a comparison with NULL; use {instead}")
            return ScanTrace(
                lake=opened_name(snapshot),
                version=version,
                predicate=str(asked.predicate) if asked.predicate is not None else "",
                residual=str(compiled.residual) if compiled is not None and whole < rows else "",
                columns=tuple(asked.projection.result.names),
                limit=asked.limit,
                order=tuple(map(str, asked.order)),
                files=len(entries),
                file_bytes=sum(entry.size for entry in entries),
                rows=total,
                rows_kept=rows,
                rows_whole=whole,
                tasks=len(tasks),
                levels=levels,
                hints=hints,
                notes=self.ledger.notes.done(),
                index=self._index_use(),
                partitions=pruned.partitions,
                deletes=self.deletes,
                overlay=None if overlay is None else _overlay_use(overlay, tasks),
                unsupported=tuple(map(str, compiled.unsupported)) if compiled is not None else (),
            )

        plan = ScanPlan(
            lake=snapshot.uri,
            version=version,
            predicate=compiled.residual if compiled is not None else None,
            projection=asked.projection,
            tasks=tasks,
            limit=None,
            order=asked.order,
            options=asked.options,
            schemas=_schemas(snapshot),
            files=snapshot.access,
            trace=LazyTrace(hints, build),
        )
        if compiled is not None:
            plan.__dict__["compiled"] = compiled
            if not _is_simple(compiled):
                # Built now, so that a predicate that can't be evaluated fails before anything is read.
                assert plan.filter is not None
        return apply_limit(plan, asked.limit)


def _overlay_use(overlay: Overlay, tasks: Sequence[Task]) -> OverlayUse:
    kept = sum(len(task.rows) for task in tasks if task.number >= overlay.first)
    return OverlayUse(overlay.name, overlay.rows, kept, overlay.hidden)


def _is_simple(compiled: Compiled) -> bool:
    """Whether the predicate has only conditions on columns, which can always be evaluated."""
    node = compiled.node
    args = node.args if isinstance(node, AndNode) else (node,)
    return not compiled.unsupported and all([isinstance(n, Leaf) and not n.ref.via for n in args])  # noqa: C419


_SCHEMAS = 64
_cached_schemas: dict[tuple[int, int], Schemas] = {}


def _schemas(snapshot: Snapshot) -> Schemas:
    """The lake's schemas, cached by identity: a lake has one object of each per version."""
    key = id(snapshot.schema), id(snapshot.query_schema)
    schemas = _cached_schemas.get(key)
    if schemas is None:
        if len(_cached_schemas) >= _SCHEMAS:
            _cached_schemas.clear()
        partition = tuple(name for name in snapshot.schema.names if name in snapshot.partition_names)
        schemas = _cached_schemas[key] = Schemas(snapshot.schema, snapshot.query_schema, partition)
    return schemas


def _null_comparisons(predicate: Predicate | None) -> list[tuple[str, str]]:
    """Comparisons with NULL, which are never true, and what was probably meant."""
    nodes = predicate.walk() if predicate is not None else ()
    tests = [node for node in nodes if isinstance(node, Compare) and node.op != "<=>"]
    return [
        (str(test), "IS NOT NULL" if test.op == "<>" else "IS NULL")
        for test in tests
        if any(isinstance(side, Literal) and side.missing for side in (test.left, test.right))
    ]
