"""Results of ``why`` and ``verify``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from skipstone.core.judge import Verdict
from skipstone.core.rows import RowSet
from skipstone.report import Reported
from skipstone.report.trace import Cause
from skipstone.report.units import count, span_text

Kind = Literal["lost", "false proof", "wrong values", "extra rows", "wrong order"]
_RANGES = 3


@dataclass(frozen=True, slots=True)
class WhyStep:
    """The verdict of one level on one unit, with the condition and the evidence."""

    level: str
    unit: str
    verdict: Verdict
    condition: str
    """For a dropped unit, the condition that no row satisfies; else the undecided conditions."""
    evidence: str
    cause: Cause | None = None
    """The kind of evidence that dropped the unit."""


@dataclass(frozen=True, slots=True)
class Why(Reported):
    """Why a plan keeps or drops a file, a row group or the page around a row.

    ``rows`` is the half-open range of the unit's rows within the file, or None if the file was dropped
    before its footer was read. [ScanPlan.why][skipstone.ScanPlan.why] returns it.

    Examples:
        >>> import skipstone as sk
        >>> why = sk.open("events").scan("event_id = 7").plan().why("part-3.parquet")
        >>> why.kept, why.steps[-1].evidence
        (False, 'event_id: min 750, max 999, 0 nulls (row-group statistics)')
    """

    view: ClassVar[str] = "skipstone.scan.views:why_tree"

    json_also: ClassVar[Mapping[str, str]] = {"kept": "kept", "conclusion": "conclusion"}

    path: str
    unit: str
    rows: tuple[int, int] | None
    predicate: str
    verdict: Verdict
    steps: tuple[WhyStep, ...]
    ruled_out: bool = False
    """Whether the steps prove that no row matches; a limit can skip units without such a proof."""
    notes: tuple[str, ...] = ()

    @property
    def kept(self) -> bool:
        """Whether the plan reads rows of the unit."""
        return self.verdict is not Verdict.NONE

    @property
    def conclusion(self) -> str:
        """The verdict in words."""
        if self.verdict is Verdict.NONE:
            return "dropped: no row can match" if self.ruled_out else "not read"
        if self.verdict is Verdict.ALL:
            return "kept: every row matches, none needs a test"
        return "kept: rows may match and are tested when they are read"


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference that skipping made: its kind, location, and the plan's evidence."""

    kind: Kind
    path: str
    row_group: int | None
    rows: RowSet | None
    """The affected rows, as positions in the file."""
    detail: str
    why: Why | None = None
    """The evidence that led to it."""

    @property
    def place(self) -> str:
        """Location: file, row group and rows."""
        parts = [self.path, f"row group {self.row_group}" if self.row_group is not None else ""]
        if self.rows is not None:
            ranges = self.rows.ranges()
            more = f" and {count(len(ranges) - _RANGES)} more ranges" if len(ranges) > _RANGES else ""
            parts.append(", ".join(span_text(*r) for r in ranges[:_RANGES]) + more)
        return ", ".join(filter(None, parts))

    def to_json(self) -> dict[str, Any]:
        """Convert to dicts, lists, strings and numbers; rows become ranges."""
        return {
            "kind": self.kind,
            "path": self.path,
            "row_group": self.row_group,
            "rows": None if self.rows is None else [list(r) for r in self.rows.ranges()],
            "detail": self.detail,
            "why": None if self.why is None else self.why.to_json(),
        }


@dataclass(frozen=True, slots=True)
class Verification(Reported):
    """The comparison of a scan with skipping and without: the cost of both, and every difference.

    Examples:
        >>> import skipstone as sk
        >>> check = sk.open("events").scan("event_id = 7").verify()
        >>> check.ok, check.rows_matching, check.rows_read_without
        (True, 1, 1000)
    """

    view: ClassVar[str] = "skipstone.scan.views:verification_tree"

    json_also: ClassVar[Mapping[str, str]] = {"ok": "ok"}

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
    """Number of differences not listed."""

    @property
    def ok(self) -> bool:
        """Whether both results are identical."""
        return not self.differences
