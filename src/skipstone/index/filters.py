"""The bloom filters of a segment: rule out row groups and pages for some values."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from skipstone.core.arrays import runs
from skipstone.core.evidence import Array
from skipstone.index.container import BadIndex, Container, Key
from skipstone.index.draft import FilterStack
from skipstone.parquet.bloom import block_masks, block_numbers

# For more row groups both kinds of filters are probed, so that a false positive has to pass two.
_FEW_GROUPS = 4
# Blocks that are read together from an array that is far away.
_SHEET_BLOCKS = 2_048


@dataclass(frozen=True, slots=True, eq=False)
class FilterResult:
    """The row groups and pages that bloom filters rule out."""

    groups: Array
    """Per row group, whether it is ruled out."""
    pages: Array
    """Numbers of the pages ruled out in the other row groups."""


class _Size(NamedTuple):
    """All filters of one kind and size of a column."""

    blocks: int
    filters: int
    bits: Key
    """Array of their bits."""
    small: bool
    """Whether the array is small enough to read in full."""


@dataclass(eq=False)
class Filters:
    """All filters of an open segment, by column number."""

    container: Container
    _tables: dict[tuple[int, str], tuple[list[_Size], Array, Array]] = field(default_factory=dict)

    @cached_property
    def _sizes(self) -> dict[tuple[int, str], list[int]]:
        """Sizes of filters in blocks, by column and kind."""
        sizes: dict[tuple[int, str], list[int]] = {}
        for column, name in self.container.arrays():
            # Names such as page_bloom/64/units, among hundreds of others.
            if "_bloom/" in name and name[-6:] == "/units":
                kind, size, _ = name.split("/")
                sizes.setdefault((column, kind), []).append(int(size))
        return sizes

    def stacks(self, column: int, kind: str) -> dict[int, FilterStack]:
        """Return all filters of one kind, by size."""
        stacks = {}
        for size in self._sizes.get((column, kind), ()):
            units = self.container.whole((column, f"{kind}/{size}/units")).astype(np.int64)
            bits = self.container.whole((column, f"{kind}/{size}/bits")).reshape(size, len(units), 8)
            stacks[size] = FilterStack(units, bits.transpose(1, 0, 2))
        return stacks

    def rule_out(
        self, column: int, hashes: Array, groups: Array, pages: Array | None = None
    ) -> FilterResult | None:
        """Rule out row groups and their pages for some values; None if the column has no filters.

        ``groups`` are in ascending order and may repeat. With ``pages``, only those pages are looked up.
        """
        paged, owned = (column, "page_bloom") in self._sizes, (column, "group_bloom") in self._sizes
        gone = np.zeros(len(groups), dtype=bool)
        if pages is not None:
            # The number of an unrecorded page is -1.
            pages = pages[pages >= 0]
        if owned and (not paged or len(groups) > _FEW_GROUPS):
            gone = self._groups_ruled_out(column, hashes, groups)
            if pages is not None and paged:
                pages = self._pages_of(column, pages, groups[~gone])
        if not paged:
            return FilterResult(gone, groups[:0]) if owned else None
        if pages is not None:
            return FilterResult(gone, pages[self._ruled_out(column, "page_bloom", hashes, pages)])
        # Only pages of the remaining row groups.
        left = np.flatnonzero(~gone)
        firsts = self.container.whole((column, "page/firsts"))
        first, last = firsts[groups[left]], firsts[groups[left] + 1]
        self._check_pages(column, first[last > first], last[last > first])
        every = runs(first, last - first)
        absent = self._ruled_out(column, "page_bloom", hashes, every)
        # A page without a filter may have a value, and so may its row group.
        before = np.concatenate(([0], np.cumsum(absent)))
        ends = np.cumsum(last - first)
        none = (before[ends] - before[ends - (last - first)] == last - first) & (last > first)
        gone[left] = none
        return FilterResult(gone, every[absent & ~np.repeat(none, last - first)])

    def absent_pairs(
        self, filters: tuple[int, str], units: Array, owners: Array, hashes: Array
    ) -> Array | None:
        """Which units have none of their hashes; None if the column has no filters of this kind.

        ``owners`` are positions in ``units``, one for each hash. Units without a hash are not ruled out.
        """
        if filters not in self._sizes:
            return None
        sizes, numbers, positions = self._table(*filters)
        gone = np.zeros(len(units), dtype=bool)
        gone[owners] = True
        wanted = units[owners]
        # Units past the last filter have none.
        kinds = np.append(numbers, -1)[np.minimum(wanted, len(numbers))]
        gone[owners[kinds < 0]] = False
        for number, (size, width, bits, _) in enumerate(sizes):
            mine = (kinds == number).nonzero()[0]
            blocks = block_numbers(hashes[mine], size) * width + positions[wanted[mine]]
            masks = block_masks(hashes[mine])
            present = ((self._blocks(bits, blocks) & masks) == masks).all(axis=1)
            gone[owners[mine[present]]] = False
        return gone

    def _blocks(self, bits: Key, numbers: Array) -> Array:
        """Blocks of filters, by their number in the array of bits; only their surroundings are read."""
        if self.container.bytes.near:
            return self.container.take(bits, numbers[:, np.newaxis] * 8 + np.arange(8))
        sheets, count = np.unique(numbers // _SHEET_BLOCKS), self.container.count(bits)
        step = 8 * _SHEET_BLOCKS
        parts = [(bits, at * step, min((at + 1) * step, count)) for at in sheets.tolist()]
        words = np.concatenate([np.zeros(0, dtype=np.uint32), *self.container.slices(parts)]).reshape(-1, 8)
        rows: Array = sheets.searchsorted(numbers // _SHEET_BLOCKS) * _SHEET_BLOCKS + numbers % _SHEET_BLOCKS
        return words[rows]

    def _check_pages(self, column: int, first: Array, last: Array) -> None:
        """Check that the first page of each row group, and the page after its last, begin at row 0."""
        key = (column, "page/first_rows")
        starts = np.concatenate((first, last[last < self.container.count(key)]))
        spans = [(key, at, at + 1) for at in np.unique(starts).tolist()]
        if any(row[0] for row in self.container.slices(spans)):
            raise BadIndex(f"pages of column {column} are missing", self.container.name)

    def _groups_ruled_out(self, column: int, hashes: Array, groups: Array) -> Array:
        """Return which row groups, in ascending order and possibly repeated, are ruled out."""
        if groups.size == 1:
            return self._ruled_out(column, "group_bloom", hashes, groups)
        first = np.ones(len(groups), dtype=bool)
        np.not_equal(groups[1:], groups[:-1], out=first[1:])
        gone: Array = self._ruled_out(column, "group_bloom", hashes, groups[first])[first.cumsum() - 1]
        return gone

    def _pages_of(self, column: int, pages: Array, groups: Array) -> Array:
        """Return the pages that belong to row groups, which are in ascending order."""
        if not len(groups):
            return pages[:0]
        owners = self.container.whole((column, "page/firsts")).searchsorted(pages, "right") - 1
        left: Array = pages[groups.take(groups.searchsorted(owners), mode="clip") == owners]
        return left

    def _table(self, column: int, kind: str) -> tuple[list[_Size], Array, Array]:
        """Return the sizes of filters and, per unit, the number of its filter's size and its position in it.

        The number is -1 for a unit without a filter.
        """
        table = self._tables.get((column, kind))
        if table is None:
            sizes = self._sizes[column, kind]
            units = self.container.wholes([(column, f"{kind}/{size}/units") for size in sizes])
            total = max([int(mine[-1]) + 1 for mine in units if len(mine)], default=0)
            numbers, positions = np.full(total, -1, dtype=np.int32), np.zeros(total, dtype=np.uint32)
            for number, mine in enumerate(units):
                numbers[mine], positions[mine] = number, np.arange(len(mine))
            every = []
            for size, mine in zip(sizes, units, strict=True):
                bits = (column, f"{kind}/{size}/bits")
                every.append(_Size(size, len(mine), bits, self.container.are_small((bits,))))
            table = self._tables[column, kind] = every, numbers, positions
        return table

    def _ruled_out(self, column: int, kind: str, hashes: Array, wanted: Array) -> Array:
        """Return which of some units, in ascending order, their filters rule out."""
        gone = np.zeros(len(wanted), dtype=bool)
        if not wanted.size:
            return gone
        masks = block_masks(hashes)
        sizes, numbers, positions = self._table(column, kind)
        if wanted[-1] >= len(numbers):
            # Units past the last filter have none.
            wanted = wanted[: wanted.searchsorted(len(numbers))]
        kinds = numbers[wanted]
        # A loop over sizes: filters of one size are stored together.
        sizes_used = kinds.tolist() if kinds.size == 1 else np.bincount(kinds + 1)[1:].nonzero()[0].tolist()
        for number in sizes_used:
            if number < 0:
                continue
            size, width, bits, small = sizes[number]
            mine = (kinds == number).nonzero()[0]
            some = positions[wanted[mine]].astype(np.int64)
            # In ascending order, as the units are.
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
