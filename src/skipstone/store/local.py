"""Directories and files of the local file system; what is written there outlives a power cut."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from skipstone.errors import ConflictError, MissingFileError, ReadError, WriteError
from skipstone.store.source import ByteRange, IoCounter, check_size, coalesce, gone, stale
from skipstone.store.store import BY_KEY, ListedFile, check_key, missing, split_glob

# A seek costs less than this many bytes from the page cache.
GAP = 64 * 1024
# The system takes 1,024 at once.
_MOST_BUFFERS = 1_000


class LocalSource:
    """A local file, pinned by size, modification time and inode when the source is made.

    The file is opened again for each read: a plan may hold more sources than a process may hold
    descriptors, and a file replaced in between is noticed. A ``lazy`` source touches nothing before its
    first read, which pins the file or checks it against what was expected by then.
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
        """The file's size in bytes."""
        if self._size is None:
            self._pin()
        assert self._size is not None
        return self._size

    def version(self) -> object | None:
        """Size, modification time and inode, once they are known."""
        return self._identity

    def expect(self, version: object | None, size: int | None) -> None:
        """Refuse, at the next read if nothing is known yet, to be another file than this."""
        known = version if isinstance(version, tuple) else None
        if known is not None and self._identity is None:
            self._identity, size = known, known[0]
        elif known is not None and known != self._identity:
            raise stale(self.path)
        if self._size is None:
            self._size = size
            self._expected = size is not None
        else:
            check_size(self, size)

    def tail(self, length: int) -> tuple[bytes, int]:
        """The last ``length`` bytes and the file's size."""
        size = self.size()
        descriptor = self._open()
        try:
            return self._read(descriptor, ByteRange(max(size - length, 0), size)), size
        finally:
            os.close(descriptor)

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """The bytes of each range."""
        plan = coalesce(ranges, self.gap)
        descriptor = self._open()
        try:
            return plan.split([self._read(descriptor, request) for request in plan.requests])
        finally:
            os.close(descriptor)

    def read_into(self, ranges: Sequence[ByteRange], views: Sequence[memoryview]) -> None:
        """The bytes of each range, to a place in memory."""
        descriptor = self._open()
        try:
            buffers: list[Any] = []
            gap, first, last, count = self.gap, -1, -1, 0
            for at in sorted(range(len(ranges)), key=ranges.__getitem__):
                start, stop = ranges[at]
                if buffers and (not 0 <= start - last <= gap or count >= _MOST_BUFFERS):
                    self._fill(descriptor, first, last, buffers)
                    buffers, count = [], 0
                if not buffers:
                    first = start
                elif start > last:
                    buffers += (bytearray(start - last),)
                    count += 1
                buffers += (views[at],)
                count += 1
                last = stop
            if buffers:
                self._fill(descriptor, first, last, buffers)
        finally:
            os.close(descriptor)

    def _fill(self, descriptor: int, start: int, stop: int, buffers: list[Any]) -> None:
        """Read a stretch of the file into buffers that hold just that many bytes."""
        try:
            count = os.preadv(descriptor, buffers, start)
        except OSError as error:
            raise refusal(error, self.path, f"{ByteRange(start, stop)}: ") from error
        if count == stop - start:
            self.counter.add(1, count)
            return
        # Cut short, which happens at the file's end, or in a signal.
        body = memoryview(self._read(descriptor, ByteRange(start, stop)))
        for buffer in buffers:
            buffer[:] = body[: len(buffer)]
            body = body[len(buffer) :]

    def _pin(self) -> None:
        os.close(self._open())

    def _open(self) -> int:
        """A descriptor of the file, which is the one that is expected; the caller closes it."""
        try:
            # Without O_NONBLOCK opening a named pipe would wait for its writer.
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (OSError, ValueError) as error:
            if self._expected and isinstance(error, FileNotFoundError | NotADirectoryError):
                raise gone(self.path) from error
            raise refusal(error, self.path) from error
        try:
            self._check(os.fstat(descriptor))
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _check(self, found: os.stat_result) -> None:
        if stat.S_ISDIR(found.st_mode):
            hint = "open a directory of Parquet files with skipstone.open"
            raise ReadError("it is a directory", path=self.path, hint=hint)
        if not stat.S_ISREG(found.st_mode):
            raise ReadError("not a regular file", path=self.path)
        identity = identity_of(found)
        if identity == self._identity:
            return
        with self._lock:
            if self._identity is None and self._size in (None, identity[0]):
                self._identity, self._size = identity, identity[0]
        if self._identity != identity:
            if self._expected and self._identity is None and self._size is not None:
                raise stale(self.path, self._size, identity[0])
            if self._expected:
                raise stale(self.path)
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
            raise refusal(error, self.path, f"{request}: ") from error
        self.counter.add(len(pieces), position - request.start)
        if position < request.stop:
            message = f"{request}: only {position - request.start} bytes came back"
            # Behind the known end there will never be more.
            raise ReadError(message, path=self.path, transient=request.stop <= self.size())
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def identity_of(found: os.stat_result) -> tuple[int, int, int]:
    """What tells a file from another and from its other versions: size, modification time, inode."""
    return (found.st_size, found.st_mtime_ns, found.st_ino)


