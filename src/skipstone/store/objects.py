"""Objects in S3, Google Cloud, Azure, on HTTP servers and in memory, through obstore.

HTTP servers can't list, so a store there is a single file.
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
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar
from urllib.parse import quote

from skipstone.errors import ConflictError, FileError, MissingFileError, ReadError, WriteError, scrub
from skipstone.store.options import StoreOptions, carries_credentials, open_obstore, split_uri, store_kind
from skipstone.store.source import ByteRange, IoCounter, check_size, coalesce, gone_error, stale_error
from skipstone.store.store import BY_KEY, ListedFile, check_key, missing_error, split_glob

if TYPE_CHECKING:
    from obstore import GetOptions

T = TypeVar("T")
R = TypeVar("R")

# Transferring this many bytes takes about as long as the latency of a request.
GAP = 1024 * 1024
# One connection uses a fraction of the bandwidth, so larger ranges are requested in parts.
LARGE = 16 * 1024 * 1024
PART = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ObjectVersion:
    """Version of an object: its etag, or size and time in stores without etags."""

    size: int
    etag: str | None
    modified: Any

    @classmethod
    def of(cls, meta: Any) -> ObjectVersion:
        """The version in obstore's metadata of a response or listing."""
        return cls(meta["size"], meta.get("e_tag"), meta.get("last_modified"))

    def same(self, other: ObjectVersion) -> bool:
        """Whether both are the same version; times are compared only without etags."""
        if self.etag is not None and other.etag is not None:
            return self.size == other.size and _bare(self.etag) == _bare(other.etag)
        return (self.size, _second(self.modified)) == (other.size, _second(other.modified))

    def condition(self) -> str | None:
        """The value of If-Match; None for a weak etag, which never matches."""
        if self.etag is None or self.etag.startswith("W/"):
            return None
        # Azure lists etags without the quotes that it requires.
        return f'"{self.etag}"' if self.etag.startswith("0x") else self.etag


def _bare(etag: str) -> str:
    return etag.removeprefix("W/").strip('"')


def _second(time: Any) -> Any:
    # Listings have milliseconds, HTTP headers don't.
    return time.replace(microsecond=0) if time is not None else None


