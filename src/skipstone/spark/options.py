"""Options of the data source, which Spark hands over as texts."""

from __future__ import annotations

import re
from typing import Final

STORAGE: Final = "storage."
"""Options that begin with it are the object store's."""
CATALOG: Final = "catalog"
"""The option that names a catalog of tables: one that pyiceberg knows, or the path of a warehouse."""
_NAME = re.compile(r"\s*(?:`((?:[^`]|``)*)`\s*(?=,|$)|([^,]*))(?:,|$)")


def names_of(text: str | None) -> list[str] | None:
    """Names with commas between, in backticks if they have commas of their own; None for no text.

    >>> names_of("a, s.x,`b, c`")
    ['a', 's.x', 'b, c']
    """
    if text is None:
        return None
    found = [(quoted.replace("``", "`"), plain.strip()) for quoted, plain in _NAME.findall(text)]
    return [quoted or plain for quoted, plain in found if quoted or plain]


def taken(given: dict[str, str], prefix: str) -> dict[str, str]:
    """Take the options that begin with ``prefix``, without it.

    >>> options = {"storage.region": "x", "path": "p"}
    >>> taken(options, "storage."), options
    ({'region': 'x'}, {'path': 'p'})
    """
    return {key.removeprefix(prefix): given.pop(key) for key in [*given] if key.startswith(prefix)}
