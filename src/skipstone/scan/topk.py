"""Which units can still hold one of the first k rows, told from the bounds of the first sort key."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from skipstone.core.domain.keys import Kind, key_space, to_key
from skipstone.core.evidence import ColumnFacts
from skipstone.core.ir import compile_predicate
from skipstone.core.ir.bind import Binder
from skipstone.core.ir.nodes import All, ColumnRef, Leaf
from skipstone.parquet.evidence import row_group_facts
from skipstone.scan.execute import Work
from skipstone.scan.order import Order, column_at
from skipstone.scan.parts import Piece

_NULLS_LAST = 3
_EMPTY = 4
"""The rank of a unit that holds no row at all."""


@dataclass(frozen=True, slots=True)
class Key:
    """A place in the order: NULLs, values and NaN by rank, values by their key; None is an open end."""

    rank: int
    value: Any = None


@dataclass(frozen=True, slots=True, eq=False)
class Ranked:
    """A piece and the best key that any of its rows can have."""

    piece: Piece
    best: Key


def rank(work: Work, pieces: Sequence[Piece]) -> list[Ranked]:
    """Pieces by the best key they can hold, best first."""
    term = work.plan.order[0]
    ref = Binder(work.plan.schemas.query).column(term.path)
    facts: dict[int, ColumnFacts] = {}
    nulls, nans = _allowed(work, ref)
    ranked = []
    for piece in pieces:
        if piece.task not in facts:
            known = _facts(work, piece.task, ref)
            facts[piece.task] = replace(known, may_null=known.may_null & nulls, may_nan=known.may_nan & nans)
        ranked.append(Ranked(piece, best_key(facts[piece.task], piece.group, term)))

    def order(a: Ranked, b: Ranked) -> int:
        return compare(a.best, b.best, term.descending)

    return sorted(ranked, key=functools.cmp_to_key(order))


def _allowed(work: Work, ref: ColumnRef) -> tuple[bool, bool]:
    """Whether matching rows may have NULL and NaN in the column: ``x < 5`` lets neither through."""
    plan = work.plan
    if plan.predicate is None:
        return True, True
    node = compile_predicate(
        plan.predicate, plan.schemas.query, case_sensitive=plan.options.case_sensitive
    ).node
    conjuncts = node.args if isinstance(node, All) else (node,)
    mine = [leaf for leaf in conjuncts if isinstance(leaf, Leaf) and leaf.ref == ref]
    return all(leaf.true.nulls for leaf in mine), all(leaf.true.nans for leaf in mine)


def _facts(work: Work, task: int, ref: ColumnRef) -> ColumnFacts:
    reader = work.reader(task)
    if ref.path[0] in work.plan.tasks[task].partition or not work.plan.options.skipping:
        # A partition has one value for the whole file; which facts it gives is not worth a special case.
        return ColumnFacts.unknown(ref.type, reader.metadata.row_group_count)
    return row_group_facts(reader.metadata, ref)


def best_key(facts: ColumnFacts, unit: int, term: Order) -> Key:
    """The best key any row of the unit can have."""
    ranks = _ranks(term)
    found = [Key(_EMPTY)]
    if facts.may_null[unit]:
        found.append(Key(ranks["null"]))
    if facts.may_nan[unit]:
        found.append(Key(ranks["nan"]))
    if facts.may_value[unit]:
        bound = (facts.upper if term.descending else facts.lower)[unit]
        value = bound.as_py() if isinstance(bound, pa.Scalar) else bound.item()
        found.append(Key(ranks["value"], value))
    return min(found, key=lambda key: key.rank)


def _ranks(term: Order) -> dict[str, int]:
    values = {"nan": 1, "value": 2} if term.descending else {"value": 1, "nan": 2}
    return {**values, "null": 0 if term.nulls_first else _NULLS_LAST}


def compare(a: Key, b: Key, descending: bool) -> int:
    """Below zero if ``a`` comes first, above if ``b`` does."""
    if a.rank != b.rank or a.value is None or b.value is None:
        return a.rank - b.rank
    if a.value == b.value:
        return 0
    return -1 if (a.value < b.value) is not descending else 1


class Threshold:
    """The k-th best key so far: units whose best is worse are done with."""

    def __init__(self, term: Order, limit: int) -> None:
        self._term = term
        self._limit = limit
        self._key: Key | None = None

    def update(self, best: pa.Table) -> None:
        """Take the last of the rows that lead now."""
        if best.num_rows == self._limit:
            self._key = key_of(column_at(best.slice(self._limit - 1), self._term.path), self._term)

    def beaten_by(self, unit: Ranked) -> bool:
        """Whether the unit may hold a row that comes before the k-th, or ties with it."""
        if self._key is None:
            return unit.best.rank < _EMPTY
        return compare(unit.best, self._key, self._term.descending) <= 0


def key_of(column: pa.ChunkedArray, term: Order) -> Key:
    """The place of a column's one value in the order."""
    scalar = column[0]
    ranks = _ranks(term)
    if not scalar.is_valid:
        return Key(ranks["null"])
    if isinstance(scalar, pa.ExtensionScalar):
        scalar = scalar.value
    if isinstance(scalar, pa.DictionaryScalar):
        scalar = scalar.value if hasattr(scalar, "value") else scalar.as_py()
    if key_space(scalar.type).kind is Kind.FLOAT and np.isnan(float(scalar.as_py())):
        return Key(ranks["nan"])
    return Key(ranks["value"], to_key(scalar.type, scalar))
