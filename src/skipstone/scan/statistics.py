"""What a lake holds, told by its footers alone: the statistics that engines plan with.

Every figure is exact or a valid bound, and says which. What a footer doesn't say, or can't be believed to
say, is None: a file without statistics leaves the whole lake's bounds unknown. Bounds leave NaN out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.domain.keys import Key, is_ordered, is_text, storage_type, to_key
from skipstone.core.domain.keys import from_key as scalar_of
from skipstone.core.evidence import Array, ColumnFacts
from skipstone.core.ir.bind import Binder
from skipstone.core.ir.nodes import ColumnRef
from skipstone.errors import UnknownColumnError, UsageError
from skipstone.parquet.evidence import (
    all_null_trusted,
    find_leaf,
    null_counts_trusted,
    own_type,
    row_group_facts,
)
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.values import stored_type
from skipstone.prune.survey import Survey
from skipstone.report import Reported

if TYPE_CHECKING:
    from skipstone.scan.lake import Lake

_UNKNOWN = -1
_LAST_CHARACTER = 0x10FFFF
_SURROGATES = (0xD800, 0xE000)


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """One column over all rows: bounds of its values without NULL and NaN, counts, size.

    A bound is None if it is unknown, or if there is no value to bound (``may_value`` is false). A bound
    that is not exact is valid, but may be no value of the column. ``distinct`` is not told by footers.
    """

    name: str
    type: pa.DataType
    lower: pa.Scalar | None
    upper: pa.Scalar | None
    lower_exact: bool
    upper_exact: bool
    null_count: int | None
    """Exact, or None where some file doesn't say, or its writer is known to miscount."""
    may_value: bool
    may_nan: bool
    compressed_bytes: int
    distinct: None = None

    @property
    def null_count_exact(self) -> bool:
        """Whether the number of NULLs is known."""
        return self.null_count is not None

    def to_json(self) -> dict[str, Any]:
        """The same as dicts, strings and numbers; null where nothing is known."""
        return {
            "name": self.name,
            "type": str(self.type),
            "lower": _plain(self.lower),
            "upper": _plain(self.upper),
            "lower_exact": self.lower_exact,
            "upper_exact": self.upper_exact,
            "null_count": self.null_count,
            "null_count_exact": self.null_count_exact,
            "may_value": self.may_value,
            "may_nan": self.may_nan,
            "compressed_bytes": self.compressed_bytes,
            "distinct": self.distinct,
        }


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LakeStatistics(Reported):
    """A lake's size, its columns, and the same for each file as a table.

    ``files`` has a row per file: path, rows, bytes, and then for each column a struct named after it.
    """

    view: ClassVar[str] = "skipstone.scan.views:statistics_tree"

    lake: str
    version: str
    rows: int
    """Rows that are not deleted; at most so many where some are deleted by their values."""
    bytes: int
    columns: tuple[ColumnStatistics, ...]
    files: pa.Table

    @property
    def file_count(self) -> int:
        """How many files the lake has."""
        return int(self.files.num_rows)

    def __getitem__(self, name: str) -> ColumnStatistics:
        found = next((column for column in self.columns if column.name == name), None)
        if found is None:
            raise UnknownColumnError(
                "there are no statistics of it",
                column=name,
                hint=f"there are of {', '.join(column.name for column in self.columns) or 'no column'}",
            )
        return found

    def to_json(self) -> dict[str, Any]:
        """The lake and its columns as dicts, strings and numbers; files are in the table."""
        return {
            "lake": self.lake,
            "version": self.version,
            "files": self.file_count,
            "rows": self.rows,
            "bytes": self.bytes,
            "columns": [column.to_json() for column in self.columns],
        }

    def __repr__(self) -> str:
        size = f"{self.rows:,} rows, {self.file_count:,} files, {self.bytes:,} bytes"
        return f"LakeStatistics({self.lake!r}, {size}, {len(self.columns)} columns)"


