"""Objects in S3, Google Cloud, Azure, on HTTP servers and in memory, through obstore.

An HTTP server can't list: there one file is a place.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Any, ClassVar, TypeVar
from urllib.parse import quote

from skipstone.errors import ConflictError, FileError, MissingFileError, ReadError, WriteError, scrub
from skipstone.store.options import StoreOptions, carries_credentials, open_obstore, split_uri
from skipstone.store.source import ByteRange, IoCounter, check_size, coalesce, gone, stale
from skipstone.store.store import BY_KEY, ListedFile, check_key, missing, split_glob

T = TypeVar("T")
R = TypeVar("R")

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

    def __init__(self, client: Any, key: str, path: str | None = None, *, gap: int = GAP) -> None:
        self.path = path if path is not None else key
        self.counter = IoCounter()
        self.gap = gap
        self._store = client
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

    def _get_range(self, request: ByteRange) -> bytes:
        return self._full(request, self._get((request.start, request.stop)))

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


# Obstore's words are kept where there are no better ones.
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
    return ObjectSource(open_obstore(base, storage_options, uri), key, uri)


# -- requests side by side ---------------------------------------------------------------------

# Enough to hide the latency of a far store, few enough not to be throttled by it.
PARALLEL = 32


class _Shared:
    """The pool, made when it is first needed."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin again: a forked child has the pool but none of its threads, and may have a held lock."""
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    def get(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(PARALLEL, thread_name_prefix="skipstone-store")
            return self._pool


_shared = _Shared()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_shared.forget)