class ObjectSource:
    """One object, pinned to the version of the first response or to the expected one.

    Every read requests that version by etag and compares size and etag of the response as well, because
    not every store honours If-Match.
    """

    def __init__(self, client: Any, key: str, path: str | None = None, *, gap: int = GAP) -> None:
        self.path = path if path is not None else key
        self.counter = IoCounter()
        self.gap = gap
        self._client = client
        self._key = key
        self._version: ObjectVersion | None = None
        self._size: int | None = None
        self._expected = False
        self._lock = threading.Lock()

    def size(self) -> int:
        """Object size in bytes; costs a request unless it is pinned."""
        # No read would reveal that an object recorded as empty is not.
        if self._size is None or (self._size == 0 and self._version is None):
            self._pin(self._head())
        assert self._size is not None
        return self._size

    def version(self) -> object | None:
        """The pinned version, once something has been read or expected."""
        return self._version

    def expect(self, version: object | None, size: int | None) -> None:
        """Pin version and size: the next read of a replaced object fails, without an extra request."""
        expected = version if isinstance(version, ObjectVersion) else None
        if expected is not None and self._version is None:
            self._version, size = expected, expected.size
        elif expected is not None and self._version is not None and not expected.same(self._version):
            raise stale_error(self.path)
        if self._size is None:
            self._size = size
            self._expected = size is not None
        else:
            check_size(self, size)

    def tail(self, length: int) -> tuple[bytes, int]:
        """The last ``length`` bytes and the object size, in one request where suffix ranges are supported."""
        try:
            if self._size is None:
                return self._get({"suffix": length}), self.size()
        except _SuffixRefusedError:
            pass
        size = self.size()
        return self.read_ranges([ByteRange(max(size - length, 0), size)])[0], size

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """Bytes of each range; requests run in parallel, large ones in parts."""
        plan = coalesce(ranges, self.gap)
        parts = [_parts(request) for request in plan.requests]
        return plan.split(_join_parts(parts, map_parallel(self._get_range, chain.from_iterable(parts))))

    def _get_range(self, request: ByteRange) -> bytes:
        body = self._get((request.start, request.stop))
        if len(body) != request.length:
            # Beyond the end of the object a retry does not help.
            transient = request.stop <= self.size()
            message = f"{request}: got only {len(body)} bytes"
            raise ReadError(message, path=self.path, transient=transient)
        return body

    def _get(self, span: Any) -> bytes:
        import obstore

        try:
            response = obstore.get(self._client, self._key, options=self._options(span))
            body = bytes(response.bytes())
            self.counter.add(1, len(body))
            self._pin(response.meta)
            return body
        except Exception as error:
            raise self._error(error, span) from error

    def _head(self) -> Any:
        import obstore

        try:
            meta = obstore.head(self._client, self._key)
        except Exception as error:
            raise self._error(error, None) from error
        self.counter.add(1, 0)
        return meta

    def _options(self, span: Any) -> GetOptions:
        options: GetOptions = {"range": span}
        condition = self._version.condition() if self._version is not None else None
        if condition is not None:
            options["if_match"] = condition
        return options

    def _pin(self, meta: Any) -> None:
        version = ObjectVersion.of(meta)
        with self._lock:
            if self._version is None and self._size in (None, version.size):
                self._version, self._size = version, version.size
        if self._version is None and self._size is not None:
            raise stale_error(self.path, self._size, version.size)
        if self._version is None or not version.same(self._version):
            raise self._changed()

    def _changed(self) -> ReadError:
        if self._expected:
            return stale_error(self.path)
        return ReadError("file changed while it was being read", path=self.path, hint="open it again")

    def _error(self, error: Exception, span: Any) -> Exception:
        import obstore
        from obstore import exceptions

        if isinstance(error, ReadError):
            return error
        # Failed requests count, unless the client refused to send one.
        self.counter.add(0 if isinstance(error, exceptions.NotSupportedError) else 1, 0)
        if isinstance(error, FileNotFoundError) and "NoSuchBucket" not in str(error):
            return (
                gone_error(self.path)
                if self._expected
                else MissingFileError("no such object", path=self.path)
            )
        if isinstance(error, exceptions.PreconditionError):
            return self._changed()
        failure = read_error(error, self.path)
        if isinstance(span, tuple) and self._expected and self._version is None and not failure.transient:
            # The range can be beyond the end: compare the object's size.
            with suppress(Exception):
                size = ObjectVersion.of(obstore.head(self._client, self._key)).size
                if size != self._size:
                    return stale_error(self.path, self._size or 0, size)
        if isinstance(span, dict) and isinstance(error, exceptions.BaseError) and not failure.transient:
            return _SuffixRefusedError()
        return failure


def read_error(error: Exception, path: str) -> ReadError:
    """Convert a failed request; the hint names the setting to change."""
    from obstore import exceptions

    if isinstance(error, ReadError):
        return error
    text, line = str(error), scrub(error)
    denied = PermissionError | exceptions.PermissionDeniedError | exceptions.UnauthenticatedError
    for pattern, message, topic in _FAILURES:
        if match := pattern.search(text):
            transient = topic in ("endpoint", "timeout") and _TRANSIENT.search(text) is not None
            shown = message.format(*(match.groups() or _connection(text)))
            return ReadError(shown, path=path, hint=_advice(path, topic), transient=transient)
    if isinstance(error, denied):
        return ReadError("permission denied", path=path, hint=_advice(path, "credentials"))
    return ReadError(line, path=path, transient=_TRANSIENT.search(text) is not None)


