"""The bloom filters of a segment: which row groups and pages hold none of some values."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from skipstone.core.evidence import Array
from skipstone.index.container import BadIndex, Container
from skipstone.index.draft import Stack, runs
from skipstone.parquet.bloom import block_masks, block_numbers

# The filters of so few row groups' pages are asked at once: they say at least as much as the row groups' own.
_FEW_GROUPS = 4


@dataclass(frozen=True, slots=True, eq=False)
class _Probed:
    """Filters by unit, and whether each may hold one of the values."""

    units: Array
    present: Array


@dataclass(frozen=True, slots=True, eq=False)
class Absent:
    """What bloom filters rule out of some row groups and their pages."""

    groups: Array
    """Per row group, whether it holds none of the values."""
    pages: dict[int, Array]
    """By place of a row group that may hold one: whether each of its pages holds none, where it is known."""


@dataclass(eq=False)
class Filters:
    """All filters of an open segment; columns by number."""

    container: Container

    @cached_property
    def _sizes(self) -> dict[tuple[int, str], list[int]]:
        """The sizes of filters by column and kind, in blocks."""
        found: dict[tuple[int, str], list[int]] = {}
        for column, name in self.container.arrays():
            kind, _, rest = name.partition("/")
            if kind in ("group_bloom", "page_bloom") and rest.endswith("/units"):
                found.setdefault((column, kind), []).append(int(rest.split("/")[0]))
        return found

    def stacks(self, column: int, kind: str) -> dict[int, Stack]:
        """All filters of one kind, by size."""
        found = {}
        for size in self._sizes.get((column, kind), ()):
            units = self.container.whole((column, f"{kind}/{size}/units")).astype(np.int64)
            bits = self.container.whole((column, f"{kind}/{size}/bits")).reshape(size, len(units), 8)
            found[size] = Stack(units, bits.transpose(1, 0, 2))
        return found

    def absent(self, column: int, hashes: Array, groups: Array) -> Absent | None:
        """In which of some row groups, and of their pages, none of the values is; None without filters."""
        paged = (column, "page_bloom") in self._sizes
        own = None
        if not paged or len(groups) > _FEW_GROUPS:
            own = self._probed(column, "group_bloom", hashes, groups, groups + 1)
        gone = np.zeros(len(groups), dtype=bool)
        if own is not None and len(own.units):
            at = np.minimum(np.searchsorted(own.units, groups), len(own.units) - 1)
            gone = (own.units[at] == groups) & ~own.present[at]
        if not paged:
            return None if own is None else Absent(gone, {})
        # Pages only of row groups that are left: they have a hundred times as many filters.
        left = np.flatnonzero(~gone)
        if not len(left):
            return Absent(gone, {})
        firsts = self.container.whole((column, "page/firsts"))
        first, last = firsts[groups[left]], firsts[groups[left] + 1]
        self._check_pages(column, first[last > first], last[last > first])
        deep = self._probed(column, "page_bloom", hashes, first, last)
        assert deep is not None
        lows, highs = np.searchsorted(deep.units, first), np.searchsorted(deep.units, last)
        before = np.concatenate(([0], np.cumsum(deep.present)))
        # Only where every page has a filter do they speak for the row group.
        known = (highs - lows == last - first) & (last > first)
        gone[left] = known & (before[highs] == before[lows])
        pages = {}
        for at, start, stop, low, high in zip(
            *(a.tolist() for a in (left, first, last, lows, highs)), strict=True
        ):
            if high > low and not gone[at]:
                mask = pages[at] = np.zeros(stop - start, dtype=bool)
                mask[deep.units[low:high] - start] = ~deep.present[low:high]
        return Absent(gone, pages)

    def _check_pages(self, column: int, first: Array, last: Array) -> None:
        """Refuse row groups whose first page, or the one after their last, doesn't begin a row group."""
        key = (column, "page/first_rows")
        starts = np.concatenate((first, last[last < self.container.count(key)]))
        spans = [(key, at, at + 1) for at in np.unique(starts).tolist()]
        if any(row[0] for row in self.container.slices(spans)):
            raise BadIndex(f"pages of column {column} are missing", self.container.name)

    def _probed(self, column: int, kind: str, hashes: Array, starts: Array, stops: Array) -> _Probed | None:
        """Whether the filters of units from each start to its stop may hold one of the values."""
        units, present = [], []
        masks = block_masks(hashes)
        for size in self._sizes.get((column, kind), ()):
            owners = self.container.whole((column, f"{kind}/{size}/units"))
            # In their own type, or all of them would be converted for the search.
            lows, highs = (owners.searchsorted(ends.astype(owners.dtype)) for ends in (starts, stops))
            places = np.sort(runs(lows, highs - lows)) if len(lows) > 1 else np.arange(lows[0], highs[0])
            if not len(places):
                continue
            low, high = int(places[0]), int(places[-1]) + 1
            every = len(places) == high - low
            bits, width = (column, f"{kind}/{size}/bits"), len(owners)
            numbers = block_numbers(hashes, size).tolist()
            rows = self.container.slices(
                [(bits, 8 * (b * width + low), 8 * (b * width + high)) for b in numbers]
            )
            found = np.zeros(len(places), dtype=bool)
            for row, mask in zip(rows, masks, strict=True):
                words = row.reshape(-1, 8) if every else row.reshape(-1, 8)[places - low]
                found |= ((words & mask) == mask).all(axis=1)
            units.append(owners[low:high] if every else owners[places])
            present.append(found)
        if len(units) == 1:
            return _Probed(units[0], present[0])
        if (column, kind) not in self._sizes:
            return None
        every_unit = np.concatenate([np.zeros(0, dtype=np.int64), *units])
        order = np.argsort(every_unit)
        return _Probed(every_unit[order], np.concatenate([np.zeros(0, dtype=bool), *present])[order])
