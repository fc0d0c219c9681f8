"""Rows and states by group: equal keys are one group, NULL being a key like others, as in Spark SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.aggregate.states.state import Measure, Path, RowSelection
from skipstone.core.arrays import plain, plain_type
from skipstone.core.evidence import Array
from skipstone.errors import TypeMismatchError
from skipstone.parquet.slice.columns import take

_MOST_CODES = 1 << 62


# -- keys --------------------------------------------------------------------------------------


def key_type(name: str, type: pa.DataType) -> pa.DataType:
    """The type of a key in the answer; an error for columns that rows can't be grouped by."""
    stored = plain_type(type)
    if pa.types.is_nested(stored):
        raise TypeMismatchError(
            f"rows can't be grouped by values of type {type}", column=name, hint="group by one of its fields"
        )
    return stored


def plain_key(column: pa.ChunkedArray) -> pa.Array:
    """A key column as one array of its storage type, with one zero and one NaN."""
    chunks = [plain(chunk) for chunk in column.chunks]
    keys = pa.concat_arrays(chunks) if chunks else pa.array([], plain_type(column.type))
    if not pa.types.is_floating(keys.type):
        return keys
    return pc.if_else(
        pc.is_nan(keys), pa.scalar(float("nan"), keys.type), pc.add(keys, pa.scalar(0.0, keys.type))
    )


def sort_keys(keys: Sequence[pa.Array]) -> Array:
    """The order of groups: NULL first, NaN last, as in Spark SQL."""
    columns: dict[str, pa.Array] = {}
    for number, key in enumerate(keys):
        columns[f"valid{number}"] = key.is_valid()
        if pa.types.is_floating(key.type):
            columns[f"nan{number}"] = pc.is_nan(key)
        columns[f"key{number}"] = key
    order = [(name, "ascending") for name in columns]
    return np.asarray(pc.sort_indices(pa.table(columns), sort_keys=order))


def _number_groups(keys: Sequence[pa.Array]) -> tuple[Array, Array]:
    """Per row the number of its group, and per group one of its rows."""
    codes = np.zeros(len(keys[0]), dtype=np.int64)
    groups = 1
    for column in keys:
        encoded = column.dictionary_encode(null_encoding="encode")
        size = len(encoded.dictionary) + 1
        if groups * size > _MOST_CODES:
            _, codes = np.unique(codes, return_inverse=True)
            groups = int(codes.max(initial=-1)) + 1
        own = np.asarray(encoded.indices.fill_null(size - 1)).astype(np.int64)
        codes, groups = codes * size + own, groups * size
    _, rows, codes = np.unique(codes, return_index=True, return_inverse=True)
    return codes.ravel(), rows


def _runs(codes: Array) -> tuple[Array, Array]:
    """The order that brings equal codes together, and where each of them starts in it."""
    order = np.argsort(codes, kind="stable")
    ranked = codes[order]
    return order, np.flatnonzero(np.concatenate(([True], ranked[1:] != ranked[:-1]))[: len(codes)])


# -- states ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class GroupStates:
    """The state of one measure in some groups: their keys, a column each (none without ``group_by``)."""

    measure: int
    keys: Sequence[pa.Array]
    state: Any
    groups: int
    """Groups of the state; without keys they are parts of the one group."""


def reduce_rows(
    table: pa.Table, keys: Sequence[Path], measures: Mapping[int, Measure[Any]]
) -> tuple[GroupStates, ...]:
    """The states of measures in the groups of a table's rows; without keys all rows are one group."""
    if not len(table):
        return ()
    rows, found = RowSelection(table, np.zeros(1, dtype=np.int64)), []
    if keys:
        columns = [plain_key(rows.column(path)) for path in keys]
        codes, some = _number_groups(columns)
        found = [column.take(pa.array(some)) for column in columns]
        if len(some) > 1:
            order, starts = _runs(codes)
            rows = RowSelection(take(table, order), starts)
    return tuple(
        GroupStates(number, found, measure.update(rows), len(rows.starts))
        for number, measure in measures.items()
    )


def merge_states(
    states: Sequence[GroupStates], measures: Mapping[int, Measure[Any]]
) -> tuple[GroupStates, ...]:
    """The same with one state per measure, in which every group is once."""
    parts: dict[int, list[GroupStates]] = {}
    for one in states:
        parts.setdefault(one.measure, []).append(one)
    return tuple(_merge(number, measures[number], mine) for number, mine in parts.items())


def _merge(number: int, measure: Measure[Any], parts: Sequence[GroupStates]) -> GroupStates:
    state = parts[0].state if len(parts) == 1 else measure.join([part.state for part in parts])
    count = sum(part.groups for part in parts)
    if not parts[0].keys:
        one = measure.fold(state, np.arange(count), np.zeros(1, dtype=np.int64))
        return GroupStates(number, [], one, 1)
    keys = [pa.concat_arrays(columns) for columns in zip(*(part.keys for part in parts), strict=True)]
    if not count:
        return GroupStates(number, keys, state, 0)
    codes, some = _number_groups(keys)
    state = measure.fold(state, *_runs(codes))
    return GroupStates(number, [key.take(pa.array(some)) for key in keys], state, len(some))


def align(states: GroupStates, measure: Measure[Any], keys: Sequence[pa.Array]) -> Any:
    """A merged state with its groups in the order of ``keys``, which has all of them and no others."""
    if not keys or not len(keys[0]):
        return states.state
    both = [pa.concat_arrays([wanted, own]) for wanted, own in zip(keys, states.keys, strict=True)]
    codes, _ = _number_groups(both)
    count = len(keys[0])
    place = np.full(int(codes.max(initial=-1)) + 1, -1, dtype=np.int64)
    place[codes[count:]] = np.arange(states.groups)
    order = place[codes[:count]]
    assert (order >= 0).all(), "every measure sees every group"
    return measure.fold(states.state, order, np.arange(count))
