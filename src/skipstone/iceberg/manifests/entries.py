"""The files a snapshot is made of, in columns: what manifests say about each, and its metrics when needed."""

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
    """One column in N files: counts (-1 where unknown) and bounds as Iceberg serialises them (or null)."""

    values: Array
    nulls: Array
    nans: Array
    lower: pa.Array
    upper: pa.Array

    @classmethod
    def unknown(cls, files: int) -> Metrics:
        """Nothing was written down."""
        counts, bounds = np.full(files, -1, np.int64), pa.nulls(files, pa.large_binary())
        return cls(counts, counts, counts, bounds, bounds)

    def take(self, units: Array) -> Metrics:
        """The metrics of the chosen files, in that order."""
        places = pa.array(units)
        counts = (getattr(self, name)[units] for name in NUMBERS)
        return Metrics(*counts, *(getattr(self, name).take(places) for name in BOUNDS))

    @staticmethod
    def concat(parts: Sequence[Metrics]) -> Metrics:
        """The metrics of several runs of files, one after the other."""
        counts = (np.concatenate([getattr(p, name) for p in parts]) for name in NUMBERS)
        return Metrics(*counts, *(pa.concat_arrays([getattr(p, name) for p in parts]) for name in BOUNDS))


# -- metrics of all columns, worked out when needed --------------------------------------------


class Measures:
    """Metrics of every column in the same files, by field id; subclasses work them out when needed."""

    nbytes = 0
    """What is held in memory before any of them is worked out."""

    def __init__(self, metrics: Mapping[int, Metrics] | None = None) -> None:
        self.columns = dict(metrics or {})
        """Those that are worked out."""

    def fields(self) -> tuple[int, ...]:
        """The field ids that anything is known about, ascending."""
        return tuple(sorted(self.columns))

    def get(self, field_id: int) -> Metrics | None:
        """The metrics of one column; None if nothing is known."""
        if field_id not in self.columns:
            made = self._make(field_id)
            if made is None:
                return None
            self.columns[field_id] = made
        return self.columns[field_id]

    def take(self, units: Array) -> Measures:
        """The metrics of the chosen files, in that order."""
        return _Subset(self, units)

    def copy(self, units: Array) -> Measures:
        """The metrics of the chosen files, without the others behind them."""
        return Measures({i: m.take(units) for i in self.fields() if (m := self.get(i)) is not None})

    def _make(self, field_id: int) -> Metrics | None:  # noqa: ARG002
        return None

    def __reduce__(self) -> tuple[Any, ...]:
        return Measures, (self.columns,)


class RawMeasures(Measures):
    """Maps by field id as manifests hold them, a slice of Avro for each file; decoded at the first use."""

    def __init__(self, maps: Sequence[pa.Array]) -> None:
        super().__init__()
        self.maps = tuple(maps)
        """One array of slices for each of ``MAPS``; null where a file has none."""
        self.nbytes = sum(raw.nbytes for raw in self.maps)
        self._decoded: dict[str, _Counts | _Blobs] = {}

    def fields(self) -> tuple[int, ...]:
        return tuple(sorted({field_id for known in self._decode().values() for field_id in known.groups}))

    def copy(self, units: Array) -> Measures:
        places = pa.array(units)
        return RawMeasures([raw.take(places) for raw in self.maps])

    def _make(self, field_id: int) -> Metrics | None:
        maps = self._decode()
        if not any(field_id in known.groups for known in maps.values()):
            return None
        return Metrics(**{name: known.column(field_id) for name, known in maps.items()})

    def _decode(self) -> dict[str, _Counts | _Blobs]:
        if not self._decoded:
            named = zip(MAPS, self.maps, strict=True)
            self._decoded = {name: _Counts(raw) if name in NUMBERS else _Blobs(raw) for name, raw in named}
        return self._decoded

    def __reduce__(self) -> tuple[Any, ...]:
        return RawMeasures, (self.maps,)


class _TableMeasures(Measures):
    """Metrics in the columns of a table."""

    def __init__(self, table: pa.Table) -> None:
        super().__init__()
        self._table = table

    def fields(self) -> tuple[int, ...]:
        tails = (name.partition(".")[2] for name in self._table.column_names)
        return tuple(sorted({int(tail) for tail in tails if tail}))

    def _make(self, field_id: int) -> Metrics | None:
        names = {name: f"{name}.{field_id}" for name in MAPS}
        given = {name: stored for name, stored in names.items() if stored in self._table.column_names}
        if not given:
            return None
        unknown = Metrics.unknown(self._table.num_rows)
        found = {name: getattr(unknown, name) for name in MAPS}
        for name, stored in given.items():
            column = _column(self._table, stored)
            found[name] = column.to_numpy() if name in NUMBERS else column
        return Metrics(**found)

    def __reduce__(self) -> tuple[Any, ...]:
        return _TableMeasures, (self._table,)


