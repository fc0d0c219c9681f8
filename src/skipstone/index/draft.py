"""A segment before it is written: facts about N files, in columns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from xxhash import xxh3_64_hexdigest

from skipstone.core.arrays import runs
from skipstone.core.evidence import Array, ColumnFacts, hull
from skipstone.index.container import COMMON, ContainerWriter
from skipstone.index.levels import LevelBounds, split_bytes, write_facts, write_level
from skipstone.index.search import search_arrays
from skipstone.index.spec import Path

if TYPE_CHECKING:
    from skipstone.aggregate.states.blocks import Blocks

BLOCK: Final = 1024
"""Number of files whose facts are summarized in one block."""


@dataclass(frozen=True, slots=True, eq=False)
class Pages:
    """The pages of one column: count per row group (0 if unknown), offsets and facts."""

    counts: Array
    first_rows: Array
    offsets: Array
    sizes: Array
    level: LevelBounds | None

    @classmethod
    def concat(cls, parts: list[Pages]) -> Pages:
        """Concatenate row groups."""
        levels = [part.level for part in parts if part.level is not None]
        return cls(
            np.concatenate([part.counts for part in parts]),
            np.concatenate([part.first_rows for part in parts]),
            np.concatenate([part.offsets for part in parts]),
            np.concatenate([part.sizes for part in parts]),
            LevelBounds.concat(levels) if levels else None,
        )

    def take(self, groups: Array) -> Pages:
        """Select the pages of row groups."""
        pages = ranges(np.cumsum(self.counts) - self.counts, self.counts, groups)
        level = None if self.level is None else self.level.take(pages)
        return Pages(
            self.counts[groups], self.first_rows[pages], self.offsets[pages], self.sizes[pages], level
        )


@dataclass(frozen=True, slots=True, eq=False)
class FilterStack:
    """Bloom filters of one size: the row group or page of each, and their bits ``[filter, block, word]``."""

    units: Array
    bits: Array


@dataclass(frozen=True, slots=True, eq=False)
class ColumnDraft:
    """One leaf column; without ``groups`` it has only page offsets."""

    type: pa.DataType | None = None
    groups: LevelBounds | None = None
    pages: Pages | None = None
    blooms: dict[int, FilterStack] = field(default_factory=dict)
    """Bloom filters of row groups, by number of blocks."""
    page_blooms: dict[int, FilterStack] = field(default_factory=dict)
    """Bloom filters of pages, which are numbered as in ``pages``."""
    origins: Array | None = None
    """Origin of the facts, per file."""
    sums: dict[str, Blocks] = field(default_factory=dict)
    """Aggregates by level: a block per row group, or per page."""
    sketches: dict[str, list[bytes]] = field(default_factory=dict)
    """By kind, one per row group; empty for a row group without one."""

    def units(self, level: str, groups: int) -> int:
        """Number of row groups or pages."""
        if level == "group":
            return groups
        return 0 if self.pages is None else len(self.pages.first_rows)


def schema_digest(schema: bytes) -> str:
    """Checksum of a footer without row groups."""
    return xxh3_64_hexdigest(schema)


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """N files and their columns."""

    keys: list[str]
    versions: list[str]
    marks: Array
    sizes: Array
    schemas: list[bytes]
    """Footers without row groups, one per schema."""
    schema_numbers: Array
    """Per file, the number of its schema."""
    counts: Array
    """Row groups per file."""
    group_rows: Array
    group_sizes: Array
    chunk_counts: Array
    chunks: Array
    columns: dict[Path, ColumnDraft]

    def __len__(self) -> int:
        return len(self.keys)

    @classmethod
    def concat(cls, parts: Sequence[Draft]) -> Draft:
        """Concatenate the files of drafts with the same columns."""
        if len(parts) == 1:
            return parts[0]
        schemas: dict[bytes, int] = {}
        numbers = []
        for part in parts:
            own = [schemas.setdefault(schema, len(schemas)) for schema in part.schemas]
            numbers.append(np.array(own, dtype=np.uint32)[part.schema_numbers])
        names = ("marks", "sizes", "counts", "group_rows", "group_sizes", "chunk_counts", "chunks")
        joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
        firsts = np.cumsum([0, *(len(part.group_rows) for part in parts[:-1])])
        paths = dict.fromkeys(path for part in parts for path in part.columns)
        return cls(
            keys=[key for part in parts for key in part.keys],
            versions=[version for part in parts for version in part.versions],
            schemas=list(schemas),
            schema_numbers=np.concatenate(numbers),
            columns={path: _join_columns(path, parts, firsts.tolist()) for path in paths},
            **joined,
        )

    def take(self, files: Array) -> Draft:
        """Select files."""
        groups = ranges(np.cumsum(self.counts) - self.counts, self.counts, files)
        chunks = ranges(np.cumsum(self.chunk_counts) - self.chunk_counts, self.chunk_counts, files)
        numbers = files.tolist()
        return replace(
            self,
            keys=[self.keys[number] for number in numbers],
            versions=[self.versions[number] for number in numbers],
            marks=self.marks[files],
            sizes=self.sizes[files],
            schema_numbers=self.schema_numbers[files],
            counts=self.counts[files],
            group_rows=self.group_rows[groups],
            group_sizes=self.group_sizes[groups],
            chunk_counts=self.chunk_counts[files],
            chunks=self.chunks[chunks],
            columns={path: _take_files(column, files, groups) for path, column in self.columns.items()},
        )

    # -- writing -----------------------------------------------------------------------------

    def write(self, spec: str, *, own_blooms: bool) -> tuple[list[bytes | memoryview], int]:
        """Return the segment's file in pieces, and the length of its directory."""
        writer = ContainerWriter()
        for name, array in self._common().items():
            writer.add(COMMON, name, array)
        starts = np.cumsum(self.counts) - self.counts
        for number, column in enumerate(self.columns.values()):
            _write_column(writer, number, column, starts, alone=bool((self.counts == 1).all()))
        fields = [
            pa.field(str(number), c.type or pa.null()) for number, c in enumerate(self.columns.values())
        ]
        head = {
            "spec": spec,
            "own_blooms": own_blooms,
            "files": len(self),
            "groups": len(self.group_rows),
            "rows": int(self.group_rows.sum()),
            "block": BLOCK,
            "schemas": list(map(schema_digest, self.schemas)),
            "paths": [list(path) for path in self.columns],
            "types": pa.schema(fields).serialize().to_pybytes().hex(),
        }
        return writer.parts({"segment": json.dumps(head)})

    def _common(self) -> dict[str, Array]:
        arrays: dict[str, Array] = {
            "marks": self.marks,
            "sizes": self.sizes,
            "kin": self.schema_numbers.astype(np.uint32),
            "rows": np.bincount(
                np.repeat(np.arange(len(self)), self.counts), weights=self.group_rows, minlength=len(self)
            ).astype(np.int64),
            "group_rows": self.group_rows,
            "group_sizes": self.group_sizes,
            "chunk_counts": self.chunk_counts,
            "chunks": self.chunks.view(np.uint8),
        }
        if (self.counts != 1).any():
            arrays["firsts"] = np.concatenate(([0], np.cumsum(self.counts)))
        for name, strings in (("keys", self.keys), ("versions", self.versions)):
            encoded = [string.encode(errors="surrogateescape") for string in strings]
            arrays[f"{name}/offsets"], arrays[f"{name}/data"] = split_bytes(
                pa.array(encoded, pa.large_binary())
            )
        arrays["kins/offsets"], arrays["kins/data"] = split_bytes(pa.array(self.schemas, pa.large_binary()))
        return arrays


