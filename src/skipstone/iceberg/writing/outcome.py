"""What is known of a commit, at any moment: an interrupt such as Ctrl-C can come between any two steps.

So new files are deleted only while nothing was sent to the catalog, or when the commit has certainly failed.
An interrupt stays what it is, and gets a note that says what it has left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic_core import PydanticSerializationError

from skipstone.iceberg.metadata import tolerant
from skipstone.iceberg.writing.target import metadata_files_written

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table


@dataclass(slots=True, eq=False)
class CommitState:
    """What is known of a commit; shared by all that would delete its files."""

    sent: bool = False
    """Whether it was sent and has not certainly failed: its files must stay."""
    landed: bool = False
    """Whether it is known to have succeeded."""
    tried: bool = False
    """Whether it was ever sent."""
    snapshot: int | None = None
    """Id of the snapshot that was sent last; None for a change that makes none."""

    def send(self, snapshot: int | None = None) -> None:
        """Record that the commit is about to be sent."""
        self.snapshot, self.landed, self.tried, self.sent = snapshot, False, True, True

    def land(self) -> None:
        """Record that the commit has succeeded."""
        self.landed = True

    def fail(self) -> None:
        """Record that the commit has certainly failed."""
        self.sent = False

    def __str__(self) -> str:
        if self.landed:
            made = "" if self.snapshot is None else f" as snapshot {self.snapshot}"
            return f"the change was committed{made}"
        if not self.sent:
            return "nothing was committed"
        made = "change was made" if self.snapshot is None else f"table has snapshot {self.snapshot}"
        return (
            f"outcome of the commit is unknown: check whether the {made} before retrying; "
            "no file was deleted, and remove_orphans finds those left over"
        )


def note_interrupt(error: BaseException, name: str, text: object) -> None:
    """Add a note to an interrupt that has none; the innermost caller knows most."""
    if not isinstance(error, Exception) and not getattr(error, "__notes__", None):
        error.add_note(f"{name}: {text}")


@contextmanager
def interrupts_noted(name: str, state: CommitState) -> Iterator[None]:
    """Add what is known of a commit that was sent to interrupts that pass."""
    try:
        yield
    except BaseException as error:
        if state.tried:
            note_interrupt(error, name, state)
        raise


@contextmanager
def keep_interrupts() -> Iterator[None]:
    """Raise the interrupt again that pydantic has made an error of its own, while it serialized metadata."""
    try:
        yield
    except PydanticSerializationError as error:
        if KeyboardInterrupt.__name__ in str(error):
            raise KeyboardInterrupt from error
        raise


@contextmanager
def settled(
    table: Table, name: str, state: CommitState, has_landed: Callable[[], bool], *, afterwards: str = ""
) -> Iterator[None]:
    """Find out and note what interrupts of a commit have left.

    ``has_landed`` looks at the newest metadata; ``afterwards`` says what is not done yet after the commit.
    """
    written: list[str] = []
    try:
        with keep_interrupts(), metadata_files_written(written):
            yield
    except BaseException as error:
        if not isinstance(error, Exception):
            settle(table, state, has_landed)
            if not state.sent:
                delete_metadata(table, written)
            note_interrupt(error, name, f"{state}{afterwards if state.landed else ''}")
        raise


def settle(table: Table, state: CommitState, has_landed: Callable[[], bool | None]) -> None:
    """Find out whether an interrupted commit has landed.

    ``has_landed`` looks at the newest metadata, and returns None if the commit has certainly failed.
    """
    if not state.sent or state.landed:
        return
    # A second interrupt, or an error, leaves the outcome unknown.
    with suppress(BaseException):
        tolerant(table.refresh)
        landed = has_landed()
        if landed:
            state.land()
        elif landed is None or ends_with_its_call(table.catalog):
            state.fail()


def delete_metadata(table: Table, paths: Iterable[str]) -> None:
    """Delete metadata files of commits that have failed, except those that the table names."""
    log = table.metadata.metadata_log
    named = {table.metadata_location, *(one.metadata_file for one in log)}
    for path in paths:
        if path not in named:
            # Files that can't be deleted stay invisible.
            with suppress(Exception):
                table.io.delete(path)


def ends_with_its_call(catalog: Catalog) -> bool:
    """Whether a commit that was interrupted can't succeed later: no server is at work on it."""
    engine = getattr(catalog, "engine", None)
    return engine is not None and engine.dialect.name == "sqlite"
