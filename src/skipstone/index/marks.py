"""Marks: digests that identify one version of one file, in the index and in a listing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xxhash import xxh3_128_digest

from skipstone.core.evidence import Array
from skipstone.parquet.naming import Naming
from skipstone.store.store import ListedFile


def marks_of(entries: Sequence[ListedFile], naming: Naming | None = None) -> Array:
    """Return 128 bits per file, of its key, size and version, and of the name mapping of its columns."""
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
    """Return the position of each wanted mark in ``marks``, or -1; the last one of equal marks."""
    if not len(marks) or not len(wanted):
        return np.full(len(wanted), -1, dtype=np.int64)
    if len(marks) == len(wanted) and np.array_equal(marks, wanted):
        return np.arange(len(marks), dtype=np.int64)
    order = np.argsort(marks[:, 0], kind="stable")
    keys = marks[order, 0]
    at = np.searchsorted(keys, wanted[:, 0], side="right") - 1
    positions = order[np.maximum(at, 0)]
    # The search uses the first half: marks that share it take about 2**32 files, and the second half differs.
    same = (at >= 0) & (marks[positions] == wanted).all(axis=1)
    return np.where(same, positions, -1)