# obstore raises one class for most failures; its message quotes the response, or its HTTP client's error.
_FAILURES: tuple[tuple[re.Pattern[str], str, str], ...] = tuple(
    (re.compile(pattern), message, topic)
    for pattern, message, topic in (
        (r"credential provider: (?:\w+: )?(.*)", "can't obtain credentials: {}", "provider"),
        (
            r"169\.254\.|/latest/(?:api/token|meta-data)|metadata\.google|(?i:no credential)",
            "no credentials found",
            "credentials",
        ),
        (r"(?s)http://\S+.*builder error", "plain HTTP is not allowed", "http"),
        (r"InvalidContentType|CorruptMessage", "endpoint does not use TLS", "https"),
        (
            r"InvalidCertificate\(\s*(?:Other\(\s*OtherError\(\s*)?(\w+)",
            "TLS certificate of the endpoint is not trusted ({})",
            "tls",
        ),
        (r"region '[\w-]+' is wrong; expecting '([\w-]+)'", "bucket is in another region, {}", "region"),
        (
            r"PermanentRedirect|BareRedirect|AuthorizationHeaderMalformed|IllegalLocation|status code: 301",
            "bucket is in another region",
            "region",
        ),
        (
            r"NoSuchBucket|InvalidBucketName|ContainerNotFound|specified (?:bucket|container) does not exist",
            "bucket does not exist",
            "bucket",
        ),
        ("InvalidAccessKeyId", "access key ID is unknown to the store", "key"),
        ("SignatureDoesNotMatch", "secret access key does not match the access key ID", "secret"),
        (
            "ExpiredToken|InvalidToken|TokenRefreshRequired",
            "session token is invalid or has expired",
            "token",
        ),
        ("RequestTimeTooSkewed", "clock of this machine differs from the store's", "clock"),
        ("status code: 40[13]", "permission denied", "credentials"),
        (r"kind: Timeout|operation timed out|deadline has elapsed|TimedOut", "no answer in time", "timeout"),
        (
            r"dns error|kind: Connect|[Cc]onnection refused",
            "can't connect to {0}: {1}",
            "endpoint",
        ),
    )
)
_ADVICE = {
    "http": "set {client}_ALLOW_HTTP=true, or allow_http in storage_options, if you trust the endpoint",
    "https": "use http:// in {endpoint}, with {client}_ALLOW_HTTP=true",
    "tls": "set root_certificate in storage_options{bundle} to the PEM file of its certificate authority",
    "region": "set AWS_REGION, or region in storage_options, to the bucket's region",
    "bucket": "check the bucket name in the URI, and {endpoint}",
    "endpoint": "check {endpoint}, {client}_PROXY_URL and the network",
    "timeout": "check {endpoint} and the network, or raise timeout and connect_timeout in storage_options",
    "key": "check AWS_ACCESS_KEY_ID, AWS_PROFILE and AWS_ENDPOINT_URL, or access_key_id in storage_options",
    "secret": "check AWS_SECRET_ACCESS_KEY or AWS_PROFILE, or secret_access_key in storage_options",
    "token": "renew AWS_SESSION_TOKEN and its keys, or remove it, or use AWS_PROFILE, which boto3 renews",
    "provider": "check AWS_PROFILE, or profile, role_arn and endpoint_url_sts in storage_options",
    "clock": "set the clock of this machine",
}
_CREDENTIALS = {
    "AWS": "AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "GOOGLE": "GOOGLE_APPLICATION_CREDENTIALS",
    "AZURE": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}
_ENDPOINTS = {
    "AWS": "AWS_ENDPOINT_URL or endpoint in storage_options",
    "GOOGLE": "base_url in storage_options",
    "AZURE": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ENDPOINT",
}


def _connection(text: str) -> tuple[str, str]:
    """The address and reason of a failed connection."""
    address = re.search(r"https?://[^/\s]+", text)
    reason = re.search(r"error: \"([^\"]*)\"|message: \"([^\"]*)\"", text)
    words = (reason[1] or reason[2]).rpartition(": ")[2] if reason else "connection failed"
    return address[0] if address else "the endpoint", words.lower()


def _advice(path: str, topic: str) -> str | None:
    """A hint that names the setting to check."""
    kind = store_kind(path)
    if not kind:
        return "check the credentials" if topic == "credentials" else None
    if topic == "credentials":
        return (
            f"set {_CREDENTIALS[kind]}, or pass storage_options; "
            "pickled plans carry credentials only with skipstone.with_credentials"
        )
    bundle = ", or AWS_CA_BUNDLE," if kind == "AWS" else ""
    return _ADVICE[topic].format(client=kind, endpoint=_ENDPOINTS[kind], bundle=bundle)


