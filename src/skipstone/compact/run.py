"""Run a compaction: rewrite the groups of a plan, and commit them as snapshots of the operation replace.

A commit is pinned to the snapshot of the plan. Concurrent appends don't matter. Groups whose files were
dropped, or whose rows were deleted meanwhile, are left out of the commit, planned again and rewritten again.
"""

from __future__ import annotations

import dataclasses
import secrets
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.snapshots import Operation

from skipstone.compact.options import CompactionOptions
from skipstone.compact.plan import CompactionPlan, CompactionPlanner, FileGroup, check_options, sort_order
from skipstone.compact.rewrite import GroupResult, GroupRewriter
from skipstone.core.evidence import Array
from skipstone.core.plain import as_bytes
from skipstone.engine.jobs import Engine, EngineUse, check_stop, choose_engine
from skipstone.engine.stopping import JobStop, stoppable
from skipstone.errors import ConflictError, JobError, SkipstoneError, UsageError
from skipstone.iceberg.deletes.match import DeleteIndex
from skipstone.iceberg.manifests.entries import Entries
from skipstone.iceberg.writing.commit import (
    JOB,
    check_ancestor,
    check_committable,
    check_properties,
    publish,
)
from skipstone.iceberg.writing.outcome import interrupts_noted
from skipstone.iceberg.writing.producer import Producer
from skipstone.iceberg.writing.target import Target
from skipstone.parquet.write.layout import PageLayout, check_file_count, check_target_size
from skipstone.report import Reported
from skipstone.scan.planner import plan_whole_files
from skipstone.scan.table import Table, current_table
from skipstone.write.table_job import check_catalog, sort_columns, table_layout

if TYPE_CHECKING:
    from pyiceberg.table import Table as IcebergTable

    from skipstone.iceberg.table import TableSnapshot
    from skipstone.typing import EngineLike, IngestProgress, PredicateLike, SizeLike, SnapshotLike

_ROUNDS: Final = 4
"""Times that groups in conflict with other writers are planned and rewritten."""
REWRITING: Final = "rewriting"
COMMITTING: Final = "committing"
INDEXING: Final = "indexing"
_EQUALITY: Final = 2


@dataclass(frozen=True, slots=True)
class GroupFailure:
    """A group that was not rewritten, and why; only with partial progress do the others go on.

    Examples:
        >>> import skipstone as sk
        >>> table = sk.open("db.events", catalog="warehouse")
        >>> table.compact(table.plan_compaction(rewrite_all=True), engine="local").failures
        ()
    """

    group: int
    files: int
    error: str


@dataclass(frozen=True, slots=True)
class CompactionSeconds:
    """Seconds of each phase."""

    rewrite: float = 0.0
    commit: float = 0.0
    index: float = 0.0


@dataclass(frozen=True, slots=True)
class CompactionReport(Reported):
    """What a compaction did: groups, files, rows, sizes and times.

    Examples:
        >>> import skipstone as sk
        >>> table = sk.open("db.events", catalog="warehouse")
        >>> report = table.compact(table.plan_compaction(rewrite_all=True), engine="local")
        >>> report.groups, report.rows, len(report.snapshots)
        (1, 1000, 1)
    """

    view: ClassVar[str] = "skipstone.compact.views:report_tree"
    json_also: ClassVar[Mapping[str, str]] = {"files_added": "files_added", "bytes_added": "bytes_added"}

    table: str
    plan: str
    """Hash of the plan."""
    groups: int
    """Groups that were rewritten and committed."""
    snapshots: tuple[int, ...]
    """Snapshots that were committed."""
    files_removed: int
    bytes_removed: int
    rows: int
    """Rows of the new files."""
    rows_removed: int
    """Deleted rows that the old files contained."""
    delete_files_removed: int
    sizes: tuple[int, ...]
    """Bytes of each new file."""
    rewritten_again: int
    """Groups that were planned again because of concurrent commits."""
    failures: tuple[GroupFailure, ...]
    seconds: CompactionSeconds
    index_problem: str = ""
    """Why the index could not be updated; "" if it was, or if the table has none."""
    engine: EngineUse | None = None

    @property
    def files_added(self) -> int:
        """Number of new files."""
        return len(self.sizes)

    @property
    def bytes_added(self) -> int:
        """Bytes of the new files."""
        return sum(self.sizes)


