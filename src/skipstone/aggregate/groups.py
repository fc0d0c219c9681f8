"""Grouping of rows and states by key, with Spark SQL's semantics (NULL is a key like any other)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.aggregate.states.state import Measure, Path, RowSelection, plain_key
from skipstone.core.arrays import plain_type
from skipstone.core.evidence import Array
from skipstone.core.plain import type_name
from skipstone.errors import TypeMismatchError
from skipstone.parquet.slice.columns import take

_MAX_CODES = 1 << 62


# -- keys --------------------------------------------------------------------------------------


def key_type(name: str, type: pa.DataType) -> pa.DataType:
    """Type of a key in the result; raise if rows can't be grouped by the column."""
    stored = plain_type(type)
    if pa.types.is_nested(stored):
        raise TypeMismatchError(
            f"rows can't be grouped by type {type_name(type)}", column=name, hint="group by one of its fields"
        )
    return stored


def sort_keys(keys: Sequence[pa.Array]) -> Array:
    """Sort order of groups: NULL first, NaN last, as in Spark SQL."""
    columns: dict[str, pa.Array] = {}
    for number, key in enumerate(keys):
        columns[f"valid{number}"] = key.is_valid()
        if pa.types.is_floating(key.type):
            columns[f"nan{number}"] = pc.is_nan(key)
        columns[f"key{number}"] = key
    order = [(name, "ascending") for name in columns]
    return np.asarray(pc.sort_indices(pa.table(columns), sort_keys=order))


def _number_groups(keys: Sequence[pa.Array]) -> tuple[Array, Array]:
    """Group number of each row, and one row of each group."""
    codes = np.zeros(len(keys[0]), dtype=np.int64)
    groups = 1
    for column in keys:
        encoded = column.dictionary_encode(null_encoding="encode")
        size = len(encoded.dictionary) + 1
        if groups * size > _MAX_CODES:
            _, codes = np.unique(codes, return_inverse=True)
            groups = int(codes.max(initial=-1)) + 1
        own = np.asarray(encoded.indices.fill_null(size - 1)).astype(np.int64)
        codes, groups = codes * size + own, groups * size
    _, rows, codes = np.unique(codes, return_index=True, return_inverse=True)
    return codes.ravel(), rows


def _group_runs(codes: Array) -> tuple[Array, Array]:
    """Sort order of codes, and the start of each run of equal codes."""
    order = np.argsort(codes, kind="stable")
    ranked = codes[order]
    return order, np.flatnonzero(np.concatenate(([True], ranked[1:] != ranked[:-1]))[: len(codes)])


# -- states ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class GroupStates:
    """State of one measure for several groups, with one array per key column."""

    measure: int
    keys: Sequence[pa.Array]
    state: Any
    groups: int
    """Number of groups in the state; without keys they are parts of a single group."""


def reduce_rows(
    table: pa.Table, keys: Sequence[Path], measures: Mapping[int, Measure[Any]]
) -> tuple[GroupStates, ...]:
    """Compute the states of a table's groups; without keys all rows are one group."""
    if not len(table):
        return ()
    rows, group_keys = RowSelection(table, np.zeros(1, dtype=np.int64)), []
    if keys:
        columns = [plain_key(rows.column(path)) for path in keys]
        codes, first_rows = _number_groups(columns)
        group_keys = [column.take(pa.array(first_rows)) for column in columns]
        if len(first_rows) > 1:
            order, starts = _group_runs(codes)
            rows = RowSelection(take(table, order), starts)
    return tuple(
        GroupStates(number, group_keys, measure.update(rows), len(rows.starts))
        for number, measure in measures.items()
    )


def merge_states(
    states: Sequence[GroupStates], measures: Mapping[int, Measure[Any]]
) -> tuple[GroupStates, ...]:
    """Merge to one state per measure, in which each group occurs once."""
    parts: dict[int, list[GroupStates]] = {}
    for group in states:
        parts.setdefault(group.measure, []).append(group)
    return tuple(_merge(number, measures[number], group) for number, group in parts.items())


def _merge(number: int, measure: Measure[Any], parts: Sequence[GroupStates]) -> GroupStates:
    state = parts[0].state if len(parts) == 1 else measure.join([part.state for part in parts])
    count = sum(part.groups for part in parts)
    if not parts[0].keys:
        merged = measure.fold(state, np.arange(count), np.zeros(1, dtype=np.int64))
        return GroupStates(number, [], merged, 1)
    keys = [pa.concat_arrays(columns) for columns in zip(*(part.keys for part in parts), strict=True)]
    if not count:
        return GroupStates(number, keys, state, 0)
    codes, first_rows = _number_groups(keys)
    state = measure.fold(state, *_group_runs(codes))
    return GroupStates(number, [key.take(pa.array(first_rows)) for key in keys], state, len(first_rows))


def align(states: GroupStates, measure: Measure[Any], keys: Sequence[pa.Array]) -> Any:
    """Reorder the groups of a merged state to match ``keys``, which has exactly these groups."""
    if not keys or not len(keys[0]):
        return states.state
    both = [pa.concat_arrays([target, current]) for target, current in zip(keys, states.keys, strict=True)]
    codes, _ = _number_groups(both)
    count = len(keys[0])
    position = np.full(int(codes.max(initial=-1)) + 1, -1, dtype=np.int64)
    position[codes[count:]] = np.arange(states.groups)
    order = position[codes[:count]]
    assert (order >= 0).all(), "every measure has every group"
    return measure.fold(states.state, order, np.arange(count))
