"""Random conditions as SQL text, which Spark and Skipstone both read."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

OPS = ("=", "<>", "<", "<=", ">", ">=", "<=>")


@dataclass(frozen=True)
class Kind:
    """Literals that a column is compared with, and whole conditions about it; ``{}`` is the column."""

    literals: Sequence[str]
    conditions: Sequence[str] = ()


WHOLE = Kind(
    ("0", "1", "-1", "3", "100", "-128", "127", "5.5", "2.5D", "'7'", "200", "9999999999", "null", "1e0"),
    ("{} % 2 = 1", "{} / 2 > 3", "{} is null", "{} is not null", "cast({} as double) < 2.5D"),
)
UNSIGNED = Kind(("0", "1", "3", "200", "255", "65535", "4294967295", "18446744073709551615", "5.5"), ())
REAL = Kind(
    (
        *("0", "1", "0.1", "0.1D", "0.1F", "-0.0D", "2.5", "-2.5", "1e300D", "cast('NaN' as double)"),
        *("cast('Infinity' as double)", "cast('-Infinity' as double)", "null", "'1.5'"),
    ),
    ("isnan({})", "not isnan({})", "{} is null", "{} + 0.5D > 1", "{} is not null"),
)
DECIMAL = Kind(
    ("0", "1.25", "-1.25", "1.005", "3", "2.5D", "99999.99", "cast(1.25 as decimal(20,5))", "null"),
    ("{} is null", "cast({} as double) < 1.1D"),
)
TEXT = Kind(
    ("''", "'a'", "'ab'", "'a%b'", "'Ä'", "'zz'", "'it''s'", "'漢'", "null", "'aXb'"),
    (
        *("{} like 'a%'", "{} like '%b'", "{} like 'a_b'", r"{} like 'a\\%b'", "{} not like 'a%'"),
        *("startswith({}, 'a')", "contains({}, 'b')", "length({}) = 2", "upper({}) = 'AB'", "{} is null"),
        *("substr({}, 1, 1) = 'a'", "{} ilike 'A%'", "{} is not null"),
    ),
)
BYTES = Kind(("X''", "X'61'", "X'FF'", "X'6162'", "X'00'"), ("{} is null", "{} is not null"))
FLAG = Kind(("true", "false", "null"), ("{}", "not {}", "{} is true", "{} is not true", "{} is unknown"))
DAY = Kind(
    (
        *("DATE '2020-01-03'", "DATE '1969-12-31'", "'2020-01-05'", "DATE '2020-03-08'", "null"),
        *("TIMESTAMP '2020-01-03 12:00:00'", "TIMESTAMP_NTZ '2020-01-03 00:00:00'", "DATE '0001-01-01'"),
    ),
    ("year({}) = 2020", "{} is null", "{} is not null", "month({}) in (1, 3)"),
)
STAMP = Kind(
    (
        *("TIMESTAMP '2020-01-03 12:00:00'", "'2020-01-05'", "'2020-03-08 02:30:00'", "DATE '2020-01-04'"),
        *("TIMESTAMP '2020-01-02 00:00:00+05:30'", "TIMESTAMP_NTZ '2020-01-03 00:00:00'", "null"),
        *("TIMESTAMP '1969-12-31 23:59:59.999'", "TIMESTAMP_LTZ '2020-11-01 01:30:00'", "'2020-01-01 05:30'"),
    ),
    (
        *("cast({} as date) = DATE '2020-01-03'", "year({}) = 2020", "hour({}) > 3", "{} is null"),
        *("date_trunc('day', {}) = TIMESTAMP '2020-01-03 00:00:00'", "cast({} as date) >= DATE '2020-03-08'"),
    ),
)
NULLS = Kind((), ("{} is null", "{} is not null"))


class Questions:
    """Makes conditions about columns, given as text, of some kinds."""

    def __init__(self, seed: object, columns: Mapping[str, Kind]) -> None:
        self.rng = random.Random(str(seed))
        self.columns = dict(columns)

    def leaf(self) -> str:
        """One condition about one column."""
        rng = self.rng
        name = rng.choice(list(self.columns))
        kind = self.columns[name]
        if not kind.literals or (kind.conditions and rng.random() < 0.3):
            return rng.choice(kind.conditions).format(name)
        style = rng.randrange(6)
        if style == 0:
            some = ", ".join(rng.sample(kind.literals, min(len(kind.literals), rng.choice([1, 2, 3]))))
            return f"{name} {rng.choice(['in', 'not in'])} ({some})"
        if style == 1:
            low, high = rng.choice(kind.literals), rng.choice(kind.literals)
            return f"{name} {rng.choice(['between', 'not between'])} {low} and {high}"
        literal = rng.choice(kind.literals)
        if style == 2:
            return f"{literal} {rng.choice(OPS)} {name}"
        return f"{name} {rng.choice(OPS)} {literal}"

    def condition(self, depth: int | None = None) -> str:
        """A tree of conditions."""
        rng = self.rng
        depth = rng.choice([0, 0, 0, 1, 1, 2]) if depth is None else depth
        if depth == 0:
            return self.leaf()
        style = rng.randrange(8)
        if style == 0:
            return f"not ({self.condition(depth - 1)})"
        if style == 1:
            return (
                f"({self.condition(depth - 1)}) is {rng.choice(['', 'not '])}{rng.choice(['true', 'false'])}"
            )
        joint = " and " if style <= 4 else " or "
        return joint.join(f"({self.condition(depth - 1)})" for _ in range(2))

    def some(self, count: int) -> list[str]:
        """So many different ones."""
        found: dict[str, None] = {}
        while len(found) < count:
            found[self.condition()] = None
        return list(found)
