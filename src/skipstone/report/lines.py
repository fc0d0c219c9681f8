"""Lines that fit a terminal: printable characters, widths and cuts."""

from __future__ import annotations

import re

from rich.cells import cell_len as width_of
from rich.cells import get_character_cell_size

__all__ = ["clean", "pad", "shorten", "visible", "width_of", "wrap"]

_UNESCAPED = re.compile("[\x7f-\x9f\u2028\u2029]")


def visible(text: str) -> str:
    """Escape control characters that JSON allows unescaped: a terminal would obey them.

    >>> visible('"\\x9b31m"')
    '"\\\\u009b31m"'
    """
    return _UNESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def clean(text: str) -> str:
    """Return ``text`` on one line with control characters made visible: names and values come from files.

    >>> clean("a\\tb\\x1b[31m")
    'a\\\\tb\\\\x1b[31m'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shorten(text: str, cells: int) -> str:
    """Cut ``text`` to at most ``cells`` cells; … marks a cut.

    >>> shorten("user_id = 42", 10)
    'user_id =…'
    """
    if width_of(text) <= cells:
        return text
    return text[: _fitting(text, cells - 1)] + "…" if cells > 0 else ""


def wrap(text: str, cells: int, most: int) -> list[str]:
    """Break ``text`` at spaces into at most ``most`` lines of ``cells`` cells, the last one shortened.

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


def pad(text: str, cells: int, *, right: bool = False) -> str:
    """Pad ``text`` with spaces to ``cells`` cells, on the left if it is aligned right."""
    blank = " " * (cells - width_of(text))
    return blank + text if right else text + blank


def _fitting(text: str, cells: int) -> int:
    for position, char in enumerate(text):
        cells -= get_character_cell_size(char)
        if cells < 0:
            return position
    return len(text)
