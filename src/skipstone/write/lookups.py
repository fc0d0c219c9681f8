"""Measure how well a lake skips: plan look-ups of sampled values without reading them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.index.advise.advisor import bloom_pays, mean
from skipstone.index.advise.questions import read_workload
from skipstone.index.advise.rows import RowSample, SampledColumn, keys_of
from skipstone.parquet.write.columns import find_column, find_path
from skipstone.parquet.write.layout import PageLayout
from skipstone.predicate import tree
from skipstone.scan.lake import Lake
from skipstone.scan.options import ScanOptions
from skipstone.scan.scan import Scan
from skipstone.write.report import LookUps
from skipstone.write.rows import RowSurvey

_TRIED: Final = 8
_SEED: Final = 7


def measure_look_ups(lake: Lake, layout: PageLayout, sample: pa.Table) -> tuple[LookUps, ...]:
    """Return, for each partition, clustering or bloom column, the share of the lake an equality reads."""
    names = dict.fromkeys((*layout.partition_by, *layout.cluster_by, *layout.blooms))
    rows = Scan(lake, None, None, None, None, ScanOptions()).plan().rows
    results = (_measure(lake, rows, name, sample) for name in names)
    return tuple(result for result in results if result is not None)


def _measure(lake: Lake, total: int, name: str, sample: pa.Table) -> LookUps | None:
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


def add_blooms(survey: RowSurvey, layout: PageLayout, queries: Any) -> PageLayout:
    """Add bloom filters to the layout for the columns where these queries benefit."""
    if not survey.rows:
        return layout
    questions = read_workload(queries, survey.sample.schema).questions
    refs = {ref.path: ref for question in questions for ref in question.node.refs()}
    keys = {path: keys_of(ref.type, find_column(survey.sample, ref.name)) for path, ref in refs.items()}
    sample = RowSample(
        {
            path: SampledColumn.of(refs[path].type, values)
            for path, values in keys.items()
            if values is not None
        },
        partitions=np.zeros(survey.sample.num_rows, dtype=np.int64),
        rows=survey.rows,
        page_rows={},
        group_rows=_group_rows(survey, layout),
    )
    read = sample.shares_read(questions).tolist()
    names = []
    for path, ref in refs.items():
        uses = [at for at, question in enumerate(questions) if path in question.columns]
        filtered = [sample.read_with_bloom(questions[at], path, read[at]) for at in uses]
        gains = [0.0 if less is None else read[at] - less for at, less in zip(uses, filtered, strict=True)]
        gain = mean([questions[at] for at in uses], gains)
        if path[0] not in layout.partition_by and bloom_pays(gain, sample.bloom_bytes(path), survey.bytes):
            names.append(ref.name)
    return replace(layout, blooms=tuple(dict.fromkeys((*layout.blooms, *names))))


def _group_rows(survey: RowSurvey, layout: PageLayout) -> float:
    """Estimated rows per row group."""
    in_memory = survey.sample.nbytes / survey.sample.num_rows
    by_size = layout.row_group_bytes / max(in_memory, 1.0)
    by_file = layout.target_file_bytes / max(survey.profile.bytes_per_row, 1e-3)
    return float(min(layout.row_group_rows, by_size, by_file, survey.rows))
