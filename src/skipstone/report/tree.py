"""Parts of a tree of text: its header, a branch per level, labelled facts, lists below it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from skipstone.report.lines import Span, clean, pad, shorten, width_of, wrap
from skipstone.report.trace import Drop, Level
from skipstone.report.units import bar, count, shares
from skipstone.report.words import cause_name, cost, kept_share, ranked, rows_left

_DEFAULT_WIDTH = 100
_NARROWEST = 40
_BARS = (10, 20)
_LONGEST_NAME = 16
_TOP_DROPS = 3
_TOP_NOTES = 5
_FACT_LINES = 3

Line = list[Span]


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a tree: cells in all, for the names of branches, and for their bars."""

    room: int
    names: int
    cells: int

    @classmethod
    def of(cls, names: Sequence[str], width: int | None) -> Layout:
        """The layout for branches of these names on ``width`` columns, 100 unless given."""
        room = max(width or _DEFAULT_WIDTH, _NARROWEST)
        widest = max((width_of(clean(name)) for name in names), default=0)
        shortest, longest = _BARS
        return cls(room, min(widest, _LONGEST_NAME), max(shortest, min(room // 5, longest)))

    def head(self, name: str, *, last: bool) -> str:
        """The start of a branch, up to its bar."""
        return f"{'└' if last else '├'}─ {pad(shorten(clean(name), self.names), self.names)}  "


def stem(*, last: bool) -> str:
    """What stands before the lines that belong to a branch."""
    return ("   " if last else "│  ") + "   "


def header(name: str, predicate: str, room: int) -> Line:
    """The tree's root: what was looked at, and for what."""
    # A long path gives way first, and from its front: the file's name is at its end.
    name, predicate = clean(name), clean(predicate)
    most = max(room - width_of(predicate) - 2, room // 3)
    if width_of(name) > most:
        name = "…" + shorten(name[::-1], most)[:-1][::-1]
    return [(name, "bold"), ("  ", ""), (shorten(predicate, room - width_of(name) - 2), "")]


def branch(level: Level, layout: Layout, *, last: bool, costs: bool) -> Iterator[Line]:
    """A level: its bar, what it kept, what dropped the rest, and, if asked for, what that cost."""
    below = stem(last=last)
    yield barred(level.name, level.kept, level.units, _verdicts(level), layout, last=last)
    yield from _drops(level.drops, below, layout.room)
    if costs and (level.requests or level.bytes):
        said = shorten(f"metadata read: {cost(level.requests, level.bytes)}", layout.room - len(below))
        yield [(below, ""), (said, "dim")]


def barred(name: str, part: int, whole: int, texts: Sequence[str], layout: Layout, *, last: bool) -> Line:
    """A branch with a bar and the first of ``texts`` that fits beside it."""
    filled, empty = bar(part, whole, layout.cells)
    return _beside(name, [(filled, "kept"), (empty, "dropped")], texts, layout, last=last)


def parted(
    name: str, parts: Sequence[tuple[int, Span]], texts: Sequence[str], layout: Layout, *, last: bool
) -> Line:
    """A branch with a bar of several parts, each with its glyph; the last one fills an empty bar."""
    cells = shares([units for units, _ in parts], layout.cells)
    cells[-1] += layout.cells - sum(cells)
    drawn = [(glyph * wide, style) for wide, (_, (glyph, style)) in zip(cells, parts, strict=True)]
    return _beside(name, drawn, texts, layout, last=last)


def _beside(name: str, drawn: Sequence[Span], texts: Sequence[str], layout: Layout, *, last: bool) -> Line:
    head = layout.head(name, last=last)
    room = layout.room - width_of(head) - layout.cells - 2
    return [(head, ""), *drawn, ("  ", ""), (_first_fitting(texts, room), "")]


def _first_fitting(texts: Sequence[str], room: int) -> str:
    """The first text that fits, or the last one cut."""
    # Facts are left out whole where the line is too short, never cut in the middle of a number.
    return next((text for text in texts if width_of(text) <= room), shorten(texts[-1], room))


def _verdicts(level: Level) -> tuple[str, ...]:
    said = kept_share(level)
    whole = f", {count(level.whole)} proven" if level.whole else ""
    rows = f", {left}" if (left := rows_left(level)) else ""
    return said + whole + rows, said + rows, said


def _drops(drops: Sequence[Drop], below: str, room: int) -> Iterator[Line]:
    largest = ranked(drops)
    # One reason too many takes the line that would say so.
    shown = largest if len(largest) <= _TOP_DROPS + 1 else largest[:_TOP_DROPS]
    digits = max((len(count(drop.units)) for drop in shown), default=0)
    causes = max((len(cause_name(drop.cause)) for drop in shown), default=0)
    room -= len(below)
    for drop in shown:
        head = shorten(f"{count(drop.units):>{digits}} dropped by {cause_name(drop.cause):<{causes}}  ", room)
        condition = shorten(clean(drop.condition), room - len(head))
        yield [(below, ""), (head, "dim"), (condition, "")]
    rest = largest[len(shown) :]
    if rest:
        units = sum(drop.units for drop in rest)
        said = f"{count(units):>{digits}} dropped for {count(len(rest))} more reasons"
        yield [(below, ""), (shorten(said, room), "dim")]


def facts(pairs: Sequence[tuple[str, str]], below: str, room: int) -> Iterator[Line]:
    """Labels and values below a branch, the values aligned and wrapped."""
    labels = max(len(label) for label, _ in pairs)
    for label, value in pairs:
        head = f"{label:<{labels}}  "
        for text in wrap(clean(value), room - len(below) - len(head), _FACT_LINES):
            yield [(below, ""), (head, "dim"), (text, "")]
            head = " " * len(head)


def listed(title: str, items: Sequence[str], room: int) -> Iterator[Line]:
    """``title: first`` with the others below it, the last line counting those left out."""
    shown = items if len(items) <= _TOP_NOTES + 1 else items[:_TOP_NOTES]
    indent = len(title) + 2
    texts: list[str] = []
    for item in shown:
        first, *more = wrap(clean(item), room - indent - 2, 2)
        texts += [first, *(f"  {line}" for line in more)]
    if len(items) > len(shown):
        texts.append(f"{count(len(items) - len(shown))} more")
    for number, text in enumerate(texts):
        yield [(f"{title}: " if number == 0 else " " * indent, "warn"), (text, "")]
