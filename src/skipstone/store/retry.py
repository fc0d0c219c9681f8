"""A source that tries again when a store hiccups."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from skipstone.errors import ReadError
from skipstone.store.local import LocalSource, refusal
from skipstone.store.source import ByteRange, Source, Wrapped

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how soon to try again, and for how many seconds in all (None: as long as it takes)."""

    attempts: int = 4
    first_delay: float = 0.05
    factor: float = 2.0
    max_delay: float = 2.0
    timeout: float | None = 60.0
    jitter: bool = True

    def delay(self, attempt: int) -> float:
        """Seconds to wait after so many failed attempts; jitter keeps readers from returning together."""
        delay = min(self.first_delay * self.factor ** (attempt - 1), self.max_delay)
        return delay * random.uniform(0.5, 1.0) if self.jitter else delay  # noqa: S311


class RetrySource(Wrapped):
    """Reads from the source below, and once more after a transient failure, with growing delays.

    A failed call is repeated as a whole, and each attempt counts. The time limit forbids a next attempt; it
    doesn't interrupt one.
    """

    def __init__(
        self,
        below: Source,
        policy: RetryPolicy | None = None,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(below)
        self.policy = policy if policy is not None else RetryPolicy()
        self._sleep = sleep
        self._clock = clock

    def size(self) -> int:
        """The file's size in bytes."""
        return self._try(self._below.size)

    def expect(self, version: object | None, size: int | None) -> None:
        """Refuse to be another version."""
        self._try(lambda: self._below.expect(version, size))

    def tail(self, length: int) -> tuple[bytes, int]:
        """The last ``length`` bytes and the file's size."""
        return self._try(lambda: self._full_tail(length, self._below.tail(length)))

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """The bytes of each range."""
        return self._try(lambda: self._full(ranges, self._below.read_ranges(ranges)))

    def read_into(self, ranges: Sequence[ByteRange], views: Sequence[memoryview]) -> None:
        """The bytes of each range, to a place in memory."""
        if isinstance(self._below, LocalSource):
            self._try(partial(self._below.read_into, ranges, views))
            return
        for view, body in zip(views, self.read_ranges(ranges), strict=True):
            view[:] = body

    def _try(self, read: Callable[[], T]) -> T:
        began = self._clock()
        trial = None
        while True:
            try:
                return read()
            except (ReadError, OSError) as error:
                trial = trial or _Trial(self.policy, self._clock, began)
                delay = trial.failed(_read_error(error, self.path))
            self._sleep(delay)

    def _full(self, ranges: Sequence[ByteRange], bodies: list[bytes]) -> list[bytes]:
        # A source of the caller's own may not check.
        for (start, stop), body in zip(ranges, bodies, strict=True):
            if len(body) != stop - start:
                raise self._short(str(ByteRange(start, stop)), len(body))
        return bodies

    def _full_tail(self, length: int, answer: tuple[bytes, int]) -> tuple[bytes, int]:
        body, size = answer
        if len(body) != min(length, size):
            raise self._short(f"the last {min(length, size)} bytes", len(body))
        return answer

    def _short(self, wanted: str, came: int) -> ReadError:
        return ReadError(f"{wanted}: only {came} bytes came back", path=self.path, transient=True)


class _Trial:
    """The attempts of one read."""

    def __init__(self, policy: RetryPolicy, clock: Callable[[], float], began: float) -> None:
        self._policy = policy
        self._clock = clock
        self._made = 0
        self._deadline = began + policy.timeout if policy.timeout is not None else None

    def left(self) -> float | None:
        """Seconds until the time is up."""
        return max(self._deadline - self._clock(), 0.0) if self._deadline is not None else None

    def failed(self, error: ReadError) -> float:
        """Seconds until the next attempt; raises if there is none."""
        self._made += 1
        if not error.transient:
            raise error
        delay = self._policy.delay(self._made)
        left = self.left()
        late = left is not None and delay >= left
        if self._made < self._policy.attempts and not late:
            return delay
        times = "1 attempt" if self._made == 1 else f"{self._made} attempts"
        within = f" in {self._policy.timeout:g} s" if late else ""
        raise ReadError(
            f"{error.message}; gave up after {times}{within}",
            path=error.path,
            unit=error.unit,
            column=error.column,
            hint=error.hint,
            transient=True,
        ) from error


def _read_error(error: ReadError | OSError, path: str) -> ReadError:
    return error if isinstance(error, ReadError) else refusal(error, path)
