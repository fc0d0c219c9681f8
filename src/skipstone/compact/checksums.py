"""Checksums of columns, and of entire rows, that don't depend on the order of rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from skipstone.core.arrays import plain
from skipstone.core.evidence import Array

ROWS: Final = ""
"""Stands for a column with the values of all columns."""


@dataclass(slots=True)
class Checksums:
    """Sums of hashes of the values of each column, and of each row, modulo 2⁶⁴."""

    sums: dict[str, int] = field(default_factory=dict)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch."""
        rows = np.zeros(batch.num_rows, dtype=np.uint64)
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            hashes = _hashes(column)
            self._add(name, int(hashes.sum(dtype=np.uint64)))
            # Names make equal values of two columns differ, in any order of the columns.
            rows += _mixed(hashes ^ np.uint64(xxhash.xxh3_64_intdigest(name.encode())))
        self._add(ROWS, int(_mixed(rows).sum(dtype=np.uint64)))

    def merge(self, other: Checksums) -> None:
        """Add the rows of other checksums."""
        for name, total in other.sums.items():
            self._add(name, total)

    def difference(self, other: Checksums) -> str | None:
        """The first column whose values differ, ``ROWS`` if only their combinations do; None for none."""
        names = dict.fromkeys([*self.sums, *other.sums])
        wrong = [name for name in names if self.sums.get(name, 0) != other.sums.get(name, 0)]
        return min(wrong, key=lambda name: name == ROWS, default=None)

    def _add(self, name: str, total: int) -> None:
        self.sums[name] = (self.sums.get(name, 0) + total) % 2**64


_WIDTHS = (8, 16, 32, 64)
_NULL = np.uint64(0x9E3779B97F4A7C15)


def _hashes(column: pa.Array) -> Array:
    """A hash of each row; equal for equal values, and of NULL a constant."""
    array = plain(column)
    type = array.type
    if pa.types.is_struct(type):
        hashes = _mixed(np.full(len(array), type.num_fields, dtype=np.uint64))
        for part in array.flatten():
            hashes = _mixed(hashes * np.uint64(31) + _hashes(part))
    elif pa.types.is_map(type) or pa.types.is_list(type) or pa.types.is_large_list(type):
        hashes = _list_hashes(array)
    elif pa.types.is_fixed_size_list(type):
        hashes = _list_hashes(array.cast(pa.list_(type.value_field)))
    else:
        hashes = _value_hashes(array)
    return np.where(np.asarray(array.is_null()), _NULL, hashes)


def _list_hashes(array: pa.Array) -> Array:
    """The hash of a list depends on the order of its elements."""
    values = array.flatten() if not pa.types.is_map(array.type) else _map_items(array)
    lengths = np.asarray(pc.fill_null(_lengths(array), 0)).astype(np.int64)
    owners = np.repeat(np.arange(len(array)), lengths)
    places = np.arange(len(owners)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    elements = _mixed(_hashes(values) + places.astype(np.uint64) * _NULL)
    hashes = _mixed(lengths.astype(np.uint64))
    np.add.at(hashes, owners, elements)
    return hashes


def _lengths(array: pa.Array) -> pa.Array:
    if not pa.types.is_map(array.type):
        return pc.list_value_length(array)
    return pa.array(np.diff(np.asarray(array.offsets)), mask=np.asarray(array.is_null()))


def _map_items(array: pa.Array) -> pa.Array:
    first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
    names = ["key", "value"]
    items = pa.StructArray.from_arrays([array.keys, array.items], names)
    whole = items.slice(first, last - first)
    # Items under a NULL map are not part of it.
    lengths = np.diff(np.asarray(array.offsets))
    return whole.filter(pa.array(np.repeat(~np.asarray(array.is_null()), lengths)))


def _value_hashes(array: pa.Array) -> Array:
    """Hash values by their bytes."""
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.uint8())
    if pa.types.is_primitive(array.type) and array.type.bit_width in _WIDTHS:
        width = array.type.bit_width // 8
        data = np.frombuffer(array.buffers()[1] or b"", f"u{width}", len(array), array.offset * width)
        bits = data.astype(np.uint64)
        if pa.types.is_floating(array.type):
            bits = np.where(np.asarray(pc.fill_null(pc.is_nan(array), False)), _NULL, bits)
        return _mixed(bits)
    codes = array.dictionary_encode(null_encoding="encode")
    # Each distinct value is hashed once; no Arrow kernel hashes strings.
    texts = [
        value if isinstance(value, bytes) else str(value).encode() for value in codes.dictionary.to_pylist()
    ]
    hashes = np.array([xxhash.xxh3_64_intdigest(text) for text in texts], dtype=np.uint64)
    taken: Array = hashes[np.asarray(codes.indices)] if len(hashes) else np.zeros(0, dtype=np.uint64)
    return taken


def _mixed(values: Array) -> Array:
    """The finalizer of MurmurHash3."""
    with np.errstate(over="ignore"):
        values = (values ^ (values >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
        values = (values ^ (values >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
        mixed: Array = values ^ (values >> np.uint64(33))
    return mixed
