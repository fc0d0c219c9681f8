"""Values and conditions on the rows of a batch, in three-valued logic.

AND and OR do the cheap parts first, and the rest only where it matters.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.arrays import Array, bools, filter_rows, plain, plain_type
from skipstone.core.ir.nodes import Node
from skipstone.errors import NotExpressibleError, PredicateError, UsageError
from skipstone.predicate import tree


@dataclass(frozen=True, slots=True, eq=False)
class TruthMask:
    """Which rows are TRUE and which are NULL (None: no row is); the rest are FALSE."""

    true: Array
    null: Array | None = None

    @classmethod
    def constant(cls, rows: int, value: bool | None) -> TruthMask:
        """The same answer for every row."""
        return cls(np.full(rows, value is True), np.ones(rows, dtype=bool) if value is None else None)

    @classmethod
    def of(cls, answer: pa.Array) -> TruthMask:
        """An Arrow array of booleans."""
        null = None if answer.null_count == 0 else bools(answer.is_null())
        return cls(bools(answer), null)

    def __len__(self) -> int:
        return len(self.true)

    @property
    def possible(self) -> Array:
        """The rows that are not FALSE."""
        return self.true if self.null is None else self.true | self.null

    def __and__(self, other: TruthMask) -> TruthMask:
        true = self.true & other.true
        if self.null is None and other.null is None:
            return TruthMask(true)
        return TruthMask(true, self.possible & other.possible & ~true)

    def __or__(self, other: TruthMask) -> TruthMask:
        true = self.true | other.true
        if self.null is None:
            return TruthMask(true, None if other.null is None else other.null & ~true)
        return TruthMask(true, (self.null if other.null is None else self.null | other.null) & ~true)

    def __invert__(self) -> TruthMask:
        return TruthMask(~self.possible, self.null)

    def test(self, value: bool | None) -> TruthMask:
        """IS TRUE, IS FALSE or IS UNKNOWN: never NULL."""
        if value is None:
            return TruthMask(np.zeros(len(self), dtype=bool) if self.null is None else self.null)
        return TruthMask(self.true if value else ~self.possible)

    def array(self) -> pa.Array:
        """As an Arrow array of booleans."""
        return pa.array(self.true, mask=self.null)


Path = tuple[str, ...]


class BatchRows:
    """The rows of one batch; belongs to one call, so it may remember what it computed."""

    __slots__ = ("_batch", "_memo", "_raw", "_types", "count")

    def __init__(self, batch: pa.RecordBatch, types: Mapping[Path, pa.DataType]) -> None:
        self._batch = batch
        self._types = types
        self._memo: dict[Hashable, pa.Array] = {}
        self._raw: dict[Path, pa.Array] = {}
        self.count: int = batch.num_rows

    def remember(self, key: Hashable, make: Callable[[BatchRows], pa.Array]) -> pa.Array:
        """The array of this key, made at the first call."""
        found = self._memo.get(key)
        if found is None:
            found = self._memo[key] = make(self)
        return found

    def raw(self, path: Path) -> pa.Array:
        """A column in the layout it came in, but with the schema's time zone."""
        found = self._raw.get(path)
        if found is None:
            found = self._raw[path] = self._find(path)
        return found

    def column(self, path: Path) -> pa.Array:
        """A column in its plain layout and with the schema's type."""
        found = self._memo.get(path)
        if found is None:
            found = self._memo[path] = self._plain(path)
        return found

    def _plain(self, path: Path) -> pa.Array:
        array, type = plain(self.raw(path)), plain_type(self._types[path])
        if array.type == type or pa.types.is_nested(type):
            return array
        try:
            return array.cast(type)
        except pa.ArrowException as error:
            raise UsageError(
                f"the batch has {array.type} where the schema has {type}: {error}", column=".".join(path)
            ) from error

    def _find(self, path: Path) -> pa.Array:
        hits = self._batch.schema.get_all_field_indices(path[0])
        if len(hits) != 1:
            what = "no such column" if not hits else "several columns of that name"
            raise UsageError(f"the batch has {what}", column=path[0])
        array = self._batch.column(hits[0])
        for name in path[1:]:
            if isinstance(array, pa.ExtensionArray):
                array = array.storage
            at = array.type.get_field_index(name)
            if at < 0:
                raise UsageError("the batch has no such struct field", column=".".join(path))
            array = pc.struct_field(array, [at])  # NULL where the struct is
        own, wanted = array.type, self._types[path]
        unzoned = pa.types.is_timestamp(own) and pa.types.is_timestamp(wanted) and own.tz != wanted.tz
        # A view: the same integers, now read as instants (or in the schema's zone).
        return array.view(pa.timestamp(own.unit, wanted.tz)) if unzoned else array

    def where(self, chosen: Array) -> BatchRows:
        """Only these rows."""
        return _RowSubset(self, chosen)


class _RowSubset(BatchRows):
    """Some rows of a batch; a column is cut down when it is first asked for."""

    __slots__ = ("_chosen", "_from")

    def __init__(self, rows: BatchRows, chosen: Array) -> None:
        super().__init__(rows._batch, rows._types)
        self._from = rows
        self._chosen = pa.array(chosen)
        self.count = int(chosen.sum())

    def _find(self, path: Path) -> pa.Array:
        return filter_rows(self._from.raw(path), self._chosen)


