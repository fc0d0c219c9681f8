"""Sampled rows, put in another order and cut into units: what questions would read then."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.evidence import Array, ColumnFacts, Evidence
from skipstone.filter.keys import numbers, texts
from skipstone.filter.rows import plain_type
from skipstone.index.advise.questions import Question
from skipstone.ir.nodes import Leaf
from skipstone.judge import Verdict, judge
from skipstone.parquet.measure import NotMeasurable, measure, read_column
from skipstone.write.layout import Layout
from skipstone.write.order import sort_batch

Path = tuple[str, ...]
Order = Literal["sort", "zorder", "hilbert"]
# A block of fewer sampled rows would show narrower bounds than the unit it stands for.
_BLOCK_ROWS = 64
_PARTITION = "partition"
_MOST_POINTS = 1_000
_FILTER_BYTES_PER_VALUE, _LEAST_FILTER_BYTES, _FALSE_POSITIVES = 1.5, 32, 0.01


@dataclass(frozen=True, slots=True, eq=False)
class RowSample:
    """Rows of a lake, from everywhere in it, and the sizes of the units that such rows lie in."""

    values: Mapping[Path, pa.ChunkedArray]
    """Columns that can be compared, in their plain layout."""
    partitions: Array
    """The number of each row's partition."""
    rows: int
    """Rows of the whole lake."""
    page_rows: Mapping[Path, float]
    """Rows of a page on average, where columns have page indexes."""
    group_rows: float
    may_nan: frozenset[Path] = frozenset()
    """Columns in which metadata never rules out NaN."""

    def __len__(self) -> int:
        return len(self.partitions)

    @property
    def scale(self) -> float:
        """Rows of the lake for each row of the sample."""
        return self.rows / max(len(self), 1)

    def unit_rows(self, columns: Sequence[Path]) -> float:
        """Rows of the finest units with bounds of these columns: pages, or else row groups."""
        return max((self.page_rows.get(path, self.group_rows) for path in columns), default=self.group_rows)

    def shares_read(
        self, questions: Sequence[Question], by: Sequence[Path] = (), order: Order = "sort"
    ) -> Array:
        """Per question, the share of the lake it would read if each partition were ordered by these columns.

        The sample is cut into blocks that stand for the lake's units, and these are judged. Where that would
        leave too few rows to a block, larger ones are judged at two sizes: each end of a range costs a block,
        so what is read grows in a straight line with their size, which is followed down to the lake's units.
        """
        table = self._ordered(by, order)
        unit = self.unit_rows(by) / self.scale
        block = unit if self.scale == 1 else max(unit, float(_BLOCK_ROWS))
        read = _shares(questions, self._evidence(table, block))
        if block > unit:
            coarse = _shares(questions, self._evidence(table, 2 * block))
            read = read - (coarse - read) * (1 - unit / block)
        # What is asked for may lie between two sampled rows.
        least = 0.0 if self.scale == 1 else unit / len(self)
        return np.clip(read, least, 1.0)

    def _ordered(self, by: Sequence[Path], order: Order) -> pa.Table:
        paths = list(self.values)
        # Durations have no type in Parquet, and sort like their numbers.
        columns = [c.cast(pa.int64()) if pa.types.is_duration(c.type) else c for c in self.values.values()]
        table = pa.table([*columns, self.partitions], [*map(str, range(len(columns))), _PARTITION])
        names = tuple(str(paths.index(path)) for path in by)
        return sort_batch(table, Layout(partition_by=(_PARTITION,), cluster_by=names, cluster=order))

    def _evidence(self, table: pa.Table, block: float) -> Evidence:
        starts = _starts(np.asarray(table[_PARTITION]), block)
        facts = {path: self._facts(path, table.column(at), starts) for at, path in enumerate(self.values)}
        return Evidence(np.diff(starts, append=len(self)), facts)

    def _facts(self, path: Path, column: pa.ChunkedArray, starts: Array) -> ColumnFacts:
        facts = measure(column.type, column, starts).facts
        # Counts of NULLs rule NaN out where there is nothing else.
        return replace(facts, may_nan=facts.may_nan | facts.may_value) if path in self.may_nan else facts

    # -- bloom filters -----------------------------------------------------------------------

    def read_with_bloom(self, question: Question, path: Path, read: float) -> float | None:
        """The share of the lake that is read if units have bloom filters of a column.

        ``read`` is the share by bounds alone. None if filters can't help: nobody asks for a few values.
        """
        leaves = [part for part in question.conjuncts(path) if isinstance(part, Leaf) and len(_points(part))]
        if not leaves or path not in self.values:
            return None
        # Rows with the values may be anywhere in what is read.
        unit = min(self.unit_rows([path]) / max(read * self.rows, 1.0), 1.0)
        absent = (1 - unit) ** min(self._matching(leaf, path) for leaf in leaves) * (1 - _FALSE_POSITIVES)
        return float(read * (1 - absent))

    def bloom_bytes(self, path: Path) -> int:
        """About the size of bloom filters of a column, one for each unit."""
        if path not in self.values:
            return 0
        unit, distinct = self.unit_rows([path]), max(self._distinct(path), 1.0)
        values = distinct * -math.expm1(-unit / distinct)
        size = max(_FILTER_BYTES_PER_VALUE * values, _LEAST_FILTER_BYTES)
        return round(self.rows / unit) << math.ceil(math.log2(size))

    def _matching(self, leaf: Leaf, path: Path) -> float:
        """About how many rows of the lake have one of the few values that a condition asks for."""
        points = _points(leaf)
        column = self.values[path].combine_chunks().drop_null()
        if isinstance(points, list):
            keys = texts(column)
            found = pc.sum(pc.is_in(keys, value_set=pa.array(points, keys.type))).as_py() or 0
        else:
            found = int(np.isin(numbers(column), points).sum())
        if self.scale == 1:
            return float(found)
        # A value that the sample hardly has is as frequent as others of its column.
        usual = len(points) * self.rows / max(self._distinct(path), 1.0)
        return max((found - len(points)) * self.scale, usual)

    def _distinct(self, path: Path) -> float:
        """About how many different values the lake has in a column.

        The first-order jackknife of Haas et al. (1995): the more values occur only once in the sample, the
        more of the lake's values it lacks.
        """
        counts = np.asarray(pc.value_counts(self.values[path].drop_null()).field("counts"))
        once = (counts == 1).sum() / max(counts.sum(), 1)
        return float(len(counts) / (1 - (1 - 1 / self.scale) * once))


