"""Random rows in groups, measured at once or in pieces that are merged."""

from __future__ import annotations

import datetime
import decimal
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from skipstone.aggregate.states.state import Measure, RowSelection

TYPES = {
    "int8": pa.int8(),
    "int64": pa.int64(),
    "uint64": pa.uint64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "decimal": pa.decimal128(9, 2),
    "wide": pa.decimal128(30, 3),
    "widest": pa.decimal256(60, 1),
    "date": pa.date32(),
    "instant": pa.timestamp("us", "UTC"),
    "time": pa.timestamp("ms"),
    "bool": pa.bool_(),
    "string": pa.string(),
    "binary": pa.large_binary(),
    "dictionary": pa.dictionary(pa.int8(), pa.string()),
}
NUMBERS = ("int8", "int64", "uint64", "float32", "float64", "decimal", "wide", "widest")

_FLOATS = [0.0, -0.0, 1.5, -2.0, float("inf"), float("-inf"), float("nan"), 2.0**70]
_DECIMALS = {name: decimal.Decimal(text) for name, text in {"a": "0", "b": "1.5", "c": "-2.0"}.items()}


def values(name: str) -> st.SearchStrategy[Any]:
    """Few different values of a type, so that many are equal, and its extremes; NULL now and then."""
    type = TYPES[name]
    if pa.types.is_integer(type):
        low, high = (
            (0, 2**64 - 1)
            if name == "uint64"
            else (-(2 ** (type.bit_width - 1)), 2 ** (type.bit_width - 1) - 1)
        )
        made = st.sampled_from([low, high, high - 1, 0, 1, 2, 3])
    elif pa.types.is_floating(type):
        made = st.sampled_from(_FLOATS)
    elif pa.types.is_decimal(type):
        most = decimal.Decimal(10**type.precision - 1).scaleb(-type.scale, decimal.Context(prec=80))
        made = st.sampled_from([*_DECIMALS.values(), most, most.copy_negate()])
    elif pa.types.is_date(type):
        made = st.sampled_from([datetime.date(1969, 12, 31), datetime.date(2024, 2, 29), datetime.date.max])
    elif pa.types.is_timestamp(type):
        zone = datetime.UTC if type.tz else None
        made = st.sampled_from(
            [datetime.datetime(y, 1, 1, 0, 0, 1, 5000, tzinfo=zone) for y in (1, 1970, 2026)]
        )
    elif pa.types.is_boolean(type):
        made = st.booleans()
    elif name == "binary":
        made = st.sampled_from([b"", b"\x00", b"\xff", b"a" * 100, b"ab"])
    else:
        made = st.sampled_from(["", "a", "b", "ab", "é", "z" * 80])
    return st.none() | made


@st.composite
def tables(draw: st.DrawFn, **columns: str) -> pa.Table:
    """A table with columns of the named types, and the number of each row's group in ``group``."""
    count = draw(st.integers(0, 25))
    made = {
        name: pa.array(draw(st.lists(values(type), min_size=count, max_size=count)), TYPES[type])
        for name, type in columns.items()
    }
    groups = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    return pa.table({**made, "group": pa.array(groups, pa.int64())})


def at_once(measure: Measure[Any], table: pa.Table) -> Any:
    """The state of all groups; without rows that of one empty group."""
    return _updated(measure, table)[1]


def in_pieces(measure: Measure[Any], table: pa.Table, seed: int) -> Any:
    """The same from the rows in another order, in pieces that are put together two at a time."""
    rng = np.random.default_rng(seed)
    table = table.take(pa.array(rng.permutation(len(table))))
    cuts = np.sort(rng.integers(0, len(table) + 1, rng.integers(0, 5))).tolist()
    spans = zip([0, *cuts], [*cuts, len(table)], strict=True)
    pieces = [_updated(measure, table.slice(a, b - a)) for a, b in spans if b > a or not len(table)]
    while len(pieces) > 1:
        one, other = pieces.pop(0), pieces.pop(0)
        pieces.append(_folded(measure, [one, other]))
    return pieces[0][1]


def _updated(measure: Measure[Any], table: pa.Table) -> tuple[Any, Any]:
    groups = table.column("group").to_numpy()
    order = np.argsort(groups, kind="stable")
    keys, starts = np.unique(groups[order], return_index=True)
    if not len(keys):
        keys, starts = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    rows = RowSelection(table.take(pa.array(order)), starts)
    # States cross process borders.
    return keys, pickle.loads(pickle.dumps(measure.update(rows)))


def _folded(measure: Measure[Any], pieces: Sequence[tuple[Any, Any]]) -> tuple[Any, Any]:
    keys = np.concatenate([keys for keys, _ in pieces])
    order = np.argsort(keys, kind="stable")
    found, starts = np.unique(keys[order], return_index=True)
    return found, measure.fold(measure.join([state for _, state in pieces]), order, starts)


def one_group(measure: Measure[Any], *arrays: pa.Array) -> Any:
    """The state of one group whose rows have the columns ``x``, ``y``, ..."""
    table = pa.table(list(arrays), names=list("xyz"[: len(arrays)]))
    return measure.update(RowSelection(table, np.zeros(1, dtype=np.int64)))
