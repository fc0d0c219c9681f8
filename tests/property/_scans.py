"""What must hold of every scan of a lake: each way to ask gives a full scan's rows, and plans are sound."""

from __future__ import annotations

import asyncio
import math
import pickle
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import skipstone as sk
from skipstone.predicate import tree
from tests.property._lakes import ROW_ID, VIEWS, Lake, difference, keep, whole
from tests.property._oracle import Oracle

# Each switch with values that change the way and never the answer.
SWITCHES: dict[str, tuple[Any, ...]] = {
    "page_index": (True, True, False),
    "bloom_filter": (True, False),
    "dictionary": (False, True),
    "materialise": ("auto", "late", "one-pass"),
    "route": ("auto", "slice", "slice", "pyarrow"),
    "threads": (1, 2, None),
    "batch_rows": (3, 17, 64, 65_536),
    "memory": (3_000, 20_000, None),
    "checksums": (False, True),
    "skipping": (True, True, True, True, False),
}
Ways = dict[str, Callable[["ScanCase", random.Random], None]]


def random_switches(rng: random.Random) -> dict[str, Any]:
    """Some switches away from their defaults."""
    share = rng.choice([0.2, 0.5, 1.0])
    chosen = {name: rng.choice(values) for name, values in SWITCHES.items() if rng.random() < share}
    return {name: value for name, value in chosen.items() if (name, value) != ("memory", None)}


@dataclass(frozen=True)
class World:
    """An open lake beside its full scan."""

    lake: Lake
    opened: Any
    tables: list[pa.Table]
    """By file, in order of path."""
    table: pa.Table
    oracle: Oracle

    @cached_property
    def starts(self) -> list[int]:
        """Where each file's rows start in the whole table."""
        return [0, *np.cumsum([t.num_rows for t in self.tables]).tolist()]

    def mask(self, predicate: tree.Predicate) -> np.ndarray:
        """Which rows match."""
        return np.array([v is True for v in self.oracle.answer(predicate)], dtype=bool)

    def file_of(self, path: str) -> int:
        """The number of the file that a task or an error names."""
        found = [n for n, f in enumerate(self.lake.files) if path == f.path or path.endswith(f"/{f.path}")]
        assert len(found) == 1, f"{path} is no file of the lake"
        return found[0]


@dataclass
class ScanCase:
    """One predicate about one lake."""

    seed: str
    world: World
    predicate: tree.Predicate | None
    wanted: np.ndarray
    another: Callable[[], tuple[tree.Predicate, np.ndarray]]
    """Makes one more predicate, for the algebra of plans."""
    count: Counter[str]
    words: str = ""

    def fail(self, what: str) -> NoReturn:
        """Raise with everything a reproducer needs."""
        lake = self.world.lake
        lines = [
            what,
            f"  replay    SKIPSTONE_REPLAY={self.seed}",
            f"  call      {self.words}",
            f"  predicate {str(self.predicate)[:2000]}",
            f"  matches   {int(self.wanted.sum())} of {len(self.wanted)}",
            f"  lake      {lake.root}: {lake.words}",
            f"  lake schema {self.world.opened.schema.remove_metadata()!s}",
        ]
        raise AssertionError("\n".join(lines))

    def check(self, found: pa.Table, wanted: pa.Table) -> None:
        """The table must be the wanted one."""
        wrong = difference(found, wanted)
        if wrong is not None:
            self.fail(wrong)

    def scan(self, rng: random.Random, way: str, **more: Any) -> tuple[Any, dict[str, Any]]:
        """A scan with random switches, remembered for a message."""
        switches = random_switches(rng)
        self.words = f"{way} {more} {switches}"
        return self.world.opened.scan(self.predicate, **more, **switches), switches

    def matches(self, columns: Sequence[str] | None, mask: np.ndarray | None = None) -> pa.Table:
        """The rows of the full scan that match, with these columns."""
        table = project(self.world.table, columns)
        return keep(table, pa.array(self.wanted if mask is None else mask))


# -- projections -------------------------------------------------------------------------------


