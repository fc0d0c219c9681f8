"""Evidence from Parquet files: row-group statistics and page indexes as facts.

Statistics of writers with known defects are not trusted. Untrusted statistics are unknown; they are never
repaired.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.domain.keys import Kind, key_space, storage_type
from skipstone.core.evidence import Array, Bounds, ColumnFacts, Evidence, unbounded
from skipstone.core.ir.nodes import ColumnRef
from skipstone.core.ir.transforms import Keys, Transform
from skipstone.core.plain import bytes_array
from skipstone.parquet.metadata import ParquetMetadata, all_chunks, all_encrypted
from skipstone.parquet.pageindex import PageIndex, PageRun
from skipstone.parquet.schema import (
    FileWriter,
    LeafColumn,
    LogicalKind,
    PhysicalType,
    Repetition,
    SchemaGroup,
)
from skipstone.parquet.structs import ColumnMetaData, Statistics
from skipstone.parquet.values import conversion, decode_keys, stored_type

# -- trusted statistics; every rule names the defect it guards against


_P, _K = PhysicalType, LogicalKind
_BYTES = frozenset({_P.BYTE_ARRAY, _P.FIXED_LEN_BYTE_ARRAY})
# INTERVAL has no order in the format; VARIANT, GEOMETRY and GEOGRAPHY bounds mean something else; an
# unknown logical type may define its own order.
_UNORDERED = frozenset(
    {_K.INTERVAL, _K.VARIANT, _K.GEOMETRY, _K.GEOGRAPHY, _K.UNKNOWN, _K.LIST, _K.MAP, _K.NULL}
)


@dataclass(frozen=True, slots=True)
class Trust:
    """What the statistics of a leaf are worth, by its type and the writer of its file."""

    bounds: bool
    """Whether ``min_value`` and ``max_value`` follow the format."""
    zero: bool
    """Whether a null count of zero means that there are no nulls."""
    zero_with_bounds: bool
    """Whether it does so only for units that have bounds as well."""
    exact: bool
    """Whether other null counts are exact, and not only upper bounds."""
    dictionary: bool | None
    """Whether neither bounds nor null counts are usable; None: of chunks that have a dictionary page."""

    def chunks(self, chunks: Sequence[ColumnMetaData]) -> bool | Array:
        """Which chunks have usable statistics."""
        if self.dictionary is not None:
            return not self.dictionary
        return np.array([chunk.dictionary_page_offset is None for chunk in chunks], dtype=bool)


def trust_of(metadata: ParquetMetadata, leaf: LeafColumn) -> Trust:
    """Return what the statistics of a leaf are worth; computed once per schema and writer."""
    key = (Trust, leaf.index)
    memo = metadata.schema_group.memo
    if key not in memo:
        writer = metadata.writer
        memo[key] = Trust(
            _bounds_trusted(leaf, writer),
            _zero_trusted(metadata, leaf),
            _is_arrow2(writer),
            _counts_exact(writer),
            _measures_chunks(metadata, leaf),
        )
    trust: Trust = memo[key]
    return trust


def misleads_readers(metadata: ParquetMetadata) -> bool:
    """Whether readers that believe a file's statistics lose rows: those of dictionaries are wrong."""
    memo = metadata.schema_group.memo
    if misleads_readers not in memo:
        memo[misleads_readers] = any(
            trust_of(metadata, leaf).dictionary is not False
            or (_is_arrow2(metadata.writer) and _may_have_lost_nulls(metadata, leaf))
            for leaf in metadata.leaves
        )
    return bool(memo[misleads_readers])


def _may_have_lost_nulls(metadata: ParquetMetadata, leaf: LeafColumn) -> bool:
    # Strings only of versions that recorded no order.
    undefined = leaf.physical is _P.BYTE_ARRAY and leaf.column_order == "undefined"
    return undefined or _was_dictionary(metadata, leaf) is not False


