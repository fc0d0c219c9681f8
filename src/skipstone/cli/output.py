"""Output: exit codes, errors, reports on standard output, rows in files."""

from __future__ import annotations

import enum
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

import typer

from skipstone.errors import FileError, PredicateError, ReadError, SkipstoneError

if TYPE_CHECKING:
    from skipstone.report import Reported
    from skipstone.report.node import ReportNode

_PIPE_WIDTH = 120


class Exit(enum.IntEnum):
    """Exit codes of all commands. Scripts rely on them, so they never change."""

    OK = 0
    UNEXPECTED = 1
    """A defect (the traceback is printed), an output that can't be written, or a finding of ``doctor``."""
    USAGE = 2
    """Options that don't parse, as in Click."""
    PREDICATE = 3
    """The predicate is invalid: SQL that doesn't parse, an unknown column, a literal of the wrong type."""
    FILE = 4
    """A file is missing, unreadable, not Parquet, corrupt or encrypted."""
    OTHER = 5
    """Any other error that Skipstone raises."""
    DIFFERENT = 6
    """``verify`` found that skipping changes the answer."""
    INTERRUPTED = 130
    """Ctrl-C, as in shells."""


EXIT_CODES = (
    "Exit codes: 0 success, 1 unexpected error, 2 invalid usage, 3 invalid predicate or column, "
    "4 unreadable file, 5 other error, 6 verify found a difference, 130 interrupted."
)


own_process = False
"""Whether this process runs one command and ends, as the console script does."""


def forgo_pandas() -> None:
    """Keep pyarrow from importing pandas, which only commands with Spark need.

    If pandas is installed, pyarrow imports it when it converts its first value, which takes longer than most
    commands. It looks for pandas only once.
    """
    if not own_process or "pandas" in sys.modules:
        return
    import pyarrow as pa

    class NoPandas(MetaPathFinder):
        @staticmethod
        def find_spec(name: str, *_: object) -> None:
            if name == "pandas":
                raise ModuleNotFoundError(name=name)

    sys.meta_path.insert(0, finder := NoPandas())
    try:
        pa.scalar(0)
    finally:
        sys.meta_path.remove(finder)


@contextmanager
def guarded() -> Iterator[None]:
    """Turn errors meant for the user into a line on standard error and an exit code."""
    try:
        yield
    except SkipstoneError as error:
        typer.echo(error_line(error), err=True)
        raise typer.Exit(int(exit_code(error))) from None
    except KeyboardInterrupt as error:
        raise interrupted(error) from None


def interrupted(error: KeyboardInterrupt) -> typer.Exit:
    """Print what an interrupt has left, if that is known, and return the exit."""
    for text in getattr(error, "__notes__", error.args):
        typer.echo(f"interrupted: {text}", err=True)
    return typer.Exit(int(Exit.INTERRUPTED))


def check_file(path: str, instead: str) -> None:
    """Reject a directory; the hint names the commands for one."""
    if os.path.isdir(path):  # noqa: PTH112  (pathlib refuses names that are too long)
        hint = f"pass one of its files, or use {instead} for the directory"
        raise ReadError("path is a directory, not a Parquet file", path=path, hint=hint)


def emit(text: str) -> None:
    """Write to standard output in one piece; handles a reader that went away."""
    try:
        # Colours have been decided already; they must not be stripped.
        typer.echo(text, color=True)
        sys.stdout.flush()
    except BrokenPipeError:
        # ``| head`` has seen enough, which is not a failure.
        stop_writing()
        raise typer.Exit(int(Exit.OK)) from None
    except OSError as error:
        stop_writing()
        typer.echo(f"error: can't write the output: {error.strerror}", err=True)
        raise typer.Exit(int(Exit.UNEXPECTED)) from None


def stop_writing() -> None:
    """Close standard output."""
    # Buffered data must not fail again at shutdown.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def exit_code(error: SkipstoneError) -> Exit:
    """Return the exit code of an error."""
    if isinstance(error, PredicateError):
        return Exit.PREDICATE
    return Exit.FILE if isinstance(error, FileError) else Exit.OTHER


def error_line(error: SkipstoneError) -> str:
    """Return the error in one line: location, message and hint."""
    from skipstone.report.lines import clean

    text = f"error: {error.place}: {error.message}" if error.place else f"error: {error.message}"
    hint = f"; hint: {_as_option(error.hint)}" if error.hint else ""
    return clean(" ".join(f"{text}{hint}".split()))


def _as_option(hint: str) -> str:
    """A hint about storage options in the words of a command."""
    hint = hint.partition("; pickled plans")[0]
    return hint.replace("in storage_options", "with --storage-option").replace(
        "storage_options", "--storage-option"
    )


def json_text(value: Mapping[str, Any]) -> str:
    """Return a JSON document in characters that standard output can encode."""
    from skipstone.report.lines import visible

    unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    return visible(json.dumps(value, indent=2, ensure_ascii=not unicode, allow_nan=False))


def print_json(value: Mapping[str, Any]) -> None:
    """Write a JSON document to standard output."""
    emit(json_text(value))


@dataclass(frozen=True, slots=True)
class Screen:
    """Width of a terminal, and whether it has colours."""

    width: int
    color: bool


