"""The result of advice: columns to index, bloom filters, and orders of rows."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import pyarrow as pa

from skipstone.report import Reported
from skipstone.report.lines import clean, shorten
from skipstone.report.units import count, size, times

_MOST_NAMES = 4
_LEAST = 1e-9
_VERBS = {"sort": "sort", "zorder": "Z-order", "hilbert": "Hilbert-order"}


@dataclass(frozen=True, slots=True)
class RefusedQuery:
    """A query that could not be parsed: its line in the log or its position, its text, and why."""

    line: int
    text: str
    reason: str

    def __str__(self) -> str:
        return f"{count(self.line)}: {shorten(clean(self.text), 60)}: {self.reason}"


@dataclass(frozen=True, slots=True)
class ColumnAdvice:
    """One column: the shares of rows that the queries using it skip, and the cost of indexing it.

    A share is None if it does not apply: no page index, or no query for few values.
    """

    name: str
    type: pa.DataType
    used: float
    """Total weight of the queries that use the column."""
    skip_files: float
    skip_row_groups: float
    skip_pages: float | None
    skip_with_bloom: float | None
    index_bytes: int
    bloom_bytes: int
    index: bool
    bloom: bool
    why: str


@dataclass(frozen=True, slots=True)
class LayoutAdvice:
    """The share of rows that the queries would skip under another order of rows."""

    json_also: ClassVar[Mapping[str, str]] = {"factor": "factor"}

    columns: tuple[str, ...]
    kind: Literal["sort", "zorder", "hilbert"]
    before: float
    """Share of rows skipped today."""
    after: float
    by_column: Mapping[str, float] = field(default_factory=dict, hash=False)
    """The share after that the queries on each column skip, where it was estimated."""

    @property
    def factor(self) -> float:
        """Factor by which fewer rows would be read."""
        return max(1 - self.before, _LEAST) / max(1 - self.after, _LEAST)

    def __str__(self) -> str:
        return f"{_VERBS[self.kind]} by {', '.join(self.columns)}"


@dataclass(frozen=True, slots=True)
class Advice(Reported):
    """Columns and bloom filters that are worth indexing, and the row order that would skip the most data.

    ``columns`` and ``blooms`` can be passed to ``lake.index.build``.

    Examples:
        >>> import skipstone as sk
        >>> advice = sk.open("events").index.advise(["event_id = 7", "event_id = 8"])
        >>> advice.understood, advice.columns
        (2, ('event_id',))
    """

    view: ClassVar[str] = "skipstone.index.views:advice_tree"
    width: ClassVar[int] = 120

    json_also: ClassVar[Mapping[str, str]] = {
        "recommendation": "recommendation",
        "commands": "commands",
        "columns": "columns",
        "blooms": "blooms",
    }

    lake: str
    version: str
    files: int
    sampled: int
    """Files whose footers were read."""
    rows: int
    """Rows of the lake, estimated unless every file was sampled."""
    sampled_rows: int
    """Rows read."""
    understood: int
    refused: tuple[RefusedQuery, ...]
    synthetic: bool
    """Whether there were no queries, so that values and ranges of every column were looked up."""
    is_table: bool
    """Whether the lake is an Iceberg table."""
    partition_by: tuple[str, ...]
    """The lake's partition columns, which stay as they are."""
    skips: float
    """Share of rows that the queries skip today."""
    by_column: tuple[ColumnAdvice, ...]
    layouts: tuple[LayoutAdvice, ...]
    """Those that would read less, the best first."""
    arguments: tuple[str, ...] = ()
    """The lake as arguments of the command line; by default its location, or TABLE for a table."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns whose bounds are worth indexing."""
        return tuple(column.name for column in self.by_column if column.index)

    @property
    def blooms(self) -> tuple[str, ...]:
        """Columns whose bloom filters are worth building."""
        return tuple(column.name for column in self.by_column if column.bloom)

    @property
    def recommendation(self) -> str:
        """The advice in one sentence."""
        parts = []
        if self.columns:
            spent = sum(column.index_bytes for column in self.by_column if column.index)
            parts.append(f"index {_list_names(self.columns)} ({size(spent)})")
        if self.blooms:
            spent = sum(column.bloom_bytes for column in self.by_column if column.bloom)
            what = "a bloom filter" if len(self.blooms) == 1 else "bloom filters"
            parts.append(f"add {what} on {_list_names(self.blooms)} ({size(spent)})")
        if self.layouts:
            best = self.layouts[0]
            parts.append(
                f"{_VERBS[best.kind]} by {_list_names(best.columns)} to read {times(best.factor)} less"
            )
        text = "; ".join(parts) or "neither an index nor another order of rows would help these queries"
        return text[0].upper() + text[1:] + "."

    @property
    def commands(self) -> tuple[str, ...]:
        """Commands that follow the advice."""
        build = {"--columns": self.columns, "--blooms": self.blooms}
        # A table's directory can't be opened without its catalog, which only the caller knows.
        lake = self.arguments or ("TABLE" if self.is_table else self.lake,)
        found = [["skipstone", "index", "build", *lake, *_options(build)]] if any(build.values()) else []
        if self.layouts:
            best = self.layouts[0]
            found.append(layout_command(best, lake, self.partition_by, is_table=self.is_table))
        return tuple(map(shlex.join, found))

    def __getitem__(self, name: str) -> ColumnAdvice:
        advice = next((column for column in self.by_column if column.name == name), None)
        if advice is None:
            names = ", ".join(column.name for column in self.by_column) or "none"
            raise KeyError(f"{name}: advised columns are {names}")
        return advice


def layout_command(
    layout: LayoutAdvice, lake: Sequence[str], partition_by: Sequence[str], *, is_table: bool
) -> list[str]:
    """Return the command that orders the rows of a lake."""
    if is_table:
        order = {"--strategy": (layout.kind,), "--sort-by": layout.columns}
        return ["skipstone", "compact", *lake, *_options(order), "--rewrite-all"]
    curve = () if layout.kind == "sort" else (layout.kind,)
    target = {"--partition-by": partition_by, "--cluster-by": layout.columns, "--cluster": curve}
    return ["skipstone", "ingest", *lake, "NEW_LAKE", *_options(target)]


def _options(named: Mapping[str, Sequence[str]]) -> list[str]:
    return [part for option, names in named.items() if names for part in (option, ",".join(names))]


def _list_names(names: Sequence[str]) -> str:
    shown = [clean(name) for name in (names if len(names) <= _MOST_NAMES + 1 else names[:_MOST_NAMES])]
    rest = len(names) - len(shown)
    if rest:
        return f"{', '.join(shown)} and {count(rest)} more"
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))