def refusal(error: Exception, path: str, what: str = "") -> ReadError:
    """A failed system call as an error that names the file."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return MissingFileError(f"{what}no such file", path=path)
    transient = isinstance(error, ConnectionError | TimeoutError) or (
        isinstance(error, OSError) and error.errno in _TRANSIENT
    )
    return ReadError(what + _reason(error), path=path, transient=transient)


# A disk or network file system that hiccups; EMFILE passes when other readers finish.
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
    """A local directory; with ``only`` one file of it is listed."""

    uri: str
    only: str | None = None
    # The directory that changes must not leave through a link; None if it is this one.
    root: str | None = field(default=None, compare=False)
    stay_below_root: bool = False
    """Whether reads must not leave it either."""
    local: ClassVar[bool] = True

    def list_prefix(self, prefix: str) -> list[ListedFile]:
        """The files below a directory of this one; none if there is no such directory."""
        if not prefix:
            return self.list() if os.path.lexists(self.uri) else []
        key = prefix.rstrip("/")
        self.path(key)
        folder = None if self.only is not None else _descend(self.uri, key)
        return _walk(folder, self._bound) if folder is not None else []

    def list_directories(self) -> list[str]:
        """The directories in this one."""
        found = _scan(_root(self.uri), self._bound).folders if self.only is None else []
        return sorted(folder.key for folder in found)

    def list_files(self) -> list[ListedFile]:
        """The files in the directory itself."""
        if self.only is not None:
            return self.list()
        return sorted(_scan(_root(self.uri), self._bound).files, key=BY_KEY)

    # The last that names the type, which this name hides.
    def list(self) -> list[ListedFile]:
        """Every file below the directory, by key; links are followed, though never in a circle."""
        if self.only is None:
            return _walk(_root(self.uri), self._bound)
        path = self.path(self.only)
        found = _stat(path)
        return [ListedFile(self.only, found.st_size, identity_of(found))]

    def child(self, key: str) -> LocalStore:
        """The directory below this one, which need not exist yet."""
        return LocalStore(self.path(key), root=self.root or self.uri, stay_below_root=self.stay_below_root)

    def parent(self) -> LocalStore | None:
        """The directory above this one; none above one file, or the root of the file system."""
        above = os.path.dirname(self.uri)  # noqa: PTH120
        if self.only is not None or above in ("", self.uri):
            return None
        return LocalStore(above, stay_below_root=self.stay_below_root)

    def open(self, key: str, *, version: object | None = None, size: int | None = None) -> LocalSource:
        """A file, untouched before its first read."""
        source = LocalSource(self.path(key), lazy=True)
        source.expect(version, size)
        return source

    def write(self, key: str, parts: Iterable[bytes | memoryview], *, exclusive: bool = False) -> None:
        """Write a file whole or not at all: under a hidden name first, which only a kill leaves behind."""
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
            raise _failure(error, path) from error

    def delete(self, keys: Iterable[str]) -> None:
        """Delete files, though not the directories that they leave empty."""
        # All or none of them: what is forged is known by its first name that is wrong.
        for path in [self._to_change(key) for key in keys]:
            try:
                path.unlink(missing_ok=True)
            except NotADirectoryError:
                continue
            except OSError as error:
                raise _failure(error, path) from error

    def move(self, key: str, to: str) -> None:
        """Rename a file, its bytes on disk before it is seen, its name after, and its time that of now."""
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
                raise ConflictError("the file exists already", path=str(target))
            path.rename(target)
            sync_directory(target.parent)
        except OSError as error:
            raise _failure(error, path) from error

    def clear(self, prefix: str) -> None:
        """Delete a directory with all that is in it."""
        path = self._to_change(prefix)
        try:
            # Others may be deleting it at the same time.
            with suppress(FileNotFoundError, NotADirectoryError):
                shutil.rmtree(path, onerror=_unless_gone)
        except OSError as error:
            raise _failure(error, path) from error

    def path(self, key: str) -> str:
        """The file's path."""
        # A key that passes the check is relative, so this is what os.path.join does.
        path = f"{self.uri.rstrip('/')}/{check_key(key, self.uri)}"
        if self.stay_below_root:
            bound = self.root or self.uri
            if leads_out(path, bound):
                raise _outside(path, bound)
        return path

    @property
    def _bound(self) -> str | None:
        """What reads must stay below."""
        return (self.root or self.uri) if self.stay_below_root else None

    def _to_change(self, key: str) -> Path:
        """The path of a file that may be written, moved or deleted; a link in its place is not followed."""
        path = Path(self.uri, check_key(key, self.uri, WriteError))
        check_change(path, self.root or self.uri)
        return path


