"""Statistics of a lake from its footers, for query planners.

Every figure is exact or a valid bound, and is marked as such. Missing or untrusted statistics are None: a
file without statistics makes the bounds of the lake unknown. Bounds exclude NaN.
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
from skipstone.core.plain import duration_text
from skipstone.errors import UnknownColumnError, UsageError
from skipstone.lake.snapshot import opened_name
from skipstone.parquet.evidence import find_leaf, own_type, row_group_facts, trust_of
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.values import stored_type
from skipstone.prune.survey import Survey
from skipstone.report import Reported
from skipstone.scan.projection import list_hint

if TYPE_CHECKING:
    from skipstone.iceberg.metadata import SnapshotInfo
    from skipstone.scan.lake import Lake

_UNKNOWN = -1
_LAST_CHARACTER = 0x10FFFF
_SURROGATES = (0xD800, 0xE000)


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """Statistics of one column of a lake: bounds without NULL and NaN, counts and size.

    A bound is None if it is unavailable, or if the column has no values. A bound that is not exact is valid
    but not necessarily a value of the column.

    Examples:
        >>> import skipstone as sk
        >>> country = sk.open("events").statistics()["country"]
        >>> country.lower.as_py(), country.upper.as_py(), country.null_count
        ('DE', 'US', 0)
    """

    name: str
    type: pa.DataType
    lower: pa.Scalar | None
    upper: pa.Scalar | None
    lower_exact: bool
    upper_exact: bool
    null_count: int | None
    """Exact, or None if a file has no count or its writer is known to miscount."""
    may_value: bool
    may_nan: bool
    compressed_bytes: int
    distinct: int | None = None
    """Number of values; known if every row group has only one, as in partition columns."""
    query_type: pa.DataType | None = None
    """The type in conditions: with a zone where timestamps that are read without one are instants."""

    @property
    def null_count_exact(self) -> bool:
        """Whether the null count is known."""
        return self.null_count is not None

    def to_json(self) -> dict[str, Any]:
        """Convert to dicts, strings and numbers; unknown values are null."""
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
            "query_type": str(self.query_type),
        }


@dataclass(frozen=True, slots=True, eq=False)
class LakeStatistics(Reported):
    """The size of a lake, its columns, and the same for each file as an Arrow table.

    ``files`` has one row per file: path, rows, bytes, and a struct for each column.

    Examples:
        >>> import skipstone as sk
        >>> statistics = sk.open("events").statistics(["event_id"])
        >>> statistics.file_count, statistics.files["rows"].to_pylist()
        (4, [250, 250, 250, 250])
    """

    view: ClassVar[str] = "skipstone.scan.views:statistics_tree"

    lake: str
    version: str
    rows: int
    """Rows that are not deleted; an upper bound if some are deleted by value."""
    bytes: int
    columns: tuple[ColumnStatistics, ...]
    files: pa.Table

    @property
    def file_count(self) -> int:
        """Number of files."""
        return int(self.files.num_rows)

    def __getitem__(self, name: str) -> ColumnStatistics:
        statistics = next((column for column in self.columns if column.name == name), None)
        if statistics is None:
            raise UnknownColumnError(
                "column has no statistics",
                column=name,
                hint=f"use one of: {', '.join(column.name for column in self.columns) or 'none'}",
            )
        return statistics

    def to_json(self) -> dict[str, Any]:
        """Convert the lake and its columns to dicts, strings and numbers, without the files."""
        return {
            "lake": self.lake,
            "version": self.version,
            "files": self.file_count,
            "rows": self.rows,
            "bytes": self.bytes,
            "columns": [column.to_json() for column in self.columns],
        }


def lake_statistics(lake: Lake, columns: Sequence[str] | None = None) -> LakeStatistics:
    """Statistics of the named columns, or of all; reads every footer."""
    if columns is not None and not isinstance(columns, str | list | tuple):
        raise UsageError(f"columns must be a list of column names, got {columns!r}")
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
    statistics = []
    for ref in refs:
        type = _read_type(lake.schema, ref)
        column = _ColumnUnits.of(survey, ref, type)
        if touched.any():
            column = column.without(touched[survey.owners])
        by_file = column.summed(survey.owners, survey.count)
        whole = column.summed(np.zeros_like(survey.owners), 1)
        names.append(".".join(ref.path))
        arrays.append(pa.StructArray.from_arrays(list(by_file.values()), list(by_file)))
        facts, distinct = _first(whole), column.distinct()
        statistics.append(ColumnStatistics(names[-1], type, **facts, distinct=distinct, query_type=ref.type))
    table = pa.Table.from_arrays(arrays, names)
    size = sum(entry.size for entry in lake.entries)
    rows_left = int(survey.rows.sum() - gone.sum())
    return LakeStatistics(opened_name(lake.pinned), lake.version, rows_left, size, tuple(statistics), table)


def _refs(schema: pa.Schema, columns: Sequence[str] | None) -> Iterator[ColumnRef]:
    if columns is None:
        yield from (ColumnRef((field.name,), field.type) for field in schema)
        return
    columns = (columns,) if isinstance(columns, str) else columns
    if not all(isinstance(name, str) for name in columns):
        raise UsageError(f"columns must be a list of column names, got {columns!r}")
    binder = Binder(schema)
    for name in dict.fromkeys(columns):
        try:
            yield binder.column((name,))
        except UnknownColumnError as error:
            if "." not in name:
                error.hint = list_hint(name) or error.hint
                raise
            yield binder.column(tuple(name.split(".")))


def _read_type(schema: pa.Schema, ref: ColumnRef) -> pa.DataType:
    """The type that scans return, which can lack the zone that predicates see."""
    indices = schema.get_all_field_indices(ref.path[0])
    if len(indices) != 1:
        return ref.type  # ambiguous columns have no statistics anyway
    type = schema.field(indices[0]).type
    for name in ref.path[1:]:
        type = storage_type(type).field(name).type
    return type


def _first(summary: Mapping[str, pa.Array]) -> dict[str, Any]:
    values = {name: array[0] for name, array in summary.items()}
    bounds = {name: values[name] if values[name].is_valid else None for name in ("lower", "upper")}
    return {name: value.as_py() for name, value in values.items() if name not in bounds} | bounds


# -- row groups --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _ColumnUnits:
    """One column in all row groups of a survey; a null count of -1 is unknown."""

    type: pa.DataType
    facts: ColumnFacts
    has_lower: Array
    has_upper: Array
    nulls: Array
    packed: Array
    rows: Array

    @classmethod
    def of(cls, survey: Survey, ref: ColumnRef, type: pa.DataType) -> _ColumnUnits:
        facts = survey.facts(ref)
        if survey.gives(ref.path):
            every, nothing = np.ones(len(survey), dtype=bool), np.zeros(len(survey), dtype=np.int64)
            nulls = np.where(facts.may_null, survey.rows, 0)
            return cls(type, facts, every, every, nulls, nothing, survey.rows)
        # A loop over files: each has its own schema, writer and leaves, and caches its facts.
        parts = [
            (*usable_bounds(file, ref, mine), null_counts(file, ref, mine), _packed(file, ref))
            for file in survey.files()
            for mine in [row_group_facts(file, ref)]
        ]
        empty = (np.zeros(0, bool), np.zeros(0, bool), np.zeros(0, np.int64), np.zeros(0, np.int64))
        lower, upper, nulls, packed = (np.concatenate(column) for column in zip(empty, *parts, strict=True))
        override = survey.overrides.get(ref.path)
        if override is not None and override.where is not None:
            overridden = override.where[survey.owners]
            lower, upper = lower | overridden, upper | overridden
            nulls = np.where(overridden, np.where(facts.may_null, survey.rows, 0), nulls)
        return cls(type, facts, lower, upper, nulls, packed, survey.rows)

    def without(self, touched: Array) -> _ColumnUnits:
        """Statistics after deletes: bounds are no longer exact, and counts are unknown."""
        exact = {name: getattr(self.facts, name) & ~touched for name in ("lower_exact", "upper_exact")}
        nulls = np.where(touched & (self.nulls != 0), _UNKNOWN, self.nulls)
        return replace(self, facts=replace(self.facts, **exact), nulls=nulls)

    def distinct(self) -> int | None:
        """The number of values, if every row group with values has only one."""
        facts = self.facts.take(np.flatnonzero(self.facts.may_value & (self.rows > 0)))
        lower, upper = (
            bound if isinstance(bound, pa.Array) else pa.array(bound) for bound in (facts.lower, facts.upper)
        )
        single = np.asarray(pc.equal(lower, upper).fill_null(False))
        exact = facts.lower_exact & facts.upper_exact & ~facts.may_nan
        return len(lower.unique()) if (single & exact).all() else None

    def summed(self, owners: Array, count: int) -> dict[str, pa.Array]:
        """Aggregate over ``count`` groups of row groups, by field of ColumnStatistics."""
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
        usable = (self.has_upper if upper else self.has_lower)[used]
        keys = keys if isinstance(keys, pa.Array) else pa.array(keys)
        which = "max" if upper else "min"
        table = pa.table({"owner": pa.array(owners, pa.int64()), "key": keys, "usable": pa.array(usable)})
        ends = table.group_by("owner").aggregate([("key", which), ("usable", "all")])
        # One unknown bound makes the group's bound unknown.
        ends = ends.filter(ends["usable_all"])
        index = np.full(count, _UNKNOWN)
        index[np.asarray(ends["owner"])] = np.arange(len(ends))
        outermost = _chunk(ends[f"key_{which}"]).take(pa.array(index, mask=index == _UNKNOWN))
        reached = pc.equal(keys, outermost.take(pa.array(owners, pa.int64()))).fill_null(False)
        real = _any(np.asarray(reached) & exact, owners, count)
        storage = storage_type(self.type)
        if not is_ordered(storage):
            return pa.nulls(count, storage), pa.array(np.zeros(count, dtype=bool))
        bounds = outermost.to_pylist()
        scalars = [None if key is None else bound_value(storage, key, upper=upper) for key in bounds]
        same = [s is not None and to_key(storage, s) == key for s, key in zip(scalars, bounds, strict=True)]
        return pa.array(scalars, storage), pa.array(real & np.array(same, dtype=bool))


def _chunk(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _any(flags: Array, owners: Array, count: int) -> Array:
    return np.bincount(owners[flags], minlength=count) > 0


def usable_bounds(metadata: ParquetMetadata, ref: ColumnRef, facts: ColumnFacts) -> tuple[Array, Array]:
    """Masks of the row groups whose lower and upper bounds are tighter than the type's limits."""
    bound = find_leaf(metadata, ref)
    stored = stored_type(bound.leaf) if bound is not None else None
    nothing = ColumnFacts.unknown(stored or ref.type, 1)
    # Missing statistics of a narrower type look like its limits after widening.
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
    """NULLs of the column per row group, -1 if not known for certain."""
    rows = metadata.row_group_rows
    counts = np.where(facts.may_null, _UNKNOWN, 0)
    counts = np.where(~facts.may_value & ~facts.may_nan, rows, counts)
    leaf = next((leaf for leaf in metadata.leaves if leaf.path == ref.path and not leaf.max_repetition), None)
    if leaf is None or own_type(metadata, ref.path) is None:
        return counts
    trust, chunks = trust_of(metadata, leaf), metadata.chunks(leaf.index)
    if not (trust.zero and trust.exact):
        return counts
    statistics = [chunk.statistics for chunk in chunks]
    null_counts = [None if one is None else one.null_count for one in statistics]
    recorded = np.array([_UNKNOWN if count is None else count for count in null_counts], dtype=np.int64)
    # A count equal to the rows contradicts bounds: one of the two is wrong.
    usable = (counts == _UNKNOWN) & (recorded > 0) & (recorded < rows) & trust.chunks(chunks)
    return np.where(usable & ~np.array(metadata.encrypted(leaf.index), bool), recorded, counts)


