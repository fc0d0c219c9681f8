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
        return sorted({name for name in super().__dir__() if name[0] != "_"} - self._internal - _VIEWING)


_VIEWING = frozenset({"view", "width", "json_names", "json_also"})


class Printable(PublicNames):
    """An object with a view, which ``print()`` and notebooks show.

    In a terminal its ``repr()`` is one line: showing a lake, a table or a scan may read.
    """

    __slots__ = ()
    view: ClassVar[str]
    """Module and function of the view, which is loaded when the object is shown."""
    width: ClassVar[int | None] = None
    """Columns of ``str()`` if standard output is not a terminal; by default 100."""

    def __str__(self) -> str:
        return render(self, "text")

    def _repr_html_(self) -> str:
        from skipstone.report.html import to_html

        return to_html(shown_tree(self))

    def _label(self) -> str:
        """The object in a line, above an error."""
        return repr(self)


class Reported(Printable):
    """A result with a view, which terminals show as well, and with its data for ``to_json()``."""

    __slots__ = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # Dataclasses and tuples would show their fields and items instead, and IPython those of tuples.
        if "__repr__" not in cls.__dict__:
            cls.__repr__ = Printable.__str__  # type: ignore[assignment,method-assign]

    def to_json(self) -> dict[str, Any]:
        """Return the same as dicts, lists, strings and numbers; keys are stable, new ones may be added."""
        from skipstone.report.json import record

        return record(self)


class Traced(Reported):
    """A result that is shown as its trace."""

    __slots__ = ()
    view = "skipstone.report:trace_tree"
    trace: Any

    def to_json(self) -> dict[str, Any]:
        """Return the trace as dicts, lists, strings and numbers; keys are stable, new ones may be added."""
        made: dict[str, Any] = self.trace.to_json()
        return made


def tree_of(result: Printable) -> ReportNode:
    """Return the tree of an object."""
    module, _, name = result.view.partition(":")
    tree: ReportNode = getattr(importlib.import_module(module), name)(result)
    return tree


def trace_tree(result: Traced) -> ReportNode:
    """The tree of a result's trace."""
    return tree_of(result.trace)


def shown_tree(shown: Printable) -> ReportNode:
    """The tree of an object, or of the error: a notebook's cell that only shows must not fail."""
    from skipstone.report.node import ReportNode, Text

    try:
        return tree_of(shown)
    except Exception as error:  # noqa: BLE001
        return ReportNode(shown._label(), body=(Text(f"{type(error).__name__}: {error}", "bad"),))


class Lines(str):
    """Text that terminals show line by line."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class Drawing(Lines):
    """The text of a result; notebooks show the result as HTML."""

    __slots__ = ("result",)
    result: Reported

    def _repr_html_(self) -> str:
        return self.result._repr_html_()


def explanation(result: Reported, format: str, title: str) -> str:
    """Draw what ``explain`` returns."""
    if format == "json":
        return Lines(render(result, format))
    drawn = Drawing(render(result, format, title))
    drawn.result = result
    return drawn


def render(result: Printable, format: str, title: str = "") -> str:
    """Draw an object as text, as JSON, or as HTML: a page if it has a title, else an element."""
    if format == "json" and isinstance(result, Reported):
        import json

        return json.dumps(result.to_json(), indent=2)
    if format == "html":
        from skipstone.report.html import to_html, to_page

        return to_page(tree_of(result), title) if title else to_html(tree_of(result))
    from skipstone.report.text import terminal_width, to_text

    return to_text(tree_of(result), terminal_width() or result.width)
