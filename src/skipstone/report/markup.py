"""HTML that is escaped by construction: text is text unless it is already markup."""

from __future__ import annotations

import html

from skipstone.report.lines import clean


class Markup(str):
    """A piece of finished HTML."""

    __slots__ = ()


Node = str | Markup


def tag(name: str, *children: Node, cls: str = "", **attributes: str) -> Markup:
    """An element around its children; plain strings among them, and all attributes, are escaped.

    >>> tag("p", "a < b", tag("b", "!"), cls="x")
    '<p class="x">a &lt; b<b>!</b></p>'
    """
    named = {"class": cls, **attributes} if cls else attributes
    opened = "".join(f' {key.replace("_", "-")}="{_escaped(value)}"' for key, value in named.items())
    return Markup(f"<{name}{opened}>{joined(*children)}</{name}>")


def joined(*nodes: Node) -> Markup:
    """Nodes one after the other."""
    return Markup("".join(node if isinstance(node, Markup) else _escaped(node) for node in nodes))


def _escaped(text: str) -> str:
    # Control, bidirectional and surrogate characters are made visible first: they survive escaping.
    return html.escape(clean(text))
