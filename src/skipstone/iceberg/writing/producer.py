"""Producer: writes the manifests of one snapshot, and the update of a table's metadata that adds it."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
    ManifestWriterV1,
    ManifestWriterV2,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
    write_manifest_list,
)
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary, update_snapshot_summaries
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertCurrentSchemaId,
    AssertLastAssignedPartitionId,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetSnapshotRefUpdate,
)
from pyiceberg.typedef import Record, TableVersion
from pyiceberg.types import StructType

from skipstone.errors import ConflictError, WriteError, scrub
from skipstone.iceberg.manifests.lists import ManifestInfo, listed_manifests
from skipstone.iceberg.manifests.reading import read_manifest
from skipstone.iceberg.metadata import integer_property
from skipstone.iceberg.writing.outcome import CommitState, delete_metadata
from skipstone.iceberg.writing.target import NewFile, Target

if TYPE_CHECKING:
    from types import TracebackType

    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
# mypy takes the aliases of pyiceberg's models for their arguments.
_SNAPSHOT: Callable[..., Snapshot] = Snapshot
_SET_REF: Callable[..., SetSnapshotRefUpdate] = SetSnapshotRefUpdate
_ASSERT_REF: Callable[..., AssertRefSnapshotId] = AssertRefSnapshotId
_ASSERT_SCHEMA: Callable[..., AssertCurrentSchemaId] = AssertCurrentSchemaId
_ASSERT_PARTITIONS: Callable[..., AssertLastAssignedPartitionId] = AssertLastAssignedPartitionId


_CODEC: Final = "write.avro.compression-codec"
RUN_AGAIN: Final = "run the write again"
MANIFEST_BYTES: Final = "commit.manifest.target-size-bytes"


@dataclass(slots=True)
class Producer:
    """Produces a snapshot, again for every attempt."""

    table: Table
    target: Target
    files: tuple[NewFile, ...]
    """New data files and delete files, of any spec."""
    removed: frozenset[str]
    """Paths of data files to drop."""
    properties: Mapping[str, str]
    branch: str
    operation: Operation
    deletes: Callable[[], frozenset[str]] = frozenset
    """Returns the paths of delete files to drop; called for every attempt."""
    sequence: int | None = None
    """Data sequence number of the new data files; None for that of the snapshot."""
    schema: int | None = None
    """Id of the schema that must be the table's; None for any."""
    allow_empty: bool = False
    """Whether a snapshot without changes is committed, for its summary."""
    number: int = field(init=False)
    """Snapshot id: the same for every attempt, so that one that landed is recognized."""
    specs: Mapping[int, PartitionSpec] = field(default_factory=dict)
    """Specs under which files were written, beside that of the target."""
    state: CommitState = field(default_factory=CommitState)
    written: list[str] = field(default_factory=list)
    """Metadata files of the current attempt."""
    sequence_sent: int = -1
    """Sequence number of the snapshot that was made last."""

    def __post_init__(self) -> None:
        self.number = int(self.table.metadata.new_snapshot_id())
        self.specs = {**self.specs, self.target.spec.spec_id: self.target.spec}

    def updates(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Write the manifests of a snapshot on top of the branch; return updates and requirements."""
        table, metadata = self.table, self.table.metadata
        head = metadata.snapshot_by_name(self.branch)
        kept, dropped = self._carried(head)
        manifests = [*self._added(), *kept]
        parent = None if head is None else head.snapshot_id
        self.sequence_sent = sequence = metadata.next_sequence_number()
        listed = self._new(f"snap-{self.number}-0-{uuid.uuid4()}.avro")
        with write_manifest_list(
            format_version=table.format_version,
            output_file=table.io.new_output(listed),
            snapshot_id=self.number,
            parent_snapshot_id=parent,
            sequence_number=sequence,
            avro_compression=self._codec,
        ) as writer:
            writer.add_manifests(manifests)
        snapshot = _SNAPSHOT(
            snapshot_id=self.number,
            parent_snapshot_id=parent,
            manifest_list=listed,
            sequence_number=sequence,
            summary=self._summary(head, dropped),
            schema_id=metadata.current_schema_id,
        )
        schema = () if self.schema is None else (_ASSERT_SCHEMA(current_schema_id=self.schema),)
        moved = _SET_REF(ref_name=self.branch, type=SnapshotRefType.BRANCH, snapshot_id=self.number)
        expected = _ASSERT_REF(snapshot_id=parent, ref=self.branch)
        return (AddSnapshotUpdate(snapshot=snapshot), moved), (
            expected,
            AssertTableUUID(uuid=metadata.table_uuid),
            # New specs are compared with those of the files before the next attempt.
            _ASSERT_PARTITIONS(last_assigned_partition_id=metadata.last_partition_id),
            *schema,
        )

    def clean(self) -> None:
        """Delete the metadata files of a failed attempt."""
        self.delete(self.written)

    def delete(self, paths: Iterable[str]) -> None:
        """Delete metadata files that were written."""
        gone = dict.fromkeys(paths)
        delete_metadata(self.table, gone)
        self.written = [path for path in self.written if path not in gone]

    def reset(self) -> None:
        """Prepare another attempt after one that lost a race."""
        self.clean()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to commit."""
        return not self.files and not self.removed and not self.allow_empty

    def _added(self) -> list[ManifestFile]:
        ordered = sorted(self.files, key=lambda file: (file.metrics.key.sort_key(), file.path))
        groups: dict[tuple[ManifestContent, int], list[NewFile]] = {}
        for file in ordered:
            content = ManifestContent.DELETES if file.content else ManifestContent.DATA
            groups.setdefault((content, file.metrics.key.spec_id), []).append(file)
        manifests: list[ManifestFile] = []
        for (content, spec_id), files in groups.items():
            spec = self.table.metadata.specs()[spec_id]
            entries = (
                ManifestEntry.from_args(
                    status=ManifestEntryStatus.ADDED,
                    snapshot_id=self.number,
                    sequence_number=self.sequence if content == ManifestContent.DATA else None,
                    file_sequence_number=None,
                    data_file=data_file(file, spec),
                )
                for file in files
            )
            manifests += self._manifests(entries, spec, content)
        return manifests

    def _manifests(
        self, entries: Iterable[ManifestEntry], spec: PartitionSpec, content: ManifestContent
    ) -> list[ManifestFile]:
        """Write manifests of about the table's target size."""
        properties, name = self.table.metadata.properties, self.target.name
        most = integer_property(properties, MANIFEST_BYTES, 8 << 20, table=name, least=1)
        rest = iter(entries)
        manifests: list[ManifestFile] = []
        while (entry := next(rest, None)) is not None:
            output = self.table.io.new_output(self._new(f"{uuid.uuid4()}-m{len(manifests)}.avro"))
            schema = schema_for(self.table.metadata, spec)
            args = (spec, schema, output, self.number, self._codec)
            version = self.table.format_version
            writer = _WriterV2(content, *args) if version > 1 else _WriterV1(*args)
            with writer:
                writer.add_entry(entry)
                while writer.tell() < most and (entry := next(rest, None)) is not None:
                    writer.add_entry(entry)
            manifests.append(writer.to_manifest_file())
        return manifests

    def _carried(self, head: Snapshot | None) -> tuple[list[ManifestFile], list[DataFile]]:
        """Manifests that stay or were rewritten without the dropped files, and those files."""
        kept: list[ManifestFile] = []
        dropped: list[DataFile] = []
        left = {ManifestContent.DATA: set(self.removed), ManifestContent.DELETES: set(self.deletes())}
        if head is not None:
            # Checked, since files missing in a truncated list would be lost for good.
            listed_manifests(self.table.metadata, head, self._read)
        for manifest in () if head is None else head.manifests(self.table.io):
            if not (manifest.has_added_files() or manifest.has_existing_files()):
                continue
            wanted = left[manifest.content]
            entries = live_entries(self.table, manifest) if wanted else []
            gone = {entry.data_file.file_path for entry in entries} & wanted
            if not gone:
                kept.append(manifest)
                continue
            dropped += [entry.data_file for entry in entries if entry.data_file.file_path in gone]
            wanted -= gone
            spec = self.table.metadata.specs()[manifest.partition_spec_id]
            kept += self._manifests((self._carry(entry, gone) for entry in entries), spec, manifest.content)
        lost = left[ManifestContent.DATA] or left[ManifestContent.DELETES]
        if lost:
            problem = f"file to replace no longer exists: {min(lost)}"
            raise ConflictError(problem, path=self.target.name, hint=RUN_AGAIN)
        return kept, dropped

    def _read(self, path: str) -> bytes:
        with self.table.io.new_input(path).open() as stream:
            return bytes(stream.read())

    def _carry(self, entry: ManifestEntry, dropped: Collection[str]) -> ManifestEntry:
        gone = entry.data_file.file_path in dropped
        return ManifestEntry.from_args(
            status=ManifestEntryStatus.DELETED if gone else ManifestEntryStatus.EXISTING,
            snapshot_id=self.number if gone else entry.snapshot_id,
            sequence_number=entry.sequence_number,
            file_sequence_number=entry.file_sequence_number,
            data_file=entry.data_file,
        )

    def _summary(self, head: Snapshot | None, dropped: Sequence[DataFile]) -> Summary:
        specs = self.table.metadata.specs()
        changed = [data_file(file, specs[file.metrics.key.spec_id]) for file in self.files]
        partitions = {f"{file.spec_id} {file.partition}" for file in (*changed, *dropped)}
        counts = Counter({"changed-partition-count": len(partitions)})
        for file in self.files:
            kind, _ = _COUNTED[DataFileContent(file.content)]
            counts.update(dict.fromkeys(kind.files, 1))
            counts.update({kind.rows: file.metrics.rows, "added-files-size": file.bytes})
        for old in dropped:
            _, kind = _COUNTED[old.content]
            counts.update(dict.fromkeys(kind.files, 1))
            counts.update({kind.rows: old.record_count, "removed-files-size": old.file_size_in_bytes})
        counted = {name: str(count) for name, count in counts.items() if count}
        # pyiceberg can't compute the totals of a replacement.
        totals = Operation.OVERWRITE if self.operation == Operation.REPLACE else self.operation
        summary = Summary(operation=totals, **counted, **self.properties)
        whole = update_snapshot_summaries(summary, head.summary if head is not None else None)
        return Summary(operation=self.operation, **whole.additional_properties)

    @property
    def _codec(self) -> Any:
        return self.table.metadata.properties.get(_CODEC, "gzip")

    def _new(self, name: str) -> str:
        path: str = self.table.location_provider().new_metadata_location(name)
        self.written.append(path)
        return path


class _ManifestWriter(ManifestWriter):
    """Writes NULL partitions of required columns, such as of void fields, which pyiceberg 0.12 can't."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            super().__exit__(kind, error, trace)
        else:
            # pyiceberg would raise another error if nothing was written yet.
            self._writer.__exit__(kind, error, trace)

    def _with_partition(self, format_version: TableVersion) -> Schema:
        fields = self._spec.partition_type(self._schema).fields
        optional = StructType(*(one.model_copy(update={"required": False}) for one in fields))
        file = data_file_with_partition(format_version=format_version, partition_type=optional)
        return manifest_entry_schema_with_data_file(format_version=format_version, data_file=file)


class _WriterV1(_ManifestWriter, ManifestWriterV1):
    pass


class _WriterV2(_ManifestWriter, ManifestWriterV2):
    """Writes delete files too, which pyiceberg 0.12 can't."""

    def __init__(self, content: ManifestContent, *args: Any) -> None:
        super().__init__(*args)
        self._content = content

    def content(self) -> ManifestContent:
        return self._content

    @property
    def _meta(self) -> dict[str, str]:
        kind = "deletes" if self._content == ManifestContent.DELETES else "data"
        return {**super()._meta, "content": kind}


@dataclass(frozen=True, slots=True)
class _SummaryNames:
    """Properties of a snapshot's summary that count files of one kind, and their rows."""

    files: tuple[str, ...]
    rows: str


def _summary_names(kind: str) -> tuple[_SummaryNames, _SummaryNames]:
    files = "{}-delete-files", f"{{}}-{kind}-delete-files"
    added, removed = (tuple(name.format(verb) for name in files) for verb in ("added", "removed"))
    return _SummaryNames(added, f"added-{kind}-deletes"), _SummaryNames(removed, f"removed-{kind}-deletes")


_COUNTED: Final = {
    DataFileContent.DATA: (
        _SummaryNames(("added-data-files",), "added-records"),
        _SummaryNames(("deleted-data-files",), "deleted-records"),
    ),
    DataFileContent.POSITION_DELETES: _summary_names("position"),
    DataFileContent.EQUALITY_DELETES: _summary_names("equality"),
}


OWN_PROPERTIES: Final = frozenset(
    {"operation", "changed-partition-count", "added-files-size", "removed-files-size"}.union(
        *((*kind.files, kind.rows) for kinds in _COUNTED.values() for kind in kinds)
    )
)
"""Names in summaries that every commit sets itself."""


def data_file(file: NewFile, spec: PartitionSpec) -> DataFile:
    """Convert to pyiceberg's data file."""
    metrics = file.metrics
    values = metrics.key.partition or (None,) * len(spec.fields)
    result = DataFile.from_args(
        content=DataFileContent(file.content),
        file_path=file.path,
        file_format=FileFormat.PARQUET,
        partition=Record(*values),
        record_count=metrics.rows,
        file_size_in_bytes=file.bytes,
        column_sizes=metrics.column_sizes,
        value_counts=metrics.values,
        null_value_counts=metrics.nulls,
        nan_value_counts=metrics.nans,
        lower_bounds=metrics.lower,
        upper_bounds=metrics.upper,
        key_metadata=None,
        split_offsets=list(metrics.offsets),
        equality_ids=None,
        sort_order_id=file.sort_order,
    )
    result.spec_id = spec.spec_id
    return result


def schema_for(metadata: TableMetadata, spec: PartitionSpec) -> Schema:
    """The newest schema with all source columns of a spec."""
    wanted = {one.source_id for one in spec.fields}
    newest = sorted(metadata.schemas, key=lambda schema: schema.schema_id, reverse=True)
    for schema in (metadata.schema(), *newest):
        if wanted <= set(schema.field_ids):
            return schema
    return metadata.schema()


def live_entries(table: Table, manifest: ManifestFile) -> list[ManifestEntry]:
    """Live entries of a manifest as pyiceberg reads them, with exact partition values.

    pyiceberg 0.12 reads doubles in partitions as floats, and would write them back with less precision.
    """
    try:
        entries: list[ManifestEntry] = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
    except ValueError as error:
        hint = "rewrite the manifests with the engine that wrote them"
        problem = f"pyiceberg can't read the manifest: {scrub(error)}"
        raise WriteError(problem, path=manifest.manifest_path, hint=hint) from error
    records = [entry.data_file.partition for entry in entries]
    if not any(isinstance(one[at], float) for one in records for at in range(len(one))):
        return entries
    info = ManifestInfo(
        manifest.manifest_path,
        manifest.manifest_length,
        manifest.partition_spec_id,
        content=int(manifest.content),
        sequence=manifest.sequence_number or 0,
        snapshot=manifest.added_snapshot_id or -1,
    )
    with table.io.new_input(manifest.manifest_path).open() as stream:
        own = read_manifest(stream.read(), info, table.metadata.specs())
    keys = {path: own.keys[code] for path, code in zip(own.paths.to_pylist(), own.partitions, strict=True)}
    for entry, record in zip(entries, records, strict=True):
        for at, value in enumerate(keys[entry.data_file.file_path].partition or ()):
            if isinstance(value, float):
                record[at] = value
    return entries