def project(table: pa.Table, columns: Sequence[str] | None) -> pa.Table:
    """Some columns; a field of a struct is a column named by its path."""
    if columns is None:
        return table
    fields, arrays = [], []
    for name in columns:
        top, _, part = (name, "", "") if name in table.column_names else name.partition(".")
        fields.append(table.schema.field(top).with_name(name))
        arrays.append(table.column(top))
        if part:
            struct = whole(arrays[-1])
            # Not struct_field(), which the code under test uses.
            arrays[-1] = struct.field(part).filter(struct.is_valid())
            valid = struct.is_valid()
            places = pc.subtract(pc.cumulative_sum(valid.cast(pa.int64())), 1)
            arrays[-1] = arrays[-1].take(pc.if_else(valid, places, None))
            fields[-1] = pa.field(name, arrays[-1].type)
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields)) if fields else table.select([])


def random_columns(
    rng: random.Random, schema: pa.Schema, predicate: tree.Predicate | None, always: Sequence[str] = ()
) -> list[str] | None:
    """A projection: everything, some columns in any order, none of the predicate's, a field of a struct."""
    style = rng.randrange(8)
    if style == 0:
        return None if always or rng.random() < 0.8 else []
    used = {path[0] for path in predicate.columns()} if predicate is not None else set()
    names = [n for n in schema.names if style != 1 or n not in used]
    names = rng.sample(names, rng.randrange(1, len(names) + 1)) if names else []
    if style == 2 and "st" in schema.names:
        names = [n for n in names if n != "st"]
        names.insert(rng.randrange(len(names) + 1), f"st.{rng.choice(list(schema.field('st').type)).name}")
    if style == 3 and "st" in schema.names:
        names = [n for n in names if n != "st" or rng.random() < 0.5]
        names += [f"st.{part.name}" for part in schema.field("st").type][:2]
    names += [n for n in always if n not in names]
    return names or [ROW_ID]


# -- ways to ask -------------------------------------------------------------------------------


def to_arrow(case: ScanCase, rng: random.Random) -> None:
    """One table."""
    columns = random_columns(rng, case.world.table.schema, case.predicate)
    scan, _ = case.scan(rng, "to_arrow", columns=columns)
    case.check(scan.to_arrow(), case.matches(columns))


def to_reader(case: ScanCase, rng: random.Random) -> None:
    """Batches no longer than asked for."""
    columns = random_columns(rng, case.world.table.schema, case.predicate)
    scan, switches = case.scan(rng, "to_reader", columns=columns)
    reader = scan.to_reader()
    schema, batches = reader.schema, list(reader)
    check_batches(case, batches, switches)
    case.check(joined(batches, schema), case.matches(columns))


def to_batches_async(case: ScanCase, rng: random.Random) -> None:
    """The same from an event loop."""
    columns = random_columns(rng, case.world.table.schema, case.predicate)
    scan, switches = case.scan(rng, "to_batches_async", columns=columns)

    async def collect() -> list[pa.RecordBatch]:
        return [batch async for batch in scan.to_batches_async()]

    batches = asyncio.run(collect())
    check_batches(case, batches, switches)
    wanted = case.matches(columns)
    if batches or wanted.num_rows:
        case.check(joined(batches, wanted.schema if not batches else batches[0].schema), wanted)


