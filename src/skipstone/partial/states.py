"""What is kept of rows while they go by: states of N groups at once, put together in any order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.evidence import Array
from skipstone.core.evidence.hull import reduce_blocks

if TYPE_CHECKING:
    from skipstone.partial.blocks import Blocks

S = TypeVar("S")
Path: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rows in the order of their groups; ``starts`` are the first rows of the groups.

    A group may be empty only if it is the one group there is.
    """

    table: pa.Table
    starts: Array

    def column(self, path: Path) -> pa.ChunkedArray:
        """A column, or a field of a struct."""
        found = self.table.column(path[0])
        for name in path[1:]:
            found = pc.struct_field(found, name)
        return found


class Measure(ABC, Generic[S]):
    """Something that is kept per group. A state is picklable and holds N groups.

    States of the same rows in other orders, cut in other places, give the same answer (estimates excepted).
    """

    @property
    @abstractmethod
    def columns(self) -> tuple[Path, ...]:
        """What it reads of a row."""

    @abstractmethod
    def update(self, rows: Rows) -> S:
        """The state of each group of some rows."""

    @abstractmethod
    def join(self, states: Sequence[S]) -> S:
        """The groups of several states, one after the other."""

    @abstractmethod
    def fold(self, state: S, order: Array, starts: Array) -> S:
        """The groups in another order, and each run of them that begins at ``starts`` as one group."""

    # -- from metadata -----------------------------------------------------------------------

    def cached(self, blocks: Blocks) -> tuple[S, Array] | None:  # noqa: ARG002
        """The states of blocks by what is kept of the first column, and which of them are right.

        None if rows are needed in any case.
        """
        return None

    @property
    def sketch(self) -> str | None:
        """The kind of sketch of the first column that would do instead of rows."""
        return None

    def sketched(self, blobs: Sequence[bytes]) -> S:
        """The states of blocks by their sketches of that kind."""
        raise NotImplementedError(blobs)


@dataclass(frozen=True, slots=True)
class RowCount(Measure[Array]):
    """How many rows each group has."""

    @property
    def columns(self) -> tuple[Path, ...]:
        """None."""
        return ()

    def update(self, rows: Rows) -> Array:
        """Rows from each start to the next."""
        return np.diff(rows.starts, append=len(rows.table))

    def join(self, states: Sequence[Array]) -> Array:
        """One after the other."""
        return np.concatenate(states)

    def fold(self, state: Array, order: Array, starts: Array) -> Array:
        """Sums of runs."""
        return reduce_blocks(np.add, state[order], starts, empty=0)
