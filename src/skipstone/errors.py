"""Every error Skipstone raises, in one tree.

    SkipstoneError
    ├── UsageError                arguments that make no sense
    ├── PredicateError            the question itself is wrong
    │   ├── ParseError            SQL text that can't be parsed
    │   ├── UnknownColumnError    a name the schema doesn't have (near misses named)
    │   ├── TypeMismatchError     a literal or operation the column's type can't take
    │   └── NotExpressibleError   a predicate another form (SQL, Arrow, Iceberg, ...) can't hold
    ├── FileError                 a file that can't be used
    │   ├── NotParquetError       wrong magic, empty or far too short
    │   ├── CorruptFileError      metadata that contradicts itself or the file's size
    │   ├── EncryptedFileError    encrypted footer or columns
    │   ├── ReadError             bytes that could not be read, or came back short
    │   │   └── MissingFileError  a file that doesn't exist, or no longer as it was listed
    │   ├── WriteError            a file that could not be written or deleted
    │   ├── ConflictError         a file that somebody else wrote first
    │   └── SchemaError           columns or partitions that don't fit the rest of the lake
    ├── JobError                  work that failed on an engine, with the end of its traceback
    └── RowSetError               row sets of different files, rows outside the file

Each error carries ``path``, ``unit`` and ``column`` where it has them, and ``hint``: the next step.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import ClassVar

__all__ = [
    "ConflictError",
    "CorruptFileError",
    "EncryptedFileError",
    "FileError",
    "JobError",
    "MissingFileError",
    "NotExpressibleError",
    "NotParquetError",
    "ParseError",
    "PredicateError",
    "ReadError",
    "RowSetError",
    "SchemaError",
    "SkipstoneError",
    "TypeMismatchError",
    "UnknownColumnError",
    "UsageError",
    "WriteError",
]


_LONGEST = 2_000
"""Characters of one part of a message; a predicate, a schema or a traceback can be megabytes."""

_PRIVATE_NAMES = (
    r"(?:[\w.-]{0,40}(?:secret|password|passwd|private[_-]?key|account[_-]?key|shared[_-]?key|api[_-]?key"
    r"|signature|sas[_-]?token|sas[_-]?key|(?:session|security|access|oauth2?|bearer|auth)[_.-]?token"
    r"|oauth2\.token|access[_-]key[_-]?id|awsaccesskeyid|credential)[\w.-]{0,40}|pwd|sig|sas)"
)
_SECRETS: tuple[tuple[re.Pattern[str], str], ...] = (
    # scheme://user:password@host
    (re.compile(r"(://[^\s/:@'\"]*:)[^\s/@'\"]+@"), r"\1***@"),
    # A signed URL's parameters, a connection string's parts, and options as text.
    (re.compile(rf"(?i)((?:\b|(?<=_)){_PRIVATE_NAMES}=)[^&;\s'\",)}}<]+"), r"\1***"),
    # Options as a dict, JSON, headers or settings with spaces.
    (
        re.compile(rf"(?i)((?:['\"]?\b{_PRIVATE_NAMES}|['\"]token)['\"]?\s*[:=]\s*['\"])[^'\"]+"),
        r"\1***",
    ),
    (re.compile(r"(?i)(\bauthorization['\"]?\s*[:=]\s*['\"]?(?:\w+\s+)?)[^\s'\",]+"), r"\1***"),
    (re.compile(r"(?i)(\bbearer\s+)[\w.~+/=-]{8,}"), r"\1***"),
    # What S3 answers to a wrong signature.
    (
        re.compile(r"<((?:AWSAccessKeyId|SignatureProvided|StringToSign|CanonicalRequest)\w*)>[^<]*"),
        r"<\1>***",
    ),
    (re.compile(r"\b(A(?:KI|SI)A)[A-Z0-9]{12,}"), r"\1***"),
    (re.compile(r"(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(?:-----END|\Z)", re.DOTALL), r"\1***"),
)


def redact(text: str) -> str:
    """``text`` without passwords, keys, tokens and signatures, as far as they can be told by their names.

    >>> redact("postgresql://me:secret@host/db?sig=abc&x=1")
    'postgresql://me:***@host/db?sig=***&x=1'
    """
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return text


def scrub(error: BaseException, secrets: Iterable[str] = ()) -> str:
    """What another library's error says, in one line, with secrets taken out of it and of what it came from.

    ``secrets`` have no names that tell them. The error itself is changed: it is shown in tracebacks.
    """
    below: BaseException | None = error
    while below is not None:
        below.args = tuple(_scrubbed(part, secrets) if isinstance(part, str) else part for part in below.args)
        below = below.__cause__ or below.__context__
    return (_scrubbed(str(error), secrets) or type(error).__name__).splitlines()[0]


def _scrubbed(text: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, "***")
    return redact(text)


def shorten(text: str, longest: int = _LONGEST) -> str:
    """``text``, or its beginning and its end if it is longer than a reader wants."""
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]} … {len(text) - 2 * half:,} characters … {text[-half:]}"


def _presentable(text: str) -> str:
    # Cut before, so that a megabyte takes no time, and far enough that no half of a secret is kept after.
    return shorten(redact(shorten(text, 20 * _LONGEST)))


class SkipstoneError(Exception):
    """Root of every error Skipstone raises on purpose.

    Secrets are taken out of its texts, and what is long is shortened, here: whatever is embedded in them.
    """

    _carried: ClassVar[tuple[str, ...]] = ("path", "unit", "column", "hint")

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        unit: str | None = None,
        column: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.message = _presentable(message)
        super().__init__(self.message)
        self.path = None if path is None else redact(path)
        self.unit = None if unit is None else shorten(unit)
        self.column = None if column is None else shorten(column)
        self.hint = None if hint is None else _presentable(hint)

    @property
    def place(self) -> str:
        """Where it happened: file, unit and column, as far as they are known."""
        column = f"column {self.column}" if self.column else None
        return ", ".join(shorten(part) for part in (self.path, self.unit, column) if part)

    def __str__(self) -> str:
        text = f"{self.place}: {self.message}" if self.place else self.message
        return f"{text} ({self.hint})" if self.hint else text

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions pickle by positional args only; errors cross process borders with their place.
        state = {name: getattr(self, name) for name in self._carried}
        return (type(self), (self.message,), state)


class UsageError(SkipstoneError):
    """The call is wrong: an argument of the wrong kind, an option that doesn't exist."""


