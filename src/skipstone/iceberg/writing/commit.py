"""Commits: new data files become one snapshot of a table, others are dropped by it; nothing is done twice.

A commit is tried again when somebody else was faster: an append always, a replacement only if what came
meanwhile doesn't touch what it was planned on. Files of a commit that certainly failed are deleted; if its
outcome is not known, nothing is.
"""

from __future__ import annotations

import inspect
import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import write_manifest, write_manifest_list
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation

from skipstone.errors import ConflictError, SkipstoneError, UsageError, WriteError, scrub
from skipstone.iceberg.metadata import tolerant
from skipstone.iceberg.snapshots import ancestors
from skipstone.iceberg.writing.produce import Changes, Producer, changes
from skipstone.iceberg.writing.target import NewFile, Target, check_version

if TYPE_CHECKING:
    from pyiceberg.table import Table

JOB: Final = "skipstone.job"
"""The property of a snapshot that tells which job made it."""
_TRIES: Final = 12


def append(
    table: Table,
    target: Target,
    files: Sequence[NewFile],
    *,
    properties: Mapping[str, str] | None = None,
    branch: str = MAIN_BRANCH,
    done: Callable[[Table], bool] = lambda _: False,
) -> int | None:
    """Add files as one snapshot, and give its id; ``properties`` go into its summary.

    ``done`` is asked of the very table that the snapshot is to follow, whether the rows are in already: then
    the files are deleted, and None is given.
    """
    work = Producer(
        table, target, tuple(files), frozenset(), properties or {}, branch, _number(table), Operation.APPEND
    )
    return _run(work, lambda: None, done)


def replace(
    table: Table,
    target: Target,
    files: Sequence[NewFile],
    removed: Collection[str],
    *,
    base: int | None,
    conflict: Callable[[Changes], str | None],
    properties: Mapping[str, str] | None = None,
    branch: str = MAIN_BRANCH,
    keep: bool = False,
) -> int | None:
    """Add files and drop others, as was planned on the snapshot ``base``, as one snapshot; its id.

    ``conflict`` is asked about what has changed since then, and tells what speaks against the commit: that is
    a ConflictError. So is a file to be dropped that is gone. With ``keep`` the new files stay after a
    ConflictError, for another try.
    """
    paths = frozenset(removed)
    work = Producer(
        table, target, tuple(files), paths, properties or {}, branch, _number(table), Operation.OVERWRITE
    )

    def validate() -> None:
        found = _since(table, base, branch, target.name)
        if found is None:
            return
        lost = found.lost & paths
        problem = f"another commit has dropped {min(lost)}" if lost else conflict(found)
        if problem is not None:
            raise ConflictError(problem, path=target.name, hint="run this one again")

    return _run(work, validate, keep=keep)


def committed(table: Table, properties: Mapping[str, str], *, branch: str = MAIN_BRANCH) -> int | None:
    """The snapshot of a branch that has all these properties in its summary, as far back as is known."""
    for number, told in summaries(table, branch=branch):
        if all(told.get(name) == value for name, value in properties.items()):
            return number
    return None


def summaries(table: Table, *, branch: str = MAIN_BRANCH) -> list[tuple[int, Mapping[str, str]]]:
    """The ids of a branch's snapshots and what their summaries say, newest first."""
    found = ancestors(table.metadata, table.metadata.snapshot_by_name(branch))
    return [
        (one.snapshot_id, one.summary.additional_properties if one.summary is not None else {})
        for one in found
    ]


# -- tries -------------------------------------------------------------------------------------


def _run(
    work: Producer,
    validate: Callable[[], None],
    done: Callable[[Table], bool] = lambda _: False,
    *,
    keep: bool = False,
) -> int | None:
    """Try until it is in; what certainly is not leaves nothing behind."""
    try:
        check_pyiceberg()
        check_version(work.table, work.target.name)
        _check_branch(work)
        if not work.files and not work.removed:
            return None
        if _tried(work, validate, done):
            return work.number
    except _UnknownOutcomeError as error:
        hint = f"look for snapshot {work.number} before you try again; no file was deleted"
        problem = f"whether the commit is in is not known: {error}"
        raise WriteError(problem, path=work.target.name, hint=hint) from error.__cause__
    except BaseException as error:
        work.clean()
        if not (keep and isinstance(error, ConflictError)):
            _discard(work)
        raise
    _discard(work)
    return None


