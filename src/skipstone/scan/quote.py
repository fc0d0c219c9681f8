"""The statistics of a file in words: what they say about a column, and why some are ignored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from skipstone.core.domain.keys import Key, is_ordered, key_text, storage_type
from skipstone.core.evidence import Bounds, ColumnFacts, Evidence
from skipstone.core.ir.nodes import ColumnRef, Decided, Leaf, Node
from skipstone.parquet.evidence import find_leaf
from skipstone.parquet.metadata import ParquetMetadata
from skipstone.parquet.schema import LeafColumn, PhysicalType
from skipstone.parquet.structs import Statistics
from skipstone.parquet.trust import bounds_trusted, legacy_bounds_trusted
from skipstone.prune.pages import PageFacts, Path
from skipstone.report.lines import shorten
from skipstone.report.units import plural, span_text
from skipstone.scan.statistics import known_bounds, null_counts

_LONGEST_VALUE = 40
_MOST_VALUES = 3


@dataclass(frozen=True, slots=True)
class Quoter:
    """Quotes one file's metadata; ``partition`` has the values that its directory gives, as text."""

    metadata: ParquetMetadata | None
    partition: Mapping[Path, str]

    def partitions(self, node: Node) -> str:
        """What the directory says about the columns of a condition."""
        texts = [self.partition[path] for path in _paths(node) if path in self.partition]
        rest = [".".join(path) for path in _paths(node) if path not in self.partition]
        if rest:
            texts.append(f"{', '.join(rest)}: not told by directories")
        return "; ".join(texts) or _no_columns(node)

    def row_group(self, node: Node, evidence: Evidence, group: int) -> str:
        """What the footer says about the columns of a condition in a row group."""
        texts = [self._chunk(path, evidence.columns[path], group) for path in _paths(node)]
        return "; ".join(texts) or _no_columns(node)

    def segment(
        self, node: Node, evidence: Evidence, group: int, row: int, pages: Mapping[Path, PageFacts]
    ) -> str:
        """What the page index says about the columns of a condition in the pages around a row."""
        texts = [
            self._page(path, pages[path], group, row)
            if path in pages
            else self._chunk(path, evidence.columns[path], group)
            for path in _paths(node)
        ]
        return "; ".join(texts) or _no_columns(node)

    # -- one column --------------------------------------------------------------------------

    def _chunk(self, path: Path, facts: ColumnFacts, group: int) -> str:
        if path in self.partition:
            return self.partition[path]
        metadata = self.metadata
        assert metadata is not None
        name, ref = ".".join(path), ColumnRef(path, facts.type)
        if not any(leaf.path[: len(path)] == path for leaf in metadata.leaves):
            what = "its value comes from the table" if facts.may_value.any() else "so NULL in every row"
            return f"{name}: not in the file, {what}"
        bound = find_leaf(metadata, ref)
        if bound is None:
            kind = (
                "values inside it" if pa.types.is_nested(storage_type(facts.type)) else f"type {facts.type}"
            )
            missing = f"no bounds to compare ({kind})"
            stats = Statistics()
        else:
            missing = _missing(metadata, bound.leaf, group)
            stats = metadata.chunks(bound.leaf.index)[group].statistics or Statistics()
        lower, upper = known_bounds(metadata, ref, facts)
        counts = null_counts(metadata, ref, facts)
        nulls = _nulls(int(counts[group]), stats.null_count)
        said = _said(facts, group, bool(lower[group]), bool(upper[group]), nulls, missing)
        return f"{name}: {said} (row-group statistics)"

    def _page(self, path: Path, pages: PageFacts, group: int, row: int) -> str:
        """``row`` counts within the row group."""
        assert self.metadata is not None
        index, facts = pages.index, pages.facts
        page = int(index.first_rows.searchsorted(row, side="right")) - 1
        start = int(self.metadata.row_group_starts[group] + index.first_rows[page])
        place = f"page {page} ({span_text(start, start + int(index.row_counts[page]))})"
        ref = ColumnRef(path, facts.type)
        lower, upper = known_bounds(self.metadata, ref, facts)
        counted = None if index.null_counts is None else int(index.null_counts[page])
        nulls = _nulls(0 if not facts.may_null[page] else -1 if counted is None else counted, counted)
        missing = "no bounds" if index.has_statistics else "no statistics"
        said = _said(facts, page, bool(lower[page]), bool(upper[page]), nulls, missing)
        return f"{'.'.join(path)}: {said} in {place}"