class PredicateError(SkipstoneError):
    """The predicate is wrong, whatever the data."""


class ParseError(PredicateError):
    """SQL text that can't be parsed as one condition."""


class UnknownColumnError(PredicateError):
    """A column the schema doesn't have."""


class TypeMismatchError(PredicateError):
    """A literal or an operation that the column's type can't take."""


class NotExpressibleError(PredicateError):
    """The target form has no way to say this predicate."""


class FileError(SkipstoneError):
    """A file that can't be used."""


class NotParquetError(FileError):
    """The bytes are not a Parquet file."""


class CorruptFileError(FileError):
    """A Parquet file whose metadata can't be true."""


class EncryptedFileError(FileError):
    """A Parquet file that needs keys to be read."""


class ReadError(FileError):
    """Bytes that could not be read; ``transient`` if the same read may well succeed later."""

    _carried: ClassVar[tuple[str, ...]] = (*SkipstoneError._carried, "transient")

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        unit: str | None = None,
        column: str | None = None,
        hint: str | None = None,
        transient: bool = False,
    ) -> None:
        super().__init__(message, path=path, unit=unit, column=column, hint=hint)
        self.transient = transient


class MissingFileError(ReadError):
    """A file that doesn't exist, or no longer as it was when its metadata was read or when it was listed."""


class WriteError(FileError):
    """A file that could not be written or deleted; nothing of it is left behind."""


class ConflictError(FileError):
    """A file that was to be written by one writer only, and another one was first."""


class SchemaError(FileError):
    """A file whose columns or partitions don't fit those of the rest of the lake."""


class JobError(SkipstoneError):
    """Work that failed on an engine for another reason than those of this tree."""


class RowSetError(SkipstoneError):
    """Row sets that don't fit each other or the file."""
