"""Where the live rows of keys are: files and positions of one snapshot.

Every snapshot holds at most one live row per key, so files, row groups and pages are pruned by the key
columns alone. Only key columns are read, and all rows that are left are matched at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.arrays import binary_keys, numbers, plain
from skipstone.core.domain import Domain
from skipstone.core.domain.keys import Kind, key_space
from skipstone.core.domain.spans import ByteSpans, NumberSpans, after_bytes
from skipstone.core.evidence import Array
from skipstone.core.filter import settle
from skipstone.core.ir.nodes import AndNode, ColumnRef, Leaf, Node
from skipstone.core.rows import RowSet
from skipstone.engine.jobs import gather
from skipstone.predicate.tree import Predicate
from skipstone.report.units import plural
from skipstone.scan.execute import Work, execute
from skipstone.scan.options import DEFAULT, ScanOptions
from skipstone.scan.parts import Piece
from skipstone.scan.plan import ScanPlan, Task
from skipstone.scan.planner import Question, make_plan, plan_among, plan_candidates
from skipstone.scan.projection import Projection
from skipstone.table.keys import Keys, KeySet

if TYPE_CHECKING:
    from skipstone.scan.table import Table

# Up to this many distinct byte strings of a column are judged one by one; more are covered by ranges.
_VALUES: Final = 16_384
_RANGES: Final = 512
_NONE: Final = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Located:
    """Live rows of keys, by file and position."""

    keys: Array
    """Index of each row's key in the keys that were looked for."""
    files: Array
    """Number of each row's file in the listing of the snapshot, ascending."""
    positions: Array
    """Position of each row in its file, ascending within a file."""
    plan: ScanPlan
    """The plan whose tasks are the files that were read."""

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def tasks(self) -> dict[int, Task]:
        """The tasks with rows, by number of the file."""
        wanted = set(np.unique(self.files).tolist())
        return {task.number: task for task in self.plan.tasks if task.number in wanted}

    def row_sets(self) -> dict[str, RowSet]:
        """The rows of each file, by its path in the manifests."""
        numbers, firsts = np.unique(self.files, return_index=True)
        # Splitting nothing returns one empty part.
        parts = np.split(self.positions, firsts[1:])[: len(numbers)]
        tasks = self.tasks
        chosen = [tasks[number] for number in numbers.tolist()]
        return {
            task.entry.key: RowSet.from_positions(task.rows.total, part)
            for task, part in zip(chosen, parts, strict=True)
        }

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Read columns of the rows, in the order of ``keys``, which is that of file and position."""
        rows = self.row_sets()
        tasks = [
            replace(task, rows=rows[task.entry.key], proven=rows[task.entry.key], deleted=())
            for _, task in sorted(self.tasks.items())
        ]
        names = self.plan.schemas.read.names if columns is None else list(columns)
        return execute(self.plan.changed(tasks=tuple(tasks)), names).to_arrow()

    def take(self, rows: Array) -> Located:
        """Return some rows, by ascending index."""
        return Located(self.keys[rows], self.files[rows], self.positions[rows], self.plan)


def locate(
    table: Table,
    keys: pa.Table,
    only: Collection[str] | None = None,
    *,
    options: ScanOptions = DEFAULT,
) -> Located:
    """Return the live rows of keys in the table's snapshot.

    Args:
        table: The table, at one snapshot.
        keys: Distinct keys, as ``Keys.parse`` or ``Keys.select`` returns them.
        only: Paths of the data files to look into; None for all.
        options: Options of the scan.
    """
    wanted = Keys.of(table)
    projection = Projection.of(table.schema, [(name,) for name in wanted.names])
    plan = plan_candidates(table, key_condition(wanted, keys), projection, options, _numbers(table, only))
    work = Work(plan)
    codes = KeySet(wanted.encode(keys))

    def search(piece: Piece) -> tuple[Array, Array, Array]:
        rows, places = _read(work, piece)
        matches = codes.find(wanted.encode(rows))
        at = np.flatnonzero(matches >= 0)
        return matches[at], *_places(work, piece, places, at)

    return _located(work, search)


def locate_where(
    table: Table,
    where: Predicate | None,
    only: Collection[str] | None = None,
    *,
    options: ScanOptions = DEFAULT,
) -> Located:
    """Return the live rows that match a condition; their ``keys`` number them from 0."""
    projection = Projection.of(table.schema, [])
    predicate = None if where is None else settle(where, table.query_schema)
    question = Question(predicate, projection, None, (), options)
    files = _numbers(table, only)
    plan = make_plan(table, question) if files is None else plan_among(table, question, files)
    work = Work(plan)

    def search(piece: Piece) -> tuple[Array, Array, Array]:
        _, places = _read(work, piece)
        at = np.arange(len(places))
        return at, *_places(work, piece, places, at)

    located = _located(work, search)
    return replace(located, keys=np.arange(len(located)))


def _numbers(table: Table, only: Collection[str] | None) -> Array | None:
    """Numbers of the data files with these paths; None for all."""
    if only is None:
        return None
    entries, numbers = table.inventory.everything
    at = pc.index_in(pa.array(sorted(only), entries.paths.type), value_set=entries.paths)
    return np.asarray(numbers[at.drop_null().to_numpy()])


def _read(work: Work, piece: Piece) -> tuple[pa.Table, RowSet]:
    """The rows of a piece that match, and where they are in the row group."""
    work.count_piece()
    projection = work.plan.projection
    if piece.proven:
        return work.read(piece, piece.rows, projection, "rows"), piece.rows
    rows, table = work.matches(piece, projection)
    return table, rows


def _places(work: Work, piece: Piece, rows: RowSet, at: Array) -> tuple[Array, Array]:
    """File number and position of some rows of a piece."""
    start = int(work.reader(piece.task).metadata.row_group_starts[piece.group])
    positions = at if rows.is_full else rows.positions()[at]
    return np.full(len(at), work.plan.tasks[piece.task].number), positions + start


def _located(work: Work, search: Callable[[Piece], tuple[Array, Array, Array]]) -> Located:
    """Search all pieces of a plan."""
    plan = work.plan
    matches = gather(search, list(work.pieces(work.both)), threads=plan.hints.threads)
    matched = [np.concatenate([_NONE, *parts]) for parts in zip(*matches, strict=True)]
    keys, files, positions = matched or (_NONE, _NONE, _NONE)
    order = np.lexsort((positions, files))
    # The rows match, so they need no test when they are read.
    return Located(keys[order], files[order], positions[order], plan.changed(predicate=None))


def key_condition(known: Keys, keys: pa.Table) -> Node:
    """The condition that each key column has one of the values of some keys."""
    leaves = [_condition(field, keys.column(field.name)) for field in known.schema]
    return leaves[0] if len(leaves) == 1 else AndNode(tuple(leaves))


def _condition(field: pa.Field, column: pa.ChunkedArray) -> Leaf:
    """The condition that a key column has one of the values, or is in ranges that cover them."""
    space, values = key_space(field.type), plain(column.combine_chunks())
    spans: NumberSpans | ByteSpans
    if space.kind is Kind.INT:
        points = numbers(values)
        one = points.item(0) if len(points) == 1 else None
        spans = NumberSpans.of_points(space, points) if one is None else NumberSpans.single(space, one, one)
    else:
        points = binary_keys(values).unique()
        if len(points) > _VALUES:
            points = points.take(pc.sort_indices(points))
            edges = np.linspace(0, len(points), _RANGES + 1).astype(np.int64)
            lows, highs = (points.take(pa.array(at)).to_pylist() for at in (edges[:-1], edges[1:] - 1))
            ends = [after_bytes(space, high) for high in highs]
            spans = ByteSpans.of(space, zip(lows, ends, strict=True))
        else:
            spans = ByteSpans.of_points(space, points.to_pylist())
    text = f"{field.name} IN ({plural(len(column), 'key')})"
    return Leaf(ColumnRef((field.name,), field.type), Domain.of_spans(field.type, spans), text=text)
