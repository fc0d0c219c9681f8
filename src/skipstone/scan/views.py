"""What ``why`` and ``verify`` found out, as trees.

day=2026-01-01/f0.parquet  user_id = 42
│  row group 2, rows 50,000–74,999
├─ partitions  kept
│     day >= '2026-01-01': day = 2026-01-01 (partition)
├─ row groups  dropped by bounds
│     user_id = 42: user_id: min 1,000, max 2,000, 0 nulls (row-group statistics)
└─ dropped: no row can match

lake/events  user_id = 42
├─ compared  4 files, 400,000 rows: each read whole by pyarrow and tested row by row
├─ matching  57 rows, 0 of them proven by metadata
├─ rows      █░░░░░░░░░░░░░░░░░░░  5,000 instead of 400,000 (1.3 %)
├─ bytes     █░░░░░░░░░░░░░░░░░░░  80.0 kB instead of 8.1 MB (1 %)
├─ time      12.0 ms instead of 120 ms
└─ ✓ no difference: the same rows with the same values
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from skipstone.core.judge import Verdict
from skipstone.report.explain import EVERY_ROW, cause_name
from skipstone.report.node import Bar, Block, Items, ReportNode, Text
from skipstone.report.units import count, duration, percent, plural, size, span_text
from skipstone.scan.results import Kind, Verification, Why, WhyStep

_VERDICTS = {Verdict.NONE: "dropped", Verdict.SOME: "kept", Verdict.ALL: "kept whole"}
_STYLES = {Verdict.NONE: "bad", Verdict.SOME: "kept", Verdict.ALL: "kept"}
_PER_VERDICT = 3
_MEANING: dict[Kind, str] = {
    "lost": "matching rows are missing",
    "false proof": "rows said to be proven don't match",
    "wrong values": "rows came back with other values",
    "extra rows": "rows came back that don't match",
    "wrong order": "rows came back in another order, or others than the first ones",
}


def why_tree(why: Why) -> ReportNode:
    """What each level says of the unit, and the conclusion."""
    unit = why.unit
    if why.rows is not None and why.rows[0] < why.rows[1]:
        rows = span_text(*why.rows)
        unit = unit if rows in unit else f"{unit}, {rows}"
    levels = [_level(name, list(steps)) for name, steps in groupby(why.steps, key=lambda step: step.level)]
    return ReportNode(
        why.path,
        why.predicate or EVERY_ROW,
        "code",
        body=(Text(unit, "dim", 1),),
        children=(*levels, ReportNode(said=why.conclusion, style="bold")),
        tail=(Items("notes", why.notes),),
    )


def _level(name: str, steps: Sequence[WhyStep]) -> ReportNode:
    if len(steps) == 1:
        (only,) = steps
        return ReportNode(name, _verdict(only), _STYLES[only.verdict], body=(_evidence(only),))
    kept = sum(step.verdict is not Verdict.NONE for step in steps)
    whole = sum(step.verdict is Verdict.ALL for step in steps)
    said = f"kept {count(kept)} of {count(len(steps))}{f', {count(whole)} whole' if whole else ''}"
    return ReportNode(name, said, "kept" if kept else "bad", body=tuple(_units(steps)))


def _units(steps: Sequence[WhyStep]) -> Iterator[Block]:
    for verdict in (Verdict.ALL, Verdict.SOME, Verdict.NONE):
        mine = [step for step in steps if step.verdict is verdict]
        # One too many takes the line that would say so.
        shown = mine if len(mine) <= _PER_VERDICT + 1 else mine[:_PER_VERDICT]
        for step in shown:
            yield Text(f"{step.unit} {_verdict(step)}", _STYLES[verdict], 1)
            yield _evidence(step, indent=2)
        if len(mine) > len(shown):
            yield Text(f"{count(len(mine) - len(shown))} more {_VERDICTS[verdict]}", "dim")


def _verdict(step: WhyStep) -> str:
    cause = f" by {cause_name(step.cause)}" if step.cause is not None else ""
    return _VERDICTS[step.verdict] + cause


def _evidence(step: WhyStep, indent: int = 0) -> Text:
    text = f"{step.condition}: {step.evidence}" if step.condition else step.evidence
    return Text(text, indent=indent, hang=2)


def verification_tree(found: Verification) -> ReportNode:
    """What was compared, what skipping saved, and every difference."""
    seen = f"{plural(found.files, 'file')}, {plural(found.rows_read_without, 'row')}"
    proven = f"{count(found.rows_proven)} of them proven by metadata"
    shares = (
        ("rows", found.rows_read_with, found.rows_read_without, count),
        ("bytes", found.bytes_with, found.bytes_without, size),
    )
    differences = plural(len(found.differences) + found.left_out, "difference")
    same = ReportNode(said="✓ no difference: the same rows with the same values", style="kept")
    return ReportNode(
        found.lake,
        found.predicate or EVERY_ROW,
        "code",
        children=(
            ReportNode("compared", (f"{seen}: each read whole by pyarrow and tested row by row", seen)),
            ReportNode("matching", f"{plural(found.rows_matching, 'row')}, {proven}"),
            *(
                ReportNode(name, _saved(text(part), text(of), percent(part, of)), bar=Bar.of(part, of))
                for name, part, of, text in shares
            ),
            ReportNode(
                "time", f"{duration(found.seconds_with)} instead of {duration(found.seconds_without)}"
            ),
            same
            if found.ok
            else ReportNode(said=f"✗ {differences}", style="bad", body=tuple(_differences(found))),
        ),
    )


def _saved(part: str, whole: str, share: str) -> tuple[str, ...]:
    said = f"{part} instead of {whole}"
    return f"{said} ({share})", said, part


def _differences(found: Verification) -> Iterator[Block]:
    for difference in found.differences:
        rows = f"{plural(len(difference.rows), 'row')}: " if difference.rows is not None else ""
        head = f"{difference.kind}: {_MEANING[difference.kind]}: {rows}{difference.place}"
        yield Text(head, "bad")
        yield Text(difference.detail, most=2, indent=2)
        if difference.why is not None:
            yield why_tree(difference.why)
    if found.left_out:
        yield Text(f"{count(found.left_out)} more", "dim")
