"""Commits: one snapshot that adds data files and delete files, and drops others.

A commit that loses a race is retried: an append always, a replacement only if the other commits don't
conflict with its plan. New files are deleted if the commit certainly failed; if the outcome is unknown, they
stay.
"""

from __future__ import annotations

import inspect
import random
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, ValidationError
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    ManifestFile,
    ManifestWriterV1,
    ManifestWriterV2,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
    write_manifest_list,
)
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot

from skipstone.errors import ConflictError, MissingFileError, SkipstoneError, UsageError, WriteError, scrub
from skipstone.iceberg.metadata import ancestors, integer_property, tolerant
from skipstone.iceberg.writing.outcome import CommitState, keep_interrupts, settle
from skipstone.iceberg.writing.producer import OWN_PROPERTIES, RUN_AGAIN, Producer, live_entries
from skipstone.iceberg.writing.target import NewFile, Target, check_version, metadata_files_written

if TYPE_CHECKING:
    from pyiceberg.table import Table


@dataclass(frozen=True, slots=True)
class Changes:
    """Differences between two snapshots."""

    data: tuple[DataFile, ...]
    """New data files."""
    deletes: tuple[DataFile, ...]
    """New delete files."""
    lost: frozenset[str]
    """Removed files."""


def changes(table: Table, base: Snapshot | None, head: Snapshot | None) -> Changes:
    """Compare two snapshots file by file, whatever commits are between them."""
    before = {one.manifest_path: one for one in _manifests_of(base, table.io)}
    after = {one.manifest_path: one for one in _manifests_of(head, table.io)}
    old = _live(table, (one for path, one in before.items() if path not in after))
    new = _live(table, (one for path, one in after.items() if path not in before))
    added = [file for path, file in new.items() if path not in old]
    return Changes(
        tuple(file for file in added if file.content == DataFileContent.DATA),
        tuple(file for file in added if file.content != DataFileContent.DATA),
        frozenset(path for path in old if path not in new),
    )


def _manifests_of(snapshot: Snapshot | None, io: Any) -> Iterator[ManifestFile]:
    yield from () if snapshot is None else snapshot.manifests(io)


def _live(table: Table, manifests: Iterable[ManifestFile]) -> dict[str, DataFile]:
    return {
        entry.data_file.file_path: entry.data_file
        for manifest in manifests
        for entry in live_entries(table, manifest)
    }


def check_properties(given: Mapping[str, str] | None) -> dict[str, str]:
    """Return properties for a snapshot's summary; other engines refuse to read values that are not text."""
    properties: Any = {} if given is None else given
    if not isinstance(properties, Mapping):
        problem = f"properties must be a dict of strings, got a {type(properties).__name__}"
        raise UsageError(problem, hint='pass names and values, such as {"job": "nightly"}')
    for name, value in properties.items():
        if not (isinstance(name, str) and isinstance(value, str)):
            problem = f"property {name!r} must be a string, got {value!r}"
            raise UsageError(problem, hint="convert names and values with str()")
        if name in OWN_PROPERTIES or name.startswith("total-"):
            raise UsageError(f"property {name} is set by the commit itself", hint="choose another name")
    return dict(properties)


JOB: Final = "skipstone.job"
"""The snapshot property with the name of the job that wrote it."""
_TRIES: Final = 12


def append(
    table: Table,
    target: Target,
    files: Sequence[NewFile],
    *,
    properties: Mapping[str, str] | None = None,
    branch: str = MAIN_BRANCH,
    done: Callable[[Table], bool] = lambda _: False,
    state: CommitState | None = None,
) -> int | None:
    """Add files as one snapshot and return its id; ``properties`` go into its summary.

    If ``done`` returns True for the table that the snapshot would follow, the rows are already committed: the
    files are deleted, and None is returned.
    """
    work = Producer(
        table,
        target,
        tuple(files),
        frozenset(),
        properties or {},
        branch,
        Operation.APPEND,
        state=state or CommitState(),
    )
    return publish(work, lambda: None, done)


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
    state: CommitState | None = None,
) -> int | None:
    """Add and drop files, as planned on the snapshot ``base``, as one snapshot and return its id.

    ``conflict`` is called with the changes since then; the problem it returns is raised as ConflictError. So
    is a missing file to drop. With ``keep`` the new files stay after a ConflictError, for another attempt.
    """
    paths = frozenset(removed)
    work = Producer(
        table,
        target,
        tuple(files),
        paths,
        properties or {},
        branch,
        Operation.OVERWRITE,
        state=state or CommitState(),
    )

    def validate() -> None:
        since = _since(table, base, branch, target.name)
        if since is None:
            return
        lost = since.lost & paths
        problem = f"another commit has dropped {min(lost)}" if lost else conflict(since)
        if problem is not None:
            raise ConflictError(problem, path=target.name, hint=RUN_AGAIN)

    return publish(work, validate, keep=keep)


