"""Overwrite an Iceberg table: all rows, the rows matching a predicate, or the rows of some partitions."""

from __future__ import annotations

import dataclasses
import secrets
import uuid
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from skipstone.core.evidence import Array
from skipstone.core.filter import RowFilter
from skipstone.engine.jobs import Engine, checked
from skipstone.errors import ConflictError, SkipstoneError, UsageError
from skipstone.iceberg.metadata import tolerant
from skipstone.iceberg.partitions.values import PartitionKey, is_unpartitioned, source_span
from skipstone.iceberg.writing.commit import Changes, replace
from skipstone.iceberg.writing.outcome import CommitState
from skipstone.iceberg.writing.target import NewFile, Target
from skipstone.parquet.write.files import WrittenFile, write_files
from skipstone.parquet.write.layout import PageLayout
from skipstone.parquet.write.profile import Profile
from skipstone.predicate.tree import Predicate, col, conjunction, disjunction
from skipstone.scan.execute import execute
from skipstone.scan.options import ScanOptions
from skipstone.scan.parts import shared
from skipstone.scan.plan import ScanPlan, Task
from skipstone.scan.scan import Scan
from skipstone.scan.table import Table as LakeTable

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.table import Table


_FILE_PATH: Final = 2_147_483_546
"""Field id of the path column in position delete files."""
_REPLACED: Final = "x"


@dataclass(frozen=True, slots=True)
class OtherPartitions:
    """Selects the rows that are not in the replaced partitions."""

    target: Target
    keys: frozenset[PartitionKey]

    @property
    def columns(self) -> list[str]:
        return list(self.target.partition_columns)

    def mask(self, rows: pa.RecordBatch) -> Array:
        """Per row, whether its partition is not replaced."""
        labels = self.target.labels(rows, lambda key: _REPLACED if key in self.keys else "")
        retained: Array = np.asarray(pa.compute.equal(labels, ""))
        return retained


@dataclass(frozen=True, slots=True)
class FileRewrite:
    """A file of which some rows may be retained."""

    retained: Task
    replaced: Task | None
    """The rows that may be replaced; None if only their partition decides it."""


@dataclass(frozen=True, slots=True)
class OverwritePlan:
    """The files of one snapshot that an overwrite drops or rewrites."""

    base: int | None
    dropped: frozenset[str]
    """Files without rows to retain."""
    rewrites: tuple[FileRewrite, ...] = ()
    retained: ScanPlan | None = None
    replaced: ScanPlan | None = None
    others: OtherPartitions | None = None
    """Selects the retained rows where no predicate does."""
    keys: Mapping[str, PartitionKey] = field(default_factory=dict)
    """Partitions of the files that may be rewritten."""


class Overwrite(ABC):
    """Decides which rows of a table the new files replace."""

    def check(self, target: Target) -> None:
        """Refuse an overwrite that the table does not support."""
        if target.version < 2:
            hint = "upgrade the table to format version 2, or append"
            problem = "tables of format version 1 can't be overwritten"
            raise UsageError(problem, path=target.name, hint=hint)

    @abstractmethod
    def plan(self, lake: LakeTable, target: Target, files: Sequence[NewFile]) -> OverwritePlan:
        """Plan which files of the lake's snapshot to drop or rewrite."""

    @abstractmethod
    def conflicts(
        self, lake: LakeTable, target: Target, files: Sequence[NewFile], new: Sequence[DataFile]
    ) -> bool:
        """Whether files added concurrently may have rows that would be replaced."""


@dataclass(frozen=True, slots=True)
class FullOverwrite(Overwrite):
    """Replaces all rows."""

    def plan(self, lake: LakeTable, target: Target, files: Sequence[NewFile]) -> OverwritePlan:  # noqa: ARG002
        """Drop every file."""
        return OverwritePlan(lake.snapshot, frozenset(entry.key for entry in lake.entries))

    def conflicts(
        self,
        lake: LakeTable,  # noqa: ARG002
        target: Target,  # noqa: ARG002
        files: Sequence[NewFile],  # noqa: ARG002
        new: Sequence[DataFile],
    ) -> bool:
        """Every new file conflicts."""
        return bool(new)


@dataclass(frozen=True, slots=True)
class PredicateOverwrite(Overwrite):
    """Replaces the rows for which a predicate is TRUE; rows for which it is NULL are retained."""

    where: Predicate

    def check(self, target: Target) -> None:
        """Also bind the predicate to the table's schema."""
        Overwrite.check(self, target)
        RowFilter(self.where, target.schema)

    def plan(self, lake: LakeTable, target: Target, files: Sequence[NewFile]) -> OverwritePlan:  # noqa: ARG002
        """Drop files proven to match in full; rewrite files that may also have other rows."""
        replaced = _plan(lake, self.where)
        retained = _plan(lake) - replaced
        left = {task.entry.key: task for task in retained.tasks}
        mixed = [task for task in replaced.tasks if task.entry.key in left]
        return OverwritePlan(
            lake.snapshot,
            frozenset(task.entry.key for task in replaced.tasks if task.entry.key not in left),
            tuple(FileRewrite(left[task.entry.key], task) for task in mixed),
            retained,
            replaced,
            keys=_keys(lake) if mixed else {},
        )

    def conflicts(
        self,
        lake: LakeTable,
        target: Target,  # noqa: ARG002
        files: Sequence[NewFile],  # noqa: ARG002
        new: Sequence[DataFile],
    ) -> bool:
        """New files conflict if a plan on the current snapshot includes them."""
        touched = {task.entry.key for task in _plan(lake, self.where).tasks} if new else set()
        return any(file.file_path in touched for file in new)