def side_by_side(work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """What ``work`` gives for each item, in order; it must not come here itself, or all threads may wait."""
    todo = list(items)
    if len(todo) < 2:
        return [work(item) for item in todo]
    # The first failure cancels what has not begun.
    return list(_shared.get().map(work, todo))


# -- prefixes ----------------------------------------------------------------------------------

# How many entries cross from obstore at a time; S3 gives a thousand per request.
_CHUNK = 1000


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """A prefix of an object store; with ``only`` one object of it is listed."""

    uri: str
    prefix: str
    # A store is known by its URI and holds connections, which don't compare.
    client: Any = field(compare=False, repr=False)
    only: str | None = None
    # How to open the store again in another process, if it was opened here and not by the caller.
    origin: tuple[str, StoreOptions] | None = field(default=None, compare=False, repr=False)
    local: ClassVar[bool] = False

    def __reduce__(self) -> tuple[object, ...]:
        if self.origin is None and (carries_credentials() or self.uri.startswith(("file:", "memory:"))):
            return ObjectStore, (self.uri, self.prefix, self.client, self.only)
        # A caller's own store holds credentials, and can't be asked which of its settings they are.
        return _restored, (self.uri, self.only, None if self.origin is None else self.origin[1])

    def list_prefix(self, prefix: str) -> list[ListedFile]:
        """The objects below a prefix of this one; none if there are none."""
        if not prefix:
            return self.list()
        if self.only is not None:
            return []
        key = prefix.rstrip("/")
        pages = _pages(self.client, self._key(key), self.path(key), _CHUNK)
        return _listed((meta for page in pages for meta in page), self._skip())

    def list_directories(self) -> list[str]:
        """The prefixes one level down."""
        if self.only is not None:
            return []
        return sorted(path[self._skip() :].rstrip("/") for path in self._level()["common_prefixes"])

    def list_files(self) -> list[ListedFile]:
        """The objects in the prefix itself."""
        return self.list() if self.only is not None else _listed(self._level()["objects"], self._skip())

    # The last that names the type, which this name hides.
    def list(self) -> list[ListedFile]:
        """Every object below the prefix, by key; a request per page, none per object."""
        if self.only is not None:
            meta = _head(self.client, self._key(self.only), self.path(self.only))
            if meta is None:
                raise missing(self.path(self.only))
            return [ListedFile(self.only, meta["size"], ObjectVersion.of(meta))]
        pages = _pages(self.client, self.prefix, self.uri, _CHUNK)
        return _listed((meta for page in pages for meta in page), self._skip())

    def child(self, key: str) -> ObjectStore:
        """The prefix below this one."""
        return ObjectStore(self.path(key), self._key(key), self.client, origin=self.origin)

    def parent(self) -> ObjectStore | None:
        """The prefix above this one; none above one object, or the whole store."""
        if self.only is not None or not self.prefix:
            return None
        above = self.prefix.rpartition("/")[0]
        base = self.uri.removesuffix(f"/{self.prefix}")
        return ObjectStore(_join(base, above), above, self.client, origin=self.origin)

    def open(self, key: str, *, version: object | None = None, size: int | None = None) -> ObjectSource:
        """An object, untouched before its first read."""
        source = ObjectSource(self.client, self._key(key), self.path(key))
        source.expect(version, size)
        return source

    def write(self, key: str, parts: Iterable[bytes | memoryview], *, exclusive: bool = False) -> None:
        """Write an object; in one request if it is small, or if the store has to tell who was first."""
        import obstore
        from obstore import exceptions

        # Whatever the parts raise is raised before anything is sent.
        body, name = b"".join(parts), self._key(key, WriteError)
        mode: Any = "create" if exclusive else "overwrite"
        large = len(body) > LARGE and not exclusive
        try:
            obstore.put(self.client, name, body, mode=mode, use_multipart=large, chunk_size=PART)
        except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
            raise ConflictError("the object exists already", path=self.path(key)) from None
        except Exception as error:
            raise _failure(error, self.path(key)) from error

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects, as many per request as the store takes."""
        if names := [self._key(key, WriteError) for key in keys]:
            _delete(self.client, names, self.uri)

    def move(self, key: str, to: str) -> None:
        """Have the store copy an object, then delete the first."""
        for name in (key, to):
            self._key(name, WriteError)
        self._copy(key, to)
        self.delete([key])

    def clear(self, prefix: str) -> None:
        """Delete every object below a prefix."""
        self._key(prefix, WriteError)
        try:
            self.delete(entry.key for entry in self.list_prefix(prefix))
        except ReadError as error:
            raise WriteError(error.message, path=error.path, hint=error.hint) from error

    def path(self, key: str) -> str:
        """The object's URI."""
        check_key(key, self.uri)
        return _join(self.uri, quote(key) if self.uri.startswith("http") else key)

    def _copy(self, key: str, to: str) -> None:
        import obstore
        from obstore import exceptions

        try:
            try:
                obstore.copy(self.client, self._key(key), self._key(to), overwrite=False)
            except exceptions.NotSupportedError:
                # S3 has no such condition: a look before is the best there is.
                if _head(self.client, self._key(to), self.path(to)) is not None:
                    raise exceptions.AlreadyExistsError(to) from None
                obstore.copy(self.client, self._key(key), self._key(to))
        except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
            raise ConflictError("the object exists already", path=self.path(to)) from None
        except FileNotFoundError:
            raise WriteError("no such object", path=self.path(key)) from None
        except Exception as error:
            raise _failure(error, self.path(key)) from error

    def _key(self, key: str, error: type[FileError] = ReadError) -> str:
        check_key(key, self.uri, error)
        return f"{self.prefix}/{key}" if self.prefix else key

    def _skip(self) -> int:
        return len(self.prefix) + 1 if self.prefix else 0

    def _level(self) -> Any:
        import obstore

        try:
            return obstore.list_with_delimiter(self.client, self.prefix or None)
        except FileNotFoundError:
            raise missing(self.uri) from None
        except Exception as error:
            raise refusal(error, self.uri) from error


def open_prefix(name: str, storage_options: Mapping[str, Any] | None, client: Any) -> tuple[ObjectStore, str]:
    """The place for a URI, or for a key in a ``store``: a prefix, an object or a glob."""
    base, key, client, origin = _opened(name, storage_options, client)
    if base.startswith("http"):
        return _open_page(name, base, key, client, origin)
    fixed, glob = split_glob(key)
    prefix = fixed.rstrip("/")
    if glob or _is_prefix(client, prefix, name, sure=fixed != prefix):
        return ObjectStore(_join(base, prefix), prefix, client, origin=origin), glob
    if fixed != prefix or not prefix or _head(client, prefix, name) is None:
        raise missing(name)
    parent, _, only = prefix.rpartition("/")
    return ObjectStore(_join(base, parent), parent, client, only, origin), only


def prefix_root(name: str, storage_options: Mapping[str, Any] | None, client: Any) -> ObjectStore:
    """The prefix that a URI, or a key in a ``store``, names."""
    base, key, client, origin = _opened(name, storage_options, client)
    prefix = key.strip("/")
    return ObjectStore(_join(base, prefix), prefix, client, origin=origin)


def _opened(name: str, storage_options: Mapping[str, Any] | None, client: Any) -> tuple[str, str, Any, Any]:
    """The store's part of a URI, the key in it, the store, and how to open it in another process."""
    if client is not None:
        return _base(client), name.lstrip("/"), client, None
    base, key = split_uri(name)
    return base, key, open_obstore(base, storage_options, name), (base, StoreOptions(storage_options or {}))


def _open_page(name: str, base: str, key: str, client: Any, origin: Any) -> tuple[ObjectStore, str]:
    parent, _, only = key.rpartition("/")
    if not only or split_glob(key)[1]:
        raise ReadError("an HTTP server can't be listed", path=name, hint="give the URL of one file")
    return ObjectStore(_join(base, quote(parent)), parent, client, only, origin), only


def _is_prefix(client: Any, prefix: str, name: str, *, sure: bool) -> bool:
    """Whether anything lies below, be it a mark; who may read one object need not be allowed to list."""
    try:
        return any(_pages(client, prefix, name, 1))
    except ReadError as error:
        if sure or error.message != "permission denied":
            raise
        return False


def _pages(client: Any, prefix: str, path: str, size: int) -> Iterator[Any]:
    import obstore

    try:
        yield from obstore.list(client, prefix or None, chunk_size=size)
    except FileNotFoundError:
        raise missing(path) from None
    except Exception as error:
        raise refusal(error, path) from error


def _listed(metas: Iterable[Any], skip: int) -> list[ListedFile]:
    files = [
        ListedFile(meta["path"][skip:], meta["size"], ObjectVersion.of(meta))
        for meta in metas
        # Some tools mark a directory by an object of its name.
        if len(meta["path"]) > skip
    ]
    files.sort(key=BY_KEY)
    return files


def _delete(client: Any, names: list[str], path: str) -> None:
    import obstore

    try:
        obstore.delete(client, names)
    except FileNotFoundError:
        # Some stores miss what is gone, and may have left the rest.
        for name in names if len(names) > 1 else ():
            _delete(client, [name], path)
    except Exception as error:
        raise _failure(error, path) from error


def _failure(error: Exception, path: str) -> WriteError:
    found = refusal(error, path)
    return WriteError(found.message, path=path, hint=found.hint)


def _head(client: Any, key: str, path: str) -> Any:
    import obstore

    try:
        return obstore.head(client, key)
    except FileNotFoundError:
        return None
    except Exception as error:
        raise refusal(error, path) from error


# Reading a store's config panics for some options, so that its text has to tell the bucket.
_NAMED = re.compile(r'(S3|GCS|Azure)Store\((?:bucket|container_name)="([^"]*)"')
_SCHEMES = {"S3": "s3", "GCS": "gs", "Azure": "az"}


def _base(client: Any) -> str:
    """A store's own part of the URIs in it, prefix included."""
    if hasattr(client, "url"):
        return str(client.url).rstrip("/")
    prefix = str(getattr(client, "prefix", None) or "").strip("/")
    named = _NAMED.match(repr(client))
    if named is not None:
        return _join(f"{_SCHEMES[named[1]]}://{named[2]}", prefix)
    return _join("file://" if prefix else "memory://", prefix)


def _join(base: str, key: str) -> str:
    return f"{base}/{key}" if key else base


def _restored(uri: str, only: str | None, options: StoreOptions | None) -> ObjectStore:
    return replace(prefix_root(uri, options, None), uri=uri, only=only)
