"""Arrow values as text, a column at a time: exact, and the same in every format."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.report.lines import visible

# 64-bit offsets: the text of a batch may be longer than 2 GB.
TEXT = pa.large_string()

_WHOLE = r"^(-?[0-9]+)$"
_OFFSET = r"([+-][0-9]{2})([0-9]{2})$"
_TO_ESCAPE = r'["\\\x00-\x1f\x7f-\x{9f}\x{2028}\x{2029}]'
_OUT_OF_RANGE = "<"
_SPECIAL = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def texts(array: pa.Array) -> pa.Array:
    """The values as text, NULL left as it is; nested values are JSON, binary ones base64.

    >>> texts(pa.array([1.0, float("nan"), None])).to_pylist()
    ['1.0', 'NaN', None]
    """
    array = plain(array)
    type = array.type
    if is_nested(type):
        return pc.if_else(array.is_null(), pa.scalar(None, TEXT), json_texts(array))
    if is_binary(type):
        return _each(array, lambda value: base64.b64encode(value).decode())
    if is_text(type):
        return _valid(array)
    if pa.types.is_floating(type):
        return _floats(array)
    if pa.types.is_decimal(type):
        # Arrow writes small ones with an exponent.
        return _patched(array.cast(TEXT), "E", lambda text: format(_decimal(text), "f"))
    if pa.types.is_timestamp(type):
        return _timestamps(array)
    return array.cast(TEXT)


def json_texts(array: pa.Array) -> pa.Array:
    """The values as JSON, NULL as ``null``.

    Numbers that JSON or its readers can't hold are strings: decimals, NaN and the infinities. So are
    times and base64. Maps are objects.

    >>> json_texts(pa.array([{"a": [1, None]}, None])).to_pylist()
    ['{"a":[1,null]}', 'null']
    """
    array = plain(array)
    type = array.type
    if is_struct(type):
        found = json_objects(type.names, array.flatten(), len(array))
    elif pa.types.is_map(type):
        found = _map(array)
    elif is_nested(type):
        found = _list(array)
    elif is_text(type):
        found = quoted(_valid(array))
    elif pa.types.is_floating(type):
        found = _floats(array)
        special = pc.fill_null(pc.match_substring_regex(found, "^-?[NI]"), False)
        found = pc.if_else(special, _wrapped('"', found, '"'), found)
    elif pa.types.is_integer(type) or pa.types.is_boolean(type) or pa.types.is_duration(type):
        found = texts(array)
    else:
        found = _wrapped('"', texts(array), '"')
    return pc.if_else(array.is_null(), "null", found).cast(TEXT)


def json_objects(names: list[str], columns: list[pa.Array], count: int) -> pa.Array:
    """One JSON object per row."""
    if not names:
        return pa.repeat(pa.scalar("{}", TEXT), count)
    parts: list[Any] = []
    for number, (name, column) in enumerate(zip(names, columns, strict=True)):
        key = visible(json.dumps(name, ensure_ascii=False))
        parts += [_text(f"{',' if number else '{'}{key}:"), json_texts(column)]
    return joined(*parts, _text("}"))


def joined(*parts: Any, separator: str = "") -> pa.Array:
    """Texts side by side, row by row; NULL if any of them is."""
    return pc.binary_join_element_wise(*parts, _text(separator))


def quoted(array: pa.Array) -> pa.Array:
    """Texts as JSON strings."""
    plain_text = _wrapped('"', array, '"')
    odd = pc.fill_null(pc.match_substring_regex(array, _TO_ESCAPE), False)
    if not odd.true_count:
        return plain_text
    escaped = [visible(json.dumps(text, ensure_ascii=False)) for text in array.filter(odd).to_pylist()]
    return pc.replace_with_mask(plain_text, odd, pa.array(escaped, TEXT))


def plain(array: pa.Array) -> pa.Array:
    """The array without dictionaries and extensions; UUIDs become their text."""
    if isinstance(array, pa.ExtensionArray):
        if array.type == pa.uuid():
            return _each(array.storage, lambda value: str(uuid.UUID(bytes=value)))
        return plain(array.storage)
    return plain(array.dictionary_decode()) if pa.types.is_dictionary(array.type) else array


def plain_type(type: pa.DataType) -> pa.DataType:
    """The type that :func:`plain` gives."""
    if isinstance(type, pa.BaseExtensionType):
        return TEXT if type == pa.uuid() else plain_type(type.storage_type)
    return plain_type(type.value_type) if pa.types.is_dictionary(type) else type


def is_text(type: pa.DataType) -> bool:
    """Whether values are strings."""
    return bool(pa.types.is_string(type) or pa.types.is_large_string(type) or pa.types.is_string_view(type))


def is_binary(type: pa.DataType) -> bool:
    """Whether values are bytes."""
    types = pa.types
    return bool(
        types.is_binary(type)
        or types.is_large_binary(type)
        or types.is_binary_view(type)
        or types.is_fixed_size_binary(type)
    )


def is_struct(type: pa.DataType) -> bool:
    """Whether values have named fields."""
    return bool(pa.types.is_struct(type))


def is_nested(type: pa.DataType) -> bool:
    """Whether values hold values."""
    return bool(pa.types.is_nested(type))


def _text(value: str) -> pa.Scalar:
    return pa.scalar(value, TEXT)


def _wrapped(before: str, array: pa.Array, after: str) -> pa.Array:
    return joined(_text(before), array, _text(after))


def _list(array: pa.Array) -> pa.Array:
    return _wrapped("[", _joined_lists(array, json_texts(array.flatten())), "]")


def _map(array: pa.Array) -> pa.Array:
    fields = [("key", array.type.key_type), ("value", array.type.item_type)]
    array = array.cast(pa.large_list(pa.struct(fields)))
    keys, values = array.flatten().flatten()
    pairs = joined(quoted(texts(keys)), json_texts(values), separator=":")
    return _wrapped("{", _joined_lists(array, pairs), "}")


def _joined_lists(array: pa.Array, items: pa.Array) -> pa.Array:
    """The items of each list in one text; ``items`` has none of the values below NULL lists."""
    lengths = np.asarray(pc.fill_null(pc.list_value_length(array), 0), dtype=np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return pc.binary_join(pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), items), _text(","))


def _floats(array: pa.Array) -> pa.Array:
    found = pc.replace_substring_regex(array.cast(TEXT), _WHOLE, r"\1.0")
    return _patched(found, "n", lambda text: _SPECIAL[text])


def _timestamps(array: pa.Array) -> pa.Array:
    """ISO 8601; a value beyond the calendar is told as its number."""
    local = array.cast(pa.timestamp(array.type.unit))
    found = local.cast(TEXT)
    if array.type.tz is not None:
        zoned = pc.replace_substring_regex(array.cast(TEXT), _OFFSET, r"\1:\2")
        # Arrow's calendar wraps around for these.
        found = pc.if_else(pc.starts_with(found, _OUT_OF_RANGE), found, zoned)
    dated = pc.replace_substring(found, " ", "T", max_replacements=1)
    return pc.if_else(pc.starts_with(found, _OUT_OF_RANGE), found, dated)


def _patched(array: pa.Array, having: str, change: Callable[[str], str]) -> pa.Array:
    """Texts with those that hold ``having`` changed; they are few."""
    chosen = pc.fill_null(pc.match_substring(array, having), False)
    if not chosen.true_count:
        return array
    changed = [change(text) for text in array.filter(chosen).to_pylist()]
    return pc.replace_with_mask(array, chosen, pa.array(changed, TEXT))


def _each(array: pa.Array, change: Callable[[bytes], str]) -> pa.Array:
    return pa.array([None if value is None else change(value) for value in array.to_pylist()], TEXT)


def _valid(array: pa.Array) -> pa.Array:
    """Strings that are valid UTF-8; a Parquet file may hold others."""
    array = array.cast(TEXT)
    raw = array.cast(pa.large_binary())
    try:
        return raw.cast(TEXT)
    except pa.ArrowInvalid:
        return _each(raw, lambda value: value.decode(errors="backslashreplace"))


def _decimal(text: str) -> Any:
    import decimal

    return decimal.Decimal(text)
