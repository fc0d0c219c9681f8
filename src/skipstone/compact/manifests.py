"""Rewrite manifests: combine small ones, and bring entries of the same partitions together.

Entries are copied as existing ones, with their sequence numbers and snapshot ids, and read back before the
commit. Manifests that a concurrent commit replaces are left to it.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
from pyiceberg.manifest import (
    UNASSIGNED_SEQ,
    DataFile,
    ManifestContent,
    ManifestFile,
    construct_partition_summaries,
)
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.transforms import UnknownTransform
from pyiceberg.typedef import Record

from skipstone.compact.removal import check_current
from skipstone.compact.run import check_writable
from skipstone.core.evidence import Array
from skipstone.core.plain import as_bytes
from skipstone.engine.jobs import check_stop
from skipstone.engine.stopping import stoppable
from skipstone.errors import SkipstoneError, UsageError, WriteError
from skipstone.iceberg.inventory import Inventory
from skipstone.iceberg.manifests.entries import Entries
from skipstone.iceberg.manifests.lists import ManifestInfo
from skipstone.iceberg.manifests.reading import read_manifest
from skipstone.iceberg.manifests.writing import RawManifest, read_raw, write_existing
from skipstone.iceberg.metadata import integer_property
from skipstone.iceberg.writing.commit import check_properties, publish
from skipstone.iceberg.writing.outcome import interrupts_noted
from skipstone.iceberg.writing.producer import MANIFEST_BYTES, Producer, schema_for
from skipstone.iceberg.writing.target import Target
from skipstone.parquet.write.layout import check_file_count, check_target_size
from skipstone.predicate import predicate as to_predicate
from skipstone.report import Reported

if TYPE_CHECKING:
    from skipstone.iceberg.table import TableSnapshot
    from skipstone.scan.table import Table
    from skipstone.typing import PredicateLike, SizeLike

_TARGET: Final = 8 << 20
_SMALL: Final = 0.75
_SPREAD: Final = 1.5
"""A partition's files are spread out if reading each needs so many times the manifests it would if sorted."""


@dataclass(frozen=True, slots=True)
class ManifestsReport(Reported):
    """Manifests that were replaced; with ``dry_run``, that would be.

    Examples:
        >>> import skipstone as sk
        >>> report = sk.open("db.events", catalog="warehouse").rewrite_manifests()
        >>> report.snapshot, report.manifests_before, report.manifests_after
        (None, 1, 1)
    """

    view: ClassVar[str] = "skipstone.compact.views:manifests_tree"

    table: str
    dry_run: bool
    snapshot: int | None
    """Id of the new snapshot; None if nothing was rewritten."""
    manifests_before: int
    manifests_after: int
    """In a dry run, an estimate, as are all figures of new manifests."""
    replaced: int
    created: int
    entries: int
    """Data files and delete files in the replaced manifests."""
    bytes_replaced: int
    bytes_created: int
    unsupported: int = 0
    """Manifests that stay because they are of format version 1."""
    index_problem: str = ""
    """Why the index could not be updated; "" if it was, or if the table has none."""


@dataclass(frozen=True, slots=True)
class ManifestGroup:
    """Manifests to combine: of one kind, spec and Avro schema."""

    content: int
    spec_id: int
    infos: tuple[ManifestInfo, ...]
    expected: int
    """Expected number of new manifests."""

    @property
    def bytes(self) -> int:
        """Bytes of the manifests."""
        return sum(info.length for info in self.infos)

    @property
    def entries(self) -> int:
        """Live files of the manifests; those without counts are not counted."""
        return sum(info.live_files or 0 for info in self.infos)


