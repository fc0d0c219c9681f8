"""Overwriting in tables that others have written and deleted in, also while it is planned."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from skipstone.engine.jobs import LocalEngine
from skipstone.iceberg.writing.target import NewFile, Target
from skipstone.parquet.write.files import write_files
from skipstone.parquet.write.layout import PageLayout
from skipstone.parquet.write.profile import profile
from skipstone.predicate import predicate
from skipstone.scan.options import ScanOptions
from skipstone.scan.scan import Scan
from skipstone.scan.table import Table
from skipstone.write.overwrite import (
    FullOverwrite,
    Overwrite,
    OverwritePlan,
    OverwriteResult,
    PartitionOverwrite,
    PredicateOverwrite,
    Rewriter,
    overwrite,
)
from tests.iceberg._maker import Maker

TYPES = [("id", "long"), ("g", "int"), ("t", "string"), ("x", "double")]
NAMES = [name for name, _ in TYPES]


class World:
    """A table made by hand, in a catalog, and an overwrite of ours."""

    def __init__(self, root: Path, spec: list[tuple[str, str]], seed: Any = 0) -> None:
        self.root = root
        self.maker = Maker(root / "t", TYPES, spec, seed=seed, scheme="file://")
        self.rng = random.Random(f"overwrite {seed}")
        self.next = 0

    def add(self, count: int, **more: Any) -> list[dict[str, Any]]:
        rng = self.rng
        made = [
            {
                "id": self.next + n,
                "g": rng.choice([None, -1, 0, 1, 2]),
                "t": rng.choice([None, "", "a", "b" * 20 + str(n)]),
                "x": rng.choice([None, float("nan"), -0.0, 0.5, float(n)]),
            }
            for n in range(count)
        ]
        self.next += count
        self.maker.append(made, **more)
        return made

    def catalog(self) -> SqlCatalog:
        return SqlCatalog("test", uri=f"sqlite:///{self.root}/c.db", warehouse=f"file://{self.root}/ware")

    def register(self) -> Any:
        catalog = self.catalog()
        catalog.create_namespace_if_not_exists("db")
        return catalog.register_table("db.t", self.maker.metadata_location)

    def publish(self) -> None:
        """Another engine commits what the maker has made."""
        with sqlite3.connect(self.root / "c.db") as database:
            database.execute(
                "update iceberg_tables set metadata_location = ?", [self.maker.metadata_location]
            )
        database.close()

    def oracle(self) -> pa.Table:
        found = self.maker.rows()
        types = [pa.int64(), pa.int32(), pa.string(), pa.float64()]
        columns = {
            name: pa.array([row[name] for row in found], type)
            for name, type in zip(NAMES, types, strict=True)
        }
        return pa.table(columns)

    def overwrite(self, table: Any, how: Overwrite, new: pa.Table) -> tuple[OverwriteResult, list[NewFile]]:
        target, layout = Target.of(table), PageLayout()
        seen = profile(new, layout)
        found = write_files(new.to_batches(), target.store, "ab", "new", layout, seen, shape=target)
        files = [target.new_file(one) for one in found]
        rewriter = Rewriter(target, layout, seen, "ab")
        done = overwrite(table, how, files, rewriter, LocalEngine(2), branch="main", properties={})
        return done, files


def new_rows(*groups: int | None) -> pa.Table:
    count = len(groups)
    return pa.table(
        {
            "id": pa.array(range(10_000, 10_000 + count), pa.int64()),
            "g": pa.array(groups, pa.int32()),
            "t": pa.array(["new"] * count),
            "x": pa.array([1.0] * count),
        }
    )


def read(table: Any) -> list[str]:
    rows = Scan(Table(table), None, NAMES, None, None, ScanOptions()).execute().to_arrow()
    return listed(rows)


def listed(rows: pa.Table) -> list[str]:
    return sorted(repr(row) for row in rows.select(NAMES).to_pylist())


def staying(rows: pa.Table, where: str) -> pa.Table:
    """The rows for which a condition is not TRUE, by DuckDB."""
    return duckdb.sql(f"select * from rows where ({where}) is not true").to_arrow_table().cast(rows.schema)


def data_files(table: Any) -> set[str]:
    found = table.current_snapshot().manifests(table.io)
    entries = [e for one in found if one.content.value == 0 for e in one.fetch_manifest_entry(table.io)]
    return {entry.data_file.file_path for entry in entries}


WHERES = [
    "g = 1",
    "g <> 1",
    "x > 0.2",
    "not (x <= 0.2)",
    "t is null or g = 2",
    "t like 'b%' and x = 'NaN'::double",
    "id between 5 and 30",
    "id >= 0",
    "id < 0",
    "g in (0, 2, null)",
    "g is null",
]


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(n, marks=pytest.mark.slow) for n in range(4, 40))]
)
def test_random_tables(tmp_path: Path, seed: int) -> None:
    """Several specs, deletes of both kinds: what is not TRUE stays, and nothing deleted comes back."""
    world = World(tmp_path, [("g", "identity")], seed)
    rng, maker = world.rng, world.maker
    world.add(25, files=2)
    for _ in range(3):
        step = rng.randrange(4)
        if step == 0:
            maker.evolve_spec(
                rng.choice([[("id", "bucket[3]")], [("t", "truncate[1]")], [], [("g", "identity")]])
            )
        elif step == 1:
            maker.delete_positions(rng.sample(maker.places(), 4), scope=rng.choice(["file", "partition"]))
        elif step == 2:
            maker.delete_equal([1], [(rng.randrange(25),) for _ in range(3)])
        world.add(15, metrics=rng.choice(["full", "truncate", "counts", "none"]))
    where = rng.choice(WHERES)
    table = world.register()
    before = world.oracle()
    new = new_rows(1, 2)
    text = where.replace("'NaN'::double", "double('NaN')")
    done, files = world.overwrite(table, PredicateOverwrite(predicate(text)), new)
    assert read(table) == listed(pa.concat_tables([staying(before, where), new]))
    paths = {file.path for file in (*files, *done.moved)}
    assert paths <= data_files(table)
    on_disk = {f"file://{path}" for path in (tmp_path / "t" / "data").rglob("part-*-ab.parquet")}
    assert on_disk == paths
    matched = before.num_rows - staying(before, where).num_rows
    assert (done.replaced > 0) == (matched > 0)


@pytest.mark.parametrize("seed", range(3))
def test_partitions_of_every_spec(tmp_path: Path, seed: int) -> None:
    world = World(tmp_path, [("id", "bucket[3]")], seed)
    world.add(30)
    world.maker.delete_equal([1], [(3,), (4,)])
    world.maker.evolve_spec([("g", "identity")])
    world.add(20)
    table = world.register()
    before = world.oracle()
    new = new_rows(1, 1, 2)
    world.overwrite(table, PartitionOverwrite(), new)
    assert read(table) == listed(pa.concat_tables([staying(before, "g in (1, 2)"), new]))


def test_files_of_other_specs_are_looked_at_where_they_may_have_rows(tmp_path: Path) -> None:
    """Others are not even opened."""
    world = World(tmp_path, [("id", "bucket[3]")], "pruned")
    maker = world.maker
    for group in (None, 1, 2, 7):
        maker.append([{"id": n, "g": group, "t": "a", "x": 0.5} for n in range(6)])
    maker.evolve_spec([("g", "identity")])
    table = world.register()
    target = Target.of(table)
    for groups, wanted in (
        ((2,), {2}),
        ((1, 2), {1, 2}),
        ((None, 1), {None, 1}),
        ((None,), {None}),
        ((5,), set()),
    ):
        new = new_rows(*groups)
        found = write_files(
            new.to_batches(), target.store, "aa", "n", PageLayout(), profile(new, PageLayout()), shape=target
        )
        plan = PartitionOverwrite().plan(Table(table), target, [target.new_file(one) for one in found])
        touched = {one.retained.entry.key for one in plan.rewrites}
        held = {one.file.path: maker.column(one.file, maker.field("g"))[0] for one in maker.live()}
        assert {held[path] for path in touched} == wanted
        assert touched == {path for path, group in held.items() if group in wanted}
        target.delete([target.new_file(one) for one in found])


def meanwhile(kind: type[Overwrite], monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> list[int]:
    """Somebody acts after the first plan; how many plans there were."""
    real, plans = kind.plan, [0]

    def plan(self: Any, *given: Any) -> OverwritePlan:
        found: OverwritePlan = real(self, *given)
        plans[0] += 1
        if plans[0] == 1:
            act()
        return found

    monkeypatch.setattr(kind, "plan", plan)
    return plans


@pytest.mark.parametrize("how", ["positions", "partition", "equality", "global", "both"])
def test_deletes_that_come_while_rows_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The copies have a later sequence number, so the deletes would no longer apply to them."""
    world = World(tmp_path, [("g", "identity")], how)
    maker = world.maker
    maker.append([{"id": n, "g": n % 2, "t": "a", "x": 0.5} for n in range(20)])
    table = world.register()
    first = maker.live()[0].file
    place = (first.path, 3)

    def act() -> None:
        if how in ("positions", "partition"):
            maker.delete_positions([place], scope={"positions": "file"}.get(how, how))
        elif how == "equality":
            maker.delete_equal([1], [(7,)], partitions=[(first.spec.id, first.partition)])
        elif how == "global":
            maker.delete_equal([1], [(7,), (8,)])
        else:
            # A later delete elsewhere must not hide the one that counts.
            maker.delete_positions([place])
            maker.delete_positions([(maker.live()[1].file.path, 5)])
        world.publish()

    plans = meanwhile(PredicateOverwrite, monkeypatch, act)
    new = new_rows(5)
    world.overwrite(table, PredicateOverwrite(predicate("id in (0, 1)")), new)
    assert plans == [2]
    assert read(table) == listed(pa.concat_tables([staying(world.oracle(), "id in (0, 1)"), new]))


