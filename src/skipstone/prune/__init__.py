"""Pruner and the cascade over the levels of one file."""

from __future__ import annotations

from skipstone.prune.options import BloomProvider, BloomRequest, PruneOptions
from skipstone.prune.pruner import Pruner, PruneResult, prune

__all__ = ["BloomProvider", "BloomRequest", "PruneOptions", "PruneResult", "Pruner", "prune"]
