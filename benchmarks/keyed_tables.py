"""Writes and look-ups by key: ``python -m benchmarks.keyed_tables [--rows N | --large] [--part ...]``.

*Gets*: 10,000 rows by key, one call each. *Upsert*: 10,000 keys, nine in ten of which exist, in no order,
into a table of 1 million rows (``--large``: 20 million). *Delete*: one row in a hundred, by key, after the
upserts. *Pairs*: 5,000 keys of two columns into 50,000 rows. *Tail*: single rows, one call each, by sync
policy and as upserts; then scans with 100,000 unflushed rows and without. Every repetition writes other keys;
tables grow as they do in use, so a table of ours carries the delete files of the repetitions before.

Peers are pyiceberg's ``upsert`` and ``delete`` and deltalake's ``merge``, which also write open formats, and
as a ceiling DuckDB's own tables with a primary key; SQLite for look-ups. After the first repetition all
tables must have the same rows. Bytes are those of files that a write has added, or by which a database file
has grown. pyiceberg takes up to a minute for some of these: ``--skip pyiceberg`` leaves it out.
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, get_args

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import skipstone as sk
from benchmarks.harness import OURS, Bench, Case, CaseResult, Contender, Pace, Role, Target, Work
from benchmarks.peers import THREADS
from skipstone.table.tail.wal import SyncPolicy

ROWS, LARGE, QUICK_ROWS = 1_000_000, 20_000_000, 100_000
UPSERTED, GETS, PAIRS, PAIR_ROWS = 10_000, 10_000, 5_000, 50_000
PARTS = ("gets", "upsert", "delete", "pairs", "tail")
TAIL, CALLS = 100_000, 300
COUNTRIES = ("DE", "FR", "US", "SE", "BR", "IN", "JP", "ZA")
# pyiceberg turns a list of keys into an expression with a literal for each.
MOST_LITERALS = 20_000
PACE = Pace(seconds=20.0, least=1, most=5)
FEW = Pace(seconds=0.4, least=1, most=3)


def rows_of(ids: np.ndarray[Any, Any], seed: int, *, pairs: bool) -> pa.Table:
    """Rows with these ids; of pairs, the region is part of the key."""
    random = np.random.default_rng(seed)
    columns = {
        "id": ids // len(COUNTRIES) if pairs else ids,
        "region": np.array(COUNTRIES)[ids % len(COUNTRIES)],
        "ts": pa.array(1_767_225_600_000_000 + ids * 1_000_000, pa.timestamp("us", "UTC")),
        "amount": np.round(random.random(len(ids)) * 100, 2),
        "v": random.integers(1_000_000, size=len(ids)),
    }
    return pa.table(columns, SCHEMA)


SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "region": pa.string(),
        "ts": pa.timestamp("us", "UTC"),
        "amount": pa.float64(),
        "v": pa.int64(),
    }
)


class Store(ABC):
    """A table of one system, with its rows; ``key`` are its key columns."""

    name: str

    def __init__(self, folder: Path, rows: pa.Table, key: Sequence[str]) -> None:
        self.folder, self.key = folder / self.name.replace(" ", "_"), tuple(key)
        self.folder.mkdir(parents=True)
        self.load(rows)

    @abstractmethod
    def load(self, rows: pa.Table) -> None:
        """Create the table."""

    @abstractmethod
    def upsert(self, rows: pa.Table) -> None:
        """Insert rows, or replace those with the same key."""

    @abstractmethod
    def delete(self, keys: pa.Table) -> None:
        """Delete rows by key."""

    @abstractmethod
    def totals(self) -> tuple[int, int]:
        """The number of rows, and the sum of ``v``."""

    def size(self) -> dict[str, int]:
        """Bytes of each file."""
        return {str(path): path.stat().st_size for path in self.folder.rglob("*") if path.is_file()}


class Ours(Store):
    """A keyed table with an index."""

    name = OURS
    compare = True

    def load(self, rows: pa.Table) -> None:
        self.table = sk.catalog(self.folder).create_table("db.t", rows.schema, key=self.key)
        sk.ingest(rows, self.table, engine="local", threads=THREADS)

    def upsert(self, rows: pa.Table) -> None:
        self.table.upsert(rows, compare=self.compare)

    def delete(self, keys: pa.Table) -> None:
        self.table.delete(keys=keys)

    def totals(self) -> tuple[int, int]:
        rows = self.table.scan(columns=["v"]).to_arrow()
        return len(rows), pc.sum(rows["v"]).as_py()


class OursUncompared(Ours):
    """Without a comparison with the rows in the table, so that only keys are read."""

    name = f"{OURS}, compare=False"
    compare = False


class PyIceberg(Store):
    """pyiceberg on a table without skipping aids of ours."""

    name = "pyiceberg"

    def load(self, rows: pa.Table) -> None:
        required = [field.with_nullable(field.name not in self.key) for field in rows.schema]
        self.schema = pa.schema(required)
        catalog = sk.catalog(self.folder).iceberg
        catalog.create_namespace("db")
        self.table = catalog.create_table("db.t", self.schema)
        self.table.append(rows.cast(self.schema))

    def upsert(self, rows: pa.Table) -> None:
        self.table.upsert(rows.cast(self.schema), join_cols=list(self.key))

    def delete(self, keys: pa.Table) -> None:
        from pyiceberg.expressions import In

        self.table.delete(In("id", set(keys["id"].to_pylist())))

    def totals(self) -> tuple[int, int]:
        rows = self.table.scan(selected_fields=("v",)).to_arrow()
        return len(rows), pc.sum(rows["v"]).as_py()


class Delta(Store):
    """deltalake's merge."""

    name = "deltalake"

    def load(self, rows: pa.Table) -> None:
        from deltalake import write_deltalake

        write_deltalake(str(self.folder), rows)

    def _merge(self, rows: pa.Table) -> Any:
        from deltalake import DeltaTable

        on = " AND ".join(f"t.{name} = s.{name}" for name in self.key)
        return DeltaTable(str(self.folder)).merge(rows, on, source_alias="s", target_alias="t")

    def upsert(self, rows: pa.Table) -> None:
        self._merge(rows).when_matched_update_all().when_not_matched_insert_all().execute()

    def delete(self, keys: pa.Table) -> None:
        self._merge(keys).when_matched_delete().execute()

    def totals(self) -> tuple[int, int]:
        from deltalake import DeltaTable

        rows = pa.table(DeltaTable(str(self.folder)).to_pyarrow_table(columns=["v"]))
        return len(rows), pc.sum(rows["v"]).as_py()


