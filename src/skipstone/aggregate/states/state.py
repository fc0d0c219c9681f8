"""What is kept of rows while they go by: states of N groups at once, put together in any order."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.evidence import Array, reduce_blocks

if TYPE_CHECKING:
    from skipstone.aggregate.states.blocks import Blocks


S = TypeVar("S")
T = TypeVar("T")
Path: TypeAlias = tuple[str, ...]


class Facet(enum.IntFlag):
    """What may be known of a block."""

    COUNT = 1
    SUM = 2
    SQUARES = 4
    MIN_MAX = 8


EVERY = Facet.COUNT | Facet.SUM | Facet.SQUARES | Facet.MIN_MAX


@dataclass(frozen=True, slots=True, eq=False)
class RowSelection:
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
    def update(self, rows: RowSelection) -> S:
        """The state of each group of some rows."""

    @abstractmethod
    def join(self, states: Sequence[S]) -> S:
        """The groups of several states, one after the other."""

    @abstractmethod
    def fold(self, state: S, order: Array, starts: Array) -> S:
        """The groups in another order, and each run of them that begins at ``starts`` as one group."""

    # -- from metadata -----------------------------------------------------------------------

    @property
    def facets(self) -> Facet:
        """What blocks of the first column must have to do instead of rows; nothing if they never do."""
        return Facet(0)

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
        return ()

    def update(self, rows: RowSelection) -> Array:
        return np.diff(rows.starts, append=len(rows.table))

    def join(self, states: Sequence[Array]) -> Array:
        return np.concatenate(states)

    def fold(self, state: Array, order: Array, starts: Array) -> Array:
        return reduce_blocks(np.add, state[order], starts, empty=0)


# -- values and states by group ----------------------------------------------------------------


def present(values: Array, valid: Array | None, starts: Array) -> tuple[Array, Array]:
    """The values of valid rows, and where the blocks that begin at ``starts`` begin among them."""
    if valid is None:
        return values, starts
    before = np.zeros(len(valid) + 1, dtype=np.int64)
    np.cumsum(valid, out=before[1:])
    return values[valid], before[starts]


def moved(starts: Array, length: int, order: Array) -> Array:
    """The places of the values of blocks, taken in the given order of blocks."""
    lengths = np.diff(starts, append=length)[order]
    firsts = np.cumsum(lengths) - lengths
    places: Array = np.arange(lengths.sum()) + np.repeat(starts[order] - firsts, lengths)
    return places


def runs(state: Sequence[T], order: Array, starts: Array) -> list[list[T]]:
    """The members of each run of groups that begins at ``starts`` when they are taken in an order."""
    taken = [state[number] for number in order.tolist()]
    return [taken[start:stop] for start, stop in pairwise([*starts.tolist(), len(taken)])]


def joined(states: Sequence[Sequence[T]]) -> list[T]:
    """The groups of several states, one after the other."""
    return list(chain.from_iterable(states))
