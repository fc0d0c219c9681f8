"""Sets of members: row filters by id or row position, combined with AND, OR and NOT.

Membership is two-valued: NULL and negative ids are in no set, so ``~`` of a set contains them.
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
from skipstone.core.plain import type_name
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
    """Per unit, whether some row may be a member, and whether some row may be a non-member."""

    inside: Array
    outside: Array

    def __and__(self, other: Cover) -> Cover:
        return Cover(self.inside & other.inside, self.outside | other.outside)

    def __or__(self, other: Cover) -> Cover:
        return Cover(self.inside | other.inside, self.outside & other.outside)

    def __invert__(self) -> Cover:
        return Cover(self.outside, self.inside)


class Members(ABC):
    """Rows selected by ids or positions; ``&``, ``|``, ``-`` and ``~`` combine them.

    [members][skipstone.members] creates them. NULL and negative ids are in no set, so ``~`` of a set selects
    them.

    Examples:
        >>> import skipstone as sk
        >>> even = sk.members(range(0, 1000, 2), "event_id")
        >>> sk.open("events").scan("event_id < 10").aggregate(sk.count(), within=~even)["count"]
        5
    """

    __slots__ = ()

    def __and__(self, other: Members) -> Members:
        return AllMembers((self, other)) if isinstance(other, Members) else NotImplemented

    def __or__(self, other: Members) -> Members:
        return AnyMembers((self, other)) if isinstance(other, Members) else NotImplemented

    def __sub__(self, other: Members) -> Members:
        return AllMembers((self, NotMembers(other))) if isinstance(other, Members) else NotImplemented

    def __invert__(self) -> Members:
        return NotMembers(self)

    def __bool__(self) -> bool:
        raise TypeError("members have no truth value; combine them with & | ~, not with and/or/not")

    # -- implemented by subclasses -------------------------------------------------------------

    @abstractmethod
    def leaves(self) -> Iterator[Ids | RowPositions]:
        """The id and position sets of the expression."""

    @abstractmethod
    def replace_leaves(self, change: Callable[[Ids | RowPositions], Members | bool]) -> Members | bool:
        """Replace the leaves; parts that are TRUE or FALSE for every row are simplified away."""

    @abstractmethod
    def evaluate(self, test: Callable[[Ids], T]) -> T:
        """Evaluate the expression with the results of ``test`` for each leaf; positions must be split off."""

    @abstractmethod
    def descriptions(self, *, negated: bool = False) -> tuple[str, ...]:
        """One description per set, for explain."""

    # -- bound to a lake ---------------------------------------------------------------------

    @property
    def columns(self) -> dict[Path, pa.DataType]:
        """Id columns and their types; requires :meth:`bind`."""
        return {leaf.path: leaf.type for leaf in self.leaves() if isinstance(leaf, Ids)}

    @property
    def has_positions(self) -> bool:
        """Whether a set contains row positions."""
        return any(isinstance(leaf, RowPositions) for leaf in self.leaves())

    def bind(self, schema: pa.Schema, *, case_sensitive: bool) -> Members:
        """Resolve column names; raise if a column is not an integer column."""
        binder = Binder(schema, case_sensitive)
        return self._replace(lambda leaf: leaf.bind_column(binder) if isinstance(leaf, Ids) else leaf)

    def bind_files(self, paths: Sequence[str]) -> Members:
        """Resolve file names to numbers of the lake's files; raise if a name is unknown or ambiguous."""
        return self._replace(lambda leaf: leaf.bind_names(paths) if isinstance(leaf, RowPositions) else leaf)

    def restrict(self, bounds: Mapping[Path, tuple[int, int]]) -> Members:
        """Drop ids outside the bounds of their columns, to make the sets smaller."""
        return self._replace(lambda leaf: leaf.restrict_ids(bounds) if isinstance(leaf, Ids) else leaf)

    def _replace(self, change: Callable[[Ids | RowPositions], Members]) -> Members:
        changed = self.replace_leaves(change)
        assert isinstance(changed, Members)
        return changed

    def split(
        self, rows: RowSet, locate: Callable[[RowPositions], RowSet]
    ) -> list[tuple[RowSet, Members | bool]]:
        """Split the rows of one file by position sets; each part depends on ids only."""
        parts: dict[Members | bool, RowSet] = {} if rows.is_empty else {self: rows}
        for leaf in dict.fromkeys(self.leaves()):
            if isinstance(leaf, RowPositions):
                parts = _split_by_position(parts, leaf, locate(leaf))
        return [(part, rest) for rest, part in parts.items()]

    # -- evaluation --------------------------------------------------------------------------

    def cover(self, facts: Mapping[Path, ColumnFacts], units: int) -> Cover:
        """Evaluate on the evidence of N units; positions must be split off."""
        return self.evaluate(lambda leaf: leaf.cover_of(facts.get(leaf.path), units))

    def mask(self, table: pa.Table) -> Array:
        """Membership of each row; positions must be split off."""
        rows = RowSelection(table, np.zeros(1, np.int64))
        return self.evaluate(lambda leaf: column_mask(leaf.ids, rows.column(leaf.path)))


