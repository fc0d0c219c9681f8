"""The account a cascade keeps: levels, drops, notes, and what reading cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from skipstone.evidence import Array, Evidence
from skipstone.ir.nodes import Decided, Leaf, Node
from skipstone.judge import Judgement, Verdict
from skipstone.trace import Cause, Drop, Level, Notes

Cost = Callable[[], tuple[int, int]]
"""Requests and bytes so far."""


@dataclass(slots=True)
class Ledger:
    """Filled level by level."""

    cost: Cost
    levels: list[Level] = field(default_factory=list)
    notes: Notes = field(default_factory=Notes)
    _spent: tuple[int, int] = (0, 0)

    def start(self) -> None:
        """Count from here: what was spent before belongs to somebody else."""
        self._spent = self.cost()

    def add(self, level: Level) -> None:
        """Record a level that cost nothing."""
        self.levels.append(level)

    def level(self, name: str, verdicts: Array, rows: Array, drops: tuple[Drop, ...]) -> None:
        """Record what a level kept; its cost is what was spent since the level before."""
        kept = verdicts != Verdict.NONE
        spent = self.cost()
        self.levels.append(
            Level(
                name,
                units=len(verdicts),
                kept=int(kept.sum()),
                whole=int((verdicts == Verdict.ALL).sum()),
                rows=int(rows[kept].sum()),
                drops=drops,
                requests=spent[0] - self._spent[0],
                bytes=spent[1] - self._spent[1],
            )
        )
        self._spent = spent


def drops_of(judgement: Judgement, evidence: Evidence, cause: Cause = Cause.BOUNDS) -> tuple[Drop, ...]:
    """Dropped units by cause and condition: nulls where a unit holds nothing else, else ``cause``."""

    def causes(node: Node, units: Array) -> dict[Cause, Array]:
        if isinstance(node, Decided):
            return {Cause.CONSTANT: units}
        if not isinstance(node, Leaf):
            return {cause: units}
        facts = evidence.facts(node.ref)
        nulls = ~facts.may_value[units] | (facts.may_value[units] & node.true.spans.is_empty)
        return {Cause.NULLS: units[nulls], cause: units[~nulls]}

    return _count(judgement, causes)


def drops_by(judgement: Judgement, cause: Cause) -> tuple[Drop, ...]:
    """Dropped units by condition, all for one cause."""
    return _count(judgement, lambda _node, units: {cause: units})


def _count(judgement: Judgement, causes: Callable[[Node, Array], dict[Cause, Array]]) -> tuple[Drop, ...]:
    blame = judgement.blame()
    drops = []
    for number, (node, _) in enumerate(judgement.parts):
        units = np.flatnonzero(blame == number)
        drops += [
            Drop(cause, str(node), len(some)) for cause, some in causes(node, units).items() if len(some)
        ]
    return tuple(drops)