class _Subset(Measures):
    """Metrics of some of the files of others."""

    def __init__(self, whole: Measures, units: Array) -> None:
        super().__init__()
        self._whole, self._units = whole, units

    def fields(self) -> tuple[int, ...]:
        return self._whole.fields()

    def take(self, units: Array) -> Measures:
        return _Subset(self._whole, self._units[units])

    def _make(self, field_id: int) -> Metrics | None:
        found = self._whole.get(field_id)
        return None if found is None else found.take(self._units)

    def __reduce__(self) -> tuple[Any, ...]:
        # Only the chosen files are sent elsewhere.
        return self._whole.copy(self._units).__reduce__()


class JoinedMeasures(Measures):
    """Metrics of several runs of files, one after the other."""

    def __init__(self, parts: Sequence[tuple[Measures, int]]) -> None:
        super().__init__()
        self.parts = tuple(parts)
        """The metrics of each run, and how many files it has."""

    def fields(self) -> tuple[int, ...]:
        return tuple(sorted({field_id for part, _ in self.parts for field_id in part.fields()}))

    def _make(self, field_id: int) -> Metrics | None:
        found = [part.get(field_id) for part, _ in self.parts]
        if all(metrics is None for metrics in found):
            return None
        sizes = [files for _, files in self.parts]
        return Metrics.concat([m or Metrics.unknown(files) for m, files in zip(found, sizes, strict=True)])

    def __reduce__(self) -> tuple[Any, ...]:
        return JoinedMeasures, (self.parts,)


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
}
_TEXTS = {"paths": pa.large_string(), "formats": pa.string(), "referenced": pa.large_string()}
_META = b"skipstone.iceberg.entries"
_LAYOUT = 1


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """N live files of one or many manifests; numbers that are not known are -1."""

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
    measures: Measures = field(repr=False)
    """Metrics of all columns, most of them not yet decoded."""

    def __len__(self) -> int:
        return len(self.rows)

    def metrics(self, field_id: int) -> Metrics:
        """What was written down about one column, in every file."""
        return self.measures.get(field_id) or Metrics.unknown(len(self))

    def metric_fields(self) -> tuple[int, ...]:
        """The field ids that anything is written down about, ascending."""
        return self.measures.fields()

    def take(self, units: Array) -> Entries:
        """The chosen files, in that order, and the keys that they have."""
        units = np.asarray(units)
        if units.dtype == bool:
            units = np.flatnonzero(units)
        places = pa.array(units, pa.int64())
        ids = self.equality_ids
        numbers = {name: getattr(self, name)[units] for name in _COLUMNS}
        keys = self.keys
        used = np.unique(numbers["partitions"])
        if len(used) < len(keys):
            # A partition that no chosen file is in must not be judged: it may not even fit the schema.
            keys = tuple(keys[code] for code in used.tolist())
            numbers["partitions"] = np.searchsorted(used, numbers["partitions"]).astype(np.int32)
        return Entries(
            **numbers,
            **{name: getattr(self, name).take(places) for name in _TEXTS},
            keys=keys,
            equality_ids=tuple(ids[i] for i in units.tolist()) if any(ids) else ((),) * len(units),
            measures=self.measures.take(units),
        )

    @staticmethod
    def empty() -> Entries:
        """No files at all."""
        return Entries(
            **{name: np.empty(0, dtype) for name, dtype in _COLUMNS.items()},
            **{name: pa.array([], type) for name, type in _TEXTS.items()},
            keys=(),
            equality_ids=(),
            measures=Measures(),
        )

    @staticmethod
    def concat(parts: Sequence[Entries]) -> Entries:
        """The files of several parts, one after the other, with one set of keys."""
        parts = [part for part in parts if len(part)]
        if len(parts) <= 1:
            return parts[0] if parts else Entries.empty()
        keys = sort_keys({key for part in parts for key in part.keys})
        place = {key: i for i, key in enumerate(keys)}
        moved = [np.array([place[key] for key in part.keys], np.int32)[part.partitions] for part in parts]
        numbers = {name: np.concatenate([getattr(p, name) for p in parts]) for name in _COLUMNS}
        numbers["partitions"] = np.concatenate(moved)
        return Entries(
            **numbers,
            **{name: pa.concat_arrays([getattr(p, name) for p in parts]) for name in _TEXTS},
            keys=keys,
            equality_ids=tuple(ids for part in parts for ids in part.equality_ids),
            measures=JoinedMeasures([(part.measures, len(part)) for part in parts]),
        )

    @property
    def nbytes(self) -> int:
        """About what the entries weigh in memory, with metrics that are not decoded."""
        own = sum(getattr(self, name).nbytes for name in (*_COLUMNS, *_TEXTS))
        return int(own + self.measures.nbytes) + 200 * len(self.keys)

    # -- one Arrow table -----------------------------------------------------------------------

    def to_table(self) -> pa.Table:
        """All of it as one table, each column's metrics in columns of their own: ``lower.7`` and so on."""
        distinct = sorted(set(self.equality_ids))
        place = {ids: i for i, ids in enumerate(distinct)}
        columns: dict[str, Any] = {name: getattr(self, name) for name in _TEXTS}
        columns |= {name: pa.array(getattr(self, name)) for name in _COLUMNS}
        columns["equality"] = pa.array([place[ids] for ids in self.equality_ids], pa.int32())
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
            [key.spec_id, None if key.partition is None else [_value_to_json(v) for v in key.partition]]
            for key in self.keys
        ]
        meta = {"layout": _LAYOUT, "keys": keys, "equality_ids": distinct}
        return pa.table(columns).replace_schema_metadata({_META: json.dumps(meta)})

    @staticmethod
    def from_table(table: pa.Table) -> Entries:
        """The entries that :meth:`to_table` wrote; their columns are those of the table, not copies."""
        try:
            meta = json.loads((table.schema.metadata or {})[_META])
            if meta["layout"] != _LAYOUT:
                raise ValueError(f"layout {meta['layout']}")
            keys = tuple(
                PartitionKey(spec_id, None if values is None else tuple(map(_value_from_json, values)))
                for spec_id, values in meta["keys"]
            )
            distinct = [tuple(ids) for ids in meta["equality_ids"]]
            codes = _column(table, "equality").to_numpy()
            plain = distinct in ([], [()])
            entries = Entries(
                **{name: _column(table, name).to_numpy() for name in _COLUMNS},
                **{name: _column(table, name) for name in _TEXTS},
                keys=keys,
                equality_ids=((),) * len(codes) if plain else tuple(distinct[i] for i in codes.tolist()),
                measures=_TableMeasures(table),
            )
        except (KeyError, ValueError, TypeError, IndexError, AttributeError) as error:
            raise CorruptFileError(
                f"these are not the entries of manifests: {error!r}", hint="build the index again"
            ) from None
        if len(entries) and not 0 <= entries.partitions.min() <= entries.partitions.max() < len(keys):
            raise CorruptFileError("an entry's partition is missing", hint="build the index again")
        return entries


