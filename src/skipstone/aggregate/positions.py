"""Positions of rows: in files by their names, or in a whole lake, whose rows are counted file by file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from skipstone.aggregate.idset import IdSet
from skipstone.core.rows import RowSet
from skipstone.errors import RowSetError, UsageError

Held: TypeAlias = IdSet | RowSet


@dataclass(frozen=True, slots=True, eq=False)
class Positions:
    """Rows of files, or of the whole lake."""

    files: Mapping[str, Held]
    """By names: a path, or its end as far as it is the only one."""
    whole: Held | None = None
    """In the whole lake, files by path; then there are no files."""
    numbers: Mapping[int, Held] | None = None
    """By the files' numbers in a lake, once they are located."""

    @classmethod
    def of(cls, given: object) -> Positions:
        """A caller's mapping of files to sets of rows, or one set of rows of the whole lake."""
        if not isinstance(given, Mapping):
            return cls({}, _held(given))
        for name in given:
            if not isinstance(name, str):
                raise UsageError(f"{name!r} is no file", hint="give a mapping of paths to sets of rows")
        return cls({name: _held(rows) for name, rows in given.items()})

    def located(self, paths: Sequence[str]) -> Positions:
        """With the numbers of a lake's files for their names; none or several by one name are an error."""
        by_end: dict[str, list[int]] = {}
        for number, path in enumerate(paths) if self.files else ():
            by_end.setdefault(path.rpartition("/")[2], []).append(number)
        numbers: dict[int, Held] = {}
        for name, rows in self.files.items():
            number = _number(name, by_end.get(name.rpartition("/")[2], []), paths)
            if number in numbers:
                raise UsageError("the file is named twice", path=paths[number], hint="unite the two sets")
            numbers[number] = rows
        return replace(self, numbers=numbers)

    def rows(self, file: int, start: int, total: int) -> RowSet:
        """Those in a file of a lake: its number, the rows of all files before it, and its own."""
        assert self.numbers is not None
        if isinstance(self.whole, IdSet):
            return self.whole.rows(start, total)
        if self.whole is not None:
            if start + total > self.whole.total:
                message = f"a row set of {self.whole.total:,} rows, but the lake has more"
                raise RowSetError(message, hint="make it anew for the lake as it is")
            return self.whole.slice(start, start + total)
        found = self.numbers.get(file)
        if found is None:
            return RowSet.none(total)
        if isinstance(found, IdSet):
            return found.rows(0, total)
        if found.total != total:
            name = next(name for name, rows in self.files.items() if rows is found)
            message = f"a row set of {found.total:,} rows, but the file has {total:,}"
            raise RowSetError(message, path=name, hint="make it anew for the file as it is")
        return found

    def __str__(self) -> str:
        if self.whole is not None:
            return f"{_counted(_size(self.whole), 'position')} in the lake"
        positions = _counted(sum(map(_size, self.files.values())), "position")
        return f"{positions} in {_counted(len(self.files), 'file')}"


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _held(rows: object) -> Held:
    return rows if isinstance(rows, RowSet) else IdSet.of(rows)


def _size(rows: Held) -> int:
    return len(rows) if isinstance(rows, RowSet) else rows.size


def _number(name: str, candidates: list[int], paths: Sequence[str]) -> int:
    """The one file that a name means: the whole path, or else an end of it, or a longer path."""
    ended = "/" + name.lstrip("/")
    found = [number for number in candidates if paths[number] == name]
    found = found or [number for number in candidates if paths[number].endswith(ended)]
    found = found or [number for number in candidates if ended.endswith("/" + paths[number])]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"{len(found):,} files have this name", path=name, hint="give more of the path")
    raise UsageError("the lake has no such file", path=name, hint="give paths as lake.files has them")
