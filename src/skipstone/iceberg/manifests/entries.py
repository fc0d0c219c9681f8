"""The files a snapshot is made of, in columns: what manifests say about each, and its metrics when asked."""

from __future__ import annotations

import base64
import decimal
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from skipstone.core.evidence import Array
from skipstone.errors import CorruptFileError
from skipstone.iceberg.manifests.maps import (
    BOUNDS,
    MAPS,
    NUMBERS,
    Chosen,
    Columns,
    Joined,
    Lazy,
    Measures,
    Metrics,
)
from skipstone.iceberg.partitions.keys import PartitionKey

__all__ = ["Entries", "Metrics"]

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
