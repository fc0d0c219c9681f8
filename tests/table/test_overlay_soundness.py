"""Every way to read an overlay gives the oracle's rows: random tables × changes × predicates × functions.

``SKIPSTONE_CASES`` sets how many cases run, ``SKIPSTONE_REPLAY=over:12:3`` (or ``aggover:12:3`` for
aggregates) runs one of them again and keeps its files.
"""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import skipstone as sk
from skipstone.predicate import tree
from tests.iceberg._chains import Chain, random_chain
from tests.iceberg._worlds import ChainWorld, ask, world
from tests.property._aggregates import answers_of
from tests.property._frame import REPLAY, drawer, replay, run_part, run_ways
from tests.property._indexes import IndexCase, as_if_large
from tests.property._scans import SHARES, WAYS
from tests.property.test_aggregate_soundness import check, explained
from tests.property.test_aggregate_soundness import run_case as run_aggregates
from tests.property.test_iceberg_soundness import Indexer
from tests.support.samples import sample
from tests.table._overlays import with_overlay

PER_CHAIN = 4
WAYS_PER_CASE = 2


def enter(chain: Chain, rng: random.Random, count: Counter[str]) -> ChainWorld:
    """An overlay of some snapshot."""
    asked, snapshot, schema = ask(rng, chain.maker)
    table = sk.open(chain.maker.metadata_location)
    table = table if asked is None else table.at(asked)
    made = with_overlay(rng, world(chain, table, snapshot, schema), table)
    changes = made.opened.pinned.overlay
    count["with hidden rows"] += changes.hidden > 0
    count["with added rows"] += changes.rows > 0
    count["with an index"] += made.opened.index.coverage is not None
    return made


def run_chain(seed: str, folder: Path, numbers: range, count: Counter[str]) -> None:
    """Check predicates of these numbers about one table, each at some snapshot."""
    with as_if_large(random.Random(f"{seed}:large")):
        chain = random_chain(seed, folder / seed.replace(":", "-"), between=Indexer(seed, count))
        for number in numbers:
            case = f"{seed}:{number}"
            made = enter(chain, random.Random(f"{case}:at"), count)
            run_case(case, made, count)


def run_case(seed: str, made: ChainWorld, count: Counter[str]) -> None:
    """One predicate, several ways."""
    rng = random.Random(seed)
    another = drawer(rng, made, made.lake.made, count)
    first: tuple[tree.Predicate | None, np.ndarray] = another()
    if rng.random() < 0.15:
        first = None, made.live
    case = IndexCase(seed, made, *first, another, count)
    run_ways(case, [(way, WAYS[way]) for way in rng.choices([*WAYS], SHARES, k=WAYS_PER_CASE)])


def test_scans_agree_with_the_oracle(tmp_path: Path) -> None:
    count = run_part("over", run_chain, tmp_path, 0, sample("overlays"), PER_CHAIN)
    total = count["cases"]
    assert 0.3 * total < count["with matches"] < total
    assert 0.3 * total < count["with misses"] <= total
    assert 0.3 * total < count["with hidden rows"] <= total
    assert 0.4 * total < count["with added rows"] <= total
    assert 0.1 * total < count["with an index"] <= total
    assert count["overflows"] <= 0.02 * total + 1
    assert total < 200 or all(count[way] for way in WAYS)


def run_aggregated(seed: str, folder: Path, numbers: range, count: Counter[str]) -> None:
    """Check questions of these numbers about one table, each at some snapshot."""
    rng = random.Random(f"{seed}:index")
    share = rng.choice([0.0, 0.4])

    def index(maker: Any, _words: list[str]) -> None:
        if rng.random() < share:
            sk.open(maker.metadata_location).index.build(
                sums=True, sketches=rng.random() < 0.3, engine="local"
            )

    chain = random_chain(seed, folder / seed.replace(":", "-"), between=index)
    for number in numbers:
        case = f"{seed}:{number}"
        made = enter(chain, random.Random(f"{case}:at"), count)
        explained(case, partial(words_of, chain, made), partial(ask_aggregates, case, made, count))


def words_of(chain: Chain, made: ChainWorld) -> list[str]:
    """What a reproducer needs."""
    return [chain.maker.metadata_location, made.lake.words]


def ask_aggregates(seed: str, made: ChainWorld, count: Counter[str]) -> None:
    """One question about one overlay."""
    answers = answers_of(made)
    run_aggregates(seed, made, answers, count)
    answers.close()


def test_aggregates_answer_as_duckdb(tmp_path: Path) -> None:
    count = run_part("aggover", run_aggregated, tmp_path, 0, sample("aggregates of overlays"), PER_CHAIN)
    check(count)
    assert count["cases"] < 100 or count["answered from metadata"] > 0
    assert count["with hidden rows"] > 0.3 * count["cases"]


if REPLAY.startswith(("over:", "aggover:")):

    def test_replay(tmp_path: Path) -> None:
        replay(run_chain if REPLAY.startswith("over:") else run_aggregated, tmp_path)
