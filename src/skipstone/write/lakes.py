"""The target directory of an ingest: checks of location and schema, inherited layout, index update."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from skipstone.core.domain.keys import is_text, storage_type
from skipstone.core.plain import type_name
from skipstone.engine.jobs import Engine
from skipstone.errors import (
    CorruptFileError,
    EncryptedFileError,
    NotParquetError,
    ReadError,
    SchemaError,
    UnknownColumnError,
    UsageError,
    did_you_mean,
    similar,
)
from skipstone.iceberg.catalogs import is_table_name
from skipstone.lake.directory import is_visible
from skipstone.lake.partitions import read_partitions, value_text
from skipstone.lake.records import (
    BESIDE,
    FOLDER,
    job_of,
    list_settled,
    modified,
    open_lake_root,
    with_own_files,
)
from skipstone.lake.schema import children, merge_schemas
from skipstone.parquet.write.columns import find_path
from skipstone.parquet.write.layout import PageLayout
from skipstone.scan.lake import Lake
from skipstone.store.store import Store, open_root

_ICEBERG: Final = "or write to an Iceberg table, which supports overwrites and streams"
_SOME: Final = 10
_BROKEN: Final = (NotParquetError, CorruptFileError, EncryptedFileError)
_CLUSTER: Final = "skipstone.cluster"
"""Key-value metadata that records the clustering of a file, for later ingests to inherit."""


def lake_store(path: Any, storage_options: Mapping[str, Any] | None = None) -> Store:
    """Open the target directory; a name that looks like a table's is an error."""
    if isinstance(path, str) and is_table_name(path) and not os.path.lexists(path):
        hint = f'pass a catalog to sk.ingest for a table, or use "./{path}" for a new directory'
        raise UsageError("path looks like a table name and does not exist", path=path, hint=hint)
    return open_lake_root(path, storage_options)


def open_existing(store: Store) -> Lake | None:
    """Open the lake in a store; None if it has no files yet."""
    try:
        return Lake(store)
    except ReadError:
        # A lake that can't be read is not empty.
        if any(is_visible(entry) for entry in list_settled(store, lambda: store.list_prefix(""))):
            raise
        return None


def check_target(store: Store) -> None:
    """Refuse a path that is a file, contains lakes or is inside another lake."""
    if store.local and os.path.lexists(store.uri) and not os.path.isdir(store.uri):  # noqa: PTH112
        raise UsageError("not a directory", path=store.uri, hint="use the path of a directory")
    with suppress(ReadError):
        owned = open_root(store.uri).list_prefix(BESIDE) if store.local else []
        lakes = [entry.key.split("/")[1] for entry in owned if "/appends/" in entry.key]
        if lakes:
            hint = f"use one of them, such as {store.path(lakes[0])}, or another directory"
            raise UsageError("directory contains lakes", path=store.uri, hint=hint)
    above = store.parent()
    while above is not None:
        # A parent that this user can't list can't be this user's lake.
        with suppress(ReadError):
            if with_own_files(above).list_prefix(FOLDER):
                hint = f"ingest into {above.uri}, or use a directory outside it"
                raise UsageError("directory is inside another lake", path=store.uri, hint=hint)
        above = above.parent()


def check_names(names: Iterable[str]) -> None:
    """Refuse column names that differ only in case: Spark and DuckDB treat them as one by default."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.get(name.casefold())
        if other is not None:
            problem = f"name differs from {other} only in case" if other != name else "duplicate name"
            raise SchemaError(problem, column=name, hint="rename or drop one of them")
        seen[name.casefold()] = name


def fit_layout(layout: PageLayout, lake: Lake, schema: pa.Schema) -> PageLayout:
    """Apply the lake's partitioning and, where the layout has none, its bloom filters and clustering."""
    names = partition_order(lake)
    if layout.partition_by and layout.partition_by != names:
        own = ", ".join(names) or "no column"
        raise UsageError(
            f"lake is partitioned by {own}, not by {', '.join(layout.partition_by)}",
            path=lake.uri,
            hint="omit partition_by: the partitioning of a directory can't change",
        )
    indexed = (".".join(path) for path in _spec(lake).get("blooms", ()))
    blooms = layout.blooms or tuple(name for name in indexed if _has(schema, name))
    inherited = replace(layout, partition_by=names, blooms=blooms)
    return inherited if layout.cluster_by else _inherit_clustering(inherited, lake, schema)


