"""An Iceberg table at one of its snapshots."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import IdentityTransform, VoidTransform

from skipstone.core.evidence import Array, ColumnFacts, FactOverride
from skipstone.core.filter import fix_clock, settle
from skipstone.core.ir import compile_predicate
from skipstone.core.ir.nodes import ColumnRef, Node
from skipstone.core.plain import type_name
from skipstone.engine.jobs import Engine
from skipstone.errors import FileError, MissingFileError, ReadError, SchemaError, SkipstoneError
from skipstone.iceberg.catalogs import catalog_errors, reason, table_root
from skipstone.iceberg.catalogs import storage_options as options_of
from skipstone.iceberg.deletes.equality import deletions
from skipstone.iceberg.deletes.match import DeleteIndex, DeleteMatches
from skipstone.iceberg.inventory import CachedEntries, Inventory, Listing
from skipstone.iceberg.manifests.avro import check_plain
from skipstone.iceberg.manifests.entries import Entries, ManifestPart
from skipstone.iceberg.manifests.lists import ManifestInfo, embedded_manifest, listed_manifests
from skipstone.iceberg.manifests.metrics import file_facts
from skipstone.iceberg.manifests.reading import Manifests
from skipstone.iceberg.metadata import (
    EmbeddedSnapshot,
    PinnedSnapshot,
    SnapshotInfo,
    check_metadata,
    list_snapshots,
    resolve,
    tolerant,
)
from skipstone.iceberg.partitions.evidence import source_facts
from skipstone.iceberg.partitions.values import PartitionKey
from skipstone.iceberg.plan import FilePlan, FilePruner, PartitionPruning
from skipstone.iceberg.schema import (
    FieldNaming,
    FieldPath,
    IdNaming,
    arrow_schema,
    arrow_type,
    defaults,
    field_paths,
    mapped_ids,
    settled_fields,
    walk_fields,
)
from skipstone.lake.conform import Evolution
from skipstone.lake.files import CACHE_BYTES, Files
from skipstone.lake.snapshot import PLANS, Deletions, FileEntry, IndexRecords, Overlay, Path, PrunedFiles
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.naming import Naming
from skipstone.predicate import predicate as to_predicate
from skipstone.predicate.tree import Predicate
from skipstone.prune.ledger import Ledger
from skipstone.report.trace import FilterStats
from skipstone.store.absolute import AbsoluteStore
from skipstone.store.cache import Cache
from skipstone.store.options import StoreOptions
from skipstone.store.retry import RetryPolicy
from skipstone.store.store import ListedFile

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table.name_mapping import NameMapping
    from pyiceberg.table.snapshots import Snapshot

    from skipstone.typing import PredicateLike, SnapshotLike

_DATA, _DELETES = 0, 1
_IDENTITY = IdentityTransform[Any]()


class TableSnapshot:
    """One snapshot of an Iceberg table.

    Opening it reads only the table's metadata; manifests are read when a plan needs them, and cached. Columns
    are resolved by field id, and deletes are applied.
    """

    partition_names: frozenset[str] = frozenset()
    """Empty: partition specs can differ between files."""
    is_whole, listed_whole, has_own_schema = True, False, False
    overlay: Overlay | None = None
    others: Sequence[ListedFile] = ()

    def __init__(
        self, metadata: TableMetadata, origin: TableOrigin, options: StoreOptions, reference: Any = None
    ) -> None:
        name = origin.name
        self._pinned: PinnedSnapshot = resolve(metadata, reference, uri=name)
        mapping = _mapping(metadata, name)
        self.metadata, self.name = metadata, name
        self.listed_at = time.time()
        self.plans: Cache[Any, Any] = Cache(PLANS)
        self._origin, self._options, self._reference = origin, options, reference
        self._records: IndexRecords | None = None
        self._settled = None if mapping is None else settled_fields(mapping, metadata.schemas)
        supplied = {
            field.source_id
            for spec in metadata.partition_specs
            for field in spec.fields
            if isinstance(field.transform, IdentityTransform)
        }
        self.index_naming: Naming | None = IdNaming.of(mapping, metadata.schemas, supplied=supplied)
        naming = FieldNaming.of(self._pinned.schema, mapping, supplied=supplied)
        store = AbsoluteStore(metadata.location.rstrip("/"), options, origin.root)
        store.check(store.uri)
        evolution = Evolution(defaults(self._pinned.schema))
        self.access = Files(
            store, retry=origin.retry, memory=origin.memory, naming=naming, evolution=evolution
        )
        self.access.explain = _MissingFile(origin, self.snapshot_id)
        self.uri = store.uri

    @classmethod
    def open(
        cls,
        table: Table,
        *,
        snapshot: SnapshotLike | None = None,
        storage_options: Mapping[str, Any] | None = None,
        retry: RetryPolicy | None = None,
        memory: int = CACHE_BYTES,
        stay_below_root: bool = False,
    ) -> TableSnapshot:
        """Open a pyiceberg table at its current snapshot or another one."""
        name = ".".join(table.name()) if table.name() else table.metadata.location
        check_metadata(table.metadata, name)
        root = table_root(table.metadata_location) if stay_below_root else None
        origin = TableOrigin(name, table, storage_options, retry, memory, root)
        return cls(table.metadata, origin, options_of(table, storage_options), snapshot)

    def latest(self, engine: Engine | None = None) -> TableSnapshot:  # noqa: ARG002
        """The current snapshot according to the catalog."""
        table = self._origin.table
        if table is None:
            raise ReadError(
                "can't refresh a table that was unpickled without its catalog",
                path=self.name,
                hint="open the table in this process",
            )
        with catalog_errors(table.catalog, self.name):
            try:
                fresh = tolerant(table.refresh)
            except NotImplementedError:
                return self  # opened from a metadata file, without a catalog
        return self.following(fresh)

    def following(self, table: Table) -> TableSnapshot:
        """The table in a newer state."""
        check_metadata(table.metadata, self.name)
        # The catalog can vend new credentials.
        options = options_of(table, self._origin.storage_options)
        origin = replace(self._origin, table=table)
        return self._sharing(TableSnapshot(table.metadata, origin, options, self._reference))

    def at(self, snapshot: SnapshotLike) -> TableSnapshot:
        """The table as it was at another snapshot."""
        return self._sharing(TableSnapshot(self.metadata, self._origin, self._options, snapshot))

    def _sharing(self, other: TableSnapshot) -> TableSnapshot:
        """Another snapshot, which knows what was read of delete files: these never change."""
        other.access.positions = self.access.positions
        return other

    def with_metadata(self, metadata: TableMetadata) -> TableSnapshot:
        """The current snapshot according to other metadata of the same table."""
        return TableSnapshot(metadata, self._origin, self._options)

    @property
    def options(self) -> StoreOptions:
        """How the table's files are opened."""
        return self._options

    def detached(self) -> TableSnapshot:
        """The same snapshot with a pyiceberg table of its own, which another thread can refresh."""
        origin = replace(self._origin, table=copy.copy(self.table))
        return TableSnapshot(self.metadata, origin, self._options, self._reference)

    def use(self, records: IndexRecords) -> None:
        """Take manifest entries from an index where it has them."""
        self._records = records

    # -- metadata ----------------------------------------------------------------------------

    @property
    def table(self) -> Table:
        """The pyiceberg table."""
        table = self._origin.table
        if table is None:
            hint = "open the table in this process"
            raise ReadError("table was unpickled without its catalog", path=self.name, hint=hint)
        return table

    @property
    def reference(self) -> SnapshotLike | None:
        """The snapshot, branch, tag or time that the user chose; None for the current snapshot."""
        reference: SnapshotLike | None = self._reference
        return reference

    @property
    def storage_options(self) -> Mapping[str, Any] | None:
        """Storage options in addition to the catalog's."""
        return self._origin.storage_options

    @property
    def snapshot_id(self) -> int | None:
        """Id of the snapshot; None for a table without snapshots."""
        return None if self._pinned.snapshot is None else self._pinned.snapshot.snapshot_id

    def snapshots(self) -> tuple[SnapshotInfo, ...]:
        """All snapshots in the table's metadata, oldest first."""
        return list_snapshots(self.metadata)

    @property
    def iceberg_schema(self) -> Schema:
        """The Iceberg schema that the snapshot is read with."""
        return self._pinned.schema

    @property
    def specs(self) -> Mapping[int, PartitionSpec]:
        """Partition specs by id."""
        return {spec.spec_id: spec for spec in self.metadata.partition_specs}

    @property
    def version(self) -> str:
        """Table UUID, snapshot id and schema id."""
        return f"{self.metadata.table_uuid}:{self.snapshot_id}:{self._pinned.schema.schema_id}"

    @cached_property
    def schema(self) -> pa.Schema:
        """The table's columns."""
        return arrow_schema(self._pinned.schema)

    @property
    def query_schema(self) -> pa.Schema:
        """Same as ``schema``, since Iceberg's timestamp types say whether they are instants."""
        return self.schema

    def renamed(self, column: str) -> str | None:
        """The hint for a column that another schema of the table has: its name in this schema, if any."""
        for schema in reversed(self.metadata.schemas):
            with suppress(ValueError):
                name = self.iceberg_schema.find_column_name(schema.find_field(column).field_id)
                if name is not None:
                    return f"use {name}: the column has another name in this schema"
                return "open another snapshot with snapshot= or --snapshot: this schema lacks the column"
        return None

    # -- manifests ---------------------------------------------------------------------------

    @cached_property
    def _infos(self) -> list[ManifestInfo]:
        snapshot = self._pinned.snapshot
        return [] if snapshot is None else self.manifests_of(snapshot)

    def manifests_of(self, snapshot: Snapshot) -> list[ManifestInfo]:
        """The manifests of any snapshot in the metadata, from its manifest list."""
        if isinstance(snapshot, EmbeddedSnapshot):
            return [
                embedded_manifest(self.read_manifest_file(path), path) for path in snapshot.manifest_paths
            ]
        if snapshot.manifest_list:
            return listed_manifests(self.metadata, snapshot, self.read_manifest_file)
        raise ReadError(
            "snapshot has no manifest list", path=self.name, hint="rewrite the table with a newer writer"
        )

    def load_manifests(self, infos: Sequence[ManifestInfo]) -> list[ManifestPart]:
        """The live entries of manifests."""
        return Manifests(self.read_manifest_file, self.specs, threads=self.access.threads).each(infos)

    def read_manifest_file(self, path: str) -> bytes:
        """Read a manifest or a manifest list."""
        try:
            data = self.access.read_whole(path)
        except ReadError as error:
            error.hint = error.hint or "restore this file of the snapshot, or open another snapshot"
            raise
        check_plain(data, path)
        return data

    def _inventory(self, content: int) -> Inventory:
        def listed() -> list[ManifestInfo]:
            return [info for info in self._infos if info.content == content]

        cached = None if self._cached is None else self._cached[content]
        return Inventory(listed, self.load_manifests, self.specs, cached, unique=content == _DATA)

    @cached_property
    def _cached(self) -> tuple[CachedEntries, CachedEntries] | None:
        """Entries of data and delete manifests in an index."""
        return None if self._records is None else self._records.manifests(self.listed_in)

    @property
    def listed_in(self) -> str:
        """Identifies the manifest list and the specs that its manifests are read with."""
        snapshot = self._pinned.snapshot
        listed = None if snapshot is None else (snapshot.snapshot_id, snapshot.manifest_list)
        shapes = [(spec_id, str(spec)) for spec_id, spec in sorted(self.specs.items())]
        return json.dumps((str(self.metadata.table_uuid), listed, shapes))

    @cached_property
    def inventory(self) -> Inventory:
        """The data files."""
        return self._inventory(_DATA)

    @cached_property
    def delete_inventory(self) -> Inventory:
        """The delete files."""
        return self._inventory(_DELETES)

    @cached_property
    def _delete_index(self) -> DeleteIndex:
        return DeleteIndex.of(self.delete_inventory.everything[0])

    @cached_property
    def entries(self) -> Sequence[ListedFile]:
        """The data files."""
        return Listing(self.inventory)

    @cached_property
    def _numbers(self) -> dict[ListedFile, int]:
        return {entry: number for number, entry in enumerate(self.entries)}

    def number_of(self, entry: ListedFile) -> int | None:
        """The number of a file; None if it is not listed."""
        return self._numbers.get(entry)

    @cached_property
    def files(self) -> tuple[FileEntry, ...]:
        """The files, by path."""
        return self.files_of(np.arange(len(self.entries)))

    @cached_property
    def all_overrides(self) -> dict[Path, FactOverride]:
        """Facts of identity partition columns for all files."""
        return self.overrides(np.arange(len(self.entries)))

    def files_of(self, files: Array) -> tuple[FileEntry, ...]:
        """The numbered files, with their partition values by field name."""
        chosen = self.inventory.take(files)
        partitions = [self._partition(key) for key in chosen.keys]
        return tuple(
            FileEntry(path, size, partitions[code], rows)
            for path, size, code, rows in zip(
                chosen.paths.to_pylist(),
                chosen.sizes.tolist(),
                chosen.partitions.tolist(),
                chosen.rows.tolist(),
                strict=True,
            )
        )

    def _partition(self, key: PartitionKey) -> dict[str, Any]:
        """Partition values by field name; those of identity transforms in the column's type."""
        fields = self.specs[key.spec_id].fields if key.partition is not None else ()
        values = {field.name: value for field, value in zip(fields, key.partition or (), strict=True)}
        for field in fields:
            column = self._columns.get(field.source_id)
            if isinstance(field.transform, IdentityTransform) and column is not None:
                values[field.name] = _scalar(values[field.name], column.type, key).as_py()
        return values

    def check_files(self, files: Sequence[int]) -> None:
        """Refuse files that are not Parquet."""
        if self.inventory.whole is not None and self._only_parquet:
            return
        chosen = self.inventory.take(np.array(files, dtype=np.int64))
        others = pc.not_equal(chosen.formats, "PARQUET")
        if pc.any(others).as_py():
            number = pc.index(others, True).as_py()
            raise FileError(
                f"file format is {chosen.formats[number]}, but only Parquet is supported",
                path=chosen.paths[number].as_py(),
                hint="rewrite the table's files as Parquet",
            )

    @cached_property
    def _only_parquet(self) -> bool:
        """Whether all files of the snapshot are Parquet."""
        return not pc.any(pc.not_equal(self.inventory.everything[0].formats, "PARQUET")).as_py()

    # -- partitions --------------------------------------------------------------------------

    @cached_property
    def _columns(self) -> dict[int, ColumnRef]:
        """Columns outside lists and maps, by field id."""
        fields = {one.field.field_id: one for one in walk_fields(self._pinned.schema.fields)}
        return {
            number: ColumnRef(path, arrow_type(fields[number].field.field_type, path))
            for number, path in field_paths(self._pinned.schema).items()
        }

    @cached_property
    def _identities(self) -> dict[int, dict[str, tuple[int, pa.DataType]]]:
        """Per spec, its top-level identity columns: position of the value in the partition, and type.

        Includes dropped columns, because equality deletes outlive the columns they compare.
        """
        ids = {one.field.field_id for schema in self.metadata.schemas for one in walk_fields(schema.fields)}
        identities: dict[int, dict[str, tuple[int, pa.DataType]]] = {}
        for spec in self.metadata.partition_specs:
            mine = identities.setdefault(spec.spec_id, {})
            for position, field in enumerate(spec.fields):
                if isinstance(field.transform, IdentityTransform) and field.source_id in ids:
                    path, type = self._column_of(field.source_id)
                    if len(path) == 1:
                        mine[path[0]] = position, type
        return identities

    def overrides(self, files: Array) -> dict[Path, FactOverride]:
        """Facts of identity partition columns, which override those of the files."""
        if not any(self._identities.values()) or not len(files):
            return {}
        chosen = self.inventory.take(files)
        facts = {column.path: self._override_of(column, chosen) for column in self._columns.values()}
        return {path: override for path, override in facts.items() if override is not None}

    def _override_of(self, column: ColumnRef, entries: Entries) -> FactOverride | None:
        """Facts of a column from identity partitions; None if no file has any."""
        if not any(column.path == (name,) for mine in self._identities.values() for name in mine):
            return None
        values = [self._value(key, column.path[0]) for key in entries.keys]
        present = np.array([value is not _NOTHING for value in values], dtype=bool)
        if not present.any():
            return None
        facts = source_facts(
            _IDENTITY, [None if value is _NOTHING else value for value in values], column.type
        )
        return None if facts is None else FactOverride(facts, present).take(entries.partitions)

    def _value(self, key: PartitionKey, name: str) -> Any:
        identity = self._identities[key.spec_id].get(name)
        return _NOTHING if identity is None or key.partition is None else key.partition[identity[0]]

    def constants(self, files: Sequence[int]) -> list[Mapping[str, pa.Scalar]]:
        """Identity partition values of each numbered file."""
        if not any(self._identities.values()):
            return [{} for _ in files]
        chosen = self.inventory.take(np.array(files, dtype=np.int64))
        constants = [self._constants(key) for key in chosen.keys]
        return [constants[code] for code in chosen.partitions.tolist()]

    def _constants(self, key: PartitionKey) -> Mapping[str, pa.Scalar]:
        constants = {}
        for name, (_, type) in self._identities[key.spec_id].items():
            value = self._value(key, name)
            if value is not _NOTHING:
                constants[name] = _scalar(value, type, key)
        return constants

    # -- planning ----------------------------------------------------------------------------

    def prune_files(self, node: Node | None, ledger: Ledger, *, strict: bool = False) -> PrunedFiles:
        """Files that may match according to manifest summaries, partitions and file metrics."""
        with self._named_errors():
            return self._pruner(ledger, strict).prune_files(node)

    def _pruner(self, ledger: Ledger, strict: bool) -> FilePruner:
        return FilePruner(self.inventory, self._pruning_specs, self._columns, self.file_facts, ledger, strict)

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except SchemaError as error:
            error.path = error.path or self.name
            raise

    def prune_partitions(
        self, predicate: Predicate | None, *, strict: bool = False, case_sensitive: bool = True
    ) -> PartitionPruning:
        """The data files whose partition may match; metrics of files are not used."""
        node = self._compiled(predicate, case_sensitive)
        with self._named_errors():
            return self._pruner(Ledger(lambda: (0, 0)), strict).prune_partitions(node)

    def _compiled(self, predicate: Predicate | None, case_sensitive: bool) -> Node | None:
        if predicate is None:
            return None
        schema = self.query_schema
        settled = settle(fix_clock(predicate), schema, case_sensitive=case_sensitive)
        return compile_predicate(settled, schema, case_sensitive=case_sensitive).node

    def match_deletes(self, data: Entries) -> DeleteMatches | None:
        """The delete files that apply to data files; None if there are none."""
        if not len(data) or not len(self.delete_inventory):
            return None
        return self._delete_index.match(data, self.file_facts)

    def plan_files(
        self, where: PredicateLike = None, *, strict: bool = False, case_sensitive: bool = True
    ) -> FilePlan:
        """Return the data files that can match, each with its delete files; see ``Table.plan_files``."""
        ledger = Ledger(lambda: (0, 0))
        node = self._compiled(None if where is None else to_predicate(where), case_sensitive)
        pruned = self.prune_files(node, ledger, strict=strict)
        assert pruned.files is not None
        data = self.inventory.take(pruned.files)
        matches = self.match_deletes(data)
        whole = np.zeros(len(data), dtype=bool) if pruned.whole is None else pruned.whole
        return FilePlan(data, whole, matches, pruned.partitions or FilterStats(), ledger.notes.done())

    def file_facts(self, entries: Entries, field_id: int) -> ColumnFacts:
        """Manifest facts of a column per file, unknown where they can be of another column than is read."""
        one = self._field(field_id)
        type = arrow_type(one.field.field_type, one.path)
        # Delete files always have field ids.
        is_data = not entries.contents.any()

        def measured() -> ColumnFacts:
            if is_data and not self._is_settled(field_id):
                return ColumnFacts.unknown(type, len(entries))
            return file_facts(entries, field_id, type, one.field.field_type, field_id in self._required)

        column = self._columns.get(field_id)
        try:
            overrides = self._override_of(column, entries) if is_data and column is not None else None
        except (SkipstoneError, ValueError, TypeError):
            # Partition values of the wrong type: reading the file will raise.
            return ColumnFacts.unknown(type, len(entries))
        return measured() if overrides is None else overrides.fallback_to(measured)

    def _is_settled(self, field_id: int) -> bool:
        """Whether metrics of a field are certainly of the column that is read."""
        return self._settled is None or field_id in self._settled

    @cached_property
    def _pruning_specs(self) -> Mapping[int, PartitionSpec]:
        """The specs, without fields whose source can differ from the column that is read.

        Identity columns stay, because their partition values are what is read.
        """
        if self._settled is None:
            return self.specs
        specs = {}
        for spec_id, spec in self.specs.items():
            identities = {position for position, _ in self._identities[spec_id].values()}
            fields = [
                field
                if position in identities or self._is_settled(field.source_id)
                else field.model_copy(update={"transform": VoidTransform()})
                for position, field in enumerate(spec.fields)
            ]
            specs[spec_id] = PartitionSpec(*fields, spec_id=spec_id)
        return specs

    @cached_property
    def _required(self) -> frozenset[int]:
        """Fields that were required, with all structs around them, in every schema that has them."""
        optional: set[int] = set()
        seen: set[int] = set()
        for schema in self.metadata.schemas:
            for one in walk_fields(schema.fields):
                seen.add(one.field.field_id)
                if one.field.optional or one.parent in optional:
                    optional.add(one.field.field_id)
        return frozenset(seen - optional)

    def deletions(self, files: Sequence[int]) -> Deletions:
        """Deleted rows of the numbered files."""
        if not files or not len(self.delete_inventory):
            return Deletions()
        return deletions(
            self._delete_index, self.inventory.take, files, self.access, self.file_facts, self._column_of
        )

    def _column_of(self, field_id: int) -> tuple[Path, pa.DataType]:
        """Path and type of a column, even of a dropped one."""
        naming = self.access.naming
        assert naming is not None
        one = self._field(field_id)
        return naming.path(one.ids), arrow_type(one.field.field_type, one.path)

    def _field(self, field_id: int) -> FieldPath:
        """A field of the schema, or of the newest schema that has it."""
        newest = sorted(self.metadata.schemas, key=lambda one: -one.schema_id)
        for schema in (self._pinned.schema, *newest):
            for one in walk_fields(schema.fields):
                if one.field.field_id == field_id:
                    return one
        raise SchemaError(f"unknown field id {field_id}", path=self.name)

    def check(self, footers: Sequence[ParquetMetadata]) -> None:
        """Accept all: columns are resolved by field id, and checked when they are read."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Without the catalog and secrets.
        return (
            type(self),
            (
                self.metadata,
                replace(self._origin, table=None, storage_options=None),
                self._options,
                self._reference,
            ),
        )

    def __repr__(self) -> str:
        return f"TableSnapshot({self.name!r}, {self.snapshot_id})"


@dataclass(frozen=True, slots=True)
class TableOrigin:
    """The table of a snapshot, and how its files are read."""

    name: str
    table: Table | None
    storage_options: Mapping[str, Any] | None
    retry: RetryPolicy | None
    memory: int
    root: str | None
    """The directory that all files must be below, if any."""


def _mapping(metadata: TableMetadata, name: str) -> NameMapping | None:
    try:
        mapping = metadata.name_mapping()
        mapped_ids(mapping)
        return mapping
    except SchemaError as error:
        error.path = name
        raise
    except ValueError as error:
        raise SchemaError(
            f"table's name mapping is invalid: {reason(error)}",
            path=name,
            hint=f"fix the table property {TableProperties.DEFAULT_NAME_MAPPING}",
        ) from error


class _Nothing:
    """The value of a column that is not in a partition, as opposed to NULL."""


_NOTHING = _Nothing()


def _scalar(value: Any, type: pa.DataType, key: PartitionKey) -> pa.Scalar:
    if value is None:
        return pa.scalar(None, type)
    try:
        if pa.types.is_date(type) or pa.types.is_timestamp(type) or pa.types.is_time(type):
            width = pa.int32() if type.bit_width == 32 else pa.int64()
            return pa.scalar(value, width).cast(type)
        return pa.scalar(value, type)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise SchemaError(
            f"partition value {value!r} is not a valid {type_name(type)}", unit=f"partition {key}"
        ) from error


@dataclass(frozen=True, slots=True)
class _MissingFile:
    """Completes the error for a missing file if the catalog says that the snapshot has expired."""

    origin: TableOrigin
    snapshot: int | None

    def __call__(self, error: MissingFileError) -> None:
        if self.origin.table is None or self.snapshot is None:
            return
        # A catalog that can't be asked explains nothing.
        with suppress(Exception):
            fresh = copy.copy(self.origin.table)
            tolerant(fresh.refresh)
            if fresh.metadata.snapshot_by_id(self.snapshot) is None:
                error.message = (
                    f"snapshot {self.snapshot} of {self.origin.name} has expired, and the file was deleted"
                )
                error.hint = "refresh the table with table.refresh(), or open it again"
