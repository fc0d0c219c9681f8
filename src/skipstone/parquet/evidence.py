"""Evidence from a Parquet file: row-group statistics and page indexes become the same facts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.domain.keys import Kind, key_space, storage_type
from skipstone.core.evidence import Array, Bounds, ColumnFacts, Evidence, widest
from skipstone.core.ir.nodes import ColumnRef
from skipstone.core.ir.transforms import Keys, Transform
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.pageindex import PageIndex
from skipstone.parquet.schema import LeafColumn, PhysicalType, Repetition
from skipstone.parquet.structs import Statistics
from skipstone.parquet.trust import (
    all_null_trusted,
    bounds_trusted,
    legacy_bounds_trusted,
    null_counts_trusted,
)
from skipstone.parquet.values import conversion, decode_keys, stored_type

_NO_STATISTICS = Statistics()


@dataclass(frozen=True, slots=True)
class BoundLeaf:
    """A column of the predicate found in a file: its leaf, and the way to the predicate's type."""

    ref: ColumnRef
    leaf: LeafColumn
    steps: tuple[Transform, ...]


def find_leaf(metadata: ParquetMetadata, ref: ColumnRef) -> BoundLeaf | None:
    """The flat leaf that stores ``ref``; None if it is nested, missing or not comparable."""
    key = (BoundLeaf, ref.path, str(ref.type))
    memo = metadata.kin.memo
    if key not in memo:
        memo[key] = _find_leaf(metadata, ref)
    found: BoundLeaf | None = memo[key]
    return found


def _find_leaf(metadata: ParquetMetadata, ref: ColumnRef) -> BoundLeaf | None:
    leaves = metadata.kin.memo.setdefault((BoundLeaf, "leaves"), {})
    if not leaves:
        leaves.update((leaf.path, leaf) for leaf in metadata.leaves if leaf.max_repetition == 0)
    leaf, own = leaves.get(ref.path), own_type(metadata, ref.path)
    steps = None if leaf is None or own is None else conversion(leaf, own, ref.type)
    return None if leaf is None or steps is None else BoundLeaf(ColumnRef(ref.path, ref.type), leaf, steps)


def own_type(metadata: ParquetMetadata, path: tuple[str, ...]) -> pa.DataType | None:
    """The type of the file's column at ``path``; None if there isn't exactly one."""
    key = (own_type, "types")
    memo = metadata.kin.memo
    if key not in memo:
        found: dict[tuple[str, ...], pa.DataType | None] = {}
        _collect_types(list(metadata.query_schema), (), found)
        memo[key] = found
    return memo[key].get(path)


def _collect_types(
    fields: list[pa.Field], above: tuple[str, ...], into: dict[tuple[str, ...], pa.DataType | None]
) -> None:
    for field in fields:
        path = (*above, field.name)
        # A name that occurs twice names nothing.
        into[path] = None if path in into else field.type
        storage = storage_type(field.type)
        if pa.types.is_struct(storage):
            _collect_types(list(storage.fields), path, into)


# -- row groups --------------------------------------------------------------------------------


def row_group_evidence(metadata: ParquetMetadata, refs: Sequence[ColumnRef]) -> Evidence:
    """What the footer says about the columns in each row group."""
    columns = {ref.path: row_group_facts(metadata, ref) for ref in refs}
    return Evidence(metadata.row_group_rows, columns)


def row_group_facts(metadata: ParquetMetadata, ref: ColumnRef) -> ColumnFacts:
    """What the footer says about one column in each row group; worked out once per footer."""
    key = (ColumnFacts, ref.path, str(ref.type))
    if key not in metadata.memo:
        metadata.memo[key] = metadata.known_facts(ref) or _row_group_facts(metadata, ref)
    facts: ColumnFacts = metadata.memo[key]
    return facts


def _row_group_facts(metadata: ParquetMetadata, ref: ColumnRef) -> ColumnFacts:
    units = metadata.row_group_count
    if own_type(metadata, ref.path) is None and _absent(metadata, ref.path):
        return ColumnFacts.absent(ref.type, units)
    bound = find_leaf(metadata, ref)
    if bound is None:
        return _presence(metadata, ref)
    leaf = bound.leaf
    chunks = metadata.chunks(leaf.index)
    hidden = metadata.encrypted(leaf.index)
    stats = [chunk.statistics or _NO_STATISTICS for chunk in chunks]
    if True in hidden:
        stats = [_NO_STATISTICS if secret else s for s, secret in zip(stats, hidden, strict=True)]
    low, high, trusted, stated = _row_group_bounds(leaf, metadata, stats, hidden)
    return _facts(
        bound,
        metadata,
        lower=low,
        upper=high,
        trusted=trusted,
        stated=stated,
        lower_exact=[s.is_min_value_exact for s in stats],
        upper_exact=[s.is_max_value_exact for s in stats],
        values=np.array([c.num_values for c in chunks], dtype=np.int64),
        nulls=[s.null_count for s in stats],
        nans=[s.nan_count for s in stats],
    )


