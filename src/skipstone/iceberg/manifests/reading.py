"""Manifests: live entries in columns, with what they inherit, read together and once per process."""

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
    RawMeasures,
    decode_numbers,
    joined,
    sort_keys,
)
from skipstone.iceberg.manifests.lists import HINT, ManifestNote
from skipstone.iceberg.manifests.slices import Form, Site, Slicer
from skipstone.iceberg.partitions.values import PartitionKey, is_unpartitioned
from skipstone.store.cache import Cache

# -- many manifests ----------------------------------------------------------------------------

_CACHE_BYTES = 512 << 20
# Manifests as written that are fetched side by side, before any of them is looked into.
_FETCHED_BYTES = 64 << 20
# Some thousand entries: more together are read no faster, and stay as long as one manifest of them does.
_BATCH_BYTES = 1 << 20

_cache: Cache[tuple[Any, ...], ManifestPart] = Cache(_CACHE_BYTES)


class Manifests:
    """Reads manifests side by side; what was read stays in the process, as manifests never change."""

    def __init__(
        self, read: Callable[[str], bytes], specs: Mapping[int, PartitionSpec], *, threads: int = 8
    ) -> None:
        self._read = read
        self._specs = specs
        self._threads = threads
        self._shapes = {spec_id: str(spec) for spec_id, spec in specs.items()}

    def entries(self, notes: Sequence[ManifestNote]) -> Entries:
        """The live entries of all these manifests as one, in the order of the notes."""
        return joined(self.each(notes))

    def each(self, notes: Sequence[ManifestNote]) -> list[ManifestPart]:
        """The live entries of each of these manifests."""
        names = [self._name(note) for note in notes]
        found = {name: part for name in names if (part := _cache.get(name)) is not None}
        missing = {name: note for name, note in zip(names, notes, strict=True) if name not in found}
        batch, weight = None, 0.0
        for name, part in zip(missing, self._fresh([*missing.values()]), strict=True):
            if part.batch is not batch:
                batch, weight = part.batch, part.batch.nbytes / max(len(part.batch), 1)
            _cache.put(name, part, 1000 + int(weight * len(part)))
            found[name] = part
        return [found[name] for name in names]

    def _fresh(self, notes: Sequence[ManifestNote]) -> Iterator[ManifestPart]:
        for some in _portions(notes, _FETCHED_BYTES):
            data = gather(self._read, [note.path for note in some], threads=self._threads)
            bodies = dict(zip(some, data, strict=True))
            batches = [[(note, bodies[note]) for note in batch] for batch in _portions(some, _BATCH_BYTES)]
            read = gather(lambda batch: _read_batch(batch, self._specs), batches, threads=self._threads)
            yield from chain.from_iterable(read)

    def _name(self, note: ManifestNote) -> tuple[Any, ...]:
        # A path alone doesn't say what an entry inherits, nor what a reused spec id means.
        inherited = (note.sequence, note.snapshot, note.first_row_id, note.content)
        return (note.path, note.length, note.spec_id, self._shapes.get(note.spec_id), *inherited)


def _portions(notes: Sequence[ManifestNote], size: int) -> Iterator[Sequence[ManifestNote]]:
    """Runs of manifests that have no more bytes together, or one manifest."""
    first = total = 0
    for number, note in enumerate(notes):
        total += note.length
        if total > size and number > first:
            yield notes[first:number]
            first, total = number, note.length
    if first < len(notes):
        yield notes[first:]


def clear_cache() -> None:
    """Forget every manifest that was read, and what was learned from them about their schemas."""
    _cache.clear()
    slicer_of.cache_clear()


# -- manifests of one batch --------------------------------------------------------------------


def read_manifest(data: bytes, note: ManifestNote, specs: Mapping[int, PartitionSpec]) -> Entries:
    """The live entries of a manifest, with what they inherit from its note."""
    return _read_batch([(note, data)], specs)[0].entries


