"""The status of an index as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from skipstone.report.lines import clean, pad, paint, shorten, width_of, wrap
from skipstone.report.status import (
    SEGMENT_HEAD,
    Asked,
    ColumnStatus,
    IndexStatus,
    SegmentStatus,
    about,
    column_table,
    covers,
    kept_for_readers,
    levels,
    misses,
    segment_cells,
    takes,
)
from skipstone.report.tree import Layout, Line, barred, facts, header, listed, stem
from skipstone.report.units import bar, percent, plural, size

_ROOM = 100
_NARROWEST = 60
_NAMES, _TYPES, _ORIGINS = 30, 24, 32
_SHOWN_COLUMNS, _SHOWN_SEGMENTS = 40, 8
_SEGMENTS_WIDE = 48
_ASKED_LINES = 4


def draw_status(status: IndexStatus, *, width: int | None = None, color: bool = False) -> str:
    """Draw the status in at most ``width`` columns (100 unless given), without a final line break."""
    room = max(width or _ROOM, _NARROWEST)
    lines: list[Line] = [header(status.place, about(status), room)]
    if status.version:
        lines += _tree(status, Layout.of(["files", "size", "asked"], room))
    if status.columns:
        lines += [[], *_columns(status.columns, room)]
    if status.segments:
        lines += [[], *_segments(status.segments, room)]
    after = [*listed("ignored", status.problems, room)]
    if status.next_step:
        after += listed("next", [status.next_step], room)
    lines += [*([[]] if after and status.version else []), *after]
    return "\n".join(paint(line, color=color) for line in lines)


def _tree(status: IndexStatus, layout: Layout) -> Iterator[Line]:
    yield barred("files", status.covered, status.files, [covers(status)], layout, last=False)
    below = stem(last=False)
    missed = misses(status)
    if missed:
        yield from facts(missed, below, layout.room)
    total = status.sizes.total
    yield barred("size", total, max(status.data_bytes, total), [takes(status)], layout, last=False)
    held = levels(status)
    widest = max((len(word) for word, _ in held), default=0)
    for word, nbytes in held:
        filled, empty = bar(nbytes, total, layout.cells)
        said = f"  {size(nbytes)} ({percent(nbytes, total)})"
        yield [(f"{below}{word:<{widest}}  ", ""), (filled, "kept"), (empty, "dropped"), (said, "")]
    old = kept_for_readers(status)
    if old:
        yield [(below, ""), (shorten(old, layout.room - len(below)), "dim")]
    yield from _asked(status.asked, layout)


def _asked(asked: Asked, layout: Layout) -> Iterator[Line]:
    head = layout.head("asked", last=True)
    for text in wrap(str(asked), layout.room - len(head), _ASKED_LINES):
        yield [(head, ""), (text, "")]
        head = " " * len(head)


def _columns(columns: Sequence[ColumnStatus], room: int) -> Iterator[Line]:
    shown = columns if len(columns) <= _SHOWN_COLUMNS + 1 else columns[:_SHOWN_COLUMNS]
    head, rows = column_table(shown)
    yield from _table(head, rows, room, (_NAMES, _TYPES, _ORIGINS))
    if len(columns) > len(shown):
        yield [(f"… {plural(len(columns) - len(shown), 'more column')}", "dim")]


def _segments(segments: Sequence[SegmentStatus], room: int) -> Iterator[Line]:
    shown = segments if len(segments) <= _SHOWN_SEGMENTS + 1 else segments[:_SHOWN_SEGMENTS]
    yield from _table(SEGMENT_HEAD, [segment_cells(segment) for segment in shown], room, (_SEGMENTS_WIDE,))
    if len(segments) > len(shown):
        yield [(f"… {plural(len(segments) - len(shown), 'more segment')}", "dim")]


def _table(
    head: Sequence[str], rows: Sequence[Sequence[str]], room: int, most: tuple[int, ...]
) -> Iterator[Line]:
    """Texts of at most so many cells, then numbers, of which only the last stays where there is no room."""
    texts = len(most)
    cells = [
        [*(shorten(clean(text), cells) for text, cells in zip(row, most, strict=False)), *row[texts:]]
        for row in (head, *rows)
    ]
    while True:
        widths = [max(map(width_of, column)) for column in zip(*cells, strict=True)]
        if sum(widths) + 2 * (len(widths) - 1) <= room or len(widths) == texts + 1:
            break
        cells = [[*row[:texts], *row[texts + 1 :]] for row in cells]
    excess = sum(widths) + 2 * (len(widths) - 1) - room
    for _ in range(max(excess, 0)):
        widths[max(range(texts), key=widths.__getitem__)] -= 1
    for number, row in enumerate(cells):
        shown = [
            pad(shorten(text, width), width) if place < texts else " " * (width - width_of(text)) + text
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield [("  ".join(shown), "" if number else "dim")]
