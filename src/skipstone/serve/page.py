"""The page in the browser: a few files of this package, without anything from elsewhere."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from skipstone.report.html import style
from skipstone.serve.gate import Answer, Call

_TYPES: Final = {
    "index.html": "text/html",
    "page.css": "text/css",
    "page.js": "text/javascript",
    "parts.js": "text/javascript",
    "views.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}
# The page loads and asks this server only, shows no markup from data, and cannot be framed by other sites.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'"
)
_HEADERS: Final = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}


def page_routes() -> list[tuple[str, str, Callable[[Call], Awaitable[Answer]]]]:
    """Method, path and handler of each of the page's files; they have no secrets and need no token."""
    folder = Path(__file__).with_name("page")
    routes = []
    for name, kind in _TYPES.items():
        path = "/" if name == "index.html" else f"/page/{name}"
        routes.append(("GET", path, _handler((folder / name).read_text(encoding="utf-8"), kind)))
    # The colours, bars and tables are those of reports.
    routes.append(("GET", "/page/report.css", _handler(style(), "text/css")))
    return routes


def _handler(text: str, kind: str) -> Callable[[Call], Awaitable[Answer]]:
    async def answer(_: Call) -> Answer:
        return Answer(text, media_type=kind, headers=_HEADERS)

    return answer
