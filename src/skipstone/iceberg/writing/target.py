"""A table as a place to write to: all that tasks need to know of it, without its catalog."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.locations import LocationProvider, ObjectStoreLocationProvider, SimpleLocationProvider
from pyiceberg.transforms import VoidTransform
from pyiceberg.typedef import Record

from skipstone.errors import UsageError
from skipstone.iceberg.catalogs import storage_options
from skipstone.iceberg.partitions.keys import PartitionKey, is_unpartitioned
from skipstone.iceberg.partitions.values import partition_values
from skipstone.iceberg.writing.files import DataNote, Measured, Measuring, leaf_ids, measured_columns
from skipstone.iceberg.writing.fit import fit, stored_columns
from skipstone.parquet.write.columns import find_column
from skipstone.parquet.write.files import Written
from skipstone.parquet.write.partition import Split, label_rows, split_rows
from skipstone.store.place import Place, open_root

if TYPE_CHECKING:
    from pyiceberg.table import Table

_FORMAT: Final = "write.format.default"
_FILE: Final = re.compile("^file:(//(localhost)?)?(?=/)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class NewFile:
    """A data file that is written and not yet committed."""

    path: str
    bytes: int
    note: DataNote


@dataclass(frozen=True, eq=False)
class Target:
    """How rows become data files of a table, under one of its specs; the shape that the writer takes."""

    name: str
    table_schema: Schema
    spec: PartitionSpec
    root: str
    """The location below which data files lie, as manifests are to spell it."""
    place: Place
    """The same place."""
    columns: tuple[Measured, ...]
    hashed: bool = False
    """Whether paths begin with a hash, for stores that spread load by prefix."""
    bare: bool = False
    """Whether paths leave the partition out."""
    version: int = 2
    """The table's format version."""

    @classmethod
    def of(cls, table: Table, whole: Iterable[str] = (), options: Mapping[str, Any] | None = None) -> Target:
        """The target of a table's default spec.

        Bounds are never cut of key, sort and partition columns, nor of those that ``whole`` names.
        ``options`` are the object store's, beside those that the catalog knows.
        """
        metadata = table.metadata
        name = ".".join(table.name())
        check_version(table, name)
        _check_format(table, name)
        schema, spec = table.schema(), table.spec()
        named = [schema.find_field(column).field_id for column in whole]
        sources = [one.source_id for one in (*spec.fields, *table.sort_order().fields)]
        provider = _provider(table, name)
        root = provider.data_path
        return cls(
            name=name,
            table_schema=schema,
            spec=spec,
            root=root,
            place=place_of(root, storage_options(table, options)),
            columns=measured_columns(
                schema, metadata.properties, {*schema.identifier_field_ids, *sources, *named}
            ),
            hashed=isinstance(provider, ObjectStoreLocationProvider),
            bare=metadata.properties.get("write.object-storage.partitioned-paths", "true").lower() == "false",
            version=table.format_version,
        )

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of the files, with field ids."""
        return stored_columns(self.table_schema)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return leaf_ids(self.schema)

    @cached_property
    def _folders(self) -> dict[Hashable, str]:
        return {}

    @cached_property
    def partition_columns(self) -> tuple[str, ...]:
        """The top-level columns that partition values come from."""
        used = {one.source_id for one in self.spec.fields if not isinstance(one.transform, VoidTransform)}
        return tuple(field.name for field in self.table_schema.fields if used & set(Schema(field).field_ids))

    # -- rows ----------------------------------------------------------------------------------

    def fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows in the table's columns."""
        return fit(batch, self.schema, self.name)

    def partitions(self, rows: pa.RecordBatch) -> list[tuple[str, pa.Array]]:
        """The partition values of fitted rows, by the names of the spec's fields."""
        found = []
        for one in self.spec.fields:
            source = self.table_schema.find_field(one.source_id)
            path = self.table_schema.find_column_name(one.source_id)
            if isinstance(one.transform, VoidTransform) or path is None:
                found.append((one.name, pa.nulls(rows.num_rows, pa.int32())))
                continue
            column = find_column(rows, path).combine_chunks()
            found.append((one.name, partition_values(one.transform, source.field_type, column, path)))
        return found

    def labels(self, rows: pa.RecordBatch, label: Callable[[PartitionKey], str] | None = None) -> pa.Array:
        """For each row what ``label`` makes of its partition, the folder unless given.

        Only the columns that rows are partitioned by are looked at.
        """
        names = self.partition_columns
        given = rows.select([name for name in rows.schema.names if name in names])
        wanted = pa.schema([self.schema.field(name) for name in names])
        values = self.partitions(fit(given, wanted, self.name))
        made = label or self.folder
        return label_rows(values, lambda one: made(PartitionKey.of(self.spec, one)))

    def split(self, batch: pa.RecordBatch) -> Split:
        """The rows of each partition; they may come in any types that fit."""
        rows = batch if batch.schema.equals(self.schema) else self.fitted(batch)
        if is_unpartitioned(self.spec):
            return Split([(PartitionKey(self.spec.spec_id, None), rows)], runs=True)
        return split_rows(self.partitions(rows), rows, lambda values: PartitionKey.of(self.spec, values))

    # -- files ---------------------------------------------------------------------------------

    def folder(self, partition: Hashable) -> str:
        """The folder as Iceberg's writers name it; two partitions may share one, as NULL and "null" do."""
        assert isinstance(partition, PartitionKey)
        found = self._folders.get(partition)
        if found is None:
            found = ""
            if partition.partition is not None and not (self.hashed and self.bare):
                found = self.spec.partition_to_path(Record(*partition.partition), self.table_schema)
            self._folders[partition] = found
        return found

    def stored_as(self, key: str) -> str:
        """Where a file of this key lies below the root: for good, since only a commit makes it visible."""
        if not self.hashed:
            return key
        provider = ObjectStoreLocationProvider(
            "", {"write.data.path": "x", "write.object-storage.partitioned-paths": str(not self.bare).lower()}
        )
        return str(provider.new_data_location(key)).removeprefix("x/")

    def tally(self, partition: Hashable) -> Measuring:
        """What takes notes of a file."""
        assert isinstance(partition, PartitionKey)
        return Measuring(partition, self.columns, self._ids)

    def new_file(self, written: Written) -> NewFile:
        """A file that a task has written, as it can be committed."""
        return NewFile(f"{self.root}/{self.stored_as(written.key)}", written.bytes, written.note)

    def delete(self, files: Iterable[NewFile]) -> None:
        """Delete files that are not to be committed."""
        self.place.delete([file.path.removeprefix(f"{self.root}/") for file in files])

    def leftovers(self, job: str, kept: Iterable[NewFile]) -> list[str]:
        """The keys of what a job has written beside the files that are kept: tries that were lost."""
        known = {file.path.removeprefix(f"{self.root}/") for file in kept}
        found = [entry.key for entry in self.place.below("") if entry.key.endswith(f"-{job}.parquet")]
        return [key for key in found if key not in known]

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


def check_version(table: Table, name: str) -> None:
    """Refuse a table of a format that can't be written."""
    if table.format_version > 2:
        raise UsageError(
            f"it is of format version {table.format_version}, which can't be written to yet",
            path=name,
            hint="tables of version 1 and 2 can",
        )


def _check_format(table: Table, name: str) -> None:
    said = table.properties.get(_FORMAT, "parquet").lower()
    if said != "parquet":
        raise UsageError(f"its files are to be {said}", path=name, hint="only Parquet can be written")


def _provider(table: Table, name: str) -> LocationProvider:
    provider = table.location_provider()
    if not isinstance(provider, SimpleLocationProvider | ObjectStoreLocationProvider):
        hint = "unset write.py-location-provider.impl"
        raise UsageError("a location provider of its own says where files go", path=name, hint=hint)
    return provider


def place_of(location: str, options: Mapping[str, Any] | None = None) -> Place:
    """The place of an Iceberg location, whose characters stand for themselves even in a file URI."""
    return open_root(_FILE.sub("", location), storage_options=options or None)
