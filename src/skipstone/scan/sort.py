"""ORDER BY, with or without a limit.

With a limit, units are visited by the bounds of the first sort key, best first, and dropped once none of
their rows can be among the first. Only sort keys and predicate columns are read to find those rows; their
other columns are read last.
"""

from __future__ import annotations

import functools
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from skipstone.core.domain.keys import Kind, key_space, to_key
from skipstone.core.evidence import Array, ColumnFacts
from skipstone.core.ir import compile_predicate
from skipstone.core.ir.bind import Binder
from skipstone.core.ir.nodes import AndNode, ColumnRef, Leaf
from skipstone.core.rows import RowSet
from skipstone.engine.jobs import gather
from skipstone.parquet.evidence import row_group_facts
from skipstone.parquet.slice.columns import take
from skipstone.scan.execute import Work
from skipstone.scan.parts import Piece
from skipstone.scan.projection import Order, Projection, column_at, sort_positions
from skipstone.scan.reader import joined

_WIDEST = 16
_LOCATION = ("skipstone task", "skipstone group", "skipstone row")


def sorted_rows(work: Work) -> Generator[pa.Table]:
    """The plan's rows in sort order, in batches."""
    plan = work.plan
    keys = Projection.of(plan.schemas.read, [term.path for term in plan.order])
    keyed = KeyReader(work, keys)
    best = _top(keyed, plan.limit) if plan.limit is not None else _all(keyed)
    if best is None or not best.num_rows:
        return
    step = plan.options.batch_rows
    for start in range(0, best.num_rows, step):
        yield keyed.payload(best.slice(start, step))


@dataclass(frozen=True, slots=True)
class KeyReader:
    """Reads the sort keys of matching rows, with the location of each row."""

    work: Work
    keys: Projection

    def read(self, piece: Piece) -> pa.Table:
        """Keys and locations of the matching rows of a piece."""
        work = self.work
        work.count_piece()
        if piece.proven:
            rows, table = piece.rows, work.read(piece, piece.rows, self.keys, "sort keys")
        else:
            rows, table = work.matches(piece, self.keys)
        count = len(rows)
        for name, values in zip(
            _LOCATION,
            (np.full(count, piece.task), np.full(count, piece.group), rows.positions()),
            strict=True,
        ):
            table = table.append_column(name, pa.array(values, pa.int64()))
        return table

    def payload(self, chosen: pa.Table) -> pa.Table:
        """The projected columns of the chosen rows, in their order."""
        tasks, groups, rows = (np.asarray(chosen.column(name)) for name in _LOCATION)
        order = np.lexsort((rows, groups, tasks))
        edges = np.flatnonzero(np.diff(tasks[order]) | np.diff(groups[order])) + 1
        parts = np.split(order, edges)

        def read(part: Array) -> pa.Table:
            task, group = int(tasks[part[0]]), int(groups[part[0]])
            reader = self.work.reader(task)
            total = int(reader.metadata.row_group_rows[group])
            wanted = RowSet.from_positions(total, rows[part])
            return reader.read(group, wanted, self.work.plan.projection)

        tables = gather(read, parts, threads=self.work.plan.hints.threads)
        back = np.empty(len(order), dtype=np.int64)
        back[order] = np.arange(len(order))
        return take(joined(tables), back)


def _all(keyed: KeyReader) -> pa.Table | None:
    plan = keyed.work.plan
    pieces = list(keyed.work.pieces(keyed.keys))
    tables = gather(keyed.read, pieces, threads=plan.hints.threads)
    if not tables:
        return None
    every = joined(tables)
    return take(every, sort_positions(every, plan.order))


def _top(keyed: KeyReader, limit: int) -> pa.Table | None:
    """The first ``limit`` rows, visiting units by their bounds."""
    plan = keyed.work.plan
    threads = plan.hints.threads
    ranked = rank(keyed.work, list(keyed.work.pieces(keyed.keys)))
    threshold = Threshold(plan.order[0], limit)
    best: pa.Table | None = None
    width = threads
    while ranked and (wave := _wave(ranked, threshold, width)):
        # The first waves set the threshold; if it drops few units, the rest must be read anyway.
        width = min(width * 2, threads * _WIDEST)
        tables = gather(keyed.read, wave, threads=threads)
        rows = joined([*([best] if best is not None else []), *tables])
        # By location first, so that path and position break ties, regardless of the order of units.
        rows = take(rows, np.lexsort([np.asarray(rows.column(name)) for name in reversed(_LOCATION)]))
        best = take(rows, sort_positions(rows, plan.order, limit))
        threshold.update(best)
    return best


