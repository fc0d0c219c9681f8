"""Commits: one snapshot that adds data files and delete files, and drops others.

A commit that loses a race is retried: an append always, a replacement only if the other commits don't
conflict with its plan. New files are deleted if the commit certainly failed; if the outcome is unknown, they
stay.
"""

from __future__ import annotations

import inspect
import random
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, ValidationError
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
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
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

from skipstone.errors import ConflictError, MissingFileError, SkipstoneError, UsageError, WriteError, scrub
from skipstone.iceberg.manifests.lists import ManifestInfo, listed_manifests
from skipstone.iceberg.manifests.reading import read_manifest
from skipstone.iceberg.metadata import ancestors, tolerant
from skipstone.iceberg.writing.outcome import CommitState, delete_metadata, keep_interrupts, settle
from skipstone.iceberg.writing.target import NewFile, Target, check_version, metadata_files_written

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
MANIFEST_BYTES: Final = "commit.manifest.target-size-bytes"


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


# -- one snapshot ------------------------------------------------------------------------------


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
        most = int(self.table.metadata.properties.get(MANIFEST_BYTES, 8 << 20))
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
            raise ConflictError(problem, path=self.target.name, hint=_RUN_AGAIN)
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


_OWN: Final = frozenset(
    {"operation", "changed-partition-count", "added-files-size", "removed-files-size"}.union(
        *((*kind.files, kind.rows) for kinds in _COUNTED.values() for kind in kinds)
    )
)
"""Names in summaries that every commit sets itself."""


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
        if name in _OWN or name.startswith("total-"):
            raise UsageError(f"property {name} is set by the commit itself", hint="choose another name")
    return dict(properties)


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


def _manifests_of(snapshot: Snapshot | None, io: Any) -> Iterator[ManifestFile]:
    yield from () if snapshot is None else snapshot.manifests(io)


def _live(table: Table, manifests: Iterable[ManifestFile]) -> dict[str, DataFile]:
    return {
        entry.data_file.file_path: entry.data_file
        for manifest in manifests
        for entry in live_entries(table, manifest)
    }


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


JOB: Final = "skipstone.job"
"""The snapshot property with the name of the job that wrote it."""
_TRIES: Final = 12
_RUN_AGAIN: Final = "run the write again"


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
            raise ConflictError(problem, path=target.name, hint=_RUN_AGAIN)

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
    properties = table.metadata.properties
    tries = int(properties.get("commit.retry.num-retries", _TRIES))
    least = int(properties.get("commit.retry.min-wait-ms", 100)) / 1000
    most = int(properties.get("commit.retry.max-wait-ms", 5_000)) / 1000
    yield 1
    for retry in range(tries):
        time.sleep(min(least * 2**retry, most) * random.uniform(0.5, 1.5))  # noqa: S311
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
        raise ConflictError(problem, path=name, hint=_RUN_AGAIN)
    check_ancestor(table, base, head, name)
    return changes(table, before, head)


def check_ancestor(
    table: Table, base: int | None, head: Snapshot | None, name: str, hint: str = _RUN_AGAIN
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
        raise ConflictError(problem, path=work.target.name, hint=_RUN_AGAIN)


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
