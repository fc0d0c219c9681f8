"""``skipstone ingest``: new files of a source, laid out for skipping."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from skipstone.cli.options import (
    ClusterOptions,
    Format,
    FormatOption,
    JobEngine,
    JobEngineOption,
    JobThreadsOption,
    StorageOption,
    engine_arguments,
    grouped,
    job_guarded,
    key_values,
    named_columns,
    read_size,
)
from skipstone.cli.output import show
from skipstone.cli.progress import steps
from skipstone.errors import ReadError

_layout = partial(typer.Option, rich_help_panel="File layout")
_source = partial(typer.Option, rich_help_panel="Source")


class InputFormat(enum.StrEnum):
    """Formats of sources."""

    PARQUET = "parquet"
    CSV = "csv"
    JSON = "json"
    ORC = "orc"


class ClusterOrder(enum.StrEnum):
    """Orders of clustered rows."""

    SORT = "sort"
    ZORDER = "zorder"
    HILBERT = "hilbert"


class Codec(enum.StrEnum):
    """Compression codecs."""

    ZSTD = "zstd"
    SNAPPY = "snappy"
    GZIP = "gzip"
    LZ4 = "lz4"
    BROTLI = "brotli"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class LayoutOptions:
    """Layout of the files."""

    partition_by: Annotated[
        list[str] | None,
        _layout(
            "--partition-by",
            metavar="A,B",
            help="Partition columns, a directory per value. Default for an existing lake: its own.",
        ),
    ] = None
    cluster_by: Annotated[
        list[str] | None,
        _layout(
            "--cluster-by",
            metavar="A,B",
            help="Columns to order rows by, across all files: those that queries filter by most.",
        ),
    ] = None
    cluster: Annotated[
        ClusterOrder,
        _layout(
            "--cluster",
            help="Row order: sort (by the first column, then the next), or zorder or hilbert (by all).",
        ),
    ] = ClusterOrder.SORT
    target_file_size: Annotated[
        str | None,
        _layout(
            "--target-file-size",
            metavar="SIZE",
            help="Target file size, such as 64MiB or 1GB. Default: 128MiB.",
        ),
    ] = None
    force: Annotated[
        bool, _layout("--force", help="Accept a target below 1 MiB, and more than 10,000 new files.")
    ] = False
    row_group_rows: Annotated[
        int | None,
        _layout(
            "--row-group-rows", min=1, metavar="N", help="Maximum rows per row group. Default: 1,000,000."
        ),
    ] = None
    page_rows: Annotated[
        int | None,
        _layout(
            "--page-rows",
            min=1,
            metavar="N",
            help="Rows per page, the smallest unit that is read. Default: 2,000.",
        ),
    ] = None
    compression: Annotated[
        Codec | None, _layout("--compression", help="Compression codec. Default: zstd.")
    ] = None
    blooms: Annotated[
        list[str] | None,
        _layout(
            "--blooms",
            metavar="A,B",
            help="Columns with bloom filters: look-up columns that rows are not clustered by.",
        ),
    ] = None
    queries: Annotated[
        Path | None,
        _layout(
            "--queries",
            metavar="FILE",
            help="Query log, as for `index advise`; adds bloom filters that make these queries faster.",
        ),
    ] = None

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of ``sk.ingest``; unset sizes are left to it."""
        size = self.target_file_size
        optional = {
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
            "force": self.force,
            **{name: value for name, value in optional.items() if value is not None},
        }

    def check(self) -> None:
        """Check the options before Spark is started."""
        from skipstone.write.job import make_layout, target_size

        others = self.arguments()
        target_size(others["target_file_bytes"], force=others.pop("force"))
        names = ("partition_by", "cluster_by", "cluster", "target_file_bytes", "blooms")
        make_layout(**{name: others.pop(name) for name in names}, others=others)
        if self.queries is not None and not self.queries.is_file():
            raise ReadError(
                "no such file", path=str(self.queries), hint="pass the path of a query log to --queries"
            )


@grouped
def ingest(
    source: Annotated[
        str,
        typer.Argument(metavar="SOURCE", help="Directory, file or quoted glob, as a path or URI."),
    ],
    lake: Annotated[str, typer.Argument(metavar="LAKE", help="Directory to write to; created if missing.")],
    input_format: Annotated[
        InputFormat | None,
        _source("--input-format", help="Format of the source. Default: by file extension."),
    ] = None,
    schema: Annotated[
        str | None,
        _source(
            "--schema",
            metavar="DDL",
            help="Columns to read and their types: 'id long, name string'. Default: those of the files; "
            "types of csv and json are inferred.",
        ),
    ] = None,
    read_option: Annotated[
        list[str] | None,
        _source(
            "--read-option",
            metavar="KEY=VALUE",
            help="Option of CSV files, such as sep=';' or header=false; repeatable.",
        ),
    ] = None,
    batch_size: Annotated[
        str | None,
        _source(
            "--batch-size",
            metavar="SIZE",
            help="Source bytes per batch; a batch is published as a unit. Default: 16GiB.",
        ),
    ] = None,
    evolve: Annotated[bool, typer.Option("--evolve", help="Accept new columns.")] = False,
    no_index: Annotated[bool, typer.Option("--no-index", help="Don't index the new files.")] = False,
    engine: JobEngineOption = JobEngine.AUTO,
    threads: JobThreadsOption = None,
    format: FormatOption = Format.TEXT,
    storage_option: StorageOption = None,
    *,
    layout: LayoutOptions,
    spark: ClusterOptions,
) -> None:
    """Ingest new files from a source: cluster their rows, publish them atomically, and index them.

    Files that were ingested before are skipped.
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
    # Contradicting options are rejected before anything is read.
    work = engine_arguments(engine, spark, threads)
    with job_guarded(), ExitStack() as stack:
        import skipstone as sk
        from skipstone.engine.jobs import choose_engine
        from skipstone.write.lakes import lake_store
        from skipstone.write.sources import find_sources

        layout.check()
        choice = choose_engine(**work)
        if choice.engine == "spark":
            # Spark is started only if there is something to do for it.
            new = find_sources(source, lake_store(lake, where["storage_options"]), **where)
            choice = choice.for_input(new.bytes)
        on_spark = choice.engine == "spark"
        how |= {"engine": "spark" if spark.chosen else str(engine), "threads": threads}
        phase = "starting Spark" if on_spark else "counting and sampling"
        parts = {"writing": "task" if on_spark else "row", "indexing": "file"}
        with steps(phase, parts) as bar:
            if bar is not None:
                how |= {"progress": bar.update, "on_batch": partial(bar.batch, phase="counting and sampling")}
            if on_spark and new.new:
                asked = engine is JobEngine.SPARK or spark.chosen
                stack.enter_context(spark.session() if asked else _stopped_session())
            report = sk.ingest_new(source, lake, **where, **how)
        show(report, format)


@contextmanager
def _stopped_session() -> Iterator[None]:
    """Stop the session that the block starts, if it starts one."""
    from skipstone.engine.session import running_session

    before = running_session()
    try:
        yield
    finally:
        session = running_session()
        if before is None and session is not None:
            session.stop()
