"""Traces in each format, as commands and results draw them."""

from __future__ import annotations

from typing import Any

from skipstone.report.explain import aggregate_tree, prune_tree, scan_tree
from skipstone.report.html import to_html, to_page
from skipstone.report.json import to_json
from skipstone.report.text import to_text
from skipstone.report.trace import AggregateTrace, ScanTrace, Trace


def draw_trace(trace: Trace, width: int | None = None, *, color: bool = False) -> str:
    return to_text(prune_tree(trace), width, color=color)


def draw_scan(trace: ScanTrace, width: int | None = None, *, color: bool = False) -> str:
    return to_text(scan_tree(trace), width, color=color)


def draw_aggregate(trace: AggregateTrace, width: int | None = None, *, color: bool = False) -> str:
    return to_text(aggregate_tree(trace), width, color=color)


def scan_to_html(trace: ScanTrace) -> str:
    return to_html(scan_tree(trace))


def scan_to_page(trace: ScanTrace, title: str = "Scan") -> str:
    return to_page(scan_tree(trace), title)


def aggregate_to_html(trace: AggregateTrace) -> str:
    return to_html(aggregate_tree(trace))


def aggregate_to_page(trace: AggregateTrace, title: str = "Aggregation") -> str:
    return to_page(aggregate_tree(trace), title)


def trace_to_json(trace: Any) -> dict[str, Any]:
    found: dict[str, Any] = to_json(trace)
    return found


scan_to_json = aggregate_to_json = trace_to_json