def summaries(table: Table, *, branch: str = MAIN_BRANCH) -> list[tuple[int, Mapping[str, str]]]:
    """Ids and summaries of a branch's snapshots, newest first."""
    return [
        (one.snapshot_id, one.summary.additional_properties if one.summary is not None else {})
        for one in ancestors(table.metadata, table.metadata.snapshot_by_name(branch))
    ]


# -- attempts ----------------------------------------------------------------------------------


def publish(
    work: Producer,
    validate: Callable[[], None],
    done: Callable[[Table], bool] = lambda _: False,
    *,
    keep: bool = False,
) -> int | None:
    """Commit a snapshot, with retries, and return its id; a commit that certainly failed leaves no files.

    ``validate`` is called before every attempt and raises ConflictError if the snapshot can't follow the
    current one. If ``done`` returns True, the rows are already committed: the files are deleted, and None is
    returned. With ``keep`` the new files stay after a ConflictError.
    """
    try:
        check_pyiceberg()
        check_version(work.table, work.target.name)
        _check_branch(work)
        if work.is_empty:
            return None
        if _retry(work, validate, done):
            return work.number
    except _UnknownOutcomeError as error:
        hint = f"check whether snapshot {work.number} exists before retrying; no file was deleted"
        problem = f"outcome of the commit is unknown: {error}"
        raise WriteError(problem, path=work.target.name, hint=hint) from error.__cause__
    except Exception as error:
        work.state.fail()
        work.clean()
        if not (keep and isinstance(error, ConflictError)):
            _discard(work)
        raise
    except BaseException:
        _settle(work)
        raise
    _discard(work)
    return None


def _settle(work: Producer) -> None:
    """Find out what an interrupt has left, and delete the files if nothing was or will be committed."""
    settle(work.table, work.state, lambda: _has_landed(work) or (None if _is_outrun(work) else False))
    if not work.state.sent:
        _discard(work)


def _retry(work: Producer, validate: Callable[[], None], done: Callable[[Table], bool]) -> bool:
    """Attempt until the snapshot is committed; return False if the rows already were."""
    problem, tried = "", 0
    for tried in attempts(work.table):
        if tried > 1:
            _refresh(work)
        try:
            if done(work.table):
                return False
            _check_spec(work)
            validate()
            problem = _try(work)
        except (MissingFileError, FileNotFoundError) as error:
            problem = _expired(work, error)
        if not problem:
            return True
        work.reset()
    problem = f"commit failed after {tried} attempts because of concurrent commits: {problem}"
    raise ConflictError(problem, path=work.target.name, hint="retry when fewer writers are active")


def _expired(work: Producer, error: MissingFileError | FileNotFoundError) -> str:
    """Why an attempt failed whose snapshot was expired by another process; raises if none was."""
    name, head = work.target.name, work.table.metadata.snapshot_by_name(work.branch)
    _refresh(work)
    if head is not None and work.table.metadata.snapshot_by_id(head.snapshot_id) is None:
        return f"snapshot {head.snapshot_id}, on which the write was planned, has expired"
    if isinstance(error, MissingFileError):
        raise error
    hint = "restore this file of the snapshot, or roll the table back"
    raise MissingFileError(
        f"file of the table's metadata is missing: {scrub(error)}", path=name, hint=hint
    ) from error


def attempts(table: Table) -> Iterator[int]:
    """Number the attempts that a table's properties allow, from 1; waits longer and longer between them."""
    read = partial(integer_property, table.metadata.properties, table=".".join(table.name()))
    tries = read("commit.retry.num-retries", _TRIES)
    least = read("commit.retry.min-wait-ms", 100) / 1000
    most = read("commit.retry.max-wait-ms", 5_000) / 1000
    yield 1
    for retry in range(tries):
        time.sleep(min(least * 2.0 ** min(retry, 60), most) * random.uniform(0.5, 1.5))  # noqa: S311
        yield retry + 2


def _try(work: Producer) -> str:
    """Attempt once; return "" on success, or the catalog's message if another commit was faster."""
    with keep_interrupts():
        updates, requirements = work.updates()
    work.state.send(work.number)
    try:
        with metadata_files_written(work.written), keep_interrupts():
            work.table._do_commit(updates, requirements)
    except Exception as error:
        # It can have landed nevertheless: the response to a first request can be lost.
        try:
            _refresh(work)
            landed = _has_landed(work)
        except SkipstoneError:
            raise
        except Exception:  # noqa: BLE001
            raise _UnknownOutcomeError(scrub(error)) from error
        if not landed:
            if _is_outrun(work) or isinstance(error, CommitFailedException):
                work.state.fail()
                return scrub(error)
            if isinstance(error, ValidationError):
                raise _refusal(error, work.target.name) from error
            raise _UnknownOutcomeError(scrub(error)) from error
    work.state.land()
    return ""


def _has_landed(work: Producer) -> bool:
    return work.table.metadata.snapshot_by_id(work.number) is not None


def _is_outrun(work: Producer) -> bool:
    """Whether the number of the snapshot was used by another one, which may have been rolled back."""
    # Version 1 has no sequence numbers.
    return bool(getattr(work.table.metadata, "last_sequence_number", -1) >= work.sequence_sent)


def _refresh(work: Producer) -> None:
    refresh_table(work.table, work.target.name)


