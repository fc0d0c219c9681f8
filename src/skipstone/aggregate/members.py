"""Sets of members: which rows may count, by their ids or their places, put together with AND, OR and NOT.

Membership has two values: NULL and negative ids are in no set, so that ``~`` of a set holds them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from numbers import Real
from operator import and_, or_
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from skipstone.aggregate.states.state import Path, RowSelection
from skipstone.core.arrays import numbers, plain, valid_rows
from skipstone.core.domain.keys import storage_type
from skipstone.core.evidence import Array, ColumnFacts
from skipstone.core.ir.bind import Binder
from skipstone.core.rows import RowSet
from skipstone.core.rows.intset import IntSet
from skipstone.errors import RowSetError, TypeMismatchError, UsageError
from skipstone.lake.files import Files
from skipstone.lake.snapshot import AntiJoin
from skipstone.predicate.tree import Expr
from skipstone.report.units import plural
from skipstone.scan.projection import find_path

if TYPE_CHECKING:
    from skipstone.typing import IdSet, MembersLike

Positions: TypeAlias = IntSet | RowSet
T = TypeVar("T", bound=Any)


@dataclass(frozen=True, slots=True, eq=False)
class Cover:
    """Per unit, whether a row may be a member, and whether a row may not be."""

    inside: Array
    outside: Array

    def __and__(self, other: Cover) -> Cover:
        return Cover(self.inside & other.inside, self.outside | other.outside)

    def __or__(self, other: Cover) -> Cover:
        return Cover(self.inside | other.inside, self.outside & other.outside)

    def __invert__(self) -> Cover:
        return Cover(self.outside, self.inside)


class Members(ABC):
    """Rows that are in a set, or in what ``&``, ``|``, ``~`` and ``-`` make of several."""

    __slots__ = ()

    def __and__(self, other: Members) -> Members:
        return AllMembers((self, other)) if isinstance(other, Members) else NotImplemented

    def __or__(self, other: Members) -> Members:
        return Some((self, other)) if isinstance(other, Members) else NotImplemented

    def __sub__(self, other: Members) -> Members:
        return AllMembers((self, NotMembers(other))) if isinstance(other, Members) else NotImplemented

    def __invert__(self) -> Members:
        return NotMembers(self)

    def __bool__(self) -> bool:
        raise TypeError("sets of members have no truth value; combine them with & | ~, not with and/or/not")

    # -- what each kind provides ---------------------------------------------------------------

    @abstractmethod
    def leaves(self) -> Iterator[Ids | Places]:
        """The sets it is made of."""

    @abstractmethod
    def replaced(self, change: Callable[[Ids | Places], Members | bool]) -> Members | bool:
        """The same of other sets; what is TRUE or FALSE for every row is left out."""

    @abstractmethod
    def evaluate(self, test: Callable[[Ids], T]) -> T:
        """What ``&``, ``|`` and ``~`` make of the results of a test for each set; without places."""

    @abstractmethod
    def descriptions(self, *, negated: bool = False) -> tuple[str, ...]:
        """Each set in words, with the way its members are found."""

    # -- bound to a lake ---------------------------------------------------------------------

    @property
    def columns(self) -> dict[Path, pa.DataType]:
        """The id columns it reads, and their types; known once it is bound."""
        return {leaf.path: leaf.type for leaf in self.leaves() if isinstance(leaf, Ids)}

    @property
    def has_places(self) -> bool:
        """Whether some rows are members by their places."""
        return any(isinstance(leaf, Places) for leaf in self.leaves())

    def bind(self, schema: pa.Schema, *, case_sensitive: bool) -> Members:
        """Names as paths of a schema; a column that holds no integers is an error."""
        binder = Binder(schema, case_sensitive)
        return self._with(lambda leaf: leaf.bound(binder) if isinstance(leaf, Ids) else leaf)

    def located(self, paths: Sequence[str]) -> Members:
        """Names of files as numbers of a lake's files; one that means none or several of them is an error."""
        return self._with(lambda leaf: leaf.at(paths) if isinstance(leaf, Places) else leaf)

    def restrict(self, bounds: Mapping[Path, tuple[int, int]]) -> Members:
        """The same for rows whose ids lie within the bounds of their columns, with little beyond them."""
        return self._with(lambda leaf: leaf.within(bounds) if isinstance(leaf, Ids) else leaf)

    def _with(self, change: Callable[[Ids | Places], Members]) -> Members:
        changed = self.replaced(change)
        assert isinstance(changed, Members)
        return changed

    def split(self, rows: RowSet, place: Callable[[Places], RowSet]) -> list[tuple[RowSet, Members | bool]]:
        """Rows of one file in parts, in each of which only ids are still to be looked at."""
        parts: dict[Members | bool, RowSet] = {} if rows.is_empty else {self: rows}
        for leaf in dict.fromkeys(self.leaves()):
            if isinstance(leaf, Places):
                parts = _cut(parts, leaf, place(leaf))
        return [(part, rest) for rest, part in parts.items()]

    # -- asking ------------------------------------------------------------------------------

    def cover(self, facts: Mapping[Path, ColumnFacts], units: int) -> Cover:
        """What evidence proves of N units; without places."""
        return self.evaluate(lambda leaf: leaf.cover_of(facts.get(leaf.path), units))

    def mask(self, table: pa.Table) -> Array:
        """Per row, whether it is a member; without places."""
        rows = RowSelection(table, np.zeros(1, np.int64))
        return self.evaluate(lambda leaf: column_mask(leaf.ids, rows.column(leaf.path)))


