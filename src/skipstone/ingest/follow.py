"""Spark jobs that say which file they failed at, however deep Spark has hidden that."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeVar

from skipstone.engine.spark import SparkEngine
from skipstone.errors import JobError

R = TypeVar("R")

_CAUSE: Final = re.compile(r"(?:Exception|Error): (\[[A-Z0-9_.]+\] [^\n]+)|Caused by: [\w.$]+: ([^\n]+)")
_MOST: Final = 3


def follow(
    engine: SparkEngine, run: Callable[[], R], progress: Callable[[int, int], None] | None = None
) -> R:
    """What ``run`` gives; a failure is told with all that Spark has named as its causes."""
    try:
        return engine.follow(run, progress)
    except JobError as error:
        named = _CAUSE.findall(str(error.__cause__ or ""))
        found = dict.fromkeys(classed or other for classed, other in named)
        causes = [cause.strip() for cause in found if cause.strip() not in error.message][:_MOST]
        if not causes:
            raise
        told = "\n".join([error.message, *causes])
        raise JobError(told, hint=error.hint) from error.__cause__