def _read_batch(
    bodies: Sequence[tuple[ManifestNote, bytes]], specs: Mapping[int, PartitionSpec]
) -> list[ManifestPart]:
    """The live entries of manifests, those of one schema and one spec together."""
    headers: dict[bytes, Mapping[str, bytes]] = {}
    groups: dict[tuple[int, bytes], list[int]] = {}
    containers: list[AvroFile] = []
    for number, (note, data) in enumerate(bodies):
        if note.spec_id not in specs:
            known = ", ".join(map(str, sorted(specs))) or "none"
            raise SchemaError(
                f"the table's metadata has no partition spec {note.spec_id} (it has {known})",
                path=note.path,
                unit=f"partition spec {note.spec_id}",
                hint="the table's metadata is damaged or of another table",
            )
        if note.added_files is None and len(data) < note.length:
            # Where files are counted, the count tells; sizes alone are not worth a refusal.
            raise _corrupt(note, f"the file is cut short: {len(data):,} of {note.length:,} bytes are there")
        try:
            container = read_container(data, headers)
            groups.setdefault((note.spec_id, container.schema), []).append(number)
        except (AvroError, RecursionError) as error:
            raise _corrupt(note, error) from None
        containers.append(container)
    found: dict[int, ManifestPart] = {}
    for (spec_id, _), members in groups.items():
        opened = [(bodies[number][0], containers[number]) for number in members]
        found |= zip(members, _decode_parts(opened, specs[spec_id]), strict=True)
    return [found[number] for number in range(len(bodies))]


def _decode_parts(opened: Sequence[tuple[ManifestNote, AvroFile]], spec: PartitionSpec) -> list[ManifestPart]:
    notes, containers = zip(*opened, strict=True)
    try:
        entries, counts = _decode(containers, notes, spec)
    except (AvroError, RecursionError) as error:
        if len(opened) == 1:
            raise _corrupt(notes[0], error) from None
        # One by one, to tell which of them it is.
        return [part for one in opened for part in _decode_parts([one], spec)]
    stops = np.cumsum(counts)
    spans = zip((stops - counts).tolist(), stops.tolist(), strict=True)
    return [ManifestPart(entries, start, stop) for start, stop in spans]


def _corrupt(note: ManifestNote, error: Exception | str) -> CorruptFileError:
    return CorruptFileError(f"the manifest can't be read: {error}", path=note.path, hint=HINT)


# -- entries in columns ------------------------------------------------------------------------

_ADDED, _DELETED = 1, 2
_FILE = (2, "data_file")
_SITES: Mapping[str, Site] = {
    "status": Site(((0, "status"),)),
    "snapshots": Site(((1, "snapshot_id"),)),
    "sequences": Site(((3, "sequence_number"),)),
    "contents": Site((_FILE, (134, "content"))),
    "paths": Site((_FILE, (100, "file_path")), Form.TEXT),
    "formats": Site((_FILE, (101, "file_format")), Form.TEXT),
    "partition": Site((_FILE, (102, "partition")), Form.RAW),
    "rows": Site((_FILE, (103, "record_count"))),
    "sizes": Site((_FILE, (104, "file_size_in_bytes"))),
    "values": Site((_FILE, (109, "value_counts")), Form.COUNTS),
    "nulls": Site((_FILE, (110, "null_value_counts")), Form.COUNTS),
    "nans": Site((_FILE, (137, "nan_value_counts")), Form.COUNTS),
    "lower": Site((_FILE, (125, "lower_bounds")), Form.BLOBS),
    "upper": Site((_FILE, (128, "upper_bounds")), Form.BLOBS),
    "equality_ids": Site((_FILE, (135, "equality_ids")), Form.NUMBERS),
    "first_row_ids": Site((_FILE, (142, "first_row_id"))),
    "referenced": Site((_FILE, (143, "referenced_data_file")), Form.TEXT),
    "content_offsets": Site((_FILE, (144, "content_offset"))),
    "content_sizes": Site((_FILE, (145, "content_size_in_bytes"))),
}
_REQUIRED = ("status", "paths", "formats", "rows", "sizes")


@lru_cache(maxsize=64)
def slicer_of(schema: bytes) -> Slicer:
    """What cuts entries of a schema; it learns from those it has met."""
    return Slicer(parse_schema(schema), _SITES)