@dataclass(frozen=True, slots=True, eq=False)
class Ids(Members):
    """Rows whose id is in a set."""

    column: str
    ids: IntSet
    path: Path = ()
    type: pa.DataType | None = None

    def leaves(self) -> Iterator[Ids | Places]:
        yield self

    def replaced(self, change: Callable[[Ids | Places], Members | bool]) -> Members | bool:
        return change(self)

    def bound(self, binder: Binder) -> Ids:
        """The same with the column that its name means."""
        ref = binder.column(find_path(binder, self.column))
        if not pa.types.is_integer(storage_type(ref.type)):
            raise TypeMismatchError(
                f"ids are integers, and the column is of type {ref.type}",
                column=self.column,
                hint="name an integer column in id_column= or sk.members",
            )
        return replace(self, path=ref.path, type=ref.type)

    def within(self, bounds: Mapping[Path, tuple[int, int]]) -> Ids:
        """The same for ids between their column's bounds."""
        return replace(self, ids=self.ids.restrict(*bounds[self.path])) if self.path in bounds else self

    def cover_of(self, facts: ColumnFacts | None, units: int) -> Cover:
        """What is proven of N units by what is known of their ids."""
        if facts is None or not pa.types.is_integer(storage_type(facts.type)):
            facts = ColumnFacts.unknown(self.type, units)
        some, every = self.ids.covers(facts.lower, facts.upper)
        return Cover(facts.may_value & some, facts.may_null | (facts.may_value & ~every))

    def evaluate(self, test: Callable[[Ids], T]) -> T:
        return test(self)

    def descriptions(self, *, negated: bool = False) -> tuple[str, ...]:
        return (f"{self.column} {'not ' * negated}in {self.ids}",)


