"""Facts about one Parquet file, from its footer and page indexes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from skipstone.core.domain.keys import Key, Kind, format_key, key_space
from skipstone.core.evidence import Array, ColumnFacts
from skipstone.core.ir.nodes import ColumnRef
from skipstone.core.plain import type_name
from skipstone.errors import CorruptFileError, UnknownColumnError, did_you_mean
from skipstone.parquet.dictionary import dictionary_complete
from skipstone.parquet.evidence import BoundLeaf, find_leaf, own_type, page_facts, row_group_facts
from skipstone.parquet.metadata import ParquetMetadata, read_footer
from skipstone.parquet.pageindex import BadPageIndex, PageIndex, page_index_ranges, parse_page_index
from skipstone.parquet.schema import LeafColumn, Logical, LogicalKind, PhysicalType, is_unmarked_instant
from skipstone.parquet.values import stored_type
from skipstone.prune.clustering import Clustering, clustering, recorded
from skipstone.report import Reported
from skipstone.report.json import record, to_json
from skipstone.report.trace import Note, Notes
from skipstone.store.source import Source, TailSource, open_source

# Page indexes are read only while that is cheap, unless requested.
_MOST_INDEX_BYTES = 32 * 1024 * 1024
_MOST_INDEXES = 20_000
# Page types of the format: data pages of version 1 and 2.
_DATA_PAGES = (0, 3)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Minimum and maximum of a unit as strings; None if the file doesn't record them."""

    min: str | None = None
    max: str | None = None
    min_exact: bool = False
    max_exact: bool = False


@dataclass(frozen=True, slots=True)
class StatisticsCoverage:
    """Number of row groups with each kind of evidence about a column."""

    bounds: int
    """Usable bounds."""
    stated_bounds: int
    """Recorded bounds, usable or not."""
    page_index: int
    bloom_filter: int
    dictionary: int
    dictionary_only: int | None = None
    """Row groups proven to have no data page outside the dictionary; None if that was not measured."""

    def describe(self, row_groups: int) -> str:
        """Name the kinds of evidence, and count the row groups of those that not all have."""
        kinds = {
            "bounds": self.bounds,
            "pages": self.page_index,
            "bloom": self.bloom_filter,
            "dict": self.dictionary,
        }
        parts = ["bounds ignored"] if self.stated_bounds and not self.bounds else []
        parts += [name if n == row_groups else f"{name} {n}/{row_groups}" for name, n in kinds.items() if n]
        return ", ".join(parts) or "none"


@dataclass(frozen=True, slots=True)
class InspectedColumn:
    """One leaf column of the file."""

    leaf: LeafColumn
    bytes: int
    codecs: tuple[int, ...]
    encodings: tuple[int, ...] | None
    coverage: StatisticsCoverage
    bounds: Bounds
    null_count: int | None
    nan_count: int | None
    floating: bool
    facts: ColumnFacts | None
    row_group_clustering: Clustering | None
    page_clustering: Clustering | None

    @property
    def name(self) -> str:
        """The path, joined by dots."""
        return self.leaf.name

    @property
    def physical_name(self) -> str:
        """How values are stored."""
        leaf = self.leaf
        if leaf.physical is PhysicalType.FIXED_LEN_BYTE_ARRAY:
            return f"fixed({leaf.type_length})"
        return leaf.physical.name.lower()

    @property
    def type_name(self) -> str:
        """The type of the values, as other listings name it; the format's own name if Arrow has none."""
        kind, stored = self.leaf.logical.kind, self.facts.type if self.facts else stored_type(self.leaf)
        if stored is None or kind in (_K.ENUM, _K.JSON, _K.BSON, _K.UUID):
            return logical_name(self.leaf.logical) or self.physical_name
        return type_name(pa.timestamp(stored.unit, "UTC") if is_unmarked_instant(self.leaf) else stored)

    @property
    def encoding_names(self) -> str:
        """Short names of the encodings."""
        return ", ".join(dict.fromkeys(map(short_encoding, self.encodings or ())))

    def row_group_bounds(self, row_groups: int) -> list[Bounds]:
        """The bounds in every row group."""
        return each(self.facts, row_groups)