def _packed(metadata: ParquetMetadata, ref: ColumnRef) -> Array:
    """Compressed bytes of the column per row group."""
    depth = len(ref.path)
    sizes = np.zeros(metadata.row_group_count, dtype=np.int64)
    for leaf in metadata.schema_group.leaves_of(ref.path[0]):
        if leaf.path[:depth] == ref.path:
            chunks = metadata.chunks(leaf.index)
            sizes += np.array([chunk.total_compressed_size for chunk in chunks], dtype=np.int64)
    return sizes


# -- values ------------------------------------------------------------------------------------


def bound_value(type: pa.DataType, key: Key, *, upper: bool) -> pa.Scalar | None:
    """A bound as a value of the type; a key that is not a value is widened, or None if that fails."""
    if isinstance(key, bytes) and is_text(type):
        text = _text_bound(key, upper=upper)
        return None if text is None else pa.scalar(text, type)
    if isinstance(key, bytes) and pa.types.is_fixed_size_binary(type):
        # Values are longer than a truncated bound: trailing zeros change no comparison.
        return pa.scalar(key[: type.byte_width].ljust(type.byte_width, b"\0"), type)
    scalar = scalar_of(type, key)
    return scalar if scalar.type == type else None


def _text_bound(key: bytes, *, upper: bool) -> str | None:
    try:
        return key.decode()
    except UnicodeDecodeError as error:
        start = key[: error.start].decode()
    if not upper:
        return start
    # No string begins with the invalid bytes, so the next string after the valid prefix is above the key.
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
    if pa.types.is_duration(type):
        return duration_text(scalar)
    if pa.types.is_temporal(type):
        return str(scalar.cast(pa.string()))
    value = scalar.as_py()
    if isinstance(value, bytes):
        return "0x" + value.hex()
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


