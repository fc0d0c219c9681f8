"""How many cases each random suite runs.

``make test`` runs the first cases of each suite: a case is seeded by its number, so runs have the same cases.
``make test-all`` sets ``SKIPSTONE_CASES``, of which each suite runs its share.
"""

from __future__ import annotations

import os
from typing import NamedTuple


class Sample(NamedTuple):
    """Cases of ``make test``, and the share of ``SKIPSTONE_CASES`` that ``make test-all`` runs."""

    daily: int
    share: float


SAMPLES = {
    # tests/property
    "aggregates of lakes": Sample(14, 0.036),
    "aggregates of tables": Sample(7, 0.01),
    "aggregates, related": Sample(4, 1 / 40),
    "ids": Sample(8, 1 / 40),
    "filters": Sample(400, 1),
    "filters, duckdb": Sample(120, 1 / 10),
    "index": Sample(48, 0.16),
    "predicate texts": Sample(600, 1),
    "prune": Sample(500, 1),
    "row sets": Sample(8, 1 / 100),
    "scan": Sample(90, 0.35),
    "semi joins": Sample(60, 1 / 20),
    "slices, damaged": Sample(50, 1 / 10),
    "slices, files": Sample(10, 1 / 20),
    "tables": Sample(30, 0.04),
    "tables, name mappings": Sample(12, 1 / 125),
    "tables, partition faults": Sample(8, 1 / 190),
    # tests/bridge
    "bridges": Sample(30, 1 / 20),
    "nested columns": Sample(6, 1 / 50),
    # tests/serve
    "server, API": Sample(15, 1 / 10),
    "server, bodies": Sample(20, 1 / 10),
    # tests/compact
    "compactions": Sample(8, 1 / 25),
    "upkeep": Sample(3, 1 / 60),
    "upkeep races": Sample(3, 1 / 60),
    # tests/table
    "overlays": Sample(12, 0.03),
    "aggregates of overlays": Sample(4, 0.008),
    "keyed model": Sample(4, 1 / 2_500),
    "keyed writes": Sample(2, 1 / 100),
    "evolved specs": Sample(1, 1 / 60),
    # tests/corpus
    "corpus": Sample(40, 1 / 100),
    # tests/faults
    "killed tails": Sample(15, 0.015),
    "damaged aggregates": Sample(10, 1 / 36),
    "damaged index": Sample(20, 1 / 6),
    "damaged tables": Sample(14, 1 / 50),
    "mutants": Sample(40, 1),
    # tests/iceberg and tests/unit
    "advice": Sample(5, 1 / 400),
    "chains": Sample(3, 1 / 1_300),
    "damaged entries": Sample(60, 1 / 10),
    "forged entries": Sample(40, 1 / 20),
    "index levels": Sample(50, 1 / 80),
    "index searches": Sample(50, 1 / 60),
    "partition filters": Sample(60, 1 / 10),
    "reasons": Sample(16, 1 / 500),
    "round trips": Sample(30, 1 / 100),
    "sorted rows": Sample(7, 1 / 50),
    "SQL": Sample(60, 1 / 50),
    "statistics": Sample(16, 1 / 500),
    "verify": Sample(12, 1 / 800),
    # tests/spark
    "expressions": Sample(40, 1 / 10),
}


def sample(suite: str) -> int:
    """Return the number of cases to run."""
    daily, share = SAMPLES[suite]
    return max(daily, round(int(os.environ.get("SKIPSTONE_CASES", 0)) * share))
