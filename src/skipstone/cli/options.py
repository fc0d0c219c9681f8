"""Arguments and options that several commands share, in groups."""

from __future__ import annotations

import enum
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from functools import partial, reduce
from operator import and_
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast, get_args, get_type_hints

import typer

from skipstone.cli.output import forgo_pandas, guarded
from skipstone.errors import SkipstoneError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from skipstone import Catalog, Lake, Table
    from skipstone.predicate import Predicate
    from skipstone.scan.scan import Scan
    from skipstone.typing import Dialect

CATALOG_VARIABLE = "SKIPSTONE_CATALOG"
"""The environment variable with the default of --catalog."""


class Format(enum.StrEnum):
    """Formats of reports."""

    TEXT = "text"
    JSON = "json"


class EngineName(enum.StrEnum):
    """Where queries run."""

    SPARK = "spark"
    LOCAL = "local"


class JobEngine(enum.StrEnum):
    """Where jobs run."""

    AUTO = "auto"
    SPARK = "spark"
    LOCAL = "local"


reading = partial(typer.Option, rich_help_panel="Reading")
working = partial(typer.Option, rich_help_panel="Engine")
_table = partial(typer.Option, rich_help_panel="Iceberg table")


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of its dataclass parameters, in a form that Typer understands."""
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

    def run(**values: Any) -> None:
        made = {
            name: group(**{field.name: values.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        command(**values, **made)

    for parameter in seen:
        if get_args(parameter.annotation)[:1] == (bool,):
            # The name of a flag says it all; Typer would add its type.
            get_args(parameter.annotation)[1].metavar = ""
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in seen}
    run.__signature__ = inspect.Signature(seen)  # type: ignore[attr-defined]
    return run


LakeArgument = Annotated[
    str,
    typer.Argument(
        metavar="LAKE",
        help="Directory of Parquet files, one file or a quoted glob, as a path or URI; or an Iceberg table, "
        "as a name with --catalog or as its metadata file.",
    ),
]
FormatOption = Annotated[
    Format, typer.Option("--format", help="Output format: text for people, json for programs.")
]
ColumnsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--columns",
        metavar="A,B,S.X",
        help='Columns to include; repeatable. Quote a name that contains a comma: "a,b".',
    ),
]
DialectOption = Annotated[
    str,
    typer.Option(
        "--dialect", metavar="NAME", help="SQL dialect of conditions: spark, hive, trino, presto or duckdb."
    ),
]
ZoneOption = Annotated[
    str,
    typer.Option(
        "--tz",
        metavar="ZONE",
        help="Time zone of times in quotes and of fields such as hour(ts), in conditions and aggregates.",
    ),
]
SkippingOption = Annotated[
    bool, reading("--skipping/--no-skipping", help="Skip data that metadata rules out.")
]
PageIndexOption = Annotated[bool, reading("--page-index/--no-page-index", help="Use page indexes.")]
BloomOption = Annotated[bool, reading("--bloom/--no-bloom", help="Use bloom filters.")]
SnapshotOption = Annotated[
    str | None,
    _table(
        "--snapshot",
        metavar="ID|NAME|TIME",
        help="Snapshot to read: an id, a tag, a branch, or a time (UTC unless it has a zone).",
    ),
]
StayOption = Annotated[
    bool,
    reading(
        "--stay-below-root",
        help="Reject links and table paths that point outside the lake; use it for untrusted lakes.",
    ),
]
StorageOption = Annotated[
    list[str] | None,
    reading("--storage-option", metavar="KEY=VALUE", help="Object store setting; repeatable."),
]
OutputOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write to FILE atomically."),
]
ForceOption = Annotated[bool, typer.Option("--force", help="Overwrite FILE if it exists.")]
EngineOption = Annotated[
    EngineName,
    working("--engine", help="Where to run: spark (a cluster, or Spark on this machine) or local (threads)."),
]
JobEngineOption = Annotated[
    JobEngine,
    working(
        "--engine",
        help="Where to run: spark, local (threads), or auto: local below 64 MB of input, else spark if "
        "PySpark and Java 17 are installed. SKIPSTONE_ENGINE=local changes auto.",
    ),
]
JobThreadsOption = Annotated[
    int | None,
    working("--threads", min=1, metavar="N", help="Threads of the local engine. Default: one per core."),
]


# -- lakes -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Location of a lake."""

    catalog: Annotated[
        str | None,
        _table(
            "--catalog",
            metavar="NAME|PATH",
            help="Catalog of the table: a name in pyiceberg's configuration, or the directory of an embedded "
            f"catalog. Default: ${CATALOG_VARIABLE}.",
        ),
    ] = None
    catalog_property: Annotated[
        list[str] | None,
        _table(
            "--catalog-property",
            metavar="KEY=VALUE",
            help="Catalog property, such as type=rest or uri=...; repeatable.",
        ),
    ] = None
    storage_option: StorageOption = None

    def arguments(self) -> tuple[str, ...]:
        """Return the options that name the catalog, for commands to copy."""
        properties = (part for pair in self.catalog_property or () for part in ("--catalog-property", pair))
        return (*(("--catalog", self.catalog) if self.catalog else ()), *properties)

    def is_table(self, lake: str) -> bool:
        """Whether ``lake`` is a table. With a catalog from the environment only, a path is still a path."""
        if self.catalog is not None or self.catalog_property or _is_metadata(lake):
            return True
        path = any(sign in lake for sign in "/*?[") or lake.endswith(".parquet") or os.path.exists(lake)  # noqa: PTH110
        return bool(os.environ.get(CATALOG_VARIABLE)) and "." in lake and not path

    def open_catalog(self, *, make: bool = False) -> Catalog:
        """Open the catalog; it must exist unless ``make`` creates a missing embedded one."""
        import skipstone as sk
        from skipstone.iceberg.catalogs import open_catalog

        name = self.catalog or os.environ.get(CATALOG_VARIABLE) or None
        properties = key_values(self.catalog_property, "--catalog-property")
        try:
            return sk.catalog(open_catalog(name, make=make, **properties))
        except SkipstoneError as error:
            if error.hint and error.hint.startswith(("pass pyiceberg", "create one")):
                error.hint = (
                    "use --catalog with a name in pyiceberg's configuration or with the directory of an "
                    "embedded catalog, or use --catalog-property"
                ) + ("; a new directory ends with /" if make else "")
            raise

    def open_table(self, table: str, snapshot: str | None = None, **options: Any) -> Table:
        """Open a table; reject anything else."""
        if not self.is_table(table):
            reason = "use --catalog to name the catalog of the table, or pass the table's metadata file"
            if os.path.isdir(table) or "://" in table:  # noqa: PTH112
                reason = (
                    f"{table} is a directory, not an Iceberg table; use --catalog to name the catalog of a "
                    "table; files of a directory are rewritten by skipstone ingest"
                )
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
    """Location, snapshot and index of a lake."""

    snapshot: SnapshotOption = None
    index_root: Annotated[
        str | None,
        reading(
            "--index-root",
            metavar="PATH",
            help="Location of the index, as a path or URI. Default: .skipstone beside the lake.",
        ),
    ] = None
    stay_below_root: StayOption = False

    def open(self, lake: str) -> Lake:
        """Open the lake; reads only its listing, or the metadata of a table."""
        import skipstone as sk

        if self.is_table(lake):
            return self.open_table(
                lake, self.snapshot, index_root=self.index_root, stay_below_root=self.stay_below_root
            )
        if self.snapshot is not None:
            reason = f"{lake} is not a table, so it has no snapshots; use --catalog for a table's name"
            raise typer.BadParameter(reason, param_hint="--snapshot")
        return sk.open(
            lake,
            storage_options=key_values(self.storage_option) or None,
            index_root=self.index_root,
            stay_below_root=self.stay_below_root,
        )


