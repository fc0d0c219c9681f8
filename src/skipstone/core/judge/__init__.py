"""IR × evidence → bits, verdicts and reasons. Pure, columnar, and the same at every level."""

from __future__ import annotations

from skipstone.core.judge.bits import Bits, Verdict
from skipstone.core.judge.judge import Cleared, Judgement, judge, meets

__all__ = ["Bits", "Cleared", "Judgement", "Verdict", "judge", "meets"]
