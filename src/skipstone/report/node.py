"""What is shown, as a tree of nodes: a view makes it from a result, and one renderer per format draws it.

A node has a label and what is said of it, perhaps a bar, a body of blocks, and children, which are
branches of a tree or sections below each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

FILLED = frozenset({"kept", "proven"})
"""Inks of what is read."""
KNOWN = frozenset({"files", "groups", "pages", "values"})
"""Inks of what metadata answers, by its level; every other ink is that of what was left out."""


@dataclass(frozen=True, slots=True)
class NodePart:
    """A part of a bar: its ink, its size, and what it stands for."""

    ink: str
    size: float
    meaning: str = ""


@dataclass(frozen=True, slots=True)
class Bar:
    """Parts of a whole; what they leave of it is background."""

    parts: tuple[NodePart, ...]
    whole: float

    @classmethod
    def of(cls, part: float, whole: float, meaning: str = "") -> Bar:
        """One part of a whole."""
        return cls((NodePart("kept", part, meaning),), whole)


Cell = str | tuple[str, str] | Bar
"""A text, a text and its style, or a bar. Styles: bold, dim, kept, known, dropped, warn, bad."""


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table."""

    name: str = ""
    right: bool = False
    least: int | None = None
    """Cells that it has at least where it is cut for lack of room; None where it is never cut."""
    spare: int = 0
    """Columns above 0 are left out where there is no room, the highest first."""
    style: str = ""


def text(name: str, least: int = 6) -> TableColumn:
    """A column of texts, which may be cut."""
    return TableColumn(name, least=least)


def number(name: str, spare: int = 0) -> TableColumn:
    """A column of numbers, which are never cut."""
    return TableColumn(name, right=True, spare=spare)


@dataclass(frozen=True, slots=True)
class NodeTable:
    """Rows below the names of their columns, unless none is named."""

    columns: Sequence[TableColumn]
    rows: Sequence[Sequence[Cell]]
    notes: tuple[str, ...] = ()
    """Lines below it."""
    title: str = ""
    head: str = "dim"
    """The style of the names."""
    most: int | None = None
    """Rows shown as text."""
    noun: str = "row"
    """What a row is called where some are left out."""
    crop: str = ""
    """How to see the columns that there is no room for; empty where all stay."""


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph."""

    text: str
    style: str = ""
    most: int = 3
    """Lines; what is beyond them is cut."""
    aside: str = ""
    """More of less weight, on the same line if there is room."""
    indent: int = 0
    hang: int = 0
    """Blanks before every line but the first."""
    hint: str = ""
    """What a pointer on it shows in HTML."""


@dataclass(frozen=True, slots=True)
class Code:
    """Lines to be copied, which are never cut."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Facts:
    """Labels and values."""

    pairs: Sequence[tuple[str, str]]
    code: tuple[str, ...] = ()
    """Labels whose values are conditions or the like."""
    most: int = 3


@dataclass(frozen=True, slots=True)
class Items:
    """A titled list of what should be seen; nothing where it is empty."""

    title: str
    items: Sequence[str]


@dataclass(frozen=True, slots=True)
class Figure:
    """A number with its label, which HTML shows large."""

    label: str
    figure: str
    aside: str
    bar: Bar | None = None


@dataclass(frozen=True, slots=True)
class ReportNode:
    """A thing that is shown."""

    label: str = ""
    said: str | tuple[str, ...] = ""
    """What is said of it, or the same in shorter and shorter forms: the first that fits is shown."""
    style: str = ""
    """The style of what is said; "code" for a condition."""
    bar: Bar | None = None
    body: tuple[Block, ...] = ()
    figures: tuple[Figure, ...] = ()
    children: tuple[ReportNode, ...] = ()
    tree: bool = True
    """Whether the children are branches, rather than sections."""
    tail: tuple[Block, ...] = ()
    """What comes after the children."""
    legend: tuple[tuple[str, str], ...] = ()
    """Inks and their meanings, where the bars of the children don't explain themselves in text."""


Block = Text | Code | Facts | Items | NodeTable | ReportNode
