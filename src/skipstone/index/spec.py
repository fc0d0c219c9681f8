"""What an index is to hold."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from xxhash import xxh3_64_hexdigest

Path = tuple[str, ...]
LISTS = ("blooms", "values", "sums", "sketches", "ids")
"""What is recorded of some columns only."""


@dataclass(frozen=True, slots=True)
class Spec:
    """The columns with facts and their types, and what else to record of which."""

    columns: tuple[tuple[Path, pa.DataType], ...]
    pages: bool = True
    """Whether facts go down to pages; places of pages are recorded for every column then."""
    blooms: tuple[Path, ...] = ()
    """Columns that get bloom filters made of their values: of pages, or of row groups without known pages."""
    own_blooms: bool = True
    """Whether the filters in the files are taken over."""
    values: tuple[Path, ...] = ()
    """Columns whose values are read where the footer doesn't tell: pages, NaN counts, distinct counts."""
    sums: tuple[Path, ...] = ()
    """Numeric columns with block aggregates."""
    sketches: tuple[Path, ...] = ()
    ids: tuple[Path, ...] = ()
    """Columns of whole numbers of which it is recorded where they count up from row to row."""

    def told(self) -> dict[str, Any]:
        """As plain data, the same before and after it was JSON."""
        return {
            "columns": [[list(path), str(type)] for path, type in self.columns],
            "pages": self.pages,
            "own_blooms": self.own_blooms,
            **{name: [list(path) for path in getattr(self, name)] for name in LISTS},
        }

    def under(self, rename: Callable[[Path], Path]) -> Spec:
        """The same with columns called otherwise."""

        def seen(paths: tuple[Path, ...]) -> tuple[Path, ...]:
            return tuple(map(rename, paths))

        lists: dict[str, Any] = {name: seen(getattr(self, name)) for name in LISTS}
        return replace(
            self,
            columns=tuple((rename(path), type) for path, type in self.columns),
            **lists,
        )

    @property
    def digest(self) -> str:
        """Equal where the same is recorded of the same columns, whatever their types have become since."""
        told = {**self.told(), "columns": [list(path) for path, _ in self.columns]}
        return xxh3_64_hexdigest(json.dumps(told, sort_keys=True).encode())
