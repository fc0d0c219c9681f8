"""Access control: tokens with rights per table, limits of requests, and rate limits."""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from skipstone.errors import UsageError

Right: TypeAlias = Literal["read", "plan"]

_RIGHTS: Final = ("read", "plan")
_CALLERS: Final = 10_000
_LONG, _CONDITION = 1_000, 8
"""Characters of a text that can have many conditions, and of a condition at least."""


BUSY: Final = {"Retry-After": "1"}


class Refusal(Exception):
    """A request that is answered with an error."""

    def __init__(
        self, status: int, kind: str, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.kind, self.message, self.headers = status, kind, message, dict(headers or {})

    @property
    def body(self) -> dict[str, Any]:
        """The error model of the Iceberg REST protocol."""
        return {"error": {"message": self.message, "type": self.kind, "code": self.status}}


def bad_request(message: str) -> Refusal:
    """A request that makes no sense."""
    return Refusal(400, "BadRequestException", message)


def json_text(document: Any) -> str:
    """The JSON of an answer."""
    return json.dumps(document, separators=(",", ":"), allow_nan=False)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one request, and of the server."""

    body: int = 1 << 20
    """Bytes of a request's body."""
    header_seconds: float = 10.0
    """Time to receive the headers, after the connection or the previous answer."""
    body_seconds: float = 10.0
    """Time to receive the body."""
    send_seconds: float = 30.0
    """Time in which a client has to read more of an answer."""
    depth: int = 100
    """Levels of a request's JSON, and so of its predicate."""
    items: int = 10_000
    """Members of each list of a request: values of IN, ranges of a domain, columns."""
    values: int = 50_000
    """Values in all of a request; a long text counts as one value for each of its conditions."""
    cost: int = 500_000_000
    """Values of a request times files of the lake."""
    text: int = 64 * 1024
    """Characters of each text of a request: SQL conditions, values."""
    seconds: float = 30.0
    """Time to answer."""
    submit_after: float | None = None
    """Seconds after which a plan continues asynchronously; None only for clients that prefer it."""
    page: int = 1_000
    """Files in one page of a plan."""
    files: int = 100_000
    """Files in one answer of the JSON API."""
    plans: int = 256
    """Plans whose pages or results are still available."""
    plan_seconds: float = 600.0
    """Time for which they are."""
    workers: int = 4
    """Requests that are planned at the same time."""
    queue: int = 64
    """Requests that are planned or wait for it; others are refused."""
    connections: int = 512
    """Open connections."""
    rate: float = 100.0
    """Requests per second of one caller, on average; twice as many at once."""
    fresh_seconds: float = 10.0
    """Age at which a directory is listed again."""

    def check_document(self, document: Any) -> int:
        """Count the values of JSON; refuse too many of them or of levels, and text that is not Unicode."""
        level, values = [document], 0
        for _ in range(self.depth):
            below: list[Any] = []
            for value in level:
                if isinstance(value, list | dict):
                    if len(value) > self.items:
                        raise bad_request(f"list in the request has more than {self.items:,} members")
                    below += value if isinstance(value, list) else [*value, *value.values()]
                    continue
                values += 1
                if isinstance(value, str):
                    self._check_text(value)
                    values += len(value) // _CONDITION if len(value) > _LONG else 0
            if values > self.values:
                raise bad_request(f"request has more than {self.values:,} values")
            if not below:
                return values
            level = below
        raise bad_request(f"request is nested more than {self.depth} levels deep")

    def check_cost(self, values: int, files: int) -> None:
        """Refuse a question whose values would be compared with too many files."""
        if values * files > self.cost:
            problem = f"request has {values:,} values, too many for {files:,} files"
            raise bad_request(f"{problem}; ask with fewer values or ranges")

    def _check_text(self, text: str) -> None:
        if len(text) > self.text:
            raise bad_request(f"text in the request has more than {self.text:,} characters")
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                # JSON can escape half of a character, which no other format can hold.
                raise bad_request("text in the request is not valid Unicode") from None


@dataclass(frozen=True, slots=True)
class Caller:
    """The holder of a token; ``rights`` are pairs of a pattern of names and what it permits."""

    name: str
    rights: tuple[tuple[str, frozenset[Right]], ...]

    def may(self, right: Right, name: str) -> bool:
        """Whether the caller has a right on a table, by its dotted name, or on a lake."""
        return any(right in rights and _covers(pattern, name) for pattern, rights in self.rights)

    def may_see(self, namespace: str) -> bool:
        """Whether the caller may read any table that could be in the namespace."""
        return any(
            "read" in rights
            and (_covers(pattern, f"{namespace}.") or pattern.removesuffix("*").startswith(f"{namespace}."))
            for pattern, rights in self.rights
        )

    def need(self, right: Right, name: str) -> None:
        """Refuse a caller without a right, whether the table exists or not."""
        if not self.may(right, name):
            raise Refusal(403, "ForbiddenException", f"{self.name} may not {right} {name}")


def _covers(pattern: str, name: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


ANYONE: Final = Caller("anyone", (("*", frozenset(_RIGHTS)),))


class Tokens:
    """The tokens of a file, by their SHA-256 digests; without a file every request is allowed."""

    def __init__(self, callers: Mapping[str, Caller] | None = None) -> None:
        self._callers = callers

    @classmethod
    def read(cls, path: str | Path) -> Tokens:
        """Read a token file; raises if any part of it is not understood."""
        try:
            document = json.loads(Path(path).read_text())
        except (OSError, ValueError) as error:
            raise UsageError(f"token file can't be read: {error}", path=str(path)) from None
        listed = document.get("tokens") if isinstance(document, dict) and len(document) == 1 else None
        if not isinstance(listed, list) or not listed:
            raise UsageError('token file is not {"tokens": [...]}', path=str(path), hint=_HINT)
        callers: dict[str, Caller] = {}
        for item in listed:
            caller, digest = _read_token(item, str(path))
            if digest in callers:
                raise UsageError(f"token of {caller.name} is listed twice", path=str(path))
            callers[digest] = caller
        return cls(callers)

    @property
    def required(self) -> bool:
        """Whether requests need a token."""
        return self._callers is not None

    def caller(self, authorization: str | None) -> Caller:
        """The holder of the token in an Authorization header."""
        if self._callers is None:
            return ANYONE
        scheme, _, token = (authorization or "").partition(" ")
        # Digests are looked up: the time that takes says nothing about a token.
        digest = hashlib.sha256(token.strip().encode("utf-8", "replace")).hexdigest()
        caller = self._callers.get(digest) if scheme.lower() == "bearer" else None
        if caller is None:
            problem = "token is not valid" if authorization else "request has no bearer token"
            raise Refusal(401, "NotAuthorizedException", problem, {"WWW-Authenticate": "Bearer"})
        return caller


_HINT: Final = (
    'write {"tokens": [{"name": "ana", "sha256": "<digest>", "rights": {"db.*": ["read", "plan"]}}]}'
)


def _read_token(item: Any, path: str) -> tuple[Caller, str]:
    match item:
        case {"name": str(name), "sha256": str(digest), "rights": dict(rights)} if len(item) == 3 and name:
            pass
        case _:
            raise UsageError("token has other members than name, sha256 and rights", path=path, hint=_HINT)
    if not re.fullmatch("[0-9a-f]{64}", digest):
        raise UsageError(f"digest of the token of {name} is not SHA-256 in hex", path=path, hint=_HINT)
    pairs: list[tuple[str, frozenset[Right]]] = []
    for pattern, listed in rights.items():
        if "*" in pattern[:-1] or (pattern.endswith("*") and pattern != "*" and pattern[-2:] != ".*"):
            hint = 'use a name, a namespace as "db.*", or "*"'
            raise UsageError(f"pattern {pattern!r} of {name} has an unsupported *", path=path, hint=hint)
        if not isinstance(listed, list) or not listed or not {*map(str, listed)} <= {*_RIGHTS}:
            hint = "use the rights read and plan"
            raise UsageError(f"rights of {name} on {pattern!r} are {listed!r}", path=path, hint=hint)
        pairs.append((pattern, frozenset(listed)))
    return Caller(name, tuple(pairs)), digest


# -- rate --------------------------------------------------------------------------------------


@dataclass(slots=True)
class RateLimit:
    """A bucket of permits for each caller, which fills at a constant rate."""

    rate: float
    clock: Callable[[], float] = time.monotonic
    _buckets: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, caller: str) -> None:
        """Take a permit, or refuse."""
        now, burst = self.clock(), max(2 * self.rate, 1.0)
        with self._lock:
            permits, then = self._buckets.pop(caller, (burst, now))
            permits = min(burst, permits + (now - then) * self.rate)
            self._buckets[caller] = (permits - 1 if permits >= 1 else permits, now)
            if len(self._buckets) > _CALLERS:
                self._buckets.popitem(last=False)
        if permits < 1:
            wait = {"Retry-After": str(max(1, round((1 - permits) / self.rate)))}
            raise Refusal(429, "TooManyRequestsException", "caller sends too many requests", wait)


def is_loopback(host: str) -> bool:
    """Whether an address or name is of this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def names_of(parts: Sequence[str]) -> str:
    """The dotted name of a namespace or table."""
    return ".".join(parts)
