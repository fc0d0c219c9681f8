"""Traces as JSON; keys are stable, new ones may be added."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from skipstone.report.trace import Level, Note, Trace
from skipstone.report.trace.aggregate import AggregateRun, AggregateTrace, ColumnUse, MemberUse
from skipstone.report.trace.scan import Hints, IndexUse, Phase, Reads, Run, ScanTrace


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
        "notes": [_note(note) for note in trace.notes],
    }


def scan_to_json(trace: ScanTrace) -> dict[str, Any]:
    """The whole trace of a scan as dicts, lists, strings and numbers; null where nothing is known."""
    return {
        "lake": trace.lake,
        "version": trace.version,
        "predicate": trace.predicate,
        "residual": trace.residual,
        "columns": list(trace.columns),
        "limit": trace.limit,
        "order": list(trace.order),
        "files": trace.files,
        "tasks": trace.tasks,
        "rows_total": trace.rows,
        "rows_kept": trace.rows_kept,
        "rows_proven": trace.rows_whole,
        "requests": trace.requests,
        "bytes": trace.bytes,
        "index": None if trace.index is None else _index(trace.index),
        "partitions": None if trace.partitions is None else asdict(trace.partitions),
        "deletes": None if trace.deletes is None else asdict(trace.deletes),
        "levels": [_level(level) for level in trace.levels],
        "reads": None if trace.reads is None else _reads(trace.reads),
        "hints": _hints(trace.hints),
        "spark": None if trace.spark is None else asdict(trace.spark),
        "run": None if trace.run is None else _run(trace.run),
        "unsupported": list(trace.unsupported),
        "notes": [_note(note) for note in trace.notes],
    }


def aggregate_to_json(trace: AggregateTrace) -> dict[str, Any]:
    """The whole trace of an aggregation as dicts, lists, strings and numbers; null where nothing is known."""
    return {
        "functions": list(trace.functions),
        "group_by": list(trace.group_by),
        "cached": trace.cached,
        "rows": trace.rows,
        "members": None if trace.members is None else _members(trace.members),
        "columns": [_column(use) for use in trace.columns],
        "scan": scan_to_json(trace.scan),
        "run": None if trace.run is None else _aggregate_run(trace.run),
        "notes": list(trace.notes),
    }


def _members(use: MemberUse) -> dict[str, Any]:
    return {
        "sets": list(use.sets),
        "row_groups": use.units,
        "outside": use.outside,
        "inside": use.inside,
        "partly": use.partly,
        "rows_outside": use.rows_outside,
    }


def _column(use: ColumnUse) -> dict[str, Any]:
    return {
        "column": use.column or None,
        "functions": list(use.functions),
        "rows_known": use.known,
        "rows_read": use.read,
        "answered": [asdict(level) for level in use.answered],
        "why": list(use.why),
    }


def _aggregate_run(run: AggregateRun) -> dict[str, Any]:
    return {
        "engine": run.engine,
        "rows": run.rows,
        "pieces": run.pieces,
        "seconds": run.seconds,
        "requests": run.requests,
        "bytes": run.bytes,
        "phases": [_phase(phase) for phase in run.phases],
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


def _note(note: Note) -> dict[str, Any]:
    return {"unit": note.unit, "reason": note.reason}


def _index(use: IndexUse) -> dict[str, Any]:
    return {
        "place": use.place,
        "version": use.version,
        "covered": use.covered,
        "problems": list(use.problems),
    }


def _reads(reads: Reads) -> dict[str, Any]:
    return {"requests": reads.requests, "bytes": reads.bytes, "bytes_total": reads.of_bytes}


def _hints(hints: Hints) -> dict[str, Any]:
    return {
        "materialise": hints.materialise,
        "why": hints.why,
        "threads": hints.threads,
        "batch_rows": hints.batch_rows,
        "route": hints.route,
    }


def _run(run: Run) -> dict[str, Any]:
    return {
        "rows": run.rows,
        "batches": run.batches,
        "pieces": run.pieces,
        "seconds": run.seconds,
        "requests": run.requests,
        "bytes": run.bytes,
        "phases": [_phase(phase) for phase in run.phases],
    }


def _phase(phase: Phase) -> dict[str, Any]:
    return {
        "name": phase.name,
        "rows": phase.rows,
        "requests": phase.requests,
        "bytes": phase.bytes,
        "seconds": phase.seconds,
    }
