"""Entries of many manifests that lie together: each manifest's are a run of them."""

from __future__ import annotations

import base64
import decimal
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from skipstone.core.evidence import Array
from skipstone.errors import CorruptFileError
from skipstone.iceberg.manifests.avro import AvroError
from skipstone.iceberg.partitions.values import PartitionKey

NUMBERS = ("values", "nulls", "nans")
BOUNDS = ("lower", "upper")
MAPS = (*NUMBERS, *BOUNDS)
_LONGEST = 10


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


class Measures(Protocol):
    """Metrics of every column in the same files, worked out when asked for."""

    def fields(self) -> tuple[int, ...]:
        """The field ids that anything is known about, ascending."""

    def get(self, field_id: int) -> Metrics | None:
        """The metrics of one column; None if nothing is known."""


@dataclass(frozen=True, slots=True, eq=False)
class Written:
    """Maps as manifests hold them: for each file one slice of Avro, null where it has none."""

    maps: tuple[pa.Array, ...]
    """One array for each of ``MAPS``."""

    def take(self, units: Array) -> Written:
        """The maps of the chosen files."""
        places = pa.array(units)
        return Written(tuple(raw.take(places) for raw in self.maps))


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Metrics by field id, all worked out."""

    metrics: dict[int, Metrics]

    def fields(self) -> tuple[int, ...]:
        """The field ids that anything is known about, ascending."""
        return tuple(sorted(self.metrics))

    def get(self, field_id: int) -> Metrics | None:
        """The metrics of one column; None if nothing is known."""
        return self.metrics.get(field_id)


class Lazy:
    """Metrics that are still as written: read together when the first is asked for."""

    def __init__(self, written: Written) -> None:
        self.written = written
        self._maps: dict[str, _Counts | _Blobs] = {}
        self._known: dict[int, Metrics] = {}

    def fields(self) -> tuple[int, ...]:
        """The field ids that anything is known about, ascending."""
        return tuple(sorted({field_id for known in self._read().values() for field_id in known.groups}))

    def get(self, field_id: int) -> Metrics | None:
        """The metrics of one column; None if nothing is known."""
        if field_id not in self._known:
            maps = self._read()
            if not any(field_id in known.groups for known in maps.values()):
                return None
            self._known[field_id] = Metrics(**{name: known.column(field_id) for name, known in maps.items()})
        return self._known[field_id]

    def _read(self) -> dict[str, _Counts | _Blobs]:
        if not self._maps:
            named = zip(MAPS, self.written.maps, strict=True)
            self._maps = {name: _Counts(raw) if name in NUMBERS else _Blobs(raw) for name, raw in named}
        return self._maps

    def __reduce__(self) -> tuple[Any, ...]:
        return Lazy, (self.written,)


class Chosen:
    """Metrics of some of the files of others."""

    def __init__(self, whole: Measures, units: Array) -> None:
        self.whole = whole
        self.units = units
        self._known: dict[int, Metrics] = {}

    def fields(self) -> tuple[int, ...]:
        """The field ids that anything is known about, ascending."""
        return self.whole.fields()

    def get(self, field_id: int) -> Metrics | None:
        """The metrics of one column; None if nothing is known."""
        if field_id not in self._known:
            found = self.whole.get(field_id)
            if found is None:
                return None
            self._known[field_id] = found.take(self.units)
        return self._known[field_id]

    def __reduce__(self) -> tuple[Any, ...]:
        # What is sent elsewhere are the chosen files alone.
        if isinstance(self.whole, Lazy):
            return Lazy, (self.whole.written.take(self.units),)
        return Columns, ({i: m for i in self.fields() if (m := self.get(i)) is not None},)


class Joined:
    """Metrics of several runs of files, one after the other."""

    def __init__(self, parts: Sequence[tuple[Measures, int]]) -> None:
        self.parts = tuple(parts)
        self._known: dict[int, Metrics] = {}

    def fields(self) -> tuple[int, ...]:
        """The field ids that anything is known about, ascending."""
        return tuple(sorted({field_id for part, _ in self.parts for field_id in part.fields()}))

    def get(self, field_id: int) -> Metrics | None:
        """The metrics of one column; None if nothing is known."""
        if field_id not in self._known:
            found = [(part.get(field_id), files) for part, files in self.parts]
            if all(metrics is None for metrics, _ in found):
                return None
            given = [m if m is not None else Metrics.unknown(files) for m, files in found]
            self._known[field_id] = Metrics.concat(given)
        return self._known[field_id]

    def __reduce__(self) -> tuple[Any, ...]:
        return Joined, (self.parts,)


# -- Avro, many slices at once -----------------------------------------------------------------


def numbers(data: Array) -> tuple[Array, Array]:
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
        found, ends = numbers(data)
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
        keys, self._owners, self._starts, self._sizes = map(
            np.concatenate, zip(*items, strict=True) if items else zip(none, strict=True)
        )
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


_NUMBERS = {
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
    """Metrics of all columns, most of them not yet read."""

    def __len__(self) -> int:
        return len(self.rows)

    def metrics(self, field_id: int) -> Metrics:
        """What was written down about one column, in every file."""
        found = self.measures.get(field_id)
        return Metrics.unknown(len(self)) if found is None else found

    def metric_fields(self) -> tuple[int, ...]:
        """The field ids that anything is written down about, ascending."""
        return self.measures.fields()

    def take(self, units: Array) -> Entries:
        """The chosen files, in that order, and the keys that they have."""
        units = np.asarray(units)
        if units.dtype == bool:
            units = np.flatnonzero(units)
        places = pa.array(units, pa.int64())
        measures = self.measures
        if isinstance(measures, Chosen):
            measures = Chosen(measures.whole, measures.units[units])
        else:
            measures = Chosen(measures, units)
        ids = self.equality_ids
        numbers = {name: getattr(self, name)[units] for name in _NUMBERS}
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
            measures=measures,
        )

    @staticmethod
    def empty() -> Entries:
        """No files at all."""
        return Entries(
            **{name: np.empty(0, dtype) for name, dtype in _NUMBERS.items()},
            **{name: pa.array([], type) for name, type in _TEXTS.items()},
            keys=(),
            equality_ids=(),
            measures=Columns({}),
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
        joined = {name: np.concatenate([getattr(p, name) for p in parts]) for name in _NUMBERS}
        joined["partitions"] = np.concatenate(moved)
        return Entries(
            **joined,
            **{name: pa.concat_arrays([getattr(p, name) for p in parts]) for name in _TEXTS},
            keys=keys,
            equality_ids=tuple(ids for part in parts for ids in part.equality_ids),
            measures=Joined([(part.measures, len(part)) for part in parts]),
        )

    @property
    def nbytes(self) -> int:
        """About what the entries weigh in memory, with metrics that are as written."""
        own = sum(getattr(self, name).nbytes for name in (*_NUMBERS, *_TEXTS))
        maps = self.measures.written.maps if isinstance(self.measures, Lazy) else ()
        return int(own + sum(raw.nbytes for raw in maps)) + 200 * len(self.keys)

    # -- one Arrow table -----------------------------------------------------------------------

    def to_table(self) -> pa.Table:
        """All of it as one table, each column's metrics in columns of their own: ``lower.7`` and so on."""
        distinct = sorted(set(self.equality_ids))
        place = {ids: i for i, ids in enumerate(distinct)}
        columns: dict[str, Any] = {name: getattr(self, name) for name in _TEXTS}
        columns |= {name: pa.array(getattr(self, name)) for name in _NUMBERS}
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
        meta = {
            "layout": _LAYOUT,
            "keys": [_key_to_json(key) for key in self.keys],
            "equality_ids": distinct,
        }
        return pa.table(columns).replace_schema_metadata({_META: json.dumps(meta)})

    @staticmethod
    def from_table(table: pa.Table) -> Entries:
        """The entries that :meth:`to_table` wrote; their columns are those of the table, not copies."""
        try:
            meta = json.loads((table.schema.metadata or {})[_META])
            if meta["layout"] != _LAYOUT:
                raise ValueError(f"layout {meta['layout']}")
            column = _reader(table)
            keys = tuple(_key_from_json(key) for key in meta["keys"])
            distinct = [tuple(ids) for ids in meta["equality_ids"]]
            codes = column("equality").to_numpy()
            ids = ((),) if distinct in ([], [()]) else ()
            entries = Entries(
                **{name: column(name).to_numpy() for name in _NUMBERS},
                **{name: column(name) for name in _TEXTS},
                keys=keys,
                equality_ids=ids * len(codes) if ids else tuple(distinct[i] for i in codes.tolist()),
                measures=_Stored(table),
            )
        except (KeyError, ValueError, TypeError, IndexError, AttributeError) as error:
            raise CorruptFileError(
                f"these are not the entries of manifests: {error!r}", hint="build the index again"
            ) from None
        if len(entries) and not 0 <= entries.partitions.min() <= entries.partitions.max() < len(keys):
            raise CorruptFileError("an entry's partition is not there", hint="build the index again")
        return entries


