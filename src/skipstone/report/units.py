"""Numbers, sizes and shares for people."""

from __future__ import annotations

from collections.abc import Callable, Sequence

_SIZES = ("B", "kB", "MB", "GB", "TB", "PB", "EB")
_TIMES = ((0.0009995, 1e6, 0, "µs"), (0.09995, 1e3, 1, "ms"), (0.9995, 1e3, 0, "ms"), (59.995, 1, 2, "s"))
_EIGHTHS = "▁▂▃▄▅▆▇█"


def count(number: int) -> str:
    """A number with thousands separators.

    >>> count(1234567)
    '1,234,567'
    """
    return f"{number:,}"


def plural(number: int, noun: str, many: str = "") -> str:
    """A count with its noun; ``many`` is an irregular plural.

    >>> plural(1, "request"), plural(2000, "row"), plural(2, "batch", "batches")
    ('1 request', '2,000 rows', '2 batches')
    """
    return f"{number:,} {noun if number == 1 else many or noun + 's'}"


def size(number: int) -> str:
    """Bytes in decimal units, three figures or so.

    >>> size(999), size(65_536), size(1_500_000_000)
    ('999 B', '65.5 kB', '1.5 GB')
    """
    value, unit = float(number), 0
    # Rounding must not print 1000.0 kB.
    while value >= (1000 if unit == 0 else 999.95) and unit + 1 < len(_SIZES):
        value /= 1000
        unit += 1
    return f"{number} B" if unit == 0 else f"{value:.1f} {_SIZES[unit]}"


def duration(seconds: float) -> str:
    """A time in the unit that reads best, three figures or so.

    >>> duration(0.00042), duration(0.0123), duration(1.5), duration(125)
    ('420 µs', '12.3 ms', '1.50 s', '2 min 5 s')
    """
    # Each limit is where rounding would print the next unit's 1.
    for limit, factor, digits, unit in _TIMES:
        if seconds < limit:
            return f"{seconds * factor:.{digits}f} {unit}"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes:,} min {rest} s"


def percent(part: float, whole: float) -> str:
    """A share in percent; only zero is 0 % and only all is 100 %.

    >>> percent(1, 100), percent(1, 1_000_000), percent(999_999, 1_000_000), percent(0, 0)
    ('1 %', '<0.1 %', '>99.9 %', '–')
    """
    if whole <= 0:
        return "–"
    share = 100 * part / whole
    if 0 < share < 0.1:
        return "<0.1 %"
    if 99.9 < share < 100:
        return ">99.9 %"
    text = f"{share:.1f}" if share < 10 or share > 99 else f"{share:.0f}"
    return f"{text.removesuffix('.0')} %"


def phrase(*parts: object, by: str = "; ") -> str:
    """Join the parts that there are.

    >>> phrase("2 files", "", None, "3 rows")
    '2 files; 3 rows'
    """
    return by.join(str(part) for part in parts if part)


def some(number: int, noun: str, more: str = "", before: str = "") -> str:
    """A count with its noun between two texts; nothing if it is zero.

    >>> some(3, "file", " dropped", ", "), some(0, "file", " dropped")
    (', 3 files dropped', '')
    """
    return f"{before}{plural(number, noun)}{more}" if number else ""


def share(part: int, whole: int, form: Callable[[int], str] = count) -> str:
    """A part of a total, and its share.

    >>> share(1, 12), share(80_000, 9_600_000, size), share(5, 0)
    ('1 of 12 (8.3 %)', '80.0 kB of 9.6 MB (0.8 %)', '5')
    """
    return f"{form(part)} of {form(whole)} ({percent(part, whole)})" if whole else form(part)


def cost(requests: int, nbytes: int) -> str:
    """Requests and the bytes they returned.

    >>> cost(2, 13_200)
    '2 requests, 13.2 kB'
    """
    return f"{plural(requests, 'request')}, {size(nbytes)}"


def times(factor: float) -> str:
    """How many times more or less.

    >>> times(2.31), times(21.4), times(1e9)
    ('2.3 ×', '21 ×', '>10,000 ×')
    """
    return f"{factor:.1f} ×" if factor < 10 else f"{round(factor):,} ×" if factor < 10_000 else ">10,000 ×"


def ago(seconds: float) -> str:
    """How long ago something was.

    >>> ago(0.4), ago(59), ago(150), ago(7_200), ago(200_000)
    ('just now', '59 s ago', '2 min ago', '2 h ago', '2 days ago')
    """
    # Clocks of two machines differ, so a time may be in the future.
    if seconds < 1:
        return "just now"
    if seconds < 60:
        return f"{min(round(seconds), 59)} s ago"
    if seconds < 3600:
        return f"{int(seconds // 60)} min ago"
    hours = int(seconds // 3600)
    return f"{hours} h ago" if hours < 48 else f"{plural(hours // 24, 'day')} ago"


def shares(parts: Sequence[float], cells: int) -> list[int]:
    """Cells for each part of a bar: every part above zero shows, and together they fill it.

    >>> shares([1, 5000, 4999], 20), shares([0, 3, 0], 8), shares([0, 0], 8)
    ([1, 10, 9], [0, 8, 0], [0, 0])
    """
    whole = sum(parts)
    if whole <= 0:
        return [0] * len(parts)
    least = [int(part > 0) for part in parts]
    spare = cells - sum(least)
    exact = [max(cells * part / whole - few, 0) for part, few in zip(parts, least, strict=True)]
    scale = spare / sum(exact) if sum(exact) else 0
    cells_of = [int(more * scale) for more in exact]
    # The last cells go to the parts that lost most to rounding.
    order = sorted(range(len(parts)), key=lambda place: cells_of[place] - exact[place] * scale)
    for place in order[: spare - sum(cells_of)]:
        cells_of[place] += 1
    return [few + more for few, more in zip(least, cells_of, strict=True)]


def spark(shares: list[float]) -> str:
    """A small column per share between 0 and 1.

    >>> spark([0.0, 0.5, 1.0])
    '▁▅█'
    """
    return "".join(_EIGHTHS[min(int(max(share, 0.0) * 8), 7)] for share in shares)


def span_text(start: int, stop: int) -> str:
    """The first and the last row of a range.

    >>> span_text(0, 60_000), span_text(7, 8)
    ('rows 0–59,999', 'row 7')
    """
    return f"rows {count(start)}–{count(stop - 1)}" if stop - start != 1 else f"row {count(start)}"
