"""Functions and patterns of text: by characters, in Unicode's full case mapping, LIKE, and Java's RLIKE."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.domain.keys import is_binary, is_text
from skipstone.core.filter.conditions import Arguments, Kernel, Series, TruthMask, apply, not_computable
from skipstone.predicate import tree
from skipstone.predicate.foreign import like_pieces, like_regex


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


def string_function(to: Arguments) -> Series:
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


def substring(to: Arguments) -> Series:
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


def concat(to: Arguments) -> Series:
    """``concat``: NULL if any part is."""
    if not to.types or not all(is_text(t) for t in to.types):
        raise to.refuse("it takes texts only")
    wide = pa.large_string()

    def kernel(*parts: pa.Array) -> pa.Array:
        return pc.binary_join_element_wise(*(p.cast(wide) for p in parts), pa.scalar("", wide))

    return apply(to.call, wide, kernel, to.series, cost=20)


def replace(to: Arguments) -> Series:
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


Test = Callable[[pa.Array], TruthMask]
_LONG = 2_000
"""Characters of a LIKE pattern up to which a regular expression does it."""


def match_test(match: tree.Match, type: pa.DataType) -> Test:
    """A plain text at the end of a text, or anywhere in it."""
    if not (is_text(type) or is_binary(type)):
        raise not_computable(match, f"{type} is not text")
    kernel = {"prefix": pc.starts_with, "suffix": pc.ends_with, "contains": pc.match_substring}[match.kind]
    text = match.text.encode("utf-8", "surrogatepass") if isinstance(match.text, str) else match.text
    if not text:
        return lambda array: TruthMask.of(pc.if_else(array.is_valid(), True, pa.scalar(None, pa.bool_())))
    return lambda array: TruthMask.of(kernel(_bytes(array), text))


def _bytes(array: pa.Array) -> pa.Array:
    """As bytes, so that a part of a character is no match error and binary columns do the same."""
    if pa.types.is_string(array.type):
        return array.view(pa.binary())
    if pa.types.is_large_string(array.type):
        return array.view(pa.large_binary())
    return array.cast(pa.binary()) if pa.types.is_fixed_size_binary(array.type) else array


def like_test(like: tree.Like, type: pa.DataType) -> Test:
    """LIKE by the plainest kernel that does it."""
    if not is_text(type):
        raise not_computable(like, f"{type} is not text")
    if like.ignore_case:
        escape = like.escape.lower() if like.escape else like.escape
        inner = like_test(tree.Like(like.arg, like.pattern.lower(), escape), type)
        return lambda array: inner(lower_case(array))
    plain = like.pattern
    body = plain.strip("%")
    escapes = "\\" in plain or (like.escape and like.escape in plain)
    if body and "%" not in body and "_" not in body and plain.startswith("%") and not escapes:
        kind: tree.MatchKind = "contains" if plain.endswith("%") else "suffix"
        return match_test(tree.Match(kind, like.arg, body), type)
    if len(plain) > _LONG:
        return _long_like(like)
    regex = like_regex(like)
    return lambda array: TruthMask.of(pc.match_substring_regex(array, regex))


def _long_like(like: tree.Like) -> Test:
    """A pattern that RE2 would refuse, or be slow with: its pieces between the %, each at its first place.

    Few texts are as long as such a pattern: the others are no match without being looked at.
    """
    first, *rest = like_pieces(like)
    shortest = len(first) + sum(map(len, rest))

    def holds(text: str) -> bool:
        if not rest:
            return len(text) == shortest and _is_at(first, text, 0)
        if not _is_at(first, text, 0):
            return False
        at = len(first)
        for piece in rest[:-1]:
            at = _find(piece, text, at)
            if at < 0:
                return False
            at += len(piece)
        end = len(text) - len(rest[-1])
        return at <= end and _is_at(rest[-1], text, end)

    def test(array: pa.Array) -> TruthMask:
        answers = pc.greater_equal(pc.utf8_length(array), shortest).to_pylist()
        for at, long in enumerate(answers):
            if long:
                answers[at] = holds(array[at].as_py())
        return TruthMask.of(pa.array(answers, pa.bool_()))

    return test


def _is_at(piece: Sequence[str | None], text: str, at: int) -> bool:
    return len(text) - at >= len(piece) and all(s in (None, text[at + n]) for n, s in enumerate(piece))


def _find(piece: Sequence[str | None], text: str, at: int) -> int:
    """Where a piece first stands in a text, from a place on; -1 if nowhere."""
    if None not in piece:
        return text.find("".join(map(str, piece)), at)
    found = re.compile("".join("." if s is None else re.escape(s) for s in piece), re.DOTALL).search(text, at)
    return -1 if found is None else found.start()


_BREAKS = r"\n\r\x{85}\x{2028}\x{2029}"
_ANY = f"[^{_BREAKS}]"
_END = rf"(?:(?:\r\n|[{_BREAKS}])?\z)"
"""Java's ``$`` also stands before a line break that ends the text."""
_SPACE = r"\t\n\x0b\f\r "
_COUNT = re.compile(r"\{(\d+)(?:,(\d*))?\}")
_SAME = frozenset("dDwWtnrf")
_MOST_PARTS = 20_000
"""Parts of a pattern, its counts written out; with more RE2 takes seconds, or gives up, noisily on stderr."""


