"""Manifest files: live entries as columns, with inherited values; cached per process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, compress
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.transforms import VoidTransform

from skipstone.core.evidence import Array
from skipstone.engine.jobs import gather
from skipstone.errors import CorruptFileError, SchemaError, UsageError
from skipstone.iceberg.manifests.avro import (
    AvroError,
    AvroFile,
    AvroNode,
    parse_schema,
    read_container,
    read_value,
)
from skipstone.iceberg.manifests.entries import (
    MAPS,
    Entries,
    ManifestPart,
    RawMetrics,
    decode_numbers,
    joined,
    sort_keys,
)
from skipstone.iceberg.manifests.lists import HINT, ManifestInfo
from skipstone.iceberg.manifests.slices import FieldSlice, SliceForm, Slicer
from skipstone.iceberg.partitions.values import PartitionKey, is_unpartitioned
from skipstone.store.cache import Cache

# -- many manifests ----------------------------------------------------------------------------

_CACHE_BYTES = 512 << 20
# Compressed bytes of manifests fetched in parallel before they are decoded.
_FETCHED_BYTES = 64 << 20
# A few thousand entries: larger batches are not faster, and are held until all manifests are released.
_BATCH_BYTES = 1 << 20

_cache: Cache[tuple[Any, ...], ManifestPart] = Cache(_CACHE_BYTES)


class Manifests:
    """Reads manifests in parallel; they are immutable, so the process caches them."""

    def __init__(
        self, read: Callable[[str], bytes], specs: Mapping[int, PartitionSpec], *, threads: int = 8
    ) -> None:
        self._read = read
        self._specs = specs
        self._threads = threads
        self._shapes = {spec_id: str(spec) for spec_id, spec in specs.items()}

    def entries(self, infos: Sequence[ManifestInfo]) -> Entries:
        """Live entries of all manifests, concatenated in order."""
        return joined(self.each(infos))

    def each(self, infos: Sequence[ManifestInfo]) -> list[ManifestPart]:
        """Live entries of each manifest."""
        names = [self._name(info) for info in infos]
        parts = {name: part for name in names if (part := _cache.get(name)) is not None}
        missing = {name: info for name, info in zip(names, infos, strict=True) if name not in parts}
        batch, weight = None, 0.0
        for name, part in zip(missing, self._fresh([*missing.values()]), strict=True):
            if part.batch is not batch:
                batch, weight = part.batch, part.batch.nbytes / max(len(part.batch), 1)
            _cache.put(name, part, 1000 + int(weight * len(part)))
            parts[name] = part
        return [parts[name] for name in names]

    def _fresh(self, infos: Sequence[ManifestInfo]) -> Iterator[ManifestPart]:
        for some in _portions(infos, _FETCHED_BYTES):
            data = gather(self._read, [info.path for info in some], threads=self._threads)
            bodies = dict(zip(some, data, strict=True))
            batches = [[(info, bodies[info]) for info in batch] for batch in _portions(some, _BATCH_BYTES)]
            read = gather(lambda batch: _read_batch(batch, self._specs), batches, threads=self._threads)
            yield from chain.from_iterable(read)

    def _name(self, info: ManifestInfo) -> tuple[Any, ...]:
        # Entries inherit values from the manifest list, and a spec id can be reused.
        inherited = (info.sequence, info.snapshot, info.first_row_id, info.content)
        return (info.path, info.length, info.spec_id, self._shapes.get(info.spec_id), *inherited)


def _portions(infos: Sequence[ManifestInfo], size: int) -> Iterator[Sequence[ManifestInfo]]:
    """Runs of manifests of at most ``size`` bytes, or of one manifest."""
    first = total = 0
    for number, info in enumerate(infos):
        total += info.length
        if total > size and number > first:
            yield infos[first:number]
            first, total = number, info.length
    if first < len(infos):
        yield infos[first:]


def clear_cache() -> None:
    """Drop all cached manifests and compiled patterns."""
    _cache.clear()
    slicer_of.cache_clear()


# -- manifests of one batch --------------------------------------------------------------------


def read_manifest(data: bytes, info: ManifestInfo, specs: Mapping[int, PartitionSpec]) -> Entries:
    """Live entries of a manifest, with the values they inherit from the manifest list."""
    return _read_batch([(info, data)], specs)[0].entries


def _read_batch(
    bodies: Sequence[tuple[ManifestInfo, bytes]], specs: Mapping[int, PartitionSpec]
) -> list[ManifestPart]:
    """Live entries of manifests; those of one schema and spec are decoded together."""
    headers: dict[bytes, Mapping[str, bytes]] = {}
    groups: dict[tuple[int, bytes], list[int]] = {}
    containers: list[AvroFile] = []
    for number, (info, data) in enumerate(bodies):
        if info.spec_id not in specs:
            available = ", ".join(map(str, sorted(specs))) or "none"
            raise SchemaError(
                f"table metadata has no partition spec {info.spec_id} (available: {available})",
                path=info.path,
                unit=f"partition spec {info.spec_id}",
                hint="check whether the metadata is damaged or belongs to another table",
            )
        if info.added_files is None and len(data) < info.length:
            # With file counts, those reveal truncation; a wrong length alone is no reason to fail.
            raise _corrupt(info, f"file is truncated to {len(data):,} of {info.length:,} bytes")
        try:
            container = read_container(data, headers)
            groups.setdefault((info.spec_id, container.schema), []).append(number)
        except (AvroError, RecursionError) as error:
            raise _corrupt(info, error) from None
        containers.append(container)
    parts: dict[int, ManifestPart] = {}
    for (spec_id, _), members in groups.items():
        opened = [(bodies[number][0], containers[number]) for number in members]
        parts |= zip(members, _decode_parts(opened, specs[spec_id]), strict=True)
    return [parts[number] for number in range(len(bodies))]


def _decode_parts(opened: Sequence[tuple[ManifestInfo, AvroFile]], spec: PartitionSpec) -> list[ManifestPart]:
    infos, containers = zip(*opened, strict=True)
    try:
        entries, counts = _decode(containers, infos, spec)
    except (AvroError, RecursionError) as error:
        if len(opened) == 1:
            raise _corrupt(infos[0], error) from None
        # Individually, to find the corrupt one.
        return [part for one in opened for part in _decode_parts([one], spec)]
    stops = np.cumsum(counts)
    spans = zip((stops - counts).tolist(), stops.tolist(), strict=True)
    return [ManifestPart(entries, start, stop) for start, stop in spans]


def _corrupt(info: ManifestInfo, error: Exception | str) -> CorruptFileError:
    return CorruptFileError(f"manifest is corrupt: {error}", path=info.path, hint=HINT)


# -- entries in columns ------------------------------------------------------------------------

_ADDED, _DELETED = 1, 2
_FILE = (2, "data_file")
_SITES: Mapping[str, FieldSlice] = {
    "status": FieldSlice(((0, "status"),)),
    "snapshots": FieldSlice(((1, "snapshot_id"),)),
    "sequences": FieldSlice(((3, "sequence_number"),)),
    "contents": FieldSlice((_FILE, (134, "content"))),
    "paths": FieldSlice((_FILE, (100, "file_path")), SliceForm.TEXT),
    "formats": FieldSlice((_FILE, (101, "file_format")), SliceForm.TEXT),
    "partition": FieldSlice((_FILE, (102, "partition")), SliceForm.RAW),
    "rows": FieldSlice((_FILE, (103, "record_count"))),
    "sizes": FieldSlice((_FILE, (104, "file_size_in_bytes"))),
    "values": FieldSlice((_FILE, (109, "value_counts")), SliceForm.COUNTS),
    "nulls": FieldSlice((_FILE, (110, "null_value_counts")), SliceForm.COUNTS),
    "nans": FieldSlice((_FILE, (137, "nan_value_counts")), SliceForm.COUNTS),
    "lower": FieldSlice((_FILE, (125, "lower_bounds")), SliceForm.BLOBS),
    "upper": FieldSlice((_FILE, (128, "upper_bounds")), SliceForm.BLOBS),
    "equality_ids": FieldSlice((_FILE, (135, "equality_ids")), SliceForm.NUMBERS),
    "sort_orders": FieldSlice((_FILE, (140, "sort_order_id"))),
    "first_row_ids": FieldSlice((_FILE, (142, "first_row_id"))),
    "referenced": FieldSlice((_FILE, (143, "referenced_data_file")), SliceForm.TEXT),
    "content_offsets": FieldSlice((_FILE, (144, "content_offset"))),
    "content_sizes": FieldSlice((_FILE, (145, "content_size_in_bytes"))),
}
_REQUIRED = ("status", "paths", "formats", "rows", "sizes")


@lru_cache(maxsize=64)
def slicer_of(schema: bytes) -> Slicer:
    """The slicer of a schema, shared because it learns."""
    return Slicer(parse_schema(schema), _SITES)


def _decode(
    containers: Sequence[AvroFile], infos: Sequence[ManifestInfo], spec: PartitionSpec
) -> tuple[Entries, Array]:
    """Live entries of manifests of one schema and spec, and their number per manifest."""
    slicer = slicer_of(containers[0].schema)
    blocks: list[tuple[int, int]] = []
    base = 0
    for container in containers:
        blocks += [(count, base + end) for count, end in container.blocks] if base else container.blocks
        base += len(container.body)
    records = [sum([count for count, _ in container.blocks]) for container in containers]
    cut = _LiveSlices(slicer.cut(b"".join([container.body for container in containers]), blocks), records)
    rows = cut.required("rows")
    keys, partitions = _keys(cut.column("partition"), slicer.nodes.get("partition"), spec, cut.count)
    paths = cut.strings("paths")
    if paths.null_count:
        raise AvroError("entry has no file_path")
    contents = np.maximum(cut.numbers("contents"), 0)
    if (contents > 2).any():
        raise AvroError(f"entry has unknown content {contents.max()}")
    snapshots = cut.numbers("snapshots")
    entries = Entries(
        paths=paths,
        sizes=cut.required("sizes"),
        rows=rows,
        contents=contents.astype(np.int8),
        formats=_formats(cut.column("formats") or ()),
        specs=np.full(cut.count, spec.spec_id, np.int32),
        sequences=_sequences(cut, containers, infos),
        snapshots=np.where(snapshots < 0, cut.spread([info.snapshot for info in infos]), snapshots),
        partitions=partitions,
        keys=keys,
        equality_ids=_equality_ids(cut.column("equality_ids"), cut.count),
        referenced=cut.strings("referenced"),
        content_offsets=cut.numbers("content_offsets"),
        content_sizes=cut.numbers("content_sizes"),
        first_row_ids=_first_rows(cut, rows, infos),
        sort_orders=cut.numbers("sort_orders").astype(np.int32),
        measures=RawMetrics([cut.raw(name) for name in MAPS]),
    )
    return entries, cut.counts


class _LiveSlices:
    """Slices of the live entries of manifests, by column."""

    def __init__(self, slices: Mapping[str, list[bytes | None]], records: Sequence[int]) -> None:
        missing = [slot for slot in _REQUIRED if slot not in slices]
        if missing:
            raise AvroError(f"entries have no field {_SITES[missing[0]].path[-1][1]}")
        self._slices = slices
        self._live: list[bool] | None = None
        # All numeric columns are decoded together.
        slots = [slot for slot, site in _SITES.items() if site.form is SliceForm.NUMBER and slot in slices]
        together = b"".join([b"\x01" if cut is None else cut for slot in slots for cut in slices[slot]])
        numbers = decode_numbers(np.frombuffer(together, np.uint8))[0].reshape(len(slots), -1)
        self._numbers = dict(zip(slots, numbers, strict=True))
        status = self._numbers["status"]
        if not ((status >= 0) & (status <= _DELETED)).all():
            raise AvroError("entry has an unknown status")
        live = status != _DELETED
        self.counts = np.array(records, dtype=np.int64)
        """Live entries per manifest."""
        if not live.all():
            owners = np.repeat(np.arange(len(records)), self.counts)
            self.counts = np.bincount(owners[live], minlength=len(records))
            self._live = live.tolist()
            self._numbers = {slot: column[live] for slot, column in self._numbers.items()}
        self.count = len(self._numbers["status"])

    def spread(self, values: Sequence[int]) -> Array:
        """Repeat each manifest's value for its entries."""
        return np.repeat(np.array(values, dtype=np.int64), self.counts)

    def column(self, slot: str) -> Sequence[bytes | None] | None:
        """Slices of one field; None if the schema lacks it."""
        slices = self._slices.get(slot)
        if slices is None or self._live is None:
            return slices
        return list(compress(slices, self._live))

    def numbers(self, slot: str) -> Array:
        """Numbers, -1 where missing."""
        numbers = self._numbers.get(slot)
        return np.full(self.count, -1, np.int64) if numbers is None else numbers

    def required(self, slot: str) -> Array:
        """Numbers that every file must have."""
        numbers = self.numbers(slot)
        if (numbers < 0).any():
            raise AvroError(f"entry has a missing or negative {_SITES[slot].path[-1][1]}")
        return numbers

    def strings(self, slot: str) -> pa.Array:
        """Strings, null where missing."""
        slices = self.column(slot)
        if slices is None or not any(slices):
            return pa.nulls(self.count, pa.large_string())
        prefixes = {_prefix(len(cut)) for cut in slices if cut is not None}
        if len(prefixes) == 1:
            prefix = prefixes.pop()
            values = [cut and cut[prefix:] for cut in slices]
        else:
            values = [cut and cut[_prefix(len(cut)) :] for cut in slices]
        try:
            return pa.array(values, pa.large_binary()).cast(pa.large_string())
        except pa.ArrowInvalid as error:
            raise AvroError(f"invalid string: {error}") from None

    def raw(self, slot: str) -> pa.Array:
        """Raw slices, null where missing."""
        slices = self.column(slot)
        return pa.array([None] * self.count if slices is None else slices, pa.large_binary())


