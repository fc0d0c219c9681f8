"""Iceberg catalogs as users meet them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.table import Table as IcebergTable

from skipstone.errors import SkipstoneError, UsageError
from skipstone.iceberg.catalogs import (
    all_namespaces,
    catalog_errors,
    embedded_folder,
    load_table,
    open_catalog,
    static_table,
    table_name,
)
from skipstone.iceberg.create import create_table
from skipstone.iceberg.metadata import SnapshotInfo
from skipstone.report import Printable
from skipstone.report.units import plural
from skipstone.scan.table import Table
from skipstone.store.retry import RetryPolicy
from skipstone.store.store import Store, open_root

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog as IcebergCatalog

    from skipstone.report.node import ReportNode
    from skipstone.typing import CatalogLike, SnapshotLike, StorageOptions, StrPath

__all__ = ["Catalog", "SnapshotInfo", "Table", "open_table"]


class Catalog(Printable):
    """A catalog of Iceberg tables; [catalog][skipstone.catalog] opens one.

    Attributes:
        iceberg: The catalog as a pyiceberg object.

    Examples:
        >>> import skipstone as sk
        >>> catalog = sk.catalog("warehouse")
        >>> catalog.open("db.events").scan("event_id < 10").count()
        10
    """

    view = "skipstone.tables:catalog_tree"
    iceberg: IcebergCatalog

    def __init__(self, warehouse: CatalogLike | None = None, **properties: str) -> None:
        if isinstance(warehouse, Catalog):
            self.iceberg = warehouse.iceberg
        else:
            self.iceberg = open_catalog(warehouse, make=True, **properties)

    def open(
        self,
        name: str,
        *,
        snapshot: SnapshotLike | None = None,
        storage_options: StorageOptions | None = None,
        retry: RetryPolicy | None = None,
        index_root: StrPath | None = None,
        stay_below_root: bool = False,
    ) -> Table:
        """Open a table; [open][skipstone.open] documents the options.

        Args:
            name: The table's name with its namespace, as in ``"db.events"``.
        """
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
        """Return the names of all tables, or of those in one namespace, sorted."""
        with catalog_errors(self.iceberg, namespace or ""):
            names = [namespace] if namespace is not None else all_namespaces(self.iceberg)
            found = [table for name in names for table in self.iceberg.list_tables(name)]
        return sorted(".".join(table) for table in found)

    def create_table(
        self,
        name: str,
        schema: pa.Schema,
        *,
        key: str | Iterable[str] = (),
        partition_by: Iterable[str] = (),
        sort_by: Iterable[str] = (),
        location: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Table:
        """Create an empty table, and its namespace if it doesn't exist.

        Args:
            name: The table's name with its namespace.
            schema: Columns and types.
            key: Columns of the key, which identifies rows: no snapshot has two rows of one key. They become
                required, and have bloom filters and exact bounds.
            partition_by: Columns and transforms, as in ``["day(ts)", "bucket(16, id)", "region"]``.
            sort_by: Columns of the sort order, as in ``["ts desc", "id"]``; by default the key.
            location: The directory of the table; by default in the warehouse.
            properties: Properties of the table.

        Examples:
            >>> import pyarrow as pa
            >>> import skipstone as sk
            >>> schema = pa.schema({"id": pa.int64(), "ts": pa.timestamp("us", "UTC")})
            >>> catalog = sk.catalog("warehouse")
            >>> table = catalog.create_table("db.clicks", schema, partition_by=["day(ts)"], sort_by=["id"])
            >>> table.scan().count()
            0
            >>> catalog.drop_table("db.clicks")
        """
        made = create_table(
            self.iceberg, name, schema, partition_by, sort_by, location, dict(properties or {}), key
        )
        return Table(made)

    def drop_table(self, name: str) -> None:
        """Remove a table from the catalog; its files are not deleted."""
        with catalog_errors(self.iceberg, table_name(name)):
            self.iceberg.drop_table(table_name(name))

    def __repr__(self) -> str:
        folder = embedded_folder(self.iceberg)
        if folder is None:
            return f"Catalog({self.iceberg.name!r})"
        # From a local file: other catalogs would have to be asked.
        with suppress(SkipstoneError):
            return f"Catalog({folder!r}, {plural(len(self.tables()), 'table')})"
        return f"Catalog({folder!r})"


def catalog_tree(catalog: Catalog) -> ReportNode:
    """The view of a catalog: its tables, which are listed for it."""
    from skipstone.inspection import views

    where = embedded_folder(catalog.iceberg) or catalog.iceberg.name
    return views.catalog_tree(where, catalog.tables())


def open_table(
    x: StrPath | IcebergTable,
    catalog: CatalogLike | None = None,
    *,
    snapshot: SnapshotLike | None = None,
    storage_options: StorageOptions | None = None,
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
        found = static_table(os.fsdecode(x), storage_options)
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
