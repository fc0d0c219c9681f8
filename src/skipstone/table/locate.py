"""Where the live rows of keys are: files and positions of one snapshot.

Every snapshot holds at most one live row per key, so files, row groups and pages are pruned by the key
columns alone. Only key columns are read, and all rows that are left are matched at once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
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
from skipstone.core.ir.nodes import AndNode, ColumnRef, Leaf
from skipstone.core.rows import RowSet
from skipstone.engine.jobs import gather
from skipstone.report.units import plural
from skipstone.scan.execute import Work, execute
from skipstone.scan.options import DEFAULT, ScanOptions
from skipstone.scan.parts import Piece
from skipstone.scan.plan import ScanPlan, Task
from skipstone.scan.planner import plan_candidates
from skipstone.scan.projection import Projection
from skipstone.table.keys import Keys, KeySet

if TYPE_CHECKING:
    from skipstone.scan.lake import Table

# Up to this many distinct byte strings of a column are judged one by one; more are covered by ranges.
_VALUES: Final = 16_384
_RANGES: Final = 512


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
        parts = np.split(self.positions, firsts[1:])
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
    plan = _plan(table, wanted, keys, only, options)
    work = Work(plan)
    search = _Search(work, wanted, KeySet(wanted.encode(keys)), plan.projection)
    matches = gather(search, list(work.pieces(plan.projection)), threads=plan.hints.threads)
    matched = [np.concatenate([np.zeros(0, np.int64), *parts]) for parts in zip(*matches, strict=True)]
    found, files, positions = matched or [np.zeros(0, np.int64)] * 3
    order = np.lexsort((positions, files))
    return Located(found[order], files[order], positions[order], plan)


def _plan(
    table: Table, wanted: Keys, keys: pa.Table, only: Collection[str] | None, options: ScanOptions
) -> ScanPlan:
    """Plan the rows that can have one of the keys, judged by each key column."""
    leaves = [_condition(field, keys.column(field.name)) for field in wanted.schema]
    node = leaves[0] if len(leaves) == 1 else AndNode(tuple(leaves))
    projection = Projection.of(table.schema, [(name,) for name in wanted.names])
    files = None
    if only is not None:
        entries, numbers = table.inventory.everything
        at = pc.index_in(pa.array(sorted(only), entries.paths.type), value_set=entries.paths)
        files = numbers[at.drop_null().to_numpy()]
    return plan_candidates(table, node, projection, options, files)


def _condition(field: pa.Field, column: pa.ChunkedArray) -> Leaf:
    """The condition that a key column has one of the values, or is in ranges that cover them."""
    space, values = key_space(field.type), plain(column.combine_chunks())
    spans: NumberSpans | ByteSpans
    if space.kind is Kind.INT:
        spans = NumberSpans.of_points(space, numbers(values))
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


@dataclass(frozen=True, slots=True)
class _Search:
    """Matches the rows of a piece with the keys."""

    work: Work
    keys: Keys
    codes: KeySet
    projection: Projection

    def __call__(self, piece: Piece) -> tuple[Array, Array, Array]:
        work = self.work
        work.count_piece()
        if piece.proven:
            rows, table = piece.rows, work.read(piece, piece.rows, self.projection, "rows")
        else:
            rows, table = work.matches(piece, self.projection)
        found = self.codes.find(self.keys.encode(table))
        at = np.flatnonzero(found >= 0)
        positions = at if rows.is_full else rows.positions()[at]
        start = int(work.reader(piece.task).metadata.row_group_starts[piece.group])
        number = work.plan.tasks[piece.task].number
        return found[at], np.full(len(at), number), positions + start
