"""Manifest lists, checked for duplicates and truncation.

The length of a manifest list is recorded nowhere, so one that was truncated between two Avro blocks looks
complete. A snapshot's summary has totals, but many writers omit them, and some get them wrong, also for all
later snapshots. So totals only raise a suspicion, and the lists themselves confirm it.
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
    """The range of one partition field in a manifest; bounds in Iceberg's encoding."""

    contains_null: bool
    contains_nan: bool | None
    lower: bytes | None
    upper: bytes | None


@dataclass(frozen=True, slots=True)
class ManifestInfo:
    """One entry of a manifest list; unknown counts are None."""

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
        """Number of live files; None if the manifest list has no counts."""
        if self.added_files is None or self.existing_files is None:
            return None
        return self.added_files + self.existing_files


# -- reading -----------------------------------------------------------------------------------

# By field id, else by name; some early writers used other names for the counts.
_INFO: Mapping[str, tuple[int | str, ...]] = {
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


def read_manifest_list(data: bytes, path: str) -> list[ManifestInfo]:
    """Parse a manifest list of format version 1, 2 or 3."""
    try:
        container = read_container(data)
        schema = parse_schema(container.schema)
        infos, pos = [], 0
        for count, end in container.blocks:
            for _ in range(count):
                record, pos = read_value(schema, container.body, pos)
                infos.append(_manifest_info(record))
            if pos != end:
                raise AvroError("records of a block don't end where the block ends")
        return infos
    except (AvroError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptFileError(f"manifest list is corrupt: {error}", path=path, hint=HINT) from None


def embedded_manifest(data: bytes, path: str) -> ManifestInfo:
    """A manifest that a snapshot of version 1 names itself; the spec is in its header."""
    try:
        header, _ = read_header(data)
        return ManifestInfo(path, len(data), int(header.get("partition-spec-id", b"0")))
    except (AvroError, ValueError) as error:
        raise CorruptFileError(f"manifest is corrupt: {error}", path=path, hint=HINT) from None


def _manifest_info(record: Mapping[Any, Any]) -> ManifestInfo:
    # Fields that version 1 lacks have their defaults.
    fields = {name: value for name, value in _by_name(record, _INFO).items() if value is not None}
    missing = [name for name in ("path", "length", "spec_id") if name not in fields]
    if missing:
        raise AvroError(f"entry of a manifest has no {missing[0]}")
    if fields.get("content") not in (None, _DATA, _DELETES):
        raise AvroError(f"content of a manifest is {fields['content']}, neither 0 (data) nor 1 (deletes)")
    summaries = []
    for summary in fields.pop("partitions", ()):
        mine = _by_name(summary, _SUMMARY)
        # A missing flag does not rule out NULLs.
        mine["contains_null"] = mine["contains_null"] is not False
        summaries.append(PartitionSummary(**mine))
    return ManifestInfo(**fields, partitions=tuple(summaries))


def _by_name(record: Mapping[Any, Any], names: Mapping[str, tuple[int | str, ...]]) -> dict[str, Any]:
    fields = {}
    for name, keys in names.items():
        values = (record[key] for key in keys if key in record)
        fields[name] = next((value for value in values if value is not None), None)
    return fields


# -- checks ------------------------------------------------------------------------------------

_COUNT = re.compile(r"[0-9]{1,18}")
_COUNTS = ("data-files", "delete-files", "records")


def listed_manifests(
    metadata: TableMetadata, snapshot: Snapshot, read: Callable[[str], bytes]
) -> list[ManifestInfo]:
    """The manifests of a snapshot; raises if the list is truncated or names a manifest twice."""
    path = snapshot.manifest_list
    infos = read_manifest_list(read(path), path)
    names = Counter(info.path for info in infos if info.live_files != 0)
    duplicates = [name for name, count in names.items() if count > 1]
    if duplicates:
        raise CorruptFileError(
            f"manifest list names a manifest twice, which would double its rows: {duplicates[0]}",
            path=path,
            hint=HINT,
        )
    totals = _totals(snapshot)
    if not infos:
        counts = {name: totals[name] for count in _COUNTS for name in (f"total-{count}", f"added-{count}")}
        name, most = max(counts.items(), key=lambda item: item[1])
        if most > 0:
            raise _truncated(path, f"no manifest is listed, but the snapshot's summary has {name} {most:,}")
    if _is_short(infos, snapshot, totals):
        _confirm(metadata, snapshot, infos, totals, read)
    return infos


def _totals(snapshot: Snapshot) -> Counter[str]:
    """Counts in the summary; 0 if missing or not a number."""
    summary = snapshot.summary
    properties = {} if summary is None else summary.additional_properties
    return Counter({name: int(text) for name, text in properties.items() if _COUNT.fullmatch(str(text))})


def _is_short(infos: Sequence[ManifestInfo], snapshot: Snapshot, totals: Counter[str]) -> bool:
    """Whether fewer files are listed than the summary counts, or none after an append."""
    if not infos and "total-data-files" not in totals:
        return snapshot.summary is not None and snapshot.summary.operation is Operation.APPEND
    listed: Counter[int] = Counter()
    for info in infos:
        if info.live_files is None:
            return False
        listed[info.content] += info.live_files
    return totals["total-data-files"] > listed[_DATA] or totals["total-delete-files"] > listed[_DELETES]


def _confirm(
    metadata: TableMetadata,
    snapshot: Snapshot,
    infos: Sequence[ManifestInfo],
    totals: Counter[str],
    read: Callable[[str], bytes],
) -> None:
    """Refuse a list that lacks files which the snapshot added or inherits from its parent."""
    path = snapshot.manifest_list
    if any(info.snapshot < 0 for info in infos):
        return  # the snapshots that wrote the manifests are not recorded
    own = [info for info in infos if info.snapshot == snapshot.snapshot_id]
    # Includes delete files, which some writers count as data files.
    added = sum(info.added_files or 0 for info in own)
    claimed = totals["added-data-files"]
    if claimed > added:
        raise _truncated(path, f"the snapshot added {claimed:,} data files, but {added:,} are listed")
    parent = metadata.snapshot_by_id(snapshot.parent_snapshot_id or -1)
    if parent is None or not parent.manifest_list:
        return
    try:
        before = read_manifest_list(read(parent.manifest_list), parent.manifest_list)
    except FileError:
        return  # the parent can be partly expired: nothing confirms the totals
    listed = {info.path for info in infos}
    for kind in (_DATA, _DELETES):
        gone = sum(n.live_files or 0 for n in before if n.content == kind and n.path not in listed)
        # Files of a replaced manifest are in the new ones, at least as deleted.
        moved = sum((n.existing_files or 0) + (n.deleted_files or 0) for n in own if n.content == kind)
        if gone > moved:
            lost = f"{gone - moved:,} {'delete' if kind else 'data'} files of the snapshot's parent"
            raise _truncated(path, f"{lost} are neither listed nor deleted")


def _truncated(path: str, reason: str) -> CorruptFileError:
    return CorruptFileError(f"manifest list is truncated: {reason}", path=path, hint=HINT)
