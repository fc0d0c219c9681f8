"""Answers that get better while rows are read, and between which values the last one will be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from skipstone.aggregate.answer import Answer
from skipstone.aggregate.bind import Binding
from skipstone.aggregate.functions import Aggregate
from skipstone.aggregate.merge import Known
from skipstone.aggregate.prepare import Prepared
from skipstone.core.domain.keys import from_key
from skipstone.core.evidence import widest
from skipstone.core.evidence.hull import hull
from skipstone.core.ir.nodes import ColumnRef


class Step(Answer):
    """What is known after some of the rows; the last step is the answer."""

    def __init__(
        self,
        binding: Binding,
        known: Sequence[Known],
        schema: pa.Schema,
        prepared: Prepared,
        total: int,
        looked: int,
    ) -> None:
        super().__init__(binding, known, schema)
        self._prepared = prepared
        self.rows_left = total - looked
        """Rows that are still to be read."""
        self.rows_done = prepared.live - min(self.rows_left, prepared.live)
        """Rows that are answered for, by metadata or by reading."""

    @property
    def final(self) -> bool:
        """Whether this is the answer."""
        return self.rows_left == 0

    @property
    def covered(self) -> float:
        """The part of the rows, from 0 to 1, that is answered for."""
        return self.rows_done / self._prepared.live if self._prepared.live and not self.final else 1.0

    @cached_property
    def bounds(self) -> Mapping[str, Any]:
        """Between which values each answer will be, where that is known; None where it isn't.

        Estimates have their own bounds, which are very likely, once all rows are read.
        """
        estimates = super().bounds if self.final else {}
        if self._binding.keys:
            return estimates
        found = {o.name: self._bounds(o.asked, o.measure) for o in self._binding.outputs}
        return {**found, **estimates}

    def _bounds(self, asked: Aggregate, measure: int) -> tuple[Any, Any] | None:
        now = self[asked.name]
        if self.final:
            return None if asked.function.startswith("approx") else (now, now)
        left = min(self.rows_left, sum(map(len, self._prepared.found[measure].read.values())))
        if not left:
            return (now, now)
        if asked.function == "count":
            return (now, now + left)
        ends = self._ends(measure) if asked.function in ("sum", "min", "max") else None
        if ends is None:
            return None
        low, high = ends
        if asked.function == "sum":
            base = now or 0
            return (base + min(low, 0) * left, base + max(high, 0) * left)
        if now is None:
            return None
        return (min(low, now), now) if asked.function == "min" else (now, max(high, now))

    def _ends(self, measure: int) -> tuple[Any, Any] | None:
        """Between which values the column is in the row groups that are read; None if that isn't known."""
        prepared = self._prepared
        path = self._binding.measures[measure].columns[0]
        groups = [prepared.units.group[prepared.units.of_share(s)] for s in prepared.found[measure].read]
        ref = ColumnRef(path, self._binding.types[path])
        facts = prepared.units.survey.facts(ref).take(np.unique(np.concatenate(groups)))
        if facts.may_nan.any() or isinstance(facts.lower, pa.Array):
            return None
        whole = hull(facts, np.zeros(1, dtype=np.int64))
        floor, ceiling = widest(ref.type, 1)
        if whole.lower[0] <= floor[0] or whole.upper[0] >= ceiling[0]:
            return None
        low, high = (from_key(ref.type, bounds[0].item()).as_py() for bounds in (whole.lower, whole.upper))
        return low, high
