"""Overwriting in a table: new files in the place of others, whose rows that stay are copied; one snapshot.

What is replaced is planned on a snapshot. If another commit comes first that the plan would have seen, all is
planned anew, as if it had begun later.
"""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from skipstone.engine.jobs import Engine
from skipstone.errors import ConflictError, SkipstoneError
from skipstone.iceberg.metadata import tolerant
from skipstone.iceberg.writing.commit import replace
from skipstone.iceberg.writing.produce import Changes
from skipstone.iceberg.writing.target import NewFile, Target
from skipstone.index.table import IndexedTable
from skipstone.ingest.overwrite import Elsewhere, Overwrite, Plan, Rewrite, deletes_meet
from skipstone.scan.execute import execute
from skipstone.scan.parts import shared
from skipstone.scan.plan import ScanPlan, Task
from skipstone.write.files import Written, write_files
from skipstone.write.layout import Layout
from skipstone.write.profile import Profile

if TYPE_CHECKING:
    from pyiceberg.table import Table

_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class Rewriting:
    """How rows that stay are written: to the table, under a job's name, in the order they have."""

    target: Target
    layout: Layout
    profile: Profile
    job: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> list[Written]:
        """Write rows."""
        layout = dataclasses.replace(self.layout, cluster_by=(), cluster="sort")
        task = f"kept-{secrets.token_hex(4)}"
        return write_files(
            batches, self.target.place, self.job, task, layout, self.profile, shape=self.target
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


def _lake(table: Table, branch: str) -> IndexedTable:
    return IndexedTable(table, snapshot=None if branch == "main" else branch)


def _delete(target: Target, files: Sequence[NewFile]) -> None:
    # What can't be deleted stays invisible.
    with suppress(SkipstoneError):
        target.delete(files)
