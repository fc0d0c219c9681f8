"""Deleted rows of data files, and equality deletes as sets of keys.

Keys are loaded once, and rows of many data files are looked up in them. Values compare as in Iceberg's
reference implementation: NULL equals NULL, all NaNs are equal, 0.0 and -0.0 differ. A column inside a NULL
struct is NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.arrays import binary_keys, numbers, plain, plain_type
from skipstone.core.domain.keys import PRESENCE, Kind, is_binary, is_text, key_space
from skipstone.core.evidence import Array
from skipstone.core.plain import type_name
from skipstone.core.rows import RowSet
from skipstone.engine.jobs import gather
from skipstone.errors import SchemaError, UsageError
from skipstone.iceberg.deletes.files import (
    deleted_rows,
    inner_column,
    leaf_of,
    open_deletes,
    read_leaves,
    read_positions,
    read_vector,
)
from skipstone.iceberg.deletes.match import DeleteFile, DeleteIndex, DeleteMatches, Facts, Open
from skipstone.iceberg.manifests.entries import Entries
from skipstone.lake.conform import fits
from skipstone.lake.files import Files
from skipstone.lake.snapshot import AntiJoin, Deletions, Path
from skipstone.store.cache import Cache
from skipstone.store.source import Source
from skipstone.store.store import ListedFile

# Arrow hashes the keys again for every batch, which pays up to this many keys per row.
_FEW: Final = 4
# Overhead of a key in a Python dict.
_DICT_WEIGHT: Final = 150


@dataclass(frozen=True, slots=True)
class EqualityDeletes:
    """Equality delete files over the same columns; ``columns`` and ``types`` are the lake's."""

    ids: tuple[int, ...]
    columns: tuple[Path, ...]
    types: tuple[pa.DataType, ...]
    files: tuple[DeleteFile, ...]

    def __hash__(self) -> int:
        # Partial, since every batch looks it up in a cache and there can be thousands of files.
        return hash((self.ids, len(self.files), self.files[:1], self.files[-1:]))

    def load(self, open: Open, *, threads: int = 1, cache: Cache[Any, Any] | None = None) -> DeleteKeys:
        """Read the files in parallel, unless they are cached."""
        if cache is None:
            return self._load(open, threads)
        keys: DeleteKeys = cache.get_or_make(self, lambda: (new := self._load(open, threads), new.weight))
        return keys

    def _load(self, open: Open, threads: int) -> DeleteKeys:
        parts = gather(lambda file: self._read(file, open), self.files, threads=threads)
        sequences = [np.full(len(part), file.sequence) for part, file in zip(parts, self.files, strict=True)]
        return DeleteKeys.of(self.columns, self.types, pa.concat_arrays(parts), np.concatenate(sequences))

    def _read(self, file: DeleteFile, open: Open) -> pa.Array:
        """The keys in one file."""
        source, metadata = open_deletes(file, open)
        leaves = [leaf_of(metadata, number) for number in self.ids]
        parts = []
        for group, rows in enumerate(metadata.row_group_rows.tolist()):
            if rows:
                columns = read_leaves(source, metadata, group, leaves, RowSet.all(rows))
                parts.append(_encode(columns, self.columns, self.types, file.path))
        return pa.concat_arrays(parts) if parts else _encode([], self.columns, self.types, file.path)


@dataclass(frozen=True, slots=True, eq=False)
class DeleteKeys:
    """Distinct deleted keys, and the sequence number of the newest delete of each."""

    columns: tuple[Path, ...]
    types: tuple[pa.DataType, ...]
    keys: pa.Array
    """Integers for one fixed-width column, bytes otherwise."""
    sequences: Array
    _lookup: list[Any] = field(default_factory=list)

    @classmethod
    def of(
        cls, columns: tuple[Path, ...], types: tuple[pa.DataType, ...], keys: pa.Array, sequences: Array
    ) -> DeleteKeys:
        """Deduplicate keys, keeping the greatest sequence number of each."""
        codes = keys.dictionary_encode(null_encoding="encode")
        newest = np.full(len(codes.dictionary), np.iinfo(np.int64).min)
        np.maximum.at(newest, np.asarray(codes.indices), sequences)
        return cls(columns, types, codes.dictionary, newest)

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def weight(self) -> int:
        """Approximate size in bytes."""
        return int(self.keys.nbytes) + len(self.keys) * (_DICT_WEIGHT if self._is_bytes else 24)

    @property
    def _is_bytes(self) -> bool:
        return bool(pa.types.is_large_binary(self.keys.type))

    def mask(self, table: pa.Table, sequence: int | None = None) -> Array:
        """Mask of deleted rows; with the sequence number of a data file, only newer deletes apply."""
        if not len(self.keys) or not len(table):
            return np.zeros(len(table), dtype=bool)
        lost = [path for path in self.columns if path[0] not in table.column_names]
        if lost:
            raise UsageError("column of equality deletes was not read", column=".".join(lost[0]))
        columns = [inner_column(table.column(path[0]), path) for path in self.columns]
        rows = _encode(columns, self.columns, self.types, None)
        at = self._find(rows)
        deleted = at >= 0
        return deleted if sequence is None else deleted & (self.sequences[at] > sequence)

    def _find(self, rows: pa.Array) -> Array:
        """Position of each row's key among the keys, -1 if missing."""
        if len(self.keys) <= _FEW * len(rows):
            return np.asarray(pc.index_in(rows, value_set=self.keys).fill_null(-1))
        if self._is_bytes:
            if not self._lookup:
                self._lookup.append({key: at for at, key in enumerate(self.keys.to_pylist())})
            matches = map(self._lookup[0].get, rows.to_pylist(), repeat(-1))
            return np.fromiter(matches, np.int64, len(rows))
        if not self._lookup:
            self._lookup.append(_sort(self.keys))
        values, positions, null = self._lookup[0]
        wanted = rows.fill_null(0).to_numpy()
        at = np.minimum(np.searchsorted(values, wanted), len(values) - 1)
        result = np.where(values[at] == wanted, positions[at], -1)
        return np.where(rows.is_null(), null, result) if rows.null_count else result