@dataclass(frozen=True, slots=True, eq=False)
class Ids(Members):
    """Rows with an id in a set."""

    column: str
    ids: IntSet
    path: Path = ()
    type: pa.DataType | None = None

    def leaves(self) -> Iterator[Ids | RowPositions]:
        yield self

    def replace_leaves(self, change: Callable[[Ids | RowPositions], Members | bool]) -> Members | bool:
        return change(self)

    def bind_column(self, binder: Binder) -> Ids:
        """Resolve the column name."""
        ref = binder.column(find_path(binder, self.column))
        if not pa.types.is_integer(storage_type(ref.type)):
            raise TypeMismatchError(
                f"id column has type {type_name(ref.type)}, not an integer type",
                column=self.column,
                hint="use an integer column in id_column= or sk.members",
            )
        return replace(self, path=ref.path, type=ref.type)

    def restrict_ids(self, bounds: Mapping[Path, tuple[int, int]]) -> Ids:
        """Drop ids outside the column's bounds."""
        return replace(self, ids=self.ids.restrict(*bounds[self.path])) if self.path in bounds else self

    def cover_of(self, facts: ColumnFacts | None, units: int) -> Cover:
        """Evaluate on the facts of the id column in N units."""
        if facts is None or not pa.types.is_integer(storage_type(facts.type)):
            facts = ColumnFacts.unknown(self.type, units)
        any_member, all_members = self.ids.covers(facts.lower, facts.upper)
        return Cover(facts.may_value & any_member, facts.may_null | (facts.may_value & ~all_members))

    def evaluate(self, test: Callable[[Ids], T]) -> T:
        return test(self)

    def descriptions(self, *, negated: bool = False) -> tuple[str, ...]:
        return (f"{self.column} {'not ' * negated}in {self.ids}",)


@dataclass(frozen=True, slots=True, eq=False)
class RowPositions(Members):
    """Rows at positions in files, or in the lake with files ordered by path."""

    files: Mapping[str, Positions]
    """Positions by path, or by any unique end of a path."""
    whole: Positions | None = None
    """Positions in the entire lake; ``files`` is empty then."""
    numbers: Mapping[int, Positions] | None = None
    """Positions by file number, set by :meth:`bind_names`."""

    @classmethod
    def of(cls, positions: object) -> RowPositions:
        """From a mapping of paths to row positions, or from positions in the entire lake."""
        if not isinstance(positions, Mapping):
            return cls({}, _positions(positions))
        for name in positions:
            if not isinstance(name, str):
                raise UsageError(f"{name!r} is not a path", hint="use a mapping of paths to row positions")
        return cls({name: _positions(rows) for name, rows in positions.items()})

    def leaves(self) -> Iterator[Ids | RowPositions]:
        yield self

    def replace_leaves(self, change: Callable[[Ids | RowPositions], Members | bool]) -> Members | bool:
        return change(self)

    def bind_names(self, paths: Sequence[str]) -> RowPositions:
        """Resolve file names to file numbers."""
        by_end: dict[str, list[int]] = {}
        for number, path in enumerate(paths) if self.files else ():
            by_end.setdefault(path.rpartition("/")[2], []).append(number)
        numbers: dict[int, Positions] = {}
        for name, rows in self.files.items():
            number = _file_number(name, by_end.get(name.rpartition("/")[2], []), paths)
            if number in numbers:
                raise UsageError(
                    "file has two sets of positions", path=paths[number], hint="combine them into one"
                )
            numbers[number] = rows
        return replace(self, numbers=numbers)

    def rows(self, file: int, start: int, total: int) -> RowSet:
        """Rows in file number ``file``, which has ``total`` rows after ``start`` rows of other files."""
        assert self.numbers is not None
        if isinstance(self.whole, IntSet):
            return self.whole.rows(start, total)
        if self.whole is not None:
            if start + total > self.whole.total:
                message = f"row set covers {self.whole.total:,} rows, but the lake has more"
                raise RowSetError(message, hint="rebuild the row set for the current lake")
            return self.whole.slice(start, start + total)
        positions = self.numbers.get(file)
        if positions is None:
            return RowSet.none(total)
        if isinstance(positions, IntSet):
            return positions.rows(0, total)
        if positions.total != total:
            name = next(name for name, rows in self.files.items() if rows is positions)
            message = f"row set covers {positions.total:,} rows, but the file has {total:,}"
            raise RowSetError(message, path=name, hint="rebuild the row set for the current file")
        return positions

    def evaluate(self, test: Callable[[Ids], T]) -> T:  # noqa: ARG002
        raise AssertionError("positions are split off before units are judged and rows are read")

    def descriptions(self, *, negated: bool = False) -> tuple[str, ...]:
        sets = list(self.files.values()) if self.whole is None else [self.whole]
        count = sum(len(rows) if isinstance(rows, RowSet) else rows.size for rows in sets)
        where = plural(len(self.files), "file") if self.whole is None else "the lake"
        return (f"rows {'not ' * negated}at {plural(count, 'position')} in {where}",)