class DuckDb(Store):
    """DuckDB's own table with a primary key: a database, not an open format."""

    name = "duckdb table"

    def load(self, rows: pa.Table) -> None:
        self.connection = duckdb.connect(self.folder / "t.duckdb", config={"threads": THREADS})
        self.connection.register("rows", rows)
        columns = "id BIGINT, region VARCHAR, ts TIMESTAMPTZ, amount DOUBLE, v BIGINT"
        self.connection.execute(f"CREATE TABLE t ({columns}, PRIMARY KEY ({', '.join(self.key)}))")
        self.connection.execute("INSERT INTO t SELECT * FROM rows")
        self.connection.unregister("rows")

    def upsert(self, rows: pa.Table) -> None:
        self.connection.register("rows", rows)
        self.connection.execute("INSERT OR REPLACE INTO t SELECT * FROM rows")

    def delete(self, keys: pa.Table) -> None:
        self.connection.register("gone", keys)
        self.connection.execute("DELETE FROM t WHERE id IN (SELECT id FROM gone)")

    def totals(self) -> tuple[int, int]:
        (found,) = self.connection.execute("SELECT count(*), sum(v) FROM t").fetchall()
        return found[0], int(found[1])

    def get(self, key: int) -> Any:
        (row,) = self.connection.execute("SELECT * FROM t WHERE id = ?", [key]).fetchall()
        return row


def _least(times: float, peer: str) -> Target:
    def ratio(result: CaseResult) -> float:
        return result.ms(peer) / result.ms(OURS)

    return Target(f"≥ {times:g} × {peer}", times, ratio, least=True)


@dataclass(slots=True)
class Stores:
    """Tables of all systems, each loaded once and used by one part after the other."""

    folder: Path
    seed: int
    made: dict[tuple[type[Store], int, bool], Store] = field(default_factory=dict)

    def of(self, kinds: Sequence[type[Store]], rows: int, *, pairs: bool = False) -> list[Store]:
        """The tables of some systems with so many rows."""
        missing = [kind for kind in kinds if (kind, rows, pairs) not in self.made]
        data = rows_of(np.arange(rows), self.seed, pairs=pairs) if missing else None
        for kind in missing:
            folder = self.folder / f"{rows}{'-pairs' if pairs else ''}"
            self.made[kind, rows, pairs] = kind(folder, data, ["id", "region"] if pairs else ["id"])
        return [self.made[kind, rows, pairs] for kind in kinds]


def _writes(
    name: str,
    stores: Sequence[Store],
    write: Callable[[Store, pa.Table], None],
    batch: Callable[[int], pa.Table],
    targets: Sequence[Target],
) -> Case:
    """Each contender writes its next batch; the batches of all are the same."""

    def contender(store: Store) -> Contender:
        numbers = count()
        before: dict[str, int] = {}

        def prepare() -> pa.Table:
            before.clear()
            before.update(store.size())
            return batch(next(numbers))

        def work(_: Any) -> Work:
            after = store.size()
            return Work(bytes=sum(max(size - before.get(path, 0), 0) for path, size in after.items()))

        role = Role.OURS if store.name == OURS else Role.PEER
        if isinstance(store, OursUncompared | DuckDb):
            role = Role.REFERENCE
        return Contender(
            store.name, partial(write, store), role, prepare, answer=lambda _: store.totals(), work=work
        )

    return Case(name, [contender(store) for store in stores], targets)


