"""Conditions with thousands of ranges: the work grows like their number, and is small for each."""

from __future__ import annotations

import datetime
import pickle
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

import skipstone as sk
from skipstone.core.domain import ColumnDomain, ColumnHandle, Domain, Range
from skipstone.core.domain.documents import from_document
from skipstone.core.ir import compile_predicate
from skipstone.core.ir.nodes import Leaf
from skipstone.predicate.tree import disjunction
from tests.support.calls import calls

SCHEMA = pa.schema({"id": pa.int64(), "f": pa.float64(), "s": pa.string(), "t": pa.timestamp("us")})
START = datetime.datetime(2026, 1, 1)
KINDS: dict[str, Callable[[int], Any]] = {
    "id": lambda number: number,
    "f": lambda number: number + 0.5,
    "s": lambda number: f"{number:06}",
    "t": lambda number: START + datetime.timedelta(seconds=number),
}
FEW, MANY = 100, 1_000


def ranges(name: str, count: int) -> Domain:
    type, make = SCHEMA.field(name).type, KINDS[name]
    return Domain.of(type, *(Range.between(type, make(3 * n), make(3 * n + 1)) for n in range(count)))


def condition(name: str, count: int) -> sk.Predicate:
    return sk.predicate(ColumnDomain.of({ColumnHandle(name, SCHEMA.field(name).type): ranges(name, count)}))


STEPS: dict[str, tuple[Callable[[str, int], Callable[[], Any]], int]] = {
    # Each with the calls that it may make for a range.
    "make a domain": (lambda name, count: lambda: ranges(name, count), 70),
    "hash": (lambda name, count: condition(name, count).__hash__, 30),
    "compare": (lambda name, count: lambda: _equal(*_twice(name, count)), 360),
    "compile": (lambda name, count: _compiling(name, count), 350),
}


def _twice(name: str, count: int) -> tuple[sk.Predicate, sk.Predicate]:
    return condition(name, count), condition(name, count)


def _equal(one: sk.Predicate, other: sk.Predicate) -> None:
    assert one == other


def _compiling(name: str, count: int) -> Callable[[], Any]:
    where = condition(name, count)
    return lambda: compile_predicate(where, SCHEMA)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("name", KINDS)
def test_each_range_takes_a_few_calls(name: str, step: str) -> None:
    work, most = STEPS[step]
    work(name, FEW)()
    made = [calls(work(name, count)) for count in (FEW, MANY)]
    per_range = (made[1] - made[0]) / (MANY - FEW)
    assert 1 < per_range <= most, made


@pytest.mark.parametrize("name", KINDS)
def test_many_ranges_are_one_leaf(name: str) -> None:
    where, domain = condition(name, 1_000), ranges(name, 1_000)
    node = compile_predicate(where, SCHEMA).node
    assert isinstance(node, Leaf)
    assert node.true == domain
    assert len(node.true.spans) == len(domain.spans) == 1_000
    for one, other in pairwise(domain.ranges):
        assert one.high < other.low
    assert pickle.loads(pickle.dumps(where)) == where
    assert where.to_domain(SCHEMA) == ColumnDomain.of({ColumnHandle(name, SCHEMA.field(name).type): domain})


def test_merged_at_once_or_one_by_one() -> None:
    """Ranges that overlap, touch, repeat, or have holes."""
    handle = ColumnHandle("id", pa.int64())
    some = [
        Domain.of(pa.int64(), Range.between(pa.int64(), low, low + width), nulls=nulls)
        for low, width, nulls in ((5, 3, False), (9, 0, False), (1, 10, True), (40, 2, False), (5, 3, False))
    ]
    expected = some[0]
    for one in some[1:]:
        expected = expected | one
    assert Domain.union_all(some) == expected
    joined = disjunction(sk.predicate(ColumnDomain.of({handle: one})) for one in some)
    node = compile_predicate(joined, SCHEMA).node
    assert isinstance(node, Leaf)
    assert node.true == expected


def test_ranges_of_a_document(tmp_path: Any) -> None:
    document = {
        "columns": [{"name": "id", "ranges": [{"low": 3 * n, "high": 3 * n + 1} for n in range(2_000)]}]
    }
    assert from_document(document, SCHEMA) == ColumnDomain.of(
        {ColumnHandle("id", pa.int64()): ranges("id", 2_000)}
    )