@dataclass(frozen=True, slots=True)
class Page:
    """One data page."""

    row_group: int
    first_row: int
    rows: int
    bytes: int
    bounds: Bounds
    null_count: int | None
    nan_count: int | None

    def to_json(self) -> dict[str, Any]:
        """Return the fields, with those of the bounds."""
        fields = record(self)
        bounds = fields.pop("bounds")
        return {**fields, **bounds}


@dataclass(frozen=True, slots=True)
class FileInspection(Reported):
    """Facts about one file."""

    view: ClassVar[str] = "skipstone.inspection.views:file_tree"

    metadata: ParquetMetadata
    columns: tuple[InspectedColumn, ...]
    pages: tuple[Page, ...] | None
    """Pages of one column; None unless they were requested."""
    notes: tuple[Note, ...]
    requests: int
    bytes: int
    row_groups: bool = False
    """Whether row groups are listed."""
    named: bool = False
    """Whether columns were named, so that their bounds are listed by row group."""

    @property
    def data_bytes(self) -> int:
        """Compressed bytes of all column chunks of the file, whichever columns are inspected."""
        metadata = self.metadata
        return sum(c.total_compressed_size for leaf in metadata.leaves for c in metadata.chunks(leaf.index))

    @property
    def codecs(self) -> list[str]:
        """Names of the compression codecs of the file."""
        metadata = self.metadata
        numbers = {chunk.codec for leaf in metadata.leaves for chunk in metadata.chunks(leaf.index)}
        return [codec_name(number) for number in sorted(numbers)]

    def to_json(self) -> dict[str, Any]:
        """Return the inspection as JSON; ``row_groups`` and ``pages`` only if they were requested."""
        metadata = self.metadata
        stored = [group.total_byte_size for group in metadata.row_groups]
        sizes = [size for size in stored if size is not None]
        return {
            "path": metadata.path,
            "bytes": metadata.size,
            "footer_bytes": metadata.footer_size,
            "data_bytes": self.data_bytes,
            "uncompressed_bytes": sum(sizes) if len(sizes) == len(stored) else None,
            "rows": metadata.num_rows,
            "row_group_count": metadata.row_group_count,
            "column_count": len(metadata.leaves),
            "created_by": metadata.created_by,
            "codecs": self.codecs,
            "columns": [_column_json(column) for column in self.columns],
            "read": {"requests": self.requests, "bytes": self.bytes},
            "notes": to_json(self.notes),
            **({"row_groups": _row_groups_json(self)} if self.row_groups else {}),
            **({"pages": to_json(self.pages)} if self.pages is not None else {}),
        }


@dataclass(slots=True)
class _Reader:
    """State of an inspection."""

    source: Source
    metadata: ParquetMetadata
    notes: Notes = field(default_factory=Notes)

    def indexes(self, leaf: LeafColumn) -> dict[int, PageIndex]:
        """Read the page indexes of a leaf by row group; unusable ones are noted and left out."""
        places = {
            group: page_index_ranges(self.metadata, group, leaf.index)
            for group in range(self.metadata.row_group_count)
        }
        usable = {group: pair for group, pair in places.items() if pair[1] is not None}
        ranges = [place for pair in usable.values() for place in pair if place is not None]
        bodies = iter(self.source.read_ranges(ranges) if ranges else [])
        indexes = {}
        for group, (column_place, _) in usable.items():
            column_index = next(bodies) if column_place is not None else None
            try:
                indexes[group] = parse_page_index(
                    column_index, next(bodies), self.metadata, group, leaf.index
                )
            except BadPageIndex as error:
                unit = f"row group {group}, column {leaf.name}"
                self.notes.add(unit, f"page index ignored: {error.reason}")
        return indexes

    def affordable(self, leaves: Sequence[LeafColumn]) -> bool:
        """Whether the page indexes of these leaves are few and small enough to read."""
        chunks = [chunk for leaf in leaves for chunk in self.metadata.columns(leaf.index)]
        total = sum((c.column_index_length or 0) + (c.offset_index_length or 0) for c in chunks)
        fits = total <= _MOST_INDEX_BYTES and len(chunks) <= _MOST_INDEXES
        if not fits:
            self.notes.add("file", f"{len(chunks)} page indexes not read; use --columns to choose columns")
        return fits


