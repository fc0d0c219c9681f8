"""Conversion of file data to the lake's schema: columns are matched by name, types widened without loss.

pyarrow casts leaf arrays and checks that no value changes. Nested arrays are converted here, because their
fields are matched by name, and because pyarrow 26 loses values of sliced list views.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.domain.keys import is_binary, is_text, storage_type
from skipstone.core.evidence import Array
from skipstone.core.plain import type_name
from skipstone.errors import SchemaError
from skipstone.lake.schema import children, decoded, is_list, merge_types

Path: TypeAlias = tuple[str, ...]
REWRITE: Final = "rewrite the file, or pass a schema whose type holds both"
"""The hint for a file whose column has another type."""
NULLABLE: Final = "make the column nullable"
"""The hint for NULLs in a required column."""


@dataclass(frozen=True, slots=True, eq=False)
class Evolution:
    """Type changes that an evolved table allows beyond widening, and defaults of missing fields.

    Dates become timestamps; timestamps get the table's unit (if no value is truncated) and zone (a label:
    they are UTC). Bytes become UUIDs. ``defaults`` are the values of fields that a file lacks, by path; list
    elements, map keys and map values are called ``element``, ``key`` and ``value``.
    """

    defaults: Mapping[Path, pa.Scalar]


def conform(
    table: pa.Table,
    schema: pa.Schema,
    *,
    path: str,
    evolution: Evolution | None = None,
    owner: Literal["lake", "table"] = "lake",
) -> pa.Table:
    """Convert a table read from ``path`` to ``schema`` of ``owner``; missing columns are NULL."""
    if table.schema.equals(schema, check_metadata=True):
        return table
    if not len(schema):
        return table.select([])  # a table built from no columns would lose its row count
    own = table.schema
    if own.types == schema.types and own.names == schema.names:
        columns = table.columns
        # A list and no generator: this is done for every page that is read.
        if not [
            column
            for column, field in zip(columns, schema, strict=True)
            if column.null_count and not field.nullable
        ]:
            return pa.Table.from_arrays(columns, schema=schema)
    columns = [
        _conform_column(table, position, field, path, evolution, owner)
        for field, position in zip(schema, _positions(table.schema, schema, path), strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def check_readable(file_schema: pa.Schema, lake_schema: pa.Schema, path: str, lake_path: str) -> None:
    """Raise if a file has a column that can't be widened to its type in the lake at ``lake_path``."""
    for field, position in zip(lake_schema, _positions(file_schema, lake_schema, path), strict=True):
        if position is not None:
            _check(file_schema.field(position).type, field, path, f"in {lake_path}", None)


def _positions(own: pa.Schema, wanted: pa.Schema, path: str) -> list[int | None]:
    """Position of each wanted column in the file; None if the file lacks it."""
    if own.names == wanted.names:
        return list(range(len(own)))
    positions: dict[str, int] = {}
    duplicates = {name for at, name in enumerate(own.names) if positions.setdefault(name, at) != at}
    for name in wanted.names:
        if name in duplicates:
            raise SchemaError(
                "two columns of the file have this name",
                path=path,
                column=name,
                hint="rename one of them, or remove the file from the lake",
            )
    return [positions.get(name) for name in wanted.names]


def _conform_column(
    table: pa.Table,
    position: int | None,
    field: pa.Field,
    path: str,
    evolution: Evolution | None,
    owner: str,
) -> pa.ChunkedArray:
    converter = _Converter(evolution)
    if position is None:
        column = converter.default(field, (field.name,), table.num_rows)
    else:
        column = table.column(position)
    if column.null_count and not field.nullable:
        raise _unexpected_null(path, field.name, owner)
    if position is None:
        return pa.chunked_array([column])
    if column.type == field.type:
        return column
    _check(column.type, field, path, f"in the {owner}'s schema", evolution)
    try:
        arrays = [converter.convert(chunk, field.type, (field.name,)) for chunk in column.chunks]
        return pa.chunked_array(arrays, type=field.type)
    except _UnexpectedNull as error:
        raise _unexpected_null(path, ".".join(error.path), owner) from error
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaError(
            f"can't convert {type_name(column.type)} to the {owner}'s type {type_name(field.type)}: {error}",
            path=path,
            column=field.name,
            hint=f"rewrite the file with the {owner}'s type, or pass a schema whose type holds all values",
        ) from error