def rewrite_manifests(
    table: Table,
    where: PredicateLike = None,
    *,
    spec_id: int | None = None,
    target_size_bytes: SizeLike | None = None,
    rewrite_all: bool = False,
    force: bool = False,
    properties: Mapping[str, str] | None = None,
    dry_run: bool = False,
) -> ManifestsReport:
    """Combine manifests; ``Table.rewrite_manifests`` documents the options."""
    check_writable(table)
    summary = check_properties(properties)
    check_current(table.table, dry_run=dry_run)
    table.refresh()
    check_writable(table)
    if spec_id is not None and spec_id not in table.specs:
        known = ", ".join(map(str, sorted(table.specs)))
        hint = f"available: {known}"
        raise UsageError(f"unknown partition spec {spec_id}", path=table.name, hint=hint)
    own = None if target_size_bytes is None else as_bytes(target_size_bytes, "target_size_bytes")
    check_target_size(own, "target_size_bytes", force=force)
    target = _target_size(table, own)
    plan = _Planner(table.pinned, target, spec_id, rewrite_all)
    groups = list(plan.groups(where))
    check_file_count(sum(group.expected for group in groups), table.name, force=force)
    before = plan.manifests
    if dry_run or not groups:
        expected = sum(group.expected for group in groups)
        replaced = sum(len(group.infos) for group in groups)
        size = sum(group.bytes for group in groups)
        return ManifestsReport(
            table=table.name,
            dry_run=dry_run,
            snapshot=None,
            manifests_before=before,
            manifests_after=before - replaced + expected,
            replaced=replaced,
            created=expected,
            entries=sum(group.entries for group in groups),
            bytes_replaced=size,
            bytes_created=size,
            unsupported=plan.unsupported,
        )
    work = ManifestProducer(
        table.table,
        Target.of(table.table),
        (),
        frozenset(),
        summary,
        "main",
        Operation.REPLACE,
        pinned=table.pinned,
        most=target,
        rewrites=[_Rewrite(group) for group in groups],
    )
    with stoppable() as stop:
        with interrupts_noted(table.name, work.state):
            number = publish(work, check_stop, work.settle)
        stop.outcome = f"manifests were rewritten by snapshot {number}"
        table.refresh()
        return work.report(number, before, plan.unsupported, _store_entries(table))


def _target_size(table: Table, own: int | None) -> int:
    if own is None:
        return integer_property(table.metadata.properties, MANIFEST_BYTES, _TARGET, table=table.name, least=1)
    if own < 1:
        raise UsageError(f"target_size_bytes must be a number of bytes, got {own!r}", path=table.name)
    return own


def _store_entries(table: Table) -> str:
    """Store the entries of the new manifests in the index, if there is one; return why that failed."""
    try:
        if table.index.coverage is not None:
            table.keep_manifests()
    except SkipstoneError as error:
        return str(error)
    return ""


# -- which manifests ---------------------------------------------------------------------------


@dataclass(eq=False)
class _Planner:
    table: TableSnapshot
    target: int
    spec_id: int | None
    rewrite_all: bool
    unsupported: int = 0

    @property
    def manifests(self) -> int:
        """Number of manifests with live files."""
        every = (*self.table.inventory.infos, *self.table.delete_inventory.infos)
        return sum(info.live_files != 0 for info in every)

    def groups(self, where: PredicateLike) -> Iterator[ManifestGroup]:
        """Manifests to rewrite together."""
        pruned = None if where is None else self.table.prune_partitions(to_predicate(where))
        for content, inventory in enumerate((self.table.inventory, self.table.delete_inventory)):
            infos = inventory.infos
            entries, _ = inventory.everything
            owners = np.repeat(np.arange(len(infos)), np.diff(inventory.firsts))
            chosen = np.zeros(len(infos), dtype=bool)
            matching = np.ones(len(entries), dtype=bool)
            if pruned is not None and len(entries):
                matching = pruned.filter.judge(entries.keys).kept[entries.partitions]
            chosen[owners[matching]] = True
            specs = np.array([info.spec_id for info in infos], dtype=np.int64)
            for spec in np.unique(specs[chosen]).tolist():
                if self.spec_id in (None, spec):
                    mine = np.flatnonzero(chosen & (specs == spec))
                    yield from self._of_spec(content, spec, _Manifests(inventory, entries, owners, mine))

    def _of_spec(self, content: int, spec: int, manifests: _Manifests) -> Iterator[ManifestGroup]:
        small = manifests.shorter(self.target * _SMALL)
        if not (self.rewrite_all or manifests.is_spread(self.target)):
            if small.count < 2:
                return
            manifests = small
        for one in self._by_schema(manifests):
            size = one.bytes
            expected = max(math.ceil(size / self.target), 1)
            part = one
            if not (self.rewrite_all or one.is_spread(self.target)):
                part = one.shorter(self.target * _SMALL)
                expected = max(math.ceil(part.bytes / self.target), 1)
                if part.count <= expected:
                    continue
            yield ManifestGroup(content, spec, part.infos, expected)

    def _by_schema(self, manifests: _Manifests) -> Iterator[_Manifests]:
        """Divide manifests by their Avro schema; leave out those that can't be copied."""
        by_schema: dict[bytes, list[int]] = {}
        for number, info in zip(manifests.numbers.tolist(), manifests.infos, strict=True):
            raw = _raw(self.table, info)
            if raw is None:
                self.unsupported += 1
            else:
                by_schema.setdefault(raw.schema, []).append(number)
        for numbers in by_schema.values():
            yield manifests.only(np.array(numbers))


