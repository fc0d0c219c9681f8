"""``scan.aggregate(...)``: lazy aggregation over the rows of a scan.

The pipeline: ``bind`` to the schema; answer from ``metadata`` as many ``units`` of the scan's plan as
possible; ``read`` the remaining rows; merge the states of ``groups``; turn them into an ``answer``.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from skipstone.aggregate.answer import Answer, Step
from skipstone.aggregate.bind import Binding, Key, bind
from skipstone.aggregate.functions import Aggregate, label
from skipstone.aggregate.groups import GroupStates, merge_states
from skipstone.aggregate.members import Members, SequentialAntiJoin, combine_members
from skipstone.aggregate.metadata import MetadataAnswer
from skipstone.aggregate.read import (
    AggregateReading,
    PartialResult,
    plan_readings,
    read_locally,
    read_on_engine,
)
from skipstone.aggregate.states.histogram import even_edges
from skipstone.aggregate.units import Units
from skipstone.engine.jobs import EngineOptions, check_engine, choose_engine
from skipstone.errors import UnknownColumnError, UsageError
from skipstone.index.container import BadIndex
from skipstone.lake.snapshot import opened_name
from skipstone.predicate.tree import Expr
from skipstone.report import Printable, explanation, shown_tree
from skipstone.report.trace import AggregateRun, AggregateTrace, ColumnUse, MemberUse
from skipstone.report.units import plural
from skipstone.scan.lake import Lake
from skipstone.scan.options import explain_options
from skipstone.scan.plan import ScanPlan
from skipstone.scan.reader import Log

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from skipstone.report.node import ReportNode
    from skipstone.typing import EngineLike, GroupByLike, MembersLike, ReportFormat

# Unmerged states held in memory.
_MAX_UNMERGED = 64
# Functions that find the range of the even bins of a histogram.
_ENDS = ("smallest number", "largest number")


@dataclass(frozen=True, slots=True, eq=False)
class AggregateQuestion:
    """Aggregates over the rows of a scan, and how to compute them."""

    lake: Lake
    plan: Callable[[], ScanPlan]
    case_sensitive: bool
    aggregates: tuple[Aggregate, ...]
    group_by: tuple[Key, ...]
    members: Members | None
    cached: bool
    engine: EngineLike | None
    engine_options: EngineOptions

    def bind(self, aggregates: Sequence[Aggregate]) -> Binding:
        """Bind aggregates to the lake's schema."""
        schemas = self.lake.schema, self.lake.query_schema
        try:
            return bind(aggregates, self.group_by, *schemas, case_sensitive=self.case_sensitive)
        except UnknownColumnError as error:
            error.hint = self.lake.pinned.renamed(error.column or "") or error.hint
            raise


@dataclass(frozen=True, slots=True, eq=False)
class AggregatePlan:
    """An aggregation after phase one: answers from metadata, and the rows to read."""

    plan: ScanPlan
    binding: Binding
    metadata: MetadataAnswer
    readings: tuple[AggregateReading, ...]

    @property
    def states(self) -> list[GroupStates]:
        """States computed from metadata."""
        return [states for answer in self.metadata.measures for states in answer.states]


