"""Manifest lists checked: against themselves, and against what their snapshots say of the files.

Nothing says how long a manifest list is, so one that was cut between two blocks of its records looks whole.
A snapshot's summary has totals, which many writers leave out and some get wrong, once and for all later
snapshots. So totals raise a suspicion, and only what the lists themselves say confirms it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pyiceberg.table.snapshots import Operation

from skipstone.errors import CorruptFileError, FileError
from skipstone.iceberg.manifests.notes import HINT, ManifestNote, read_manifest_list

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

_DATA, _DELETES = 0, 1
_COUNT = re.compile(r"[0-9]{1,18}")
_COUNTS = ("data-files", "delete-files", "records")


def listed_manifests(
    metadata: TableMetadata, snapshot: Snapshot, read: Callable[[str], bytes]
) -> list[ManifestNote]:
    """The manifests of a snapshot; a list that is not whole, or names one twice, is an error."""
    path = snapshot.manifest_list
    notes = read_manifest_list(read(path), path)
    twice = [
        name for name, count in Counter(n.path for n in notes if live_files(n) != 0).items() if count > 1
    ]
    if twice:
        raise CorruptFileError(
            f"the manifest list names a manifest twice, whose rows would be doubled: {twice[0]}",
            path=path,
            hint=HINT,
        )
    told = _numbers(snapshot)
    if not notes:
        said = {name: told[name] for count in _COUNTS for name in (f"total-{count}", f"added-{count}")}
        name, most = max(said.items(), key=lambda item: item[1])
        if most > 0:
            raise _cut(path, f"it names no manifest, and the snapshot's summary says {name} {most:,}")
    if _is_short(notes, snapshot, told):
        _confirm(metadata, snapshot, notes, told, read)
    return notes


def live_files(note: ManifestNote) -> int | None:
    """How many live files a manifest has; None where only the manifest can tell."""
    if note.added_files is None or note.existing_files is None:
        return None
    return note.added_files + note.existing_files


def _numbers(snapshot: Snapshot) -> Counter[str]:
    """What the summary counts; 0 for what it doesn't say, or not as a number."""
    summary = snapshot.summary
    properties = {} if summary is None else summary.additional_properties
    return Counter({name: int(text) for name, text in properties.items() if _COUNT.fullmatch(str(text))})


def _is_short(notes: Sequence[ManifestNote], snapshot: Snapshot, told: Counter[str]) -> bool:
    """Whether the summary's totals are more files than are listed; or nothing is, after an append."""
    if not notes and "total-data-files" not in told:
        return snapshot.summary is not None and snapshot.summary.operation is Operation.APPEND
    live = [(note.content, live_files(note)) for note in notes]
    if any(count is None for _, count in live):
        return False
    listed = {kind: sum(n or 0 for content, n in live if content == kind) for kind in (_DATA, _DELETES)}
    return told["total-data-files"] > listed[_DATA] or told["total-delete-files"] > listed[_DELETES]


def _confirm(
    metadata: TableMetadata,
    snapshot: Snapshot,
    notes: Sequence[ManifestNote],
    told: Counter[str],
    read: Callable[[str], bytes],
) -> None:
    """Refuse a list that lacks files which the snapshot has added, or which it has from its parent."""
    path = snapshot.manifest_list
    if any(note.snapshot < 0 for note in notes):
        return  # who has made which manifest is not said
    own = [note for note in notes if note.snapshot == snapshot.snapshot_id]
    # Delete files too: some writers count them as data files.
    added = sum(note.added_files or 0 for note in own)
    if told["added-data-files"] > added:
        reason = f"the snapshot added {told['added-data-files']:,} data files, of which {added:,} are listed"
        raise _cut(path, reason)
    parent = metadata.snapshot_by_id(snapshot.parent_snapshot_id or -1)
    if parent is None or not parent.manifest_list:
        return
    try:
        before = read_manifest_list(read(parent.manifest_list), parent.manifest_list)
    except FileError:
        return  # the parent may have been expired in part: nothing confirms the totals
    known = {note.path for note in notes}
    for kind in (_DATA, _DELETES):
        gone = sum(live_files(n) or 0 for n in before if n.content == kind and n.path not in known)
        # Files of a manifest that was replaced are in the new ones, if only as deleted.
        moved = sum((n.existing_files or 0) + (n.deleted_files or 0) for n in own if n.content == kind)
        if gone > moved:
            lost = f"{gone - moved:,} {'delete' if kind else 'data'} files of the snapshot's parent"
            raise _cut(path, f"{lost} are neither listed nor deleted")


def _cut(path: str, reason: str) -> CorruptFileError:
    return CorruptFileError(f"the manifest list is cut short: {reason}", path=path, hint=HINT)
