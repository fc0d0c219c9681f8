"""ORDER BY: a merge of units in the order of their bounds, which ends when a limit is reached.

Only sort keys and predicate columns are read to find the next rows; their other columns are read last.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import cmp_to_key
from heapq import heappop, heappush
from itertools import count, pairwise
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.arrays import binary_keys, bools, numbers, plain
from skipstone.core.domain.keys import Kind, key_space
from skipstone.core.evidence import Array, ColumnFacts
from skipstone.core.ir import compile_predicate
from skipstone.core.ir.bind import Binder
from skipstone.core.ir.nodes import AndNode, ColumnRef, Leaf
from skipstone.core.rows import RowSet
from skipstone.engine.jobs import gather
from skipstone.parquet.evidence import row_group_facts
from skipstone.parquet.slice.columns import take
from skipstone.scan.execute import Work
from skipstone.scan.parts import Piece, has_pages
from skipstone.scan.projection import Order, Projection, column_at, sort_positions
from skipstone.scan.reader import filtered, joined

_WIDEST = 16
_LOCATION = ("skipstone task", "skipstone group", "skipstone row")
_FIRST_RUN = 2_048
_LONGEST_RUN = 65_536
# With a limit, rows that are read ahead are cut if they are this many times as many.
_MORE_THAN_NEEDED = 4
# More units are read at a time if less than one in so many rows is next.
_FEW_READY = 8


def sorted_rows(work: Work) -> Generator[pa.Table]:
    """The plan's rows in sort order, in batches; without a limit the first batch comes early."""
    plan = work.plan
    keyed = KeyReader(work, Projection.of(plan.schemas.read, [term.path for term in plan.order]))
    least = plan.options.batch_rows if plan.limit is not None else 1
    held: list[pa.Table] = []
    for rows in _merged(keyed):
        held.append(rows)
        if sum(map(len, held)) >= least:
            yield from keyed.batches(joined(held))
            held, least = [], plan.options.batch_rows
    if held:
        yield from keyed.batches(joined(held))


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

    def batches(self, chosen: pa.Table) -> Generator[pa.Table]:
        """The projected columns of the chosen rows, in batches."""
        step = self.work.plan.options.batch_rows
        for start in range(0, len(chosen), step):
            yield self.payload(chosen.slice(start, step))

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


# -- the merge ---------------------------------------------------------------------------------


def _merged(keyed: KeyReader) -> Generator[pa.Table]:
    """Keys and locations of the plan's rows in sort order, in parts.

    Units are read in the order of the best key that a row of theirs can have. Rows that precede the best key
    of all units that are left are next. So little is held of sorted files, whatever their number; if units
    overlap, all that do are held.
    """
    plan = keyed.work.plan
    left, threads, term = plan.limit, plan.hints.threads, plan.order[0]
    queue = UnitQueue.of(keyed)
    waiting: list[tuple[Key, pa.Table]] = []
    """Rows that were read, and a key that none of them precedes."""
    width = threads
    while wave := queue.pop(width):
        tables = gather(keyed.read, [piece for _, piece in wave], threads=threads)
        waiting += [(best, rows) for (best, _), rows in zip(wave, tables, strict=True)]
        ready, waiting = _divided(waiting, queue.best, term)
        count, more = (sum(map(len, some)) for some in (ready, [rows for _, rows in waiting]))
        # If most rows must wait, many units overlap.
        width = threads if count * _FEW_READY > more else min(width * 2, threads * _WIDEST)
        if count:
            yield _in_order(ready, plan.order, left)
        if left is not None:
            if count >= left:
                return
            left -= count
            if queue.best is not None and more > max(_MORE_THAN_NEEDED * left, _LONGEST_RUN):
                best, _ = min(waiting, key=lambda one: sort_key(one[0], term))
                waiting = [(best, _in_order([rows for _, rows in waiting], plan.order, left))]


def _divided(
    waiting: Sequence[tuple[Key, pa.Table]], mark: Key | None, term: Order
) -> tuple[list[pa.Table], list[tuple[Key, pa.Table]]]:
    """The rows that certainly precede a key, or all rows if there is none, and the others."""
    if mark is None:
        return [rows for _, rows in waiting], []
    ready, left = [], []
    for best, rows in waiting:
        if compare(best, mark, term.descending) >= 0 and best.value is not None:
            left.append((best, rows))
            continue
        mask = preceding(column_at(rows, term.path), mark, term)
        ready.append(filtered(rows, mask))
        if not mask.all():
            left.append((mark, filtered(rows, ~mask)))
    return ready, left


def preceding(column: pa.ChunkedArray, mark: Key, term: Order) -> Array:
    """Mask of the values that precede a key."""
    ranks, space = _ranks(term), key_space(column.type)
    array = plain(column.combine_chunks())
    missing = bools(array.is_null())
    rank = np.where(missing, ranks["null"], ranks["value"])
    if space.kind is Kind.FLOAT:
        rank[np.isnan(numbers(array)) & ~missing] = ranks["nan"]
    before = np.asarray(rank < mark.rank)
    if mark.value is None:
        return before
    if space.kind is Kind.BYTES:
        compared = pc.greater if term.descending else pc.less
        keys = binary_keys(array).cast(pa.large_binary())
        closer = bools(compared(keys, pa.scalar(mark.value, pa.large_binary())).fill_null(False))
    else:
        values = numbers(array)
        closer = values > mark.value if term.descending else values < mark.value
    return np.asarray(before | (closer & (rank == mark.rank)))