def partition_order(lake: Lake) -> tuple[str, ...]:
    """Return the partition columns in the order of their directories."""
    return tuple(read_partitions([lake.entries[0].key], uri=lake.uri).schema.names)


def cluster_metadata(layout: PageLayout) -> tuple[tuple[str, str], ...]:
    """Return the key-value metadata that records the clustering."""
    if not layout.cluster_by:
        return ()
    return ((_CLUSTER, json.dumps({"by": layout.cluster_by, "order": layout.cluster})),)


def _inherit_clustering(layout: PageLayout, lake: Lake, schema: pa.Schema) -> PageLayout:
    """Apply the clustering of the lake's newest ingested file, for columns that the new rows have."""
    files = [entry for entry in lake.entries if job_of(entry.key) is not None]
    if not files:
        return layout
    newest = max(files, key=lambda entry: (modified(entry) or 0.0, entry.key))
    # A broken file, or one that another writer has written, gives no clustering.
    with suppress(*_BROKEN, ValueError, KeyError, TypeError, UsageError):
        recorded = json.loads(lake.access.footer(newest).key_value_metadata[_CLUSTER.encode()])
        names = tuple(name for name in recorded["by"] if _has(schema, name))
        return replace(layout, cluster_by=names, cluster=recorded["order"]) if names else layout
    return layout


def check_fits(lake: Lake, schema: pa.Schema, *, evolve: bool) -> None:
    """Refuse a schema that can't be merged with the lake's and, without ``evolve``, new columns."""
    names = set(lake.partition_names)
    missing = names - set(schema.names)
    if missing:
        problem = "partition column is missing from the rows"
        raise SchemaError(problem, path=lake.uri, column=min(missing), hint="add the column")
    by_case = {name.casefold(): name for name in lake.query_schema.names}
    for name in schema.names:
        other = by_case.get(name.casefold(), name)
        if other != name and name not in lake.query_schema.names:
            problem = f"the lake's column is named {other}"
            raise SchemaError(problem, path=lake.uri, column=name, hint="rename the column")
    for name in names:
        own_type, new_type = lake.query_schema.field(name).type, schema.field(name).type
        if not pa.types.is_null(own_type) and _kind(own_type) != _kind(new_type):
            own_name, new_name = type_name(own_type), type_name(new_type)
            problem = f"partition column is {own_name} in the lake, but {new_name} in the new rows"
            raise SchemaError(
                problem, path=lake.uri, column=name, hint=_cast_hint(own_type, "use a new lake")
            )
    data = pa.schema([field for field in schema if field.name not in names])
    own = pa.schema([field for field in lake.query_schema if field.name not in names])
    merge_schemas([(lake.uri, own), ("the new rows", data)])
    new = dict(_new_columns(pa.struct(list(data)), pa.struct(list(own))))
    if new and not evolve:
        raise _new_column_error(new, lake.uri)


def check_partitions(lake: Lake | None, keys: Sequence[str], schema: pa.Schema) -> None:
    """Refuse new files whose partition values would be read back as another type, as '01' as a number.

    Types are inferred from all values, so those of the lake count too.
    """
    old = [] if lake is None else [entry.key for entry in lake.entries]
    after = read_partitions([*keys, *old])
    for at, values in enumerate(after.values if keys else ()):
        name = after.schema.names[at]
        wanted = schema.field(name).type
        if pa.types.is_null(values.type) or _kind(values.type) == _kind(wanted):
            continue
        texts = [value_text(key.split("/")[at].partition("=")[2]) for key in keys]
        pairs = zip(texts, values.slice(0, len(keys)).to_pylist(), strict=True)
        found = [(text, value) for text, value in pairs if text is not None]
        # An example that also looks different is the clearest.
        for text, value in sorted(found, key=lambda pair: pair[0] == str(pair[1]))[:1]:
            back = f"{value} of type {type_name(values.type)}"
            raise SchemaError(
                f"partition value {text!r} would be read back as {back}, not {type_name(wanted)}",
                column=name,
                hint=_cast_hint(values.type, "partition by another column"),
            )


