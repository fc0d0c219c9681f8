"""Calls of the main thread that Ctrl-C can't break off in the middle.

Python raises KeyboardInterrupt in the main thread, between any two of its instructions: with a lock taken,
or after a sync and before it is recorded. So whatever changes a tail runs in a thread of its own, for which
the main thread waits. Other threads are never interrupted, and make their calls themselves.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final, Generic, TypeVar

T = TypeVar("T")

PAUSE: Final = 0.1
"""Seconds after which a thread that waits looks whether there was an interrupt."""
NOTHING_WRITTEN: Final = "nothing of the interrupted call was written"


class StoppedError(Exception):
    """An interrupted call ended without having changed anything."""


class Call(Generic[T]):
    """One call, and how it ended."""

    def __init__(self, function: Callable[[Call[T]], T]) -> None:
        self._function: Callable[[Call[T]], T] | None = function
        self._result: T | None = None
        self.error: BaseException | None = None
        self.interrupted = False
        """Whether the caller no longer waits for the result: a call that waits should end."""
        self.ended = False
        # Locks of C, each used once: an interrupted caller can leave them in any state.
        self._begun, self._done = threading.Lock(), threading.Lock()
        self._done.acquire()

    def make(self) -> None:
        """Call the function, unless the call was withdrawn."""
        if self.withdraw():
            try:
                assert self._function is not None
                self._result = self._function(self)
            except BaseException as error:  # noqa: BLE001  (the caller raises it)
                self.error = error
            self._function = None
            self.ended = True
            self._done.release()

    def withdraw(self) -> bool:
        """Keep the call from being made; False if it has begun."""
        return self._begun.acquire(blocking=False)

    def wait(self) -> T:
        """Return the result, or raise the error."""
        # A signal that comes just before the wait begins does not end it.
        while not self.ended and not self._done.acquire(timeout=PAUSE):
            pass
        if self.error is not None:
            raise self.error
        return self._result  # type: ignore[return-value]


class Shield:
    """Makes calls one after another in a thread that no signal interrupts."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Call[object] | None] = SimpleQueue()
        self._pid = -1

    def run(
        self, function: Callable[[Call[T]], T], done: str = "", unknown: str = "", *, insist: bool = False
    ) -> T:
        """Return the function's result; it gets the call, which says whether it was interrupted.

        An interrupted call that has begun is waited for, and the interrupt gets a note: what is ``done`` if
        the call came to its end, or what is ``unknown`` if the wait is interrupted, too. Without ``done`` it
        is not waited for. ``insist`` makes the call even if the interrupt came before it.
        """
        call = Call(function)
        if threading.current_thread() is not threading.main_thread():
            call.make()
            return call.wait()
        if self._pid != os.getpid() and not self._start():
            call.make()
            return call.wait()
        try:
            self._calls.put(call)  # type: ignore[arg-type]
            return call.wait()
        except BaseException as error:
            # A handler of signals can raise other errors than KeyboardInterrupt.
            if error is not call.error:
                call.interrupted = True
                if insist:
                    # It may not be there yet, and is made only once.
                    self._calls.put(call)  # type: ignore[arg-type]
                    _note(call, error, done, unknown)
                elif call.withdraw():
                    if done:
                        error.add_note(NOTHING_WRITTEN)
                elif done:
                    _note(call, error, done, unknown)
            raise

    def _start(self) -> bool:
        """Start the thread, which a forked process lacks; False if the process is about to end."""
        self._calls = SimpleQueue()
        arguments = (self._calls,)
        thread = threading.Thread(target=_serve, args=arguments, name="skipstone-tail-calls", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return False
        self._pid = os.getpid()
        return True

    def __del__(self) -> None:
        self._calls.put(None)


def _note(call: Call[T], interrupt: BaseException, done: str, unknown: str) -> None:
    """Wait for the end of an interrupted call, and say how it ended."""
    try:
        call.wait()
    except StoppedError:
        interrupt.add_note(NOTHING_WRITTEN)
    except BaseException as error:
        if error is call.error:
            interrupt.add_note(f"the interrupted call failed: {error}")
        else:
            error.add_note(unknown)
            raise
    else:
        interrupt.add_note(done)


def _serve(calls: SimpleQueue[Call[object] | None]) -> None:
    """Make calls; refers to no writer between them, so that one can be forgotten."""
    while True:
        call = calls.get()
        if call is None:
            return
        call.make()
        del call
