"""Maintenance of a table: recommended tasks, their savings, and running them.

A proposal is made from manifests, dry runs and a sample of rows. Each task is planned again when it runs,
because the ones before it have changed the table.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.compact.expire import ExpireReport
from skipstone.compact.orphans import OrphansReport
from skipstone.compact.plan import CompactionPlan
from skipstone.core.evidence import Array
from skipstone.errors import SkipstoneError, UsageError, did_you_mean
from skipstone.index.advise.layout import LakeLayout, check_sample, measure_layout
from skipstone.index.advise.questions import read_workload
from skipstone.report import Reported
from skipstone.report.units import percent, phrase, plural, size, some, times
from skipstone.write.table_job import sort_columns

if TYPE_CHECKING:
    from skipstone.index.advise.advice import LayoutAdvice
    from skipstone.scan.table import Table
    from skipstone.typing import IngestProgress, QueryLog

MaintenanceName: TypeAlias = Literal[
    "recluster", "compact", "deletes", "manifests", "expire", "orphans", "index"
]
NAMES: Final[tuple[MaintenanceName, ...]] = get_args(MaintenanceName)
"""Tasks in the order in which they run."""
_GAIN: Final = 1.5
"""Times less that look-ups must read for an order of rows to be worth a rewrite."""
_MANIFESTS: Final = 4
"""Manifests that must go for a rewrite to be worth a commit."""
_FILES_PER_DELETE: Final = 4
"""Deletes are applied if this few data files are rewritten per delete file that goes."""


@dataclass(frozen=True, slots=True)
class Savings:
    """What a task saves: requests and bytes of each query ``per`` describes, and stored bytes once."""

    requests: int = 0
    bytes: int = 0
    per: str = "full scan"
    stored: int = 0

    @property
    def little(self) -> bool:
        """Whether nothing that can be measured is saved."""
        return self.requests <= 0 and self.bytes <= 0 and self.stored <= 0

    def __str__(self) -> str:
        saved = phrase(some(self.requests, "request"), size(self.bytes) if self.bytes > 0 else "", by=", ")
        stored = f"{size(self.stored)} of storage" if self.stored > 0 else ""
        return phrase(f"{saved} per {self.per}" if saved else "", stored) or "little"


@dataclass(frozen=True, slots=True)
class MaintenanceTask:
    """Something that can be done to a table, why, and what it saves.

    Examples:
        >>> import skipstone as sk
        >>> task = sk.open("db.events", catalog="warehouse").maintenance()["index"]
        >>> task.recommended, task.why, task.saves.requests
        (True, 'there is no index', 1)
    """

    name: MaintenanceName
    recommended: bool
    why: str
    work: str
    """What it reads and writes."""
    saves: Savings
    command: tuple[str, ...]
    """Arguments of ``skipstone`` after the name of the table that do only this."""


@dataclass(frozen=True, slots=True)
class Maintenance(Reported):
    """Recommended maintenance of a table; ``table.maintain(proposal)`` runs the recommended tasks.

    Examples:
        >>> import skipstone as sk
        >>> proposal = sk.open("db.events", catalog="warehouse").maintenance()
        >>> proposal.recommended
        ('index',)
    """

    view: ClassVar[str] = "skipstone.compact.maintenance_view:proposal_tree"
    width: ClassVar[int] = 120
    json_also: ClassVar[Mapping[str, str]] = {"recommended": "recommended"}

    table: str
    snapshot: int | None
    files: int
    bytes: int
    delete_files: int
    tasks: tuple[MaintenanceTask, ...]
    """In the order in which they run."""
    problems: tuple[str, ...] = ()
    """What could not be examined, and why."""
    arguments: tuple[str, ...] = ()
    """The table as arguments of the command line."""
    options: tuple[str, ...] = ()
    """Options of the command line that name the queries."""

    @property
    def recommended(self) -> tuple[MaintenanceName, ...]:
        """Names of the tasks that are worth their cost."""
        return tuple(task.name for task in self.tasks if task.recommended)

    def __getitem__(self, name: str) -> MaintenanceTask:
        task = next((one for one in self.tasks if one.name == name), None)
        if task is None:
            raise KeyError(f"{name}: tasks are {', '.join(one.name for one in self.tasks) or 'none'}")
        return task


@dataclass(frozen=True, slots=True)
class FinishedTask:
    """A task that ran: its report, or the error that ended it."""

    name: MaintenanceName
    seconds: float
    report: Reported | None = None
    """The result of the method that did it; None if there was nothing left to do."""
    error: str = ""


@dataclass(frozen=True, slots=True)
class MaintenanceReport(Reported):
    """What was done to a table.

    Examples:
        >>> import skipstone as sk
        >>> table = sk.open("db.events", catalog="warehouse", index_root="maintained")
        >>> report = table.maintain(only=["compact"], engine="local")
        >>> [(task.name, task.report, task.error) for task in report.tasks]
        [('compact', None, '')]
    """

    view: ClassVar[str] = "skipstone.compact.maintenance_view:report_tree"
    json_also: ClassVar[Mapping[str, str]] = {"failed": "failed"}

    table: str
    tasks: tuple[FinishedTask, ...]

    @property
    def failed(self) -> tuple[MaintenanceName, ...]:
        """Names of the tasks that ended with an error."""
        return tuple(task.name for task in self.tasks if task.error)


# -- proposing ---------------------------------------------------------------------------------


def propose(table: Table, queries: QueryLog | None = None, *, sample: int = 16) -> Maintenance:
    """Examine a table; ``Table.maintenance`` documents the options."""
    queries = _checked(table, queries, sample)
    problems: list[str] = []
    tasks: list[MaintenanceTask] = []
    work = _Proposal(table, queries, sample)
    for name in NAMES:
        try:
            task = getattr(work, name)()
        except SkipstoneError as error:
            problems.append(f"{name}: {error.message}{f'; {error.hint}' if error.hint else ''}")
            continue
        if task is not None:
            # What saves little is not worth a rewrite, whatever the reason.
            tasks.append(replace(task, recommended=task.recommended and not task.saves.little))
    data = table.inventory.everything[0]
    return Maintenance(
        table=table.name,
        snapshot=table.snapshot,
        files=len(data),
        bytes=int(data.sizes.sum()),
        delete_files=len(table.delete_inventory),
        tasks=tuple(tasks),
        problems=tuple(dict.fromkeys(problems)),
    )


def _checked(table: Table, queries: QueryLog | None, sample: Any) -> QueryLog | None:
    """Refuse mistakes in arguments; what is wrong with a log on disk ends only the task that needs it."""
    check_sample(sample, 16)
    if queries is None or isinstance(queries, str | PathLike):
        return queries
    # Several tasks read them.
    kept = list(queries) if isinstance(queries, Iterator) else queries
    read_workload(kept, table.pinned.query_schema)
    return kept


@dataclass(slots=True)
class _Proposal:
    """Makes each task of a proposal; None if there is nothing to do."""

    table: Table
    queries: QueryLog | None
    sample: int
    planned: CompactionPlan | None = None

    def compact(self) -> MaintenanceTask | None:
        """Rewrite files that are too small or too large, or with many deleted rows."""
        self.planned = plan = self.table.plan_compaction(force=True)
        if not plan.groups:
            return None
        return MaintenanceTask(
            "compact", True, _reasons(plan), _work(plan), self._saved([plan]), ("compact",)
        )

    def deletes(self) -> MaintenanceTask | None:
        """Rewrite the other files with deletes."""
        if not len(self.table.delete_inventory):
            return None
        first = [] if self.planned is None else [self.planned]
        plan = self.table.plan_compaction(delete_file_threshold=1, force=True)
        before = set(_paths(first))
        files = sum(path not in before for path in _paths([plan]))
        saves, earlier = self._saved([plan]), self._saved(first)
        dropped = saves.requests - earlier.requests
        if not files or dropped <= 0:
            return None
        rest = replace(saves, requests=dropped, bytes=max(saves.bytes - earlier.bytes, 0))
        files_of = (file for group in plan.groups for file in group.files)
        bearing = sum(file.deletes > 0 and file.path not in before for file in files_of)
        why = f"{plural(bearing, 'more file')} with deletes that every query applies"
        cheap = files <= _FILES_PER_DELETE * dropped
        total = plan.bytes_to_read - sum(one.bytes_to_read for one in first)
        arguments = ("compact", "--delete-file-threshold", "1")
        return MaintenanceTask("deletes", cheap, why, f"rewrites {size(max(total, 0))}", rest, arguments)

    def recluster(self) -> MaintenanceTask | None:
        """Sort files by the table's sort order, or rewrite all in the order that queries need."""
        if not len(self.table.inventory):
            return None
        wanted = tuple(sort_columns(self.table.table))
        if wanted and self.queries is None:
            plan = self.table.plan_compaction(strategy="sort", force=True)
            unsorted = sum(group.reasons.get("unsorted", 0) for group in plan.groups)
            if not unsorted:
                return None
            why = f"{plural(unsorted, 'file')} not sorted by {', '.join(wanted)}, the table's sort order"
            command = ("compact", "--strategy", "sort")
            return MaintenanceTask("recluster", True, why, _work(plan), self._saved([plan]), command)
        measured = measure_layout(self.table.pinned, None, self.queries, sample=self.sample)
        best = measured.best
        if best is None:
            return None
        read = int((best.after - best.before) * self.table.inventory.everything[0].sizes.sum())
        what = "look-ups of every column" if measured.synthetic else "the queries"
        why = f"{best}: {what} read {percent(1 - best.before, 1)} now, {percent(1 - best.after, 1)} after it"
        # Without queries, nobody knows whether these columns matter.
        worth = not measured.synthetic and best.factor >= _GAIN
        return MaintenanceTask(
            "recluster",
            worth,
            why if not measured.synthetic else f"{why}; pass your queries to compare orders by them",
            f"rewrites the table to read {times(best.factor)} less",
            Savings(bytes=read, per="query"),
            ("compact", "--strategy", best.kind, "--sort-by", ",".join(best.columns), "--rewrite-all"),
        )

    def manifests(self) -> MaintenanceTask | None:
        """Combine small manifests."""
        report = self.table.rewrite_manifests(dry_run=True)
        fewer = report.replaced - report.created
        if fewer <= 0:
            return None
        why = f"{plural(report.replaced, 'manifest')} that {plural(report.created, 'manifest')} can replace"
        saves = Savings(fewer, report.bytes_replaced - report.bytes_created, per="plan without an index")
        work = f"rewrites {size(report.bytes_replaced)} of metadata"
        return MaintenanceTask("manifests", fewer >= _MANIFESTS, why, work, saves, ("manifests",))

    def expire(self) -> MaintenanceTask | None:
        """Remove old snapshots."""
        report = self.table.expire(dry_run=True)
        if not report.snapshots:
            return None
        why = f"{plural(len(report.snapshots), 'snapshot')} past the table's retention"
        work = phrase("removes snapshots", some(len(report.files), "file", " deleted"))
        return MaintenanceTask("expire", True, why, work, Savings(stored=report.bytes), ("expire",))

    def orphans(self) -> MaintenanceTask | None:
        """Delete files that nothing refers to."""
        report = self.table.remove_orphans(dry_run=True)
        if not report.files:
            return None
        why = f"{plural(report.count, 'file')} that no snapshot refers to"
        work = f"deletes {plural(report.count, 'file')}"
        return MaintenanceTask("orphans", True, why, work, Savings(stored=report.bytes), ("orphans",))

    def index(self) -> MaintenanceTask | None:
        """Build or refresh the index."""
        status = self.table.index.status()
        if not status.files or not (status.unknown or status.problems):
            return None
        command: tuple[str, ...] = ("index", "refresh")
        why = f"{plural(status.unknown, 'file')} not indexed"
        if not status.exists:
            why, command = "there is no index", ("index", "build")
        elif status.problems:
            why, command = f"index is damaged: {status.problems[0]}", ("index", "build", "--rebuild")
        files = status.files if status.problems else status.unknown
        work = f"reads the footers of {plural(files, 'file')}"
        return MaintenanceTask("index", True, why, work, Savings(files, per="query"), command)

    # -- savings -----------------------------------------------------------------------------

    def _saved(self, plans: Sequence[CompactionPlan]) -> Savings:
        """Requests and bytes that a scan of all rows saves: for files, their footers, and delete files."""
        removed = sum(plan.files for plan in plans)
        if not removed:
            return Savings()
        made = sum(plan.expected_files for plan in plans)
        deletes, nbytes = self._dropped(pa.array(_paths(plans), pa.large_string()))
        coverage = self.table.index.coverage
        # One for the rows, and without an index one for the footer.
        each = 1 if coverage is not None and coverage.covered == len(self.table.entries) else 2
        return Savings(max(removed - made, 0) * each + deletes, nbytes)

    def _dropped(self, paths: pa.Array) -> tuple[int, int]:
        """Number and bytes of the delete files that apply to these data files only."""
        data, deletes = self.table.inventory.everything[0], self.table.delete_inventory.everything[0]
        matches = self.table.pinned.match_deletes(data)
        if matches is None:
            return 0, 0
        planned = np.asarray(pc.is_in(data.paths, value_set=paths))

        def used(files: Array) -> Array:
            vectors = matches.vectors[files]
            numbers = [matches.positions.pairs(files)[1], matches.equalities.pairs(files)[1]]
            mask = np.zeros(len(deletes), dtype=bool)
            mask[np.concatenate([*numbers, vectors[vectors >= 0]])] = True
            return mask

        gone = used(np.flatnonzero(planned)) & ~used(np.flatnonzero(~planned))
        return int(gone.sum()), int(deletes.sizes[gone].sum())