def _in_order(tables: Sequence[pa.Table], order: Sequence[Order], limit: int | None) -> pa.Table:
    """The first rows of tables in sort order; path and position break ties."""
    some = [(_locations(table)[:, 0].tolist(), table) for table in tables if len(table)]
    rows = joined([table for _, table in sorted(some, key=itemgetter(0))])
    steps = np.diff(_locations(rows))
    # The sort is stable, so rows in the order of their locations stay so.
    rising = (steps[0] > 0) | (steps[0] == 0) & ((steps[1] > 0) | (steps[1] == 0) & (steps[2] > 0))
    if not rising.all():
        rows = take(rows, np.lexsort(_locations(rows)[::-1]))
    return take(rows, sort_positions(rows, order, limit))


def _locations(rows: pa.Table) -> Array:
    return np.stack([np.asarray(rows.column(name)) for name in _LOCATION])


@dataclass(frozen=True, slots=True, eq=False)
class UnitQueue:
    """Units to read by the best key that any of their rows can have.

    Row groups whose pages are sorted are divided into runs of pages when it is their turn; the first runs are
    short, because few rows may be needed.
    """

    keyed: KeyReader
    ref: ColumnRef
    allowed: tuple[bool, bool]
    """Whether matching rows can have NULL and NaN."""
    heap: list[tuple[Any, int, Piece, Key, bool]]
    numbers: Iterator[int]

    @classmethod
    def of(cls, keyed: KeyReader) -> UnitQueue:
        """All units of a plan."""
        work, order = keyed.work, keyed.work.plan.order
        ref = Binder(work.plan.schemas.query).column(order[0].path)
        queue = cls(keyed, ref, _allowed(work, ref), [], count())
        facts: dict[int, ColumnFacts] = {}
        for piece in work.pieces(keyed.keys):
            if piece.task not in facts:
                facts[piece.task] = _facts(work, piece.task, ref)
            queue._push(piece, facts[piece.task], piece.group, whole=True)
        return queue

    @property
    def best(self) -> Key | None:
        """The best key that a row of a unit can have; None if no unit is left."""
        return self.heap[0][3] if self.heap else None

    def pop(self, most: int) -> list[tuple[Key, Piece]]:
        """The next units, each with its best key."""
        units: list[tuple[Key, Piece]] = []
        while self.heap and len(units) < most:
            _, _, piece, key, whole = heappop(self.heap)
            if not (whole and self._divide(piece)):
                units.append((key, piece))
        return units

    def _push(self, piece: Piece, facts: ColumnFacts, unit: int, *, whole: bool) -> None:
        term = self.keyed.work.plan.order[0]
        key = best_key(facts, unit, self.allowed, term)
        if key.rank < _EMPTY:
            heappush(self.heap, (sort_key(key, term), next(self.numbers), piece, key, whole))

    def _divide(self, piece: Piece) -> bool:
        """Add the runs of pages of a row group, if its pages are sorted in either direction."""
        work, term = self.keyed.work, self.keyed.work.plan.order[0]
        options, reader = work.plan.options, work.reader(piece.task)
        if not (options.skipping and options.page_index and len(piece.rows) > _FIRST_RUN):
            return False
        if not has_pages(reader.metadata, piece.group, reader.columns(work.both).leaves):
            return False
        pages = reader.page_facts(piece.group, self.ref)
        if pages is None:
            return False
        facts, firsts = pages.facts, pages.index.first_rows
        keys = [sort_key(best_key(facts, page, self.allowed, term), term) for page in range(len(firsts))]
        backwards = keys[-1] < keys[0]
        if any(b > a if backwards else b < a for a, b in pairwise(keys)):
            return False
        stops = [*firsts[1:].tolist(), piece.rows.total]
        bounds = list(zip(firsts.tolist(), stops, strict=True))
        numbers = range(len(bounds))
        for run in _runs(numbers[::-1] if backwards else numbers, bounds):
            window = (min(bounds[run[0]][0], bounds[run[-1]][0]), max(bounds[run[0]][1], bounds[run[-1]][1]))
            rows = piece.rows & RowSet.from_ranges(piece.rows.total, [window])
            if len(rows):
                weight = piece.weight * len(rows) // len(piece.rows)
                self._push(
                    Piece(piece.task, piece.group, rows, piece.proven, weight), facts, run[0], whole=False
                )
        return True


def _runs(pages: Sequence[int], bounds: Sequence[tuple[int, int]]) -> Iterator[Sequence[int]]:
    """Runs of consecutive pages, each with about twice the rows of the one before."""
    first = rows = 0
    wanted = _FIRST_RUN
    for number, page in enumerate(pages):
        rows += bounds[page][1] - bounds[page][0]
        if rows >= wanted or number == len(pages) - 1:
            yield pages[first : number + 1]
            first, rows, wanted = number + 1, 0, min(wanted * 2, _LONGEST_RUN)


_NULLS_LAST = 3
_EMPTY = 4
"""The rank of a unit without rows."""


@dataclass(frozen=True, slots=True)
class Key:
    """A position in the sort order: NULLs, values and NaN by rank, values by key; None is unbounded."""

    rank: int
    value: Any = None


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


def best_key(facts: ColumnFacts, unit: int, allowed: tuple[bool, bool], term: Order) -> Key:
    """The best key that any matching row of the unit can have; ``allowed`` says if it can be NULL and NaN."""
    ranks = _ranks(term)
    keys = [Key(_EMPTY)]
    if allowed[0] and facts.may_null[unit]:
        keys.append(Key(ranks["null"]))
    if allowed[1] and facts.may_nan[unit]:
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


def sort_key(key: Key, term: Order) -> Any:
    """An object that sorts like a key; an unbounded one comes first of its rank."""

    def order(a: Key, b: Key) -> int:
        if a.rank == b.rank and (a.value is None or b.value is None):
            return (a.value is not None) - (b.value is not None)
        return compare(a, b, term.descending)

    return cmp_to_key(order)(key)