def test_deletes_elsewhere_are_no_conflict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, [("g", "identity")], "elsewhere")
    maker = world.maker
    maker.append([{"id": n, "g": n % 2, "t": "a", "x": 0.5} for n in range(20)])
    table = world.register()
    other = next(one.file for one in maker.live() if one.file.partition != (0,))

    def act() -> None:
        maker.delete_equal([1], [(7,)], partitions=[(other.spec.id, other.partition)])
        world.publish()

    plans = meanwhile(PredicateOverwrite, monkeypatch, act)
    new = new_rows(5)
    world.overwrite(table, PredicateOverwrite(predicate("id = 0")), new)
    assert plans == [1]
    assert read(table) == listed(pa.concat_tables([staying(world.oracle(), "id = 0"), new]))


@pytest.mark.parametrize("kind", [PredicateOverwrite, PartitionOverwrite, FullOverwrite])
def test_rows_that_come_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Overwrite]
) -> None:
    """As if they had come before."""
    world = World(tmp_path, [("g", "identity")], kind.__name__)
    world.add(20)
    table = world.register()

    def act() -> None:
        world.maker.append([{"id": 500, "g": 1}, {"id": 501, "g": 2}])
        world.publish()

    plans = meanwhile(kind, monkeypatch, act)
    how = PredicateOverwrite(predicate("g = 1")) if kind is PredicateOverwrite else kind()  # type: ignore[call-arg]
    new = new_rows(1)
    world.overwrite(table, how, new)
    assert plans == [2]
    where = "true" if kind is FullOverwrite else "g = 1"
    assert read(table) == listed(pa.concat_tables([staying(world.oracle(), where), new]))


def test_files_that_were_compacted_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, [("g", "identity")], "compacted")
    rows = world.add(20, files=3)
    table = world.register()

    def act() -> None:
        world.maker.overwrite(rows, [one.file.path for one in world.maker.live()])
        world.publish()

    plans = meanwhile(PredicateOverwrite, monkeypatch, act)
    world.overwrite(table, PredicateOverwrite(predicate("g = 1")), new_rows(1))
    assert plans == [2]
    assert read(table) == listed(pa.concat_tables([staying(world.oracle(), "g = 1"), new_rows(1)]))
