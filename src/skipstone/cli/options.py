"""Arguments and options that commands share: groups of them as dataclasses, and what they mean together."""

from __future__ import annotations

import csv
import enum
import inspect
import math
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast, get_type_hints

import typer

from skipstone.cli.output import forgo_pandas, guarded
from skipstone.errors import SkipstoneError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from skipstone.api import Catalog, Lake, Table
    from skipstone.predicate import Predicate
    from skipstone.scan.scan import Scan
    from skipstone.typing import Dialect

CATALOG_VARIABLE = "SKIPSTONE_CATALOG"
"""The environment variable that names a catalog where --catalog doesn't."""


class Format(enum.StrEnum):
    """Who reads the output."""

    TEXT = "text"
    JSON = "json"


class EngineName(enum.StrEnum):
    """Where the work is done."""

    SPARK = "spark"
    LOCAL = "local"


reading = partial(typer.Option, rich_help_panel="Reading")
working = partial(typer.Option, rich_help_panel="Working")
_table = partial(typer.Option, rich_help_panel="Iceberg table")


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command as Typer sees it: the options of a dataclass in place of the parameter of its type."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {}
    seen: list[inspect.Parameter] = []
    keyword = inspect.Parameter.KEYWORD_ONLY
    for name, parameter in inspect.signature(command).parameters.items():
        if not is_dataclass(hints[name]):
            seen.append(parameter.replace(kind=keyword, annotation=hints[name]))
            continue
        groups[name] = hints[name]
        types = get_type_hints(hints[name], include_extras=True)
        seen += [
            inspect.Parameter(field.name, keyword, default=field.default, annotation=types[field.name])
            for field in fields(hints[name])
        ]

    def run(**given: Any) -> None:
        made = {
            name: group(**{field.name: given.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        command(**given, **made)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in seen}
    run.__signature__ = inspect.Signature(seen)  # type: ignore[attr-defined]
    return run


LakeArgument = Annotated[
    str,
    typer.Argument(
        metavar="LAKE",
        help="A directory of Parquet files, one file, or a quoted glob: a path or a URI. "
        "Or an Iceberg table: its name and --catalog, or its metadata file.",
    ),
]
FormatOption = Annotated[Format, typer.Option("--format", help="text for people, json for programs.")]
ColumnsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--columns", metavar="A,B,S.X", help='Only these columns; may be repeated. Quote a comma: "a,b".'
    ),
]
DialectOption = Annotated[
    str, typer.Option("--dialect", help="SQL dialect of --where: spark, hive, trino, presto or duckdb.")
]
ZoneOption = Annotated[str, typer.Option("--tz", help="Time zone of timestamps written without one.")]
SkippingOption = Annotated[
    bool, reading("--skipping/--no-skipping", help="Let metadata drop what can't match.")
]
PageIndexOption = Annotated[bool, reading("--page-index/--no-page-index", help="Use the bounds of pages.")]
BloomOption = Annotated[bool, reading("--bloom/--no-bloom", help="Use bloom filters.")]
SnapshotOption = Annotated[
    str | None,
    _table(
        "--snapshot",
        metavar="ID|NAME|TIME",
        help="The table as of a snapshot's id, a tag, a branch, or a time (UTC unless it has a zone).",
    ),
]
StayOption = Annotated[
    bool,
    reading(
        "--stay-below-root",
        help="For untrusted lakes: refuse links and table paths that lead out of the lake.",
    ),
]
StorageOption = Annotated[
    list[str] | None,
    reading("--storage-option", metavar="KEY=VALUE", help="A setting of the object store; may be repeated."),
]
OutputOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write to a file; it appears when it is complete."),
]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace the file given by --output.")]
EngineOption = Annotated[
    EngineName,
    working(
        "--engine", help="spark: on a Spark cluster, or on one of its own; local: on threads of this process."
    ),
]


# -- which lake, and how it is read ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Where a lake is found."""

    catalog: Annotated[
        str | None,
        _table(
            "--catalog",
            metavar="NAME|PATH",
            help="The catalog that has the table: a name in pyiceberg's configuration, or the directory of "
            f"an embedded one. By default the value of {CATALOG_VARIABLE}.",
        ),
    ] = None
    catalog_property: Annotated[
        list[str] | None,
        _table(
            "--catalog-property",
            metavar="KEY=VALUE",
            help="A property of the catalog, such as type=rest or uri=...; may be repeated.",
        ),
    ] = None
    storage_option: StorageOption = None

    def is_table(self, lake: str) -> bool:
        """Whether a table is meant. A path stays one where only the environment names a catalog."""
        if self.catalog is not None or self.catalog_property or _is_metadata(lake):
            return True
        path = any(sign in lake for sign in "/*?[") or lake.endswith(".parquet") or Path(lake).exists()
        return bool(os.environ.get(CATALOG_VARIABLE)) and "." in lake and not path

    def open_catalog(self) -> Catalog:
        """The catalog that is meant; one that does not exist is not made."""
        import skipstone as sk
        from skipstone.iceberg.catalogs import open_catalog

        name = self.catalog or os.environ.get(CATALOG_VARIABLE) or None
        properties = key_values(self.catalog_property, "--catalog-property")
        return sk.catalog(open_catalog(name, make=False, **properties))

    def open_table(self, table: str, snapshot: str | None = None, **options: Any) -> Table:
        """The table; anything else is refused."""
        if not self.is_table(table):
            reason = "name the table's catalog with --catalog, or give its metadata file"
            raise typer.BadParameter(reason, param_hint="TABLE")
        import skipstone as sk

        storage = key_values(self.storage_option) or None
        catalog = None if _is_metadata(table) else self.open_catalog()
        opened = sk.open(table, catalog=catalog, snapshot=snapshot, storage_options=storage, **options)
        assert isinstance(opened, sk.Table)
        return opened


