"""Iceberg catalogs: pyiceberg's, or an embedded one in a SQLite file beside the tables."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skipstone.errors import (
    CorruptFileError,
    ReadError,
    SkipstoneError,
    UsageError,
    did_you_mean,
    require,
    scrub,
)
from skipstone.lake.files import Files
from skipstone.store.absolute import AbsoluteStore, local_name
from skipstone.store.local import make_directories
from skipstone.store.options import (
    ICEBERG_NAMES,
    StoreOptions,
    canonical_options,
    option_name,
    read_duration,
    s3_location,
    store_kind,
)
from skipstone.store.source import local_path

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from skipstone.typing import CatalogLike

METADATA_FILES = (".metadata.json", ".metadata.json.gz")
"""Suffixes of table metadata files."""
CATALOG_FILE = "catalog.db"
"""The SQLite file of an embedded catalog, in its warehouse."""
_MANY = 10
_DURABLE = "skipstone.iceberg.writing.target.DurableFileIO"


def open_catalog(x: CatalogLike | None = None, *, make: bool = True, **properties: str) -> Catalog:
    """A catalog: one that is open, pyiceberg properties, a configured name, or the path of a warehouse.

    A path (anything with a slash, or an existing directory) means an embedded catalog in that directory,
    which is created if missing; without ``make`` that is an error. A name, or None for the default, is looked
    up in pyiceberg's configuration. An open catalog is returned unchanged.
    """
    check_installed()
    from pyiceberg.catalog import Catalog, load_catalog

    if isinstance(x, Catalog):
        return x
    if isinstance(x, Mapping):
        named = {str(key): value for key, value in x.items()}
        return _open(str(named.pop("name", "default")), {**named, **properties}, load_catalog)
    if isinstance(x, os.PathLike) or (isinstance(x, str) and _is_path(x)):
        return _embedded(os.fspath(x), properties, make=make)
    if x is not None and not isinstance(x, str):
        raise UsageError(
            f"{x!r} is not a catalog",
            hint="pass a name, properties, a pyiceberg catalog, or the path of a warehouse",
        )
    return _open(x, properties, load_catalog)


def load_table(name: Any, catalog: CatalogLike | None = None) -> Table:
    """A table of a catalog, by its dotted name or a tuple."""
    opened = open_catalog(catalog, make=False)
    from skipstone.iceberg.metadata import tolerant

    with catalog_errors(opened, table_name(name)):
        try:
            return tolerant(lambda: opened.load_table(name))
        except UnicodeDecodeError as error:
            raise ReadError(
                "table metadata is compressed in a format that pyiceberg can't read",
                path=table_name(name),
                hint="open the metadata file instead: sk.open('.../x.metadata.json')",
            ) from error


def all_namespaces(catalog: Catalog, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The namespaces of a catalog, each before those inside it; raises exceptions of any type."""
    from pyiceberg.exceptions import NoSuchNamespaceError

    for name in map(tuple, catalog.list_namespaces(above)):
        # Some services ignore the parent, and list the namespaces at the top again.
        if len(name) <= len(above) or name[: len(above)] != above:
            continue
        yield name
        # Some catalogs have no namespaces inside others, and say so by refusing to look.
        with suppress(NoSuchNamespaceError):
            yield from all_namespaces(catalog, name)


def table_name(name: Any) -> str:
    """The dotted name of a table; it must have a namespace and no empty parts."""
    parts = name.split(".") if isinstance(name, str) else name
    named = isinstance(parts, list | tuple) and len(parts) > 1
    if not named or not all(isinstance(part, str) and part.strip() for part in parts):
        raise UsageError(f"invalid table name {name!r}", hint='pass namespace and table, as in "db.events"')
    return ".".join(parts)


_TABLE_NAME = re.compile(r"[^\W\d][\w-]*(?:\.[^\W\d][\w-]*)+")
_FILES = ("parquet", "parq", "pq")


def is_table_name(text: str) -> bool:
    """Whether a string looks like a table name, and not like a path or a file.

    >>> [is_table_name(text) for text in ("db.events", "./db.events", "events", "events.parquet", "v1.2")]
    [True, False, False, False, False]
    """
    return _TABLE_NAME.fullmatch(text) is not None and text.rpartition(".")[2].lower() not in _FILES


