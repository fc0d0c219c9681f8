"""``scan.aggregate(...)``: what is asked of the rows of a scan, answered when somebody wants to know.

The way of a question: ``bind`` it to the schema; see what ``metadata`` answers for the ``units`` of the
scan's plan; ``read`` the rows that are left; merge the states of ``groups``; make them an ``answer``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from skipstone.aggregate.answer import Answer, Step
from skipstone.aggregate.bind import Binding, bind
from skipstone.aggregate.functions import Aggregate
from skipstone.aggregate.groups import GroupStates, merge_states
from skipstone.aggregate.members import Members, OutsideByPlace, allowed
from skipstone.aggregate.metadata import MetadataAnswer
from skipstone.aggregate.read import AggregateReading, Portion, read_here, read_on, readings
from skipstone.aggregate.states.histogram import even_edges
from skipstone.aggregate.units import Units
from skipstone.engine.jobs import EngineOptions, check_engine, opened
from skipstone.errors import UsageError
from skipstone.index.container import BadIndex
from skipstone.report.trace import AggregateRun, AggregateTrace, ColumnUse, MemberUse
from skipstone.report.units import plural
from skipstone.scan.lake import Lake
from skipstone.scan.plan import ScanPlan
from skipstone.scan.reader import Log

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from skipstone.typing import EngineLike, MembersLike, ReportFormat

# States that wait to be merged.
_WAITING = 64
# The functions that find between which values the even bins of a histogram are.
_ENDS = ("least number", "greatest number")


@dataclass(frozen=True, slots=True, eq=False)
class AggregateQuestion:
    """What is asked of the rows of a scan."""

    lake: Lake
    plan: Callable[[], ScanPlan]
    case_sensitive: bool
    asked: tuple[Aggregate, ...]
    group_by: tuple[str, ...]
    members: Members | None
    cached: bool
    engine: EngineLike | None
    engine_options: EngineOptions

    def bind(self, asked: Sequence[Aggregate]) -> Binding:
        """What is asked, over the lake's schema."""
        return bind(asked, self.group_by, self.lake.schema, case_sensitive=self.case_sensitive)


@dataclass(frozen=True, slots=True, eq=False)
class AggregatePlan:
    """An aggregation after phase one: what metadata answers, and what is read."""

    plan: ScanPlan
    binding: Binding
    metadata: MetadataAnswer
    readings: tuple[AggregateReading, ...]

    @property
    def states(self) -> list[GroupStates]:
        """What metadata has answered."""
        return [states for answer in self.metadata.measures for states in answer.states]


class Aggregation:
    """Aggregates of the rows of a scan; the answer is worked out once, when it is asked for."""

    def __init__(self, question: AggregateQuestion) -> None:
        self._question = question
        self._run: AggregateRun | None = None
        # Names and types are checked now; even bins find their edges when they are asked for.
        self._has_even = any(map(_is_even, question.asked))
        self._binding = question.bind(
            [replace(one, function=_ENDS[0]) if _is_even(one) else one for one in question.asked]
        )

    # -- phase one ---------------------------------------------------------------------------

    @cached_property
    def _plan(self) -> AggregatePlan:
        while True:
            try:
                return self._make_plan()
            except BadIndex as error:
                self._question.lake.index.distrust(error)

    def _make_plan(self) -> AggregatePlan:
        question, plan = self._question, self._question.plan()
        binding = question.bind(self._with_edges()) if self._has_even else self._binding
        units = Units.of(question.lake, plan, question.members)
        cached = question.cached and plan.options.skipping
        metadata = MetadataAnswer(plan.files, binding, units, question.members, cached)
        return AggregatePlan(plan, binding, metadata, tuple(readings(plan, binding, metadata)))

    def _with_edges(self) -> tuple[Aggregate, ...]:
        """What is asked, with the edges of even bins, for which least and greatest values are looked up."""
        question = self._question
        columns = dict.fromkeys(one.columns[0] for one in question.asked if _is_even(one))
        ends = [Aggregate(end, (name,), f"{end} of {name}") for name in columns for end in _ENDS]
        found = Aggregation(replace(question, asked=tuple(ends), group_by=()))

        def edges(one: Aggregate) -> tuple[Any, ...] | None:
            least, greatest = (found[f"{end} of {one.columns[0]}"] for end in _ENDS)
            # Without a value there are no bins.
            return None if least is None else even_edges(least, greatest, one.options)

        return tuple(replace(one, options=edges(one)) if _is_even(one) else one for one in question.asked)

    # -- phase two ---------------------------------------------------------------------------

    @cached_property
    def _answer(self) -> Answer:
        plan = self._plan
        states = plan.states
        for portion in self._portions(plan):
            states += portion.states
            if len(states) > _WAITING:
                states = list(merge_states(states, dict(enumerate(plan.binding.measures))))
        return Answer(plan.binding, states, self._question.lake.schema)

    def _portions(self, plan: AggregatePlan) -> Iterator[Portion]:
        """What reading adds, in order of rows; and an account of it at the end."""
        question, files = self._question, plan.plan.files
        began, before = time.perf_counter(), files.io()
        counted = [0]
        pieces = 0
        log = Log()
        ran_on = plural(plan.plan.hints.threads, "thread")
        for reading in plan.readings:
            if question.engine is None:
                portions: Any = read_here(reading, log)
            else:
                with opened(question.engine, *question.engine_options) as engine:
                    portions = read_on(engine, reading)
                    ran_on = f"{engine.name}, {plural(len(portions), 'task')}"
            counted.append(0)
            for portion in portions:
                counted[-1] += portion.rows
                pieces += 1
                yield portion
        spent = files.io() - before
        seconds = time.perf_counter() - began
        # Readings may share rows: what the largest has counted in is at least that.
        rows = max(counted)
        self._run = AggregateRun(rows, pieces, spent.requests, spent.bytes, seconds, ran_on, log.phases())

    def stream(self) -> Iterator[Step]:
        """Answers that get better: first what metadata knows, then with every few rows that are read."""
        plan, schema = self._plan, self._question.lake.schema
        measures = dict(enumerate(plan.binding.measures))
        states = merge_states(plan.states, measures)
        left = sum(reading.rows for reading in plan.readings)
        yield Step(plan.binding, states, schema, plan.metadata, left)
        for portion in self._portions(plan):
            states = merge_states([*states, *portion.states], measures)
            left -= portion.seen
            yield Step(plan.binding, states, schema, plan.metadata, left)

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
        return Answer(self._plan.binding, (), self._question.lake.schema).to_arrow().schema

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._answer.__arrow_c_stream__(requested_schema)

    # -- how it was made -----------------------------------------------------------------------

    @property
    def trace(self) -> AggregateTrace:
        """What metadata answers and what is read, as data; once it has run, what it did."""
        plan, question = self._plan, self._question
        return AggregateTrace(
            scan=plan.plan.trace,
            functions=tuple(output.name for output in plan.binding.outputs),
            group_by=question.group_by,
            rows=plan.metadata.live,
            columns=_column_uses(plan),
            members=None if question.members is None else _member_use(plan, question.members),
            cached=question.cached,
            run=self._run,
        )

    def explain(self, analyze: bool = False, format: ReportFormat = "text") -> str:
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


