"""TRUE, FALSE or NULL for each row, and the algebra of three values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Truth:
    """Which rows are TRUE and which are NULL (None: no row is); the rest are FALSE."""

    true: Array
    null: Array | None = None

    @classmethod
    def constant(cls, rows: int, value: bool | None) -> Truth:
        """The same answer for every row."""
        return cls(np.full(rows, value is True), np.ones(rows, dtype=bool) if value is None else None)

    @classmethod
    def of(cls, answer: pa.Array) -> Truth:
        """An Arrow array of booleans."""
        null = None if answer.null_count == 0 else bools(answer.is_null())
        return cls(bools(answer), null)

    def __len__(self) -> int:
        return len(self.true)

    @property
    def possible(self) -> Array:
        """The rows that are not FALSE."""
        return self.true if self.null is None else self.true | self.null

    def __and__(self, other: Truth) -> Truth:
        true = self.true & other.true
        if self.null is None and other.null is None:
            return Truth(true)
        return Truth(true, self.possible & other.possible & ~true)

    def __or__(self, other: Truth) -> Truth:
        true = self.true | other.true
        if self.null is None:
            return Truth(true, None if other.null is None else other.null & ~true)
        return Truth(true, (self.null if other.null is None else self.null | other.null) & ~true)

    def __invert__(self) -> Truth:
        return Truth(~self.possible, self.null)

    def test(self, value: bool | None) -> Truth:
        """IS TRUE, IS FALSE or IS UNKNOWN: never NULL."""
        if value is None:
            return Truth(np.zeros(len(self), dtype=bool) if self.null is None else self.null)
        return Truth(self.true if value else ~self.possible)

    def array(self) -> pa.Array:
        """As an Arrow array of booleans."""
        return pa.array(self.true, mask=self.null)


def bools(answer: pa.Array) -> Array:
    """An Arrow boolean array as NumPy has it; NULL counts as False."""
    filled = answer.fill_null(False) if answer.null_count else answer
    return np.asarray(filled.to_numpy(zero_copy_only=False))


def valid_rows(array: pa.Array) -> Array | None:
    """The rows that are not NULL; None if every row is valid."""
    return None if array.null_count == 0 else bools(pc.is_valid(array))


def both_valid(a: Array | None, b: Array | None) -> Array | None:
    """The rows where both sides are valid; None if all are."""
    if a is None or b is None:
        return b if a is None else a
    return a & b
