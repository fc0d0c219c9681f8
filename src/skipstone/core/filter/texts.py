"""Functions of text, by characters and in Unicode's full case mapping, as Spark has them."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.domain.keys import is_binary, is_text
from skipstone.core.filter.series import Arguments, Kernel, Series, apply


def by_value(array: pa.Array, change: Callable[[str], object], type: pa.DataType) -> pa.Array:
    """A Python function of each distinct text: for what Arrow has no kernel that agrees with Spark."""
    coded = array.dictionary_encode()
    made = pa.array([change(text) for text in coded.dictionary.to_pylist()], type)
    return made.take(coded.indices)


def _recased(ascii: Callable[[pa.Array], pa.Array], change: Callable[[str], str]) -> Kernel:
    def kernel(array: pa.Array) -> pa.Array:
        if pc.all(pc.string_is_ascii(array)).as_py() in (True, None):
            return ascii(array)
        return by_value(array, change, array.type)

    return kernel


lower_case = _recased(pc.ascii_lower, str.lower)
upper_case = _recased(pc.ascii_upper, str.upper)

_TEXT: dict[str, Kernel] = {
    "lower": lower_case,
    "upper": upper_case,
    "trim": lambda a: pc.utf8_trim(a, " "),
    "ltrim": lambda a: pc.utf8_ltrim(a, " "),
    "rtrim": lambda a: pc.utf8_rtrim(a, " "),
    "reverse": pc.utf8_reverse,
}


def text_function(to: Arguments) -> Series:
    """A function of one text that gives a text."""
    if len(to.types) != 1 or not is_text(to.types[0]):
        raise to.refuse("it takes one text")
    return apply(to.call, to.types[0], _TEXT[to.call.name], to.series, cost=20)


def length(to: Arguments) -> Series:
    """Characters of a text, bytes of a binary."""
    if len(to.types) != 1 or not (is_text(to.types[0]) or is_binary(to.types[0])):
        raise to.refuse("it takes one text or binary")
    count = pc.utf8_length if is_text(to.types[0]) else pc.binary_length
    return apply(to.call, pa.int32(), lambda a: count(a).cast(pa.int32()), to.series, cost=5)


def part(to: Arguments) -> Series:
    """``substr``, ``left`` and ``right`` with constant places."""
    if not to.types or not (is_text(to.types[0]) or is_binary(to.types[0])):
        raise to.refuse("it takes a text or binary")
    if any(scalar is None for scalar in to.constants[1:]):
        raise to.refuse("its places must be constants")
    places = [scalar.as_py() for scalar in to.constants[1:] if scalar is not None]
    type = to.types[0]
    if None in places:
        return apply(to.call, type, lambda a, *_: pa.nulls(len(a), type), to.series)
    window = _window(to.call.name, places)
    if window is None:
        raise to.refuse("its places must be whole numbers")
    start, stop = window
    if stop is not None and start == stop:
        empty = pa.scalar("" if is_text(type) else b"", type)
        return apply(to.call, type, lambda a, *_: pc.if_else(a.is_null(), None, empty), to.series)
    if pa.types.is_fixed_size_binary(type):
        type = pa.binary()
    cut = pc.utf8_slice_codeunits if is_text(type) else pc.binary_slice
    return apply(to.call, type, lambda a, *_: cut(_sliceable(a), start, stop), to.series, cost=20)


def _sliceable(array: pa.Array) -> pa.Array:
    return array.cast(pa.binary()) if pa.types.is_fixed_size_binary(array.type) else array


def _window(name: str, places: list[object]) -> tuple[int, int | None] | None:
    """The slice, as Python counts it; an empty one as ``(0, 0)``."""
    match name, places:
        case "left", [int(count)]:
            return 0, max(count, 0)
        case "right", [int(count)]:
            return (-count, None) if count > 0 else (0, 0)
        case "substr", [int(first)]:
            return (first - 1 if first > 0 else first), None
        case "substr", [int(first), int(count)]:
            start = first - 1 if first > 0 else first
            if count <= 0:
                return 0, 0
            # Counted from the end, a part that reaches the end has no stop.
            return start, None if start < 0 and start + count >= 0 else start + count
    return None


def joined(to: Arguments) -> Series:
    """``concat``: NULL if any part is."""
    if not to.types or not all(is_text(t) for t in to.types):
        raise to.refuse("it takes texts only")
    wide = pa.large_string()

    def kernel(*parts: pa.Array) -> pa.Array:
        return pc.binary_join_element_wise(*(p.cast(wide) for p in parts), pa.scalar("", wide))

    return apply(to.call, wide, kernel, to.series, cost=20)


def replaced(to: Arguments) -> Series:
    """``replace(text, search, with)`` with constant texts."""
    if len(to.types) not in (2, 3) or not is_text(to.types[0]):
        raise to.refuse("it takes a text and what to replace")
    words = [None if scalar is None else scalar.as_py() for scalar in to.constants[1:]]
    if not all(isinstance(word, str) for word in words):
        raise to.refuse("what it replaces must be constant text")
    search, new = (*words, "")[:2]
    if not search:
        return apply(to.call, to.types[0], lambda a, *_: a, to.series)
    return apply(
        to.call, to.types[0], lambda a, *_: pc.replace_substring(a, search, new or ""), to.series, cost=20
    )