def aggregation(
    lake: Lake,
    plan: Callable[[], ScanPlan],
    limit: int | None,
    case_sensitive: bool,
    asked: Sequence[Aggregate],
    *,
    group_by: Sequence[str] | str | None,
    within: MembersLike | None,
    without: MembersLike | None,
    id_column: str | None,
    use_cached: bool,
    engine: EngineLike | None,
    engine_options: EngineOptions,
) -> Aggregation:
    """Aggregates of the rows of a scan."""
    if limit is not None:
        raise UsageError("a scan with a limit can't be aggregated", hint="leave out the limit")
    check_engine(engine, *engine_options)
    if not isinstance(use_cached, bool):
        raise UsageError(f"use_cached={use_cached!r}", hint="give True or False")
    keys = () if group_by is None else (group_by,) if isinstance(group_by, str) else tuple(group_by)
    members = allowed(within, without, id_column)
    if members is not None:
        members = members.bind(lake.schema, case_sensitive=case_sensitive)
    return Aggregation(
        AggregateQuestion(
            lake, plan, case_sensitive, tuple(asked), keys, members, use_cached, engine, engine_options
        )
    )


def _is_even(asked: Any) -> bool:
    return isinstance(asked, Aggregate) and asked.function == "histogram" and isinstance(asked.options, int)


def _column_uses(plan: AggregatePlan) -> tuple[ColumnUse, ...]:
    """Where the answers about each column come from."""
    uses = []
    measures = zip(plan.binding.measures, plan.metadata.measures, strict=True)
    for number, (measure, answer) in enumerate(measures):
        names = tuple(output.name for output in plan.binding.outputs if output.measure == number)
        if names:
            column = ".".join(measure.columns[0]) if measure.columns else ""
            levels, why = plan.metadata.levels(number), plan.metadata.why(number)
            uses.append(ColumnUse(column, names, levels, answer.rows_read, why))
    return tuple(uses)


def _member_use(plan: AggregatePlan, members: Members) -> MemberUse:
    """What sets of members rule out."""
    cover, units = plan.metadata.cover, plan.metadata.units
    kept = units.kept > 0
    outside = int(np.count_nonzero(kept & ~cover.inside))
    whole = kept & cover.inside & ~cover.outside
    if members.has_places:
        # Rows at other places were cut off before.
        whole &= units.kept == units.rows
    sets = members.descriptions()
    if any(isinstance(test, OutsideByPlace) for test in plan.metadata.tests.values()):
        sets += ("ids count up from row to row: members are found by their places, ids are not read",)
    rows = plan.plan.trace.rows_kept - plan.metadata.live
    return MemberUse(sets, int(np.count_nonzero(kept)), outside, int(np.count_nonzero(whole)), rows)