def _row_group_bounds(
    leaf: LeafColumn, metadata: ParquetMetadata, stats: list[Statistics], hidden: list[bool]
) -> tuple[list[bytes | None], list[bytes | None], bool, Array]:
    """The bounds as stored, whether they can be believed, and for which row groups any were given."""
    low = [s.min_value for s in stats]
    high = [s.max_value for s in stats]
    trusted = bounds_trusted(leaf, metadata.writer)
    if None not in low and None not in high:
        return low, high, trusted, np.ones(len(stats), dtype=bool)
    stated = np.array([a is not None or b is not None for a, b in zip(low, high, strict=True)], dtype=bool)
    old_low, old_high = (
        [None if secret else bound for bound, secret in zip(bounds, hidden, strict=True)]
        for bounds in metadata.legacy_bounds(leaf.index)
    )
    given = [a is not None or b is not None for a, b in zip(old_low, old_high, strict=True)]
    usable = not (trusted and stated.any()) and legacy_bounds_trusted(leaf)
    stated = stated | np.array(given, dtype=bool)
    return (old_low, old_high, True, stated) if usable else (low, high, trusted, stated)


def _absent(metadata: ParquetMetadata, path: tuple[str, ...]) -> bool:
    """Whether the file's schema has nothing at ``path`` nor anything it could be hidden in."""
    fields: list[pa.Field] = list(metadata.arrow_schema)
    for name in path:
        found = [f for f in fields if f.name == name]
        if not found:
            return True
        storage = storage_type(found[0].type)
        if len(found) > 1 or not pa.types.is_struct(storage):
            return False
        fields = list(storage.fields)
    return False


def _presence(metadata: ParquetMetadata, ref: ColumnRef) -> ColumnFacts:
    """A struct, list or map, or a type without an order: only whether it may be NULL is known.

    Not even that for a name that occurs twice, or for a column of another type: which of them is read, and
    what its values become, is the reader's affair.
    """
    facts = ColumnFacts.unknown(ref.type, metadata.row_group_count)
    own = own_type(metadata, ref.path)
    if own is None or not (own == ref.type or (pa.types.is_nested(own) and pa.types.is_nested(ref.type))):
        return facts
    depth = len(ref.path)
    below = [leaf for leaf in metadata.leaves if leaf.path[:depth] == ref.path]
    if below and all(r is Repetition.REQUIRED for r in below[0].repetitions[:depth]):
        return replace(facts, may_null=np.zeros(len(facts), dtype=bool))
    if pa.types.is_null(storage_type(ref.type)):
        return ColumnFacts.absent(ref.type, len(facts))
    may_null = facts.may_null
    for leaf in below:
        if leaf.max_repetition == 0 and null_counts_trusted(leaf, metadata.writer):
            hidden = metadata.encrypted(leaf.index)
            counts = [c.statistics.null_count if c.statistics else None for c in metadata.chunks(leaf.index)]
            none = [n == 0 and not secret for n, secret in zip(counts, hidden, strict=True)]
            may_null = may_null & ~np.array(none, dtype=bool)
    return replace(facts, may_null=may_null)


def row_group_counts(metadata: ParquetMetadata, ref: ColumnRef) -> tuple[Array, Array]:
    """NULLs and NaNs of a column in each row group; -1 where the footer doesn't tell, or not credibly."""
    unknown = np.full(metadata.row_group_count, -1, dtype=np.int64)
    bound = find_leaf(metadata, ref)
    if bound is None:
        return unknown, unknown
    chunks = metadata.chunks(bound.leaf.index)
    values = np.array([chunk.num_values for chunk in chunks], dtype=np.int64)
    stats = [chunk.statistics or _NO_STATISTICS for chunk in chunks]
    seen = ~np.array(metadata.encrypted(bound.leaf.index), dtype=bool)
    trusted = seen & null_counts_trusted(bound.leaf, metadata.writer)
    nulls, known = _counts([s.null_count for s in stats], values)
    floating = key_space(ref.type).kind is Kind.FLOAT
    nans, told = _counts([s.nan_count if floating else 0 for s in stats], values)
    return np.where(known & trusted, nulls, unknown), np.where(told & seen, nans, unknown)


# -- pages -------------------------------------------------------------------------------------


def page_facts(metadata: ParquetMetadata, bound: BoundLeaf, index: PageIndex) -> ColumnFacts:
    """What the column index says about each page of one chunk."""
    units = len(index)
    if not index.has_statistics:
        return ColumnFacts.unknown(bound.ref.type, units)
    blank = index.null_pages
    low, high = (
        [None if no else v for v, no in zip(bounds, blank, strict=True)]
        for bounds in (index.min_values, index.max_values)
    )
    exact: list[bool | None] = [None] * units
    nulls = index.row_counts if index.null_counts is None else index.null_counts
    known = (
        [int(n) for n in nulls]
        if index.null_counts is not None
        else [int(n) if all_null else None for n, all_null in zip(nulls, blank, strict=True)]
    )
    nans = exact if index.nan_counts is None else index.nan_counts.tolist()
    facts = _facts(
        bound,
        metadata,
        lower=low,
        upper=high,
        trusted=bounds_trusted(bound.leaf, metadata.writer),
        stated=~blank,
        lower_exact=exact,
        upper_exact=exact,
        values=index.row_counts,
        nulls=known,
        nans=nans,
    )
    # A page index doesn't say whether its bounds occur, and some writers give every page those of the chunk.
    same = _equal(facts.lower, facts.upper)
    return replace(facts, lower_exact=facts.lower_exact & same, upper_exact=facts.upper_exact & same)


