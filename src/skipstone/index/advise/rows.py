"""Sampled rows, sorted and cut into units: estimate what queries would read under another order."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.domain.keys import Kind, key_space
from skipstone.core.evidence import Array, Bounds, ColumnFacts, Evidence
from skipstone.core.ir.nodes import Leaf, Node
from skipstone.core.judge import Verdict, judge
from skipstone.index.advise.questions import SampleQuery
from skipstone.parquet.measure import NotMeasurable, NumberKeys, byte_keys, read_column
from skipstone.parquet.write.order import Cluster

Path = tuple[str, ...]
ClusterKind: TypeAlias = Literal["sort", "zorder", "hilbert"]
# A block of fewer sampled rows says too little about the unit it represents.
_BLOCK_ROWS = 128
_MOST_POINTS = 1_000
_FILTER_BYTES_PER_VALUE, _LEAST_FILTER_BYTES, _FALSE_POSITIVES = 1.5, 32, 0.01


def keys_of(type: pa.DataType, values: pa.Array | pa.ChunkedArray) -> pa.Array | None:
    """Return values as keys for the judge, with NULLs; None if the type has no order."""
    try:
        column = read_column(type, values)
    except NotMeasurable:
        return None
    space = key_space(type)
    if space.kind is Kind.BYTES:
        return byte_keys(column.chunks).cast(pa.large_binary()).combine_chunks()
    keys = NumberKeys.of(column).keys.astype(space.dtype)
    return pa.array(keys, mask=None if column.valid is None else ~column.valid)


@dataclass(frozen=True, slots=True, eq=False)
class SampledColumn:
    """One column of the sampled rows: its distinct keys in order, and the key of each row."""

    type: pa.DataType
    keys: Bounds
    numbers: Array
    """Per row, the number of its key; -1 for NULL, one past the last for NaN."""
    counts: Array
    """Rows per key."""
    may_nan: bool
    """Whether metadata never rules out NaN."""

    @classmethod
    def of(cls, type: pa.DataType, values: pa.Array, *, may_nan: bool = False) -> SampledColumn:
        """Build the column of these keys."""
        coded = values.dictionary_encode()
        order = np.asarray(pc.sort_indices(coded.dictionary))
        ranks = np.append(np.argsort(order), -1)
        numbers = ranks[coded.indices.fill_null(len(order)).to_numpy()]
        keys = coded.dictionary.take(pa.array(order))
        if key_space(type).kind is not Kind.BYTES:
            keys = keys.to_numpy()
            # NaN comes last.
            keys = keys[:-1] if len(keys) and keys[-1] != keys[-1] else keys
        is_key = (numbers >= 0) & (numbers < len(keys))
        return cls(type, keys, numbers, np.bincount(numbers[is_key], minlength=len(keys)), may_nan)

    def facts(self, order: Array, starts: Array, unit_rows: float | None) -> ColumnFacts:
        """Return the facts of blocks of rows in an order; ``starts`` are the blocks' first rows.

        With ``unit_rows`` each block is a sample of a unit with that many rows.
        """
        if not len(self.keys):
            return ColumnFacts.unknown(self.type, len(starts))
        numbers, last = self.numbers[order], len(self.keys) - 1
        is_key = (numbers >= 0) & (numbers <= last)
        low = np.minimum.reduceat(np.where(is_key, numbers, last), starts)
        high = np.maximum.reduceat(np.where(is_key, numbers, -1), starts)
        may_value = high >= 0
        if unit_rows is not None:
            rows = np.add.reduceat(is_key, starts, dtype=np.int64)
            low, high = self._widen(low, high, rows, unit_rows)
        lower, upper = _take(self.keys, low), _take(self.keys, high.clip(min=0))
        nans = np.logical_or.reduceat(numbers > last, starts)
        if self.may_nan:
            nans = nans | may_value
        nulls = np.logical_or.reduceat(numbers < 0, starts)
        inexact = np.zeros(len(starts), dtype=bool)
        return ColumnFacts(self.type, lower, upper, inexact, inexact, may_value, nulls, nans)

    def _widen(self, low: Array, high: Array, rows: Array, unit_rows: float) -> tuple[Array, Array]:
        """Estimate the bounds of units from those of samples of them, as numbers of keys.

        The outermost of a few sampled rows are, on average, one gap between neighbours away from the ends of
        their population; gaps are counted in rows of the entire sample, in the order of this column. A unit
        reaches no further than the same number of sampled rows around it.
        """
        ends = np.cumsum(self.counts)
        lowest, highest = ends[low] - 1, (ends - self.counts)[high]
        gap = np.maximum(highest - lowest, 0) / np.maximum(rows - 1, 1) * np.maximum(1 - rows / unit_rows, 0)
        around = round(unit_rows / max(rows.mean(), 1.0) / 2)
        wider_low = np.searchsorted(ends, np.floor(lowest - gap), side="right")
        wider_high = np.searchsorted(ends, np.ceil(highest + gap), side="right")
        return (
            np.maximum(wider_low, _around(np.min, low, around)),
            np.minimum(wider_high, _around(np.max, high, around)),
        )

    def distinct(self, scale: float) -> float:
        """Estimate the number of distinct values in the lake, if every ``scale``-th row is sampled.

        The first-order jackknife of Haas et al. (1995): the more values occur only once in the sample, the
        more values it misses.
        """
        once = (self.counts == 1).sum() / max(self.counts.sum(), 1)
        return float(len(self.counts) / (1 - (1 - 1 / scale) * once))

    def rows_with(self, keys: Any) -> int:
        """Number of sampled rows with one of some keys."""
        if isinstance(self.keys, pa.Array):
            is_one = np.asarray(pc.is_in(self.keys, value_set=pa.array(keys, self.keys.type)))
        else:
            is_one = np.isin(self.keys, keys)
        return int(self.counts[is_one].sum())


@dataclass(frozen=True, slots=True, eq=False)
class RowSample:
    """Rows sampled from all of a lake, and the sizes of its units."""

    columns: Mapping[Path, SampledColumn]
    partitions: Array
    """Partition number of each row."""
    rows: int
    """Rows of the lake."""
    page_rows: Mapping[Path, float]
    """Average rows per page of columns with page indexes."""
    group_rows: float

    def __len__(self) -> int:
        return len(self.partitions)

    @property
    def scale(self) -> float:
        """Rows of the lake per sampled row."""
        return self.rows / max(len(self), 1)

    def unit_rows(self, paths: Sequence[Path]) -> float:
        """Rows per unit at the finest level with bounds of these columns: pages, or else row groups."""
        return max((self.page_rows.get(path, self.group_rows) for path in paths), default=self.group_rows)

    def shares_read(
        self, questions: Sequence[SampleQuery], by: Sequence[Path] = (), order: ClusterKind = "zorder"
    ) -> Array:
        """Estimate, per query, the share of the lake it would read if partitions were ordered by columns.

        The rows are sorted by columns, or along a curve through several; without columns they stay as they
        are. Then they are cut into blocks that represent the lake's units, and judged. If blocks would have
        too few rows, larger ones are judged at two sizes: each end of a range costs a block, so the share
        read is linear in the block size, and is extrapolated to the lake's units.
        """
        rows = self._order(by, order)
        unit = self.unit_rows(by) / self.scale
        block = unit if self.scale == 1 else max(unit, float(_BLOCK_ROWS))
        read = self._judge(questions, rows, block)
        if block > unit:
            read -= (self._judge(questions, rows, 2 * block) - read) * (1 - unit / block)
        # Matching rows may be between two sampled rows.
        return np.clip(read, 0.0 if self.scale == 1 else unit / len(self), 1.0)

    def _order(self, by: Sequence[Path], order: ClusterKind) -> Array:
        names = [str(number) for number in range(len(by))]
        numbers = [self.columns[path].numbers for path in by]
        if len(by) > 1 and order != "sort":
            table = pa.table([pa.array(column, mask=column < 0) for column in numbers], names)
            numbers = [np.asarray(Cluster.of(table, names, order).keys(table))]
        return np.lexsort((*reversed(numbers), self.partitions))

    def _judge(self, questions: Sequence[SampleQuery], order: Array, block: float) -> Array:
        """Return, per query, the share of rows in blocks that may match."""
        starts = _starts(self.partitions[order], block)
        rows = np.diff(starts, append=len(self))
        facts = {
            path: column.facts(order, starts, None if self.scale == 1 else self.unit_rows([path]))
            for path, column in self.columns.items()
        }
        evidence = Evidence(rows, facts)
        kept = [judge(question.node, evidence).verdicts() != Verdict.NONE for question in questions]
        return np.array([rows[units].sum() / len(self) for units in kept])

    # -- bloom filters -----------------------------------------------------------------------

    def read_with_bloom(self, question: SampleQuery, path: Path, read: float) -> float | None:
        """Estimate the share of the lake that a query reads with bloom filters of a column.

        ``read`` is the share by bounds alone. None if filters can't help: the query has no few values.
        """
        values = [_points(part) for part in question.conjuncts(path)]
        if path not in self.columns or not any(len(points) for points in values):
            return None
        # Assume that rows with the values are spread over all that is read.
        unit = min(self.unit_rows([path]) / max(read * self.rows, 1.0), 1.0)
        rows = min(self._rows_with(path, points) for points in values if len(points))
        return float(read * (1 - (1 - unit) ** rows * (1 - _FALSE_POSITIVES)))

    def bloom_bytes(self, path: Path) -> int:
        """Estimated size of bloom filters of a column, one per unit."""
        if path not in self.columns:
            return 0
        unit, shares = self.unit_rows([path]), self.columns[path].counts / len(self)
        # Distinct values in that many rows, drawn from the sample.
        values = float((1 - (1 - shares) ** unit).sum()) * max(unit / len(self), 1.0)
        size = max(_FILTER_BYTES_PER_VALUE * values, _LEAST_FILTER_BYTES)
        return round(self.rows / unit) << math.ceil(math.log2(size))

    def _rows_with(self, path: Path, points: Any) -> float:
        """Estimated number of rows of the lake with one of some values."""
        column = self.columns[path]
        sampled = column.rows_with(points)
        if self.scale == 1:
            return sampled
        # A value that is rare in the sample is assumed to have the column's average frequency.
        usual = len(points) * self.rows / max(column.distinct(self.scale), 1.0)
        return max((sampled - len(points)) * self.scale, usual)


def _points(node: Node) -> Any:
    """Return the keys for which a condition is TRUE; empty if there are others, or too many."""
    if not isinstance(node, Leaf) or node.ref.via:
        return ()
    true = node.true
    if true.nulls or true.nans or true.spans.is_all or len(true.spans) > _MOST_POINTS:
        return ()
    points = true.spans.points()
    return () if points is None or len(points) > _MOST_POINTS else points


def _starts(partitions: Array, block: float) -> Array:
    """Return the first rows of blocks; no block spans two partitions."""
    _, firsts, counts = np.unique(partitions, return_index=True, return_counts=True)
    blocks = np.maximum(np.round(counts / block), 1).astype(np.int64)
    parts = zip(firsts.tolist(), counts.tolist(), blocks.tolist(), strict=True)
    return np.concatenate([first + np.arange(n) * count // n for first, count, n in parts])


def _around(outermost: Callable[..., Array], numbers: Array, around: int) -> Array:
    """Return, per block, the outermost number among the blocks up to ``around`` positions away."""
    reach = min(around, len(numbers) - 1)
    padded = np.pad(numbers, reach, mode="edge")
    return outermost(np.lib.stride_tricks.sliding_window_view(padded, 2 * reach + 1), axis=1)


def _take(keys: Bounds, numbers: Array) -> Bounds:
    return keys.take(pa.array(numbers)) if isinstance(keys, pa.Array) else keys[numbers]
