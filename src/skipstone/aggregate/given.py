"""Sets of members as callers give them: bitmaps, row sets, arrays, mappings, and what is made of them."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real

from skipstone.aggregate.idset import IdSet
from skipstone.aggregate.members import All, Ids, Members, Places
from skipstone.aggregate.positions import Positions
from skipstone.errors import UsageError
from skipstone.predicate.tree import Expr


def members(x: object, column: str | None = None) -> Members:
    """Rows whose ``column`` is one of some ids or, without a column, rows at some positions.

    Ids are a pyroaring bitmap, a RowSet, or integers in an array or an iterable, and positions too: then they
    count the rows of the whole lake, files by path. A mapping has positions for each file by its path.
    Whatever is given is read at once, so that it may change afterwards.
    """
    if isinstance(x, Members):
        if column is not None:
            raise UsageError("these members have columns of their own", column=column, hint="leave it out")
        return x
    if isinstance(x, Expr):
        raise UsageError(f"{x} is no set", hint="conditions go into lake.scan(...)")
    if column is None:
        return Places(Positions.of(x))
    if not isinstance(column, str):
        raise UsageError(f"column={column!r}", hint="give the name of an integer column")
    if isinstance(x, Mapping):
        raise UsageError("a mapping holds positions in files", column=column, hint="leave out the column")
    return Ids(column, IdSet.of(x))


def allowed(within: object, without: object, id_column: str | None) -> Members | None:
    """The members that a caller lets count: those in each set of ``within`` and in none of ``without``."""
    wanted = [(given, False) for given in _sets(within)] + [(given, True) for given in _sets(without)]
    if id_column is not None and all(isinstance(given, Members) for given, _ in wanted):
        hint = "give a set of ids as within= or without=" if not wanted else "leave out id_column="
        what = (
            "there is no set of ids" if not wanted else "members made by sk.members have columns of their own"
        )
        raise UsageError(f"id_column={id_column!r}, but {what}", hint=hint)
    parts = []
    for given, denied in wanted:
        one = given if isinstance(given, Members) else members(given, id_column)
        parts.append(~one if denied else one)
    return All(tuple(parts)) if len(parts) > 1 else parts[0] if parts else None


def _sets(given: object) -> list[object]:
    """A list of sets as such; one of numbers is itself a set."""
    if given is None:
        return []
    if isinstance(given, list | tuple) and not all(isinstance(one, Real) for one in given):
        return list(given)
    return [given]
