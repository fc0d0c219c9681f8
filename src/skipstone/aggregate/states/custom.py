"""User-defined aggregates: objects with init, update, merge and finish."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa

from skipstone.aggregate.states.state import Measure, Path, RowSelection, concat_states, group_runs
from skipstone.core.evidence import Array
from skipstone.core.plain import type_name
from skipstone.errors import SkipstoneError, UsageError

_METHODS: Final = ("init", "update", "merge", "finish")


@dataclass(frozen=True, slots=True, eq=False)
class Custom(Measure[list[Any]]):
    """States of a user-defined aggregate, one per group.

    ``merge`` and ``finish`` get copies, so they can modify their arguments.
    """

    paths: tuple[Path, ...]
    names: tuple[str, ...]
    aggregate: Any
    name: str

    def __post_init__(self) -> None:
        missing = [method for method in _METHODS if not callable(getattr(self.aggregate, method, None))]
        if missing:
            raise UsageError(
                f"aggregate {self.name} has no {', '.join(missing)}",
                hint="use an object with init(), update(state, batch), merge(a, b) and finish(state)",
            )

    @property
    def columns(self) -> tuple[Path, ...]:
        return self.paths

    def update(self, rows: RowSelection) -> list[Any]:
        table = rows.table.select([])
        for name, path in zip(self.names, self.paths, strict=True):
            table = table.append_column(name, rows.column(path))
        table = table.combine_chunks()
        spans = pairwise([*rows.starts.tolist(), len(rows.table)])
        return [self._update(table.slice(start, stop - start)) for start, stop in spans]

    def join(self, states: Sequence[list[Any]]) -> list[Any]:
        return concat_states(states)

    def fold(self, state: list[Any], order: Array, starts: Array) -> list[Any]:
        """Merge the states of each run, in order."""
        return [run[0] if len(run) == 1 else self._merge(run) for run in group_runs(state, order, starts)]

    def call(self, method: str, *args: Any) -> Any:
        """Call a method of the user's object; errors name the aggregate."""
        try:
            return getattr(self.aggregate, method)(*args)
        except SkipstoneError:
            raise
        except Exception as error:
            raise UsageError(f"{method} of aggregate {self.name} failed: {_description(error)}") from error

    def copy(self, state: Any) -> Any:
        """Copy a state."""
        try:
            return copy.deepcopy(state)
        except Exception as error:
            raise UsageError(
                f"state of aggregate {self.name} can't be copied: {_description(error)}",
                hint="use plain values, lists or arrays as state",
            ) from error

    def _update(self, table: pa.Table) -> Any:
        state = self.call("init")
        for batch in table.to_batches():
            if batch.num_rows:
                state = self.call("update", state, batch)
        return state

    def _merge(self, run: Sequence[Any]) -> Any:
        state = self.copy(run[0])
        for other in run[1:]:
            state = self.call("merge", state, self.copy(other))
        return state


def finish_custom(measure: Custom, state: Sequence[Any], type: pa.DataType | None = None) -> pa.Array:
    """Call ``finish`` for each group; the result has ``type``, or the inferred type."""
    values = [measure.call("finish", measure.copy(group)) for group in state]
    try:
        values = [value.as_py() if isinstance(value, pa.Scalar) else value for value in values]
        return pa.array(values, type, from_pandas=False)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        expected = "one type" if type is None else f"type {type_name(type)}"
        raise UsageError(
            f"finish of aggregate {measure.name} returned values that are not of {expected}: {error}",
            hint="set type= to the type of the values",
        ) from error


def _description(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