def _upserts(
    stores: Stores, kinds: Sequence[type[Store]], rows: int, upserted: int, *, pairs: bool = False
) -> Case:
    seed, old = stores.seed, upserted * 9 // 10

    def batch(number: int) -> pa.Table:
        random = np.random.default_rng((seed, number))
        ids = random.choice(rows, old, replace=False)
        new = rows + number * (upserted - old) + np.arange(upserted - old)
        return rows_of(random.permutation(np.concatenate([ids, new])), seed + 1 + number, pairs=pairs)

    what = "two-column keys" if pairs else "keys"
    name = f"upsert {upserted:,} {what} into {rows:,} rows"
    names = [kind.name for kind in kinds]
    targets = [_least(*one) for one in ((20, "pyiceberg"), (3, "deltalake")) if one[1] in names]
    made = stores.of(kinds, rows, pairs=pairs)
    return _writes(name, made, lambda store, some: store.upsert(some), batch, targets)


def _deletes(stores: Stores, peers: Sequence[type[Store]], rows: int) -> Iterator[Case]:
    few = rows // 100 <= MOST_LITERALS
    kinds = [Ours, *(kind for kind in peers if few or kind is not PyIceberg)]
    order = np.random.default_rng(stores.seed).permutation(rows)

    def batch(number: int) -> pa.Table:
        return pa.table({"id": order[number::100]})

    targets = [_least(3, "deltalake")] if Delta in kinds else []
    name = f"delete {rows // 100:,} of {rows:,} rows by key"
    yield _writes(name, stores.of(kinds, rows), lambda store, some: store.delete(some), batch, targets)