def _bounds_trusted(leaf: LeafColumn, writer: FileWriter) -> bool:
    if leaf.column_order in ("undefined", "unknown") or leaf.logical.kind in _UNORDERED:
        return False
    if not _signed(leaf) and _before(writer, "parquet-mr", (1, 10)):
        return False  # PARQUET-251, PARQUET-686: bytes compared as signed, or not copied
    if not _signed(leaf) and _before(writer, "parquet-cpp", (1, 3)):
        return False  # the same in C++
    fixed_decimal = leaf.logical.kind is _K.DECIMAL and leaf.physical is _P.FIXED_LEN_BYTE_ARRAY
    # PARQUET-1655: decimals compared as unsigned bytes
    return not (fixed_decimal and _before(writer, "parquet-cpp-arrow", (4,)))


def legacy_bounds_trusted(leaf: LeafColumn) -> bool:
    """Whether the deprecated ``min`` and ``max`` are usable: their order was defined for signed numbers
    only (PARQUET-686)."""
    return _signed(leaf) and leaf.logical.kind not in _UNORDERED and leaf.physical is not _P.INT96


def _zero_trusted(metadata: ParquetMetadata, leaf: LeafColumn) -> bool:
    writer = metadata.writer
    if leaf.max_repetition:
        return False  # arrow#51097: null and empty lists are not always counted
    if len(leaf.path) > 1 and writer.application.lower().startswith(("polars", "cudf")):
        return False  # polars#20621, cudf#12938: nulls above the leaf are miscounted
    if _is_arrow2(writer) and _was_dictionary(metadata, leaf) is not False:
        return False  # counted among the values of the dictionary, of which none is null
    return not _before(writer, "parquet-rs", (5,))  # arrow-rs#306: zero for a column that is all null


def _counts_exact(writer: FileWriter) -> bool:
    # DuckDB up to 0.9 went on counting from one row group to the next, and Polars multiplied by the number of
    # pages (polars#29321); neither recorded its version.
    application = writer.application.lower()
    if not writer.version or (application == "duckdb" and writer.version < (0, 10)):
        return False
    # Even without bounds: those are also absent if the writer was configured so, or if the rest is NaN.
    return not application.startswith("polars") or writer.version >= (2, 1)


def _measures_chunks(metadata: ParquetMetadata, leaf: LeafColumn) -> bool | None:
    """Whether the writer measured only parts of a dictionary; None: of chunks with a dictionary page."""
    # ARROW-12513: early versions counted no nulls. arrow#15042: until 11.0 only the first of several chunks
    # was measured. Before 4.0 the library was named parquet-cpp.
    writer = metadata.writer
    wrong = _before(writer, "parquet-cpp-arrow", (11,)) or writer.application.lower() == "parquet-cpp"
    return _was_dictionary(metadata, leaf) if wrong else False


def _is_arrow2(writer: FileWriter) -> bool:
    """Whether the writer is Arrow2, or a Polars that did not record its version.

    Up to 0.20 the null count of strings, and of categories, was that of a dictionary's values. These files
    have no bounds with a defined order, except of the last versions.
    """
    application = writer.application.lower()
    return not writer.version and application.startswith(("arrow2", "polars"))


def _was_dictionary(metadata: ParquetMetadata, leaf: LeafColumn) -> bool | None:
    """Whether the values were a dictionary in memory; None if the writer did not store their type."""
    if leaf.physical is not _P.BYTE_ARRAY:
        return False
    types = _arrow_types(metadata)
    return None if types is None else pa.types.is_dictionary(types[leaf.index])


def _arrow_types(metadata: ParquetMetadata) -> list[pa.DataType] | None:
    """Return the types of the leaves in memory; None if the writer did not store them."""
    memo = metadata.schema_group.memo
    if _arrow_types not in memo:
        stored = metadata.key_value_metadata.get(b"ARROW:schema")
        types: list[pa.DataType] = []
        if stored is not None:
            try:
                schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(stored)))
                types = [leaf for type in schema.types for leaf in _leaf_types(type)]
            except (pa.ArrowException, ValueError, OSError):
                types = []
        memo[_arrow_types] = types if len(types) == len(metadata.leaves) else None
    found: list[pa.DataType] | None = memo[_arrow_types]
    return found


