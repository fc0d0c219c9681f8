"""How well a lake skips: look-ups of values that it holds, planned and not read."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.index.lake import Indexed
from skipstone.predicate import tree
from skipstone.report.ingest import LookUps
from skipstone.scan.options import ScanOptions
from skipstone.scan.scan import Scan
from skipstone.write.columns import find_column, find_path
from skipstone.write.layout import Layout

_TRIED: Final = 8
_SEED: Final = 7


def look_ups(lake: Indexed, layout: Layout, sample: pa.Table) -> tuple[LookUps, ...]:
    """For each column that rows are clustered by, or that has a filter, what an equality has to read."""
    names = dict.fromkeys((*layout.partition_by, *layout.cluster_by, *layout.blooms))
    rows = Scan(lake, None, None, None, None, ScanOptions()).plan().rows
    found = (_look_up(lake, rows, name, sample) for name in names)
    return tuple(one for one in found if one is not None)


def _look_up(lake: Indexed, total: int, name: str, sample: pa.Table) -> LookUps | None:
    values = pc.drop_null(find_column(sample, name)).combine_chunks()
    if not len(values):
        return None
    chosen = np.random.default_rng(_SEED).choice(len(values), min(_TRIED, len(values)), replace=False)
    column = tree.Column(find_path(sample.schema, name))
    rows = kept = files = tasks = 0
    for number in chosen.tolist():
        where = tree.Compare("=", column, tree.Literal(values[number]))
        trace = Scan(lake, where, None, None, None, ScanOptions()).plan().trace
        rows += total
        kept += trace.rows_kept
        files += trace.files
        tasks += trace.tasks
    return LookUps(name, kept / rows if rows else 0.0, tasks / files if files else 0.0)