def _is_metadata(lake: str) -> bool:
    if ".metadata.json" not in lake:
        return False  # without loading the whole library for one file
    from skipstone.api import is_table

    return is_table(lake)


@dataclass(frozen=True, slots=True)
class Opening(SourceOptions):
    """Which lake is meant: where it is found, in which state, and its index."""

    snapshot: SnapshotOption = None
    index_root: Annotated[
        str | None,
        reading(
            "--index-root",
            metavar="PATH",
            help="Where the index is, unless in .skipstone beside the lake: a path or a URI.",
        ),
    ] = None
    stay_below_root: StayOption = False

    def open(self, lake: str) -> Lake:
        """The lake; nothing but a listing, or a table's metadata, has been read."""
        import skipstone as sk

        if self.is_table(lake):
            return self.open_table(
                lake, self.snapshot, index_root=self.index_root, stay_below_root=self.stay_below_root
            )
        if self.snapshot is not None:
            reason = f"{lake} is not a table, and only tables have snapshots; a table's name needs --catalog"
            raise typer.BadParameter(reason, param_hint="--snapshot")
        return sk.open(
            lake,
            storage_options=key_values(self.storage_option) or None,
            index_root=self.index_root,
            stay_below_root=self.stay_below_root,
        )


@dataclass(frozen=True, slots=True)
class ReadOptions(Opening):
    """Which lake is read, and how: the latter changes no answer."""

    page_index: PageIndexOption = True
    bloom: BloomOption = True
    index: Annotated[bool, reading("--index/--no-index", help="Use the lake's index, if it has one.")] = True
    checksums: Annotated[bool, reading("--checksums", help="Verify the checksums of pages.")] = False
    threads: Annotated[
        int | None,
        reading(
            "--threads",
            min=1,
            metavar="N",
            help="Row groups read in parallel; by default one per core, more where the store is far away.",
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class ConditionOptions:
    """Which rows are wanted."""

    where: Annotated[
        str | None,
        typer.Option(
            "--where", metavar="SQL", help="The condition, as in a WHERE clause; every row without it."
        ),
    ] = None
    dialect: DialectOption = "spark"
    tz: ZoneOption = "UTC"

    def scan(
        self, lake: str, reading: ReadOptions, *, skipping: bool = True, spark: bool = False, **shape: Any
    ) -> Scan:
        """The scan that the options describe; nothing but what opening the lake takes has been read."""
        if not spark:
            forgo_pandas()
        where = None if self.where is None else parse(self.where, self.dialect, self.tz)
        return reading.open(lake).scan(
            where,
            skipping=skipping,
            page_index=reading.page_index,
            bloom_filter=reading.bloom,
            index=reading.index,
            checksums=reading.checksums,
            threads=reading.threads,
            **shape,
        )


@dataclass(frozen=True, slots=True)
class ShapeOptions:
    """Which columns of the rows are wanted, in which order, and how many."""

    columns: ColumnsOption = None
    order_by: Annotated[
        str | None, typer.Option("--order-by", metavar="TERMS", help='As in SQL: "ts desc, id nulls last".')
    ] = None
    limit: Annotated[
        int | None, typer.Option("--limit", min=0, metavar="N", help="At most this many rows.")
    ] = None

    def arguments(self) -> dict[str, Any]:
        """What a scan takes."""
        order = None if self.order_by is None else split_names([self.order_by])
        if order == []:
            raise typer.BadParameter("name a column", param_hint="--order-by")
        return {"columns": named_columns(self.columns, "--columns"), "order_by": order, "limit": self.limit}


def parse(where: str, dialect: str, tz: str) -> Predicate:
    """The condition."""
    import skipstone as sk

    return sk.parse(where, dialect=cast("Dialect", dialect), tz=tz)


# -- where work is done ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The Spark that is meant."""

    master: Annotated[
        str | None,
        working(
            "--master",
            metavar="URL",
            help="The Spark master, such as spark://host:7077; by default Spark's own setting, "
            "else local[*].",
        ),
    ] = None
    remote: Annotated[
        str | None,
        working("--remote", metavar="URL", help="A Spark Connect server instead, such as sc://host:15002."),
    ] = None
    conf: Annotated[
        list[str] | None, working("--conf", metavar="KEY=VALUE", help="A setting of Spark; may be repeated.")
    ] = None

    def refuse(self, unless: str) -> None:
        """Refuse its options, which make sense with another one only."""
        for option, value in (("--master", self.master), ("--remote", self.remote), ("--conf", self.conf)):
            if value is not None:
                raise typer.BadParameter(f"only for {unless}", param_hint=option)

    def arguments(self) -> dict[str, Any]:
        """What ``sk.spark`` takes."""
        if self.master is not None and self.remote is not None:
            raise typer.BadParameter("give --master or --remote, not both", param_hint="--remote")
        conf = key_values(self.conf, "--conf") or None
        return {"master": self.master, "remote": self.remote, "conf": conf}

    @contextmanager
    def session(self) -> Iterator[SparkSession]:
        """A session, which is stopped in the end unless it was running before."""
        from skipstone.engine.spark import open_spark

        with open_spark(**self.arguments()) as engine:
            yield engine.session


def engine_arguments(engine: EngineName, cluster: ClusterOptions, threads: int | None) -> dict[str, Any]:
    """What ``open_engine`` takes; options that make no sense together are refused."""
    if engine is EngineName.LOCAL:
        cluster.refuse("--engine spark")
        return {"engine": "local", "threads": threads}
    if threads is not None:
        reason = "only for --engine local; Spark has --master 'local[N]'"
        raise typer.BadParameter(reason, param_hint="--threads")
    return {"engine": "spark", **cluster.arguments()}


@contextmanager
def job_guarded(*, spark_only: bool = False) -> Iterator[None]:
    """As every command; hints name options instead of Python's arguments."""
    with guarded():
        try:
            yield
        except SkipstoneError as error:
            if error.hint:
                hint = _LOCAL.sub("", error.hint) if spark_only else error.hint
                error.hint = _ARGUMENT.sub(_option, hint) or None
            raise


# What a hint says of the local engine, where there is none.
_LOCAL = re.compile(r'(; |, or use )?engine="local"( needs \w+( \w+)?)?')
_ARGUMENT = re.compile(
    r'\b(engine|route|format|columns|id_column|group_by)=(?:"(\w+)")?|\b(partition_by|cluster_by)\b'
)


def _option(found: re.Match[str]) -> str:
    name, value, bare = found.groups()
    # A command's own --format is that of its output.
    option = "input-format" if name == "format" else (name or bare).replace("_", "-")
    return f"--{option} {value}" if value else f"--{option}"


# -- values ------------------------------------------------------------------------------------


def key_values(pairs: list[str] | None, option: str = "--storage-option") -> dict[str, str]:
    """``KEY=VALUE`` settings as a mapping."""
    found = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not equals or not key:
            # The value may be a secret typed into the wrong place; it is not repeated.
            raise typer.BadParameter("give it as KEY=VALUE", param_hint=option)
        found[key] = value
    return found


def split_names(parts: list[str] | None) -> list[str]:
    """Names separated by commas; one that holds a comma stands in double quotes.

    >>> split_names(["a, s.x", '"b,c"'])
    ['a', 's.x', 'b,c']
    """
    lines = ([part] for part in parts or ())
    cells = (cell for line in lines for row in csv.reader(line, skipinitialspace=True) for cell in row)
    return [cell.strip() for cell in cells if cell.strip()]


def named_columns(names: list[str] | None, option: str) -> list[str] | None:
    """The columns that an option names; None where it wasn't given."""
    found = split_names(names)
    if names is not None and not found:
        raise typer.BadParameter("name a column", param_hint=option)
    return found or None


_ENDINGS = {"ndjson": "jsonl", "pq": "parquet", "arrows": "arrow", "ipc": "arrow"}
_F = TypeVar("_F", bound=enum.StrEnum)


def named_format(output: Path | None, formats: type[_F], people: _F) -> _F:
    """The format by the ending of a file's name; the one for people without a file."""
    if output is None:
        return people
    ending = output.suffix.lower().removeprefix(".")
    try:
        return people if ending == "txt" else formats(_ENDINGS.get(ending, ending))
    except ValueError:
        reason = f"no format goes by the ending of {output.name}; give one"
        raise typer.BadParameter(reason, param_hint="--format") from None


_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmgt])(i?)b?|b)?", re.IGNORECASE)
_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4}


def read_size(text: str, option: str) -> int:
    """Bytes, as people write them.

    >>> read_size("128MB", "--size"), read_size("64MiB", "--size"), read_size("1.5 gb", "--size")
    (128000000, 67108864, 1500000000)
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise typer.BadParameter(f"invalid size {text!r}; give one such as 128MB", param_hint=option)
    number, prefix, binary = found.groups()
    power = _POWERS.get((prefix or "").lower(), 0)
    size = round(float(number) * math.pow(1024 if binary else 1000, power))
    if not size:
        raise typer.BadParameter("give a size above zero", param_hint=option)
    return size