@dataclass(frozen=True, slots=True, eq=False)
class Places(Members):
    """Rows at positions in files or, counted by path and then by row, in the whole lake."""

    files: Mapping[str, Positions]
    """By names: a path, or its end as far as it is the only one."""
    whole: Positions | None = None
    """In the whole lake, files by path; then there are no files."""
    numbers: Mapping[int, Positions] | None = None
    """By the files' numbers in a lake, once they are located."""

    @classmethod
    def of(cls, positions: object) -> Places:
        """A caller's mapping of files to sets of rows, or one set of rows of the whole lake."""
        if not isinstance(positions, Mapping):
            return cls({}, _positions(positions))
        for name in positions:
            if not isinstance(name, str):
                raise UsageError(f"{name!r} is not a path", hint="give a mapping of paths to sets of rows")
        return cls({name: _positions(rows) for name, rows in positions.items()})

    def leaves(self) -> Iterator[Ids | Places]:
        yield self

    def replaced(self, change: Callable[[Ids | Places], Members | bool]) -> Members | bool:
        return change(self)

    def at(self, paths: Sequence[str]) -> Places:
        """The same with the numbers of a lake's files for their names."""
        by_end: dict[str, list[int]] = {}
        for number, path in enumerate(paths) if self.files else ():
            by_end.setdefault(path.rpartition("/")[2], []).append(number)
        numbers: dict[int, Positions] = {}
        for name, rows in self.files.items():
            number = _file_number(name, by_end.get(name.rpartition("/")[2], []), paths)
            if number in numbers:
                raise UsageError("the file is named twice", path=paths[number], hint="unite the two sets")
            numbers[number] = rows
        return replace(self, numbers=numbers)

    def rows(self, file: int, start: int, total: int) -> RowSet:
        """Its rows in a file of a lake: its number, the rows of all files before it, and its own."""
        assert self.numbers is not None
        if isinstance(self.whole, IntSet):
            return self.whole.rows(start, total)
        if self.whole is not None:
            if start + total > self.whole.total:
                message = f"a row set of {self.whole.total:,} rows, but the lake has more"
                raise RowSetError(message, hint="make it again for the lake as it is")
            return self.whole.slice(start, start + total)
        mine = self.numbers.get(file)
        if mine is None:
            return RowSet.none(total)
        if isinstance(mine, IntSet):
            return mine.rows(0, total)
        if mine.total != total:
            name = next(name for name, rows in self.files.items() if rows is mine)
            message = f"a row set of {mine.total:,} rows, but the file has {total:,}"
            raise RowSetError(message, path=name, hint="make it again for the file as it is")
        return mine

    def evaluate(self, test: Callable[[Ids], T]) -> T:  # noqa: ARG002
        raise AssertionError("places are split off before units are judged and rows are read")

    def descriptions(self, *, negated: bool = False) -> tuple[str, ...]:
        sets = list(self.files.values()) if self.whole is None else [self.whole]
        count = sum(len(rows) if isinstance(rows, RowSet) else rows.size for rows in sets)
        where = plural(len(self.files), "file") if self.whole is None else "the lake"
        return (f"rows {'not ' * negated}at {plural(count, 'position')} in {where}",)


@dataclass(frozen=True, slots=True)
class _Several(Members):
    parts: tuple[Members, ...]
    _combine: ClassVar[Callable[[Any, Any], Any]]
    _decides: ClassVar[bool]
    """What decides for all parts, where one is that for every row."""

    def leaves(self) -> Iterator[Ids | Places]:
        return (leaf for part in self.parts for leaf in part.leaves())

    def replaced(self, change: Callable[[Ids | Places], Members | bool]) -> Members | bool:
        changed = [part.replaced(change) for part in self.parts]
        rest = tuple(part for part in changed if isinstance(part, Members))
        if self._decides in [part for part in changed if isinstance(part, bool)]:
            return self._decides
        if len(rest) < 2:
            return rest[0] if rest else not self._decides
        return replace(self, parts=rest)

    def evaluate(self, test: Callable[[Ids], T]) -> T:
        return reduce(type(self)._combine, [part.evaluate(test) for part in self.parts])

    def descriptions(self, *, negated: bool = False) -> tuple[str, ...]:
        return tuple(text for part in self.parts for text in part.descriptions(negated=negated))


class AllMembers(_Several):
    """Rows that are members of each part."""

    __slots__ = ()
    _combine = and_
    _decides = False


