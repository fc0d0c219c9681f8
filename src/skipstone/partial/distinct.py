"""How many distinct values there are, estimated by CPC sketches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from skipstone.core.domain.keys import is_ordered
from skipstone.core.evidence import Array
from skipstone.errors import TypeMismatchError
from skipstone.partial.groups import joined, runs
from skipstone.partial.sketches import CPC, checked, cpc_sketches, merge_cpc
from skipstone.partial.states import Measure, Path, Rows


@dataclass(frozen=True, slots=True)
class Distinct(Measure[list[bytes]]):
    """The distinct values of a column that are not NULL: a sketch per group. NaN is one value."""

    path: Path
    type: pa.DataType

    def __post_init__(self) -> None:
        if not is_ordered(self.type):
            raise TypeMismatchError(
                f"distinct values of type {self.type} can't be counted",
                column=".".join(self.path),
                hint="count those of its leaf fields",
            )

    @property
    def columns(self) -> tuple[Path, ...]:
        """The one column."""
        return (self.path,)

    def update(self, rows: Rows) -> list[bytes]:
        """A sketch of each group."""
        return cpc_sketches(self.type, rows.column(self.path), rows.starts)

    def join(self, states: Sequence[list[bytes]]) -> list[bytes]:
        """One after the other."""
        return joined(states)

    def fold(self, state: list[bytes], order: Array, starts: Array) -> list[bytes]:
        """Merged sketches."""
        return [run[0] if len(run) == 1 else merge_cpc(run).sketch for run in runs(state, order, starts)]

    @property
    def sketch(self) -> str:
        """CPC."""
        return CPC

    def sketched(self, blobs: Sequence[bytes]) -> list[bytes]:
        """The sketches themselves; raises :class:`BadSketch` for a damaged one."""
        return checked(CPC, blobs)


def distinct_counts(state: Sequence[bytes]) -> pa.Array:
    """The estimates of all groups, rounded to whole numbers."""
    return pa.array([round(merge_cpc([sketch]).estimate) for sketch in state], pa.int64())


def distinct_bounds(state: Sequence[bytes]) -> tuple[list[int], list[int]]:
    """Lower and upper bounds of all groups that hold about 19 times out of 20."""
    found = [merge_cpc([sketch]) for sketch in state]
    return [math.floor(one.lower) for one in found], [math.ceil(one.upper) for one in found]
