"""Elements of arrays, values of maps, fields of structs, and functions of whole arrays and maps."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.arrays import Array, bools, plain, plain_type
from skipstone.core.filter.conditions import Arguments, RowError, Series, TruthMask, apply
from skipstone.core.filter.pairs import compare, order_of


def is_array(type: pa.DataType) -> bool:
    """Whether ``type`` is an Arrow list of any layout."""
    return isinstance(type, pa.ListType | pa.LargeListType | pa.FixedSizeListType | pa.ListViewType)


def _as_list(array: pa.Array) -> pa.Array:
    """A map as the list of its entries, and a list view as a list."""
    type = array.type
    if pa.types.is_map(type):
        return array.cast(pa.list_(pa.struct([("key", type.key_type), ("value", type.item_type)])))
    return array.cast(pa.list_(type.value_type)) if isinstance(type, pa.ListViewType) else array


def _lengths(lists: pa.Array) -> Array:
    """The number of elements of each list; 0 for NULL."""
    return np.asarray(pc.list_value_length(lists).fill_null(0)).astype(np.int64)


def size(to: Arguments) -> Series:
    """``size(x)`` of an array or map; NULL for NULL, as in Spark's ANSI mode."""
    if len(to.types) != 1 or not (is_array(to.types[0]) or pa.types.is_map(to.types[0])):
        raise to.unsupported("the argument must be an array or a map")
    if to.call.name == "array_size" and not is_array(to.types[0]):
        raise to.unsupported("the argument must be an array")
    kernel = lambda a: pc.list_value_length(_as_list(a)).cast(pa.int32())  # noqa: E731
    return apply(to.call, pa.int32(), kernel, to.series)


def _equal(to: Arguments, elements: pa.DataType, value: int) -> None:
    if order_of(plain_type(elements), to.types[value]) is None:
        raise to.unsupported(f"{elements} and {to.types[value]} can't be compared")


def _matches(elements: pa.Array, values: pa.Array, parents: Array) -> TruthMask:
    """Whether each element equals the value of its row."""
    elements, values = plain(elements), values.take(pa.array(parents))
    order = order_of(elements.type, values.type)
    assert order is not None
    return compare("=", order, elements, values)


def array_contains(to: Arguments) -> Series:
    """``array_contains(array, value)``: NULL if the value is missing and the array has a NULL."""
    if len(to.types) != 2 or not is_array(to.types[0]):
        raise to.unsupported("arguments must be an array and a value")
    _equal(to, to.types[0].value_type, 1)

    def kernel(array: pa.Array, values: pa.Array) -> pa.Array:
        lists = _as_list(array)
        parents = np.repeat(np.arange(len(lists)), _lengths(lists))
        truth = _matches(pc.list_flatten(lists), values, parents)
        found, unknown = np.zeros((2, len(lists)), dtype=bool)
        found[parents[truth.true]] = True
        if truth.null is not None:
            unknown[parents[truth.null]] = True
        missing = bools(pc.or_(lists.is_null(), values.is_null()))
        return pa.array(found, mask=missing | (unknown & ~found))

    return apply(to.call, pa.bool_(), kernel, to.series, cost=20)


def map_contains_key(to: Arguments) -> Series:
    """``map_contains_key(map, key)``."""
    if len(to.types) != 2 or not pa.types.is_map(to.types[0]):
        raise to.unsupported("arguments must be a map and a key")
    _equal(to, to.types[0].key_type, 1)

    def kernel(array: pa.Array, keys: pa.Array) -> pa.Array:
        found = _find_keys(array, keys)[1]
        return pa.array(found >= 0, mask=bools(pc.or_(array.is_null(), keys.is_null())))

    return apply(to.call, pa.bool_(), kernel, to.series, cost=20)


def _find_keys(array: pa.Array, keys: pa.Array) -> tuple[pa.Array, Array]:
    """Entries of all maps, and the position of the first one with the key of each row; -1 if none."""
    lists = _as_list(array)
    parents = np.repeat(np.arange(len(lists)), _lengths(lists))
    entries = pc.list_flatten(lists)
    hits = np.flatnonzero(_matches(pc.struct_field(entries, "key"), keys, parents).true)
    found = np.full(len(lists), -1, dtype=np.int64)
    found[parents[hits][::-1]] = hits[::-1]
    return entries, found


def element(to: Arguments) -> Series:
    """``x[i]`` and ``get(x, i)`` from 0; ``element_at(x, i)`` and ``try_element_at(x, i)`` from 1.

    ``x[i]`` and ``element_at`` raise an error outside an array, as in Spark's ANSI mode; the others are NULL.
    """
    if len(to.types) == 2:
        container, index = to.types
        if pa.types.is_struct(container) and to.call.name == "getitem":
            return field(to)
        if pa.types.is_map(container) and to.call.name != "get":
            _equal(to, container.key_type, 1)
            return apply(to.call, plain_type(container.item_type), _map_value, to.series, cost=20)
        if is_array(container) and (pa.types.is_integer(index) or pa.types.is_null(index)):
            return _array_element(to)
    raise to.unsupported("arguments must be an array and an integer, or a map and a key")


def _map_value(array: pa.Array, keys: pa.Array) -> pa.Array:
    entries, found = _find_keys(array, keys)
    return plain(pc.struct_field(entries, "value").take(pa.array(found, mask=found < 0)))


def _array_element(to: Arguments) -> Series:
    name = to.call.name
    raises = name in ("getitem", "element_at")
    from_one = name.endswith("element_at")
    other = "try_element_at" if from_one else "get"

    def kernel(array: pa.Array, indexes: pa.Array) -> pa.Array:
        lists = _as_list(array)
        lengths = _lengths(lists)
        at = np.asarray(indexes.cast(pa.int64()).fill_null(1))
        valid = bools(pc.and_(lists.is_valid(), indexes.is_valid()))
        if from_one:
            if (valid & (at == 0)).any():
                raise RowError("index is 0, and the first element has index 1")
            at = np.where(at > 0, at - 1, lengths + at)
        outside = valid & ((at < 0) | (at >= lengths))
        if raises and outside.any():
            row = int(np.argmax(outside))
            count = f"{lengths[row]} element{'' if lengths[row] == 1 else 's'}"
            raise RowError(f"an array has {count}", hint=f"use {other}, which is NULL there")
        positions = np.cumsum(lengths) - lengths + at
        inside = valid & ~outside
        return plain(pc.list_flatten(lists).take(pa.array(np.where(inside, positions, 0), mask=~inside)))

    type = plain_type(to.types[0].value_type)
    return apply(to.call, type, kernel, to.series, risky=raises or from_one, cost=10)


def field(to: Arguments) -> Series:
    """``struct.name``."""
    struct, name = to.types[0], to.constants[1] if len(to.types) == 2 else None
    if name is None or not pa.types.is_struct(struct) or struct.get_field_index(str(name.as_py())) < 0:
        raise to.unsupported("the first argument must be a struct with this field")
    at = struct.get_field_index(name.as_py())
    type = plain_type(struct.field(at).type)
    return apply(to.call, type, lambda a, _: plain(pc.struct_field(a, [at])), to.series)