def refresh_table(table: Table, name: str) -> None:
    """Load the current metadata of a table; refuse one that was dropped, or replaced by another."""
    try:
        tolerant(table.refresh)
    except NoSuchTableError as error:
        problem = "table no longer exists"
        raise ConflictError(problem, path=name, hint="create it again; nothing was written") from error
    except ValueError as error:
        problem = "table was replaced by another one of the same name"
        raise ConflictError(problem, path=name, hint="open the table again") from error


def _discard(work: Producer) -> None:
    work.clean()
    # Files that can't be deleted stay invisible.
    with suppress(SkipstoneError):
        work.target.delete(work.files)


class _UnknownOutcomeError(Exception):
    """The commit may or may not have landed."""


# -- checks ------------------------------------------------------------------------------------


def _since(table: Table, base: int | None, branch: str, name: str) -> Changes | None:
    """Changes on a branch since a snapshot; None if there are none."""
    head = table.metadata.snapshot_by_name(branch)
    if (None if head is None else head.snapshot_id) == base:
        return None
    before = None if base is None else table.metadata.snapshot_by_id(base)
    if base is not None and before is None:
        problem = f"snapshot {base}, on which the write was planned, has expired"
        raise ConflictError(problem, path=name, hint=RUN_AGAIN)
    check_ancestor(table, base, head, name)
    return changes(table, before, head)


def check_ancestor(
    table: Table, base: int | None, head: Snapshot | None, name: str, hint: str = RUN_AGAIN
) -> None:
    """Refuse to follow a head that does not descend from the base: rows deleted there may be live again."""
    line = {one.snapshot_id for one in ancestors(table.metadata, head)}
    if base is not None and base not in line:
        is_expired = table.metadata.snapshot_by_id(base) is None
        what = "has expired" if is_expired else "is no longer in the history of the branch"
        problem = f"snapshot {base}, on which the write was planned, {what}"
        raise ConflictError(problem, path=name, hint=hint)


def check_committable(table: Table, name: str) -> None:
    """Refuse a table to which pyiceberg can't commit, such as one with an unknown partition transform.

    The catalog is a service or pyiceberg itself; pyiceberg checks the table at the end of every commit.
    """
    if isinstance(table.catalog, MetastoreCatalog):
        schema = table.metadata.schema()
        try:
            table.metadata.spec().check_compatible(schema)
            table.metadata.sort_order().check_compatible(schema)
        except ValidationError as error:
            raise _refusal(error, name) from error


def _refusal(error: ValidationError, name: str) -> WriteError:
    hint = "change the table's partition spec or sort order with the engine that made them"
    return WriteError(f"pyiceberg can't commit to the table: {scrub(error)}", path=name, hint=hint)


def _check_branch(work: Producer) -> None:
    ref = work.table.metadata.refs.get(work.branch)
    if ref is not None and ref.snapshot_ref_type != SnapshotRefType.BRANCH:
        raise UsageError(f"{work.branch} is a tag", path=work.target.name, hint="use a branch")
    if ref is None and work.branch != MAIN_BRANCH:
        hint = "create it first, for example with pyiceberg's manage_snapshots().create_branch"
        raise UsageError(f"unknown branch {work.branch}", path=work.target.name, hint=hint)


def _check_spec(work: Producer) -> None:
    """Refuse specs that were removed or replaced."""
    current = work.table.metadata.specs()
    used = sorted({file.metrics.key.spec_id for file in work.files})
    lost = [one for one in used if one not in current or work.specs.get(one, current[one]) != current[one]]
    if lost:
        problem = f"partition spec {lost[0]} was removed by another commit"
        raise ConflictError(problem, path=work.target.name, hint=RUN_AGAIN)


@cache
def check_pyiceberg() -> None:
    """Refuse to write with a pyiceberg whose internal API differs."""
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    manifest = ("self", "spec", "schema", "output_file", "snapshot_id", "avro_compression")
    listed = (
        *("format_version", "output_file", "snapshot_id"),
        *("parent_snapshot_id", "sequence_number", "avro_compression"),
    )
    wanted: tuple[tuple[Any, tuple[str, ...]], ...] = (
        (getattr(Table, "_do_commit", None), ("self", "updates", "requirements")),
        (getattr(Catalog, "commit_table", None), ("self", "table", "requirements", "updates")),
        (ManifestWriterV1.__init__, manifest),
        (ManifestWriterV2.__init__, manifest),
        (getattr(ManifestWriterV2, "_with_partition", None), ("self", "format_version")),
        (data_file_with_partition, ("partition_type", "format_version")),
        (manifest_entry_schema_with_data_file, ("format_version", "data_file")),
        (write_manifest_list, listed),
    )
    missing = [names for function, names in wanted if function is None or _parameters(function) != names]
    if missing:
        from pyiceberg import __version__

        raise UsageError(
            f"can't write with pyiceberg {__version__}: no function takes {', '.join(missing[0])}",
            hint="install the version that skipstone[iceberg] requires; reading works with this one",
        )


def _parameters(function: Any) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters)