@dataclass(frozen=True, slots=True)
class PartitionOverwrite(Overwrite):
    """Replaces the rows of all partitions that have new rows, under any partition spec."""

    def plan(self, lake: LakeTable, target: Target, files: Sequence[NewFile]) -> OverwritePlan:
        """Drop files of these partitions; rewrite files of other specs that may have rows of them."""
        wanted = frozenset(file.metrics.key for file in files)
        if wanted and is_unpartitioned(target.spec):
            return FullOverwrite().plan(lake, target, files)
        keys = _keys(lake) if wanted else {}
        dropped = frozenset(path for path, key in keys.items() if key in wanted)
        others = {path for path, key in keys.items() if key.spec_id != target.spec.spec_id}
        if not others:
            return OverwritePlan(lake.snapshot, dropped)
        every = _plan(lake)
        touched = {task.entry.key for task in _plan(lake, partition_condition(target, wanted)).tasks}
        rewrites = tuple(
            FileRewrite(task, None) for task in every.tasks if task.entry.key in others & touched
        )
        return OverwritePlan(
            lake.snapshot, dropped, rewrites, every, None, OtherPartitions(target, wanted), keys
        )

    def conflicts(
        self,
        lake: LakeTable,  # noqa: ARG002
        target: Target,
        files: Sequence[NewFile],
        new: Sequence[DataFile],
    ) -> bool:
        """New files conflict in the same partitions, and under other specs."""
        wanted = {file.metrics.key for file in files}
        specs = {target.spec.spec_id: target.spec}
        return any(key is None or key in wanted for key in (_key(file, specs) for file in new))


def partition_condition(target: Target, keys: Collection[PartitionKey]) -> Predicate | None:
    """Return a predicate that holds for all rows of some partitions, under any spec, if there is one."""
    conditions: list[Predicate] = []
    for at, partition_field in enumerate(target.spec.fields):
        name = target.table_schema.find_column_name(partition_field.source_id)
        if name is None or name not in target.schema.names:
            continue
        values = {key.partition[at] for key in keys if key.partition is not None}
        real = values - {None}
        type = target.schema.field(name).type
        span = source_span(partition_field.transform, type, real) if real else None
        if real and span is None:
            continue
        ranges = [] if span is None else [col(name).between(*span)]
        conditions.append(disjunction([*ranges, col(name).is_null()] if None in values else ranges))
    return conjunction(conditions) if conditions else None


def deletes_conflict(
    new: Changes, plan: OverwritePlan, rewritten: Collection[str], specs: Mapping[int, PartitionSpec]
) -> bool:
    """Whether concurrent delete files may apply to rows that a rewrite has copied."""
    partitions = {plan.keys[path] for path in rewritten}
    return any(_may_delete(file, plan, rewritten, partitions, specs) for file in new.deletes)


def _may_delete(
    file: DataFile,
    plan: OverwritePlan,
    rewritten: Collection[str],
    partitions: Collection[PartitionKey],
    specs: Mapping[int, PartitionSpec],
) -> bool:
    if not rewritten:
        return False
    low, high = (side.get(_FILE_PATH) for side in (file.lower_bounds or {}, file.upper_bounds or {}))
    if low is not None and low == high and low.decode(errors="replace") in plan.keys:
        return low.decode() in rewritten
    key = _key(file, specs)
    # A delete file without a partition applies to the entire table.
    return key is None or key.partition is None or key in partitions


def _key(file: DataFile, specs: Mapping[int, PartitionSpec]) -> PartitionKey | None:
    """Return a file's partition; None if it can't be determined."""
    spec = specs.get(file.spec_id)
    values = [value.bytes if isinstance(value, uuid.UUID) else value for value in _record(file.partition)]
    try:
        return None if spec is None else PartitionKey.of(spec, values)
    except SkipstoneError:
        return None


def _record(record: Any) -> list[Any]:
    return [record[at] for at in range(len(record))]


def _keys(lake: LakeTable) -> dict[str, PartitionKey]:
    """Map the paths of a lake's files to their partitions."""
    entries, _ = lake.inventory.everything
    keys = [entries.keys[code] for code in entries.partitions.tolist()]
    return dict(zip(entries.paths.to_pylist(), keys, strict=True))


def _plan(lake: LakeTable, where: Predicate | None = None) -> ScanPlan:
    return Scan(lake, where, None, None, None, ScanOptions()).plan()


