"""Sets of members: which rows may count, by their ids or their places, put together with AND, OR and NOT.

Membership has two values: NULL and negative ids are in no set, so that ``~`` of a set holds them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import and_, or_

import numpy as np
import pyarrow as pa

from skipstone.aggregate.idset import IdSet
from skipstone.aggregate.positions import Positions
from skipstone.core.domain.keys import storage_type
from skipstone.core.evidence import Array, ColumnFacts
from skipstone.core.ir.bind import Binder
from skipstone.core.rows import RowSet
from skipstone.errors import TypeMismatchError
from skipstone.lake.files import Files
from skipstone.lake.snapshot import AntiJoin
from skipstone.partial.states import Path, Rows
from skipstone.scan.projection import find_path


@dataclass(frozen=True, slots=True, eq=False)
class Cover:
    """Per unit, whether a row may be a member, and whether a row may be none."""

    inside: Array
    outside: Array

    @property
    def empty(self) -> Array:
        """The units without a member."""
        return ~self.inside

    @property
    def full(self) -> Array:
        """The units whose rows are all members."""
        return ~self.outside

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
        return All((self, other)) if isinstance(other, Members) else NotImplemented

    def __or__(self, other: Members) -> Members:
        return Some((self, other)) if isinstance(other, Members) else NotImplemented

    def __sub__(self, other: Members) -> Members:
        return All((self, Not(other))) if isinstance(other, Members) else NotImplemented

    def __invert__(self) -> Members:
        return Not(self)

    def __bool__(self) -> bool:
        raise TypeError("sets of members have no truth value; combine them with & | ~, not with and/or/not")

    # -- before it is asked ------------------------------------------------------------------

    @abstractmethod
    def leaves(self) -> Iterator[Ids | Places]:
        """The sets it is made of."""

    @abstractmethod
    def replaced(self, change: Callable[[Ids | Places], Members | bool]) -> Members | bool:
        """The same of other sets; what is TRUE or FALSE for every row is left out."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """The id columns it reads; known once it is bound."""
        return tuple(dict(self._columns()))

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        """The types of these columns."""
        return tuple(dict(self._columns()).values())

    def _columns(self) -> Iterator[tuple[Path, pa.DataType]]:
        return ((leaf.path, leaf.type) for leaf in self.leaves() if isinstance(leaf, Ids))

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

    @abstractmethod
    def cover(self, facts: Mapping[Path, ColumnFacts], units: int) -> Cover:
        """What evidence proves of N units; without places."""

    def mask(self, table: pa.Table) -> Array:
        """Per row, whether it is a member; without places."""
        rows = Rows(table, np.zeros(1, np.int64))
        return self.evaluate(lambda leaf: leaf.ids.mask(rows.column(leaf.path)))

    @abstractmethod
    def evaluate(self, test: Callable[[Ids], Array]) -> Array:
        """Per row, whether it is a member, by a test for each set; without places."""

    @abstractmethod
    def told(self, *, negated: bool = False) -> tuple[str, ...]:
        """Each set in words, with the way its members are found."""


@dataclass(frozen=True, slots=True, eq=False)
class Ids(Members):
    """Rows whose id is in a set."""

    column: str
    ids: IdSet
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

    def cover(self, facts: Mapping[Path, ColumnFacts], units: int) -> Cover:
        known = facts.get(self.path)
        if known is None or not pa.types.is_integer(storage_type(known.type)):
            known = ColumnFacts.unknown(self.type, units)
        some, every = self.ids.covers(known.lower, known.upper)
        return Cover(known.may_value & some, known.may_null | (known.may_value & ~every))

    def evaluate(self, test: Callable[[Ids], Array]) -> Array:
        return test(self)

    def told(self, *, negated: bool = False) -> tuple[str, ...]:
        return (f"{self.column} {'not ' * negated}in {self.ids}",)


@dataclass(frozen=True, slots=True, eq=False)
class Places(Members):
    """Rows at positions in files or, counted by path and then by row, in the whole lake."""

    positions: Positions

    def leaves(self) -> Iterator[Ids | Places]:
        yield self

    def replaced(self, change: Callable[[Ids | Places], Members | bool]) -> Members | bool:
        return change(self)

    def at(self, paths: Sequence[str]) -> Places:
        """The same with the numbers of a lake's files for their names."""
        return Places(self.positions.located(paths))

    def rows(self, file: int, start: int, total: int) -> RowSet:
        """Its rows in a file of a lake: its number, the rows of all files before it, and its own."""
        return self.positions.rows(file, start, total)

    def cover(self, facts: Mapping[Path, ColumnFacts], units: int) -> Cover:  # noqa: ARG002
        raise AssertionError("places are split off before units are judged")

    def evaluate(self, test: Callable[[Ids], Array]) -> Array:  # noqa: ARG002
        raise AssertionError("places are split off before rows are read")

    def told(self, *, negated: bool = False) -> tuple[str, ...]:
        return (f"rows {'not ' * negated}at {self.positions}",)