def _wave(ranked: list[RankedPiece], threshold: Threshold, width: int) -> list[Piece]:
    """The next units that can improve on the threshold."""
    wave: list[Piece] = []
    while ranked and len(wave) < width:
        unit = ranked.pop(0)
        if threshold.beaten_by(unit):
            wave.append(unit.piece)
    return wave


_NULLS_LAST = 3
_EMPTY = 4
"""The rank of a unit without rows."""


@dataclass(frozen=True, slots=True)
class Key:
    """A position in the sort order: NULLs, values and NaN by rank, values by key; None is unbounded."""

    rank: int
    value: Any = None


@dataclass(frozen=True, slots=True, eq=False)
class RankedPiece:
    """A piece and the best key that any of its rows can have."""

    piece: Piece
    best: Key


def rank(work: Work, pieces: Sequence[Piece]) -> list[RankedPiece]:
    """Pieces sorted by their best possible key."""
    term = work.plan.order[0]
    ref = Binder(work.plan.schemas.query).column(term.path)
    facts: dict[int, ColumnFacts] = {}
    nulls, nans = _allowed(work, ref)
    ranked = []
    for piece in pieces:
        if piece.task not in facts:
            own = _facts(work, piece.task, ref)
            facts[piece.task] = replace(own, may_null=own.may_null & nulls, may_nan=own.may_nan & nans)
        ranked.append(RankedPiece(piece, best_key(facts[piece.task], piece.group, term)))

    def order(a: RankedPiece, b: RankedPiece) -> int:
        return compare(a.best, b.best, term.descending)

    return sorted(ranked, key=functools.cmp_to_key(order))


def _allowed(work: Work, ref: ColumnRef) -> tuple[bool, bool]:
    """Whether matching rows can have NULL and NaN in the column: ``x < 5`` excludes both."""
    plan = work.plan
    if plan.predicate is None:
        return True, True
    node = compile_predicate(
        plan.predicate, plan.schemas.query, case_sensitive=plan.options.case_sensitive
    ).node
    conjuncts = node.args if isinstance(node, AndNode) else (node,)
    mine = [leaf for leaf in conjuncts if isinstance(leaf, Leaf) and leaf.ref == ref]
    return all(leaf.true.nulls for leaf in mine), all(leaf.true.nans for leaf in mine)


def _facts(work: Work, task: int, ref: ColumnRef) -> ColumnFacts:
    reader = work.reader(task)
    if ref.path[0] in work.plan.tasks[task].partition or not work.plan.options.skipping:
        # A partition column has one value per file, which is not worth a special case.
        return ColumnFacts.unknown(ref.type, reader.metadata.row_group_count)
    return row_group_facts(reader.metadata, ref)


def best_key(facts: ColumnFacts, unit: int, term: Order) -> Key:
    """The best key any row of the unit can have."""
    ranks = _ranks(term)
    keys = [Key(_EMPTY)]
    if facts.may_null[unit]:
        keys.append(Key(ranks["null"]))
    if facts.may_nan[unit]:
        keys.append(Key(ranks["nan"]))
    if facts.may_value[unit]:
        bound = (facts.upper if term.descending else facts.lower)[unit]
        value = bound.as_py() if isinstance(bound, pa.Scalar) else bound.item()
        keys.append(Key(ranks["value"], value))
    return min(keys, key=lambda key: key.rank)


def _ranks(term: Order) -> dict[str, int]:
    values = {"nan": 1, "value": 2} if term.descending else {"value": 1, "nan": 2}
    return {**values, "null": 0 if term.nulls_first else _NULLS_LAST}


def compare(a: Key, b: Key, descending: bool) -> int:
    """Negative if ``a`` comes first, positive if ``b`` does."""
    if a.rank != b.rank or a.value is None or b.value is None:
        return a.rank - b.rank
    if a.value == b.value:
        return 0
    return -1 if (a.value < b.value) is not descending else 1


class Threshold:
    """The k-th best key so far; units whose best key is worse are dropped."""

    def __init__(self, term: Order, limit: int) -> None:
        self._term = term
        self._limit = limit
        self._key: Key | None = None

    def update(self, best: pa.Table) -> None:
        """Set the threshold to the last of the best rows."""
        if best.num_rows == self._limit:
            self._key = key_of(column_at(best.slice(self._limit - 1), self._term.path), self._term)

    def beaten_by(self, unit: RankedPiece) -> bool:
        """Whether the unit can have a row before the k-th, or tied with it."""
        if self._key is None:
            return unit.best.rank < _EMPTY
        return compare(unit.best, self._key, self._term.descending) <= 0


def key_of(column: pa.ChunkedArray, term: Order) -> Key:
    """The key of a column's single value."""
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
