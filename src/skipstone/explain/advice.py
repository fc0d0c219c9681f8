"""What an index or another layout would do for a lake, estimated from a sample of its footers.

Index user_id (3.1 kB); a bloom filter on device (65.5 kB); sorting by device would read 8.2 × less.
lake/events: 3 questions; 62 % skipped today; estimated from 20 of 20 files

column   type   asked  files  row groups  pages  bloom    index  filters  why
user_id  int64      2   90 %        95 %   97 %      –   3.1 kB  65.5 kB  index: bounds skip 97 %
device   int32      1    0 %         0 %    0 %   95 %   3.1 kB  65.5 kB  bloom: +95 %

layout          skips today  would skip  reads
sort by device         62 %        96 %  8.2 × less
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from skipstone.explain.html_style import ROOT, style
from skipstone.explain.lines import clean, pad, paint, shorten, width_of, wrap
from skipstone.explain.markup import Markup, tag
from skipstone.explain.tree import Line, listed
from skipstone.explain.units import count, percent, plural, size

_ROOM = 120
_NARROWEST = 60
_NAMES, _TYPES, _LAYOUTS = 28, 18, 60
_SHOWN_COLUMNS, _SHOWN_LAYOUTS = 30, 6
_NAMED = 4
_LEAST = 1e-9
_HONEST = (
    "Skips are shares of rows. They are estimates: bounds and counts of the sample say where values may be, "
    "not how often each occurs, and values between two bounds are taken to be spread evenly."
)
_COLUMN_HEAD = ("column", "type", "asked", "files", "row groups", "pages", "bloom", "index", "filters", "why")
_LAYOUT_HEAD = ("layout", "skips today", "would skip", "reads")


@dataclass(frozen=True, slots=True)
class Refused:
    """A question that was not understood: its line in the log or its number, its text, and why."""

    place: int
    text: str
    reason: str

    def __str__(self) -> str:
        return f"{count(self.place)}: {shorten(clean(self.text), 60)}: {self.reason}"


@dataclass(frozen=True, slots=True)
class ColumnAdvice:
    """One column: what its evidence skips of the rows, by the questions that use it, and what it would cost.

    A share is None where there is nothing to say: no page index, no question that asks for few values.
    """

    name: str
    type: pa.DataType
    used: float
    """Questions that use it, each counted with its weight."""
    skip_files: float
    skip_row_groups: float
    skip_pages: float | None
    skip_with_bloom: float | None
    index_bytes: int
    bloom_bytes: int
    index: bool
    bloom: bool
    why: str

    def to_json(self) -> dict[str, Any]:
        """The same as strings and numbers; null where there is nothing to say."""
        names = [name for name in self.__slots__ if name != "type"]
        return {"name": self.name, "type": str(self.type)} | {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True)
class LayoutAdvice:
    """What the same questions would skip if the files were written in another order."""

    columns: tuple[str, ...]
    kind: Literal["sort", "zorder"]
    before: float
    """The share of rows that is skipped today."""
    after: float

    @property
    def factor(self) -> float:
        """How many times fewer bytes would be read."""
        return max(1 - self.before, _LEAST) / max(1 - self.after, _LEAST)

    def __str__(self) -> str:
        return f"{'sort' if self.kind == 'sort' else 'Z-order'} by {', '.join(self.columns)}"

    def to_json(self) -> dict[str, Any]:
        """The same as strings and numbers."""
        return {
            "columns": list(self.columns),
            "kind": self.kind,
            "before": self.before,
            "after": self.after,
            "factor": self.factor,
        }


@dataclass(frozen=True, slots=True)
class Advice:
    """Which columns to index, which bloom filters pay, and which order of rows would help most.

    All shares are estimates from a sample's bounds and counts. ``columns`` and ``blooms`` are names, ready
    to build an index with.
    """

    lake: str
    version: str
    files: int
    sampled: int
    rows: int
    """Of the whole lake, estimated unless every file was sampled."""
    understood: int
    refused: tuple[Refused, ...]
    synthetic: bool
    """Whether no question was given, so that points and ranges of every column were asked instead."""
    skips: float
    """The share of rows that the questions skip today."""
    by_column: tuple[ColumnAdvice, ...]
    layouts: tuple[LayoutAdvice, ...]
    """Those that would read less, the best first."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns whose bounds are worth an index."""
        return tuple(column.name for column in self.by_column if column.index)

    @property
    def blooms(self) -> tuple[str, ...]:
        """Columns whose bloom filters pay."""
        return tuple(column.name for column in self.by_column if column.bloom)

    @property
    def recommendation(self) -> str:
        """The advice in one sentence."""
        parts = []
        if self.columns:
            spent = sum(column.index_bytes for column in self.by_column if column.index)
            parts.append(f"index {_named(self.columns)} ({size(spent)})")
        if self.blooms:
            spent = sum(column.bloom_bytes for column in self.by_column if column.bloom)
            what = "a bloom filter" if len(self.blooms) == 1 else "bloom filters"
            parts.append(f"{what} on {_named(self.blooms)} ({size(spent)})")
        if self.layouts:
            best = self.layouts[0]
            verb = "sorting" if best.kind == "sort" else "Z-ordering"
            parts.append(f"{verb} by {_named(best.columns)} would read {_times(best.factor)} less")
        said = "; ".join(parts) or "neither an index nor another order of rows would help these questions"
        return said[0].upper() + said[1:] + "."

    def __getitem__(self, name: str) -> ColumnAdvice:
        found = next((column for column in self.by_column if column.name == name), None)
        if found is None:
            known = ", ".join(column.name for column in self.by_column) or "no column"
            raise KeyError(f"{name}: there is advice on {known}")
        return found

    def to_json(self) -> dict[str, Any]:
        """Everything as dicts, lists, strings and numbers."""
        return {
            "lake": self.lake,
            "version": self.version,
            "files": self.files,
            "sampled": self.sampled,
            "rows": self.rows,
            "understood": self.understood,
            "refused": [{"place": r.place, "text": r.text, "reason": r.reason} for r in self.refused],
            "synthetic": self.synthetic,
            "skips": self.skips,
            "recommendation": self.recommendation,
            "columns": list(self.columns),
            "blooms": list(self.blooms),
            "by_column": [column.to_json() for column in self.by_column],
            "layouts": [layout.to_json() for layout in self.layouts],
        }

    def __str__(self) -> str:
        return draw_advice(self)

    def _repr_html_(self) -> str:
        return advice_to_html(self)