# obstore raises one class for all of these; only its message distinguishes them.
_TRANSIENT = re.compile(
    r"status code: (?:5\d\d|429|408)|SlowDown|timed out|kind: (?:Connect|Timeout|Interrupted|Request|Decode)"
    r"|connection (?:reset|closed|refused)|error (?:sending request|decoding|reading a body)"
)


def _parts(request: ByteRange) -> list[ByteRange]:
    return request.cut(PART) if request.length > LARGE else [request]


def _join_parts(parts: Sequence[Sequence[ByteRange]], fetched: list[bytes]) -> list[bytes]:
    bodies = iter(fetched)
    return [next(bodies) if len(some) == 1 else b"".join(islice(bodies, len(some))) for some in parts]


class _SuffixRefusedError(Exception):
    """Azure and some HTTP servers don't support suffix ranges; S3 refuses them for empty objects."""


def open_uri(uri: str, storage_options: Mapping[str, Any] | None = None) -> ObjectSource:
    """Open an object by its URI; ``storage_options`` are obstore's config and client options."""
    base, key = split_uri(uri)
    return ObjectSource(open_obstore(base, storage_options, uri), key, uri)


# -- parallel requests -------------------------------------------------------------------------

# Enough to hide the latency of a remote store, few enough not to be throttled.
PARALLEL = 32


class _SharedPool:
    """A thread pool, created when it is first needed."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start over: a forked child has the pool but none of its threads, and can inherit a held lock."""
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    def get(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(PARALLEL, thread_name_prefix="skipstone-store")
            return self._pool


_pool = _SharedPool()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.reset)


