"""The lake that rows are taken into: what it demands of them, and its index afterwards."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from skipstone.engine.jobs import Engine
from skipstone.errors import (
    CorruptFileError,
    EncryptedFileError,
    NotParquetError,
    ReadError,
    SchemaError,
    UnknownColumnError,
    UsageError,
)
from skipstone.iceberg.catalogs import is_table_name
from skipstone.lake.directory import is_visible
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

_ICEBERG: Final = "an Iceberg table can be overwritten and streamed into, by its name in a catalog"
_SOME: Final = 10
_BROKEN: Final = (NotParquetError, CorruptFileError, EncryptedFileError)
_CLUSTER: Final = "skipstone.cluster"
"""Where files keep how their rows are clustered, so that later ingests do the same."""


def lake_store(path: Any, storage_options: Mapping[str, Any] | None = None) -> Store:
    """The directory that rows are to go into; a name that looks like a table's is refused."""
    if isinstance(path, str) and is_table_name(path) and not os.path.lexists(path):
        hint = f'give sk.ingest the catalog of the table, or "./{path}" for a new directory'
        raise UsageError("the name looks like a table's, and no directory is called so", path=path, hint=hint)
    return open_lake_root(path, storage_options)


def opened(store: Store) -> Lake | None:
    """The lake at a place; None where there is no file yet."""
    try:
        return Lake(store)
    except ReadError:
        # A store that can't be read is no empty lake.
        if any(is_visible(entry) for entry in list_settled(store, lambda: store.list_prefix(""))):
            raise
        return None


def check_store(store: Store) -> None:
    """Refuse a place that is a file, or whose files another lake would take for its own."""
    if store.local and os.path.lexists(store.uri) and not os.path.isdir(store.uri):  # noqa: PTH112
        raise UsageError("it is a file", path=store.uri, hint="name a directory")
    with suppress(ReadError):
        owned = open_root(store.uri).list_prefix(BESIDE) if store.local else []
        lakes = [entry.key.split("/")[1] for entry in owned if "/appends/" in entry.key]
        if lakes:
            hint = f"name one of them, such as {store.path(lakes[0])}, or another directory"
            raise UsageError("directory contains lakes", path=store.uri, hint=hint)
    above = store.parent()
    while above is not None:
        # Who may not list what is above can't have a lake there.
        with suppress(ReadError):
            if with_own_files(above).list_prefix(FOLDER):
                hint = f"take rows into {above.uri}, or put the new lake beside it"
                raise UsageError("it lies in another lake", path=store.uri, hint=hint)
        above = above.parent()


def check_names(names: Iterable[str]) -> None:
    """Refuse columns that Spark, unless told otherwise, and DuckDB take for one."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.get(name.casefold())
        if other is not None:
            problem = f"another one is called {other}" if other != name else "there are two of that name"
            raise SchemaError(problem, column=name, hint="rename one, or drop it")
        seen[name.casefold()] = name


def fitted(layout: PageLayout, lake: Lake, schema: pa.Schema) -> PageLayout:
    """The layout with the lake's partitions and, unless others are asked for, its filters and clustering."""
    names = lake.partition_names
    if layout.partition_by and tuple(layout.partition_by) != tuple(names):
        have = ", ".join(names) or "nothing"
        raise UsageError(
            f"the lake is partitioned by {have}, not by {', '.join(layout.partition_by)}",
            path=lake.uri,
            hint="leave partition_by out: a directory keeps its partitions",
        )
    usual = (".".join(path) for path in _spec(lake).get("blooms", ()))
    blooms = layout.blooms or tuple(name for name in usual if _has(schema, name))
    fitted = replace(layout, partition_by=tuple(names), blooms=blooms)
    return fitted if layout.cluster_by else _clustered(fitted, lake, schema)


def cluster_metadata(layout: PageLayout) -> tuple[tuple[str, str], ...]:
    """What files keep of how their rows are clustered."""
    if not layout.cluster_by:
        return ()
    return ((_CLUSTER, json.dumps({"by": layout.cluster_by, "order": layout.cluster})),)


def _clustered(layout: PageLayout, lake: Lake, schema: pa.Schema) -> PageLayout:
    """The layout clustered as the lake's newest ingested file is, by columns that the new rows have."""
    files = [entry for entry in lake.entries if job_of(entry.key) is not None]
    if not files:
        return layout
    newest = max(files, key=lambda entry: (modified(entry) or 0.0, entry.key))
    # A file that is broken, or that somebody else has written, only tells nothing.
    with suppress(*_BROKEN, ValueError, KeyError, TypeError, UsageError):
        told = json.loads(lake.access.footer(newest).key_value_metadata[_CLUSTER.encode()])
        names = tuple(name for name in told["by"] if _has(schema, name))
        return replace(layout, cluster_by=names, cluster=told["order"]) if names else layout
    return layout


