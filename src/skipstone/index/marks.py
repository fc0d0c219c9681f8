"""A mark for each version of each file, by which an index row and a listed file are known to be the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xxhash import xxh3_128_digest

from skipstone.core.evidence import Array
from skipstone.parquet.naming import Naming
from skipstone.store.store import ListedFile


def marks_of(entries: Sequence[ListedFile], naming: Naming | None = None) -> Array:
    """128 bits per file, of its key, size and version, and of the name mapping that its columns go by."""
    fallback = b"" if naming is None else naming.fallback
    digests = b"".join(
        [
            xxh3_128_digest(
                f"{entry.key}\0{entry.size}\0{entry.version!r}".encode(errors="surrogateescape") + fallback
            )
            for entry in entries
        ]
    )
    return np.frombuffer(digests, dtype="<u8").reshape(-1, 2)


def match(marks: Array, wanted: Array) -> Array:
    """For each wanted mark its place among ``marks``, or -1; of equal marks the last."""
    if not len(marks) or not len(wanted):
        return np.full(len(wanted), -1, dtype=np.int64)
    if len(marks) == len(wanted) and np.array_equal(marks, wanted):
        return np.arange(len(marks), dtype=np.int64)
    order = np.argsort(marks[:, 0], kind="stable")
    keys = marks[order, 0]
    at = np.searchsorted(keys, wanted[:, 0], side="right") - 1
    found = order[np.maximum(at, 0)]
    # Two marks that share their first half would need 2**32 files; the second half tells them apart.
    same = (at >= 0) & (marks[found] == wanted).all(axis=1)
    return np.where(same, found, -1)