def _equal(lower: Bounds, upper: Bounds) -> Array:
    if isinstance(lower, pa.Array):
        return np.asarray(pc.equal(lower, upper).fill_null(False))
    same: Array = lower == upper
    return same


# -- both --------------------------------------------------------------------------------------


def _facts(
    bound: BoundLeaf,
    metadata: ParquetMetadata,
    *,
    lower: list[bytes | None],
    upper: list[bytes | None],
    trusted: bool,
    stated: Array,
    lower_exact: Sequence[bool | None],
    upper_exact: Sequence[bool | None],
    values: Array,
    nulls: Sequence[int | None],
    nans: Sequence[int | None],
) -> ColumnFacts:
    """Facts of the stored type, then taken through the steps to the predicate's type."""
    leaf = bound.leaf
    stored = stored_type(leaf)
    assert stored is not None
    units = len(lower)
    floating = key_space(stored).kind is Kind.FLOAT
    low, low_ok = decode_keys(leaf, lower)
    high, high_ok = decode_keys(leaf, upper)
    null_count, nulls_known = _counts(nulls, values)
    nan_count, nans_known = _counts(nans, values)
    occupied = values > 0
    # Counts alone prove nothing about the rest: some writers inflate them. Bounds that are there deny it.
    all_null = nulls_known & (null_count == values) & ~stated & occupied & all_null_trusted(metadata.writer)
    no_number = ~stated | (_is_nan(low) & _is_nan(high))
    all_nan = nulls_known & nans_known & (null_count + nan_count == values) & no_number
    low_ok, high_ok = _believable(leaf, low, low_ok & trusted, high, high_ok & trusted)
    may_nan = ~(nans_known & (nan_count == 0)) if floating else np.zeros(units, dtype=bool)
    if leaf.required:
        may_null = np.zeros(units, dtype=bool)
        all_null = may_null
    elif null_counts_trusted(leaf, metadata.writer):
        may_null = ~(nulls_known & (null_count == 0))
    else:
        may_null = np.ones(units, dtype=bool)
    floor, ceiling = widest(stored, units)
    # A bound on bytes may be cut short unless the writer says that it is not.
    cut = key_space(stored).kind is Kind.BYTES and not pa.types.is_decimal(stored)
    facts = ColumnFacts(
        stored,
        _merge(low, low_ok, floor),
        _merge(high, high_ok, ceiling),
        _exact(lower_exact, low, low_ok, cut=cut),
        _exact(upper_exact, high, high_ok, cut=cut),
        may_value=occupied & ~all_null & ~all_nan,
        may_null=may_null & occupied,
        may_nan=may_nan & occupied & ~all_null,
    )
    for step in bound.steps:
        facts = facts.through(step)
    return replace(facts, type=bound.ref.type)


def _is_nan(keys: Keys) -> Array:
    if isinstance(keys, list) or keys.dtype.kind != "f":
        return np.zeros(len(keys), dtype=bool)
    return np.isnan(keys)


def _believable(
    leaf: LeafColumn, low: Keys, low_ok: Array, high: Keys, high_ok: Array
) -> tuple[Array, Array]:
    """Bounds that contradict each other are dropped as a pair; INT96 ones unless they meet."""
    both = low_ok & high_ok
    if isinstance(low, list) or isinstance(high, list):
        pairs = zip(low, high, strict=True)
        crossed = np.array([a is not None and b is not None and a > b for a, b in pairs], dtype=bool)
    else:
        crossed = low > high
        if leaf.physical is PhysicalType.INT96:
            meeting = both & (low == high)
            return meeting, meeting
    wrong = both & crossed
    return low_ok & ~wrong, high_ok & ~wrong


def _counts(counts: Sequence[int | None], values: Array) -> tuple[Array, Array]:
    """Counts and whether each is known: a missing, negative or too large one is not."""
    given = [-1 if c is None else c for c in counts] if None in counts else counts
    numbers = np.array(given, dtype=np.int64)
    return numbers, (numbers >= 0) & (numbers <= values)


def _merge(keys: Keys, ok: Array, otherwise: Array | pa.Array) -> Array | pa.Array:
    if isinstance(keys, list):
        return pa.array([k if good else None for k, good in zip(keys, ok, strict=True)], pa.large_binary())
    return keys if ok.all() else np.where(ok, keys, otherwise)


def _exact(flags: Sequence[bool | None], keys: Keys, ok: Array, *, cut: bool) -> Array:
    if False not in flags and True not in flags:
        said = np.full(len(flags), not cut)
    else:
        said = np.array([(not cut) if f is None else f for f in flags], dtype=bool)
    if not isinstance(keys, list) and keys.dtype.kind == "f":
        said &= keys != 0  # either zero may stand for the other
    return said & ok
