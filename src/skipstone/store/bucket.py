"""A prefix in S3, Google Cloud, Azure or memory; of an HTTP server, which can't list, one file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

from skipstone.errors import ConflictError, FileError, ReadError, WriteError
from skipstone.store.objects import (
    LARGE,
    PART,
    ObjectSource,
    ObjectVersion,
    open_store,
    refusal,
    split_uri,
)
from skipstone.store.options import StoreOptions, carries_credentials
from skipstone.store.place import Listed, check_key, missing, split_glob

# How many entries cross from obstore at a time; S3 gives a thousand per request.
_CHUNK = 1000


@dataclass(frozen=True, slots=True)
class ObjectPlace:
    """A prefix of an object store; with ``only`` one object of it is listed."""

    uri: str
    prefix: str
    # A store is known by its URI and holds connections, which don't compare.
    store: Any = field(compare=False, repr=False)
    only: str | None = None
    # How to open the store again in another process, if it was opened here and not by the caller.
    origin: tuple[str, StoreOptions] | None = field(default=None, compare=False, repr=False)

    def __reduce__(self) -> tuple[object, ...]:
        if self.origin is None and (carries_credentials() or self.uri.startswith(("file:", "memory:"))):
            return ObjectPlace, (self.uri, self.prefix, self.store, self.only)
        # A caller's own store holds credentials, and can't be asked which of its settings they are.
        return _restored, (self.uri, self.only, None if self.origin is None else self.origin[1])

    @property
    def local(self) -> bool:
        """It is not."""
        return False

    def below(self, prefix: str) -> list[Listed]:
        """The objects below a prefix of this one; none if there are none."""
        if not prefix:
            return self.list()
        if self.only is not None:
            return []
        key = prefix.rstrip("/")
        pages = _pages(self.store, self._key(key), self.path(key), _CHUNK)
        return _listed((meta for page in pages for meta in page), self._skip())

    def folders(self) -> list[str]:
        """The prefixes one level down."""
        if self.only is not None:
            return []
        return sorted(path[self._skip() :].rstrip("/") for path in self._level()["common_prefixes"])

    def files_here(self) -> list[Listed]:
        """The objects in the prefix itself."""
        return self.list() if self.only is not None else _listed(self._level()["objects"], self._skip())

    # The last that names the type, which this name hides.
    def list(self) -> list[Listed]:
        """Every object below the prefix, by key; a request per page, none per object."""
        if self.only is not None:
            meta = _head(self.store, self._key(self.only), self.path(self.only))
            if meta is None:
                raise missing(self.path(self.only))
            return [Listed(self.only, meta["size"], ObjectVersion.of(meta))]
        pages = _pages(self.store, self.prefix, self.uri, _CHUNK)
        return _listed((meta for page in pages for meta in page), self._skip())

    def child(self, key: str) -> ObjectPlace:
        """The prefix below this one."""
        return ObjectPlace(self.path(key), self._key(key), self.store, origin=self.origin)

    def parent(self) -> ObjectPlace | None:
        """The prefix above this one; none above one object, or the whole store."""
        if self.only is not None or not self.prefix:
            return None
        above = self.prefix.rpartition("/")[0]
        base = self.uri.removesuffix(f"/{self.prefix}")
        return ObjectPlace(_join(base, above), above, self.store, origin=self.origin)

    def open(self, key: str, *, version: object | None = None, size: int | None = None) -> ObjectSource:
        """An object, untouched before its first read."""
        source = ObjectSource(self.store, self._key(key), self.path(key))
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
            obstore.put(self.store, name, body, mode=mode, use_multipart=large, chunk_size=PART)
        except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
            raise ConflictError("the object exists already", path=self.path(key)) from None
        except Exception as error:
            raise _failure(error, self.path(key)) from error

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects, as many per request as the store takes."""
        if names := [self._key(key, WriteError) for key in keys]:
            _delete(self.store, names, self.uri)

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
            self.delete(entry.key for entry in self.below(prefix))
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
                obstore.copy(self.store, self._key(key), self._key(to), overwrite=False)
            except exceptions.NotSupportedError:
                # S3 has no such condition: a look before is the best there is.
                if _head(self.store, self._key(to), self.path(to)) is not None:
                    raise exceptions.AlreadyExistsError(to) from None
                obstore.copy(self.store, self._key(key), self._key(to))
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
            return obstore.list_with_delimiter(self.store, self.prefix or None)
        except FileNotFoundError:
            raise missing(self.uri) from None
        except Exception as error:
            raise refusal(error, self.uri) from error