def show(result: Reported, format: str) -> None:
    """Write a result to standard output, as text or as JSON."""
    if format == "json":
        print_json(result.to_json())
    else:
        from skipstone.report import tree_of

        emit(drawn(tree_of(result)))


def show_on_stderr(result: Reported) -> None:
    """Draw a result on standard error."""
    from skipstone.report import tree_of

    typer.echo(drawn(tree_of(result), sys.stderr), err=True, color=True)


def drawn(node: ReportNode, file: TextIO | None = None, *, color: bool = True) -> str:
    """Draw a tree for standard output, or for another stream."""
    from skipstone.report.text import to_text

    on = screen(file)
    return to_text(node, on.width, color=color and on.color)


def screen(file: TextIO | None = None) -> Screen:
    """Return the screen of a stream, by default standard output; colours need a terminal without NO_COLOR."""
    from rich.console import Console

    console = Console(file=file or sys.stdout)
    # Rich assumes 80 columns without a terminal; a pipe needs no cuts.
    piped = not console.is_terminal and "COLUMNS" not in os.environ
    color = console.is_terminal and not console.no_color and console.color_system is not None
    return Screen(_PIPE_WIDTH if piped else console.width, color)


# -- rows for programs -------------------------------------------------------------------------


class OutputError(Exception):
    """A write failed; ``__cause__`` is the operating system's error."""


class RowStream:
    """A binary stream with a position, which pipes lack, that can be abandoned.

    An Arrow writer completes its file when it is deleted; on an abandoned stream it completes nothing.
    """

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._position = 0
        self._abandoned = False
        self.closed = False

    def write(self, data: Any) -> int:
        """Write bytes, or anything that has a buffer of them."""
        size = memoryview(data).nbytes
        if not self._abandoned:
            with _refusals():
                self._raw.write(data)
        self._position += size
        return size

    def flush(self) -> None:
        """Flush the underlying stream."""
        if not self._abandoned:
            with _refusals():
                self._raw.flush()

    def tell(self) -> int:
        """Bytes written so far."""
        return self._position

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def abandon(self) -> None:
        """Ignore all further writes."""
        self._abandoned = True

    def close(self) -> None:
        """Do nothing: the caller closes the file."""


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError from error


@contextmanager
def open_output(output: Path | None, *, force: bool) -> Iterator[RowStream]:
    """Open the output; a reader that goes away ends the command without an error."""
    try:
        with _standard_output() if output is None else _file(output, force=force) as stream:
            try:
                yield stream
            except BaseException:
                stream.abandon()
                raise
            stream.flush()
    except KeyboardInterrupt:
        if output is None:
            # Buffered data would wait at exit for a reader that may have stopped.
            stop_writing()
        raise
    except OutputError as refused:
        if output is None:
            stop_writing()
        if isinstance(refused.__cause__, BrokenPipeError):
            raise typer.Exit(int(Exit.OK)) from None
        place = "the output" if output is None else str(output)
        reason = getattr(refused.__cause__, "strerror", "")
        missing = isinstance(refused.__cause__, FileNotFoundError)
        hint = "; hint: create its directory first" if missing else ""
        typer.echo(f"error: can't write {place}: {reason}{hint}", err=True)
        raise typer.Exit(int(Exit.UNEXPECTED)) from None


def write_text(text: str, output: Path | None, *, force: bool) -> None:
    """Write text and a line break to standard output or to a file."""
    if output is None:
        emit(text)
        return
    with open_output(output, force=force) as out:
        out.write((text.rstrip("\n") + "\n").encode(errors="backslashreplace"))


def refuse_terminal(format: str, output: Path | None) -> None:
    """Reject a binary format on a terminal."""
    if output is None and sys.stdout.isatty():
        reason = f"{format} can't be written to a terminal; use --output, or redirect the output"
        raise typer.BadParameter(reason, param_hint="--format")


def check_output(output: Path | None, *, force: bool) -> None:
    """Reject an output file that exists, before anything is read."""
    if output is None:
        return
    if output.is_dir():
        raise typer.BadParameter(f"{output} is a directory", param_hint="--output")
    if output.is_file() and not force:
        raise typer.BadParameter(f"{output} exists; use --force to overwrite it", param_hint="--output")


@contextmanager
def _standard_output() -> Iterator[RowStream]:
    sys.stdout.flush()
    yield RowStream(sys.stdout.buffer)


@contextmanager
def _file(output: Path, *, force: bool) -> Iterator[RowStream]:
    check_output(output, force=force)
    # Write to the target of a link, not over the link.
    target = output.resolve()
    if target.exists() and not target.is_file():
        # A device or a named pipe can't be replaced.
        with _opened(target, "wb") as raw:
            yield RowStream(raw)
        return
    unfinished = target.with_name(f".{target.name[:200]}.{os.urandom(4).hex()}.tmp")
    try:
        with _opened(unfinished, "xb") as raw:
            yield RowStream(raw)
        check_output(output, force=force)
        with _refusals():
            unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def _opened(path: Path, mode: str) -> Iterator[BinaryIO]:
    with _refusals():
        raw = path.open(mode)
    try:
        yield raw  # type: ignore[misc]
    finally:
        with _refusals():
            raw.close()
