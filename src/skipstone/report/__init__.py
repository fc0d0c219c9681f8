"""One tree of nodes for everything that is shown, and one renderer per format: text, HTML and JSON.

A view makes the tree from a result: ``explain`` those of traces; the others are where their results are made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from skipstone.report.node import ReportNode

_R = TypeVar("_R")


def render(result: _R, view: Callable[[_R], ReportNode], format: str, title: str = "") -> str:
    """A result as text, as JSON, or as HTML: a page of this title, an element without one."""
    if format == "json":
        import json

        from skipstone.report.json import to_json

        return json.dumps(to_json(result), indent=2)
    if format == "html":
        from skipstone.report.html import to_html, to_page

        return to_page(view(result), title) if title else to_html(view(result))
    from skipstone.report.text import to_text

    return to_text(view(result))