def joined(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """One table; one without columns still has rows."""
    if schema.names:
        return pa.Table.from_batches(batches, schema)
    return pa.table({"": pa.nulls(sum(batch.num_rows for batch in batches))}).select([])


def check_batches(case: ScanCase, batches: list[pa.RecordBatch], switches: dict[str, Any]) -> None:
    longest = max((b.num_rows for b in batches), default=0)
    if longest > switches.get("batch_rows", 65_536):
        case.fail(f"a batch of {longest} rows")


def counted(case: ScanCase, rng: random.Random) -> None:
    """A number, with or without a limit."""
    limit = rng.choice([None, None, None, 1, 20])
    scan, _ = case.scan(rng, "count", limit=limit)
    wanted = int(case.wanted.sum()) if limit is None else min(limit, int(case.wanted.sum()))
    found = scan.count()
    if found != wanted:
        case.fail(f"counted {found} instead of {wanted}")


def planned(case: ScanCase, rng: random.Random) -> None:
    """A sound plan that survives pickling and is used twice, with other columns."""
    schema = case.world.table.schema
    columns = random_columns(rng, schema, case.predicate)
    scan, _ = case.scan(rng, "plan", columns=columns)
    plan = scan.plan()
    check_plan(case, plan, case.wanted)
    again = pickle.loads(pickle.dumps(plan))
    if again != plan or hash(again) != hash(plan):
        case.fail("a pickled plan is another plan")
    case.check(sk.execute(again).to_arrow(), case.matches(columns))
    other = random_columns(rng, schema, case.predicate)
    other = schema.names if other is None else other
    case.words += f", executed with {other}"
    case.check(sk.execute(plan, columns=other).to_arrow(), case.matches(other))


def check_plan(case: ScanCase, plan: Any, wanted: np.ndarray) -> None:
    """No match outside the rows of the tasks, no miss inside what is proven."""
    world = case.world
    kept, proven = np.zeros(len(wanted), dtype=bool), np.zeros(len(wanted), dtype=bool)
    for task in plan.tasks:
        file = world.file_of(task.path)
        start, total = world.starts[file], world.tables[file].num_rows
        if task.rows.total != total:
            case.fail(f"a task of {task.path} says {task.rows.total} rows, the file has {total}")
        kept[start + task.rows.positions()] = True
        proven[start + task.proven.positions()] = True
    for what, wrong in (
        ("the plan lost a matching row", wanted & ~kept),
        ("a proven row doesn't match", proven & ~wanted),
        ("a proven row is not in the plan", proven & ~kept),
    ):
        if wrong.any():
            rows = np.flatnonzero(wrong)
            names = world.table.column(ROW_ID).take(pa.array(rows[:5])).to_pylist()
            case.fail(f"{what}: {len(rows)} rows, first rid {names}")
    case.count["plans with a dropped row"] += bool((~kept).any())
    case.count["plans with a proven row"] += bool(proven.any())


def limited(case: ScanCase, rng: random.Random) -> None:
    """So many of the matching rows, whichever."""
    columns = random_columns(rng, case.world.table.schema, case.predicate, always=[ROW_ID])
    total = int(case.wanted.sum())
    limit = rng.choice([0, 1, 3, 10, max(total - 1, 0), total, total + 5])
    scan, _ = case.scan(rng, "limit", columns=columns, limit=limit)
    check_chosen(case, scan.to_arrow(), columns, min(limit, total))


def check_chosen(case: ScanCase, found: pa.Table, columns: Sequence[str] | None, rows: int) -> list[int]:
    """So many different matching rows, each whole; their places in the full scan."""
    if found.num_rows != rows:
        case.fail(f"{found.num_rows} rows instead of {rows}")
    ids = case.world.table.column(ROW_ID).to_pylist()
    places = {rid: n for n, rid in enumerate(ids) if case.wanted[n]}
    chosen = [places.get(rid) for rid in found.column(ROW_ID).to_pylist()]
    if None in chosen:
        case.fail(f"a row that doesn't match: rid {found.column(ROW_ID)[chosen.index(None)]}")
    at = [n for n in chosen if n is not None]
    if len({*at}) < len(at):
        case.fail("a row came twice")
    mask = np.zeros(len(ids), dtype=bool)
    mask[at] = True
    case.check(reorder(found, np.argsort(at)), case.matches(columns, mask))
    return at


def reorder(table: pa.Table, order: np.ndarray) -> pa.Table:
    """Rows in another order; views have no kernel for it."""
    arrays = []
    for column in table.columns:
        plain = VIEWS.get(column.type)
        moved = (column if plain is None else column.cast(plain)).take(pa.array(order, pa.int64()))
        arrays.append(moved if plain is None else moved.cast(column.type))
    return pa.Table.from_arrays(arrays, schema=table.schema)


@dataclass(frozen=True)
class Term:
    """One column of an ORDER BY."""

    path: tuple[str, ...]
    descending: bool
    nulls_last: bool | None

    @property
    def text(self) -> str:
        nulls = "" if self.nulls_last is None else f" nulls {'last' if self.nulls_last else 'first'}"
        return ".".join(self.path) + (" desc" if self.descending else "") + nulls

    def keys(self, oracle: Oracle) -> list[Any]:
        """What rows rise by under Spark's order: NULL lowest unless told, then numbers, then NaN."""
        last = self.descending if self.nulls_last is None else self.nulls_last
        null = (2,) if last != self.descending else (0,)
        return [null if v is None else (1, _rank(v)) for v in oracle.column(self.path).items]


def _rank(value: Any) -> Any:
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    return value.encode() if isinstance(value, str) else value


def random_order(rng: random.Random, schema: pa.Schema) -> list[Term]:
    """One to three columns."""
    paths: list[tuple[str, ...]] = [
        (f.name,) for f in schema if not pa.types.is_nested(f.type) and "." not in f.name
    ]
    chosen = rng.sample(paths, min(len(paths), rng.choice([1, 1, 2, 3])))
    return [Term(path, rng.random() < 0.5, rng.choice([None, None, True, False])) for path in chosen]


def ordered(case: ScanCase, rng: random.Random) -> None:
    """Sorted rows, all or the first few; ties by path and position."""
    world = case.world
    terms = random_order(rng, world.table.schema)
    columns = random_columns(rng, world.table.schema, case.predicate, always=[ROW_ID])
    total = int(case.wanted.sum())
    limit = rng.choice([None, 0, 1, 2, 7, 30, total, total + 3])
    scan, _ = case.scan(rng, "order_by", columns=columns, order_by=[t.text for t in terms], limit=limit)
    rows = np.flatnonzero(case.wanted).tolist()
    keys = [term.keys(world.oracle) for term in terms]
    for term, values in reversed([*zip(terms, keys, strict=True)]):
        rows.sort(key=values.__getitem__, reverse=term.descending)  # a stable sort, also in reverse
    wanted = rows[: total if limit is None else limit]
    found = check_chosen(case, scan.to_arrow(), columns, len(wanted))
    for place, (ours, theirs) in enumerate(zip(found, wanted, strict=True)):
        if [k[ours] for k in keys] != [k[theirs] for k in keys]:
            case.fail(
                f"row {place} of the sorted rows has keys {[k[ours] for k in keys]}, "
                f"not {[k[theirs] for k in keys]}"
            )
    if found != wanted:
        case.fail("ties are not settled by path and position")


def combined(case: ScanCase, rng: random.Random) -> None:
    """Plans of three predicates joined by &, | and -."""
    parts = []
    for predicate, mask in [(case.predicate, case.wanted), case.another(), case.another()]:
        switches = {k: v for k, v in random_switches(rng).items() if k in ("page_index", "bloom_filter")}
        parts.append((case.world.opened.scan(predicate, **switches).plan(), mask, f"({predicate})"))

    def join(depth: int) -> tuple[Any, np.ndarray, str]:
        if depth == 0:
            return rng.choice(parts)
        (a, x, left), (b, y, right) = join(depth - 1), join(rng.randrange(depth))
        op = rng.choice("&|-")
        plan = a & b if op == "&" else a | b if op == "|" else a - b
        mask = x & y if op == "&" else x | y if op == "|" else x & ~y
        return plan, mask, f"[{left} {op} {right}]"

    plan, mask, words = join(rng.choice([1, 1, 2, 3]))
    columns = random_columns(rng, case.world.table.schema, case.predicate, always=[ROW_ID])
    columns = case.world.table.column_names if columns is None else columns
    case.words = f"{words}, executed with {columns}"
    check_plan(case, plan, mask)
    if rng.random() < 0.3:
        plan = pickle.loads(pickle.dumps(plan))
    case.check(sk.execute(plan, columns=columns).to_arrow(), case.matches(columns, mask))


def verified(case: ScanCase, rng: random.Random) -> None:
    """The scan's own comparison with an unpruned one finds nothing."""
    scan, _ = case.scan(rng, "verify")
    report = scan.verify()
    if not report.ok:
        case.fail(f"verify says {report}")


WAYS: Ways = {
    "to_arrow": to_arrow,
    "to_reader": to_reader,
    "to_batches_async": to_batches_async,
    "count": counted,
    "plan": planned,
    "limit": limited,
    "order_by": ordered,
    "algebra": combined,
    "verify": verified,
}
SHARES = (6, 2, 1, 2, 4, 3, 4, 3, 1)
