"""What metadata can judge: the nodes, and how a predicate becomes them."""

from __future__ import annotations

from skipstone.core.ir.compile import compile_predicate
from skipstone.core.ir.nodes import Compiled, Diagnostic, Reason

__all__ = ["Compiled", "Diagnostic", "Reason", "compile_predicate"]
