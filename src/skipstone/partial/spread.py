"""How values are spread: quantiles, about or exactly, and histograms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from skipstone.core.domain.keys import Kind, key_space, storage_type
from skipstone.core.evidence import Array, Bounds
from skipstone.parquet.measure import NumberKeys, byte_keys, read_column
from skipstone.partial.blocks import Facet
from skipstone.partial.edges import bins, check_edges, edge_array
from skipstone.partial.groups import joined, moved, present, runs
from skipstone.partial.numbers import check_number, compact_keys, scale_of
from skipstone.partial.sketches import KLL, checked, kll_sketches, merge_kll
from skipstone.partial.states import Measure, Path, Rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skipstone.partial.blocks import Blocks

# -- quantiles from sketches -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Spread(Measure[list[bytes]]):
    """About how the numbers of a column are spread: a sketch per group."""

    path: Path
    type: pa.DataType

    def __post_init__(self) -> None:
        check_number(self.type, "quantiles", self.path)

    @property
    def columns(self) -> tuple[Path, ...]:
        """The one column."""
        return (self.path,)

    def update(self, rows: Rows) -> list[bytes]:
        """A sketch of each group."""
        return kll_sketches(self.type, rows.column(self.path), rows.starts)

    def join(self, states: Sequence[list[bytes]]) -> list[bytes]:
        """One after the other."""
        return joined(states)

    def fold(self, state: list[bytes], order: Array, starts: Array) -> list[bytes]:
        """Merged sketches."""
        return [run[0] if len(run) == 1 else merge_kll(run).sketch for run in runs(state, order, starts)]

    @property
    def sketch(self) -> str:
        """KLL."""
        return KLL

    def sketched(self, blobs: Sequence[bytes]) -> list[bytes]:
        """The sketches themselves; raises :class:`BadSketch` for a damaged one."""
        return checked(KLL, blobs)


def approx_quantiles(state: Sequence[bytes], ranks: Sequence[float], *, single: bool = False) -> pa.Array:
    """The values at some ranks of each group, as a list; of a single rank the value."""
    return _quantiles([merge_kll([sketch]).values(ranks) for sketch in state], single)


def quantile_bounds(
    state: Sequence[bytes], ranks: Sequence[float], *, single: bool = False
) -> tuple[list[Any], list[Any]]:
    """The values that are below and above by the stated error of rank, in the form of the quantiles."""
    lower, upper = [], []
    for sketch in state:
        found = merge_kll([sketch])
        # An exact quantile lies between two neighbours: one more to either side holds it.
        off = found.error + 1 / max(found.count, 1)
        lower.append(found.values([max(rank - off, 0.0) for rank in ranks]))
        upper.append(found.values([min(rank + off, 1.0) for rank in ranks]))
    return _quantiles(lower, single).to_pylist(), _quantiles(upper, single).to_pylist()


def _quantiles(found: Sequence[Sequence[float]], single: bool) -> pa.Array:
    if single:
        return pa.array([values[0] if values else None for values in found], pa.float64())
    return pa.array([values or None for values in found], pa.list_(pa.float64()))


# -- quantiles from values ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """The keys of groups one after the other, without NULLs; they are numbers times 10 to the ``scale``."""

    keys: Array
    starts: Array
    scale: int


@dataclass(frozen=True, slots=True)
class Values(Measure[Kept]):
    """All numbers of a column, for exact quantiles."""

    path: Path
    type: pa.DataType

    def __post_init__(self) -> None:
        check_number(self.type, "quantiles", self.path)

    @property
    def columns(self) -> tuple[Path, ...]:
        """The one column."""
        return (self.path,)

    def update(self, rows: Rows) -> Kept:
        """The keys that are there."""
        column = read_column(self.type, rows.column(self.path))
        return Kept(*present(compact_keys(self.type, column), column.valid, rows.starts), scale_of(self.type))

    def join(self, states: Sequence[Kept]) -> Kept:
        """One after the other."""
        firsts = np.cumsum([0, *(len(state.keys) for state in states)]).tolist()
        starts = [state.starts + first for state, first in zip(states, firsts, strict=False)]
        keys = np.concatenate([state.keys for state in states])
        return Kept(keys, np.concatenate(starts), scale_of(self.type))

    def fold(self, state: Kept, order: Array, starts: Array) -> Kept:
        """The keys of each run together."""
        keys, lengths = state.keys, np.diff(state.starts, append=len(state.keys))[order]
        if not np.array_equal(order, np.arange(len(state.starts))):
            keys = keys[moved(state.starts, len(keys), order)]
        return Kept(keys, (np.cumsum(lengths) - lengths)[starts], state.scale)


def exact_quantiles(state: Kept, ranks: Sequence[float], *, single: bool = False) -> pa.Array:
    """The values at some ranks of each group, as a list; of a single rank the value.

    As Spark's ``percentile``: between the two closest values in proportion, in doubles; NaN is the largest.
    """
    spans = pairwise([*state.starts.tolist(), len(state.keys)])
    # Group by group, since to select is faster than to sort, and NumPy selects in one array at a time.
    return _quantiles([_at_ranks(state.keys[a:b], ranks, 10**state.scale) for a, b in spans], single)


def _at_ranks(keys: Array, ranks: Sequence[float], unit: int) -> list[float]:
    if not len(keys):
        return []
    places = [(len(keys) - 1) * rank for rank in ranks]
    pairs = [(math.floor(place), math.ceil(place)) for place in places]
    ordered = np.partition(keys, sorted({at for pair in pairs for at in pair}))
    found = []
    for place, (below, above) in zip(places, pairs, strict=True):
        # Python divides integers of any size with one rounding.
        low, high = (ordered[at].item() / unit + 0.0 for at in (below, above))
        same = ordered[below] == ordered[above]
        found.append(low if below == above or same else (above - place) * low + (place - below) * high)
    return found


# -- histograms --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Histogram(Measure["NDArray[np.int64]"]):
    """How many values lie in each bin between edges: an array of bins by groups.

    A bin includes its lower edge, the last one its upper edge, too. NULL, NaN and the rest are in none.
    """

    path: Path
    type: pa.DataType
    edges: tuple[Any, ...]

    @classmethod
    def of(cls, path: Path, type: pa.DataType, edges: Sequence[Any]) -> Histogram:
        """The histogram between edges, which are checked."""
        check_edges(type, edges, ".".join(path))
        return cls(path, type, tuple(edges))

    @property
    def facets(self) -> Facet:
        """What of a block may tell its bin."""
        return Facet.COUNT | Facet.ENDS

    @property
    def columns(self) -> tuple[Path, ...]:
        """The one column."""
        return (self.path,)

    def update(self, rows: Rows) -> NDArray[np.int64]:
        """Counts per bin and group."""
        column = read_column(self.type, rows.column(self.path))
        if key_space(self.type).kind is Kind.BYTES:
            keys: Bounds = byte_keys(column.chunks).combine_chunks()
        else:
            keys = NumberKeys.of(column).keys.astype(key_space(self.type).dtype, copy=False)
        places, starts = present(bins(self.type, self.edges).of(keys), column.valid, rows.starts)
        # Below and above all bins are two more, which are counted and left out.
        total, groups = len(self.edges) + 1, len(starts)
        cells = (places + 1) * groups
        if groups > 1:
            cells += np.repeat(np.arange(groups), np.diff(starts, append=len(places)))
        return np.bincount(cells, minlength=total * groups).reshape(total, groups)[1:-1]

    def join(self, states: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
        """One after the other."""
        return np.concatenate(states, axis=1)

    def fold(self, state: NDArray[np.int64], order: Array, starts: Array) -> NDArray[np.int64]:
        """Sums of runs."""
        return np.add.reduceat(state[:, order], starts, axis=1)

    def cached(self, blocks: Blocks) -> tuple[NDArray[np.int64], Array] | None:
        """The counts of blocks that lie in one bin, or outside of all."""
        if storage_type(blocks.type) != storage_type(self.type):
            return None
        found = bins(self.type, self.edges)
        lower, upper = found.of(blocks.lower), found.of(blocks.upper)
        one = blocks.knows(self.facets) & (~blocks.has | (lower == upper))
        inside = np.flatnonzero(one & blocks.has & (lower >= 0) & (lower < found.count))
        state = np.zeros((found.count, len(blocks)), dtype=np.int64)
        state[lower[inside], inside] = (blocks.count - blocks.nans)[inside]
        return state, one | (blocks.knows(Facet.COUNT) & (blocks.count == 0))


def histograms(measure: Histogram, state: NDArray[np.int64]) -> pa.Array:
    """The bins of each group: lists of their lower and upper edges and counts."""
    total, groups = state.shape
    edges = edge_array(measure.type, measure.edges)
    each = np.tile(np.arange(total), groups)
    cells = pa.StructArray.from_arrays(
        [edges.take(pa.array(each)), edges.take(pa.array(each + 1)), pa.array(state.T.ravel())],
        ["low", "high", "count"],
    )
    return pa.ListArray.from_arrays(pa.array(np.arange(groups + 1) * total, pa.int32()), cells)
