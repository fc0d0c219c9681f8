"""Table metadata: bounded parsing, checks, and resolution of snapshots by id, name or time."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from numbers import Integral
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import (
    TableMetadata,
    TableMetadataCommonFields,
    TableMetadataUtil,
    TableMetadataWrapper,
)
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.statistics import BlobMetadata, StatisticsFile
from pyiceberg.table.update import SetStatisticsUpdate

from skipstone.errors import CorruptFileError, UsageError
from skipstone.iceberg.manifests.avro import gunzip, most_unpacked, unzstd
from skipstone.iceberg.schema import walk_fields
from skipstone.report import Reported

T = TypeVar("T")

_GZIP_MAGIC, _ZSTD_MAGIC = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_INT, _LONG = 1 << 31, 1 << 63


class EmbeddedSnapshot(Snapshot):
    """A snapshot of format version 1 that names its manifests without a manifest list."""

    manifest_paths: tuple[str, ...]


def integer_property(
    properties: Mapping[str, str], name: str, default: int, *, table: str | None = None, least: int = 0
) -> int:
    """Return an integer property of a table, by default ``default``."""
    value = properties.get(name)
    if value is None:
        return default
    try:
        number = int(value)
    except ValueError:
        number = least - 1
    if not least <= number < _LONG:
        problem = f"table property {name} must be an integer of at least {least}, got {value!r}"
        raise UsageError(problem, path=table, hint="correct the property, or remove it")
    return number


def read_metadata(data: bytes) -> TableMetadata:
    """Parse a metadata file, plain or compressed; raises exceptions of any type."""
    most = most_unpacked(len(data))
    if data.startswith(_GZIP_MAGIC):
        data = gunzip(data, most)
    elif data.startswith(_ZSTD_MAGIC):
        data = unzstd(data, most)
    text = data.decode()
    if '"manifests"' not in text:
        return tolerant(lambda: TableMetadataUtil.parse_raw(text))
    document = json.loads(text)
    embedded = _embedded(document) if document.get("format-version") == 1 else {}
    metadata = tolerant(lambda: TableMetadataUtil.parse_raw(json.dumps(document)))
    for number, snapshot in embedded.items():
        metadata.snapshots[number] = snapshot
    return metadata


def _embedded(document: dict[str, Any]) -> dict[int, EmbeddedSnapshot]:
    """Snapshots without a manifest list, by position; gives them the empty one that pyiceberg requires."""
    snapshots = {}
    for number, snapshot in enumerate(document.get("snapshots") or ()):
        if "manifests" in snapshot and not snapshot.get("manifest-list"):
            snapshot["manifest-list"] = ""
            snapshots[number] = EmbeddedSnapshot(**snapshot, manifest_paths=snapshot["manifests"])
    return snapshots


# -- statistics of unknown kinds -----------------------------------------------------------------


def tolerant(load: Callable[[], T]) -> T:
    """Load with pyiceberg, even if the table has statistics blobs of types that pyiceberg does not know.

    They do not affect rows, and commits preserve them.
    """
    try:
        return load()
    except Exception as error:
        if not _is_unknown_blob(error):
            raise
    _accept_any_blob()
    return load()


def _is_unknown_blob(error: Exception) -> bool:
    errors = getattr(error, "errors", None) or getattr(error.__cause__, "errors", None)
    return callable(errors) and any(
        {"blob-metadata", "type"} <= {*fault.get("loc", ())} for fault in errors()
    )


def _accept_any_blob() -> None:
    """Make pyiceberg's models accept any blob type, as the format does: pyiceberg 0.12 allows two."""
    BlobMetadata.model_fields["type"].annotation = str
    # Models are compiled together with their fields, so all that contain it are rebuilt.
    from pyiceberg.catalog.rest import TableResponse
    from pyiceberg.table import CommitTableRequest, CommitTableResponse

    models: tuple[type[BaseModel], ...] = (
        BlobMetadata,
        StatisticsFile,
        SetStatisticsUpdate,
        TableMetadataCommonFields,
    )
    versions = TableMetadataCommonFields.__subclasses__()
    answers: tuple[type[BaseModel], ...] = (
        TableMetadataWrapper,
        CommitTableRequest,
        CommitTableResponse,
        TableResponse,
    )
    for model in (*models, *versions, *answers):
        model.model_rebuild(force=True)


# -- checks --------------------------------------------------------------------------------------