class _UnsupportedPattern(Exception):
    """The two dialects differ here, or might."""


def rlike(to: Arguments) -> Series:
    """``rlike(text, pattern)``: whether the pattern is found anywhere in the text."""
    pattern = to.constants[1] if len(to.constants) == 2 else None
    if pattern is None or not pattern.is_valid or not is_text(pattern.type) or not is_text(to.types[0]):
        raise to.refuse("it takes a text and a constant pattern")
    try:
        regex = translate(pattern.as_py())
        pc.match_substring_regex(pa.array([""]), regex)
    except (_UnsupportedPattern, pa.ArrowInvalid) as error:
        raise to.refuse(f"the pattern can't be tested as Java would: {error}") from None
    return apply(to.call, pa.bool_(), lambda a: pc.match_substring_regex(a, regex), to.series[:1], cost=40)


def translate(pattern: str) -> str:
    """A Java pattern for RE2.

    >>> translate(r"a.c$")
    '(?-s)a[^\\\\n\\\\r\\\\x{85}\\\\x{2028}\\\\x{2029}]c(?:(?:\\\\r\\\\n|[\\\\n\\\\r\\\\x{85}\\\\x{2028}\\\\x{2029}])?\\\\z)'
    """
    out = ["(?-s)"]
    # With counts written out: parts so far, those of the last item, and those before each open group.
    parts, last, groups = 0, 0, list[int]()
    at = 0
    while at < len(pattern):
        sign, rest = pattern[at], pattern[at + 1 : at + 4]
        taken = 1
        if sign == "\\":
            out.append(_escape(rest[:1]))
            taken = 2
        elif sign == ".":
            out.append(_ANY)
        elif sign == "$":
            if rest and rest[0] not in "|)":
                raise _UnsupportedPattern("$ inside it")
            out.append(_END)
        elif sign == "[":
            text, taken = _class(pattern, at)
            out.append(text)
        elif sign == "(" and rest.startswith("?") and not rest.startswith("?:"):
            raise _UnsupportedPattern(f"the group ({rest[:2]}")
        else:
            if sign == "{":
                count = _COUNT.match(pattern, at)
                if count is None:
                    raise _UnsupportedPattern("a brace that is no count")
                sign, taken = count.group(), len(count.group())
                parts += last * max(int(digits[:6] or 0) for digits in count.groups(""))
            if sign[-1] in "*+?}" and pattern[at + taken : at + taken + 1] == "+":
                raise _UnsupportedPattern("a possessive quantifier")
            out.append(sign)
        at += taken
        if sign == "(":
            groups.append(parts)
        if sign[-1] not in "*+?}":
            parts += 1
            last = parts - groups.pop() if sign == ")" and groups else 1
        if parts > _MOST_PARTS:
            raise _UnsupportedPattern(f"it has more than {_MOST_PARTS:,} parts")
    return "".join(out)


def _escape(sign: str, *, inside: bool = False) -> str:
    if sign == "s":
        return _SPACE if inside else f"[{_SPACE}]"
    if sign == "S" and not inside:
        return f"[^{_SPACE}]"
    if sign in _SAME or (sign.isascii() and sign.isprintable() and not sign.isalnum() and sign):
        return "\\" + sign
    raise _UnsupportedPattern(f"\\{sign}")


def _class(pattern: str, at: int) -> tuple[str, int]:
    """A character class that begins at ``at``, and how long it is."""
    out = ["["]
    place = at + 1
    if pattern[place : place + 1] == "^":
        out.append("^")
        place += 1
    if pattern[place : place + 1] == "]":
        raise _UnsupportedPattern("a bracket that begins a class")
    while place < len(pattern):
        sign = pattern[place]
        if sign == "]":
            return "".join((*out, "]")), place + 1 - at
        if sign == "[" or pattern.startswith("&&", place):
            raise _UnsupportedPattern("a class made of classes")
        if sign == "\\":
            out.append(_escape(pattern[place + 1 : place + 2], inside=True))
            place += 1
        else:
            out.append(sign)
        place += 1
    raise _UnsupportedPattern("a class without an end")
