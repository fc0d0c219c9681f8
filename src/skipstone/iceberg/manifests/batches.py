"""Entries of many manifests that lie together: each manifest's are a run of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from skipstone.core.evidence import Array
from skipstone.iceberg.manifests.entries import Entries


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """The entries of one manifest, as a run of a batch."""

    batch: Entries
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def entries(self) -> Entries:
        """Those of this manifest alone."""
        return joined([self])


def joined(parts: Sequence[Part]) -> Entries:
    """The entries of parts one after the other; a batch that is wanted whole is not copied."""
    batches = {id(part.batch): part.batch for part in parts if len(part)}
    if not batches:
        return parts[0].batch if len(parts) == 1 and not len(parts[0].batch) else Entries.empty()
    places = {key: place for place, key in enumerate(batches)}
    starts, stops = np.array([(part.start, part.stop) for part in parts if len(part)], dtype=np.int64).T
    owners = np.array([places[id(part.batch)] for part in parts if len(part)], dtype=np.int64)
    taken = []
    for place, batch in enumerate(batches.values()):
        mine = owners == place
        rows = runs(starts[mine], stops[mine])
        whole = len(rows) == len(batch) and bool((rows == np.arange(len(rows))).all())
        taken.append(batch if whole else batch.take(rows))
    found = Entries.concat(taken)
    if (owners[1:] >= owners[:-1]).all():
        return found
    # Back in the order of the parts: as they lie now, they are sorted by batch.
    order = np.argsort(owners, kind="stable")
    counts = stops - starts
    firsts = np.empty_like(counts)
    firsts[order] = np.cumsum(counts[order]) - counts[order]
    return found.take(runs(firsts, firsts + counts))


def runs(starts: Array, stops: Array) -> Array:
    """The numbers from each start to its stop, one run after the other."""
    counts = stops - starts
    ends = np.cumsum(counts)
    found: Array = np.arange(ends[-1] if len(ends) else 0) + np.repeat(stops - ends, counts)
    return found
