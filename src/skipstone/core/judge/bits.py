"""Three bits per unit, their algebra, and the verdict they give."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np

from skipstone.core.evidence import Array


class Verdict(enum.IntEnum):
    """What is proven about a unit."""

    NONE = 0
    SOME = 1
    ALL = 2


@dataclass(frozen=True, slots=True, eq=False)
class Bits:
    """Per unit: may some row be TRUE, may some be FALSE, may some be NULL."""

    true: Array
    false: Array
    null: Array

    @classmethod
    def constant(cls, units: int, value: bool | None) -> Bits:
        """Every row of every unit has this one value."""
        return cls(*(np.full(units, value is bit) for bit in (True, False, None)))

    @classmethod
    def unknown(cls, units: int) -> Bits:
        """Every row may be anything."""
        yes = np.ones(units, dtype=bool)
        return cls(yes, yes, yes)

    def take(self, units: Array) -> Bits:
        """The bits of the chosen units, in that order."""
        return Bits(self.true[units], self.false[units], self.null[units])

    def __and__(self, other: Bits) -> Bits:
        null = (self.null & (other.true | other.null)) | (other.null & (self.true | self.null))
        return Bits(self.true & other.true, self.false | other.false, null)

    def __or__(self, other: Bits) -> Bits:
        return ~(~self & ~other)

    def __invert__(self) -> Bits:
        return Bits(self.false, self.true, self.null)

    def test(self, value: bool | None) -> Bits:
        """IS TRUE, IS FALSE or IS UNKNOWN."""
        parts = {True: self.true, False: self.false, None: self.null}
        holds = parts.pop(value)
        first, second = parts.values()
        return Bits(holds, first | second, np.zeros(len(holds), dtype=bool))

    def verdicts(self) -> Array:
        """NONE where nothing may be TRUE, ALL where nothing may be FALSE or NULL, else SOME."""
        every = self.true & ~(self.false | self.null)
        return self.true.astype(np.int8) + every
