"""Bloom filters where they would pay: the advisor asked about a sample, laid out as the lake will be."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from typing import Any

from skipstone.index.advise import advise
from skipstone.index.lake import IndexedLake
from skipstone.ingest.frame import Survey
from skipstone.store.place import open_place, open_root
from skipstone.write.files import sort_batch, write_files
from skipstone.write.layout import Layout

_FILES = 8


def advised(found: Survey, layout: Layout, queries: Any) -> Layout:
    """The layout with bloom filters of the columns that these queries would profit by."""
    if not found.rows:
        return layout
    # As many row groups and pages as the lake will have, as far as a sample can.
    small = replace(
        layout, target_file_bytes=max(int(found.profile.bytes_per_row * found.sample.num_rows / 8), 1)
    )
    with tempfile.TemporaryDirectory(prefix="skipstone-") as folder:
        place = open_root(folder)
        batches = sort_batch(found.sample, layout).to_batches()
        write_files(batches, place, "0" * 20, "sample", small, found.profile)
        lake = IndexedLake(*open_place(folder))
        said = advise(lake, queries)
        names = said.blooms
    return replace(layout, blooms=tuple(dict.fromkeys((*layout.blooms, *names))))