def open_bucket(name: str, storage_options: Mapping[str, Any] | None, store: Any) -> tuple[ObjectPlace, str]:
    """The place for a URI, or for a key in a ``store``: a prefix, an object or a glob."""
    origin = None
    if store is None:
        base, key = split_uri(name)
        store = open_store(base, storage_options, name)
        origin = (base, StoreOptions(storage_options or {}))
    else:
        base, key = _base(store), name.lstrip("/")
    if base.startswith("http"):
        return _open_page(name, base, key, store, origin)
    fixed, glob = split_glob(key)
    prefix = fixed.rstrip("/")
    if glob or _is_prefix(store, prefix, name, sure=fixed != prefix):
        return ObjectPlace(_join(base, prefix), prefix, store, origin=origin), glob
    if fixed != prefix or not prefix or _head(store, prefix, name) is None:
        raise missing(name)
    parent, _, only = prefix.rpartition("/")
    return ObjectPlace(_join(base, parent), parent, store, only, origin), only


def bucket_root(name: str, storage_options: Mapping[str, Any] | None, store: Any) -> ObjectPlace:
    """The prefix that a URI, or a key in a ``store``, names."""
    origin = None
    if store is None:
        base, key = split_uri(name)
        store = open_store(base, storage_options, name)
        origin = (base, StoreOptions(storage_options or {}))
    else:
        base, key = _base(store), name
    prefix = key.strip("/")
    return ObjectPlace(_join(base, prefix), prefix, store, origin=origin)


def _open_page(name: str, base: str, key: str, store: Any, origin: Any) -> tuple[ObjectPlace, str]:
    parent, _, only = key.rpartition("/")
    if not only or split_glob(key)[1]:
        raise ReadError("an HTTP server can't be listed", path=name, hint="give the URL of one file")
    return ObjectPlace(_join(base, quote(parent)), parent, store, only, origin), only


def _is_prefix(store: Any, prefix: str, name: str, *, sure: bool) -> bool:
    """Whether anything lies below, be it a mark; who may read one object need not be allowed to list."""
    try:
        return any(_pages(store, prefix, name, 1))
    except ReadError as error:
        if sure or error.message != "permission denied":
            raise
        return False


def _pages(store: Any, prefix: str, path: str, size: int) -> Iterator[Any]:
    import obstore

    try:
        yield from obstore.list(store, prefix or None, chunk_size=size)
    except FileNotFoundError:
        raise missing(path) from None
    except Exception as error:
        raise refusal(error, path) from error


def _listed(metas: Iterable[Any], skip: int) -> list[Listed]:
    files = [
        Listed(meta["path"][skip:], meta["size"], ObjectVersion.of(meta))
        for meta in metas
        # Some tools mark a directory by an object of its name.
        if len(meta["path"]) > skip
    ]
    files.sort(key=lambda file: file.key)
    return files


def _delete(store: Any, names: list[str], path: str) -> None:
    import obstore

    try:
        obstore.delete(store, names)
    except FileNotFoundError:
        # Some stores miss what is gone, and may have left the rest.
        for name in names if len(names) > 1 else ():
            _delete(store, [name], path)
    except Exception as error:
        raise _failure(error, path) from error


def _failure(error: Exception, path: str) -> WriteError:
    found = refusal(error, path)
    return WriteError(found.message, path=path, hint=found.hint)


def _head(store: Any, key: str, path: str) -> Any:
    import obstore

    try:
        return obstore.head(store, key)
    except FileNotFoundError:
        return None
    except Exception as error:
        raise refusal(error, path) from error


# Reading a store's config panics for some options, so that its text has to tell the bucket.
_NAMED = re.compile(r'(S3|GCS|Azure)Store\((?:bucket|container_name)="([^"]*)"')
_SCHEMES = {"S3": "s3", "GCS": "gs", "Azure": "az"}


def _base(store: Any) -> str:
    """A store's own part of the URIs in it, prefix included."""
    if hasattr(store, "url"):
        return str(store.url).rstrip("/")
    prefix = str(getattr(store, "prefix", None) or "").strip("/")
    named = _NAMED.match(repr(store))
    if named is not None:
        return _join(f"{_SCHEMES[named[1]]}://{named[2]}", prefix)
    return _join("file://" if prefix else "memory://", prefix)


def _join(base: str, key: str) -> str:
    return f"{base}/{key}" if key else base


def _restored(uri: str, only: str | None, options: StoreOptions | None) -> ObjectPlace:
    return replace(bucket_root(uri, options, None), uri=uri, only=only)
