"""Draws a tree of nodes as HTML: one element with its own style sheet, or a page around it.

Nothing is fetched and nothing runs: <details> fold, and every rule is below one class.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence

from skipstone.report.lines import clean, shorten
from skipstone.report.node import (
    Bar,
    Block,
    Cell,
    Code,
    Facts,
    Figure,
    Items,
    NodeTable,
    ReportNode,
    TableColumn,
    Text,
)
from skipstone.report.units import count

ROOT = "skst"
"""The class of the outermost element, and the start of every other class."""
_MOST_ROWS = 200
_MOST_OPEN = 12
# Lists of thousands of values would fill a notebook; the JSON has them whole.
_LONGEST = 5_000
_LONGEST_CELL = 400


def to_html(node: ReportNode) -> str:
    """The tree as one element, fit for a notebook."""
    return tag("div", Markup(f"<style>{style()}</style>"), *_root(node), cls="")


def to_page(node: ReportNode, title: str) -> str:
    """The tree as a whole document."""
    head = joined(
        Markup('<meta charset="utf-8">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        tag("title", title),
        Markup(f"<style>{_PAGE}</style>"),
    )
    body = tag("body", Markup(to_html(node)))
    return "<!DOCTYPE html>\n" + tag("html", tag("head", head), body, lang="en") + "\n"


# -- markup ------------------------------------------------------------------------------------


class Markup(str):
    """A piece of finished HTML."""

    __slots__ = ()


def tag(name: str, *children: str, cls: str | None = None, **attributes: str) -> Markup:
    """An element around its children; plain strings among them, and attributes, are escaped.

    >>> tag("p", "a < b", tag("b", "!"), cls="about")
    '<p class="skst-about">a &lt; b<b>!</b></p>'
    """
    if cls is not None:
        attributes = {"class": " ".join(f"{ROOT}-{part}" for part in cls.split()) or ROOT, **attributes}
    opened = "".join(f' {key.replace("_", "-")}="{_escaped(value)}"' for key, value in attributes.items())
    return Markup(f"<{name}{opened}>{joined(*children)}</{name}>")


def joined(*nodes: str) -> Markup:
    """Nodes one after the other."""
    return Markup("".join(node if isinstance(node, Markup) else _escaped(node) for node in nodes))


def _escaped(text: str) -> str:
    # Control, bidirectional and surrogate characters are made visible first: they survive escaping.
    return html.escape(clean(text))


def _code(text: str, most: int = _LONGEST) -> Markup:
    return tag("code", shorten(clean(text), most))


# -- nodes -------------------------------------------------------------------------------------


def _root(node: ReportNode) -> Iterator[Markup]:
    if node.label:
        yield tag("div", node.label, cls="title")
    said = _first(node.said)
    if said and node.style != "code":
        yield tag("div", said, cls="about")
    about = [block for block in node.body if isinstance(block, Text)]
    yield from (_text(block, "about") for block in about)
    if said and node.style == "code":
        yield tag("div", _code(said), cls="where")
    if node.figures:
        yield tag("div", *map(_figure, node.figures), cls="cards")
    yield from (_block(block) for block in node.body if not isinstance(block, Text))
    if node.tree and node.children:
        yield tag("div", *map(_branch, node.children), cls="tree")
        yield from _legend([child.bar for child in node.children if child.bar is not None])
    elif node.children:
        for child in node.children:
            yield tag("div", child.label, cls="head")
            yield from map(_block, child.body)
    yield from map(_block, node.tail)


def _first(said: str | tuple[str, ...]) -> str:
    return said if isinstance(said, str) else said[0]


def _branch(node: ReportNode) -> Markup:
    said = tag("div", _first(node.said), cls=f"said {node.style}" if node.style else "said")
    bar = _bar(node.bar) if node.bar is not None else Markup()
    below = [tag("div", *map(_block, node.body), cls="below")] if node.body else []
    name = tag("div", node.label, cls="name", title=node.label)
    return tag("div", name, bar, said, *below, cls="row" if node.bar is not None else "row plain")


def _figure(figure: Figure) -> Markup:
    return tag(
        "div",
        tag("div", figure.label, cls="label"),
        tag("div", figure.figure, cls="figure"),
        *([_bar(figure.bar, "gauge bar")] if figure.bar is not None and figure.bar.whole else []),
        tag("div", figure.aside, cls="aside"),
        cls="card",
    )


def _bar(bar: Bar, cls: str = "bar") -> Markup:
    """Parts of a whole side by side; what they leave of it stays the colour of the ground."""
    shown = [part for part in bar.parts if part.size > 0]
    rest = bar.whole - sum(part.size for part in shown)
    said = [f"{_size(part.size)} {part.meaning}".strip() for part in shown]
    spans = [
        tag("span", style=f"flex-grow:{_size(part.size, '')};background:var(--{ROOT}-{part.ink})", title=text)
        for part, text in zip(shown, said, strict=True)
    ]
    if rest > 0:
        spans.append(tag("span", style=f"flex-grow:{_size(rest, '')}"))
    return tag("div", *spans, cls=cls, role="img", aria_label=", ".join(said) or "nothing")


def _size(size: float, thousands: str = ",") -> str:
    return f"{size:{thousands}}" if isinstance(size, int) else f"{size:.6g}"


def _legend(bars: Sequence[Bar]) -> Iterator[Markup]:
    """The inks of the bars and what they stand for, in the order of the palette."""
    seen = {part.ink: part.meaning for bar in bars for part in bar.parts if part.size > 0 and part.meaning}
    entries = [(ink, seen[ink]) for ink in _PALETTE if ink in seen]
    if entries:
        dots = [tag("span", _dot(ink), meaning) for ink, meaning in entries]
        yield tag("div", *dots, cls="legend")


def _dot(ink: str) -> Markup:
    return tag("span", cls="dot", style=f"background:var(--{ROOT}-{ink})")


# -- blocks ------------------------------------------------------------------------------------


def _block(block: Block) -> Markup:
    match block:
        case Text():
            return _text(block, "para")
        case Code():
            return joined(*(tag("pre", line) for line in block.lines))
        case Facts():
            terms = [
                tag(name, _code(part) if name == "dd" and label in block.code else part)
                for label, value in block.pairs
                for name, part in (("dt", label), ("dd", value))
            ]
            return tag("dl", *terms, cls="facts")
        case Items():
            return _items(block)
        case NodeTable():
            return _table(block)
        case ReportNode():
            return tag("div", *_root(block), cls="nested")


def _text(block: Text, cls: str) -> Markup:
    hint = {"title": block.hint} if block.hint else {}
    aside = f" · {block.aside}" if block.aside else ""
    return tag("div", f"{block.text}{aside}", cls=f"{cls} {block.style}".strip(), **hint)


def _items(block: Items) -> Markup:
    if not block.items:
        return Markup()
    summary = tag("summary", f"{block.title[:1].upper()}{block.title[1:]} ({count(len(block.items))})")
    entries = tag("div", tag("ul", *(tag("li", item) for item in block.items)), cls="scroll")
    return tag("details", summary, entries, **({"open": ""} if len(block.items) <= _MOST_OPEN else {}))


def _table(table: NodeTable) -> Markup:
    names = [
        tag("th", column.name, **({"class": f"{ROOT}-number"} if column.right else {}))
        for column in table.columns
    ]
    head = [tag("thead", tag("tr", *names))] if any(column.name for column in table.columns) else []
    rows = [
        tag("tr", *(_cell(cell, column) for cell, column in zip(row, table.columns, strict=True)))
        for row in table.rows[:_MOST_ROWS]
    ]
    more = [f"{count(len(table.rows) - len(rows))} more"] if len(table.rows) > len(rows) else []
    drawn = [tag("table", *head, tag("tbody", *rows))] if rows else []
    return joined(
        *([tag("div", table.title, cls="head")] if table.title else []),
        *(tag("div", part, cls="scroll") for part in drawn),
        *(tag("div", note, cls="aside") for note in (*more, *table.notes)),
    )


def _cell(cell: Cell, column: TableColumn) -> Markup:
    if isinstance(cell, Bar):
        return tag("td", _bar(cell, "gauge bar"), cls="wide")
    text, style = (cell, column.style) if isinstance(cell, str) else cell
    shown = shorten(clean(text), _LONGEST_CELL)
    if style == "code":
        return tag("td", tag("div", tag("code", shown), cls="clip"), cls="wide")
    classes = " ".join(filter(None, ("number" if column.right else "", style)))
    return tag("td", shown, cls=classes) if classes else tag("td", shown)


# -- style -------------------------------------------------------------------------------------

_PALETTE = {
    "ink": ("#1b2733", "#e4eaf0"),
    "soft": ("#5b6b7b", "#9aa9b8"),
    "back": ("#ffffff", "#151b21"),
    "card": ("#f5f7f9", "#1d252d"),
    "warn": ("#a15c00", "#f0b35c"),
    "bad": ("#b3261e", "#ff8a80"),
    "proven": ("#0b7a66", "#8be3d0"),
    "kept": ("#35b39a", "#3fbfa6"),
    "files": ("#3a4bb8", "#97a5ff"),
    "groups": ("#7f8fe0", "#6b7de6"),
    "pages": ("#bcc6f3", "#45539f"),
    "values": ("#0b7a66", "#8be3d0"),
    # Told apart by hue and by lightness, so that neither colour blindness nor grey print merges them.
    "constant": ("#8d99a6", "#71808f"),
    "partition": ("#4477aa", "#6699cc"),
    "bounds": ("#e08a2c", "#e69a45"),
    "nulls": ("#8c5fb5", "#a982cf"),
    "bloom": ("#cc5577", "#dd7391"),
    "dictionary": ("#d9bd3c", "#e0c95a"),
    "page": ("#8a4b2a", "#b5714c"),
    "other": ("#c3ccd4", "#4a5763"),
    "line": ("#dfe5ea", "#2f3a45"),
}
"""Inks in light and in dark, in the order of legends."""

_RULES = """
.@{color:var(--@-ink);background:var(--@-back);font:14px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,\
"Helvetica Neue",sans-serif;font-variant-numeric:tabular-nums;width:100%;max-width:1040px;padding:18px 20px;\
border:1px solid var(--@-line);border-radius:10px;box-sizing:border-box;text-align:left;\
container-type:inline-size}
.@ *{box-sizing:border-box}
.@ code,.@ pre{font:12.5px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;\
color:inherit;background:none;padding:0;margin:0;border:0;overflow-wrap:anywhere;white-space:pre-wrap}
.@ pre{margin-top:6px;padding:8px 12px;background:var(--@-card);border-radius:6px}
.@-title{font-size:17px;font-weight:650;overflow-wrap:anywhere}
.@-about{color:var(--@-soft);font-size:12.5px;margin-top:2px;max-height:4.5em;overflow:auto;\
overflow-wrap:anywhere}
.@-about.@-bold{color:inherit;font-size:15px}
.@-where{margin:10px 0 0;padding:8px 12px;border-left:3px solid var(--@-kept);background:var(--@-card);\
border-radius:0 6px 6px 0;max-height:7.5em;overflow:auto}
.@-cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:10px;margin:14px 0 0}
.@-card{background:var(--@-card);border-radius:8px;padding:10px 12px;min-width:0}
.@-label{color:var(--@-soft);font-size:11px;font-weight:600;letter-spacing:.06em;text-transform:uppercase}
.@-figure{font-size:22px;font-weight:650;line-height:1.25;overflow-wrap:anywhere}
.@-aside,.@-dim{color:var(--@-soft);font-size:12px;overflow-wrap:anywhere}
.@-bold{font-weight:650}
.@-kept,.@-known{color:var(--@-proven)}
.@-dropped{color:var(--@-soft)}
.@-warn{color:var(--@-warn)}
.@-bad{color:var(--@-bad)}
.@-para{overflow-wrap:anywhere}
.@-head{font-size:13px;font-weight:650;margin:20px 0 8px}
.@-tree{margin-top:18px}
.@-row{display:grid;grid-template-columns:108px minmax(0,1fr) 270px;gap:2px 14px;line-height:1.35;\
margin-bottom:10px}
.@-name{font-weight:600;line-height:22px;white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
.@-bar{display:flex;gap:1px;height:22px;border-radius:4px;overflow:hidden;background:var(--@-line)}
.@-bar>span{flex:1 1 0;min-width:3px}
.@-bar.@-gauge{height:5px;margin:5px 0;border-radius:2px;min-width:80px}
.@-said{font-size:12.5px;font-weight:650;padding:2px 0;overflow-wrap:anywhere}
.@-plain .@-said{grid-column:2/4}
.@-below{grid-column:2/4;font-size:12.5px;color:var(--@-soft)}
.@-legend{display:flex;flex-wrap:wrap;gap:4px 16px;margin-top:12px;color:var(--@-soft);font-size:12px}
.@-dot{display:inline-block;width:10px;height:10px;border-radius:3px;margin-right:6px;vertical-align:-1px}
.@-facts{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:4px 14px;margin:0}
.@-facts dt{color:var(--@-soft);font-weight:400;margin:0}
.@-facts dd{color:var(--@-ink);margin:0;max-height:7.5em;overflow:auto;overflow-wrap:anywhere}
.@ details{margin-top:16px}
.@ summary{cursor:pointer;font-size:13px;font-weight:650;color:var(--@-warn)}
.@-scroll{max-height:420px;overflow:auto;margin-top:6px}
.@ table{border-collapse:collapse;width:100%;font-size:12.5px;color:var(--@-ink);margin:0;border:0}
.@ th{color:var(--@-soft);font-weight:600;white-space:nowrap;position:sticky;top:0;background:var(--@-back)}
.@ th,.@ td{padding:4px 14px 4px 0;border:0;border-bottom:1px solid var(--@-line);vertical-align:top;\
text-align:left;overflow-wrap:anywhere}
.@ tr{background:none}
.@ .@-number{text-align:right;white-space:nowrap}
.@ td.@-wide{width:60%}
.@-below td{border:0;padding:1px 10px 1px 0}
.@-clip{max-height:4.5em;overflow:auto}
.@ ul{margin:6px 0 0;padding-left:18px;overflow-wrap:anywhere}
.@-nested{margin:6px 0 0;padding-left:14px;border-left:2px solid var(--@-line)}
@container (max-width:560px){
.@-row{grid-template-columns:minmax(0,1fr)}
.@-plain .@-said,.@-below{grid-column:1}
.@ td.@-wide{width:auto}
}
"""
_GROUND = ("#eceff2", "#0d1115")
_PAGE = (
    f"html{{color-scheme:light dark}}body{{margin:0;padding:24px;background:{_GROUND[0]}}}"
    f"body>.{ROOT}{{margin:0 auto}}@media (max-width:640px){{body{{padding:8px}}}}"
    f"@media (prefers-color-scheme:dark){{body{{background:{_GROUND[1]}}}}}"
)


def style() -> str:
    """The style sheet of one element; it touches nothing outside."""
    light, dark = (
        "".join(f"--{ROOT}-{name}:{pair[theme]};" for name, pair in _PALETTE.items()) for theme in (0, 1)
    )
    # Notebooks have a theme of their own, which may differ from the system's.
    themes = (
        f".{ROOT}{{{light}}}"
        f"@media (prefers-color-scheme:dark){{.{ROOT}{{{dark}}}}}"
        f'[data-jp-theme-light="true"] .{ROOT},.vscode-light .{ROOT}{{{light}}}'
        f'[data-jp-theme-light="false"] .{ROOT},.vscode-dark .{ROOT}{{{dark}}}'
    )
    return themes + _RULES.replace(".@", f".{ROOT}").replace("--@", f"--{ROOT}")