def _paths(node: Node) -> list[Path]:
    return list(dict.fromkeys(ref.path for ref in node.refs()))


def _no_columns(node: Node) -> str:
    if isinstance(node, Decided):
        return f"it is {node} for every row"
    return "metadata says nothing about it"


def _said(facts: ColumnFacts, unit: int, low: bool, high: bool, nulls: str, missing: str) -> str:
    """Bounds, NULLs and NaN of one unit."""
    if not facts.may_value[unit]:
        held = [name for name, may in (("NULL", facts.may_null), ("NaN", facts.may_nan)) if may[unit]]
        return f"nothing but {' and '.join(held)}" if held else "no values"
    bounds = [
        f"{name} {value_text(facts.type, _key(keys, unit))}"
        for name, keys, known in (("min", facts.lower, low), ("max", facts.upper, high))
        if known and is_ordered(facts.type)
    ]
    return ", ".join([*(bounds or [missing]), nulls, *(["NaN possible"] * bool(facts.may_nan[unit]))])


def _key(bounds: Bounds, unit: int) -> Key:
    found: Key = bounds[unit].as_py() if isinstance(bounds, pa.Array) else bounds[unit].item()
    return found


def _nulls(count: int, stated: int | None) -> str:
    if count >= 0:
        return plural(count, "null")
    return "null count not given" if stated is None else f"null count {stated:,} not trusted"


def value_text(type: pa.DataType, key: Key) -> str:
    """A value as people write it, cut where it is long."""
    if isinstance(key, int) and pa.types.is_integer(storage_type(type)):
        return f"{key:,}"
    return shorten(key_text(type, key), _LONGEST_VALUE)


def looked_for(leaf: Leaf) -> str:
    """The values that a condition asks for, a few of them."""
    keys = leaf.true.spans.points() if len(leaf.true.spans) <= _MOST_VALUES else None
    if keys is None or not len(keys):
        return "every value asked for"
    plain = keys if isinstance(keys, list) else keys.tolist()
    shown = ", ".join(value_text(leaf.ref.type, key) for key in plain[:_MOST_VALUES])
    return shown + (f" and {len(plain) - _MOST_VALUES} more" if len(plain) > _MOST_VALUES else "")


def _missing(metadata: ParquetMetadata, leaf: LeafColumn, group: int) -> str:
    """Why a chunk has no bounds that count."""
    if metadata.is_encrypted(group, leaf.index):
        return "statistics encrypted"
    stats = metadata.chunks(leaf.index)[group].statistics
    old_low, old_high = (bounds[group] for bounds in metadata.legacy_bounds(leaf.index))
    stated = stats is not None and (stats.min_value is not None or stats.max_value is not None)
    if not stated and old_low is None and old_high is None:
        return "no statistics" if stats is None else "no bounds"
    if not stated:
        right = legacy_bounds_trusted(leaf)
        reason = "min is above max, or not a number" if right else "the deprecated ones, whose order is wrong"
    elif leaf.column_order in ("undefined", "unknown"):
        reason = f"the column's order is {leaf.column_order}"
    elif not bounds_trusted(leaf, metadata.writer):
        reason = f"{metadata.created_by or 'an unknown writer'} gets them wrong for this type"
    elif leaf.physical is PhysicalType.INT96:
        reason = "INT96 timestamps are ordered in more than one way"
    else:
        reason = "min is above max, or not a value"
    return f"bounds ignored: {reason}"
