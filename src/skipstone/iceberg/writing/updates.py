"""Commits of metadata that add no snapshot: the removal of snapshots and of references to them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import PrivateAttr
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    RemovePartitionStatisticsUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
)

from skipstone.errors import ConflictError, SkipstoneError, WriteError, scrub
from skipstone.iceberg.writing.commit import attempts, check_pyiceberg, refresh_table
from skipstone.iceberg.writing.outcome import CommitState, keep_interrupts, settled

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

_REMOVE: Callable[..., RemoveSnapshotsUpdate] = RemoveSnapshotsUpdate
_REMOVE_REF: Callable[..., RemoveSnapshotRefUpdate] = RemoveSnapshotRefUpdate
_REMOVE_STATISTICS: Callable[..., RemovePartitionStatisticsUpdate] = RemovePartitionStatisticsUpdate


class _AssertRefs(AssertRefSnapshotId):
    """All branches and tags are as they were; catalogs that check on a server see only the main branch."""

    _refs: dict[str, int] = PrivateAttr(default_factory=dict)

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
        super().validate(base_metadata)
        assert base_metadata is not None
        if _refs_of(base_metadata) != self._refs:
            raise CommitFailedException("Requirement failed: branches or tags have changed")


def _refs_of(metadata: TableMetadata) -> dict[str, int]:
    return {name: ref.snapshot_id for name, ref in metadata.refs.items()}


def _requirements(metadata: TableMetadata) -> tuple[Any, ...]:
    make: Any = _AssertRefs
    refs = _refs_of(metadata)
    every = make(ref=MAIN_BRANCH, snapshot_id=refs.get(MAIN_BRANCH))
    every._refs = refs
    each: Any = AssertRefSnapshotId
    others = [each(ref=name, snapshot_id=number) for name, number in refs.items() if name != MAIN_BRANCH]
    return (AssertTableUUID(uuid=metadata.table_uuid), every, *others)


def remove_snapshots(
    table: Table,
    name: str,
    choose: Callable[[TableMetadata], tuple[Collection[int], Sequence[str]]],
) -> tuple[TableMetadata, frozenset[int]]:
    """Remove snapshots and references, with retries; return the metadata before, and the removed ids.

    ``choose`` returns ids and names for the current metadata of every attempt: the commit is refused by the
    catalog if a branch or tag has changed since. Data files are not touched.
    """
    check_pyiceberg()
    problem, state = "", CommitState()
    gone: frozenset[int] = frozenset()
    refs: Sequence[str] = ()
    files = "; remove_orphans deletes the files that nothing refers to"
    with settled(table, name, state, lambda: _are_removed(table, gone, refs), afterwards=files):
        for _ in attempts(table):
            refresh_table(table, name)
            before = table.metadata
            ids, refs = choose(before)
            gone = frozenset(ids)
            if not gone and not refs:
                return before, gone
            statistics = [one.snapshot_id for one in before.partition_statistics if one.snapshot_id in gone]
            updates = (
                *(_REMOVE_REF(ref_name=ref) for ref in refs),
                *(_REMOVE_STATISTICS(snapshot_id=number) for number in dict.fromkeys(statistics)),
                *((_REMOVE(snapshot_ids=sorted(gone)),) if gone else ()),
            )
            state.send()
            problem = _try(table, name, updates, _requirements(before), gone, refs)
            if not problem:
                state.land()
                return before, gone
            state.fail()
    raise ConflictError(
        f"commit failed in every attempt because of concurrent commits: {problem}",
        path=name,
        hint="retry when fewer writers are active",
    )


def _try(
    table: Table, name: str, updates: Any, requirements: Any, gone: Collection[int], refs: Sequence[str]
) -> str:
    """Attempt once; return "" on success, or the catalog's message if another commit was faster."""
    try:
        with keep_interrupts():
            table._do_commit(updates, requirements)
    except Exception as error:
        try:
            # It can have landed nevertheless.
            refresh_table(table, name)
        except SkipstoneError:
            raise
        except Exception:  # noqa: BLE001
            raise _unknown(name, error) from error
        if _are_removed(table, gone, refs):
            return ""
        left = {one.snapshot_id for one in table.metadata.snapshots}
        # Some catalogs refuse to remove what another commit has removed.
        if isinstance(error, CommitFailedException) or not set(gone) <= left:
            return scrub(error)
        raise _unknown(name, error) from error
    return ""


def _are_removed(table: Table, gone: Collection[int], refs: Sequence[str]) -> bool:
    left = {one.snapshot_id for one in table.metadata.snapshots}
    return not left & set(gone) and not set(refs) & table.metadata.refs.keys()


def _unknown(name: str, error: BaseException) -> WriteError:
    hint = "list the snapshots before retrying; no file was deleted, and remove_orphans finds those left over"
    problem = f"outcome of the commit is unknown: {scrub(error)}"
    return WriteError(problem, path=name, hint=hint)
