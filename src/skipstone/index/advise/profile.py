"""What a sample tells of one column: where values lie, how many differ, what an index would take."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from skipstone.evidence import Array, ColumnFacts
from skipstone.index.advise.axis import Axis, Mixture, shares
from skipstone.index.advise.sample import Sample, spread
from skipstone.ir.nodes import ColumnRef
from skipstone.lake.statistics import null_counts
from skipstone.parquet.bloom import has_bloom
from skipstone.parquet.evidence import find_leaf, row_group_facts
from skipstone.prune.clustering import clustering

# What an index keeps of a unit: two bounds and marks; of a file also its places in two sorted orders.
_UNIT_BYTES, _FILE_BYTES = 17, 29
_BLOOM_BYTES_PER_VALUE = 1.25
_LEAST_BLOOM = 32
_PAGES_FROM = 4
_BOXES = 1_024
_STEPS = 64
_UNIQUE = 0.999


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """One column in the row groups of a sample."""

    ref: ColumnRef
    partition: bool
    facts: ColumnFacts
    axis: Axis | None
    values: Array
    """Rows of each row group that are not NULL, as far as is known."""
    distinct: Array
    """Estimated values that differ in each row group."""
    nearby: Array
    """Estimated values that differ in the whole lake between the bounds of each row group."""
    total: float
    """Estimated values that differ in the whole lake."""
    page_rows: float | None
    """Rows of a page, None without a page index."""
    index_bytes: int
    bloom_bytes: int
    has_bloom: bool

    @property
    def name(self) -> str:
        """The column's dotted name."""
        return self.ref.name

    @property
    def present(self) -> Array:
        """The chance that a value of the lake between a row group's bounds occurs in it."""
        return np.minimum(self.distinct / np.maximum(self.nearby, 1.0), 1.0)


def profile(sample: Sample, ref: ColumnRef) -> Profile:
    """Everything the sample says about a column."""
    survey = sample.survey
    facts = survey.facts(ref)
    axis = Axis.of(facts) if len(facts) else None
    partition = survey.gives(ref.path)
    values = np.maximum(survey.rows - _nulls(sample, ref, facts), 0).astype(np.float64)
    distinct, nearby, total = _distinct(sample, ref, facts, axis, values)
    pages = sample.pages(spread(np.flatnonzero(survey.rows > 0), _PAGES_FROM).tolist(), [ref])
    page_rows = None
    if pages:
        rows = sum(int(survey.rows[unit]) for unit, _ in pages)
        page_rows = rows / max(sum(len(found.index) for found in pages.values()), 1)
    groups = len(survey) * sample.scale
    blooms = sum(2 ** int(np.ceil(np.log2(max(_BLOOM_BYTES_PER_VALUE * d, _LEAST_BLOOM)))) for d in distinct)
    return Profile(
        ref,
        partition,
        facts,
        axis,
        values,
        distinct,
        nearby,
        total,
        page_rows,
        0 if partition else _index_bytes(sample, facts, groups, page_rows),
        0 if partition else round(blooms * sample.scale),
        not partition and any(_stores_bloom(sample, ref)),
    )


def _nulls(sample: Sample, ref: ColumnRef, facts: ColumnFacts) -> Array:
    """NULLs of each row group; none where nothing is known."""
    survey = sample.survey
    if survey.gives(ref.path):
        return np.where(facts.may_value, 0, survey.rows)
    # A loop over files: each has its own schema and writer, and remembers its own facts.
    counts = [null_counts(file, ref, row_group_facts(file, ref)) for file in sample.footers]
    known: Array = np.maximum(np.concatenate([np.zeros(0, np.int64), *counts]), 0)
    return known


def _stores_bloom(sample: Sample, ref: ColumnRef) -> list[bool]:
    leaves = [(file, find_leaf(file, ref)) for file in sample.footers]
    return [has_bloom(file, bound.leaf.index) for file, bound in leaves if bound is not None]


