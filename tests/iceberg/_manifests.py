"""Manifests and manifest lists of all three versions of the format, written by hand."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.iceberg import _avro
from tests.iceberg._metrics import Metrics, decimal_bytes
from tests.iceberg._specs import Spec, SpecField
from tests.iceberg._types import Field, field_json, numbers, to_bytes, unscaled

EXISTING, ADDED, DELETED = 0, 1, 2
DATA, POSITIONS, EQUALITY = 0, 1, 2
_DISPENSABLE = (108, 137, 131, 132, 140)
"""Ids of fields that not every writer has."""
CODECS = ("null", "deflate", "deflate")
ODD_CODECS = (*CODECS, "zstandard", "snappy")


@dataclass(frozen=True, eq=False)
class File:
    """A data or delete file, as manifests know it."""

    path: str
    place: Path
    content: int
    spec: Spec
    partition: tuple[Any, ...]
    records: int
    size: int
    metrics: Metrics
    format: str = "PARQUET"
    equality_ids: tuple[int, ...] = ()
    referenced: str | None = None
    offset: int | None = None
    length: int | None = None
    words: str = ""


@dataclass(frozen=True)
class Entry:
    """A file in a manifest."""

    status: int
    file: File
    sequence: int
    snapshot: int
    first_row: int | None = None


@dataclass(frozen=True)
class Manifest:
    """A written manifest."""

    path: str
    length: int
    spec: Spec
    content: int
    sequence: int
    snapshot: int
    entries: tuple[Entry, ...]
    summaries: tuple[dict[str, Any], ...] | None
    first_row: int | None = None
    counted: bool = True

    @property
    def live(self) -> tuple[Entry, ...]:
        return tuple(e for e in self.entries if e.status != DELETED)


@dataclass
class Clerk:
    """Writes metadata files in a folder, in the many shapes that readers must take."""

    folder: Path
    prefix: str
    version: int
    rng: random.Random
    odd: bool = False
    list_block: int = 1000
    """How many manifests a block of a manifest list holds."""
    """Whether to write what Avro allows and pyiceberg doesn't read."""
    written: int = field(default=0)

    @property
    def codecs(self) -> tuple[str, ...]:
        return ODD_CODECS if self.odd else CODECS

    def manifest(
        self,
        entries: Sequence[Entry],
        schema: Sequence[Field],
        snapshot: int,
        sequence: int,
        schema_id: int = 0,
    ) -> Manifest:
        """Write one manifest: its entries share a spec and a kind of content."""
        spec, content = entries[0].file.spec, min(entries[0].file.content, 1)
        assert all(e.file.spec.id == spec.id and min(e.file.content, 1) == content for e in entries)
        rng = self.rng
        shape = _Shape(self.version, spec, rng, self.odd)
        meta = {
            "schema": json.dumps(
                {"type": "struct", "schema-id": schema_id, "fields": [field_json(f) for f in schema]}
            ),
            "schema-id": str(schema_id),
            "partition-spec": json.dumps(spec.to_json()),
            "partition-spec-id": str(spec.id),
            "format-version": str(self.version),
        }
        if self.version > 1:
            meta["content"] = "deletes" if content else "data"
        records = [shape.record(e, inherit=(e.snapshot, e.sequence) == (snapshot, sequence)) for e in entries]
        name = f"{snapshot:x}-m{self.written}.avro"
        self.written += 1
        length = _avro.write(
            self.folder / name,
            shape.entry,
            records,
            meta,
            codec=rng.choice(self.codecs),
            block=rng.choice([1, 3, 1000]),
        )
        summaries = None if rng.random() < 0.1 and self.version == 1 else _summaries(spec, entries, rng)
        return Manifest(
            f"{self.prefix}/{name}",
            length,
            spec,
            content,
            sequence,
            snapshot,
            tuple(entries),
            summaries,
            counted=rng.random() < 0.7,
        )

    def manifest_list(
        self, manifests: Sequence[Manifest], snapshot: int, parent: int | None, sequence: int
    ) -> str:
        """Write a list of manifests; its location."""
        meta = {
            "snapshot-id": str(snapshot),
            "parent-snapshot-id": "null" if parent is None else str(parent),
            "format-version": str(self.version),
        }
        if self.version > 1:
            meta["sequence-number"] = str(sequence)
        name = f"snap-{snapshot}-{self.written}.avro"
        self.written += 1
        records = [_list_record(m, self.version) for m in manifests]
        codec = self.rng.choice(self.codecs)
        schema = _list_schema(self.version)
        _avro.write(self.folder / name, schema, records, meta, codec=codec, block=self.list_block)
        return f"{self.prefix}/{name}"