def check_fits(lake: Lake, schema: pa.Schema, *, evolve: bool) -> None:
    """Refuse rows that the lake's files can't be read together with and, without ``evolve``, new columns."""
    names = set(lake.partition_names)
    missing = names - set(schema.names)
    if missing:
        raise SchemaError("the lake is partitioned by it", path=lake.uri, column=min(missing), hint="add it")
    known = {name.casefold(): name for name in lake.query_schema.names}
    for name in schema.names:
        other = known.get(name.casefold(), name)
        if other != name and name not in lake.query_schema.names:
            raise SchemaError(f"the lake calls it {other}", path=lake.uri, column=name, hint="rename it")
    data = pa.schema([field for field in schema if field.name not in names])
    own = pa.schema([field for field in lake.query_schema if field.name not in names])
    merge_schemas([(lake.uri, own), ("the new rows", data)])
    new = dict(_new_columns(pa.struct(list(data)), pa.struct(list(own))))
    if new and not evolve:
        raise _unknown(new, lake.uri)


def _new_columns(given: pa.DataType, known: pa.DataType, path: str = "") -> Iterator[tuple[str, list[str]]]:
    """Fields that only one type has, by dotted path, and those beside them that only the other has."""
    if pa.types.is_struct(given) and pa.types.is_struct(known):
        mine, theirs = ({field.name for field in type.fields} for type in (given, known))
        missing = [field.name for field in known.fields if field.name not in mine]
        yield from ((path + field.name, missing) for field in given.fields if field.name not in theirs)
    for name, left, right in children(given, known) or ():
        yield from _new_columns(left, right, f"{path}{name}.")


def _unknown(new: Mapping[str, list[str]], uri: str) -> SchemaError:
    (column, missing), *others = new.items()
    problem = "the lake has no such column"
    if others:
        problem += f", nor {', '.join(name for name, _ in others[:_SOME])}"
    near = difflib.get_close_matches(column.rpartition(".")[2], missing)
    hint = "add new columns with evolve=True, or --evolve"
    if near:
        hint = f"did you mean {', '.join(near)}? Else {hint}"
    elif column.startswith("__index_level_"):
        hint = f"drop the frame's index with reset_index(drop=True), or {hint}"
    return SchemaError(problem, path=uri, column=column, hint=hint)


def index_new(
    store: Store, layout: PageLayout, engine: Engine, progress: Callable[[int, int], None] | None = None
) -> Lake | None:
    """The lake as it is now, its new files indexed as the others are, or else by default."""
    lake = opened(store)
    if lake is None:
        return None
    told = _spec(lake)
    wanted = [".".join(find_path(lake.schema, name)) for name in layout.blooms]
    known = [".".join(path) for path in told.get("blooms", ())]
    if told and set(wanted) <= set(known):
        lake.index.refresh(engine=engine, progress=progress)
    elif told:
        # As it was, and the new filters.
        lake.index.build(
            columns=_named(lake, (path for path, _ in told["columns"])),
            blooms=[name for name in dict.fromkeys((*known, *wanted)) if _has(lake.schema, name)],
            pages=told["pages"],
            values=bool(told["values"]),
            sums=_named(lake, told["sums"]) or False,
            sketches=_named(lake, told["sketches"]) or False,
            ids=_named(lake, told["ids"]),
            engine=engine,
            progress=progress,
        )
    else:
        lake.index.build(blooms=wanted or None, engine=engine, progress=progress)
    return lake


def index_bytes(lake: Lake) -> int:
    """The size of a lake's index."""
    coverage = lake.index.coverage
    return 0 if coverage is None else sum(note.size for note in coverage.manifest.segments)


def refuse_overwrite(path: str) -> UsageError:
    """The error of a write that would delete."""
    return UsageError(
        "a directory can only be appended to", path=path, hint=f'use mode("append"); {_ICEBERG}'
    )


def refuse_stream(path: str) -> UsageError:
    """The error of a stream into a directory."""
    hint = f'write batches with mode("append"), as in foreachBatch; {_ICEBERG}'
    return UsageError("a directory can't be streamed into", path=path, hint=hint)


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
