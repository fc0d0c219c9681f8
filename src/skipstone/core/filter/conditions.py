"""Conditions on the rows of a batch: AND and OR do the cheap parts first and the rest where it matters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from skipstone.core.filter.rows import Rows
from skipstone.core.filter.truth import Array, Truth
from skipstone.core.ir.nodes import Node

EXPENSIVE = 10
"""From this cost on a part is computed for the rows that still matter only."""


@dataclass(frozen=True, slots=True, eq=False)
class Condition(Node):
    """A part answered row by row; it stands in the IR where metadata has no node for it."""

    truth: Callable[[Rows], Truth]
    cost: int = 0
    risky: bool = False
    """Whether it can fail on a row, and so must see only the rows that Spark would compute it for."""

    def inverted(self) -> Condition:
        """NOT."""
        truth = self.truth
        return Condition(lambda rows: ~truth(rows), self.cost, self.risky)

    def tested(self, value: bool | None, *, negated: bool) -> Condition:
        """IS [NOT] TRUE, FALSE or UNKNOWN."""
        truth = self.truth

        def test(rows: Rows) -> Truth:
            answer = truth(rows).test(value)
            return ~answer if negated else answer

        return Condition(test, self.cost, self.risky)


def every(parts: Sequence[Condition]) -> Condition:
    """AND."""
    return _joined(parts, lambda a, b: a & b, lambda truth: truth.possible)


def some(parts: Sequence[Condition]) -> Condition:
    """OR."""
    return _joined(parts, lambda a, b: a | b, lambda truth: ~truth.true)


def _joined(
    parts: Sequence[Condition], join: Callable[[Truth, Truth], Truth], undecided: Callable[[Truth], Array]
) -> Condition:
    ordered = sorted(parts, key=lambda part: (part.risky, part.cost))

    def truth(rows: Rows) -> Truth:
        answer = ordered[0].truth(rows)
        for part in ordered[1:]:
            answer = join(answer, _where_needed(part, rows, undecided(answer)))
        return answer

    return Condition(truth, sum(p.cost for p in parts), any(p.risky for p in parts))


def _where_needed(part: Condition, rows: Rows, needed: Array) -> Truth:
    """The part's answer on the rows that need it; any answer does on the others."""
    if not part.risky and part.cost < EXPENSIVE:
        return part.truth(rows)
    count = int(np.count_nonzero(needed))
    if count == rows.count or (not part.risky and count * 2 >= rows.count):
        return part.truth(rows)
    true = np.zeros(rows.count, dtype=bool)
    if count == 0:
        return Truth(true)
    answer = part.truth(rows.where(needed))
    true[needed] = answer.true
    if answer.null is None:
        return Truth(true)
    null = np.zeros(rows.count, dtype=bool)
    null[needed] = answer.null
    return Truth(true, null)
