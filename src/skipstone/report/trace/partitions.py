"""How far a filter on partitions could be applied."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FilterStats:
    """What became of the partitions of a table whose partitioning may have changed."""

    unevaluable_specs: int = 0
    """Specs of the table that the predicate could not be projected onto; their partitions are kept."""
    eval_errors: int = 0
    """Distinct partition keys whose evaluation failed; they are kept."""
    fail_open_partitions: int = 0
    """Distinct partition keys that were kept for either of these reasons."""
    fail_open_files: int = 0
    """Files among the candidates that lie in such partitions."""
    unconstrained_specs: int = 0
    """Specs without a field made from a column of the predicate; their partitions are kept by right."""
