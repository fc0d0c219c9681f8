"""What an aggregation answered from metadata, what it read, and what it passed over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from skipstone.report.trace.scan import Phase, ScanTrace


@dataclass(frozen=True, slots=True)
class Answered:
    """Units of one level whose aggregates were known without reading them."""

    level: str
    """"files", "row groups" or "pages"."""
    units: int
    rows: int


@dataclass(frozen=True, slots=True)
class ColumnUse:
    """Where the answers about a column come from."""

    json_names: ClassVar[Mapping[str, str]] = {"read": "rows_read"}
    json_also: ClassVar[Mapping[str, str]] = {"column": "name", "rows_known": "known"}

    column: str
    """Its name; empty for the count of rows."""
    functions: tuple[str, ...]
    """As the answer names them."""
    answered: tuple[Answered, ...]
    """From the largest units to the smallest; a unit counts at the largest level that proves it."""
    read: int
    """Rows that are read for it."""
    why: tuple[str, ...]
    """Why rows are read, a sentence each; empty if none is."""

    @property
    def name(self) -> str | None:
        """The column's name; None for the count of rows."""
        return self.column or None

    @property
    def known(self) -> int:
        """Rows that are answered from metadata."""
        return sum(level.rows for level in self.answered)


@dataclass(frozen=True, slots=True)
class MemberUse:
    """What sets of ids or places mean for the row groups that the predicate has kept."""

    json_names: ClassVar[Mapping[str, str]] = {"units": "row_groups"}
    json_also: ClassVar[Mapping[str, str]] = {"partly": "partly"}

    sets: tuple[str, ...]
    """Each set in words, with the way its members are found."""
    units: int
    outside: int
    """Row groups without a member, which are not read."""
    inside: int
    """Row groups whose rows are all members."""
    rows_outside: int
    """Rows that are not read since they are proven not to be members."""

    @property
    def partly(self) -> int:
        """Row groups that must be looked into."""
        return self.units - self.outside - self.inside


@dataclass(frozen=True, slots=True)
class AggregateRun:
    """What an aggregation did."""

    rows: int
    """Rows that were read and counted in."""
    pieces: int
    requests: int
    bytes: int
    seconds: float
    engine: str
    """"2 threads", or the name of another engine and its tasks."""
    phases: tuple[Phase, ...] = ()


@dataclass(frozen=True, slots=True)
class AggregateTrace:
    """The plan of an aggregation: the scan below it, sets of members, and where answers come from."""

    scan: ScanTrace
    functions: tuple[str, ...]
    group_by: tuple[str, ...]
    rows: int
    """Rows that may count: those of the scan that may be members."""
    columns: tuple[ColumnUse, ...]
    members: MemberUse | None = None
    cached: bool = True
    """Whether metadata may answer at all."""
    notes: tuple[str, ...] = ()
    run: AggregateRun | None = None