def inspect_file(
    file: str,
    *,
    columns: Sequence[str] = (),
    pages: str | None = None,
    row_groups: bool = False,
    storage_options: dict[str, str],
) -> FileInspection:
    """Read a file's footer and page indexes and sum them up by column."""
    source = TailSource(open_source(file, storage_options=storage_options))
    reader = _Reader(source, read_footer(source))
    chosen = pick(reader.metadata, columns)
    paged = _one(reader.metadata, pages) if pages is not None else None
    affordable = reader.affordable(chosen)
    inspected = tuple(_column(reader, leaf, indexed=affordable) for leaf in chosen)
    listed = _pages(reader, paged) if paged is not None else None
    return FileInspection(
        reader.metadata,
        inspected,
        listed,
        reader.notes.done(),
        source.counter.requests,
        source.counter.bytes,
        row_groups,
        bool(columns),
    )


# -- columns by name ---------------------------------------------------------------------------


def pick(metadata: ParquetMetadata, names: Sequence[str]) -> tuple[LeafColumn, ...]:
    """Return the leaves of the named columns in file order, including those of structs and lists."""
    if not names:
        return metadata.leaves
    wanted: set[int] = set()
    for name in names:
        mine = [leaf.index for leaf in metadata.leaves if f"{leaf.name}.".startswith(f"{name}.")]
        if not mine:
            raise _unknown(metadata, name)
        wanted.update(mine)
    return tuple(leaf for leaf in metadata.leaves if leaf.index in wanted)


def _one(metadata: ParquetMetadata, name: str) -> LeafColumn:
    leaves = pick(metadata, [name])
    if len(leaves) > 1:
        hint = f"use one of {', '.join(leaf.name for leaf in leaves)}"
        raise UnknownColumnError(
            f"{name!r} is stored as {len(leaves)} columns", path=metadata.path, hint=hint
        )
    return leaves[0]


def _unknown(metadata: ParquetMetadata, name: str) -> UnknownColumnError:
    names = [leaf.name for leaf in metadata.leaves]
    hint = did_you_mean(name, names, f"available: {', '.join(names[:20])}")
    return UnknownColumnError(f"unknown column {name!r}", path=metadata.path, hint=hint)


# -- columns -----------------------------------------------------------------------------------


def _column(reader: _Reader, leaf: LeafColumn, *, indexed: bool) -> InspectedColumn:
    metadata = reader.metadata
    bound = _bound(metadata, leaf)
    facts = row_group_facts(metadata, bound.ref) if bound is not None else None
    chunks = metadata.chunks(leaf.index)
    stats = [chunk.statistics for chunk in chunks]
    floating = facts is not None and key_space(facts.type).kind is Kind.FLOAT
    return InspectedColumn(
        leaf=leaf,
        bytes=sum(chunk.total_compressed_size for chunk in chunks),
        codecs=tuple(sorted({chunk.codec for chunk in chunks})),
        encodings=_encodings(metadata, leaf),
        coverage=_coverage(metadata, leaf, facts),
        bounds=overall(facts) if facts is not None else Bounds(),
        null_count=0 if leaf.required else _sum([None if s is None else s.null_count for s in stats]),
        nan_count=_sum([None if s is None else s.nan_count for s in stats]) if floating else None,
        floating=floating,
        facts=facts,
        row_group_clustering=None if facts is None else clustering(facts, metadata.row_group_rows),
        page_clustering=_page_clustering(reader, bound) if bound is not None and indexed else None,
    )


def _bound(metadata: ParquetMetadata, leaf: LeafColumn) -> BoundLeaf | None:
    type = own_type(metadata, leaf.path)
    return None if type is None else find_leaf(metadata, ColumnRef(leaf.path, type))


def _coverage(metadata: ParquetMetadata, leaf: LeafColumn, facts: ColumnFacts | None) -> StatisticsCoverage:
    chunks, columns = metadata.chunks(leaf.index), metadata.columns(leaf.index)
    usable = np.zeros(0, dtype=bool) if facts is None else recorded(facts) | ~facts.may_value
    groups = range(metadata.row_group_count)
    return StatisticsCoverage(
        bounds=int(usable.sum()),
        stated_bounds=_stated(metadata, leaf),
        page_index=sum(bool(c.column_index_length and c.offset_index_length) for c in columns),
        bloom_filter=sum(c.bloom_filter_offset is not None for c in chunks),
        dictionary=sum(bool(c.dictionary_page_offset) for c in chunks),
        dictionary_only=sum(dictionary_complete(metadata, group, leaf.index) for group in groups),
    )