def _gets(stores: Stores, rows: int, gets: int) -> Iterator[Case]:
    seed = stores.seed
    ours, duck = stores.of([Ours, DuckDb], rows)
    assert isinstance(duck, DuckDb)
    table = sk.open("db.t", catalog=ours.folder)
    lite = sqlite3.connect(stores.folder / "t.sqlite")
    lite.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, region TEXT, ts INTEGER, amount REAL, v INTEGER)")
    data = rows_of(np.arange(rows), seed, pairs=False)
    plain = data.set_column(2, "ts", data["ts"].cast(pa.int64()))
    for part in plain.to_batches(max_chunksize=100_000):
        lite.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", zip(*part.to_pydict().values(), strict=True))
    lite.commit()
    del data, plain
    numbers = count()

    def keys() -> list[int]:
        # The first round is the same for all.
        found: list[int] = (
            np.random.default_rng((seed, next(numbers) // 4)).integers(rows, size=gets).tolist()
        )
        return found

    def by_sqlite(wanted: list[int]) -> int:
        return sum(lite.execute("SELECT * FROM t WHERE id = ?", (key,)).fetchone()[4] for key in wanted)

    def by_get(wanted: list[int]) -> int:
        return sum(row["v"] for key in wanted if (row := table.get(key)) is not None)

    def answer(total: int) -> int:
        return total

    contenders = [
        Contender(OURS, by_get, Role.OURS, keys, answer),
        Contender(
            f"{OURS}, get_many",
            lambda wanted: pc.sum(table.get_many(sorted(set(wanted)))["v"]).as_py(),
            Role.REFERENCE,
            keys,
        ),
        Contender(
            "duckdb table", lambda wanted: sum(duck.get(key)[4] for key in wanted), Role.PEER, keys, answer
        ),
        Contender("sqlite", by_sqlite, Role.REFERENCE, keys, answer),
    ]
    cpu = Target("≤ 2 ms CPU per get", 2.0, lambda result: (result.contenders[OURS].cpu_ms or 0.0) / gets)
    name = f"{gets:,} gets of {rows:,} rows"
    yield Case(name, contenders, [cpu], figure=lambda ms: f"{1_000 * ms / gets:,.0f} µs")


def _tail(folder: Path, rows: int, seed: int) -> Iterator[Case]:
    calls = min(CALLS, rows // 10)
    numbers = count()

    def batches() -> list[pa.Table]:
        first = next(numbers) * calls
        return [rows_of(np.array([n]), seed, pairs=False) for n in range(first, first + calls)]

    def write(to: sk.TailWriter | sk.Table, some: list[pa.Table]) -> None:
        for one in some:
            to.upsert(one)

    contenders, writers = [], []
    for sync in get_args(SyncPolicy):
        table = sk.catalog(folder / sync).create_table("db.t", SCHEMA, key=["id"])
        writers.append(table.writer(sync=sync, flush_seconds=None))
        role = Role.OURS if sync == "every" else Role.REFERENCE
        contenders.append(Contender(f"tail, sync={sync}", partial(write, writers[-1]), role, batches))
    single = sk.catalog(folder / "single").create_table("db.t", SCHEMA, key=["id"])
    # A commit each: a tenth of the calls, and so of the time.
    contenders.append(
        Contender(
            "a tenth as many commits",
            lambda some: write(single, some[: max(len(some) // 10, 1)]),
            Role.REFERENCE,
            batches,
        )
    )
    yield Case(f"{calls} rows, a call each", contenders, figure=lambda ms: f"{1_000 * ms / calls:,.0f} µs")
    for writer in writers:
        writer.close(flush=False)

    size = min(TAIL, rows // 10)
    table = Ours(folder, rows_of(np.arange(rows), seed, pairs=False), ["id"]).table
    before = table.at(table.snapshots()[-1])
    ids = np.random.default_rng(seed).choice(rows * 2, size, replace=False)
    with table.writer(sync="off", flush_seconds=None, flush_rows=2 * size) as writer:
        writer.upsert(rows_of(ids, seed + 1, pairs=False))

        def total(lake: sk.Table, _: None) -> tuple[int, int]:
            found = lake.scan("v < 500000", columns=["v", "amount"]).to_arrow()
            return len(found), pc.sum(found["v"]).as_py()

        target = Target(
            f"≤ 1.3 × {OURS}, no tail",
            1.3,
            lambda result: result.ms(OURS) / result.ms(f"{OURS}, no tail"),
        )
        yield Case(
            f"half of {rows:,} rows with {size:,} unflushed ones",
            [
                Contender(OURS, partial(total, table), Role.OURS),
                Contender(f"{OURS}, no tail", partial(total, before), Role.REFERENCE),
            ],
            [target],
        )
        writer.close(flush=False)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the benchmark."""

    def options(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--rows", type=int, metavar="N", help=f"rows of the table ({ROWS:,})")
        parser.add_argument("--large", action="store_true", help=f"{LARGE:,} rows")
        parser.add_argument("--part", nargs="+", choices=PARTS, default=PARTS)
        parser.add_argument("--skip", nargs="+", choices=("pyiceberg", "deltalake"), default=())
        parser.add_argument("--data", type=Path, metavar="DIR", help="where to write (a temporary directory)")

    bench = Bench.of("keyed_tables", str(__doc__).splitlines()[0], argv, PACE, options)
    bench.pace = FEW if bench.quick else PACE
    given, seed = bench.given, bench.seed
    rows = given.rows or (LARGE if given.large else QUICK_ROWS if bench.quick else ROWS)
    # Small tables, as tests use them, have proportionally few writes and look-ups.
    upserted, gets = min(UPSERTED, rows // 10), min(GETS // 10 if bench.quick else GETS, rows // 20)
    pairs, pair_rows = min(PAIRS, rows // 10), min(PAIR_ROWS, rows)
    # pyiceberg says that it ignores some options of writers.
    warnings.simplefilter("ignore")
    ours = [Ours, OursUncompared]
    peers = [kind for kind in (PyIceberg, Delta, DuckDb) if kind.name not in given.skip]
    with tempfile.TemporaryDirectory(dir=given.data) as root:
        stores = Stores(Path(root), seed)
        parts: dict[str, Callable[[], Iterator[Case]]] = {
            "gets": lambda: _gets(stores, rows, gets),
            "upsert": lambda: iter([_upserts(stores, [*ours, *peers], rows, upserted)]),
            "delete": lambda: _deletes(stores, peers, rows),
            "pairs": lambda: iter([_upserts(stores, [*ours, *peers], pair_rows, pairs, pairs=True)]),
            "tail": lambda: _tail(stores.folder / "tail", rows, seed),
        }
        for name in PARTS:
            if name in given.part:
                found = bench.section(name, parts[name](), "per get" if name == "gets" else None)
                _print_ratios(bench, found)
    bench.finish()


def _print_ratios(bench: Bench, results: Sequence[CaseResult]) -> None:
    """How many times as long as Skipstone each other system takes."""
    for result in results:
        mine = result.contenders.get(OURS)
        others = [one for one in result.contenders.items() if not one[0].startswith(OURS)]
        for name, other in others if mine is not None else ():
            assert mine is not None
            wall, cpu = (
                f"{b / a:,.2f} ×" if a and b else "-"
                for a, b in ((mine.ms, other.ms), (mine.cpu_ms, other.cpu_ms))
            )
            bench.console.print(
                f"{result.case.name}: {name} takes {wall} the time and {cpu} the CPU time of {OURS}"
            )


if __name__ == "__main__":
    main()