def map_parallel(work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Results of ``work`` in order; ``work`` must not call this function, or the pool can deadlock."""
    todo = list(items)
    if len(todo) < 2:
        return [work(item) for item in todo]
    # The first failure cancels items that have not started.
    return list(_pool.get().map(work, todo))


# -- prefixes ----------------------------------------------------------------------------------

# Entries per page of a listing; S3 returns a thousand per request.
_CHUNK = 1000


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """A prefix of an object store, or with ``only`` a single object in it."""

    uri: str
    prefix: str
    # The obstore store. It holds connections, which don't compare; the URI identifies it.
    client: Any = field(compare=False, repr=False)
    only: str | None = None
    # How to open the client again in another process, unless the caller passed it.
    origin: tuple[str, StoreOptions] | None = field(default=None, compare=False, repr=False)
    local: ClassVar[bool] = False

    def __reduce__(self) -> tuple[object, ...]:
        if self.origin is None and (carries_credentials() or self.uri.startswith(("file:", "memory:"))):
            return ObjectStore, (self.uri, self.prefix, self.client, self.only)
        # The caller's client holds credentials, and does not say which of its settings they are.
        return _restore, (self.uri, self.only, None if self.origin is None else self.origin[1])

    def list_prefix(self, prefix: str) -> list[ListedFile]:
        """Objects below a prefix of this one."""
        if not prefix:
            return self.list()
        if self.only is not None:
            return []
        key = prefix.rstrip("/")
        pages = _pages(self.client, self._key(key), self.path(key), _CHUNK)
        return _listed_files((meta for page in pages for meta in page), self._skip())

    def list_directories(self) -> list[str]:
        """Prefixes one level down."""
        if self.only is not None:
            return []
        return sorted(path[self._skip() :].rstrip("/") for path in self._list_level()["common_prefixes"])

    def list_files(self) -> list[ListedFile]:
        """Objects directly in the prefix."""
        return (
            self.list()
            if self.only is not None
            else _listed_files(self._list_level()["objects"], self._skip())
        )

    # Last of the listings: its name hides the builtin type.
    def list(self) -> list[ListedFile]:
        """All objects below the prefix, sorted by key; one request per page."""
        if self.only is not None:
            meta = _head(self.client, self._key(self.only), self.path(self.only))
            if meta is None:
                raise missing_error(self.path(self.only))
            return [ListedFile(self.only, meta["size"], ObjectVersion.of(meta))]
        pages = _pages(self.client, self.prefix, self.uri, _CHUNK)
        return _listed_files((meta for page in pages for meta in page), self._skip())

    def child(self, key: str) -> ObjectStore:
        """The store of a prefix below this one."""
        return ObjectStore(self.path(key), self._key(key), self.client, origin=self.origin)

    def parent(self) -> ObjectStore | None:
        """The store one level up; None for a single object or an entire bucket."""
        if self.only is not None or not self.prefix:
            return None
        above = self.prefix.rpartition("/")[0]
        base = self.uri.removesuffix(f"/{self.prefix}")
        return ObjectStore(_join(base, above), above, self.client, origin=self.origin)

    def open(self, key: str, *, version: object | None = None, size: int | None = None) -> ObjectSource:
        """Open an object lazily."""
        source = ObjectSource(self.client, self._key(key), self.path(key))
        source.expect(version, size)
        return source

    def write(self, key: str, parts: Iterable[bytes | memoryview], *, exclusive: bool = False) -> None:
        """Write an object; small and exclusive writes take one request."""
        import obstore
        from obstore import exceptions

        # Joined first, so that an error in the parts is raised before anything is sent.
        body, name = b"".join(parts), self._key(key, WriteError)
        mode: Any = "create" if exclusive else "overwrite"
        large = len(body) > LARGE and not exclusive
        try:
            obstore.put(self.client, name, body, mode=mode, use_multipart=large, chunk_size=PART)
        except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
            raise ConflictError("object already exists", path=self.path(key)) from None
        except Exception as error:
            raise _write_error(error, self.path(key)) from error

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects, as many per request as the store accepts."""
        if names := [self._key(key, WriteError) for key in keys]:
            _delete(self.client, names, self.uri)

    def move(self, key: str, to: str) -> None:
        """Copy an object on the server, then delete the original."""
        for name in (key, to):
            self._key(name, WriteError)
        self._copy(key, to)
        self.delete([key])

    def clear(self, prefix: str) -> None:
        """Delete all objects below a prefix."""
        self._key(prefix, WriteError)
        try:
            self.delete(entry.key for entry in self.list_prefix(prefix))
        except ReadError as error:
            raise WriteError(error.message, path=error.path, hint=error.hint) from error

    def path(self, key: str) -> str:
        """URI of an object."""
        check_key(key, self.uri)
        return _join(self.uri, quote(key) if self.uri.startswith("http") else key)

    def _copy(self, key: str, to: str) -> None:
        import obstore
        from obstore import exceptions

        try:
            try:
                obstore.copy(self.client, self._key(key), self._key(to), overwrite=False)
            except exceptions.NotSupportedError:
                # S3 has no conditional copy: checking first is the best there is.
                if _head(self.client, self._key(to), self.path(to)) is not None:
                    raise exceptions.AlreadyExistsError(to) from None
                obstore.copy(self.client, self._key(key), self._key(to))
        except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
            raise ConflictError("object already exists", path=self.path(to)) from None
        except FileNotFoundError:
            raise WriteError("no such object", path=self.path(key)) from None
        except Exception as error:
            raise _write_error(error, self.path(key)) from error

    def _key(self, key: str, error: type[FileError] = ReadError) -> str:
        check_key(key, self.uri, error)
        return f"{self.prefix}/{key}" if self.prefix else key

    def _skip(self) -> int:
        return len(self.prefix) + 1 if self.prefix else 0

    def _list_level(self) -> Any:
        import obstore

        try:
            return obstore.list_with_delimiter(self.client, self.prefix or None)
        except FileNotFoundError:
            raise missing_error(self.uri) from None
        except Exception as error:
            raise read_error(error, self.uri) from error


def open_prefix(name: str, storage_options: Mapping[str, Any] | None, client: Any) -> tuple[ObjectStore, str]:
    """The store and pattern of a URI, or of a key in an obstore ``client``."""
    base, key, client, origin = _open_client(name, storage_options, client)
    if base.startswith("http"):
        return _open_http(name, base, key, client, origin)
    fixed, glob = split_glob(key)
    prefix = fixed.rstrip("/")
    if glob or _is_prefix(client, prefix, name, sure=fixed != prefix):
        return ObjectStore(_join(base, prefix), prefix, client, origin=origin), glob
    if fixed != prefix or not prefix or _head(client, prefix, name) is None:
        raise missing_error(name)
    parent, _, only = prefix.rpartition("/")
    return ObjectStore(_join(base, parent), parent, client, only, origin), only


def prefix_root(name: str, storage_options: Mapping[str, Any] | None, client: Any) -> ObjectStore:
    """The store of the prefix of a URI, or of a key in an obstore ``client``."""
    base, key, client, origin = _open_client(name, storage_options, client)
    prefix = key.strip("/")
    return ObjectStore(_join(base, prefix), prefix, client, origin=origin)


def _open_client(
    name: str, storage_options: Mapping[str, Any] | None, client: Any
) -> tuple[str, str, Any, Any]:
    """Base URI, key, client, and how to open the client in another process."""
    if client is not None:
        return _base(client), name.lstrip("/"), client, None
    base, key = split_uri(name)
    return base, key, open_obstore(base, storage_options, name), (base, StoreOptions(storage_options or {}))


def _open_http(name: str, base: str, key: str, client: Any, origin: Any) -> tuple[ObjectStore, str]:
    parent, _, only = key.rpartition("/")
    if not only or split_glob(key)[1]:
        raise ReadError("can't list files on an HTTP server", path=name, hint="pass the URL of one file")
    return ObjectStore(_join(base, quote(parent)), parent, client, only, origin), only


def _is_prefix(client: Any, prefix: str, name: str, *, sure: bool) -> bool:
    """Whether any object is below a prefix; unless ``sure``, a denied listing counts as no."""
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
        raise missing_error(path) from None
    except Exception as error:
        raise read_error(error, path) from error


def _listed_files(metas: Iterable[Any], skip: int) -> list[ListedFile]:
    files = [
        ListedFile(meta["path"][skip:], meta["size"], ObjectVersion.of(meta))
        for meta in metas
        # Some tools mark a directory with an empty object of its name.
        if len(meta["path"]) > skip
    ]
    files.sort(key=BY_KEY)
    return files


def _delete(client: Any, names: list[str], path: str) -> None:
    import obstore

    try:
        obstore.delete(client, names)
    except FileNotFoundError:
        # Some stores fail on a missing object and can leave the others.
        for name in names if len(names) > 1 else ():
            _delete(client, [name], path)
    except Exception as error:
        raise _write_error(error, path) from error


def _write_error(error: Exception, path: str) -> WriteError:
    failure = read_error(error, path)
    return WriteError(failure.message, path=path, hint=failure.hint)


def _head(client: Any, key: str, path: str) -> Any:
    import obstore

    try:
        return obstore.head(client, key)
    except FileNotFoundError:
        return None
    except Exception as error:
        raise read_error(error, path) from error


# The bucket comes from the repr, since reading a client's config panics for some options.
_REPR = re.compile(r'(S3|GCS|Azure)Store\((?:bucket|container_name)="([^"]*)"')
_SCHEMES = {"S3": "s3", "GCS": "gs", "Azure": "az"}


def _base(client: Any) -> str:
    """The base URI of a client, including its prefix."""
    if hasattr(client, "url"):
        return str(client.url).rstrip("/")
    prefix = str(getattr(client, "prefix", None) or "").strip("/")
    parts = _REPR.match(repr(client))
    if parts is not None:
        return _join(f"{_SCHEMES[parts[1]]}://{parts[2]}", prefix)
    return _join("file://" if prefix else "memory://", prefix)


def _join(base: str, key: str) -> str:
    return f"{base}/{key}" if key else base


def _restore(uri: str, only: str | None, options: StoreOptions | None) -> ObjectStore:
    return replace(prefix_root(uri, options, None), uri=uri, only=only)