@lru_cache(maxsize=4096)
def _prefix(size: int) -> int:
    """Bytes of the length prefix in a string's slice: one for every seven bits of twice the length."""
    return next(n for n in range(1, 10) if 2 * (size - n) < 1 << (7 * n))


def _formats(slices: Sequence[bytes | None]) -> pa.Array:
    """Formats in upper case; each distinct one is decoded once."""
    if None in slices:
        raise AvroError("entry has no file_format")
    names = {cut: (cut or b"")[1:].decode("utf-8", "replace").upper() for cut in dict.fromkeys(slices)}
    return pa.array([names[cut] for cut in slices], pa.string())


def _sequences(cut: _LiveSlices, containers: Sequence[AvroFile], infos: Sequence[ManifestInfo]) -> Array:
    """Data sequence numbers: added files inherit their manifest's, files of version 1 have 0."""
    sequences = cut.numbers("sequences")
    absent = sequences < 0
    if not absent.any():
        return sequences
    inherited = cut.spread([info.sequence for info in infos])
    existing = absent & (cut.numbers("status") != _ADDED)
    if existing.any():
        newer = cut.spread([(container.text("format-version") or "1") != "1" for container in containers])
        if (existing & (inherited != 0) & (newer != 0)).any():
            raise AvroError("existing file has no sequence number")
    return np.where(absent, np.where(existing, 0, inherited), sequences)


