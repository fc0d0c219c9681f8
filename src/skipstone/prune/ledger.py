"""The record of a cascade: levels, drops, notes and I/O cost.

Most plans are never explained, so levels are computed on demand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from skipstone.core.evidence import Array, Evidence
from skipstone.core.ir.nodes import ConstantNode, Leaf
from skipstone.core.judge import Judgement, Verdict
from skipstone.report.trace import Cause, Drop, Level, Notes

Cost = Callable[[], tuple[int, int]]
"""Requests and bytes so far."""


Drops = Callable[[], tuple[Drop, ...]]
"""A function that counts what a level has dropped."""

# Levels with more units are computed at once, to release their arrays.
_MANY: Final = 65_536


@dataclass(slots=True)
class Ledger:
    """Records levels in order."""

    cost: Cost
    notes: Notes = field(default_factory=Notes)
    _levels: list[Callable[[], tuple[Level, ...]]] = field(default_factory=list)
    _spent: tuple[int, int] = (0, 0)

    def start(self) -> None:
        """Start counting I/O from here."""
        self._spent = self.cost()

    def spend(self) -> tuple[int, int]:
        """Requests and bytes since the previous level."""
        spent, before = self.cost(), self._spent
        self._spent = spent
        return spent[0] - before[0], spent[1] - before[1]

    def add(self, level: Level) -> None:
        """Record a level."""
        self._levels.append(lambda: (level,))

    def defer(self, levels: Callable[[], tuple[Level, ...]], *, free: bool) -> None:
        """Record levels to compute on demand; the first has the I/O cost since the previous level."""
        requests, size = (0, 0) if free else self.spend()

        def build() -> tuple[Level, ...]:
            first, *others = levels() or (None,)
            return () if first is None else (replace(first, requests=requests, bytes=size), *others)

        self._levels.append(build)

    def level(self, name: str, verdicts: Array, rows: Array, drops: Drops = tuple) -> None:
        """Record a level with the I/O cost since the previous one."""
        requests, size = self.spend()

        def build() -> tuple[Level, ...]:
            kept = verdicts != Verdict.NONE
            level = Level(
                name,
                units=len(verdicts),
                kept=int(kept.sum()),
                whole=int((verdicts == Verdict.ALL).sum()),
                rows=int(rows[kept].sum()),
                drops=drops(),
                requests=requests,
                bytes=size,
            )
            return (level,)

        if len(verdicts) > _MANY:
            self.add(*build())
        else:
            self._levels.append(build)

    def levels(self) -> tuple[Level, ...]:
        """The levels so far."""
        return tuple(level for build in self._levels for level in build())


_ORDER: Final = ("files", "row groups", "bloom filters", "dictionaries", "pages")


def joined_levels(some: Sequence[Level], others: Sequence[Level]) -> tuple[Level, ...]:
    """The levels of two cascades over different files as one."""
    by_name: dict[str, Level] = {}
    for level in (*some, *others):
        before = by_name.get(level.name)
        by_name[level.name] = level if before is None else _sum(before, level)
    return tuple(sorted(by_name.values(), key=lambda level: _ORDER.index(level.name)))


def _sum(a: Level, b: Level) -> Level:
    drops = Counter({(drop.cause, drop.condition): drop.units for drop in a.drops})
    drops.update({(drop.cause, drop.condition): drop.units for drop in b.drops})
    return Level(
        a.name,
        units=a.units + b.units,
        kept=a.kept + b.kept,
        whole=a.whole + b.whole,
        rows=None if a.rows is None or b.rows is None else a.rows + b.rows,
        drops=tuple(Drop(cause, condition, units) for (cause, condition), units in drops.items()),
        requests=a.requests + b.requests,
        bytes=a.bytes + b.bytes,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Blame:
    """Per dropped unit, the conjunct that no row satisfies, and the kind of evidence that proves it."""

    parts: tuple[str, ...]
    causes: tuple[Cause, ...]
    part: Array
    """Number of the conjunct; -1 for a kept unit."""
    cause: Array

    @classmethod
    def of(cls, judgement: Judgement, evidence: Evidence, cause: Cause = Cause.BOUNDS) -> Blame:
        """Blame NULLs if a unit has only NULLs, else ``cause``."""
        part = judgement.blame()
        causes = (cause, Cause.NULLS, Cause.CONSTANT)
        kind = np.zeros(len(part), dtype=np.int8)
        for number, (node, _) in enumerate(judgement.parts):
            if isinstance(node, ConstantNode):
                kind[part == number] = causes.index(Cause.CONSTANT)
            elif isinstance(node, Leaf):
                facts = evidence.facts(node.ref)
                empty = ~facts.may_value if not node.true.spans.is_empty else np.ones(len(part), dtype=bool)
                kind[(part == number) & empty] = causes.index(Cause.NULLS)
        return cls(tuple(str(node) for node, _ in judgement.parts), causes, part, kind)

    @classmethod
    def all_by(cls, judgement: Judgement, cause: Cause) -> Blame:
        """Blame one cause for all units."""
        part = judgement.blame()
        names = tuple(str(node) for node, _ in judgement.parts)
        return cls(names, (cause,), part, np.zeros(len(part), dtype=np.int8))

    def drops(self, units: Array | None = None) -> tuple[Drop, ...]:
        """Dropped units by cause and condition, among all units or some."""
        part, kind = (self.part, self.cause) if units is None else (self.part[units], self.cause[units])
        dropped = part >= 0
        width = len(self.causes)
        counts = np.bincount(part[dropped] * width + kind[dropped], minlength=width * len(self.parts))
        return tuple(
            Drop(self.causes[at % width], self.parts[at // width], int(counts[at]))
            for at in np.flatnonzero(counts).tolist()
        )
