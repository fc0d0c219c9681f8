"""What other writers do to a table: they delete rows by position, by value, and by rewriting files."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.typedef import Record

import skipstone as sk
from skipstone.iceberg.deletes.match import PATH_ID, POS_ID
from skipstone.iceberg.manifests.entries import Entries
from skipstone.iceberg.partitions.values import PartitionKey
from skipstone.iceberg.writing.commit import publish
from skipstone.iceberg.writing.metrics import FileMetrics
from skipstone.iceberg.writing.producer import Producer
from skipstone.iceberg.writing.target import NewFile, Target


def files_of(table: sk.Table) -> Entries:
    """The live data files."""
    return table.inventory.everything[0]


def file_with(table: sk.Table, where: str) -> str:
    """The only file with rows that match."""
    (task,) = table.scan(where).plan().tasks
    return task.entry.key


def position_file(
    table: Table, key: PartitionKey, places: Iterable[tuple[str, int]], *, bounds: bool = True
) -> NewFile:
    """Write positions to a delete file of a partition; ``bounds`` say of which data files they are."""
    rows = sorted(places)
    paths = [path for path, _ in rows]
    schema = pa.schema(
        [
            pa.field(name, type, metadata={"PARQUET:field_id": str(number)})
            for name, type, number in (("file_path", pa.string(), PATH_ID), ("pos", pa.int64(), POS_ID))
        ]
    )
    place = f"{table.location()}/data/{uuid.uuid4()}-deletes.parquet"
    local = place.removeprefix("file://")
    pq.write_table(pa.table([paths, [position for _, position in rows]], schema=schema), local)
    lower = {PATH_ID: min(paths).encode()} if bounds else {}
    upper = {PATH_ID: max(paths).encode()} if bounds else {}
    metrics = FileMetrics(key, len(rows), {}, {}, {}, {}, lower, upper, (4,))
    return NewFile(place, len(table.io.new_input(place)), metrics, content=1)


def delete_positions(
    table: Table, places: Mapping[str, Sequence[int]], *, together: bool = False, bounds: bool = True
) -> int:
    """Commit position deletes: one file per data file, or ``together`` one per partition."""
    live = files_of(sk.Table(table))
    numbers = {path: at for at, path in enumerate(live.paths.to_pylist())}
    parts: dict[Any, list[tuple[str, int]]] = {}
    for path, positions in places.items():
        key = live.keys[live.partitions[numbers[path]]]
        part = parts.setdefault((key, None if together else path), [])
        part += [(path, position) for position in positions]
    files = [position_file(table, key, rows, bounds=bounds) for (key, _), rows in parts.items()]
    work = Producer(table, Target.of(table), tuple(files), frozenset(), {}, "main", Operation.DELETE)
    number = publish(work, lambda: None)
    assert number is not None
    return number


class _EqualityDelete(Producer):
    """Commits one equality delete file."""

    __slots__ = ("key", "made")

    made: DataFile
    key: PartitionKey

    def _added(self) -> list[ManifestFile]:
        entry = ManifestEntry.from_args(
            status=ManifestEntryStatus.ADDED,
            snapshot_id=self.number,
            sequence_number=self.sequence,
            file_sequence_number=None,
            data_file=self.made,
        )
        spec = self.table.metadata.specs()[self.key.spec_id]
        return self._manifests([entry], spec, ManifestContent.DELETES)


def delete_equal(
    table: Table, column: str, values: Sequence[Any], key: PartitionKey, *, sequence: int | None = None
) -> int:
    """Commit the deletion of all older rows of a partition with one of these values."""
    field = table.schema().find_field(column)
    stored = Target.of(table).schema.field(column)
    place = f"{table.location()}/data/{uuid.uuid4()}-equality.parquet"
    pq.write_table(pa.table([values], schema=pa.schema([stored])), place.removeprefix("file://"))
    work = _EqualityDelete(
        table, Target.of(table), (), frozenset(), {}, "main", Operation.DELETE, sequence=sequence
    )
    spec = table.metadata.specs()[key.spec_id]
    work.key = key
    work.made = DataFile.from_args(
        content=DataFileContent.EQUALITY_DELETES,
        file_path=place,
        file_format=FileFormat.PARQUET,
        partition=Record(*(key.partition or (None,) * len(spec.fields))),
        record_count=len(values),
        file_size_in_bytes=len(table.io.new_input(place)),
        column_sizes={},
        value_counts={},
        null_value_counts={},
        nan_value_counts={},
        lower_bounds={},
        upper_bounds={},
        key_metadata=None,
        split_offsets=[4],
        equality_ids=[field.field_id],
        sort_order_id=None,
    )
    work.made.spec_id = key.spec_id
    table.refresh()
    updates, requirements = work.updates()
    table._do_commit(updates, requirements)
    return work.number