def lake_statistics(lake: Lake, columns: Sequence[str] | None = None) -> LakeStatistics:
    """The statistics of the named columns, or of all; every footer is opened."""
    if columns is not None and not isinstance(columns, list | tuple):
        raise UsageError(f"columns={columns!r}", hint="give a list of column names")
    survey = lake.survey(np.arange(len(lake.entries)))
    deletions = lake.pinned.deletions(range(survey.count))
    gone = np.zeros(survey.count, dtype=np.int64)
    for number, rows in deletions.rows.items():
        gone[number] = len(rows)
    touched = gone > 0
    touched[list(deletions.values)] = True
    refs = list(_refs(lake.query_schema, columns))
    names = ["path", "rows", "bytes"]
    arrays = [
        pa.array([file.path for file in survey.files()], pa.string()),
        pa.array(survey.totals - gone, pa.int64()),
        pa.array([entry.size for entry in lake.entries], pa.int64()),
    ]
    found = []
    for ref in refs:
        type = _read_type(lake.schema, ref)
        column = _Units.of(survey, ref, type)
        if touched.any():
            column = column.without(touched[survey.owners])
        by_file = column.summed(survey.owners, survey.count)
        whole = column.summed(np.zeros_like(survey.owners), 1)
        names.append(".".join(ref.path))
        arrays.append(pa.StructArray.from_arrays(list(by_file.values()), list(by_file)))
        found.append(ColumnStatistics(names[-1], type, **_first(whole)))
    table = pa.Table.from_arrays(arrays, names)
    size = sum(entry.size for entry in lake.entries)
    rows_left = int(survey.rows.sum() - gone.sum())
    return LakeStatistics(lake.uri, lake.version, rows_left, size, tuple(found), table)


def _refs(schema: pa.Schema, columns: Sequence[str] | None) -> Iterator[ColumnRef]:
    if columns is None:
        yield from (ColumnRef((field.name,), field.type) for field in schema)
        return
    if isinstance(columns, str) or not all(isinstance(name, str) for name in columns):
        raise UsageError(f"columns={columns!r}", hint="give a list of column names")
    binder = Binder(schema)
    for name in dict.fromkeys(columns):
        try:
            yield binder.column((name,))
        except UnknownColumnError:
            if "." not in name:
                raise
            yield binder.column(tuple(name.split(".")))


def _read_type(schema: pa.Schema, ref: ColumnRef) -> pa.DataType:
    """The type that reading gives, which may lack the zone that predicates see."""
    places = schema.get_all_field_indices(ref.path[0])
    if len(places) != 1:
        return ref.type  # of a name that occurs twice; nothing is known about such columns anyway
    type = schema.field(places[0]).type
    for name in ref.path[1:]:
        type = storage_type(type).field(name).type
    return type


def _first(summary: Mapping[str, pa.Array]) -> dict[str, Any]:
    values = {name: array[0] for name, array in summary.items()}
    bounds = {name: values[name] if values[name].is_valid else None for name in ("lower", "upper")}
    return {name: value.as_py() for name, value in values.items() if name not in bounds} | bounds


