"""String functions and patterns with Spark's semantics: full Unicode case mapping, LIKE, Java's RLIKE."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.domain.keys import is_binary, is_text
from skipstone.core.filter.conditions import (
    Arguments,
    Kernel,
    RowError,
    Series,
    TruthMask,
    apply,
    not_computable,
)
from skipstone.core.plain import type_name
from skipstone.predicate import tree
from skipstone.predicate.foreign import like_pieces, like_regex


def map_distinct(array: pa.Array, function: Callable[[str], object], type: pa.DataType) -> pa.Array:
    """Apply a Python function to each distinct string, where no Arrow kernel agrees with Spark."""
    coded = array.dictionary_encode()
    values = pa.array([function(text) for text in coded.dictionary.to_pylist()], type)
    return values.take(coded.indices)


def _change_case(ascii: Callable[[pa.Array], pa.Array], function: Callable[[str], str]) -> Kernel:
    def kernel(array: pa.Array) -> pa.Array:
        if pc.all(pc.string_is_ascii(array)).as_py() in (True, None):
            return ascii(array)
        return map_distinct(array, function, array.type)

    return kernel


lower_case = _change_case(pc.ascii_lower, str.lower)
upper_case = _change_case(pc.ascii_upper, str.upper)

_KERNELS: dict[str, Kernel] = {
    "lower": lower_case,
    "upper": upper_case,
    "trim": lambda a: pc.utf8_trim(a, " "),
    "ltrim": lambda a: pc.utf8_ltrim(a, " "),
    "rtrim": lambda a: pc.utf8_rtrim(a, " "),
    "reverse": pc.utf8_reverse,
}


def string_function(to: Arguments) -> Series:
    """A function from string to string."""
    if len(to.types) != 1 or not is_text(to.types[0]):
        raise to.unsupported("the argument must be a string")
    return apply(to.call, to.types[0], _KERNELS[to.call.name], to.series, cost=20)


def length(to: Arguments) -> Series:
    """Number of characters of a string, or of bytes of a binary."""
    if len(to.types) != 1 or not (is_text(to.types[0]) or is_binary(to.types[0])):
        raise to.unsupported("the argument must be a string or binary")
    count = pc.utf8_length if is_text(to.types[0]) else pc.binary_length
    return apply(to.call, pa.int32(), lambda a: count(a).cast(pa.int32()), to.series, cost=5)


def substring(to: Arguments) -> Series:
    """``substr``, ``left`` and ``right`` with constant positions."""
    if not to.types or not (is_text(to.types[0]) or is_binary(to.types[0])):
        raise to.unsupported("the first argument must be a string or binary")
    if any(scalar is None for scalar in to.constants[1:]):
        raise to.unsupported("positions must be constants")
    positions = [scalar.as_py() for scalar in to.constants[1:] if scalar is not None]
    type = to.types[0]
    if any(isinstance(one, int) and abs(one) >= 2**31 for one in positions):
        raise to.unsupported("positions must be ints")
    if None in positions:
        return apply(to.call, type, lambda a, *_: pa.nulls(len(a), type), to.series)
    window = _window(to.call.name, positions)
    if window is None:
        raise to.unsupported("positions must be integers")
    start, stop = window
    if stop is not None and start == stop:
        empty = pa.scalar("" if is_text(type) else b"", type)
        return apply(to.call, type, lambda a, *_: pc.if_else(a.is_null(), None, empty), to.series)
    if pa.types.is_fixed_size_binary(type):
        type = pa.binary()
    kernel = pc.utf8_slice_codeunits if is_text(type) else pc.binary_slice
    return apply(to.call, type, lambda a, *_: kernel(_sliceable(a), start, stop), to.series, cost=20)


def _sliceable(array: pa.Array) -> pa.Array:
    return array.cast(pa.binary()) if pa.types.is_fixed_size_binary(array.type) else array


def _window(name: str, positions: list[object]) -> tuple[int, int | None] | None:
    """The slice in Python's convention; ``(0, 0)`` if empty."""
    match name, positions:
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
            # A slice counted from the end that reaches the end has no stop.
            return start, None if start < 0 and start + count >= 0 else start + count
    return None


