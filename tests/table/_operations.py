"""Random operations on a keyed table, as data, and shorter traces of them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa

SCHEMA = pa.schema(
    {"region": pa.string(), "n": pa.int32(), "v": pa.int64(), "s": pa.string(), "f": pa.float64()}
)
REGIONS = ("eu", "us")
NUMBERS = 40
"""Keys are few, so that most writes replace rows."""
Row = dict[str, Any]
Key = tuple[Any, ...]
Operation = tuple[Any, ...]
"""A method of ``Pair``, and its arguments."""

# -- predicates --------------------------------------------------------------------------------

Leaf = tuple[str, str, Any]
"""Column, operator and literal."""
Condition = tuple[Any, ...]
"""A leaf, or ``and``, ``or`` or ``not`` and conditions."""


def text(condition: Condition) -> str:
    """SQL."""
    first, *rest = condition
    if first in ("and", "or"):
        return f" {first} ".join(f"({text(one)})" for one in rest)
    if first == "not":
        return f"not ({text(rest[0])})"
    operator, literal = rest
    if operator == "null":
        return f"{first} is null"
    if operator == "in":
        return f"{first} in ({', '.join(map(_literal, literal))})"
    return f"{first} {operator} {_literal(literal)}"


def _literal(value: Any) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value)


def holds(condition: Condition, row: Row) -> bool | None:
    """Three-valued logic; NaN is equal to itself, and larger than all numbers."""
    first, *rest = condition
    if first in ("and", "or"):
        results = [holds(one, row) for one in rest]
        decided = first == "or"
        return decided if decided in results else None if None in results else not decided
    if first == "not":
        inner = holds(rest[0], row)
        return None if inner is None else not inner
    operator, literal = rest
    value = row[first]
    if operator == "null":
        return value is None
    if value is None:
        return None
    if operator == "in":
        return value in literal
    one, other = ordered(value), ordered(literal)
    return {"=": one == other, "<": one < other, ">": one > other, "<=": one <= other, "<>": one != other}[
        operator
    ]


def ordered(value: Any) -> Any:
    """A value that compares as in SQL."""
    return (math.isnan(value), 0.0 if math.isnan(value) else value) if isinstance(value, float) else value


def sort_key(value: Any) -> Any:
    """NULLs come first."""
    return (value is not None, ordered(value) if value is not None else 0)


# -- random operations -------------------------------------------------------------------------


class Chance(random.Random):
    """Draws operations."""

    def row(self) -> Row:
        return {
            "region": self.choice(REGIONS),
            "n": self.randrange(NUMBERS),
            "v": self.choice([None, *range(0, 200, 10)]),
            "s": self.choice([None, "", "a", "b", "x" * 20]),
            "f": self.choice([None, math.nan, -1.5, 0.0, 2.5, 1e300]),
        }

    def some_rows(self, most: int = 12) -> list[Row]:
        return [self.row() for _ in range(self.randint(1, most))]

    def some_keys(self, most: int = 6) -> list[Key]:
        count = self.randint(1, most)
        return [(self.choice(REGIONS), self.randrange(NUMBERS)) for _ in range(count)]

    def condition(self, depth: int = 2) -> Condition:
        if depth and self.random() < 0.4:
            inner = [self.condition(depth - 1) for _ in range(2)]
            return self.choice([("and", *inner), ("or", *inner), ("not", inner[0])])
        column = self.choice(["n", "n", "v", "v", "region", "s", "f"])
        if self.random() < 0.1:
            return (column, "null", None)
        literals = {
            "n": range(NUMBERS),
            "v": range(0, 200, 5),
            "region": REGIONS,
            "s": ["", "a", "x" * 20],
            "f": [-1.5, 0.0, 2.5],
        }[column]
        if self.random() < 0.2:
            return (column, "in", tuple(self.choice(literals) for _ in range(3)))
        return (column, self.choice(["=", "<", ">", "<=", "<>"]), self.choice(literals))

    def maybe(self, make: Callable[[], Any], share: float = 0.7) -> Any:
        return make() if self.random() < share else None

    def read(self) -> Operation:
        kind = self.choices(["scan", "count", "total", "get"], [5, 2, 1, 3])[0]
        if kind == "get":
            return (kind, self.some_keys())
        where = self.maybe(self.condition)
        if kind != "scan":
            return (kind, where)
        return (
            kind,
            where,
            self.maybe(self.columns, 0.5),
            self.maybe(lambda: self.randint(0, 30), 0.3),
            *self.order(),
        )

    def columns(self) -> list[str]:
        return self.sample(SCHEMA.names, self.randint(1, 5))

    def order(self) -> tuple[list[str] | None]:
        chosen = self.sample(SCHEMA.names, self.randint(1, 2))
        return (self.maybe(lambda: [f"{name} {self.choice(['asc', 'desc'])}" for name in chosen], 0.3),)

    def staged(self) -> Operation:
        """What a transaction does."""
        name = self.choices([*WRITES, "read"], [4, 2, 1, 1, 1, 1, 5])[0]
        return self.named(name)

    def operation(self) -> Operation:
        return self.named(self.choices(list(SHARES), list(SHARES.values()))[0])

    def named(self, name: str) -> Operation:
        if name == "read":
            return self.read()
        make: dict[str, Callable[[], Operation]] = {
            "put": lambda: (self.some_rows(),),
            "delete": lambda: (self.some_keys(),),
            "append": lambda: (self.some_rows(2),),
            "delete_where": lambda: (self.condition(1),),
            "update": lambda: (self.condition(1), self.choice([None, 7, 195])),
            "merge": lambda: (self.some_rows(), self.choice(["insert", "ignore"])),
            "elsewhere": lambda: (self.some_rows(4), self.some_keys(2)),
            "hold": lambda: (self.maybe(self.condition), self.maybe(self.columns, 0.5)),
            "tag": lambda: (self.randrange(4),),
            "untag": lambda: (self.randrange(4),),
            "old": lambda: (self.random(),),
            "others": lambda: (self.random(),),
            "changes": lambda: (self.random(), self.random()),
            "rollback": lambda: (self.random(),),
            "compact": lambda: (self.random() < 0.5,),
            "expire": lambda: (self.randint(1, 6),),
            "evolve": lambda: (self.choice(["add", "add", "drop", "rename", "widen"]), self.random() < 0.5),
            "nest": lambda: (
                self.choice(["add", "drop", "rename", "exchange", "again"]),
                self.choice(["st", "l", "m"]),
                self.random() < 0.5,
            ),
            "respec": lambda: (self.choice(["add", "remove", "replace"]), self.random(), self.random() < 0.5),
            "transaction": lambda: ([self.staged() for _ in range(self.randint(1, 4))], self.random() < 0.8),
            "begin": lambda: (self.randrange(2),),
            "within": lambda: (self.randrange(2), self.staged()),
            "end": lambda: (self.randrange(2), self.random() < 0.8),
            "reopen": lambda: (self.random() < 0.5, self.random() < 0.5),
            "tail": lambda: (self.choice(["every", "interval", "off", None]), self.choice([100_000, 15])),
        }
        return (name, *(make[name]() if name in make else ()))


WRITES = ("put", "delete", "append", "delete_where", "update", "merge")
SHARES = {
    "put": 24, "delete": 8, "append": 1.5, "delete_where": 1.5, "update": 1.5, "merge": 1.5,
    "read": 24, "hold": 1.5, "release": 1, "flush": 4, "reopen": 1.5, "tail": 3, "elsewhere": 2,
    "transaction": 1.5, "begin": 4, "within": 9, "end": 4,
    "pin": 3, "tag": 1, "untag": 0.5, "old": 3, "others": 0.4, "changes": 1, "rollback": 0.5,
    "compact": 2.5, "index": 0.5, "evolve": 0.5, "expire": 1.2, "manifests": 0.6, "orphans": 0.4,
    "nest": 2, "respec": 1.5,
}  # fmt: skip
"""How often each operation is drawn."""


def operations(seed: int, count: int) -> list[Operation]:
    """Random operations; the first opens the tail."""
    chance = Chance(seed)
    return [("tail", "off", 100_000), *(chance.operation() for _ in range(count - 1))]


# -- shorter traces ---------------------------------------------------------------------------


def shorten(trace: list[Operation], fails: Callable[[list[Operation]], bool]) -> list[Operation]:
    """Leave out operations, and then rows, keys and operations in operations, while the rest still fails."""
    trace = _fewer(trace, fails)
    for at, operation in enumerate(trace):
        for place, argument in enumerate(operation):
            if isinstance(argument, list):
                put = partial(_with, trace, at, place)
                trace = put(_fewer(argument, lambda shorter, put=put: fails(put(shorter))))
    return trace


def _with(trace: list[Operation], at: int, place: int, argument: list[Any]) -> list[Operation]:
    """The trace with another argument of one operation."""
    old = trace[at]
    return [*trace[:at], (*old[:place], argument, *old[place + 1 :]), *trace[at + 1 :]]


def _fewer(parts: list[Any], fails: Callable[[list[Any]], bool]) -> list[Any]:
    """Leave out many parts at a time, and then one by one; at least one is left."""
    size = len(parts) // 2
    while size:
        start = 0
        while start < len(parts):
            shorter = parts[:start] + parts[start + size :]
            if shorter and fails(shorter):
                parts = shorter
            else:
                start += size
        size //= 2
    return parts
