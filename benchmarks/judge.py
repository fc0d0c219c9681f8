"""``python -m benchmarks.judge``: what judging N units costs, beside the same test in other engines.

The judge is given a compiled predicate and evidence in memory and computes three bits for each unit. A peer
computes one of them (may the unit match) in its own language: ``intervals.py``. "numpy by hand" does so in
the fewest array operations one would write for that one predicate: the floor, not a rival.

Comparisons are counted as leaves of the compiled predicate. BETWEEN is one; so is an IN of any length, for
which nothing is promised. Clustered bounds are known to ascend, as an index of sorted files knows.
"""

from __future__ import annotations

import datetime as dt
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

import skipstone as sk
from benchmarks.harness import OURS, Bench, Case, Contender, Pace, Role, Target, Work
from benchmarks.intervals import BoundsTable, Question, Test, peers, unit_numbers
from skipstone.core.evidence import ColumnFacts, Evidence
from skipstone.core.ir import compile_predicate
from skipstone.core.judge import judge

NS_PER_COMPARISON = 10.0
WIDTH = 100
EPOCH = dt.datetime(2020, 1, 1)
MINUTE = 60_000_000
Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many units, for numbers and for strings; the target is checked at the last."""

    units: Sequence[int]
    strings: int
    pace: Pace | None = None


FULL = Sizes((1_000_000, 10_000_000), 1_000_000)
QUICK = Sizes((100_000, 1_000_000), 100_000)


@dataclass(frozen=True, slots=True)
class Units:
    """The same bounds as evidence and as tables of the peers."""

    schema: pa.Schema
    rows: Array
    facts: dict[tuple[str, ...], ColumnFacts]
    table: BoundsTable

    def __len__(self) -> int:
        return len(self.rows)

    def evidence(self) -> Evidence:
        """Evidence that remembers nothing of earlier questions."""
        return Evidence(self.rows, self.facts)


# -- units -------------------------------------------------------------------------------------


def _facts(type: pa.DataType, lower: Any, upper: Any, rng: np.random.Generator, nan: Array) -> ColumnFacts:
    units = len(lower)
    yes = np.ones(units, dtype=bool)
    may_null = rng.random(units) < 0.1
    return ColumnFacts(type, lower, upper, yes, yes, yes, may_null, may_nan=nan)


def integers(units: int, rng: np.random.Generator, *, clustered: bool) -> Units:
    """Two int64 columns: ``a`` in the order asked for, ``b`` in none. Each value is in one unit or two."""
    columns = {}
    for name, ordered in (("a", clustered), ("b", False)):
        lower = np.arange(units, dtype=np.int64) * WIDTH
        if not ordered:
            rng.shuffle(lower)
        columns[f"{name}_lo"], columns[f"{name}_hi"] = lower, lower + WIDTH + WIDTH // 10
    return _numbers(columns, {"a": pa.int64(), "b": pa.int64()}, rng, clustered=clustered)


def floats(units: int, rng: np.random.Generator) -> Units:
    """A float64 column whose units hold NaN in one of a hundred cases."""
    lower = rng.permutation(units).astype(np.float64)
    columns = {"f_lo": lower, "f_hi": lower + 1.1, "f_nan": rng.random(units) < 0.01}
    return _numbers(columns, {"f": pa.float64()}, rng, clustered=False)


def timestamps(units: int, rng: np.random.Generator) -> Units:
    """A column of microseconds, one unit a minute; ``d`` of the tables is its date, derived beforehand."""
    start = int(EPOCH.replace(tzinfo=dt.UTC).timestamp()) * 1_000_000
    lower = np.arange(units, dtype=np.int64) * MINUTE + start
    columns = {"t_lo": lower, "t_hi": lower + MINUTE}
    return _numbers(columns, {"t": pa.timestamp("us")}, rng, clustered=True)


def _numbers(
    columns: dict[str, Array], types: dict[str, pa.DataType], rng: np.random.Generator, *, clustered: bool
) -> Units:
    units = len(next(iter(columns.values())))
    no = np.zeros(units, dtype=bool)
    facts = {
        (name,): _facts(
            type, columns[f"{name}_lo"], columns[f"{name}_hi"], rng, columns.get(f"{name}_nan", no)
        )
        for name, type in types.items()
    }
    moments = any(pa.types.is_timestamp(type) for type in types.values())
    given = dict(columns)
    if moments:
        given = {name: bound.view("datetime64[us]") for name, bound in columns.items()}
        given |= {name.replace("t_", "d_"): bound.astype("datetime64[D]") for name, bound in given.items()}
    table = BoundsTable.of(given, clustered=clustered)
    return Units(pa.schema(list(types.items())), np.full(units, 1_000), facts, table)


def strings(units: int, rng: np.random.Generator) -> Units:
    """A string column in no order."""
    numbers = rng.permutation(units)
    lower, upper = (pa.array([_key(n + plus) for n in numbers.tolist()]) for plus in (0, 1))
    kind = pa.large_binary()
    facts = _facts(pa.string(), lower.cast(kind), upper.cast(kind), rng, np.zeros(units, dtype=bool))
    table = BoundsTable.of({"s_lo": lower, "s_hi": upper}, clustered=False)
    return Units(pa.schema([("s", pa.string())]), np.full(units, 1_000), {("s",): facts}, table)


def _key(number: int) -> str:
    return f"key-{number:012d}"


# -- questions ---------------------------------------------------------------------------------


def integer_questions(units: int, rng: np.random.Generator) -> Iterator[Question]:
    """Comparisons, IN lists and what joins them."""
    top = units * WIDTH
    v, w = top // 3, top // 2
    ten, many = (np.sort(rng.choice(top, size=min(n, top), replace=False)).tolist() for n in (10, 10_000))
    equal = Test("a", [(v, v)])
    yield Question("point a = v", f"a = {v}", [equal])
    yield Question("range a > v", f"a > {w}", [Test("a", [(w + 1, None)])])
    yield Question("range a BETWEEN", f"a BETWEEN {v} AND {w}", [Test("a", [(v, w)])])
    yield Question("point a IN (10)", f"a IN ({_list(ten)})", [Test("a", [(k, k) for k in ten])])
    yield Question("point a IN (10,000)", f"a IN ({_list(many)})", [Test("a", [(k, k) for k in many])])
    two = [Test("a", [(v, w)]), Test("b", [(w + 1, None)])]
    yield Question("range a BETWEEN AND b > w", f"a BETWEEN {v} AND {w} AND b > {w}", two)
    either = [equal, Test("b", [(w, w)])]
    yield Question("point a = v OR b = w", f"a = {v} OR b = {w}", either, operator.or_)
    rest = [Test("a", [(None, v - 1), (v + 1, None)])]
    yield Question("full NOT a = v", f"NOT (a = {v})", rest)


def float_questions(units: int) -> Iterator[Question]:
    """NaN is greater than any number, so it counts for one of these only."""
    v = units / 2
    beyond = Test("f", [(float(np.nextafter(v, np.inf)), None)], nan=True)
    yield Question("range f > v with NaN", f"f > CAST({v} AS DOUBLE)", [beyond])
    yield Question("point f = v with NaN", f"f = CAST({v} AS DOUBLE)", [Test("f", [(v, v)])])


def timestamp_questions(units: int, *, warm: bool) -> Iterator[Question]:
    """A day, through a function of the column; warm, everyone has the dates at hand."""
    day = (EPOCH + dt.timedelta(minutes=units // 2)).date()
    test = Test("d", [(day, day)]) if warm else Test("t", [(day, day)], as_date=True)
    yield Question("point cast(t AS DATE) = d", f"CAST(t AS DATE) = DATE '{day}'", [test])


def string_questions(units: int, rng: np.random.Generator) -> Iterator[Question]:
    """Byte order."""
    low, high = _key(units // 3), _key(units // 2)
    ten = sorted(_key(n) for n in rng.choice(units, size=min(10, units), replace=False).tolist())
    yield Question("point s = v", f"s = '{low}'", [Test("s", [(low, low)])])
    yield Question("range s BETWEEN", f"s BETWEEN '{low}' AND '{high}'", [Test("s", [(low, high)])])
    texts = ", ".join(f"'{k}'" for k in ten)
    yield Question("point s IN (10)", f"s IN ({texts})", [Test("s", [(k, k) for k in ten])])


def _list(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


# -- cases -------------------------------------------------------------------------------------


def case(question: Question, units: Units, kind: str, *, warm: bool = False, promised: bool = False) -> Case:
    """One question put to the judge and to every peer."""
    node = compile_predicate(sk.parse(question.sql), units.schema).node
    leaves = sum(1 for _ in node.leaves())
    kept = units.evidence()
    ours = Contender(
        OURS,
        lambda evidence: judge(node, evidence),
        Role.OURS,
        prepare=(lambda: kept) if warm else units.evidence,
        answer=lambda judged: np.flatnonzero(judged.bits.true),
        work=lambda judged: Work(rows=int(judged.bits.true.sum())),
    )
    others = [
        Contender(
            name,
            run,
            Role.REFERENCE if name.startswith("numpy") else Role.PEER,
            answer=unit_numbers,
            work=lambda answer: Work(rows=len(unit_numbers(answer))),
        )
        for name, run in peers(question, units.table).items()
    ]

    def per_comparison(ms: float) -> float:
        return ms * 1e6 / len(units) / leaves

    target = Target(
        f"≤ {NS_PER_COMPARISON:.0f} ns", NS_PER_COMPARISON, lambda found: per_comparison(found.ms(OURS))
    )
    order = "clustered" if units.table.clustered else "spread"
    return Case(
        f"{kind} {question.name}, {'warm, ' if warm else ''}{order}, {len(units):,} units",
        [ours, *others],
        [target] if promised and " IN " not in question.name else (),
        figure=lambda ms: f"{per_comparison(ms):,.2f}",
    )


FIGURE = "ns / unit / comparison"


def main(argv: Sequence[str] | None = None, sizes: Sizes | None = None) -> None:
    """Run it."""
    bench = Bench.of("judge", "What judging N units costs.", argv, sizes.pace if sizes else None)
    sizes = sizes or (QUICK if bench.quick else FULL)
    rng = np.random.default_rng(bench.seed)
    for count in sizes.units:
        promised = count == max(sizes.units)
        for clustered in (True, False):
            units = integers(count, rng, clustered=clustered)
            title = f"int64, {'ascending' if clustered else 'unsorted'} bounds, {count:,} units"
            cases = (case(q, units, "int64", promised=promised) for q in integer_questions(count, rng))
            bench.section(title, cases, FIGURE)
            del units, cases
        _section(bench, f"float64, {count:,} units", floats(count, rng), "float64", float_questions(count))
        moments = timestamps(count, rng)
        days = [
            case(question, moments, "timestamp", warm=warm)
            for warm in (False, True)
            for question in timestamp_questions(count, warm=warm)
        ]
        bench.section(
            f"timestamps as dates, {count:,} units (warm: everyone has the dates at hand)", days, FIGURE
        )
        del moments, days
    count = sizes.strings
    _section(bench, f"strings, {count:,} units", strings(count, rng), "string", string_questions(count, rng))
    bench.finish()


def _section(bench: Bench, title: str, units: Units, kind: str, questions: Iterator[Question]) -> None:
    ask: Callable[[Question], Case] = lambda question: case(question, units, kind)  # noqa: E731
    bench.section(title, map(ask, questions), FIGURE)


if __name__ == "__main__":
    main()
