"""``skipstone ingest``: new files of a source, laid out for skipping."""

from __future__ import annotations

import enum
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from skipstone.cli.options import (
    ClusterOptions,
    Format,
    FormatOption,
    StorageOption,
    grouped,
    job_guarded,
    key_values,
    named_columns,
    read_size,
)
from skipstone.cli.output import show
from skipstone.cli.progress import steps
from skipstone.errors import ReadError

_layout = partial(typer.Option, rich_help_panel="Layout of the files")
_source = partial(typer.Option, rich_help_panel="The source")


class InputFormat(enum.StrEnum):
    """The format of a source."""

    PARQUET = "parquet"
    CSV = "csv"
    JSON = "json"
    ORC = "orc"


class ClusterOrder(enum.StrEnum):
    """How clustered rows are ordered."""

    SORT = "sort"
    ZORDER = "zorder"
    HILBERT = "hilbert"


class Codec(enum.StrEnum):
    """How pages are compressed."""

    ZSTD = "zstd"
    SNAPPY = "snappy"
    GZIP = "gzip"
    LZ4 = "lz4"
    BROTLI = "brotli"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class LayoutOptions:
    """How files are laid out."""

    partition_by: Annotated[
        list[str] | None,
        _layout(
            "--partition-by",
            metavar="A,B",
            help="A directory for each value of these; an existing lake keeps its own.",
        ),
    ] = None
    cluster_by: Annotated[
        list[str] | None,
        _layout(
            "--cluster-by",
            metavar="A,B",
            help="Order rows by these, across all files: the columns that queries filter most.",
        ),
    ] = None
    cluster: Annotated[
        ClusterOrder,
        _layout(
            "--cluster", help="sort: by the first, then by the next; zorder, hilbert: by all of them equally."
        ),
    ] = ClusterOrder.SORT
    target_file_size: Annotated[
        str | None,
        _layout(
            "--target-file-size",
            metavar="SIZE",
            help="Target file size, such as 64MiB or 1GB; by default 128MiB.",
        ),
    ] = None
    row_group_rows: Annotated[
        int | None,
        _layout(
            "--row-group-rows", min=1, metavar="N", help="Maximum rows of a row group; by default 1,000,000."
        ),
    ] = None
    page_rows: Annotated[
        int | None,
        _layout(
            "--page-rows",
            min=1,
            metavar="N",
            help="Rows of a page, the smallest unit that is read; by default 2,000.",
        ),
    ] = None
    compression: Annotated[Codec | None, _layout("--compression", help="By default zstd.")] = None
    blooms: Annotated[
        list[str] | None,
        _layout(
            "--blooms",
            metavar="A,B",
            help="Bloom filters for lookup columns that the rows are not clustered by.",
        ),
    ] = None
    queries: Annotated[
        Path | None,
        _layout(
            "--queries",
            metavar="FILE",
            help="A query log, as `index advise` takes it: adds bloom filters where they pay.",
        ),
    ] = None

    def arguments(self) -> dict[str, Any]:
        """What ``sk.ingest`` takes; sizes that were not given are left to it."""
        size = self.target_file_size
        given = {
            "page_rows": self.page_rows,
            "row_group_rows": self.row_group_rows,
            "compression": None if self.compression is None else str(self.compression),
        }
        return {
            "partition_by": named_columns(self.partition_by, "--partition-by") or (),
            "cluster_by": named_columns(self.cluster_by, "--cluster-by") or (),
            "cluster": str(self.cluster),
            "target_file_bytes": None if size is None else read_size(size, "--target-file-size"),
            "blooms": named_columns(self.blooms, "--blooms"),
            **{name: value for name, value in given.items() if value is not None},
        }

    def check(self) -> None:
        """Find what is wrong before Spark is started."""
        from skipstone.write.job import make_layout

        others = self.arguments()
        names = ("partition_by", "cluster_by", "cluster", "target_file_bytes", "blooms")
        make_layout(**{name: others.pop(name) for name in names}, others=others)
        if self.queries is not None and not self.queries.is_file():
            raise ReadError("no such file", path=str(self.queries), hint="--queries names a query log")


@grouped
def ingest(
    source: Annotated[
        str,
        typer.Argument(metavar="SOURCE", help="A directory, one file, or a quoted glob: a path or a URI."),
    ],
    lake: Annotated[
        str, typer.Argument(metavar="LAKE", help="The directory to write to; it need not exist.")
    ],
    input_format: Annotated[
        InputFormat | None,
        _source("--input-format", help="Format of the source; by default by the names of its files."),
    ] = None,
    schema: Annotated[
        str | None,
        _source(
            "--schema",
            metavar="DDL",
            help="Its columns in Spark's DDL: 'id long, name string'. By default as in the files; "
            "for csv and json inferred from their values.",
        ),
    ] = None,
    read_option: Annotated[
        list[str] | None,
        _source(
            "--read-option",
            metavar="KEY=VALUE",
            help="An option of Spark's reader, such as sep=';'; may be repeated.",
        ),
    ] = None,
    batch_size: Annotated[
        str | None,
        _source(
            "--batch-size",
            metavar="SIZE",
            help="Source bytes ingested at once, all or nothing; by default 16GiB.",
        ),
    ] = None,
    evolve: Annotated[
        bool, typer.Option("--evolve", help="Accept columns that the lake does not have yet.")
    ] = False,
    no_index: Annotated[bool, typer.Option("--no-index", help="Don't index the new files.")] = False,
    format: FormatOption = Format.TEXT,
    storage_option: StorageOption = None,
    *,
    layout: LayoutOptions,
    spark: ClusterOptions,
) -> None:
    """Ingest the new files of a source: laid out for skipping, published all at once, and indexed.

    Runs on Spark. A source file that was ingested before is not ingested again.
    """
    where: dict[str, Any] = {
        "format": None if input_format is None else str(input_format),
        "storage_options": key_values(storage_option) or None,
    }
    how: dict[str, Any] = {
        "schema": schema,
        "read_options": key_values(read_option, "--read-option") or None,
        **({} if batch_size is None else {"batch_bytes": read_size(batch_size, "--batch-size")}),
        "index": not no_index,
        "evolve": evolve,
        "queries": layout.queries,
        **layout.arguments(),
    }
    # Options that make no sense are refused before anything is read.
    spark.arguments()
    with job_guarded(spark_only=True), ExitStack() as stack:
        import skipstone as sk
        from skipstone.write.lakes import lake_store
        from skipstone.write.sources import find_sources

        layout.check()
        with steps("starting Spark", {"writing": "task", "indexing": "file"}) as bar:
            if bar is not None:
                how |= {"progress": bar.update, "on_batch": partial(bar.batch, phase="counting and sampling")}
            # Spark is started only if there is something to do.
            new = find_sources(source, lake_store(lake, where["storage_options"]), **where).new
            session = stack.enter_context(spark.session()) if new else None
            report = sk.ingest_new(source, lake, session=session, **where, **how)
        show(report, format)
