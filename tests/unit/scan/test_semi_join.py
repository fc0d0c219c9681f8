"""Scans by the keys of a semi join: what is accepted, shown, cached and sent."""

from __future__ import annotations

import asyncio
import pickle

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from pyroaring import BitMap, BitMap64

import skipstone as sk
from skipstone.errors import PredicateError, TypeMismatchError, UnknownColumnError, UsageError

KEYS = [5, 39_000, 7, 7, -1]
MANY = 5_000


@pytest.mark.parametrize(
    "keys",
    [
        KEYS,
        (key for key in KEYS),
        {*KEYS},
        np.array(KEYS),
        np.array([*KEYS, None], dtype=object),
        pa.array([*KEYS, None], pa.int32()),
        pa.chunked_array([KEYS[:2], KEYS[2:]]),
        pl.Series(KEYS),
        pa.array(map(float, KEYS)),
        BitMap([5, 39_000, 7]),
        BitMap64([5, 39_000, 7]),
    ],
    ids=lambda keys: type(keys).__name__,
)
def test_every_form_of_keys(lake, keys):
    scan = lake.scan(columns=["id"], semi_join=("id", keys))
    assert scan.to_arrow()["id"].to_pylist() == [5, 7, 39_000]
    assert scan.plan().rows == 1_000  # two pages of 500 rows


def test_keys_of_strings_are_looked_up_at_once(lake):
    texts = pa.array([f"row {n} " + "·" * 40 for n in range(38_000, 38_000 + MANY)])
    scan = lake.scan(columns=["id"], semi_join=("text", texts))
    assert scan.count() == 2_000
    assert scan.to_arrow()["id"].to_pylist() == [*range(38_000, 40_000)]
    # 'row 39' is between 'row 3' and 'row 4': so are the bounds of few other pages.
    assert 2_000 <= scan.plan().rows <= 4_000
    assert scan.verify().ok


def test_a_condition_and_keys(lake):
    both = lake.scan("kind = 'kind 1'", ["id"], semi_join=("id", np.arange(30, 50)))
    assert both.to_arrow()["id"].to_pylist() == [31, 36, 41, 46]
    # On one column: the keys between the bounds of the condition.
    range_ = "text >= 'row 2' and text < 'row 3'"
    assert lake.scan(range_, semi_join=("text", [f"row {n}" for n in range(MANY)])).count() == 0
    exact = pa.array([f"row {n} " + "·" * 40 for n in range(MANY)])
    assert lake.scan(range_, semi_join=("text", exact)).count() == 1_111
    assert lake.scan(semi_join=(sk.col("id") % 1_000, [0])).count() == 40


def test_every_way_to_read(lake):
    scan = lake.scan(columns=["id"], order_by="id desc", limit=3, semi_join=("id", np.arange(0, 40_000, 400)))
    assert scan.to_arrow()["id"].to_pylist() == [39_600, 39_200, 38_800]

    async def read():
        return [row async for batch in scan.to_batches_async() for row in batch["id"].to_pylist()]

    assert asyncio.run(read()) == [39_600, 39_200, 38_800]
    every = lake.scan(semi_join=("id", np.arange(0, 40_000, 400)))
    assert every.aggregate(sk.count(), sk.max("id")).to_pylist() == [{"count": 100, "max(id)": 39_600}]
    assert every.count(engine="local") == 100
    assert every.aggregate(sk.sum("id"), engine="local").to_pylist() == [{"sum(id)": 1_980_000}]


def test_keys_are_counted_and_not_shown(lake):
    scan = lake.scan("x > 0", semi_join=("id", np.arange(MANY)))
    for text in (str(scan.plan().predicate), scan.explain(), scan.explain("html"), repr(scan)):
        assert "id IN (5,000 keys)" in text.replace("&gt;", ">")
        assert "4,999" not in text
        assert "4999" not in text
    path = "part=1/1.parquet"
    assert "dropped: no row can match" in str(lake.scan(semi_join=("id", np.arange(MANY))).plan().why(path))
    assert str(lake.scan(semi_join=("id", [1])).plan().predicate) == "id IN (1 key)"


def test_plans_are_cached_by_the_keys(lake):
    first = lake.scan(semi_join=("id", np.arange(MANY))).plan()
    assert lake.scan(semi_join=("id", np.arange(MANY))).plan() is first
    other = lake.scan(semi_join=("id", np.arange(MANY) + 1)).plan()
    assert other is not first
    assert other.predicate != first.predicate
    again = pickle.loads(pickle.dumps(first))
    assert again == first
    assert sk.execute(again, ["id"]).to_arrow()["id"].to_pylist() == [*range(MANY)]


def test_plans_of_many_keys_take_more_of_the_cache(lake):
    lake.plans.clear()
    lake.scan("id < 5", semi_join=("id", [1])).plan()
    assert lake.plans.weight == 1
    lake.scan("id < 5", semi_join=("id", np.zeros(1_000_000, np.int8))).plan()
    assert lake.plans.weight == 6


def test_an_engine_is_sent_the_keys_once(lake):
    class Engine:
        name, parallelism = "counting", 4
        work = tasks = 0

        def map(self, work, tasks, *, on_done=None):
            self.work, self.tasks = len(pickle.dumps(work)), sum(len(pickle.dumps(task)) for task in tasks)
            return [work(task) for task in tasks]

        def close(self):
            pass

    engine = Engine()
    scan = lake.scan(semi_join=("id", np.arange(0, 40_000, 2)))
    assert scan.count(engine=engine) == 20_000
    assert engine.tasks < 20_000 * 8 <= engine.work < 20_000 * 8 + 50_000
    assert scan.aggregate(sk.sum("id"), engine=engine).to_pylist() == [{"sum(id)": 399_980_000}]
    assert engine.tasks < 20_000 * 8 <= engine.work < 20_000 * 8 + 50_000


def test_what_is_refused(lake):
    with pytest.raises(UsageError, match="semi_join is not a column and its values"):
        lake.scan(semi_join="id")
    with pytest.raises(UsageError, match="semi_join with 1"):
        lake.scan(semi_join=(1, [1]))
    with pytest.raises(PredicateError, match="needs a list of values"):
        lake.scan(semi_join=("id", "5"))
    with pytest.raises(TypeMismatchError, match="values are of type struct"):
        lake.scan(semi_join=("id", pa.table({"id": KEYS})))
    with pytest.raises(TypeMismatchError, match="can't be converted to Arrow"):
        lake.scan(semi_join=("id", np.zeros((2, 2))))
    with pytest.raises(UnknownColumnError, match="nothing"):
        lake.scan(semi_join=("nothing", KEYS)).plan()
    with pytest.raises(TypeMismatchError, match="can't be compared"):
        lake.scan(semi_join=("x", pa.array(["a"]))).plan()
