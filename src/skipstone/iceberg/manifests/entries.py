"""Manifest entries as columns: the files of a snapshot, and their metrics, decoded on demand."""

from __future__ import annotations

import base64
import decimal
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from skipstone.core.evidence import Array
from skipstone.errors import CorruptFileError
from skipstone.iceberg.manifests.avro import AvroError
from skipstone.iceberg.partitions.values import PartitionKey

# -- metrics of one column ---------------------------------------------------------------------

NUMBERS = ("values", "nulls", "nans")
BOUNDS = ("lower", "upper")
MAPS = (*NUMBERS, *BOUNDS)


@dataclass(frozen=True, slots=True, eq=False)
class Metrics:
    """Metrics of one column in N files: counts (-1 if unknown) and bounds in Iceberg's encoding (or null)."""

    values: Array
    nulls: Array
    nans: Array
    lower: pa.Array
    upper: pa.Array

    @classmethod
    def unknown(cls, files: int) -> Metrics:
        """Metrics of N files that have none."""
        counts, bounds = np.full(files, -1, np.int64), pa.nulls(files, pa.large_binary())
        return cls(counts, counts, counts, bounds, bounds)

    def take(self, units: Array) -> Metrics:
        """Metrics of the chosen files, in that order."""
        indices = pa.array(units)
        counts = (getattr(self, name)[units] for name in NUMBERS)
        return Metrics(*counts, *(getattr(self, name).take(indices) for name in BOUNDS))

    @staticmethod
    def concat(parts: Sequence[Metrics]) -> Metrics:
        """Concatenate the metrics of several runs of files."""
        counts = (np.concatenate([getattr(p, name) for p in parts]) for name in NUMBERS)
        return Metrics(*counts, *(pa.concat_arrays([getattr(p, name) for p in parts]) for name in BOUNDS))


# -- metrics of all columns, decoded on demand -------------------------------------------------


class MetricsByField:
    """Metrics of all columns of the same files, by field id; subclasses decode them on demand."""

    nbytes = 0
    """Bytes in memory before anything is decoded."""

    def __init__(self, metrics: Mapping[int, Metrics] | None = None) -> None:
        self.columns = dict(metrics or {})
        """Decoded metrics."""

    def fields(self) -> tuple[int, ...]:
        """Field ids with metrics, ascending."""
        return tuple(sorted(self.columns))

    def get(self, field_id: int) -> Metrics | None:
        """Metrics of one column; None if there are none."""
        if field_id not in self.columns:
            made = self._make(field_id)
            if made is None:
                return None
            self.columns[field_id] = made
        return self.columns[field_id]

    def take(self, units: Array) -> MetricsByField:
        """Metrics of the chosen files, in that order."""
        return _Subset(self, units)

    def copy(self, units: Array) -> MetricsByField:
        """Metrics of the chosen files, without references to the others."""
        return MetricsByField({i: m.take(units) for i in self.fields() if (m := self.get(i)) is not None})

    def _make(self, field_id: int) -> Metrics | None:  # noqa: ARG002
        return None

    def __reduce__(self) -> tuple[Any, ...]:
        return MetricsByField, (self.columns,)


class RawMetrics(MetricsByField):
    """Avro maps by field id, one slice per file, decoded at first use."""

    def __init__(self, maps: Sequence[pa.Array]) -> None:
        super().__init__()
        self.maps = tuple(maps)
        """One array of slices for each of ``MAPS``; null if a file has none."""
        self.nbytes = sum(raw.nbytes for raw in self.maps)
        self._decoded: dict[str, _Counts | _Blobs] = {}

    def fields(self) -> tuple[int, ...]:
        return tuple(sorted({field_id for maps in self._decode().values() for field_id in maps.groups}))

    def copy(self, units: Array) -> MetricsByField:
        indices = pa.array(units)
        return RawMetrics([raw.take(indices) for raw in self.maps])

    def _make(self, field_id: int) -> Metrics | None:
        maps = self._decode()
        if not any(field_id in values.groups for values in maps.values()):
            return None
        return Metrics(**{name: values.column(field_id) for name, values in maps.items()})

    def _decode(self) -> dict[str, _Counts | _Blobs]:
        if not self._decoded:
            named = zip(MAPS, self.maps, strict=True)
            self._decoded = {name: _Counts(raw) if name in NUMBERS else _Blobs(raw) for name, raw in named}
        return self._decoded

    def __reduce__(self) -> tuple[Any, ...]:
        return RawMetrics, (self.maps,)


