"""Why one unit was kept or dropped: the statements of each level with the statistic they rest on.

day=2026-01-01/f0.parquet  user_id = 42
│  row group 2, rows 50,000–74,999
├─ partitions  kept
│     day >= '2026-01-01': day = 2026-01-01 (partition)
├─ row groups  dropped by bounds
│     user_id = 42: user_id: min 1,000, max 2,000, 0 nulls (row-group statistics)
└─ dropped: no row can match
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from skipstone.core.judge import Verdict
from skipstone.report.lines import clean, paint, shorten, wrap
from skipstone.report.trace import Cause
from skipstone.report.tree import Layout, Line, header, listed, stem
from skipstone.report.units import count
from skipstone.report.words import EVERY_ROW, cause_name

_WORDS = {Verdict.NONE: "dropped", Verdict.SOME: "kept", Verdict.ALL: "kept whole"}
_STYLES = {Verdict.NONE: "bad", Verdict.SOME: "kept", Verdict.ALL: "kept"}
_PER_VERDICT = 3
_LINES = 3


@dataclass(frozen=True, slots=True)
class WhyStep:
    """What one level says about one unit: its verdict, the condition it turns on, and the evidence."""

    level: str
    unit: str
    verdict: Verdict
    condition: str
    """For a dropped unit the condition that no row can satisfy, else those that are still open."""
    evidence: str
    cause: Cause | None = None
    """The kind of evidence that dropped the unit."""

    def to_json(self) -> dict[str, Any]:
        """The step as strings."""
        return {
            "level": self.level,
            "unit": self.unit,
            "verdict": self.verdict.name,
            "condition": self.condition,
            "evidence": self.evidence,
            "cause": self.cause.value if self.cause is not None else None,
        }


@dataclass(frozen=True, slots=True)
class Why:
    """Why a plan keeps or drops a file, a row group or the page around a row.

    ``rows`` are the unit's first row and the one after its last, counted within the file; None where the
    directory alone ruled the file out, so that no footer was opened.
    """

    path: str
    unit: str
    rows: tuple[int, int] | None
    predicate: str
    verdict: Verdict
    steps: tuple[WhyStep, ...]
    ruled_out: bool = False
    """Whether the steps prove that no row can match; a limit may leave out units without such a proof."""
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
        return "kept: rows may match, and are tested when they are read"

    def to_json(self) -> dict[str, Any]:
        """The whole story as dicts, lists, strings and numbers."""
        return {
            "path": self.path,
            "unit": self.unit,
            "rows": None if self.rows is None else list(self.rows),
            "predicate": self.predicate,
            "verdict": self.verdict.name,
            "kept": self.kept,
            "ruled_out": self.ruled_out,
            "conclusion": self.conclusion,
            "steps": [step.to_json() for step in self.steps],
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        return draw_why(self)


def draw_why(why: Why, *, width: int | None = None, color: bool = False) -> str:
    """Draw the story in at most ``width`` columns (100 unless given), without a final line break."""
    levels = [(name, list(steps)) for name, steps in groupby(why.steps, key=lambda step: step.level)]
    layout = Layout.of([name for name, _ in levels], width)
    lines = [header(why.path, why.predicate or EVERY_ROW, layout.room)]
    lines.append([("│  ", ""), (shorten(clean(unit_text(why)), layout.room - 3), "dim")])
    for name, steps in levels:
        lines += _level(name, steps, layout)
    lines.append([("└─ ", ""), (shorten(why.conclusion, layout.room - 3), "bold")])
    lines += listed("notes", why.notes, layout.room)
    return "\n".join(paint(line, color=color) for line in lines)


def unit_text(why: Why) -> str:
    """The unit with its rows, as far as they are known."""
    if why.rows is None or why.rows[0] >= why.rows[1]:
        return why.unit
    rows = span_text(*why.rows)
    return why.unit if rows in why.unit else f"{why.unit}, {rows}"


def span_text(start: int, stop: int) -> str:
    """Rows from the first to the last of a range.

    >>> span_text(0, 60_000), span_text(7, 8)
    ('rows 0–59,999', 'row 7')
    """
    return f"rows {count(start)}–{count(stop - 1)}" if stop - start != 1 else f"row {count(start)}"


def _level(name: str, steps: Sequence[WhyStep], layout: Layout) -> Iterator[Line]:
    head = layout.head(name, last=False)
    below = stem(last=False)
    if len(steps) == 1:
        (only,) = steps
        yield [(head, ""), (_verdict(only), _STYLES[only.verdict])]
        yield from _said(only, below, layout.room)
        return
    kept = sum(step.verdict is not Verdict.NONE for step in steps)
    whole = sum(step.verdict is Verdict.ALL for step in steps)
    proven = f", {count(whole)} whole" if whole else ""
    yield [(head, ""), (f"kept {count(kept)} of {count(len(steps))}{proven}", "kept" if kept else "bad")]
    for verdict in (Verdict.ALL, Verdict.SOME, Verdict.NONE):
        mine = [step for step in steps if step.verdict is verdict]
        # One too many takes the line that would say so.
        shown = mine if len(mine) <= _PER_VERDICT + 1 else mine[:_PER_VERDICT]
        for step in shown:
            told = f"{clean(step.unit)} {_verdict(step)}"
            yield [(below, ""), (shorten(told, layout.room - len(below)), _STYLES[verdict])]
            yield from _said(step, below + "  ", layout.room)
        if len(mine) > len(shown):
            yield [(below, ""), (f"{count(len(mine) - len(shown))} more {_WORDS[verdict]}", "dim")]


def _verdict(step: WhyStep) -> str:
    cause = f" by {cause_name(step.cause)}" if step.cause is not None else ""
    return _WORDS[step.verdict] + cause


def _said(step: WhyStep, below: str, room: int) -> Iterator[Line]:
    text = f"{step.condition}: {step.evidence}" if step.condition else step.evidence
    for number, line in enumerate(wrap(clean(text), room - len(below) - 2, _LINES)):
        yield [(below + "  " * bool(number), ""), (line, "")]
