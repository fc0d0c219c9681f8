"""What random tests of scans, indexes and tables have in common: a predicate, several ways, and counts."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

import skipstone as sk
from skipstone.errors import PredicateError, TypeMismatchError
from skipstone.predicate import tree
from tests.property._layouts import Table
from tests.property._oracle import CantEvaluate
from tests.property._predicates import Predicates, is_drawn
from tests.property._scans import ScanCase, World

REPLAY = os.environ.get("SKIPSTONE_REPLAY", "")
Run = Callable[[str, Path, range, Counter[str]], None]
Way = Callable[[Any, random.Random], None]
Drawn = tuple[tree.Predicate, np.ndarray]


def answer(world: World, predicate: tree.Predicate) -> np.ndarray:
    """The oracle's rows, if the types of the predicate are right."""
    mask = world.mask(predicate)
    sk.Pruner(predicate, world.opened.query_schema)
    return mask


def drawer(rng: random.Random, world: World, made: Table, count: Counter[str]) -> Callable[[], Drawn]:
    """Draws predicates that have an answer."""

    def another() -> Drawn:
        while True:
            predicate = Predicates(rng, made, is_drawn).tree()
            try:
                return predicate, answer(world, predicate)
            except (CantEvaluate, TypeMismatchError):
                count["predicates without an answer"] += 1

    return another


def run_ways(case: ScanCase, ways: Iterable[tuple[str, Way]]) -> None:
    """Go these ways; whatever goes wrong fails with the words of the case."""
    for name, way in ways:
        case.words = name
        try:
            way(case, random.Random(f"{case.seed}:{name}"))
        except AssertionError:
            raise
        except PredicateError as error:
            # Narrow integers overflow in Spark, and in the oracle only those of 64 bits.
            if "overflow" not in str(error):
                case.fail(f"{type(error).__name__}: {error}")
            case.count["overflows"] += 1
            continue
        except Exception as error:
            try:
                case.fail(f"{type(error).__name__}: {error}")
            except AssertionError as failure:
                raise failure from error
        case.count[name] += 1
    case.count["cases"] += 1
    case.count["with matches"] += bool(case.wanted.any())
    case.count["with misses"] += not case.wanted.all()


def run_part(kind: str, run: Run, folder: Path, part: int, cases: float, each: int) -> Counter[str]:
    """So many cases of one part of the numbers, several for each world; what was counted is printed."""
    count: Counter[str] = Counter()
    number = part * 100_000
    while count["cases"] < round(cases):
        run(f"{kind}:{number}", folder, range(each), count)
        shutil.rmtree(folder / f"{kind}-{number}")
        number += 1
    print(f"\n{', '.join(f'{name} {n:,}' for name, n in sorted(count.items()))}")
    return count


def replay(run: Run, folder: Path) -> None:
    """Run the case that ``SKIPSTONE_REPLAY`` names, as a failure prints it: kind:world:case."""
    seed, _, case = REPLAY.rpartition(":")
    run(seed, folder, range(int(case), int(case) + 1), Counter())