def _paths(plans: Sequence[CompactionPlan]) -> Iterator[str]:
    for plan in plans:
        for group in plan.groups:
            yield from group.paths.to_pylist()


_WORDS: Final = {
    "small": "too small",
    "large": "too large",
    "deletes": "with many delete files",
    "ratio": "with many deleted rows",
}


def _reasons(plan: CompactionPlan) -> str:
    totals = {name: sum(group.reasons.get(name, 0) for group in plan.groups) for name in _WORDS}
    return ", ".join(f"{plural(n, 'file')} {_WORDS[name]}" for name, n in totals.items() if n)


def _work(plan: CompactionPlan) -> str:
    into = plural(plan.expected_files, "file")
    return f"rewrites {plural(plan.files, 'file')}, {size(plan.bytes_to_read)}, into about {into}"


# -- doing it ----------------------------------------------------------------------------------


def maintain(
    table: Table,
    proposal: Any,
    only: Sequence[str] | str | None,
    queries: QueryLog | None,
    sample: int,
    progress: IngestProgress | None,
    engine: Mapping[str, Any],
) -> MaintenanceReport:
    """Run the tasks; ``Table.maintain`` documents the options."""
    if not isinstance(proposal, Maintenance | None):
        problem = f"can't apply a {type(proposal).__name__}"
        raise UsageError(problem, hint="pass the result of table.maintenance()")
    if proposal is not None and proposal.table != table.name:
        hint = "call maintenance() of this table"
        raise UsageError(f"proposal belongs to table {proposal.table}", path=table.name, hint=hint)
    queries = _checked(table, queries, sample)
    names = _chosen(only)
    if names is None:
        names = (propose(table, queries, sample=sample) if proposal is None else proposal).recommended
    work = _Tasks(table, queries, sample, progress, engine)
    return MaintenanceReport(table.name, tuple(work.run(name) for name in names))


