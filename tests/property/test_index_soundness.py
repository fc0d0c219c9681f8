"""An index never changes an answer: random lakes × random indexes × what became of the lake × predicates.

``SKIPSTONE_CASES`` sets how many cases run, ``SKIPSTONE_REPLAY=index:12:3`` runs one of them again.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import skipstone as sk
from skipstone.predicate import tree
from tests.property._frame import REPLAY, drawer, replay, run_part, run_ways
from tests.property._indexes import History, Home, IndexCase, as_if_large
from tests.property._lakes import full_scan, random_lake, under
from tests.property._oracle import Oracle
from tests.property._scans import SHARES, WAYS, World, check_plan
from tests.support.samples import sample

PER_LAKE = 3
WAYS_PER_CASE = 2
PARTS = 2


def run_lake(seed: str, folder: Path, numbers: range, count: Counter[str]) -> None:
    """Check predicates of these numbers about one lake and its index."""
    rng = random.Random(seed)
    lake = random_lake(seed, folder / seed.replace(":", "-") / "lake")
    history = History(rng, Home.random(rng, lake), count)
    with as_if_large(rng) as how:
        try:
            world = enter(history, count)
        except Exception as error:
            lines = [f"{type(error).__name__}: {error}", f"SKIPSTONE_REPLAY={seed}:0", *_told(history, how)]
            raise AssertionError("\n  ".join(lines)) from error
        for number in numbers:
            try:
                run_case(f"{seed}:{number}", world, count)
            except AssertionError as error:
                raise AssertionError("\n  ".join([str(error), *_told(history, how)])) from error


def _told(history: History, how: str) -> list[str]:
    lake = history.lake
    return [f"{lake.root}: {lake.words}", history.home.words, f"as if large: {how}", *history.words]


def enter(history: History, count: Counter[str]) -> World:
    """Build and change, then read every file the plain way."""
    opened = history.run()
    lake = history.lake
    schema = opened.schema.remove_metadata()
    assert schema.equals(history.home.open().schema.remove_metadata())
    tables = full_scan(lake, schema)
    paths = [f.path.removeprefix("file://").removeprefix(f"{lake.root}/") for f in opened.files]
    assert paths == [f.path for f in lake.files]
    table = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
    asked = opened.query_schema.remove_metadata()
    coverage = opened.index.coverage
    assert coverage is not None
    assert coverage.problems == []
    count["lakes"] += 1
    count["lakes covered"] += coverage.covered == len(lake.files)
    count["lakes covered in part"] += 0 < coverage.covered < len(lake.files)
    return World(lake, opened, tables, table, Oracle(table if asked == schema else table.cast(asked)))


def run_case(seed: str, world: World, count: Counter[str]) -> None:
    """One predicate, several ways, with the index and without."""
    rng = random.Random(seed)
    another = drawer(rng, world, under(world.table.schema, world.lake.made), count)
    first: tuple[tree.Predicate | None, np.ndarray] = another()
    if rng.random() < 0.04:
        first = None, np.ones(world.table.num_rows, dtype=bool)
    case = IndexCase(seed, world, *first, another, count)
    ways = {"both": on_and_off, **{way: WAYS[way] for way in rng.choices([*WAYS], SHARES, k=WAYS_PER_CASE)}}
    run_ways(case, ways.items())


def on_and_off(case: IndexCase, rng: random.Random) -> None:
    """The plans with the index and without are sound, and read the same rows."""
    answers = []
    for index in (True, False):
        scan = case.world.opened.scan(case.predicate, index=index)
        case.words = f"both, index={index}"
        plan = scan.plan()
        check_plan(case, plan, case.wanted)
        used = plan.trace.index
        assert (used is not None) == index
        if used is not None:
            assert used.problems == ()
            level = plan.trace.level("index")
            case.count["plans sieved by the index"] += level is not None
            case.count["plans with a file dropped by the index"] += (
                level is not None and level.kept < level.units
            )
        answers.append(sk.execute(plan).to_arrow())
    for answer in answers:
        case.check(answer, case.matches(None))


@pytest.mark.parametrize("part", range(PARTS))
def test_an_index_changes_no_answer(part: int, tmp_path: Path) -> None:
    cases = sample("index") / PARTS
    count = run_part("index", run_lake, tmp_path, part, cases, PER_LAKE)
    total = count["cases"]
    assert 0.4 * total < count["with matches"] < total
    assert 0.4 * total < count["with misses"] < total
    assert count["plans with a dropped row"] > 0.3 * count["both"]
    assert count["plans with a proven row"] > 0.05 * count["both"]
    assert count["plans with a file dropped by the index"] > 0.03 * count["both"]
    assert count["lakes covered"] > 0.3 * count["lakes"]
    for name in ("already_indexed", "dropped", "merged"):
        assert count[f"builds with files {name}"], name
    assert count["overflows"] < 0.04 * total


if REPLAY.startswith("index:"):

    def test_replay(tmp_path: Path) -> None:
        replay(run_lake, tmp_path)
