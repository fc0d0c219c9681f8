"""RowFilter against the row-at-a-time oracle: random tables × random predicates, three-valued and exact.

``SKIPSTONE_CASES`` sets how many cases run, ``SKIPSTONE_REPLAY_FILTER=12:3`` runs one of them again.
"""

from __future__ import annotations

import os
import random
from collections import Counter

import pyarrow as pa
import pytest

from skipstone.core.filter import RowFilter
from skipstone.errors import NotExpressibleError, PredicateError, TypeMismatchError
from skipstone.predicate import tree
from tests.property._layouts import random_table, widened
from tests.property._oracle import CantEvaluate, Oracle
from tests.property._predicates import Predicates
from tests.support.samples import sample

PER_TABLE = 40
PARTS = 4


def row_wise(values: pa.Array) -> pa.Array:
    """An opaque condition of the row alone: a filter may ask about any part of a batch."""
    return pa.array([None if not v.is_valid else len(str(v)) % 2 == 0 for v in values], pa.bool_())


def has_two_sessions(predicate: tree.Predicate) -> bool:
    """Whether two constants of different session zones meet, which no one session can ask."""
    for node in predicate.walk():
        if isinstance(node, (tree.Compare, tree.IsIn, tree.Between)) and not node.columns():
            zones = {n.zone for n in node.walk() if isinstance(n, (tree.Literal, tree.IsIn))}
            if len(zones) > 1:
                return True
    return False


def check(seed: str, predicate: tree.Predicate, table: pa.Table, oracle: Oracle, count: Counter[str]) -> None:
    """One predicate about one table."""
    if has_two_sessions(predicate):
        count["two sessions"] += 1
        return
    try:
        wanted = oracle.answer(predicate)
    except CantEvaluate:
        count["no oracle"] += 1
        wanted = None
    try:
        true, null = RowFilter(predicate, table.schema).truth(table)
    except TypeMismatchError:
        count["types refused"] += 1
        return
    except NotExpressibleError as error:
        count["not expressible"] += 1
        if wanted is not None:
            pytest.fail(f"{seed}: {predicate}: {error}")
        return
    except PredicateError as error:
        count["row error"] += 1
        # Spark adds two INTs as INT, the oracle as a wider number.
        if wanted is not None and "overflow" not in str(error):
            pytest.fail(f"{seed}: {predicate}: {error}")
        return
    if wanted is None:
        return
    got = [None if n else bool(t) for t, n in zip(true, null, strict=True)]
    if got != wanted:
        row = next(i for i, (a, b) in enumerate(zip(got, wanted, strict=True)) if a is not b)
        values = {p: repr(oracle.column(p).items[row])[:200] for p in predicate.columns()}
        types = {p: str(oracle.arrow(p).type) for p in predicate.columns()}
        raise AssertionError(
            f"case {seed}: {str(predicate)[:2000]}\n  row {row}: {got[row]}, the oracle says {wanted[row]}\n"
            f"  values {values}\n  types {types}"
        )
    count["cases"] += 1
    count["with NULL"] += None in wanted
    count["mixed"] += True in wanted and False in wanted


def run(number: int, cases: range, count: Counter[str]) -> None:
    """Predicates about the table of this number."""
    rng = random.Random(f"filter:{number}")
    made = random_table(rng)
    table = made.table if rng.random() < 0.6 else widened(rng, made.table)
    if rng.random() < 0.3 and table.num_rows > 2:
        cut = rng.randrange(1, table.num_rows)
        table = pa.concat_tables([table.slice(0, cut), table.slice(cut)])
    oracle = Oracle(table)
    for case in cases:
        seed = f"{number}:{case}"
        check(seed, Predicates(random.Random(f"filter:{seed}"), made, row_wise).tree(), table, oracle, count)


@pytest.mark.parametrize("part", range(PARTS))
def test_rows_have_the_oracles_truth(part: int) -> None:
    cases = sample("filters") // PARTS
    count: Counter[str] = Counter()
    for table in range(max(1, cases // PER_TABLE)):
        run(part * 1_000_000 + table, range(PER_TABLE), count)
    print(f"\n{dict(count)}")
    assert count["cases"] > 0.6 * cases
    assert count["mixed"] > 0.2 * count["cases"]
    assert count["with NULL"] > 0.1 * count["cases"]


if "SKIPSTONE_REPLAY_FILTER" in os.environ:

    def test_replay() -> None:
        number, case = map(int, os.environ["SKIPSTONE_REPLAY_FILTER"].split(":"))
        run(number, range(case, case + 1), Counter())