def _chosen(only: Sequence[str] | str | None) -> tuple[MaintenanceName, ...] | None:
    if only is None:
        return None
    named = (only,) if isinstance(only, str) else tuple(only)
    for name in named:
        if name not in NAMES:
            hint = did_you_mean(str(name), NAMES, f"use some of {', '.join(NAMES)}")
            raise UsageError(f"unknown maintenance task {name!r}", hint=hint)
    return tuple(name for name in NAMES if name in named)


@dataclass(slots=True)
class _Tasks:
    """Runs tasks one after another; an error ends only its own task."""

    table: Table
    queries: QueryLog | None
    sample: int
    progress: IngestProgress | None
    engine: Mapping[str, Any]
    jobs: Mapping[MaintenanceName, Callable[[], Reported | None]] = field(init=False)

    def __post_init__(self) -> None:
        self.jobs = {
            "recluster": self._recluster,
            "compact": lambda: self._compact(self.table.plan_compaction()),
            "deletes": lambda: self._compact(self.table.plan_compaction(delete_file_threshold=1)),
            "manifests": self._manifests,
            "expire": lambda: _unless_empty(self.table.expire()),
            "orphans": lambda: _unless_empty(self.table.remove_orphans()),
            "index": self._index,
        }

    def run(self, name: MaintenanceName) -> FinishedTask:
        """Run one task on the table as it is now."""
        start = time.perf_counter()
        try:
            self.table.refresh()
            report = self.jobs[name]()
        except SkipstoneError as error:
            return FinishedTask(name, time.perf_counter() - start, error=str(error))
        return FinishedTask(name, time.perf_counter() - start, report)

    def _compact(self, plan: CompactionPlan) -> Reported | None:
        if not plan.groups:
            return None
        return self.table.compact(plan, progress=self.progress, **self.engine)

    def _recluster(self) -> Reported | None:
        if self.queries is None and sort_columns(self.table.table):
            return self._compact(self.table.plan_compaction(strategy="sort"))
        measured: LakeLayout = measure_layout(self.table.pinned, None, self.queries, sample=self.sample)
        best: LayoutAdvice | None = measured.best
        if best is None:
            return None
        plan = self.table.plan_compaction(strategy=best.kind, sort_by=best.columns, rewrite_all=True)
        return self._compact(plan)

    def _manifests(self) -> Reported | None:
        report = self.table.rewrite_manifests()
        return report if report.snapshot is not None else None

    def _index(self) -> Reported | None:
        status = self.table.index.status()
        tell = self.progress
        each = None if tell is None else lambda done, total: tell("indexing", done, total)
        if status.exists and not status.problems:
            return self.table.index.refresh(progress=each, **self.engine) if status.unknown else None
        return self.table.index.build(rebuild=bool(status.problems), progress=each, **self.engine)


def _unless_empty(report: ExpireReport | OrphansReport) -> Reported | None:
    """The report; None if there was nothing to remove."""
    did = report.snapshots if isinstance(report, ExpireReport) else report.files
    return report if did or report.failures else None
