"""Records of many entries cut into raw slices: one compiled pattern does what a walk over each field would.

A walk over every field costs Python a function call for each number in an entry. Entries of one writer look
alike, though: the same unions taken, the same item counts, few different lengths. So what a walk meets is
remembered, and a regular expression built from the schema and those counts cuts the entries that follow; an
entry it doesn't match is walked. A match is a complete parse, never a guess.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from skipstone.iceberg.manifests.avro import Node
from skipstone.iceberg.manifests.codecs import AvroError
from skipstone.iceberg.manifests.patterns import compile_steps
from skipstone.iceberg.manifests.walk import Site, plan, walk, wanted

# A pattern takes as long to compile as some fifty entries to walk, and few tell what the others are like.
_PATIENCE = 16


class Slicer:
    """Cuts records of one schema; what it learns about them is kept for the next container."""

    def __init__(self, schema: Node, sites: Mapping[str, Site]) -> None:
        if schema.kind != "record":
            raise AvroError(f"the schema is a {schema.kind}, not a record")
        self._steps = plan(schema, sites)
        self.nodes = {step.slot: step.node for step in wanted(self._steps) if step.slot is not None}
        self._match: Any = None
        self._misses = 0
        self._patience = _PATIENCE
        self._lock = threading.Lock()

    def cut(self, body: bytes, blocks: Sequence[tuple[int, int]]) -> dict[str, list[bytes | None]]:
        """The slices of every site that the schema has, in every record."""
        # Record after record in one list: a container for each would keep the garbage collector busy.
        cuts: list[bytes | None] = []
        done = pos = 0
        match = self._match
        try:
            for count, end in blocks:
                # A loop per entry: where a record ends is known only after it was read.
                for _ in range(count):
                    found = match(body, pos) if match is not None else None
                    if found is None:
                        pos = walk(self._steps, body, pos, cuts)
                        match = self._missed(done)
                    else:
                        cuts += found.groups()
                        pos = found.end()
                done += count
                if pos != end:
                    raise AvroError("a block's records don't end where the block does")
        except RecursionError:
            raise AvroError("its records are nested without end") from None
        return {slot: cuts[place :: len(self.nodes)] for place, slot in enumerate(self.nodes)}

    def _missed(self, done: int) -> Any:
        """Count an entry that was walked; after enough of them compile what was learnt."""
        self._misses += 1
        if self._misses >= self._patience:
            with self._lock:
                if self._misses >= self._patience:
                    # Records that have little in common must not cost much more than a walk.
                    helped = done > 20 * self._patience
                    self._patience = _PATIENCE if helped else 2 * self._patience
                    self._misses = 0
                    self._match = compile_steps(self._steps)
        return self._match