# -- manifests ---------------------------------------------------------------------------------


def _field(name: str, id: int, type: Any) -> dict[str, Any]:
    return {"name": name, "type": type, "field-id": id}


def _optional(name: str, id: int, type: Any) -> dict[str, Any]:
    return {"name": name, "type": ["null", type], "default": None, "field-id": id}


def _map(key_id: int, value_id: int, value: str, rng: random.Random) -> dict[str, Any]:
    fields = [_field("key", key_id, "int"), _field("value", value_id, value)]
    record = {"type": "record", "name": f"k{key_id}_v{value_id}", "fields": fields}
    made = {"type": "array", "items": record, "logicalType": "map"}
    return made | ({"sized": True} if rng.random() < 0.2 else {})


class _Shape:
    """The Avro schema of one manifest, and records of it."""

    def __init__(self, version: int, spec: Spec, rng: random.Random, odd: bool) -> None:
        self.version = version
        self.spec = spec
        self.names = [_avro_name(f.name) for f in spec.fields]
        parts = []
        for name, f in zip(self.names, spec.fields, strict=True):
            made = _optional(name, f.id, avro_type(f, rng))
            if odd and rng.random() < 0.3:
                made["type"].reverse()
                del made["default"]
            parts.append(made)
        longs = rng.choice(["int", "long"])  # other writers widen the ids of equality columns
        fields = [
            _field("file_path", 100, "string"),
            _field("file_format", 101, "string"),
            _field("partition", 102, {"type": "record", "name": "r102", "fields": parts}),
            _field("record_count", 103, "long"),
            _field("file_size_in_bytes", 104, "long"),
            *([_field("block_size_in_bytes", 105, "long")] if version == 1 else []),
            _optional("column_sizes", 108, _map(117, 118, "long", rng)),
            _optional("value_counts", 109, _map(119, 120, "long", rng)),
            _optional("null_value_counts", 110, _map(121, 122, "long", rng)),
            _optional("nan_value_counts", 137, _map(138, 139, "long", rng)),
            _optional("lower_bounds", 125, _map(126, 127, "bytes", rng)),
            _optional("upper_bounds", 128, _map(129, 130, "bytes", rng)),
            _optional("key_metadata", 131, "bytes"),
            _optional("split_offsets", 132, {"type": "array", "items": "long", "element-id": 133}),
        ]
        if version > 1:
            fields.insert(0, _field("content", 134, "int"))
            ids = {"type": "array", "items": longs, "element-id": 136}
            fields.append(_optional("equality_ids", 135, ids))
        fields.append(_optional("sort_order_id", 140, "int"))
        if version > 1:
            fields.append(_optional("referenced_data_file", 143, "string"))
        if version > 2:
            fields.append(_optional("first_row_id", 142, "long"))
            fields += [
                _optional("content_offset", 144, "long"),
                _optional("content_size_in_bytes", 145, "long"),
            ]
        if odd and rng.random() < 0.5:  # writers of other times know less, or more
            fields = [f for f in fields if f["field-id"] not in _DISPENSABLE or rng.random() < 0.6]
            fields.insert(
                rng.randrange(len(fields)), _field("surprise", 999, {"type": "array", "items": "string"})
            )
        data = {"type": "record", "name": "r2", "fields": fields}
        self.entry = {"type": "record", "name": "manifest_entry", "fields": [_field("status", 0, "int")]}
        if version == 1:
            self.entry["fields"].append(_field("snapshot_id", 1, "long"))
        else:
            self.entry["fields"] += [
                _optional("snapshot_id", 1, "long"),
                _optional("sequence_number", 3, "long"),
                _optional("file_sequence_number", 4, "long"),
            ]
        nullable = odd and rng.random() < 0.3
        self.entry["fields"].append((_optional if nullable else _field)("data_file", 2, data))
        self.rng = rng

    def record(self, entry: Entry, *, inherit: bool) -> dict[str, Any]:
        """An entry; what the commit decides may be left to it."""
        rng = self.rng
        left = inherit and entry.status == ADDED and rng.random() < 0.7
        file = entry.file
        metrics = file.metrics
        values = {
            name: avro_value(f, value)
            for name, f, value in zip(self.names, self.spec.fields, file.partition, strict=True)
        }
        data = {
            "content": file.content,
            "file_path": file.path,
            "file_format": rng.choice([file.format, file.format.lower()])
            if self.version == 1
            else file.format,
            "partition": values,
            "record_count": file.records,
            "file_size_in_bytes": file.size,
            "block_size_in_bytes": 64 * 1024 * 1024,
            "column_sizes": _pairs(metrics.sizes),
            "value_counts": _pairs(metrics.values),
            "null_value_counts": _pairs(metrics.nulls),
            "nan_value_counts": _pairs(metrics.nans),
            "lower_bounds": _pairs(metrics.lower),
            "upper_bounds": _pairs(metrics.upper),
            "key_metadata": None,
            "split_offsets": [4] if file.format == "PARQUET" else None,
            "equality_ids": [*file.equality_ids] if file.equality_ids else None,
            "sort_order_id": None,
            "referenced_data_file": file.referenced,
            "first_row_id": None if left else entry.first_row,
            "content_offset": file.offset,
            "content_size_in_bytes": file.length,
            "surprise": ["x" * n for n in range(rng.randrange(4))],
        }
        return {
            "status": entry.status,
            "snapshot_id": entry.snapshot if self.version == 1 or not left else None,
            "sequence_number": None if left else entry.sequence,
            "file_sequence_number": None if left else entry.sequence,
            "data_file": data,
        }


