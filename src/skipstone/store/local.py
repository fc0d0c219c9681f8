"""Local files and directories; writes are durable: they survive a power failure."""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from skipstone.errors import ConflictError, MissingFileError, ReadError, WriteError, similar, suggestion
from skipstone.store.source import ByteRange, IoCounter, check_size, coalesce, gone_error, stale_error
from skipstone.store.store import BY_KEY, ListedFile, check_key, missing_error, split_glob

# Reading this many bytes from the page cache costs about as much as a seek.
GAP = 64 * 1024
# preadv accepts 1,024 buffers.
_MAX_BUFFERS = 1_000
# Names of a directory to compare a wrong name with.
_MAX_NAMES = 10_000


class LocalSource:
    """A local file, pinned by size, modification time and inode when the source is created.

    Each read opens the file again: a plan can hold more sources than a process can hold descriptors, and a
    replaced file is detected. A ``lazy`` source does not touch the file before its first read.
    """

    def __init__(self, path: str, *, gap: int = GAP, lazy: bool = False) -> None:
        self.path = path
        self.counter = IoCounter()
        self.gap = gap
        self._identity: tuple[int, int, int] | None = None
        self._size: int | None = None
        self._expected = False
        self._lock = threading.Lock()
        if not lazy:
            self._pin()

    def size(self) -> int:
        """File size in bytes."""
        if self._size is None:
            self._pin()
        assert self._size is not None
        return self._size

    def version(self) -> object | None:
        """Size, modification time and inode, once pinned."""
        return self._identity

    def expect(self, version: object | None, size: int | None) -> None:
        """Pin version and size; checked now, or at the first read."""
        expected = version if isinstance(version, tuple) else None
        if expected is not None and self._identity is None:
            self._identity, size = expected, expected[0]
        elif expected is not None and expected != self._identity:
            raise stale_error(self.path)
        if self._size is None:
            self._size = size
            self._expected = size is not None
        else:
            check_size(self, size)

    def tail(self, length: int) -> tuple[bytes, int]:
        """The last ``length`` bytes and the file size."""
        size = self.size()
        descriptor = self._open()
        try:
            return self._read(descriptor, ByteRange(max(size - length, 0), size)), size
        finally:
            os.close(descriptor)

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """Bytes of each range."""
        plan = coalesce(ranges, self.gap)
        descriptor = self._open()
        try:
            return plan.split([self._read(descriptor, request) for request in plan.requests])
        finally:
            os.close(descriptor)

    def read_into(self, ranges: Sequence[ByteRange], views: Sequence[memoryview]) -> None:
        """Read each range into its buffer."""
        descriptor = self._open()
        requests = size = 0
        try:
            buffers: list[Any] = []
            gap, first, last, count = self.gap, -1, -1, 0
            for at in sorted(range(len(ranges)), key=ranges.__getitem__):
                start, stop = ranges[at]
                if buffers and (not 0 <= start - last <= gap or count >= _MAX_BUFFERS):
                    if self._fill(descriptor, first, last, buffers):
                        requests, size = requests + 1, size + last - first
                    buffers, count = [], 0
                if not buffers:
                    first = start
                elif start > last:
                    buffers += (bytearray(start - last),)
                    count += 1
                buffers += (views[at],)
                count += 1
                last = stop
            if buffers and self._fill(descriptor, first, last, buffers):
                requests, size = requests + 1, size + last - first
        finally:
            os.close(descriptor)
            self.counter.add(requests, size)

    def _fill(self, descriptor: int, start: int, stop: int, buffers: list[Any]) -> bool:
        """Read a contiguous range into buffers whose lengths add up to it.

        Return whether one request was enough, which the caller counts.
        """
        try:
            count = os.preadv(descriptor, buffers, start)
        except OSError as error:
            raise read_error(error, self.path, f"{ByteRange(start, stop)}: ") from error
        if count == stop - start:
            return True
        # A short read: at the end of the file, or interrupted by a signal.
        body = memoryview(self._read(descriptor, ByteRange(start, stop)))
        for buffer in buffers:
            buffer[:] = body[: len(buffer)]
            body = body[len(buffer) :]
        return False

    def _pin(self) -> None:
        os.close(self._open())

    def _open(self) -> int:
        """Open and check the file; the caller closes the descriptor."""
        try:
            # Without O_NONBLOCK, opening a named pipe would wait for a writer.
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (OSError, ValueError) as error:
            if self._expected and isinstance(error, FileNotFoundError | NotADirectoryError):
                raise gone_error(self.path) from error
            raise read_error(error, self.path) from error
        try:
            self._check(os.fstat(descriptor))
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _check(self, status: os.stat_result) -> None:
        if stat.S_ISDIR(status.st_mode):
            hint = "open a directory of Parquet files with skipstone.open"
            raise ReadError("path is a directory, not a file", path=self.path, hint=hint)
        if not stat.S_ISREG(status.st_mode):
            raise ReadError("not a regular file", path=self.path)
        identity = identity_of(status)
        if identity == self._identity:
            return
        with self._lock:
            if self._identity is None and self._size in (None, identity[0]):
                self._identity, self._size = identity, identity[0]
        if self._identity != identity:
            if self._expected and self._identity is None and self._size is not None:
                raise stale_error(self.path, self._size, identity[0])
            if self._expected:
                raise stale_error(self.path)
            raise ReadError("file changed while it was being read", path=self.path, hint="open it again")

    def _read(self, descriptor: int, request: ByteRange) -> bytes:
        pieces = []
        position = request.start
        try:
            while position < request.stop:
                piece = os.pread(descriptor, request.stop - position, position)
                if not piece:
                    break
                pieces.append(piece)
                position += len(piece)
        except OSError as error:
            raise read_error(error, self.path, f"{request}: ") from error
        self.counter.add(len(pieces), position - request.start)
        if position < request.stop:
            message = f"{request}: got only {position - request.start} bytes"
            # Beyond the end of the file a retry does not help.
            raise ReadError(message, path=self.path, transient=request.stop <= self.size())
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def identity_of(status: os.stat_result) -> tuple[int, int, int]:
    """Size, modification time and inode: the version of a local file."""
    return (status.st_size, status.st_mtime_ns, status.st_ino)