@contextmanager
def catalog_errors(catalog: Catalog, name: str) -> Iterator[None]:
    """Convert errors of catalog calls about a table or namespace."""
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    try:
        yield
    except SkipstoneError:
        raise
    except NoSuchTableError as error:
        hint = _tables_near(catalog, name)
        raise ReadError(f"catalog {catalog.name} has no such table", path=name, hint=hint) from error
    except NoSuchNamespaceError as error:
        hint = _namespaces(catalog)
        what = f"catalog {catalog.name} has no such namespace"
        raise ReadError(what, path=name or None, hint=hint) from error
    except Exception as error:
        message = f"catalog {catalog.name} failed: {reason(error)} ({type(error).__name__})"
        raise ReadError(message, path=name or None, hint="check the catalog") from error


def static_table(
    location: str, options: Mapping[str, Any] | None = None, properties: Mapping[str, Any] | None = None
) -> Table:
    """Open a metadata file as a read-only table, with storage options and pyiceberg properties."""
    check_installed()
    from pyiceberg.io import load_file_io
    from pyiceberg.table import StaticTable

    from skipstone.iceberg.metadata import read_metadata

    local, bare = local_path(location), local_name(location)
    if local is not None and bare is not None:
        # Iceberg does not percent-encode locations, but the user can pass an encoded URI.
        location = os.path.abspath(bare if Path(bare).exists() else local)  # noqa: PTH100
    try:
        store = AbsoluteStore(location, _options(properties or {}, location, options))
        data = Files(store).read_whole(location)
    except ReadError as error:
        error.hint = error.hint or "pass the newest .metadata.json of the table, or its name and a catalog"
        raise
    try:
        metadata = read_metadata(data)
        io = load_file_io({**(properties or {}), **storage_properties(options, location)}, location)
    except Exception as error:
        raise CorruptFileError(
            f"table metadata is invalid: {reason(error)}",
            path=location,
            hint="pass another metadata file of the table, or its name and a catalog",
        ) from error
    return StaticTable((location,), metadata, location, io, _no_catalog())


def table_root(metadata_file: str) -> str:
    """The directory of a table, from the path of its metadata file and not from its contents.

    >>> table_root("s3://lake/events/metadata/v3.metadata.json"), table_root("/lake/v3.metadata.json")
    ('s3://lake/events', '/lake')
    """
    folder = metadata_file.rpartition("/")[0]
    return folder.removesuffix("/metadata")


def _no_catalog() -> Catalog:
    from pyiceberg.catalog.noop import NoopCatalog

    return NoopCatalog("metadata file")


def storage_options(table: Table, options: Mapping[str, Any] | None = None) -> StoreOptions:
    """Options to open a table's files: the catalog's settings under obstore's names, and ``options``."""
    return _options(table.io.properties, table.location(), options)


def _options(properties: Mapping[str, Any], location: str, options: Mapping[str, Any] | None) -> StoreOptions:
    kind = store_kind(location)
    passed = {option_name(name, kind) for name in options or {}}
    defaults: dict[str, Any] = {}
    for theirs, (store, ours) in ICEBERG_NAMES.items():
        value = properties.get(theirs)
        if value is not None and store == kind and ours not in passed:
            defaults.setdefault(ours, str(value))
    if (
        str(properties.get("s3.endpoint")).startswith("http://")
        and kind == "AWS"
        and "allow_http" not in passed
    ):
        defaults["allow_http"] = "true"
    return StoreOptions({**defaults, **(options or {})})


def storage_properties(options: Mapping[str, Any] | None, location: str) -> dict[str, str]:
    """The storage options of a location under pyiceberg's names."""
    kind = store_kind(location)
    passed = canonical_options(options or {}, location) if kind else {}
    for name in passed.keys() & {"timeout", "connect_timeout"}:
        passed[name] = read_duration(passed[name]).total_seconds()
    return {
        theirs: str(passed[ours])
        for theirs, (store, ours) in ICEBERG_NAMES.items()
        if store == kind and ours in passed and not theirs.startswith("client.")
    }


# Readers that parse a location as a URL end its path here, or drop the character.
_NOT_IN_LOCATION = frozenset("?#\n\r\t")


