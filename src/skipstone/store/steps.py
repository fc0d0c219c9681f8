"""Driving generators that do no I/O: each yields what it needs, is sent the answer, and returns a result."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

Need = TypeVar("Need")
Result = TypeVar("Result")


def drive(steps: Generator[Need, Any, Result], answer: Callable[[Need], Any]) -> Result:
    """Run ``steps`` to their end, answering every need."""
    given = None
    while True:
        try:
            need = steps.send(given)
        except StopIteration as stop:
            result: Result = stop.value
            return result
        given = answer(need)
