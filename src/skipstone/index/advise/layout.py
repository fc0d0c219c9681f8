"""How well each column of a lake skips today, and would skip under other orders of rows.

Today's overlap is measured on the bounds of sampled files, row groups and pages. Orders are judged as advice
judges them: the same look-ups, on sampled rows in that order.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from skipstone.core.evidence import Array, ColumnFacts, hull
from skipstone.core.ir.bind import Binder
from skipstone.core.ir.nodes import ColumnRef
from skipstone.core.plain import type_name
from skipstone.errors import UsageError
from skipstone.index.advise.advice import LayoutAdvice, layout_command
from skipstone.index.advise.advisor import leaves, look_ups, mean
from skipstone.index.advise.questions import SampleQuery, Workload, read_workload
from skipstone.index.advise.rows import ClusterKind, Path, RowSample
from skipstone.index.advise.sample import LakeSample, spread
from skipstone.lake.snapshot import Snapshot
from skipstone.prune.clustering import Clustering, clustering, positions
from skipstone.report import Reported

# Columns that are measured, that are sorted by alone, and that are combined in curves.
_COLUMNS, _SORTED, _COMBINED = 32, 8, 4
_DRAWN, _PAGED = 16, 64
_LEAST_GAIN = 1.1


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """How the values of a column are spread over files, row groups and pages.

    Examples:
        >>> import skipstone as sk
        >>> column = sk.open("events").layout(["event_id"]).columns[0]
        >>> column.files.layout.value, column.pages.units, column.pages.depth
        ('sorted', 20, 1.0)
    """

    name: str
    type: pa.DataType
    files: Clustering
    row_groups: Clustering
    pages: Clustering | None
    """None if the sampled row groups have no page indexes of the column."""
    reads: float | None
    """Share of the lake's rows that queries on the column read today; None without such a query."""
    spans: tuple[tuple[float, float] | None, ...]
    """Where the values of some files, evenly spread over the listing, begin and end in the column's range of
    0 to 1; None for a file without bounds."""

    @property
    def finest(self) -> Clustering:
        """The clustering of pages, or else of row groups."""
        return self.row_groups if self.pages is None else self.pages


@dataclass(frozen=True, slots=True)
class LakeLayout(Reported):
    """How well each column of a lake skips today, and under other orders of rows.

    Examples:
        >>> import skipstone as sk
        >>> layout = sk.open("events").layout(["event_id", "amount"])
        >>> [(column.name, column.files.depth) for column in layout.columns]
        [('event_id', 1.0), ('amount', 1.0)]
        >>> layout.best is None
        True
    """

    view: ClassVar[str] = "skipstone.index.layout_view:layout_tree"
    width: ClassVar[int] = 120
    json_also: ClassVar[Mapping[str, str]] = {"command": "command"}

    lake: str
    version: str
    files: int
    sampled: int
    """Files whose footers were read."""
    rows: int
    """Rows of the lake, estimated unless every file was sampled."""
    sampled_rows: int
    synthetic: bool
    """Whether there were no queries, so that values and ranges of every column were looked up."""
    is_table: bool
    partition_by: tuple[str, ...]
    skips: float
    """Share of rows that the queries skip today."""
    columns: tuple[ColumnLayout, ...]
    candidates: tuple[LayoutAdvice, ...]
    """Orders of rows, the one that skips most first."""
    arguments: tuple[str, ...] = ()
    """The lake as arguments of the command line."""

    @property
    def best(self) -> LayoutAdvice | None:
        """The order of rows that would read least; None if none reads at least 10 % less than today."""
        first = next(iter(self.candidates), None)
        return first if first is not None and first.factor >= _LEAST_GAIN else None

    @property
    def command(self) -> str:
        """The command that rewrites the lake in the best order; "" if there is none."""
        if self.best is None:
            return ""
        lake = self.arguments or ("TABLE" if self.is_table else self.lake,)
        return shlex.join(layout_command(self.best, lake, self.partition_by, is_table=self.is_table))

    def __getitem__(self, name: str) -> ColumnLayout:
        column = next((one for one in self.columns if one.name == name), None)
        if column is None:
            raise KeyError(f"{name}: columns are {', '.join(one.name for one in self.columns) or 'none'}")
        return column