def _first_rows(cut: _LiveSlices, rows: Array, infos: Sequence[ManifestInfo]) -> Array:
    """First row ids: missing ones continue from the manifest's, file by file."""
    first_rows = cut.numbers("first_row_ids")
    starts = [-1 if info.first_row_id is None or info.content != 0 else info.first_row_id for info in infos]
    if max(starts) < 0:
        return first_rows
    absent = first_rows < 0
    ends = np.concatenate([[0], np.cumsum(np.where(absent, rows, 0))])
    # Rows of the same manifest before each file.
    firsts = np.cumsum(cut.counts) - cut.counts
    before = ends[:-1] - cut.spread(ends[firsts])
    mine = cut.spread(starts)
    return np.where(absent & (mine >= 0), mine + before, first_rows)


def _equality_ids(slices: Sequence[bytes | None] | None, count: int) -> tuple[tuple[int, ...], ...]:
    if slices is None:
        return ((),) * count
    # The ids are between the item count and the closing zero.
    ids = {
        cut: () if cut is None else tuple(decode_numbers(np.frombuffer(cut, np.uint8))[0][1:-1].tolist())
        for cut in dict.fromkeys(slices)
    }
    return tuple(ids[cut] for cut in slices)


# -- partitions --------------------------------------------------------------------------------


