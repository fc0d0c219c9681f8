"""What must hold of every aggregation: each way to ask gives DuckDB's answer, to the last bit the same."""

from __future__ import annotations

import pickle
import random
import struct
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from skipstone.core.arrays import plain_type
from skipstone.core.domain.keys import is_ordered
from skipstone.errors import SkipstoneError
from skipstone.predicate import tree
from tests.property import _aggregate_oracle as oracle
from tests.property._aggregate_asks import ESTIMATES, KEPT, Ask, Asks
from tests.property._aggregate_expressions import add_expressions
from tests.property._aggregate_oracle import Answers, Path, Unanswerable
from tests.property._aggregate_sets import Chosen, Sets
from tests.property._lakes import ROW_ID, under, whole
from tests.property._scans import World, random_switches

MOST_GROUPS = 40


def answers_of(world: World) -> Answers:
    """The rows of a world for DuckDB."""
    return Answers(world.table, world.starts)


@dataclass
class Question:
    """What is asked of a lake, besides the predicate."""

    asks: list[Ask]
    group_by: list[Path]
    chosen: Chosen
    computed: list[Path]
    """Expressions, which are functions' columns or keys."""

    @property
    def words(self) -> str:
        return f"{[ask.name for ask in self.asks]} by {self.group_by}, {self.chosen.words}"

    @classmethod
    def random(cls, rng: random.Random, world: World, answers: Answers, *, plain: bool) -> Question:
        """``plain`` ones can mostly be answered from metadata, if it has sums."""
        made = under(world.table.schema, world.lake.made)
        paths = list(made.pools)
        ids = [p for p in paths if pa.types.is_integer(answers.type(p))]
        ids = [path for path in ids for _ in range(1 + 3 * (path == (ROW_ID,)))]
        sets = Sets(rng, answers, [f.path for f in world.lake.files], ids)
        computed = add_expressions(rng, answers, paths) if rng.random() < 0.5 else []
        every = [*paths, *computed]
        asks = Asks(rng, answers, every, made.nested, KEPT if plain else ())
        few = [p for p in every if is_ordered(answers.type(p)) and _distinct(answers, p) <= MOST_GROUPS]
        if plain:
            few = [p for p in few if p[0] in world.lake.partitions or p in computed]
        style = rng.choice([0, 0, 0, 1, 1, 2])
        some, keys = asks.some(), rng.sample(few, min(len(few), style))
        used = [path for path in computed if path in keys or any(path in (a.path, a.by) for a in some)]
        return cls(some, keys, sets.choose(plain=plain), used)


def _distinct(answers: Answers, path: Path) -> int:
    return len({oracle.canon(v) for v in answers.values(path)})