EXPENSIVE = 10
"""From this cost on a part is computed for the rows that still matter only."""


@dataclass(frozen=True, slots=True, eq=False)
class ConditionNode(Node):
    """A part answered row by row; it stands in the IR where metadata has no node for it."""

    truth: Callable[[BatchRows], TruthMask]
    cost: int = 0
    risky: bool = False
    """Whether it can fail on a row, and so must see only the rows that Spark would compute it for."""

    def invert(self) -> ConditionNode:
        """NOT."""
        truth = self.truth
        return ConditionNode(lambda rows: ~truth(rows), self.cost, self.risky)

    def test(self, value: bool | None, *, negated: bool) -> ConditionNode:
        """IS [NOT] TRUE, FALSE or UNKNOWN."""
        truth = self.truth

        def test(rows: BatchRows) -> TruthMask:
            answer = truth(rows).test(value)
            return ~answer if negated else answer

        return ConditionNode(test, self.cost, self.risky)


def all_of(parts: Sequence[ConditionNode]) -> ConditionNode:
    """AND."""
    return _join(parts, lambda a, b: a & b, lambda truth: truth.possible)


def any_of(parts: Sequence[ConditionNode]) -> ConditionNode:
    """OR."""
    return _join(parts, lambda a, b: a | b, lambda truth: ~truth.true)


def _join(
    parts: Sequence[ConditionNode],
    join: Callable[[TruthMask, TruthMask], TruthMask],
    undecided: Callable[[TruthMask], Array],
) -> ConditionNode:
    ordered = sorted(parts, key=lambda part: (part.risky, part.cost))

    def truth(rows: BatchRows) -> TruthMask:
        answer = ordered[0].truth(rows)
        for part in ordered[1:]:
            answer = join(answer, _where_needed(part, rows, undecided(answer)))
        return answer

    return ConditionNode(truth, sum(p.cost for p in parts), any(p.risky for p in parts))


def _where_needed(part: ConditionNode, rows: BatchRows, needed: Array) -> TruthMask:
    """The part's answer on the rows that need it; any answer does on the others."""
    if not part.risky and part.cost < EXPENSIVE:
        return part.truth(rows)
    count = int(np.count_nonzero(needed))
    if count == rows.count or (not part.risky and count * 2 >= rows.count):
        return part.truth(rows)
    true = np.zeros(rows.count, dtype=bool)
    if count == 0:
        return TruthMask(true)
    answer = part.truth(rows.where(needed))
    true[needed] = answer.true
    if answer.null is None:
        return TruthMask(true)
    null = np.zeros(rows.count, dtype=bool)
    null[needed] = answer.null
    return TruthMask(true, null)


Kernel = Callable[..., pa.Array]
"""Computes an array from arrays of the arguments."""
CheckedCast = Callable[[pa.Array], tuple[pa.Array, Array | None]]
"""A cast, and the rows whose value doesn't fit (None: no cast of these types can fail)."""


class RowError(Exception):
    """A row for which Spark, too, has no value: an overflow, a bad cast, a division by zero."""


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """An expression bound to columns; ``type`` is a plain one."""

    type: pa.DataType
    compute: Callable[[BatchRows], pa.Array]
    risky: bool = False
    """Whether it can fail on a row, and so must see only the rows that Spark would compute it for."""
    cost: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Arguments:
    """What a function is called with; a constant argument has its scalar as well."""

    call: tree.Call
    series: tuple[Series, ...]
    constants: tuple[pa.Scalar | None, ...]

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        """Types of the arguments."""
        return tuple(s.type for s in self.series)

    def refuse(self, why: str) -> NotExpressibleError:
        """The error that says why the call can't be computed."""
        return not_computable(self.call, why)


def not_computable(expr: tree.Expr, why: str) -> NotExpressibleError:
    """The error for a part that nobody here can compute as Spark does."""
    return NotExpressibleError(
        f"the rows can't be tested for {expr}: {why}",
        hint="compute it with skipstone.udf, or leave it out and filter the result",
    )


def apply(
    expr: tree.Expr,
    type: pa.DataType,
    kernel: Kernel,
    args: Sequence[Series],
    *,
    risky: bool = False,
    cost: int = 1,
) -> Series:
    """``kernel`` of the arguments, computed once per batch; its failures name ``expr``."""
    key = ("made", expr.key())
    # Nothing that is computed from a value known to fail is safe either.
    risky = risky or any(s.risky for s in args)

    def make(rows: BatchRows) -> pa.Array:
        arrays = [s.compute(rows) for s in args]
        try:
            return kernel(*arrays)
        except (RowError, pa.ArrowInvalid) as error:
            raise PredicateError(
                f"{expr} fails on a row: {error}", hint="exclude such rows with AND, or use try_cast"
            ) from error

    return Series(type, lambda rows: rows.remember(key, make), risky, cost + sum(s.cost for s in args))