def _stated(metadata: ParquetMetadata, leaf: LeafColumn) -> int:
    """Row groups whose statistics have a bound, deprecated or not."""
    stats = [chunk.statistics for chunk in metadata.chunks(leaf.index)]
    new = [s is not None and (s.min_value is not None or s.max_value is not None) for s in stats]
    if all(new):
        return len(new)
    low, high = metadata.legacy_bounds(leaf.index)
    old = [a is not None or b is not None for a, b in zip(low, high, strict=True)]
    return sum(a or b for a, b in zip(new, old, strict=True))


def _encodings(metadata: ParquetMetadata, leaf: LeafColumn) -> tuple[int, ...] | None:
    """Encodings of the data pages; None if the writer didn't record them."""
    encodings: set[int | None] = set()
    for group in range(metadata.row_group_count):
        try:
            stats = metadata.encoding_stats(group, leaf.index)
        except CorruptFileError:
            return None
        if stats is None:
            return None
        encodings |= {entry.encoding for entry in stats if entry.page_type in _DATA_PAGES and entry.count}
    return tuple(sorted(number for number in encodings if number is not None))


def _page_clustering(reader: _Reader, bound: BoundLeaf) -> Clustering | None:
    indexes = reader.indexes(bound.leaf)
    # Row groups without an index would mix two kinds of unit.
    if not indexes or len(indexes) < reader.metadata.row_group_count:
        return None
    if not all(index.has_statistics for index in indexes.values()):
        return None
    facts = ColumnFacts.concat([page_facts(reader.metadata, bound, index) for index in indexes.values()])
    return clustering(facts, np.concatenate([index.row_counts for index in indexes.values()]))


def _sum(counts: Sequence[int | None]) -> int | None:
    recorded = [count for count in counts if count is not None and count >= 0]
    return sum(recorded) if len(recorded) == len(counts) else None


# -- bounds as text ----------------------------------------------------------------------------


def overall(facts: ColumnFacts) -> Bounds:
    """Return the bounds of all units together; none if any unit with values lacks them."""
    units = np.flatnonzero(facts.may_value)
    if not len(units) or not recorded(facts)[units].all():
        return Bounds()
    chosen = facts.take(units)
    lows, highs = _list(chosen.lower), _list(chosen.upper)
    low, high = min(lows), max(highs)
    return Bounds(
        format_key(facts.type, low),
        format_key(facts.type, high),
        any(bool(e) for key, e in zip(lows, chosen.lower_exact, strict=True) if key == low),
        any(bool(e) for key, e in zip(highs, chosen.upper_exact, strict=True) if key == high),
    )


def each(facts: ColumnFacts | None, units: int) -> list[Bounds]:
    """Return the bounds of every unit."""
    if facts is None:
        return [Bounds()] * units
    usable_bounds = recorded(facts) & facts.may_value
    pairs = zip(
        _list(facts.lower),
        _list(facts.upper),
        facts.lower_exact,
        facts.upper_exact,
        usable_bounds,
        strict=True,
    )
    return [
        Bounds(format_key(facts.type, low), format_key(facts.type, high), bool(low_exact), bool(high_exact))
        if usable
        else Bounds()
        for low, high, low_exact, high_exact, usable in pairs
    ]


def _list(bounds: Array | pa.Array) -> list[Key]:
    keys: list[Key] = bounds.to_pylist() if isinstance(bounds, pa.Array) else bounds.tolist()
    return keys


# -- pages -------------------------------------------------------------------------------------


def _pages(reader: _Reader, leaf: LeafColumn) -> tuple[Page, ...]:
    metadata = reader.metadata
    bound = _bound(metadata, leaf)
    pages: list[Page] = []
    for group, index in reader.indexes(leaf).items():
        facts = None if bound is None else page_facts(metadata, bound, index)
        first = int(metadata.row_group_starts[group])
        unknown: list[int | None] = [None] * len(index)
        nulls = unknown if index.null_counts is None else index.null_counts.tolist()
        nans = unknown if index.nan_counts is None else index.nan_counts.tolist()
        columns = (index.first_rows + first, index.row_counts, index.sizes)
        parts = zip(*(c.tolist() for c in columns), each(facts, len(index)), nulls, nans, strict=True)
        pages += [Page(group, *part) for part in parts]
    if not pages:
        reader.notes.add(f"column {leaf.name}", "no readable page index")
    return tuple(pages)