def check_metadata(metadata: TableMetadata, path: str) -> None:
    """Refuse invalid metadata that pyiceberg accepts."""
    for limit, numbers in ((_INT, _ints(metadata)), (_LONG, _longs(metadata))):
        for name, values in numbers.items():
            outside = [number for number in values if number is not None and not -limit <= number < limit]
            if outside:
                raise _invalid(f"{name} {outside[0]} has more than {limit.bit_length()} bits", path)
    schemas = {schema.schema_id: schema for schema in metadata.schemas}
    if metadata.current_schema_id not in schemas:
        raise _invalid(f"no schema has the current-schema-id {metadata.current_schema_id}", path)
    for number, schema in schemas.items():
        ids = Counter(one.field.field_id for one in walk_fields(schema.fields))
        duplicates = [id for id, count in ids.items() if count > 1]
        if duplicates:
            raise _invalid(f"schema {number} has several fields with id {duplicates[0]}", path)


def _ints(metadata: TableMetadata) -> dict[str, list[int | None]]:
    parts = [field for spec in metadata.partition_specs for field in spec.fields]
    return {
        "schema-id": [
            *(schema.schema_id for schema in metadata.schemas),
            *(snapshot.schema_id for snapshot in metadata.snapshots),
        ],
        "field id": [one.field.field_id for schema in metadata.schemas for one in walk_fields(schema.fields)],
        "spec-id": [spec.spec_id for spec in metadata.partition_specs],
        "field-id": [field.field_id for field in parts],
        "source-id": [field.source_id for field in parts],
    }


def _longs(metadata: TableMetadata) -> dict[str, list[int | None]]:
    snapshots, log = metadata.snapshots, metadata.snapshot_log
    named = [ref.snapshot_id for ref in metadata.refs.values()]
    return {
        "snapshot-id": [*(one.snapshot_id for one in snapshots), *(one.snapshot_id for one in log), *named],
        "parent-snapshot-id": [one.parent_snapshot_id for one in snapshots],
        "current-snapshot-id": [metadata.current_snapshot_id],
        "sequence-number": [one.sequence_number for one in snapshots],
        "timestamp-ms": [*(one.timestamp_ms for one in snapshots), *(one.timestamp_ms for one in log)],
        "last-updated-ms": [metadata.last_updated_ms],
    }


_DAMAGED = "open an older metadata file, or roll the table back"


def _invalid(problem: str, path: str) -> CorruptFileError:
    return CorruptFileError(f"invalid table metadata: {problem}", path=path, hint=_DAMAGED)


_MANY = 5
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MILLIS, _LAST_MILLIS = (
    (end.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1) for end in (datetime.min, datetime.max)
)


@dataclass(frozen=True, slots=True)
class SnapshotInfo(Reported):
    """A snapshot of a table, as [Table.snapshots][skipstone.Table.snapshots] lists it.

    Examples:
        >>> import skipstone as sk
        >>> (snapshot,) = sk.open("db.events", catalog="warehouse").snapshots()
        >>> snapshot.operation, snapshot.refs, snapshot.current
        ('append', ('main',), True)
    """

    view: ClassVar[str] = "skipstone.inspection.views:snapshots_tree"

    id: int
    parent: int | None
    sequence: int
    at: datetime
    """Time of the commit, clamped to the range of ``datetime``."""
    operation: str
    schema_id: int | None
    summary: dict[str, str]
    refs: tuple[str, ...]
    """Branches and tags that refer to it."""
    current: bool
    """Whether it is the table's current snapshot."""


class SnapshotTuple(tuple[SnapshotInfo, ...], Reported):
    """Snapshots that ``str()`` and notebooks show as a table."""

    __slots__ = ()
    view = "skipstone.inspection.views:snapshots_tree"


def list_snapshots(metadata: TableMetadata) -> tuple[SnapshotInfo, ...]:
    """All snapshots in the metadata, oldest first."""
    names: dict[int, list[str]] = {}
    for name, ref in metadata.refs.items():
        names.setdefault(ref.snapshot_id, []).append(name)
    snapshots = [
        SnapshotInfo(
            snapshot.snapshot_id,
            snapshot.parent_snapshot_id,
            snapshot.sequence_number or 0,
            _moment(snapshot.timestamp_ms),
            str(snapshot.summary.operation.value) if snapshot.summary is not None else "",
            snapshot.schema_id,
            dict(snapshot.summary.additional_properties) if snapshot.summary is not None else {},
            tuple(sorted(names.get(snapshot.snapshot_id, ()))),
            snapshot.snapshot_id == metadata.current_snapshot_id,
        )
        for snapshot in metadata.snapshots
    ]
    return SnapshotTuple(sorted(snapshots, key=lambda one: (one.sequence, one.at, one.id)))