# -- snapshots of tables ----------------------------------------------------------------------------


def live_rows(snapshots: Sequence[SnapshotInfo]) -> dict[int, int | None]:
    """Return the rows of each snapshot that are not deleted; None if the summaries don't tell.

    Totals include deleted rows, and positions may be deleted twice, or in files that are gone. So with delete
    files the changes that a summary states are added to the rows of its parent.
    """
    live: dict[int, int | None] = {}
    for one in snapshots:
        total = summary_number(one, "total-records")
        # The first snapshot that is left has no parent either.
        first = (
            one.parent is None and one.operation == "append" and total == summary_number(one, "added-records")
        )
        before = None if one.parent is None else live.get(one.parent)
        inserted, deleted = (summary_number(one, f"skipstone.{what}") for what in ("inserted", "deleted"))
        if first or summary_number(one, "total-delete-files") == 0:
            live[one.id] = total
        elif inserted is None and one.operation == "replace":
            live[one.id] = before
        elif inserted is None and one.operation == "append" and not summary_number(one, "added-delete-files"):
            live[one.id] = _sum(before, summary_number(one, "added-records"))
        else:
            live[one.id] = _sum(before, inserted, None if deleted is None else -deleted)
    return live


def _sum(*parts: int | None) -> int | None:
    return None if None in parts else sum(part for part in parts if part is not None)


def summary_number(snapshot: SnapshotInfo, key: str) -> int | None:
    """Return a number of a snapshot's summary, if it is there."""
    text = snapshot.summary.get(key, "")
    return int(text) if text.isascii() and text.isdigit() else None


def live_text(live: int | None, total: int | None) -> str | None:
    """Rows without the deleted ones, or at most how many there are."""
    return f"{live:,}" if live is not None else None if total is None else f"≤ {total:,}"
