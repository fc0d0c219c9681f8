"""RowFilter: a predicate bound to a schema, ready to be asked about batches of rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from skipstone.core.filter.plan import Planner, RowBinder
from skipstone.core.filter.rows import Path, Rows
from skipstone.core.filter.truth import Array, Truth
from skipstone.core.ir import Compiled, compile_predicate
from skipstone.predicate.tree import Predicate, too_deep


class RowFilter:
    """Says for each row of a batch whether a predicate is TRUE, FALSE or NULL.

    It keeps no state between calls, so threads may share one; it pickles as its arguments.

    >>> import pyarrow as pa, skipstone as sk
    >>> RowFilter(sk.parse("a > 1"), pa.schema({"a": pa.int64()})).mask(pa.table({"a": [1, 2, None]}))
    array([False,  True, False])
    """

    __slots__ = ("_condition", "_types", "case_sensitive", "columns", "predicate", "schema")

    def __init__(
        self,
        predicate: Predicate,
        schema: pa.Schema,
        *,
        case_sensitive: bool = True,
        compiled: Compiled | None = None,
    ) -> None:
        self.predicate = predicate
        self.schema = schema
        self.case_sensitive = case_sensitive
        # Whatever the compiler refuses is refused here in the same words.
        known = compiled or compile_predicate(predicate, schema, case_sensitive=case_sensitive)
        binder = RowBinder(schema, case_sensitive)
        planner = Planner(binder)
        try:
            self._condition = planner.from_exact(known.node) or planner.condition(predicate)
        except RecursionError:
            raise too_deep() from None
        self._types = binder.found
        self.columns: tuple[Path, ...] = tuple(binder.found)

    def __reduce__(self) -> tuple[object, ...]:
        return _restored, (self.predicate, self.schema, self.case_sensitive)

    def __repr__(self) -> str:
        return f"RowFilter({str(self.predicate)!r})"

    def mask(self, batch: pa.RecordBatch | pa.Table) -> Array:
        """True exactly where the predicate is TRUE: not where it is FALSE, not where it is NULL."""
        return _concatenated([answer.true for answer in self._answers(batch)])

    def truth(self, batch: pa.RecordBatch | pa.Table) -> tuple[Array, Array]:
        """Where the predicate is TRUE, and where it is NULL."""
        answers = self._answers(batch)
        null = [np.zeros(len(a), dtype=bool) if a.null is None else a.null for a in answers]
        return _concatenated([a.true for a in answers]), _concatenated(null)

    def _answers(self, batch: pa.RecordBatch | pa.Table) -> list[Truth]:
        """For each of its parts."""
        parts = [batch] if isinstance(batch, pa.RecordBatch) else batch.to_batches()
        try:
            return [self._condition.truth(Rows(part, self._types)) for part in parts]
        except RecursionError:
            raise too_deep() from None


def _concatenated(parts: list[Array]) -> Array:
    return parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, dtype=bool), *parts])


def _restored(predicate: Predicate, schema: pa.Schema, case_sensitive: bool) -> RowFilter:
    return RowFilter(predicate, schema, case_sensitive=case_sensitive)
