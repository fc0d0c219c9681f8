"""Random functions of columns, what each must answer for a group, and whether it does."""

from __future__ import annotations

import math
import random
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pyarrow as pa

import skipstone as sk
from skipstone.core.domain.keys import is_ordered
from tests.property import _aggregate_oracle as oracle
from tests.property._aggregate_oracle import Answers, Group, Path

SHARES = (0.0, 0.01, 0.25, 1 / 3, 0.5, 0.9, 0.99, 1.0)
ESTIMATES = ("approx_distinct", "approx_quantile")
KEPT = (
    "count",
    "sum",
    "min",
    "max",
    "avg",
    "var",
    "stddev",
    "approx_distinct",
    "approx_quantile",
    "histogram",
    "count_distinct",
)
"""What an index may hold."""
SQUARED = 2.0**511
"""Squares of larger doubles are infinite."""


class Tally:
    """An aggregate of one's own: rows, and a number that every value changes; no order matters to it."""

    def init(self) -> tuple[int, int]:
        return 0, 0

    def update(self, state: tuple[int, int], batch: pa.RecordBatch) -> tuple[int, int]:
        columns = [oracle.stored(oracle.whole(column)).to_pylist() for column in batch.columns]
        rows = zip(*columns, strict=True)
        return state[0] + batch.num_rows, (state[1] + sum(map(tallied, rows))) % 2**32

    def merge(self, a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
        return a[0] + b[0], (a[1] + b[1]) % 2**32

    def finish(self, state: tuple[int, int]) -> str:
        return f"{state[0]}:{state[1]}"


def tallied(row: Sequence[Any]) -> int:
    """A number that a row's values decide."""
    return zlib.crc32(repr(oracle.canon(row)).encode())


@dataclass(frozen=True)
class Ask:
    """One function of a column."""

    kind: str
    path: Path = ()
    by: Path = ()
    more: Any = None
    """Degrees of freedom, shares, edges as asked for."""
    edges: tuple[Fraction, ...] = ()

    @property
    def column(self) -> str:
        return ".".join(self.path)

    @property
    def name(self) -> str:
        """What the answer calls it."""
        return f"{self.kind} {self.column} {self.by} {self.more}"

    def function(self) -> Any:
        """As an aggregation takes it."""
        kind, column = self.kind, self.column
        if kind == "count":
            made = sk.count(column) if column else sk.count()
        elif kind in ("var", "stddev"):
            made = getattr(sk, kind)(column, ddof=self.more)
        elif kind in ("quantile", "approx_quantile"):
            shares = self.more if isinstance(self.more, float) else list(self.more)
            made = sk.quantile(column, shares, exact=kind == "quantile")
        elif kind == "histogram":
            made = sk.histogram(column, list(self.more))
        elif kind in ("first", "last"):
            made = getattr(sk, kind)(column, by=".".join(self.by))
        elif kind == "udaf":
            made = sk.udaf(Tally(), [column, ".".join(self.by)], type=pa.string())
        else:
            made = getattr(sk, kind)(column)
        return made.alias(self.name)

    # -- what is wanted ----------------------------------------------------------------------

    def said(self, answers: Answers) -> str | None:
        """What DuckDB is asked, if it has the function with the same meaning."""
        if self.kind == "count" and not self.path:
            return "count(*)"
        column = answers.name(self.path)
        if self.kind in ("count", "min", "max"):
            return f"{self.kind}({column})"
        if self.kind == "sum" and oracle.family(answers.type(self.path)) == oracle.WHOLE:
            return f"sum({column}::HUGEINT)"
        if self.kind in ("approx_distinct", "count_distinct"):
            return f"count(DISTINCT {column})"
        if self.kind in ("first", "last"):
            answers.name(self.by)
        return None

    def wanted(self, answers: Answers, group: Group) -> Any:
        """The answer for a group's rows; for estimates what they are judged by."""
        if self.name in group.said:
            return oracle.canon(group.said[self.name])
        values = [answers.values(self.path)[row] for row in group.rows]
        kind, type = self.kind, answers.type(self.path)
        if kind == "sum":
            return oracle.sum_of(values, type)
        if kind == "avg":
            return oracle.average_of(values, type)
        if kind in ("var", "stddev"):
            huge = any(isinstance(v, float) and abs(v) > SQUARED for v in values)
            return oracle.variance_of(values, self.more), huge
        if kind == "quantile":
            shares = [self.more] if isinstance(self.more, float) else self.more
            return [oracle.quantile_of(values, share) for share in shares]
        if kind == "approx_quantile":
            return sorted((v for v in values if v is not None), key=oracle.rank)
        if kind == "histogram":
            return oracle.counts_of(values, self.edges)
        by = [answers.values(self.by)[row] for row in group.rows]
        if kind == "udaf":
            rows = [(v, b) for v, b in zip(values, by, strict=True)]
            return f"{len(rows)}:{sum(map(tallied, rows)) % 2**32}"
        return oracle.canon(oracle.picked_of(values, by, last=kind == "last"))

    # -- whether it was found ----------------------------------------------------------------

    def agrees(self, found: Any, wanted: Any, count: Counter[str]) -> bool:
        """Whether a value of the answer is right."""
        kind = self.kind
        if kind == "approx_distinct":
            count["estimates of distinct values"] += 1
            return abs(found - wanted) <= max(1, 0.1 * wanted)
        if kind == "approx_quantile":
            single = isinstance(self.more, float)
            shares, values = ([self.more], [found]) if single else (self.more, found)
            if not wanted:
                return found is None or all(v is None for v in values)
            return all(_near_rank(v, wanted, share) for v, share in zip(values, shares, strict=True))
        if kind == "quantile":
            values = [found] if isinstance(self.more, float) else found
            if wanted[0] is None:
                return found is None or all(v is None for v in values)
            return all(_close(v, *pair) for v, pair in zip(values, wanted, strict=True))
        if kind in ("var", "stddev"):
            return _spread(found, *wanted, root=kind == "stddev")
        if kind == "histogram":
            counts = [part["count"] for part in found] if found is not None else None
            return counts == wanted
        if isinstance(wanted, Fraction) and found is not None:
            return Fraction(found) == wanted
        return bool(oracle.canon(found) == oracle.canon(wanted))


def _close(found: float | None, wanted: float, off: float) -> bool:
    if found is None:
        return False
    if not math.isfinite(wanted):
        return bool(oracle.canon(found) == oracle.canon(wanted))
    return abs(found - wanted) <= off


def _spread(found: float | None, wanted: Fraction | float | None, huge: bool, *, root: bool) -> bool:
    """As near as can be, or infinite where a square is."""
    if wanted is None or found is None:
        return found is None and wanted is None
    if isinstance(wanted, float):
        return math.isnan(found)
    if huge and math.isinf(found):
        return True
    # The root of a number that no double holds is that of a part of it.
    part = Fraction(2) ** 900 if wanted > 2**1000 else Fraction(1)
    exact = math.sqrt(wanted / part) * math.sqrt(part) if root else oracle.rounded(wanted)
    return abs(found - exact) <= exact * 1e-14 + 1e-150


def _near_rank(found: float | None, values: Sequence[Any], share: float) -> bool:
    """Whether so many values lie below it, give or take three in a hundred."""
    if found is None:
        return False
    ranks = [oracle.rank(float(v)) for v in values]
    # A decimal as a double may be off by its last bit.
    last = abs(found) * 1e-15 if math.isfinite(found) else 0.0
    below, above = oracle.rank(found - last), oracle.rank(found + last)
    low = sum(r < below for r in ranks) / len(ranks)
    high = sum(r <= above for r in ranks) / len(ranks)
    off = 0.03 + 1 / len(ranks)
    return low - off <= share <= high + off


# -- random ones -------------------------------------------------------------------------------


class Asks:
    """Makes functions about one table."""

    def __init__(
        self,
        rng: random.Random,
        answers: Answers,
        paths: Sequence[Path],
        nested: Sequence[Path],
        only: Sequence[str] = (),
    ) -> None:
        self.rng = rng
        self.answers = answers
        self.paths = paths
        self.nested = nested
        self.only = only
        """Kinds to choose from, if not all."""

    def some(self) -> list[Ask]:
        """A few different ones."""
        rng = self.rng
        found: dict[str, Ask] = {}
        for _ in range(rng.choice([1, 1, 2, 3, 4, 6])):
            ask = self.one()
            found[ask.name] = ask
        return list(found.values())

    def one(self) -> Ask:
        rng = self.rng
        if rng.random() < 0.15:
            return Ask("count")
        if self.nested and rng.random() < 0.05:
            return Ask("count", rng.choice(self.nested))
        path = rng.choice(self.paths)
        type = self.answers.type(path)
        kinds = ["count", "udaf"]
        if is_ordered(type):
            kinds += ["min", "max", "min", "max", "first", "last", "approx_distinct", "count_distinct"]
        if oracle.family(type) != oracle.OTHER:
            kinds = [
                *kinds,
                *["sum", "avg", "var"] * 4,
                *["stddev", "quantile", "approx_quantile", "histogram"] * 2,
            ]
        kind = rng.choice([kind for kind in kinds if not self.only or kind in self.only])
        if kind in ("var", "stddev"):
            return Ask(kind, path, more=rng.choice([0, 1]))
        if kind in ("quantile", "approx_quantile"):
            some = tuple(sorted(rng.sample(SHARES, rng.randrange(1, 4))))
            return Ask(kind, path, more=some[0] if rng.random() < 0.5 else some)
        if kind == "histogram":
            return self._histogram(path, type)
        if kind in ("first", "last", "udaf"):
            ordered = [p for p in self.paths if is_ordered(self.answers.type(p))]
            return Ask(kind, path, by=rng.choice(ordered))
        return Ask(kind, path)

    def _histogram(self, path: Path, type: pa.DataType) -> Ask:
        """Edges among the values, between them and beyond."""
        rng = self.rng
        there = {v for v in self.answers.values(path) if v is not None and math.isfinite(v)}
        some: list[Any] = rng.sample(sorted(there), min(len(there), rng.randrange(1, 6)))
        if oracle.family(type) == oracle.WHOLE and rng.random() < 0.5:
            some = [v + rng.choice([0, 0.5]) if abs(v) < 2**50 else v for v in some]
        some += [*range(rng.randrange(2, 4))]
        edges = sorted({Fraction(v): v for v in some}.items())
        return Ask("histogram", path, more=tuple(v for _, v in edges), edges=tuple(f for f, _ in edges))
