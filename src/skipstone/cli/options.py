"""Arguments and options that commands share, each defined once, and what they mean together."""

from __future__ import annotations

import csv
import enum
import math
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import typer

if TYPE_CHECKING:
    from skipstone.api import Catalog, Lake, Table
    from skipstone.predicate import Predicate
    from skipstone.scan.scan import Scan

CATALOG_VARIABLE = "SKIPSTONE_CATALOG"
"""The environment variable that names a catalog where --catalog doesn't."""


class Format(enum.StrEnum):
    """Who reads the output."""

    TEXT = "text"
    JSON = "json"


FileArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="A Parquet file: a path or a URI such as s3://bucket/key.")
]
LakeArgument = Annotated[
    str,
    typer.Argument(
        metavar="LAKE",
        help="A directory of Parquet files, one file, or a quoted glob: a path or a URI. "
        "Or an Iceberg table: its name and --catalog, or its metadata file.",
    ),
]
TableArgument = Annotated[
    str,
    typer.Argument(
        metavar="TABLE",
        help="An Iceberg table: its name, such as db.events, and --catalog, or its metadata file.",
    ),
]
FormatOption = Annotated[Format, typer.Option("--format", help="text for people, json for programs.")]

# What is asked.
WhereOption = Annotated[
    str, typer.Option("--where", metavar="SQL", help="The condition, as in a WHERE clause.")
]
AnyWhereOption = Annotated[
    str | None,
    typer.Option("--where", metavar="SQL", help="The condition, as in a WHERE clause; every row without it."),
]
ColumnsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--columns", metavar="A,B,S.X", help='Only these columns; may be repeated. Quote a comma: "a,b".'
    ),
]
OrderOption = Annotated[
    str | None,
    typer.Option("--order-by", metavar="TERMS", help='As in SQL: "ts desc, id nulls last".'),
]
LimitOption = Annotated[
    int | None, typer.Option("--limit", min=0, metavar="N", help="At most this many rows.")
]
DialectOption = Annotated[
    str, typer.Option("--dialect", help="SQL dialect of --where: spark, hive, trino, presto or duckdb.")
]
ZoneOption = Annotated[str, typer.Option("--tz", help="Time zone of timestamps written without one.")]

# How it is found out: none of these changes an answer.
_READING = "Reading"
SkippingOption = Annotated[
    bool,
    typer.Option(
        "--skipping/--no-skipping", help="Let metadata drop what can't match.", rich_help_panel=_READING
    ),
]
PageIndexOption = Annotated[
    bool,
    typer.Option(
        "--page-index/--no-page-index", help="Look at the bounds of pages.", rich_help_panel=_READING
    ),
]
BloomOption = Annotated[
    bool,
    typer.Option("--bloom/--no-bloom", help="Look values up in bloom filters.", rich_help_panel=_READING),
]
IndexOption = Annotated[
    bool,
    typer.Option("--index/--no-index", help="Ask the lake's index, if it has one.", rich_help_panel=_READING),
]
IndexRootOption = Annotated[
    str | None,
    typer.Option(
        "--index-root",
        metavar="PATH",
        help="Where the index is, unless in .skipstone beside the lake: a path or a URI.",
        rich_help_panel=_READING,
    ),
]
ChecksumsOption = Annotated[
    bool, typer.Option("--checksums", help="Verify the checksums of pages.", rich_help_panel=_READING)
]
ThreadsOption = Annotated[
    int | None,
    typer.Option(
        "--threads",
        min=1,
        metavar="N",
        help="Row groups read side by side; by default one per core, more where the store is far away.",
        rich_help_panel=_READING,
    ),
]