def concat(to: Arguments) -> Series:
    """``concat``: NULL if any argument is NULL."""
    if not to.types or any(pa.types.is_boolean(t) for t in to.types):
        raise to.unsupported("|| and concat need strings; use OR to join conditions")
    from skipstone.core.filter.casts import cast

    # Bytes stay bytes, unless they meet another type.
    binary = all(is_binary(t) or pa.types.is_null(t) for t in to.types) and any(map(is_binary, to.types))
    wide, plain = (pa.large_binary(), pa.binary()) if binary else (pa.large_string(), pa.string())
    is_part = is_binary if binary else is_text
    strings = [
        series if is_part(series.type) else cast(tree.Cast(arg, plain, to.call.zone), series)
        for arg, series in zip(to.call.args, to.series, strict=True)
    ]

    def kernel(*parts: pa.Array) -> pa.Array:
        return pc.binary_join_element_wise(
            *(p.cast(wide) for p in parts), pa.scalar(b"" if binary else "", wide)
        )

    return apply(to.call, wide, kernel, strings, cost=20)


_MOST_BYTES = 1 << 31
"""Bytes that ``lpad``, ``rpad`` and ``repeat`` may make of a batch."""


def _check_bytes(count: int) -> None:
    if count > _MOST_BYTES:
        hint = "make shorter strings, or read fewer rows at once with batch_rows"
        raise RowError(f"strings of a batch would have {count:,} characters", hint)