def _pairs(found: dict[int, Any] | None) -> list[dict[str, Any]] | None:
    return None if found is None else [{"key": key, "value": value} for key, value in found.items()]


def _avro_name(name: str) -> str:
    safe = re.sub(r"[^A-Za-z0-9_]", lambda m: f"_x{ord(m[0]):X}", name)
    return safe if re.match("[A-Za-z_]", safe) else f"_{safe}"


def avro_type(f: SpecField, rng: random.Random) -> Any:
    """The Avro type of a partition value."""
    type = f.type
    if type == "date":
        return rng.choice(["int", {"type": "int", "logicalType": "date"}])
    if type == "time":
        return {"type": "long", "logicalType": "time-micros"}
    if type.startswith("timestamp"):
        unit = "nanos" if type.endswith("_ns") else "micros"
        return {"type": "long", "logicalType": f"timestamp-{unit}", "adjust-to-utc": "tz" in type}
    if type == "uuid":
        return {"type": "fixed", "name": f"uuid_fixed_{f.id}", "size": 16, "logicalType": "uuid"}
    if type.startswith("fixed"):
        return {"type": "fixed", "name": f"fixed_{f.id}", "size": numbers(type)[0]}
    if type.startswith("decimal"):
        precision, scale = numbers(type)
        named = {"name": f"decimal_{f.id}", "size": decimal_bytes(type)}
        return {"type": "fixed", "logicalType": "decimal", "precision": precision, "scale": scale} | named
    return "bytes" if type == "binary" else type


