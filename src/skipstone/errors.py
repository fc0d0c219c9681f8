"""Every error Skipstone raises, in one tree. All of them are exported: ``sk.SchemaError``.

    SkipstoneError
    ├── UsageError                invalid arguments
    ├── PredicateError            invalid predicate
    │   ├── ParseError            SQL text that can't be parsed
    │   ├── UnknownColumnError    column that is not in the schema; the hint lists similar names
    │   ├── TypeMismatchError     literal or operation that the column's type doesn't support
    │   └── NotExpressibleError   predicate that SQL, Arrow, Iceberg, ... can't express
    ├── FileError                 file that can't be used
    │   ├── NotParquetError       wrong magic bytes, empty or too short
    │   ├── CorruptFileError      metadata that contradicts itself or the file's size
    │   ├── EncryptedFileError    encrypted footer or columns
    │   ├── ReadError             failed or short read
    │   │   ├── ChangedFileError  file that has changed since it was listed
    │   │   └── MissingFileError  file that doesn't exist
    │   ├── WriteError            file that could not be written or deleted
    │   ├── ConflictError         file that another writer wrote first
    │   └── SchemaError           columns or partitions that don't fit the rest of the lake
    ├── DuplicateKeyError         key that is already in the table or twice in the data
    ├── JobError                  task that failed on an engine, with the end of its traceback
    └── RowSetError               row sets of different files, or rows outside the file

Each error has ``path``, ``unit``, ``column`` and ``hint`` (the next step), or None for each of them.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Sequence
from typing import ClassVar, Final

__all__ = [
    "ChangedFileError",
    "ConflictError",
    "CorruptFileError",
    "DuplicateKeyError",
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
"""Maximum characters of each part of a message; a predicate or a traceback can be megabytes."""

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
    # The response of S3 to a wrong signature.
    (
        re.compile(r"<((?:AWSAccessKeyId|SignatureProvided|StringToSign|CanonicalRequest)\w*)>[^<]*"),
        r"<\1>***",
    ),
    (re.compile(r"\b(A(?:KI|SI)A)[A-Z0-9]{12,}"), r"\1***"),
    (re.compile(r"(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(?:-----END|\Z)", re.DOTALL), r"\1***"),
)


def redact(text: str) -> str:
    """Replace passwords, keys, tokens and signatures that are recognizable by their names.

    >>> redact("postgresql://me:secret@host/db?sig=abc&x=1")
    'postgresql://me:***@host/db?sig=***&x=1'
    """
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return text


def scrub(error: BaseException, secrets: Iterable[str] = ()) -> str:
    """Return the first line of another library's error, and remove secrets from it and from its causes.

    ``secrets`` are values without a recognizable name. The error itself is changed: tracebacks show it.
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
    """Return ``text``, or its beginning and its end if it is longer than ``longest``."""
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]} … {len(text) - 2 * half:,} characters … {text[-half:]}"


def similar(name: str, names: Iterable[str], count: int = 3) -> list[str]:
    """Return the names that ``name`` may stand for, most similar first.

    >>> similar("AMONT", ["id", "amount"])
    ['amount']
    >>> similar("ship", ["shipped_at", "amount"])
    ['shipped_at']
    """
    import difflib

    folded: dict[str, list[str]] = {}
    for known in names:
        folded.setdefault(known.lower(), []).append(known)
    wanted = name.lower()
    near = [wanted] if wanted in folded else difflib.get_close_matches(wanted, folded, n=count, cutoff=0.7)
    if not near and len(wanted) > 2:
        begun = [known for fold, names in folded.items() if fold.startswith(wanted) for known in names]
        return begun if len(begun) <= count else []
    likeness = [difflib.SequenceMatcher(a=wanted, b=fold).ratio() for fold in near]
    best = [fold for fold, ratio in zip(near, likeness, strict=True) if ratio > likeness[0] - 0.1]
    return [known for fold in best for known in folded[fold]][:count]


def did_you_mean(name: str, names: Iterable[str], otherwise: str) -> str:
    """Return the hint for an unknown name: the similar ones, or ``otherwise``.

    >>> did_you_mean("amont", ["id", "amount"], "use a column of the schema")
    'did you mean amount?'
    """
    near = similar(name, names)
    return suggestion(near) if near else otherwise


def suggestion(names: Sequence[str]) -> str:
    """Return the question whether one of these names is meant.

    >>> suggestion(["a", "b", "c"])
    'did you mean a, b or c?'
    """
    return f"did you mean {' or '.join(filter(None, (', '.join(names[:-1]), names[-1])))}?"


def _presentable(text: str) -> str:
    # Shortened first, so that a megabyte takes no time, and far enough that no part of a secret remains.
    return shorten(redact(shorten(text, 20 * _LONGEST)))