# Where the lake is.
_TABLE = "Iceberg table"
CatalogOption = Annotated[
    str | None,
    typer.Option(
        "--catalog",
        metavar="NAME|PATH",
        help="The catalog that has the table: a name in pyiceberg's configuration, or the directory of an "
        f"embedded one. By default what {CATALOG_VARIABLE} says.",
        rich_help_panel=_TABLE,
    ),
]
CatalogPropertyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--catalog-property",
        metavar="KEY=VALUE",
        help="A property of the catalog, such as type=rest or uri=...; may be repeated.",
        rich_help_panel=_TABLE,
    ),
]
SnapshotOption = Annotated[
    str | None,
    typer.Option(
        "--snapshot",
        metavar="ID|NAME|TIME",
        help="The table as it was: a snapshot's id, a tag, a branch, or a time (UTC unless it says).",
        rich_help_panel=_TABLE,
    ),
]
StorageOption = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        metavar="KEY=VALUE",
        help="A setting of the object store; may be repeated.",
        rich_help_panel=_READING,
    ),
]


StayOption = Annotated[
    bool,
    typer.Option(
        "--stay-below-root",
        help="For lakes from others: refuse links, and paths that a table names, which lead out of the lake.",
        rich_help_panel=_READING,
    ),
]


@dataclass(frozen=True, slots=True)
class Source:
    """Where a lake is found."""

    catalog: CatalogOption = None
    catalog_property: CatalogPropertyOption = None
    storage_option: StorageOption = None

    def is_table(self, lake: str) -> bool:
        """Whether a table is meant. A path stays one where only the environment names a catalog."""
        if self.catalog is not None or self.catalog_property or _is_metadata(lake):
            return True
        path = any(sign in lake for sign in "/*?[") or lake.endswith(".parquet") or Path(lake).exists()
        return bool(os.environ.get(CATALOG_VARIABLE)) and "." in lake and not path

    def open_catalog(self) -> Catalog:
        """The catalog that is meant; one that is not there is not made."""
        import skipstone as sk
        from skipstone.iceberg.catalogs import open_catalog

        name = self.catalog or os.environ.get(CATALOG_VARIABLE) or None
        properties = storage_options(self.catalog_property, "--catalog-property")
        return sk.catalog(open_catalog(name, make=False, **properties))

    def open(
        self,
        lake: str,
        snapshot: str | None = None,
        index_root: str | None = None,
        *,
        stay_below_root: bool = False,
    ) -> Lake | Table:
        """The lake; nothing but a listing, or a table's metadata, has been read."""
        import skipstone as sk

        if self.is_table(lake):
            return self.open_table(lake, snapshot, index_root, stay_below_root=stay_below_root)
        if snapshot is not None:
            reason = f"{lake} is no table, which has snapshots; a table's name needs --catalog"
            raise typer.BadParameter(reason, param_hint="--snapshot")
        storage = storage_options(self.storage_option) or None
        return sk.open(lake, storage_options=storage, index_root=index_root, stay_below_root=stay_below_root)

    def open_table(
        self,
        table: str,
        snapshot: str | None = None,
        index_root: str | None = None,
        *,
        stay_below_root: bool = False,
    ) -> Table:
        """The table; anything else is refused."""
        if not self.is_table(table):
            reason = "name the table's catalog with --catalog, or give its metadata file"
            raise typer.BadParameter(reason, param_hint="TABLE")
        import skipstone as sk

        options: dict[str, Any] = {
            "snapshot": snapshot,
            "storage_options": storage_options(self.storage_option) or None,
            "index_root": index_root,
            "stay_below_root": stay_below_root,
        }
        catalog = None if _is_metadata(table) else self.open_catalog()
        return cast("Table", sk.open(table, catalog=catalog, **options))


def _is_metadata(lake: str) -> bool:
    if ".metadata.json" not in lake:
        return False  # without loading all of the library for one file's sake
    from skipstone.api import is_table

    return is_table(lake)


@dataclass(frozen=True, slots=True)
class Opening(Source):
    """Which lake is meant: where it is found, in which state, and its index."""

    snapshot: SnapshotOption = None
    index_root: IndexRootOption = None
    stay_below_root: StayOption = False

    def lake(self, lake: str) -> Lake | Table:
        """The lake that is meant."""
        return self.open(lake, self.snapshot, self.index_root, stay_below_root=self.stay_below_root)