@dataclass(frozen=True, slots=True)
class ReadOptions(Opening):
    """The lake, and how it is read; the latter changes no answer."""

    page_index: PageIndexOption = True
    bloom: BloomOption = True
    index: Annotated[
        bool, reading("--index/--no-index", help="Use the index of the lake, if it has one.")
    ] = True
    checksums: Annotated[bool, reading("--checksums", help="Verify page checksums.")] = False
    threads: Annotated[
        int | None,
        reading(
            "--threads",
            min=1,
            metavar="N",
            help="Row groups to read in parallel. Default: one per core, more for remote stores.",
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class ConditionOptions:
    """Rows to select."""

    sql: Annotated[
        str | None,
        typer.Argument(
            metavar="CONDITION",
            help='Condition, as in a WHERE clause, in quotes: "user_id = 42". Default: all rows.',
            show_default=False,
        ),
    ] = None
    where: Annotated[
        list[str] | None,
        typer.Option(
            "--where", "-w", metavar="SQL", help="CONDITION as an option; repeatable: all of them must hold."
        ),
    ] = None
    dialect: DialectOption = "spark"
    tz: ZoneOption = "UTC"

    def scan(
        self, lake: str, reading: ReadOptions, *, skipping: bool = True, spark: bool = False, **shape: Any
    ) -> Scan:
        """Open the lake and return the scan, which has not read anything yet."""
        if not spark:
            forgo_pandas()
        return reading.open(lake).scan(
            self.predicate(),
            skipping=skipping,
            page_index=reading.page_index,
            bloom_filter=reading.bloom,
            index=reading.index,
            checksums=reading.checksums,
            threads=reading.threads,
            **shape,
        )

    def predicate(self) -> Predicate | None:
        """Parse the condition; None selects all rows."""
        if self.sql is not None and self.where:
            reason = f"conflicts with the condition {self.sql!r}; use one of them"
            raise typer.BadParameter(reason, param_hint="--where")
        conditions = (self.where or []) if self.sql is None else [self.sql]
        parsed = [parse(one, self.dialect, self.tz) for one in conditions]
        return reduce(and_, parsed) if parsed else None


@dataclass(frozen=True, slots=True)
class ShapeOptions:
    """Columns, order and number of the rows."""

    columns: ColumnsOption = None
    order_by: Annotated[
        list[str] | None,
        typer.Option(
            "--order-by",
            metavar="TERMS",
            help='Sort order, as in SQL: "ts desc, id nulls last"; repeatable.',
        ),
    ] = None
    limit: Annotated[
        int | None, typer.Option("--limit", min=0, metavar="N", help="Maximum number of rows.")
    ] = None

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of a scan."""
        return {
            "columns": named_columns(self.columns, "--columns"),
            "order_by": named_columns(self.order_by, "--order-by"),
            "limit": self.limit,
        }


def parse(where: str, dialect: str, tz: str) -> Predicate:
    """Parse a condition."""
    import skipstone as sk

    return sk.parse(where, dialect=cast("Dialect", dialect), tz=tz)


# -- engines -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The Spark cluster to use."""

    master: Annotated[
        str | None,
        working(
            "--master",
            metavar="URL",
            help="Spark master, such as spark://host:7077. Default: Spark's own setting, else local[*].",
        ),
    ] = None
    remote: Annotated[
        str | None,
        working(
            "--remote", metavar="URL", help="Spark Connect server to use instead, such as sc://host:15002."
        ),
    ] = None
    conf: Annotated[
        list[str] | None, working("--conf", metavar="KEY=VALUE", help="Spark setting; repeatable.")
    ] = None

    @property
    def chosen(self) -> bool:
        """Whether any of these options is set."""
        return any(value is not None for value in (self.master, self.remote, self.conf))

    def refuse(self, unless: str) -> None:
        """Reject these options, which need another one."""
        for option, value in (("--master", self.master), ("--remote", self.remote), ("--conf", self.conf)):
            if value is not None:
                raise typer.BadParameter(f"needs {unless}", param_hint=option)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of ``sk.spark``."""
        if self.master is not None and self.remote is not None:
            raise typer.BadParameter("use --master or --remote, not both", param_hint="--remote")
        conf = key_values(self.conf, "--conf") or None
        return {"master": self.master, "remote": self.remote, "conf": conf}

    @contextmanager
    def session(self) -> Iterator[SparkSession]:
        """Open a session, which is stopped at the end unless it was running before."""
        from skipstone.engine.spark import open_spark

        with open_spark(**self.arguments()) as engine:
            yield engine.session


def engine_arguments(
    engine: EngineName | JobEngine, cluster: ClusterOptions, threads: int | None
) -> dict[str, Any]:
    """Return the arguments of ``open_engine``; reject options that contradict each other."""
    if engine == "local":
        cluster.refuse("--engine spark")
        return {"engine": "local", "threads": threads}
    if threads is not None and (engine == "spark" or cluster.chosen):
        reason = "needs --engine local; for Spark, use --master 'local[N]'"
        raise typer.BadParameter(reason, param_hint="--threads")
    return {"engine": str(engine), **cluster.arguments(), "threads": threads}


@contextmanager
def job_guarded(*, spark_only: bool = False) -> Iterator[None]:
    """Turn errors into a line on standard error; hints name options instead of Python arguments."""
    with guarded():
        try:
            yield
        except SkipstoneError as error:
            if error.hint:
                hint = _LOCAL.sub("", error.hint) if spark_only else error.hint
                error.hint = _ARGUMENT.sub(_option, _BOTH.sub("", hint)) or None
            raise


# The part of a hint about the local engine, for commands that have none.
_LOCAL = re.compile(r'(; |, or use )?engine="local"( needs \w+( \w+)?)?')
# The argument in a hint that also names the option.
_BOTH = re.compile(r"\b\w+= or (?=--)")
_ARGUMENT = re.compile(
    r'\b(engine|route|format|columns|id_column|group_by|strategy|location|prefix_mismatch)=(?:"(\w+)")?'
    r"|\b(partition_by|cluster_by|sort_by|(?:min|max)_file_size_bytes|min_input_files|retain_last|allow_recent)\b"
    r"(?:=True)?"
)


def _option(match: re.Match[str]) -> str:
    name, value, bare = match.groups()
    # A command's own --format is that of its output.
    option = "input-format" if name == "format" else (name or bare).replace("_", "-")
    return f"--{option} {value}" if value else f"--{option}"


# -- questions ---------------------------------------------------------------------------------


def confirm(question: str) -> bool:
    """Ask on the terminal; without one, --yes is needed."""
    if not sys.stdin.isatty():
        raise typer.BadParameter("standard input is not a terminal; use --yes to confirm", param_hint="--yes")
    return typer.confirm(question, err=True)


# -- values ------------------------------------------------------------------------------------


def key_values(pairs: list[str] | None, option: str = "--storage-option") -> dict[str, str]:
    """Parse ``KEY=VALUE`` settings."""
    settings = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not equals or not key:
            # The value may be a secret typed into the wrong place; it is not repeated.
            raise typer.BadParameter("expected KEY=VALUE", param_hint=option)
        settings[key] = value
    return settings


def split_names(parts: list[str] | None) -> list[str]:
    """Split names at commas; a name that contains a comma is quoted.

    >>> split_names(["a, s.x", '"b,c"'])
    ['a', 's.x', 'b,c']
    """
    from skipstone.scan.projection import split_columns

    return [name for part in parts or () for name in split_columns(part)]


def named_columns(names: list[str] | None, option: str) -> list[str] | None:
    """Return the columns of an option; None if it was not used."""
    columns = split_names(names)
    if names is not None and not columns:
        raise typer.BadParameter("no column named", param_hint=option)
    return columns or None


_ENDINGS = {"ndjson": "jsonl", "pq": "parquet", "arrows": "arrow", "ipc": "arrow"}
_F = TypeVar("_F", bound=enum.StrEnum)


def named_format(output: Path | None, formats: type[_F], people: _F) -> _F:
    """Return the format of a file by its extension, or ``people`` if there is no file."""
    if output is None:
        return people
    ending = output.suffix.lower().removeprefix(".")
    try:
        return people if ending == "txt" else formats(_ENDINGS.get(ending, ending))
    except ValueError:
        reason = f"unknown extension of {output.name}; use --format"
        raise typer.BadParameter(reason, param_hint="--format") from None


def read_size(text: str, option: str) -> int:
    """Parse a size in bytes.

    >>> read_size("128MB", "--size"), read_size("64MiB", "--size"), read_size("1.5 gb", "--size")
    (128000000, 67108864, 1500000000)
    """
    from skipstone.core.plain import as_bytes

    try:
        size = as_bytes(text, option)
    except SkipstoneError:
        problem = f"invalid size {text!r}; use one such as 128MB"
        raise typer.BadParameter(problem, param_hint=option) from None
    if not size:
        raise typer.BadParameter("size must be above zero", param_hint=option)
    return size
