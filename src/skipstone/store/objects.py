"""Objects in S3, Google Cloud, Azure, on HTTP servers and in memory, read through obstore."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import unquote, urlsplit

from skipstone.errors import ReadError
from skipstone.store.ranges import ByteRange, coalesce
from skipstone.store.source import IoCounter, check_size, stale

# About what a request's latency is worth in bytes.
GAP = 1024 * 1024
_PARALLEL = 8


@dataclass(frozen=True, slots=True)
class _Version:
    """What tells one version of an object from the next; stores without etags still tell size and time."""

    size: int
    etag: str | None
    modified: Any

    def same(self, other: _Version) -> bool:
        """Whether both are one version; times are compared only where there are no etags to tell."""
        if self.etag is not None and other.etag is not None:
            return (self.size, self.etag) == (other.size, other.etag)
        return (self.size, self.modified) == (other.size, other.modified)


class ObjectSource:
    """One object, pinned to the version that the first answer came from.

    Every read asks for that version by etag, and the answer's own size and etag are compared as well,
    because not every store honours the condition.
    """

    def __init__(self, store: Any, key: str, path: str | None = None, *, gap: int = GAP) -> None:
        self.path = path if path is not None else key
        self.counter = IoCounter()
        self._store = store
        self._key = key
        self._gap = gap
        self._version: _Version | None = None

    def size(self) -> int:
        """The object's size in bytes; a request unless something has been read already."""
        if self._version is None:
            self._pin(self._head())
        assert self._version is not None
        return self._version.size

    def version(self) -> object | None:
        """Size and etag, once something has been read."""
        return self._version

    def expect(self, version: object | None, size: int | None) -> None:
        """Ask for this version from now on: a replaced object fails the next read, at no extra request."""
        if not isinstance(version, _Version):
            check_size(self, size)
        elif self._version is None:
            self._version = version
        elif not version.same(self._version):
            raise stale(self.path)

    def tail(self, length: int) -> tuple[bytes, int]:
        """The last ``length`` bytes and the object's size, in one request where suffix ranges exist."""
        try:
            return self._get({"suffix": length}), self.size()
        except _SuffixRefusedError:
            size = self.size()
            return self.read_ranges([ByteRange(max(size - length, 0), size)])[0], size

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """The bytes of each range; requests run side by side."""
        plan = coalesce(ranges, self._gap)
        if len(plan.requests) > 1:
            with ThreadPoolExecutor(min(_PARALLEL, len(plan.requests))) as pool:
                bodies = list(pool.map(self._get_range, plan.requests))
        else:
            bodies = [self._get_range(request) for request in plan.requests]
        return plan.split(bodies)

    async def tail_async(self, length: int) -> tuple[bytes, int]:
        """``tail`` without blocking the event loop."""
        try:
            return await self._get_async({"suffix": length}), self.size()
        except _SuffixRefusedError:
            return await asyncio.to_thread(self.tail, length)

    async def read_ranges_async(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """``read_ranges`` without blocking the event loop."""
        plan = coalesce(ranges, self._gap)
        return plan.split(await asyncio.gather(*map(self._get_range_async, plan.requests)))

    def _get_range(self, request: ByteRange) -> bytes:
        return self._full(request, self._get((request.start, request.stop)))

    async def _get_range_async(self, request: ByteRange) -> bytes:
        return self._full(request, await self._get_async((request.start, request.stop)))

    def _full(self, request: ByteRange, body: bytes) -> bytes:
        if len(body) != request.length:
            raise ReadError(f"{request}: only {len(body)} bytes came back", path=self.path)
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
        if self._version is not None and self._version.etag is not None:
            options["if_match"] = self._version.etag
        return options

    def _take(self, meta: Any, body: bytes) -> bytes:
        self.counter.add(1, len(body))
        self._pin(meta)
        return body

    def _pin(self, meta: Any) -> None:
        version = _Version(meta["size"], meta.get("e_tag"), meta.get("last_modified"))
        if self._version is None:
            self._version = version
        elif not version.same(self._version):
            raise ReadError("file changed while it was being read", path=self.path, hint="open it again")

    def _refusal(self, error: Exception, span: Any) -> Exception:
        from obstore import exceptions

        if isinstance(error, ReadError):
            return error
        if isinstance(error, FileNotFoundError):
            return ReadError("no such object", path=self.path)
        if isinstance(error, exceptions.PreconditionError):
            return ReadError("file changed while it was being read", path=self.path, hint="open it again")
        if isinstance(
            error, PermissionError | exceptions.PermissionDeniedError | exceptions.UnauthenticatedError
        ):
            return ReadError("permission denied", path=self.path, hint="check the credentials")
        if isinstance(span, dict) and isinstance(error, exceptions.BaseError):
            return _SuffixRefusedError()
        return ReadError(_first_line(error), path=self.path)


class _SuffixRefusedError(Exception):
    """Azure and some HTTP servers know no suffix ranges, and S3 refuses one of an empty object."""


def open_uri(uri: str, storage_options: Mapping[str, Any] | None = None) -> ObjectSource:
    """Open an object by its URI; ``storage_options`` are obstore's config and client options."""
    parts = urlsplit(uri)
    if parts.query and parts.scheme in ("http", "https"):
        raise ReadError("a URL with a query can't be read", path=uri, hint="pass a file object instead")
    key = (
        unquote(parts.path) if parts.scheme in ("http", "https") else uri.split("://", 1)[1].partition("/")[2]
    )
    base = f"{parts.scheme}://{parts.netloc}"
    options = tuple(sorted((storage_options or {}).items()))
    try:
        store = _shared_store(base, options) if _hashable(options) else _make_store(base, dict(options))
    except Exception as error:
        raise ReadError(f"the store can't be opened: {_first_line(error)}", path=uri) from error
    return ObjectSource(store, key.lstrip("/"), uri)


@lru_cache(maxsize=32)
def _shared_store(base: str, options: tuple[tuple[str, Any], ...]) -> Any:
    # One store for all objects of a bucket: it holds the connections.
    return _make_store(base, dict(options))


def _hashable(options: tuple[tuple[str, Any], ...]) -> bool:
    return all(isinstance(value, str | int | float | bool | None) for _, value in options)


def _make_store(base: str, options: dict[str, Any]) -> Any:
    from obstore.store import HTTPStore, from_url

    names = ("client_options", "retry_config", "credential_provider")
    own: dict[str, Any] = {name: options.pop(name) for name in names if name in options}
    # Other libraries take this one as a store option; obstore panics on it unless it is a client option.
    allow = [options.pop(name) for name in ("allow_http", "aws_allow_http") if name in options]
    if base.startswith("http://") or any(str(value).lower() == "true" for value in allow):
        own["client_options"] = {"allow_http": True, **own.get("client_options", {})}
    if base.startswith("http"):
        return HTTPStore.from_url(base, **own)
    return from_url("memory:///" if base.startswith("memory") else base, config=options or None, **own)


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
