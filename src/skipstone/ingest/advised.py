"""Bloom filters where they would pay: questions asked of a sample, laid out as the lake will be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from skipstone.index.advise.advisor import bloom_pays, mean
from skipstone.index.advise.questions import read_questions
from skipstone.index.advise.rows import RowSample, SampledColumn, keys_of
from skipstone.ingest.frame import Survey
from skipstone.write.columns import find_column
from skipstone.write.layout import Layout


def advised(found: Survey, layout: Layout, queries: Any) -> Layout:
    """The layout with bloom filters of the columns that these queries would profit by."""
    if not found.rows:
        return layout
    questions = read_questions(queries, found.sample.schema).questions
    refs = {ref.path: ref for question in questions for ref in question.node.refs()}
    keys = {path: keys_of(ref.type, find_column(found.sample, ref.name)) for path, ref in refs.items()}
    sample = RowSample(
        {
            path: SampledColumn.of(refs[path].type, values)
            for path, values in keys.items()
            if values is not None
        },
        partitions=np.zeros(found.sample.num_rows, dtype=np.int64),
        rows=found.rows,
        page_rows={},
        group_rows=_group_rows(found, layout),
    )
    read = sample.shares_read(questions).tolist()
    names = []
    for path, ref in refs.items():
        asking = [at for at, question in enumerate(questions) if path in question.columns]
        filtered = [sample.read_with_bloom(questions[at], path, read[at]) for at in asking]
        gains = [0.0 if less is None else read[at] - less for at, less in zip(asking, filtered, strict=True)]
        gain = mean([questions[at] for at in asking], gains)
        if path[0] not in layout.partition_by and bloom_pays(gain, sample.bloom_bytes(path), found.bytes):
            names.append(ref.name)
    return replace(layout, blooms=tuple(dict.fromkeys((*layout.blooms, *names))))


def _group_rows(found: Survey, layout: Layout) -> float:
    """Rows of a row group, each of which gets a filter."""
    in_memory = found.sample.nbytes / found.sample.num_rows
    by_size = layout.row_group_bytes / max(in_memory, 1.0)
    by_file = layout.target_file_bytes / max(found.profile.bytes_per_row, 1e-3)
    return float(min(layout.row_group_rows, by_size, by_file, found.rows))