@dataclass(frozen=True, slots=True)
class _Combination(Members):
    parts: tuple[Members, ...]
    _combine: ClassVar[Callable[[Any, Any], Any]]
    _dominant: ClassVar[bool]
    """The value that decides the result if one part has it for every row."""

    def leaves(self) -> Iterator[Ids | RowPositions]:
        return (leaf for part in self.parts for leaf in part.leaves())

    def replace_leaves(self, change: Callable[[Ids | RowPositions], Members | bool]) -> Members | bool:
        changed = [part.replace_leaves(change) for part in self.parts]
        rest = tuple(part for part in changed if isinstance(part, Members))
        if self._dominant in [part for part in changed if isinstance(part, bool)]:
            return self._dominant
        if len(rest) < 2:
            return rest[0] if rest else not self._dominant
        return replace(self, parts=rest)

    def evaluate(self, test: Callable[[Ids], T]) -> T:
        return reduce(type(self)._combine, [part.evaluate(test) for part in self.parts])

    def descriptions(self, *, negated: bool = False) -> tuple[str, ...]:
        return tuple(text for part in self.parts for text in part.descriptions(negated=negated))


class AllMembers(_Combination):
    """Intersection."""

    __slots__ = ()
    _combine = and_
    _dominant = False


class AnyMembers(_Combination):
    """Union."""

    __slots__ = ()
    _combine = or_
    _dominant = True


@dataclass(frozen=True, slots=True)
class NotMembers(Members):
    """Complement; includes rows without an id."""

    part: Members

    def leaves(self) -> Iterator[Ids | RowPositions]:
        return self.part.leaves()

    def replace_leaves(self, change: Callable[[Ids | RowPositions], Members | bool]) -> Members | bool:
        changed = self.part.replace_leaves(change)
        return not changed if isinstance(changed, bool) else NotMembers(changed)

    def evaluate(self, test: Callable[[Ids], T]) -> T:
        result: T = ~self.part.evaluate(test)
        return result

    def descriptions(self, *, negated: bool = False) -> tuple[str, ...]:
        return self.part.descriptions(negated=not negated)


def _split_by_position(
    parts: Mapping[Members | bool, RowSet], leaf: RowPositions, positions: RowSet
) -> dict[Members | bool, RowSet]:
    """Split each part by position; parts with equal expressions are merged again."""
    result: dict[Members | bool, RowSet] = {}
    for rest, rows in parts.items():
        for is_member, selected in ((True, rows & positions), (False, rows - positions)):
            if selected.is_empty:
                continue
            remaining = (
                rest if isinstance(rest, bool) else rest.replace_leaves(partial(_substitute, leaf, is_member))
            )
            result[remaining] = result[remaining] | selected if remaining in result else selected
    return result


def _substitute(leaf: RowPositions, is_member: bool, other: Ids | RowPositions) -> Members | bool:
    return is_member if other is leaf else other


def column_mask(ids: IntSet, column: pa.ChunkedArray | pa.Array) -> Array:
    """Membership of each value of an integer column; NULL is never a member."""
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


