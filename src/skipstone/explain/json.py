"""The trace as JSON; keys are stable, new ones may be added."""

from __future__ import annotations

from typing import Any

from skipstone.trace import Level, Trace


def trace_to_json(trace: Trace) -> dict[str, Any]:
    """The whole trace as dicts, lists, strings and numbers."""
    return {
        "path": trace.path,
        "predicate": trace.predicate,
        "rows_total": trace.rows,
        "rows_kept": trace.rows_kept,
        "rows_proven": trace.rows_whole,
        "requests": trace.requests,
        "bytes": trace.bytes,
        "levels": [_level(level) for level in trace.levels],
        "unsupported": list(trace.unsupported),
        "notes": [{"unit": note.unit, "reason": note.reason} for note in trace.notes],
    }


def _level(level: Level) -> dict[str, Any]:
    return {
        "name": level.name,
        "units": level.units,
        "kept": level.kept,
        "dropped": level.dropped,
        "proven": level.whole,
        "rows": level.rows,
        "requests": level.requests,
        "bytes": level.bytes,
        "drops": [
            {"cause": drop.cause.value, "condition": drop.condition, "units": drop.units}
            for drop in level.drops
        ],
    }
