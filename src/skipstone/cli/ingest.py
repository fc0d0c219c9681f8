"""``skipstone ingest``: new files of a source, laid out for skipping."""

from __future__ import annotations

import enum
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skipstone.cli.options import (
    Cluster,
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
from skipstone.cli.progress import Steps, steps
from skipstone.errors import ReadError

if TYPE_CHECKING:
    from skipstone.write.report import PipelineReport

_layout = partial(typer.Option, rich_help_panel="Layout of the files")
_source = partial(typer.Option, rich_help_panel="The source")
_STARTING, _SURVEYING = "starting Spark", "counting and sampling"
_PARTS = {"writing": "task", "indexing": "file"}


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
    spark: Cluster,
) -> None:
    """Ingest the new files of a source: laid out for skipping, published all at once, and indexed.

    Runs on Spark. A source file that was ingested before is not ingested again.
    """
    work = _Work(
        source,
        lake,
        {
            "format": None if input_format is None else str(input_format),
            "storage_options": key_values(storage_option) or None,
        },
        {
            "schema": schema,
            "read_options": key_values(read_option, "--read-option") or None,
            **({} if batch_size is None else {"batch_bytes": read_size(batch_size, "--batch-size")}),
            "index": not no_index,
            "evolve": evolve,
        },
        layout.arguments(),
        layout.queries,
    )
    # Options that make no sense are refused before anything is looked at.
    spark.arguments()
    with job_guarded(spark_only=True):
        from skipstone.write.views import pipeline_tree

        show(work.run(spark), pipeline_tree, format)


@dataclass(frozen=True, slots=True)
class _Work:
    """The arguments of ``sk.ingest_new``."""

    source: str
    lake: str
    where: dict[str, Any]
    how: dict[str, Any]
    layout: dict[str, Any]
    queries: Path | None

    def run(self, spark: Cluster) -> PipelineReport:
        """Do it; Spark is started only if there is something to do."""
        import skipstone as sk

        self._check()
        with ExitStack() as stack:
            bar = stack.enter_context(steps(_STARTING, _PARTS))
            session = stack.enter_context(spark.session()) if self._is_new() else None
            return sk.ingest_new(
                self.source,
                self.lake,
                session=session,
                queries=self.queries,
                progress=None if bar is None else bar.update,
                on_batch=None if bar is None else _on_batch(bar),
                **self.where,
                **self.how,
                **self.layout,
            )

    def _check(self) -> None:
        """Find what is wrong before Spark is started."""
        from skipstone.write.job import make_layout

        others = dict(self.layout)
        named = {name: others.pop(name) for name in _NAMED}
        make_layout(**named, others=others)
        if self.queries is not None and not self.queries.is_file():
            raise ReadError("no such file", path=str(self.queries), hint="--queries names a query log")

    def _is_new(self) -> bool:
        from skipstone.write.lakes import lake_place
        from skipstone.write.sources import find_sources

        place = lake_place(self.lake, self.where["storage_options"])
        return bool(find_sources(self.source, place, **self.where).new)


_NAMED = ("partition_by", "cluster_by", "cluster", "target_file_bytes", "blooms")


def _on_batch(bar: Steps) -> Any:
    return lambda number, batches: bar.batch(number, batches, _SURVEYING)