def _keys(
    slices: Sequence[bytes | None] | None, node: AvroNode | None, spec: PartitionSpec, count: int
) -> tuple[tuple[PartitionKey, ...], Array]:
    """Distinct partition keys, and the number of each file's key; equal bytes are decoded once."""
    if is_unpartitioned(spec):
        return (PartitionKey.of(spec, ()),) * min(count, 1), np.zeros(count, np.int32)
    if slices is None or node is None:
        raise AvroError("entries have no partition")
    slots = _partition_slots(node, spec)
    decoded: dict[bytes | None, PartitionKey] = {}
    for cut in dict.fromkeys(slices):
        record, _ = read_value(node, cut or b"", 0)
        if not isinstance(record, dict):
            raise AvroError("entry has no partition")
        values = [None if slot is None else record[slot] for slot in slots]
        try:
            decoded[cut] = PartitionKey(spec.spec_id, tuple(values))
        except UsageError as error:
            raise AvroError(f"invalid partition: {error}") from None
    keys = sort_keys(set(decoded.values()))
    numbers = {key: i for i, key in enumerate(keys)}
    codes = {cut: numbers[key] for cut, key in decoded.items()}
    return keys, np.fromiter((codes[cut] for cut in slices), np.int32, count)


def _partition_slots(node: AvroNode, spec: PartitionSpec) -> list[int | str | None]:
    """Keys of a partition record's values in spec order; None for a void field that it omits."""
    record = node.record()
    if record is None:
        raise AvroError(f"partition is a {node.kind}, not a record")
    positions = [record.find(field.field_id, field.name) for field in spec.fields]
    unnamed = len(record.fields) == len(spec.fields) and all(f.field_id is None for f in record.fields)
    if None in positions and unnamed:
        # Early writers wrote no ids: the values are in spec order.
        positions = list(range(len(spec.fields)))
    for field, position in zip(spec.fields, positions, strict=True):
        if position is None and not isinstance(field.transform, VoidTransform):
            raise AvroError(f"partitions have no field {field.name} ({field.field_id})")
    return [None if position is None else record.keys[position] for position in positions]
