"""ColumnDomain and trees of domains: algebra, and conversion from and to predicates."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import skipstone as sk
from skipstone.core.domain import ColumnDomain, ColumnHandle, Domain, DomainTree
from skipstone.core.ir.domains import to_domain_tree
from skipstone.errors import NotExpressibleError

A, B = ColumnHandle("a", pa.int8()), ColumnHandle("b", pa.float32())
SCHEMA = pa.schema([("a", pa.int8()), ("b", pa.float32())])
A_VALUES = [None, -1, 0, 1, 2]
B_VALUES = [None, float("nan"), -1.0, 0.0, 1.5]
ROWS = list(itertools.product(range(5), range(5)))


def holds(tree: DomainTree, row: tuple[int, int]) -> bool:
    a, b = A_VALUES[row[0]], B_VALUES[row[1]]
    if isinstance(tree, ColumnDomain):
        return tree.domain(A).contains(a) and tree.domain(B).contains(b)
    args = [holds(arg, row) for arg in tree.args]  # type: ignore[attr-defined]
    return any(args) if type(tree).__name__ == "AnyOf" else all(args)


a_domains = st.builds(
    lambda values: Domain.values(pa.int8(), values), st.lists(st.sampled_from(A_VALUES), max_size=3)
)
b_domains = st.builds(
    lambda values: Domain.values(pa.float32(), values), st.lists(st.sampled_from(B_VALUES), max_size=3)
)
simple = st.one_of(
    st.builds(lambda d: ColumnDomain.of({A: d}), a_domains),
    st.builds(lambda d: ColumnDomain.of({B: d}), b_domains),
    st.builds(lambda d, e: ColumnDomain.of({A: d, B: e}), a_domains, b_domains),
)
trees = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.builds(lambda x, y: x & y, inner, inner),
        st.builds(lambda x, y: x | y, inner, inner),
        st.builds(lambda x: ~x, inner),
    ),
    max_leaves=6,
)


@given(trees, trees)
def test_trees_are_sets_of_rows(x: DomainTree, y: DomainTree) -> None:
    for row in ROWS:
        assert holds(x & y, row) == (holds(x, row) and holds(y, row))
        assert holds(x | y, row) == (holds(x, row) or holds(y, row))
        assert holds(~x, row) == (not holds(x, row))
        assert holds(x, row) <= holds(x.hull(), row)


@given(simple, simple)
def test_contains_and_overlaps(x: ColumnDomain, y: ColumnDomain) -> None:
    both = [row for row in ROWS if holds(x, row) and holds(y, row)]
    assert not both or x.overlaps(y)
    if x.contains(y):
        assert all(holds(x, row) for row in ROWS if holds(y, row))


@given(trees)
def test_predicates_and_back(tree: DomainTree) -> None:
    again = to_domain_tree(sk.predicate(tree), SCHEMA)
    assert [holds(again, row) for row in ROWS] == [holds(tree, row) for row in ROWS]


def test_the_rfc_example() -> None:
    domain = sk.parse("a > 34 and b in (1.5, 2.5)").to_domain(SCHEMA)
    assert str(domain) == "a in [35, +∞) and b in [1.5] or [2.5]"
    assert sk.predicate(domain) == sk.predicate(sk.predicate(domain).to_domain(SCHEMA))


def test_without_a_schema_literals_give_the_types() -> None:
    assert sk.parse("x = 'a' or x is null").to_domain().domain(ColumnHandle("x", pa.string())).nulls


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a = 1 or b > 0", "OR over several columns"),
        ("a = b", "can't be a domain"),
        ("year(a) = 2020", "can't be a domain"),
        ("a + 1 = 2", "function of a column"),
    ],
)
def test_what_a_domain_cannot_hold(text: str, why: str) -> None:
    with pytest.raises(NotExpressibleError, match=why):
        sk.parse(text).to_domain(SCHEMA)