class _UnexpectedNull(Exception):
    """A required nested field is missing."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path


def _unexpected_null(path: str, column: str, owner: str) -> SchemaError:
    return SchemaError(
        f"column has NULLs, but is not nullable in the {owner}'s schema",
        path=path,
        column=column,
        hint=NULLABLE,
    )


# -- types -------------------------------------------------------------------------------------


def _check(own: pa.DataType, field: pa.Field, path: str, where: str, evolution: Evolution | None) -> None:
    mismatch = _mismatch(own, field.type, field.name, evolved=evolution is not None)
    if mismatch is not None:
        column, here, there = mismatch[0], *map(type_name, mismatch[1:])
        raise SchemaError(
            f"column is {here} here, but {there} {where}: the conversion could lose values",
            path=path,
            column=column,
            hint=REWRITE,
        )


def fits(own: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values of a file's type can be read as the table's type."""
    return _mismatch(own, wanted, "", evolved=True) is None


def _mismatch(
    own: pa.DataType, wanted: pa.DataType, column: str, *, evolved: bool
) -> tuple[str, pa.DataType, pa.DataType] | None:
    """The path of the first nested type that can't be converted, and both types; None if all can."""
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
        mismatch = _mismatch(one, other, f"{column}.{name}", evolved=evolved)
        if mismatch is not None:
            return mismatch
    return None


def _widens(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether every value of one leaf type is a value of the other, regardless of memory layout."""
    merged = merge_types(target, source)
    if merged is None or merged == target:
        return merged is not None
    if pa.types.is_decimal(target):
        return (merged.precision, merged.scale) == (target.precision, target.scale)
    return is_text(target) or is_binary(target) or bool(pa.types.is_date(target))


def _evolves(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether a table's column can have changed from one leaf type to the other."""
    if pa.types.is_timestamp(target):
        return bool(pa.types.is_timestamp(source) or (pa.types.is_date32(source) and target.tz is None))
    return bool(storage_type(source) == storage_type(target))


# -- arrays ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Converter:
    """Converts arrays to the lake's types, and supplies missing fields."""

    evolution: Evolution | None

    def default(self, field: pa.Field, path: Path, rows: int) -> pa.Array:
        """Values of a field that the file lacks."""
        value = None if self.evolution is None else self.evolution.defaults.get(path)
        if value is None:
            return pa.nulls(rows, field.type)
        if isinstance(value, pa.ExtensionScalar):
            return pa.ExtensionArray.from_storage(value.type, pa.repeat(value.value, rows))
        return pa.repeat(value, rows)

    def convert(self, array: pa.Array, target: pa.DataType, path: Path) -> pa.Array:
        """Convert an array to a type that ``_mismatch`` has accepted."""
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
        own = {field.name: position for position, field in enumerate(array.type.fields)}
        parts = []
        for field in target.fields:
            below = (*path, field.name)
            if field.name in own:
                part = self.convert(_part(array, own[field.name], field.type), field.type, below)
            else:
                part = self.default(field, below, len(array))
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
            if target.list_size == 0:  # pyarrow divides by the size, and crashes
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


def _part(array: pa.StructArray, position: int, target: pa.DataType) -> pa.Array:
    part = array.field(position)
    if part.type == target or not array.null_count or pa.types.is_run_end_encoded(part.type):
        return part
    # Garbage under a NULL struct must not fail the conversion.
    return array.flatten()[position]


@dataclass(frozen=True, slots=True, eq=False)
class _Spans:
    """Start and length of each list among an array's values; a NULL list has length 0."""

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
        """The elements of all lists, concatenated; a slice if they are contiguous."""
        shifts = self.starts - self.offsets[:-1]
        used = shifts[self.lengths > 0]
        total = int(self.offsets[-1])
        if not len(used):
            return values.slice(0, 0)
        if (used == used[0]).all():
            return values.slice(int(used[0]), total)
        return _take(values, pa.array(np.repeat(shifts, self.lengths) + np.arange(total)))

    def slots(self, values: pa.Array, size: int) -> pa.Array:
        """``size`` elements for each list; NULLs for a NULL list."""
        if (self.lengths == size).all():
            return self.elements(values)
        indices = self.starts[:, None] + np.arange(size)
        unused = np.repeat(self.lengths != size, size)
        return _take(values, pa.array(indices.reshape(-1), mask=unused))


def _take(values: pa.Array, indices: pa.Array) -> pa.Array:
    try:
        return values.take(indices)
    except pa.ArrowNotImplementedError:  # string views; such lists are rare, so a loop will do
        null = pa.nulls(1, values.type)
        return pa.concat_arrays([null if at is None else values.slice(at, 1) for at in indices.to_pylist()])
