"""The bloom filters of a segment: which row groups and pages hold none of some values."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from skipstone.core.evidence import Array
from skipstone.index.container import BadIndex, Container, Key
from skipstone.index.draft import Stack, runs
from skipstone.parquet.bloom import block_masks, block_numbers

# Of more row groups both filters are asked, so that a false positive has to pass two.
_FEW_GROUPS = 4


@dataclass(frozen=True, slots=True, eq=False)
class Absent:
    """What bloom filters rule out of some row groups and their pages."""

    groups: Array
    """Per row group, whether it holds none of the values."""
    pages: Array
    """The numbers of pages, of row groups that may hold one, that hold none of the values."""


class _Size(NamedTuple):
    """All filters of one kind and size of a column."""

    blocks: int
    filters: int
    bits: Key
    """The array with their bits."""
    small: bool
    """Whether the array is better read whole than in part."""


@dataclass(eq=False)
class Filters:
    """All filters of an open segment; columns by number."""

    container: Container
    _tables: dict[tuple[int, str], tuple[list[_Size], Array, Array]] = field(default_factory=dict)

    @cached_property
    def _sizes(self) -> dict[tuple[int, str], list[int]]:
        """The sizes of filters by column and kind, in blocks."""
        found: dict[tuple[int, str], list[int]] = {}
        for column, name in self.container.arrays():
            # Names such as page_bloom/64/units; there are hundreds of others.
            if "_bloom/" in name and name[-6:] == "/units":
                kind, size, _ = name.split("/")
                found.setdefault((column, kind), []).append(int(size))
        return found

    def stacks(self, column: int, kind: str) -> dict[int, Stack]:
        """All filters of one kind, by size."""
        found = {}
        for size in self._sizes.get((column, kind), ()):
            units = self.container.whole((column, f"{kind}/{size}/units")).astype(np.int64)
            bits = self.container.whole((column, f"{kind}/{size}/bits")).reshape(size, len(units), 8)
            found[size] = Stack(units, bits.transpose(1, 0, 2))
        return found

    def absent(self, column: int, hashes: Array, groups: Array, pages: Array | None = None) -> Absent | None:
        """In which of some row groups, and of their pages, none of the values is; None without filters.

        ``groups`` rise, and can repeat. Where ``pages`` are given, only those are looked up.
        """
        paged, owned = (column, "page_bloom") in self._sizes, (column, "group_bloom") in self._sizes
        gone = np.zeros(len(groups), dtype=bool)
        if pages is not None:
            # The number of a page that the segment doesn't record is -1.
            pages = pages[pages >= 0]
        if owned and (not paged or len(groups) > _FEW_GROUPS):
            gone = self._groups_ruled_out(column, hashes, groups)
            if pages is not None and paged:
                pages = self._pages_of(column, pages, groups[~gone])
        if not paged:
            return Absent(gone, groups[:0]) if owned else None
        if pages is not None:
            return Absent(gone, pages[self._ruled_out(column, "page_bloom", hashes, pages)])
        # Pages only of row groups that are left.
        left = np.flatnonzero(~gone)
        firsts = self.container.whole((column, "page/firsts"))
        first, last = firsts[groups[left]], firsts[groups[left] + 1]
        self._check_pages(column, first[last > first], last[last > first])
        every = runs(first, last - first)
        absent = self._ruled_out(column, "page_bloom", hashes, every)
        # A page without a filter may hold a value, and so its row group.
        before = np.concatenate(([0], np.cumsum(absent)))
        ends = np.cumsum(last - first)
        none = (before[ends] - before[ends - (last - first)] == last - first) & (last > first)
        gone[left] = none
        return Absent(gone, every[absent & ~np.repeat(none, last - first)])

    def _check_pages(self, column: int, first: Array, last: Array) -> None:
        """Refuse row groups whose first page, or the one after their last, doesn't begin a row group."""
        key = (column, "page/first_rows")
        starts = np.concatenate((first, last[last < self.container.count(key)]))
        spans = [(key, at, at + 1) for at in np.unique(starts).tolist()]
        if any(row[0] for row in self.container.slices(spans)):
            raise BadIndex(f"pages of column {column} are missing", self.container.name)

    def _groups_ruled_out(self, column: int, hashes: Array, groups: Array) -> Array:
        """Which of some row groups (rising, some of them repeated) have none of the values."""
        first = np.ones(len(groups), dtype=bool)
        np.not_equal(groups[1:], groups[:-1], out=first[1:])
        gone: Array = self._ruled_out(column, "group_bloom", hashes, groups[first])[first.cumsum() - 1]
        return gone

    def _pages_of(self, column: int, pages: Array, groups: Array) -> Array:
        """Those of some pages that belong to row groups, which rise."""
        if not len(groups):
            return pages[:0]
        owners = self.container.whole((column, "page/firsts")).searchsorted(pages, "right") - 1
        left: Array = pages[groups.take(groups.searchsorted(owners), mode="clip") == owners]
        return left

    def _table(self, column: int, kind: str) -> tuple[list[_Size], Array, Array]:
        """Sizes of filters; per unit the number of its filter's size, and the position among those.

        The number is -1 for a unit without a filter.
        """
        table = self._tables.get((column, kind))
        if table is None:
            sizes = self._sizes[column, kind]
            units = self.container.wholes([(column, f"{kind}/{size}/units") for size in sizes])
            total = max([int(mine[-1]) + 1 for mine in units if len(mine)], default=0)
            numbers, places = np.full(total, -1, dtype=np.int32), np.zeros(total, dtype=np.uint32)
            for number, mine in enumerate(units):
                numbers[mine], places[mine] = number, np.arange(len(mine))
            every = []
            for size, mine in zip(sizes, units, strict=True):
                bits = (column, f"{kind}/{size}/bits")
                every.append(_Size(size, len(mine), bits, self.container.are_small((bits,))))
            table = self._tables[column, kind] = every, numbers, places
        return table

    def _ruled_out(self, column: int, kind: str, hashes: Array, wanted: Array) -> Array:
        """Which of some units (rising) have a filter, and none of the values by it."""
        gone = np.zeros(len(wanted), dtype=bool)
        if not len(wanted):
            return gone
        masks = block_masks(hashes)
        sizes, numbers, places = self._table(column, kind)
        if wanted[-1] >= len(numbers):
            # Units past the last filter have none.
            wanted = wanted[: wanted.searchsorted(len(numbers))]
        kinds = numbers[wanted]
        # A loop over sizes: filters of one size are stored together.
        for number in np.bincount(kinds + 1)[1:].nonzero()[0].tolist():
            size, width, bits, small = sizes[number]
            mine = (kinds == number).nonzero()[0]
            some = places[wanted[mine]].astype(np.int64)
            # They rise, since units do.
            low, high = some.item(0), some.item(-1) + 1
            blocks = block_numbers(hashes, size).tolist()
            spans = [(8 * (b * width + low), 8 * (b * width + high)) for b in blocks]
            if small:
                every = self.container.whole(bits)
                rows = [every[start:stop] for start, stop in spans]
            else:
                rows = self.container.slices([(bits, start, stop) for start, stop in spans])
            present = np.zeros(len(some), dtype=bool)
            for row, mask in zip(rows, masks, strict=True):
                words = row.reshape(-1, 8)[some - low]
                present |= np.logical_and.reduce((words & mask) == mask, axis=1)
            gone[mine] = ~present
        return gone
