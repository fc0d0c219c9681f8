"""Random operations on a keyed table and on a dict, which must agree after each of them.

Operations are data: a trace that fails is shortened by leaving operations out, and printed.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import skipstone as sk

TABLE = "db.t"
SCHEMA = pa.schema(
    {"region": pa.string(), "n": pa.int32(), "v": pa.int64(), "s": pa.string(), "f": pa.float64()}
)
KEYS = (["n"], ["region", "n"])
REGIONS = ("eu", "us")
NUMBERS = 40
"""Keys are few, so that most writes replace rows."""
Row = dict[str, Any]
Key = tuple[Any, ...]
Rows = dict[Key, Row]
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
        columns = self.maybe(lambda: self.sample(SCHEMA.names, self.randint(1, 5)), 0.5)
        order = self.maybe(lambda: [f"{self.choice(SCHEMA.names)} {self.choice(['asc', 'desc'])}"], 0.3)
        return (kind, where, columns, self.maybe(lambda: self.randint(0, 30), 0.3), order)

    def staged(self) -> list[Operation]:
        """What a transaction does."""
        return [
            self.choice([("put", self.some_rows()), ("delete", self.some_keys()), self.read()])
            for _ in range(self.randint(1, 4))
        ]

    def operation(self) -> Operation:
        name = self.choices(
            [*WRITES, "read", "flush", "pin", "old", "changes", "compact", "transaction", "reopen", "tail"],
            [26, 8, 2, 2, 2, 2, 26, 5, 3, 3, 1, 1.5, 4, 2, 4],
        )[0]
        if name == "read":
            return self.read()
        make: dict[str, Callable[[], Operation]] = {
            "put": lambda: (self.some_rows(),),
            "delete": lambda: (self.some_keys(),),
            "append": lambda: (self.some_rows(2),),
            "delete_where": lambda: (self.condition(1),),
            "update": lambda: (self.condition(1), self.choice([None, 7, 195])),
            "merge": lambda: (self.some_rows(), self.choice(["insert", "ignore"])),
            "old": lambda: (self.random(),),
            "changes": lambda: (self.random(), self.random()),
            "compact": lambda: (self.random() < 0.5,),
            "transaction": lambda: (self.staged(), self.random() < 0.8),
            "reopen": lambda: (self.random() < 0.5,),
            "tail": lambda: (self.choice(["every", "interval", "off", None]),),
        }
        return (name, *(make[name]() if name in make else ()))


WRITES = ("put", "delete", "append", "delete_where", "update", "merge")


def operations(seed: int, count: int) -> list[Operation]:
    """Random operations; the first opens the tail."""
    chance = Chance(seed)
    return [("tail", "off"), *(chance.operation() for _ in range(count - 1))]


# -- a table and a dict ------------------------------------------------------------------------


@dataclass
class Pair:
    """A table, and what is expected of it."""

    folder: Path
    keys: Sequence[str]
    rows: Rows = field(default_factory=dict)
    past: dict[int, Rows] = field(default_factory=dict)
    """Rows of snapshots."""

    def __post_init__(self) -> None:
        self.catalog = sk.catalog(self.folder)
        self.table = self.catalog.create_table(TABLE, SCHEMA, key=self.keys)
        self.writer: sk.TailWriter | None = None

    def key(self, row: Row) -> Key:
        return tuple(row[name] for name in self.keys)

    def short(self, key: Key) -> Key:
        """A key of both columns, as a key of this table."""
        return key[-len(self.keys) :]

    def do(self, operation: Operation) -> None:
        name, *args = operation
        getattr(self, name)(*args)

    # -- writes ------------------------------------------------------------------------------

    def put(self, rows: list[Row]) -> None:
        (self.writer or self.table).upsert(pa.Table.from_pylist(rows, SCHEMA))
        self.rows.update((self.key(row), row) for row in rows)

    def delete(self, keys: list[Key]) -> None:
        chosen = [self.short(key) for key in keys]
        # One column takes plain values.
        plain = [key[0] for key in chosen] if len(self.keys) == 1 else chosen
        (self.writer or self.table).delete(keys=plain)
        for key in chosen:
            self.rows.pop(key, None)

    def append(self, rows: list[Row]) -> None:
        added = {self.key(row): row for row in rows}
        table = pa.Table.from_pylist(rows, SCHEMA)
        if len(added) < len(rows) or self.rows.keys() & added:
            try:
                self.table.append(table)
            except sk.DuplicateKeyError:
                return
            raise AssertionError("duplicate keys were appended")
        self.table.append(table)
        self.rows.update(added)

    def delete_where(self, where: Condition) -> None:
        self.table.delete(text(where))
        self.rows = {key: row for key, row in self.rows.items() if not holds(where, row)}

    def update(self, where: Condition, value: int | None) -> None:
        self.table.update(text(where), {"v": value})
        for key, row in self.rows.items():
            if holds(where, row):
                self.rows[key] = {**row, "v": value}

    def merge(self, rows: list[Row], unmatched: str) -> None:
        """Matched rows are updated; others are inserted or ignored."""
        source = {self.key(row): row for row in rows}
        self.table.merge(pa.Table.from_pylist(list(source.values()), SCHEMA), when_not_matched=unmatched)
        self.rows.update(
            {key: row for key, row in source.items() if unmatched == "insert" or key in self.rows}
        )

    def transaction(self, staged: list[Operation], commits: bool) -> None:
        before, self.rows = dict(self.rows), dict(self.rows)
        table, writer = self.table, self.writer
        try:
            with table.transaction() as changes:
                # Reads and writes of the block are those of the transaction.
                self.table, self.writer = changes, None
                for operation in staged:
                    self.do(operation)
                if not commits:
                    raise _AbortError
        except _AbortError:
            self.rows = before
        finally:
            self.table, self.writer = table, writer

    # -- what changes no rows ----------------------------------------------------------------

    def tail(self, sync: str | None) -> None:
        """Close the writer, and open another one unless ``sync`` is None."""
        if self.writer is not None:
            self.writer.close(flush=sync is None or sync == "every")
        if sync is not None:
            self.writer = self.table.writer(sync=sync, flush_seconds=None)
        elif self.writer is not None:
            self.writer = None
        self.scan()

    def flush(self) -> None:
        if self.writer is not None:
            self.writer.flush()
        assert rows_of(self.catalog.open(TABLE).scan()) == expected(self.rows)

    def pin(self) -> None:
        self.flush()
        if self.table.snapshot is not None:
            self.past[self.table.snapshot] = dict(self.rows)

    def compact(self, elsewhere: bool) -> None:
        """Rewrite all files, by this table or by another process."""
        table = self.catalog.open(TABLE) if elsewhere else self.table
        table.compact(table.plan_compaction(rewrite_all=True), engine="local", threads=1)
        if elsewhere:
            self.scan()
            self.table.refresh()
        self.scan()

    def reopen(self, flush: bool) -> None:
        """As if the process had ended and started again."""
        writer = self.writer
        if writer is not None:
            writer.close(flush=flush)
        self.table = self.catalog.open(TABLE)
        if writer is not None:
            self.writer = self.table.writer(sync="off", flush_seconds=None)
        self.scan()

    # -- reads -------------------------------------------------------------------------------

    def matching(self, where: Condition | None) -> list[Row]:
        return [row for row in self.rows.values() if where is None or holds(where, row)]

    def scan(
        self,
        where: Condition | None = None,
        columns: list[str] | None = None,
        limit: int | None = None,
        order: list[str] | None = None,
    ) -> None:
        sql = None if where is None else text(where)
        found = self.table.scan(sql, columns=columns, limit=limit, order_by=order).to_arrow().to_pylist()
        wanted = [{name: row[name] for name in columns or SCHEMA.names} for row in self.matching(where)]
        count = len(wanted) if limit is None else min(limit, len(wanted))
        assert len(found) == count, f"{len(found)} rows instead of {count}"
        extra = Counter(map(canonical, found)) - Counter(map(canonical, wanted))
        assert not extra, f"wrong rows: {list(extra)}"
        if order is not None:
            name, direction = order[0].split()
            values = [sort_key(row[name]) for row in self.matching(where)]
            values.sort(reverse=direction == "desc")
            if columns is None or name in columns:
                assert [sort_key(row[name]) for row in found] == values[:count], "wrong order"

    def count(self, where: Condition | None) -> None:
        found = self.table.scan(None if where is None else text(where)).count()
        assert found == len(self.matching(where)), f"counted {found}"

    def total(self, where: Condition | None) -> None:
        scan = self.table.scan(None if where is None else text(where))
        found = scan.aggregate(sk.count(), sk.sum("v"), sk.max("n")).to_pylist()[0]
        rows = self.matching(where)
        values = [row["v"] for row in rows if row["v"] is not None]
        wanted = [len(rows), sum(values) if values else None, max((row["n"] for row in rows), default=None)]
        assert list(found.values()) == wanted, f"aggregates are {found}, not {wanted}"

    def get(self, keys: list[Key]) -> None:
        chosen = [self.short(key) for key in keys]
        one = self.table.get(chosen[0] if len(self.keys) > 1 else chosen[0][0])
        wanted = self.rows.get(chosen[0])
        assert (one is None) == (wanted is None), f"get gave {one}"
        assert wanted is None or canonical(one) == canonical(wanted)
        many = self.table.get_many(chosen if len(self.keys) > 1 else [key[0] for key in chosen]).to_pylist()
        distinct = {key: self.rows[key] for key in chosen if key in self.rows}
        assert Counter(map(canonical, many)) == Counter(map(canonical, distinct.values()))

    def some_past(self, share: float) -> int | None:
        return list(self.past)[int(share * len(self.past))] if self.past else None

    def old(self, share: float) -> None:
        """A snapshot has its rows for ever."""
        number = self.some_past(share)
        if number is not None:
            assert rows_of(self.table.at(number).scan()) == expected(self.past[number])

    def changes(self, one: float, other: float) -> None:
        """Rows that differ between two snapshots."""
        order = list(self.past)
        start, end = sorted(
            (self.some_past(share) for share in (one, other)),
            key=lambda number: -1 if number is None else order.index(number),
        )
        if end is None:
            return
        before, after = self.past[start] if start is not None else {}, self.past[end]
        found = self.table.changes(start, end)
        updated = {key for key in before.keys() & after if canonical(before[key]) != canonical(after[key])}
        for rows, wanted in (
            (found.inserted, [after[key] for key in after.keys() - before]),
            (found.deleted, [before[key] for key in before.keys() - after]),
            (found.updated, [after[key] for key in updated]),
            (found.before, [before[key] for key in updated]),
        ):
            assert Counter(map(canonical, rows.to_pylist())) == Counter(map(canonical, wanted))


class _AbortError(Exception):
    """Ends a transaction without a commit."""


def canonical(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """A row that can be compared and hashed, with its columns by name."""
    return tuple(
        (name, "nan" if isinstance(value, float) and math.isnan(value) else value)
        for name, value in sorted(row.items())
    )


def rows_of(scan: sk.Scan) -> Counter[tuple[Any, ...]]:
    return Counter(map(canonical, scan.to_arrow().to_pylist()))


def expected(rows: Rows) -> Counter[tuple[Any, ...]]:
    return Counter(map(canonical, rows.values()))


# -- runs --------------------------------------------------------------------------------------


@contextmanager
def pair(folder: Path, keys: Sequence[str]) -> Iterator[Pair]:
    """A new table, whose writer is closed at the end."""
    made = Pair(folder, keys)
    try:
        yield made
    finally:
        if made.writer is not None:
            made.writer.close(flush=False)


def failure(
    folder: Path, keys: Sequence[str], trace: Sequence[Operation]
) -> tuple[int, BaseException] | None:
    """The first operation that fails, and how; None if all agree, also at the end."""
    number = -1
    try:
        with pair(folder, keys) as run:
            for number, operation in enumerate(trace):  # noqa: B007
                run.do(operation)
            run.flush()
            run.reopen(flush=True)
    except Exception as error:
        return number, error
    return None


def check(folder: Path, keys: Sequence[str], trace: Sequence[Operation]) -> None:
    """Run a trace; if it fails, shorten it, and show the shortest one."""
    failed = failure(folder / "first", keys, trace)
    if failed is None:
        return
    attempts = iter(range(1_000))

    def fails(shorter: Sequence[Operation]) -> bool:
        return failure(folder / f"shorter-{next(attempts)}", keys, shorter) is not None

    shortest = shorten(list(trace[: failed[0] + 1]), fails)
    last = failure(folder / "last", keys, shortest)
    steps = "\n".join(f"    {operation!r}," for operation in shortest)
    problem = failed[1] if last is None else last[1]
    raise AssertionError(
        f"{type(problem).__name__}: {problem}\nkeys={list(keys)}\n[\n{steps}\n]"
    ) from problem


def shorten(trace: list[Operation], fails: Callable[[Sequence[Operation]], bool]) -> list[Operation]:
    """Leave out operations, many at a time and then one by one, while the rest still fails."""
    size = len(trace) // 2
    while size:
        start = 0
        while start < len(trace):
            shorter = trace[:start] + trace[start + size :]
            if shorter and fails(shorter):
                trace = shorter
            else:
                start += size
        size //= 2
    return trace
