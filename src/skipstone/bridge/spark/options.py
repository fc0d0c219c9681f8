"""Options of the data source, which Spark hands over as texts."""

from __future__ import annotations

import re
from typing import Final

STORAGE: Final = "storage."
"""Options that begin with it are the object store's."""
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
