"""Manifest lists: a note about each manifest, checked against the list itself and against its snapshot.

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
from skipstone.iceberg.manifests.avro import (
    AvroError,
    parse_schema,
    read_container,
    read_header,
    read_value,
)

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

HINT = "restore the file or roll the table back to another snapshot"
_DATA, _DELETES = 0, 1


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

    @property
    def live_files(self) -> int | None:
        """How many live files the manifest has; None where only the manifest can tell."""
        if self.added_files is None or self.existing_files is None:
            return None
        return self.added_files + self.existing_files


# -- reading -----------------------------------------------------------------------------------

# By field id, else by name; some early writers spelled the counts differently.
_NOTE: Mapping[str, tuple[int | str, ...]] = {
    "path": (500, "manifest_path"),
    "length": (501, "manifest_length"),
    "spec_id": (502, "partition_spec_id"),
    "content": (517, "content"),
    "sequence": (515, "sequence_number"),
    "min_sequence": (516, "min_sequence_number"),
    "snapshot": (503, "added_snapshot_id"),
    "added_files": (504, "added_files_count", "added_data_files_count"),
    "existing_files": (505, "existing_files_count", "existing_data_files_count"),
    "deleted_files": (506, "deleted_files_count", "deleted_data_files_count"),
    "added_rows": (512, "added_rows_count"),
    "existing_rows": (513, "existing_rows_count"),
    "deleted_rows": (514, "deleted_rows_count"),
    "partitions": (507, "partitions"),
    "first_row_id": (520, "first_row_id"),
}
_SUMMARY: Mapping[str, tuple[int | str, ...]] = {
    "contains_null": (509, "contains_null"),
    "contains_nan": (518, "contains_nan"),
    "lower": (510, "lower_bound"),
    "upper": (511, "upper_bound"),
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
    # What a file of version 1 has no field for has its default.
    found = {name: value for name, value in _named(record, _NOTE).items() if value is not None}
    missing = [name for name in ("path", "length", "spec_id") if name not in found]
    if missing:
        raise AvroError(f"a manifest has no {missing[0]}")
    if found.get("content") not in (None, _DATA, _DELETES):
        raise AvroError(f"the content of a manifest is {found['content']}, neither 0 (data) nor 1 (deletes)")
    summaries = []
    for summary in found.pop("partitions", ()):
        mine = _named(summary, _SUMMARY)
        # What is not said of nulls doesn't rule them out.
        mine["contains_null"] = mine["contains_null"] is not False
        summaries.append(PartitionSummary(**mine))
    return ManifestNote(**found, partitions=tuple(summaries))


def _named(record: Mapping[Any, Any], names: Mapping[str, tuple[int | str, ...]]) -> dict[str, Any]:
    found = {}
    for name, keys in names.items():
        values = (record[key] for key in keys if key in record)
        found[name] = next((value for value in values if value is not None), None)
    return found


# -- checks ------------------------------------------------------------------------------------

_COUNT = re.compile(r"[0-9]{1,18}")
_COUNTS = ("data-files", "delete-files", "records")


def listed_manifests(
    metadata: TableMetadata, snapshot: Snapshot, read: Callable[[str], bytes]
) -> list[ManifestNote]:
    """The manifests of a snapshot; a list that is not whole, or names one twice, is an error."""
    path = snapshot.manifest_list
    notes = read_manifest_list(read(path), path)
    names = Counter(note.path for note in notes if note.live_files != 0)
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise CorruptFileError(
            f"the manifest list names a manifest twice, whose rows would be doubled: {twice[0]}",
            path=path,
            hint=HINT,
        )
    totals = _totals(snapshot)
    if not notes:
        said = {name: totals[name] for count in _COUNTS for name in (f"total-{count}", f"added-{count}")}
        name, most = max(said.items(), key=lambda item: item[1])
        if most > 0:
            raise _cut(path, f"it names no manifest, and the snapshot's summary says {name} {most:,}")
    if _is_short(notes, snapshot, totals):
        _confirm(metadata, snapshot, notes, totals, read)
    return notes


def _totals(snapshot: Snapshot) -> Counter[str]:
    """What the summary counts; 0 for what it doesn't say, or not as a number."""
    summary = snapshot.summary
    properties = {} if summary is None else summary.additional_properties
    return Counter({name: int(text) for name, text in properties.items() if _COUNT.fullmatch(str(text))})


def _is_short(notes: Sequence[ManifestNote], snapshot: Snapshot, totals: Counter[str]) -> bool:
    """Whether the summary's totals are more files than are listed; or nothing is, after an append."""
    if not notes and "total-data-files" not in totals:
        return snapshot.summary is not None and snapshot.summary.operation is Operation.APPEND
    listed: Counter[int] = Counter()
    for note in notes:
        if note.live_files is None:
            return False
        listed[note.content] += note.live_files
    return totals["total-data-files"] > listed[_DATA] or totals["total-delete-files"] > listed[_DELETES]


def _confirm(
    metadata: TableMetadata,
    snapshot: Snapshot,
    notes: Sequence[ManifestNote],
    totals: Counter[str],
    read: Callable[[str], bytes],
) -> None:
    """Refuse a list that lacks files which the snapshot has added, or which it has from its parent."""
    path = snapshot.manifest_list
    if any(note.snapshot < 0 for note in notes):
        return  # who has made which manifest is not said
    own = [note for note in notes if note.snapshot == snapshot.snapshot_id]
    # Delete files too: some writers count them as data files.
    added = sum(note.added_files or 0 for note in own)
    claimed = totals["added-data-files"]
    if claimed > added:
        raise _cut(path, f"the snapshot added {claimed:,} data files, of which {added:,} are listed")
    parent = metadata.snapshot_by_id(snapshot.parent_snapshot_id or -1)
    if parent is None or not parent.manifest_list:
        return
    try:
        before = read_manifest_list(read(parent.manifest_list), parent.manifest_list)
    except FileError:
        return  # the parent may have been expired in part: nothing confirms the totals
    known = {note.path for note in notes}
    for kind in (_DATA, _DELETES):
        gone = sum(n.live_files or 0 for n in before if n.content == kind and n.path not in known)
        # Files of a manifest that was replaced are in the new ones, if only as deleted.
        moved = sum((n.existing_files or 0) + (n.deleted_files or 0) for n in own if n.content == kind)
        if gone > moved:
            lost = f"{gone - moved:,} {'delete' if kind else 'data'} files of the snapshot's parent"
            raise _cut(path, f"{lost} are neither listed nor deleted")


def _cut(path: str, reason: str) -> CorruptFileError:
    return CorruptFileError(f"the manifest list is cut short: {reason}", path=path, hint=HINT)