def is_listed(path: str, entry: ListedFile) -> bool:
    """Whether the file is certainly the listed one."""
    try:
        return identity_of(os.stat(path)) == entry.version  # noqa: PTH116 - a Path costs more than the call
    except OSError:
        return False


def read_error(error: Exception, path: str, prefix: str = "") -> ReadError:
    """Convert a failed system call."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return MissingFileError(f"{prefix}no such file", path=path)
    transient = isinstance(error, ConnectionError | TimeoutError) or (
        isinstance(error, OSError) and error.errno in _TRANSIENT
    )
    return ReadError(prefix + _reason(error), path=path, transient=transient)


# Hiccups of a disk or network file system; EMFILE passes when other readers finish.
_TRANSIENT = frozenset((errno.EIO, errno.EINTR, errno.ESTALE, errno.EAGAIN, errno.EMFILE, errno.ENFILE))


def _reason(error: Exception) -> str:
    if isinstance(error, PermissionError):
        return "permission denied"
    if isinstance(error, OSError) and error.errno == errno.EMFILE:
        return "too many open files"
    return str(error) or type(error).__name__


# -- directories -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LocalStore:
    """A local directory, or with ``only`` a single file in it."""

    uri: str
    only: str | None = None
    # The directory that writes must not leave through a link; None if it is this one.
    root: str | None = field(default=None, compare=False)
    stay_below_root: bool = False
    """Whether reads must not leave it either."""
    local: ClassVar[bool] = True

    def list_prefix(self, prefix: str) -> list[ListedFile]:
        """Files below a subdirectory; empty if it does not exist."""
        if not prefix:
            return self.list() if os.path.lexists(self.uri) else []
        key = prefix.rstrip("/")
        self.path(key)
        directory = None if self.only is not None else _descend(self.uri, key)
        return _walk(directory, self._bound) if directory is not None else []

    def list_directories(self) -> list[str]:
        """Subdirectories of this directory."""
        inner = _scan(_root(self.uri), self._bound).directories if self.only is None else []
        return sorted(directory.key for directory in inner)

    def list_files(self) -> list[ListedFile]:
        """Files directly in the directory."""
        if self.only is not None:
            return self.list()
        return sorted(_scan(_root(self.uri), self._bound).files, key=BY_KEY)

    # Last of the listings: its name hides the builtin type.
    def list(self) -> list[ListedFile]:
        """All files below the directory, sorted by key; links are followed, cycles are not."""
        if self.only is None:
            return _walk(_root(self.uri), self._bound)
        status = _stat(self.path(self.only))
        return [ListedFile(self.only, status.st_size, identity_of(status))]

    def child(self, key: str) -> LocalStore:
        """The store of a subdirectory, which need not exist."""
        return LocalStore(self.path(key), root=self.root or self.uri, stay_below_root=self.stay_below_root)

    def parent(self) -> LocalStore | None:
        """The store of the parent directory; None for a single file or the file system's root."""
        above = os.path.dirname(self.uri)  # noqa: PTH120
        if self.only is not None or above in ("", self.uri):
            return None
        return LocalStore(above, stay_below_root=self.stay_below_root)

    def open(self, key: str, *, version: object | None = None, size: int | None = None) -> LocalSource:
        """Open a file lazily."""
        source = LocalSource(self.path(key), lazy=True)
        source.expect(version, size)
        return source

    def write(self, key: str, parts: Iterable[bytes | memoryview], *, exclusive: bool = False) -> None:
        """Write a file atomically, through a hidden temporary file."""
        path = self._to_change(key)
        hidden = path.with_name(f".{os.urandom(16).hex()}.tmp")
        try:
            make_directories(path.parent)
            try:
                with hidden.open("xb") as file:
                    for part in parts:
                        file.write(part)
                    file.flush()
                    os.fsync(file.fileno())
                if exclusive:
                    _link(hidden, path)
                else:
                    hidden.replace(path)
                sync_directory(path.parent)
            finally:
                hidden.unlink(missing_ok=True)
        except OSError as error:
            raise write_error(error, path) from error

    def delete(self, keys: Iterable[str]) -> None:
        """Delete files, but not the directories that become empty."""
        # All keys are checked before anything is deleted: one bad key means that all can be forged.
        for path in [self._to_change(key) for key in keys]:
            try:
                path.unlink(missing_ok=True)
            except NotADirectoryError:
                continue
            except OSError as error:
                raise write_error(error, path) from error

    def move(self, key: str, to: str) -> None:
        """Rename a file, syncing its data before and the directory after, and set its time to now."""
        path, target = self._to_change(key), self._to_change(to)
        try:
            make_directories(target.parent)
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.utime(descriptor)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            if os.path.lexists(target):
                raise ConflictError("file already exists", path=str(target))
            path.rename(target)
            sync_directory(target.parent)
        except OSError as error:
            raise write_error(error, path) from error

    def clear(self, prefix: str) -> None:
        """Delete a directory tree."""
        path = self._to_change(prefix)
        try:
            # Another process can be deleting it at the same time.
            with suppress(FileNotFoundError, NotADirectoryError):
                shutil.rmtree(path, onerror=_unless_gone)
        except OSError as error:
            raise write_error(error, path) from error

    def path(self, key: str) -> str:
        """Path of a file."""
        # Same as os.path.join, since a checked key is relative.
        path = f"{self.uri.rstrip('/')}/{check_key(key, self.uri)}"
        if self.stay_below_root:
            bound = self.root or self.uri
            if leads_out(path, bound):
                raise _outside_error(path, bound)
        return path

    @property
    def _bound(self) -> str | None:
        """The directory that reads must stay below, if any."""
        return (self.root or self.uri) if self.stay_below_root else None

    def _to_change(self, key: str) -> Path:
        """Check and return the path of a file to write, move or delete; if it is a link, the link itself."""
        path = Path(self.uri, check_key(key, self.uri, WriteError))
        check_change(path, self.root or self.uri)
        return path


