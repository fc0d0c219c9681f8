"""Catalogs of Iceberg tables: pyiceberg's, or one of our own in a SQLite file beside the tables."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skipstone.errors import CorruptFileError, ReadError, SkipstoneError, UsageError, scrub
from skipstone.lake.files import Files
from skipstone.store.absolute import AbsoluteStore, local_name
from skipstone.store.local import make_directories
from skipstone.store.options import StoreOptions, option_name
from skipstone.store.source import local_path

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from skipstone.typing import CatalogLike

METADATA_FILES = (".metadata.json", ".metadata.json.gz")
"""How the names of files end that describe a table."""
CATALOG_FILE = "catalog.db"
"""The SQLite file of an embedded catalog, in its warehouse."""
_MANY = 10
_DURABLE = "skipstone.iceberg.writing.target.DurableFileIO"


def open_catalog(x: CatalogLike | None = None, *, make: bool = True, **properties: str) -> Catalog:
    """A catalog: one that is open, pyiceberg properties, a configured name, or the path of a warehouse.

    A path (anything with a slash, or an existing directory) means an embedded catalog in that directory; if
    it is not there it is made, or without ``make`` it is an error. A name, or None for the default one, is
    looked up in pyiceberg's configuration.
    """
    check_installed()
    from pyiceberg.catalog import Catalog, load_catalog

    if isinstance(x, Catalog):
        return x
    if isinstance(x, Mapping):
        named = {str(key): value for key, value in x.items()}
        return _opened(str(named.pop("name", "default")), {**named, **properties}, load_catalog)
    if isinstance(x, os.PathLike) or (isinstance(x, str) and _is_path(x)):
        return _embedded(os.fspath(x), properties, make=make)
    if x is not None and not isinstance(x, str):
        raise UsageError(
            f"catalog={x!r}",
            hint="give a name, properties, a pyiceberg catalog, or the path of a warehouse",
        )
    return _opened(x, properties, load_catalog)


def load_table(name: Any, catalog: CatalogLike | None = None) -> Table:
    """A table of a catalog, by its dotted name or a tuple."""
    opened = open_catalog(catalog, make=False)
    from skipstone.iceberg.metadata import tolerant

    with asking(opened, table_name(name)):
        try:
            return tolerant(lambda: opened.load_table(name))
        except UnicodeDecodeError as error:
            raise ReadError(
                "the table's metadata is not plain text, and pyiceberg reads no compressed metadata but gzip",
                path=table_name(name),
                hint="open its metadata file instead: sk.open('.../x.metadata.json')",
            ) from error


def table_name(name: Any) -> str:
    """A table's dotted name: with a namespace, and without empty parts."""
    parts = name.split(".") if isinstance(name, str) else name
    named = isinstance(parts, list | tuple) and len(parts) > 1
    if not named or not all(isinstance(part, str) and part.strip() for part in parts):
        raise UsageError(f"invalid table name {name!r}", hint='give namespace and table, as in "db.events"')
    return ".".join(parts)


_TABLE_NAME = re.compile(r"[^\W\d][\w-]*(?:\.[^\W\d][\w-]*)+")
_FILES = ("parquet", "parq", "pq")


def is_table_name(text: str) -> bool:
    """Whether a text looks like a table's name, and not like a path or a file.

    >>> [is_table_name(text) for text in ("db.events", "./db.events", "events", "events.parquet", "v1.2")]
    [True, False, False, False, False]
    """
    return _TABLE_NAME.fullmatch(text) is not None and text.rpartition(".")[2].lower() not in _FILES


@contextmanager
def asking(catalog: Catalog, name: str) -> Iterator[None]:
    """Ask a catalog about a table or a namespace: what it refuses is an error of ours."""
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    try:
        yield
    except SkipstoneError:
        raise
    except NoSuchTableError as error:
        hint = _tables_near(catalog, name)
        raise ReadError(f"the catalog {catalog.name} has no such table", path=name, hint=hint) from error
    except NoSuchNamespaceError as error:
        hint = _namespaces(catalog)
        what = f"the catalog {catalog.name} has no such namespace"
        raise ReadError(what, path=name or None, hint=hint) from error
    except Exception as error:
        hint = f"that is what the catalog {catalog.name} says ({type(error).__name__})"
        raise ReadError(reason(error), path=name or None, hint=hint) from error


def static_table(
    location: str, properties: Mapping[str, Any], options: Mapping[str, Any] | None = None
) -> Table:
    """The table that a metadata file describes; it can be read and not be written to.

    ``properties`` are for pyiceberg, ``options`` for our own store, which reads the file.
    """
    check_installed()
    from pyiceberg.io import load_file_io
    from pyiceberg.table import StaticTable

    from skipstone.iceberg.metadata import read_metadata

    local, bare = local_path(location), local_name(location)
    if local is not None and bare is not None:
        # As Iceberg writes locations a percent sign stands for itself, as a URI it does not.
        location = os.path.abspath(bare if Path(bare).exists() else local)  # noqa: PTH100
    try:
        store = AbsoluteStore(location, _options(properties, location, options))
        data = Files(store).read_whole(location)
    except ReadError as error:
        error.hint = error.hint or "give the newest .metadata.json of the table, or its name and a catalog"
        raise
    try:
        metadata = read_metadata(data)
        io = load_file_io(dict(properties), location)
    except Exception as error:
        raise CorruptFileError(
            f"table metadata can't be read: {reason(error)}",
            path=location,
            hint="give another metadata file of the table, or its name and a catalog",
        ) from error
    return StaticTable((location,), metadata, location, io, _no_catalog())


