"""A snapshot of a random table beside the oracle's rows, as the property tests of scans want it."""

from __future__ import annotations

import datetime as dt
import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from skipstone.predicate import tree
from tests.iceberg._chains import Chain
from tests.iceberg._maker import Maker
from tests.iceberg._types import Field, build
from tests.property._lakes import Lake, LakeFile, cast
from tests.property._oracle import Oracle
from tests.property._scans import World


@dataclass
class ChainLake(Lake):
    """A chain's files, with the steps that made them."""

    steps: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """Every step, then every file."""
        return "\n    ".join([*self.steps, *(f"{file.path}: {file.words}" for file in self.files)])


@dataclass(frozen=True)
class ChainWorld(World):
    """Tables hold deleted rows too, so that positions are those of the files; no predicate matches them."""

    live: np.ndarray

    def mask(self, predicate: tree.Predicate) -> np.ndarray:
        return super().mask(predicate) & self.live


class At:
    """An open lake that is always asked about one snapshot."""

    def __init__(self, lake: Any, snapshot: Any) -> None:
        self._lake, self._snapshot = lake, snapshot
        self._pinned = lake.at(snapshot)
        self.schema, self.query_schema = self._pinned.schema, self._pinned.query_schema

    def scan(self, where: Any = None, **more: Any) -> Any:
        return self._lake.scan(where, snapshot=self._snapshot, **more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pinned, name)


def ask(rng: random.Random, maker: Maker) -> tuple[Any, int, int]:
    """A way to name a snapshot, its id, and the schema that it is read with."""
    known = [s for s in maker.snapshots.values() if s.id not in maker.expired]
    head = maker.refs["main"][0]
    style = rng.randrange(8)
    if style <= 3:
        return None, head, maker.current_schema
    if style == 4:
        name, (id, kind) = rng.choice([*maker.refs.items()])
        return name, id, maker.current_schema if kind == "branch" else maker.snapshots[id].schema
    if style == 5:
        time, id = rng.choice(maker.log)
        moment = dt.datetime.fromtimestamp(time / 1000, dt.UTC) + dt.timedelta(seconds=rng.choice([0, 1, 9]))
        return moment, id, maker.snapshots[id].schema
    one = rng.choice(known)
    return one.id, one.id, one.schema


def world(chain: Chain, opened: Any, snapshot: int, schema: int) -> ChainWorld:
    """The rows of a snapshot as the open lake types them."""
    maker = chain.maker
    fields = maker.schemas[schema]
    types = opened.schema.remove_metadata()
    assert types.names == [f.name for f in fields]
    files, tables, live = [], [], []
    for one in maker.live(snapshot):
        path = one.file.path.removeprefix(f"{maker.location}/")
        deletes = f", {len(one.deleted)} deleted" if one.deleted else ""
        words = f"{one.file.records} rows{deletes}, sequence {one.sequence}, {one.file.words}"
        files.append(LakeFile(path, {}, words))
        arrays = [_typed(f, maker.column(one.file, f), types.field(f.name).type) for f in fields]
        tables.append(pa.Table.from_arrays(arrays, schema=types))
        live += [row not in one.deleted for row in range(one.file.records)]
    steps = [
        f"snapshot {snapshot}, schema {schema}: {[(f.id, f.name, f.type) for f in fields]}",
        *chain.words,
    ]
    lake = ChainLake(maker.root, files, chain.made(schema), types, False, {}, tuple(steps))
    table = pa.concat_tables(tables).combine_chunks() if tables else types.empty_table()
    return ChainWorld(lake, opened, tables, table, Oracle(table), np.array(live, dtype=bool))


def _typed(field: Field, values: list[Any], type: pa.DataType) -> pa.Array:
    return cast(build(field.type, values), type)
