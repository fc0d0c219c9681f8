"""``scan.aggregate(...)``: what is asked of the rows of a scan, answered when somebody wants to know."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from skipstone.aggregate.account import account_of
from skipstone.aggregate.answer import Answer
from skipstone.aggregate.bind import Binding, bind
from skipstone.aggregate.functions import Aggregate
from skipstone.aggregate.given import allowed
from skipstone.aggregate.members import Members, Places
from skipstone.aggregate.merge import Known, Recipe, merged
from skipstone.aggregate.prepare import Preparation, Prepared
from skipstone.aggregate.progress import Step
from skipstone.aggregate.read import Portion, Reading, read_here, read_on, readings
from skipstone.aggregate.units import Placed, Units, shares_of, survey_of
from skipstone.core.ir.nodes import ColumnRef
from skipstone.engine.jobs import check_engine, opened
from skipstone.errors import UsageError
from skipstone.index.container import BadIndex
from skipstone.partial.edges import even_edges
from skipstone.report.trace.aggregate import AggregateRun, AggregateTrace
from skipstone.report.units import plural
from skipstone.scan.lake import Lake
from skipstone.scan.plan import ScanPlan
from skipstone.scan.work import Clock

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

# States that wait to be put together.
_WAITING = 64


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """What is asked of the rows of a scan."""

    lake: Lake
    plan: Callable[[], ScanPlan]
    case_sensitive: bool
    asked: tuple[Aggregate, ...]
    group_by: tuple[str, ...]
    members: Members | None
    cached: bool
    engine: Any
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Ready:
    """An aggregation after phase one."""

    plan: ScanPlan
    binding: Binding
    prepared: Prepared
    readings: tuple[Reading, ...]

    @property
    def known(self) -> list[Known]:
        """What metadata has answered."""
        return [known for found in self.prepared.found for known in found.known]

    def recipe(self, reading: Reading) -> Recipe:
        """What to make of the rows of a reading."""
        return Recipe(self.binding.keys, {n: self.binding.measures[n] for n in reading.measures})


class Aggregation:
    """Aggregates of the rows of a scan; the answer is worked out once, when it is asked for."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._run: AggregateRun | None = None
        # Names and types are checked now; even bins find their edges when they are asked for.
        self._binding(tuple(_ends(one) if _is_even(one) else one for one in question.asked))

    def _binding(self, asked: Sequence[Aggregate]) -> Binding:
        question = self._question
        schema = question.lake.schema
        return bind(asked, question.group_by, schema, case_sensitive=question.case_sensitive)

    # -- phase one ---------------------------------------------------------------------------

    @cached_property
    def _ready(self) -> Ready:
        question = self._question
        while True:
            try:
                return self._prepare(self._edged())
            except BadIndex as error:
                question.lake.index.distrust(error)

    def _edged(self) -> tuple[Aggregate, ...]:
        """What is asked, with the edges of even bins, for which least and greatest values are looked up."""
        question = self._question
        even = [one for one in question.asked if _is_even(one)]
        if not even:
            return question.asked
        names = list(dict.fromkeys(one.columns[0] for one in even))
        ends = [Aggregate(end, (name,), f"{end} of {name}") for name in names for end in _ENDS]
        found = Aggregation(replace(question, asked=tuple(ends), group_by=()))
        return tuple(
            replace(one, options=_edges(found, one)) if _is_even(one) else one for one in question.asked
        )

    def _prepare(self, asked: Sequence[Aggregate]) -> Ready:
        question, plan = self._question, self._question.plan()
        lake, options = question.lake, plan.options
        binding = self._binding(asked)
        coverage = lake.index.coverage if options.index and options.skipping else None
        survey, files = survey_of(lake, plan, coverage)
        members, placed = question.members, None
        if members is not None and any(isinstance(leaf, Places) for leaf in members.leaves()):
            placed = Placed(lake, coverage)
            members = members.located(placed.paths)
        shares = shares_of(plan, files, members, placed)
        types = dict(zip(members.paths, members.types, strict=True)) if members is not None else {}
        preparation = Preparation(
            plan.files,
            binding,
            Units.of(survey, shares),
            [ColumnRef(path, type) for path, type in types.items()],
            [ColumnRef(path, binding.types[path]) for path in binding.keys],
            cached=question.cached and options.skipping,
        )
        prepared = preparation.run()
        return Ready(plan, binding, prepared, tuple(readings(plan, binding, prepared)))

    # -- phase two ---------------------------------------------------------------------------

    @cached_property
    def _answer(self) -> Answer:
        ready, question = self._ready, self._question
        known = ready.known
        for portion in self._portions(ready):
            known += portion.known
            if len(known) > _WAITING:
                known = list(merged(known, dict(enumerate(ready.binding.measures))))
        return Answer(ready.binding, known, question.lake.schema)

    def _portions(self, ready: Ready) -> Iterator[Portion]:
        """What reading adds, in order of rows; and an account of it at the end."""
        question, files = self._question, ready.plan.files
        began, before = time.perf_counter(), files.io()
        counted = [0]
        pieces = 0
        clock = Clock()
        said = plural(ready.plan.hints.threads, "thread")
        for reading in ready.readings:
            recipe = ready.recipe(reading)
            if question.engine is None:
                found: Any = read_here(reading, recipe, clock)
            else:
                with opened(question.engine, question.options) as engine:
                    found = read_on(engine, reading, recipe)
                    said = f"{engine.name}, {plural(len(found), 'task')}"
            counted.append(0)
            for portion in found:
                counted[-1] += portion.rows
                pieces += 1
                yield portion
        spent = files.io() - before
        seconds = time.perf_counter() - began
        # Readings may share rows: what the largest has counted in is at least that.
        rows = max(counted)
        self._run = AggregateRun(rows, pieces, spent.requests, spent.bytes, seconds, said, clock.phases())

    def stream(self) -> Iterator[Step]:
        """Answers that get better: first what metadata knows, then with every few rows that are read."""
        ready, schema = self._ready, self._question.lake.schema
        measures = dict(enumerate(ready.binding.measures))
        known, looked = list(merged(ready.known, measures)), 0
        left = sum(reading.rows for reading in ready.readings)
        total = looked + left
        yield Step(ready.binding, known, schema, ready.prepared, total, looked)
        for portion in self._portions(ready):
            known = list(merged([*known, *portion.known], measures))
            looked += portion.looked
            yield Step(ready.binding, known, schema, ready.prepared, total, looked)

    # -- the answer --------------------------------------------------------------------------

    def to_arrow(self) -> pa.Table:
        """The answer as a table: one row, or one per group in the order of the keys."""
        return self._answer.to_arrow()

    def to_pylist(self) -> list[dict[str, Any]]:
        """The rows of the answer; sums of whole numbers as int."""
        return self._answer.to_pylist()

    def to_polars(self) -> pl.DataFrame:
        """The answer as a Polars frame."""
        return self._answer.to_polars()

    def to_pandas(self, **options: Any) -> pd.DataFrame:
        """The answer as a pandas frame; ``options`` go to pyarrow."""
        return self._answer.to_pandas(**options)

    def __getitem__(self, name: str) -> Any:
        return self._answer[name]

    @property
    def bounds(self) -> Mapping[str, Any]:
        """For estimates, between which values the truth is very likely to be; with groups, lists of them."""
        return self._answer.bounds

    @property
    def schema(self) -> pa.Schema:
        """The columns of the answer."""
        binding = self._ready.binding
        return Answer(binding, (), self._question.lake.schema).to_arrow().schema

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._answer.__arrow_c_stream__(requested_schema)

    # -- looks -------------------------------------------------------------------------------

    @property
    def trace(self) -> AggregateTrace:
        """What metadata answers and what is read, as data; once it has run, what it did."""
        ready, question = self._ready, self._question
        trace = account_of(
            ready.plan.trace, ready.binding, ready.prepared, question.members, cached=question.cached
        )
        return replace(trace, group_by=question.group_by, run=self._run)

    def explain(self, analyze: bool = False, format: str = "text") -> str:
        """What is answered from metadata and what is read, and why; ``analyze`` also runs it."""
        from skipstone.report import render
        from skipstone.report.explain import aggregate_tree
        from skipstone.scan.scan import check_format

        check_format(format)
        if analyze:
            self.to_arrow()
        return render(self.trace, aggregate_tree, format, f"Aggregation of {self.trace.scan.lake}")

    def _repr_html_(self) -> str:
        from skipstone.report.explain import aggregate_tree
        from skipstone.report.html import to_html

        return to_html(aggregate_tree(self.trace))

    def __repr__(self) -> str:
        asked = ", ".join(one.name for one in self._question.asked)
        by = f" by {', '.join(self._question.group_by)}" if self._question.group_by else ""
        return f"Aggregation({self._question.lake.uri}: {asked}{by})"