def table_root(metadata_file: str) -> str:
    """The directory that a table lies in by where its metadata file is, whatever the file says of it.

    >>> table_root("s3://lake/events/metadata/v3.metadata.json"), table_root("/tmp/v3.metadata.json")
    ('s3://lake/events', '/tmp')
    """
    folder = metadata_file.rpartition("/")[0]
    return folder.removesuffix("/metadata")


def _no_catalog() -> Catalog:
    from pyiceberg.catalog.noop import NoopCatalog

    return NoopCatalog("metadata file")


def storage_options(table: Table, given: Mapping[str, Any] | None = None) -> StoreOptions:
    """How our store opens a table's files: the catalog's settings in obstore's words, or ``given`` ones."""
    return _options(table.io.properties, table.location(), given)


def _options(properties: Mapping[str, Any], location: str, given: Mapping[str, Any] | None) -> StoreOptions:
    stated = {str(key): value for key, value in properties.items() if value is not None}
    found: dict[str, Any] = {}
    for theirs, ours in _OPTIONS.items():
        if theirs in stated:
            found.setdefault(ours, str(stated[theirs]))
    if str(stated.get("s3.endpoint", "")).startswith("http://"):
        found["allow_http"] = "true"
    # Only the words that the kind of store knows.
    known = _KNOWN.get(location.partition("://")[0], frozenset())
    left = known - {option_name(name) for name in given or {}}
    return StoreOptions({**{ours: value for ours, value in found.items() if ours in left}, **(given or {})})


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
# Where readers that take a location for a URL think that its path ends, or drop a character.
_NO_LOCATION = frozenset("?#\n\r\t")
_AZURE = frozenset(ours for theirs, ours in _OPTIONS.items() if theirs.startswith("adls."))
_S3 = frozenset({*_OPTIONS.values(), "allow_http"} - _AZURE)
_KNOWN = {"s3": _S3, "s3a": _S3, "abfs": _AZURE, "abfss": _AZURE, "az": _AZURE, "azure": _AZURE}


def _embedded(warehouse: str, properties: Mapping[str, Any], *, make: bool) -> Catalog:
    from pyiceberg.catalog.sql import SqlCatalog
    from sqlalchemy.engine import URL
    from sqlalchemy.exc import SQLAlchemyError

    local = local_path(warehouse)
    if local is None:
        raise UsageError(
            "an embedded catalog needs a local directory",
            path=warehouse,
            hint='give pyiceberg properties: {"type": "sql", "uri": "sqlite:///...", "warehouse": "s3://..."}',
        )
    folder = Path(os.path.abspath(local))  # noqa: PTH100
    if not make and not (folder / CATALOG_FILE).exists():
        raise ReadError(
            "no embedded catalog in this directory", path=str(folder), hint="sk.catalog(path) makes one"
        )
    odd = sorted({*str(folder)} & _NO_LOCATION)
    if odd:
        raise UsageError(
            f"a warehouse can't have {odd[0]!r} in its path, which ends a location for other readers",
            path=str(folder),
            hint="give another directory",
        )
    uri = URL.create("sqlite", database=str(folder / CATALOG_FILE)).render_as_string(hide_password=False)
    settings = {"uri": uri, "warehouse": f"file://{folder}", "py-io-impl": _DURABLE, **properties}
    try:
        make_directories(folder)
        with suppress(SQLAlchemyError):
            return SqlCatalog("skipstone", **settings)
        # Somebody else may have been making it at the same moment.
        return SqlCatalog("skipstone", **settings)
    except Exception as error:
        raise ReadError(
            f"the directory can't be a warehouse: {reason(error)}",
            path=str(folder),
            hint=f"give a directory that can be written to, where {CATALOG_FILE} is a catalog or not there",
        ) from error


def _opened(name: str | None, properties: Mapping[str, Any], load: Any) -> Catalog:
    try:
        found: Catalog = load(name, **properties)
    except Exception as error:
        what = f"the catalog {name!r}" if name is not None else "the default catalog"
        raise UsageError(
            f"{what} can't be opened: {reason(error)}",
            hint="give pyiceberg properties, a name of its configuration, or the path of a warehouse",
        ) from error
    return found


def _is_path(name: str) -> bool:
    return "/" in name or os.sep in name or name in (".", "..") or Path(name).is_dir()


def _tables_near(catalog: Catalog, name: str) -> str:
    try:
        namespace = name.rpartition(".")[0]
        found = sorted(".".join(table) for table in catalog.list_tables(namespace))
    except Exception:  # noqa: BLE001  (it is only a hint)
        return f"its namespace is not there either; {_namespaces(catalog)}"
    return f"in its namespace are {_some(found)}" if found else "its namespace is empty"


def _namespaces(catalog: Catalog) -> str:
    try:
        found = sorted(".".join(name) for name in catalog.list_namespaces())
    except Exception:  # noqa: BLE001  (it is only a hint)
        return "its namespaces can't be listed"
    return f"namespaces are {_some(found)}" if found else "there are no namespaces yet"


def _some(names: list[str]) -> str:
    return ", ".join(names[:_MANY]) + (f" and {len(names) - _MANY:,} more" if len(names) > _MANY else "")


def check_installed() -> None:
    """Refuse tables where pyiceberg is not installed."""
    try:
        import pyiceberg  # noqa: F401
    except ImportError as error:
        raise UsageError("Iceberg tables need pyiceberg", hint="pip install 'skipstone[iceberg]'") from error


def reason(error: Exception) -> str:
    """What a library says went wrong, in one line; of a list of faults, the first."""
    text = scrub(error)
    # pyiceberg wraps what pydantic says, of which the first line only counts the faults.
    errors = getattr(error, "errors", None) or getattr(error.__cause__, "errors", None)
    if callable(errors) and (faults := errors()):
        place = ".".join(map(str, faults[0].get("loc", ())))
        return f"{place}: {faults[0]['msg']}" if place else str(faults[0]["msg"])
    return text
