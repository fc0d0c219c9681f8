"""Sets of values: Marker, Range, Domain, ColumnDomain, and their key spaces."""

from __future__ import annotations

from skipstone.core.domain.domain import (
    AllOf,
    AnyOf,
    ColumnDomain,
    ColumnHandle,
    Domain,
    DomainTree,
    all_of,
    any_of,
)
from skipstone.core.domain.spans import Bound, Marker, Range

__all__ = [
    "AllOf",
    "AnyOf",
    "Bound",
    "ColumnDomain",
    "ColumnHandle",
    "Domain",
    "DomainTree",
    "Marker",
    "Range",
    "all_of",
    "any_of",
]
