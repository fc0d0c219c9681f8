"""Manifest lists checked: against themselves, and against what their snapshots say of the files.

Nothing says how long a manifest list is, so one that was cut between two blocks of its records looks whole.
A snapshot's summary has totals, which many writers leave out and some get wrong, once and for all later
snapshots. So totals raise a suspicion, and only what the lists themselves say confirms it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyiceberg.table.snapshots import Operation

from skipstone.errors import CorruptFileError, FileError
from skipstone.iceberg.manifests.avro import AvroError, parse_schema, read_container, read_header, read_value

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot


HINT = "restore the file or roll the table back to another snapshot"


@dataclass(frozen=True, slots=True)
class PartitionSummary:
    """The range of one partition field in a manifest; bounds as Iceberg serialises them."""

    contains_null: bool
    contains_nan: bool | None
    lower: bytes | None
    upper: bytes | None


@dataclass(frozen=True, slots=True)
class ManifestNote:
    """What a manifest list says about one manifest; None for counts that are not known."""

    path: str
    length: int
    spec_id: int
    content: int = 0
    sequence: int = 0
    min_sequence: int = 0
    snapshot: int = -1
    added_files: int | None = None
    existing_files: int | None = None
    deleted_files: int | None = None
    added_rows: int | None = None
    existing_rows: int | None = None
    deleted_rows: int | None = None
    partitions: tuple[PartitionSummary, ...] = ()
    first_row_id: int | None = None


_NOTE: Mapping[str, tuple[int, str]] = {
    "path": (500, "manifest_path"),
    "length": (501, "manifest_length"),
    "spec_id": (502, "partition_spec_id"),
    "content": (517, "content"),
    "sequence": (515, "sequence_number"),
    "min_sequence": (516, "min_sequence_number"),
    "snapshot": (503, "added_snapshot_id"),
    "added_files": (504, "added_files_count"),
    "existing_files": (505, "existing_files_count"),
    "deleted_files": (506, "deleted_files_count"),
    "added_rows": (512, "added_rows_count"),
    "existing_rows": (513, "existing_rows_count"),
    "deleted_rows": (514, "deleted_rows_count"),
    "partitions": (507, "partitions"),
    "first_row_id": (520, "first_row_id"),
}
_SUMMARY: Mapping[str, tuple[int, str]] = {
    "contains_null": (509, "contains_null"),
    "contains_nan": (518, "contains_nan"),
    "lower": (510, "lower_bound"),
    "upper": (511, "upper_bound"),
}
# Some early writers spelled these differently.
_OLD_NAMES = {
    "added_files": "added_data_files_count",
    "existing_files": "existing_data_files_count",
    "deleted_files": "deleted_data_files_count",
}


def read_manifest_list(data: bytes, path: str) -> list[ManifestNote]:
    """What a manifest list (of format version 1, 2 or 3) says about its manifests, in its order."""
    try:
        container = read_container(data)
        schema = parse_schema(container.schema)
        notes, pos = [], 0
        for count, end in container.blocks:
            for _ in range(count):
                record, pos = read_value(schema, container.body, pos)
                notes.append(_note(record))
            if pos != end:
                raise AvroError("a block's records don't end where the block does")
        return notes
    except (AvroError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptFileError(f"the manifest list can't be read: {error}", path=path, hint=HINT) from None


def embedded_note(data: bytes, path: str) -> ManifestNote:
    """A manifest that a snapshot of version 1 names itself: only its own header tells its spec."""
    try:
        header, _ = read_header(data)
        return ManifestNote(path, len(data), int(header.get("partition-spec-id", b"0")))
    except (AvroError, ValueError) as error:
        raise CorruptFileError(f"the manifest can't be read: {error}", path=path, hint=HINT) from None


def _note(record: Mapping[Any, Any]) -> ManifestNote:
    found = _named(record, _NOTE)
    for name, old in _OLD_NAMES.items():
        if found.get(name) is None:
            found[name] = record.get(old)
    missing = [name for name in ("path", "length", "spec_id") if found.get(name) is None]
    if missing:
        raise AvroError(f"a manifest has no {missing[0]}")
    if found.get("content") not in (None, 0, 1):
        raise AvroError(f"the content of a manifest is {found['content']}, neither 0 (data) nor 1 (deletes)")
    summaries = found.pop("partitions", None) or ()
    # What a file of version 1 has no field for is its default.
    given = {name: value for name, value in found.items() if value is not None}
    return ManifestNote(**given, partitions=tuple(map(_summary, summaries)))


def _summary(record: Mapping[Any, Any]) -> PartitionSummary:
    found = _named(record, _SUMMARY)
    nulls = found.get("contains_null")
    return PartitionSummary(
        nulls is not False, found.get("contains_nan"), found.get("lower"), found.get("upper")
    )


def _named(record: Mapping[Any, Any], names: Mapping[str, tuple[int, str]]) -> dict[str, Any]:
    found = {}
    for name, (field_id, written) in names.items():
        if field_id in record:
            found[name] = record[field_id]
        elif written in record:
            found[name] = record[written]
    return found


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
