"""RLIKE: Java's regular expressions in RE2's words, where both say the same."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

from skipstone.core.domain.keys import is_text
from skipstone.core.filter.series import Arguments, Series, apply

_BREAKS = r"\n\r\x{85}\x{2028}\x{2029}"
_ANY = f"[^{_BREAKS}]"
_END = rf"(?:(?:\r\n|[{_BREAKS}])?\z)"
"""Java's ``$`` also stands before a line break that ends the text."""
_SPACE = r"\t\n\x0b\f\r "
_COUNT = re.compile(r"\{(\d+)(?:,(\d*))?\}")
_SAME = frozenset("dDwWtnrf")
_MOST_PARTS = 20_000
"""Parts of a pattern, its counts written out; with more RE2 takes seconds, or gives up, noisily on stderr."""


class _Untranslatable(Exception):
    """The two dialects differ here, or might."""


def matched(to: Arguments) -> Series:
    """``rlike(text, pattern)``: whether the pattern is found anywhere in the text."""
    pattern = to.constants[1] if len(to.constants) == 2 else None
    if pattern is None or not pattern.is_valid or not is_text(pattern.type) or not is_text(to.types[0]):
        raise to.refuse("it takes a text and a constant pattern")
    try:
        regex = translate(pattern.as_py())
        pc.match_substring_regex(pa.array([""]), regex)
    except (_Untranslatable, pa.ArrowInvalid) as error:
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
                raise _Untranslatable("$ inside it")
            out.append(_END)
        elif sign == "[":
            text, taken = _class(pattern, at)
            out.append(text)
        elif sign == "(" and rest.startswith("?") and not rest.startswith("?:"):
            raise _Untranslatable(f"the group ({rest[:2]}")
        else:
            if sign == "{":
                count = _COUNT.match(pattern, at)
                if count is None:
                    raise _Untranslatable("a brace that is no count")
                sign, taken = count.group(), len(count.group())
                parts += last * max(int(digits[:6] or 0) for digits in count.groups(""))
            if sign[-1] in "*+?}" and pattern[at + taken : at + taken + 1] == "+":
                raise _Untranslatable("a possessive quantifier")
            out.append(sign)
        at += taken
        if sign == "(":
            groups.append(parts)
        if sign[-1] not in "*+?}":
            parts += 1
            last = parts - groups.pop() if sign == ")" and groups else 1
        if parts > _MOST_PARTS:
            raise _Untranslatable(f"it has more than {_MOST_PARTS:,} parts")
    return "".join(out)


def _escape(sign: str, *, inside: bool = False) -> str:
    if sign == "s":
        return _SPACE if inside else f"[{_SPACE}]"
    if sign == "S" and not inside:
        return f"[^{_SPACE}]"
    if sign in _SAME or (sign.isascii() and sign.isprintable() and not sign.isalnum() and sign):
        return "\\" + sign
    raise _Untranslatable(f"\\{sign}")


def _class(pattern: str, at: int) -> tuple[str, int]:
    """A character class that begins at ``at``, and how long it is."""
    out = ["["]
    place = at + 1
    if pattern[place : place + 1] == "^":
        out.append("^")
        place += 1
    if pattern[place : place + 1] == "]":
        raise _Untranslatable("a bracket that begins a class")
    while place < len(pattern):
        sign = pattern[place]
        if sign == "]":
            return "".join((*out, "]")), place + 1 - at
        if sign == "[" or pattern.startswith("&&", place):
            raise _Untranslatable("a class made of classes")
        if sign == "\\":
            out.append(_escape(pattern[place + 1 : place + 2], inside=True))
            place += 1
        else:
            out.append(sign)
        place += 1
    raise _Untranslatable("a class without an end")