# -- names -------------------------------------------------------------------------------------

_K = LogicalKind
_CODECS = ("uncompressed", "snappy", "gzip", "lzo", "brotli", "lz4", "zstd", "lz4_raw")
_ENCODINGS = {
    0: "PLAIN",
    2: "PLAIN_DICTIONARY",
    3: "RLE",
    4: "BIT_PACKED",
    5: "DELTA_BINARY_PACKED",
    6: "DELTA_LENGTH_BYTE_ARRAY",
    7: "DELTA_BYTE_ARRAY",
    8: "RLE_DICTIONARY",
    9: "BYTE_STREAM_SPLIT",
}
_SHORT = {
    0: "plain",
    2: "dict",
    3: "rle",
    4: "bits",
    5: "delta",
    6: "delta-length",
    7: "delta-bytes",
    8: "dict",
    9: "split",
}


def codec_name(number: int) -> str:
    """The name of a compression codec."""
    return _CODECS[number] if 0 <= number < len(_CODECS) else f"codec {number}"


def encoding_name(number: int) -> str:
    """The format's name of an encoding."""
    return _ENCODINGS.get(number, f"encoding {number}")


def short_encoding(number: int) -> str:
    """A name of an encoding that fits a table."""
    return _SHORT.get(number, str(number))


def logical_name(logical: Logical) -> str | None:
    """Return the logical type of a leaf; None if it has only a physical one."""
    match logical.kind:
        case _K.NONE:
            return None
        case _K.DECIMAL:
            return f"decimal({logical.precision},{logical.scale})"
        case _K.TIME | _K.TIMESTAMP:
            return f"{logical.kind.value}({logical.unit}{',utc' if logical.utc else ''})"
        case _K.INTEGER:
            return f"{'' if logical.signed else 'u'}int{logical.bits}"
    return logical.kind.value


# -- JSON --------------------------------------------------------------------------------------


def _column_json(column: InspectedColumn) -> dict[str, Any]:
    leaf = column.leaf
    return {
        "name": leaf.name,
        "path": list(leaf.path),
        "physical_type": leaf.physical.name,
        "logical_type": logical_name(leaf.logical),
        "nullable": not leaf.required,
        "repeated": leaf.max_repetition > 0,
        "bytes": column.bytes,
        "codecs": [codec_name(number) for number in column.codecs],
        "encodings": None if column.encodings is None else [encoding_name(n) for n in column.encodings],
        "row_groups_with": record(column.coverage),
        **record(column.bounds),
        "null_count": column.null_count,
        "nan_count": column.nan_count,
        "clustering": {
            "row_groups": clustering_json(column.row_group_clustering),
            "pages": clustering_json(column.page_clustering),
        },
    }


def clustering_json(measured: Clustering | None) -> dict[str, Any] | None:
    """Return a clustering with its share of units, rounded."""
    if measured is None:
        return None
    return {
        "units": measured.units,
        "layout": measured.layout.value,
        "depth": round(measured.depth, 4),
        "kept_by_equality": round(measured.kept, 6),
        "profile": [round(share, 4) for share in measured.profile],
    }


def _row_groups_json(inspection: FileInspection) -> list[dict[str, Any]]:
    metadata = inspection.metadata
    groups = metadata.row_group_count
    bounds = {column.leaf.index: column.row_group_bounds(groups) for column in inspection.columns}
    chunks = {column.leaf.index: metadata.chunks(column.leaf.index) for column in inspection.columns}
    listed = []
    for number in range(metadata.row_group_count):
        columns = {}
        for column in inspection.columns:
            leaf = column.leaf
            chunk = chunks[leaf.index][number]
            columns[leaf.name] = {
                "bytes": chunk.total_compressed_size,
                "null_count": None if chunk.statistics is None else chunk.statistics.null_count,
                **record(bounds[leaf.index][number]),
            }
        listed.append(
            {
                "row_group": number,
                "first_row": int(metadata.row_group_starts[number]),
                "rows": int(metadata.row_group_rows[number]),
                "columns": columns,
            }
        )
    return listed
