"""``skipstone ingest SOURCE LAKE``: what is new in a source, in batches that are taken wholly or not at all.

A run that is interrupted has lost the batch it was at; the next one goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from skipstone.bridge.spark.types import spark_schema
from skipstone.engine.session import spark_session
from skipstone.explain.ingest import IngestReport, PipelineReport
from skipstone.index.lake import IndexedLake
from skipstone.ingest.job import Ingest, Progress, make_layout
from skipstone.ingest.sources import Sources, find_sources
from skipstone.store.place import Listed, open_root

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

BATCH_BYTES: Final = 16 * 2**30
_USUAL: Final[Mapping[str, dict[str, str]]] = {
    # A line that can't be read is an error, and no row of NULLs.
    "csv": {"header": "true", "mode": "FAILFAST"},
    "json": {"mode": "FAILFAST"},
    "parquet": {"mergeSchema": "true"},
    "orc": {"mergeSchema": "true"},
}


def ingest_new(
    source: Any,
    path: Any,
    *,
    format: str | None = None,
    schema: str | None = None,
    read_options: Mapping[str, str] | None = None,
    batch_bytes: int = BATCH_BYTES,
    partition_by: Sequence[str] = (),
    cluster_by: Sequence[str] = (),
    cluster: str = "sort",
    target_file_bytes: int | None = None,
    blooms: Sequence[str] | None = None,
    queries: Any = None,
    index: bool = True,
    session: SparkSession | None = None,
    storage_options: dict[str, str] | None = None,
    progress: Progress | None = None,
    on_batch: Callable[[int, int], None] | None = None,
    **layout: Any,
) -> PipelineReport:
    """Take the files of ``source`` into the lake that it has not taken in before.

    ``format`` is parquet, csv, json or orc, as the files' names tell unless given; ``schema`` is Spark's
    DDL, as in "id long, name string", and ``read_options`` go to Spark's reader. Files that have changed
    since they were taken in are left alone, and told of. The other options are those of ``ingest``.
    """
    chosen = make_layout(partition_by, cluster_by, cluster, target_file_bytes, blooms, layout)
    place = open_root(path, storage_options=storage_options)
    found = find_sources(source, place, format, storage_options)
    batches = found.batches(batch_bytes)
    reports: list[IngestReport] = []
    if batches:
        session = session or spark_session()
        work = Ingest(place, chosen, session, index, queries, progress)
        for number, batch in enumerate(batches):
            if on_batch is not None:
                on_batch(number, len(batches))
            frame = _frame(session, found, batch, schema, dict(read_options or {}), work.lake)
            reports.append(work.take(frame, found.noted(batch)))
    return PipelineReport(place.uri, len(found.new), found.known, found.changed, tuple(reports))


def _frame(
    session: SparkSession,
    found: Sources,
    batch: Sequence[Listed],
    schema: str | None,
    options: dict[str, str],
    lake: IndexedLake | None,
) -> DataFrame:
    """The files as Spark reads them; columns of texts that the lake knows have its types."""
    root = found.place.uri
    usual = {**_USUAL[found.format], "basePath": f"file://{root}" if found.place.local else root}
    if batch[0].key.lower().split(".")[1:2] == ["tsv"]:
        usual["sep"] = "\t"
    reader = session.read.format(found.format).options(**{"__globPaths__": "false", **usual, **options})
    uris = [found.uri(entry) for entry in batch]
    if schema is not None:
        return reader.schema(schema).load(uris)
    if found.format != "csv":
        return reader.load(uris)
    inferred = reader.option("inferSchema", "true").load(uris).schema
    return reader.schema(_as_known(inferred, lake)).load(uris)


def _as_known(inferred: StructType, lake: IndexedLake | None) -> StructType:
    """A schema that was guessed, with the lake's own types where it has the columns."""
    if lake is None:
        return inferred
    known = {field.name: field for field in spark_schema(lake.schema, lake.query_schema).fields}
    return type(inferred)([known.get(field.name, field) for field in inferred.fields])
