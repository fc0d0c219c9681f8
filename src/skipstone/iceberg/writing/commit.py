"""Commits: one snapshot that adds data files and drops others.

A commit that loses a race is retried: an append always, a replacement only if the other commits don't
conflict with its plan. New files are deleted if the commit certainly failed; if the outcome is unknown, they
stay.
"""

from __future__ import annotations

import inspect
import random
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary, update_snapshot_summaries
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetSnapshotRefUpdate,
)
from pyiceberg.typedef import Record

from skipstone.errors import ConflictError, SkipstoneError, UsageError, WriteError, scrub
from skipstone.iceberg.manifests.lists import ManifestInfo, listed_manifests
from skipstone.iceberg.manifests.reading import read_manifest
from skipstone.iceberg.metadata import ancestors, tolerant
from skipstone.iceberg.writing.target import NewFile, Target, check_version

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

# mypy takes the aliases of pyiceberg's models for their arguments.
_SNAPSHOT: Callable[..., Snapshot] = Snapshot
_SET_REF: Callable[..., SetSnapshotRefUpdate] = SetSnapshotRefUpdate
_ASSERT_REF: Callable[..., AssertRefSnapshotId] = AssertRefSnapshotId


_CODEC: Final = "write.avro.compression-codec"
_MANIFEST_BYTES: Final = "commit.manifest.target-size-bytes"


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
    removed: frozenset[str]
    """Paths of data files to drop."""
    properties: Mapping[str, str]
    branch: str
    number: int
    """Snapshot id: the same for every attempt, so that one that landed is recognized."""
    operation: Operation
    _written: list[str] = field(default_factory=list)

    def updates(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Write the manifests of a snapshot on top of the branch; return updates and requirements."""
        table, metadata = self.table, self.table.metadata
        head = metadata.snapshot_by_name(self.branch)
        kept, dropped = self._carried(head)
        manifests = [*self._added(), *kept]
        parent = None if head is None else head.snapshot_id
        sequence = metadata.next_sequence_number()
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
        moved = _SET_REF(ref_name=self.branch, type=SnapshotRefType.BRANCH, snapshot_id=self.number)
        expected = _ASSERT_REF(snapshot_id=parent, ref=self.branch)
        return (AddSnapshotUpdate(snapshot=snapshot), moved), (
            expected,
            AssertTableUUID(uuid=metadata.table_uuid),
        )

    def clean(self) -> None:
        """Delete the manifests of a failed attempt."""
        for path in self._written:
            with suppress(Exception):
                self.table.io.delete(path)
        self._written.clear()

    def _added(self) -> list[ManifestFile]:
        ordered = sorted(self.files, key=lambda file: (file.metrics.key.sort_key(), file.path))
        spec = self.target.spec
        entries = (
            ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED,
                snapshot_id=self.number,
                sequence_number=None,
                file_sequence_number=None,
                data_file=data_file(file, spec),
            )
            for file in ordered
        )
        return self._manifests(entries, spec, _schema_for(self.table.metadata, spec))

    def _manifests(
        self, entries: Iterable[ManifestEntry], spec: PartitionSpec, schema: Schema
    ) -> list[ManifestFile]:
        """Write manifests of about the table's target size."""
        most = int(self.table.metadata.properties.get(_MANIFEST_BYTES, 8 << 20))
        rest = iter(entries)
        manifests: list[ManifestFile] = []
        while (entry := next(rest, None)) is not None:
            writer = write_manifest(
                format_version=self.table.format_version,
                spec=spec,
                schema=schema,
                output_file=self.table.io.new_output(self._new(f"{uuid.uuid4()}-m{len(manifests)}.avro")),
                snapshot_id=self.number,
                avro_compression=self._codec,
            )
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
        left = set(self.removed)
        if head is not None:
            # Checked, since files missing in a truncated list would be lost for good.
            listed_manifests(self.table.metadata, head, self._read)
        for manifest in () if head is None else head.manifests(self.table.io):
            if not (manifest.has_added_files() or manifest.has_existing_files()):
                continue
            entries: list[ManifestEntry] = []
            if left and manifest.content == ManifestContent.DATA:
                entries = live_entries(self.table, manifest)
            gone = [entry.data_file for entry in entries if entry.data_file.file_path in left]
            if not gone:
                kept.append(manifest)
                continue
            dropped += gone
            left -= {file.file_path for file in gone}
            spec = self.table.metadata.specs()[manifest.partition_spec_id]
            schema = _schema_for(self.table.metadata, spec)
            kept += self._manifests((self._carry(entry) for entry in entries), spec, schema)
        if left:
            problem = f"file to replace no longer exists: {min(left)}"
            raise ConflictError(problem, path=self.target.name, hint=_RUN_AGAIN)
        return kept, dropped

    def _read(self, path: str) -> bytes:
        with self.table.io.new_input(path).open() as stream:
            return bytes(stream.read())

    def _carry(self, entry: ManifestEntry) -> ManifestEntry:
        gone = entry.data_file.file_path in self.removed
        return ManifestEntry.from_args(
            status=ManifestEntryStatus.DELETED if gone else ManifestEntryStatus.EXISTING,
            snapshot_id=self.number if gone else entry.snapshot_id,
            sequence_number=entry.sequence_number,
            file_sequence_number=entry.file_sequence_number,
            data_file=entry.data_file,
        )

    def _summary(self, head: Snapshot | None, dropped: Sequence[DataFile]) -> Summary:
        partitions = {str(file.metrics.key) for file in self.files}
        partitions |= {f"{file.spec_id} {file.partition}" for file in dropped}
        counts = {
            "added-data-files": len(self.files),
            "added-records": sum(file.metrics.rows for file in self.files),
            "added-files-size": sum(file.bytes for file in self.files),
            "deleted-data-files": len(dropped),
            "deleted-records": sum(file.record_count for file in dropped),
            "removed-files-size": sum(file.file_size_in_bytes for file in dropped),
            "changed-partition-count": len(partitions),
        }
        counted = {name: str(count) for name, count in counts.items() if count}
        summary = Summary(operation=self.operation, **counted, **self.properties)
        return update_snapshot_summaries(summary, head.summary if head is not None else None)

    @property
    def _codec(self) -> Any:
        return self.table.metadata.properties.get(_CODEC, "gzip")

    def _new(self, name: str) -> str:
        path: str = self.table.location_provider().new_metadata_location(name)
        self._written.append(path)
        return path


def data_file(file: NewFile, spec: PartitionSpec) -> DataFile:
    """Convert to pyiceberg's data file."""
    metrics = file.metrics
    values = metrics.key.partition or (None,) * len(spec.fields)
    result = DataFile.from_args(
        content=DataFileContent.DATA,
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
        sort_order_id=None,
    )
    result.spec_id = spec.spec_id
    return result


def _schema_for(metadata: TableMetadata, spec: PartitionSpec) -> Schema:
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
    entries: list[ManifestEntry] = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
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
) -> int | None:
    """Add files as one snapshot and return its id; ``properties`` go into its summary.

    If ``done`` returns True for the table that the snapshot would follow, the rows are already committed: the
    files are deleted, and None is returned.
    """
    work = Producer(
        table, target, tuple(files), frozenset(), properties or {}, branch, _number(table), Operation.APPEND
    )
    return _run(work, lambda: None, done)


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
) -> int | None:
    """Add and drop files, as planned on the snapshot ``base``, as one snapshot and return its id.

    ``conflict`` is called with the changes since then; the problem it returns is raised as ConflictError. So
    is a missing file to drop. With ``keep`` the new files stay after a ConflictError, for another attempt.
    """
    paths = frozenset(removed)
    work = Producer(
        table, target, tuple(files), paths, properties or {}, branch, _number(table), Operation.OVERWRITE
    )

    def validate() -> None:
        since = _since(table, base, branch, target.name)
        if since is None:
            return
        lost = since.lost & paths
        problem = f"another commit has dropped {min(lost)}" if lost else conflict(since)
        if problem is not None:
            raise ConflictError(problem, path=target.name, hint=_RUN_AGAIN)

    return _run(work, validate, keep=keep)