def ranges(firsts: Array, counts: Array, chosen: Array) -> Array:
    """Return the positions ``firsts`` to ``firsts + counts`` of the chosen units, run by run."""
    return runs(firsts[chosen], counts[chosen])


def _write_column(
    writer: ContainerWriter, number: int, column: ColumnDraft, starts: Array, *, alone: bool
) -> None:
    if column.groups is not None:
        files = column.groups.hull(starts)
        blocks = hull(files.facts, np.arange(0, len(starts), BLOCK))
        write_facts(writer, number, "block", blocks)
        write_level(writer, number, "file", files)
        for name, array in search_arrays(files.facts).items():
            writer.add(number, f"file/{name}", array)
        # If every file has one row group, both levels are the same.
        if not alone:
            write_level(writer, number, "group", column.groups)
        assert column.origins is not None
        writer.add(number, "origin", column.origins)
    if column.pages is not None:
        pages = column.pages
        firsts = np.zeros(len(pages.counts) + 1, dtype=np.int64)
        np.cumsum(pages.counts, out=firsts[1:])
        writer.add(number, "page/firsts", firsts)
        for name in ("first_rows", "offsets", "sizes"):
            writer.add(number, f"page/{name}", getattr(pages, name))
        if pages.level is not None:
            write_level(writer, number, "page", pages.level)
    for name, stacks in (("group_bloom", column.blooms), ("page_bloom", column.page_blooms)):
        for size, stack in sorted(stacks.items()):
            writer.add(number, f"{name}/{size}/units", stack.units.astype(np.uint32))
            # Grouped by block over all filters, so that looking up a value reads one run of bytes.
            writer.add(number, f"{name}/{size}/bits", stack.bits.transpose(1, 0, 2))
    for level, sums in column.sums.items():
        for name, array in sums.to_arrays().items():
            writer.add(number, f"sum/{level}/{name}", array)
    for name, blobs in column.sketches.items():
        offsets, data = split_bytes(pa.array(blobs, pa.large_binary()))
        writer.add(number, f"sketch/{name}/offsets", offsets)
        writer.add(number, f"sketch/{name}/data", data)