def _index_bytes(sample: Sample, facts: ColumnFacts, groups: float, page_rows: float | None) -> int:
    texts = 0.0
    if isinstance(facts.lower, pa.Array) and len(facts):
        sizes = [len(key or b"") for bounds in (facts.lower, facts.upper) for key in bounds.to_pylist()]
        texts = sum(sizes) / len(facts)
    pages = sample.rows * sample.scale / page_rows if page_rows else 0.0
    files = len(sample.lake.entries)
    return round(files * (_FILE_BYTES + texts) + (groups + pages) * (_UNIT_BYTES + texts))


# -- distinct values ---------------------------------------------------------------------------


def _distinct(
    sample: Sample, ref: ColumnRef, facts: ColumnFacts, axis: Axis | None, values: Array
) -> tuple[Array, Array, float]:
    """Values that differ in each row group, in the lake between its bounds, and in the whole lake.

    A row group's values are taken for draws from a set of some size: dictionaries say how many differ, and
    that tells the size. Bounds of whole numbers and the rows there are limit it.
    """
    room = axis.width if axis is not None else np.full(len(values), np.inf)
    if sample.survey.gives(ref.path):
        room = np.minimum(room, 1)
    counts = [
        (values[unit], min(count, values[unit])) for unit, count in sample.distinct(ref) if values[unit] > 0
    ]
    size = float(np.median([drawn_from(rows, count) for rows, count in counts])) if counts else np.inf
    pool = np.minimum(size, room)
    with np.errstate(invalid="ignore"):
        seen = np.where(np.isfinite(pool), pool * -np.expm1(-values / np.maximum(pool, 1.0)), values)
    distinct = np.minimum(seen, np.minimum(values, room))
    if axis is None or values.sum() <= 0:
        limit = max(float(values.sum()) * sample.scale, 1.0)
        nearby = np.maximum(np.minimum(pool, limit), distinct)
        return distinct, nearby, max(float(nearby.max(initial=0)), 1.0)
    boxes = spread(np.flatnonzero(values > 0), _BOXES)
    low, high, rows = axis.low[boxes], axis.high[boxes], values[boxes]
    thinned = values.sum() / rows.sum()
    mass = np.maximum(Mixture.of(low, high, rows).mass(axis.low, axis.high) * thinned, values)
    # Of units that the sample lacks, as many overlap a unit as do of those it has.
    grown = (values.sum() * sample.scale - values) / np.maximum(values.sum() - values, 1.0)
    within = values + (mass - values) * grown
    nearby = np.maximum(np.minimum(pool, within), distinct)
    total = _united(low, high, np.minimum(nearby, pool)[boxes], rows * thinned)
    apart = 1 - _overlap(facts, sample.survey.rows)
    return distinct, nearby, max(min(total * sample.scale**apart, values.sum() * sample.scale), 1.0)


def drawn_from(draws: float, differing: float) -> float:
    """The size of the set from which so many draws gave so many differing values, without end if all do."""
    if differing >= _UNIQUE * draws:
        return np.inf
    low, high = differing, differing * draws
    for _ in range(_STEPS):
        middle = (low * high) ** 0.5
        if middle * -np.expm1(-draws / middle) < differing:
            low = middle
        else:
            high = middle
    return high


def _united(low: Array, high: Array, differing: Array, rows: Array) -> float:
    """Values of all units together: in each piece of the line the most that one has, never above the rows."""
    knots = np.unique(np.concatenate((low, high)))
    knots = spread(knots, _BOXES)
    part = np.diff(shares(low, high, knots), axis=1)
    return float(np.minimum((part * differing[:, np.newaxis]).max(axis=0), rows @ part).sum())


def _overlap(facts: ColumnFacts, rows: Array) -> float:
    """0 where no units overlap, 1 where all do."""
    if len(facts) < 2:
        return 1.0
    depth = clustering(facts, rows).depth
    return min(max((depth - 1) / (len(facts) - 1), 0.0), 1.0)
