"""A source that retries transient failures."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from skipstone.errors import MissingFileError, ReadError
from skipstone.store.local import LocalSource, read_error
from skipstone.store.source import BufferSource, ByteRange, Source, SourceWrapper

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how soon failed requests are repeated.

    Attributes:
        attempts: Maximum number of attempts.
        first_delay: Seconds before the second attempt.
        factor: Factor between delays.
        max_delay: The longest delay in seconds.
        timeout: Seconds after which no further attempt starts; None for no limit.
        jitter: Randomize delays, so that readers don't return at the same time.

    Examples:
        >>> import skipstone as sk
        >>> sk.open("events", retry=sk.RetryPolicy(attempts=10, timeout=300)).scan("event_id = 7").count()
        1
    """

    attempts: int = 4
    first_delay: float = 0.05
    factor: float = 2.0
    max_delay: float = 2.0
    timeout: float | None = 60.0
    jitter: bool = True

    def delay(self, attempt: int) -> float:
        """Seconds to wait after this many failed attempts; jitter spreads retries of parallel readers."""
        delay = min(self.first_delay * self.factor ** (attempt - 1), self.max_delay)
        return delay * random.uniform(0.5, 1.0) if self.jitter else delay  # noqa: S311


class RetrySource(SourceWrapper):
    """Retries reads that fail transiently, with exponential backoff.

    A failed call is repeated in full, and every attempt is counted. The timeout prevents another attempt but
    does not interrupt one.
    """

    def __init__(
        self,
        below: Source,
        policy: RetryPolicy | None = None,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        explain: Callable[[MissingFileError], None] | None = None,
    ) -> None:
        super().__init__(below)
        self._explain = explain
        self.policy = policy if policy is not None else RetryPolicy()
        self._sleep = sleep
        self._clock = clock

    def size(self) -> int:
        """File size in bytes."""
        return self._try(self._below.size)

    def expect(self, version: object | None, size: int | None) -> None:
        """Pin version and size."""
        self._try(lambda: self._below.expect(version, size))

    def tail(self, length: int) -> tuple[bytes, int]:
        """The last ``length`` bytes and the file size."""
        return self._try(lambda: self._full_tail(length, self._below.tail(length)))

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """Bytes of each range."""
        return self._try(lambda: self._full(ranges, self._below.read_ranges(ranges)))

    def read_into(self, ranges: Sequence[ByteRange], views: Sequence[memoryview]) -> None:
        """Read each range into its buffer."""
        if isinstance(self._below, LocalSource | BufferSource):
            self._try(partial(self._below.read_into, ranges, views))
            return
        for view, body in zip(views, self.read_ranges(ranges), strict=True):
            view[:] = body

    def _try(self, read: Callable[[], T]) -> T:
        began = self._clock()
        attempts = 0
        while True:
            try:
                return read()
            except (ReadError, OSError) as error:
                attempts += 1
                failure = error if isinstance(error, ReadError) else read_error(error, self.path)
                delay = self._delay(failure, attempts, began)
            self._sleep(delay)

    def _delay(self, error: ReadError, attempts: int, began: float) -> float:
        """Seconds until the next attempt; raises if there is none."""
        if not error.transient:
            if self._explain is not None and isinstance(error, MissingFileError):
                self._explain(error)
            raise error
        policy = self.policy
        delay = policy.delay(attempts)
        late = policy.timeout is not None and delay >= max(began + policy.timeout - self._clock(), 0.0)
        if attempts < policy.attempts and not late:
            return delay
        times = "1 attempt" if attempts == 1 else f"{attempts} attempts"
        within = f" in {policy.timeout:g} s" if late else ""
        raise ReadError(
            f"{error.message}; gave up after {times}{within}",
            path=error.path,
            unit=error.unit,
            column=error.column,
            hint=error.hint,
            transient=True,
        ) from error

    def _full(self, ranges: Sequence[ByteRange], bodies: list[bytes]) -> list[bytes]:
        # A user-supplied source might not check.
        for (start, stop), body in zip(ranges, bodies, strict=True):
            if len(body) != stop - start:
                raise self._short(str(ByteRange(start, stop)), len(body))
        return bodies

    def _full_tail(self, length: int, answer: tuple[bytes, int]) -> tuple[bytes, int]:
        body, size = answer
        if len(body) != min(length, size):
            raise self._short(f"the last {min(length, size)} bytes", len(body))
        return answer

    def _short(self, wanted: str, length: int) -> ReadError:
        return ReadError(f"{wanted}: got only {length} bytes", path=self.path, transient=True)