# -- row groups --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Units:
    """One column in every row group of a survey; a null count of -1 is unknown."""

    type: pa.DataType
    facts: ColumnFacts
    lower_known: Array
    upper_known: Array
    nulls: Array
    packed: Array
    rows: Array

    @classmethod
    def of(cls, survey: Survey, ref: ColumnRef, type: pa.DataType) -> _Units:
        facts = survey.facts(ref)
        if survey.gives(ref.path):
            every, nothing = np.ones(len(survey), dtype=bool), np.zeros(len(survey), dtype=np.int64)
            nulls = np.where(facts.may_null, survey.rows, 0)
            return cls(type, facts, every, every, nulls, nothing, survey.rows)
        # A loop over files: each has its own schema, writer and leaves, and remembers its own facts.
        parts = [
            (*known_bounds(file, ref, mine), null_counts(file, ref, mine), _packed(file, ref))
            for file in survey.files()
            for mine in [row_group_facts(file, ref)]
        ]
        empty = (np.zeros(0, bool), np.zeros(0, bool), np.zeros(0, np.int64), np.zeros(0, np.int64))
        lower, upper, nulls, packed = (np.concatenate(column) for column in zip(empty, *parts, strict=True))
        given = survey.given.get(ref.path)
        if given is not None and given.where is not None:
            stated = given.where[survey.owners]
            lower, upper = lower | stated, upper | stated
            nulls = np.where(stated, np.where(facts.may_null, survey.rows, 0), nulls)
        return cls(type, facts, lower, upper, nulls, packed, survey.rows)

    def without(self, touched: Array) -> _Units:
        """What is left to be said where some rows are deleted: bounds are bounds, and counts are unknown."""
        exact = {name: getattr(self.facts, name) & ~touched for name in ("lower_exact", "upper_exact")}
        nulls = np.where(touched & (self.nulls != 0), _UNKNOWN, self.nulls)
        return replace(self, facts=replace(self.facts, **exact), nulls=nulls)

    def summed(self, owners: Array, count: int) -> dict[str, pa.Array]:
        """The facts of ``count`` groups of row groups, by field of ColumnStatistics."""
        facts = self.facts
        occupied = self.rows > 0
        used = np.flatnonzero(facts.may_value & occupied)
        lower, lower_exact = self._bound(used, owners[used], count, upper=False)
        upper, upper_exact = self._bound(used, owners[used], count, upper=True)
        unknown = _any((self.nulls == _UNKNOWN) & occupied, owners, count)
        nulls = np.bincount(owners, np.maximum(self.nulls, 0), count).astype(np.int64)
        packed = np.bincount(owners, self.packed, count).astype(np.int64)
        return {
            "lower": lower,
            "upper": upper,
            "lower_exact": lower_exact,
            "upper_exact": upper_exact,
            "null_count": pa.array(nulls, mask=unknown),
            "may_value": pa.array(_any(facts.may_value & occupied, owners, count)),
            "may_nan": pa.array(_any(facts.may_nan & occupied, owners, count)),
            "compressed_bytes": pa.array(packed),
        }

    def _bound(self, used: Array, owners: Array, count: int, *, upper: bool) -> tuple[pa.Array, pa.Array]:
        """The outermost bound of each group, and whether it is a value."""
        facts = self.facts.take(used)
        keys = facts.upper if upper else facts.lower
        exact = facts.upper_exact if upper else facts.lower_exact
        known = (self.upper_known if upper else self.lower_known)[used]
        keys = keys if isinstance(keys, pa.Array) else pa.array(keys)
        which = "max" if upper else "min"
        table = pa.table({"owner": pa.array(owners, pa.int64()), "key": keys, "known": pa.array(known)})
        ends = table.group_by("owner").aggregate([("key", which), ("known", "all")])
        # One unknown bound leaves the whole group's unknown.
        ends = ends.filter(ends["known_all"])
        place = np.full(count, _UNKNOWN)
        place[np.asarray(ends["owner"])] = np.arange(len(ends))
        outermost = _chunk(ends[f"key_{which}"]).take(pa.array(place, mask=place == _UNKNOWN))
        reached = pc.equal(keys, outermost.take(pa.array(owners, pa.int64()))).fill_null(False)
        real = _any(np.asarray(reached) & exact, owners, count)
        storage = storage_type(self.type)
        if not is_ordered(storage):
            return pa.nulls(count, storage), pa.array(np.zeros(count, dtype=bool))
        found = outermost.to_pylist()
        scalars = [None if key is None else bound_value(storage, key, upper=upper) for key in found]
        same = [s is not None and to_key(storage, s) == key for s, key in zip(scalars, found, strict=True)]
        return pa.array(scalars, storage), pa.array(real & np.array(same, dtype=bool))


