"""``skipstone ingest SOURCE LAKE``: what is new in a source, in batches that are taken wholly or not at all.

A run that is interrupted has lost the batch it was at; the next one goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from skipstone.engine.session import spark_session
from skipstone.engine.spark import SparkEngine
from skipstone.engine.spark_types import spark_schema
from skipstone.errors import UsageError
from skipstone.index.lake import IndexedLake
from skipstone.ingest.job import Ingest, Progress, make_layout
from skipstone.ingest.lakes import lake_place
from skipstone.ingest.sources import Sources, find_sources, has_tabs
from skipstone.report.ingest import IngestReport, PipelineReport
from skipstone.store.place import Listed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import DataType, StructField, StructType

BATCH_BYTES: Final = 16 * 2**30
_USUAL: Final[Mapping[str, dict[str, str]]] = {
    # A line that can't be read is an error, and no row of NULLs; columns go by names, not by places.
    "csv": {"header": "true", "mode": "FAILFAST", "enforceSchema": "false"},
    "json": {"mode": "FAILFAST"},
    "parquet": {"mergeSchema": "true"},
    "orc": {"mergeSchema": "true"},
}
# Whatever the session says: a file that is left out would be noted as taken in.
_ALL_FILES: Final = {"ignoreCorruptFiles": "false", "ignoreMissingFiles": "false", "__globPaths__": "false"}


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
    storage_options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    on_batch: Callable[[int, int], None] | None = None,
    evolve: bool = False,
    **layout: Any,
) -> PipelineReport:
    """Take the files of ``source`` into the lake that it has not taken in before.

    ``format`` is parquet, csv, json or orc, as the files' names tell unless given; ``schema`` is Spark's
    DDL, as in "id long, name string", and ``read_options`` go to Spark's reader. Files that have changed
    since they were taken in are left alone, and told of. The other options are those of ``ingest``.
    """
    chosen = make_layout(partition_by, cluster_by, cluster, target_file_bytes, blooms, layout)
    place = lake_place(path, storage_options)
    found = find_sources(source, place, format, storage_options)
    batches = found.batches(batch_bytes)
    reports: list[IngestReport] = []
    if batches:
        session = session or spark_session()
        work = Ingest(place, chosen, session, index, queries, progress, evolve)
        for number, batch in enumerate(batches):
            if on_batch is not None:
                on_batch(number, len(batches))
            frame = _frame(session, found, batch, schema, dict(read_options or {}), work.lake)
            unchanged = partial(found.check_same, batch)
            reports.append(work.take(frame, found.noted(batch), before_publish=unchanged))
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
    if has_tabs(batch[0]):
        usual["sep"] = "\t"
    reader = session.read.format(found.format).options(**{**usual, **options, **_ALL_FILES})
    uris = [found.uri(entry) for entry in batch]
    with SparkEngine(session, owned=False) as engine:
        frame = engine.follow(lambda: _loaded(reader, found.format, schema, uris, lake))
    if len(frame.inputFiles()) != len(batch):
        problem = f"Spark reads {len(frame.inputFiles())} of {len(batch)} files"
        raise UsageError(problem, path=root, hint="leave out read_options that choose among files")
    return frame


def _loaded(
    reader: DataFrameReader, format: str, schema: str | None, uris: list[str], lake: IndexedLake | None
) -> DataFrame:
    if schema is not None:
        return reader.schema(schema).load(uris)
    if format not in ("csv", "json"):
        return reader.load(uris)
    guessed = (reader.option("inferSchema", "true") if format == "csv" else reader).load(uris)
    return reader.schema(_as_known(guessed.schema, lake)).load(uris)


def _as_known(inferred: StructType, lake: IndexedLake | None) -> StructType:
    """A schema that was guessed, with the lake's own types where it has the columns."""
    if lake is None:
        return inferred
    known = {field.name: field for field in spark_schema(lake.schema, lake.query_schema).fields}
    fields = [_typed(field, known.get(field.name)) for field in inferred.fields]
    return type(inferred)(fields)


def _typed(guessed: StructField, known: StructField | None) -> StructField:
    """A field as the lake has it, and what is new in it."""
    if known is None:
        return guessed
    return type(guessed)(guessed.name, _merged(guessed.dataType, known.dataType))


def _merged(guessed: DataType, known: DataType) -> DataType:
    from pyspark.sql.types import ArrayType, StructType

    if isinstance(guessed, StructType) and isinstance(known, StructType):
        fields = {field.name: field for field in known.fields}
        new = [field for field in guessed.fields if field.name not in fields]
        old = [_typed(field, fields[field.name]) for field in guessed.fields if field.name in fields]
        return StructType([*old, *new])
    if isinstance(guessed, ArrayType) and isinstance(known, ArrayType):
        return ArrayType(_merged(guessed.elementType, known.elementType))
    return known