class Some(_Several):
    """Rows that are members of any part."""

    __slots__ = ()
    _combine = or_
    _decides = True


@dataclass(frozen=True, slots=True)
class NotMembers(Members):
    """Rows that are not members, those without an id among them."""

    part: Members

    def leaves(self) -> Iterator[Ids | Places]:
        return self.part.leaves()

    def replaced(self, change: Callable[[Ids | Places], Members | bool]) -> Members | bool:
        changed = self.part.replaced(change)
        return not changed if isinstance(changed, bool) else NotMembers(changed)

    def evaluate(self, test: Callable[[Ids], T]) -> T:
        result: T = ~self.part.evaluate(test)
        return result

    def descriptions(self, *, negated: bool = False) -> tuple[str, ...]:
        return self.part.descriptions(negated=not negated)


def _cut(parts: Mapping[Members | bool, RowSet], leaf: Places, there: RowSet) -> dict[Members | bool, RowSet]:
    """Each part in two, by whether a row is at one of the places; equal expressions are one part again."""
    result: dict[Members | bool, RowSet] = {}
    for rest, rows in parts.items():
        for here, some in ((True, rows & there), (False, rows - there)):
            if some.is_empty:
                continue
            left = rest if isinstance(rest, bool) else rest.replaced(partial(_decided, leaf, here))
            result[left] = result[left] | some if left in result else some
    return result


def _decided(leaf: Places, here: bool, other: Ids | Places) -> Members | bool:
    return here if other is leaf else other


def column_mask(ids: IntSet, column: pa.ChunkedArray | pa.Array) -> Array:
    """Per row of an integer column, whether it is in a set; NULL never is."""
    if not len(column):
        return np.zeros(0, bool)
    if isinstance(column, pa.ChunkedArray):
        return np.concatenate([column_mask(ids, chunk) for chunk in column.chunks])
    if not pa.types.is_dictionary(column.type):
        column = plain(column)
    valid = valid_rows(column)
    if valid is not None:
        mask = np.zeros(len(column), bool)
        mask[valid] = column_mask(ids, column.drop_null())
        return mask
    if pa.types.is_dictionary(column.type) and len(column.dictionary) <= len(column):
        return column_mask(ids, column.dictionary).take(numbers(column.indices))
    return ids.contains(numbers(plain(column)))


# -- as callers give them ------------------------------------------------------------------------


def members(x: IdSet | Mapping[str, IdSet] | Members, column: str | None = None) -> Members:
    """Select rows by their ids or, without a column, by their positions.

    Sets combine with ``&``, ``|``, ``-`` and ``~``. The values are copied.

    Args:
        x: Ids or positions: a pyroaring bitmap, a row set, a NumPy or Arrow array, or an iterable of
            integers. Positions count the rows of the lake, ordered by path; a mapping has positions by path.
        column: The integer column that holds the ids.

    Examples:
        >>> import skipstone as sk
        >>> vip, banned = sk.members(range(100), "event_id"), sk.members([3, 4], "event_id")
        >>> sk.open("events").scan().aggregate(sk.count(), within=vip - banned)["count"]
        98
    """
    if isinstance(x, Members):
        if column is not None:
            raise UsageError("these members have columns of their own", column=column, hint="leave it out")
        return x
    if isinstance(x, Expr):
        raise UsageError(f"{x} is a condition, not a set", hint="conditions go into lake.scan(...)")
    if column is None:
        return Places.of(x)
    if not isinstance(column, str):
        raise UsageError(f"column={column!r}", hint="give the name of an integer column")
    if isinstance(x, Mapping):
        raise UsageError("a mapping holds positions in files", column=column, hint="leave out the column")
    return Ids(column, IntSet.of(x))


