"""Every aggregation answers as DuckDB does: random lakes × indexes × predicates × sets of ids × functions.

``SKIPSTONE_CASES`` sets how many cases run, ``SKIPSTONE_REPLAY=agg:12:3`` (or ``aggice:12:3`` for a table)
runs one of them again and keeps its files.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import skipstone as sk
from skipstone.errors import PredicateError
from tests.iceberg._chains import Chain, random_chain
from tests.iceberg._worlds import At, ask, world
from tests.property._aggregate_oracle import Answers
from tests.property._aggregate_worlds import SummedHistory, enter, some_predicate
from tests.property._aggregates import AggregateCase, Question, answers_of
from tests.property._frame import REPLAY, replay, run_part
from tests.property._indexes import Home, as_if_large
from tests.property._lakes import random_lake
from tests.property._scans import World
from tests.support.samples import sample

PER_LAKE, PER_CHAIN = 5, 5
PARTS = 2
ENOUGH = 200


# -- lakes with indexes ------------------------------------------------------------------------


def run_lake(seed: str, folder: Path, numbers: range, count: Counter[str]) -> None:
    """Check questions of these numbers about one lake."""
    rng = random.Random(seed)
    lake = random_lake(seed, folder / seed.replace(":", "-") / "lake")
    history = SummedHistory(rng, Home.random(rng, lake), count)
    with as_if_large(rng) as how:
        told = lambda: [f"{lake.root}: {lake.words}", history.home.words, how, *history.words]  # noqa: E731
        made = explained(f"{seed}:0", told, lambda: enter(history, count))
        count["lakes"] += 1
        answers = answers_of(made)
        for number in numbers:
            explained(
                f"{seed}:{number}", told, lambda n=number: run_case(f"{seed}:{n}", made, answers, count)
            )
        answers.close()


def explained(seed: str, told: Callable[[], list[str]], work: Callable[[], Any]) -> Any:
    """Do it; a failure says how to do it again."""
    try:
        return work()
    except Exception as error:
        first = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
        raise AssertionError("\n  ".join([first, f"SKIPSTONE_REPLAY={seed}", *told()])) from error


# -- tables with deletes -----------------------------------------------------------------------


def run_chain(seed: str, folder: Path, numbers: range, count: Counter[str]) -> None:
    """Check questions of these numbers about one Iceberg table, each at some snapshot."""
    rng = random.Random(f"{seed}:index")
    share = rng.choice([0.0, 0.4])

    def index(maker: Any, words: list[str]) -> None:
        if rng.random() < share:
            built = sk.open(maker.metadata_location).index.build(
                sums=True, sketches=rng.random() < 0.3, engine="local"
            )
            words.append(f"index: {built}")
            count["indexes of tables"] += 1

    chain = random_chain(seed, folder / seed.replace(":", "-"), between=index)
    count["chains"] += 1
    for number in numbers:
        case = f"{seed}:{number}"
        words = [chain.maker.metadata_location, *chain.words]
        explained(case, lambda words=words: words, lambda case=case: run_snapshot(case, chain, count))


def run_snapshot(seed: str, chain: Chain, count: Counter[str]) -> None:
    """One question about one snapshot."""
    asked, snapshot, schema = ask(random.Random(f"{seed}:at"), chain.maker)
    opened = sk.open(chain.maker.metadata_location)
    made = world(chain, opened if asked is None else At(opened, asked), snapshot, schema)
    count["with deletes"] += bool((~made.live).any())
    answers = answers_of(made)
    run_case(seed, made, answers, count)
    answers.close()


# -- cases -------------------------------------------------------------------------------------


def run_case(seed: str, made: World, answers: Answers, count: Counter[str]) -> None:
    """One question, several ways."""
    rng = random.Random(seed)
    plain = rng.random() < 0.35
    predicate, matches = some_predicate(rng, made, count, share=0.2 if plain else 0.7)
    question = Question.random(rng, made, answers, plain=plain)
    case = AggregateCase(made, answers, predicate, matches, question, count)
    try:
        case.run(rng)
    except PredicateError as error:
        # Narrow integers overflow in Spark, and in the oracle only those of 64 bits.
        if "overflow" not in str(error):
            case.fail(f"{type(error).__name__}: {error}")
        count["overflows"] += 1
    except AssertionError:
        raise
    except Exception as error:
        try:
            case.fail(f"{type(error).__name__}: {error}")
        except AssertionError as failure:
            raise failure from error
    count["cases"] += 1
    count["with sets"] += bool(case.question.chosen.given)
    count["grouped"] += bool(case.question.group_by)
    count["with expressions"] += bool(case.question.computed)


@pytest.mark.parametrize("part", range(PARTS))
def test_lakes_answer_as_duckdb(part: int, tmp_path: Path) -> None:
    count = run_part("agg", run_lake, tmp_path, part, sample("aggregates of lakes") / PARTS, PER_LAKE)
    check(count)
    assert count["lakes with an index"] > 0.5 * count["lakes"]
    assert count["answered from metadata"] > 0.05 * count["cases"]
    assert count["answered by files"] > 0
    if count["cases"] >= ENOUGH:
        assert min(count[f"answered by {level}"] for level in ("row groups", "pages")) > 0


@pytest.mark.parametrize("part", range(PARTS))
def test_tables_answer_as_duckdb(part: int, tmp_path: Path) -> None:
    count = run_part("aggice", run_chain, tmp_path, part, sample("aggregates of tables") / PARTS, PER_CHAIN)
    check(count)
    assert count["with deletes"] > 0


def check(count: Counter[str]) -> None:
    """The cases were about something; of few there is less to be said."""
    total = count["cases"]
    assert 0.3 * total < count["questions about rows"] <= total
    assert count["overflows"] <= 0.02 * total + 1
    # Bounds of estimates hold in 95 of 100 cases.
    assert count["estimates within bounds"] >= 0.9 * count["estimates with bounds"] - 1
    if total >= ENOUGH:
        assert count["bounds"] > 0
        assert 0.2 * total < count["questions about some rows"] < total
        assert 0.3 * total < count["with sets"] < total
        assert 0.15 * total < count["grouped"] < total
        assert 0.1 * total < count["with expressions"] < total
        assert count["streams with steps"] > 0.05 * total


if REPLAY.startswith(("agg:", "aggice:")):

    def test_replay(tmp_path: Path) -> None:
        replay(run_lake if REPLAY.startswith("agg:") else run_chain, tmp_path)