class _TableMetrics(MetricsByField):
    """Metrics in the columns of a table."""

    def __init__(self, table: pa.Table) -> None:
        super().__init__()
        self._table = table

    def fields(self) -> tuple[int, ...]:
        tails = (name.partition(".")[2] for name in self._table.column_names)
        return tuple(sorted({int(tail) for tail in tails if tail}))

    def _make(self, field_id: int) -> Metrics | None:
        names = {name: f"{name}.{field_id}" for name in MAPS}
        present = {name: stored for name, stored in names.items() if stored in self._table.column_names}
        if not present:
            return None
        unknown = Metrics.unknown(self._table.num_rows)
        columns = {name: getattr(unknown, name) for name in MAPS}
        for name, stored in present.items():
            column = _column(self._table, stored)
            columns[name] = column.to_numpy() if name in NUMBERS else column
        return Metrics(**columns)

    def __reduce__(self) -> tuple[Any, ...]:
        return _TableMetrics, (self._table,)


class _Subset(MetricsByField):
    """Metrics of some files of a larger set."""

    def __init__(self, whole: MetricsByField, units: Array) -> None:
        super().__init__()
        self._whole, self._units = whole, units

    def fields(self) -> tuple[int, ...]:
        return self._whole.fields()

    def take(self, units: Array) -> MetricsByField:
        return _Subset(self._whole, self._units[units])

    def _make(self, field_id: int) -> Metrics | None:
        metrics = self._whole.get(field_id)
        return None if metrics is None else metrics.take(self._units)

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickles contain only the chosen files.
        return self._whole.copy(self._units).__reduce__()


class JoinedMetrics(MetricsByField):
    """Metrics of several runs of files, concatenated."""

    def __init__(self, parts: Sequence[tuple[MetricsByField, int]]) -> None:
        super().__init__()
        self.parts = tuple(parts)
        """Metrics and file count of each run."""

    def fields(self) -> tuple[int, ...]:
        return tuple(sorted({field_id for part, _ in self.parts for field_id in part.fields()}))

    def _make(self, field_id: int) -> Metrics | None:
        metrics = [part.get(field_id) for part, _ in self.parts]
        if all(part is None for part in metrics):
            return None
        sizes = [files for _, files in self.parts]
        return Metrics.concat([m or Metrics.unknown(files) for m, files in zip(metrics, sizes, strict=True)])

    def __reduce__(self) -> tuple[Any, ...]:
        return JoinedMetrics, (self.parts,)


# -- entries -----------------------------------------------------------------------------------

