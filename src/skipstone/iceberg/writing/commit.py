"""Commits: new data files become one snapshot of a table, others are dropped by it; nothing is done twice.

A commit is tried again when somebody else was faster: an append always, a replacement only if what came
meanwhile doesn't touch what it was planned on. Files of a commit that certainly failed are deleted; if its
outcome is not known, nothing is.
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


_CODEC: Final = "write.avro.compression-codec"
_MANIFEST_BYTES: Final = "commit.manifest.target-size-bytes"


@dataclass(frozen=True, slots=True)
class Changes:
    """What became of a table between two snapshots."""

    data: tuple[DataFile, ...]
    """Data files that are new."""
    deletes: tuple[DataFile, ...]
    """Delete files that are new."""
    lost: frozenset[str]
    """Files that are no longer there."""


def changes(table: Table, base: Snapshot | None, head: Snapshot | None) -> Changes:
    """Two snapshots compared file by file, so that no way from one to the other is missed."""
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
    """Makes one snapshot, as often as it takes."""

    table: Table
    target: Target
    files: tuple[NewFile, ...]
    removed: frozenset[str]
    """Paths of data files to be dropped."""
    properties: Mapping[str, str]
    branch: str
    number: int
    """The snapshot's id: the same for every try, so that one which landed is known."""
    operation: Operation
    _written: list[str] = field(default_factory=list)

    def updates(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Write the manifests of a snapshot on top of the branch; what to ask of the catalog."""
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
        snapshot = Snapshot(
            snapshot_id=self.number,
            parent_snapshot_id=parent,
            manifest_list=listed,
            sequence_number=sequence,
            summary=self._summary(head, dropped),
            schema_id=metadata.current_schema_id,
        )
        moved = SetSnapshotRefUpdate(
            ref_name=self.branch,
            type=SnapshotRefType.BRANCH,
            snapshot_id=self.number,
            parent_snapshot_id=parent,
        )
        expected = AssertRefSnapshotId(snapshot_id=parent, ref=self.branch)
        return (AddSnapshotUpdate(snapshot=snapshot), moved), (
            expected,
            AssertTableUUID(uuid=metadata.table_uuid),
        )

    def clean(self) -> None:
        """Delete the manifests of a try that failed."""
        for path in self._written:
            with suppress(Exception):
                self.table.io.delete(path)
        self._written.clear()

    def _added(self) -> list[ManifestFile]:
        ordered = sorted(self.files, key=lambda file: (file.note.key.sort_key(), file.path))
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
        """Manifests of about the table's size for one."""
        most = int(self.table.metadata.properties.get(_MANIFEST_BYTES, 8 << 20))
        rest = iter(entries)
        made: list[ManifestFile] = []
        while (entry := next(rest, None)) is not None:
            writer = write_manifest(
                format_version=self.table.format_version,
                spec=spec,
                schema=schema,
                output_file=self.table.io.new_output(self._new(f"{uuid.uuid4()}-m{len(made)}.avro")),
                snapshot_id=self.number,
                avro_compression=self._codec,
            )
            with writer:
                writer.add_entry(entry)
                while writer.tell() < most and (entry := next(rest, None)) is not None:
                    writer.add_entry(entry)
            made.append(writer.to_manifest_file())
        return made

    def _carried(self, head: Snapshot | None) -> tuple[list[ManifestFile], list[DataFile]]:
        """The manifests that stay, new ones without the dropped files, and those files."""
        kept: list[ManifestFile] = []
        dropped: list[DataFile] = []
        left = set(self.removed)
        if head is not None:
            # A list that is cut short would have its files left out of the table for good.
            listed_manifests(self.table.metadata, head, self._read)
        for manifest in () if head is None else head.manifests(self.table.io):
            if not (manifest.has_added_files() or manifest.has_existing_files()):
                continue
            found: list[ManifestEntry] = []
            if left and manifest.content == ManifestContent.DATA:
                found = live_entries(self.table, manifest)
            gone = [entry.data_file for entry in found if entry.data_file.file_path in left]
            if not gone:
                kept.append(manifest)
                continue
            dropped += gone
            left -= {file.file_path for file in gone}
            spec = self.table.metadata.specs()[manifest.partition_spec_id]
            schema = _schema_for(self.table.metadata, spec)
            kept += self._manifests((self._carry(entry) for entry in found), spec, schema)
        if left:
            problem = f"a file to be replaced is gone: {min(left)}"
            raise ConflictError(problem, path=self.target.name, hint="run this one again")
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
        partitions = {str(file.note.key) for file in self.files}
        partitions |= {f"{file.spec_id} {file.partition}" for file in dropped}
        counts = {
            "added-data-files": len(self.files),
            "added-records": sum(file.note.rows for file in self.files),
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
    """A new file as pyiceberg's manifests take it."""
    note = file.note
    values = note.key.partition or (None,) * len(spec.fields)
    made = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=file.path,
        file_format=FileFormat.PARQUET,
        partition=Record(*values),
        record_count=note.rows,
        file_size_in_bytes=file.bytes,
        column_sizes=note.column_sizes,
        value_counts=note.values,
        null_value_counts=note.nulls,
        nan_value_counts=note.nans,
        lower_bounds=note.lower,
        upper_bounds=note.upper,
        key_metadata=None,
        split_offsets=list(note.offsets),
        equality_ids=None,
        sort_order_id=None,
    )
    made.spec_id = spec.spec_id
    return made


def _schema_for(metadata: TableMetadata, spec: PartitionSpec) -> Schema:
    """The newest schema that has all columns which a spec was made of."""
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
    """The live entries of a manifest, as pyiceberg has them, with partition values as they are written.

    pyiceberg 0.12 reads doubles of partitions as floats, and would write them back cut short.
    """
    found: list[ManifestEntry] = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
    records = [entry.data_file.partition for entry in found]
    if not any(isinstance(one[at], float) for one in records for at in range(len(one))):
        return found
    note = ManifestInfo(
        manifest.manifest_path,
        manifest.manifest_length,
        manifest.partition_spec_id,
        content=int(manifest.content),
        sequence=manifest.sequence_number or 0,
        snapshot=manifest.added_snapshot_id or -1,
    )
    with table.io.new_input(manifest.manifest_path).open() as stream:
        own = read_manifest(stream.read(), note, table.metadata.specs())
    keys = {path: own.keys[code] for path, code in zip(own.paths.to_pylist(), own.partitions, strict=True)}
    for entry, record in zip(found, records, strict=True):
        for at, value in enumerate(keys[entry.data_file.file_path].partition or ()):
            if isinstance(value, float):
                record[at] = value
    return found


JOB: Final = "skipstone.job"
"""The property of a snapshot that tells which job made it."""
_TRIES: Final = 12


def append(
    table: Table,
    target: Target,
    files: Sequence[NewFile],
    *,
    properties: Mapping[str, str] | None = None,
    branch: str = MAIN_BRANCH,
    done: Callable[[Table], bool] = lambda _: False,
) -> int | None:
    """Add files as one snapshot, and give its id; ``properties`` go into its summary.

    ``done`` is asked of the very table that the snapshot is to follow, whether the rows are in already: then
    the files are deleted, and None is given.
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
    """Add files and drop others, as was planned on the snapshot ``base``, as one snapshot; its id.

    ``conflict`` is asked about what has changed since then, and tells what speaks against the commit: that is
    a ConflictError. So is a file to be dropped that is gone. With ``keep`` the new files stay after a
    ConflictError, for another try.
    """
    paths = frozenset(removed)
    work = Producer(
        table, target, tuple(files), paths, properties or {}, branch, _number(table), Operation.OVERWRITE
    )

    def validate() -> None:
        found = _since(table, base, branch, target.name)
        if found is None:
            return
        lost = found.lost & paths
        problem = f"another commit has dropped {min(lost)}" if lost else conflict(found)
        if problem is not None:
            raise ConflictError(problem, path=target.name, hint="run this one again")

    return _run(work, validate, keep=keep)


def summaries(table: Table, *, branch: str = MAIN_BRANCH) -> list[tuple[int, Mapping[str, str]]]:
    """The ids of a branch's snapshots and what their summaries say, newest first."""
    found = ancestors(table.metadata, table.metadata.snapshot_by_name(branch))
    return [
        (one.snapshot_id, one.summary.additional_properties if one.summary is not None else {})
        for one in found
    ]


# -- tries -------------------------------------------------------------------------------------


def _run(
    work: Producer,
    validate: Callable[[], None],
    done: Callable[[Table], bool] = lambda _: False,
    *,
    keep: bool = False,
) -> int | None:
    """Try until it is in; what certainly is not leaves nothing behind."""
    try:
        check_pyiceberg()
        check_version(work.table, work.target.name)
        _check_branch(work)
        if not work.files and not work.removed:
            return None
        if _tried(work, validate, done):
            return work.number
    except _UnknownOutcomeError as error:
        hint = f"look for snapshot {work.number} before you try again; no file was deleted"
        problem = f"the outcome of the commit is unknown: {error}"
        raise WriteError(problem, path=work.target.name, hint=hint) from error.__cause__
    except BaseException as error:
        work.clean()
        if not (keep and isinstance(error, ConflictError)):
            _discard(work)
        raise
    _discard(work)
    return None


def _tried(work: Producer, validate: Callable[[], None], done: Callable[[Table], bool]) -> bool:
    """Whether the snapshot is in; not if it was done before."""
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
    problem = f"other commits were always faster: {problem}"
    raise ConflictError(problem, path=work.target.name, hint="try again later")


def _try(work: Producer) -> str:
    """Try once: "" if it is in, or what another commit that was faster has made the catalog say."""
    updates, requirements = work.updates()
    try:
        work.table._do_commit(updates, requirements)
    except BaseException as error:
        # It may be in, even if it was refused: the answer to a first request may have been lost on the way.
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
        problem = "another table has taken its name"
        raise ConflictError(problem, path=work.target.name, hint="open the table again") from error


def _discard(work: Producer) -> None:
    work.clean()
    # What can't be deleted stays invisible.
    with suppress(SkipstoneError):
        work.target.delete(work.files)


class _UnknownOutcomeError(Exception):
    """A commit that may be in or not."""


def _number(table: Table) -> int:
    return int(table.metadata.new_snapshot_id())


# -- checks ------------------------------------------------------------------------------------


def _since(table: Table, base: int | None, branch: str, name: str) -> Changes | None:
    """What has changed on a branch since a snapshot; None if nothing has."""
    head = table.metadata.snapshot_by_name(branch)
    if (None if head is None else head.snapshot_id) == base:
        return None
    before = None if base is None else table.metadata.snapshot_by_id(base)
    if base is not None and before is None:
        problem = f"snapshot {base}, which this was planned on, has expired"
        raise ConflictError(problem, path=name, hint="run this one again")
    return changes(table, before, head)


def _check_branch(work: Producer) -> None:
    ref = work.table.metadata.refs.get(work.branch)
    if ref is not None and ref.snapshot_ref_type != SnapshotRefType.BRANCH:
        raise UsageError(f"{work.branch} is a tag", path=work.target.name, hint="name a branch")
    if ref is None and work.branch != MAIN_BRANCH:
        hint = "make it first, as with pyiceberg's manage_snapshots().create_branch"
        raise UsageError(f"unknown branch {work.branch}", path=work.target.name, hint=hint)


def _check_spec(work: Producer) -> None:
    """Refuse a spec that is gone, or whose number another one has now."""
    spec = work.target.spec
    if work.files and work.table.metadata.specs().get(spec.spec_id) != spec:
        problem = f"partition spec {spec.spec_id} was removed by another commit"
        raise ConflictError(problem, path=work.target.name, hint="run this one again")


@cache
def check_pyiceberg() -> None:
    """Refuse to write with a pyiceberg that differs from the one that commits were made for."""
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
    odd = [names for made, names in wanted if made is None or _names(made) != names]
    if odd:
        from pyiceberg import __version__

        raise UsageError(
            f"pyiceberg {__version__} commits in another way: nothing takes {', '.join(odd[0])}",
            hint="install the version that skipstone[iceberg] asks for; tables can be read with this one",
        )


def _names(made: Any) -> tuple[str, ...]:
    return tuple(inspect.signature(made).parameters)
