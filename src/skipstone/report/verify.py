"""What a verification found: the answer with skipping beside the answer without.

lake/events  user_id = 42
├─ compared  4 files, 400,000 rows: each read whole by pyarrow and tested row by row
├─ matching  57 rows, 0 of them proven by metadata
├─ rows      █░░░░░░░░░░░░░░░░░░░  5,000 instead of 400,000 (1.3 %)
├─ bytes     █░░░░░░░░░░░░░░░░░░░  80.0 kB instead of 8.1 MB (1 %)
├─ time      ██░░░░░░░░░░░░░░░░░░  12.0 ms instead of 120 ms (10 %)
└─ ✓ no difference: the same rows with the same values
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from skipstone.core.rows import RowSet
from skipstone.report.lines import clean, paint, shorten, wrap
from skipstone.report.tree import Layout, Line, barred, header, stem
from skipstone.report.units import count, duration, percent, plural, size
from skipstone.report.why import Why, draw_why, span_text
from skipstone.report.words import EVERY_ROW

Kind = Literal["lost", "false proof", "wrong values", "extra rows", "wrong order"]
_MEANING: dict[Kind, str] = {
    "lost": "rows that match are missing",
    "false proof": "rows said to be proven don't match",
    "wrong values": "rows came back with other values",
    "extra rows": "rows came back that nobody asked for",
    "wrong order": "rows came back in another order, or others than the first ones",
}
_RANGES = 3


@dataclass(frozen=True, slots=True)
class Difference:
    """One way in which skipping changed the answer, where, and what the plan rested on there."""

    kind: Kind
    path: str
    row_group: int | None
    rows: RowSet | None
    """The rows concerned, counted within the file."""
    detail: str
    why: Why | None = None
    """The certificate: the statistic that led to it."""

    @property
    def place(self) -> str:
        """File, row group and rows."""
        parts = [self.path, f"row group {self.row_group}" if self.row_group is not None else ""]
        if self.rows is not None:
            ranges = self.rows.ranges()
            more = f" and {count(len(ranges) - _RANGES)} more ranges" if len(ranges) > _RANGES else ""
            parts.append(", ".join(span_text(*r) for r in ranges[:_RANGES]) + more)
        return ", ".join(filter(None, parts))

    def to_json(self) -> dict[str, Any]:
        """The difference as dicts, lists, strings and numbers."""
        return {
            "kind": self.kind,
            "path": self.path,
            "row_group": self.row_group,
            "rows": None if self.rows is None else [list(r) for r in self.rows.ranges()],
            "detail": self.detail,
            "why": None if self.why is None else self.why.to_json(),
        }


@dataclass(frozen=True, slots=True)
class Verification:
    """A scan with skipping beside the same without: what each cost, and every difference.

    Rows and bytes with skipping are those that the plan kept and that were transferred for it; what the
    lake had at hand already costs nothing.
    """

    lake: str
    predicate: str
    files: int
    rows_matching: int
    rows_proven: int
    rows_read_with: int
    rows_read_without: int
    bytes_with: int
    bytes_without: int
    seconds_with: float
    seconds_without: float
    differences: tuple[Difference, ...] = ()
    left_out: int = 0
    """Differences beyond those listed."""

    @property
    def ok(self) -> bool:
        """Whether skipping changed nothing."""
        return not self.differences

    def to_json(self) -> dict[str, Any]:
        """Everything as dicts, lists, strings and numbers."""
        return {
            "ok": self.ok,
            "lake": self.lake,
            "predicate": self.predicate,
            "files": self.files,
            "rows_matching": self.rows_matching,
            "rows_proven": self.rows_proven,
            "rows_read_with": self.rows_read_with,
            "rows_read_without": self.rows_read_without,
            "bytes_with": self.bytes_with,
            "bytes_without": self.bytes_without,
            "seconds_with": self.seconds_with,
            "seconds_without": self.seconds_without,
            "differences": [difference.to_json() for difference in self.differences],
            "left_out": self.left_out,
        }

    def __str__(self) -> str:
        return draw_verification(self)


def draw_verification(found: Verification, *, width: int | None = None, color: bool = False) -> str:
    """Draw what was compared in at most ``width`` columns (100 unless given), without a final line break."""
    layout = Layout.of(["compared", "matching", "rows", "bytes", "time"], width)
    lines = [header(found.lake, found.predicate or EVERY_ROW, layout.room)]
    seen = f"{plural(found.files, 'file')}, {plural(found.rows_read_without, 'row')}"
    lines.append(_plain("compared", f"{seen}: each read whole by pyarrow and tested row by row", layout))
    proven = f"{count(found.rows_proven)} of them proven by metadata"
    lines.append(_plain("matching", f"{plural(found.rows_matching, 'row')}, {proven}", layout))
    for name, part, whole, text in (
        ("rows", found.rows_read_with, found.rows_read_without, count),
        ("bytes", found.bytes_with, found.bytes_without, size),
    ):
        said = f"{text(part)} instead of {text(whole)} ({percent(part, whole)})"
        lines.append(barred(name, part, whole, [said], layout, last=False))
    times = f"{duration(found.seconds_with)} instead of {duration(found.seconds_without)}"
    lines.append(_plain("time", times, layout))
    lines += _differences(found, layout)
    return "\n".join(paint(line, color=color) for line in lines)


def _plain(name: str, text: str, layout: Layout) -> Line:
    head = layout.head(name, last=False)
    return [(head, ""), (shorten(text, layout.room - len(head)), "")]


def _differences(found: Verification, layout: Layout) -> Iterator[Line]:
    if found.ok:
        yield [("└─ ", ""), ("✓ no difference: the same rows with the same values", "kept")]
        return
    number = len(found.differences) + found.left_out
    yield [("└─ ", ""), (f"✗ {plural(number, 'difference')}", "bad")]
    below = stem(last=True)
    room = layout.room - len(below)
    for difference in found.differences:
        rows = f"{plural(len(difference.rows), 'row')}: " if difference.rows is not None else ""
        head = f"{difference.kind}: {_MEANING[difference.kind]}: {rows}{difference.place}"
        for text in wrap(clean(head), room, 3):
            yield [(below, ""), (text, "bad")]
        for text in wrap(clean(difference.detail), room - 2, 2):
            yield [(below + "  ", ""), (text, "")]
        if difference.why is not None:
            for text in draw_why(difference.why, width=room - 2).splitlines():
                yield [(below + "  ", ""), (text, "dim")]
    if found.left_out:
        yield [(below, ""), (f"{count(found.left_out)} more", "dim")]
