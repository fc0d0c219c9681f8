"""Objects in S3, Google Cloud, Azure, on HTTP servers and in memory, read through obstore."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from itertools import chain, islice
from typing import Any
from urllib.parse import unquote, urlsplit

from skipstone.errors import MissingFileError, ReadError, scrub
from skipstone.store.options import (
    check_options,
    client_settings,
    is_client_option,
    option_name,
    surroundings,
    with_profile,
)
from skipstone.store.pool import side_by_side, side_by_side_async
from skipstone.store.ranges import ByteRange, coalesce
from skipstone.store.source import IoCounter, check_size, gone, stale

# About what a request's latency is worth in bytes.
GAP = 1024 * 1024
# One connection gives a fraction of what a store can: a larger range is asked for in parts.
LARGE = 16 * 1024 * 1024
PART = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ObjectVersion:
    """What tells one version of an object from the next; stores without etags still tell size and time."""

    size: int
    etag: str | None
    modified: Any

    @classmethod
    def of(cls, meta: Any) -> ObjectVersion:
        """The version that an answer or a listing tells of."""
        return cls(meta["size"], meta.get("e_tag"), meta.get("last_modified"))

    def same(self, other: ObjectVersion) -> bool:
        """Whether both are one version; times are compared only where there are no etags to tell."""
        if self.etag is not None and other.etag is not None:
            return self.size == other.size and _bare(self.etag) == _bare(other.etag)
        return (self.size, _second(self.modified)) == (other.size, _second(other.modified))

    def condition(self) -> str | None:
        """What to ask for with If-Match; a weak etag would never match."""
        if self.etag is None or self.etag.startswith("W/"):
            return None
        # Azure lists its etags without the quotes that it asks for.
        return f'"{self.etag}"' if self.etag.startswith("0x") else self.etag


def _bare(etag: str) -> str:
    return etag.removeprefix("W/").strip('"')


def _second(time: Any) -> Any:
    # Listings tell milliseconds, HTTP headers don't.
    return time.replace(microsecond=0) if time is not None else None


class ObjectSource:
    """One object, pinned to the version that the first answer came from, or that is expected.

    Every read asks for that version by etag, and the answer's own size and etag are compared as well,
    because not every store honours the condition.
    """

    def __init__(self, store: Any, key: str, path: str | None = None, *, gap: int = GAP) -> None:
        self.path = path if path is not None else key
        self.counter = IoCounter()
        self.gap = gap
        self._store = store
        self._key = key
        self._version: ObjectVersion | None = None
        self._size: int | None = None
        self._expected = False
        self._lock = threading.Lock()

    def size(self) -> int:
        """The object's size in bytes; a request unless it is known already."""
        # Of an object that is said to be empty no read would tell that it isn't.
        if self._size is None or (self._size == 0 and self._version is None):
            self._pin(self._head())
        assert self._size is not None
        return self._size

    def version(self) -> object | None:
        """Size and etag, once something has been read or expected."""
        return self._version

    def expect(self, version: object | None, size: int | None) -> None:
        """Ask for this version from now on: a replaced object fails the next read, at no extra request."""
        known = version if isinstance(version, ObjectVersion) else None
        if known is not None and self._version is None:
            self._version, size = known, known.size
        elif known is not None and self._version is not None and not known.same(self._version):
            raise stale(self.path)
        if self._size is None:
            self._size = size
            self._expected = size is not None
        else:
            check_size(self, size)

    def tail(self, length: int) -> tuple[bytes, int]:
        """The last ``length`` bytes and the object's size, in one request where suffix ranges exist."""
        try:
            if self._size is None:
                return self._get({"suffix": length}), self.size()
        except _SuffixRefusedError:
            pass
        size = self.size()
        return self.read_ranges([ByteRange(max(size - length, 0), size)])[0], size

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """The bytes of each range; requests run side by side, and large ones in parts."""
        plan = coalesce(ranges, self.gap)
        parts = [_parts(request) for request in plan.requests]
        return plan.split(_joined(parts, side_by_side(self._get_range, chain.from_iterable(parts))))

    async def tail_async(self, length: int) -> tuple[bytes, int]:
        """``tail`` without blocking the event loop."""
        try:
            if self._size is None:
                return await self._get_async({"suffix": length}), self.size()
        except _SuffixRefusedError:
            pass
        if not self._size:
            await asyncio.to_thread(self.size)
        size = self.size()
        return (await self.read_ranges_async([ByteRange(max(size - length, 0), size)]))[0], size

    async def read_ranges_async(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """``read_ranges`` without blocking the event loop."""
        plan = coalesce(ranges, self.gap)
        parts = [_parts(request) for request in plan.requests]
        fetched = await side_by_side_async(self._get_range_async, chain.from_iterable(parts))
        return plan.split(_joined(parts, fetched))

    def _get_range(self, request: ByteRange) -> bytes:
        return self._full(request, self._get((request.start, request.stop)))

    async def _get_range_async(self, request: ByteRange) -> bytes:
        return self._full(request, await self._get_async((request.start, request.stop)))

    def _full(self, request: ByteRange, body: bytes) -> bytes:
        if len(body) != request.length:
            # Behind the known end there will never be more.
            transient = request.stop <= self.size()
            message = f"{request}: only {len(body)} bytes came back"
            raise ReadError(message, path=self.path, transient=transient)
        return body

    def _get(self, span: Any) -> bytes:
        import obstore

        try:
            answer = obstore.get(self._store, self._key, options=self._options(span))
            return self._take(answer.meta, bytes(answer.bytes()))
        except Exception as error:
            raise self._refusal(error, span) from error

    async def _get_async(self, span: Any) -> bytes:
        import obstore

        try:
            answer = await obstore.get_async(self._store, self._key, options=self._options(span))
            return self._take(answer.meta, bytes(await answer.bytes_async()))
        except Exception as error:
            raise self._refusal(error, span) from error

    def _head(self) -> Any:
        import obstore

        try:
            meta = obstore.head(self._store, self._key)
        except Exception as error:
            raise self._refusal(error, None) from error
        self.counter.add(1, 0)
        return meta

    def _options(self, span: Any) -> dict[str, Any]:
        options: dict[str, Any] = {"range": span}
        condition = self._version.condition() if self._version is not None else None
        if condition is not None:
            options["if_match"] = condition
        return options

    def _take(self, meta: Any, body: bytes) -> bytes:
        self.counter.add(1, len(body))
        self._pin(meta)
        return body

    def _pin(self, meta: Any) -> None:
        version = ObjectVersion.of(meta)
        with self._lock:
            if self._version is None and self._size in (None, version.size):
                self._version, self._size = version, version.size
        if self._version is None and self._size is not None:
            raise stale(self.path, self._size, version.size)
        if self._version is None or not version.same(self._version):
            raise self._changed()

    def _changed(self) -> ReadError:
        if self._expected:
            return stale(self.path)
        return ReadError("file changed while it was being read", path=self.path, hint="open it again")

    def _refusal(self, error: Exception, span: Any) -> Exception:
        import obstore
        from obstore import exceptions

        if isinstance(error, ReadError):
            return error
        # A failed request is one too, unless the client itself refused.
        self.counter.add(0 if isinstance(error, exceptions.NotSupportedError) else 1, 0)
        if isinstance(error, FileNotFoundError):
            return gone(self.path) if self._expected else MissingFileError("no such object", path=self.path)
        if isinstance(error, exceptions.PreconditionError):
            return self._changed()
        found = refusal(error, self.path)
        if isinstance(span, tuple) and self._expected and self._version is None and not found.transient:
            # A range behind the end, perhaps: only the object's size tells.
            with suppress(Exception):
                size = ObjectVersion.of(obstore.head(self._store, self._key)).size
                if size != self._size:
                    return stale(self.path, self._size or 0, size)
        if isinstance(span, dict) and isinstance(error, exceptions.BaseError) and not found.transient:
            return _SuffixRefusedError()
        return found


def refusal(error: Exception, path: str) -> ReadError:
    """A failed request as an error that names the object."""
    from obstore import exceptions

    if isinstance(error, ReadError):
        return error
    text, line = str(error), scrub(error)
    if isinstance(
        error, PermissionError | exceptions.PermissionDeniedError | exceptions.UnauthenticatedError
    ):
        return ReadError("permission denied", path=path, hint=_advice(path, "credentials"))
    for pattern, message, topic in _COMPLAINTS:
        if pattern.search(text):
            told = message or line
            transient = _TRANSIENT.search(text) is not None and message is None
            return ReadError(told, path=path, hint=_advice(path, topic), transient=transient)
    return ReadError(line, path=path, transient=_TRANSIENT.search(text) is not None)


# In obstore's words, which are told where there are no better ones.
_COMPLAINTS: tuple[tuple[re.Pattern[str], str | None, str], ...] = (
    (
        re.compile(r"169\.254\.|/latest/(?:api/token|meta-data)|metadata\.google|(?i:no credential)"),
        "no credentials were found",
        "credentials",
    ),
    (re.compile(r"(?s)http://\S+.*builder error"), "plain HTTP is not allowed", "http"),
    (re.compile(r"PermanentRedirect|status code: 301|AuthorizationHeaderMalformed"), None, "region"),
    (re.compile(r"NoSuchBucket|Connect|dns error|[Cc]onnection refused"), None, "endpoint"),
)
_KINDS = {"s3": "AWS", "s3a": "AWS", "gs": "GOOGLE", "http": "", "https": "", "memory": ""}
_SETTINGS = {
    "AWS": "AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "GOOGLE": "GOOGLE_APPLICATION_CREDENTIALS",
    "AZURE": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}


def _advice(path: str, topic: str) -> str | None:
    """Which setting to look at."""
    kind = _KINDS.get(path.partition("://")[0], "AZURE")
    if not kind:
        return "check the credentials" if topic == "credentials" else None
    if topic == "credentials":
        return (
            f"check the credentials: set {_SETTINGS[kind]}, or storage_options; "
            "a pickled plan has none unless it was pickled by skipstone.with_credentials"
        )
    if topic == "http":
        return f"set {kind}_ALLOW_HTTP=true, or allow_http in storage_options, if the endpoint can be trusted"
    if kind != "AWS":
        return None
    if topic == "region":
        return "set AWS_REGION, or region in storage_options, to the bucket's"
    return "check the bucket's name, and AWS_ENDPOINT_URL or endpoint in storage_options"


# obstore has one class for all of these and tells them apart in its text only.
_TRANSIENT = re.compile(
    r"status code: (?:5\d\d|429|408)|SlowDown|timed out|kind: (?:Connect|Timeout|Interrupted|Request|Decode)"
    r"|connection (?:reset|closed|refused)|error (?:sending request|decoding|reading a body)"
)


def _parts(request: ByteRange) -> list[ByteRange]:
    return request.cut(PART) if request.length > LARGE else [request]


def _joined(parts: Sequence[Sequence[ByteRange]], fetched: list[bytes]) -> list[bytes]:
    bodies = iter(fetched)
    return [next(bodies) if len(some) == 1 else b"".join(islice(bodies, len(some))) for some in parts]


class _SuffixRefusedError(Exception):
    """Azure and some HTTP servers know no suffix ranges, and S3 refuses one of an empty object."""


def open_uri(uri: str, storage_options: Mapping[str, Any] | None = None) -> ObjectSource:
    """Open an object by its URI; ``storage_options`` are obstore's config and client options."""
    base, key = split_uri(uri)
    return ObjectSource(open_store(base, storage_options, uri), key, uri)


def split_uri(uri: str) -> tuple[str, str]:
    """The store's part of a URI and the key in it."""
    parts = urlsplit(uri)
    web = parts.scheme in ("http", "https")
    if parts.query and web:
        raise ReadError("a URL with a query can't be read", path=uri, hint="pass a file object instead")
    key = unquote(parts.path) if web else uri.split("://", 1)[1].partition("/")[2]
    return f"{parts.scheme}://{parts.netloc}", key.lstrip("/")


def open_store(base: str, storage_options: Mapping[str, Any] | None, uri: str) -> Any:
    """The store of a URI's first part; the same one for the same options, since it holds the connections."""
    options = tuple(sorted((storage_options or {}).items()))
    try:
        if _hashable(options):
            return _shared_store(base, options, surroundings(base))
        return _make_store(base, dict(options))
    except ReadError as error:
        error.path = error.path or uri
        raise
    except Exception as error:
        # Nobody can tell which of the values it complains of are secret.
        text = scrub(error, [value for _, value in options if isinstance(value, str) and len(value) > 3])
        raise ReadError(
            f"the store can't be opened: {text}",
            path=uri,
            hint="check storage_options and the environment's settings of the store",
        ) from error


@lru_cache(maxsize=32)
def _shared_store(base: str, options: tuple[tuple[str, Any], ...], _around: tuple[object, ...]) -> Any:
    return _make_store(base, dict(options))


def _hashable(options: tuple[tuple[str, Any], ...]) -> bool:
    return all(isinstance(value, str | int | float | bool | None) for _, value in options)


def _make_store(base: str, options: dict[str, Any]) -> Any:
    from obstore.store import HTTPStore, MemoryStore, from_url

    if base.startswith("memory"):
        return MemoryStore()
    check_options(base, options)
    names = ("client_options", "retry_config", "credential_provider")
    own: dict[str, Any] = {name: options.pop(name) for name in names if name in options}
    # Other libraries take these as store options; obstore panics on them unless they are client options.
    clients = [name for name in options if is_client_option(name)]
    allowed = {option_name(name): _word(options.pop(name)) for name in clients}
    if base.startswith("http"):
        plain = {"allow_http": "true"} if base.startswith("http://") else {}
        own["client_options"] = {**_CLIENT, **plain, **allowed, **own.get("client_options", {})}
        return HTTPStore.from_url(base, **{"retry_config": _RETRY, **own})
    if base.startswith("s3"):
        options = with_profile(options)
        if "credential_provider" in options:
            own["credential_provider"] = options.pop("credential_provider")
    own["client_options"] = {**_CLIENT, **client_settings(base), **allowed, **own.get("client_options", {})}
    return from_url(base, config=options or None, **{"retry_config": _RETRY, **own})


def _word(value: object) -> str:
    text = str(value)
    return text.lower() if text in ("True", "False") else text


# obstore's own ten retries over three minutes keep a user waiting for a store that is not there.
_CLIENT = {"connect_timeout": "5s", "timeout": "60s"}
_RETRY = {
    "max_retries": 3,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=2), "base": 2},
}