@dataclass
class AggregateCase:
    """One question about one lake."""

    world: World
    answers: Answers
    predicate: tree.Predicate | None
    matches: np.ndarray
    question: Question
    count: Counter[str]
    words: str = ""
    bits: list[tuple[str, list[Any]]] = field(default_factory=list)

    def fail(self, what: str) -> NoReturn:
        """Raise with the question; the lake is told by who made it."""
        lines = [
            what,
            f"  call      {self.words}",
            f"  question  {self.question.words}",
            f"  predicate {str(self.predicate)[:2000]}",
            f"  matches   {int(self.matches.sum())} of {len(self.matches)}",
            f"  schema    {[f'{f.name}: {f.type}' for f in self.world.opened.schema]}",
        ]
        raise AssertionError("\n".join(lines))

    # -- asking ------------------------------------------------------------------------------

    def aggregate(self, rng: random.Random, **more: Any) -> Any:
        """The answer with random switches, remembered for a message."""
        switches = {name: v for name, v in random_switches(rng).items() if name != "limit"}
        switches["threads"] = rng.choice([1, 3])
        switches["index"] = rng.random() < 0.85
        self.words = f"{more} {switches}"
        scan = self.world.opened.scan(self.predicate, **switches)
        functions = [ask.function() for ask in self.question.asks]
        group_by = [".".join(path) for path in self.question.group_by]
        return scan.aggregate(*functions, group_by=group_by, **self.question.chosen.given, **more)

    def run(self, rng: random.Random) -> None:
        """With what metadata tells and without, and one more way."""
        wanted = self.wanted()
        if isinstance(wanted, Unanswerable):
            self.refused(rng)
            return
        for cached in (True, False):
            answer = self.aggregate(rng, use_cached=cached)
            self.check(answer.to_arrow(), wanted)
            self.estimated(answer, wanted)
            self.traced(answer, cached)
        way = rng.choice([self.again, self.streamed, self.forms])
        way(rng, wanted)
        (first, wanted_bits), *others = self.bits
        for words, bits in others:
            if bits != wanted_bits:
                self.words = f"{first}\n      and {words}"
                self.fail(f"answers differ in their bits: {bits} and {wanted_bits}")

    def wanted(self) -> dict[tuple[Any, ...], list[Any]] | Unanswerable:
        """The values by group."""
        question = self.question
        said = {ask.name: text for ask in question.asks if (text := ask.said(self.answers)) is not None}
        for ask in question.asks:
            for path in (ask.path, ask.by):
                if path:
                    self.answers.name(path)
        chosen = question.chosen
        groups = self.answers.groups(self.matches, chosen.condition, chosen.sets, question.group_by, said)
        self.count["groups"] += len(groups)
        self.count["questions about rows"] += any(group.rows for group in groups.values())
        self.count["questions about some rows"] += (
            0 < sum(len(g.rows) for g in groups.values()) < len(self.matches)
        )
        try:
            return {
                key: [ask.wanted(self.answers, group) for ask in question.asks]
                for key, group in groups.items()
            }
        except Unanswerable as error:
            return error

    def refused(self, rng: random.Random) -> None:
        """A sum that doesn't fit is an error that names the column."""
        columns = {ask.column for ask in self.question.asks if ask.kind in ("sum", "avg")}
        for cached in (True, False):
            try:
                found = self.aggregate(rng, use_cached=cached).to_arrow()
            except SkipstoneError as error:
                if error.column not in columns:
                    self.fail(f"an error that doesn't name the column: {error!r}")
            else:
                self.fail(f"a sum that can't be right: {found.to_pylist()}")
        self.count["sums that don't fit"] += 1

    # -- checking ----------------------------------------------------------------------------

    def check(self, found: pa.Table, wanted: dict[tuple[Any, ...], list[Any]], *, bits: bool = True) -> None:
        """The table must hold the wanted values, each group once."""
        asks, keys = self.question.asks, len(self.question.group_by)
        names = [*(".".join(path) for path in self.question.group_by), *(ask.name for ask in asks)]
        if found.column_names != names:
            self.fail(f"columns {found.column_names} instead of {names}")
        self.typed(found)
        columns = [plain(column) for column in found.columns]
        rows = list(zip(*columns, strict=True))
        mine = {tuple(map(oracle.canon, row[:keys])): row[keys:] for row in rows}
        if len(mine) < len(rows):
            self.fail(f"a group came twice: {[row[:keys] for row in rows]}")
        if mine.keys() != wanted.keys():
            self.fail(f"groups {sorted(map(str, mine))} instead of {sorted(map(str, wanted))}")
        for key, values in wanted.items():
            for ask, value, right in zip(asks, mine[key], values, strict=True):
                if not ask.agrees(value, right, self.count):
                    shown = str(right)[:300]
                    self.fail(f"{ask.name} of {key} is {value!r} instead of {shown}")
        if bits:
            exact = [n for n, ask in enumerate(asks) if ask.kind not in ESTIMATES]
            told = [found.column(n) for n in (*range(keys), *(keys + n for n in exact))]
            self.bits.append((self.words, [*map(bits_of, told)]))

    def typed(self, found: pa.Table) -> None:
        """Least and greatest values are of the column's own type, or of that without its wrapping."""
        for ask in self.question.asks:
            if ask.kind in ("min", "max", "first", "last"):
                type, own = found.schema.field(ask.name).type, self.answers.type(ask.path)
                if type not in (own, plain_type(own)):
                    self.fail(f"{ask.name} is {type}, the column {own}")

    def estimated(self, answer: Any, wanted: dict[tuple[Any, ...], list[Any]]) -> None:
        """Between the bounds of an estimate is the truth, mostly."""
        asks = [(n, ask) for n, ask in enumerate(self.question.asks) if ask.kind == "approx_distinct"]
        if {*answer.bounds} != {a.name for a in self.question.asks if a.kind in ESTIMATES}:
            self.fail(f"there are bounds of {[*answer.bounds]}")
        table, grouped = answer.to_arrow(), self.question.group_by
        keys = [plain(table.column(n)) for n in range(len(grouped))]
        rows = [tuple(map(oracle.canon, row)) for row in zip(*keys, strict=True)] if grouped else [()]
        for number, ask in asks:
            lower, upper = answer.bounds[ask.name] if grouped else ([end] for end in answer.bounds[ask.name])
            for key, low, high in zip(rows, lower, upper, strict=True):
                self.count["estimates with bounds"] += 1
                self.count["estimates within bounds"] += low <= wanted[key][number] <= high

    def traced(self, answer: Any, cached: bool) -> None:
        """What the trace says was read is what the call allowed."""
        trace = answer.trace
        known = sum(column.rows_answered for column in trace.columns)
        if not cached and known:
            self.fail(f"{known} rows were answered from metadata, in spite of use_cached=False")
        if cached:
            self.count["answered from metadata"] += known > 0
            for column in trace.columns:
                for level in column.answered:
                    self.count[f"answered by {level.level}"] += level.rows > 0
            self.count["answered from metadata alone"] += known > 0 and all(
                c.read == 0 for c in trace.columns
            )

    # -- other ways --------------------------------------------------------------------------

    def again(self, rng: random.Random, wanted: dict[tuple[Any, ...], list[Any]]) -> None:
        """Once more, by other switches."""
        self.check(self.aggregate(rng).to_arrow(), wanted)
        self.count["again"] += 1

    def forms(self, rng: random.Random, wanted: dict[tuple[Any, ...], list[Any]]) -> None:
        """The same answer in other forms."""
        answer = self.aggregate(rng)
        table = answer.to_arrow()
        self.check(table, wanted)
        if answer.schema != table.schema:
            self.fail(f"the schema is {answer.schema}, not {table.schema}")
        if len(answer.to_pylist()) != table.num_rows or len(answer.to_polars()) != table.num_rows:
            self.fail("other forms have other rows")
        if not self.question.group_by:
            for ask in self.question.asks:
                value = answer[ask.name]
                whole_number = ask.kind == "count" or (
                    ask.kind == "sum" and pa.types.is_integer(self.answers.type(ask.path))
                )
                if whole_number and not (value is None or isinstance(value, int)):
                    self.fail(f"{ask.name} is {value!r}, no whole number")
        if not isinstance(answer.explain(), str) or not isinstance(answer.explain(format="json"), str):
            self.fail("nothing is explained")
        if pickle.loads(pickle.dumps(answer.trace)) != answer.trace:
            self.fail("a pickled trace is another one")
        self.count["forms"] += 1

    def streamed(self, rng: random.Random, wanted: dict[tuple[Any, ...], list[Any]]) -> None:
        """Answers that improve; the bounds of each hold the last one's values."""
        steps = list(self.aggregate(rng).stream())
        if not steps or [step.final for step in steps] != [False] * (len(steps) - 1) + [True]:
            self.fail(f"{len(steps)} steps, final {[step.final for step in steps]}")
        covered = [step.covered for step in steps]
        if covered != sorted(covered) or not all(0 <= c <= 1 for c in covered) or covered[-1] != 1:
            self.fail(f"covered {covered}")
        if steps[-1].rows_left:
            self.fail(f"{steps[-1].rows_left} rows are left at the end")
        self.check(steps[-1].to_arrow(), wanted)
        if not self.question.group_by:
            for step in steps:
                self.bounded(step, steps[-1])
        self.count["streams"] += 1
        self.count["streams with steps"] += len(steps) > 1

    def bounded(self, step: Any, last: Any) -> None:
        for ask in self.question.asks:
            bounds, value = step.bounds.get(ask.name), last[ask.name]
            if bounds is None or value is None or ask.kind in ESTIMATES:
                continue
            low, high = bounds
            ranks = [oracle.rank(v) for v in (low, value, high)]
            if (low is not None and ranks[0] > ranks[1]) or (high is not None and ranks[1] > ranks[2]):
                self.fail(f"at {step.covered} {ask.name} is between {low} and {high}, at the end {value}")
            self.count["bounds"] += 1


def plain(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """A column of an answer as plain values."""
    array = whole(column)
    if pa.types.is_list(array.type):
        return array.to_pylist()
    return oracle.stored(array).to_pylist()


def bits_of(column: pa.ChunkedArray) -> list[Any]:
    """Values that tell zeros apart, and no NaN from another."""
    array = whole(column)
    values = array.cast(pa.float64()).to_pylist() if pa.types.is_floating(array.type) else plain(array)
    return [struct.pack(">d", v) if isinstance(v, float) and v == v else repr(v) for v in values]