def sort_keys(keys: set[PartitionKey]) -> tuple[PartitionKey, ...]:
    """Distinct keys in their one order."""
    return tuple(sorted(keys, key=PartitionKey.sort_key))


def _column(table: pa.Table, name: str) -> pa.Array:
    whole = table.column(name)
    return whole.chunk(0) if whole.num_chunks == 1 else whole.combine_chunks()


def _value_to_json(value: Any) -> Any:
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


def _value_from_json(data: Any) -> Any:
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


# -- entries of many manifests that lie together -----------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class ManifestPart:
    """The entries of one manifest, as a run of a batch."""

    batch: Entries
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def entries(self) -> Entries:
        """Those of this manifest alone."""
        return joined([self])


def joined(parts: Sequence[ManifestPart]) -> Entries:
    """The entries of parts one after the other; a batch that is needed whole is not copied."""
    batches = {id(part.batch): part.batch for part in parts if len(part)}
    if not batches:
        return parts[0].batch if len(parts) == 1 and not len(parts[0].batch) else Entries.empty()
    places = {key: place for place, key in enumerate(batches)}
    starts, stops = np.array([(part.start, part.stop) for part in parts if len(part)], dtype=np.int64).T
    owners = np.array([places[id(part.batch)] for part in parts if len(part)], dtype=np.int64)
    taken = []
    for place, batch in enumerate(batches.values()):
        mine = owners == place
        taken.append(take_rows(batch, runs(starts[mine], stops[mine])))
    found = Entries.concat(taken)
    if (owners[1:] >= owners[:-1]).all():
        return found
    # Back in the order of the parts: as they lie now, they are sorted by batch.
    order = np.argsort(owners, kind="stable")
    counts = stops - starts
    firsts = np.empty_like(counts)
    firsts[order] = np.cumsum(counts[order]) - counts[order]
    return found.take(runs(firsts, firsts + counts))


def take_rows(entries: Entries, rows: Array) -> Entries:
    """Some entries; all of them as they are."""
    whole = len(rows) == len(entries) and bool((rows == np.arange(len(rows))).all())
    return entries if whole else entries.take(rows)


def runs(starts: Array, stops: Array) -> Array:
    """The numbers from each start to its stop, one run after the other."""
    return _ranges(starts, stops - starts, 1)


# -- Avro, many slices at once -----------------------------------------------------------------

_LONGEST = 10