def allowed(within: MembersLike | None, without: MembersLike | None, id_column: str | None) -> Members | None:
    """The members that a caller lets count: those in each set of ``within`` and in none of ``without``."""
    wanted = [(one, False) for one in _sets(within)] + [(one, True) for one in _sets(without)]
    if id_column is not None and all(isinstance(one, Members) for one, _ in wanted):
        hint = "give a set of ids as within= or without=" if not wanted else "leave out id_column="
        what = (
            "there is no set of ids" if not wanted else "members made by sk.members have columns of their own"
        )
        raise UsageError(f"id_column={id_column!r}, but {what}", hint=hint)
    parts = []
    for one, denied in wanted:
        part = one if isinstance(one, Members) else members(one, id_column)
        parts.append(~part if denied else part)
    return AllMembers(tuple(parts)) if len(parts) > 1 else parts[0] if parts else None


def _sets(x: MembersLike | None) -> list[Any]:
    """A list of sets as such; one of numbers is itself a set."""
    if x is None:
        return []
    if isinstance(x, list | tuple) and not all(isinstance(one, Real) for one in x):
        return list(x)
    return [x]


def _positions(rows: object) -> Positions:
    return rows if isinstance(rows, RowSet) else IntSet.of(rows)


def _file_number(name: str, candidates: list[int], paths: Sequence[str]) -> int:
    """The one file that a name means: the whole path, or else an end of it, or a longer path."""
    ended = "/" + name.lstrip("/")
    matches = [number for number in candidates if paths[number] == name]
    matches = matches or [number for number in candidates if paths[number].endswith(ended)]
    matches = matches or [number for number in candidates if ended.endswith("/" + paths[number])]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise UsageError(f"{len(matches):,} files have this name", path=name, hint="give more of the path")
    raise UsageError("the lake has no such file", path=name, hint="give paths as lake.files has them")


# -- as a test of rows ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Outside(AntiJoin):
    """Rows that are not members, as rows that are deleted by their ids."""

    members: Members

    @property
    def columns(self) -> tuple[Path, ...]:
        return tuple(self.members.columns)

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        return tuple(self.members.columns.values())

    def deleted(self, table: pa.Table, files: Files, places: Callable[[], Array]) -> Array:  # noqa: ARG002
        return ~self.members.mask(table)


@dataclass(frozen=True, slots=True, eq=False)
class RisingIds:
    """Runs of rows of a file in which a column counts up, and the id that each begins with."""

    starts: Array
    stops: Array
    ids: Array

    def at(self, places: Array) -> Array:
        """The ids at some places, all of which are in a run."""
        runs: Any = 0
        if len(self.starts) > 1:
            runs = np.searchsorted(self.starts, places, side="right") - 1
        ids: Array = places + (self.ids - self.starts)[runs]
        return ids


@dataclass(frozen=True, slots=True, eq=False)
class OutsideByPlace(Outside):
    """The same of rows whose ids count up: their places tell which are members, and nothing is read."""

    runs: Mapping[Path, RisingIds]

    @property
    def columns(self) -> tuple[Path, ...]:
        return ()

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        return ()

    def deleted(self, table: pa.Table, files: Files, places: Callable[[], Array]) -> Array:  # noqa: ARG002
        at = places()
        if not len(at):
            return np.zeros(0, dtype=bool)
        if at[-1] - at[0] + 1 == len(at) and all(len(runs.starts) == 1 for runs in self.runs.values()):
            first = {path: int(runs.at(at[:1])[0]) for path, runs in self.runs.items()}
            return ~self.members.evaluate(lambda leaf: leaf.ids.contains_run(first[leaf.path], len(at)))
        return ~self.members.evaluate(lambda leaf: leaf.ids.contains(self.runs[leaf.path].at(at)))

    def restrict(self) -> OutsideByPlace:
        """The same with hardly more members than its rows may have."""
        bounds = {
            path: (int(runs.ids.min()), int((runs.ids + (runs.stops - runs.starts)).max()))
            for path, runs in self.runs.items()
        }
        return replace(self, members=self.members.restrict(bounds))
