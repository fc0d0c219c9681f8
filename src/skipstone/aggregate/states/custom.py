"""Aggregates of the user's own: any object with init, update, merge and finish."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa

from skipstone.aggregate.states.state import Measure, Path, RowSelection, joined, runs
from skipstone.core.evidence import Array
from skipstone.errors import SkipstoneError, UsageError

_METHODS: Final = ("init", "update", "merge", "finish")


@dataclass(frozen=True, slots=True, eq=False)
class Custom(Measure[list[Any]]):
    """The states that a user's object makes of batches with the named columns, one per group.

    What the object is given to merge or to finish is a copy, so it may change it.
    """

    paths: tuple[Path, ...]
    names: tuple[str, ...]
    aggregate: Any
    name: str

    def __post_init__(self) -> None:
        missing = [method for method in _METHODS if not callable(getattr(self.aggregate, method, None))]
        if missing:
            raise UsageError(
                f"the aggregate {self.name} has no {', '.join(missing)}",
                hint="give an object with init(), update(state, batch), merge(a, b) and finish(state)",
            )

    @property
    def columns(self) -> tuple[Path, ...]:
        return self.paths

    def update(self, rows: RowSelection) -> list[Any]:
        """A state of each group, by calls for it alone."""
        table = rows.table.select([])
        for name, path in zip(self.names, self.paths, strict=True):
            table = table.append_column(name, rows.column(path))
        table = table.combine_chunks()
        spans = pairwise([*rows.starts.tolist(), len(rows.table)])
        return [self._updated(table.slice(start, stop - start)) for start, stop in spans]

    def join(self, states: Sequence[list[Any]]) -> list[Any]:
        return joined(states)

    def fold(self, state: list[Any], order: Array, starts: Array) -> list[Any]:
        """The states of each run, merged in their order."""
        return [run[0] if len(run) == 1 else self._merged(run) for run in runs(state, order, starts)]

    def call(self, method: str, *args: Any) -> Any:
        """What a method of the user's object gives; its failure names the aggregate."""
        try:
            return getattr(self.aggregate, method)(*args)
        except SkipstoneError:
            raise
        except Exception as error:
            raise UsageError(
                f"{method} of the aggregate {self.name} failed: {_description(error)}"
            ) from error

    def copied(self, state: Any) -> Any:
        """A state that may be changed."""
        try:
            return copy.deepcopy(state)
        except Exception as error:
            raise UsageError(
                f"a state of the aggregate {self.name} can't be copied: {_description(error)}",
                hint="keep plain values, lists or arrays as state",
            ) from error

    def _updated(self, table: pa.Table) -> Any:
        state = self.call("init")
        for batch in table.to_batches():
            if batch.num_rows:
                state = self.call("update", state, batch)
        return state

    def _merged(self, run: Sequence[Any]) -> Any:
        state = self.copied(run[0])
        for other in run[1:]:
            state = self.call("merge", state, self.copied(other))
        return state


def finished(measure: Custom, state: Sequence[Any], type: pa.DataType | None = None) -> pa.Array:
    """What the user's object makes of each group's state, of the type given or as it is."""
    values = [measure.call("finish", measure.copied(one)) for one in state]
    try:
        values = [value.as_py() if isinstance(value, pa.Scalar) else value for value in values]
        return pa.array(values, type, from_pandas=False)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        wanted = "one type" if type is None else f"type {type}"
        raise UsageError(
            f"finish of the aggregate {measure.name} gave values that are not of {wanted}: {error}",
            hint="give type= the type of the values",
        ) from error


def _description(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