def avro_value(f: SpecField, value: Any) -> Any:
    if value is not None and f.type.startswith("decimal"):
        return unscaled(f.type, value).to_bytes(decimal_bytes(f.type), "big", signed=True)
    return value


# -- lists -------------------------------------------------------------------------------------


def _list_schema(version: int) -> dict[str, Any]:
    summary = {
        "type": "record",
        "name": "r508",
        "fields": [
            _field("contains_null", 509, "boolean"),
            _optional("contains_nan", 518, "boolean"),
            _optional("lower_bound", 510, "bytes"),
            _optional("upper_bound", 511, "bytes"),
        ],
    }
    head = [
        _field("manifest_path", 500, "string"),
        _field("manifest_length", 501, "long"),
        _field("partition_spec_id", 502, "int"),
    ]
    partitions = _optional("partitions", 507, {"type": "array", "items": summary, "element-id": 508})
    counts = [
        ("added_files_count", 504, "int"),
        ("existing_files_count", 505, "int"),
        ("deleted_files_count", 506, "int"),
        ("added_rows_count", 512, "long"),
        ("existing_rows_count", 513, "long"),
        ("deleted_rows_count", 514, "long"),
    ]
    if version == 1:
        body = [_field("added_snapshot_id", 503, "long"), *(_optional(*c) for c in counts)]
        fields = [*head, *body, partitions, _optional("key_metadata", 519, "bytes")]
    else:
        body = [
            _field("content", 517, "int"),
            _field("sequence_number", 515, "long"),
            _field("min_sequence_number", 516, "long"),
            _field("added_snapshot_id", 503, "long"),
            *(_field(*c) for c in counts),
        ]
        fields = [*head, *body, partitions, _optional("key_metadata", 519, "bytes")]
    if version > 2:
        fields.append(_optional("first_row_id", 520, "long"))
    return {"type": "record", "name": "manifest_file", "fields": fields}


def _list_record(manifest: Manifest, version: int) -> dict[str, Any]:
    by = {s: [e.file.records for e in manifest.entries if e.status == s] for s in (EXISTING, ADDED, DELETED)}
    counts = {
        "added_files_count": len(by[ADDED]),
        "existing_files_count": len(by[EXISTING]),
        "deleted_files_count": len(by[DELETED]),
        "added_rows_count": sum(by[ADDED]),
        "existing_rows_count": sum(by[EXISTING]),
        "deleted_rows_count": sum(by[DELETED]),
    }
    live = [e.sequence for e in manifest.live]
    return {
        "manifest_path": manifest.path,
        "manifest_length": manifest.length,
        "partition_spec_id": manifest.spec.id,
        "content": manifest.content,
        "sequence_number": manifest.sequence,
        "min_sequence_number": min(live, default=manifest.sequence),
        "added_snapshot_id": manifest.snapshot,
        **(counts if manifest.counted or version > 1 else dict.fromkeys(counts)),
        "partitions": None if manifest.summaries is None else list(manifest.summaries),
        "key_metadata": None,
        "first_row_id": manifest.first_row,
    }


def _summaries(spec: Spec, entries: Sequence[Entry], rng: random.Random) -> tuple[dict[str, Any], ...]:
    found = []
    for at, f in enumerate(spec.fields):
        values = [e.file.partition[at] for e in entries]
        plain = [v for v in values if v is not None and v == v]
        type = "int" if f.type == "date" else f.type
        low, high = (min(plain), max(plain)) if plain else (None, None)
        if plain and f.type == "string":
            low, high = min(plain, key=str.encode), max(plain, key=str.encode)
        nan = any(v != v for v in values)
        known = f.type in ("float", "double") and rng.random() < 0.7
        found.append(
            {
                "contains_null": None in values,
                "contains_nan": nan if known else None,
                "lower_bound": None if low is None else to_bytes(type, low),
                "upper_bound": None if high is None else to_bytes(type, high),
            }
        )
    return tuple(found)
