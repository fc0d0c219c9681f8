"""The answer of an aggregation: a table with a row, or one per group, and how sure its estimates are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.aggregate.bind import Binding
from skipstone.aggregate.merge import Known, aligned, merged
from skipstone.core.evidence import Array
from skipstone.errors import TypeMismatchError, UsageError
from skipstone.partial.states import Rows
from skipstone.scan.projection import Projection

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

WHOLE = pa.decimal128(38, 0)
"""The type of sums of whole numbers, which Python has as int."""


class Answer:
    """Values by name, made of what is known so far."""

    def __init__(self, binding: Binding, known: Sequence[Known], schema: pa.Schema) -> None:
        self._binding = binding
        told = {one.measure for one in known}
        lacking = [number for number in range(len(binding.measures)) if number not in told]
        nothing = _nothing(binding, schema, lacking) if lacking else ()
        self._known = merged([*nothing, *known], dict(enumerate(binding.measures)))

    @cached_property
    def _states(self) -> tuple[list[pa.Array], list[Any]]:
        """The keys of groups in order, and the state of each measure in them."""
        by_number = {known.measure: known for known in self._known}
        keys = list(by_number[0].keys)
        if keys:
            order = pa.array(_sorted(keys))
            keys = [key.take(order) for key in keys]
        measures = self._binding.measures
        return keys, [aligned(by_number[n], measure, keys) for n, measure in enumerate(measures)]

    @cached_property
    def _table(self) -> pa.Table:
        keys, states = self._states
        fields = self._binding.key_fields
        columns = {field.name: key for field, key in zip(fields, keys, strict=True)}
        columns |= {output.name: output.finish(states[output.measure]) for output in self._binding.outputs}
        return pa.table(columns)

    def to_arrow(self) -> pa.Table:
        """The answer as a table: one row, or one per group in the order of the keys."""
        return self._table

    def to_pylist(self) -> list[dict[str, Any]]:
        """The rows of the answer; sums of whole numbers as int."""
        names = self._table.column_names
        columns = [_values(column) for column in self._table.columns]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def to_polars(self) -> pl.DataFrame:
        """The answer as a Polars frame."""
        import polars as pl

        for field in self._table.schema:
            if pa.types.is_decimal256(field.type):
                raise TypeMismatchError(
                    f"Polars has no {field.type}",
                    column=field.name,
                    hint="take it with to_arrow() or to_pylist()",
                )
        frame = pl.from_arrow(self._table)
        assert isinstance(frame, pl.DataFrame)
        return frame

    def to_pandas(self, **options: Any) -> pd.DataFrame:
        """The answer as a pandas frame; ``options`` go to pyarrow."""
        return self._table.to_pandas(**options)

    def __getitem__(self, name: str) -> Any:
        if name not in self._table.column_names:
            raise UsageError(
                f"there is no {name!r} in the answer", hint=f"there is {', '.join(self._table.column_names)}"
            )
        values = _values(self._table.column(name))
        return values if self._binding.keys else values[0]

    @cached_property
    def bounds(self) -> Mapping[str, Any]:
        """For estimates, between which values the truth is very likely to be; with groups, lists of them."""
        _, states = self._states
        found = {o.name: o.bounds(states[o.measure]) for o in self._binding.outputs if o.bounds is not None}
        if self._binding.keys:
            return found
        return {name: (lower[0], upper[0]) for name, (lower, upper) in found.items()}

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def _nothing(binding: Binding, schema: pa.Schema, numbers: Sequence[int]) -> list[Known]:
    """No rows at all, for some measures: what makes an answer of nothing."""
    paths = dict.fromkeys(path for measure in binding.measures for path in measure.columns)
    table = pa.Table.from_batches([], Projection.of(schema, (*binding.keys, *paths)).schema)
    if binding.keys:
        keys = [pa.nulls(0, field.type) for field in binding.key_fields]
        rows = Rows(table, np.zeros(0, dtype=np.int64))
        return [Known(n, keys, binding.measures[n].update(rows), 0) for n in numbers]
    rows = Rows(table, np.zeros(1, dtype=np.int64))
    return [Known(n, [], binding.measures[n].update(rows), 1) for n in numbers]


def _values(column: pa.ChunkedArray) -> list[Any]:
    values: list[Any] = column.to_pylist()
    return [None if value is None else int(value) for value in values] if column.type == WHOLE else values


def _sorted(keys: Sequence[pa.Array]) -> Array:
    """The order of groups: NULL first, NaN last, as in Spark SQL."""
    columns: dict[str, pa.Array] = {}
    for number, key in enumerate(keys):
        columns[f"valid{number}"] = key.is_valid()
        if pa.types.is_floating(key.type):
            columns[f"nan{number}"] = pc.is_nan(key)
        columns[f"key{number}"] = key
    order = [(name, "ascending") for name in columns]
    return np.asarray(pc.sort_indices(pa.table(columns), sort_keys=order))