# -- words -------------------------------------------------------------------------------------


def _named(names: Sequence[str]) -> str:
    shown = [clean(name) for name in (names if len(names) <= _NAMED + 1 else names[:_NAMED])]
    rest = len(names) - len(shown)
    if rest:
        return f"{', '.join(shown)} and {count(rest)} more"
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))


def _times(factor: float) -> str:
    return f"{factor:.1f} ×" if factor < 10 else f"{round(factor):,} ×" if factor < 10_000 else ">10,000 ×"


def _share(share: float | None) -> str:
    return "–" if share is None else percent(share, 1)


def _about(advice: Advice) -> str:
    asked = (
        "no questions given, so points and ranges of every column"
        if advice.synthetic
        else plural(advice.understood, "question")
    )
    refused = f", {count(len(advice.refused))} not understood" if advice.refused else ""
    seen = f"estimated from {count(advice.sampled)} of {plural(advice.files, 'file')}"
    return f"{clean(advice.lake)}: {asked}{refused}; {percent(advice.skips, 1)} skipped today; {seen}"


def _column_cells(column: ColumnAdvice) -> tuple[str, ...]:
    return (
        column.name,
        str(column.type),
        f"{column.used:,.10g}" if column.used else "–",
        _share(column.skip_files),
        _share(column.skip_row_groups),
        _share(column.skip_pages),
        _share(column.skip_with_bloom),
        size(column.index_bytes) if column.index_bytes else "–",
        size(column.bloom_bytes) if column.bloom_bytes else "–",
        column.why,
    )


def _layout_cells(layout: LayoutAdvice) -> tuple[str, ...]:
    return (str(layout), _share(layout.before), _share(layout.after), f"{_times(layout.factor)} less")


# -- text --------------------------------------------------------------------------------------