# -- user input ----------------------------------------------------------------------------------


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
            raise UsageError(
                "members already have a column", column=column, hint="remove the column argument"
            )
        return x
    if isinstance(x, Expr):
        raise UsageError(f"{x} is a condition, not a set", hint="pass conditions to lake.scan(...)")
    if column is None:
        return RowPositions.of(x)
    if not isinstance(column, str):
        raise UsageError(f"column={column!r} is not a name", hint="use the name of an integer column")
    if isinstance(x, Mapping):
        raise UsageError(
            "mapping has row positions, not ids", column=column, hint="remove the column argument"
        )
    return Ids(column, IntSet.of(x))


def combine_members(
    within: MembersLike | None, without: MembersLike | None, id_column: str | None
) -> Members | None:
    """Members in every set of ``within`` and in none of ``without``."""
    sets = [(item, False) for item in _sets(within)] + [(item, True) for item in _sets(without)]
    if id_column is not None and all(isinstance(item, Members) for item, _ in sets):
        reason = "sk.members already have a column" if sets else "there is no set of ids"
        hint = "remove id_column=" if sets else "pass a set of ids as within= or without="
        raise UsageError(f"id_column={id_column!r} is not used: {reason}", hint=hint)
    parts = []
    for item, negated in sets:
        part = item if isinstance(item, Members) else members(item, id_column)
        parts.append(~part if negated else part)
    return AllMembers(tuple(parts)) if len(parts) > 1 else parts[0] if parts else None


def _sets(x: MembersLike | None) -> list[Any]:
    """Normalize to a list of sets; a list of numbers is one set."""
    if x is None:
        return []
    if isinstance(x, list | tuple) and not all(isinstance(item, Real) for item in x):
        return list(x)
    return [x]


def _positions(rows: object) -> Positions:
    return rows if isinstance(rows, RowSet) else IntSet.of(rows)


def _file_number(name: str, candidates: list[int], paths: Sequence[str]) -> int:
    """Number of the file with this path, or else with this end, or else whose path is an end of ``name``."""
    suffix = "/" + name.lstrip("/")
    matches = [number for number in candidates if paths[number] == name]
    matches = matches or [number for number in candidates if paths[number].endswith(suffix)]
    matches = matches or [number for number in candidates if suffix.endswith("/" + paths[number])]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise UsageError(f"{len(matches):,} files match this name", path=name, hint="use a longer path")
    raise UsageError("file is not in the lake", path=name, hint="use a path from lake.files")


# -- row filters ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class MemberAntiJoin(AntiJoin):
    """Removes rows that are not members."""

    members: Members

    @property
    def columns(self) -> tuple[Path, ...]:
        return tuple(self.members.columns)

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        return tuple(self.members.columns.values())

    def deleted(self, table: pa.Table, files: Files, positions: Callable[[], Array]) -> Array:  # noqa: ARG002
        return ~self.members.mask(table)


@dataclass(frozen=True, slots=True, eq=False)
class SequentialIds:
    """Runs of rows with consecutive ids, and the first id of each run."""

    starts: Array
    stops: Array
    ids: Array

    def at(self, positions: Array) -> Array:
        """Ids at row positions, all of which must be in a run."""
        runs: Any = 0
        if len(self.starts) > 1:
            runs = np.searchsorted(self.starts, positions, side="right") - 1
        ids: Array = positions + (self.ids - self.starts)[runs]
        return ids


@dataclass(frozen=True, slots=True, eq=False)
class SequentialAntiJoin(MemberAntiJoin):
    """Removes rows that are not members by row position, for sequential ids; reads no column."""

    runs: Mapping[Path, SequentialIds]

    @property
    def columns(self) -> tuple[Path, ...]:
        return ()

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        return ()

    def deleted(self, table: pa.Table, files: Files, positions: Callable[[], Array]) -> Array:  # noqa: ARG002
        at = positions()
        if not len(at):
            return np.zeros(0, dtype=bool)
        if at[-1] - at[0] + 1 == len(at) and all(len(runs.starts) == 1 for runs in self.runs.values()):
            first = {path: int(runs.at(at[:1])[0]) for path, runs in self.runs.items()}
            return ~self.members.evaluate(lambda leaf: leaf.ids.contains_run(first[leaf.path], len(at)))
        return ~self.members.evaluate(lambda leaf: leaf.ids.contains(self.runs[leaf.path].at(at)))

    def restrict(self) -> SequentialAntiJoin:
        """Drop ids that don't occur in the runs."""
        bounds = {
            path: (int(runs.ids.min()), int((runs.ids + (runs.stops - runs.starts)).max()))
            for path, runs in self.runs.items()
        }
        return replace(self, members=self.members.restrict(bounds))