def check_change(path: Path, root: str) -> None:
    """Refuse to write, move or delete a file that a link puts outside the root."""
    if leads_out(str(path.parent), root):
        hint = "Skipstone changes files below the root only: replace the link by a directory"
        raise WriteError(f"a link leads out of {root}", path=str(path), hint=hint)


def leads_out(path: str, root: str) -> bool:
    """Whether a path, once all links are followed, is neither the root nor below it."""
    path, root = os.path.realpath(path), os.path.realpath(root)
    return not f"{path}/".startswith(f"{root.rstrip('/')}/")


def _outside(path: str, root: str) -> ReadError:
    hint = "leave out stay_below_root if you trust who made the lake"
    return ReadError(f"a link leads out of {root}", path=path, hint=hint)


def open_directory(name: str, *, stay_below_root: bool = False) -> tuple[LocalStore, str]:
    """The place for a local directory, file or glob; a name that exists as it stands isn't a glob."""
    # Work may run in a process with another current directory.
    path = os.path.abspath(name)  # noqa: PTH100
    directory, glob = split_glob(path + "/" if name.endswith("/") else path)
    try:
        found = _stat(path)
    except ReadError:
        if not glob:
            raise
        if not stat.S_ISDIR(_stat(directory or "/").st_mode):
            raise missing(directory) from None
        return LocalStore(directory or "/", stay_below_root=stay_below_root), glob
    if stat.S_ISDIR(found.st_mode):
        return LocalStore(path, stay_below_root=stay_below_root), ""
    if name.endswith("/"):
        raise missing(name)
    parent, key = os.path.split(path)
    return LocalStore(parent, key, stay_below_root=stay_below_root), key


def _stat(path: str) -> os.stat_result:
    try:
        return os.stat(path)  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        raise missing(path) from None
    except (OSError, ValueError) as error:
        raise refusal(error, path) from error


def _link(hidden: Path, path: Path) -> None:
    """Give a file its name, unless there is one of that name; only a link is that in one step."""
    try:
        path.hardlink_to(hidden)
    except FileExistsError:
        raise ConflictError("the file exists already", path=str(path)) from None
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP):
            raise
        message = "the file system has no hard links, which tell who of several writers was first"
        raise WriteError(message, path=str(path), hint="write to another file system") from error


def _unless_gone(_call: Any, _path: str, raised: Any) -> None:
    if not isinstance(raised[1], FileNotFoundError):
        raise raised[1]