def _leaf_types(type: pa.DataType) -> list[pa.DataType]:
    """Return the types of the leaves of a type, in the order in which Parquet stores them."""
    while isinstance(type, pa.BaseExtensionType):
        type = type.storage_type
    if pa.types.is_dictionary(type) or not type.num_fields:
        return [type]
    return [leaf for number in range(type.num_fields) for leaf in _leaf_types(type.field(number).type)]


def _signed(leaf: LeafColumn) -> bool:
    unsigned = leaf.logical.kind is _K.INTEGER and not leaf.logical.signed
    return leaf.physical not in _BYTES and not unsigned


def _before(writer: FileWriter, application: str, version: tuple[int, ...]) -> bool:
    return writer.application.lower() == application and writer.version < version


# -- columns of a file -------------------------------------------------------------------------


_NO_STATISTICS = Statistics()


@dataclass(frozen=True, slots=True)
class BoundLeaf:
    """A predicate's column in a file: its leaf, and the conversion to the predicate's type."""

    ref: ColumnRef
    leaf: LeafColumn
    steps: tuple[Transform, ...]


def find_leaf(metadata: ParquetMetadata, ref: ColumnRef) -> BoundLeaf | None:
    """Return the flat leaf of ``ref``; None if it is nested, missing or not comparable."""
    key = (BoundLeaf, ref.path, str(ref.type))
    memo = metadata.schema_group.memo
    if key not in memo:
        memo[key] = _find_leaf(metadata, ref)
    bound: BoundLeaf | None = memo[key]
    return bound


def _find_leaf(metadata: ParquetMetadata, ref: ColumnRef) -> BoundLeaf | None:
    leaves = metadata.schema_group.memo.setdefault((BoundLeaf, "leaves"), {})
    if not leaves:
        leaves.update((leaf.path, leaf) for leaf in metadata.leaves if leaf.max_repetition == 0)
    leaf, own = leaves.get(ref.path), own_type(metadata, ref.path)
    steps = None if leaf is None or own is None else conversion(leaf, own, ref.type)
    return None if leaf is None or steps is None else BoundLeaf(ColumnRef(ref.path, ref.type), leaf, steps)


def own_type(metadata: ParquetMetadata, path: tuple[str, ...]) -> pa.DataType | None:
    """Return the type of the file's column at ``path``; None if there isn't exactly one."""
    key = (own_type, "types")
    memo = metadata.schema_group.memo
    if key not in memo:
        types: dict[tuple[str, ...], pa.DataType | None] = {}
        _collect_types(list(metadata.query_schema), (), types)
        memo[key] = types
    return memo[key].get(path)


def _collect_types(
    fields: list[pa.Field], above: tuple[str, ...], into: dict[tuple[str, ...], pa.DataType | None]
) -> None:
    for field in fields:
        path = (*above, field.name)
        # A duplicate name is ambiguous.
        into[path] = None if path in into else field.type
        storage = storage_type(field.type)
        if pa.types.is_struct(storage):
            _collect_types(list(storage.fields), path, into)


# -- row groups --------------------------------------------------------------------------------


def row_group_evidence(metadata: ParquetMetadata, refs: Sequence[ColumnRef]) -> Evidence:
    """Return the footer's evidence about columns in each row group."""
    columns = {ref.path: row_group_facts(metadata, ref) for ref in refs}
    return Evidence(metadata.row_group_rows, columns)


def row_group_facts(metadata: ParquetMetadata, ref: ColumnRef) -> ColumnFacts:
    """Return the footer's facts about one column in each row group; computed once per footer."""
    key = (ColumnFacts, ref.path, str(ref.type))
    if key not in metadata.memo:
        metadata.memo[key] = metadata.recorded_facts(ref) or _stored_facts([metadata], ref)
    facts: ColumnFacts = metadata.memo[key]
    return facts