def _join_columns(path: Path, parts: Sequence[Draft], firsts: list[int]) -> ColumnDraft:
    columns = [part.columns.get(path) or _missing_column(part) for part in parts]
    type = next((column.type for column in columns if column.groups is not None), None)
    groups = origins = None
    if type is not None:
        levels = [
            column.groups or LevelBounds.of(ColumnFacts.unknown(type, len(part.group_rows)))
            for column, part in zip(columns, parts, strict=True)
        ]
        groups = LevelBounds.concat(levels)
        origins = np.concatenate(
            [
                np.zeros(len(part), dtype=np.uint8) if column.origins is None else column.origins
                for column, part in zip(columns, parts, strict=True)
            ]
        )
    pages = None
    if any(column.pages is not None for column in columns):
        deep = any(c.pages is not None and c.pages.level is not None for c in columns)
        pages = Pages.concat(
            [
                _with_level(column.pages or _no_pages(len(part.group_rows)), type if deep else None)
                for column, part in zip(columns, parts, strict=True)
            ]
        )
    page_counts = [0 if column.pages is None else len(column.pages.first_rows) for column in columns]
    first_pages = np.cumsum([0, *page_counts[:-1]]).tolist()
    blooms = _join_stacks([column.blooms for column in columns], firsts)
    page_blooms = _join_stacks([column.page_blooms for column in columns], first_pages)
    sums, sketches = _join_sums(type, columns, parts), _join_sketches(columns, parts)
    return ColumnDraft(type, groups, pages, blooms, page_blooms, origins, sums, sketches)


def _join_sums(
    type: pa.DataType | None, columns: Sequence[ColumnDraft], parts: Sequence[Draft]
) -> dict[str, Blocks]:
    """Concatenate the aggregates of all parts; unknown for parts without any."""
    from skipstone.aggregate.states.blocks import Blocks

    return {
        level: Blocks.concat(
            [
                column.sums.get(level) or Blocks.unknown(type, column.units(level, len(part.group_rows)))
                for column, part in zip(columns, parts, strict=True)
            ]
        )
        for level in dict.fromkeys(level for column in columns for level in column.sums)
    }


def _join_sketches(columns: Sequence[ColumnDraft], parts: Sequence[Draft]) -> dict[str, list[bytes]]:
    return {
        kind: [
            blob
            for column, part in zip(columns, parts, strict=True)
            for blob in column.sketches.get(kind, [b""] * len(part.group_rows))
        ]
        for kind in dict.fromkeys(kind for column in columns for kind in column.sketches)
    }


def _join_stacks(parts: Sequence[dict[int, FilterStack]], firsts: Sequence[int]) -> dict[int, FilterStack]:
    stacks: dict[int, list[FilterStack]] = {}
    for part, first in zip(parts, firsts, strict=True):
        for size, stack in part.items():
            stacks.setdefault(size, []).append(FilterStack(stack.units + first, stack.bits))
    return {
        size: FilterStack(np.concatenate([s.units for s in alike]), np.concatenate([s.bits for s in alike]))
        for size, alike in stacks.items()
    }


def _take_stacks(stacks: dict[int, FilterStack], units: Array) -> dict[int, FilterStack]:
    """Select the filters of units, and renumber them."""
    order = np.argsort(units, kind="stable")
    selected: dict[int, FilterStack] = {}
    for size, stack in stacks.items():
        at = np.searchsorted(units[order], stack.units)
        chosen = at < len(units)
        chosen[chosen] = units[order][at[chosen]] == stack.units[chosen]
        if chosen.any():
            numbers = order[at[chosen]]
            by_number = np.argsort(numbers, kind="stable")
            selected[size] = FilterStack(numbers[by_number], stack.bits[chosen][by_number])
    return selected


def _missing_column(part: Draft) -> ColumnDraft:
    """Return a column that the files of a part lack."""
    return ColumnDraft(pages=_no_pages(len(part.group_rows)))


def _no_pages(groups: int) -> Pages:
    none = np.zeros(0, dtype=np.int64)
    return Pages(np.zeros(groups, dtype=np.int64), none, none, none.astype(np.int32), None)


def _with_level(pages: Pages, type: pa.DataType | None) -> Pages:
    if type is None or pages.level is not None:
        return pages if type is not None else replace(pages, level=None)
    return replace(pages, level=LevelBounds.of(ColumnFacts.unknown(type, len(pages.first_rows))))


def _take_files(column: ColumnDraft, files: Array, groups: Array) -> ColumnDraft:
    pages = None if column.pages is None else column.pages.take(groups)
    by_page = groups
    if column.pages is not None:
        counts = column.pages.counts
        by_page = ranges(np.cumsum(counts) - counts, counts, groups)
    sums = {level: b.take(by_page if level == "page" else groups) for level, b in column.sums.items()}
    sketches = {name: [blobs[g] for g in groups.tolist()] for name, blobs in column.sketches.items()}
    return ColumnDraft(
        column.type,
        None if column.groups is None else column.groups.take(groups),
        pages,
        _take_stacks(column.blooms, groups),
        _take_stacks(column.page_blooms, by_page),
        None if column.origins is None else column.origins[files],
        sums,
        sketches,
    )