def draw_advice(advice: Advice, *, width: int | None = None, color: bool = False) -> str:
    """Draw the advice in at most ``width`` columns (120 unless given), without a final line break."""
    room = max(width or _ROOM, _NARROWEST)
    lines: list[Line] = [[(text, "bold")] for text in wrap(advice.recommendation, room, 4)]
    lines += [[(text, "dim")] for text in wrap(_about(advice), room, 3)]
    if advice.by_column:
        lines += [[], *_columns(advice.by_column, room)]
    if advice.layouts:
        cells = [_layout_cells(layout) for layout in advice.layouts[:_SHOWN_LAYOUTS]]
        lines += [[], *_table(_LAYOUT_HEAD, cells, (), room, (_LAYOUTS,))]
    lines += [[], *([(text, "dim")] for text in wrap(_HONEST, room, 4))]
    lines += listed("not understood", [str(refused) for refused in advice.refused], room)
    return "\n".join(paint(line, color=color) for line in lines)


def _columns(columns: Sequence[ColumnAdvice], room: int) -> Iterator[Line]:
    shown = columns if len(columns) <= _SHOWN_COLUMNS + 1 else columns[:_SHOWN_COLUMNS]
    cells = [_column_cells(column) for column in shown]
    styles = ["kept" if column.index or column.bloom else "" for column in shown]
    yield from _table(_COLUMN_HEAD, cells, styles, room, (_NAMES, _TYPES))
    if len(columns) > len(shown):
        yield [(f"… {plural(len(columns) - len(shown), 'more column')}", "dim")]


def _table(
    head: Sequence[str],
    cells: Sequence[tuple[str, ...]],
    styles: Sequence[str],
    room: int,
    most: tuple[int, ...],
) -> Iterator[Line]:
    """A head and a line per row: texts of at most so many cells, numbers, and a last text cut to fit."""
    texts = len(most)
    rows = [
        [*(shorten(clean(text), cells) for text, cells in zip(row, most, strict=False)), *row[texts:]]
        for row in (head, *cells)
    ]
    widths = [max(map(width_of, column)) for column in zip(*rows, strict=True)]
    for number, row in enumerate(rows):
        shown = [
            pad(text, width) if place < texts else " " * (width - width_of(text)) + text
            for place, (text, width) in enumerate(zip(row[:-1], widths[:-1], strict=True))
        ]
        line = "  ".join([*shown, ""])
        last = shorten(clean(row[-1]), room - width_of(line))
        if number == 0:
            yield [(shorten(line + last, room), "dim")]
        else:
            style = styles[number - 1] if styles else ""
            yield [(shorten(line, room), ""), (last, style)]


# -- HTML --------------------------------------------------------------------------------------


def advice_to_html(advice: Advice) -> str:
    """The advice as one HTML element, fit for a notebook."""
    sections = [
        Markup(f"<style>{style()}</style>"),
        tag("div", advice.recommendation, cls=f"{ROOT}-lake"),
        tag("div", _about(advice), cls=f"{ROOT}-about"),
    ]
    if advice.by_column:
        rows = [_column_cells(column) for column in advice.by_column]
        sections += [tag("div", "Columns", cls=f"{ROOT}-head"), _html_table(_COLUMN_HEAD, rows, range(2, 9))]
    if advice.layouts:
        rows = [_layout_cells(layout) for layout in advice.layouts]
        sections += [tag("div", "Layouts", cls=f"{ROOT}-head"), _html_table(_LAYOUT_HEAD, rows, range(1, 4))]
    if advice.refused:
        entries = [tag("li", str(refused)) for refused in advice.refused]
        summary = tag("summary", f"Not understood ({count(len(entries))})", cls=f"{ROOT}-warn")
        sections.append(tag("details", summary, tag("ul", *entries)))
    sections.append(tag("div", _HONEST, cls=f"{ROOT}-aside"))
    return tag("div", *sections, cls=ROOT)


def _html_table(head: Sequence[str], rows: Sequence[tuple[str, ...]], numbers: range) -> Markup:
    def line(name: str, cells: Sequence[str]) -> Markup:
        return tag(
            "tr",
            *(
                tag(name, text, cls=f"{ROOT}-number" if place in numbers else "")
                for place, text in enumerate(cells)
            ),
        )

    body = tag("tbody", *(line("td", row) for row in rows))
    return tag("div", tag("table", tag("thead", line("th", head)), body), cls=f"{ROOT}-scroll")
