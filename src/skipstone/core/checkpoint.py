"""Points at which long work notices that nobody waits for it any more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Stopped(BaseException):
    """Work is not wanted any more; like an interrupt, and unlike a failure, nothing recovers from it."""


_test: ContextVar[Callable[[], bool] | None] = ContextVar("stopped", default=None)


@contextmanager
def stopping(test: Callable[[], bool]) -> Iterator[None]:
    """Stop the work of this block at its next checkpoint once ``test`` is true."""
    token = _test.set(test)
    try:
        yield
    finally:
        _test.reset(token)


def checkpoint() -> None:
    """Raise :class:`Stopped` if the work of this thread should end."""
    test = _test.get()
    if test is not None and test():
        raise Stopped
