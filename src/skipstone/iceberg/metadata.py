"""Table metadata: read from a file within bounds, and checked wherever it came from."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

from pyiceberg.table.metadata import (
    TableMetadata,
    TableMetadataCommonFields,
    TableMetadataUtil,
    TableMetadataWrapper,
)
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.statistics import BlobMetadata, StatisticsFile
from pyiceberg.table.update import SetStatisticsUpdate

from skipstone.errors import CorruptFileError
from skipstone.iceberg.columns.schema import placed
from skipstone.iceberg.manifests.codecs import gunzip, most_unpacked, unzstd

T = TypeVar("T")

_GZIP_MAGIC, _ZSTD_MAGIC = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_INT, _LONG = 1 << 31, 1 << 63


class EmbeddedSnapshot(Snapshot):  # type: ignore[misc]
    """A snapshot of format version 1 that names its manifests itself, without a list."""

    manifest_paths: tuple[str, ...]


def read_metadata(data: bytes) -> TableMetadata:
    """The metadata in a file, plain or compressed; what is wrong with it is an error of any kind."""
    most = most_unpacked(len(data))
    if data.startswith(_GZIP_MAGIC):
        data = gunzip(data, most)
    elif data.startswith(_ZSTD_MAGIC):
        data = unzstd(data, most)
    text = data.decode()
    if '"manifests"' not in text:
        return tolerant(lambda: TableMetadataUtil.parse_raw(text))
    told = json.loads(text)
    embedded = _embedded(told) if told.get("format-version") == 1 else {}
    metadata = tolerant(lambda: TableMetadataUtil.parse_raw(json.dumps(told)))
    for number, snapshot in embedded.items():
        metadata.snapshots[number] = snapshot
    return metadata


def _embedded(told: dict[str, Any]) -> dict[int, EmbeddedSnapshot]:
    """The snapshots without a manifest list, by place; they get the empty one that pyiceberg asks for."""
    found = {}
    for number, snapshot in enumerate(told.get("snapshots") or ()):
        if "manifests" in snapshot and not snapshot.get("manifest-list"):
            snapshot["manifest-list"] = ""
            found[number] = EmbeddedSnapshot(**snapshot, manifest_paths=snapshot["manifests"])
    return found


# -- statistics of unknown kinds -----------------------------------------------------------------


def tolerant(load: Callable[[], T]) -> T:
    """What pyiceberg loads, even if the table has statistics of kinds that pyiceberg doesn't know.

    They say nothing about rows, and commits keep them as they are.
    """
    try:
        return load()
    except Exception as error:
        if not _is_unknown_blob(error):
            raise
    _accept_any_blob()
    return load()


def _is_unknown_blob(error: Exception) -> bool:
    told = getattr(error, "errors", None) or getattr(error.__cause__, "errors", None)
    return callable(told) and any({"blob-metadata", "type"} <= {*fault.get("loc", ())} for fault in told())


def _accept_any_blob() -> None:
    """Let pyiceberg's models take any type of blob, as the format does: pyiceberg 0.12 lists two."""
    BlobMetadata.model_fields["type"].annotation = str
    # Each is compiled with what it holds.
    from pyiceberg.catalog.rest import CommitTableRequest, CommitTableResponse, TableResponse

    models = (BlobMetadata, StatisticsFile, SetStatisticsUpdate, TableMetadataCommonFields)
    versions = TableMetadataCommonFields.__subclasses__()
    answers = (TableMetadataWrapper, CommitTableRequest, CommitTableResponse, TableResponse)
    for model in (*models, *versions, *answers):
        model.model_rebuild(force=True)


# -- checks --------------------------------------------------------------------------------------


def check_metadata(metadata: TableMetadata, path: str) -> None:
    """Refuse metadata that pyiceberg lets pass, and that can't be true."""
    for limit, numbers in ((_INT, _ints(metadata)), (_LONG, _longs(metadata))):
        for name, found in numbers.items():
            outside = [number for number in found if number is not None and not -limit <= number < limit]
            if outside:
                raise _untrue(f"{name} {outside[0]} has more than {limit.bit_length()} bits", path)
    schemas = {schema.schema_id: schema for schema in metadata.schemas}
    if metadata.current_schema_id not in schemas:
        raise _untrue(f"current-schema-id is {metadata.current_schema_id}, which no schema has", path)
    for number, schema in schemas.items():
        ids = Counter(one.field.field_id for one in placed(schema.fields))
        twice = [id for id, count in ids.items() if count > 1]
        if twice:
            raise _untrue(f"schema {number} has several fields with the id {twice[0]}", path)


def _ints(metadata: TableMetadata) -> dict[str, list[int | None]]:
    parts = [field for spec in metadata.partition_specs for field in spec.fields]
    return {
        "schema-id": [*(one.schema_id for one in (*metadata.schemas, *metadata.snapshots))],
        "field id": [one.field.field_id for schema in metadata.schemas for one in placed(schema.fields)],
        "spec-id": [spec.spec_id for spec in metadata.partition_specs],
        "field-id": [field.field_id for field in parts],
        "source-id": [field.source_id for field in parts],
    }


def _longs(metadata: TableMetadata) -> dict[str, list[int | None]]:
    snapshots, log = metadata.snapshots, metadata.snapshot_log
    named = [ref.snapshot_id for ref in metadata.refs.values()]
    return {
        "snapshot-id": [*(one.snapshot_id for one in (*snapshots, *log)), *named],
        "parent-snapshot-id": [one.parent_snapshot_id for one in snapshots],
        "current-snapshot-id": [metadata.current_snapshot_id],
        "sequence-number": [one.sequence_number for one in snapshots],
        "timestamp-ms": [one.timestamp_ms for one in (*snapshots, *log)],
        "last-updated-ms": [metadata.last_updated_ms],
    }


def _untrue(problem: str, path: str) -> CorruptFileError:
    hint = "the metadata is damaged: take an older metadata file, or roll the table back"
    return CorruptFileError(f"table metadata can't be true: {problem}", path=path, hint=hint)