@dataclass(frozen=True, slots=True)
class PinnedSnapshot:
    """A snapshot (None for an empty table) and the schema it is read with."""

    snapshot: Snapshot | None
    schema: Schema


@dataclass(frozen=True, slots=True)
class RewriteBase:
    """A reference to a snapshot whose files are rewritten: it is read with the table's current schema."""

    id: int


def resolve(metadata: TableMetadata, reference: Any, *, uri: str) -> PinnedSnapshot:
    """Resolve a snapshot by id, tag, branch or time; None is the current one.

    A snapshot by id, tag or time is read with its own schema, a branch with the table's current one. A string
    that is not a branch or tag is parsed as an id or a time.
    """
    current = next(one for one in metadata.schemas if one.schema_id == metadata.current_schema_id)
    rewritten = isinstance(reference, RewriteBase)
    if isinstance(reference, SnapshotInfo | RewriteBase):
        reference = reference.id
    ref = metadata.refs.get(reference) if isinstance(reference, str) else None
    if reference is None:
        number, name = metadata.current_snapshot_id, "the current snapshot"
    elif ref is not None:
        number, name = ref.snapshot_id, f"the {ref.snapshot_ref_type.value} {reference!r}"
    else:
        number, name = _snapshot_id(metadata, reference), ""
    snapshot = None if number is None else _by_id(metadata, number)
    if snapshot is None:
        if not name:
            raise _unknown(metadata, reference, uri)
        if number is not None:
            # The metadata itself refers to it, so the table's rows are unknown.
            raise CorruptFileError(
                f"{name} is {number}, but the metadata has no such snapshot", path=uri, hint=_DAMAGED
            )
        return PinnedSnapshot(None, current)
    on_branch = ref is not None and ref.snapshot_ref_type is SnapshotRefType.BRANCH
    if reference is None or rewritten or on_branch:
        return PinnedSnapshot(snapshot, current)
    own = (schema for schema in metadata.schemas if schema.schema_id == snapshot.schema_id)
    return PinnedSnapshot(snapshot, next(own, current))


def _snapshot_id(metadata: TableMetadata, reference: Any) -> int | None:
    """The snapshot id that an id or a time means; None if it is neither, or before the first snapshot."""
    if isinstance(reference, str):
        if re.fullmatch(r"-?\d+", reference):
            return int(reference)
        try:
            reference = datetime.fromisoformat(reference)
        except ValueError:
            return None
    if isinstance(reference, bool) or not isinstance(reference, Integral | date):
        return None
    if isinstance(reference, Integral):
        return int(reference)
    if not isinstance(reference, datetime):
        reference = datetime(reference.year, reference.month, reference.day)
    moment = reference if reference.tzinfo is not None else reference.replace(tzinfo=UTC)
    # The last entry of the log that is not later; of two with the same time the later one. In integers, so
    # that a snapshot's own time finds it.
    millis = (moment - _EPOCH) // timedelta(milliseconds=1)
    log = [entry for entry in reversed(metadata.snapshot_log) if entry.timestamp_ms <= millis]
    return max(log, key=lambda entry: entry.timestamp_ms).snapshot_id if log else None


def ancestors(metadata: TableMetadata, snapshot: Snapshot | None) -> Iterator[Snapshot]:
    """A snapshot and its ancestors in the metadata, newest first."""
    by_id = {one.snapshot_id: one for one in metadata.snapshots}
    while snapshot is not None:
        yield snapshot
        snapshot = by_id.get(snapshot.parent_snapshot_id) if snapshot.parent_snapshot_id is not None else None


def _moment(millis: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=min(max(millis, _FIRST_MILLIS), _LAST_MILLIS))


def _by_id(metadata: TableMetadata, number: int | None) -> Snapshot | None:
    return next((one for one in metadata.snapshots if one.snapshot_id == number), None)


def _unknown(metadata: TableMetadata, reference: Any, uri: str) -> UsageError:
    names = sorted(metadata.refs)
    first = min((entry.timestamp_ms for entry in metadata.snapshot_log), default=None)
    ids = [str(one.id) for one in list_snapshots(metadata)][-_MANY:]
    available = "; ".join(
        part
        for part in (
            f"branches and tags are {', '.join(names)}" if names else "",
            f"the last snapshots are {', '.join(ids)}" if ids else "the table has no snapshot",
            f"the first was committed at {_moment(first).isoformat()}" if first is not None else "",
            "snapshots that have expired can't be read" if ids else "",
        )
        if part
    )
    return UsageError(
        f"unknown snapshot {reference!r}",
        path=uri,
        hint=f"use an id, a branch, a tag, or a time not before the first snapshot: {available}",
    )