def check_change(path: Path, root: str) -> None:
    """Refuse to write, move or delete a file outside the root, behind a link."""
    if leads_out(str(path.parent), root):
        hint = "replace the link with a directory; Skipstone changes only files below the root"
        raise WriteError(f"a link leads out of {root}", path=str(path), hint=hint)


def leads_out(path: str, root: str) -> bool:
    """Whether the real path is neither the root nor below it."""
    if "\0" in path:
        # No file has such a path, and the system's calls refuse it.
        return True
    real = _real_directories.get()
    if real is None:
        path, root = os.path.realpath(path), os.path.realpath(root)
    else:
        path, root = _real_path(path, real), _real_path(f"{root}/.", real)
    return not f"{path}/".startswith(f"{root.rstrip('/')}/")


_real_directories: ContextVar[dict[str, str] | None] = ContextVar("_real_directories", default=None)


@contextmanager
def resolve_directories_once() -> Iterator[None]:
    """Resolve the links of each directory once for all files that are checked, not for each file."""
    token = _real_directories.set({})
    try:
        yield
    finally:
        _real_directories.reset(token)


def _real_path(path: str, real: dict[str, str]) -> str:
    folder, _, name = path.rpartition("/")
    if name in ("", "..") or os.path.islink(path):  # noqa: PTH114  (runs for every file)
        return os.path.realpath(path)
    if folder not in real:
        real[folder] = os.path.realpath(folder or "/")
    return real[folder] if name == "." else f"{real[folder].rstrip('/')}/{name}"


