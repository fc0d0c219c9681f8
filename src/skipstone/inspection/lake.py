"""Facts about a directory of Parquet files, from its listing, its footers and its index."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count as count_from
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from skipstone.core.evidence import Array
from skipstone.core.ir.nodes import ColumnRef
from skipstone.core.plain import type_name
from skipstone.inspection.file import Bounds, StatisticsCoverage, clustering_json, overall
from skipstone.lake.snapshot import opened_name
from skipstone.prune.clustering import Clustering, clustering, recorded
from skipstone.report import Reported
from skipstone.report.json import record

if TYPE_CHECKING:
    from skipstone.index.results import IndexStatus
    from skipstone.prune.survey import Survey
    from skipstone.scan.lake import Lake


@dataclass(frozen=True, slots=True)
class LakeSchema(Reported):
    """The columns of a lake, from the footers of some files or from the metadata of a table."""

    view: ClassVar[str] = "skipstone.inspection.views:schema_tree"

    lake: Lake

    def to_json(self) -> dict[str, Any]:
        """Return the columns with their Arrow types, and which of them are partition columns."""
        partitions = self.lake.partition_names
        columns = [
            {
                "name": one.name,
                "type": str(one.type),
                "nullable": one.nullable,
                "partition": one.name in partitions,
            }
            for one in self.lake.schema
        ]
        return {"lake": opened_name(self.lake.pinned), "version": self.lake.version, "columns": columns}


@dataclass(frozen=True, slots=True)
class LakeColumn:
    """One column of a lake; a field of a struct has a dotted name."""

    name: str
    type_name: str
    required: bool
    bounds: Bounds
    null_count: int | None
    clustering: Clustering
    unit: str
    """What is clustered: row groups, or the files of a table."""
    may_nan: bool = False
    """Whether there may be NaN, which is above all numbers but not in the bounds."""
    bytes: int = 0
    coverage: StatisticsCoverage | None = None
    """None for a partition column, whose values are in the paths."""

    def to_json(self) -> dict[str, Any]:
        """Return the fields, with those of the bounds."""
        fields = record(self)
        bounds, unit = fields.pop("bounds"), fields.pop("unit")
        measured = {unit.replace(" ", "_"): clustering_json(self.clustering)}
        return {**fields, **bounds, "clustering": measured}


@dataclass(frozen=True, slots=True)
class PartitionUse:
    """A partition and its files."""

    values: dict[str, str | None]
    files: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class SizeClass:
    """Files of at least ``low`` and less than ``high`` bytes."""

    low: int
    high: int
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class FileSizes:
    """Sizes of files; ``classes`` are powers of two, including empty ones between others."""

    smallest: int
    median: int
    largest: int
    classes: tuple[SizeClass, ...]


@dataclass(frozen=True, slots=True)
class LakeInspection(Reported):
    """Facts about the files of a directory."""

    view: ClassVar[str] = "skipstone.inspection.views:lake_tree"

    lake: str
    version: str
    files: int
    rows: int
    bytes: int
    row_groups: int
    columns: tuple[LakeColumn, ...]
    partitions: tuple[PartitionUse, ...]
    sizes: FileSizes | None
    index: IndexStatus
    requests: int
    bytes_read: int

    def to_json(self) -> dict[str, Any]:
        """Return the same as dicts, lists, strings and numbers."""
        fields = record(self)
        read = {"requests": fields.pop("requests"), "bytes": fields.pop("bytes_read")}
        return {**fields, "read": read}


def inspect_lake(lake: Lake, columns: Sequence[str] = ()) -> LakeInspection:
    """Read the footers of a directory and sum them up by column."""
    fields: dict[str, tuple[tuple[str, ...], pa.DataType]] = {}
    for name, (path, type) in leaves(lake.query_schema):
        # A column whose own name has a dot comes before a field of a struct, as in conditions.
        if name not in fields or len(path) == 1:
            fields[name] = path, type
    statistics = lake.statistics(list(columns) or list(fields))
    survey = lake.survey(np.arange(len(lake.entries)))
    refs = [ColumnRef(*fields.get(one.name, ((one.name,), one.type))) for one in statistics.columns]
    coverages = _coverages(survey, [ref for ref in refs if not survey.gives(ref.path)])
    inspected = []
    for ref, one in zip(refs, statistics.columns, strict=True):
        facts = survey.facts(ref)
        inspected.append(
            LakeColumn(
                one.name,
                type_name(one.query_type or one.type),
                not facts.may_null.any(),
                overall(facts),
                one.null_count,
                clustering(facts, survey.rows),
                "row groups",
                bool(facts.may_nan.any()),
                one.compressed_bytes,
                coverages.get(ref.path),
            )
        )
    sizes = np.array([entry.size for entry in lake.entries], dtype=np.int64)
    io = lake.io
    return LakeInspection(
        opened_name(lake.pinned),
        lake.version,
        len(sizes),
        statistics.rows,
        statistics.bytes,
        len(survey),
        tuple(inspected),
        _partitions(lake, statistics.files["rows"].to_pylist()),
        measure_sizes(sizes) if len(sizes) else None,
        lake.index.status(),
        io.requests,
        io.bytes,
    )


def leaves(schema: pa.Schema) -> Iterator[tuple[str, tuple[tuple[str, ...], pa.DataType]]]:
    """The columns by name, with the fields of structs instead of the structs, each as its path and type."""

    def walk(field: pa.Field, above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], pa.DataType]]:
        path = (*above, field.name)
        if not pa.types.is_struct(field.type):
            yield path, field.type
            return
        for inner in field.type:
            yield from walk(inner, path)

    for field in schema:
        yield from ((".".join(path), (path, type)) for path, type in walk(field, ()))


def _coverages(survey: Survey, refs: Sequence[ColumnRef]) -> dict[tuple[str, ...], StatisticsCoverage]:
    """Row groups with each kind of evidence, by column."""
    counts = {ref.path: [0, 0, 0] for ref in refs}
    for file in survey.files():
        for leaf in file.leaves:
            if leaf.path not in counts:
                continue
            chunks, places, mine = file.chunks(leaf.index), file.columns(leaf.index), counts[leaf.path]
            mine[0] += sum(bool(one.column_index_length and one.offset_index_length) for one in places)
            mine[1] += sum(one.bloom_filter_offset is not None for one in chunks)
            mine[2] += sum(bool(one.dictionary_page_offset) for one in chunks)
    coverages = {}
    for ref in refs:
        facts = survey.facts(ref)
        usable = int((recorded(facts) | ~facts.may_value).sum())
        coverages[ref.path] = StatisticsCoverage(usable, usable, *counts[ref.path])
    return coverages


def _partitions(lake: Lake, rows: Sequence[int]) -> tuple[PartitionUse, ...]:
    """The partitions in the order of their first files."""
    names = lake.partition_names
    uses: dict[tuple[str | None, ...], PartitionUse] = {}
    for file, number in zip(lake.files if names else (), rows, strict=False):
        values = {
            name: None if value is None else str(value)
            for name, value in file.partition.items()
            if name in names
        }
        old = uses.get(key := tuple(values.values()), PartitionUse(values, 0, 0, 0))
        uses[key] = PartitionUse(values, old.files + 1, old.rows + number, old.bytes + file.size)
    return tuple(uses.values())


def measure_sizes(sizes: Array) -> FileSizes:
    """Return sizes by powers of two, and the smallest, median and largest; there must be at least one."""
    # The exponent of the power of two that is not above a size; that of 0 is -1.
    exponents = np.frexp(sizes.astype(np.float64))[1] - 1
    first = int(exponents.min())
    files = np.bincount(exponents - first)
    weights = np.bincount(exponents - first, sizes.astype(np.float64))
    classes = tuple(
        SizeClass(0 if place < 0 else 1 << place, 1 << (place + 1), number, int(weight))
        for place, number, weight in zip(count_from(first), files.tolist(), weights.tolist(), strict=False)
    )
    return FileSizes(int(sizes.min()), int(np.median(sizes)), int(sizes.max()), classes)
