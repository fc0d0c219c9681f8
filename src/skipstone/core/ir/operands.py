"""What a side of a comparison can be, and the signal that it is none of that."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from skipstone.core.ir.nodes import Reason


@dataclass(frozen=True, slots=True)
class Value:
    """An operand that is a constant."""

    scalar: pa.Scalar
    zone: str


class CantJudge(Exception):
    """An operand or comparison that metadata can't judge; it is left to the rows."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