_COLUMNS = {
    "sizes": np.int64,
    "rows": np.int64,
    "contents": np.int8,
    "specs": np.int32,
    "sequences": np.int64,
    "snapshots": np.int64,
    "partitions": np.int32,
    "content_offsets": np.int64,
    "content_sizes": np.int64,
    "first_row_ids": np.int64,
    "sort_orders": np.int32,
}
_STRINGS = {"paths": pa.large_string(), "formats": pa.string(), "referenced": pa.large_string()}
_META = b"skipstone.iceberg.entries"
_LAYOUT = 2


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """N live files of one or more manifests; unknown numbers are -1."""

    paths: pa.Array
    sizes: Array
    rows: Array
    contents: Array
    formats: pa.Array
    specs: Array
    sequences: Array
    snapshots: Array
    partitions: Array
    keys: tuple[PartitionKey, ...]
    equality_ids: tuple[tuple[int, ...], ...]
    referenced: pa.Array
    content_offsets: Array
    content_sizes: Array
    first_row_ids: Array
    sort_orders: Array
    measures: MetricsByField = field(repr=False)
    """Metrics of all columns, mostly not decoded."""

    def __len__(self) -> int:
        return len(self.rows)

    def metrics(self, field_id: int) -> Metrics:
        """Metrics of one column in every file."""
        return self.measures.get(field_id) or Metrics.unknown(len(self))

    def metric_fields(self) -> tuple[int, ...]:
        """Field ids with metrics, ascending."""
        return self.measures.fields()

    def take(self, units: Array) -> Entries:
        """The chosen files, in that order, and their partition keys."""
        units = np.asarray(units)
        if units.dtype == bool:
            units = np.flatnonzero(units)
        indices = pa.array(units, pa.int64())
        ids = self.equality_ids
        numbers = {name: getattr(self, name)[units] for name in _COLUMNS}
        keys = self.keys
        used = np.unique(numbers["partitions"])
        if len(used) < len(keys):
            # Partitions without a chosen file must not be judged: they might not even match the schema.
            keys = tuple(keys[code] for code in used.tolist())
            numbers["partitions"] = np.searchsorted(used, numbers["partitions"]).astype(np.int32)
        return Entries(
            **numbers,
            **{name: getattr(self, name).take(indices) for name in _STRINGS},
            keys=keys,
            equality_ids=tuple(ids[i] for i in units.tolist()) if any(ids) else ((),) * len(units),
            measures=self.measures.take(units),
        )

    @staticmethod
    def empty() -> Entries:
        """No files at all."""
        return Entries(
            **{name: np.empty(0, dtype) for name, dtype in _COLUMNS.items()},
            **{name: pa.array([], type) for name, type in _STRINGS.items()},
            keys=(),
            equality_ids=(),
            measures=MetricsByField(),
        )

    @staticmethod
    def concat(parts: Sequence[Entries]) -> Entries:
        """Concatenate parts, with one set of keys."""
        parts = [part for part in parts if len(part)]
        if len(parts) <= 1:
            return parts[0] if parts else Entries.empty()
        keys = sort_keys({key for part in parts for key in part.keys})
        codes = {key: i for i, key in enumerate(keys)}
        moved = [np.array([codes[key] for key in part.keys], np.int32)[part.partitions] for part in parts]
        numbers = {name: np.concatenate([getattr(p, name) for p in parts]) for name in _COLUMNS}
        numbers["partitions"] = np.concatenate(moved)
        return Entries(
            **numbers,
            **{name: pa.concat_arrays([getattr(p, name) for p in parts]) for name in _STRINGS},
            keys=keys,
            equality_ids=tuple(ids for part in parts for ids in part.equality_ids),
            measures=JoinedMetrics([(part.measures, len(part)) for part in parts]),
        )

    @property
    def nbytes(self) -> int:
        """Approximate size in memory, with metrics that are not decoded."""
        own = sum(getattr(self, name).nbytes for name in (*_COLUMNS, *_STRINGS))
        return int(own + self.measures.nbytes) + 200 * len(self.keys)

    # -- one Arrow table -----------------------------------------------------------------------

    def to_table(self) -> pa.Table:
        """Convert to one table; metrics become columns such as ``lower.7``."""
        distinct = sorted(set(self.equality_ids))
        codes = {ids: i for i, ids in enumerate(distinct)}
        columns: dict[str, Any] = {name: getattr(self, name) for name in _STRINGS}
        columns |= {name: pa.array(getattr(self, name)) for name in _COLUMNS}
        columns["equality"] = pa.array([codes[ids] for ids in self.equality_ids], pa.int32())
        for field_id in self.metric_fields():
            metrics = self.metrics(field_id)
            for name in NUMBERS:
                counts = getattr(metrics, name)
                if (counts >= 0).any():
                    columns[f"{name}.{field_id}"] = pa.array(counts)
            for name in BOUNDS:
                bounds = getattr(metrics, name)
                if bounds.null_count < len(bounds):
                    columns[f"{name}.{field_id}"] = bounds
        keys = [
            [key.spec_id, None if key.partition is None else [value_to_json(v) for v in key.partition]]
            for key in self.keys
        ]
        meta = {"layout": _LAYOUT, "keys": keys, "equality_ids": distinct}
        return pa.table(columns).replace_schema_metadata({_META: json.dumps(meta)})

    @staticmethod
    def from_table(table: pa.Table) -> Entries:
        """Convert back from :meth:`to_table`, without copying columns."""
        try:
            meta = json.loads((table.schema.metadata or {})[_META])
            if meta["layout"] != _LAYOUT:
                raise ValueError(f"layout {meta['layout']}")
            keys = tuple(
                PartitionKey(spec_id, None if values is None else tuple(map(value_from_json, values)))
                for spec_id, values in meta["keys"]
            )
            distinct = [tuple(ids) for ids in meta["equality_ids"]]
            codes = _column(table, "equality").to_numpy()
            plain = distinct in ([], [()])
            entries = Entries(
                **{name: _column(table, name).to_numpy() for name in _COLUMNS},
                **{name: _column(table, name) for name in _STRINGS},
                keys=keys,
                equality_ids=((),) * len(codes) if plain else tuple(distinct[i] for i in codes.tolist()),
                measures=_TableMetrics(table),
            )
        except (KeyError, ValueError, TypeError, IndexError, AttributeError) as error:
            raise CorruptFileError(
                f"cached manifest entries are damaged: {error!r}", hint="build the index again"
            ) from None
        if len(entries) and not 0 <= entries.partitions.min() <= entries.partitions.max() < len(keys):
            raise CorruptFileError(
                "partition of a cached manifest entry is missing", hint="build the index again"
            )
        return entries