def measure_layout(
    lake: Snapshot, columns: Sequence[str] | str | None = None, queries: Any = None, *, sample: int = 64
) -> LakeLayout:
    """Measure how columns skip today, and estimate how they would skip under other orders of rows.

    ``columns`` are those to measure and to order by, by default the first that have an order; ``queries``
    replace the look-ups of values and ranges of every column, by which layouts are compared.
    """
    check_sample(sample, 64)
    schema = lake.query_schema
    refs = _chosen(schema, columns)
    workload = None if queries is None else read_workload(queries, schema)
    files = LakeSample.of(lake, sample)
    rows = files.read_rows(_with_queried(refs, workload, schema))
    questions = (workload or Workload(tuple(look_ups(rows, refs, schema)))).questions
    today = [files.skips(question.node).best for question in questions]
    measure = _Measure(files, rows, questions, today)
    return LakeLayout(
        lake=lake.uri,
        version=lake.version,
        files=len(lake.entries),
        sampled=len(files.files),
        rows=rows.rows,
        sampled_rows=len(rows),
        synthetic=workload is None,
        is_table=lake.index_naming is not None,
        partition_by=tuple(name for name in schema.names if name in lake.partition_names),
        skips=mean(questions, today),
        columns=tuple(measure.columns(refs)),
        candidates=tuple(measure.candidates(refs)) if len(rows) else (),
    )


def check_sample(sample: Any, default: int) -> None:
    """Refuse a number of files to sample that is none."""
    if isinstance(sample, bool) or not isinstance(sample, int) or sample < 1:
        hint = f"omit it for {default} files"
        raise UsageError(f"sample must be a positive integer, got {sample!r}", hint=hint)


def _chosen(schema: pa.Schema, columns: Sequence[str] | str | None) -> list[ColumnRef]:
    if columns is None:
        return leaves(schema)[:_COLUMNS]
    names: Any = (columns,) if isinstance(columns, str) else columns
    if not isinstance(names, Iterable) or not all(isinstance(name, str) for name in names):
        problem = f"columns must be a list of column names, got {columns!r}"
        raise UsageError(problem, hint='pass names such as ["user_id", "ts"]')
    binder = Binder(schema)
    refs = [binder.column(tuple(name.split("."))) for name in dict.fromkeys(names)]
    ordered = {ref.path for ref in leaves(schema)}
    for ref in refs:
        if ref.path not in ordered:
            hint = "use columns or struct fields of numbers, strings or times"
            raise UsageError(f"{type_name(ref.type)} has no order", column=ref.name, hint=hint)
    return refs


def _with_queried(refs: Sequence[ColumnRef], workload: Workload | None, schema: pa.Schema) -> list[ColumnRef]:
    """The columns, and those of the queries."""
    binder, paths = Binder(schema), {ref.path: ref for ref in refs}
    for question in () if workload is None else workload.questions:
        for path in question.columns:
            paths.setdefault(path, binder.column(path))
    return list(paths.values())