def _failure(error: OSError, path: Path) -> WriteError:
    message = error.strerror or str(error)
    return WriteError(message[:1].lower() + message[1:], path=str(path), hint=_HINTS.get(error.errno or 0))


_HINTS = {
    errno.EACCES: "write to a directory that you may write to",
    errno.EPERM: "write to a directory that you may write to",
    errno.EROFS: "write to another file system",
    errno.ENOSPC: "free some space, or write to another file system",
    errno.EXDEV: "keep a lake and its hidden directory on one file system",
    errno.EDQUOT: "free some space, or write to another file system",
}


class _Folder(NamedTuple):
    """A directory, its key ("" for the root) and, against circles of links, it and all that are above it."""

    path: str
    key: str
    line: frozenset[tuple[int, int]]


class _DirectoryListing(NamedTuple):
    """What is in a directory."""

    files: list[ListedFile]
    folders: list[_Folder]


def _root(path: str) -> _Folder:
    return _Folder(path, "", frozenset((_node(_stat(path)),)))


def _descend(root: str, key: str) -> _Folder | None:
    """The directory of a key; None if there is none, or only a link to one above."""
    path, line = root, frozenset[tuple[int, int]]()
    try:
        for name in ("", *key.split("/")):
            path = os.path.join(path, name)  # noqa: PTH118
            found = os.stat(path)  # noqa: PTH116
            if not stat.S_ISDIR(found.st_mode) or _node(found) in line:
                return None
            line |= {_node(found)}
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise refusal(error, path) from error
    return _Folder(path, key, line)


def _walk(start: _Folder, bound: str | None) -> list[ListedFile]:
    files: list[ListedFile] = []
    waiting = [start]
    while waiting:
        found = _scan(waiting.pop(), bound)
        files += found.files
        waiting += found.folders
    files.sort(key=BY_KEY)
    return files


# The bits of a mode that tell files from directories.
_KIND = 0o170000


def _scan(folder: _Folder, bound: str | None) -> _DirectoryListing:
    here = _DirectoryListing([], [])
    files = here.files
    prefix = f"{folder.key}/" if folder.key else ""
    for entry in _entries(folder):
        key = prefix + entry.name
        if bound is not None and entry.is_symlink() and leads_out(entry.path, bound):
            raise _outside(entry.path, bound)
        try:
            found = entry.stat()
        except OSError:
            # A link to nothing, or to itself, is listed, so that only who reads it fails.
            try:
                found = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise refusal(error, entry.path) from error
        if found.st_mode & _KIND != stat.S_IFDIR:
            files.append(ListedFile(key, found.st_size, (found.st_size, found.st_mtime_ns, found.st_ino)))
        elif (node := _node(found)) not in folder.line:
            here.folders.append(_Folder(entry.path, key, folder.line | {node}))
    return here


def _entries(folder: _Folder) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder.path) as entries:
            return list(entries)
    except FileNotFoundError as error:
        if folder.key:
            # It was deleted meanwhile, with all that it held.
            return []
        raise missing(folder.path) from error
    except OSError as error:
        if folder.key.startswith(("_", ".")) and "=" not in folder.key:
            # Hidden files are no part of a lake: it can be read without them.
            return []
        raise refusal(error, folder.path) from error


def _node(found: os.stat_result) -> tuple[int, int]:
    return (found.st_dev, found.st_ino)


# -- what outlives a power cut -----------------------------------------------------------------

# Some file systems can't do this to directories, and one that may be written to need not be readable.
_UNSUPPORTED = frozenset((errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES, errno.EPERM))


def make_directories(folder: Path) -> None:
    """Make a directory and those above it that are missing, each kept by the one above."""
    missing = []
    above = folder
    while not above.exists():
        missing.append(above)
        above = above.parent
    folder.mkdir(parents=True, exist_ok=True)
    for made in reversed(missing):
        sync_directory(made.parent)


def sync_file(path: Path) -> None:
    """Wait until a file is on disk under its name."""
    _sync(path)
    sync_directory(path.parent)


def sync_directory(folder: Path) -> None:
    """Wait until the names in a directory are on disk: a file that was renamed may be lost until then."""
    try:
        _sync(folder)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
