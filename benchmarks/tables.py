"""Iceberg metadata of tables whose data files don't exist: made once under ``.bench/``, then reused.

pyiceberg's own writers make the manifests (deflate, a block for each entry), so that it reads its own format.
Ten columns have metrics. Files come day after day, a commit for each manifest; the first fifth was written
under an older partition spec, ``bucket(16, id)``, the rest under ``day(ts)``. Each file owns a range of ids
and one of sessions, in no order; the other columns have the same wide range in all files. The same data
manifests serve two tables: one without and one with position deletes, written after all data.
"""

from __future__ import annotations

import itertools
import shutil
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
from pyiceberg.conversions import to_bytes
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
    ManifestWriterV2,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import BucketTransform, DayTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, LongType, NestedField, StringType, TimestampType, TimestamptzType
from rich.console import Console

STEP = 1_000
"""Ids and sessions that each file owns."""
FIRST_DAY = datetime(2026, 1, 1, tzinfo=UTC)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = 86_400_000_000
_ROWS, _BUCKETS, _PATH_ID = 100_000, 16, 2147483546
_ID, _TS = 1, 2
SCHEMA = Schema(
    NestedField(_ID, "id", LongType(), required=True),
    NestedField(_TS, "ts", TimestamptzType(), required=True),
    NestedField(3, "user_id", LongType()),
    NestedField(4, "session", StringType()),
    NestedField(5, "kind", StringType()),
    NestedField(6, "amount", DoubleType()),
    NestedField(7, "score", DoubleType()),
    NestedField(8, "seen", TimestampType()),
    NestedField(9, "host", StringType()),
    NestedField(10, "size", LongType()),
)
_TYPES = {field.field_id: field.field_type for field in SCHEMA.fields}
_OLD = PartitionSpec(PartitionField(_ID, 1000, BucketTransform(_BUCKETS), "id_bucket"), spec_id=0)
_NEW = PartitionSpec(PartitionField(_TS, 1001, DayTransform(), "ts_day"), spec_id=1)
_SPECS = (_OLD, _NEW)
_FILE, _RANGE, _PARTITION = "file", "range", "partition"
_REACH = 20
"""Of a partition's paths, the share that a delete file with a range of them may name."""


def session_of(position: int) -> str:
    """The session at a position; they are in the same order."""
    return f"s{position:014x}"


@dataclass(frozen=True, slots=True)
class TableShape:
    """What a table has; ``scopes`` are taken in turns by its delete files."""

    files: int
    manifests: int
    days: int
    older: int = 5
    """One in so many files was written under the older spec; 0 for none."""
    deletes: int = 100
    scopes: tuple[str, ...] = (_FILE, _RANGE, _PARTITION)
    """By the bounds of their paths: of one file, of a range of files, or of none, for all of a partition."""

    @property
    def name(self) -> str:
        """For the folder."""
        scopes = "".join(scope[0] for scope in self.scopes)
        return f"{self.files}-{self.manifests}-{self.days}-{self.older}-{self.deletes}{scopes}"

    def day(self, file: int) -> int:
        """Which day a file is of."""
        return file * self.days // self.files


