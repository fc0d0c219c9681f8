"""Where rows go: standard output, or a file that appears only when it is complete."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import typer

from skipstone.cli.output import Exit, stop_writing


class OutputError(Exception):
    """The operating system refused to write; ``__cause__`` is its error."""


class Stream:
    """A binary stream that knows its position, which a pipe doesn't, and that can be given up.

    A writer of Arrow's that is thrown away completes its file; given up, it completes nothing.
    """

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._position = 0
        self._given_up = False
        self.closed = False

    def write(self, data: Any) -> int:
        """Write bytes, or anything that has a buffer of them."""
        size = memoryview(data).nbytes
        if not self._given_up:
            with _refusals():
                self._raw.write(data)
        self._position += size
        return size

    def flush(self) -> None:
        """Hand on what is buffered."""
        if not self._given_up:
            with _refusals():
                self._raw.flush()

    def tell(self) -> int:
        """Bytes written so far."""
        return self._position

    def writable(self) -> bool:
        """It is."""
        return True

    def readable(self) -> bool:
        """It is not."""
        return False

    def seekable(self) -> bool:
        """It is not."""
        return False

    def give_up(self) -> None:
        """Drop whatever is written from now on."""
        self._given_up = True

    def close(self) -> None:
        """Nothing: whoever opened the file closes it."""


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError from error


@contextmanager
def open_output(output: Path | None, *, force: bool) -> Iterator[Stream]:
    """The stream to write to; a reader that goes away ends the command, which is no failure."""
    try:
        with _standard_output() if output is None else _file(output, force=force) as stream:
            try:
                yield stream
            except BaseException:
                stream.give_up()
                raise
            stream.flush()
    except KeyboardInterrupt:
        if output is None:
            # What is buffered would wait at exit for a reader that may not read on.
            stop_writing()
        raise
    except OutputError as refused:
        if output is None:
            stop_writing()
        if isinstance(refused.__cause__, BrokenPipeError):
            raise typer.Exit(int(Exit.OK)) from None
        place = "the output" if output is None else str(output)
        typer.echo(f"error: can't write {place}: {getattr(refused.__cause__, 'strerror', '')}", err=True)
        raise typer.Exit(int(Exit.UNEXPECTED)) from None


def check_output(output: Path | None, *, force: bool) -> None:
    """Refuse to replace a file, before anything is read."""
    if output is None:
        return
    if output.is_dir():
        raise typer.BadParameter(f"{output} is a directory", param_hint="--output")
    if output.is_file() and not force:
        raise typer.BadParameter(f"{output} exists; --force replaces it", param_hint="--output")


@contextmanager
def _standard_output() -> Iterator[Stream]:
    sys.stdout.flush()
    yield Stream(sys.stdout.buffer)


@contextmanager
def _file(output: Path, *, force: bool) -> Iterator[Stream]:
    check_output(output, force=force)
    # A link stays one, and what it points to is replaced.
    target = output.resolve()
    if target.exists() and not target.is_file():
        # A device or a named pipe can't be replaced.
        with _opened(target, "wb") as raw:
            yield Stream(raw)
        return
    unfinished = target.with_name(f".{target.name[:200]}.{os.urandom(4).hex()}.tmp")
    try:
        with _opened(unfinished, "xb") as raw:
            yield Stream(raw)
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