def _points(leaf: Leaf) -> Any:
    """The few values that a condition asks for; empty if it may be TRUE for others."""
    true = leaf.true
    if leaf.ref.via or true.nulls or true.nans or true.spans.is_all or len(true.spans) > _MOST_POINTS:
        return []
    points = true.spans.points()
    return [] if points is None or len(points) > _MOST_POINTS else points


def comparable(type: pa.DataType, values: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Values in the plain layout of a type; None if they have no order, or can't become that type."""
    try:
        chunks = [chunk.cast(plain_type(type)) for chunk in read_column(type, values).chunks]
    except (NotMeasurable, pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    return pa.chunked_array(chunks, plain_type(type))


def _shares(questions: Sequence[Question], evidence: Evidence) -> Array:
    """Per question the share of rows in units that may hold a match."""
    kept = [judge(question.node, evidence).verdicts() != Verdict.NONE for question in questions]
    shares: Array = np.array([evidence.rows[units].sum() for units in kept]) / evidence.rows.sum()
    return shares


def _starts(partitions: Array, block: float) -> Array:
    """Where blocks of sorted rows begin; none reaches from one partition into the next."""
    _, firsts, counts = np.unique(partitions, return_index=True, return_counts=True)
    blocks = np.maximum(np.round(counts / block), 1).astype(np.int64)
    parts = zip(firsts.tolist(), counts.tolist(), blocks.tolist(), strict=True)
    return np.concatenate([first + np.arange(n) * count // n for first, count, n in parts])
