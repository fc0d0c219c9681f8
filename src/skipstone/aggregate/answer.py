"""Results of an aggregation: a table with one row, or one per group, and error bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from skipstone.aggregate.bind import Binding
from skipstone.aggregate.functions import Aggregate
from skipstone.aggregate.groups import GroupStates, align, merge_states, sort_keys
from skipstone.aggregate.metadata import MetadataAnswer
from skipstone.aggregate.states.state import RowSelection
from skipstone.aggregate.statistics import column_facts
from skipstone.core.domain.keys import from_key
from skipstone.core.evidence import hull, unbounded
from skipstone.core.plain import type_name
from skipstone.errors import TypeMismatchError, UsageError, require
from skipstone.scan.projection import Projection

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

# Type of integer sums, which are returned to Python as int.
_INTEGER = pa.decimal128(38, 0)


class Answer:
    """The result of an aggregation, by name."""

    def __init__(self, binding: Binding, states: Sequence[GroupStates], schema: pa.Schema) -> None:
        self._binding = binding
        missing = set(range(len(binding.measures))) - {group.measure for group in states}
        empty = _empty_states(binding, schema, sorted(missing)) if missing else ()
        self._merged = merge_states([*empty, *states], dict(enumerate(binding.measures)))

    @cached_property
    def _states(self) -> tuple[list[pa.Array], list[Any]]:
        """Sorted group keys, and the state of each measure."""
        by_number = {states.measure: states for states in self._merged}
        keys = list(by_number[0].keys)
        if keys:
            order = pa.array(sort_keys(keys))
            keys = [key.take(order) for key in keys]
        measures = self._binding.measures
        return keys, [align(by_number[n], measure, keys) for n, measure in enumerate(measures)]

    @cached_property
    def _table(self) -> pa.Table:
        keys, states = self._states
        fields = self._binding.key_fields
        columns = {field.name: key for field, key in zip(fields, keys, strict=True)}
        columns |= {output.name: output.finish(states[output.measure]) for output in self._binding.outputs}
        return pa.table(columns)

    def to_arrow(self) -> pa.Table:
        """Return the result as a table: one row, or one per group, sorted by the keys."""
        return self._table

    def to_pylist(self) -> list[dict[str, Any]]:
        """Return the result rows as dictionaries; sums of integers are int."""
        names = self._table.column_names
        columns = [_values(column) for column in self._table.columns]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def to_polars(self) -> pl.DataFrame:
        """Return the result as a Polars DataFrame."""
        require("polars")
        import polars as pl

        for field in self._table.schema:
            if pa.types.is_decimal256(field.type):
                raise TypeMismatchError(
                    f"Polars has no type {type_name(field.type)}",
                    column=field.name,
                    hint="use to_arrow() or to_pylist()",
                )
        frame = pl.from_arrow(self._table)
        assert isinstance(frame, pl.DataFrame)
        return frame

    def to_pandas(self, **options: Any) -> pd.DataFrame:
        """Return the result as a pandas DataFrame; ``options`` are passed to pyarrow."""
        require("pandas")
        return self._table.to_pandas(**options)

    def __getitem__(self, name: str) -> Any:
        if name not in self._table.column_names:
            available = ", ".join(self._table.column_names)
            raise UsageError(f"unknown result column {name!r}", hint=f"available: {available}")
        values = _values(self._table.column(name))
        return values if self._binding.keys else values[0]

    @cached_property
    def bounds(self) -> Mapping[str, Any]:
        """Confidence bounds of estimates, by name; with groups, lists of bounds."""
        _, states = self._states
        bounds = {o.name: o.bounds(states[o.measure]) for o in self._binding.outputs if o.bounds is not None}
        if self._binding.keys:
            return bounds
        return {name: (lower[0], upper[0]) for name, (lower, upper) in bounds.items()}

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def _empty_states(binding: Binding, schema: pa.Schema, numbers: Sequence[int]) -> list[GroupStates]:
    """States of zero rows for some measures."""
    table = pa.Table.from_batches([], Projection.of(schema, binding.read_paths(numbers)).schema)
    values = binding.row_values(numbers)
    table = table if values is None else values.append_to(table)
    keys = [pa.nulls(0, field.type) for field in binding.key_fields]
    groups = 0 if keys else 1
    rows = RowSelection(table, np.zeros(groups, dtype=np.int64))
    return [GroupStates(n, keys, binding.measures[n].update(rows), groups) for n in numbers]


def _values(column: pa.ChunkedArray) -> list[Any]:
    values: list[Any] = column.to_pylist()
    return [None if value is None else int(value) for value in values] if column.type == _INTEGER else values


# -- while rows are read -------------------------------------------------------------------------


class Step(Answer):
    """An intermediate result after some of the rows, with bounds for the final one."""

    def __init__(
        self,
        binding: Binding,
        states: Sequence[GroupStates],
        schema: pa.Schema,
        metadata: MetadataAnswer,
        rows_left: int,
    ) -> None:
        super().__init__(binding, states, schema)
        self._metadata = metadata
        self.rows_left = rows_left
        """Rows still to be read."""
        self.rows_done = metadata.live - min(rows_left, metadata.live)
        """Rows covered so far, by metadata or by reading."""

    @property
    def final(self) -> bool:
        """Whether this is the final result."""
        return self.rows_left == 0

    @property
    def covered(self) -> float:
        """Fraction of the rows covered so far, from 0 to 1."""
        return self.rows_done / self._metadata.live if self._metadata.live and not self.final else 1.0

    @cached_property
    def bounds(self) -> Mapping[str, Any]:
        """Bounds of each final result by name, or None if they are unknown.

        Estimates get their confidence bounds once all rows are read.
        """
        estimates = super().bounds if self.final else {}
        if self._binding.keys:
            return estimates
        bounds = {o.name: self._bounds(o.aggregate, o.measure) for o in self._binding.outputs}
        return {**bounds, **estimates}

    def _bounds(self, aggregate: Aggregate, measure: int) -> tuple[Any, Any] | None:
        now = self[aggregate.name]
        if self.final:
            return None if aggregate.function.startswith("approx") else (now, now)
        left = min(self.rows_left, self._metadata.measures[measure].rows_read)
        if not left:
            return (now, now)
        if aggregate.function in ("count", "count_distinct"):
            return (now, now + left)
        limits = self._limits(measure) if aggregate.function in ("sum", "min", "max") else None
        if limits is None:
            return None
        low, high = limits
        if aggregate.function == "sum":
            base = now or 0
            return (base + min(low, 0) * left, base + max(high, 0) * left)
        if now is None:
            return None
        return (min(low, now), now) if aggregate.function == "min" else (now, max(high, now))

    def _limits(self, measure: int) -> tuple[Any, Any] | None:
        """Smallest and largest possible value in the row groups that are read, or None if unknown."""
        units, path = self._metadata.units, self._binding.measures[measure].columns[0]
        groups = [units.group[units.of_share(share)] for share in self._metadata.measures[measure].read]
        type = self._binding.types[path]
        facts = column_facts(units.survey, self._binding.column(path), np.unique(np.concatenate(groups)))
        if facts.may_nan.any() or isinstance(facts.lower, pa.Array):
            return None
        total = hull(facts, np.zeros(1, dtype=np.int64))
        floor, ceiling = unbounded(type, 1)
        if total.lower[0] <= floor[0] or total.upper[0] >= ceiling[0]:
            return None
        low, high = (from_key(type, bounds[0].item()).as_py() for bounds in (total.lower, total.upper))
        return low, high