def pad(to: Arguments) -> Series:
    """``lpad`` and ``rpad`` to a constant length; a longer string is cut."""
    if len(to.types) not in (2, 3) or not is_text(to.types[0]):
        raise to.unsupported("arguments must be a string, a length and a string to fill with")
    length, fill = (*(None if c is None else c.as_py() for c in to.constants[1:]), " ")[:2]
    if not isinstance(length, int) or not isinstance(fill, str):
        raise to.unsupported("the length and the string to fill with must be constants")
    if length >= 2**31:
        raise to.unsupported("the length must be an int")
    size = max(length, 0)
    left = to.call.name == "lpad"

    def padded(text: str) -> str:
        missing = size - len(text)
        if missing <= 0 or not fill:
            return text[:size]
        more = (fill * (missing // len(fill) + 1))[:missing]
        return more + text if left else text + more

    wide = pa.large_string()

    def kernel(array: pa.Array, *_: pa.Array) -> pa.Array:
        _check_bytes(len(array) * size)
        return map_distinct(array, padded, wide)

    return apply(to.call, wide, kernel, to.series, risky=True, cost=40)


def repeat(to: Arguments) -> Series:
    """``repeat(string, times)``."""
    if len(to.types) != 2 or not is_text(to.types[0]) or not pa.types.is_integer(to.types[1]):
        raise to.unsupported("arguments must be a string and an integer")
    if to.types[1].bit_width > 32:
        raise to.unsupported("the number of times must be an int")

    def kernel(array: pa.Array, times: pa.Array) -> pa.Array:
        counts = pc.max_element_wise(times, 0, skip_nulls=False).cast(pa.int64())
        _check_bytes(pc.sum(pc.multiply(pc.binary_length(array).cast(pa.int64()), counts)).as_py() or 0)
        return pc.binary_repeat(array.cast(wide), counts)

    wide = pa.large_string()
    return apply(to.call, wide, kernel, to.series, risky=True, cost=20)


def concat_with(to: Arguments) -> Series:
    """``concat_ws(separator, ...)``, which leaves out NULLs."""
    if not to.types or not all(is_text(t) or pa.types.is_null(t) for t in to.types):
        raise to.unsupported("arguments must be strings")
    wide = pa.large_string()

    def kernel(separator: pa.Array, *parts: pa.Array) -> pa.Array:
        separator, joined = separator.cast(wide), pa.nulls(len(separator), wide)
        for part in (p.cast(wide) for p in parts):
            both = pc.binary_join_element_wise(joined, part, separator)
            joined = pc.coalesce(both, joined, part)
        return pc.if_else(separator.is_null(), None, joined.fill_null(""))

    return apply(to.call, wide, kernel, to.series, cost=20)


def split_part(to: Arguments) -> Series:
    """``split_part(string, delimiter, n)`` with constants; counted from the end for a negative number."""
    words = [None if scalar is None else scalar.as_py() for scalar in to.constants[1:]]
    if len(to.types) != 3 or not is_text(to.types[0]):
        raise to.unsupported("arguments must be a string, a delimiter and a number")
    delimiter, number = words
    if not isinstance(delimiter, str) or not isinstance(number, int) or not 0 < abs(number) < 2**31:
        raise to.unsupported(
            "the delimiter must be a constant string, and the number a constant other than 0"
        )

    def part(text: str) -> str:
        parts = text.split(delimiter) if delimiter else [text]
        at = number - 1 if number > 0 else len(parts) + number
        return parts[at] if 0 <= at < len(parts) else ""

    type = to.types[0]
    return apply(to.call, type, lambda a, *_: map_distinct(a, part, type), to.series, cost=40)


def split(to: Arguments) -> Series:
    """``split(string, pattern)`` with a constant pattern."""
    regex = _constant_pattern(to, 2)
    if pc.match_substring_regex(pa.array([""]), f"^(?:{regex})$")[0].as_py():
        raise to.unsupported("the pattern matches an empty string")

    def kernel(array: pa.Array) -> pa.Array:
        return pc.split_pattern_regex(array, regex)

    return apply(to.call, pa.list_(to.types[0]), kernel, to.series[:1], cost=40)


def regexp_replace(to: Arguments) -> Series:
    """``regexp_replace(string, pattern, replacement)`` with constants and ``$1`` for groups."""
    regex = _constant_pattern(to, 3)
    new = None if to.constants[2] is None else to.constants[2].as_py()
    if not isinstance(new, str) or re.search(r"\\|\$(?![0-9](?![0-9]))", new):
        raise to.unsupported("the replacement must be a constant with groups such as $1, and no backslash")
    new = re.sub(r"\$([0-9])", r"\\\1", new)

    def kernel(array: pa.Array) -> pa.Array:
        return pc.replace_substring_regex(array, regex, new)

    kernel(pa.array([""]))  # a group that doesn't exist is an error before rows are read
    return apply(to.call, to.types[0], kernel, to.series[:1], cost=40)


def byte_length(to: Arguments) -> Series:
    """``octet_length`` and ``bit_length``, of UTF-8 for strings."""
    if len(to.types) != 1 or not (is_text(to.types[0]) or is_binary(to.types[0])):
        raise to.unsupported("the argument must be a string or binary")
    bits = 8 if to.call.name == "bit_length" else 1
    kernel = lambda a: pc.multiply(pc.binary_length(_bytes(a)), bits).cast(pa.int32())  # noqa: E731
    return apply(to.call, pa.int32(), kernel, to.series, cost=5)


_HASHES = {"md5": hashlib.md5, "sha1": hashlib.sha1, "sha2": hashlib.sha256}


def digest(to: Arguments) -> Series:
    """``md5`` and ``sha1``, and ``sha2`` with a constant number of bits, as hexadecimal text."""
    bits = to.constants[1] if to.call.name == "sha2" and len(to.types) == 2 else None
    if len(to.types) != (2 if to.call.name == "sha2" else 1) or not (
        is_text(to.types[0]) or is_binary(to.types[0])
    ):
        raise to.unsupported("the argument must be a string or binary")
    make = _HASHES[to.call.name]
    if to.call.name == "sha2":
        widths = {0: hashlib.sha256, 224: hashlib.sha224, 256: hashlib.sha256, 384: hashlib.sha384}
        widths[512] = hashlib.sha512
        if bits is None or bits.as_py() not in widths:
            raise to.unsupported("the bits must be 224, 256, 384 or 512")
        make = widths[bits.as_py()]

    def kernel(array: pa.Array, *_: pa.Array) -> pa.Array:
        return pa.array(
            [None if b is None else make(b).hexdigest() for b in _bytes(array).to_pylist()], pa.string()
        )

    return apply(to.call, pa.string(), kernel, to.series, cost=80)


def replace(to: Arguments) -> Series:
    """``replace(string, search, with)`` with constant strings."""
    if len(to.types) not in (2, 3) or not is_text(to.types[0]):
        raise to.unsupported("arguments must be a string and the strings to search and replace")
    words = [None if scalar is None else scalar.as_py() for scalar in to.constants[1:]]
    if not all(isinstance(word, str) for word in words):
        raise to.unsupported("the strings to search and replace must be constants")
    search, new = (*words, "")[:2]
    if not search:
        return apply(to.call, to.types[0], lambda a, *_: a, to.series)
    return apply(
        to.call, to.types[0], lambda a, *_: pc.replace_substring(a, search, new or ""), to.series, cost=20
    )


Test = Callable[[pa.Array], TruthMask]
_MAX_REGEX = 2_000
"""LIKE patterns of up to this many characters are converted to a regular expression."""


def match_test(match: tree.Match, type: pa.DataType) -> Test:
    """Literal prefix, suffix or substring match."""
    if not (is_text(type) or is_binary(type)):
        raise not_computable(match, f"{type_name(type)} is not a string type")
    kernel = {"prefix": pc.starts_with, "suffix": pc.ends_with, "contains": pc.match_substring}[match.kind]
    text = match.text.encode("utf-8", "surrogatepass") if isinstance(match.text, str) else match.text
    if not text:
        return lambda array: TruthMask.of(pc.if_else(array.is_valid(), True, pa.scalar(None, pa.bool_())))
    return lambda array: TruthMask.of(kernel(_bytes(array), text))


def _bytes(array: pa.Array) -> pa.Array:
    """Convert to binary, so that partial characters don't raise and binary columns behave the same."""
    if pa.types.is_string(array.type):
        return array.view(pa.binary())
    if pa.types.is_large_string(array.type):
        return array.view(pa.large_binary())
    return array.cast(pa.binary()) if pa.types.is_fixed_size_binary(array.type) else array


def like_test(like: tree.Like, type: pa.DataType) -> Test:
    """LIKE with the cheapest sufficient kernel."""
    if not is_text(type):
        raise not_computable(like, f"{type_name(type)} is not a string type")
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
    if len(plain) > _MAX_REGEX:
        return _long_like(like)
    regex = like_regex(like)
    return lambda array: TruthMask.of(pc.match_substring_regex(array, regex))


def _long_like(like: tree.Like) -> Test:
    """A long pattern, which RE2 rejects or is slow with: search the pieces between % one after the other.

    Few strings are as long as such a pattern; shorter ones can't match.
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
        results = pc.greater_equal(pc.utf8_length(array), shortest).to_pylist()
        for at, long in enumerate(results):
            if long:
                results[at] = holds(array[at].as_py())
        return TruthMask.of(pa.array(results, pa.bool_()))

    return test


def _is_at(piece: Sequence[str | None], text: str, at: int) -> bool:
    return len(text) - at >= len(piece) and all(s in (None, text[at + n]) for n, s in enumerate(piece))


def _find(piece: Sequence[str | None], text: str, at: int) -> int:
    """Index of the first occurrence of a piece from ``at`` on, or -1."""
    if None not in piece:
        return text.find("".join(map(str, piece)), at)
    hit = re.compile("".join("." if s is None else re.escape(s) for s in piece), re.DOTALL).search(text, at)
    return -1 if hit is None else hit.start()


_BREAKS = r"\n\r\x{85}\x{2028}\x{2029}"
_ANY = f"[^{_BREAKS}]"
_END = rf"(?:(?:\r\n|[{_BREAKS}])?\z)"
"""Java's ``$`` also matches before a final line break."""
_SPACE = r"\t\n\x0b\f\r "
_COUNT = re.compile(r"\{(\d+)(?:,(\d*))?\}")
_SAME = frozenset("dDwWtnrf")
_MAX_PARTS = 20_000
"""Parts of a pattern with expanded counts; with more RE2 takes seconds, or fails and writes to stderr."""


class _UnsupportedPattern(Exception):
    """Raised where Java's dialect differs from RE2's, or may differ."""


def rlike(to: Arguments) -> Series:
    """``rlike(string, pattern)``: whether the pattern matches anywhere in the string."""
    regex = _constant_pattern(to, 2)
    return apply(to.call, pa.bool_(), lambda a: pc.match_substring_regex(a, regex), to.series[:1], cost=40)


def _constant_pattern(to: Arguments, count: int) -> str:
    """The pattern of a function of a string and a constant pattern, for RE2."""
    pattern = to.constants[1] if len(to.constants) == count else None
    if pattern is None or not pattern.is_valid or not is_text(pattern.type) or not is_text(to.types[0]):
        raise to.unsupported("arguments must be a string and a constant pattern")
    try:
        regex = translate(pattern.as_py())
        pc.match_substring_regex(pa.array([""]), regex)
    except (_UnsupportedPattern, pa.ArrowInvalid) as error:
        raise to.unsupported(
            f"the pattern uses {error}, where Java's regular expressions differ from RE2's"
        ) from None
    return regex


def translate(pattern: str) -> str:
    """Translate a Java pattern to RE2.

    >>> translate(r"a.c$")
    '(?-s)a[^\\\\n\\\\r\\\\x{85}\\\\x{2028}\\\\x{2029}]c(?:(?:\\\\r\\\\n|[\\\\n\\\\r\\\\x{85}\\\\x{2028}\\\\x{2029}])?\\\\z)'
    """
    out = ["(?-s)"]
    # Parts with expanded counts: so far, of the last item, and before each open group.
    parts, last, groups = 0, 0, list[int]()
    at = 0
    while at < len(pattern):
        char, rest = pattern[at], pattern[at + 1 : at + 4]
        consumed = 1
        if char == "\\":
            out.append(_escape(rest[:1]))
            consumed = 2
        elif char == ".":
            out.append(_ANY)
        elif char == "$":
            if rest and rest[0] not in "|)":
                raise _UnsupportedPattern("$ before the end")
            out.append(_END)
        elif char == "[":
            text, consumed = _class(pattern, at)
            out.append(text)
        elif char == "(" and rest.startswith("?") and not rest.startswith("?:"):
            raise _UnsupportedPattern(f"the group ({rest[:2]}")
        else:
            if char == "{":
                count = _COUNT.match(pattern, at)
                if count is None:
                    raise _UnsupportedPattern("a brace without a count")
                char, consumed = count.group(), len(count.group())
                parts += last * max(int(digits[:6] or 0) for digits in count.groups(""))
            if char[-1] in "*+?}" and pattern[at + consumed : at + consumed + 1] == "+":
                raise _UnsupportedPattern("a possessive quantifier")
            out.append(char)
        at += consumed
        if char == "(":
            groups.append(parts)
        if char[-1] not in "*+?}":
            parts += 1
            last = parts - groups.pop() if char == ")" and groups else 1
        if parts > _MAX_PARTS:
            raise _UnsupportedPattern(f"more than {_MAX_PARTS:,} parts")
    return "".join(out)


def _escape(char: str, *, inside: bool = False) -> str:
    if char == "s":
        return _SPACE if inside else f"[{_SPACE}]"
    if char == "S" and not inside:
        return f"[^{_SPACE}]"
    if char in _SAME or (char.isascii() and char.isprintable() and not char.isalnum() and char):
        return "\\" + char
    raise _UnsupportedPattern(f"\\{char}")


def _class(pattern: str, at: int) -> tuple[str, int]:
    """Translate the character class that begins at ``at``; returns it and its length."""
    out = ["["]
    position = at + 1
    if pattern[position : position + 1] == "^":
        out.append("^")
        position += 1
    if pattern[position : position + 1] == "]":
        raise _UnsupportedPattern("a bracket at the start of a class")
    while position < len(pattern):
        char = pattern[position]
        if char == "]":
            return "".join((*out, "]")), position + 1 - at
        if char == "[" or pattern.startswith("&&", position):
            raise _UnsupportedPattern("nested classes")
        if char == "\\":
            out.append(_escape(pattern[position + 1 : position + 2], inside=True))
            position += 1
        else:
            out.append(char)
        position += 1
    raise _UnsupportedPattern("an unterminated class")
