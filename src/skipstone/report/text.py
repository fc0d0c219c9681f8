"""The trace of one file as a tree of text, one branch per level of the cascade.

    f.parquet  user_id = 42 AND ts >= '2026-01-01'
    ├─ row groups  █░░░░░░░░░░░░░░░░░░░  kept 1 of 100 (1 %), 10,000 rows
    │     99 dropped by bounds  user_id = 42
    └─ pages       ██░░░░░░░░░░░░░░░░░░  kept 1 of 10 (10 %), 1,000 rows
           9 dropped by page index  user_id = 42
    1,000 of 1,000,000 rows may match (0.1 %), 0 proven · metadata read: 2 requests, 65.5 kB

The filled part of a bar is what was kept, so a good skip is an almost empty bar.
"""

from __future__ import annotations

from collections.abc import Iterator

from skipstone.report.lines import paint, shorten, width_of
from skipstone.report.trace import Trace
from skipstone.report.tree import Layout, Line, branch, header, listed
from skipstone.report.units import plural
from skipstone.report.words import cost, note_text, rows_found


def draw_trace(trace: Trace, *, width: int | None = None, color: bool = False) -> str:
    """Draw the trace in at most ``width`` columns (100 unless given), without a final line break."""
    layout = Layout.of([level.name for level in trace.levels], width)
    lines = [header(trace.path, trace.predicate, layout.room)]
    for number, level in enumerate(trace.levels, 1):
        lines += branch(level, layout, last=number == len(trace.levels), costs=False)
    lines += _summary(trace, layout.room)
    lines += listed("not judged", trace.unsupported, layout.room)
    lines += listed("notes", [note_text(note) for note in trace.notes], layout.room)
    return "\n".join(paint(line, color=color) for line in lines)


def _summary(trace: Trace, room: int) -> Iterator[Line]:
    found = _rows(trace)
    spent = f"metadata read: {cost(trace.requests, trace.bytes)}"
    if width_of(found) + width_of(spent) + 3 <= room:
        yield [(found, "bold"), (" · ", "dim"), (spent, "dim")]
    else:
        yield [(shorten(found, room), "bold")]
        yield [(shorten(spent, room), "dim")]


def _rows(trace: Trace) -> str:
    if trace.rows == 0:
        return "the file has no rows"
    return rows_found(trace.rows_kept, trace.rows_whole, plural(trace.rows, "row"), trace.rows)
