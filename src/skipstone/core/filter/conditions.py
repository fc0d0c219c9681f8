"""Values and conditions on the rows of a batch, in three-valued logic.

AND and OR evaluate cheap parts first, and the others only on undecided rows.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.arrays import Array, bools, filter_rows, plain, plain_type
from skipstone.core.ir.nodes import Node
from skipstone.core.plain import type_name
from skipstone.errors import NotExpressibleError, PredicateError, UsageError
from skipstone.predicate import tree


@dataclass(frozen=True, slots=True, eq=False)
class TruthMask:
    """Masks of TRUE and NULL rows (None: no row is NULL); the others are FALSE."""

    true: Array
    null: Array | None = None

    @classmethod
    def constant(cls, rows: int, value: bool | None) -> TruthMask:
        """The same value for every row."""
        return cls(np.full(rows, value is True), np.ones(rows, dtype=bool) if value is None else None)

    @classmethod
    def of(cls, array: pa.Array) -> TruthMask:
        """Convert an Arrow boolean array."""
        null = None if array.null_count == 0 else bools(array.is_null())
        return cls(bools(array), null)

    def __len__(self) -> int:
        return len(self.true)

    @property
    def possible(self) -> Array:
        """Mask of rows that are not FALSE."""
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
        """Convert to an Arrow boolean array."""
        return pa.array(self.true, mask=self.null)


Path = tuple[str, ...]


class BatchRows:
    """The rows of one batch, with a cache of computed arrays."""

    __slots__ = ("_batch", "_memo", "_raw", "_types", "count")

    def __init__(self, batch: pa.RecordBatch, types: Mapping[Path, pa.DataType]) -> None:
        self._batch = batch
        self._types = types
        self._memo: dict[Hashable, pa.Array] = {}
        self._raw: dict[Path, pa.Array] = {}
        self.count: int = batch.num_rows

    def remember(self, key: Hashable, make: Callable[[BatchRows], pa.Array]) -> pa.Array:
        """Return the cached array of ``key``, or compute it."""
        array = self._memo.get(key)
        if array is None:
            array = self._memo[key] = make(self)
        return array

    def raw(self, path: Path) -> pa.Array:
        """A column in its original layout, with the time zone of the schema."""
        array = self._raw.get(path)
        if array is None:
            array = self._raw[path] = self._find(path)
        return array

    def column(self, path: Path) -> pa.Array:
        """A column in its plain layout, with the type of the schema."""
        array = self._memo.get(path)
        if array is None:
            array = self._memo[path] = self._plain(path)
        return array

    def _plain(self, path: Path) -> pa.Array:
        array, type = plain(self.raw(path)), plain_type(self._types[path])
        if array.type == type or pa.types.is_nested(type):
            return array
        try:
            return array.cast(type)
        except pa.ArrowException as error:
            raise UsageError(
                f"batch column has type {type_name(array.type)}, the schema has {type_name(type)}: {error}",
                column=".".join(path),
            ) from error

    def _find(self, path: Path) -> pa.Array:
        hits = self._batch.schema.get_all_field_indices(path[0])
        if len(hits) != 1:
            problem = "several columns with this name" if hits else "no such column"
            raise UsageError(f"batch has {problem}", column=path[0])
        array = self._batch.column(hits[0])
        for name in path[1:]:
            if isinstance(array, pa.ExtensionArray):
                array = array.storage
            at = array.type.get_field_index(name)
            if at < 0:
                raise UsageError("struct field is missing in the batch", column=".".join(path))
            array = pc.struct_field(array, [at])  # NULL where the struct is NULL
        actual, expected = array.type, self._types[path]
        zone_differs = (
            pa.types.is_timestamp(actual) and pa.types.is_timestamp(expected) and actual.tz != expected.tz
        )
        # A view of the same integers with the time zone of the schema.
        return array.view(pa.timestamp(actual.unit, expected.tz)) if zone_differs else array

    def where(self, mask: Array) -> BatchRows:
        """Select rows."""
        return _RowSubset(self, mask)


class _RowSubset(BatchRows):
    """Selected rows of a batch; columns are filtered on first use."""

    __slots__ = ("_from", "_mask")

    def __init__(self, rows: BatchRows, mask: Array) -> None:
        super().__init__(rows._batch, rows._types)
        self._from = rows
        self._mask = pa.array(mask)
        self.count = int(mask.sum())

    def _find(self, path: Path) -> pa.Array:
        return filter_rows(self._from.raw(path), self._mask)


EXPENSIVE = 10
"""Parts of at least this cost are evaluated only on undecided rows."""


@dataclass(frozen=True, slots=True, eq=False)
class ConditionNode(Node):
    """A condition evaluated row by row; a node of the IR where metadata has none."""

    truth: Callable[[BatchRows], TruthMask]
    cost: int = 0
    risky: bool = False
    """Whether it can raise on a row, so it must only see the rows for which Spark would evaluate it."""

    def invert(self) -> ConditionNode:
        truth = self.truth
        return ConditionNode(lambda rows: ~truth(rows), self.cost, self.risky)

    def test(self, value: bool | None, *, negated: bool) -> ConditionNode:
        """IS [NOT] TRUE, FALSE or UNKNOWN."""
        truth = self.truth

        def test(rows: BatchRows) -> TruthMask:
            mask = truth(rows).test(value)
            return ~mask if negated else mask

        return ConditionNode(test, self.cost, self.risky)


def all_of(parts: Sequence[ConditionNode]) -> ConditionNode:
    """Logical AND."""
    return _join(parts, lambda a, b: a & b, lambda truth: truth.possible)


def any_of(parts: Sequence[ConditionNode]) -> ConditionNode:
    """Logical OR."""
    return _join(parts, lambda a, b: a | b, lambda truth: ~truth.true)


def _join(
    parts: Sequence[ConditionNode],
    join: Callable[[TruthMask, TruthMask], TruthMask],
    undecided: Callable[[TruthMask], Array],
) -> ConditionNode:
    ordered = sorted(parts, key=lambda part: (part.risky, part.cost))

    def truth(rows: BatchRows) -> TruthMask:
        mask = ordered[0].truth(rows)
        for part in ordered[1:]:
            mask = join(mask, _evaluate_where(part, rows, undecided(mask)))
        return mask

    return ConditionNode(truth, sum(p.cost for p in parts), any(p.risky for p in parts))


def _evaluate_where(part: ConditionNode, rows: BatchRows, needed: Array) -> TruthMask:
    """Evaluate a part on the rows that need it; the result is arbitrary on the others."""
    if not part.risky and part.cost < EXPENSIVE:
        return part.truth(rows)
    count = int(np.count_nonzero(needed))
    if count == rows.count or (not part.risky and count * 2 >= rows.count):
        return part.truth(rows)
    true = np.zeros(rows.count, dtype=bool)
    if count == 0:
        return TruthMask(true)
    result = part.truth(rows.where(needed))
    true[needed] = result.true
    if result.null is None:
        return TruthMask(true)
    null = np.zeros(rows.count, dtype=bool)
    null[needed] = result.null
    return TruthMask(true, null)


Kernel = Callable[..., pa.Array]
"""Computes an array from the arrays of the arguments."""
CheckedCast = Callable[[pa.Array], tuple[pa.Array, Array | None]]
"""Casts an array; returns the result and a mask of values that don't fit (None: all fit)."""


