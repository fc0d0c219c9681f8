"""Lines of text that fit a terminal: what is printable, how wide it is, where it is cut, its colours."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

Span = tuple[str, str]
"""A piece of a line and the name of its style; the empty name is plain."""

_STYLES = {"bold": "1", "dim": "2", "kept": "32", "known": "36", "dropped": "90", "warn": "33", "bad": "31"}
_UNESCAPED = re.compile("[\x7f-\x9f\u2028\u2029]")


def visible(text: str) -> str:
    """JSON text in which control characters that JSON needs no escape for have one: a terminal obeys them.

    >>> visible('"\\x9b31m"')
    '"\\\\u009b31m"'
    """
    return _UNESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def clean(text: str) -> str:
    """``text`` on one line, with control characters made visible: names and values come from files.

    >>> clean("a\\tb\\x1b[31m")
    'a\\\\tb\\\\x1b[31m'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def width_of(text: str) -> int:
    """Terminal cells of ``text``: wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(_cells(c) for c in text)


def _cells(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def shorten(text: str, cells: int) -> str:
    """``text`` cut to at most ``cells`` cells, ending in … where something was left out.

    >>> shorten("user_id = 42", 10)
    'user_id =…'
    """
    if width_of(text) <= cells:
        return text
    return text[: _fitting(text, cells - 1)] + "…" if cells > 0 else ""


def wrap(text: str, cells: int, most: int) -> list[str]:
    """``text`` broken at spaces into at most ``most`` lines of ``cells`` cells, the last one shortened.

    >>> wrap("user_id = 42 AND ts >= 7", 12, 2)
    ['user_id = 42', 'AND ts >= 7']
    """
    lines: list[str] = []
    while len(lines) < most - 1 and width_of(text) > cells:
        cut = max(_fitting(text, cells), 1)
        space = text.rfind(" ", 0, cut + 1)
        cut = space if space > 0 else cut
        lines.append(text[:cut].rstrip())
        text = text[cut:].lstrip()
    return [*lines, shorten(text, cells)]


def _fitting(text: str, cells: int) -> int:
    for position, char in enumerate(text):
        cells -= _cells(char)
        if cells < 0:
            return position
    return len(text)


def pad(text: str, cells: int) -> str:
    """``text`` filled with spaces to ``cells`` cells."""
    return text + " " * max(cells - width_of(text), 0)


def paint(spans: Iterable[Span], *, color: bool) -> str:
    """One line out of its spans, with ANSI colours or without."""
    spans = list(spans)
    if not color:
        return "".join(text for text, _ in spans).rstrip()
    return "".join(
        f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if style and text else text for text, style in spans
    )
