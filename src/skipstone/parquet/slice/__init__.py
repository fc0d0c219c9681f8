"""Page slices: read only the pages that contain some rows, and let pyarrow decode them.

A slice is a valid Parquet file in memory: the selected pages unchanged, the dictionary page if one of them
needs it, and a new footer. ``pages`` plans the byte ranges and checks the bytes, ``decode`` builds the file
and reads it, ``columns`` cuts columns to the wanted rows, ``steps`` runs all of it.
"""

from skipstone.parquet.slice.decode import (
    FAILURES,
    Decoder,
    SlicePart,
    decode_batches,
    decode_part,
    decode_together,
    open_reader,
    pool_for_much,
)
from skipstone.parquet.slice.pages import LeafPlan, plan_leaves, slice_ranges
from skipstone.parquet.slice.steps import RowGroupPages, part_steps, slice_steps

__all__ = [
    "FAILURES",
    "Decoder",
    "LeafPlan",
    "RowGroupPages",
    "SlicePart",
    "decode_batches",
    "decode_part",
    "decode_together",
    "open_reader",
    "part_steps",
    "plan_leaves",
    "pool_for_much",
    "slice_ranges",
    "slice_steps",
]
