"""Values by group: without NULLs, and in the order in which groups are put together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise
from typing import TypeVar

import numpy as np

from skipstone.core.evidence import Array

T = TypeVar("T")


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
