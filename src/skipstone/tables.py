"""Iceberg catalogs as users meet them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa
from pyiceberg.exceptions import NoSuchNamespaceError
from pyiceberg.table import Table as IcebergTable

from skipstone.errors import UsageError
from skipstone.iceberg.catalogs import (
    asking,
    load_table,
    open_catalog,
    static_table,
    table_name,
)
from skipstone.iceberg.create import create_table
from skipstone.iceberg.metadata import SnapshotInfo
from skipstone.scan.lake import Table
from skipstone.store.options import option_name
from skipstone.store.retry import RetryPolicy
from skipstone.store.store import Store, open_root

__all__ = ["Catalog", "SnapshotInfo", "Table", "open_table"]


class Catalog:
    """Iceberg tables by name."""

    def __init__(self, warehouse: Any = None, **properties: Any) -> None:
        self.iceberg = open_catalog(warehouse, **properties)

    def open(
        self,
        name: str,
        *,
        snapshot: Any = None,
        storage_options: Mapping[str, Any] | None = None,
        retry: RetryPolicy | None = None,
        index_root: Any = None,
        stay_below_root: bool = False,
    ) -> Table:
        """A table as it is now, or at a snapshot; the options are those of :func:`skipstone.open`."""
        root = None if index_root is None else open_root(index_root, storage_options=storage_options)
        return open_table(
            name,
            self.iceberg,
            snapshot=snapshot,
            storage_options=storage_options,
            retry=retry,
            index_root=root,
            stay_below_root=stay_below_root,
        )

    def tables(self, namespace: str | None = None) -> list[str]:
        """The names of the tables in a namespace, or in all."""
        with asking(self.iceberg, namespace or ""):
            names = [namespace] if namespace is not None else self._namespaces(())
            found = [table for name in names for table in self.iceberg.list_tables(name)]
        return sorted(".".join(table) for table in found)

    def _namespaces(self, above: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        for name in self.iceberg.list_namespaces(above):
            yield name
            # Some catalogs have no namespaces inside others, and say so by refusing to look.
            with suppress(NoSuchNamespaceError):
                yield from self._namespaces(name)

    def create_table(
        self,
        name: str,
        schema: pa.Schema,
        *,
        partition_by: Iterable[str] = (),
        sort_by: Iterable[str] = (),
        location: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Table:
        """Make an empty table; its namespace is made if need be.

        ``partition_by`` has columns and transforms, as in ``["day(ts)", "bucket(16, id)", "region"]``;
        ``sort_by`` columns, as in ``["ts desc", "id"]``.
        """
        made = create_table(
            self.iceberg, name, schema, partition_by, sort_by, location, dict(properties or {})
        )
        return Table(made)

    def drop_table(self, name: str) -> None:
        """Forget a table; its files stay."""
        with asking(self.iceberg, table_name(name)):
            self.iceberg.drop_table(table_name(name))

    def __repr__(self) -> str:
        return f"Catalog({self.iceberg.name!r})"


def open_table(
    x: Any,
    catalog: Any = None,
    *,
    snapshot: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
    index_root: Store | None = None,
    stay_below_root: bool = False,
) -> Table:
    """A table: by its name in a catalog, by its metadata file, or as pyiceberg has it."""
    if isinstance(catalog, Catalog):
        catalog = catalog.iceberg
    if isinstance(x, IcebergTable):
        found = x
    elif catalog is not None:
        found = load_table(x, catalog)
    elif isinstance(x, str | os.PathLike):
        found = static_table(os.fsdecode(x), storage_properties(storage_options), storage_options or {})
    else:
        raise UsageError(f"{x!r} is not a table", hint="give its name and a catalog, or its metadata file")
    return Table(
        found,
        snapshot=snapshot,
        storage_options=storage_options,
        retry=retry,
        index_root=index_root,
        stay_below_root=stay_below_root,
    )


def storage_properties(options: Mapping[str, Any] | None) -> dict[str, str]:
    """Our storage options in pyiceberg's words, to read a metadata file with."""
    words = {
        "endpoint": "s3.endpoint",
        "access_key_id": "s3.access-key-id",
        "secret_access_key": "s3.secret-access-key",
        "session_token": "s3.session-token",
        "region": "s3.region",
    }
    given = {option_name(name): value for name, value in (options or {}).items()}
    return {theirs: str(given[ours]) for ours, theirs in words.items() if ours in given}
