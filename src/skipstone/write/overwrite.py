"""What an overwrite replaces in a table: all rows, those that a predicate finds, those of some partitions."""

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
from skipstone.engine.jobs import Engine
from skipstone.errors import ConflictError, SkipstoneError, UsageError
from skipstone.iceberg.metadata import tolerant
from skipstone.iceberg.partitions.values import PartitionKey, is_unpartitioned, source_span
from skipstone.iceberg.writing.commit import Changes, replace
from skipstone.iceberg.writing.target import NewFile, Target
from skipstone.parquet.write.files import Written, write_files
from skipstone.parquet.write.layout import PageLayout
from skipstone.parquet.write.profile import Profile
from skipstone.predicate.tree import Predicate, col, conjunction, disjunction
from skipstone.scan.execute import execute
from skipstone.scan.lake import Table as LakeTable
from skipstone.scan.options import ScanOptions
from skipstone.scan.parts import shared
from skipstone.scan.plan import ScanPlan, Task
from skipstone.scan.scan import Scan

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.table import Table


_FILE_PATH: Final = 2_147_483_546
"""The field id of the path in a file of position deletes."""
_REPLACED: Final = "x"


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Tells rows of some partitions from others."""

    target: Target
    keys: frozenset[PartitionKey]

    @property
    def columns(self) -> list[str]:
        """The columns it looks at."""
        return list(self.target.partition_columns)

    def stays(self, rows: pa.RecordBatch) -> Array:
        """Per row, whether its partition is none of these."""
        told = self.target.labels(rows, lambda key: _REPLACED if key in self.keys else "")
        found: Array = np.asarray(pa.compute.equal(told, ""))
        return found


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A file of which some rows may stay."""

    stays: Task
    matches: Task | None
    """The rows that may be replaced, where the plan tells them."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What an overwrite does to the files of one snapshot."""

    base: int | None
    dropped: frozenset[str]
    """Files of which no row stays."""
    rewrites: tuple[Rewrite, ...] = ()
    stays: ScanPlan | None = None
    matches: ScanPlan | None = None
    elsewhere: Elsewhere | None = None
    """What tells the rows that stay, where no plan does."""
    keys: Mapping[str, PartitionKey] = field(default_factory=dict)
    """The partitions of the files that may be rewritten."""


class Overwrite(ABC):
    """What is replaced by new files."""

    def check(self, target: Target) -> None:
        """Refuse what the table can't take or answer."""
        if target.version < 2:
            hint = "upgrade the table to version 2; version 1 can be appended to"
            problem = "a table of format version 1 can't be overwritten"
            raise UsageError(problem, path=target.name, hint=hint)

    @abstractmethod
    def plan(self, lake: LakeTable, target: Target, files: Sequence[NewFile]) -> Plan:
        """What becomes of the files of a lake's snapshot."""

    @abstractmethod
    def meets(
        self, lake: LakeTable, target: Target, files: Sequence[NewFile], new: Sequence[DataFile]
    ) -> bool:
        """Whether files that are new in a lake may hold rows that would be replaced."""


@dataclass(frozen=True, slots=True)
class Everything(Overwrite):
    """All rows."""

    def plan(self, lake: LakeTable, target: Target, files: Sequence[NewFile]) -> Plan:  # noqa: ARG002
        """Every file goes."""
        return Plan(lake.snapshot, frozenset(entry.key for entry in lake.entries))

    def meets(
        self,
        lake: LakeTable,  # noqa: ARG002
        target: Target,  # noqa: ARG002
        files: Sequence[NewFile],  # noqa: ARG002
        new: Sequence[DataFile],
    ) -> bool:
        """Any new file does."""
        return bool(new)


@dataclass(frozen=True, slots=True)
class Matching(Overwrite):
    """The rows for which a predicate is TRUE; those for which it is NULL stay."""

    where: Predicate

    def check(self, target: Target) -> None:
        """Refuse a predicate that doesn't fit the table's columns."""
        Overwrite.check(self, target)
        RowFilter(self.where, target.schema)

    def plan(self, lake: LakeTable, target: Target, files: Sequence[NewFile]) -> Plan:  # noqa: ARG002
        """Files whose every row is proven to match go; of those that may have some, the others stay."""
        every, matches = _plan(lake), _plan(lake, self.where)
        rest = every - matches
        left = {task.entry.key: task for task in rest.tasks}
        found = [task for task in matches.tasks if task.entry.key in left]
        return Plan(
            lake.snapshot,
            frozenset(task.entry.key for task in matches.tasks if task.entry.key not in left),
            tuple(Rewrite(left[task.entry.key], task) for task in found),
            rest,
            matches,
            keys=_keys(lake) if found else {},
        )

    def meets(
        self,
        lake: LakeTable,
        target: Target,  # noqa: ARG002
        files: Sequence[NewFile],  # noqa: ARG002
        new: Sequence[DataFile],
    ) -> bool:
        """Those that a plan on the newer snapshot would touch."""
        touched = {task.entry.key for task in _plan(lake, self.where).tasks} if new else set()
        return any(file.file_path in touched for file in new)