def lake_facts(files: Sequence[ParquetMetadata], ref: ColumnRef) -> ColumnFacts:
    """Return the footers' facts about one column in each row group of many files.

    Files of one schema are handled together: their statistics become arrays over all row groups.
    """
    kinds = [(file.schema_group, type(file)) for file in files]
    if len(set(kinds)) == 1:
        return _group_facts(files, ref)
    groups: dict[tuple[SchemaGroup, type], list[int]] = {}
    for number, kind in enumerate(kinds):
        groups.setdefault(kind, []).append(number)
    facts = ColumnFacts.concat(
        [_group_facts([files[n] for n in numbers], ref) for numbers in groups.values()]
    )
    counts = np.array([len(file.row_group_rows) for file in files], dtype=np.int64)
    order = np.concatenate([np.array(numbers, dtype=np.int64) for numbers in groups.values()])
    owners = np.repeat(order, counts[order])
    return facts.take(np.argsort(owners, kind="stable"))


def _count_groups(files: Sequence[ParquetMetadata]) -> int:
    return sum(map(len, [file.row_group_rows for file in files]))


def _group_facts(files: Sequence[ParquetMetadata], ref: ColumnRef) -> ColumnFacts:
    if files[0].recorded_facts(ref) is None:
        return _stored_facts(files, ref)
    return ColumnFacts.concat([row_group_facts(file, ref) for file in files])


def _stored_facts(files: Sequence[ParquetMetadata], ref: ColumnRef) -> ColumnFacts:
    """Return the facts in the footers of files of one schema."""
    first = files[0]
    if own_type(first, ref.path) is None and _absent(first, ref.path):
        return ColumnFacts.absent(ref.type, _count_groups(files))
    bound = find_leaf(first, ref)
    if bound is None:
        return _presence(files, ref)
    leaf = bound.leaf
    chunks = all_chunks(files, leaf.index)
    hidden = all_encrypted(files, leaf.index)
    stats = [chunk.statistics or _NO_STATISTICS for chunk in chunks]
    if hidden is not None:
        stats = [_NO_STATISTICS if secret else s for s, secret in zip(stats, hidden, strict=True)]
    trust = trust_of(first, leaf)
    usable = trust.chunks(chunks)
    low, high, trusted, stated = _row_group_bounds(leaf, files, stats, hidden)
    return _facts(
        bound,
        trust,
        usable=usable,
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
    leaf: LeafColumn, files: Sequence[ParquetMetadata], stats: list[Statistics], hidden: list[bool] | None
) -> tuple[list[bytes | None], list[bytes | None], bool | Array, Array]:
    """Return the stored bounds, whether they are trusted, and which row groups have any."""
    low = [s.min_value for s in stats]
    high = [s.max_value for s in stats]
    trusted = trust_of(files[0], leaf).bounds
    if None not in low and None not in high:
        return low, high, trusted, np.ones(len(stats), dtype=bool)
    stated = np.array([a is not None or b is not None for a, b in zip(low, high, strict=True)], dtype=bool)
    old_low: list[bytes | None] = []
    old_high: list[bytes | None] = []
    for file in files:
        lower, upper = file.legacy_bounds(leaf.index)
        old_low += lower
        old_high += upper
    if hidden is not None:
        old_low = [None if secret else bound for bound, secret in zip(old_low, hidden, strict=True)]
        old_high = [None if secret else bound for bound, secret in zip(old_high, hidden, strict=True)]
    has_old = [a is not None or b is not None for a, b in zip(old_low, old_high, strict=True)]
    # Deprecated bounds are used for files without new bounds, or without trusted ones, in all row groups.
    lacking = [a is None or b is None for a, b in zip(low, high, strict=True)]
    owners = np.repeat(np.arange(len(files)), [file.row_group_count for file in files])
    some, partial = (np.bincount(owners, mask, len(files))[owners] > 0 for mask in (stated, lacking))
    old = partial & ~(some & trusted) & legacy_bounds_trusted(leaf)
    low, high = (
        [b if use else a for a, b, use in zip(*bounds, old.tolist(), strict=True)]
        for bounds in ((low, old_low), (high, old_high))
    )
    return low, high, old | trusted, stated | np.array(has_old, dtype=bool)