_ENDS = ("least number", "greatest number")


def aggregation(
    lake: Lake,
    plan: Callable[[], ScanPlan],
    limit: int | None,
    case_sensitive: bool,
    asked: Sequence[Aggregate],
    *,
    group_by: Any,
    within: Any,
    without: Any,
    id_column: str | None,
    use_cached: bool,
    engine: Any,
    options: Mapping[str, Any],
) -> Aggregation:
    """Aggregates of the rows of a scan."""
    if limit is not None:
        raise UsageError("a scan with a limit can't be aggregated", hint="leave out the limit")
    check_engine(engine, options)
    if not isinstance(use_cached, bool):
        raise UsageError(f"use_cached={use_cached!r}", hint="give True or False")
    keys = () if group_by is None else (group_by,) if isinstance(group_by, str) else tuple(group_by)
    members = allowed(within, without, id_column)
    if members is not None:
        members = members.bind(lake.schema, case_sensitive=case_sensitive)
    return Aggregation(
        Question(lake, plan, case_sensitive, tuple(asked), keys, members, use_cached, engine, options)
    )


def _is_even(asked: Any) -> bool:
    return isinstance(asked, Aggregate) and asked.function == "histogram" and isinstance(asked.options, int)


def _edges(found: Aggregation, asked: Aggregate) -> tuple[Any, ...] | None:
    """The edges of even bins; None where there is no value."""
    least, greatest = (found[f"{end} of {asked.columns[0]}"] for end in _ENDS)
    return None if least is None else even_edges(least, greatest, asked.options)


def _ends(asked: Aggregate) -> Aggregate:
    return replace(asked, function=_ENDS[0])