@dataclass(frozen=True, slots=True)
class Reading(Opening):
    """Which lake is read, and how: the latter changes no answer."""

    page_index: PageIndexOption = True
    bloom: BloomOption = True
    index: IndexOption = True
    checksums: ChecksumsOption = False
    threads: ThreadsOption = None

    def switches(self) -> dict[str, Any]:
        """Those that a scan takes."""
        return {
            "page_index": self.page_index,
            "bloom_filter": self.bloom,
            "index": self.index,
            "checksums": self.checksums,
            "threads": self.threads,
        }


# Where the answer goes.
OutputOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write to a file; it appears when it is complete."),
]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace the file given by --output.")]


def storage_options(pairs: list[str] | None, option: str = "--storage-option") -> dict[str, str]:
    """``KEY=VALUE`` settings as a mapping."""
    found = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not equals or not key:
            # The value may be a secret typed into the wrong place; it is not repeated.
            raise typer.BadParameter("give it as KEY=VALUE", param_hint=option)
        found[key] = value
    return found


def named_columns(names: list[str] | None, option: str) -> list[str] | None:
    """The columns that an option names; None where it wasn't given."""
    found = split_names(names)
    if names is not None and not found:
        raise typer.BadParameter("name a column", param_hint=option)
    return found or None


_ENDINGS = {"ndjson": "jsonl", "pq": "parquet", "arrows": "arrow", "ipc": "arrow"}
_F = TypeVar("_F", bound=enum.StrEnum)


def named_format(output: Path | None, formats: type[_F], people: _F) -> _F:
    """The format that the name of a file asks for; that for people without a file."""
    if output is None:
        return people
    ending = output.suffix.lower().removeprefix(".")
    try:
        return people if ending == "txt" else formats(_ENDINGS.get(ending, ending))
    except ValueError:
        raise typer.BadParameter(
            f"the name {output.name} doesn't tell a format; give one", param_hint="--format"
        ) from None


_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmgt])(i?)b?|b)?", re.IGNORECASE)
_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4}


def read_size(text: str, option: str) -> int:
    """Bytes, as people write them.

    >>> read_size("128MB", "--size"), read_size("64MiB", "--size"), read_size("1.5 gb", "--size")
    (128000000, 67108864, 1500000000)
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise typer.BadParameter(f"{text!r} is no size; give one such as 128MB", param_hint=option)
    number, prefix, binary = found.groups()
    power = _POWERS.get((prefix or "").lower(), 0)
    size = round(float(number) * math.pow(1024 if binary else 1000, power))
    if not size:
        raise typer.BadParameter("give a size above zero", param_hint=option)
    return size


def split_names(parts: list[str] | None) -> list[str]:
    """Names set apart by commas; one that holds a comma stands in double quotes.

    >>> split_names(["a, s.x", '"b,c"'])
    ['a', 's.x', 'b,c']
    """
    lines = ([part] for part in parts or ())
    cells = (cell for line in lines for row in csv.reader(line, skipinitialspace=True) for cell in row)
    return [cell.strip() for cell in cells if cell.strip()]


def read_where(where: str | None, dialect: str, tz: str) -> Predicate | None:
    """The condition, if there is one."""
    import skipstone as sk

    return None if where is None else sk.parse(where, dialect=dialect, tz=tz)


def open_scan(
    lake: str,
    where: Predicate | None,
    reading: Reading,
    *,
    columns: list[str] | None = None,
    order_by: str | None = None,
    limit: int | None = None,
    skipping: bool = True,
) -> Scan:
    """The question that the options put; nothing but what opening the lake takes has been read."""
    names = named_columns(columns, "--columns")
    order = split_names([order_by]) if order_by is not None else None
    if order == []:
        raise typer.BadParameter("no column is named", param_hint="--order-by")
    opened = reading.lake(lake)
    return opened.scan(where, names, limit, order, skipping=skipping, **reading.switches())