def _absent(metadata: ParquetMetadata, path: tuple[str, ...]) -> bool:
    """Whether the file's schema certainly has no column at ``path``."""
    fields: list[pa.Field] = list(metadata.arrow_schema)
    for name in path:
        matches = [f for f in fields if f.name == name]
        if not matches:
            return True
        storage = storage_type(matches[0].type)
        if len(matches) > 1 or not pa.types.is_struct(storage):
            return False
        fields = list(storage.fields)
    return False


def _presence(files: Sequence[ParquetMetadata], ref: ColumnRef) -> ColumnFacts:
    """Return facts about a struct, list, map or unordered type: only whether it may be NULL.

    Not even that is known for a duplicate name or a column of another type: the reader decides which column
    is read, and how its values are converted.
    """
    first = files[0]
    facts = ColumnFacts.unknown(ref.type, _count_groups(files))
    own = own_type(first, ref.path)
    if own is None or not (own == ref.type or (pa.types.is_nested(own) and pa.types.is_nested(ref.type))):
        return facts
    if pa.types.is_null(storage_type(ref.type)):
        # Even if it is required.
        return ColumnFacts.absent(ref.type, len(facts))
    depth = len(ref.path)
    below = [leaf for leaf in first.leaves if leaf.path[:depth] == ref.path]
    if below and all(r is Repetition.REQUIRED for r in below[0].repetitions[:depth]):
        return replace(facts, may_null=np.zeros(len(facts), dtype=bool))
    may_null = facts.may_null
    for leaf in below:
        trust = trust_of(first, leaf)
        # Without a look at the bounds.
        if leaf.max_repetition == 0 and trust.zero and not trust.zero_with_bounds:
            chunks = all_chunks(files, leaf.index)
            counts = [c.statistics.null_count if c.statistics else None for c in chunks]
            none = np.array([n == 0 for n in counts], dtype=bool) & trust.chunks(chunks)
            hidden = all_encrypted(files, leaf.index)
            may_null = may_null & ~(none if hidden is None else none & ~np.array(hidden, dtype=bool))
    return replace(facts, may_null=may_null)


def row_group_counts(files: Sequence[ParquetMetadata], ref: ColumnRef) -> tuple[Array, Array]:
    """Return the NULLs and NaNs of a column in each row group of files of one schema.

    -1 if the footer has no exact count.
    """
    unknown = np.full(_count_groups(files), -1, dtype=np.int64)
    bound = find_leaf(files[0], ref)
    if bound is None:
        return unknown, unknown
    chunks = all_chunks(files, bound.leaf.index)
    values = np.array([chunk.num_values for chunk in chunks], dtype=np.int64)
    stats = [chunk.statistics or _NO_STATISTICS for chunk in chunks]
    hidden = all_encrypted(files, bound.leaf.index)
    seen = np.ones(len(chunks), dtype=bool) if hidden is None else ~np.array(hidden, dtype=bool)
    trust = trust_of(files[0], bound.leaf)
    trusted = seen & trust.chunks(chunks) & (trust.zero and trust.exact)
    nulls, known = _counts([s.null_count for s in stats], values)
    floating = key_space(ref.type).kind is Kind.FLOAT
    nans, counted = _counts([s.nan_count if floating else 0 for s in stats], values)
    return np.where(known & trusted, nulls, unknown), np.where(counted & seen, nans, unknown)


# -- pages -------------------------------------------------------------------------------------