def evolved(files: int, manifests: int) -> TableShape:
    """Files of 200 days, at least five of each."""
    return TableShape(files, manifests, min(200, max(files // 5, 1)))


def crowded(files: int, deletes: int, *, ranges: bool) -> TableShape:
    """All files in one partition, with all deletes; each names a range of paths, or none."""
    return TableShape(files, 5, 1, 0, deletes, (_RANGE if ranges else _PARTITION,))


@dataclass(frozen=True, slots=True)
class Made:
    """The metadata files of a table, with and without deletes."""

    shape: TableShape
    folder: Path

    def metadata(self, *, deletes: bool) -> str:
        """One of the two."""
        return str(self.folder / f"{'deletes' if deletes else 'plain'}.metadata.json")

    @property
    def metadata_bytes(self) -> int:
        """What the manifests weigh."""
        return sum(path.stat().st_size for path in self.folder.glob("*.avro"))


def made_table(shape: TableShape, seed: int, data: Path, console: Console) -> Made:
    """The table, made if it is not there; its last metadata file is written last."""
    folder = data / f"iceberg-metadata-{shape.name}-{seed}"
    made = Made(shape, folder)
    if not Path(made.metadata(deletes=True)).exists():
        console.print(f"making {folder.name} …", style="dim")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _Maker(shape, folder, seed).make(made)
    return made


# -- entries -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Placed:
    """A data file as deletes see it."""

    path: str
    spec: PartitionSpec
    partition: int


class _DeleteWriter(ManifestWriterV2):
    """Manifests of delete files, for which pyiceberg has no writer."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _Maker:
    """Writes one table."""

    def __init__(self, shape: TableShape, folder: Path, seed: int) -> None:
        self.shape, self.folder = shape, folder
        self.rng = np.random.default_rng((seed, shape.files))
        self.io: FileIO = PyArrowFileIO()
        self.ids = self.rng.permutation(shape.files).tolist()
        self.sessions = self.rng.permutation(shape.files).tolist()
        self.field_paths: list[_Placed] = []

    def make(self, made: Made) -> None:
        """The manifests of data, then the two tables."""
        data = [self._data_manifest(number, files) for number, files in enumerate(self._groups())]
        deletes = [
            self._delete_manifest(len(data) + number, spec, files)
            for number, (spec, files) in enumerate(self._deletes())
        ]
        for name, manifests in (("plain", data), ("deletes", [*data, *deletes])):
            metadata = self._metadata(name, manifests)
            Path(made.metadata(deletes=name == "deletes")).write_text(metadata.model_dump_json())

    def _groups(self) -> Iterator[tuple[PartitionSpec, range]]:
        """The files of each manifest, all of one spec."""
        files, manifests = self.shape.files, self.shape.manifests
        older = files // self.shape.older if self.shape.older else 0
        first = max(manifests // self.shape.older, 1) if older else 0
        for spec, start, stop, count in (
            (_OLD, 0, older, first),
            (_NEW, older, files, manifests - first),
        ):
            edges = np.linspace(start, stop, count + 1).astype(int).tolist()
            yield from ((spec, range(*edge)) for edge in itertools.pairwise(edges))

    def _data_manifest(self, number: int, group: tuple[PartitionSpec, range]) -> ManifestFile:
        spec, files = group
        output = self.io.new_output(str(self.folder / f"manifest-{number:05d}.avro"))
        writer = write_manifest(2, spec, SCHEMA, output, number + 1, "deflate")
        return _written(writer, number + 1, [self._data_file(file, spec) for file in files])

    def _data_file(self, file: int, spec: PartitionSpec) -> DataFile:
        shape, rng = self.shape, self.rng
        day = (FIRST_DAY - _EPOCH).days + shape.day(file)
        partition = int(rng.integers(_BUCKETS)) if spec is _OLD else day
        label = f"id_bucket={partition}" if spec is _OLD else f"ts_day={_date(partition)}"
        path = f"{self.folder}/data/{label}/{file:07d}-{rng.bytes(16).hex()}.parquet"
        self.field_paths.append(_Placed(path, spec, partition))
        margin = rng.integers(0, 60_000_000, 2).tolist()
        ids, sessions = self.ids[file] * STEP, self.sessions[file] * STEP
        bounds: dict[int, tuple[Any, Any]] = {
            _ID: (ids, ids + STEP - 1),
            _TS: (day * _DAY + margin[0], (day + 1) * _DAY - 1 - margin[1]),
            3: (margin[0], 10**12 + margin[1]),
            4: (session_of(sessions), session_of(sessions + STEP - 1)),
            5: ("cart", "view"),
            6: (margin[0] / 1e9, 1_000 - margin[1] / 1e9),
            7: (-1.0, 1.0),
            8: (day * _DAY + margin[1], (day + 30) * _DAY),
            9: (f"a{margin[0]:08x}", f"z{margin[1]:08x}"),
            10: (1, 1 << 20),
        }
        nulls = rng.integers(0, 1_000, len(bounds)).tolist()
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=path,
            file_format=FileFormat.PARQUET,
            partition=Record(partition),
            record_count=_ROWS,
            file_size_in_bytes=8_000_000 + margin[0],
            column_sizes={number: 600_000 + nulls[number - 1] for number in bounds},
            value_counts=dict.fromkeys(bounds, _ROWS),
            null_value_counts={n: 0 if n in (_ID, _TS) else nulls[n - 1] for n in bounds},
            nan_value_counts={6: 0, 7: 0},
            lower_bounds={number: to_bytes(_TYPES[number], pair[0]) for number, pair in bounds.items()},
            upper_bounds={number: to_bytes(_TYPES[number], pair[1]) for number, pair in bounds.items()},
            split_offsets=[4],
            sort_order_id=0,
            spec_id=spec.spec_id,
        )

    # -- deletes -----------------------------------------------------------------------------

    def _deletes(self) -> Iterator[tuple[PartitionSpec, list[DataFile]]]:
        """Delete files by spec: a fifth under the older, each spec's among some of its partitions."""
        shape = self.shape
        older = shape.deletes // shape.older if shape.older else 0
        scopes = itertools.cycle(shape.scopes)
        for spec, count in zip(_SPECS, (older, shape.deletes - older), strict=True):
            partitions: dict[int, list[str]] = defaultdict(list)
            for file in self.field_paths:
                if file.spec is spec:
                    partitions[file.partition].append(file.path)
            if not count or not partitions:
                continue
            # Several in each partition that has any.
            touched = self.rng.choice(sorted(partitions), min(len(partitions), max(count // 4, 1)), False)
            chosen = itertools.islice(itertools.cycle(touched.tolist()), count)
            files = [self._delete_file(spec, n, sorted(partitions[n]), next(scopes)) for n in chosen]
            yield spec, files

    def _delete_file(self, spec: PartitionSpec, partition: int, paths: Sequence[str], scope: str) -> DataFile:
        first = int(self.rng.integers(len(paths)))
        reach = {_FILE: 0, _RANGE: max(len(paths) // _REACH, 1)}.get(scope)
        named = {}
        if reach is not None:
            pair = (paths[first], paths[min(first + reach, len(paths) - 1)])
            named = {
                name: {_PATH_ID: path.encode()}
                for name, path in zip(("lower_bounds", "upper_bounds"), pair, strict=True)
            }
        rows = 1 + int(self.rng.integers(1_000))
        return DataFile.from_args(
            content=DataFileContent.POSITION_DELETES,
            file_path=f"{self.folder}/data/deletes-{partition}-{self.rng.bytes(16).hex()}.parquet",
            file_format=FileFormat.PARQUET,
            partition=Record(partition),
            record_count=rows,
            file_size_in_bytes=2_000 + rows,
            value_counts={_PATH_ID: rows},
            null_value_counts={_PATH_ID: 0},
            spec_id=spec.spec_id,
            **named,
        )

    def _delete_manifest(self, number: int, spec: PartitionSpec, files: Sequence[DataFile]) -> ManifestFile:
        output = self.io.new_output(str(self.folder / f"deletes-{number:05d}.avro"))
        writer = _DeleteWriter(spec, SCHEMA, output, number + 1, "deflate")
        return _written(writer, number + 1, files)

    # -- tables ------------------------------------------------------------------------------

    def _metadata(self, name: str, manifests: Sequence[ManifestFile]) -> TableMetadataV2:
        last = len(manifests)
        location = str(self.folder / f"snap-{name}.avro")
        with write_manifest_list(2, self.io.new_output(location), last, None, last, "deflate") as writer:
            writer.add_manifests(list(manifests))
        snapshot = Snapshot(
            snapshot_id=last,
            sequence_number=last,
            timestamp_ms=int(FIRST_DAY.timestamp() * 1000),
            manifest_list=location,
            summary=Summary(Operation.APPEND),
            schema_id=0,
        )
        return TableMetadataV2(
            table_uuid=UUID(int=len(name)),
            location=str(self.folder),
            last_updated_ms=snapshot.timestamp_ms,
            last_column_id=len(SCHEMA.fields),
            schemas=[SCHEMA],
            current_schema_id=SCHEMA.schema_id,
            partition_specs=list(_SPECS),
            default_spec_id=_NEW.spec_id,
            last_partition_id=1001,
            sort_orders=[UNSORTED_SORT_ORDER],
            default_sort_order_id=UNSORTED_SORT_ORDER.order_id,
            snapshots=[snapshot],
            current_snapshot_id=last,
            last_sequence_number=last,
        )


def _written(writer: ManifestWriter, commit: int, files: Sequence[DataFile]) -> ManifestFile:
    """A manifest of new files, as the commit of that number wrote it; they inherit its sequence number."""
    with writer:
        for file in files:
            entry = ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, data_file=file)
            writer.add(entry)
    made = writer.to_manifest_file()
    made.sequence_number = made.min_sequence_number = commit
    return made


def _date(day: int) -> str:
    return f"{_EPOCH + timedelta(days=day):%Y-%m-%d}"