@dataclass(frozen=True, slots=True)
class PartitionOverwrite(Overwrite):
    """The rows of the partitions that new rows fall into, whatever spec their files were written under."""

    def plan(self, lake: LakeTable, target: Target, files: Sequence[NewFile]) -> Plan:
        """Files of these partitions go; of files under other specs the rows of other partitions stay."""
        wanted = frozenset(file.metrics.key for file in files)
        if wanted and is_unpartitioned(target.spec):
            return Everything().plan(lake, target, files)
        keys = _keys(lake) if wanted else {}
        dropped = frozenset(path for path, key in keys.items() if key in wanted)
        others = {path for path, key in keys.items() if key.spec_id != target.spec.spec_id}
        if not others:
            return Plan(lake.snapshot, dropped)
        every = _plan(lake)
        touched = {task.entry.key for task in _plan(lake, covering(target, wanted)).tasks}
        rewrites = tuple(Rewrite(task, None) for task in every.tasks if task.entry.key in others & touched)
        return Plan(lake.snapshot, dropped, rewrites, every, None, Elsewhere(target, wanted), keys)

    def meets(
        self,
        lake: LakeTable,  # noqa: ARG002
        target: Target,
        files: Sequence[NewFile],
        new: Sequence[DataFile],
    ) -> bool:
        """Those of the same partitions; those of other specs may."""
        wanted = {file.metrics.key for file in files}
        specs = {target.spec.spec_id: target.spec}
        return any(key is None or key in wanted for key in (_key(file, specs) for file in new))


def covering(target: Target, keys: Collection[PartitionKey]) -> Predicate | None:
    """A condition that all rows of some partitions meet, whatever spec they lie under; None if unknown."""
    found: list[Predicate] = []
    for at, one in enumerate(target.spec.fields):
        name = target.table_schema.find_column_name(one.source_id)
        if name not in target.schema.names:
            continue
        values = {key.partition[at] for key in keys if key.partition is not None}
        real = values - {None}
        span = source_span(one.transform, target.schema.field(name).type, real) if real else None
        if real and span is None:
            continue
        told = [] if span is None else [col(name).between(*span)]
        found.append(disjunction([*told, col(name).is_null()] if None in values else told))
    return conjunction(found) if found else None


def deletes_meet(
    new: Changes, plan: Plan, rewritten: Collection[str], specs: Mapping[int, PartitionSpec]
) -> bool:
    """Whether new delete files may delete rows that a rewrite has copied, which would come back."""
    partitions = {plan.keys[path] for path in rewritten}
    return any(_may_delete(file, plan, rewritten, partitions, specs) for file in new.deletes)


