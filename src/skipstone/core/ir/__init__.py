"""The IR that metadata can judge, and the compiler from predicates."""

from __future__ import annotations

from skipstone.core.ir.compile import compile_predicate
from skipstone.core.ir.nodes import Compiled, Diagnostic, Reason

__all__ = ["Compiled", "Diagnostic", "Reason", "compile_predicate"]
