"""Draws what trace/ recorded, as text for people or JSON for programs."""

from __future__ import annotations

from skipstone.explain.json import trace_to_json
from skipstone.explain.text import draw_trace

__all__ = ["draw_trace", "trace_to_json"]
