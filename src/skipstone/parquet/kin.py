"""What the files of one schema share: a lake has many files and few schemas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from skipstone.parquet.schema import LeafColumn, leaf_columns
from skipstone.parquet.structs import FileMetaData

if TYPE_CHECKING:
    import pyarrow as pa

_MOST = 16
_known: tuple[Kin, ...] = ()


class Kin:
    """Files with the same schema elements, column orders, key-value pairs and writer.

    Everything read from these alone is worked out once, and kept in ``memo``.
    """

    __slots__ = ("_by_name", "_likeness", "arrow_schema", "leaves", "memo")

    def __init__(self, raw: FileMetaData, path: str) -> None:
        self._likeness = _likeness(raw)
        self.leaves: tuple[LeafColumn, ...] = leaf_columns(raw.schema or [], raw.column_orders, path)
        self.arrow_schema: pa.Schema | None = None
        self.memo: dict[Any, Any] = {}
        self._by_name: dict[str, list[LeafColumn]] = {}

    def leaves_of(self, name: str) -> list[LeafColumn]:
        """The leaves of a top-level column."""
        if not self._by_name:
            found: dict[str, list[LeafColumn]] = {}
            for leaf in self.leaves:
                found.setdefault(leaf.path[0], []).append(leaf)
            self._by_name = found
        return self._by_name.get(name, [])

    @classmethod
    def of(cls, raw: FileMetaData, path: str) -> Kin:
        """The kin that a file belongs to: one met lately, or a new one."""
        global _known  # noqa: PLW0603
        known, mine = _known, _likeness(raw)
        for kin in known:
            if kin._likeness == mine:
                return kin
        made = cls(raw, path)
        # Swapped in one piece: a thread that loses a race only works something out again.
        _known = (made, *known[: _MOST - 1])
        return made


def _likeness(raw: FileMetaData) -> tuple[Any, ...]:
    return (raw.created_by, raw.schema, raw.column_orders, raw.key_value_metadata)
