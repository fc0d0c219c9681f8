"""``lake.index.status()``: computed from segment directories, marks and origins, without reading facts."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from skipstone.core.evidence import Array
from skipstone.index.container import COMMON, FORMAT, BadIndex
from skipstone.index.coverage import IndexCoverage
from skipstone.index.manifest import Manifest, SegmentNote, is_manifest, is_segment, manifest_name
from skipstone.index.marks import match
from skipstone.index.record import Origin
from skipstone.index.results import BuildOptions, ColumnStatus, IndexStatus, Origins, SegmentStatus, Sizes
from skipstone.index.segment import Segment
from skipstone.index.spec import LISTS, Path
from skipstone.store.store import ListedFile

if TYPE_CHECKING:
    from skipstone.index.index import LakeIndex
    from skipstone.lake.snapshot import Snapshot

_EXAMPLES: Final = 3
_LEVELS: Final = {
    "block": "blocks",
    "file": "files",
    "origin": "files",
    "group": "row_groups",
    "page": "pages",
    "group_bloom": "blooms",
    "page_bloom": "blooms",
    "sum": "sums",
    "sketch": "sketches",
}
_OFFSETS: Final = frozenset({"page/firsts", "page/first_rows", "page/offsets", "page/sizes"})
_COMMON_OFFSETS: Final = frozenset({"counts", "group_rows", "group_sizes", "chunk_counts", "chunks"})


def index_status(lake: Snapshot, index: LakeIndex) -> IndexStatus:
    """Return the status of an index against the lake's listing."""
    coverage = index.coverage
    totals = _SegmentTotals(lake.entries)
    manifest = Manifest() if coverage is None else coverage.manifest
    if coverage is not None:
        totals.add(coverage)
    return IndexStatus(
        lake=lake.uri,
        location=index.uri,
        version=manifest.number,
        format=FORMAT,
        written=manifest.written,
        taken=time.time(),
        files=len(lake.entries),
        covered=0 if coverage is None else coverage.covered,
        stale=sum(segment.stale for segment in totals.segments),
        stale_such_as=tuple(totals.stale[:_EXAMPLES]),
        unknown_such_as=() if coverage is None else _unknown(coverage),
        segments=tuple(totals.segments),
        sizes=totals.sizes,
        columns=tuple(totals.columns()),
        data_bytes=sum(entry.size for entry in lake.entries),
        old_bytes=_old_bytes(index, manifest) if manifest.number else 0,
        options=_build_options(index.with_lake_names(manifest.spec)),
        problems=() if coverage is None else (*coverage.problems, *totals.problems),
    )


def _unknown(coverage: IndexCoverage) -> tuple[str, ...]:
    numbers = np.flatnonzero(coverage.owner < 0)[:_EXAMPLES]
    return tuple(coverage.entries[number].key for number in numbers.tolist())


def _old_bytes(index: LakeIndex, manifest: Manifest) -> int:
    """Bytes of files that don't belong to the current version."""
    named = {manifest_name(manifest.number), *(note.name for note in manifest.segments)}
    return sum(
        entry.size
        for entry in index.store.list_prefix("")
        if (is_manifest(entry.key) or is_segment(entry.key)) and entry.key not in named
    )


def _build_options(spec: dict[str, Any]) -> BuildOptions:
    if not spec:
        return BuildOptions()
    names = {key: tuple(".".join(path) for path in spec[key]) for key in LISTS}
    columns = tuple(".".join(path) for path, _ in spec["columns"])
    return BuildOptions(columns=columns, pages=spec["pages"], own_blooms=spec["own_blooms"], **names)


@dataclass(slots=True)
class _SegmentTotals:
    """Totals over the segments of an index."""

    entries: Sequence[ListedFile]
    sizes: Sizes = field(default_factory=Sizes)
    segments: list[SegmentStatus] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    _types: dict[Path, pa.DataType] = field(default_factory=dict)
    _sizes: dict[Path, Sizes] = field(default_factory=dict)
    _origins: dict[Path, Origins] = field(default_factory=dict)

    def add(self, coverage: IndexCoverage) -> None:
        """Add all usable segments."""
        listed = {entry.key for entry in self.entries}
        notes = {note.name: note for note in coverage.manifest.segments}
        for number, segment in enumerate(coverage.segments):
            try:
                live = coverage.row[coverage.owner == number]
                self._add(segment, notes[segment.container.name], live, coverage.marks, listed)
            except BadIndex as error:
                # Coverage has reported unusable segments already.
                problem = f"{segment.container.name}: {error.reason}"
                self.problems += [problem] if problem not in coverage.problems else []

    def _add(self, segment: Segment, note: SegmentNote, live: Array, marks: Array, listed: set[str]) -> None:
        gone = np.flatnonzero(match(marks, segment.marks) < 0)
        for path in _paths(segment, gone[: _EXAMPLES - len(self.stale)]):
            self.stale.append(f"{path} ({'changed' if path in listed else 'deleted'})")
        self.segments.append(SegmentStatus(note.name, len(segment), len(gone), note.size, note.written))
        paths = {column.number: path for path, column in segment.columns.items()}
        array_bytes = 0
        for key in segment.container.arrays():
            number, name = key
            nbytes = segment.container.size(key)
            array_bytes += nbytes
            sizes = Sizes(**{_content(number, name): nbytes})
            self.sizes += sizes
            if number != COMMON:
                self._sizes[paths[number]] = self._sizes.get(paths[number], Sizes()) + sizes
        self.sizes += Sizes(metadata=note.size - array_bytes)
        self._types |= {path: column.type for path, column in segment.columns.items() if column.type}
        self._add_origins(segment, live)

    def _add_origins(self, segment: Segment, live: Array) -> None:
        keys = {
            path: (column.number, "origin")
            for path, column in segment.columns.items()
            if (column.number, "origin") in segment.container
        }
        segment.container.load(keys.values())
        for path, key in keys.items():
            counts = np.bincount(segment.container.whole(key)[live], minlength=len(Origin))
            origins = Origins(**{origin.name.lower(): int(counts[origin]) for origin in Origin})
            self._origins[path] = self._origins.get(path, Origins()) + origins

    def columns(self) -> Iterator[ColumnStatus]:
        """Return the columns with facts; of others only page offsets are recorded."""
        for path, type in self._types.items():
            origins = self._origins.get(path, Origins())
            yield ColumnStatus(".".join(path), type, origins, self._sizes.get(path, Sizes()))


def _content(column: int, name: str) -> str:
    """Return the field of :class:`Sizes` that an array of a segment counts towards."""
    if column == COMMON:
        return "offsets" if name in _COMMON_OFFSETS else "names"
    if name in _OFFSETS:
        return "offsets"
    return _LEVELS.get(name.partition("/")[0], "other")


def _paths(segment: Segment, rows: Array) -> Iterator[str]:
    """Return the paths of a few files; only the sheets that contain them are read."""
    for row in rows.tolist():
        ((start, stop),) = segment.container.slices([((COMMON, "keys/offsets"), row, row + 2)])
        (data,) = segment.container.slices([((COMMON, "keys/data"), int(start), int(stop))])
        yield data.tobytes().decode(errors="surrogateescape")
