"""Draws what trace/ recorded: as text or HTML for people, as JSON for programs."""

from __future__ import annotations

from skipstone.report.aggregate_html import aggregate_to_html, aggregate_to_page
from skipstone.report.aggregate_text import draw_aggregate
from skipstone.report.html import scan_to_html, scan_to_page
from skipstone.report.json import aggregate_to_json, scan_to_json, trace_to_json
from skipstone.report.scan_text import draw_scan
from skipstone.report.text import draw_trace

__all__ = [
    "aggregate_to_html",
    "aggregate_to_json",
    "aggregate_to_page",
    "draw_aggregate",
    "draw_scan",
    "draw_trace",
    "scan_to_html",
    "scan_to_json",
    "scan_to_page",
    "trace_to_json",
]
