"""Random overlays of the snapshots of random tables, beside the rows that they have."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pyarrow as pa

import skipstone as sk
from skipstone.table.overlay import Layer, MemoryFile, overlay
from tests.iceberg._worlds import ChainWorld
from tests.property._lakes import ROW_ID, LakeFile
from tests.property._oracle import Oracle


def random_rows(rng: random.Random, table: pa.Table, first: int, count: int) -> pa.Table:
    """Rows with values of any rows of a table, each column by itself, and row ids from ``first``."""
    columns = []
    for field, column in zip(table.schema, table.columns, strict=True):
        if field.name == ROW_ID:
            columns.append(pa.array(range(first, first + count), field.type))
        else:
            chosen = [rng.randrange(table.num_rows) for _ in range(count)]
            columns.append(column.take(pa.array(chosen, pa.int64())))
    return pa.Table.from_arrays(columns, schema=table.schema)


def random_layers(rng: random.Random, table: sk.Table, rows: pa.Table) -> list[tuple[Layer, pa.Table]]:
    """Up to three layers of random rows, some of which are hidden."""
    layers: list[tuple[Layer, pa.Table]] = []
    first = 1_000_000
    for _ in range(rng.choice([0, 1, 1, 2, 3]) if rows.num_rows else 0):
        added = random_rows(rng, rows, first, rng.choice([1, 3, 20, 60]))
        first += added.num_rows
        gone = random_positions(rng, np.arange(added.num_rows))
        hidden = sk.RowSet.from_positions(added.num_rows, gone) if rng.random() < 0.4 else None
        layer = Layer(MemoryFile.of(table, added), hidden)
        if layer.rows:
            layers.append((layer, added))
    return layers


def random_positions(rng: random.Random, among: np.ndarray) -> np.ndarray:
    """None, some, or all of some positions."""
    share = rng.choice([0.0, 0.1, 0.5, 1.0])
    return np.array([one for one in among.tolist() if rng.random() < share], dtype=np.int64)


def with_overlay(rng: random.Random, made: ChainWorld, table: sk.Table) -> ChainWorld:
    """The world of a snapshot with random rows hidden, and others added."""
    live = made.live.copy()
    hidden: dict[str, sk.RowSet] = {}
    words = []
    for number, entry in enumerate(sorted(table.entries, key=lambda entry: entry.key)):
        start, stop = made.starts[number], made.starts[number + 1]
        gone = random_positions(rng, np.flatnonzero(live[start:stop]))
        if len(gone) or rng.random() < 0.1:
            hidden[entry.key] = sk.RowSet.from_positions(stop - start, gone)
            words.append(f"{len(gone)} rows of {made.lake.files[number].path} hidden")
            live[start + gone] = False
    layers = random_layers(rng, table, made.table)
    opened = overlay(table, hidden, [layer for layer, _ in layers])
    files, tables = [*made.lake.files], [*made.tables]
    for entry, (layer, rows) in zip(opened.entries[len(table.entries) :], layers, strict=True):
        gone = [] if layer.hidden is None else layer.hidden.positions().tolist()
        files.append(LakeFile(entry.key, {}, f"{rows.num_rows} rows in memory, {len(gone)} hidden"))
        tables.append(rows)
        mine = np.ones(rows.num_rows, dtype=bool)
        mine[gone] = False
        live = np.append(live, mine)
    lake = replace(made.lake, files=files, steps=(*made.lake.steps, *words))
    whole = pa.concat_tables(tables).combine_chunks() if tables else made.table
    return ChainWorld(lake, opened, tables, whole, Oracle(whole), live)