def page_facts(metadata: ParquetMetadata, bound: BoundLeaf, index: PageIndex | PageRun) -> ColumnFacts:
    """Return the facts of column indexes about each page of one chunk, or of many."""
    units = len(index)
    if not index.has_statistics:
        return ColumnFacts.unknown(bound.ref.type, units)
    blank = index.null_pages
    low: list[bytes | None] = [*index.min_values]
    high: list[bytes | None] = [*index.max_values]
    for page in np.flatnonzero(blank).tolist():
        low[page] = high[page] = None
    row_counts = index.row_counts
    exact: list[bool | None] = [None] * units
    known: list[int | None] = (
        index.null_counts.tolist()
        if index.null_counts is not None
        else [n if all_null else None for n, all_null in zip(row_counts.tolist(), blank, strict=True)]
    )
    nans = exact if index.nan_counts is None else index.nan_counts.tolist()
    trust = trust_of(metadata, bound.leaf)
    facts = _facts(
        bound,
        trust,
        usable=trust.dictionary is False,
        lower=low,
        upper=high,
        trusted=trust.bounds,
        stated=~blank,
        lower_exact=exact,
        upper_exact=exact,
        values=row_counts,
        nulls=known,
        nans=nans,
    )
    # Page indexes don't record whether bounds are exact, and some writers repeat the chunk's for every page.
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
    trust: Trust,
    *,
    usable: bool | Array,
    lower: list[bytes | None],
    upper: list[bytes | None],
    trusted: bool | Array,
    stated: Array,
    lower_exact: Sequence[bool | None],
    upper_exact: Sequence[bool | None],
    values: Array,
    nulls: Sequence[int | None],
    nans: Sequence[int | None],
) -> ColumnFacts:
    """Build the facts in the stored type, then convert them to the predicate's type."""
    leaf = bound.leaf
    stored = stored_type(leaf)
    assert stored is not None
    units = len(lower)
    floating = key_space(stored).kind is Kind.FLOAT
    low, low_ok = decode_keys(leaf, lower)
    high, high_ok = decode_keys(leaf, upper)
    null_count, nulls_known = _counts(nulls, values)
    nulls_known = nulls_known & usable
    nan_count, nans_known = _counts(nans, values)
    occupied = values > 0
    # Counts alone prove nothing: some writers inflate them. Existing bounds contradict them.
    exact = trust.exact | (null_count == 0)
    all_null = nulls_known & exact & (null_count == values) & ~stated & occupied
    no_number = ~stated | (_is_nan(low) & _is_nan(high))
    all_nan = nulls_known & exact & nans_known & (null_count + nan_count == values) & no_number
    trusted = trusted & usable
    low_ok, high_ok = _believable(leaf, low, low_ok & trusted, high, high_ok & trusted)
    may_nan = ~(nans_known & (nan_count == 0)) if floating else np.zeros(units, dtype=bool)
    if leaf.required:
        may_null = np.zeros(units, dtype=bool)
        all_null = may_null
    elif trust.zero:
        may_null = ~(nulls_known & (null_count == 0) & (low_ok & high_ok | (not trust.zero_with_bounds)))
    else:
        may_null = np.ones(units, dtype=bool)
    floor, ceiling = unbounded(stored, units)
    # A bound on bytes may be truncated unless the writer says that it is exact.
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
    """Drop bounds that contradict each other, as a pair; INT96 bounds unless they are equal."""
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
    """Return the counts, and which are known: a missing, negative or too large one is not."""
    filled = [-1 if c is None else c for c in counts] if None in counts else counts
    numbers = np.array(filled, dtype=np.int64)
    return numbers, (numbers >= 0) & (numbers <= values)


def _merge(keys: Keys, ok: Array, otherwise: Array | pa.Array) -> Array | pa.Array:
    if isinstance(keys, list):
        return bytes_array([k if good else None for k, good in zip(keys, ok, strict=True)])
    return keys if ok.all() else np.where(ok, keys, otherwise)


def _exact(flags: Sequence[bool | None], keys: Keys, ok: Array, *, cut: bool) -> Array:
    if False not in flags and True not in flags:
        said = np.full(len(flags), not cut)
    else:
        said = np.array([(not cut) if f is None else f for f in flags], dtype=bool)
    if not isinstance(keys, list) and keys.dtype.kind == "f":
        said &= keys != 0  # either zero may represent the other
    return said & ok
