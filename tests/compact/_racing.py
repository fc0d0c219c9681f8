"""A catalog in which another writer commits first, and tables in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

import skipstone as sk

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string())])


class RacingCatalog(SqlCatalog):
    """Lets others commit just before the next commits: one function per commit."""

    others: list[Callable[[], Any]]
    commits = 0

    def commit_table(self, *args: Any, **named: Any) -> Any:
        """Commit after the next other."""
        self.commits += 1
        if self.others:
            self.others.pop(0)()
        return super().commit_table(*args, **named)


def racing(root: Path) -> RacingCatalog:
    uri = f"sqlite:///{root}/warehouse/catalog.db"
    io = "skipstone.iceberg.writing.target.DurableFileIO"
    catalog = RacingCatalog("skipstone", uri=uri, warehouse=f"file://{root}/warehouse", **{"py-io-impl": io})
    catalog.others = []
    return catalog


def rows(first: int, last: int, parts: str = "ab") -> pa.Table:
    ids = list(range(first, last))
    return pa.table([ids, [parts[n % len(parts)] for n in ids]], schema=SCHEMA)


def make(root: Path, appends: int = 4, **options: Any) -> sk.Table:
    """A table with ten rows per append, by ``p``."""
    catalog = sk.catalog(root / "warehouse")
    table = catalog.create_table("db.t", SCHEMA, partition_by=["p"], **options)
    for first in range(0, 10 * appends, 10):
        table.table.append(rows(first, first + 10))
    return table.refresh()


def ids_of(table: sk.Table, snapshot: Any = None) -> list[int]:
    found: list[int] = table.scan(snapshot=snapshot).to_arrow()["id"].to_pylist()
    return sorted(found)