def _may_delete(
    file: DataFile,
    plan: Plan,
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
    # What is deleted without a partition is deleted everywhere.
    return key is None or key.partition is None or key in partitions


def _key(file: DataFile, specs: Mapping[int, PartitionSpec]) -> PartitionKey | None:
    """A file's partition; None if it can't be told."""
    spec = specs.get(file.spec_id)
    values = [value.bytes if isinstance(value, uuid.UUID) else value for value in _record(file.partition)]
    try:
        return None if spec is None else PartitionKey.of(spec, values)
    except SkipstoneError:
        return None


def _record(record: Any) -> list[Any]:
    return [record[at] for at in range(len(record))]


def _keys(lake: LakeTable) -> dict[str, PartitionKey]:
    """The partitions of a lake's files by their paths."""
    entries, _ = lake.inventory.everything
    own = [entries.keys[code] for code in entries.partitions.tolist()]
    return dict(zip(entries.paths.to_pylist(), own, strict=True))


def _plan(lake: LakeTable, where: Predicate | None = None) -> ScanPlan:
    return Scan(lake, where, None, None, None, ScanOptions()).plan()


_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class Rewriting:
    """How rows that stay are written: to the table, under a job's name, in the order they have."""

    target: Target
    layout: PageLayout
    profile: Profile
    job: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> list[Written]:
        """Write rows."""
        layout = dataclasses.replace(self.layout, cluster_by=(), cluster="sort")
        task = f"kept-{secrets.token_hex(4)}"
        return write_files(
            batches, self.target.store, self.job, task, layout, self.profile, shape=self.target
        )


@dataclass(frozen=True, slots=True)
class Done:
    """What an overwrite did."""

    snapshot: int | None
    replaced: int
    """Files that were dropped."""
    moved: tuple[NewFile, ...]
    """Files with rows that stay of those."""


def overwrite(
    table: Table,
    how: Overwrite,
    files: Sequence[NewFile],
    rewriting: Rewriting,
    engine: Engine,
    *,
    branch: str,
    properties: Mapping[str, str],
) -> Done:
    """Put new files in the place of what is replaced; they are deleted if that fails for good."""
    attempt = 0
    while True:
        attempt += 1
        try:
            return _once(table, how, files, rewriting, engine, branch, properties, last=attempt == _TRIES)
        except ConflictError:
            if attempt == _TRIES:
                raise
            tolerant(table.refresh)


def _once(
    table: Table,
    how: Overwrite,
    files: Sequence[NewFile],
    rewriting: Rewriting,
    engine: Engine,
    branch: str,
    properties: Mapping[str, str],
    *,
    last: bool,
) -> Done:
    target = rewriting.target
    moved: list[NewFile] = []
    try:
        plan = how.plan(_lake(table, branch), target, files)
        removed = set(plan.dropped)
        for path, found in _rewritten(plan, rewriting, engine):
            removed.add(path)
            moved += [target.new_file(one) for one in found]
    except BaseException:
        _delete(target, [*files, *moved])
        raise
    rewritten = removed - plan.dropped

    def conflict(new: Changes) -> str | None:
        if how.meets(_lake(table, branch), target, files, new.data):
            return "rows that would be replaced have come meanwhile"
        met = deletes_meet(new, plan, rewritten, table.metadata.specs())
        return "rows of files that were copied have been deleted meanwhile" if met else None

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
        )
    except ConflictError:
        if not last:
            _delete(target, moved)
        raise
    return Done(number, len(removed), tuple(moved))


def _rewritten(plan: Plan, rewriting: Rewriting, engine: Engine) -> Iterator[tuple[str, list[Written]]]:
    """The files that have rows of both kinds, and those that their rows were copied to."""
    if not plan.rewrites:
        return
    assert plan.stays is not None
    stays = shared(plan.stays)
    matches = None if plan.matches is None else shared(plan.matches)
    work = _Work(stays, matches, plan.elsewhere, rewriting)
    for one, found in zip(plan.rewrites, engine.map(work, plan.rewrites), strict=True):
        if found is not None:
            yield one.stays.entry.key, found


@dataclass(frozen=True, slots=True)
class _Work:
    """Copies the rows of a file that stay; None if all of them do."""

    stays: ScanPlan
    matches: ScanPlan | None
    elsewhere: Elsewhere | None
    rewriting: Rewriting

    def __call__(self, one: Rewrite) -> list[Written] | None:
        if not self._replaces(one):
            return None
        return self.rewriting(self._staying(one))

    def _replaces(self, one: Rewrite) -> bool:
        """Whether a row is replaced at all: only the columns that tell are read."""
        if self.matches is not None and one.matches is not None:
            # A count would read as much.
            return any(batch.num_rows for batch in _batches(self.matches, one.matches))
        assert self.elsewhere is not None
        some = self.stays.with_columns(self.elsewhere.columns)
        return any(not self.elsewhere.stays(batch).all() for batch in _batches(some, one.stays))

    def _staying(self, one: Rewrite) -> Iterator[pa.RecordBatch]:
        for batch in _batches(self.stays, one.stays):
            if self.elsewhere is None:
                yield batch
            else:
                yield batch.filter(pa.array(self.elsewhere.stays(batch)))


def _batches(plan: ScanPlan, task: Task) -> Iterator[pa.RecordBatch]:
    yield from execute(dataclasses.replace(plan, tasks=(task,))).to_batches()


def _lake(table: Table, branch: str) -> LakeTable:
    return LakeTable(table, snapshot=None if branch == "main" else branch)


def _delete(target: Target, files: Sequence[NewFile]) -> None:
    # What can't be deleted stays invisible.
    with suppress(SkipstoneError):
        target.delete(files)