def _decode(
    containers: Sequence[AvroFile], notes: Sequence[ManifestNote], spec: PartitionSpec
) -> tuple[Entries, Array]:
    """The live entries of manifests of one schema and one spec, and how many each of them has."""
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
    paths = cut.texts("paths")
    if paths.null_count:
        raise AvroError("a file has no path")
    contents = np.maximum(cut.numbers("contents"), 0)
    if (contents > 2).any():
        raise AvroError(f"a file has the unknown content {contents.max()}")
    snapshots = cut.numbers("snapshots")
    entries = Entries(
        paths=paths,
        sizes=cut.required("sizes"),
        rows=rows,
        contents=contents.astype(np.int8),
        formats=_formats(cut.column("formats") or ()),
        specs=np.full(cut.count, spec.spec_id, np.int32),
        sequences=_sequences(cut, containers, notes),
        snapshots=np.where(snapshots < 0, cut.spread([note.snapshot for note in notes]), snapshots),
        partitions=partitions,
        keys=keys,
        equality_ids=_equality_ids(cut.column("equality_ids"), cut.count),
        referenced=cut.texts("referenced"),
        content_offsets=cut.numbers("content_offsets"),
        content_sizes=cut.numbers("content_sizes"),
        first_row_ids=_first_rows(cut, rows, notes),
        measures=RawMeasures([cut.raw(name) for name in MAPS]),
    )
    return entries, cut.counts


class _LiveSlices:
    """The slices of the live entries of manifests, read column by column."""

    def __init__(self, slices: Mapping[str, list[bytes | None]], records: Sequence[int]) -> None:
        missing = [slot for slot in _REQUIRED if slot not in slices]
        if missing:
            raise AvroError(f"its entries have no field {_SITES[missing[0]].path[-1][1]}")
        self._slices = slices
        self._live: list[bool] | None = None
        # The columns of all numbers are decoded as one.
        slots = [slot for slot, site in _SITES.items() if site.form is Form.NUMBER and slot in slices]
        together = b"".join([b"\x01" if cut is None else cut for slot in slots for cut in slices[slot]])
        found = decode_numbers(np.frombuffer(together, np.uint8))[0].reshape(len(slots), -1)
        self._numbers = dict(zip(slots, found, strict=True))
        status = self._numbers["status"]
        if not ((status >= 0) & (status <= _DELETED)).all():
            raise AvroError("an entry has an unknown status")
        live = status != _DELETED
        self.counts = np.array(records, dtype=np.int64)
        """How many live entries each manifest has."""
        if not live.all():
            owners = np.repeat(np.arange(len(records)), self.counts)
            self.counts = np.bincount(owners[live], minlength=len(records))
            self._live = live.tolist()
            self._numbers = {slot: found[live] for slot, found in self._numbers.items()}
        self.count = len(self._numbers["status"])

    def spread(self, values: Sequence[int]) -> Array:
        """For each entry the value of its manifest."""
        return np.repeat(np.array(values, dtype=np.int64), self.counts)

    def column(self, slot: str) -> Sequence[bytes | None] | None:
        """The slices of one site; None if the schema doesn't have it."""
        found = self._slices.get(slot)
        return list(compress(found, self._live)) if found is not None and self._live is not None else found

    def numbers(self, slot: str) -> Array:
        """Numbers, -1 where one is absent."""
        found = self._numbers.get(slot)
        return np.full(self.count, -1, np.int64) if found is None else found

    def required(self, slot: str) -> Array:
        """Numbers that every file has."""
        found = self.numbers(slot)
        if (found < 0).any():
            raise AvroError(f"a file has a negative or no {_SITES[slot].path[-1][1]}")
        return found

    def texts(self, slot: str) -> pa.Array:
        """Texts, null where one is absent."""
        found = self.column(slot)
        if found is None or not any(found):
            return pa.nulls(self.count, pa.large_string())
        prefixes = {_prefix(len(cut)) for cut in found if cut is not None}
        if len(prefixes) == 1:
            prefix = prefixes.pop()
            texts = [cut and cut[prefix:] for cut in found]
        else:
            texts = [cut and cut[_prefix(len(cut)) :] for cut in found]
        try:
            return pa.array(texts, pa.large_binary()).cast(pa.large_string())
        except pa.ArrowInvalid as error:
            raise AvroError(f"a text can't be read: {error}") from None

    def raw(self, slot: str) -> pa.Array:
        """Slices as they are, null where one is absent."""
        found = self.column(slot)
        return pa.array([None] * self.count if found is None else found, pa.large_binary())


@lru_cache(maxsize=4096)
def _prefix(size: int) -> int:
    """How many bytes of a text's slice are its length: one for every seven bits of twice the length."""
    return next(n for n in range(1, 10) if 2 * (size - n) < 1 << (7 * n))


