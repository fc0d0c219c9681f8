"""Manifest lists: a note about each manifest, which says how to read it and whether that is worth while."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from skipstone.errors import CorruptFileError
from skipstone.iceberg.manifests.avro import parse_schema, read_container, read_header, read_value
from skipstone.iceberg.manifests.codecs import AvroError

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
