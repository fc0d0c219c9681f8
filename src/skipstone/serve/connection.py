"""Connections: time limits that uvicorn does not have, and its own errors in the protocol's form."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

import h11
from starlette.responses import JSONResponse
from uvicorn.protocols.http.h11_impl import H11Protocol

from skipstone.serve.access import BUSY, Limits, Refusal, bad_request, json_text

_LEAST_RATE = 1_024
"""Bytes per second that a client has to read of an answer."""
_ANSWERABLE = (h11.IDLE, h11.SEND_RESPONSE)


class Connection(H11Protocol):
    """One connection; subclasses have the limits."""

    limits: Limits

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._request_timer: asyncio.TimerHandle | None = None
        self._sending_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Expect a request; above the limit answer it with 503, above twice the limit not at all."""
        super().connection_made(transport)
        # Any byte that the client has not accepted pauses writing.
        transport.set_write_buffer_limits(high=1, low=0)
        self._expect_request()
        if len(self.connections) > 2 * self.limits.connections:
            transport.abort()
        elif len(self.connections) > self.limits.connections:
            refusal = Refusal(503, "ServiceUnavailableException", "server has too many connections")
            headers = {**BUSY, "Connection": "close"}
            self.app = JSONResponse(refusal.body, refusal.status, headers)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers."""
        for timer in (self._request_timer, self._sending_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    # -- requests ------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Parse more of a request."""
        super().data_received(data)
        self._check_request()

    def on_response_complete(self) -> None:
        """Expect the next request."""
        self._expect_request()
        super().on_response_complete()
        self._check_request()

    def _expect_request(self) -> None:
        if self._request_timer is not None:
            self._request_timer.cancel()
        self._request_timer = self.loop.call_later(self.limits.header_seconds, self._end_late_request)

    def _check_request(self) -> None:
        """Stop the timer once the headers of a request are complete; the application limits the rest."""
        begun = self.cycle is not None and not self.cycle.response_complete
        if begun and self._request_timer is not None:
            self._request_timer.cancel()

    def _end_late_request(self) -> None:
        if self.conn.our_state is h11.IDLE and self.conn.trailing_data[0]:
            message = f"headers did not arrive within {self.limits.header_seconds:g} seconds"
            self._refuse(Refusal(408, "RequestTimeoutException", message))
        else:
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP."""
        self._refuse(bad_request(msg))

    def _refuse(self, refusal: Refusal) -> None:
        if self.conn.our_state in _ANSWERABLE:
            body = json_text(refusal.body).encode()
            headers = {
                "Content-Type": "application/json",
                "Content-Length": f"{len(body)}",
                "Connection": "close",
            }
            reason = HTTPStatus(refusal.status).phrase
            head = h11.Response(status_code=refusal.status, headers=[*headers.items()], reason=reason)
            parts = [self.conn.send(event) for event in (head, h11.Data(data=body), h11.EndOfMessage())]
            self.transport.write(b"".join(part or b"" for part in parts))
        self.transport.close()

    # -- answers -------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        """Give the client time to read."""
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        """Stop watching: the client has read everything."""
        super().resume_writing()
        if self._sending_timer is not None:
            self._sending_timer.cancel()

    def _watch(self, unsent: int | None = None) -> None:
        seconds = self.limits.send_seconds / 2
        self._sending_timer = self.loop.call_later(seconds, self._end_slow_reader, unsent)

    def _end_slow_reader(self, unsent: int | None) -> None:
        # Half of the time passes before the first measure, since an answer is written in parts.
        left = self.transport.get_write_buffer_size()
        if unsent is not None and left > unsent - self.limits.send_seconds / 2 * _LEAST_RATE:
            self.transport.abort()
        else:
            self._watch(left)
