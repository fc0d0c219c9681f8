"""Aggregations beside one another: parts add up, sets follow their algebra, and no layout matters."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skipstone as sk
from skipstone.errors import PredicateError
from skipstone.predicate import tree
from tests.property import _aggregate_oracle as oracle
from tests.property._aggregate_asks import ESTIMATES, Asks
from tests.property._aggregate_worlds import SummedHistory, enter, some_predicate
from tests.property._aggregates import answers_of, bits_of
from tests.property._indexes import Home
from tests.property._lakes import ROW_ID, random_lake, under
from tests.property._scans import World, reorder
from tests.support.samples import sample

PARTS = 2


class Beside:
    """A lake to which questions are put that belong together."""

    def __init__(self, seed: str, folder: Path) -> None:
        self.rng = random.Random(seed)
        lake = random_lake(seed, folder / seed.replace(":", "-"))
        history = SummedHistory(self.rng, Home.random(self.rng, lake), Counter())
        self.folder = folder
        self.world: World = enter(history, Counter())
        self.answers = answers_of(self.world)
        self.paths = list(under(self.world.table.schema, lake.made).pools)
        self.predicate, _ = some_predicate(self.rng, self.world, Counter())
        whole = [p for p in self.paths if pa.types.is_integer(self.answers.type(p))]
        self.functions = [sk.count(), *(f(".".join(p)) for p in whole for f in (sk.sum, sk.count))]
        self.number = ".".join(self.rng.choice(whole))

    def totals(self, where: Any = None, **given: Any) -> np.ndarray:
        """Counts and whole sums, those of nothing being zero."""
        switches = {"threads": self.rng.choice([1, 3]), "index": self.rng.random() < 0.8}
        given |= {"use_cached": self.rng.random() < 0.7}
        answer = self.world.opened.scan(where, **switches).aggregate(*self.functions, **given)
        return np.array([answer[f.name] or 0 for f in self.functions], dtype=object)

    def ids(self) -> Any:
        """Some ids of a column."""
        path = tuple(self.number.split("."))
        there = sorted({v for v in self.answers.values(path) if v is not None and v >= 0})
        return np.array(self.rng.sample(there, len(there) // self.rng.choice([1, 2, 5])), dtype=np.uint64)


def parts_add_up(it: Beside) -> None:
    """Rows that match and rows that don't are all rows."""
    if it.predicate is not None:
        rest = tree.Not(tree.Truth(it.predicate, True))
        assert (it.totals(it.predicate) + it.totals(rest) == it.totals()).all()


def members_and_others(it: Beside) -> None:
    """Members and what is left without them are all rows."""
    a = it.ids()
    inside = it.totals(it.predicate, within=a, id_column=it.number)
    outside = it.totals(it.predicate, without=a, id_column=it.number)
    assert (inside + outside == it.totals(it.predicate)).all()
    assert (it.totals(it.predicate, within=~sk.members(a, it.number)) == outside).all()
    assert (it.totals(it.predicate, without=~sk.members(a, it.number)) == inside).all()


def sets_follow_their_algebra(it: Beside) -> None:
    """Both and either are as many as each."""
    a, b = (sk.members(it.ids(), it.number) for _ in range(2))
    each = it.totals(it.predicate, within=a) + it.totals(it.predicate, within=b)
    both = it.totals(it.predicate, within=a & b)
    assert (it.totals(it.predicate, within=a | b) + both == each).all()
    assert (it.totals(it.predicate, within=[a, b]) == both).all()
    assert (it.totals(it.predicate, within=a, without=b) == it.totals(it.predicate, within=a - b)).all()
    assert (it.totals(it.predicate, within=~(a | b)) == it.totals(it.predicate, within=~a & ~b)).all()


def no_layout_matters(it: Beside) -> None:
    """The same rows in another order, in other files, give the same bits."""
    table, rng = it.world.table, it.rng
    order = np.random.default_rng(rng.randrange(2**32)).permutation(table.num_rows)
    shuffled = reorder(table, order)
    root = it.folder / f"{it.world.lake.root.name}-again"
    root.mkdir()
    cuts = sorted(rng.sample(range(table.num_rows + 1), min(table.num_rows, rng.randrange(3))))
    for number, (start, stop) in enumerate(zip([0, *cuts], [*cuts, table.num_rows], strict=True)):
        part = shuffled.slice(start, stop - start)
        pq.write_table(
            part, root / f"{number}.parquet", row_group_size=rng.choice([7, 50, 1000]), write_page_index=True
        )
    other = sk.open(root, schema=it.world.opened.schema)
    if rng.random() < 0.5:
        other.index.build(sums=True, engine="local")
    asks = [a for a in Asks(rng, it.answers, it.paths, ()).some() if a.kind not in ESTIMATES]
    floats = [p for p in it.paths if oracle.family(it.answers.type(p)) == oracle.FLOAT]
    functions = [ask.function() for ask in asks]
    functions += [f(".".join(p)) for p in floats for f in (sk.sum, sk.avg, sk.var)]
    few = [p for p in it.paths if p != (ROW_ID,) and rng.random() < 0.3]
    given = {"group_by": [".".join(p) for p in few[:1]], "use_cached": rng.random() < 0.7}
    if functions:
        ours, theirs = (
            lake.scan(it.predicate).aggregate(*functions, **given).to_arrow()
            for lake in (it.world.opened, other)
        )
        bits = [[*map(bits_of, table.columns)] for table in (ours, theirs)]
        assert bits[0] == bits[1], [f.name for f in functions]


RELATIONS = (parts_add_up, members_and_others, sets_follow_their_algebra, no_layout_matters)


@pytest.mark.parametrize("part", range(PARTS))
def test_what_belongs_together_agrees(part: int, tmp_path: Path) -> None:
    for number in range(sample("aggregates, related") // PARTS):
        seed = f"beside:{part * 100_000 + number}"
        it = Beside(seed, tmp_path)
        for relation in RELATIONS:
            try:
                relation(it)
            except PredicateError as error:
                if "overflow" not in str(error):
                    raise
            except Exception as error:
                words = [f"{type(error).__name__}: {error}", relation.__name__, seed, str(it.predicate)]
                raise AssertionError("\n  ".join([*words, it.world.lake.words])) from error
        it.answers.close()