def _formats(found: Sequence[bytes | None]) -> pa.Array:
    """Formats in upper case; there are few of them."""
    if None in found:
        raise AvroError("a file has no format")
    names = {cut: (cut or b"")[1:].decode("utf-8", "replace").upper() for cut in dict.fromkeys(found)}
    return pa.array([names[cut] for cut in found], pa.string())


def _sequences(cut: _LiveSlices, containers: Sequence[AvroFile], notes: Sequence[ManifestNote]) -> Array:
    """Data sequence numbers: an added file has its manifest's, files of version 1 have 0."""
    found = cut.numbers("sequences")
    absent = found < 0
    if not absent.any():
        return found
    mine = cut.spread([note.sequence for note in notes])
    unsaid = absent & (cut.numbers("status") != _ADDED)
    if unsaid.any():
        newer = cut.spread([(container.text("format-version") or "1") != "1" for container in containers])
        if (unsaid & (mine != 0) & (newer != 0)).any():
            raise AvroError("a file that is not new has no sequence number")
    return np.where(absent, np.where(unsaid, 0, mine), found)


def _first_rows(cut: _LiveSlices, rows: Array, notes: Sequence[ManifestNote]) -> Array:
    """The first row ids: those not written follow the manifest's own, file by file."""
    found = cut.numbers("first_row_ids")
    given = [-1 if note.first_row_id is None or note.content != 0 else note.first_row_id for note in notes]
    if max(given) < 0:
        return found
    absent = found < 0
    ends = np.concatenate([[0], np.cumsum(np.where(absent, rows, 0))])
    # Rows of the manifest's own files before each one.
    firsts = np.cumsum(cut.counts) - cut.counts
    before = ends[:-1] - cut.spread(ends[firsts])
    mine = cut.spread(given)
    return np.where(absent & (mine >= 0), mine + before, found)


def _equality_ids(found: Sequence[bytes | None] | None, count: int) -> tuple[tuple[int, ...], ...]:
    if found is None:
        return ((),) * count
    # Between the item count and the closing zero.
    read = {
        cut: () if cut is None else tuple(decode_numbers(np.frombuffer(cut, np.uint8))[0][1:-1].tolist())
        for cut in dict.fromkeys(found)
    }
    return tuple(read[cut] for cut in found)


# -- partitions --------------------------------------------------------------------------------


def _keys(
    found: Sequence[bytes | None] | None, node: AvroNode | None, spec: PartitionSpec, count: int
) -> tuple[tuple[PartitionKey, ...], Array]:
    """The distinct partition keys, and which of them each file has; equal bytes are read once."""
    if is_unpartitioned(spec):
        return (PartitionKey.of(spec, ()),) * min(count, 1), np.zeros(count, np.int32)
    if found is None or node is None:
        raise AvroError("its entries have no partition")
    slots = _partition_slots(node, spec)
    read: dict[bytes | None, PartitionKey] = {}
    for cut in dict.fromkeys(found):
        record, _ = read_value(node, cut or b"", 0)
        if not isinstance(record, dict):
            raise AvroError("a file has no partition")
        values = [None if slot is None else record[slot] for slot in slots]
        try:
            read[cut] = PartitionKey(spec.spec_id, tuple(values))
        except UsageError as error:
            raise AvroError(f"a partition can't be read: {error}") from None
    keys = sort_keys(set(read.values()))
    place = {key: i for i, key in enumerate(keys)}
    codes = {cut: place[key] for cut, key in read.items()}
    return keys, np.fromiter((codes[cut] for cut in found), np.int32, count)


def _partition_slots(node: AvroNode, spec: PartitionSpec) -> list[int | str | None]:
    """The keys of a partition record's values in the spec's order; None for a void one that it leaves out."""
    record = node.record()
    if record is None:
        raise AvroError(f"a partition is a {node.kind}, not a record")
    places = [record.find(known.field_id, known.name) for known in spec.fields]
    unnamed = len(record.fields) == len(spec.fields) and all(f.field_id is None for f in record.fields)
    if None in places and unnamed:
        # Early writers gave no ids: the values are in the spec's order.
        places = list(range(len(spec.fields)))
    for known, place in zip(spec.fields, places, strict=True):
        if place is None and not isinstance(known.transform, VoidTransform):
            raise AvroError(f"its partitions have no field {known.name} ({known.field_id})")
    return [None if place is None else record.keys[place] for place in places]