def _raw(table: TableSnapshot, info: ManifestInfo) -> RawManifest | None:
    data = table.read_manifest_file(info.path)
    return read_raw(data, info, table.load_manifests([info])[0].entries)


@dataclass(frozen=True, slots=True, eq=False)
class _Manifests:
    """Some manifests of an inventory."""

    inventory: Inventory
    every: Entries
    owners: Array
    """The manifest of each entry."""
    numbers: Array

    def only(self, numbers: Array) -> _Manifests:
        """Some of them."""
        return _Manifests(self.inventory, self.every, self.owners, numbers)

    @property
    def infos(self) -> tuple[ManifestInfo, ...]:
        """Entries of the manifest list."""
        return tuple(self.inventory.infos[number] for number in self.numbers.tolist())

    @property
    def count(self) -> int:
        """Number of manifests."""
        return len(self.numbers)

    @property
    def bytes(self) -> int:
        """Bytes of all manifests."""
        return sum(info.length for info in self.infos)

    def shorter(self, most: float) -> _Manifests:
        """Those with fewer bytes."""
        lengths = np.array([info.length for info in self.infos])
        return self.only(self.numbers[lengths < most])

    def is_spread(self, target: int) -> bool:
        """Whether files of a partition are in many manifests that could be in few."""
        if self.count < 2:
            return False
        mine = np.isin(self.owners, self.numbers)
        codes = self.every.partitions[mine].astype(np.int64)
        partitions = len(np.unique(codes))
        pairs = len(np.unique(self.owners[mine] * (len(self.every.keys) + 1) + codes))
        # Sorted, only the partitions at the edges of manifests are in two.
        best = partitions + max(math.ceil(self.bytes / target), 1) - 1
        return pairs > _SPREAD * best


# -- the commit --------------------------------------------------------------------------------


@dataclass(eq=False)
class _Rewrite:
    """A group, and its new manifests once they are written."""

    group: ManifestGroup
    made: list[ManifestFile] = field(default_factory=list)


