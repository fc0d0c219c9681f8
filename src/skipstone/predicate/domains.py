"""Conversion of ColumnDomain trees to predicates."""

from __future__ import annotations

import pyarrow as pa

from skipstone.core.domain import AllOf, AnyOf, ColumnDomain, Domain, DomainTree, Range
from skipstone.core.domain.keys import Kind, from_key, key_space, storage_type
from skipstone.core.domain.spans import Bound
from skipstone.predicate.tree import (
    Between,
    Column,
    Compare,
    Constant,
    Expr,
    IsIn,
    IsNan,
    IsNull,
    Literal,
    Not,
    Predicate,
    conjunction,
    disjunction,
)


def from_column_domain(tree: DomainTree) -> Predicate:
    """Predicate that is TRUE for exactly the rows of the domains."""
    match tree:
        case ColumnDomain(is_none=True):
            return Constant(False)
        case ColumnDomain(items):
            return conjunction(from_domain(Column(c.path), d) for c, d in items)
        case AllOf(args):
            return conjunction(from_column_domain(a) for a in args)
        case AnyOf(args):
            return disjunction(from_column_domain(a) for a in args)
    raise AssertionError(f"no predicate for {type(tree).__name__}")


def from_domain(column: Expr, domain: Domain) -> Predicate:
    """Predicate that is TRUE for exactly the values of the domain."""
    if domain.is_all:
        return Constant(True)
    parts: list[Predicate] = []
    values, ranges = _split(domain)
    if len(values) == 1:
        parts.append(Compare("=", column, Literal(values[0])))
    elif values:
        parts.append(IsIn(column, pa.array(values, storage_type(domain.type))))
    parts += [_range(column, domain, r) for r in ranges]
    if domain.nans:
        parts.append(IsNan(column))
    if domain.nulls:
        parts.append(IsNull(column))
    return disjunction(parts)


def _split(domain: Domain) -> tuple[list[pa.Scalar], list[Range]]:
    values, ranges = [], []
    for item in domain.ranges:
        key = item.low.key
        if key is not None and item.low == item.high:
            values.append(from_key(domain.type, key))
        else:
            ranges.append(item)
    return values, ranges


def _range(column: Expr, domain: Domain, item: Range) -> Predicate:
    low, high = (
        None if end.key is None else Literal(from_key(domain.type, end.key)) for end in (item.low, item.high)
    )
    low_inclusive, high_inclusive = item.low.bound is Bound.EXACTLY, item.high.bound is Bound.EXACTLY
    if low is not None and high is not None:
        return Between(column, low, high, low_inclusive, high_inclusive)
    parts: list[Predicate] = []
    if low is not None:
        parts.append(Compare(">=" if low_inclusive else ">", column, low))
    if high is not None:
        parts.append(Compare("<=" if high_inclusive else "<", column, high))
    elif key_space(domain.type).kind is Kind.FLOAT and not domain.nans:
        parts.append(Not(IsNan(column)))  # NaN is above every number
    if not parts:
        parts.append(Not(IsNull(column)))
    return conjunction(parts)