def summaries(table: Table, *, branch: str = MAIN_BRANCH) -> list[tuple[int, Mapping[str, str]]]:
    """Ids and summaries of a branch's snapshots, newest first."""
    return [
        (one.snapshot_id, one.summary.additional_properties if one.summary is not None else {})
        for one in ancestors(table.metadata, table.metadata.snapshot_by_name(branch))
    ]


# -- attempts ----------------------------------------------------------------------------------


def _run(
    work: Producer,
    validate: Callable[[], None],
    done: Callable[[Table], bool] = lambda _: False,
    *,
    keep: bool = False,
) -> int | None:
    """Commit, with retries; a commit that certainly failed leaves nothing behind."""
    try:
        check_pyiceberg()
        check_version(work.table, work.target.name)
        _check_branch(work)
        if not work.files and not work.removed:
            return None
        if _retry(work, validate, done):
            return work.number
    except _UnknownOutcomeError as error:
        hint = f"check whether snapshot {work.number} exists before retrying; no file was deleted"
        problem = f"outcome of the commit is unknown: {error}"
        raise WriteError(problem, path=work.target.name, hint=hint) from error.__cause__
    except BaseException as error:
        work.clean()
        if not (keep and isinstance(error, ConflictError)):
            _discard(work)
        raise
    _discard(work)
    return None