def decode_numbers(data: Array) -> tuple[Array, Array]:
    """Every zigzag varint in a run of bytes, and where each of them ends."""
    ends = np.flatnonzero(data < 0x80)
    if len(data) and (not len(ends) or ends[-1] != len(data) - 1):
        raise AvroError("it ends inside a number")
    starts = np.empty_like(ends)
    starts[:1], starts[1:] = 0, ends[:-1] + 1
    found = (data[starts] & 0x7F).astype(np.uint64)
    longer = np.flatnonzero(ends > starts)
    for step in range(1, _LONGEST):
        if not len(longer):
            break
        more = data[starts[longer] + step]
        if step == _LONGEST - 1 and (more > 1).any():
            raise AvroError("a number has more than 64 bits")
        found[longer] |= (more & 0x7F).astype(np.uint64) << np.uint64(7 * step)
        longer = longer[ends[longer] > starts[longer] + step]
    if len(longer):
        raise AvroError("a number has more than 64 bits")
    return _unzigzag(found), ends


def _unzigzag(found: Array) -> Array:
    signs = np.uint64(0) - (found & np.uint64(1))
    whole: Array = ((found >> np.uint64(1)) ^ signs).view(np.int64)
    return whole


def raw_bytes(slices: pa.Array) -> tuple[Array, Array]:
    """The bytes of a large binary array, and where in them each value begins and the last one ends."""
    _, offsets, data = slices.buffers()
    if not len(slices):
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    places = np.frombuffer(offsets, np.int64, len(slices) + 1, slices.offset * 8)
    whole = np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)
    return whole[places[0] : places[-1]], places - places[0]


class _Counts:
    """Maps of numbers: a column of counts for each key, -1 where a file doesn't have it."""

    def __init__(self, raw: pa.Array) -> None:
        data, places = raw_bytes(raw)
        found, ends = decode_numbers(data)
        # The first number of a slice is its item count; two for each item follow, then a zero.
        written = np.flatnonzero(places[1:] > places[:-1])
        firsts = np.searchsorted(ends, places[written])
        items = found[firsts]
        pairs = _ranges(firsts + 1, items, 2)
        self._files = len(raw)
        self._owners = np.repeat(written, items)
        self._values = found[pairs + 1]
        self.groups = _grouped(found[pairs])

    def column(self, field_id: int) -> Array:
        """The counts of one column."""
        column = np.full(self._files, -1, np.int64)
        here = self.groups.get(field_id)
        if here is not None:
            column[self._owners[here]] = np.maximum(self._values[here], -1)
        return column


class _Blobs:
    """Maps of bytes: a column for each key, null where a file doesn't have it."""

    def __init__(self, raw: pa.Array) -> None:
        data, places = raw_bytes(raw)
        owners = np.flatnonzero(places[1:] > places[:-1])
        left, pos = _numbers_at(data, places[owners])
        items: list[tuple[Array, Array, Array, Array]] = []
        # A step for each column, over all files: where an item begins is known once the one before was read.
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
        self.groups = _grouped(keys)

    def column(self, field_id: int) -> pa.Array:
        """The bytes of one column."""
        here = self.groups.get(field_id)
        if here is None:
            return pa.nulls(self._files, pa.large_binary())
        begin, size, known = (np.zeros(self._files, dtype) for dtype in (np.int64, np.int64, bool))
        owners = self._owners[here]
        begin[owners], size[owners], known[owners] = self._starts[here], self._sizes[here], True
        offsets = np.concatenate([[0], np.cumsum(size)])
        values = self._data[_ranges(begin, size, 1)]
        valid = None if known.all() else pa.py_buffer(np.packbits(known, bitorder="little"))
        buffers = [valid, pa.py_buffer(offsets), pa.py_buffer(values)]
        return pa.Array.from_buffers(pa.large_binary(), self._files, buffers)


def _numbers_at(data: Array, pos: Array) -> tuple[Array, Array]:
    """A zigzag varint at each position, and the positions after them."""
    byte = data[pos]
    found = (byte & 0x7F).astype(np.uint64)
    after = pos + 1
    longer = np.flatnonzero(byte > 0x7F)
    shift = 7
    while len(longer):
        byte = data[after[longer]]
        found[longer] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        after[longer] += 1
        longer = longer[byte > 0x7F]
        shift += 7
    return _unzigzag(found), after


def _grouped(keys: Array) -> dict[int, Array]:
    """For each key, the places it is at, in order."""
    order = np.argsort(keys, kind="stable")
    distinct, first = np.unique(keys[order], return_index=True)
    return dict(zip(distinct.tolist(), np.split(order, first[1:]), strict=False))


def _ranges(starts: Array, counts: Array, step: int) -> Array:
    """``starts[i], starts[i] + step, ...``, ``counts[i]`` of them, for all i."""
    before = np.cumsum(counts) - counts
    within = np.arange(int(counts.sum())) - np.repeat(before, counts)
    ranges: Array = np.repeat(starts, counts) + within * step
    return ranges