@dataclass(frozen=True, slots=True)
class _Several(Members):
    parts: tuple[Members, ...]

    def leaves(self) -> Iterator[Ids | Places]:
        return (leaf for part in self.parts for leaf in part.leaves())

    def told(self, *, negated: bool = False) -> tuple[str, ...]:
        return tuple(text for part in self.parts for text in part.told(negated=negated))

    def _rest(self, change: Callable[[Ids | Places], Members | bool], decides: bool) -> Members | bool:
        """The parts that matter, where one that is ``decides`` for every row decides all."""
        changed = [part.replaced(change) for part in self.parts]
        rest = tuple(part for part in changed if isinstance(part, Members))
        if decides in [part for part in changed if isinstance(part, bool)]:
            return decides
        if len(rest) < 2:
            return rest[0] if rest else not decides
        return replace(self, parts=rest)


class All(_Several):
    """Rows that are members of each part."""

    __slots__ = ()

    def replaced(self, change: Callable[[Ids | Places], Members | bool]) -> Members | bool:
        return self._rest(change, False)

    def cover(self, facts: Mapping[Path, ColumnFacts], units: int) -> Cover:
        return reduce(and_, [part.cover(facts, units) for part in self.parts])

    def evaluate(self, test: Callable[[Ids], Array]) -> Array:
        return reduce(and_, [part.evaluate(test) for part in self.parts])


class Some(_Several):
    """Rows that are members of any part."""

    __slots__ = ()

    def replaced(self, change: Callable[[Ids | Places], Members | bool]) -> Members | bool:
        return self._rest(change, True)

    def cover(self, facts: Mapping[Path, ColumnFacts], units: int) -> Cover:
        return reduce(or_, [part.cover(facts, units) for part in self.parts])

    def evaluate(self, test: Callable[[Ids], Array]) -> Array:
        return reduce(or_, [part.evaluate(test) for part in self.parts])


@dataclass(frozen=True, slots=True)
class Not(Members):
    """Rows that are no members, those without an id among them."""

    part: Members

    def leaves(self) -> Iterator[Ids | Places]:
        return self.part.leaves()

    def replaced(self, change: Callable[[Ids | Places], Members | bool]) -> Members | bool:
        changed = self.part.replaced(change)
        return not changed if isinstance(changed, bool) else Not(changed)

    def cover(self, facts: Mapping[Path, ColumnFacts], units: int) -> Cover:
        return ~self.part.cover(facts, units)

    def evaluate(self, test: Callable[[Ids], Array]) -> Array:
        return ~self.part.evaluate(test)

    def told(self, *, negated: bool = False) -> tuple[str, ...]:
        return self.part.told(negated=not negated)


def _cut(parts: Mapping[Members | bool, RowSet], leaf: Places, there: RowSet) -> dict[Members | bool, RowSet]:
    """Each part in two, by whether a row is at one of the places; equal expressions are one part again."""
    found: dict[Members | bool, RowSet] = {}
    for rest, rows in parts.items():
        for here, some in ((True, rows & there), (False, rows - there)):
            if some.is_empty:
                continue
            left = rest if isinstance(rest, bool) else rest.replaced(partial(_known, leaf, here))
            found[left] = found[left] | some if left in found else some
    return found


def _known(leaf: Places, here: bool, other: Ids | Places) -> Members | bool:
    return here if other is leaf else other


@dataclass(frozen=True, slots=True, eq=False)
class Outside(AntiJoin):
    """Rows that are no members, as rows that are deleted by their ids."""

    members: Members

    @property
    def columns(self) -> tuple[Path, ...]:
        return self.members.paths

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        return self.members.types

    def deleted(self, table: pa.Table, files: Files, places: Callable[[], Array]) -> Array:  # noqa: ARG002
        return ~self.members.mask(table)