@dataclass
class ManifestProducer(Producer):
    """Produces a snapshot with the same files in other manifests."""

    pinned: TableSnapshot = field(kw_only=True)
    """The snapshot that was planned."""
    most: int = field(kw_only=True)
    """Bytes of a manifest."""
    rewrites: list[_Rewrite] = field(kw_only=True)
    _own: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        Producer.__post_init__(self)
        self._own = self.properties

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to rewrite."""
        return not self.rewrites

    def settle(self, _table: Any) -> bool:
        """Leave out manifests that another commit has replaced; return whether nothing is left to do."""
        head = self.table.metadata.snapshot_by_name(self.branch)
        live = set() if head is None else {one.manifest_path for one in head.manifests(self.table.io)}
        left = []
        for rewrite in self.rewrites:
            present = tuple(info for info in rewrite.group.infos if info.path in live)
            if len(present) == len(rewrite.group.infos):
                left.append(rewrite)
                continue
            self.delete([one.manifest_path for one in rewrite.made])
            if len(present) > 1:
                group = rewrite.group
                left.append(_Rewrite(ManifestGroup(group.content, group.spec_id, present, group.expected)))
        self.rewrites = left
        return not left

    def reset(self) -> None:
        """Delete the manifest list of a failed attempt; the manifests stay for the next one."""
        made = {one.manifest_path for rewrite in self.rewrites for one in rewrite.made}
        self.delete([path for path in self.written if path not in made])

    def _carried(self, head: Snapshot | None) -> tuple[list[ManifestFile], list[DataFile]]:
        kept, _ = Producer._carried(self, head)
        gone = {info.path for rewrite in self.rewrites for info in rewrite.group.infos}
        for rewrite in self.rewrites:
            if not rewrite.made:
                rewrite.made = list(self._write(rewrite.group))
        made = [one for rewrite in self.rewrites for one in rewrite.made]
        others = [one for one in kept if one.manifest_path not in gone]
        self.properties = {
            **self._own,
            "manifests-created": str(len(made)),
            "manifests-kept": str(len(others)),
            "manifests-replaced": str(len(gone)),
            "entries-processed": str(sum(one.existing_files_count or 0 for one in made)),
        }
        return [*made, *others], []

    def _write(self, group: ManifestGroup) -> Iterator[ManifestFile]:
        raws = [raw for info in group.infos if (raw := _raw(self.pinned, info)) is not None]
        whole = Entries.concat([raw.entries for raw in raws])
        # Partitions together, oldest files first.
        order = np.lexsort((whole.sequences, whole.partitions))
        spec = self.table.metadata.specs()[group.spec_id]
        for written in write_existing(raws, order, self.most):
            part = whole.take(written.entries)
            path = self._new(f"{uuid.uuid4()}-m0.avro")
            with self.table.io.new_output(path).create() as stream:
                stream.write(written.data)
            made = ManifestFile.from_args(
                manifest_path=path,
                manifest_length=len(written.data),
                partition_spec_id=group.spec_id,
                content=ManifestContent(group.content),
                sequence_number=UNASSIGNED_SEQ,
                min_sequence_number=int(part.sequences.min()),
                added_snapshot_id=self.number,
                added_files_count=0,
                existing_files_count=len(part),
                deleted_files_count=0,
                added_rows_count=0,
                existing_rows_count=int(part.rows.sum()),
                deleted_rows_count=0,
                partitions=self._summaries(spec, part),
                key_metadata=None,
            )
            self._check(made, written.data, part)
            yield made

    def _summaries(self, spec: Any, part: Entries) -> Any:
        """Ranges of the partition fields; None, which is unknown, for transforms that are unknown."""
        if any(isinstance(one.transform, UnknownTransform) for one in spec.fields):
            return None
        blank = (None,) * len(spec.fields)
        records = [Record(*(key.partition or blank)) for key in part.keys]
        return construct_partition_summaries(spec, schema_for(self.table.metadata, spec), records)

    def _check(self, made: ManifestFile, data: bytes, part: Entries) -> None:
        """Read a new manifest back, and compare it with the entries it was made from."""
        info = ManifestInfo(
            made.manifest_path,
            len(data),
            made.partition_spec_id,
            content=int(made.content),
            sequence=self.table.metadata.next_sequence_number(),
            snapshot=self.number,
        )
        read = read_manifest(data, info, self.table.metadata.specs())
        same = read.to_table().equals(part.to_table())
        if not same or [read.keys[n] for n in read.partitions] != [part.keys[n] for n in part.partitions]:
            problem = "new manifest differs from the entries it was made from"
            raise WriteError(
                problem, path=made.manifest_path, hint="nothing was committed; report this error"
            )

    def report(
        self, number: int | None, before: int, unsupported: int, index_problem: str
    ) -> ManifestsReport:
        """What was committed."""
        made = [one for rewrite in self.rewrites for one in rewrite.made]
        groups = [rewrite.group for rewrite in self.rewrites]
        replaced = sum(len(group.infos) for group in groups)
        return ManifestsReport(
            table=self.target.name,
            dry_run=False,
            snapshot=number,
            manifests_before=before,
            manifests_after=before - replaced + len(made),
            replaced=replaced,
            created=len(made),
            entries=sum(one.existing_files_count or 0 for one in made),
            bytes_replaced=sum(group.bytes for group in groups),
            bytes_created=sum(one.manifest_length for one in made),
            unsupported=unsupported,
            index_problem=index_problem,
        )
