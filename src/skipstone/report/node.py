"""The tree that every view makes and every renderer draws.

A node has a label, a statement, perhaps a bar, a body of blocks, and children: branches of a tree, or
sections. Blocks without content, and None in place of a block or a node, are not drawn, so that views
need no conditions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from skipstone.report.units import count, percent, size

MISSING = "–"
"""The cell of a value that there is none of."""
READ = ("proven", "kept")
"""Inks of units and rows that are read."""
ANSWERED = ("files", "groups", "pages", "values")
"""Inks of rows that metadata answers for, by level."""
DROPPED = ("constant", "partition", "bounds", "nulls", "bloom", "dictionary", "page", "other", "line")
"""Inks of units that were dropped, by cause."""


@dataclass(frozen=True, slots=True)
class NodePart:
    """A part of a bar: its ink, its size and its meaning."""

    ink: str
    size: float
    meaning: str = ""


@dataclass(frozen=True, slots=True)
class Bar:
    """Parts of a total; the rest is background."""

    parts: tuple[NodePart, ...]
    whole: float

    @classmethod
    def of(cls, part: float, whole: float, meaning: str = "") -> Bar:
        """One part of a total."""
        return cls((NodePart("kept", part, meaning),), whole)


Styled = tuple[str, str]
"""A string and its style: bold, dim, code, firm (on one line), short (cut to one line), kept, known,
dropped, warn or bad."""
Cell = str | Styled | Bar
CellOf = Callable[[Any], Any]
"""Makes a cell from a record; a number is formatted, None is a missing value, and other values are texts."""


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table, and how its cells are made from records."""

    name: str = ""
    value: CellOf = str
    right: bool = False
    least: int | None = None
    """Width to which long values may be cut; None if they must not be cut."""
    rank: int = 0
    """Where the table is too wide, columns of the highest rank are left out first."""
    style: str = ""
    optional: bool = False
    """Left out if no record has a value."""

    def cell(self, record: Any) -> Cell:
        """The cell of one record."""
        value = self.value(record)
        if isinstance(value, int):
            return count(value)
        return MISSING if value is None else value if isinstance(value, str | tuple | Bar) else str(value)


def text(name: str, value: CellOf = str, least: int = 16, **more: Any) -> TableColumn:
    """A column of strings, which may be cut."""
    return TableColumn(name, value, least=least, **more)


def number(name: str, value: CellOf = str, rank: int = 0, **more: Any) -> TableColumn:
    """A column of numbers: to the right, and never cut."""
    return TableColumn(name, value, right=True, rank=rank, **more)


def nbytes(name: str, value: Callable[[Any], int | None], rank: int = 0, **more: Any) -> TableColumn:
    """A column of sizes; zero counts as missing."""
    return number(name, lambda record: size(value(record) or 0) if value(record) else None, rank, **more)


def portion(name: str, value: Callable[[Any], float | None], rank: int = 0) -> TableColumn:
    """A column of shares between 0 and 1, in percent."""
    return number(
        name, lambda record: None if value(record) is None else percent(value(record) or 0, 1), rank
    )


def fields(kind: Callable[..., TableColumn], *names: str, **more: Any) -> list[TableColumn]:
    """Columns of one kind from attributes: ``"files"``, ``"size=bytes"``, or with a rank ``"rows@1"``."""
    columns = []
    for name, _, rank in (spec.partition("@") for spec in names):
        title, _, attribute = name.partition("=")
        value = attrgetter(attribute or title.replace(" ", "_"))
        columns.append(kind(title, value, rank=int(rank or 0), **more))
    return columns


@dataclass(frozen=True, slots=True)
class NodeTable:
    """Rows of cells below the names of their columns."""

    columns: Sequence[TableColumn]
    rows: Sequence[Sequence[Cell]]
    notes: tuple[str, ...] = ()
    """Lines below the table."""
    title: str = ""
    head: str = "dim"
    """The style of the names."""
    most: tuple[int, str] | None = None
    """Rows shown as text, and what a row is for the note that counts those left out."""
    more: str = ""
    """How to see columns for which the screen is too narrow."""


def table(records: Iterable[Any], *columns: TableColumn, **more: Any) -> NodeTable:
    """A table with a row per record."""
    rows = [[column.cell(record) for column in columns] for record in records]
    shown = [
        place
        for place, column in enumerate(columns)
        if not column.optional or any(row[place] not in (MISSING, "") for row in rows)
    ]
    return NodeTable(
        [columns[place] for place in shown], [[row[place] for place in shown] for row in rows], **more
    )


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph."""

    text: str
    style: str = ""
    most: int = 3
    """Lines; the rest is cut."""
    aside: str = ""
    """Less important text, on the same line if it fits."""


@dataclass(frozen=True, slots=True)
class Code:
    """Lines to copy, which are never cut."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Facts:
    """Labels and values; pairs without a value are not drawn."""

    pairs: Sequence[tuple[str | Styled, str]]
    code: tuple[str, ...] = ()
    """Labels whose values are conditions."""

    @property
    def shown(self) -> list[tuple[str, str, str]]:
        """Labels, their styles, and values."""
        return [(label, "", v) if isinstance(label, str) else (*label, v) for label, v in self.pairs if v]


@dataclass(frozen=True, slots=True)
class Items:
    """A titled list of problems and hints."""

    title: str
    items: Sequence[str]


@dataclass(frozen=True, slots=True)
class ReportNode:
    """Something that is shown."""

    label: str = ""
    said: str | tuple[str, ...] = ""
    """The statement, or versions of it from long to short: the first that fits is drawn."""
    style: str = ""
    """The style of the statement."""
    bar: Bar | None = None
    body: tuple[Block | None, ...] = ()
    figures: tuple[tuple[str, str, str] | None, ...] = ()
    """Figures that HTML shows in large type: a label, the figure, and an explanation."""
    children: tuple[ReportNode | None, ...] = ()
    tree: bool = True
    """Whether the children are branches instead of sections."""
    tail: tuple[Block | None, ...] = ()
    """Blocks below the children."""
    legend: tuple[tuple[str, str], ...] = ()
    """Inks and their meanings, for bars that need an explanation in text."""

    @property
    def statements(self) -> tuple[str, ...]:
        """The statement from long to short."""
        return (self.said,) if isinstance(self.said, str) else self.said


Block = Text | Code | Facts | Items | NodeTable | ReportNode
