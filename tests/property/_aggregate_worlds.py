"""Lakes whose indexes hold sums and sketches, and what is asked about their rows."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa

from skipstone.predicate import tree
from tests.property._frame import drawer
from tests.property._indexes import History, leaf_names
from tests.property._lakes import full_scan, under
from tests.property._oracle import Oracle
from tests.property._scans import World


class SummedHistory(History):
    """A lake whose index mostly holds sums, and often sketches; or that has none."""

    def _build(self) -> None:
        self.opened.refresh()
        style = self.rng.randrange(6)
        names = leaf_names(self.opened.query_schema, {*self.opened.partition_names})
        some = self.rng.sample(names, self.rng.randrange(1, len(names) + 1))
        choice: dict[str, Any] = {"sums": self.rng.choice([True, True, False])}
        if style == 1:
            choice["columns"] = some
        elif style == 2:
            choice |= {"columns": names, "values": True}
        elif style >= 3:
            choice["values"] = self.rng.choice([True, None])
        choice["sketches"] = self.rng.choice([False, False, True, some])
        choice["pages"] = self.rng.random() < 0.8
        choice["rebuild"] = self.rng.random() < 0.15
        self.words.append(f"build {choice}")
        self._told(self.opened.index.build(engine="local", threads=self.rng.choice([1, 2]), **choice))


def enter(history: History, count: Counter[str]) -> World:
    """Build an index and change the lake, or leave it alone; then read every file the plain way."""
    lake = history.lake
    opened = history.home.open() if history.rng.random() < 0.25 else history.run()
    schema = opened.schema.remove_metadata()
    tables = full_scan(lake, schema)
    table = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
    asked = opened.query_schema.remove_metadata()
    coverage = opened.index.coverage
    count["lakes with an index"] += coverage is not None
    count["lakes covered in part"] += coverage is not None and 0 < coverage.covered < len(lake.files)
    return World(lake, opened, tables, table, Oracle(table if asked == schema else table.cast(asked)))


def some_predicate(
    rng: random.Random, made: World, count: Counter[str], share: float = 0.7
) -> tuple[tree.Predicate | None, np.ndarray]:
    """A predicate and the rows that match; in the other cases none, and all rows that there are."""
    live = getattr(made, "live", np.ones(made.table.num_rows, dtype=bool))
    if rng.random() >= share:
        return None, live
    return drawer(rng, made, under(made.table.schema, made.lake.made), count)()
