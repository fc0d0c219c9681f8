"""Tables of single files brought to the lake's schema: columns by name, types widened without loss.

pyarrow casts leaves, and checks that no value is changed. Nested arrays are taken apart here: their fields
go by name, and pyarrow 26 loses the values of sliced list views.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.domain.keys import is_binary, is_text, storage_type
from skipstone.core.evidence import Array
from skipstone.errors import SchemaError
from skipstone.lake.schema import children, decoded, is_list, merge_types

Path: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Evolution:
    """What a table that has evolved allows its files beyond widening: more types, and fields not yet there.

    Dates become timestamps, and timestamps get the table's unit (if no value is cut) and zone (a label: they
    are UTC). Bytes become UUIDs where the table has these. ``defaults`` are the values of fields that a file
    lacks, by path: with ``element``, ``key`` and ``value`` for what lists and maps hold.
    """

    defaults: Mapping[Path, pa.Scalar]


def conform(table: pa.Table, schema: pa.Schema, *, path: str, evolution: Evolution | None = None) -> pa.Table:
    """The columns of ``schema`` from a table read from ``path``; those it doesn't have are NULL."""
    if table.schema.equals(schema, check_metadata=True):
        return table
    if not len(schema):
        return table.select([])  # a table made of no columns would forget its number of rows
    columns = [
        _conform_column(table, place, field, path, evolution)
        for field, place in zip(schema, _places(table.schema, schema, path), strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def check_readable(file_schema: pa.Schema, lake_schema: pa.Schema, path: str, lake_path: str) -> None:
    """Raise if a file has a column that can't be widened to the lake's type, which ``lake_path`` set."""
    for field, place in zip(lake_schema, _places(file_schema, lake_schema, path), strict=True):
        if place is not None:
            _check(file_schema.field(place).type, field, path, f"in {lake_path}", None)


def _places(own: pa.Schema, wanted: pa.Schema, path: str) -> list[int | None]:
    """Where each wanted column is in the file; None for one it doesn't have."""
    if own.names == wanted.names:
        return list(range(len(own)))
    places: dict[str, int] = {}
    twice = {name for place, name in enumerate(own.names) if places.setdefault(name, place) != place}
    for name in wanted.names:
        if name in twice:
            raise SchemaError(
                "the name occurs twice: which column is meant can't be told",
                path=path,
                column=name,
                hint="rename one of the two columns, or leave the file out of the lake",
            )
    return [places.get(name) for name in wanted.names]


def _conform_column(
    table: pa.Table, place: int | None, field: pa.Field, path: str, evolution: Evolution | None
) -> pa.ChunkedArray:
    ways = _Converter(evolution)
    column = table.column(place) if place is not None else ways.lacking(field, (field.name,), table.num_rows)
    if column.null_count and not field.nullable:
        raise _unexpected_null(path, field.name)
    if place is None:
        return pa.chunked_array([column])
    if column.type == field.type:
        return column
    _check(column.type, field, path, "in the lake's schema", evolution)
    try:
        arrays = [ways.convert(chunk, field.type, (field.name,)) for chunk in column.chunks]
        return pa.chunked_array(arrays, type=field.type)
    except _UnexpectedNull as error:
        raise _unexpected_null(path, ".".join(error.path)) from error
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaError(
            f"a value of type {column.type} doesn't fit the lake's type {field.type}: {error}",
            path=path,
            column=field.name,
            hint="rewrite the file with the lake's type, or give the lake a schema that holds all values",
        ) from error


class _UnexpectedNull(Exception):
    """A nested field that must have values is not there."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path


def _unexpected_null(path: str, column: str) -> SchemaError:
    return SchemaError(
        "NULL in a column that the lake's schema says has none",
        path=path,
        column=column,
        hint="make the column nullable",
    )


# -- types -------------------------------------------------------------------------------------


def _check(own: pa.DataType, field: pa.Field, path: str, where: str, evolution: Evolution | None) -> None:
    found = _misfit(own, field.type, field.name, evolved=evolution is not None)
    if found is not None:
        column, here, there = found
        raise SchemaError(
            f"the type is {here}, but {there} {where}: some values would be lost",
            path=path,
            column=column,
            hint="rewrite the file, or give the lake a schema that holds the values of both",
        )


def fits(own: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a table that has one type now may hold files with the other, whatever their values."""
    return _misfit(own, wanted, "", evolved=True) is None


def _misfit(
    own: pa.DataType, wanted: pa.DataType, column: str, *, evolved: bool
) -> tuple[str, pa.DataType, pa.DataType] | None:
    """The first place where values of one type can't become the other, and both types there."""
    if own == wanted or pa.types.is_null(own):
        return None
    source, target = decoded(own), decoded(wanted)
    parts = children(source, target)
    if parts is None:
        fits = _widens(source, target) or (evolved and _evolves(source, target))
        return None if fits else (column, own, wanted)
    if pa.types.is_fixed_size_list(target) and (
        not pa.types.is_fixed_size_list(source) or source.list_size != target.list_size
    ):
        return column, own, wanted
    if pa.types.is_struct(source) and len({field.name for field in source.fields}) < source.num_fields:
        return column, own, wanted
    for name, one, other in parts:
        found = _misfit(one, other, f"{column}.{name}", evolved=evolved)
        if found is not None:
            return found
    return None


def _widens(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether every value of one leaf type is one of the other; how values are laid out is no matter."""
    merged = merge_types(target, source)
    if merged is None or merged == target:
        return merged is not None
    if pa.types.is_decimal(target):
        return (merged.precision, merged.scale) == (target.precision, target.scale)
    return is_text(target) or is_binary(target) or bool(pa.types.is_date(target))


def _evolves(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether a table may have had one leaf type, or has it in some files, where it has the other now."""
    if pa.types.is_timestamp(target):
        return bool(pa.types.is_timestamp(source) or (pa.types.is_date32(source) and target.tz is None))
    return bool(storage_type(source) == storage_type(target))


# -- arrays ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Converter:
    """How arrays come to the lake's types, and what fields are that a file lacks."""

    evolution: Evolution | None

    def lacking(self, field: pa.Field, path: Path, rows: int) -> pa.Array:
        """A field that the file doesn't have."""
        value = None if self.evolution is None else self.evolution.defaults.get(path)
        if value is None:
            return pa.nulls(rows, field.type)
        if isinstance(value, pa.ExtensionScalar):
            return pa.ExtensionArray.from_storage(value.type, pa.repeat(value.value, rows))
        return pa.repeat(value, rows)

    def convert(self, array: pa.Array, target: pa.DataType, path: Path) -> pa.Array:
        """``array`` as ``target``, which its type is known to fit."""
        source = array.type
        if source == target:
            return array
        if pa.types.is_null(source):
            return pa.nulls(len(array), target)
        if pa.types.is_dictionary(source):
            return self._dictionary(array, target, path)
        if pa.types.is_run_end_encoded(source):
            return self.convert(pc.run_end_decode(array), target, path)
        if pa.types.is_dictionary(target):
            plain = self.convert(array, target.value_type, path)
            return self._dictionary(plain.dictionary_encode(), target, path)
        if pa.types.is_run_end_encoded(target):
            return pc.run_end_encode(self.convert(array, target.value_type, path), target.run_end_type)
        if pa.types.is_struct(source):
            return self._struct(array, target, path)
        if pa.types.is_map(source):
            return self._map(array, target, path)
        if is_list(source):
            return self._list(array, target, path)
        if isinstance(source, pa.BaseExtensionType):
            return self.convert(array.storage, target, path)
        if isinstance(target, pa.BaseExtensionType):
            return pa.ExtensionArray.from_storage(target, self.convert(array, target.storage_type, path))
        return array.cast(target)

    def _dictionary(self, array: pa.DictionaryArray, target: pa.DataType, path: Path) -> pa.Array:
        if not pa.types.is_dictionary(target):
            return self.convert(array.dictionary_decode(), target, path)
        indices = array.indices.cast(target.index_type)
        values = self.convert(array.dictionary, target.value_type, path)
        return pa.DictionaryArray.from_arrays(indices, values, ordered=target.ordered)

    def _struct(self, array: pa.StructArray, target: pa.DataType, path: Path) -> pa.Array:
        own = {field.name: place for place, field in enumerate(array.type.fields)}
        parts = []
        for field in target.fields:
            below = (*path, field.name)
            if field.name in own:
                part = self.convert(_part(array, own[field.name], field.type), field.type, below)
            else:
                part = self.lacking(field, below, len(array))
                if part.null_count and not field.nullable and array.null_count < len(array):
                    raise _UnexpectedNull(below)
            parts.append(part)
        return pa.StructArray.from_arrays(parts, fields=list(target.fields), mask=array.is_null())

    def _map(self, array: pa.MapArray, target: pa.DataType, path: Path) -> pa.Array:
        spans = _Spans.of(array)
        keys = self.convert(spans.elements(array.keys), target.key_type, (*path, "key"))
        items = self.convert(spans.elements(array.items), target.item_type, (*path, "value"))
        offsets = pa.array(spans.offsets, pa.int32())
        return pa.MapArray.from_arrays(offsets, keys, items, type=target, mask=array.is_null())

    def _list(self, array: pa.Array, target: pa.DataType, path: Path) -> pa.Array:
        spans, mask, inside = _Spans.of(array), array.is_null(), (*path, "element")
        if pa.types.is_fixed_size_list(target):
            if target.list_size == 0:  # pyarrow divides by the size, and takes the process down
                return pa.array(array.to_pylist(), target)
            slots = spans.slots(array.values, target.list_size)
            values = self.convert(slots, target.value_type, inside)
            return pa.FixedSizeListArray.from_arrays(values, type=target, mask=mask)
        values = self.convert(spans.elements(array.values), target.value_type, inside)
        if pa.types.is_list(target) or pa.types.is_large_list(target):
            wide = pa.types.is_large_list(target)
            offsets = pa.array(spans.offsets, pa.int64() if wide else pa.int32())
            made = pa.LargeListArray if wide else pa.ListArray
            return made.from_arrays(offsets, values, type=target, mask=mask)
        wide = pa.types.is_large_list_view(target)
        number = pa.int64() if wide else pa.int32()
        view = pa.LargeListViewArray if wide else pa.ListViewArray
        starts, sizes = pa.array(spans.offsets[:-1], number), pa.array(spans.lengths, number)
        return view.from_arrays(starts, sizes, values, type=target, mask=mask)


def _part(array: pa.StructArray, place: int, target: pa.DataType) -> pa.Array:
    part = array.field(place)
    if part.type == target or not array.null_count or pa.types.is_run_end_encoded(part.type):
        return part
    # What lies under a NULL struct is no value, and must not fail to fit.
    return array.flatten()[place]


@dataclass(frozen=True, slots=True, eq=False)
class _Spans:
    """Where the elements of each list lie among an array's values. A NULL has none, whatever lies there."""

    starts: Array
    lengths: Array
    offsets: Array

    @classmethod
    def of(cls, array: pa.Array) -> _Spans:
        if pa.types.is_fixed_size_list(array.type):
            size = array.type.list_size
            starts = (array.offset + np.arange(len(array), dtype=np.int64)) * size
            lengths = np.full(len(array), size, dtype=np.int64)
        elif hasattr(array, "sizes"):
            starts, lengths = (np.asarray(part).astype(np.int64) for part in (array.offsets, array.sizes))
        else:
            ends = np.asarray(array.offsets).astype(np.int64)
            starts, lengths = ends[:-1], np.diff(ends)
        if array.null_count:
            lengths = np.where(np.asarray(array.is_valid()), lengths, 0)
        return cls(starts, lengths, np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]))

    def elements(self, values: pa.Array) -> pa.Array:
        """The elements of all lists, one after the other; a mere slice where they lie like that."""
        shifts = self.starts - self.offsets[:-1]
        used = shifts[self.lengths > 0]
        total = int(self.offsets[-1])
        if not len(used):
            return values.slice(0, 0)
        if (used == used[0]).all():
            return values.slice(int(used[0]), total)
        return _take(values, pa.array(np.repeat(shifts, self.lengths) + np.arange(total)))

    def slots(self, values: pa.Array, size: int) -> pa.Array:
        """``size`` elements for each list, NULLs for one that is NULL."""
        if (self.lengths == size).all():
            return self.elements(values)
        places = self.starts[:, None] + np.arange(size)
        unused = np.repeat(self.lengths != size, size)
        return _take(values, pa.array(places.reshape(-1), mask=unused))


def _take(values: pa.Array, places: pa.Array) -> pa.Array:
    try:
        return values.take(places)
    except pa.ArrowNotImplementedError:  # from views of strings; such lists are rare enough for a loop
        nothing = pa.nulls(1, values.type)
        return pa.concat_arrays(
            [nothing if place is None else values.slice(place, 1) for place in places.to_pylist()]
        )
