"""The content of an index."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from xxhash import xxh3_64_hexdigest

Path = tuple[str, ...]
LISTS = ("blooms", "values", "sums", "sketches", "ids")
"""Options that apply to some columns only."""


@dataclass(frozen=True, slots=True)
class Spec:
    """The indexed columns with their types, and further data to record for some of them."""

    columns: tuple[tuple[Path, pa.DataType], ...]
    pages: bool = True
    """Whether to record facts per page, and page offsets of all columns."""
    blooms: tuple[Path, ...] = ()
    """Columns to build bloom filters for: per page, or per row group if the pages are unknown."""
    own_blooms: bool = True
    """Whether to copy the bloom filters in the files."""
    values: tuple[Path, ...] = ()
    """Columns whose values are read for facts that footers lack: pages, NaN counts, distinct counts."""
    sums: tuple[Path, ...] = ()
    """Numeric columns with block aggregates."""
    sketches: tuple[Path, ...] = ()
    ids: tuple[Path, ...] = ()
    """Integer columns for which runs of consecutive values are recorded."""

    def to_json(self) -> dict[str, Any]:
        """Return the spec as JSON-compatible values."""
        return {
            "columns": [[list(path), str(type)] for path, type in self.columns],
            "pages": self.pages,
            "own_blooms": self.own_blooms,
            **{name: [list(path) for path in getattr(self, name)] for name in LISTS},
        }

    def renamed(self, rename: Callable[[Path], Path]) -> Spec:
        """Return the spec with renamed columns."""
        lists: dict[str, Any] = {name: tuple(map(rename, getattr(self, name))) for name in LISTS}
        return replace(
            self,
            columns=tuple((rename(path), type) for path, type in self.columns),
            **lists,
        )

    @property
    def digest(self) -> str:
        """Equal for specs that record the same for the same columns, whatever their types."""
        content = {**self.to_json(), "columns": [list(path) for path, _ in self.columns]}
        return xxh3_64_hexdigest(json.dumps(content, sort_keys=True).encode())


def is_spec(value: Any) -> bool:
    """Whether a value can be the JSON of a spec."""
    if not isinstance(value, dict) or {*value} != {"columns", "pages", "own_blooms", *LISTS}:
        return False
    lists = [value["columns"], *[value[name] for name in LISTS]]
    if {*map(type, lists)} != {list} or {type(value["pages"]), type(value["own_blooms"])} != {bool}:
        return False
    pairs = [pair if type(pair) is list and len(pair) == 2 else (None, None) for pair in lists[0]]
    paths: list[Any] = [path for path, _ in pairs]
    for more in lists[1:]:
        paths += more
    if not {*map(type, paths)} <= {list}:
        return False
    texts: list[Any] = [type for _, type in pairs]
    for path in paths:
        texts += path
    return {*map(type, texts)} <= {str}