_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class Rewriter:
    """Writes retained rows to the table in their current order."""

    target: Target
    layout: PageLayout
    profile: Profile
    job: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> list[WrittenFile]:
        """Write the rows to new files."""
        layout = dataclasses.replace(self.layout, cluster_by=(), cluster="sort")
        task = f"retained-{secrets.token_hex(4)}"
        return write_files(
            batches, self.target.store, self.job, task, layout, self.profile, shape=self.target
        )


@dataclass(frozen=True, slots=True)
class OverwriteResult:
    """Result of an overwrite."""

    snapshot: int | None
    replaced: int
    """Number of files removed."""
    moved: tuple[NewFile, ...]
    """Files with the rows retained from rewritten files."""


def overwrite(
    table: Table,
    how: Overwrite,
    files: Sequence[NewFile],
    rewriter: Rewriter,
    engine: Engine,
    *,
    branch: str,
    properties: Mapping[str, str],
    state: CommitState | None = None,
) -> OverwriteResult:
    """Commit new files and remove the rows they replace; delete the new files if all attempts fail."""
    attempt = 0
    while True:
        attempt += 1
        try:
            return _try_overwrite(
                table, how, files, rewriter, engine, branch, properties, state, last=attempt == _TRIES
            )
        except ConflictError:
            if attempt == _TRIES:
                raise
            tolerant(table.refresh)


def _try_overwrite(
    table: Table,
    how: Overwrite,
    files: Sequence[NewFile],
    rewriter: Rewriter,
    engine: Engine,
    branch: str,
    properties: Mapping[str, str],
    state: CommitState | None,
    *,
    last: bool,
) -> OverwriteResult:
    target = rewriter.target
    moved: list[NewFile] = []
    try:
        plan = how.plan(_lake(table, branch), target, files)
        removed = set(plan.dropped)
        for path, written in _rewrite_files(plan, rewriter, engine):
            removed.add(path)
            moved += [target.new_file(file) for file in written]
    except BaseException:
        _delete(target, [*files, *moved])
        raise
    rewritten = removed - plan.dropped

    def conflict(new: Changes) -> str | None:
        if how.conflicts(_lake(table, branch), target, files, new.data):
            return "rows that this overwrite replaces were added concurrently"
        deleted = deletes_conflict(new, plan, rewritten, table.metadata.specs())
        return "rows that this overwrite copied were deleted concurrently" if deleted else None

    try:
        number = replace(
            table,
            target,
            [*files, *moved],
            removed,
            base=plan.base,
            conflict=conflict,
            properties=properties,
            branch=branch,
            keep=not last,
            state=state,
        )
    except ConflictError:
        if not last:
            _delete(target, moved)
        raise
    return OverwriteResult(number, len(removed), tuple(moved))


def _rewrite_files(
    plan: OverwritePlan, rewriter: Rewriter, engine: Engine
) -> Iterator[tuple[str, list[WrittenFile]]]:
    """Yield each rewritten file with the new files that its retained rows were copied to."""
    if not plan.rewrites:
        return
    assert plan.retained is not None
    retained = shared(plan.retained)
    replaced = None if plan.replaced is None else shared(plan.replaced)
    work = _RewriteWork(retained, replaced, plan.others, rewriter)
    for rewrite, written in zip(plan.rewrites, engine.map(work, plan.rewrites), strict=True):
        if written is not None:
            yield rewrite.retained.entry.key, written


@dataclass(frozen=True, slots=True)
class _RewriteWork:
    """Copies the retained rows of a file; None if all of its rows are retained."""

    retained: ScanPlan
    replaced: ScanPlan | None
    others: OtherPartitions | None
    rewriter: Rewriter

    def __call__(self, rewrite: FileRewrite) -> list[WrittenFile] | None:
        return self.rewriter(self._retained(rewrite)) if self._replaces_rows(rewrite) else None

    def _replaces_rows(self, rewrite: FileRewrite) -> bool:
        """Whether any row is replaced, from the deciding columns alone."""
        if self.replaced is not None and rewrite.replaced is not None:
            # A count would read as much.
            return any(batch.num_rows for batch in _batches(self.replaced, rewrite.replaced))
        assert self.others is not None
        some = self.retained.with_columns(self.others.columns)
        return any(not self.others.mask(batch).all() for batch in _batches(some, rewrite.retained))

    def _retained(self, rewrite: FileRewrite) -> Iterator[pa.RecordBatch]:
        for batch in _batches(self.retained, rewrite.retained):
            if self.others is None:
                yield batch
            else:
                yield batch.filter(pa.array(self.others.mask(batch)))


def _batches(plan: ScanPlan, task: Task) -> Iterator[pa.RecordBatch]:
    yield from checked(execute(dataclasses.replace(plan, tasks=(task,))).to_batches())


def _lake(table: Table, branch: str) -> LakeTable:
    return LakeTable(table, snapshot=None if branch == "main" else branch)


def _delete(target: Target, files: Sequence[NewFile]) -> None:
    # Files that can't be deleted stay invisible.
    with suppress(SkipstoneError):
        target.delete(files)