# -- planning ----------------------------------------------------------------------------------


def plan_compaction(
    table: Table,
    options: Mapping[str, Any],
    *,
    where: PredicateLike = None,
    strict: bool = False,
    case_sensitive: bool = True,
    since: SnapshotLike | None = None,
    force: bool = False,
) -> CompactionPlan:
    """Plan the compaction of a table's snapshot; ``Table.plan_compaction`` documents the options."""
    chosen = resolve_options(table, options)
    if options.get("target_file_size_bytes") is not None:
        check_target_size(chosen.target_file_size_bytes, "target_file_size_bytes", force=force)
    plan = CompactionPlanner(table.pinned, chosen, where, strict, case_sensitive, since).plan()
    check_file_count(plan.expected_files, table.name, force=force)
    return plan


def resolve_options(table: Table, options: Mapping[str, Any]) -> CompactionOptions:
    """Return the options with the table's defaults, after checking them."""
    check_writable(table)
    given = dict(options)
    if given.get("strategy") == "sort" and not given.get("sort_by"):
        given["sort_by"] = tuple(sort_columns(table.table))
    chosen = CompactionOptions.of(given, table.metadata.properties, table.name)
    check_options(chosen, table.pinned)
    make_layout(table.table, chosen).check(table.schema)
    return chosen


def check_writable(table: Table) -> None:
    """Refuse format versions that can't be rewritten."""
    version = table.metadata.format_version
    if version == 2:
        return
    hint = "compact it with the engine that wrote it; Skipstone writes format version 2"
    if version < 2:
        hint = "upgrade it: with table.table.transaction() as change: change.upgrade_table_version(2)"
    raise UsageError(f"tables of format version {version} can't be compacted", path=table.name, hint=hint)


def make_layout(table: IcebergTable, options: CompactionOptions) -> PageLayout:
    """Return the layout of the new files."""
    layout = table_layout(table, {"target_file_bytes": options.target_file_size_bytes})
    cluster: Any = options.strategy if options.strategy in ("zorder", "hilbert") else "sort"
    return dataclasses.replace(layout, cluster_by=options.sort_by, cluster=cluster)


# -- running -----------------------------------------------------------------------------------


def compact(
    table: Table,
    plan: CompactionPlan,
    *,
    engine: EngineLike = "auto",
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, str] | None = None,
    threads: int | None = None,
    checksums: bool = False,
    memory: SizeLike | None = None,
    properties: Mapping[str, str] | None = None,
    progress: IngestProgress | None = None,
) -> CompactionReport:
    """Rewrite and commit the groups of a plan; ``Table.compact`` documents the options."""
    if not isinstance(plan, CompactionPlan):
        raise UsageError(
            f"can't run a {type(plan).__name__}", hint="pass the result of table.plan_compaction()"
        )
    if plan.uuid != str(table.metadata.table_uuid):
        hint = f"open {plan.table}, or plan the compaction of this table"
        raise UsageError(f"plan belongs to table {plan.table}", path=table.name, hint=hint)
    check_writable(table)
    summary = check_properties(properties)
    held = None if memory is None else as_bytes(memory, "memory")
    if held is not None and held < 1:
        problem = f"memory must be an integer of at least 1, got {memory!r}"
        raise UsageError(problem, hint='pass bytes, or text such as "1GB", or omit memory for its default')
    check_catalog(table.table)
    # Files are read and written with the table's newest schema.
    table.refresh()
    if plan.groups:
        _check_base(plan, table)
        _check_live(table, plan)
        check_committable(table.table, table.name)
    choice = choose_engine(engine, master, remote, conf, threads).for_input(plan.bytes_to_read)
    with choice.open() as running, stoppable("nothing was committed") as stop:
        work = _Compaction(current_table(table), plan, running, checksums, held, summary, progress, stop)
        report = work.run()
    use = EngineUse(running.name, choice.reason).compared(bytes=plan.bytes_to_read)
    with suppress(SkipstoneError):
        # The report matters more; the next refresh raises the error again.
        table.refresh()
    return dataclasses.replace(report, engine=use)


