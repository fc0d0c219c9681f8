"""What a write to a keyed table did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import ClassVar, Final, Self

from skipstone.report import Reported


@dataclass(frozen=True, slots=True)
class RowCounts:
    """Rows of a write by what happened to them."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    unchanged: int = 0
    """Rows that were already in the table with the same values, so that nothing was written for them."""

    @property
    def changed(self) -> int:
        """Rows that were inserted, updated or deleted."""
        return self.inserted + self.updated + self.deleted

    def properties(self) -> dict[str, str]:
        """Return the counts as properties of a snapshot's summary."""
        return {f"{PREFIX}{one.name}": str(getattr(self, one.name)) for one in fields(self)}

    @classmethod
    def of(cls, summary: Mapping[str, str]) -> Self:
        """Return the counts of a snapshot's summary."""
        return cls(**{one.name: int(summary.get(f"{PREFIX}{one.name}", "0")) for one in fields(cls)})


PREFIX: Final = "skipstone."
"""Beginning of the properties of a snapshot that a keyed write adds."""


@dataclass(frozen=True, slots=True)
class WriteSeconds:
    """Seconds of each phase."""

    locate: float = 0.0
    write: float = 0.0
    commit: float = 0.0
    index: float = 0.0


@dataclass(frozen=True, slots=True)
class WriteReport(Reported):
    """What a write to a keyed table did: rows, files, the snapshot, and its time.

    Examples:
        >>> import pyarrow as pa
        >>> import skipstone as sk
        >>> table = sk.open("db.accounts", catalog="warehouse")
        >>> report = table.upsert(pa.table({"id": [2, 3, 4], "v": [21, 30, 40]}))
        >>> report.inserted, report.updated, report.unchanged, report.files
        (1, 1, 1, 1)
    """

    view: ClassVar[str] = "skipstone.table.views:write_tree"
    json_also: ClassVar[Mapping[str, str]] = {name: name for name in ("inserted", "updated", "deleted")}

    table: str
    operation: str
    """``append``, ``upsert``, ``delete``, ``update`` or ``merge``."""
    rows: RowCounts
    snapshot: int | None
    """The snapshot; None if nothing changed."""
    files: int = 0
    """New data files."""
    delete_files: int = 0
    """New position delete files."""
    bytes: int = 0
    """Bytes of the new files."""
    attempts: int = 1
    """Times that the write was compared with the table; more than 1 after concurrent commits."""
    repeated: bool = False
    """Whether an earlier call with the same token had committed the write, so that nothing was done."""
    seconds: WriteSeconds = WriteSeconds()
    index_problem: str = ""
    """Why the index could not be updated; "" if it was, or if the table has none."""

    @property
    def inserted(self) -> int:
        """New rows."""
        return self.rows.inserted

    @property
    def updated(self) -> int:
        """Rows whose old version was replaced."""
        return self.rows.updated

    @property
    def deleted(self) -> int:
        """Rows that were removed."""
        return self.rows.deleted

    @property
    def unchanged(self) -> int:
        """Rows that were already in the table with the same values."""
        return self.rows.unchanged
