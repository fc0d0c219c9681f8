"""The account a cascade keeps: levels, drops, notes, and what reading cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from skipstone.evidence import Array, Evidence
from skipstone.ir.nodes import Decided, Leaf
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

    def spend(self) -> tuple[int, int]:
        """Requests and bytes since the level before, which are a level's own from here on."""
        spent, before = self.cost(), self._spent
        self._spent = spent
        return spent[0] - before[0], spent[1] - before[1]

    def add(self, level: Level) -> None:
        """Record a level."""
        self.levels.append(level)

    def level(self, name: str, verdicts: Array, rows: Array, drops: tuple[Drop, ...]) -> None:
        """Record what a level kept; its cost is what was spent since the level before."""
        kept = verdicts != Verdict.NONE
        requests, size = self.spend()
        self.levels.append(
            Level(
                name,
                units=len(verdicts),
                kept=int(kept.sum()),
                whole=int((verdicts == Verdict.ALL).sum()),
                rows=int(rows[kept].sum()),
                drops=drops,
                requests=requests,
                bytes=size,
            )
        )


@dataclass(frozen=True, slots=True, eq=False)
class Blame:
    """Per dropped unit the conjunct that no row can satisfy, and the kind of evidence that says so."""

    parts: tuple[str, ...]
    causes: tuple[Cause, ...]
    part: Array
    """The number of the conjunct to blame; -1 for a unit that is kept."""
    cause: Array

    @classmethod
    def of(cls, judgement: Judgement, evidence: Evidence, cause: Cause = Cause.BOUNDS) -> Blame:
        """Nulls where a unit holds nothing else, else ``cause``."""
        part = judgement.blame()
        causes = (cause, Cause.NULLS, Cause.CONSTANT)
        kind = np.zeros(len(part), dtype=np.int8)
        for number, (node, _) in enumerate(judgement.parts):
            if isinstance(node, Decided):
                kind[part == number] = causes.index(Cause.CONSTANT)
            elif isinstance(node, Leaf):
                facts = evidence.facts(node.ref)
                empty = ~facts.may_value if not node.true.spans.is_empty else np.ones(len(part), dtype=bool)
                kind[(part == number) & empty] = causes.index(Cause.NULLS)
        return cls(tuple(str(node) for node, _ in judgement.parts), causes, part, kind)

    @classmethod
    def all_by(cls, judgement: Judgement, cause: Cause) -> Blame:
        """One cause for all."""
        part = judgement.blame()
        names = tuple(str(node) for node, _ in judgement.parts)
        return cls(names, (cause,), part, np.zeros(len(part), dtype=np.int8))

    def drops(self, units: Array | None = None) -> tuple[Drop, ...]:
        """Dropped units by cause and condition; of all units, or of some."""
        part, kind = (self.part, self.cause) if units is None else (self.part[units], self.cause[units])
        dropped = part >= 0
        width = len(self.causes)
        counts = np.bincount(part[dropped] * width + kind[dropped], minlength=width * len(self.parts))
        return tuple(
            Drop(self.causes[at % width], self.parts[at // width], int(counts[at]))
            for at in np.flatnonzero(counts).tolist()
        )
