"""Catalogs of Iceberg tables: pyiceberg's, or one of our own in a SQLite file beside the tables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skipstone.errors import ReadError, SkipstoneError, UsageError
from skipstone.store.source import local_path

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

CATALOG_FILE = "catalog.db"
"""The SQLite file of an embedded catalog, in its warehouse."""


def open_catalog(x: Any = None, **properties: Any) -> Catalog:
    """A catalog: one that is open, pyiceberg properties, a configured name, or the path of a warehouse.

    A path (anything with a slash, or an existing directory) means an embedded catalog in that directory, made
    if it is not there. A name, or None for the default one, is looked up in pyiceberg's configuration.
    """
    _check_installed()
    from pyiceberg.catalog import Catalog, load_catalog

    if isinstance(x, Catalog):
        return x
    if isinstance(x, Mapping):
        named = {str(key): value for key, value in x.items()}
        return _opened(str(named.pop("name", "default")), {**named, **properties}, load_catalog)
    if isinstance(x, os.PathLike) or (isinstance(x, str) and _is_path(x)):
        return _embedded(os.fspath(x), properties)
    if x is not None and not isinstance(x, str):
        raise UsageError(
            f"catalog={x!r}",
            hint="give a name, properties, a pyiceberg catalog, or the path of a warehouse",
        )
    return _opened(x, properties, load_catalog)


def load_table(name: Any, catalog: Any = None) -> Table:
    """A table of a catalog, by its dotted name or a tuple."""
    from pyiceberg.exceptions import NoSuchTableError

    opened = open_catalog(catalog)
    told = name if isinstance(name, str) else ".".join(name)
    if "." not in told:
        raise UsageError(f"{told!r} is no table's name", hint='give namespace and table, as in "db.events"')
    try:
        return opened.load_table(name)
    except NoSuchTableError as error:
        tables = _tables_near(opened, told)
        raise ReadError(f"the catalog {opened.name} has no such table", path=told, hint=tables) from error
    except SkipstoneError:
        raise
    except Exception as error:
        raise ReadError(f"the table can't be loaded: {_line(error)}", path=told) from error


def static_table(location: str, properties: Mapping[str, Any]) -> Table:
    """The table that a metadata file describes; it can be read and not be written to."""
    _check_installed()
    from pyiceberg.table import StaticTable

    local = local_path(location)
    if local is not None:
        location = os.path.abspath(local)  # noqa: PTH100
        if not Path(location).exists():
            raise ReadError("no such file", path=location)
    try:
        return StaticTable.from_metadata(location, dict(properties))
    except Exception as error:
        raise ReadError(f"it is no Iceberg metadata: {_line(error)}", path=location) from error


def storage_options(table: Table, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """How our store opens a table's files: the catalog's settings in obstore's words, or ``given`` ones."""
    told = {str(key): value for key, value in table.io.properties.items() if value is not None}
    found: dict[str, Any] = {}
    for theirs, ours in _OPTIONS.items():
        if theirs in told:
            found.setdefault(ours, str(told[theirs]))
    if str(told.get("s3.endpoint", "")).startswith("http://"):
        found["allow_http"] = "true"
    # Only the words that the kind of store knows.
    scheme = table.location().partition("://")[0]
    mine = {ours: value for ours, value in found.items() if ours in _KNOWN.get(scheme, ())}
    return {**mine, **(given or {})}


_OPTIONS = {
    "s3.endpoint": "endpoint",
    "s3.access-key-id": "access_key_id",
    "client.access-key-id": "access_key_id",
    "s3.secret-access-key": "secret_access_key",
    "client.secret-access-key": "secret_access_key",
    "s3.session-token": "session_token",
    "client.session-token": "session_token",
    "s3.region": "region",
    "client.region": "region",
    "s3.anonymous": "skip_signature",
    "s3.force-virtual-addressing": "virtual_hosted_style_request",
    "adls.account-name": "account_name",
    "adls.account-key": "account_key",
    "adls.sas-token": "sas_key",
    "adls.tenant-id": "tenant_id",
    "adls.client-id": "client_id",
    "adls.client-secret": "client_secret",
}
_S3 = {*(ours for theirs, ours in _OPTIONS.items() if not theirs.startswith("adls.")), "allow_http"}
_AZURE = {ours for theirs, ours in _OPTIONS.items() if theirs.startswith("adls.")}
_KNOWN = {"s3": _S3, "s3a": _S3, "abfs": _AZURE, "abfss": _AZURE, "az": _AZURE, "azure": _AZURE}


def _embedded(warehouse: str, properties: Mapping[str, Any]) -> Catalog:
    from pyiceberg.catalog.sql import SqlCatalog

    local = local_path(warehouse)
    if local is None:
        raise UsageError(
            "an embedded catalog needs a local directory",
            path=warehouse,
            hint='give pyiceberg properties: {"type": "sql", "uri": "sqlite:///...", "warehouse": "s3://..."}',
        )
    folder = Path(os.path.abspath(local))  # noqa: PTH100
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ReadError(f"it can't be a warehouse: {_line(error)}", path=str(folder)) from error
    settings = {
        "uri": f"sqlite:///{folder / CATALOG_FILE}",
        "warehouse": f"file://{folder}",
        # Writers that meet wait for one another.
        "echo": "false",
        **properties,
    }
    return SqlCatalog("skipstone", **settings)


def _opened(name: str | None, properties: Mapping[str, Any], load: Any) -> Catalog:
    try:
        found: Catalog = load(name, **properties)
    except Exception as error:
        what = f"the catalog {name!r}" if name is not None else "the default catalog"
        raise UsageError(
            f"{what} can't be opened: {_line(error)}",
            hint="give pyiceberg properties, a name of its configuration, or the path of a warehouse",
        ) from error
    return found


def _is_path(name: str) -> bool:
    return "/" in name or os.sep in name or name in (".", "..") or Path(name).is_dir()


def _tables_near(catalog: Catalog, name: str) -> str:
    try:
        namespace = name.rpartition(".")[0]
        found = [".".join(table) for table in catalog.list_tables(namespace)]
    except Exception:  # noqa: BLE001
        return "its namespace is not there either"
    return f"in its namespace are {', '.join(sorted(found)[:10])}" if found else "its namespace is empty"


def _check_installed() -> None:
    try:
        import pyiceberg  # noqa: F401
    except ImportError as error:
        raise UsageError("Iceberg tables need pyiceberg", hint="pip install 'skipstone[iceberg]'") from error


def _line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
