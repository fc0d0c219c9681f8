"""One tree of nodes for everything that is shown, and one renderer per format: text, HTML and JSON.

A result is a :class:`Reported` object that names its view, the function that makes its tree. Views of
traces are in ``explain``; the others are in the ``views`` module of the package that makes the result.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from skipstone.report.node import ReportNode


class PublicNames:
    """An object whose ``dir()`` lists only what users call."""

    __slots__ = ()
    _internal: ClassVar[frozenset[str]] = frozenset()
    """Names without an underscore that other packages use, and users don't."""

    def __dir__(self) -> list[str]:
        return sorted({name for name in super().__dir__() if name[0] != "_"} - self._internal)


class Reported(PublicNames):
    """A result with a view: text for ``str()``, HTML for notebooks, and its data for ``to_json()``."""

    __slots__ = ()
    _internal = frozenset({"view", "width", "json_names", "json_also"})
    view: ClassVar[str]
    """Module and function of the view, which is loaded when the result is shown."""
    width: ClassVar[int | None] = None
    """Columns of ``str()``; by default 100."""

    def to_json(self) -> dict[str, Any]:
        """Return the same as dicts, lists, strings and numbers; keys are stable, new ones may be added."""
        from skipstone.report.json import record

        return record(self)

    def __str__(self) -> str:
        return render(self, "text")

    def _repr_html_(self) -> str:
        return render(self, "html")


def tree_of(result: Reported) -> ReportNode:
    """Return the tree of a result."""
    module, _, name = result.view.partition(":")
    tree: ReportNode = getattr(importlib.import_module(module), name)(result)
    return tree


class Drawing(str):
    """The text of a result; notebooks show the result as HTML."""

    __slots__ = ("result",)
    result: Reported

    def _repr_html_(self) -> str:
        return self.result._repr_html_()


def explanation(result: Reported, format: str, title: str) -> str:
    """Draw what ``explain`` returns."""
    drawn = Drawing(render(result, format, title))
    drawn.result = result
    return drawn if format != "json" else str(drawn)


def render(result: Reported, format: str, title: str = "") -> str:
    """Draw a result as text, as JSON, or as HTML: a page if it has a title, else an element."""
    if format == "json":
        import json

        return json.dumps(result.to_json(), indent=2)
    if format == "html":
        from skipstone.report.html import to_html, to_page

        return to_page(tree_of(result), title) if title else to_html(tree_of(result))
    from skipstone.report.text import to_text

    return to_text(tree_of(result), result.width)