def _cast_hint(type: pa.DataType, otherwise: str) -> str:
    kind = _kind(type)
    return f"cast the column to {kind}, or {otherwise}" if kind in _PARTITION_KINDS else otherwise


_PARTITION_KINDS: Final = ("string", "integer", "date")


def _kind(type: pa.DataType) -> str:
    """Return what a partition column contains, whatever its width."""
    type = storage_type(type)
    tests = (is_text, pa.types.is_integer, pa.types.is_date)
    return next(
        (kind for kind, holds in zip(_PARTITION_KINDS, tests, strict=True) if holds(type)), type_name(type)
    )


def _new_columns(rows: pa.DataType, lake: pa.DataType, path: str = "") -> Iterator[tuple[str, list[str]]]:
    """Yield the dotted path of each field that only ``rows`` has, with the siblings only ``lake`` has."""
    if pa.types.is_struct(rows) and pa.types.is_struct(lake):
        mine, theirs = ({field.name for field in type.fields} for type in (rows, lake))
        missing = [field.name for field in lake.fields if field.name not in mine]
        yield from ((path + field.name, missing) for field in rows.fields if field.name not in theirs)
    for name, left, right in children(rows, lake) or ():
        yield from _new_columns(left, right, f"{path}{name}.")


def _new_column_error(new: Mapping[str, list[str]], uri: str) -> SchemaError:
    (column, missing), *others = new.items()
    problem = "not in the lake"
    if others:
        problem += f", nor are {', '.join(name for name, _ in others[:_SOME])}"
    hint = "add new columns with evolve=True or --evolve"
    if similar(name := column.rpartition(".")[2], missing):
        hint = f"{did_you_mean(name, missing, '')} Otherwise {hint}"
    elif column.startswith("__index_level_"):
        hint = f"drop the frame's index with reset_index(drop=True), or {hint}"
    return SchemaError(problem, path=uri, column=column, hint=hint)


def index_new_files(
    store: Store, layout: PageLayout, engine: Engine, progress: Callable[[int, int], None] | None = None
) -> Lake | None:
    """Index the new files with the options of the existing index, or the defaults, and return the lake."""
    lake = open_existing(store)
    if lake is None:
        return None
    spec = _spec(lake)
    wanted = [".".join(find_path(lake.schema, name)) for name in layout.blooms]
    indexed = [".".join(path) for path in spec.get("blooms", ())]
    if spec and set(wanted) <= set(indexed):
        lake.index.refresh(engine=engine, progress=progress)
    elif spec:
        # The same options, with more bloom filters.
        lake.index.build(
            columns=_named(lake, (path for path, _ in spec["columns"])),
            blooms=[name for name in dict.fromkeys((*indexed, *wanted)) if _has(lake.schema, name)],
            pages=spec["pages"],
            values=bool(spec["values"]),
            sums=_named(lake, spec["sums"]) or False,
            sketches=_named(lake, spec["sketches"]) or False,
            ids=_named(lake, spec["ids"]),
            engine=engine,
            progress=progress,
        )
    else:
        lake.index.build(blooms=wanted or None, engine=engine, progress=progress)
    return lake


def index_bytes(lake: Lake) -> int:
    """Size of a lake's index."""
    coverage = lake.index.coverage
    return 0 if coverage is None else sum(note.size for note in coverage.manifest.segments)


def refuse_overwrite(path: str) -> UsageError:
    """Return the error for an overwrite of a directory."""
    return UsageError("directories can't be overwritten", path=path, hint=f'use mode("append"), {_ICEBERG}')


def refuse_stream(path: str) -> UsageError:
    """Return the error for a streaming write to a directory."""
    hint = f'write batches in foreachBatch with mode("append"), {_ICEBERG}'
    return UsageError("directories don't support streaming writes", path=path, hint=hint)


def _spec(lake: Lake) -> dict[str, Any]:
    coverage = lake.index.coverage
    return coverage.manifest.spec if coverage is not None else {}


def _named(lake: Lake, paths: Iterable[Iterable[str]]) -> list[str]:
    return [name for path in paths if _has(lake.schema, name := ".".join(path))]


def _has(schema: pa.Schema, name: str) -> bool:
    try:
        find_path(schema, name)
    except UnknownColumnError:
        return False
    return True
