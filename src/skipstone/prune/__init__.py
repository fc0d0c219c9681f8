"""Pruner and the cascade over the levels of one file."""

from __future__ import annotations

from skipstone.prune.options import BloomProvider, BloomRequest, PruneOptions
from skipstone.prune.pruner import Pruner, prune
from skipstone.prune.result import PruneResult

__all__ = ["BloomProvider", "BloomRequest", "PruneOptions", "PruneResult", "Pruner", "prune"]
