"""What an index, bloom filters or another order of rows would do for the questions asked of a lake.

Index user_id (3.1 kB); a bloom filter on device (65.5 kB); sorting by device would read 8.2 × less.
lake/events: 3 questions; 62 % skipped today; judged on 20 of 20 files and 80,000 of 80,000 rows

column   type   asked  files  row groups  pages  bloom    index  filters  why
user_id  int64      2   90 %        95 %   97 %      –   3.1 kB  65.5 kB  index: bounds skip 97 %
device   int32      1    0 %         0 %    0 %   95 %   3.1 kB  65.5 kB  bloom: +95 %

layout          skips today  would skip  reads
sort by device         62 %        96 %  8.2 × less

skipstone index build lake/events --columns user_id --blooms device
skipstone ingest lake/events NEW_LAKE --cluster-by device
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import pyarrow as pa

from skipstone.report.html_parts import cell, element, heading, listing, table
from skipstone.report.html_style import ROOT
from skipstone.report.lines import clean, pad, paint, shorten, width_of, wrap
from skipstone.report.markup import Markup, tag
from skipstone.report.tree import Line, listed
from skipstone.report.units import count, percent, plural, size

_WIDTH, _NARROWEST = 120, 60
_NAMES, _TYPES, _LAYOUTS = 28, 18, 60
_SHOWN_COLUMNS, _SHOWN_LAYOUTS, _NAMED = 30, 6, 4
_LEAST = 1e-9
_EXPLAINED = (
    "Skips are shares of rows: today's by the bounds of the sampled files, a layout's by the bounds of the "
    "sampled rows in that order, in pages and row groups as large as today's."
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
        return asdict(self) | {"type": str(self.type)}


@dataclass(frozen=True, slots=True)
class LayoutAdvice:
    """What the same questions would skip if the rows were in another order."""

    columns: tuple[str, ...]
    kind: Literal["sort", "zorder", "hilbert"]
    before: float
    """The share of rows that is skipped today."""
    after: float

    @property
    def factor(self) -> float:
        """How many times fewer rows would be read."""
        return max(1 - self.before, _LEAST) / max(1 - self.after, _LEAST)

    def __str__(self) -> str:
        return f"{'sort' if self.kind == 'sort' else 'Z-order'} by {', '.join(self.columns)}"

    def to_json(self) -> dict[str, Any]:
        """The same as strings and numbers."""
        return asdict(self) | {"columns": list(self.columns), "factor": self.factor}


@dataclass(frozen=True, slots=True)
class Advice:
    """Which columns to index, which bloom filters pay, and which order of rows would help most.

    ``columns`` and ``blooms`` are names, ready to build an index with.
    """

    lake: str
    version: str
    files: int
    sampled: int
    """Files whose footers were looked at."""
    rows: int
    """Of the whole lake, estimated unless every file was sampled."""
    sampled_rows: int
    """Rows that were read."""
    understood: int
    refused: tuple[Refused, ...]
    synthetic: bool
    """Whether no question was given, so that values and ranges of every column were looked up instead."""
    is_table: bool
    """Whether the lake is an Iceberg table."""
    partition_by: tuple[str, ...]
    """The lake's partition columns, which another order of rows leaves as they are."""
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
        text = "; ".join(parts) or "neither an index nor another order of rows would help these questions"
        return text[0].upper() + text[1:] + "."

    @property
    def commands(self) -> tuple[str, ...]:
        """What to run to follow the advice; the command line can't rewrite tables."""
        build = {"--columns": self.columns, "--blooms": self.blooms}
        lake = "TABLE" if self.is_table else self.lake
        found = [["skipstone", "index", "build", lake, *_options(build)]] if any(build.values()) else []
        if self.layouts and not self.is_table:
            best = self.layouts[0]
            curve = () if best.kind == "sort" else (best.kind,)
            order = {"--partition-by": self.partition_by, "--cluster-by": best.columns, "--cluster": curve}
            found.append(["skipstone", "ingest", lake, "NEW_LAKE", *_options(order)])
        return tuple(map(shlex.join, found))

    def __getitem__(self, name: str) -> ColumnAdvice:
        found = next((column for column in self.by_column if column.name == name), None)
        if found is None:
            known = ", ".join(column.name for column in self.by_column) or "no column"
            raise KeyError(f"{name}: there is advice on {known}")
        return found

    def to_json(self) -> dict[str, Any]:
        """Everything as dicts, lists, strings and numbers."""
        return asdict(self) | {
            "partition_by": list(self.partition_by),
            "refused": [asdict(refused) for refused in self.refused],
            "recommendation": self.recommendation,
            "commands": list(self.commands),
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


def _options(named: Mapping[str, Sequence[str]]) -> list[str]:
    return [part for option, names in named.items() if names for part in (option, ",".join(names))]


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
        "no questions given, so values and ranges of every column"
        if advice.synthetic
        else plural(advice.understood, "question")
    )
    refused = f", {count(len(advice.refused))} not understood" if advice.refused else ""
    files = f"{count(advice.sampled)} of {plural(advice.files, 'file')}"
    rows = f"{count(advice.sampled_rows)} of {plural(advice.rows, 'row')}"
    today = f"{percent(advice.skips, 1)} skipped today"
    return f"{clean(advice.lake)}: {asked}{refused}; {today}; judged on {files} and {rows}"


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
    room = max(width or _WIDTH, _NARROWEST)
    lines: list[Line] = [[(text, "bold")] for text in wrap(advice.recommendation, room, 4)]
    lines += [[(text, "dim")] for text in wrap(_about(advice), room, 3)]
    if advice.by_column:
        lines += [[], *_columns(advice.by_column, room)]
    if advice.layouts:
        cells = [_layout_cells(layout) for layout in advice.layouts[:_SHOWN_LAYOUTS]]
        lines += [[], *_table(_LAYOUT_HEAD, cells, (), room, (_LAYOUTS,))]
    if advice.commands:
        # Never shortened: they are there to be copied.
        lines += [[], *([(clean(command), "")] for command in advice.commands)]
    lines += [[], *([(text, "dim")] for text in wrap(_EXPLAINED, room, 4))]
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
        tag("div", advice.recommendation, cls=f"{ROOT}-lake"),
        tag("div", _about(advice), cls=f"{ROOT}-about"),
    ]
    if advice.by_column:
        cells = [_column_cells(column) for column in advice.by_column]
        sections += [heading("Columns"), _html_table(_COLUMN_HEAD, cells, range(2, 9))]
    if advice.layouts:
        cells = [_layout_cells(layout) for layout in advice.layouts]
        sections += [heading("Layouts"), _html_table(_LAYOUT_HEAD, cells, range(1, 4))]
    if advice.commands:
        sections += [heading("Commands"), *(tag("pre", command) for command in advice.commands)]
    sections += listing("Not understood", [str(refused) for refused in advice.refused])
    return element(*sections, tag("div", _EXPLAINED, cls=f"{ROOT}-aside"))


def _html_table(head: Sequence[str], rows: Sequence[tuple[str, ...]], numbers: range) -> Markup:
    lines = [
        tag("tr", *(cell(text, "number" if place in numbers else "") for place, text in enumerate(row)))
        for row in rows
    ]
    return table(head, lines, numbers)