class Aggregation(Printable):
    """Aggregates of the rows of a scan; the answer is computed once, when it is first used.

    ``answer["sum(amount)"]`` is one value, or a list with one value for each group.

    Examples:
        >>> import skipstone as sk
        >>> answer = sk.open("events").scan().aggregate(sk.count(), sk.max("event_id"), group_by="country")
        >>> answer["max(event_id)"]
        [996, 997, 999, 998]
        >>> answer.to_arrow().column_names
        ['country', 'count', 'max(event_id)']
    """

    view = "skipstone.aggregate.aggregation:answer_tree"

    def __init__(self, question: AggregateQuestion) -> None:
        self._question = question
        self._run: AggregateRun | None = None
        # Names and types are checked now; the edges of even bins are computed on first use.
        self._has_even = any(map(_is_even, question.aggregates))
        self._binding = question.bind(
            [replace(a, function=_ENDS[0]) if _is_even(a) else a for a in question.aggregates]
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
        return AggregatePlan(plan, binding, metadata, tuple(plan_readings(plan, binding, metadata)))

    def _with_edges(self) -> tuple[Aggregate, ...]:
        """The aggregates with edges for even bins, computed from the smallest and largest values."""
        question = self._question
        columns = {label(a.columns[0]): a.columns[0] for a in question.aggregates if _is_even(a)}
        ends = [Aggregate(end, (c,), f"{end} of {name}") for name, c in columns.items() for end in _ENDS]
        limits = Aggregation(replace(question, aggregates=tuple(ends), group_by=()))

        def edges(aggregate: Aggregate) -> tuple[Any, ...] | None:
            low, high = (limits[f"{end} of {label(aggregate.columns[0])}"] for end in _ENDS)
            # Without a value there are no bins.
            return None if low is None else even_edges(low, high, aggregate.options)

        return tuple(replace(a, options=edges(a)) if _is_even(a) else a for a in question.aggregates)

    # -- phase two ---------------------------------------------------------------------------

    @cached_property
    def _answer(self) -> Answer:
        plan = self._plan
        states = plan.states
        for part in self._partial_results(plan):
            states += part.states
            if len(states) > _MAX_UNMERGED:
                states = list(merge_states(states, dict(enumerate(plan.binding.measures))))
        return Answer(plan.binding, states, self._question.lake.schema)

    def _partial_results(self, plan: AggregatePlan) -> Iterator[PartialResult]:
        """Read the remaining rows, in row order, and record the cost at the end."""
        question, files = self._question, plan.plan.files
        started, before = time.perf_counter(), files.io()
        row_counts = [0]
        pieces = 0
        log = Log()
        ran_on = plural(plan.plan.hints.threads, "thread")
        for reading in plan.readings:
            if question.engine is None:
                parts: Any = read_locally(reading, log)
            else:
                choice = choose_engine(question.engine, *question.engine_options)
                size = sum([task.entry.size for part in reading.plans for task in part.tasks])
                with choice.for_input(size).open() as engine:
                    parts = read_on_engine(engine, reading)
                    ran_on = f"{engine.name}, {plural(len(parts), 'task')}"
            row_counts.append(0)
            for part in parts:
                row_counts[-1] += part.rows
                pieces += 1
                yield part
        spent = files.io() - before
        seconds = time.perf_counter() - started
        # Readings can share rows, so the largest count is a lower bound.
        rows = max(row_counts)
        phases = log.phases()
        data = sum(phase.bytes for phase in phases)
        self._run = AggregateRun(rows, pieces, spent.requests, data, seconds, ran_on, phases, spent.bytes)

    def stream(self) -> Iterator[Step]:
        """Yield answers while rows are read: the first from metadata, the last exact.

        Each step has ``covered``, the share of rows that it includes, and ``bounds`` of the final answer.

        Examples:
            >>> import skipstone as sk
            >>> steps = list(sk.open("events").scan().aggregate(sk.sum("amount")).stream())
            >>> steps[-1].covered, steps[-1]["sum(amount)"]
            (1.0, 49950.0)
        """
        plan, schema = self._plan, self._question.lake.schema
        measures = dict(enumerate(plan.binding.measures))
        states = merge_states(plan.states, measures)
        left = sum(reading.rows for reading in plan.readings)
        yield Step(plan.binding, states, schema, plan.metadata, left)
        for part in self._partial_results(plan):
            states = merge_states([*states, *part.states], measures)
            left -= part.seen
            yield Step(plan.binding, states, schema, plan.metadata, left)

    # -- results ------------------------------------------------------------------------------

    def to_arrow(self) -> pa.Table:
        """Return the answer as an Arrow table: one row, or one per group, ordered by the keys."""
        return self._answer.to_arrow()

    def to_pylist(self) -> list[dict[str, Any]]:
        """Return the answer as a list of dicts; sums of integers are int."""
        return self._answer.to_pylist()

    def to_polars(self) -> pl.DataFrame:
        """Return the answer as a Polars data frame."""
        return self._answer.to_polars()

    def to_pandas(self, **options: Any) -> pd.DataFrame:
        """Return the answer as a pandas data frame.

        Args:
            **options: Arguments of ``pyarrow.Table.to_pandas``.
        """
        return self._answer.to_pandas(**options)

    def __getitem__(self, name: str) -> Any:
        return self._answer[name]

    @property
    def bounds(self) -> Mapping[str, Any]:
        """Confidence intervals of estimates, by name; lists of them with groups."""
        return self._answer.bounds

    @property
    def schema(self) -> pa.Schema:
        """The schema of the answer."""
        return Answer(self._plan.binding, (), self._question.lake.schema).to_arrow().schema

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._answer.__arrow_c_stream__(requested_schema)

    # -- explain --------------------------------------------------------------------------------

    @property
    def trace(self) -> AggregateTrace:
        """What metadata answers and what is read; after the run, also its cost."""
        plan, question = self._plan, self._question
        return AggregateTrace(
            scan=plan.plan.trace,
            functions=tuple(output.name for output in plan.binding.outputs),
            group_by=tuple(name for name, _ in question.group_by),
            rows=plan.metadata.live,
            columns=_column_uses(plan),
            members=None if question.members is None else _member_use(plan, question.members),
            cached=question.cached,
            run=self._run,
        )

    def explain(self, analyze: bool | ReportFormat = False, format: ReportFormat = "text") -> str:
        """Describe which answers come from metadata, what is read, and why.

        Args:
            analyze: Also compute the answer, and report rows, requests, bytes and times. The only argument
                can also be a format.
            format: ``"text"``, ``"json"`` or ``"html"``. A notebook shows text and HTML as a drawing.
        """
        run, chosen = explain_options(analyze, format)
        if run:
            self.to_arrow()
        return explanation(self.trace, chosen, f"Aggregation of {self.trace.scan.lake}")

    def __repr__(self) -> str:
        # What users want to see is the answer; debuggers must see an error, not raise it.
        from skipstone.report.text import terminal_width, to_text

        return to_text(shown_tree(self), terminal_width())

    def _label(self) -> str:
        names = ", ".join(aggregate.name for aggregate in self._question.aggregates)
        keys = ", ".join(name for name, _ in self._question.group_by)
        by = f" by {keys}" if keys else ""
        return f"Aggregation({opened_name(self._question.lake.pinned)}: {names}{by})"


def answer_tree(aggregation: Aggregation) -> ReportNode:
    """The view of an aggregation: its answer, which is computed for it."""
    from skipstone.scan import row_view

    return row_view.answer_tree(aggregation.to_arrow(), aggregation.bounds, aggregation.trace)


def aggregation(
    lake: Lake,
    plan: Callable[[], ScanPlan],
    limit: int | None,
    case_sensitive: bool,
    aggregates: Sequence[Aggregate | str],
    *,
    group_by: GroupByLike | None,
    within: MembersLike | None,
    without: MembersLike | None,
    id_column: str | None,
    use_cached: bool,
    engine: EngineLike | None,
    engine_options: EngineOptions,
) -> Aggregation:
    """Validate the options of ``scan.aggregate`` and make the aggregation."""
    if limit is not None:
        raise UsageError("scan with a limit can't be aggregated", hint="remove the limit")
    check_engine(engine, *engine_options)
    if not isinstance(use_cached, bool):
        raise UsageError(f"use_cached={use_cached!r} is not a boolean", hint="use True or False")
    members = combine_members(within, without, id_column)
    if members is not None:
        members = members.bind(lake.schema, case_sensitive=case_sensitive)
    return Aggregation(
        AggregateQuestion(
            lake,
            plan,
            case_sensitive,
            _functions(aggregates),
            _keys(group_by, lake.schema.names),
            members,
            use_cached,
            engine,
            engine_options,
        )
    )


def _functions(aggregates: Sequence[Aggregate | str]) -> tuple[Aggregate, ...]:
    """The aggregates, with those of SQL text parsed."""
    functions: list[Aggregate] = []
    for aggregate in aggregates:
        if isinstance(aggregate, str):
            from skipstone.aggregate.select import read_functions

            functions += read_functions(aggregate)
        else:
            functions.append(aggregate)
    return tuple(functions)


# The alias of ``year(ts) as y``; a cast ends with a parenthesis.
_ALIAS = re.compile(r"(.*\S)\s+as\s+(?:(\w+)|`([^`]+)`)\s*", re.IGNORECASE | re.DOTALL)


def _keys(group_by: GroupByLike | None, columns: Sequence[str]) -> tuple[Key, ...]:
    """Names and expressions of the keys."""
    if group_by is None:
        return ()
    if isinstance(group_by, str) and "," in group_by and group_by not in columns:
        from skipstone.aggregate.select import read_keys

        return tuple(read_keys(group_by).items())
    if isinstance(group_by, Mapping):
        return tuple(group_by.items())
    listed = (
        [group_by] if isinstance(group_by, str | Expr) or not isinstance(group_by, Iterable) else group_by
    )
    keys: list[Key] = []
    for key in listed:
        if not isinstance(key, str | Expr):
            raise UsageError(
                f"group_by={group_by!r} is not a list of names",
                hint='use a list of columns or expressions, such as ["country", "year(ts) AS year"]',
            )
        match = _ALIAS.fullmatch(key) if isinstance(key, str) else None
        keys.append((match[2] or match[3], match[1]) if match else (label(key), key))
    return tuple(keys)


def _is_even(aggregate: Any) -> bool:
    return (
        isinstance(aggregate, Aggregate)
        and aggregate.function == "histogram"
        and isinstance(aggregate.options, int)
    )


def _column_uses(plan: AggregatePlan) -> tuple[ColumnUse, ...]:
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
    """Units and rows excluded by sets of members."""
    cover, units = plan.metadata.cover, plan.metadata.units
    candidates = units.candidates > 0
    outside = int(np.count_nonzero(candidates & ~cover.inside))
    inside = candidates & cover.inside & ~cover.outside
    if members.has_positions:
        # Rows at other positions were split off before.
        inside &= units.candidates == units.rows
    sets = members.descriptions()
    if any(isinstance(test, SequentialAntiJoin) for test in plan.metadata.tests.values()):
        sets += ("ids are sequential: members are located by row position, ids are not read",)
    rows = plan.plan.trace.rows_kept - plan.metadata.live
    return MemberUse(sets, int(np.count_nonzero(candidates)), outside, int(np.count_nonzero(inside)), rows)