def _embedded(warehouse: str, properties: Mapping[str, Any], *, make: bool) -> Catalog:
    require("sqlalchemy")
    from pyiceberg.catalog.sql import SqlCatalog
    from sqlalchemy.engine import URL
    from sqlalchemy.exc import SQLAlchemyError

    local = local_path(warehouse)
    if local is None:
        raise UsageError(
            "an embedded catalog needs a local directory",
            path=warehouse,
            hint='pass pyiceberg properties: {"type": "sql", "uri": "sqlite:///...", "warehouse": "s3://..."}',
        )
    folder = Path(os.path.abspath(local))  # noqa: PTH100
    if not make and not (folder / CATALOG_FILE).exists():
        raise ReadError(
            "no embedded catalog in this directory", path=str(folder), hint="create one with sk.catalog(path)"
        )
    odd = sorted({*str(folder)} & _NOT_IN_LOCATION)
    if odd:
        raise UsageError(
            f"warehouse path contains {odd[0]!r}, which other readers can't handle",
            path=str(folder),
            hint="use another directory",
        )
    uri = URL.create("sqlite", database=str(folder / CATALOG_FILE)).render_as_string(hide_password=False)
    settings = {"uri": uri, "warehouse": f"file://{folder}", "py-io-impl": _DURABLE, **properties}
    try:
        make_directories(folder)
        with suppress(SQLAlchemyError):
            return SqlCatalog("skipstone", **settings)
        # Another process can have created it at the same moment.
        return SqlCatalog("skipstone", **settings)
    except Exception as error:
        raise ReadError(
            f"can't open a warehouse in this directory: {reason(error)}",
            path=str(folder),
            hint=f"use a writable directory whose {CATALOG_FILE} is a catalog or missing",
        ) from error


def embedded_folder(catalog: Catalog) -> str | None:
    """The directory of an embedded catalog; None for any other."""
    found = catalog.properties
    durable = found.get("py-io-impl") == _DURABLE and found.get("uri", "").startswith("sqlite:")
    return found["warehouse"].removeprefix("file://") if durable else None


def _open(name: str | None, properties: Mapping[str, Any], load: Any) -> Catalog:
    try:
        catalog: Catalog = load(name, **properties)
    except Exception as error:
        what = f"catalog {name!r}" if name is not None else "the default catalog"
        known = _configured()
        if not properties and (name or "default") not in known:
            folder = name or "warehouse"
            path = f"for an embedded catalog pass its directory: ./{folder}, or {folder}/ for a new one"
            listed = f"configured catalogs: {_some(known)}" if known else "configure one in ~/.pyiceberg.yaml"
            hint = did_you_mean(name or "", known, f"{listed}; {path}")
            raise UsageError(f"unknown {what.removeprefix('the ')}", hint=hint) from error
        if "URI missing" in str(error):
            hint = "add the property uri: uri=... or --catalog-property uri=..."
            raise UsageError(f"{what} has no uri", hint=hint) from error
        raise UsageError(
            f"can't open {what}: {reason(error)}",
            hint="pass pyiceberg properties, a name in its configuration, or a path such as ./warehouse",
        ) from error
    # pyiceberg reads keys from the environment, but neither endpoint nor region.
    for ours, value in s3_location().items():
        if f"client.{ours}" not in catalog.properties:
            catalog.properties.setdefault(f"s3.{ours}", value)
    return catalog


def _configured() -> list[str]:
    """Names of the catalogs in pyiceberg's configuration, which is a file and environment variables."""
    from pyiceberg.utils.config import Config

    catalogs = Config().config.get("catalog")
    return sorted(catalogs) if isinstance(catalogs, dict) else []


def _is_path(name: str) -> bool:
    return "/" in name or os.sep in name or name in (".", "..") or Path(name).is_dir()


def _tables_near(catalog: Catalog, name: str) -> str:
    try:
        namespace = name.rpartition(".")[0]
        tables = sorted(".".join(table) for table in catalog.list_tables(namespace))
    except Exception:  # noqa: BLE001  (it is only a hint)
        return f"the namespace does not exist either; {_namespaces(catalog)}"
    listed = f"tables in its namespace: {_some(tables)}" if tables else "the namespace is empty"
    return did_you_mean(name, tables, listed)


def _namespaces(catalog: Catalog) -> str:
    try:
        namespaces = sorted(".".join(name) for name in catalog.list_namespaces())
    except Exception:  # noqa: BLE001  (it is only a hint)
        return "the catalog can't list its namespaces"
    return f"available namespaces: {_some(namespaces)}" if namespaces else "the catalog has no namespaces"


def _some(names: list[str]) -> str:
    return ", ".join(names[:_MANY]) + (f" and {len(names) - _MANY:,} more" if len(names) > _MANY else "")


def check_installed() -> None:
    """Raise if the libraries of the extra for Iceberg are not installed."""
    require("pyiceberg", "zstandard")


def reason(error: Exception) -> str:
    """The message of a library's error in one line; the first of several."""
    text = scrub(error)
    # pyiceberg wraps pydantic's errors, whose first line is only their number.
    errors = getattr(error, "errors", None) or getattr(error.__cause__, "errors", None)
    if callable(errors) and (faults := errors()):
        location = ".".join(map(str, faults[0].get("loc", ())))
        return f"{location}: {faults[0]['msg']}" if location else str(faults[0]["msg"])
    return text
