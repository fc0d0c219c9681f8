"""Find the files that may match a condition by binary search among sorted bounds, without judging all files.

Units are sorted by lower bound, with the running maximum of upper bounds. A span of keys can't overlap units
whose lower bound is above it, nor units before the first running maximum that reaches it: the rest is one run
of the order. The run may contain too many units, never too few.

Byte strings are searched by their first eight bytes as a number, which preserves their order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from skipstone.core.domain.points import BytePoints
from skipstone.core.domain.spans import ByteSpans, NumberSpans
from skipstone.core.evidence import Array, ColumnFacts
from skipstone.core.ir.nodes import AndNode, Leaf, Node, OrNode
from skipstone.index.container import BadIndex, Container
from skipstone.index.levels import LevelReader, split_bytes

_MOST: Final = np.iinfo(np.uint64).max
_HEAD: Final = 8


def search_arrays(facts: ColumnFacts) -> dict[str, Array]:
    """Return the ``order`` of units, their sorted lower bounds, and the running maximum of upper bounds."""
    lower, upper = facts.lower, facts.upper
    if isinstance(lower, pa.Array):
        lower, upper = heads(lower, 0), heads(upper, int(_MOST))
    order = np.argsort(lower, kind="stable")
    # A unit without values overlaps nothing, and must not raise the running maximum.
    reach = np.where(facts.may_value, upper, upper.min() if len(upper) else 0)[order]
    return {
        "order": order.astype(np.uint32),
        "start": lower[order],
        "reach": np.maximum.accumulate(reach).astype(lower.dtype),
    }


def heads(values: pa.Array, missing: int) -> Array:
    """Return the first eight bytes of each string as a number; shorter strings are padded with zeros."""
    offsets, data = split_bytes(values)
    lengths = np.diff(offsets)
    out = np.zeros(len(values), dtype=np.uint64)
    padded = np.concatenate([data, np.zeros(_HEAD, dtype=np.uint8)])
    for place in range(_HEAD):
        byte = np.where(lengths > place, padded[offsets[:-1] + np.minimum(place, lengths)], 0)
        out = (out << np.uint64(8)) | byte.astype(np.uint64)
    if values.null_count:
        out[np.asarray(values.is_null())] = missing
    return out


def head(value: bytes) -> int:
    """Return the first eight bytes of a string as a number."""
    return int.from_bytes(value[:_HEAD].ljust(_HEAD, b"\0"), "big")


@dataclass(frozen=True, slots=True, eq=False)
class UnitRuns:
    """The units that may match a leaf, as runs of a sort order."""

    bounds: LevelReader
    """Bounds of the units."""
    starts: Array
    stops: Array

    @property
    def size(self) -> int:
        """Number of units."""
        return int((self.stops - self.starts).sum())

    def units(self) -> Array:
        """Return the units in ascending order."""
        container, order = self.bounds.container, self.bounds.key("order")
        if len(self.starts) == 1:
            places: Array = np.arange(int(self.starts[0]), int(self.stops[0]))
            (found,) = container.slices([(order, int(self.starts[0]), int(self.stops[0]))])
        else:
            lengths = self.stops - self.starts
            ends = np.cumsum(lengths)
            places = np.arange(self.size) + np.repeat(self.starts - ends + lengths, lengths)
            found = container.take(order, places)
        units: Array = np.sort(found).astype(np.int64)
        lower = self.bounds.take(found).lower
        if isinstance(lower, pa.Array):
            lower = heads(lower, 0)
        if (units[1:] == units[:-1]).any() or (
            lower != container.whole(self.bounds.key("start"))[places]
        ).any():
            problem = f"array file/order of column {self.bounds.column} does not match its bounds"
            raise BadIndex(problem, container.name)
        return units


def search_leaf(leaf: Leaf, container: Container, column: int, type: pa.DataType) -> UnitRuns | None:
    """Return the units that may match a leaf; None if a search does not apply."""
    domain = leaf.true
    if leaf.ref.via or leaf.ref.type != type or domain.nulls or domain.nans or domain.spans.is_all:
        return None
    if isinstance(domain.spans, BytePoints):
        return None  # so many keys are in many units
    bounds = LevelReader(container, column, "file", type)
    start, reach = bounds.key("start"), bounds.key("reach")
    if bounds.key("order") not in container:
        return None
    spans = domain.spans
    lows, highs = (spans.lows, spans.highs) if isinstance(spans, NumberSpans) else _byte_spans(spans)
    container.load([start, reach])
    stops = np.searchsorted(container.whole(start), highs, side="right")
    starts = np.searchsorted(container.whole(reach), lows, side="left")
    return UnitRuns(bounds, *_merged(starts, stops))


def _byte_spans(spans: ByteSpans) -> tuple[Array, Array]:
    pairs = list(spans.pairs())
    lows = np.array([head(low) for low, _ in pairs], dtype=np.uint64)
    highs = np.array([_MOST if high is None else head(high) for _, high in pairs], dtype=np.uint64)
    return lows, highs


def _merged(starts: Array, stops: Array) -> tuple[Array, Array]:
    """Merge runs that touch or overlap, and drop empty ones; runs are in ascending order."""
    some = starts < stops
    starts, stops = starts[some], stops[some]
    if len(starts) < 2:
        return starts, stops
    stops = np.maximum.accumulate(stops)
    apart = np.flatnonzero(starts[1:] > stops[:-1]) + 1
    return starts[np.concatenate(([0], apart))], stops[np.concatenate((apart - 1, [len(stops) - 1]))]


LeafSearch = Callable[[Leaf], UnitRuns | None]


def search(node: Node, leaf: LeafSearch, most: int) -> Array | None:
    """Return the units that may match ``node``, if a search finds at most ``most`` of them; else None."""
    match node:
        case Leaf():
            found = leaf(node)
            return found.units() if found is not None and found.size <= most else None
        case AndNode(args):
            # Use the most selective conjunct; the others are judged on the remaining units.
            runs = [run for arg in args if isinstance(arg, Leaf) and (run := leaf(arg)) is not None]
            best = min(runs, key=lambda run: run.size, default=None)
            if best is not None and best.size <= most:
                return best.units()
            for arg in args:
                if not isinstance(arg, Leaf) and (units := search(arg, leaf, most)) is not None:
                    return units
            return None
        case OrNode(args):
            parts: list[Array] = []
            for arg in args:
                units = search(arg, leaf, most)
                if units is None:
                    return None
                parts.append(units)
            union: Array = np.unique(np.concatenate(parts))
            return union if len(union) <= most else None
    return None