def _outside_error(path: str, root: str) -> ReadError:
    hint = "remove stay_below_root if you trust the author of the lake"
    return ReadError(f"a link leads out of {root}", path=path, hint=hint)


def open_directory(name: str, *, stay_below_root: bool = False) -> tuple[LocalStore, str]:
    """The store and pattern of a local directory, file or glob; a name that exists is not a glob."""
    # Absolute, since work can run in a process with another current directory.
    path = os.path.abspath(name)  # noqa: PTH100
    directory, glob = split_glob(path + "/" if name.endswith("/") else path)
    try:
        status = _stat(path)
    except ReadError:
        if not glob:
            raise
        if not stat.S_ISDIR(_stat(directory or "/").st_mode):
            raise missing_error(directory) from None
        return LocalStore(directory or "/", stay_below_root=stay_below_root), glob
    if stat.S_ISDIR(status.st_mode):
        return LocalStore(path, stay_below_root=stay_below_root), ""
    if name.endswith("/"):
        raise missing_error(name)
    parent, key = os.path.split(path)
    return LocalStore(parent, key, stay_below_root=stay_below_root), key


def path_hint(name: str) -> str | None:
    """The next step for a local path that doesn't exist; None if there is nothing to suggest."""
    if "://" in name:
        return None
    if name.startswith("~"):
        return "write the home directory in full, or use os.path.expanduser"
    if re.search(r"\s(?:[<>=!]+|in|is|like|between)\s", name, re.IGNORECASE):
        return "pass the path of the lake before the condition"
    above, last = os.path.split(name.rstrip("/"))
    while above and not os.path.isdir(above):  # noqa: PTH112
        above, last = os.path.split(above)
    try:
        with os.scandir(above or ".") as entries:
            names = [entry.name for entry in islice(entries, _MAX_NAMES)]
    except OSError:
        return None
    near = [os.path.join(above, found) for found in similar(last, names)]  # noqa: PTH118
    return suggestion(near) if near else None


def _stat(path: str) -> os.stat_result:
    try:
        return os.stat(path)  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        raise missing_error(path) from None
    except (OSError, ValueError) as error:
        raise read_error(error, path) from error


def _link(hidden: Path, path: Path) -> None:
    """Name a file unless the name is taken; only a hard link does both in one step."""
    try:
        path.hardlink_to(hidden)
    except FileExistsError:
        raise ConflictError("file already exists", path=str(path)) from None
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP):
            raise
        message = "file system does not support hard links, which exclusive writes need"
        raise WriteError(message, path=str(path), hint="write to another file system") from error


def _unless_gone(_call: Any, _path: str, raised: Any) -> None:
    if not isinstance(raised[1], FileNotFoundError):
        raise raised[1]


