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


class SkipstoneError(Exception):
    """Root of every error Skipstone raises on purpose."""

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
        super().__init__(message)
        self.message = message
        self.path = path
        self.unit = unit
        self.column = column
        self.hint = hint

    def __str__(self) -> str:
        place = ", ".join(
            part for part in (self.path, self.unit, f"column {self.column}" if self.column else None) if part
        )
        text = f"{place}: {self.message}" if place else self.message
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
