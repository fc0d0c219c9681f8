"""Mergeable aggregate states, each for N groups."""

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

from skipstone.core.arrays import plain, plain_type
from skipstone.core.evidence import Array, reduce_blocks

if TYPE_CHECKING:
    from skipstone.aggregate.states.blocks import Blocks


S = TypeVar("S")
T = TypeVar("T")
Path: TypeAlias = tuple[str, ...]


class Facet(enum.IntFlag):
    """Aggregates that can be available for a block."""

    COUNT = 1
    SUM = 2
    SQUARES = 4
    MIN_MAX = 8


ALL_FACETS = Facet.COUNT | Facet.SUM | Facet.SQUARES | Facet.MIN_MAX


@dataclass(frozen=True, slots=True, eq=False)
class RowSelection:
    """Rows sorted by group; ``starts`` are the first rows of the groups.

    A group can be empty only if it is the only group.
    """

    table: pa.Table
    starts: Array

    def column(self, path: Path) -> pa.ChunkedArray:
        """A column or struct field."""
        values = self.table.column(path[0])
        for name in path[1:]:
            values = pc.struct_field(values, name)
        return values


class Measure(ABC, Generic[S]):
    """Computes states of groups. A state is picklable and has N groups.

    The result doesn't depend on the order of rows or how they are split into states (except for estimates).
    """

    @property
    @abstractmethod
    def columns(self) -> tuple[Path, ...]:
        """Columns the measure reads."""

    @abstractmethod
    def update(self, rows: RowSelection) -> S:
        """Compute the state of the groups of some rows."""

    @abstractmethod
    def join(self, states: Sequence[S]) -> S:
        """Concatenate the groups of several states."""

    @abstractmethod
    def fold(self, state: S, order: Array, starts: Array) -> S:
        """Reorder the groups, then merge each run of groups that begins at ``starts``."""

    # -- from metadata -----------------------------------------------------------------------

    @property
    def facets(self) -> Facet:
        """Block aggregates of the first column that can replace rows; none if rows are always needed."""
        return Facet(0)

    def from_blocks(self, blocks: Blocks) -> tuple[S, Array] | None:  # noqa: ARG002
        """States from block aggregates of the first column, and a mask of the usable ones.

        None if rows are always needed.
        """
        return None

    @property
    def sketch(self) -> str | None:
        """Kind of sketch of the first column that can replace rows."""
        return None

    def from_sketches(self, blobs: Sequence[bytes]) -> S:
        """States from sketches of that kind."""
        raise NotImplementedError(blobs)


@dataclass(frozen=True, slots=True)
class RowCount(Measure[Array]):
    """Number of rows of each group."""

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


def plain_key(column: pa.ChunkedArray) -> pa.Array:
    """Convert a key column to one array of its storage type, with normalized zeros and NaNs."""
    chunks = [plain(chunk) for chunk in column.chunks]
    keys = pa.concat_arrays(chunks) if chunks else pa.array([], plain_type(column.type))
    if not pa.types.is_floating(keys.type):
        return keys
    return pc.if_else(
        pc.is_nan(keys), pa.scalar(float("nan"), keys.type), pc.add(keys, pa.scalar(0.0, keys.type))
    )


def valid_values(values: Array, valid: Array | None, starts: Array) -> tuple[Array, Array]:
    """Drop invalid rows; returns the values and the new starts of the blocks."""
    if valid is None:
        return values, starts
    before = np.zeros(len(valid) + 1, dtype=np.int64)
    np.cumsum(valid, out=before[1:])
    return values[valid], before[starts]


def reordered_positions(starts: Array, length: int, order: Array) -> Array:
    """Indexes of the values when blocks are reordered."""
    lengths = np.diff(starts, append=length)[order]
    firsts = np.cumsum(lengths) - lengths
    indexes: Array = np.arange(lengths.sum()) + np.repeat(starts[order] - firsts, lengths)
    return indexes


def group_runs(state: Sequence[T], order: Array, starts: Array) -> list[list[T]]:
    """Reorder the groups, then split them into runs that begin at ``starts``."""
    ordered = [state[number] for number in order.tolist()]
    return [ordered[start:stop] for start, stop in pairwise([*starts.tolist(), len(ordered)])]


def concat_states(states: Sequence[Sequence[T]]) -> list[T]:
    """Concatenate the groups of several list states."""
    return list(chain.from_iterable(states))