def _chunk(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _any(flags: Array, owners: Array, count: int) -> Array:
    return np.bincount(owners[flags], minlength=count) > 0


def known_bounds(metadata: ParquetMetadata, ref: ColumnRef, facts: ColumnFacts) -> tuple[Array, Array]:
    """Per row group, whether the lower and the upper bound say more than the column's type does."""
    bound = find_leaf(metadata, ref)
    stored = stored_type(bound.leaf) if bound is not None else None
    nothing = ColumnFacts.unknown(stored or ref.type, 1)
    # A narrower type's limits are what no statistics look like once they are widened.
    for step in bound.steps if bound is not None else ():
        nothing = nothing.through(step)
    return (
        _differ(facts.lower, nothing.lower) | facts.lower_exact,
        _differ(facts.upper, nothing.upper) | facts.upper_exact,
    )


def _differ(bounds: Any, nothing: Any) -> Array:
    if isinstance(bounds, pa.Array):
        return np.asarray(bounds.is_valid())
    return np.asarray(bounds != nothing[0])


def null_counts(metadata: ParquetMetadata, ref: ColumnRef, facts: ColumnFacts) -> Array:
    """NULLs of the column in each row group, -1 where that isn't known for certain."""
    rows = metadata.row_group_rows
    counts = np.where(facts.may_null, _UNKNOWN, 0)
    counts = np.where(~facts.may_value & ~facts.may_nan, rows, counts)
    leaf = next((leaf for leaf in metadata.leaves if leaf.path == ref.path and not leaf.max_repetition), None)
    writer = metadata.writer
    if leaf is None or own_type(metadata, ref.path) is None:
        return counts
    if not (null_counts_trusted(leaf, writer) and all_null_trusted(writer)):
        return counts
    stated = [
        chunk.statistics.null_count if chunk.statistics else None for chunk in metadata.chunks(leaf.index)
    ]
    said = np.array([_UNKNOWN if count is None else count for count in stated], dtype=np.int64)
    # A count of all rows beside bounds contradicts them: one of the two is wrong.
    usable = (
        (counts == _UNKNOWN) & (said > 0) & (said < rows) & ~np.array(metadata.encrypted(leaf.index), bool)
    )
    return np.where(usable, said, counts)


def _packed(metadata: ParquetMetadata, ref: ColumnRef) -> Array:
    """Bytes that the column takes in each row group."""
    depth = len(ref.path)
    sizes = np.zeros(metadata.row_group_count, dtype=np.int64)
    for leaf in metadata.kin.leaves_of(ref.path[0]):
        if leaf.path[:depth] == ref.path:
            chunks = metadata.chunks(leaf.index)
            sizes += np.array([chunk.total_compressed_size for chunk in chunks], dtype=np.int64)
    return sizes


# -- values ------------------------------------------------------------------------------------


def bound_value(type: pa.DataType, key: Key, *, upper: bool) -> pa.Scalar | None:
    """A bound as a value of the type; a key that is none gives way outwards, to None if nothing is left."""
    if isinstance(key, bytes) and is_text(type):
        text = _text_bound(key, upper=upper)
        return None if text is None else pa.scalar(text, type)
    if isinstance(key, bytes) and pa.types.is_fixed_size_binary(type):
        # Values are longer than a bound that was cut short: zeros at its end change no comparison.
        return pa.scalar(key[: type.byte_width].ljust(type.byte_width, b"\0"), type)
    found = scalar_of(type, key)
    return found if found.type == type else None


def _text_bound(key: bytes, *, upper: bool) -> str | None:
    try:
        return key.decode()
    except UnicodeDecodeError as error:
        start = key[: error.start].decode()
    if not upper:
        return start
    # No text begins with the bytes that are left out, so the next text after the start is above the key.
    while start and ord(start[-1]) == _LAST_CHARACTER:
        start = start[:-1]
    if not start:
        return None
    following = ord(start[-1]) + 1
    return start[:-1] + chr(_SURROGATES[1] if following == _SURROGATES[0] else following)


def _plain(scalar: pa.Scalar | None) -> Any:
    if scalar is None:
        return None
    type = scalar.type
    if pa.types.is_boolean(type) or pa.types.is_integer(type) or is_text(type):
        return scalar.as_py()
    if pa.types.is_floating(type) and np.isfinite(float(scalar.as_py())):
        return float(scalar.as_py())
    return bound_text(scalar)


def bound_text(scalar: pa.Scalar) -> str:
    """A bound for people."""
    type = scalar.type
    if pa.types.is_temporal(type) and not pa.types.is_duration(type):
        return str(scalar.cast(pa.string()))
    value = scalar.as_py()
    if isinstance(value, bytes):
        return "0x" + value.hex()
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