def sort_keys(keys: set[PartitionKey]) -> tuple[PartitionKey, ...]:
    """Keys in canonical order."""
    return tuple(sorted(keys, key=PartitionKey.sort_key))


def _column(table: pa.Table, name: str) -> pa.Array:
    whole = table.column(name)
    return whole.chunk(0) if whole.num_chunks == 1 else whole.combine_chunks()


def value_to_json(value: Any) -> Any:
    """Convert a partition value in Iceberg's internal form."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return {"float": value.hex()}
        case bytes():
            return {"bytes": base64.b64encode(value).decode()}
        case decimal.Decimal():
            return {"decimal": str(value)}
    raise TypeError(f"{value!r} is not a partition value")


def value_from_json(data: Any) -> Any:
    """Convert back from :func:`value_to_json`."""
    if not isinstance(data, dict):
        return data
    match data:
        case {"float": text}:
            return float.fromhex(text)
        case {"bytes": text}:
            return base64.b64decode(text)
        case {"decimal": text}:
            return decimal.Decimal(text)
    raise ValueError(f"{data!r} is not a partition value")


# -- entries of many manifests in one batch ----------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class ManifestPart:
    """The entries of one manifest, a run of rows in a batch."""

    batch: Entries
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def entries(self) -> Entries:
        """The entries of this manifest."""
        return joined([self])


def joined(parts: Sequence[ManifestPart]) -> Entries:
    """Concatenate parts; a batch that is used completely is not copied."""
    batches = {id(part.batch): part.batch for part in parts if len(part)}
    if not batches:
        return parts[0].batch if len(parts) == 1 and not len(parts[0].batch) else Entries.empty()
    numbers = {key: number for number, key in enumerate(batches)}
    starts, stops = np.array([(part.start, part.stop) for part in parts if len(part)], dtype=np.int64).T
    owners = np.array([numbers[id(part.batch)] for part in parts if len(part)], dtype=np.int64)
    taken = []
    for number, batch in enumerate(batches.values()):
        mine = owners == number
        taken.append(take_rows(batch, runs(starts[mine], stops[mine])))
    entries = Entries.concat(taken)
    if (owners[1:] >= owners[:-1]).all():
        return entries
    # They are sorted by batch now: restore the order of the parts.
    order = np.argsort(owners, kind="stable")
    counts = stops - starts
    firsts = np.empty_like(counts)
    firsts[order] = np.cumsum(counts[order]) - counts[order]
    return entries.take(runs(firsts, firsts + counts))


def take_rows(entries: Entries, rows: Array) -> Entries:
    """Take rows; all rows in order return the entries themselves."""
    whole = len(rows) == len(entries) and bool((rows == np.arange(len(rows))).all())
    return entries if whole else entries.take(rows)


def runs(starts: Array, stops: Array) -> Array:
    """The numbers from each start to its stop, concatenated."""
    return _ranges(starts, stops - starts, 1)


# -- vectorized Avro decoding ------------------------------------------------------------------

_LONGEST = 10


def decode_numbers(data: Array) -> tuple[Array, Array]:
    """Decode consecutive zigzag varints; returns the numbers and the offset of each one's last byte."""
    ends = np.flatnonzero(data < 0x80)
    if len(data) and (not len(ends) or ends[-1] != len(data) - 1):
        raise AvroError("data ends inside a number")
    starts = np.empty_like(ends)
    starts[:1], starts[1:] = 0, ends[:-1] + 1
    numbers = (data[starts] & 0x7F).astype(np.uint64)
    longer = np.flatnonzero(ends > starts)
    for step in range(1, _LONGEST):
        if not len(longer):
            break
        more = data[starts[longer] + step]
        if step == _LONGEST - 1 and (more > 1).any():
            raise AvroError("number has more than 64 bits")
        numbers[longer] |= (more & 0x7F).astype(np.uint64) << np.uint64(7 * step)
        longer = longer[ends[longer] > starts[longer] + step]
    if len(longer):
        raise AvroError("number has more than 64 bits")
    return _unzigzag(numbers), ends