_ROW_HINT = "exclude such rows with AND, or cast to a wider type"


class RowError(Exception):
    """Raised where Spark raises too: an overflow, an invalid cast, a division by zero."""

    def __init__(self, message: str, hint: str = _ROW_HINT) -> None:
        super().__init__(message)
        self.hint = hint


def zero_divisor() -> RowError:
    """The error of a division by zero."""
    return RowError("division by zero", "exclude zeros with AND, or divide by nullif(divisor, 0)")


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """A bound value expression; ``type`` is a plain type."""

    type: pa.DataType
    compute: Callable[[BatchRows], pa.Array]
    risky: bool = False
    """Whether it can raise on a row, so it must only see the rows for which Spark would evaluate it."""
    cost: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Arguments:
    """Arguments of a function call; constant arguments also have their scalar."""

    call: tree.Call
    series: tuple[Series, ...]
    constants: tuple[pa.Scalar | None, ...]

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        return tuple(s.type for s in self.series)

    def unsupported(self, why: str) -> NotExpressibleError:
        """Error that explains why the call can't be evaluated."""
        return not_computable(self.call, why)


def not_computable(expr: tree.Expr, why: str) -> NotExpressibleError:
    """Error for a part that can't be evaluated like Spark does."""
    return NotExpressibleError(
        f"{expr} can't be evaluated: {why}",
        hint="use skipstone.udf in a condition, or compute the value from the result",
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
    """Apply ``kernel`` to the arguments, once per batch; errors name ``expr``."""
    key = ("computed", expr.key())
    # A value computed from a risky value is risky too.
    risky = risky or any(s.risky for s in args)

    def compute(rows: BatchRows) -> pa.Array:
        arrays = [s.compute(rows) for s in args]
        try:
            return kernel(*arrays)
        except (RowError, pa.ArrowInvalid) as error:
            if str(error) == "divide by zero":
                error = zero_divisor()
            hint = getattr(error, "hint", _ROW_HINT)
            raise PredicateError(f"{expr} failed: {error}", hint=hint) from error

    return Series(type, lambda rows: rows.remember(key, compute), risky, cost + sum(s.cost for s in args))