class _Stored:
    """Metrics in the columns of a table."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self._known: dict[int, Metrics] = {}

    def fields(self) -> tuple[int, ...]:
        """The field ids that anything is known about, ascending."""
        tails = (name.partition(".")[2] for name in self._table.column_names)
        return tuple(sorted({int(tail) for tail in tails if tail}))

    def get(self, field_id: int) -> Metrics | None:
        """The metrics of one column; None if nothing is known."""
        if field_id not in self._known:
            names = set(self._table.column_names)
            given = [name for name in MAPS if f"{name}.{field_id}" in names]
            if not given:
                return None
            column = _reader(self._table)
            found = {name: column(f"{name}.{field_id}") for name in given}
            blank = Metrics.unknown(self._table.num_rows)
            unknown = {name: getattr(blank, name) for name in MAPS}
            counts = {name: value.to_numpy() for name, value in found.items() if name in NUMBERS}
            self._known[field_id] = Metrics(**(unknown | found | counts))
        return self._known[field_id]

    def __reduce__(self) -> tuple[Any, ...]:
        return _Stored, (self._table,)


def _reader(table: pa.Table) -> Callable[[str], pa.Array]:
    def column(name: str) -> pa.Array:
        whole = table.column(name)
        return whole.chunk(0) if whole.num_chunks == 1 else whole.combine_chunks()

    return column


def sort_keys(keys: set[PartitionKey]) -> tuple[PartitionKey, ...]:
    """Distinct keys in their one order."""
    return tuple(sorted(keys, key=PartitionKey.sort_key))


# -- keys as JSON ------------------------------------------------------------------------------


def _key_to_json(key: PartitionKey) -> list[Any]:
    return [key.spec_id, None if key.partition is None else [_value_to_json(v) for v in key.partition]]


def _key_from_json(data: list[Any]) -> PartitionKey:
    spec_id, values = data
    return PartitionKey(spec_id, None if values is None else tuple(map(_value_from_json, values)))


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
    raise TypeError(f"{value!r} is no partition value")


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
    raise ValueError(f"{data!r} is no partition value")


@dataclass(frozen=True, slots=True, eq=False)
class Part:
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


def joined(parts: Sequence[Part]) -> Entries:
    """The entries of parts one after the other; a batch that is wanted whole is not copied."""
    batches = {id(part.batch): part.batch for part in parts if len(part)}
    if not batches:
        return parts[0].batch if len(parts) == 1 and not len(parts[0].batch) else Entries.empty()
    places = {key: place for place, key in enumerate(batches)}
    starts, stops = np.array([(part.start, part.stop) for part in parts if len(part)], dtype=np.int64).T
    owners = np.array([places[id(part.batch)] for part in parts if len(part)], dtype=np.int64)
    taken = []
    for place, batch in enumerate(batches.values()):
        mine = owners == place
        rows = runs(starts[mine], stops[mine])
        whole = len(rows) == len(batch) and bool((rows == np.arange(len(rows))).all())
        taken.append(batch if whole else batch.take(rows))
    found = Entries.concat(taken)
    if (owners[1:] >= owners[:-1]).all():
        return found
    # Back in the order of the parts: as they lie now, they are sorted by batch.
    order = np.argsort(owners, kind="stable")
    counts = stops - starts
    firsts = np.empty_like(counts)
    firsts[order] = np.cumsum(counts[order]) - counts[order]
    return found.take(runs(firsts, firsts + counts))


def runs(starts: Array, stops: Array) -> Array:
    """The numbers from each start to its stop, one run after the other."""
    counts = stops - starts
    ends = np.cumsum(counts)
    found: Array = np.arange(ends[-1] if len(ends) else 0) + np.repeat(stops - ends, counts)
    return found