def _unzigzag(numbers: Array) -> Array:
    signs = np.uint64(0) - (numbers & np.uint64(1))
    signed: Array = ((numbers >> np.uint64(1)) ^ signs).view(np.int64)
    return signed


def raw_bytes(slices: pa.Array) -> tuple[Array, Array]:
    """Bytes and offsets of a large binary array."""
    _, buffer, data = slices.buffers()
    if not len(slices):
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    offsets = np.frombuffer(buffer, np.int64, len(slices) + 1, slices.offset * 8)
    whole = np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)
    return whole[offsets[0] : offsets[-1]], offsets - offsets[0]


class _Counts:
    """Maps of numbers: a column of counts for each key, -1 if a file lacks it."""

    def __init__(self, raw: pa.Array) -> None:
        data, offsets = raw_bytes(raw)
        numbers, ends = decode_numbers(data)
        # The first number of a slice is its item count; two for each item follow, then a zero.
        written = np.flatnonzero(offsets[1:] > offsets[:-1])
        firsts = np.searchsorted(ends, offsets[written])
        items = numbers[firsts]
        pairs = _ranges(firsts + 1, items, 2)
        self._files = len(raw)
        self._owners = np.repeat(written, items)
        self._values = numbers[pairs + 1]
        self.groups = _group(numbers[pairs])

    def column(self, field_id: int) -> Array:
        """Counts of one column."""
        column = np.full(self._files, -1, np.int64)
        here = self.groups.get(field_id)
        if here is not None:
            column[self._owners[here]] = np.maximum(self._values[here], -1)
        return column


class _Blobs:
    """Maps of bytes: a column for each key, null if a file lacks it."""

    def __init__(self, raw: pa.Array) -> None:
        data, offsets = raw_bytes(raw)
        owners = np.flatnonzero(offsets[1:] > offsets[:-1])
        left, pos = _numbers_at(data, offsets[owners])
        items: list[tuple[Array, Array, Array, Array]] = []
        # One step per item, over all files: an item begins where the previous one ends.
        while True:
            going = left > 0
            if not going.all():
                owners, pos, left = owners[going], pos[going], left[going]
            if not len(owners):
                break
            key, pos = _numbers_at(data, pos)
            size, pos = _numbers_at(data, pos)
            items.append((key, owners, pos, size))
            pos = pos + size
            left = left - 1
        none = (np.empty(0, np.int64),) * 4
        keys, self._owners, self._starts, self._sizes = map(np.concatenate, zip(none, *items, strict=True))
        self._files = len(raw)
        self._data = data
        self.groups = _group(keys)

    def column(self, field_id: int) -> pa.Array:
        """Bytes of one column."""
        here = self.groups.get(field_id)
        if here is None:
            return pa.nulls(self._files, pa.large_binary())
        begin, size, present = (np.zeros(self._files, dtype) for dtype in (np.int64, np.int64, bool))
        owners = self._owners[here]
        begin[owners], size[owners], present[owners] = self._starts[here], self._sizes[here], True
        offsets = np.concatenate([[0], np.cumsum(size)])
        values = self._data[_ranges(begin, size, 1)]
        valid = None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))
        buffers = [valid, pa.py_buffer(offsets), pa.py_buffer(values)]
        return pa.Array.from_buffers(pa.large_binary(), self._files, buffers)


def _numbers_at(data: Array, pos: Array) -> tuple[Array, Array]:
    """Decode a zigzag varint at each position; returns the numbers and the positions after them."""
    byte = data[pos]
    numbers = (byte & 0x7F).astype(np.uint64)
    after = pos + 1
    longer = np.flatnonzero(byte > 0x7F)
    shift = 7
    while len(longer):
        byte = data[after[longer]]
        numbers[longer] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        after[longer] += 1
        longer = longer[byte > 0x7F]
        shift += 7
    return _unzigzag(numbers), after


def _group(keys: Array) -> dict[int, Array]:
    """Positions of each key, in order."""
    order = np.argsort(keys, kind="stable")
    distinct, first = np.unique(keys[order], return_index=True)
    return dict(zip(distinct.tolist(), np.split(order, first[1:]), strict=False))


def _ranges(starts: Array, counts: Array, step: int) -> Array:
    """``starts[i], starts[i] + step, ...``, ``counts[i]`` of them, for all i."""
    before = np.cumsum(counts) - counts
    within = np.arange(int(counts.sum())) - np.repeat(before, counts)
    ranges: Array = np.repeat(starts, counts) + within * step
    return ranges