def _sort(keys: pa.Array) -> tuple[Array, Array, int]:
    """Sorted keys, the position of each, and the position of NULL."""
    nulls = np.flatnonzero(keys.is_null())
    positions = np.flatnonzero(keys.is_valid())
    values = keys.drop_null().to_numpy()
    order = np.argsort(values)
    return values[order], positions[order], int(nulls[0]) if len(nulls) else -1


# -- keys --------------------------------------------------------------------------------------


def _encode(
    columns: Sequence[pa.ChunkedArray], paths: Sequence[Path], types: Sequence[pa.DataType], path: str | None
) -> pa.Array:
    """Encode rows as keys that are equal if all their values are; without columns, no rows."""
    arrays = columns or [pa.chunked_array([], plain_type(type)) for type in types]
    parts = []
    for column, name, type in zip(arrays, paths, types, strict=True):
        try:
            if not _promotes(column.type, type):
                raise pa.ArrowInvalid("Iceberg does not promote one to the other")
            parts.append(_comparable(plain(column.combine_chunks()), type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            types = f"type {type_name(column.type)} with a column of type {type_name(type)}"
            raise SchemaError(
                f"can't compare equality deletes of {types}: {error}",
                path=path,
                column=".".join(name),
                hint="check whether the column's type was changed in a way that Iceberg does not allow",
            ) from error
    return parts[0] if len(parts) == 1 else _join_keys(parts)


def _promotes(own: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether Iceberg promotes one type to the other; a cast would also parse strings and booleans."""
    one, other = plain_type(own), plain_type(wanted)
    if pa.types.is_decimal(one) and pa.types.is_decimal(other) and one.scale != other.scale:
        return False
    # Directories also widen integers to floats and decimals.
    return fits(own, wanted) and (
        pa.types.is_null(one) or pa.types.is_integer(one) == pa.types.is_integer(other)
    )


def _comparable(array: pa.Array, type: pa.DataType) -> pa.Array:
    """A column as integers or bytes that are equal if its values are; NULL stays NULL."""
    wanted = plain_type(type)
    if array.type != wanted:
        array = array.cast(wanted)
    space = key_space(wanted)
    if space is PRESENCE:
        raise pa.ArrowNotImplementedError("values can't be compared")
    if space.kind is Kind.BYTES:
        plainly = is_text(wanted) or is_binary(wanted)
        return (array if plainly else binary_keys(array)).cast(pa.large_binary())
    keys = numbers(array)
    if space.kind is Kind.FLOAT:
        # Compared by bits, with one NaN.
        keys = np.where(np.isnan(keys), keys.dtype.type("nan"), keys)
        keys = keys.view(np.int32 if keys.dtype.itemsize == 4 else np.int64)
    return pa.array(keys.astype(np.int64), mask=np.asarray(array.is_null()) if array.null_count else None)


def _join_keys(parts: Sequence[pa.Array]) -> pa.Array:
    """Join columns into bytes: a NULL flag and a number or length for each, then the bytes of strings."""
    heads, tails = [], []
    for part in parts:
        heads.append(np.asarray(part.is_null()).astype(np.uint8).reshape(-1, 1))
        sizes = part
        if pa.types.is_large_binary(part.type):
            tails.append(part.fill_null(b""))
            sizes = pc.binary_length(part)
        words = np.ascontiguousarray(sizes.fill_null(0).to_numpy(), dtype=np.int64)
        heads.append(words.view(np.uint8).reshape(-1, 8))
    head = np.ascontiguousarray(np.concatenate(heads, axis=1))
    offsets = np.arange(len(head) + 1, dtype=np.int64) * head.shape[1]
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(head)]
    fixed = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(head), buffers)
    return pc.binary_join_element_wise(fixed, *tails, pa.scalar(b"", pa.large_binary())) if tails else fixed


# -- deleted rows of data files ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeletedValues(AntiJoin):
    """Equality deletes as they apply to a data file of one sequence number."""

    deletes: EqualityDeletes
    sequence: int

    @property
    def columns(self) -> tuple[Path, ...]:
        """The compared columns."""
        return self.deletes.columns

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        """Their types."""
        return self.deletes.types

    def deleted(self, table: pa.Table, files: Files, positions: Callable[[], Array]) -> Array:  # noqa: ARG002
        """Mask of the rows whose values a newer delete has."""
        keys = self.deletes.load(_opener(files), threads=files.threads, cache=files.cache)
        return keys.mask(table, self.sequence)


ColumnLookup = Callable[[int], tuple[Path, pa.DataType]]
"""A function that returns the lake's path and type of a field id."""


@dataclass(frozen=True, slots=True, eq=False)
class FileDeletes:
    """Deleted rows of one data file, and the numbers of the delete files that apply."""

    rows: RowSet | None
    values: tuple[AntiJoin, ...]
    used: Array

    @property
    def weight(self) -> int:
        """Approximate bytes in memory."""
        return _RECORD_WEIGHT + (0 if self.rows is None else _ROW_WEIGHT * len(self.rows))


_NO_DELETES: Final = FileDeletes(None, (), np.zeros(0, dtype=np.int64))
_RECORD_WEIGHT: Final = 300
_ROW_WEIGHT: Final = 8


def deletions(
    index: DeleteIndex,
    take: Callable[[Array], Entries],
    numbers: Sequence[int],
    files: Files,
    facts: Facts,
    column: ColumnLookup,
) -> Deletions:
    """Deleted rows of data files, by their numbers in the snapshot of ``files``; positions are cached."""
    cached: list[Any] = files.cache.get_all([(FileDeletes, number) for number in numbers])
    found: dict[int, FileDeletes] = dict(zip(numbers, cached, strict=True))
    missing = [number for number, one in found.items() if one is None]
    if missing:
        read = _read(index.match(take(np.array(missing, dtype=np.int64)), facts), missing, files, column)
        # Files of a partition share equality deletes, and these are cached themselves.
        files.cache.put_all(
            [((FileDeletes, number), one, one.weight) for number, one in read.items() if not one.values]
        )
        found |= read
    by_file = [(number, one) for number, one in found.items() if one is not _NO_DELETES]
    used = np.concatenate([_NO_DELETES.used, *(one.used for _, one in by_file)])
    return Deletions(
        {number: one.rows for number, one in by_file if one.rows is not None},
        {number: one.values for number, one in by_file if one.values},
        len(index.deletes),
        len(np.unique(used)),
    )


def _read(
    matched: DeleteMatches, numbers: Sequence[int], files: Files, column: ColumnLookup
) -> dict[int, FileDeletes]:
    """Deletes of data files by number."""
    touched = np.flatnonzero(matched.touched)
    rows = _rows(matched, touched, numbers, files)
    values = _values(matched, touched, numbers, column)
    read = dict.fromkeys(numbers, _NO_DELETES)
    for unit in touched.tolist():
        links = (
            matched.positions.links_of(unit),
            matched.equalities.links_of(unit),
            matched.vectors[unit : unit + 1],
        )
        used, number = np.concatenate(links), numbers[unit]
        read[number] = FileDeletes(rows.get(number), values.get(number, ()), used[used >= 0])
    return read


def _rows(
    matched: DeleteMatches, touched: Array, numbers: Sequence[int], files: Files
) -> Mapping[int, RowSet]:
    opener = _opener(files)
    deleted: dict[int, RowSet] = {}
    data = matched.data
    vectors = touched[matched.vectors[touched] >= 0]
    wanted = matched.files(matched.vectors[vectors])
    bitmaps = gather(lambda file: read_vector(file, opener), wanted, threads=files.threads)
    for unit, bitmap in zip(vectors.tolist(), bitmaps, strict=True):
        deleted[numbers[unit]] = deleted_rows(int(data.rows[unit]), bitmap)
    positions = read_positions(
        matched.position_needs(touched), opener, threads=files.threads, cache=files.positions
    )
    if positions:
        by_position = touched[matched.positions.counts[touched] > 0]
        paths = data.paths.take(pa.array(by_position)).to_pylist()
        for unit, path in zip(by_position.tolist(), paths, strict=True):
            if path in positions:
                deleted[numbers[unit]] = deleted_rows(int(data.rows[unit]), positions[path])
    return deleted


def _values(
    matched: DeleteMatches, touched: Array, numbers: Sequence[int], column: ColumnLookup
) -> Mapping[int, tuple[AntiJoin, ...]]:
    units = touched[matched.equalities.counts[touched] > 0]
    sets, members = matched.equality_sets(units)
    deletes = []
    for ids, delete_files in sets:
        columns, types = zip(*map(column, ids), strict=True)
        deletes.append(EqualityDeletes(ids, columns, types, delete_files))
    sequences = matched.data.sequences[units].tolist()
    return {
        numbers[unit]: tuple(DeletedValues(deletes[at], sequence) for at in mine)
        for unit, mine, sequence in zip(units.tolist(), members, sequences, strict=True)
    }


def _opener(files: Files) -> Callable[[DeleteFile], Source]:
    return lambda file: files.source(ListedFile(file.path, file.size, None))