def write_error(error: OSError, path: Path) -> WriteError:
    """Convert a failed system call."""
    message = error.strerror or str(error)
    return WriteError(message[:1].lower() + message[1:], path=str(path), hint=_HINTS.get(error.errno or 0))


_HINTS = {
    errno.EACCES: "check the permissions, or write to another directory",
    errno.EPERM: "check the permissions, or write to another directory",
    errno.EROFS: "write to another file system",
    errno.ENOSPC: "free some space, or write to another file system",
    errno.EXDEV: "put the lake and its hidden directory on one file system",
    errno.EDQUOT: "free some space, or write to another file system",
}


class _Directory(NamedTuple):
    """A directory, its key ("" for the root), and the nodes of it and its ancestors, against link cycles."""

    path: str
    key: str
    ancestors: frozenset[tuple[int, int]]


class _DirectoryListing(NamedTuple):
    files: list[ListedFile]
    directories: list[_Directory]


def _root(path: str) -> _Directory:
    return _Directory(path, "", frozenset((_node(_stat(path)),)))


def _descend(root: str, key: str) -> _Directory | None:
    """The directory of a key; None if it does not exist or is a link to an ancestor."""
    path, ancestors = root, frozenset[tuple[int, int]]()
    try:
        for name in ("", *key.split("/")):
            path = os.path.join(path, name)  # noqa: PTH118
            status = os.stat(path)  # noqa: PTH116
            if not stat.S_ISDIR(status.st_mode) or _node(status) in ancestors:
                return None
            ancestors |= {_node(status)}
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise read_error(error, path) from error
    return _Directory(path, key, ancestors)


def _walk(start: _Directory, bound: str | None) -> list[ListedFile]:
    files: list[ListedFile] = []
    waiting = [start]
    while waiting:
        listing = _scan(waiting.pop(), bound)
        files += listing.files
        waiting += listing.directories
    files.sort(key=BY_KEY)
    return files


# The file type bits of a mode.
_KIND = 0o170000


def _scan(directory: _Directory, bound: str | None) -> _DirectoryListing:
    listing = _DirectoryListing([], [])
    files = listing.files
    prefix = f"{directory.key}/" if directory.key else ""
    for entry in _entries(directory):
        key = prefix + entry.name
        if bound is not None and entry.is_symlink() and leads_out(entry.path, bound):
            raise _outside_error(entry.path, bound)
        try:
            status = entry.stat()
        except OSError:
            # A broken link is listed, so that only reading it fails.
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise read_error(error, entry.path) from error
        if status.st_mode & _KIND != stat.S_IFDIR:
            files.append(ListedFile(key, status.st_size, (status.st_size, status.st_mtime_ns, status.st_ino)))
        elif (node := _node(status)) not in directory.ancestors:
            listing.directories.append(_Directory(entry.path, key, directory.ancestors | {node}))
    return listing


def _entries(directory: _Directory) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory.path) as entries:
            return list(entries)
    except FileNotFoundError as error:
        if directory.key:
            # Deleted since its parent was listed.
            return []
        raise missing_error(directory.path) from error
    except OSError as error:
        if directory.key.startswith(("_", ".")) and "=" not in directory.key:
            # A lake can be read without its hidden files.
            return []
        raise read_error(error, directory.path) from error


def _node(status: os.stat_result) -> tuple[int, int]:
    return (status.st_dev, status.st_ino)


# -- durable directories -----------------------------------------------------------------------

# Some file systems can't sync directories, and a writable directory need not be readable.
_UNSUPPORTED = frozenset((errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES, errno.EPERM))


def make_directories(directory: Path) -> None:
    """Create a directory and its missing parents, and sync the parent of each new one."""
    created = []
    above = directory
    while not above.exists():
        created.append(above)
        above = above.parent
    directory.mkdir(parents=True, exist_ok=True)
    for new in reversed(created):
        sync_directory(new.parent)


def sync_file(path: Path) -> None:
    """Wait until a file and its name are on disk."""
    _sync(path)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Wait until the names in a directory are on disk; a renamed file can be lost until then."""
    try:
        _sync(directory)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
