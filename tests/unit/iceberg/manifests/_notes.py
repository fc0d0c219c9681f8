"""Manifests as they are written, and notes of them."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, LongType, NestedField, StringType, TimestampType

from skipstone.iceberg.manifests.lists import ManifestInfo

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "ts", TimestampType(), required=False),
    NestedField(3, "name", StringType(), required=False),
    NestedField(4, "x", DoubleType(), required=False),
)
SPEC = PartitionSpec(
    PartitionField(2, 1000, DayTransform(), "ts_day"),
    PartitionField(3, 1001, IdentityTransform(), "name"),
    spec_id=3,
)
PLAIN = PartitionSpec(spec_id=0)
IO = PyArrowFileIO()


def note_of(data: bytes = b"", **given: Any) -> ManifestInfo:
    defaults: dict[str, Any] = {"spec_id": 0, "sequence": 7, "snapshot": 70}
    return ManifestInfo("m.avro", len(data), **(defaults | given))


def _bounds(rng: random.Random) -> dict[int, bytes]:
    found = {
        1: struct.pack("<q", rng.randint(-(10**12), 10**12)),
        2: struct.pack("<q", rng.randint(0, 10**15)),
        3: b"n" * rng.randint(0, 16),
        4: struct.pack("<d", rng.random()),
    }
    return {i: b for i, b in found.items() if rng.random() < 0.8}


def _counts(rng: random.Random, top: int) -> dict[int, int]:
    return {i: rng.randint(0, top) for i in (1, 2, 3, 4) if rng.random() < 0.9}


def _data_file(rng: random.Random, number: int) -> DataFile:
    rows = rng.randint(0, 10**6)
    name = rng.choice([None, "a", "é", "long" * 30])
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"s3://bucket/{'d' * rng.randint(1, 90)}/{number}.parquet",
        file_format=rng.choice([FileFormat.PARQUET, FileFormat.ORC]),
        partition=Record(rng.randint(-3, 3), name),
        record_count=rows,
        file_size_in_bytes=rng.randint(0, 2**40),
        column_sizes={1: 5},
        value_counts=rng.choice([None, {}, _counts(rng, rows)]),
        null_value_counts=_counts(rng, rows),
        nan_value_counts={4: 0},
        lower_bounds=_bounds(rng),
        upper_bounds=rng.choice([None, _bounds(rng)]),
        split_offsets=[4, 99999] if rng.random() < 0.5 else None,
        sort_order_id=rng.choice([None, 0, 3]),
    )


def manifest_of(path: Path, version: int, codec: str, files: int, seed: int = 1) -> ManifestFile:
    """A manifest by pyiceberg's writer, with entries of every status."""
    rng = random.Random(seed)
    output = IO.new_output(str(path))
    with write_manifest(version, SPEC, SCHEMA, output, 70, codec) as writer:  # type: ignore[arg-type]
        for number in range(files):
            status = rng.choice(list(ManifestEntryStatus))
            added = status is ManifestEntryStatus.ADDED
            kept = None if added and rng.random() < 0.5 else rng.randint(1, 6)
            entry = ManifestEntry.from_args(
                status=status,
                snapshot_id=70 if added or version == 1 else rng.randint(1, 2**60),
                sequence_number=kept,
                file_sequence_number=kept,
                data_file=_data_file(rng, number),
            )
            writer.add_entry(entry)
    made = writer.to_manifest_file()
    made.sequence_number = 0 if version == 1 else 7
    return made


def av_schema(data: bytes) -> bytes:
    from skipstone.iceberg.manifests.avro import read_container

    return read_container(data).meta["avro.schema"]
