"""The trace as a tree of text, one branch per level of the cascade.

    f.parquet  user_id = 42 AND ts >= '2026-01-01'
    ├─ row groups  █░░░░░░░░░░░░░░░░░░░  kept 1 of 100 (1 %), 10,000 rows
    │     99 dropped by bounds  user_id = 42
    └─ pages       ██░░░░░░░░░░░░░░░░░░  kept 1 of 10 (10 %), 1,000 rows
           9 dropped by page index  user_id = 42
    1,000 of 1,000,000 rows may match (0.1 %), 0 proven · metadata read: 2 requests, 65.5 kB

The filled part of a bar is what was kept, so a good skip is an almost empty bar.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from skipstone.explain.lines import Span, clean, pad, paint, shorten, width_of
from skipstone.explain.units import bar, count, percent, plural, size
from skipstone.trace import Cause, Drop, Level, Note, Trace

DEFAULT_WIDTH = 100
_NARROWEST = 40
_BAR = 20
_TOP_DROPS = 3
_TOP_NOTES = 5
_CAUSES = {Cause.BLOOM: "bloom filter", Cause.PAGE: "page index"}

Line = list[Span]


def draw_trace(trace: Trace, *, width: int | None = None, color: bool = False) -> str:
    """Draw the trace in at most ``width`` columns (100 unless given), without a final line break."""
    room = max(width or DEFAULT_WIDTH, _NARROWEST)
    lines = [_header(trace, room)]
    names = max((width_of(level.name) for level in trace.levels), default=0)
    cells = _BAR if room >= 72 else _BAR // 2
    for number, level in enumerate(trace.levels):
        lines += _branch(level, names, cells, room, last=number == len(trace.levels) - 1)
    lines += _summary(trace, room)
    lines += _listed("not judged", trace.unsupported, room)
    lines += _listed("notes", [_note(note) for note in trace.notes], room)
    return "\n".join(paint(line, color=color) for line in lines)


def _header(trace: Trace, room: int) -> Line:
    # A long path gives way first, and from its front: the file's name is at its end.
    path, predicate = clean(trace.path), clean(trace.predicate)
    most = max(room - width_of(predicate) - 2, room // 3)
    if width_of(path) > most:
        path = "…" + shorten(path[::-1], most)[:-1][::-1]
    return [(path, "bold"), ("  ", ""), (shorten(predicate, room - width_of(path) - 2), "")]


def _branch(level: Level, names: int, cells: int, room: int, *, last: bool) -> Iterator[Line]:
    filled, empty = bar(level.kept, level.units, cells)
    head = f"{'└' if last else '├'}─ {pad(level.name, names)}  "
    said = _verdict(level, room - width_of(head) - cells - 2)
    yield [(head, ""), (filled, "kept"), (empty, "dropped"), ("  ", ""), (said, "")]
    stem = ("   " if last else "│  ") + "   "
    yield from _drops(level, stem, room)


def _verdict(level: Level, room: int) -> str:
    if level.units == 0:
        return "nothing to judge"
    said = f"kept {count(level.kept)} of {count(level.units)} ({percent(level.kept, level.units)})"
    whole = f", {count(level.whole)} proven" if level.whole else ""
    rows = f", {plural(level.rows, 'row')}" if level.kept else ""
    # Facts are left out whole where the line is too short, never cut in the middle of a number.
    for text in (said + whole + rows, said + rows, said):
        if width_of(text) <= room:
            return text
    return shorten(said, room)


def _drops(level: Level, stem: str, room: int) -> Iterator[Line]:
    ranked = sorted(level.drops, key=lambda drop: -drop.units)
    # One reason too many takes the line that would say so.
    shown = ranked if len(ranked) <= _TOP_DROPS + 1 else ranked[:_TOP_DROPS]
    digits = max((len(count(drop.units)) for drop in shown), default=0)
    causes = max((len(_cause(drop)) for drop in shown), default=0)
    for drop in shown:
        head = f"{count(drop.units):>{digits}} dropped by {_cause(drop):<{causes}}  "
        condition = shorten(clean(drop.condition), room - len(stem) - len(head))
        yield [(stem, ""), (head, "dim"), (condition, "")]
    rest = ranked[len(shown) :]
    if rest:
        units = sum(drop.units for drop in rest)
        yield [(stem, ""), (f"{count(units):>{digits}} dropped for {len(rest)} more reasons", "dim")]


def _cause(drop: Drop) -> str:
    return _CAUSES.get(drop.cause, drop.cause.value)


def _summary(trace: Trace, room: int) -> Iterator[Line]:
    found = _rows(trace)
    cost = f"metadata read: {plural(trace.requests, 'request')}, {size(trace.bytes)}"
    if width_of(found) + width_of(cost) + 3 <= room:
        yield [(found, "bold"), (" · ", "dim"), (cost, "dim")]
    else:
        yield [(shorten(found, room), "bold")]
        yield [(shorten(cost, room), "dim")]


def _rows(trace: Trace) -> str:
    if trace.rows == 0:
        return "the file has no rows"
    total = plural(trace.rows, "row")
    if trace.rows_kept == 0:
        return f"none of {total} can match"
    share = percent(trace.rows_kept, trace.rows)
    return f"{count(trace.rows_kept)} of {total} may match ({share}), {count(trace.rows_whole)} proven"


def _note(note: Note) -> str:
    return f"{note.unit}: {note.reason}"


def _listed(title: str, items: Sequence[str], room: int) -> Iterator[Line]:
    """``title: first`` with the others below it, the last line counting those left out."""
    shown = items if len(items) <= _TOP_NOTES + 1 else items[:_TOP_NOTES]
    indent = len(title) + 2
    texts: list[str] = []
    for item in shown:
        first, *more = textwrap.wrap(clean(item), room - indent - 2, max_lines=2, placeholder=" …") or [""]
        texts += [first, *(f"  {line}" for line in more)]
    if len(items) > len(shown):
        texts.append(f"{count(len(items) - len(shown))} more")
    for number, text in enumerate(texts):
        head = f"{title}: " if number == 0 else " " * indent
        # Wrapping counts characters; wide ones may still reach past the edge.
        yield [(head, "warn"), (shorten(text, room - indent), "")]