def _retry(work: Producer, validate: Callable[[], None], done: Callable[[Table], bool]) -> bool:
    """Attempt until the snapshot is committed; return False if the rows already were."""
    properties = work.table.metadata.properties
    tries = int(properties.get("commit.retry.num-retries", _TRIES))
    least = int(properties.get("commit.retry.min-wait-ms", 100)) / 1000
    most = int(properties.get("commit.retry.max-wait-ms", 5_000)) / 1000
    problem = ""
    for attempt in range(tries + 1):
        if done(work.table):
            return False
        _check_spec(work)
        validate()
        problem = _try(work)
        if not problem:
            return True
        work.clean()
        if attempt < tries:
            time.sleep(min(least * 2**attempt, most) * random.uniform(0.5, 1.5))  # noqa: S311
            _refresh(work)
    problem = f"commit failed after {tries + 1} attempts because of concurrent commits: {problem}"
    raise ConflictError(problem, path=work.target.name, hint="retry when fewer writers are active")


def _try(work: Producer) -> str:
    """Attempt once; return "" on success, or the catalog's message if another commit was faster."""
    updates, requirements = work.updates()
    try:
        work.table._do_commit(updates, requirements)
    except BaseException as error:
        # It can have landed nevertheless: the response to a first request can be lost.
        try:
            _refresh(work)
            landed = work.table.metadata.snapshot_by_id(work.number) is not None
        except SkipstoneError:
            raise
        except Exception:  # noqa: BLE001
            raise _UnknownOutcomeError(scrub(error)) from error
        if landed:
            return ""
        if isinstance(error, CommitFailedException):
            return scrub(error)
        raise _UnknownOutcomeError(scrub(error)) from error
    return ""


def _refresh(work: Producer) -> None:
    try:
        tolerant(work.table.refresh)
    except ValueError as error:
        problem = "table was replaced by another one of the same name"
        raise ConflictError(problem, path=work.target.name, hint="open the table again") from error


def _discard(work: Producer) -> None:
    work.clean()
    # Files that can't be deleted stay invisible.
    with suppress(SkipstoneError):
        work.target.delete(work.files)


class _UnknownOutcomeError(Exception):
    """The commit may or may not have landed."""


def _number(table: Table) -> int:
    return int(table.metadata.new_snapshot_id())


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
    return changes(table, before, head)


def _check_branch(work: Producer) -> None:
    ref = work.table.metadata.refs.get(work.branch)
    if ref is not None and ref.snapshot_ref_type != SnapshotRefType.BRANCH:
        raise UsageError(f"{work.branch} is a tag", path=work.target.name, hint="use a branch")
    if ref is None and work.branch != MAIN_BRANCH:
        hint = "create it first, for example with pyiceberg's manage_snapshots().create_branch"
        raise UsageError(f"unknown branch {work.branch}", path=work.target.name, hint=hint)


def _check_spec(work: Producer) -> None:
    """Refuse a spec that was removed or replaced."""
    spec = work.target.spec
    if work.files and work.table.metadata.specs().get(spec.spec_id) != spec:
        problem = f"partition spec {spec.spec_id} was removed by another commit"
        raise ConflictError(problem, path=work.target.name, hint=_RUN_AGAIN)


@cache
def check_pyiceberg() -> None:
    """Refuse to write with a pyiceberg whose internal API differs."""
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    manifest = ("format_version", "spec", "schema", "output_file", "snapshot_id", "avro_compression")
    listed = (
        *("format_version", "output_file", "snapshot_id"),
        *("parent_snapshot_id", "sequence_number", "avro_compression"),
    )
    wanted: tuple[tuple[Any, tuple[str, ...]], ...] = (
        (getattr(Table, "_do_commit", None), ("self", "updates", "requirements")),
        (getattr(Catalog, "commit_table", None), ("self", "table", "requirements", "updates")),
        (write_manifest, manifest),
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
