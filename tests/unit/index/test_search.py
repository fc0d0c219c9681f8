"""A search may find too many units, never too few: every unit that the judge keeps is among them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import skipstone as sk
from skipstone.core.domain.keys import Kind, key_space
from skipstone.core.evidence import ColumnFacts, Evidence, unbounded
from skipstone.core.ir import compile_predicate
from skipstone.core.ir.nodes import Leaf
from skipstone.core.judge import judge
from skipstone.index.container import Container, ContainerWriter, RemoteFile
from skipstone.index.levels import write_facts
from skipstone.index.search import UnitRuns, head, heads, search, search_arrays, search_leaf
from skipstone.predicate import col
from skipstone.store.cache import Cache
from tests.support.samples import sample

INTS = st.integers(-6, 6) | st.sampled_from([-(2**63), 2**63 - 1])
UNSIGNED = st.integers(0, 6) | st.sampled_from([2**63, 2**64 - 1])
FLOATS = st.sampled_from([-np.inf, -2.5, -0.0, 0.0, 1.0, 2.5, np.inf])
TEXTS = st.sampled_from(
    ["", "a", "ab", "abcdefgh", "abcdefgha", "abcdefghz", "b", "z", "é", "\U0010ffff", "\0"]
)
VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): INTS,
    pa.int8(): st.integers(-6, 6) | st.sampled_from([-128, 127]),
    pa.uint64(): UNSIGNED,
    pa.float64(): FLOATS,
    pa.string(): TEXTS,
    pa.large_binary(): TEXTS.map(str.encode),
}


@st.composite
def units(draw: st.DrawFn, type: pa.DataType, most: int = 14) -> ColumnFacts:
    """True facts: bounds of values, or unknown ones; units of NULLs only; NaN."""
    count = draw(st.integers(1, most))
    space = key_space(type)
    floor, ceiling = unbounded(type, 1)
    lows, highs, values = [], [], []
    for _ in range(count):
        pair = [v.encode() if isinstance(v, str) else v for v in (draw(VALUES[type]), draw(VALUES[type]))]
        low, high = sorted(pair)
        has = draw(st.booleans()) or draw(st.booleans())
        unknown = draw(st.sampled_from([0, 0, 0, 1, 2, 3]))
        lows.append(floor[0] if unknown & 1 or not has else low)
        highs.append(ceiling[0] if unknown & 2 or not has else high)
        values.append(has)

    def bounds(keys: list[Any]) -> Any:
        if space.kind is Kind.BYTES:
            plain = [k.as_py() if isinstance(k, pa.Scalar) else k for k in keys]
            return pa.array(plain, pa.large_binary())
        return np.array(keys, space.dtype)

    def flags() -> Any:
        return np.array(draw(st.lists(st.booleans(), min_size=count, max_size=count)), dtype=bool)

    nans = flags() if space.kind is Kind.FLOAT else np.zeros(count, dtype=bool)
    has = np.array(values, dtype=bool)
    return ColumnFacts(type, bounds(lows), bounds(highs), flags() & has, flags() & has, has, flags(), nans)


def conditions(name: str, type: pa.DataType, depth: int = 2) -> st.SearchStrategy[Any]:
    value = VALUES[type]
    return st.one_of(
        st.builds(lambda v: col(name) == v, value),
        st.builds(lambda v: col(name) != v, value),
        st.builds(lambda v: col(name) < v, value),
        st.builds(lambda v: col(name) <= v, value),
        st.builds(lambda v: col(name) > v, value),
        st.builds(lambda v: col(name) >= v, value),
        st.builds(lambda v: col(name).isin(v), st.lists(value, min_size=1, max_size=4)),
        st.builds(lambda a, b: (col(name) >= a) & (col(name) < b), value, value),
        st.just(col(name).is_null()),
        st.just(col(name).is_not_null()),
    )


def trees(leaf: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaf,
        lambda part: st.one_of(
            st.builds(lambda a, b: a & b, part, part),
            st.builds(lambda a, b: a | b, part, part),
            st.builds(lambda a: ~a, part),
        ),
        max_leaves=5,
    )


def container(facts: dict[int, ColumnFacts]) -> Container:
    writer = ContainerWriter()
    for column, one in facts.items():
        write_facts(writer, column, "file", one)
        for name, array in search_arrays(one).items():
            writer.add(column, f"file/{name}", array)
    parts, tail = writer.parts({})
    data = b"".join(parts)
    read = RemoteFile("x", lambda ranges: [data[r.start : r.stop] for r in ranges])
    return Container.open("x", read, len(data), tail, Cache(1 << 20))


@settings(max_examples=sample("index searches"))
@given(st.data())
def test_a_search_misses_nothing_the_judge_keeps(data: st.DataObject) -> None:
    types = [data.draw(st.sampled_from([*VALUES]), label="type") for _ in range(2)]
    first = data.draw(units(types[0]))
    second = data.draw(units(types[1]).filter(lambda f: len(f) >= 1))
    count = min(len(first), len(second))
    facts = {n: f.take(np.arange(count)) for n, f in enumerate((first, second))}
    schema = pa.schema([("a", types[0]), ("b", types[1])])
    leaf = conditions("a", types[0]) | conditions("b", types[1])
    predicate = data.draw(trees(leaf), label="predicate")
    node = compile_predicate(predicate, schema).node
    box = container(facts)
    asked: list[UnitRuns | None] = []

    def look(leaf: Leaf) -> UnitRuns | None:
        number = {("a",): 0, ("b",): 1}[leaf.ref.path]
        asked.append(search_leaf(leaf, box, number, types[number]))
        return asked[-1]

    most = data.draw(st.integers(0, count), label="most")
    found = search(node, look, most)
    rows = np.full(count, 9, dtype=np.int64)
    kept = judge(node, Evidence(rows, {("a",): facts[0], ("b",): facts[1]})).bits.true
    if found is None:
        return
    assert len(found) <= most
    assert found.tolist() == sorted({*found.tolist()})
    missed = {*np.flatnonzero(kept).tolist()} - {*found.tolist()}
    assert not missed, f"{predicate} misses {missed}"


@settings(max_examples=sample("index searches"))
@given(st.data())
def test_each_leaf_alone(data: st.DataObject) -> None:
    """With any number of units allowed; a point among sorted units finds few."""
    type = data.draw(st.sampled_from([*VALUES]))
    facts = data.draw(units(type))
    predicate = data.draw(conditions("a", type))
    node = compile_predicate(predicate, pa.schema([("a", type)])).node
    assume(isinstance(node, Leaf))
    found = search_leaf(node, container({0: facts}), 0, type)
    if found is None:
        domain = node.true
        assert domain.nulls or domain.nans or domain.spans.is_all
        return
    assert found.size == len(found.units())
    rows = np.full(len(facts), 9, dtype=np.int64)
    kept = judge(node, Evidence(rows, {("a",): facts})).bits.true
    assert {*np.flatnonzero(kept).tolist()} <= {*found.units().tolist()}


def test_a_point_among_sorted_files_is_found_at_once() -> None:
    """The feature: of 1,000 files with neighbouring ranges a point finds one, a list a few."""
    lows = np.arange(1000) * 10
    yes, no = np.ones(1000, dtype=bool), np.zeros(1000, dtype=bool)
    shuffled = np.random.default_rng(1).permutation(1000)
    facts = ColumnFacts(pa.int64(), lows[shuffled], lows[shuffled] + 9, yes, yes, yes, no, no)
    box = container({0: facts})
    schema = pa.schema([("a", pa.int64())])
    for where, wanted in [
        ("a = 5555", 1),
        ("a in (5, 7777, 123456)", 2),
        ("a between 95 and 124", 4),
        ("a < 0", 0),
    ]:
        node = compile_predicate(sk.parse(where), schema).node
        found = search(node, lambda leaf: search_leaf(leaf, box, 0, pa.int64()), 10)
        assert found is not None
        assert len(found) == wanted, where
    node = compile_predicate(sk.parse("a > 100"), schema).node
    assert search(node, lambda leaf: search_leaf(leaf, box, 0, pa.int64()), 10) is None


@given(st.lists(st.binary(max_size=12) | st.none()))
def test_heads_keep_the_order_of_strings(values: list[bytes | None]) -> None:
    array = pa.array(values, pa.large_binary())
    found = heads(array, 7)
    for value, number in zip(values, found.tolist(), strict=True):
        assert number == (7 if value is None else head(value))
    known = [v for v in values if v is not None]
    for a in known:
        for b in known:
            if a <= b:
                assert head(a) <= head(b)