def _check_base(plan: CompactionPlan, table: Table) -> None:
    """Refuse a plan whose snapshot has expired, was rolled back, or belongs to another branch."""
    if table.metadata.snapshot_by_id(plan.snapshot or -1) is None:
        problem = f"snapshot {plan.snapshot} of the plan has expired"
        raise ConflictError(problem, path=table.name, hint="make a new plan")
    hint = "make a new plan; only the branch main can be compacted"
    check_ancestor(table.table, plan.snapshot, table.metadata.current_snapshot(), table.name, hint)


def _check_live(table: Table, plan: CompactionPlan) -> None:
    """Refuse a plan of which every group has lost a file since."""
    live = table.inventory.everything[0].paths
    if not any(pc.all(pc.is_in(group.paths, value_set=live)).as_py() for group in plan.groups):
        problem = f"files of the plan, made on snapshot {plan.snapshot}, are no longer in the table"
        raise ConflictError(problem, path=table.name, hint="make a new plan")


class _GroupConflictError(ConflictError):
    """Some groups can't be committed after what other writers have committed."""

    def __init__(self, groups: frozenset[int], problem: str, path: str) -> None:
        super().__init__(problem, path=path, hint="run the compaction again")
        self.groups = groups


@dataclass(slots=True)
class _Compaction:
    table: Table
    plan: CompactionPlan
    engine: Engine
    checksums: bool
    memory: int | None
    properties: Mapping[str, str]
    progress: IngestProgress | None
    stop: JobStop
    job: str = field(default_factory=lambda: secrets.token_hex(8))
    snapshots: list[int] = field(default_factory=list)
    committed: list[GroupResult] = field(default_factory=list)
    uncertain: set[str] = field(default_factory=set)
    """New files of commits that failed, or whose outcome is unknown; only the commit may delete them."""
    failures: list[GroupFailure] = field(default_factory=list)
    dropped_deletes: int = 0
    again: int = 0
    spent: dict[str, float] = field(default_factory=lambda: {"rewrite": 0.0, "commit": 0.0, "index": 0.0})

    def run(self) -> CompactionReport:
        plan, left = self.plan, _ROUNDS
        while plan.groups:
            left -= 1
            conflicts = self._round(plan)
            if not conflicts:
                break
            if not left:
                problem = "files were changed by other writers in every attempt"
                self.failures += [GroupFailure(one.id, one.count, problem) for one in conflicts]
                break
            self.again += len(conflicts)
            plan = self._planned_again(conflicts)
        return self._report(self._index())

    def _planned_again(self, groups: Sequence[FileGroup]) -> CompactionPlan:
        self.table.refresh()
        only = frozenset(path for group in groups for path in group.paths.to_pylist())
        return CompactionPlanner(self.table.pinned, self.plan.options, only=only).plan()

    def _round(self, plan: CompactionPlan) -> list[FileGroup]:
        """Rewrite and commit the groups of one plan; return those in conflict with other commits."""
        work = _Round(current_table(self.table, plan.snapshot), plan, self)
        try:
            conflicts = self._commit_portions(plan, work)
        except BaseException:
            # Files of tasks whose results are lost.
            work.delete_leftovers()
            raise
        if self.engine.name != "local":
            # Files of attempts that Spark repeated.
            work.delete_leftovers()
        return conflicts

    def _commit_portions(self, plan: CompactionPlan, work: _Round) -> list[FileGroup]:
        options, conflicts = plan.options, []
        each = len(plan.groups)
        if options.partial_progress_enabled:
            each = -(-each // options.partial_progress_max_commits)
        done = 0
        rows = _RowProgress(work.rewriter.plan.rows, self.progress)
        work.rewriter.on_rows = rows.add
        for numbers in _portions(range(len(plan.groups)), each):
            results: list[GroupResult] = []
            start = time.perf_counter()
            # At most so many groups are rewritten at the same time.
            wave = max(options.max_concurrent_file_group_rewrites, 1)
            for some in _portions(numbers, wave if self.engine.parallelism > wave else len(numbers)):
                results += work.rewrite(some)
                done += len(some)
            if done == len(plan.groups):
                rows.end()
            self.spent["rewrite"] += time.perf_counter() - start
            check_stop()
            if self.progress is not None:
                self.progress(COMMITTING, done - len(results), len(plan.groups))
            start = time.perf_counter()
            conflicts += work.commit(self._succeeded(results, work))
            self.spent["commit"] += time.perf_counter() - start
        return conflicts

    def _succeeded(self, results: Sequence[GroupResult], work: _Round) -> list[GroupResult]:
        """Groups without an error; without partial progress the first error ends the compaction."""
        failed = [result for result in results if result.problem is not None]
        if failed and not self.plan.options.partial_progress_enabled:
            work.discard(results)
            assert failed[0].problem is not None
            raise failed[0].problem
        work.discard(failed)
        self.fail(failed)
        return [result for result in results if result.problem is None]

    def fail(self, results: Sequence[GroupResult]) -> None:
        """Record groups that were not rewritten or not committed."""
        self.failures += [GroupFailure(one.group.id, one.group.count, str(one.problem)) for one in results]

    def _index(self) -> str:
        """Index the new files if the table has an index; an error is returned: the rows are committed."""
        start = time.perf_counter()
        try:
            self.table.refresh()
            if self.committed and self.table.index.coverage is not None:
                tell = self.progress
                each = None if tell is None else lambda done, total: tell(INDEXING, done, total)
                self.table.index.refresh(engine=self.engine, progress=each)
        except SkipstoneError as error:
            return str(error)
        finally:
            self.spent["index"] = time.perf_counter() - start
        return ""

    def _report(self, index_problem: str) -> CompactionReport:
        old = sum(result.group.rows for result in self.committed)
        rows = sum(result.rows for result in self.committed)
        return CompactionReport(
            table=self.table.name,
            plan=self.plan.hash,
            groups=len(self.committed),
            snapshots=tuple(self.snapshots),
            files_removed=sum(result.group.count for result in self.committed),
            bytes_removed=sum(result.group.bytes for result in self.committed),
            rows=rows,
            rows_removed=old - rows,
            delete_files_removed=self.dropped_deletes,
            sizes=tuple(file.bytes for result in self.committed for file in result.files),
            rewritten_again=self.again,
            failures=tuple(self.failures),
            seconds=CompactionSeconds(**self.spent),
            index_problem=index_problem,
        )


class _RowProgress:
    """Reports the rows that were rewritten, of all live rows of a plan."""

    def __init__(self, total: int, progress: IngestProgress | None) -> None:
        self._total, self._progress = total, progress
        self._lock = threading.Lock()
        self._done, self._told = 0.0, -1
        self.add(0)

    def add(self, rows: float) -> None:
        """Add rows; called from any thread."""
        if self._progress is None:
            return
        with self._lock:
            self._done = min(self._done + rows, self._total)
            if int(self._done) > self._told:
                self._told = int(self._done)
                self._progress(REWRITING, self._told, self._total)

    def end(self) -> None:
        """Report all rows, of which equality deletes can have removed some."""
        self.add(self._total)


def _portions(numbers: Sequence[int], each: int) -> Iterator[Sequence[int]]:
    return (numbers[start : start + each] for start in range(0, len(numbers), each))


class _Round:
    """The groups of one plan, from their files to their commits."""

    def __init__(self, base: Table, plan: CompactionPlan, job: _Compaction) -> None:
        self.base, self.plan, self.job = base, plan, job
        options = plan.options
        table = base.table
        entries, numbers = base.inventory.everything
        paths = pa.concat_arrays([group.paths.combine_chunks() for group in plan.groups])
        at = pc.index_in(paths, value_set=entries.paths)
        if at.null_count:
            lost = paths[pc.index(at.is_null(), True).as_py()].as_py()
            hint = "make a new plan"
            raise ConflictError(
                f"planned file is not in snapshot {plan.snapshot}: {lost}", path=plan.table, hint=hint
            )
        chosen = numbers[np.asarray(at)]
        self.entries = base.inventory.take(chosen)
        """The files of all groups, in the order of the groups."""
        self.owners: Array = np.repeat(np.arange(len(plan.groups)), [group.count for group in plan.groups])
        self.specs = specs = table.metadata.specs()
        layout = make_layout(table, options)
        by_spec = {
            spec_id: Target.of(table, layout.cluster_by, spec=specs[spec_id])
            for spec_id in {self._spec(group) for group in plan.groups}
        }
        self.target = next(iter(by_spec.values()))
        targets = [dataclasses.replace(by_spec[self._spec(group)], key=group.key) for group in plan.groups]
        self.rewriter = GroupRewriter(
            plan_whole_files(base, chosen, self.entries.rows),
            plan.groups,
            targets,
            layout,
            job.job,
            job.engine,
            lambda _: None,
            checked=job.checksums,
            memory=job.memory,
        )
        self.order = sort_order(options, table.metadata)

    def _spec(self, group: FileGroup) -> int:
        moved = self.plan.options.target_spec_id
        if group.key is not None:
            return group.key.spec_id
        assert moved is not None
        return moved

    def rewrite(self, numbers: Sequence[int]) -> list[GroupResult]:
        """Rewrite some groups; a job that fails as a whole fails each of them."""
        try:
            return self.rewriter.run(numbers)
        except JobError as error:
            return [GroupResult(self.plan.groups[number], (), 0, error) for number in numbers]

    def discard(self, results: Sequence[GroupResult]) -> None:
        """Delete new files that are not committed."""
        # Files that can't be deleted stay invisible.
        with suppress(SkipstoneError):
            self.target.delete([file for result in results for file in result.files])

    def delete_leftovers(self) -> None:
        """Delete new files that are not part of the table."""
        kept = {file.path for result in self.job.committed for file in result.files} | self.job.uncertain
        root = self.target.root
        with suppress(SkipstoneError):
            written = [entry.key for entry in self.target.store.list_prefix("")]
            mine = [key for key in written if f"-{self.job.job}" in key.rpartition("/")[2]]
            self.target.store.delete([key for key in mine if f"{root}/{key}" not in kept])

    # -- commits -------------------------------------------------------------------------------

    def commit(self, results: Sequence[GroupResult]) -> list[FileGroup]:
        """Commit groups as one snapshot; return those in conflict with other commits."""
        left, conflicts = list(results), []
        while left:
            # An interrupt can come after the commit.
            paths = {file.path for result in left for file in result.files}
            self.job.uncertain |= paths
            try:
                self._commit(left)
            except _GroupConflictError as error:
                self.job.uncertain -= paths
                bad = [result for result in left if result.group.id in error.groups]
                self.discard(bad)
                conflicts += [result.group for result in bad]
                left = [result for result in left if result.group.id not in error.groups]
                continue
            except ConflictError as error:
                self.job.uncertain -= paths
                self.discard(left)
                self._fail(left, error)
                break
            except SkipstoneError as error:
                # The snapshot may exist.
                self._fail(left, error)
                break
            self.job.committed += left
            break
        return conflicts

    def _fail(self, results: Sequence[GroupResult], error: SkipstoneError) -> None:
        """Record groups that were not committed; without partial progress this ends the compaction."""
        if not self.plan.options.partial_progress_enabled:
            raise error
        self.job.fail([dataclasses.replace(result, problem=error) for result in results])

    def _commit(self, results: Sequence[GroupResult]) -> None:
        table, options = self.base.table, self.plan.options
        ids = {result.group.id for result in results}
        mine = np.isin(self.owners, [at for at, group in enumerate(self.plan.groups) if group.id in ids])
        files = [file for result in results for file in result.files]
        if self.order is not None:
            files = [dataclasses.replace(file, sort_order=self.order) for file in files]
        check = _CommitCheck(self, np.flatnonzero(mine))
        pinned = self.plan.sequence if options.use_starting_sequence_number else None
        work = Producer(
            table,
            self.target,
            tuple(files),
            frozenset(self.entries.paths.filter(pa.array(mine)).to_pylist()),
            {**self.job.properties, JOB: self.job.job},
            "main",
            Operation.REPLACE,
            deletes=check.dangling if options.remove_dangling_deletes else frozenset,
            sequence=pinned,
            specs=self.specs,
        )
        with interrupts_noted(self.plan.table, work.state):
            number = publish(work, check.validate, keep=True)
        assert number is not None
        self.job.snapshots.append(number)
        numbers = ", ".join(map(str, self.job.snapshots))
        self.job.stop.outcome = f"groups were committed as snapshots {numbers}; all others are as before"
        self.job.dropped_deletes += len(check.dropped)


@dataclass(slots=True)
class _CommitCheck:
    """Compares what is about to be committed with what other writers have committed since the plan."""

    round: _Round
    chosen: Array
    """Numbers of the files to drop, among those of all groups."""
    dropped: frozenset[str] = frozenset()
    """Delete files that no data file needs after the commit."""

    @property
    def _entries(self) -> Entries:
        return self.round.entries.take(self.chosen)

    def validate(self) -> None:
        """Raise if a group can't follow the current snapshot."""
        base, plan = self.round.base, self.round.plan
        table = base.table
        head = table.metadata.current_snapshot()
        if head is not None and head.snapshot_id == plan.snapshot:
            return
        check_ancestor(table, plan.snapshot, head, plan.table)
        now = self._head()
        live = np.asarray(pc.is_in(self._entries.paths, value_set=now.inventory.everything[0].paths))
        self._refuse(~live, "another commit has dropped files")
        self._refuse(self._deleted(now), "rows were deleted by another commit")

    def _head(self) -> TableSnapshot:
        return Table(self.round.base.table).pinned

    def _deleted(self, now: TableSnapshot) -> Array:
        """Mask of the files that new delete files apply to, and whose rewritten rows they would miss."""
        deletes = now.delete_inventory.everything[0]
        known = self.round.base.delete_inventory.everything[0].paths
        new = deletes.take(~np.asarray(pc.is_in(deletes.paths, value_set=known)))
        if not len(new):
            return np.zeros(len(self.chosen), dtype=bool)
        matches = DeleteIndex.of(new).match(self._entries, now.file_facts)
        hit: Array = (matches.positions.counts > 0) | (matches.vectors >= 0)
        if not self.round.plan.options.use_starting_sequence_number:
            return hit | (matches.equalities.counts > 0)
        # Rewritten rows are as old as the plan's snapshot, so newer equality deletes still apply to them,
        # unless the rows change their partition.
        groups = self.round.plan.groups
        moved = np.array([group.key is None for group in groups])[self.round.owners[self.chosen]]
        units, numbers = matches.equalities.pairs(np.arange(len(moved)))
        hit[units[moved[units] | (new.sequences[numbers] <= self.round.plan.sequence)]] = True
        return hit

    def _refuse(self, wrong: Array, problem: str) -> None:
        if wrong.any():
            groups, owners = self.round.plan.groups, self.round.owners[self.chosen]
            bad = frozenset(groups[number].id for number in np.unique(owners[wrong]).tolist())
            raise _GroupConflictError(bad, problem, self.round.plan.table)

    def dangling(self) -> frozenset[str]:
        """Delete files that apply to no data file after the commit."""
        now = self._head()
        data, deletes = now.inventory.everything[0], now.delete_inventory.everything[0]
        self.dropped = frozenset()
        if len(deletes):
            kept = data.take(~np.asarray(pc.is_in(data.paths, value_set=self._entries.paths)))
            matches = DeleteIndex.of(deletes).match(kept, now.file_facts)
            every = np.arange(len(kept))
            vectors = matches.vectors[matches.vectors >= 0]
            used = np.zeros(len(deletes), dtype=bool)
            for numbers in (matches.positions.pairs(every)[1], matches.equalities.pairs(every)[1], vectors):
                used[numbers] = True
            # Newer equality deletes apply to the new files too.
            used |= (deletes.contents == _EQUALITY) & (deletes.sequences > self.round.plan.sequence)
            self.dropped = frozenset(deletes.paths.filter(pa.array(~used)).to_pylist())
        return self.dropped