class SkipstoneError(Exception):
    """Base class of all errors that Skipstone raises.

    Secrets are removed from the message, the path and the hint, and long strings are shortened.

    Attributes:
        message: What is wrong, without the location.
        path: The file, table or lake.
        unit: The row group, page or other part of the file.
        column: The column.
        hint: The next step.

    Examples:
        >>> import skipstone as sk
        >>> try:
        ...     sk.open("events").scan("event = 1").to_arrow()
        ... except sk.SkipstoneError as error:
        ...     type(error).__name__, error.column
        ('UnknownColumnError', 'event')
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
        """File, unit and column, as the message shows them."""
        column = f"column {self.column}" if self.column else None
        return ", ".join(shorten(part) for part in (self.path, self.unit, column) if part)

    def __str__(self) -> str:
        text = f"{self.place}: {self.message}" if self.place else self.message
        return f"{text} ({self.hint})" if self.hint else text

    def __repr__(self) -> str:
        parts = {"path": self.path, "unit": self.unit, "column": self.column, "hint": self.hint}
        location = "".join(f", {name}={shorten(value, 200)!r}" for name, value in parts.items() if value)
        return f"{type(self).__name__}({self.message!r}{location})"

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions pickle positional arguments only; errors cross processes with their location.
        state = {name: getattr(self, name) for name in self._carried}
        return (type(self), (self.message,), state)


class UsageError(SkipstoneError):
    """Invalid arguments: a wrong type, an option that doesn't exist, options that exclude each other."""


class PredicateError(SkipstoneError):
    """An invalid predicate."""


class ParseError(PredicateError):
    """SQL text that can't be parsed as one condition."""


class UnknownColumnError(PredicateError):
    """A column that is not in the schema; the hint lists similar names."""


class TypeMismatchError(PredicateError):
    """A literal or an operation that the column's type doesn't support."""


class NotExpressibleError(PredicateError):
    """A predicate that the target (SQL, Arrow, Polars, Iceberg, a domain) can't express."""


class FileError(SkipstoneError):
    """A file that can't be used."""


class NotParquetError(FileError):
    """The bytes are not a Parquet file."""


class CorruptFileError(FileError):
    """A file whose metadata contradicts itself or the file's size."""


class EncryptedFileError(FileError):
    """A Parquet file with an encrypted footer or encrypted columns."""


class ReadError(FileError):
    """A failed or short read; ``transient`` if a retry can succeed."""

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


class ChangedFileError(ReadError):
    """A file that has changed since it was listed or its metadata was read."""


class MissingFileError(ReadError):
    """A file that doesn't exist, or no longer."""


class WriteError(FileError):
    """A file that could not be written or deleted; no partial file remains."""


class ConflictError(FileError):
    """A file that another writer wrote first."""


class SchemaError(FileError):
    """A file whose columns or partitions don't fit the rest of the lake."""


class DuplicateKeyError(SkipstoneError):
    """A key that is already in a keyed table, or twice in the data to be written.

    Examples:
        >>> import skipstone as sk
        >>> issubclass(sk.DuplicateKeyError, sk.SkipstoneError)
        True
    """


class JobError(SkipstoneError):
    """A task that failed on an engine; the message ends with its traceback."""


class RowSetError(SkipstoneError):
    """Row sets of different files, or rows outside the file."""


EXTRAS: Final = {
    "datafusion": ("DataFusion", "engines"),
    "duckdb": ("DuckDB", "engines"),
    "pandas": ("pandas", "pandas"),
    "polars": ("Polars", "engines"),
    "pyiceberg": ("pyiceberg", "iceberg"),
    "pyspark": ("PySpark", "spark"),
    "sqlalchemy": ("SQLAlchemy", "iceberg"),
    "starlette": ("Starlette", "server"),
    "uvicorn": ("uvicorn", "server"),
    "zstandard": ("zstandard", "iceberg"),
}
"""Libraries that the base install lacks: their names, and the extras that install them."""


def require(*modules: str, instead: str = "") -> None:
    """Raise an error that names the extra of the first library that can't be imported.

    Args:
        modules: Libraries of the optional extras.
        instead: What to do without the library.
    """
    for module in modules:
        try:
            importlib.import_module(module)
        except ImportError as error:
            name, extra = EXTRAS[module]
            absent = isinstance(error, ModuleNotFoundError) and error.name == module
            problem = f"{name} is not installed" if absent else f"{name} can't be imported: {error}"
            hint = f"run pip install 'skipstone[{extra}]'{f', or {instead}' if instead else ''}"
            raise UsageError(problem, hint=hint) from error
