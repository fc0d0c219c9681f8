"""The checks around each request: origin, token, rate, size and time limits, and its log line."""

from __future__ import annotations

import asyncio
import json
import math
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match

from skipstone.errors import MissingFileError, PredicateError, SkipstoneError, UsageError, shorten
from skipstone.serve.access import (
    BUSY,
    Caller,
    Limits,
    RateLimit,
    Refusal,
    Tokens,
    bad_request,
    is_loopback,
    json_text,
)
from skipstone.serve.records import Log, Metrics
from skipstone.serve.workers import Work, Workers

T = TypeVar("T")
Handler: TypeAlias = Callable[["Call"], Awaitable["Answer"]]

_SMALL = 16 * 1024
# Answers have names and values of tables: no cache keeps them, and no browser takes them for anything else.
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer: a JSON document, text, or nothing."""

    body: Any = None
    status: int = 200
    media_type: str = "application/json"
    notes: Mapping[str, Any] = field(default_factory=dict)
    """More fields of the log."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """More headers, or others than those of every answer."""


@dataclass(slots=True)
class Call:
    """One request of a caller."""

    request: Request
    caller: Caller
    limits: Limits
    workers: Workers
    values: int = 0
    """Values in the body, once it is read."""

    def part(self, name: str) -> str:
        """A part of the path."""
        return str(self.request.path_params[name])

    def prefers_async(self) -> bool:
        """Whether the client asks for an asynchronous answer."""
        return "respond-async" in self.request.headers.get("prefer", "").lower()

    async def document(self, read: Callable[[Any], T] = lambda document: document) -> T:
        """What ``read`` makes of the JSON of the body, which is within the limits."""
        body = await self._body()

        def work() -> T:
            try:
                document = json.loads(body, parse_constant=_refuse_constant, parse_float=_finite)
            except (ValueError, RecursionError) as error:
                raise bad_request(f"body is not valid JSON: {error}") from None
            self.values = self.limits.check_document(document)
            return read(document)

        # Reading a large body would keep other requests waiting.
        return work() if len(body) < _SMALL else await self.run(work)

    async def _body(self) -> bytes:
        too_large = Refusal(413, "RequestTooLargeException", f"body has more than {self.limits.body:,} bytes")
        declared = self.request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > self.limits.body:
            raise too_large
        body = bytearray()
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                async for chunk in self.request.stream():
                    body += chunk
                    if len(body) > self.limits.body:
                        raise too_large
        except TimeoutError:
            message = f"body did not arrive within {self.limits.body_seconds:g} seconds"
            raise Refusal(408, "RequestTimeoutException", message, {"Connection": "close"}) from None
        return bytes(body)

    def submit(self, work: Callable[[], T], seconds: float) -> Work[T]:
        """Start work on another thread, which ends after some time."""
        return self.workers.submit(self.caller, work, seconds)

    async def run(self, work: Callable[[], T]) -> T:
        """The result of work on another thread, within the time limit."""
        started = self.submit(work, self.limits.seconds)
        if await self.wait(started, self.limits.seconds):
            with suppress(CancelledError):
                return started.result()
        started.cancel()
        raise self.late()

    async def wait(self, work: Work[Any], seconds: float) -> bool:
        """Whether work is done, after no more than some time; if the client goes, the work ends too."""
        if not work.done() and seconds > 0:
            loop = asyncio.get_running_loop()
            done = loop.create_future()

            def tell() -> None:
                if not done.done():
                    done.set_result(None)

            work.add_done_callback(lambda _: loop.is_closed() or loop.call_soon_threadsafe(tell))
            gone = asyncio.ensure_future(self._disconnected())
            try:
                await asyncio.wait({done, gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            finally:
                gone.cancel()
            if gone.done() and not work.done():
                work.cancel()
                raise ClientDisconnect
        return work.done()

    async def _disconnected(self) -> None:
        while (await self.request.receive())["type"] != "http.disconnect":
            pass

    def late(self) -> Refusal:
        """The refusal of a request that takes too long."""
        message = f"answer took longer than {self.limits.seconds:g} seconds"
        return Refusal(503, "ServiceUnavailableException", message, BUSY)


@dataclass(slots=True)
class Gate:
    """Wraps the handlers of all routes."""

    tokens: Tokens
    rate: RateLimit
    limits: Limits
    workers: Workers
    log: Log
    metrics: Metrics

    def endpoint(
        self, route: str, handler: Handler, *, public: bool = False
    ) -> Callable[[Request], Awaitable[Response]]:
        """The endpoint of a route; only a public one answers without a token."""

        async def answer(request: Request) -> Response:
            started = time.perf_counter()
            caller: Caller | None = None
            notes: Mapping[str, Any] = {}
            try:
                caller = self._identify(request, public=public)
                self.rate.take(_bucket(request, caller if self.tokens.required and not public else None))
                answered = await handler(Call(request, caller, self.limits, self.workers))
                notes, response = answered.notes, response_of(answered)
            except ClientDisconnect:
                response = Response(status_code=499)
            except Exception as error:  # noqa: BLE001  (every failure is an answer and a line of the log)
                refusal, notes = refusal_of(error)
                response = response_of(Answer(refusal.body, refusal.status))
                response.headers.update(refusal.headers)
            seconds = time.perf_counter() - started
            self.metrics.answered(route, response.status_code, seconds)
            self.log.write(
                method=request.method,
                route=route,
                status=response.status_code,
                ms=round(seconds * 1e3, 1),
                caller=None if caller is None else caller.name,
                client=None if request.client is None else request.client.host,
                **notes,
            )
            return response

        return answer

    async def unrouted(self, request: Request, error: Exception) -> Response:
        """Answer a request that no route accepts: logged and limited like others, without a token."""
        assert isinstance(error, HTTPException)
        kind = {404: "NoSuchEndpointException", 405: "UnsupportedOperationException"}.get(error.status_code)
        near = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
        allowed = sorted(method for route in near for method in route.methods)
        headers = {"Allow": ", ".join(allowed)} if allowed else {}
        name = kind or "BadRequestException"

        async def refuse(_: Call) -> Answer:
            raise Refusal(error.status_code, name, "no such endpoint or method", headers)

        # Neither a path nor a method that strangers make up becomes the name of a route.
        return await self.endpoint("none", refuse, public=True)(request)

    def _identify(self, request: Request, *, public: bool) -> Caller:
        if not self.tokens.required:
            _check_origin(request)
        if public:
            return Caller("anyone", ())
        try:
            return self.tokens.caller(request.headers.get("authorization"))
        except Refusal:
            # Guesses are limited too.
            self.rate.take(_bucket(request, None))
            raise


def _bucket(request: Request, caller: Caller | None) -> str:
    """The name under which requests are counted."""
    if caller is not None:
        return f"token {caller.name}"
    return f"address {'' if request.client is None else request.client.host}"


def _check_origin(request: Request) -> None:
    """Without tokens, refuse what pages of other sites can make a browser on this machine send."""
    host = request.headers.get("host", "localhost")
    origin = request.headers.get("origin", f"//{host}")
    try:
        named = urlsplit(f"//{host}").hostname or ""
        if is_loopback(named) and urlsplit(origin).netloc == host:
            return
    except ValueError:
        pass
    message = "server without tokens answers only requests to localhost, and none from other sites"
    raise Refusal(403, "ForbiddenException", message)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"number is too large: {shorten(text, 80)}")
    return number


def refusal_of(error: Exception) -> tuple[Refusal, Mapping[str, Any]]:
    """The answer to a failure, and what the log says of it."""
    if isinstance(error, Refusal):
        return error, {"error": error.kind}
    if isinstance(error, PredicateError | UsageError):
        return Refusal(400, "BadRequestException", str(error)), {"error": type(error).__name__}
    if isinstance(error, MissingFileError):
        return Refusal(503, "ServiceUnavailableException", str(error), BUSY), {"error": "MissingFileError"}
    if isinstance(error, SkipstoneError):
        return Refusal(500, type(error).__name__, str(error)), {"error": type(error).__name__}
    where = "".join(traceback.format_exception(error)[-3:])
    return Refusal(500, "InternalServerError", "internal error; see the server log"), {"error": where}


def response_of(answer: Answer) -> Response:
    """The response that sends an answer."""
    body, headers = answer.body, {**_HEADERS, **answer.headers}
    if body is None:
        return Response(status_code=answer.status, headers=headers)
    if not isinstance(body, str):
        body = json_text(body)
    return Response(body, answer.status, headers, answer.media_type)