def _tried(work: Producer, validate: Callable[[], None], done: Callable[[Table], bool]) -> bool:
    """Whether the snapshot is in; not if it was done before."""
    told = work.table.metadata.properties
    tries = int(told.get("commit.retry.num-retries", _TRIES))
    least = int(told.get("commit.retry.min-wait-ms", 100)) / 1000
    most = int(told.get("commit.retry.max-wait-ms", 5_000)) / 1000
    problem = ""
    for attempt in range(tries + 1):
        if done(work.table):
            return False
        _check_spec(work)
        validate()
        problem = _try(work)
        if not problem:
            return True
        work.clean()
        if attempt < tries:
            time.sleep(min(least * 2**attempt, most) * random.uniform(0.5, 1.5))  # noqa: S311
            _refresh(work)
    problem = f"others commit all the time: {problem}"
    raise ConflictError(problem, path=work.target.name, hint="try again later")


def _try(work: Producer) -> str:
    """Try once: "" if it is in, or what another commit that was faster has made the catalog say."""
    updates, requirements = work.updates()
    try:
        work.table._do_commit(updates, requirements)
    except BaseException as error:
        # It may be in, even if it was refused: the answer to a first request may have been lost on the way.
        try:
            _refresh(work)
            landed = work.table.metadata.snapshot_by_id(work.number) is not None
        except SkipstoneError:
            raise
        except Exception:  # noqa: BLE001
            raise _UnknownOutcomeError(scrub(error)) from error
        if landed:
            return ""
        if isinstance(error, CommitFailedException):
            return scrub(error)
        raise _UnknownOutcomeError(scrub(error)) from error
    return ""


def _refresh(work: Producer) -> None:
    try:
        tolerant(work.table.refresh)
    except ValueError as error:
        problem = "another table has taken its name meanwhile"
        raise ConflictError(problem, path=work.target.name, hint="open it anew") from error


def _discard(work: Producer) -> None:
    work.clean()
    # What can't be deleted stays invisible.
    with suppress(SkipstoneError):
        work.target.delete(work.files)


class _UnknownOutcomeError(Exception):
    """A commit that may be in or not."""


def _number(table: Table) -> int:
    return int(table.metadata.new_snapshot_id())


# -- checks ------------------------------------------------------------------------------------


def _since(table: Table, base: int | None, branch: str, name: str) -> Changes | None:
    """What has changed on a branch since a snapshot; None if nothing has."""
    head = table.metadata.snapshot_by_name(branch)
    if (None if head is None else head.snapshot_id) == base:
        return None
    before = None if base is None else table.metadata.snapshot_by_id(base)
    if base is not None and before is None:
        problem = f"snapshot {base}, which this was planned on, has expired"
        raise ConflictError(problem, path=name, hint="run this one again")
    return changes(table, before, head)


def _check_branch(work: Producer) -> None:
    ref = work.table.metadata.refs.get(work.branch)
    if ref is not None and ref.snapshot_ref_type != SnapshotRefType.BRANCH:
        raise UsageError(f"{work.branch} is a tag", path=work.target.name, hint="name a branch")
    if ref is None and work.branch != MAIN_BRANCH:
        hint = "make it first, as with pyiceberg's manage_snapshots().create_branch"
        raise UsageError(f"there is no branch {work.branch}", path=work.target.name, hint=hint)


def _check_spec(work: Producer) -> None:
    """Refuse a spec that is gone, or whose number another one has now."""
    spec = work.target.spec
    if work.files and work.table.metadata.specs().get(spec.spec_id) != spec:
        problem = f"its partition spec {spec.spec_id} was removed meanwhile"
        raise ConflictError(problem, path=work.target.name, hint="run this one again")


@cache
def check_pyiceberg() -> None:
    """Refuse to write with a pyiceberg that differs from the one that commits were made for."""
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    manifest = ("format_version", "spec", "schema", "output_file", "snapshot_id", "avro_compression")
    listed = (
        *("format_version", "output_file", "snapshot_id"),
        *("parent_snapshot_id", "sequence_number", "avro_compression"),
    )
    wanted: tuple[tuple[Any, tuple[str, ...]], ...] = (
        (getattr(Table, "_do_commit", None), ("self", "updates", "requirements")),
        (getattr(Catalog, "commit_table", None), ("self", "table", "requirements", "updates")),
        (write_manifest, manifest),
        (write_manifest_list, listed),
    )
    odd = [names for made, names in wanted if made is None or _names(made) != names]
    if odd:
        from pyiceberg import __version__

        raise UsageError(
            f"pyiceberg {__version__} commits in another way: nothing takes {', '.join(odd[0])}",
            hint="install the version that skipstone[iceberg] asks for; tables can be read with this one",
        )


def _names(made: Any) -> tuple[str, ...]:
    return tuple(inspect.signature(made).parameters)