@dataclass(frozen=True, slots=True, eq=False)
class _Measure:
    """A sample, and the queries that layouts are compared by."""

    files: LakeSample
    rows: RowSample
    questions: Sequence[SampleQuery]
    today: Sequence[float]
    """Share of rows that each query skips."""

    def _weight(self, path: Path) -> float:
        return sum(question.weight for question in self.questions if question.conjuncts(path))

    def by_column(self, refs: Sequence[ColumnRef], skipped: Sequence[float]) -> dict[str, float]:
        """Mean share of rows that the queries on each column skip."""
        shares = {}
        for ref in refs:
            mine = [place for place, one in enumerate(self.questions) if ref.path in one.columns]
            if mine:
                chosen = [self.questions[place] for place in mine]
                shares[ref.name] = mean(chosen, [skipped[place] for place in mine])
        return shares

    # -- today -------------------------------------------------------------------------------

    def columns(self, refs: Sequence[ColumnRef]) -> list[ColumnLayout]:
        """Overlap of each column at each level."""
        survey, files = self.files.survey, self.files
        starts = np.searchsorted(survey.owners, np.arange(survey.count))
        units = spread(np.flatnonzero(survey.rows), _PAGED).tolist()
        pages = files.pages(units, refs)
        skipped = self.by_column(refs, self.today)
        drawn = spread(np.arange(survey.count), _DRAWN)
        layouts = []
        for ref in refs:
            facts = survey.facts(ref)
            by_file = hull(facts, starts)
            mine = [pages[unit, ref.path] for unit in units if (unit, ref.path) in pages]
            layouts.append(
                ColumnLayout(
                    ref.name,
                    ref.type,
                    self._scaled(clustering(by_file, survey.totals), len(files.lake.entries)),
                    self._scaled(clustering(facts, survey.rows), round(len(survey) * files.scale)),
                    self._paged(ref.path, [one.facts for one in mine]),
                    None if ref.name not in skipped else 1 - skipped[ref.name],
                    _spans(by_file, drawn),
                )
            )
        return layouts

    def _paged(self, path: Path, pages: Sequence[ColumnFacts]) -> Clustering | None:
        if not pages:
            return None
        units = round(self.rows.rows / self.rows.page_rows[path]) if path in self.rows.page_rows else 0
        return self._scaled(clustering(ColumnFacts.concat(list(pages))), units)

    def _scaled(self, measured: Clustering, units: int) -> Clustering:
        """The clustering of all units, of which some were measured: as large a share of them overlaps."""
        if units <= measured.units or measured.units < 2:
            return measured
        overlapping = max(measured.depth - 1, 0.0) / (measured.units - 1)
        return replace(measured, units=units, depth=min(measured.depth, 1.0) + overlapping * (units - 1))

    # -- other orders ------------------------------------------------------------------------

    def candidates(self, refs: Sequence[ColumnRef]) -> list[LayoutAdvice]:
        """Orders by the most used columns, the one that skips most first."""
        weights = {
            ref.path: round(self._weight(ref.path), 6)
            for ref in refs
            if ref.path in self.rows.columns and not self.files.survey.gives(ref.path)
        }
        paths = sorted(filter(weights.__getitem__, weights), key=lambda path: -weights[path])[:_SORTED]
        pairs = [*combinations(paths[:_COMBINED], 2)]
        wide = [tuple(paths[:3])] if len(paths) > 2 else []
        orders: list[tuple[tuple[Path, ...], ClusterKind]] = [((path,), "sort") for path in paths]
        for by in (*pairs, *wide):
            orders += [(by, "zorder"), (by, "hilbert")]
        matching = np.array([self.files.skips(question.node).matching for question in self.questions])
        before = mean(self.questions, self.today)
        advised = []
        for by, kind in orders:
            read = np.maximum(self.rows.shares_read(self.questions, by, kind), matching)
            skipped = (1 - read).tolist()
            names = tuple(".".join(path) for path in by)
            shares = self.by_column(refs, skipped)
            advised.append(LayoutAdvice(names, kind, before, mean(self.questions, skipped), shares))
        # Of two layouts that are about equal, the simpler one comes first.
        return sorted(advised, key=lambda one: (-round(one.after, 2), one.kind != "sort", -one.after))


def _spans(facts: ColumnFacts, units: Array) -> tuple[tuple[float, float] | None, ...]:
    low, high = positions(facts)
    pairs = zip(low[units].tolist(), high[units].tolist(), strict=True)
    return tuple(None if first != first else (first, last) for first, last in pairs)
