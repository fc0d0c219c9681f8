"""Every way to scan a lake gives the rows of a full scan: random lakes × random predicates × random switches.

``SKIPSTONE_CASES`` sets how many cases run, ``SKIPSTONE_REPLAY=scan:12:3`` runs one of them again and keeps
its files.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from obstore.store import LocalStore

import skipstone as sk
from skipstone.predicate import tree
from tests.property._frame import REPLAY, drawer, replay, run_part, run_ways
from tests.property._lakes import Lake, full_scan, random_lake, under
from tests.property._oracle import CantEvaluate, Oracle
from tests.property._predicates import Predicates, is_drawn
from tests.property._scans import SHARES, WAYS, ScanCase, World
from tests.support.samples import sample

PER_LAKE = 2
WAYS_PER_CASE = 2
PARTS = 2


def open_lake(lake: Lake, rng: random.Random) -> Any:
    """Open it by its directory, by a glob or, if it is one file, by that."""
    schema = lake.schema if lake.explicit else None
    style = rng.randrange(5)
    if style == 4:  # the same files as a far store has them
        return sk.open("", store=LocalStore(lake.root), schema=schema)
    if style == 0 and len(lake.files) == 1 and not lake.partitions:
        return sk.open(str(lake.root / lake.files[0].path), schema=schema)
    if style == 1:
        return sk.open(f"{lake.root}/**/*.parquet", schema=schema)
    return sk.open(lake.root if style == 2 else f"{lake.root}/", schema=schema)


def enter(lake: Lake, rng: random.Random) -> World:
    """Open the lake; its schema must be the given one, or hold every file's columns without loss."""
    opened = open_lake(lake, rng)
    schema = opened.schema.remove_metadata()
    if lake.explicit:
        assert schema.names == lake.schema.names
        assert schema.types == lake.schema.types
    tables = full_scan(lake, schema)  # a type too narrow fails here
    assert {*schema.names} >= {*lake.partitions}
    paths = [f.path.removeprefix("file://").removeprefix(f"{lake.root}/") for f in opened.files]
    assert paths == [f.path for f in lake.files]
    table = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
    asked = opened.query_schema.remove_metadata()
    return World(lake, opened, tables, table, Oracle(table if asked == schema else table.cast(asked)))


def run_lake(seed: str, folder: Path, numbers: range, count: Counter[str]) -> None:
    """Check predicates of these numbers about one lake."""
    rng = random.Random(seed)
    lake = random_lake(seed, folder / seed.replace(":", "-"))
    try:
        world = enter(lake, rng)
    except Exception as error:
        note = f"SKIPSTONE_REPLAY={seed}:0\n{lake.root}: {lake.words}\n{lake.schema}"
        raise AssertionError(f"{type(error).__name__}: {error}\n{note}") from error
    count["lakes"] += 1
    count["partitioned"] += bool(lake.partitions)
    for number in numbers:
        run_case(f"{seed}:{number}", world, count)


def run_case(seed: str, world: World, count: Counter[str]) -> None:
    """One predicate, several ways."""
    rng = random.Random(seed)
    another = drawer(rng, world, under(world.table.schema, world.lake.made), count)
    first: tuple[tree.Predicate | None, np.ndarray] = another()
    if rng.random() < 0.04:
        first = None, np.ones(world.table.num_rows, dtype=bool)
    case = ScanCase(seed, world, *first, another, count)
    run_ways(case, [(way, WAYS[way]) for way in rng.choices([*WAYS], SHARES, k=WAYS_PER_CASE)])


@pytest.mark.parametrize("part", range(PARTS))
def test_scans_agree_with_a_full_scan(part: int, tmp_path: Path) -> None:
    cases = sample("scan") / PARTS
    count = run_part("scan", run_lake, tmp_path, part, cases, PER_LAKE)
    total = count["cases"]
    assert 0.4 * total < count["with matches"] < total
    assert 0.4 * total < count["with misses"] < total
    assert count["plans with a dropped row"] > 0.3 * count["plan"]
    assert count["plans with a proven row"] > 0.05 * count["plan"]
    assert all(count[way] for way in WAYS)
    assert count["overflows"] < 0.02 * total


def test_an_oracle_of_the_whole_lake_is_one_of_its_files(tmp_path: Path) -> None:
    """The oracle on the whole table says what it says file by file: no state crosses rows."""
    lake = random_lake("scan:4", tmp_path)
    tables = full_scan(lake, lake.schema)
    table = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
    for number in range(20):
        predicate = Predicates(random.Random(number), under(lake.schema, lake.made), is_drawn).tree()
        try:
            parts = [v for t in tables for v in Oracle(t).answer(predicate)]
        except CantEvaluate:
            continue
        assert Oracle(table).answer(predicate) == parts, str(predicate)


if REPLAY.startswith("scan:"):

    def test_replay(tmp_path: Path) -> None:
        replay(run_lake, tmp_path)
